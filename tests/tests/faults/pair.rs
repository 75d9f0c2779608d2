//! A host and an edge as processes of their own, with a proxy between them.

use std::{ffi::OsString, time::Duration};

use postern_tests::{Agent, Answer, FaultPoints, Program, World, proxy::Proxy, text_of, wait_for};
use serde_json::{Value, json};

/// For a program to be ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// For an outcome.
const OUTCOME_LIMIT: Duration = Duration::from_secs(60);
const INTENTION: &str = "Hold through every fault";

pub(crate) struct Pair {
    host_world: World,
    pub(crate) edge_world: World,
    pub(crate) host_faults: FaultPoints,
    pub(crate) edge_faults: FaultPoints,
    pub(crate) host: Program,
    pub(crate) edge: Program,
    pub(crate) proxy: Proxy,
    host_url: String,
    edge_arguments: Vec<OsString>,
    agent_token: String,
    pub(crate) kills: u32,
}

fn words(texts: &[&str]) -> Vec<OsString> {
    texts.iter().map(OsString::from).collect()
}

impl Pair {
    pub(crate) async fn start() -> Self {
        Self::start_below(|_| Vec::new()).await
    }

    /// With an edge that is started by another program, which becomes it.
    pub(crate) async fn start_below(before: impl Fn(&World) -> Vec<OsString>) -> Self {
        let (host_world, host_faults) = World::with_fault_points();
        let (edge_world, edge_faults) = World::with_fault_points();
        let (host, host_url) = start_host(&host_world, "127.0.0.1:0").await;
        let ask = async |further: &[&str]| {
            let mut arguments = words(further);
            arguments.extend(words(&["--json", "--host", &host_url, "--token-file"]));
            arguments.push(host_world.data().join("admin-token").into());
            let ended = host_world.run(&arguments).await;
            assert_eq!(ended.code, Some(0), "{further:?}: {ended:?}");
            serde_json::from_str::<Value>(&ended.stdout).expect("the API's JSON")
        };
        let created = ask(&["workspace", "create", "--name", "Faults"]).await;
        let workspace = text_of(&created["workspace"], "id");
        let launch = ask(&[
            "launch",
            "--workspace",
            &workspace,
            "--intention",
            INTENTION,
        ])
        .await;
        let token = ask(&[
            "token",
            "create",
            "--workspace",
            &workspace,
            "--role",
            "editor",
        ])
        .await;
        let proxy = Proxy::to(&host_url).await;
        let token_file = edge_world.secret("token", &text_of(&launch["launch"], "token"));
        let mut edge_arguments = words(&["edge", "--json", "--listen-none", "--mode", "full"]);
        edge_arguments.extend(words(&["--host", proxy.url(), "--workspace", &workspace]));
        edge_arguments.extend(words(&["--intention", INTENTION, "--token-file"]));
        edge_arguments.push(token_file.into());
        edge_arguments.push("--project".into());
        edge_arguments.push(edge_world.project().into());
        edge_arguments.push("--data-dir".into());
        edge_arguments.push(edge_world.data().into());
        let mut edge = edge_world.start_below(&before(&edge_world), &edge_arguments);
        edge.event("connected", READY_LIMIT).await;
        Self {
            host_world,
            edge_world,
            host_faults,
            edge_faults,
            host,
            edge,
            proxy,
            host_url,
            edge_arguments,
            agent_token: text_of(&token["token"], "secret"),
            kills: 0,
        }
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent::modern(&format!("{}/mcp", self.host_url), &self.agent_token)
    }

    /// The host again, where it was.
    pub(crate) async fn restart_host(&mut self) {
        self.kills += 1;
        self.host.kill().await;
        let address = self.host_url.trim_start_matches("http://").to_owned();
        self.host = start_host(&self.host_world, &address).await.0;
    }

    /// The edge again, as before.
    pub(crate) async fn restart_edge(&mut self) {
        self.kills += 1;
        self.edge.kill().await;
        self.edge = self.edge_world.start(&self.edge_arguments);
        self.edge.event("connected", READY_LIMIT).await;
    }

    /// Asks until there is an outcome.
    pub(crate) async fn outcome(&self, id: &str, tool: &str, arguments: &Value) -> Answer {
        let (agent, text) = (self.agent(), arguments.to_string());
        wait_for("an outcome", OUTCOME_LIMIT, || async {
            let answer = agent.try_call(Some(id), tool, &text).await.ok()?;
            (!matches!(answer.code(), "UNAVAILABLE" | "BUSY")).then_some(answer)
        })
        .await
    }
}

async fn start_host(world: &World, listen: &str) -> (Program, String) {
    let mut arguments = words(&["host", "--json", "--listen", listen, "--data-dir"]);
    arguments.push(world.data().into());
    let mut program = world.start(&arguments);
    let line = program.event("listening", READY_LIMIT).await;
    let url = text_of(&line, "url");
    (program, url)
}

/// A command that leaves one line of its number each time it runs, in the file `runs.txt`.
pub(crate) fn counted(number: u32) -> Value {
    json!({"command": format!("echo {number} >> runs.txt")})
}
