//! Traces: one a call, over every process that has a part in it, with parents that are there and nothing that anybody said
//! (CONTRACT.md, section 8).

#![expect(clippy::expect_used, reason = "tests fail by panicking")]

mod calls;
mod collector;

use std::{collections::BTreeSet, time::Duration};

use postern_tests::{
    Apart, CHANNEL_TOKEN, EDGE_INTENTION, FakeHost, INTENTION, WORKSPACE, World, call, start_edge,
    wait_for,
};
use postern_types::{root_span_id, trace_id};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

use calls::{fresh, make_each};
use collector::{Collector, Seen};

/// For a word to reach the log, or a program to end.
const LIMIT: Duration = Duration::from_secs(30);
/// What agents and the owner say in these tests, in every place where they can.
const CANARY: &str = "canary";

fn root_of(call_id: &str) -> String {
    let id = root_span_id(call_id);
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names behind what service each is of.
fn of(service: &str, names: &[&str]) -> Vec<String> {
    names
        .iter()
        .map(|name| format!("{service}: {name}"))
        .collect()
}

/// That the spans are one trace: one root under the derived id, and every other below one that is there.
fn demand_one_trace(call_id: &str, spans: &[Seen]) {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    assert_eq!(ids.len(), spans.len(), "no id twice");
    let roots: Vec<_> = spans.iter().filter(|span| span.parent.is_empty()).collect();
    assert_eq!(roots.len(), 1, "{roots:#?}");
    assert_eq!(
        (roots[0].name.as_str(), &roots[0].id),
        ("channel.call", &root_of(call_id))
    );
    for span in spans {
        assert_eq!(span.trace, trace_id(call_id));
        let has_parent = span.parent.is_empty() || ids.contains(span.parent.as_str());
        assert!(has_parent, "{span:#?}");
        assert!(span.times.0 <= span.times.1, "{span:#?}");
        // Its server has a part in its trace only by its caller's span.
        if span.attributes.contains_key("rpc.method") && span.attributes["rpc.system"] == "grpc" {
            assert!(
                span.name.ends_with(&span.attributes["rpc.method"]),
                "{span:#?}"
            );
        }
    }
}

/// Which process a service's spans are of.
fn process_of(method: &str) -> &'static str {
    let services = ["identity", "policy", "filesystem", "exec", "ledger"];
    let found = services
        .into_iter()
        .find(|service| method.starts_with(service));
    found.expect("a service of ours")
}

#[tokio::test]
async fn each_call_is_one_trace_over_every_process() {
    let collector = Collector::start().await;
    let apart = Apart::start(collector.world()).await;
    let made = make_each(&apart.agent(), &apart.owner).await;
    for (call_id, methods) in &made {
        let mut names = of("postern-host", &["channel.call", "POST /mcp"]);
        names.extend(of("postern-edge", &["channel.answer"]));
        let always = ["identity.v1.EdgeIdentity/Admit", "policy.v1.Policy/Decide"];
        for method in always.iter().chain(methods) {
            // The caller's span, and below it the server's.
            let name = format!("postern.{method}");
            names.extend(of("postern-edge", &[&name]));
            names.extend(of(&format!("postern-{}", process_of(method)), &[&name]));
        }
        names.extend(of("postern-ledger", &["COMMIT ledger"]));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let spans = collector.trace(&trace_id(call_id), &names).await;
        demand_one_trace(call_id, &spans);
        demand_pairs(&spans);
    }
    // The first call opened the session, and journalled an effect.
    let first = collector
        .trace(
            &trace_id(&made[0].0),
            &[
                "postern-identity: INSERT identity",
                "postern-identity: COMMIT identity",
                "postern-host: INSERT journal",
            ],
        )
        .await;
    for span in first.iter().filter(|span| span.name.ends_with(" identity")) {
        assert_eq!(span.attributes["db.system.name"], "sqlite");
        assert_eq!(
            span.name,
            format!("{} identity", span.attributes["db.operation.name"])
        );
    }
    let receipts = apart.owner.receipts_of(&made[0].0).await;
    assert_eq!(receipts[0]["traceId"], trace_id(&made[0].0));
    demand_nothing_said(
        &collector,
        &[
            &apart.host.agent_token,
            &apart.host.channel_token,
            &apart.host.workspace,
            EDGE_INTENTION,
        ],
    );
    let roots = collector
        .spans()
        .into_iter()
        .filter(|span| span.name == "channel.call");
    let roots: Vec<_> = roots.collect();
    assert_eq!(roots.len(), made.len(), "one root a call");
    for root in roots {
        let outcome = root.attributes["postern.outcome"].as_str();
        assert_eq!(root.failed, outcome != "ok", "{root:#?}");
    }
    drop(apart);
    collector.stop().await;
}

fn parent_of<'a>(span: &Seen, spans: &'a [Seen]) -> &'a Seen {
    let found = spans.iter().find(|other| other.id == span.parent);
    found.unwrap_or_else(|| panic!("no parent of {span:#?}"))
}

/// That each server's span hangs below its caller's of the same name.
fn demand_pairs(spans: &[Seen]) {
    for span in spans
        .iter()
        .filter(|span| span.attributes.contains_key("rpc.method"))
    {
        let parent = parent_of(span, spans);
        let is_caller = span.service == "postern-edge" || span.service == "postern-host";
        assert_eq!(
            parent.name == span.name,
            !is_caller,
            "{span:#?} {parent:#?}"
        );
        assert_eq!(span.attributes["rpc.grpc.status_code"].is_empty(), false);
    }
    for span in spans.iter().filter(|span| span.name == "COMMIT ledger") {
        let parent = parent_of(span, spans);
        assert_eq!(parent.service, "postern-ledger", "{parent:#?}");
        assert!(parent.attributes.contains_key("rpc.method"), "{parent:#?}");
    }
}

/// That nothing of what was said, no path and no token is anywhere in what was exported.
fn demand_nothing_said(collector: &Collector, secrets: &[&str]) {
    let text = collector.text();
    for said in [CANARY, "greeting.txt", "/tmp/", INTENTION, "Bearer", "pst_"]
        .iter()
        .chain(secrets)
    {
        if let Some(at) = text.find(said) {
            let from = text.floor_char_boundary(at.saturating_sub(300));
            let to = text.floor_char_boundary(text.len().min(at + 300));
            panic!("{said} in …{}…", &text[from..to]);
        }
    }
}

#[tokio::test]
async fn up_tells_the_same_and_sends_the_last_at_its_end() {
    let collector = Collector::start().await;
    let mut world = collector.world();
    // Nothing is sent by itself in this test's time: what comes, comes at the end.
    world.set("OTEL_BSP_SCHEDULE_DELAY", "600000");
    let door = world.up("full").await;
    let made = make_each(&door.agent(), &door.owner()).await;
    assert!(
        collector
            .spans()
            .iter()
            .all(|span| span.service != "postern")
    );
    let secrets = [
        door.ready.agent_token.clone(),
        door.ready.owner_token.clone(),
    ];
    door.stop().await;
    for (call_id, methods) in &made {
        let mut names = of(
            "postern",
            &[
                "channel.call",
                "POST /mcp",
                "channel.answer",
                "COMMIT ledger",
            ],
        );
        for method in methods {
            let process = if process_of(method) == "exec" {
                "postern-exec"
            } else {
                "postern"
            };
            names.extend(of(process, &[&format!("postern.{method}")]));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let spans = collector.trace(&trace_id(call_id), &names).await;
        demand_one_trace(call_id, &spans);
    }
    demand_nothing_said(&collector, &secrets.each_ref().map(String::as_str));
    collector.stop().await;
}

#[tokio::test]
async fn a_call_made_again_has_no_second_root_and_the_agents_trace_is_linked() {
    let collector = Collector::start().await;
    let world = collector.world();
    let door = world.up("full").await;
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let agent = door.agent().in_trace(&format!("00-{trace}-{span}-01"));
    let id = fresh();
    let written = json!({"path": "new.txt", "content": "x", "expectedSha256": null});
    let _ = agent.call_as(&id, "workspace_write", &written).await.ok();
    let _ = agent.call_as(&id, "workspace_write", &written).await.ok();
    let spans = collector
        .trace(
            &trace_id(&id),
            &["postern: channel.call", "postern: channel.call again"],
        )
        .await;
    demand_one_trace(&id, &spans);
    let linked = (trace.to_owned(), span.to_owned());
    let root = (trace_id(&id), root_of(&id));
    for seen in &spans {
        match seen.name.as_str() {
            "channel.call" => assert_eq!(seen.links, std::slice::from_ref(&linked)),
            "channel.call again" => assert_eq!(seen.links, [root.clone(), linked.clone()]),
            _ => assert!(!seen.links.contains(&linked), "{seen:#?}"),
        }
    }
    assert!(
        collector.spans().iter().all(|span| span.trace != trace),
        "a link is no part of it"
    );
    door.stop().await;
    collector.stop().await;
}

#[tokio::test]
async fn below_a_foreign_host_an_edge_makes_no_root() {
    let collector = Collector::start().await;
    let world = collector.world();
    let host = FakeHost::listen().await;
    let edge = start_edge(&world, host.url(), &["--listen-none"]);
    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    // No UUID: the trace's id is made of its digest.
    for _ in 0..2 {
        let _ = channel
            .ask(&call("call-1", "workspace_info", &json!({})))
            .await;
    }
    let names = [
        "postern-edge: channel.answer",
        "postern-edge: postern.ledger.v1.Ledger/Record",
    ];
    let spans = collector.trace(&trace_id("call-1"), &names).await;
    let answers: Vec<_> = spans
        .iter()
        .filter(|span| span.name == "channel.answer")
        .collect();
    assert!(!answers.is_empty());
    for answer in answers {
        assert_eq!(answer.parent, root_of("call-1"));
    }
    assert!(
        spans.iter().all(|span| !span.parent.is_empty()),
        "{spans:#?}"
    );
    edge.signal(Signal::TERM);
    assert_eq!(edge.ended(LIMIT).await.code, Some(0));
    collector.stop().await;
}

#[tokio::test]
async fn log_lines_tell_the_trace_whether_or_not_it_is_exported() {
    let collector = Collector::start().await;
    for (mut world, format) in [
        (World::new(), "json"),
        (World::new(), "text"),
        (collector.world(), "json"),
    ] {
        world.set("POSTERN_LOG", "warn,postern_edge=info");
        world.set("POSTERN_LOG_FORMAT", format);
        let door = world.up("full").await;
        let id = fresh();
        let _ = door
            .agent()
            .call_as(&id, "workspace_info", &json!({}))
            .await
            .ok();
        let said = wait_for("the line of the call", LIMIT, async || {
            let log = door.program.stderr();
            log.lines()
                .find(|line| line.contains("call answered"))
                .map(str::to_owned)
        })
        .await;
        if format == "json" {
            let line: Value = serde_json::from_str(&said).expect("a line of JSON");
            assert_eq!(line["trace_id"], trace_id(&id), "{said}");
            assert_eq!(line["span_id"].as_str().map(str::len), Some(16), "{said}");
            assert_eq!(line["fields"]["outcome"], "ok", "{said}");
        } else {
            assert!(
                said.contains(&format!("trace_id={}", trace_id(&id))),
                "{said}"
            );
        }
        door.stop().await;
    }
    collector.stop().await;
}
