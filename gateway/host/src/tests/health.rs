//! What a probe is told.

use http::Request;
use postern_kit::{Clock, task::Tasks, transport};
use postern_proto::identity::v1::host_identity_server::HostIdentityServer;
use pretty_assertions::assert_eq;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::stub::Identity;
use crate::{Config, Host};

#[tokio::test]
async fn a_host_whose_accounts_are_away_is_not_well() {
    let directory = tempfile::tempdir().expect("directory");
    let (ready, told) = watch::channel(false);
    let mut config = Config::new(directory.path(), "http://127.0.0.1:1");
    config.identity_ready = told;
    let transport = transport::local(HostIdentityServer::new(Identity::default()));
    let host = Host::new(config, transport, Clock::system(), Tasks::new()).await;
    let host = host.expect("host");
    let asked = async || {
        let request = Request::get("/healthz").header("host", "127.0.0.1");
        let request = request.body(axum::body::Body::empty()).expect("request");
        let answer = host.router().oneshot(request).await.expect("answer");
        answer.status().as_u16()
    };
    assert_eq!(asked().await, 503);
    ready.send_replace(true);
    assert_eq!(asked().await, 200);
    ready.send_replace(false);
    assert_eq!(asked().await, 503);
}
