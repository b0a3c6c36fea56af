//! What is unsent in a directory that another program has moved at the home: it goes where that is found again, and waits
//! where it is not.

use super::place::Ready;
use super::queue;
use crate::fetch::Way;
use crate::inode::Tree;
use crate::volume::Volume;
use home::{Attr, ErrorKind, Kind, Op, Result};
use std::sync::Arc;

impl Volume {
    /// Where the directories are in which an operation works that the home refused, because what it named was not there.
    pub(super) async fn way_of(self: &Arc<Self>, one: &Ready) -> Result<Way> {
        let dirs = {
            let mut tree = self.tree.lock();
            let Some(seq) = one.group.seqs.first() else { return Ok(Way::There) };
            let Some(change) = tree.queue.get(*seq).map(|p| p.change.clone()) else { return Ok(Way::There) };
            let mut dirs: Vec<u64> = queue::names(&change).map(|(dir, _)| dir).collect();
            if let Ok(inode) = tree.get(change.object)
                && let Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. } | Op::Link { .. } =
                    change.op
            {
                let above = inode.binding.as_ref().map(|(dir, _)| *dir);
                dirs.extend(if inode.kind == Kind::Dir { Some(change.object) } else { above });
            }
            dirs
        };
        let mut way = Way::There;
        for dir in dirs {
            match self.find_again(dir).await? {
                Way::Found => return Ok(Way::Found),
                Way::Lost => way = Way::Lost,
                Way::There => {}
            }
        }
        Ok(way)
    }

    /// A write met another file than its own, or none, because its directory is elsewhere: it is sent again where that was
    /// found. Else it stays what it is until the directory is seen again: where it is, its file may be as it was.
    pub(super) async fn is_astray(self: &Arc<Self>, one: &Ready, theirs: Option<&Attr>) -> Result<bool> {
        let Op::Write { file, .. } = &one.op else { return Ok(false) };
        if theirs.is_some_and(|theirs| file.id.is_none_or(|id| id == theirs.id)) {
            return Ok(false);
        }
        let way = self.way_of(one).await?;
        if way == Way::Lost {
            self.park(&mut self.tree.lock(), &one.group, ErrorKind::NotFound);
        }
        Ok(way != Way::There)
    }

    /// A directory was found elsewhere than before: what was refused because it was not in its place is sent again.
    pub fn retry_astray(&self, tree: &mut Tree) {
        let is_astray = |kind| matches!(kind, Some(ErrorKind::NotFound | ErrorKind::Stale));
        let refused = tree.queue.iter().filter(|(_, p)| is_astray(p.parked));
        let refused: Vec<u64> = refused.map(|(seq, _)| seq).collect();
        let now = self.env.clock.instant();
        for seq in &refused {
            tree.queue.get_mut(*seq).into_iter().for_each(|op| op.again = Some(now));
        }
        if !refused.is_empty() {
            self.wake.notify_one();
        }
    }
}
