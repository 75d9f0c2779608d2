//! The life of a question (B64): one item whoever looks and however often it is asked, one answer, and an end.

use std::time::Duration;

use http::{Method, StatusCode};
use postern_tests::{Agent, Answer, Owner, World, text_of, wait_for};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// For an item to reach the inbox.
const ITEM_LIMIT: Duration = Duration::from_secs(30);

async fn waiting(owner: &Owner) -> Value {
    wait_for("an item in the inbox", ITEM_LIMIT, || async {
        owner.inbox().await.into_iter().next()
    })
    .await
}

/// Asks under one id, and again whenever the owner had closed the channel meanwhile.
async fn ask(agent: &Agent, question: &Value) -> Answer {
    loop {
        let answer = agent.call_as("question-1", "workspace_ask", question).await;
        if answer.code() != "UNAVAILABLE" {
            return answer;
        }
    }
}

fn question() -> Value {
    json!({"question": "Which colour?"})
}

fn answer(text: &str) -> Value {
    json!({"decision": "answer", "answer": text})
}

/// B64: two owners see the same question once each, also after they and the agent's end were away; of two answers at the same
/// moment the first counts, the other is told it, and every request of the agent gets that one.
#[tokio::test]
async fn a_question_is_one_item_and_has_one_answer() {
    let world = World::new();
    let door = world.up("ask").await;
    let (one, two) = (door.owner(), door.owner());
    let (agent, again) = (door.agent(), door.agent());
    let question = question();
    let decide = async {
        let item = waiting(&one).await;
        assert_eq!(item["kind"], "question");
        // The owners look, go and come back; the channel drops and comes back, and the call with it.
        for open in [false, true] {
            let body = json!({ "open": open });
            let switched = one
                .send(Method::POST, "/owner/v1/channel", Some(&body))
                .await;
            assert_eq!(switched.status, StatusCode::OK);
            wait_for("the channel", ITEM_LIMIT, || async {
                let status = one.get("/owner/v1/status").await;
                (status["channel"]["connected"] == open).then_some(())
            })
            .await;
        }
        for owner in [&door.owner(), &door.owner(), &one, &two] {
            let items = owner.inbox().await;
            let ids: Vec<_> = items.iter().map(|item| &item["id"]).collect();
            assert_eq!(ids, [&item["id"]], "one item, the same one");
        }
        let id = text_of(&item, "id");
        let (blue, red) = (answer("blue"), answer("red"));
        let (first, second) = tokio::join!(one.decide(&id, &blue), two.decide(&id, &red));
        (id, first, second)
    };
    let (first, second, (id, blue, red)) =
        tokio::join!(ask(&agent, &question), ask(&again, &question), decide);
    let (counted, other, text) = match blue.status {
        StatusCode::OK => (blue, red, "blue"),
        _ => (red, blue, "red"),
    };
    assert_eq!(counted.status, StatusCode::OK, "{}", counted.json);
    assert_eq!(
        (other.status, &other.json["code"]),
        (StatusCode::CONFLICT, &json!("already_decided"))
    );
    // The other one is told what counts.
    let detail = other.json["detail"].as_str().expect("text");
    assert!(detail.ends_with(&format!(": {text}")), "{detail}");
    let first = first.ok();
    assert_eq!((&first["answer"], &first), (&json!(text), &second.ok()));
    let shown = one.get(&format!("/owner/v1/receipts/{id}")).await;
    let recorded = &shown["result"]["structuredContent"]["answer"];
    assert_eq!(recorded, text, "{shown}");
    assert!(one.inbox().await.is_empty());
    assert_eq!(one.receipts_of("question-1").await.len(), 1);
    // Asked again later it is still that answer, and nobody is asked.
    let later = agent
        .call_as("question-1", "workspace_ask", &question)
        .await;
    assert_eq!(later.ok(), first);
}

/// B64: a question that nobody answers ends by itself, which is no yes; an answer that comes later is refused and told so.
#[tokio::test]
async fn an_answer_that_comes_too_late_changes_nothing() {
    let world = World::new();
    let door = world.up_with("ask", &["--approval-timeout", "1"]).await;
    let (agent, owner) = (door.agent(), door.owner());
    let question = question();
    let write = json!({"path": "late.txt", "content": "x", "expectedSha256": null});
    // An item that lives for a second may be gone before anybody looks, so it is found among the receipts.
    let ended = async |call_id: &str| {
        let receipts = owner.receipts_of(call_id).await;
        assert_eq!(receipts.len(), 1, "{receipts:?}");
        text_of(&receipts[0], "id")
    };
    let asked = agent
        .call_as("question-1", "workspace_ask", &question)
        .await;
    let error = asked.refused("APPROVAL_TIMEOUT");
    assert_eq!(error["retryable"], false);
    let id = ended("question-1").await;
    let late = owner.decide(&id, &answer("blue")).await;
    assert_eq!(late.status, StatusCode::CONFLICT, "{}", late.json);
    let written = agent.call_as("write-1", "workspace_write", &write).await;
    let _ = written.refused("APPROVAL_TIMEOUT");
    let id = ended("write-1").await;
    let late = owner.decide(&id, &json!({"decision": "approve"})).await;
    assert_eq!(late.status, StatusCode::CONFLICT, "{}", late.json);
    // The refusal stays what was told, and nothing was done by it.
    let again = agent.call_as("write-1", "workspace_write", &write).await;
    let _ = again.refused("APPROVAL_TIMEOUT");
    let again = agent
        .call_as("question-1", "workspace_ask", &question)
        .await;
    let _ = again.refused("APPROVAL_TIMEOUT");
    assert!(!world.project().join("late.txt").exists());
}

/// B64: the agent gives up while its question waits. The question stays, and its answer is there for whoever asks again by its
/// id; the owner is not asked a second time.
#[tokio::test]
async fn a_question_whose_agent_gave_up_is_still_one_question() {
    let world = World::new();
    let door = world.up("ask").await;
    let owner = door.owner();
    let question = question();
    let gave_up = door.agent();
    let asking = gave_up.call_as("question-1", "workspace_ask", &question);
    let item = tokio::select! {
        answered = asking => panic!("nobody answered: {answered:?}"),
        item = waiting(&owner) => item,
    };
    drop(gave_up);
    let decided = owner.decide(&text_of(&item, "id"), &answer("blue")).await;
    assert_eq!(decided.status, StatusCode::OK);
    let again = door
        .agent()
        .call_as("question-1", "workspace_ask", &question)
        .await;
    assert_eq!(again.ok()["answer"], "blue");
    assert_eq!(owner.receipts_of("question-1").await.len(), 1);
    let second = owner.decide(&text_of(&item, "id"), &answer("red")).await;
    assert_eq!(second.status, StatusCode::CONFLICT);
}
