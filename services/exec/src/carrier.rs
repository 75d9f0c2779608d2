//! The thread that carries one command: it moves output into the spool, hears the wrapper, and settles the end.

mod patience;

use std::{
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    process::{Child, ExitStatus},
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};

use postern_kit::Clock;
use rustix::{
    event::{PollFd, PollFlags},
    io::{Errno, ioctl_fionread},
};

use crate::{
    command::{Command, Link, Refusal, Stage},
    limits::Group,
    readiness::wait,
    sandbox::Temporary,
    spool::{End, EndKind, Entry, Writer},
    wire::{Cause, Order, Report},
    wrappers::Wrappers,
};

use patience::Patience;

/// Bytes read in one go.
const CHUNK_BYTES: usize = 256 * 1024;
/// How long a process that was left in the background may delay the end (CONTRACT.md, section 3).
const DRAIN_LIMIT: Duration = Duration::from_millis(200);
/// Time for the wrapper to count what is left.
const COUNT_LIMIT: Duration = Duration::from_millis(100);
/// Time after which a wrapper that does not start its shell is woken: another command may have stopped it.
const START_WAKE: Duration = Duration::from_secs(9);
/// Time past the time limit after which a wrapper that does nothing is woken: its command may have stopped it.
const WAKE_AFTER: Duration = Duration::from_millis(500);
/// Time past everything that the wrapper may take, after which it is killed.
const KILL_AFTER: Duration = Duration::from_secs(2);

/// A command to be carried.
pub(crate) struct Errand {
    pub(crate) command: Arc<Command>,
    pub(crate) entry: Entry,
    pub(crate) writer: Writer,
    pub(crate) timeout: Duration,
    pub(crate) clock: Clock,
    /// Called when nothing is left of the command.
    pub(crate) retire: Box<dyn FnOnce() + Send>,
}

/// The thread's own side of a wrapper.
pub(crate) struct Carrier {
    wrappers: Arc<Wrappers>,
    child: Child,
    link: Link,
    /// Taken by the command.
    output: Option<OwnedFd>,
    temporary: Option<Temporary>,
    group: Option<Group>,
}

/// A command on its way.
struct Carried {
    link: Link,
    wrappers: Arc<Wrappers>,
    /// None when nobody can write any more.
    output: Option<OwnedFd>,
    terminal_open: bool,
    command: Arc<Command>,
    entry: Entry,
    writer: Writer,
    clock: Clock,
    buffer: Vec<u8>,
    patience: Patience,
    exit: Option<Exit>,
    /// What the spool says.
    end: Option<End>,
    /// The spool did not take it.
    end_unwritten: bool,
    wrapper_gone: bool,
    /// What limits the command.
    group: Option<Group>,
}

/// What a command is heard by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    Output,
    Terminal,
    Wrapper,
}

/// The shell is gone, and what it wrote is being read.
struct Exit {
    kind: EndKind,
    status: Option<ExitStatus>,
    survivors: u32,
    drained_by: Instant,
    /// Bytes that were in the pipe when the shell was gone: those are read whatever time it takes.
    owed: u64,
    /// Set while the wrapper counts anew.
    counted_by: Option<Instant>,
}

impl Carrier {
    pub(crate) fn new(
        wrappers: Arc<Wrappers>,
        child: Child,
        link: Link,
        output: OwnedFd,
        temporary: Option<Temporary>,
        group: Option<Group>,
    ) -> Self {
        Self {
            wrappers,
            child,
            link,
            output: Some(output),
            temporary,
            group,
        }
    }

    /// Waits for the command and carries it until nothing is left of it.
    pub(crate) fn run(mut self, errands: &Receiver<Errand>) {
        // Without an order there is no errand either: the sender was dropped, or is when it is found out.
        if let Ok(errand) = errands.recv() {
            let first = self.first_report(&errand);
            self.carry(errand, first);
        }
        self.link.control.hang_up();
        if let Err(error) = self.wrappers.reap(&mut self.child) {
            tracing::error!(%error, "a wrapper could not be waited for");
        }
        // Nothing is left that could use it.
        drop(self.temporary);
    }

    /// What becomes of the order. A wrapper that does nothing in all the time of its command is killed.
    fn first_report(&self, errand: &Errand) -> Option<Report> {
        let mut patience = Patience::new(START_WAKE, errand.timeout);
        let mut ready = [PollFd::new(&*self.link.control, PollFlags::IN)];
        while !wait(&mut ready, patience.next_instant()).ok()? {
            if patience.is_over(&self.link) {
                errand.command.force(EndKind::TimedOut);
            }
        }
        let message = self.link.control.receive().ok()??;
        message.report().ok()
    }

    fn carry(&mut self, errand: Errand, first: Option<Report>) {
        let command = Arc::clone(&errand.command);
        let retire = errand.retire;
        let mut carried = Carried {
            link: self.link.clone(),
            wrappers: Arc::clone(&self.wrappers),
            output: self.output.take(),
            terminal_open: true,
            command: Arc::clone(&command),
            entry: errand.entry,
            writer: errand.writer,
            clock: errand.clock,
            buffer: vec![0; CHUNK_BYTES],
            patience: Patience::new(errand.timeout + WAKE_AFTER, errand.timeout),
            exit: None,
            end: None,
            end_unwritten: false,
            wrapper_gone: false,
            group: self.group.take(),
        };
        let stage = match first {
            Some(Report::Started) => carried.run(),
            Some(Report::Failed(errno)) => carried.refuse(Refusal::System(errno)),
            _ => carried.refuse(Refusal::Unknown),
        };
        // Out of the worker's list before anybody hears that it is gone.
        retire();
        command.settle(stage, carried.told_end());
    }
}

impl Carried {
    /// The shell was not started, or it is not known whether it was.
    fn refuse(&mut self, refusal: Refusal) -> Stage {
        let kind = match refusal {
            Refusal::System(_) | Refusal::Told => EndKind::NeverStarted,
            Refusal::Unknown => EndKind::Lost,
        };
        if refusal == Refusal::Unknown {
            self.sweep();
        }
        self.mark_end(End::without_status(kind, self.clock.now()));
        Stage::Refused(refusal)
    }

    fn run(&mut self) -> Stage {
        postern_kit::fault_point!(crate::fault_points::LAUNCHED_BEFORE);
        if let Err(error) = self.entry.mark_launched() {
            tracing::error!(%error, "the spool could not be written");
        }
        postern_kit::fault_point!(crate::fault_points::LAUNCHED_AFTER);
        self.command.set_stage(Stage::Running);
        loop {
            if let Err(error) = self.turn() {
                // Nothing of this fails by what a command does; without it the command cannot be carried on.
                tracing::error!(%error, "a command could not be carried on");
                self.command.force(EndKind::Lost);
                self.sweep();
                self.lose_wrapper();
                self.finish(0);
            }
            self.settle();
            if self.end.is_some() && self.wrapper_gone {
                return Stage::Gone;
            }
        }
    }

    /// Waits for the next thing and takes it.
    fn turn(&mut self) -> io::Result<()> {
        let ready = self.ready()?;
        if ready.contains(&Source::Output) {
            self.read_output()?;
        }
        if ready.contains(&Source::Terminal) {
            self.read_terminal()?;
        }
        // Last: what was written before the shell ended is then read or counted as owed.
        if ready.contains(&Source::Wrapper) {
            self.hear()?;
        }
        self.be_impatient();
        Ok(())
    }

    fn ready(&self) -> io::Result<Vec<Source>> {
        // What is closed is left out: it would be ready for ever.
        let mut sources = Vec::with_capacity(3);
        let mut asked = Vec::with_capacity(3);
        if let Some(output) = &self.output {
            sources.push(Source::Output);
            asked.push(PollFd::new(output, PollFlags::IN));
        }
        if self.terminal_open {
            sources.push(Source::Terminal);
            asked.push(PollFd::new(&*self.link.terminal, PollFlags::IN));
        }
        if !self.wrapper_gone {
            sources.push(Source::Wrapper);
            asked.push(PollFd::new(&*self.link.control, PollFlags::IN));
        }
        wait(&mut asked, self.next_instant())?;
        let ready = sources.into_iter().zip(&asked);
        Ok(ready
            .filter(|(_, asked)| !asked.revents().is_empty())
            .map(|(source, _)| source)
            .collect())
    }

    fn next_instant(&self) -> Option<Instant> {
        match (&self.exit, &self.end) {
            (None, _) => self.patience.next_instant(),
            (Some(exit), None) => Some(exit.counted_by.unwrap_or(exit.drained_by)),
            (Some(_), Some(_)) => None,
        }
    }

    /// One chunk of output; tells how much.
    fn read_output(&mut self) -> io::Result<usize> {
        let Some(output) = &self.output else {
            return Ok(0);
        };
        match rustix::io::read(output, &mut self.buffer[..]) {
            Ok(0) => {
                self.output = None;
                Ok(0)
            }
            Ok(count) => {
                if let Some(exit) = &mut self.exit {
                    exit.owed = exit.owed.saturating_sub(count as u64);
                }
                self.keep(count);
                Ok(count)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// What was written to the terminal itself: prompts, mostly. Tells how much.
    fn read_terminal(&mut self) -> io::Result<usize> {
        match rustix::io::read(&*self.link.terminal, &mut self.buffer[..]) {
            Ok(count) if count > 0 => {
                self.keep(count);
                Ok(count)
            }
            // Nobody has the terminal any more.
            Ok(_) | Err(Errno::IO) => {
                self.terminal_open = false;
                Ok(0)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn keep(&mut self, count: usize) {
        let total = self.writer.append(&self.buffer[..count]);
        self.command.tell_output(total, self.writer.is_whole());
    }

    fn hear(&mut self) -> io::Result<()> {
        let Some(message) = self.link.control.receive()? else {
            // Without its last word: it was killed, and what it watched over must not get away.
            self.sweep();
            self.lose_wrapper();
            return Ok(());
        };
        match message.report()? {
            Report::Exited {
                cause,
                status,
                survivors,
            } => {
                let kind = match cause {
                    Cause::Itself => EndKind::Exited,
                    Cause::Timeout => EndKind::TimedOut,
                    Cause::Stop => EndKind::Stopped,
                };
                self.drain(kind, Some(ExitStatus::from_raw(status)), survivors);
                Ok(())
            }
            Report::Empty => {
                self.lose_wrapper();
                Ok(())
            }
            Report::Count(count) => {
                self.finish(count);
                Ok(())
            }
            Report::Blind(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                tracing::warn!(%error, command = %self.command.id, "the process table cannot be read, so what this command started is being ended as far as it is known");
                Ok(())
            }
            Report::Ready { .. } | Report::Unconfined(_) | Report::Started | Report::Failed(_) => {
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// The wrapper is gone: in its time, with nothing left, or killed.
    fn lose_wrapper(&mut self) {
        self.wrapper_gone = true;
        match (&mut self.exit, self.end) {
            (None, _) => self.drain(self.command.forced_kind(), None, 0),
            (Some(exit), None) => {
                exit.survivors = 0;
                exit.counted_by = None;
            }
            (Some(_), Some(end)) => self.close(end),
        }
    }

    /// Everything that was left is gone too.
    fn close(&mut self, end: End) {
        while matches!(self.read_output(), Ok(1..)) {}
        while matches!(self.read_terminal(), Ok(1..)) {}
        if end.survivors > 0 {
            self.mark_end(End {
                survivors: 0,
                ..end
            });
        }
    }

    fn sweep(&self) {
        if let Some(group) = &self.group {
            group.kill();
        }
        if let Err(error) = self.wrappers.sweep_after(&self.link.handle) {
            tracing::error!(%error, "what a killed wrapper left could not be looked for");
        }
    }

    fn drain(&mut self, kind: EndKind, status: Option<ExitStatus>, survivors: u32) {
        let owed = self.output.as_ref().map(ioctl_fionread);
        self.exit = Some(Exit {
            kind,
            status,
            survivors,
            drained_by: Instant::now() + DRAIN_LIMIT,
            owed: owed.and_then(Result::ok).unwrap_or(0),
            counted_by: None,
        });
        // Without the terminal's readiness being waited for: a prompt that was its last word is not lost.
        while self.terminal_open && matches!(self.read_terminal(), Ok(1..)) {}
    }

    /// Tells the end once all output before it can be read.
    fn settle(&mut self) {
        let (Some(exit), None) = (&mut self.exit, &self.end) else {
            return;
        };
        let now = Instant::now();
        if let Some(by) = exit.counted_by {
            if by <= now {
                let survivors = exit.survivors;
                self.finish(survivors);
            }
            return;
        }
        let drained = self.output.is_none() || (exit.drained_by <= now && exit.owed == 0);
        if !drained {
            // After the limit only what is owed is read, and that is there.
            return;
        }
        if exit.survivors > 0 && self.link.control.order(&Order::Count, &[]).is_ok() {
            exit.counted_by = Some(now + COUNT_LIMIT);
        } else {
            self.finish(0);
        }
    }

    fn finish(&mut self, survivors: u32) {
        let (Some(exit), None) = (&self.exit, &self.end) else {
            return;
        };
        let (status, kind) = (exit.status, exit.kind);
        let by_itself = kind == EndKind::Exited;
        self.tell_limit();
        self.mark_end(End {
            kind,
            exit_code: status
                .filter(|_| by_itself)
                .and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            survivors,
            finished_at_ms: self.clock.now().as_millis(),
        });
        if !self.wrapper_gone {
            self.command.settle(Stage::Ended, self.told_end());
        }
    }

    /// Tells of a limit that the command ran into as the last of its output, before its end.
    fn tell_limit(&mut self) {
        if let Some(reached) = self.group.as_ref().and_then(Group::reached) {
            let total = self.writer.append(reached.line().as_bytes());
            self.command.tell_output(total, self.writer.is_whole());
        }
    }

    /// The end, if the spool has it and it is a command's.
    fn told_end(&self) -> Option<End> {
        let end = self.end.filter(|_| !self.end_unwritten);
        end.filter(|end| end.kind != EndKind::NeverStarted)
    }

    fn mark_end(&mut self, end: End) {
        self.end = Some(end);
        postern_kit::fault_point!(crate::fault_points::END_BEFORE);
        match self.entry.mark_end(&end) {
            Ok(stands) => self.end = Some(stands),
            Err(error) => {
                tracing::error!(%error, "the spool could not be written");
                self.end_unwritten = true;
            }
        }
        postern_kit::fault_point!(crate::fault_points::END_AFTER);
    }

    fn be_impatient(&mut self) {
        if self.exit.is_none() && self.patience.is_over(&self.link) {
            self.command.force(EndKind::TimedOut);
        }
    }
}
