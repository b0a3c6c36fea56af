//! Operations of mode `strict`, which have no base: whoever asks has to be told what the home has, and is answered when it has
//! done them.

use super::{Pending, Queue, objects};

impl Queue {
    /// Operations that may have been executed and for which nobody waits here any more, in order.
    pub fn in_doubt(&self) -> impl Iterator<Item = (u64, &Pending)> {
        self.plain().filter(|(_, p)| p.resent && !p.is_awaited())
    }

    /// Whether one of them concerns an object: what the home has of it may be about to change, or else be what no record tells.
    pub fn is_doubtful(&self, id: u64) -> bool {
        self.in_doubt().any(|(_, p)| objects(&p.change).any(|object| object == id))
    }

    /// How many operations that are laid over an object are of mode `strict`.
    pub fn plain_over(&self, id: u64) -> usize {
        let laid = self.plain().filter(|(_, p)| p.overlaid);
        laid.filter(|(_, p)| objects(&p.change).any(|object| object == id)).count()
    }
}
