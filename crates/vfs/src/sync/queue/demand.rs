//! What changes carry, and what they may need of a home's space, as far as that is known without the home.

use super::{Queue, Waiting};
use crate::journal::Change;
use crate::limits;
use crate::sync::content::length;
use hashbrown::HashMap;
use home::{Op, Piece};
use std::time::Duration;

/// Bytes that a change holds in memory.
pub fn held(change: &Change) -> usize {
    match &change.op {
        Op::SetXattr { value: Some(value), .. } => value.len(),
        _ => 0,
    }
}

/// Bytes that a change carries.
pub fn payload(change: &Change) -> u64 {
    let Op::Write { pieces, .. } = &change.op else { return held(change) as u64 };
    let lengths =
        pieces.iter().map(|p| if let Piece::Data(_, stored) = p { length(stored) as u64 } else { 0 });
    lengths.sum()
}

/// Space of a file system.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub files: u64,
}

impl Demand {
    /// The least that a new object takes: it may find place in what its directory has.
    pub const INODE: Demand = Demand { bytes: 0, files: 1 };

    /// The most that a change takes.
    pub fn of(change: &Change) -> Demand {
        match &change.op {
            Op::Create { .. } => Demand { bytes: limits::BLOCK, files: 1 },
            _ => Demand { bytes: payload(change), files: 0 },
        }
    }

    /// Both.
    pub fn and(self, other: Demand) -> Demand {
        Demand {
            bytes: self.bytes.saturating_add(other.bytes),
            files: self.files.saturating_add(other.files),
        }
    }

    /// What was added to `earlier`.
    pub fn since(self, earlier: Demand) -> Demand {
        Demand { bytes: self.bytes - earlier.bytes, files: self.files - earlier.files }
    }

    /// With what others take of that of which it takes any.
    pub fn beside(self, others: Demand) -> Demand {
        let both = self.and(others);
        Demand {
            bytes: if self.bytes > 0 { both.bytes } else { 0 },
            files: if self.files > 0 { both.files } else { 0 },
        }
    }

    /// What operations take of a file system that are on their way home: not what stays here for now, and what waits for that.
    pub fn of_open(queue: &Queue, fs: u64, now: Duration) -> Demand {
        let (mut waiting, mut sum) = (Waiting::default(), Demand::default());
        for (_, op) in queue.iter() {
            if op.is_held(now) || waiting.concerns(&op.change) {
                waiting.add(&op.change);
            } else if op.fs == fs {
                sum = sum.and(op.demand);
            }
        }
        sum
    }
}

/// Sums over all operations on a file system that a queue ever had in this process.
#[derive(Debug, Default, Clone, Copy)]
pub struct Sums {
    /// Of all of them.
    pub taken: Demand,
    /// Of those that are not in it any more.
    pub settled: Demand,
}

/// By file system ([`home::HomeId`]).
#[derive(Debug, Default)]
pub struct Demands(HashMap<u64, Sums>);

impl Demands {
    /// Of one.
    pub fn of(&self, fs: u64) -> Sums {
        self.0.get(&fs).copied().unwrap_or_default()
    }

    /// An operation comes into the queue.
    pub fn take(&mut self, fs: u64, demand: Demand) {
        let sums = self.0.entry(fs).or_default();
        sums.taken = sums.taken.and(demand);
    }

    /// It leaves it.
    pub fn settle(&mut self, fs: u64, demand: Demand) {
        let sums = self.0.entry(fs).or_default();
        sums.settled = sums.settled.and(demand);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_count_only_for_what_is_wanted() {
        let demand = |bytes, files| Demand { bytes, files };
        assert_eq!(demand(0, 1).beside(demand(10, 2)), demand(0, 3));
        assert_eq!(demand(5, 0).beside(demand(10, 2)), demand(15, 0));
    }
}
