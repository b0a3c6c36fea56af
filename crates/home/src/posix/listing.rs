//! Directories by pages, in the order of the names' bytes.
//!
//! The kernel lists in an order of its own, so that each page needs all names. Those of large directories
//! are kept until the directory changes; else a listing of n pages would read the directory n times.

use super::apply::staging;
use super::sys::{Mode, Sys};
use super::{Posix, failed, lock, spool};
use crate::attr::{HomeId, Kind, Time};
use crate::error::{ErrorKind, Result};
use crate::{Entry, Loc, Name, Page, limits};
use bytes::Bytes;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;

/// Sorted names of a directory and the times they were read under.
struct Listing {
    id: HomeId,
    mtime: Time,
    ctime: Time,
    names: Arc<Vec<Vec<u8>>>,
}

/// The last few large directories.
#[derive(Default)]
pub(super) struct Listings(VecDeque<Listing>);

#[cfg(test)]
impl Listings {
    /// How many directories are kept.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// At most `max` entries that follow the name `after`.
pub(super) fn list<S: Sys>(home: &Posix<S>, at: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
    let applied = home.applied();
    page(home, at, &home.find_dir(at)?, applied, after, max)
}

/// The same of a directory that was found; `applied`: what was executed before it was.
pub(super) fn page<S: Sys>(
    home: &Posix<S>,
    at: &Loc,
    dir: &super::resolve::Found<S>,
    applied: u64,
    after: Option<&Name>,
    max: u32,
) -> Result<Page> {
    let names = names(home, at, dir)?;
    let start = after.map_or(0, |after| names.partition_point(|n| n.as_slice() <= after.as_bytes()));
    let max = max.clamp(1, limits::PAGE_MAX) as usize;
    let mut entries = Vec::new();
    let mut rest = names[start..].iter();
    while entries.len() < max {
        let Some(name) = rest.next() else { break };
        let Ok(name) = Name::new(name) else { continue };
        entries.extend(entry(home, &dir.fd, name));
    }
    // The attributes are older than the names, so that a change meanwhile shows as a new version.
    Ok(Page { applied, dir: dir.attr, entries, more: rest.len() > 0 })
}

/// One entry; `None` if the name went away, or is not shown.
fn entry<S: Sys>(home: &Posix<S>, dir: &S::Fd, name: Name) -> Option<Entry> {
    if staging::is_ours(home, dir, name.as_bytes()) || spool::is_ours(home, dir, name.as_bytes()) {
        return None;
    }
    match home.sys.open_name(dir, name.as_bytes()) {
        Err(Errno::NOENT) => None,
        Err(_) => Some(Entry { name, attr: None, target: None, bare: false }),
        Ok(fd) => match home.attr_of(&fd) {
            Err(e) if e.kind == ErrorKind::NotFound => None,
            Err(_) => Some(Entry { name, attr: None, target: None, bare: false }),
            Ok(attr) => {
                let target = (attr.kind == Kind::Symlink).then(|| home.sys.readlink(&fd).ok()).flatten();
                let bare = home.is_bare(&fd, attr.kind);
                Some(Entry { name, attr: Some(attr), target: target.map(Bytes::from), bare })
            }
        },
    }
}

/// All names of a directory, sorted; from memory if it did not change.
fn names<S: Sys>(home: &Posix<S>, at: &Loc, dir: &super::resolve::Found<S>) -> Result<Arc<Vec<Vec<u8>>>> {
    let doing = |e| failed(e, format_args!("list {}", at.path));
    let attr = &dir.attr;
    let stat = home.sys.stat(&dir.fd).map_err(doing)?;
    if home.file_system_of(&dir.fd, &stat).map_err(doing)?.hidden {
        return Ok(Arc::default());
    }
    let known = |l: &&Listing| (l.id, l.mtime, l.ctime) == (attr.id, attr.mtime, attr.ctime);
    if let Some(kept) = lock(&home.listings).0.iter().find(known) {
        return Ok(kept.names.clone());
    }
    let fd = home.sys.reopen(&dir.fd, Mode::Read).map_err(doing)?;
    let mut names = home.sys.names(&fd, limits::NAMES_MAX).map_err(doing)?;
    names.sort_unstable();
    let names = Arc::new(names);
    // A change within the same tick of the clock would not show in the times.
    let settled = home.sys.now().as_nanos() - attr.ctime.as_nanos() > 1_000_000_000;
    let mut kept = lock(&home.listings);
    kept.0.retain(|l| l.id != attr.id);
    if settled && names.len() >= limits::LISTING_KEPT_MIN {
        kept.0.push_front(Listing {
            id: attr.id,
            mtime: attr.mtime,
            ctime: attr.ctime,
            names: names.clone(),
        });
        kept.0.truncate(limits::LISTINGS_KEPT);
    }
    Ok(names)
}
