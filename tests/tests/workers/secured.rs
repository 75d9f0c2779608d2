//! A worker, its ledger and an edge by certificates, with a bad network between the worker and the ledger.

use std::{ffi::OsString, path::Path, time::Duration};

use postern_tests::{
    Alone, CHANNEL_TOKEN, FakeHost, HostSide, Program, WORKSPACE, World, call, certificates,
    error_code,
    proxy::{Break, Proxy},
    start_edge, text_of, wait_for,
};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fleet::LIMIT;

/// The lease of the worker, in seconds.
const LEASE: &str = "2";
/// Two of them.
const TWO_LEASES: Duration = Duration::from_secs(4);

/// Everything by mutual TLS. The worker reaches its ledger through the proxy.
struct Secured {
    world: World,
    proxy: Proxy,
    worker: Alone,
    channel: HostSide,
    calls: u32,
    _ledger: Alone,
    _edge: Program,
    _host: FakeHost,
}

impl Secured {
    /// With a network between worker and ledger that swallows everything.
    async fn start() -> Self {
        let mut world = World::new();
        world.set("POSTERN_LOG", "info");
        let certs = certificates(&world).await;
        let tls = |role: &str| -> [OsString; 2] { ["--tls-dir".into(), certs.join(role).into()] };
        let ledger = Alone::start(&world, "ledger", "127.0.0.1:0", &tls("ledger")).await;
        let proxy = Proxy::raw(ledger.address()).await;
        proxy.black_hole();
        let mut further = tls("exec").to_vec();
        further.extend(["--ledger", proxy.address(), "--lease", LEASE].map(OsString::from));
        let worker = Alone::start(&world, "exec", "127.0.0.1:0", &further).await;
        let host = FakeHost::listen().await;
        let own = path(&certs.join("edge"));
        let further = ["--listen-none", "--tls-dir", &own, "--exec", "ledger"];
        let further = [&further[..], &["--ledger", ledger.address()]].concat();
        let edge = start_edge(&world, host.url(), &further);
        let channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
        Self {
            world,
            proxy,
            worker,
            channel,
            calls: 0,
            _ledger: ledger,
            _edge: edge,
            _host: host,
        }
    }

    /// What a probe is told of the worker.
    async fn health(&self) -> String {
        let tls = path(&self.world.outside().join("certs/operator"));
        let address = self.worker.address();
        let words = ["healthcheck", "--json", address, "--tls-dir", &tls];
        let told: Value =
            serde_json::from_str(&self.world.run(&words).await.stdout).expect("an answer");
        text_of(&told, "status")
    }

    fn registrations(&self) -> usize {
        let said = self.worker.program().stderr();
        said.matches("is registered with the ledger").count()
    }

    async fn ask(&mut self, tool: &str, args: &Value) -> Value {
        self.calls += 1;
        let frame = call(&format!("call-{}", self.calls), tool, args);
        self.channel.ask(&frame).await
    }

    /// Starts a command, once a worker is known.
    async fn begin(&mut self, command: &str) -> String {
        let until = tokio::time::Instant::now() + LIMIT;
        loop {
            let answer = self
                .ask("workspace_exec", &json!({"command": command}))
                .await;
            if !["BUSY", "UNAVAILABLE"].contains(&error_code(&answer)) {
                return text_of(&answer["structuredContent"], "commandId");
            }
            assert!(tokio::time::Instant::now() < until, "{answer}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn poll(&mut self, command: &str) -> Value {
        let poll = json!({"commandId": command, "offset": 0});
        let answer = self.ask("workspace_poll", &poll).await;
        answer["structuredContent"].clone()
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

#[tokio::test]
async fn a_worker_by_certificates_behind_a_bad_network_to_its_ledger() {
    let mut secured = Secured::start().await;
    // Swallowed before it could register, it is no worker yet, and is one as soon as the network is there.
    wait_for("word that its ledger is away", LIMIT, async || {
        let said = secured.worker.program().stderr();
        said.contains("the ledger does not answer").then_some(())
    })
    .await;
    assert_eq!(secured.health().await, "NOT_SERVING");
    let nothing = json!({"command": "true"});
    let refused = secured.ask("workspace_exec", &nothing).await;
    assert!(
        ["BUSY", "UNAVAILABLE"].contains(&error_code(&refused)),
        "{refused}"
    );
    secured.proxy.open();
    let command = secured.begin("read line; echo $line").await;
    assert_eq!(secured.health().await, "SERVING");

    for how in [Break::Close, Break::Reset] {
        secured.proxy.cut(how);
        secured.begin("true").await;
        tokio::time::sleep(TWO_LEASES).await;
    }
    assert_eq!(secured.poll(&command).await["status"], "running");
    assert_eq!(secured.registrations(), 1);

    // It drains by certificates as without: nothing new, and what runs can be written to until it has ended.
    secured.worker.program().signal(Signal::TERM);
    wait_for("a worker that drains", LIMIT, async || {
        (secured.health().await == "NOT_SERVING").then_some(())
    })
    .await;
    let refused = secured.ask("workspace_exec", &nothing).await;
    assert!(
        ["BUSY", "UNAVAILABLE"].contains(&error_code(&refused)),
        "{refused}"
    );
    let line = json!({"commandId": command, "text": "typed\n"});
    let typed = secured.ask("workspace_input", &line).await;
    assert_eq!(typed["structuredContent"]["bytes"], 6, "{typed}");
    assert_eq!(secured.worker.ended().await.code, Some(0));
}
