//! The exec worker of an edge: a process of its own that outlives a killed edge and is met again over its socket.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader},
    os::unix::{
        fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use postern_kit::transport::{Address, Transport};
use postern_proto::exec::v1::{HeartbeatRequest, ShutdownRequest, exec_client::ExecClient};
use postern_types::Id;
use tokio::time::timeout;

use crate::{data_dir::DataDir, error::Error, services};

/// First argument of the process that wraps one command.
pub(crate) const WRAPPER: &str = "exec-wrapper";
/// Longest path of a Unix socket on Linux, without the terminating NUL.
const SOCKET_PATH_LIMIT: usize = 107;
/// Time in which a worker answers when it is met again.
const MEET_LIMIT: Duration = Duration::from_secs(2);
/// Time in which a new worker is ready.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Time in which a worker ends its commands.
const STOP_LIMIT: Duration = Duration::from_secs(8);

/// The worker's configuration.
pub(crate) fn config(
    project: PathBuf,
    spool: PathBuf,
    capacity: u32,
) -> Result<postern_exec::Config, Error> {
    let wrapper = vec![program()?, WRAPPER.into()];
    Ok(postern_exec::Config {
        capacity,
        environment: std::env::vars_os().collect(),
        hidden_env: postern_exec::TELEMETRY_SECRETS
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
        end_when_orphaned: true,
        own_process: true,
        ..postern_exec::Config::new(project, spool, wrapper)
    })
}

fn program() -> Result<OsString, Error> {
    let program = std::env::current_exe()
        .map_err(|problem| Error::failed("cannot find this program's own file", problem))?;
    Ok(program.into_os_string())
}

/// A worker of this data directory.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    transport: Transport,
}

impl Worker {
    /// Meets the worker that still runs for this data directory, or starts one.
    pub(crate) async fn meet_or_start(
        data: &DataDir,
        project: &Path,
        workspace: &Id,
    ) -> Result<Self, Error> {
        let socket = socket_path(data)?;
        let worker = Self {
            transport: services::remote(&Address::Unix(socket.clone()))?,
        };
        if socket.exists() && worker.answers(workspace).await {
            return Ok(worker);
        }
        let (spool, log, project) = (
            data.join("spool"),
            data.join("exec-worker.log"),
            project.to_owned(),
        );
        let started = tokio::task::spawn_blocking(move || start(&socket, &project, &spool, &log));
        match timeout(START_LIMIT, started).await {
            Ok(Ok(outcome)) => outcome.map(|()| worker),
            Ok(Err(problem)) => Err(Error::failed("the exec worker cannot start", problem)),
            Err(_) => Err(Error::Failed(format!(
                "the exec worker was not ready within {} s; see exec-worker.log",
                START_LIMIT.as_secs()
            ))),
        }
    }

    /// What a client stands on.
    pub(crate) fn transport(&self) -> Transport {
        self.transport.clone()
    }

    async fn answers(&self, workspace: &Id) -> bool {
        let sign = HeartbeatRequest {
            workspace_id: workspace.to_string(),
            incarnation: 0,
        };
        let mut client = ExecClient::new(self.transport());
        matches!(timeout(MEET_LIMIT, client.heartbeat(sign)).await, Ok(Ok(_)))
    }

    /// Ends the worker and its commands.
    pub(crate) async fn stop(&self) {
        let mut client = ExecClient::new(self.transport());
        let wish = client.shutdown(ShutdownRequest {
            reason: "edge ended".to_owned(),
        });
        match timeout(STOP_LIMIT, wish).await {
            Ok(Ok(answer)) => tracing::info!(
                stopped = answer.into_inner().stopped,
                "the exec worker ends"
            ),
            Ok(Err(status)) => {
                tracing::warn!(code = ?status.code(), "the exec worker did not answer")
            }
            Err(_) => tracing::warn!("the exec worker is slow to end"),
        }
    }
}

/// Starts a worker and waits for its ready line. The process is in a group of its own, so that ^C in a terminal ends the
/// edge, which then ends the worker in order.
fn start(socket: &Path, project: &Path, spool: &Path, log: &Path) -> Result<(), Error> {
    let failed = |problem| Error::failed("the exec worker cannot start", problem);
    let log_file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(log)
        .map_err(failed)?;
    let mut command = Command::new(program()?);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"POSTERN_"))
    {
        command.env_remove(name);
    }
    let mut listen = OsString::from("unix:");
    listen.push(socket);
    command
        .args(["serve", "exec", "--json", "--listen"])
        .arg(listen);
    command
        .arg("--project")
        .arg(project)
        .arg("--spool")
        .arg(spool);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output)
            .read_line(&mut line)
            .map_err(failed)?;
    }
    if line.is_empty() {
        return Err(Error::Failed(format!(
            "the exec worker cannot start; '{}' tells why",
            log.display()
        )));
    }
    // Reaped here when it ends before this process does; a thread that only waits costs nothing.
    std::thread::Builder::new()
        .name("exec worker".to_owned())
        .stack_size(64 * 1024)
        .spawn(move || child.wait())
        .map_err(failed)?;
    Ok(())
}

/// The worker's socket: in the data directory, or where that path is too long for a socket, in a private folder
/// of the temporary directory under a name made of it.
fn socket_path(data: &DataDir) -> Result<PathBuf, Error> {
    let plain = data.join("exec.sock");
    if plain.as_os_str().len() <= SOCKET_PATH_LIMIT {
        return Ok(plain);
    }
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("postern-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(problem) if problem.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Error::failed(
                format!("cannot make '{}'", folder.display()),
                problem,
            ));
        }
        _ => {}
    }
    let facts = fs::symlink_metadata(&folder).map_err(|problem| {
        Error::failed(format!("cannot look at '{}'", folder.display()), problem)
    })?;
    if !facts.is_dir() || facts.uid() != user || facts.mode() & 0o077 != 0 {
        return Err(Error::Failed(format!(
            "'{}' is not a private folder of yours; choose a shorter --data-dir",
            folder.display()
        )));
    }
    let digest = postern_types::Sha256::of(data.path().as_os_str().as_encoded_bytes()).to_string();
    Ok(folder.join(format!("{}.sock", &digest[..32])))
}
