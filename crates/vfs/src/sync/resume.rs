//! Finds out how far a batch came whose answer was lost.
//!
//! A home that keeps a log tells it when the volume is claimed: what is sent again of the operations that it knows has
//! its first outcome, and the others were not executed. After its machine was restarted it knows what was durable before,
//! and may say of others that it does not know. Of these, and of a home without a log, we look for marks.
//!
//! Operations run in order, and each leaves the exact time of its record on what it changed. So the last
//! operation whose mark is found proves all before it. Only a write may have travelled later than its place, with
//! the last one of a run of writes to the same file: it counts as done if that one is proven, or if its own object
//! shows it or a later record of it. Where several records leave the same mark, it proves only the first of them.
//! Where times are whole seconds, marks prove little: there all that is found tells how far the home came ([`Course`]).
//! A power cut may leave the time of a record, with its size or without, and not its bytes: that tells which object has a name,
//! but not its content. What nothing else shows to be durable there is done again, and who executes it compares the bytes.
//! What the home shows in the very version that a change is based on is no mark: it was so before. An operation that
//! was refused once may have been passed by later ones: only its own mark counts, or that of a later one which waits for it,
//! or that the home knows it to be durable, and what depends on it waits with it; that is so where it is parked, too, and not
//! looked for.

mod cut;
mod dirs;
mod gone;

use super::confirm::as_left;
use super::content::Slice;
use super::course::{Course, Found, State, Step};
use super::marks::Mark;
use super::place::{Ready, place, place_after};
use super::queue::{Group, Waiting};
use crate::inode::Tree;
use crate::journal::Change;
use crate::limits;
use crate::volume::Volume;
use cut::{led_astray, marked_first, nowhere, show_by_other_names, synced_by_exchange};
use dirs::Dirs;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use hashbrown::{HashMap, HashSet};
use home::{Attr, Class, Done, ErrorKind, HomePath, Kind, Loc, Name, New, Op, Result, Time};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A record that was sent, and what the home has where it would have left its mark.
struct Trace {
    seq: u64,
    change: Change,
    /// It was refused once.
    late: bool,
    mark: Option<Attr>,
    /// What is where it leaves its mark, and what has the name that it takes away.
    there: Option<Attr>,
    at_old_name: Option<Attr>,
    /// Where it leaves its mark, and the name that it takes away.
    place: Option<HomePath>,
    old_place: Option<HomePath>,
    /// It has two steps, and the second may be missing: what had the name goes away only after the mark is there.
    half: bool,
    /// What has the old name of a move that is half done: what it was to replace.
    replaced: Option<Attr>,
    /// It changes an object that a later one of them removes, and that is gone; or it is that removal.
    moot: bool,
    /// The home knows that it is durable, under its own number or that of a write which it travelled with.
    durable: bool,
}

impl Trace {
    /// Whether it takes a name away, and that leads nowhere.
    fn has_left(&self) -> bool {
        name_that_is_left(&self.change.op).is_some() && self.at_old_name.is_none()
    }

    /// Whether the name that a move takes away leads to what has the new one: a home that moves in two steps did the first alone.
    fn has_both(&self) -> bool {
        let both = self.there.zip(self.at_old_name);
        let both = both.is_some_and(|(new, old)| new.id.ino != 0 && new.id == old.id);
        self.mark.is_none() && both && matches!(self.change.op, Op::Rename { .. })
    }

    /// Whether it was done to its end for certain: the home knows it, or it is among the first that left their marks.
    fn is_over(&self, own: &HashSet<u64>) -> bool {
        self.durable || own.contains(&self.seq) && !self.half
    }

    /// Whether it may not have been executed, where all up to `last` was that is not late.
    fn may_be_due(&self, last: u64) -> bool {
        self.seq > last || self.late
    }

    /// Whether its object is at one of the places that it names: by the identity that it is known by, any where there is
    /// none. A mark is its own, also where it got another identity by being written to.
    fn shows(&self, known: Option<home::HomeId>) -> bool {
        let mut there = self.there.iter().chain(&self.at_old_name);
        self.mark.is_some() || there.any(|there| known.is_none_or(|id| id == there.id))
    }
}

/// How far a home came for certain, by numbers of operations in order.
#[derive(Default)]
struct Executed {
    /// All up to here was executed and is durable.
    durable: u64,
    /// All up to here was executed; of contents that may not be durable.
    ran: u64,
    /// What the home told of that, where it can tell: it had begun one more at most.
    told: Option<u64>,
    /// Those that may have changed other file systems than this is told of: behind them others may have been begun as well.
    astray: HashSet<u64>,
    /// Those that were durable under their own numbers.
    own: HashSet<u64>,
    /// Those that later ones may have passed.
    passed: HashSet<u64>,
}

impl Executed {
    fn last(&self) -> u64 {
        self.durable.max(self.ran)
    }
}

/// By file, the exact times of records that make it or write to it: whatever has one is that file.
type Times = HashMap<u64, HashSet<Time>>;

/// What a look at the home found, and what it is compared with.
struct Seen {
    found: Found,
    times: Times,
    /// By file, the times that records set: another file may have one of them, too.
    set: Times,
    /// What writes leave: the file, its time and its length.
    left: HashSet<(u64, Time, u64)>,
    class: Class,
    /// The power may have failed.
    cut: bool,
}

impl Volume {
    /// Makes sure that nothing that was sent before has an effect any more, and finds out what had one.
    pub async fn resume(self: &Arc<Self>, class: Class) -> Result<()> {
        let claimed = self.claimed.load(Ordering::Relaxed);
        let lost = {
            let queue = &self.tree.lock().queue;
            if claimed && !queue.is_unasked() {
                return Ok(());
            }
            queue.in_question()
        };
        // Until the look is over: one that fails is repeated.
        self.claimed.store(false, Ordering::Relaxed);
        let known = self.claim(lost).await?;
        *self.booted.lock() = known.as_ref().and_then(|known| known.booted);
        let (executed, torn, look) = {
            let queue = &mut self.tree.lock().queue;
            let torn = known.as_ref().map(|known| known.torn.iter().copied().collect());
            let known = known.unwrap_or_else(|| queue.nothing_is_known());
            let astray = known.ran_on.map(|fs| queue.elsewhere(fs)).unwrap_or_default();
            queue.told(&known);
            let (durable, ran) = (queue.executed_last(&known.begun), queue.ran_last(known.ran));
            let told = Some(known.ran).filter(|ran| *ran > 0 || known.ran_on.is_some());
            let own = known.begun.into_iter().collect();
            let passed = queue.passed();
            (Executed { durable, ran, told, astray, own, passed }, torn, known.restarted)
        };
        if look {
            self.look_for_lost(class, executed, torn).await?;
        }
        self.claimed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Takes in what was done by a send whose answer was lost, as far as the home shows it. `torn`, where the
    /// power may have failed: what was about to overwrite a file in place. It is done again, and so is a write that only its
    /// place in the order proves, each with all later changes of the file's content and attributes: of content nothing but
    /// its own mark tells then.
    async fn look_for_lost(
        self: &Arc<Self>,
        class: Class,
        executed: Executed,
        torn: Option<HashSet<u64>>,
    ) -> Result<()> {
        let mut dirs = self.find_dirs_again().await?;
        let sent = self.sent();
        if sent.is_empty() {
            self.tree.lock().queue.looked_for();
            return Ok(());
        }
        let (mut traces, last) = self.look(sent, &mut dirs, class, &executed, torn.as_ref()).await?;
        let (refused, ends): (Vec<(u64, Change)>, _) = {
            let tree = self.tree.lock();
            let parked = tree.queue.iter().filter(|(_, p)| p.parked.is_some() && !p.change.plain);
            let refused = parked.map(|(seq, p)| (seq, p.change.clone())).collect();
            (refused, run_ends(tree.queue.iter().map(|(seq, p)| (seq, &p.change)), &executed.own))
        };
        let is_durable = |t: &Trace| ends.get(&t.seq).is_some_and(|end| executed.own.contains(end));
        traces.iter_mut().for_each(|t| t.durable = is_durable(t));
        let mut proven = proven(&traces, &refused, &ends, last);
        let rewritten = if torn.is_some() { Some(self.rewritten(&traces).await?) } else { None };
        if let Some(torn) = torn {
            let mut torn = sent_with(&traces, torn, &executed.own);
            let mut synced = synced_by_exchange(&traces);
            synced.extend(traces.iter().filter(|t| t.durable).map(|t| t.seq));
            torn.retain(|seq| !synced.contains(seq));
            again(&mut proven, &torn, executed.durable, &synced);
        }
        let shown: HashSet<u64> = proven.iter().map(|(t, _)| t.seq).collect();
        let behind = behind_refused(&traces, &refused);
        let moot = traces.iter().filter(|t| t.moot && !shown.contains(&t.seq) && !behind.contains(&t.seq));
        proven.extend(moot.map(|t| (t, None)));
        proven.sort_by_key(|(t, _)| t.seq);
        let mut identities = self.identify(&mut proven, &mut dirs).await?;
        // A power cut between exchange and removal: each of both has the other's name, though the move is not over.
        for t in traces.iter().filter(|t| t.half) {
            if let (Op::Rename { replaced: Some((old, _)), .. }, Some(mark)) = (&t.change.op, t.mark) {
                identities.remove(old);
                identities.extend(t.replaced.map(|there| (*old, there)));
                identities.insert(t.change.object, mark);
            }
        }
        // What a move in two steps replaced is gone, and its name shows what was moved.
        for old in traces.iter().filter(|t| t.has_both()).filter_map(|t| replaced(&t.change)) {
            identities.remove(&old);
        }
        {
            let mut tree = self.tree.lock();
            // Of what is sent now only the answers can be lost that are not known yet.
            tree.queue.looked_for();
            for (t, mark) in proven {
                let there = mark.or_else(|| identities.get(&t.change.object).copied());
                let attr = there.map(|there| as_left(&t.change, there));
                let done = Done { attr, dirs: vec![] };
                self.done(&mut tree, &Group::one(t.seq), &done)?;
                there.iter().for_each(|there| self.part_from_newer(&mut tree, &t.change, there));
            }
            if let Some(rewritten) = rewritten {
                self.part_from_changed(&mut tree, (&traces, &executed), &rewritten);
            }
            self.know_again(&mut tree, &traces)?;
            // What is executed next covers the marks: they are found only once.
            tree.queue.decide(self.lane.last());
        }
        self.outcomes.send_modify(|n| *n += 1);
        Ok(())
    }

    /// What is moved over another file, and has that one's name though the move is not over, has the identity that is seen
    /// there: a write that is done again before the move may have given it another one than is known here.
    fn know_again(&self, tree: &mut Tree, traces: &[Trace]) -> Result<()> {
        for t in traces.iter().filter(|t| t.replaced.is_some()) {
            let Some(mark) = t.mark.filter(|_| tree.queue.get(t.seq).is_some()) else { continue };
            let binding = tree.get(t.change.object)?.binding.clone();
            if binding.is_some() {
                let other = self.part_from_another(tree, t.change.object, &mark);
                tree.rebind(t.change.object, mark.id, binding);
                self.join(tree, (t.change.object, other), &mark);
                tree.unlogged(t.change.object);
            }
        }
        self.log_bindings_if_room(tree)
    }

    /// Records that may have been executed, each with its place at that point.
    fn sent(&self) -> Vec<Ready> {
        let mut tree = self.tree.lock();
        let sent = tree.queue.lost().filter(|(_, p)| p.parked.is_none() && !p.change.plain);
        let groups = sent.map(|(seq, _)| Group::one(seq)).collect();
        let placed = place(&mut tree, self.shared.gateway, self.id, groups);
        placed.into_iter().filter_map(|(_, ready)| ready.ok()).collect()
    }

    /// Finds the traces of what was sent, and up to which record all was executed, as far as that is certain. `torn`: see
    /// [`Volume::look_for_lost`]. Where the power may have failed less is left of what was done, and more of it has to be told
    /// from what is there. Else what seems done without its own mark is rather repeated, which sets the times of its directories.
    async fn look(
        &self,
        sent: Vec<Ready>,
        dirs: &mut Dirs,
        class: Class,
        how_far: &Executed,
        torn: Option<&HashSet<u64>>,
    ) -> Result<(Vec<Trace>, u64)> {
        let (mut executed, cut) = (how_far.last(), torn.is_some());
        let course = (class == Class::Sftp).then(|| self.course(&sent));
        let left: HashMap<u64, HomePath> = sent.iter().filter_map(place_that_is_left).collect();
        let sent: Vec<_> = sent.iter().map(|ready| (ready.id.seq, place_of_mark(&ready.op))).collect();
        let names = if cut { self.names_of_written(&sent) } else { HashMap::new() };
        let places = sent.iter().filter_map(|(_, place)| place.as_ref()).chain(left.values());
        let places = places.chain(names.values().flatten()).cloned();
        let further = course.iter().flat_map(Course::places);
        let mut found = self.found(places.chain(further).collect()).await?;
        self.look_for_dirs(dirs).await?;
        found.retain(|place, _| !dirs.are_lost_at(place));
        let times = |which: fn(&Change) -> bool| match cut {
            true => self.times(sent.iter().map(|(seq, _)| *seq), which),
            false => Times::new(),
        };
        let written = if cut { self.left_by_writes(&sent) } else { HashSet::new() };
        let (own, set) = (times(has_own_time), times(sets_time));
        let seen = Seen { found, times: own, set, left: written, class, cut };
        let traces =
            sent.into_iter().filter_map(|(seq, place)| self.trace(seq, place, left.get(&seq), &seen));
        let mut traces: Vec<Trace> = traces.collect();
        show_by_other_names(&mut traces, &names, &seen.found, |t, there| {
            self.is_marked(&t.change, there, false, &seen)
        });
        if class == Class::Posix {
            only_first(&mut traces);
        }
        let freed = match torn {
            Some(torn) => self.after_cut(&mut traces, how_far, torn, &seen).await?,
            None => HashSet::new(),
        };
        let shows = |id, there: &Attr| self.shows(id, there, &seen);
        if let Some(course) = course {
            executed = self.came_to(&course, &mut traces, &seen.found).await?;
            return Ok((traces, executed));
        }
        let last = last_shown(&traces, executed);
        let mut astray = led_astray(&traces, last);
        astray.extend(traces.iter().filter(|t| dirs.hide(t)).map(|t| t.change.object));
        let nowhere = match cut {
            true => nowhere(&traces, last, &astray, |id| self.known(id), shows),
            false => HashSet::new(),
        };
        let gone = self.gone(&traces, &nowhere, &astray, &freed);
        for t in &mut traces {
            // What has another name, at which nobody has looked, keeps its content.
            let is_left = self.tree.lock().peek(t.change.object).is_some_and(|inode| !inode.gone);
            let is_content = matches!(t.change.op, Op::Write { .. } | Op::SetAttr { .. }) && !is_left;
            let is_life = matches!(t.change.op, Op::Create { .. } | Op::Rename { .. } | Op::Remove { .. });
            // With its life goes the removal: whatever has that name from now on is somebody else's.
            let matters_not = is_content || is_life && nowhere.contains(&t.change.object);
            t.moot = matters_not && gone.get(&t.change.object).is_some_and(|removal| t.seq <= *removal);
        }
        Ok((traces, executed))
    }

    /// What is at these places: each is asked for once, however many records left their marks there.
    async fn found(&self, places: BTreeSet<HomePath>) -> Result<Found> {
        let questions = places.into_iter().map(|path| async move {
            match self.home.stat(&Loc { path: path.clone(), id: None }).await {
                Ok(seen) => Ok(Some((path, Some(seen.attr)))),
                Err(e) if e.kind == ErrorKind::NotFound => Ok(Some((path, None))),
                Err(e) if crate::fetch::is_out_of_reach(&e) => Err(e),
                Err(_) => Ok(None),
            }
        });
        let found: Vec<Option<(HomePath, Option<Attr>)>> =
            stream::iter(questions).buffer_unordered(limits::LOOKS).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The trace of one record, of which `place` would have the mark, and which takes away the name `old`.
    fn trace(&self, seq: u64, place: Option<HomePath>, old: Option<&HomePath>, seen: &Seen) -> Option<Trace> {
        let (change, late) = self.tree.lock().queue.get(seq).map(|p| (p.change.clone(), p.late))?;
        let was_there = place.as_ref().is_some_and(|place| self.is_known_at(change.object, place));
        let there = place.as_ref().and_then(|place| *seen.found.get(place)?);
        let mark = there.filter(|attr| self.is_marked(&change, attr, was_there, seen));
        let at_old_name = old.and_then(|place| *seen.found.get(place)?);
        let old_place = old.cloned();
        // Also an earlier move of another file over this one gives it that name, and may be half done.
        let has_both = |mark: &Attr| at_old_name.is_some_and(|old| old.id == mark.id);
        let mark = mark.filter(|mark| seen.class == Class::Sftp || !has_both(mark));
        let known = self.known(change.object);
        let mark = mark.filter(|mark| may_be_moved(known, mark, at_old_name.as_ref()));
        let replaces = replaced(&change);
        let is_replaced = |old: &Attr| {
            mark.is_some_and(|moved| moved.id != old.id)
                && replaces.is_some_and(|id| self.shows(id, old, seen) || has_time(id, old, &seen.set))
        };
        let replaced = at_old_name.filter(is_replaced);
        let (moot, durable, half) = (false, false, replaces.is_some());
        let mut t = Trace {
            seq,
            change,
            late,
            mark,
            there,
            at_old_name,
            place,
            old_place,
            half,
            replaced,
            moot,
            durable,
        };
        t.half = half && !(seen.cut && t.has_left());
        Some(t)
    }

    /// What the home goes through with these operations.
    fn course(&self, sent: &[Ready]) -> Course<Slice> {
        let tree = self.tree.lock();
        let changes: Vec<_> = sent.iter().filter_map(|r| Some((r, tree.queue.get(r.id.seq)?))).collect();
        let ends = run_ends(changes.iter().map(|(r, p)| (r.id.seq, &p.change)), &HashSet::new());
        let mut known = HashMap::new();
        let steps = changes.iter().map(|(ready, pending)| {
            let (seq, change) = (ready.id.seq, &pending.change);
            for id in crate::sync::queue::objects(change) {
                let Some(inode) = tree.peek(id) else { continue };
                let content = inode.base.map(|base| (base.size, base.mtime.sec));
                known.entry(id).or_insert(State { seq: 0, kind: inode.kind, content, mode: None });
            }
            let (end, op) = (ends.get(&seq).copied().unwrap_or(seq), ready.op.clone());
            let (object, replaced, late) = (change.object, replaced(change), pending.late);
            Step { seq, object, replaced, after: change.after, end, late, op }
        });
        let steps = steps.collect();
        Course::new(steps, &known)
    }

    /// At a home with whole seconds: the last record that it executed, with all before. Only marks of those stay that the
    /// bytes there do not belie. A move over another file is one step there.
    async fn came_to(&self, course: &Course<Slice>, traces: &mut [Trace], found: &Found) -> Result<u64> {
        let own = traces.iter().filter_map(|t| {
            let (place, there) = (t.place.clone()?, t.mark?);
            Some(Mark { seq: t.seq, object: t.change.object, place, there })
        });
        let belied = self.belied(own.chain(course.marks(found)).collect()).await?;
        let last = course.came_to(found, &belied);
        for t in traces {
            let is_left =
                |place: &HomePath| (t.late || t.seq <= last) && !belied.contains(&(place.clone(), t.seq));
            t.mark = t.mark.filter(|_| t.place.as_ref().is_some_and(is_left));
            t.half = false;
        }
        Ok(last)
    }

    /// The times that some of these records leave.
    fn times(&self, sent: impl Iterator<Item = u64>, which: impl Fn(&Change) -> bool) -> Times {
        let tree = self.tree.lock();
        let mut times = Times::new();
        for change in sent.filter_map(|seq| tree.queue.get(seq)).map(|p| &p.change).filter(|c| which(c)) {
            times.entry(change.object).or_default().extend(change.after.map(|after| after.mtime));
        }
        times
    }

    /// The identity that an object was seen to have at the home.
    fn known(&self, id: u64) -> Option<home::HomeId> {
        self.tree.lock().peek(id).map(|n| n.home_id).filter(|id| id.ino != 0)
    }

    /// Whether attributes at the home are those that a record left: its type, size and time. A link or a rename
    /// leaves the times alone; there the identity tells, where it was known before and elsewhere.
    fn is_marked(&self, change: &Change, attr: &Attr, was_there: bool, seen: &Seen) -> bool {
        let Some(after) = change.after else { return false };
        let same_time = match seen.class {
            Class::Posix => after.mtime == attr.mtime,
            Class::Sftp => after.mtime.sec == attr.mtime.sec,
        };
        let same = after.kind == attr.kind
            && same_time
            && (after.kind == home::Kind::Dir || after.size == attr.size);
        if self.tree.lock().peek(change.object).and_then(|n| n.base) == Some(attr.version()) {
            return false;
        }
        let is_it = same || has_time(change.object, attr, &seen.times);
        match &change.op {
            Op::Rename { .. } | Op::Link { .. } => {
                !was_there && (is_it || self.known(change.object) == Some(attr.id))
            }
            Op::Create { .. } => is_it,
            // What a chmod or chown leaves is no proof: it may have been so before.
            Op::SetAttr { set, .. } => set.mtime.is_some() && same,
            // It moves nothing but ctime, which others move too.
            Op::SetXattr { .. } => false,
            _ => same,
        }
    }

    /// Whether the home had an object at a place before anything was sent whose outcome is not known.
    fn is_known_at(&self, id: u64, place: &HomePath) -> bool {
        known_places(&mut self.tree.lock(), id).contains(place)
    }

    /// What the home has of objects whose last outcome shows no mark. To be known before that outcome is taken in:
    /// the name of an object without an identity would come to stand for another one, here or after a restart. What was done
    /// in a directory that is elsewhere is left out of them, to be done again.
    async fn identify(
        &self,
        proven: &mut Vec<(&Trace, Option<Attr>)>,
        dirs: &mut Dirs,
    ) -> Result<HashMap<u64, Attr>> {
        let places = {
            let mut tree = self.tree.lock();
            let objects: BTreeSet<u64> = proven.iter().map(|(t, _)| t.change.object).collect();
            place_after(&mut tree, proven.iter().map(|(t, _)| &t.change), objects)
        };
        let unmarked =
            |id| proven.iter().rfind(|(t, _)| t.change.object == id).is_some_and(|(_, m)| m.is_none());
        let questions = places.into_iter().filter(|(id, _)| unmarked(*id)).map(|(id, path)| async move {
            match self.home.stat(&Loc { path, id: None }).await {
                Ok(seen) => Ok(Some((id, seen.attr))),
                Err(e) if crate::fetch::is_out_of_reach(&e) => Err(e),
                Err(_) => Ok(None),
            }
        });
        let seen: Vec<Option<(u64, Attr)>> =
            stream::iter(questions).buffer_unordered(limits::LOOKS).try_collect().await?;
        self.look_for_dirs(dirs).await?;
        proven.retain(|(t, mark)| mark.is_some() || !dirs.hide(t));
        let mut tree = self.tree.lock();
        let marks = marks_of_lost(&tree);
        let is_its = |(id, attr): &(u64, Attr)| {
            tree.get(*id).is_ok_and(|n| n.kind == attr.kind) && !is_anothers(&mut tree, &marks, *id, attr)
        };
        Ok(seen.into_iter().flatten().filter(is_its).collect())
    }
}

/// Whether a file that has an object's name at the home is another file of ours, which somebody gave that name: it is known as
/// that, or has what a lost write to that left. A lost record of its own tells more.
fn is_anothers(tree: &mut Tree, marks: &Marks, id: u64, there: &Attr) -> bool {
    let left = marks.get(&(there.mtime, there.size)).map_or(&[][..], Vec::as_slice);
    let known = tree.find_home(&there.id);
    there.kind == Kind::File && !left.contains(&id) && (!left.is_empty() || known.is_some_and(|it| it != id))
}

/// Objects by the time and length that lost writes left.
type Marks = HashMap<(Time, u64), Vec<u64>>;

fn marks_of_lost(tree: &Tree) -> Marks {
    let mut marks = Marks::new();
    let changes = tree.queue.lost().map(|(_, p)| &p.change).filter(|c| has_own_time(c));
    for (object, after) in changes.filter_map(|c| Some((c.object, c.after?))) {
        marks.entry((after.mtime, after.size)).or_default().push(object);
    }
    marks
}

/// Where the home is known to have an object.
fn known_places(tree: &mut Tree, id: u64) -> Vec<HomePath> {
    let Ok(inode) = tree.get(id) else { return Vec::new() };
    let names: Vec<_> = inode.binding.iter().chain(&inode.more_bindings).cloned().collect();
    names.into_iter().filter_map(|(dir, name)| Some(tree.home_path(dir).ok()?.join(&name))).collect()
}

/// What is written once more, because its first name was taken, is of one time: a write that leaves the same mark as one
/// before it has none of its own.
fn only_first(traces: &mut [Trace]) {
    let mut left = HashSet::new();
    for t in traces.iter_mut().filter(|t| matches!(t.change.op, Op::Write { .. })) {
        let mark = t.change.after.map(|after| (t.change.object, after.mtime, after.size));
        if mark.is_some_and(|mark| !left.insert(mark)) {
            t.mark = None;
        }
    }
}

/// The last record that is proven by its place before another.
fn last_shown(traces: &[Trace], executed: u64) -> u64 {
    let marked = traces.iter().filter(|t| t.mark.is_some() && !t.late);
    let first = marked.map(|t| earliest(traces, t, executed));
    first.map(|t| t.seq - u64::from(t.half)).max().unwrap_or(0).max(executed)
}

/// The records whose effect the home shows, in order, each with the mark of its object that it or a later record left.
/// All up to `executed` was, except what waits for those that are `refused`. `ends`: of all that is unsent, since what a
/// write travelled with may be known not to have been executed.
fn proven<'a>(
    traces: &'a [Trace],
    refused: &[(u64, Change)],
    ends: &HashMap<u64, u64>,
    executed: u64,
) -> Vec<(&'a Trace, Option<Attr>)> {
    let last = last_shown(traces, executed);
    let counts = |t: &&Trace| t.seq <= last || t.late;
    let mut shown: HashMap<u64, (u64, Attr)> = HashMap::new();
    // Of a rename over another name the mark is there before it is over.
    for t in traces.iter().filter(|t| counts(t) || t.half) {
        if let Some(attr) = t.mark {
            shown.insert(t.change.object, (t.seq, attr));
        }
    }
    let own = marked_first(traces, executed);
    let mut refused = refused.iter().peekable();
    let (mut waiting, mut behind) = (Waiting::default(), Waiting::default());
    let mut proven = Vec::new();
    for t in traces.iter().filter(counts) {
        while let Some((_, change)) = refused.next_if(|(seq, _)| *seq < t.seq) {
            waiting.add(change);
        }
        // What waits for a refused one is passed by later ones, too.
        let is_late = t.late || behind.concerns(&t.change);
        if is_late {
            behind.add(&t.change);
        }
        // Where a later one shows that this was over, its place in the order does not matter.
        let waited_for = is_late && was_waited_for(traces, t, &own);
        if waiting.concerns(&t.change) || (is_late && !t.is_over(&own) && !waited_for) {
            waiting.add(&t.change);
            continue;
        }
        let newest = shown.get(&t.change.object).filter(|(seq, _)| *seq >= t.seq);
        let is_told = waited_for || t.durable;
        if newest.is_none() && !is_told && ends.get(&t.seq).is_some_and(|end| *end > last) {
            continue;
        }
        proven.push((t, newest.map(|(_, attr)| *attr)));
    }
    proven
}

/// What waits for what is `refused`, of which nobody has looked where its object is.
fn behind_refused(traces: &[Trace], refused: &[(u64, Change)]) -> HashSet<u64> {
    let mut refused = refused.iter().peekable();
    let (mut waiting, mut behind) = (Waiting::default(), HashSet::new());
    for t in traces {
        while let Some((_, change)) = refused.next_if(|(seq, _)| *seq < t.seq) {
            waiting.add(change);
        }
        if waiting.concerns(&t.change) {
            waiting.add(&t.change);
            behind.insert(t.seq);
        }
    }
    behind
}

/// Whether a later operation shows itself that would have waited for this one, had that not been done, or for one that would
/// have. `own`: the first that left their marks.
fn was_waited_for(traces: &[Trace], t: &Trace, own: &HashSet<u64>) -> bool {
    let mut waiting = Waiting::default();
    waiting.add(&t.change);
    for later in traces.iter().filter(|later| later.seq > t.seq) {
        if !waiting.concerns(&later.change) {
            continue;
        }
        if later.durable || own.contains(&later.seq) {
            return true;
        }
        waiting.add(&later.change);
    }
    false
}

/// Writes that may have been sent as one, with those that `torn` names: what is sent together has the last one's number.
/// `own`: see [`run_ends`].
fn sent_with(traces: &[Trace], torn: HashSet<u64>, own: &HashSet<u64>) -> HashSet<u64> {
    let ends = run_ends(traces.iter().map(|t| (t.seq, &t.change)), own);
    let mut last: HashMap<u64, u64> = HashMap::new();
    for seq in torn {
        let end = ends.get(&seq).copied().unwrap_or(seq);
        last.entry(end).and_modify(|last| *last = seq.max(*last)).or_insert(seq);
    }
    let is_torn =
        |t: &&Trace| ends.get(&t.seq).and_then(|end| last.get(end)).is_some_and(|last| t.seq <= *last);
    traces.iter().filter(is_torn).map(|t| t.seq).collect()
}

/// Leaves what has to be done again: writes that nothing shows to be `synced`, with what else was done to the content of their
/// files after them. That a file has the time and the length which one left says nothing of its bytes after a power cut.
fn again(
    proven: &mut Vec<(&Trace, Option<Attr>)>,
    torn: &HashSet<u64>,
    executed: u64,
    synced: &HashSet<u64>,
) {
    let mut files: HashSet<u64> = HashSet::new();
    proven.retain(|(t, _)| {
        let is_write = matches!(t.change.op, Op::Write { .. });
        if torn.contains(&t.seq) || (is_write && !synced.contains(&t.seq) && (t.seq > executed || t.late)) {
            files.insert(t.change.object);
        }
        let is_content = is_write || matches!(t.change.op, Op::SetAttr { .. });
        !(is_content && files.contains(&t.change.object))
    });
}

/// Whether a record leaves its own time on a file.
fn has_own_time(change: &Change) -> bool {
    let is_content = matches!(change.op, Op::Create { new: New::File, .. } | Op::Write { .. });
    is_content && change.after.is_some_and(|after| after.mtime == change.time)
}

/// Whether a record sets the time of a file.
fn sets_time(change: &Change) -> bool {
    matches!(&change.op, Op::SetAttr { set, .. } if set.mtime.is_some())
}

/// Whether a file at the home has the exact time of a record that made or wrote the one that is meant.
fn has_time(id: u64, there: &Attr, times: &Times) -> bool {
    there.kind == Kind::File && times.get(&id).is_some_and(|times| times.contains(&there.mtime))
}

/// The first record that leaves the same mark as `t`; or, where nothing has the name that `t` takes away, and something has
/// it after that one, the one that takes it. Either may be half done, unless it is known to be durable: then a later one has brought
/// its old name back. All up to `executed` was done: what that took away again shows itself no more.
fn earliest<'a>(traces: &'a [Trace], t: &'a Trace, executed: u64) -> &'a Trace {
    if !matches!(t.change.op, Op::Rename { .. } | Op::Link { .. } | Op::SetAttr { .. }) {
        return t;
    }
    let is_over = |o: &Trace| {
        let mut later = traces.iter().filter(|r| o.seq < r.seq && r.seq <= executed && !r.late);
        later.any(|r| r.old_place.is_some() && r.old_place == o.place)
    };
    let alike = |o: &Trace| match (&o.change.op, &t.change.op) {
        (Op::Rename { .. } | Op::Link { .. } | Op::Create { .. }, Op::Rename { .. } | Op::Link { .. }) => {
            o.place == t.place && !is_over(o) && (o.durable || !o.has_both())
        }
        (Op::SetAttr { .. } | Op::Write { .. }, Op::SetAttr { .. }) => {
            let mark = |c: &Change| c.after.map(|a| (a.mtime, a.size));
            mark(&o.change) == mark(&t.change)
        }
        _ => false,
    };
    let same = traces.iter().filter(|o| o.change.object == t.change.object && alike(o));
    let first = same.min_by_key(|o| o.seq).unwrap_or(t);
    if t.has_left() { taker(traces, first.seq, t).unwrap_or(first) } else { first }
}

/// The record that first takes the name away that `t` takes, if something has that name after record `last` already: of
/// what comes in between, up to `t`, nothing brings it or a directory above it before.
fn taker<'a>(traces: &'a [Trace], last: u64, t: &Trace) -> Option<&'a Trace> {
    let takes = |r: &Trace| r.old_place == t.old_place;
    let brings = |r: &Trace| {
        let is_name = matches!(r.change.op, Op::Create { .. } | Op::Link { .. } | Op::Rename { .. });
        let above = r.place.as_ref().zip(t.old_place.as_ref()).is_some_and(|(new, old)| new.contains(old));
        is_name && above
    };
    let mut between = traces.iter().filter(|r| last < r.seq && r.seq <= t.seq);
    between.find(|r| takes(r) || brings(r)).filter(|r| takes(r) && !r.late)
}

/// For each write the last one of the run of writes to that file which it belongs to, and which nothing else that works
/// on the file interrupts, nor the end of what is known to have been sent under its `own` number; for any other operation its own
/// number.
fn run_ends<'a>(
    changes: impl DoubleEndedIterator<Item = (u64, &'a Change)>,
    own: &HashSet<u64>,
) -> HashMap<u64, u64> {
    let mut next: HashMap<u64, u64> = HashMap::new();
    let ends = changes.rev().map(|(seq, change)| {
        if matches!(change.op, Op::Write { .. }) {
            if own.contains(&seq) {
                next.insert(change.object, seq);
            }
            return (seq, *next.entry(change.object).or_insert(seq));
        }
        crate::sync::queue::objects(change).for_each(|id| {
            next.remove(&id);
        });
        (seq, seq)
    });
    ends.collect()
}

/// Whether what has the new name of a move may be its object: not where that still has the old one, and this is another, be
/// it as old as that.
fn may_be_moved(known: Option<home::HomeId>, new: &Attr, old: Option<&Attr>) -> bool {
    known.is_none_or(|id| new.id == id || old.is_none_or(|old| old.id != id))
}

/// The object whose name a move gives to another.
fn replaced(change: &Change) -> Option<u64> {
    match &change.op {
        Op::Rename { replaced: Some((old, _)), .. } => Some(*old),
        _ => None,
    }
}

/// The object that gets a further name.
fn linked(change: &Change) -> Option<u64> {
    matches!(change.op, Op::Link { .. }).then_some(change.object)
}

/// Where an operation takes a name away from a file.
fn place_that_is_left(ready: &Ready) -> Option<(u64, HomePath)> {
    name_that_is_left(&ready.op).map(|(dir, name)| (ready.id.seq, dir.path.join(name)))
}

fn name_that_is_left<R, D>(op: &Op<R, D>) -> Option<(&R, &Name)> {
    match op {
        Op::Remove { dir, name, is_dir: false, .. } | Op::Rename { from: dir, name, .. } => Some((dir, name)),
        _ => None,
    }
}

/// Where an operation leaves its mark.
fn place_of_mark<D>(op: &Op<Loc, D>) -> Option<HomePath> {
    match op {
        Op::Create { dir, name, .. } | Op::Link { dir, name, .. } => Some(dir.path.join(name)),
        Op::Write { file, .. } => Some(file.path.clone()),
        Op::SetAttr { object, .. } => Some(object.path.clone()),
        Op::Rename { to, new_name, .. } => Some(to.path.join(new_name)),
        Op::Remove { .. } | Op::SetXattr { .. } => None,
    }
}

#[cfg(test)]
mod tests;
