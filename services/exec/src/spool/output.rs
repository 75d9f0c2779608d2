//! A command's output: the first bytes in `head`, the last in `tail`, which is written round and round.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use super::{
    create_file,
    state::{Header, StateFile},
};

/// Bytes kept from the start (CONTRACT.md, section 3).
pub(super) const HEAD: u64 = 8 * 1024 * 1024;
/// Bytes kept from the end.
pub(super) const TAIL: u64 = 56 * 1024 * 1024;
/// Raw bytes of one page.
const PAGE: u64 = 131_072;
/// How often a page is read again because the command wrote over it meanwhile.
const READS: usize = 64;
/// File of the first bytes.
pub(super) const HEAD_NAME: &str = "head";
/// File of the last bytes.
pub(super) const TAIL_NAME: &str = "tail";

/// How much of an output is kept, and how much of it is a page at most, in raw bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Kept from the start.
    pub(super) head: u64,
    /// Kept from the end.
    pub(super) tail: u64,
    /// A page, 4 at least: a character fits.
    pub(super) page: u64,
}

impl Layout {
    /// The contract's.
    pub(super) const CONTRACT: Self = Self {
        head: HEAD,
        tail: TAIL,
        page: PAGE,
    };

    /// Where an offset lies in its file, and how many bytes can lie there in one piece.
    const fn place(self, offset: u64) -> (u64, u64) {
        if offset < self.head {
            (offset, self.head - offset)
        } else {
            let place = (offset - self.head) % self.tail;
            (place, self.tail - place)
        }
    }

    /// The file that an offset lies in.
    const fn name(self, offset: u64) -> &'static str {
        if offset < self.head {
            HEAD_NAME
        } else {
            TAIL_NAME
        }
    }
}

/// Output as text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Page {
    /// The text; bytes that are not UTF-8 are U+FFFD.
    pub(crate) text: String,
    /// First raw byte.
    pub(crate) offset: u64,
    /// First raw byte of the next page.
    pub(crate) next_offset: u64,
    /// What is not kept: from, to.
    pub(crate) gap: Option<(u64, u64)>,
}

impl Page {
    /// Nothing, at the end of an output that is kept whole.
    pub(crate) const fn empty(offset: u64) -> Self {
        Self {
            text: String::new(),
            offset,
            next_offset: offset,
            gap: None,
        }
    }
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// The offset is past what was written.
    #[error("the offset is past the output")]
    Beyond,
    /// The spool cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes output. Never fails: what the disk does not take is counted and missing.
#[derive(Debug)]
pub(crate) struct Writer {
    layout: Layout,
    directory: PathBuf,
    state: StateFile,
    head: Option<File>,
    tail: Option<File>,
    total: u64,
    broken: bool,
}

impl Writer {
    pub(super) fn new(layout: Layout, directory: PathBuf, state: StateFile) -> Self {
        Self {
            layout,
            directory,
            state,
            head: None,
            tail: None,
            total: 0,
            broken: false,
        }
    }

    /// Appends bytes, fewer than the layout's tail, and tells how many there are now.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> u64 {
        let until = self.total + bytes.len() as u64;
        let kept = !self.broken && self.keep(bytes, until).map_err(told).is_ok();
        if !kept && !self.broken {
            self.broken = true;
            // Without this note the missing bytes read as zeros; so it is tried again below, with the total.
            let _tried = self.state.write_broken(self.total).map_err(told);
        }
        self.total = until;
        let _tried = self.state.write_total(until).map_err(told);
        until
    }

    /// Whether every byte so far can still be read.
    pub(crate) const fn is_whole(&self) -> bool {
        !self.broken && self.total <= self.layout.head + self.layout.tail
    }

    fn keep(&mut self, bytes: &[u8], until: u64) -> io::Result<()> {
        if until > self.layout.head + self.layout.tail {
            self.state.write_overwriting(until)?;
        }
        let mut at = self.total;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (place, room) = self.layout.place(at);
            let length = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at(length);
            self.file(at)?.write_all_at(now, place)?;
            at += length as u64;
            rest = later;
        }
        Ok(())
    }

    fn file(&mut self, at: u64) -> io::Result<&File> {
        let name = self.layout.name(at);
        let slot = if name == HEAD_NAME {
            &mut self.head
        } else {
            &mut self.tail
        };
        match slot {
            Some(file) => Ok(file),
            None => Ok(slot.insert(create_file(&self.directory.join(name))?)),
        }
    }
}

fn told(error: io::Error) {
    tracing::warn!(%error, "output of a command could not be kept");
}

/// What can be read: everything before `head_end`, and from `tail_start` to `total`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Kept {
    head_end: u64,
    tail_start: u64,
    total: u64,
}

impl Kept {
    fn of(layout: Layout, header: &Header, pruned: bool) -> Self {
        let Layout { head, tail, .. } = layout;
        let total = header.total;
        let written = total.max(header.overwriting);
        let (head_end, tail_start) = match header.broken {
            _ if pruned => (0, total),
            // What was overwritten since cannot be told from what was not, so of the tail nothing counts.
            Some(broken) if broken > head + tail => (head, total),
            Some(broken) => (broken, total),
            None if written <= head + tail => (total, total),
            None => (head, (written - tail).min(total)),
        };
        Self {
            head_end,
            tail_start,
            total,
        }
    }

    fn gap(self) -> Option<(u64, u64)> {
        (self.head_end < self.tail_start).then_some((self.head_end, self.tail_start))
    }

    /// The range to read for a page from `offset`, and whether more bytes may follow it directly.
    fn range(self, layout: Layout, offset: u64) -> (u64, u64) {
        let start = if offset >= self.head_end {
            offset.max(self.tail_start)
        } else {
            offset
        };
        let end = if start < self.head_end {
            self.head_end
        } else {
            self.total
        };
        (start, end.min(start + layout.page))
    }
}

/// Reads a page. The header is read anew first, so the end that it holds was written after all output before it.
pub(super) fn page(
    layout: Layout,
    directory: &Path,
    state: &StateFile,
    header: &mut Header,
    offset: u64,
) -> Result<Page, PageError> {
    for _ in 0..READS {
        *header = state.read_header()?;
        let pruned = header.total > 0 && !directory.join(HEAD_NAME).exists();
        // With the disk full from the start there is no head either, and the header says so.
        let pruned = pruned && header.broken != Some(0);
        let kept = Kept::of(layout, header, pruned);
        if offset > kept.total {
            return Err(PageError::Beyond);
        }
        let (start, end) = kept.range(layout, offset);
        let bytes = match read(layout, directory, start, end) {
            // It was pruned meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let lost = Kept::of(layout, &state.read_header()?, pruned).gap();
        if lost.is_some_and(|(from, to)| from <= start && start < to && start < end) {
            continue;
        }
        // Nothing follows the last byte before the gap, and nothing follows the end.
        let is_final = if end == kept.total {
            header.end.is_some()
        } else {
            end == kept.head_end
        };
        let (text, length) = text(&bytes, is_final);
        return Ok(Page {
            text,
            offset: start,
            next_offset: start + length as u64,
            gap: kept.gap(),
        });
    }
    // The command writes over its own output faster than it is read.
    Err(io::Error::from(io::ErrorKind::ResourceBusy).into())
}

fn read(layout: Layout, directory: &Path, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
    let mut at = start;
    let mut rest = &mut bytes[..];
    while !rest.is_empty() {
        let (place, room) = layout.place(at);
        let length = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let (now, later) = rest.split_at_mut(length);
        File::open(directory.join(layout.name(at)))?.read_exact_at(now, place)?;
        at += length as u64;
        rest = later;
    }
    Ok(bytes)
}

/// Bytes as text, and how many bytes that is: a character that is cut off at the end is left for the next page, unless
/// nothing follows.
fn text(bytes: &[u8], is_final: bool) -> (String, usize) {
    let length = if is_final {
        bytes.len()
    } else {
        bytes.len() - unfinished(bytes)
    };
    (
        String::from_utf8_lossy(&bytes[..length]).into_owned(),
        length,
    )
}

/// How many bytes at the end begin a character that is not complete.
fn unfinished(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|length| {
            let end = &bytes[bytes.len() - length..];
            std::str::from_utf8(end)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

/// After a crash of the machine: what the header counts may never have reached the disk.
pub(super) fn forget_unwritten(
    directory: &Path,
    state: &StateFile,
    header: &mut Header,
) -> io::Result<()> {
    let length = |name| match directory.join(name).metadata() {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    };
    let head = length(HEAD_NAME)?;
    let reachable = if head < HEAD {
        head
    } else {
        HEAD + length(TAIL_NAME)?
    };
    if reachable < header.total.min(HEAD + TAIL) {
        header.total = reachable;
        state.write_total(reachable)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_cut_character_is_held_back_and_only_a_cut_one() {
        for (bytes, held) in [
            (&b"abc"[..], 0),
            (b"", 0),
            (b"a\xE6", 1),
            (b"a\xE6\xBC", 2),
            (b"a\xF0\x9F\x99", 3),
            ("漢".as_bytes(), 0),
            // These can become no character, whatever follows.
            (b"a\xFF", 0),
            (b"a\xBC", 0),
            (b"a\xE0\x80", 0),
        ] {
            assert_eq!(unfinished(bytes), held, "{bytes:?}");
        }
        assert_eq!(text(b"a\xE6\xBC", false), ("a".to_owned(), 1));
        assert_eq!(text(b"a\xE6\xBC", true), ("a\u{FFFD}".to_owned(), 3));
    }

    #[test]
    fn ranges_leave_the_gap_out() {
        let header = Header {
            total: HEAD + TAIL + 100,
            overwriting: HEAD + TAIL + 100,
            ..Header::default()
        };
        let kept = Kept::of(Layout::CONTRACT, &header, false);
        assert_eq!(kept.gap(), Some((HEAD, HEAD + 100)));
        assert_eq!(kept.range(Layout::CONTRACT, HEAD - 5), (HEAD - 5, HEAD));
        assert_eq!(
            kept.range(Layout::CONTRACT, HEAD),
            (HEAD + 100, HEAD + 100 + PAGE)
        );
        assert_eq!(
            kept.range(Layout::CONTRACT, header.total),
            (header.total, header.total)
        );
        let whole = Header {
            total: HEAD + TAIL,
            ..Header::default()
        };
        assert_eq!(Kept::of(Layout::CONTRACT, &whole, false).gap(), None);
        assert_eq!(
            Kept::of(Layout::CONTRACT, &whole, true).gap(),
            Some((0, HEAD + TAIL)),
            "pruned"
        );
        let broken = Header {
            broken: Some(10),
            total: 30,
            ..Header::default()
        };
        assert_eq!(
            Kept::of(Layout::CONTRACT, &broken, false).gap(),
            Some((10, 30))
        );
        assert_eq!(
            Kept::of(Layout::CONTRACT, &broken, false).range(Layout::CONTRACT, 0),
            (0, 10)
        );
    }
}
