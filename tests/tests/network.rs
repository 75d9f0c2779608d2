//! The network between an edge and each of its services breaks, hangs and is slow: callers are told in time, nothing is done
//! twice, and everything works again by itself.

use std::{
    fs,
    time::{Duration, Instant},
};

use postern_tests::{
    Alone, CHANNEL_TOKEN, FakeHost, HostSide, WORKSPACE, World, call, certificates, error_code,
    proxy::{Break, Proxy},
    start_edge,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Within which a caller is told that a service is away or hangs (CONTRACT.md, section 8).
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// Within which everything works again, once the network does.
const RECOVERED_WITHIN: Duration = Duration::from_secs(12);
/// What a slow network takes for each piece.
const SLOW: Duration = Duration::from_millis(150);

/// One edge with one service behind a proxy, the others in its own process.
struct Arrow {
    role: &'static str,
    world: World,
    proxy: Proxy,
    service: Alone,
    channel: HostSide,
    calls: u32,
    _host: FakeHost,
    _edge: postern_tests::Program,
}

impl Arrow {
    async fn new(role: &'static str, secured: bool) -> Self {
        let world = World::new();
        let (mut served, mut further) = (Vec::new(), vec!["--listen-none".to_owned()]);
        if secured {
            let certs = certificates(&world).await;
            served.extend(["--tls-dir".into(), certs.join(role).into()]);
            further.extend([
                "--tls-dir".to_owned(),
                certs.join("edge").display().to_string(),
            ]);
        }
        let service = Alone::start(&world, role, "127.0.0.1:0", &served).await;
        let proxy = Proxy::raw(service.address()).await;
        further.extend([format!("--{role}"), proxy.address().to_owned()]);
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

async fn try_arrow(role: &'static str, secured: bool) {
    let mut arrow = Arrow::new(role, secured).await;
    arrow.is_slow().await;
    arrow.breaks().await;
    arrow.restarts().await;
    arrow.hangs().await;
}

#[tokio::test]
async fn identity_behind_a_bad_network() {
    try_arrow("identity", false).await;
}

#[tokio::test]
async fn policy_behind_a_bad_network() {
    try_arrow("policy", true).await;
}

#[tokio::test]
async fn filesystem_behind_a_bad_network() {
    try_arrow("filesystem", false).await;
}

#[tokio::test]
async fn exec_behind_a_bad_network() {
    try_arrow("exec", true).await;
}

#[tokio::test]
async fn ledger_behind_a_bad_network() {
    try_arrow("ledger", true).await;
}
