//! How far a file is being read in order, and how much of what comes next is worth asking for.

use crate::limits;

/// Where a reader is. Kernels ask for several parts at once, which come in any order and not alone by one front-end's
/// doing, so that a part near the front belongs to what is read in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Front {
    /// Where it began to be read in order.
    begun: u64,
    /// Behind the last byte that was read.
    end: u64,
}

impl Front {
    /// Somebody reads [at, end). Answers how many chunks are worth asking for beyond that: in proportion to what was read in
    /// order, so that whoever wants the beginning of a file does not bring it whole.
    pub fn reads(&mut self, at: u64, end: u64) -> u64 {
        let is_near = at <= self.end + limits::READ_NEAR && end + limits::READ_NEAR >= self.end;
        if !is_near {
            *self = Front { begun: at, end };
            return u64::from(at == 0);
        }
        if end <= self.end {
            return 0;
        }
        self.end = end;
        let wanted = (end - self.begun.min(end)) * limits::READ_AHEAD_GROWTH / limits::FETCH_CHUNK;
        wanted.clamp(1, limits::READ_AHEAD_CHUNKS)
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
            assert!(ahead.iter().max() == Some(&4) && front.end == 8 * PART, "{order:?}: {ahead:?}");
            let last = (8..32).map(|part| read(&mut front, part)).last();
            assert_eq!(last, Some(limits::READ_AHEAD_CHUNKS));
        }
    }

    #[test]
    fn whoever_reads_here_and_there_gets_nothing() {
        let mut front = Front::default();
        for part in [0, 100, 300, 50, 900, 200] {
            let ahead = read(&mut front, part);
            assert_eq!(ahead, u64::from(part == 0));
        }
        // From the start again, and from the middle.
        for begin in [0, 500] {
            read(&mut front, begin);
            assert_eq!([3, 4, 7].map(|part| read(&mut front, begin + part)), [2, 2, 4]);
        }
    }
}
