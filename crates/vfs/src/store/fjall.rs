//! The store on disk: one fjall keyspace in a directory of its own.

use super::{MetaStore, Write};
use crate::env::{Error, Result};
use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;

/// Bytes of blocks that are kept in memory.
const CACHE_BYTES: u64 = 64 << 20;
/// Bytes of fjall's own journal before memory tables are written out.
const JOURNAL_BYTES: u64 = 128 << 20;

/// A [`MetaStore`] in a directory.
pub struct FjallStore {
    db: Database,
    all: Keyspace,
}

impl FjallStore {
    /// Opens or makes the store in the directory `dir`, which belongs to it alone.
    pub fn open(dir: &Path) -> Result<FjallStore> {
        let fail = |e| failed(&format!("open {}", dir.display()), &e);
        let db = Database::builder(dir)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES)
            .worker_threads(1)
            .open()
            .map_err(fail)?;
        let all = db.keyspace("meta", KeyspaceCreateOptions::default).map_err(fail)?;
        Ok(FjallStore { db, all })
    }
}

impl MetaStore for FjallStore {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.all.get(key).map_err(|e| failed("get", &e))?;
        Ok(value.map(|v| Bytes::copy_from_slice(&v)))
    }

    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>> {
        let pair = |g: fjall::Guard| {
            let (k, v) = g.into_inner().map_err(|e| failed("scan", &e))?;
            Ok((Bytes::copy_from_slice(&k), Bytes::copy_from_slice(&v)))
        };
        self.all.prefix(prefix).map(pair).collect()
    }

    fn commit(&self, batch: Vec<Write>) -> Result<()> {
        let mut b = self.db.batch();
        for (key, value) in batch {
            match value {
                Some(v) => b.insert(&self.all, key, v),
                None => b.remove(&self.all, key),
            }
        }
        b.commit().map_err(|e| failed("commit", &e))
    }

    fn persist(&self) -> Result<()> {
        self.db.persist(PersistMode::SyncData).map_err(|e| failed("persist", &e))
    }
}

fn failed(doing: &str, e: &fjall::Error) -> Error {
    match e {
        fjall::Error::Io(io) => Error::io(format_args!("metadata index: {doing}"), io),
        e => Error::Io(format!("metadata index: {doing}: {e}")),
    }
}
