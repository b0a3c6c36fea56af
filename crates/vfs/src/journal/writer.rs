//! The end of a lane: the segment that records are written to, the next one, and the closed ones.
//!
//! Used by the commit thread alone. Nothing here retries a file after a failed sync: what such a file holds
//! is unknown, and the kernel would report the next sync as good (the pages count as clean).

use super::recover::{Found, Kept, path};
use super::segment::{self, HEADER_LEN, Header};
use crate::env::{Disk, Error, File, Result};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

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
    last: u64,
}

/// Writes one lane.
pub struct Writer {
    disk: Arc<dyn Disk>,
    dir: String,
    volume: u32,
    epoch: u64,
    segment_len: u64,
    next_number: u64,
    closed: VecDeque<Kept>,
    current: Option<Open>,
    /// Prepared: allocated and durable, but without a header.
    spare: Option<Spare>,
    /// A spare that is being made. Writing its zeros takes long, and other lanes must not wait for that.
    making: Option<JoinHandle<Result<Spare>>>,
}

struct Spare {
    number: u64,
    file: Arc<dyn File>,
}

impl Writer {
    /// Goes on behind what was found.
    pub fn new(disk: Arc<dyn Disk>, dir: String, volume: u32, segment_len: u64, found: &mut Found) -> Writer {
        Writer {
            disk,
            dir,
            volume,
            epoch: found.epoch,
            segment_len,
            next_number: found.next_number,
            closed: std::mem::take(&mut found.segments).into(),
            current: None,
            spare: None,
            making: None,
        }
    }

    /// Writes and syncs a prefix of `batch`, as much as one segment takes; removes it from the batch and answers
    /// the number of its last record. `promised` is the last record known to be durable.
    pub fn commit(&mut self, batch: &mut VecDeque<Pending>, promised: u64) -> Result<u64> {
        let Some(first) = batch.front() else { return Ok(promised) };
        if self.current.as_ref().is_none_or(|c| c.pos + first.footprint() > self.segment_len) {
            self.roll(first.seq)?;
        }
        let Some(current) = &mut self.current else { return Ok(promised) };
        let mut room = self.segment_len - current.pos;
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
    fn roll(&mut self, first: u64) -> Result<()> {
        self.prepare()?;
        self.finish()?;
        let Some(Spare { number, file }) = self.spare.take() else { return Ok(()) };
        let header = Header { volume: self.volume, number, epoch: self.epoch, first }.encode();
        let at = path(&self.dir, number);
        file.pwrite_all(&[&header], 0).and_then(|()| file.sync_data()).map_err(|e| broken(&at, &e))?;
        if let Some(c) = self.current.replace(Open { number, file, pos: HEADER_LEN, last: first - 1 }) {
            self.closed.push_back(Kept { number: c.number, last: c.last, bytes: self.segment_len });
        }
        Ok(())
    }

    /// Begins to make the next segment ready, if it is not, and answers whether it is. Where this fails, nothing was
    /// lost and it may be tried again.
    pub fn prepare(&mut self) -> Result<bool> {
        if self.making.as_ref().is_some_and(JoinHandle::is_finished) {
            self.finish()?;
        }
        if self.spare.is_none() && self.making.is_none() {
            let (disk, dir, number, len) =
                (self.disk.clone(), self.dir.clone(), self.next_number, self.segment_len);
            self.next_number += 1;
            let make = move || allocate(&*disk, &dir, number, len);
            let thread = std::thread::Builder::new().name("journal-space".into()).spawn(make);
            self.making = Some(thread.map_err(|e| Error::io("start a thread", &e))?);
        }
        Ok(self.spare.is_some())
    }

    /// Waits for the next segment, if it is being made.
    pub fn finish(&mut self) -> Result<()> {
        if let Some(making) = self.making.take() {
            let made = making.join().unwrap_or_else(|_| Err(Error::Io("a journal thread panicked".into())));
            self.spare = Some(made?);
        }
        Ok(())
    }

    /// Whether so little is left in the current segment that the next one should be ready.
    pub fn wants_spare(&self) -> bool {
        self.spare.is_none() && self.current.as_ref().is_none_or(|c| c.pos > self.segment_len / 2)
    }

    /// Bytes that can be written without a new segment.
    pub fn room(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |c| self.segment_len - c.pos);
        let spare = self.spare.as_ref().map_or(0, |_| self.segment_len - HEADER_LEN);
        // A record does not span segments, so the rest of the current one may be of no use.
        if self.spare.is_some() { spare } else { current }
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

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        let open = u64::from(self.current.is_some()) + u64::from(self.spare.is_some());
        self.closed.iter().map(|k| k.bytes).sum::<u64>() + open * self.segment_len
    }
}

/// Makes a segment of zeros that is durable.
fn allocate(disk: &dyn Disk, dir: &str, number: u64, len: u64) -> Result<Spare> {
    let at = path(dir, number);
    let make = || {
        let file = disk.create(&at)?;
        file.allocate(len)?;
        file.sync_data()?;
        disk.sync_dir(dir)?;
        Ok(file)
    };
    match make() {
        Ok(file) => Ok(Spare { number, file }),
        Err(e) => {
            // Without a header the file says nothing; recovery removes it if this does not.
            let _ = disk.remove(&at);
            Err(Error::io(format_args!("allocate {at}"), &e))
        }
    }
}

/// A failed write or sync of a segment in use, which ends the lane.
fn broken(path: &str, e: &std::io::Error) -> Error {
    Error::Poisoned(format!("{path}: {e}"))
}
