//! A replica takes the place of its server, behind an address that moves to it.

use std::time::Duration;

use postern_kit::{Effect, Failure};
use postern_ledger::accept_loss;
use postern_proto::ledger::v1::{State, begin_response::Outcome};
use postern_test_postgres::{Cluster, Moving, folder, socket};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;

use crate::{
    outage::{assert_kept, pairs_while},
    support::{Rig, Store, call, outcome, request, started},
};

/// A server's address that can lead to another one.
struct Address {
    url: String,
    moving: Moving,
    _folder: tempfile::TempDir,
}

impl Address {
    fn of(url: &str) -> Self {
        let server = folder(url).expect("a folder");
        let directory = tempfile::tempdir().expect("folder");
        let own = directory.path().display().to_string();
        Self {
            url: url.replace(&server.display().to_string(), &own),
            moving: Moving::new(&socket(directory.path()), &socket(server)),
            _folder: directory,
        }
    }

    fn leads_to(&self, url: &str) {
        self.moving
            .leads_to(&socket(folder(url).expect("a folder")));
    }
}

/// What a caller is told while the database lacks what was acknowledged.
async fn told(rig: &Rig, id: &str, incarnation: u64) -> Failure {
    let begun = rig
        .client
        .clone()
        .begin(request(&call(id), incarnation))
        .await;
    let failure = outcome(begun).expect_err("refused");
    assert_eq!(failure.code, ErrorCode::Unavailable, "{failure}");
    failure
}

async fn is_told_that_it_went_back(rig: &Rig, incarnation: u64) {
    let told = async {
        loop {
            let failure = told(rig, "anything", incarnation).await;
            // Of what was on its way when the server went, nobody knows what became; nothing is done from here on.
            if failure.message.contains("accept-loss") {
                assert_eq!(failure.effect, Effect::None, "{failure}");
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(30), told).await;
    told.expect("in time");
    assert!(!*rig.service.readiness().borrow());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_has_every_commit_takes_over_and_nothing_acknowledged_is_lost() {
    let primary = Cluster::start();
    let url = primary.database();
    let replica = primary.replica();
    // Each in a transaction of its own: one of them knows none.
    primary.execute(&url, "ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.execute(&url, "SELECT pg_reload_conf()");
    let address = Address::of(&url);
    let rig = Rig::on(Store::Postgres(address.url.clone())).await;
    let incarnation = rig.incarnation().await;
    let disturb = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        tokio::task::block_in_place(|| {
            primary.crash();
            replica.promote();
        });
        address.leads_to(&replica.same(&url));
        rig.becomes(true).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    let acknowledged = pairs_while(&rig, 8, incarnation, disturb).await;
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    assert_kept(&rig, &acknowledged, incarnation).await;
    let lost = "SELECT count(*) FROM postern_ledger.lost";
    assert_eq!(replica.execute(&replica.same(&url), lost), "0\n");
    rig.stop().await;
}

/// A server whose replica lacks the newest of what was acknowledged, both reached by one address.
struct Behind {
    primary: Cluster,
    replica: Cluster,
    url: String,
    address: Address,
    rig: Rig,
    incarnation: u64,
}

/// What was acknowledged before the replica fell behind.
const BEFORE: u64 = 2;

impl Behind {
    /// The replica is promoted and has taken the place of its server.
    async fn promoted() -> Self {
        let primary = Cluster::start();
        let url = primary.database();
        let address = Address::of(&url);
        let rig = Rig::on(Store::Postgres(address.url.clone())).await;
        let incarnation = rig.incarnation().await;
        let first = started(rig.begin(&call("first"), incarnation).await);
        let ended = rig.complete(&first, incarnation, State::Completed, "one");
        ended.await.expect("ends");
        let replica = primary.replica();
        replica.crash();
        // Nothing of this reaches it.
        started(rig.begin(&call("lost"), incarnation).await);
        primary.crash();
        replica.restart();
        // Not promoted yet: it is no place to write to, whatever it lacks.
        address.leads_to(&replica.same(&url));
        rig.becomes(false).await;
        let failure = told(&rig, "to-a-replica", incarnation).await;
        assert!(
            !failure.message.contains("accept-loss"),
            "a replica may only be behind: {failure}"
        );
        replica.promote();
        is_told_that_it_went_back(&rig, incarnation).await;
        Self {
            primary,
            replica,
            url,
            address,
            rig,
            incarnation,
        }
    }

    fn events(&self) -> u64 {
        let count = "SELECT count(*) FROM postern_ledger.events";
        let told = self.replica.execute(&self.replica.same(&self.url), count);
        told.trim().parse().expect("a count")
    }

    async fn end(self) {
        self.rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lacks_acknowledged_receipts_is_not_written_to_by_any_ledger() {
    let behind = Behind::promoted().await;
    assert_eq!(behind.events(), BEFORE);
    // One that remembers nothing reads it in the database.
    let there = behind.replica.same(&behind.url);
    let other = Rig::at_once(Store::Postgres(there)).await;
    is_told_that_it_went_back(&other, behind.incarnation).await;
    other.stop().await;
    assert_eq!(behind.events(), BEFORE);

    // The server that has everything comes back, and nothing was lost.
    behind.primary.restart();
    behind.address.leads_to(&behind.url);
    behind.rig.becomes(true).await;
    let found = behind.rig.begin(&call("lost"), behind.incarnation).await;
    assert!(matches!(found, Outcome::Running(_)), "{found:?}");
    started(behind.rig.begin(&call("next"), behind.incarnation).await);
    let found = behind.rig.verify().await;
    assert_eq!((found.valid, found.events), (true, BEFORE + 2), "{found:?}");
    behind.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_that_its_owner_accepts_is_gone_on_from_and_the_next_is_noticed_again() {
    let behind = Behind::promoted().await;
    let database = behind.replica.same(&behind.url).parse().expect("a URL");
    let lost = accept_loss(&database).await.expect("accepted");
    let lost: Vec<_> = lost.iter().map(|it| it.sequence).collect();
    assert_eq!(lost, [BEFORE + 1]);
    behind.rig.becomes(true).await;
    let again = accept_loss(&database).await.expect("nothing to accept");
    assert_eq!(again, []);
    started(behind.rig.begin(&call("lost"), behind.incarnation).await);
    let found = behind.rig.verify().await;
    assert_eq!((found.valid, found.events), (true, BEFORE + 1), "{found:?}");

    // The first server again: what was acknowledged since is not there.
    behind.primary.restart();
    behind.address.leads_to(&behind.url);
    is_told_that_it_went_back(&behind.rig, behind.incarnation).await;
    behind.end().await;
}

/// What stands by has seen where the chains end, so it notices as well when the one that wrote is gone together with its server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_stood_by_notices_too() {
    let primary = Cluster::start();
    let url = primary.database();
    let address = Address::of(&url);
    let first = Rig::on(Store::Postgres(url.clone())).await;
    let incarnation = first.incarnation().await;
    started(first.begin(&call("first"), incarnation).await);
    let replica = primary.replica();
    replica.crash();
    started(first.begin(&call("lost"), incarnation).await);
    let second = Rig::at_once(Store::Postgres(address.url.clone())).await;
    let looked = "SELECT count(*) FROM pg_stat_activity \
        WHERE state = 'idle' AND query LIKE '%FROM workspaces ORDER BY number DESC%'";
    while primary.execute(&url, looked) == "0\n" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.stop().await;
    primary.crash();
    replica.restart();
    replica.promote();
    address.leads_to(&replica.same(&url));
    is_told_that_it_went_back(&second, incarnation).await;
    second.stop().await;
}

/// One that has not seen what is missing goes on with what there is, until one that has is there again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_leads_on_less_stops_when_one_that_knows_more_comes_back() {
    let primary = Cluster::start();
    let url = primary.database();
    let address = Address::of(&url);
    let first = Rig::on(Store::Postgres(address.url.clone())).await;
    let incarnation = first.incarnation().await;
    started(first.begin(&call("first"), incarnation).await);
    let replica = primary.replica();
    replica.crash();
    started(first.begin(&call("lost"), incarnation).await);
    primary.crash();
    replica.restart();
    replica.promote();
    first.becomes(false).await;
    let there = replica.same(&url);
    let second = Rig::on(Store::Postgres(there.clone())).await;
    // Its chain is longer than the lost one, even.
    for id in ["lost", "next"] {
        started(second.begin(&call(id), incarnation).await);
    }

    address.leads_to(&there);
    is_told_that_it_went_back(&first, incarnation).await;
    is_told_that_it_went_back(&second, incarnation).await;
    let count = "SELECT count(*) FROM postern_ledger.events";
    assert_eq!(replica.execute(&there, count), "3\n");
    let lost = accept_loss(&there.parse().expect("a URL")).await;
    let lost: Vec<_> = lost
        .expect("accepted")
        .iter()
        .map(|it| it.sequence)
        .collect();
    assert_eq!(lost, [2]);
    let (leading, other) = tokio::select! {
        () = first.becomes(true) => (first, second),
        () = second.becomes(true) => (second, first),
    };
    started(leading.begin(&call("after"), incarnation).await);
    let found = leading.verify().await;
    assert_eq!((found.valid, found.events), (true, 4), "{found:?}");
    leading.stop().await;
    other.becomes(true).await;
    other.stop().await;
}
