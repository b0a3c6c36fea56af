//! What a power cut at the home tells of traces, and what it leaves untold.

use super::{
    Executed, Seen, Trace, earliest, has_own_time, has_time, known_places, last_shown, name_that_is_left,
    replaced, run_ends, taker, was_waited_for,
};
use crate::data::Part;
use crate::inode::Tree;
use crate::journal::{Change, Stored};
use crate::limits;
use crate::sync::content::length;
use crate::sync::course::Found;
use crate::sync::queue::{Waiting, child_after};
use crate::volume::Volume;
use bytes::Buf;
use hashbrown::{HashMap, HashSet};
use home::{Attr, HomePath, Kind, Op, Piece, Result, Time};
use std::ops::RangeInclusive;

impl Volume {
    /// Takes away what traces show untruly after a power cut, and adds what is seen beside their marks. Answers what [`freed`] does.
    pub(super) async fn after_cut(
        &self,
        traces: &mut [Trace],
        how_far: &Executed,
        torn: &HashSet<u64>,
        seen: &Seen,
    ) -> Result<HashSet<u64>> {
        traces.iter_mut().for_each(|t| t.durable = how_far.own.contains(&t.seq));
        let (known, last) = (|id| self.known(id), last_begun(traces, how_far));
        disown(traces, last);
        disbelieve(traces, known);
        self.recognize(traces, torn, seen).await?;
        believe(traces, how_far.last()..=last, known, |id, there| self.shows(id, there, seen));
        Ok(freed(traces, |t| may_be_begun(t, last, how_far), known))
    }

    /// A write to what nobody has seen yet may have been cut off before it left its time. What has the file's new name is that
    /// file where the home had begun such a write behind the move, the old name leads nowhere, and there is nothing in it but
    /// what is ours.
    async fn recognize(&self, traces: &mut [Trace], torn: &HashSet<u64>, seen: &Seen) -> Result<()> {
        let candidates = (0..traces.len()).filter(|n| torn_behind(traces, *n, torn));
        for n in candidates.collect::<Vec<_>>() {
            let t = &traces[n];
            let (Some(there), Some(place)) = (t.there, &t.place) else { continue };
            let is_another = |old| self.known(old).is_some() && !self.shows(old, &there, seen);
            if self.known(t.change.object).is_none()
                && replaced(&t.change).is_none_or(is_another)
                && there.kind == Kind::File
                && self.is_left_by_ours(t.change.object, None, place, &there).await?
            {
                traces[n].mark = Some(there);
            }
        }
        Ok(())
    }

    /// Whether attributes at the home are those of a file, as far as is known here. A write may have given it another
    /// identity, of which nobody has heard: then it has the exact time and the length that the write left.
    pub(super) fn shows(&self, id: u64, there: &Attr, seen: &Seen) -> bool {
        let is_left = || there.kind == Kind::File && seen.left.contains(&(id, there.mtime, there.size));
        match self.known(id) {
            Some(known) => known == there.id || is_left(),
            None => has_time(id, there, &seen.times),
        }
    }

    /// The places where the home may have what is written to, by object.
    pub(super) fn names_of_written(&self, sent: &[(u64, Option<HomePath>)]) -> HashMap<u64, Vec<HomePath>> {
        let tree = &mut *self.tree.lock();
        let mut names = HashMap::<u64, Vec<HomePath>>::new();
        for (seq, place) in sent {
            let Some(change) = tree.queue.get(*seq).map(|p| &p.change) else { continue };
            let (id, is_write) = (change.object, matches!(change.op, Op::Write { .. }));
            names.entry(id).or_default().extend(place.iter().cloned());
            if is_write {
                let known = known_places(tree, id);
                names.entry(id).or_default().extend(known);
            }
        }
        names
    }

    /// What writes leave after which a file may have another identity.
    pub(super) fn left_by_writes(&self, sent: &[(u64, Option<HomePath>)]) -> HashSet<(u64, Time, u64)> {
        let tree = self.tree.lock();
        let changes = sent.iter().filter_map(|(seq, _)| tree.queue.get(*seq)).map(|p| &p.change);
        let writes = changes.filter(|c| matches!(c.op, Op::Write { .. }) && has_own_time(c));
        writes.filter_map(|c| c.after.map(|after| (c.object, after.mtime, after.size))).collect()
    }

    /// Files that are not what is known here, and that no change of ours can have made what they are: none had been begun when
    /// the power failed, or none gives such a length. What is unsent was not made to that.
    /// `rewritten`: see there.
    pub(super) fn part_from_changed(
        &self,
        tree: &mut Tree,
        (traces, how_far): (&[Trace], &Executed),
        rewritten: &HashSet<u64>,
    ) {
        let last = last_begun(traces, how_far);
        let is_begun = |t: &Trace| may_be_begun(t, last, how_far);
        let mut seen = HashSet::new();
        for t in traces.iter().filter(|t| matches!(t.change.op, Op::Write { .. })) {
            let id = t.change.object;
            let Some((base, there)) = tree.peek(id).and_then(|n| n.base).zip(t.there) else { continue };
            if base.id != there.id || base.same_content(&there.version()) || !seen.insert(id) {
                continue;
            }
            let is_unsent = |t: &&Trace| tree.queue.get(t.seq).is_some() && is_begun(t);
            let unsent = traces.iter().filter(is_unsent).map(|t| &t.change);
            // What was refused is not looked for, and may have left a part.
            let refused = tree.queue.iter().filter(|(_, p)| p.parked.is_some()).map(|(_, p)| &p.change);
            let own = unsent.chain(refused).filter(|change| change.object == id);
            let is_ours = may_leave(base.size, there.size, own);
            if !is_ours || rewritten.contains(&id) {
                self.part_from_theirs(tree, id);
            }
        }
    }

    /// Files to which all that is unsent adds, and that have the length that they had and another time: that may be what is left
    /// of such a change, but not where the bytes that are known of their end are not there.
    pub(super) async fn rewritten(&self, traces: &[Trace]) -> Result<HashSet<u64>> {
        let (mut seen, mut rewritten) = (HashSet::new(), HashSet::new());
        for t in traces.iter().filter(|t| matches!(t.change.op, Op::Write { .. })) {
            let (id, Some((there, place))) = (t.change.object, t.there.zip(t.place.as_ref())) else {
                continue;
            };
            if !self.has_its_length(id, &there) || !seen.insert(id) {
                continue;
            }
            let end = there.size - there.size.min(limits::FETCH_CHUNK)..there.size;
            let len = (end.end - end.start) as u32;
            let Ok(mut theirs) = self.read_at(place, end.clone()).await? else { continue };
            let is_other = |part| match part {
                Part::Have(ours) => {
                    let theirs = theirs.split_to(ours.len().min(theirs.len()));
                    ours[..theirs.len()] != theirs[..]
                }
                Part::Gap { len, .. } | Part::Lost { len, .. } => {
                    theirs.advance(theirs.len().min(len as usize));
                    false
                }
            };
            let has_other = self.data.get(id, end.start, len).into_iter().any(is_other);
            // Somebody may have written over it here meanwhile.
            if has_other && self.has_its_length(id, &there) {
                rewritten.insert(id);
            }
        }
        Ok(rewritten)
    }

    fn has_its_length(&self, id: u64, there: &Attr) -> bool {
        let tree = self.tree.lock();
        let Some(base) = tree.peek(id).and_then(|n| n.base) else { return false };
        let adds = |op: &Op<u64, Stored>| match op {
            Op::Write { pieces, .. } => pieces.iter().all(|piece| match piece {
                Piece::Truncate(from) | Piece::Data(from, _) => *from >= base.size,
            }),
            _ => true,
        };
        let mut own = tree.queue.iter().filter(|(_, p)| p.change.object == id);
        base.id == there.id
            && base.size == there.size
            && base.mtime != there.mtime
            && own.all(|(_, p)| adds(&p.change.op))
    }
}

/// A write shows itself by every name of its file. Where a later operation took the one away that it was made by, another one
/// still has what it left. `names`: by object.
pub(super) fn show_by_other_names(
    traces: &mut [Trace],
    names: &HashMap<u64, Vec<HomePath>>,
    found: &Found,
    is_marked: impl Fn(&Trace, &Attr) -> bool,
) {
    for t in traces.iter_mut().filter(|t| t.mark.is_none() && matches!(t.change.op, Op::Write { .. })) {
        let places = names.get(&t.change.object).into_iter().flatten();
        let mut there = places.filter_map(|place| *found.get(place)?);
        t.mark = there.find(|there| is_marked(t, there));
    }
}

/// Whether any of these changes may have left a file of length `old` changed, and with the length `new`.
pub(super) fn may_leave<'a>(old: u64, new: u64, changes: impl Iterator<Item = &'a Change>) -> bool {
    let ranges = changes.map(|c| lengths(c).fold((old, old), |(a, b), len| (a.min(len), b.max(len))));
    let hull = ranges.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    hull.is_some_and(|(shortest, longest)| (shortest..=longest).contains(&new))
}

/// The lengths that a write gives to a file.
fn lengths(change: &Change) -> impl Iterator<Item = u64> {
    let pieces = match &change.op {
        Op::Write { pieces, .. } => &pieces[..],
        _ => &[],
    };
    let ends = pieces.iter().map(|piece| match piece {
        Piece::Truncate(size) => *size,
        Piece::Data(at, stored) => *at + length(stored) as u64,
    });
    ends.chain(change.after.map(|after| after.size))
}

/// Whether a home can have begun an operation that did not begin any in order behind `last`.
fn may_be_begun(t: &Trace, last: u64, how_far: &Executed) -> bool {
    t.seq <= last || t.late || how_far.passed.contains(&t.seq)
}

/// Whether a record is a move that does not show itself and has left its old name, and a `torn` write behind it is to the same
/// file at the same place.
pub(super) fn torn_behind(traces: &[Trace], n: usize, torn: &HashSet<u64>) -> bool {
    let t = &traces[n];
    let is_move = matches!(t.change.op, Op::Rename { .. }) && t.mark.is_none() && t.has_left();
    let is_its = |w: &Trace| w.change.object == t.change.object && w.place == t.place;
    is_move && traces[n + 1..].iter().any(|w| torn.contains(&w.seq) && is_its(w))
}

/// Moves over another file of which a home that moves in two steps has done no more than to dispose of that: its name leads
/// nowhere, and the old name still to what is to have it.
pub(super) fn freed(
    traces: &[Trace],
    is_begun: impl Fn(&Trace) -> bool,
    known: impl Fn(u64) -> Option<home::HomeId>,
) -> HashSet<u64> {
    // Of what nobody has seen yet it is not known whether it is that.
    let waits = |t: &Trace| {
        t.at_old_name.is_some_and(|old| known(t.change.object).is_none_or(|known| known == old.id))
    };
    let had = |t: &Trace| replaced(&t.change).is_some_and(|old| known(old).is_some());
    let is_freed = |t: &&Trace| had(t) && t.there.is_none() && waits(t) && is_begun(t);
    traces.iter().filter(is_freed).map(|t| t.seq).collect()
}

/// The last operation that can show itself, where a home told how far it ran when its power failed: it had begun one more,
/// unless that is on a file system of which it does not tell. That was the first in their order; a write goes with the last of
/// its run at the latest.
pub(super) fn last_begun(traces: &[Trace], how_far: &Executed) -> u64 {
    let Some(ran) = how_far.told else { return u64::MAX };
    let ends = run_ends(traces.iter().map(|t| (t.seq, &t.change)), &HashSet::new());
    let next = traces.iter().filter(|t| t.seq > ran && !t.late && !how_far.passed.contains(&t.seq));
    let last = next.filter_map(|t| ends.get(&t.seq).copied()).min().unwrap_or(u64::MAX);
    let is_astray = |seq: &u64| ran < *seq && *seq <= last;
    if how_far.astray.iter().any(is_astray) { u64::MAX } else { last }
}

/// What seems to be a move of a later one was done by another program, or is left by a move that is half done. And what is
/// written once more with the time that it had shows itself nowhere: an earlier write has left the same.
pub(super) fn disown(traces: &mut [Trace], last_begun: u64) {
    let mut newest = None;
    for t in traces {
        let is_of_others = match t.change.op {
            Op::Rename { .. } | Op::Link { .. } => t.seq > last_begun,
            Op::Write { .. } => newest > Some(t.change.time),
            _ => false,
        };
        newest = newest.max(Some(t.change.time));
        if is_of_others {
            (t.mark, t.replaced) = (None, None);
        }
    }
}

/// A move over another file that is half done has left that one under the name which it takes away. That is the mark of no
/// later record that would bring it there, where one in between was certainly not executed.
pub(super) fn disbelieve(traces: &mut [Trace], known: impl Fn(u64) -> Option<home::HomeId>) {
    let has_not_left = |t: &Trace| {
        t.mark.is_none() && t.at_old_name.is_some_and(|old| Some(old.id) == known(t.change.object))
    };
    let mut untrue = Vec::new();
    for (n, half) in traces.iter().enumerate().filter(|(_, t)| t.half && t.replaced.is_some()) {
        let stays = traces[n + 1..].iter().filter(|t| name_that_is_left(&t.change.op).is_some());
        let Some(first) = stays.filter(|t| has_not_left(t)).map(|t| t.seq).next() else { continue };
        let later = traces.iter().enumerate().skip(n + 1).filter(|(_, t)| t.seq > first);
        let there = later
            .filter(|(_, t)| t.place == half.old_place && Some(t.change.object) == replaced(&half.change));
        untrue.extend(there.map(|(n, _)| n));
    }
    untrue.into_iter().for_each(|n| traces[n].mark = None);
}

/// A move whose object had the new name before anything was sent shows nothing there by itself. It was done where the name
/// that it takes away was there after all that was certainly executed, and leads nowhere; or half, where that leads to what
/// it replaces. `range`: from what was certainly executed on to what can have been.
pub(super) fn believe(
    traces: &mut [Trace],
    range: RangeInclusive<u64>,
    known: impl Fn(u64) -> Option<home::HomeId>,
    shows: impl Fn(u64, &Attr) -> bool,
) {
    let last = last_shown(traces, *range.start());
    let had_it = |t: &Trace| known(t.change.object).is_some();
    let is_there = |t: &Trace| had_it(t) && t.there.is_some_and(|there| shows(t.change.object, &there));
    let is_replaced = |t: &Trace, old: &Attr| replaced(&t.change).is_some_and(|id| shows(id, old));
    let is_moved = |t: &Trace| t.has_left() || t.at_old_name.is_some_and(|old| is_replaced(t, &old));
    let own = marked_first(traces, *range.start());
    let was_done = |r: &Trace| !r.late || r.is_over(&own) || was_waited_for(traces, r, &own);
    let is_done = |t: &Trace| {
        let is_move = matches!(t.change.op, Op::Rename { .. });
        let is_next = is_move && taker(traces, last, t).is_some_and(|r| r.seq == t.seq);
        is_next && !t.late && is_there(t) && is_moved(t) && had_its_name(traces, t, last, &was_done)
    };
    let later = |t: &Trace| t.seq > last && t.seq <= *range.end();
    let done: Vec<usize> = (0..traces.len()).filter(|n| later(&traces[*n]) && is_done(&traces[*n])).collect();
    for t in done {
        (traces[t].mark, traces[t].replaced) = (traces[t].there, traces[t].at_old_name);
    }
}

/// Whether the name that a record takes away was there after record `last`: what may have been passed, and of which it is not
/// certain that it `was_done`, may not have brought it, unless it has left a name that was there itself.
fn had_its_name(traces: &[Trace], t: &Trace, last: u64, was_done: &impl Fn(&Trace) -> bool) -> bool {
    let Some((dir, name)) = name_that_is_left(&t.change.op) else { return false };
    let earlier = || traces.iter().filter(|r| r.seq < t.seq && r.seq <= last);
    let brought = earlier().rfind(|r| matches!(child_after(&r.change, *dir, name), Some(Some(_))));
    let is_above = |r: &&Trace| {
        let places = r.place.as_ref().zip(t.old_place.as_ref());
        matches!(r.change.op, Op::Create { .. } | Op::Rename { .. })
            && places.is_some_and(|(new, old)| new != old && new.contains(old))
    };
    brought.is_none_or(|r| was_done(r) || r.has_left() && had_its_name(traces, r, last, was_done))
        && earlier().filter(is_above).all(was_done)
}

/// Objects that have a place in a directory which may not have come there: they may be where that was. And objects of what was
/// refused once, or waited for such a one, and was passed by a move of the directory of its place: they may be where that is now.
/// All up to `last` was done but what is late.
pub(super) fn led_astray(traces: &[Trace], last: u64) -> HashSet<u64> {
    let mut moved: Vec<&HomePath> = Vec::new();
    let (mut behind, mut passed): (_, Vec<&Trace>) = (Waiting::default(), Vec::new());
    let mut astray = HashSet::new();
    for t in traces {
        let is_inside = |o: &Trace, dir: &HomePath| {
            let mut places = o.place.iter().chain(&o.old_place);
            places.any(|place| dir != place && dir.contains(place))
        };
        if moved.iter().any(|dir| is_inside(t, dir)) {
            astray.insert(t.change.object);
        }
        let may_be_done = t.mark.is_some() || t.seq <= last;
        if let (true, Op::Rename { .. }, Some(from)) = (may_be_done, &t.change.op, &t.old_place) {
            let left = passed.iter().filter(|earlier| is_inside(earlier, from));
            astray.extend(left.map(|earlier| earlier.change.object));
        }
        if t.late || behind.concerns(&t.change) {
            behind.add(&t.change);
            passed.push(t);
        }
        let is_due = t.may_be_due(last) && t.mark.is_none() && matches!(t.change.op, Op::Rename { .. });
        moved.extend(t.place.iter().filter(|_| is_due));
    }
    astray
}

/// Objects that are at none of the places that the operations on them name: by its identity, or, where the home was
/// never seen to have it, because nothing is there. What is to be made only now and then to replace another, is not among
/// them, nor what is to replace something that is still there, which nothing else would take away; nor what is led `astray`.
pub(super) fn nowhere(
    traces: &[Trace],
    last: u64,
    astray: &HashSet<u64>,
    known: impl Fn(u64) -> Option<home::HomeId>,
    shows: impl Fn(u64, &Attr) -> bool,
) -> HashSet<u64> {
    let to_be_made = |t: &&Trace| t.may_be_due(last) && matches!(t.change.op, Op::Create { .. });
    let to_be_made: HashSet<u64> = traces.iter().filter(to_be_made).map(|t| t.change.object).collect();
    let is_to_replace = |t: &Trace| {
        replaced(&t.change).is_some_and(|old| {
            t.there.is_some_and(|there| shows(old, &there)) || to_be_made.contains(&t.change.object)
        })
    };
    let is_somewhere = |t: &&Trace| t.shows(known(t.change.object)) || is_to_replace(t);
    let somewhere: HashSet<u64> = traces.iter().filter(is_somewhere).map(|t| t.change.object).collect();
    let objects = traces.iter().map(|t| t.change.object);
    objects.filter(|id| !somewhere.contains(id) && !astray.contains(id)).collect()
}

/// The first of those that leave each mark: it proves them, also where they may have been passed.
pub(super) fn marked_first(traces: &[Trace], executed: u64) -> HashSet<u64> {
    let marked = traces.iter().filter(|t| t.mark.is_some());
    marked.map(|t| earliest(traces, t, executed).seq).collect()
}

/// The writes to both files of a move that is half done, as far as those show what they or later changes left: a home makes
/// both durable before they change places. To do them again one would have to take the move back.
pub(super) fn synced_by_exchange(traces: &[Trace]) -> HashSet<u64> {
    let mut synced = HashSet::new();
    for half in traces.iter().filter(|t| t.half) {
        let (Some(moved), Some(there)) = (half.mark, half.replaced) else { continue };
        for (object, seen) in [(Some(half.change.object), moved), (replaced(&half.change), there)] {
            let earlier = traces.iter().filter(|t| t.seq < half.seq && Some(t.change.object) == object);
            let shows = |t: &&Trace| {
                t.change.after.is_some_and(|left| (left.mtime, left.size) == (seen.mtime, seen.size))
            };
            let last = earlier.clone().filter(shows).map(|t| t.seq).max().unwrap_or(0);
            synced.extend(earlier.map(|t| t.seq).filter(|seq| *seq <= last));
        }
    }
    synced
}
