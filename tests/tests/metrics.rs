//! Figures: the page of each process in Prometheus' format, and what moves them (CONTRACT.md, section 8).

use std::time::Duration;

use http::{Method, StatusCode};
use postern_tests::{Apart, Exposition, Http, SERVICES, World, figures_at, text_of, wait_for};
use pretty_assertions::assert_eq;
use serde_json::json;

/// For a figure to move, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(30);
/// Figures of each process, under the names that Prometheus' own clients give them.
const OF_EACH: [&str; 6] = [
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
];

/// Calls that were answered so.
fn calls(figures: &Exposition, tool: &str, outcome: &str) -> Option<f64> {
    figures.sum(
        "postern_calls_total",
        &[("tool", tool), ("outcome", outcome)],
    )
}

#[tokio::test]
async fn up_counts_each_call_once() {
    let world = World::new();
    let door = world.up_with("full", &["--metrics", "127.0.0.1:0"]).await;
    let page = text_of(&door.ready.line, "metrics");
    let agent = door.agent();
    let before = figures_at(&page).await;
    assert_eq!(before.sum("postern_channels", &[]), Some(1.0));
    assert_eq!(before.sum("postern_calls_total", &[]), None);
    let written = json!({"path": "new.txt", "content": "canary-content", "expectedSha256": null});
    let _ = agent.call("workspace_write", written.clone()).await.ok();
    let _ = agent
        .call("workspace_write", written)
        .await
        .refused("ALREADY_EXISTS");
    let _ = agent
        .call("workspace_read", json!({"path": "new.txt"}))
        .await
        .ok();
    let _ = agent
        .call("workspace_read", json!({"path": "canary-path"}))
        .await
        .refused("NOT_FOUND");
    let command = agent.exec("sleep 300 # canary-command").await;
    let after = wait_for("the record of the last call", LIMIT, async || {
        let figures = figures_at(&page).await;
        (figures.sum("postern_ledger_batch_size_sum", &[]) >= Some(6.0)).then_some(figures)
    })
    .await;
    for (tool, outcome, count) in [
        ("workspace_write", "ok", Some(1.0)),
        ("workspace_write", "ALREADY_EXISTS", Some(1.0)),
        ("workspace_read", "ok", Some(1.0)),
        ("workspace_read", "NOT_FOUND", Some(1.0)),
        ("workspace_exec", "ok", Some(1.0)),
        ("workspace_patch", "ok", None),
    ] {
        assert_eq!(calls(&after, tool, outcome), count, "{tool} {outcome}");
    }
    let labels = ["outcome", "tool"];
    for sample in &after.family("postern_calls_total").samples {
        assert!(sample.labels.keys().eq(labels), "{sample:?}");
    }
    let tool = [("tool", "workspace_write")];
    assert_eq!(
        after.sum("postern_call_duration_seconds_count", &tool),
        Some(2.0)
    );
    assert!(after.sum("postern_ledger_commit_seconds_sum", &[]) > Some(0.0));
    of_the_worker(&after);
    drop(
        agent
            .call("workspace_stop", json!({"commandId": command}))
            .await
            .ok(),
    );
    let text = format!("{after:?}");
    for canary in ["canary", INTENTION_PART, &door.ready.workspace_id] {
        assert!(!text.contains(canary), "{canary}");
    }
    door.stop().await;
}

/// The exec worker is a process of its own: its figures are on the page with their label, and those of the edge without it.
fn of_the_worker(figures: &Exposition) {
    let exec = [("process", "exec")];
    assert_eq!(figures.sum("postern_exec_running", &exec), Some(1.0));
    assert_eq!(figures.sum("postern_exec_started_total", &exec), Some(1.0));
    for name in OF_EACH {
        let family = figures.family(name);
        let whose: Vec<Option<&str>> = family
            .samples
            .iter()
            .map(|sample| sample.labels.get("process").map(String::as_str))
            .collect();
        assert_eq!(whose, [None, Some("exec")], "{name}");
    }
}

/// A part of the intention that no figure may tell.
const INTENTION_PART: &str = "door from outside";

#[tokio::test]
async fn the_owner_sees_them_at_his_address_and_nobody_else_does() {
    let world = World::new();
    let door = world.up("full").await;
    assert!(door.ready.line["metrics"].is_null(), "{}", door.ready.line);
    let reply = door.owner().send(Method::GET, "/metrics", None).await;
    assert_eq!(reply.status, StatusCode::OK);
    let figures = Exposition::read(std::str::from_utf8(&reply.body).expect("text"));
    assert_eq!(figures.sum("postern_channels", &[]), Some(1.0));
    let url = format!("{}/metrics", door.ready.console_url.trim_end_matches('/'));
    let agent = format!("Bearer {}", door.ready.agent_token);
    for headers in [&[][..], &[("authorization", agent.as_str())]] {
        let reply = Http::default()
            .send(Method::GET, &url, headers, Vec::new(), |_| true)
            .await
            .expect("answered");
        assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
        assert!(!String::from_utf8_lossy(&reply.body).contains("process_"));
    }
    door.stop().await;
}

#[tokio::test]
async fn each_process_has_a_page_of_its_own_part() {
    let apart = Apart::start(World::new()).await;
    let agent = apart.agent();
    let written = json!({"path": "new.txt", "content": "x", "expectedSha256": null});
    let _ = agent.call("workspace_write", written).await.ok();
    let id = agent.exec("sleep 300").await;
    for role in ["host", "edge"].into_iter().chain(SERVICES) {
        let figures = apart.figures(role).await;
        for name in OF_EACH {
            assert!(
                figures.sum(name, &[]) > Some(0.0) || name.contains("cpu"),
                "{role} {name}"
            );
        }
    }
    for role in ["host", "edge"] {
        let figures = apart.figures(role).await;
        assert_eq!(figures.sum("postern_channels", &[]), Some(1.0), "{role}");
        assert_eq!(
            calls(&figures, "workspace_write", "ok"),
            Some(1.0),
            "{role}"
        );
        assert_eq!(calls(&figures, "workspace_exec", "ok"), Some(1.0), "{role}");
        assert_eq!(
            figures.sum("postern_calls_in_flight", &[]),
            Some(0.0),
            "{role}"
        );
    }
    let exec = apart.figures("exec").await;
    assert_eq!(exec.sum("postern_exec_running", &[]), Some(1.0));
    assert_eq!(exec.sum("postern_exec_started_total", &[]), Some(1.0));
    assert!(exec.sum("postern_exec_capacity", &[]) > Some(1.0));
    let ledger = apart.figures("ledger").await;
    assert!(ledger.sum("postern_ledger_commit_seconds_count", &[]) >= Some(2.0));
    assert_eq!(
        ledger.sum("postern_receipts_uncertain_total", &[]),
        Some(0.0)
    );
    assert_eq!(
        ledger.sum("postern_receipts_orphaned_total", &[]),
        Some(0.0)
    );
    let _ = agent
        .call("workspace_stop", json!({"commandId": id}))
        .await
        .ok();
    let exec = apart.figures("exec").await;
    assert_eq!(exec.sum("postern_exec_running", &[]), Some(0.0));
}
