//! Reading bytes back.
//!
//! Pieces that stand close together in one segment are read at once. What an earlier process wrote may not have
//! reached the disk: its checksum is computed on the first read, over the whole extent.

use super::DataLog;
use super::index::{Index, Piece};
use crate::env::{Error, File, Result};
use crate::journal::Extent;
use bytes::Bytes;
use home::{Version, buffers};
use std::sync::Arc;

/// Pieces with at most this many bytes between them are read at once: an entry's header and padding.
const NEAR: u64 = 64;

/// A part of an answer to [`DataLog::get`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Bytes.
    Have(Bytes),
    /// Not in the cache.
    Gap {
        /// Offset in the file.
        at: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Bytes that only we have and that the disk no longer gives back: an error, never to be fetched from the home.
    Lost {
        /// Offset in the file.
        at: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// Tells contents of one object apart.
pub type Stamp = Option<(u64, Option<Version>)>;

/// Which content of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// What it has.
    Now = 0,
    /// What it had before it was cut or found changed at the home.
    Earlier = 1,
}

/// A piece with its place in the file and the file of its segment.
struct Want {
    at: u64,
    piece: Piece,
    file: Arc<dyn File>,
}

impl Want {
    /// Its bytes; of an extent that was not verified only where its checksum is right.
    fn read(&self) -> Result<Bytes> {
        let p = &self.piece;
        if p.verified {
            return read_exact(&*self.file, p.pos, p.len);
        }
        let skip = (p.pos - p.extent.pos) as usize;
        read_verified(&*self.file, &p.extent).map(|bytes| bytes.slice(skip..skip + p.len as usize))
    }
}

impl DataLog {
    /// What is cached of [at, at+len): parts in order that cover it without overlap. A part of an earlier process
    /// whose checksum is wrong is forgotten and becomes a gap.
    pub fn get(&self, object: u64, at: u64, len: u32) -> Vec<Part> {
        let end = at.saturating_add(u64::from(len));
        let wants: Vec<Want> = {
            let mut index = self.index.lock();
            let Index { objects, segments, .. } = &mut *index;
            let pieces = objects.get(&object).map(|o| &o.pieces);
            let within = pieces.into_iter().flat_map(|p| p.within(at, end));
            let now = self.env.clock.now();
            // A segment that is gone from under a dirty piece is found by the read.
            let with_file = within.map(|(at, piece)| {
                let file = segments.get_mut(&piece.extent.segment).map(|s| {
                    s.used = now;
                    s.file.clone()
                });
                Want { at, piece, file: file.unwrap_or_else(|| Arc::new(Missing)) }
            });
            with_file.collect()
        };
        let mut parts = Vec::with_capacity(wants.len() + 1);
        let mut next = at;
        let mut rest = &wants[..];
        while let Some(first) = rest.first() {
            if first.at > next {
                parts.push(Part::Gap { at: next, len: first.at - next });
            }
            let (run, after) = rest.split_at(run_len(rest));
            self.read_run(object, run, &mut parts);
            next = run.last().map_or(next, |w| w.at + w.piece.len);
            rest = after;
        }
        if next < end {
            parts.push(Part::Gap { at: next, len: end - next });
        }
        parts
    }

    fn read_run(&self, object: u64, run: &[Want], parts: &mut Vec<Part>) {
        let [first, .., last] = run else {
            parts.extend(run.iter().map(|w| self.read_one(object, w)));
            return;
        };
        let (from, to) = (first.piece.pos, last.piece.pos + last.piece.len);
        match read_exact(&*first.file, from, to - from) {
            Ok(bytes) => parts.extend(run.iter().map(|w| {
                let start = (w.piece.pos - from) as usize;
                Part::Have(bytes.slice(start..start + w.piece.len as usize))
            })),
            // One of them alone may be at fault.
            Err(_) => parts.extend(run.iter().map(|w| self.read_one(object, w))),
        }
    }

    fn read_one(&self, object: u64, want: &Want) -> Part {
        let p = &want.piece;
        if p.is_zeros() {
            return Part::Have(Bytes::from(vec![0; p.len as usize]));
        }
        let laid_at = want.at - (p.pos - p.extent.pos);
        match want.read() {
            Ok(bytes) => {
                if !p.verified {
                    self.update(object, |o| o.update(laid_at, &p.extent, |p| p.verified = true));
                }
                Part::Have(bytes)
            }
            Err(e) if p.dirty => {
                tracing::error!("data log: unsent bytes of object {object} at {}: {e}", want.at);
                Part::Lost { at: want.at, len: p.len }
            }
            Err(e) => {
                tracing::warn!("data log: cached bytes of object {object} at {}: {e}", want.at);
                self.update(object, |o| o.remove(laid_at, &p.extent));
                Part::Gap { at: want.at, len: p.len }
            }
        }
    }

    /// What tells a content of an object from others that it had, and where it ends.
    pub fn stamp(&self, object: u64, when: When) -> (Stamp, u64) {
        let index = self.index.lock();
        let found = match when {
            When::Now => index.objects.get(&object).map(|o| (Some((o.epoch, o.version)), o.pieces.end())),
            When::Earlier => {
                let earlier = index.earlier.iter().find(|e| e.id == object);
                earlier.map(|e| (Some((e.stamp, None)), e.pieces.end()))
            }
        };
        found.unwrap_or_default()
    }

    /// The same, but for what an object had before it stays as it is when more of that becomes known, or other bytes take the
    /// place of some: good for guesses alone.
    pub fn stamp_of_guesses(&self, object: u64, when: When) -> (Stamp, u64) {
        let (stamp, end) = self.stamp(object, when);
        let index = self.index.lock();
        let earlier = index.earlier.iter().find(|e| when == When::Earlier && e.id == object);
        (earlier.map_or(stamp, |e| Some((e.since, None))), end)
    }

    /// Bytes that the home has, or had, from offset `at` on: at most `len`, and up to the first that are not here or that
    /// only we have.
    pub fn clean(&self, object: u64, at: u64, len: usize, when: When) -> Vec<u8> {
        let wants = self.clean_pieces(object, at, at.saturating_add(len as u64), when);
        let mut out = Vec::with_capacity(len.min(1 << 21));
        for want in wants {
            if want.at != at + out.len() as u64 {
                break;
            }
            let Ok(bytes) = want.read() else { break };
            out.extend_from_slice(&bytes);
        }
        out
    }

    /// What the home has in [at, at+len), or had, where something unsent was laid over it or cut it off, as far as that is
    /// still here: offsets and bytes.
    pub fn before(&self, object: u64, at: u64, len: u64) -> Vec<(u64, Bytes)> {
        let wants: Vec<Want> = {
            let Index { objects, segments, .. } = &*self.index.lock();
            let pieces = objects.get(&object).map(|o| &o.before);
            let within = pieces.into_iter().flat_map(|p| p.within(at, at.saturating_add(len)));
            let with_file = |(at, piece): (u64, Piece)| {
                Some(Want { at, piece, file: segments.get(&piece.extent.segment)?.file.clone() })
            };
            within.filter_map(with_file).collect()
        };
        wants.into_iter().filter_map(|want| Some((want.at, want.read().ok()?))).collect()
    }

    /// What is here of [at, at+len) of the content that unsent changes were made to, in order: what is cached of it, and what was
    /// where something unsent lies over it or has cut it off.
    pub fn of_base(&self, object: u64, at: u64, len: u64) -> Vec<(u64, Bytes)> {
        let end = at.saturating_add(len);
        let mut wants: Vec<Want> = {
            let Index { objects, segments, .. } = &*self.index.lock();
            let Some(o) = objects.get(&object) else { return Vec::new() };
            let base = o.of_base(at, end);
            let with_file = base.within(at, end).filter_map(|(at, piece)| {
                Some(Want { at, piece, file: segments.get(&piece.extent.segment)?.file.clone() })
            });
            with_file.collect()
        };
        wants.sort_by_key(|want| want.at);
        wants.into_iter().filter_map(|want| Some((want.at, want.read().ok()?))).collect()
    }

    fn clean_pieces(&self, object: u64, from: u64, to: u64, when: When) -> Vec<Want> {
        let index = self.index.lock();
        let pieces = match when {
            When::Now => index.objects.get(&object).map(|o| &o.pieces),
            When::Earlier => index.earlier.iter().find(|e| e.id == object).map(|e| &e.pieces),
        };
        let within = pieces.into_iter().flat_map(|pieces| pieces.within(from, to));
        let clean = within.take_while(|(_, piece)| !piece.dirty && !piece.is_zeros());
        let with_file = |(at, piece): (u64, Piece)| {
            let file = index.segments.get(&piece.extent.segment).map(|s| s.file.clone());
            Want { at, piece, file: file.unwrap_or_else(|| Arc::new(Missing)) }
        };
        clean.map(with_file).collect()
    }

    fn update(&self, object: u64, change: impl FnOnce(&mut super::index::Pieces)) {
        if let Some(o) = self.index.lock().objects.get_mut(&object) {
            change(&mut o.pieces);
        }
    }

    /// The bytes of an extent, whatever the index says of it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where they are not what was written.
    pub fn read_extent(&self, e: &Extent) -> Result<Bytes> {
        if e.len == 0 {
            return Ok(Bytes::new());
        }
        let file = self.index.lock().segments.get(&e.segment).map(|s| s.file.clone());
        let file = file.ok_or_else(|| Error::Corrupt(format!("data segment {} is gone", e.segment)))?;
        read_verified(&*file, e)
    }
}

/// How many of the wants, from the first on, can be read at once.
fn run_len(wants: &[Want]) -> usize {
    let near = |pair: &&[Want]| {
        let (a, b) = (&pair[0], &pair[1]);
        let end = a.piece.pos + a.piece.len;
        a.piece.verified
            && b.piece.verified
            && !a.piece.is_zeros()
            && a.piece.extent.segment == b.piece.extent.segment
            && a.at + a.piece.len == b.at
            && (end..=end + NEAR).contains(&b.piece.pos)
    };
    1 + wants.windows(2).take_while(near).count()
}

fn read_exact(file: &dyn File, at: u64, len: u64) -> Result<Bytes> {
    buffers::filled(len as usize, |buf| match file.pread(buf, at) {
        Ok(n) if n == buf.len() => Ok(()),
        Ok(n) => Err(Error::Corrupt(format!("{n} of {len} bytes at {at}"))),
        Err(e) => Err(Error::io("read", &e)),
    })
}

fn read_verified(file: &dyn File, e: &Extent) -> Result<Bytes> {
    let bytes = read_exact(file, e.pos, u64::from(e.len))?;
    if crc32c::crc32c(&bytes) == e.crc {
        Ok(bytes)
    } else {
        Err(Error::Corrupt(format!("checksum of {} bytes at {} in data segment {}", e.len, e.pos, e.segment)))
    }
}

/// Stands for a segment that is not there.
struct Missing;

impl File for Missing {
    fn pread(&self, _: &mut [u8], _: u64) -> std::io::Result<usize> {
        Ok(0)
    }
    fn pwrite_all(&self, _: &[&[u8]], _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::NotFound.into())
    }
    fn sync_data(&self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::NotFound.into())
    }
    fn set_len(&self, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::NotFound.into())
    }
    fn allocate(&self, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::NotFound.into())
    }
    fn len(&self) -> std::io::Result<u64> {
        Ok(0)
    }
}
