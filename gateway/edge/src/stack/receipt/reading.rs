//! Reading calls: answered first, recorded for the audit afterwards.

use std::sync::Arc;

use bytes::Bytes;
use postern_kit::{Failure, task::Tasks};
use postern_proto::ledger::v1::RecordRequest;
use tokio::sync::mpsc;

use super::{Ledger, Permit, Receipts};
use crate::{
    call::Call,
    clients::is_passing,
    reply::Reply,
    stack::{judge::Verdict, layer::Inner, replay::Claim},
};

/// Records waiting for the ledger. Each keeps its answer for as long, so the bound is one of memory too.
const RECORD_QUEUE: usize = 64;

/// One finished reading call. Its ids stay claimed until the ledger knows them, so that the same id with other arguments
/// is caught without a gap.
type Record = (RecordRequest, Arc<Claim>);

#[derive(Debug)]
pub(super) struct Recorder(mpsc::Sender<Record>);

impl Recorder {
    pub(super) fn start(ledger: Ledger, tasks: &Tasks) -> Self {
        let (sender, mut records) = mpsc::channel::<Record>(RECORD_QUEUE);
        // Ends when the stack, and with it the last sender, is gone.
        tasks.spawn("recorder", async move {
            while let Some((request, claim)) = records.recv().await {
                if let Err(failure) = ledger.record(request).await {
                    tracing::warn!(%failure, "a reading call could not be recorded");
                }
                drop(claim);
            }
        });
        Self(sender)
    }

    fn record(&self, record: Record) {
        if self.0.try_send(record).is_err() {
            tracing::warn!("a reading call was not recorded: the ledger is too slow");
        }
    }
}

impl Receipts {
    /// Reads. What links led to is judged before it is told: an `Err` inside is what to make of the call instead.
    pub(super) async fn read<I: Inner<Permit>>(
        &self,
        call: &Arc<Call>,
        claim: Arc<Claim>,
        inner: &I,
    ) -> Result<Result<Reply, Verdict>, Failure> {
        let started = self.clock.now();
        let permit = Permit {
            call: Arc::clone(call),
            receipt: None,
            plan: Bytes::new(),
        };
        let reply = match inner.answer(permit).await {
            Ok(reply) => reply,
            Err(failure) if is_passing(failure.code) => return Err(free_of_effect(failure)),
            Err(failure) => Reply::failure(&failure),
        };
        if let Some(place) = reply.place() {
            match self.judge.judge(call, Some(place)).await {
                Verdict::Allow { .. } => {}
                elsewhere @ (Verdict::Ask(_) | Verdict::Refuse { .. } | Verdict::Away(_)) => {
                    return Ok(Err(elsewhere));
                }
            }
        }
        let request = self.ledger.record_of(
            call,
            &reply,
            started.as_millis(),
            self.clock.now().as_millis(),
        );
        self.recorder.record((request, claim));
        Ok(Ok(reply))
    }
}

/// A reading call has no effect, whatever became of the hop.
fn free_of_effect(failure: Failure) -> Failure {
    Failure {
        effect: postern_kit::Effect::None,
        ..failure
    }
}
