//! `postern receipts export`: every event of a ledger as JSON lines that prove themselves.
//!
//! The first line says what the file is. Each event follows as it was hashed, with its hash. The last line of the file, one a
//! workspace, is the signed checkpoint of the chain's end: what is cut off, exchanged or changed breaks the chain or the
//! signature.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    ops::ControlFlow,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use postern_ledger::{Link, Verification};
use postern_types::Timestamp;
use serde::Serialize;
use serde_json::{json, value::RawValue};

use super::verify::{FORMAT, fault_text};
use crate::{
    checkpoint::{self, Key},
    cli::Export,
    data_dir,
    error::Error,
    output,
};

/// One event's line.
#[derive(Serialize)]
struct Line<'a> {
    event: &'a RawValue,
    hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proposal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<&'a str>,
}

/// Exports a ledger. Nothing is left behind when it does not hold.
pub(super) async fn run(ledger: &Path, what: &Export, json: bool) -> Result<(), Error> {
    let Some(target) = &what.file else {
        let mut out = BufWriter::new(io::stdout());
        write(ledger, what.results, &mut out).await?;
        return out
            .flush()
            .map_err(|problem| Error::failed("cannot write", problem));
    };
    let unwritable =
        |problem| Error::failed(format!("cannot write '{}'", target.display()), problem);
    if fs::symlink_metadata(target).is_ok() {
        return Err(Error::Usage(format!(
            "'{}' is there already; choose another name or move it away",
            target.display()
        )));
    }
    let temporary = Temporary::beside(target).map_err(unwritable)?;
    let mut out = BufWriter::new(&temporary.file);
    let found = write(ledger, what.results, &mut out).await?;
    out.flush().map_err(unwritable)?;
    drop(out);
    temporary.named(target).map_err(unwritable)?;
    let text = format!("{} receipts in {} events", found.receipts, found.events);
    let value = json!({"events": found.events, "receipts": found.receipts, "file": target});
    output::either(json, &value, &text);
    Ok(())
}

pub(super) async fn write(
    ledger: &Path,
    results: bool,
    out: &mut (impl Write + Send),
) -> Result<Verification, Error> {
    let directory = ledger.parent().unwrap_or(Path::new("."));
    let Some(key) = Key::of(directory)? else {
        return Err(Error::Failed(
            "there is no key to sign with yet; start the edge once, and export then".to_owned(),
        ));
    };
    // Read before the ledger is: what is signed now is in it for certain.
    let kept = checkpoint::kept(directory)?;
    if let Some(problem) = &kept.problem {
        return Err(Error::Failed(problem.clone()));
    }
    let at = Timestamp::now();
    let head = json!({"format": FORMAT, "results": results});
    let mut written = writeln!(out, "{head}");
    let found = postern_ledger::walk_file(ledger, kept.places(), |link| {
        if written.is_ok() {
            written = write_event(out, &link, results);
        }
        if written.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
    .await;
    written.map_err(|problem| Error::failed("cannot write", problem))?;
    let found = found.map_err(|problem| Error::failed("the ledger cannot be read", problem))?;
    if let Some(fault) = &found.fault {
        return Err(Error::Failed(fault_text(fault)));
    }
    if found.heads.is_empty() {
        return Err(Error::Failed("there are no receipts yet".to_owned()));
    }
    for place in &found.heads {
        let workspace = place.workspace_id.parse();
        let workspace = workspace.map_err(|problem| Error::failed("a workspace's id", problem))?;
        let signed = key.sign(workspace, place.sequence, place.hash, at);
        writeln!(out, "{}", json!({"checkpoint": signed}))
            .map_err(|problem| Error::failed("cannot write", problem))?;
    }
    Ok(found)
}

fn write_event(out: &mut impl Write, link: &Link<'_>, results: bool) -> io::Result<()> {
    let beside = link.beside.filter(|_| results).unwrap_or_default();
    let text = |bytes: Option<&'_ [u8]>| match bytes.map(std::str::from_utf8).transpose() {
        // An edge writes text alone, so this is one that was not written by any.
        Err(_) => Err(io::Error::other("a result is no text")),
        Ok(text) => Ok(text.map(str::to_owned)),
    };
    let (plan, proposal) = (text(beside.plan)?, text(beside.proposal)?);
    let (result, answer) = (text(beside.result)?, text(beside.answer)?);
    let line = Line {
        event: serde_json::from_str(link.body)?,
        hash: hex::encode(link.hash),
        plan: plan.as_deref(),
        proposal: proposal.as_deref(),
        result: result.as_deref(),
        answer: answer.as_deref(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

/// A file that gets its name when it is whole, and is gone otherwise.
struct Temporary {
    file: File,
    path: PathBuf,
}

impl Temporary {
    fn beside(target: &Path) -> io::Result<Self> {
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".{}.new", std::process::id()));
        let path = target.with_file_name(name);
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Self { file, path })
    }

    /// Gives it its name, unless something has that name by now.
    fn named(self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::hard_link(&self.path, target)?;
        data_dir::sync_directory_of(target)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Named or not, its temporary name has served.
        let _ = fs::remove_file(&self.path);
    }
}
