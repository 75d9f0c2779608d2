//! Wrapper processes: how they are started, and how what a killed one leaves behind is found and ended.

use std::{
    collections::HashSet,
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use postern_kit::root::real_path;
use rustix::{
    event::{PollFd, PollFlags},
    process::{
        DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open,
        pidfd_send_signal, set_child_subreaper, set_dumpable_behavior, waitpid,
    },
};

use crate::{
    Error,
    config::Config,
    limits::{Group, Groups},
    readiness::wait,
    sandbox::{Confinement, Temporary, Unconfined, sweep},
    tree,
    wire::{Report, Socket},
    wrapper::{NO_NEW_PRIVILEGES, PRIVILEGES_ALLOWED},
};

/// Time that a wrapper has to get ready.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// Time for a wrapper whose socket closed to be gone.
const DEATH_LIMIT: Duration = Duration::from_secs(5);
/// Time for ending what a killed wrapper left behind.
const SWEEP_LIMIT: Duration = Duration::from_secs(5);
/// Time between two rounds of that.
const SWEEP_ROUND: Duration = Duration::from_millis(5);

/// Starts wrappers and knows those that live.
#[derive(Debug)]
pub(crate) struct Wrappers {
    program: Vec<OsString>,
    shell: PathBuf,
    environment: Vec<(OsString, OsString)>,
    no_new_privileges: bool,
    own_process: bool,
    /// `None` when commands are not confined.
    confinement: Option<Confinement>,
    /// `None` when they may take what they want.
    groups: Option<Groups>,
    /// Where commands' temporary directories are made.
    temporary: PathBuf,
    /// What the last wrapper said that its sandbox leaves out.
    left_out: AtomicU32,
    /// Held while one is started, so that a child is never taken for a stranger before it is known.
    living: Mutex<HashSet<Pid>>,
}

/// A wrapper that waits for its order.
#[derive(Debug)]
pub(crate) struct Wrapper {
    pub(crate) child: Child,
    pub(crate) handle: Handle,
    pub(crate) control: Socket,
    /// The command's terminal, the side of whoever types; never blocks.
    pub(crate) terminal: OwnedFd,
    /// Reading end of output and errors; never blocks.
    pub(crate) output: OwnedFd,
    /// The command's own; it goes once nothing is left that could use it.
    pub(crate) temporary: Option<Temporary>,
    /// What limits the command. It goes with it as well.
    pub(crate) group: Option<Group>,
}

/// A handle to signal a wrapper by, also from elsewhere than the thread that reaps it.
#[derive(Debug)]
pub(crate) struct Handle(OwnedFd);

impl Wrappers {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let confinement = Confinement::plan(&config.sandbox, &config.project, &config.spool)?;
        let temporary = real_path(&config.sandbox.temporary);
        if confinement.is_some() {
            prepare(&temporary)?;
        }
        if config.own_process {
            set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
            set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from)?;
        }
        Ok(Self {
            program: config.wrapper.clone(),
            shell: config.shell.clone(),
            environment: config.command_environment(),
            no_new_privileges: config.no_new_privileges,
            own_process: config.own_process,
            confinement,
            groups: config.limits.groups()?,
            temporary,
            left_out: AtomicU32::new(0),
            living: Mutex::default(),
        })
    }

    /// Starts one and waits until it is ready.
    pub(crate) fn start(&self) -> io::Result<Wrapper> {
        self.start_writing(&[])
    }

    /// As [`Self::start`], for something that may write more, besides what commands may.
    pub(crate) fn start_writing(&self, write: &[PathBuf]) -> io::Result<Wrapper> {
        let (control, theirs) = Socket::pair()?;
        let temporary = match &self.confinement {
            Some(_) => Some(Temporary::make(&self.temporary)?),
            None => None,
        };
        let group = self.groups.as_ref().map(Groups::make).transpose()?;
        let mut child = self.spawn(theirs, group.as_ref(), temporary.as_ref(), write)?;
        let ready = await_ready(&control).and_then(|(terminal, output, left_out)| {
            self.tell_left_out(left_out);
            let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
            Ok((Handle(handle), terminal, output))
        });
        match ready {
            Ok((handle, terminal, output)) => Ok(Wrapper {
                child,
                handle,
                control,
                terminal,
                output,
                temporary,
                group,
            }),
            Err(error) => {
                control.hang_up();
                child.kill()?;
                self.reap(&mut child)?;
                Err(error)
            }
        }
    }

    /// Warns when paths start to be left out; every wrapper after the first would say the same.
    fn tell_left_out(&self, left_out: u32) {
        let before = self.left_out.swap(left_out, Ordering::Relaxed);
        if before == 0 && left_out > 0 {
            tracing::warn!(
                left_out,
                "a folder around something hidden (the one for temporary files, say) is too crowded: commands cannot reach all of its entries; clear it up"
            );
        }
    }

    /// Refuses what cannot be written: what is hidden, and what is not there.
    pub(crate) fn check_writing(&self, write: &[PathBuf]) -> Result<(), Error> {
        match &self.confinement {
            Some(confinement) => confinement.check_writing(write),
            None => Ok(()),
        }
    }

    fn spawn(
        &self,
        control: Socket,
        group: Option<&Group>,
        temporary: Option<&Temporary>,
        write: &[PathBuf],
    ) -> io::Result<Child> {
        let (program, args) = self
            .program
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .arg(if self.no_new_privileges {
                NO_NEW_PRIVILEGES
            } else {
                PRIVILEGES_ALLOWED
            })
            .arg(&self.shell)
            .args(group.map(Group::to_args).unwrap_or_default())
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::from(control.into_handle()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let (Some(confinement), Some(temporary)) = (&self.confinement, temporary) {
            let mut confinement = Confinement {
                temporary: temporary.path().to_owned(),
                ..confinement.clone()
            };
            confinement
                .write
                .extend(write.iter().map(|path| real_path(path)));
            command
                .args(confinement.to_args())
                .env("TMPDIR", temporary.path());
        }
        let mut living = self.living();
        let child = command.spawn()?;
        living.insert(Pid::from_child(&child));
        Ok(child)
    }

    /// Waits for a wrapper that has ended or is about to, and ends what it left behind if it did not end in its own way.
    pub(crate) fn reap(&self, child: &mut Child) -> io::Result<()> {
        let pid = Pid::from_child(child);
        let status = child.wait()?;
        // Forgotten last: a child that is not known is taken for something that was left behind, and ended.
        self.living().remove(&pid);
        if status.success() {
            Ok(())
        } else {
            self.sweep()
        }
    }

    /// Ends what a wrapper that is being killed leaves behind. Its socket closes before its processes become the
    /// worker's; once its handle tells that it is gone, they have.
    pub(crate) fn sweep_after(&self, handle: &Handle) -> io::Result<()> {
        let until = Instant::now() + DEATH_LIMIT;
        while self.own_process && Instant::now() < until {
            if wait(&mut [PollFd::new(&handle.0, PollFlags::IN)], Some(until))? {
                break;
            }
        }
        self.sweep()
    }

    /// Ends what a killed wrapper left behind: it has become this process's, if the process is the worker's alone.
    fn sweep(&self) -> io::Result<()> {
        let limit = Instant::now() + SWEEP_LIMIT;
        while self.own_process && Instant::now() < limit {
            let living = self.living();
            let (children, processes) = match tree::strangers(getpid(), &living) {
                Err(_) if Instant::now() + SWEEP_ROUND < limit => {
                    drop(living);
                    std::thread::sleep(SWEEP_ROUND);
                    continue;
                }
                found => found?,
            };
            for process in &processes {
                process.send(Signal::KILL);
            }
            for child in &children {
                // Reaped when it has ended; the next round asks again.
                let _later = waitpid(Some(*child), WaitOptions::NOHANG);
            }
            drop(living);
            if children.is_empty() {
                break;
            }
            std::thread::sleep(SWEEP_ROUND);
        }
        Ok(())
    }

    fn living(&self) -> MutexGuard<'_, HashSet<Pid>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    /// Wakes a wrapper that its command has stopped.
    pub(crate) fn wake(&self) {
        self.send(Signal::CONT);
    }

    /// Ends a wrapper that does not do its work.
    pub(crate) fn kill(&self) {
        self.send(Signal::KILL);
    }

    fn send(&self, signal: Signal) {
        // It fails only when the wrapper is gone, which its socket tells as well.
        let _gone = pidfd_send_signal(&self.0, signal);
    }
}

/// Removes what killed workers left, and sees that a directory can be made.
fn prepare(temporary: &Path) -> Result<(), Error> {
    let ready = sweep(temporary).and_then(|()| Temporary::make(temporary));
    ready.map(drop).map_err(|error| {
        Error::Sandbox(format!(
            "commands cannot have a private temporary directory in '{}' ({error}); name a directory that you can write in TMPDIR",
            temporary.display()
        ))
    })
}

/// The terminal, the output's reading end, and how many paths the sandbox leaves out.
fn await_ready(control: &Socket) -> io::Result<(OwnedFd, OwnedFd, u32)> {
    let until = Instant::now() + READY_LIMIT;
    loop {
        let mut ready = [PollFd::new(control, PollFlags::IN)];
        if wait(&mut ready, Some(until))? {
            break;
        }
        if until <= Instant::now() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    let message = control.receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let left_out = match message.report()? {
        Report::Ready { left_out } => left_out,
        Report::Unconfined(errno) => return Err(io::Error::other(Unconfined(errno))),
        Report::Started
        | Report::Failed(_)
        | Report::Exited { .. }
        | Report::Empty
        | Report::Count(_)
        | Report::Blind(_) => return Err(io::ErrorKind::InvalidData.into()),
    };
    <[OwnedFd; 2]>::try_from(message.handles)
        .map(|[terminal, output]| (terminal, output, left_out))
        .map_err(|_| io::ErrorKind::InvalidData.into())
}
