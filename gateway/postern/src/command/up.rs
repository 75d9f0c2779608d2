//! `postern up`: host, edge and services for one project, from one command.

mod provision;
mod ready;

use std::path::PathBuf;

use postern_identity::Database;
use postern_kit::{Clock, metrics::Page, task::Tasks, transport};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;

use super::{edge, host};
use crate::{
    cli::{RemoteServices, Up},
    data_dir,
    error::Error,
    figures, net,
    project::Project,
    services::{self, HOST_IDENTITY_FILE, SHUTDOWN_LIMIT},
    signals,
};

/// Events of the edge that wait to be told.
const EVENT_QUEUE: usize = 64;

/// Where it listens.
struct Listeners {
    agents: TcpListener,
    console: TcpListener,
    page: Option<Page>,
}

impl Listeners {
    async fn bind(arguments: &Up) -> Result<Self, Error> {
        Ok(Self {
            agents: net::bind(&arguments.listen, "--listen").await?,
            console: net::bind(&arguments.owner.console, "--console").await?,
            page: figures::bind(&arguments.metrics).await?,
        })
    }
}

/// Where state lies: outside the project, whatever was said.
fn data_dir_of(arguments: &Up, project: &Project) -> Result<PathBuf, Error> {
    let data_dir = match &arguments.data_dir {
        Some(named) => named.clone(),
        None => data_dir::default_for(&project.path)?,
    };
    data_dir::demand_outside(&data_dir, &project.path)?;
    Ok(data_dir)
}

/// Runs everything until it is told to end.
pub(crate) async fn run(arguments: Up, json: bool) -> Result<(), Error> {
    let (tasks, clock, stop) = (Tasks::new(), Clock::system(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let project = Project::open(&arguments.project)?;
    let data_dir = data_dir_of(&arguments, &project)?;
    // What can be refused is refused before anything is made.
    arguments.owner.demand_private_console()?;
    let wishes = &arguments.owner.sandbox;
    wishes.demand(&project.path, &data_dir)?;
    let named = edge::named_rules(&arguments.owner, &project, &tasks)?;
    let bound = Listeners::bind(&arguments).await?;
    let data = edge::data(&data_dir, &arguments.owner)?;
    let policy = edge::rules(named, &data, &tasks)?;
    let database = Database::Sqlite(data.join(HOST_IDENTITY_FILE));
    let service = services::host_identity(database, &clock, &tasks).await?;
    let identity = transport::local(service.clone().into_server());
    let provision = provision::provision(&data, &project, &arguments, &service, &identity).await?;
    let url = net::url_of(&bound.agents)?;
    let config = host::config(data.path(), url.clone(), &service).beside_edge();
    let host = host::open(config, identity, &clock, &tasks).await?;
    let metrics = figures::serve(bound.page, &tasks);
    let host_stop = CancellationToken::new();
    let host_ends = host_stop.clone();
    let serving = tasks.spawn(
        "host",
        async move { host.serve(bound.agents, host_ends).await },
    );
    let parts = edge::Parts {
        data: &data,
        project: &project,
        owner: &arguments.owner,
        private: &[],
        remote: &RemoteServices::default(),
        tls: None,
        policy,
        clock: &clock,
        tasks: &tasks,
    };
    let opened = parts
        .open(provision.launch(&url), Some(bound.console), &stop)
        .await;
    let end = match opened {
        Ok(Some(running)) => {
            if let Err(problem) = provision.pinned(&data) {
                tracing::warn!(%problem, "the next start will pin the same once more");
            }
            let ready = ready::Ready::new(&url, metrics, &provision, &running, &data, &arguments);
            let (events, told) = mpsc::channel(EVENT_QUEUE);
            tasks.spawn("edge events", ready.tell(told, json));
            running.run(events, stop).await
        }
        Ok(None) => Ok(()),
        Err(problem) => Err(problem),
    };
    host_stop.cancel();
    let served = serving
        .await
        .map_err(|problem| Error::failed("the host failed", problem));
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    end.and(served)
}
