//! What need not go home because later changes undo it, as in Coda's reintegration: an object that was made and is gone
//! again, with all that was done to it and in it, and attributes that are set anew.
//!
//! Only what the home cannot know any part of vanishes, and nothing across a promise: where somebody was promised that all
//! up to a point is at the home, what was there at that point arrives. The last change of a directory that stays does not
//! vanish: it gives the directory the time that clients saw. To set that time alone would hide what others do there.

use super::moot::keep_closed;
use super::queue::{self, Group, Pending, Queue};
use crate::inode::{Settled, Tree, local};
use crate::journal::Body;
use crate::limits;
use crate::volume::Volume;
use hashbrown::{HashMap, HashSet};
use home::{Name, Op, Result, SetAttr};
use std::collections::BTreeMap;

/// What of the queue is looked at: the operations that go next.
struct Window<'a> {
    tree: &'a Tree,
    ops: Vec<(u64, &'a Pending)>,
    /// By object, where the operations on it are in `ops`.
    of: BTreeMap<u64, Vec<usize>>,
}

impl Volume {
    /// Takes out of the queue what need not go home.
    pub fn vanish(&self, tree: &mut Tree) -> Result<()> {
        if !may_have_any(&tree.queue) {
            return Ok(());
        }
        let records = Window::new(tree).vanishing();
        if records.is_empty() {
            return Ok(());
        }
        for seqs in records {
            self.let_vanish(tree, seqs)?;
        }
        // If they came back, they would go home behind what came after them.
        tree.queue.decide(self.lane.last());
        self.outcomes.send_modify(|n| *n += 1);
        Ok(())
    }

    /// Takes changes out of the queue as if they were done. Where that cannot be recorded nothing more is accepted.
    fn let_vanish(&self, tree: &mut Tree, seqs: Vec<u64>) -> Result<()> {
        if let Err(e) = self.lane.append(Body::Vanish(seqs.clone())) {
            self.lane.give_up(&format!("an outcome could not be recorded: {e}"));
            return Err(local(e));
        }
        // What came of earlier operations on the names: the answer to a question from before does not tell it.
        let changes = seqs.iter().filter_map(|seq| tree.queue.get(*seq));
        let settled: HashMap<(u64, Name), Settled> = changes
            .flat_map(|p| queue::names(&p.change))
            .filter_map(|(dir, name)| {
                let settled = tree.peek(dir)?.dir.as_ref()?.slot(&name)?.settled;
                (settled.tick > 0).then_some(((dir, name), settled))
            })
            .collect();
        tree.tick += 1;
        for (_, op) in self.take_out(tree, &Group::of(seqs)) {
            op.change.extents().for_each(|e| self.data.give_up(e, false));
            // The home was not asked: what is known of the names is what was known before.
            for (dir, name) in queue::names(&op.change) {
                if let Ok(node) = tree.names_mut(dir)
                    && node.slot(&name).is_some_and(|slot| slot.pending == 0 && slot.child.is_none())
                {
                    node.forget(&name);
                    if let Some(settled) = settled.get(&(dir, name.clone())) {
                        node.slot_mut(&name).settled = *settled;
                    }
                    tree.unsaved(dir);
                }
            }
            tree.drop_gone(op.change.object);
        }
        Ok(())
    }
}

impl<'a> Window<'a> {
    fn new(tree: &'a Tree) -> Window<'a> {
        let ops: Vec<(u64, &Pending)> = tree.queue.iter().take(limits::VANISHING).collect();
        let mut of: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, (_, op)) in ops.iter().enumerate() {
            queue::objects(&op.change).for_each(|id| of.entry(id).or_default().push(at));
        }
        Window { tree, ops, of }
    }

    /// The numbers of changes that vanish together or not at all. One object that is made and gone may replace another one,
    /// or hold it: a crash must not leave one without what another one does to it.
    fn vanishing(&self) -> Vec<Vec<u64>> {
        let made = self.made_and_gone();
        let of_made = self.ops.iter().filter(|(_, op)| made.contains_key(&op.change.object));
        let stay = self.of.keys().filter(|id| !made.contains_key(*id));
        let records = std::iter::once(of_made.map(|(seq, _)| *seq).collect());
        records.chain(stay.map(|id| self.set_anew(*id))).filter(|seqs| !seqs.is_empty()).collect()
    }

    /// Objects that were made and are gone, and whose changes concern nothing else; with the numbers of their creations.
    fn made_and_gone(&self) -> HashMap<u64, u64> {
        let mut made: HashMap<u64, u64> = HashMap::new();
        for (seq, op) in &self.ops {
            let id = op.change.object;
            if matches!(op.change.op, Op::Create { .. }) && self.is_gone_within(id, *seq) {
                made.insert(id, *seq);
            }
        }
        loop {
            keep_closed(&self.ops, &mut made, |seq, op, _| !may_vanish(&self.tree.queue, seq, op));
            let ended = self.dirs_ended_by(&made);
            if ended.is_empty() {
                return made;
            }
            for (_, op) in &self.ops {
                if queue::names(&op.change).any(|(dir, _)| ended.contains(&dir)) {
                    made.remove(&op.change.object);
                }
            }
        }
    }

    /// Directories that stay, and whose last change is one of these objects.
    fn dirs_ended_by(&self, made: &HashMap<u64, u64>) -> HashSet<u64> {
        let is_made = |op: &Pending| made.contains_key(&op.change.object);
        let changes = self.ops.iter().filter(|(_, op)| is_made(op));
        let dirs = changes.flat_map(|(_, op)| queue::names(&op.change)).map(|(dir, _)| dir);
        let mut open: HashSet<u64> = dirs.filter(|dir| !made.contains_key(dir)).collect();
        let mut ended = HashSet::new();
        // Once through the queue, however many directories there are.
        for (_, op) in self.tree.queue.iter().rev() {
            if open.is_empty() {
                break;
            }
            let last_of = queue::names(&op.change).map(|(dir, _)| dir).filter(|dir| open.remove(dir));
            let last_of: Vec<u64> = last_of.collect();
            ended.extend(last_of.into_iter().filter(|_| is_made(op)));
        }
        ended
    }

    /// Whether all operations on an object are in sight, the last of them took its last name, and nobody was promised that
    /// any of them is at the home before the last one.
    fn is_gone_within(&self, id: u64, from: u64) -> bool {
        let (Some(inode), Some(of)) = (self.tree.peek(id), self.of.get(&id)) else { return false };
        let last = of.last().map(|at| self.ops[*at]);
        inode.gone
            && inode.pending as usize == of.len()
            && last.is_some_and(|(seq, op)| {
                queue::destroyed(&op.change) == Some(id) && !self.tree.queue.is_promised(from, seq)
            })
    }

    /// Attributes of an object that are set again before anything else happens to it.
    fn set_anew(&self, id: u64) -> Vec<u64> {
        let mut vanishing = Vec::new();
        let mut earlier: Option<(u64, SetAttr)> = None;
        for (seq, op) in self.of[&id].iter().map(|at| self.ops[*at]) {
            let set = match &op.change.op {
                Op::SetAttr { object, base: None, set }
                    if *object == id && may_vanish(&self.tree.queue, seq, op) =>
                {
                    set
                }
                _ => {
                    earlier = None;
                    continue;
                }
            };
            if let Some((before, _)) =
                earlier.filter(|(before, old)| covers(set, old) && !self.tree.queue.is_promised(*before, seq))
            {
                vanishing.push(before);
            }
            earlier = Some((seq, *set));
        }
        vanishing
    }
}

/// Whether it is worth a closer look: nothing vanishes where no name is taken away and no attributes are set twice.
fn may_have_any(unsent: &Queue) -> bool {
    let (mut removed, mut set) = (false, 0);
    for (_, op) in unsent.iter().take(limits::VANISHING) {
        removed |= queue::destroyed(&op.change).is_some();
        set += usize::from(matches!(op.change.op, Op::SetAttr { .. }));
        if removed || set > 1 {
            return true;
        }
    }
    false
}

/// Whether the home cannot know any part of an operation, and nobody waits for it.
fn may_vanish(queue: &Queue, seq: u64, op: &Pending) -> bool {
    let is_fresh = !op.resent && !op.late && op.parked.is_none() && !queue.is_under_way(seq);
    is_fresh && op.overlaid && op.waiter.is_none() && !op.change.plain && !queue.may_be_half(seq)
}

/// Whether one sets all that the other sets.
fn covers(later: &SetAttr, earlier: &SetAttr) -> bool {
    let sets = |set: &SetAttr| {
        [set.mode.is_some(), set.uid.is_some(), set.gid.is_some(), set.atime.is_some(), set.mtime.is_some()]
    };
    sets(later).iter().zip(sets(earlier)).all(|(later, earlier)| *later || !earlier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::ROOT_ID;
    use crate::inode::tests::attr;
    use crate::journal::Change;
    use crate::mutate::enqueue;
    use crate::store::MemStore;
    use home::{Kind, Name, New};
    use std::sync::Arc;

    #[test]
    fn what_was_replaced_vanishes_with_what_replaced_it() {
        let name = |n: &str| Name::new(n.as_bytes()).unwrap();
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let create = |n| Op::Create { dir: ROOT_ID, name: name(n), new: New::File, mode: 0o600 };
        let replaced = Some((7, None));
        let (from, to) = (ROOT_ID, ROOT_ID);
        let rename = Op::Rename { from, name: name("new"), object: 8, to, new_name: name("f"), replaced };
        let remove =
            |n, object| Op::Remove { dir: ROOT_ID, name: name(n), object, is_dir: false, base: None };
        let ops =
            [(7, create("f")), (8, create("new")), (8, rename), (8, remove("f", 8)), (9, create("last"))];
        for (seq, (object, op)) in (1..).zip(ops) {
            let after = Some(attr(Kind::File, 0)).filter(|_| !matches!(op, Op::Remove { .. }));
            let time = Default::default();
            let change = Change { time, object, after, op, retry: None, verifier: None, plain: false };
            enqueue(&mut tree, seq, change, 0, Default::default(), true, None);
        }
        assert_eq!(Window::new(&tree).vanishing(), [[1, 2, 3, 4]]);
    }
}
