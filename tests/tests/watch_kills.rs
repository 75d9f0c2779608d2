//! `postern watch`, and an edge that is killed in the middle of a decision: before it has heard of it, and once it is recorded.
//! What the owner decided counts once, or is his to decide again; the agent gets the one result by the same id.

use std::{ffi::OsString, time::Duration};

use postern_tests::{Answer, Door, Terminal, World, process, text_of, wait_for};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

/// What the view demands between an item's coming and a key that decides on it, and some more.
const GUARD: Duration = Duration::from_millis(700);
/// For a killed edge to be met again, and for what was decided to have happened.
const LIMIT: Duration = Duration::from_secs(60);
/// The call that is decided on. Its agent asks by it again.
const CALL: &str = "the-call";

/// A decision by keys.
struct Decision {
    /// As the receipt names it.
    name: &'static str,
    keys: &'static str,
    /// What is typed when the edge was killed before it heard of it: what the owner wrote is still there.
    keys_again: &'static str,
    tool: &'static str,
}

const DECISIONS: [Decision; 4] = [
    Decision {
        name: "approve",
        keys: "a",
        keys_again: "a",
        tool: "workspace_write",
    },
    Decision {
        name: "approve_session",
        keys: "s",
        keys_again: "s",
        tool: "workspace_write",
    },
    Decision {
        name: "deny",
        keys: "dnot this one\r",
        keys_again: "\r",
        tool: "workspace_write",
    },
    Decision {
        name: "answer",
        keys: "rblue\r",
        keys_again: "\r",
        tool: "workspace_ask",
    },
];

impl Decision {
    fn arguments(&self) -> Value {
        match self.tool {
            "workspace_ask" => json!({"question": "Which colour?"}),
            _ => json!({"path": "new.txt", "content": "content", "expectedSha256": null}),
        }
    }

    /// What the screen shows of the item.
    fn sign(&self) -> &'static str {
        match self.tool {
            "workspace_ask" => "Which colour?",
            _ => "content: content",
        }
    }

    /// The agent asks for the call by its id, which must have come out as it was decided, and once.
    async fn is_carried_out(&self, scene: &Scene, killed_after_it: bool) {
        let Scene {
            world, door, token, ..
        } = scene;
        let agent = door.agent_with(token);
        let answer: Answer = agent.call_as(CALL, self.tool, &self.arguments()).await;
        match self.name {
            "deny" => {
                let told = answer.refused("APPROVAL_DENIED").to_string();
                assert!(told.contains("not this one"), "{told}");
                assert!(!world.project().join("new.txt").exists());
            }
            "answer" => assert_eq!(answer.ok()["answer"], "blue"),
            // Killed between the decision and the effect, it has none, and says so.
            _ if answer.is_error => {
                let told = answer.refused("NOT_APPLIED");
                assert!(killed_after_it, "{told}");
                assert!(!world.project().join("new.txt").exists());
            }
            _ => {
                assert_eq!(answer.ok()["created"], true, "{}", self.name);
                assert_eq!(world.read("new.txt"), b"content");
            }
        }
        let receipts = door.owner().receipts_of(CALL).await;
        assert_eq!(receipts.len(), 1, "{receipts:?}");
        assert_eq!(receipts[0]["decision"], self.name);
        assert!(door.owner().inbox().await.is_empty());
    }
}

/// The view, with the item of a call that waits under the door.
struct Scene {
    world: World,
    door: Door,
    token: String,
    terminal: Terminal,
}

impl Scene {
    async fn open() -> Self {
        let world = World::new();
        let door = world.up("ask").await;
        let mut arguments = ["watch", "--data-dir"].map(OsString::from).to_vec();
        arguments.push(world.data().into());
        let terminal = world.in_terminal(&arguments);
        Self {
            token: door.ready.agent_token.clone(),
            world,
            door,
            terminal,
        }
    }

    /// Waits until the item can be decided on.
    async fn item(&self, decision: &Decision) {
        self.terminal.shows("open, connected").await;
        self.terminal.shows(decision.sign()).await;
        tokio::time::sleep(GUARD).await;
    }

    /// Makes the call, and does something until the edge is dead.
    async fn call_and_kill(&self, decision: &Decision, kill: impl Future<Output = ()>) {
        let agent = self.door.agent_with(&self.token);
        let arguments = decision.arguments().to_string();
        let call = agent.try_call(Some(CALL), decision.tool, &arguments);
        let kill = async {
            self.item(decision).await;
            kill.await;
            process::signal(self.door.program.pid(), Signal::KILL);
        };
        let _cut_or_not = tokio::join!(call, kill).0;
    }

    async fn start_again(&mut self) {
        self.door.program.kill().await;
        self.terminal.shows("EDGE GONE, trying on").await;
        self.door = self.world.up("ask").await;
    }
}

#[tokio::test]
async fn a_decision_of_which_a_killed_edge_never_heard_is_made_again() {
    for decision in DECISIONS {
        let mut scene = Scene::open().await;
        let deaf = async {
            process::signal(scene.door.program.pid(), Signal::STOP);
            scene.terminal.type_keys(decision.keys);
            // The view has handed it over, and nobody has taken it.
            scene.terminal.shows("… ").await;
        };
        scene.call_and_kill(&decision, deaf).await;
        scene.start_again().await;
        let waiting = scene.door.owner().inbox().await;
        assert_eq!(waiting.len(), 1, "{}: {waiting:?}", decision.name);
        assert_eq!(waiting[0]["decision"], Value::Null);
        scene.item(&decision).await;
        scene.terminal.type_keys(decision.keys_again);
        scene.terminal.shows("Inbox (0)").await;
        decision.is_carried_out(&scene, false).await;
    }
}

#[tokio::test]
async fn a_decision_that_was_recorded_counts_after_the_edge_is_killed() {
    for decision in DECISIONS {
        let mut scene = Scene::open().await;
        let owner = scene.door.owner();
        let recorded = async {
            scene.terminal.type_keys(decision.keys);
            wait_for("the decision to be recorded", LIMIT, || async {
                let receipts = owner.receipts_of(CALL).await;
                (receipts.first()?["decision"] == decision.name).then_some(())
            })
            .await;
        };
        scene.call_and_kill(&decision, recorded).await;
        scene.start_again().await;
        scene.terminal.shows("Inbox (0)").await;
        decision.is_carried_out(&scene, true).await;
        let verified = ["receipts", "verify", "--data-dir"].map(OsString::from);
        let mut arguments = verified.to_vec();
        arguments.push(scene.world.data().into());
        let verified = scene.world.run(&arguments).await;
        assert_eq!(verified.code, Some(0), "{verified:?}");
        assert_ne!(
            text_of(&scene.door.owner().receipts_of(CALL).await[0], "state"),
            "executing"
        );
    }
}
