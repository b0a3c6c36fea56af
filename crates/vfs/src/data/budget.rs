//! One cap for the data logs of all volumes.

use super::{DataLog, Share};
use crate::env::{Error, Result};
use home::Time;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Bytes of a segment, unless the cap is small.
const SEGMENT_LEN: u64 = 64 << 20;
/// Smallest segment, which still takes the largest write of a client many times.
const SEGMENT_LEN_MIN: u64 = 4 << 20;

/// How many bytes there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// As many as the cap says.
    Within,
    /// Half as many again, before anything is evicted: for what must be here, all at once, before the home can be sent what
    /// fills the cache.
    Beyond,
}

/// A cap on the bytes of all data logs together. What is over it evicts the oldest segment of any log; bytes that
/// only we have are never evicted, but count.
pub struct Budget {
    cap: u64,
    segment_len: u64,
    used: AtomicU64,
    /// Of those, bytes of segments that may not be evicted.
    held: AtomicU64,
    /// A lock of its own: a log that ends wakes who waits, and may end while logs are looked through.
    shares: Mutex<Vec<Weak<Share>>>,
    logs: Mutex<Vec<Weak<DataLog>>>,
}

impl Budget {
    /// At most `cap` bytes.
    pub fn new(cap: u64) -> Arc<Budget> {
        Budget::with_segments(cap, (cap / 16).clamp(SEGMENT_LEN_MIN, SEGMENT_LEN))
    }

    /// The same with smaller segments where the cap is small, so that a simulation gets through many of them.
    #[cfg(feature = "testing")]
    pub fn small(cap: u64) -> Arc<Budget> {
        Budget::with_segments(cap, (cap / 4).min(SEGMENT_LEN_MIN))
    }

    pub(super) fn with_segments(cap: u64, segment_len: u64) -> Arc<Budget> {
        Arc::new(Budget {
            cap,
            segment_len,
            used: AtomicU64::new(0),
            held: AtomicU64::new(0),
            shares: Mutex::default(),
            logs: Mutex::default(),
        })
    }

    /// The cap.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Bytes used by all logs.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How many wait for room, in all lines.
    pub fn waiting(&self) -> usize {
        self.shares.lock().iter().filter_map(Weak::upgrade).map(|share| share.line().len()).sum()
    }

    /// There may be room now, for the first of each line: what one volume gives back is room for all.
    pub(super) fn wake(&self) {
        self.shares.lock().iter().filter_map(Weak::upgrade).for_each(|share| share.line().wake());
    }

    pub(super) fn join(&self, share: &Arc<Share>) {
        let mut shares = self.shares.lock();
        shares.retain(|s| s.strong_count() > 0);
        shares.push(Arc::downgrade(share));
    }

    /// Bytes of segments of some log that may not be evicted went from `before` to `after`.
    pub(super) fn holds(&self, before: u64, after: u64) {
        self.held.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Bytes of segments that may not be evicted.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// What the writers of all volumes may fill. The rest is for short writes, and for what is read.
    pub(super) fn most(&self) -> u64 {
        self.cap - self.rest()
    }

    /// The same for short writes.
    pub(super) fn most_small(&self) -> u64 {
        self.cap - self.rest() / 2
    }

    fn rest(&self) -> u64 {
        self.segment_len.min(self.cap / 4)
    }

    /// Bytes of a segment at most.
    pub(super) fn segment_len(&self) -> u64 {
        self.segment_len
    }

    pub(super) fn register(&self, log: &Arc<DataLog>) {
        let mut logs = self.logs.lock();
        logs.retain(|l| l.strong_count() > 0);
        logs.push(Arc::downgrade(log));
    }

    /// Counts `bytes` without asking.
    pub(super) fn charge(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives bytes back.
    pub(super) fn refund(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes`, evicting until there is room for them. The caller holds no lock of a log.
    pub(super) fn reserve(&self, bytes: u64, room: Room) -> Result<()> {
        let most = match room {
            Room::Within => self.cap,
            Room::Beyond => self.cap + self.cap / 2,
        };
        loop {
            let before = self.used.fetch_add(bytes, Ordering::Relaxed);
            if before + bytes <= most {
                return Ok(());
            }
            self.refund(bytes);
            if !self.evict_one() {
                return Err(Error::Full(format!(
                    "the cache of {} bytes is full of data that its homes do not have yet",
                    self.cap
                )));
            }
        }
    }

    /// Whether `bytes` fit, with what goes out for them: segments that nobody has used since `since`.
    pub fn has_room_for(&self, bytes: u64, since: Time) -> bool {
        while self.used() + bytes > self.cap {
            if !self.evict(|used| used < since) {
                return false;
            }
        }
        true
    }

    /// Evicts the oldest segment that may go; `false` if there is none.
    pub(super) fn evict_one(&self) -> bool {
        self.evict(|_| true)
    }

    /// The same of those that were last used at a time that `may_go` takes.
    fn evict(&self, may_go: impl Fn(Time) -> bool) -> bool {
        // Held throughout, so that two threads do not evict twice for one need.
        let logs = self.logs.lock();
        let live = logs.iter().filter_map(Weak::upgrade);
        let oldest = live.filter_map(|log| Some((log.oldest_evictable()?, log)));
        let mut candidates: Vec<_> =
            oldest.filter(|((_, used), _)| may_go(*used)).map(|((made, _), log)| (made, log)).collect();
        candidates.sort_by_key(|(made, _)| *made);
        candidates.into_iter().any(|(_, log)| log.evict_oldest())
    }
}
