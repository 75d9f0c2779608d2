//! A real host, with a workspace, a launch and an agent's token.

use std::{ffi::OsString, time::Duration};

use serde_json::Value;

use crate::{
    agent::Agent,
    edge::EDGE_INTENTION,
    peer::FakeEdge,
    program::{Ended, Program},
    world::{World, text_of},
};

/// From the start of the program to its ready line.
const READY_LIMIT: Duration = Duration::from_secs(60);

/// A running `postern host`.
#[derive(Debug)]
pub struct RealHost {
    /// Where its data lies, and its command lines run.
    pub world: World,
    /// The program.
    pub program: Program,
    /// Its address.
    pub url: String,
    /// A workspace.
    pub workspace: String,
    /// Opens the channel of the workspace, under [`EDGE_INTENTION`].
    pub channel_token: String,
    /// Id of that token.
    pub channel_token_id: String,
    /// Token of an editor in the workspace.
    pub agent_token: String,
}

impl RealHost {
    /// Starts a host on a free port.
    ///
    /// # Panics
    /// When something is refused.
    pub async fn start() -> Self {
        Self::start_in(World::new(), &[]).await.0
    }

    /// Starts a host on a free port, in a world and with further arguments. Tells its ready line.
    ///
    /// # Panics
    /// When something is refused.
    pub async fn start_in(world: World, further: &[&str]) -> (Self, Value) {
        let mut arguments: Vec<OsString> =
            ["host", "--json", "--listen", "127.0.0.1:0", "--data-dir"]
                .iter()
                .map(OsString::from)
                .collect();
        arguments.push(world.data().into());
        arguments.extend(further.iter().map(OsString::from));
        let mut program = world.start(&arguments);
        let line = program.event("listening", READY_LIMIT).await;
        assert_eq!(line["role"], "host");
        let mut host = Self {
            url: text_of(&line, "url"),
            program,
            world,
            workspace: String::new(),
            channel_token: String::new(),
            channel_token_id: String::new(),
            agent_token: String::new(),
        };
        let created = host.told(&["workspace", "create", "--name", "Tests"]).await;
        host.workspace = text_of(&created["workspace"], "id");
        let launch = [
            "launch",
            "--workspace",
            &host.workspace,
            "--intention",
            EDGE_INTENTION,
        ];
        let launch = host.told(&launch).await["launch"].take();
        assert_eq!(launch["intention"], EDGE_INTENTION);
        host.channel_token = text_of(&launch, "token");
        host.channel_token_id = text_of(&launch, "token_id");
        let token = [
            "token",
            "create",
            "--workspace",
            &host.workspace,
            "--role",
            "editor",
        ];
        host.agent_token = text_of(&host.told(&token).await["token"], "secret");
        (host, line)
    }

    /// Runs one of its command lines with the admin token.
    pub async fn run(&self, words: &[&str]) -> Ended {
        let mut arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        arguments.extend(["--json", "--host", &self.url, "--token-file"].map(OsString::from));
        arguments.push(self.world.data().join("admin-token").into());
        self.world.run(&arguments).await
    }

    /// As [`RealHost::run`], for what must succeed: the JSON that it printed.
    ///
    /// # Panics
    /// When it does not succeed.
    pub async fn told(&self, words: &[&str]) -> Value {
        let ended = self.run(words).await;
        assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
        serde_json::from_str(&ended.stdout).expect("the API's JSON")
    }

    /// An agent of the workspace.
    #[must_use]
    pub fn agent(&self) -> Agent {
        Agent::modern(&format!("{}/mcp", self.url), &self.agent_token)
    }

    /// A fake edge of the workspace.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn edge(&self) -> FakeEdge {
        FakeEdge::connect(&self.url, &self.workspace, &self.channel_token)
            .await
            .expect("the channel opens")
    }
}
