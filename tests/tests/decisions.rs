//! Decisions by the API and from the terminal: each counts once, says who made it and when, and counts whatever is killed right
//! after it. (By the console's forms: `console_attacks.rs`; by keys: `watch_kills.rs`.)

use std::time::Duration;

use http::StatusCode;
use postern_tests::{Door, Ended, World, process, text_of, wait_for};
use postern_types::Timestamp;
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

/// For an item to wait.
const SOON: Duration = Duration::from_secs(30);
/// Exit code of what the other side refused.
const REFUSED: Option<i32> = Some(3);

/// One decision: as the API takes it, and as the terminal does with the item's receipt in place of `ID`.
struct Decision {
    name: &'static str,
    body: Value,
    words: &'static [&'static str],
    tool: &'static str,
}

fn decisions() -> [Decision; 4] {
    let decision = |name, body, words, tool| Decision {
        name,
        body,
        words,
        tool,
    };
    [
        decision(
            "approve",
            json!({"decision": "approve"}),
            &["inbox", "approve", "ID"],
            "workspace_write",
        ),
        decision(
            "approve_session",
            json!({"decision": "approve_session"}),
            &["inbox", "approve", "ID", "--session"],
            "workspace_write",
        ),
        decision(
            "deny",
            json!({"decision": "deny", "answer": "not this one"}),
            &["inbox", "deny", "ID", "--reason", "not this one"],
            "workspace_write",
        ),
        decision(
            "answer",
            json!({"decision": "answer", "answer": "blue"}),
            &["inbox", "answer", "ID", "blue"],
            "workspace_ask",
        ),
    ]
}

impl Decision {
    fn arguments(&self) -> Value {
        match self.tool {
            "workspace_ask" => json!({"question": "Which colour?"}),
            _ => json!({"path": "new.txt", "content": "x", "expectedSha256": null}),
        }
    }
}

async fn terminal(world: &World, words: &[&str], item: &str) -> Ended {
    let mut arguments: Vec<String> = words.iter().map(|word| word.replace("ID", item)).collect();
    arguments.extend(["--data-dir".to_owned(), world.data().display().to_string()]);
    world.run(&arguments).await
}

async fn waiting(door: &Door) -> String {
    let item = wait_for("an item", SOON, || async {
        door.owner().inbox().await.into_iter().next()
    })
    .await;
    text_of(&item, "id")
}

/// By which way a decision is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    Api,
    Terminal,
}

async fn decide(world: &World, door: &Door, decision: &Decision, way: Way) -> String {
    let item = waiting(door).await;
    match way {
        Way::Api => {
            let reply = door.owner().decide(&item, &decision.body).await;
            assert_eq!(reply.status, StatusCode::OK, "{}", reply.json);
            assert_eq!(reply.json["decision"], decision.name);
        }
        Way::Terminal => {
            let ended = terminal(world, decision.words, &item).await;
            assert_eq!(ended.code, Some(0), "{ended:?}");
            let told = format!(" decided: {}\n", decision.name);
            assert!(ended.stdout.ends_with(&told), "{ended:?}");
        }
    }
    item
}

/// What the agent is told by its call's id after it all, and whether the file is there just then.
async fn is_carried_out(world: &World, door: &Door, call: &str, decision: &Decision) {
    let answer = door
        .agent()
        .call_as(call, decision.tool, &decision.arguments())
        .await;
    let mut written = false;
    match decision.name {
        "deny" => {
            let told = answer.refused("APPROVAL_DENIED");
            assert_eq!(told["details"]["answer"], "not this one");
        }
        "answer" => assert_eq!(answer.ok()["answer"], "blue"),
        // It was under way when the edge was killed: it happened, or it did not and never will, and that is what is told.
        _ if answer.is_error => drop(answer.refused("NOT_APPLIED")),
        _ => {
            let _written = answer.ok();
            written = true;
        }
    }
    let there = world.project().join("new.txt").exists();
    assert_eq!(there, written, "{}", decision.name);
    let receipts = door.owner().receipts_of(call).await;
    assert_eq!(receipts.len(), 1, "{}", decision.name);
    assert_eq!(receipts[0]["decision"], decision.name);
    assert_eq!(receipts[0]["decidedBy"], "owner");
    // As instants: the text of one may be shorter than that of the other.
    let [asked, decided] =
        ["createdAt", "decidedAt"].map(|time| Timestamp::parse(&text_of(&receipts[0], time)).ok());
    assert!(asked.is_some() && asked <= decided, "{receipts:?}");
    assert!(door.owner().inbox().await.is_empty(), "{}", decision.name);
}

async fn decided_and_killed(way: Way) {
    for decision in decisions() {
        let world = World::new();
        let mut door = world.up("ask").await;
        let call = uuid::Uuid::now_v7().to_string();
        let agent = door.agent();
        let arguments = decision.arguments().to_string();
        let killing = async {
            decide(&world, &door, &decision, way).await;
            process::signal(door.program.pid(), Signal::KILL);
        };
        let calling = agent.try_call(Some(&call), decision.tool, &arguments);
        let (_lost, ()) = tokio::join!(calling, killing);
        door.program.kill().await;
        let door = world.up("ask").await;
        is_carried_out(&world, &door, &call, &decision).await;
    }
}

#[tokio::test]
async fn a_decision_by_the_api_counts_whatever_is_killed_right_after_it() {
    decided_and_killed(Way::Api).await;
}

#[tokio::test]
async fn a_decision_from_the_terminal_counts_whatever_is_killed_right_after_it() {
    decided_and_killed(Way::Terminal).await;
}

/// Where no edge hears it, a decision is none: the terminal says so, and the item waits for the next one.
#[tokio::test]
async fn a_decision_from_the_terminal_that_no_edge_heard_is_made_again() {
    for decision in decisions() {
        let world = World::new();
        let mut door = world.up("ask").await;
        let call = uuid::Uuid::now_v7().to_string();
        let agent = door.agent();
        let arguments = decision.arguments().to_string();
        let killing = async {
            let item = waiting(&door).await;
            process::signal(door.program.pid(), Signal::KILL);
            item
        };
        let calling = agent.try_call(Some(&call), decision.tool, &arguments);
        let (_lost, item) = tokio::join!(calling, killing);
        door.program.kill().await;
        let ended = terminal(&world, decision.words, &item).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("no edge runs on"), "{ended:?}");
        let door = world.up("ask").await;
        assert_eq!(decide(&world, &door, &decision, Way::Terminal).await, item);
        is_carried_out(&world, &door, &call, &decision).await;
    }
}

/// Of two decisions the second is told what counts, by its exit code too, and changes nothing.
#[tokio::test]
async fn whoever_decides_second_is_told_what_counts() {
    let world = World::new();
    let door = world.up("ask").await;
    let agent = door.agent();
    let decide = async {
        let item = waiting(&door).await;
        let first = terminal(&world, &["inbox", "answer", "ID", "blue"], &item).await;
        assert_eq!(first.code, Some(0), "{first:?}");
        for words in [
            &["inbox", "answer", "ID", "red"][..],
            &["inbox", "deny", "ID"],
        ] {
            let second = terminal(&world, words, &item).await;
            assert_eq!(second.code, REFUSED, "{second:?}");
            assert!(
                second.stderr.contains("answer, in the words: blue"),
                "{second:?}"
            );
        }
        for (words, told) in [
            (&["inbox", "approve", "ID"][..], "This is a question"),
            (&["inbox", "approve", "no receipt"], "no such receipt"),
            (&["inbox", "deny", "../status?x="], "no such receipt"),
        ] {
            let wrong = terminal(&world, words, &item).await;
            assert_eq!(wrong.stdout, "", "{wrong:?}");
            assert!(wrong.stderr.contains(told), "{wrong:?}");
        }
    };
    let question = json!({"question": "Which colour?"});
    let (answered, ()) = tokio::join!(agent.call("workspace_ask", question), decide);
    assert_eq!(answered.ok()["answer"], "blue");
}
