//! A narrow ordered key-value store for what can be rebuilt: the index of ids, names and attributes.
//!
//! Keys begin with one byte that names their keyspace; the rest of the key is the caller's and is ordered
//! bytewise. A [`MetaStore::commit`] is atomic but not durable: a power cut loses the newest ones, and the
//! journal brings them back. [`MetaStore::persist`] makes all earlier ones durable, after which the journal
//! may forget its records.

mod fjall;
mod memory;
#[cfg(test)]
mod tests;

pub use fjall::FjallStore;
pub use memory::MemStore;

use crate::env::Result;
use bytes::Bytes;

/// One change of a batch: a key and its new value; `None` removes it.
pub type Write = (Vec<u8>, Option<Vec<u8>>);

/// An ordered key-value store. Calls may run concurrently; they may block on the disk for a short while.
pub trait MetaStore: Send + Sync {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;
    /// All keys that begin with `prefix` (at least the keyspace's byte), in order, with their values.
    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>>;
    /// Applies all or none; visible to `get` and `scan` when it returns, not durable.
    fn commit(&self, batch: Vec<Write>) -> Result<()>;
    /// Makes all earlier commits durable.
    fn persist(&self) -> Result<()>;
}
