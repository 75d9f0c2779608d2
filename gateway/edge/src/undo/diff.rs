//! What receipts and sessions changed, as diffs: for people in parts, and as one patch that `git apply` takes.

use postern_kit::transport::{LONG_DEADLINE, within};
use postern_proto::{filesystem::v1::BeforeRequest, ledger::v1::Receipt};
use postern_types::{ErrorCode, Sha256};
use serde::Serialize;

use super::{
    FileChange, Refused, Undo,
    patch::{self, Content, Form},
    plan, refused,
};
use crate::clients::long_hop;

/// Largest content on one side of a diff, in bytes: two of them and what is written are held at a time.
const SIDE_BYTES: usize = 16 * 1024 * 1024;
/// Largest diff of one file that is told in parts, in bytes.
const FILE_BYTES: usize = 1024 * 1024;
/// Largest sum of such diffs.
const SHOWN_BYTES: usize = 8 * 1024 * 1024;
/// Largest patch.
const PATCH_BYTES: usize = 64 * 1024 * 1024;
/// How a line of a patch begins that names a file which is not in it.
const LEFT_OUT: &str = "# left out: ";
/// Permission bits of a file that has been made, as far as they are told.
const NEW_FILE_MODE: u32 = 0o644;

/// The changes of a receipt or a session, all in all.
#[derive(Debug)]
pub(crate) struct Net {
    files: Vec<FileChange>,
    notes: Vec<String>,
}

/// A diff in parts.
#[derive(Debug, Serialize)]
pub(crate) struct Diff {
    pub(crate) files: Vec<FileDiff>,
    /// What the diffs do not tell.
    pub(crate) notes: Vec<String>,
}

/// A diff as one patch.
#[derive(Debug)]
pub(crate) struct Patch {
    /// As `git apply` takes it.
    pub(crate) text: Vec<u8>,
    /// How many files are not in it.
    pub(crate) left_out: usize,
}

/// The diff of one file.
#[derive(Debug, Serialize)]
pub(crate) struct FileDiff {
    pub(crate) path: String,
    pub(crate) change: &'static str,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
    pub(crate) binary: bool,
    /// Absent when the content is binary, not kept, or too large to be shown.
    pub(crate) diff: Option<String>,
}

/// The two sides of one file.
struct Sides {
    before: Option<Content>,
    after: Option<Content>,
}

/// Why a side is not there.
enum Missing {
    NotKept,
    TooLarge,
}

impl Undo {
    /// What one receipt changed.
    pub(crate) fn net_of_receipt(receipt: &Receipt) -> Result<Net, Refused> {
        Ok(Net {
            files: plan::changes_of(receipt)?,
            notes: Vec::new(),
        })
    }

    /// What a session changed and what of it is not undone.
    pub(crate) async fn net_of_session(&self, session_id: &str) -> Result<Net, Refused> {
        let history = self.history_of(session_id).await?;
        self.demand_session(session_id, &history).await?;
        let broken = history.files.iter().filter(|file| file.broken.is_some());
        let notes = broken.map(|file| {
            let path = file.net.path.escape_debug();
            format!("{path}: somebody else changed it between two changes of the session; their changes are in this diff too.")
        });
        Ok(Net {
            notes: notes.collect(),
            files: history.files.into_iter().map(|file| file.net).collect(),
        })
    }

    /// The changes in parts.
    pub(crate) async fn diff(&self, net: Net) -> Result<Diff, Refused> {
        let _turn = self.0.diffs.lock().await;
        let mut diff = Diff {
            files: Vec::with_capacity(net.files.len()),
            notes: net.notes,
        };
        let mut room = SHOWN_BYTES;
        for file in net.files {
            let (shown, note) = self.file_diff(file, &mut room).await?;
            diff.files.push(shown);
            diff.notes.extend(note);
        }
        Ok(diff)
    }

    /// The changes as one patch. What cannot be in it is named in its first lines, which are no part of a patch for git, and the
    /// rest is there.
    pub(crate) async fn patch(&self, net: Net) -> Result<Patch, Refused> {
        let _turn = self.0.diffs.lock().await;
        let (mut whole, mut left_out) = (Vec::new(), Vec::new());
        for file in &net.files {
            let why = match self.sides(file).await? {
                Ok(sides) => {
                    let written = write(file.path.clone(), sides, Form::Whole).await?.text;
                    if whole.len() + written.len() <= PATCH_BYTES {
                        whole.extend(written);
                        continue;
                    }
                    Missing::TooLarge
                }
                Err(why) => why,
            };
            let path = file.path.escape_debug();
            left_out.push(format!("{LEFT_OUT}{path}: {}", why.told()));
        }
        let notes = net.notes.iter().map(|note| format!("# {note}"));
        let mut text = left_out
            .iter()
            .cloned()
            .chain(notes)
            .fold(String::new(), |text, line| text + &line + "\n")
            .into_bytes();
        text.append(&mut whole);
        Ok(Patch {
            text,
            left_out: left_out.len(),
        })
    }

    async fn file_diff(
        &self,
        file: FileChange,
        room: &mut usize,
    ) -> Result<(FileDiff, Option<String>), Refused> {
        let path = file.path.escape_debug().to_string();
        let (mut binary, mut shown, mut note) = (false, None, None);
        match self.sides(&file).await? {
            Ok(sides) => {
                let written = write(file.path.clone(), sides, Form::Shown).await?;
                binary = written.is_binary;
                if written.text.len() > FILE_BYTES.min(*room) {
                    note = Some(format!("{path}: its diff is too large to be shown."));
                } else if !binary {
                    *room -= written.text.len();
                    shown = Some(String::from_utf8_lossy(&written.text).into_owned());
                }
            }
            Err(Missing::NotKept) => {
                note = Some(format!(
                    "{path}: what it was, or what was made of it, is not kept."
                ));
            }
            Err(Missing::TooLarge) => note = Some(format!("{path}: it is too large to be shown.")),
        }
        let change = match (&file.before, &file.after) {
            (None, _) => "created",
            (_, None) => "deleted",
            _ => "changed",
        };
        let diff = FileDiff {
            path: file.path,
            change,
            before: file.before,
            after: file.after,
            binary,
            diff: shown,
        };
        Ok((diff, note))
    }

    async fn sides(&self, file: &FileChange) -> Result<Result<Sides, Missing>, Refused> {
        let mode = file.mode.unwrap_or(NEW_FILE_MODE);
        let mut sides = [None, None];
        let wanted = [
            (&file.before, mode),
            (&file.after, file.new_mode.unwrap_or(mode)),
        ];
        for (side, (sha256, mode)) in sides.iter_mut().zip(wanted) {
            let Some(sha256) = sha256 else { continue };
            match self.bytes(sha256, &file.path).await? {
                Ok(bytes) => *side = Some(Content { bytes, mode }),
                Err(missing) => return Ok(Err(missing)),
            }
        }
        let [before, after] = sides;
        Ok(Ok(Sides { before, after }))
    }

    /// The bytes of a revision, from what is kept or from the file itself.
    async fn bytes(&self, sha256: &str, path: &str) -> Result<Result<Vec<u8>, Missing>, Refused> {
        let request = BeforeRequest {
            sha256: sha256.to_owned(),
            path: path.to_owned(),
        };
        let mut filesystem = self.0.filesystem.clone();
        let read = async {
            let mut parts = filesystem
                .before(within(LONG_DEADLINE, request))
                .await?
                .into_inner();
            let mut bytes = Vec::new();
            while let Some(part) = parts.message().await? {
                if bytes.len() + part.chunk.len() > SIDE_BYTES {
                    return Ok(tonic::Response::new(Err(Missing::TooLarge)));
                }
                bytes.extend_from_slice(&part.chunk);
            }
            Ok(tonic::Response::new(Ok(bytes)))
        };
        match long_hop(read).await {
            Ok(Ok(bytes)) if Sha256::of(&bytes).to_string() != sha256 => Ok(Err(Missing::NotKept)),
            Ok(read) => Ok(read),
            Err(failure) if failure.code == ErrorCode::NotFound => Ok(Err(Missing::NotKept)),
            Err(failure) => Err(failure.into()),
        }
    }
}

impl Missing {
    const fn told(&self) -> &'static str {
        match self {
            Self::NotKept => "what it was, or what was made of it, is not kept",
            Self::TooLarge => "it is too large for a patch",
        }
    }
}

/// Compares two sides, off the runtime: it takes a while for large ones.
async fn write(path: String, sides: Sides, form: Form) -> Result<patch::Written, Refused> {
    let written = tokio::task::spawn_blocking(move || {
        patch::write(&path, sides.before.as_ref(), sides.after.as_ref(), form)
    });
    written.await.map_err(|_| refused::interrupted())
}
