//! The space of a lane: which segments are allocated, and for whom.
//!
//! **Whoever accepts a change holds the space of its outcome.** A change is refused unless, once its record has its
//! place in segments that are allocated already, the rest of them still takes an outcome of every open change.
//! So the queue can always go home, however full the disk is, and its outcomes free what they belong to.

use super::Limits;
use super::recover::{Found, path};
use super::segment::HEADER_LEN;
use crate::env::{Disk, Ended, Env, Error, File, Result, Work};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// How many zeros are written at once.
const ZEROS: u64 = 1 << 20;

/// The segments that records will be written to, with their bytes given out in the order of the records.
pub struct Space {
    disk: Arc<dyn Disk>,
    work: Arc<dyn Work>,
    dir: String,
    limits: Limits,
    next_number: u64,
    /// Segments without a header, oldest first.
    spares: VecDeque<Spare>,
    /// Of the current segment and the spares, oldest first, the bytes that no record was given yet.
    free: VecDeque<u64>,
    /// Changes without an outcome.
    open: u64,
}

/// A segment that is allocated, but without a header.
pub struct Spare {
    /// Its number.
    pub number: u64,
    /// Ends when it is filled with zeros and durable. That takes long, and other lanes must not wait for it.
    filling: Ended,
    /// The file then.
    file: Filled,
}

type Filled = Arc<Mutex<Option<Result<Arc<dyn File>>>>>;

impl Spare {
    /// Waits until it is durable.
    pub fn filled(self) -> Result<Arc<dyn File>> {
        let panicked = || Err(Error::Io("a journal thread panicked".into()));
        match self.filling.join() {
            Ok(()) => self.file.lock().take().unwrap_or_else(panicked),
            Err(_) => panicked(),
        }
    }
}

impl Space {
    /// Takes over the spares that were found; `open` changes have no outcome.
    pub fn new(env: &Env, dir: String, limits: Limits, found: &Found, open: usize) -> Result<Space> {
        let mut space = Space {
            disk: env.disk.clone(),
            work: env.work.clone(),
            dir,
            limits,
            next_number: found.next_number,
            spares: VecDeque::new(),
            free: VecDeque::new(),
            open: open as u64,
        };
        for number in &found.spares {
            let at = path(&space.dir, *number);
            let file = space.disk.open(&at).map_err(|e| Error::io(&at, &e))?;
            space.fill(*number, file)?;
        }
        Ok(space)
    }

    /// Allocates one segment more. Where this fails, nothing was lost and it may be tried again.
    pub fn claim(&mut self) -> Result<()> {
        let number = self.next_number;
        self.next_number += 1;
        let at = path(&self.dir, number);
        let file = self.disk.create(&at).map_err(|e| Error::io(&at, &e))?;
        if let Err(e) = file.allocate(self.limits.segment) {
            // Without a header the file says nothing; recovery removes it if this does not.
            let _ = self.disk.remove(&at);
            return Err(Error::io(format_args!("allocate {at}"), &e));
        }
        self.fill(number, file)?;
        self.free.push_back(self.limits.segment - HEADER_LEN);
        Ok(())
    }

    /// Fills an allocated segment with zeros, in the background, so that syncs of it need not write metadata.
    fn fill(&mut self, number: u64, file: Arc<dyn File>) -> Result<()> {
        let (disk, dir, len) = (self.disk.clone(), self.dir.clone(), self.limits.segment);
        let filled = Filled::default();
        let tell = filled.clone();
        let work = move || {
            let zeros = vec![0; len.min(ZEROS) as usize];
            let mut parts = (0..len).step_by(zeros.len());
            let write = |at: u64| file.pwrite_all(&[&zeros[..(len - at).min(ZEROS) as usize]], at);
            let filled: io::Result<()> = parts.try_for_each(write);
            let durable = filled.and_then(|()| file.sync_data()).and_then(|()| disk.sync_dir(&dir));
            *tell.lock() = Some(durable.map(|()| file).map_err(|e| Error::io(path(&dir, number), &e)));
        };
        let filling = self.work.run("journal-space", Box::new(work));
        let filling = filling.map_err(|e| Error::io("start a thread", &e))?;
        self.spares.push_back(Spare { number, filling, file: filled });
        Ok(())
    }

    /// The oldest spare, which becomes the current segment; one more is allocated if there is none.
    pub fn take(&mut self) -> Result<Spare> {
        if self.spares.is_empty() {
            self.claim()?;
        }
        self.spares.pop_front().ok_or_else(|| Error::Io("no journal segment".into()))
    }

    /// The newest spare, to be given back, if more than twice `wanted` bytes are held for changes without it.
    pub fn surplus(&mut self, wanted: u64) -> Option<Spare> {
        let spare = self.limits.segment - HEADER_LEN;
        let whole = self.free.len() > 1 && self.free.back() == Some(&spare);
        let surplus = whole && self.left() >= 2 * wanted + spare;
        surplus.then(|| self.spares.pop_back()).flatten()
    }

    /// Every spare, to wait for.
    pub fn all(&mut self) -> VecDeque<Spare> {
        std::mem::take(&mut self.spares)
    }

    /// Bytes of spares.
    pub fn bytes(&self) -> u64 {
        self.spares.len() as u64 * self.limits.segment
    }

    /// Counts anew what is free: so much in the current segment, and all of the spares, but for records of these
    /// sizes that wait to be written.
    pub fn recount(&mut self, current: Option<u64>, waiting: impl Iterator<Item = u64>) {
        let spares = self.spares.iter().map(|_| self.limits.segment - HEADER_LEN);
        self.free = current.into_iter().chain(spares).collect();
        waiting.for_each(|size| self.place(size));
    }

    /// Whether a record that is no outcome may be accepted.
    pub fn admits(&self, size: u64) -> bool {
        let mut segments = self.free.iter().skip_while(|free| **free < size);
        let Some(first) = segments.next() else { return false };
        let rest: u64 = segments.map(|free| self.for_outcomes(*free)).sum();
        self.for_outcomes(first - size) + rest >= self.kept() + self.limits.outcome
    }

    /// Gives a record its place, if there is one. A record does not span segments, and none goes back to an older one.
    pub fn place(&mut self, size: u64) {
        while let Some(free) = self.free.front_mut() {
            if *free >= size {
                *free -= size;
                return;
            }
            self.free.pop_front();
        }
    }

    /// A change was accepted.
    pub fn opened(&mut self) {
        self.open += 1;
    }

    /// So many changes have their outcomes.
    pub fn closed(&mut self, count: u64) {
        self.open = self.open.saturating_sub(count);
    }

    /// Bytes for records that are no outcomes.
    pub fn left(&self) -> u64 {
        let all: u64 = self.free.iter().map(|free| self.for_outcomes(*free)).sum();
        all.saturating_sub(self.kept())
    }

    /// What only outcomes may use.
    fn kept(&self) -> u64 {
        self.limits.slack() + self.open * self.limits.outcome
    }

    /// What outcomes can use of so many bytes: the end of a segment may be too short for the next one.
    fn for_outcomes(&self, free: u64) -> u64 {
        free.saturating_sub(self.limits.outcome)
    }
}
