//! Asking ahead for whoever walks through a tree: for the listings of the directories that come next, and for the
//! small files beside those that are read. One after the other each would cost a round trip.
//!
//! Somebody walks where, within the bound of staleness, he uses one child of a directory after another, or lists a
//! directory, one in it, and one in that, or looks for names in one after another that has to be listed for it. The more of
//! them he has used, the further ahead the home is asked, and below the directory where he is as well. Who reads files
//! goes on so in the next directories; more is asked for when half of it is used, so that he need not stop. Nobody waits for
//! these questions, and what they bring is as old as any other answer. With the first small file that somebody reads after a
//! while come those beside it, a few in all: he may begin to work there. What is not of the same file system is left
//! alone, and so is what is in a directory that says it has no size: to list it might mount something. A home that walks
//! by itself is asked for many directories, and those below them, in one question; so it is by who comes down a path. What is
//! below a directory of which nothing is known comes beside its listing: he who looks into it may go on down.

use crate::fetch::{Extent, Met, Want};
use crate::freshness::{Need, is_listed};
use crate::inode::{DirNode, Order, Slot, Tree};
use crate::limits;
use crate::volume::Volume;
use home::{Attr, Kind};
use std::sync::Arc;

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
    /// Somebody has listed a directory from its start, who `met` it so.
    pub fn list_ahead(self: &Arc<Self>, dir: u64, met: Met, need: &Need) {
        self.ask_for_listings(Some(met), |tree, most| next_listings(tree, dir, most, need));
    }

    /// What is known of a directory to which somebody comes. Of what was asked for ahead that is told once.
    pub fn meets(&self, dir: u64, need: &Need) -> Met {
        let mut tree = self.tree.lock();
        let Ok(node) = tree.names_mut(dir) else { return Met::Unforeseen };
        match (std::mem::take(&mut node.ahead), is_listed(node, need)) {
            (true, _) => Met::Foreseen,
            (false, true) => Met::Known,
            (false, false) => Met::Unforeseen,
        }
    }

    /// Somebody looks into a directory. Where nothing is known of it, what is below comes beside its names.
    pub fn follow_down(self: &Arc<Self>, dir: u64) {
        if self.may_walk() && is_new(&self.tree.lock(), dir) {
            self.walk_below(dir);
        }
    }

    /// Somebody looks for a name in a directory that has to be listed for it.
    pub fn look_ahead(self: &Arc<Self>, dir: u64, need: &Need) {
        if self.may_walk() && comes_down(&mut self.tree.lock(), dir, need) {
            self.walk_down(dir);
        } else {
            self.follow_down(dir);
        }
        // Many look at once, in an order that is not that of the listing: what they have not used yet tells little.
        self.ask_for_listings(None, |tree, most| next_looks(tree, dir, most, need));
    }

    /// `met`: where somebody who lists came to, by which it is judged how much of what is asked for is of use.
    fn ask_for_listings(self: &Arc<Self>, met: Option<Met>, next: impl FnOnce(&mut Tree, Room) -> Vec<u64>) {
        if self.plain() || self.is_silent() {
            return;
        }
        let walks = self.may_walk();
        let mut most = match walks {
            true => Room { count: limits::WALKED_AHEAD, bytes: limits::WALKED_AHEAD_BYTES },
            false => Room { count: limits::LISTS_AHEAD, bytes: limits::LISTS_AHEAD_BYTES },
        };
        let now = self.env.clock.instant();
        let failures = met.map_or(Some(0), |met| self.walks.comes_to(met, now));
        most.count = (most.count >> (limits::GUESS_SHRINKS * failures.unwrap_or(0))).max(2);
        let (mut known, unknown) = {
            let mut tree = self.tree.lock();
            let wanted = next(&mut tree, most);
            let is_known = |id: &u64| !walks || tree.names(*id).is_ok_and(|node| node.complete);
            wanted.into_iter().partition::<Vec<u64>, _>(is_known)
        };
        if failures.is_none() {
            return;
        }
        known.truncate(limits::LISTS_AHEAD);
        known.iter().for_each(|id| self.ask_ahead(Want::List(*id, Extent::Small)));
        let walked = self.walk_ahead(unknown);
        if met.is_some() {
            self.walks.guesses(&mut self.tree.lock(), &[known, walked].concat());
        }
    }

    /// Somebody reads a file from its beginning. `foreseen`: it is there, or on its way.
    pub fn files_ahead(self: &Arc<Self>, id: u64, foreseen: bool, need: &Need) {
        if self.plain() || self.is_silent() {
            return;
        }
        let mut tree = self.tree.lock();
        if tree.get(id).is_ok_and(|n| n.base_len > limits::SMALL_FILE) {
            return;
        }
        let begins = self.walks.reads(need.now);
        let way = way(&mut tree, id);
        let mut room = match step_in_files(&mut tree, &way, foreseen, need) {
            0 if begins && !foreseen => Room { count: limits::FILES_AHEAD, bytes: limits::FILES_BESIDE },
            0 => return,
            count => Room { count, bytes: self.files_room() },
        };
        // What is on its way already takes room too, so that no more than that is at any time.
        let mut is_next = |id, attr: &Attr, _: Option<&DirNode>| {
            attr.kind == Kind::File
                && attr.access.read
                && (1..=limits::SMALL_FILE).contains(&attr.size)
                && !self.data.gaps(id, 0, attr.size).is_empty()
                && room.take(attr.size)
        };
        let Some(&(dir, cookie)) = way.first() else { return };
        let order = tree.names(dir).map(|node| node.reads.order()).unwrap_or_default();
        let mut wanted = neighbours(&tree, dir, (order, cookie), &mut is_next);
        let next = next_dirs(&tree, &way);
        for dir in &next {
            wanted.extend(neighbours(&tree, *dir, (order, 0), &mut is_next));
        }
        // What is known of their names may be too old when he comes there.
        let soon = Need { since: need.since + need.now.saturating_sub(need.since) / 2, ..*need };
        let lists = next.into_iter().filter(|dir| {
            tree.peek(*dir).and_then(|n| n.dir.as_ref()).is_some_and(|d| !d.big && !is_listed(d, &soon))
        });
        let lists: Vec<u64> = lists.collect();
        if let Ok(node) = tree.names_mut(dir) {
            node.reads.asks(wanted.len());
        }
        drop(tree);
        lists.into_iter().for_each(|dir| self.ask_ahead(Want::List(dir, Extent::Small)));
        wanted.into_iter().for_each(|id| self.ask_ahead(Want::Data(id, 0)));
    }

    /// How many bytes of small files are asked for ahead: twice what the wire has under way, because more is asked for when
    /// half of it is used.
    fn files_room(&self) -> u64 {
        let carried = self.home.window().map_or(limits::FILES_AHEAD_BYTES, |window| window.saturating_mul(2));
        carried.clamp(limits::FILES_BESIDE, limits::FILES_AHEAD_MOST)
    }
}

/// The directory that an object is in and its cookie there, then that directory's, and so on: the nearest few.
fn way(tree: &mut Tree, mut id: u64) -> Vec<(u64, u64)> {
    let mut way = Vec::with_capacity(limits::WALK_LEVELS);
    while way.len() < limits::WALK_LEVELS
        && let Some((dir, cookie)) = place(tree, id)
    {
        way.push((dir, cookie));
        id = dir;
    }
    way
}

/// How many small files may be wanted next by one who reads one. He goes on walking when he comes to another directory.
fn step_in_files(tree: &mut Tree, way: &[(u64, u64)], foreseen: bool, need: &Need) -> usize {
    let (now, need) = (need.now, need.since);
    let reads = |tree: &mut Tree, dir| tree.names(dir).map(|n| n.reads).unwrap_or_default();
    let Some(&(dir, cookie)) = way.first() else { return 0 };
    let mut walk = reads(tree, dir);
    let mut comes_here = false;
    if !walk.is_on(need)
        && let Some(elsewhere) = way[1..].iter().map(|(above, _)| reads(tree, *above)).find(|w| w.is_on(need))
    {
        walk.follow(elsewhere);
        comes_here = true;
    }
    // As long as what was asked for ahead is there, the order was right.
    let before = walk.last(need).filter(|_| !foreseen);
    let order = before.and_then(|before| order_of(tree, dir, before, cookie));
    if order.is_some() || comes_here && !foreseen {
        walk.begins_anew(order);
    }
    let count = walk.step(cookie, foreseen, limits::FILES_AHEAD, now, need);
    if let Ok(node) = tree.names_mut(dir) {
        node.reads = walk;
    }
    for &(above, cookie) in way[1..].iter().filter(|_| walk.is_under_way()) {
        let Ok(node) = tree.names_mut(above) else { break };
        let Some(before) = node.reads.pass(cookie, walk, need) else { continue };
        let listed_next = next_dir(tree, above, before) == Some(cookie);
        if let Ok(node) = tree.names_mut(above) {
            node.reads.goes_by_name(!listed_next);
        }
    }
    count
}

/// In which order the file with the cookie `now` comes next behind the one with the cookie `before`.
fn order_of(tree: &Tree, dir: u64, before: u64, now: u64) -> Option<Order> {
    let node = tree.peek(dir)?.names().ok()?;
    let mut listed = children(tree, node, Order::Listed, before);
    let is_file = |id: &u64| tree.peek(*id).is_some_and(|n| n.kind == Kind::File);
    let at = |cookie: u64| node.after(cookie.checked_sub(1)?).next();
    let (name, id) = at(now).and_then(|(_, name, slot)| Some((name, slot.child?)))?;
    if listed.find(is_file) == Some(id) {
        return Some(Order::Listed);
    }
    if node.len() > limits::AHEAD_SORTED {
        return None;
    }
    let fileid = |id: u64| tree.peek(id).map(|n| n.fileid);
    let (from, from_name) = at(before).and_then(|(_, name, slot)| Some((fileid(slot.child?)?, name)))?;
    let files =
        || node.after(0).filter_map(|(_, name, slot)| Some((name, slot.child.filter(|id| is_file(id))?)));
    if name > from_name && !files().any(|(other, _)| from_name < other && other < name) {
        return Some(Order::Name);
    }
    let to = fileid(id)?;
    let between = |id| fileid(id).is_some_and(|other| from < other && other < to);
    (to > from && !files().any(|(_, id)| between(id))).then_some(Order::Fileid)
}

/// The objects in a directory, in an order from behind the one with this cookie round to it. Of a large one the next few as
/// they are listed.
fn children<'a>(
    tree: &'a Tree,
    node: &'a DirNode,
    order: Order,
    cookie: u64,
) -> Box<dyn Iterator<Item = u64> + 'a> {
    if order == Order::Listed || node.len() > limits::AHEAD_SORTED {
        let round = node.after(cookie).chain(node.after(0).take_while(move |(at, ..)| *at < cookie));
        return Box::new(round.take(limits::AHEAD_SCAN).filter_map(|(.., slot)| slot.child));
    }
    let mut all: Vec<_> =
        node.after(0).filter_map(|(at, name, slot)| Some((at, name, slot.child?))).collect();
    match order {
        Order::Name => all.sort_unstable_by_key(|(_, name, _)| *name),
        _ => all.sort_unstable_by_key(|(.., id)| tree.peek(*id).map(|n| n.fileid)),
    }
    let from = all.iter().position(|(at, ..)| *at == cookie).map_or(0, |at| at + 1);
    all.rotate_left(from);
    Box::new(all.into_iter().map(|(.., id)| id))
}

/// The cookie of the first directory behind a cookie.
fn next_dir(tree: &Tree, dir: u64, after: u64) -> Option<u64> {
    let node = tree.peek(dir)?.names().ok()?;
    let is_dir = |slot: &Slot| slot.child.and_then(|id| tree.peek(id)).is_some_and(|n| n.kind == Kind::Dir);
    node.after(after).take(limits::AHEAD_SCAN).find(|(.., slot)| is_dir(slot)).map(|(cookie, ..)| cookie)
}

/// The directories to which one comes next who reads the files of one directory after another.
fn next_dirs(tree: &Tree, way: &[(u64, u64)]) -> Vec<u64> {
    let Some(&(above, cookie)) = way.get(1) else { return Vec::new() };
    let Some(inode) = tree.peek(above) else { return Vec::new() };
    let Ok(node) = inode.names() else { return Vec::new() };
    let Some(by_name) = node.reads.by_name() else { return Vec::new() };
    let is_next = |slot: &Slot| {
        let child = slot.child.and_then(|id| tree.peek(id));
        child.is_some_and(|n| n.dir.as_ref().is_some_and(|d| d.complete) && n.home_id.fs == inode.home_id.fs)
    };
    let from = if by_name { 0 } else { cookie };
    let mut next: Vec<_> =
        node.after(from).take(limits::AHEAD_SCAN).filter(|(.., slot)| is_next(slot)).collect();
    if by_name {
        let here = way.first().and_then(|(dir, _)| tree.peek(*dir)?.link.as_ref());
        next.retain(|(_, name, _)| here.is_some_and(|(_, here)| *name > here));
        next.sort_unstable_by_key(|(_, name, _)| *name);
    }
    next.into_iter().take(limits::DIRS_AHEAD).filter_map(|(.., slot)| slot.child).collect()
}

/// The directories whose listings may be wanted next by one who lists `dir`.
fn next_listings(tree: &mut Tree, dir: u64, most: Room, need: &Need) -> Vec<u64> {
    let Some((parent, cookie)) = place(tree, dir) else { return Vec::new() };
    let goes_down = place(tree, parent).is_some_and(|(above, cookie)| {
        tree.names(above).is_ok_and(|node| node.lists.last(need.since) == Some(cookie))
    });
    let Ok(above) = tree.names_mut(parent) else { return Vec::new() };
    let mut count = above.lists.step(cookie, false, most.count, need.now, need.since);
    if goes_down {
        count = above.lists.goes_down(limits::DOWN_AHEAD);
    }
    let walk = above.lists;
    if count > 0
        && let Ok(here) = tree.names_mut(dir)
    {
        here.lists.follow(walk);
    }
    // He may go down first, or on: half of the room is for what is below.
    let mut room = Room { count: count.div_ceil(2), bytes: most.bytes / 2 };
    let below = |_, attr: &Attr, node: Option<&DirNode>| is_small(attr, node, need) && room.take(attr.size);
    let mut wanted = neighbours(tree, dir, (Order::Listed, 0), below);
    room = Room { count: count - wanted.len(), bytes: room.bytes + most.bytes / 2 };
    let mut further =
        |_, attr: &Attr, node: Option<&DirNode>| is_small(attr, node, need) && room.take(attr.size);
    wanted.extend(neighbours(tree, parent, (Order::Listed, cookie), &mut further));
    for next in listed_next(tree, parent, need) {
        wanted.extend(neighbours(tree, next, (Order::Listed, 0), &mut further));
    }
    wanted
}

/// The same of one who looks for names in one directory after another, as git does for what it knows of.
fn next_looks(tree: &mut Tree, dir: u64, mut most: Room, need: &Need) -> Vec<u64> {
    let Some((parent, cookie)) = place(tree, dir) else { return Vec::new() };
    let Ok(above) = tree.names_mut(parent) else { return Vec::new() };
    most.count = above.looks.step(cookie, false, most.count, need.now, need.since);
    let further = |id, attr: &Attr, node: Option<&DirNode>| {
        id != dir && is_small(attr, node, need) && most.take(attr.size)
    };
    neighbours(tree, parent, (Order::Listed, cookie), further)
}

/// Whether somebody looks for names in the directory above, too, and nothing is known of this one, which is hardly large.
fn comes_down(tree: &mut Tree, dir: u64, need: &Need) -> bool {
    let Some((parent, _)) = place(tree, dir) else { return false };
    let looks = place(tree, parent).is_some_and(|(above, cookie)| {
        tree.names(above).is_ok_and(|node| node.looks.last(need.since) == Some(cookie))
    });
    looks && is_new(tree, dir)
}

/// Whether nothing is known of a directory, which is hardly large.
fn is_new(tree: &Tree, dir: u64) -> bool {
    let Some(inode) = tree.peek(dir) else { return false };
    let size = inode.attr.map_or(0, |attr| attr.size);
    (1..=limits::NEW_DIR_SIZE).contains(&size) && inode.dir.as_ref().is_some_and(|n| !n.complete && !n.big)
}

/// Whether a directory is small, may be listed, and has to be.
fn is_small(attr: &Attr, node: Option<&DirNode>, need: &Need) -> bool {
    node.is_some_and(|n| !n.big && !is_listed(n, need))
        && attr.access.read
        && attr.access.exec
        && (1..=limits::SMALL_DIR_BYTES).contains(&attr.size)
}

/// The directories with a known listing to which one comes who has walked through this one.
fn listed_next(tree: &mut Tree, dir: u64, need: &Need) -> Vec<u64> {
    let Some((above, cookie)) = place(tree, dir) else { return Vec::new() };
    let mut left = limits::WALKS_AHEAD;
    neighbours(tree, above, (Order::Listed, cookie), |_, _, node| {
        let listed = left > 0 && node.is_some_and(|n| is_listed(n, need));
        left -= usize::from(listed);
        listed
    })
}

/// The directory that an object is in, and its cookie there.
fn place(tree: &mut Tree, id: u64) -> Option<(u64, u64)> {
    let (dir, name) = tree.get(id).ok()?.link.clone()?;
    let cookie = tree.names(dir).ok()?.cookie(&name);
    Some((dir, cookie))
}

/// Of the [`children`] of a directory, those with known attributes that `wants` takes.
fn neighbours(
    tree: &Tree,
    dir: u64,
    (order, cookie): (Order, u64),
    mut wants: impl FnMut(u64, &Attr, Option<&DirNode>) -> bool,
) -> Vec<u64> {
    let Some(inode) = tree.peek(dir).filter(|n| n.attr.is_some_and(|a| a.size > 0)) else {
        return Vec::new();
    };
    let Ok(node) = inode.names() else { return Vec::new() };
    let known = children(tree, node, order, cookie).filter_map(|id| {
        let child = tree.peek(id)?;
        let here = !child.gone && child.pending == 0 && child.home_id.fs == inode.home_id.fs;
        Some((id, child.attr.as_ref().filter(|_| here)?, child.dir.as_deref()))
    });
    known.filter(|(id, attr, node)| wants(*id, attr, *node)).map(|(id, ..)| id).collect()
}
