//! An edge between a scripted host and scripted services.

use std::{sync::Arc, time::Duration};

use postern_edge::{Config, Control, Edge, End, Error, Event, Services};
use postern_kit::{Clock, task::Tasks, transport::local};
use postern_proto::{
    exec::v1::exec_server::ExecServer, filesystem::v1::filesystem_server::FilesystemServer,
    identity::v1::edge_identity_server::EdgeIdentityServer,
    ledger::v1::ledger_server::LedgerServer, policy::v1::policy_server::PolicyServer,
};
use postern_types::Mode;
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    host::{Channel, Host, PATIENCE, call},
    ledger::FakeLedger,
    services::World,
};

pub(crate) const TOKEN: &str = "postern_channel_secret";

/// The parts that outlive an edge: what is on disk, and the host.
pub(crate) struct Rig {
    pub(crate) world: Arc<World>,
    pub(crate) host: Host,
}

/// One run of an edge.
pub(crate) struct Run {
    pub(crate) control: Control,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) stop: CancellationToken,
    end: JoinHandle<End>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self {
            world: World::new(),
            host: Host::listen().await,
        }
    }

    pub(crate) fn config(&self, mode: Mode) -> Config {
        let mut config = Config::new(
            self.host.url.clone(),
            "work".parse().expect("id"),
            "Mend the roof".parse().expect("intention"),
            TOKEN.to_owned(),
            "/project",
            1,
            2,
        );
        config.mode = mode;
        config.patience = Duration::from_millis(250);
        config
    }

    pub(crate) fn services(&self) -> Services {
        let world = &self.world;
        Services {
            identity: local(EdgeIdentityServer::from_arc(Arc::clone(world))),
            policy: local(PolicyServer::from_arc(Arc::clone(world))),
            filesystem: local(FilesystemServer::from_arc(Arc::clone(world))),
            exec: local(ExecServer::from_arc(Arc::clone(world))),
            ledger: local(LedgerServer::new(FakeLedger(Arc::clone(world)))),
        }
    }

    pub(crate) async fn try_start(&self, config: Config) -> Result<Run, Error> {
        let tasks = Tasks::new();
        let edge = Edge::start(config, self.services(), Clock::system(), &tasks).await?;
        let control = edge.handle();
        let (sender, events) = mpsc::channel(16);
        let stop = CancellationToken::new();
        let end = tasks.spawn("edge", edge.run(sender, stop.clone()));
        Ok(Run {
            control,
            events,
            stop,
            end,
        })
    }

    pub(crate) async fn start_with(&self, config: Config) -> Run {
        self.try_start(config).await.expect("start")
    }

    /// Starts an edge and takes its channel.
    pub(crate) async fn start(&self, mode: Mode) -> (Run, Channel) {
        let mut run = self.start_with(self.config(mode)).await;
        let channel = self.host.ready().await;
        assert_eq!(run.event().await, Event::Connected);
        (run, channel)
    }

    /// The same disk after the edge was killed: the old edge is left with its host, and whatever it still does comes too late.
    pub(crate) async fn next_life(&self) -> Self {
        Self {
            world: Arc::clone(&self.world),
            host: Host::listen().await,
        }
    }
}

impl Run {
    pub(crate) async fn event(&mut self) -> Event {
        tokio::time::timeout(PATIENCE, self.events.recv())
            .await
            .expect("an event")
            .expect("an edge")
    }

    pub(crate) async fn end(self) -> End {
        tokio::time::timeout(Duration::from_secs(30), self.end)
            .await
            .expect("an end")
            .expect("no panic")
    }
}

/// One call and the structured content of its answer.
pub(crate) async fn ask(channel: &mut Channel, id: &str, tool: &str, args: Value) -> Value {
    channel.call(&call(id, tool, args)).await;
    channel.content().await
}
