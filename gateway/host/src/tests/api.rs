//! The identity API and the open facts.

use postern_proto::{catalogue, identity::v1::TokenKind};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::World;

const WORKSPACE: &str = "33333333-3333-4333-8333-333333333333";

#[tokio::test]
async fn workspaces_have_the_fields_of_the_contract() {
    let world = World::new().await;
    let agent = world.identity.token("agent", TokenKind::Agent, |_| {});
    let listed = world
        .post("/identity-api/workspace/list", &agent, "{}")
        .await;
    assert_eq!(
        (listed.status, listed.headers["cache-control"].as_str()),
        (200, "no-store")
    );
    assert_eq!(
        listed.json(),
        json!({"active_workspace_id": null, "workspaces": [{"id": "w", "slug": "slug", "name": "Name", "role": "editor"}]})
    );
    let versions = world
        .post(
            "/identity-api/workspace/list",
            &agent,
            r#"{"include_version":true}"#,
        )
        .await
        .json();
    assert_eq!(versions["workspaces"][0]["version"], 3);
    let created = world
        .post(
            "/identity-api/workspace/create",
            &agent,
            r#"{"name":"Café"}"#,
        )
        .await;
    assert_eq!(
        created.json(),
        json!({"workspace": {
            "id": "11111111-1111-4111-8111-111111111111", "organization_id": "22222222-2222-4222-8222-222222222222",
            "slug": "example", "name": "Café", "created_at": "2023-11-14T22:13:20.123Z",
        }})
    );
}

#[tokio::test]
async fn launches_and_tokens_have_the_fields_of_the_contract() {
    let world = World::new().await;
    let agent = world.identity.token("agent", TokenKind::Agent, |_| {});
    let admin = world.identity.token("admin", TokenKind::Admin, |_| {});
    let body = json!({"workspace_id": WORKSPACE, "intention": "i"});
    let launch = world
        .post("/identity-api/launch/create", &admin, &body.to_string())
        .await;
    assert_eq!(
        launch.json(),
        json!({"launch": {
            "id": "launch", "workspace_id": WORKSPACE, "intention": "i", "token_id": "token", "token": "minted",
            "endpoint": format!("ws://{}/api/ai-gateway/v1/workspaces/{WORKSPACE}/channel", world.address),
            "created_at": "1970-01-01T00:00:00Z", "expires_at": null,
        }})
    );
    let body = json!({"workspace_id": WORKSPACE, "intention": "i", "token_id": WORKSPACE, "expires_in": 60});
    let added = world
        .post("/identity-api/launch/create", &admin, &body.to_string())
        .await;
    assert_eq!(added.json()["launch"]["token"], Value::Null);
    let body = json!({"workspace_id": WORKSPACE, "role": "viewer"});
    let token = world
        .post("/identity-api/token/create", &admin, &body.to_string())
        .await
        .json();
    assert_eq!(
        (&token["token"]["secret"], &token["token"]["role"]),
        (&json!("minted"), &json!("viewer"))
    );
    let tokens = world.post("/identity-api/token/list", &admin, "{}").await;
    assert!(
        tokens.json()["tokens"]
            .as_array()
            .is_some_and(|tokens| tokens.len() == 2)
    );
    assert!(!tokens.body.contains("secret"));
    assert_eq!(
        world
            .post("/identity-api/token/revoke", &admin, r#"{"id":"agent"}"#)
            .await
            .json()["token"]["id"],
        "agent"
    );
    assert_eq!(
        world
            .post("/identity-api/workspace/list", &agent, "{}")
            .await
            .problem(),
        (401, "unauthorized".to_owned())
    );
}

#[tokio::test]
async fn launches_are_listed_and_revoked() {
    let world = World::new().await;
    let admin = world.identity.token("admin", TokenKind::Admin, |_| {});
    world.identity.launch(WORKSPACE, "the intention");
    let mut launch = json!({
        "id": "", "workspace_id": WORKSPACE, "intention": "the intention", "token_id": format!("channel-of-{WORKSPACE}"),
        "created_at": "1970-01-01T00:00:00Z", "expires_at": null, "revoked_at": null,
    });
    let body = json!({ "workspace_id": WORKSPACE }).to_string();
    let listed = world.post("/identity-api/launch/list", &admin, &body).await;
    assert_eq!(listed.json(), json!({"launches": [launch]}));
    launch["id"] = json!("a-launch");
    launch["revoked_at"] = json!("2023-11-14T22:13:20.456Z");
    world.identity.name_launch(WORKSPACE, "a-launch");
    let path = "/identity-api/launch/revoke";
    let revoked = world.post(path, &admin, r#"{"id":"a-launch"}"#).await;
    assert_eq!(revoked.json(), json!({"launch": launch}));
    assert_eq!(
        world
            .post(path, &admin, r#"{"id":"another"}"#)
            .await
            .problem(),
        (404, "unknown_launch".to_owned())
    );
}

#[tokio::test]
async fn each_token_opens_its_own_doors_only() {
    let world = World::new().await;
    let secret = |name: &str, kind| world.identity.token(name, kind, |_| {});
    let (agent, channel, owner) = (
        secret("a", TokenKind::Agent),
        secret("c", TokenKind::Channel),
        secret("o", TokenKind::Owner),
    );
    for path in [
        "workspace/list",
        "workspace/create",
        "launch/create",
        "launch/list",
        "launch/revoke",
        "token/create",
        "token/list",
        "token/revoke",
    ] {
        let path = format!("/identity-api/{path}");
        for secret in [&channel, &owner] {
            assert_eq!(
                world.post(&path, secret, "{}").await.problem(),
                (403, "missing_scope".to_owned()),
                "{path}"
            );
        }
        if !path.contains("workspace") {
            assert_eq!(
                world.post(&path, &agent, "{}").await.problem(),
                (403, "missing_scope".to_owned()),
                "{path}"
            );
        }
        let refused = world.post(&path, "wrong-secret", "{}").await;
        assert_eq!(refused.problem(), (401, "unauthorized".to_owned()));
        assert!(!refused.body.contains("wrong-secret"));
        assert!(
            refused.headers["www-authenticate"].starts_with("Bearer resource_metadata=\"http://")
        );
        assert_eq!(world.http("GET", &path, &[], "").await.problem().0, 405);
    }
    assert_eq!(world.identity.asked(), Vec::<String>::new());
}

/// Bodies that do not have their form.
const MISSHAPEN: &[(&str, &str)] = &[
    ("workspace/create", r#"{"name":""}"#),
    ("workspace/create", r#"{"name":"n","nmae":"n"}"#),
    ("workspace/create", r#"{"name":"n","name":"m"}"#),
    ("workspace/create", r#"{"name":7}"#),
    ("workspace/create", r#"{"name":"n","organization_id":"o"}"#),
    ("workspace/create", r#"{"name":"n","organization_id":null}"#),
    (
        "workspace/create",
        r#"{"name":"n","idempotency_key":"short"}"#,
    ),
    (
        "workspace/create",
        r#"{"name":"n","idempotency_key":"with a space"}"#,
    ),
    ("workspace/create", r#"["n"]"#),
    ("workspace/create", "{"),
    ("workspace/list", r#"{"include_version":"yes"}"#),
    (
        "launch/create",
        r#"{"workspace_id":"33333333-3333-4333-8333-333333333333","intention":""}"#,
    ),
    (
        "launch/create",
        r#"{"workspace_id":"33333333-3333-4333-8333-333333333333","intention":"i","expires_in":0}"#,
    ),
    (
        "launch/create",
        r#"{"workspace_id":"33333333-3333-4333-8333-333333333333","intention":"i","expires_in":-1}"#,
    ),
    ("launch/create", r#"{"workspace_id":"w","intention":"i"}"#),
    (
        "token/create",
        r#"{"workspace_id":"33333333-3333-4333-8333-333333333333","role":"admin"}"#,
    ),
    ("launch/list", r#"{"workspace_id":"w"}"#),
    ("launch/list", r#"{"workspace_id":null}"#),
    ("launch/revoke", "{}"),
    ("token/list", r#"{"all":true}"#),
    ("token/revoke", "{}"),
];

#[tokio::test]
async fn bodies_are_taken_literally() {
    let world = World::new().await;
    let admin = world.identity.token("admin", TokenKind::Admin, |_| {});
    let long = format!(r#"{{"name":"{}"}}"#, "é".repeat(121));
    let cases = MISSHAPEN
        .iter()
        .copied()
        .chain([("workspace/create", long.as_str())]);
    for (path, body) in cases {
        let answer = world
            .post(&format!("/identity-api/{path}"), &admin, body)
            .await;
        assert_eq!(
            answer.problem(),
            (400, "invalid_request".to_owned()),
            "{path} {body}"
        );
    }
    assert_eq!(
        world.identity.asked(),
        Vec::<String>::new(),
        "nothing was asked of identity"
    );
}

#[tokio::test]
async fn bodies_of_another_kind_or_size_are_refused_and_keys_carry_their_digest() {
    let world = World::new().await;
    let admin = world.identity.token("admin", TokenKind::Admin, |_| {});
    let bearer = format!("Bearer {admin}");
    let path = "/identity-api/workspace/create";
    let as_text = world
        .http(
            "POST",
            path,
            &[("Authorization", &bearer), ("Content-Type", "text/plain")],
            r#"{"name":"n"}"#,
        )
        .await;
    assert_eq!(
        as_text.problem(),
        (415, "unsupported_media_type".to_owned())
    );
    let large = world
        .post(
            path,
            &admin,
            &format!(r#"{{"name":"{}"}}"#, "x".repeat(70_000)),
        )
        .await;
    assert_eq!(large.problem(), (413, "body_too_large".to_owned()));
    let taken = world
        .post(
            path,
            &admin,
            r#"{"name":"taken","idempotency_key":"12345678"}"#,
        )
        .await;
    assert_eq!(taken.problem(), (409, "idempotency_key_reused".to_owned()));
    let ours = world
        .post(
            path,
            &admin,
            r#"{"idempotency_key":"12345678", "name":"n"}"#,
        )
        .await;
    assert_eq!(ours.status, 200);
    let asked = world.identity.asked();
    let digest = |text: &String| {
        text.split("body_sha256: ")
            .nth(1)
            .map(|rest| rest[1..65].to_owned())
            .expect("digest")
    };
    let expected =
        postern_types::args_sha256(r#"{"name":"n","idempotency_key":"12345678"}"#).expect("digest");
    assert_eq!(asked.last().map(digest), Some(expected.to_string()));
}

#[tokio::test]
async fn facts_are_open_to_everybody() {
    let world = World::new().await;
    let protocol = world
        .http("GET", "/api/ai-gateway/v1/protocol", &[], "")
        .await;
    assert_eq!(
        (protocol.status, protocol.body.as_str()),
        (200, catalogue::CHANNEL_CONTRACT)
    );
    assert_eq!(protocol.headers["content-type"], "application/json");
    assert_eq!(
        world.http("GET", "/healthz", &[], "").await.json(),
        json!({"status": "ok"})
    );
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
    ] {
        let resource = world.http("GET", path, &[], "").await.json();
        assert_eq!(
            resource["resource"],
            format!("http://{}/mcp", world.address)
        );
        assert_eq!(resource["bearer_methods_supported"], json!(["header"]));
    }
    assert_eq!(
        world.http("GET", "/nothing", &[], "").await.problem(),
        (404, "not_found".to_owned())
    );
}
