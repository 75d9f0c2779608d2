//! Certificates over real connections.

use std::{fs, io, path::Path, time::Duration};

use postern_proto::ledger::v1::{AbandonRequest, VerifyRequest, ledger_client::LedgerClient};
use pretty_assertions::assert_eq;
use rcgen::{
    CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::{io::AsyncReadExt as _, net::TcpStream};
use tonic::Code;

use super::*;
use crate::{
    health,
    serve::{Listener, Services, serve},
    transport::{self, Address, Transport},
};

/// Long enough for a new look at the files, on a busy machine.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("key")).expect("authority")
}

/// How long a certificate lives.
fn days(count: i64) -> time::Duration {
    time::Duration::days(count)
}

/// Writes what an authority signs for a name, trusting these authorities.
fn issue(folder: &Path, by: &Authority, name: &str, life: time::Duration, trusting: &[&Authority]) {
    let key = KeyPair::generate().expect("key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("name");
    params.not_before = OffsetDateTime::now_utc() - days(2);
    params.not_after = OffsetDateTime::now_utc() + life;
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, by).expect("signed");
    let trusted: String = trusting.iter().map(|authority| authority.pem()).collect();
    for (file, text) in [
        (CA_FILE, trusted),
        (CERTIFICATE_FILE, certificate.pem()),
        (KEY_FILE, key.serialize_pem()),
    ] {
        fs::write(folder.join(file), text).expect("written");
    }
}

/// A folder of one process.
fn folder(by: &Authority, name: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("folder");
    issue(folder.path(), by, name, days(90), &[by]);
    folder
}

/// A ledger's server that knows no ledger: what gets through to it is `UNIMPLEMENTED`.
struct Server {
    address: Address,
    tasks: Tasks,
    tls: Tls,
}

impl Server {
    async fn over(folder: &TempDir) -> Self {
        let tasks = Tasks::new();
        let tls = Tls::open(folder.path(), Some(Role::Ledger), &tasks).await;
        let tls = tls.expect("certificates");
        let listener = Listener::bind(&"127.0.0.1:0".parse().expect("address")).await;
        let listener = listener.expect("bound").secured(tls.clone());
        let address = listener.address().expect("address");
        tasks.spawn("server", serve(listener, Services::new(), tasks.stopping()));
        Self {
            address,
            tasks,
            tls,
        }
    }

    /// How a process with these certificates reaches it, taking it for one of `role`.
    async fn reached_from(&self, folder: &TempDir, role: Role) -> Transport {
        let tls = Tls::open(folder.path(), None, &self.tasks).await;
        let tls = tls.expect("certificates");
        transport::connect_secured(&self.address, &tls, role).expect("transport")
    }
}

/// What becomes of a look at health, of a change and of a check of the chain.
async fn told(transport: Transport) -> [Code; 3] {
    let health = health::is_serving(transport.clone(), "").await;
    let mut ledger = LedgerClient::new(transport);
    let change = ledger.abandon(AbandonRequest::default()).await;
    let check = ledger.verify(VerifyRequest::default()).await;
    [
        health.map_or_else(|status| status.code(), |_| Code::Ok),
        change.map_or_else(|status| status.code(), |_| Code::Ok),
        check.map_or_else(|status| status.code(), |_| Code::Ok),
    ]
}

#[tokio::test]
async fn who_asks_is_told_by_role() {
    let ours = authority("ours");
    let server = Server::over(&folder(&ours, "ledger")).await;
    let (through, refused) = (Code::Unimplemented, Code::PermissionDenied);
    for (name, change, check) in [
        ("edge", through, through),
        ("operator", refused, through),
        // Commands of agents run beside this key.
        ("exec", refused, refused),
        ("ledger", refused, refused),
        ("elsewhere.example", refused, refused),
    ] {
        let transport = server
            .reached_from(&folder(&ours, name), Role::Ledger)
            .await;
        assert_eq!(told(transport).await, [Code::Ok, change, check], "{name}");
    }
}

#[tokio::test]
async fn strangers_reach_nothing_not_even_health() {
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let server = Server::over(&folder(&ours, "ledger")).await;
    let away = [Code::Unavailable; 3];
    // One that trusts our authority, under a certificate of another.
    let stranger = tempfile::tempdir().expect("folder");
    issue(
        stranger.path(),
        &theirs,
        "edge",
        days(90),
        &[&ours, &theirs],
    );
    let transport = server.reached_from(&stranger, Role::Ledger).await;
    let refused = told(transport).await;
    assert!(!refused.contains(&Code::Ok), "{refused:?}");
    assert!(!refused.contains(&Code::Unimplemented), "{refused:?}");
    // One without any.
    let plain = transport::connect(&server.address).expect("transport");
    let refused = told(plain).await;
    assert!(!refused.contains(&Code::Ok), "{refused:?}");
    // A server of another authority, and one of another role, are no ledger to a client.
    let edge = folder(&theirs, "edge");
    assert_eq!(
        told(server.reached_from(&edge, Role::Ledger).await).await,
        away
    );
    let edge = folder(&ours, "edge");
    assert_eq!(
        told(server.reached_from(&edge, Role::Policy).await).await,
        away
    );
    assert_eq!(
        told(server.reached_from(&edge, Role::Ledger).await).await[0],
        Code::Ok
    );
}

#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out() {
    let ours = authority("ours");
    let server = Server::over(&folder(&ours, "ledger")).await;
    let Address::Tcp(authority) = &server.address else {
        panic!("a TCP address");
    };
    let (started, mut silent) = (Instant::now(), Vec::new());
    for _ in 0..300 {
        silent.push(TcpStream::connect(authority).await.expect("connected"));
    }
    let edge = server
        .reached_from(&folder(&ours, "edge"), Role::Ledger)
        .await;
    assert_eq!(told(edge).await[0], Code::Ok);
    // The first of them made room, long before the time for a handshake was over.
    let given_up = silent[0].read_u8().await.expect_err("hung up on");
    assert_ne!(given_up.kind(), io::ErrorKind::TimedOut);
    assert!(started.elapsed() < accept::HANDSHAKE_LIMIT);
}

/// Waits until new connections go by other certificates than before.
async fn taken(tls: &Tls, before: &Arc<ServerConfig>) {
    let changed = async {
        while Arc::ptr_eq(&tls.server(), before) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TAKEN_WITHIN, changed)
        .await
        .expect("new files are taken");
}

#[tokio::test]
async fn a_new_authority_takes_over_while_everything_runs() {
    let (old, new) = (authority("old"), authority("new"));
    let (ledger, edge) = (folder(&old, "ledger"), folder(&old, "edge"));
    let server = Server::over(&ledger).await;
    let running = server.reached_from(&edge, Role::Ledger).await;
    assert_eq!(told(running.clone()).await[0], Code::Ok);
    let before = server.tls.server();
    issue(ledger.path(), &new, "ledger", days(90), &[&new]);
    taken(&server.tls, &before).await;
    // What was connected goes on; the old authority's connect no more, the new one's do.
    assert_eq!(told(running).await[0], Code::Ok);
    let late = server.reached_from(&edge, Role::Ledger).await;
    assert_eq!(told(late).await[0], Code::Unavailable);
    let fresh = server
        .reached_from(&folder(&new, "edge"), Role::Ledger)
        .await;
    assert_eq!(told(fresh).await[0], Code::Ok);
}

#[tokio::test]
async fn half_written_files_change_nothing() {
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let ledger = folder(&ours, "ledger");
    let tasks = Tasks::new();
    let files = Files::read(ledger.path()).await.expect("files");
    let material = Material::new(&files, Some(Role::Ledger)).expect("material");
    let (sender, current) = watch::channel(Arc::new(material));
    let mut following = Following {
        folder: ledger.path().to_owned(),
        role: Some(Role::Ledger),
        seen: files,
        sender,
    };
    let first = Arc::clone(&current.borrow());
    let whole: Vec<_> = [CA_FILE, CERTIFICATE_FILE, KEY_FILE]
        .map(|file| (file, fs::read(ledger.path().join(file)).expect("read")))
        .into();
    for (file, text) in &whole {
        fs::write(ledger.path().join(file), &text[..text.len() / 2]).expect("half");
        following.look().await.expect_err("half a file");
        fs::remove_file(ledger.path().join(file)).expect("removed");
        following.look().await.expect_err("no file");
        fs::write(ledger.path().join(file), text).expect("whole");
        assert!(!following.look().await.expect("as before"), "{file}");
    }
    for (name, by, life, what) in [
        ("ledger", &theirs, days(90), "no authority"),
        ("ledger", &ours, days(-1), "expired"),
        ("exec", &ours, days(90), "for 'exec'"),
    ] {
        issue(ledger.path(), by, name, life, &[&ours]);
        let told = following.look().await.expect_err(what).to_string();
        assert!(told.contains(what), "{told}");
        let started = Tls::open(ledger.path(), Some(Role::Ledger), &tasks).await;
        assert_eq!(started.expect_err(what).to_string(), told);
    }
    assert!(Arc::ptr_eq(&first, &current.borrow()));
    issue(ledger.path(), &ours, "ledger", days(90), &[&ours]);
    assert!(following.look().await.expect("new ones"));
    assert!(!Arc::ptr_eq(&first, &current.borrow()));
}

/// Whoever starts while files are being replaced finds a key without its certificate, and then both.
#[tokio::test]
async fn a_start_waits_for_files_that_are_being_replaced() {
    let ours = authority("ours");
    let (ledger, other) = (folder(&ours, "ledger"), folder(&ours, "ledger"));
    let replace = |file: &str| {
        let (from, to) = (other.path().join(file), ledger.path().join(file));
        fs::rename(from, to).expect("replaced");
    };
    replace(KEY_FILE);
    let tasks = Tasks::new();
    let open = Tls::open(ledger.path(), Some(Role::Ledger), &tasks);
    let replaced = async {
        // Long after the first look, and long before the second.
        tokio::time::sleep(Duration::from_millis(50)).await;
        replace(CERTIFICATE_FILE);
    };
    let (opened, ()) = tokio::join!(open, replaced);
    opened.expect("they fit in the end");
}

#[tokio::test]
async fn the_end_of_a_certificate_is_seen_coming() {
    let ours = authority("ours");
    let folder = tempfile::tempdir().expect("folder");
    issue(folder.path(), &ours, "ledger", days(20), &[&ours]);
    let files = Files::read(folder.path()).await.expect("files");
    let material = Material::new(&files, Some(Role::Ledger)).expect("material");
    let told = [0, 7, 21].map(|days| {
        let day = Duration::from_secs(24 * 60 * 60);
        let then = Duration::from_secs(UnixTime::now().as_secs()) + day * days;
        material.lifetime(UnixTime::since_unix_epoch(then), EXPIRY_NOTICE)
    });
    assert_eq!(told, [Lifetime::Good, Lifetime::EndsSoon, Lifetime::Ended]);
}

#[tokio::test]
async fn a_look_at_a_folder_tells_what_it_is_good_for() {
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let folder = tempfile::tempdir().expect("folder");
    let look = async |role| inspect(folder.path(), role, EXPIRY_NOTICE).await;
    for (life, lifetime) in [
        (days(20), Lifetime::Good),
        (days(7), Lifetime::EndsSoon),
        (days(-1), Lifetime::Ended),
    ] {
        issue(folder.path(), &ours, "ledger", life, &[&ours]);
        for role in [Some(Role::Ledger), None] {
            let found = look(role).await.expect("it can be looked at");
            assert_eq!(found.lifetime, lifetime, "{life}");
            assert!(found.peer.is(Role::Ledger));
        }
        let told = look(Some(Role::Exec)).await.expect_err("another role's");
        assert!(told.to_string().contains("not for 'exec'"), "{told}");
    }
    issue(folder.path(), &theirs, "ledger", days(20), &[&ours]);
    let told = look(None).await.expect_err("a stranger's").to_string();
    assert!(told.contains("no authority"), "{told}");
    issue(
        folder.path(),
        &ours,
        "elsewhere.example",
        days(20),
        &[&ours],
    );
    assert!(look(None).await.expect("anybody's").peer.is_nobody());
    fs::remove_file(folder.path().join(KEY_FILE)).expect("removed");
    let told = look(None).await.expect_err("no key").to_string();
    assert!(told.contains(KEY_FILE), "{told}");
}
