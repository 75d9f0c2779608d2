//! Wrappers kept ready, each with the thread that will carry its command.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use tokio::sync::{oneshot, watch};

use crate::{
    carrier::{Carrier, Errand},
    command::Link,
    spool::{Draft, Spool},
    wire::Order,
    wrappers::{Wrapper, Wrappers},
};

/// Stack of a carrying thread; it calls nothing deep.
const STACK_BYTES: usize = 256 * 1024;

/// The wrappers that wait.
#[derive(Debug)]
pub(crate) struct Pool {
    wrappers: Arc<Wrappers>,
    spool: Arc<Spool>,
    kept: usize,
    waiting: Mutex<Waiting>,
    /// Threads that carry commands or wait to.
    carrying: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Waiting {
    spares: VecDeque<Spare>,
    /// Wrappers that are being made.
    coming: usize,
    /// Commands that wait for one of those, the oldest first. Never more than are coming.
    asking: VecDeque<oneshot::Sender<io::Result<Spare>>>,
    closed: bool,
}

/// A wrapper that waits, and is told to go when it is dropped.
#[derive(Debug)]
pub(crate) struct Spare {
    link: Link,
    draft: Option<Draft>,
    errands: Option<SyncSender<Errand>>,
}

impl Pool {
    pub(crate) fn new(wrappers: Arc<Wrappers>, spool: Arc<Spool>, kept: usize) -> Self {
        Self {
            wrappers,
            spool,
            kept,
            waiting: Mutex::default(),
            carrying: watch::Sender::new(0),
        }
    }

    /// Who starts wrappers.
    pub(crate) const fn wrappers(&self) -> &Arc<Wrappers> {
        &self.wrappers
    }

    /// Takes a wrapper: one that waits, or else the next that is made.
    pub(crate) async fn take(self: &Arc<Self>) -> io::Result<Spare> {
        let (sender, made) = oneshot::channel();
        let coming = {
            let mut waiting = self.waiting();
            if let Some(spare) = waiting.spares.pop_front() {
                return Ok(spare);
            }
            waiting.asking.push_back(sender);
            let is_short = waiting.coming < waiting.asking.len();
            is_short.then(|| waiting.announce(self))
        };
        // Made without the lock: what does not come says so by taking it.
        coming.into_iter().for_each(|coming| self.make(coming));
        made.await.map_err(|_| io::ErrorKind::BrokenPipe)?
    }

    /// Whether the next command would have to wait for a wrapper.
    pub(crate) fn is_drained(&self) -> bool {
        self.waiting().spares.is_empty()
    }

    /// Makes as many as are to be kept.
    pub(crate) fn refill(self: &Arc<Self>) {
        let mut all = Vec::new();
        {
            let mut waiting = self.waiting();
            while !waiting.closed && waiting.spares.len() + waiting.coming < self.kept {
                all.push(waiting.announce(self));
            }
        }
        all.into_iter().for_each(|coming| self.make(coming));
    }

    /// Lets every wrapper that waits go, and makes others.
    pub(crate) fn renew(self: &Arc<Self>) {
        let old = std::mem::take(&mut self.waiting().spares);
        drop(old);
        self.refill();
    }

    /// Lets every wrapper that waits go, and keeps none from now on.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        waiting.spares.clear();
    }

    /// Waits until every wrapper is gone and what it had is cleared away, at most `limit`.
    pub(crate) async fn gone(&self, limit: Duration) {
        let mut carrying = self.carrying.subscribe();
        let waited = tokio::time::timeout(limit, carrying.wait_for(|count| *count == 0)).await;
        if waited.is_err() {
            tracing::warn!("wrappers were still there at the end");
        }
    }

    fn make(&self, coming: Coming) {
        let (wrappers, spool) = (Arc::clone(&self.wrappers), Arc::clone(&self.spool));
        let carrying = Carrying::new(&self.carrying);
        let run = move || {
            let _until_the_end = carrying;
            let made = spool
                .draft()
                .and_then(|draft| Ok((draft, wrappers.start()?)));
            match made {
                Ok((draft, wrapper)) => {
                    let (spare, carrier, errands) = Spare::new(wrappers, wrapper, draft);
                    coming.settle(Ok(spare));
                    carrier.run(&errands);
                }
                Err(error) => coming.settle(Err(error)),
            }
        };
        let thread = thread::Builder::new()
            .name("command".to_owned())
            .stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(run) {
            tracing::error!(%error, "no thread could be started for a command");
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stands for one thread that carries or waits to.
struct Carrying(watch::Sender<usize>);

impl Carrying {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Waiting {
    fn announce(&mut self, pool: &Arc<Pool>) -> Coming {
        self.coming += 1;
        Coming {
            pool: Arc::clone(pool),
            is_settled: false,
        }
    }

    /// Hands a wrapper, or the word that there is none, to the command that has waited longest, or keeps it.
    fn hand_over(&mut self, mut made: io::Result<Spare>) {
        while let Some(asking) = self.asking.pop_front() {
            // Whoever asked may have gone; the next one gets it then.
            match asking.send(made) {
                Ok(()) => return,
                Err(unsent) => made = unsent,
            }
        }
        match made {
            Ok(spare) if !self.closed => self.spares.push_back(spare),
            Ok(_) => {}
            // The next command tries by itself, and says so if it fails too.
            Err(error) => tracing::warn!(%error, "no wrapper could be kept ready"),
        }
    }
}

/// Stands for one wrapper that is being made, also when that comes to nothing.
struct Coming {
    pool: Arc<Pool>,
    is_settled: bool,
}

impl Coming {
    /// What has come of it. It is no longer coming in the same moment as somebody has it: a command that asks in between
    /// would count on it and order none.
    fn settle(mut self, made: io::Result<Spare>) {
        self.settle_once(made);
    }

    fn settle_once(&mut self, made: io::Result<Spare>) {
        if !std::mem::replace(&mut self.is_settled, true) {
            let mut waiting = self.pool.waiting();
            waiting.coming -= 1;
            waiting.hand_over(made);
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        // Nobody waits for what does not come: one fewer comes, and one is told so.
        self.settle_once(Err(io::ErrorKind::BrokenPipe.into()));
    }
}

impl Spare {
    fn new(
        wrappers: Arc<Wrappers>,
        wrapper: Wrapper,
        draft: Draft,
    ) -> (Self, Carrier, Receiver<Errand>) {
        let link = Link {
            control: Arc::new(wrapper.control),
            handle: Arc::new(wrapper.handle),
            terminal: Arc::new(wrapper.terminal),
        };
        let (errands, waiting) = sync_channel(1);
        let carrier = Carrier::new(
            wrappers,
            wrapper.child,
            link.clone(),
            wrapper.output,
            wrapper.temporary,
            wrapper.group,
        );
        let spare = Self {
            link,
            draft: Some(draft),
            errands: Some(errands),
        };
        (spare, carrier, waiting)
    }

    /// Takes the draft of the claim; there is one.
    pub(crate) fn take_draft(&mut self) -> io::Result<Draft> {
        self.draft
            .take()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The way to the wrapper.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Gives the order to run. When it fails nothing has happened.
    pub(crate) fn order(&self, job: &Order, directory: &OwnedFd) -> io::Result<()> {
        self.link.control.order(job, &[directory.as_fd()])
    }

    /// Hands the command over to the thread that carries it, after the order. Given back when that thread is gone.
    pub(crate) fn hand_over(mut self, errand: Errand) -> Result<(), Box<Errand>> {
        match self.errands.take() {
            Some(errands) => errands.send(errand).map_err(|unsent| Box::new(unsent.0)),
            None => Err(Box::new(errand)),
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if self.errands.is_some() {
            self.link.control.hang_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use postern_kit::Clock;
    use tokio::task::JoinSet;

    use super::*;
    use crate::{Config, sandbox::Level};

    /// Commands that ask at once, and wrappers that come to nothing at once: whoever asks in the moment in which another is
    /// answered still hears what came of a wrapper of his own.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nobody_waits_for_a_wrapper_that_another_has() {
        let folder = tempfile::tempdir().expect("folder");
        let (project, spool) = (folder.path().join("project"), folder.path().join("spool"));
        std::fs::create_dir(&project).expect("project");
        let nowhere = folder.path().join("no-program").into_os_string();
        let mut config = Config::new(project, spool.clone(), vec![nowhere]);
        config.sandbox.level = Level::Off;
        let wrappers = Arc::new(Wrappers::new(&config).expect("wrappers"));
        let spool = Spool::open(&spool, false, Clock::system().now()).expect("spool");
        let pool = Arc::new(Pool::new(wrappers, Arc::new(spool), 2));
        let mut asking = JoinSet::new();
        for _ in 0..8 {
            let pool = Arc::clone(&pool);
            asking.spawn(async move {
                for _ in 0..200 {
                    let error = pool.take().await.expect_err("there is no program");
                    assert_eq!(error.kind(), io::ErrorKind::NotFound);
                }
            });
        }
        while let Some(done) = asking.join_next().await {
            done.expect("each has its own answer");
        }
        let waiting = pool.waiting();
        assert_eq!((waiting.coming, waiting.asking.len()), (0, 0));
    }
}
