//! Images and documents (CONTRACT.md, section 3, `workspace_image` and `workspace_document`).
//!
//! Files like these are made to break the programs that decode them, so the service decodes none: a short-lived process does
//! that confines itself first, and whatever becomes of it, one call gets a clear answer. The file is found and opened here,
//! beneath the root, and handed over as standard input; the process never opens a path.
//!
//! What is answered and the file's revision describe the same state of the file.

mod answer;
mod bidi;
mod confine;
mod document;
mod failure;
mod inherited;
mod lines;
mod picture;
mod process;
mod worker;

use std::{
    ffi::OsString,
    fs::File,
    sync::Arc,
    time::{Duration, Instant},
};

use postern_kit::{Failure, root};
use postern_proto::filesystem::v1::{
    DocumentRequest, DocumentResponse, ImageRequest, ImageResponse,
};
use postern_types::Sha256;

use crate::{
    Config,
    jobs::Jobs,
    project::Project,
    refusal,
    revision::{Facts, SNAPSHOT_LIMIT, Scan, Stamp, read_range},
};

use self::answer::Answer;

pub use worker::decode_main;

/// Calls that wait for a decoding process beside those that have one.
const WAITING: usize = 16;
/// How long after its begin a call looks at a file again that changed meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time of a call beside waiting for a decoding process and having one.
const BESIDE: Duration = Duration::from_secs(1);
/// What of it is kept for what comes after the last decoding process.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// Time of one call, from its begin to its answer.
fn call_time(bounds: &Config) -> Duration {
    bounds.decode_wait + bounds.decode_time + BESIDE
}

/// Time for a decoding process that is asked for when so much of a call's time is gone; it may have to be waited for.
fn decode_time(bounds: &Config, gone: Duration) -> Duration {
    call_time(bounds)
        .saturating_sub(gone + bounds.decode_wait + AFTERWARDS)
        .min(bounds.decode_time)
}

/// What is wanted of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Task {
    Picture,
    /// A page, counted from 1.
    Document {
        page: u32,
    },
}

impl Task {
    /// As a decoding process is told.
    fn arguments(self) -> Vec<OsString> {
        match self {
            Self::Picture => vec!["image".into()],
            Self::Document { page } => vec!["document".into(), page.to_string().into()],
        }
    }

    fn from_arguments(args: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut args = args.into_iter();
        let task = match args.next()?.to_str()? {
            "image" => Self::Picture,
            "document" => Self::Document {
                page: args.next()?.to_str()?.parse().ok()?,
            },
            _ => return None,
        };
        args.next().is_none().then_some(task)
    }

    /// Largest file, in bytes.
    const fn file_limit(self) -> usize {
        match self {
            Self::Picture => picture::FILE_LIMIT,
            Self::Document { .. } => document::FILE_LIMIT,
        }
    }
}

/// Starts decoding processes, so many at once.
#[derive(Debug)]
pub(crate) struct Decoders(Jobs);

impl Decoders {
    pub(crate) fn new(bounds: &Config) -> Self {
        Self(Jobs::new(bounds.decoders, WAITING))
    }
}

/// A file that is decoded, as it was when it was opened.
#[derive(Debug)]
struct Opened {
    file: Arc<File>,
    stamp: Stamp,
    /// What is known of it already.
    facts: Option<Facts>,
    shown: String,
    resolved: Option<String>,
}

/// What came of it.
#[derive(Debug)]
struct Decoded {
    path: String,
    resolved_path: Option<String>,
    sha256: Sha256,
    answer: Answer,
}

impl Project {
    pub(crate) async fn image(
        self: &Arc<Self>,
        request: ImageRequest,
    ) -> Result<ImageResponse, Failure> {
        let decoded = self
            .decode(request.path, request.place, Task::Picture)
            .await?;
        let Answer::Picture(picture, data) = decoded.answer else {
            return Err(refusal::internal());
        };
        Ok(ImageResponse {
            path: decoded.path,
            resolved_path: decoded.resolved_path,
            mime_type: picture.format.mime_type().to_owned(),
            width: picture.width,
            height: picture.height,
            original_width: picture.original_width,
            original_height: picture.original_height,
            original_mime_type: picture.original_format.mime_type().to_owned(),
            scaled: (picture.width, picture.height)
                != (picture.original_width, picture.original_height),
            sha256: decoded.sha256.to_string(),
            data: data.into(),
        })
    }

    pub(crate) async fn document(
        self: &Arc<Self>,
        request: DocumentRequest,
    ) -> Result<DocumentResponse, Failure> {
        let page = request.page.max(1);
        let decoded = self
            .decode(request.path, request.place, Task::Document { page })
            .await?;
        let Answer::Page { page_count, text } = decoded.answer else {
            return Err(refusal::internal());
        };
        Ok(DocumentResponse {
            path: decoded.path,
            resolved_path: decoded.resolved_path,
            page,
            page_count,
            text,
            sha256: decoded.sha256.to_string(),
        })
    }

    /// Within a time that is shorter than its caller's, whatever the file does.
    async fn decode(
        self: &Arc<Self>,
        path: String,
        place: Option<String>,
        task: Task,
    ) -> Result<Decoded, Failure> {
        if self.bounds.decoder.is_empty() {
            return Err(failure::no_decoder());
        }
        tokio::time::timeout(
            call_time(&self.bounds),
            self.decode_unchanged(path, place, task),
        )
        .await
        .unwrap_or_else(|_| Err(refusal::busy("Reading the file took too long. Try again.")))
    }

    async fn decode_unchanged(
        self: &Arc<Self>,
        path: String,
        place: Option<String>,
        task: Task,
    ) -> Result<Decoded, Failure> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let (project, wanted, place) = (Arc::clone(self), path.clone(), place.clone());
            let opened = self
                .jobs
                .run(move || project.open_media(&wanted, place.as_deref(), task))
                .await??;
            let time = decode_time(&self.bounds, begun.elapsed());
            let (answer, facts) =
                tokio::join!(self.answer(&opened, task, time), self.facts(&opened));
            let (Some(answer), Some(facts)) = (answer?, facts?) else {
                continue;
            };
            let answer = match answer {
                Ok(Answer::Refused(refusal)) => {
                    return Err(failure::of_refusal(refusal, task, &opened.shown));
                }
                Ok(answer) => answer,
                Err(error) => {
                    return Err(failure::of_process(&error, task, time, &opened.shown));
                }
            };
            return Ok(Decoded {
                path: opened.shown,
                resolved_path: opened.resolved,
                sha256: facts.sha256,
                answer,
            });
        }
        Err(refusal::busy("The file keeps changing. Try again."))
    }

    fn open_media(&self, path: &str, place: Option<&str>, task: Task) -> Result<Opened, Failure> {
        let found = self.find(path, place)?;
        let file = root::open_file(&found)?;
        let shown = found.place.shown.as_str();
        let failed = |error: std::io::Error| refusal::system(&error, shown);
        let started = self.revisions.now();
        let stamp = Stamp::of_file(&file).map_err(failed)?;
        if stamp.size > task.file_limit() as u64 {
            return Err(failure::too_many_bytes(task, shown).with("size", stamp.size));
        }
        let mut facts = self.revisions.remembered(&stamp);
        if facts.is_none() && stamp.size <= SNAPSHOT_LIMIT {
            let content = read_range(&file, 0, SNAPSHOT_LIMIT as usize + 1).map_err(failed)?;
            let scanned = Scan::of(&content);
            self.revisions.remember(&stamp, scanned, started);
            facts = Some(scanned);
        }
        Ok(Opened {
            file: Arc::new(file),
            stamp,
            facts,
            resolved: found.place.resolved(),
            shown: shown.to_owned(),
        })
    }

    /// What a decoding process says; none when the file changed until then.
    async fn answer(
        &self,
        opened: &Opened,
        task: Task,
        time: Duration,
    ) -> Result<Option<Result<Answer, process::Error>>, Failure> {
        let (file, stamp) = (Arc::clone(&opened.file), opened.stamp);
        let program = self.bounds.decoder.clone();
        let decode = move || {
            let answer = process::decode(&program, &file, task, time);
            Stamp::of_file(&file)
                .is_ok_and(|now| now == stamp)
                .then_some(answer)
        };
        self.decoders
            .0
            .run_within(self.bounds.decode_wait, decode)
            .await
    }

    /// The file's revision; none when it changed.
    async fn facts(&self, opened: &Opened) -> Result<Option<Facts>, Failure> {
        match opened.facts {
            Some(facts) => Ok(Some(facts)),
            None => self.revision(&opened.file, opened.stamp).await,
        }
    }
}

#[cfg(test)]
mod tests;
