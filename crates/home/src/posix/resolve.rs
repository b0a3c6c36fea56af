//! From a path to a descriptor. No step leaves the root, and none follows a symbolic link, whoever
//! replaces components meanwhile: openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, and where the
//! kernel lacks it a walk that opens one name after the other with `O_PATH | O_NOFOLLOW`.

use super::ident::Hidden;
use super::sys::{FileType, Sys, Sysult};
use super::{Posix, failed, lock};
use crate::attr::Attr;
use crate::error::{ErrorKind, Result};
use crate::{HomePath, Kind, Loc, Name, limits};
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;

/// An object that was found.
pub struct Found<S: Sys> {
    /// Opened as `O_PATH`.
    pub fd: S::Fd,
    /// Attributes taken through the descriptor.
    pub attr: Attr,
}

impl<S: Sys> Posix<S> {
    /// The object at a place. `Stale` if another one than asked for is there.
    pub(super) fn find(&self, at: &Loc) -> Result<Found<S>> {
        let fd = self.open_path(&at.path)?;
        let attr = self.attr_of(&fd)?;
        // An object that got another inode by our own exchange is still the same one.
        match at.id {
            Some(id) if id != attr.id && !lock(&self.memo).same_object(id, attr.id) => {
                Err(ErrorKind::Stale.into())
            }
            _ => Ok(Found { fd, attr }),
        }
    }

    /// The directory at a place, as `O_PATH`.
    pub(super) fn find_dir(&self, at: &Loc) -> Result<Found<S>> {
        let found = self.find(at)?;
        super::expect_kind(&found.attr, Kind::Dir)?;
        Ok(found)
    }

    /// The object under a name of a directory; `None` if there is none that we show.
    pub(super) fn find_in(&self, dir: &S::Fd, name: &Name) -> Result<Option<Found<S>>> {
        let fd = match self.sys.open_name(dir, name.as_bytes()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(|e| failed(e, format_args!("look up {name}")))?,
        };
        Ok(Some(Found { attr: self.attr_of(&fd)?, fd }))
    }

    /// Opens a path as `O_PATH`.
    pub(super) fn open_path(&self, path: &HomePath) -> Result<S::Fd> {
        let doing = |e| failed(e, path);
        if path.is_root() {
            return self.sys.open_name(&self.root, b".").map_err(doing);
        }
        let mut at: Option<S::Fd> = None;
        for part in chunks(path.as_bytes()) {
            let next = self.step(at.as_ref().unwrap_or(&self.root), part).map_err(doing)?;
            at = Some(next);
        }
        at.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// One relative path that the kernel takes as a whole.
    fn step(&self, dir: &S::Fd, part: &[u8]) -> Sysult<S::Fd> {
        if !self.walks_by_name.load(Relaxed) {
            match self.sys.open_path(dir, part) {
                Err(Errno::NOSYS | Errno::PERM) => self.walks_by_name.store(true, Relaxed),
                // A symbolic link on the way is what a local program would call "not a directory" here:
                // clients resolve links themselves and never send us a path through one.
                Err(Errno::LOOP) => return Err(Errno::NOTDIR),
                done => return done,
            }
        }
        let mut at: Option<S::Fd> = None;
        for name in part.split(|b| *b == b'/') {
            let dir = match &at {
                Some(fd) if self.sys.stat(fd)?.kind != FileType::Dir => return Err(Errno::NOTDIR),
                Some(fd) => fd,
                None => dir,
            };
            let next = self.sys.open_name(dir, name)?;
            at = Some(next);
        }
        at.ok_or(Errno::NOENT)
    }
}

/// Cuts a path at slashes into parts that are short enough for one system call.
fn chunks(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if rest.len() <= limits::KERNEL_PATH {
            return Some(std::mem::take(&mut rest));
        }
        let cut = rest[..limits::KERNEL_PATH].iter().rposition(|b| *b == b'/')?;
        let part = &rest[..cut];
        rest = &rest[cut + 1..];
        Some(part)
    })
}

impl<S: Sys> Posix<S> {
    /// Attributes through a descriptor. What is hidden does not exist.
    pub(super) fn attr_of(&self, fd: &S::Fd) -> Result<Attr> {
        match self.identify(fd) {
            Ok(attr) => Ok(attr),
            Err(Hidden::Errno(e)) => Err(failed(e, "stat")),
            Err(Hidden::NotShown) => Err(ErrorKind::NotFound.into()),
        }
    }
}
