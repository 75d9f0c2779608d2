//! Certificates: those of the process that is to run here, and the folder of an authority.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use postern_kit::tls::{self, CERTIFICATE_FILE, KEY_FILE, Lifetime, Role, TlsError};
use time::OffsetDateTime;

use super::Finding;
use crate::{
    command::certs::{self, Look, Standing, Trusted},
    error::Error,
};

/// Mode bits by which everybody reads or writes, and by which the group does.
const BY_EVERYBODY: u32 = 0o006;
const BY_GROUP: u32 = 0o060;
/// Time before the end of an authority from which on another should take over: what it signs lasts 90 days.
const AUTHORITY_AHEAD: time::Duration = time::Duration::days(90);
const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// What is wrong with a folder, and what to do.
type Problem = (Gravity, String, String);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Gravity {
    Fails,
    Warns,
}

const OWN: &str = "certificates";

/// How far ahead is looked.
pub(super) const fn days(days: u64) -> Duration {
    Duration::from_secs(days * SECONDS_PER_DAY)
}

/// The folder of one process, if it may lie where it does.
pub(super) async fn own(
    folder: &Path,
    outside: Result<(), Error>,
    role: Option<Role>,
    ahead: Duration,
) -> Finding {
    if let Err(problem) = outside {
        let advice =
            "Commands of agents can read the key there: once it lies elsewhere, issue it anew";
        return Finding::fail(OWN, problem.to_string(), advice);
    }
    let named = folder
        .file_name()
        .and_then(|name| name.to_str()?.parse().ok());
    match examine(folder, role.or(named), ahead).await {
        Ok(good) => Finding::ok(OWN, format!("'{}': {good}", folder.display())),
        Err((gravity, detail, advice)) => finding(
            OWN,
            gravity,
            format!("'{}': {detail}", folder.display()),
            advice,
        ),
    }
}

fn finding(check: &'static str, gravity: Gravity, detail: String, advice: String) -> Finding {
    match gravity {
        Gravity::Fails => Finding::fail(check, detail, advice),
        Gravity::Warns => Finding::warn(check, detail, advice),
    }
}

/// Whether a process can use a folder, and how long; what is wrong otherwise, the worst alone.
async fn examine(folder: &Path, role: Option<Role>, ahead: Duration) -> Result<String, Problem> {
    let inspected = tls::inspect(folder, role, ahead).await;
    let inspected = inspected.map_err(|problem| refused(&problem))?;
    let until = certs::end_of(&folder.join(CERTIFICATE_FILE)).unwrap_or_else(|| "?".to_owned());
    if inspected.lifetime == Lifetime::Ended {
        return Err((
            Gravity::Fails,
            format!("not valid any more: it, or an authority above it, has ended (cert.pem: {until})"),
            "Renew it with `postern certs renew`, where the authority is, and copy the folder here; the machine's clock may be wrong, too".to_owned(),
        ));
    }
    let key = folder.join(KEY_FILE);
    let readable = readable_by_others(&key);
    if let Some(problem) = &readable
        && problem.0 == Gravity::Fails
    {
        return Err(problem.clone());
    }
    if role.is_none() && inspected.peer.is_nobody() {
        return Err((
            Gravity::Warns,
            "its certificate names no service, so services answer it nothing but their health"
                .to_owned(),
            format!(
                "Use a certificate with the name of the service among its DNS names, such as '{}'",
                Role::Edge
            ),
        ));
    }
    if inspected.lifetime == Lifetime::EndsSoon {
        return Err((
            Gravity::Warns,
            format!(
                "for {}, until {until}: less than {} days",
                inspected.peer,
                ahead.as_secs() / SECONDS_PER_DAY
            ),
            "Renew it with `postern certs renew --within`, daily, where the authority is, and copy the folder here".to_owned(),
        ));
    }
    match readable {
        Some(problem) => Err(problem),
        None => Ok(format!("for {}, until {until}", inspected.peer)),
    }
}

/// What the service itself would say, with what to do where that does not say it.
fn refused(problem: &TlsError) -> Problem {
    let advice = match problem {
        TlsError::Unreadable { problem, .. }
            if problem.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            "Let the user that the service runs as own the folder and its files"
        }
        TlsError::Unreadable { .. } => {
            "Copy the service's folder of `postern certs init` here, whole"
        }
        TlsError::Broken { .. } => {
            "Copy the service's folder here again, or issue it anew with `postern certs renew`"
        }
        TlsError::Untrusted(_) => {
            "Copy ca.pem and cert.pem from the same authority; issue them anew with `postern certs renew`"
        }
        TlsError::WrongRole { .. } => "Name the service's own folder with --tls-dir",
    };
    (Gravity::Fails, problem.to_string(), advice.to_owned())
}

/// Whether others than its owner read a key.
fn readable_by_others(key: &Path) -> Option<Problem> {
    let mode = fs::metadata(key).ok()?.mode();
    let (gravity, who) = if mode & BY_EVERYBODY != 0 {
        (Gravity::Fails, "everybody on this machine")
    } else if mode & BY_GROUP != 0 {
        (Gravity::Warns, "its group")
    } else {
        return None;
    };
    let shown = key.display();
    Some((
        gravity,
        format!(
            "'{shown}' can be read or written by {who} (mode {:03o})",
            mode & 0o777
        ),
        format!("Close it with chmod 600 '{shown}'; where it was open to strangers issue it anew"),
    ))
}

/// An authority, and all that it issued: two findings.
pub(super) async fn authority(folder: &Path, ahead: Duration) -> Vec<Finding> {
    const AUTHORITY: &str = "authority";
    const ISSUED: &str = "issued";
    let found = match certs::look(folder) {
        Ok(found) => found,
        Err(problem) => {
            let advice = "Name a folder that `postern certs init` made, and that you can read, with --certs-dir";
            return vec![Finding::fail(AUTHORITY, problem.to_string(), advice)];
        }
    };
    let own = match whole(folder, &found) {
        Ok(good) => Finding::ok(AUTHORITY, good),
        Err((gravity, detail, advice)) => finding(AUTHORITY, gravity, detail, advice),
    };
    let (mut gravity, mut wrong, mut good) = (Gravity::Warns, Vec::new(), 0);
    for (role, place) in certs::folders(folder) {
        match examine(&place, Some(role), ahead).await {
            Ok(_) => good += 1,
            Err((found, detail, _)) => {
                if found == Gravity::Fails {
                    gravity = found;
                }
                wrong.push(format!("{role}: {detail}"));
            }
        }
    }
    let issued = if wrong.is_empty() {
        Finding::ok(ISSUED, format!("{good} certificates are good"))
    } else {
        let advice = format!(
            "Issue them anew with `postern certs renew --dir '{}'`, and copy the folders to their services",
            folder.display()
        );
        finding(ISSUED, gravity, wrong.join("; "), advice)
    };
    vec![own, issued]
}

/// Whether an authority can go on as it is.
fn whole(folder: &Path, found: &Look) -> Result<String, Problem> {
    let now = OffsetDateTime::now_utc();
    if let Some(problem) = found.key.as_deref().and_then(readable_by_others) {
        return Err(problem);
    }
    // Without a key here nothing tells which of them signs: then each must last.
    let signs = |authority: &&Trusted| match authority.standing {
        Standing::Signs => true,
        Standing::Trusted => found.key.is_none(),
        Standing::Next | Standing::Retiring => false,
    };
    let until = found
        .authorities
        .iter()
        .filter(signs)
        .map(|it| it.not_after);
    let Some(until) = until.min() else {
        return Err((
            Gravity::Fails,
            "no authority in ca.pem can sign".to_owned(),
            "Take ca.pem and ca-key.pem of one authority".to_owned(),
        ));
    };
    let step = found.next_step.unwrap_or("start");
    let rotate = || format!("Let another take over: `{}`", certs::rotate(step, folder));
    let last = certs::written(until);
    if until <= now {
        let detail = format!("not valid any more since {last}, and with it what it signed");
        return Err((Gravity::Fails, detail, rotate()));
    }
    if found.next_step.is_some() {
        return Err((
            Gravity::Warns,
            "another authority is taking over".to_owned(),
            format!(
                "Go on when every service has taken the folders as they are now: `{}`",
                certs::rotate(step, folder)
            ),
        ));
    }
    if until - now < AUTHORITY_AHEAD {
        let detail = format!("it ends on {last}, and with it what it signed");
        return Err((Gravity::Warns, detail, rotate()));
    }
    Ok(format!("'{}' lasts until {last}", folder.display()))
}

#[cfg(test)]
#[path = "certificates_tests.rs"]
mod tests;
