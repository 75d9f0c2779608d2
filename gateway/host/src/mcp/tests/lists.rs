//! Handshake, discovery and lists, in every protocol version.

use pretty_assertions::assert_eq;

use super::*;

fn count(answer: &Answer) -> usize {
    let message = answer.message();
    message["result"]["tools"].as_array().expect("tools").len()
}

#[tokio::test]
async fn handshakes_of_every_version_with_sessions() {
    let workspace = Workspace::default();
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::new(&workspace);
        let told = client.shake_hands(version).await;
        assert_eq!(told["protocolVersion"], version);
        assert_eq!(told["serverInfo"]["name"], "postern");
        assert!(told["instructions"].is_string() && told["capabilities"]["tools"].is_object());
        assert!(client.session.is_some());
        let list = client.ask("tools/list", json!({})).await;
        assert_eq!(count(&list), 16);
        assert_eq!(list.message()["result"]["resultType"], Value::Null);
        assert_eq!(
            client.ask("ping", json!({})).await.message()["result"],
            json!({})
        );
        assert_eq!(
            client.call("workspace_info", json!({})).await.message()["result"]["structuredContent"],
            json!({"text": "done"})
        );
    }
}

#[tokio::test]
async fn an_unknown_version_is_offered_the_newest_with_a_handshake() {
    let told = Client::new(&Workspace::default())
        .shake_hands("2024-11-05")
        .await;
    assert_eq!(told["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn requests_of_the_newest_version_stand_alone() {
    let client = Client::alone(&Workspace::default());
    let found = client.ask("server/discover", json!({})).await;
    assert_eq!(
        (found.status, found.kind.as_str()),
        (StatusCode::OK, "application/json")
    );
    let found = found.message()["result"].clone();
    assert_eq!(
        found["supportedVersions"],
        json!(["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
    );
    assert!(found["instructions"].is_string());

    let list = client.ask("tools/list", json!({})).await;
    assert_eq!((count(&list), list.session.as_deref()), (16, None));
    let list = list.message()["result"].clone();
    assert_eq!(
        (&list["resultType"], &list["ttlMs"], &list["cacheScope"]),
        (&json!("complete"), &json!(300_000), &json!("private"))
    );

    let answer = client.call("workspace_info", json!({})).await;
    assert_eq!(answer.kind, "application/json");
    let result = answer.message()["result"].clone();
    assert_eq!(
        (&result["resultType"], &result["structuredContent"]),
        (&json!("complete"), &json!({"text": "done"}))
    );
}

#[tokio::test]
async fn a_version_that_is_not_spoken_is_400_with_the_spoken_ones() {
    let client = Client::alone(&Workspace::default());
    let body = json!({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workspace_info",
        "_meta":{"io.modelcontextprotocol/protocolVersion":"2031-01-01","io.modelcontextprotocol/clientCapabilities":{}}}});
    let mut request = client.request(Method::POST, body.to_string());
    let headers = request.headers_mut();
    headers.insert(
        "mcp-protocol-version",
        "2031-01-01".parse().expect("version"),
    );
    let answer = Answer::of(client.respond(request).await).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.message()["error"]["code"], -32022);
}

#[tokio::test]
async fn profiles_hide_but_do_not_forbid() {
    let workspace = Workspace::default();
    let mut client = Client::alone(&workspace);
    let create = client
        .call("sosoapi_create_workspace", json!({"name": "n"}))
        .await;
    assert_eq!(
        create.message()["result"]["structuredContent"]["tool"],
        "CreateWorkspace"
    );
    client.query = "?profile=full";
    assert_eq!(count(&client.ask("tools/list", json!({})).await), 17);
    client.query = "?profile=core";
    assert_eq!(count(&client.ask("tools/list", json!({})).await), 16);
    client.query = "?profile=everything";
    let refused = client.ask("tools/list", json!({})).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_profile_holds_inside_a_session_too() {
    let mut client = Client::new(&Workspace::default());
    client.query = "?profile=full";
    client.shake_hands("2025-06-18").await;
    assert_eq!(count(&client.ask("tools/list", json!({})).await), 17);
}

#[tokio::test]
async fn output_schemas_are_listed_only_when_asked_for_at_the_start() {
    for (workspace, listed) in [
        (Workspace::default(), 0),
        (Workspace::with_output_schemas(), 1),
    ] {
        let list = Client::alone(&workspace).ask("tools/list", json!({})).await;
        let tools = list.message()["result"]["tools"].clone();
        let with_schema = tools.as_array().expect("tools").iter();
        assert_eq!(
            with_schema
                .filter(|tool| tool["outputSchema"].is_object())
                .count(),
            listed
        );
    }
}

#[tokio::test]
async fn pages_of_content_are_shown_whole_by_clients() {
    let list = Client::alone(&Workspace::default())
        .ask("tools/list", json!({}))
        .await;
    let tools = list.message()["result"]["tools"].clone();
    for name in ["workspace_read", "workspace_poll"] {
        let mut tools = tools.as_array().expect("tools").iter();
        let tool = tools.find(|tool| tool["name"] == name).expect("listed");
        assert_eq!(tool["_meta"]["anthropic/maxResultSizeChars"], 500_000);
    }
}
