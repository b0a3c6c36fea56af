//! A gateway as far as its home sees it: what it sends of a batch, and what it makes of the answers. It is the engine's
//! `place`, `settle` and `told` for operations that are sent one by one: nothing is coalesced, and what is a conflict or
//! refused is reported and given up, with what becomes impossible by that.

use super::resume::is_write;
use super::tree::{Change, MODE, Obj, Path, Sort, TARGET, Tree, XATTR, stamp, time, token};
use bytes::Bytes;
use home::op::{New, SetAttr, SetTime};
use home::posix::Posix;
use home::posix::sys::Sys;
use home::{
    Attr, Claimed, ErrorKind, HomeId, HomePath, Kind, Loc, Name, Op, OpId, Outcome, Payload, Piece, Placed,
    Result, Version, XattrHow, XattrName,
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The folder of the model.
pub const TOP: &str = "home/ann/t";

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing that is known.
    Open,
    /// It is done, and was told to be durable.
    Done,
    /// A person is told that it was not done.
    Reported(String),
}

/// An operation of the batch.
#[derive(Debug, Clone, Hash)]
pub struct Pending {
    /// What was wanted.
    pub change: Change,
    /// What became of it.
    pub state: State,
    /// It may have been executed.
    pub resent: bool,
    /// What it is about.
    pub object: Option<Obj>,
}

/// The gateway.
pub struct Gateway {
    /// Its number.
    pub number: u64,
    /// Its operations have other tokens and times than those of other gateways.
    pub(super) shift: usize,
    /// The batch, in order.
    pub ops: Vec<Pending>,
    pub(super) ids: HashMap<Obj, HomeId>,
    pub(super) versions: HashMap<Obj, Version>,
    /// Those that were sent last: their places in the batch.
    sent: Vec<usize>,
    /// Whether what it accepts bears the times of the model.
    timed: bool,
}

fn name(path: &str) -> Result<Name> {
    Name::new(path.rsplit('/').next().unwrap_or_default().as_bytes())
}

/// Where a path lies at the home.
pub fn at_home(path: &str) -> Result<HomePath> {
    HomePath::parse(format!("{TOP}/{path}").as_bytes())
}

pub(super) fn kind(sort: Sort) -> Kind {
    match sort {
        Sort::File => Kind::File,
        Sort::Dir => Kind::Dir,
        Sort::Symlink => Kind::Symlink,
    }
}

impl Gateway {
    /// A gateway that has just looked at the whole tree.
    pub fn new<S: Sys>(number: u64, batch: &[Change], home: &Posix<S>) -> Result<Gateway> {
        let op =
            |change: &Change| Pending { change: *change, state: State::Open, resent: false, object: None };
        let ops = batch.iter().map(op).collect();
        let (mut ids, mut versions) = (HashMap::new(), HashMap::new());
        for (path, obj) in Tree::begin().names {
            let attr = home.stat(&Loc { path: at_home(&path)?, id: None })?.attr;
            ids.insert(obj, attr.id);
            versions.insert(obj, attr.version());
        }
        Ok(Gateway { number, shift: 10 * number as usize, ops, ids, versions, sent: Vec::new(), timed: true })
    }

    /// A gateway that has done a batch, by its own clock, or of which a person is told that a part was not done.
    pub fn of_engine(number: u64, batch: &[Change], reported: bool) -> Gateway {
        let mut tree = Tree::begin();
        let shift = 10 * number as usize;
        let ops = batch.iter().enumerate().map(|(n, change)| {
            let object = tree.object(*change);
            let _ = tree.apply(*change, shift + n);
            let state = if reported { State::Reported("refused".into()) } else { State::Done };
            Pending { change: *change, state, resent: false, object }
        });
        let ops = ops.collect();
        let (ids, versions, sent) = (HashMap::new(), HashMap::new(), Vec::new());
        Gateway { number, shift, ops, ids, versions, sent, timed: false }
    }

    /// Whether it makes copies of what it cannot write to.
    pub fn keeps_both(&self) -> bool {
        !self.timed
    }

    /// The numbers of operations that were sent and have no outcome.
    pub fn lost(&self) -> Vec<u64> {
        self.sent.iter().filter(|n| self.ops[**n].state == State::Open).map(|n| seq(*n)).collect()
    }

    /// Whether every operation has an outcome.
    pub fn is_over(&self) -> bool {
        self.ops.iter().all(|op| op.state != State::Open)
    }

    /// The tree as it is after the operations that were done and, with `open`, those that are to be.
    pub fn tree(&self, open: bool) -> Tree {
        let mut tree = Tree::begin();
        for (n, op) in self.ops.iter().enumerate() {
            let counts = op.state == State::Done || open && op.state == State::Open;
            if !counts || tree.apply(op.change, self.shift + n).is_none() {
                tree.skip(op.change);
            }
        }
        if !self.timed {
            // What it set is known.
            let set: Vec<_> = (0..self.ops.len()).map(|n| stamp(self.shift + n)).collect();
            tree.nodes.iter_mut().for_each(|node| node.mtime = node.mtime.filter(|time| set.contains(time)));
        }
        tree
    }

    /// Takes over the answer to a claim.
    pub fn told(&mut self, known: Option<&Claimed>) {
        for n in 0..self.ops.len() {
            self.ops[n].resent = match known {
                Some(known) => known.begun.contains(&seq(n)) || known.unknown.contains(&seq(n)),
                None => self.sent.contains(&n),
            };
        }
    }

    /// What is to be sent.
    pub fn batch(&mut self) -> Result<Vec<Placed>> {
        let (mut tree, home) = (Tree::begin(), self.tree(false));
        let (mut made, mut written) = (HashSet::new(), HashSet::new());
        let mut all = Vec::new();
        self.sent.clear();
        for n in 0..self.ops.len() {
            let change = self.ops[n].change;
            if self.ops[n].state == State::Open {
                let before = tree.clone();
                if tree.apply(change, self.shift + n).is_some() {
                    let has_moved = self.ops[n..].iter().any(|op| op.state == State::Done);
                    let home = has_moved.then_some(&home);
                    all.push(self.placed((&before, home), (&made, &written), n)?);
                    self.sent.push(n);
                    let object = before.object(change);
                    self.ops[n].object = object;
                    match change {
                        Change::Create(_) | Change::Mkdir(_) | Change::Symlink(_) => made.extend(object),
                        Change::Write(_) | Change::Save(_) | Change::Append(_) => written.extend(object),
                        _ => {}
                    }
                } else {
                    self.ops[n].state = State::Reported("what it depends on was not done".into());
                    tree.skip(change);
                }
            } else if self.ops[n].state != State::Done || tree.apply(change, self.shift + n).is_none() {
                tree.skip(change);
            }
        }
        Ok(all)
    }

    fn placed(
        &self,
        (tree, home): (&Tree, Option<&Tree>),
        (made, written): (&HashSet<Obj>, &HashSet<Obj>),
        n: usize,
    ) -> Result<Placed> {
        let op = &self.ops[n];
        let id = OpId { gateway: self.number, volume: 1, seq: seq(n) };
        let op = Placer { gateway: self, tree, home, made, written }.op(op.change, self.shift + n)?;
        Ok(Placed { id, time: time(self.shift + n), plain: false, resent: self.ops[n].resent, op })
    }

    /// Takes outcomes in.
    pub fn take<S: Sys>(&mut self, outcomes: Vec<Outcome>, home: &Posix<S>) -> Result<()> {
        for (n, outcome) in self.sent.clone().into_iter().zip(outcomes) {
            match outcome {
                Outcome::Done(done) => self.done(n, done.attr),
                Outcome::Conflict(there) => self.conflicted(n, there, home)?,
                Outcome::Refused(kind) => self.refused(n, kind, home)?,
            }
        }
        Ok(())
    }

    /// It is done.
    pub fn done(&mut self, n: usize, attr: Option<Attr>) {
        self.ops[n].state = State::Done;
        if let (Some(obj), Some(mut attr)) = (self.ops[n].object, attr) {
            if matches!(self.ops[n].change, Change::Create(_)) && attr.size > 0 {
                // It was empty. What it has since is for those to find out who wrote to it.
                (attr.size, attr.mtime) = (0, time(self.shift + n));
            }
            self.ids.insert(obj, attr.id);
            if !self.is_foreign(n, obj, &attr) {
                self.versions.insert(obj, attr.version());
            }
        }
    }

    /// Whether the outcome of an operation that leaves a content as it is shows another one: what is unsent was not made to
    /// that.
    fn is_foreign(&self, n: usize, obj: Obj, attr: &Attr) -> bool {
        let change = self.ops[n].change;
        let is_content = matches!(change, Change::Create(_)) || is_write(change);
        let sets =
            |time| matches!(change, Change::Utimes(_)) && self.after(n).is_some_and(|after| after.2 == time);
        let differs =
            |base: &Version| base.size != attr.size || base.mtime != attr.mtime && !sets(attr.mtime);
        attr.kind == Kind::File && !is_content && self.versions.get(&obj).is_some_and(differs)
    }

    /// What an operation leaves of its object, for who looks at type, length and time.
    pub(super) fn after(&self, n: usize) -> Option<(Kind, u64, home::Time)> {
        let mut tree = Tree::begin();
        for (n, op) in self.ops.iter().enumerate().take(n + 1) {
            if matches!(op.state, State::Reported(_)) || tree.apply(op.change, self.shift + n).is_none() {
                tree.skip(op.change);
            }
        }
        let obj = self.ops[n].object?;
        let node = tree.nodes.get(obj)?;
        let mtime = node.mtime.or(self.versions.get(&obj).map(|v| v.mtime))?;
        Some((kind(node.sort), node.data.len() as u64, mtime))
    }

    fn conflicted<S: Sys>(&mut self, n: usize, there: Option<Attr>, home: &Posix<S>) -> Result<()> {
        let op = &self.ops[n];
        let is_begun = match op.change {
            Change::Create(p) if op.resent && there.is_some_and(|a| a.kind == Kind::File) => {
                self.is_left_by_ours(op.object, p, home)?
            }
            _ => false,
        };
        let is_ours = |a: &Attr| self.after(n) == Some((a.kind, a.size, a.mtime));
        let ours = there.filter(|a| op.resent && (is_begun || is_ours(a)));
        match (ours, op.change) {
            (Some(attr), Change::Write(_) | Change::Save(_) | Change::Append(_)) => {
                let base = op.object.and_then(|obj| self.versions.insert(obj, attr.version()));
                // It was made to that already: somebody has the file open for writing there.
                if base.is_some_and(|base| Version { ctime: attr.ctime, ..base } == attr.version()) {
                    self.ops[n].state = State::Reported("conflict".into());
                }
            }
            (Some(attr), _) => self.done(n, Some(attr)),
            (None, _) => self.ops[n].state = State::Reported("conflict".into()),
        }
        Ok(())
    }

    /// Whether all that a file has are zeros and tokens that operations on this object write.
    fn is_left_by_ours<S: Sys>(&self, object: Option<Obj>, path: Path, home: &Posix<S>) -> Result<bool> {
        let there = match home.read(&Loc { path: at_home(path)?, id: None }, 0, home::limits::READ_MAX) {
            Ok(chunk) => chunk.data,
            Err(e) if e.kind == ErrorKind::Io => return Err(e),
            Err(_) => return Ok(false),
        };
        let own = self.ops.iter().enumerate().filter(|(_, op)| op.object == object);
        let ours: Vec<String> =
            own.flat_map(|(n, _)| [0, 1].map(|part| token(self.shift + n, part))).collect();
        let is_ours = |part: &[u8]| part.iter().all(|b| *b == 0) || ours.iter().any(|t| t.as_bytes() == part);
        Ok(there.chunks(8).all(is_ours))
    }

    fn refused<S: Sys>(&mut self, n: usize, kind: ErrorKind, home: &Posix<S>) -> Result<()> {
        let op = &self.ops[n];
        let place = match (op.change, kind) {
            (Change::Rename(_, q), ErrorKind::NotFound | ErrorKind::Stale) => Some(q),
            (
                Change::Create(p) | Change::Mkdir(p) | Change::Symlink(p) | Change::Link(_, p),
                ErrorKind::Exists,
            ) => Some(p),
            (Change::Remove(_) | Change::Rmdir(_), ErrorKind::NotFound) if op.resent => {
                self.done(n, None);
                return Ok(());
            }
            _ => None,
        };
        if let Some(place) = place.filter(|_| op.resent) {
            let there = home.stat(&Loc { path: at_home(place)?, id: None });
            let wanted = self.after(n).map(|a| a.0);
            match there {
                Ok(seen) if Some(seen.attr.kind) == wanted => {
                    self.done(n, Some(seen.attr));
                    return Ok(());
                }
                Err(e) if e.kind == ErrorKind::Io => return Err(e),
                _ => {}
            }
        }
        self.ops[n].state = State::Reported(format!("{kind:?}"));
        Ok(())
    }

    /// The tokens that operations wrote which are done.
    pub fn tokens(&self) -> BTreeSet<String> {
        (0..self.ops.len()).flat_map(|n| self.tokens_of(n)).collect()
    }

    /// The tokens that an operation wrote, if it is done.
    fn tokens_of(&self, n: usize) -> impl Iterator<Item = String> + use<> {
        let op = &self.ops[n];
        let first = (op.state == State::Done && is_write(op.change)).then(|| token(self.shift + n, 0));
        let second = first.is_some() && matches!(op.change, Change::Write(_));
        first.into_iter().chain(second.then(|| token(self.shift + n, 1)))
    }

    /// The tokens in files that had several names, of which the batch took one away afterwards and somebody else all others,
    /// which are `taken`. On one machine they would be lost as well.
    pub fn removed_by_both(&self, taken: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let (mut tree, left) = (Tree::begin(), self.tree(false));
        let mut removed = BTreeSet::new();
        for (n, op) in self.ops.iter().enumerate() {
            let obj = match op.change {
                Change::Remove(p) | Change::Rename(_, p) => tree.at(p),
                _ => None,
            };
            if op.state != State::Done || tree.apply(op.change, self.shift + n).is_none() {
                tree.skip(op.change);
                continue;
            }
            let Some(obj) = obj.filter(|obj| tree.links(*obj) > 0) else { continue };
            if left.names.iter().filter(|(_, o)| **o == obj).all(|(path, _)| taken(path)) {
                let before = (0..n).filter(|n| self.ops[*n].object == Some(obj));
                removed.extend(before.flat_map(|n| self.tokens_of(n)));
            }
        }
        removed
    }
}

/// The number of an operation of the batch at the home.
pub fn seq(n: usize) -> u64 {
    n as u64 + 1
}

/// Turns paths into places, as the home has them when the operation runs.
struct Placer<'a> {
    gateway: &'a Gateway,
    tree: &'a Tree,
    /// What the home has, where later operations are done already: of what is done again before them, they moved the file.
    home: Option<&'a Tree>,
    /// What the batch makes.
    made: &'a HashSet<Obj>,
    /// What it writes.
    written: &'a HashSet<Obj>,
}

impl Placer<'_> {
    fn loc(&self, path: &str) -> Result<Loc> {
        let known = self.tree.at(path).filter(|o| !self.made.contains(o));
        let id = known.and_then(|o| self.gateway.ids.get(&o)).copied();
        Ok(Loc { path: at_home(self.moved(path).unwrap_or(path))?, id })
    }

    /// The name that the home has for what is meant by a path, if it is another one.
    fn moved(&self, path: &str) -> Option<&str> {
        let (home, object) = (self.home?, self.tree.at(path)?);
        let mut names = home.names.iter().filter(|(_, o)| **o == object && home.at(path) != Some(object));
        names.next().map(|(name, _)| name.as_str())
    }

    fn dir(&self, path: &str) -> Result<Loc> {
        self.loc(super::tree::parent(path))
    }

    fn base(&self, path: &str) -> Option<Version> {
        let changed = |o: &Obj| self.made.contains(o) || self.written.contains(o);
        let known = |o: &Obj| self.tree.nodes[*o].sort == Sort::File && !changed(o);
        self.tree.at(path).filter(known).and_then(|o| self.gateway.versions.get(&o)).copied()
    }

    fn create(&self, path: Path, new: New, mode: u32) -> Result<Op<Loc, Payload>> {
        Ok(Op::Create { dir: self.dir(path)?, name: name(path)?, new, mode })
    }

    fn write(&self, path: Path, pieces: Vec<Piece<Payload>>) -> Result<Op<Loc, Payload>> {
        Ok(Op::Write { file: self.loc(path)?, base: self.base(path), pieces })
    }

    fn remove(&self, path: Path, is_dir: bool) -> Result<Op<Loc, Payload>> {
        let base = self.base(path).filter(|_| !is_dir);
        let (dir, object) = (self.dir(path)?, self.loc(path)?);
        Ok(Op::Remove { dir, name: name(path)?, object, is_dir, base })
    }

    fn set(&self, path: Path, set: SetAttr) -> Result<Op<Loc, Payload>> {
        let base = self.base(path).filter(|_| set.mtime.is_some());
        Ok(Op::SetAttr { object: self.loc(path)?, base, set })
    }

    fn op(&self, change: Change, n: usize) -> Result<Op<Loc, Payload>> {
        let inline = |text: String| Payload::Inline(Bytes::from(text));
        match change {
            Change::Create(p) => self.create(p, New::File, 0o644),
            Change::Mkdir(p) => self.create(p, New::Dir, 0o755),
            Change::Symlink(p) => self.create(p, New::Symlink(Bytes::from_static(TARGET.as_bytes())), 0o777),
            Change::Write(p) => self.write(p, vec![Piece::Data(0, inline(token(n, 0) + &token(n, 1)))]),
            Change::Save(p) => self.write(p, vec![Piece::Truncate(0), Piece::Data(0, inline(token(n, 0)))]),
            Change::Append(p) => {
                let size = self.tree.at(p).map_or(0, |o| self.tree.nodes[o].data.len() as u64);
                self.write(p, vec![Piece::Data(size, inline(token(n, 0)))])
            }
            Change::Rename(p, q) => {
                let replaced = match self.tree.at(q) {
                    Some(_) => Some((self.loc(q)?, self.base(q))),
                    None => None,
                };
                let (from, to, object) = (self.dir(p)?, self.dir(q)?, self.loc(p)?);
                Ok(Op::Rename { from, name: name(p)?, object, to, new_name: name(q)?, replaced })
            }
            Change::Link(p, q) => Ok(Op::Link { object: self.loc(p)?, dir: self.dir(q)?, name: name(q)? }),
            Change::Remove(p) => self.remove(p, false),
            Change::Rmdir(p) => self.remove(p, true),
            Change::Chmod(p) => self.set(p, SetAttr { mode: Some(MODE), ..SetAttr::default() }),
            Change::Utimes(p) => {
                self.set(p, SetAttr { mtime: Some(SetTime::At(stamp(n))), ..SetAttr::default() })
            }
            Change::Xattr(p) => Ok(Op::SetXattr {
                object: self.loc(p)?,
                name: XattrName::new(XATTR.as_bytes())?,
                value: Some(Bytes::from(token(n, 0))),
                how: XattrHow::Any,
            }),
        }
    }
}
