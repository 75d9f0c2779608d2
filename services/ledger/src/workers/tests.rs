use std::time::Duration;

use pretty_assertions::assert_eq;
use uuid::Uuid;

use postern_kit::{
    Clock, Failure,
    task::Tasks,
    transport::{Transport, local},
};
use postern_proto::ledger::v1::{
    self as proto, LeaveWorkerRequest, ListWorkersRequest, RegisterWorkerRequest,
    RenewWorkerRequest, workers_client::WorkersClient,
};

use postern_types::ErrorCode;

use super::{
    Ground, Load, Past, Standing, WorkerRow,
    book::{Book, Renewed},
};
use crate::{Config, Database, Service};

const LEASE: Duration = Duration::from_secs(10);

fn row() -> WorkerRow {
    WorkerRow {
        id: Uuid::now_v7(),
        address: "exec-1:7305".to_owned(),
        capacity: 4,
        lease_ms: 10_000,
        past: None,
        registered_ms: 1,
        ground: None,
    }
}

fn opened(rows: Vec<WorkerRow>) -> Book {
    let mut book = Book::default();
    book.load(rows);
    book
}

/// A ledger on the store of a test.
struct Ledger {
    tasks: Tasks,
    client: WorkersClient<Transport>,
}

impl Ledger {
    async fn open(database: &Database) -> Self {
        let tasks = Tasks::new();
        let config = Config {
            database: database.clone(),
        };
        let service = Service::open(config, Clock::system(), &tasks).await;
        let server = service.expect("a ledger").workers_server();
        let mut client = WorkersClient::new(local(server));
        // It reads what it has first.
        while client.workers(ListWorkersRequest {}).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Self { tasks, client }
    }

    async fn register(&mut self, id: Uuid, lease_ms: u64) -> proto::Standing {
        let registered = self.try_register(id, lease_ms, None).await;
        registered.expect("an answer")
    }

    async fn try_register(
        &mut self,
        id: Uuid,
        lease_ms: u64,
        ground: Option<proto::Ground>,
    ) -> Result<proto::Standing, Failure> {
        let request = RegisterWorkerRequest {
            worker_id: id.to_string(),
            address: "exec-1:7305".to_owned(),
            load: Some(proto::Load {
                running: 1,
                capacity: 4,
                draining: false,
            }),
            lease_ms,
            ground,
        };
        let answer = self.client.register(request).await?;
        Ok(answer.into_inner().standing())
    }

    /// Where the first stands after a renewal, and the others.
    async fn renew(&mut self, id: Uuid, others: &[Uuid]) -> Vec<proto::Standing> {
        let request = RenewWorkerRequest {
            worker_id: id.to_string(),
            load: None,
            others: others.iter().map(Uuid::to_string).collect(),
        };
        let answer = self.client.renew(request).await;
        let answer = answer.expect("an answer").into_inner();
        std::iter::once(answer.standing())
            .chain(answer.others())
            .collect()
    }

    /// Where another one stands, if the ledger tells.
    async fn standing(&mut self, id: Uuid, other: Uuid) -> Option<proto::Standing> {
        let request = RenewWorkerRequest {
            worker_id: id.to_string(),
            load: None,
            others: vec![other.to_string()],
        };
        let answer = self.client.renew(request).await.ok()?.into_inner();
        answer.others().next()
    }

    async fn live(&mut self) -> Vec<String> {
        let answer = self.client.workers(ListWorkersRequest {}).await;
        let workers = answer.expect("an answer").into_inner().workers;
        workers.into_iter().map(|live| live.worker_id).collect()
    }

    async fn close(self) {
        assert!(self.tasks.shutdown(Duration::from_secs(10)).await);
    }
}

#[tokio::test]
async fn ends_are_kept_over_a_restart_in_a_file() {
    let folder = tempfile::tempdir().expect("folder");
    ends_are_kept(&Database::Sqlite(folder.path().join("ledger.db"))).await;
}

#[tokio::test]
async fn ends_are_kept_over_a_restart_on_a_server() {
    let url = postern_test_postgres::Cluster::shared().database();
    ends_are_kept(&url.parse().expect("a URL")).await;
}

async fn ends_are_kept(database: &Database) {
    use proto::Standing::{Lapsed, Left, Live, Unknown};
    let mut ledger = Ledger::open(database).await;
    let [living, leaving, dying, never] = [0; 4].map(|_| Uuid::now_v7());
    assert_eq!(ledger.register(living, 60_000).await, Live);
    assert_eq!(ledger.register(leaving, 60_000).await, Live);
    assert_eq!(ledger.register(dying, 100).await, Live);
    let leave = LeaveWorkerRequest {
        worker_id: leaving.to_string(),
    };
    ledger.client.leave(leave).await.expect("left");
    let asked = [leaving, dying, never];
    while ledger.renew(living, &asked).await != [Live, Left, Lapsed, Unknown] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(ledger.live().await, [living.to_string()]);
    ledger.close().await;

    let mut ledger = Ledger::open(database).await;
    assert_eq!(
        ledger.renew(living, &asked).await,
        [Live, Left, Lapsed, Unknown]
    );
    assert_eq!(ledger.live().await, [living.to_string()]);
    // What has ended does not begin again, whatever the ledger is told.
    assert_eq!(ledger.register(dying, 60_000).await, Lapsed);
    assert_eq!(ledger.register(leaving, 60_000).await, Left);
    ledger.close().await;
}

#[tokio::test]
async fn a_worker_of_another_project_is_refused_in_a_file() {
    let folder = tempfile::tempdir().expect("folder");
    other_projects_are_refused(&Database::Sqlite(folder.path().join("ledger.db"))).await;
}

#[tokio::test]
async fn a_worker_of_another_project_is_refused_on_a_server() {
    let url = postern_test_postgres::Cluster::shared().database();
    other_projects_are_refused(&url.parse().expect("a URL")).await;
}

async fn other_projects_are_refused(database: &Database) {
    use proto::Standing::{Left, Live};
    let ground = |spool: &str, boot: &str, root_device, root_inode| {
        Some(proto::Ground {
            spool_id: spool.to_owned(),
            boot_id: boot.to_owned(),
            root_device,
            root_inode,
        })
    };
    let mut ledger = Ledger::open(database).await;
    let first = Uuid::now_v7();
    let registered = ledger.try_register(first, 60_000, ground("spool", "boot", 1, 2));
    assert_eq!(registered.await.expect("the first"), Live);
    // What it stands on is known over a restart.
    for restart in [false, true] {
        if restart {
            ledger.close().await;
            ledger = Ledger::open(database).await;
        }
        for (refused, said) in [
            (ground("other", "boot", 1, 2), "another spool"),
            (ground("other", "elsewhere", 3, 4), "another spool"),
            (ground("spool", "boot", 1, 3), "another project"),
        ] {
            let registered = ledger.try_register(Uuid::now_v7(), 60_000, refused).await;
            let failure = registered.expect_err("refused");
            assert_eq!(failure.code, ErrorCode::InvalidArguments);
            assert!(
                failure.message.contains(said) && failure.message.contains("exec-1:7305"),
                "{failure}"
            );
        }
        assert_eq!(ledger.live().await, [first.to_string()]);
    }
    // Of another device or machine, and of one that does not say, nobody can tell.
    for let_in in [
        ground("spool", "boot", 1, 2),
        ground("spool", "boot", 5, 3),
        ground("spool", "elsewhere", 1, 3),
        None,
    ] {
        let id = Uuid::now_v7();
        let registered = ledger.try_register(id, 60_000, let_in).await;
        assert_eq!(registered.expect("let in"), Live);
        leave(&mut ledger, id).await;
    }
    // After its end the ledger is for whoever comes.
    assert_eq!(leave(&mut ledger, first).await, Left);
    let next = ledger.try_register(Uuid::now_v7(), 60_000, ground("other", "boot", 1, 3));
    assert_eq!(next.await.expect("the next"), Live);
    ledger.close().await;
}

async fn leave(ledger: &mut Ledger, id: Uuid) -> proto::Standing {
    let request = LeaveWorkerRequest {
        worker_id: id.to_string(),
    };
    let answer = ledger.client.leave(request).await;
    answer.expect("an answer").into_inner().standing()
}

/// Of two that come at once the first is taken, though neither is on record yet.
#[test]
fn a_worker_that_is_about_to_begin_keeps_another_projects_out() {
    let on = |inode| WorkerRow {
        ground: Some(Ground {
            spool: "spool".to_owned(),
            boot: "boot".to_owned(),
            device: 1,
            inode,
        }),
        ..row()
    };
    let mut book = opened(Vec::new());
    let (first, second) = (on(1), on(2));
    book.announce(&first).expect("the first");
    assert!(book.announce(&second).is_err());
    book.announce(&first).expect("the same again");
    book.coming.remove(&first.id);
    book.announce(&second).expect("alone");
}

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A database that is away longer than a lease: its workers were alive all the time, and nobody could be told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_away_is_not_held_against_the_workers() {
    const LEASE_MS: u64 = 2000;
    let cluster = postern_test_postgres::Cluster::start();
    let mut ledger = Ledger::open(&cluster.database().parse().expect("a URL")).await;
    let id = Uuid::now_v7();
    assert_eq!(ledger.register(id, LEASE_MS).await, proto::Standing::Live);
    cluster.stop();
    let mut renewals = ledger.client.clone();
    let mut renew = async move || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let request = RenewWorkerRequest {
            worker_id: id.to_string(),
            load: None,
            others: Vec::new(),
        };
        let answer = renewals.renew(request).await.ok()?;
        Some(answer.into_inner().standing())
    };
    while renew().await.is_some() {}
    let away = tokio::time::Instant::now();
    while away.elapsed() < Duration::from_millis(2 * LEASE_MS) {
        assert_eq!(renew().await, None);
    }
    cluster.restart();
    let back = async {
        loop {
            if let Some(standing) = renew().await {
                return standing;
            }
        }
    };
    let told = tokio::time::timeout(PATIENCE, back).await.expect("in time");
    assert_eq!(told, proto::Standing::Live);
    assert_eq!(ledger.live().await, [id.to_string()]);
    // And who does not renew it from then on has one whole lease.
    while !ledger.live().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ledger.close().await;
}

/// A worker that leaves while the database hangs, and does not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_left_without_waiting_has_left() {
    let cluster = postern_test_postgres::Cluster::start();
    let mut ledger = Ledger::open(&cluster.database().parse().expect("a URL")).await;
    let [living, leaving] = [0; 2].map(|_| Uuid::now_v7());
    for id in [living, leaving] {
        assert_eq!(ledger.register(id, 2000).await, proto::Standing::Live);
    }
    cluster.freeze();
    let leave = ledger.client.leave(LeaveWorkerRequest {
        worker_id: leaving.to_string(),
    });
    let left = tokio::time::timeout(Duration::from_millis(300), leave).await;
    assert!(left.is_err(), "nobody waits for it: {left:?}");
    cluster.thaw();
    let ended = async {
        loop {
            let standing = ledger.standing(living, leaving).await;
            if let Some(ended) = standing.filter(|it| *it != proto::Standing::Live) {
                return ended;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, ended).await;
    let ended = ended.expect("its lease ends");
    // The other when the machine was so slow that the database counted as away.
    assert!(
        matches!(ended, proto::Standing::Left | proto::Standing::Lapsed),
        "{ended:?}"
    );
    ledger.close().await;
}

#[test]
fn a_lease_lapses_when_it_is_not_renewed_and_never_runs_again() {
    let row = row();
    let mut book = opened(Vec::new());
    assert_eq!(book.begin(row.clone(), Load::default()), Standing::Live);
    assert!(book.pass(LEASE).is_empty());
    let renewed = book.renew(row.id, Load::default()).expect("read");
    assert_eq!(renewed, Renewed::Standing(Standing::Live));
    assert!(book.pass(LEASE).is_empty());
    assert_eq!(book.pass(Duration::from_millis(1)), [row.id]);
    // Decided, and not durable: the worker itself is told, nobody else is.
    let ended = book.end(row.id, Past::Lapsed).expect("read");
    assert_eq!(ended.expect("a row").past, Some(Past::Lapsed));
    assert_eq!(
        book.renew(row.id, Load::default()).expect("read"),
        Renewed::Ending
    );
    assert_eq!(book.standing(row.id), Standing::Live);
    book.ended(row.id, Past::Lapsed);
    let lapsed = Standing::Past(Past::Lapsed);
    assert_eq!(book.standing(row.id), lapsed);
    assert_eq!(book.begin(row.clone(), Load::default()), lapsed);
    assert_eq!(
        book.renew(row.id, Load::default()).expect("read"),
        Renewed::Standing(lapsed)
    );
}

#[test]
fn a_ledger_that_comes_back_gives_one_whole_lease() {
    let (live, mut lapsed) = (row(), row());
    lapsed.past = Some(Past::Lapsed);
    let mut book = opened(vec![live.clone(), lapsed.clone()]);
    assert_eq!(book.standing(lapsed.id), Standing::Past(Past::Lapsed));
    assert!(book.pass(LEASE).is_empty());
    assert_eq!(book.pass(Duration::from_millis(1)), [live.id]);
}

#[test]
fn a_ledger_that_could_not_answer_gives_one_whole_lease() {
    let row = row();
    let mut book = opened(vec![row.clone()]);
    assert!(book.pass(LEASE).is_empty());
    book.begin_anew();
    assert!(book.pass(LEASE).is_empty());
    assert_eq!(book.pass(Duration::from_millis(1)), [row.id]);
}

#[test]
fn before_it_was_read_nothing_is_told() {
    let mut book = Book::default();
    assert!(book.renew(Uuid::now_v7(), Load::default()).is_err());
    assert!(book.list().is_err());
}
