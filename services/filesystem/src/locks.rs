//! One change at a time for each target.

use std::{
    collections::HashMap,
    ffi::OsString,
    sync::{Arc, Mutex},
};

use tokio::sync::OwnedMutexGuard;

use crate::jobs::hold;

/// Unused locks that may lie around before they are swept away; each stands for a call that gave up waiting.
const SWEEP_AT: usize = 1024;

/// A target: the directory by its identity, so that every path to it means the same lock, and the name in it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Key {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) name: OsString,
}

type Lock = Arc<tokio::sync::Mutex<()>>;

/// The locks that somebody holds or waits for.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<HashMap<Key, Lock>>);

/// A target that no other call changes meanwhile.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) key: Key,
    guard: Option<OwnedMutexGuard<()>>,
    locks: Arc<Locks>,
}

impl Locks {
    /// Locks a target if nobody else has it.
    pub(crate) fn try_lock(self: &Arc<Self>, key: &Key) -> Option<Held> {
        let guard = self.of(key).try_lock_owned().ok()?;
        Some(self.held(key, guard))
    }

    /// Waits for a target.
    pub(crate) async fn lock(self: &Arc<Self>, key: &Key) -> Held {
        let guard = self.of(key).lock_owned().await;
        self.held(key, guard)
    }

    fn held(self: &Arc<Self>, key: &Key, guard: OwnedMutexGuard<()>) -> Held {
        Held {
            key: key.clone(),
            guard: Some(guard),
            locks: Arc::clone(self),
        }
    }

    fn of(&self, key: &Key) -> Lock {
        let mut locks = hold(&self.0);
        if locks.len() >= SWEEP_AT {
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        Arc::clone(locks.entry(key.clone()).or_default())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = hold(&self.locks.0);
        if locks
            .get(&self.key)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            device: 1,
            inode: 2,
            name: name.into(),
        }
    }

    #[tokio::test]
    async fn a_target_is_held_once_and_forgotten_after() {
        let locks = Arc::new(Locks::default());
        let target = key("a");
        let held = locks.try_lock(&target).expect("free");
        assert!(locks.try_lock(&target).is_none());
        let other = locks.try_lock(&key("b")).expect("another target");
        let waiting = locks.lock(&target);
        tokio::pin!(waiting);
        assert!(
            tokio::time::timeout(std::time::Duration::ZERO, waiting.as_mut())
                .await
                .is_err()
        );
        drop(held);
        drop(waiting.await);
        drop(other);
        assert!(hold(&locks.0).is_empty());
    }
}
