//! The host's side: who may do what on an agent host.

mod grpc;
mod index;
mod launches;
mod model;
mod slug;
mod sqlite;
mod tokens;
mod workspaces;

use std::{
    future::Future,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use postern_kit::{Clock, task::Tasks, transport::MESSAGE_LIMIT};
use postern_proto::identity::v1::host_identity_server::HostIdentityServer;
use tokio::sync::broadcast;
use uuid::Uuid;

use self::{
    index::Index,
    launches::LaunchMemory,
    model::{Revocation, Token},
    sqlite::Store,
};
use crate::{Error, recent::Recent};

/// Revocations that a watcher may lag behind. Further behind it is told so, and reads the tokens anew.
const REVOCATION_BACKLOG: usize = 1024;
/// Conversations remembered without a look into the store.
const REMEMBERED_CONVERSATIONS: usize = 4096;

/// Where the host's identity lies.
#[derive(Clone, Debug)]
pub struct Config {
    /// SQLite file. Made, for its owner alone, when it is missing.
    pub path: PathBuf,
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
    launches: Mutex<LaunchMemory>,
    /// Sessions by token and key.
    conversations: Mutex<Recent<(String, String), String>>,
    revocations: broadcast::Sender<Revocation>,
}

impl Service {
    /// Opens the store and loads the valid tokens.
    ///
    /// # Errors
    /// When the file cannot be opened, is another service's, or was written by a newer program.
    pub async fn open(config: Config, clock: Clock, tasks: Tasks) -> Result<Self, Error> {
        let store = Store::open(&config.path).await?;
        let now = clock.now();
        let mut index = Index::default();
        for token in store.valid_tokens(now).await? {
            index.insert(token);
        }
        for door in store.doors(now).await? {
            index.open_door(door);
        }
        Ok(Self(Arc::new(Inner {
            store,
            clock,
            tasks,
            index: RwLock::new(index),
            following: tokio::sync::Mutex::new(()),
            launches: Mutex::new(LaunchMemory::new()),
            conversations: Mutex::new(Recent::new(REMEMBERED_CONVERSATIONS)),
            revocations: broadcast::Sender::new(REVOCATION_BACKLOG),
        })))
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
        self.0.store.close().await;
    }

    /// The token by which a caller acts, if it is valid now.
    fn acting(&self, token_id: &str) -> Result<Arc<Token>, Error> {
        self.index()
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

    /// Brings what is in memory about a token in line with the store, after a change there. A token that cannot be read opens
    /// nothing.
    async fn follow(&self, token_id: &str) -> Result<(), Error> {
        let _in_turn = self.0.following.lock().await;
        let stored = self.0.store.holder(token_id, self.0.clock.now()).await;
        self.forget_launches();
        let mut index = self.index_mut();
        index.remove(token_id);
        if let Some((token, doors)) = stored? {
            index.insert(token);
            for door in doors {
                index.open_door(door);
            }
        }
        Ok(())
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
