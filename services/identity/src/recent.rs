//! A bounded memory of what was used lately.

use std::{borrow::Borrow, collections::HashMap, hash::Hash, mem};

/// Remembers at least the last `capacity` entries used and at most twice as many: when the young half is full it becomes the
/// old one, and what was in the old one and not used since is forgotten. Nothing here is the truth, so forgetting only costs
/// a look into the store.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    capacity: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    /// Remembers nothing yet.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    /// The remembered value.
    pub(crate) fn get<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    /// Remembers a value.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.capacity {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_used_and_stays_bounded() {
        let mut recent = Recent::new(10);
        recent.insert(0, "kept");
        for key in 1..1000 {
            assert_eq!(recent.get(&0), Some("kept"), "{key}");
            recent.insert(key, "passing");
            assert!(recent.young.len() + recent.old.len() <= 20);
        }
        assert_eq!(recent.get(&1), None);
        recent.clear();
        assert_eq!(recent.get(&0), None);
    }
}
