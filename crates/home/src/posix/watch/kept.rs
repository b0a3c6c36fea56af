//! Watches that pass from one process to another, with what the first one has told: who has lost the connection to that one
//! hears from the other what was told in vain, and what happens later.
//!
//! What was not read yet is in the kernel, which passes on with the descriptor.

use super::{Changed, Dir, Mark, Posix, Sys, Touched, lock, look_at_mounts, tell};
use crate::attr::Attr;
use crate::limits::agent::{TOLD_KEPT, WATCHES_MAX};
use crate::{HomePath, Name};
use bytes::Bytes;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;

oncrpc::xdr! {
    /// All that belongs to the watches of a process but the kernel's own part.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Kept {
        /// The directory that is served.
        pub root: Bytes,
        /// Where what was mounted, as of the last look.
        pub mounts: Vec<Mounted>,
        /// The watched directories.
        pub dirs: Vec<KeptDir>,
        /// How many changes were told.
        pub told: u64,
        /// The last ones of these, at most [`TOLD_KEPT`].
        pub last: Vec<Changed>,
    }

    /// Something mounted.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub struct Mounted {
        /// Its device.
        pub dev: u64,
        /// Where.
        pub point: Bytes,
        /// Nothing can be changed there.
        pub read_only: bool,
    }

    /// A watched directory, as in the watches of a home.
    #[derive(Debug, Clone, PartialEq)]
    pub struct KeptDir {
        /// The kernel's number.
        pub watch: u32,
        /// Under which it is told.
        pub mark: Mark,
        /// Where it lies.
        pub path: HomePath,
        /// As the client knows it.
        pub attr: Attr,
        /// The second in which it was listed.
        pub listed: i64,
        /// Whether it was told since that it has changed itself.
        pub itself: bool,
        /// The names that were.
        pub names: Vec<KeptName>,
    }

    /// A name that was told.
    #[derive(Debug, Clone, PartialEq)]
    pub struct KeptName {
        /// The name.
        pub name: Name,
        /// Whether it was told that the name itself came or went.
        pub entry: bool,
    }
}

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// How many changes.
    count: u64,
    last: VecDeque<Changed>,
}

impl Told {
    pub fn note(&mut self, changed: &[Changed]) {
        self.count += changed.len() as u64;
        self.last.extend(changed.iter().cloned());
        let more = self.last.len().saturating_sub(TOLD_KEPT);
        self.last.drain(..more);
    }

    /// Something went untold: who has not heard of that knows nothing any more.
    pub fn lose(&mut self) {
        self.count += 1;
        self.last.clear();
    }

    /// What was told after so many changes, if that is known.
    fn since(&self, heard: u64) -> Option<Vec<Changed>> {
        let missed = usize::try_from(self.count.checked_sub(heard)?).ok()?;
        let known = self.last.len().checked_sub(missed)?;
        Some(self.last.range(known..).cloned().collect())
    }
}

/// Passes the watches on: this process tells nothing any more. Nothing, too, where there are none.
pub fn give<S: Sys>(home: &Posix<S>) -> Option<(OwnedFd, Kept)> {
    let watches = &home.watches;
    let kernel = watches.kernel()?;
    let _nothing_is_half_told = lock(&watches.telling);
    let waiting = {
        let state = &mut *lock(&watches.state);
        if state.over {
            return None;
        }
        std::mem::take(&mut state.waiting)
    };
    // What they wait for is not known there.
    tell(home, kernel, waiting.into_iter().collect());
    let fd = home.sys.lend(kernel).ok()?;
    let state = &mut *lock(&watches.state);
    state.over = true;
    let dirs = std::mem::take(&mut state.dirs).into_iter().map(|(watch, dir)| pack(watch, dir)).collect();
    let kept = Kept {
        root: home.root_path.clone().into(),
        mounts: std::mem::take(&mut state.mounts).into_iter().collect(),
        dirs,
        told: state.told.count,
        last: std::mem::take(&mut state.told.last).into(),
    };
    Some((fd, kept))
}

/// Goes on with the watches of another process. Answers what that had told after so many changes. `None`, and nothing is watched
/// that was not before, if it is not known, or the watches are of another directory, or this process has some already.
pub fn take<S: Sys>(home: &Posix<S>, fd: OwnedFd, kept: Kept, heard: u64) -> Option<Vec<Changed>> {
    let watches = &home.watches;
    let told = Told { count: kept.told, last: kept.last.into() };
    let missed = told.since(heard)?;
    if kept.root != home.root_path || kept.dirs.len() > WATCHES_MAX {
        return None;
    }
    let fd = home.sys.adopt(fd).ok()?;
    {
        let state = &mut *lock(&watches.state);
        watches.kernel.set(Some(fd)).ok()?;
        state.mounts = kept.mounts.into_iter().collect();
        state.dirs = kept.dirs.into_iter().map(unpack).collect();
        state.told = told;
    }
    look_at_mounts(home);
    Some(missed)
}

fn pack(watch: i32, dir: Dir) -> KeptDir {
    let names = dir.told.names.into_iter().map(|(name, entry)| KeptName { name, entry });
    KeptDir {
        watch: watch.cast_unsigned(),
        mark: dir.mark,
        path: dir.path,
        attr: dir.attr,
        listed: dir.listed,
        itself: dir.told.itself,
        names: names.collect(),
    }
}

fn unpack(kept: KeptDir) -> (i32, Dir) {
    let names = kept.names.into_iter().map(|told| (told.name, told.entry)).collect();
    let told = Touched { ended: false, itself: kept.itself, names };
    let dir = Dir { mark: kept.mark, path: kept.path, attr: kept.attr, listed: kept.listed, told };
    (kept.watch.cast_signed(), dir)
}
