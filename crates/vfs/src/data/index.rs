//! Which bytes of which object are where: in memory, rebuilt from the log at the start.

use crate::env::File;
use crate::journal::Extent;
use crate::limits;
use home::{Time, Version};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// What stands for zeros that are nowhere in the log.
const ZEROS: Extent = Extent { segment: 0, pos: 0, len: 0, crc: 0 };

/// A run of bytes of a file, all or a part of one extent; or zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Length in bytes.
    pub len: u64,
    /// Where the first byte is in the segment.
    pub pos: u64,
    /// The extent that it is a part of.
    pub extent: Extent,
    /// Whether only we have the bytes.
    pub dirty: bool,
    /// Whether the bytes were written by this process, or their checksum was right once.
    pub verified: bool,
}

impl Piece {
    /// Whether it stands for zeros.
    pub fn is_zeros(&self) -> bool {
        self.extent == ZEROS
    }
}

/// The bytes of one object by file offset; pieces do not overlap.
#[derive(Debug, Default)]
pub struct Pieces(BTreeMap<u64, Piece>);

impl Pieces {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether none of them is in the log.
    pub fn is_nowhere(&self) -> bool {
        self.0.values().all(Piece::is_zeros)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The end of the last piece.
    pub fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(at, p)| at + p.len)
    }

    /// The pieces that overlap [from, to), cut to it, in order.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, Piece)> + '_ {
        let start = self.0.range(..=from).next_back().map_or(from, |(at, _)| *at);
        self.0.range(start..to.max(start)).filter_map(move |(at, p)| cut(*at, *p, from, to))
    }

    /// The ranges (offset, length) of [from, to) that no piece covers.
    pub fn gaps(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        gaps(self.within(from, to), from, to)
    }

    /// The ranges (offset, length) of [from, to) that no piece covers or that are zeros.
    pub fn holes(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        gaps(self.within(from, to).filter(|(_, p)| !p.is_zeros()), from, to)
    }

    /// Lays zeros where there is nothing in [from, to).
    pub fn fill_zeros(&mut self, from: u64, to: u64) {
        for (at, len) in self.gaps(from, to) {
            self.0.insert(at, Piece { len, pos: 0, extent: ZEROS, dirty: false, verified: true });
        }
    }

    /// Removes what lies in [from, to).
    pub fn clear(&mut self, from: u64, to: u64) {
        let hit: Vec<u64> = {
            let start = self.0.range(..=from).next_back().map_or(from, |(at, _)| *at);
            self.0.range(start..to.max(start)).map(|(at, _)| *at).collect()
        };
        for at in hit {
            let Some(p) = self.0.remove(&at) else { continue };
            let rest = [cut(at, p, 0, from), cut(at, p, to, u64::MAX)];
            self.0.extend(rest.into_iter().flatten());
        }
    }

    /// Lays a piece over what is there. A clean one never covers a dirty one: what was fetched is older.
    pub fn lay(&mut self, at: u64, piece: Piece) {
        let to = at + piece.len;
        if piece.dirty {
            self.clear(at, to);
            self.0.insert(at, piece);
            return;
        }
        let free = gaps(self.within(at, to).filter(|(_, p)| p.dirty), at, to);
        for (from, len) in free {
            self.clear(from, from + len);
            self.0.extend(cut(at, piece, from, from + len));
        }
    }

    /// Changes every piece that is a part of `extent`, which was laid at `at`.
    pub fn update(&mut self, at: u64, extent: &Extent, change: impl FnMut(&mut Piece)) {
        let places = self.0.range_mut(at..at + u64::from(extent.len));
        places.map(|(_, p)| p).filter(|p| p.extent == *extent).for_each(change);
    }

    /// Removes every piece that is a part of `extent`, which was laid at `at`.
    pub fn remove(&mut self, at: u64, extent: &Extent) {
        let places = self.0.range(at..at + u64::from(extent.len)).filter(|(_, p)| p.extent == *extent);
        let places: Vec<u64> = places.map(|(at, _)| *at).collect();
        for at in places {
            self.0.remove(&at);
        }
    }

    /// Makes the pieces of `extent`, which was laid at `at`, clean, and forgets other clean bytes of its range: the
    /// extent hid them when they were laid, so they may be older.
    pub fn settle(&mut self, at: u64, extent: &Extent) {
        let to = at + u64::from(extent.len);
        let stale: Vec<_> =
            self.within(at, to).filter(|(_, p)| !p.dirty).map(|(at, p)| (at, at + p.len)).collect();
        stale.into_iter().for_each(|(from, to)| self.clear(from, to));
        self.update(at, extent, |p| p.dirty = false);
    }

    /// Keeps the pieces that `keep` wants.
    pub fn retain(&mut self, mut keep: impl FnMut(&Piece) -> bool) {
        self.0.retain(|_, p| keep(p));
    }
}

/// The part of a piece at `at` that lies in [from, to).
fn cut(at: u64, p: Piece, from: u64, to: u64) -> Option<(u64, Piece)> {
    let (start, end) = (at.max(from), (at + p.len).min(to));
    (start < end).then(|| (start, Piece { len: end - start, pos: p.pos + (start - at), ..p }))
}

fn gaps(covered: impl Iterator<Item = (u64, Piece)>, from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut next = from;
    for (at, p) in covered {
        if at > next {
            out.push((next, at - next));
        }
        next = at + p.len;
    }
    if next < to {
        out.push((next, to - next));
    }
    out
}

impl Extent {
    /// Tells extents of one log apart.
    pub(super) fn key(&self) -> (u64, u64) {
        (self.segment, self.pos)
    }
}

/// What is known of one object.
#[derive(Debug, Default)]
pub struct Object {
    /// Entries with another epoch are void.
    pub epoch: u64,
    /// The version of all pieces that are not dirty.
    pub version: Option<Version>,
    /// The segment of the newest note of that version.
    pub noted: u64,
    /// Its bytes.
    pub pieces: Pieces,
    /// What the home has, or had, where something unsent was laid over it or cut it off. In memory alone, and evicted with its
    /// segments.
    pub before: Pieces,
    /// Extents of what is clean or was before that the home never had in this file.
    pub foreign: HashSet<(u64, u64)>,
    /// They were too many: nothing tells what the home had.
    pub mixed: bool,
}

impl Object {
    /// Remembers what the home has in [from, to), because something unsent is laid over it.
    pub fn keep_before(&mut self, from: u64, to: u64) {
        let clean = self.pieces.within(from, to).filter(|(_, p)| !p.dirty && !p.is_zeros());
        clean.for_each(|(at, piece)| self.before.lay(at, piece));
        self.bound_before();
    }

    /// The home has this extent now, which was laid at `at`: remembers where something unsent is laid over it.
    fn sent(&mut self, at: u64, extent: &Extent) {
        let to = at + u64::from(extent.len);
        let shown = self.pieces.within(at, to).filter(|(_, p)| p.extent == *extent);
        for (from, len) in gaps(shown, at, to) {
            let piece =
                Piece { len, pos: extent.pos + (from - at), extent: *extent, dirty: false, verified: false };
            self.before.lay(from, piece);
        }
        self.bound_before();
    }

    /// The home never had this extent.
    pub fn never_had(&mut self, extent: &Extent) {
        self.foreign.insert(extent.key());
        if self.foreign.len() > limits::BEFORE_PIECES {
            (self.foreign, self.mixed) = (HashSet::new(), true);
        }
    }

    /// The home has another file from now on: nothing that is here without being unsent is of that.
    pub fn begins_anew(&mut self) {
        let clean = self.pieces.0.values().filter(|p| !p.dirty);
        let known: Vec<Extent> = clean.chain(self.before.0.values()).map(|p| p.extent).collect();
        known.iter().filter(|extent| **extent != ZEROS).for_each(|extent| self.never_had(extent));
    }

    /// The pieces of [from, to) of which the home had each when what is unsent was made to that, in order.
    pub fn of_base(&self, from: u64, to: u64) -> Pieces {
        let mut base = Pieces::default();
        if !self.mixed {
            let clean = self.pieces.within(from, to).filter(|(_, p)| !p.dirty);
            let all = self.before.within(from, to).chain(clean);
            let own = all.filter(|(_, p)| !self.foreign.contains(&p.extent.key()));
            own.for_each(|(at, piece)| base.lay(at, piece));
            base.retain(|p| !p.is_zeros());
        }
        base
    }

    /// Nothing is unsent any more.
    pub fn forget_before(&mut self) {
        (self.before, self.foreign, self.mixed) = (Pieces::default(), HashSet::new(), false);
    }

    fn bound_before(&mut self) {
        if self.before.count() > limits::BEFORE_PIECES {
            self.before = Pieces::default();
        }
    }
}

/// A segment of the log.
pub struct Segment {
    /// The open file.
    pub file: Arc<dyn File>,
    /// Bytes on disk.
    pub len: u64,
    /// When it was begun.
    pub made: Time,
    /// When something was last put into it or read from it; when it was begun, if that was by an earlier process.
    pub used: Time,
    /// Extents that may not be evicted.
    pub pins: u32,
    /// Objects with entries in it.
    pub objects: HashSet<u64>,
    /// Whether a record names an extent that may not be durable.
    pub wants_sync: bool,
    /// Whether its name is durable.
    pub named: bool,
}

/// An extent that only we have.
pub struct Pinned {
    /// Object and offset where it was laid, once they are known.
    pub place: Option<(u64, u64)>,
    /// Length in bytes.
    pub len: u32,
}

/// Clean bytes that an object had before it was cut or another content was found at the home.
pub struct Earlier {
    /// The object.
    pub id: u64,
    /// Tells it from others that the object had.
    pub stamp: u64,
    /// The stamp that it began with: what was laid over it since is of the same content for whoever only guesses.
    pub since: u64,
    /// Its bytes.
    pub pieces: Pieces,
}

/// The index of a log.
#[derive(Default)]
pub struct Index {
    /// By object id.
    pub objects: HashMap<u64, Object>,
    /// By number, oldest first.
    pub segments: BTreeMap<u64, Segment>,
    /// By segment and position.
    pub pinned: HashMap<(u64, u64), Pinned>,
    /// Segments of extents that were unpinned; they stay pinned until a commit that began later has ended, because
    /// before that a power cut could bring the unretired record back.
    pub unpinned: Vec<u64>,
    /// Those of the commit that is under way.
    pub unpinning: Vec<u64>,
    /// Bytes of all pinned extents.
    pub dirty_bytes: u64,
    /// Bytes of all segments that may not be evicted.
    pub held: u64,
    /// The next epoch to give to an object.
    pub next_epoch: u64,
    /// What objects had before, at most one of each, the newest last. In memory alone, and evicted with its segments.
    pub earlier: VecDeque<Earlier>,
    /// The stamp of the newest of those.
    pub stamp: u64,
    /// The highest segment that was evicted by this process. Version notes that stood in it or before it were written
    /// again: a scan forgets what is before a segment that is missing.
    pub evicted: u64,
}

impl Index {
    /// The object's entry, made with a new epoch if there is none.
    pub fn object(&mut self, object: u64) -> &mut Object {
        let next = &mut self.next_epoch;
        self.objects.entry(object).or_insert_with(|| {
            *next += 1;
            Object { epoch: *next, ..Object::default() }
        })
    }

    /// Forgets an object of which nothing is known.
    pub fn forget_empty(&mut self, object: u64) {
        if self.objects.get(&object).is_some_and(|o| o.pieces.is_empty() && o.version.is_none()) {
            self.objects.remove(&object);
        }
    }

    /// Remembers what an object has from `from` on, if that is much: it is about to be forgotten.
    pub fn keep_earlier(&mut self, id: u64, from: u64) {
        let Some(object) = self.objects.get(&id).filter(|o| o.pieces.count() <= limits::EARLIER_PIECES)
        else {
            return;
        };
        let clean = || object.pieces.within(from, u64::MAX).filter(|(_, p)| !p.dirty && !p.is_zeros());
        if clean().map(|(_, p)| p.len).sum::<u64>() < limits::ALIKE_MIN {
            return;
        }
        self.stamp += 1;
        // What is not known of this content may be as it was before.
        let known = self.earlier.iter().position(|e| e.id == id).and_then(|i| self.earlier.remove(i));
        let since = known.as_ref().map_or(self.stamp, |e| e.since);
        let mut pieces = known.map(|e| e.pieces).unwrap_or_default();
        clean().for_each(|(at, piece)| pieces.lay(at, piece));
        if pieces.count() > limits::EARLIER_PIECES {
            return;
        }
        self.earlier.push_back(Earlier { id, stamp: self.stamp, since, pieces });
        if self.earlier.len() > limits::EARLIER_FILES {
            self.earlier.pop_front();
        }
    }

    /// Pins an extent; a second call only adds the place.
    pub fn pin(&mut self, extent: &Extent, place: Option<(u64, u64)>) {
        if let Some(p) = self.pinned.get_mut(&extent.key()) {
            p.place = place.or(p.place);
            return;
        }
        self.pinned.insert(extent.key(), Pinned { place, len: extent.len });
        self.dirty_bytes += u64::from(extent.len);
        if let Some(s) = self.segments.get_mut(&extent.segment) {
            self.held += if s.pins == 0 { s.len } else { 0 };
            s.pins += 1;
        }
    }

    /// A segment ends here now.
    pub fn grow(&mut self, number: u64, len: u64) {
        if let Some(s) = self.segments.get_mut(&number) {
            self.held += if s.pins > 0 { len - s.len } else { 0 };
            s.len = len;
        }
    }

    /// Unpins an extent and answers its object, if that is still indexed; its segment stays pinned until [`Index::release`].
    /// `went`: the home has it, or may have it.
    pub fn unpin(&mut self, extent: &Extent, went: bool) -> Option<(u64, u64)> {
        let pinned = self.pinned.remove(&extent.key())?;
        self.dirty_bytes -= u64::from(pinned.len);
        self.unpinned.push(extent.segment);
        let (object, at) = pinned.place?;
        let found = self.objects.get_mut(&object)?;
        found.pieces.update(at, extent, |p| p.dirty = false);
        if went {
            found.sent(at, extent);
        }
        Some((object, at))
    }

    /// Lets go of the segments whose extents were unpinned before the last commit began.
    pub fn release(&mut self) {
        for number in std::mem::take(&mut self.unpinning) {
            if let Some(s) = self.segments.get_mut(&number) {
                s.pins -= 1;
                self.held -= if s.pins == 0 { s.len } else { 0 };
            }
        }
    }

    /// The oldest segment that may go. The one that is written to counts only where there is no other.
    pub fn evictable(&self) -> Option<(u64, &Segment)> {
        let last = self.segments.last_key_value().map(|(number, _)| *number);
        let sealed = |number: u64| self.segments.len() == 1 || Some(number) != last;
        let free = self.segments.iter().filter(|(_, s)| s.pins == 0).map(|(number, s)| (*number, s));
        free.take_while(|(number, _)| sealed(*number)).next()
    }

    /// Removes a segment with all that was indexed in it. Answers it, and the objects whose version note a scan would not
    /// find any more, or not believe, while they are still known.
    pub fn evict(&mut self, number: u64) -> Option<(Segment, Vec<u64>)> {
        let segment = self.segments.remove(&number)?;
        self.earlier.iter_mut().for_each(|e| e.pieces.retain(|p| p.extent.segment != number));
        self.earlier.retain(|e| !e.pieces.is_empty());
        let passed = self.segments.range(number.min(self.evicted + 1)..number);
        let mut touched: HashSet<u64> = passed.flat_map(|(_, s)| s.objects.iter().copied()).collect();
        touched.extend(&segment.objects);
        self.evicted = self.evicted.max(number);
        let orphans = touched.into_iter().filter(|id| self.lose(*id, number));
        let mut orphans: Vec<u64> = orphans.collect();
        orphans.sort_unstable();
        Some((segment, orphans))
    }

    /// Forgets what an object has in a segment that goes; answers whether it is still known but needs another version
    /// note.
    fn lose(&mut self, id: u64, number: u64) -> bool {
        let Some(o) = self.objects.get_mut(&id) else { return false };
        o.pieces.retain(|p| p.extent.segment != number);
        o.before.retain(|p| p.extent.segment != number);
        if o.noted > number {
            return false;
        }
        if o.pieces.is_nowhere() {
            self.objects.remove(&id);
            return false;
        }
        o.version.is_some()
    }
}
