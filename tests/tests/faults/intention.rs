//! A start of `up` that changes the intention, killed at each of its steps: the next start needs no more than to be started,
//! and works under the old intention or the new one, both ends alike.

use std::{ffi::OsString, time::Duration};

use postern_tests::{FaultPoints, INTENTION, Strike, World, text_of};
use pretty_assertions::assert_eq;
use serde_json::json;

/// For a start to be ready, or killed.
const LIMIT: Duration = Duration::from_secs(60);
const CHANGED: &str = "Something else";
/// Where the change passes, in its order.
const STEPS: &[&str] = &[
    "identity.launch.before",
    "identity.launch.after",
    "start.up.json.staged",
    "start.up.json.named",
    "identity.pin.before",
    "identity.pin.after",
];
/// Where it is noted that the pin is made.
const NOTED: &[&str] = &["start.up.json.staged", "start.up.json.named"];

/// `up` without a word of its intention, and further arguments.
fn arguments(world: &World, further: &[&str]) -> Vec<OsString> {
    let mut arguments = world.up_arguments("full", further);
    let at = arguments.iter().position(|word| word == "--intention");
    let at = at.expect("an intention");
    arguments.drain(at..at + 2);
    arguments
}

/// A project that was opened once, and is closed.
async fn opened_before() -> (World, FaultPoints) {
    let (world, faults) = World::with_fault_points();
    assert_eq!(world.up("full").await.stop().await.code, Some(0));
    (world, faults)
}

/// Tells the intention that the next start works under.
async fn intention_of_the_next(world: &World, point: &str) -> String {
    let door = world.up_of(&arguments(world, &[])).await;
    let write = json!({"path": "a.txt", "content": "a", "expectedSha256": null});
    let answer = door.agent().call("workspace_write", write).await;
    assert!(!answer.is_error, "{point}: {answer:?}");
    assert_eq!(door.stop().await.code, Some(0), "{point}");
    text_of(&door_line(world).await, "intention")
}

/// The ready line of one more start: what was found out stays so.
async fn door_line(world: &World) -> serde_json::Value {
    let door = world.up_of(&arguments(world, &[])).await;
    let line = door.ready.line.clone();
    door.stop().await;
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_intention_is_made_or_not_wherever_it_is_killed() {
    let change = ["--intention", CHANGED, "--repin"];
    let mut kills = 0;
    for point in STEPS {
        let (world, faults) = opened_before().await;
        faults.arm(point, Strike::Kill);
        let mut program = world.start(&arguments(&world, &change));
        let ready = program.event_or_end("ready", LIMIT).await;
        assert_eq!(ready, None, "{point} was not reached");
        kills += 1;
        let intention = intention_of_the_next(&world, point).await;
        assert!(
            [INTENTION, CHANGED].contains(&intention.as_str()),
            "{point}: {intention}"
        );
    }
    for point in NOTED {
        let (world, faults) = opened_before().await;
        let pinned = "identity.pin.after";
        faults.arm(pinned, Strike::Hold);
        let mut program = world.start(&arguments(&world, &change));
        faults.hit(pinned, LIMIT).await;
        faults.arm(point, Strike::Kill);
        faults.release(pinned);
        let ready = program.event_or_end("ready", LIMIT).await;
        assert_eq!(ready, None, "{point} was not reached");
        kills += 1;
        assert_eq!(
            intention_of_the_next(&world, point).await,
            CHANGED,
            "{point}"
        );
    }
    eprintln!("changes of intention: kills: {kills}");
}
