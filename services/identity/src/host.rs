//! The host's side: who may do what on an agent host.

mod follow;
mod grpc;
mod index;
mod launches;
mod model;
mod slug;
mod store;
mod tokens;
mod workspaces;

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use postern_kit::{Clock, task::Tasks, transport::MESSAGE_LIMIT};
use postern_proto::identity::v1::host_identity_server::HostIdentityServer;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::{follow::Sign, index::Index, launches::LaunchMemory, model::Token, store::Store};
use crate::{Database, Error, recent::Recent};

/// Revocations that a watcher may lag behind. Further behind it is told so, and reads the tokens anew.
const REVOCATION_BACKLOG: usize = 1024;
/// Conversations remembered without a look into the store.
const REMEMBERED_CONVERSATIONS: usize = 4096;

/// Where the host's identity lies.
#[derive(Clone, Debug)]
pub struct Config {
    /// A SQLite file is of one process alone. A PostgreSQL database may be shared, and may be away.
    pub database: Database,
}

/// The host's identity. Clones stand for the same one.
#[derive(Clone, Debug)]
pub struct Service(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    clock: Clock,
    tasks: Tasks,
    index: RwLock<Index>,
    /// Held while a token is read from the store and put into the index, so that what was read first is not put there last.
    following: tokio::sync::Mutex<()>,
    /// Asks for a look at what has changed in a shared store.
    wake: Notify,
    ready: watch::Sender<bool>,
    closing: CancellationToken,
    launches: Mutex<LaunchMemory>,
    /// Sessions by token and key.
    conversations: Mutex<Recent<(String, String), String>>,
    revocations: broadcast::Sender<Sign>,
}

impl Service {
    /// Opens the store and loads the valid tokens. PostgreSQL may be away: then, and whenever it goes away, the service tries
    /// on, is not ready and refuses requests as `UNAVAILABLE`.
    ///
    /// # Errors
    /// When the file cannot be opened, is another service's, or was written by a newer program.
    pub async fn open(config: Config, clock: Clock, tasks: Tasks) -> Result<Self, Error> {
        let service = Self(Arc::new(Inner {
            store: Store::open(&config.database).await?,
            clock,
            closing: tasks.stopping().child_token(),
            tasks,
            index: RwLock::new(Index::default()),
            following: tokio::sync::Mutex::new(()),
            wake: Notify::new(),
            ready: watch::Sender::new(false),
            launches: Mutex::new(LaunchMemory::new()),
            conversations: Mutex::new(Recent::new(REMEMBERED_CONVERSATIONS)),
            revocations: broadcast::Sender::new(REVOCATION_BACKLOG),
        }));
        if service.0.store.is_shared() {
            let follower = service.clone().follow_others();
            service.0.tasks.spawn("identity follower", follower);
        } else {
            service.load().await?;
            service.0.ready.send_replace(true);
        }
        Ok(service)
    }

    /// Whether requests are served now.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.0.ready.subscribe()
    }

    /// The gRPC server.
    #[must_use]
    pub fn into_server(self) -> HostIdentityServer<Self> {
        HostIdentityServer::new(self)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }

    /// Waits for what runs and closes the file. Requests after it are refused.
    pub async fn close(&self) {
        self.0.closing.cancel();
        self.0.store.close().await;
    }

    /// The token by which a caller acts, if it is valid now.
    fn acting(&self, token_id: &str) -> Result<Arc<Token>, Error> {
        let index = self.index();
        index.must_be_fresh()?;
        index
            .by_id(token_id, self.0.clock.now())
            .ok_or_else(Error::invalid_token)
    }

    /// Runs a change to its end, even when the caller goes away meanwhile: what is in memory must follow the store.
    async fn change<T, F>(&self, change: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let done = self.0.tasks.spawn("identity change", change).await;
        done.map_err(|_| Error::Interrupted)?
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.0.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.0.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new id. Ids of version 7 sort by time.
fn new_id() -> String {
    Uuid::now_v7().to_string()
}
