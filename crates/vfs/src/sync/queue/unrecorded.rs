//! What may have been sent without a durable outcome: no more than a restart, which knows nothing of that, asks the home about.

use super::{Queue, Waiting};
use crate::journal::Change;
use crate::limits;
use hashbrown::HashSet;
use home::Op;
use std::collections::BTreeSet;

/// As much as a batch can carry at most, whatever its bytes are and however its writes are grouped. A part of it is never more than
/// all of it, in whatever order it is counted.
#[derive(Debug, Default)]
pub(super) struct Unrecorded {
    records: usize,
    /// Operations that are no writes.
    others: usize,
    written: HashSet<u64>,
}

impl Unrecorded {
    fn is_full(&self) -> bool {
        self.records >= limits::BATCH_RECORDS_ALL || self.others + self.written.len() >= limits::BATCH_OPS
    }

    /// Counts a record. Answers false where that is too much.
    fn takes(&mut self, change: &Change) -> bool {
        if self.is_full() {
            return false;
        }
        self.records += 1;
        match &change.op {
            Op::Write { .. } => drop(self.written.insert(change.object)),
            _ => self.others += 1,
        }
        true
    }
}

impl Queue {
    /// After a restart: operations that may have been executed. They were sent in order, but for what was refused and what waits
    /// for that.
    pub fn begin_again(&mut self) {
        self.writing.clear();
        let (mut waiting, mut passed) = (Waiting::default(), Vec::new());
        let mut sent = Unrecorded::default();
        for (seq, op) in &self.ops {
            match op.late || waiting.concerns(&op.change) {
                true => waiting.add(&op.change),
                false if !sent.takes(&op.change) => break,
                false => {}
            }
            passed.push(*seq);
        }
        self.begin(passed);
        self.end(true);
    }

    /// These records are about to be sent. Answers false where [`Queue::begin_again`] would not reach the last of them if this
    /// ended now: what was sent before needs a durable outcome first.
    pub fn sends(&mut self, seqs: &BTreeSet<u64>) -> bool {
        let mut changes = seqs.iter().filter_map(|seq| self.ops.get(seq)).map(|op| &op.change);
        changes.all(|change| self.unrecorded.takes(change))
    }

    /// The outcomes of all that was sent are no later record than this.
    pub fn outcomes_up_to(&mut self, record: u64) {
        self.outcomes = record;
    }

    /// The last record that may be an outcome of what was sent.
    pub fn outcomes(&self) -> u64 {
        self.outcomes
    }

    /// The outcomes of all that was sent are durable.
    pub fn recorded(&mut self) {
        self.unrecorded = Unrecorded::default();
    }
}
