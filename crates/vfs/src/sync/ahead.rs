//! Stages what goes next while the home still executes what went before, or is just being claimed, so that the wire never
//! waits for the home's disk or for an answer. It is a guess: what is staged has no effect, and an operation takes it only where it is, byte for
//! byte, what it would have staged itself.

use super::content::{Content, Slice};
use super::queue::{Group, Queue};
use super::spool::Spooling;
use crate::limits;
use crate::volume::Volume;
use hashbrown::HashSet;
use home::{OpId, Piece, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinHandle;

/// What is staged, or on its way, for operations that are not sent yet, by their numbers. Good only while every answer
/// comes: another connection leads to a home that has nothing of it.
#[derive(Default)]
pub struct Ahead {
    staged: HashMap<u64, Staging>,
    /// What goes next travels as a whole: the home did not have what it was believed to have.
    pub whole: bool,
    /// The same on the home's disk.
    pub spooling: Spooling,
}

/// The payloads of one operation on their way.
pub struct Staging {
    id: OpId,
    slices: Vec<Slice>,
    task: JoinHandle<Result<Vec<u64>>>,
}

impl Staging {
    /// What they are staged as.
    pub fn id(&self) -> OpId {
        self.id
    }

    /// Waits until the home has all of it, but for what it has to copy; answers the files of which it does.
    pub async fn held(mut self) -> Result<Vec<u64>> {
        (&mut self.task).await.unwrap_or_else(|e| Err(home::Error::new(home::ErrorKind::Io, e.to_string())))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ahead {
    /// What was staged for an operation, if it is just this.
    pub fn take(&mut self, seq: u64, slices: &[Slice]) -> Option<Staging> {
        self.staged.remove(&seq).filter(|staging| staging.slices == slices)
    }

    /// Another connection leads to a home that has nothing of it, but for what is on its disk.
    pub fn clear(&mut self) {
        self.staged.clear();
        self.spooling.interrupted();
    }
}

/// Tells of the payloads of one operation, in their order, which travel in it.
pub struct Inline {
    taken: u64,
    none: bool,
}

impl Inline {
    /// For these payloads. `copies`: what is staged may be what the home has already, so that of many none travels in the
    /// operation.
    pub fn new(pieces: &[Piece<Slice>], copies: bool) -> Inline {
        let all: u64 = payloads(pieces).map(|slice| slice.len as u64).sum();
        Inline { taken: 0, none: copies && all > limits::INLINE_OP }
    }

    /// Whether a payload of this length does.
    pub fn takes(&mut self, len: u64) -> bool {
        let short = !self.none && len <= limits::INLINE_PAYLOAD && self.taken + len <= limits::INLINE_OP;
        self.taken += if short { len } else { 0 };
        short
    }
}

fn payloads(pieces: &[Piece<Slice>]) -> impl Iterator<Item = &Slice> {
    pieces.iter().filter_map(|piece| match piece {
        Piece::Data(_, slice) => Some(slice),
        Piece::Truncate(_) => None,
    })
}

impl Volume {
    /// Stages for the batch that goes next while it is not claimed yet, and nothing of it can have been sent before. Answers
    /// the last record that the batch may have, so that it stays the one that is staged for.
    pub fn stage_unclaimed(self: &Arc<Self>, ahead: &mut Ahead) -> u64 {
        if !self.claimed.load(Ordering::Relaxed) {
            self.spool_again(&mut ahead.spooling);
        }
        let (last, staged) = {
            let queue = &self.tree.lock().queue;
            if self.claimed.load(Ordering::Relaxed) || queue.lost().next().is_some() {
                return u64::MAX;
            }
            let groups = queue.select(self.env.clock.instant(), u64::MAX);
            (
                groups.iter().flat_map(|g| &g.seqs).max().copied(),
                staged_for(queue, &groups, self.home.copies()),
            )
        };
        let (Some(last), false) = (last, staged.is_empty()) else { return u64::MAX };
        ahead.staged = staged.into_iter().filter_map(|one| self.stage_one(one, ahead)).collect();
        last
    }

    /// Stages for the batches that go after this one, if all of it is done.
    pub fn stage_ahead(self: &Arc<Self>, batch: &[&Group], ahead: &mut Ahead) {
        let mut passed: HashSet<u64> = batch.iter().flat_map(|g| g.seqs.iter().copied()).collect();
        let mut next = HashMap::new();
        for batches in 1..=limits::BATCHES_AHEAD {
            let staged = self.next_staged(&mut passed, batches, &mut ahead.spooling);
            if staged.is_empty() {
                break;
            }
            next.extend(staged.into_iter().filter_map(|one| self.stage_one(one, ahead)));
        }
        ahead.staged = next;
    }

    /// Stages for the operation with this number and object, if that is not done yet.
    fn stage_one(
        self: &Arc<Self>,
        (seq, object, slices): (u64, u64, Vec<Slice>),
        ahead: &mut Ahead,
    ) -> Option<(u64, Staging)> {
        let staging = ahead.take(seq, &slices).or_else(|| self.begin_staging(object, slices));
        staging.map(|staging| (seq, staging))
    }

    /// What the batch that goes after operations `passed`, which are so many batches, has to stage, by operation and with its
    /// object; nothing where that may still change.
    fn next_staged(
        self: &Arc<Self>,
        passed: &mut HashSet<u64>,
        batches: u32,
        spooling: &mut Spooling,
    ) -> Vec<(u64, u64, Vec<Slice>)> {
        let queue = &self.tree.lock().queue;
        let groups = queue.select_after(self.env.clock.instant(), passed, batches);
        groups.iter().filter(|g| g.spooled).for_each(|g| self.spool_ahead(queue, &g.seqs, spooling));
        passed.extend(groups.iter().flat_map(|g| g.seqs.iter().copied()));
        staged_for(queue, &groups, self.home.copies())
    }

    /// `None` where the local disk does not give the bytes back, which is seen when it is their turn.
    fn begin_staging(self: &Arc<Self>, object: u64, slices: Vec<Slice>) -> Option<Staging> {
        let bytes =
            slices.iter().map(|slice| self.bytes_of(slice)).collect::<crate::env::Result<_>>().ok()?;
        let (id, volume) = (self.next_staging(), self.clone());
        let task = tokio::spawn(async move { volume.stage((id, 0), object, bytes).await });
        Some(Staging { id, slices, task })
    }

    /// What the next payloads are staged as: nothing else ever is. What was staged for nothing may still arrive, over another
    /// pipe and after what is staged in its place.
    pub(super) fn next_staging(&self) -> OpId {
        let seq = self.shared.stagings.fetch_add(1, Ordering::Relaxed);
        OpId { gateway: self.shared.gateway, volume: self.id, seq }
    }
}

/// What these groups have to stage, by the numbers of their operations and with their objects.
fn staged_for(queue: &Queue, groups: &[Group], copies: bool) -> Vec<(u64, u64, Vec<Slice>)> {
    let staged = groups.iter().filter(|group| !group.spooled).filter_map(|group| {
        let mut content = Content::default();
        group.seqs.iter().filter_map(|seq| queue.get(*seq)).for_each(|p| content.lay(&p.change));
        let slices = staged(&content.into_pieces(), copies);
        let last = *group.seqs.last()?;
        (!slices.is_empty()).then_some((last, queue.get(last)?.change.object, slices))
    });
    staged.collect()
}

/// Those payloads of an operation that are staged before it.
pub fn staged(pieces: &[Piece<Slice>], copies: bool) -> Vec<Slice> {
    let mut inline = Inline::new(pieces, copies);
    payloads(pieces).filter(|slice| !inline.takes(slice.len as u64)).cloned().collect()
}
