//! The stack of `docker-compose.yml`, started by `tests/compose/stack` as a user starts it.

use std::{
    env,
    net::TcpListener,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tokio::process::Command;

use crate::{Agent, Ended, Owner, binary, client, wait_for};

/// Time for the engine, the images and every service to be there. The first run on a machine makes the images.
const START_LIMIT: Duration = Duration::from_secs(1800);
/// Time for one command of the engine's.
const COMMAND_LIMIT: Duration = Duration::from_secs(180);

/// A running stack of a test's own. Everything of it is gone, volumes included, once it is dropped.
#[derive(Debug)]
pub struct Stack {
    name: String,
    variables: Vec<(String, String)>,
    /// Where agents ask.
    pub mcp_url: String,
    /// Where the owner asks.
    pub console_url: String,
    /// Where Jaeger is asked.
    pub jaeger_url: String,
}

fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("compose/stack")
}

/// A port that nobody listens on now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// What Compose takes the stack's files for, or another file: `docker-compose` (1) or `docker compose` (2).
///
/// # Panics
/// When it refuses them.
pub async fn composed(generation: u8, file: Option<&Path>, words: &[&str]) -> String {
    let mut command = Command::new(script());
    command
        .arg("config")
        .args(words)
        .env("POSTERN_COMPOSE", generation.to_string())
        .env("COMPOSE_PROJECT_NAME", "composed")
        .env("POSTERN_BIN", binary());
    if let Some(file) = file {
        command.env("COMPOSE_FILE", file);
    }
    let ended = client::run(&mut command, START_LIMIT).await;
    assert_eq!(ended.code, Some(0), "{generation}: {}", ended.stderr);
    ended.stdout
}

impl Stack {
    /// Starts every service of it, with `workers` exec workers, and waits until all are healthy.
    ///
    /// # Panics
    /// When there is no engine or a service does not come up; what the services wrote is told.
    pub async fn up(workers: usize) -> Self {
        let (host, console, jaeger) = (free_port(), free_port(), free_port());
        let name = format!("postern-test-{}", std::process::id());
        let set = |name: &str, value: String| (name.to_owned(), value);
        let stack = Self {
            variables: vec![
                set("COMPOSE_PROJECT_NAME", name.clone()),
                set("POSTERN_BIN", binary().display().to_string()),
                set("POSTERN_TAG", "test".to_owned()),
                set("POSTERN_HOST_PORT", host.to_string()),
                set("POSTERN_CONSOLE_PORT", console.to_string()),
                set("POSTERN_JAEGER_PORT", jaeger.to_string()),
                set("POSTERN_MODE", "full".to_owned()),
                set("POSTERN_INTENTION", "Try the stack".to_owned()),
            ],
            mcp_url: format!("http://127.0.0.1:{host}/mcp"),
            console_url: format!("http://127.0.0.1:{console}"),
            jaeger_url: format!("http://127.0.0.1:{jaeger}"),
            name,
        };
        let scale = format!("exec={workers}");
        let up = ["up", "--detach", "--build", "--scale", &scale];
        let started = stack.run(&up, START_LIMIT).await;
        if started.code != Some(0) {
            let logs = stack.run(&["logs", "--tail", "40"], COMMAND_LIMIT).await;
            panic!(
                "the stack does not start:\n{}\n{}\n{}",
                started.stdout, started.stderr, logs.stdout
            );
        }
        stack.healthy("edge").await;
        stack
    }

    async fn run(&self, words: &[&str], limit: Duration) -> Ended {
        let mut command = Command::new(script());
        command.args(words).envs(self.variables.iter().cloned());
        client::run(&mut command, limit).await
    }

    /// Runs a command of docker-compose's and answers what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub async fn compose(&self, words: &[&str]) -> String {
        let ended = self.run(words, COMMAND_LIMIT).await;
        assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.stderr);
        ended.stdout
    }

    /// Runs `postern` in a service's container.
    pub async fn postern(&self, service: &str, words: &[&str]) -> String {
        let all = [&["exec", "-T", service, "postern"], words].concat();
        self.compose(&all).await
    }

    /// Waits until a service's first container is healthy.
    pub async fn healthy(&self, service: &str) {
        let what = format!("{service} is healthy");
        wait_for(&what, COMMAND_LIMIT, || async {
            let id = self.compose(&["ps", "-q", service]).await;
            let first = id.lines().next()?;
            let told = self
                .docker(&["inspect", "--format", "{{.State.Health.Status}}", first])
                .await;
            (told.trim() == "healthy").then_some(())
        })
        .await;
    }

    /// Runs a command of the engine's own client.
    ///
    /// # Panics
    /// When it fails.
    pub async fn docker(&self, words: &[&str]) -> String {
        let mut command = Command::new(script());
        command.arg("engine").args(words);
        command.envs(self.variables.iter().cloned());
        let ended = client::run(&mut command, COMMAND_LIMIT).await;
        assert_eq!(ended.code, Some(0), "docker {words:?}: {}", ended.stderr);
        ended.stdout
    }

    /// The ids of a service's containers.
    pub async fn containers(&self, service: &str) -> Vec<String> {
        let ids = self.compose(&["ps", "-q", service]).await;
        ids.lines().map(str::to_owned).collect()
    }

    /// An agent with a token made as README says.
    pub async fn agent(&self) -> Agent {
        let workspace = self
            .compose(&["exec", "-T", "edge", "cat", "/secrets/workspace"])
            .await;
        let words = [
            "token",
            "create",
            "--host",
            "http://127.0.0.1:7300",
            "--token-file",
            "/data/admin-token",
            "--workspace",
            workspace.trim(),
            "--role",
            "owner",
        ];
        let told = self.postern("host", &words).await;
        let told: Value = serde_json::from_str(&told).expect("a token is told as JSON");
        let secret = told["token"]["secret"].as_str().expect("its secret");
        Agent::modern(&self.mcp_url, secret)
    }

    /// The owner, with the token in the edge's volume.
    pub async fn owner(&self) -> Owner {
        let token = self
            .compose(&["exec", "-T", "edge", "cat", "/data/owner-token"])
            .await;
        Owner::new(&self.console_url, token.trim())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let ended = std::process::Command::new(script())
            .args(["down", "--volumes", "--remove-orphans", "--timeout", "1"])
            .envs(self.variables.iter().cloned())
            .status();
        if !ended.is_ok_and(|status| status.success()) && !std::thread::panicking() {
            panic!("the stack {} could not be taken down", self.name);
        }
    }
}
