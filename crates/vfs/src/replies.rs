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
    by_key: HashMap<[u8; 16], Oid>,
    order: VecDeque<[u8; 16]>,
}

impl Replies {
    /// The call `key` was executed on `object`.
    pub fn insert(&mut self, key: [u8; 16], object: Oid) {
        if self.by_key.insert(key, object).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > limits::REPLIES_MAX {
            if let Some(old) = self.order.pop_front() {
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
        self.by_key.get(key).copied()
    }
}
