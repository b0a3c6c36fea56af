//! Counters that `trellis status` shows.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

tokio::task_local! {
    /// Whether the request of a front-end that is being answered has waited for a home.
    static WAITED: Cell<bool>;
}

/// How often the caches sufficed.
#[derive(Debug, Default)]
pub struct Stats {
    hits: AtomicU64,
    misses: AtomicU64,
    requests: AtomicU64,
    waited: AtomicU64,
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

    /// Answers a request of a front-end, and counts it.
    pub async fn request<T>(&self, request: impl Future<Output = T>) -> T {
        let waited = async {
            let answer = request.await;
            (answer, WAITED.with(Cell::get))
        };
        let (answer, waited) = WAITED.scope(Cell::new(false), waited).await;
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.waited.fetch_add(waited.into(), Ordering::Relaxed);
        answer
    }

    /// Requests that were answered since the start, and how many of them had waited for a home.
    pub fn requests(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.waited.load(Ordering::Relaxed))
    }
}

/// The request that is being answered, if one is, waits for a home.
pub fn waits() {
    // What is done for nobody in particular is no request.
    let _ = WAITED.try_with(|waited| waited.set(true));
}
