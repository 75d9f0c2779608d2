//! The edge's side of the view: threads that ask and act, so that nothing that is slow keeps the view from drawing.
//!
//! One looks at everything once a second and after each act, one follows the output of the chosen command, one carries out what
//! the owner decided, and one waits for signals. Each finds the edge anew for what it asks: a token never goes to a port that an
//! edge which is gone left to others.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use postern_types::{Mode, Timestamp, printable};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::model::{Chunk, Item, Snapshot};
use crate::{
    cli::OwnerAccess,
    command::owner::{owner_api, percent_encoded},
    error::Error,
    remote::Api,
};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Reports that wait to be shown; a view that draws nothing keeps the threads from asking on.
const REPORTS: usize = 64;
/// Decisions that wait to be carried out.
const WISHES: usize = 32;
/// Changes of the followed command that wait to be seen.
const TARGETS: usize = 32;
/// Receipts that are shown.
const RECEIPTS: usize = 100;
/// Waiting receipts or commands a page.
const PAGE: usize = 100;
/// Pages of them at most.
const PAGES: usize = 10;
/// Bytes of output that are shown of what was there before a command was chosen.
const OUTPUT_BEFORE: u64 = 64 * 1024;
/// Milliseconds that one question for output waits for some.
const OUTPUT_WAIT_MS: u64 = 500;

/// What the owner wants done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Wish {
    /// A decision on an item: its receipt, and the body of the request.
    Decide { id: String, body: Value },
    /// The end of a command.
    Stop { id: String },
    /// Another mode.
    Mode(Mode),
    /// The door open or closed.
    Open(bool),
}

/// What the view is told.
#[derive(Debug)]
pub(super) enum Report {
    /// How things are.
    Here(Box<Snapshot>),
    /// The edge does not answer, for this reason.
    Gone(String),
    /// Output of the followed command.
    Output(Chunk),
    /// What became of a wish.
    Done { wish: Wish, failure: Option<String> },
    /// The process was told to end.
    Stop,
}

/// The threads, as the view has them.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) reports: Receiver<Report>,
    wishes: SyncSender<Wish>,
    targets: SyncSender<Option<(String, u64)>>,
}

impl Feed {
    /// Starts the threads. They end with the process, or when this is dropped.
    pub(super) fn start(access: &OwnerAccess) -> Result<Self, Error> {
        let (report, reports) = sync_channel(REPORTS);
        let (wishes, wished) = sync_channel(WISHES);
        let (targets, targeted) = sync_channel(TARGETS);
        let (nudge, nudged) = sync_channel(1);
        let source = || Source {
            access: access.clone(),
            report: report.clone(),
        };
        let (looker, actor, follower) = (source(), source(), source());
        start("look", move || looker.look(&nudged))?;
        start("act", move || actor.act(&wished, &nudge))?;
        start("follow", move || follower.follow(&targeted))?;
        super::screen::on_signal(move || {
            // A view that is gone already needs no telling.
            let _ = report.send(Report::Stop);
        })?;
        Ok(Self {
            reports,
            wishes,
            targets,
        })
    }

    /// Hands over a wish; false when there are too many already.
    pub(super) fn wish(&self, wish: Wish) -> bool {
        self.wishes.try_send(wish).is_ok()
    }

    /// Follows the output of this command of so many bytes until now, or none; false when it has to be said again.
    pub(super) fn follow(&self, command: Option<(String, u64)>) -> bool {
        !matches!(self.targets.try_send(command), Err(TrySendError::Full(_)))
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started
        .map(drop)
        .map_err(|problem| Error::failed("cannot start", problem))
}

/// An edge to ask, and whom to tell.
struct Source {
    access: OwnerAccess,
    report: SyncSender<Report>,
}

impl Source {
    /// Tells the view; false once it is gone.
    fn tell(&self, report: Report) -> bool {
        self.report.send(report).is_ok()
    }

    fn look(&self, nudged: &Receiver<()>) {
        let mut known = HashMap::new();
        loop {
            let seen = owner_api(&self.access).and_then(|api| snapshot(&api, &mut known));
            let report = match seen {
                Ok(snapshot) => Report::Here(Box::new(snapshot)),
                Err(problem) => Report::Gone(printable(&problem.to_string())),
            };
            if !self.tell(report) {
                return;
            }
            match nudged.recv_timeout(LOOK_EVERY) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn act(&self, wished: &Receiver<Wish>, nudge: &SyncSender<()>) {
        while let Ok(wish) = wished.recv() {
            let done = owner_api(&self.access).and_then(|api| carry_out(&api, &wish));
            let failure = done.err().map(|problem| printable(&problem.to_string()));
            if !self.tell(Report::Done { wish, failure }) {
                return;
            }
            // One that waits already is enough.
            let _ = nudge.try_send(());
        }
    }

    fn follow(&self, targeted: &Receiver<Option<(String, u64)>>) {
        let mut target: Option<Target> = None;
        loop {
            let next = match &target {
                None => targeted.recv().map_err(RecvTimeoutError::from),
                Some(followed) => targeted.recv_timeout(followed.pause),
            };
            match next {
                // Of several the last one is meant.
                Ok(chosen) => {
                    let last = targeted.try_iter().last().unwrap_or(chosen);
                    target = last.map(Target::new);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(followed) = &mut target else {
                continue;
            };
            match owner_api(&self.access).and_then(|api| followed.ask(&api)) {
                Ok(chunk) if chunk.text.is_empty() => {}
                Ok(chunk) => {
                    if !self.tell(Report::Output(chunk)) {
                        return;
                    }
                }
                // The looker tells why.
                Err(_) => followed.pause = LOOK_EVERY,
            }
            if followed.ended {
                target = None;
            }
        }
    }
}

/// A command whose output is followed.
struct Target {
    id: String,
    offset: u64,
    /// Time until it is asked again.
    pause: Duration,
    /// Whether there will be no more.
    ended: bool,
}

impl Target {
    fn new((id, total_bytes): (String, u64)) -> Self {
        Self {
            id,
            offset: total_bytes.saturating_sub(OUTPUT_BEFORE),
            pause: Duration::ZERO,
            ended: false,
        }
    }

    /// The next piece, which may be empty when there is none yet.
    fn ask(&mut self, api: &Api) -> Result<Chunk, Error> {
        let path = format!(
            "/owner/v1/commands/{}/output?offset={}&wait={OUTPUT_WAIT_MS}",
            percent_encoded(&self.id),
            self.offset
        );
        let page = api.get(&path)?;
        let (from, to) = (&page["nextOffset"], &page["totalBytes"]);
        let next = from.as_u64().unwrap_or(self.offset);
        self.ended = page["status"] != "running" && next >= to.as_u64().unwrap_or(next);
        self.pause = Duration::ZERO;
        self.offset = next;
        Ok(Chunk {
            command_id: self.id.clone(),
            text: page["output"].as_str().unwrap_or_default().to_owned(),
            gap: !page["gap"].is_null(),
        })
    }
}

fn carry_out(api: &Api, wish: &Wish) -> Result<Value, Error> {
    match wish {
        Wish::Decide { id, body } => api.post(
            &format!("/owner/v1/inbox/{}/decision", percent_encoded(id)),
            body,
        ),
        Wish::Stop { id } => api.post(
            &format!("/owner/v1/commands/{}/stop", percent_encoded(id)),
            &json!({}),
        ),
        Wish::Mode(mode) => api.put("/owner/v1/mode", &json!({ "mode": mode })),
        Wish::Open(open) => api.post("/owner/v1/channel", &json!({ "open": open })),
    }
}

/// What is known of items, by receipt: an item never changes, so each is asked for once.
type Known = HashMap<String, Arc<Item>>;

fn snapshot(api: &Api, known: &mut Known) -> Result<Snapshot, Error> {
    let receipts = api.get(&format!("/owner/v1/receipts?limit={RECEIPTS}"))?;
    Ok(Snapshot {
        status: parsed(api.get("/owner/v1/status")?)?,
        items: waiting(api, known)?,
        receipts: parsed(receipts["items"].clone())?,
        commands: parsed(pages(api, "/owner/v1/commands?")?.into())?,
    })
}

fn waiting(api: &Api, known: &mut Known) -> Result<Vec<Arc<Item>>, Error> {
    let now = Timestamp::now();
    let mut items = Vec::new();
    for receipt in pages(api, "/owner/v1/receipts?state=awaiting_owner&")? {
        let Some(id) = receipt["id"]
            .as_str()
            .filter(|_| receipt["decision"].is_null())
        else {
            continue;
        };
        let item = match known.get(id) {
            Some(item) => Some(Arc::clone(item)),
            None => item(api, id)?,
        };
        let waits = |item: &Arc<Item>| item.expires_at.is_none_or(|end| end > now);
        items.extend(item.filter(waits));
    }
    items.reverse();
    *known = items
        .iter()
        .map(|item| (item.id.clone(), Arc::clone(item)))
        .collect();
    Ok(items)
}

fn item(api: &Api, id: &str) -> Result<Option<Arc<Item>>, Error> {
    match api.get(&format!("/owner/v1/inbox/{}", percent_encoded(id))) {
        Ok(value) => Ok(Item::parse(&value).map(Arc::new)),
        // It has ended meanwhile.
        Err(Error::Refused(_)) => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// What a list holds, as far as [`PAGES`] go.
fn pages(api: &Api, list: &str) -> Result<Vec<Value>, Error> {
    let (mut all, mut after) = (Vec::new(), String::new());
    for _ in 0..PAGES {
        let mut page = api.get(&format!("{list}limit={PAGE}{after}"))?;
        if let Value::Array(items) = page["items"].take() {
            all.extend(items);
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", percent_encoded(next)),
            None => break,
        }
    }
    Ok(all)
}

fn parsed<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    serde_json::from_value(value)
        .map_err(|problem| Error::failed("the edge's answer cannot be understood", problem))
}
