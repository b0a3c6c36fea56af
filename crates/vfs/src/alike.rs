//! Which bytes does the home have that are like these? Of files that were used last it is remembered what stands at some
//! of their places. It is a guess, and of no weight: who uses it compares bytes.
//!
//! A place is an *anchor* where [`home::cut`] cuts; it is known by the [`WINDOW`] bytes behind it. Files are looked through
//! only when somebody asks, the last used first, so that reading them costs nothing.

use crate::data::{DataLog, Stamp, When};
use crate::limits;
use home::cut;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::MutexGuard;

/// Bytes by which a place is known.
pub const WINDOW: usize = 1 << 10;
/// One of 2^this places is an anchor.
const BITS: u32 = 15;
/// Two anchors are at least so far apart: what repeats itself has few as well.
const APART: usize = 2 << 10;
/// What it counts to look for bytes that are not here.
const MISSING: u64 = 64 << 10;

/// What is known of bytes that are alike.
#[derive(Debug, Default)]
pub struct Alike {
    /// Files, the last used first.
    recent: Mutex<VecDeque<u64>>,
    /// For one at a time, who may take long.
    anchors: tokio::sync::Mutex<Anchors>,
    /// A file for which nothing was found when it was looked for last; 0: none.
    fruitless: AtomicU64,
}

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The file.
    pub id: u64,
    /// The offset of what is behind the place.
    pub at: u64,
    /// Whether it is in the content that the file has or in what it had before.
    pub when: When,
}

/// Places of files.
#[derive(Debug, Default)]
pub struct Anchors {
    by_key: HashMap<u64, Anchor>,
    /// The keys, the oldest first.
    order: VecDeque<u64>,
    /// The file that was written to last, how often nothing was found for it one after the other, and how often it is not
    /// looked for that reason.
    last: (u64, u32, u32),
    /// How much of which files has been looked through.
    looked: HashMap<(u64, usize), Looked>,
}

/// How much of a content has been looked through.
#[derive(Debug, Default)]
struct Looked {
    stamp: Stamp,
    /// By parts of [`limits::FETCH_CHUNK`].
    done: Vec<bool>,
}

impl Alike {
    /// A file of this length is used.
    pub fn touch(&self, id: u64, len: u64) {
        let mut recent = self.recent.lock();
        if len < limits::ALIKE_MIN || recent.front() == Some(&id) {
            return;
        }
        recent.retain(|file| *file != id);
        recent.push_front(id);
        recent.truncate(limits::ALIKE_FILES);
    }

    /// A file is not what it was believed to be.
    pub async fn forget(&self, id: u64) {
        self.recent.lock().retain(|file| *file != id);
        let mut anchors = self.anchors.lock().await;
        anchors.by_key.retain(|_, anchor| anchor.id != id);
        anchors.looked.retain(|(file, _), _| *file != id);
    }

    /// Lets somebody look for bytes that are to be written to a file, where that is worth it. Nobody waits for another one's
    /// look as long as nothing was found for the file: meanwhile the wire would be idle.
    pub async fn look(&self, id: u64) -> Option<MutexGuard<'_, Anchors>> {
        let mut anchors = match self.anchors.try_lock() {
            Ok(anchors) => anchors,
            Err(_) if self.fruitless.load(Ordering::Relaxed) == id => return None,
            Err(_) => self.anchors.lock().await,
        };
        anchors.is_worth_it(id).then_some(anchors)
    }

    /// Whether much was found for a file.
    pub fn looked(&self, id: u64, mut anchors: MutexGuard<'_, Anchors>, found: bool) {
        self.fruitless.store(if found { 0 } else { id }, Ordering::Relaxed);
        anchors.was_worth_it(found);
    }

    /// The files that were used last, the last one first, but `first` before all.
    pub fn files(&self, first: u64) -> Vec<u64> {
        let recent = self.recent.lock();
        std::iter::once(first).chain(recent.iter().copied().filter(|id| *id != first)).collect()
    }
}

impl Anchors {
    /// Where bytes that begin like these are: [`WINDOW`] of them.
    pub fn find(&self, window: &[u8]) -> Option<Anchor> {
        self.by_key.get(&key(window)).copied()
    }

    /// Whether to look for bytes that are to be written to a file. Where nothing was found it is tried again after 1, 3, 7
    /// and then always 15 times.
    fn is_worth_it(&mut self, id: u64) -> bool {
        let (last, _, pause) = &mut self.last;
        if *last != id {
            self.last = (id, 0, 0);
            return true;
        }
        *pause = pause.saturating_sub(1);
        *pause == 0
    }

    /// How much is looked through for so many bytes: a quarter as much each time after nothing was found, so that the wire
    /// does not wait for what is of no use.
    pub fn worth_looking_through(&self, len: u64) -> u64 {
        let (_, misses, _) = self.last;
        len.max((limits::ALIKE_LOOKED * len) >> (2 * misses))
    }

    /// Whether much was found.
    fn was_worth_it(&mut self, found: bool) {
        let (_, misses, pause) = &mut self.last;
        *misses = if found { 0 } else { (*misses + 1).min(4) };
        *pause = 1 << *misses;
    }

    /// Looks through these files until about `most` bytes have been looked through.
    /// The first of them is the one that is written to.
    pub async fn learn(&mut self, data: &DataLog, files: &[u64], mut most: u64) {
        self.looked.retain(|(id, _), _| files.contains(id));
        for (i, id) in files.iter().enumerate() {
            let contents = if i == 0 { &[When::Earlier][..] } else { &[When::Now, When::Earlier] };
            for when in contents.iter().copied() {
                let mut part = 0;
                while most > 0 {
                    let Some(next) = self.undone(data, *id, when, part) else { break };
                    most = most.saturating_sub(self.look(data, *id, when, next));
                    part = next + 1;
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// The first part from `part` on that was not looked through.
    fn undone(&mut self, data: &DataLog, id: u64, when: When, part: usize) -> Option<usize> {
        let (stamp, end) = data.stamp_of_guesses(id, when);
        let parts = end.div_ceil(limits::FETCH_CHUNK).min(limits::ALIKE_PARTS) as usize;
        let looked = self.looked.entry((id, when as usize)).or_default();
        if looked.stamp != stamp {
            *looked = Looked { stamp, done: Vec::new() };
        }
        looked.done.resize(parts, false);
        looked.done.iter().skip(part).position(|done| !done).map(|i| part + i)
    }

    /// Looks through a part, if it is here; what that counts.
    fn look(&mut self, data: &DataLog, id: u64, when: When, part: usize) -> u64 {
        let from = part as u64 * limits::FETCH_CHUNK;
        // What decides about a place at the beginning, and what belongs to one at the end.
        let before = from.saturating_sub(cut::SPAN as u64);
        let wanted = |start: u64| (from - start + limits::FETCH_CHUNK) as usize + WINDOW;
        let starts = [before, from].map(|start| (start, data.clean(id, start, wanted(start), when)));
        let Some((start, bytes)) = starts.into_iter().find(|(_, bytes)| bytes.len() > WINDOW) else {
            return MISSING;
        };
        let mut next = 0;
        while let Some(at) = next_anchor(&bytes, next) {
            next = at + APART;
            self.insert(key(&bytes[at..at + WINDOW]), Anchor { id, at: start + at as u64, when });
        }
        if let Some(looked) = self.looked.get_mut(&(id, when as usize)) {
            looked.done[part] = true;
        }
        bytes.len() as u64
    }

    fn insert(&mut self, key: u64, anchor: Anchor) {
        if self.by_key.insert(key, anchor).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > limits::ALIKE_ANCHORS {
            self.order.pop_front().and_then(|oldest| self.by_key.remove(&oldest));
        }
    }
}

/// The first place from `from` on in some bytes where others like them may be known.
pub fn next_anchor(data: &[u8], from: usize) -> Option<usize> {
    cut::next(data, from, BITS).filter(|at| at + WINDOW <= data.len())
}

fn key(window: &[u8]) -> u64 {
    let hash = blake3::hash(window);
    hash.as_bytes().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Budget, Pin};
    use crate::env::testing::{SimDisk, env};
    use bytes::Bytes;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn who_writes_what_is_nowhere_does_not_wait_for_another_ones_look() {
        let alike = Alike::default();
        let first = alike.look(7).await.unwrap();
        assert!(alike.look(7).now_or_never().is_none(), "it may be found yet");
        alike.looked(7, first, false);
        assert!(alike.look(7).await.is_none(), "nor is it tried again at once");
        let again = alike.look(7).await.unwrap();
        assert_eq!(again.worth_looking_through(100), limits::ALIKE_LOOKED * 25);
        assert!(alike.look(7).now_or_never().unwrap().is_none(), "nothing was found for it");
        assert!(alike.look(8).now_or_never().is_none(), "for another file it may be");
        alike.looked(7, again, true);
        let found = alike.look(7).await.unwrap();
        assert!(alike.look(7).now_or_never().is_none());
        drop(found);
    }

    /// In mode `strict` what is cached is dropped after each write.
    #[tokio::test]
    async fn what_was_looked_through_stays_so_when_more_comes_to_it() {
        let log = DataLog::open(&env(&SimDisk::new(), 1), 7, Budget::new(1 << 30)).unwrap();
        let part = Bytes::from(vec![7; limits::FETCH_CHUNK as usize]);
        let mut anchors = Anchors::default();
        let mut undone = Vec::new();
        for n in 0..4 {
            log.put(5, n * limits::FETCH_CHUNK, std::slice::from_ref(&part), Pin::Clean).unwrap();
            log.drop_object(5);
            undone.push(anchors.undone(&log, 5, When::Earlier, 0));
            anchors.learn(&log, &[5], u64::MAX).await;
            assert_eq!(anchors.undone(&log, 5, When::Earlier, 0), None);
        }
        assert_eq!(undone, [Some(0), Some(1), Some(2), Some(3)]);
    }
}
