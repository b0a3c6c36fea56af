//! The store on disk: one fjall keyspace in a directory of its own.

use super::{MetaStore, Write};
use crate::env::{Error, Result};
use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::{Path, PathBuf};

/// Bytes of blocks that are kept in memory.
const CACHE_BYTES: u64 = 64 << 20;
/// Bytes that stay free on its disk. After a write that found no space fjall refuses all others until it is opened
/// again, and half a batch may be in its journal; so it never gets to see a full disk.
const KEPT_FREE: u64 = 8 << 20;
/// Bytes of fjall's own journal before memory tables are written out.
const JOURNAL_BYTES: u64 = 128 << 20;

/// A [`MetaStore`] in a directory.
pub struct FjallStore {
    db: Database,
    all: Keyspace,
    dir: PathBuf,
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
        Ok(FjallStore { db, all, dir: dir.to_owned() })
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

    fn commit(&self, mut batch: Vec<Write>) -> Result<()> {
        // Neighbours one after the other find their place in memory on the way that the one before has just gone. Those of
        // the same key stay in their order.
        batch.sort_by(|(a, _), (b, _)| a.cmp(b));
        let size = |(key, value): &Write| key.len() + value.as_ref().map_or(0, Vec::len);
        room_for(&self.dir, batch.iter().map(size).sum::<usize>() as u64)?;
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

/// [`Error::Full`] where a batch of so many bytes would leave too little.
fn room_for(dir: &Path, bytes: u64) -> Result<()> {
    let disk = rustix::fs::statvfs(dir).map_err(|e| Error::io(dir.display(), &e.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < KEPT_FREE + 2 * bytes {
        return Err(Error::Full(format!("{free} bytes are free on the disk of {}", dir.display())));
    }
    Ok(())
}

fn failed(doing: &str, e: &fjall::Error) -> Error {
    match e {
        fjall::Error::Io(io) => Error::io(format_args!("metadata index: {doing}"), io),
        e => Error::Io(format!("metadata index: {doing}: {e}")),
    }
}
