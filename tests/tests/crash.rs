//! Kills without warning, between the effect and the answer, on the real program: the effect happens once, the same
//! ids get a truthful answer afterwards, and the ledger says what happened.
//!
//! From outside, "between the effect and the answer" is hit by watching the disk and killing at once; the moment of
//! the blind kills comes from a seed, which every failure prints (`HARNESS_SEED` sets it).

use std::{fs, path::Path, time::Duration};

use postern_tests::{Agent, Answer, Door, Fault, Seed, World, process, text_of, wait_for};
use postern_types::Sha256;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Kills of the program after the effect was seen.
const SEEN_ROUNDS: u32 = 20;
/// Kills of the program at any moment.
const BLIND_ROUNDS: u32 = 20;
/// Kills of the exec worker.
const WORKER_ROUNDS: u32 = 8;
/// Latest blind kill after the call was sent.
const BLIND_LIMIT: Duration = Duration::from_millis(40);
/// For an effect to be seen.
const EFFECT_LIMIT: Duration = Duration::from_secs(30);
/// For a killed part to work again.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);

/// A project under `up`, restarted after every kill on the same data directory, always with the first agent's token,
/// so that the ids of a call sent again are the ids it had.
struct Survivor {
    world: World,
    door: Door,
    token: String,
    /// Calls whose answer never came.
    cut: u32,
}

impl Survivor {
    async fn start() -> Self {
        let world = World::new();
        let door = world.up("full").await;
        let token = door.ready.agent_token.clone();
        Self {
            world,
            door,
            token,
            cut: 0,
        }
    }

    fn agent(&self) -> Agent {
        self.door.agent_with(&self.token)
    }

    /// Sends a call and kills the program when `moment` is over; what the agent still got, if anything.
    async fn call_and_kill(
        &mut self,
        id: &str,
        (tool, arguments): (&str, &Value),
        moment: impl Future<Output = ()>,
    ) -> Result<Answer, Fault> {
        let agent = self.agent();
        let arguments = arguments.to_string();
        let call = agent.try_call(Some(id), tool, &arguments);
        let kill = async {
            moment.await;
            self.door.program.kill().await;
        };
        let first = tokio::join!(call, kill).0;
        self.cut += u32::from(first.is_err());
        first
    }

    async fn restart(&mut self) {
        self.door = self.world.up("full").await;
    }

    /// The one receipt of a call.
    async fn receipt(&self, id: &str) -> Value {
        let receipts = self.door.owner().receipts_of(id).await;
        assert_eq!(receipts.len(), 1, "one receipt for {id}: {receipts:?}");
        receipts[0].clone()
    }

    /// Ends the program and checks the ledger offline.
    async fn verify(self) {
        eprintln!("kills that cut an answer off: {}", self.cut);
        let data = self.world.data();
        assert_eq!(self.door.stop().await.code, Some(0));
        let mut arguments = vec![
            "receipts".as_ref(),
            "verify".as_ref(),
            "--data-dir".as_ref(),
        ];
        arguments.push(data.as_os_str());
        let verified = self.world.run(&arguments).await;
        assert_eq!(
            verified.code,
            Some(0),
            "{}{}",
            verified.stdout,
            verified.stderr
        );
    }
}

fn has_bytes(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() > 0)
}

/// Looks as often as the machine allows: the answer follows the effect within a millisecond or two.
async fn seen(path: &Path) {
    let look = async {
        while !has_bytes(path) {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(EFFECT_LIMIT, look).await;
    assert!(
        in_time.is_ok(),
        "waited {EFFECT_LIMIT:?} in vain for the effect"
    );
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn write_killed_after_its_effect_happens_once() {
    let mut survivor = Survivor::start().await;
    for round in 0..SEEN_ROUNDS {
        let id = format!("write-{round}");
        let path = format!("written/{round}.txt");
        let content = format!("round {round}\n");
        let arguments = json!({"path": path, "content": content, "expectedSha256": null});
        let target = survivor.world.project().join(&path);
        let call = ("workspace_write", &arguments);
        let first = survivor.call_and_kill(&id, call, seen(&target)).await;
        survivor.restart().await;

        let again = survivor
            .agent()
            .call_as(&id, "workspace_write", &arguments)
            .await;
        let context = format!("round {round}: first {first:?}, again {again:?}");
        // The file was seen at its new revision: only success is true, and a second write would have been refused.
        assert!(!again.is_error, "{context}");
        let revision = Sha256::of(content.as_bytes()).to_string();
        assert_eq!(text_of(&again.structured, "sha256"), revision, "{context}");
        if let Ok(first) = first {
            assert_eq!(first.structured, again.structured, "{context}");
        }
        assert_eq!(survivor.world.read(&path), content.as_bytes(), "{context}");
        assert_eq!(
            survivor.receipt(&id).await["state"],
            "completed",
            "{context}"
        );
        let replayed = survivor
            .agent()
            .call_as(&id, "workspace_write", &arguments)
            .await;
        assert_eq!(replayed.structured, again.structured, "{context}");
    }
    survivor.verify().await;
}

#[tokio::test]
async fn patch_killed_at_any_moment_happens_at_most_once() {
    let mut seed = Seed::new();
    let started = seed.started();
    let mut survivor = Survivor::start().await;
    survivor.world.write("count.txt", "count:\n");
    for round in 0..BLIND_ROUNDS {
        let id = format!("patch-{round}");
        let before = survivor.world.read("count.txt");
        let after = [&before[..before.len() - 1], b"x\n"].concat();
        let arguments = json!({
            "path": "count.txt",
            "oldText": ":".to_owned() + &"x".repeat(before.len() - "count:\n".len()) + "\n",
            "newText": ":".to_owned() + &"x".repeat(after.len() - "count:\n".len()) + "\n",
            "expectedSha256": Sha256::of(&before).to_string(),
        });
        let moment = tokio::time::sleep(seed.moment(BLIND_LIMIT));
        let first = survivor
            .call_and_kill(&id, ("workspace_patch", &arguments), moment)
            .await;
        let left = survivor.world.read("count.txt");
        survivor.restart().await;

        let again = survivor
            .agent()
            .call_as(&id, "workspace_patch", &arguments)
            .await;
        let now = survivor.world.read("count.txt");
        let context = format!("seed {started}, round {round}: first {first:?}, again {again:?}");
        assert!(left == before || left == after, "{context}");
        match again.code() {
            // Done before the kill, or by the second call where the first left no receipt.
            "" => assert_eq!(now, after, "{context}"),
            "NOT_APPLIED" => assert_eq!((&left, &now), (&before, &before), "{context}"),
            _ => panic!("{context}"),
        }
        if let Ok(first) = first {
            assert_eq!(first.structured, again.structured, "{context}");
        }
        assert_eq!(
            survivor.receipt(&id).await["state"],
            "completed",
            "{context}"
        );
    }
    survivor.verify().await;
}

#[tokio::test]
async fn command_of_a_killed_program_goes_on_and_is_found_again() {
    let mut survivor = Survivor::start().await;
    let log = survivor.world.project().join("log.txt");
    for round in 0..SEEN_ROUNDS {
        let id = format!("exec-{round}");
        let mark = survivor.world.project().join(format!("mark-{round}"));
        let command =
            format!("echo {round} >> log.txt; echo x > mark-{round}; sleep 0.2; echo done-{round}");
        let arguments = json!({"command": command});
        let call = ("workspace_exec", &arguments);
        let first = survivor.call_and_kill(&id, call, seen(&mark)).await;
        survivor.restart().await;

        let agent = survivor.agent();
        let again = agent.call_as(&id, "workspace_exec", &arguments).await;
        let context = format!("round {round}: first {first:?}, again {again:?}");
        assert!(!again.is_error, "{context}");
        if let Ok(first) = first
            && !matches!(first.code(), "UNAVAILABLE" | "BUSY")
        {
            assert_eq!(first.structured, again.structured, "{context}");
        }
        // The worker outlives the program that started it, and so does the command.
        let finished = agent.follow(&text_of(&again.structured, "commandId")).await;
        assert_eq!(finished.output, format!("done-{round}\n"), "{context}");
        assert_eq!(finished.last["exitCode"], 0, "{context}");
        assert_eq!(
            survivor.receipt(&id).await["state"],
            "completed",
            "{context}"
        );
    }
    let expected: Vec<String> = (0..SEEN_ROUNDS).map(|round| round.to_string()).collect();
    assert_eq!(lines(&log), expected, "every command ran once");
    survivor.verify().await;
}

#[tokio::test]
async fn command_of_a_killed_worker_is_not_run_again() {
    let survivor = Survivor::start().await;
    let agent = survivor.agent();
    let log = survivor.world.project().join("log.txt");
    for round in 0..WORKER_ROUNDS {
        // A warm command first: after a kill the worker has to be there again.
        works_again(&agent).await;
        let id = format!("exec-{round}");
        let mark = survivor.world.project().join(format!("mark-{round}"));
        let arguments = json!({"command": format!("echo {round} >> log.txt; echo x > mark-{round}; sleep 300")});
        let text = arguments.to_string();
        let call = agent.try_call(Some(&id), "workspace_exec", &text);
        let kill = async {
            seen(&mark).await;
            kill_workers(&survivor.world);
        };
        let first = tokio::join!(call, kill).0;

        let again = truthful(&agent, &id, &arguments).await;
        let context = format!("round {round}: first {first:?}, again {again:?}");
        match again.code() {
            "" => {
                let command = text_of(&again.structured, "commandId");
                ended_as_lost(&agent, &command).await;
            }
            "UNCERTAIN" => {}
            _ => panic!("{context}"),
        }
        let state = text_of(&survivor.receipt(&id).await, "state");
        assert!(
            state == "completed" || state == "uncertain",
            "{state}, {context}"
        );
    }
    let expected: Vec<String> = (0..WORKER_ROUNDS).map(|round| round.to_string()).collect();
    assert_eq!(lines(&log), expected, "no command ran twice");
    let sleeping = survivor.world.processes();
    assert!(
        sleeping
            .iter()
            .all(|process| process.arguments != ["sleep", "300"]),
        "a command does not outlive its worker"
    );
    survivor.verify().await;
}

#[tokio::test]
async fn everything_killed_at_once_repeats_nothing() {
    let mut seed = Seed::new();
    let started = seed.started();
    let mut survivor = Survivor::start().await;
    let log = survivor.world.project().join("log.txt");
    for round in 0..WORKER_ROUNDS {
        let id = format!("exec-{round}");
        let arguments = json!({"command": format!("echo {round} >> log.txt")});
        let moment = seed.moment(BLIND_LIMIT);
        let mark = survivor.world.processes();
        let both = async {
            tokio::time::sleep(moment).await;
            mark.iter().for_each(process::Process::kill);
        };
        let first = survivor
            .call_and_kill(&id, ("workspace_exec", &arguments), both)
            .await;
        let before = count(&log, round);
        survivor.restart().await;

        let again = truthful(&survivor.agent(), &id, &arguments).await;
        let context = format!("seed {started}, round {round}: first {first:?}, again {again:?}");
        if again.is_error {
            assert!(
                matches!(again.code(), "NOT_APPLIED" | "UNCERTAIN"),
                "{context}"
            );
            assert_eq!(count(&log, round), before, "{context}");
        } else {
            let command = text_of(&again.structured, "commandId");
            let last = survivor.agent().follow(&command).await.last;
            let status = text_of(&last, "status");
            assert!(
                status == "exited" || status == "lost",
                "{status}, {context}"
            );
            let ran = count(&log, round);
            assert!(
                ran == 1 || (status == "lost" && ran == 0),
                "{ran}, {context}"
            );
        }
    }
    survivor.verify().await;
}

fn count(log: &Path, round: u32) -> usize {
    let wanted = round.to_string();
    lines(log).iter().filter(|line| **line == wanted).count()
}

fn kill_workers(world: &World) {
    let workers = world.workers();
    assert!(!workers.is_empty(), "there is a worker to kill");
    workers.iter().for_each(process::Process::kill);
}

/// Asks for a call's outcome until the answer is one: `UNAVAILABLE` and `BUSY` are none.
async fn truthful(agent: &Agent, id: &str, arguments: &Value) -> Answer {
    wait_for("an outcome", RECOVERY_LIMIT, || async {
        let answer = agent.call_as(id, "workspace_exec", arguments).await;
        (!matches!(answer.code(), "UNAVAILABLE" | "BUSY")).then_some(answer)
    })
    .await
}

async fn works_again(agent: &Agent) {
    wait_for("a worker", RECOVERY_LIMIT, || async {
        let answer = agent
            .call("workspace_exec", json!({"command": "true"}))
            .await;
        (!answer.is_error).then_some(())
    })
    .await;
}

async fn ended_as_lost(agent: &Agent, command: &str) {
    wait_for("the end of a lost command", RECOVERY_LIMIT, || async {
        let arguments = json!({"commandId": command});
        let answer = agent.call("workspace_poll", arguments).await;
        (answer.structured["status"] == "lost").then_some(())
    })
    .await;
}
