//! What must hold of the pages of any output: they join to its exact bytes, with U+FFFD only for what is not UTF-8, and what
//! is not kept is told exactly. Compiled for the fuzz target, and for the tests.

#![expect(clippy::expect_used, reason = "what is expected is what is checked")]

use std::{fs, path::Path};

use super::{
    End, EndKind, Header, Meta, PageError, StateFile,
    output::{self, Layout, Page, TAIL_NAME, Writer},
};

/// What the bytes are taken for: six that choose sizes and the end, then the output.
struct Script<'a> {
    layout: Layout,
    /// Bytes of one append.
    append: usize,
    /// Whether the disk takes nothing behind the head.
    broken: bool,
    ended: bool,
    /// Where pages are asked for out of order.
    probe: u64,
    output: &'a [u8],
}

impl<'a> Script<'a> {
    fn read(data: &'a [u8]) -> Option<Self> {
        let ([head, tail, page, append, flags, probe], output) = data.split_first_chunk()?;
        let layout = Layout {
            head: 1 + u64::from(*head),
            tail: 2 + u64::from(*tail),
            page: 4 + u64::from(*page % 64),
        };
        Some(Self {
            layout,
            append: 1 + usize::from(*append) % usize::from(tail.saturating_add(1)),
            broken: flags & 1 != 0,
            ended: flags & 2 != 0,
            probe: u64::from(*probe),
            output,
        })
    }

    /// The two ranges that can be read.
    fn kept(&self) -> [(u64, u64); 2] {
        let Layout { head, tail, .. } = self.layout;
        let total = self.output.len() as u64;
        let append = self.append as u64;
        if self.broken && total > head {
            // The append that would have been the first to need the tail is not kept at all.
            return [(0, head / append * append), (total, total)];
        }
        if total <= head + tail {
            return [(0, total), (total, total)];
        }
        [(0, head), (total - tail, total)]
    }
}

/// One command's spool directory.
struct Spooled<'a> {
    script: Script<'a>,
    directory: &'a Path,
    state: StateFile,
}

/// Writes an output as the bytes say and reads it in pages. The folder is empty before and after.
///
/// # Panics
/// When something does not hold.
pub fn check_pages(folder: &Path, data: &[u8]) {
    let Some(script) = Script::read(data) else {
        return;
    };
    let directory = folder.join("command");
    super::make_directory(&directory).expect("spool");
    let state = StateFile::create(&directory).expect("spool");
    let spooled = Spooled {
        script,
        directory: &directory,
        state,
    };
    spooled.write();
    spooled.walk();
    spooled.probe();
    fs::remove_dir_all(&directory).expect("spool");
}

impl Spooled<'_> {
    fn write(&self) {
        let Script {
            layout,
            append,
            broken,
            ended,
            output,
            ..
        } = self.script;
        let meta = Meta {
            session_id: "session".to_owned(),
            command: String::new(),
            command_cut: false,
            cwd: String::new(),
            started_at_ms: 0,
            timeout_ms: 0,
            boot: String::new(),
            worker: String::new(),
        };
        self.state.write(&meta, &Header::default()).expect("spool");
        if broken {
            fs::create_dir(self.directory.join(TAIL_NAME)).expect("spool");
        }
        let mut writer = Writer::new(layout, self.directory.to_owned(), self.state.clone());
        let mut total = 0;
        for part in output.chunks(append) {
            total += part.len() as u64;
            assert_eq!(writer.append(part), total);
        }
        if ended {
            let end = End {
                kind: EndKind::Exited,
                exit_code: Some(0),
                signal: None,
                survivors: 0,
                finished_at_ms: 0,
            };
            self.state.settle_end(&end).expect("spool");
        }
    }

    /// Page after page from the start to the end.
    fn walk(&self) {
        let [(start, head_end), (tail_start, total)] = self.script.kept();
        let offset = self.read_range(start, head_end, tail_start == total);
        // What follows a character that is cut off is not there yet.
        if offset == head_end || tail_start > head_end {
            let offset = self.read_range(tail_start, total, true);
            assert!(total - offset < 4);
        }
        let beyond = self.page(total + 1);
        assert!(matches!(beyond, Err(PageError::Beyond)));
    }

    /// Reads one range in pages and compares them, joined, with what was written.
    fn read_range(&self, start: u64, end: u64, is_last: bool) -> u64 {
        let mut joined = String::new();
        let mut offset = start;
        while offset < end {
            let page = self.checked(offset);
            assert_eq!(page.offset, offset);
            if page.next_offset == offset {
                break;
            }
            joined.push_str(&page.text);
            offset = page.next_offset;
        }
        assert_eq!(joined, self.lossy(start, offset));
        let held_back = end - offset;
        assert!(held_back < 4);
        if held_back > 0 {
            assert!(is_last && !self.script.ended, "something is held back");
            let rest = &self.script.output[self.index(offset)..self.index(end)];
            let error = std::str::from_utf8(rest).expect_err("cut off");
            assert_eq!((error.valid_up_to(), error.error_len()), (0, None));
        }
        offset
    }

    /// Pages from offsets that no page ended at.
    fn probe(&self) {
        let total = self.script.output.len() as u64;
        let [(_, head_end), (tail_start, _)] = self.script.kept();
        for number in 0..8 {
            let offset = (self.script.probe * (2 * number + 1)) % (total + 1);
            let page = self.checked(offset);
            let in_gap = head_end <= offset && offset < tail_start;
            assert_eq!(page.offset, if in_gap { tail_start } else { offset });
        }
    }

    /// A page that is what it says it is.
    fn checked(&self, offset: u64) -> Page {
        let [(_, head_end), (tail_start, total)] = self.script.kept();
        let page = self.page(offset).expect("spool");
        assert!(page.offset <= page.next_offset && page.next_offset <= total);
        assert!(page.next_offset - page.offset <= self.script.layout.page);
        assert_eq!(page.text, self.lossy(page.offset, page.next_offset));
        let gap = (head_end < tail_start).then_some((head_end, tail_start));
        assert_eq!(page.gap, gap);
        page
    }

    fn page(&self, offset: u64) -> Result<Page, PageError> {
        let layout = self.script.layout;
        let mut header = Header::default();
        output::page(layout, self.directory, &self.state, &mut header, offset)
    }

    fn lossy(&self, from: u64, to: u64) -> String {
        let bytes = &self.script.output[self.index(from)..self.index(to)];
        String::from_utf8_lossy(bytes).into_owned()
    }

    fn index(&self, offset: u64) -> usize {
        usize::try_from(offset).expect("spool")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kept_output_is_paged() {
        let folder = tempfile::tempdir().expect("folder");
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/spool");
        let mut count = 0;
        for file in fs::read_dir(corpus).expect("corpus") {
            let data = fs::read(file.expect("file").path()).expect("bytes");
            check_pages(folder.path(), &data);
            count += 1;
        }
        assert!(count > 50, "{count} outputs");
    }

    proptest! {
        #[test]
        fn pages_join_to_any_output(
            sizes in any::<[u8; 6]>(),
            output in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..800),
                "(?s).{0,300}".prop_map(String::into_bytes),
            ],
        ) {
            let folder = tempfile::tempdir().expect("folder");
            let data = [&sizes[..], &output].concat();
            check_pages(folder.path(), &data);
        }
    }
}
