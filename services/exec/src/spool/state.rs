//! A claim's `state` file: a header of fixed layout that is rewritten in place, and the facts of the claim behind it.
//!
//! Each part of the header is written by one `pwrite` within one page, so that a reader sees it before or after.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
};

use postern_types::Timestamp;
use serde::{Deserialize, Serialize};

use super::{create_file, locked::Locked};

const NAME: &str = "state";
const MAGIC: &[u8; 8] = b"PSPOOL01";
const HEADER_BYTES: usize = 64;
const LAUNCHED_AT: u64 = 8;
const END_AT: u64 = 9;
const TOTAL_AT: u64 = 32;
const OVERWRITING_AT: u64 = 40;
const BROKEN_AT: u64 = 48;
/// Bytes of the facts behind the header: a session id, a path of at most 4096 bytes and the beginning of a command, escaped.
const META_BYTES: u64 = 64 * 1024;

/// What was settled when a receipt was claimed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    /// Session that owns the command.
    pub(crate) session_id: String,
    /// The beginning of its shell text, for people; nothing is run by it. Absent in what earlier versions claimed.
    #[serde(default)]
    pub(crate) command: String,
    /// Whether the text goes on.
    #[serde(default)]
    pub(crate) command_cut: bool,
    /// Directory relative to the root.
    pub(crate) cwd: String,
    /// When it was claimed.
    pub(crate) started_at_ms: i64,
    /// Time limit.
    pub(crate) timeout_ms: u32,
    /// Boot of the machine.
    pub(crate) boot: String,
    /// Worker that claimed it.
    pub(crate) worker: String,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EndKind {
    /// The shell ended by itself.
    Exited,
    /// It was stopped.
    Stopped,
    /// It reached its time limit.
    TimedOut,
    /// Its worker died.
    Lost,
    /// Nothing was run, and nothing will be.
    NeverStarted,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct End {
    /// How.
    pub(crate) kind: EndKind,
    /// Exit code, when the shell ended by itself.
    pub(crate) exit_code: Option<i32>,
    /// Number of the signal that ended the shell.
    pub(crate) signal: Option<i32>,
    /// Processes left.
    pub(crate) survivors: u32,
    /// When.
    pub(crate) finished_at_ms: i64,
}

/// What changes while a command runs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Header {
    /// Whether the shell was started.
    pub(crate) launched: bool,
    /// The end, when it has ended.
    pub(crate) end: Option<End>,
    /// Raw bytes written.
    pub(crate) total: u64,
    /// Raw bytes written once the write that is under way is done; 0 before the oldest output is first overwritten.
    pub(crate) overwriting: u64,
    /// Raw bytes written when the disk would take no more.
    pub(crate) broken: Option<u64>,
}

/// The file; clones are the same handle.
#[derive(Clone, Debug)]
pub(crate) struct StateFile(Arc<File>);

impl StateFile {
    pub(super) fn create(directory: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(create_file(&directory.join(NAME))?)))
    }

    pub(super) fn write(&self, meta: &Meta, header: &Header) -> io::Result<()> {
        let mut bytes = header.encode().to_vec();
        serde_json::to_writer(&mut bytes, meta)?;
        self.0.write_all_at(&bytes, 0)
    }

    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(directory.join(NAME))?;
        Ok(Self(Arc::new(file)))
    }

    pub(super) fn read(&self) -> io::Result<(Meta, Header)> {
        let mut bytes = Vec::new();
        let mut file = &*self.0;
        file.rewind()?;
        file.take(META_BYTES).read_to_end(&mut bytes)?;
        let (header, meta) = bytes
            .split_first_chunk()
            .ok_or(io::ErrorKind::InvalidData)?;
        Ok((serde_json::from_slice(meta)?, Header::decode(header)?))
    }

    pub(super) fn read_header(&self) -> io::Result<Header> {
        let mut bytes = [0; HEADER_BYTES];
        self.0.read_exact_at(&mut bytes, 0)?;
        Header::decode(&bytes)
    }

    pub(super) fn write_launched(&self) -> io::Result<()> {
        self.0.write_all_at(&[1], LAUNCHED_AT)
    }

    /// Notes an end, unless another was noted before: a worker that was declared dead may come back with one of its own, and what
    /// was told stays. The same end may be noted again, with fewer survivors. Tells the one that stands.
    pub(super) fn settle_end(&self, end: &End) -> io::Result<End> {
        let _lock = Locked::take(&self.0)?;
        if let Some(told) = self.read_header()?.end
            && told.kind != end.kind
        {
            return Ok(told);
        }
        self.0.write_all_at(&end.encode(), END_AT)?;
        Ok(*end)
    }

    pub(super) fn write_total(&self, total: u64) -> io::Result<()> {
        self.0.write_all_at(&total.to_le_bytes(), TOTAL_AT)
    }

    pub(super) fn write_overwriting(&self, overwriting: u64) -> io::Result<()> {
        self.0
            .write_all_at(&overwriting.to_le_bytes(), OVERWRITING_AT)
    }

    pub(super) fn write_broken(&self, broken: u64) -> io::Result<()> {
        self.0.write_all_at(&(broken + 1).to_le_bytes(), BROKEN_AT)
    }
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = u8::from(self.launched);
        if let Some(end) = &self.end {
            bytes[9..32].copy_from_slice(&end.encode());
        }
        bytes[32..40].copy_from_slice(&self.total.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.overwriting.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.broken.map_or(0, |at| at + 1).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> io::Result<Self> {
        if &bytes[..8] != MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self {
            launched: bytes[8] != 0,
            end: End::decode(part(bytes, 9))?,
            total: u64::from_le_bytes(part(bytes, 32)),
            overwriting: u64::from_le_bytes(part(bytes, 40)),
            broken: u64::from_le_bytes(part(bytes, 48)).checked_sub(1),
        })
    }
}

impl End {
    /// How it ended is not known.
    pub(crate) fn lost(now: Timestamp) -> Self {
        Self::without_status(EndKind::Lost, now)
    }

    /// An end without a word from the shell.
    pub(crate) fn without_status(kind: EndKind, now: Timestamp) -> Self {
        Self {
            kind,
            exit_code: None,
            signal: None,
            survivors: 0,
            finished_at_ms: now.as_millis(),
        }
    }
}

/// Layout: kind, flags (1 exit code, 2 signal), one byte unused, exit code or signal, survivors, eight bytes of time, and
/// four unused.
const END_BYTES: usize = 23;

impl End {
    fn encode(&self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[0] = match self.kind {
            EndKind::Exited => 1,
            EndKind::Stopped => 2,
            EndKind::TimedOut => 3,
            EndKind::Lost => 4,
            EndKind::NeverStarted => 5,
        };
        bytes[1] = u8::from(self.exit_code.is_some()) | u8::from(self.signal.is_some()) << 1;
        let number = self.exit_code.or(self.signal).unwrap_or(0);
        bytes[3..7].copy_from_slice(&number.to_le_bytes());
        bytes[7..11].copy_from_slice(&self.survivors.to_le_bytes());
        bytes[11..19].copy_from_slice(&self.finished_at_ms.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; END_BYTES]) -> io::Result<Option<Self>> {
        let kind = match bytes[0] {
            0 => return Ok(None),
            1 => EndKind::Exited,
            2 => EndKind::Stopped,
            3 => EndKind::TimedOut,
            4 => EndKind::Lost,
            5 => EndKind::NeverStarted,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let number = i32::from_le_bytes(part(&bytes, 3));
        Ok(Some(Self {
            kind,
            exit_code: (bytes[1] & 1 != 0).then_some(number),
            signal: (bytes[1] & 2 != 0).then_some(number),
            survivors: u32::from_le_bytes(part(&bytes, 7)),
            finished_at_ms: i64::from_le_bytes(part(&bytes, 11)),
        }))
    }
}

/// `N` bytes from `at`, which the layouts above always have.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}
