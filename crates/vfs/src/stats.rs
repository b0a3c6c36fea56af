//! Counters that `trellis status` shows.

use crate::hold::Crowd;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

tokio::task_local! {
    /// The request of a front-end that is being answered.
    static REQUEST: Request;
}

struct Request {
    /// Whether it has waited for a home.
    waited: Cell<bool>,
    /// Of the connection that it came by, if that takes only so many at a time.
    crowd: Option<Crowd>,
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
    pub async fn request<T>(&self, crowd: Option<Crowd>, request: impl Future<Output = T>) -> T {
        let waited = async {
            let answer = request.await;
            (answer, REQUEST.with(|request| request.waited.get()))
        };
        let (answer, waited) = REQUEST.scope(Request { waited: Cell::new(false), crowd }, waited).await;
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
    let _ = REQUEST.try_with(|request| request.waited.set(true));
}

/// The crowd of the request that is being answered. What is done for nobody in particular has none.
pub fn crowd() -> Option<Crowd> {
    REQUEST.try_with(|request| request.crowd.clone()).ok().flatten()
}
