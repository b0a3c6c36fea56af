//! Counters that `trellis status` shows.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often the caches sufficed.
#[derive(Debug, Default)]
pub struct Stats {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Stats {
    /// A call was answered without asking a home.
    pub fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// A call had to ask a home.
    pub fn miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Hits and misses since the start.
    pub fn read(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}
