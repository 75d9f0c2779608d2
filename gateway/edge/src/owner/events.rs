//! Changes of receipts as they happen.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, StreamExt as _, stream};
use postern_kit::Problem;
use postern_proto::ledger::v1::{WatchRequest, WatchResponse};
use tokio::sync::OwnedSemaphorePermit;
use tonic::{Code, Streaming};

use super::{EVENT_STREAMS, receipts, reply::Refusal};

/// Time between two signs of life on an event stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A watch of the ledger and the place that it takes for as long as it lasts.
struct Watch {
    changes: Streaming<WatchResponse>,
    _place: OwnedSemaphorePermit,
}

/// `GET /owner/v1/events`: each change of a receipt, as it happens.
pub(super) async fn events(
    State(state): State<super::State>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let place = Arc::clone(&state.streams)
        .try_acquire_owned()
        .map_err(|_| too_many())?;
    let workspace_id = state.control.workspace_id().to_string();
    let mut ledger = state.ledger.clone();
    let changes = ledger.watch(WatchRequest { workspace_id }).await?;
    let watch = Watch {
        changes: changes.into_inner(),
        _place: place,
    };
    // Without the stop an open stream would hold up the shutdown for the whole of the drain.
    let events = stream::unfold(watch, next).take_until(state.stop.cancelled_owned());
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// The next event. A watcher that the ledger lets go ends its stream; the client comes back and reads what it missed.
async fn next(mut watch: Watch) -> Option<(Result<Event, Infallible>, Watch)> {
    loop {
        if let Some(receipt) = watch.changes.message().await.ok()??.receipt {
            let event = Event::default()
                .event("receipt")
                .data(receipts::to_json(&receipt).to_string());
            return Some((Ok(event), watch));
        }
    }
}

fn too_many() -> Refusal {
    Refusal(Problem::new(
        Code::Unavailable,
        "too_many_event_streams",
        format!("There are {EVENT_STREAMS} event streams already. Close one and try again."),
    ))
}
