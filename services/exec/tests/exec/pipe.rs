//! Programs of the owner's with pipes: bytes both ways, back-pressure, the sandbox, and ends.

use std::{fs, time::Duration};

use postern_exec::sandbox::Level;
use postern_kit::Failure;
use postern_proto::exec::v1::{
    PipeEnd, PipeRequest, PipeResponse, PipeStart, ShutdownRequest, exec_client::ExecClient,
    pipe_request, pipe_response,
};
use postern_types::ErrorCode;
use pretty_assertions::assert_eq;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{
    harness::{Client, PATIENCE, Worker, eventually, lives},
    sandbox::Scene,
    workers::{Process, folder},
};

/// One end of a program's pipes.
struct Piped {
    input: Option<mpsc::Sender<PipeRequest>>,
    answers: Streaming<PipeResponse>,
}

/// All that a program said.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    output: String,
    errors: String,
    end: Option<PipeEnd>,
}

fn shell(script: &str) -> PipeStart {
    PipeStart {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        ..PipeStart::default()
    }
}

fn request(part: pipe_request::Part) -> PipeRequest {
    PipeRequest { part: Some(part) }
}

fn exited(code: i32) -> Option<PipeEnd> {
    Some(PipeEnd {
        exit_code: Some(code),
        signal: None,
    })
}

impl Piped {
    async fn try_open(client: &Client, start: PipeStart) -> Result<Self, Failure> {
        let (input, requests) = mpsc::channel(1);
        let first = request(pipe_request::Part::Start(start));
        input.send(first).await.expect("room");
        let opened = client.0.clone().pipe(ReceiverStream::new(requests)).await;
        Ok(Self {
            input: Some(input),
            answers: opened.map_err(Failure::from)?.into_inner(),
        })
    }

    async fn open(client: &Client, script: &str) -> Self {
        let opened = Self::try_open(client, shell(script)).await;
        opened.expect("started")
    }

    async fn write(&self, text: impl Into<Vec<u8>>) {
        let part = pipe_request::Part::Input(text.into().into());
        let input = self.input.as_ref().expect("open");
        input.send(request(part)).await.expect("taken");
    }

    fn end_input(&mut self) {
        self.input = None;
    }

    async fn next(&mut self) -> Option<pipe_response::Part> {
        let next = timeout(PATIENCE, self.answers.message()).await;
        next.expect("an answer in time")
            .expect("no failure")
            .map(|answer| answer.part.expect("a part"))
    }

    /// Everything until the end.
    async fn rest(&mut self) -> Heard {
        let mut heard = Heard::default();
        while let Some(part) = self.next().await {
            assert_eq!(heard.end, None, "the end is last");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            match part {
                pipe_response::Part::Output(bytes) => heard.output += &text(&bytes),
                pipe_response::Part::Errors(bytes) => heard.errors += &text(&bytes),
                pipe_response::Part::End(end) => heard.end = Some(end),
            }
        }
        heard
    }

    /// The first line of output.
    async fn line(&mut self) -> String {
        let mut line = String::new();
        while !line.ends_with('\n') {
            match self.next().await {
                Some(pipe_response::Part::Output(bytes)) => {
                    line += std::str::from_utf8(&bytes).expect("text");
                }
                other => panic!("output was expected: {other:?}"),
            }
        }
        line.trim().to_owned()
    }
}

async fn said(client: &Client, start: PipeStart) -> Heard {
    let mut piped = Piped::try_open(client, start).await.expect("started");
    piped.end_input();
    piped.rest().await
}

#[tokio::test]
async fn bytes_go_both_ways_and_nothing_of_it_is_a_terminal() {
    let worker = Worker::open();
    let script = "for fd in 0 1 2; do test -t $fd && echo terminal; done; \
        echo ready; read line; echo \"got $line\"; cat; echo aside >&2; exit 7";
    let mut piped = Piped::open(&worker.client, script).await;
    assert_eq!(piped.line().await, "ready");
    piped.write("one\n").await;
    assert_eq!(piped.line().await, "got one");
    piped.write("\u{4}two").await;
    piped.end_input();
    let heard = piped.rest().await;
    let expected = Heard {
        output: "\u{4}two".to_owned(),
        errors: "aside\n".to_owned(),
        end: exited(7),
    };
    assert_eq!(heard, expected);
    assert_eq!(worker.service.load().running, 0, "it is no command");
}

#[tokio::test]
async fn arguments_pass_as_they_are_and_the_directory_is_the_projects() {
    let worker = Worker::open();
    fs::create_dir(worker.project.join("sub")).expect("folder");
    let odd = ["a b", "", "$HOME;*", "é\n"];
    let script = "pwd; for arg; do printf '[%s]' \"$arg\"; done";
    let start = PipeStart {
        argv: ["sh", "-c", script, "sh"]
            .iter()
            .chain(&odd)
            .map(|&arg| arg.to_owned())
            .collect(),
        cwd: "sub".to_owned(),
        ..PipeStart::default()
    };
    let project = worker.project.canonicalize().expect("real");
    let expected = format!("{}/sub\n[a b][][$HOME;*][é\n]", project.display());
    assert_eq!(said(&worker.client, start).await.output, expected);
}

#[tokio::test]
async fn a_signal_is_told_and_what_is_left_behind_is_ended() {
    let worker = Worker::open();
    let mut piped = Piped::open(
        &worker.client,
        "setsid sleep 301 & echo $!; read line; kill -9 $$",
    )
    .await;
    let left = piped.line().await;
    assert!(lives(&left));
    piped.write("go\n").await;
    let heard = piped.rest().await;
    let expected = PipeEnd {
        exit_code: None,
        signal: Some("SIGKILL".to_owned()),
    };
    assert_eq!(heard.end, Some(expected));
    // Its output closes a moment before the kernel is done with it.
    eventually("what was left behind is gone", || !lives(&left)).await;
}

/// A program that writes faster than anybody reads waits, and nothing of it is lost.
#[tokio::test]
async fn a_flood_waits_for_its_reader() {
    let worker = Worker::open();
    let script = "i=0; while [ $i -lt 400 ]; do head -c 65536 /dev/zero; i=$((i+1)); echo $i > progress; done";
    let mut piped = Piped::open(&worker.client, script).await;
    let progress = || {
        fs::read_to_string(worker.project.join("progress"))
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
            .unwrap_or(0)
    };
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(400)).await;
        let now = progress();
        if now > 0 && now == before {
            break;
        }
        before = now;
    }
    assert!(before < 60, "{before} of 400 pieces were taken unread");
    // Its input stays open: once that ends, the program has a time to go.
    let mut total = 0;
    while let Some(part) = piped.next().await {
        if let pipe_response::Part::Output(bytes) = part {
            total += bytes.len();
        }
    }
    assert_eq!(total, 400 * 65_536);
}

/// Input for a program that reads nothing is held back, not kept in memory.
#[tokio::test]
async fn input_waits_for_a_program_that_does_not_read() {
    let worker = Worker::open();
    let mut piped = Piped::open(&worker.client, "echo there; exec sleep 302").await;
    assert_eq!(piped.line().await, "there");
    let mut sent = 0_u64;
    while timeout(Duration::from_millis(500), piped.write(vec![0; 65_536]))
        .await
        .is_ok()
    {
        sent += 1;
        assert!(sent < 100, "it is all taken");
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_everything() {
    let worker = Worker::open();
    let script =
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & wait";
    for ends_input_first in [false, true] {
        let mut piped = Piped::open(&worker.client, script).await;
        let pid = piped.line().await;
        assert!(lives(&pid));
        if ends_input_first {
            piped.end_input();
        }
        drop(piped);
        eventually("it is gone", || !lives(&pid)).await;
    }
}

/// The end of its input is its sign to go; one that does not take it is made to.
#[tokio::test]
async fn a_program_that_ignores_the_end_of_its_input_is_ended() {
    let worker = Worker::open();
    let mut piped = Piped::open(&worker.client, "echo there; exec sleep 303").await;
    assert_eq!(piped.line().await, "there");
    piped.end_input();
    let expected = PipeEnd {
        exit_code: None,
        signal: Some("SIGTERM".to_owned()),
    };
    assert_eq!(piped.rest().await.end, Some(expected));
}

#[tokio::test]
async fn a_second_program_in_one_stream_is_a_broken_caller() {
    let worker = Worker::open();
    let mut piped = Piped::open(&worker.client, "echo $$; cat").await;
    let pid = piped.line().await;
    let second = request(pipe_request::Part::Start(shell("touch second")));
    let input = piped.input.as_ref().expect("open");
    input.send(second).await.expect("taken");
    eventually("it is gone", || !lives(&pid)).await;
    assert!(!worker.project.join("second").exists());
}

#[tokio::test]
async fn refusals_start_nothing_and_say_what_is_wrong() {
    let scene = Scene::open();
    let client = &scene.worker.client;
    fs::write(scene.worker.project.join("plain"), "text").expect("file");
    let with = |change: fn(&mut PipeStart)| {
        let mut start = shell("touch started");
        change(&mut start);
        start
    };
    let hidden = PipeStart {
        write: vec![scene.home.join(".ssh").display().to_string()],
        ..shell("touch started")
    };
    let refusals = [
        (with(|start| start.argv.clear()), "program"),
        (
            with(|start| start.argv = vec!["no-such-program".into()]),
            "no such program",
        ),
        (
            with(|start| start.argv = vec!["./plain".into()]),
            "not executable",
        ),
        (with(|start| start.argv.push("a\0b".into())), "U+0000"),
        (
            with(|start| start.pass = vec!["POSTERN_OWNER_TOKEN".into()]),
            "POSTERN_",
        ),
    ]
    .map(|(start, part)| (start, ErrorCode::InvalidArguments, part));
    let others = [
        (
            with(|start| start.argv.push("x".repeat(200_000))),
            ErrorCode::TooLarge,
            "131071 bytes",
        ),
        (
            with(|start| start.cwd = "..".into()),
            ErrorCode::PathEscapesProject,
            "",
        ),
        (
            with(|start| start.write = vec!["/nowhere".into()]),
            ErrorCode::Unavailable,
            "sandbox",
        ),
        (hidden, ErrorCode::Unavailable, "sandbox"),
    ];
    for (start, code, part) in refusals.into_iter().chain(others) {
        let refused = Piped::try_open(client, start).await;
        let failure = refused.err().expect("refused");
        assert_eq!(failure.code, code, "{}", failure.message);
        assert!(
            failure.message.contains(part),
            "{part}: {}",
            failure.message
        );
    }
    assert!(!scene.worker.project.join("started").exists());
}

/// The owner's own server is no more trusted than an agent's command.
#[tokio::test]
async fn a_program_is_confined_as_a_command_is() {
    let scene = Scene::open();
    let attempt = |attack: String| shell(&format!("( {attack} ) 2>/dev/null && echo GOT; true"));
    let (home, outside) = (scene.home.display(), scene.outside.display());
    let spool = scene.worker.spool.display();
    for attack in [
        format!("cat {home}/.ssh/secret"),
        format!("echo after > {outside}/file"),
        format!("ls {spool}"),
    ] {
        let heard = said(&scene.worker.client, attempt(attack.clone())).await;
        assert_eq!(heard.output, "", "{attack}");
    }
    let inside = attempt("echo x > made && test -w \"$TMPDIR\"".to_owned());
    assert_eq!(said(&scene.worker.client, inside).await.output, "GOT\n");
    let granted = PipeStart {
        write: vec![outside.to_string()],
        ..attempt(format!("echo after > {outside}/file"))
    };
    assert_eq!(said(&scene.worker.client, granted).await.output, "GOT\n");
    let command = format!("echo again > {outside}/file && echo GOT");
    let commands = scene.worker.client.run(&command).await;
    assert!(
        !commands.output.contains("GOT"),
        "what one program may is no command's"
    );
}

#[tokio::test]
async fn variables_are_those_of_commands_and_those_that_are_named() {
    let worker = Worker::open_with(|config| {
        for (name, value) in [
            ("API_TOKEN", "passed"),
            ("OTHER_TOKEN", "hidden"),
            ("POSTERN_X", "own"),
        ] {
            config.environment.push((name.into(), value.into()));
        }
        config.hidden_env = vec!["API_TOKEN".to_owned(), "OTHER_TOKEN".to_owned()];
    });
    let script = "echo \"$API_TOKEN,$OTHER_TOKEN,$POSTERN_X,$GIVEN,$TERM,$LANG\"";
    let start = PipeStart {
        env: [("GIVEN".to_owned(), "given".to_owned())].into(),
        pass: vec!["API_TOKEN".to_owned(), "ABSENT".to_owned()],
        ..shell(script)
    };
    let heard = said(&worker.client, start).await;
    assert_eq!(heard.output, "passed,,,given,dumb,C.UTF-8\n");
    let heard = said(&worker.client, shell(script)).await;
    assert_eq!(heard.output, ",,,,dumb,C.UTF-8\n", "each has its own");
}

#[tokio::test]
async fn the_worker_takes_so_many_and_its_end_is_theirs() {
    let worker = Worker::open_with(|config| config.sandbox.level = Level::Off);
    let mut open = Vec::new();
    let refused = loop {
        match Piped::try_open(&worker.client, shell("exec cat")).await {
            Ok(piped) => open.push(piped),
            Err(failure) => break failure,
        }
    };
    assert_eq!((open.len(), refused.code), (32, ErrorCode::Busy));
    let mut last = open.pop().expect("one");
    open.truncate(1);
    drop(open);
    worker.service.stop_all("test").await;
    let end = last.rest().await.end.expect("it is told");
    assert_eq!(end.signal.as_deref(), Some("SIGTERM"));
    let late = Piped::try_open(&worker.client, shell("touch late")).await;
    assert_eq!(late.err().expect("closed").code, ErrorCode::Unavailable);
    assert!(!worker.project.join("late").exists());
}

/// Over a socket: the worker is killed, or told to end, or the caller's connection is gone.
#[tokio::test]
async fn programs_end_with_their_worker_or_their_connection() {
    let folder = folder();
    let script = "setsid sleep 304 & echo $$ $!; cat";
    let started = async |client: &Client| {
        let mut piped = Piped::open(client, script).await;
        let pids = piped.line().await;
        let pids: Vec<String> = pids.split(' ').map(str::to_owned).collect();
        assert!(pids.iter().all(|pid| lives(pid)), "{pids:?}");
        (piped, pids)
    };
    let worker = Process::start(folder.path()).await;
    let (_piped, pids) = started(&worker.client).await;
    worker.kill();
    eventually("gone with the worker", || {
        !pids.iter().any(|pid| lives(pid))
    })
    .await;

    let worker = Process::start(folder.path()).await;
    let address = postern_kit::transport::Address::Unix(folder.path().join("socket"));
    let transport = postern_kit::transport::connect(&address).expect("transport");
    let (piped, pids) = started(&Client(ExecClient::new(transport))).await;
    // The last hold on that connection.
    drop(piped);
    eventually("gone with the connection", || {
        !pids.iter().any(|pid| lives(pid))
    })
    .await;

    let (mut piped, pids) = started(&worker.client).await;
    let mut client = worker.client.0.clone();
    let shutdown = client.shutdown(ShutdownRequest::default());
    shutdown.await.expect("done");
    assert!(piped.rest().await.end.is_some());
    assert!(!pids.iter().any(|pid| lives(pid)));
}
