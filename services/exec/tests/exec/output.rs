//! Output: pages, characters, order, what is kept.

use std::fmt::Write as _;

use pretty_assertions::assert_eq;

use postern_proto::exec::v1::{Gap, Status};
use postern_types::ErrorCode;

use crate::harness::{SESSION, Worker, code, eventually};

const PAGE: u64 = 131_072;

/// B23: a character that the poll cuts is not two replacement marks.
#[tokio::test]
async fn characters_written_byte_by_byte_arrive_whole() {
    let worker = Worker::open();
    let bytes = "漢🙂é".bytes().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "printf '\\{byte:03o}'; sleep 0.01; ");
        text
    });
    let command = format!("for i in 1 2 3 4 5; do {bytes} done; printf '\\377\\346\\274'");
    let id = worker.client.start(&command).await;
    let (mut text, mut offset) = (String::new(), 0);
    loop {
        let page = worker.client.poll(&id, offset).await;
        assert_eq!(page.offset, offset);
        assert!(page.next_offset >= offset);
        text += &page.output;
        offset = page.next_offset;
        let ended = page.state.expect("state").status() != Status::Running;
        if ended && offset == page.total_bytes {
            break;
        }
    }
    // The invalid byte, and the character that is not complete when the command ends, are one mark each.
    assert_eq!(text, format!("{}\u{FFFD}\u{FFFD}", "漢🙂é".repeat(5)));
    assert_eq!(offset, 5 * 9 + 3);
}

/// B24: an end is never told before the output can be read, and stays readable.
#[tokio::test]
async fn the_last_output_of_a_short_command_is_never_missed() {
    let worker = Worker::open();
    let command = "head -c 65536 /dev/zero | tr '\\0' x; printf E >&2; exit 7";
    for _ in 0..40 {
        let id = worker.client.start(command).await;
        loop {
            let page = worker.client.poll(&id, 0).await;
            let state = page.state.expect("state");
            if state.status() == Status::Running {
                continue;
            }
            assert_eq!(page.total_bytes, 65_537, "the end is told with all output");
            assert_eq!(state.exit_code, Some(7));
            break;
        }
        let first = worker.client.finish(&id).await;
        assert_eq!(first.output, format!("{}E", "x".repeat(65_536)));
        assert_eq!(worker.client.finish(&id).await.output, first.output);
    }
}

/// B26: pages around the limit, with characters across it.
#[tokio::test]
async fn pages_end_before_a_character_that_does_not_fit() {
    let worker = Worker::open();
    for lead in 0..4 {
        let command =
            format!("printf %{lead}s '' | tr ' ' a; head -c 60000 /dev/zero | sed 's/\\x00/漢/g'");
        let id = worker.client.start(&command).await;
        let done = worker.client.finish(&id).await;
        assert_eq!(done.output, "a".repeat(lead) + &"漢".repeat(60_000));
        let first = worker.client.poll(&id, 0).await;
        assert!(first.next_offset <= PAGE && first.next_offset > PAGE - 3);
        assert_eq!(first.output.len() as u64, first.next_offset);
        // An offset inside a character is a byte that is none.
        let inside = worker.client.poll(&id, lead as u64 + 1).await;
        assert!(inside.output.starts_with("\u{FFFD}\u{FFFD}漢"));
    }
    let line = worker
        .client
        .run("head -c 300000 /dev/zero | tr '\\0' x; echo")
        .await;
    assert_eq!(line.output, "x".repeat(300_000) + "\n");
}

#[tokio::test]
async fn a_page_of_bytes_that_are_no_text_is_marks_and_moves_on() {
    let worker = Worker::open();
    let done = worker
        .client
        .run("head -c 200000 /dev/zero | tr '\\0' '\\377'")
        .await;
    assert_eq!(done.total, 200_000);
    assert_eq!(done.output, "\u{FFFD}".repeat(200_000));
}

/// 80 MiB: the first 8 and the last 56 are there, and the gap is exact.
#[tokio::test]
async fn output_over_what_is_kept_has_an_exact_gap() {
    const MIB: u64 = 1024 * 1024;
    let worker = Worker::open();
    // Every line of 16 bytes says its own offset.
    let id = worker
        .client
        .start("awk 'BEGIN { for (i = 0; i < 5242880; i++) printf \"%015d\\n\", i * 16 }'")
        .await;
    let line = |offset: u64| format!("{:015}\n", offset / 16 * 16);
    let state = loop {
        let page = worker
            .client
            .try_poll(SESSION, &id, 0, 2000)
            .await
            .expect("page");
        assert!(page.output.starts_with(&line(0)));
        let state = page.state.expect("state");
        if state.status() != Status::Running {
            break state;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert_eq!(state.exit_code, Some(0));
    let gap = Some(Gap {
        from: 8 * MIB,
        to: 24 * MIB,
    });
    let last_of_head = worker.client.poll(&id, 8 * MIB - 32).await;
    assert_eq!(
        last_of_head.output,
        line(8 * MIB - 32) + &line(8 * MIB - 16)
    );
    assert_eq!((last_of_head.next_offset, last_of_head.gap), (8 * MIB, gap));
    for asked in [8 * MIB, 9 * MIB, 24 * MIB] {
        let page = worker.client.poll(&id, asked).await;
        assert_eq!((page.offset, page.next_offset), (24 * MIB, 24 * MIB + PAGE));
        assert!(page.output.starts_with(&line(24 * MIB)));
        assert_eq!((page.total_bytes, page.gap), (80 * MIB, gap));
    }
    let mut offset = 24 * MIB;
    while offset < 80 * MIB {
        let page = worker.client.poll(&id, offset).await;
        assert_eq!(page.offset, offset);
        assert!(page.output.starts_with(&line(offset)), "at {offset}");
        assert!(page.output.ends_with(&line(page.next_offset - 16)));
        offset = page.next_offset;
    }
    assert_eq!(offset, 80 * MIB);
}

#[tokio::test]
async fn an_offset_at_the_end_is_empty_and_one_past_it_is_refused() {
    let worker = Worker::open();
    let id = worker.client.start("echo hi").await;
    worker.client.finish(&id).await;
    let page = worker.client.poll(&id, 3).await;
    assert_eq!((page.output.as_str(), page.next_offset), ("", 3));
    let refused = worker
        .client
        .try_poll(SESSION, &id, 4, 0)
        .await
        .expect_err("past");
    assert_eq!(refused.code, ErrorCode::InvalidArguments);
    assert_eq!(refused.details["pointer"], "/offset");
}

#[tokio::test]
async fn a_poll_waits_for_something_new_and_no_longer() {
    let worker = Worker::open();
    let id = worker
        .client
        .start("read line; echo got $line; read line")
        .await;
    let began = std::time::Instant::now();
    let empty = worker
        .client
        .try_poll(SESSION, &id, 0, 150)
        .await
        .expect("empty");
    assert_eq!((empty.output.as_str(), empty.next_offset), ("", 0));
    assert!(began.elapsed().as_millis() >= 150);
    // Many wait at once, and all are woken by the same output.
    let (one, other) = (worker.client.clone(), worker.client.clone());
    let (first, second, taken) = tokio::join!(
        one.poll(&id, 0),
        other.poll(&id, 0),
        worker.client.input(&id, "x\n"),
    );
    assert_eq!(taken, 2);
    assert_eq!(
        (first.output.as_str(), second.output.as_str()),
        ("got x\n", "got x\n")
    );
}

#[tokio::test]
async fn another_session_does_not_see_a_command() {
    let worker = Worker::open();
    let id = worker.client.start("echo secret").await;
    worker.client.finish(&id).await;
    let polled = worker.client.try_poll("session-2", &id, 0, 0).await;
    assert_eq!(code(polled), ErrorCode::UnknownCommand);
    for unknown in ["", "../../etc", "x", "00000000-0000-0000-0000-000000000000"] {
        let polled = worker.client.try_poll(SESSION, unknown, 0, 0).await;
        assert_eq!(code(polled), ErrorCode::UnknownCommand);
        assert_eq!(
            code(
                worker
                    .client
                    .try_input(&crate::harness::receipt(), unknown, "x")
                    .await
            ),
            ErrorCode::UnknownCommand
        );
        assert_eq!(
            code(
                worker
                    .client
                    .try_stop(&crate::harness::receipt(), unknown)
                    .await
            ),
            ErrorCode::UnknownCommand
        );
    }
}

#[tokio::test]
async fn what_is_written_to_the_terminal_is_output_too() {
    let worker = Worker::open();
    let done = worker.client.run("printf one; printf two >/dev/tty").await;
    assert!(done.output.contains("one") && done.output.contains("two"));
}

#[tokio::test]
async fn output_of_a_running_command_reaches_the_disk() {
    let worker = Worker::open();
    let id = worker.client.start("echo kept; read x").await;
    let head = worker.spool.join(&id).join("head");
    eventually("the head", || {
        std::fs::read(&head).is_ok_and(|bytes| bytes == b"kept\n")
    })
    .await;
}
