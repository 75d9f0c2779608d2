//! Tool calls: what passes through, what is refused, and what waits.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use postern_kit::Failure;
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use tokio::sync::Notify;

use super::{
    fake::{Turn, text},
    *,
};

async fn clients(workspace: &Workspace) -> [Client; 2] {
    let alone = Client::alone(workspace);
    [Client::in_session(workspace).await, alone]
}

fn error_code(answer: &Answer) -> Value {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    answer.message()["error"]["code"].clone()
}

#[tokio::test]
async fn arguments_and_results_pass_through_byte_for_byte() {
    let workspace = Workspace::default();
    let args = r#"{"z":1.0,"a":123456789012345678901234567890,"e":1E2,"s":"\u00e9\u0000"}"#;
    let result = "{\"content\":[{\"type\":\"new\",\"n\":1.10}],\n\"structuredContent\":{\"z\":1.0,\"a\":12345678901234567890123}}";
    let client = Client::in_session(&workspace).await;
    workspace.then(Turn::Result(result.to_owned()));
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{{"name":"workspace_read","arguments":{args}}}}}"#
    );
    let answer = Answer::of(client.respond(client.request(Method::POST, body)).await).await;
    assert_eq!(workspace.calls()[0].args.get(), args);
    assert_eq!(
        answer.body,
        r#"{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"new","n":1.10}],"structuredContent":{"z":1.0,"a":12345678901234567890123},"_meta":{"postern/callId":"fresh"}}}"#
    );
}

#[tokio::test]
async fn a_clients_call_id_is_used_and_told_again() {
    let workspace = Workspace::default();
    for client in clients(&workspace).await {
        let params = json!({"name":"workspace_info","_meta":{"postern/callId":"mine-1"}});
        let answer = client.ask("tools/call", params).await;
        assert_eq!(
            answer.message()["result"]["_meta"]["postern/callId"],
            "mine-1"
        );
    }
    assert!(
        workspace
            .calls()
            .iter()
            .all(|call| call.call_id.as_deref() == Some("mine-1"))
    );
}

#[tokio::test]
async fn what_the_host_refuses_is_a_result_that_a_model_can_read() {
    let workspace = Workspace::default();
    for client in clients(&workspace).await {
        let failure = Failure::new(ErrorCode::Unavailable, "No channel.").with("callId", "c-9");
        workspace.then(Turn::Failure(failure.clone()));
        let answer = client.call("workspace_info", json!({})).await;
        let result = answer.message()["result"].clone();
        assert_eq!(result["isError"], true);
        assert_eq!(result["structuredContent"], failure.to_json());
        assert_eq!(result["content"][0]["text"], failure.to_json().to_string());
        assert_eq!(result["_meta"]["postern/callId"], "c-9");
    }
}

#[tokio::test]
async fn a_workspaces_failure_stays_a_result() {
    let workspace = Workspace::default();
    let result = r#"{"content":[{"type":"text","text":"{}"}],"structuredContent":{"error":{"code":"NOT_FOUND"}},"isError":true}"#;
    for client in clients(&workspace).await {
        workspace.then(Turn::Result(result.to_owned()));
        let answer = client.call("workspace_read", json!({"path": "x"})).await;
        let message = answer.message();
        assert_eq!(message["error"], Value::Null);
        assert_eq!(message["result"]["isError"], true);
        assert_eq!(
            message["result"]["structuredContent"]["error"]["code"],
            "NOT_FOUND"
        );
    }
}

#[tokio::test]
async fn unknown_tools_and_misshapen_parameters_are_invalid_params() {
    let workspace = Workspace::default();
    for client in clients(&workspace).await {
        for params in [
            json!({"name":"workspace_nothing"}),
            json!({"name":"workspace_info ","arguments":{}}),
            json!({"name":"workspace_info","arguments":[]}),
            json!({"name":"workspace_info","arguments":"{}"}),
            json!({"name":"workspace_info","_meta":{"postern/callId":""}}),
            json!({"name":"workspace_info","_meta":{"postern/callId":"a b"}}),
            json!({"name":"workspace_info","_meta":{"postern/callId":7}}),
            json!({"name":"workspace_info","_meta":{"postern/callId":"x".repeat(201)}}),
            json!({"name":"workspace_info","_meta":{"postern/session":"\u{e9}"}}),
        ] {
            let answer = client.ask("tools/call", params.clone()).await;
            assert_eq!(error_code(&answer), -32602, "{params}");
        }
    }
    let client = Client::in_session(&workspace).await;
    for params in [
        json!({}),
        json!({"name":7}),
        json!([]),
        json!({"name":"workspace_info","_meta":7}),
    ] {
        let answer = client.ask("tools/call", params.clone()).await;
        assert_eq!(error_code(&answer), -32602, "{params}");
    }
    assert!(workspace.calls().is_empty());
}

#[tokio::test]
async fn bodies_that_are_no_message_are_400() {
    let client = Client::new(&Workspace::default());
    for (body, code) in [
        ("not json", -32700),
        ("[]", -32600),
        ("", -32700),
        ("{}", -32600),
    ] {
        let answer = Answer::of(client.respond(client.request(Method::POST, body)).await).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert_eq!(answer.message()["error"]["code"], code, "{body}");
    }
}

#[tokio::test]
async fn media_types_are_checked_before_a_tool_runs() {
    let workspace = Workspace::default();
    let client = Client::in_session(&workspace).await;
    let body =
        json!({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workspace_info"}});
    for (name, value, status) in [
        (
            header::ACCEPT,
            "application/json",
            StatusCode::NOT_ACCEPTABLE,
        ),
        (
            header::CONTENT_TYPE,
            "text/plain",
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
    ] {
        let mut request = client.request(Method::POST, body.to_string());
        request
            .headers_mut()
            .insert(name, value.parse().expect("value"));
        assert_eq!(client.respond(request).await.status(), status);
    }
    assert!(workspace.calls().is_empty());
}

#[tokio::test]
async fn a_legal_write_of_escaped_surrogates_reaches_the_call_and_an_endless_body_does_not() {
    let workspace = Workspace::default();
    let client = Client::in_session(&workspace).await;
    let body = |characters: usize| {
        let content = r"\ud83d\ude00".repeat(characters);
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"workspace_write","arguments":{{"content":"{content}"}}}}}}"#
        )
    };
    let write = client.request(Method::POST, body(1_048_576));
    assert_eq!(client.respond(write).await.status(), StatusCode::OK);
    assert_eq!(workspace.calls().len(), 1);
    let endless = client.request(Method::POST, body(1_500_000));
    assert_eq!(
        client.respond(endless).await.status(),
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(workspace.calls().len(), 1);
}

#[tokio::test]
async fn images_carry_content_alone() {
    let workspace = Workspace::default();
    for client in clients(&workspace).await {
        workspace.then(Turn::Result(
            r#"{"content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"text","text":"{}"}],"structuredContent":{"width":1}}"#.to_owned(),
        ));
        let answer = client
            .call("workspace_image", json!({"path": "a.png"}))
            .await;
        let result = answer.message()["result"].clone();
        assert_eq!(result["structuredContent"], Value::Null);
        assert_eq!(result["content"].as_array().map(Vec::len), Some(2));
    }
}

#[tokio::test]
async fn errors_carry_content_alone_while_output_schemas_are_listed() {
    let workspace = Workspace::with_output_schemas();
    let failure = Failure::new(ErrorCode::Busy, "Later.");
    for client in clients(&workspace).await {
        workspace.then(Turn::Failure(failure.clone()));
        let answer = client.call("workspace_info", json!({})).await;
        let result = answer.message()["result"].clone();
        assert_eq!(
            (&result["isError"], &result["structuredContent"]),
            (&json!(true), &Value::Null)
        );
        assert_eq!(result["content"][0]["text"], failure.to_json().to_string());
    }
}

#[tokio::test]
async fn long_answers_are_plain_json() {
    let workspace = Workspace::default();
    for client in clients(&workspace).await {
        workspace.then(Turn::Result(text(&"x".repeat(1_500_000))));
        let answer = client.call("workspace_read", json!({"path": "x"})).await;
        assert_eq!(answer.kind, "application/json");
        assert!(answer.body.len() > 3_000_000);
    }
}

#[tokio::test]
async fn a_waiting_call_holds_up_neither_ping_nor_other_calls() {
    let workspace = Workspace::default();
    for client in clients(&workspace).await {
        let until = Arc::new(Notify::new());
        workspace.then(Turn::Wait(Arc::clone(&until)));
        let slow = client.call("workspace_exec", json!({"command": "sleep 30"}));
        let others = async {
            workspace.until_waiting(1).await;
            let read = client.call("workspace_read", json!({"path": "a"})).await;
            assert_eq!(
                read.message()["result"]["structuredContent"]["text"],
                "done"
            );
            if client.session.is_some() {
                assert_eq!(
                    client.ask("ping", json!({})).await.message()["result"],
                    json!({})
                );
            }
            until.notify_one();
        };
        let (slow, ()) = tokio::join!(slow, others);
        assert_eq!(
            slow.message()["result"]["structuredContent"]["text"],
            "late"
        );
    }
}

#[tokio::test]
async fn a_cancelled_call_has_no_answer_and_the_wait_ends() {
    let workspace = Workspace::default();
    let client = Client::in_session(&workspace).await;
    workspace.then(Turn::Wait(Arc::new(Notify::new())));
    let slow = client.call("workspace_exec", json!({"command": "sleep 30"}));
    let cancel = async {
        workspace.until_waiting(1).await;
        for id in [json!(2), json!("1"), json!(1)] {
            assert_eq!(workspace.waiting(), 1);
            let note = json!({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":id}});
            assert_eq!(client.send(note).await.status, StatusCode::ACCEPTED);
        }
    };
    let (slow, ()) = tokio::join!(slow, cancel);
    assert_eq!(
        (slow.kind.as_str(), slow.body.as_str()),
        ("text/event-stream", "")
    );
    assert_eq!(workspace.waiting(), 0);
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_wait() {
    let workspace = Workspace::default();
    for client in clients(&workspace).await {
        workspace.then(Turn::Wait(Arc::new(Notify::new())));
        tokio::select! {
            _ = client.call("workspace_exec", json!({"command": "sleep 30"})) => panic!("answered"),
            () = workspace.until_waiting(1) => {}
        }
        assert_eq!(workspace.waiting(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_long_shows_progress_and_then_its_answer() {
    let workspace = Workspace::default();
    for client in clients(&workspace).await {
        let until = Arc::new(Notify::new());
        workspace.then(Turn::Wait(Arc::clone(&until)));
        let params = json!({"name":"workspace_ask","arguments":{},"_meta":{"progressToken":"p"}});
        let release = async {
            tokio::time::sleep(Duration::from_secs(12)).await;
            until.notify_one();
        };
        let (answer, ()) = tokio::join!(client.ask("tools/call", params), release);
        assert_eq!(answer.kind, "text/event-stream");
        let messages: Vec<Value> = answer
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).expect("JSON"))
            .collect();
        let progress: Vec<_> = messages.iter().map(|message| &message["params"]).collect();
        assert_eq!(
            (
                &progress[0]["progressToken"],
                &progress[0]["progress"],
                &progress[1]["progress"]
            ),
            (&json!("p"), &json!(5), &json!(10))
        );
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[2]["result"]["structuredContent"]["text"], "late");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_ends_the_wait_and_a_quiet_one_shows_life() {
    let workspace = Workspace::default();
    let client = Client::in_session(&workspace).await;
    workspace.then(Turn::Wait(Arc::new(Notify::new())));
    let body =
        json!({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workspace_ask"}});
    let response = client
        .respond(client.request(Method::POST, body.to_string()))
        .await;
    let mut stream = response.into_body().into_data_stream();
    let first = stream.next().await.expect("a sign").expect("bytes");
    assert_eq!(first, ": waiting\n\n");
    assert_eq!(workspace.waiting(), 1);
    drop(stream);
    assert_eq!(workspace.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reading_call_that_waits_is_still_plain_json() {
    let workspace = Workspace::default();
    let client = Client::in_session(&workspace).await;
    let until = Arc::new(Notify::new());
    workspace.then(Turn::Wait(Arc::clone(&until)));
    let release = async {
        tokio::time::sleep(Duration::from_secs(40)).await;
        until.notify_one();
    };
    let (answer, ()) = tokio::join!(client.call("workspace_read", json!({})), release);
    assert_eq!(answer.kind, "application/json");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_token_cuts_its_open_streams() {
    let workspace = Workspace::default();
    let client = Client::in_session(&workspace).await;
    workspace.then(Turn::Wait(Arc::new(Notify::new())));
    let ask = client.call("workspace_ask", json!({"question": "?"}));
    let revoke = async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        workspace.revoke();
    };
    let (answer, ()) = tokio::join!(ask, revoke);
    assert!(!answer.body.contains("result"), "{}", answer.body);
    assert_eq!(workspace.waiting(), 0);

    let listening = client.respond(client.request(Method::GET, Body::empty()));
    let listening = listening.await.into_body();
    workspace.revoke();
    assert!(to_bytes(listening, usize::MAX).await.is_ok(), "it ends");
}
