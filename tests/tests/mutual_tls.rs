//! Services apart, by mutual TLS with the certificates that the program makes.

use std::{
    ffi::OsString,
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use postern_tests::{
    Alone, CHANNEL_TOKEN, FakeHost, Program, WORKSPACE, World, call, certificates, start_edge,
    text_of, wait_for,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, sync::Notify};

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

/// Every service and an edge of them, each by its own certificate.
async fn apart(world: &World, certs: &Path, host: &FakeHost) -> (Vec<Alone>, Program) {
    let (mut services, mut options) = (Vec::new(), vec!["--listen-none".to_owned()]);
    for role in Alone::ROLES {
        let service = Alone::start(world, role, "127.0.0.1:0", &tls(certs, role)).await;
        options.extend([format!("--{role}"), service.address().to_owned()]);
        services.push(service);
    }
    let own = certs.join("edge").display().to_string();
    options.extend(["--tls-dir".to_owned(), own]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let edge = start_edge(world, host.url(), &options);
    (services, edge)
}

#[tokio::test]
async fn an_edge_works_through_certificates_and_their_renewal() {
    let mut world = World::new();
    world.set("POSTERN_LOG", "info");
    let certs = certificates(&world).await;
    let host = FakeHost::listen().await;
    let (mut services, _edge) = apart(&world, &certs, &host).await;
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

/// Runs a step of `postern certs`.
async fn certs(world: &World, words: &[&str], dir: &Path) {
    let mut arguments: Vec<OsString> = vec!["certs".into()];
    arguments.extend(words.iter().map(OsString::from));
    arguments.extend(["--dir".into(), dir.into()]);
    let ended = world.run(&arguments).await;
    assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
}

/// Asks each service over and over in new connections, by each certificate that may, until it is told to end. What went wrong.
async fn ask_on(
    world: &World,
    addresses: &[String],
    certs: &Path,
    asked: &AtomicUsize,
    end: &Notify,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let asking = async {
        loop {
            for address in addresses {
                for role in ["edge", "operator"] {
                    let told = probe(world, address, &tls(certs, role)).await;
                    if told != (Some(0), "SERVING".to_owned()) {
                        wrong.push(format!("{role} to {address}: {told:?}"));
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    tokio::select! {
        () = asking => {}
        () = end.notified() => {}
    }
    wrong
}

/// While calls go on over connections that are there, and others are made all the time, by every certificate and to every one.
#[tokio::test]
async fn a_new_authority_takes_over_and_nothing_is_interrupted() {
    let mut world = World::new();
    world.set("POSTERN_LOG", "info");
    let dir = certificates(&world).await;
    let old = world.outside().join("old");
    fs::create_dir(&old).expect("made");
    for file in ["ca.pem", "cert.pem", "key.pem"] {
        fs::copy(dir.join("edge").join(file), old.join(file)).expect("copied");
    }
    let host = FakeHost::listen().await;
    let (mut services, edge) = apart(&world, &dir, &host).await;
    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    let addresses: Vec<String> = services.iter().map(|it| it.address().to_owned()).collect();

    let (asked, end) = (AtomicUsize::new(0), Notify::new());
    let asking = ask_on(&world, &addresses, &dir, &asked, &end);
    let rotation = async {
        for (number, step) in ["start", "switch", "finish"].iter().enumerate() {
            certs(&world, &["rotate-ca", step], &dir).await;
            let before = asked.load(Ordering::Relaxed);
            // Until every process has taken the files of this step; every service has been asked in between.
            let times = |log: &str| log.matches("new certificates are in use").count();
            let taken = || {
                let all = services.iter().map(|it| it.program().stderr());
                let mut all = all.chain([edge.stderr()]);
                all.all(|log| times(&log) > number)
            };
            let enough = before + 2 * addresses.len();
            let work = async {
                for number in 1.. {
                    let path = format!("{step}-{number}.txt");
                    let write = json!({"path": path, "content": step, "expectedSha256": null});
                    let written = channel.ask(&call(&path, "workspace_write", &write)).await;
                    assert_eq!(written["structuredContent"]["created"], true, "{written}");
                    if taken() && asked.load(Ordering::Relaxed) >= enough {
                        break;
                    }
                }
            };
            let in_time = tokio::time::timeout(TAKEN_WITHIN * 2, work).await;
            in_time.expect("the files are taken");
        }
        end.notify_one();
    };
    let (wrong, ()) = tokio::join!(asking, rotation);
    assert_eq!(wrong, Vec::<String>::new());

    // The old authority is worth nothing any more, and the edge connects anew by the new one.
    let old: [OsString; 2] = ["--tls-dir".into(), old.into()];
    for address in &addresses {
        let told = probe(&world, address, &old).await;
        assert_eq!(told, (Some(1), String::new()), "{address}");
    }
    let ledger = services.last_mut().expect("the ledger");
    assert_eq!(ledger.end().await.code, Some(0));
    ledger.begin(&world).await;
    let write = json!({"path": "last.txt", "content": "x", "expectedSha256": null});
    let written = channel.ask(&call("last", "workspace_write", &write)).await;
    assert_eq!(written["structuredContent"]["created"], true, "{written}");
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
        &["--listen-none", "--ledger", "ledger.example:7303"],
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

/// As probes of a cluster do, every few seconds.
#[tokio::test]
async fn a_look_whether_somebody_listens_is_no_refused_certificate() {
    let world = World::new();
    let certs = certificates(&world).await;
    let service = Alone::start(&world, "policy", "127.0.0.1:0", &tls(&certs, "policy")).await;
    for _ in 0..3 {
        drop(
            TcpStream::connect(service.address())
                .await
                .expect("it listens"),
        );
    }
    let mut stranger = TcpStream::connect(service.address())
        .await
        .expect("it listens");
    stranger
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .await
        .expect("sent");
    let refused = "a connection was refused";
    let told = || {
        let log = service.program().stderr();
        log.contains(refused).then(|| log.matches(refused).count())
    };
    let told = wait_for("word of the stranger", TAKEN_WITHIN, async || told()).await;
    assert_eq!(told, 1);
}

/// `postern doctor` tells of certificates before a service is started with them.
#[tokio::test]
async fn the_doctor_looks_at_certificates() {
    let world = World::new();
    let dir = certificates(&world).await;
    let examined = async |further: &[OsString]| {
        let free = "127.0.0.1:0";
        let mut words: Vec<OsString> = ["doctor", "--json", "--listen", free, "--console", free]
            .iter()
            .map(OsString::from)
            .collect();
        words.extend(["--project".into(), world.project().into()]);
        words.extend(["--data-dir".into(), world.data().into()]);
        words.extend_from_slice(further);
        let ended = world.run(&words).await;
        let mut told = Vec::new();
        for line in ended.stdout.lines() {
            let line: Value = serde_json::from_str(line).expect("one JSON object a line");
            let check = text_of(&line, "check");
            if ["certificates", "authority", "issued"].contains(&check.as_str()) {
                told.push((check, text_of(&line, "state")));
            }
        }
        (ended.code, told)
    };
    let states = |told: &[(&str, &str)]| -> Vec<(String, String)> {
        let owned = |(check, state): &(&str, &str)| ((*check).to_owned(), (*state).to_owned());
        told.iter().map(owned).collect()
    };
    assert_eq!(examined(&[]).await, (Some(0), Vec::new()));
    let mut all = tls(&dir, "ledger").to_vec();
    all.extend(["--certs-dir".into(), dir.clone().into()]);
    let good = [
        ("certificates", "ok"),
        ("authority", "ok"),
        ("issued", "ok"),
    ];
    assert_eq!(examined(&all).await, (Some(0), states(&good)));
    all.extend(["--tls-role".into(), "exec".into()]);
    let other = [
        ("certificates", "fail"),
        ("authority", "ok"),
        ("issued", "ok"),
    ];
    assert_eq!(examined(&all).await, (Some(1), states(&other)));
    all.extend(["--within".into(), "120".into()]);
    let soon = [
        ("certificates", "fail"),
        ("authority", "ok"),
        ("issued", "warn"),
    ];
    assert_eq!(examined(&all).await, (Some(1), states(&soon)));
}
