//! Channels that break under a call, ends that die under it, and calls that come twice.

use std::time::Duration;

use postern_tests::{
    Answer, CHANNEL_TOKEN, FakeHost, Fault, HostSide, Strike, WORKSPACE, World, call,
    proxy::{Break, Cut, Direction, Moment},
    start_edge, wait_for,
};
use pretty_assertions::assert_eq;
use serde_json::Value;

use super::{
    budget,
    pair::{Pair, counted},
    rig::count,
};

/// For something that must come.
const LIMIT: Duration = Duration::from_secs(60);
/// Long enough for a break to be noticed by whoever can notice it.
const HELD: Duration = Duration::from_millis(300);

/// The command ran once, whenever it was that it was asked for.
async fn ran_once(pair: &Pair, number: u32, context: &str) {
    let (log, line) = (
        pair.edge_world.project().join("runs.txt"),
        number.to_string(),
    );
    wait_for("the command's line", LIMIT, || async {
        (count(&log, &line) > 0).then_some(())
    })
    .await;
    assert_eq!(count(&log, &line), 1, "{context}");
}

/// An acknowledged answer is given again, and nothing is done twice.
async fn settled(pair: &Pair, number: u32, first: Result<Answer, Fault>, context: &str) {
    let (id, arguments) = (format!("call-{number}"), counted(number));
    let again = pair.outcome(&id, "workspace_exec", &arguments).await;
    let context = format!("{context}: {first:?}, again {again:?}");
    if again.code() == "NOT_APPLIED" {
        let log = pair.edge_world.project().join("runs.txt");
        assert_eq!(count(&log, &number.to_string()), 0, "{context}");
    } else {
        assert!(!again.is_error, "{context}");
        ran_once(pair, number, &context).await;
    }
    if let Ok(first) = first
        && !matches!(first.code(), "UNAVAILABLE" | "BUSY")
    {
        assert_eq!(first, again, "{context}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_cut_around_any_frame_loses_and_doubles_nothing() {
    for how in [Break::Close, Break::Reset, Break::BlackHole] {
        // Each with an edge of its own, which has not lost so many channels yet that it waits long before the next.
        tokio::join!(cuts(Direction::ToEdge, how), cuts(Direction::ToHost, how));
    }
}

async fn cuts(direction: Direction, how: Break) {
    let pair = Pair::start().await;
    for (number, moment) in (1..).zip([Moment::Before, Moment::Within, Moment::After]) {
        let context = format!("{direction:?} {moment:?} {how:?}");
        pair.proxy.arm(Cut {
            direction,
            message: 1,
            moment,
            how,
        });
        let (agent, id) = (pair.agent(), format!("call-{number}"));
        let arguments = counted(number).to_string();
        let call = agent.try_call(Some(&id), "workspace_exec", &arguments);
        let open = async {
            pair.proxy.cut_made().await;
            if how == Break::BlackHole {
                tokio::time::sleep(HELD).await;
                pair.proxy.open();
            }
        };
        let (first, ()) = tokio::join!(call, open);
        // The host sends it again by itself; the agent need not ask twice.
        let answered = first.as_ref().is_ok_and(|answer| !answer.is_error);
        assert!(answered, "{context}: {first:?}");
        settled(&pair, number, first, &context).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_dies_alone_loses_and_doubles_nothing() {
    let mut pair = Pair::start().await;
    let mut number = 0;
    for point in HOST {
        number += 1;
        pair.host_faults.arm(point, Strike::Kill);
        let (agent, id) = (pair.agent(), format!("call-{number}"));
        let first = agent
            .try_call(Some(&id), "workspace_exec", &counted(number).to_string())
            .await;
        pair.host_faults.hit(point, LIMIT).await;
        pair.restart_host().await;
        settled(&pair, number, first, point).await;
    }
    let points: &[&str] = if budget().is_long { EDGE } else { &EDGE[..4] };
    for point in points {
        number += 1;
        pair.edge_faults.arm(point, Strike::Kill);
        let (agent, id) = (pair.agent(), format!("call-{number}"));
        let arguments = counted(number).to_string();
        let first = {
            let call = agent.try_call(Some(&id), "workspace_exec", &arguments);
            let faults = pair.edge_faults.clone();
            let restarted = async {
                faults.hit(point, LIMIT).await;
                pair.restart_edge().await;
            };
            tokio::join!(call, restarted).0
        };
        // The host is still there, and brings the outcome by itself.
        let told = first
            .as_ref()
            .is_ok_and(|answer| matches!(answer.code(), "" | "NOT_APPLIED"));
        assert!(told, "{point}: {first:?}");
        settled(&pair, number, first, point).await;
    }
    eprintln!("ends: kills: {}", pair.kills);
}

/// Where the host dies while its edge lives.
const HOST: &[&str] = &[
    "host.journal.before",
    "host.journal.after",
    "host.send.before",
    "host.send.after",
    "host.result.before",
    "host.keep.before",
    "host.keep.after",
    "host.answer.before",
];
/// Where the edge dies while its host lives.
const EDGE: &[&str] = &[
    "edge.effect.before",
    "edge.effect.after",
    "edge.complete.after",
    "edge.send.after",
    "edge.shape.before",
    "edge.consult.after",
    "edge.begin.before",
    "edge.begin.after",
    "edge.complete.before",
    "edge.send.before",
    "ledger.begin.before",
    "ledger.begin.after",
    "ledger.end.before",
    "ledger.end.after",
];

async fn result(channel: &mut HostSide) -> Value {
    channel.next_result().await.expect("a result")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_call_at_once_later_and_over_another_channel_acts_once() {
    let (world, faults) = World::with_fault_points();
    let host = FakeHost::listen().await;
    let _edge = start_edge(&world, host.url(), &["--listen-none"]);
    let mut channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
    let log = world.project().join("runs.txt");
    for (number, held) in [
        (1, "edge.effect.before"),
        (2, "edge.effect.after"),
        (3, "edge.begin.before"),
    ] {
        let id = format!("call-{number}");
        let first_call = call(&id, "workspace_exec", &counted(number));
        faults.arm(held, Strike::Hold);
        // Twice at once, and while the first is under way on a channel that is gone.
        channel.send(&first_call).await;
        faults.hit(held, LIMIT).await;
        channel.send(&first_call).await;
        drop(channel);
        channel = host.accept(WORKSPACE, CHANNEL_TOKEN).await;
        channel.send(&first_call).await;
        channel.send(&first_call).await;
        faults.release(held);
        let first = result(&mut channel).await;
        assert_eq!(first["result"]["isError"], Value::Null, "{first}");
        assert_eq!(result(&mut channel).await, first);
        // And later.
        channel.send(&first_call).await;
        assert_eq!(result(&mut channel).await, first);
        wait_for("the command's line", LIMIT, || async {
            (count(&log, &number.to_string()) > 0).then_some(())
        })
        .await;
        assert_eq!(count(&log, &number.to_string()), 1);
        let other = call(&id, "workspace_exec", &counted(number + 100));
        channel.send(&other).await;
        let reused = result(&mut channel).await;
        assert_eq!(
            reused["result"]["structuredContent"]["error"]["code"],
            "ID_REUSED"
        );
    }
}
