//! The edge's side: what is pinned, and the sessions that were admitted.

mod grpc;
mod model;
mod store;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use postern_database::Outage;
use postern_kit::{Clock, Failure, Problem, task::Tasks, transport::MESSAGE_LIMIT};
use postern_proto::identity::v1::edge_identity_server::EdgeIdentityServer;
use postern_types::{ErrorCode, Id};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use self::{
    model::{Admission, Pin, Session},
    store::Store,
};
use crate::{Database, Error, recent::Recent};

/// Sessions remembered without a look into the store.
const REMEMBERED_SESSIONS: usize = 4096;
/// Pins remembered without a look into the store. One edge serves one workspace; a service of its own serves several edges.
const REMEMBERED_PINS: usize = 256;

/// Time between two looks whether the database is there.
const LOOK: Duration = Duration::from_secs(1);

/// Where the edge's identity lies.
#[derive(Clone, Debug)]
pub struct Config {
    /// A SQLite file is of one process alone. A PostgreSQL database may be shared, and may be away.
    pub database: Database,
}

/// The edge's identity. Clones stand for the same one.
#[derive(Clone, Debug)]
pub struct Service(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    clock: Clock,
    ready: watch::Sender<bool>,
    closing: CancellationToken,
    /// Empty over a shared store, which others change.
    memory: Mutex<Memory>,
}

/// What the store holds, as last read.
#[derive(Debug)]
struct Memory {
    /// Counts changes of pins, so that what was read before one is not remembered after it.
    generation: u64,
    pins: Recent<Id, Arc<Pin>>,
    /// Known sessions, by workspace and session.
    sessions: Recent<(Id, Id), ()>,
}

/// A call to admit.
#[derive(Debug)]
struct Call {
    workspace_id: String,
    intention: String,
    session_id: Id,
    pinned_workspace_id: Id,
    /// Whether a new session is let in.
    let_in: bool,
}

impl Service {
    /// Opens the store. PostgreSQL may be away: then, and whenever it goes away, the service tries on, is not ready, and
    /// calls are `UNAVAILABLE`.
    ///
    /// # Errors
    /// When the file cannot be opened, is another service's, or was written by a newer program.
    pub async fn open(config: Config, clock: Clock, tasks: &Tasks) -> Result<Self, Error> {
        let store = Store::open(&config.database).await?;
        let service = Self(Arc::new(Inner {
            ready: watch::Sender::new(!store.is_shared()),
            closing: tasks.stopping().child_token(),
            store,
            clock,
            memory: Mutex::new(Memory {
                generation: 0,
                pins: Recent::new(REMEMBERED_PINS),
                sessions: Recent::new(REMEMBERED_SESSIONS),
            }),
        }));
        if service.0.store.is_shared() {
            tasks.spawn("edge identity readiness", service.clone().look_after());
        }
        Ok(service)
    }

    /// Whether requests are served now.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.0.ready.subscribe()
    }

    /// Makes the tables once the database is there, and looks whether it stays.
    async fn look_after(self) {
        let closing = self.0.closing.clone();
        let looking = async {
            let mut outage = Outage::default();
            loop {
                let prepared = self.0.store.prepare().await;
                self.0.ready.send_replace(prepared.is_ok());
                match prepared {
                    Ok(()) => outage.end(),
                    Err(error) if outage.is_news(&error) => {
                        tracing::warn!(%error, "the identity database is away");
                    }
                    Err(_) => {}
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        closing.run_until_cancelled(looking).await;
        self.0.ready.send_replace(false);
    }

    /// The gRPC server.
    #[must_use]
    pub fn into_server(self) -> EdgeIdentityServer<Self> {
        EdgeIdentityServer::new(self)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }

    /// Closes the file. Requests after it are refused.
    pub async fn close(&self) {
        self.0.closing.cancel();
        self.0.store.close().await;
    }

    /// Pins a workspace, or checks that it is pinned so. Tells whether the pin was made or replaced.
    async fn pin(&self, workspace_id: &Id, pin: Pin, repin: bool) -> Result<bool, Error> {
        // Forgotten before the store changes and again after it: should this request be dropped halfway, nothing stays in
        // memory that the store no longer says.
        self.forget();
        let now = self.0.clock.now();
        postern_kit::fault_point!(crate::fault_points::PIN_BEFORE);
        let before = self.0.store.set_pin(workspace_id, &pin, repin, now).await?;
        postern_kit::fault_point!(crate::fault_points::PIN_AFTER);
        self.forget();
        match before {
            Some(before) if before == pin => Ok(false),
            Some(before) if !repin => Err(Error::Refused(Problem::new(
                Code::FailedPrecondition,
                "pin_differs",
                format!(
                    "This workspace is pinned {}. Start with what it was pinned to, or with --repin to pin it anew.",
                    pin.difference(&before),
                ),
            ))),
            Some(_) | None => Ok(true),
        }
    }

    /// Admits a call. The order of the checks is the contract's (CONTRACT.md, section 2): workspace, intention, session.
    async fn admit(&self, call: Call) -> Result<bool, Failure> {
        postern_kit::fault_point!(crate::fault_points::WORKSPACE_BEFORE);
        if call.workspace_id != call.pinned_workspace_id.as_str() {
            return Err(wrong_workspace());
        }
        let workspace_id = call.pinned_workspace_id;
        let (generation, pin) = self.current_pin(&workspace_id).await?;
        postern_kit::fault_point!(crate::fault_points::INTENTION_BEFORE);
        if pin.intention.as_str() != call.intention {
            return Err(Failure::new(
                ErrorCode::WrongIntention,
                "The call names another intention than the one that the owner has pinned. Launch the workspace with the \
                 pinned intention, or ask the owner to pin the new one.",
            ));
        }
        let session = (workspace_id, call.session_id);
        postern_kit::fault_point!(crate::fault_points::SESSION_BEFORE);
        if self.memory().sessions.get(&session).is_some() {
            return Ok(false);
        }
        let admission = self
            .0
            .store
            .admit(&session.0, &session.1, call.let_in, self.0.clock.now())
            .await
            .map_err(unavailable)?;
        postern_kit::fault_point!(crate::fault_points::SESSION_AFTER);
        match admission {
            Admission::Known | Admission::New => {
                let mut memory = self.memory();
                if memory.generation == generation && !self.0.store.is_shared() {
                    memory.sessions.insert(session, ());
                }
                Ok(admission == Admission::New)
            }
            Admission::Unknown => Err(Failure::new(
                ErrorCode::UnknownSession,
                "The owner has not let this session in.",
            )),
            Admission::Full => Err(Failure::new(
                ErrorCode::UnknownSession,
                "The workspace has as many sessions as it may. Go on in an earlier session, or ask the owner to pin the \
                 workspace anew.",
            )),
        }
    }

    /// The newest sessions of a workspace.
    async fn sessions(&self, workspace_id: &Id) -> Result<Vec<Session>, Error> {
        self.0.store.sessions(workspace_id).await
    }

    /// The pin of a workspace and the generation it was read in. No pin, or one that cannot be read, means no.
    async fn current_pin(&self, workspace_id: &Id) -> Result<(u64, Arc<Pin>), Failure> {
        let generation = {
            let mut memory = self.memory();
            if let Some(pin) = memory.pins.get(workspace_id) {
                return Ok((memory.generation, pin));
            }
            memory.generation
        };
        let pin = self.0.store.pin(workspace_id).await.map_err(unavailable)?;
        let pin = Arc::new(pin.ok_or_else(wrong_workspace)?);
        let mut memory = self.memory();
        if memory.generation == generation && !self.0.store.is_shared() {
            memory.pins.insert(workspace_id.clone(), Arc::clone(&pin));
        }
        Ok((generation, pin))
    }

    fn forget(&self) {
        let mut memory = self.memory();
        memory.generation += 1;
        memory.pins.clear();
        memory.sessions.clear();
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wrong_workspace() -> Failure {
    Failure::new(
        ErrorCode::WrongWorkspace,
        "The call names another workspace than the one that the owner has pinned here.",
    )
}

/// The store does not tell, so the answer is no; nothing was done, and the call may be sent again.
fn unavailable(error: Error) -> Failure {
    tracing::error!(%error, "the pins cannot be read");
    Failure::new(
        ErrorCode::Unavailable,
        "What the owner has pinned cannot be read now. Send the call again with the same id.",
    )
}
