//! Changes of content: which way to take, and the way in place.

use super::super::sys::{Mode, Stamp, Sys, Sysult};
use super::ctimes::is_untouched;
use super::{Act, Batch, Fail};
use crate::attr::{Attr, HomeId, Kind, Version};
use crate::error::ErrorKind;
use crate::limits;
use crate::op::{Done, Payload, Piece, Placed};
use crate::posix::resolve::Found;
use crate::posix::spool::{self, Data};
use crate::posix::step::Step;
use crate::posix::{lent, lock};
use crate::{HomePath, Loc, Name};
use rustix::io::Errno;

/// A file whose content is to change.
pub(super) struct Target<S: Sys> {
    /// Its directory's path.
    pub path: HomePath,
    /// Its directory.
    pub dir: Found<S>,
    /// Its name there.
    pub name: Name,
    /// The file as it was found.
    pub file: Found<S>,
    /// Whether only the content that was found may be changed.
    pub guarded: bool,
}

/// How the content of a file is to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// In a copy that takes its place.
    Copy,
    /// In the file itself, unless somebody else has it open: a copy would protect nothing.
    First,
    /// In the file itself: a copy would lose something, or this was begun.
    Only,
}

impl<S: Sys> Batch<'_, S> {
    /// Changes the content of a file.
    pub(super) fn write(
        &mut self,
        placed: &Placed,
        at: &Loc,
        base: Option<&Version>,
        pieces: &[Piece<Payload>],
    ) -> Act<Done> {
        if let Some(done) = self.swapped_before(placed, at)? {
            return Ok(done);
        }
        let mut target = match self.target(placed, at) {
            Ok(target) => target,
            Err(fail) => return self.copied_before(placed, at, base, pieces)?.ok_or(fail),
        };
        self.finds(&target.file.attr);
        let base = self.base(placed, base, &target.file.attr);
        target.guarded = base.is_some();
        let pieces = self.pieces(pieces)?;
        let mut resume = false;
        if let Some(base) = &base
            && !self.matches(placed, Some(base), &target.file.attr)
        {
            if placed.resent && self.is_done(placed, base, &target.file, &pieces) {
                let attr = target.file.attr;
                self.sync_attrs(placed, at, target.file)?;
                return Ok(Done { attr: Some(attr), dirs: Vec::new() });
            }
            resume = placed.resent && self.is_half_done(placed, base, &target.file, &pieces);
            if !resume {
                return Err(Fail::Conflict(Some(target.file.attr)));
            }
        }
        let in_place = resume && !self.is_long_and_torn(placed, &target.file.attr);
        let way = if in_place { Way::Only } else { self.way(placed, &target, &pieces) };
        let written = self.write_by(placed, &target, &pieces, way);
        if let (Err(Fail::Refused(_)), true, Some(base)) = (&written, resume, &base) {
            self.leave_half(&target.file, base);
        }
        written
    }

    /// The outcome of a change of content whose copy has the name already, where a power cut has taken the word of that: the copy is
    /// known by its time and by what was written.
    fn copied_before(
        &mut self,
        placed: &Placed,
        at: &Loc,
        base: Option<&Version>,
        pieces: &[Piece<Payload>],
    ) -> Act<Option<Done>> {
        let base = base.filter(|base| placed.resent && !placed.plain && base.id != HomeId::default());
        let (Some(base), Ok((_, dir, name))) = (base, self.parent(&at.path)) else { return Ok(None) };
        let is_one = |file: &Found<S>| file.attr.kind == Kind::File && file.attr.nlink == 1;
        let file = self.home.find_in(&dir.fd, &name)?.filter(is_one);
        let Some(file) = file.filter(|file| !self.is_anothers(placed, &file.attr)) else { return Ok(None) };
        let pieces = self.pieces(pieces)?;
        if !self.is_done(placed, base, &file, &pieces) {
            return Ok(None);
        }
        let attr = file.attr;
        self.succeed(base.id, attr.id);
        self.sync_attrs(placed, at, file)?;
        Ok(Some(Done { attr: Some(attr), dirs: vec![self.disturb(&dir, placed)?] }))
    }

    /// Changes the content, this way first.
    fn write_by(
        &mut self,
        placed: &Placed,
        target: &Target<S>,
        pieces: &[Piece<Data<S::Fd>>],
        way: Way,
    ) -> Act<Done> {
        if way != Way::Copy {
            let sole = target.file.attr.nlink == 1;
            match self.in_place(placed, target, pieces, way) {
                // The owner may write whatever the mode says, and running programs do not keep a file
                // from being replaced: both go by a copy.
                Err(Fail::Refused(ErrorKind::Access)) if way == Way::First => {}
                Err(Fail::Refused(ErrorKind::TextBusy)) if !placed.plain && sole => {}
                Ok(None) => {}
                Ok(Some(done)) => return Ok(done),
                Err(fail) => return Err(fail),
            }
        }
        let own = self.is_own(&target.file.attr);
        let in_place = |batch: &mut Self| match batch.in_place(placed, target, pieces, Way::Only)? {
            Some(done) => Ok(done),
            None => Err(ErrorKind::Busy.into()),
        };
        match self.replace(placed, target, pieces) {
            Ok(Some(done)) => Ok(done),
            Ok(None) => in_place(self),
            // What may not even be read cannot be copied; its owner may write to it all the same.
            Err(Fail::Refused(ErrorKind::Access)) if own => in_place(self),
            // A plain operation knows no conflict: it was as if two programs wrote at once.
            Err(Fail::Conflict(_)) if placed.plain => Err(ErrorKind::Busy.into()),
            Err(fail) => Err(fail),
        }
    }

    /// The content that a change was made to. Where the gateway could not know it yet, an earlier operation left it there.
    pub(super) fn base(&self, placed: &Placed, base: Option<&Version>, file: &Attr) -> Option<Version> {
        let left = || lock(&self.home.memo).left_in(file.id);
        if placed.plain { None } else { base.copied().or_else(left) }
    }

    /// Finds the file, or says what is there instead.
    fn target(&self, placed: &Placed, at: &Loc) -> Act<Target<S>> {
        let lost = |kind, there| match placed.plain {
            true => Fail::Refused(kind),
            false => Fail::Conflict(there),
        };
        let (path, dir, name) = self.parent(&at.path).map_err(|fail| match fail {
            Fail::Refused(ErrorKind::NotFound) => lost(ErrorKind::NotFound, None),
            other => other,
        })?;
        let file = self.home.find_in(&dir.fd, &name)?.ok_or_else(|| lost(ErrorKind::NotFound, None))?;
        if !self.same(self.meant(at), file.attr.id) || self.is_anothers(placed, &file.attr) {
            return Err(lost(ErrorKind::Stale, Some(file.attr)));
        }
        match file.attr.kind {
            Kind::File => Ok(Target { path, dir, name, file, guarded: false }),
            Kind::Dir => Err(lost(ErrorKind::IsDir, Some(file.attr))),
            _ => Err(lost(ErrorKind::Invalid, Some(file.attr))),
        }
    }

    fn is_own(&self, attr: &Attr) -> bool {
        attr.uid == self.home.account.uid
    }

    /// Which way to take.
    fn way(&self, placed: &Placed, target: &Target<S>, pieces: &[Piece<Data<S::Fd>>]) -> Way {
        let (file, dir) = (&target.file.attr, &target.dir.attr);
        let foreign_sticky = dir.mode & 0o1000 != 0 && !self.is_own(dir);
        let only =
            placed.plain || file.nlink > 1 || !self.is_own(file) || !dir.access.may_write() || foreign_sticky;
        // What lies there whole only has to change places.
        let whole = || spool::becomes(pieces).is_some() && kept(file.size, pieces) == 0;
        let first = || is_append(file.size, pieces) || lock(&self.home.memo).made_here(&file.version());
        match (only, only || !whole() && first()) {
            (true, _) => Way::Only,
            (false, true) => Way::First,
            (false, false) => Way::Copy,
        }
    }

    /// Writes into the file itself. Meanwhile nobody else opens it, where the home can see to that. Answers `None`, and
    /// does nothing, where somebody has it open so that a copy is safer.
    fn in_place(
        &mut self,
        placed: &Placed,
        target: &Target<S>,
        pieces: &[Piece<Data<S::Fd>>],
        way: Way,
    ) -> Act<Option<Done>> {
        let old = target.file.attr;
        let guarded = target.guarded && !placed.plain;
        let (fd, kept) = match self.take_open(old.id) {
            Some(fd) => (fd, true),
            None => {
                if guarded && old.size > 0 && self.keeps_a_writer(&target.file.fd) {
                    return Err(Fail::Conflict(Some(old)));
                }
                (self.open_for_writing(&target.file, way)?, false)
            }
        };
        let lease = if guarded { self.sys().lease(&fd) } else { Err(Errno::OPNOTSUPP) };
        let shared = lease == Err(Errno::AGAIN) && sole_append(old.size, pieces).is_none();
        let (yields, doubtful) = (shared && way == Way::First, shared && way != Way::First);
        let (fd, lease) = if doubtful { self.open_among_readers(target, (fd, kept))? } else { (fd, lease) };
        let done = match yields {
            true => Ok(None),
            false => self.write_in_place(placed, target, pieces, (&fd, lease.is_ok())).map(Some),
        };
        if lease.is_ok() {
            self.sys().unlease(&fd);
        }
        // What earlier operations wrote is still to be synced.
        if kept || matches!(done, Ok(Some(_))) {
            self.keep_open(fd, old.id, true);
        }
        Ok(done?.map(|attr| Done { attr: Some(attr), dirs: Vec::new() }))
    }

    /// Opens a file again that somebody else has open, too. Whoever reads it does no harm; that nobody writes to it is told
    /// only while it is not open for writing here. Answers with it whether nobody else has it open now.
    fn open_among_readers(
        &mut self,
        target: &Target<S>,
        (fd, is_written): (S::Fd, bool),
    ) -> Act<(S::Fd, Sysult<()>)> {
        if is_written {
            // Earlier operations wrote to it: with the descriptor goes what would have been synced.
            self.sync_early(target.file.attr.id.fs, self.sys().sync(&fd))?;
        }
        drop(fd);
        if self.keeps_a_writer(&target.file.fd) {
            return Err(Fail::Conflict(Some(target.file.attr)));
        }
        let fd = self.open_for_writing(&target.file, Way::Only)?;
        let lease = self.sys().lease(&fd);
        Ok((fd, lease))
    }

    fn write_in_place(
        &mut self,
        placed: &Placed,
        target: &Target<S>,
        pieces: &[Piece<Data<S::Fd>>],
        (fd, leased): (&S::Fd, bool),
    ) -> Act<Attr> {
        let old = target.file.attr;
        let guarded = target.guarded && !placed.plain;
        let now = self.home.attr_of(fd)?;
        if guarded && !is_untouched(&old, &now) {
            return Err(Fail::Conflict(Some(now)));
        }
        let is_told = !placed.plain && self.claim.is_some();
        let image = if is_told { self.image(placed, (fd, &now), pieces) } else { None };
        if let Some(claim) = &mut self.claim {
            // All that an empty file has afterwards is of the operation; what a longer one had, nobody here may have seen.
            let is_synced = !is_append(old.size, pieces) || !placed.plain && old.size > 0;
            claim.intend_in_place(&self.home.sys, old.id, is_synced, image);
        }
        // Also with a lease, which the kernel takes away from who is too slow.
        let end = sole_append(old.size, pieces).filter(|_| guarded);
        // A length that it has would move its time alone, and who comes after a kill there could not tell that from a change by
        // somebody else.
        let is_moot = |to: u64| to == now.size && !placed.plain;
        let needed = match pieces {
            [Piece::Truncate(to), rest @ ..] if is_moot(*to) => rest,
            all => all,
        };
        let written = match end {
            Some(data) => data.parts(self.sys()).try_for_each(|part| {
                let (from, bytes) = part?;
                self.append_all(fd, old.size + from, &bytes)
            }),
            None => self.write_pieces(fd, needed),
        };
        if let Err(e) = written {
            // Without a lease somebody else's bytes may be behind that end.
            if is_append(old.size, pieces) && leased {
                self.sys().truncate(fd, old.size).ok();
                self.sys().set_times(fd, Stamp::Keep, Stamp::At(old.mtime)).ok();
            }
            // Nobody else had it open: the next attempt must not take a part of this one for somebody else's.
            if leased && let Ok(left) = self.home.attr_of(fd) {
                self.leave(fd, left.version(), &old.version());
            }
            return Err(e.into());
        }
        let now = self.home.attr_of(fd)?;
        if guarded && (now.nlink == 0 || now.size != final_size(old.size, pieces)) {
            // Somebody wrote to it, or took its last name, at the same time.
            let there = self.home.find_in(&target.dir.fd, &target.name)?;
            return Err(Fail::Conflict(there.map(|f| f.attr)));
        }
        if placed.plain {
            return Ok(now);
        }
        let marked = self.stamp(placed, fd, now.size)?;
        // What somebody added since is not ours: the next change must not take it for its base.
        Ok(if marked.size != now.size { now } else { marked })
    }

    /// Gives a file of this length the time of the operation, by which it is known to be as that left it; answers what it has
    /// now. What somebody has added meanwhile must not pass for ours by that.
    pub(super) fn stamp(&self, placed: &Placed, fd: &S::Fd, size: u64) -> Act<Attr> {
        let give = |time| self.sys().set_times(fd, Stamp::Keep, time).or_else(not_ours);
        give(Stamp::At(placed.time))?;
        let marked = self.home.attr_of(fd)?;
        if marked.size == size || marked.mtime != placed.time {
            return Ok(marked);
        }
        give(Stamp::Now)?;
        Ok(self.home.attr_of(fd)?)
    }

    /// Notes what a write that failed left of a file, also for the next agent, and for one after a power cut: the next
    /// attempt may come much later. That what was taken back is as before is made durable, too: a power cut may have kept
    /// what was done without that it was undone.
    fn leave(&mut self, fd: &S::Fd, left: Version, before: &Version) {
        lock(&self.home.memo).left_in_part(left);
        self.home.sys.sync(fd).ok();
        if let (false, Some(claim)) = (left.same_content(before), &mut self.claim) {
            claim.leaves_durably(&self.home.sys, left);
        }
    }

    /// Notes the part of an earlier execution that was found in a file, where the operation is refused: it may be given up, and
    /// then nothing else tells that the part is ours.
    fn leave_half(&mut self, file: &Found<S>, base: &Version) {
        let found = file.attr.version();
        let is_as_found = self.home.attr_of(&file.fd).is_ok_and(|now| now.version().same_content(&found));
        if is_as_found
            && !self.has_writer(&file.fd)
            && let Ok(fd) = self.sys().reopen(&file.fd, Mode::Read)
        {
            self.leave(&fd, found, base);
        }
    }

    /// Adds bytes behind the end that the file has by then, so that nobody else's are overwritten.
    fn append_all(&self, fd: &S::Fd, end: u64, data: &[u8]) -> Sysult<()> {
        let went = match self.sys().append(fd, data) {
            Err(Errno::OPNOTSUPP) => return self.write_all(fd, end, data),
            went => went?,
        };
        match went {
            0 if !data.is_empty() => Err(Errno::NOSPC),
            n if n < data.len() => self.append_all(fd, end + n as u64, &data[n..]),
            _ => Ok(()),
        }
    }

    /// The owner may write whatever the mode says. What no copy can take the place of is lent the permission: for as
    /// long as it takes to open it.
    fn open_for_writing(&self, file: &Found<S>, way: Way) -> Sysult<S::Fd> {
        let opened = self.sys().reopen(&file.fd, Mode::ReadWrite).or_else(|e| match e {
            Errno::ACCESS => self.sys().reopen(&file.fd, Mode::Write),
            e => Err(e),
        });
        if opened.as_ref().err() != Some(&Errno::ACCESS) || way != Way::Only || !self.is_own(&file.attr) {
            return opened;
        }
        lent::reopen(self.sys(), &file.fd, file.attr.mode, Mode::ReadWrite)
    }

    /// The descriptor of a file that this batch has open for writing.
    pub(super) fn take_open(&mut self, id: HomeId) -> Option<S::Fd> {
        let at = self.open.iter().position(|o| o.id == id && o.writes)?;
        Some(self.open.swap_remove(at).fd)
    }

    /// Closes a file that this batch has open, so that it does not look like another's writer.
    pub(super) fn close(&mut self, id: HomeId) {
        self.open.retain(|o| o.id != id);
    }

    /// Makes content durable that this batch wrote, or found written, before it gets another name, so that a power cut does
    /// not show the name with less, or loses one, after which it would not be synced any more.
    pub(super) fn sync_before_name(&mut self, id: HomeId) -> Sysult<()> {
        if !self.home.takes(Step::SyncCopies) {
            return Ok(());
        }
        // What an earlier agent wrote may be of any file there.
        if let Some(at) = self.file_systems.iter().position(|(fs, _)| *fs == id.fs) {
            self.sync_early(id.fs, self.sys().sync_file_system(&self.file_systems[at].1))?;
            self.file_systems.swap_remove(at);
        }
        let mut open = self.open.iter().filter(|o| o.id == id);
        let synced = open.try_for_each(|o| self.sys().sync(&o.fd));
        self.sync_early(id.fs, synced)
    }

    /// Takes in how a sync before the batch's end went.
    fn sync_early(&mut self, fs: u64, synced: Sysult<()>) -> Sysult<()> {
        let synced = self.home.note_sync(fs, synced);
        self.sync_failed = self.sync_failed.or(synced.err());
        synced
    }

    /// Whether some process has the file open for writing, as far as we may know: of a file of our own also where its mode
    /// forbids us to read it, which is lent for as long as it takes to open it.
    pub(super) fn has_writer(&self, fd: &S::Fd) -> bool {
        if !self.home.takes(Step::AskWriters) {
            return false;
        }
        let opened = self.sys().reopen(fd, Mode::Read).or_else(|e| match self.home.attr_of(fd) {
            Ok(file) if e == Errno::ACCESS && self.is_own(&file) => {
                lent::reopen(self.sys(), fd, file.mode, Mode::Read)
            }
            _ => Err(e),
        });
        opened.is_ok_and(|fd| self.sys().probe_writers(&fd) == Err(Errno::AGAIN))
    }

    /// Whether somebody has the file open for writing for longer than a moment. Who has closed it may have started a program
    /// meanwhile, which has it open until it runs; nothing of ours is there yet that such a writer could meet.
    fn keeps_a_writer(&self, fd: &S::Fd) -> bool {
        let again = (1..limits::WRITER_ATTEMPTS).all(|_| {
            self.has_writer(fd) && {
                self.sys().pause();
                true
            }
        });
        again && self.has_writer(fd)
    }

    /// Applies pieces in order.
    pub(super) fn write_pieces(&self, fd: &S::Fd, pieces: &[Piece<Data<S::Fd>>]) -> Sysult<()> {
        for piece in pieces {
            match piece {
                Piece::Truncate(size) => self.sys().truncate(fd, *size)?,
                Piece::Data(at, data) => {
                    for part in data.parts(self.sys()) {
                        let (from, bytes) = part?;
                        self.write_all(fd, at + from, &bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn write_all(&self, fd: &S::Fd, mut at: u64, mut data: &[u8]) -> Sysult<()> {
        while !data.is_empty() {
            match self.sys().write(fd, at, data)? {
                0 => return Err(Errno::NOSPC),
                n => {
                    at += n as u64;
                    data = &data[n..];
                }
            }
        }
        Ok(())
    }

    /// Reads until the buffer is full or the file ends.
    pub(super) fn read_all(&self, fd: &S::Fd, at: u64, buf: &mut [u8]) -> Sysult<usize> {
        let mut have = 0;
        while have < buf.len() {
            match self.sys().read(fd, at + have as u64, &mut buf[have..])? {
                0 => break,
                n => have += n,
            }
        }
        Ok(have)
    }
}

/// Only the owner may set times; a group member's write keeps the time of the write.
fn not_ours(e: Errno) -> Sysult<()> {
    if e == Errno::PERM { Ok(()) } else { Err(e) }
}

/// Whether the pieces leave the first `size` bytes alone.
pub(super) fn is_append<F>(size: u64, pieces: &[Piece<Data<F>>]) -> bool {
    pieces.iter().all(|piece| match piece {
        Piece::Truncate(to) => *to >= size,
        Piece::Data(at, _) => *at >= size,
    })
}

/// The bytes to add, if the pieces do nothing else.
fn sole_append<F>(size: u64, pieces: &[Piece<Data<F>>]) -> Option<&Data<F>> {
    match pieces {
        [Piece::Data(at, data)] if *at == size => Some(data),
        _ => None,
    }
}

/// The length of a file of `size` bytes after the pieces.
pub(super) fn final_size<F>(size: u64, pieces: &[Piece<Data<F>>]) -> u64 {
    pieces.iter().fold(size, |size, piece| match piece {
        Piece::Truncate(to) => *to,
        Piece::Data(_, data) if data.len() == 0 => size,
        Piece::Data(at, data) => size.max(at + data.len()),
    })
}

/// Bytes of a file of this length that are copied before the pieces are written.
pub(super) fn kept<F>(size: u64, pieces: &[Piece<Data<F>>]) -> u64 {
    match pieces.first() {
        Some(Piece::Truncate(to)) => size.min(*to),
        _ => size,
    }
}
