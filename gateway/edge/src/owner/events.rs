//! What happens, as it happens: changes of receipts, of the edge, and of the inbox.

use std::{convert::Infallible, pin::Pin, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, StreamExt as _, stream};
use postern_kit::Problem;
use postern_proto::ledger::v1::{InboxKind, WatchRequest, WatchResponse};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Streaming};

use super::{
    EVENT_STREAMS, access::Caller, inbox, logins::Logins, receipts, reply::Refusal, status,
};
use crate::{
    call::Key,
    control::{self, CallInFlight},
    owner_tools::Following,
};

/// Time between two signs of life on an event stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time after which a browser whose stream ended comes back.
const RETRY: Duration = Duration::from_secs(2);

/// A watch of the ledger and of the edge, and the place that it takes for as long as it lasts.
struct Watch {
    state: super::State,
    changes: Streaming<WatchResponse>,
    calls: watch::Receiver<Vec<(Key, CallInFlight)>>,
    tools: Following,
    seen: control::Status,
    /// Whether the inbox has to be counted.
    count: bool,
    _place: OwnedSemaphorePermit,
}

/// `GET /owner/v1/events`: `receipt` for each change of a receipt, `status` for each of the edge (as `GET /owner/v1/status`
/// tells it), and `inbox` with the number of items that wait, at the start and whenever one comes or goes.
pub(super) async fn events(
    State(state): State<super::State>,
    Extension(caller): Extension<Caller>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let place = Arc::clone(&state.streams)
        .try_acquire_owned()
        .map_err(|_| too_many())?;
    let workspace_id = state.control.workspace_id().to_string();
    let mut ledger = state.ledger.clone();
    let changes = ledger.watch(WatchRequest { workspace_id }).await?;
    let end = end(state.stop.clone(), Arc::clone(&state.logins), caller);
    let watch = Watch {
        changes: changes.into_inner(),
        calls: state.control.follow_calls(),
        tools: state.control.follow_tools(),
        seen: state.control.status(),
        count: true,
        state,
        _place: place,
    };
    let events: Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>> =
        Box::pin(stream::unfold(watch, next).take_until(end));
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// What ends a stream that would never end by itself. Without the stop an open one would hold up the shutdown for the whole of the
/// drain; and a browser hears nothing any more once its login is over.
async fn end(stop: CancellationToken, logins: Arc<Logins>, caller: Caller) {
    match caller {
        Caller::Token => stop.cancelled().await,
        Caller::Console { session } => tokio::select! {
            () = stop.cancelled() => {}
            () = logins.over(session) => {}
        },
    }
}

/// The next event. A watcher that the ledger lets go ends its stream; the client comes back and reads what it missed.
async fn next(mut watch: Watch) -> Option<(Result<Event, Infallible>, Watch)> {
    if std::mem::take(&mut watch.count) {
        let waiting = inbox::count(&watch.state).await.ok()?;
        let told = json!({"waiting": waiting});
        let event = Event::default().event("inbox").retry(RETRY);
        return Some((Ok(event.data(told.to_string())), watch));
    }
    loop {
        let Watch {
            state,
            changes,
            calls,
            tools,
            seen,
            ..
        } = &mut watch;
        tokio::select! {
            change = changes.message() => {
                let Some(receipt) = change.ok()??.receipt else { continue };
                watch.count = receipt.inbox_kind() != InboxKind::Unspecified;
                let data = receipts::to_json(&receipt).to_string();
                return Some((Ok(Event::default().event("receipt").data(data)), watch));
            }
            now = state.control.changed(seen) => *seen = now,
            // The sender lives in the state.
            _ = calls.changed() => {}
            () = tools.changed() => {}
        }
        let data = status::describe(state).await.to_string();
        return Some((Ok(Event::default().event("status").data(data)), watch));
    }
}

fn too_many() -> Refusal {
    Refusal(Problem::new(
        Code::Unavailable,
        "too_many_event_streams",
        format!("There are {EVENT_STREAMS} event streams already. Close one and try again."),
    ))
}
