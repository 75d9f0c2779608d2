//! Programs of the owner's with pipes: started, carried and ended with whoever asked for them.

use std::{ffi::OsString, path::PathBuf, process::ExitStatus, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;

use super::{END_LIMIT, Service, Worker};
use crate::{
    Error,
    program::{Link, Plan, Program},
    wire,
};

/// Programs at the same time, of one worker. Each holds a wrapper process, a thread and some ten handles.
pub(super) const PROGRAMS: usize = 32;
/// Arguments of a program, its name included.
const ARGUMENTS: usize = 1024;
/// Bytes read in one go.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks read and not taken by the caller; then the program waits.
pub(crate) const CHUNKS_AHEAD: usize = 4;
/// Time that a program has to end by itself once its input has ended.
const INPUT_GRACE: Duration = Duration::from_secs(2);

/// A program to run with pipes.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) pass: Vec<String>,
    pub(crate) write: Vec<String>,
}

/// What a program says.
#[derive(Debug)]
pub(crate) enum Said {
    Output(Bytes),
    Errors(Bytes),
    /// `None` when how it ended cannot be known.
    End(Option<ExitStatus>),
}

/// The caller is gone without having ended the input.
#[derive(Debug)]
pub(crate) struct HungUp;

/// A program that is to be carried.
#[derive(Debug)]
pub(crate) struct Carriage {
    program: Program,
    /// Signalled when the worker ends its programs.
    ending: CancellationToken,
}

impl Service {
    /// Starts a program with pipes.
    pub(crate) async fn open_pipe(&self, pipe: Pipe) -> Result<Carriage, Error> {
        pipe.check()?;
        let ending = {
            let desk = self.worker.desk();
            if desk.closed {
                return Err(Error::Elsewhere);
            }
            desk.programs_end.child_token()
        };
        let room = Arc::clone(&self.worker.programs);
        let permit = room.try_acquire_owned().map_err(|_| Error::Full)?;
        let plan = self.worker.plan(pipe).await?;
        let wrappers = Arc::clone(self.worker.pool.wrappers());
        let program = plan.start(wrappers, permit).await?;
        Ok(Carriage { program, ending })
    }

    /// Carries a program's bytes in a task of its own until it has ended.
    pub(crate) fn carry(
        &self,
        carriage: Carriage,
        input: impl Stream<Item = Result<Bytes, HungUp>> + Send + 'static,
        said: mpsc::Sender<Said>,
    ) {
        let carrying = carriage.run(Box::pin(input), said);
        self.worker.tasks.spawn("program", carrying);
    }

    /// Ends every program with pipes; others may be started after it.
    pub fn end_programs(&self) {
        let next = CancellationToken::new();
        std::mem::replace(&mut self.worker.desk().programs_end, next).cancel();
    }

    /// Waits until nothing is left of any program, at most for as long as their end may take.
    pub(super) async fn programs_gone(&self) {
        let all = u32::try_from(PROGRAMS).unwrap_or(u32::MAX);
        let gone = tokio::time::timeout(END_LIMIT, self.worker.programs.acquire_many(all));
        if gone.await.is_err() {
            tracing::warn!("programs were still there at the end");
        }
    }
}

impl Pipe {
    fn check(&self) -> Result<(), Error> {
        let refuse = |pointer, rule, message: &str| {
            Err(Error::Invalid {
                pointer,
                rule,
                message: message.to_owned(),
            })
        };
        let has_zero = |text: &String| text.contains('\0');
        if !(1..=ARGUMENTS).contains(&self.argv.len()) || self.argv[0].is_empty() {
            return refuse(
                "/start/argv",
                "minItems",
                "A program is a name and at most 1023 arguments.",
            );
        }
        if self.argv.iter().any(has_zero) {
            return refuse(
                "/start/argv",
                "pattern",
                "An argument cannot hold the character U+0000.",
            );
        }
        let bad_name = |name: &str| {
            name.is_empty() || name.contains(['=', '\0']) || name.starts_with("POSTERN_")
        };
        if self
            .env
            .iter()
            .any(|(name, value)| bad_name(name) || has_zero(value))
            || self.pass.iter().any(|name| bad_name(name))
        {
            return refuse(
                "/start/env",
                "pattern",
                "A variable's name is not empty, holds no '=' and does not begin with POSTERN_.",
            );
        }
        Ok(())
    }
}

impl Worker {
    /// What is to be started, with its directory opened.
    async fn plan(self: &Arc<Self>, pipe: Pipe) -> Result<Plan, Error> {
        let worker = Arc::clone(self);
        self.blocking(move || {
            let (directory, _, path) = worker.open_directory(&pipe.cwd)?;
            let root = &worker.root.identity().real_path;
            let write: Vec<PathBuf> = pipe.write.iter().map(|path| root.join(path)).collect();
            worker.pool.wrappers().check_writing(&write)?;
            let passed = worker.passable.iter();
            let passed = passed.filter(|(name, _)| pipe.pass.iter().any(|pass| name == &**pass));
            let given = pipe.env.into_iter();
            let given = given.map(|(name, value)| (name.into(), value.into()));
            let env: Vec<(OsString, OsString)> = passed.cloned().chain(given).collect();
            let argv: Vec<OsString> = pipe.argv.into_iter().map(Into::into).collect();
            let order = wire::Program {
                directory: path.clone(),
                argv: argv.clone(),
                env: env.clone(),
            };
            if !order.fits() {
                return Err(Error::TooLong);
            }
            Ok(Plan {
                directory,
                path,
                argv,
                env,
                write,
            })
        })
        .await
    }
}

impl Carriage {
    /// Moves bytes both ways, each as fast as whoever takes them, until the program has ended and all that it wrote is told.
    async fn run<I>(self, input: std::pin::Pin<Box<I>>, said: mpsc::Sender<Said>)
    where
        I: Stream<Item = Result<Bytes, HungUp>> + Send,
    {
        let Program {
            input: stdin,
            output,
            errors,
            ended,
            link,
        } = self.program;
        let outputs = async {
            let output = pump(output, &said, Said::Output);
            let errors = pump(errors, &said, Said::Errors);
            tokio::join!(output, errors);
        };
        let feeding = feed(stdin, input);
        let status = {
            tokio::pin!(outputs, feeding, ended);
            let (mut is_fed, mut is_read) = (false, false);
            let mut end = Ending::new(&link);
            loop {
                tokio::select! {
                    status = &mut ended => {
                        // What it left behind ends with it, and with that the pipes that it may hold.
                        end.begin();
                        if !is_read {
                            end.during(outputs, &said).await;
                        }
                        break status.ok();
                    }
                    () = &mut outputs, if !is_read => is_read = true,
                    fed = &mut feeding, if !is_fed => {
                        is_fed = true;
                        match fed {
                            Ok(()) => end.begin_after(INPUT_GRACE),
                            Err(HungUp) => end.begin(),
                        }
                    }
                    () = said.closed(), if !end.has_begun() => end.begin(),
                    () = self.ending.cancelled(), if !end.has_begun() => end.begin(),
                    () = end.due() => end.press(),
                }
            }
        };
        // The caller may have gone.
        let _gone = said.send(Said::End(status)).await;
    }
}

/// How far the end of a program has got.
struct Ending<'a> {
    link: &'a Link,
    /// When the next step is due.
    due: Option<Instant>,
    is_ordered: bool,
}

impl<'a> Ending<'a> {
    const fn new(link: &'a Link) -> Self {
        Self {
            link,
            due: None,
            is_ordered: false,
        }
    }

    const fn has_begun(&self) -> bool {
        self.is_ordered
    }

    fn begin_after(&mut self, grace: Duration) {
        if !self.is_ordered {
            self.due = Some(Instant::now() + grace);
        }
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.is_ordered, true) {
            self.link.end();
            self.due = Some(Instant::now() + END_LIMIT);
        }
    }

    /// The next step: the order, then force.
    fn press(&mut self) {
        if self.is_ordered {
            self.link.kill();
            self.due = None;
        } else {
            self.begin();
        }
    }

    async fn due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Waits for the rest of what was written while everything ends.
    async fn during(&mut self, rest: impl Future<Output = ()>, said: &mpsc::Sender<Said>) {
        tokio::pin!(rest);
        loop {
            tokio::select! {
                () = &mut rest => return,
                () = said.closed() => return,
                () = self.due(), if self.due.is_some() => self.press(),
            }
        }
    }
}

/// Reads until the end; never more than the caller has room for.
async fn pump(mut from: pipe::Receiver, said: &mpsc::Sender<Said>, wrap: impl Fn(Bytes) -> Said) {
    loop {
        let Ok(room) = said.reserve().await else {
            return;
        };
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        match from.read_buf(&mut chunk).await {
            Ok(1..) => room.send(wrap(chunk.into())),
            Ok(0) => return,
            Err(error) => {
                tracing::warn!(%error, "a program's output cannot be read");
                return;
            }
        }
    }
}

/// Writes what comes; ends the program's input at the end of it.
async fn feed<I>(stdin: pipe::Sender, mut input: std::pin::Pin<Box<I>>) -> Result<(), HungUp>
where
    I: Stream<Item = Result<Bytes, HungUp>>,
{
    let mut stdin = Some(stdin);
    while let Some(chunk) = input.next().await {
        let chunk = chunk?;
        if let Some(open) = &mut stdin
            && open.write_all(&chunk).await.is_err()
        {
            // It reads no more, and may go on all the same.
            stdin = None;
        }
    }
    Ok(())
}
