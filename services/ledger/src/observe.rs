//! What is counted and traced of the ledger, beside what its writer does.

use postern_kit::{metrics, trace};

use crate::{Error, store::Read};

/// What spans call the database.
pub(crate) const NAMESPACE: &str = "ledger";

/// A request that finds no room, counted.
pub(crate) fn full() -> Error {
    metrics::LEDGER_QUEUE_FULL.add([], 1);
    Error::QueueFull
}

/// Shows the ledger's figures from its start on.
pub(crate) fn show_metrics() {
    metrics::LEDGER_COMMIT_SECONDS.show();
    metrics::LEDGER_BATCH_SIZE.show();
    metrics::LEDGER_QUEUE_SECONDS.show();
    metrics::LEDGER_QUEUE_FULL.show();
    metrics::RECEIPTS_UNCERTAIN.show();
    metrics::RECEIPTS_ORPHANED.show();
}

/// Has something read in a span of its own.
pub(crate) async fn select<R: Read, T>(
    reader: &R,
    reading: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let span = trace::database(reader.system(), NAMESPACE, "SELECT");
    let read = span.run(reading).await;
    if read.is_err() {
        span.fail("database");
    }
    read
}
