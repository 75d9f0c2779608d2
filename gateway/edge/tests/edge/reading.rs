//! Reading tools: what they answer, and that pages fit their frames.

use postern_proto::filesystem::v1 as fs;
use postern_types::Mode;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    host::{call, code},
    rig::{Rig, ask},
    services::sha256,
};

#[tokio::test]
async fn info_tells_project_machine_mode_and_limits() {
    let rig = Rig::new().await;
    rig.world
        .instructions
        .lock()
        .expect("instructions")
        .push(fs::Instruction {
            path: "AGENTS.md".to_owned(),
            sha256: sha256("Be kind."),
            size: 8,
            content: "Be kind.".to_owned(),
            ..fs::Instruction::default()
        });
    let (_run, mut channel) = rig.start(Mode::Edit).await;
    let mut info = ask(&mut channel, "1", "workspace_info", json!({})).await;
    let limits = info["limits"].take();
    assert_eq!(limits["frameBytes"], 2_097_152);
    assert_eq!(limits["inFlightCallsPerWorkspace"], 4);
    assert_eq!(limits["defaultTimeoutMs"], 120_000);
    assert_eq!(
        info,
        json!({
            "workspaceId": "work", "sessionId": "session", "intention": "Mend the roof",
            "name": "project", "protocol": 1,
            "platform": {"os": std::env::consts::OS, "arch": std::env::consts::ARCH, "family": "unix"},
            "mode": "edit", "sandbox": "off",
            "instructions": [{"path": "AGENTS.md", "sha256": sha256("Be kind."), "size": 8, "content": "Be kind."}],
            "limits": null,
        })
    );
}

#[tokio::test]
async fn instructions_that_outgrow_a_frame_are_cut_and_say_so_by_their_size() {
    let rig = Rig::new().await;
    for path in ["AGENTS.md", "CLAUDE.md"] {
        rig.world
            .instructions
            .lock()
            .expect("instructions")
            .push(fs::Instruction {
                path: path.to_owned(),
                sha256: sha256(path),
                size: 131_072,
                content: "\u{1}".repeat(131_072),
                ..fs::Instruction::default()
            });
    }
    let (_run, mut channel) = rig.start(Mode::Full).await;
    channel.call(&call("1", "workspace_info", json!({}))).await;
    let frame = channel.frame().await;
    assert!(frame.len() <= 2_097_152);
    let frame: Value = serde_json::from_str(&frame).expect("json");
    let first = &frame["result"]["structuredContent"]["instructions"][0];
    assert_eq!(first["size"], 131_072);
    assert_eq!(first["content"].as_str().map(str::len), Some(65_536));
}

#[tokio::test]
async fn read_tells_every_field_and_only_set_ones_that_are_optional() {
    let rig = Rig::new().await;
    rig.world.put("a", "text");
    let (_run, mut channel) = rig.start(Mode::ReadOnly).await;
    assert_eq!(
        ask(
            &mut channel,
            "1",
            "workspace_read",
            json!({"path": "a", "limit": 1e3})
        )
        .await,
        json!({"path": "a", "content": "text", "offset": 0, "bytes": 4, "nextOffset": null, "size": 4,
            "sha256": sha256("text"), "lineEnding": "none", "bom": false})
    );
    let missing = ask(&mut channel, "2", "workspace_read", json!({"path": "b"})).await;
    assert_eq!(code(&missing), "NOT_FOUND");
}

#[tokio::test]
async fn a_page_of_a_file_that_is_not_hashed_yet_says_so() {
    let rig = Rig::new().await;
    *rig.world.page.lock().expect("page") = Some(fs::ReadResponse {
        path: "huge".to_owned(),
        content: "x".to_owned(),
        ..fs::ReadResponse::default()
    });
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let page = ask(&mut channel, "1", "workspace_read", json!({"path": "huge"})).await;
    assert_eq!(
        (&page["sha256"], &page["lineEnding"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn the_largest_page_of_control_characters_fits_its_frame() {
    let rig = Rig::new().await;
    *rig.world.page.lock().expect("page") = Some(fs::ReadResponse {
        path: "\u{1}".repeat(2048),
        content: "\u{1}".repeat(131_072),
        bytes: 131_072,
        next_offset: Some(131_072),
        size: u64::MAX,
        sha256: sha256(""),
        line_ending: fs::LineEnding::Mixed.into(),
        bom: true,
        resolved_path: Some("\u{1}".repeat(4096)),
        ..fs::ReadResponse::default()
    });
    let (_run, mut channel) = rig.start(Mode::Full).await;
    channel
        .call(&call(
            &"~".repeat(200),
            "workspace_read",
            json!({"path": "a"}),
        ))
        .await;
    let frame = channel.frame().await;
    assert!(frame.len() <= 2_097_152, "{}", frame.len());
    let frame: Value = serde_json::from_str(&frame).expect("json");
    assert_eq!(frame["result"]["structuredContent"]["bytes"], 131_072);
}

#[tokio::test]
async fn a_listing_that_outgrows_a_frame_ends_earlier_and_says_where_to_go_on() {
    let rig = Rig::new().await;
    let entry = |index: usize| fs::Entry {
        name: format!("{index:03}{}", "\u{1}".repeat(250)),
        path: format!("{}/{index:03}", "d".repeat(4000)),
        r#type: fs::EntryType::Symlink.into(),
        size: 1,
        modified_at_ms: 0,
        target: Some("t".to_owned()),
        target_type: Some(fs::EntryType::Directory.into()),
        name_bytes: None,
    };
    *rig.world.listing.lock().expect("listing") = Some(fs::ListResponse {
        path: ".".to_owned(),
        entries: (0..500).map(entry).collect(),
        total: 501,
        next_offset: Some(600),
        resolved_path: None,
    });
    let (_run, mut channel) = rig.start(Mode::Full).await;
    channel
        .call(&call("1", "workspace_list", json!({"offset": 100})))
        .await;
    let frame = channel.frame().await;
    assert!(frame.len() <= 2_097_152);
    let frame: Value = serde_json::from_str(&frame).expect("json");
    let page = &frame["result"]["structuredContent"];
    let shown = page["entries"].as_array().expect("entries").len();
    assert!((1..500).contains(&shown));
    assert_eq!(page["nextOffset"], 100 + shown);
    assert_eq!(page["total"], 501);
    let first = &page["entries"][0];
    assert_eq!(
        (
            &first["type"],
            &first["target"],
            &first["targetType"],
            &first["modifiedAt"]
        ),
        (
            &json!("symlink"),
            &json!("t"),
            &json!("directory"),
            &json!("1970-01-01T00:00:00Z")
        )
    );
    assert_eq!(first.get("nameBytes"), None);
}

#[tokio::test]
async fn poll_tells_every_field() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::ReadOnly).await;
    assert_eq!(
        ask(
            &mut channel,
            "1",
            "workspace_poll",
            json!({"commandId": "c", "offset": 5})
        )
        .await,
        json!({"commandId": "c", "status": "exited", "exitCode": 7, "signal": null, "output": "out\u{fffd}",
            "offset": 5, "nextOffset": 9, "totalBytes": 100, "gap": {"from": 10, "to": 20}, "survivors": 1,
            "startedAt": "1970-01-01T00:00:01Z", "finishedAt": "1970-01-01T00:00:02Z"})
    );
}

#[tokio::test]
async fn an_image_comes_as_a_block_with_its_facts_behind_it() {
    let rig = Rig::new().await;
    *rig.world.image.lock().expect("image") = Some(fs::ImageResponse {
        path: "link.png".to_owned(),
        resolved_path: Some("a.png".to_owned()),
        mime_type: "image/jpeg".to_owned(),
        width: 1568,
        height: 2,
        original_width: 8001,
        original_height: 10,
        original_mime_type: "image/png".to_owned(),
        scaled: true,
        sha256: sha256("image"),
        data: b"\xFF\xD8".as_slice().into(),
    });
    let (_run, mut channel) = rig.start(Mode::ReadOnly).await;
    channel
        .call(&call("1", "workspace_image", json!({"path": "link.png"})))
        .await;
    let frame: Value = serde_json::from_str(&channel.frame().await).expect("json");
    let facts = json!({"path": "link.png", "mimeType": "image/jpeg", "width": 1568, "height": 2,
        "originalWidth": 8001, "originalHeight": 10, "originalMimeType": "image/png", "scaled": true,
        "sha256": sha256("image"), "resolvedPath": "a.png"});
    let result = &frame["result"];
    assert_eq!(
        result["content"][0],
        json!({"type": "image", "data": "/9g=", "mimeType": "image/jpeg"})
    );
    assert_eq!(result["structuredContent"], facts);
    let text = result["content"][1]["text"].as_str().expect("text");
    assert_eq!(serde_json::from_str::<Value>(text).expect("json"), facts);
    assert_eq!(result.get("isError"), None);
    rig.world.until("record ok", 1).await;
}

#[tokio::test]
async fn a_document_tells_a_page_the_first_when_none_is_named() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::ReadOnly).await;
    for (id, args, page) in [
        ("1", json!({"path": "a.pdf"}), 1),
        ("2", json!({"path": "a.pdf", "page": 2.0}), 2),
    ] {
        assert_eq!(
            ask(&mut channel, id, "workspace_document", args).await,
            json!({"path": "a.pdf", "page": page, "pageCount": 3, "text": format!("page {page}"),
                "sha256": sha256("document")})
        );
    }
}

#[tokio::test]
async fn a_tool_that_the_owner_does_not_offer_is_unknown_and_refused() {
    let rig = Rig::new().await;
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let args = json!({"name": "x", "arguments": {}});
    for _ in 0..2 {
        let content = ask(&mut channel, "1", "workspace_tool", args.clone()).await;
        assert_eq!(code(&content), "UNKNOWN_TOOL");
    }
    assert_eq!(
        rig.world.count("refuse"),
        1,
        "the second is the first again"
    );
    assert_eq!(rig.world.count("begin"), 0);
}

#[tokio::test]
async fn a_reading_call_is_recorded_and_may_be_made_again() {
    let rig = Rig::new().await;
    rig.world.put("a", "one");
    let (_run, mut channel) = rig.start(Mode::ReadOnly).await;
    let first = ask(&mut channel, "1", "workspace_read", json!({"path": "a"})).await;
    assert_eq!(first["content"], "one");
    rig.world.until("record ok", 1).await;
    rig.world.put("a", "two");
    let second = ask(&mut channel, "1", "workspace_read", json!({"path": "a"})).await;
    assert_eq!(second["content"], "two");
    let reused = ask(&mut channel, "1", "workspace_read", json!({"path": "b"})).await;
    assert_eq!(code(&reused), "ID_REUSED");
    let reused = ask(&mut channel, "1", "workspace_list", json!({})).await;
    assert_eq!(code(&reused), "ID_REUSED");
}

#[tokio::test]
async fn a_part_that_is_away_is_unavailable_and_leaves_nothing_behind() {
    let rig = Rig::new().await;
    rig.world.put("a", "one");
    let (_run, mut channel) = rig.start(Mode::Full).await;
    let read = json!({"path": "a"});
    rig.world.next_effect(crate::services::Fault::AwayBefore);
    let away = ask(&mut channel, "1", "workspace_read", read.clone()).await;
    assert_eq!(
        (code(&away), &away["error"]["retryable"]),
        ("UNAVAILABLE", &json!(true))
    );
    rig.world.book().away = true;
    assert_eq!(
        code(&ask(&mut channel, "1", "workspace_read", read.clone()).await),
        "UNAVAILABLE"
    );
    rig.world.book().away = false;
    *rig.world.policy_away.lock().expect("flag") = true;
    assert_eq!(
        code(&ask(&mut channel, "1", "workspace_read", read.clone()).await),
        "UNAVAILABLE"
    );
    *rig.world.policy_away.lock().expect("flag") = false;
    assert_eq!(
        ask(&mut channel, "1", "workspace_read", read).await["content"],
        "one"
    );
    assert_eq!(rig.world.count("refuse") + rig.world.count("begin"), 0);
}
