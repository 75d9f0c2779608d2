//! Signed checkpoints: what a chain of receipts cannot prove by itself, that nothing was cut off its end.
//!
//! An edge signs the newest event of its workspace's chain a few seconds after it changes, and once more at its end. The key
//! is made at the first start and lies in the data directory, where no command reads it. It proves nothing against whoever can
//! read the data directory; what was exported or written down before proves against him, too.

mod keeper;

use std::{path::Path, sync::Arc};

use postern_ledger::Checkpoint;
use postern_types::{Id, Sha256, Timestamp};
use ring::{
    rand::SystemRandom,
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use serde::{Deserialize, Serialize};

pub(crate) use self::keeper::{Keeping, keep};
use crate::{
    data_dir::{self, DataDir},
    error::Error,
};

/// The key, 64 hexadecimal digits of its seed.
const KEY_FILE: &str = "checkpoint-key";
/// The newest checkpoint of each workspace, one a line.
const FILE: &str = "checkpoint.json";
/// Checkpoints that a start did not find in its ledger any more, one a line.
const LOST_FILE: &str = "checkpoint-lost.json";
/// What stood in [`FILE`] and was none of this key's, or that there was none any more; until the owner takes it away.
const FOREIGN_FILE: &str = "checkpoint.json.foreign";
/// Checkpoints of a file that are read.
const LINES: usize = 1000;
/// What is signed, and in which form.
const FORMAT: &str = "postern-checkpoint-1";

/// What is signed. Its canonical JSON (RFC 8785) is what the serializer writes: fields stand in the order of their names.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Payload {
    /// When it was signed, RFC 3339.
    pub(crate) at: String,
    format: String,
    /// Hash of the event.
    pub(crate) hash: Sha256,
    /// Key that signs, 64 hexadecimal digits.
    pub(crate) public_key: String,
    /// Place of the event in the chain, from 1; 0 for a chain without any.
    pub(crate) sequence: u64,
    /// Workspace of the chain.
    pub(crate) workspace_id: Id,
}

/// A signed checkpoint.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signed {
    /// What is signed.
    pub(crate) payload: Payload,
    /// Ed25519 signature of the payload's canonical JSON, 128 hexadecimal digits.
    signature: String,
}

impl Signed {
    /// Whether the key that it names has signed it.
    pub(crate) fn is_genuine(&self) -> bool {
        let verified = || {
            let key = hex::decode(&self.payload.public_key).ok()?;
            let signature = hex::decode(&self.signature).ok()?;
            // One form of it, so that no character of a file goes unproved.
            if hex::encode(&signature) != self.signature {
                return None;
            }
            let payload = serde_json::to_vec(&self.payload).ok()?;
            UnparsedPublicKey::new(&ED25519, key)
                .verify(&payload, &signature)
                .ok()
        };
        self.payload.format == FORMAT && verified().is_some()
    }

    /// The place that it names.
    pub(crate) fn place(&self) -> Checkpoint {
        Checkpoint {
            workspace_id: self.payload.workspace_id.to_string(),
            sequence: self.payload.sequence,
            hash: self.payload.hash,
        }
    }
}

/// A signing key. Shows itself nowhere.
#[derive(Clone)]
pub(crate) struct Key(Arc<Ed25519KeyPair>);

impl Key {
    /// The key of a data directory, made when there is none.
    pub(crate) fn open(data: &DataDir) -> Result<Self, Error> {
        if let Some(key) = Self::of(data.path())? {
            return Ok(key);
        }
        let seed: [u8; 32] = ring::rand::generate(&SystemRandom::new())
            .map_err(|problem| Error::failed("there is no randomness for a key", problem))?
            .expose();
        data.write_private(KEY_FILE, &format!("{}\n", hex::encode(seed)))?;
        Self::read(&hex::encode(seed))
    }

    /// The key of a data directory that may be in use; `None` when there is none.
    pub(crate) fn of(directory: &Path) -> Result<Option<Self>, Error> {
        let text = data_dir::read_optional(&directory.join(KEY_FILE))?;
        text.map(|text| Self::read(&text)).transpose()
    }

    fn read(text: &str) -> Result<Self, Error> {
        let unusable = || {
            Error::Failed(format!(
                "{KEY_FILE} in the data directory is no key; put the right one back, or move it away and a new one is made"
            ))
        };
        let seed = hex::decode(text).map_err(|_| unusable())?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| unusable())?;
        Ok(Self(Arc::new(pair)))
    }

    /// The public key, 64 hexadecimal digits.
    pub(crate) fn public(&self) -> String {
        hex::encode(self.0.public_key())
    }

    /// Signs a place in a chain.
    pub(crate) fn sign(
        &self,
        workspace_id: Id,
        sequence: u64,
        hash: Sha256,
        at: Timestamp,
    ) -> Signed {
        let payload = Payload {
            at: at.to_string(),
            format: FORMAT.to_owned(),
            hash,
            public_key: self.public(),
            sequence,
            workspace_id,
        };
        // Texts and numbers always have a JSON form.
        let bytes = serde_json::to_vec(&payload).unwrap_or_default();
        Signed {
            payload,
            signature: hex::encode(self.0.sign(&bytes)),
        }
    }
}

/// The checkpoints that a data directory keeps.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Those that its key has signed.
    pub(crate) signed: Vec<Signed>,
    /// Why they prove less than they should; absent when nothing is wrong.
    pub(crate) problem: Option<String>,
    /// Whether no edge ever signed one here.
    pub(crate) none_yet: bool,
}

impl Kept {
    /// The places that they name.
    pub(crate) fn places(&self) -> Vec<Checkpoint> {
        self.signed.iter().map(Signed::place).collect()
    }
}

/// Reads what a data directory keeps, whether or not an edge runs on it.
pub(crate) fn kept(directory: &Path) -> Result<Kept, Error> {
    let key = Key::of(directory)?;
    let mut kept = Kept::default();
    let (mut found, mut problems) = (false, Vec::new());
    for name in [FILE, LOST_FILE] {
        let Some(text) = data_dir::read_optional(&directory.join(name))? else {
            continue;
        };
        found |= name == FILE;
        match (parse(&text), &key) {
            (None, _) => problems.push(format!("{name} is damaged")),
            (Some(_), None) => problems.push(format!("{KEY_FILE}, which signs {name}, is missing")),
            (Some(signed), Some(key)) => {
                let (own, foreign): (Vec<_>, Vec<_>) = signed
                    .into_iter()
                    .partition(|it| it.is_genuine() && it.payload.public_key == key.public());
                if !foreign.is_empty() {
                    problems.push(format!(
                        "{name} was not signed by the key of this directory"
                    ));
                }
                kept.signed.extend(own);
            }
        }
    }
    if data_dir::read_optional(&directory.join(FOREIGN_FILE))?.is_some() {
        problems.push(format!(
            "{FILE} was taken away or was not this directory's before the last start (take {FOREIGN_FILE} out once you know why)"
        ));
    }
    kept.none_yet = !found && key.is_none();
    if !found && key.is_some() {
        problems.push(format!("{FILE} was taken away"));
    }
    if !problems.is_empty() {
        kept.problem = Some(format!(
            "{}, so receipts may have been cut off the end without a trace",
            problems.join(", and ")
        ));
    }
    Ok(kept)
}

fn parse(text: &str) -> Option<Vec<Signed>> {
    let lines: Vec<_> = text.lines().take(LINES + 1).collect();
    if lines.is_empty() || lines.len() > LINES {
        return None;
    }
    let parsed = lines.iter().map(|line| serde_json::from_str(line).ok());
    parsed.collect()
}

fn text_of(signed: &[Signed]) -> String {
    let lines = signed
        .iter()
        .filter_map(|it| serde_json::to_string(it).ok());
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn directory() -> (tempfile::TempDir, DataDir, Key) {
        let home = tempfile::tempdir().expect("folder");
        let data = DataDir::open(&home.path().join("data")).expect("data directory");
        let key = Key::open(&data).expect("key");
        (home, data, key)
    }

    fn signed(key: &Key, sequence: u64) -> Signed {
        let workspace = "w\"\\".parse().expect("id");
        let hash = Sha256::of(&sequence.to_le_bytes());
        key.sign(workspace, sequence, hash, Timestamp::from_millis(0))
    }

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_home, data, key) = directory();
        assert_eq!(Key::open(&data).expect("key").public(), key.public());
        let file = std::fs::metadata(data.join(KEY_FILE)).expect("file");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        std::fs::write(data.join(KEY_FILE), "odd").expect("written");
        assert!(Key::open(&data).is_err());
    }

    #[test]
    fn what_is_signed_is_canonical_and_each_part_of_it_counts() {
        let (_home, _data, key) = directory();
        let genuine = signed(&key, 7);
        assert!(genuine.is_genuine());
        assert_eq!(
            serde_json::to_vec(&genuine.payload).expect("written"),
            serde_json_canonicalizer::to_vec(&genuine.payload).expect("canonical")
        );
        let forge = |forged: fn(&mut Signed)| {
            let mut other = genuine.clone();
            forged(&mut other);
            assert!(!other.is_genuine(), "{other:?}");
        };
        forge(|it| it.payload.sequence = 6);
        forge(|it| it.payload.hash = Sha256::ZERO);
        forge(|it| it.payload.at.push('Z'));
        forge(|it| it.payload.workspace_id = "other".parse().expect("id"));
        forge(|it| it.payload.format = "postern-checkpoint-2".to_owned());
        forge(|it| it.payload.public_key = "00".repeat(32));
        forge(|it| it.signature = "00".repeat(64));
        forge(|it| it.signature.clear());
    }

    #[test]
    fn what_is_kept_is_told_with_what_is_wrong_about_it() {
        let (_home, data, key) = directory();
        let write =
            |name: &str, text: &str| std::fs::write(data.join(name), text).expect("written");
        let problem = || kept(data.path()).expect("read").problem.unwrap_or_default();
        assert!(problem().contains("taken away"), "{}", problem());

        let (one, other) = (signed(&key, 1), signed(&key, 2));
        write(FILE, &text_of(std::slice::from_ref(&other)));
        write(LOST_FILE, &text_of(std::slice::from_ref(&one)));
        let read = kept(data.path()).expect("read");
        assert_eq!(
            (read.signed, read.problem),
            (vec![other.clone(), one], None)
        );

        for (text, told) in [("{}", "damaged"), ("odd", "damaged"), ("", "damaged")] {
            write(FILE, text);
            assert!(problem().contains(told), "{}", problem());
        }
        let mut forged = other;
        forged.payload.sequence = 9;
        write(FILE, &text_of(&[forged]));
        assert!(problem().contains("not signed by the key"), "{}", problem());
        let (_elsewhere, _other_data, foreign) = directory();
        write(FILE, &text_of(&[signed(&foreign, 2)]));
        assert!(problem().contains("not signed by the key"), "{}", problem());
        std::fs::remove_file(data.join(KEY_FILE)).expect("removed");
        assert!(problem().contains("is missing"), "{}", problem());
    }
}
