//! Files that are made or written anew: until their writers have come to an end they stay here, so that the home shows their names
//! with their whole contents, or with the earlier ones. Not for long: who looks there wants to see what goes on.

use super::{Pending, Queue};
use crate::journal::Stored;
use crate::limits;
use home::{New, Op, Piece};
use std::time::Duration;

/// What of a batch lies on the home's disk before it goes.
#[derive(Debug, Clone, Copy)]
pub struct Spools {
    /// Files that are written anew with so many bytes at least.
    pub from: u64,
    /// Bytes at most.
    pub most: u64,
    /// Files at most.
    pub files: usize,
}

impl Spools {
    /// Whatever can have been there.
    pub const ALL: Spools = Spools { from: 0, most: u64::MAX, files: usize::MAX };
}

/// A file that is made or written anew.
#[derive(Debug)]
pub(super) struct Writing {
    /// The first operation of that.
    first: u64,
    /// When it was accepted; monotonic.
    begun: Duration,
    /// The same of the last one.
    last: Duration,
    /// Somebody made stable what he had written so far, or closed the file, as a program does at its end, but also a kernel that
    /// has much to write.
    committed: bool,
    /// Bytes that were written.
    bytes: u64,
}

impl Writing {
    fn end(&self) -> Duration {
        let quiet = if self.committed { limits::WRITING_COMMITTED } else { limits::WRITING_QUIET };
        (self.last + quiet).min(self.begun + limits::WRITING_MAX)
    }
}

impl Queue {
    /// What the home holds on its disk; `None`: nothing, so that nothing waits for its writer.
    pub fn set_spools(&mut self, spools: Option<Spools>) {
        self.spools = spools;
    }

    /// Forgets those whose time is over.
    pub fn end_writing(&mut self, now: Duration) {
        self.writing.retain(|_, writing| writing.end() > now);
    }

    /// Forgets those that may be at the home by now: what is written to them from then on is added to what is there.
    pub(super) fn end_sent(&mut self) {
        self.writing.retain(|_, writing| !self.under_way.contains(&writing.first));
    }

    /// What was written to a file so far was made stable, or it was closed: perhaps only to be opened again.
    pub fn committed(&mut self, object: u64) {
        if let Some(writing) = self.writing.get_mut(&object) {
            writing.committed = true;
        }
    }

    /// Those to which so many bytes were written at least, and the first operation of each.
    pub fn written(&self, bytes: u64) -> Vec<(u64, u64)> {
        let long = self.writing.iter().filter(|(_, writing)| writing.bytes >= bytes);
        long.map(|(object, writing)| (*object, writing.first)).collect()
    }

    /// What the writes to a file from operation `from` on store.
    pub fn stored_by(&self, object: u64, from: u64) -> impl Iterator<Item = &Stored> {
        let writes = self.ops.range(from..).filter(move |(_, op)| op.change.object == object && !op.resent);
        let pieces = writes.flat_map(|(_, op)| match &op.change.op {
            Op::Write { pieces, .. } => &pieces[..],
            _ => &[],
        });
        pieces.filter_map(|piece| if let Piece::Data(_, stored) = piece { Some(stored) } else { None })
    }

    pub(super) fn note_writing(&mut self, seq: u64, op: &Pending) {
        if !self.waits {
            return;
        }
        let begins = match &op.change.op {
            Op::Create { new, .. } => *new == New::File,
            Op::Write { pieces, .. } => pieces.iter().any(|piece| matches!(piece, Piece::Truncate(0))),
            _ => return,
        };
        match self.writing.get_mut(&op.change.object) {
            Some(writing) => {
                (writing.last, writing.committed) = (op.since, false);
                writing.bytes += op.bytes;
            }
            None if begins && !op.change.plain => {
                let (begun, last, bytes) = (op.since, op.since, op.bytes);
                let writing = Writing { first: seq, begun, last, committed: false, bytes };
                self.writing.insert(op.change.object, writing);
            }
            None => {}
        }
    }

    /// Until when an operation waits for the writer of its file, if it does.
    pub(super) fn written_until(&self, seq: u64, op: &Pending, now: Duration) -> Option<Duration> {
        let spools = self.spools?;
        let writing = self.writing.get(&op.change.object).filter(|writing| writing.first <= seq)?;
        let may_wait = seq > self.urgent && !op.resent && self.bytes < spools.most;
        let end = writing.end();
        (may_wait && end > now).then_some(end)
    }
}
