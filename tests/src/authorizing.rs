//! A proxy that shows an agent's token for clients that cannot show one themselves, as the conformance suite.
//!
//! Everything else passes through as it comes, `Host` and `Origin` included, so that the server behind it is what is tested.

use std::net::SocketAddr;

use http::{HeaderValue, Request, Uri, header, uri::Scheme};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::{net::TcpListener, task::JoinSet};

/// Connections through one proxy at once.
const MAX_CONNECTIONS: usize = 64;

/// The proxy, on a free port of the loopback. Dropped, every connection through it ends.
#[derive(Debug)]
pub struct Authorizing {
    url: String,
    _serving: JoinSet<()>,
}

impl Authorizing {
    /// In front of an MCP endpoint, with an agent's token.
    ///
    /// # Panics
    /// When the URL or the token cannot be used, or there is no free port.
    pub async fn to(mcp_url: &str, token: &str) -> Self {
        let uri: Uri = mcp_url.parse().expect("a URL");
        let target = uri.authority().expect("an address").as_str();
        let target: SocketAddr = target.parse().expect("an address");
        let bearer = format!("Bearer {token}").parse().expect("a token");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, target, bearer));
        Self {
            url: format!("http://{address}{}", uri.path()),
            _serving: serving,
        }
    }

    /// What the client is told as the endpoint.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

async fn serve(listener: TcpListener, target: SocketAddr, bearer: HeaderValue) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let onwards: Client<HttpConnector, Incoming> =
        Client::builder(TokioExecutor::new()).build(connector);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                let (onwards, bearer) = (onwards.clone(), bearer.clone());
                let service = service_fn(move |request| {
                    onwards.request(authorized(request, target, bearer.clone()))
                });
                // A client that goes away ends its own connection alone.
                connections.spawn(async move {
                    let _gone = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
        while connections.len() > MAX_CONNECTIONS {
            connections.join_next().await;
        }
    }
}

fn authorized(
    mut request: Request<Incoming>,
    target: SocketAddr,
    bearer: HeaderValue,
) -> Request<Incoming> {
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = target.to_string().parse().ok();
    *request.uri_mut() = Uri::from_parts(parts).expect("a path and an address");
    request.headers_mut().insert(header::AUTHORIZATION, bearer);
    request
}
