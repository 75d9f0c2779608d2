//! The valid tokens in memory, so that authenticating costs microseconds and a revocation by this process is in force at once.
//! The store stays the truth: this is loaded from it at the start and changed only after it.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Instant,
};

use postern_types::{Sha256, Timestamp};
use subtle::ConstantTimeEq as _;

use super::model::{Token, is_before};
use crate::Error;

/// Valid tokens of a host at most: a bound on memory (some 500 bytes each), far above what one host serves.
const MAX_TOKENS: usize = 10_000;
/// Workspaces that one channel token may open at most. A token holds 4 channels at a time, so more than a few are rare.
pub(super) const MAX_DOORS: usize = 64;

/// A workspace that a channel token opens, and until when.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) token_id: String,
    pub(super) workspace_id: String,
    pub(super) until: Option<Timestamp>,
}

/// Whether what is in memory counts as true.
#[derive(Debug, Default)]
pub(super) enum Fresh {
    /// It was not read yet, or could not follow the store. Only reading everything anew changes that.
    #[default]
    Not,
    /// As long as nobody has looked again.
    Until(Instant),
    /// Nobody else changes the store.
    Always,
}

/// Valid tokens.
#[derive(Debug, Default)]
pub(super) struct Index {
    fresh: Fresh,
    /// By the first eight bytes of the digest. The rest is compared in constant time, so the time of a look-up tells
    /// nothing of a digest that an attacker could search for.
    by_digest: HashMap<[u8; 8], Vec<Arc<Token>>>,
    by_id: HashMap<String, Arc<Token>>,
    doors: HashMap<String, Vec<Door>>,
}

impl Index {
    /// Refuses when others may have changed the store since the last look.
    pub(super) fn must_be_fresh(&self) -> Result<(), Error> {
        let is_fresh = match self.fresh {
            Fresh::Not => false,
            Fresh::Until(end) => Instant::now() < end,
            Fresh::Always => true,
        };
        if is_fresh { Ok(()) } else { Err(Error::Away) }
    }

    /// What is here counts as true until then, if it did.
    pub(super) fn stay_fresh_until(&mut self, end: Instant) {
        if !self.is_lost() {
            self.fresh = Fresh::Until(end);
        }
    }

    /// What is here is true no more. Tells whether it counted as that before.
    pub(super) fn lose(&mut self) -> bool {
        !matches!(std::mem::take(&mut self.fresh), Fresh::Not)
    }

    /// Whether everything has to be read anew.
    pub(super) const fn is_lost(&self) -> bool {
        matches!(self.fresh, Fresh::Not)
    }

    /// Takes another's content, which was read just now.
    pub(super) fn replace(&mut self, other: Self, fresh: Fresh) {
        *self = Self { fresh, ..other };
    }

    /// The token of that digest, if it is valid.
    pub(super) fn by_digest(&self, digest: &Sha256, now: Timestamp) -> Option<Arc<Token>> {
        let candidates = self.by_digest.get(&head(digest))?;
        let mut found = None;
        for token in candidates {
            if bool::from(token.digest.as_bytes().ct_eq(digest.as_bytes())) {
                found = Some(token);
            }
        }
        found.filter(|token| token.is_valid(now)).cloned()
    }

    /// The token of that id, if it is valid.
    pub(super) fn by_id(&self, id: &str, now: Timestamp) -> Option<Arc<Token>> {
        self.by_id
            .get(id)
            .filter(|token| token.is_valid(now))
            .cloned()
    }

    /// The workspaces that a token may open or is active in.
    pub(super) fn workspaces(&self, token: &Token, now: Timestamp) -> Vec<String> {
        if let Some((workspace_id, _)) = &token.active {
            return vec![workspace_id.clone()];
        }
        let Some(doors) = self.doors.get(&token.id) else {
            return Vec::new();
        };
        doors
            .iter()
            .filter(|door| is_before(now, door.until))
            .map(|door| door.workspace_id.clone())
            .collect()
    }

    /// Refuses when another token would pass the bound.
    pub(super) fn must_have_room(&mut self, now: Timestamp) -> Result<(), Error> {
        if self.by_id.len() < MAX_TOKENS {
            return Ok(());
        }
        let over: Vec<String> = self
            .by_id
            .values()
            .filter(|token| !token.is_valid(now))
            .map(|token| token.id.clone())
            .collect();
        for id in over {
            self.remove(&id);
        }
        if self.by_id.len() < MAX_TOKENS {
            return Ok(());
        }
        Err(Error::exhausted(
            "too_many_tokens",
            format!("This host keeps {MAX_TOKENS} valid tokens at most. Revoke some first."),
        ))
    }

    /// Refuses when the token could not open one workspace more.
    pub(super) fn must_have_door(&self, token_id: &str, workspace_id: &str) -> Result<(), Error> {
        let doors = self.doors.get(token_id).map_or(&[][..], Vec::as_slice);
        if doors.len() < MAX_DOORS || doors.iter().any(|door| door.workspace_id == workspace_id) {
            return Ok(());
        }
        Err(Error::exhausted(
            "too_many_workspaces",
            format!("A channel token carries {MAX_DOORS} workspaces at most. Mint another."),
        ))
    }

    /// Adds a valid token.
    pub(super) fn insert(&mut self, token: Token) {
        let token = Arc::new(token);
        self.by_digest
            .entry(head(&token.digest))
            .or_default()
            .push(Arc::clone(&token));
        self.by_id.insert(token.id.clone(), token);
    }

    /// Lets a channel token open a workspace. There is one door for each: until the last of the launches there is over.
    pub(super) fn open_door(&mut self, door: Door) {
        self.doors
            .entry(door.token_id.clone())
            .or_default()
            .push(door);
    }

    /// Takes a token away.
    pub(super) fn remove(&mut self, id: &str) {
        let Some(token) = self.by_id.remove(id) else {
            return;
        };
        self.doors.remove(id);
        if let Entry::Occupied(mut entry) = self.by_digest.entry(head(&token.digest)) {
            entry.get_mut().retain(|other| other.id != id);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }
}

fn head(digest: &Sha256) -> [u8; 8] {
    let mut head = [0; 8];
    head.copy_from_slice(&digest.as_bytes()[..8]);
    head
}
