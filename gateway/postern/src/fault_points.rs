//! Where the fault suite may end a start: around each file, and the folder of rules, that the data directory gets.

/// Every fault point of this crate.
pub(crate) const ALL: &[&str] = &[
    "start.version.staged",
    "start.version.named",
    "start.policies.staged",
    "start.policies.named",
    "start.admin-token.staged",
    "start.admin-token.named",
    "start.channel-token.staged",
    "start.channel-token.named",
    "start.agent-token.staged",
    "start.agent-token.named",
    "start.up.json.staged",
    "start.up.json.named",
    "start.owner-token.staged",
    "start.owner-token.named",
    "start.checkpoint-key.staged",
    "start.checkpoint-key.named",
    "start.checkpoint.json.staged",
    "start.checkpoint.json.named",
    "start.exec-key.staged",
    "start.exec-key.named",
    "start.console-url.staged",
    "start.console-url.named",
    "start.console-name.staged",
    "start.console-name.named",
];

/// The file or folder is written and synced under its temporary name.
pub(crate) fn staged(file: &str) -> String {
    format!("start.{file}.staged")
}

/// The file or folder has its name, and that is not synced.
pub(crate) fn named(file: &str) -> String {
    format!("start.{file}.named")
}
