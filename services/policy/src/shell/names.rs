//! Words that mean something to a shell, and programs that start others.

/// What a program does with its arguments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// They are its own business.
    Plain,
    /// It starts the program that they name.
    Starter { takes_options: bool },
    /// It runs the text that follows `-c`.
    Shell,
    /// It starts what follows `-exec`.
    Find,
    /// It runs what follows one of these options.
    Options(&'static [&'static str]),
    /// It runs what nobody can know from the text, or in a way that is not followed here.
    Opaque,
}

/// Keywords after which a command comes.
pub(super) const OPENING: &[&str] = &[
    "!", "do", "elif", "else", "if", "then", "until", "while", "{",
];
/// Keywords after which only another keyword, a redirection or an operator comes.
pub(super) const CLOSING: &[&str] = &["done", "fi", "}"];
/// Arguments of `find` after which a program's name comes.
pub(super) const FIND_STARTS: &[&str] = &["-exec", "-execdir", "-ok", "-okdir"];
/// Variables that make a shell or a loader run something.
pub(super) const STEERING: &[&str] = &[
    "BASHOPTS",
    "BASH_ENV",
    "ENV",
    "IFS",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PATH",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
];

const SHELLS: &[&str] = &[
    "ash", "bash", "dash", "fish", "ksh", "mksh", "rbash", "sh", "yash", "zsh",
];
/// Starters whose options say nothing of what is started.
const STARTERS: &[&str] = &[
    "command", "ionice", "nice", "nohup", "stdbuf", "taskset", "time", "timeout", "xargs",
];
/// Starters some of whose options hold commands or start shells.
const STARTERS_WITHOUT_OPTIONS: &[&str] = &["doas", "env", "exec", "sudo"];
/// What is not followed: built-ins that run text or change what names mean, keywords that not every shell has or that are not read
/// here, and programs that start others in ways of their own.
const OPAQUE: &[&str] = &[
    ".",
    "[[",
    "alias",
    "bind",
    "builtin",
    "busybox",
    "case",
    "choom",
    "chroot",
    "chrt",
    "compgen",
    "complete",
    "coproc",
    "dbus-run-session",
    "declare",
    "enable",
    "esac",
    "eval",
    "expect",
    "fakeroot",
    "fc",
    "flock",
    "function",
    "getopts",
    "hash",
    "in",
    "let",
    "linux32",
    "linux64",
    "local",
    "mapfile",
    "nsenter",
    "parallel",
    "pkexec",
    "prlimit",
    "read",
    "readarray",
    "readonly",
    "rsh",
    "runcon",
    "runuser",
    "screen",
    "script",
    "select",
    "set",
    "setarch",
    "setpriv",
    "setsid",
    "shopt",
    "source",
    "ssh",
    "start-stop-daemon",
    "strace",
    "su",
    "systemd-run",
    "tmux",
    "toybox",
    "trap",
    "typeset",
    "unshare",
    "watch",
];

/// Options by which well-known programs run what stands behind them.
const RUNNING_OPTIONS: &[(&str, &[&str])] = &[
    (
        "git",
        &[
            "-c",
            "-O",
            "-x",
            "--config",
            "--config-env",
            "--exec",
            "--exec-path",
            "--ext-diff",
            "--extcmd",
            "--open-files-in-pager",
            "--receive-pack",
            "--upload-pack",
        ],
    ),
    ("man", &["-P", "--pager"]),
    ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("sort", &["--compress-program"]),
    (
        "tar",
        &[
            "-F",
            "-I",
            "--checkpoint-action",
            "--info-script",
            "--new-volume-script",
            "--rmt-command",
            "--rsh-command",
            "--to-command",
            "--use-compress-program",
        ],
    ),
];

/// Whether an argument is one of these options, written in full, cut short as programs allow it, or with its value behind it.
pub(super) fn is_option(options: &[&str], argument: &str) -> bool {
    let name = argument.split('=').next().unwrap_or(argument);
    options
        .iter()
        .any(|option| match option.strip_prefix("--") {
            Some(_) => name.len() > 3 && option.starts_with(name),
            None => argument.starts_with(option),
        })
}

/// What the program of that name or path does.
pub(super) fn role(program: &str) -> Role {
    let name = program.rsplit('/').next().unwrap_or(program);
    if SHELLS.contains(&name) {
        Role::Shell
    } else if name == "find" {
        Role::Find
    } else if STARTERS.contains(&name) {
        Role::Starter {
            takes_options: true,
        }
    } else if STARTERS_WITHOUT_OPTIONS.contains(&name) {
        Role::Starter {
            takes_options: false,
        }
    } else if OPAQUE.contains(&name)
        || is_flow(name)
        || name.starts_with("ld-")
        || name.starts_with("ld.")
    {
        Role::Opaque
    } else {
        let running = RUNNING_OPTIONS.iter().find(|(program, _)| *program == name);
        running.map_or(Role::Plain, |(_, options)| Role::Options(options))
    }
}

/// Whether it is a keyword that is followed.
pub(super) fn is_flow(word: &str) -> bool {
    word == "for" || OPENING.contains(&word) || CLOSING.contains(&word)
}
