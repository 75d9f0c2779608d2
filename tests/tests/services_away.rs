//! An edge whose services are away when it starts: it waits, and a signal ends it in order.

use std::{net::TcpListener, time::Duration};

use postern_tests::{CHANNEL_TOKEN, FakeHost, WORKSPACE, World, call, start_edge, wait_for};
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::json;

/// For a program to say something, on a loaded machine.
const LIMIT: Duration = Duration::from_secs(30);
/// From the signal to the end: nothing is under way that could be waited for.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Nobody listens there, or somebody does who never answers.
#[derive(Clone, Copy, Debug)]
enum Absence {
    Away,
    Hung,
}

#[tokio::test]
async fn a_signal_ends_an_edge_that_waits_for_a_service() {
    let host = FakeHost::listen().await;
    for (option, absence) in [
        ("--ledger", Absence::Away),
        ("--ledger", Absence::Hung),
        ("--identity", Absence::Away),
        ("--identity", Absence::Hung),
    ] {
        let world = World::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let hung = match absence {
            Absence::Away => {
                drop(listener);
                None
            }
            Absence::Hung => Some(listener),
        };
        let further = ["--listen-none", option, &address];
        let program = start_edge(&world, host.url(), &further);
        match &hung {
            None => {
                wait_for("word of what it waits for", LIMIT, async || {
                    let said = program.stderr();
                    said.contains("waiting for a service").then_some(())
                })
                .await;
            }
            // It has connected, and waits for an answer that does not come.
            Some(listener) => drop(listener.accept().expect("a connection").0.set_nodelay(true)),
        }
        program.signal(Signal::TERM);
        let ended = program.ended(END_LIMIT).await;
        assert_eq!(ended.code, Some(0), "{option} {absence:?}: {ended:?}");
        assert_eq!(world.processes(), [], "{option} {absence:?}");

        // What it left is no hindrance.
        let program = start_edge(&world, host.url(), &["--listen-none"]);
        let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
        let info = channel
            .ask(&call("one", "workspace_info", &json!({})))
            .await;
        assert_eq!(info["structuredContent"]["workspaceId"], WORKSPACE);
        program.signal(Signal::TERM);
        assert_eq!(program.ended(LIMIT).await.code, Some(0));
    }
}
