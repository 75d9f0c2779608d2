//! The host on a listener, with bounds on what a connection may hold: its number, the time and size of a request's head,
//! and the pace of its body.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use postern_kit::task::Tasks;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_http::timeout::RequestBodyTimeoutLayer;

use crate::config::Limits;

/// Largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Header fields of a request at most.
const MAX_HEADERS: usize = 64;
/// Pause after the system refuses a connection, such as for want of file descriptors.
const REFUSED: Duration = Duration::from_millis(50);

/// Serves until `stop`, then lets what is running end, for as long as the drain allows.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    tasks: Tasks,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let service = TowerToHyperService::new(
        ServiceBuilder::new()
            .layer(RequestBodyTimeoutLayer::new(limits.request_timeout))
            .service(router),
    );
    loop {
        // A place first: connections over the bound wait in the system's queue, not in this process.
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            next = next => next,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(REFUSED).await;
            continue;
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.request_timeout)
            .max_headers(MAX_HEADERS)
            .max_header_size(MAX_HEAD_BYTES)
            .serve_connection(prompt(stream), service.clone())
            .with_upgrades();
        let stop = stop.clone();
        tasks.spawn("connection", async move {
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = &mut connection => ended,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection broke");
            }
            drop(place);
        });
    }
    drop(listener);
    // Every place is free again once every connection has ended.
    let ended = places.acquire_many(u32::try_from(limits.connections).unwrap_or(u32::MAX));
    if tokio::time::timeout(limits.drain, ended).await.is_err() {
        tracing::warn!("requests were still running when the time to drain was over");
    }
}

/// Small answers do not wait for one another.
fn prompt(stream: TcpStream) -> TokioIo<TcpStream> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its delay");
    }
    TokioIo::new(stream)
}
