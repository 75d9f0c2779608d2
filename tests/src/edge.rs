//! A real edge, towards a host that the test plays.

use std::{ffi::OsString, path::Path};

use serde_json::{Value, json};

use crate::{peer::HostSide, program::Program, world::World};

/// A workspace of a host that only the test knows.
pub const WORKSPACE: &str = "0b6c3f52-7c1e-4a7b-9a53-1d2e3f405162";
/// What an edge of [`edge_arguments`] is pinned to.
pub const EDGE_INTENTION: &str = "Reach the other end";
/// Its channel token.
pub const CHANNEL_TOKEN: &str = "channel-token-of-the-test";

/// The arguments of `edge` in mode `full` towards `host_url`, with its data in `data`, and further ones.
///
/// # Panics
/// When the token file cannot be written.
#[must_use]
pub fn edge_arguments(
    world: &World,
    host_url: &str,
    data: &Path,
    further: &[&str],
) -> Vec<OsString> {
    let token_file = world.secret("channel-token", &format!("{CHANNEL_TOKEN}\n"));
    let mut arguments: Vec<OsString> = ["edge", "--json", "--host", host_url]
        .iter()
        .map(OsString::from)
        .collect();
    let mut option = |name: &str, value: OsString| {
        if !further.contains(&name) {
            arguments.extend([name.into(), value]);
        }
    };
    option("--workspace", WORKSPACE.into());
    option("--intention", EDGE_INTENTION.into());
    option("--mode", "full".into());
    option("--token-file", token_file.into());
    option("--project", world.project().into());
    option("--data-dir", data.into());
    arguments.extend(further.iter().map(OsString::from));
    arguments
}

/// Starts a real edge towards `host_url`, with its data in the world's data directory.
#[must_use]
pub fn start_edge(world: &World, host_url: &str, further: &[&str]) -> Program {
    world.start(&edge_arguments(world, host_url, &world.data(), further))
}

/// A call that an edge of [`edge_arguments`] serves.
#[must_use]
pub fn call(id: &str, tool: &str, args: &Value) -> Value {
    json!({
        "type": "call", "protocol": 1, "id": id, "workspaceId": WORKSPACE, "sessionId": "session-1",
        "intention": EDGE_INTENTION, "tool": tool, "args": args,
    })
}

/// The code of an error result; empty for a success.
#[must_use]
pub fn error_code(result: &Value) -> &str {
    result["structuredContent"]["error"]["code"]
        .as_str()
        .unwrap_or("")
}

impl HostSide {
    /// Sends a call and waits for its result, which must carry the call's ids.
    ///
    /// # Panics
    /// When something else comes.
    pub async fn ask(&mut self, frame: &Value) -> Value {
        self.send(frame).await;
        let result = self.next_result().await.expect("a result");
        assert_eq!(
            (&result["id"], &result["sessionId"]),
            (&frame["id"], &frame["sessionId"])
        );
        result["result"].clone()
    }
}
