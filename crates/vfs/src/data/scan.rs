//! Building the index from the log after a restart.
//!
//! Entries are replayed in their order. A dirty entry hides older bytes and counts itself only if a later note says
//! that it retired. Where entries are missing, all that was found before is forgotten, because a later version note
//! would vouch for too much; what stands behind the gap is complete again.

use super::entry::{ENTRY_HEADER_LEN, Entry, Kind, SEGMENT_HEADER_LEN, SegmentHeader};
use super::index::{Index, Object, Piece, Segment};
use super::path;
use crate::env::{Disk, Error, File, Result};
use crate::journal::Extent;
use bytes::Bytes;
use home::{Time, Version};
use oncrpc::xdr::Xdr;

/// How much is read at once while scanning.
const WINDOW: usize = 64 << 10;
/// Largest payload of a note.
const NOTE_MAX: u32 = 1 << 10;

/// What was found.
pub struct Found {
    /// The index of clean data.
    pub index: Index,
    /// The number of the next segment.
    pub next_number: u64,
    /// The last segment and where its entries end.
    pub prev: (u64, u64),
}

/// Scans the log in `dir`, making the directory if it is not there. [`Error::Newer`] where a later program wrote in it.
pub fn scan(disk: &dyn Disk, volume: u32, dir: &str) -> Result<Found> {
    disk.create_dir_all(dir).map_err(|e| Error::io(dir, &e))?;
    let names = disk.list(dir).map_err(|e| Error::io(dir, &e))?;
    let mut found = Found { index: Index::default(), next_number: 1, prev: (0, 0) };
    for number in names.iter().filter_map(|n| u64::from_str_radix(n.strip_suffix(".seg")?, 16).ok()) {
        let at = path(dir, number);
        let first = found.next_number == 1;
        found.next_number = number + 1;
        let open = disk.open(&at).and_then(|f| f.len().map(|len| (f, len)));
        let (file, len) = open.map_err(|e| Error::io(&at, &e))?;
        let mut window = Window { file: &*file, len, at: 0, bytes: Bytes::new() };
        let header = window.get(0, SEGMENT_HEADER_LEN as usize).and_then(|b| SegmentHeader::decode(&b));
        let header = header.transpose().map_err(|newer| Error::Newer(newer.text(&at)))?;
        let header = header.filter(|h| h.volume == volume && h.number == number);
        if !header.is_some_and(|h| first || (h.prev, h.prev_end) == found.prev) {
            found.index.forget_all();
        }
        let made = header.map_or(Time::default(), |h| h.made);
        found.index.segments.insert(number, Segment::new(file.clone(), len, made));
        let end = match header {
            Some(_) => replay(&mut found.index, number, &mut window),
            None => 0,
        };
        found.prev = (number, end);
    }
    found.index.keep_vouched();
    Ok(found)
}

/// Replays the entries of a segment; answers where they end.
fn replay(index: &mut Index, number: u64, window: &mut Window) -> u64 {
    let mut at = SEGMENT_HEADER_LEN;
    while let Some(entry) = window.get(at, ENTRY_HEADER_LEN).and_then(|b| Entry::decode(&b)) {
        let pos = at + ENTRY_HEADER_LEN as u64;
        if pos + u64::from(entry.len) > window.len {
            break;
        }
        if !index.apply(number, pos, &entry, window) {
            break;
        }
        at += entry.footprint();
    }
    at
}

impl Index {
    /// Takes an entry over; `false` if it is damaged.
    fn apply(&mut self, number: u64, pos: u64, entry: &Entry, window: &mut Window) -> bool {
        self.next_epoch = self.next_epoch.max(entry.epoch);
        let id = entry.object;
        let newest = self.objects.get(&id).map_or(0, |o| o.epoch);
        if entry.epoch < newest {
            return true;
        }
        if entry.epoch > newest {
            self.objects.insert(id, Object { epoch: entry.epoch, ..Object::default() });
        }
        if entry.kind == Kind::Drop {
            self.objects.remove(&id);
            return true;
        }
        let Some(object) = self.objects.get_mut(&id) else { return true };
        match entry.kind {
            Kind::Clean | Kind::Dirty => {
                let extent = Extent { segment: number, pos, len: entry.len, crc: entry.crc };
                let dirty = entry.kind == Kind::Dirty;
                let piece = Piece { len: u64::from(entry.len), pos, extent, dirty, verified: false };
                object.pieces.lay(entry.offset, piece);
            }
            Kind::Truncate => object.pieces.clear(entry.offset, u64::MAX),
            Kind::Version => match window.note::<Version>(pos, entry) {
                Some(v) => (object.version, object.noted) = (Some(v), number),
                None => return false,
            },
            Kind::Retired => match window.note::<Extent>(pos, entry) {
                Some(e) => object.pieces.settle(entry.offset, &e),
                None => return false,
            },
            Kind::Laid => match window.note::<Extent>(pos, entry) {
                Some(e) => {
                    let piece =
                        Piece { len: u64::from(e.len), pos: e.pos, extent: e, dirty: true, verified: false };
                    object.pieces.lay(entry.offset, piece);
                    if let Some(s) = self.segments.get_mut(&e.segment) {
                        s.objects.insert(id);
                    }
                }
                None => return false,
            },
            Kind::Drop => {}
        }
        if let Some(s) = self.segments.get_mut(&number) {
            s.objects.insert(id);
        }
        true
    }

    /// Forgets all objects, because entries are missing.
    fn forget_all(&mut self) {
        self.objects.clear();
    }

    /// Keeps clean bytes of objects with a version.
    fn keep_vouched(&mut self) {
        self.objects.retain(|_, o| {
            o.pieces.retain(|p| !p.dirty);
            o.version.is_some()
        });
    }
}

/// A part of a segment in memory, so that small entries do not cost a read each.
struct Window<'a> {
    file: &'a dyn File,
    len: u64,
    at: u64,
    bytes: Bytes,
}

impl Window<'_> {
    /// `len` bytes at `at`, if they are there.
    fn get(&mut self, at: u64, len: usize) -> Option<Bytes> {
        let inside = |w: &Self| {
            let skip = usize::try_from(at.checked_sub(w.at)?).ok()?;
            (skip + len <= w.bytes.len()).then(|| w.bytes.slice(skip..skip + len))
        };
        if let Some(found) = inside(self) {
            return Some(found);
        }
        let mut buf = vec![0; WINDOW.max(len)];
        let n = self.file.pread(&mut buf, at).ok()?;
        buf.truncate(n);
        (self.at, self.bytes) = (at, buf.into());
        inside(self)
    }

    /// The payload of a note.
    fn note<T: Xdr>(&mut self, pos: u64, entry: &Entry) -> Option<T> {
        let bytes = (entry.len <= NOTE_MAX).then(|| self.get(pos, entry.len as usize)).flatten()?;
        (crc32c::crc32c(&bytes) == entry.crc).then(|| T::from_bytes(bytes).ok()).flatten()
    }
}
