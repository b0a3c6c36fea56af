//! What goes before the operations that the home knows already, and what goes behind them.

use super::{Pending, Queue, Waiting, destroyed, names, objects};
use crate::journal::Change;
use hashbrown::HashSet;
use home::{Name, Op};
use std::collections::BTreeSet;
use std::time::Duration;

/// What goes up to the last operation that the home knows and that goes again; where there is none, up to the last torn one.
#[derive(Default)]
pub struct Known {
    /// The last one that the home knows; 0 if there is none.
    pub told: u64,
    /// The last one; 0 if there is none.
    pub last: u64,
    /// See [`Queue::torn_and_robbed`].
    torn: BTreeSet<u64>,
    /// Torn ones go next: nothing new goes together with what the home knows.
    ends: bool,
    /// Operations that those which the home knows depend on.
    needed: HashSet<u64>,
    /// What goes behind them.
    behind: Waiting,
}

impl Known {
    pub fn of(queue: &Queue, now: Duration) -> Known {
        let (told, mut torn) = (queue.last_known(now), queue.torn_and_robbed(now));
        let ends = told > 0 && !torn.is_empty();
        if ends {
            torn.clear();
        }
        let last = told.max(torn.last().copied().unwrap_or(0));
        let (mut later, mut needed) = (Later::default(), HashSet::new());
        for (seq, op) in queue.ops.range(..=last).rev() {
            if queue.is_known_to_home(*seq) || torn.contains(seq) || later.needs(&op.change) {
                needed.insert(*seq);
                later.add(&op.change);
            }
        }
        Known { told, last, torn, ends, needed, behind: Waiting::default() }
    }

    /// Whether an operation goes behind them, so that its place is what they left: a write that joined later ones to its
    /// file; what was refused, and passed by them; and what depends on such a one. What they depend on was not passed: it
    /// has been given another form since, and goes before them.
    pub fn is_behind(&mut self, queue: &Queue, seq: u64, op: &Pending) -> bool {
        if seq > self.last || queue.is_known_to_home(seq) || self.torn.contains(&seq) {
            return false;
        }
        let joined = seq < self.told && op.parked.is_none() && matches!(op.change.op, Op::Write { .. });
        let passed = op.late && !self.needed.contains(&seq);
        let follows = op.parked.is_none() && self.behind.concerns(&op.change);
        if joined || passed || follows {
            self.behind.add(&op.change);
        }
        joined || passed || follows
    }

    /// Whether anything goes behind them.
    pub fn has_left(&self) -> bool {
        self.ends || !self.behind.objects.is_empty()
    }
}

impl Queue {
    /// The last operation that the home knows, and that waits for none which it has refused; 0 if there is none.
    pub(super) fn last_known(&self, now: Duration) -> u64 {
        let Some(last) = self.known.last() else { return 0 };
        let (mut waiting, mut goes) = (Waiting::default(), 0);
        for (seq, op) in self.ops.range(..=last) {
            if op.is_held(now) || waiting.concerns(&op.change) {
                waiting.add(&op.change);
            } else if self.known.contains(seq) {
                goes = *seq;
            }
        }
        goes
    }

    /// Writes that a power cut may have left in part in a file from which something that they passed is to take a name: that one
    /// expects what they leave.
    fn torn_and_robbed(&self, now: Duration) -> BTreeSet<u64> {
        let (mut waiting, mut robbed, mut torn) = (Waiting::default(), HashSet::new(), BTreeSet::new());
        let Some(last) = self.half.iter().max() else { return torn };
        for (seq, op) in self.ops.range(..=last) {
            let change = &op.change;
            let is_free = !op.is_held(now) && !waiting.concerns(change);
            let is_write = matches!(change.op, Op::Write { .. }) && !change.plain;
            if is_free && is_write && self.half.contains(seq) && robbed.contains(&change.object) {
                torn.insert(*seq);
            } else if op.late || !is_free {
                waiting.add(change);
                robbed.extend(destroyed(change));
            }
        }
        torn
    }

    /// Whether the home may have begun it, as far as it has told.
    pub fn may_be_begun(&self, seq: u64) -> bool {
        self.is_known_to_home(seq) || self.half.contains(&seq)
    }

    /// Whether the home may have executed it, under its own number or with a later one.
    fn is_known_to_home(&self, seq: u64) -> bool {
        self.known.contains(&seq) || self.travelled.contains_key(&seq)
    }
}

/// What operations depend on: the reverse of [`Waiting`].
#[derive(Default)]
struct Later {
    objects: HashSet<u64>,
    names: HashSet<(u64, Name)>,
    destroyed: HashSet<u64>,
}

impl Later {
    fn add(&mut self, change: &Change) {
        self.objects.extend(objects(change));
        self.names.extend(names(change));
        self.destroyed.extend(destroyed(change));
    }

    /// Whether any of them would have waited for an earlier one.
    fn needs(&self, earlier: &Change) -> bool {
        self.objects.contains(&earlier.object)
            || names(earlier).any(|name| self.destroyed.contains(&name.0) || self.names.contains(&name))
    }
}
