//! How a change looks in the caches. Passive, and the only code that lays a change over them: it runs when a change
//! is accepted (in mode `strict`: when the home has it) and again at recovery, from the same record.

use crate::data::{DataLog, Pin, Room};
use crate::inode::{Tree, Xattrs, local};
use crate::journal::{Change, Extent, Stored};
use crate::sync::queue::{destroyed, objects};
use hashbrown::HashMap;
use home::{Attr, New, Op, Piece, Result, Time, Version};

/// Lays a change over the caches. Total: what cannot be laid over (because memory of it was dropped) will be asked for.
pub fn overlay(tree: &mut Tree, seq: u64, change: &Change) {
    let laid = match &change.op {
        Op::Create { dir, name, new, .. } => overlay_create(tree, change, *dir, name, new),
        Op::Write { base, .. } => overlay_write(tree, seq, change, *base),
        Op::SetAttr { .. } | Op::SetXattr { .. } => overlay_attr(tree, change),
        Op::Remove { dir, name, object, .. } => overlay_remove(tree, change.time, *dir, name, *object),
        Op::Rename { from, name, object, to, new_name, replaced } => {
            let replaced = replaced.as_ref().map(|(r, _)| *r);
            overlay_rename(tree, change, (*from, name), *object, (*to, new_name), replaced)
        }
        Op::Link { object, dir, name } => overlay_link(tree, change, *object, *dir, name),
    };
    if let Err(e) = laid {
        tracing::debug!(seq, "change could not be laid over the caches: {e}");
    }
}

fn overlay_create(tree: &mut Tree, change: &Change, dir: u64, name: &home::Name, new: &New) -> Result<()> {
    let id = change.object;
    if let Some(attr) = change.after
        && tree.get(id).is_err()
    {
        tree.insert_new(id, attr);
    }
    let inode = tree.get(id)?;
    let shown = change.after.map(|a| (None, inode.shown.map_or(a.ctime, |(_, time)| time.max(a.ctime))));
    inode.attr = inode.attr.or(change.after);
    if inode.binding.is_none() {
        inode.xattrs = Xattrs::newborn();
        if std::mem::take(&mut inode.recalled) {
            // Nobody but us has shown others since: what comes after it is laid over them once more.
            inode.attr = change.after.or(inode.attr);
        }
    }
    inode.link = Some((dir, name.clone()));
    inode.verifier = change.verifier;
    inode.shown = shown;
    if let New::Symlink(target) = new {
        inode.target = Some(target.clone());
    }
    if let Some(node) = inode.dir.as_deref_mut().filter(|_| inode.binding.is_none()) {
        node.complete = true;
        node.listed_at = std::time::Duration::MAX;
    }
    take_name(tree, dir, name, Some(id))?;
    touch_dir(tree, dir, change.time, if matches!(new, New::Dir) { 1 } else { 0 })
}

fn overlay_write(tree: &mut Tree, seq: u64, change: &Change, base: Option<Version>) -> Result<()> {
    let Op::Write { pieces, .. } = &change.op else { return Ok(()) };
    let inode = tree.get(change.object)?;
    if inode.pending == 0 && inode.base.is_none() {
        inode.base = base;
        inode.base_len = base.map_or(0, |v| v.size);
    }
    for piece in pieces {
        if let Piece::Truncate(size) = piece {
            inode.cuts.entry(seq).and_modify(|cut| *cut = (*cut).min(*size)).or_insert(*size);
            inode.base_len = inode.base_len.min(*size);
        }
    }
    overlay_attr(tree, change)
}

fn overlay_attr(tree: &mut Tree, change: &Change) -> Result<()> {
    let inode = tree.get(change.object)?;
    if let Some(mut after) = change.after {
        if let (true, Op::Write { .. }, Some(attr)) = (change.plain, &change.op, &inode.attr) {
            // What it was made to may have grown or shrunk by changes that nobody saw then.
            after = Attr { size: length_after(attr.size, change), used: attr.used, ..after };
        }
        (inode.attr, inode.recalled) = (Some(after), false);
        // At recovery a later change may have an outcome already: what it showed was shown.
        let time = inode.shown.map_or(after.ctime, |(_, time)| time.max(after.ctime));
        inode.shown = Some((inode.base.filter(|_| inode.kind != home::Kind::Dir), time));
    }
    Ok(())
}

/// The length that a write makes of a file of `size` bytes.
pub fn length_after(size: u64, change: &Change) -> u64 {
    let Op::Write { pieces, .. } = &change.op else { return size };
    pieces.iter().fold(size, |size, piece| match piece {
        Piece::Truncate(to) => *to,
        Piece::Data(at, Stored::Inline(bytes)) => size.max(at + bytes.len() as u64),
        Piece::Data(at, Stored::Extent(extent)) => size.max(at + u64::from(extent.len)),
    })
}

fn overlay_remove(tree: &mut Tree, time: Time, dir: u64, name: &home::Name, id: u64) -> Result<()> {
    let is_dir = tree.get(id).is_ok_and(|n| n.kind == home::Kind::Dir);
    take_name(tree, dir, name, None)?;
    drop_link(tree, dir, name, id, time);
    touch_dir(tree, dir, time, if is_dir { -1 } else { 0 })
}

fn overlay_rename(
    tree: &mut Tree,
    change: &Change,
    from: (u64, &home::Name),
    object: u64,
    to: (u64, &home::Name),
    replaced: Option<u64>,
) -> Result<()> {
    let is_dir = tree.get(object)?.kind == home::Kind::Dir;
    if let Some(old) = replaced.filter(|old| *old != object) {
        drop_link(tree, to.0, to.1, old, change.time);
    }
    take_name(tree, from.0, from.1, None)?;
    take_name(tree, to.0, to.1, Some(object))?;
    tree.nameless.note(object, to.1);
    let inode = tree.get(object)?;
    inode.drop_link(&(from.0, from.1.clone()));
    inode.add_link((to.0, to.1.clone()));
    overlay_attr(tree, change)?;
    let moved = is_dir && from.0 != to.0;
    touch_dir(tree, from.0, change.time, if moved { -1 } else { 0 })?;
    let replaced_dir = is_dir && replaced.is_some();
    touch_dir(tree, to.0, change.time, i32::from(moved) - i32::from(replaced_dir))
}

fn overlay_link(tree: &mut Tree, change: &Change, object: u64, dir: u64, name: &home::Name) -> Result<()> {
    take_name(tree, dir, name, Some(object))?;
    tree.nameless.note(object, name);
    tree.get(object)?.add_link((dir, name.clone()));
    overlay_attr(tree, change)?;
    touch_dir(tree, dir, change.time, 0)
}

fn take_name(tree: &mut Tree, dir: u64, name: &home::Name, child: Option<u64>) -> Result<()> {
    tree.names_mut(dir)?.slot_mut(name).child = child;
    Ok(())
}

fn drop_link(tree: &mut Tree, dir: u64, name: &home::Name, id: u64, time: Time) {
    if let Ok(inode) = tree.get(id) {
        inode.drop_link(&(dir, name.clone()));
        lose_link(tree, id, time);
    }
}

fn lose_link(tree: &mut Tree, id: u64, time: Time) {
    let Ok(inode) = tree.get(id) else { return };
    // An answer of the home may contain the change already: names that are known to be left count.
    let left = inode.link.iter().chain(&inode.more_links).count() as u32;
    let last = match &inode.attr {
        _ if inode.kind == home::Kind::Dir => true,
        Some(attr) => left == 0 && attr.nlink <= 1,
        None => left == 0,
    };
    inode.gone = last;
    if let Some(attr) = &mut inode.attr {
        let shown = crate::meta::shown_ctime_of(inode.shown, attr);
        attr.nlink = if last { 0 } else { attr.nlink.saturating_sub(1).max(left) };
        attr.ctime = time.max(shown.next());
        inode.shown = Some((inode.base, attr.ctime));
    } else {
        // After a restart, before the home is asked.
        inode.shown = Some((inode.base, inode.shown.map_or(time, |(_, shown)| time.max(shown.next()))));
    }
}

fn touch_dir(tree: &mut Tree, dir: u64, time: Time, links: i32) -> Result<()> {
    tree.unsaved(dir);
    let inode = tree.get(dir)?;
    if let Some(attr) = &mut inode.attr {
        let last = crate::meta::shown_ctime_of(inode.shown, attr);
        attr.nlink = attr.nlink.saturating_add_signed(links);
        attr.mtime = time;
        attr.ctime = time.max(last.next());
        inode.shown = Some((None, attr.ctime));
    }
    Ok(())
}

/// Lays what unsent operations do to the attributes of an object over an answer of the home that contains what was
/// executed up to `applied`. After a restart that is the first that is known of them. `moves_ctime`: since
/// that answer another ctime is shown.
pub fn overlay_attributes(tree: &mut Tree, id: u64, applied: u64, moves_ctime: bool) -> Result<()> {
    let (later, late): (Vec<Change>, Vec<bool>) = tree
        .queue
        .iter()
        .filter(|(seq, p)| !tree.queue.is_contained(*seq, p, applied) && p.overlaid)
        .filter(|(_, p)| objects(&p.change).any(|o| o == id))
        .map(|(_, p)| (p.change.clone(), p.late || p.parked.is_some()))
        .unzip();
    let inode = tree.get(id)?;
    let contained = inode.attr.map_or(0, |attr| contained(&attr, id, &later, &late));
    // The ctime that was shown counts these changes already, and must be found again after the next restart. Where it
    // came with the answer, no record has it yet: it is kept as the home's, so that the next change records it.
    let counted = inode.shown.zip(inode.attr).and_then(|(shown, attr)| {
        let is_dir = attr.kind == home::Kind::Dir;
        let ctime = crate::meta::shown_ctime_of(Some(shown), &attr);
        let is_homes = ctime == attr.ctime;
        let version = shown.0.filter(|_| is_homes || moves_ctime || !is_dir);
        let ctime = if is_homes && is_dir && contained < later.len() { ctime.next() } else { ctime };
        let counts = is_dir || shown.0 == Some(attr.version());
        counts.then_some((version, ctime))
    });
    lay_attributes(tree, id, later.into_iter().skip(contained))?;
    if let (Some((version, ctime)), inode) = (counted, tree.get(id)?) {
        inode.attr = inode.attr.map(|attr| Attr { ctime, ..attr });
        inode.shown = Some((version, ctime));
    }
    Ok(())
}

/// How many of the changes that concern an object an answer of the home contains for certain. The home leaves the time
/// of a change on its directories, and a directory's changes are executed in order, but for those that were refused.
fn contained(attr: &Attr, id: u64, changes: &[Change], late: &[bool]) -> usize {
    let marked =
        |c: &Change| !c.plain && c.time == attr.mtime && crate::sync::queue::names(c).any(|n| n.0 == id);
    let found = changes.iter().position(marked).map_or(0, |at| at + 1);
    if late.iter().take(found).any(|late| *late) { 0 } else { found }
}

fn lay_attributes(tree: &mut Tree, id: u64, changes: impl Iterator<Item = Change>) -> Result<()> {
    for change in changes {
        if change.object == id && change.after.is_some() {
            overlay_attr(tree, &change)?;
            continue;
        }
        let is_dir = tree.get(change.object)?.kind == home::Kind::Dir;
        match &change.op {
            Op::Create { .. } => touch_dir(tree, id, change.time, i32::from(is_dir))?,
            Op::Remove { object, .. } if *object == id => lose_link(tree, id, change.time),
            Op::Remove { .. } => touch_dir(tree, id, change.time, -i32::from(is_dir))?,
            Op::Rename { replaced: Some((old, _)), .. } if *old == id => lose_link(tree, id, change.time),
            Op::Rename { from, to, replaced, .. } => {
                let moved = is_dir && from != to;
                if *from == id {
                    touch_dir(tree, id, change.time, -i32::from(moved))?;
                }
                if *to == id {
                    let freed = is_dir && replaced.is_some();
                    touch_dir(tree, id, change.time, i32::from(moved) - i32::from(freed))?;
                }
            }
            Op::Link { .. } => touch_dir(tree, id, change.time, 0)?,
            Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. } => {}
        }
    }
    Ok(())
}

/// Recovery: lays the journal's changes over what was kept, with and without outcomes.
#[derive(Default)]
pub struct Recovery {
    /// The ctimes that directories showed last which a change makes that has no outcome. Those of what was kept or bound
    /// are with them.
    ctimes: HashMap<u64, Time>,
    /// By object, the number of the last change that has an outcome and may have told or taken links of it.
    last: HashMap<u64, u64>,
}

impl Recovery {
    /// A change that is not in what was kept counts for its directories, also where it came to nothing: they show no
    /// ctime that is earlier than before.
    pub fn count(&mut self, tree: &mut Tree, change: &Change) {
        // Where the home's ctimes were not later, each change counted on.
        for (dir, _) in crate::sync::queue::names(change) {
            tree.unsaved(dir);
            self.count_in(tree, change, dir, |shown| {
                shown.map_or(change.time, |t| change.time.max(t.next()))
            });
        }
        if let Some(after) = change.after.filter(|after| after.kind == home::Kind::Dir) {
            let later = |shown: Option<Time>| shown.map_or(after.ctime, |t| after.ctime.max(t));
            self.count_in(tree, change, change.object, later);
        }
    }

    fn count_in(&mut self, tree: &mut Tree, change: &Change, id: u64, next: impl Fn(Option<Time>) -> Time) {
        match tree.get(id) {
            _ if change.plain => {}
            Ok(inode) => inode.shown = Some((None, next(inode.shown.map(|(_, time)| time)))),
            Err(_) => drop(self.ctimes.insert(id, next(self.ctimes.get(&id).copied()))),
        }
    }

    /// What the directories of a change show, which counts it already.
    fn shown(&self, tree: &mut Tree, change: &Change) -> Vec<(u64, (Option<Version>, Time))> {
        let shown = |tree: &mut Tree, id| match tree.get(id) {
            Ok(inode) if inode.kind == home::Kind::Dir => Some((id, inode.shown?)),
            Ok(_) => None,
            Err(_) => Some((id, (None, *self.ctimes.get(&id)?))),
        };
        objects(change).filter_map(|id| shown(tree, id)).collect()
    }

    /// A change has its outcome. `anew`: what was kept does not contain it.
    pub fn settle(&mut self, tree: &mut Tree, seq: u64, change: &Change, anew: bool) {
        for id in std::iter::once(change.object).chain(destroyed(change)) {
            self.last.entry(id).and_modify(|last| *last = seq.max(*last)).or_insert(seq);
        }
        if anew {
            self.lay_outcome(tree, seq, change);
        }
    }

    /// Lays what a change that the home has did to attributes over those that were kept from before it. The home may have
    /// shown others since.
    fn lay_outcome(&self, tree: &mut Tree, seq: u64, change: &Change) {
        let links = self.links_after(tree, seq, change);
        let shown = self.shown(tree, change);
        let unseen = unseen_ctimes(tree, change);
        for id in objects(change) {
            if lay_attributes(tree, id, std::iter::once(change.clone())).is_ok()
                && let Ok(inode) = tree.get(id)
            {
                inode.keep_to_base();
                inode.recalled = true;
            }
        }
        put_back(tree, shown);
        put_back_links(tree, change.object, links);
        for (id, shown) in unseen {
            if let Ok(inode) = tree.get(id) {
                inode.shown = shown;
            }
        }
    }

    /// `lay` lays a change that has no outcome over names and attributes. `kept`: attributes that were kept have it
    /// already.
    pub fn lay_again(
        &self,
        tree: &mut Tree,
        (seq, change): (u64, &Change),
        kept: bool,
        lay: impl FnOnce(&mut Tree),
    ) {
        let links = self.links_after(tree, seq, change);
        let attr = |tree: &mut Tree, id| tree.get(id).ok().filter(|inode| inode.recalled)?.attr;
        let attrs: Vec<(u64, Attr)> = objects(change).filter_map(|id| Some((id, attr(tree, id)?))).collect();
        let shown = self.shown(tree, change);
        lay(tree);
        for (id, attr) in attrs.into_iter().filter(|_| kept) {
            // Where the change tells the attributes themselves, those are as good as any.
            let Some(inode) = tree.get(id).ok().filter(|inode| inode.recalled) else { continue };
            inode.attr = Some(attr);
            if destroyed(change) == Some(id) {
                inode.gone = inode.link.is_none() && attr.nlink == 0;
            }
        }
        put_back(tree, shown);
        put_back_links(tree, change.object, links);
    }

    /// How many links an object has where the home did a later change of it: what a power cut there took from a content is
    /// done again, and tells the links of its time.
    fn links_after(&self, tree: &mut Tree, seq: u64, change: &Change) -> Option<u32> {
        let later = self.last.get(&change.object).is_some_and(|last| *last > seq);
        let of_content = matches!(change.op, Op::Write { .. } | Op::SetAttr { .. });
        tree.get(change.object).ok().filter(|_| later && of_content)?.attr.map(|attr| attr.nlink)
    }
}

fn put_back_links(tree: &mut Tree, id: u64, links: Option<u32>) {
    if let (Some(nlink), Ok(inode)) = (links, tree.get(id)) {
        inode.attr = inode.attr.map(|attr| Attr { nlink, ..attr });
    }
}

/// The ctime that an object shows, and of which version; see [`crate::inode::Inode::shown`].
type Shown = Option<(Option<Version>, Time)>;

/// What the objects of a change show that nobody saw before the home had it, as in mode `strict`: then it was shown with the
/// home's times.
fn unseen_ctimes(tree: &mut Tree, change: &Change) -> Vec<(u64, Shown)> {
    if change.is_laid() {
        return Vec::new();
    }
    objects(change).filter_map(|id| Some((id, tree.get(id).ok()?.shown))).collect()
}

fn put_back(tree: &mut Tree, shown: Vec<(u64, (Option<Version>, Time))>) {
    for (id, shown) in shown {
        if let Ok(inode) = tree.get(id) {
            inode.shown = Some(shown);
            inode.attr = inode.attr.map(|attr| Attr { ctime: shown.1, ..attr });
        }
    }
}

/// Attributes after a change of content or attributes at `time`; ctime strictly increases.
pub fn changed(attr: &Attr, last_shown: Time, time: Time) -> Attr {
    Attr { ctime: time.max(last_shown.next()), ..*attr }
}

/// Lays the bytes of a journalled write over the data cache, if there is room; at recovery.
pub fn lay_bytes(data: &DataLog, change: &mut Change, room: Room) -> Result<()> {
    let object = change.object;
    let Op::Write { pieces, .. } = &mut change.op else { return Ok(()) };
    for piece in pieces {
        match piece {
            Piece::Truncate(size) => data.truncate(object, *size),
            Piece::Data(at, Stored::Extent(extent)) => data.insert(object, *at, *extent),
            Piece::Data(at, stored @ Stored::Inline(_)) => {
                let Stored::Inline(bytes) = &*stored else { continue };
                let extent: Extent =
                    data.put_in(room, object, *at, std::slice::from_ref(bytes), Pin::Dirty).map_err(local)?;
                *stored = Stored::Extent(extent);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::tests::attr;
    use crate::store::MemStore;
    use home::Kind;
    use std::sync::Arc;

    /// A power cut at the home may have taken a write, but not what was done to the file after it.
    #[test]
    fn what_is_done_again_takes_no_ctime_back_that_was_shown_after_it() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let at = |sec| Time { sec, nsec: 0 };
        let after = |sec| Attr { ctime: at(sec), ..attr(Kind::File, 7) };
        tree.insert_new(7, after(100));
        tree.get(7).unwrap().shown = Some((None, at(120)));
        let write = |sec| Change {
            time: at(sec),
            object: 7,
            after: Some(after(sec)),
            op: Op::Write { file: 7, base: None, pieces: vec![] },
            retry: None,
            verifier: None,
            plain: false,
        };
        for (sec, shown) in [(110, 120), (130, 130)] {
            overlay(&mut tree, 3, &write(sec));
            let inode = tree.get(7).unwrap();
            assert_eq!(crate::meta::shown_ctime(inode, &inode.attr.unwrap()), at(shown));
        }
    }

    /// A power cut at the home took what was written to a file, but not the rename that took one of its names later.
    #[test]
    fn what_is_done_again_gives_no_link_back_that_was_taken_after_it() {
        let name = |n: &str| home::Name::new(n.as_bytes()).unwrap();
        let after = |nlink| Attr { nlink, ..attr(Kind::File, 7) };
        let change = |object, after, op| Change {
            time: Default::default(),
            object,
            after: Some(after),
            op,
            retry: None,
            verifier: None,
            plain: false,
        };
        let write = change(7, after(2), Op::Write { file: 7, base: None, pieces: vec![] });
        let replaced = Some((7, None));
        let op = Op::Rename { from: 1, name: name("a"), object: 8, to: 1, new_name: name("b"), replaced };
        let rename = change(8, attr(Kind::File, 8), op);
        for kept in [false, true] {
            let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
            tree.insert_new(7, after(if kept { 1 } else { 2 }));
            tree.insert_new(8, attr(Kind::File, 8));
            let inode = tree.get(7).unwrap();
            inode.add_link((1, name("c")));
            (inode.base, inode.recalled) = (Some(after(1).version()), true);
            let mut recovery = Recovery::default();
            recovery.settle(&mut tree, 4, &rename, !kept);
            recovery.lay_again(&mut tree, (3, &write), kept, |tree| overlay(tree, 3, &write));
            assert_eq!(tree.get(7).unwrap().attr.map(|attr| attr.nlink), Some(1), "kept: {kept}");
        }
    }
}
