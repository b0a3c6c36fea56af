//! Changes of content in a copy, which then changes places with the file.
//!
//! The order keeps both sides' bytes under every interleaving with other programs: build and sync the
//! copy, exchange it with the file in one step, look whether anybody has the file that was taken out
//! open for writing, verify that it is the one that was copied, and only then remove it. In any
//! other case it goes back. Where the file system has no exchange, the file is moved aside, verified,
//! and the copy is linked to the name, which cannot overwrite; the name is absent for that moment.

use super::super::sys::{Mode, Rename, Stamp, Sys, Sysult};
use super::content::{Target, final_size, kept};
use super::create::SET_ID;
use super::staging::{COPY, aside_for};
use super::{Act, Batch, Fail};
use crate::attr::{Attr, HomeId, Version};
use crate::error::ErrorKind;
use crate::limits;
use crate::op::{Done, Piece, Placed};
use crate::posix::lock;
use crate::posix::spool::{self, Data, Taken};
use crate::posix::step::Step;
use rustix::io::Errno;

/// Attributes that a write takes away from a file in any case.
const LOST_BY_WRITING: &[u8] = b"security.capability";

/// What became of a swap.
enum Swap {
    /// The copy is in place and the old file is gone.
    Done,
    /// The file system cannot exchange.
    Unsupported,
    /// Copy and file cannot change places, because they are not in one file system after all.
    Apart,
}

/// How a copy turned out.
#[derive(PartialEq)]
enum Copy {
    Whole,
    /// Owner, group, ACL or other attributes cannot be given to it, or it costs more than it protects.
    NotWorthIt,
}

/// A copy, open for reading.
struct Made<Fd> {
    fd: Fd,
    /// Whoever opens it for writing waits.
    held: bool,
}

/// What an operation of ours left, not what somebody else has made of it since.
pub(super) fn own(left: Attr, now: Attr) -> Attr {
    if now.version().same_content(&left.version()) { now } else { left }
}

impl<S: Sys> Batch<'_, S> {
    /// Replaces the file by a changed copy; `None` if that would lose something, and nothing happened.
    pub(super) fn replace(
        &mut self,
        placed: &Placed,
        target: &Target<S>,
        pieces: &[Piece<Data<S::Fd>>],
    ) -> Act<Option<Done>> {
        let Ok(at) = self.staging(&target.path, &target.dir) else { return Ok(None) };
        // It may stay, with what earlier operations wrote.
        self.sync_before_name(target.file.attr.id)?;
        self.close(target.file.attr.id);
        let mut temp = self.unique(COPY)?;
        let stage = self.sys().open_name(&self.stagings[at].fd, b".")?;
        let (made, taken) = self.begin_copy(target, pieces, (&stage, &temp))?;
        let mut copy = Made { fd: self.sys().reopen(&made, Mode::Read)?, held: false };
        let built = self.build(placed, target, pieces, (&made, taken));
        let ours = self.home.attr_of(&made)?;
        // It would look like another's writer.
        drop(made);
        let swapped = match built {
            Ok(Copy::Whole) => match self.make_ready((&stage, &temp), &ours.version(), target) {
                Ok(ready) => {
                    temp = ready;
                    // What somebody wrote to it before its ctime is known would pass for ours, or go away with it.
                    copy.held = self.sys().hold(&copy.fd).is_ok();
                    let swap = |batch: &mut Self| batch.take_place(at, (&stage, &temp), target, &copy);
                    self.untouched(&target.file, swap)
                }
                Err(e) => Err(e.into()),
            },
            Ok(Copy::NotWorthIt) => Ok(Swap::Apart),
            Err(fail) => Err(fail),
        };
        if !matches!(swapped, Ok(Swap::Done)) && self.is_as_made((&stage, &temp), &ours.version(), &copy) {
            self.sys().unlink(&stage, &temp, false).ok();
        }
        let attr = self.home.attr_of(&copy.fd).map(|now| own(ours, now));
        self.sys().unlease(&copy.fd);
        match swapped? {
            Swap::Done => {}
            Swap::Unsupported | Swap::Apart => return Ok(None),
        }
        let attr = attr?;
        self.succeed(target.file.attr.id, attr.id);
        self.keep_open(copy.fd, attr.id, false);
        Ok(Some(Done { attr: Some(attr), dirs: vec![self.disturb(&target.dir, placed)?] }))
    }

    /// Notes that an object has another inode now.
    pub(super) fn succeed(&mut self, old: HomeId, new: HomeId) {
        lock(&self.home.memo).succeed(old, new);
        self.succeeds = Some(old);
    }

    /// A file for the copy: what was spooled, where nothing of the old content is left and it lies as the new one will; else an
    /// empty one.
    fn begin_copy(
        &self,
        target: &Target<S>,
        pieces: &[Piece<Data<S::Fd>>],
        (stage, temp): (&S::Fd, &[u8]),
    ) -> Sysult<(S::Fd, Option<Taken>)> {
        let anew = kept(target.file.attr.size, pieces) == 0;
        let spool = spool::becomes(pieces).filter(|_| anew);
        let taken = spool.and_then(|op| self.home.take_spool(op, stage, temp));
        match taken {
            Some((taken, moved)) => Ok((self.sys().reopen(&moved, Mode::ReadWrite)?, Some(taken))),
            None => Ok((self.sys().create(stage, temp, 0o600)?, None)),
        }
    }

    /// Writes the pieces to a copy that has what was spooled already.
    fn complete(&self, copy: &S::Fd, pieces: &[Piece<Data<S::Fd>>], taken: &Taken) -> Sysult<()> {
        let lies_there = |piece: &Piece<Data<S::Fd>>| match piece {
            Piece::Data(at, Data::Spooled(_, range)) => (range.op, range.at) == (taken.op, *at),
            Piece::Data(..) => false,
            Piece::Truncate(_) => true,
        };
        let others: Vec<_> = pieces.iter().filter(|piece| !lies_there(piece)).cloned().collect();
        self.write_pieces(copy, &others)?;
        match final_size(0, pieces) {
            size if size < taken.len => self.sys().truncate(copy, size),
            _ => Ok(()),
        }
    }

    /// Fills the copy with the changed content and the attributes, and makes it durable.
    fn build(
        &self,
        placed: &Placed,
        target: &Target<S>,
        pieces: &[Piece<Data<S::Fd>>],
        (copy, taken): (&S::Fd, Option<Taken>),
    ) -> Act<Copy> {
        let old = &target.file.attr;
        let keep = kept(old.size, pieces);
        if keep > 0 {
            let from = self.sys().reopen(&target.file.fd, Mode::Read)?;
            if self.copy_content(&from, copy, old.size, keep, pieces)? == Copy::NotWorthIt {
                return Ok(Copy::NotWorthIt);
            }
        }
        match taken {
            Some(taken) => self.complete(copy, pieces, &taken)?,
            None => self.write_pieces(copy, pieces)?,
        }
        if !self.dress(&target.file.fd, old, copy)? {
            return Ok(Copy::NotWorthIt);
        }
        if !placed.plain {
            self.sys().set_times(copy, Stamp::Keep, Stamp::At(placed.time))?;
        }
        if self.home.takes(Step::SyncCopies) {
            self.home.note_sync(old.id.fs, self.sys().sync(copy))?;
        }
        Ok(Copy::Whole)
    }

    /// The first `keep` bytes, without blocks where the original has holes.
    fn copy_content(
        &self,
        from: &S::Fd,
        to: &S::Fd,
        size: u64,
        keep: u64,
        pieces: &[Piece<Data<S::Fd>>],
    ) -> Act<Copy> {
        if self.sys().clone_file(from, to).is_ok() {
            self.sys().truncate(to, keep)?;
            return Ok(Copy::Whole);
        }
        let changed: u64 = pieces.iter().map(|p| if let Piece::Data(_, d) = p { d.len() } else { 0 }).sum();
        if keep >= limits::COPY_WHOLE_MAX && changed < keep / 16 {
            return Ok(Copy::NotWorthIt);
        }
        self.sys().truncate(to, keep)?;
        let mut at = 0;
        while let Some((start, end)) = self.sys().data_range(from, at, size)?.filter(|(s, _)| *s < keep) {
            self.copy_range(from, to, start, end.min(keep))?;
            at = end;
            if at >= keep {
                break;
            }
        }
        Ok(Copy::Whole)
    }

    fn copy_range(&self, from: &S::Fd, to: &S::Fd, mut at: u64, end: u64) -> Sysult<()> {
        let mut buf = Vec::new();
        while at < end {
            let went = match self.sys().copy(from, to, at, end - at) {
                Ok(n) if n > 0 => n,
                Ok(_) => 0,
                Err(Errno::XDEV | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP | Errno::PERM) => {
                    buf.resize(limits::COPY_BUFFER.min((end - at) as usize), 0);
                    let n = self.read_all(from, at, &mut buf)?;
                    self.write_all(to, at, &buf[..n])?;
                    n as u64
                }
                Err(e) => return Err(e),
            };
            // The file was cut meanwhile; the verification after the exchange will tell.
            if went == 0 {
                break;
            }
            at += went;
        }
        Ok(())
    }

    /// Gives the copy the owner's view of the file: group, mode, ACL and other extended attributes.
    /// Whether it looks the same then.
    fn dress(&self, file: &S::Fd, old: &Attr, copy: &S::Fd) -> Act<bool> {
        let fresh = self.sys().stat(copy)?;
        if fresh.uid != old.uid || (fresh.gid != old.gid && self.sys().chgrp(copy, old.gid).is_err()) {
            return Ok(false);
        }
        let wanted: Vec<_> =
            self.sys().xattrs(file)?.into_iter().filter(|(name, _)| name != LOST_BY_WRITING).collect();
        let has = self.sys().xattrs(copy)?;
        for (name, value) in wanted.iter().filter(|x| !has.contains(x)) {
            if self.sys().set_xattr(copy, name, value).is_err() {
                return Ok(false);
            }
        }
        self.sys().chmod(copy, old.mode & !SET_ID)?;
        let mut has = self.sys().xattrs(copy)?;
        let mut wanted = wanted;
        has.sort();
        wanted.sort();
        Ok(has == wanted)
    }

    /// Puts the copy in the place of the file.
    fn take_place(
        &mut self,
        at: usize,
        (stage, temp): (&S::Fd, &[u8]),
        target: &Target<S>,
        made: &Made<S::Fd>,
    ) -> Act<Swap> {
        match self.swap(at, stage, temp, target, made) {
            Ok(Swap::Unsupported) => self.swap_by_link(at, stage, temp, target),
            other => other,
        }
    }

    /// Exchange, verify, and dispose or undo.
    fn swap(
        &mut self,
        at: usize,
        stage: &S::Fd,
        temp: &[u8],
        target: &Target<S>,
        made: &Made<S::Fd>,
    ) -> Act<Swap> {
        let (dir, name) = (&target.dir.fd, target.name.as_bytes());
        let copy = self.home.attr_of(&self.sys().open_name(stage, temp)?)?;
        let old = self.taking_out(at, temp, (&target.path, &target.name), &target.file.attr, true);
        self.intend_swap(&copy, old);
        match self.sys().rename(stage, temp, dir, name, Rename::Exchange) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(Fail::Conflict(None)),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => return Ok(Swap::Unsupported),
            Err(Errno::XDEV) => return Ok(Swap::Apart),
            Err(e) => return Err(e.into()),
        }
        if self.is_as_found(stage, temp, &target.file.attr.version(), true) {
            self.sys().unlink(stage, temp, false)?;
            return Ok(Swap::Done);
        }
        if self.sys().rename(stage, temp, dir, name, Rename::Exchange).is_err() {
            // Somebody has moved or removed our copy.
            return Err(self.put_back((stage, temp), target));
        }
        let is_ours = self.is_as_made((stage, temp), &copy.version(), made);
        self.put_copy_away((stage, temp), (dir, name), copy.id, is_ours)?;
        Err(Fail::Conflict(self.home.find_in(dir, &target.name)?.map(|f| f.attr)))
    }

    /// Whether our copy, which lost its name again or never had it, is as we made it, and nobody is about to write to it.
    fn is_as_made(&self, (stage, temp): (&S::Fd, &[u8]), left: &Version, made: &Made<S::Fd>) -> bool {
        match made.held {
            // Who came for it while it had the name waits, and writes as soon as he may.
            true => {
                let there = self.sys().open_name(stage, temp);
                self.sys().is_leased(&made.fd) && there.is_ok_and(|fd| self.is_version(&fd, left, true))
            }
            false => self.is_as_found(stage, temp, left, true),
        }
    }

    /// Removes our copy, which gave its name back in an exchange, if it is as we made it: `is_ours`.
    pub(super) fn put_copy_away(
        &self,
        (stage, temp): (&S::Fd, &[u8]),
        (dir, name): (&S::Fd, &[u8]),
        copy: HomeId,
        is_ours: bool,
    ) -> Act<()> {
        let back = self.home.attr_of(&self.sys().open_name(stage, temp)?)?;
        if back.id != copy {
            // While our copy had the name, somebody replaced it. What they put there is newer than
            // the file that was taken out, which may have been written to meanwhile.
            self.sys().rename(stage, temp, dir, name, Rename::Exchange)?;
            return self.rescue((stage, temp), dir, name);
        }
        if !is_ours {
            // Somebody wrote to our copy, or is about to.
            return self.rescue((stage, temp), dir, name);
        }
        Ok(self.sys().unlink(stage, temp, false)?)
    }

    /// Whether an object is still the version that was found, and nobody is about to write it.
    pub(super) fn is_as_found(&self, dir: &S::Fd, name: &[u8], found: &Version, sole: bool) -> bool {
        let Ok(fd) = self.sys().open_name(dir, name) else { return false };
        if !self.home.takes(Step::Verify) {
            return true;
        }
        // First the writers, then the version: who closes it in between has changed the version before.
        if sole && self.has_writer(&fd) {
            return false;
        }
        self.is_version(&fd, found, sole)
    }

    /// The same, where it is known that nobody is about to write it.
    fn is_version(&self, fd: &S::Fd, found: &Version, sole: bool) -> bool {
        self.home
            .attr_of(fd)
            .is_ok_and(|attr| attr.version().same_content(found) && (!sole || attr.nlink == 1))
    }

    /// The same without exchange.
    fn swap_by_link(&mut self, at: usize, stage: &S::Fd, temp: &[u8], target: &Target<S>) -> Act<Swap> {
        let (dir, name) = (&target.dir.fd, target.name.as_bytes());
        let copy = self.home.attr_of(&self.sys().open_name(stage, temp)?)?;
        let aside = aside_for(&copy.version(), &target.file.attr.version(), &target.path, &target.name);
        let old = self.taking_out(at, &aside, (&target.path, &target.name), &target.file.attr, true);
        self.intend_swap(&copy, old);
        match self.sys().rename(dir, name, stage, &aside, Rename::Replace) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(Fail::Conflict(None)),
            Err(Errno::XDEV) => return Ok(Swap::Apart),
            Err(e) => return Err(e.into()),
        }
        if !self.is_as_found(stage, &aside, &target.file.attr.version(), true) {
            return Err(self.put_back((stage, &aside), target));
        }
        match self.move_free((stage, temp), (dir, name)) {
            Ok(()) => {
                self.sys().unlink(stage, &aside, false)?;
                Ok(Swap::Done)
            }
            Err(Errno::EXIST) => Err(self.put_back((stage, &aside), target)),
            Err(e) => match self.put_back((stage, &aside), target) {
                Fail::Conflict(_) => Err(e.into()),
                refused => Err(refused),
            },
        }
    }

    /// Undoes a move aside; what has taken the name meanwhile keeps it.
    fn put_back(&self, aside: (&S::Fd, &[u8]), target: &Target<S>) -> Fail {
        let (dir, name) = (&target.dir.fd, target.name.as_bytes());
        let done = match self.move_free(aside, (dir, name)) {
            Ok(()) => Ok(()),
            Err(_) => self.rescue(aside, dir, name),
        };
        match done.and_then(|()| Ok(self.home.find_in(dir, &target.name)?)) {
            Ok(there) => Fail::Conflict(there.map(|f| f.attr)),
            Err(_) => Fail::Refused(ErrorKind::Io),
        }
    }
}
