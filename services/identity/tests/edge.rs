//! The edge's identity through its real server.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use postern_identity::{
    Database,
    edge::{Config, Service},
};
use postern_kit::{
    Clock, Failure, Problem,
    serve::{Listener, Services, serve},
    task::Tasks,
    transport::{Address, Transport, connect, local},
};
use postern_proto::identity::v1::{
    AdmitRequest, ListSessionsRequest, PinRequest, Session,
    edge_identity_client::EdgeIdentityClient,
};
use postern_test_postgres::Cluster;
use postern_types::{ErrorCode, Timestamp};
use pretty_assertions::assert_eq;
use tempfile::TempDir;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

struct Edge {
    client: EdgeIdentityClient<Transport>,
    service: Service,
    now: Arc<AtomicI64>,
    place: Place,
}

/// Where the store is.
enum Place {
    Sqlite(TempDir),
    /// A database of the test's own, by its URL.
    Postgres(String),
}

impl Place {
    fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().expect("directory"))
    }

    fn postgres() -> Self {
        Self::Postgres(Cluster::shared().database())
    }

    fn database(&self) -> Database {
        match self {
            Self::Sqlite(directory) => Database::Sqlite(directory.path().join("pins.db")),
            Self::Postgres(url) => url.parse().expect("a URL"),
        }
    }
}

/// Makes two tests of each: one on SQLite, and one on PostgreSQL.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Edge::over(super::Place::sqlite()).await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Edge::over(super::Place::postgres()).await).await;
            })*
        }
    };
}

on_both! {
    an_unreadable_pin_means_no,
    a_pin_lasts_and_the_same_one_is_no_change,
    another_project_directory_or_intention_is_refused_without_repin,
    ill_formed_pins_are_refused,
    the_checks_come_in_the_contract_s_order,
    a_session_is_admitted_once_and_stays_admitted,
    a_session_s_first_calls_at_once_admit_it_once,
    a_repin_takes_effect_at_once_and_forgets_the_sessions_of_the_old_pin,
}

/// Opens the store, and waits until it is ready.
async fn open(database: Database, now: &Arc<AtomicI64>) -> Service {
    let now = Arc::clone(now);
    let clock = Clock::from_fn(move || Timestamp::from_millis(now.load(Ordering::SeqCst)));
    let opened = Service::open(Config { database }, clock, &Tasks::new()).await;
    let service = opened.expect("opened");
    let mut readiness = service.readiness();
    let ready = readiness.wait_for(|is_ready| *is_ready);
    let ready = tokio::time::timeout(Duration::from_secs(30), ready).await;
    drop(ready.expect("in time").expect("the service lives"));
    service
}

impl Edge {
    async fn over(place: Place) -> Self {
        let now = Arc::new(AtomicI64::new(1000));
        let service = open(place.database(), &now).await;
        Self {
            client: EdgeIdentityClient::new(local(service.clone().into_server())),
            service,
            now,
            place,
        }
    }

    async fn restart(&mut self) {
        self.service.close().await;
        self.service = open(self.place.database(), &self.now).await;
        self.client = EdgeIdentityClient::new(local(self.service.clone().into_server()));
    }

    async fn pin(&mut self, request: PinRequest) -> Result<bool, Problem> {
        let answer = self.client.pin(request).await.map_err(Problem::from)?;
        Ok(answer.into_inner().changed)
    }

    async fn admit(&mut self, request: AdmitRequest) -> Result<bool, ErrorCode> {
        match self.client.admit(request).await {
            Ok(answer) => Ok(answer.into_inner().new_session),
            Err(status) => Err(Failure::from(status).code),
        }
    }

    async fn sessions(&mut self) -> Vec<Session> {
        let request = ListSessionsRequest {
            workspace_id: "w".to_owned(),
        };
        self.client
            .list_sessions(request)
            .await
            .expect("sessions")
            .into_inner()
            .sessions
    }
}

fn pin() -> PinRequest {
    PinRequest {
        workspace_id: "w".to_owned(),
        intention: "mend it".to_owned(),
        project_path: "/home/me/project".to_owned(),
        device: u64::MAX,
        inode: 42,
        repin: false,
    }
}

fn call(session: &str) -> AdmitRequest {
    AdmitRequest {
        workspace_id: "w".to_owned(),
        intention: "mend it".to_owned(),
        session_id: session.to_owned(),
        pinned_workspace_id: "w".to_owned(),
        let_in: true,
    }
}

fn known_only(session: &str) -> AdmitRequest {
    AdmitRequest {
        let_in: false,
        ..call(session)
    }
}

async fn a_pin_lasts_and_the_same_one_is_no_change(mut edge: Edge) {
    assert_eq!(edge.pin(pin()).await, Ok(true));
    for _ in 0..2 {
        assert_eq!(edge.pin(pin()).await, Ok(false));
        edge.restart().await;
    }
}

async fn another_project_directory_or_intention_is_refused_without_repin(mut edge: Edge) {
    edge.pin(pin()).await.expect("pinned");
    let others = [
        PinRequest {
            project_path: "/home/me/other".to_owned(),
            ..pin()
        },
        PinRequest { inode: 43, ..pin() },
        PinRequest { device: 1, ..pin() },
        PinRequest {
            intention: "break it".to_owned(),
            ..pin()
        },
    ];
    for other in others {
        let problem = edge.pin(other.clone()).await.expect_err("refused");
        assert_eq!(
            (problem.kind, problem.code.as_ref()),
            (Code::FailedPrecondition, "pin_differs")
        );
        assert!(problem.message.contains("--repin"), "{problem}");
        assert!(!problem.message.contains("/work"), "{problem}");
        assert_eq!(edge.pin(pin()).await, Ok(false), "the pin stands");
        assert_eq!(
            edge.pin(PinRequest {
                repin: true,
                ..other
            })
            .await,
            Ok(true)
        );
        assert_eq!(
            edge.pin(PinRequest {
                repin: true,
                ..pin()
            })
            .await,
            Ok(true)
        );
    }
}

async fn ill_formed_pins_are_refused(mut edge: Edge) {
    for request in [
        PinRequest {
            workspace_id: String::new(),
            ..pin()
        },
        PinRequest {
            intention: "i".repeat(4001),
            ..pin()
        },
        PinRequest {
            project_path: "relative".to_owned(),
            ..pin()
        },
    ] {
        assert_eq!(
            edge.pin(request).await.expect_err("refused").kind,
            Code::InvalidArgument
        );
    }
}

async fn the_checks_come_in_the_contract_s_order(mut edge: Edge) {
    assert_eq!(
        edge.admit(call("s")).await,
        Err(ErrorCode::WrongWorkspace),
        "nothing is pinned"
    );
    edge.pin(pin()).await.expect("pinned");
    edge.restart().await;
    let wrong = AdmitRequest {
        workspace_id: "x".to_owned(),
        intention: "break it".to_owned(),
        ..known_only("s")
    };
    assert_eq!(
        edge.admit(wrong.clone()).await,
        Err(ErrorCode::WrongWorkspace)
    );
    let wrong = AdmitRequest {
        workspace_id: "w".to_owned(),
        ..wrong
    };
    assert_eq!(edge.admit(wrong).await, Err(ErrorCode::WrongIntention));
    assert_eq!(
        edge.admit(known_only("s")).await,
        Err(ErrorCode::UnknownSession)
    );
    assert_eq!(edge.sessions().await, []);
}

async fn a_session_is_admitted_once_and_stays_admitted(mut edge: Edge) {
    edge.pin(pin()).await.expect("pinned");
    assert_eq!(edge.admit(call("one")).await, Ok(true));
    assert_eq!(edge.admit(call("one")).await, Ok(false));
    edge.now.store(2000, Ordering::SeqCst);
    assert_eq!(edge.admit(call("two")).await, Ok(true));
    edge.restart().await;
    assert_eq!(edge.admit(known_only("one")).await, Ok(false));
    assert_eq!(edge.admit(known_only("two")).await, Ok(false));
    assert_eq!(
        edge.admit(known_only("three")).await,
        Err(ErrorCode::UnknownSession)
    );
    let session = |id: &str, admitted_at_ms| Session {
        session_id: id.to_owned(),
        admitted_at_ms,
    };
    assert_eq!(
        edge.sessions().await,
        [session("one", 1000), session("two", 2000)]
    );
}

async fn a_session_s_first_calls_at_once_admit_it_once(mut edge: Edge) {
    edge.pin(pin()).await.expect("pinned");
    let answers = futures_util::future::join_all((0..20).map(|_| {
        let mut client = edge.client.clone();
        async move { client.admit(call("one")).await }
    }))
    .await;
    let new = answers
        .into_iter()
        .filter(|answer| answer.as_ref().expect("admitted").get_ref().new_session)
        .count();
    assert_eq!(new, 1);
}

async fn a_repin_takes_effect_at_once_and_forgets_the_sessions_of_the_old_pin(mut edge: Edge) {
    edge.pin(pin()).await.expect("pinned");
    edge.admit(call("one")).await.expect("admitted");
    let other = PinRequest {
        intention: "break it".to_owned(),
        repin: true,
        ..pin()
    };
    edge.pin(other).await.expect("repinned");
    assert_eq!(
        edge.admit(call("one")).await,
        Err(ErrorCode::WrongIntention)
    );
    let renewed = AdmitRequest {
        intention: "break it".to_owned(),
        ..call("one")
    };
    assert_eq!(edge.admit(renewed).await, Ok(true));
}

async fn an_unreadable_pin_means_no(mut edge: Edge) {
    edge.pin(pin()).await.expect("pinned");
    edge.service.close().await;
    assert_eq!(edge.admit(call("one")).await, Err(ErrorCode::Unavailable));
}

/// Waits until the server says of itself and of its service that it serves, or does not.
async fn serves(health: &mut HealthClient<Transport>, serves: bool) {
    let expected = if serves {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    };
    let said = async {
        for service in ["", "postern.identity.v1.EdgeIdentity"] {
            loop {
                let service = service.to_owned();
                let asked = health.check(HealthCheckRequest { service }).await;
                if asked.expect("health").into_inner().status() == expected {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), said)
        .await
        .expect("in time");
}

#[tokio::test]
async fn a_database_that_is_away_is_waited_for_and_health_tells() {
    let cluster = Cluster::start();
    let database = cluster.database().parse().expect("a URL");
    cluster.stop();
    let (tasks, mut routes) = (Tasks::new(), Services::new());
    let service = Service::open(Config { database }, Clock::system(), &tasks).await;
    let service = service.expect("opened");
    let ready = service.readiness();
    routes.add_when_ready(service.into_server(), ready);
    let directory = tempfile::tempdir().expect("directory");
    let address = Address::Unix(directory.path().join("socket"));
    let listener = Listener::bind(&address).await.expect("bound");
    tasks.spawn("server", serve(listener, routes, tasks.stopping()));
    let transport = connect(&address).expect("transport");
    let mut health = HealthClient::new(transport.clone());
    let mut client = EdgeIdentityClient::new(transport);
    for _ in 0..2 {
        serves(&mut health, false).await;
        let status = client.admit(call("one")).await.expect_err("away");
        assert_eq!(Failure::from(status).code, ErrorCode::Unavailable);
        cluster.restart();
        serves(&mut health, true).await;
        client.pin(pin()).await.expect("pinned");
        client.admit(call("one")).await.expect("admitted");
        cluster.stop();
    }
    drop((health, client));
    assert!(tasks.shutdown(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn what_a_newer_process_adds_to_the_tables_disturbs_nobody() {
    let mut edge = Edge::over(Place::postgres()).await;
    edge.pin(pin()).await.expect("pinned");
    // Often enough that every connection has prepared what it uses.
    for number in 0..4 {
        let session = format!("before-{number}");
        assert_eq!(edge.admit(call(&session)).await, Ok(true));
    }
    let Place::Postgres(url) = &edge.place else {
        unreachable!("it is on PostgreSQL");
    };
    let tables = ["pins", "sessions"];
    let added = tables.map(|table| format!("ALTER TABLE {table} ADD COLUMN added TEXT"));
    let added = added.join("; ");
    let sql = format!("SET search_path = postern_edge_identity; {added}");
    Cluster::shared().execute(url, &sql);
    for number in 0..4 {
        let session = format!("after-{number}");
        assert_eq!(edge.admit(call(&session)).await, Ok(true));
        assert_eq!(edge.pin(pin()).await, Ok(false));
    }
    assert_eq!(edge.sessions().await.len(), 8);
}
