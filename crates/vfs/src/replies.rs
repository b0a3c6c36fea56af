//! First answers of calls that may come again (RFC 1813 §4.5). They stand in the journal record of the operation,
//! so that a call repeated after a restart gets its first answer too.

use crate::limits;
use crate::types::Oid;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Keys of executed calls of all volumes; the oldest are forgotten. Its lock is a leaf, held for nanoseconds, so that no
/// call waits for another volume.
#[derive(Debug, Default)]
pub struct Replies {
    /// The object of a call, and the number that the key has in `order`.
    by_key: HashMap<[u8; 16], (Oid, u64)>,
    /// Also keys that are forgotten or stand there again, under another number.
    order: VecDeque<([u8; 16], u64)>,
    next: u64,
}

impl Replies {
    /// The call `key` was executed on `object`.
    pub fn insert(&mut self, key: [u8; 16], object: Oid) {
        match self.by_key.get_mut(&key) {
            Some(known) => known.0 = object,
            None => {
                self.by_key.insert(key, (object, self.next));
                self.order.push_back((key, self.next));
                self.next += 1;
            }
        }
        while self.order.len() > limits::REPLIES_MAX {
            let Some((old, number)) = self.order.pop_front() else { break };
            if self.by_key.get(&old).is_some_and(|known| known.1 == number) {
                self.by_key.remove(&old);
            }
        }
    }

    /// The call turned out not to be executed.
    pub fn remove(&mut self, key: &[u8; 16]) {
        self.by_key.remove(key);
    }

    /// The object of an executed call.
    pub fn get(&self, key: &[u8; 16]) -> Option<Oid> {
        self.by_key.get(key).map(|known| known.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> [u8; 16] {
        (n as u128).to_be_bytes()
    }

    #[test]
    fn the_oldest_call_is_forgotten_first_and_one_that_came_again_counts_from_then_on() {
        let mut replies = Replies::default();
        let object = |id| Oid { volume: 1, id };
        (0..limits::REPLIES_MAX).for_each(|n| replies.insert(key(n), object(n as u64)));
        replies.remove(&key(0));
        replies.insert(key(0), object(7));
        assert_eq!((replies.get(&key(0)), replies.get(&key(1))), (Some(object(7)), Some(object(1))));
        replies.insert(key(limits::REPLIES_MAX), object(8));
        assert_eq!((replies.get(&key(0)), replies.get(&key(1))), (Some(object(7)), None));
        assert_eq!(replies.order.len(), limits::REPLIES_MAX);
    }
}
