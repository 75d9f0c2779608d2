//! The thread that watches the clock, the worker and what is left of the command.

use std::{
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    process::{Pid, Signal, getpid, kill_process_group},
};

use super::Wrapper;
use crate::{
    readiness::wait,
    tree,
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
/// Bytes of one event: a tag and two numbers.
const EVENT_BYTES: usize = 9;

/// What the launching thread tells.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The shell runs, for this many milliseconds at most.
    Started { shell: Pid, timeout_ms: u32 },
    /// The shell ended with this raw status.
    ShellEnded(i32),
    /// Nothing is left below.
    Empty,
}

impl Event {
    pub(super) fn tell(self, events: &OwnedFd) -> io::Result<()> {
        Self::tell_all(&[self], events)
    }

    /// All in one write, so that they arrive together.
    pub(super) fn tell_all(batch: &[Self], events: &OwnedFd) -> io::Result<()> {
        let bytes: Vec<u8> = batch.iter().flat_map(|event| event.encode()).collect();
        if !bytes.is_empty() {
            rustix::io::retry_on_intr(|| rustix::io::write(events, &bytes))?;
        }
        Ok(())
    }

    fn encode(self) -> [u8; EVENT_BYTES] {
        let (tag, one, two) = match self {
            Self::Started { shell, timeout_ms } => (
                b's',
                shell.as_raw_nonzero().get().to_le_bytes(),
                timeout_ms.to_le_bytes(),
            ),
            Self::ShellEnded(status) => (b'x', status.to_le_bytes(), [0; 4]),
            Self::Empty => (b'e', [0; 4], [0; 4]),
        };
        let mut bytes = [0; EVENT_BYTES];
        bytes[0] = tag;
        bytes[1..5].copy_from_slice(&one);
        bytes[5..].copy_from_slice(&two);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        let (one, two) = rest.split_first_chunk()?;
        let one = i32::from_le_bytes(*one);
        match tag {
            b's' => Some(Self::Started {
                shell: Pid::from_raw(one)?,
                timeout_ms: u32::from_le_bytes(two.try_into().ok()?),
            }),
            b'x' => Some(Self::ShellEnded(one)),
            b'e' => Some(Self::Empty),
            _ => None,
        }
    }
}

/// Where the command stands.
struct Watch<'a> {
    wrapper: &'a Wrapper,
    /// The shell, which leads a process group of its own.
    shell: Option<Pid>,
    /// None while the wrapper is a spare.
    deadline: Option<Instant>,
    /// The shell's raw status, once it ended.
    status: Option<i32>,
    reported: bool,
    ending: Option<Ending>,
    worker_gone: bool,
    /// That the process table cannot be read was told.
    told_blind: bool,
}

/// Everything is being ended.
struct Ending {
    cause: Cause,
    /// When the first SIGKILL comes.
    kill: Instant,
    /// When the next signal comes, or comes again.
    next: Instant,
    /// When what is left counts as what cannot be killed.
    limit: Instant,
}

/// Watches until nothing is left of the command.
pub(super) fn run(wrapper: &Wrapper, events: &OwnedFd) -> io::Result<()> {
    let mut watch = Watch {
        wrapper,
        shell: None,
        deadline: None,
        status: None,
        reported: false,
        ending: None,
        worker_gone: false,
        told_blind: false,
    };
    loop {
        let mut ready = [
            PollFd::new(events, PollFlags::IN),
            PollFd::new(&wrapper.control, PollFlags::IN),
        ];
        // The launching thread takes the first order itself, and a worker that is gone has no more.
        let listening = watch.deadline.is_some() && !watch.worker_gone;
        let watched = if listening { 2 } else { 1 };
        wait(&mut ready[..watched], watch.next_instant())?;
        let told = !ready[0].revents().is_empty();
        let ordered = listening && !ready[1].revents().is_empty();
        if told && watch.take_events(events)? {
            return watch.depart();
        }
        if ordered {
            watch.take_order()?;
        }
        watch.take_time()?;
    }
}

impl Watch<'_> {
    fn next_instant(&self) -> Option<Instant> {
        match &self.ending {
            Some(ending) => Some(ending.next),
            None if self.status.is_none() => self.deadline,
            None => None,
        }
    }

    /// Tells whether nothing is left.
    fn take_events(&mut self, events: &OwnedFd) -> io::Result<bool> {
        let mut bytes = [0; EVENT_BYTES * 256];
        let count = rustix::io::retry_on_intr(|| rustix::io::read(events, &mut bytes))?;
        let mut empty = false;
        for event in bytes[..count].chunks_exact(EVENT_BYTES) {
            match Event::decode(event).ok_or(io::ErrorKind::InvalidData)? {
                Event::Started { shell, timeout_ms } => {
                    self.shell = Some(shell);
                    let timeout = Duration::from_millis(timeout_ms.into());
                    self.deadline = Some(Instant::now() + timeout);
                }
                Event::ShellEnded(status) => self.status = Some(status),
                Event::Empty => empty = true,
            }
        }
        if empty {
            self.report(0)?;
        } else if self.status.is_some() && self.ending.is_none() && !self.reported {
            let survivors = self.survivors()?;
            self.report(survivors)?;
        }
        Ok(empty)
    }

    fn take_order(&mut self) -> io::Result<()> {
        match self.wrapper.control.receive()? {
            Some(message) => match message.order()? {
                Order::End => self.end(Cause::Stop),
                Order::Count => {
                    let count = self.survivors()?;
                    self.tell(Report::Count(count))
                }
                Order::Run(_) => Err(io::ErrorKind::InvalidData.into()),
            },
            None => {
                self.worker_gone = true;
                self.end(Cause::Stop)
            }
        }
    }

    fn take_time(&mut self) -> io::Result<()> {
        let now = Instant::now();
        match &self.ending {
            None => {
                let over = self.deadline.is_some_and(|deadline| deadline <= now);
                if over && self.status.is_none() {
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
        if self.ending.is_some() {
            return Ok(());
        }
        let now = Instant::now();
        let kill = now + GRACE;
        self.ending = Some(Ending {
            cause,
            kill,
            next: kill,
            limit: kill + KILL_LIMIT,
        });
        self.press(now)
    }

    /// One round of ending everything: SIGTERM, until it went to everything; SIGKILL once the grace is over. While the
    /// process table cannot be read, the shell's own group is all that is known: that gets the signal, and the rounds go on.
    fn press(&mut self, now: Instant) -> io::Result<()> {
        let Some(ending) = &mut self.ending else {
            return Ok(());
        };
        let signal = if ending.kill <= now {
            Signal::KILL
        } else {
            Signal::TERM
        };
        let found = tree::signal_all(getpid(), signal);
        let after = |round| Instant::now() + round;
        ending.next = match (signal, &found) {
            (Signal::KILL, _) if ending.limit <= now => after(LATE_ROUND),
            (Signal::KILL, _) => after(KILL_ROUND),
            (_, Ok(())) => ending.kill,
            (_, Err(_)) => after(TERM_ROUND).min(ending.kill),
        };
        let Err(error) = found else {
            return Ok(());
        };
        // A program may count how often it is asked to end.
        if signal == Signal::KILL || !self.told_blind {
            self.signal_shell(signal);
        }
        self.tell_blind(&error)
    }

    /// Signals the shell and what is still in its process group. Its id is no other's before it is reaped.
    fn signal_shell(&self, signal: Signal) {
        if let (Some(shell), None) = (self.shell, self.status) {
            for signal in [signal, Signal::CONT] {
                // It fails only when nobody is left there.
                let _gone = kill_process_group(shell, signal);
            }
        }
    }

    /// Tells, once, that what the command started cannot be found.
    fn tell_blind(&mut self, error: &io::Error) -> io::Result<()> {
        if std::mem::replace(&mut self.told_blind, true) {
            return Ok(());
        }
        let errno = error.raw_os_error().unwrap_or_default();
        self.tell(Report::Blind(errno))
    }

    /// Tells that nothing is left, and waits for the worker to hang up: it hears of the end before this process takes
    /// time to go.
    fn depart(&mut self) -> io::Result<()> {
        self.tell(Report::Empty)?;
        let until = Instant::now() + DEPART_LIMIT;
        while !self.worker_gone && Instant::now() < until {
            let mut ready = [PollFd::new(&self.wrapper.control, PollFlags::IN)];
            if wait(&mut ready, Some(until))? && self.wrapper.control.receive()?.is_none() {
                break;
            }
        }
        Ok(())
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
        if self.reported {
            return Ok(());
        }
        self.reported = true;
        let cause = self.ending.as_ref().map(|ending| ending.cause);
        let (cause, status) = match (cause, self.status) {
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
        if !self.worker_gone && self.wrapper.control.report(report, &[]).is_err() {
            self.worker_gone = true;
            self.end(Cause::Stop)?;
        }
        Ok(())
    }
}
