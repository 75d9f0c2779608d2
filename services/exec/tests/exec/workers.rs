//! Workers in processes of their own: killed, started again, left alone by their edge, side by side on one spool.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use pretty_assertions::assert_eq;

use postern_exec::{Service, sandbox::Level};
use postern_kit::{
    Clock,
    serve::{Listener, Services, serve as serve_grpc},
    task::Tasks,
    transport::{Address, connect, local},
};
use postern_proto::exec::v1::{
    EffectKind, Finding, HeartbeatRequest, ShutdownRequest, Status, exec_client::ExecClient,
};
use postern_types::ErrorCode;

use crate::harness::{
    Client, SESSION, Worker, code, config, eventually, lives, receipt, start_request, this_program,
};

const FOLDER: &str = "EXEC_TEST_FOLDER";
const SANDBOX: &str = "EXEC_TEST_SANDBOX";

/// The body of the worker process.
pub(crate) fn serve() {
    let folder = std::env::var_os(FOLDER).expect("run by the other tests");
    let folder = Path::new(&folder);
    let mut config = config(&folder.join("project"), &folder.join("spool"));
    config.own_process = true;
    let level = std::env::var(SANDBOX).expect("run by the other tests");
    config.sandbox.level = level.parse().expect("level");
    config.sandbox.temporary = folder.join("temporary");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async {
        let service = Service::open(config, Clock::system(), Tasks::new()).expect("worker");
        let address = Address::Unix(folder.join("socket"));
        let listener = Listener::bind(&address)
            .await
            .expect("listener")
            .admitting(Service::admits);
        let mut routes = Services::new();
        let finished = service.finished();
        routes.add(service.into_server());
        serve_grpc(listener, routes, finished)
            .await
            .expect("served");
    });
}

pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) client: Client,
}

impl Process {
    pub(crate) async fn start(folder: &Path) -> Self {
        Self::start_confined(folder, Level::Project).await
    }

    /// One whose commands are not confined, and can reach their wrapper.
    async fn start_free(folder: &Path) -> Self {
        Self::start_confined(folder, Level::Off).await
    }

    pub(crate) async fn start_confined(folder: &Path, level: Level) -> Self {
        Self::start_below(&[], folder, level).await
    }

    /// One that another program starts and becomes.
    pub(crate) async fn start_below(before: &[&str], folder: &Path, level: Level) -> Self {
        let program = this_program("worker_process");
        // As a script starts it in the background: some signals are ignored, and that is inherited.
        let child = Command::new("sh")
            .args(["-c", "trap '' INT QUIT HUP; exec \"$@\"", "sh"])
            .args(before)
            .args(&program)
            .env(FOLDER, folder)
            .env(SANDBOX, level.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("worker process");
        let transport = connect(&Address::Unix(folder.join("socket"))).expect("transport");
        let client = Client(ExecClient::new(transport));
        let until = Instant::now() + crate::harness::PATIENCE;
        while client
            .0
            .clone()
            .heartbeat(HeartbeatRequest::default())
            .await
            .is_err()
        {
            assert!(Instant::now() < until, "the worker does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { child, client }
    }

    pub(crate) fn kill(self) {}
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
    }
}

pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    for name in ["project", "temporary"] {
        std::fs::create_dir(folder.path().join(name)).expect("folder");
    }
    folder
}

/// A worker is killed: its commands end, are lost, and stay readable; nothing is run again.
#[tokio::test]
async fn a_killed_workers_commands_are_gone_and_lost_but_readable() {
    let folder = folder();
    let worker = Process::start(folder.path()).await;
    let running = receipt();
    let command = "echo $$; setsid sleep 300 & echo $!; echo once >> log; cat";
    let request = start_request(&running, command);
    worker
        .client
        .try_start(request.clone())
        .await
        .expect("started");
    let typed = receipt();
    worker
        .client
        .try_input(&typed, &running, "typed\n")
        .await
        .expect("typed");
    let said = worker
        .client
        .output_until(&running, |text| text.contains("typed"))
        .await;
    worker.kill();
    let pids: Vec<&str> = said.lines().take(2).collect();
    eventually("its processes are gone", || {
        pids.iter().all(|pid| !lives(pid))
    })
    .await;

    let worker = Process::start(folder.path()).await;
    let lost = worker.client.finish(&running).await;
    assert_eq!(lost.output, said);
    assert_eq!(
        (lost.state.status(), lost.state.exit_code),
        (Status::Lost, None)
    );
    assert_eq!(
        worker.client.finish(&running).await.state,
        lost.state,
        "the end stays"
    );
    let found = worker.client.inspect(EffectKind::Start, &running, "").await;
    assert_eq!(found.finding(), Finding::Applied);
    let again = worker.client.try_start(request).await.expect("found again");
    assert_eq!(Some(again), found.start);
    let found = worker
        .client
        .inspect(EffectKind::Input, &typed, &running)
        .await;
    assert_eq!(
        (found.finding(), found.input.map(|input| input.bytes)),
        (Finding::Applied, Some(6))
    );
    let late = worker.client.try_input(&receipt(), &running, "x").await;
    assert_eq!(code(late), ErrorCode::CommandEnded);
    assert_eq!(worker.client.stop(&running).await.status(), Status::Lost);
    let log = std::fs::read_to_string(folder.path().join("project/log")).expect("log");
    assert_eq!(log, "once\n");
    worker.kill();
}

#[tokio::test]
async fn what_ended_before_its_worker_was_killed_stays_as_it_was() {
    let folder = folder();
    let worker = Process::start(folder.path()).await;
    let id = worker.client.start("echo before; exit 3").await;
    let before = worker.client.finish(&id).await;
    worker.kill();
    let worker = Process::start(folder.path()).await;
    let after = worker.client.finish(&id).await;
    assert_eq!((after.output, after.state), (before.output, before.state));
    worker.kill();
}

/// A spare wrapper goes with its worker.
#[tokio::test]
async fn a_killed_worker_leaves_no_wrapper() {
    let folder = folder();
    let worker = Process::start(folder.path()).await;
    worker.client.run("true").await;
    let children = format!("/proc/{0}/task/{0}/children", worker.child.id());
    let mut wrappers = String::new();
    eventually("a spare", || {
        // Threads start wrappers, so they are found by their parent.
        wrappers = children_of(worker.child.id());
        !wrappers.is_empty()
            || std::fs::read_to_string(&children).is_ok_and(|text| !text.is_empty())
    })
    .await;
    worker.kill();
    eventually("the spare is gone", || {
        wrappers.split(' ').all(|pid| !lives(pid))
    })
    .await;
}

pub(crate) fn children_of(parent: u32) -> String {
    let pids: Vec<String> = std::fs::read_dir("/proc")
        .expect("proc")
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(") ")?;
            let own = rest.split(' ').nth(1)? == parent.to_string();
            own.then(|| entry.file_name().into_string().ok()).flatten()
        })
        .collect();
    pids.join(" ")
}

/// The command kills its wrapper: what it started is ended all the same.
#[tokio::test]
async fn a_command_that_kills_its_wrapper_does_not_get_away() {
    let folder = folder();
    let worker = Process::start_free(folder.path()).await;
    let id = worker
        .client
        .start("trap '' HUP; setsid sleep 302 & echo $!; echo $$; read x; kill -9 $PPID; sleep 302")
        .await;
    // Not before the wrapper has said that it started the shell.
    worker.client.input(&id, "\n").await;
    let done = worker.client.finish(&id).await;
    assert_eq!(
        (done.state.status(), done.state.exit_code),
        (Status::Lost, None)
    );
    for pid in done.output.lines() {
        eventually("its processes are gone", || !lives(pid)).await;
    }
    assert_eq!(worker.client.run("echo next").await.output, "next\n");
    eventually("nothing is left but the spares", || {
        children_of(worker.child.id()).split(' ').count() <= 2
    })
    .await;
    worker.kill();
}

/// Whether a wrapper has the thread that takes the order, and that waits for its socket.
fn awaits_order(pid: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    tasks.is_ok_and(|tasks| {
        tasks.flatten().any(|task| {
            let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            read("comm") == "start\n" && read("wchan").contains("skb")
        })
    })
}

/// A spare is stopped by another command: the shell that it is to start comes late, and can be stopped.
#[tokio::test]
async fn a_command_that_starts_late_can_be_stopped() {
    let folder = folder();
    let worker = Process::start(folder.path()).await;
    let mut spares = String::new();
    eventually("the spares wait for orders", || {
        spares = children_of(worker.child.id());
        spares.split(' ').count() == 2 && spares.split(' ').all(awaits_order)
    })
    .await;
    let mut stop = Command::new("kill");
    let stopped = stop.arg("-STOP").args(spares.split(' ')).status();
    assert!(stopped.expect("kill").success());
    let id = receipt();
    let started = start_request(&id, "echo late > ran; sleep 300");
    let late = worker.client.try_start(started).await;
    assert_eq!(code(late), ErrorCode::Uncertain);
    let beat = worker
        .client
        .0
        .clone()
        .heartbeat(HeartbeatRequest::default())
        .await;
    assert_eq!(beat.expect("heartbeat").into_inner().running, 1);
    assert_eq!(worker.client.stop(&id).await.status(), Status::Stopped);
    assert_eq!(worker.client.stop(&id).await.survivors, 0);
    worker.kill();
}

/// The same, many times over: a wrapper's children become the worker's only after its socket has closed.
#[tokio::test]
async fn nothing_gets_away_between_the_death_of_a_wrapper_and_its_burial() {
    let folder = folder();
    let worker = Process::start_free(folder.path()).await;
    let command = "trap '' HUP; for i in $(seq 40); do setsid sleep 303 & echo $!; done; read x; kill -9 $PPID; exec sleep 303";
    for _ in 0..10 {
        let id = worker.client.start(command).await;
        worker.client.input(&id, "\n").await;
        let done = worker.client.finish(&id).await;
        assert_eq!(done.state.status(), Status::Lost);
        assert_eq!(done.output.lines().count(), 40);
        eventually("its processes are gone", || !done.output.lines().any(lives)).await;
    }
    worker.kill();
}

/// What was left kills the wrapper after the command's own end.
#[tokio::test]
async fn a_daemon_that_kills_its_wrapper_later_does_not_get_away() {
    let folder = folder();
    let worker = Process::start_free(folder.path()).await;
    let id = worker
        .client
        .start("mkfifo go; setsid sh -c \"trap '' HUP; read x < go; kill -9 $PPID; exec sleep 304\" >/dev/null 2>&1 & echo $!")
        .await;
    let done = worker.client.finish(&id).await;
    assert_eq!(
        (done.state.status(), done.state.survivors),
        (Status::Exited, 1)
    );
    assert!(lives(&done.output));
    std::fs::write(folder.path().join("project/go"), "\n").expect("go");
    eventually("the daemon is gone", || !lives(&done.output)).await;
    assert_eq!(worker.client.stop(&id).await.survivors, 0);
    worker.kill();
}

#[tokio::test]
async fn shutdown_stops_the_commands_and_ends_the_process() {
    let folder = folder();
    let mut worker = Process::start(folder.path()).await;
    let id = worker.client.start("echo up; sleep 300").await;
    worker.client.output_until(&id, |text| text == "up\n").await;
    let request = ShutdownRequest {
        reason: "test".to_owned(),
    };
    let answer = worker.client.0.clone().shutdown(request).await;
    assert_eq!(answer.expect("shut down").into_inner().stopped, 1);
    eventually("the process ends", || {
        worker.child.try_wait().is_ok_and(|code| code.is_some())
    })
    .await;
    let worker = Process::start(folder.path()).await;
    let done = worker.client.finish(&id).await;
    assert_eq!(
        (done.output.as_str(), done.state.status()),
        ("up\n", Status::Stopped)
    );
    worker.kill();
}

/// Another worker reads what one runs, and does not take it for lost.
#[tokio::test]
async fn workers_share_a_spool() {
    let first = Worker::open();
    let config = config(&first.project, &first.spool);
    let second = Service::open(config, Clock::system(), Tasks::new()).expect("worker");
    let second = Client(ExecClient::new(local(second.into_server())));
    let id = receipt();
    let request = start_request(&id, "echo one; read x; echo two; echo ran >> log");
    let started = first
        .client
        .try_start(request.clone())
        .await
        .expect("started");
    second.output_until(&id, |text| text == "one\n").await;
    let page = second.try_poll(SESSION, &id, 4, 100).await.expect("page");
    assert_eq!(page.state.expect("state").status(), Status::Running);
    // The same receipt at the other worker runs nothing.
    assert_eq!(second.try_start(request).await.expect("found"), started);
    assert_eq!(
        code(second.try_input(&receipt(), &id, "\n").await),
        ErrorCode::Unavailable
    );
    assert_eq!(
        code(second.try_stop(&receipt(), &id).await),
        ErrorCode::Unavailable
    );
    first.client.input(&id, "\n").await;
    let done = second.finish(&id).await;
    assert_eq!(
        (done.output.as_str(), done.state.exit_code),
        ("one\ntwo\n", Some(0))
    );
    let log = std::fs::read_to_string(first.project.join("log")).expect("log");
    assert_eq!(log, "ran\n");
}

#[tokio::test]
async fn a_worker_without_its_edge_ends_its_commands() {
    let worker = Worker::open_with(|config| config.orphan_limit = Duration::from_millis(700));
    let id = worker.client.start("sleep 300").await;
    // A sign of life holds it off.
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        worker
            .client
            .0
            .clone()
            .heartbeat(HeartbeatRequest::default())
            .await
            .expect("heartbeat");
    }
    assert_eq!(worker.service.load().running, 1);
    eventually("its command is ended", || {
        worker.service.load().running == 0
    })
    .await;
    assert_eq!(
        worker.client.finish(&id).await.state.status(),
        Status::Stopped
    );
    assert_eq!(worker.client.run("echo again").await.output, "again\n");
}

#[tokio::test]
async fn a_worker_may_end_with_its_edge() {
    let worker = Worker::open_with(|config| {
        config.orphan_limit = Duration::from_millis(100);
        config.end_when_orphaned = true;
    });
    tokio::time::timeout(
        Duration::from_secs(10),
        worker.service.finished().cancelled(),
    )
    .await
    .expect("finished");
}

/// What a worker inherited is not its commands' affair: an interrupt that is typed reaches them, and they can trap it.
#[tokio::test]
async fn an_interrupt_reaches_a_command_of_a_worker_that_ignores_it() {
    let folder = folder();
    let worker = Process::start(folder.path()).await;
    let command = "trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.05; done";
    let id = worker.client.start(command).await;
    let ready = |text: &str| text.contains("ready");
    worker.client.output_until(&id, ready).await;
    worker.client.input(&id, "\u{3}").await;
    let done = worker.client.finish(&id).await;
    assert_eq!(
        (done.output.as_str(), done.state.exit_code),
        ("ready\ncaught\n", Some(4))
    );
}
