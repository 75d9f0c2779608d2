//! Traces as Jaeger has them, by its query API. `tests/jaeger` builds Jaeger and runs this.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

#[path = "../tracing/calls.rs"]
mod calls;
mod picture;

use std::{
    collections::BTreeSet, env, fs, net::TcpListener, path::Path, process::Stdio, time::Duration,
};

use http::Method;
use postern_tests::{Apart, Http, World, text_of, wait_for};
use postern_types::{root_span_id, trace_id};
use pretty_assertions::assert_eq;
use serde_json::Value;
use tokio::process::{Child, Command};

use calls::make_each;

/// For Jaeger to be ready, and for a trace to be there.
const LIMIT: Duration = Duration::from_secs(60);
/// Every process of the stack.
const SERVICES: [&str; 7] = [
    "postern-host",
    "postern-edge",
    "postern-identity",
    "postern-policy",
    "postern-filesystem",
    "postern-exec",
    "postern-ledger",
];

/// A running Jaeger, which ends with this.
struct Jaeger {
    _process: Child,
    otlp: String,
    query: String,
}

/// Ports that nobody listens on.
fn ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}

fn configuration([otlp, query, grpc]: [u16; 3]) -> String {
    format!(
        "\
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {{receivers: [otlp], processors: [batch], exporters: [jaeger_storage_exporter]}}
  telemetry:
    metrics: {{level: none}}
    logs: {{level: warn}}
extensions:
  jaeger_query:
    storage: {{traces: memory}}
    http: {{endpoint: \"127.0.0.1:{query}\"}}
    grpc: {{endpoint: \"127.0.0.1:{grpc}\"}}
  jaeger_storage:
    backends: {{memory: {{memory: {{max_traces: 1000}}}}}}
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: \"127.0.0.1:{otlp}\"}}}}}}
processors:
  batch: {{timeout: 50ms}}
exporters:
  jaeger_storage_exporter: {{trace_storage: memory}}
"
    )
}

impl Jaeger {
    async fn start(folder: &Path) -> Self {
        let program = env::var_os("HARNESS_JAEGER").expect("tests/jaeger names it");
        let ports = ports();
        let (config, log) = (folder.join("jaeger.yaml"), folder.join("jaeger.log"));
        fs::write(&config, configuration(ports)).expect("written");
        let process = Command::new(program)
            .arg(format!("--config=file:{}", config.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).expect("a log"))
            .kill_on_drop(true)
            .spawn()
            .expect("Jaeger starts");
        let jaeger = Self {
            _process: process,
            otlp: format!("http://127.0.0.1:{}", ports[0]),
            query: format!("http://127.0.0.1:{}", ports[1]),
        };
        let ready = tokio::time::timeout(
            LIMIT,
            wait_for("Jaeger", LIMIT * 2, || jaeger.get("/api/services")),
        );
        if ready.await.is_err() {
            panic!("{}", fs::read_to_string(&log).unwrap_or_default());
        }
        jaeger
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let url = format!("{}{path}", self.query);
        let http = Http::default();
        let asked = http.send(Method::GET, &url, &[], Vec::new(), |_| true);
        let reply = asked.await.ok()?;
        reply.status.is_success().then_some(reply.json)
    }

    /// A trace, once these services have a part in it.
    async fn trace(&self, id: &str, services: &BTreeSet<String>) -> Value {
        wait_for("a trace", LIMIT, async || {
            let trace = self.get(&format!("/api/traces/{id}")).await?["data"][0].take();
            let processes = trace["processes"].as_object()?;
            let there: BTreeSet<_> = processes
                .values()
                .map(|process| text_of(process, "serviceName"))
                .collect();
            services.is_subset(&there).then_some(trace)
        })
        .await
    }
}

#[tokio::test]
async fn jaeger_has_one_trace_a_call_over_every_process() {
    let mut world = World::new();
    let jaeger = Jaeger::start(world.outside()).await;
    world.set("OTEL_EXPORTER_OTLP_ENDPOINT", &jaeger.otlp);
    world.set("OTEL_BSP_SCHEDULE_DELAY", "20");
    let apart = Apart::start(world).await;
    let made = make_each(&apart.agent(), &apart.owner).await;
    // A second write: by then every service has what it reads at its start.
    let more = make_again(&apart).await;
    for (call_id, methods) in made.iter().chain([&more]) {
        let mut services: BTreeSet<String> = methods
            .iter()
            .filter_map(|method| Some(format!("postern-{}", method.split_once('.')?.0)))
            .collect();
        let always = ["host", "edge", "identity", "policy", "ledger"];
        services.extend(always.map(|service| format!("postern-{service}")));
        let trace = jaeger.trace(&trace_id(call_id), &services).await;
        demand_tree(call_id, &trace);
    }
    let told = jaeger.get("/api/services").await.expect("services");
    for service in SERVICES {
        let there = told["data"].as_array().expect("a list");
        assert!(
            there.iter().any(|known| known == service),
            "{service}: {told}"
        );
    }
    if let Some(file) = env::var_os("HARNESS_PICTURE") {
        let services = SERVICES.iter().filter(|name| !name.ends_with("exec"));
        let services = services.map(|name| (*name).to_owned()).collect();
        let trace = jaeger.trace(&trace_id(&more.0), &services).await;
        fs::write(file, picture::draw(&trace)).expect("drawn");
    }
}

async fn make_again(apart: &Apart) -> calls::Made {
    let id = calls::fresh();
    let arguments =
        serde_json::json!({"path": "src/new.txt", "content": "x", "expectedSha256": null});
    let answer = apart
        .agent()
        .call_as(&id, "workspace_write", &arguments)
        .await;
    assert_eq!(answer.code(), "", "{answer:?}");
    (
        id,
        vec![
            "filesystem.v1.Filesystem/Write",
            "ledger.v1.Ledger/Complete",
        ],
    )
}

/// One root under the derived id, and every other span below one that is there.
fn demand_tree(call_id: &str, trace: &Value) {
    let spans = trace["spans"].as_array().expect("spans");
    let ids: BTreeSet<_> = spans.iter().map(|span| text_of(span, "spanID")).collect();
    let mut roots = Vec::new();
    for span in spans {
        match picture::parent_of(span) {
            Some(parent) => assert!(ids.contains(&parent), "{span:#}"),
            None => roots.push((text_of(span, "operationName"), text_of(span, "spanID"))),
        }
    }
    let root = root_span_id(call_id);
    let root: String = root.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(roots, [("channel.call".to_owned(), root)]);
}
