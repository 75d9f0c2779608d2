//! The tool catalogue, read once from `contract/channel-v1.json` and `contract/identity-tools-v1.json`.

use std::{collections::HashMap, sync::LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The channel contract as served at `GET /api/ai-gateway/v1/protocol`, JSON.
pub const CHANNEL_CONTRACT: &str = include_str!("../contract/channel-v1.json");
/// The contract of the identity tools, JSON.
pub const IDENTITY_CONTRACT: &str = include_str!("../contract/identity-tools-v1.json");

/// Channels a host holds open at most (`limits.channels`).
pub const MAX_CHANNELS: usize = 20;
/// Channels a token holds open at most (`limits.channelsPerToken`).
pub const MAX_CHANNELS_PER_TOKEN: usize = 4;
/// Calls of a workspace in flight at most (`limits.inFlightCallsPerWorkspace`).
pub const MAX_IN_FLIGHT: usize = 4;
/// Bytes of a frame at most (`limits.frameBytes`).
pub const MAX_FRAME_BYTES: usize = 2_097_152;
/// Number of the channel protocol.
pub const PROTOCOL: u32 = 1;

/// What a tool says of itself to a client. It describes; it permits nothing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// The tool changes nothing that it was not asked to end.
    pub read_only_hint: bool,
    /// The tool may replace or remove what was there.
    pub destructive_hint: bool,
    /// Calling it again with the same arguments changes nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// The tool reaches beyond the project.
    pub open_world_hint: bool,
}

/// One tool of the catalogue.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Name, as called.
    pub name: String,
    /// What it is for, in a model's words.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its structured result, where the contract gives one.
    #[serde(default)]
    pub output_schema: Option<Value>,
    /// Hints for clients.
    pub annotations: Annotations,
}

#[derive(Deserialize)]
struct Contract {
    tools: Vec<Tool>,
}

fn read(contract: &str) -> Vec<Tool> {
    #[expect(
        clippy::expect_used,
        reason = "the contract is compiled in and a test reads it"
    )]
    serde_json::from_str::<Contract>(contract)
        .expect("the embedded contract is valid")
        .tools
}

static WORKSPACE: LazyLock<Vec<Tool>> = LazyLock::new(|| read(CHANNEL_CONTRACT));
static IDENTITY: LazyLock<Vec<Tool>> = LazyLock::new(|| read(IDENTITY_CONTRACT));
static BY_NAME: LazyLock<HashMap<&'static str, &'static Tool>> = LazyLock::new(|| {
    WORKSPACE
        .iter()
        .map(|tool| (tool.name.as_str(), tool))
        .collect()
});

/// The 15 `workspace_*` tools, in the contract's order.
#[must_use]
pub fn workspace_tools() -> &'static [Tool] {
    &WORKSPACE
}

/// The two `sosoapi_*` tools, in the contract's order.
#[must_use]
pub fn identity_tools() -> &'static [Tool] {
    &IDENTITY
}

/// The `workspace_*` tool of that name.
#[must_use]
pub fn workspace_tool(name: &str) -> Option<&'static Tool> {
    BY_NAME.get(name).copied()
}

/// Whether a tool's effect needs a durable receipt before it happens (CONTRACT.md, section 2).
#[must_use]
pub fn has_effect(name: &str) -> bool {
    matches!(
        name,
        "workspace_write"
            | "workspace_patch"
            | "workspace_delete"
            | "workspace_exec"
            | "workspace_input"
            | "workspace_stop"
            | "workspace_ask"
            | "workspace_tool"
    )
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn limits_are_those_of_the_contract() {
        let contract: Value = serde_json::from_str(CHANNEL_CONTRACT).expect("contract");
        assert_eq!(contract["limits"]["channels"], MAX_CHANNELS);
        assert_eq!(
            contract["limits"]["channelsPerToken"],
            MAX_CHANNELS_PER_TOKEN
        );
        assert_eq!(
            contract["limits"]["inFlightCallsPerWorkspace"],
            MAX_IN_FLIGHT
        );
        assert_eq!(contract["limits"]["frameBytes"], MAX_FRAME_BYTES);
        assert_eq!(contract["protocol"], PROTOCOL);
    }

    #[test]
    fn catalogue_has_every_tool() {
        assert_eq!(workspace_tools().len(), 15);
        assert_eq!(identity_tools().len(), 2);
        assert!(
            workspace_tool("workspace_read").is_some_and(|tool| tool.annotations.read_only_hint)
        );
        assert!(workspace_tool("workspace_nothing").is_none());
    }

    #[test]
    fn every_tool_with_an_effect_is_in_the_catalogue() {
        let effects = workspace_tools()
            .iter()
            .filter(|tool| has_effect(&tool.name))
            .count();
        assert_eq!(effects, 8);
    }
}
