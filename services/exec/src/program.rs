//! A program of the owner's that is spoken to by pipes: its wrapper, and the thread that hears the wrapper.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::ExitStatusExt as _,
    },
    path::PathBuf,
    process::{Child, ExitStatus},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    pipe::{PipeFlags, pipe_with},
};
use tokio::{
    net::unix::pipe,
    sync::{OwnedSemaphorePermit, oneshot},
};

use crate::{
    Error,
    readiness::wait,
    wire::{self, Order, Report, Socket},
    wrappers::{Handle, Wrapper, Wrappers},
};

/// Time for the program to be started by its wrapper. With that of making the wrapper it ends before the caller's hop does.
const START_LIMIT: Duration = Duration::from_secs(5);
/// Stack of a thread; it calls nothing deep.
const STACK_BYTES: usize = 256 * 1024;

/// A program to start.
pub(crate) struct Plan {
    /// Its directory.
    pub(crate) directory: OwnedFd,
    /// The same as a path, for `PWD`.
    pub(crate) path: PathBuf,
    pub(crate) argv: Vec<OsString>,
    /// Variables besides those of commands.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// What it may write besides what commands may.
    pub(crate) write: Vec<PathBuf>,
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) input: pipe::Sender,
    pub(crate) output: pipe::Receiver,
    pub(crate) errors: pipe::Receiver,
    /// How it ended; dropped when that cannot be known.
    pub(crate) ended: oneshot::Receiver<ExitStatus>,
    pub(crate) link: Link,
}

/// The way to a program's wrapper.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    control: Arc<Socket>,
    handle: Arc<Handle>,
}

/// The thread's side.
struct Hearing {
    wrappers: Arc<Wrappers>,
    child: Child,
    link: Link,
    ended: Option<oneshot::Sender<ExitStatus>>,
}

/// The ends of a program's three pipes: ours and its own.
struct Pipes {
    ours: (OwnedFd, OwnedFd, OwnedFd),
    own: [OwnedFd; 3],
}

impl Plan {
    /// Starts it in a wrapper of its own, by a thread that stays until nothing is left of it; the permit is given back then.
    pub(crate) async fn start(
        self,
        wrappers: Arc<Wrappers>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Program, Error> {
        let (sender, started) = oneshot::channel();
        // The wrapper ends with the thread that started it, so this is a thread, and one of its own.
        thread::Builder::new()
            .name("program".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let _until_the_end = permit;
                self.run(wrappers, sender);
            })
            .map_err(Error::Process)?;
        let (pipes, ended, link) = started
            .await
            .map_err(|_| Error::Process(io::ErrorKind::BrokenPipe.into()))??;
        let (input, output, errors) = pipes;
        let opened = || -> io::Result<_> {
            Ok((
                pipe::Sender::from_owned_fd(input)?,
                pipe::Receiver::from_owned_fd(output)?,
                pipe::Receiver::from_owned_fd(errors)?,
            ))
        };
        match opened() {
            Ok((input, output, errors)) => Ok(Program {
                input,
                output,
                errors,
                ended,
                link,
            }),
            Err(error) => {
                link.end();
                Err(Error::Process(error))
            }
        }
    }

    fn run(self, wrappers: Arc<Wrappers>, started: oneshot::Sender<Result<Started, Error>>) {
        let wrapper = match wrappers.start_writing(&self.write) {
            Ok(wrapper) => wrapper,
            Err(error) => {
                // Nobody waits for the word any more, and nothing was started.
                let _gone = started.send(Err(Error::no_wrapper(error)));
                return;
            }
        };
        let Wrapper {
            child,
            handle,
            control,
            temporary,
            group,
            // Held: a program that asks its terminal waits, and is not hung up.
            terminal: _terminal,
            output: _,
        } = wrapper;
        let link = Link {
            control: Arc::new(control),
            handle: Arc::new(handle),
        };
        let (ended, ending) = oneshot::channel();
        let hearing = Hearing {
            wrappers,
            child,
            link: link.clone(),
            ended: Some(ended),
        };
        let word = match hearing.start(self) {
            Ok(pipes) => started.send(Ok((pipes, ending, link))),
            Err(error) => started.send(Err(error)),
        };
        if let Err(Ok((_, _, link))) = word {
            link.end();
        }
        hearing.until_gone();
        // Nothing is left that could use it.
        drop((temporary, group));
    }
}

/// What is told of a program that runs.
type Started = (
    (OwnedFd, OwnedFd, OwnedFd),
    oneshot::Receiver<ExitStatus>,
    Link,
);

impl Hearing {
    /// Gives the order and waits for its answer.
    fn start(&self, plan: Plan) -> Result<(OwnedFd, OwnedFd, OwnedFd), Error> {
        let Pipes { ours, own } = Pipes::open().map_err(Error::Process)?;
        let [input, output, errors] = &own;
        let handles = [&plan.directory, input, output, errors].map(|handle| handle.as_fd());
        let order = Order::Pipe(wire::Program {
            directory: plan.path,
            argv: plan.argv,
            env: plan.env,
        });
        let ordered = self.link.control.order(&order, &handles);
        ordered.map_err(Error::Process)?;
        // Its ends are its own alone, or its end would not be seen.
        drop(own);
        match self.answer().map_err(Error::Process)? {
            Report::Started => Ok(ours),
            Report::Failed(errno) => Err(Error::Program(io::Error::from_raw_os_error(errno))),
            Report::Ready { .. }
            | Report::Unconfined(_)
            | Report::Exited { .. }
            | Report::Empty
            | Report::Count(_)
            | Report::Blind(_) => Err(Error::Process(io::ErrorKind::InvalidData.into())),
        }
    }

    /// The wrapper's first word. One that says none is killed.
    fn answer(&self) -> io::Result<Report> {
        let until = Instant::now() + START_LIMIT;
        let mut ready = [PollFd::new(&*self.link.control, PollFlags::IN)];
        while !wait(&mut ready, Some(until))? {
            if until <= Instant::now() {
                self.link.handle.kill();
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let message = self.link.control.receive()?;
        message.ok_or(io::ErrorKind::UnexpectedEof)?.report()
    }

    /// Hears the wrapper until nothing is left, and reaps it.
    fn until_gone(mut self) {
        if let Err(error) = self.hear() {
            tracing::error!(%error, "a program could not be watched; it is ended");
            self.link.kill();
        }
        self.link.control.hang_up();
        if let Err(error) = self.wrappers.reap(&mut self.child) {
            tracing::error!(%error, "a wrapper could not be waited for");
        }
    }

    fn hear(&mut self) -> io::Result<()> {
        // A wrapper that never started its program hangs up by itself.
        while let Some(message) = self.link.control.receive()? {
            match message.report()? {
                Report::Exited { status, .. } => self.tell(ExitStatus::from_raw(status)),
                Report::Empty => return Ok(()),
                Report::Blind(errno) => {
                    let error = io::Error::from_raw_os_error(errno);
                    tracing::warn!(%error, "the process table cannot be read, so what a program started is being ended as far as it is known");
                }
                Report::Count(_) => {}
                Report::Ready { .. }
                | Report::Unconfined(_)
                | Report::Started
                | Report::Failed(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        // Without its last word: it was killed, and what it watched over must not get away.
        self.wrappers.sweep_after(&self.link.handle)
    }

    fn tell(&mut self, status: ExitStatus) {
        if let Some(ended) = self.ended.take() {
            // Whoever carried the program may have gone.
            let _gone = ended.send(status);
        }
    }
}

impl Link {
    /// Orders the end of everything that the program started.
    pub(crate) fn end(&self) {
        // A wrapper that is gone has ended everything.
        let _gone = self.control.order(&Order::End, &[]);
        self.handle.wake();
    }

    /// Kills a wrapper that does not end its program; what that leaves is found and ended.
    pub(crate) fn kill(&self) {
        self.handle.kill();
    }
}

impl Pipes {
    fn open() -> io::Result<Self> {
        let (own_input, input) = pipe_with(PipeFlags::CLOEXEC)?;
        let (output, own_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let (errors, own_errors) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self {
            ours: (input, output, errors),
            own: [own_input, own_output, own_errors],
        })
    }
}
