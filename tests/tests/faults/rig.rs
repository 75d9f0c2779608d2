//! A project under `up` that is killed again and again, and started the way its owner would.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use postern_tests::{Agent, Answer, Door, Fault, FaultPoints, World, process, text_of, wait_for};
use serde_json::{Value, json};

/// For a killed part to work again.
pub(crate) const RECOVERY_LIMIT: Duration = Duration::from_secs(60);
/// Starts until one is not killed.
const STARTS: usize = 8;
/// Receipts looked through for the newest calls.
const NEWEST: usize = 30;
/// Prefix and suffix of what the filesystem service puts beside a target for an instant.
const TEMPORARY: (&str, &str) = (".postern-", ".tmp");

/// A call with ids of its own, to be asked again.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) conversation: String,
    pub(crate) tool: &'static str,
    pub(crate) arguments: Value,
}

/// One world and what was done to it.
pub(crate) struct Rig {
    pub(crate) world: World,
    pub(crate) faults: FaultPoints,
    pub(crate) door: Door,
    token: String,
    /// Kills so far.
    pub(crate) kills: u32,
    calls: u32,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        let (world, faults) = World::with_fault_points();
        let door = world.up("full").await;
        let token = door.ready.agent_token.clone();
        Self {
            world,
            faults,
            door,
            token,
            kills: 0,
            calls: 0,
        }
    }

    /// A number that no call had before.
    pub(crate) fn number(&mut self) -> u32 {
        self.calls += 1;
        self.calls
    }

    /// The agent, always with its first token, so that the ids of a call sent again are the ids it had.
    pub(crate) fn agent(&self, conversation: &str) -> Agent {
        self.door
            .agent_with(&self.token)
            .in_conversation(conversation)
    }

    /// Sends a call once.
    pub(crate) async fn send(&self, call: &Call) -> Result<Answer, Fault> {
        self.agent(&call.conversation)
            .try_call(Some(&call.id), call.tool, &call.arguments.to_string())
            .await
    }

    /// Sends a call until there is an outcome: `UNAVAILABLE` and `BUSY` are none. Starts what is not there any more.
    pub(crate) async fn outcome(&mut self, call: &Call) -> Answer {
        let until = Instant::now() + RECOVERY_LIMIT;
        loop {
            let answer = self.send(call).await;
            match answer {
                Ok(answer) if !matches!(answer.code(), "UNAVAILABLE" | "BUSY") => return answer,
                Err(_) if !self.door.program.runs() => {
                    self.kills += 1;
                    self.restart().await;
                }
                answer => assert!(
                    Instant::now() < until,
                    "{call:?} has no outcome: {answer:?}; the program said:\n{}",
                    self.door.program.stderr()
                ),
            }
        }
    }

    /// SIGKILL to everything: `up`, worker, wrappers, commands.
    pub(crate) async fn kill_all(&mut self) {
        self.kills += 1;
        for process in self.world.processes() {
            process.kill();
        }
        self.door.program.kill().await;
    }

    /// Starts it again. A start may itself be killed by a point that is armed.
    pub(crate) async fn restart(&mut self) {
        self.door.program.kill().await;
        for _ in 0..STARTS {
            if let Some(door) = self.world.try_up("full").await {
                self.door = door;
                return;
            }
            self.kills += 1;
        }
        panic!("{STARTS} starts, and none was ready");
    }

    /// Starts a command that is no part of the trial, and waits for its first words.
    pub(crate) async fn command(&self, conversation: &str, command: &str) -> String {
        let agent = self.agent(conversation);
        let arguments = json!({"command": command});
        let started = wait_for("a worker", RECOVERY_LIMIT, || async {
            let answer = agent.call("workspace_exec", arguments.clone()).await;
            (!answer.is_error).then_some(answer)
        });
        let id = text_of(&started.await.structured, "commandId");
        agent.poll(&id, 0).await;
        id
    }

    /// Waits until an exec worker answers: it is started again by itself.
    pub(crate) async fn worker_answers(&self) {
        let agent = self.agent("is-the-worker-there");
        let nobody = json!({"commandId": "019aa000-0000-7000-8000-000000000000"});
        wait_for("a worker", RECOVERY_LIMIT, || async {
            let answer = agent.call("workspace_poll", nobody.clone()).await;
            (answer.code() == "UNKNOWN_COMMAND").then_some(())
        })
        .await;
    }

    /// The one receipt of a call, which must be among the newest of its tool.
    pub(crate) async fn receipt(&self, call: &Call) -> Value {
        let path = format!("/owner/v1/receipts?limit={NEWEST}&tool={}", call.tool);
        let page = self.door.owner().get(&path).await;
        let items = page["items"].as_array().expect("a list");
        let mut found: Vec<&Value> = items
            .iter()
            .filter(|receipt| receipt["callId"] == call.id.as_str())
            .collect();
        assert_eq!(found.len(), 1, "one receipt for {}: {items:?}", call.id);
        found.remove(0).clone()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.world.project().join(name)
    }

    /// Ends the program and checks, from outside, that nothing is left behind.
    pub(crate) async fn finish(self) -> u32 {
        let context = self.door.program.stderr();
        self.worker_answers().await;
        self.check_processes();
        let receipts = self.door.owner().receipts().await;
        check_receipts(&receipts);
        check_no_temporary(&self.world.project());
        let unknown = self.unknown_commands(&receipts).await;
        assert_eq!(unknown, Vec::<String>::new(), "spool of unknown commands");
        let data = self.world.data();
        let ended = self.door.stop().await;
        assert_eq!(ended.code, Some(0), "{context}");
        wait_for("the end of every process", RECOVERY_LIMIT, || async {
            self.world.processes().is_empty().then_some(())
        })
        .await;
        let drafts = names(&data.join("spool"));
        let drafts: Vec<_> = drafts
            .iter()
            .filter(|name| name.starts_with(".draft"))
            .collect();
        assert!(drafts.is_empty(), "drafts of dead workers: {drafts:?}");
        let arguments = ["receipts", "verify", "--data-dir"].map(std::ffi::OsString::from);
        let mut arguments = arguments.to_vec();
        arguments.push(data.into());
        let verified = self.world.run(&arguments).await;
        assert_eq!(verified.code, Some(0), "{verified:?}");
        self.kills
    }

    fn check_processes(&self) {
        let workers = self.world.workers();
        assert_eq!(workers.len(), 1, "one worker: {workers:?}");
        for pid in [self.door.program.pid(), workers[0].pid] {
            assert_eq!(process::zombies_of(pid), 0, "zombies of {pid}");
        }
    }

    /// Spool directories of which the ledger has no receipt.
    async fn unknown_commands(&self, receipts: &[Value]) -> Vec<String> {
        let mut unknown = names(&self.world.data().join("spool"));
        unknown.retain(|name| !name.starts_with('.'));
        unknown.retain(|name| {
            receipts
                .iter()
                .all(|receipt| receipt["id"] != name.as_str())
        });
        let owner = self.door.owner();
        let mut left = Vec::new();
        for name in unknown {
            // A receipt that was given up is in no list.
            let path = format!("/owner/v1/receipts/{name}");
            let reply = owner.send(http::Method::GET, &path, None).await;
            if !reply.status.is_success() {
                left.push(name);
            }
        }
        left
    }
}

fn check_receipts(receipts: &[Value]) {
    let mut calls = BTreeMap::new();
    for receipt in receipts {
        let state = text_of(receipt, "state");
        assert!(
            matches!(state.as_str(), "completed" | "refused" | "uncertain"),
            "a receipt without an end: {receipt}"
        );
        let ids = (text_of(receipt, "sessionId"), text_of(receipt, "callId"));
        let other = calls.insert(ids, receipt);
        assert!(
            other.is_none(),
            "two receipts of one call: {other:?} {receipt}"
        );
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// No file that a change was to leave for an instant only.
pub(crate) fn check_no_temporary(directory: &Path) {
    for name in names(directory) {
        assert!(
            !(name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1)),
            "a left-over in {}: {name}",
            directory.display()
        );
        let path = directory.join(&name);
        if name != ".git" && path.is_dir() {
            check_no_temporary(&path);
        }
    }
}

/// A file's content, if it is there.
pub(crate) fn content(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Lines of a file that are exactly `wanted`.
pub(crate) fn count(path: &Path, wanted: &str) -> usize {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|line| *line == wanted).count()
}
