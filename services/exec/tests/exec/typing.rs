//! Typing: prompts, signals, the end of input, and texts longer than a terminal's line.

use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;

use postern_proto::exec::v1::Status;
use postern_types::ErrorCode;

use crate::harness::{Worker, eventually, receipt};

#[tokio::test]
async fn prompts_are_shown_and_answered_without_echo() {
    let worker = Worker::open();
    let id = worker
        .client
        .start("bash -c 'read -p \"name? \" name; echo \"hello $name\"'")
        .await;
    worker
        .client
        .output_until(&id, |text| text == "name? ")
        .await;
    assert_eq!(worker.client.input(&id, "Ada\n").await, 4);
    assert_eq!(worker.client.finish(&id).await.output, "name? hello Ada\n");
}

#[tokio::test]
async fn a_password_prompt_on_the_terminal_is_answered() {
    let worker = Worker::open();
    let command = "printf 'Password: ' >/dev/tty; stty -echo </dev/tty; read word </dev/tty; \
                   stty echo </dev/tty; stty -echo </dev/tty; echo; echo \"length ${#word}\"";
    let id = worker.client.start(command).await;
    worker
        .client
        .output_until(&id, |text| text == "Password: ")
        .await;
    worker.client.input(&id, "secret\r").await;
    assert_eq!(
        worker.client.finish(&id).await.output,
        "Password: \nlength 6\n"
    );
}

#[tokio::test]
async fn the_terminal_is_the_controlling_one_and_does_not_echo() {
    let worker = Worker::open();
    let done = worker
        .client
        .run(
            "tty | sed 's/[0-9]*$//'; stty size; \
             ps -o tpgid=,pgid= -p $$ | awk '{ print ($1 == $2) }'; stty -a",
        )
        .await;
    let settings = done.output.strip_prefix("/dev/pts/\n24 80\n1\n");
    let settings: Vec<&str> = settings.expect(&done.output).split_whitespace().collect();
    for setting in ["-echo", "-opost", "icanon", "isig", "icrnl", "-ixon"] {
        assert!(settings.contains(&setting), "{setting} in {}", done.output);
    }
}

/// B33: input and its end.
#[tokio::test]
async fn the_end_of_input_ends_cat() {
    let worker = Worker::open();
    let id = worker.client.start("cat; echo END").await;
    assert_eq!(worker.client.input(&id, "x\n\u{4}").await, 3);
    assert_eq!(worker.client.finish(&id).await.output, "x\nEND\n");
    // Also behind an unfinished line, in the same input or another.
    let id = worker.client.start("cat; echo END").await;
    assert_eq!(worker.client.input(&id, "no newline\u{4}").await, 11);
    assert_eq!(worker.client.finish(&id).await.output, "no newlineEND\n");
    let id = worker.client.start("cat; echo END").await;
    worker.client.input(&id, "half").await;
    worker.client.input(&id, "\u{4}").await;
    assert_eq!(worker.client.finish(&id).await.output, "halfEND\n");
}

#[tokio::test]
async fn an_interrupt_reaches_the_command() {
    let worker = Worker::open();
    // A shell that is just making its child may let an interrupt pass by, at any terminal; so it is waited for.
    let id = worker.client.start("echo ready; exec sleep 300").await;
    worker
        .client
        .output_until(&id, |text| text.contains("ready"))
        .await;
    worker.client.input(&id, "\u{3}").await;
    let done = worker.client.finish(&id).await;
    assert_eq!(done.state.status(), Status::Exited);
    assert_eq!(done.state.signal.as_deref(), Some("SIGINT"));
    let id = worker
        .client
        .start("trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.05; done")
        .await;
    worker
        .client
        .output_until(&id, |text| text.contains("ready"))
        .await;
    worker.client.input(&id, "\u{3}").await;
    let done = worker.client.finish(&id).await;
    assert_eq!(
        (done.output.as_str(), done.state.exit_code),
        ("ready\ncaught\n", Some(4))
    );
}

/// A terminal loses what is over 4095 bytes of a line; the typist does not.
#[tokio::test]
async fn a_line_longer_than_the_terminals_arrives_whole() {
    let worker = Worker::open();
    let line: String = (0..16_383)
        .map(|n| char::from(b'a' + (n % 26) as u8))
        .collect();
    let text = format!("{line}\n");
    for reader in [
        "head -c 16384",
        "head -n 1",
        "read line; printf '%s\\n' \"$line\"",
        "dd bs=1 count=16384 2>/dev/null",
    ] {
        let id = worker.client.start(reader).await;
        assert_eq!(worker.client.input(&id, &text).await, 16_384, "{reader}");
        let done = worker.client.finish(&id).await;
        assert!(
            done.output == text,
            "{reader}: {} of 16384 bytes",
            done.output.len()
        );
    }
    let id = worker.client.start("cat | wc -c").await;
    let wide = "漢".repeat(16_383);
    assert_eq!(
        worker.client.input(&id, &format!("{wide}\u{4}")).await,
        16_383 * 3 + 1
    );
    assert_eq!(
        worker.client.finish(&id).await.output.trim(),
        (16_383 * 3).to_string()
    );
}

#[tokio::test]
async fn control_characters_that_edit_a_line_are_plain_text() {
    let worker = Worker::open();
    let id = worker.client.start("od -An -c").await;
    worker
        .client
        .input(
            &id,
            "a\u{7f}b\u{15}c\u{17}d\u{16}e\u{12}f\u{11}\u{13}g\n\u{4}",
        )
        .await;
    let done = worker.client.finish(&id).await;
    let words: Vec<&str> = done.output.split_whitespace().collect();
    let expected = [
        "a", "177", "b", "025", "c", "027", "d", "026", "e", "022", "f", "021", "023", "g", "\\n",
    ];
    assert_eq!(words, expected);
}

#[tokio::test]
async fn a_raw_terminal_gets_every_byte_once() {
    let worker = Worker::open();
    let id = worker
        .client
        .start("stty raw -echo; echo ready; dd bs=1 count=5 2>/dev/null | od -An -tx1")
        .await;
    worker
        .client
        .output_until(&id, |text| text.contains("ready"))
        .await;
    assert_eq!(worker.client.input(&id, "ab\u{4}\u{3}\r").await, 5);
    assert_eq!(
        worker.client.finish(&id).await.output,
        "ready\n 61 62 04 03 0d\n"
    );
}

/// B33: nobody reads. The answer comes, and says how much was taken.
#[tokio::test]
async fn a_full_terminal_is_told_and_blocks_nobody() {
    let worker = Worker::open();
    let id = worker.client.start("sleep 300").await;
    let line = "x".repeat(1023) + "\n";
    let text = line.repeat(16);
    let began = Instant::now();
    let mut taken = 0;
    for _ in 0..16 {
        let now = worker.client.input(&id, &text).await;
        taken += now;
        if now < text.len() as u64 {
            break;
        }
    }
    assert!(taken < 16 * text.len() as u64, "a terminal has a bound");
    assert!(began.elapsed() < Duration::from_secs(10));
    let other = worker.client.run("echo meanwhile").await;
    assert_eq!(other.output, "meanwhile\n");
    worker.client.stop(&id).await;
    // What was taken is there for whoever reads later.
    let id = worker.client.start("sleep 1; head -c 200000 | wc -c").await;
    let mut sent = 0;
    while sent < 200_000 {
        sent += worker.client.input(&id, &text).await;
    }
    assert_eq!(worker.client.finish(&id).await.output.trim(), "200000");
}

#[tokio::test]
async fn a_command_that_closed_its_input_takes_it_all_the_same() {
    let worker = Worker::open();
    let id = worker.client.start("exec 0<&-; echo closed; sleep 1").await;
    worker
        .client
        .output_until(&id, |text| text.contains("closed"))
        .await;
    worker.client.input(&id, "nobody reads this\n").await;
    assert_eq!(worker.client.finish(&id).await.state.exit_code, Some(0));
}

#[tokio::test]
async fn input_over_its_bound_is_refused() {
    let worker = Worker::open();
    let id = worker.client.start("cat").await;
    let refused = worker
        .client
        .try_input(&receipt(), &id, &"x".repeat(16_385))
        .await;
    let refused = refused.expect_err("refused");
    assert_eq!(refused.code, ErrorCode::InvalidArguments);
    let told = [&refused.details["pointer"], &refused.details["rule"]];
    assert_eq!(told, ["/text", "maxLength"]);
    worker.client.stop(&id).await;
}

/// The note before the text can be written, the one after it cannot: it was typed, and is not typed again.
#[tokio::test]
async fn an_input_that_cannot_be_noted_as_done_is_told_as_done() {
    let worker = Worker::open_free();
    let typed = receipt();
    let id = worker
        .client
        .start("while [ ! -e go ]; do sleep 0.01; done; rm -f \"$(cat go)\"; mkdir \"$(cat go)\"; cat > typed")
        .await;
    // Full, so that the input takes until the command has spoilt the log.
    let line = "x".repeat(1023) + "\n";
    let mut before = 0;
    loop {
        let taken = worker.client.input(&id, &line.repeat(16)).await;
        before += taken;
        if taken < 16 * 1024 {
            break;
        }
    }
    let log = worker.spool.join(&id).join("effects");
    let spoil = async {
        let begun = format!("{typed} begun");
        eventually("the input is noted", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains(&begun))
        })
        .await;
        let (go, ready) = (worker.project.join("go"), worker.project.join("going"));
        std::fs::write(&ready, log.to_str().expect("text")).expect("written");
        std::fs::rename(&ready, &go).expect("go");
    };
    let (first, ()) = tokio::join!(worker.client.try_input(&typed, &id, "\nonce\n"), spoil);
    assert!(log.is_dir(), "the log was spoilt");
    assert_eq!(first, Ok(6));
    assert_eq!(
        worker.client.try_input(&typed, &id, "\nonce\n").await,
        Ok(6)
    );
    let copy = worker.project.join("typed");
    eventually("everything is read", || {
        std::fs::read_to_string(&copy).is_ok_and(|text| text.ends_with("\nonce\n"))
    })
    .await;
    let length = std::fs::metadata(&copy).expect("typed").len();
    assert_eq!(length, before + 6);
    // The log cannot take a stop either; it is stopped all the same.
    let stop = receipt();
    let state = worker.client.try_stop(&stop, &id).await.expect("stopped");
    assert_eq!(state.status(), Status::Stopped);
}
