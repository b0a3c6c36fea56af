//! What the home refused and nobody wants any more: content of a file that was removed or emptied since, and an object
//! that was never made there and is gone here, a directory with all that was in it. Whoever makes room by removing what did
//! not fit must not find that the removal waits for the room.

use super::queue::{self, Group, Pending};
use crate::inode::Tree;
use crate::journal::{Change, Fate};
use crate::volume::Volume;
use hashbrown::HashMap;
use home::{Kind, Op, Piece, Result};
use std::cmp::Reverse;

impl Volume {
    /// Takes such changes out of the queue, so that what waited for them can go; answers whether there were any.
    pub fn drop_moot(&self, tree: &mut Tree) -> Result<bool> {
        let seqs = moot(tree);
        let any = !seqs.is_empty();
        tree.tick += 1;
        for (seq, op) in self.take_out(tree, &Group::of(seqs)) {
            self.retire(seq, &op.change, Fate::Dropped)?;
        }
        if any {
            tree.queue.decide(self.lane.last());
        }
        Ok(any)
    }
}

/// What is made before something else is given up after it, so that nothing is ever left without its directory.
fn moot(tree: &Tree) -> Vec<u64> {
    let refused = tree.queue.iter().filter(|(_, p)| p.parked.is_some() && !p.change.plain);
    let mut own: HashMap<u64, Vec<(u64, &Pending)>> =
        refused.map(|(_, p)| (p.change.object, Vec::new())).collect();
    if own.is_empty() {
        return Vec::new();
    }
    for (seq, op) in tree.queue.iter() {
        if let Some(ops) = own.get_mut(&op.change.object) {
            ops.push((seq, op));
        }
    }
    own.retain(|_, ops| !ops.iter().any(|(seq, _)| tree.queue.is_under_way(*seq)));
    let unmade = unmade(tree);
    let gone = |id| tree.peek(id).is_some_and(|inode| inode.gone && inode.kind == Kind::File);
    let contents = own.iter().filter(|(id, _)| !unmade.contains_key(*id));
    let mut all: Vec<u64> = contents.flat_map(|(id, ops)| moot_of(ops, gone(*id))).collect();
    let dropped = tree.queue.iter().filter_map(|(seq, p)| Some((*unmade.get(&p.change.object)?, seq)));
    let mut dropped: Vec<(u64, u64)> = dropped.collect();
    dropped.sort_unstable_by_key(|(made, seq)| (Reverse(*made), *seq));
    all.sort_unstable();
    all.extend(dropped.into_iter().map(|(_, seq)| seq));
    all
}

/// Objects that the home refused to make, or whose directory it did, and that are gone here without having changed what the
/// home has; with the numbers of their creations. None that it may have made before it refused: that has to be removed.
fn unmade(tree: &Tree) -> HashMap<u64, u64> {
    let gone = |id| tree.peek(id).is_some_and(|inode| inode.gone);
    let mut unmade = HashMap::new();
    for (seq, op) in tree.queue.iter().filter(|(_, p)| !p.change.plain) {
        if let Op::Create { dir, .. } = &op.change.op
            && (op.parked.is_some() || unmade.contains_key(dir))
            && gone(op.change.object)
            && !tree.queue.may_be_begun(seq)
        {
            unmade.insert(op.change.object, seq);
        }
    }
    if unmade.is_empty() {
        return unmade;
    }
    let orphan = |op: &Pending, unmade: &HashMap<u64, u64>| match &op.change.op {
        Op::Create { dir, .. } => op.parked.is_none() && !unmade.contains_key(dir),
        _ => false,
    };
    let ops: Vec<(u64, &Pending)> = tree.queue.iter().collect();
    keep_closed(&ops, &mut unmade, |seq, op, unmade| tree.queue.is_under_way(seq) || orphan(op, unmade));
    unmade
}

/// Leaves those objects of which every one of these changes may be given up, because it is of them alone. `is_needed`: it
/// may not, whatever it is of.
pub(super) fn keep_closed(
    ops: &[(u64, &Pending)],
    unmade: &mut HashMap<u64, u64>,
    is_needed: impl Fn(u64, &Pending, &HashMap<u64, u64>) -> bool,
) {
    while !unmade.is_empty() {
        let needed = |seq: u64, op: &Pending| {
            let change = &op.change;
            let others = queue::objects(change).filter(|id| !unmade.contains_key(id));
            let mut others = others.filter(|id| *id == change.object || is_replaced(change, *id));
            is_needed(seq, op, unmade) || others.next().is_some()
        };
        let needed = ops.iter().filter(|(seq, op)| needed(*seq, op));
        let needed = needed.flat_map(|(_, op)| queue::objects(&op.change));
        let needed: Vec<u64> = needed.filter(|id| unmade.contains_key(id)).collect();
        if needed.is_empty() {
            break;
        }
        for id in needed {
            unmade.remove(&id);
        }
    }
}

fn is_replaced(change: &Change, id: u64) -> bool {
    matches!(&change.op, Op::Rename { replaced: Some((old, _)), .. } if *old == id)
}

/// Of all changes of one object those that change nothing in the end. `gone`: it has no name any more. What it is when it
/// gets another name is seen there until it loses it, so that no change before that is moot.
fn moot_of(own: &[(u64, &Pending)], gone: bool) -> Vec<u64> {
    let emptied = own.iter().rfind(|(_, p)| empties(&p.change)).map(|(seq, _)| *seq);
    let is_named = |from: u64, to: u64| {
        let mut between = own.iter().filter(|(seq, _)| (from..to).contains(seq));
        between.any(|(_, p)| matches!(&p.change.op, Op::Rename { .. } | Op::Link { .. }))
    };
    let is_moot = |seq: u64, change: &Change| {
        let lost = gone && !is_named(seq, u64::MAX);
        match &change.op {
            Op::Write { .. } => lost || emptied.is_some_and(|last| seq < last && !is_named(seq, last)),
            Op::SetAttr { .. } | Op::SetXattr { .. } => lost,
            _ => false,
        }
    };
    own.iter().filter(|(seq, p)| is_moot(*seq, &p.change)).map(|(seq, _)| *seq).collect()
}

fn empties(change: &Change) -> bool {
    matches!(&change.op, Op::Write { pieces, .. } if matches!(pieces.first(), Some(Piece::Truncate(0))))
}
