//! Attributes and names as the home shows them, merged under what is unsent. Passive: nobody is asked here.
//!
//! An answer is laid over the tree only where nothing of ours is newer: an object or name with unsent
//! operations keeps what we made of it, and one whose last outcome came after the question keeps that.

use crate::inode::{DirNode, Inode, Settled, Tree};
use home::{Attr, HomeId, Kind, Name, Page, Result, Time, Version, Xattrs};
use std::time::Duration;

/// When and at which point of our own history the home was asked.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Monotonic time of the question.
    pub at: Duration,
    /// [`Tree::tick`] at the question.
    pub tick: u64,
    /// The last operation that the answer contains.
    pub applied: u64,
    /// Wall-clock time of the answer.
    pub heard: Time,
}

impl Asked {
    fn knows(&self, settled: &Settled) -> bool {
        settled.is_known_to(self.tick, self.applied)
    }
}

/// What an answer did to the cached content of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Cached bytes still hold.
    Kept,
    /// Cached bytes belong to another version.
    Changed,
}

/// Lays attributes over an object.
pub fn observe(tree: &mut Tree, id: u64, attr: &Attr, asked: Asked) -> Result<Content> {
    let heard = tree.heard(asked.heard);
    let inode = tree.get(id)?;
    // What was kept from before a restart has no unsent change that could not be laid over the answer once more, but
    // outcomes that came after the question cannot; and what is unsent was not made to another object of its name.
    let is_known = inode.home_id.ino != 0 && inode.kind != Kind::Dir;
    let is_other = inode.pending > 0 && is_known && inode.home_id != attr.id;
    let is_ours = is_other || !inode.recalled && (inode.pending > 0 || asked.at < inode.at);
    if inode.attr.is_some() && (is_ours || !asked.knows(&inode.settled)) {
        return Ok(Content::Kept);
    }
    let changed = inode.base.is_some_and(|b| b != attr.version());
    let news = inode.attr.map(|known| Attr { atime: attr.atime, ..known }) != Some(*attr);
    let before = seen(inode);
    let unsent = inode.pending > 0;
    if let Some(dir) = &mut inode.dir {
        dir.told.shows(attr.mtime, asked.at);
    }
    let last = ctime(inode).or(inode.shown.map(|(_, time)| time));
    adopt(inode, attr, asked.at, heard);
    let moves_ctime = last != ctime(inode);
    if inode.home_id != attr.id {
        let binding = inode.binding.clone();
        tree.rebind(id, attr.id, binding);
    } else if news {
        tree.unsaved(id);
    }
    if unsent {
        crate::overlay::overlay_attributes(tree, id, asked.applied, moves_ctime)?;
        let plain = tree.queue.plain_over(id);
        let inode = tree.get(id)?;
        if inode.pending as usize == plain {
            inode.stands_on(attr);
        }
    }
    if changed && attr.kind == Kind::File {
        tree.notes.content(id, 0);
    } else if before.is_some() && before != tree.peek(id).and_then(seen) {
        tree.notes.attributes(id, 0);
    }
    Ok(if changed { Content::Changed } else { Content::Kept })
}

/// What clients see of an object's attributes, but for what reading changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    owner: (u32, u32, u32),
    nlink: u32,
    size: u64,
    times: (Time, Time),
}

/// What clients see of an object's attributes, where they are known.
pub fn seen(inode: &Inode) -> Option<Seen> {
    let attr = inode.attr.as_ref()?;
    Some(Seen {
        owner: (attr.mode, attr.uid, attr.gid),
        nlink: attr.nlink,
        size: attr.size,
        times: (attr.mtime, shown_ctime(inode, attr)),
    })
}

/// Takes over the home's attributes, heard at the wall-clock time `now`. The ctime that is shown never goes back, and is
/// none that is yet to come: what we have shown by the clock of a home that is ahead of ours we could not count on from
/// after a crash.
pub fn adopt(inode: &mut Inode, attr: &Attr, at: Duration, now: Time) {
    let version = attr.version();
    let ctime = attr.ctime.min(now);
    inode.shown = match (inode.kind, inode.shown) {
        // Where the home shows what we made, clients see no other ctime: after a power cut it would be ours again.
        (_, Some((shown_for, time))) if shown_for == Some(version) || is_ours(inode, attr) => {
            Some((Some(version), time))
        }
        (Kind::Dir, Some((_, time))) => Some((Some(version), time.max(ctime))),
        // It changed at the home since: clients must see another ctime than the last one.
        (_, Some((_, time))) if ctime <= time => Some((Some(version), time.next())),
        _ => (ctime < attr.ctime).then_some((Some(version), ctime)),
    };
    (inode.attr, inode.recalled) = (Some(*attr), false);
    inode.xattrs.keep_as_of(attr.ctime);
    inode.at = at;
    if inode.pending == 0 {
        inode.base = Some(version);
        inode.base_len = attr.size;
    }
}

/// Whether the home shows of an object nothing but what it is to us: as our last look or change left it there, or as our
/// changes make it, but for ctime. What is known of a directory from before a restart may be older than what was shown.
fn is_ours(inode: &Inode, attr: &Attr) -> bool {
    let of = |x: &Attr| (x.mode, x.uid, x.gid, x.nlink, x.mtime);
    let content = |x: &Attr| (x.mtime, x.size);
    if inode.kind == Kind::Dir && inode.base == Some(attr.version()) {
        return true;
    }
    let Some(mine) = &inode.attr else { return false };
    match (inode.kind, inode.shown) {
        (Kind::Dir, Some((None, _))) => !inode.recalled && of(mine) == of(attr),
        (Kind::Dir, _) => false,
        // Of those that are unsent the home may have executed some.
        _ => inode.pending > 0 && content(mine) == content(attr),
    }
}

/// The ctime that clients see.
pub fn shown_ctime(inode: &Inode, attr: &Attr) -> Time {
    shown_ctime_of(inode.shown, attr)
}

/// The ctime that clients see of an object whose last shown one is `shown`.
pub fn shown_ctime_of(shown: Option<(Option<Version>, Time)>, attr: &Attr) -> Time {
    match shown {
        Some((Some(version), time)) if version == attr.version() => time,
        Some((_, time)) if attr.kind == Kind::Dir => time.max(attr.ctime),
        Some((_, time)) => time,
        None => attr.ctime,
    }
}

/// Lays extended attributes over an object, unless a change of ours came in between; and its other attributes with
/// them.
pub fn merge_xattrs(tree: &mut Tree, id: u64, answer: Xattrs, asked: Asked) -> Result<Content> {
    let content = observe(tree, id, &answer.attr, asked)?;
    if asked.knows(&tree.get(id)?.settled) {
        tree.learn_xattrs(id, answer.attr.ctime, answer.list)?;
    }
    Ok(content)
}

/// Lays one name with its object over a directory; answers the object, and whether its content changed.
pub fn merge_name(
    tree: &mut Tree,
    dir: u64,
    name: &Name,
    attr: Option<&Attr>,
    asked: Asked,
) -> Result<Option<(u64, Content)>> {
    let node = tree.names_mut(dir)?;
    let known = node.slot(name).map(|s| s.child).or(node.complete.then_some(None));
    let slot = node.slot(name).unwrap_or_default();
    if !is_news(node, name, asked) {
        return Ok(None);
    }
    if was_changed(tree, slot.child, asked, attr.map(|a| a.id)) {
        return Ok(None);
    }
    let place = (dir, name.clone());
    if let Some(moved) = attr.and_then(|attr| tree.moved_dir(&attr.id, &place)) {
        tree.moved_at_home(moved, &place, None)?;
    }
    if tree.keeps_name(slot.child, &place, attr.map(|attr| attr.id)) {
        tree.names_mut(dir)?.slot_mut(name).at = asked.at;
        return Ok(None);
    }
    let Some(attr) = attr else {
        if waits_for(tree, slot.child, &place) {
            return Ok(None);
        }
        set_slot(tree, dir, name, None, asked)?;
        if let Some(old) = slot.child {
            tree.unlink(dir, name, old);
            note_unlinked(tree, dir, name, old)?;
        }
        return Ok(None);
    };
    let id = tree.bind(dir, name, attr, slot.child)?;
    if let Some(old) = slot.child.filter(|old| *old != id) {
        tree.unlink(dir, name, old);
        tree.notes.attributes(old, 0);
    }
    if known.is_some_and(|child| child != Some(id)) {
        note_other(tree, dir, name)?;
    }
    set_slot(tree, dir, name, Some(id), asked)?;
    Ok(Some((id, observe(tree, id, attr, asked)?)))
}

/// Whether an answer may say what a name stands for: nothing of it is unsent, and nothing younger is known of it.
fn is_news(node: &DirNode, name: &Name, asked: Asked) -> bool {
    let slot = node.slot(name);
    // An answer to an older question may come after that to a younger one, which has forgotten the names that were free.
    let is_forgotten = slot.is_none() && asked.tick < node.forgot;
    let slot = slot.unwrap_or_default();
    let is_older = asked.at < slot.at || node.is_listed_after(asked.at) || is_forgotten;
    slot.pending == 0 && asked.knows(&slot.settled) && !is_older
}

/// Directories that a page shows elsewhere than before, all of them before any name of it is laid over the directory: else
/// one that has the old name of another by now would have to wait for that.
fn follow_moves(tree: &mut Tree, dir: u64, page: &Page, asked: Asked) -> Result<()> {
    for entry in &page.entries {
        let Some(attr) = entry.attr.filter(|attr| attr.kind == Kind::Dir) else { continue };
        let place = (dir, entry.name.clone());
        let Some(moved) = tree.moved_dir(&attr.id, &place) else { continue };
        let node = tree.names(dir)?;
        let child = node.slot(&entry.name).and_then(|slot| slot.child);
        if is_news(node, &entry.name, asked) && !was_changed(tree, child, asked, Some(attr.id)) {
            tree.moved_at_home(moved, &place, Some(dir))?;
        }
    }
    Ok(())
}

/// Whether an answer says that a name stands for another object than this, or for none, because it does not know yet what
/// came of our last operation on the object: a write may have given it another identity at the home.
fn was_changed(tree: &Tree, child: Option<u64>, asked: Asked, seen: Option<HomeId>) -> bool {
    let inode = child.and_then(|id| tree.peek(id));
    inode.is_some_and(|inode| Some(inode.home_id) != seen && !asked.knows(&inode.settled))
}

/// The home does not have an object by the name that it is asked for by. Answers whether it was seen by another one, too:
/// that is what it is asked for by from now on.
pub fn look_elsewhere(tree: &mut Tree, id: u64) -> Result<bool> {
    let inode = tree.get(id)?;
    let Some(place) = inode.binding.clone().filter(|_| !inode.more_bindings.is_empty()) else {
        return Ok(false);
    };
    inode.drop_binding(&place);
    let node = tree.names_mut(place.0)?;
    let slot = node.slot(&place.1).unwrap_or_default();
    if slot.child == Some(id) && slot.pending == 0 {
        node.forget(&place.1);
        tree.unlist(place.0);
    }
    // A name of which nothing is known any more is not its name either.
    if slot.child != Some(id) || slot.pending == 0 {
        tree.get(id)?.drop_link(&place);
    }
    tree.notes.entry(place.0, &place.1, 0);
    tree.note(id);
    Ok(true)
}

fn set_slot(tree: &mut Tree, dir: u64, name: &Name, child: Option<u64>, asked: Asked) -> Result<()> {
    let slot = tree.names_mut(dir)?.slot_mut(name);
    slot.child = child;
    slot.at = asked.at;
    Ok(())
}

/// Lays a page of a listing over a directory. Answers the objects whose content changed.
pub fn merge_page(tree: &mut Tree, dir: u64, page: Page, asked: Asked) -> Result<Vec<u64>> {
    let asked = Asked { applied: page.applied, ..asked };
    observe(tree, dir, &page.dir, asked)?;
    follow_moves(tree, dir, &page, asked)?;
    let mut changed = Vec::new();
    for entry in page.entries {
        let Some(attr) = &entry.attr else {
            // What it is cannot be told; it has not gone.
            let node = tree.names_mut(dir)?;
            if node.slot(&entry.name).is_some_and(|slot| slot.child.is_some()) {
                node.slot_mut(&entry.name).at = asked.at;
            }
            continue;
        };
        let merged = merge_name(tree, dir, &entry.name, Some(attr), asked)?;
        if merged.is_none_or(|(id, _)| tree.peek(id).is_some_and(|n| n.pending > 0)) {
            tree.names_mut(dir)?.told.except(&entry.name);
        }
        let Some((id, content)) = merged else { continue };
        let inode = tree.get(id)?;
        if asked.knows(&inode.settled) {
            inode.told_bare(attr.ctime, entry.bare);
        }
        if let Some(target) = entry.target {
            inode.target = Some(target);
        }
        if content == Content::Changed {
            changed.push(id);
        }
    }
    Ok(changed)
}

/// Ends a listing whose pages were all laid over the directory: names that none of them had are free. One that was asked
/// for before names were forgotten does not tell of all.
pub fn finish_listing(tree: &mut Tree, dir: u64, asked: Asked) -> Result<()> {
    let node = tree.names(dir)?;
    if node.is_listed_after(asked.at) || asked.tick < node.forgot {
        return Ok(());
    }
    drop_missing(tree, dir, asked)?;
    let node = tree.names_mut(dir)?;
    (node.big, node.doubted, node.astray) = (false, false, false);
    node.listed_at = asked.at;
    if !std::mem::replace(&mut node.complete, true) {
        tree.unsaved(dir);
    }
    Ok(())
}

/// Names that a complete listing did not have are free.
fn drop_missing(tree: &mut Tree, dir: u64, asked: Asked) -> Result<()> {
    let node = tree.names(dir)?;
    let missing: Vec<(Name, Option<u64>)> = node
        .after(0)
        .filter(|(_, _, s)| s.at < asked.at && s.pending == 0 && asked.knows(&s.settled))
        .map(|(_, n, s)| (n.clone(), s.child))
        .collect();
    for (name, child) in missing {
        // What is unsent for it brings it back or finds out that it is gone.
        let place = (dir, name.clone());
        if waits_for(tree, child, &place) || was_changed(tree, child, asked, None) {
            continue;
        }
        if tree.keeps_name(child, &place, None) {
            tree.names_mut(dir)?.slot_mut(&name).at = asked.at;

            continue;
        }
        tree.names_mut(dir)?.forget(&name);
        if let Some(id) = child {
            tree.unlink(dir, &name, id);
            note_unlinked(tree, dir, &name, id)?;
        }
    }
    Ok(())
}

/// Whether what is unsent for an object brings this name of it back, or finds out that it is gone. A directory that the home
/// has by another name needs this one no more.
fn waits_for(tree: &mut Tree, child: Option<u64>, place: &(u64, Name)) -> bool {
    let inode = child.and_then(|id| tree.get(id).ok()).filter(|inode| inode.pending > 0);
    inode.is_some_and(|inode| {
        inode.kind != Kind::Dir || inode.binding.as_ref().is_none_or(|bound| bound == place)
    })
}

fn note_unlinked(tree: &mut Tree, dir: u64, name: &Name, id: u64) -> Result<()> {
    tree.notes.attributes(id, 0);
    note_other(tree, dir, name)
}

/// Others have given a name to another object, or to none.
fn note_other(tree: &mut Tree, dir: u64, name: &Name) -> Result<()> {
    tree.notes.entry(dir, name, 0);
    tree.names_mut(dir)?.others = true;
    Ok(())
}

/// Lays an answer about names over a directory, and moves its ctime on if it finds that others changed some and clients
/// have seen that ctime before: an NFS client believes what it knows of names until the directory's times are others.
/// An outcome of ours may have brought the time of a change by others, of which nothing else was known then.
pub fn with_names<T>(tree: &mut Tree, dir: u64, lay: impl FnOnce(&mut Tree) -> Result<T>) -> Result<T> {
    let before = tree.peek(dir).and_then(ctime);
    let laid = lay(tree);
    let others = std::mem::take(&mut tree.names_mut(dir)?.others);
    let inode = tree.get(dir)?;
    if let Some(attr) = inode.attr.filter(|_| others && before.is_some() && before == ctime(inode)) {
        let version = inode.shown.map_or(Some(attr.version()), |(version, _)| version);
        inode.shown = Some((version, shown_ctime(inode, &attr).next()));
        tree.note(dir);
    }
    laid
}

fn ctime(inode: &Inode) -> Option<Time> {
    Some(shown_ctime(inode, inode.attr.as_ref()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::ROOT_ID;
    use crate::inode::tests::attr;
    use crate::journal::Change;
    use crate::store::{MemStore, MetaStore};
    use home::Entry;
    use std::sync::Arc;

    fn asked(seconds: u64) -> Asked {
        Asked {
            at: Duration::from_secs(seconds),
            tick: 1,
            applied: 0,
            heard: Time { sec: i64::MAX, nsec: 0 },
        }
    }

    /// An outcome of ours has brought the time of another program's change before its names were told.
    #[test]
    fn a_name_of_others_moves_the_ctime_on_that_was_seen_without_it() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let (dir, file) = (attr(Kind::Dir, 2), attr(Kind::File, 3));
        let page = |names: &[&[u8]]| {
            let entry = |name: &&[u8]| Entry {
                name: Name::new(name).unwrap(),
                attr: Some(file),
                target: None,
                bare: false,
            };
            Page { dir, entries: names.iter().map(entry).collect(), more: false, applied: 0 }
        };
        let mut list = |names: &[&[u8]], at| {
            with_names(&mut tree, ROOT_ID, |tree| {
                merge_page(tree, ROOT_ID, page(names), asked(at))?;
                finish_listing(tree, ROOT_ID, asked(at))
            })
            .unwrap();
            tree.peek(ROOT_ID).and_then(ctime).unwrap()
        };
        assert_eq!(list(&[], 1), dir.ctime, "the first answer is the home's");
        assert_eq!(list(&[], 2), dir.ctime, "nothing has changed");
        let came = list(&[b"f"], 3);
        assert!(came > dir.ctime, "a name that came");
        assert_eq!(list(&[b"f"], 4), came);
        assert!(list(&[], 5) > came, "one that went");
    }

    /// Else a change that is made after a crash would count on from an earlier ctime than clients have seen.
    #[test]
    fn no_ctime_is_shown_that_is_yet_to_come() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        for (kind, ino, name) in [(Kind::Dir, 3, b"d"), (Kind::File, 4, b"f")] {
            let name = Name::new(name).unwrap();
            let mut seen = Vec::new();
            for (ahead, now) in [(1000, 10), (1000, 20), (2000, 30), (2000, 3000), (3000, 3000)] {
                let at = |sec| Time { sec, nsec: 0 };
                let there = Attr { ctime: at(ahead), ..attr(kind, ino) };
                let asked = Asked { heard: at(now), ..asked(now as u64) };
                let (id, _) = merge_name(&mut tree, ROOT_ID, &name, Some(&there), asked).unwrap().unwrap();
                seen.push(tree.peek(id).and_then(ctime).unwrap().sec);
            }
            assert_eq!(seen, [10, 10, 30, 30, 3000], "{kind:?}");
        }
    }

    /// Clients may have seen it with an earlier process, which no record tells: its clock was ahead of ours.
    #[test]
    fn a_ctime_that_may_have_been_shown_before_a_clock_was_set_back_is_shown_again() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let at = |sec| Time { sec, nsec: 0 };
        let new = home::New::Dir;
        let op = home::Op::Create { dir: ROOT_ID, name: Name::new(b"d").unwrap(), new, mode: 0o755 };
        let (retry, verifier) = (None, None);
        let known = Change { time: at(100), object: 2, after: None, op, retry, verifier, plain: false };
        tree.ctimes = crate::inode::Ctimes::found([&known].into_iter(), None, at(10));
        let ahead = 100 + crate::limits::CTIME_AHEAD.as_secs() as i64;
        for (n, (homes, shown)) in [(50, 50), (104, 104), (1000, ahead)].into_iter().enumerate() {
            let there = Attr { ctime: at(homes), ..attr(Kind::File, 3 + n as u64) };
            let name = Name::new(format!("{n}").as_bytes()).unwrap();
            let asked = Asked { heard: at(10), ..asked(1) };
            let (id, _) = merge_name(&mut tree, ROOT_ID, &name, Some(&there), asked).unwrap().unwrap();
            assert_eq!(tree.peek(id).and_then(ctime), Some(at(shown)));
        }
    }

    /// Else a change that counts on from it does not record it, and it goes back after the next restart.
    #[test]
    fn a_ctime_that_an_answer_brings_to_a_directory_with_unsent_changes_is_the_homes() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let at = |sec| Time { sec, nsec: 0 };
        let there = Attr { ctime: at(1000), ..attr(Kind::Dir, 2) };
        let inode = tree.get(ROOT_ID).unwrap();
        (inode.attr, inode.recalled, inode.pending) = (Some(attr(Kind::Dir, 2)), true, 1);
        inode.shown = Some((None, at(5)));
        observe(&mut tree, ROOT_ID, &there, Asked { heard: at(10), ..asked(10) }).unwrap();
        assert_eq!(tree.peek(ROOT_ID).unwrap().shown, Some((Some(there.version()), at(10))));
    }

    /// Where its attributes are not kept, too: the next process finds the time with the version.
    #[test]
    fn a_directory_that_is_as_it_was_left_keeps_the_ctime_that_was_shown() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let at = |sec| Time { sec, nsec: 0 };
        let there = Attr { ctime: at(1000), ..attr(Kind::Dir, 2) };
        let inode = tree.get(ROOT_ID).unwrap();
        (inode.attr, inode.base, inode.shown) = (None, Some(there.version()), Some((None, at(5))));
        observe(&mut tree, ROOT_ID, &there, Asked { heard: at(10), ..asked(10) }).unwrap();
        assert_eq!(tree.peek(ROOT_ID).unwrap().shown, Some((Some(there.version()), at(5))));
    }

    /// A write that replaces the file at the home gives it another identity there.
    #[test]
    fn an_answer_from_before_a_write_takes_no_name_away_from_what_was_written() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let name = Name::new(b"f").unwrap();
        let (dir, before, after) = (attr(Kind::Dir, 2), attr(Kind::File, 3), attr(Kind::File, 4));
        let (file, _) = merge_name(&mut tree, ROOT_ID, &name, Some(&before), asked(1)).unwrap().unwrap();
        tree.rebind(file, after.id, Some((ROOT_ID, name.clone())));
        tree.get(file).unwrap().settled = Settled { tick: 2, seq: 9 };
        for attr in [Some(before), None] {
            let entry =
                attr.map(|attr| Entry { name: name.clone(), attr: Some(attr), target: None, bare: false });
            let page = Page { dir, entries: entry.into_iter().collect(), more: false, applied: 8 };
            merge_page(&mut tree, ROOT_ID, page, asked(2)).unwrap();
            finish_listing(&mut tree, ROOT_ID, asked(2)).unwrap();
            merge_name(&mut tree, ROOT_ID, &name, attr.as_ref(), asked(2)).unwrap();
            let slot = tree.names(ROOT_ID).unwrap().slot(&name);
            assert_eq!(slot.and_then(|slot| slot.child), Some(file), "{attr:?}");
            assert!(!tree.get(file).unwrap().gone);
        }
        let known = Asked { applied: 9, ..asked(2) };
        merge_name(&mut tree, ROOT_ID, &name, None, known).unwrap();
        assert!(tree.get(file).unwrap().gone, "what is not there after the write is gone");
    }

    /// After a restart an answer replaces what was kept, but not what an outcome has made of that meanwhile.
    #[test]
    fn an_answer_from_before_an_outcome_gives_no_link_back_that_it_took() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let name = Name::new(b"f").unwrap();
        let [before, after] = [2, 1].map(|nlink| Attr { nlink, ..attr(Kind::File, 3) });
        let (file, _) = merge_name(&mut tree, ROOT_ID, &name, Some(&before), asked(1)).unwrap().unwrap();
        let inode = tree.get(file).unwrap();
        (inode.attr, inode.recalled, inode.at) = (Some(after), true, Duration::ZERO);
        inode.settled = Settled { tick: 2, seq: 9 };
        let links = |tree: &Tree| tree.peek(file).unwrap().attr.unwrap().nlink;
        observe(&mut tree, file, &before, Asked { applied: 8, ..asked(2) }).unwrap();
        assert_eq!((links(&tree), tree.peek(file).unwrap().recalled), (1, true), "it is asked for again");
        let elsewhere = Attr { nlink: 3, ..before };
        observe(&mut tree, file, &elsewhere, Asked { applied: 9, ..asked(2) }).unwrap();
        assert_eq!((links(&tree), tree.peek(file).unwrap().recalled), (3, false));
    }

    /// Questions wait for a home that hangs, and are answered in any order when it goes on.
    #[test]
    fn an_answer_that_comes_after_a_younger_one_takes_nothing_away() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let name = Name::new(b"f").unwrap();
        let (dir, file) = (attr(Kind::Dir, 2), attr(Kind::File, 3));
        let entry = Entry { name: name.clone(), attr: Some(file), target: None, bare: false };
        let page = Page { dir, entries: vec![entry], more: false, applied: 0 };
        merge_page(&mut tree, ROOT_ID, page, asked(2)).unwrap();
        merge_name(&mut tree, ROOT_ID, &name, Some(&file), asked(1)).unwrap();
        finish_listing(&mut tree, ROOT_ID, asked(2)).unwrap();
        let found = tree.names(ROOT_ID).unwrap().slot(&name).and_then(|slot| slot.child);
        assert!(found.is_some(), "it was listed");
        merge_name(&mut tree, ROOT_ID, &name, None, asked(1)).unwrap();
        assert_eq!(tree.names(ROOT_ID).unwrap().slot(&name).and_then(|slot| slot.child), found);
        merge_name(&mut tree, ROOT_ID, &name, None, asked(3)).unwrap();
        assert_eq!(tree.names(ROOT_ID).unwrap().slot(&name).and_then(|slot| slot.child), None);
    }

    /// A name that we took away is forgotten with the first listing that does not have it.
    #[test]
    fn an_answer_that_comes_after_a_younger_one_gives_no_name_back() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let name = Name::new(b"f").unwrap();
        let (dir, file) = (attr(Kind::Dir, 2), attr(Kind::File, 3));
        let asked = |secs| Asked { tick: secs, ..asked(secs) };
        let page = |names: &[&Name]| {
            let entry =
                |name: &&Name| Entry { name: (*name).clone(), attr: Some(file), target: None, bare: false };
            Page { dir, entries: names.iter().map(entry).collect(), more: false, applied: 0 }
        };
        let list = |tree: &mut Tree, names: &[&Name], asked: Asked| {
            merge_page(tree, ROOT_ID, page(names), asked).unwrap();
            finish_listing(tree, ROOT_ID, asked).unwrap();
        };
        let child = |tree: &mut Tree| tree.names(ROOT_ID).unwrap().slot(&name).and_then(|slot| slot.child);
        list(&mut tree, &[&name], asked(1));
        let id = child(&mut tree).unwrap();
        tree.unlink(ROOT_ID, &name, id);
        let slot = tree.names_mut(ROOT_ID).unwrap().slot_mut(&name);
        (slot.child, slot.at, slot.settled) = (None, asked(3).at, Settled { tick: 3, seq: 9 });
        list(&mut tree, &[], asked(5));
        assert!(tree.names(ROOT_ID).unwrap().slot(&name).is_none(), "the home does not have it");
        list(&mut tree, &[&name], asked(2));
        assert_eq!(child(&mut tree), None, "it was asked before that was so");
        assert_eq!(tree.names(ROOT_ID).unwrap().listed_at, asked(5).at);
        merge_name(&mut tree, ROOT_ID, &name, Some(&file), asked(4)).unwrap();
        assert_eq!(child(&mut tree), None);
        merge_name(&mut tree, ROOT_ID, &name, Some(&file), asked(6)).unwrap();
        assert!(child(&mut tree).is_some(), "somebody has made it since");
    }

    /// What came of our operations goes with what is dropped from memory.
    #[test]
    fn an_answer_from_before_what_was_dropped_from_memory_brings_nothing_back() {
        let store = Arc::new(MemStore::new());
        let mut tree = Tree::open(1, store.clone()).unwrap();
        let [d, f, g] = [b"d", b"f", b"g"].map(|name| Name::new(name).unwrap());
        let (dir, file) = (attr(Kind::Dir, 3), attr(Kind::File, 4));
        let (before, after) = (attr(Kind::File, 5), Attr { size: 9, ..attr(Kind::File, 5) });
        let merge = |tree: &mut Tree, dir, name, there: &Attr, asked| {
            merge_name(tree, dir, name, Some(there), asked).unwrap().map(|(id, _)| id)
        };
        let sub = merge(&mut tree, ROOT_ID, &d, &dir, asked(1)).unwrap();
        let written = merge(&mut tree, ROOT_ID, &g, &after, asked(1)).unwrap();
        for above in [ROOT_ID, sub] {
            let id = merge(&mut tree, above, &f, &file, asked(1)).unwrap();
            tree.unlink(above, &f, id);
            let slot = tree.names_mut(above).unwrap().slot_mut(&f);
            (slot.child, slot.settled) = (None, Settled { tick: 3, seq: 9 });
        }
        (tree.tick, tree.get(written).unwrap().settled) = (3, Settled { tick: 3, seq: 9 });
        store.commit(tree.checkpoint(1).1).unwrap();
        tree.shrink(1);
        assert_eq!(tree.len(), 1);
        for above in [ROOT_ID, sub] {
            assert_eq!(merge(&mut tree, above, &f, &file, asked(2)), None);
            finish_listing(&mut tree, above, asked(2)).unwrap();
            let node = tree.names(above).unwrap();
            assert_eq!((node.slot(&f).and_then(|slot| slot.child), node.complete), (None, false));
        }
        observe(&mut tree, written, &before, asked(2)).unwrap();
        assert_eq!(tree.get(written).unwrap().attr.map(|attr| attr.size), Some(9));
        let later = Asked { tick: 3, ..asked(3) };
        assert!(merge(&mut tree, sub, &f, &file, later).is_some(), "somebody has made it since");
        finish_listing(&mut tree, sub, later).unwrap();
        assert!(tree.names(sub).unwrap().complete);
    }

    /// What is made here is complete as of no question.
    #[test]
    fn a_directory_that_was_never_listed_takes_what_an_answer_has() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let name = Name::new(b"f").unwrap();
        let node = tree.names_mut(ROOT_ID).unwrap();
        (node.complete, node.listed_at) = (true, Duration::MAX);
        merge_name(&mut tree, ROOT_ID, &name, Some(&attr(Kind::File, 3)), asked(1)).unwrap();
        finish_listing(&mut tree, ROOT_ID, asked(1)).unwrap();
        let node = tree.names(ROOT_ID).unwrap();
        assert_eq!((node.slot(&name).is_some(), node.listed_at), (true, asked(1).at));
    }
}
