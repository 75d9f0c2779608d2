#![no_main]

use std::sync::LazyLock;

use postern_kit::Failure;
use postern_policy::{Config, Service};
use postern_proto::policy::v1::{DecideRequest, Mode, policy_server::Policy as _};
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().build().expect("runtime"));
static POLICY: LazyLock<Service> =
    LazyLock::new(|| Service::new(Config::default()).expect("policy"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    postern_edge::fuzzing::check_arguments(data, |tool, args| {
        let request = DecideRequest {
            workspace_id: "workspace".to_owned(),
            session_id: "session".to_owned(),
            tool: tool.to_owned(),
            args_json: args.to_vec().into(),
            mode: Mode::Full.into(),
            project_path: "/home/me/project".to_owned(),
            place: String::new(),
        };
        RUNTIME
            .block_on(POLICY.decide(tonic::Request::new(request)))
            .map(|_| ())
            .map_err(Failure::from)
    });
});
