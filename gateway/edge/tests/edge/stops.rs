//! Commands that the owner ends: every stop comes to an end of its own.

use postern_proto::ledger::v1::{BeginRequest, Call, OpenIncarnationRequest, Receipt, State};
use postern_types::{Mode, trace_id};
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    host::PATIENCE,
    real::Real,
    services::{Fault, sha256},
    undo::Door,
};

/// The receipt of the one stop, once it has ended.
async fn ended(real: &Real) -> Receipt {
    let wait = async {
        loop {
            let receipts = real.receipts().await;
            let stop = receipts.into_iter().find(|it| it.tool == "workspace_stop");
            match stop {
                Some(stop) if stop.state() != State::Executing => return stop,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("an end")
}

#[tokio::test]
async fn a_stop_is_carried_out_and_recorded_when_whoever_asked_is_gone() {
    let mut door = Door::open().await;
    let command = door
        .done("workspace_exec", json!({"command": "make"}))
        .await;
    door.real.world.next_effect(Fault::Held);
    let mut browser = TcpStream::connect(door.address).await.expect("connection");
    let request = format!(
        "POST /owner/v1/commands/{}/stop HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer token\r\nContent-Length: 0\r\n\r\n",
        command.id, door.address
    );
    browser.write_all(request.as_bytes()).await.expect("sent");
    door.real.world.until("held", 1).await;
    browser.shutdown().await.expect("the browser leaves");
    let mut rest = Vec::new();
    let hung_up = tokio::time::timeout(PATIENCE, browser.read_to_end(&mut rest)).await;
    hung_up.expect("the server notices").expect("read");
    assert_eq!(rest, b"", "nobody is answered");
    door.real.world.release();
    let receipt = ended(&door.real).await;
    assert_eq!(
        (
            receipt.state(),
            receipt.outcome.as_str(),
            receipt.policy_id.as_str()
        ),
        (State::Completed, "ok", "owner.stop")
    );
    assert_eq!(door.real.world.count("stop"), 1);
}

/// The receipt of a stop that a run left behind which was killed.
async fn left_behind(real: &Real) -> String {
    let mut ledger = real.ledger();
    let opened = ledger.open_incarnation(OpenIncarnationRequest {
        workspace_id: "work".to_owned(),
    });
    let incarnation = opened.await.expect("incarnation").into_inner().incarnation;
    let request = BeginRequest {
        call: Some(Call {
            workspace_id: "work".to_owned(),
            session_id: "session".to_owned(),
            call_id: "postern-owner:1".to_owned(),
            intention: "Mend the roof".to_owned(),
            tool: "workspace_stop".to_owned(),
            args_sha256: sha256("{}"),
            trace_id: trace_id("postern-owner:1"),
            summary: "0193a0e4-0000-7000-8000-000000000000".to_owned(),
        }),
        incarnation,
        policy_id: "owner.stop".to_owned(),
        ..BeginRequest::default()
    };
    ledger.begin(request).await.expect("begin");
    real.receipts().await.remove(0).id
}

#[tokio::test]
async fn a_stop_that_a_killed_run_left_is_looked_into_at_the_next_start() {
    for (acted, expected) in [
        (true, (State::Completed, "ok")),
        (false, (State::Completed, "NOT_APPLIED")),
    ] {
        let real = Real::new().await;
        let receipt_id = left_behind(&real).await;
        if acted {
            real.world.has_acted(&receipt_id);
        }
        let (_running, _channel) = real.start(Mode::Full).await;
        let receipt = ended(&real).await;
        assert_eq!((receipt.state(), receipt.outcome.as_str()), expected);
        assert_eq!(real.world.count("stop"), 0, "it is not done twice");
    }
}
