//! A map that forgets its oldest entries.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

pub(super) struct Recent<K, V> {
    map: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Recent { map: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }

    pub fn put(&mut self, key: K, value: V, max: usize) {
        if self.map.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
        while self.map.len() > max {
            let Some(oldest) = self.order.pop_front() else { break };
            self.map.remove(&oldest);
        }
    }

    pub fn forget(&mut self, key: &K) {
        if self.map.remove(key).is_some() {
            self.order.retain(|k| k != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_memory_goes_first() {
        let mut recent = Recent::default();
        (0..5).for_each(|i| recent.put(i, i, 3));
        recent.put(4, 40, 3);
        assert_eq!((recent.map.len(), recent.get(&1), recent.get(&4)), (3, None, Some(&40)));
    }
}
