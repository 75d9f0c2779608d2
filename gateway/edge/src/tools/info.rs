//! What an agent learns first.

use std::{env::consts, time::Duration};

use postern_kit::Failure;
use postern_proto::{
    catalogue::{MAX_CHANNELS, MAX_CHANNELS_PER_TOKEN, MAX_FRAME_BYTES, MAX_IN_FLIGHT, PROTOCOL},
    exec::v1::HeartbeatRequest,
    filesystem::v1::{DescribeRequest, Instruction},
    policy::v1::{DecideRequest, Verdict},
};
use postern_types::ErrorCode;
use serde::Serialize;
use serde_json::json;

use super::Tools;
use crate::{
    args::DEFAULT_TIMEOUT_MS,
    call::Call,
    clients::{hop, hop_within, policy_mode},
    reply::{Answer, Reply},
};

/// How long the exec worker may take to tell its sandbox. It is told as unknown afterwards: files can be worked on
/// without it.
const SANDBOX_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Info<'a> {
    workspace_id: &'a str,
    session_id: &'a str,
    intention: &'a str,
    name: String,
    protocol: u32,
    platform: Platform,
    mode: &'static str,
    sandbox: String,
    instructions: Vec<Instructions>,
    limits: Limits,
}

#[derive(Serialize)]
struct Platform {
    os: &'static str,
    arch: &'static str,
    family: &'static str,
}

#[derive(Serialize)]
struct Instructions {
    path: String,
    sha256: String,
    size: u64,
    content: String,
}

impl From<Instruction> for Instructions {
    fn from(file: Instruction) -> Self {
        Self {
            path: file.path,
            sha256: file.sha256,
            size: file.size,
            content: file.content,
        }
    }
}

/// The contract's limits, and those of pages and commands (CONTRACT.md, section 3).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Limits {
    channels: usize,
    channels_per_token: usize,
    in_flight_calls_per_workspace: usize,
    frame_bytes: usize,
    list_entries: u32,
    read_bytes: u32,
    write_characters: u32,
    poll_bytes: u32,
    poll_wait_ms: u32,
    input_characters: u32,
    commands_per_session: u32,
    default_timeout_ms: u64,
    max_timeout_ms: u32,
    output_head_bytes: u32,
    output_tail_bytes: u32,
    approval_timeout_ms: u64,
}

impl Limits {
    fn new(approval_timeout: Duration) -> Self {
        Self {
            channels: MAX_CHANNELS,
            channels_per_token: MAX_CHANNELS_PER_TOKEN,
            in_flight_calls_per_workspace: MAX_IN_FLIGHT,
            frame_bytes: MAX_FRAME_BYTES,
            list_entries: 500,
            read_bytes: 131_072,
            write_characters: 1_048_576,
            poll_bytes: 131_072,
            poll_wait_ms: 2000,
            input_characters: 16_384,
            commands_per_session: 16,
            default_timeout_ms: DEFAULT_TIMEOUT_MS,
            max_timeout_ms: 600_000,
            output_head_bytes: 8 << 20,
            output_tail_bytes: 56 << 20,
            approval_timeout_ms: u64::try_from(approval_timeout.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Tools {
    pub(super) async fn info(&self, call: &Call) -> Answer {
        let mut filesystem = self.0.clients.filesystem.clone();
        let (project, sandbox) =
            tokio::join!(hop(filesystem.describe(DescribeRequest {})), self.sandbox());
        let project = project?;
        let mut instructions = Vec::new();
        for file in project.instructions {
            // By a link every file of the project could be told as one of these.
            let permitted = match &file.resolved_path {
                Some(place) => self.may_read(call, place).await?,
                None => true,
            };
            if permitted {
                instructions.push(file.into());
            }
        }
        let mut info = Info {
            workspace_id: &call.workspace_id,
            session_id: &call.session_id,
            intention: &call.intention,
            name: project.name,
            protocol: PROTOCOL,
            platform: Platform {
                os: consts::OS,
                arch: consts::ARCH,
                family: consts::FAMILY,
            },
            mode: self.0.control.mode().as_str(),
            sandbox: sandbox.unwrap_or_else(|_| "unknown".to_owned()),
            instructions,
            limits: Limits::new(self.0.approval_timeout),
        };
        // Instructions of control characters outgrow a frame; `size` tells that they go on.
        loop {
            match Reply::success(&info) {
                Err(failure) if failure.code == ErrorCode::TooLarge && halve(&mut info) => {}
                answer => return answer,
            }
        }
    }

    /// Whether a file may be read unattended.
    async fn may_read(&self, call: &Call, path: &str) -> Result<bool, Failure> {
        let request = DecideRequest {
            workspace_id: call.workspace_id.clone(),
            session_id: call.session_id.clone(),
            tool: "workspace_read".to_owned(),
            args_json: json!({"path": path}).to_string().into(),
            mode: policy_mode(self.0.control.mode()).into(),
            ..DecideRequest::default()
        };
        let decision = hop(self.0.clients.policy.clone().decide(request)).await?;
        Ok(decision.verdict() == Verdict::Allow)
    }

    async fn sandbox(&self) -> Result<String, Failure> {
        let request = HeartbeatRequest {
            workspace_id: self.0.control.workspace_id().to_string(),
            incarnation: self.0.control.incarnation(),
        };
        let mut exec = self.0.clients.exec.clone();
        Ok(hop_within(SANDBOX_PATIENCE, exec.heartbeat(request))
            .await?
            .sandbox)
    }
}

/// Cuts every instruction file to half of its present content. Tells whether there was anything to cut.
fn halve(info: &mut Info<'_>) -> bool {
    let mut cut = false;
    for file in &mut info.instructions {
        cut |= !file.content.is_empty();
        let mut end = file.content.len() / 2;
        while !file.content.is_char_boundary(end) {
            end -= 1;
        }
        file.content.truncate(end);
    }
    cut
}
