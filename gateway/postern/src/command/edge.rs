//! `postern edge`: the owner's instance, and the part of `postern up` that is the same.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use postern_edge::{Edge, End, Event, Services, Token};
use postern_kit::{Clock, task::Tasks, transport};
use postern_types::{Id, Intention};
use serde_json::json;
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;

use super::{
    host::{bind, url_of},
    up::real_project,
};
use crate::{
    cli::{self, OwnerArgs, RemoteServices},
    data_dir::{self, DataDir},
    error::Error,
    output, remote,
    services::{
        self, CONSOLE_URL_FILE, EDGE_IDENTITY_FILE, LEDGER_FILE, OWNER_TOKEN_FILE, SHUTDOWN_LIMIT,
    },
    signals,
    worker::Worker,
};

/// Events of an edge that wait to be told.
const EVENT_QUEUE: usize = 64;

/// Runs an edge until it ends.
pub(crate) async fn run(arguments: cli::Edge, json: bool) -> Result<(), Error> {
    let (tasks, clock, stop) = (Tasks::new(), Clock::system(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let project = real_project(&arguments.project)?;
    data_dir::demand_outside(&arguments.data_dir, &project)?;
    let token = remote::read_token(&arguments.token_file)?;
    let console = match arguments.listen_none {
        true => None,
        false => Some(bind(&arguments.owner.console, "--console").await?),
    };
    let data = DataDir::open(&arguments.data_dir)?;
    let launch = Launch {
        host: arguments.host,
        workspace: arguments.workspace,
        intention: arguments.intention,
        token,
        allow_plaintext: arguments.allow_plaintext,
    };
    let running = open(
        &data,
        &project,
        launch,
        &arguments.owner,
        &arguments.remote,
        console,
        &clock,
        &tasks,
    )
    .await?;
    if let Some(url) = &running.console_url {
        output::either(
            json,
            &json!({"event": "listening", "role": "console", "url": url}),
            &format!("console on {url}"),
        );
    }
    let (events, told) = mpsc::channel(EVENT_QUEUE);
    tasks.spawn("edge events", tell(told, json));
    let end = running.run(events, stop).await;
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    end
}

async fn tell(mut events: mpsc::Receiver<Event>, json: bool) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Connected => output::either(json, &json!({"event": "connected"}), "connected"),
            Event::Disconnected { reason } => {
                output::either(
                    json,
                    &json!({"event": "disconnected", "reason": reason}),
                    &format!("disconnected: {reason}"),
                );
            }
        }
    }
}

/// What an edge is opened for.
pub(crate) struct Launch {
    /// URL of the host.
    pub(crate) host: String,
    /// Workspace.
    pub(crate) workspace: Id,
    /// Intention.
    pub(crate) intention: Intention,
    /// Channel token.
    pub(crate) token: String,
    /// Whether the token may go over plain http beyond this machine.
    pub(crate) allow_plaintext: bool,
}

/// An open edge.
pub(crate) struct Running {
    edge: Edge,
    worker: Option<Worker>,
    console_url_file: PathBuf,
    /// URL of the owner API, when there is one.
    pub(crate) console_url: Option<String>,
    /// Token of the owner API.
    pub(crate) owner_token: String,
}

/// Opens the services, the edge and the owner API.
#[expect(
    clippy::too_many_arguments,
    reason = "the composition of everything an edge needs, called twice"
)]
pub(crate) async fn open(
    data: &DataDir,
    project: &Path,
    launch: Launch,
    owner: &OwnerArgs,
    remote: &RemoteServices,
    console: Option<TcpListener>,
    clock: &Clock,
    tasks: &Tasks,
) -> Result<Running, Error> {
    let worker = async {
        match remote.exec {
            Some(_) => Ok(None),
            None => Worker::meet_or_start(data, project, &launch.workspace)
                .await
                .map(Some),
        }
    };
    // The worker is a process; it starts while the stores open.
    let (worker, services) = tokio::join!(
        worker,
        in_process(data, project, owner, remote, clock, tasks)
    );
    let (worker, partial) = (worker?, services?);
    let exec = match (&remote.exec, &worker) {
        (Some(address), _) => services::remote(address)?,
        (None, Some(worker)) => worker.transport(),
        (None, None) => return Err(Error::Failed("there is no exec worker".to_owned())),
    };
    let services = Services {
        identity: partial.identity,
        policy: partial.policy,
        filesystem: partial.filesystem,
        exec,
        ledger: partial.ledger,
    };
    let ledger = services.ledger.clone();
    let edge = start(project, launch, owner, services, clock, tasks).await?;
    let owner_token = owner_token(data)?;
    let mut console_url = None;
    if let Some(listener) = console {
        let url = url_of(&listener)?;
        data.write_private(CONSOLE_URL_FILE, &format!("{url}\n"))?;
        let api = postern_edge::owner::Api::new(
            edge.handle(),
            ledger,
            owner_token.clone(),
            clock.clone(),
        );
        tasks.spawn("owner api", api.serve(listener, tasks.stopping()));
        console_url = Some(url);
    }
    Ok(Running {
        edge,
        worker,
        console_url_file: data.join(CONSOLE_URL_FILE),
        console_url,
        owner_token,
    })
}

struct InProcess {
    identity: transport::Transport,
    policy: transport::Transport,
    filesystem: transport::Transport,
    ledger: transport::Transport,
}

async fn in_process(
    data: &DataDir,
    project: &Path,
    owner: &OwnerArgs,
    remote: &RemoteServices,
    clock: &Clock,
    tasks: &Tasks,
) -> Result<InProcess, Error> {
    let policy = match &remote.policy {
        Some(address) => services::remote(address)?,
        None => transport::local(services::policy(owner.policies.clone())?),
    };
    let filesystem = match &remote.filesystem {
        Some(address) => services::remote(address)?,
        None => transport::local(services::filesystem(project, clock)?),
    };
    let identity = async {
        match &remote.identity {
            Some(address) => services::remote(address),
            None => Ok(transport::local(
                services::edge_identity(data.join(EDGE_IDENTITY_FILE), clock).await?,
            )),
        }
    };
    let ledger = async {
        match &remote.ledger {
            Some(address) => services::remote(address),
            None => Ok(transport::local(
                services::ledger(data.join(LEDGER_FILE), clock, tasks).await?,
            )),
        }
    };
    let (identity, ledger) = tokio::try_join!(identity, ledger)?;
    Ok(InProcess {
        identity,
        policy,
        filesystem,
        ledger,
    })
}

async fn start(
    project: &Path,
    launch: Launch,
    owner: &OwnerArgs,
    services: Services,
    clock: &Clock,
    tasks: &Tasks,
) -> Result<Edge, Error> {
    let root = postern_kit::root::Root::open(project)
        .map_err(|problem| Error::failed("the project cannot be opened", problem))?;
    let identity = root.identity();
    let config = postern_edge::Config {
        mode: owner.mode,
        allow_plaintext: launch.allow_plaintext,
        approval_timeout: Duration::from_secs(owner.approval_timeout),
        repin: owner.repin,
        ..postern_edge::Config::new(
            launch.host,
            launch.workspace,
            launch.intention,
            Token::new(&launch.token),
            project.display().to_string(),
            identity.device,
            identity.inode,
        )
    };
    Edge::start(config, services, clock.clone(), tasks)
        .await
        .map_err(|problem| Error::Failed(problem.to_string()))
}

/// The token of the owner API: made once, kept in the data directory.
fn owner_token(data: &DataDir) -> Result<String, Error> {
    if let Some(token) = data.read_private(OWNER_TOKEN_FILE)? {
        return Ok(token);
    }
    let secret = postern_identity::secret::mint(postern_identity::secret::Kind::Owner)
        .map_err(|problem| Error::failed("there is no randomness for a token", problem))?;
    let token = secret.into_exposed();
    data.write_private(OWNER_TOKEN_FILE, &format!("{token}\n"))?;
    Ok(token)
}

impl Running {
    /// Runs the edge until it ends or `stop` is signalled, then ends the worker.
    pub(crate) async fn run(
        self,
        events: mpsc::Sender<Event>,
        stop: CancellationToken,
    ) -> Result<(), Error> {
        let end = self.edge.run(events, stop).await;
        if let Some(worker) = &self.worker {
            worker.stop().await;
        }
        // A file that is gone already tells the same.
        let _ = std::fs::remove_file(&self.console_url_file);
        let _ = std::io::stdout().flush();
        match end {
            End::Stopped => Ok(()),
            End::Unauthorized(why) => Err(Error::Refused(why)),
            End::Superseded(why) => Err(Error::Superseded(why)),
            End::Failed(why) => Err(Error::Failed(why)),
        }
    }
}
