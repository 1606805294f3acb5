//! What came before, for a while: a bounded memory.

use std::collections::{BTreeSet, VecDeque};

/// Keys that were seen, each until a second. When it is full, the oldest is forgotten first.
#[derive(Debug)]
pub(super) struct Seen<K> {
    keys: BTreeSet<K>,
    order: VecDeque<(u64, K)>,
    most: usize,
}

impl<K: Ord + Clone> Seen<K> {
    pub(super) const fn of(most: usize) -> Self {
        Self { keys: BTreeSet::new(), order: VecDeque::new(), most }
    }

    /// True the first time; the key is then remembered until the second `until`.
    pub(super) fn is_first(&mut self, key: &K, until: u64, now: u64) -> bool {
        while self.order.front().is_some_and(|(end, _)| *end < now) || self.order.len() >= self.most.max(1) {
            if let Some((_, old)) = self.order.pop_front() {
                self.keys.remove(&old);
            }
        }
        if !self.keys.insert(key.clone()) {
            return false;
        }
        self.order.push_back((until, key.clone()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Seen;

    #[test]
    fn a_key_is_new_once_until_its_time() {
        let mut seen = Seen::of(10);
        assert!(seen.is_first(&"a", 100, 1));
        assert!(!seen.is_first(&"a", 100, 100));
        assert!(seen.is_first(&"a", 300, 101));
    }

    #[test]
    fn it_stays_bounded() {
        let mut seen = Seen::of(3);
        for key in 0..1000 {
            assert!(seen.is_first(&key, 100, 1));
        }
        assert!(seen.keys.len() <= 3 && seen.order.len() <= 3);
        assert!(!seen.is_first(&998, 100, 1), "the newest are remembered");
    }
}
