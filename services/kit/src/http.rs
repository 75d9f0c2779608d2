//! A service on an HTTP/1.1 listener, with bounds on what a stranger may hold: the number of connections, the time and size of
//! a request's head, and the pace of its body.
//!
//! Invariant: whoever opens connections and sends no request keeps no one else out. While there is no room, the connection that
//! has been silent longest makes room for the next one; one of which a request has come is never hung up on for another. It
//! may be silent again for the time of a head, so a service that answers strangers should close their connections.

use std::{error::Error, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::{
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};
use tower_http::timeout::TimeoutBody;

pub use tower_http::timeout::TimeoutError;

use crate::{
    task::Tasks,
    unheard::{Entry, Unheard},
};

/// Largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Header fields of a request at most.
const MAX_HEADERS: usize = 64;
/// Pause after the system refuses a connection, such as for want of file descriptors.
const REFUSED: Duration = Duration::from_millis(50);

/// What the connections of a listener may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections. One more is accepted while it waits for room, the others wait in the system's queue.
    pub connections: usize,
    /// Time for the head of a request, also of the next one on a connection, and for a body to go on.
    pub request_timeout: Duration,
    /// Time for running requests to end after the stop; then they are cut off.
    pub drain: Duration,
}

type Place = Result<OwnedSemaphorePermit, AcquireError>;

/// What the connections of one listener share.
struct Listening<S> {
    service: S,
    limits: Limits,
    places: Arc<Semaphore>,
    unheard: Arc<Unheard>,
    stop: CancellationToken,
}

/// Serves until `stop`, then lets what is running end, for as long as the drain allows. Every connection has ended when this
/// returns, except those that were upgraded: they belong to whoever upgraded them, and count no more.
pub async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    limits: Limits,
    tasks: Tasks,
    stop: CancellationToken,
) where
    S: Service<Request<TimeoutBody<Incoming>>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let listening = Listening {
        service,
        limits,
        places: Arc::new(Semaphore::new(limits.connections)),
        unheard: Arc::default(),
        stop,
    };
    loop {
        let next = async {
            let (stream, _) = listener.accept().await.ok()?;
            Some((stream, listening.room().await))
        };
        let next = tokio::select! {
            biased;
            () = listening.stop.cancelled() => break,
            next = next => next,
        };
        match next {
            Some((stream, place)) => {
                tasks.spawn("connection", listening.connection(stream, place));
            }
            // Most often descriptors are short, and a silent connection holds one.
            None => listening.unheard.make_room(REFUSED).await,
        }
    }
    drop(listener);
    // Every place is free again once every connection has ended, and each ends within the drain.
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    let _all = listening.places.acquire_many(all).await;
}

impl<S> Listening<S> {
    /// A place for a connection, made by hanging up on a silent one if there is no other.
    async fn room(&self) -> Place {
        let mut place = std::pin::pin!(Arc::clone(&self.places).acquire_owned());
        tokio::select! {
            biased;
            place = &mut place => place,
            () = self.unheard.hang_up_on_oldest() => place.await,
        }
    }

    /// What one connection does until it ends. It holds its place for that long.
    fn connection<B>(
        &self,
        stream: TcpStream,
        place: Place,
    ) -> impl Future<Output = ()> + Send + use<S, B>
    where
        S: Service<Request<TimeoutBody<Incoming>>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let entry = Arc::new(self.unheard.enter());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.request_timeout)
            .max_headers(MAX_HEADERS)
            .max_header_size(MAX_HEAD_BYTES)
            .serve_connection(prompt(stream), {
                let (service, entry) = (self.service.clone(), Arc::clone(&entry));
                let pace = self.limits.request_timeout;
                service_fn(move |request: Request<Incoming>| {
                    answer(service.clone(), Arc::clone(&entry), pace, request)
                })
            })
            .with_upgrades();
        let (stop, drain) = (self.stop.clone(), self.limits.drain);
        async move {
            let _place = place;
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = &mut connection => ended,
                () = entry.hung_up() => return,
                () = stop.cancelled() => {
                    if entry.leave() {
                        return;
                    }
                    connection.as_mut().graceful_shutdown();
                    let Ok(ended) = tokio::time::timeout(drain, connection).await else {
                        tracing::warn!("a request was still running when the time to drain was over");
                        return;
                    };
                    ended
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection broke");
            }
        }
    }
}

/// Hands a request to the service, unless its connection is being hung up on at this very moment: then nothing is begun.
async fn answer<S>(
    service: S,
    entry: Arc<Entry>,
    pace: Duration,
    request: Request<Incoming>,
) -> Result<S::Response, S::Error>
where
    S: Service<Request<TimeoutBody<Incoming>>>,
{
    entry.leave();
    if entry.is_hung_up() {
        return std::future::pending().await;
    }
    drop(entry);
    service
        .oneshot(request.map(|body| TimeoutBody::new(pace, body)))
        .await
}

/// Small answers do not wait for one another.
fn prompt(stream: TcpStream) -> TokioIo<TcpStream> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its delay");
    }
    TokioIo::new(stream)
}

#[cfg(test)]
mod tests;
