//! Sessions of the protocol versions that have them: who opened each, how many there may be, and when they end.
//!
//! The protocol library keeps what happens inside a session. Here it is told which sessions a request may touch:
//! a session belongs to the token that opened it, and to another token it does not exist.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::Stream;
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_server::session::{
        ServerSseMessage, SessionId, SessionManager,
        local::{LocalSessionManager, LocalSessionManagerError},
    },
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Sessions of the host at most. Each costs a task and some tens of kilobytes.
pub(super) const MAX_SESSIONS: usize = 1024;
/// Sessions of one token at most. One more ends the token's longest idle one, as clients often leave theirs open.
pub(super) const MAX_SESSIONS_PER_TOKEN: usize = 64;
/// A session in which nothing has happened for so long has ended.
pub(super) const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);
/// Time between two looks for idle sessions.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// There is no room for another session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Full;

/// The sessions of a host.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    library: LocalSessionManager,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<SessionId, Session>,
    /// Owners of the sessions that are about to open, so that many at once do not pass the limit together.
    opening: Vec<String>,
    /// Counts the waits, to tell those of one request id apart.
    waits: u64,
}

#[derive(Debug)]
struct Session {
    owner: String,
    /// Requests inside it, an open stream included.
    visitors: usize,
    last_visit: Instant,
    ended: CancellationToken,
    /// Calls that wait for their answer, by the request ids that the client gave.
    waiting: HashMap<u64, (String, CancellationToken)>,
}

impl Session {
    fn is_idle(&self) -> bool {
        self.visitors == 0 && self.last_visit.elapsed() >= SESSION_IDLE
    }
}

impl Table {
    fn count_of(&self, owner: &str) -> usize {
        let open = self.open.values().filter(|session| session.owner == owner);
        let opening = self.opening.iter().filter(|opening| *opening == owner);
        open.count() + opening.count()
    }

    fn longest_idle_of(&self, owner: &str) -> Option<SessionId> {
        self.open
            .iter()
            .filter(|(_, session)| session.owner == owner && session.visitors == 0)
            .min_by_key(|(_, session)| session.last_visit)
            .map(|(id, _)| Arc::clone(id))
    }

    fn idle(&self) -> Vec<SessionId> {
        self.open
            .iter()
            .filter(|(_, session)| session.is_idle())
            .map(|(id, _)| Arc::clone(id))
            .collect()
    }

    fn end(&mut self, id: &str) {
        if let Some(session) = self.open.remove(id) {
            session.ended.cancel();
        }
    }
}

/// Whose request the library is working on.
struct Caller {
    owner: String,
    reservation: Option<Reservation>,
}

tokio::task_local! {
    static CALLER: RefCell<Caller>;
}

/// Runs the library for one request of `owner`. With a reservation it may open one session.
pub(super) async fn on_behalf_of<F: Future>(
    owner: String,
    reservation: Option<Reservation>,
    work: F,
) -> F::Output {
    let caller = Caller { owner, reservation };
    CALLER.scope(RefCell::new(caller), work).await
}

impl Sessions {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is complete before anything could panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps room for one session of `owner`.
    ///
    /// # Errors
    /// [`Full`] when the host has none left, or all of the token's sessions are in use.
    pub(super) async fn reserve(self: &Arc<Self>, owner: &str) -> Result<Reservation, Full> {
        self.sweep().await;
        let (reservation, replaced) = {
            let mut table = self.table();
            let mut replaced = None;
            if table.count_of(owner) >= MAX_SESSIONS_PER_TOKEN {
                let id = table.longest_idle_of(owner).ok_or(Full)?;
                table.end(&id);
                replaced = Some(id);
            }
            if table.open.len() + table.opening.len() >= MAX_SESSIONS {
                return Err(Full);
            }
            table.opening.push(owner.to_owned());
            let reservation = Reservation {
                sessions: Arc::clone(self),
                owner: owner.to_owned(),
            };
            (reservation, replaced)
        };
        self.close_in_library(replaced).await;
        Ok(reservation)
    }

    /// Enters a session, if there is one of that id and `owner` opened it.
    pub(super) fn enter(self: &Arc<Self>, id: &str, owner: &str) -> Option<Visit> {
        let mut table = self.table();
        let (id, session) = table.open.get_key_value(id)?;
        if session.owner != owner || session.is_idle() {
            return None;
        }
        let id = Arc::clone(id);
        let session = table.open.get_mut(&id)?;
        session.visitors += 1;
        Some(Visit {
            sessions: Arc::clone(self),
            id,
        })
    }

    /// Ends the sessions that nobody has used for [`SESSION_IDLE`].
    async fn sweep(&self) {
        let idle = {
            let mut table = self.table();
            let idle = table.idle();
            for id in &idle {
                table.end(id);
            }
            idle
        };
        self.close_in_library(idle).await;
    }

    async fn close_in_library(&self, ids: impl IntoIterator<Item = SessionId>) {
        for id in ids {
            if let Err(error) = self.library.close_session(&id).await {
                tracing::debug!(%error, "a session had ended already");
            }
        }
    }

    /// Sweeps until `stop`.
    pub(super) async fn keep_swept(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.sweep().await,
            }
        }
    }

    fn is_callers(&self, id: &SessionId) -> bool {
        let table = self.table();
        let Some(session) = table.open.get(id) else {
            return false;
        };
        CALLER
            .try_with(|caller| caller.borrow().owner == session.owner)
            .unwrap_or(false)
    }
}

/// Room for one session.
pub(super) struct Reservation {
    sessions: Arc<Sessions>,
    owner: String,
}

impl Reservation {
    /// Uses the room.
    fn open(self, id: &SessionId) {
        let session = Session {
            owner: self.owner.clone(),
            visitors: 0,
            last_visit: Instant::now(),
            ended: CancellationToken::new(),
            waiting: HashMap::new(),
        };
        self.sessions.table().open.insert(Arc::clone(id), session);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = self.sessions.table();
        if let Some(place) = table.opening.iter().position(|owner| *owner == self.owner) {
            table.opening.swap_remove(place);
        }
    }
}

/// One request inside a session. While it lasts the session is not idle.
#[derive(Debug)]
pub(super) struct Visit {
    sessions: Arc<Sessions>,
    id: SessionId,
}

impl Visit {
    /// The session's id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Waits under a request's id, so that the client can end the wait by it.
    pub(super) fn wait(self, request_id: &str) -> Wait {
        let (number, cancelled) = {
            let mut table = self.sessions.table();
            table.waits += 1;
            let number = table.waits;
            let cancelled = match table.open.get_mut(&self.id) {
                Some(session) => {
                    let cancelled = session.ended.child_token();
                    let entry = (request_id.to_owned(), cancelled.clone());
                    session.waiting.insert(number, entry);
                    cancelled
                }
                None => already_ended(),
            };
            (number, cancelled)
        };
        Wait {
            number,
            cancelled,
            visit: self,
        }
    }

    /// Ends the waits under a request's id.
    pub(super) fn cancel(&self, request_id: &str) {
        if let Some(session) = self.sessions.table().open.get(&self.id) {
            for (id, cancelled) in session.waiting.values() {
                if id == request_id {
                    cancelled.cancel();
                }
            }
        }
    }
}

fn already_ended() -> CancellationToken {
    let ended = CancellationToken::new();
    ended.cancel();
    ended
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.table().open.get_mut(&self.id) {
            session.visitors = session.visitors.saturating_sub(1);
            session.last_visit = Instant::now();
        }
    }
}

/// The wait for one answer inside a session.
#[derive(Debug)]
pub(super) struct Wait {
    number: u64,
    cancelled: CancellationToken,
    visit: Visit,
}

impl Wait {
    /// Signalled when the client, or the end of the session, ends the wait.
    pub(super) fn cancelled(&self) -> CancellationToken {
        self.cancelled.clone()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut table = self.visit.sessions.table();
        if let Some(session) = table.open.get_mut(&self.visit.id) {
            session.waiting.remove(&self.number);
        }
    }
}

impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let reservation = CALLER
            .try_with(|caller| caller.borrow_mut().reservation.take())
            .ok()
            .flatten()
            .ok_or_else(|| LocalSessionManagerError::SessionNotFound("unreserved".into()))?;
        let (id, transport) = self.library.create_session().await?;
        reservation.open(&id);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.library.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.is_callers(id) && self.library.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.table().end(id);
        self.library.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.library.create_stream(id, message).await
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.library.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.library.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.library.resume(id, last_event_id).await
    }
}
