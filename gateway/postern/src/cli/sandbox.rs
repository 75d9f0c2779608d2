//! The owner's wishes for the sandbox of commands.

use std::path::{Path, PathBuf};

use clap::Args;
use postern_exec::sandbox::{Kernel, Level, Sandbox, homes};

use crate::error::Error;

/// What commands may reach. Lists are separated by colons in the environment.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SandboxArgs {
    /// Keep commands in the project: off, project (as far as the kernel can) or required (or run none)
    #[arg(long, value_name = "LEVEL", env = "POSTERN_SANDBOX", default_value_t)]
    pub(crate) sandbox: Level,
    /// Folder outside the project that commands may write, too; may be given several times
    #[arg(
        long,
        value_name = "DIR",
        env = "POSTERN_SANDBOX_WRITE",
        value_delimiter = ':'
    )]
    pub(crate) sandbox_write: Vec<PathBuf>,
    /// Path that commands cannot read, besides the usual credential stores; may be given several times
    #[arg(
        long,
        value_name = "PATH",
        env = "POSTERN_SANDBOX_HIDE",
        value_delimiter = ':'
    )]
    pub(crate) sandbox_hide: Vec<PathBuf>,
    /// Usual credential store that commands can read all the same; may be given several times
    #[arg(
        long,
        value_name = "PATH",
        env = "POSTERN_SANDBOX_SHOW",
        value_delimiter = ':'
    )]
    pub(crate) sandbox_show: Vec<PathBuf>,
}

impl SandboxArgs {
    /// The wishes over this kernel and this user's home.
    pub(crate) fn sandbox(&self) -> Sandbox {
        // What HOME says and what the user database says: either may hold the credentials.
        let said = std::env::var_os("HOME").map(PathBuf::from);
        let known: Vec<PathBuf> = said.into_iter().chain(std::env::home_dir()).collect();
        let state =
            std::env::var_os("XDG_STATE_HOME").map(|state| Path::new(&state).join("postern"));
        Sandbox {
            level: self.sandbox,
            homes: homes(&known),
            write: self
                .sandbox_write
                .iter()
                .map(|path| absolute(path))
                .collect(),
            hide: self
                .sandbox_hide
                .iter()
                .map(|path| absolute(path))
                .chain(state)
                .collect(),
            show: self
                .sandbox_show
                .iter()
                .map(|path| absolute(path))
                .collect(),
            ..Sandbox::new(Kernel::probe())
        }
    }

    /// Refuses what a worker over this project would refuse, before one is started.
    pub(crate) fn demand(&self, project: &Path, data_dir: &Path) -> Result<(), Error> {
        let held = self.sandbox().check(project, data_dir);
        held.map_err(|problem| Error::Failed(problem.to_string()))
    }

    /// The same wishes as arguments of a worker.
    pub(crate) fn to_arguments(&self) -> Vec<std::ffi::OsString> {
        let mut arguments = vec!["--sandbox".into(), self.sandbox.as_str().into()];
        for (name, paths) in [
            ("--sandbox-write", &self.sandbox_write),
            ("--sandbox-hide", &self.sandbox_hide),
            ("--sandbox-show", &self.sandbox_show),
        ] {
            for path in paths {
                arguments.extend([name.into(), absolute(path).into_os_string()]);
            }
        }
        arguments
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
