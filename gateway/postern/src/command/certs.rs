//! `postern certs`: a private authority, and a certificate for each service.
//!
//! The authority's key lies beside the folders of the services and in none of them. A role's certificate has that role's name
//! and no other's, because by it a service knows who asks ([`postern_kit::tls`]).

mod authority;
mod bundle;
mod rotation;
mod show;

use std::{
    fs::{self, DirBuilder, File},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use postern_kit::tls::{CA_FILE, CERTIFICATE_FILE, KEY_FILE, Role};
use serde_json::json;
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

use self::{
    authority::{Authority, Facts, Issued, certificate_of},
    bundle::Bundle,
};
pub(super) use self::{
    rotation::command as rotate,
    show::{Look, Standing, Trusted, look},
};
use crate::{
    cli::{Certs, CertsInit, CertsRenew, CertsTerms},
    data_dir,
    error::Error,
    output,
};

/// The authority's key, in the folder above those of the services.
const CA_KEY_FILE: &str = "ca-key.pem";
/// What a new file system has in its root.
const LOST_AND_FOUND: &str = "lost+found";
/// Lies in a folder while it is made. What it marks has never been used before `ca.pem` is there, which comes last.
const UNFINISHED_FILE: &str = "unfinished";

/// Does what was asked.
pub(crate) fn run(action: Certs, json: bool) -> Result<(), Error> {
    match action {
        Certs::Init(arguments) => init(&arguments, json),
        Certs::Renew(arguments) => renew(&arguments, json),
        Certs::Show(place) => show::run(&place, json),
        Certs::RotateCa(step) => rotation::run(&step, json),
    }
}

fn init(arguments: &CertsInit, json: bool) -> Result<(), Error> {
    let folder = &arguments.place.dir;
    demand_new(folder)?;
    make(folder)?;
    demand_own(folder)?;
    mark(folder)?;
    let authority = Authority::new(OffsetDateTime::now_utc())?;
    data_dir::write_private(folder, CA_KEY_FILE, &authority.key_pem())?;
    for role in Role::ALL {
        let names = names(role, &arguments.terms, &[]);
        issue(folder, &authority, role, names, &arguments.terms, json)?;
    }
    data_dir::write_private(folder, CA_FILE, authority.pem())?;
    let mark = folder.join(UNFINISHED_FILE);
    fs::remove_file(&mark)
        .map_err(|problem| Error::failed(format!("cannot remove '{}'", mark.display()), problem))?;
    let told = folder.join(CA_KEY_FILE);
    output::either(
        json,
        &json!({"event": "initialized", "authority": told, "notAfter": written(authority.not_after())}),
        &format!(
            "keep '{}' where no service runs: whoever has it can be any of them",
            told.display()
        ),
    );
    Ok(())
}

fn renew(arguments: &CertsRenew, json: bool) -> Result<(), Error> {
    let folder = &arguments.place.dir;
    demand_own(folder)?;
    let pem = read(folder, CA_FILE)?;
    let authority = Authority::read(&pem, &read(folder, CA_KEY_FILE)?)?;
    let now = OffsetDateTime::now_utc();
    let renewed = issue_where(folder, &authority, &arguments.terms, json, |old| {
        match (arguments.within, old) {
            (Some(days), Ok(old)) => old.not_after - now < days_of(days),
            (None, _) | (Some(_), Err(_)) => true,
        }
    })?;
    if authority.not_after() - now < days_of(arguments.terms.days) {
        output::warn(&format!(
            "the authority itself ends on {}, and what it signs ends with it; let another take over with postern certs rotate-ca start --dir '{}'",
            written(authority.not_after()),
            folder.display()
        ));
    }
    output::either(
        json,
        &json!({"event": "done", "renewed": renewed}),
        &format!("{renewed} renewed; running services take them within 10 seconds"),
    );
    Ok(())
}

/// Issues certificates anew, with the names that they have, for the folders whose present one is due or is not that of the key
/// beside it. Tells how many.
fn issue_where(
    folder: &Path,
    authority: &Authority,
    terms: &CertsTerms,
    json: bool,
    is_due: impl Fn(&Result<Facts, Error>) -> bool,
) -> Result<usize, Error> {
    let mut issued = 0;
    for (role, place) in folders(folder) {
        // One that is missing or broken is made anew, with the names that every one has.
        let pem = read(&place, CERTIFICATE_FILE);
        let fits = pem.as_ref().is_ok_and(|pem| is_whole(&place, pem));
        let old = pem.and_then(|pem| Facts::of(&pem));
        if is_due(&old) || !fits {
            let kept = old.map(|old| old.names).unwrap_or_default();
            let names = names(role, terms, &kept);
            issue(folder, authority, role, names, terms, json)?;
            issued += 1;
        }
    }
    Ok(issued)
}

/// Whether the key beside a certificate is its own; who was killed between the two has left another.
fn is_whole(place: &Path, pem: &str) -> bool {
    let key = read(place, KEY_FILE);
    key.is_ok_and(|key| certificate_of(&Bundle::new(pem), &key).is_ok())
}

/// When the certificate in a file ends, if it can be told.
pub(super) fn end_of(file: &Path) -> Option<String> {
    let pem = data_dir::read_optional(file).ok()??;
    Some(written(Facts::of(&pem).ok()?.not_after))
}

/// The folders that there are, with whose they are.
pub(super) fn folders(folder: &Path) -> impl Iterator<Item = (Role, PathBuf)> {
    Role::ALL
        .into_iter()
        .map(|role| (role, folder.join(role.name())))
        .filter(|(_, place)| place.is_dir())
}

/// Writes a new certificate with its key and the authorities into the folder of a role.
fn issue(
    folder: &Path,
    authority: &Authority,
    role: Role,
    names: Vec<String>,
    terms: &CertsTerms,
    json: bool,
) -> Result<(), Error> {
    let Issued {
        certificate_pem,
        key_pem,
        not_after,
    } = authority.issue(role, &names, days_of(terms.days))?;
    let place = folder.join(role.name());
    make(&place)?;
    // A process that reads between two of these finds that they do not fit, and reads again.
    data_dir::write_private(&place, CA_FILE, authority.pem())?;
    data_dir::write_private(&place, KEY_FILE, &key_pem)?;
    data_dir::write_private(&place, CERTIFICATE_FILE, &certificate_pem)?;
    let until = written(not_after);
    output::either(
        json,
        &json!({"event": "issued", "role": role.name(), "dir": place, "names": names, "notAfter": until}),
        &format!("{role}: '{}', until {until}", place.display()),
    );
    Ok(())
}

/// The names in a role's certificate: its own, this machine, and what was asked for or is in the one before.
fn names(role: Role, terms: &CertsTerms, kept: &[String]) -> Vec<String> {
    let own = [role.name(), "localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut names = own.to_vec();
    for name in terms.hosts.iter().chain(kept) {
        // One that was made elsewhere may have another role's name, and it does not get that again.
        if !names.contains(name) && name.parse::<Role>().is_err() {
            names.push(name.clone());
        }
    }
    names
}

/// Refuses a folder in which there is something, unless it is what an interrupted start of the same left.
fn demand_new(folder: &Path) -> Result<(), Error> {
    let failed =
        |problem| Error::failed(format!("cannot look into '{}'", folder.display()), problem);
    let is_there = |name: &str| folder.join(name).exists();
    if !folder.exists() || (is_there(UNFINISHED_FILE) && !is_there(CA_FILE)) {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(failed)? {
        if entry.map_err(failed)?.file_name() != LOST_AND_FOUND {
            return Err(Error::Failed(format!(
                "'{}' is not empty, and nothing in it is overwritten; issue certificates anew with postern certs renew, or choose another folder",
                folder.display()
            )));
        }
    }
    Ok(())
}

/// Marks a folder, at once and before anything else is in it.
fn mark(folder: &Path) -> Result<(), Error> {
    let mark = folder.join(UNFINISHED_FILE);
    let made = File::create(&mark).and_then(|_| data_dir::sync_directory_of(&mark));
    made.map_err(|problem| Error::failed(format!("cannot make '{}'", mark.display()), problem))
}

/// Refuses a folder in which another user could put keys and authorities of his own.
fn demand_own(folder: &Path) -> Result<(), Error> {
    let facts = fs::metadata(folder).map_err(|problem| {
        Error::failed(format!("cannot look at '{}'", folder.display()), problem)
    })?;
    data_dir::demand_private(folder, &facts, "the folder of certificates", "--dir")
}

fn make(folder: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|problem| Error::failed(format!("cannot make '{}'", folder.display()), problem))
}

fn read(folder: &Path, name: &str) -> Result<String, Error> {
    let file = folder.join(name);
    data_dir::read_optional(&file)?.ok_or_else(|| {
        Error::Failed(format!(
            "there is no '{}'; postern certs init makes it",
            file.display()
        ))
    })
}

fn days_of(days: u64) -> Duration {
    Duration::days(i64::try_from(days).unwrap_or(i64::MAX / 86_400))
}

pub(super) fn written(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests;
