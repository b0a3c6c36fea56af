//! Asking ahead for whoever walks through a tree: for the listings of the directories that come next, and for the
//! small files beside those that are read. One after the other each would cost a round trip.
//!
//! Somebody walks where, within the bound of staleness, he uses one child of a directory after another. The more of
//! them he has used, the further ahead the home is asked, and below the directory where he is as well. Nobody waits for
//! these questions, and what they bring is as old as any other answer. What is not of the same file system is left
//! alone, and so is what is in a directory that says it has no size: to list it might mount something.

use crate::fetch::{Extent, Want};
use crate::inode::{DirNode, Tree};
use crate::limits;
use crate::volume::Volume;
use home::{Attr, Kind};
use std::sync::Arc;
use std::time::Duration;

/// How much is still asked for.
struct Room {
    count: usize,
    bytes: u64,
}

impl Room {
    /// Whether something of this size is asked for.
    fn take(&mut self, bytes: u64) -> bool {
        let fits = self.count > 0 && bytes <= self.bytes;
        if fits {
            self.count -= 1;
            self.bytes -= bytes;
        }
        fits
    }
}

impl Volume {
    /// Somebody lists a directory from its start.
    pub fn list_ahead(self: &Arc<Self>, dir: u64, need: Duration) {
        if self.plain() || self.is_silent() {
            return;
        }
        let now = self.env.clock.instant();
        let wanted = next_listings(&mut self.tree.lock(), dir, now, need);
        wanted.into_iter().for_each(|id| self.ask_ahead(Want::List(id, Extent::Small)));
    }

    /// The home has to be asked for the beginning of a file.
    pub fn files_ahead(self: &Arc<Self>, id: u64, need: Duration) {
        if self.plain() || self.is_silent() {
            return;
        }
        let now = self.env.clock.instant();
        let mut tree = self.tree.lock();
        if tree.get(id).is_ok_and(|n| n.base_len > limits::SMALL_FILE) {
            return;
        }
        let Some((dir, cookie)) = place(&mut tree, id) else { return };
        let Ok(node) = tree.get(dir).and_then(|n| n.names_mut()) else { return };
        let count = node.reads.step(cookie, limits::FILES_AHEAD, now, need);
        let mut room = Room { count, bytes: limits::FILES_AHEAD_BYTES };
        let wanted = neighbours(&tree, dir, cookie, |id, attr, _| {
            attr.kind == Kind::File
                && attr.access.read
                && (1..=limits::SMALL_FILE).contains(&attr.size)
                && !self.data.gaps(id, 0, attr.size).is_empty()
                && room.take(attr.size)
        });
        drop(tree);
        wanted.into_iter().for_each(|id| self.ask_ahead(Want::Data(id, 0)));
    }
}

/// The directories whose listings may be wanted next by one who lists `dir`.
fn next_listings(tree: &mut Tree, dir: u64, now: Duration, need: Duration) -> Vec<u64> {
    let Some((parent, cookie)) = place(tree, dir) else { return Vec::new() };
    let Ok(above) = tree.get(parent).and_then(|n| n.names_mut()) else { return Vec::new() };
    let count = above.lists.step(cookie, limits::LISTS_AHEAD, now, need);
    let walk = above.lists;
    if count > 0
        && let Ok(here) = tree.get(dir).and_then(|n| n.names_mut())
    {
        here.lists.follow(walk);
    }
    let mut room = Room { count, bytes: limits::LISTS_AHEAD_BYTES };
    let mut is_next = |_, attr: &Attr, node: Option<&DirNode>| {
        node.is_some_and(|n| !(n.big || n.complete && n.listed_at >= need))
            && attr.access.read
            && attr.access.exec
            && (1..=limits::SMALL_DIR_BYTES).contains(&attr.size)
            && room.take(attr.size)
    };
    let mut wanted = neighbours(tree, parent, cookie, &mut is_next);
    wanted.extend(neighbours(tree, dir, 0, &mut is_next));
    wanted
}

/// The directory that an object is in, and its cookie there.
fn place(tree: &mut Tree, id: u64) -> Option<(u64, u64)> {
    let (dir, name) = tree.get(id).ok()?.link.clone()?;
    let cookie = tree.get(dir).ok()?.names().ok()?.cookie(&name);
    Some((dir, cookie))
}

/// Of the objects in a directory, from behind a cookie round to it, those with known attributes that `wants` takes.
fn neighbours(
    tree: &Tree,
    dir: u64,
    cookie: u64,
    mut wants: impl FnMut(u64, &Attr, Option<&DirNode>) -> bool,
) -> Vec<u64> {
    let Some(inode) = tree.peek(dir).filter(|n| n.attr.is_some_and(|a| a.size > 0)) else {
        return Vec::new();
    };
    let Ok(node) = inode.names() else { return Vec::new() };
    let round = node.after(cookie).chain(node.after(0).take_while(|(at, ..)| *at < cookie));
    let known = round.take(limits::AHEAD_SCAN).filter_map(|(_, _, slot)| {
        let child = tree.peek(slot.child?)?;
        let here = !child.gone && child.pending == 0 && child.home_id.fs == inode.home_id.fs;
        Some((slot.child?, child.attr.as_ref().filter(|_| here)?, child.dir.as_deref()))
    });
    known.filter(|(id, attr, node)| wants(*id, attr, *node)).map(|(id, ..)| id).collect()
}
