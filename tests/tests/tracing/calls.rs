//! One call of each kind, with a canary in everything that can be said.

use std::time::Duration;

use postern_tests::{Agent, Owner, text_of, wait_for};
use serde_json::{Value, json};
use uuid::Uuid;

/// For an item to reach the inbox.
const LIMIT: Duration = Duration::from_secs(30);

const BEGIN: &str = "ledger.v1.Ledger/Begin";
const COMPLETE: &str = "ledger.v1.Ledger/Complete";
const RECORD: &str = "ledger.v1.Ledger/Record";

/// A call's id, and methods of services that its trace must have, besides those of each.
pub(crate) type Made = (String, Vec<&'static str>);

pub(crate) fn fresh() -> String {
    Uuid::now_v7().to_string()
}

async fn make(
    agent: &Agent,
    tool: &str,
    arguments: Value,
    code: &str,
    methods: &[&'static str],
) -> (Made, Value) {
    let id = fresh();
    let answer = agent.call_as(&id, tool, &arguments).await;
    assert_eq!(answer.code(), code, "{tool}: {answer:?}");
    ((id, methods.to_vec()), answer.structured)
}

/// Makes the calls.
pub(crate) async fn make_each(agent: &Agent, owner: &Owner) -> Vec<Made> {
    let mut made = Vec::new();
    let write =
        json!({"path": "canary-path.txt", "content": "canary-content", "expectedSha256": null});
    let read = json!({"path": "canary-path.txt"});
    let nowhere = json!({"path": "canary-nowhere"});
    for (tool, arguments, code, methods) in [
        (
            "workspace_write",
            write,
            "",
            &[
                "filesystem.v1.Filesystem/Plan",
                "filesystem.v1.Filesystem/Write",
                BEGIN,
                COMPLETE,
            ][..],
        ),
        (
            "workspace_read",
            read,
            "",
            &[
                "filesystem.v1.Filesystem/Read",
                "ledger.v1.Ledger/Lookup",
                RECORD,
            ],
        ),
        (
            "workspace_read",
            nowhere,
            "NOT_FOUND",
            &["filesystem.v1.Filesystem/Read", RECORD],
        ),
    ] {
        made.push(make(agent, tool, arguments, code, methods).await.0);
    }
    made.extend(make_command(agent).await);
    let question = json!({"question": "canary-question?"});
    let methods = [BEGIN, COMPLETE];
    let asking = make(agent, "workspace_ask", question, "", &methods);
    let ((asked, answer), ()) = tokio::join!(asking, answer_one(owner));
    assert_eq!(answer["answer"], "canary-answer");
    made.push(asked);
    made
}

async fn make_command(agent: &Agent) -> [Made; 3] {
    let command = json!({"command": "echo canary-command; cat"});
    let start = &["exec.v1.Exec/Start", BEGIN, COMPLETE];
    let (started, command) = make(agent, "workspace_exec", command, "", start).await;
    let id = text_of(&command, "commandId");
    let input = json!({"commandId": id, "text": "canary-input\n"});
    let input = make(agent, "workspace_input", input, "", &["exec.v1.Exec/Input"]);
    let (typed, _) = input.await;
    let stop = json!({"commandId": id});
    let stop = make(agent, "workspace_stop", stop, "", &["exec.v1.Exec/Stop"]);
    let (stopped, _) = stop.await;
    [started, typed, stopped]
}

async fn answer_one(owner: &Owner) {
    let item = wait_for("the question", LIMIT, async || {
        owner.inbox().await.into_iter().next()
    })
    .await;
    let answer = json!({"decision": "answer", "answer": "canary-answer"});
    let reply = owner.decide(&text_of(&item, "id"), &answer).await;
    assert!(reply.status.is_success(), "{}", reply.json);
}
