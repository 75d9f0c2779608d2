//! A worker over a fresh project and spool, and what the tests ask of it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use postern_exec::{Config, Service, sandbox::Level};
use postern_kit::{
    Clock, Failure,
    task::Tasks,
    transport::{Transport, local},
};
use postern_proto::exec::v1::{
    CommandState, Effect, EffectKind, InputRequest, InspectRequest, InspectResponse, PollRequest,
    PollResponse, StartRequest, StartResponse, Status, StopRequest, exec_client::ExecClient,
};
use postern_types::{ErrorCode, ReceiptId};
use tempfile::TempDir;

pub(crate) const SESSION: &str = "session-1";
/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Worker {
    pub(crate) service: Service,
    pub(crate) client: Client,
    pub(crate) project: PathBuf,
    pub(crate) spool: PathBuf,
    _folder: TempDir,
}

#[derive(Clone)]
pub(crate) struct Client(pub(crate) ExecClient<Transport>);

/// Everything that a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) output: String,
    pub(crate) state: CommandState,
    pub(crate) total: u64,
}

impl Worker {
    pub(crate) fn open() -> Self {
        Self::open_with(|_| {})
    }

    /// A worker whose commands are not confined.
    pub(crate) fn open_free() -> Self {
        Self::open_with(|config| config.sandbox.level = Level::Off)
    }

    pub(crate) fn open_with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let project = folder.path().join("project");
        let spool = folder.path().join("spool");
        for path in [&project, &folder.path().join("temporary")] {
            fs::create_dir(path).expect("folder");
        }
        let mut config = config(&project, &spool);
        config.sandbox.temporary = folder.path().join("temporary");
        change(&mut config);
        let service = Service::open(config, Clock::system(), Tasks::new()).expect("worker");
        let client = Client(ExecClient::new(local(service.clone().into_server())));
        Self {
            service,
            client,
            project,
            spool,
            _folder: folder,
        }
    }
}

/// A configuration whose wrapper is this test program.
pub(crate) fn config(project: &Path, spool: &Path) -> Config {
    let mut config = Config::new(
        project.to_owned(),
        spool.to_owned(),
        this_program("wrapper_process"),
    );
    config.environment = vec![
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("HOME".into(), "/root".into()),
        ("LANG".into(), "C.UTF-8".into()),
    ];
    config
}

/// This program, told to be one of its ignored tests.
pub(crate) fn this_program(test: &str) -> Vec<OsString> {
    let program = std::env::current_exe().expect("this program");
    let args = [
        "--ignored",
        "--exact",
        "--nocapture",
        "--test-threads=1",
        test,
        "--",
    ];
    std::iter::once(program.into())
        .chain(args.map(Into::into))
        .collect()
}

/// Shell text that runs this program as the attacker, with a kind of attack and what it is aimed at.
pub(crate) fn attack_line(kind: &str, target: &str) -> String {
    let program = this_program("attack_process");
    let words = program.iter().map(|word| word.to_str().expect("text"));
    let words: Vec<&str> = words.chain([kind, target]).collect();
    words.join(" ")
}

pub(crate) fn receipt() -> String {
    ReceiptId::generate().to_string()
}

pub(crate) fn effect(receipt_id: &str) -> Option<Effect> {
    Some(Effect {
        workspace_id: "workspace-1".to_owned(),
        receipt_id: receipt_id.to_owned(),
        incarnation: 1,
    })
}

pub(crate) fn start_request(receipt_id: &str, command: &str) -> StartRequest {
    StartRequest {
        effect: effect(receipt_id),
        session_id: SESSION.to_owned(),
        command: command.to_owned(),
        cwd: String::new(),
        timeout_ms: 120_000,
        place: None,
    }
}

impl Client {
    pub(crate) async fn try_start(&self, request: StartRequest) -> Result<StartResponse, Failure> {
        let response = self.0.clone().start(request).await;
        Ok(response.map_err(Failure::from)?.into_inner())
    }

    pub(crate) async fn start(&self, command: &str) -> String {
        let request = start_request(&receipt(), command);
        self.try_start(request).await.expect("started").command_id
    }

    pub(crate) async fn start_for(&self, command: &str, timeout_ms: u32) -> String {
        let request = StartRequest {
            timeout_ms,
            ..start_request(&receipt(), command)
        };
        self.try_start(request).await.expect("started").command_id
    }

    pub(crate) async fn try_poll(
        &self,
        session_id: &str,
        command_id: &str,
        offset: u64,
        wait_ms: u32,
    ) -> Result<PollResponse, Failure> {
        let request = PollRequest {
            session_id: session_id.to_owned(),
            command_id: command_id.to_owned(),
            offset,
            wait_ms,
        };
        let response = self.0.clone().poll(request).await;
        Ok(response.map_err(Failure::from)?.into_inner())
    }

    pub(crate) async fn poll(&self, command_id: &str, offset: u64) -> PollResponse {
        self.try_poll(SESSION, command_id, offset, 2000)
            .await
            .expect("polled")
    }

    /// Polls until the command has ended and everything is read.
    pub(crate) async fn finish(&self, command_id: &str) -> Finished {
        let until = Instant::now() + PATIENCE;
        let (mut output, mut offset) = (String::new(), 0);
        loop {
            let page = self.poll(command_id, offset).await;
            assert_eq!(page.offset, offset, "no gap here");
            output += &page.output;
            offset = page.next_offset;
            let state = page.state.expect("state");
            if state.status() != Status::Running && offset == page.total_bytes {
                return Finished {
                    output,
                    state,
                    total: offset,
                };
            }
            assert!(Instant::now() < until, "{command_id} goes on: {output}");
        }
    }

    pub(crate) async fn run(&self, command: &str) -> Finished {
        let id = self.start(command).await;
        self.finish(&id).await
    }

    /// Polls until the output so far satisfies.
    pub(crate) async fn output_until(
        &self,
        command_id: &str,
        seen: impl Fn(&str) -> bool,
    ) -> String {
        let until = Instant::now() + PATIENCE;
        let (mut output, mut offset) = (String::new(), 0);
        while !seen(&output) {
            assert!(Instant::now() < until, "{command_id} said only: {output}");
            let page = self.poll(command_id, offset).await;
            output += &page.output;
            offset = page.next_offset;
        }
        output
    }

    pub(crate) async fn try_input(
        &self,
        receipt_id: &str,
        command_id: &str,
        text: &str,
    ) -> Result<u64, Failure> {
        let request = InputRequest {
            effect: effect(receipt_id),
            session_id: SESSION.to_owned(),
            command_id: command_id.to_owned(),
            text: text.to_owned(),
        };
        let response = self.0.clone().input(request).await;
        Ok(response.map_err(Failure::from)?.into_inner().bytes)
    }

    pub(crate) async fn input(&self, command_id: &str, text: &str) -> u64 {
        self.try_input(&receipt(), command_id, text)
            .await
            .expect("typed")
    }

    pub(crate) async fn try_stop(
        &self,
        receipt_id: &str,
        command_id: &str,
    ) -> Result<CommandState, Failure> {
        let request = StopRequest {
            effect: effect(receipt_id),
            session_id: SESSION.to_owned(),
            command_id: command_id.to_owned(),
        };
        let response = self.0.clone().stop(request).await;
        Ok(response
            .map_err(Failure::from)?
            .into_inner()
            .state
            .expect("state"))
    }

    pub(crate) async fn stop(&self, command_id: &str) -> CommandState {
        self.try_stop(&receipt(), command_id)
            .await
            .expect("stopped")
    }

    pub(crate) async fn inspect(
        &self,
        kind: EffectKind,
        receipt_id: &str,
        command_id: &str,
    ) -> InspectResponse {
        let mut request = InspectRequest {
            effect: effect(receipt_id),
            command_id: command_id.to_owned(),
            ..InspectRequest::default()
        };
        request.set_kind(kind);
        self.0
            .clone()
            .inspect(request)
            .await
            .expect("inspected")
            .into_inner()
    }
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, Failure>) -> ErrorCode {
    result.expect_err("refused").code
}

/// Whether a process of this id lives (a zombie does not).
pub(crate) fn lives(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|text| !text.contains(") Z "))
}

/// Waits until a condition holds that other processes bring about.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
