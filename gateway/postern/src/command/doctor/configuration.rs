//! What the owner's configuration says, as `postern up` would read it, or else `postern edge`.

use std::{ffi::OsString, path::Path};

use postern_edge::ToolServer;

use crate::{
    cli::{self, TlsArg},
    config,
};

/// What is looked at of it.
#[derive(Debug, Default)]
pub(super) struct Configured {
    pub(super) tools: Vec<ToolServer>,
    /// An edge's alone.
    pub(super) tls: TlsArg,
}

/// What `postern edge` demands on its command line; nothing of it is used.
const DEMANDED: [&str; 8] = [
    "--host",
    "http://127.0.0.1:1",
    "--workspace",
    "00000000-0000-4000-8000-000000000000",
    "--intention",
    "none",
    "--token-file",
    "none",
];

/// What a postern over this project and data directory would start with.
pub(super) fn read(project: &Path, data_dir: &Path) -> Result<Configured, String> {
    match read_as("up", &[], project, data_dir) {
        Ok(configured) => Ok(configured),
        // An edge's file has keys that `postern up` does not know. What is wrong for both is told in the words of the first.
        Err(problem) => read_as("edge", &DEMANDED, project, data_dir).map_err(|_| problem),
    }
}

fn read_as(
    command: &str,
    further: &[&str],
    project: &Path,
    data_dir: &Path,
) -> Result<Configured, String> {
    let mut arguments: Vec<OsString> = vec!["postern".into(), command.into()];
    arguments.extend(further.iter().map(OsString::from));
    arguments.extend(["--project".into(), project.into()]);
    arguments.extend(["--data-dir".into(), data_dir.into()]);
    match config::parse(&arguments) {
        Ok(config::Parsed::Run(parsed)) => Ok(of(parsed.command)),
        Ok(config::Parsed::Dump(_)) => Ok(Configured::default()),
        Err(config::Problem::Config(problem)) => Err(problem.to_string()),
        // It is about other options, and told where these are used.
        Err(config::Problem::CommandLine(_)) => Ok(Configured::default()),
    }
}

fn of(command: cli::Command) -> Configured {
    if let cli::Command::Up(up) = command {
        return Configured {
            tools: up.owner.tools,
            tls: TlsArg::default(),
        };
    }
    if let cli::Command::Edge(edge) = command {
        return Configured {
            tools: edge.owner.tools,
            tls: edge.remote.tls,
        };
    }
    // The words of `read` are of no other command.
    Configured::default()
}
