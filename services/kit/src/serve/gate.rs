//! What every request passes before its service sees it: who asks, and whether the process is ending.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tonic::{Code, Status, body::Body, codegen::Service};
use tower::Layer;

use crate::{
    Failure, Problem, callers,
    key::{Key, Lock},
    tls::Peer,
    trace::Traced,
};

/// What goes on answering while the process ends.
const HEALTH: &str = "/grpc.health.v1.Health/";
/// Time after which a stream that has nothing to say is ended, once the process ends.
const STREAM_QUIET: Duration = Duration::from_millis(500);

/// The calls of a server, and its wish to have no more of them. Clones stand for the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Drain {
    begun: CancellationToken,
    pub(super) calls: TaskTracker,
}

impl Drain {
    /// Takes no further call, and waits until those that run have ended, at most `limit`. Tells whether they have.
    pub(super) async fn run(&self, limit: Duration) -> bool {
        self.begun.cancel();
        self.calls.close();
        tokio::time::timeout(limit, self.calls.wait()).await.is_ok()
    }
}

/// Stands before the services of a listener.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    lock: Lock,
    /// Whether the connection says who asks.
    is_secured: bool,
    drain: Drain,
}

impl Gate {
    pub(super) fn new(key: Option<Key>, is_secured: bool, drain: Drain) -> Self {
        Self {
            lock: Lock(key),
            is_secured,
            drain,
        }
    }

    /// Who may not ask learns nothing else, not even that the process is ending.
    fn examine(&self, request: &Request<Body>) -> Result<(), Status> {
        if self.is_secured {
            demand_role(request)?;
        }
        self.lock.demand(request.headers())?;
        if self.drain.begun.is_cancelled() && !request.uri().path().starts_with(HEALTH) {
            return Err(ending());
        }
        Ok(())
    }
}

fn demand_role(request: &Request<Body>) -> Result<(), Status> {
    let stranger = Peer::default();
    let peer = request.extensions().get::<Peer>().unwrap_or(&stranger);
    let path = request.uri().path();
    if callers::may_call(peer, path) {
        return Ok(());
    }
    // A path that is none of ours is its sender's text, and no word of it is logged.
    let method = Traced::known(path).unwrap_or("unknown");
    tracing::warn!(%peer, method, "a caller was turned away: its certificate is not for this");
    Err(Problem::new(
        Code::PermissionDenied,
        "role_refused",
        format!("A certificate for {peer} may not call this. Each process needs its own folder of certificates."),
    )
    .into())
}

/// Nothing was begun, so whoever asks may ask again, here or elsewhere.
fn ending() -> Status {
    Failure::new(
        postern_types::ErrorCode::Unavailable,
        "A service that this call needs is ending. Send the call again with the same id.",
    )
    .into()
}

impl<S> Layer<S> for Gate {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            gate: Arc::new(self.clone()),
            inner,
        }
    }
}

/// Services behind a gate.
#[derive(Clone, Debug)]
pub(super) struct Guarded<S> {
    gate: Arc<Gate>,
    inner: S,
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Counted before the look at the drain, so that no call slips between the two.
        let counted = self.gate.drain.calls.token();
        if let Err(status) = self.gate.examine(&request) {
            return Box::pin(std::future::ready(Ok(status.into_http())));
        }
        let begun = self.gate.drain.begun.clone();
        let answering = self.inner.call(request);
        Box::pin(async move {
            let answer = answering.await?;
            Ok(answer.map(|body| Body::new(Answer::new(body, begun, counted))))
        })
    }
}

/// The body of an answer: counts as running until it is sent, and ends by itself when it is a quiet stream and the process ends.
struct Answer {
    inner: Body,
    ends: Ends,
    _counted: TaskTrackerToken,
}

/// What becomes of an answer that has nothing to say just now.
enum Ends {
    /// It has always had something so far, as answers of one message do.
    Unasked(CancellationToken),
    /// The process goes on.
    Waiting(Pin<Box<WaitForCancellationFutureOwned>>),
    /// The process ends; so does the answer when it stays quiet.
    Quiet(Pin<Box<Sleep>>),
    Ended,
}

impl Answer {
    fn new(inner: Body, begun: CancellationToken, counted: TaskTrackerToken) -> Self {
        Self {
            inner,
            ends: Ends::Unasked(begun),
            _counted: counted,
        }
    }

    /// Ready when a quiet answer is to end.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            self.ends = match &mut self.ends {
                Ends::Unasked(begun) => Ends::Waiting(Box::pin(begun.clone().cancelled_owned())),
                Ends::Waiting(begun) => {
                    ready!(begun.as_mut().poll(context));
                    Ends::Quiet(Box::pin(tokio::time::sleep(STREAM_QUIET)))
                }
                Ends::Quiet(sleep) => {
                    ready!(sleep.as_mut().poll(context));
                    Ends::Ended
                }
                Ends::Ended => return Poll::Ready(()),
            };
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if matches!(self.ends, Ends::Ended) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) {
            if let Ends::Quiet(sleep) = &mut self.ends {
                sleep.as_mut().reset(Instant::now() + STREAM_QUIET);
            }
            return Poll::Ready(frame);
        }
        ready!(self.poll_end(context));
        let mut trailers = HeaderMap::new();
        ending().add_header(&mut trailers)?;
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.ends, Ends::Ended) || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
