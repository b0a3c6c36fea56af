//! What the engine finds out after a restart of the home's machine, from the marks that operations left: its
//! `sync::resume`, for operations that are sent one by one. That one is driven as it is by `cargo xtask sim`.

use super::gateway::{Gateway, State, at_home, seq};
use super::tree::{Change, Obj, Tree, time};
use home::posix::Posix;
use home::posix::sys::Sys;
use home::{Attr, Claimed, ErrorKind, Kind, Loc, Result};
use std::collections::{HashMap, HashSet};

/// An operation that may have been executed, and what the home has where it would have left its mark.
struct Trace {
    n: usize,
    change: Change,
    object: Option<Obj>,
    place: Option<String>,
    mark: Option<Attr>,
    /// What it replaces.
    replaced: Option<Obj>,
    /// What has the name that it takes away from what it moves.
    at_old_name: Option<Attr>,
    /// It changes an object that a later one removes, and that is gone.
    moot: bool,
}

impl Trace {
    fn is_write(&self) -> bool {
        is_write(self.change)
    }

    /// It has two steps, and the second may be missing: what was replaced has the other name.
    fn is_half(&self) -> bool {
        self.replaced.is_some() && self.at_old_name.is_some()
    }

    fn is_content(&self) -> bool {
        self.is_write() || matches!(self.change, Change::Chmod(_) | Change::Utimes(_))
    }
}

/// Whether it changes what a file contains.
pub(super) fn is_write(change: Change) -> bool {
    matches!(change, Change::Write(_) | Change::Save(_) | Change::Append(_))
}

fn stat<S: Sys>(home: &Posix<S>, path: &str) -> Result<Option<Attr>> {
    match home.stat(&Loc { path: at_home(path)?, id: None }) {
        Ok(seen) => Ok(Some(seen.attr)),
        Err(e) if e.kind == ErrorKind::Io => Err(e),
        Err(_) => Ok(None),
    }
}

fn place_of_mark(change: Change) -> Option<String> {
    match change {
        Change::Create(p) | Change::Mkdir(p) | Change::Symlink(p) | Change::Link(_, p) => Some(p.into()),
        Change::Write(p) | Change::Save(p) | Change::Append(p) => Some(p.into()),
        Change::Chmod(p) | Change::Utimes(p) => Some(p.into()),
        Change::Rename(_, q) => Some(q.into()),
        Change::Remove(_) | Change::Rmdir(_) | Change::Xattr(_) => None,
    }
}

impl Gateway {
    /// Takes in what was done by a send whose answer was lost, as far as the home shows it.
    pub fn look_for_lost<S: Sys>(&mut self, known: &Claimed, home: &Posix<S>) -> Result<()> {
        let executed = known.begun.last().copied().unwrap_or(0);
        let traces = self.look(home)?;
        let mut proven = proven(&traces, executed);
        again(&mut proven, &known.torn.iter().copied().collect(), executed);
        let shown: HashSet<usize> = proven.iter().map(|(t, _)| t.n).collect();
        proven.extend(traces.iter().filter(|t| t.moot && !shown.contains(&t.n)).map(|t| (t, None)));
        proven.sort_by_key(|(t, _)| t.n);
        let mut marks: HashMap<Obj, (usize, Option<Attr>)> = HashMap::new();
        for (t, mark) in &proven {
            t.object.map(|obj| marks.insert(obj, (t.n, *mark)));
        }
        let done: Vec<(usize, Option<Attr>)> = proven.iter().map(|(t, mark)| (t.n, *mark)).collect();
        for (n, mark) in done {
            self.done(n, mark);
        }
        let tree = self.tree(false);
        for (obj, (n, mark)) in marks {
            // Each of both has the other's name, if the power failed between exchange and removal.
            let half = |t: &&Trace| t.is_half() && t.mark.is_some();
            let mut halves = traces.iter().filter(half);
            if let (None, Some(t)) = (mark, halves.clone().find(|t| t.replaced == Some(obj))) {
                self.done(n, t.at_old_name.filter(|there| self.shows(obj, there)));
                continue;
            }
            if let (None, Some(t)) = (mark, halves.find(|t| t.object == Some(obj))) {
                self.done(n, t.mark);
                continue;
            }
            let place = tree.names.iter().find(|(_, o)| **o == obj).map(|(path, _)| path.clone());
            let (None, Some(place)) = (mark, place) else { continue };
            let wanted = super::gateway::kind(tree.nodes[obj].sort);
            if let Some(attr) = stat(home, &place)?.filter(|attr| attr.kind == wanted) {
                self.done(n, Some(attr));
            }
        }
        Ok(())
    }

    fn look<S: Sys>(&self, home: &Posix<S>) -> Result<Vec<Trace>> {
        let known = self.tree(false);
        let mut tree = Tree::begin();
        let mut traces = Vec::new();
        let mut gone: HashMap<Obj, usize> = HashMap::new();
        for (n, op) in self.ops.iter().enumerate() {
            let before = tree.clone();
            if matches!(op.state, State::Reported(_)) || tree.apply(op.change, self.shift + n).is_none() {
                tree.skip(op.change);
                continue;
            }
            if op.state != State::Open || !op.resent {
                continue;
            }
            let object = before.object(op.change);
            let place = place_of_mark(op.change);
            let there = place.as_deref().map(|p| stat(home, p)).transpose()?.flatten();
            let was_there = place.as_deref().is_some_and(|p| known.at(p).is_some() && known.at(p) == object);
            let mark = there.filter(|attr| self.is_marked(n, attr, was_there));
            if let (Change::Remove(p), Some(obj)) = (op.change, object)
                && before.links(obj) == 1
                && self.ids.contains_key(&obj)
                && stat(home, p)?.is_none()
            {
                gone.insert(obj, n);
            }
            let (replaced, at_old_name) = match op.change {
                Change::Rename(p, q) => (before.at(q), stat(home, p)?),
                _ => (None, None),
            };
            let (change, moot) = (op.change, false);
            traces.push(Trace { n, change, object, place, mark, replaced, at_old_name, moot });
        }
        for t in &mut traces {
            let removal = t.object.and_then(|obj| gone.get(&obj));
            t.moot = t.is_content() && removal.is_some_and(|removal| t.n < *removal);
        }
        Ok(traces)
    }

    /// Whether attributes at the home are those of an object, as far as is known here: by its identity, or, where there is none,
    /// by the time of what makes or writes it.
    fn shows(&self, obj: Obj, there: &Attr) -> bool {
        let writes = |c: Change| matches!(c, Change::Create(_)) || is_write(c);
        let mut own =
            self.ops.iter().enumerate().filter(|(_, op)| op.object == Some(obj) && writes(op.change));
        match self.ids.get(&obj) {
            Some(id) => *id == there.id,
            None => own.any(|(n, _)| time(self.shift + n) == there.mtime),
        }
    }

    fn is_marked(&self, n: usize, attr: &Attr, was_there: bool) -> bool {
        let Some((kind, size, mtime)) = self.after(n) else { return false };
        let same = kind == attr.kind && mtime == attr.mtime && (kind == Kind::Dir || size == attr.size);
        let object = self.ops[n].object;
        if object.and_then(|o| self.versions.get(&o)) == Some(&attr.version()) {
            return false;
        }
        match self.ops[n].change {
            Change::Rename(..) | Change::Link(..) => {
                let known = object.and_then(|o| self.ids.get(&o));
                !was_there && known.map_or(same, |id| *id == attr.id || same)
            }
            Change::Chmod(_) | Change::Xattr(_) => false,
            _ => same,
        }
    }
}

/// Those whose effect the home shows, in order, each with the mark of its object that it or a later one left.
fn proven(traces: &[Trace], executed: u64) -> Vec<(&Trace, Option<Attr>)> {
    let shows = |t: &Trace| earliest(traces, t) - u64::from(t.is_half());
    let last = traces.iter().filter(|t| t.mark.is_some()).map(shows).max().unwrap_or(0).max(executed);
    let counts = |t: &&Trace| seq(t.n) <= last;
    let mut shown: HashMap<Option<Obj>, (usize, Attr)> = HashMap::new();
    // Of a rename over another name the mark is there before it is over.
    for t in traces.iter().filter(|t| counts(t) || t.is_half()) {
        if let Some(attr) = t.mark {
            shown.insert(t.object, (t.n, attr));
        }
    }
    let ends = run_ends(traces);
    let mut proven = Vec::new();
    for t in traces.iter().filter(counts) {
        let newest = shown.get(&t.object).filter(|(n, _)| *n >= t.n);
        if newest.is_none() && ends.get(&t.n).is_some_and(|end| seq(*end) > last) {
            continue;
        }
        proven.push((t, newest.map(|(_, attr)| *attr)));
    }
    proven
}

/// Leaves what has to be done again.
fn again(proven: &mut Vec<(&Trace, Option<Attr>)>, torn: &HashSet<u64>, executed: u64) {
    let mut files = HashSet::new();
    proven.retain(|(t, mark)| {
        if torn.contains(&seq(t.n)) || (t.is_write() && mark.is_none() && seq(t.n) > executed) {
            files.insert(t.object);
        }
        !(t.is_content() && files.contains(&t.object))
    });
}

/// The first one that leaves the same mark as `t`.
fn earliest(traces: &[Trace], t: &Trace) -> u64 {
    let named = |c: &Change| matches!(c, Change::Rename(..) | Change::Link(..));
    if !named(&t.change) && !matches!(t.change, Change::Chmod(_) | Change::Utimes(_)) {
        return seq(t.n);
    }
    let made = |c: &Change| matches!(c, Change::Create(_) | Change::Mkdir(_) | Change::Symlink(_));
    let alike = |o: &Trace| {
        if named(&t.change) {
            (named(&o.change) || made(&o.change)) && o.place == t.place
        } else {
            o.n == t.n
        }
    };
    let same = traces.iter().filter(|o| o.object == t.object && alike(o));
    same.map(|o| seq(o.n)).min().unwrap_or(seq(t.n))
}

/// For each write the last one of the run of writes to that file; for any other operation its own number.
fn run_ends(traces: &[Trace]) -> HashMap<usize, usize> {
    let mut next: HashMap<Option<Obj>, usize> = HashMap::new();
    let ends = traces.iter().rev().map(|t| {
        if t.is_write() {
            return (t.n, *next.entry(t.object).or_insert(t.n));
        }
        next.remove(&t.object);
        (t.n, t.n)
    });
    ends.collect()
}
