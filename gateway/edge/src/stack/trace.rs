//! The outermost layer: every call has a span and an answer, and is counted.

use std::{panic::AssertUnwindSafe, time::Instant};

use futures_util::FutureExt as _;
use postern_kit::{Failure, metrics, trace};
use postern_proto::catalogue;
use postern_types::ErrorCode;

use super::layer::{Inner, Stage};
use crate::{
    call::Call,
    reply::{Answer, Reply},
};

#[derive(Debug)]
pub(super) struct Trace;

impl Stage<Call> for Trace {
    type Inner = Call;

    async fn handle<I: Inner<Call>>(&self, call: Call, inner: I) -> Answer {
        // A name that is none of ours is the agent's text, and stays out of spans and figures.
        let tool = label(&call.tool);
        let since = Instant::now();
        let span = trace::answer(&call.call_id, tool);
        let answered = async {
            let answer = AssertUnwindSafe(inner.answer(call)).catch_unwind().await;
            let reply = match answer {
                Ok(Ok(reply)) => reply,
                Ok(Err(failure)) => Reply::failure(&failure),
                Err(_panic) => {
                    tracing::error!("a call panicked");
                    Reply::failure(&Failure::new(
                        ErrorCode::Internal,
                        "The call failed inside Postern. The owner's log tells more; sent again with the same id, it is looked into.",
                    ))
                }
            };
            tracing::info!(tool, outcome = reply.outcome(), "call answered");
            metrics::CALLS.add([tool, reply.outcome()], 1);
            metrics::CALL_SECONDS_TAKEN.time([tool], since.elapsed());
            reply
        };
        let reply = span.run(answered).await;
        span.outcome(reply.outcome());
        Ok(reply)
    }
}

/// A tool's name where figures are kept: its own, or one name for all that are none of ours.
fn label(tool: &str) -> &'static str {
    catalogue::workspace_tool(tool).map_or(metrics::OTHER, |tool| &tool.name)
}
