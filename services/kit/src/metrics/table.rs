//! Every metric, once. Names and labels are what operators' dashboards and alerts stand on: they are never changed, only added to
//! (`docs/tracing.md` tells each).

use super::{Counter, Gauge, Histogram};

/// From a look into memory to the time that an owner has for an approval, in seconds.
const CALL_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 600.0,
];
/// From a good disk to a bad moment of a bad one, in seconds.
const COMMIT_SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];
/// Up to the largest batch of a ledger.
const BATCH_SIZES: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
];

/// Label of a tool that is none of ours.
pub const OTHER: &str = "other";

/// Declares them, and a look at each of them for the test that they can be registered.
macro_rules! table {
    ($($(#[$doc:meta])* $metric:ident: $kind:ident<$labels:literal> = ($($part:expr),* $(,)?);)*) => {
        $($(#[$doc])* pub static $metric: $kind<$labels> = $kind::new($($part),*);)*

        /// Which of them are shown, once each was asked to be.
        #[cfg(test)]
        pub(super) fn registered() -> Vec<(&'static str, bool)> {
            vec![$(($metric.name.name, $metric.values().is_some())),*]
        }
    };
}

table! {
    /// Calls that were answered. `outcome` is `ok` or the error's code.
    CALLS: Counter<2> = (
        "postern_calls_total",
        "Calls of agents that were answered, by tool and outcome (ok, or the code of the error).",
        ["tool", "outcome"],
    );
    /// Time from a call's arrival to its answer.
    CALL_SECONDS_TAKEN: Histogram<1> = (
        "postern_call_duration_seconds",
        "Time from the arrival of a call to its answer, the owner's time included.",
        ["tool"],
        CALL_SECONDS,
    );
    /// Calls that are not answered yet.
    CALLS_IN_FLIGHT: Gauge<0> = (
        "postern_calls_in_flight",
        "Calls of agents that are not answered yet.",
        [],
    );
    /// Time that a call waited at the host for a channel and its turn on it.
    CALL_QUEUE_SECONDS: Histogram<0> = (
        "postern_call_queue_seconds",
        "Time that a call waited at the host for a channel of its workspace and its turn on it.",
        [],
        CALL_SECONDS,
    );
    /// Open channels.
    CHANNELS: Gauge<0> = (
        "postern_channels",
        "Open channels: all of a host, or the one of an edge.",
        [],
    );
    /// Time of one commit of the ledger.
    LEDGER_COMMIT_SECONDS: Histogram<0> = (
        "postern_ledger_commit_seconds",
        "Time that one commit of the ledger took.",
        [],
        COMMIT_SECONDS,
    );
    /// Events in one commit of the ledger.
    LEDGER_BATCH_SIZE: Histogram<0> = (
        "postern_ledger_batch_size",
        "Events that shared one commit of the ledger.",
        [],
        BATCH_SIZES,
    );
    /// Time that a request waited for the ledger's writer.
    LEDGER_QUEUE_SECONDS: Histogram<0> = (
        "postern_ledger_queue_seconds",
        "Time that a request waited until the ledger's writer began with it.",
        [],
        COMMIT_SECONDS,
    );
    /// Requests that the ledger's queue had no room for.
    LEDGER_QUEUE_FULL: Counter<0> = (
        "postern_ledger_queue_full_total",
        "Requests that were refused because the ledger's queue was full.",
        [],
    );
    /// Receipts that ended uncertain.
    RECEIPTS_UNCERTAIN: Counter<0> = (
        "postern_receipts_uncertain_total",
        "Receipts of which nobody could tell whether their effect happened.",
        [],
    );
    /// Receipts that a dead edge left executing.
    RECEIPTS_ORPHANED: Counter<0> = (
        "postern_receipts_orphaned_total",
        "Receipts that an edge left executing when it died, found when the next one started.",
        [],
    );
    /// Spans that were sent.
    SPANS_EXPORTED: Counter<0> = (
        "postern_spans_exported_total",
        "Spans that the collector of traces has taken.",
        [],
    );
    /// Spans that were not.
    SPANS_DROPPED: Counter<1> = (
        "postern_spans_dropped_total",
        "Spans that were lost, by reason: queue_full, not_accepted, or ended (after the last ones were sent).",
        ["reason"],
    );
    /// Running commands.
    EXEC_RUNNING: Gauge<0> = (
        "postern_exec_running",
        "Commands that run in this exec worker.",
        [],
    );
    /// Commands that a worker takes at most.
    EXEC_CAPACITY: Gauge<0> = (
        "postern_exec_capacity",
        "Running commands that this exec worker takes at most.",
        [],
    );
    /// Started commands.
    EXEC_STARTED: Counter<0> = (
        "postern_exec_started_total",
        "Commands that this exec worker has started.",
        [],
    );
    /// Starts that were offered to a worker.
    EXEC_OFFERS: Counter<1> = (
        "postern_exec_offers_total",
        "Starts of commands that this edge offered to an exec worker, by what became of the offer.",
        ["outcome"],
    );
}
