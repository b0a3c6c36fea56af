//! Requests about locks. The engine's table keeps mounts, and with them other front-ends, apart.
//!
//! `fuser` does not tell a lock of flock(2) from one of fcntl(2) on the whole file (FUSE_LK_FLOCK), so that both are
//! taken as ranges, which exclude each other; NFS does the same (flock(2), "NFS details"). Nothing that holds a lock is
//! missed by that; only a program that locks one file in both ways stands in its own way.

use super::Call;
use super::call::{Answer, patient};
use fuser::{Errno, FileHandle, INodeNo, LockOwner};
use vfs::{Lock, LockFamily, LockKind, LockRange};

/// What the kernel calls the end of every file (`OFFSET_MAX`).
const END: u64 = i64::MAX as u64;

/// A lock in the words of the kernel (`struct fuse_lk_in`).
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// The open file.
    pub handle: FileHandle,
    /// Whose it is: a process or an open file.
    pub owner: LockOwner,
    /// First and last byte.
    pub range: (u64, u64),
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// The process.
    pub pid: u32,
}

impl Call {
    /// Names an owner of this session's locks to the engine.
    pub fn locker(&self, owner: LockOwner) -> vfs::LockOwner {
        vfs::LockOwner { holder: self.origin, owner: owner.0 }
    }

    fn lock_of(&self, asked: &Asked, kind: LockKind) -> Lock {
        let (who, range) = (self.locker(asked.owner), range(asked.range));
        Lock { who, pid: asked.pid, family: LockFamily::Posix, range, kind }
    }

    /// FUSE_GETLK: a lock that is in the way, as first byte, last byte, kind and process; `F_UNLCK` for none.
    pub async fn getlk(&self, node: INodeNo, asked: Asked) -> Answer<(u64, u64, i32, u32)> {
        let oid = self.oid(node)?;
        let lock = self.lock_of(&asked, kind(asked.kind)?.ok_or(Errno::EINVAL)?);
        let test = || std::future::ready(self.vfs.test_lock(oid, lock));
        Ok(match patient(test).await? {
            Some(other) => (other.range.start, other.range.last.min(END), number(other.kind), other.pid),
            None => (0, 0, libc::F_UNLCK, 0),
        })
    }

    /// FUSE_SETLK and FUSE_SETLKW (`wait`).
    pub async fn setlk(&self, node: INodeNo, asked: Asked, wait: bool) -> Answer<()> {
        let oid = self.oid(node)?;
        let Some(kind) = kind(asked.kind)? else {
            let (who, gone) = (self.locker(asked.owner), range(asked.range));
            return patient(|| std::future::ready(self.vfs.unlock(oid, who, LockFamily::Posix, gone))).await;
        };
        let lock = self.lock_of(&asked, kind);
        if let Some(open) = self.files.get(asked.handle) {
            open.locks(asked.owner.0);
        }
        match wait {
            true => patient(|| self.vfs.lock_wait(oid, lock)).await,
            false => patient(|| std::future::ready(self.vfs.lock(oid, lock))).await,
        }
    }
}

fn range((start, end): (u64, u64)) -> LockRange {
    LockRange { start, last: if end >= END { u64::MAX } else { end } }
}

/// `None`: unlocks.
fn kind(number: i32) -> Answer<Option<LockKind>> {
    match number {
        libc::F_RDLCK => Ok(Some(LockKind::Shared)),
        libc::F_WRLCK => Ok(Some(LockKind::Exclusive)),
        libc::F_UNLCK => Ok(None),
        _ => Err(Errno::EINVAL),
    }
}

fn number(kind: LockKind) -> i32 {
    match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    }
}
