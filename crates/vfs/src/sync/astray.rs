//! What is unsent in a directory that another program has moved at the home: it goes where that is found again, and waits
//! where it is not.

use super::place::Ready;
use super::queue;
use crate::fetch::Way;
use crate::inode::Tree;
use crate::limits;
use crate::volume::Volume;
use home::{Attr, ErrorKind, HomePath, Kind, Op, Result};
use std::sync::Arc;

impl Volume {
    /// Where the directories are in which an operation works that met nothing, or another object, where it was sent.
    pub(super) async fn way_of(self: &Arc<Self>, one: &Ready) -> Result<Way> {
        let dirs = self.dirs_of(one);
        let mut way = Way::There;
        for (dir, _) in &dirs {
            match self.find_again(*dir).await? {
                Way::Found => return Ok(Way::Found),
                Way::Lost => way = Way::Lost,
                Way::There => {}
            }
        }
        Ok(if way == Way::There && self.goes_again(one, &dirs) { Way::Found } else { way })
    }

    /// The directories in which an operation works, and where each was when it was sent.
    fn dirs_of(&self, one: &Ready) -> Vec<(u64, Option<HomePath>)> {
        let mut tree = self.tree.lock();
        let first = one.group.seqs.first().and_then(|seq| tree.queue.get(*seq));
        let Some(change) = first.map(|p| p.change.clone()) else { return Vec::new() };
        let sent = one.op.dirs().map(|dir| Some(dir.path.clone()));
        let mut dirs: Vec<_> = queue::names(&change).map(|(dir, _)| dir).zip(sent).collect();
        let Ok(inode) = tree.get(change.object) else { return dirs };
        let above = inode.binding.as_ref().map(|(dir, _)| *dir);
        match &one.op {
            Op::Link { .. } => dirs.extend(above.map(|dir| (dir, None))),
            Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. } if inode.kind == Kind::Dir => {
                dirs.push((change.object, Some(one.op.place().path.clone())));
            }
            Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. } => {
                let sent = one.op.place().path.split().map(|(dir, _)| dir);
                dirs.extend(above.map(|dir| (dir, sent)));
            }
            _ => {}
        }
        dirs
    }

    /// Each directory is where it is known to be. It was not when the operation ran: others have seen it elsewhere since, or it
    /// was moved there and back. A few times in a row it is sent again at once.
    fn goes_again(&self, one: &Ready, dirs: &[(u64, Option<HomePath>)]) -> bool {
        let mut tree = self.tree.lock();
        let is_elsewhere =
            dirs.iter().any(|(dir, sent)| sent.is_some() && tree.home_path(*dir).ok() != *sent);
        // Of these it was the directory itself that was not there.
        let is_of_names = matches!(one.op, Op::Create { .. } | Op::Remove { .. });
        let is_back = is_of_names && one.op.dirs().all(|dir| dir.id.is_some());
        let first = one.group.seqs.first().and_then(|seq| tree.queue.get_mut(*seq));
        let Some(op) = first.filter(|op| op.refusals < limits::ASTRAY_TRIES) else { return false };
        op.refusals += u32::from(is_elsewhere || is_back);
        is_elsewhere || is_back
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
