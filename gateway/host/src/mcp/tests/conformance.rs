//! The official conformance suite against the server with everything that the suite asks for: no check may fail. (Against
//! the product itself, which has less, it runs in the end-to-end tests.)

use std::{sync::Arc, time::Duration};

use axum::middleware;
use http::HeaderMap;
use postern_kit::{Failure, task::Tasks};
use postern_proto::identity::v1::{Role, Token};
use postern_tests::client;
use serde_json::{Value, json, value::RawValue};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::fixtures::{self, Fixtures};
use crate::{
    access::{AgentToken, guard},
    calls::{AgentCall, CallOutcome},
    mcp::{Backend, IdentityTool, Server, TokenEnds, routes},
    problem::Problem,
    tests::World,
    tokens::Credentials,
};

/// The whole suite, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(180);

/// A workspace with the suite's tools, open to everybody: the suite cannot show a token.
struct Open;

impl Backend for Open {
    async fn agent(&self, _headers: &HeaderMap) -> Result<Arc<AgentToken>, Problem> {
        let token = Token {
            id: "suite".to_owned(),
            ..Token::default()
        };
        Ok(Arc::new(AgentToken {
            credentials: Credentials::new(&token, "w", "suite", 0),
            role: Role::Editor,
        }))
    }

    fn token_ends(&self, _token: &Arc<AgentToken>) -> TokenEnds {
        Box::pin(std::future::pending())
    }

    async fn call(&self, call: AgentCall) -> Result<CallOutcome, Failure> {
        let result = fixtures::result(&call.tool).expect("a tool of the suite");
        let result = RawValue::from_string(result.to_string()).expect("JSON");
        Ok(CallOutcome {
            call_id: "fresh".to_owned(),
            result: result.into(),
        })
    }

    async fn identity_tool(
        &self,
        _token: &AgentToken,
        _tool: IdentityTool,
        _args: &RawValue,
    ) -> Result<Value, Failure> {
        Ok(json!({"active_workspace_id": null, "workspaces": []}))
    }
}

async fn conforms(version: &str) {
    let world = World::new().await;
    let (tasks, stop) = (Tasks::new(), CancellationToken::new());
    let server = Server::new(Arc::new(Open), Fixtures::new(), true, &tasks, stop.clone());
    let access = world.host.shared.access.clone();
    let router = routes(server).layer(middleware::from_fn_with_state(access, guard));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("address"));
    tasks.spawn("server", {
        let stop = stop.clone();
        async move {
            let serving = axum::serve(listener, router);
            serving.with_graceful_shutdown(stop.cancelled_owned()).await
        }
    });
    let mut suite = client::node(client::CONFORMANCE);
    suite.args([
        "server",
        "--suite",
        "all",
        "--spec-version",
        version,
        "--url",
        &url,
    ]);
    let ended = client::run(&mut suite, LIMIT).await;
    stop.cancel();
    assert!(
        ended.code == Some(0) && !ended.stdout.contains('✗'),
        "the suite ended with {:?}:\n{}\n{}",
        ended.code,
        ended.stdout,
        ended.stderr
    );
}

#[tokio::test]
async fn requests_that_stand_alone_conform_in_all() {
    conforms("2026-07-28").await;
}

#[tokio::test]
async fn sessions_conform_in_all() {
    conforms("2025-11-25").await;
}
