//! What goes together: a batch is taken from the queue operation by operation until it is full.

use super::demand::held;
use super::writing::Spools;
use super::{Group, Pending, Waiting, destroyed, objects};
use crate::journal::Change;
use crate::limits;
use crate::sync::content::Content;
use hashbrown::{HashMap, HashSet};
use home::Op;
use std::time::Duration;

/// A batch that is being put together.
#[derive(Default)]
pub(super) struct Selection {
    now: Duration,
    pub groups: Vec<Group>,
    /// Records that it stands for, but for those of what lies on the home's disk.
    records: usize,
    /// All of them.
    all_records: usize,
    /// What travels of them.
    bytes: u64,
    ops: usize,
    pub waiting: Waiting,
    /// By object, what the batch does with it last.
    last: HashMap<u64, Last>,
    /// By object, what its last group of writes comes to.
    contents: HashMap<u64, Content>,
    /// Objects that the batch creates, and those whose writes went as a whole before: as much of them goes again.
    whole: HashSet<u64>,
    /// Those of whose writes the home has refused one: there may be no room for all of them at once.
    refused: HashSet<u64>,
    /// What of it need not be counted, because it lies on the home's disk before it goes; `None`: nothing.
    pub spools: Option<Spools>,
    /// Files and bytes that lie there.
    files: usize,
    spooled: u64,
    /// Those of files that are written anew, which will lie there if more of them follow.
    anew: u64,
}

/// What a group of writes makes a batch carry.
#[derive(Default)]
struct Load {
    ops: usize,
    bytes: u64,
    spooled: u64,
    anew: u64,
}

#[derive(Clone, Copy)]
struct Last {
    /// The group, if it is a write.
    write: Option<usize>,
    /// Whether that may have been executed.
    sent: bool,
    /// Whether the batch creates the object, certainly for the first time.
    newborn: bool,
    /// Whether the version that the batch leaves is not known yet.
    blind: bool,
}

impl Selection {
    pub fn new(now: Duration, spools: Option<Spools>) -> Selection {
        Selection { now, spools, ..Selection::default() }
    }

    pub fn is_full(&self, bytes: u64) -> bool {
        let is_spooled =
            self.spools.is_some_and(|spools| self.spooled >= spools.most || self.files >= spools.files);
        let whole = self.spools.map_or(0, |spools| spools.from);
        self.records >= limits::BATCH_RECORDS
            || self.all_records >= limits::BATCH_RECORDS_ALL
            || self.ops >= limits::BATCH_OPS
            || self.bytes >= bytes
            || self.bytes + self.anew >= bytes.max(whole)
            || is_spooled
    }

    /// Adds an operation, or notes that it has to wait. Answers false where the batch must end before it.
    /// `known`: see [`Queue::known`] and [`Queue::torn`].
    pub fn take(&mut self, seq: u64, op: &Pending, known: impl Fn(&u64) -> bool) -> bool {
        let change = &op.change;
        if op.is_held(self.now) || self.waiting.concerns(change) {
            self.waiting.add(change);
            return true;
        }
        if op.refusals > 0 {
            self.refused.insert(change.object);
        }
        let last = self.last.get(&change.object).copied();
        let newborn = last.is_some_and(|l| l.newborn);
        if let Op::Write { base, .. } = &change.op {
            match last {
                Some(Last { write: Some(group), .. }) if self.ends_with(group, known) => return false,
                // With what was never sent the home could not tell what it has as a part of what was.
                Some(Last { write: Some(_), sent: true, .. }) if !op.resent => return false,
                Some(Last { write: Some(group), newborn, .. }) => {
                    // The group moves to the place of its last record, so that a record whose effect is seen at
                    // the home proves all operations before it.
                    let mut seqs = std::mem::take(&mut self.groups[group].seqs);
                    seqs.push(seq);
                    let earlier = self.groups[group].newborn;
                    let last = Last { write: Some(self.groups.len()), sent: op.resent, newborn, blind: true };
                    self.last.insert(change.object, last);
                    self.groups.push(Group { seqs, newborn: earlier, spooled: false });
                    self.count(change);
                    return true;
                }
                // The version that an earlier operation of the batch leaves behind is not known yet.
                Some(last) if !newborn && (base.is_some() || last.blind) => return false,
                _ => {}
            }
        }
        let unseen = destroyed(change)
            .and_then(|id| self.last.get(&id))
            .is_some_and(|l| l.blind && !l.newborn && l.write.is_none());
        if unseen {
            return false;
        }
        let write = matches!(change.op, Op::Write { .. }).then_some(self.groups.len());
        self.groups.push(Group { newborn, ..Group::one(seq) });
        self.contents.remove(&change.object);
        self.count(change);
        let newborn = newborn || (matches!(change.op, Op::Create { .. }) && !op.resent);
        let content = matches!(
            change.op,
            Op::Create { .. } | Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. }
        );
        let blind = content || last.is_some_and(|l| l.blind);
        for object in objects(change).filter(|o| *o != change.object) {
            // A directory or replaced object: a later write must not be moved before this operation.
            self.last.entry(object).and_modify(|l| l.write = None);
        }
        self.last.insert(change.object, Last { write, sent: op.resent, newborn, blind });
        true
    }

    /// Whether the last record of a group gave a number to what may have been executed.
    fn ends_with(&self, group: usize, known: impl Fn(&u64) -> bool) -> bool {
        self.groups[group].seqs.last().is_some_and(known)
    }

    /// What is written to an object is one operation, whatever there is of it: the home may know that so.
    pub fn goes_whole(&mut self, object: u64) {
        self.whole.insert(object);
    }

    /// Counts what travels of a record. A write takes away from what its group would have carried.
    pub fn count(&mut self, change: &Change) {
        self.all_records += 1;
        let Op::Write { .. } = &change.op else {
            if let Op::Create { .. } = &change.op {
                self.whole.insert(change.object);
            }
            self.records += 1;
            self.ops += 1;
            self.bytes += held(change) as u64;
            return;
        };
        let had = self.load(change.object);
        self.contents.entry(change.object).or_default().lay(change);
        let has = self.load(change.object);
        self.records += usize::from(has.spooled == 0);
        self.ops = self.ops + has.ops - had.ops;
        self.bytes = self.bytes + has.bytes - had.bytes;
        self.spooled = self.spooled + has.spooled - had.spooled;
        self.files += usize::from(has.spooled > 0 && had.spooled == 0);
        self.anew = self.anew + has.anew - had.anew;
        if let Some(group) = self.groups.last_mut() {
            group.spooled = has.spooled > 0;
        }
    }

    fn load(&self, object: u64) -> Load {
        let Some(content) = self.contents.get(&object) else { return Load::default() };
        let is_anew = content.is_anew() || self.whole.contains(&object);
        let goes_whole = is_anew && !self.refused.contains(&object);
        let bytes = content.bytes();
        match self.spools.filter(|_| goes_whole) {
            Some(spools) if bytes >= spools.from => Load { ops: 1, spooled: bytes, ..Load::default() },
            Some(_) => Load { ops: content.ops(), anew: bytes, ..Load::default() },
            None => Load { ops: content.ops(), bytes, ..Load::default() },
        }
    }
}
