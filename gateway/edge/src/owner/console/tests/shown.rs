//! What the owner is shown before he decides, and of how things stand.

use pretty_assertions::assert_eq;

use super::*;

/// The text of a page, as a person reads it.
fn words(page: &str) -> String {
    let (mut text, mut in_tag) = (String::new(), false);
    for c in page.chars() {
        match c {
            '<' => in_tag = true,
            '>' => in_tag = false,
            c if !in_tag => text.push(c),
            _ => {}
        }
    }
    text
}

#[tokio::test]
async fn what_an_approval_for_the_session_covers_is_told_in_words() {
    let world = World::new().await;
    let asks = async |session: &str, command: Value| {
        let proposal =
            json!({"tool": "workspace_exec", "arguments": {"command": "x"}, "command": command});
        let kind = InboxKind::Approval;
        let id = world.item("workspace_exec", session, kind, &proposal).await;
        words(&world.page(&format!("/inbox/{id}")).await.text)
    };
    let plain =
        json!({"programs": ["cargo", "a<b"], "writes": ["log"], "understood": true, "plain": true});
    let told = asks("s1", plain).await;
    let expected = "For this session lets every command in this directory that starts only cargo, a&lt;b, with any arguments, \
        and redirects output to nothing but log, go ahead unasked";
    assert!(told.contains(expected), "{told}");
    let silent = json!({"programs": ["cargo"], "writes": [], "understood": true, "plain": true});
    let told = asks("s2", silent).await;
    assert!(
        told.contains("redirects output to no file, go ahead"),
        "{told}"
    );
    let unclear = json!({"programs": ["cargo"], "writes": [], "understood": false, "plain": true});
    let told = asks("s3", unclear).await;
    assert!(
        told.contains("lets this exact command in this directory go ahead"),
        "{told}"
    );
}

#[tokio::test]
async fn what_an_agent_calls_a_command_leads_to_no_other_page() {
    let world = World::new().await;
    let proposal =
        json!({"tool": "workspace_input", "arguments": {"commandId": "../link/x?y", "text": "a"}});
    let id = world
        .item("workspace_input", "s", InboxKind::Approval, &proposal)
        .await;
    let page = world.page(&format!("/inbox/{id}")).await.text;
    assert!(
        page.contains(r#"href="/commands/..%2Flink%2Fx%3Fy""#),
        "{page}"
    );
}

#[tokio::test]
async fn a_change_through_a_link_tells_where_it_would_be_made() {
    let world = World::new().await;
    for tool in ["workspace_write", "workspace_patch", "workspace_delete"] {
        let proposal = json!({
            "tool": tool,
            "arguments": {"path": "notes", "content": "x", "oldText": "a", "newText": "b", "expectedSha256": null},
            "effect": {"place": "ci/deploy.sh", "resolvedPath": "ci/deploy.sh"},
        });
        let id = world.item(tool, tool, InboxKind::Approval, &proposal).await;
        let told = words(&world.page(&format!("/inbox/{id}")).await.text);
        assert!(
            told.contains("notes, which is ci/deploy.sh"),
            "{tool}: {told}"
        );
    }
}

#[tokio::test]
async fn the_first_page_tells_who_is_connected_and_what_the_owner_must_know() {
    let world = World::new().await;
    let control = &world.api.0.control;
    let told = words(&world.page("/").await.text);
    assert!(
        told.contains("The agent host agents.example:443 is not connected"),
        "{told}"
    );
    let seen = control.status();
    let (changed, ()) = tokio::join!(control.changed(&seen), async {
        control.warn("<b>Receipts are missing.".to_owned());
    });
    assert_eq!(
        changed.warnings,
        ["<b>Receipts are missing."],
        "pages hear of it"
    );
    control.set_channel(ChannelState::Connected {
        since: Timestamp::from_millis(0),
    });
    let page = world.page("/").await.text;
    assert!(page.contains("&lt;b&gt;Receipts are missing."), "{page}");
    let told = words(&page);
    assert!(
        told.contains("The agent host agents.example:443 is connected since"),
        "{told}"
    );
}

#[tokio::test]
async fn a_receipts_page_tells_what_proves_it_and_leads_to_its_trace() {
    let mut world = World::new().await;
    world.api.0.trace_url = Some("http://traces.example/{traceId}?x".into());
    world.record(0, 1).await;
    while world.recorded_behind(1).await {}
    let filter = crate::owner::receipts::Filter::default();
    let page = crate::owner::receipts::page(&world.api.0, filter).await;
    let receipt = page.expect("a page").receipts.remove(0);
    let text = world.page(&format!("/receipts/{}", receipt.id)).await.text;
    let trace = format!(r#"href="http://traces.example/{}?x""#, receipt.trace_id);
    for told in [
        receipt.hash.as_str(),
        &receipt.previous_hash,
        &receipt.args_sha256,
        "src/file-0.rs",
        "completed",
        ", took ",
        &trace,
    ] {
        assert!(!told.is_empty() && text.contains(told), "{told}: {text}");
    }
    let timeline = words(&world.page("/receipts").await.text);
    for told in ["src/file-0.rs", "completed", " ms", "workspace_read"] {
        assert!(timeline.contains(told), "{told}: {timeline}");
    }
}

#[tokio::test]
async fn a_timeline_keeps_its_filters_from_page_to_page() {
    let world = World::new().await;
    for number in 0..60 {
        world.record(number, 60).await;
    }
    while world.recorded_behind(60).await {}
    let since = "2020-01-01T00:00:00Z";
    let until = "2100-01-01T00:00:00Z";
    let path = format!("/receipts?since={since}&until={until}&state=");
    let first = world.page(&path).await.text;
    let (_, older) = first
        .split_once(r#"href="/receipts?since="#)
        .expect("an older page");
    assert!(
        older.starts_with("2020-01-01T00%3A00%3A00Z&amp;until=2100-01-01T00%3A00%3A00Z&amp;after="),
        "{older:.200}"
    );
    for (name, value) in [("since", since), ("until", until)] {
        let field = format!(r#"<input type="hidden" name="{name}" value="{value}">"#);
        assert!(first.contains(&field), "{first}");
    }
    let none = world
        .page("/receipts?until=2020-01-01T00:00:00Z")
        .await
        .text;
    assert!(none.contains("There are no such receipts."), "{none}");
    let all = world.page("/receipts?since=&until=").await;
    assert_eq!(all.status, StatusCode::OK, "{}", all.text);
}
