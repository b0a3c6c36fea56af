//! What changes carry, and what they may need of a home's space, as far as that is known without the home.

use super::Queue;
use crate::journal::Change;
use crate::limits;
use crate::sync::content::length;
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

    /// What operations take that are on their way home, or wait for it.
    pub fn of_open(queue: &Queue, now: Duration) -> Demand {
        let open = queue.iter().filter(|(_, p)| !p.is_held(now));
        open.fold(Demand::default(), |sum, (_, p)| sum.and(p.demand))
    }
}

/// Sums over all operations that a queue ever had in this process.
#[derive(Debug, Default, Clone, Copy)]
pub struct Demands {
    /// Of all of them.
    pub taken: Demand,
    /// Of those that are not in it any more.
    pub settled: Demand,
}
