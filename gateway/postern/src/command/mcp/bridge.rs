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

/// Requests under way at most; further ones are refused.
const MAX_REQUESTS: usize = 64;
/// How long a lost call, or one that does not reach the host, is sent again.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for the handshake, behind which a client waits to start.
const OPENING_PATIENCE: Duration = Duration::from_secs(10);
/// First wait between two tries; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest wait between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Longest single handshake.
const OPENING_LIMIT: Duration = Duration::from_secs(30);
/// How long answers that are under way are waited for once the client is gone.
const GRACE: Duration = Duration::from_secs(2);
/// How long the host is to end the session then, and the last answers to be written.
pub(super) const LEAVING: Duration = Duration::from_secs(1);
/// Lines that were read and wait for their turn.
const MAX_WAITING_LINES: usize = 16;
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
        let (sender, mut lines) = mpsc::channel(MAX_WAITING_LINES);
        self.tasks
            .spawn("stdin", read_lines(sender, self.stop.clone()));
        loop {
            let line = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                line = lines.recv() => line,
            };
            match line {
                Some(Line::Text(line)) => self.take(&line).await,
                Some(Line::TooLong) => self.say(message::too_long(lines::MAX_LINE_BYTES)).await,
                Some(Line::End) | None => {
                    // What was asked before the end is still answered, if it is soon.
                    let all = u32::try_from(MAX_REQUESTS).unwrap_or(u32::MAX);
                    tokio::select! {
                        () = self.stop.cancelled() => {}
                        _all = self.room.acquire_many(all) => {}
                    }
                    break;
                }
            }
        }
        // Ends the waiting for what is under way; effects that have begun have their receipts.
        self.stop.cancel();
        let leaving = async {
            if let Some(opened) = self.opened.lock().await.take() {
                self.host.leave(&opened.session).await;
            }
        };
        let _late = tokio::time::timeout(LEAVING, leaving).await;
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
                let told = tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return,
                    told = tokio::time::timeout(TELLING, telling) => told,
                };
                match told {
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
        // Waiting for room here would keep cancellations, and the end of the input, from being read.
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            let text =
                format!("{MAX_REQUESTS} requests are under way already. Wait for one to end.");
            return self.say(message::unanswered(&request.id, &text)).await;
        };
        let ended = self.stop.child_token();
        if !self.enter(&request.id, &ended) {
            return self.say(message::id_in_use(&request.id)).await;
        }
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
        let write = match prepared {
            Ok(write) => write,
            Err(refused) => return self.say(refused).await,
        };
        let request = write.as_ref().unwrap_or(request);
        let mut pace = Pace::new(PATIENCE);
        // Asks until there is an answer, as long as asking again cannot do anything twice.
        while let Err(trouble) = self.attempt(request, &mut pace).await {
            let (text, again) = match trouble {
                Trouble::Unreached(text) => (text, true),
                Trouble::Lost(text) => (text, request.repeatable),
                Trouble::Refused(text) => (text, false),
                Trouble::SessionGone => ("The host refused the handshake.".to_owned(), false),
            };
            if !again || !pace.wait().await {
                return self.say(message::unanswered(&request.id, &text)).await;
            }
        }
    }

    /// Asks once, and hands on the answer.
    async fn attempt(&self, request: &Request, pace: &mut Pace) -> Result<(), Trouble> {
        let session = match request.era {
            Era::Session => self.session().await,
            Era::Alone(_) => None,
        };
        match self.host.ask(request, session.as_ref()).await {
            Ok(Answer::Message(answer)) => {
                self.say(self.completed(request, answer)).await;
                Ok(())
            }
            Ok(Answer::Events(body)) => self.relay(request, body, pace).await,
            Ok(Answer::Nothing) => Err(Trouble::Refused(
                "The host accepted the request and answered nothing.".to_owned(),
            )),
            Err(Trouble::SessionGone) => {
                self.reopen(session.as_ref()).await?;
                // The request was not looked at, so it may be sent again whatever it is.
                let text = "The host does not keep the session.".to_owned();
                Err(Trouble::Unreached(text))
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn initialize(&self, request: &Request) {
        let mut pace = Pace::new(OPENING_PATIENCE);
        loop {
            let (text, again) = match self.open(&request.id, &request.body).await {
                Ok((answer, session)) => {
                    *self.opened.lock().await = session.map(|session| Opened {
                        id: request.id.clone(),
                        initialize: request.body.clone(),
                        session,
                    });
                    return self.say(answer).await;
                }
                Err(Trouble::Unreached(text) | Trouble::Lost(text)) => (text, true),
                Err(Trouble::Refused(text)) => (text, false),
                Err(Trouble::SessionGone) => ("The host refused the handshake.".to_owned(), false),
            };
            if !again || !pace.wait().await {
                return self.say(message::unanswered(&request.id, &text)).await;
            }
        }
    }

    /// One handshake, within its limit.
    async fn open(&self, id: &str, body: &str) -> Result<(String, Option<Session>), Trouble> {
        let opening = self.host.initialize(id, body);
        match tokio::time::timeout(OPENING_LIMIT, opening).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Trouble::Refused(
                "The host did not answer the handshake in time.".to_owned(),
            )),
        }
    }

    /// Opens the session again after the host has forgotten it, as at its restart. The conversation stays the same.
    async fn reopen(&self, gone: Option<&Session>) -> Result<(), Trouble> {
        let refused = |text: &str| Err(Trouble::Refused(text.to_owned()));
        let mut opened = self.opened.lock().await;
        let Some(known) = opened.as_mut() else {
            return refused("No session is open. Send initialize first.");
        };
        if gone != Some(&known.session) {
            // Another request has opened it meanwhile.
            return Ok(());
        }
        let (_, Some(renewed)) = self.open(&known.id, &known.initialize).await? else {
            return refused("The host does not open the session again.");
        };
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let confirming = self.host.notify(initialized, Some(&renewed));
        match tokio::time::timeout(TELLING, confirming).await {
            Ok(Ok(())) => {}
            Ok(Err(trouble)) => tracing::warn!(?trouble, "a renewed session was not confirmed"),
            Err(_) => tracing::warn!("a renewed session was not confirmed in time"),
        }
        known.session = renewed;
        Ok(())
    }

    async fn session(&self) -> Option<Session> {
        let opened = self.opened.lock().await;
        opened.as_ref().map(|opened| opened.session.clone())
    }

    /// Hands on the messages of an event stream, up to the answer.
    async fn relay(&self, request: &Request, body: Body, pace: &mut Pace) -> Result<(), Trouble> {
        let mut events = Events::new(body);
        while let Some(event) = events.next().await {
            pace.renew();
            let message = one_line(&event);
            if message::answers(&message, &request.id) {
                self.say(self.completed(request, message)).await;
                return Ok(());
            }
            self.say(message).await;
        }
        if events.is_too_long() {
            return Err(Trouble::Refused("The answer is too long.".to_owned()));
        }
        Err(Trouble::Lost(
            "The connection to the host broke before the answer.".to_owned(),
        ))
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

/// Reads standard input in a task of its own, so that its end is seen whatever waits.
async fn read_lines(lines: mpsc::Sender<Line>, stop: CancellationToken) {
    let mut input = BufReader::with_capacity(READ_BUFFER, tokio::io::stdin());
    loop {
        let line = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            line = lines::next(&mut input) => line,
        };
        let line = match line {
            Ok(Line::End) => break,
            Ok(line) => line,
            Err(problem) => {
                tracing::warn!(%problem, "standard input cannot be read");
                break;
            }
        };
        if lines.send(line).await.is_err() {
            return;
        }
    }
    drop(lines);
    // Nobody is there to read the rest for long.
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(GRACE) => stop.cancel(),
    }
}

/// The pauses between tries, and their end.
#[derive(Debug)]
struct Pace {
    patience: Duration,
    until: Instant,
    pause: Duration,
}

impl Pace {
    fn new(patience: Duration) -> Self {
        Self {
            patience,
            until: Instant::now() + patience,
            pause: FIRST_PAUSE,
        }
    }

    /// Something came: the host is there.
    fn renew(&mut self) {
        *self = Self::new(self.patience);
    }

    /// Waits for the next try; false when there is to be none.
    async fn wait(&mut self) -> bool {
        if Instant::now() + self.pause >= self.until {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}
