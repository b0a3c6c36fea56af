//! What one volume may hold of the cache for its home, so that none starves the others.
//!
//! A volume may hold a fixed part of what the others leave of the room for unsent bytes (a dynamic threshold: Choudhury and
//! Hahne, IEEE/ACM Transactions on Networking 6, 1998). A home that is out of reach fills most of it, and never all: the
//! next one finds the same part of the rest, and so does each one after it.

use super::line::Line;
use super::pace::{self, Drain};
use super::{Budget, entry};
use crate::limits::{self, SHARE, SHARE_SEGMENTS, SMALL_WRITE};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The part of one volume in the cache that all volumes share.
pub struct Share {
    budget: Arc<Budget>,
    /// Bytes of the volume's segments that may not be evicted.
    held: AtomicU64,
    drain: Mutex<Drain>,
    line: Line,
}

impl Share {
    /// Of a volume that holds nothing yet.
    pub(super) fn new(budget: Arc<Budget>) -> Arc<Share> {
        let share = Share { budget, held: AtomicU64::new(0), drain: Mutex::default(), line: Line::default() };
        let share = Arc::new(share);
        share.budget.join(&share);
        share
    }

    /// The volume's writers who wait for room.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Bytes of segments that may not be evicted went from `before` to `after`.
    pub(super) fn holds(&self, before: u64, after: u64) {
        self.held.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        self.budget.holds(before, after);
    }

    /// So many bytes are at home.
    pub(super) fn went(&self, bytes: u64, now: Duration) {
        self.drain.lock().went(bytes, now);
    }

    /// Whether the volume holds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.held.load(Ordering::Relaxed) == 0
    }

    /// Whether a writer may put so many bytes, if there is room for them. Of a volume that holds nothing the first ones are
    /// always taken, so that it goes on, a write at a time, whatever the others hold.
    pub fn takes_unsent(&self, bytes: u64) -> bool {
        let most = if bytes <= SMALL_WRITE { self.budget.most_small() } else { self.budget.most() };
        self.is_empty() || self.held.load(Ordering::Relaxed) + entry::footprint(bytes) <= self.of(most)
    }

    /// How long a writer waits before so many bytes of his are taken.
    pub fn pause(&self, bytes: u64, now: Duration) -> Duration {
        let held = self.held.load(Ordering::Relaxed);
        pace::pause(bytes, held, self.of(self.budget.most()), self.drain.lock().rate(now))
    }

    /// Whether hardly any bytes go home, so that there is no more room soon.
    pub fn is_stuck(&self, now: Duration) -> bool {
        self.drain.lock().rate(now) < limits::PACE_MIN
    }

    /// Where a segment ends: its bytes become free together, so that it is a small part of what the volume may hold.
    pub(super) fn segment_len(&self) -> u64 {
        let whole = self.budget.segment_len();
        (self.of(self.budget.most()) / SHARE_SEGMENTS).clamp(whole / limits::SEGMENT_SHRINKS, whole)
    }

    /// What the volume may hold where all volumes together may hold `most`.
    fn of(&self, most: u64) -> u64 {
        let others = self.budget.held().saturating_sub(self.held.load(Ordering::Relaxed));
        part(most.saturating_sub(others))
    }
}

/// The part of what the others leave. With `held <= SHARE * (most - held - others)` this is the largest `held`.
fn part(left: u64) -> u64 {
    left / (SHARE + 1) * SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    /// Of which the first 1008 MiB are for writers.
    const CAP: u64 = 1024 * MIB;
    const SEGMENT: u64 = 16 * MIB;

    fn shares(count: usize) -> Vec<Arc<Share>> {
        let budget = Budget::with_segments(CAP, SEGMENT);
        (0..count).map(|_| Share::new(budget.clone())).collect()
    }

    /// Takes writes until one is not taken; answers the MiB that are held then.
    fn fill(share: &Share, bytes: u64) -> u64 {
        while share.takes_unsent(bytes) {
            let held = share.held.load(Ordering::Relaxed);
            share.holds(held, held + entry::footprint(bytes));
        }
        share.held.load(Ordering::Relaxed) / MIB
    }

    #[test]
    fn each_home_finds_the_same_part_of_what_the_dead_ones_left() {
        // MiB that homes fill one after the other, each of them out of reach.
        for (bytes, filled) in [(MIB, [881, 111, 13]), (SMALL_WRITE, [888, 111, 13])] {
            let shares = shares(4);
            let found: Vec<_> = shares[..3].iter().map(|share| fill(share, bytes)).collect();
            assert_eq!(found, filled, "writes of {bytes} bytes");
            let last = &shares[3];
            assert!(last.takes_unsent(SEGMENT), "the first is always taken");
            assert!(last.line().is_empty() && last.pause(MIB, Duration::ZERO).is_zero());
            fill(last, 2 * SMALL_WRITE);
            assert!(last.budget.held() < CAP - SEGMENT / 2, "something is left for readers");
        }
    }

    #[test]
    fn a_lone_home_has_as_much_again_when_its_bytes_are_at_home_and_small_writes_have_more() {
        let shares = shares(2);
        let (one, other) = (&shares[0], &shares[1]);
        fill(one, MIB);
        fill(one, 2 * SMALL_WRITE);
        assert!(one.takes_unsent(SMALL_WRITE));
        assert!(!one.pause(MIB, Duration::ZERO).is_zero() && other.pause(MIB, Duration::ZERO).is_zero());
        let held = one.held.load(Ordering::Relaxed);
        one.holds(held, 0);
        assert_eq!(fill(other, MIB), 881);
        // One that had much when another one came has no more until it is back at its part.
        one.holds(0, 500 * MIB);
        assert!(!one.takes_unsent(1) && !other.takes_unsent(1));
    }

    #[test]
    fn a_segment_is_a_small_part_of_what_a_volume_may_hold() {
        let shares = shares(3);
        assert_eq!(shares[1].segment_len(), SEGMENT);
        fill(&shares[0], MIB);
        assert_eq!(shares[1].segment_len(), SEGMENT);
        fill(&shares[1], MIB);
        assert!((3 * MIB..4 * MIB).contains(&shares[2].segment_len()), "{}", shares[2].segment_len());
        shares[1].holds(0, CAP);
        assert_eq!(shares[2].segment_len(), MIB);
    }
}
