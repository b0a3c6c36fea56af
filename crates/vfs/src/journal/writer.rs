//! The end of a lane: the segment that records are written to, and the closed ones.
//!
//! Used by the commit thread alone. Nothing here retries a file after a failed sync: what such a file holds
//! is unknown, and the kernel would report the next sync as good (the pages count as clean).

use super::recover::{Found, Kept, path};
use super::segment::{self, HEADER_LEN, Header};
use super::space::Spare;
use crate::env::{Disk, Error, File, Result};
use bytes::Bytes;
use home::io_text;
use std::collections::VecDeque;
use std::sync::Arc;

/// A record that waits to be written.
pub struct Pending {
    /// Its number.
    pub seq: u64,
    /// Its body.
    pub body: Vec<Bytes>,
}

impl Pending {
    /// Bytes that it takes in a segment.
    pub fn footprint(&self) -> u64 {
        segment::footprint(self.body.iter().map(Bytes::len).sum())
    }
}

struct Open {
    number: u64,
    file: Arc<dyn File>,
    pos: u64,
    len: u64,
    last: u64,
}

/// Writes one lane.
pub struct Writer {
    disk: Arc<dyn Disk>,
    dir: String,
    volume: u32,
    epoch: u64,
    segment_len: u64,
    closed: VecDeque<Kept>,
    current: Option<Open>,
}

impl Writer {
    /// Goes on behind what was found.
    pub fn new(
        disk: Arc<dyn Disk>,
        dir: String,
        volume: u32,
        segment_len: u64,
        found: &mut Found,
    ) -> Result<Writer> {
        let mut writer = Writer {
            disk,
            dir,
            volume,
            epoch: found.epoch,
            segment_len,
            closed: std::mem::take(&mut found.segments).into(),
            current: None,
        };
        if let Some(k) = writer.closed.pop_back() {
            let at = path(&writer.dir, k.number);
            let file = writer.disk.open(&at).map_err(|e| Error::io(&at, &e))?;
            let len = k.bytes.max(k.end);
            writer.current = Some(Open { number: k.number, file, pos: k.end, len, last: k.last });
        }
        Ok(writer)
    }

    /// Writes and syncs a prefix of `batch`, as much as one segment takes; removes it from the batch and answers
    /// the number of its last record. `promised` is the last record known to be durable; `next` gives a segment where
    /// the current one is full.
    pub fn commit(
        &mut self,
        batch: &mut VecDeque<Pending>,
        promised: u64,
        next: impl FnOnce() -> Result<Spare>,
    ) -> Result<u64> {
        let Some(first) = batch.front() else { return Ok(promised) };
        if self.current.as_ref().is_none_or(|c| c.pos + first.footprint() > c.len) {
            self.roll(first.seq, next()?)?;
        }
        let Some(current) = &mut self.current else { return Ok(promised) };
        let mut room = current.len - current.pos;
        let mut count = 0;
        let mut out = Vec::new();
        let mut last = promised;
        for p in batch.iter() {
            if p.footprint() > room {
                break;
            }
            room -= p.footprint();
            segment::frame(&mut out, p.seq, promised, &p.body);
            last = p.seq;
            count += 1;
        }
        let at = path(&self.dir, current.number);
        current.file.pwrite_all(&[&out], current.pos).map_err(|e| broken(&at, &e))?;
        current.file.sync_data().map_err(|e| broken(&at, &e))?;
        current.pos += out.len() as u64;
        current.last = last;
        batch.drain(..count);
        Ok(last)
    }

    /// Closes the current segment and begins the next one, whose first record will be `first`.
    fn roll(&mut self, first: u64, spare: Spare) -> Result<()> {
        let number = spare.number;
        let file = spare.filled()?;
        let at = path(&self.dir, number);
        let header = Header { volume: self.volume, number, epoch: self.epoch, first }.encode();
        file.pwrite_all(&[&header], 0).and_then(|()| file.sync_data()).map_err(|e| broken(&at, &e))?;
        let next = Open { number, file, pos: HEADER_LEN, len: self.segment_len, last: first - 1 };
        if let Some(c) = self.current.replace(next) {
            self.closed.push_back(Kept { number: c.number, last: c.last, end: c.pos, bytes: c.len });
        }
        Ok(())
    }

    /// Gives back the space of a segment that is not needed.
    pub fn remove(&self, spare: Spare) {
        let at = path(&self.dir, spare.number);
        // Whatever became of it, it must not be written to any more.
        let _ = spare.filled();
        if let Err(e) = self.disk.remove(&at) {
            tracing::warn!("journal: remove {at}: {}", io_text(&e));
        }
    }

    /// Bytes that can still be written to the current segment.
    pub fn free(&self) -> Option<u64> {
        self.current.as_ref().map(|c| c.len - c.pos)
    }

    /// Removes segments from the oldest on whose records are all below `seq`; keeps the last two with records.
    pub fn forget_below(&mut self, seq: u64) -> Result<()> {
        let current = usize::from(self.current.as_ref().is_some_and(|c| c.pos > HEADER_LEN));
        while self.closed.len() + current > 2 && self.closed.front().is_some_and(|k| k.last < seq) {
            let Some(k) = self.closed.pop_front() else { break };
            let at = path(&self.dir, k.number);
            // Each removal is durable before the next, so that a power cut never leaves a gap.
            let gone = self.disk.remove(&at).and_then(|()| self.disk.sync_dir(&self.dir));
            if let Err(e) = gone {
                self.closed.push_front(k);
                return Err(Error::io(format_args!("remove {at}"), &e));
            }
        }
        Ok(())
    }

    /// Bytes on disk of segments with a header.
    pub fn bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|k| k.bytes).sum();
        let current = self.current.as_ref().map_or(0, |c| c.len);
        closed + current
    }
}

/// A failed write or sync of a segment in use, which ends the lane.
fn broken(path: &str, e: &std::io::Error) -> Error {
    Error::Poisoned(format!("{path}: {}", io_text(e)))
}
