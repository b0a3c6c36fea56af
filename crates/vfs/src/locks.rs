//! Advisory locks on files: one table for all front-ends, in memory. The kernel of a client, or a lock manager, asks;
//! reads and writes never look here, and homes know nothing of it.
//!
//! There are two independent families. Locks of POSIX (fcntl(2), RFC 1813's companion NLM, NFSv4) are ranges: an owner
//! replaces, splits and joins its own. Locks of flock(2) are on the whole file, one for each open file.
//!
//! Who waits stands in a queue: a request waits for conflicting locks, and for conflicting requests before it,
//! unless waiting for its turn alone would be a deadlock. It takes its lock in the same step in which its future is
//! ready, so that a future that is dropped never leaves a lock behind.

use crate::limits;
use crate::types::Oid;
use hashbrown::{HashMap, HashSet};
use home::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// Whose a lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockOwner {
    /// The front-end session, by [`crate::Vfs::new_session`].
    pub holder: u64,
    /// Of that session: what locks as one, such as a process or an open file.
    pub owner: u64,
}

/// Which rules a lock keeps. Locks of different families never conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockFamily {
    /// Ranges; an owner that would wait for ever is told so.
    Posix,
    /// The whole file, whatever the range. Who waits for another kind gives up the one that it has, as flock(2) says.
    Flock,
}

/// Who else may have a lock on the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Others with a shared lock.
    Shared,
    /// Nobody.
    Exclusive,
}

/// Bytes of a file, whether they exist or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// The first byte.
    pub start: u64,
    /// The last byte; [`u64::MAX`]: to the end, wherever that will be.
    pub last: u64,
}

impl LockRange {
    /// The whole file.
    pub const ALL: LockRange = LockRange { start: 0, last: u64::MAX };

    fn overlaps(&self, other: &LockRange) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    /// Whether both together are one range.
    fn joins(&self, other: &LockRange) -> bool {
        self.start <= other.last.saturating_add(1) && other.start <= self.last.saturating_add(1)
    }
}

/// A lock, or the wish for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// Whose.
    pub who: LockOwner,
    /// The process, for a person to read.
    pub pid: u32,
    /// Its rules.
    pub family: LockFamily,
    /// Its bytes.
    pub range: LockRange,
    /// Its kind.
    pub kind: LockKind,
}

impl Lock {
    fn conflicts(&self, other: &Lock) -> bool {
        let exclusive = self.kind == LockKind::Exclusive || other.kind == LockKind::Exclusive;
        exclusive && self.family == other.family && self.who != other.who && self.range.overlaps(&other.range)
    }

    fn is_of(&self, who: LockOwner, family: LockFamily) -> bool {
        self.who == who && self.family == family
    }

    /// As the table has it: a range that makes sense.
    fn checked(self) -> Result<Lock> {
        match self.family {
            LockFamily::Flock => Ok(Lock { range: LockRange::ALL, ..self }),
            LockFamily::Posix if self.range.start > self.range.last => Err(ErrorKind::Invalid.into()),
            LockFamily::Posix => Ok(self),
        }
    }
}

/// A request in the queue of its file.
struct Waiter {
    number: u64,
    lock: Lock,
    /// Waiting for its turn would be a deadlock.
    barges: bool,
    wake: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    held: HashMap<Oid, Vec<Lock>>,
    waiting: HashMap<Oid, VecDeque<Waiter>>,
    locks: usize,
    waiters: usize,
    next_waiter: u64,
}

/// All locks. Its lock is a leaf.
#[derive(Default)]
pub struct Locks(Mutex<Table>);

impl Locks {
    /// Takes a lock, or fails at once: [`ErrorKind::Locked`] where another owner's is in the way,
    /// [`ErrorKind::NoLocks`] where there are too many.
    pub fn lock(&self, oid: Oid, lock: Lock) -> Result<()> {
        let lock = lock.checked()?;
        let mut table = self.0.lock();
        match table.in_the_way(oid, &lock) {
            Some(_) => Err(ErrorKind::Locked.into()),
            None => table.take(oid, lock),
        }
    }

    /// Takes a lock as soon as nothing is in its way. [`ErrorKind::Deadlock`] where a POSIX owner would wait for
    /// itself. Whoever drops the future gives up its place in the queue.
    pub async fn lock_wait(&self, oid: Oid, lock: Lock) -> Result<()> {
        let Some(place) = self.queue_up(oid, lock.checked()?)? else { return Ok(()) };
        loop {
            place.wake.notified().await;
            if let Some(answer) = self.0.lock().try_again(oid, place.number) {
                return answer;
            }
        }
    }

    fn queue_up(&self, oid: Oid, lock: Lock) -> Result<Option<Place<'_>>> {
        let mut table = self.0.lock();
        let blockers = table.blockers(oid, &lock, u64::MAX, false);
        if blockers.is_empty() {
            return table.take(oid, lock).map(|()| None);
        }
        let mut barges = false;
        if lock.family == LockFamily::Posix && table.leads_to(lock.who, blockers) {
            let holders = table.blockers(oid, &lock, u64::MAX, true);
            if table.leads_to(lock.who, holders.clone()) {
                return Err(ErrorKind::Deadlock.into());
            }
            if holders.is_empty() {
                return table.take(oid, lock).map(|()| None);
            }
            barges = true;
        }
        if table.waiters >= limits::LOCK_WAITERS {
            return Err(Error::new(ErrorKind::NoLocks, "too many wait for locks"));
        }
        if lock.family == LockFamily::Flock {
            table.release(oid, |held| held.is_of(lock.who, lock.family));
        }
        let number = table.next_waiter;
        let wake = Arc::new(Notify::new());
        table.next_waiter += 1;
        table.waiters += 1;
        table.waiting.entry(oid).or_default().push_back(Waiter { number, lock, barges, wake: wake.clone() });
        // What was given up above may have been all that was in the way.
        table.wake(oid);
        Ok(Some(Place { locks: self, oid, number, wake }))
    }

    /// A lock that is in the way of another one.
    pub fn test(&self, oid: Oid, lock: Lock) -> Result<Option<Lock>> {
        let lock = lock.checked()?;
        Ok(self.0.lock().in_the_way(oid, &lock).copied())
    }

    /// Gives up what an owner has of a range. That may split a lock, which fails where there are too many.
    pub fn unlock(&self, oid: Oid, who: LockOwner, family: LockFamily, range: LockRange) -> Result<()> {
        let gone = Lock { who, pid: 0, family, range, kind: LockKind::Shared }.checked()?;
        let mut table = self.0.lock();
        table.clear(oid, &gone)?;
        table.wake(oid);
        Ok(())
    }

    /// Gives up all that an owner has on a file, in both families. Its requests go on waiting: a process gives up its
    /// locks with every close(2), also while another thread of it waits for one.
    pub fn release_owner(&self, oid: Oid, who: LockOwner) {
        let mut table = self.0.lock();
        table.release(oid, |l| l.who == who);
        table.wake(oid);
    }

    /// Gives up all that a session has, and its places in all queues.
    pub fn release_holder(&self, holder: u64) {
        let mut table = self.0.lock();
        let files: BTreeSet<Oid> = table.held.keys().chain(table.waiting.keys()).copied().collect();
        for oid in files {
            table.dismiss(oid, |w| w.who.holder == holder);
            table.release(oid, |l| l.who.holder == holder);
            table.wake(oid);
        }
    }
}

/// A place in a queue; it is given up when this is dropped.
struct Place<'a> {
    locks: &'a Locks,
    oid: Oid,
    number: u64,
    wake: Arc<Notify>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut table = self.locks.0.lock();
        if table.leave(self.oid, self.number).is_some() {
            table.wake(self.oid);
        }
    }
}

impl Table {
    fn held(&self, oid: Oid) -> &[Lock] {
        self.held.get(&oid).map_or(&[], |held| &held[..])
    }

    fn in_the_way(&self, oid: Oid, lock: &Lock) -> Option<&Lock> {
        self.held(oid).iter().find(|held| held.conflicts(lock))
    }

    /// For whom a request waits that came before request `number`; with `barges` not for its turn.
    fn blockers(&self, oid: Oid, lock: &Lock, number: u64, barges: bool) -> Vec<LockOwner> {
        let held = self.held(oid).iter().filter(|held| held.conflicts(lock)).map(|held| held.who);
        let queue = self.waiting.get(&oid).filter(|_| !barges).into_iter().flatten();
        let before = queue.take_while(|w| w.number < number).filter(|w| w.lock.conflicts(lock));
        held.chain(before.map(|w| w.lock.who)).collect()
    }

    /// Whether one of `from` waits, directly or not, for `who`.
    fn leads_to(&self, who: LockOwner, mut from: Vec<LockOwner>) -> bool {
        let mut seen: HashSet<LockOwner> = HashSet::new();
        while let Some(owner) = from.pop() {
            if owner == who {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            for (oid, queue) in &self.waiting {
                for w in queue.iter().filter(|w| w.lock.is_of(owner, LockFamily::Posix)) {
                    from.extend(self.blockers(*oid, &w.lock, w.number, w.barges));
                }
            }
        }
        false
    }

    /// Takes a lock that nothing is in the way of.
    fn take(&mut self, oid: Oid, lock: Lock) -> Result<()> {
        if self.locks + 2 > limits::LOCKS {
            return Err(ErrorKind::NoLocks.into());
        }
        self.clear(oid, &lock)?;
        let held = self.held.entry(oid).or_default();
        let before = held.len();
        let mut joined = lock;
        held.retain(|l| {
            let joins = l.is_of(lock.who, lock.family) && l.kind == lock.kind && l.range.joins(&lock.range);
            if joins {
                joined.range.start = joined.range.start.min(l.range.start);
                joined.range.last = joined.range.last.max(l.range.last);
            }
            !joins
        });
        held.push(joined);
        self.locks = self.locks + held.len() - before;
        // A weaker lock than before may let others in.
        self.wake(oid);
        Ok(())
    }

    /// Takes the bytes of `gone` out of its owner's locks.
    fn clear(&mut self, oid: Oid, gone: &Lock) -> Result<()> {
        let range = gone.range;
        let Some(held) = self.held.get_mut(&oid) else { return Ok(()) };
        let own = |l: &Lock| l.is_of(gone.who, gone.family) && l.range.overlaps(&range);
        let splits = |l: &Lock| own(l) && l.range.start < range.start && l.range.last > range.last;
        if self.locks + 1 > limits::LOCKS && held.iter().any(splits) {
            return Err(ErrorKind::NoLocks.into());
        }
        let before = held.len();
        let mut rest = Vec::new();
        held.retain(|l| {
            if own(l) && l.range.start < range.start {
                let left = LockRange { start: l.range.start, last: range.start - 1 };
                rest.push(Lock { range: left, ..*l });
            }
            if own(l) && l.range.last > range.last {
                let right = LockRange { start: range.last + 1, last: l.range.last };
                rest.push(Lock { range: right, ..*l });
            }
            !own(l)
        });
        held.append(&mut rest);
        self.locks = self.locks + held.len() - before;
        if held.is_empty() {
            self.held.remove(&oid);
        }
        Ok(())
    }

    fn release(&mut self, oid: Oid, which: impl Fn(&Lock) -> bool) {
        let Some(held) = self.held.get_mut(&oid) else { return };
        let before = held.len();
        held.retain(|l| !which(l));
        self.locks -= before - held.len();
        if held.is_empty() {
            self.held.remove(&oid);
        }
    }

    /// Wakes those who could have their lock now.
    fn wake(&self, oid: Oid) {
        for w in self.waiting.get(&oid).into_iter().flatten() {
            if self.blockers(oid, &w.lock, w.number, w.barges).is_empty() {
                w.wake.notify_one();
            }
        }
    }

    /// Takes the lock of a waiter if it can be had; `None`: it goes on waiting.
    fn try_again(&mut self, oid: Oid, number: u64) -> Option<Result<()>> {
        let waiter = self.waiting.get(&oid).and_then(|queue| queue.iter().find(|w| w.number == number));
        let Some(waiter) = waiter else {
            return Some(Err(Error::new(ErrorKind::Stale, "the session of the lock has ended")));
        };
        if !self.blockers(oid, &waiter.lock, number, waiter.barges).is_empty() {
            return None;
        }
        let waiter = self.leave(oid, number)?;
        let taken = self.take(oid, waiter.lock);
        if taken.is_err() {
            // Others may have waited for its turn.
            self.wake(oid);
        }
        Some(taken)
    }

    fn leave(&mut self, oid: Oid, number: u64) -> Option<Waiter> {
        let queue = self.waiting.get_mut(&oid)?;
        let at = queue.iter().position(|w| w.number == number)?;
        let waiter = queue.remove(at);
        if queue.is_empty() {
            self.waiting.remove(&oid);
        }
        self.waiters -= 1;
        waiter
    }

    fn dismiss(&mut self, oid: Oid, which: impl Fn(&Lock) -> bool) {
        let queue = self.waiting.get(&oid).into_iter().flatten();
        let out: Vec<u64> = queue.filter(|w| which(&w.lock)).map(|w| w.number).collect();
        for number in out {
            if let Some(waiter) = self.leave(oid, number) {
                waiter.wake.notify_one();
            }
        }
    }
}

#[cfg(test)]
#[path = "locks/tests.rs"]
mod tests;
