use std::time::Instant;

use pretty_assertions::assert_eq;

use super::*;

fn key(id: usize) -> Key {
    Key {
        token_id: "0193a0e4-5b1c-7000-8000-00000000abcd".to_owned(),
        workspace_id: "0193a0e4-5b1c-7000-8000-00000000abce".to_owned(),
        call_id: format!("0193a0e4-5b1c-7000-8000-{id:012}"),
    }
}

fn sending(intention: &str) -> Sending {
    Sending {
        fingerprint: Sha256::of(b"tool and arguments"),
        session_id: "0193a0e4-5b1c-7000-8000-00000000abcf".to_owned(),
        intention: intention.to_owned(),
    }
}

#[tokio::test]
async fn a_call_keeps_its_first_sending_and_its_first_answer_across_a_restart() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("journal.db");
    let now = Timestamp::now();
    {
        let journal = Journal::open(&file, now, &Tasks::new())
            .await
            .expect("journal");
        assert_eq!(journal.find(key(1)).await.expect("find"), None);
        journal
            .open_call(key(1), sending("first"), now)
            .await
            .expect("open");
        journal
            .open_call(key(1), sending("second"), now)
            .await
            .expect("open");
        journal
            .room()
            .await
            .expect("room")
            .answer(key(1), Some("{\"a\":1}".to_owned()), now);
        journal
            .room()
            .await
            .expect("room")
            .answer(key(1), Some("{\"b\":1}".to_owned()), now);
        journal.room().await.expect("room").free(key(1));
        journal
            .open_call(key(2), sending("first"), now)
            .await
            .expect("open");
        journal.room().await.expect("room").free(key(2));
    }
    let journal = Journal::open(&file, now, &Tasks::new())
        .await
        .expect("journal");
    let known = Known {
        sending: sending("first"),
        answer: Some("{\"a\":1}".to_owned()),
    };
    assert_eq!(journal.find(key(1)).await.expect("find"), Some(known));
    assert_eq!(journal.find(key(2)).await.expect("find"), None);
    let other = Key {
        token_id: "another".to_owned(),
        ..key(1)
    };
    assert_eq!(journal.find(other).await.expect("find"), None);
}

#[tokio::test]
async fn many_at_once_share_commits_and_all_are_there() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("journal.db");
    let now = Timestamp::now();
    let journal = Journal::open(&file, now, &Tasks::new())
        .await
        .expect("journal");
    let calls = (0..500).map(|id| journal.open_call(key(id), sending("many"), now));
    for outcome in futures_util::future::join_all(calls).await {
        outcome.expect("open");
    }
    for id in [0, 250, 499] {
        assert!(journal.find(key(id)).await.expect("find").is_some());
    }
}

/// Prints what a call costs: `cargo test -p postern-host --lib cost_of_a_call -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "a measurement is printed")]
async fn cost_of_a_call() {
    let directory = tempfile::tempdir().expect("directory");
    let now = Timestamp::now();
    let journal = Journal::open(&directory.path().join("journal.db"), now, &Tasks::new())
        .await
        .expect("journal");
    let mut opens = Vec::new();
    for id in 0..5000 {
        let start = Instant::now();
        journal
            .open_call(key(id), sending("what the launch is for"), now)
            .await
            .expect("open");
        opens.push(start.elapsed());
        journal
            .room()
            .await
            .expect("room")
            .answer(key(id), Some("{}".to_owned()), now);
    }
    opens.sort();
    println!("open: p50 {:?}, p99 {:?}", opens[2500], opens[4950]);
}
