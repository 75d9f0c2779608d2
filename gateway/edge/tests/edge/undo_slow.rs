//! Undo on a filesystem service of its own that takes longer than other calls may.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http::{Request, Response};
use postern_kit::{
    serve::{Listener, Services, serve},
    transport::{Address, DEADLINE, Transport, connect},
};
use pretty_assertions::assert_eq;
use tonic::{Status, body::Body, codegen::Service, server::NamedService};
use tower::ServiceExt as _;

use crate::{real::Real, undo::Door};

/// Longer than a call has that works on one file.
const LONG: Duration = DEADLINE.saturating_add(Duration::from_secs(2));

/// A filesystem that takes long for every first restoration of a kind.
#[derive(Clone)]
struct Slow {
    inner: Transport,
    asked: Arc<AtomicU32>,
}

impl NamedService for Slow {
    const NAME: &'static str = "postern.filesystem.v1.Filesystem";
}

impl Service<Request<Body>> for Slow {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let slow = self.clone();
        Box::pin(async move {
            if request.uri().path().ends_with("/Restore") {
                slow.asked.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(LONG).await;
            }
            let answer = slow.inner.oneshot(request).await;
            Ok(answer.unwrap_or_else(|problem| Status::internal(problem.to_string()).into_http()))
        })
    }
}

#[tokio::test]
async fn an_undo_that_takes_longer_than_other_calls_is_done_by_one_attempt() {
    let mut real = Real::new().await;
    let address = Address::Unix(real.directory.path().join("filesystem.sock"));
    let asked = Arc::new(AtomicU32::new(0));
    let mut served = Services::new();
    served.add(Slow {
        inner: real.services.filesystem.clone(),
        asked: Arc::clone(&asked),
    });
    let listener = Listener::bind(&address).await.expect("bound");
    let serving = serve(listener, served, real.tasks.stopping());
    real.tasks.spawn("filesystem", serving);
    real.services.filesystem = connect(&address).expect("transport");
    let mut door = Door::over(real).await;
    let receipt = door.write("f", "new", None).await;
    let begun = Instant::now();
    door.undone(&receipt.id).await;
    assert!(begun.elapsed() > LONG);
    assert_eq!(door.real.content("f"), None);
    // A look at what is in the way, and the undo: each once.
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}
