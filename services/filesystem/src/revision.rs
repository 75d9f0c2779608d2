//! Revisions of files: what is told of a whole file, and how it is remembered.
//!
//! A file's facts are remembered by device and inode together with its size, mtime and ctime, and believed again only
//! while all of them are the same. A file that was changed within the last [`SETTLED`] before it was hashed is not
//! remembered: a further change within the same tick of the file system's clock would leave no trace.
//!
//! A file of at most [`SNAPSHOT_LIMIT`] bytes is hashed in memory. A larger one is hashed by a job of its own, which
//! everybody who asks for the same state of the file shares and which goes on when they stop waiting.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use memchr::{memchr_iter, memmem};
use postern_kit::Clock;
use postern_proto::filesystem::v1::LineEnding;
use postern_types::{Sha256, Timestamp};
use rustix::fs::Stat;
use sha2::Digest as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::{jobs::hold, recent::Recent};

/// Largest file that is read whole for a page or a revision, in bytes: some milliseconds of hashing.
pub(crate) const SNAPSHOT_LIMIT: u64 = 2 * 1024 * 1024;
/// How long a file must have been left alone before its facts are remembered.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);
/// Files whose facts are remembered at least; at most twice as many, some 200 bytes each.
const REMEMBERED: usize = 8192;
/// Bytes hashed at a time.
const CHUNK: usize = 256 * 1024;
/// Chunks between two looks at whether the file is still the same.
const CHUNKS_A_LOOK: usize = 64;

/// What changes whenever a file does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub(crate) size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Stamp {
    #[expect(
        clippy::unnecessary_cast,
        reason = "the types of these fields differ between architectures"
    )]
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }

    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstat(file)?))
    }

    /// Whether both are of one file, in whatever state.
    pub(crate) fn is_of_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether both are of one file with the same content, whatever was done to its names and attributes.
    pub(crate) fn is_of_same_content(&self, other: &Self) -> bool {
        self.is_of_same_file(other) && (self.size, self.mtime) == (other.size, other.mtime)
    }

    /// Whether the file had been left alone at `now` for so long that a later change must show. A ctime in the
    /// future is no reason for trust.
    pub(crate) fn settled(&self, now: Timestamp) -> bool {
        let changed_ms = self
            .ctime
            .0
            .saturating_mul(1000)
            .saturating_add(self.ctime.1 / 1_000_000);
        let settled_ms = i64::try_from(SETTLED.as_millis()).unwrap_or(i64::MAX);
        now.as_millis() > changed_ms.saturating_add(settled_ms)
    }
}

/// What is told of a whole file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Facts {
    pub(crate) sha256: Sha256,
    pub(crate) size: u64,
    pub(crate) line_ending: LineEnding,
    pub(crate) bom: bool,
}

/// Gathers facts, chunk by chunk.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    hash: sha2::Sha256,
    size: u64,
    line_feeds: u64,
    with_return: u64,
    ends_with_return: bool,
    start: Vec<u8>,
}

/// UTF-8's byte order mark.
pub(crate) const BOM: &[u8] = b"\xEF\xBB\xBF";

impl Scan {
    pub(crate) fn update(&mut self, chunk: &[u8]) {
        let Some(last) = chunk.last() else { return };
        self.hash.update(chunk);
        self.size += chunk.len() as u64;
        let missing = BOM.len().saturating_sub(self.start.len()).min(chunk.len());
        self.start.extend_from_slice(&chunk[..missing]);
        let line_feeds = memchr_iter(b'\n', chunk).count() as u64;
        if line_feeds > 0 {
            let across = self.ends_with_return && chunk[0] == b'\n';
            self.line_feeds += line_feeds;
            self.with_return +=
                u64::from(across) + memmem::find_iter(chunk, b"\r\n").count() as u64;
        }
        self.ends_with_return = *last == b'\r';
    }

    pub(crate) fn finish(self) -> Facts {
        let line_ending = match (self.line_feeds, self.with_return) {
            (0, _) => LineEnding::None,
            (_, 0) => LineEnding::Lf,
            (all, crlf) if all == crlf => LineEnding::Crlf,
            _ => LineEnding::Mixed,
        };
        Facts {
            sha256: Sha256::from_bytes(self.hash.finalize().into()),
            size: self.size,
            line_ending,
            bom: self.start == BOM,
        }
    }

    pub(crate) fn of(content: &[u8]) -> Facts {
        let mut scan = Self::default();
        scan.update(content);
        scan.finish()
    }
}

/// How a job on a large file ended.
#[derive(Clone, Debug)]
pub(crate) enum Scanned {
    /// These are its facts, and it was the same before and after.
    Facts(Facts),
    /// The file changed, or reading it failed; who wants more looks at it anew.
    Changed,
}

type Answer = watch::Receiver<Option<Scanned>>;

/// Remembers facts and runs the jobs on large files.
#[derive(Debug)]
pub(crate) struct Revisions {
    remembered: Mutex<Recent<(u64, u64), (Stamp, Facts)>>,
    jobs: Mutex<HashMap<Stamp, Answer>>,
    permits: Arc<Semaphore>,
    clock: Clock,
}

impl Revisions {
    /// At most so many large files are hashed at once.
    pub(crate) fn new(clock: Clock, jobs: usize) -> Self {
        Self {
            remembered: Mutex::new(Recent::new(REMEMBERED)),
            jobs: Mutex::new(HashMap::new()),
            permits: Arc::new(Semaphore::new(jobs)),
            clock,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The facts of a file in this state, if they are remembered.
    pub(crate) fn remembered(&self, stamp: &Stamp) -> Option<Facts> {
        let remembered = hold(&self.remembered);
        let (known, facts) = remembered.get(&(stamp.device, stamp.inode))?;
        (known == stamp).then_some(*facts)
    }

    /// Remembers facts that were gathered from `started` on, of a file that had this stamp before and after.
    pub(crate) fn remember(&self, stamp: &Stamp, facts: Facts, started: Timestamp) {
        if stamp.settled(started) && facts.size == stamp.size {
            hold(&self.remembered).insert((stamp.device, stamp.inode), (*stamp, facts));
        }
    }

    /// The facts of a large file, within `wait` or not at all. The job goes on all the same.
    pub(crate) async fn scan_within(
        self: &Arc<Self>,
        file: &Arc<File>,
        stamp: Stamp,
        wait: Duration,
    ) -> Option<Scanned> {
        tokio::time::timeout(wait, self.scan(file, stamp))
            .await
            .ok()
    }

    async fn scan(self: &Arc<Self>, file: &Arc<File>, stamp: Stamp) -> Scanned {
        if let Some(facts) = self.remembered(&stamp) {
            return Scanned::Facts(facts);
        }
        let mut answer = match self.running(&stamp) {
            Some(answer) => answer,
            None => match Arc::clone(&self.permits).acquire_owned().await {
                Ok(permit) => self.start(Arc::clone(file), stamp, permit),
                Err(_) => return Scanned::Changed,
            },
        };
        match answer.wait_for(Option::is_some).await {
            Ok(scanned) => scanned.clone().unwrap_or(Scanned::Changed),
            Err(_) => Scanned::Changed,
        }
    }

    fn running(&self, stamp: &Stamp) -> Option<Answer> {
        running(&hold(&self.jobs), stamp)
    }

    fn start(
        self: &Arc<Self>,
        file: Arc<File>,
        stamp: Stamp,
        permit: OwnedSemaphorePermit,
    ) -> Answer {
        let mut jobs = hold(&self.jobs);
        if let Some(answer) = running(&jobs, &stamp) {
            return answer;
        }
        let (sender, answer) = watch::channel(None);
        jobs.insert(stamp, answer.clone());
        drop(jobs);
        let service = Arc::downgrade(self);
        tokio::task::spawn_blocking(move || {
            let started = service.upgrade().map(|service| service.now());
            let scanned = scan_file(&file, &stamp, || service.strong_count() > 0);
            if let (Some(service), Some(started)) = (service.upgrade(), started) {
                if let Scanned::Facts(facts) = &scanned {
                    service.remember(&stamp, *facts, started);
                }
                hold(&service.jobs).remove(&stamp);
            }
            sender.send_replace(Some(scanned));
            drop(permit);
        });
        answer
    }
}

fn running(jobs: &HashMap<Stamp, Answer>, stamp: &Stamp) -> Option<Answer> {
    let answer = jobs.get(stamp)?;
    // A job that panicked leaves a closed channel behind.
    answer.has_changed().is_ok().then(|| answer.clone())
}

fn scan_file(file: &File, stamp: &Stamp, wanted: impl Fn() -> bool) -> Scanned {
    let mut scan = Scan::default();
    let mut chunk = vec![0; CHUNK];
    for number in 1.. {
        match file.read_at(&mut chunk, scan.size) {
            Ok(0) => break,
            Ok(length) => scan.update(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(%error, "a file could not be read to its end");
                return Scanned::Changed;
            }
        }
        if number % CHUNKS_A_LOOK == 0 && !(wanted() && same(file, stamp)) {
            return Scanned::Changed;
        }
    }
    let facts = scan.finish();
    if same(file, stamp) && facts.size == stamp.size {
        Scanned::Facts(facts)
    } else {
        Scanned::Changed
    }
}

fn same(file: &File, stamp: &Stamp) -> bool {
    Stamp::of_file(file).is_ok_and(|now| now == *stamp)
}

/// Reads at most `length` bytes from `offset`, fewer at the end of the file.
pub(crate) fn read_range(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use pretty_assertions::assert_eq;

    use super::*;

    fn line_ending(content: &[u8], chunk: usize) -> LineEnding {
        let mut scan = Scan::default();
        for part in content.chunks(chunk) {
            scan.update(part);
        }
        scan.finish().line_ending
    }

    #[test]
    fn line_endings_are_told_wherever_chunks_are_cut() {
        for chunk in 1..8 {
            assert_eq!(line_ending(b"", chunk), LineEnding::None);
            assert_eq!(line_ending(b"a\rb\r", chunk), LineEnding::None);
            assert_eq!(line_ending(b"a\nb\n", chunk), LineEnding::Lf);
            assert_eq!(line_ending(b"a\r\nb\r\n", chunk), LineEnding::Crlf);
            assert_eq!(line_ending(b"a\r\nb\n", chunk), LineEnding::Mixed);
            assert_eq!(line_ending(b"\n\r\n", chunk), LineEnding::Mixed);
            assert_eq!(line_ending(b"\r\r\n", chunk), LineEnding::Crlf);
        }
    }

    #[test]
    fn facts_do_not_depend_on_chunks() {
        let content = b"\xEF\xBB\xBFx\r\ny";
        let whole = Scan::of(content);
        assert!(whole.bom);
        assert_eq!(whole.sha256, Sha256::of(content));
        let mut scan = Scan::default();
        content.chunks(1).for_each(|part| scan.update(part));
        assert_eq!(scan.finish(), whole);
        assert!(!Scan::of(b"\xEF\xBB").bom);
    }

    #[test]
    fn a_file_that_was_just_changed_is_not_remembered() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("f");
        std::fs::write(&path, "x").expect("written");
        let file = File::open(&path).expect("open");
        let stamp = Stamp::of_file(&file).expect("stamp");
        let facts = Scan::of(b"x");
        let now = Arc::new(AtomicI64::new(Timestamp::now().as_millis()));
        let clock = Arc::clone(&now);
        let clock = Clock::from_fn(move || Timestamp::from_millis(clock.load(Ordering::Relaxed)));
        let revisions = Revisions::new(clock, 1);

        revisions.remember(&stamp, facts, revisions.now());
        assert_eq!(revisions.remembered(&stamp), None);
        now.fetch_sub(3_600_000, Ordering::Relaxed);
        revisions.remember(&stamp, facts, revisions.now());
        assert_eq!(revisions.remembered(&stamp), None, "a ctime in the future");
        now.fetch_add(3_600_000 + 2_500, Ordering::Relaxed);
        revisions.remember(&stamp, facts, revisions.now());
        assert_eq!(revisions.remembered(&stamp), Some(facts));

        std::fs::write(&path, "y").expect("written");
        let changed = Stamp::of_file(&file).expect("stamp");
        assert_eq!(revisions.remembered(&changed), None);
    }

    #[tokio::test]
    async fn those_who_ask_for_the_same_large_file_share_one_job() {
        let file = Arc::new(tempfile::tempfile().expect("file"));
        file.set_len(8 * SNAPSHOT_LIMIT).expect("sparse");
        let stamp = Stamp::of_file(&file).expect("stamp");
        let revisions = Arc::new(Revisions::new(Clock::system(), 1));
        let wait = Duration::from_secs(30);
        let (one, other) = tokio::join!(
            revisions.scan_within(&file, stamp, wait),
            revisions.scan_within(&file, stamp, wait)
        );
        let (Some(Scanned::Facts(one)), Some(Scanned::Facts(other))) = (one, other) else {
            panic!("no facts");
        };
        assert_eq!(one, other);
        assert_eq!(one.size, 8 * SNAPSHOT_LIMIT);
        assert!(hold(&revisions.jobs).is_empty());
    }
}
