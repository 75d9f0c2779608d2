//! `postern certs rotate-ca`: another authority takes over while everything runs.
//!
//! Three steps, because a certificate is worth something to those alone who trust its authority already, and a trust can be
//! dropped only when nobody shows a certificate of it any more. How far it is, the files beside the authority tell:
//!
//! | after  | `ca.pem` | `ca-key.pem` | `next-ca-key.pem` | `retiring-ca.pem` |
//! |--------|----------|--------------|-------------------|-------------------|
//! | start  | old, new | old          | new               | old               |
//! | switch | old, new | new          |                   | old               |
//! | finish | new      | new          |                   |                   |
//!
//! Each step can be done again when it was interrupted, and none is done before the one that comes before it.

use std::{fs, io, path::Path};

use postern_kit::tls::{CA_FILE, CERTIFICATE_FILE};
use serde_json::json;
use time::OffsetDateTime;

use super::{
    CA_KEY_FILE,
    authority::{Authority, Facts, certificate_of},
    bundle::Bundle,
    demand_own, folders, issue_where, read,
};
use crate::{
    cli::{RotateCa, RotateSwitch},
    data_dir,
    error::Error,
    output,
};

/// Key of the authority that takes over.
const NEXT_KEY_FILE: &str = "next-ca-key.pem";
/// Certificate of the one that goes.
const RETIRING_FILE: &str = "retiring-ca.pem";
/// When the next step may be done.
const WHEN: &str =
    "when every service has taken the folders as they are now (10 seconds after it has them)";

/// How far a rotation is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// None is under way.
    None,
    /// Both are trusted, the old one signs.
    Started,
    /// Both are trusted, the new one signs.
    Switched,
}

impl Stage {
    pub(super) fn of(folder: &Path) -> Self {
        if folder.join(NEXT_KEY_FILE).exists() {
            Self::Started
        } else if folder.join(RETIRING_FILE).exists() {
            Self::Switched
        } else {
            Self::None
        }
    }

    /// The step that comes next, where one was begun.
    pub(super) const fn next(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Started => Some("switch"),
            Self::Switched => Some("finish"),
        }
    }
}

/// Does a step.
pub(super) fn run(step: &RotateCa, json: bool) -> Result<(), Error> {
    let place = match step {
        RotateCa::Start(place) | RotateCa::Finish(place) => place,
        RotateCa::Switch(arguments) => &arguments.place,
    };
    demand_own(&place.dir)?;
    let (folder, done) = match step {
        RotateCa::Start(place) => (&place.dir, start(&place.dir)?),
        RotateCa::Switch(arguments) => (&arguments.place.dir, switch(arguments, json)?),
        RotateCa::Finish(place) => (&place.dir, finish(&place.dir)?),
    };
    let next = Stage::of(folder).next();
    let then = match next {
        Some(next) => format!("{WHEN}: {}", command(next, folder)),
        None => "copy the folders to where their services run".to_owned(),
    };
    output::either(
        json,
        &json!({"event": "done", "done": done, "next": next}),
        &format!("{done}; {then}"),
    );
    Ok(())
}

/// The certificate of the authority that takes over or has taken over, and of the one that goes.
pub(super) fn retiring(folder: &Path) -> Result<Option<Vec<u8>>, Error> {
    let pem = data_dir::read_optional(&folder.join(RETIRING_FILE))?;
    Ok(pem.and_then(|pem| Bundle::new(&pem).certificates().next()))
}

fn start(folder: &Path) -> Result<String, Error> {
    if Stage::of(folder) == Stage::Switched {
        return Err(Error::Failed(format!(
            "the rotation before this one is not finished: {}",
            command("finish", folder)
        )));
    }
    let trusted = Bundle::new(&read(folder, CA_FILE)?);
    let old = certificate_of(&trusted, &read(folder, CA_KEY_FILE)?)?;
    let trusted = match next(folder, &trusted)? {
        Some(_) => trusted,
        // What comes last makes the rest count.
        None => {
            let new = Authority::new(OffsetDateTime::now_utc())?;
            data_dir::write_private(folder, NEXT_KEY_FILE, &new.key_pem())?;
            data_dir::write_private(folder, RETIRING_FILE, trusted.only(&old))?;
            let both = trusted.and(new.pem());
            data_dir::write_private(folder, CA_FILE, both.pem())?;
            both
        }
    };
    for (_, place) in folders(folder) {
        data_dir::write_private(&place, CA_FILE, trusted.pem())?;
    }
    Ok("there is a new authority, trusted beside the old one, which still signs".to_owned())
}

fn switch(arguments: &RotateSwitch, json: bool) -> Result<String, Error> {
    let folder = &arguments.place.dir;
    let trusted = Bundle::new(&read(folder, CA_FILE)?);
    match Stage::of(folder) {
        Stage::None => return Err(none_under_way(folder)),
        Stage::Started => {
            let Some(new) = next(folder, &trusted)? else {
                return Err(not_whole(folder));
            };
            demand_trusted(folder, &new)?;
            let (from, to) = (folder.join(NEXT_KEY_FILE), folder.join(CA_KEY_FILE));
            fs::rename(&from, &to)
                .and_then(|()| data_dir::sync_directory_of(&to))
                .map_err(cannot("replace", &to))?;
        }
        Stage::Switched => {}
    }
    let authority = Authority::read(trusted.pem(), &read(folder, CA_KEY_FILE)?)?;
    let is_due = |old: &Result<Facts, Error>| {
        old.as_ref()
            .map_or(true, |facts| !authority.has_signed(facts))
    };
    let issued = issue_where(folder, &authority, &arguments.terms, json, is_due)?;
    Ok(format!(
        "the new authority signs, and {issued} have its certificates"
    ))
}

fn finish(folder: &Path) -> Result<String, Error> {
    match Stage::of(folder) {
        Stage::None => return Err(none_under_way(folder)),
        Stage::Started => {
            return Err(Error::Failed(format!(
                "the old authority still signs; first {}",
                command("switch", folder)
            )));
        }
        Stage::Switched => {}
    }
    let broken = || Error::Failed(format!("'{RETIRING_FILE}' is broken"));
    let old = retiring(folder)?.ok_or_else(broken)?;
    let trusted = Bundle::new(&read(folder, CA_FILE)?);
    let authority = Authority::read(trusted.pem(), &read(folder, CA_KEY_FILE)?)?;
    for (role, place) in folders(folder) {
        let facts = Facts::of(&read(&place, CERTIFICATE_FILE)?)?;
        if !authority.has_signed(&facts) {
            return Err(Error::Failed(format!(
                "the certificate of '{role}' is not the new authority's; this issues it: {}",
                command("switch", folder)
            )));
        }
    }
    let left = trusted.without(&old);
    data_dir::write_private(folder, CA_FILE, left.pem())?;
    for (_, place) in folders(folder) {
        data_dir::write_private(&place, CA_FILE, left.pem())?;
    }
    let gone = folder.join(RETIRING_FILE);
    fs::remove_file(&gone)
        .and_then(|()| data_dir::sync_directory_of(&gone))
        .map_err(cannot("remove", &gone))?;
    Ok("the old authority is trusted no more".to_owned())
}

/// The certificate of the authority that takes over, once it is among those that are trusted.
pub(super) fn next(folder: &Path, trusted: &Bundle) -> Result<Option<Vec<u8>>, Error> {
    let key = data_dir::read_optional(&folder.join(NEXT_KEY_FILE))?;
    // A start that was interrupted left a key without a certificate.
    Ok(key.and_then(|key| certificate_of(trusted, &key).ok()))
}

/// Refuses while a folder does not trust the authority that would sign from now on.
fn demand_trusted(folder: &Path, new: &[u8]) -> Result<(), Error> {
    for (_, place) in folders(folder) {
        if !Bundle::new(&read(&place, CA_FILE)?).has(new) {
            return Err(not_whole(folder));
        }
    }
    Ok(())
}

fn not_whole(folder: &Path) -> Error {
    Error::Failed(format!(
        "the start of the rotation was interrupted; again: {}",
        command("start", folder)
    ))
}

fn none_under_way(folder: &Path) -> Error {
    Error::Failed(format!(
        "no rotation is under way; begin one with {}",
        command("start", folder)
    ))
}

pub(in crate::command) fn command(step: &str, folder: &Path) -> String {
    format!(
        "postern certs rotate-ca {step} --dir '{}'",
        folder.display()
    )
}

fn cannot(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let doing = format!("cannot {what} '{}'", path.display());
    move |problem| Error::failed(doing, problem)
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
