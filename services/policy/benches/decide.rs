//! What one decision costs: a reading call and a command, with and without rules of the owner.
#![expect(clippy::expect_used, reason = "a benchmark fails by panicking")]

use criterion::{Criterion, criterion_group, criterion_main};
use postern_policy::{Config, Service};
use postern_proto::policy::v1::{DecideRequest, Mode, policy_server::Policy as _};

const RULES: &str = r#"
@id("secrets") forbid (principal, action, resource) when { context has path && context.path like "secrets/*" };
@id("env") forbid (principal, action, resource) when { context has path && context.path like "*.env" };
@id("push") forbid (principal, action == Action::"unattended", resource == Tool::"workspace_exec")
when { context has command && context.command like "*git push*" };
@id("delete") forbid (principal, action == Action::"unattended", resource == Tool::"workspace_delete");
"#;

fn request(tool: &str, args: &'static str) -> DecideRequest {
    DecideRequest {
        workspace_id: "0193a0e4-5b1c-7000-8000-00000000abcd".to_owned(),
        session_id: "5f0c7f52-8f3e-4d2b-9e0a-4d3f8f0f5b11".to_owned(),
        tool: tool.to_owned(),
        args_json: args.as_bytes().into(),
        mode: Mode::Full.into(),
        project_path: "/home/me/project".to_owned(),
        place: String::new(),
    }
}

fn decide(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("runtime");
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("rules.cedar"), RULES).expect("rules");
    let calls = [
        (
            "read",
            request("workspace_read", r#"{"path":"src/main.rs","limit":4096}"#),
        ),
        (
            "exec",
            request(
                "workspace_exec",
                r#"{"command":"cargo test --workspace","cwd":"."}"#,
            ),
        ),
    ];
    for (name, owner_policies) in [
        ("mode alone", None),
        ("four rules", Some(directory.path().to_owned())),
    ] {
        let service = Service::new(Config { owner_policies }).expect("service");
        for (tool, request) in &calls {
            criterion.bench_function(&format!("{tool}, {name}"), |bencher| {
                bencher.iter(|| {
                    let answer = service.decide(tonic::Request::new(request.clone()));
                    runtime.block_on(answer).expect("decision")
                });
            });
        }
    }
}

criterion_group!(benches, decide);
criterion_main!(benches);
