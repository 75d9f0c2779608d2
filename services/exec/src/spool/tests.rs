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
    assert_eq!(left, 5, "the claim, workers, lapsed ones, boots and the id");
}

#[test]
fn everything_of_the_state_is_read_as_written() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = Spool::open(folder.path(), false, now()).expect("spool");
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
        let (id, entry) = claim(&spool);
        entry.mark_launched().expect("launched");
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

/// The file of a worker on another machine, whose lock is not seen here.
fn of_another_machine(folder: &Path, worker: &str) {
    let path = folder.join(".workers").join(worker);
    fs::write(path, "another boot").expect("written");
}

fn end_of(spool: &Spool, id: ReceiptId) -> Option<EndKind> {
    let entry = spool.find(id, now()).expect("find").expect("entry");
    entry.header.end.map(|end| end.kind)
}

#[test]
fn where_there_are_leases_a_lock_that_is_not_seen_elsewhere_proves_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let far = Spool::open(folder.path(), true, now()).expect("spool");
    let (id, _) = claim(&far);
    let worker = far.worker();
    drop(far);
    of_another_machine(folder.path(), &worker);
    let near = Spool::open(folder.path(), true, now()).expect("spool");
    assert_eq!(end_of(&near, id), None);
    assert_eq!(near.others().expect("read"), [worker.to_string()]);
    // Nobody knows it: it is not held to be alive by anything.
    near.mark_dead(&worker, false).expect("marked");
    assert_eq!(end_of(&near, id), Some(EndKind::Lost));
    assert!(near.others().expect("read").is_empty());

    // Without leases the lock is all there is.
    let (id, _) = claim(&near);
    let worker = near.worker();
    drop(near);
    of_another_machine(folder.path(), &worker);
    let alone = Spool::open(folder.path(), false, now()).expect("spool");
    assert_eq!(end_of(&alone, id), Some(EndKind::Lost));
}

#[test]
fn a_worker_whose_lease_has_lapsed_finds_that_out_and_begins_again() {
    let folder = tempfile::tempdir().expect("folder");
    let frozen = Spool::open(folder.path(), true, now()).expect("spool");
    let other = Spool::open(folder.path(), true, now()).expect("spool");
    let (id, entry) = claim(&frozen);
    let worker = frozen.worker();
    // It holds its lock, so that the ledger does not know it proves nothing.
    other.mark_dead(&worker, false).expect("not marked");
    assert_eq!((end_of(&other, id), frozen.is_over()), (None, false));
    other.mark_dead(&worker, true).expect("marked");
    assert_eq!(end_of(&other, id), Some(EndKind::Lost));
    assert!(frozen.is_over());
    // What was told stays, whatever it knows better.
    let stands = entry.mark_end(&end()).expect("an end");
    assert_eq!(stands.kind, EndKind::Lost);
    assert_eq!(end_of(&frozen, id), Some(EndKind::Lost));

    frozen.begin_again().expect("begun");
    assert_ne!(frozen.worker(), worker);
    assert!(!frozen.is_over());
    let (id, _) = claim(&frozen);
    assert_eq!(end_of(&other, id), None);
    // A worker that starts clears away what is left of the dead; that is as good as the mark.
    drop(Spool::open(folder.path(), true, now()).expect("spool"));
    let marks = fs::read_dir(folder.path().join(".lapsed")).expect("marks");
    assert_eq!(marks.count(), 0);
    assert_eq!(end_of(&other, id), None);
}

#[test]
fn an_end_that_came_first_is_not_lost_afterwards() {
    let folder = tempfile::tempdir().expect("folder");
    let frozen = Spool::open(folder.path(), true, now()).expect("spool");
    let other = Spool::open(folder.path(), true, now()).expect("spool");
    let (id, entry) = claim(&frozen);
    let mut found = other.find(id, now()).expect("find").expect("entry");
    entry.mark_end(&end()).expect("an end");
    other.lose(&mut found, now()).expect("looked");
    assert_eq!(found.header.end, Some(end()));
    assert_eq!(end_of(&other, id), Some(EndKind::Exited));
}

#[test]
fn a_session_has_so_many_seats_over_all_workers() {
    let folder = tempfile::tempdir().expect("folder");
    let one = Spool::open(folder.path(), true, now()).expect("spool");
    let other = Spool::open(folder.path(), true, now()).expect("spool");
    let mut seats = Vec::new();
    for spool in [&one, &other] {
        let (id, _) = claim(spool);
        seats.push(
            spool
                .seat("session/1", id, 2, now())
                .expect("asked")
                .expect("a seat"),
        );
    }
    let next = ReceiptId::generate();
    let refused = one.seat("session/1", next, 2, now()).expect("asked");
    assert!(refused.is_none());
    let elsewhere = one.seat("session/2", next, 2, now()).expect("asked");
    assert!(elsewhere.is_some());
    drop(seats.pop());
    let given_back = one.seat("session/1", next, 2, now()).expect("asked");
    assert!(given_back.is_some());
    // A folder with a seat stays, and one without goes.
    let folders = || {
        fs::read_dir(folder.path().join(".sessions"))
            .expect("sessions")
            .count()
    };
    drop(elsewhere);
    one.prune_sessions(std::time::Duration::from_secs(3600))
        .expect("looked");
    assert_eq!(folders(), 2);
    one.prune_sessions(std::time::Duration::ZERO)
        .expect("looked");
    assert_eq!(folders(), 1);
    // What a dead worker left is nobody's seat. That of the one about to be claimed is.
    std::mem::forget(seats);
    drop(one);
    let last = ReceiptId::generate();
    let seat = other.seat("session/1", last, 2, now()).expect("asked");
    assert!(seat.is_some());
    let third = ReceiptId::generate();
    let refused = other.seat("session/1", third, 2, now()).expect("asked");
    assert!(refused.is_none());
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

/// Each machine goes by a file of its own, and whoever throws a claim away does so for all of them.
#[test]
fn what_one_machine_throws_away_is_remembered_on_no_other() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = Spool::open(folder.path(), true, now()).expect("spool");
    let other = folder.path().join(".boots").join("another-boot");
    fs::write(&other, "0").expect("another machine");
    let (id, entry) = claim(&spool);
    entry.mark_end(&End::lost(now())).expect("its end is noted");
    let bounds = Bounds {
        outputs: 0,
        output_bytes: 0,
        claims: 0,
    };
    spool.prune_to(bounds, now()).expect("pruned");
    assert!(spool.find(id, now()).expect("find").is_none());
    assert!(!spool.remembers(id));
    let since = fs::read_to_string(other).expect("a time");
    let since: u64 = since.trim().parse().expect("milliseconds");
    let (seconds, nanos) = id
        .as_uuid()
        .get_timestamp()
        .expect("a time in the id")
        .to_unix();
    assert!(since > seconds * 1000 + u64::from(nanos) / 1_000_000);
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
