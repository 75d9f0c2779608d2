//! A ledger by itself, exec workers that register with it, an edge that places commands on them, and a host with an agent.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use postern_tests::{Agent, EDGE_INTENTION, Program, RealHost, World, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

/// From the start of a program to its ready line, on a loaded machine.
pub(crate) const READY_LIMIT: Duration = Duration::from_secs(60);
/// For what must come, on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// What a command says of the process that is the worker above its wrapper.
pub(crate) const TELL_WORKER: &str = "cut -d' ' -f4 /proc/$PPID/stat";

/// Everything. When it goes, everything that was started is killed.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) world: World,
    pub(crate) host: RealHost,
    pub(crate) ledger: Program,
    pub(crate) edge: Program,
    /// Workers by name.
    pub(crate) workers: BTreeMap<String, Program>,
    /// The ledger's database, by its URL.
    database: String,
}

impl Fleet {
    /// With workers of these names, each with further options.
    pub(crate) async fn start(names: &[&str], further: &[&str]) -> Self {
        let world = World::new();
        let database = format!("sqlite://{}", world.outside().join("ledger.db").display());
        let ledger = start_ledger(&world, "ledger", &database).await;
        Self::with(world, ledger, database, names, further).await
    }

    /// With a ledger that runs already, behind the socket `ledger`.
    pub(crate) async fn with(
        world: World,
        ledger: Program,
        database: String,
        names: &[&str],
        further: &[&str],
    ) -> Self {
        let host = RealHost::start().await;
        let edge = start_edge(&world, &host).await;
        let workers = BTreeMap::new();
        let mut fleet = Self {
            world,
            host,
            ledger,
            edge,
            workers,
            database,
        };
        for name in names {
            fleet.add(name, further).await;
        }
        fleet
    }

    /// Starts one more worker, and waits until commands can be placed on it.
    pub(crate) async fn add(&mut self, name: &str, further: &[&str]) {
        self.begin_worker(name, further).await;
        self.registered(name, 1).await;
    }

    /// Starts one more worker, and waits until it listens.
    pub(crate) async fn begin_worker(&mut self, name: &str, further: &[&str]) {
        let (project, spool) = (self.world.project(), self.spool());
        self.add_over(name, &project, &spool, further).await;
    }

    /// Starts a worker over a project and a spool, and waits until it listens.
    pub(crate) async fn add_over(
        &mut self,
        name: &str,
        project: &Path,
        spool: &Path,
        further: &[&str],
    ) {
        let mut arguments = words(&["serve", "exec", "--json", "--listen"]);
        arguments.push(self.socket(name));
        arguments.extend(words(&["--project"]));
        arguments.push(project.into());
        arguments.extend(words(&["--spool"]));
        arguments.push(spool.into());
        if !further.contains(&"--ledger") {
            arguments.extend(words(&["--ledger"]));
            arguments.push(self.socket("ledger"));
        }
        if !further.contains(&"--lease") {
            arguments.extend(words(&["--lease", "1"]));
        }
        arguments.extend(words(further));
        arguments.extend(words(&["--log", "info"]));
        let mut worker = self.world.start(&arguments);
        worker.event("listening", READY_LIMIT).await;
        self.workers.insert(name.to_owned(), worker);
    }

    /// Waits until a worker, or the edge, has said something in its log.
    pub(crate) async fn says(&self, name: &str, text: &str) {
        let program = self.workers.get(name).unwrap_or(&self.edge);
        wait_for(text, LIMIT, async || {
            program.stderr().contains(text).then_some(())
        })
        .await;
    }

    /// Sends a worker a signal.
    pub(crate) fn signal(&self, name: &str, signal: Signal) {
        self.workers[name].signal(signal);
    }

    /// Kills the ledger and starts it again after a while.
    pub(crate) async fn restart_ledger(&mut self, away: Duration) {
        self.ledger.kill().await;
        tokio::time::sleep(away).await;
        self.ledger = start_ledger(&self.world, "ledger", &self.database).await;
    }

    /// Kills the edge and starts it again.
    pub(crate) async fn restart_edge(&mut self) {
        self.edge.kill().await;
        self.edge = start_edge(&self.world, &self.host).await;
    }

    /// An agent in a conversation of its own.
    pub(crate) fn agent(&self, conversation: &str) -> Agent {
        self.host.agent().in_conversation(conversation)
    }

    /// The worker on whose account the spool has a command.
    pub(crate) fn worker_of(&self, command: &str) -> String {
        const HEADER: usize = 64;
        let state = fs::read(self.spool().join(command).join("state")).expect("a state");
        let facts: Value = serde_json::from_slice(&state[HEADER..]).expect("facts");
        facts["worker"].as_str().expect("a worker").to_owned()
    }

    /// A command that tells its worker and then does something; with the name of that worker.
    pub(crate) async fn begin(&self, agent: &Agent, then: &str) -> (String, String) {
        let command = exec(agent, &format!("{TELL_WORKER}; {then}")).await;
        let pid = wait_for("the command's first word", LIMIT, async || {
            let page = agent.poll(&command, 0).await;
            let said = page["output"].as_str().expect("output").to_owned();
            said.lines().next().and_then(|line| line.parse().ok())
        })
        .await;
        (command, self.name_of(pid))
    }

    /// Waits until a worker has registered so often.
    pub(crate) async fn registered(&self, name: &str, times: usize) {
        wait_for("the worker's registration", LIMIT, async || {
            let said = self.workers[name].stderr();
            (said.matches("is registered with the ledger").count() == times).then_some(())
        })
        .await;
    }

    /// The name of the worker with that process id.
    pub(crate) fn name_of(&self, pid: i32) -> String {
        let found = self.workers.iter().find(|(_, worker)| worker.pid() == pid);
        found.expect("one of the workers").0.clone()
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.world.outside().join("spool")
    }

    /// Where what has that name listens.
    pub(crate) fn socket(&self, name: &str) -> OsString {
        socket(&self.world, name)
    }
}

/// Starts a command once a worker is known to have room, and answers its id: an edge hears of it a moment later.
pub(crate) async fn exec(agent: &Agent, command: &str) -> String {
    let arguments = json!({ "command": command });
    let started = patient(agent, "workspace_exec", &arguments, "BUSY").await;
    started["commandId"].as_str().expect("an id").to_owned()
}

/// Calls again while the answer is that passing refusal.
async fn patient(agent: &Agent, tool: &str, arguments: &Value, passing: &str) -> Value {
    wait_for(tool, LIMIT, async || {
        let answer = agent.call(tool, arguments.clone()).await;
        (answer.code() != passing).then(|| answer.ok())
    })
    .await
}

/// Where a command stands, and all it said.
pub(crate) async fn status(agent: &Agent, command: &str) -> (String, Value) {
    // A worker that has just died is not known to be dead at once.
    let arguments = json!({"commandId": command, "offset": 0});
    let page = patient(agent, "workspace_poll", &arguments, "UNAVAILABLE").await;
    (page["status"].as_str().expect("a status").to_owned(), page)
}

/// Waits until a command stands so.
pub(crate) async fn until(agent: &Agent, command: &str, wanted: &str) -> Value {
    wait_for(wanted, LIMIT, async || {
        let (status, page) = status(agent, command).await;
        (status == wanted).then_some(page)
    })
    .await
}

/// Stops a command.
pub(crate) async fn stop(agent: &Agent, command: &str) -> Value {
    let arguments = json!({"commandId": command});
    agent.call("workspace_stop", arguments).await.ok()
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn socket(world: &World, name: &str) -> OsString {
    let mut address = OsString::from("unix:");
    address.push(world.outside().join(format!("{name}.sock")));
    address
}

/// Starts a ledger that listens on a socket of that name.
pub(crate) async fn start_ledger(world: &World, name: &str, database: &str) -> Program {
    let mut arguments = words(&["serve", "ledger", "--json", "--listen"]);
    arguments.push(socket(world, name));
    arguments.extend(words(&["--database", database, "--log", "info"]));
    let mut ledger = world.start(&arguments);
    ledger.event("listening", READY_LIMIT).await;
    ledger
}

async fn start_edge(world: &World, host: &RealHost) -> Program {
    let token = world.secret("fleet-token", &format!("{}\n", host.channel_token));
    let mut arguments = words(&["edge", "--json", "--listen-none", "--mode", "full"]);
    arguments.extend(words(&[
        "--host",
        &host.url,
        "--workspace",
        &host.workspace,
    ]));
    arguments.extend(words(&["--intention", EDGE_INTENTION, "--token-file"]));
    arguments.push(token.into());
    arguments.extend(words(&["--project"]));
    arguments.push(world.project().into());
    arguments.extend(words(&["--data-dir"]));
    arguments.push(world.data().into());
    arguments.extend(words(&["--exec", "ledger", "--ledger"]));
    arguments.push(socket(world, "ledger"));
    let mut edge = world.start(&arguments);
    edge.event("connected", READY_LIMIT).await;
    edge
}
