//! The thread that watches the clock, the worker and what is left of the command.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    process::{Pid, Signal, getpid, kill_process_group},
};

use super::Wrapper;
use crate::{
    readiness::wait,
    tree::{self, Asked},
    wire::{Cause, Order, Report},
};

/// Time between SIGTERM and SIGKILL (CONTRACT.md, section 3).
pub(crate) const GRACE: Duration = Duration::from_secs(3);
/// Time that killed processes have to be gone. What is left after it cannot be killed (another user's, or stuck in the
/// kernel), and is told as survivors.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(3);
/// Time between two attempts to find what is to get SIGTERM.
const TERM_ROUND: Duration = Duration::from_millis(50);
/// Time between two rounds of SIGKILL within that limit.
const KILL_ROUND: Duration = Duration::from_millis(10);
/// Time between two rounds after it.
const LATE_ROUND: Duration = Duration::from_secs(1);
/// Time that the worker has to hang up after the end.
const DEPART_LIMIT: Duration = Duration::from_secs(5);
/// Wakes taken in one go.
const WAKES: usize = 16;

/// Where the command stands: what the thread that reaps finds and the thread that watches decides.
///
/// The first tells the worker of an end by itself, so that an end is not handed from thread to thread before it is told.
pub(super) struct Watch {
    wrapper: Arc<Wrapper>,
    state: Mutex<State>,
    /// Written to wake the watching thread.
    waker: OwnedFd,
}

struct State {
    /// The shell, which leads a process group of its own.
    shell: Option<Pid>,
    /// None while the wrapper is a spare, and for a program with pipes.
    deadline: Option<Instant>,
    /// The shell's raw status, once it ended.
    status: Option<i32>,
    reported: bool,
    ending: Option<Ending>,
    worker_gone: bool,
    /// That the process table cannot be read was told.
    told_blind: bool,
    /// Nothing is left below.
    empty: bool,
}

/// Everything is being ended.
struct Ending {
    cause: Cause,
    /// Who got SIGTERM.
    asked: Asked,
    /// When the first SIGKILL comes.
    kill: Instant,
    /// When the next signal comes, or comes again.
    next: Instant,
    /// When what is left counts as what cannot be killed.
    limit: Instant,
}

impl Watch {
    pub(super) fn new(wrapper: Arc<Wrapper>, waker: OwnedFd) -> Self {
        Self {
            wrapper,
            state: Mutex::new(State {
                shell: None,
                deadline: None,
                status: None,
                reported: false,
                ending: None,
                worker_gone: false,
                told_blind: false,
                empty: false,
            }),
            waker,
        }
    }

    /// The shell runs, for so long at most. The worker's orders are listened to from now on.
    pub(super) fn started(&self, shell: Pid, limit: Option<Duration>) -> io::Result<()> {
        let mut state = self.state();
        state.shell = Some(shell);
        state.deadline = limit.map(|limit| Instant::now() + limit);
        self.wake()
    }

    /// What was reaped: the shell, with its raw status, or others; and whether nothing is left.
    pub(super) fn reaped(&self, shell: Option<i32>, empty: bool) -> io::Result<()> {
        let mut state = self.state();
        state.status = state.status.or(shell);
        let mut turn = self.turn(&mut state);
        if empty {
            turn.report(0)?;
            turn.tell(Report::Empty)?;
            state.empty = true;
            return self.wake();
        }
        turn.tell_of_shell()?;
        // With the worker gone everything is being ended now, which is the other thread's to go on with.
        if state.ending.is_some() {
            self.wake()?;
        }
        Ok(())
    }

    /// Watches until nothing is left of the command.
    pub(super) fn run(&self, woken: &OwnedFd) -> io::Result<()> {
        loop {
            let (listening, until) = {
                let state = self.state();
                // The launching thread takes the first order itself, and a worker that is gone has no more.
                let listening = state.shell.is_some() && !state.worker_gone;
                (listening, state.next_instant())
            };
            let mut ready = [
                PollFd::new(woken, PollFlags::IN),
                PollFd::new(&self.wrapper.control, PollFlags::IN),
            ];
            let watched = if listening { 2 } else { 1 };
            wait(&mut ready[..watched], until)?;
            let ordered = listening && !ready[1].revents().is_empty();
            if !ready[0].revents().is_empty() {
                rustix::io::retry_on_intr(|| rustix::io::read(woken, &mut [0; WAKES]))?;
            }
            let mut state = self.state();
            if state.empty {
                break;
            }
            let mut turn = self.turn(&mut state);
            if ordered {
                turn.take_order()?;
            }
            turn.take_time()?;
        }
        self.depart()
    }

    /// Waits for the worker to hang up: it hears of the end before this process takes time to go.
    fn depart(&self) -> io::Result<()> {
        let until = Instant::now() + DEPART_LIMIT;
        while !self.state().worker_gone && Instant::now() < until {
            let mut ready = [PollFd::new(&self.wrapper.control, PollFlags::IN)];
            if wait(&mut ready, Some(until))? && self.wrapper.control.receive()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Never waits, for the other thread may want the state first. A full pipe wakes as well.
    fn wake(&self) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.waker, &[1])) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn turn<'a>(&'a self, state: &'a mut State) -> Turn<'a> {
        Turn {
            wrapper: &self.wrapper,
            state,
        }
    }

    /// A poisoned state is whole: nothing under the lock panics halfway.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next_instant(&self) -> Option<Instant> {
        match &self.ending {
            Some(ending) => Some(ending.next),
            None if self.status.is_none() => self.deadline,
            None => None,
        }
    }
}

/// One thread's turn with the state.
struct Turn<'a> {
    wrapper: &'a Wrapper,
    state: &'a mut State,
}

impl Turn<'_> {
    /// Tells of a shell that has ended and left something behind.
    fn tell_of_shell(&mut self) -> io::Result<()> {
        let state = &self.state;
        if state.status.is_some() && state.ending.is_none() && !state.reported {
            let survivors = self.survivors()?;
            self.report(survivors)?;
        }
        Ok(())
    }

    fn take_order(&mut self) -> io::Result<()> {
        match self.wrapper.control.receive()? {
            Some(message) => match message.order()? {
                Order::End => self.end(Cause::Stop),
                Order::Count => {
                    let count = self.survivors()?;
                    self.tell(Report::Count(count))
                }
                Order::Run(_) | Order::Pipe(_) => Err(io::ErrorKind::InvalidData.into()),
            },
            None => {
                self.state.worker_gone = true;
                self.end(Cause::Stop)
            }
        }
    }

    fn take_time(&mut self) -> io::Result<()> {
        let now = Instant::now();
        match &self.state.ending {
            None => {
                let over = self.state.deadline.is_some_and(|deadline| deadline <= now);
                if over && self.state.status.is_none() {
                    self.end(Cause::Timeout)?;
                }
            }
            Some(ending) if ending.next <= now => {
                let late = ending.limit <= now;
                self.press(now)?;
                if late {
                    let survivors = self.survivors()?;
                    self.report(survivors)?;
                }
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Begins to end everything; a second time changes nothing.
    fn end(&mut self, cause: Cause) -> io::Result<()> {
        if self.state.ending.is_some() {
            return Ok(());
        }
        let now = Instant::now();
        let kill = now + GRACE;
        self.state.ending = Some(Ending {
            cause,
            asked: Asked::default(),
            kill,
            next: kill,
            limit: kill + KILL_LIMIT,
        });
        self.press(now)
    }

    /// One round of ending everything: SIGTERM, until it went to everything, to each process once; SIGKILL once the grace is
    /// over. While the process table cannot be read, the shell's own group is all that is known: that gets the signal, and
    /// the rounds go on.
    fn press(&mut self, now: Instant) -> io::Result<()> {
        let shell = self.shell_group();
        let Some(ending) = &mut self.state.ending else {
            return Ok(());
        };
        let after = |round| Instant::now() + round;
        let found = if ending.kill <= now {
            let found = tree::kill_all(getpid());
            if found.is_err() {
                signal_group(shell, Signal::KILL);
            }
            let is_late = ending.limit <= now;
            ending.next = after(if is_late { LATE_ROUND } else { KILL_ROUND });
            found
        } else {
            let found = tree::ask_all(getpid(), &mut ending.asked);
            // When some were found before it failed, the shell and its group are among them.
            if found.is_err()
                && ending.asked.is_empty()
                && let Some(group) = shell
            {
                ending.asked.group(group);
                signal_group(shell, Signal::TERM);
            }
            ending.next = match found {
                Ok(()) => ending.kill,
                Err(_) => after(TERM_ROUND).min(ending.kill),
            };
            found
        };
        match found {
            Ok(()) => Ok(()),
            Err(error) => self.tell_blind(&error),
        }
    }

    /// The process group of the shell. Its id is no other's before the shell is reaped.
    fn shell_group(&self) -> Option<Pid> {
        self.state.shell.filter(|_| self.state.status.is_none())
    }

    /// Tells, once, that what the command started cannot be found.
    fn tell_blind(&mut self, error: &io::Error) -> io::Result<()> {
        if std::mem::replace(&mut self.state.told_blind, true) {
            return Ok(());
        }
        let errno = error.raw_os_error().unwrap_or_default();
        self.tell(Report::Blind(errno))
    }

    /// How many processes are left: at least one, when they cannot be counted, for the other thread tells when there is none.
    fn survivors(&mut self) -> io::Result<u32> {
        match tree::below(getpid()) {
            Ok(left) => Ok(u32::try_from(left.len()).unwrap_or(u32::MAX)),
            Err(error) => self.tell_blind(&error).map(|()| 1),
        }
    }

    /// Tells the end of the shell, once.
    fn report(&mut self, survivors: u32) -> io::Result<()> {
        if self.state.reported {
            return Ok(());
        }
        self.state.reported = true;
        let cause = self.state.ending.as_ref().map(|ending| ending.cause);
        let (cause, status) = match (cause, self.state.status) {
            (Some(cause), status) => (cause, status.unwrap_or(0)),
            (None, Some(status)) => (Cause::Itself, status),
            // How the shell ended was missed; that is not told as a success.
            (None, None) => return Err(io::ErrorKind::InvalidData.into()),
        };
        self.tell(Report::Exited {
            cause,
            status,
            survivors,
        })
    }

    /// A worker that does not listen any more is no reason to leave the command to itself.
    fn tell(&mut self, report: Report) -> io::Result<()> {
        if !self.state.worker_gone && self.wrapper.control.report(report, &[]).is_err() {
            self.state.worker_gone = true;
            self.end(Cause::Stop)?;
        }
        Ok(())
    }
}

/// Signals the shell and what is still in its process group.
fn signal_group(group: Option<Pid>, signal: Signal) {
    for signal in [signal, Signal::CONT] {
        // It fails only when nobody is left there.
        let _gone = group.map(|group| kill_process_group(group, signal));
    }
}
