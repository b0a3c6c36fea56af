//! What a home does not know yet, in the order in which it was accepted; and which of it may go next.
//!
//! Order is kept wherever one operation depends on another. Writes to one file that nothing comes between
//! travel as one operation, without what later ones of them undo. An operation that the home refused is parked: what
//! depends on it waits, the rest goes on.

pub mod demand;
mod known;
mod plain;
mod selection;
mod stops;
mod unrecorded;
mod writing;

use crate::journal::Change;
use crate::limits;
use crate::sync::frozen::{Said, Stopped};
use bytes::Bytes;
use demand::{Demand, Demands, held};
use hashbrown::{HashMap, HashSet};
use home::{Claimed, ErrorKind, HomePath, Name, Op, Result, XattrName};
use known::Known;
use selection::Selection;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::oneshot;
use unrecorded::Unrecorded;
pub use writing::Spools;
use writing::Writing;

/// An operation that was accepted and has no outcome.
#[derive(Debug)]
pub struct Pending {
    /// The change; its bytes are in the data log.
    pub change: Change,
    /// The session that made it.
    pub origin: u64,
    /// Bytes that it carries.
    pub bytes: u64,
    /// What it may need of the space of a file system, and of which.
    pub demand: Demand,
    pub fs: u64,
    /// When it was accepted; monotonic.
    pub since: Duration,
    /// It may have been executed already.
    pub resent: bool,
    /// Why the home refused it.
    pub parked: Option<ErrorKind>,
    /// When a refused operation is tried again; monotonic.
    pub again: Option<Duration>,
    /// What it met was taken for our own, so that it was made to that, and sent again.
    pub rebuilt: bool,
    /// An earlier process accepted it: which bytes its base had is not known for certain any more.
    pub recovered: bool,
    /// How often what it met was looked at, and it was sent again.
    pub looked_at: u32,
    /// How often it was refused since the start.
    pub refusals: u32,
    /// It was refused once, or waited for such a one, or has another form: what came after it may have been executed before it.
    pub late: bool,
    /// It met a conflict that waits for a person.
    pub stopped: Option<Stopped>,
    /// It waits because an earlier one in its folder is stopped.
    pub frozen: bool,
    /// What a person has said of the conflict that it is stopped at.
    pub said: Option<Said>,
    /// It is laid over the caches.
    pub overlaid: bool,
    /// Who waits for its outcome.
    pub waiter: Option<oneshot::Sender<Result<()>>>,
}

impl Pending {
    /// Whether somebody waits for its outcome.
    pub fn is_awaited(&self) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| !waiter.is_closed())
    }

    /// Whether it stays here for now because the home refused it, or because an earlier one is stopped.
    pub fn is_held(&self, now: Duration) -> bool {
        self.frozen || self.parked.is_some() && self.again.is_none_or(|again| again > now)
    }

    /// The same, no longer stopped at a conflict.
    pub fn resumed(self) -> Pending {
        Pending { stopped: None, said: None, parked: None, again: None, ..self }
    }
}

/// Operations of one volume without an outcome, by number.
#[derive(Debug, Default)]
pub struct Queue {
    ops: BTreeMap<u64, Pending>,
    bytes: u64,
    demands: Demands,
    /// How many are not laid over the caches.
    hidden: usize,
    /// How many were made in mode `strict`.
    plain: usize,
    /// The last record that says of an operation that it was refused, given up, or has another form.
    decided: u64,
    /// The last record that brings home a part of what was accepted before other records that are in front of it.
    behind: u64,
    /// Operations up to this number are wanted at the home without delay.
    urgent: u64,
    /// Somebody was promised that all up to these numbers is at the home.
    promises: BTreeSet<u64>,
    /// So was somebody up to each number before this one: there were too many to tell them apart.
    all_promised: u64,
    /// Operations that may have been executed and whose outcome is not known.
    under_way: HashSet<u64>,
    /// What was sent since the last time that all outcomes were durable.
    unrecorded: Unrecorded,
    /// See [`Queue::outcomes`].
    outcomes: u64,
    /// Operations that may have been executed and whose answers are lost.
    lost: BTreeSet<u64>,
    /// Those that were looked for and not found, or that the home does not know since its power failed: a part of them may
    /// be left.
    half: HashSet<u64>,
    /// Answers were lost since the home was last asked about them.
    unasked: bool,
    /// Operations under whose numbers the home knows what may have been executed: what is sent again of that has to be
    /// what it was.
    known: BTreeSet<u64>,
    /// Writes that the home had begun under these numbers when its power failed: the same holds for them.
    torn: BTreeSet<u64>,
    /// Writes that travelled under the number of a later one, which the home knows.
    travelled: HashMap<u64, u64>,
    /// By object, the operations that take a name away from it.
    moves: HashMap<u64, Vec<u64>>,
    /// By object, the operations on its extended attributes.
    xattrs: HashMap<u64, Vec<u64>>,
    /// Bytes of the values of those.
    held: usize,
    /// Operations that are stopped at a conflict, with the folders in which later ones wait.
    stops: Vec<(u64, HomePath)>,
    /// One of them has gone since.
    thaws: bool,
    /// How often the bytes of a batch are halved, because connections were lost before more had got through.
    halved: u32,
    batch: BatchBytes,
    /// See [`Spools`]; `None` where the home has none.
    spools: Option<Spools>,
    /// Whether files that are made or written anew wait for their writers.
    waits: bool,
    /// Those whose writers may not have come to an end.
    writing: BTreeMap<u64, Writing>,
}

/// Bytes in one batch.
#[derive(Debug)]
struct BatchBytes(u64);

impl Default for BatchBytes {
    fn default() -> Self {
        BatchBytes(limits::BATCH_BYTES)
    }
}

impl BatchBytes {
    fn halved(&self, times: u32) -> u64 {
        (self.0 >> times).max(1)
    }
}

/// Records that travel as one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Their numbers, ascending. The last one names the operation.
    pub seqs: Vec<u64>,
    /// The object is created earlier in the same batch, so that nobody else can have a version of it.
    pub newborn: bool,
    /// It writes a file anew that is long enough to be staged on the home's disk.
    pub spooled: bool,
}

impl Group {
    /// One operation.
    pub fn one(seq: u64) -> Group {
        Group::of(vec![seq])
    }

    /// Operations on something that was there before.
    pub fn of(seqs: Vec<u64>) -> Group {
        Group { seqs, newborn: false, spooled: false }
    }
}

impl Queue {
    /// Adds an operation behind all others.
    pub fn push(&mut self, seq: u64, op: Pending) {
        self.bytes += op.bytes;
        self.demands.take(op.fs, op.demand);
        self.hidden += usize::from(!op.overlaid);
        self.plain += usize::from(op.change.plain);
        for id in moved(&op.change) {
            self.moves.entry(id).or_default().push(seq);
        }
        if let Op::SetXattr { object, .. } = &op.change.op {
            self.xattrs.entry(*object).or_default().push(seq);
            self.held += held(&op.change);
        }
        self.note_writing(seq, &op);
        self.ops.insert(seq, op);
    }

    /// A batch has so many bytes. Whether files that are made or written anew from now on wait for their writers, where the home
    /// holds them.
    pub fn set_up(&mut self, batch_bytes: u64, waits: bool) {
        (self.batch, self.waits) = (BatchBytes(batch_bytes), waits);
    }

    /// These operations may be executed from now on. No other one can have been whose outcome is not known, but for
    /// those of [`Queue::lost`].
    pub fn begin(&mut self, seqs: impl IntoIterator<Item = u64>) {
        self.under_way = seqs.into_iter().collect();
        self.end_sent();
    }

    /// The answers have been taken in, or they are lost.
    pub fn end(&mut self, lost: bool) {
        if !lost {
            self.under_way.clear();
        }
        for seq in &self.under_way {
            if let Some(op) = self.ops.get_mut(seq) {
                op.resent = true;
                self.lost.insert(*seq);
                self.unasked = true;
            }
        }
    }

    /// Whether answers were lost since the home was last asked about them.
    pub fn is_unasked(&self) -> bool {
        self.unasked
    }

    /// Operations that may have been executed and whose answers are lost, in order.
    pub fn lost(&self) -> impl Iterator<Item = (u64, &Pending)> {
        self.lost.iter().filter_map(|seq| Some((*seq, self.ops.get(seq)?)))
    }

    /// Operations that a claim asks about, in order: those whose answers are lost, and those that were looked for and not
    /// found. A home forgets what it knows of others.
    pub fn in_question(&self) -> Vec<u64> {
        let all: BTreeSet<u64> = self.lost.iter().chain(&self.half).copied().collect();
        all.into_iter().filter(|seq| self.ops.contains_key(seq)).collect()
    }

    /// Record `record` says that an operation was refused, given up, or has another form. Nothing may be sent before it
    /// is durable: after a power cut what was executed later would seem to prove that the operation was executed as it
    /// had been.
    pub fn decide(&mut self, record: u64) {
        self.decided = record;
    }

    /// The last record of [`Queue::decide`].
    pub fn decided(&self) -> u64 {
        self.decided
    }

    /// All of them were looked for: what the home shows of them leaves the queue.
    pub fn looked_for(&mut self) {
        self.half.retain(|seq| self.ops.contains_key(seq));
        self.half.extend(std::mem::take(&mut self.lost));
        self.known.clear();
        self.travelled.clear();
    }

    /// Operations that later ones may pass, or may have passed: they were refused once, are held, or wait for such a one.
    pub fn passed(&self) -> HashSet<u64> {
        let (mut waiting, mut passed) = (Waiting::default(), HashSet::new());
        for (seq, op) in &self.ops {
            if op.late || op.frozen || op.parked.is_some() || waiting.concerns(&op.change) {
                waiting.add(&op.change);
                passed.insert(*seq);
            }
        }
        passed
    }

    /// Notes of what waits for a refused operation, or for one that is stopped or was passed, that this batch passes it. Answers
    /// those of which that was not known yet: once the other one has its outcome nothing else tells it.
    pub fn pass(&mut self, now: Duration, batch: &[Group]) -> Vec<u64> {
        let in_batch: HashSet<u64> = batch.iter().flat_map(|g| &g.seqs).copied().collect();
        let Some(last) = in_batch.iter().max() else { return Vec::new() };
        let (mut waiting, mut passed) = (Waiting::default(), Vec::new());
        for (seq, op) in self.ops.range_mut(..last) {
            let is_passed = op.late && !in_batch.contains(seq);
            if op.is_held(now) || is_passed || waiting.concerns(&op.change) {
                waiting.add(&op.change);
                if !std::mem::replace(&mut op.late, true) {
                    passed.push(*seq);
                }
            }
        }
        passed
    }

    /// Whether the home may have a part of it, left by a power cut.
    pub fn may_be_half(&self, seq: u64) -> bool {
        self.half.contains(&seq)
    }

    /// Whether the home told of any of these that it may have executed it since its machine was started.
    pub fn is_known(&self, seqs: &[u64]) -> bool {
        seqs.iter().any(|seq| self.known.contains(seq))
    }

    /// What a home says that keeps no log.
    pub fn nothing_is_known(&self) -> Claimed {
        let unknown = self.ops.iter().filter(|(_, op)| op.resent).map(|(seq, _)| *seq).collect();
        Claimed { unknown, restarted: true, ..Claimed::default() }
    }

    /// The last of these operations that ran in order, so that all before it were executed as well; 0 if there is none.
    pub fn executed_last(&self, begun: &[u64]) -> u64 {
        let in_order = |seq: &&u64| self.ops.get(seq).is_some_and(|op| !op.late);
        begun.iter().rev().find(in_order).copied().unwrap_or(0)
    }

    /// The last operation up to this one that ran in order; 0 if there is none.
    pub fn ran_last(&self, ran: u64) -> u64 {
        let in_order = |(seq, op): (&u64, &Pending)| (!op.late).then_some(*seq);
        self.ops.range(..=ran).rev().find_map(in_order).unwrap_or(0)
    }

    /// The operations on other file systems of the home than this one.
    pub fn elsewhere(&self, fs: u64) -> HashSet<u64> {
        let is_elsewhere = |op: &Pending| op.fs != 0 && op.fs != fs;
        self.ops.iter().filter(|(_, op)| is_elsewhere(op)).map(|(seq, _)| *seq).collect()
    }

    /// The home told what it knows of all operations. Others of mode `wb` were not executed; those of mode `strict` are
    /// looked for.
    pub fn told(&mut self, claimed: &Claimed) {
        let here = |all: &[u64]| all.iter().copied().filter(|seq| self.ops.contains_key(seq)).collect();
        (self.known, self.torn) = (here(&claimed.begun), here(&claimed.torn));
        let unknown: HashSet<u64> = claimed.unknown.iter().copied().collect();
        self.half.extend(unknown.iter().filter(|seq| self.ops.contains_key(seq)));
        // A write may have travelled with the next ones to its file, under the number of the last of them.
        self.travelled.clear();
        let mut last: HashMap<u64, u64> = HashMap::new();
        for (seq, op) in self.ops.iter().rev().filter(|(_, p)| matches!(p.change.op, Op::Write { .. })) {
            if self.known.contains(seq) {
                last.insert(op.change.object, *seq);
            } else if let Some(last) = last.get(&op.change.object) {
                self.travelled.insert(*seq, *last);
            }
        }
        self.lost.clear();
        for (seq, op) in self.ops.iter_mut().filter(|(_, op)| !op.change.plain) {
            let executed =
                self.known.contains(seq) || self.travelled.contains_key(seq) || unknown.contains(seq);
            op.resent = executed || self.half.contains(seq);
            if executed {
                self.lost.insert(*seq);
            }
        }
        self.unasked = false;
    }

    /// Operations made in mode `strict`, in order; costs nothing where there are none.
    pub fn plain(&self) -> impl Iterator<Item = (u64, &Pending)> {
        let some = (self.plain > 0).then(|| self.iter().filter(|(_, p)| p.change.plain).take(self.plain));
        some.into_iter().flatten()
    }

    /// Whether an operation may have been executed already, or is about to be.
    pub fn is_under_way(&self, seq: u64) -> bool {
        self.under_way.contains(&seq) || self.lost.contains(&seq)
    }

    /// Whether an answer of the home that contains what was executed up to the number `applied` contains this one, which has
    /// no outcome. What was refused, or waited for such a one, comes after its number.
    pub fn is_contained(&self, seq: u64, op: &Pending, applied: u64) -> bool {
        seq <= applied && op.parked.is_none() && (!op.late || self.is_under_way(seq))
    }

    /// Whether operations may have been executed whose answers are lost.
    pub fn is_in_doubt(&self) -> bool {
        let mut sent = self.under_way.iter().chain(&self.lost);
        sent.any(|seq| self.ops.get(seq).is_some_and(|p| p.resent && p.parked.is_none()))
    }

    /// Whether an operation that takes a name away from an object may have been executed already.
    pub fn is_moving(&self, id: u64) -> bool {
        let moving =
            |seq: &u64| self.is_under_way(*seq) && self.ops.get(seq).is_some_and(|p| p.parked.is_none());
        self.moves.get(&id).is_some_and(|seqs| seqs.iter().any(moving))
    }

    /// Whether a write to an object may have been executed already: the home may know it by another identity since.
    pub fn is_writing(&self, id: u64) -> bool {
        let mut sent = self.under_way.iter().chain(&self.lost).filter_map(|seq| self.ops.get(seq));
        sent.any(|p| p.change.object == id && matches!(p.change.op, Op::Write { .. }) && p.parked.is_none())
    }

    /// The name that an unsent operation took away from an object, the last one.
    pub fn taken_from(&self, id: u64) -> Option<(u64, Name)> {
        let op = self.ops.get(self.moves.get(&id)?.last()?)?;
        match &op.change.op {
            Op::Remove { dir, name, .. } => Some((*dir, name.clone())),
            Op::Rename { from, name, object, .. } if *object == id => Some((*from, name.clone())),
            Op::Rename { to, new_name, .. } => Some((*to, new_name.clone())),
            _ => None,
        }
    }

    /// Takes an operation out.
    pub fn remove(&mut self, seq: u64) -> Option<Pending> {
        let op = self.ops.remove(&seq)?;
        self.thaws |= op.stopped.is_some();
        self.bytes -= op.bytes;
        self.demands.settle(op.fs, op.demand);
        self.hidden -= usize::from(!op.overlaid);
        self.plain -= usize::from(op.change.plain);
        self.lost.remove(&seq);
        self.travelled.remove(&seq);
        self.torn.remove(&seq);
        if self.known.remove(&seq) {
            self.travelled.retain(|_, last| *last != seq);
        }
        for id in moved(&op.change) {
            take_from(&mut self.moves, id, seq);
        }
        if let Op::SetXattr { object, .. } = &op.change.op {
            take_from(&mut self.xattrs, *object, seq);
            self.held -= held(&op.change);
        }
        Some(op)
    }

    /// What is unsent of an object's extended attributes and seen already, in order: names with values, those that are
    /// removed without.
    pub fn xattrs(&self, id: u64) -> impl DoubleEndedIterator<Item = (&XattrName, Option<&Bytes>)> {
        let seqs = self.xattrs.get(&id).map_or(&[][..], Vec::as_slice);
        let seen = seqs.iter().filter_map(|seq| self.ops.get(seq)).filter(|p| p.overlaid);
        seen.filter_map(|p| match &p.change.op {
            Op::SetXattr { name, value, .. } => Some((name, value.as_ref())),
            _ => None,
        })
    }

    /// Bytes of values of extended attributes in memory.
    pub fn held(&self) -> usize {
        self.held
    }

    /// An operation.
    pub fn get(&self, seq: u64) -> Option<&Pending> {
        self.ops.get(&seq)
    }

    /// An operation.
    pub fn get_mut(&mut self, seq: u64) -> Option<&mut Pending> {
        self.ops.get_mut(&seq)
    }

    /// All operations in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &Pending)> {
        self.ops.iter().map(|(s, p)| (*s, p))
    }

    /// Those that are not laid over the caches; costs nothing where there are none.
    pub fn hidden(&self) -> impl Iterator<Item = &Pending> {
        let some = (self.hidden > 0).then(|| self.ops.values().filter(|p| !p.overlaid).take(self.hidden));
        some.into_iter().flatten()
    }

    /// Whether the home has refused an operation that is kept.
    pub fn has_parked(&self) -> bool {
        self.ops.values().any(|p| p.parked.is_some())
    }

    /// Whether an operation has to wait for one that the home has refused.
    pub fn is_stuck(&self, seq: u64) -> bool {
        let Some(op) = self.ops.get(&seq) else { return false };
        let mut waiting = Waiting::default();
        for (_, earlier) in self.ops.range(..seq) {
            if earlier.parked.is_some() || waiting.concerns(&earlier.change) {
                waiting.add(&earlier.change);
            }
        }
        waiting.concerns(&op.change)
    }

    /// Whether an operation behind `seq` gives a name to another object than `id`.
    pub fn is_taken_after(&self, seq: u64, dir: u64, name: &Name, id: u64) -> bool {
        let later = self.ops.range(seq + 1..);
        let mut children = later.filter_map(|(_, p)| child_after(&p.change, dir, name).flatten());
        children.any(|child| child != id)
    }

    /// The objects to which operations behind `seq` that may have been executed give a name.
    pub fn may_have_got(&self, seq: u64, dir: u64, name: &Name) -> impl Iterator<Item = u64> {
        let later = self.ops.range(seq + 1..).filter(|(_, p)| p.resent);
        later.filter_map(move |(_, p)| child_after(&p.change, dir, name).flatten())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Bytes that they carry.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What all that was ever here may have needed of the home's space.
    pub fn demands(&self) -> &Demands {
        &self.demands
    }

    /// The first number without an outcome.
    pub fn first(&self) -> Option<u64> {
        self.ops.keys().next().copied()
    }

    /// Asks for everything up to a number to go without delay.
    pub fn hurry(&mut self, seq: u64) {
        self.urgent = self.urgent.max(seq);
    }

    /// A record brings home a part of what was accepted before others that are in front of it.
    pub fn goes_behind(&mut self, seq: u64) {
        self.behind = self.behind.max(seq);
    }

    /// The last such record.
    pub fn behind(&self) -> u64 {
        self.behind
    }

    /// Somebody was promised that everything up to a number is at the home.
    pub fn promise(&mut self, seq: u64) {
        self.hurry(seq);
        let first = self.first().unwrap_or(u64::MAX);
        self.promises.insert(seq);
        self.promises.retain(|promised| *promised >= first);
        if self.promises.len() > limits::PROMISES {
            self.all_promised = seq;
            self.promises.clear();
        }
    }

    /// Whether somebody was promised that an operation `from` is at the home, and not that `to` is.
    pub fn is_promised(&self, from: u64, to: u64) -> bool {
        from < self.all_promised || self.promises.range(from..to).next().is_some()
    }

    /// A batch got through, or was lost with its connection: the next ones are longer or shorter, so that one gets through in the
    /// time that connections live here.
    pub fn got_through(&mut self, whole: bool) {
        self.halved = match whole {
            true => self.halved.saturating_sub(1),
            false => (self.halved + 1).min(limits::BATCH_HALVINGS),
        };
    }

    /// A batch ended at an operation that is sent again, and all behind that travels once more. So may the next ones, where somebody has
    /// changed the modes of many files: they are shorter.
    pub fn ended_early(&mut self) {
        self.halved = (self.halved + 2).min(limits::BATCH_HALVINGS);
    }

    /// How long the next batch may still wait for company; `None`: there is nothing to send.
    pub fn patience(&self, now: Duration) -> Option<Duration> {
        let (seq, oldest) = self.ops.iter().find(|(_, p)| !p.is_held(now))?;
        if let Some(end) = self.written_until(*seq, oldest, now) {
            return Some(end - now);
        }
        if *seq <= self.urgent || self.bytes >= limits::AGING_BYTES || self.ops.len() >= limits::BATCH_OPS {
            return Some(Duration::ZERO);
        }
        Some((oldest.since + limits::AGING).saturating_sub(now))
    }

    /// The operations up to number `last` that go next, or up to the last one that goes first.
    pub fn select(&self, now: Duration, last: u64) -> Vec<Group> {
        let known = Known::of(self, now);
        let ops = self.ops.range(..=last.max(known.last));
        self.gather(now, known, ops, self.halved).0
    }

    /// The operations that go next when these are done, `batches` of them, if no later one can join them.
    pub fn select_after(&self, now: Duration, done: &HashSet<u64>, batches: u32) -> Vec<Group> {
        let left = self.ops.iter().filter(|(seq, _)| !done.contains(*seq));
        let halved = self.halved.saturating_sub(batches);
        let (groups, ended) = self.gather(now, Known::of(self, now), left, halved);
        let wanted = || self.ops.last_key_value().is_some_and(|(last, _)| *last <= self.urgent);
        if ended || wanted() { groups } else { Vec::new() }
    }

    /// A batch of these operations, its bytes halved so often, and whether it ended before the last of them.
    fn gather<'a>(
        &self,
        now: Duration,
        mut known: Known,
        ops: impl Iterator<Item = (&'a u64, &'a Pending)>,
        halved: u32,
    ) -> (Vec<Group>, bool) {
        let mut batch = Selection::new(now, self.spools);
        let mut ended = false;
        for (seq, op) in ops {
            if known.is_behind(self, *seq, op) {
                continue;
            }
            // What the home knows is sent again as what it was.
            let is_new = *seq > known.last;
            let is_told = *seq <= known.told;
            let halved = if is_told { 0 } else { halved };
            batch.spools = if is_told { Some(Spools::ALL) } else { self.spools };
            if is_told {
                batch.goes_whole(op.change.object);
            }
            ended = is_new && (known.has_left() || self.written_until(*seq, op, now).is_some())
                || batch.is_full(self.batch.halved(halved))
                || !batch.take(*seq, op, |seq| self.known.contains(seq) || self.torn.contains(seq));
            if ended {
                break;
            }
        }
        // What has not come to the last record of what it was stands where that one does.
        let is_whole = |last: &u64| !self.travelled.contains_key(last);
        batch.groups.retain(|g| g.seqs.last().is_some_and(is_whole));
        (batch.groups, ended)
    }
}

/// Takes a number out of the list of an object.
fn take_from(lists: &mut HashMap<u64, Vec<u64>>, id: u64, seq: u64) {
    let Some(seqs) = lists.get_mut(&id) else { return };
    seqs.retain(|s| *s != seq);
    if seqs.is_empty() {
        lists.remove(&id);
    }
}

/// What operations work on that have to wait, so that what depends on them waits too.
#[derive(Default)]
pub struct Waiting {
    objects: HashSet<u64>,
    names: HashSet<(u64, home::Name)>,
    /// Directories of these names: they are not what they will be, so that they cannot go yet.
    dirs: HashSet<u64>,
}

impl Waiting {
    /// An operation waits.
    pub fn add(&mut self, change: &Change) {
        self.objects.insert(change.object);
        self.names.extend(names(change));
        self.dirs.extend(names(change).map(|(dir, _)| dir));
    }

    /// Whether an operation has to wait for those before it.
    pub fn concerns(&self, change: &Change) -> bool {
        (!self.objects.is_empty() && objects(change).any(|o| self.objects.contains(&o)))
            || (!self.names.is_empty() && names(change).any(|n| self.names.contains(&n)))
            || destroyed(change).is_some_and(|id| self.dirs.contains(&id))
    }
}

/// The objects that a change works on: those that it needs, and the one that it replaces.
pub fn objects(change: &Change) -> impl Iterator<Item = u64> {
    let replaced = match &change.op {
        Op::Rename { replaced, .. } => replaced.as_ref().map(|(old, _)| *old),
        _ => None,
    };
    needs(change).chain(replaced)
}

/// The objects that must be there for a change to make sense.
pub fn needs(change: &Change) -> impl Iterator<Item = u64> + use<> {
    let dirs = match &change.op {
        Op::Create { dir, .. } | Op::Remove { dir, .. } | Op::Link { dir, .. } => [Some(*dir), None],
        Op::Rename { from, to, .. } => [Some(*from), Some(*to)],
        Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. } => [None; 2],
    };
    std::iter::once(change.object).chain(dirs.into_iter().flatten())
}

/// The object that loses a name for good; a directory must be empty by then.
pub fn destroyed(change: &Change) -> Option<u64> {
    match &change.op {
        Op::Remove { object, .. } => Some(*object),
        Op::Rename { replaced: Some((old, _)), .. } => Some(*old),
        _ => None,
    }
}

/// The objects that a change takes a name away from.
fn moved(change: &Change) -> impl Iterator<Item = u64> + use<> {
    let both = match &change.op {
        Op::Rename { replaced, .. } => [Some(change.object), replaced.as_ref().map(|(old, _)| *old)],
        Op::Remove { .. } => [Some(change.object), None],
        _ => [None; 2],
    };
    both.into_iter().flatten()
}

/// The directories that a change changes, each with the name in it.
pub fn names(change: &Change) -> impl Iterator<Item = (u64, home::Name)> {
    let pair = match &change.op {
        Op::Create { dir, name, .. } | Op::Remove { dir, name, .. } | Op::Link { dir, name, .. } => {
            [Some((*dir, name.clone())), None]
        }
        Op::Rename { from, name, to, new_name, .. } => {
            [Some((*from, name.clone())), Some((*to, new_name.clone()))]
        }
        Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. } => [None, None],
    };
    pair.into_iter().flatten()
}

/// What a name in a directory stands for after a change of it; `None` for any other change.
pub fn child_after(change: &Change, dir: u64, name: &Name) -> Option<Option<u64>> {
    let is_it = |d: &u64, n: &Name| (*d, n) == (dir, name);
    match &change.op {
        Op::Create { dir, name, .. } | Op::Link { dir, name, .. } if is_it(dir, name) => {
            Some(Some(change.object))
        }
        Op::Rename { to, new_name, .. } if is_it(to, new_name) => Some(Some(change.object)),
        Op::Rename { from, name, .. } if is_it(from, name) => Some(None),
        Op::Remove { dir, name, .. } if is_it(dir, name) => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
