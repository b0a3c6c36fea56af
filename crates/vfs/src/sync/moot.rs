//! What the home refused and nobody wants any more: content of a file that was removed or emptied since, and a file
//! that was never made there and is gone here. Whoever makes room by removing what did not fit must not find that the
//! removal waits for the room.

use super::queue::{Group, Pending};
use crate::inode::Tree;
use crate::journal::{Change, Fate};
use crate::volume::Volume;
use hashbrown::HashMap;
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
    let gone = |id| tree.peek(id).is_some_and(|inode| inode.gone && inode.kind == Kind::File);
    let mut all: Vec<u64> = own.iter().flat_map(|(id, ops)| moot_of(ops, gone(*id))).collect();
    all.sort_unstable();
    all
}

/// Of all changes of one object those that change nothing in the end. `gone`: it has no name any more.
fn moot_of(own: &[(u64, &Pending)], gone: bool) -> Vec<u64> {
    let any = |is: fn(&Pending) -> bool| own.iter().any(|(_, p)| is(p));
    let unmade = any(|p| p.parked.is_some() && matches!(p.change.op, Op::Create { .. }));
    let replaces = any(|p| matches!(p.change.op, Op::Rename { replaced: Some(_), .. }));
    let emptied = own.iter().rfind(|(_, p)| empties(&p.change)).map(|(seq, _)| *seq);
    let is_moot = |seq: u64, change: &Change| match &change.op {
        _ if gone && unmade => !replaces,
        Op::Write { .. } => gone || emptied.is_some_and(|last| seq < last),
        Op::SetAttr { .. } | Op::SetXattr { .. } => gone,
        _ => false,
    };
    own.iter().filter(|(seq, p)| is_moot(*seq, &p.change)).map(|(seq, _)| *seq).collect()
}

fn empties(change: &Change) -> bool {
    matches!(&change.op, Op::Write { pieces, .. } if matches!(pieces.first(), Some(Piece::Truncate(0))))
}
