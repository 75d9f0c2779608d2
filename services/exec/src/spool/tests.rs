//! Tests of the spool by itself.

use std::os::unix::fs::FileExt as _;

use pretty_assertions::assert_eq;

use super::{
    output::{HEAD, TAIL},
    retention::Bounds,
    *,
};

fn now() -> Timestamp {
    Timestamp::now()
}

fn draft(spool: &Spool) -> Draft {
    spool.draft().expect("draft")
}

fn claim(spool: &Spool) -> (ReceiptId, Entry) {
    let id = ReceiptId::generate();
    let meta = spool.meta("session", now());
    let entry = spool
        .claim(draft(spool), id, meta, Header::default())
        .expect("claim");
    (id, entry.expect("new"))
}

fn end() -> End {
    End {
        kind: EndKind::Exited,
        exit_code: Some(-3),
        signal: None,
        survivors: 0,
        finished_at_ms: 7,
    }
}

#[test]
fn a_receipt_is_claimed_once() {
    let folder = tempfile::tempdir().expect("folder");
    let one = Spool::open(folder.path(), false, now()).expect("spool");
    let other = Spool::open(folder.path(), false, now()).expect("spool");
    let (id, _) = claim(&one);
    for spool in [&one, &other] {
        let meta = spool.meta("session", now());
        let again = spool.claim(draft(spool), id, meta, Header::default());
        assert!(again.expect("asked").is_none());
    }
    let left = fs::read_dir(folder.path()).expect("spool").count();
    assert_eq!(left, 3, "the claim, workers and boots");
}

#[test]
fn everything_of_the_state_is_read_as_written() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = Spool::open(folder.path(), false, now()).expect("spool");
    let (id, entry) = claim(&spool);
    entry.mark_launched().expect("launched");
    let ends = [
        end(),
        End {
            kind: EndKind::Stopped,
            exit_code: None,
            signal: Some(9),
            survivors: 4,
            ..end()
        },
        End::lost(now()),
        End::without_status(EndKind::TimedOut, now()),
    ];
    for end in ends {
        entry.mark_end(&end).expect("end");
        let found = spool.find(id, now()).expect("find").expect("entry");
        assert_eq!(found.header.end, Some(end));
        assert_eq!((found.header.launched, &found.meta), (true, &entry.meta));
    }
}

#[test]
fn a_dead_workers_command_is_lost_and_a_living_ones_is_not() {
    let folder = tempfile::tempdir().expect("folder");
    let dead = Spool::open(folder.path(), false, now()).expect("spool");
    let (id, _) = claim(&dead);
    let other = Spool::open(folder.path(), false, now()).expect("spool");
    let found = other.find(id, now()).expect("find").expect("entry");
    assert!(other.is_elsewhere(&found));
    assert_eq!(found.header.end, None);
    drop(dead);
    let found = other.find(id, now()).expect("find").expect("entry");
    assert_eq!(found.header.end.map(|end| end.kind), Some(EndKind::Lost));
}

#[test]
fn what_a_crash_of_the_machine_kept_from_the_disk_is_not_counted() {
    let folder = tempfile::tempdir().expect("folder");
    let dead = Spool::open(folder.path(), false, now()).expect("spool");
    let id = ReceiptId::generate();
    let mut meta = dead.meta("session", now());
    meta.boot = "another".to_owned();
    let entry = dead
        .claim(draft(&dead), id, meta, Header::default())
        .expect("claim")
        .expect("new");
    let mut writer = entry.writer();
    writer.append(b"0123456789");
    let head = File::options()
        .write(true)
        .open(folder.path().join(id.to_string()).join("head"));
    head.expect("head").set_len(4).expect("cut");
    drop(dead);
    let spool = Spool::open(folder.path(), false, now()).expect("spool");
    let mut found = spool.find(id, now()).expect("find").expect("entry");
    assert_eq!(found.page(0).expect("page").text, "0123");
    assert_eq!(found.header.total, 4);
    assert!(!spool.is_of_this_boot(&found));
}

#[test]
fn a_full_disk_costs_output_but_not_the_command() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = Spool::open(folder.path(), false, now()).expect("spool");
    let (id, mut entry) = claim(&spool);
    let mut writer = entry.writer();
    writer.append(b"kept");
    // What stands in the way of the tail stands for a disk that takes no more.
    fs::create_dir(folder.path().join(id.to_string()).join("tail")).expect("obstacle");
    let chunk = vec![b'x'; 256 * 1024];
    while writer.append(&chunk) < HEAD + 100 {}
    let total = writer.append(b"lost");
    entry.mark_end(&end()).expect("end");
    let broken = 4 + (HEAD - 4) / 262_144 * 262_144;
    let page = entry.page(broken - 2).expect("page");
    assert_eq!((page.text.as_str(), page.next_offset), ("xx", broken));
    assert_eq!(page.gap, Some((broken, total)));
    let page = entry.page(broken).expect("page");
    assert_eq!((page.offset, page.next_offset), (total, total));
}

#[test]
fn the_tail_goes_round_and_a_reader_never_sees_what_was_overwritten() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = Spool::open(folder.path(), false, now()).expect("spool");
    let (_, mut entry) = claim(&spool);
    let mut writer = entry.writer();
    let chunk: Vec<u8> = (0..250_000_u32).map(|n| b'a' + (n % 25) as u8).collect();
    let mut total = 0;
    while total < HEAD + 2 * TAIL + 12_345 {
        total = writer.append(&chunk);
    }
    let at = |offset: u64| char::from(b'a' + (offset % 250_000 % 25) as u8);
    let page = entry.page(HEAD).expect("page");
    assert_eq!(page.gap, Some((HEAD, total - TAIL)));
    for offset in [total - TAIL, total - TAIL + 77_777, total - 10] {
        let page = entry.page(offset).expect("page");
        assert_eq!(page.text.chars().next(), Some(at(offset)));
        assert_eq!(page.text.chars().last(), Some(at(page.next_offset - 1)));
    }
}

#[test]
fn the_oldest_output_goes_first_and_the_claims_stay() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = Spool::open(folder.path(), false, now()).expect("spool");
    let mut ids = Vec::new();
    for number in 0..6 {
        let (id, entry) = claim(&spool);
        entry.writer().append(b"output");
        if number != 1 {
            entry.mark_end(&end()).expect("end");
        }
        ids.push(id);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let bounds = Bounds {
        outputs: 2,
        output_bytes: u64::MAX,
        claims: 5,
    };
    spool.prune_to(bounds, now()).expect("pruned");
    let page = |id| {
        let entry = spool.find(id, now()).expect("find");
        entry.map(|mut entry| entry.page(0).expect("page"))
    };
    assert_eq!(page(ids[0]), None, "a claim too many");
    assert_eq!(page(ids[1]).expect("runs").text, "output");
    for pruned in &ids[2..4] {
        let page = page(*pruned).expect("claim");
        assert_eq!(
            (page.text.as_str(), page.offset, page.gap),
            ("", 6, Some((0, 6)))
        );
    }
    assert_eq!(page(ids[5]).expect("kept").text, "output");
    assert!(!spool.remembers(ids[0]) && spool.remembers(ids[1]));
}

#[test]
fn an_unreadable_state_is_an_error_and_no_guess() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = Spool::open(folder.path(), false, now()).expect("spool");
    let (id, _) = claim(&spool);
    let path = folder.path().join(id.to_string()).join("state");
    let file = File::options().write(true).open(path).expect("state");
    file.write_all_at(b"GARBAGE!", 0).expect("write");
    let error = spool.find(id, now()).expect_err("garbage");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}
