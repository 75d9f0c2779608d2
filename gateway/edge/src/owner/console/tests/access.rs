//! Who comes in, and from where.

use pretty_assertions::assert_eq;

use super::*;

#[tokio::test]
async fn a_replayed_link_opens_nothing_and_looking_ahead_does_not_use_it_up() {
    let world = World::new().await;
    let link = world.api.link().expect("link").url;
    let path = link.rsplit_once(":7301").expect("a path").1;
    for (method, headers) in [
        (Method::HEAD, &[][..]),
        (Method::GET, &[("sec-purpose", "prefetch;prerender")]),
        (Method::GET, &[("purpose", "prefetch")]),
    ] {
        let reply = world.ask(method, NAMED, path, headers).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.header(header::SET_COOKIE), "");
    }
    let used = world.ask(Method::GET, NAMED, path, &[]).await;
    assert_eq!(used.status, StatusCode::SEE_OTHER);
    let replayed = world.ask(Method::GET, NAMED, path, &[]).await;
    assert_eq!(replayed.status, StatusCode::GONE);
    assert_eq!(replayed.header(header::SET_COOKIE), "");
    assert!(replayed.text.contains("postern console"), "says what to do");
}

#[tokio::test]
async fn links_are_made_for_the_owner_alone() {
    let world = World::new().await;
    let refused = world.ask(Method::POST, PLAIN, "/owner/v1/links", &[]).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    let token = [("authorization", "Bearer token")];
    let ask = async |body: &str| -> Value {
        let reply = world
            .ask_with(Method::POST, PLAIN, "/owner/v1/links", &token, body)
            .await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
        serde_json::from_str(&reply.text).expect("JSON")
    };
    let named = ask("").await;
    let start = |link: &Value, start: &str| {
        let url = link["url"].as_str().expect("a URL");
        assert!(url.starts_with(start), "{url}");
    };
    start(&named, "http://label.localhost:7301/link/");
    assert_eq!(named["warning"], Value::Null);
    let plain = ask(r#"{"plain": true}"#).await;
    start(&plain, "http://127.0.0.1:7301/link/");
    assert!(plain["warning"].is_string(), "says what it risks");
    assert!(plain["expiresAt"].is_string());
}

#[tokio::test]
async fn with_the_cookie_only_the_consoles_own_pages_change_anything() {
    let world = World::new().await;
    let cookie = world.cookie().await;
    let close = r#"{"open": false}"#;
    for foreign in [
        &[][..],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:3000")],
        &[("origin", "http://label.localhost:3000")],
        &[("origin", "http://evil.example")],
        // One of its names, but not the one under which this was asked.
        &[("origin", "http://127.0.0.1:7301")],
        &[
            ("origin", "http://label.localhost:7301"),
            ("sec-fetch-site", "same-site"),
        ],
    ] {
        for (path, body) in [
            ("/owner/v1/channel", close),
            ("/console/channel", "open=false"),
        ] {
            let mut headers = vec![
                ("cookie", cookie.as_str()),
                ("content-type", "application/x-www-form-urlencoded"),
            ];
            headers.extend(foreign);
            let reply = world
                .ask_with(Method::POST, NAMED, path, &headers, body)
                .await;
            assert_eq!(reply.status, StatusCode::FORBIDDEN, "{path} {foreign:?}");
            assert!(world.api.0.control.status().open, "{path} {foreign:?}");
        }
    }
    let own = [
        ("cookie", cookie.as_str()),
        ("origin", "http://label.localhost:7301"),
        ("sec-fetch-site", "same-origin"),
    ];
    let reply = world
        .ask_with(Method::POST, NAMED, "/owner/v1/channel", &own, close)
        .await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    assert!(!world.api.0.control.status().open);
}

#[tokio::test]
async fn a_page_of_the_same_host_on_another_port_reads_nothing() {
    let world = World::new().await;
    let cookie = world.cookie().await;
    for site in ["same-site", "cross-site"] {
        let headers = [("cookie", cookie.as_str()), ("sec-fetch-site", site)];
        for path in ["/", "/owner/v1/status", "/owner/v1/events"] {
            let reply = world.ask(Method::GET, NAMED, path, &headers).await;
            assert_eq!(reply.status, StatusCode::FORBIDDEN, "{path} {site}");
        }
    }
}

#[tokio::test]
async fn a_name_that_was_rebound_to_this_machine_gets_nothing() {
    let world = World::new().await;
    let cookie = world.cookie().await;
    let headers = [("cookie", cookie.as_str())];
    for host in [
        "evil.example:7301",
        "label.localhost:3000",
        "label.localhost",
        "other.localhost:7301",
        "label.localhost.evil.example:7301",
        "xlabel.localhost:7301",
    ] {
        for path in ["/", "/link/x", "/console.js", "/healthz"] {
            let reply = world.ask(Method::GET, host, path, &headers).await;
            assert_eq!(reply.status, StatusCode::FORBIDDEN, "{host}{path}");
        }
    }
}

/// Of several names or pages nobody knows which one counts, so none does.
#[tokio::test]
async fn a_request_under_several_names_or_from_several_pages_gets_nothing() {
    let world = World::new().await;
    let token = ("authorization", "Bearer token");
    let own = ("origin", "http://127.0.0.1:7301");
    for headers in [
        &[token, ("host", "evil.example")][..],
        &[token, ("host", PLAIN)],
        &[token, own, ("origin", "https://evil.example")],
        &[token, own, own],
    ] {
        let reply = world
            .ask(Method::GET, PLAIN, "/owner/v1/status", headers)
            .await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{headers:?}");
    }
    let target = "http://evil.example/owner/v1/status";
    let reply = world.ask(Method::GET, PLAIN, target, &[token]).await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN, "{target}");
    let twice = [token, ("authorization", "Bearer other")];
    let reply = world
        .ask(Method::GET, PLAIN, "/owner/v1/status", &twice)
        .await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
    let reply = world
        .ask(Method::GET, PLAIN, "/owner/v1/status", &[token, own])
        .await;
    assert_eq!(reply.status, StatusCode::OK);
}

#[tokio::test]
async fn whoever_logged_out_is_out_also_with_a_copy_of_the_cookie() {
    let world = World::new().await;
    let cookie = world.cookie().await;
    let headers = [
        ("cookie", cookie.as_str()),
        ("origin", "http://label.localhost:7301"),
    ];
    let reply = world
        .ask(Method::POST, NAMED, "/console/logout", &headers)
        .await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER);
    assert!(reply.header(header::SET_COOKIE).contains("Max-Age=0"));
    let reply = world.ask(Method::GET, NAMED, "/", &headers[..1]).await;
    assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_open_event_stream_ends_with_its_login() {
    let world = World::new().await;
    let cookie = world.cookie().await;
    let headers = [
        ("cookie", cookie.as_str()),
        ("origin", "http://label.localhost:7301"),
    ];
    let listening = world.ask(Method::GET, NAMED, "/owner/v1/events", &headers[..1]);
    let limit = std::time::Duration::from_secs(10);
    let listening = tokio::time::timeout(limit, listening);
    let logout = world.ask(Method::POST, NAMED, "/console/logout", &headers);
    let (heard, left) = tokio::join!(listening, logout);
    assert_eq!(left.status, StatusCode::SEE_OTHER);
    let heard = heard.expect("the stream ends");
    assert_eq!(heard.status, StatusCode::OK);
}
