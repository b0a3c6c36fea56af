//! The steps that keep both sides' bytes. Each one is left out by a test, which sees that it is missed: the simulation
//! finds the loss. What is shipped takes them all.

use super::Posix;
use super::sys::Sys;

/// A step that must not be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// What is there is compared with what an operation was made to.
    Compare,
    /// So is its ctime, which tells of what was changed under the length and the time that it had.
    CompareCtime,
    /// What was taken out of its place is compared once more before it is removed.
    Verify,
    /// It is asked whether somebody has a file open for writing.
    AskWriters,
    /// A copy is durable before it gets the name.
    SyncCopies,
    /// Everything is durable before outcomes are told.
    SyncAll,
    /// The log of what was begun and done is read when a volume is taken over.
    ReadLog,
    /// An agent stops when another one has taken over, and that one waits for it.
    Fence,
}

impl<S: Sys> Posix<S> {
    /// Whether a step is taken.
    #[cfg(not(feature = "testing"))]
    pub(super) const fn takes(&self, _: Step) -> bool {
        true
    }

    /// Whether a step is taken.
    #[cfg(feature = "testing")]
    pub(super) fn takes(&self, step: Step) -> bool {
        !self.left_out.contains(&step)
    }

    /// The same without some steps: a home that loses what it is trusted with, for a test of tests.
    #[cfg(feature = "testing")]
    pub fn without(mut self, steps: &[Step]) -> Posix<S> {
        self.left_out = steps.to_vec();
        self
    }
}
