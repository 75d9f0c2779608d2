//! Reading calls: answered first, recorded for the audit afterwards.

use std::sync::Arc;

use bytes::Bytes;
use postern_kit::{Failure, task::Tasks, trace::Place};
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
/// is caught without a gap. It is recorded where it was in its trace.
type Record = (RecordRequest, Arc<Claim>, Place);

#[derive(Debug)]
pub(super) struct Recorder(mpsc::Sender<Record>);

impl Recorder {
    pub(super) fn start(ledger: Ledger, tasks: &Tasks) -> Self {
        let (sender, mut records) = mpsc::channel::<Record>(RECORD_QUEUE);
        // Ends when the stack, and with it the last sender, is gone.
        tasks.spawn("recorder", async move {
            while let Some((request, claim, place)) = records.recv().await {
                if let Err(failure) = place.run(ledger.record(request)).await {
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
        let permit = |plan: Bytes| Permit {
            call: Arc::clone(call),
            receipt: None,
            plan,
        };
        let mut answer = inner.answer(permit(Bytes::new())).await;
        if let Err(failure) = &answer
            && !is_passing(failure.code)
        {
            // It tells of a file, and by links that may be any. So it is told only of a place that is judged.
            match self.tools.location(call).await {
                Ok(None) => {}
                Ok(Some(location)) => {
                    if let Some(elsewhere) =
                        self.forbids(call, location.resolved_path.as_deref()).await
                    {
                        return Ok(Err(elsewhere));
                    }
                    answer = inner.answer(permit(location.to_bytes())).await;
                }
                Err(nowhere) => answer = Err(nowhere),
            }
        }
        let reply = match answer {
            Ok(reply) => reply,
            Err(failure) if is_passing(failure.code) => return Err(free_of_effect(failure)),
            Err(failure) => Reply::failure(&failure),
        };
        if let Some(elsewhere) = self.forbids(call, reply.place()).await {
            return Ok(Err(elsewhere));
        }
        let request = self.ledger.record_of(
            call,
            &reply,
            started.as_millis(),
            self.clock.now().as_millis(),
        );
        self.recorder.record((request, claim, Place::here()));
        Ok(Ok(reply))
    }
}

impl Receipts {
    /// What to make of a call instead, when it may not go unattended to the place to which links lead it.
    async fn forbids(&self, call: &Call, place: Option<&str>) -> Option<Verdict> {
        match self.judge.judge(call, Some(place?)).await {
            Verdict::Allow { .. } => None,
            elsewhere @ (Verdict::Ask(_) | Verdict::Refuse { .. } | Verdict::Away(_)) => {
                Some(elsewhere)
            }
        }
    }
}

/// A reading call has no effect, whatever became of the hop.
fn free_of_effect(failure: Failure) -> Failure {
    Failure {
        effect: postern_kit::Effect::None,
        ..failure
    }
}
