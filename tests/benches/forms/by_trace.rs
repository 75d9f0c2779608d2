//! Where the time of a call goes in each form, by the traces that the program exports itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use postern_tests::{Agent, Apart, wait_for};

use crate::{
    Call, KINDS, at,
    collector::{Collector, Seen},
    make, prepare,
};

/// For the last spans to arrive.
const LIMIT: Duration = Duration::from_secs(60);

/// Spans of one call in one form: by name, what each took, in milliseconds.
type Taken = BTreeMap<String, Vec<f64>>;

/// Prints the spans of each kind of call, one form beside the other.
pub(crate) async fn print() {
    let together = Collector::start().await;
    let world = together.world();
    let door = world.up("full").await;
    let separate = Collector::start().await;
    let apart = Apart::start(separate.world()).await;
    println!("\n| call | span | one command | separate |\n| --- | --- | ---: | ---: |");
    for agent in [door.agent(), apart.agent()] {
        prepare(&agent).await;
    }
    for call in KINDS {
        let mut one = spans_of(&together, &door.agent(), call).await;
        let mut other = spans_of(&separate, &apart.agent(), call).await;
        let names: BTreeSet<_> = one.keys().chain(other.keys()).cloned().collect();
        for name in names {
            let [one, other] = [&mut one, &mut other].map(|taken| {
                let taken = taken.get_mut(&name);
                taken.map_or_else(
                    || "–".to_owned(),
                    |taken| format!("{:.2} ms", at(taken, 0.5)),
                )
            });
            println!("| {} | {name} | {one} | {other} |", call.name());
        }
    }
    assert_eq!(door.stop().await.code, Some(0));
    drop(apart);
    together.stop().await;
    separate.stop().await;
}

/// Makes calls one after the other, and takes their traces apart.
async fn spans_of(collector: &Collector, agent: &Agent, call: Call) -> Taken {
    for number in 0..call.count() {
        make(agent, call, 0, number, "traced").await;
    }
    let mut taken = Taken::new();
    for spans in traces(collector, call.tool(), call.count()).await {
        for span in &spans {
            let is_server = spans
                .iter()
                .any(|other| other.id == span.parent && other.name == span.name);
            let side = match (span.attributes.contains_key("rpc.method"), is_server) {
                (false, _) => "",
                (true, false) => ", at the caller",
                (true, true) => ", at the server",
            };
            let name = format!("`{}`{side}", span.name);
            taken.entry(name).or_default().push(milliseconds(span));
        }
    }
    taken
}

/// The traces of a tool's calls, once so many of them are whole: the receipt's commit comes last.
async fn traces(collector: &Collector, tool: &str, count: usize) -> Vec<Vec<Seen>> {
    wait_for("the traces", LIMIT, || async {
        let mut traces: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
        for span in collector.spans() {
            traces.entry(span.trace.clone()).or_default().push(span);
        }
        traces.retain(|_, spans| {
            let is_of = |span: &Seen| {
                span.attributes
                    .get("postern.tool")
                    .is_some_and(|of| of == tool)
            };
            let is_root = |span: &Seen| span.parent.is_empty() && is_of(span);
            spans.iter().any(is_root) && spans.iter().any(|span| span.name == "COMMIT ledger")
        });
        (traces.len() >= count).then(|| traces.into_values().collect())
    })
    .await
}

fn milliseconds(span: &Seen) -> f64 {
    (span.times.1 - span.times.0) as f64 / 1e6
}
