//! What the home refused and nobody wants any more: content of a file that was removed or emptied since, and a file
//! that was never made there and is gone here. Whoever makes room by removing what did not fit must not find that the
//! removal waits for the room.

use super::queue::{Group, Queue};
use crate::inode::Tree;
use crate::journal::{Change, Fate};
use crate::volume::Volume;
use hashbrown::HashSet;
use home::{Kind, Op, Piece, Result};

impl Volume {
    /// Takes such changes out of the queue, so that what waited for them can go; answers whether there were any.
    pub fn drop_moot(&self, tree: &mut Tree) -> Result<bool> {
        let seqs = moot(tree);
        let any = !seqs.is_empty();
        tree.tick += 1;
        for (seq, op) in self.take_out(tree, &Group { seqs, newborn: false }) {
            self.retire(seq, &op.change, Fate::Dropped)?;
        }
        if any {
            tree.queue.decide(self.lane.last());
        }
        Ok(any)
    }
}

fn moot(tree: &mut Tree) -> Vec<u64> {
    let refused = tree.queue.iter().filter(|(_, p)| p.parked.is_some() && !p.change.plain);
    let objects: HashSet<u64> = refused.map(|(_, p)| p.change.object).collect();
    let mut all: Vec<u64> = Vec::new();
    for id in objects {
        let gone = tree.peek(id).is_some_and(|inode| inode.gone && inode.kind == Kind::File);
        all.extend(moot_of(&tree.queue, id, gone));
    }
    all.sort_unstable();
    all
}

/// The changes of one object that change nothing in the end. `gone`: it has no name any more.
fn moot_of(queue: &Queue, id: u64, gone: bool) -> Vec<u64> {
    let own = || queue.iter().filter(|(_, p)| p.change.object == id);
    if own().any(|(seq, _)| queue.is_under_way(seq)) {
        return Vec::new();
    }
    let unmade = own().any(|(_, p)| p.parked.is_some() && matches!(p.change.op, Op::Create { .. }));
    let replaces = own().any(|(_, p)| matches!(p.change.op, Op::Rename { replaced: Some(_), .. }));
    let emptied = own().filter(|(_, p)| empties(&p.change)).map(|(seq, _)| seq).next_back();
    let is_moot = |seq: u64, change: &Change| match &change.op {
        _ if gone && unmade => !replaces,
        Op::Write { .. } => gone || emptied.is_some_and(|last| seq < last),
        Op::SetAttr { .. } | Op::SetXattr { .. } => gone,
        _ => false,
    };
    own().filter(|(seq, p)| is_moot(*seq, &p.change)).map(|(seq, _)| seq).collect()
}

fn empties(change: &Change) -> bool {
    matches!(&change.op, Op::Write { pieces, .. } if matches!(pieces.first(), Some(Piece::Truncate(0))))
}
