//! Directories that another program moves at the home while something is unsent in them.

use super::{DirNode, Tree};
use crate::limits;
use crate::sync::queue;
use hashbrown::HashSet;
use home::{HomeId, Kind, Name, Result};

impl Tree {
    /// The directory in memory that the home knows by this identity, if it had it elsewhere than under this name so far.
    pub fn moved_dir(&self, home_id: &HomeId, place: &(u64, Name)) -> Option<u64> {
        let id = *self.by_home.get(home_id)?;
        let inode = self.inodes.get(&id).filter(|inode| inode.kind == Kind::Dir)?;
        let bound = inode.binding.as_ref().filter(|bound| *bound != place);
        (home_id.ino != 0 && bound.is_some()).then_some(id)
    }

    /// The home shows a directory under this name, and so not where it had it before. `listed`: all names of this
    /// directory are being laid over it.
    pub fn moved_at_home(&mut self, id: u64, place: &(u64, Name), listed: Option<u64>) -> Result<()> {
        let inode = self.get(id)?;
        let Some(old) = inode.binding.replace(place.clone()) else { return Ok(()) };
        inode.drop_link(&old);
        if let Ok(node) = self.names_mut(old.0)
            && node.slot(&old.1).is_some_and(|slot| slot.child == Some(id) && slot.pending == 0)
        {
            node.forget(&old.1);
            node.others = true;
        }
        if listed != Some(old.0) {
            self.unlist(old.0);
        }
        self.notes.entry(old.0, &old.1, 0);
        self.note(id);
        (self.found, self.unsent) = (true, None);
        Ok(())
    }

    /// Whether a directory was moved, removed or replaced at the home, so that this name of it stands for nothing or for
    /// another object, `seen`, while what is unsent in it has no other place yet. It keeps the name until then.
    pub fn keeps_name(&mut self, child: Option<u64>, place: &(u64, Name), seen: Option<HomeId>) -> bool {
        let inode = child.and_then(|id| self.inodes.get(&id));
        let is_lost = inode.is_some_and(|inode| {
            let known = inode.home_id;
            let is_other = seen.is_none_or(|seen| seen.ino != 0 && seen != known);
            inode.kind == Kind::Dir && known.ino != 0 && is_other && inode.binding.as_ref() == Some(place)
        });
        is_lost && child.is_some_and(|id| self.holds_unsent(id))
    }

    /// Whether anything is unsent of an object or, if it is a directory, in it, however deep.
    pub fn holds_unsent(&mut self, id: u64) -> bool {
        let Ok(inode) = self.get(id) else { return false };
        inode.pending > 0 || inode.kind == Kind::Dir && self.unsent().contains(&id)
    }

    /// The nearest directory on the way to an object at the home in which anything is unsent; that may be the object itself.
    pub fn unsent_above(&mut self, id: u64) -> Option<u64> {
        let mut at = id;
        for _ in 0..limits::PATH_NAMES {
            if self.get(at).ok()?.kind == Kind::Dir && self.unsent().contains(&at) {
                return Some(at);
            }
            at = self.get(at).ok()?.binding.as_ref()?.0;
        }
        None
    }

    /// The objects of which anything is unsent, and the directories that lead to them. What is done in mode `strict` has
    /// somebody who waits for it, and is not shown before. Looked for once while the lock is held: whoever lays answers over the
    /// tree changes nothing of what is unsent.
    fn unsent(&mut self) -> &HashSet<u64> {
        if self.unsent.is_none() {
            self.unsent = Some(self.find_unsent());
        }
        self.unsent.get_or_insert_default()
    }

    fn find_unsent(&mut self) -> HashSet<u64> {
        let ops = self.queue.iter().filter(|(_, p)| !p.change.plain);
        let mut todo: Vec<u64> = ops.flat_map(|(_, p)| queue::objects(&p.change)).collect();
        let mut found = HashSet::new();
        while let Some(id) = todo.pop() {
            if found.insert(id)
                && let Ok(inode) = self.get(id)
            {
                let links = inode.link.iter().chain(&inode.more_links);
                todo.extend(links.chain(&inode.binding).map(|(dir, _)| *dir));
            }
        }
        found
    }

    /// Whether a directory was not found at the home though something is unsent in it: what is known of it has to do.
    pub fn is_astray(&self, dir: u64) -> bool {
        let node = self.inodes.get(&dir).and_then(|inode| inode.dir.as_deref());
        node.is_some_and(|node: &DirNode| node.astray)
    }
}
