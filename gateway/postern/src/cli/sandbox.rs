//! The owner's wishes for the sandbox of commands.

use std::path::{Path, PathBuf};

use clap::{
    ArgMatches, Args, Command, FromArgMatches, error::Error as ClapError, parser::ValueSource,
};
use postern_exec::sandbox::{Kernel, Level, Sandbox, homes};

use crate::error::Error;

/// What commands may reach.
#[derive(Clone, Debug, Default)]
pub(crate) struct SandboxArgs {
    /// How far commands are confined.
    pub(crate) sandbox: Level,
    /// What commands may write besides the project.
    pub(crate) sandbox_write: Vec<PathBuf>,
    /// What commands cannot read besides the usual credential stores.
    pub(crate) sandbox_hide: Vec<PathBuf>,
    /// Usual credential stores that commands can read.
    pub(crate) sandbox_show: Vec<PathBuf>,
    /// Variables that commands do not get.
    pub(crate) hide_env: Vec<String>,
    /// Whether any of them was given, on the command line or in the environment.
    given: bool,
}

/// The options as they are written. In the environment a list is one value, its paths separated as in `PATH`; on the command
/// line a path is taken word for word, for a colon may be part of it.
#[derive(Args)]
struct Written {
    /// Keep commands in the project: off, project (as far as the kernel can) or required (or run none)
    #[arg(long, value_name = "LEVEL", env = "POSTERN_SANDBOX", default_value_t)]
    sandbox: Level,
    /// Folder outside the project that commands may write, too; may be given several times
    #[arg(long, value_name = "DIR", env = "POSTERN_SANDBOX_WRITE")]
    sandbox_write: Vec<PathBuf>,
    /// Path that commands cannot read, besides the usual credential stores; may be given several times
    #[arg(long, value_name = "PATH", env = "POSTERN_SANDBOX_HIDE")]
    sandbox_hide: Vec<PathBuf>,
    /// Usual credential store that commands can read all the same; may be given several times
    #[arg(long, value_name = "PATH", env = "POSTERN_SANDBOX_SHOW")]
    sandbox_show: Vec<PathBuf>,
    /// Variable that commands do not get, such as DATABASE_URL or AWS_*; may be given several times, or separated by commas.
    /// POSTERN_… and credentials of telemetry are hidden always
    #[arg(long, value_name = "NAME", env = "POSTERN_HIDE_ENV", value_delimiter = ',', value_parser = variable)]
    hide_env: Vec<String>,
}

impl Args for SandboxArgs {
    fn augment_args(command: Command) -> Command {
        Written::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Written::augment_args_for_update(command)
    }
}

impl FromArgMatches for SandboxArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, ClapError> {
        let source = |name| matches.value_source(name);
        let given = |name| source(name).is_some_and(|source| source != ValueSource::DefaultValue);
        let list = |name, paths: Vec<PathBuf>| match source(name) {
            Some(ValueSource::EnvVariable) => {
                let parts = paths.iter().flat_map(std::env::split_paths);
                parts.filter(|path| !path.as_os_str().is_empty()).collect()
            }
            _ => paths,
        };
        let written = Written::from_arg_matches(matches)?;
        Ok(Self {
            sandbox: written.sandbox,
            sandbox_write: list(WRITE, written.sandbox_write),
            sandbox_hide: list(HIDE, written.sandbox_hide),
            sandbox_show: list(SHOW, written.sandbox_show),
            hide_env: written.hide_env,
            given: [LEVEL, WRITE, HIDE, SHOW, HIDE_ENV].into_iter().any(given),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), ClapError> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

// Ids of the options.
const LEVEL: &str = "sandbox";
const WRITE: &str = "sandbox_write";
const HIDE: &str = "sandbox_hide";
const SHOW: &str = "sandbox_show";
const HIDE_ENV: &str = "hide_env";

/// The name of a variable, with a `*` at the end or not.
fn variable(text: &str) -> Result<String, &'static str> {
    let name = text.strip_suffix('*').unwrap_or(text);
    if name.is_empty() || name.contains(['=', '*']) {
        return Err("write the name of a variable, or its beginning and a '*' at the end");
    }
    Ok(text.to_owned())
}

impl SandboxArgs {
    /// The wishes over this kernel and this user's home.
    pub(crate) fn sandbox(&self) -> Sandbox {
        // What HOME says; the user database is asked besides.
        let known: Vec<PathBuf> = std::env::home_dir().into_iter().collect();
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
            hide_env: self.hide_env.clone(),
            ..Sandbox::new(Kernel::probe())
        }
    }

    /// Refuses what a worker over this project would refuse, before one is started.
    pub(crate) fn demand(&self, project: &Path, data_dir: &Path) -> Result<(), Error> {
        let held = self.sandbox().check(project, data_dir);
        held.map_err(|problem| Error::Failed(problem.to_string()))
    }

    /// Refuses wishes for a worker elsewhere, which has its own: they would be dropped without a word.
    ///
    /// # Errors
    /// [`Error::Usage`], when any was given.
    pub(crate) fn demand_none(&self) -> Result<(), Error> {
        if self.given {
            return Err(Error::Usage(
                "with --exec the sandbox is the worker's own: give --sandbox, --sandbox-write, --sandbox-hide, --sandbox-show and --hide-env (or their variables) to 'postern serve exec' there, and none here".to_owned(),
            ));
        }
        Ok(())
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
        for name in &self.hide_env {
            arguments.extend(["--hide-env".into(), name.into()]);
        }
        arguments
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn parse(arguments: &[&str]) -> SandboxArgs {
        let command = SandboxArgs::augment_args(Command::new("test").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).expect("parsed");
        SandboxArgs::from_arg_matches(&matches).expect("read")
    }

    #[test]
    fn a_colon_on_the_command_line_is_part_of_the_path() {
        let mut wishes = parse(&[
            "--sandbox-hide",
            "/x:d/data",
            "--sandbox-hide=/y",
            "--sandbox-write",
            "/w:1",
            "--sandbox-show",
            "/s:1",
            "--hide-env=DATABASE_URL,AWS_*",
        ]);
        assert_eq!(wishes.hide_env, ["DATABASE_URL", "AWS_*"]);
        let all = |wishes: &SandboxArgs| {
            let paths = [
                &wishes.sandbox_write,
                &wishes.sandbox_hide,
                &wishes.sandbox_show,
            ];
            paths.map(|paths| {
                paths
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect::<Vec<_>>()
                    .join(" ")
            })
        };
        assert_eq!(all(&wishes), ["/w:1", "/x:d/data /y", "/s:1"]);
        // As an edge adds to them and a worker reads them: the same wishes, the same fingerprint.
        wishes.sandbox_hide.push("/var/x:d/data".into());
        let arguments = wishes.to_arguments();
        let arguments: Vec<&str> = arguments.iter().filter_map(|text| text.to_str()).collect();
        let read = parse(&arguments);
        assert_eq!(all(&read), all(&wishes));
        assert_eq!(read.sandbox().fingerprint(), wishes.sandbox().fingerprint());
    }

    #[test]
    fn what_is_given_is_told_from_what_is_not() {
        assert!(parse(&[]).demand_none().is_ok());
        for given in [
            ["--sandbox", "required"],
            ["--sandbox-hide", "/h"],
            ["--hide-env", "TOKEN"],
        ] {
            let refused = parse(&given).demand_none().expect_err("given");
            assert_eq!(refused.exit_code(), crate::error::USAGE);
        }
    }
}
