//! Processes with few file descriptors, and somebody who opens more connections than they have: whoever asks is answered.
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

use std::{ffi::OsString, fs, path::PathBuf, time::Duration};

use postern_tests::{Alone, Program, RealHost, World, certificates};
use pretty_assertions::assert_eq;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::net::{TcpStream, UnixStream};

/// Descriptors that a process gets beyond those that it has.
const SPARE: u64 = 24;
/// Connections that say nothing.
const SILENT: usize = 100;
/// Time in which the processor is watched.
const WATCHED: Duration = Duration::from_secs(2);

/// Leaves a process few descriptors. Of those that it has none is taken away.
fn bound(program: &Program) {
    let open = fs::read_dir(format!("/proc/{}/fd", program.pid())).expect("it runs");
    let limit = u64::try_from(open.count()).expect("few") + SPARE;
    let limits = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    prlimit(Pid::from_raw(program.pid()), Resource::Nofile, limits).expect("limited");
}

/// Processor time of a process so far, in hundredths of a second.
fn processor(program: &Program) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid())).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .map(|field| field.parse::<u64>().expect("ticks"))
        .sum()
}

/// Somebody who says nothing, on many connections.
async fn silent(address: &str) -> Vec<OneOf> {
    let mut held = Vec::new();
    for _ in 0..SILENT {
        held.push(match address.strip_prefix("unix:") {
            Some(path) => OneOf::Unix(UnixStream::connect(path).await.expect("connected")),
            None => OneOf::Tcp(TcpStream::connect(address).await.expect("connected")),
        });
    }
    held
}

#[expect(dead_code, reason = "they are held, and nothing is said on them")]
enum OneOf {
    Unix(UnixStream),
    Tcp(TcpStream),
}

async fn assert_answers(world: &World, program: &Program, address: &str, tls: &[OsString]) {
    bound(program);
    let connected = address.strip_prefix("http://").unwrap_or(address);
    let held = silent(connected).await;
    let before = processor(program);
    tokio::time::sleep(WATCHED).await;
    let busy = processor(program) - before;
    let most = u64::try_from(WATCHED.as_millis() / 20).expect("few");
    assert!(
        busy < most,
        "{address}: {busy} of {WATCHED:?} in hundredths"
    );
    let further = silent(connected).await;
    let mut words: Vec<OsString> = ["healthcheck", "--timeout-ms", "10000", address]
        .iter()
        .map(OsString::from)
        .collect();
    words.extend_from_slice(tls);
    let told = world.run(&words).await;
    assert_eq!(told.code, Some(0), "{address}: {told:?}");
    drop((held, further));
}

#[tokio::test]
async fn silent_connections_keep_nobody_from_a_host() {
    let host = RealHost::start().await;
    assert_answers(&host.world, &host.program, &host.url, &[]).await;
}

#[tokio::test]
async fn silent_connections_keep_nobody_from_a_service() {
    let world = World::new();
    let certs = certificates(&world).await;
    let socket = format!("unix:{}", world.outside().join("policy.sock").display());
    let tls: [OsString; 2] = [
        "--tls-dir".into(),
        PathBuf::from(&certs).join("policy").into(),
    ];
    for (listen, tls) in [
        ("127.0.0.1:0", &[][..]),
        (&socket, &[]),
        ("127.0.0.1:0", &tls),
    ] {
        let service = Alone::start(&world, "policy", listen, tls).await;
        assert_answers(&world, service.program(), service.address(), tls).await;
    }
}
