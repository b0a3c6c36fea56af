//! The journal of one volume, as the engine sees it: append now, wait for durability when it matters.

use super::record::Body;
use super::writer::{Pending, Writer};
use super::{Limits, Shared};
use crate::data::DataLog;
use crate::env::{Error, Result};
use oncrpc::xdr::{Writer as XdrWriter, Xdr};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// The journal of one volume. Records are numbered 1, 2, 3… in the order of the calls of [`Lane::append`].
pub struct Lane {
    shared: Arc<Shared>,
    limits: Limits,
    data: Arc<DataLog>,
    buffer: Mutex<Buffer>,
    writer: Mutex<Writer>,
    progress: watch::Sender<Progress>,
    /// Copy of [`Progress::synced`] for those who only look.
    synced: AtomicU64,
    forget: AtomicU64,
    bytes: AtomicU64,
}

/// What was appended and not yet taken by the commit thread.
struct Buffer {
    last: u64,
    pending: VecDeque<Pending>,
    /// Footprint of what is appended and not durable.
    bytes: u64,
    /// Whether the commit thread was asked.
    queued: bool,
    /// Bytes that may still be buffered while no new segment can be had.
    room: Option<u64>,
}

/// What waiters watch.
#[derive(Default)]
struct Progress {
    /// All records up to this one are durable.
    synced: u64,
    /// Increases with every attempt to commit.
    attempts: u64,
    /// The last attempt found no space, and this is why.
    stalled: Option<String>,
    /// Nothing more will become durable, and this is why.
    poisoned: Option<String>,
}

impl Lane {
    pub(super) fn new(shared: Arc<Shared>, data: Arc<DataLog>, writer: Writer, last: u64) -> Lane {
        Lane {
            limits: shared.limits,
            shared,
            data,
            buffer: Mutex::new(Buffer {
                last,
                pending: VecDeque::new(),
                bytes: 0,
                queued: false,
                room: None,
            }),
            bytes: AtomicU64::new(writer.bytes()),
            writer: Mutex::new(writer),
            progress: watch::Sender::new(Progress { synced: last, ..Progress::default() }),
            synced: AtomicU64::new(last),
            forget: AtomicU64::new(0),
        }
    }

    /// Buffers a record and answers its number. Never waits for the disk; without a call of [`Lane::synced`] the
    /// record becomes durable within about a second.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a disk error; [`Error::Full`] where too much is buffered or the disk is full
    /// (a [`Body::Retire`] is still taken then, because it is what frees space); [`Error::TooBig`].
    pub fn append(&self, body: Body) -> Result<u64> {
        let mut w = XdrWriter::new();
        body.encode(&mut w);
        let body_segments = w.into_segments();
        let mut record = Pending { seq: 0, body: body_segments };
        let size = record.footprint();
        if size > self.limits.record_max() {
            return Err(Error::TooBig(format!("a journal record of {size} bytes")));
        }
        if let Some(why) = &self.progress.borrow().poisoned {
            return Err(Error::Poisoned(why.clone()));
        }
        body.extents().for_each(|e| self.data.require_sync(e.segment));
        let mut buffer = self.buffer.lock();
        buffer.admit(size, matches!(body, Body::Retire(_)), &self.limits)?;
        buffer.last += 1;
        buffer.bytes += size;
        record.seq = buffer.last;
        buffer.pending.push_back(record);
        let full = buffer.bytes > self.limits.eager;
        let seq = buffer.last;
        drop(buffer);
        if full {
            self.shared.request(self);
        }
        self.shared.note_dirty();
        Ok(seq)
    }

    /// Waits until the record `seq` and all before it are durable: first the extents that they name, then the
    /// records. Many waiters share one sync.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a disk error, for ever; [`Error::Full`] where the disk is full: the record stays
    /// buffered then, and may become durable later.
    pub async fn synced(&self, seq: u64) -> Result<()> {
        if self.is_synced(seq) {
            return Ok(());
        }
        if seq > self.last() {
            return Err(Error::Io(format!("record {seq} was never appended")));
        }
        let mut watch = self.progress.subscribe();
        let before = watch.borrow().attempts;
        self.shared.request(self);
        loop {
            {
                let p = watch.borrow_and_update();
                if p.synced >= seq {
                    return Ok(());
                }
                if let Some(why) = &p.poisoned {
                    return Err(Error::Poisoned(why.clone()));
                }
                if let (Some(why), true) = (&p.stalled, p.attempts > before) {
                    return Err(Error::Full(why.clone()));
                }
            }
            if watch.changed().await.is_err() {
                return Err(Error::Poisoned("the journal was closed".into()));
            }
        }
    }

    /// Whether the record is durable.
    pub fn is_synced(&self, seq: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= seq
    }

    /// Whether a record that carries so many bytes would be taken now, as far as space is concerned.
    pub fn has_room(&self, bytes: u64) -> bool {
        const REST: u64 = 4096;
        self.buffer.lock().admit(bytes + REST, false, &self.limits).is_ok()
    }

    /// The last record that is durable.
    pub fn durable(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Ends the lane because what it says would no longer be true; a restart reads what is durable.
    pub fn give_up(&self, why: &str) {
        self.poison(why.into());
    }

    /// Why nothing more becomes durable, if so.
    pub fn poisoned(&self) -> Option<String> {
        self.progress.borrow().poisoned.clone()
    }

    /// The number of the last record appended; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.buffer.lock().last
    }

    /// Allows segments whose records are all below `seq` to be deleted, soon. What their bindings say must be
    /// durable elsewhere. The last two segments with records always stay, so that the replies in them do.
    pub fn forget_below(&self, seq: u64) {
        self.forget.fetch_max(seq, Ordering::AcqRel);
        self.shared.request(self);
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Notes that the commit thread is asked; `false` if it was before.
    pub(super) fn mark_queued(&self) -> bool {
        !std::mem::replace(&mut self.buffer.lock().queued, true)
    }

    /// Whether the commit thread was asked to commit this lane.
    pub(super) fn is_queued(&self) -> bool {
        self.buffer.lock().queued
    }

    /// Whether the commit thread has something to do here.
    pub(super) fn has_work(&self) -> bool {
        let buffer = self.buffer.lock();
        !buffer.pending.is_empty() || buffer.room.is_some()
    }

    /// Whether a segment could not be had when it was last wanted.
    pub(super) fn is_stalled(&self) -> bool {
        self.buffer.lock().room.is_some()
    }

    /// Makes durable what is buffered. Called by the commit thread alone.
    pub(super) fn commit(&self) {
        let mut writer = self.writer.lock();
        // Bytes that were unpinned so far have their Retire record in this batch or an earlier one.
        self.data.commit_begins();
        let mut batch = {
            let mut buffer = self.buffer.lock();
            buffer.queued = false;
            std::mem::take(&mut buffer.pending)
        };
        if self.poisoned().is_some() {
            return;
        }
        let result = self.write(&mut writer, &mut batch);
        match result {
            Ok(()) => self.data.commit_ends(),
            Err(Error::Full(why)) => self.stall(batch, why),
            Err(Error::Poisoned(why)) => self.poison(why),
            Err(e) => self.poison(e.to_string()),
        }
        self.tend(&mut writer);
    }

    fn write(&self, writer: &mut Writer, batch: &mut VecDeque<Pending>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.data.sync().map_err(|e| Error::Poisoned(format!("data log: {e}")))?;
        while !batch.is_empty() {
            let before: u64 = batch.iter().map(Pending::footprint).sum();
            let synced = writer.commit(batch, self.synced.load(Ordering::Acquire))?;
            let after: u64 = batch.iter().map(Pending::footprint).sum();
            self.buffer.lock().bytes -= before - after;
            self.synced.store(synced, Ordering::Release);
            self.progress.send_modify(|p| {
                p.synced = synced;
                p.attempts += 1;
                p.stalled = None;
            });
        }
        Ok(())
    }

    /// Deletes what may go and makes the next segment ready.
    fn tend(&self, writer: &mut Writer) {
        if let Err(e) = writer.forget_below(self.forget.load(Ordering::Acquire)) {
            tracing::warn!("journal: {e}");
        }
        let stalled = self.is_stalled();
        let ready = if writer.wants_spare() || stalled { writer.prepare() } else { Ok(true) };
        if let Err(Error::Full(_)) = &ready {
            self.data.make_room();
        }
        if let (Err(e), false) = (&ready, stalled) {
            tracing::warn!("journal: no further segment: {e}");
        }
        let short = ready.map_or(true, |ready| stalled && !ready);
        self.buffer.lock().room = short.then(|| writer.room());
        self.bytes.store(writer.bytes(), Ordering::Relaxed);
    }

    /// Puts back what found no space and tells the waiters.
    fn stall(&self, batch: VecDeque<Pending>, why: String) {
        let mut buffer = self.buffer.lock();
        let newer = std::mem::replace(&mut buffer.pending, batch);
        buffer.pending.extend(newer);
        buffer.room = Some(0);
        drop(buffer);
        self.progress.send_modify(|p| {
            p.attempts += 1;
            p.stalled = Some(why);
        });
    }

    /// Ends the lane after the commit thread has ended.
    pub(super) fn close(&self) {
        self.poison("the journal was stopped".into());
        if let Err(e) = self.writer.lock().finish() {
            tracing::debug!("journal: {e}");
        }
    }

    /// Ends the lane and tells the waiters.
    fn poison(&self, why: String) {
        self.buffer.lock().pending.clear();
        self.progress.send_modify(|p| {
            p.attempts += 1;
            p.poisoned.get_or_insert(why);
        });
    }
}

impl Buffer {
    /// Whether a record of `size` bytes may be buffered.
    fn admit(&self, size: u64, retires: bool, limits: &Limits) -> Result<()> {
        let reserve = if retires { 0 } else { limits.retire_reserve() };
        if self.bytes + size + reserve > limits.buffer {
            return Err(Error::Full("the disk does not keep up with the journal".into()));
        }
        match self.room {
            Some(room) if !retires && self.bytes + size + reserve > room => Err(Error::Full(
                "no space for a further journal segment; free some on the state directory's disk".into(),
            )),
            _ => Ok(()),
        }
    }
}
