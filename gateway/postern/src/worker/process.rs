//! The worker's process: its program, its arguments and its socket.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::Place;
use postern_exec::sandbox::Sandbox;

use crate::{data_dir::DataDir, error::Error};

/// First argument of the process that wraps one command.
pub(crate) const WRAPPER: &str = "exec-wrapper";
/// Longest path of a Unix socket on Linux, without the terminating NUL.
pub(crate) const SOCKET_PATH_LIMIT: usize = 107;
/// Time in which a new worker is ready.
const START_LIMIT: Duration = Duration::from_secs(10);

/// The worker's configuration.
pub(crate) fn config(
    project: PathBuf,
    spool: PathBuf,
    capacity: u32,
    sandbox: Sandbox,
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
        sandbox,
        ..postern_exec::Config::new(project, spool, wrapper)
    })
}

/// This program's own file.
pub(crate) fn program() -> Result<OsString, Error> {
    let program = std::env::current_exe()
        .map_err(|problem| Error::failed("cannot find this program's own file", problem))?;
    Ok(program.into_os_string())
}

/// Starts a worker and waits for its ready line. The process is in a group of its own, so that ^C in a terminal ends the
/// edge, which then ends the worker in order.
pub(super) async fn start(place: &Place) -> Result<Child, Error> {
    let failed = |problem| Error::failed("the exec worker cannot start", problem);
    place.key.restore()?;
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&place.log)
        .map_err(failed)?;
    let mut command = Command::new(program()?);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"POSTERN_"))
    {
        command.env_remove(name);
    }
    let mut listen = OsString::from("unix:");
    listen.push(&place.socket);
    command
        .args(["serve", "exec", "--json", "--listen"])
        .arg(listen);
    command
        .arg("--project")
        .arg(&place.project)
        .arg("--spool")
        .arg(&place.spool)
        // It is ended by a word from its edge; a signal comes with the end of the machine or of the session.
        .args(["--drain", "0"])
        .arg("--key-file")
        .arg(place.key.path())
        .args(place.wishes.to_arguments());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let mut line = String::new();
    let read = async {
        match child.stdout.take() {
            Some(output) => BufReader::new(output).read_line(&mut line).await,
            None => Ok(0),
        }
    };
    match timeout(START_LIMIT, read).await {
        Ok(Ok(read)) if read > 0 => Ok(child),
        Ok(Err(problem)) => Err(failed(problem)),
        Ok(Ok(_)) | Err(_) => {
            // It may have ended by itself already.
            let _ = child.kill().await;
            Err(Error::Failed(format!(
                "the exec worker cannot start; '{}' tells why",
                place.log.display()
            )))
        }
    }
}

/// The worker's socket: in the data directory, or where that path is too long for a socket, in a private folder
/// of the temporary directory under a name made of it.
pub(super) fn socket_path(data: &DataDir) -> Result<PathBuf, Error> {
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
