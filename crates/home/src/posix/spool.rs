//! Staged bytes on the home's disk: what is too long for memory, or is to outlive the connection that brought it.
//!
//! A spool is a file `.trellis-spool-SEQ` in the folder of its volume in `~/.cache/trellis`, with the bytes that were staged under one name, from
//! the start without a gap; what comes ahead of its turn waits in memory. It need not be durable: who uses it compares its hash
//! before anything happens. It is locked by the process that adds to it, because it may become a user's file, which one that was left behind
//! must not write to. It ends with the operation that used it, when its gateway gives it up, or with a claim that comes before anybody goes on with it.

use super::sys::{FileType, Mode, Rename, Sys, Sysult};
use super::{Posix, claim, failed, is_of_space, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::limits;
use crate::op::{OpId, Payload, Piece, Spooled, Staged};
use bytes::Bytes;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How the names of spools begin.
const PREFIX: &[u8] = b".trellis-spool-";

/// Bytes that an operation writes.
pub(super) enum Data<F> {
    /// In memory.
    Held(Bytes),
    /// In a spool, open for reading alone, so that it does not look like somebody's writer.
    Spooled(Arc<F>, Staged),
}

impl<F> Clone for Data<F> {
    fn clone(&self) -> Self {
        match self {
            Data::Held(bytes) => Data::Held(bytes.clone()),
            Data::Spooled(file, range) => Data::Spooled(file.clone(), *range),
        }
    }
}

impl<F> Data<F> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Data::Held(bytes) => bytes.len() as u64,
            Data::Spooled(_, range) => range.len,
        }
    }
}

impl<F: Send + Sync> Data<F> {
    /// The bytes from `from` on, `len` of them.
    pub fn part<S: Sys<Fd = F>>(&self, sys: &S, from: u64, len: usize) -> Sysult<Bytes> {
        let (file, range) = match self {
            Data::Held(bytes) => return Ok(bytes.slice(from as usize..from as usize + len)),
            Data::Spooled(file, range) => (file, range),
        };
        let (mut bytes, mut have) = (vec![0; len], 0);
        while have < len {
            match sys.read(file, range.at + from + have as u64, &mut bytes[have..])? {
                0 => return Err(Errno::IO),
                n => have += n,
            }
        }
        Ok(bytes.into())
    }

    /// The same in parts that fit in memory, with where each begins.
    pub fn parts<S: Sys<Fd = F>>(&self, sys: &S) -> impl Iterator<Item = Sysult<(u64, Bytes)>> {
        let step = match self {
            Data::Held(bytes) => bytes.len().max(1),
            Data::Spooled(..) => limits::COPY_BUFFER,
        };
        let starts = (0..self.len()).step_by(step);
        starts
            .map(move |at| self.part(sys, at, step.min((self.len() - at) as usize)).map(|bytes| (at, bytes)))
    }
}

/// The spools that this process adds to. Who applies or claims does not keep them locked while it asks its machine for
/// something: what is staged goes on meanwhile.
pub(super) struct Spools<S: Sys>(HashMap<OpId, Spool<S>>);

impl<S: Sys> Default for Spools<S> {
    fn default() -> Self {
        Spools(HashMap::new())
    }
}

impl<S: Sys> Spools<S> {
    fn remove(&mut self, home: &Posix<S>, op: OpId) {
        if let Some(spool) = self.0.remove(&op) {
            home.sys.unlink(&spool.dir, &spool.name, false).ok();
        }
    }
}

struct Spool<S: Sys> {
    /// When it was opened; monotonic.
    since: Duration,
    dir: Arc<S::Fd>,
    name: Vec<u8>,
    fd: Arc<S::Fd>,
    len: u64,
    /// Of all that is in it, where this process has written that.
    hasher: Option<blake3::Hasher>,
    /// What follows behind a gap.
    ahead: BTreeMap<u64, Bytes>,
    /// Why no more could be added.
    failed: Option<Errno>,
}

/// A file that was a spool.
pub(super) struct Taken {
    /// Where its bytes were staged from.
    pub op: OpId,
    /// How many there are.
    pub len: u64,
}

impl<S: Sys> Spool<S> {
    fn open(home: &Posix<S>, op: OpId) -> Sysult<Spool<S>> {
        let dir = claim::volume_dir(home, (op.gateway, op.volume))?;
        let (name, since) = (name_of(op), home.sys.instant());
        let (fd, len) = match Spool::found(home, &dir, &name)? {
            Some(found) => found,
            None => {
                let fd = home.sys.create(&dir, &name, 0o600)?;
                home.sys.try_lock(&fd)?;
                (fd, 0)
            }
        };
        Ok(Spool {
            since,
            dir: Arc::new(dir),
            name,
            fd: Arc::new(fd),
            len,
            hasher: (len == 0).then(blake3::Hasher::new),
            ahead: BTreeMap::new(),
            failed: None,
        })
    }

    /// What an agent before this one has staged, and how much that is. What another one may still add to is given up.
    fn found(home: &Posix<S>, dir: &S::Fd, name: &[u8]) -> Sysult<Option<(S::Fd, u64)>> {
        let Ok(found) = home.sys.open_name(dir, name) else { return Ok(None) };
        let stat = home.sys.stat(&found)?;
        let ours = stat.kind == FileType::File && stat.uid == home.account.uid && stat.nlink == 1;
        let opened = home.sys.reopen(&found, Mode::ReadWrite);
        match opened.ok().filter(|fd| ours && home.sys.try_lock(fd).is_ok()) {
            Some(fd) => {
                let len = home.sys.stat(&fd)?.size;
                Ok(Some((fd, len)))
            }
            // Who has it may go on, with a file that nobody else uses.
            None => home.sys.unlink(dir, name, false).map(|()| None),
        }
    }

    /// Adds bytes at a position; what is there already is not looked at, since a name is that of the same bytes for ever.
    fn put(&mut self, sys: &S, at: u64, data: Bytes) -> Sysult<u64> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        self.ahead.insert(at, data);
        while let Some(next) = self.ahead.first_entry().filter(|next| *next.key() <= self.len) {
            let (at, data) = next.remove_entry();
            let known = (self.len - at).min(data.len() as u64) as usize;
            let added = self.add(sys, &data[known..]);
            if let Err(e) = added {
                // What nobody can go on with does not keep the disk full.
                self.failed = Some(e);
                self.ahead.clear();
                sys.truncate(&self.fd, 0).ok();
                self.len = 0;
                return Err(e);
            }
        }
        if self.ahead.values().map(Bytes::len).sum::<usize>() > limits::STAGED_BYTES {
            self.ahead.pop_last();
        }
        Ok(self.len)
    }

    fn add(&mut self, sys: &S, mut data: &[u8]) -> Sysult<()> {
        let before = self.len;
        while !data.is_empty() {
            match sys.write(&self.fd, self.len, data)? {
                0 => return Err(Errno::NOSPC),
                n => {
                    if let Some(hasher) = &mut self.hasher {
                        hasher.update(&data[..n]);
                    }
                    self.len += n as u64;
                    data = &data[n..];
                }
            }
        }
        // Else all of it would be written when it is synced.
        if before / limits::SPOOL_FLUSH != self.len / limits::SPOOL_FLUSH {
            sys.write_back(&self.fd, false);
        }
        Ok(())
    }
}

impl<S: Sys> Posix<S> {
    /// Holds on disk what is staged as `op` from now on; see [`crate::Home::spool`].
    pub fn spool(&self, op: OpId) -> Result<u64> {
        let mut spools = lock(&self.spools);
        let doing = |e| failed(e, "stage on disk");
        if let Some(failed) = spools.0.get(&op).and_then(|spool| spool.failed) {
            // Told once: who asks again begins anew.
            spools.remove(self, op);
            return Err(doing(failed));
        }
        if let Some(spool) = spools.0.get(&op) {
            return Ok(spool.len);
        }
        let spool = Spool::open(self, op).map_err(|e| match is_of_space(e) {
            true => doing(e),
            false => Error::new(
                ErrorKind::Unsupported,
                format!("nothing can be staged on the home's disk: {}", doing(e)),
            ),
        })?;
        let len = spool.len;
        let oldest = spools.0.iter().min_by_key(|(op, spool)| (spool.since, op.seq)).map(|(op, _)| *op);
        if let Some(oldest) = oldest.filter(|_| spools.0.len() >= limits::SPOOLS) {
            // Whoever misses it stages it again.
            spools.remove(self, oldest);
        }
        spools.0.insert(op, spool);
        Ok(len)
    }

    /// Adds to a spool, if there is one of this name.
    pub(super) fn add_to_spool(&self, op: OpId, at: u64, data: &Bytes) -> Option<Result<u64>> {
        let mut spools = lock(&self.spools);
        let spool = spools.0.get_mut(&op)?;
        Some(spool.put(&self.sys, at, data.clone()).map_err(|e| failed(e, "stage on disk")))
    }

    /// The bytes of a range that lies in a spool; `None` where it does not.
    pub(super) fn spooled(&self, range: &Staged) -> Option<Data<S::Fd>> {
        let end = range.at.checked_add(range.len)?;
        let of = |spool: &Spool<S>| (end <= spool.len).then(|| spool.fd.clone());
        let fd = lock(&self.spools).0.get(&range.op).and_then(of)?;
        let file = self.sys.reopen(&fd, Mode::Read).ok()?;
        Some(Data::Spooled(Arc::new(file), *range))
    }

    /// Whether these bytes lie in a spool as they were sent. One that has others is given up.
    pub(super) fn is_whole(&self, Spooled { range, hash }: &Spooled) -> bool {
        let all = |spool: &Spool<S>| (range.at == 0 && range.len == spool.len).then(|| spool.hasher.clone());
        let known = lock(&self.spools).0.get(&range.op).and_then(all).flatten();
        if known.is_some_and(|hasher| *hasher.finalize().as_bytes() == *hash) {
            return true;
        }
        let Some(data) = self.spooled(range) else { return false };
        let mut hasher = blake3::Hasher::new();
        let read = data.parts(&self.sys).try_for_each(|part| {
            part.map(|(_, bytes)| {
                hasher.update(&bytes);
            })
        });
        let whole = read.is_ok() && *hasher.finalize().as_bytes() == *hash;
        if !whole {
            self.unspool(range.op);
        }
        whole
    }

    /// Moves a spool to another place of its file system, as the beginning of a file, and opens that: it is none any more.
    /// `None` where it cannot be, and where another agent, which this one was left behind by, has one of that name by now: it
    /// goes on with that.
    pub(super) fn take_spool(&self, op: OpId, dir: &S::Fd, name: &[u8]) -> Option<(Taken, S::Fd)> {
        let at = |spool: &Spool<S>| (spool.dir.clone(), spool.name.clone(), spool.fd.clone());
        let (from, old, fd) = lock(&self.spools).0.get(&op).map(at)?;
        self.sys.rename(&from, &old, dir, name, Rename::Replace).ok()?;
        let Some(moved) = self.open_spool((dir, name), &fd) else {
            let back = self.sys.rename(dir, name, &from, &old, Rename::Replace);
            back.or_else(|_| self.sys.unlink(dir, name, false)).ok();
            return None;
        };
        let taken = lock(&self.spools).0.remove(&op);
        taken.map(|spool| (Taken { op, len: spool.len }, moved))
    }

    /// Removes a spool, if there is one of this name; see [`crate::Home::unspool`]. Answers whether there was.
    pub fn unspool(&self, op: OpId) -> bool {
        let forgotten = lock(&self.spools).0.remove(&op);
        let is_there = |spool: &Spool<S>| self.open_spool((&spool.dir, &spool.name), &spool.fd).is_some();
        forgotten
            .filter(is_there)
            .is_some_and(|spool| self.sys.unlink(&spool.dir, &spool.name, false).is_ok())
    }

    /// What has a name, if that is a spool of this process.
    fn open_spool(&self, (dir, name): (&S::Fd, &[u8]), spool: &S::Fd) -> Option<S::Fd> {
        let id = |fd: &S::Fd| self.sys.stat(fd).map(|stat| (stat.dev, stat.ino));
        let there = self.sys.open_name(dir, name).ok()?;
        id(&there).is_ok_and(|there| id(spool) == Ok(there)).then_some(there)
    }

    /// Removes the spools of a volume, in its folder, that this process does not add to.
    pub(super) fn clear_spools(&self, volume: claim::Volume, dir: &S::Fd) -> Sysult<()> {
        for name in names(self, dir)? {
            let is_own =
                |(op, spool): (&OpId, &Spool<S>)| (op.gateway, op.volume) == volume && spool.name == name;
            let own = lock(&self.spools).0.iter().any(is_own);
            if !own {
                self.sys.unlink(dir, &name, false)?;
            }
        }
        Ok(())
    }
}

/// Whether a name of a directory is a spool, which is not shown: it may become a file of another name, and after a power cut be a
/// spool again.
pub(super) fn is_ours<S: Sys>(home: &Posix<S>, dir: &S::Fd, name: &[u8]) -> bool {
    has_name(name)
        && home
            .sys
            .open_name(dir, name)
            .and_then(|fd| home.sys.stat(&fd))
            .is_ok_and(|stat| stat.kind == FileType::File && stat.uid == home.account.uid)
}

/// Whether a name is of the form of a spool's.
pub(super) fn has_name(name: &[u8]) -> bool {
    let has_form = |seq: &[u8]| seq.len() == 16 && seq.iter().all(u8::is_ascii_hexdigit);
    name.strip_prefix(PREFIX).is_some_and(has_form)
}

/// Removes spools of volumes that nobody has claimed for so long that nobody will go on with them.
pub(super) fn sweep<S: Sys>(home: &Posix<S>, volumes: &S::Fd) -> Sysult<()> {
    for volume in home.sys.names(&home.sys.reopen(volumes, Mode::Read)?, limits::NAMES_MAX)? {
        let dir = home.sys.open_name(volumes, &volume)?;
        for name in names(home, &dir).unwrap_or_default() {
            let stat = home.sys.stat(&home.sys.open_name(&dir, &name)?)?;
            if home.sys.now().sec - stat.mtime.sec >= limits::STAGING_SECONDS {
                home.sys.unlink(&dir, &name, false)?;
            }
        }
    }
    Ok(())
}

fn names<S: Sys>(home: &Posix<S>, dir: &S::Fd) -> Sysult<Vec<Vec<u8>>> {
    let all = home.sys.names(&home.sys.reopen(dir, Mode::Read)?, limits::NAMES_MAX)?;
    Ok(all.into_iter().filter(|name| name.starts_with(PREFIX)).collect())
}

fn name_of(op: OpId) -> Vec<u8> {
    [PREFIX, format!("{:016x}", op.seq).as_bytes()].concat()
}

/// The spool that can become the content which the pieces make of nothing: each of its parts lies where it will be, or further
/// behind. So nothing that is written in this order goes over a part that is still to be moved.
pub(super) fn becomes<F>(pieces: &[Piece<Data<F>>]) -> Option<OpId> {
    let mut spool = None;
    let mut end = 0;
    for piece in pieces {
        match piece {
            Piece::Truncate(size) if *size == 0 && end == 0 => {}
            Piece::Data(at, data) if *at == end => {
                end += data.len();
                let Data::Spooled(_, range) = data else { continue };
                if range.at < *at || *spool.get_or_insert(range.op) != range.op {
                    return None;
                }
            }
            _ => return None,
        }
    }
    spool
}

/// The spools that operations use.
pub(super) fn used(pieces: &[Piece<Payload>]) -> impl Iterator<Item = &Spooled> {
    pieces.iter().filter_map(|piece| match piece {
        Piece::Data(_, Payload::Spooled(spooled)) => Some(spooled),
        _ => None,
    })
}
