//! Locks on files. They live as long as the process; see [`crate::locks`].

use crate::Vfs;
use crate::locks::{Lock, LockFamily, LockOwner, LockRange};
use crate::types::Oid;
use home::Result;

impl Vfs {
    /// Takes a lock, or fails at once: [`home::ErrorKind::Locked`] where another owner's is in the way,
    /// [`home::ErrorKind::NoLocks`] where there are too many. An owner that has locked a part of the range already gets
    /// the new kind there.
    pub fn lock(&self, oid: Oid, lock: Lock) -> Result<()> {
        self.locks.lock(oid, lock)
    }

    /// Takes a lock as soon as nothing is in its way. [`home::ErrorKind::Deadlock`] where a POSIX owner would wait for
    /// itself; [`home::ErrorKind::Stale`] where the session is released meanwhile. Whoever drops the future gives up its
    /// place in the queue.
    pub async fn lock_wait(&self, oid: Oid, lock: Lock) -> Result<()> {
        self.locks.lock_wait(oid, lock).await
    }

    /// A lock that is in the way of another one.
    pub fn test_lock(&self, oid: Oid, lock: Lock) -> Result<Option<Lock>> {
        self.locks.test(oid, lock)
    }

    /// Gives up what an owner has of a range.
    pub fn unlock(&self, oid: Oid, who: LockOwner, family: LockFamily, range: LockRange) -> Result<()> {
        self.locks.unlock(oid, who, family, range)
    }

    /// Gives up all that an owner has on a file, in both families; it goes on waiting for what it
    /// waits for.
    pub fn release_owner(&self, oid: Oid, who: LockOwner) {
        self.locks.release_owner(oid, who);
    }

    /// Gives up all locks of a session.
    pub fn release_holder(&self, holder: u64) {
        self.locks.release_holder(holder);
    }
}
