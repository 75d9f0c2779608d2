//! What happens when the database fails or hangs.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use pretty_assertions::assert_eq;
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};

use super::*;
use crate::{
    receipt::State,
    sqlite::{Reader, Writer},
    store::{Loaded, Row, Wanted},
};

const NORMAL: u8 = 0;
/// The database may not grow.
const FULL: u8 = 1;
/// The commit happens, but its answer is lost.
const SILENT: u8 = 2;

/// What the tests do to the store.
#[derive(Debug)]
struct Faults {
    mode: AtomicU8,
    /// Appends take a permit each.
    gate: Semaphore,
    /// Tells how many appends came to the gate.
    arrived: watch::Sender<usize>,
    /// Set once the store was given up.
    closed: AtomicBool,
}

#[derive(Debug)]
struct Faulty {
    store: Writer,
    faults: Arc<Faults>,
}

impl Write for Faulty {
    fn system(&self) -> &'static str {
        "sqlite"
    }

    async fn load(&mut self, wanted: &Wanted) -> Result<Loaded, Error> {
        self.store.load(wanted).await
    }

    async fn append(&mut self, rows: Vec<Row>) -> Result<(), Error> {
        self.faults.arrived.send_modify(|count| *count += 1);
        self.faults.gate.acquire().await.expect("open").forget();
        let mode = self.faults.mode.load(Ordering::SeqCst);
        self.store.forbid_growth(mode == FULL).await?;
        if mode == SILENT {
            self.store.append(rows).await?;
            return Err(Error::Database(Arc::new(sqlx::Error::WorkerCrashed)));
        }
        self.store.append(rows).await
    }

    async fn open(&mut self, workspace: &Id, at_ms: i64) -> Result<Opened, Error> {
        self.store.open(workspace, at_ms).await
    }

    async fn put_workers(&mut self, rows: &[WorkerRow]) -> Result<(), Error> {
        self.store.put_workers(rows).await
    }

    async fn workers(&mut self) -> Result<Vec<WorkerRow>, Error> {
        self.store.workers().await
    }

    async fn tidy(&mut self) -> Result<(), Error> {
        self.store.tidy().await
    }

    async fn close(self) {
        self.store.close().await;
        self.faults.closed.store(true, Ordering::SeqCst);
    }
}

struct Rig {
    _directory: TempDir,
    tasks: Tasks,
    faults: Arc<Faults>,
    shared: Arc<Shared<Reader>>,
    incarnation: u64,
}

impl Rig {
    async fn new() -> Self {
        let directory = TempDir::new().expect("temporary directory");
        let path = directory.path().join("ledger.db");
        let (store, reader, count) = sqlite::open(&path).await.expect("opens");
        let faults = Arc::new(Faults {
            mode: AtomicU8::new(NORMAL),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            arrived: watch::Sender::new(0),
            closed: AtomicBool::new(false),
        });
        let tasks = Tasks::new();
        let writer = Faulty {
            store,
            faults: Arc::clone(&faults),
        };
        let shared = Shared::start(writer, reader, count, Clock::system(), &tasks);
        let opened = shared
            .open_incarnation(id("workspace"))
            .await
            .expect("opens");
        Self {
            _directory: directory,
            tasks,
            faults,
            shared,
            incarnation: opened.incarnation,
        }
    }

    fn mode(&self, mode: u8) {
        self.faults.mode.store(mode, Ordering::SeqCst);
    }

    async fn begin(&self, number: usize, plan: usize) -> Result<Found, Error> {
        let command = Command::Begin {
            call: Arc::new(call(number)),
            incarnation: self.incarnation,
            plan: Bytes::from(vec![b' '; plan]),
            question: None,
            policy_id: String::new(),
        };
        match self.shared.command(command).await? {
            Answer::Found(found) => Ok(found),
            other @ (Answer::Receipt(_) | Answer::Decided { .. }) => panic!("{other:?}"),
        }
    }
}

fn id(text: &str) -> Id {
    text.parse().expect("id")
}

fn call(number: usize) -> Call {
    Call {
        key: crate::receipt::Key {
            workspace: id("workspace"),
            session: id("session"),
            call: id(&format!("call-{number}")),
        },
        intention: "test".parse().expect("intention"),
        tool: "tool".into(),
        args_sha256: postern_types::Sha256::of(b"{}"),
        trace_id: "".into(),
        summary: "".into(),
    }
}

fn record(rig: &Rig, number: usize) -> Record {
    Record {
        id: ReceiptId::generate(),
        call: Arc::new(call(number)),
        incarnation: rig.incarnation,
        outcome: "ok".into(),
        started_at_ms: 1,
        finished_at_ms: 2,
        place: postern_kit::trace::Place::default(),
    }
}

#[tokio::test]
async fn a_full_disk_fails_every_waiting_caller_and_mends_by_itself() {
    let rig = Rig::new().await;
    rig.begin(0, 10).await.expect("begins");
    rig.mode(FULL);
    let failed = join_all((1..20).map(|number| rig.begin(number, 100_000))).await;
    assert!(
        failed.iter().all(|it| matches!(it, Err(Error::DiskFull))),
        "{failed:?}"
    );
    rig.shared.record(record(&rig, 100)).await.expect("queues");
    let unknown = rig.shared.lookup(call(1), rig.incarnation).await;
    assert_eq!(unknown.expect("answers"), Found::Unknown);

    rig.mode(NORMAL);
    for number in 1..20 {
        let found = rig.begin(number, 100_000).await.expect("begins");
        assert!(matches!(found, Found::Started(_)), "{found:?}");
    }
    let found = rig
        .shared
        .verify(None, Vec::new(), &AtomicU64::new(0))
        .await
        .expect("verifies");
    assert_eq!((found.receipts, found.fault), (21, None));
}

/// A commit whose answer was lost is neither told as done nor done twice.
#[tokio::test]
async fn a_lost_commit_is_found_again_by_its_ids() {
    let rig = Rig::new().await;
    rig.mode(SILENT);
    let lost = rig.begin(1, 10).await.expect_err("its answer is lost");
    assert_eq!(lost.effect(), postern_kit::Effect::Unknown);
    rig.mode(NORMAL);
    let found = rig.begin(1, 10).await.expect("answers");
    assert!(matches!(found, Found::Running(_)), "{found:?}");
    rig.begin(2, 10).await.expect("the chain goes on");
    let found = rig
        .shared
        .verify(None, Vec::new(), &AtomicU64::new(0))
        .await
        .expect("verifies");
    assert_eq!((found.receipts, found.fault), (2, None));
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_what_waits_is_done() {
    let rig = Rig::new().await;
    let permits = rig.faults.gate.forget_permits(usize::MAX);
    assert_eq!(permits, Semaphore::MAX_PERMITS);
    let begin = |number| {
        let (shared, incarnation) = (Arc::clone(&rig.shared), rig.incarnation);
        rig.tasks.spawn("begins", async move {
            let command = Command::Begin {
                call: Arc::new(call(number)),
                incarnation,
                plan: Bytes::new(),
                question: None,
                policy_id: String::new(),
            };
            shared.command(command).await
        })
    };
    let mut arrived = rig.faults.arrived.subscribe();
    let mut waiting = vec![begin(0)];
    arrived.wait_for(|count| *count > 0).await.expect("arrives");
    waiting.extend((1..QUEUE_REQUESTS * 2).map(begin));
    while rig.shared.queue.capacity() > 0 {
        tokio::task::yield_now().await;
    }
    let refused = rig.begin(usize::MAX, 0).await;
    assert!(matches!(refused, Err(Error::QueueFull)), "{refused:?}");
    rig.faults.gate.add_permits(QUEUE_REQUESTS * 2);
    let mut done = 0;
    for waiter in waiting {
        match waiter.await.expect("joins") {
            Ok(_) => done += 1,
            Err(error) => assert!(matches!(error, Error::QueueFull), "{error:?}"),
        }
    }
    assert!(done >= QUEUE_REQUESTS, "{done}");
    let found = rig
        .shared
        .verify(None, Vec::new(), &AtomicU64::new(0))
        .await
        .expect("verifies");
    assert_eq!((found.receipts, found.fault), (done as u64, None));
}

#[tokio::test]
async fn an_id_given_up_and_taken_again_in_one_batch_is_no_conflict() {
    let rig = Rig::new().await;
    let Found::Started(old) = rig.begin(1, 0).await.expect("begins") else {
        panic!("it starts");
    };
    let permits = rig.faults.gate.forget_permits(usize::MAX);
    let abandon = Command::Abandon {
        receipt: old.id,
        incarnation: rig.incarnation,
    };
    let open_the_gate = async { rig.faults.gate.add_permits(permits) };
    let (first, abandoned, second, ()) = tokio::join!(
        rig.begin(2, 0),
        rig.shared.command(abandon),
        rig.begin(1, 0),
        open_the_gate
    );
    first.expect("begins");
    abandoned.expect("abandons");
    let Found::Started(new) = second.expect("begins again") else {
        panic!("the id was free");
    };
    assert_ne!(new.id, old.id);
    let found = rig
        .shared
        .verify(None, Vec::new(), &AtomicU64::new(0))
        .await
        .expect("verifies");
    assert_eq!((found.receipts, found.fault), (3, None));
}

/// More bytes than the queue holds are refused however few requests they are.
#[tokio::test]
async fn large_requests_cannot_fill_the_memory() {
    let rig = Rig::new().await;
    let permits = rig.faults.gate.forget_permits(usize::MAX);
    let results = join_all((0..40).map(|number| {
        let rig = &rig;
        async move {
            if number == 39 {
                rig.faults.gate.add_permits(permits);
            }
            rig.begin(number, 2 * 1024 * 1024).await
        }
    }))
    .await;
    let refused = results.iter().filter(|it| it.is_err()).count();
    assert!((20..=30).contains(&refused), "{refused}");
}

#[tokio::test]
async fn shutdown_writes_what_waits_and_then_refuses() {
    let rig = Rig::new().await;
    rig.shared.record(record(&rig, 1)).await.expect("queues");
    assert!(rig.tasks.shutdown(std::time::Duration::from_secs(5)).await);
    assert!(rig.faults.closed.load(Ordering::SeqCst));
    assert!(matches!(rig.begin(2, 0).await, Err(Error::Closed)));
    assert!(matches!(rig.shared.watch(), Err(Error::Closed)));
    let found = rig.shared.lookup(call(1), rig.incarnation).await;
    let Found::Replay(receipt) = found.expect("reads on") else {
        panic!("it was written");
    };
    assert_eq!((receipt.state, receipt.sequence), (State::Completed, 1));
}
