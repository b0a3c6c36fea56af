//! Attributes.

use super::super::sys::{Mode, Stamp, Sys};
use super::create::SET_ID;
use super::{Act, Batch, Fail};
use crate::attr::{Attr, Kind, Version};
use crate::error::ErrorKind;
use crate::op::{Done, Placed, SetAttr, SetTime};
use crate::posix::lock;
use crate::posix::resolve::Found;
use crate::posix::step::Step;
use crate::{Loc, limits};

fn stamp(time: Option<SetTime>) -> Stamp {
    match time {
        None => Stamp::Keep,
        Some(SetTime::Now) => Stamp::Now,
        Some(SetTime::At(t)) => Stamp::At(t),
    }
}

impl<S: Sys> Batch<'_, S> {
    /// Sets attributes of the object itself, whatever becomes of its path meanwhile.
    pub(super) fn set_attr(
        &mut self,
        placed: &Placed,
        at: &Loc,
        base: Option<&Version>,
        set: &SetAttr,
    ) -> Act<Done> {
        let found = self.home.find(at)?;
        let old = found.attr;
        if !self.same(self.meant(at), old.id) || self.is_anothers(placed, &old) {
            return Err(ErrorKind::Stale.into());
        }
        self.finds(&old);
        let base = self.base(placed, base, &old).filter(|_| set.mtime.is_some());
        let attr = self.moving(placed, &found, |batch| batch.set_held(placed, &found, base.as_ref(), set))?;
        // A time set on purpose is the one to restore.
        if set.mtime.is_some()
            && let Some(touched) = self.touched.iter_mut().find(|t| t.id == attr.id)
            && touched.restore.is_some()
        {
            touched.restore = Some(attr.mtime);
        }
        self.sync_attrs(placed, at, Found { fd: found.fd, attr })?;
        Ok(Done { attr: Some(attr), dirs: Vec::new() })
    }

    fn set_held(
        &mut self,
        placed: &Placed,
        found: &Found<S>,
        base: Option<&Version>,
        set: &SetAttr,
    ) -> Act<Attr> {
        let fd = &found.fd;
        let old = self.home.attr_of(fd)?;
        // Before the ctime moves by which it is told.
        if let Some(base) = base
            && self.compares_ctime(placed)
            && !lock(&self.home.memo).is_sure(base, &old.version())
        {
            return Err(Fail::Conflict(Some(old)));
        }
        if set.uid.is_some_and(|uid| uid != old.uid) {
            return Err(ErrorKind::Perm.into());
        }
        if let Some(gid) = set.gid.filter(|gid| *gid != old.gid) {
            self.sys().chgrp(fd, gid)?;
        }
        if let Some(mode) = set.mode.filter(|_| old.kind != Kind::Symlink) {
            let mode = if old.kind == Kind::Dir { mode } else { mode & !SET_ID };
            self.sys().chmod(fd, mode & 0o7777)?;
        }
        match base {
            Some(base) => self.stamp_if_known(found, base, set)?,
            None if set.atime.is_some() || set.mtime.is_some() => {
                self.sys().set_times(fd, stamp(set.atime), stamp(set.mtime))?;
            }
            None => {}
        }
        Ok(self.home.attr_of(fd)?)
    }

    /// Sets the times of a file with a content that the gateway knows. Another content keeps its modification time: else
    /// nobody would see that it is another one.
    fn stamp_if_known(&mut self, found: &Found<S>, base: &Version, set: &SetAttr) -> Act<()> {
        let before = self.home.attr_of(&found.fd)?.version();
        let foreign =
            self.home.takes(Step::Compare) && lock(&self.home.memo).is_foreign(base, &before, set.mtime);
        let mtime = if foreign { Stamp::Keep } else { stamp(set.mtime) };
        self.sys().set_times(&found.fd, stamp(set.atime), mtime)?;
        let after = self.home.attr_of(&found.fd)?.version();
        self.stamped = lock(&self.home.memo).stamped(&before, &after, !foreign);
        Ok(())
    }

    /// Notes what to sync so that attributes are durable: the object where it can be opened without
    /// side effects, else the directory beside it, whose journal it shares.
    pub(super) fn sync_attrs(&mut self, placed: &Placed, at: &Loc, found: Found<S>) -> Act<()> {
        let (id, kind) = (found.attr.id, found.attr.kind);
        if self.open.iter().any(|o| o.id == id) || self.touched.iter().any(|t| t.id == id) {
            return Ok(());
        }
        if self.open.len() < limits::BATCH_OPEN && matches!(kind, Kind::File | Kind::Dir) {
            let opened = self.sys().reopen(&found.fd, Mode::Read);
            if let Ok(fd) = opened.or_else(|_| self.sys().reopen(&found.fd, Mode::Write)) {
                self.keep_open(fd, id, false);
                return Ok(());
            }
        }
        if let Ok((_, dir, _)) = self.parent(&at.path) {
            self.disturb(&dir, placed)?;
        }
        Ok(())
    }
}
