//! Private directories for copies that are being built and for what was moved aside.
//!
//! A staging directory lies on the file system of the target, because only then can objects change places
//! with those in it. It has mode 0700 and a marker, is hidden from listings, lives for one batch at most,
//! and leaves nothing behind, not even a new modification time of its parent.

use super::super::account::cache_dir;
use super::super::claim::Stage;
use super::super::ident;
use super::super::sys::{FileType, Make, Mode, Rename, Stamp, Stat, Sys, Sysult};
use super::content::Target;
use super::{Act, Batch};
use crate::attr::{HomeId, Time, Version};
use crate::error::ErrorKind;
use crate::posix::Posix;
use crate::posix::resolve::Found;
use crate::{HomePath, Name, limits};
use bytes::Bytes;
use rustix::io::Errno;

/// How the name of a staging directory begins.
pub(in crate::posix) const PREFIX: &[u8] = b".trellis-stage-";
/// The file in a staging directory that tells it from a user's directory of such a name.
pub(super) const MARKER: &[u8] = b".trellis-staging";

/// How the names of copies in it begin that are being built.
pub(super) const COPY: &[u8] = b"new-";
/// How the names of those begin that are whole and durable, and about to change places with a file.
pub(super) const READY: &[u8] = b"swap-";
/// How the names of those begin whose place a copy is about to take, where both cannot change places.
pub(super) const OUT: &[u8] = b"out-";
/// How the names of what was moved aside begin.
pub(super) const OLD: &[u8] = b"old-";
/// The longest such name that tells a place, for any file system.
const ASIDE_MAX: usize = 140;

/// A staging directory.
pub(super) struct Staging<S: Sys> {
    /// Device and mount: renames work within these.
    place: (u64, u64),
    parent: S::Fd,
    parent_id: HomeId,
    /// The parent's time before and after the directory was made.
    parent_times: (Time, Time),
    name: Vec<u8>,
    /// The same for the log.
    pub stage: Stage,
    /// The directory itself.
    pub fd: S::Fd,
}

/// Whether a name of a directory is a staging directory of this account that may be in use: also one that is just being made or
/// removed, and has its marker not yet or not any more. One that a killed process left behind is shown after a while, because
/// only a person knows what is in it.
pub(in crate::posix) fn is_ours<S: Sys>(home: &Posix<S>, dir: &S::Fd, name: &[u8]) -> bool {
    let private = |s: Stat| {
        s.kind == FileType::Dir
            && s.uid == home.account.uid
            && s.mode & 0o777 == 0o700
            && home.sys.now().sec - s.mtime.sec < limits::STAGING_SECONDS
    };
    let is_marked = |fd: &S::Fd| home.sys.open_name(fd, MARKER).is_ok();
    let has_no_other = |fd: S::Fd| home.sys.names(&fd, 2).is_ok_and(|all| all.iter().all(|n| n == MARKER));
    let is_bare = |fd: &S::Fd| has_form(name) && home.sys.reopen(fd, Mode::Read).is_ok_and(has_no_other);
    name.starts_with(PREFIX)
        && home
            .sys
            .open_name(dir, name)
            .is_ok_and(|fd| home.sys.stat(&fd).is_ok_and(private) && (is_marked(&fd) || is_bare(&fd)))
}

/// Whether a name is of the length and the characters of those that staging directories get here.
fn has_form(name: &[u8]) -> bool {
    let told = name.strip_prefix(PREFIX).map(|told| told.split(|byte| *byte == b'-'));
    let lengths = |told: &[u8]| told.iter().all(u8::is_ascii_hexdigit).then_some(told.len());
    told.is_some_and(|told| told.map(lengths).eq([Some(16), Some(16), Some(8)]))
}

/// Clears away what killed processes left in the account's own cache directory, once it is so old that nobody comes to mend it:
/// what was taken out of its place goes back, since another program may have written to it there.
pub(in crate::posix) fn sweep<S: Sys>(home: &Posix<S>, cache: &S::Fd) -> Sysult<()> {
    let all = home.sys.names(&home.sys.reopen(cache, Mode::Read)?, limits::NAMES_MAX)?;
    for name in all.iter().filter(|n| n.starts_with(PREFIX)) {
        let dir = home.sys.open_name(cache, name)?;
        let stat = home.sys.stat(&dir)?;
        let old = home.sys.now().sec - stat.mtime.sec >= limits::STAGING_SECONDS;
        if stat.kind == FileType::Dir && stat.uid == home.account.uid && old {
            let stage = Stage { below: None, name: Bytes::copy_from_slice(name) };
            Batch::new(home, None).put_away(&stage).ok();
        }
    }
    Ok(())
}

/// The staging directories in the account's own directory whose names end like this.
pub(super) fn of_volume<S: Sys>(home: &Posix<S>, mark: &[u8]) -> Sysult<Vec<Stage>> {
    let all = home.sys.names(&home.sys.reopen(&cache_dir(home)?, Mode::Read)?, limits::NAMES_MAX)?;
    let ours = all.into_iter().filter(|name| name.starts_with(PREFIX) && name.ends_with(mark));
    Ok(ours.map(|name| Stage { below: None, name: name.into() }).collect())
}

/// What the name of a copy tells that was about to change places with a file.
pub(super) struct Ready {
    /// See [`mark`].
    pub copy: Vec<u8>,
    pub old: Vec<u8>,
    /// The place of the file, where that is short enough.
    pub place: Option<(HomePath, Name)>,
}

impl Ready {
    pub fn of(name: &[u8]) -> Option<Ready> {
        Ready::told(name.strip_prefix(READY)?)
    }

    /// The same of what was moved aside for a copy.
    pub fn of_out(name: &[u8]) -> Option<Ready> {
        Ready::told(name.strip_prefix(OUT)?)
    }

    fn told(told: &[u8]) -> Option<Ready> {
        let mut parts = told.splitn(3, |byte| *byte == b'-');
        let (copy, old) = (parts.next()?.to_vec(), parts.next()?.to_vec());
        Some(Ready { copy, old, place: parts.next().and_then(place_told) })
    }
}

/// What tells a content from others: 16 hexadecimal digits.
pub(super) fn mark(version: &Version) -> Vec<u8> {
    let Version { id, size, mtime, ctime: _ } = version;
    let numbers = [id.fs, id.ino, id.generation, *size, mtime.sec as u64, u64::from(mtime.nsec)];
    let bytes = numbers.map(u64::to_le_bytes);
    format!("{:016x}", ident::hash(&bytes.each_ref().map(|bytes| &bytes[..]))).into_bytes()
}

/// The place that the name of what was moved aside tells.
pub(super) fn place_of(aside: &[u8]) -> Option<(HomePath, Name)> {
    aside.strip_prefix(OLD)?.splitn(2, |byte| *byte == b'-').nth(1).and_then(place_told)
}

fn place_told(told: &[u8]) -> Option<(HomePath, Name)> {
    let (mut told, mut place) = (told.iter(), Vec::new());
    while let Some(byte) = told.next() {
        place.push(match byte {
            b'%' if *told.next()? == b's' => b'/',
            byte => *byte,
        });
    }
    HomePath::parse(&place).ok()?.split()
}

/// A name for a file that is moved aside for a copy, which tells both.
pub(super) fn aside_for(copy: &Version, old: &Version, dir: &HomePath, name: &Name) -> Vec<u8> {
    with_place([OUT, &mark(copy), b"-", &mark(old)].concat(), dir, name)
}

/// Such a name with the place behind it, where that is short enough.
fn with_place(mut aside: Vec<u8>, dir: &HomePath, name: &Name) -> Vec<u8> {
    let place = dir.join(name);
    let told = place.as_bytes().iter().flat_map(|byte| match byte {
        b'/' => &b"%s"[..],
        b'%' => b"%%",
        byte => std::slice::from_ref(byte),
    });
    let told: Vec<u8> = told.copied().collect();
    if aside.len() + 1 + told.len() <= ASIDE_MAX {
        aside.push(b'-');
        aside.extend(told);
    }
    aside
}

impl<S: Sys> Batch<'_, S> {
    /// The staging directory for objects of `dir`; made if need be. Answers its index.
    pub(super) fn staging(&mut self, path: &HomePath, dir: &Found<S>) -> Act<usize> {
        let stat = self.sys().stat(&dir.fd)?;
        let place = (stat.dev, stat.mount);
        if let Some(known) = self.stagings.iter().position(|s| s.place == place) {
            return Ok(known);
        }
        let mut last = Errno::ACCESS;
        for candidate in 0..3 {
            let parent = match candidate {
                0 => cache_dir(self.home)
                    .ok()
                    .filter(|fd| self.place_of(fd) == Some(place))
                    .map(|fd| (fd, None)),
                1 => self.highest_of_ours(path, place)?.map(|(fd, at)| (fd, Some(at))),
                _ => Some((self.sys().open_name(&dir.fd, b".")?, Some(path.clone()))),
            };
            let Some((parent, below)) = parent else { continue };
            match self.make_staging(parent, below, place) {
                Ok(made) => {
                    self.stagings.push(made);
                    return Ok(self.stagings.len() - 1);
                }
                Err(e) => last = e,
            }
        }
        Err(last.into())
    }

    fn place_of(&self, fd: &S::Fd) -> Option<(u64, u64)> {
        self.sys().stat(fd).ok().map(|s| (s.dev, s.mount))
    }

    /// The highest directory above the target that is ours to write on the same mount.
    fn highest_of_ours(&self, path: &HomePath, place: (u64, u64)) -> Act<Option<(S::Fd, HomePath)>> {
        let mut at = HomePath::root();
        let mut names = path.names();
        loop {
            let fd = self.home.open_path(&at)?;
            let stat = self.sys().stat(&fd)?;
            let ours = stat.uid == self.home.account.uid && self.sys().access(&fd, 3).is_ok();
            if (stat.dev, stat.mount) == place && ours {
                return Ok(Some((fd, at)));
            }
            match names.next() {
                Some(name) => at.push(&name),
                None => return Ok(None),
            }
        }
    }

    fn make_staging(
        &mut self,
        parent: S::Fd,
        below: Option<HomePath>,
        place: (u64, u64),
    ) -> Sysult<Staging<S>> {
        let mut name = self.unique(PREFIX)?;
        name.extend(&self.mark);
        let stage = Stage { below, name: Bytes::copy_from_slice(&name) };
        if let Some(claim) = &mut self.claim {
            claim.stage(&self.home.sys, &stage);
        }
        let before = self.sys().stat(&parent)?;
        let parent_id = self.home.attr_of(&parent).map_err(|_| Errno::ACCESS)?.id;
        self.sys().make(&parent, &name, Make::Dir(0o700))?;
        let opened = self.open_private(&parent, &name);
        let fd = opened.inspect_err(|_| {
            self.sys().unlink(&parent, &name, true).ok();
        })?;
        let after = self.sys().stat(&parent)?;
        Ok(Staging { place, parent, parent_id, parent_times: (before.mtime, after.mtime), name, stage, fd })
    }

    /// Opens the new directory, checks that it is what was made, and marks it.
    fn open_private(&self, parent: &S::Fd, name: &[u8]) -> Sysult<S::Fd> {
        let fd = self.sys().open_name(parent, name)?;
        let stat = self.sys().stat(&fd)?;
        if stat.kind != FileType::Dir || stat.uid != self.home.account.uid {
            return Err(Errno::PERM);
        }
        self.sys().chmod(&fd, 0o700)?;
        self.sys().create(&fd, MARKER, 0o600)?;
        Ok(fd)
    }

    /// A name that nobody else uses.
    pub(super) fn unique(&self, prefix: &[u8]) -> Sysult<Vec<u8>> {
        let mut bytes = [0; 16];
        self.sys().random(&mut bytes)?;
        let mut name = prefix.to_vec();
        name.extend_from_slice(format!("{:016x}", ident::hash(&[&bytes])).as_bytes());
        Ok(name)
    }

    /// A name for what is moved aside, which tells its place where that is short enough: a power cut may keep the move and not
    /// what the log says of it.
    pub(super) fn aside(&self, dir: &HomePath, name: &Name) -> Sysult<Vec<u8>> {
        Ok(with_place(self.unique(OLD)?, dir, name))
    }

    /// Gives a copy that is whole and durable the name under which it changes places with a file, which tells both: a power cut
    /// may keep the exchange and not what the log says of it. Answers the name.
    pub(super) fn make_ready(
        &self,
        (stage, temp): (&S::Fd, &[u8]),
        copy: &Version,
        old: &Target<S>,
    ) -> Sysult<Vec<u8>> {
        let marks = [READY, &mark(copy), b"-", &mark(&old.file.attr.version())].concat();
        let ready = with_place(marks, &old.path, &old.name);
        self.sys().rename(stage, temp, stage, &ready, Rename::Replace)?;
        Ok(ready)
    }

    /// The modification time that a directory had before a staging directory was made in it.
    pub(super) fn undisturbed(&self, dir: HomeId, now: Time) -> Time {
        let in_it = |s: &&Staging<S>| s.parent_id == dir && s.parent_times.1 == now;
        self.stagings.iter().find(in_it).map_or(now, |s| s.parent_times.0)
    }

    /// Removes the staging directory that lies in a directory, so that the latter can be empty.
    pub(super) fn leave_directory(&mut self, dir: HomeId) {
        if let Some(at) = self.stagings.iter().position(|s| s.parent_id == dir) {
            let staging = self.stagings.swap_remove(at);
            self.remove_staging(&staging);
        }
    }

    /// Removes all staging directories. One that is not empty stays, without its marker and so to be
    /// seen: what is in it could not be put back.
    pub(super) fn remove_stagings(&mut self) {
        for staging in std::mem::take(&mut self.stagings) {
            self.remove_staging(&staging);
        }
    }

    fn remove_staging(&self, staging: &Staging<S>) {
        let undisturbed = self.sys().stat(&staging.parent).is_ok_and(|s| s.mtime == staging.parent_times.1);
        self.sys().unlink(&staging.fd, MARKER, false).ok();
        let removed = self.sys().unlink(&staging.parent, &staging.name, true).is_ok();
        if removed && undisturbed {
            self.sys().set_times(&staging.parent, Stamp::Keep, Stamp::At(staging.parent_times.0)).ok();
        }
        self.home.watches.stamped(&self.home.attr_of(&staging.parent).ok());
    }

    /// Gives what was moved aside a name beside its old one, because that is taken by now.
    pub(super) fn rescue(&self, aside: (&S::Fd, &[u8]), dir: &S::Fd, name: &[u8]) -> Act<()> {
        let mut saved = name[..name.len().min(200)].to_vec();
        saved.extend_from_slice(b".trellis-saved-");
        let saved = self.unique(&saved)?;
        match self.move_free(aside, (dir, &saved)) {
            Ok(()) => Ok(()),
            Err(_) => Err(ErrorKind::Io.into()),
        }
    }

    /// Moves a name to one that is free, also where the kernel or file system cannot promise that in one step.
    pub(super) fn move_free(&self, from: (&S::Fd, &[u8]), to: (&S::Fd, &[u8])) -> Sysult<()> {
        match self.sys().rename(from.0, from.1, to.0, to.1, Rename::NoReplace) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            done => return done,
        }
        let kind = self.sys().stat(&self.sys().open_name(from.0, from.1)?)?.kind;
        if kind != FileType::Dir {
            match self.sys().link(from.0, from.1, to.0, to.1) {
                Ok(()) => return self.sys().unlink(from.0, from.1, false),
                Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {}
                // There may be no room for a second name where there is for one that is given up.
                Err(Errno::NOSPC | Errno::DQUOT) => {}
                Err(e) => return Err(e),
            }
        }
        // What remains has a gap: a directory can replace an empty directory only, and a file system
        // without links is one that is not shared by programs that race. Where the disk is full, what was taken out of
        // its place would else stay away from it: it would seem gone, and come back when there is room.
        match self.sys().open_name(to.0, to.1) {
            Err(Errno::NOENT) => self.sys().rename(from.0, from.1, to.0, to.1, Rename::Replace),
            Err(e) => Err(e),
            Ok(_) => Err(Errno::EXIST),
        }
    }
}
