//! New objects and further names for old ones.

use super::super::claim::Intent;
use super::super::sys::{Make, Mode, Rename, Stamp, Sys, Sysult};
use super::{Act, Batch, Fail};
use crate::attr::{Attr, Kind};
use crate::error::ErrorKind;
use crate::op::{Done, New, Placed};
use crate::posix::resolve::Found;
use crate::{Loc, Name, limits};
use rustix::io::Errno;

/// Set-user-id and set-group-id: kept on directories, where they rule the group of new objects, and taken
/// off files, which would run with another's rights.
pub(super) const SET_ID: u32 = 0o6000;
const SET_GID: u32 = 0o2000;

impl<S: Sys> Batch<'_, S> {
    /// Makes a new object under a free name.
    pub(super) fn create(
        &mut self,
        placed: &Placed,
        at: &Loc,
        name: &Name,
        new: &New,
        mode: u32,
    ) -> Act<Done> {
        let dir = self.dir(at)?;
        let mut why = ErrorKind::Busy;
        for _ in 0..limits::CREATE_ATTEMPTS {
            let opened = match self.make(&dir.fd, name, new, mode) {
                Err(Errno::EXIST) => match self.home.find_in(&dir.fd, name)? {
                    Some(found) => return self.exists(placed, dir, found, new, mode),
                    None => {
                        // Taken away since, or by something that is not shown.
                        why = ErrorKind::Exists;
                        continue;
                    }
                },
                made => made?,
            };
            // Where somebody has taken it away at once, it is as if that had come first.
            let Some(found) = self.home.find_in(&dir.fd, name)? else { continue };
            if let Some(fd) = opened {
                if self.home.attr_of(&fd)?.id != found.attr.id {
                    return Err(Fail::Conflict(Some(found.attr)));
                }
                self.keep_open(fd, found.attr.id, true);
            }
            self.made = true;
            return self.finish(placed, &dir, &found, mode);
        }
        Err(why.into())
    }

    /// The system call; files are returned open, because their mode may forbid us to open them later.
    fn make(&self, dir: &S::Fd, name: &Name, new: &New, mode: u32) -> Sysult<Option<S::Fd>> {
        let mode = mode & 0o777;
        let name = name.as_bytes();
        let what = match new {
            New::File => return self.sys().create(dir, name, mode).map(Some),
            New::Symlink(target) if target.is_empty() || target.contains(&0) => return Err(Errno::INVAL),
            New::Symlink(target) if target.len() > limits::SYMLINK_MAX => return Err(Errno::NAMETOOLONG),
            New::Symlink(target) => Make::Symlink(target),
            New::Dir => Make::Dir(mode),
            New::Fifo => Make::Fifo(mode),
            New::Socket => Make::Socket(mode),
        };
        self.sys().make(dir, name, what).map(|()| None)
    }

    /// Mode and times of what was made, and the sync of its directory.
    fn finish(&mut self, placed: &Placed, dir: &Found<S>, new: &Found<S>, mode: u32) -> Act<Done> {
        let (fd, kind) = (&new.fd, new.attr.kind);
        // A default ACL rules what is made below it, as it does for a local program.
        if kind != Kind::Symlink && !self.sys().default_acl(&dir.fd) {
            self.sys().chmod(fd, self.mode_of_new(&new.attr, mode))?;
        }
        let give = |atime, mtime| -> Act<Attr> {
            self.sys().set_times(fd, atime, mtime)?;
            Ok(self.home.attr_of(fd)?)
        };
        let mut attr = match (placed.plain, kind) {
            // What is in it is of others, or of our later writes, and so is its time, which tells them apart.
            (false, Kind::File) if new.attr.size != 0 => self.home.attr_of(fd)?,
            (false, Kind::File) => self.stamp(placed, fd, 0)?,
            (false, _) => give(Stamp::Keep, Stamp::At(placed.time))?,
            // The mark by which it is recognised if the answer is lost: nobody else gives it exactly this time.
            (true, _) => give(Stamp::At(placed.time), Stamp::Keep)?,
        };
        if kind == Kind::File && !placed.plain {
            // What it holds by now is not of this operation.
            (attr.size, attr.mtime) = (0, placed.time);
        }
        if kind == Kind::Dir {
            match self.sys().open_name(fd, b".") {
                Ok(fd) => drop(self.touch(&Found { fd, attr }, placed)?),
                // Whom its mode forbids to enter it cannot sync it either; nothing is in it.
                Err(Errno::ACCESS) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Done { attr: Some(attr), dirs: vec![self.touch(dir, placed)?] })
    }

    /// Whether a new file has content that no later write of ours, cut off by a power failure, can have left.
    fn has_others(&self, placed: &Placed, attr: &Attr) -> bool {
        attr.size != 0 && !self.claim.as_ref().is_some_and(|c| c.was_torn_later(placed.id.seq, attr))
    }

    /// The wanted mode; a directory hands its set-group-id bit down.
    fn mode_of_new(&self, new: &Attr, mode: u32) -> u32 {
        match new.kind {
            Kind::Dir => mode & 0o7777 | new.mode & SET_GID,
            _ => mode & !SET_ID & 0o7777,
        }
    }

    /// The name is taken: perhaps by what is wanted.
    fn exists(&mut self, placed: &Placed, dir: Found<S>, found: Found<S>, new: &New, mode: u32) -> Act<Done> {
        let attr = found.attr;
        if placed.plain {
            return match placed.resent && attr.kind == new.kind() && attr.atime == placed.time {
                true => self.finish(placed, &dir, &found, mode),
                false => Err(ErrorKind::Exists.into()),
            };
        }
        let same = match new {
            New::Dir => attr.kind == Kind::Dir,
            New::Symlink(target) => {
                attr.kind == Kind::Symlink && self.sys().readlink(&found.fd)? == target[..]
            }
            New::File => placed.resent && attr.kind == Kind::File && !self.has_others(placed, &attr),
            New::Fifo => placed.resent && attr.kind == Kind::Fifo,
            New::Socket => placed.resent && attr.kind == Kind::Socket,
        };
        let ours = attr.uid == self.home.account.uid;
        match same {
            true if attr.kind == Kind::File && ours => {
                self.made = true;
                if let Ok(fd) = self.sys().reopen(&found.fd, Mode::ReadWrite) {
                    self.keep_open(fd, attr.id, true);
                }
                self.finish(placed, &dir, &found, mode)
            }
            // An agent made it that did not come to give it mode and times.
            true if attr.kind != Kind::File && ours && self.was_begun(placed) => {
                self.finish(placed, &dir, &found, mode)
            }
            true if attr.kind != Kind::File => {
                Ok(Done { attr: Some(attr), dirs: vec![self.touch(&dir, placed)?] })
            }
            _ => Err(Fail::Conflict(Some(attr))),
        }
    }

    /// Gives an object a further name.
    pub(super) fn link(&mut self, placed: &Placed, object: &Loc, to: &Loc, name: &Name) -> Act<Done> {
        let (_, from, old) = self.parent(&object.path)?;
        let dir = self.dir(to)?;
        let source = self.home.find_in(&from.fd, &old)?.ok_or(ErrorKind::NotFound)?;
        if !self.same(self.meant(object), source.attr.id) {
            return Err(ErrorKind::Stale.into());
        }
        self.finds(&source.attr);
        self.sync_before_name(source.attr.id)?;
        let linked = self.moving(placed, &source, |batch| {
            match batch.sys().link(&from.fd, old.as_bytes(), &dir.fd, name.as_bytes()) {
                Ok(()) => Ok(Some(batch.home.find_in(&dir.fd, name)?.ok_or(ErrorKind::Stale)?)),
                Err(Errno::EXIST) => Ok(None),
                Err(e) => Err(e.into()),
            }
        })?;
        let Some(new) = linked else { return self.linked_before(placed, dir, name, &source.attr) };
        if new.attr.id != source.attr.id {
            return self.linked_another(&dir, to, name, &new.attr);
        }
        Ok(Done { attr: Some(new.attr), dirs: vec![self.touch(&dir, placed)?] })
    }

    /// Another object has the name. Either somebody replaced the source before it was linked, or the name since: only what
    /// has a further name loses this one.
    fn linked_another(&mut self, dir: &Found<S>, to: &Loc, name: &Name, there: &Attr) -> Act<Done> {
        if there.kind == Kind::Dir || there.nlink < 2 {
            return Err(Fail::Conflict(Some(*there)));
        }
        let at = self.staging(&to.path, dir)?;
        let stage = self.sys().open_name(&self.stagings[at].fd, b".")?;
        let aside = self.aside(&to.path, name)?;
        // No version has this length: who mends this gives it back.
        let kept = Attr { size: u64::MAX, ..*there };
        let old = self.taking_out(at, &aside, (&to.path, name), &kept, true);
        self.intend(Intent::TakeOut(old));
        self.sys().rename(&dir.fd, name.as_bytes(), &stage, &aside, Rename::Replace)?;
        let taken = self.home.attr_of(&self.sys().open_name(&stage, &aside)?)?;
        if taken.id == there.id && taken.nlink > 1 {
            self.sys().unlink(&stage, &aside, false)?;
            return Err(ErrorKind::Stale.into());
        }
        if self.move_free((&stage, &aside), (&dir.fd, name.as_bytes())).is_err() {
            self.rescue((&stage, &aside), &dir.fd, name.as_bytes())?;
        }
        Err(Fail::Conflict(self.home.find_in(&dir.fd, name)?.map(|f| f.attr)))
    }

    fn linked_before(&mut self, placed: &Placed, dir: Found<S>, name: &Name, source: &Attr) -> Act<Done> {
        let there = self.home.find_in(&dir.fd, name)?.map(|f| f.attr);
        match there {
            Some(attr) if attr.id == source.id && (!placed.plain || placed.resent) => {
                Ok(Done { attr: Some(attr), dirs: vec![self.touch(&dir, placed)?] })
            }
            _ if placed.plain => Err(ErrorKind::Exists.into()),
            there => Err(Fail::Conflict(there)),
        }
    }
}
