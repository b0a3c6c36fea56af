//! Operations that are stopped at a conflict, which waits for a person, and what waits in their folders.

use super::Queue;
use crate::sync::frozen::Said;
use home::HomePath;

impl Queue {
    /// Looks for operations that are stopped.
    pub fn find_stops(&mut self) {
        let stopped = self.ops.iter().filter_map(|(seq, p)| Some((*seq, p.stopped.as_ref()?.folder.clone())));
        self.stops = stopped.collect();
    }

    /// The folders of operations before `seq` that are stopped.
    pub fn stops(&self, seq: u64) -> impl Iterator<Item = &HomePath> {
        self.stops.iter().filter(move |(stopped, _)| *stopped < seq).map(|(_, folder)| folder)
    }

    /// Whether an operation is not stopped any more since this was asked last.
    pub fn take_thaw(&mut self) -> bool {
        std::mem::take(&mut self.thaws)
    }

    /// The conflict that these operations met is decided; they are stopped no more. Answers who waits for what comes of it.
    pub fn resume(&mut self, seqs: &[u64]) -> Vec<Said> {
        let mut said = Vec::new();
        for seq in seqs {
            if let Some(op) = self.ops.get_mut(seq).filter(|op| op.stopped.is_some()) {
                said.extend(op.said.take());
                (op.stopped, op.parked, op.again) = (None, None, None);
                self.thaws = true;
            }
        }
        said
    }
}
