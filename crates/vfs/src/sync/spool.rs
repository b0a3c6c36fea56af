//! Stages files that are written anew on the home's disk, already while they are written: there a connection that is lost does not
//! undo it, and the operation that uses it changes the name's content in one step.
//!
//! What is staged under one name is only ever added to: a record's bytes have one place in it for as long as they are unsent.

use super::content::{Slice, length};
use super::place::Ready;
use super::queue::{Queue, Spools};
use crate::inode::local;
use crate::journal::{Extent, Stored};
use crate::limits;
use crate::volume::Volume;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use home::op::{Spooled, Staged};
use home::{Error, ErrorKind, Link, Op, OpId, Payload, Piece, Placed, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// Files that are staged on the home's disk.
#[derive(Default)]
pub struct Spooling {
    /// By object, and by which of its writes in a batch it is: one may become the file that another one writes to.
    files: BTreeMap<(u64, usize), File>,
    /// Nothing is before then, since it could not be; monotonic.
    paused: Option<Duration>,
}

/// One of them.
struct File {
    /// What it is staged as.
    id: OpId,
    /// What is staged, or to be, one behind the other, with where each begins.
    parts: Vec<(u64, Slice)>,
    /// Where what is stored begins.
    places: HashMap<Key, u64>,
    end: u64,
    /// Operations up to this number were looked through.
    seen: u64,
    /// On its way, as long as the connection lives.
    way: Option<Way>,
    /// How often its operation found that the home does not have it.
    attempts: u32,
}

/// Bytes that are staged one behind the other, and where they begin.
type Run<'a> = (u64, Vec<&'a Slice>);

/// What is staged, and how.
#[derive(Clone, Copy)]
struct Target {
    id: OpId,
    object: u64,
    /// All that is sent travels, whatever the home has elsewhere.
    whole: bool,
}

struct Way {
    parts: UnboundedSender<(u64, Slice)>,
    task: JoinHandle<Result<()>>,
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What tells stored bytes from all others of a file.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Extent(Extent),
    /// Where they are in memory, which they share with the record as long as that is unsent, and their length.
    Inline(usize, usize),
}

impl Key {
    fn of(stored: &Stored) -> Key {
        match stored {
            Stored::Extent(extent) => Key::Extent(*extent),
            Stored::Inline(bytes) => Key::Inline(bytes.as_ptr() as usize, bytes.len()),
        }
    }
}

impl File {
    fn new(id: OpId) -> File {
        let (parts, places) = Default::default();
        File { id, parts, places, end: 0, seen: 0, way: None, attempts: 0 }
    }

    /// Adds bytes behind all others, if they are not among them.
    fn add(&mut self, stored: &Stored) {
        let len = length(stored) as u64;
        if len == 0 || self.places.contains_key(&Key::of(stored)) {
            return;
        }
        let part = (self.end, Slice::whole(stored));
        if let Some(way) = &self.way {
            // Where that has ended it is seen by whoever waits for it.
            let _ = way.parts.send(part.clone());
        }
        self.places.insert(Key::of(stored), self.end);
        self.parts.push(part);
        self.end += len;
    }

    fn place(&self, slice: &Slice) -> Option<u64> {
        self.places.get(&Key::of(&slice.stored)).map(|at| at + slice.skip as u64)
    }

    /// The pieces, those that lie one behind the other here and there as one, with the slices of each.
    fn runs<'a>(&self, pieces: &'a [Piece<Slice>]) -> Option<Vec<Piece<Run<'a>>>> {
        let (mut runs, mut next) = (Vec::<Piece<Run>>::new(), None);
        for piece in pieces {
            let (at, slice) = match piece {
                Piece::Truncate(size) => {
                    next = None;
                    runs.push(Piece::Truncate(*size));
                    continue;
                }
                Piece::Data(at, slice) => (*at, slice),
            };
            let place = self.place(slice)?;
            match runs.last_mut() {
                Some(Piece::Data(_, (_, slices))) if next == Some((at, place)) => slices.push(slice),
                _ => runs.push(Piece::Data(at, (place, vec![slice]))),
            }
            next = Some((at + slice.len as u64, place + slice.len as u64));
        }
        Some(runs)
    }
}

impl Spooling {
    /// What a batch may leave to them; `None` where nothing can be staged so.
    pub fn allowed(&mut self, volume: &Volume) -> Option<Spools> {
        let from = volume.shared.spool_from?;
        let now = volume.env.clock.instant();
        self.paused = self.paused.filter(|until| *until > now);
        let most = limits::SPOOL_MOST.min(volume.shared.budget.cap() / limits::SPOOL_SHARE);
        let works = self.paused.is_none() && volume.home.spools();
        works.then_some(Spools { from, most, files: limits::SPOOL_FILES })
    }

    /// The connection was lost, or the home does not have what it should: it is asked what it has.
    pub fn interrupted(&mut self) {
        self.files.values_mut().for_each(|file| file.way = None);
    }

    /// The home does not have what an operation was sent for. Whether that is to be expected once more.
    pub fn is_to_be_sent(&mut self, objects: &[u64]) -> bool {
        self.interrupted();
        let mut again = false;
        for object in objects {
            for (_, file) in self.files.iter_mut().filter(|((id, _), _)| id == object) {
                file.attempts += 1;
                again |= file.attempts < limits::SPOOL_ATTEMPTS;
            }
        }
        again
    }

    /// The home has answered what became of an operation, or its bytes are to be put together anew.
    pub fn forget(&mut self, object: u64) {
        self.files.retain(|(id, _), _| *id != object);
    }

    /// Nothing is staged so for a while. An operation may wait for its turn with what is not on its way any more.
    pub fn pause(&mut self, volume: &Volume) {
        self.paused = Some(volume.env.clock.instant() + limits::SPOOL_PAUSE);
        self.give_up(volume, |_, file| file.way.is_some());
        self.files.clear();
    }

    /// Files that no operation will refer to keep no room at the home.
    fn give_up(&mut self, volume: &Volume, is_moot: impl Fn(u64, &File) -> bool) {
        let files = std::mem::take(&mut self.files).into_iter();
        let (moot, kept): (BTreeMap<_, _>, _) = files.partition(|((object, _), file)| is_moot(*object, file));
        self.files = kept;
        // With the connection goes what it was to be held for: the next claim removes it.
        let is_up = volume.home.status().link == Link::Up;
        for file in moot.into_values().filter(|file| is_up && !file.parts.is_empty()) {
            let (home, id) = (volume.home.clone(), file.id);
            tokio::spawn(async move { home.unspool(id).await });
        }
    }

    fn file(&mut self, volume: &Volume, object: (u64, usize)) -> &mut File {
        self.files.entry(object).or_insert_with(|| File::new(volume.next_staging()))
    }
}

impl Volume {
    /// Files that were removed, or given up, before they went home are not staged any more.
    pub fn give_up_spools(&self, spooling: &mut Spooling) {
        let tree = self.tree.lock();
        spooling.give_up(self, |object, _| tree.peek(object).is_none_or(|inode| inode.pending == 0));
    }

    /// Stages what was written since of files that wait for their writers.
    pub fn spool_written(self: &Arc<Self>, spooling: &mut Spooling) {
        let Some(spools) = spooling.allowed(self) else { return };
        let tree = &mut *self.tree.lock();
        let queue = &tree.queue;
        let last = queue.iter().next_back().map_or(0, |(seq, _)| seq);
        for (object, first) in queue.written(spools.from) {
            if spooling.files.len() >= limits::SPOOL_FILES && !spooling.files.contains_key(&(object, 0)) {
                continue;
            }
            let file = spooling.file(self, (object, 0));
            let from = first.max(file.seen + 1);
            queue.stored_by(object, from).for_each(|stored| file.add(stored));
            file.seen = last;
            self.go_on(object, file);
        }
    }

    /// The same of the operations of a batch that goes later.
    pub(super) fn spool_ahead(self: &Arc<Self>, queue: &Queue, seqs: &[u64], spooling: &mut Spooling) {
        let writes = || seqs.iter().filter_map(|seq| queue.get(*seq));
        let Some(object) = writes().next().map(|p| p.change.object) else { return };
        if spooling.files.len() >= limits::SPOOL_FILES && !spooling.files.contains_key(&(object, 0)) {
            return;
        }
        let file = spooling.file(self, (object, 0));
        let mut content = super::content::Content::default();
        writes().for_each(|p| content.lay(&p.change));
        for piece in content.into_pieces() {
            if let Piece::Data(_, slice) = piece {
                file.add(&slice.stored);
            }
        }
        self.go_on(object, file);
    }

    /// Asks for what the home has already of all of them: what nobody asks for goes with a claim.
    pub(super) fn spool_again(self: &Arc<Self>, spooling: &mut Spooling) {
        spooling.files.iter_mut().for_each(|((object, _), file)| self.go_on(*object, file));
    }

    /// Sends what a file has, if that does not go on by itself.
    fn go_on(self: &Arc<Self>, object: u64, file: &mut File) {
        if file.way.is_some() {
            return;
        }
        let (sender, receiver) = unbounded_channel();
        // What was staged of it before is known when the home has answered.
        file.parts.iter().for_each(|part| drop(sender.send(part.clone())));
        let target = Target { id: file.id, object, whole: file.attempts > 1 };
        let task = tokio::spawn(spool_parts(Arc::downgrade(self), target, receiver));
        file.way = Some(Way { parts: sender, task });
    }

    /// Stages parts that lie one behind the other, but for those that the home holds already.
    async fn spool_window(&self, to: Target, held: u64, window: Vec<(u64, Slice)>) -> Result<()> {
        let unheld = |(at, slice): &&(u64, Slice)| at + slice.len as u64 > held;
        let Some(from) = window.iter().find(unheld).map(|(at, _)| *at) else { return Ok(()) };
        let loads = window.iter().filter(unheld).map(|(_, slice)| self.bytes_of(slice));
        let payloads: Vec<Bytes> = loads.collect::<crate::env::Result<_>>().map_err(local)?;
        match to.whole {
            true => super::push::stage(&*self.home, (to.id, from), payloads).await,
            false => self.stage((to.id, from), to.object, payloads).await.map(drop),
        }
    }

    /// An operation whose bytes lie on the home's disk: waits until they do. `object`: with how many writes to it go before it.
    ///
    /// # Errors
    /// What kept the home from that.
    pub(super) async fn load_spooled(
        self: &Arc<Self>,
        one: &Ready,
        object: (u64, usize),
        spooling: &mut Spooling,
    ) -> Result<Placed> {
        let Op::Write { file: at, base, pieces } = &one.op else { return Err(ErrorKind::Invalid.into()) };
        let file = spooling.file(self, object);
        for piece in pieces {
            if let Piece::Data(_, slice) = piece {
                file.add(&slice.stored);
            }
        }
        // What was sent before may be known as it is.
        let mut way = None;
        if !one.resent || file.attempts > 0 {
            self.go_on(object.0, file);
            way = file.way.take();
        }
        if let Some(way) = &mut way {
            way.parts = unbounded_channel().0;
        }
        // Meanwhile the last of it is under way.
        let runs = file.runs(pieces).ok_or(ErrorKind::Io)?;
        let pieces = self.hashed(file.id, runs).await?;
        if let Some(way) = &mut way {
            (&mut way.task).await.unwrap_or_else(|e| Err(Error::new(ErrorKind::Io, e.to_string())))?;
        }
        let op = Op::Write { file: at.clone(), base: *base, pieces };
        Ok(Placed { id: one.id, time: one.time, plain: one.plain, resent: one.resent, op })
    }

    async fn hashed(&self, op: OpId, runs: Vec<Piece<Run<'_>>>) -> Result<Vec<Piece<Payload>>> {
        let mut pieces = Vec::with_capacity(runs.len());
        for run in runs {
            pieces.push(match run {
                Piece::Truncate(size) => Piece::Truncate(size),
                Piece::Data(at, (place, slices)) => {
                    let (mut hasher, mut len) = (blake3::Hasher::new(), 0);
                    for slice in slices {
                        hasher.update(&self.bytes_of(slice).map_err(local)?);
                        len += slice.len as u64;
                        tokio::task::yield_now().await;
                    }
                    let range = Staged { op, at: place, len };
                    Piece::Data(at, Payload::Spooled(Spooled { range, hash: *hasher.finalize().as_bytes() }))
                }
            });
        }
        Ok(pieces)
    }
}

/// Stages parts until there are no more. Does not keep the volume while it waits for one.
async fn spool_parts(volume: Weak<Volume>, to: Target, parts: UnboundedReceiver<(u64, Slice)>) -> Result<()> {
    let Some(home) = volume.upgrade().map(|volume| volume.home.clone()) else { return Ok(()) };
    let held = home.spool(to.id).await?;
    let windows = stream::unfold(parts, |mut parts| async {
        let window = next_window(&mut parts).await;
        (!window.is_empty()).then_some((window, parts))
    });
    let sends = windows.map(|window| {
        let volume = volume.upgrade();
        async move {
            match volume {
                Some(volume) => volume.spool_window(to, held, window).await,
                None => Ok(()),
            }
        }
    });
    sends.buffered(limits::SPOOL_WINDOWS).try_collect().await
}

/// Parts that lie one behind the other, as many as are loaded at a time; none when there are no more.
async fn next_window(parts: &mut UnboundedReceiver<(u64, Slice)>) -> Vec<(u64, Slice)> {
    let Some(first) = parts.recv().await else { return Vec::new() };
    let mut bytes = first.1.len as u64;
    let mut window = vec![first];
    while bytes < limits::SPOOL_WINDOW
        && let Ok(next) = parts.try_recv()
    {
        bytes += next.1.len as u64;
        window.push(next);
    }
    window
}
