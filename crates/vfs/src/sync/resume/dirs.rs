//! The directories in which lost operations worked. Another program may have moved them since, and have given their names to
//! others: what has a file's name there is another file, however its operation ended.

use super::Trace;
use crate::fetch::{Way, is_missing, is_out_of_reach};
use crate::inode::Tree;
use crate::limits;
use crate::sync::queue::{destroyed, names};
use crate::volume::Volume;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use hashbrown::HashSet;
use home::{HomePath, Kind, Loc, Op, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where they are believed to be, and which of them are not there.
pub(super) struct Dirs {
    asked: Vec<(u64, Loc)>,
    lost: HashSet<u64>,
}

impl Dirs {
    /// Whether a place is in a directory that is not where it is believed to be, or is that.
    pub fn are_lost_at(&self, place: &HomePath) -> bool {
        let mut lost = self.asked.iter().filter(|(dir, _)| self.lost.contains(dir));
        lost.any(|(_, loc)| loc.path.contains(place))
    }

    /// Whether an operation works in such a one: nobody has seen what it left.
    pub fn hide(&self, t: &Trace) -> bool {
        t.place.iter().chain(&t.old_place).any(|place| self.are_lost_at(place))
    }
}

impl Volume {
    /// Looks for those that are not in their places, and takes in where they are. To be called before anything is placed.
    pub(super) async fn find_dirs_again(self: &Arc<Self>) -> Result<Dirs> {
        let (dirs, asked) = {
            let mut tree = self.tree.lock();
            let dirs = dirs_of_lost(&mut tree);
            let asked = located(&mut tree, &dirs);
            (dirs, asked)
        };
        for dir in self.missing(asked).await? {
            match self.find_again(dir).await {
                Err(e) if is_out_of_reach(&e) => return Err(e),
                // What may not be looked at is where it is believed to be, as far as anybody can tell.
                Err(_) | Ok(Way::There | Way::Found | Way::Lost) => {}
            }
        }
        let asked = located(&mut self.tree.lock(), &dirs);
        Ok(Dirs { asked, lost: HashSet::new() })
    }

    /// Asks whether they are there: what was asked by paths before holds for those alone that are.
    pub(super) async fn look_for_dirs(&self, dirs: &mut Dirs) -> Result<()> {
        dirs.lost.extend(self.missing(dirs.asked.clone()).await?);
        Ok(())
    }

    /// Those of these directories that the home does not have there.
    async fn missing(&self, dirs: Vec<(u64, Loc)>) -> Result<Vec<u64>> {
        let questions = dirs.into_iter().map(|(dir, loc)| async move {
            match self.home.stat(&loc).await {
                Err(e) if is_out_of_reach(&e) => Err(e),
                Err(e) if is_missing(&e) => Ok(Some(dir)),
                _ => Ok(None),
            }
        });
        let missing: Vec<Option<u64>> =
            stream::iter(questions).buffer_unordered(limits::LOOKS).try_collect().await?;
        Ok(missing.into_iter().flatten().collect())
    }
}

/// The directories that lost operations name, or that their objects are in, but for those that one of them may have moved or
/// removed with what is in them: nobody can tell yet where these should be.
fn dirs_of_lost(tree: &mut Tree) -> BTreeSet<u64> {
    let (mut dirs, mut objects, mut moved) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (_, p) in tree.queue.lost().filter(|(_, p)| p.parked.is_none() && !p.change.plain) {
        dirs.extend(names(&p.change).map(|(dir, _)| dir));
        objects.insert(p.change.object);
        moved.extend(destroyed(&p.change));
        let is_move = matches!(p.change.op, Op::Rename { .. });
        moved.extend(is_move.then_some(p.change.object));
    }
    for id in objects {
        let Ok(inode) = tree.get(id) else { continue };
        dirs.extend((inode.kind == Kind::Dir).then_some(id));
        dirs.extend(inode.binding.iter().chain(&inode.more_bindings).map(|(dir, _)| *dir));
    }
    dirs.retain(|dir| !is_below(tree, *dir, &moved));
    dirs
}

/// Whether the home has a directory in one of these, or it is one of them.
fn is_below(tree: &mut Tree, dir: u64, tops: &BTreeSet<u64>) -> bool {
    let mut at = dir;
    for _ in 0..limits::PATH_NAMES {
        if tops.contains(&at) {
            return true;
        }
        match tree.get(at).ok().and_then(|inode| inode.binding.as_ref()) {
            Some((above, _)) => at = *above,
            None => return false,
        }
    }
    true
}

/// Where they are believed to be, as far as they can be told from others.
fn located(tree: &mut Tree, dirs: &BTreeSet<u64>) -> Vec<(u64, Loc)> {
    let locs = dirs.iter().filter_map(|dir| Some((*dir, Volume::loc(tree, *dir).ok()?)));
    locs.filter(|(_, loc)| loc.id.is_some()).collect()
}
