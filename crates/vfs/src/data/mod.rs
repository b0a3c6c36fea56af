//! The data cache.

use crate::env::{Env, Result};
use crate::journal::Extent;
use bytes::Bytes;
use home::Version;
use std::io;
use std::sync::Arc;

/// The data log of one volume.
pub struct DataLog {}

/// A cap on the bytes of all data logs together.
pub struct Budget {}

/// Whether bytes may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// The home has them too.
    Clean,
    /// Only we have them, until [`DataLog::unpin`].
    Dirty,
}

/// A part of an answer to [`DataLog::get`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Bytes.
    Have(Bytes),
    /// Not in the cache.
    Gap {
        /// Offset in the file.
        at: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// What a data log takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes that only we have.
    pub dirty_bytes: u64,
}

impl Budget {
    /// At most `cap` bytes.
    pub fn new(_cap: u64) -> Arc<Budget> {
        todo!()
    }
    /// Bytes used by all logs.
    pub fn used(&self) -> u64 {
        todo!()
    }
}

impl DataLog {
    /// Opens or makes the log of a volume.
    pub fn open(_env: &Env, _volume: u32, _cap: Arc<Budget>) -> Result<Arc<DataLog>> {
        todo!()
    }
    /// Appends and indexes bytes.
    pub fn put(&self, _object: u64, _at: u64, _data: &[Bytes], _pin: Pin) -> Result<Extent> {
        todo!()
    }
    /// Recovery: lays a journalled extent over the index and pins it.
    pub fn insert(&self, _object: u64, _at: u64, _extent: Extent) {
        todo!()
    }
    /// Its record retired.
    pub fn unpin(&self, _extent: &Extent) {
        todo!()
    }
    /// The parts that cover [at, at+len).
    pub fn get(&self, _object: u64, _at: u64, _len: u32) -> Vec<Part> {
        todo!()
    }
    /// The ranges (offset, length) of [at, at+len) that are not cached.
    pub fn gaps(&self, _object: u64, _at: u64, _len: u64) -> Vec<(u64, u64)> {
        todo!()
    }
    /// The version of what is cached.
    pub fn version(&self, _object: u64) -> Option<Version> {
        todo!()
    }
    /// All that is indexed now is this version.
    pub fn set_version(&self, _object: u64, _v: Version) {
        todo!()
    }
    /// Forgets all bytes of an object.
    pub fn drop_object(&self, _object: u64) {
        todo!()
    }
    /// Forgets what is beyond `size`.
    pub fn truncate(&self, _object: u64, _size: u64) {
        todo!()
    }
    /// Reads an extent for write-back, checksum verified.
    pub fn read_extent(&self, _e: &Extent) -> Result<Bytes> {
        todo!()
    }
    /// Makes the extents that records name durable.
    pub fn sync(&self) -> io::Result<()> {
        todo!()
    }
    /// What the log takes.
    pub fn usage(&self) -> Usage {
        todo!()
    }
}
