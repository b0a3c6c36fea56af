//! The data cache of a volume: a log of entries in segments, and an index of it in memory.
//!
//! Bytes are never overwritten in place. Clean bytes (the home has them too) are a cache: the oldest segment without
//! dirty ones is evicted when the [`Budget`] is used up, and after a restart only what a version note vouches for counts.
//! Dirty bytes belong to a journal record that has not retired; they are pinned until [`DataLog::unpin`] and come
//! back after a restart only through the journal. Whatever is in doubt after a crash becomes a gap, which is
//! fetched again; it is never taken for the home's content.
//!
//! # Layout
//! - `entry`: the bytes. `docs/JOURNAL.md` shows them.
//! - `index`: object → offset → where. `scan`: building it from the log at the start.
//! - `read`: answers to readers, with checksums of what an earlier process wrote.
//! - `budget`: the cap that all logs share. `share`: how much of it a volume's unsent bytes may take. `line`: who waits for
//!   room. `pace`: how writers are slowed before.
//!
//! Locks: the tail (one writer at a time) before the index; the index is a leaf and not held during I/O.

mod budget;
mod entry;
#[cfg(test)]
pub(crate) mod golden;
mod index;
mod line;
mod pace;
mod read;
mod scan;
mod share;
#[cfg(test)]
mod tests;

pub use budget::{Budget, Room};
pub use read::{Part, Stamp, When};
pub use share::Share;

use crate::env::{Env, Error, File, Result};
use crate::journal::Extent;
use bytes::Bytes;
use entry::{Entry, Kind, SEGMENT_HEADER_LEN, SegmentHeader};
use home::{Time, Version};
use index::{Index, Piece, Segment};
use oncrpc::xdr::Xdr;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether bytes may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// The home has them too.
    Clean,
    /// Only we have them, until [`DataLog::unpin`].
    Dirty,
}

/// What a data log takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes that only we have.
    pub dirty_bytes: u64,
}

/// The data log of one volume. Calls may run concurrently; they block on the disk, mostly on its page cache.
pub struct DataLog {
    env: Env,
    volume: u32,
    dir: String,
    budget: Arc<Budget>,
    share: Arc<Share>,
    tail: Mutex<Tail>,
    index: Mutex<Index>,
    /// Why nothing more can be made durable, after a failed sync.
    failed: Mutex<Option<String>>,
    /// Nothing is evicted before the journal has said what is pinned.
    held: AtomicBool,
}

/// Where entries are appended.
struct Tail {
    current: Option<(u64, Arc<dyn File>)>,
    pos: u64,
    next_number: u64,
    /// The last segment before the current one, and where it ended.
    prev: (u64, u64),
    /// Notes that could not be written since one could.
    unnoted: u64,
}

impl DataLog {
    /// Opens or makes the log of a volume and indexes the clean data in it. Nothing is evicted before
    /// [`crate::journal::Journal::open_lane`] has pinned what unretired records name. [`Error::Newer`] where a later
    /// program wrote in it; nothing was changed then.
    pub fn open(env: &Env, volume: u32, cap: Arc<Budget>) -> Result<Arc<DataLog>> {
        let dir = format!("data/{volume:08x}");
        let found = scan::scan(&*env.disk, volume, &dir)?;
        cap.charge(found.index.segments.values().map(|s| s.len).sum());
        let log = Arc::new(DataLog {
            env: env.clone(),
            volume,
            dir,
            share: Share::new(cap.clone()),
            budget: cap,
            tail: Mutex::new(Tail {
                current: None,
                pos: 0,
                next_number: found.next_number,
                prev: found.prev,
                unnoted: 0,
            }),
            index: Mutex::new(found.index),
            failed: Mutex::default(),
            held: AtomicBool::new(true),
        });
        log.budget.register(&log);
        Ok(log)
    }

    /// Appends bytes of a file, `data` joined, and indexes them at offset `at`. [`Pin::Clean`] bytes never hide dirty
    /// ones. [`Pin::Dirty`] bytes stay until [`DataLog::unpin`]; they are durable once a journal record that names the
    /// extent is. Empty data give an extent that is nowhere.
    ///
    /// # Errors
    /// [`Error::Full`] over the budget or on a full disk, when nothing can be evicted; [`Error::TooBig`] for more than
    /// a segment.
    pub fn put(&self, object: u64, at: u64, data: &[Bytes], pin: Pin) -> Result<Extent> {
        self.put_in(Room::Within, object, at, data, pin)
    }

    /// The same where there may be more room.
    pub fn put_in(&self, room: Room, object: u64, at: u64, data: &[Bytes], pin: Pin) -> Result<Extent> {
        let len: usize = data.iter().map(Bytes::len).sum();
        if len == 0 {
            return Ok(Extent { segment: 0, pos: 0, len: 0, crc: 0 });
        }
        if entry::footprint(len as u64) > self.budget.segment_len() - SEGMENT_HEADER_LEN {
            return Err(Error::TooBig(format!("{len} bytes at once")));
        }
        let crc = data.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        let kind = if pin == Pin::Dirty { Kind::Dirty } else { Kind::Clean };
        let cost = entry::footprint(len as u64);
        loop {
            self.reserve(cost, room, pin)?;
            let mut tail = self.tail.lock();
            let epoch = self.index.lock().object(object).epoch;
            let entry = Entry { kind, object, epoch, offset: at, len: len as u32, crc };
            match self.append(&mut tail, &entry, data) {
                Ok(extent) => {
                    self.lay(object, at, extent, pin == Pin::Dirty, true);
                    return Ok(extent);
                }
                Err(e) => {
                    self.index.lock().forget_empty(object);
                    drop(tail);
                    self.budget.refund(cost);
                    if !matches!(e, Error::Full(_)) || !self.budget.evict_one() {
                        return Err(e);
                    }
                }
            }
        }
    }

    /// Recovery: lays an extent that a journal record names over the index, and pins it.
    pub fn insert(&self, object: u64, at: u64, extent: Extent) {
        if extent.len == 0 {
            return;
        }
        let mut tail = self.tail.lock();
        self.lay(object, at, extent, true, false);
        let epoch = self.index.lock().object(object).epoch;
        self.note(&mut tail, Kind::Laid, object, epoch, at, extent.to_bytes());
    }

    /// Finds room for so many bytes. What others hold beyond their shares keeps nobody from his first unsent bytes.
    fn reserve(&self, bytes: u64, room: Room, pin: Pin) -> Result<()> {
        let first = pin == Pin::Dirty && self.share.is_empty();
        match self.budget.reserve(bytes, room) {
            Err(Error::Full(_)) if first => self.budget.reserve(bytes, Room::Beyond),
            reserved => reserved,
        }
    }

    fn lay(&self, object: u64, at: u64, extent: Extent, dirty: bool, verified: bool) {
        let piece = Piece { len: u64::from(extent.len), pos: extent.pos, extent, dirty, verified };
        let mut index = self.index.lock();
        if dirty {
            self.holding(&mut index, |index| index.pin(&extent, Some((object, at))));
        }
        let o = index.object(object);
        if dirty {
            o.keep_before(at, at + piece.len);
        }
        o.pieces.lay(at, piece);
        if let Some(s) = index.segments.get_mut(&extent.segment) {
            s.objects.insert(object);
            s.used = self.env.clock.now();
        }
    }

    /// The record of the extent retired: it becomes ordinary clean cache. Call this after appending the record's
    /// [`crate::journal::Body::Retire`]; its segment may be evicted once that is durable.
    pub fn unpin(&self, extent: &Extent) {
        self.unpin_as(extent, true);
    }

    /// `went`: the home has it, or may have it.
    fn unpin_as(&self, extent: &Extent, went: bool) {
        let mut tail = self.tail.lock();
        self.share.went(u64::from(extent.len), self.env.clock.instant());
        let (object, at, epoch) = {
            let mut index = self.index.lock();
            let Some((object, at)) = index.unpin(extent, went) else { return };
            (object, at, index.object(object).epoch)
        };
        self.note(&mut tail, Kind::Retired, object, epoch, at, extent.to_bytes());
    }

    /// The same of an extent that does not go home; `perhaps`: a part of it may have gone.
    pub fn give_up(&self, extent: &Extent, perhaps: bool) {
        {
            let index = &mut *self.index.lock();
            let place = index.pinned.get(&extent.key()).and_then(|pinned| pinned.place);
            let object = place.and_then(|(object, _)| index.objects.get_mut(&object));
            object.into_iter().for_each(|o| o.never_had(extent));
        }
        self.unpin_as(extent, perhaps);
    }

    /// The ranges (offset, length) of [at, at+len) that are not cached.
    pub fn gaps(&self, object: u64, at: u64, len: u64) -> Vec<(u64, u64)> {
        let end = at.saturating_add(len);
        match self.index.lock().objects.get(&object) {
            Some(o) => o.pieces.gaps(at, end),
            None if len > 0 => vec![(at, len)],
            None => Vec::new(),
        }
    }

    /// The ranges (offset, length) of [at, at+len) that are not cached or known to be zeros.
    pub fn holes(&self, object: u64, at: u64, len: u64) -> Vec<(u64, u64)> {
        let index = self.index.lock();
        let pieces = index.objects.get(&object).map(|o| &o.pieces);
        pieces.map_or_else(|| vec![(at, len)], |pieces| pieces.holes(at, at.saturating_add(len)))
    }

    /// Whatever of [from, to) is not cached, the file has zeros there. That costs no space, and is forgotten at a
    /// restart.
    pub fn fill_zeros(&self, object: u64, from: u64, to: u64) {
        if from < to {
            self.index.lock().object(object).pieces.fill_zeros(from, to);
        }
    }

    /// The version of what is cached of an object and not dirty.
    pub fn version(&self, object: u64) -> Option<Version> {
        self.index.lock().objects.get(&object)?.version
    }

    /// Says that all that is indexed of the object now, but for what is dirty, is this version.
    pub fn set_version(&self, object: u64, v: Version) {
        let mut tail = self.tail.lock();
        let epoch = {
            let mut index = self.index.lock();
            let o = index.object(object);
            if o.version == Some(v) {
                return;
            }
            o.version = Some(v);
            o.epoch
        };
        self.note(&mut tail, Kind::Version, object, epoch, 0, v.to_bytes());
    }

    /// Forgets all that is indexed of an object, and its version. Extents that are pinned can still be read by
    /// [`DataLog::read_extent`].
    pub fn drop_object(&self, object: u64) {
        let mut tail = self.tail.lock();
        let gone = {
            let mut index = self.index.lock();
            index.keep_earlier(object, 0);
            index.objects.remove(&object)
        };
        let Some(gone) = gone else { return };
        self.note(&mut tail, Kind::Drop, object, gone.epoch, 0, Bytes::new());
    }

    /// Forgets what is indexed of an object beyond `size`.
    pub fn truncate(&self, object: u64, size: u64) {
        let mut tail = self.tail.lock();
        let epoch = {
            let mut index = self.index.lock();
            let longer = |index: &Index| index.objects.get(&object).is_some_and(|o| o.pieces.end() > size);
            if longer(&index) {
                index.keep_earlier(object, size);
            }
            let Some(o) = index.objects.get_mut(&object).filter(|o| o.pieces.end() > size) else { return };
            o.keep_before(size, u64::MAX);
            o.pieces.clear(size, u64::MAX);
            o.epoch
        };
        self.note(&mut tail, Kind::Truncate, object, epoch, size, Bytes::new());
    }

    /// The home has cut an object to `size`: what it had beyond is not what it has.
    pub fn cut_before(&self, object: u64, size: u64) {
        if let Some(o) = self.index.lock().objects.get_mut(&object) {
            o.before.clear(size, u64::MAX);
        }
    }

    /// Nothing is unsent of an object any more: forgets what the home had before.
    pub fn forget_before(&self, object: u64) {
        if let Some(o) = self.index.lock().objects.get_mut(&object) {
            o.forget_before();
        }
    }

    /// What is unsent of an object goes to another file: of the one that it was made to nothing else is here.
    pub fn begins_anew(&self, object: u64) {
        if let Some(o) = self.index.lock().objects.get_mut(&object) {
            o.begins_anew();
        }
    }

    /// What the volume's unsent bytes may take.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// What the log takes.
    pub fn usage(&self) -> Usage {
        let index = self.index.lock();
        Usage { bytes: index.segments.values().map(|s| s.len).sum(), dirty_bytes: index.dirty_bytes }
    }

    /// Appends a note. One that cannot be written is only logged: without it less is cached after a restart, or, where
    /// a tail is lost as well, an older state, which its own version note tells.
    fn note(&self, tail: &mut Tail, kind: Kind, object: u64, epoch: u64, offset: u64, payload: Bytes) {
        let crc = crc32c::crc32c(&payload);
        let entry = Entry { kind, object, epoch, offset, len: payload.len() as u32, crc };
        self.budget.charge(entry.footprint());
        match self.append(tail, &entry, &[payload]) {
            Ok(extent) => {
                match std::mem::take(&mut tail.unnoted) {
                    0 => {}
                    some => tracing::warn!("data log: notes are written again; {some} were not"),
                }
                let mut index = self.index.lock();
                if let Some(s) = index.segments.get_mut(&extent.segment) {
                    s.objects.insert(object);
                }
                if let (Kind::Version, Some(o)) = (kind, index.objects.get_mut(&object)) {
                    o.noted = extent.segment;
                }
            }
            Err(e) => {
                self.budget.refund(entry.footprint());
                // A missing note would let later entries tell a wrong story: they go to a segment that shows the gap.
                self.abandon(tail);
                tail.unnoted += 1;
                if tail.unnoted == 1 {
                    tracing::warn!("data log: note not written: {e}");
                }
            }
        }
    }

    /// Changes what is pinned, or where, and tells the budget.
    fn holding(&self, index: &mut Index, change: impl FnOnce(&mut Index)) {
        let before = index.held;
        change(index);
        self.share.holds(before, index.held);
    }

    /// Writes an entry at the tail.
    fn append(&self, tail: &mut Tail, entry: &Entry, data: &[Bytes]) -> Result<Extent> {
        let fits = tail.pos + entry.footprint() <= self.share.segment_len();
        let (number, file) = match &tail.current {
            Some(c) if fits => c.clone(),
            _ => self.roll(tail)?,
        };
        let header = entry.encode();
        let pad = [0; 8];
        let pos = tail.pos + header.len() as u64;
        let mut parts = Vec::with_capacity(data.len() + 2);
        parts.push(&header[..]);
        parts.extend(data.iter().map(|d| &d[..]));
        parts.push(&pad[..(entry.len.wrapping_neg() & 7) as usize]);
        file.pwrite_all(&parts, tail.pos).map_err(|e| Error::io(path(&self.dir, number), &e))?;
        tail.pos += entry.footprint();
        self.holding(&mut self.index.lock(), |index| index.grow(number, tail.pos));
        Ok(Extent { segment: number, pos, len: entry.len, crc: entry.crc })
    }

    /// Begins a new segment.
    fn roll(&self, tail: &mut Tail) -> Result<(u64, Arc<dyn File>)> {
        let number = tail.next_number;
        tail.next_number += 1;
        self.close(tail);
        let at = path(&self.dir, number);
        let made = self.env.clock.now();
        let header =
            SegmentHeader { volume: self.volume, number, made, prev: tail.prev.0, prev_end: tail.prev.1 };
        let make = || {
            let file = self.env.disk.create(&at)?;
            file.pwrite_all(&[&header.encode()], 0).map(|()| file)
        };
        let file = make().map_err(|e| {
            let _ = self.env.disk.remove(&at);
            Error::io(&at, &e)
        })?;
        self.budget.charge(SEGMENT_HEADER_LEN);
        self.index.lock().segments.insert(number, Segment::new(file.clone(), SEGMENT_HEADER_LEN, made));
        tail.pos = SEGMENT_HEADER_LEN;
        tail.current = Some((number, file.clone()));
        Ok((number, file))
    }

    /// Ends the current segment.
    fn close(&self, tail: &mut Tail) {
        if let Some((number, _)) = tail.current.take() {
            tail.prev = (number, tail.pos);
        }
    }

    /// Ends the current segment so that a scan takes what is before for incomplete.
    fn abandon(&self, tail: &mut Tail) {
        self.close(tail);
        tail.prev.1 = 0;
    }
}

/// What the journal asks of the log.
impl DataLog {
    /// Notes that a journal record about to be appended names an extent of this segment.
    pub(crate) fn require_sync(&self, segment: u64) {
        if let Some(s) = self.index.lock().segments.get_mut(&segment) {
            s.wants_sync = true;
        }
    }

    /// Makes durable all extents that journal records name. Called by the commit thread before it writes the records.
    /// After a failure every later call fails too.
    pub fn sync(&self) -> io::Result<()> {
        let mut failed = self.failed.lock();
        if let Some(why) = &*failed {
            return Err(io::Error::other(why.clone()));
        }
        let wanted: Vec<(u64, Arc<dyn File>, bool)> = {
            let mut index = self.index.lock();
            let wanted = index.segments.iter_mut().filter(|(_, s)| s.wants_sync);
            wanted
                .map(|(n, s)| {
                    s.wants_sync = false;
                    (*n, s.file.clone(), s.named)
                })
                .collect()
        };
        let result = self.sync_all(&wanted);
        if let Err(e) = &result {
            *failed = Some(e.to_string());
        }
        result
    }

    fn sync_all(&self, wanted: &[(u64, Arc<dyn File>, bool)]) -> io::Result<()> {
        for (_, file, _) in wanted {
            file.sync_data()?;
        }
        if wanted.iter().any(|(_, _, named)| !named) {
            self.env.disk.sync_dir(&self.dir)?;
        }
        let mut index = self.index.lock();
        for (number, ..) in wanted {
            if let Some(s) = index.segments.get_mut(number) {
                s.named = true;
            }
        }
        Ok(())
    }

    /// Makes a segment of an earlier process durable.
    pub(crate) fn sync_segment(&self, number: u64) -> io::Result<()> {
        self.require_sync(number);
        self.sync()
    }

    /// Keeps an extent that an unretired record names, before its object is known.
    pub(crate) fn hold(&self, extent: &Extent) {
        if extent.len > 0 {
            self.holding(&mut self.index.lock(), |index| index.pin(extent, None));
        }
    }

    /// The journal found no space on the disk that it shares with the data logs: drops the oldest clean bytes;
    /// `false` if there are none.
    pub(crate) fn make_room(&self) -> bool {
        let gone = self.budget.evict_one();
        if gone {
            tracing::debug!("data log: a segment went, so that the journal has room");
        }
        gone
    }

    /// Allows eviction: everything that unretired records name is held.
    pub(crate) fn allow_eviction(&self) {
        self.held.store(false, Ordering::Release);
    }

    /// A commit begins: what was unpinned before has its Retire record in it or is durable already.
    pub(crate) fn commit_begins(&self) {
        let mut index = self.index.lock();
        let mut unpinned = std::mem::take(&mut index.unpinned);
        index.unpinning.append(&mut unpinned);
    }

    /// The commit that began last succeeded.
    pub(crate) fn commit_ends(&self) {
        let mut index = self.index.lock();
        let held = index.held;
        self.holding(&mut index, Index::release);
        let less = index.held < held;
        drop(index);
        if less {
            self.budget.wake();
        }
    }
}

/// What the budget asks of the log.
impl DataLog {
    /// When the oldest segment that may be evicted was begun, and when it was last used.
    fn oldest_evictable(&self) -> Option<(Time, Time)> {
        if self.held.load(Ordering::Acquire) {
            return None;
        }
        let index = self.index.lock();
        index.evictable().map(|(_, s)| (s.made, s.used))
    }

    /// Evicts the oldest segments that are not pinned until there is more room than before: one that has nothing but
    /// notes, which are written again, makes none. Nor do those that are begun for these.
    fn evict_oldest(&self) -> bool {
        let mut tail = self.tail.lock();
        let begun = tail.next_number;
        loop {
            let Some((number, gained)) = self.evict_first(&mut tail) else { return false };
            let is_last = tail.current.as_ref().is_none_or(|(current, _)| *current == number);
            if gained || is_last || number >= begun {
                return gained;
            }
        }
    }

    /// Evicts the oldest segment that is not pinned; its number, and whether that makes room.
    fn evict_first(&self, tail: &mut Tail) -> Option<(u64, bool)> {
        let (number, segment, orphans) = {
            let mut index = self.index.lock();
            let number = index.evictable().map(|(number, _)| number)?;
            let (segment, orphans) = index.evict(number)?;
            let orphans: Vec<_> = orphans
                .into_iter()
                .filter_map(|id| index.objects.get(&id).and_then(|o| Some((id, o.epoch, o.version?))))
                .collect();
            (number, segment, orphans)
        };
        if tail.current.as_ref().is_some_and(|(n, _)| *n == number) {
            self.close(tail);
        }
        if let Err(e) = self.env.disk.remove(&path(&self.dir, number)) {
            tracing::warn!("data log: remove segment {number}: {e}");
        }
        self.budget.refund(segment.len);
        let mut again = SEGMENT_HEADER_LEN;
        for (object, epoch, version) in orphans {
            let payload = version.to_bytes();
            again += entry::footprint(payload.len() as u64);
            self.note(tail, Kind::Version, object, epoch, 0, payload);
        }
        Some((number, segment.len > again))
    }
}

impl Drop for DataLog {
    fn drop(&mut self) {
        let index = self.index.get_mut();
        self.budget.refund(index.segments.values().map(|s| s.len).sum());
        self.share.holds(index.held, 0);
        self.budget.wake();
    }
}

impl Segment {
    fn new(file: Arc<dyn File>, len: u64, made: Time) -> Segment {
        Segment {
            file,
            len,
            made,
            used: made,
            pins: 0,
            objects: HashSet::new(),
            wants_sync: false,
            named: false,
        }
    }
}

/// Path of a segment.
fn path(dir: &str, number: u64) -> String {
    format!("{dir}/{number:016x}.seg")
}
