//! The network between an edge and each of its services breaks, hangs and is slow, and so does that between a service or the
//! host and its database: callers are told in time, nothing is done twice, and everything works again by itself.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    fs,
    time::{Duration, Instant},
};

use postern_test_postgres::{Cluster, folder, socket};
use postern_tests::{
    Agent, Alone, Answer, CHANNEL_TOKEN, FakeHost, Fault, HostSide, Program, RealHost, WORKSPACE,
    World, call, certificates, edge_arguments, error_code,
    proxy::{Break, Proxy},
    start_edge,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::time::timeout;

/// Within which a caller is told that a service is away or hangs (CONTRACT.md, section 8).
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// Within which everything works again, once the network does.
const RECOVERED_WITHIN: Duration = Duration::from_secs(12);
/// What a slow network takes for each piece.
const SLOW: Duration = Duration::from_millis(150);

/// What is behind the proxy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Behind {
    Service,
    /// With certificates between the edge and the service.
    SecuredService,
    /// The service's database.
    Database,
}

/// One edge with one service behind a proxy, the others in its own process; or the service's database behind it.
struct Arrow {
    role: &'static str,
    world: World,
    proxy: Proxy,
    service: Alone,
    channel: HostSide,
    calls: u32,
    _host: FakeHost,
    _edge: Program,
}

impl Arrow {
    async fn new(role: &'static str, behind: Behind) -> Self {
        let world = World::new();
        let (mut served, mut further) = (Vec::new(), vec!["--listen-none".to_owned()]);
        let mut database = None;
        if behind == Behind::Database {
            let (proxy, url) = database_behind_a_proxy().await;
            served.extend(["--database".into(), url.into()]);
            database = Some(proxy);
        }
        if behind == Behind::SecuredService {
            let certs = certificates(&world).await;
            served.extend(["--tls-dir".into(), certs.join(role).into()]);
            further.extend([
                "--tls-dir".to_owned(),
                certs.join("edge").display().to_string(),
            ]);
        }
        let service = Alone::start(&world, role, "127.0.0.1:0", &served).await;
        let proxy = match database {
            Some(proxy) => {
                further.extend([format!("--{role}"), service.address().to_owned()]);
                proxy
            }
            None => {
                let proxy = Proxy::raw(service.address()).await;
                further.extend([format!("--{role}"), proxy.address().to_owned()]);
                proxy
            }
        };
        let further: Vec<&str> = further.iter().map(String::as_str).collect();
        let host = FakeHost::listen().await;
        let edge = start_edge(&world, host.url(), &further);
        let channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
        Self {
            role,
            world,
            proxy,
            service,
            channel,
            calls: 0,
            _host: host,
            _edge: edge,
        }
    }

    /// A call that leaves one line in a file of its own, for each time that it is done.
    fn next_call(&mut self) -> (Value, String) {
        self.calls += 1;
        let (id, file) = (
            format!("call-{}", self.calls),
            format!("{}.txt", self.calls),
        );
        let frame = if self.role == "exec" {
            let command = format!("echo done >> {file}");
            call(&id, "workspace_exec", &json!({"command": command}))
        } else {
            let write = json!({"path": file, "content": "done\n", "expectedSha256": null});
            call(&id, "workspace_write", &write)
        };
        (frame, file)
    }

    /// Sends a call until it is answered otherwise than that something is away, and tells how long that took.
    async fn until_done(&mut self, frame: &Value) -> (Value, Duration) {
        let started = Instant::now();
        loop {
            let answer = self.channel.ask(frame).await;
            if error_code(&answer) != "UNAVAILABLE" {
                return (answer, started.elapsed());
            }
            assert!(
                started.elapsed() < RECOVERED_WITHIN,
                "{}: {answer}",
                self.role
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The call was done once, whatever its caller was told meanwhile.
    async fn done_once(&self, answer: &Value, file: &str) {
        assert_eq!(error_code(answer), "", "{}: {answer}", self.role);
        let path = self.world.project().join(file);
        postern_tests::wait_for("the effect", TOLD_WITHIN, async || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            text.ends_with('\n').then_some(())
        })
        .await;
        assert_eq!(self.world.read(file), b"done\n", "{}", self.role);
    }

    fn is_away(&self, answer: &Value, started: Instant) {
        let error = &answer["structuredContent"]["error"];
        assert_eq!(error["code"], "UNAVAILABLE", "{}: {answer}", self.role);
        assert_eq!(error["retryable"], true, "{}: {answer}", self.role);
        assert!(
            started.elapsed() < TOLD_WITHIN,
            "{}: {:?}",
            self.role,
            started.elapsed()
        );
    }

    /// A network that hangs swallows a call: it is told in time, and done once when the network is back.
    async fn hangs(&mut self) {
        let (frame, file) = self.next_call();
        self.proxy.black_hole();
        let started = Instant::now();
        let answer = self.channel.ask(&frame).await;
        self.is_away(&answer, started);
        assert!(!self.world.project().join(&file).exists(), "{}", self.role);
        self.proxy.open();
        let (answer, took) = self.until_done(&frame).await;
        assert!(took < RECOVERED_WITHIN, "{}: {took:?}", self.role);
        self.done_once(&answer, &file).await;
    }

    /// Connections break, idle and under a call.
    async fn breaks(&mut self) {
        for how in [Break::Close, Break::Reset] {
            let (frame, file) = self.next_call();
            self.proxy.cut(how);
            let (answer, _) = self.until_done(&frame).await;
            self.done_once(&answer, &file).await;
            let (frame, file) = self.next_call();
            self.proxy.delay(SLOW);
            self.channel.send(&frame).await;
            tokio::time::sleep(SLOW + SLOW / 2).await;
            self.proxy.cut(how);
            self.proxy.delay(Duration::ZERO);
            let answer = match self.channel.next_result().await {
                Ok(broken) => broken["result"].clone(),
                Err(closed) => panic!("{}: the channel was closed: {closed:?}", self.role),
            };
            assert!(
                ["", "UNAVAILABLE"].contains(&error_code(&answer)),
                "{}: {answer}",
                self.role
            );
            let (answer, _) = self.until_done(&frame).await;
            self.done_once(&answer, &file).await;
        }
    }

    /// A slow network is no fault.
    async fn is_slow(&mut self) {
        self.proxy.delay(SLOW);
        let (frame, file) = self.next_call();
        let answer = self.channel.ask(&frame).await;
        self.done_once(&answer, &file).await;
        self.proxy.delay(Duration::ZERO);
    }

    /// The service ends and comes back, and nobody else is started again.
    async fn restarts(&mut self) {
        assert_eq!(self.service.end().await.code, Some(0), "{}", self.role);
        let (frame, file) = self.next_call();
        let started = Instant::now();
        let answer = self.channel.ask(&frame).await;
        self.is_away(&answer, started);
        self.service.begin(&self.world).await;
        let (answer, _) = self.until_done(&frame).await;
        self.done_once(&answer, &file).await;
    }
}

/// A database of its own behind a proxy, with the URL that leads through it.
async fn database_behind_a_proxy() -> (Proxy, String) {
    let url = Cluster::shared().database();
    let server = folder(&url).expect("a folder");
    let proxy = Proxy::to_socket(socket(server)).await;
    let url = Cluster::url_by(proxy.address(), &url);
    (proxy, url)
}

async fn try_arrow(role: &'static str, behind: Behind) {
    let mut arrow = Arrow::new(role, behind).await;
    arrow.is_slow().await;
    arrow.breaks().await;
    if behind != Behind::Database {
        arrow.restarts().await;
    }
    arrow.hangs().await;
}

#[tokio::test]
async fn identity_behind_a_bad_network() {
    try_arrow("identity", Behind::Service).await;
}

#[tokio::test]
async fn policy_behind_a_bad_network() {
    try_arrow("policy", Behind::SecuredService).await;
}

#[tokio::test]
async fn filesystem_behind_a_bad_network() {
    try_arrow("filesystem", Behind::Service).await;
}

#[tokio::test]
async fn exec_behind_a_bad_network() {
    try_arrow("exec", Behind::SecuredService).await;
}

#[tokio::test]
async fn ledger_behind_a_bad_network() {
    try_arrow("ledger", Behind::SecuredService).await;
}

#[tokio::test]
async fn the_edges_identity_before_a_bad_network_to_its_database() {
    try_arrow("identity", Behind::Database).await;
}

#[tokio::test]
async fn the_ledger_before_a_bad_network_to_its_database() {
    try_arrow("ledger", Behind::Database).await;
}

/// A host whose database is behind a proxy, an edge and an agent.
struct Founded {
    proxy: Proxy,
    host: RealHost,
    _edge: Program,
    agent: Agent,
}

impl Founded {
    async fn new() -> Self {
        let (proxy, url) = database_behind_a_proxy().await;
        let (host, _) = RealHost::start_in(World::new(), &["--database", &url]).await;
        let token = host.world.secret("token", &host.channel_token);
        let token = token.display().to_string();
        let further = [
            "--listen-none",
            "--workspace",
            &host.workspace,
            "--token-file",
            &token,
        ];
        let data = host.world.outside().join("edge");
        let arguments = edge_arguments(&host.world, &host.url, &data, &further);
        let mut edge = host.world.start(&arguments);
        edge.event("connected", RECOVERED_WITHIN).await;
        let agent = host.agent();
        Self {
            proxy,
            host,
            _edge: edge,
            agent,
        }
    }

    async fn write(&self, id: &str) -> Result<Answer, Fault> {
        let path = format!("{id}.txt");
        let write = json!({"path": path, "content": "done\n", "expectedSha256": null});
        let write = write.to_string();
        let written = self.agent.try_call(Some(id), "workspace_write", &write);
        let written = timeout(TOLD_WITHIN, written).await;
        written.expect("the caller is told in time")
    }

    fn is_there(&self, id: &str) -> bool {
        self.host.world.project().join(format!("{id}.txt")).exists()
    }

    /// Makes the call until it is answered, and looks that it was done once: a second time it would be refused, since the
    /// file is there then.
    async fn until_done(&self, id: &str) {
        let started = Instant::now();
        loop {
            match self.write(id).await {
                Ok(answer) if answer.code() != "UNAVAILABLE" => {
                    drop(answer.ok());
                    break;
                }
                refused => assert!(started.elapsed() < RECOVERED_WITHIN, "{id}: {refused:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(self.is_there(id), "{id}");
    }
}

#[tokio::test]
async fn the_host_before_a_bad_network_to_its_database() {
    let founded = Founded::new().await;
    founded.proxy.delay(SLOW);
    founded.until_done("slow").await;
    founded.proxy.delay(Duration::ZERO);
    for (how, id) in [(Break::Close, "closed"), (Break::Reset, "reset")] {
        founded.proxy.cut(how);
        founded.until_done(id).await;
    }

    // Who was let in is let in for some seconds; then nobody can know any more what was revoked.
    founded.proxy.black_hole();
    let mut number = 0;
    let (refused, id) = loop {
        number += 1;
        let id = format!("hung-{number}");
        match founded.write(&id).await {
            Ok(answer) => drop(answer.ok()),
            Err(refused) => break (refused, id),
        }
        assert!(number < 1000, "it goes on without its database");
    };
    match refused {
        Fault::Http(status, problem) => {
            assert_eq!(status, 503, "{problem}");
            assert_eq!(problem["code"], "unavailable", "{problem}");
        }
        other @ (Fault::Lost(_) | Fault::Rpc { .. }) => panic!("not told why: {other:?}"),
    }
    assert!(!founded.is_there(&id), "{id} was refused");
    founded.proxy.open();
    founded.until_done(&id).await;
}
