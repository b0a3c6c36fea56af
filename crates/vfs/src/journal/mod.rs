//! The journal.

pub mod record;
pub use record::{Binding, Body, Change, Extent, Fate, Retire, Stored};

use crate::data::DataLog;
use crate::env::{Env, Result};
use std::sync::Arc;

/// Most bytes of a write that stand in the record itself; more go to the data log first.
pub const INLINE_MAX: usize = 64 << 10;

/// The shared group-commit thread.
pub struct Journal {}

/// The journal of one volume.
pub struct Lane {}

impl Journal {
    /// Starts the thread.
    pub fn start(_env: &Env) -> Arc<Journal> {
        todo!()
    }
    /// Opens or makes the lane of a volume; answers the records found, oldest first.
    pub fn open_lane(
        self: &Arc<Self>,
        _volume: u32,
        _data: Arc<DataLog>,
    ) -> Result<(Arc<Lane>, Vec<(u64, Body)>)> {
        todo!()
    }
    /// Commits what is buffered and ends the thread.
    pub fn stop(&self) {
        todo!()
    }
}

impl Lane {
    /// Buffers a record and answers its number.
    pub fn append(&self, _body: Body) -> Result<u64> {
        todo!()
    }
    /// Waits until the record is durable.
    pub async fn synced(&self, _seq: u64) -> Result<()> {
        todo!()
    }
    /// Whether the record is durable.
    pub fn is_synced(&self, _seq: u64) -> bool {
        todo!()
    }
    /// Why the lane stopped, if it did.
    pub fn poisoned(&self) -> Option<String> {
        todo!()
    }
    /// The number of the last record appended; 0 if there is none.
    pub fn last(&self) -> u64 {
        todo!()
    }
    /// Allows segments whose records are all below `seq` to be deleted.
    pub fn forget_below(&self, _seq: u64) {
        todo!()
    }
    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        todo!()
    }
}
