//! How much slower writers become while the cache fills with what the homes do not have yet: they come to the pace of the
//! way home before there is no room at all.

use crate::limits;
use std::time::Duration;

/// How long a writer waits before so many bytes of his are taken, with `held` of at most `most` bytes held for the homes, which
/// take `rate` bytes per second.
pub fn pause(bytes: u64, held: u64, most: u64, rate: u64) -> Duration {
    let from = most / 100 * limits::SLOW_FROM;
    let room = most.saturating_sub(held);
    if held <= from || bytes == 0 {
        return Duration::ZERO;
    }
    let share = room as f64 / (most - from) as f64;
    let pace = (rate as f64 * share).max(limits::PACE_MIN as f64);
    Duration::from_secs_f64(bytes as f64 / pace).min(limits::PAUSE_MAX)
}

/// How fast bytes go home.
#[derive(Debug, Default)]
pub struct Drain {
    since: Duration,
    bytes: u64,
    rate: u64,
}

impl Drain {
    /// So many bytes are at home.
    pub fn went(&mut self, bytes: u64, now: Duration) {
        self.bytes += bytes;
        self.rate(now);
    }

    /// Bytes per second, lately.
    pub fn rate(&mut self, now: Duration) -> u64 {
        let passed = now.saturating_sub(self.since);
        if passed >= limits::DRAIN_WINDOW {
            let new = (self.bytes as f64 / passed.as_secs_f64()) as u64;
            // What was before a long pause tells nothing.
            let old = if passed < 4 * limits::DRAIN_WINDOW { self.rate } else { new };
            *self = Drain { since: now, bytes: 0, rate: old.midpoint(new) };
        }
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn writers_come_to_the_pace_of_the_way_home() {
        // Bytes of the call, bytes held of 1,000 MiB, the rate; milliseconds.
        let table = [
            (MIB, 0, 100 * MIB, 0),
            (MIB, 900, 100 * MIB, 0),
            (MIB, 901, 100 * MIB, 10),
            (MIB, 950, 100 * MIB, 20),
            (MIB, 990, 100 * MIB, 100),
            (4096, 990, 100 * MIB, 0),
            // Never slower than this, however slow the way home is.
            (MIB, 990, 0, 2000),
            (MIB, 1000, 100 * MIB, 2000),
            (MIB, 2000, 100 * MIB, 2000),
            (4096, 1000, 0, 7),
            (0, 1000, 0, 0),
            (8 * MIB, 1000, 0, 5000),
        ];
        for (bytes, held, rate, ms) in table {
            let found = pause(bytes, held * MIB, 1000 * MIB, rate).as_millis() as u64;
            assert_eq!(found, ms, "{bytes} bytes with {held} MiB held at {rate}");
        }
        assert_eq!(pause(1, 0, 0, 0), Duration::ZERO);
    }

    #[test]
    fn the_rate_is_of_late() {
        let mut drain = Drain::default();
        let at = |ms| Duration::from_millis(ms);
        for n in 1..=100 {
            drain.went(MIB, at(n * 100));
        }
        let rate = drain.rate(at(10_000));
        assert!((9 * MIB..=11 * MIB).contains(&rate), "{rate}");
        assert!(drain.rate(at(10_600)) < rate, "nothing goes");
        assert_eq!(drain.rate(at(60_000)), 0);
    }
}
