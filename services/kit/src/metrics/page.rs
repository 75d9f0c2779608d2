//! The page: every figure in Prometheus' text format, and a listener for it.
//!
//! It listens in plaintext wherever its owner says: figures hold no content and no names but the program's own, and who scrapes
//! them is rarely of the private network of the services. Nothing else answers there.

use std::{convert::Infallible, io, sync::PoisonError, time::Duration};

use http::{Method, Request, Response, StatusCode, header};
use prometheus::TextEncoder;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{FOLLOWED, REGISTRY, process, processes};
use crate::{http as server, task::Tasks};

/// Media type of the page.
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;
/// Path of the page.
const PATH: &str = "/metrics";
/// What scrapers may hold: some of them, each with one request at a time.
const LIMITS: server::Limits = server::Limits {
    connections: 16,
    request_timeout: Duration::from_secs(10),
    drain: Duration::from_secs(1),
};

/// Every figure of this process, and of those whose figures it shows with its own.
pub async fn render() -> String {
    // What is read lies in `/proc`, and gauges that are followed may take a lock.
    let written = tokio::task::spawn_blocking(|| {
        for gauge in FOLLOWED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            gauge.ask();
        }
        let mut text = process::text();
        if let Err(error) = TextEncoder::new().encode_utf8(&REGISTRY.gather(), &mut text) {
            tracing::error!(%error, "the metrics cannot be written");
        }
        text
    });
    processes::merged_with_others(written.await.unwrap_or_default()).await
}

/// A bound listener for the page.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
    url: String,
}

impl Page {
    /// Binds `host:port`.
    ///
    /// # Errors
    /// When it cannot be bound.
    pub async fn bind(address: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}{PATH}", listener.local_addr()?);
        Ok(Self { listener, url })
    }

    /// Where the page is, with the real port.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Serves the page until `stop`.
pub async fn serve(page: Page, tasks: Tasks, stop: CancellationToken) {
    let service =
        tower::service_fn(async |request: Request<_>| Ok::<_, Infallible>(answer(&request).await));
    server::serve(page.listener, service, LIMITS, tasks, stop).await;
}

async fn answer<B>(request: &Request<B>) -> Response<String> {
    let mut response = Response::new(String::new());
    if request.uri().path() != PATH {
        *response.status_mut() = StatusCode::NOT_FOUND;
    } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        let allowed = header::HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(header::ALLOW, allowed);
    } else {
        let kind = header::HeaderValue::from_static(CONTENT_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        *response.body_mut() = render().await;
    }
    response
}
