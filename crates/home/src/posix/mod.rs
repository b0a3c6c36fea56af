//! The home on a POSIX file system, without a runtime: the agent binary is this, served on a pipe.
//!
//! # Layout
//! - [`sys`], [`sys_real`]: what is asked of the machine.
//! - [`resolve`]: from a path to a descriptor, never out of the root.
//! - [`ident`]: which object is it, what are its attributes.
//! - [`lent`]: reading what the mode forbids its owner to open.
//! - [`listing`]: directories by pages.
//! - [`xattrs`]: extended attributes.
//! - [`account`]: who are we there; the token.
//! - [`memo`]: staged bytes, outcomes of recent operations, the state we left files in.
//! - [`spool`]: staged bytes on disk.
//! - [`claim`]: who may change the home for a volume, and what became of its operations.
//! - [`apply`]: changes, in place or by exchange, and their batches.
//! - [`step`]: what must not be left out.
//! - [`watch`]: what changes in directories that were listed, but by our own operations.
//! - [`adapter`]: the same as a [`Home`](crate::Home), for the gateway itself.

pub mod account;
#[cfg(feature = "client")]
pub mod adapter;
pub mod apply;
mod claim;
pub mod ident;
mod lent;
pub mod listing;
pub mod memo;
pub mod resolve;
mod spool;
pub mod step;
pub mod sys;
pub mod sys_real;
#[cfg(test)]
mod tests;
pub mod watch;
mod xattrs;

#[cfg(feature = "client")]
pub use adapter::PosixHome;
pub use sys_real::{Lacks, Linux};

use crate::attr::{Attr, StatFs};
use crate::error::{Error, ErrorKind, Result};
use crate::{
    Changed, Chunk, Claimed, Copied, Entered, Hello, Kind, Loc, Name, OpId, Outcome, Page, Placed, Seen,
    Term, buffers, limits,
};
use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sys::{Mode, Sys, Sysult};

/// One tree of a POSIX file system and the account that we have there.
///
/// All methods block. They may run concurrently; `apply` runs one batch at a time.
pub struct Posix<S: Sys = Linux> {
    sys: S,
    root: S::Fd,
    /// The absolute path of the root.
    root_path: Vec<u8>,
    account: sys::Account,
    /// The account's token as it was told.
    token: Mutex<Option<[u8; account::TOKEN]>>,
    /// Whether the kernel has openat2; learned from its first `ENOSYS`.
    walks_by_name: std::sync::atomic::AtomicBool,
    file_systems: Mutex<ident::FileSystems>,
    listings: Mutex<listing::Listings>,
    lent: Mutex<lent::Lent<S>>,
    staged: Mutex<memo::StagedStore>,
    spools: Mutex<spool::Spools<S>>,
    memo: Mutex<memo::Memo>,
    watches: watch::Watches<S>,
    /// Held while a batch runs.
    applying: Mutex<()>,
    /// Volumes that this process writes for.
    claims: Mutex<std::collections::HashMap<claim::Volume, claim::Claim<S>>>,
    /// Volumes of the same that have no fence because there was no room for one.
    unfenced: Mutex<std::collections::HashSet<claim::Volume>>,
    /// File systems that failed to make something durable, and how.
    unsynced: Mutex<std::collections::HashMap<u64, Errno>>,
    /// Nobody waits for outcomes any more.
    leaving: std::sync::atomic::AtomicBool,
    /// Steps that a test leaves out.
    #[cfg(feature = "testing")]
    left_out: Vec<step::Step>,
}

/// A lock whose holder panicked guards a cache that is still sound: all of them are updated in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_of_space(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

/// The error of a failed system call.
fn failed(errno: Errno, doing: impl std::fmt::Display) -> Error {
    Error::from_errno(errno.raw_os_error(), &doing.to_string())
}

impl Posix<Linux> {
    /// The tree below `root`, an absolute path, on this machine.
    pub fn open(root: &[u8]) -> Result<Posix<Linux>> {
        Posix::over(Linux::default(), root)
    }
}

impl<S: Sys> Posix<S> {
    /// The tree below `root`, an absolute path, on the machine `sys`.
    pub fn over(sys: S, root: &[u8]) -> Result<Posix<S>> {
        let fd = sys.open_root(root).map_err(|e| failed(e, format_args!("open {}", root.escape_ascii())))?;
        let account = sys.account();
        Ok(Posix {
            sys,
            root: fd,
            root_path: root.to_vec(),
            account,
            walks_by_name: Default::default(),
            file_systems: Default::default(),
            token: Default::default(),
            listings: Default::default(),
            lent: Default::default(),
            staged: Default::default(),
            spools: Default::default(),
            memo: Default::default(),
            watches: watch::Watches::new(),
            applying: Default::default(),
            claims: Default::default(),
            unfenced: Default::default(),
            unsynced: Default::default(),
            leaving: Default::default(),
            #[cfg(feature = "testing")]
            left_out: Vec::new(),
        })
    }

    /// The same with another home directory of the account, an absolute path without symbolic links.
    pub fn with_home_dir(mut self, path: &[u8]) -> Posix<S> {
        self.account.home_dir = path.to_vec();
        self.token = Default::default();
        self
    }

    /// Monotonic time since an arbitrary start.
    pub fn instant(&self) -> std::time::Duration {
        self.sys.instant()
    }

    /// Notes how a sync on a file system went. The kernel tells a failure once, calls the next sync a success, and shows
    /// meanwhile what the disk does not have (fsync(2)).
    fn note_sync(&self, fs: u64, synced: Sysult<()>) -> Sysult<()> {
        synced.inspect_err(|e| {
            let mut unsynced = lock(&self.unsynced);
            let first = unsynced.entry(fs).or_insert(*e);
            if is_of_space(*first) {
                *first = *e;
            }
        })
    }

    /// Whether a sync on a file system has failed, so that what is there tells nothing of what is durable.
    fn is_unsynced(&self, fs: u64) -> bool {
        lock(&self.unsynced).contains_key(&fs)
    }

    /// Whether it has for another reason than want of space, which passes.
    fn is_broken(&self, fs: u64) -> bool {
        lock(&self.unsynced).get(&fs).is_some_and(|e| !is_of_space(*e))
    }

    /// Makes a directory's names durable, where that can be asked for.
    fn sync_dir(&self, dir: &S::Fd) -> Sysult<()> {
        let synced = match self.sys.reopen(dir, Mode::Read) {
            Ok(fd) => self.sys.sync(&fd),
            // A directory that may be written but not read cannot be synced.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        };
        // Some file systems sync no directories.
        synced.or_else(|e| if e == Errno::INVAL { Ok(()) } else { Err(e) })
    }

    /// Who we are there; makes the token if it is missing.
    pub fn hello(&self) -> Result<Hello> {
        account::hello(self)
    }

    /// Attributes of one object; a symbolic link is not followed.
    pub fn stat(&self, at: &Loc) -> Result<Seen> {
        let applied = self.applied();
        let found = self.find(at)?;
        match at.path.split().is_some_and(|(_, name)| spool::has_name(name.as_bytes())) && self.is_own(&found)
        {
            true => Err(ErrorKind::NotFound.into()),
            false => Ok(Seen { applied, attr: found.attr }),
        }
    }

    fn is_own(&self, found: &resolve::Found<S>) -> bool {
        found.attr.kind == Kind::File && found.attr.uid == self.account.uid
    }

    /// At most `max` entries that follow the name `after`, in the order of the names' bytes.
    pub fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        listing::list(self, dir, after, max)
    }

    /// The first page of a directory, and whether it is watched since before the page was taken: then [`Posix::changes`]
    /// tells of it under the number `mark`, or without one under its identity.
    pub fn watch(&self, dir: &Loc, max: u32, mark: Option<u64>) -> Result<(Page, bool)> {
        watch::list(self, dir, max, mark)
    }

    /// Waits for changes in watched directories, but by our own operations; for one thread. `None`: some were missed, and
    /// nothing is watched any more. Fails where that is so for good.
    pub fn changes(&self) -> Result<watch::News> {
        watch::changes(self)
    }

    /// The watches, for another process, with all that belongs to them. From now on this one tells nothing any more, and
    /// watches nothing. `None` where nothing is watched.
    pub fn give_watches(&self) -> Option<(OwnedFd, watch::Kept)> {
        watch::give(self)
    }

    /// Whether nothing goes untold of what is watched, or will be.
    pub fn tells(&self) -> bool {
        self.watches.tells()
    }

    /// Goes on with the watches of another process on this machine. Answers what that has told after the first `heard`
    /// changes, or `None` if that is not known: then nothing is watched.
    pub fn take_watches(&self, watches: OwnedFd, kept: watch::Kept, heard: u64) -> Option<Vec<Changed>> {
        watch::take(self, watches, kept, heard)
    }

    /// At most `len` bytes at offset `at`; short only at the end of the file.
    pub fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let found = self.find(file)?;
        expect_kind(&found.attr, Kind::File)?;
        let doing = |e| failed(e, format_args!("read {}", file.path));
        let fd = lent::open(self, &found).map_err(doing)?;
        let most = len.min(limits::READ_MAX) as usize;
        let known = usize::try_from(found.attr.size.saturating_sub(at)).unwrap_or(most).min(most);
        let fill = |room: usize| {
            buffers::filled_from(room, |buf, have| self.sys.read(&fd, at + have as u64, buf)).map_err(doing)
        };
        // One byte more than is known shows whether the file has grown since: short has to mean the end.
        let room = (known + 1).min(most);
        let mut data = fill(room)?;
        if data.len() == room && room < most {
            data = fill(most)?;
        }
        let attr = self.attr_of(&fd)?;
        Ok(Chunk { attr, data })
    }

    /// Where a symbolic link points.
    pub fn readlink(&self, at: &Loc) -> Result<Bytes> {
        let found = self.find(at)?;
        expect_kind(&found.attr, Kind::Symlink)?;
        let target =
            self.sys.readlink(&found.fd).map_err(|e| failed(e, format_args!("readlink {}", at.path)))?;
        Ok(Bytes::from(target))
    }

    /// Space of the file system that holds the object; what is free for the account is no more than quotas leave of those
    /// whom the object, or what is made in it, is charged to.
    pub fn statfs(&self, at: &Loc) -> Result<StatFs> {
        let found = self.find(at)?;
        let fs = self.sys.statfs(&found.fd).map_err(|e| failed(e, format_args!("statfs {}", at.path)))?;
        let (uid, gid) = charged(&self.sys.account(), &found.attr);
        let (space, left) = (fs.space, self.sys.quota(&found.fd, uid, gid));
        let (available, files_free) = (space.available.min(left.bytes), space.files_free.min(left.files));
        Ok(StatFs { available, files_free, ..space })
    }

    /// Holds bytes for the operation `op`; answers how many are held from the start without a gap.
    pub fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<u64> {
        match self.add_to_spool(op, at, &data) {
            Some(added) => added,
            None => lock(&self.staged).put(op, at, data),
        }
    }

    /// Holds bytes of a file for the operation `op` that is at one of these places, those of them that are what they are
    /// said to be; answers as [`Posix::stage`].
    pub fn copy(&self, op: OpId, places: &[Loc], parts: &[Copied]) -> Result<u64> {
        let mut held = 0;
        for part in parts {
            let is_it =
                |data: &Bytes| data.len() == part.len as usize && *blake3::hash(data).as_bytes() == part.hash;
            let read = |file| self.read(file, part.from, part.len).ok().map(|chunk| chunk.data);
            if let Some(data) = places.iter().filter_map(read).find(is_it) {
                held = self.stage(op, part.at, data)?;
            }
        }
        Ok(held)
    }

    /// Takes over the changes of a volume; see [`crate::Home::claim`].
    pub fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        let entered = claim::claim(self, (gateway, volume), lost, None, apply::recover::recover)?;
        Ok(entered.known)
    }

    /// The same in a term; see [`crate::Home::claim_in`].
    pub fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: &Term) -> Result<Entered> {
        claim::claim(self, (gateway, volume), lost, Some(term), apply::recover::recover)
    }

    /// Executes operations in order; durable when it returns. Stops after the first that is not done.
    pub fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        let done = apply::apply(self, ops);
        lent::close_removed(self);
        done
    }

    /// No operation begins from now on, not even one of a batch that runs.
    pub fn leave(&self) {
        self.leaving.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// The number of the last operation executed for the volume that is served.
    fn applied(&self) -> u64 {
        lock(&self.memo).applied()
    }
}

/// The user and the group whose quotas count for what is written to a file, or made in a directory.
fn charged(account: &sys::Account, attr: &Attr) -> (u32, u32) {
    match attr.kind {
        Kind::Dir if attr.mode & 0o2000 == 0 => (account.uid, account.gid),
        Kind::Dir => (account.uid, attr.gid),
        _ => (attr.uid, attr.gid),
    }
}

/// Refuses an object of another type with the error that a local program would get.
fn expect_kind(attr: &Attr, kind: Kind) -> Result<()> {
    match (attr.kind, kind) {
        (a, b) if a == b => Ok(()),
        (Kind::Dir, _) => Err(ErrorKind::IsDir.into()),
        (_, Kind::Dir) => Err(ErrorKind::NotDir.into()),
        _ => Err(ErrorKind::Invalid.into()),
    }
}
