//! Pages of a file, with the facts of the whole file.
//!
//! Page and facts describe the same state of the file. A small file is read whole at once. Of a large file the page is
//! read alone; its facts are remembered, or gathered by a job within [`crate::Config::effect_wait`], for giants within
//! [`crate::Config::revision_wait`]. Where that is not enough, or while the file keeps changing, the page is answered
//! without them (`sha256` empty, `line_ending` unspecified) and a later page has them.

use std::{fs::File, io, sync::Arc, time::Instant};

use postern_kit::{Failure, root};
use postern_proto::filesystem::v1::{Instruction, LineEnding, ReadRequest, ReadResponse};
use postern_types::ErrorCode;

use crate::{
    page::{PAGE_LIMIT, Window},
    project::Project,
    refusal,
    revision::{BOM, Facts, SNAPSHOT_LIMIT, Scan, Scanned, Stamp, read_range},
};

/// How often a file that changes while it is read is read anew.
const ATTEMPTS: usize = 3;
/// The root's files that tell agents how to work in the project.
const INSTRUCTIONS: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// What one look at a file gave.
#[derive(Debug)]
enum Look {
    /// The answer.
    Whole(ReadResponse),
    /// The page, without the facts of a file that is hashed by a job.
    PageOnly(ReadResponse, Arc<File>, Stamp),
    /// The file changed meanwhile.
    Changed,
}

impl Project {
    pub(crate) async fn read(
        self: &Arc<Self>,
        request: ReadRequest,
    ) -> Result<ReadResponse, Failure> {
        let limit = match request.limit {
            0 => PAGE_LIMIT,
            limit @ 1..=PAGE_LIMIT => limit,
            _ => {
                return Err(refusal::invalid(
                    "/limit",
                    "maximum",
                    "limit is at most 131072.",
                ));
            }
        };
        let window = Window::new(request.offset, limit);
        let request = Arc::new(request);
        let mut page_only = None;
        let begun = Instant::now();
        for _ in 0..ATTEMPTS {
            let (project, wanted) = (Arc::clone(self), Arc::clone(&request));
            let look = self
                .jobs
                .run(move || project.look(&wanted, window))
                .await??;
            let (response, file, stamp) = match look {
                Look::Whole(response) => return Ok(response),
                Look::PageOnly(response, file, stamp) => (response, file, stamp),
                Look::Changed => continue,
            };
            let patience = if stamp.size > self.bounds.giant {
                self.bounds.revision_wait
            } else {
                self.bounds.effect_wait
            };
            let wait = patience.saturating_sub(begun.elapsed());
            match self.revisions.scan_within(&file, stamp, wait).await {
                Some(Scanned::Facts(facts)) => return Ok(with_facts(response, &facts)),
                Some(Scanned::Changed) => page_only = Some(response),
                None => return Ok(response),
            }
        }
        page_only.ok_or_else(|| refusal::busy("The file keeps changing. Try again."))
    }

    /// The instruction files that exist and are UTF-8 text of the project. One that is there and cannot be read now is the
    /// call's failure: an agent that is not told of it would work against the project's rules.
    pub(crate) async fn instructions(self: &Arc<Self>) -> Result<Vec<Instruction>, Failure> {
        let mut instructions = Vec::new();
        for name in INSTRUCTIONS {
            let request = ReadRequest {
                path: name.to_owned(),
                offset: 0,
                limit: PAGE_LIMIT,
                place: None,
            };
            match self.read(request).await {
                Ok(page) => instructions.push(Instruction {
                    path: page.path,
                    sha256: page.sha256,
                    size: page.size,
                    content: page.content,
                    resolved_path: page.resolved_path,
                }),
                Err(failure) if is_no_instruction(failure.code) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(instructions)
    }

    fn look(&self, request: &ReadRequest, window: Window) -> Result<Look, Failure> {
        let found = self.find(&request.path, request.place.as_deref())?;
        let file = root::open_file(&found)?;
        let shown = found.place.shown.as_str();
        let started = self.revisions.now();
        let failed = |error: io::Error| refusal::system(&error, shown);
        let stamp = Stamp::of_file(&file).map_err(failed)?;
        let response = |page: &str, size: u64, bom: bool| {
            let bytes = page.len() as u64;
            let end = request.offset + bytes;
            ReadResponse {
                path: shown.to_owned(),
                content: page.to_owned(),
                offset: request.offset,
                bytes,
                next_offset: (end < size).then_some(end),
                size,
                sha256: String::new(),
                line_ending: LineEnding::Unspecified.into(),
                bom,
                resolved_path: found.place.resolved(),
            }
        };
        let remembered = self.revisions.remembered(&stamp);
        if remembered.is_none() && stamp.size <= SNAPSHOT_LIMIT {
            let content = read_range(&file, 0, SNAPSHOT_LIMIT as usize + 1).map_err(failed)?;
            if content.len() as u64 > SNAPSHOT_LIMIT {
                return Ok(Look::Changed);
            }
            let facts = Scan::of(&content);
            if Stamp::of_file(&file).map_err(failed)? == stamp {
                self.revisions.remember(&stamp, facts, started);
            }
            within(request.offset, facts.size)?;
            let page = window.cut(window.of(&content), shown)?;
            let response = response(page, facts.size, facts.bom);
            return Ok(Look::Whole(with_facts(response, &facts)));
        }
        within(request.offset, stamp.size)?;
        let bytes = read_range(&file, window.start, window.length).map_err(failed)?;
        let bom = read_range(&file, 0, BOM.len()).map_err(failed)? == BOM;
        if Stamp::of_file(&file).map_err(failed)? != stamp {
            return Ok(Look::Changed);
        }
        let response = response(window.cut(&bytes, shown)?, stamp.size, bom);
        Ok(match remembered {
            Some(facts) => Look::Whole(with_facts(response, &facts)),
            None => Look::PageOnly(response, Arc::new(file), stamp),
        })
    }
}

/// Whether a failure says that there are no instructions under this name, and will be none by asking again.
const fn is_no_instruction(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotFound
            | ErrorCode::NotAFile
            | ErrorCode::NotUtf8
            | ErrorCode::PathEscapesProject
    )
}

fn within(offset: u64, size: u64) -> Result<(), Failure> {
    if offset <= size {
        return Ok(());
    }
    let message = format!("offset {offset} is past the end of the file, which has {size} bytes.");
    Err(refusal::invalid("/offset", "maximum", message).with("size", size))
}

fn with_facts(response: ReadResponse, facts: &Facts) -> ReadResponse {
    ReadResponse {
        sha256: facts.sha256.to_string(),
        line_ending: facts.line_ending.into(),
        bom: facts.bom,
        ..response
    }
}
