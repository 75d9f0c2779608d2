//! Figures of calls at the host.

use std::time::Instant;

use postern_kit::{Failure, metrics};
use postern_proto::catalogue;

use super::{CallOutcome, outcome};

/// A call that is being counted.
pub(super) struct Counted {
    tool: &'static str,
    since: Instant,
    /// Its place among those in flight; absent where the edge of the same process counts the calls that reach it.
    in_flight: Option<metrics::Entered>,
}

impl Counted {
    /// Begins with a call of a tool.
    pub(super) fn begin(tool: &str, alone: bool) -> Self {
        Self {
            tool: catalogue::workspace_tool(tool).map_or(metrics::OTHER, |tool| &tool.name),
            since: Instant::now(),
            in_flight: alone.then(|| metrics::CALLS_IN_FLIGHT.enter()),
        }
    }

    /// The tool, as figures call it.
    pub(super) const fn tool(&self) -> &'static str {
        self.tool
    }

    /// Counts the answer. What the host itself refused is no edge's to count.
    pub(super) fn end(self, answer: &Result<CallOutcome, Failure>) {
        let outcome = match answer {
            Ok(_) if self.in_flight.is_none() => return,
            Ok(answered) => outcome::outcome(answered.result.get()),
            Err(failure) => failure.code.as_str(),
        };
        metrics::CALLS.add([self.tool, outcome], 1);
        metrics::CALL_SECONDS_TAKEN.time([self.tool], self.since.elapsed());
    }
}
