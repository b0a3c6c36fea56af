//! How far a file is being read in order, and how much of what comes next is worth asking for.

use crate::limits;

/// Where a reader is. Kernels ask for several parts at once, which come in any order and not alone by one front-end's
/// doing, so that a part near the front belongs to what is read in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Front {
    /// Behind the last byte that was read.
    end: u64,
    /// Chunks worth asking for ahead of it.
    chunks: u64,
}

impl Front {
    /// Somebody reads [at, end). Answers how many chunks are worth asking for beyond that.
    pub fn reads(&mut self, at: u64, end: u64) -> u64 {
        let is_near = at <= self.end + limits::READ_NEAR && end + limits::READ_NEAR >= self.end;
        let begins = at == 0 && !is_near;
        if !is_near && !begins {
            *self = Front { end, chunks: 0 };
            return 0;
        }
        if begins || end > self.end {
            *self = Front { end, chunks: (self.chunks * 2).clamp(1, limits::READ_AHEAD_CHUNKS) };
            return self.chunks;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = 128 << 10;

    fn read(front: &mut Front, part: u64) -> u64 {
        front.reads(part * PART, (part + 1) * PART)
    }

    #[test]
    fn whoever_reads_in_order_gets_more_and_more_whatever_comes_first() {
        for order in [[0, 1, 2, 3, 4, 5, 6, 7], [3, 0, 1, 2, 7, 5, 4, 6], [1, 0, 3, 2, 5, 4, 7, 6]] {
            let mut front = Front::default();
            let ahead = order.map(|part| read(&mut front, part));
            assert!(ahead.contains(&2) && front.end == 8 * PART, "{order:?}: {ahead:?}");
            let mut last = 0;
            for part in 8..24 {
                last = read(&mut front, part);
            }
            assert_eq!(last, limits::READ_AHEAD_CHUNKS);
        }
    }

    #[test]
    fn whoever_reads_here_and_there_gets_nothing() {
        let mut front = Front::default();
        for part in [0, 100, 300, 50, 900, 200] {
            let ahead = read(&mut front, part);
            assert_eq!(ahead, u64::from(part == 0));
        }
        // From the start again.
        assert_eq!([read(&mut front, 0), read(&mut front, 1)], [1, 2]);
    }
}
