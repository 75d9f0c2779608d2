//! The thread that reaps, and before it the one that takes the order and starts the shell.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, fchdir, kill_process_group, wait},
    termios::tcsetpgrp,
    thread::set_no_new_privs,
};

use super::{Wrapper, watch::Watch};
use crate::{
    limits::Entrance,
    sandbox::{Confinement, confine},
    wire::{Message, Order, Report},
};

/// Processes reaped in one go before what was found is told.
const BATCH: usize = 128;

/// What the thread works with.
pub(super) struct Launcher {
    pub(super) wrapper: Arc<Wrapper>,
    pub(super) shell: PathBuf,
    /// The worker's end of the output's pipe.
    pub(super) output: OwnedFd,
    /// The output pipe's end for the command. Nobody else may hold it once the shell runs, or the output never ends.
    pub(super) sink: OwnedFd,
    pub(super) watch: Arc<Watch>,
    pub(super) no_new_privileges: bool,
    /// `None` when the command is not confined.
    pub(super) confinement: Option<Confinement>,
    /// The way into what limits the command.
    pub(super) entrance: Entrance,
}

/// What the thread works with that starts the shell. It is confined as the command is, and ends with the start.
struct Starter {
    wrapper: Arc<Wrapper>,
    shell: PathBuf,
    output: OwnedFd,
    sink: OwnedFd,
    no_new_privileges: bool,
    confinement: Option<Confinement>,
    entrance: Entrance,
}

impl Launcher {
    /// Waits for the order, starts the shell, and reaps until nothing is left.
    pub(super) fn run(self) {
        let (wrapper, watch) = (Arc::clone(&self.wrapper), self.watch);
        let starter = Starter {
            wrapper: self.wrapper,
            shell: self.shell,
            output: self.output,
            sink: self.sink,
            no_new_privileges: self.no_new_privileges,
            confinement: self.confinement,
            entrance: self.entrance,
        };
        let told = start(starter).and_then(|(shell, limit)| {
            postern_kit::fault_point!(crate::fault_points::WRAPPER_STARTED);
            wrapper.control.report(Report::Started, &[])?;
            watch.started(shell, limit)?;
            reap(shell, &watch)
        });
        if told.is_err() {
            // Without this thread nothing is reaped any more. The worker sees the socket close and does what is left.
            std::process::exit(1);
        }
    }
}

/// Runs the starter to its end in a thread of its own.
fn start(starter: Starter) -> io::Result<(Pid, Option<Duration>)> {
    thread::Builder::new()
        .name("start".to_owned())
        .spawn(move || starter.run())?
        .join()
        .map_err(|_| io::Error::other("the starting thread panicked"))?
}

impl Starter {
    /// Waits for the order and starts the shell, or the program with pipes; tells its time limit, too. Leaves the process when
    /// the worker goes away first, since a spare has nothing to clean up, or when there will be no shell.
    fn run(self) -> io::Result<(Pid, Option<Duration>)> {
        let wrapper = Arc::clone(&self.wrapper);
        let left_out = match self.confine() {
            Ok(left_out) => left_out,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(Errno::PERM.raw_os_error());
                wrapper.control.report(Report::Unconfined(errno), &[])?;
                std::process::exit(0);
            }
        };
        let handles = [wrapper.master.as_fd(), self.output.as_fd()];
        wrapper
            .control
            .report(Report::Ready { left_out }, &handles)?;
        let message = wrapper.control.receive()?;
        let Some(message) = message else {
            std::process::exit(0);
        };
        match self.take(message) {
            Ok(started) => Ok(started),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                wrapper.control.report(Report::Failed(errno), &[])?;
                std::process::exit(0);
            }
        }
    }

    /// All of it is a matter of this thread alone, and of what it starts. Tells how many paths are left out.
    fn confine(&self) -> io::Result<u32> {
        if self.no_new_privileges {
            set_no_new_privs(true)?;
        }
        match &self.confinement {
            Some(confinement) => confine(confinement, &self.wrapper.terminal),
            None => Ok(0),
        }
    }

    /// Starts what is ordered.
    fn take(self, message: Message) -> io::Result<(Pid, Option<Duration>)> {
        let order = message.order()?;
        let mut handles = message.handles.into_iter();
        let mut handle = || handles.next().ok_or(io::ErrorKind::InvalidData);
        let directory = handle()?;
        // Only the worker reads the output.
        drop(self.output);
        let terminal = &self.wrapper.terminal;
        match order {
            Order::Run(job) => {
                let mut command = Command::new(&self.shell);
                command
                    .arg("-c")
                    .arg(job.command)
                    .env("PWD", job.directory)
                    .stdin(Stdio::from(terminal.try_clone()?))
                    .stdout(Stdio::from(self.sink.try_clone()?))
                    .stderr(Stdio::from(self.sink));
                let limit = Duration::from_millis(job.timeout_ms.into());
                let spawn = || spawn(command, &directory, terminal);
                Ok((self.entrance.within(spawn)?, Some(limit)))
            }
            Order::Pipe(program) => {
                drop(self.sink);
                let (name, args) = program
                    .argv
                    .split_first()
                    .ok_or(io::ErrorKind::InvalidData)?;
                let mut command = Command::new(name);
                command
                    .args(args)
                    .envs(program.env)
                    .env("PWD", program.directory)
                    .stdin(Stdio::from(handle()?))
                    .stdout(Stdio::from(handle()?))
                    .stderr(Stdio::from(handle()?));
                let spawn = || spawn(command, &directory, terminal);
                Ok((self.entrance.within(spawn)?, None))
            }
            Order::End | Order::Count => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Starts a process that leads a group of its own, in the terminal's foreground.
fn spawn(mut command: Command, directory: &OwnedFd, terminal: &OwnedFd) -> io::Result<Pid> {
    fchdir(directory)?;
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.spawn()?;
    drop(command);
    let shell = Pid::from_child(&child);
    tcsetpgrp(terminal, shell).or_else(gone)?;
    // The shell may have used the terminal before it was the foreground's: it was stopped for that then, and goes on.
    kill_process_group(shell, Signal::CONT).or_else(gone)?;
    std::env::set_current_dir("/")?;
    Ok(shell)
}

/// A shell that has ended already needs neither terminal nor signal.
fn gone(error: Errno) -> rustix::io::Result<()> {
    match error {
        Errno::SRCH | Errno::PERM | Errno::INVAL => Ok(()),
        error => Err(error),
    }
}

/// Reaps every process below, those that were adopted too, until none is left.
fn reap(shell: Pid, watch: &Watch) -> io::Result<()> {
    loop {
        let mut ended = None;
        let mut empty = false;
        let mut options = WaitOptions::empty();
        for _ in 0..BATCH {
            match wait(options) {
                Ok(Some((pid, status))) if pid == shell => {
                    postern_kit::fault_point!(crate::fault_points::WRAPPER_ENDED);
                    ended = Some(status.as_raw());
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(Errno::CHILD) => {
                    empty = true;
                    break;
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            // The first is waited for; what has ended besides is told along with it.
            options = WaitOptions::NOHANG;
        }
        watch.reaped(ended, empty)?;
        if empty {
            return Ok(());
        }
    }
}
