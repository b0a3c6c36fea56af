//! Directories that are not where the home had them, though something in them is unsent: they are looked for by their identity
//! in the directory where they were, and until they are seen somewhere what is known of them has to do.

use super::{Extent, Want, is_missing, is_out_of_reach};
use crate::volume::Volume;
use home::{ErrorKind, Loc, Result, Turn};
use std::sync::Arc;

/// Where a directory is that the home did not have when something was asked or done there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Where it was believed to be.
    There,
    /// Elsewhere, or there again: what was asked or done is worth a second try.
    Found,
    /// Nowhere that anybody has looked at.
    Lost,
}

impl Volume {
    /// Looks for the directory that leads to an object which the home does not have, the nearest one in which something is
    /// unsent. Where nothing unsent depends on it, it is found where others see it.
    pub(super) async fn way_to(self: &Arc<Self>, id: u64) -> Result<Way> {
        let dir = self.tree.lock().unsent_above(id);
        match dir {
            Some(dir) => self.find_again(dir).await,
            None => Ok(Way::There),
        }
    }

    /// Looks for a directory by its identity: the first one on the way to it that is not in its place, in the directory where
    /// that was. A home without identities shows nothing elsewhere.
    pub async fn find_again(self: &Arc<Self>, dir: u64) -> Result<Way> {
        let mut missing: Option<(u64, Loc)> = None;
        let mut at = dir;
        let above = loop {
            let (loc, binding) = {
                let mut tree = self.tree.lock();
                let Ok(loc) = Self::loc(&mut tree, at) else { return Ok(Way::There) };
                (loc, tree.get(at)?.binding.clone())
            };
            let Some((parent, _)) = binding.filter(|_| loc.id.is_some()) else { break at };
            match self.home.stat(&loc).await {
                Ok(_) => break at,
                Err(e) if is_missing(&e) => (missing, at) = (Some((at, loc)), parent),
                Err(e) => return Err(e),
            }
        };
        let Some((lost, was)) = missing else { return Ok(Way::There) };
        match self.fetch_list(above, Extent::Whole, Turn::Now).await {
            Err(e) if e.kind != ErrorKind::Busy && is_out_of_reach(&e) => return Err(e),
            // It may not be listed, or an operation of ours may be moving it.
            _ => {}
        }
        if self.tree.lock().home_path(lost).is_ok_and(|path| path != was.path) {
            return Ok(Way::Found);
        }
        match self.home.stat(&was).await {
            Ok(_) => Ok(Way::Found),
            Err(e) if is_missing(&e) => Ok(Way::Lost),
            Err(e) => Err(e),
        }
    }

    /// The home has the directory of what was asked for nowhere: what is known of it is all that there is.
    pub(super) fn make_do(&self, want: &Want, answer: Result<()>) -> Result<()> {
        self.note_astray(want, true);
        match want {
            Want::Data(..) | Want::Target(_) | Want::Xattrs(..) => answer,
            _ => Ok(()),
        }
    }

    /// Notes of the directory that is asked for whether the home has it nowhere.
    pub(super) fn note_astray(&self, want: &Want, astray: bool) {
        if let Ok(inode) = self.tree.lock().get(want.about()) {
            inode.dir.iter_mut().for_each(|node| node.astray = astray);
        }
    }

    /// The home does not have the object whose attributes were asked for.
    pub(super) fn forget_attributes(&self, want: &Want) {
        if let (Want::Attr(id) | Want::Look(id, _), tree) = (want, &mut *self.tree.lock())
            && let Ok(inode) = tree.get(*id)
            && inode.pending == 0
            && inode.binding.is_some()
            && inode.attr.take().is_some()
        {
            tree.notes.attributes(*id, 0);
        }
    }
}
