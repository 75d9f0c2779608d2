//! What must hold of the way from a frame to a permitted call's arguments, whatever the frame says. Compiled for the fuzz
//! target, and for the test that replays its corpus.

use bytes::Bytes;
use postern_kit::Failure;
use postern_proto::{
    catalogue,
    channel::{CallParts, HostFrame, call_frame, parse_host_frame},
};
use postern_types::{ErrorCode, Sha256, args_sha256};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{args, call::Call, reply::Reply};

/// Longest message of a refusal, in bytes: it repeats no more than a few characters of what came.
const MESSAGE_BYTES: usize = 1024;

/// Takes the bytes as a frame when they begin like one, else their first byte as a tool and the rest as its arguments.
/// `decide` asks the policy.
///
/// # Panics
/// When something does not hold.
pub fn check_arguments(data: &[u8], decide: impl FnOnce(&str, &[u8]) -> Result<(), Failure>) {
    let Some(frame) = frame(data) else { return };
    let Ok(text) = std::str::from_utf8(&frame) else {
        return;
    };
    let Ok(HostFrame::Call(parts)) = parse_host_frame(text) else {
        return;
    };
    let raw = parts.args.get().to_owned();
    let call = Call::from_frame(&frame, *parts);
    assert_eq!(call.args(), raw, "the arguments are those of the frame");
    same_digest_in_another_spelling(&raw);
    match decide(&call.tool, &call.args_bytes()) {
        Ok(()) => readable(&call),
        Err(failure) => refused(&call, &failure),
    }
}

fn frame(data: &[u8]) -> Option<Bytes> {
    if data.first() == Some(&b'{') {
        return Some(Bytes::copy_from_slice(data));
    }
    let (number, args) = data.split_first()?;
    let args = RawValue::from_string(std::str::from_utf8(args).ok()?.to_owned()).ok()?;
    let tools = catalogue::workspace_tools();
    let tool = tools
        .get(usize::from(*number))
        .map_or("workspace_none", |tool| tool.name.as_str());
    let parts = CallParts {
        id: "id",
        workspace_id: "workspace",
        session_id: "session",
        intention: "intention",
        tool,
        args: &args,
    };
    call_frame(parts).ok().map(Bytes::from)
}

/// Spaces and the order of keys make no other call.
fn same_digest_in_another_spelling(raw: &str) {
    let digest = |text: &str| args_sha256(text).unwrap_or_else(|_| Sha256::of(text.as_bytes()));
    let Ok(tree) = serde_json::from_str::<Value>(raw) else {
        return;
    };
    let spelled = serde_json::to_string_pretty(&tree).unwrap_or_default();
    if args_sha256(raw).is_ok() {
        assert_eq!(digest(raw), digest(&spelled));
    }
}

/// What the policy lets through, the tools can read: after it only they judge.
fn readable(call: &Call) {
    fn read<'a, T: Deserialize<'a>>(call: &'a Call) -> bool {
        args::read::<T>(call).is_ok()
    }
    assert!(
        catalogue::workspace_tool(&call.tool).is_some(),
        "a tool that does not exist was let through"
    );
    let is_readable = match call.tool.as_str() {
        "workspace_list" => read::<args::List>(call),
        "workspace_read" => args::read::<args::Read>(call).is_ok_and(|it| it.limit <= 131_072),
        "workspace_write" => read::<args::Write>(call),
        "workspace_patch" => args::read::<args::Patch>(call)
            .is_ok_and(|it| !it.old_text.is_empty() && it.old_text != it.new_text),
        "workspace_delete" => read::<args::Delete>(call),
        "workspace_exec" => {
            args::read::<args::Exec>(call).is_ok_and(|it| u32::try_from(it.timeout_ms).is_ok())
        }
        "workspace_poll" => read::<args::Poll>(call),
        "workspace_input" => read::<args::Input>(call),
        "workspace_stop" => read::<args::Stop>(call),
        "workspace_ask" => read::<args::Ask>(call),
        _ => true,
    };
    assert!(is_readable, "{} was let through", call.tool);
}

fn refused(call: &Call, failure: &Failure) {
    assert!(matches!(
        failure.code,
        ErrorCode::InvalidArguments | ErrorCode::UnknownTool
    ));
    assert_eq!(
        failure.code == ErrorCode::UnknownTool,
        catalogue::workspace_tool(&call.tool).is_none()
    );
    assert!(failure.message.len() <= MESSAGE_BYTES);
    assert!(!failure.message.contains(char::is_control));
    let answer = Reply::failure(failure);
    let written = answer.frame(&call.call_id, &call.session_id);
    let written = written.unwrap_or_default();
    assert!(postern_proto::channel::parse_edge_frame(&written).is_ok());
}

#[cfg(test)]
mod tests {
    use postern_policy::{Config, Service};
    use postern_proto::policy::v1::{DecideRequest, Mode, policy_server::Policy as _};

    use super::*;

    #[tokio::test]
    async fn every_kept_call_is_let_through_or_refused() {
        let policy = Service::new(Config::default()).expect("policy");
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/arguments");
        let mut count = 0;
        for file in std::fs::read_dir(corpus).expect("corpus") {
            let data = std::fs::read(file.expect("file").path()).expect("bytes");
            check_arguments(&data, |tool, args| {
                let request = DecideRequest {
                    workspace_id: "workspace".to_owned(),
                    session_id: "session".to_owned(),
                    tool: tool.to_owned(),
                    args_json: args.to_vec().into(),
                    mode: Mode::Full.into(),
                    project_path: "/home/me/project".to_owned(),
                    place: String::new(),
                };
                let decided = policy.decide(tonic::Request::new(request));
                let decided = futures_util::FutureExt::now_or_never(decided);
                decided
                    .expect("the policy does not wait")
                    .map(|_| ())
                    .map_err(Failure::from)
            });
            count += 1;
        }
        assert!(count > 50, "{count} calls");
    }
}
