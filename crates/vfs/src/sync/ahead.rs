//! Stages what goes next while the home still executes what went before, so that the wire never waits for the home's disk
//! or for an answer. It is a guess: what is staged has no effect, and an operation takes it only where it is, byte for
//! byte, what it would have staged itself.

use super::content::{Content, Slice};
use super::queue::Group;
use crate::limits;
use crate::volume::Volume;
use hashbrown::HashSet;
use home::{OpId, Piece, Result};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// What is staged, or on its way, for operations that are not sent yet, by their numbers. Good only while every answer
/// comes: another connection leads to a home that has nothing of it.
#[derive(Default)]
pub struct Ahead(HashMap<u64, Staging>);

/// The payloads of one operation on their way.
pub struct Staging {
    slices: Vec<Slice>,
    task: JoinHandle<Result<()>>,
}

impl Staging {
    /// Waits until the home has all of it.
    pub async fn held(mut self) -> Result<()> {
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
    pub fn take(&mut self, id: OpId, slices: &[Slice]) -> Option<Staging> {
        self.0.remove(&id.seq).filter(|staging| staging.slices == slices)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Tells of the payloads of one operation, in their order, which travel in it.
#[derive(Default)]
pub struct Inline(u64);

impl Inline {
    /// Whether a payload of this length does.
    pub fn takes(&mut self, len: u64) -> bool {
        let short = len <= limits::INLINE_PAYLOAD && self.0 + len <= limits::INLINE_OP;
        self.0 += if short { len } else { 0 };
        short
    }
}

impl Volume {
    /// Stages for the batches that go after this one, if all of it is done.
    pub fn stage_ahead(self: &Arc<Self>, batch: &[&Group], ahead: &mut Ahead) {
        let mut passed: HashSet<u64> = batch.iter().flat_map(|g| g.seqs.iter().copied()).collect();
        let mut next = HashMap::new();
        for _ in 0..limits::BATCHES_AHEAD {
            let staged = self.next_staged(&mut passed);
            if staged.is_empty() {
                break;
            }
            for (seq, slices) in staged {
                let id = OpId { gateway: self.shared.gateway, volume: self.id, seq };
                let staging = ahead.take(id, &slices).or_else(|| self.begin_staging(id, slices));
                next.extend(staging.map(|staging| (seq, staging)));
            }
        }
        ahead.0 = next;
    }

    /// What the batch that goes after operations `passed` has to stage, by operation; nothing where that may still change.
    fn next_staged(&self, passed: &mut HashSet<u64>) -> Vec<(u64, Vec<Slice>)> {
        let queue = &self.tree.lock().queue;
        let groups = queue.select_after(self.env.clock.instant(), passed);
        passed.extend(groups.iter().flat_map(|g| g.seqs.iter().copied()));
        let staged = groups.iter().filter_map(|group| {
            let mut content = Content::default();
            group.seqs.iter().filter_map(|seq| queue.get(*seq)).for_each(|p| content.lay(&p.change));
            let slices = staged(&content.into_pieces());
            (!slices.is_empty()).then_some((*group.seqs.last()?, slices))
        });
        staged.collect()
    }

    /// `None` where the local disk does not give the bytes back, which is seen when it is their turn.
    fn begin_staging(self: &Arc<Self>, id: OpId, slices: Vec<Slice>) -> Option<Staging> {
        let bytes =
            slices.iter().map(|slice| self.bytes_of(slice)).collect::<crate::env::Result<_>>().ok()?;
        let home = self.home.clone();
        let task = tokio::spawn(async move { super::push::stage(&*home, id, bytes).await });
        Some(Staging { slices, task })
    }
}

/// Those payloads of an operation that are staged before it.
pub fn staged(pieces: &[Piece<Slice>]) -> Vec<Slice> {
    let mut inline = Inline::default();
    let payloads = pieces.iter().filter_map(|piece| match piece {
        Piece::Data(_, slice) => Some(slice),
        Piece::Truncate(_) => None,
    });
    payloads.filter(|slice| !inline.takes(slice.len as u64)).cloned().collect()
}
