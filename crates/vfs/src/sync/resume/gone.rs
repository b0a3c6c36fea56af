//! What is not at the home any more, so that nothing is written there for it.

use super::{Trace, linked};
use crate::volume::Volume;
use hashbrown::{HashMap, HashSet};
use home::Op;

impl Volume {
    /// Objects that have no name any more, with the number of the operation that took it: the only one of what the home
    /// has had was removed, or another object has it, and no trace shows it elsewhere, as where it was to be moved before, nor
    /// leads `astray`, where nothing that is not there tells that it is gone.
    /// What the home was never seen to have cannot be told from what has its name: it is gone if that is nothing,
    /// wherever it was; and once it is another object, as the mark of a rename shows, nothing more is written there for
    /// it, though the rename may be half done. `freed`: see [`super::cut::freed`].
    pub(super) fn gone(
        &self,
        traces: &[Trace],
        nowhere: &HashSet<u64>,
        astray: &HashSet<u64>,
        freed: &HashSet<u64>,
    ) -> HashMap<u64, u64> {
        let shown = traces.iter().filter(|t| t.shows(self.known(t.change.object)));
        let shown: HashSet<u64> = shown.map(|t| t.change.object).collect();
        let mut tree = self.tree.lock();
        let linked: HashSet<u64> = tree.queue.iter().filter_map(|(_, p)| linked(&p.change)).collect();
        let mut gone = HashMap::new();
        for t in traces {
            let is_freed = freed.contains(&t.seq);
            let (id, is_removal) = match &t.change.op {
                Op::Remove { object, .. } => (*object, true),
                // A home that moves in two steps disposes of what is replaced before the first.
                Op::Rename { replaced: Some((old, _)), .. }
                    if t.mark.is_some() || t.has_both() || is_freed =>
                {
                    (*old, false)
                }
                _ => continue,
            };
            let Ok(inode) = tree.get(id) else { continue };
            let seen = inode.home_id.ino != 0;
            let alone = !linked.contains(&id) && inode.more_bindings.is_empty();
            let is_away = match seen {
                true => !shown.contains(&id) && !astray.contains(&id),
                false => nowhere.contains(&id),
            };
            let is_vacant = (t.has_left() || t.has_both() || is_freed) && is_away;
            let has_gone = is_vacant || !(seen || is_removal);
            if alone && has_gone {
                gone.insert(id, t.seq);
            }
        }
        gone
    }
}
