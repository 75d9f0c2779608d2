//! `postern mcp` as a client starts it: lines in, lines out.

use std::{ffi::OsStr, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::timeout,
};

use crate::program::{Surroundings, command};

/// For an answer, on a loaded machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A running bridge. Dropping it kills it.
#[derive(Debug)]
pub struct Bridge {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Bridge {
    pub(crate) fn start(arguments: &[&OsStr], around: &Surroundings<'_>) -> Self {
        let mut child = command(arguments, around)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the binary under test starts");
        let output = child.stdout.take().expect("standard output is piped");
        Self {
            input: child.stdin.take(),
            lines: BufReader::new(output).lines(),
            child,
        }
    }

    /// Process id.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Writes bytes, and a line end.
    ///
    /// # Panics
    /// When it reads no more.
    pub async fn write(&mut self, line: &[u8]) {
        let input = self.input.as_mut().expect("standard input is open");
        input.write_all(line).await.expect("it reads");
        input.write_all(b"\n").await.expect("it reads");
        input.flush().await.expect("it reads");
    }

    /// Sends a message.
    pub async fn send(&mut self, message: &Value) {
        self.write(message.to_string().as_bytes()).await;
    }

    /// Sends a request under an id.
    pub async fn ask(&mut self, id: u64, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
    }

    /// The next line, which must be one JSON-RPC message.
    ///
    /// # Panics
    /// When it is not, or none comes in time.
    pub async fn next(&mut self) -> Value {
        let line = timeout(ANSWER_LIMIT, self.lines.next_line())
            .await
            .expect("an answer in time")
            .expect("standard output can be read")
            .expect("an answer before the end");
        let message: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("not protocol on standard output: {line:?} ({error})"));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        message
    }

    /// The answer to a request; what else comes meanwhile is thrown away.
    pub async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == id {
                return message;
            }
        }
    }

    /// The handshake of a version.
    ///
    /// # Panics
    /// When the version is not taken.
    pub async fn handshake(&mut self, version: &str) {
        let client = json!({"name": "tests", "version": "0"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        self.ask(0, "initialize", params).await;
        let answer = self.answer(0).await;
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
    }

    /// A tool's result, in the session.
    pub async fn call(&mut self, id: u64, tool: &str, arguments: Value) -> Value {
        self.ask(
            id,
            "tools/call",
            json!({"name": tool, "arguments": arguments}),
        )
        .await;
        self.answer(id).await["result"].take()
    }

    /// Closes its standard input, as a client that ends does.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Waits for the end; gives the exit code and the lines that were not read.
    ///
    /// # Panics
    /// When it is still running after `limit`.
    pub async fn ended(mut self, limit: Duration) -> (Option<i32>, Vec<String>) {
        let finish = timeout(limit, async {
            let mut rest = Vec::new();
            while let Ok(Some(line)) = self.lines.next_line().await {
                rest.push(line);
            }
            let status = self.child.wait().await.expect("a child can be waited for");
            (status.code(), rest)
        });
        finish.await.expect("it ends with its client")
    }
}
