//! Services apart, by mutual TLS with the certificates that the program makes.

use std::{ffi::OsString, fs, path::Path, time::Duration};

use postern_tests::{
    Alone, CHANNEL_TOKEN, FakeHost, WORKSPACE, World, call, certificates, start_edge, text_of,
    wait_for,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Within which running services take new certificates (CONTRACT.md, section 8), and some more on a busy machine.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);

fn tls(certs: &Path, role: &str) -> [OsString; 2] {
    ["--tls-dir".into(), certs.join(role).into()]
}

/// What a probe with these certificates comes to.
async fn probe(world: &World, address: &str, tls: &[OsString]) -> (Option<i32>, String) {
    let mut arguments: Vec<OsString> = vec!["healthcheck".into(), "--json".into(), address.into()];
    arguments.extend_from_slice(tls);
    let ended = world.run(&arguments).await;
    let told: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    let status = told["status"].as_str().unwrap_or_default().to_owned();
    (ended.code, status)
}

#[tokio::test]
async fn an_edge_works_through_certificates_and_their_renewal() {
    let mut world = World::new();
    world.set("POSTERN_LOG", "info");
    let certs = certificates(&world).await;
    let (mut services, mut options) = (Vec::new(), vec!["--listen-none".to_owned()]);
    for role in Alone::ROLES {
        let service = Alone::start(&world, role, "127.0.0.1:0", &tls(&certs, role)).await;
        options.extend([format!("--{role}"), service.address().to_owned()]);
        services.push(service);
    }
    options.extend([
        "--tls-dir".to_owned(),
        certs.join("edge").display().to_string(),
    ]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let host = FakeHost::listen().await;
    let _edge = start_edge(&world, host.url(), &options);
    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    let write = json!({"path": "new.txt", "content": "x", "expectedSha256": null});
    let written = channel.ask(&call("one", "workspace_write", &write)).await;
    assert_eq!(written["structuredContent"]["created"], true, "{written}");

    // Each is asked with a certificate or not at all, health included.
    let serving = (Some(0), "SERVING".to_owned());
    for service in &services {
        let address = service.address();
        assert_eq!(
            probe(&world, address, &tls(&certs, "operator")).await,
            serving
        );
        assert_eq!(probe(&world, address, &[]).await, (Some(1), String::new()));
    }

    // New ones, while all of them run: the old authority's last certificates are as good as before.
    let mut renew: Vec<OsString> = vec!["certs".into(), "renew".into(), "--dir".into()];
    renew.push(certs.clone().into());
    assert_eq!(world.run(&renew).await.code, Some(0));
    wait_for("word of new certificates", TAKEN_WITHIN, async || {
        let told = |service: &Alone| service.program().stderr().contains("new certificates");
        services.iter().all(told).then_some(())
    })
    .await;
    let ledger = services.last_mut().expect("the ledger");
    assert_eq!(ledger.end().await.code, Some(0));
    ledger.begin(&world).await;
    let exec = json!({"command": "cat new.txt"});
    let started = channel.ask(&call("two", "workspace_exec", &exec)).await;
    let id = text_of(&started["structuredContent"], "commandId");
    let poll = call("three", "workspace_poll", &json!({"commandId": id}));
    let polled = channel.ask(&poll).await;
    assert_eq!(polled["structuredContent"]["output"], "x", "{polled}");
}

#[tokio::test]
async fn nothing_listens_or_calls_in_plaintext_beyond_this_machine() {
    let world = World::new();
    let certs = certificates(&world).await;
    let database = format!("sqlite://{}", world.outside().join("l.db").display());
    let serve = |listen: &str| -> Vec<OsString> {
        let words = [
            "serve",
            "ledger",
            "--listen",
            listen,
            "--database",
            &database,
        ];
        words.iter().map(OsString::from).collect()
    };
    let refused = world.run(&serve("0.0.0.0:0")).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--tls-dir"), "{refused:?}");
    let further: Vec<OsString> = tls(&certs, "ledger").to_vec();
    let open = Alone::start(&world, "ledger", "0.0.0.0:0", &further).await;
    let port = open.address().rsplit_once(':').expect("a port").1;
    let address = format!("127.0.0.1:{port}");
    let serving = (Some(0), "SERVING".to_owned());
    assert_eq!(probe(&world, &address, &tls(&certs, "edge")).await, serving);

    // And the edge does not call so.
    let edge = start_edge(
        &world,
        "http://127.0.0.1:9",
        &["--ledger", "ledger.example:7303"],
    );
    let refused = edge.ended(TAKEN_WITHIN).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--tls-dir"), "{refused:?}");
}

/// The certificates of another service, none at all, and some inside the project.
#[tokio::test]
async fn certificates_that_are_not_the_services_own_are_refused() {
    let world = World::new();
    let certs = certificates(&world).await;
    let serve = |tls: &[OsString]| {
        let database = format!("sqlite://{}", world.outside().join("l.db").display());
        let words = [
            "serve",
            "ledger",
            "--listen",
            "127.0.0.1:0",
            "--database",
            &database,
        ];
        let words = words.iter().map(OsString::from);
        words.chain(tls.iter().cloned()).collect::<Vec<_>>()
    };
    let refused = world.run(&serve(&tls(&certs, "exec"))).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("not for 'ledger'"), "{refused:?}");
    let refused = world.run(&serve(&tls(world.outside(), "nothing"))).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("certs init"), "{refused:?}");
    let inside = world.project().join("certs");
    fs::create_dir(&inside).expect("made");
    for file in ["ca.pem", "cert.pem", "key.pem"] {
        fs::copy(certs.join("filesystem").join(file), inside.join(file)).expect("copied");
    }
    let mut words: Vec<OsString> = [
        "serve",
        "filesystem",
        "--listen",
        "127.0.0.1:0",
        "--project",
    ]
    .iter()
    .map(OsString::from)
    .collect();
    words.push(world.project().into());
    words.extend(["--tls-dir".into(), inside.into()]);
    let refused = world.run(&words).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("inside the project"), "{refused:?}");
}
