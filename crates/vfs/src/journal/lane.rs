//! The journal of one volume, as the engine sees it: append now, wait for durability when it matters.

use super::record::Body;
use super::space::Space;
use super::writer::{Pending, Writer};
use super::{Limits, Shared};
use crate::data::DataLog;
use crate::env::{Error, Result};
use crate::news;
use oncrpc::xdr::{Writer as XdrWriter, Xdr};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The journal of one volume. Records are numbered 1, 2, 3… in the order of the calls of [`Lane::append`].
pub struct Lane {
    shared: Arc<Shared>,
    limits: Limits,
    data: Arc<DataLog>,
    buffer: Mutex<Buffer>,
    writer: Mutex<Writer>,
    progress: news::Sender<Progress>,
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
    /// What is held on disk for further records.
    space: Space,
    /// No further segment could be had when one was last wanted.
    short: bool,
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
    pub(super) fn new(
        shared: Arc<Shared>,
        data: Arc<DataLog>,
        writer: Writer,
        space: Space,
        last: u64,
    ) -> Lane {
        let lane = Lane {
            limits: shared.limits,
            shared,
            data,
            buffer: Mutex::new(Buffer {
                last,
                pending: VecDeque::new(),
                bytes: 0,
                queued: false,
                space,
                short: false,
            }),
            bytes: AtomicU64::new(writer.bytes()),
            writer: Mutex::new(writer),
            progress: news::Sender::new(Progress { synced: last, ..Progress::default() }),
            synced: AtomicU64::new(last),
            forget: AtomicU64::new(0),
        };
        // The first records need a place before the commit thread has looked.
        lane.tend(&mut lane.writer.lock());
        lane
    }

    /// Buffers a record and answers its number. Never waits for the disk; without a call of [`Lane::synced`] the
    /// record becomes durable within about a second.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a disk error; [`Error::Full`] where too much is buffered, or no space is held for
    /// the record and the outcomes of all open changes; [`Error::TooBig`]. [`Body::Retire`], [`Body::Vanish`], [`Body::Amend`]
    /// and [`Body::Late`] use the space that is held for outcomes, and are never too much.
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
        let outcome = matches!(body, Body::Retire(_) | Body::Vanish(_) | Body::Amend(_) | Body::Late(_));
        if let Err(e) = buffer.admit(size, outcome, &self.limits) {
            drop(buffer);
            self.shared.request(self);
            return Err(e);
        }
        match body {
            Body::Change(_) => buffer.space.opened(),
            Body::Retire(_) => buffer.space.closed(1),
            Body::Vanish(seqs) => buffer.space.closed(seqs.len() as u64),
            Body::Amend(_) | Body::Late(_) | Body::Bind(_) => {}
        }
        buffer.space.place(size);
        buffer.last += 1;
        buffer.bytes += size;
        record.seq = buffer.last;
        buffer.pending.push_back(record);
        let full =
            buffer.bytes > self.limits.eager || (!buffer.short && buffer.space.left() < self.limits.wanted());
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

    /// Makes durable soon what is buffered.
    pub fn hurry(&self) {
        self.shared.request(self);
    }

    /// Whether the record is durable.
    pub fn is_synced(&self, seq: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= seq
    }

    /// Whether a record that carries so many bytes would be taken now, as far as space is concerned.
    pub fn has_room(&self, bytes: u64) -> bool {
        const REST: u64 = 4096;
        // One that fits in no segment is refused, however many are allocated.
        let room = bytes > self.limits.record_max()
            || self.buffer.lock().admit(bytes + REST, false, &self.limits).is_ok();
        if !room {
            self.shared.request(self);
        }
        room
    }

    /// Whether at most half of what may be buffered is. Outcomes are always taken: whoever causes them waits for this
    /// first, so that not too much is buffered.
    pub fn keeps_up(&self) -> bool {
        self.buffer.lock().bytes <= self.limits.buffer / 2
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
        !buffer.pending.is_empty() || buffer.short
    }

    /// Whether a segment could not be had when it was last wanted.
    pub(super) fn is_stalled(&self) -> bool {
        self.buffer.lock().short
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
            Err(Error::Poisoned(why)) => self.fail(why),
            Err(e) => self.fail(e.to_string()),
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
            let next = || self.buffer.lock().space.take();
            let synced = writer.commit(batch, self.synced.load(Ordering::Acquire), next)?;
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

    /// Deletes what may go and claims the space that the next records need.
    fn tend(&self, writer: &mut Writer) {
        if self.poisoned().is_some() {
            return;
        }
        if let Err(e) = writer.forget_below(self.forget.load(Ordering::Acquire)) {
            tracing::warn!("journal: {e}");
        }
        let mut made_room = false;
        let short = loop {
            let mut buffer = self.buffer.lock();
            let Buffer { space, pending, .. } = &mut *buffer;
            space.recount(writer.free(), pending.iter().map(Pending::footprint));
            if let Some(spare) = space.surplus(self.limits.wanted()) {
                drop(buffer);
                writer.remove(spare);
                continue;
            }
            if space.left() >= self.limits.wanted() {
                break None;
            }
            let claimed = space.claim();
            drop(buffer);
            match claimed {
                Ok(()) => {}
                // What is only a cache goes first.
                Err(Error::Full(_)) if !made_room && self.data.make_room() => made_room = true,
                Err(e) => break Some(e),
            }
        };
        let (was_short, spares) = {
            let mut buffer = self.buffer.lock();
            (std::mem::replace(&mut buffer.short, short.is_some()), buffer.space.bytes())
        };
        if let Some(e) = short.filter(|_| !was_short) {
            tracing::warn!("journal: no further segment: {e}");
        }
        self.bytes.store(writer.bytes() + spares, Ordering::Relaxed);
    }

    /// Puts back what found no space and tells the waiters.
    fn stall(&self, batch: VecDeque<Pending>, why: String) {
        let mut buffer = self.buffer.lock();
        let newer = std::mem::replace(&mut buffer.pending, batch);
        buffer.pending.extend(newer);
        buffer.short = true;
        drop(buffer);
        self.progress.send_modify(|p| {
            p.attempts += 1;
            p.stalled = Some(why);
        });
    }

    /// Ends the lane after the commit thread has ended.
    pub(super) fn close(&self) {
        self.poison("the journal was stopped".into());
        let spares = self.buffer.lock().space.all();
        for spare in spares {
            if let Err(e) = spare.filled() {
                tracing::debug!("journal: {e}");
            }
        }
    }

    /// Ends the lane after an error of the disk: what it has of the records since the last sync is not known.
    fn fail(&self, why: String) {
        tracing::error!("journal: nothing more is accepted until the server is started again: {why}");
        self.poison(why);
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
    /// Whether a record of `size` bytes may be buffered. Allocates a further segment where that is all it takes.
    fn admit(&mut self, size: u64, outcome: bool, limits: &Limits) -> Result<()> {
        if outcome {
            return Ok(());
        }
        if self.bytes + size + limits.slack() > limits.buffer {
            return Err(Error::Full("the disk does not keep up with the journal".into()));
        }
        while !self.space.admits(size) {
            // The commit thread tries again, after it has made room.
            if self.short || self.space.claim().is_err() {
                self.short = true;
                return Err(Error::Full(
                    "no space for a further journal segment; free some on the state directory's disk".into(),
                ));
            }
        }
        Ok(())
    }
}
