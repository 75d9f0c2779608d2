use pretty_assertions::assert_eq;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::task::Tasks;

/// Where owners look up what a figure is.
const DOCUMENTATION: &str = include_str!("../../../../docs/tracing.md");

/// The value of one line of the page.
async fn value(line: &str) -> Option<f64> {
    let page = render().await;
    let found = page.lines().find_map(|told| told.strip_prefix(line));
    found.and_then(|rest| rest.trim().parse().ok())
}

#[test]
fn every_metric_can_be_registered_and_is_documented() {
    let told = table::registered();
    let failed: Vec<_> = told.iter().filter(|(_, shown)| !shown).collect();
    assert_eq!(failed, Vec::<&(&str, bool)>::new());
    for (name, _) in told {
        assert!(name.starts_with("postern_"), "{name}");
        let documented = format!("`{name}`");
        assert!(DOCUMENTATION.contains(&documented), "{name} is in no table");
    }
}

#[tokio::test]
async fn what_is_counted_is_on_the_page() {
    CALLS.add(["workspace_read", "ok"], 2);
    CALLS.add(["workspace_read", "ok"], 1);
    let told = value("postern_calls_total{outcome=\"ok\",tool=\"workspace_read\"}").await;
    assert_eq!(told, Some(3.0));
    LEDGER_COMMIT_SECONDS.time([], Duration::from_micros(300));
    for (bound, count) in [("0.00025", 0.0), ("0.0005", 1.0), ("+Inf", 1.0)] {
        let line = format!("postern_ledger_commit_seconds_bucket{{le=\"{bound}\"}}");
        assert_eq!(value(&line).await, Some(count), "{bound}");
    }
    let entered = [CALLS_IN_FLIGHT.enter(), CALLS_IN_FLIGHT.enter()];
    assert_eq!(value("postern_calls_in_flight ").await, Some(2.0));
    drop(entered);
    assert_eq!(value("postern_calls_in_flight ").await, Some(0.0));
}

#[tokio::test]
async fn a_followed_gauge_is_asked_for_when_the_page_is() {
    let (sender, value_of) = std::sync::mpsc::channel();
    EXEC_RUNNING.follow(move || value_of.try_recv().ok());
    sender.send(3).expect("followed");
    assert_eq!(value("postern_exec_running ").await, Some(3.0));
    // Nobody knows: the last value stays.
    assert_eq!(value("postern_exec_running ").await, Some(3.0));
    EXEC_RUNNING.follow(|| Some(5));
    assert_eq!(value("postern_exec_running ").await, Some(5.0));
}

#[tokio::test]
async fn the_process_tells_of_itself() {
    for (name, least) in [
        ("process_resident_memory_bytes", 1e6),
        ("process_virtual_memory_bytes", 1e6),
        ("process_open_fds", 3.0),
        ("process_max_fds", 3.0),
        ("process_threads", 1.0),
        // November 2023: after that this was written.
        ("process_start_time_seconds", 1.7e9),
        ("process_cpu_seconds_total", 0.0),
    ] {
        let told = value(&format!("{name} ")).await;
        assert!(told.is_some_and(|told| told >= least), "{name}: {told:?}");
    }
    let started = value("process_start_time_seconds ").await.expect("told");
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .expect("after 1970")
        .as_secs_f64();
    assert!(started <= now + 1.0, "{started} {now}");
}

#[tokio::test]
async fn the_listener_answers_the_page_and_nothing_else() {
    let page = Page::bind("127.0.0.1:0").await.expect("bound");
    let address = page.url().strip_prefix("http://").expect("a URL");
    let address = address
        .strip_suffix("/metrics")
        .expect("its path")
        .to_owned();
    let tasks = Tasks::new();
    tasks.spawn("metrics", serve(page, tasks.clone(), tasks.stopping()));
    for (line, status) in [
        ("GET /metrics", "200"),
        ("HEAD /metrics", "200"),
        ("POST /metrics", "405"),
        ("GET /", "404"),
        ("GET /metrics/x", "404"),
    ] {
        let mut stream = tokio::net::TcpStream::connect(&address)
            .await
            .expect("open");
        let request = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{line}: {answer}"
        );
        let has_page = answer.contains("process_threads");
        assert_eq!(has_page, line == "GET /metrics", "{line}");
        let is_text = answer.contains("content-type: text/plain; version=0.0.4");
        assert_eq!(is_text, status == "200", "{line}: {answer}");
    }
    assert!(tasks.shutdown(Duration::from_secs(5)).await);
}
