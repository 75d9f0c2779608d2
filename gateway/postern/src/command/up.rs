//! `postern up`: host, edge and services for one project, from one command.

mod provision;
mod ready;

use std::{
    fs,
    path::{Path, PathBuf},
};

use postern_kit::{Clock, task::Tasks, transport};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{edge, host};
use crate::{
    cli::{RemoteServices, Up},
    data_dir::{self, DataDir},
    error::Error,
    services::{self, HOST_IDENTITY_FILE, SHUTDOWN_LIMIT},
    signals,
};

/// Events of the edge that wait to be told.
const EVENT_QUEUE: usize = 64;

/// Runs everything until it is told to end.
pub(crate) async fn run(arguments: Up, json: bool) -> Result<(), Error> {
    let (tasks, clock, stop) = (Tasks::new(), Clock::system(), CancellationToken::new());
    signals::listen(&tasks, stop.clone())?;
    let project = real_project(&arguments.project)?;
    let data_dir = arguments
        .data_dir
        .clone()
        .map_or_else(|| data_dir::default_for(&project), Ok)?;
    data_dir::demand_outside(&data_dir, &project)?;
    // Everything that can be refused is refused before anything is made.
    let agents = host::bind(&arguments.listen, "--listen").await?;
    let console = host::bind(&arguments.owner.console, "--console").await?;
    let data = DataDir::open(&data_dir)?;
    let outcome = open_and_run(
        &arguments,
        json,
        &data,
        &project,
        (agents, console),
        &clock,
        &tasks,
        stop,
    )
    .await;
    tasks.shutdown(SHUTDOWN_LIMIT).await;
    outcome
}

#[expect(
    clippy::too_many_arguments,
    reason = "what `run` has prepared, used once"
)]
async fn open_and_run(
    arguments: &Up,
    json: bool,
    data: &DataDir,
    project: &Path,
    (agents, console): (tokio::net::TcpListener, tokio::net::TcpListener),
    clock: &Clock,
    tasks: &Tasks,
    stop: CancellationToken,
) -> Result<(), Error> {
    let identity = transport::local(
        services::host_identity(data.join(HOST_IDENTITY_FILE), clock, tasks).await?,
    );
    let provision = provision::provision(data, project, arguments, &identity).await?;
    let url = host::url_of(&agents)?;
    let host = host::open(data.path(), url.clone(), identity, clock, tasks).await?;
    let host_stop = CancellationToken::new();
    let host_ends = host_stop.clone();
    let serving = tasks.spawn("host", async move { host.serve(agents, host_ends).await });
    let launch = edge::Launch {
        host: url.clone(),
        workspace: provision.workspace.clone(),
        intention: provision.intention.clone(),
        token: provision.channel_token.clone(),
        allow_plaintext: false,
    };
    let here = RemoteServices {
        identity: None,
        policy: None,
        filesystem: None,
        exec: None,
        ledger: None,
    };
    let running = edge::open(
        data,
        project,
        launch,
        &arguments.owner,
        &here,
        Some(console),
        clock,
        tasks,
    )
    .await?;
    let ready = ready::Ready {
        mcp_url: format!("{url}/mcp"),
        agent_token: provision.agent_token,
        console_url: running.console_url.clone().unwrap_or_default(),
        owner_token: running.owner_token.clone(),
        workspace_id: provision.workspace.to_string(),
        intention: provision.intention.to_string(),
        data_dir: data.path().display().to_string(),
        profile: arguments.profile,
        mode: arguments.owner.mode,
    };
    let (events, told) = mpsc::channel(EVENT_QUEUE);
    tasks.spawn("edge events", ready.tell(told, json));
    let end = running.run(events, stop).await;
    host_stop.cancel();
    serving
        .await
        .map_err(|problem| Error::failed("the host failed", problem))?;
    end
}

/// The project's real root.
pub(crate) fn real_project(project: &Path) -> Result<PathBuf, Error> {
    let real = fs::canonicalize(project)
        .map_err(|problem| Error::Failed(format!("the project '{}' cannot be opened ({problem}); name an existing directory with --project", project.display())))?;
    if !real.is_dir() {
        return Err(Error::Failed(format!(
            "the project '{}' is not a directory; name one with --project",
            project.display()
        )));
    }
    Ok(real)
}
