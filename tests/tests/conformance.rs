//! The official conformance suite of MCP against the real program, in both lifecycles of the protocol.
//!
//! What the suite wants of a server beyond what Postern offers stands in a baseline, with the reason. A failure that is not
//! in it fails the test, and so does an entry that passes or is never tried.
//!
//! (The suite's `--requirements` runs fewer scenarios over the same protocol, all of which are in these.)
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use postern_tests::{Authorizing, World, client};
use pretty_assertions::assert_eq;

/// The whole suite, on a loaded machine.
const SUITE_LIMIT: Duration = Duration::from_secs(180);

async fn conforms(version: &str) {
    let world = World::new();
    let door = world.up("full").await;
    let proxy = Authorizing::to(&door.ready.mcp_url, &door.ready.agent_token).await;
    let baseline = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("conformance/production-{version}.yml"));
    let mut suite = client::node(client::CONFORMANCE);
    suite
        .args(["server", "--suite", "all", "--spec-version", version])
        .args(["--url", proxy.url(), "--expected-failures"])
        .arg(&baseline);
    let ended = world.run_client(suite, SUITE_LIMIT).await;
    assert!(
        ended.code == Some(0),
        "the suite ended with {:?}:\n{}\n{}",
        ended.code,
        ended.stdout,
        ended.stderr
    );
    // The suite passes over entries that it does not come to.
    let failed: BTreeSet<&str> = ended
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("  ~ "))
        .collect();
    let text = fs::read_to_string(baseline).expect("a baseline");
    let expected: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "))
        .collect();
    assert_eq!(failed, expected);
    assert_eq!(door.stop().await.code, Some(0));
}

#[tokio::test]
async fn requests_that_stand_alone_conform() {
    conforms("2026-07-28").await;
}

#[tokio::test]
async fn sessions_conform() {
    conforms("2025-11-25").await;
}
