//! Removal and renaming.
//!
//! What an operation removes, except an empty directory, is first moved aside (or exchanged), then verified, then unlinked;
//! if it is not what was found, it goes back.

use super::super::claim::Intent;
use super::super::sys::{Rename, Sys};
use super::{Act, Batch, Fail};
use crate::attr::{Attr, HomeId, Kind, Version};
use crate::error::ErrorKind;
use crate::op::{Done, Op, Payload, Placed};
use crate::posix::lock;
use crate::posix::resolve::Found;
use crate::{HomePath, Loc, Name};
use rustix::io::Errno;

/// A name in a directory.
struct Spot<'n, S: Sys> {
    at: &'n Loc,
    dir: Found<S>,
    name: &'n Name,
}

impl<S: Sys> Spot<'_, S> {
    fn raw(&self) -> (&S::Fd, &[u8]) {
        (&self.dir.fd, self.name.as_bytes())
    }
}

impl<S: Sys> Batch<'_, S> {
    fn spot<'n>(&self, at: &'n Loc, name: &'n Name) -> Act<Spot<'n, S>> {
        Ok(Spot { at, dir: self.dir(at)?, name })
    }

    /// Removes a name.
    pub(super) fn remove(
        &mut self,
        placed: &Placed,
        at: &Loc,
        name: &Name,
        object: &Loc,
        is_dir: bool,
        base: Option<&Version>,
    ) -> Act<Done> {
        let spot = self.spot(at, name)?;
        let Some(found) = self.home.find_in(&spot.dir.fd, name)? else {
            if placed.plain && !placed.resent {
                return Err(ErrorKind::NotFound.into());
            }
            let dir = if placed.resent { self.touch(&spot.dir, placed)? } else { spot.dir.attr };
            return Ok(Done { attr: None, dirs: vec![dir] });
        };
        let attr = found.attr;
        if !self.same(self.meant(object), attr.id) || self.is_anothers(placed, &attr) {
            return Err(if placed.plain { ErrorKind::Stale.into() } else { Fail::Conflict(Some(attr)) });
        }
        match (is_dir, attr.kind == Kind::Dir) {
            (true, false) => return Err(ErrorKind::NotDir.into()),
            (false, true) => return Err(ErrorKind::IsDir.into()),
            _ => {}
        }
        self.finds(&attr);
        let base = self.base(placed, base, &attr).filter(|_| !is_dir);
        if !self.matches(placed, base.as_ref(), &attr) {
            return Err(Fail::Conflict(Some(attr)));
        }
        let left = match is_dir || placed.plain {
            // Also what has no content, as a symbolic link: somebody may give its name to what has.
            false => self.untouched(&found, |batch| {
                batch.dispose(&spot, &attr)?;
                Ok(batch.home.attr_of(&found.fd).ok())
            })?,
            true => {
                if is_dir {
                    self.leave_directory(attr.id);
                }
                self.sys().unlink(&spot.dir.fd, name.as_bytes(), is_dir).or_else(gone)?;
                self.home.attr_of(&found.fd).ok()
            }
        };
        let left = left.filter(|a| a.nlink > 0 && !is_dir);
        // What has another name is still to be synced.
        if left.is_none() {
            self.close(attr.id);
            self.touched.retain(|t| t.id != attr.id);
        }
        Ok(Done { attr: left, dirs: vec![self.touch(&spot.dir, placed)?] })
    }

    /// Removes the name of an object that is as it was found.
    fn dispose(&mut self, spot: &Spot<S>, found: &Attr) -> Act<()> {
        let version = found.version();
        let is_it =
            |batch: &Self, (stage, aside): (&S::Fd, &[u8])| batch.is_as_found(stage, aside, &version, false);
        match self.take_out(spot, found, is_it)? {
            true => Ok(()),
            false => Err(Fail::Conflict(self.attr_in(spot))),
        }
    }

    /// Moves aside what has a name by now, and removes it if it is what shall lose the name. Answers whether it was, or had
    /// none any more: otherwise it has its name again.
    fn take_out(
        &mut self,
        spot: &Spot<S>,
        found: &Attr,
        is_it: impl FnOnce(&Self, (&S::Fd, &[u8])) -> bool,
    ) -> Act<bool> {
        let index = self.staging(&spot.at.path, &spot.dir)?;
        let stage = self.sys().open_name(&self.stagings[index].fd, b".")?;
        let aside = self.aside(&spot.at.path, spot.name)?;
        let (dir, name) = spot.raw();
        let old = self.taking_out(index, &aside, (&spot.at.path, spot.name), found, false);
        self.intend(Intent::TakeOut(old));
        match self.sys().rename(dir, name, &stage, &aside, Rename::Replace) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(true),
            Err(e) => return Err(e.into()),
        }
        if is_it(self, (&stage, &aside)) {
            self.sys().unlink(&stage, &aside, false)?;
            return Ok(true);
        }
        if self.move_free((&stage, &aside), (dir, name)).is_err() {
            self.rescue((&stage, &aside), dir, name)?;
        }
        Ok(false)
    }

    /// Moves a name.
    pub(super) fn rename(
        &mut self,
        placed: &Placed,
        from: (&Loc, &Name),
        object: &Loc,
        to: (&Loc, &Name),
        replaced: Option<(&Loc, Option<&Version>)>,
    ) -> Act<Done> {
        let (from, to) = (self.spot(from.0, from.1)?, self.spot(to.0, to.1)?);
        let source = self.home.find_in(&from.dir.fd, from.name)?;
        let there = self.home.find_in(&to.dir.fd, to.name)?;
        source.iter().for_each(|source| self.finds(&source.attr));
        let is_anothers = |found: &Option<Found<S>>| {
            found.as_ref().is_some_and(|found| self.is_anothers(placed, &found.attr))
        };
        let (replaced, not_ours) = (replaced.filter(|_| !is_anothers(&there)), is_anothers(&source));
        let old = replaced.and_then(|(loc, _)| self.meant(loc));
        // An agent that was killed exchanged both: the name that was to be moved shows what it was to replace.
        let exchanged = object.id.is_none()
            && self.was_begun(placed)
            && old.is_some()
            && source.as_ref().is_some_and(|s| self.same(old, s.attr.id));
        let source = match source {
            Some(source) if !exchanged && !not_ours && self.same(self.meant(object), source.attr.id) => {
                source
            }
            other => return self.renamed_before(placed, object, other, (from, to), there, replaced),
        };
        let is_one = there
            .as_ref()
            .is_some_and(|there| there.attr.id == source.attr.id && source.attr.kind != Kind::Dir);
        // Where a file system does not tell small letters from large, one entry answers to both names.
        let is_same_name =
            source.attr.nlink < 2 || from.dir.attr.id == to.dir.attr.id && from.name == to.name;
        // rename(2) leaves two names of one object.
        let attr = if is_one && (placed.plain || is_same_name) {
            self.home.attr_of(&source.fd)?
        } else {
            self.sync_before_name(source.attr.id)?;
            self.moving(placed, &source, |batch| {
                match placed.plain {
                    true => batch.rename_plainly(&from, &to, there.as_ref(), replaced)?,
                    // An earlier execution came so far, where a name moves in two steps; or it is somebody's link.
                    false if is_one => batch.leave_name((&from, &to), &source.attr)?,
                    false => {
                        batch.rename_carefully(placed, (&from, &to), &source, there.as_ref(), replaced)?
                    }
                }
                there.iter().for_each(|replaced| batch.loses_name(replaced));
                Ok(batch.home.attr_of(&source.fd)?)
            })?
        };
        Ok(Done {
            attr: Some(attr),
            dirs: vec![self.touch(&from.dir, placed)?, self.touch(&to.dir, placed)?],
        })
    }

    /// The source is not there: perhaps because this was done before.
    fn renamed_before(
        &mut self,
        placed: &Placed,
        object: &Loc,
        source: Option<Found<S>>,
        (from, to): (Spot<S>, Spot<S>),
        there: Option<Found<S>>,
        replaced: Option<(&Loc, Option<&Version>)>,
    ) -> Act<Done> {
        let (old, base) = replaced.map_or((None, None), |(loc, base)| (self.meant(loc), base));
        let arrived = there.filter(|t| match object.id {
            Some(_) => self.same(self.meant(object), t.attr.id),
            // It had been made a moment before, so that nobody knows it; but a move of it was begun, and it has moved.
            None => self.was_begun(placed) && (old.is_none() || !self.same(old, t.attr.id)),
        });
        // By another name later operations of ours may have written to it while this one was refused.
        let is_as_left = |there: &Attr| {
            let memo = lock(&self.home.memo);
            let base = base.copied().or_else(|| memo.left_in(there.id));
            base.map(|base| memo.matches(&base, &there.version()))
        };
        // A move that replaces nothing exchanges nothing; nor is any file that we wrote last the one that it replaces.
        let is_replaced = |there: &Attr| {
            replaced.is_some() && self.same(old, there.id) && is_as_left(there).unwrap_or(old.is_some())
        };
        if let (true, Some(_), Some(source)) = (placed.resent, &arrived, &source)
            && is_replaced(&source.attr)
        {
            // It died between the exchange and the removal. By another name this batch may have written to what was replaced.
            self.sync_before_name(source.attr.id)?;
            self.close(source.attr.id);
            self.finish_exchange(placed, (&from, &to), &source.attr)?;
        }
        match (arrived, source) {
            (Some(arrived), _) if !placed.plain || placed.resent => Ok(Done {
                attr: Some(arrived.attr),
                dirs: vec![self.touch(&from.dir, placed)?, self.touch(&to.dir, placed)?],
            }),
            (_, Some(_)) => Err(ErrorKind::Stale.into()),
            (_, None) => Err(ErrorKind::NotFound.into()),
        }
    }

    fn rename_plainly(
        &mut self,
        from: &Spot<S>,
        to: &Spot<S>,
        there: Option<&Found<S>>,
        replaced: Option<(&Loc, Option<&Version>)>,
    ) -> Act<()> {
        if let (Some(there), Some((loc, _))) = (there, replaced)
            && !self.same(self.meant(loc), there.attr.id)
        {
            return Err(ErrorKind::Stale.into());
        }
        let ((from, name), (to, new)) = (from.raw(), to.raw());
        Ok(self.sys().rename(from, name, to, new, Rename::Replace)?)
    }

    /// Replaces only what the gateway has read.
    fn rename_carefully(
        &mut self,
        placed: &Placed,
        (from, to): (&Spot<S>, &Spot<S>),
        source: &Found<S>,
        there: Option<&Found<S>>,
        replaced: Option<(&Loc, Option<&Version>)>,
    ) -> Act<()> {
        let (Some(there), Some((loc, base))) = (there, replaced) else {
            return self.move_name(placed, (from, to), &source.attr, false);
        };
        let base = base.copied().or_else(|| lock(&self.home.memo).left_in(there.attr.id));
        if !self.same(self.meant(loc), there.attr.id) || !self.matches(placed, base.as_ref(), &there.attr) {
            return Err(Fail::Conflict(Some(there.attr)));
        }
        let ((dir, name), (new_dir, new_name)) = (from.raw(), to.raw());
        match (source.attr.kind == Kind::Dir, there.attr.kind == Kind::Dir) {
            (true, false) => Err(ErrorKind::NotDir.into()),
            (false, true) => Err(ErrorKind::IsDir.into()),
            (true, true) => {
                // The kernel replaces an empty directory only.
                self.leave_directory(there.attr.id);
                self.touched.retain(|t| t.id != there.attr.id);
                Ok(self.sys().rename(dir, name, new_dir, new_name, Rename::Replace)?)
            }
            (false, false) => {
                // It may stay, with what earlier operations wrote.
                self.sync_before_name(there.attr.id)?;
                self.close(there.attr.id);
                let over =
                    |batch: &mut Self| batch.rename_over(placed, (from, to), &source.attr, &there.attr);
                self.untouched(there, over)
            }
        }
    }

    /// Moves an object to a name that is free, also where the file system cannot promise that in one step. Who has replaced it by
    /// then keeps the old name. `replaced`: the new one was freed for it.
    fn move_name(
        &mut self,
        placed: &Placed,
        (from, to): (&Spot<S>, &Spot<S>),
        source: &Attr,
        replaced: bool,
    ) -> Act<()> {
        let ((dir, name), (new_dir, new_name)) = (from.raw(), to.raw());
        let moved = match self.sys().rename(dir, name, new_dir, new_name, Rename::NoReplace) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if source.kind != Kind::Dir => {
                // What the old name is taken away by is made first: no name is left behind for want of it.
                self.staging(&from.at.path, &from.dir)?;
                match self.sys().link(dir, name, new_dir, new_name) {
                    Ok(()) => {
                        let left = self.leave_name((from, to), source);
                        // Who is refused it finds everything as it was, also after a power cut. What was replaced is gone.
                        if !replaced && matches!(left, Err(Fail::Refused(_))) {
                            self.leave_name((to, from), source).ok();
                            self.disturb(&from.dir, placed)?;
                            self.disturb(&to.dir, placed)?;
                        }
                        return left;
                    }
                    Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                        self.move_free((dir, name), (new_dir, new_name))
                    }
                    refused => refused,
                }
            }
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.move_free((dir, name), (new_dir, new_name))
            }
            done => done,
        };
        match moved {
            Err(Errno::EXIST) => match self.attr_in(to) {
                // Somebody has linked it there; or a server made our link twice.
                Some(there) if there.id == source.id && there.kind != Kind::Dir && there.nlink > 1 => {
                    self.leave_name((from, to), &there)
                }
                there => Err(Fail::Conflict(there)),
            },
            done => Ok(done?),
        }
    }

    /// Takes the old name of an object away that has its new one. Who has replaced it by then keeps the old name; and where
    /// somebody has taken the new one from it, it keeps the old one itself.
    fn leave_name(&mut self, (from, to): (&Spot<S>, &Spot<S>), object: &Attr) -> Act<()> {
        let id = object.id;
        let is_it = |batch: &Self, (stage, aside): (&S::Fd, &[u8])| {
            let leads_to_it = |dir: &S::Fd, name: &[u8]| {
                let there = batch.sys().open_name(dir, name).ok().and_then(|fd| batch.home.attr_of(&fd).ok());
                there.is_some_and(|there| there.id == id)
            };
            let (dir, name) = to.raw();
            leads_to_it(stage, aside) && leads_to_it(dir, name)
        };
        // No version has this length: who mends this gives it back, and the operation is finished when it comes again.
        let kept = Attr { size: u64::MAX, ..*object };
        if self.take_out(from, &kept, is_it)? {
            return Ok(());
        }
        match self.home.find_in(&to.dir.fd, to.name)?.filter(|there| there.attr.id != id) {
            Some(there) => Err(Fail::Conflict(Some(there.attr))),
            None => Ok(()),
        }
    }

    /// Exchanges source and destination, so that the latter can be verified before it is lost.
    fn rename_over(
        &mut self,
        placed: &Placed,
        (from, to): (&Spot<S>, &Spot<S>),
        source: &Attr,
        there: &Attr,
    ) -> Act<()> {
        let ((dir, name), (new_dir, new_name)) = (from.raw(), to.raw());
        match self.sys().rename(dir, name, new_dir, new_name, Rename::Exchange) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.dispose_of_replaced(to, there)?;
                return self.move_name(placed, (from, to), source, true);
            }
            Err(e) => return Err(e.into()),
        }
        self.finish_exchange(placed, (from, to), there)
    }

    /// Removes what was replaced. What cannot be done is undone, durably: who is refused it finds everything as it was, also
    /// after a power cut, and may send it anew.
    fn finish_exchange(
        &mut self,
        placed: &Placed,
        (from, to): (&Spot<S>, &Spot<S>),
        there: &Attr,
    ) -> Act<()> {
        let ((dir, name), (new_dir, new_name)) = (from.raw(), to.raw());
        let disposed = self.dispose_of_replaced(from, there);
        if disposed.is_err() {
            self.sys().rename(dir, name, new_dir, new_name, Rename::Exchange)?;
            self.disturb(&from.dir, placed)?;
            self.disturb(&to.dir, placed)?;
        }
        disposed.map_err(|fail| match fail {
            Fail::Conflict(_) => Fail::Conflict(self.attr_in(to)),
            refused => refused,
        })
    }

    /// Removes what is replaced, unless somebody has it open for writing. `spot`: the name that it has now, after an exchange the
    /// source's old one.
    fn dispose_of_replaced(&mut self, spot: &Spot<S>, there: &Attr) -> Act<()> {
        let (dir, name) = spot.raw();
        if there.kind == Kind::File && self.sys().open_name(dir, name).is_ok_and(|fd| self.has_writer(&fd)) {
            return Err(Fail::Conflict(Some(*there)));
        }
        match self.dispose(spot, there) {
            // Somebody else has removed it.
            Err(Fail::Conflict(None)) => Ok(()),
            done => done,
        }
    }

    /// Undoes what was left of renames over other files that ended after the exchange, where operations on those files
    /// are to be repeated first: each would meet the other one.
    pub(super) fn take_back_exchanges(&mut self, ops: &[Placed]) {
        // What has its outcome already is not executed: what its names stand for now is somebody else's doing.
        let repeated: Vec<&Placed> = {
            let memo = lock(&self.home.memo);
            ops.iter().filter(|placed| memo.outcome(placed.id).is_none()).collect()
        };
        for (n, placed) in repeated.iter().enumerate().filter(|(_, placed)| placed.resent && !placed.plain) {
            let Op::Rename { from, name, object, to, new_name, replaced: Some((old, _)) } = &placed.op else {
                continue;
            };
            let places = [from.path.join(name), to.path.join(new_name)];
            let mut earlier =
                repeated[..n].iter().flat_map(|p| changed(&p.op)).filter(|(at, _)| places.contains(at));
            let first = earlier.next();
            let content_alone =
                first.is_some_and(|(_, is_name)| !is_name) && earlier.all(|(_, is_name)| !is_name);
            if let (true, Some(new), Some(old)) = (content_alone, self.meant(object), self.meant(old)) {
                // What cannot be undone is met by whoever comes to it.
                self.take_back_exchange(placed, (from, name, new), (to, new_name, old)).ok();
            }
        }
    }

    fn take_back_exchange(
        &mut self,
        placed: &Placed,
        (from, name, new): (&Loc, &Name, HomeId),
        (to, new_name, old): (&Loc, &Name, HomeId),
    ) -> Act<()> {
        let (from, to) = (self.spot(from, name)?, self.spot(to, new_name)?);
        let has = |spot: &Spot<S>, id| -> Act<bool> {
            let there = self.home.find_in(&spot.dir.fd, spot.name)?;
            Ok(there.is_some_and(|there| self.same(Some(id), there.attr.id)))
        };
        if new != old && has(&from, old)? && has(&to, new)? {
            let ((dir, name), (new_dir, new_name)) = (from.raw(), to.raw());
            self.sys().rename(dir, name, new_dir, new_name, Rename::Exchange)?;
            self.disturb(&from.dir, placed)?;
            self.disturb(&to.dir, placed)?;
        }
        Ok(())
    }

    fn attr_in(&self, spot: &Spot<S>) -> Option<Attr> {
        self.home.find_in(&spot.dir.fd, spot.name).ok().flatten().map(|f| f.attr)
    }
}

/// The places at which an operation changes something, and whether that is what their names stand for.
fn changed(op: &Op<Loc, Payload>) -> Vec<(HomePath, bool)> {
    match op {
        Op::Create { dir, name, .. } | Op::Link { dir, name, .. } | Op::Remove { dir, name, .. } => {
            vec![(dir.path.join(name), true)]
        }
        Op::Rename { from, name, to, new_name, .. } => {
            vec![(from.path.join(name), true), (to.path.join(new_name), true)]
        }
        Op::Write { file: at, .. } | Op::SetAttr { object: at, .. } | Op::SetXattr { object: at, .. } => {
            vec![(at.path.clone(), false)]
        }
    }
}

/// What shall go away may be gone.
pub(super) fn gone(e: Errno) -> std::result::Result<(), Errno> {
    if e == Errno::NOENT { Ok(()) } else { Err(e) }
}
