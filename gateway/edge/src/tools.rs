//! The tools: what a permitted call asks of which service, and how the answer looks (CONTRACT.md, section 3).

mod commands;
mod files;
mod info;
mod media;

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use postern_kit::Failure;
use postern_proto::filesystem::v1::PlanLook;
use postern_types::ErrorCode;
use serde::{Deserialize, Serialize};
use tower::Service;

pub(crate) use commands::command_status;
use commands::of_directory;

use crate::{
    args,
    call::Call,
    clients::{Clients, is_passing},
    config::Config,
    control::Control,
    owner_tools::{OwnerTools, unknown_effect},
    reply::{Answer, Reply},
    stack::{Held, Permit},
};

pub(crate) use files::Plan as FilePlan;

/// What is known of an effect after the fact.
#[derive(Debug)]
pub(crate) enum Finding {
    /// It happened, with this result.
    Applied(Reply),
    /// It did not, and cannot any more.
    NotApplied,
    /// It cannot be known; the failure says what to look at.
    Uncertain(Failure),
}

/// Where a call's path leads, as its plan tells it.
#[derive(Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Location {
    /// Relative to the root, links followed; none when nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<String>,
    /// The same, when links led there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resolved_path: Option<String>,
}

impl Location {
    /// As the plan of a call of which nothing else is known.
    pub(crate) fn to_bytes(&self) -> Bytes {
        // Strings always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// What a plan says. One that says nothing, an empty one too, knows of no place.
    pub(crate) fn of(plan_json: &[u8]) -> Self {
        serde_json::from_slice(plan_json).unwrap_or_default()
    }
}

/// What a call would do, and where its path leads. What a refusal tells, it tells of that very place.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) json: Result<Bytes, Failure>,
    pub(crate) location: Location,
}

/// The tools of one edge. Clones stand for the same tools.
#[derive(Clone, Debug)]
pub(crate) struct Tools(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    clients: Clients,
    control: Control,
    approval_timeout: Duration,
    owner_tools: OwnerTools,
}

impl Tools {
    pub(crate) fn new(
        config: &Config,
        clients: Clients,
        control: Control,
        owner_tools: OwnerTools,
    ) -> Self {
        Self(Arc::new(Parts {
            clients,
            control,
            approval_timeout: config.approval_timeout,
            owner_tools,
        }))
    }

    /// What the call's effect would change and where its path leads (JSON), looked at without changing anything; empty when
    /// there is nothing to say. A refusal is the call's answer.
    ///
    /// # Errors
    /// What passes, or is the fault of a service.
    pub(crate) async fn plan(&self, call: &Call) -> Result<Planned, Failure> {
        let failure = match self.plan_once(call, None).await {
            Ok(json) => {
                let location = Location::of(&json);
                return Ok(Planned {
                    json: Ok(json),
                    location,
                });
            }
            Err(failure) if leaves_nothing(&failure) => return Err(failure),
            Err(failure) => failure,
        };
        // It tells of a file, and by links that may be any. So it is told only of a place that is known, and can be judged.
        let (json, location) = match self.location(call).await {
            Ok(Some(location)) => (self.plan_once(call, location.place.clone()).await, location),
            Ok(None) => (Err(failure), Location::default()),
            Err(nowhere) => (Err(nowhere), Location::default()),
        };
        match json {
            Err(failure) if leaves_nothing(&failure) => Err(failure),
            json => Ok(Planned { json, location }),
        }
    }

    /// Where the path of a call leads, whether or not something is there. `None` for a call without one.
    ///
    /// # Errors
    /// What passes; and why it leads nowhere.
    pub(crate) async fn location(&self, call: &Call) -> Result<Option<Location>, Failure> {
        let how = PlanLook {
            missing: true,
            entry: call.tool == "workspace_delete",
        };
        match args::path(call) {
            Some(path) => match self.locate(path, how, None).await {
                Err(failure) if call.tool == "workspace_exec" => Err(of_directory(failure)),
                location => location.map(Some),
            },
            None => Ok(None),
        }
    }

    async fn plan_once(&self, call: &Call, place: Option<String>) -> Result<Bytes, Failure> {
        match call.tool.as_str() {
            "workspace_write" | "workspace_patch" | "workspace_delete" => {
                self.plan_change(call, place).await
            }
            "workspace_exec" => match args::path(call) {
                Some(path) => self.look(path, place).await.map_err(of_directory),
                None => Ok(Bytes::new()),
            },
            "workspace_list" | "workspace_read" | "workspace_image" | "workspace_document" => {
                self.look(args::path(call).unwrap_or_default(), place).await
            }
            "workspace_tool" => {
                let args: args::OwnerTool = args::read(call)?;
                let found = self.0.owner_tools.check(&args.name);
                found.map(|()| Bytes::new())
            }
            _ => Ok(Bytes::new()),
        }
    }

    /// What became of an effect whose answer was lost.
    pub(crate) async fn inspect(
        &self,
        call: &Call,
        held: &Held,
        plan_json: &Bytes,
    ) -> Result<Finding, Failure> {
        match call.tool.as_str() {
            "workspace_write" | "workspace_patch" | "workspace_delete" => {
                self.inspect_file(call, held, plan_json).await
            }
            "workspace_exec" | "workspace_input" | "workspace_stop" => {
                self.inspect_command(call, held).await
            }
            // Nobody can be asked what a tool of somebody else's did.
            "workspace_tool" => Ok(Finding::Uncertain(unknown_effect())),
            // A question has no effect but its answer.
            _ => Ok(Finding::NotApplied),
        }
    }

    async fn call(&self, permit: Permit) -> Answer {
        let Permit {
            call,
            receipt,
            plan,
        } = permit;
        let place = Location::of(&plan).place;
        match (call.tool.as_str(), receipt) {
            ("workspace_info", _) => self.info(&call).await,
            ("workspace_tools", _) => self.0.owner_tools.list().await,
            ("workspace_list", _) => self.list(&call, place).await,
            ("workspace_read", _) => self.read(&call, place).await,
            ("workspace_image", _) => self.image(&call, place).await,
            ("workspace_document", _) => self.document(&call, place).await,
            ("workspace_poll", _) => self.poll(&call).await,
            ("workspace_write", Some(held)) => self.write(&call, held, place).await,
            ("workspace_patch", Some(held)) => self.patch(&call, held, place).await,
            ("workspace_delete", Some(held)) => self.delete(&call, held, place).await,
            ("workspace_exec", Some(held)) => self.exec(&call, held, place).await,
            ("workspace_input", Some(held)) => self.input(&call, held).await,
            ("workspace_stop", Some(held)) => self.stop(&call, held).await,
            ("workspace_tool", Some(_)) => {
                let args: args::OwnerToolCall = args::read(&call)?;
                let owner_tools = &self.0.owner_tools;
                owner_tools
                    .call(&args.name, args.arguments, &self.0.control)
                    .await
            }
            // The layers further out answer the rest; whatever comes here all the same has no effect.
            _ => Err(Failure::new(
                ErrorCode::Internal,
                "This call cannot be made. The owner's log tells more.",
            )),
        }
    }
}

/// Whether a failure is no outcome of its call.
pub(crate) fn leaves_nothing(failure: &Failure) -> bool {
    is_passing(failure.code) || failure.code == ErrorCode::Internal
}

impl Service<Permit> for Tools {
    type Response = Reply;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, permit: Permit) -> Self::Future {
        let tools = self.clone();
        Box::pin(async move { tools.call(permit).await })
    }
}
