//! What reading one frame costs: a small call, a call that writes 1 MiB, and the answer to a page of 500 entries.
#![expect(clippy::expect_used, reason = "a benchmark fails by panicking")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use postern_proto::channel::{
    CallParts, call_frame, parse_edge_frame, parse_host_frame, result_frame,
};
use serde_json::{json, value::to_raw_value};

fn call(args: &serde_json::Value) -> String {
    call_frame(CallParts {
        id: "0193a0e4-5b1c-7000-8000-00000000abcd",
        workspace_id: "0193a0e4-5b1c-7000-8000-00000000abce",
        session_id: "5f0c7f52-8f3e-4d2b-9e0a-4d3f8f0f5b11",
        intention: "Mend the failing test of the parser.",
        tool: "workspace_write",
        args: &to_raw_value(args).expect("arguments"),
    })
    .expect("frame")
}

fn page_of_entries() -> String {
    let entry = |number: u32| {
        let name = format!("file-{number:04}.txt");
        json!({"name": name, "path": format!("src/{name}"), "type": "file", "size": 4096,
            "modifiedAt": "2026-11-30T12:00:00.000Z"})
    };
    let entries: Vec<_> = (0..500).map(entry).collect();
    let page = json!({"path": "src", "entries": entries, "total": 1000, "nextOffset": 500});
    let result =
        json!({"content": [{"type": "text", "text": page.to_string()}], "structuredContent": page});
    result_frame("id", "session", &result.to_string()).expect("frame")
}

fn frames(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frames");
    let text: String = "A line of text, \"quoted\".\n".repeat(1 << 15);
    let calls = [
        ("small call", call(&json!({"path": "src/main.rs"}))),
        (
            "write of 1 MiB",
            call(&json!({"path": "a", "content": text})),
        ),
    ];
    for (name, frame) in &calls {
        group.throughput(Throughput::Bytes(frame.len() as u64));
        group.bench_function(*name, |bencher| {
            bencher.iter(|| parse_host_frame(frame).expect("call"));
        });
    }
    let page = page_of_entries();
    group.throughput(Throughput::Bytes(page.len() as u64));
    group.bench_function("page of 500 entries", |bencher| {
        bencher.iter(|| parse_edge_frame(&page).expect("result"));
    });
    group.finish();
}

criterion_group!(benches, frames);
criterion_main!(benches);
