//! A prefetch that a command asked for: it belongs to the connection, and ends with it.

use super::proto::{Raw, Reply};
use crate::limits;
use serde::{Deserialize, Serialize};
use vfs::{Cred, Prefetch, PrefetchProgress, Vfs};

/// How far a prefetch is. Numbers are of the whole of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PrefetchReport {
    /// Paths that were not looked at yet.
    pub waiting: usize,
    /// Names that were found in directories.
    pub names: u64,
    /// Directories that were listed.
    pub directories: u64,
    /// Files that were found, and those that are whole in the cache.
    pub files: (u64, u64),
    /// Their bytes.
    pub bytes: (u64, u64),
    /// Bytes that came from the homes.
    pub fetched: u64,
    /// What was worked on last.
    pub last: Raw,
    /// What could not be had since the last report, and why.
    pub failed: Vec<(Raw, String)>,
    /// Failures that are not told.
    pub more_failed: u64,
    /// Why it went no further.
    pub full: Option<String>,
    /// There is nothing left to do.
    pub over: bool,
}

impl From<PrefetchProgress> for PrefetchReport {
    fn from(p: PrefetchProgress) -> PrefetchReport {
        let failed = p.failed.iter().map(|(path, why)| (Raw(path.to_vec()), why.detail.clone()));
        PrefetchReport {
            waiting: p.waiting,
            names: p.names,
            directories: p.dirs,
            files: p.files,
            bytes: p.bytes,
            fetched: p.fetched,
            last: Raw(p.last.to_vec()),
            failed: failed.collect(),
            more_failed: p.more_failed,
            full: p.full.map(|why| why.detail),
            over: p.over,
        }
    }
}

/// What a connection has begun.
#[derive(Default)]
pub(super) struct Begun(Option<Prefetch>);

impl Begun {
    /// Adds paths, beginning with the first ones.
    pub(super) fn add(&mut self, vfs: &Vfs, cred: &Cred, paths: Vec<Raw>, names_only: bool) -> Reply {
        let begun = self.0.get_or_insert_with(|| vfs.prefetch(cred.clone(), names_only));
        begun.add(paths.into_iter().map(|path| path.0.into()));
        Reply::Done
    }

    /// How far it is, soon, or when it is over.
    pub(super) async fn report(&self) -> Reply {
        let report = match &self.0 {
            Some(begun) => begun.progress(limits::PROGRESS_EVERY).await.into(),
            None => PrefetchReport { over: true, ..PrefetchReport::default() },
        };
        Reply::Prefetched(Box::new(report))
    }
}
