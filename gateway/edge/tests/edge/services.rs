//! Identity, policy, filesystem and exec in memory, with faults on demand.

mod commands;
mod files;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use postern_kit::{Effect as Had, Failure};
use postern_proto::{
    catalogue,
    exec::v1 as exec,
    filesystem::v1 as fs,
    identity::v1::{
        AdmitRequest, AdmitResponse, ListSessionsRequest, ListSessionsResponse, PinRequest,
        PinResponse, edge_identity_server::EdgeIdentity,
    },
    policy::v1::{DecideRequest, DecideResponse, Mode, Verdict, policy_server::Policy},
};
use postern_types::{ErrorCode, Sha256};
use tokio::sync::Notify;
use tonic::{Request, Response, Status, async_trait};

use crate::{host::PATIENCE, ledger::Book, tool_servers::ToolLog};

/// What happens to the next effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// The service is away before it does anything, and says nothing of the effect.
    AwayBefore,
    /// It does the effect, then the hop breaks.
    AwayAfter,
    /// It says itself that it is too busy.
    Busy,
    /// It fails in this way before it does anything, and does not know that it has done nothing.
    FailedBefore(ErrorCode),
    /// It does the effect and fails in this way.
    FailedAfter(ErrorCode),
    /// It does the effect and never answers.
    HangAfter,
    /// It never does the effect and never answers.
    HangBefore,
    /// It waits for [`World::release`], then does the effect.
    Held,
}

type Hook = Box<dyn Fn() + Send + Sync>;

/// Everything that outlives an edge.
#[derive(Default)]
pub(crate) struct World {
    book: Mutex<Book>,
    log: Mutex<Vec<String>>,
    pub(crate) files: Mutex<BTreeMap<String, String>>,
    pub(crate) commands: Mutex<Vec<exec::StartRequest>>,
    faults: Mutex<VecDeque<Fault>>,
    /// Receipts that exec acted on.
    acted: Mutex<Vec<String>>,
    pub(crate) exec_unknown: Mutex<bool>,
    pub(crate) inspect_away: Mutex<bool>,
    /// The filesystem could not make durable what it did.
    pub(crate) not_durable: Mutex<bool>,
    pub(crate) policy_away: Mutex<bool>,
    /// What the owner's tool servers were asked.
    pub(crate) tools: Arc<ToolLog>,
    pub(crate) page: Mutex<Option<fs::ReadResponse>>,
    pub(crate) listing: Mutex<Option<fs::ListResponse>>,
    pub(crate) image: Mutex<Option<fs::ImageResponse>>,
    pub(crate) instructions: Mutex<Vec<fs::Instruction>>,
    on_begin: Mutex<Option<Hook>>,
    release: Notify,
    changed: Notify,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("book")
    }

    pub(crate) fn note(&self, what: String) {
        self.log.lock().expect("log").push(what);
        self.changed.notify_waiters();
    }

    /// What happened, in order.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().expect("log").clone()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.log()
            .iter()
            .filter(|line| line.starts_with(what))
            .count()
    }

    /// Waits until something has happened so often.
    pub(crate) async fn until(&self, what: &str, times: usize) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if self.count(what) >= times {
                    return;
                }
                // A note between the look and the wait is caught by the short timeout.
                let _ = tokio::time::timeout(std::time::Duration::from_millis(5), changed).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.unwrap_or_else(|_| panic!("no {what:?} in {:?}", self.log()));
    }

    pub(crate) fn next_effect(&self, fault: Fault) {
        self.faults.lock().expect("faults").push_back(fault);
    }

    pub(crate) fn release(&self) {
        self.release.notify_one();
    }

    pub(crate) fn at_begin(&self, hook: impl Fn() + Send + Sync + 'static) {
        *self.on_begin.lock().expect("hook") = Some(Box::new(hook));
    }

    pub(crate) fn on_begin(&self) {
        if let Some(hook) = self.on_begin.lock().expect("hook").take() {
            hook();
        }
    }

    pub(crate) fn put(&self, path: &str, content: &str) -> String {
        let mut files = self.files.lock().expect("files");
        files.insert(path.to_owned(), content.to_owned());
        sha256(content)
    }

    pub(crate) fn get(&self, path: &str) -> Option<String> {
        self.files.lock().expect("files").get(path).cloned()
    }

    async fn effect<T>(
        &self,
        act: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Status> {
        let fault = self.faults.lock().expect("faults").pop_front();
        match fault {
            None => Ok(act()?),
            Some(Fault::AwayBefore) => Err(Status::unavailable("gone")),
            Some(Fault::AwayAfter) => {
                act()?;
                Err(Status::unavailable("gone"))
            }
            Some(Fault::Busy) => Err(Failure::new(ErrorCode::Busy, "full").into()),
            Some(Fault::FailedBefore(code)) => Err(failed(code)),
            Some(Fault::FailedAfter(code)) => {
                act()?;
                Err(failed(code))
            }
            Some(Fault::HangAfter) => {
                act()?;
                std::future::pending().await
            }
            Some(Fault::HangBefore) => {
                self.note("hanging".to_owned());
                std::future::pending().await
            }
            Some(Fault::Held) => {
                self.note("held".to_owned());
                self.release.notified().await;
                Ok(act()?)
            }
        }
    }

    fn reachable(&self) -> Result<(), Status> {
        if *self.inspect_away.lock().expect("flag") {
            return Err(Status::unavailable("gone"));
        }
        Ok(())
    }

    /// The present revision is the expected one, or why not.
    fn expect(
        &self,
        path: &str,
        expected: Option<&str>,
        change: &fs::plan_request::Change,
    ) -> Result<Option<String>, Failure> {
        let now = self.get(path).map(|content| sha256(&content));
        let is_write = matches!(change, fs::plan_request::Change::Write(_));
        if now.is_none() && !is_write {
            return Err(Failure::new(ErrorCode::NotFound, "there is no such file"));
        }
        if now.as_deref() == expected {
            return Ok(now);
        }
        if expected.is_none() && is_write {
            return Err(Failure::new(
                ErrorCode::AlreadyExists,
                "there is such a file",
            ));
        }
        Err(
            Failure::new(ErrorCode::StaleRevision, "the file has changed")
                .with("currentSha256", now),
        )
    }
}

fn failed(code: ErrorCode) -> Status {
    let failure = Failure {
        effect: Had::Unknown,
        ..Failure::new(code, "failed in the middle")
    };
    failure.into()
}

pub(crate) fn sha256(content: &str) -> String {
    Sha256::of(content.as_bytes()).to_string()
}

#[async_trait]
impl EdgeIdentity for World {
    async fn pin(&self, request: Request<PinRequest>) -> Result<Response<PinResponse>, Status> {
        if request.get_ref().project_path != "/project" {
            return Err(Failure::new(
                ErrorCode::PermissionDenied,
                "The workspace is pinned to another project.",
            )
            .into());
        }
        Ok(Response::new(PinResponse { changed: true }))
    }

    async fn admit(
        &self,
        request: Request<AdmitRequest>,
    ) -> Result<Response<AdmitResponse>, Status> {
        let request = request.into_inner();
        let refused = if request.workspace_id != request.pinned_workspace_id {
            Some(ErrorCode::WrongWorkspace)
        } else if request.intention != "Mend the roof" {
            Some(ErrorCode::WrongIntention)
        } else if request.session_id == "stranger" {
            Some(ErrorCode::UnknownSession)
        } else {
            None
        };
        match refused {
            Some(code) => Err(Failure::new(code, "not admitted").into()),
            None => Ok(Response::new(AdmitResponse { new_session: false })),
        }
    }

    async fn list_sessions(
        &self,
        _: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        Err(Status::unimplemented("not asked for by an edge"))
    }
}

#[async_trait]
impl Policy for World {
    async fn decide(
        &self,
        request: Request<DecideRequest>,
    ) -> Result<Response<DecideResponse>, Status> {
        if *self.policy_away.lock().expect("flag") {
            return Err(Status::unavailable("gone"));
        }
        let request = request.into_inner();
        let Some(tool) = catalogue::workspace_tool(&request.tool) else {
            return Err(Failure::new(ErrorCode::UnknownTool, "no such tool").into());
        };
        let args: serde_json::Value = serde_json::from_slice(&request.args_json).expect("args");
        if args.get("bad").is_some() {
            let invalid = Failure::new(ErrorCode::InvalidArguments, "unknown argument");
            return Err(invalid
                .with("pointer", "/bad")
                .with("rule", "additionalProperties")
                .into());
        }
        let free = tool.annotations.read_only_hint || request.tool == "workspace_ask";
        let change = matches!(
            request.tool.as_str(),
            "workspace_write" | "workspace_patch" | "workspace_delete"
        );
        let verdict = match request.mode() {
            _ if free => Verdict::Allow,
            Mode::ReadOnly | Mode::Unspecified => Verdict::Deny,
            Mode::Edit if change => Verdict::Allow,
            Mode::Ask | Mode::Edit => Verdict::Ask,
            Mode::Full => Verdict::Allow,
        };
        let (verdict, policy_id) = match args["path"] == "secret.txt" {
            true if verdict == Verdict::Allow => (Verdict::Ask, "rules#secret"),
            _ => (verdict, "mode"),
        };
        Ok(Response::new(DecideResponse {
            verdict: verdict.into(),
            policy_id: policy_id.to_owned(),
            reason: String::new(),
            asking: match verdict {
                Verdict::Ask => vec![policy_id.to_owned()],
                Verdict::Allow | Verdict::Deny | Verdict::Unspecified => Vec::new(),
            },
            command: None,
        }))
    }
}
