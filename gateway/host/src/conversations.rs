//! Wire sessions of conversations. A (token, key) has the same session for good, so what is known is never asked again.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use postern_kit::Failure;

use crate::identity::Identity;

/// Conversations of one generation. Two generations are kept, so this many of the last used are known at least.
const GENERATION: usize = 4096;

type Sessions = HashMap<(String, String), String>;

#[derive(Default)]
struct Generations {
    young: Sessions,
    old: Sessions,
}

pub(crate) struct Conversations {
    identity: Identity,
    known: Mutex<Generations>,
}

impl Conversations {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            identity,
            known: Mutex::default(),
        }
    }

    /// The wire session of a conversation.
    ///
    /// # Errors
    /// When identity does not answer.
    pub(crate) async fn session(&self, token_id: &str, key: &str) -> Result<String, Failure> {
        let conversation = (token_id.to_owned(), key.to_owned());
        if let Some(session) = self.known().get(&conversation) {
            return Ok(session);
        }
        let session = self.identity.conversation(token_id, key).await?;
        self.known().insert(conversation, session.clone());
        Ok(session)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Generations> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&mut self, conversation: &(String, String)) -> Option<String> {
        if let Some(session) = self.young.get(conversation) {
            return Some(session.clone());
        }
        let (conversation, session) = self.old.remove_entry(conversation)?;
        self.insert(conversation, session.clone());
        Some(session)
    }

    fn insert(&mut self, conversation: (String, String), session: String) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(conversation, session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_used_are_known_and_the_number_is_bounded() {
        let mut known = Generations::default();
        let conversation = |number: usize| ("token".to_owned(), number.to_string());
        known.insert(conversation(0), "first".to_owned());
        for number in 1..3 * GENERATION {
            known.insert(conversation(number), "other".to_owned());
            if number % 1000 == 0 {
                assert_eq!(known.get(&conversation(0)).as_deref(), Some("first"));
            }
        }
        assert!(known.young.len() + known.old.len() <= 2 * GENERATION);
        assert_eq!(known.get(&conversation(1)), None);
    }
}
