//! Who gets through, and how a server ends.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use postern_proto::ledger::v1::{AbandonRequest, ledger_client::LedgerClient};
use pretty_assertions::assert_eq;
use tokio::sync::{Notify, watch};
use tonic::{Code, Status, body::Body, codegen::Service, server::NamedService};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::*;
use crate::{
    Effect, Failure, health,
    task::Tasks,
    transport::{Transport, connect, with_key},
};

/// For what must come, on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// What a caller is told by health and by a service that is not there: only who gets past the lock learns that.
async fn told(transport: Transport) -> (Code, Code) {
    let mut health = HealthClient::new(transport.clone());
    let mut service = LedgerClient::new(transport);
    let health = health.check(HealthCheckRequest::default()).await;
    let service = service.abandon(AbandonRequest::default()).await;
    (
        health.map_or_else(|status| status.code(), |_| Code::Ok),
        service.map_or_else(|status| status.code(), |_| Code::Ok),
    )
}

#[tokio::test]
async fn nothing_answers_without_the_key() {
    let directory = tempfile::tempdir().expect("directory");
    let address = Address::Unix(directory.path().join("socket"));
    let key = Key::generate().expect("random bytes");
    let other = Key::generate().expect("random bytes");
    let listener = Listener::bind(&address).await.expect("bound");
    let (tasks, services) = (Tasks::new(), Services::new());
    let serving = serve(listener.demanding(key.clone()), services, tasks.stopping());
    tasks.spawn("server", serving);
    let open = connect(&address).expect("transport");
    let refused = (Code::Unauthenticated, Code::Unauthenticated);
    assert_eq!(told(open.clone()).await, refused);
    assert_eq!(told(with_key(open.clone(), &other)).await, refused);
    let known = (Code::Ok, Code::Unimplemented);
    assert_eq!(told(with_key(open, &key)).await, known);
}

/// A ledger that answers when it is told to, and tells when it was asked.
#[derive(Clone, Default)]
struct Slow {
    asked: Arc<Notify>,
    answer: Arc<Notify>,
}

impl NamedService for Slow {
    const NAME: &'static str = "postern.ledger.v1.Ledger";
}

impl Service<Request<Body>> for Slow {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let slow = self.clone();
        Box::pin(async move {
            slow.asked.notify_one();
            slow.answer.notified().await;
            Ok(Status::already_exists("the answer").into_http())
        })
    }
}

#[tokio::test]
async fn a_server_that_ends_says_so_first_and_lets_calls_end() {
    let directory = tempfile::tempdir().expect("directory");
    let address = Address::Unix(directory.path().join("socket"));
    let (slow, mut services) = (Slow::default(), Services::new());
    services.add(slow.clone());
    let listener = Listener::bind(&address).await.expect("bound");
    let (tasks, stop) = (Tasks::new(), CancellationToken::new());
    let serving = tasks.spawn("server", serve(listener, services, stop.clone()));
    let reach = || connect(&address).expect("transport");
    let mut watched = HealthClient::new(reach());
    let watched = watched.watch(HealthCheckRequest::default()).await;
    let mut watched = watched.expect("watched").into_inner();
    let mut status = async || {
        watched
            .message()
            .await
            .map(|told| told.map(|told| told.status()))
    };
    assert_eq!(status().await.expect("told"), Some(ServingStatus::Serving));
    let mut client = LedgerClient::new(reach());
    let running = tasks.spawn("call", async move {
        client.abandon(AbandonRequest::default()).await
    });
    slow.asked.notified().await;
    stop.cancel();
    assert_eq!(
        status().await.expect("told"),
        Some(ServingStatus::NotServing)
    );
    // Whoever connects now is told as well, and nothing is begun for him.
    assert!(!health::is_serving(reach(), "").await.expect("answered"));
    let mut late = LedgerClient::new(reach());
    let refused = late.abandon(AbandonRequest::default()).await;
    let refused = Failure::from(refused.expect_err("refused"));
    assert_eq!(
        (refused.code, refused.effect),
        (postern_types::ErrorCode::Unavailable, Effect::None)
    );
    // The call that ran is answered, the stream that has nothing to say is ended, and then the server is.
    slow.answer.notify_one();
    let answered = running.await.expect("joined").expect_err("the answer");
    assert_eq!(answered.code(), Code::AlreadyExists);
    let ended = tokio::time::timeout(SOON, serving).await.expect("ends");
    ended.expect("joined").expect("served");
    assert_eq!(status().await.expect_err("ended").code(), Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn calls_that_do_not_end_are_left_behind() {
    let drain = Drain::default();
    let call = drain.calls.token();
    assert!(!drain.run(DRAIN_LIMIT).await);
    drop(call);
    assert!(drain.run(DRAIN_LIMIT).await);
}

#[tokio::test]
async fn a_server_that_ends_waits_as_long_as_its_calls_may_take() {
    for (longest, is_answered) in [(DRAIN_LIMIT, true), (Duration::ZERO, false)] {
        let directory = tempfile::tempdir().expect("directory");
        let address = Address::Unix(directory.path().join("socket"));
        let (slow, mut services) = (Slow::default(), Services::new());
        services.add(slow.clone());
        services.calls_last(longest);
        let listener = Listener::bind(&address).await.expect("bound");
        let (tasks, stop) = (Tasks::new(), CancellationToken::new());
        let serving = tasks.spawn("server", serve(listener, services, stop.clone()));
        let mut client = LedgerClient::new(connect(&address).expect("transport"));
        let running = tasks.spawn("call", async move {
            client.abandon(AbandonRequest::default()).await
        });
        slow.asked.notified().await;
        stop.cancel();
        if is_answered {
            // Longer than a server waits for clients that have no call, and shorter than calls may take.
            tokio::time::sleep(2 * CLOSE_LIMIT).await;
            slow.answer.notify_one();
        }
        let ended = tokio::time::timeout(SOON, serving).await.expect("ends");
        ended.expect("joined").expect("served");
        if is_answered {
            let status = running.await.expect("joined").expect_err("the answer");
            assert_eq!(status.code(), Code::AlreadyExists);
        } else {
            assert!(!running.is_finished());
        }
    }
}

#[tokio::test]
async fn a_server_is_ready_when_all_of_its_services_are() {
    let directory = tempfile::tempdir().expect("directory");
    let address = Address::Unix(directory.path().join("socket"));
    let (ready, told) = watch::channel(false);
    let mut services = Services::new();
    services.add_when_ready(Slow::default(), told);
    let listener = Listener::bind(&address).await.expect("bound");
    let tasks = Tasks::new();
    tasks.spawn("server", serve(listener, services, tasks.stopping()));
    let probe = connect(&address).expect("transport");
    for is_ready in [false, true, false] {
        ready.send_replace(is_ready);
        for name in ["", Slow::NAME] {
            let seen = async {
                let probe = || health::is_serving(probe.clone(), name);
                while probe().await.expect("answered") != is_ready {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(SOON, seen).await.expect("told");
        }
    }
    let unknown = health::is_serving(probe, "nothing").await;
    assert_eq!(unknown.expect_err("unknown").code(), Code::NotFound);
}

/// Whether a listener can be bound there; who connects may write to it, and nobody but its owner may.
async fn binds(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;

    let bound = Listener::bind(&Address::Unix(path.to_owned())).await;
    if bound.is_ok() {
        let mode = std::fs::metadata(path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    bound.is_ok()
}

#[tokio::test]
async fn a_listener_takes_the_place_of_a_dead_socket_and_of_nothing_else() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "precious").expect("written");
    std::fs::create_dir(at("folder")).expect("made");
    assert!(binds(&at("socket")).await);
    // Whose socket it is has gone without removing it.
    for (name, leads_to) in [
        ("to-file", "file"),
        ("to-socket", "socket"),
        ("to-nothing", "x"),
    ] {
        std::os::unix::fs::symlink(leads_to, at(name)).expect("linked");
    }
    for left_alone in ["file", "folder", "to-file", "to-socket", "to-nothing"] {
        assert!(!binds(&at(left_alone)).await, "{left_alone}");
        assert!(
            std::fs::symlink_metadata(at(left_alone)).is_ok(),
            "{left_alone}"
        );
    }
    assert_eq!(std::fs::read(at("file")).expect("there"), b"precious");
    assert!(binds(&at("socket")).await);
    let living = Listener::bind(&Address::Unix(at("socket"))).await;
    let living = living.expect("its owner has gone");
    assert!(!binds(&at("socket")).await, "its owner lives");
    drop(living);
    assert!(binds(&at("new/deep/socket")).await);
    for made in ["new", "new/deep"] {
        use std::os::unix::fs::MetadataExt as _;
        let mode = std::fs::metadata(at(made)).expect("made").mode();
        assert_eq!(mode & 0o777, 0o700, "{made}");
    }
}

/// Tells how many calls it works on, and answers none.
#[derive(Clone)]
struct Counting(watch::Sender<usize>);

impl NamedService for Counting {
    const NAME: &'static str = "postern.ledger.v1.Ledger";
}

impl Service<Request<Body>> for Counting {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.0.send_modify(|count| *count += 1);
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn one_connection_has_no_more_calls_at_once_than_its_bound() {
    let directory = tempfile::tempdir().expect("directory");
    let address = Address::Unix(directory.path().join("socket"));
    let (count, mut counted) = watch::channel(0);
    let mut services = Services::new();
    services.add(Counting(count));
    let listener = Listener::bind(&address).await.expect("bound");
    let tasks = Tasks::new();
    tasks.spawn("server", serve(listener, services, tasks.stopping()));
    let transport = connect(&address).expect("transport");
    // The first call makes the connection, whose settings its maker then has.
    assert!(
        health::is_serving(transport.clone(), "")
            .await
            .expect("answered")
    );
    let bound = usize::try_from(MAX_STREAMS).expect("few");
    for _ in 0..bound + 50 {
        let mut client = LedgerClient::new(transport.clone());
        tasks.spawn("call", async move {
            let _never = client.abandon(AbandonRequest::default()).await;
        });
    }
    let reached = counted.wait_for(|count| *count >= bound);
    tokio::time::timeout(SOON, reached)
        .await
        .expect("in time")
        .expect("counted");
    // Another connection is asked meanwhile, so that what was sent on this one has come, too.
    let other = connect(&address).expect("transport");
    assert!(health::is_serving(other, "").await.expect("answered"));
    assert_eq!(*counted.borrow(), bound);
}

#[tokio::test]
async fn others_than_this_machine_are_not_served_in_plaintext() {
    for (address, good) in [
        ("127.0.0.1:0", true),
        ("[::]:0", false),
        ("0.0.0.0:0", false),
    ] {
        let listener = Listener::bind(&address.parse().expect(address)).await;
        let stop = CancellationToken::new();
        stop.cancel();
        let listener = listener.expect("bound");
        assert_eq!(listener.address().is_ok(), good, "{address}");
        let served = serve(listener, Services::new(), stop).await;
        assert_eq!(served.is_ok(), good, "{address}: {served:?}");
    }
}
