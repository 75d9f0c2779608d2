//! The owner's own tools: MCP servers that he names, offered to the agent under the same receipts and rules as everything else.
//!
//! Invariants:
//! - A server that hangs, floods, lies or dies delays and breaks nothing but calls of its own tools.
//! - A call is made once. Whatever is not known of it afterwards is told as uncertain.
//! - A program runs in the exec worker's sandbox, never as a child of this process, and gets no token of ours.
//! - What a server says is data: bounded, escaped where a person reads it, passed on byte for byte where an agent does.

mod away;
mod calling;
mod config;
mod ear;
mod http;
mod listing;
mod resolve;
mod server;
mod stdio;
mod tap;
mod text;

use std::{future, sync::Arc, time::Duration};

use futures_util::future::select_all;
use postern_kit::{Failure, task::Tasks};
use postern_types::Sha256;
use rmcp::model::JsonObject;
use serde::Serialize;
use tokio::sync::watch;

use crate::{
    clients::Clients,
    control::Control,
    reply::{Answer, Reply},
};

pub(crate) use calling::unknown_effect;
pub use config::{InvalidTools, MAX_TOOL_SERVERS, ToolServer};
pub(crate) use ear::Running;

use calling::Target;
use listing::{LISTING_BYTES, Offered};
use server::{Ending, Phase, Server, State};

/// How long a listing waits for servers that are being started for the first time: an agent looks once.
const FIRST_LISTING_LIMIT: Duration = Duration::from_secs(4);

/// The tool servers of one edge. Clones stand for the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerTools(Arc<[Arc<Server>]>);

/// One server, as the owner is told.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolServerStatus {
    /// Its name.
    pub(crate) server: String,
    /// `starting`, `ready`, `waiting` (it is away, and tried again) or `disabled`.
    pub(crate) state: &'static str,
    /// How many tools it offers.
    pub(crate) tools: usize,
    /// Why it is away, or which of its tools are left out.
    pub(crate) problem: Option<String>,
    /// Calls under way.
    pub(crate) calls: Vec<Running>,
}

/// Where tool servers stand, as seen last.
#[derive(Debug, Default)]
pub(crate) struct Following(Vec<watch::Receiver<State>>);

impl Following {
    /// Waits until one of them changes; for ever where there is none.
    pub(crate) async fn changed(&mut self) {
        if self.0.is_empty() {
            return future::pending().await;
        }
        let changes = self.0.iter_mut().map(|state| Box::pin(state.changed()));
        // The senders live as long as the edge.
        let _one = select_all(changes).await;
    }
}

#[derive(Serialize)]
struct Listing<'a> {
    tools: Vec<&'a Offered>,
}

impl OwnerTools {
    /// The servers of a configuration, connected in the background until `tasks` stop.
    pub(crate) fn start(
        servers: &[ToolServer],
        clients: &Clients,
        tls: Option<&Arc<rustls::ClientConfig>>,
        control: &Control,
        tasks: &Tasks,
    ) -> Self {
        let ending = Ending {
            leaving: control.leaving().clone(),
            stopping: tasks.stopping(),
        };
        let servers: Arc<[Arc<Server>]> = servers
            .iter()
            .map(|config| Arc::new(Server::new(config.clone())))
            .collect();
        for server in servers.iter().filter(|server| server.config.enabled) {
            let keeping = Arc::clone(server).keep(clients.clone(), tls.cloned(), ending.clone());
            tasks.spawn("tool server", keeping);
        }
        Self(servers)
    }

    /// The answer of `workspace_tools`.
    pub(crate) async fn list(&self) -> Answer {
        let started = async {
            for server in self.0.iter() {
                let mut state = server.state.subscribe();
                // The sender lives as long as the server.
                let _ended = state.wait_for(|state| state.phase != Phase::Starting).await;
            }
        };
        let _those_that_are = tokio::time::timeout(FIRST_LISTING_LIMIT, started).await;
        let states: Vec<_> = self
            .0
            .iter()
            .map(|server| server.state.borrow().clone())
            .collect();
        let mut listing = Listing { tools: Vec::new() };
        let mut room = LISTING_BYTES;
        let mut left_out = 0_usize;
        for tool in states.iter().flat_map(|state| state.tools.iter()) {
            match room.checked_sub(tool.bytes) {
                Some(rest) => {
                    room = rest;
                    listing.tools.push(tool);
                }
                None => left_out += 1,
            }
        }
        if left_out > 0 {
            tracing::warn!(
                left_out,
                "the owner's tools are described in more than one listing can hold; name those that matter with `only`"
            );
        }
        Reply::success(&listing)
    }

    /// Whether a tool of this name can be called now.
    pub(crate) fn check(&self, name: &str) -> Result<(), Failure> {
        self.target(name).map(drop)
    }

    /// The digest of how a tool is described now; `None` when none of this name is offered.
    pub(crate) fn described(&self, name: &str) -> Option<Sha256> {
        self.0.iter().find_map(|server| {
            let state = server.state.borrow();
            let offered = state.tools.iter().find(|tool| tool.name == name)?;
            Some(offered.described)
        })
    }

    /// Calls a tool, once.
    pub(crate) async fn call(
        &self,
        name: &str,
        arguments: JsonObject,
        control: &Control,
    ) -> Answer {
        self.target(name)?.call(arguments, control).await
    }

    /// Where each server stands.
    pub(crate) fn status(&self) -> Vec<ToolServerStatus> {
        let servers = self.0.iter().map(|server| {
            let state = server.state.borrow();
            let connection = state.connection.as_ref();
            ToolServerStatus {
                server: server.config.name.clone(),
                state: state.phase.as_str(),
                tools: state.tools.len(),
                problem: state.problem.clone(),
                calls: connection.map_or_else(Vec::new, |connection| connection.ear.running()),
            }
        });
        servers.collect()
    }

    /// Follows where the servers stand.
    pub(crate) fn follow(&self) -> Following {
        let servers = self.0.iter().map(|server| server.state.subscribe());
        Following(servers.collect())
    }

    fn target(&self, name: &str) -> Result<Target<'_>, Failure> {
        Target::find(self.0.iter().map(|server| &**server), name)
    }
}
