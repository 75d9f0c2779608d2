//! A bounded memory of what was seen lately.

use std::{collections::HashMap, hash::Hash};

/// Holds at least the `half` youngest entries and at most twice as many. Costs the same whatever it holds.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    pub(crate) fn new(half: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            half,
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_only_the_oldest() {
        let mut recent = Recent::new(10);
        for key in 0..1000 {
            recent.insert(key, ());
            assert!(recent.young.len() + recent.old.len() <= 20);
        }
        assert!((990..1000).all(|key| recent.get(&key).is_some()));
        assert!(recent.get(&0).is_none());
        recent.remove(&999);
        assert!(recent.get(&999).is_none());
    }
}
