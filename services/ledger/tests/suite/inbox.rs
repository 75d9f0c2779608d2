//! The owner's decisions.

use postern_proto::ledger::v1::{
    DecideRequest, DecideResponse, Decision, InboxKind, ListRequest, Receipt, StartRequest, State,
    begin_response::Outcome,
};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use tonic::Status;

use crate::support::{Rig, START_MS, Store, call, on_both, replayed};

on_both! {
    an_approved_call_starts_after_a_restart_of_everything,
    the_first_decision_counts_and_a_denial_never_starts,
    an_approval_after_the_wait_does_not_count,
    a_question_is_answered_and_its_call_completed,
}

async fn decide(
    rig: &Rig,
    receipt: &Receipt,
    decision: Decision,
) -> Result<DecideResponse, Status> {
    let request = DecideRequest {
        receipt_id: receipt.id.clone(),
        decision: decision.into(),
        answer: "words".to_owned(),
        decided_by: "console".to_owned(),
    };
    let response = rig.client.clone().decide(request).await?;
    Ok(response.into_inner())
}

async fn start(rig: &Rig, receipt: &Receipt, incarnation: u64) -> Result<Receipt, Status> {
    let request = StartRequest {
        receipt_id: receipt.id.clone(),
        incarnation,
        plan_json: b"{}".as_slice().into(),
    };
    let response = rig.client.clone().start(request).await?;
    Ok(response.into_inner().receipt.expect("receipt"))
}

async fn an_approved_call_starts_after_a_restart_of_everything(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let call = call("call-1");
    let receipt = rig.ask(&call, incarnation, InboxKind::Approval).await;
    assert_eq!(
        (receipt.state(), receipt.inbox_kind(), receipt.expires_at_ms),
        (
            State::AwaitingOwner,
            InboxKind::Approval,
            Some(START_MS + 600_000)
        )
    );
    assert_eq!(receipt.proposal_json, br#"{"why":"?"}"#.as_slice());
    let undecided = start(&rig, &receipt, incarnation).await;
    assert_eq!(
        undecided.expect_err("undecided").code(),
        tonic::Code::FailedPrecondition
    );

    let rig = rig.restart().await;
    let inbox = ListRequest {
        state: State::AwaitingOwner.into(),
        ..ListRequest::default()
    };
    assert_eq!(
        rig.list(inbox.clone()).await,
        std::slice::from_ref(&receipt)
    );
    let decided = decide(&rig, &receipt, Decision::ApproveSession).await;
    let decided = decided.expect("decides");
    assert!(decided.counted);

    let rig = rig.restart().await;
    let incarnation = rig.incarnation().await;
    let Outcome::Awaiting(waiting) = rig.begin(&call, incarnation).await else {
        panic!("it awaits its start");
    };
    assert_eq!(waiting.decision(), Decision::ApproveSession);
    assert_eq!(
        (waiting.answer.as_str(), waiting.decided_by.as_str()),
        ("words", "console")
    );
    let executing = start(&rig, &receipt, incarnation).await.expect("starts");
    assert_eq!(
        (executing.state(), executing.incarnation),
        (State::Executing, incarnation)
    );
    assert_eq!(executing.plan_json, b"{}".as_slice());
    assert_eq!(rig.list(inbox).await, []);
    rig.complete(&executing, incarnation, State::Completed, "done")
        .await
        .expect("ends");
    assert_eq!(replayed(rig.begin(&call, incarnation).await).1, "done");
    rig.assert_valid().await;
}

async fn the_first_decision_counts_and_a_denial_never_starts(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let receipt = rig
        .ask(&call("call-1"), incarnation, InboxKind::Approval)
        .await;
    assert!(
        decide(&rig, &receipt, Decision::Deny)
            .await
            .expect("decides")
            .counted
    );
    let second = decide(&rig, &receipt, Decision::Approve)
        .await
        .expect("answers");
    assert!(!second.counted);
    assert_eq!(second.receipt.expect("receipt").decision(), Decision::Deny);
    start(&rig, &receipt, incarnation)
        .await
        .expect_err("denied");
    let completed = rig
        .complete(&receipt, incarnation, State::Completed, "acted")
        .await;
    assert_eq!(
        completed.expect_err("never started").details["reason"],
        "wrong-state"
    );
    let refused = rig
        .complete(&receipt, incarnation, State::Refused, "denied")
        .await
        .expect("refuses");
    assert_eq!(refused.state(), State::Refused);
    rig.assert_valid().await;
}

async fn an_approval_after_the_wait_does_not_count(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let receipt = rig
        .ask(&call("call-1"), incarnation, InboxKind::Approval)
        .await;
    rig.advance(600_000);
    let late = decide(&rig, &receipt, Decision::Approve)
        .await
        .expect("answers");
    assert!(!late.counted);
    let told = late.receipt.expect("receipt");
    assert_eq!(
        (
            told.decision(),
            told.decided_by.as_str(),
            told.answer.as_str()
        ),
        (Decision::Expire, "timeout", "")
    );
    start(&rig, &receipt, incarnation)
        .await
        .expect_err("expired");
    rig.assert_valid().await;
}

async fn a_question_is_answered_and_its_call_completed(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let receipt = rig
        .ask(&call("call-1"), incarnation, InboxKind::Question)
        .await;
    let unfit = decide(&rig, &receipt, Decision::Approve).await;
    let unfit = postern_kit::Failure::from(unfit.expect_err("a question is not approved"));
    assert_eq!(unfit.code, ErrorCode::InvalidArguments);
    assert!(
        decide(&rig, &receipt, Decision::Answer)
            .await
            .expect("answers")
            .counted
    );
    let ended = rig
        .complete(&receipt, incarnation, State::Completed, "words")
        .await
        .expect("ends");
    assert_eq!(ended.answer, "words");
    rig.assert_valid().await;
}
