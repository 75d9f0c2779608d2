//! What comes from the client on its way to the host, and the answers on their way back.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::body::Incoming as Body;
use postern_kit::{root::Root, task::Tasks};
use tokio::{
    io::BufReader,
    sync::{Mutex as AsyncMutex, Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    events::Events,
    host::{Answer, Host, Session, Trouble, one_line},
    lines::{self, Line},
    message::{self, Era, Incoming, Request},
    upload,
};

/// Requests under way at most; the next line is read when there is room.
const MAX_REQUESTS: usize = 64;
/// How long a lost call, or one that does not reach the host, is sent again.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for the handshake, behind which a client waits to start.
const OPENING_PATIENCE: Duration = Duration::from_secs(10);
/// First wait between two tries; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest wait between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long answers that are under way are waited for once the client is gone, and how long the host is to end the session.
pub(super) const LEAVING: Duration = Duration::from_secs(2);
/// How long a notification may take; the lines behind it wait, since their order matters.
const TELLING: Duration = Duration::from_secs(5);
/// Read buffer of standard input.
const READ_BUFFER: usize = 64 * 1024;

/// The handshake of a client of the versions that have one.
#[derive(Debug)]
struct Opened {
    /// Id of the message that opened the session.
    id: String,
    /// The message that opened the session, to open it again when the host has forgotten it.
    initialize: String,
    session: Session,
}

/// The bridge of one client.
#[derive(Debug)]
pub(super) struct Bridge {
    host: Host,
    upload_root: Option<Root>,
    answers: mpsc::Sender<String>,
    tasks: Tasks,
    stop: CancellationToken,
    room: Arc<Semaphore>,
    /// Requests under way by their ids as they came, each with what ends the waiting for it.
    under_way: Mutex<HashMap<String, CancellationToken>>,
    opened: AsyncMutex<Option<Opened>>,
}

impl Bridge {
    pub(super) fn new(
        host: Host,
        upload_root: Option<Root>,
        answers: mpsc::Sender<String>,
        tasks: Tasks,
        stop: CancellationToken,
    ) -> Self {
        Self {
            host,
            upload_root,
            answers,
            tasks,
            stop,
            room: Arc::new(Semaphore::new(MAX_REQUESTS)),
            under_way: Mutex::default(),
            opened: AsyncMutex::default(),
        }
    }

    /// Serves until the client is gone.
    pub(super) async fn run(self: &Arc<Self>) {
        let mut input = BufReader::with_capacity(READ_BUFFER, tokio::io::stdin());
        loop {
            let line = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                line = lines::next(&mut input) => line,
            };
            match line {
                Ok(Line::Text(line)) => self.take(&line).await,
                Ok(Line::TooLong) => self.say(message::too_long(lines::MAX_LINE_BYTES)).await,
                Ok(Line::End) => {
                    // What was asked before the end is still answered, if it is soon.
                    let all = u32::try_from(MAX_REQUESTS).unwrap_or(u32::MAX);
                    let _late = tokio::time::timeout(LEAVING, self.room.acquire_many(all)).await;
                    break;
                }
                Err(problem) => {
                    tracing::warn!(%problem, "standard input cannot be read");
                    break;
                }
            }
        }
        // Ends the waiting for what is under way; effects that have begun have their receipts.
        self.stop.cancel();
        if let Some(opened) = self.opened.lock().await.take() {
            let _late = tokio::time::timeout(LEAVING, self.host.leave(&opened.session)).await;
        }
    }

    async fn take(self: &Arc<Self>, line: &[u8]) {
        match message::read(line) {
            Incoming::Malformed(told) => self.say(told).await,
            Incoming::Answer => tracing::debug!("an answer that nobody asked for"),
            Incoming::Notification {
                cancels: Some(id), ..
            } => {
                if let Some(waiting) = self.under_way().get(&id) {
                    waiting.cancel();
                }
            }
            Incoming::Notification { method, body, .. } => {
                let session = self.session().await;
                let telling = self.host.notify(&body, session.as_ref());
                match tokio::time::timeout(TELLING, telling).await {
                    Ok(Ok(())) => {}
                    Ok(Err(trouble)) => {
                        tracing::warn!(method, ?trouble, "a notification did not reach the host");
                    }
                    Err(_) => tracing::warn!(method, "the host did not take a notification"),
                }
            }
            // Nothing that follows makes sense before its answer, so it is waited for.
            Incoming::Request(request) if request.method == "initialize" => {
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => {}
                    () = self.initialize(&request) => {}
                }
            }
            Incoming::Request(request) => self.start(request).await,
        }
    }

    /// Starts a request as a task of its own, so that it holds up no other.
    async fn start(self: &Arc<Self>, request: Request) {
        let ended = self.stop.child_token();
        if !self.enter(&request.id, &ended) {
            return self.say(message::id_in_use(&request.id)).await;
        }
        let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else {
            return;
        };
        let bridge = Arc::clone(self);
        self.tasks.spawn("request", async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = bridge.answer(&request) => {}
            }
            bridge.under_way().remove(&request.id);
            drop(permit);
        });
    }

    /// Notes a request as under way, unless one of its id is.
    fn enter(&self, id: &str, ended: &CancellationToken) -> bool {
        match self.under_way().entry(id.to_owned()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(ended.clone());
                true
            }
        }
    }

    async fn answer(&self, request: &Request) {
        let prepared = match &self.upload_root {
            Some(root) => upload::prepare(root, request).await,
            None => Ok(None),
        };
        let outcome = match prepared {
            Ok(Some(write)) => self.ask(&write).await,
            Ok(None) => self.ask(request).await,
            Err(refused) => return self.say(refused).await,
        };
        match outcome {
            Ok(Answer::Message(answer)) => self.say(self.completed(request, answer)).await,
            Ok(Answer::Events(body)) => self.relay(request, body).await,
            Ok(Answer::Nothing) => {
                self.say(message::unanswered(
                    &request.id,
                    "The host accepted the request and answered nothing.",
                ))
                .await;
            }
            Err(text) => self.say(message::unanswered(&request.id, &text)).await,
        }
    }

    /// Asks until there is an answer, as long as asking again cannot do anything twice.
    async fn ask(&self, request: &Request) -> Result<Answer, String> {
        let until = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        let mut reopened = false;
        loop {
            let session = match request.era {
                Era::Session => self.session().await,
                Era::Alone(_) => None,
            };
            let trouble = match self.host.ask(request, session.as_ref()).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            let text = match trouble {
                Trouble::SessionGone if !reopened => {
                    reopened = true;
                    self.reopen(session.as_ref()).await?;
                    continue;
                }
                Trouble::SessionGone => {
                    return Err("The host does not keep the session.".to_owned());
                }
                Trouble::Refused(text) => return Err(text),
                Trouble::Lost(text) if !request.repeatable => return Err(text),
                Trouble::Lost(text) | Trouble::Unreached(text) => text,
            };
            if Instant::now() + pause >= until {
                return Err(text);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn initialize(&self, request: &Request) {
        let until = Instant::now() + OPENING_PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            let text = match self.host.initialize(&request.id, &request.body).await {
                Ok((answer, session)) => {
                    *self.opened.lock().await = session.map(|session| Opened {
                        id: request.id.clone(),
                        initialize: request.body.clone(),
                        session,
                    });
                    return self.say(answer).await;
                }
                Err(Trouble::Unreached(_)) if Instant::now() + pause < until => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
                Err(Trouble::Unreached(text) | Trouble::Lost(text) | Trouble::Refused(text)) => {
                    text
                }
                Err(Trouble::SessionGone) => "The host refused the handshake.".to_owned(),
            };
            return self.say(message::unanswered(&request.id, &text)).await;
        }
    }

    /// Opens the session again after the host has forgotten it, as at its restart. The conversation stays the same.
    async fn reopen(&self, gone: Option<&Session>) -> Result<(), String> {
        let mut opened = self.opened.lock().await;
        let Some(known) = opened.as_mut() else {
            return Err("No session is open. Send initialize first.".to_owned());
        };
        if gone != Some(&known.session) {
            // Another request has opened it meanwhile.
            return Ok(());
        }
        let renewed = match self.host.initialize(&known.id, &known.initialize).await {
            Ok((_, Some(session))) => session,
            Ok((_, None)) => return Err("The host does not open the session again.".to_owned()),
            Err(Trouble::Unreached(text) | Trouble::Lost(text) | Trouble::Refused(text)) => {
                return Err(text);
            }
            Err(Trouble::SessionGone) => return Err("The host refused the handshake.".to_owned()),
        };
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        if let Err(trouble) = self.host.notify(initialized, Some(&renewed)).await {
            tracing::warn!(?trouble, "a renewed session was not confirmed");
        }
        known.session = renewed;
        Ok(())
    }

    async fn session(&self) -> Option<Session> {
        let opened = self.opened.lock().await;
        opened.as_ref().map(|opened| opened.session.clone())
    }

    /// Hands on the messages of an event stream. One that breaks before its answer is asked for again, if it may be.
    async fn relay(&self, request: &Request, mut body: Body) {
        loop {
            match self.relay_one(request, body).await {
                Relayed::Answered => return,
                Relayed::Broken if request.repeatable => {}
                Relayed::Broken => {
                    let text = "The connection to the host broke before the answer.";
                    return self.say(message::unanswered(&request.id, text)).await;
                }
            }
            match self.ask(request).await {
                Ok(Answer::Events(again)) => body = again,
                Ok(Answer::Message(answer)) => return self.say(answer).await,
                Ok(Answer::Nothing) => {
                    let text = "The host accepted the request and answered nothing.";
                    return self.say(message::unanswered(&request.id, text)).await;
                }
                Err(text) => return self.say(message::unanswered(&request.id, &text)).await,
            }
        }
    }

    async fn relay_one(&self, request: &Request, body: Body) -> Relayed {
        let mut events = Events::new(body);
        while let Some(event) = events.next().await {
            let message = one_line(&event);
            if message::answers(&message, &request.id) {
                self.say(self.completed(request, message)).await;
                return Relayed::Answered;
            }
            self.say(message).await;
        }
        Relayed::Broken
    }

    /// An answer with what this side adds to it.
    fn completed(&self, request: &Request, answer: String) -> String {
        if self.upload_root.is_some() && request.method == "tools/list" {
            upload::listed(answer)
        } else {
            answer
        }
    }

    async fn say(&self, line: String) {
        if self.answers.send(line).await.is_err() {
            self.stop.cancel();
        }
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an event stream ended.
enum Relayed {
    Answered,
    Broken,
}
