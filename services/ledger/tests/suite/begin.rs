//! Every outcome of Begin, and who may change what.

use postern_proto::ledger::v1::{
    AbandonRequest, Checkpoint, RefuseRequest, State, VerifyResponse, begin_response::Outcome,
};
use postern_types::{ErrorCode, Sha256};
use pretty_assertions::assert_eq;

use crate::support::{
    Rig, START_MS, Store, call, on_both, open, outcome, replayed, request, started,
};

on_both! {
    a_call_starts_runs_ends_and_is_replayed,
    reusing_an_id_for_other_arguments_or_another_tool_is_a_conflict,
    fifty_equal_requests_at_once_start_one_call,
    a_fenced_incarnation_changes_nothing,
    the_same_end_twice_is_answered_alike_and_another_is_refused,
    an_abandoned_call_frees_its_id_and_leaves_the_lists,
    refusals_are_replayed_and_unkeyed_ones_leave_the_id_free,
    invalid_requests_are_refused_and_name_the_field,
    an_orphan_changes_hands_once_and_then_runs,
}

async fn a_call_starts_runs_ends_and_is_replayed(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    assert_eq!(incarnation, 1);
    let call = call("call-1");
    assert!(matches!(
        rig.lookup(&call, incarnation).await,
        Outcome::Unknown(_)
    ));

    let receipt = started(rig.begin(&call, incarnation).await);
    assert_eq!(receipt.state(), State::Executing);
    assert_eq!(
        (
            receipt.sequence,
            receipt.incarnation,
            receipt.started_at_ms,
            receipt.finished_at_ms
        ),
        (1, 1, Some(START_MS), None)
    );
    assert_eq!(receipt.previous_hash, Sha256::ZERO.to_string());
    assert_eq!(receipt.plan_json, br#"{"path":"a"}"#.as_slice());
    assert_eq!(receipt.policy_id, "mode:full");
    assert_eq!(
        rig.begin(&call, incarnation).await,
        Outcome::Running(receipt.clone())
    );
    assert_eq!(
        rig.lookup(&call, incarnation).await,
        Outcome::Running(receipt.clone())
    );

    rig.advance(5);
    let ended = rig
        .complete(&receipt, incarnation, State::Completed, "{\"a\": 1}")
        .await
        .expect("ends");
    assert_eq!(
        (ended.state(), ended.outcome.as_str(), ended.finished_at_ms),
        (State::Completed, "ok", Some(START_MS + 5))
    );
    assert_eq!(ended.previous_hash, receipt.hash);
    let expected = (ended.clone(), "{\"a\": 1}".to_owned());
    assert_eq!(replayed(rig.begin(&call, incarnation).await), expected);
    assert_eq!(replayed(rig.lookup(&call, incarnation).await), expected);
    assert_eq!(rig.get(&receipt.id).await, ended);
    assert_eq!(
        rig.verify().await,
        VerifyResponse {
            valid: true,
            events: 2,
            receipts: 1,
            heads: vec![Checkpoint {
                workspace_id: call.workspace_id,
                sequence: 2,
                hash: ended.hash,
            }],
            ..VerifyResponse::default()
        }
    );
}

/// B50: the same key with other arguments or another tool never gets the old answer, and never acts.
async fn reusing_an_id_for_other_arguments_or_another_tool_is_a_conflict(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let mut call = call("call-1");
    call.args_sha256 = postern_types::args_sha256(r#"{"command":"echo 1 >> log","cwd":"."}"#)
        .expect("digest")
        .to_string();
    let receipt = started(rig.begin(&call, incarnation).await);
    let ended = rig
        .complete(&receipt, incarnation, State::Completed, "done")
        .await
        .expect("ends");

    let mut other_arguments = call.clone();
    other_arguments.args_sha256 = Sha256::of(b"echo 2").to_string();
    let mut other_tool = call.clone();
    other_tool.tool = "workspace_write".to_owned();
    for other in [other_arguments, other_tool] {
        for found in [
            rig.begin(&other, incarnation).await,
            rig.lookup(&other, incarnation).await,
        ] {
            assert_eq!(found, Outcome::Conflict(ended.clone()));
        }
    }
    call.args_sha256 =
        postern_types::args_sha256("{ \"cwd\": \".\",\n\"command\": \"echo 1 >> log\" }")
            .expect("digest")
            .to_string();
    assert_eq!(replayed(rig.begin(&call, incarnation).await).0, ended);
    assert_eq!(rig.verify().await.events, 2);
}

/// B51: of equal requests at once exactly one acts, and the key of one that had no effect is free again.
async fn fifty_equal_requests_at_once_start_one_call(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    for round in 0..4 {
        let call = call(&format!("call-{round}"));
        let requests: Vec<_> = (0..50)
            .map(|_| {
                let (mut client, request) = (rig.client.clone(), request(&call, incarnation));
                #[expect(clippy::disallowed_methods, reason = "joined below")]
                tokio::spawn(async move { outcome(client.begin(request).await) })
            })
            .collect();
        let (mut first, mut others) = (Vec::new(), Vec::new());
        for request in requests {
            match request.await.expect("joins").expect("no caller fails") {
                Outcome::Started(receipt) => first.push(receipt),
                Outcome::Running(receipt) => others.push(receipt),
                other @ (Outcome::Replay(_)
                | Outcome::Orphaned(_)
                | Outcome::Conflict(_)
                | Outcome::Awaiting(_)
                | Outcome::Unknown(_)) => panic!("{other:?}"),
            }
        }
        assert_eq!((first.len(), others.len()), (1, 49));
        assert!(others.iter().all(|other| *other == first[0]));
        rig.client
            .clone()
            .abandon(AbandonRequest {
                receipt_id: first[0].id.clone(),
                incarnation,
            })
            .await
            .expect("abandons");
        let again = started(rig.begin(&call, incarnation).await);
        assert_ne!(again.id, first[0].id);
    }
    rig.assert_valid().await;
}

async fn an_orphan_changes_hands_once_and_then_runs(store: fn() -> Store) {
    for by_lookup in [false, true] {
        let rig = Rig::on(store()).await;
        let old = rig.incarnation().await;
        let call = call("call-1");
        let receipt = started(rig.begin(&call, old).await);
        let (new, orphans) = open(&mut rig.client.clone()).await;
        assert_eq!((new, orphans), (2, 1));

        let early = rig
            .complete(&receipt, new, State::Completed, "guessed")
            .await
            .expect_err("not adopted yet");
        assert_eq!(early.details["reason"], "wrong-state");
        let found = if by_lookup {
            rig.lookup(&call, new).await
        } else {
            rig.begin(&call, new).await
        };
        let Outcome::Orphaned(adopted) = found else {
            panic!("{found:?}");
        };
        assert_eq!(
            (adopted.id.as_str(), adopted.incarnation, adopted.sequence),
            (receipt.id.as_str(), new, 2)
        );
        assert_eq!(
            rig.begin(&call, new).await,
            Outcome::Running(adopted.clone())
        );
        let ended = rig.complete(&adopted, new, State::Uncertain, "?").await;
        assert_eq!(ended.expect("ends").state(), State::Uncertain);
        assert_eq!(replayed(rig.begin(&call, new).await).1, "?");
        rig.assert_valid().await;
    }
}

async fn a_fenced_incarnation_changes_nothing(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let old = rig.incarnation().await;
    let receipt = started(rig.begin(&call("call-1"), old).await);
    let new = rig.incarnation().await;
    let refused = [
        rig.complete(&receipt, old, State::Completed, "late")
            .await
            .expect_err("fenced"),
        outcome(
            rig.client
                .clone()
                .begin(request(&call("call-2"), old))
                .await,
        )
        .expect_err("fenced"),
        outcome(
            rig.client
                .clone()
                .begin(request(&call("call-2"), new + 1))
                .await,
        )
        .expect_err("never opened"),
    ];
    for failure in refused {
        assert_eq!(failure.code, ErrorCode::Internal);
        assert_eq!(failure.details["reason"], "fenced");
    }
    let status = rig
        .client
        .clone()
        .begin(request(&call("call-2"), old))
        .await
        .expect_err("fenced");
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert_eq!(rig.get(&receipt.id).await, receipt);
    assert_eq!(rig.verify().await.events, 1);
}

async fn the_same_end_twice_is_answered_alike_and_another_is_refused(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let receipt = started(rig.begin(&call("call-1"), incarnation).await);
    let end = rig
        .complete(&receipt, incarnation, State::Completed, "one")
        .await
        .expect("ends");
    let again = rig
        .complete(&receipt, incarnation, State::Completed, "one")
        .await;
    assert_eq!(again.expect("the same"), end);
    for (state, result) in [(State::Completed, "two"), (State::Uncertain, "one")] {
        let other = rig.complete(&receipt, incarnation, state, result).await;
        assert_eq!(
            other.expect_err("another end").details["reason"],
            "wrong-state"
        );
    }
    assert_eq!(rig.verify().await.events, 2);
}

async fn an_abandoned_call_frees_its_id_and_leaves_the_lists(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let call = call("call-1");
    let receipt = started(rig.begin(&call, incarnation).await);
    let abandon = AbandonRequest {
        receipt_id: receipt.id.clone(),
        incarnation,
    };
    for _ in 0..2 {
        let abandoned = rig.client.clone().abandon(abandon.clone()).await;
        abandoned.expect("abandons, and says so again");
    }
    assert!(matches!(
        rig.lookup(&call, incarnation).await,
        Outcome::Unknown(_)
    ));
    assert_eq!(rig.list(Default::default()).await, []);
    assert_eq!(rig.get(&receipt.id).await.outcome, "UNAVAILABLE");
    let rig = rig.restart().await;
    let incarnation = rig.incarnation().await;
    assert!(matches!(
        rig.lookup(&call, incarnation).await,
        Outcome::Unknown(_)
    ));
    let again = started(rig.begin(&call, incarnation).await);
    assert_ne!(again.id, receipt.id);
    let ended = rig
        .complete(&again, incarnation, State::Completed, "x")
        .await;
    ended.expect("ends");
    let failure = rig
        .client
        .clone()
        .abandon(AbandonRequest {
            receipt_id: again.id,
            incarnation,
        })
        .await
        .expect_err("it ended");
    assert_eq!(failure.code(), tonic::Code::FailedPrecondition);
    rig.assert_valid().await;
}

async fn refusals_are_replayed_and_unkeyed_ones_leave_the_id_free(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let refuse = |id: &str, unkeyed| RefuseRequest {
        call: Some(call(id)),
        incarnation,
        outcome: "PERMISSION_DENIED".to_owned(),
        result: b"no".as_slice().into(),
        policy_id: "rule".to_owned(),
        unkeyed,
    };
    let refused = rig.client.clone().refuse(refuse("call-1", false)).await;
    let receipt = started(outcome(refused).expect("refuses"));
    assert_eq!(receipt.state(), State::Refused);
    let again = rig.client.clone().refuse(refuse("call-1", false)).await;
    let expected = (receipt, "no".to_owned());
    assert_eq!(replayed(outcome(again).expect("replays")), expected);
    assert_eq!(
        replayed(rig.begin(&call("call-1"), incarnation).await),
        expected
    );

    for _ in 0..2 {
        let refused = rig.client.clone().refuse(refuse("call-2", true)).await;
        started(outcome(refused).expect("refuses"));
    }
    started(rig.begin(&call("call-2"), incarnation).await);
    assert_eq!(rig.list(Default::default()).await.len(), 4);
    rig.assert_valid().await;
}

async fn invalid_requests_are_refused_and_name_the_field(store: fn() -> Store) {
    let rig = Rig::on(store()).await;
    let incarnation = rig.incarnation().await;
    let mut long = call("call-1");
    long.session_id = "x".repeat(201);
    let mut blank = call("call-1");
    blank.args_sha256 = String::new();
    for (bad, field) in [(long, "call.session_id"), (blank, "call.args_sha256")] {
        let failure = outcome(rig.client.clone().begin(request(&bad, incarnation)).await)
            .expect_err("invalid");
        assert_eq!(failure.code, ErrorCode::InvalidArguments);
        assert!(failure.message.starts_with(field), "{failure}");
    }
    let mut unavailable = RefuseRequest {
        call: Some(call("call-1")),
        incarnation,
        outcome: "UNAVAILABLE".to_owned(),
        ..RefuseRequest::default()
    };
    let failure = outcome(rig.client.clone().refuse(unavailable.clone()).await);
    assert_eq!(
        failure.expect_err("no outcome").code,
        ErrorCode::InvalidArguments
    );
    unavailable.outcome = "NOT_FOUND".to_owned();
    unavailable.incarnation = 0;
    let failure =
        outcome(rig.client.clone().refuse(unavailable).await).expect_err("no incarnation");
    assert_eq!(failure.details["reason"], "fenced");
}
