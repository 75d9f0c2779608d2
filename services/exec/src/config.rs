//! What a worker is told when it starts.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    time::Duration,
};

use crate::{
    limits::Limits,
    sandbox::{Kernel, Sandbox},
};

/// Running commands of one session (CONTRACT.md, section 3).
pub(crate) const SESSION_COMMANDS: usize = 16;
/// Commands that have ended but left processes behind, of the whole worker. Each holds a wrapper process, a thread and
/// seven handles, as a running command does.
pub(crate) const LEFTOVER_COMMANDS: usize = 32;
/// Characters of a command's shell text (the tool's schema).
pub(crate) const COMMAND_CHARS: usize = 32_768;
/// Bytes of a command's shell text: what the kernel takes as one argument, less its final zero.
pub(crate) const COMMAND_BYTES: usize = 128 * 1024 - 1;
/// Characters of one input (the tool's schema).
pub(crate) const INPUT_CHARS: usize = 16_384;
/// Bounds of a command's time limit, in milliseconds (the tool's schema).
pub(crate) const TIMEOUT_MS: std::ops::RangeInclusive<u32> = 1_000..=600_000;

/// Variables that usually hold credentials of telemetry; a composer adds them to [`Config::hidden_env`].
pub const TELEMETRY_SECRETS: &[&str] = &[
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_LOGS_HEADERS",
];

/// A worker's configuration. [`Config::new`] gives the defaults; fields are changed freely after it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Root of the project that commands work in.
    pub project: PathBuf,
    /// Where output and end states are kept. Workers may share it.
    pub spool: PathBuf,
    /// Program and leading arguments that lead to [`crate::wrapper_main`].
    pub wrapper: Vec<OsString>,
    /// Shell that runs commands, called with `-c`; an absolute path.
    pub shell: PathBuf,
    /// The owner's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables that commands do not get, besides everything named `POSTERN_…`.
    pub hidden_env: Vec<String>,
    /// Running commands that the worker takes at most. Each holds seven handles, so the default stays below the usual
    /// limit of 1024 for a process.
    pub capacity: u32,
    /// Wrappers kept ready, so that a command starts at once.
    pub spares: usize,
    /// Time without a word from the edge after which commands are ended.
    pub orphan_limit: Duration,
    /// Whether the worker is to end once `orphan_limit` has passed ([`crate::Service::finished`]).
    pub end_when_orphaned: bool,
    /// Whether the worker has a lease with a ledger ([`crate::Service::register`]): then it takes commands only while that runs.
    pub leased: bool,
    /// Whether the process is this worker's alone. It then adopts and ends what a killed wrapper leaves behind, and every
    /// child process that it did not start; and other processes of the user cannot look into it.
    pub own_process: bool,
    /// What one command may take of the machine.
    pub limits: Limits,
    /// Whether commands are kept from gaining privileges by set-user-id programs.
    pub no_new_privileges: bool,
    /// What commands may reach. It implies `no_new_privileges` when it is in force.
    pub sandbox: Sandbox,
}

impl Config {
    /// A configuration with the defaults.
    #[must_use]
    pub fn new(project: PathBuf, spool: PathBuf, wrapper: Vec<OsString>) -> Self {
        Self {
            project,
            spool,
            wrapper,
            shell: PathBuf::from("/bin/sh"),
            environment: Vec::new(),
            hidden_env: Vec::new(),
            capacity: 64,
            spares: 2,
            orphan_limit: Duration::from_secs(600),
            end_when_orphaned: false,
            leased: false,
            limits: Limits::default(),
            own_process: false,
            no_new_privileges: true,
            sandbox: Sandbox::new(Kernel::probe()),
        }
    }

    /// What commands do not get and a program of the owner's may, by its own name: nothing of this program's.
    pub(crate) fn passable_environment(&self) -> Vec<(OsString, OsString)> {
        let own = |name: &OsStr| name.as_encoded_bytes().starts_with(b"POSTERN_");
        let all = self.environment.iter();
        all.filter(|(name, _)| !own(name)).cloned().collect()
    }

    /// The environment of commands, and of the wrappers around them: the owner's, less what is hidden, with a plain terminal.
    pub(crate) fn command_environment(&self) -> Vec<(OsString, OsString)> {
        let fixed = [("TERM", "dumb"), ("NO_COLOR", "1"), ("PAGER", "cat")];
        let replaced = |name: &OsStr| {
            ["PWD", "OLDPWD"].iter().any(|own| name == *own)
                || fixed.iter().any(|(own, _)| name == *own)
        };
        let hidden = |name: &OsStr| {
            name.as_encoded_bytes().starts_with(b"POSTERN_")
                || self
                    .hidden_env
                    .iter()
                    .chain(&self.sandbox.hide_env)
                    .any(|hidden| is_named(name, hidden))
        };
        let mut environment: Vec<_> = self
            .environment
            .iter()
            .filter(|(name, _)| !hidden(name) && !replaced(name))
            .cloned()
            .collect();
        environment.extend(fixed.map(|(name, value)| (name.into(), value.into())));
        environment
    }
}

/// Whether a variable is meant by a name, whose last `*` stands for anything.
fn is_named(variable: &OsStr, name: &str) -> bool {
    match name.strip_suffix('*') {
        Some(start) => variable.as_encoded_bytes().starts_with(start.as_bytes()),
        None => variable == name,
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn commands_get_the_environment_without_what_is_hidden() {
        let mut config = Config::new("/p".into(), "/s".into(), vec!["w".into()]);
        config.hidden_env = vec!["DATABASE_URL".to_owned()];
        config.sandbox.hide_env = vec!["CHANNEL_TOKEN".to_owned(), "AWS_*".to_owned()];
        config.environment = [
            ("PATH", "/bin"),
            ("POSTERN_TOKEN", "mark"),
            ("DATABASE_URL", "mark"),
            ("TERM", "xterm"),
            ("PWD", "/elsewhere"),
            ("POSTERNISH", "kept"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec();
        let expected: Vec<(OsString, OsString)> = [
            ("PATH", "/bin"),
            ("POSTERNISH", "kept"),
            ("TERM", "dumb"),
            ("NO_COLOR", "1"),
            ("PAGER", "cat"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec();
        assert_eq!(config.command_environment(), expected);
    }
}
