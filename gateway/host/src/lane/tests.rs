use postern_proto::identity::v1::{Role, Token};
use postern_types::Sha256;
use pretty_assertions::assert_eq;

use super::*;
use crate::{journal::Key, pending::Pending, tokens::Credentials};

fn lane() -> Arc<Lane> {
    let limits = Limits {
        in_flight: 1,
        ..Limits::default()
    };
    Arc::new(Lane::new(limits, Instant::now()))
}

/// Sends a call, and forgets it as if it had been answered.
async fn send_and_forget(lane: &Lane, pending: &Pending, call_id: &str) {
    let key = Key {
        token_id: "agent".to_owned(),
        workspace_id: "w".to_owned(),
        call_id: call_id.to_owned(),
    };
    let entered = pending.enter(key, Sha256::of(b"call"), false);
    let entered = entered.expect("a new call");
    lane.submit(Flight {
        session_id: "s".to_owned(),
        frame: call_id.into(),
        call: entered.first.expect("the first"),
        token: Arc::new(AgentToken {
            credentials: Credentials::new(&Token::default(), "w", "secret", 0),
            role: Role::Owner,
        }),
        turn: lane.turn().await.expect("a turn"),
    });
    assert!(lane.take("s", call_id).is_some());
}

fn is_open(lane: &Lane) -> bool {
    matches!(*lane.presence().borrow(), Presence::Open)
}

#[tokio::test]
async fn a_channel_that_is_let_go_for_its_full_queue_leaves_nobody_waiting_for_it() {
    let (lane, pending) = (lane(), Pending::default());
    let mut attachment = lane.attach(1);
    for call_id in ["1", "2"] {
        send_and_forget(&lane, &pending, call_id).await;
        assert!(is_open(&lane));
    }
    // The edge has answered what it has not read.
    send_and_forget(&lane, &pending, "3").await;
    let close = attachment.closing.try_recv().expect("a close");
    assert_eq!(close.code, close::POLICY_VIOLATION);
    assert!(!is_open(&lane));
    drop(attachment);
    assert!(!is_open(&lane));
    let _next = lane.attach(2);
    assert!(is_open(&lane));
}

#[tokio::test]
async fn a_channel_that_ends_in_any_way_is_gone_and_a_newer_one_stays() {
    let lane = lane();
    let older = lane.attach(1);
    let newer = lane.attach(2);
    drop(older);
    assert!(is_open(&lane));
    drop(newer);
    assert!(!is_open(&lane));
}

/// Between being let in and taking over, an older channel can be overtaken by a newer one.
#[tokio::test]
async fn an_older_channel_that_comes_late_takes_over_from_no_newer_one() {
    let lane = lane();
    let mut newer = lane.attach(2);
    let mut older = lane.attach(1);
    let close = older.closing.try_recv().expect("a close");
    assert_eq!(close.code, close::SUPERSEDED);
    assert!(newer.closing.try_recv().is_err());
    drop(older);
    assert!(is_open(&lane));
}
