//! A database that is away, hangs, dies in the middle of commits, or whose answer is lost.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use postern_kit::{Effect, Failure, task::Tasks, transport::DEADLINE};
use postern_proto::ledger::v1::{CompleteRequest, GetRequest, State, begin_response::Outcome};
use postern_test_postgres::{Cluster, folder, socket};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use tokio::net::{UnixListener, UnixStream};

use crate::support::{Client, Rig, Store, call, outcome, replayed, request, started};

/// How long a caller offers the same again.
const PATIENCE: Duration = Duration::from_secs(60);

async fn over(cluster: &Cluster) -> Rig {
    Rig::on(Store::Postgres(cluster.database())).await
}

async fn try_begin(rig: &Rig, id: &str, incarnation: u64) -> Result<Outcome, Failure> {
    let mut client = rig.client.clone();
    let start = Instant::now();
    let begun = outcome(client.begin(request(&call(id), incarnation)).await);
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    begun
}

async fn unavailable(rig: &Rig, id: &str, incarnation: u64) -> Effect {
    let failure = try_begin(rig, id, incarnation).await.expect_err("away");
    assert_eq!(failure.code, ErrorCode::Unavailable, "{failure}");
    failure.effect
}

#[tokio::test]
async fn a_database_that_is_away_at_the_start_is_waited_for() {
    let cluster = Cluster::start();
    let url = cluster.database();
    cluster.stop();
    let rig = Rig::at_once(Store::Postgres(url)).await;
    assert_eq!(unavailable(&rig, "call-1", 1).await, Effect::None);
    assert!(!*rig.service.readiness().borrow());
    cluster.restart();
    rig.becomes(true).await;
    let incarnation = rig.incarnation().await;
    started(rig.begin(&call("call-1"), incarnation).await);
    cluster.stop();
    // Idle, it notices by itself.
    rig.becomes(false).await;
    assert_eq!(unavailable(&rig, "call-2", incarnation).await, Effect::None);
    cluster.restart();
    rig.becomes(true).await;
    started(rig.begin(&call("call-2"), incarnation).await);
    rig.assert_valid().await;
}

/// A server may take no writes without being a replica.
#[tokio::test]
async fn a_database_that_was_told_to_take_no_writes_is_not_ready() {
    let rig = Rig::on(Store::postgres()).await;
    let incarnation = rig.incarnation().await;
    let set = |to: &str| {
        let cluster = Cluster::shared();
        let sql = format!(
            "BEGIN READ WRITE; DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {to}', current_database()); END $$; COMMIT; \
             SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()"
        );
        cluster.execute(rig.store.url(), &sql);
    };
    set("SET default_transaction_read_only = on");
    rig.becomes(false).await;
    let told = async {
        loop {
            let failure = try_begin(&rig, "call-1", incarnation)
                .await
                .expect_err("away");
            if failure.message.contains("takes no writes") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await;
    told.expect("it says so");
    let mut readiness = rig.service.readiness();
    let ready = tokio::time::timeout(Duration::from_secs(3), readiness.wait_for(|ready| *ready));
    assert!(ready.await.is_err());
    set("RESET default_transaction_read_only");
    rig.becomes(true).await;
    started(rig.begin(&call("call-1"), incarnation).await);
}

#[tokio::test]
async fn a_database_that_hangs_holds_no_caller_beyond_the_deadline() {
    let cluster = Cluster::start();
    let rig = over(&cluster).await;
    let incarnation = rig.incarnation().await;
    cluster.freeze();
    let hanging = (0..20).map(|number| {
        let rig = &rig;
        async move { unavailable(rig, &format!("call-{number}"), incarnation).await }
    });
    futures_util::future::join_all(hanging).await;
    rig.becomes(false).await;
    cluster.thaw();
    rig.becomes(true).await;
    // What hung may have been committed once the server went on, or not: either way it is one receipt.
    for number in 0..20 {
        let found = rig
            .begin(&call(&format!("call-{number}")), incarnation)
            .await;
        assert!(
            matches!(found, Outcome::Started(_) | Outcome::Running(_)),
            "{found:?}"
        );
    }
    let found = rig.verify().await;
    assert_eq!((found.valid, found.receipts), (true, 20), "{found:?}");
}

/// Offers the same until it is answered.
async fn insist<T, F>(mut offer: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        match offer().await {
            Err(failure) if failure.code == ErrorCode::Unavailable && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}

/// One call from its beginning to its end, each offered until it is answered. Tells the receipt's id.
async fn pair(client: &Client, id: &str, incarnation: u64) -> String {
    let begun = insist(|| {
        let mut client = client.clone();
        let request = request(&call(id), incarnation);
        async move { outcome(client.begin(request).await) }
    });
    let begun = begun.await.expect("begins");
    let (Outcome::Started(receipt) | Outcome::Running(receipt)) = begun else {
        panic!("{begun:?}");
    };
    let ended = insist(|| {
        let mut client = client.clone();
        let request = CompleteRequest {
            receipt_id: receipt.id.clone(),
            incarnation,
            state: State::Completed.into(),
            outcome: "ok".to_owned(),
            result: receipt.id.clone().into(),
        };
        async move { Ok(client.complete(request).await?.into_inner()) }
    });
    let ended = ended.await.expect("ends").receipt.expect("receipt");
    assert_eq!(ended.state(), State::Completed);
    receipt.id
}

/// Callers that make pairs until they are stopped.
pub(crate) async fn pairs_while(
    rig: &Rig,
    callers: usize,
    incarnation: u64,
    disturb: impl Future<Output = ()>,
) -> HashMap<String, String> {
    let tasks = Tasks::new();
    let stop = tasks.stopping();
    let running: Vec<_> = (0..callers)
        .map(|caller| {
            let (client, stop) = (rig.client.clone(), stop.clone());
            tasks.spawn("caller", async move {
                let mut ended = Vec::new();
                for number in 0.. {
                    if stop.is_cancelled() {
                        break;
                    }
                    let id = format!("{caller}-{number}");
                    ended.push((id.clone(), pair(&client, &id, incarnation).await));
                }
                ended
            })
        })
        .collect();
    disturb.await;
    stop.cancel();
    let mut all = HashMap::new();
    for caller in running {
        all.extend(caller.await.expect("joins"));
    }
    all
}

/// Every acknowledged pair is there, once, with its end; and nothing else is.
pub(crate) async fn assert_kept(
    rig: &Rig,
    acknowledged: &HashMap<String, String>,
    incarnation: u64,
) {
    rig.becomes(true).await;
    let found = rig.verify().await;
    let pairs = acknowledged.len() as u64;
    assert_eq!(
        (found.valid, found.receipts, found.events),
        (true, pairs, 2 * pairs),
        "{found:?}"
    );
    for (call_id, receipt_id) in acknowledged.iter().take(200) {
        let (receipt, result) = replayed(rig.lookup(&call(call_id), incarnation).await);
        assert_eq!((&receipt.id, &result), (receipt_id, receipt_id));
        let request = GetRequest {
            receipt_id: receipt_id.clone(),
        };
        let got = rig.client.clone().get(request).await.expect("is there");
        assert_eq!(got.into_inner().receipt.expect("receipt"), receipt);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_again_and_again_costs_no_acknowledged_receipt() {
    let cluster = Cluster::start();
    let rig = over(&cluster).await;
    let incarnation = rig.incarnation().await;
    let disturb = async {
        for round in 0..4 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            tokio::task::block_in_place(|| {
                if round % 2 == 0 {
                    cluster.crash();
                } else {
                    cluster.stop();
                }
                cluster.restart();
            });
            rig.becomes(true).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let acknowledged = pairs_while(&rig, 8, incarnation, disturb).await;
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    assert_kept(&rig, &acknowledged, incarnation).await;
}

/// The server ends the writer's session after the statement and before the commit, about every fifth batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_before_its_commit_leaves_nothing_and_is_made_anew() {
    let rig = Rig::on(Store::postgres()).await;
    let incarnation = rig.incarnation().await;
    let sql = |sql: &str| Cluster::shared().execute(rig.store.url(), sql);
    sql("SET search_path = postern_ledger; \
         CREATE TABLE ends (count BIGINT); \
         CREATE SEQUENCE ended; \
         CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF random() < 0.2 THEN PERFORM nextval('ended'), pg_terminate_backend(pg_backend_pid()); END IF; \
             RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER dies AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION die()");
    let disturb = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let told = sql("SELECT last_value FROM postern_ledger.ended");
            if told.trim().parse::<i64>().expect("a number") > 20 {
                break;
            }
        }
        sql("DROP TRIGGER dies ON postern_ledger.events");
    };
    let acknowledged = pairs_while(&rig, 4, incarnation, disturb).await;
    assert_kept(&rig, &acknowledged, incarnation).await;
}

type Lose = Arc<Mutex<Option<String>>>;

/// A way to a server on which answers can be lost.
struct Lossy {
    url: String,
    /// The answer to the next request with this text in it is not passed on, and the connection is cut.
    lose: Lose,
    /// Nobody gets through.
    closed: Arc<AtomicBool>,
    tasks: Tasks,
    _folder: tempfile::TempDir,
}

impl Lossy {
    fn to(url: &str) -> Self {
        let server = folder(url).expect("a folder").to_owned();
        let directory = tempfile::tempdir().expect("folder");
        let listener = UnixListener::bind(socket(directory.path())).expect("bound");
        let (lose, closed) = (Lose::default(), Arc::new(AtomicBool::new(false)));
        let lossy = url.replace(
            &server.display().to_string(),
            &directory.path().display().to_string(),
        );
        let tasks = Tasks::new();
        let (losing, closing, spawner) = (Arc::clone(&lose), Arc::clone(&closed), tasks.clone());
        tasks.spawn("lossy", async move {
            while let Ok((client, _)) = listener.accept().await {
                if closing.load(Ordering::SeqCst) {
                    continue;
                }
                let (server, losing) = (socket(&server), Arc::clone(&losing));
                spawner.spawn("way", async move { pass(client, &server, &losing).await });
            }
        });
        Self {
            url: lossy,
            lose,
            closed,
            tasks,
            _folder: directory,
        }
    }
}

/// Passes both ways until an answer is to be lost.
async fn pass(mut client: UnixStream, server: &Path, lose: &Mutex<Option<String>>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut server = UnixStream::connect(server).await.expect("a server");
    let (mut asked, mut told) = (vec![0; 65536], vec![0; 65536]);
    let mut losing = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(count @ 1..) = read else { return };
                losing |= is_meant(&asked[..count], lose);
                server.write_all(&asked[..count]).await.expect("written");
            }
            read = server.read(&mut told) => {
                let Ok(count @ 1..) = read else { return };
                // The server answers a commit when it is durable.
                if losing {
                    return;
                }
                client.write_all(&told[..count]).await.expect("written");
            }
        }
    }
}

fn is_meant(asked: &[u8], lose: &Mutex<Option<String>>) -> bool {
    let mut lose = lose.lock().expect("no test panicked with it");
    let text = lose.clone().unwrap_or_default();
    let is_meant = !text.is_empty() && asked.windows(text.len()).any(|it| it == text.as_bytes());
    if is_meant {
        *lose = None;
    }
    is_meant
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_found_and_told() {
    let Store::Postgres(url) = Store::postgres() else {
        unreachable!("it is on a server");
    };
    let way = Lossy::to(&url);
    let rig = Rig::on(Store::Postgres(way.url.clone())).await;
    let incarnation = rig.incarnation().await;
    let lose = |text: &str| *way.lose.lock().expect("no panic") = Some(text.to_owned());
    let lost = || way.lose.lock().expect("no panic").is_none();
    for number in 1..=20 {
        let (id, result) = (format!("call-{number}"), format!("result-{number}"));
        lose(&format!("\"{id}\""));
        let receipt = started(rig.begin(&call(&id), incarnation).await);
        assert!(lost());
        lose(&result);
        rig.complete(&receipt, incarnation, State::Completed, &result)
            .await
            .expect("ends");
        assert!(lost());
    }
    let found = rig.verify().await;
    assert_eq!(
        (found.valid, found.receipts, found.events),
        (true, 20, 40),
        "{found:?}"
    );

    // Nobody gets through to find out: then it is not known, and told so.
    way.closed.store(true, Ordering::SeqCst);
    lose("\"lost\"");
    assert_eq!(
        unavailable(&rig, "lost", incarnation).await,
        Effect::Unknown
    );
    way.closed.store(false, Ordering::SeqCst);
    rig.becomes(true).await;
    let found = rig.begin(&call("lost"), incarnation).await;
    assert!(matches!(found, Outcome::Running(_)), "{found:?}");
    rig.assert_valid().await;
    rig.stop().await;
    way.tasks.shutdown(Duration::from_millis(1)).await;
}
