//! The host over loopback, with an identity service in memory and edges that do as they are told.

mod again;
mod agents;
mod api;
mod calling;
mod channel;
mod connections;
mod described;
mod edge;
mod frames;
mod health;
mod hostile;
mod http_client;
mod identity;
mod restart;
mod stub;
mod tokens;

use std::{sync::Arc, time::Duration};

use postern_kit::{
    Clock, Failure,
    task::Tasks,
    transport::{self, Transport},
};
use postern_proto::identity::v1::{Role, TokenKind, host_identity_server::HostIdentityServer};
use serde_json::{Value, value::RawValue};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use self::{edge::Edge, stub::Identity};
use crate::{
    Config, Host, Limits,
    access::AgentToken,
    calls::{AgentCall, CallOutcome},
    tokens::Credentials,
};

/// Longest that a test waits for something that must come.
const SOON: Duration = Duration::from_secs(10);

/// A running host.
pub(crate) struct World {
    pub(crate) host: Host,
    identity: Identity,
    address: String,
    tasks: Tasks,
    stop: CancellationToken,
    directory: Arc<tempfile::TempDir>,
    serving: JoinHandle<()>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Limits)) -> Self {
        let directory = Arc::new(tempfile::tempdir().expect("directory"));
        let mut limits = Limits::default();
        change(&mut limits);
        Self::start(directory, Identity::default(), limits).await
    }

    async fn start(directory: Arc<tempfile::TempDir>, identity: Identity, limits: Limits) -> Self {
        let transport = transport::local(HostIdentityServer::new(identity.clone()));
        Self::over(directory, identity, transport, limits).await
    }

    async fn over(
        directory: Arc<tempfile::TempDir>,
        identity: Identity,
        transport: Transport,
        limits: Limits,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listener");
        let address = listener.local_addr().expect("address").to_string();
        let mut config = Config::new(directory.path(), format!("http://{address}/"));
        config.limits = limits;
        let (tasks, stop) = (Tasks::new(), CancellationToken::new());
        let host = Host::new(config, transport, Clock::system(), tasks.clone())
            .await
            .expect("host");
        let serving = tasks.spawn("host", {
            let (host, stop) = (host.clone(), stop.clone());
            async move { host.serve(listener, stop).await }
        });
        Self {
            host,
            identity,
            address,
            tasks,
            stop,
            directory,
            serving,
        }
    }

    /// Ends the host and starts another on the same directory.
    async fn restart(self) -> Self {
        let limits = self.host.shared.config.limits;
        let (directory, identity) = (Arc::clone(&self.directory), self.identity.clone());
        assert!(self.tasks.shutdown(SOON).await, "every task ends");
        drop(self.host);
        Self::start(directory, identity, limits).await
    }

    fn agent(&self, workspace_id: &str, role: Role) -> Agent {
        self.agent_named(&format!("agent-of-{workspace_id}"), workspace_id, role)
    }

    /// An agent with a token of that id.
    fn agent_named(&self, id: &str, workspace_id: &str, role: Role) -> Agent {
        let secret = self.identity.token(id, TokenKind::Agent, |token| {
            token.workspace_ids = vec![workspace_id.to_owned()];
            token.set_role(role);
        });
        let token = self.identity.shown(&secret).expect("the token");
        Agent {
            host: self.host.clone(),
            token: Arc::new(AgentToken {
                credentials: Credentials::new(&token, workspace_id, &secret, 0),
                role,
            }),
            conversation: String::new(),
        }
    }

    /// A workspace with a launch, its open channel and an agent.
    async fn workspace(&self, id: &str) -> (Edge, Agent) {
        self.identity.launch(id, "the intention");
        let secret = self
            .identity
            .channel_token(&format!("channel-of-{id}"), &[id]);
        let edge = Edge::open(self, id, &secret).await.expect("channel");
        (edge, self.agent(id, Role::Owner))
    }
}

/// An agent, past the MCP server.
#[derive(Clone)]
struct Agent {
    host: Host,
    token: Arc<AgentToken>,
    conversation: String,
}

impl Agent {
    async fn call(
        &self,
        tool: &str,
        args: &str,
        call_id: Option<&str>,
    ) -> Result<CallOutcome, Failure> {
        let call = AgentCall {
            token: Arc::clone(&self.token),
            conversation: self.conversation.clone(),
            call_id: call_id.map(str::to_owned),
            tool: tool.to_owned(),
            args: RawValue::from_string(args.to_owned()).expect("JSON"),
            request: crate::calls::Came {
                since: std::time::SystemTime::now(),
                agent: None,
            },
        };
        self.host.shared.calls.call(call).await
    }

    /// A call on its way.
    fn start(
        &self,
        tool: &str,
        args: &str,
        call_id: Option<&str>,
    ) -> JoinHandle<Result<CallOutcome, Failure>> {
        let (agent, tool, args) = (self.clone(), tool.to_owned(), args.to_owned());
        let call_id = call_id.map(str::to_owned);
        let tasks = self.host.shared.tasks.clone();
        tasks.spawn("agent", async move {
            agent.call(&tool, &args, call_id.as_deref()).await
        })
    }
}

/// What a call came to, when it comes soon.
async fn outcome(call: JoinHandle<Result<CallOutcome, Failure>>) -> Result<CallOutcome, Failure> {
    soon(call).await.expect("the call ends")
}

/// The result of a call that succeeds.
async fn result(call: JoinHandle<Result<CallOutcome, Failure>>) -> Value {
    let outcome = outcome(call).await.expect("an answer");
    serde_json::from_str(outcome.result.get()).expect("JSON")
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future)
        .await
        .expect("it comes soon")
}
