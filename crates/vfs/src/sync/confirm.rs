//! What an outcome says of the objects of a change: their names, identities and attributes at the home.

use crate::inode::{Inode, Tree};
use crate::journal::Change;
use crate::meta;
use crate::volume::Volume;
use home::op::{SetAttr, SetTime};
use home::{Attr, Done, HomeId, Name, New, Op, Time, Version};
use std::time::Duration;

impl Volume {
    /// Confirms what a change made of its objects. Answers what was found by another name and turned out to be the same file.
    pub(super) fn confirm(&self, tree: &mut Tree, change: &Change, done: &Done) -> Option<u64> {
        let id = change.object;
        self.confirm_names(tree, change);
        let inode = tree.get(id).ok()?;
        let nameless = inode.binding.is_none();
        let (binding, known) = (inode.binding.clone(), inode.home_id);
        let other = done.attr.and_then(|attr| known_elsewhere(tree, id, &attr));
        let inode = tree.get(id).ok()?;
        // What is left of a file whose name was removed, and is known as another object, is that one's.
        let left = done.attr.filter(|_| other.is_none() || !matches!(change.op, Op::Remove { .. }));
        match left {
            None if nameless => tree.rebind(id, HomeId::default(), None),
            None if matches!(change.op, Op::Create { new: New::File, .. }) => {
                // It was made and has gone. What is unsent was not made to whatever has its name by now.
                let (id_of_none, time) = (HomeId::default(), change.time);
                inode.base = Some(Version { id: id_of_none, size: 0, mtime: time, ctime: time });
                tree.unlogged(id);
                tree.unsaved(id);
            }
            None => {}
            Some(attr) => {
                let attr = as_made(change, attr);
                // One that was parted from another already leaves the identity to that.
                let makes = matches!(change.op, Op::Create { .. } | Op::Write { .. });
                let takes = makes || known != attr.id;
                let other = takes.then(|| self.part_from_another(tree, id, &attr)).flatten();
                let is_its = takes || known_elsewhere(tree, id, &attr).is_none();
                if is_its {
                    tree.rebind(id, attr.id, binding);
                }
                // What is unsent of one that was parted would go over the other's: it goes on meeting what the home never has.
                if is_its || tree.get(id).is_ok_and(|inode| inode.pending == 0) {
                    self.confirm_attr(tree, id, (&attr, done.since()), change);
                }
                self.join(tree, (id, other), &attr);
            }
        }
        self.confirm_dirs(tree, change, done);
        other
    }

    /// What the home has for `id` from now on was found there by another name before, because we did not know that it is ours:
    /// somebody renamed it, or made a link to it. What is unsent by the other name was not made to what we write by ours: it meets
    /// a version that the home never has. Answers what was found.
    pub(super) fn part_from_another(&self, tree: &mut Tree, id: u64, attr: &Attr) -> Option<u64> {
        let other = known_elsewhere(tree, id, attr)?;
        let inode = tree.get(other).ok().filter(|inode| inode.kind == home::Kind::File)?;
        inode.base = Some(Version { id: HomeId::default(), ..attr.version() });
        tree.unlogged(other);
        tree.unsaved(other);
        Some(other)
    }

    /// Gives the names of an object with nothing unsent to that which turned out to be the same file: whoever looks by them must
    /// see what is unsent. To be called when `id` has the identity.
    pub(super) fn join(&self, tree: &mut Tree, (id, other): (u64, Option<u64>), attr: &Attr) {
        let Some(other) = other else { return };
        let Some(inode) = tree.get(other).ok().filter(|inode| inode.pending == 0) else { return };
        // It may have been looked at since.
        let is_older = inode.attr.is_some_and(|seen| seen.version() != attr.version());
        let names: Vec<(u64, Name)> = inode.link.iter().chain(&inode.more_links).cloned().collect();
        let asked = self.asked(tree);
        for (dir, name) in names {
            if let Ok(Some((id, content))) = meta::merge_name(tree, dir, &name, Some(attr), asked) {
                self.content(tree, id, content);
            }
        }
        if let Some(inode) = tree.get(id).ok().filter(|_| is_older) {
            inode.at = Duration::ZERO;
        }
        if tree.peek(other).is_some_and(|inode| inode.gone) {
            tree.rebind(other, HomeId::default(), None);
        }
    }

    /// What has the place of what a write left was written after the home's machine was started, when nothing of ours had been
    /// done yet: what is unsent was not made to that, and it never is what a later send of ours left.
    pub(super) fn part_from_newer(&self, tree: &mut Tree, change: &Change, there: &Attr) {
        let is_newer = self.booted.lock().is_some_and(|at| at < there.mtime && there.mtime <= there.ctime);
        if !is_newer || as_left(change, *there) == *there {
            return;
        }
        self.part_from_theirs(tree, change.object);
    }

    /// What is unsent of an object was not made to what the home has in its place: it meets a version that the home never has.
    pub(super) fn part_from_theirs(&self, tree: &mut Tree, id: u64) {
        if let Ok(inode) = tree.get(id)
            && let Some(base) = &mut inode.base
        {
            base.id = HomeId::default();
            tree.unlogged(id);
            tree.unsaved(id);
        }
    }

    /// By which names the home has the objects of a change now.
    fn confirm_names(&self, tree: &mut Tree, change: &Change) {
        let now = self.env.clock.instant();
        let id = change.object;
        if let Op::Rename { to, new_name, replaced: Some((old, _)), .. } = &change.op
            && *old != id
        {
            self.lose_binding(tree, *old, (*to, new_name.clone()));
        }
        let Ok(inode) = tree.get(id) else { return };
        match &change.op {
            Op::Create { dir, name, .. } => {
                inode.add_binding((*dir, name.clone()));
                // From now on others may put names into a directory that was ours alone.
                if let Some(node) = inode.dir.as_deref_mut() {
                    node.listed_at = node.listed_at.min(now);
                }
            }
            Op::Link { dir, name, .. } => inode.add_binding((*dir, name.clone())),
            Op::Remove { dir, name, .. } => inode.drop_binding(&(*dir, name.clone())),
            Op::Rename { from, name, to, new_name, .. } => {
                inode.drop_binding(&(*from, name.clone()));
                inode.add_binding((*to, new_name.clone()));
            }
            Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. } => {}
        }
    }

    /// The name `place` leads to another object at the home.
    pub(super) fn lose_binding(&self, tree: &mut Tree, id: u64, place: (u64, Name)) {
        let Ok(inode) = tree.get(id) else { return };
        inode.drop_binding(&place);
        inode.at = Duration::ZERO;
        // What the home was never seen to have has no identity to lose, and may still be made: on the file system that it is for.
        if inode.gone && inode.binding.is_none() && inode.home_id.ino != 0 {
            tree.rebind(id, HomeId::default(), None);
        }
        tree.unsaved(id);
    }

    /// `since`: see [`Done::since`].
    fn confirm_attr(&self, tree: &mut Tree, id: u64, (attr, since): (&Attr, Option<Time>), change: &Change) {
        let (at, heard) = (self.env.clock.instant(), tree.heard(self.env.clock.now()));
        let version = attr.version();
        let written = matches!(change.op, Op::Write { .. });
        let laid = !tree.unlaid.contains(&id);
        let Ok(inode) = tree.get(id) else { return };
        // A clock that was set back moves it the other way.
        let is_own = |base: &Version| since.is_none_or(|since| (since..=version.ctime).contains(&base.ctime));
        let moved = inode.base.filter(|base| is_told(base) && !is_own(base));
        if is_foreign(inode, attr, change) || moved.is_some() && inode.pending == 0 {
            // Our own later changes stay those of a content that was seen. Without any, it is as if we had looked.
            if inode.pending == 0 {
                meta::adopt(inode, attr, at, heard);
                self.data.drop_object(id);
                tree.notes.content(id, 0);
            }
            return;
        }
        if !change.plain
            && let Some(mine) = inode.attr
        {
            // What clients were shown stands for the version that we made: writing home changes nothing they see.
            let all = inode.kind != home::Kind::Dir || inode.pending == 0;
            inode.shown = Some((all.then_some(version), meta::shown_ctime(inode, &mine)));
        }
        let shown_of_base = inode.base_len;
        // A new file is empty. What it holds since is of writes whose outcomes follow.
        let empty = matches!(change.op, Op::Create { .. });
        if change.plain || written || (inode.base.is_none() && !empty) {
            inode.base_len = inode.cuts.values().copied().fold(attr.size, u64::min);
        }
        match inode.pending {
            // It compares with what was there before: in mode `strict` clients must see another ctime.
            0 => meta::adopt(inode, attr, at, heard),
            // Somebody else has moved it before we did, perhaps with the content: that is seen when the content is to be changed.
            _ => inode.base = Some(moved.map_or(version, |base| Version { ctime: base.ctime, ..version })),
        }
        let version = inode.base.filter(|_| moved.is_some()).unwrap_or(version);
        if inode.kind == home::Kind::File {
            let done = inode.pending == 0;
            if written && laid && !change.plain {
                // The home has our content now: where we wrote nothing and no older base shows through, zeros.
                self.data.fill_zeros(id, shown_of_base, inode.base_len);
            }
            if !laid {
                // What is cached lacks what was not laid: this version must not vouch for it.
                self.relay(tree, id);
                done.then(|| tree.unlaid.remove(&id));
            }
            self.data.set_version(id, version);
        }
    }

    /// The times of directories that the home made. In mode `strict` they are shown.
    fn confirm_dirs(&self, tree: &mut Tree, change: &Change, done: &Done) {
        let dirs = super::queue::names(change).map(|(dir, _)| dir);
        for dir in dirs.chain([change.object]) {
            let Ok(inode) = tree.get(dir) else { continue };
            let mut told = done.dirs.iter().chain(&done.attr);
            let left = told.find(|attr| attr.id == inode.home_id).map(|attr| attr.mtime);
            inode.dir.iter_mut().for_each(|node| node.told.leaves(left));
        }
        if !change.plain {
            return;
        }
        let (at, heard) = (self.env.clock.instant(), tree.heard(self.env.clock.now()));
        for attr in done.dirs.iter().filter(|attr| attr.kind == home::Kind::Dir) {
            let Some(dir) = tree.find_home(&attr.id) else { continue };
            if let Ok(inode) = tree.get(dir)
                && inode.pending == 0
            {
                // A time of ours may have been shown: by a server that was not strict.
                let last = inode.shown.map(|(_, time)| time);
                inode.shown = None;
                meta::adopt(inode, attr, at, heard);
                if let Some(last) = last.filter(|last| meta::shown_ctime(inode, attr) <= *last) {
                    inode.shown = Some((Some(attr.version()), last.next()));
                }
            }
        }
    }
}

/// The other object that what is there is known as.
fn known_elsewhere(tree: &mut Tree, id: u64, attr: &Attr) -> Option<u64> {
    tree.find_home(&attr.id).filter(|other| *other != id)
}

/// What a change made, of which this is there. A new file was empty: whether what it has is of our later writes is for those to
/// find out.
fn as_made(change: &Change, there: Attr) -> Attr {
    match change.op {
        Op::Create { new: New::File, .. } if there.size > 0 => Attr { size: 0, mtime: change.time, ..there },
        _ => there,
    }
}

/// What a write left that is known to be durable, of which this is there. What shows neither its time nor its length is
/// another program's, whom nobody here has seen: what is unsent behind it was made to ours.
pub(super) fn as_left(change: &Change, there: Attr) -> Attr {
    match (&change.op, change.after) {
        (Op::Write { .. }, Some(after))
            if after.mtime == change.time
                && (after.size != there.size || !is_kept_as(change.time, there.mtime)) =>
        {
            Attr { size: after.size, mtime: after.mtime, ..there }
        }
        _ => there,
    }
}

/// Whether the ctime of a version is known: some homes have none.
pub(super) fn is_told(version: &Version) -> bool {
    version.ctime != Time { sec: 0, nsec: 0 }
}

/// Whether an outcome shows content that our changes do not explain: another program wrote the file, or may have, and nobody here
/// has seen that.
fn is_foreign(inode: &Inode, attr: &Attr, change: &Change) -> bool {
    let content = matches!(change.op, Op::Create { .. } | Op::Write { .. });
    let set = match &change.op {
        Op::SetAttr { set: SetAttr { mtime: Some(SetTime::At(time)), .. }, .. } => Some(*time),
        _ => None,
    };
    let has_time =
        |base: home::Version| base.mtime == attr.mtime || set.is_some_and(|set| is_kept_as(set, attr.mtime));
    let is_parted = |base: home::Version| base.id == HomeId::default() && base.id != attr.id;
    let differs = |base: home::Version| is_parted(base) || base.size != attr.size || !has_time(base);
    inode.kind == home::Kind::File && !change.plain && !content && inode.base.is_some_and(differs)
}

/// Whether a home that was given the time `set` may show `shown`: file systems cut times to their own resolution.
fn is_kept_as(set: Time, shown: Time) -> bool {
    /// Nanoseconds, from NTFS to FAT.
    const RESOLUTIONS: [i128; 6] = [1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000];
    let (set, shown) = (set.as_nanos(), shown.as_nanos());
    RESOLUTIONS.iter().any(|unit| set - set.rem_euclid(*unit) == shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_be_cut_and_is_no_other() {
        let time = |sec, nsec| Time { sec, nsec };
        let set = time(1_001, 123_456_789);
        for shown in
            [(1_001, 123_456_789), (1_001, 123_456_700), (1_001, 123_456_000), (1_001, 0), (1_000, 0)]
        {
            assert!(is_kept_as(set, time(shown.0, shown.1)), "{shown:?}");
        }
        for shown in [(1_001, 123_456_788), (1_002, 0), (999, 0), (1_001, 200_000_000)] {
            assert!(!is_kept_as(set, time(shown.0, shown.1)), "{shown:?}");
        }
    }
}
