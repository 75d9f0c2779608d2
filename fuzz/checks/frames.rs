//! What must hold of any bytes that arrive as a channel frame, of either direction.
//!
//! Included by the fuzz target and by the test that replays its corpus.

use postern_proto::{
    catalogue::PROTOCOL,
    channel::{self, CallParts, FrameError, HostFrame, close},
};
use serde_json::{Value, value::RawValue};

/// Longest reason of a close frame (RFC 6455, section 5.5.1).
const CLOSE_REASON_BYTES: usize = 123;

/// Reads the bytes as a frame from the host, as one from the edge, and as the arguments of a call.
pub(crate) fn check(data: &[u8]) {
    // What is not UTF-8 never gets as far as the parser.
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    from_host(text);
    from_edge(text);
    as_arguments(text);
}

fn from_host(text: &str) {
    match channel::parse_host_frame(text) {
        Ok(HostFrame::Ready) => {
            let told = tree(text);
            assert_eq!(told["type"], "ready");
            assert_eq!(told["protocol"], PROTOCOL);
        }
        Ok(HostFrame::Call(call)) => {
            let told = tree(text);
            assert_eq!(told["type"], "call");
            assert_eq!(told["protocol"], PROTOCOL);
            assert_eq!(told["id"], *call.id);
            assert_eq!(told["workspaceId"], *call.workspace_id);
            assert_eq!(told["sessionId"], *call.session_id);
            assert_eq!(told["intention"], *call.intention);
            assert_eq!(told["tool"], *call.tool);
            assert_eq!(told["args"], tree(call.args.get()));
            assert!(told["args"].is_object());
            for id in [&call.id, &call.workspace_id, &call.session_id] {
                assert!(channel::is_id(id));
            }
            assert!(channel::is_intention(&call.intention));
            the_same_call_again(&call);
        }
        Err(error) => answered(&error),
    }
}

/// A call that was read, written and read again is the same call, its arguments byte for byte.
fn the_same_call_again(call: &channel::Call<'_>) {
    let frame = channel::call_frame(CallParts {
        id: &call.id,
        workspace_id: &call.workspace_id,
        session_id: &call.session_id,
        intention: &call.intention,
        tool: &call.tool,
        args: call.args,
    })
    .expect("what was read can be written");
    let Ok(HostFrame::Call(again)) = channel::parse_host_frame(&frame) else {
        panic!("a call that was written is not read");
    };
    assert_eq!(again.args.get(), call.args.get());
    assert_eq!(
        (again.id, again.workspace_id, again.session_id),
        (
            call.id.clone(),
            call.workspace_id.clone(),
            call.session_id.clone()
        )
    );
    assert_eq!(
        (again.intention, again.tool),
        (call.intention.clone(), call.tool.clone())
    );
}

fn from_edge(text: &str) {
    match channel::parse_edge_frame(text) {
        Ok(frame) => {
            let told = tree(text);
            assert_eq!(told["type"], "result");
            assert_eq!(told["id"], *frame.id);
            assert_eq!(told["sessionId"], *frame.session_id);
            assert_eq!(told["result"], tree(frame.result.get()));
            let written = channel::result_frame(&frame.id, &frame.session_id, frame.result.get())
                .expect("what was read can be written");
            let again = channel::parse_edge_frame(&written).expect("what was written is read");
            assert_eq!(again.result.get(), frame.result.get());
            assert_eq!((again.id, again.session_id), (frame.id, frame.session_id));
        }
        Err(error) => answered(&error),
    }
}

/// What is said to fit into a frame does, and nothing else.
fn as_arguments(text: &str) {
    let Ok(args) = RawValue::from_string(text.to_owned()) else {
        assert!(channel::check_args(text).is_err());
        return;
    };
    let fits = channel::check_args(text).is_ok() && args.get().starts_with('{');
    let frame = channel::call_frame(CallParts {
        id: "id",
        workspace_id: "workspace",
        session_id: "session",
        intention: "intention",
        tool: "tool",
        args: &args,
    })
    .expect("JSON can be written");
    match channel::parse_host_frame(&frame) {
        Ok(HostFrame::Call(call)) => {
            assert!(fits);
            assert_eq!(call.args.get(), args.get());
        }
        Ok(HostFrame::Ready) => panic!("a call became another frame"),
        Err(error) => {
            assert!(!fits, "{error}");
            answered(&error);
        }
    }
}

fn answered(error: &FrameError) {
    assert!(error.to_string().len() <= CLOSE_REASON_BYTES);
    assert!(matches!(
        error.close_code(),
        close::POLICY_VIOLATION | close::PROTOCOL_ERROR
    ));
}

fn tree(text: &str) -> Value {
    serde_json::from_str(text).expect("a frame is JSON")
}
