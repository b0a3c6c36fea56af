//! A map that forgets what was put into it least recently.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// At most `max` entries.
pub(crate) struct Recent<K, V> {
    /// With the number of the last put.
    map: HashMap<K, (V, u64)>,
    /// All puts in order; an older one of the same key counts no more.
    order: VecDeque<(K, u64)>,
    puts: u64,
    max: usize,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub fn new(max: usize) -> Self {
        Recent { map: HashMap::new(), order: VecDeque::new(), puts: 0, max }
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key).map(|(value, _)| value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key).map(|(value, _)| value)
    }

    pub fn put(&mut self, key: K, value: V) {
        self.puts += 1;
        self.map.insert(key.clone(), (value, self.puts));
        self.order.push_back((key, self.puts));
        while self.map.len() > self.max {
            let Some(oldest) = self.order.pop_front() else { break };
            if self.counts(&oldest) {
                self.map.remove(&oldest.0);
            }
        }
        if self.order.len() > 2 * self.max {
            let order = std::mem::take(&mut self.order);
            self.order = order.into_iter().filter(|put| self.counts(put)).collect();
        }
    }

    pub fn forget(&mut self, key: &K) {
        self.map.remove(key);
    }

    /// The keys, the one that was put least recently first.
    #[cfg(feature = "testing")]
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.order.iter().filter(|put| self.counts(put)).map(|(key, _)| key)
    }

    fn counts(&self, (key, put): &(K, u64)) -> bool {
        self.map.get(key).is_some_and(|(_, last)| last == put)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_least_recently_goes_first() {
        let mut recent = Recent::new(3);
        for key in 0..3 {
            recent.put(key, key);
        }
        recent.put(0, 10);
        recent.put(3, 3);
        let have = |recent: &Recent<i32, i32>| {
            (0..5).filter_map(|key| recent.get(&key).copied()).collect::<Vec<_>>()
        };
        assert_eq!(have(&recent), [10, 2, 3]);
        recent.forget(&0);
        recent.put(0, 20);
        recent.put(4, 4);
        assert_eq!(have(&recent), [20, 3, 4], "it was put once more");
    }

    #[test]
    fn it_holds_no_more_than_it_may() {
        let mut recent = Recent::new(8);
        for n in 0..1000 {
            recent.put(n % 5, n);
            recent.put(5 + n % 100, n);
            assert!(recent.map.len() <= 8 && recent.order.len() <= 16);
        }
    }
}
