//! The wrapper: a process of its own around one command.
//!
//! It makes the terminal and the output's pipe, waits for its order, starts the shell, and stays until everything that the
//! shell started is gone. It is the *subreaper* of all of that, so that nothing below it can hide from it, and the
//! *session leader*, so that the terminal outlives the shell and a process left in the background is not hung up.
//! It ends everything when told to, when the time limit is reached, and when its worker is gone.
//!
//! Two threads stay: one reaps and tells of the end, the other watches the clock and the worker. A third takes the order and starts the shell. It
//! alone is confined as the command is, and ends before the shell is told as started, so that nothing of the wrapper can
//! be traced or signalled from within.

mod inherited;
mod launch;
mod watch;

pub(crate) use watch::{GRACE, KILL_LIMIT};

use std::{ffi::OsString, io, os::fd::OwnedFd, path::PathBuf, process::ExitCode, sync::Arc};

use rustix::{
    fs::OFlags,
    io::{fcntl_dupfd_cloexec, ioctl_fionbio},
    pipe::{PipeFlags, fcntl_setpipe_size, pipe_with},
    process::{
        DumpableBehavior, Resource, Rlimit, Signal, getpid, getrlimit, ioctl_tiocsctty,
        set_child_subreaper, set_dumpable_behavior, set_parent_process_death_signal, setrlimit,
        setsid,
    },
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    stdio::{dup2_stdin, stdin},
    termios::{
        InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Winsize, tcgetattr,
        tcsetattr, tcsetwinsize,
    },
};

use crate::{limits::Entrance, sandbox::Confinement, wire::Socket};

/// First argument of a wrapper whose commands may gain privileges.
pub(crate) const PRIVILEGES_ALLOWED: &str = "--privileges-allowed";
/// First argument of a wrapper whose commands may not.
pub(crate) const NO_NEW_PRIVILEGES: &str = "--no-new-privileges";
/// Bytes that the output's pipe holds, where the system allows it: fewer turns between writer and reader.
const PIPE_BYTES: usize = 1024 * 1024;
/// Size told to programs that ask the terminal.
const WINDOW: Winsize = Winsize {
    ws_row: 24,
    ws_col: 80,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// What both threads of a wrapper share.
struct Wrapper {
    control: Socket,
    terminal: OwnedFd,
    /// The terminal's other side, held so that the end of the worker does not hang the terminal up before the wrapper
    /// has ended the command in its own way.
    master: OwnedFd,
}

/// Runs the wrapper until its command and everything that it started are gone. Called in a process that does nothing else,
/// before it has started any thread, with the worker's socket as standard input. `args` are those after the ones that
/// [`crate::Config::wrapper`] names.
#[must_use]
pub fn wrapper_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    // There is nobody to tell but the worker, and it sees that the socket closes.
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(args: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    let mut args = args.into_iter().peekable();
    let (Some(privileges), Some(shell)) = (args.next(), args.next()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let entrance = Entrance::from_args(&mut args)?;
    let confinement = Confinement::from_args(args).ok_or(io::ErrorKind::InvalidInput)?;
    inherited::close_on_exec()?;
    inherited::default_signals();
    let control = Socket::from_handle(fcntl_dupfd_cloexec(stdin(), 3)?);
    dup2_stdin(std::fs::File::open("/dev/null")?)?;
    set_child_subreaper(Some(getpid()))?;
    // The end of the worker wakes a wrapper that its command has stopped, and it ends the command.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // No core file of a crashing command is left in the project.
    let core = Rlimit {
        current: Some(0),
        ..getrlimit(Resource::Core)
    };
    setrlimit(Resource::Core, core)?;
    let (master, terminal) = open_terminal()?;
    let (output, sink) = open_output()?;
    let wrapper = Arc::new(Wrapper {
        control,
        terminal,
        master,
    });
    let (woken, waker) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let watch = Arc::new(watch::Watch::new(Arc::clone(&wrapper), waker));
    let launcher = launch::Launcher {
        wrapper,
        shell: PathBuf::from(shell),
        output,
        sink,
        watch: Arc::clone(&watch),
        no_new_privileges: privileges == NO_NEW_PRIVILEGES,
        confinement,
        entrance,
    };
    std::thread::Builder::new()
        .name("launch".to_owned())
        .spawn(move || launcher.run())?;
    watch.run(&woken)
}

/// A terminal that is this session's: lines and signals as at a keyboard, but no echo, and nothing that is typed is
/// taken for editing, so that every text arrives as it was sent.
fn open_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let terminal = ioctl_tiocgptpeer(&master, flags)?;
    let mut modes = tcgetattr(&terminal)?;
    modes.local_modes.remove(
        LocalModes::ECHO
            | LocalModes::ECHOE
            | LocalModes::ECHOK
            | LocalModes::ECHONL
            | LocalModes::ECHOCTL
            | LocalModes::ECHOKE
            | LocalModes::IEXTEN,
    );
    modes.input_modes.remove(InputModes::IXON);
    modes.input_modes.insert(InputModes::IUTF8);
    modes.output_modes.remove(OutputModes::OPOST);
    for editing in [SpecialCodeIndex::VERASE, SpecialCodeIndex::VKILL] {
        modes.special_codes[editing] = 0;
    }
    tcsetattr(&terminal, OptionalActions::Now, &modes)?;
    tcsetwinsize(&terminal, WINDOW)?;
    setsid()?;
    ioctl_tiocsctty(&terminal)?;
    ioctl_fionbio(&master, true)?;
    Ok((master, terminal))
}

/// The pipe for output and errors. Only the worker's end never blocks: the command's end is as every program expects it.
fn open_output() -> io::Result<(OwnedFd, OwnedFd)> {
    let (output, sink) = pipe_with(PipeFlags::CLOEXEC)?;
    // Unprivileged users have a limit for all their pipes together; the default size does as well, only slower.
    let _default_size = fcntl_setpipe_size(&output, PIPE_BYTES);
    let flags = rustix::fs::fcntl_getfl(&output)?;
    rustix::fs::fcntl_setfl(&output, flags | OFlags::NONBLOCK)?;
    Ok((output, sink))
}
