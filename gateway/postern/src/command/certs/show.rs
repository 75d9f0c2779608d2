//! `postern certs show`: what lies in the folder of an authority.

use std::path::{Path, PathBuf};

use postern_kit::tls::{CA_FILE, CERTIFICATE_FILE};
use serde_json::json;
use time::OffsetDateTime;

use super::{
    CA_KEY_FILE,
    authority::{Facts, certificate_of},
    bundle::Bundle,
    folders, read,
    rotation::{self, Stage},
    written,
};
use crate::{cli::CertsDir, data_dir, error::Error, output};

/// The authorities of a folder.
pub(in crate::command) struct Look {
    /// Everybody trusts these.
    pub(in crate::command) authorities: Vec<Trusted>,
    /// The key with which they are issued, where it lies here.
    pub(in crate::command) key: Option<PathBuf>,
    /// The next step of a rotation that is under way.
    pub(in crate::command) next_step: Option<&'static str>,
}

/// What an authority does here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::command) enum Standing {
    /// Certificates are issued by it.
    Signs,
    /// It takes over next.
    Next,
    /// It was taken over from.
    Retiring,
    /// It is trusted, and nothing more is known here.
    Trusted,
}

impl Standing {
    const fn name(self) -> &'static str {
        match self {
            Self::Signs => "signs",
            Self::Next => "next",
            Self::Retiring => "retiring",
            Self::Trusted => "trusted",
        }
    }
}

/// One that signs others.
pub(in crate::command) struct Trusted {
    pub(in crate::command) standing: Standing,
    pub(in crate::command) name: String,
    pub(in crate::command) not_after: OffsetDateTime,
}

/// Looks into a folder that `postern certs init` made.
pub(in crate::command) fn look(folder: &Path) -> Result<Look, Error> {
    let trusted = Bundle::new(&read(folder, CA_FILE)?);
    let key = folder.join(CA_KEY_FILE);
    let signing = match data_dir::read_optional(&key)? {
        Some(key) => Some(certificate_of(&trusted, &key)?),
        None => None,
    };
    let next = rotation::next(folder, &trusted)?;
    let retiring = rotation::retiring(folder)?;
    let mut authorities = Vec::new();
    for bytes in trusted.certificates() {
        let facts = named(&folder.join(CA_FILE), Facts::of_bytes(&bytes))?;
        // While both are trusted the old one still signs: that is more than that it goes.
        let standing = [
            (&signing, Standing::Signs),
            (&next, Standing::Next),
            (&retiring, Standing::Retiring),
        ]
        .into_iter()
        .find(|(known, _)| known.as_ref() == Some(&bytes))
        .map_or(Standing::Trusted, |(_, standing)| standing);
        authorities.push(Trusted {
            standing,
            name: facts.name,
            not_after: facts.not_after,
        });
    }
    Ok(Look {
        authorities,
        key: signing.map(|_| key),
        next_step: Stage::of(folder).next(),
    })
}

/// What was issued, by role; a folder without a certificate is left out.
pub(super) fn issued(folder: &Path) -> Result<Vec<(&'static str, Facts)>, Error> {
    let mut issued = Vec::new();
    for (role, place) in folders(folder) {
        let file = place.join(CERTIFICATE_FILE);
        if let Some(pem) = data_dir::read_optional(&file)? {
            issued.push((role.name(), named(&file, Facts::of(&pem))?));
        }
    }
    Ok(issued)
}

fn named<T>(file: &Path, result: Result<T, Error>) -> Result<T, Error> {
    result.map_err(|problem| Error::failed(format!("'{}'", file.display()), problem))
}

pub(super) fn run(place: &CertsDir, json: bool) -> Result<(), Error> {
    let folder = &place.dir;
    let now = OffsetDateTime::now_utc();
    let found = look(folder)?;
    let mut ended = Vec::new();
    for authority in &found.authorities {
        let Trusted {
            standing,
            name,
            not_after,
        } = authority;
        let (until, left) = (written(*not_after), (*not_after - now).whole_days());
        if *not_after <= now && *standing != Standing::Retiring {
            ended.push("ca");
        }
        let standing = standing.name();
        output::either(
            json,
            &json!({"name": "ca", "authority": name, "standing": standing, "notAfter": until, "daysLeft": left}),
            &format!("ca: until {until}, {left} days; {name}, {standing}"),
        );
    }
    for (role, facts) in issued(folder)? {
        let (until, left) = (
            written(facts.not_after),
            (facts.not_after - now).whole_days(),
        );
        if facts.not_after <= now {
            ended.push(role);
        }
        let (names, authority) = (facts.names, facts.issuer);
        output::either(
            json,
            &json!({"name": role, "names": names, "authority": authority, "notAfter": until, "daysLeft": left}),
            &format!(
                "{role}: until {until}, {left} days; {}; by {authority}",
                names.join(", ")
            ),
        );
    }
    if let Some(step) = found.next_step {
        output::warn(&format!(
            "a rotation is under way; its next step: {}",
            rotation::command(step, folder)
        ));
    }
    if ended.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "not valid any more: {}; renew with postern certs renew --dir '{}'",
        ended.join(", "),
        folder.display()
    )))
}
