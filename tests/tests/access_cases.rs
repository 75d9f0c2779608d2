//! Who gets in, and for how long, end to end: foreign pages (B41), and tokens that end while they are in use (B61).
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{
    fs,
    time::{Duration, Instant},
};

use http::{Method, StatusCode};
use postern_tests::{
    Agent, EDGE_INTENTION, Era, FakeEdge, Fault, Http, Owner, Program, RealHost, World,
    edge_arguments, text_of, wait_for,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::{connect_async, tungstenite::client::IntoClientRequest as _};

/// For a program to be ready, and for an item to reach the inbox.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// For what is open by a token to be cut after it has ended (B61).
const CUT_LIMIT: Duration = Duration::from_secs(5);
/// For a program to end.
const END_LIMIT: Duration = Duration::from_secs(30);
/// The newest version with a handshake.
const HANDSHAKE: Era = Era::Handshake("2025-11-25");

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workspace_info","arguments":{},
    "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},
    "io.modelcontextprotocol/clientInfo":{"name":"page","version":"1"}}}}"#;

/// A request as a page makes it, with these header fields beside the usual ones.
async fn ask(
    host: &RealHost,
    (method, path): (Method, &str),
    further: &[(&str, &str)],
) -> (StatusCode, Value) {
    let mut headers = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    if method == Method::POST {
        headers.extend([
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "workspace_info"),
        ]);
    } else {
        headers.extend([
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]);
    }
    headers.extend(further);
    let body = match method == Method::POST {
        true => LIST.as_bytes().to_vec(),
        false => Vec::new(),
    };
    let url = format!("{}{path}", host.url);
    let client = Http::default();
    let reply = client.send(method, &url, &headers, body, |_| true).await;
    let reply = reply.expect("an answer");
    (reply.status, reply.json)
}

/// B41: a page of another site, or one that a rebound name leads here, reaches no tool and no channel, with a token or
/// without; and that there is no Origin replaces no token.
#[tokio::test]
async fn foreign_pages_and_rebound_names_reach_nothing() {
    let host = RealHost::start().await;
    let mut edge = host.edge().await;
    let channel = format!("/api/ai-gateway/v1/workspaces/{}/channel", host.workspace);
    let (agent, owner) = (
        format!("Bearer {}", host.agent_token),
        format!("Bearer {}", host.channel_token),
    );
    let local = host.url.clone();
    let doors = [
        ((Method::POST, "/mcp"), &agent),
        ((Method::GET, "/mcp"), &agent),
        ((Method::GET, channel.as_str()), &owner),
    ];
    for ((method, path), bearer) in doors {
        for foreign in [
            ("host", "evil.example"),
            ("host", "localhost.evil.example"),
            ("origin", "https://evil.example"),
            ("origin", "http://localhost.evil.example"),
            ("origin", "null"),
            ("origin", ""),
        ] {
            for further in [&[foreign][..], &[foreign, ("authorization", bearer)]] {
                let (status, told) = ask(&host, (method.clone(), path), further).await;
                let code = format!("{}_not_allowed", foreign.0);
                assert_eq!(
                    (status, &told["code"]),
                    (StatusCode::FORBIDDEN, &json!(code)),
                    "{method} {path} {foreign:?}"
                );
            }
        }
        for good in [&[][..], &[("origin", local.as_str())]] {
            let (status, _) = ask(&host, (method.clone(), path), good).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path} {good:?}");
        }
    }
    // The edge was asked for nothing: its first call is the first that came from a good page.
    let good = [("origin", local.as_str()), ("authorization", &agent)];
    let (answered, ()) = tokio::join!(ask(&host, (Method::POST, "/mcp"), &good), async {
        let call = edge.next_call().await.expect("a call");
        assert_eq!(call["tool"], "workspace_info");
        edge.answer(&call, &json!({"name": "x"})).await;
    });
    assert_eq!(answered.0, StatusCode::OK, "{}", answered.1);
    let url = format!("{}{channel}", host.url.replacen("http", "ws", 1));
    let mut request = url.into_client_request().expect("a URL");
    request
        .headers_mut()
        .insert("origin", local.parse().expect("a header"));
    request
        .headers_mut()
        .insert("authorization", owner.parse().expect("a header"));
    let (_, response) = connect_async(request).await.expect("the channel opens");
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
}

/// A real edge at a real host, and one member's token beside that of the others.
struct Scene {
    host: RealHost,
    world: World,
    edge: Program,
    owner: Owner,
}

impl Scene {
    async fn new(mode: &str) -> Self {
        let (host, world) = (RealHost::start().await, World::new());
        let token = world.outside().join("launch-token");
        fs::write(&token, &host.channel_token).expect("writable");
        let token = token.display().to_string();
        let further = [
            "--console",
            "127.0.0.1:0",
            "--mode",
            mode,
            "--workspace",
            &host.workspace,
            "--token-file",
            &token,
        ];
        let arguments = edge_arguments(&world, &host.url, &world.data(), &further);
        let mut edge = world.start(&arguments);
        let console = text_of(&edge.event("listening", READY_LIMIT).await, "url");
        edge.event("connected", READY_LIMIT).await;
        let secret = fs::read_to_string(world.data().join("owner-token")).expect("a token");
        let owner = Owner::new(&console, secret.trim());
        Self {
            host,
            world,
            edge,
            owner,
        }
    }

    fn mcp(&self) -> String {
        format!("{}/mcp", self.host.url)
    }

    /// Mints an agent's token: its id and secret.
    async fn member(&self, further: &[&str]) -> (String, String) {
        let words = [
            "token",
            "create",
            "--workspace",
            &self.host.workspace,
            "--role",
            "editor",
        ];
        let token = self.host.told(&[&words, further].concat()).await["token"].take();
        (text_of(&token, "id"), text_of(&token, "secret"))
    }

    /// Lets the next item of the inbox go ahead.
    async fn approve(&self) {
        let item = self.waiting().await;
        self.decide(&item, "approve").await;
    }

    async fn decide(&self, item: &Value, decision: &str) {
        let decision = json!({ "decision": decision });
        let decided = self.owner.decide(&text_of(item, "id"), &decision).await;
        assert_eq!(decided.status, StatusCode::OK, "{}", decided.json);
    }

    /// Ends when a command has said that it runs, by making this file.
    async fn started(&self) {
        let file = self.world.project().join("started");
        wait_for("the command", READY_LIMIT, || async {
            file.exists().then_some(())
        })
        .await;
    }

    async fn waiting(&self) -> Value {
        wait_for("an item in the inbox", READY_LIMIT, || async {
            self.owner.inbox().await.into_iter().next()
        })
        .await
    }
}

/// Opens the stream of a session and reads it to its end, which the host makes.
async fn stream(url: &str, token: &str, session: &str) {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("accept", "text/event-stream"),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-session-id", session),
    ];
    let reply = Http::default()
        .send(Method::GET, url, &headers, Vec::new(), |_| false)
        .await;
    let end = reply.expect_err("no last event");
    assert!(end.0.contains("ended"), "{}", end.0);
}

async fn is_unauthorized(agent: &Agent) {
    match agent.try_call(None, "workspace_info", "{}").await {
        Err(Fault::Http(StatusCode::UNAUTHORIZED, told)) => {
            assert_eq!(told["code"], "unauthorized");
        }
        other => panic!("it still opens something: {other:?}"),
    }
}

/// B61: an agent's token is revoked while it has a session, a stream, a running command and a call that waits for the owner.
/// All that stands on it is cut; the command goes on, as commands do whose agent is away, and what waits for the owner stays
/// his to decide, but nobody is told the result by that token. Others are not touched.
#[tokio::test]
async fn a_revoked_agent_is_cut_at_once_and_the_others_stay() {
    let scene = Scene::new("ask").await;
    let (id, secret) = scene.member(&[]).await;
    let member = Agent::of_era(HANDSHAKE, &scene.mcp(), &secret).await;
    let session = member.session().expect("a session").to_owned();
    let other = scene.host.agent();
    let command = json!({"command": "touch started; sleep 1000"});
    let (started, ()) = tokio::join!(member.call("workspace_exec", command), scene.approve());
    let started = started.ok();
    scene.started().await;
    let write = json!({"path": "late.txt", "content": "late", "expectedSha256": null}).to_string();
    let (mcp, began) = (scene.mcp(), std::cell::Cell::new(Instant::now()));
    let revoke = async {
        let item = scene.waiting().await;
        began.set(Instant::now());
        scene.host.told(&["token", "revoke", &id]).await;
        item
    };
    let waits = member.try_call(Some("late"), "workspace_write", &write);
    let (waited, (), item) = timeout(END_LIMIT, async {
        tokio::join!(waits, stream(&mcp, &secret, &session), revoke)
    })
    .await
    .expect("what stood on the token is cut");
    assert!(
        began.get().elapsed() < CUT_LIMIT,
        "{:?}",
        began.get().elapsed()
    );
    assert!(
        matches!(&waited, Err(Fault::Http(StatusCode::UNAUTHORIZED, _))),
        "{waited:?}"
    );
    is_unauthorized(&member).await;
    is_unauthorized(&Agent::modern(&mcp, &secret)).await;
    // Nothing happened, and what waits is the owner's to decide: his no is the end of it.
    assert!(!scene.world.project().join("late.txt").exists());
    assert_eq!(scene.waiting().await["id"], item["id"]);
    scene.decide(&item, "deny").await;
    // The other agent and the channel never noticed; a command is its own agent's.
    let _ = other.call("workspace_info", json!({})).await.ok();
    let poll = json!({"commandId": started["commandId"], "offset": 0});
    let _ = other
        .call("workspace_poll", poll)
        .await
        .refused("UNKNOWN_COMMAND");
    assert!(!scene.world.project().join("late.txt").exists());
}

/// A new member's token, with a session that it has used.
async fn in_use(scene: &Scene, further: &[&str]) -> (Agent, String) {
    let (_, secret) = scene.member(further).await;
    let member = Agent::of_era(HANDSHAKE, &scene.mcp(), &secret).await;
    let _ = member.call("workspace_info", json!({})).await.ok();
    (member, secret)
}

/// B61, the other end: a token that expires is cut as one that is revoked.
#[tokio::test]
async fn an_agent_whose_token_expires_is_cut_in_the_middle_of_it() {
    let scene = Scene::new("full").await;
    // It has to live for as long as a session takes to begin, which is this machine's to say.
    let began = Instant::now();
    let _ = in_use(&scene, &[]).await;
    let life = Duration::from_secs(3 + 5 * began.elapsed().as_secs());
    let minted = Instant::now();
    let seconds = life.as_secs().to_string();
    let (member, secret) = in_use(&scene, &["--expires-in", &seconds]).await;
    let used = Instant::now();
    let session = member.session().expect("a session").to_owned();
    timeout(life + END_LIMIT, stream(&scene.mcp(), &secret, &session))
        .await
        .expect("the stream is cut");
    let ended = Instant::now();
    let least = life - Duration::from_secs(1);
    assert!(ended - minted >= least, "{:?}", ended - minted);
    assert!(ended - used < life + CUT_LIMIT, "{:?}", ended - used);
    is_unauthorized(&member).await;
    let _ = scene
        .host
        .agent()
        .call("workspace_info", json!({}))
        .await
        .ok();
}

/// B61 for the owner's end: a launch is revoked while its channel is in use. The channel is closed, the edge ends and with it
/// its commands, nothing reaches the project any more, and the channel of another workspace stays.
#[tokio::test]
async fn a_revoked_launch_cuts_its_channel_and_no_other() {
    let scene = Scene::new("full").await;
    let created = scene.host.told(&["workspace", "create", "--name", "Other"]);
    let workspace = text_of(&created.await["workspace"], "id");
    let words = ["launch", "--workspace", &workspace, "--intention", "other"];
    let launch = scene.host.told(&words).await["launch"].take();
    let mut other = FakeEdge::connect(&scene.host.url, &workspace, &text_of(&launch, "token"))
        .await
        .expect("the other channel opens");
    let agent = scene.host.agent();
    let command = "touch started; sleep 1000";
    let _ = agent.exec(command).await;
    scene.started().await;

    let words = ["launch", "list", "--workspace", &scene.host.workspace];
    let listed = scene.host.told(&words).await["launches"].take();
    let own = &listed.as_array().expect("launches")[0];
    assert_eq!(
        (&own["intention"], &own["revoked_at"], &own["token_id"]),
        (
            &json!(EDGE_INTENTION),
            &Value::Null,
            &json!(scene.host.channel_token_id)
        )
    );
    let began = Instant::now();
    let revoked = scene
        .host
        .told(&["launch", "revoke", &text_of(own, "id")])
        .await;
    assert!(revoked["launch"]["revoked_at"].is_string(), "{revoked}");
    let Scene {
        host, world, edge, ..
    } = scene;
    let ended = edge.ended(END_LIMIT).await;
    assert!(began.elapsed() < CUT_LIMIT, "{:?}", began.elapsed());
    assert_eq!(ended.code, Some(3), "{ended:?}");
    wait_for("the end of its commands", END_LIMIT, || async {
        world
            .processes()
            .iter()
            .all(|process| !process.has_argument("1000"))
            .then_some(())
    })
    .await;
    assert_eq!(
        FakeEdge::connect(&host.url, &host.workspace, &host.channel_token)
            .await
            .err(),
        Some(StatusCode::FORBIDDEN)
    );
    // Revoking once more tells the first revocation.
    let again = host
        .told(&["launch", "revoke", &text_of(&revoked["launch"], "id")])
        .await;
    assert_eq!(again, revoked);
    still_carries(&host, &workspace, &mut other).await;
}

/// Whether a workspace's channel, at whose other end the test is, still carries calls.
async fn still_carries(host: &RealHost, workspace: &str, edge: &mut FakeEdge) {
    let words = [
        "token",
        "create",
        "--role",
        "viewer",
        "--workspace",
        workspace,
    ];
    let secret = text_of(&host.told(&words).await["token"], "secret");
    let viewer = Agent::modern(&format!("{}/mcp", host.url), &secret);
    let (answer, ()) = tokio::join!(viewer.call("workspace_info", json!({})), async {
        let call = edge.next_call().await.expect("a call");
        edge.answer(&call, &json!({"name": "other"})).await;
    });
    assert_eq!(answer.ok()["name"], "other");
}
