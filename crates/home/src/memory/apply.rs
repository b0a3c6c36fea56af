//! Changes in memory. One lock is held meanwhile, so that to check and to act is one step.

use super::State;
use super::tree::{Body, UID};
use crate::attr::{Attr, HomeId, Kind, Time, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::op::{Done, New, Op, Outcome, Payload, Piece, Placed, SetAttr, SetTime, Spooled};
use crate::{HomePath, Loc, Name, XattrHow, XattrName};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Why an operation was not done.
enum Fail {
    Conflict(Option<Attr>),
    Refused(ErrorKind),
}

impl From<Error> for Fail {
    fn from(e: Error) -> Fail {
        Fail::Refused(e.kind)
    }
}

impl From<ErrorKind> for Fail {
    fn from(kind: ErrorKind) -> Fail {
        Fail::Refused(kind)
    }
}

type Act<T> = std::result::Result<T, Fail>;

/// Executes operations in order; see [`crate::Home::apply`].
pub(super) fn apply(state: &mut State, ops: &[Placed]) -> Result<Vec<Outcome>> {
    for placed in ops.iter().filter(|p| state.memo.outcome(p.id).is_none()) {
        let spooled =
            payloads(&placed.op).filter_map(|p| if let Payload::Spooled(s) = p { Some(s) } else { None });
        let mut other = spooled.filter(|s| {
            let there = state.staged.get(&s.range).map(|bytes| *blake3::hash(&bytes).as_bytes());
            there.is_some_and(|hash| hash != s.hash)
        });
        if let Some(other) = other.next() {
            state.staged.forget(other.range.op);
        }
        if ranges(&placed.op).any(|r| !state.staged.holds(r)) {
            return Err(ErrorKind::NotStaged.into());
        }
    }
    let mut outcomes = Vec::new();
    for placed in ops {
        let outcome = match state.memo.outcome(placed.id) {
            Some(first) => first.clone(),
            None => run(state, placed),
        };
        let done = matches!(outcome, Outcome::Done(_));
        outcomes.push(outcome);
        if !done {
            break;
        }
    }
    Ok(outcomes)
}

fn payloads(op: &Op<Loc, Payload>) -> impl Iterator<Item = &Payload> {
    let pieces = if let Op::Write { pieces, .. } = op { &pieces[..] } else { &[] };
    pieces.iter().filter_map(|p| if let Piece::Data(_, payload) = p { Some(payload) } else { None })
}

fn ranges(op: &Op<Loc, Payload>) -> impl Iterator<Item = &crate::op::Staged> {
    payloads(op).filter_map(|p| match p {
        Payload::Staged(range) | Payload::Spooled(Spooled { range, .. }) => Some(range),
        Payload::Inline(_) => None,
    })
}

fn run(state: &mut State, placed: &Placed) -> Outcome {
    state.counters.ops += 1;
    state.counters.bytes_written += payloads(&placed.op).map(Payload::len).sum::<u64>();
    match state.execute(placed) {
        Ok(done) => {
            let made = matches!(placed.op, Op::Create { .. });
            let left = placed.op.leaves(done.attr).map(|attr| (attr, made));
            let outcome = Outcome::Done(done);
            state.memo.done(placed.id, &outcome, left);
            ranges(&placed.op).map(|r| r.op).for_each(|op| state.staged.forget(op));
            outcome
        }
        Err(Fail::Conflict(there)) => Outcome::Conflict(there),
        Err(Fail::Refused(kind)) => Outcome::Refused(kind),
    }
}

impl State {
    fn execute(&mut self, placed: &Placed) -> Act<Done> {
        match &placed.op {
            Op::Create { dir, name, new, mode } => self.create(placed, dir, name, new, *mode),
            Op::Write { file, base, pieces } => self.write(placed, file, base.as_ref(), pieces),
            Op::SetAttr { object, base, set } => self.set_attr(object, base.as_ref(), set),
            Op::Remove { dir, name, object, is_dir, base } => {
                self.remove(placed, dir, name, object, *is_dir, base.as_ref())
            }
            Op::Rename { from, name, object, to, new_name, replaced } => {
                let (from, to) = ((self.dir(from)?, name), (self.dir(to)?, new_name));
                let replaced = replaced.as_ref().map(|(loc, base)| (loc.id, base.as_ref()));
                self.rename(placed, from, object, to, replaced)
            }
            Op::Link { object, dir, name } => self.link(placed, object, dir, name),
            Op::SetXattr { object, name, value, how } => {
                self.set_xattr(placed, object, name, value.as_ref(), *how)
            }
        }
    }

    fn dir(&self, at: &Loc) -> Act<u64> {
        let ino = self.find(at)?;
        self.tree.dir(ino)?;
        Ok(ino)
    }

    /// The attributes of what a name stands for.
    fn there(&self, dir: u64, name: &Name) -> Act<Option<Attr>> {
        Ok(self.tree.dir(dir)?.get(name).map(|ino| self.tree.attr(*ino)).transpose()?)
    }

    fn same(&self, then: Option<HomeId>, now: HomeId) -> bool {
        then.is_none_or(|then| self.memo.same_object(then, now))
    }

    fn matches(&self, base: Option<&Version>, now: &Attr) -> bool {
        base.is_none_or(|base| self.memo.matches(base, &now.version()))
    }

    /// The changed directory's attributes, after its time was set.
    fn touch(&mut self, placed: &Placed, dir: u64) -> Act<Attr> {
        self.stamp(placed, dir)?;
        Ok(self.tree.attr(dir)?)
    }

    fn stamp(&mut self, placed: &Placed, ino: u64) -> Act<()> {
        if !placed.plain {
            self.tree.node_mut(ino)?.mtime = placed.time;
        }
        Ok(())
    }

    fn create(&mut self, placed: &Placed, at: &Loc, name: &Name, new: &New, mode: u32) -> Act<Done> {
        let dir = self.dir(at)?;
        let there = self.there(dir, name)?;
        if let Some(attr) = there {
            let same = match new {
                New::Dir => attr.kind == Kind::Dir,
                New::File => placed.resent && attr.kind == Kind::File && attr.size == 0,
                New::Symlink(to) => {
                    matches!(&self.tree.node(attr.id.ino)?.body, Body::Symlink(target) if target == to)
                }
                New::Fifo => placed.resent && attr.kind == Kind::Fifo,
                New::Socket => placed.resent && attr.kind == Kind::Socket,
            };
            let marked = placed.resent && attr.kind == new.kind() && attr.atime == placed.time;
            return match placed.plain {
                false if same => Ok(Done { attr: Some(attr), dirs: vec![self.touch(placed, dir)?] }),
                false => Err(Fail::Conflict(there)),
                true if marked => Ok(Done { attr: Some(attr), dirs: vec![self.tree.attr(dir)?] }),
                true => Err(ErrorKind::Exists.into()),
            };
        }
        let (body, mode) = match new {
            New::File => (Body::File(Vec::new()), mode & 0o1777),
            New::Dir => (Body::Dir(BTreeMap::new()), mode & 0o7777),
            New::Symlink(to) if to.is_empty() => return Err(ErrorKind::Invalid.into()),
            New::Symlink(to) => (Body::Symlink(to.to_vec()), 0o777),
            New::Fifo => (Body::Fifo, mode & 0o1777),
            New::Socket => (Body::Socket, mode & 0o1777),
        };
        let ino = self.tree.add(body, mode);
        self.tree.enter(dir, name, ino)?;
        self.stamp(placed, ino)?;
        if placed.plain {
            self.tree.node_mut(ino)?.atime = placed.time;
        }
        Ok(Done { attr: Some(self.tree.attr(ino)?), dirs: vec![self.touch(placed, dir)?] })
    }

    fn write(
        &mut self,
        placed: &Placed,
        at: &Loc,
        base: Option<&Version>,
        pieces: &[Piece<Payload>],
    ) -> Act<Done> {
        let lost = |kind, there| if placed.plain { Fail::Refused(kind) } else { Fail::Conflict(there) };
        let ino = self.tree.find(&at.path).map_err(|e| match e.kind {
            ErrorKind::NotFound => lost(ErrorKind::NotFound, None),
            kind => Fail::Refused(kind),
        })?;
        let old = self.tree.attr(ino)?;
        if !self.same(at.id, old.id) {
            return Err(lost(ErrorKind::Stale, Some(old)));
        }
        let Body::File(data) = &self.tree.node(ino)?.body else {
            return Err(lost(ErrorKind::IsDir, Some(old)));
        };
        let new = self.changed(data.clone(), pieces)?;
        if !placed.plain && !self.matches(base, &old) {
            let done = placed.resent && old.mtime == placed.time && *data == new;
            return if done {
                Ok(Done { attr: Some(old), dirs: Vec::new() })
            } else {
                Err(Fail::Conflict(Some(old)))
            };
        }
        if self.tree.used() - old.size + new.len() as u64 > self.tree.space {
            return Err(ErrorKind::NoSpace.into());
        }
        let in_place = placed.plain
            || old.nlink > 1
            || self.memo.made_here(&old.version())
            || new.get(..old.size as usize).is_some_and(|kept| kept == &data[..]);
        let ino = if in_place { ino } else { self.exchange(&at.path, ino)? };
        let now = self.tree.now();
        let node = self.tree.node_mut(ino)?;
        node.body = Body::File(new);
        (node.mtime, node.ctime) = (now, now);
        self.stamp(placed, ino)?;
        Ok(Done { attr: Some(self.tree.attr(ino)?), dirs: Vec::new() })
    }

    /// Gives the file another inode, as an exchange with a staged copy does.
    fn exchange(&mut self, path: &HomePath, old: u64) -> Act<u64> {
        let (dir, name) = path.split().ok_or(ErrorKind::IsDir)?;
        let dir = self.tree.find(&dir)?;
        let node = self.tree.node(old)?.clone();
        let new = self.tree.add(Body::File(Vec::new()), node.mode & 0o1777);
        let dir_time = self.tree.node(dir)?.mtime;
        self.memo.succeed(self.tree.attr(old)?.id, self.tree.attr(new)?.id);
        self.tree.leave(dir, &name)?;
        self.tree.enter(dir, &name, new)?;
        self.tree.reap(old);
        let fresh = self.tree.node_mut(new)?;
        (fresh.gid, fresh.atime, fresh.xattrs) = (node.gid, node.atime, node.xattrs);
        self.tree.node_mut(dir)?.mtime = dir_time;
        Ok(new)
    }

    fn changed(&self, mut data: Vec<u8>, pieces: &[Piece<Payload>]) -> Act<Vec<u8>> {
        let room = |size: u64| match usize::try_from(size) {
            Ok(size) if size as u64 <= self.tree.space => Ok(size),
            _ => Err(Fail::Refused(ErrorKind::NoSpace)),
        };
        for piece in pieces {
            match piece {
                Piece::Truncate(size) => data.resize(room(*size)?, 0),
                Piece::Data(at, payload) => {
                    let bytes = self.bytes(payload)?;
                    let end = room(at.saturating_add(bytes.len() as u64))?;
                    if data.len() < end && !bytes.is_empty() {
                        data.resize(end, 0);
                    }
                    if !bytes.is_empty() {
                        data[end - bytes.len()..end].copy_from_slice(&bytes);
                    }
                }
            }
        }
        Ok(data)
    }

    fn bytes(&self, payload: &Payload) -> Act<Bytes> {
        match payload {
            Payload::Spooled(_) if self.crowded => Err(ErrorKind::NoSpace.into()),
            Payload::Inline(bytes) => Ok(bytes.clone()),
            Payload::Staged(range) | Payload::Spooled(Spooled { range, .. }) => {
                Ok(self.staged.get(range).ok_or(ErrorKind::NotStaged)?)
            }
        }
    }

    fn set_attr(&mut self, at: &Loc, base: Option<&Version>, set: &SetAttr) -> Act<Done> {
        let ino = self.find(at)?;
        if set.uid.is_some_and(|uid| uid != UID) {
            return Err(ErrorKind::Perm.into());
        }
        let before = self.tree.attr(ino)?.version();
        let known = base.is_some_and(|base| !self.memo.is_foreign(base, &before, set.mtime));
        let now = self.tree.now();
        let node = self.tree.node_mut(ino)?;
        let time = |t: SetTime| -> Time {
            match t {
                SetTime::Now => now,
                SetTime::At(t) => t,
            }
        };
        match (set.mode, node.body.kind()) {
            (None, _) | (_, Kind::Symlink) => {}
            (Some(mode), Kind::Dir) => node.mode = mode & 0o7777,
            (Some(mode), _) => node.mode = mode & 0o1777,
        }
        node.gid = set.gid.unwrap_or(node.gid);
        node.atime = set.atime.map_or(node.atime, time);
        node.mtime = set.mtime.filter(|_| known || base.is_none()).map_or(node.mtime, time);
        node.ctime = now;
        let attr = self.tree.attr(ino)?;
        self.memo.stamped(&before, &attr.version(), known);
        Ok(Done { attr: Some(attr), dirs: Vec::new() })
    }

    fn set_xattr(
        &mut self,
        placed: &Placed,
        at: &Loc,
        name: &XattrName,
        value: Option<&Bytes>,
        how: XattrHow,
    ) -> Act<Done> {
        let ino = self.find(at)?;
        if !self.tree.has_xattrs {
            return Err(ErrorKind::Unsupported.into());
        }
        let now = self.tree.now();
        let node = self.tree.node_mut(ino)?;
        if !node.body.may_have_xattrs() {
            return Err(ErrorKind::Perm.into());
        }
        let there = node.xattrs.get(name);
        let how = if placed.plain { how } else { XattrHow::Any };
        match (value, how, there) {
            (None, _, None) if placed.plain && !placed.resent => return Err(ErrorKind::NoAttribute.into()),
            (Some(_), XattrHow::Replace, None) => return Err(ErrorKind::NoAttribute.into()),
            (Some(value), XattrHow::Create, Some(there)) if !placed.resent || value != there => {
                return Err(ErrorKind::Exists.into());
            }
            (None, _, _) => drop(node.xattrs.remove(name)),
            (Some(value), _, _) => drop(node.xattrs.insert(name.clone(), value.clone())),
        }
        node.ctime = now;
        Ok(Done { attr: Some(self.tree.attr(ino)?), dirs: Vec::new() })
    }

    fn remove(
        &mut self,
        placed: &Placed,
        at: &Loc,
        name: &Name,
        object: &Loc,
        is_dir: bool,
        base: Option<&Version>,
    ) -> Act<Done> {
        let dir = self.dir(at)?;
        let Some(attr) = self.there(dir, name)? else {
            return match placed.plain && !placed.resent {
                true => Err(ErrorKind::NotFound.into()),
                false => Ok(Done { attr: None, dirs: vec![self.tree.attr(dir)?] }),
            };
        };
        if !self.same(object.id, attr.id) {
            return Err(if placed.plain { ErrorKind::Stale.into() } else { Fail::Conflict(Some(attr)) });
        }
        match (is_dir, &self.tree.node(attr.id.ino)?.body) {
            (true, Body::Dir(names)) if !names.is_empty() => return Err(ErrorKind::NotEmpty.into()),
            (true, Body::Dir(_)) => {}
            (true, _) => return Err(ErrorKind::NotDir.into()),
            (false, Body::Dir(_)) => return Err(ErrorKind::IsDir.into()),
            (false, _) if !placed.plain && !self.matches(base, &attr) => {
                return Err(Fail::Conflict(Some(attr)));
            }
            _ => {}
        }
        self.tree.leave(dir, name)?;
        self.tree.reap(attr.id.ino);
        let left = self.tree.attr(attr.id.ino).ok();
        Ok(Done { attr: left, dirs: vec![self.touch(placed, dir)?] })
    }

    fn rename(
        &mut self,
        placed: &Placed,
        from: (u64, &Name),
        object: &Loc,
        to: (u64, &Name),
        replaced: Option<(Option<HomeId>, Option<&Version>)>,
    ) -> Act<Done> {
        let (source, there) = (self.there(from.0, from.1)?, self.there(to.0, to.1)?);
        let moved = match (source, there) {
            (Some(source), _) if self.same(object.id, source.id) => source,
            (_, Some(arrived))
                if object.id.is_some()
                    && self.same(object.id, arrived.id)
                    && (!placed.plain || placed.resent) =>
            {
                let dirs = vec![self.touch(placed, from.0)?, self.touch(placed, to.0)?];
                return Ok(Done { attr: there, dirs });
            }
            (Some(_), _) => return Err(ErrorKind::Stale.into()),
            (None, _) => return Err(ErrorKind::NotFound.into()),
        };
        if let Some(attr) = there.filter(|t| t.id != moved.id) {
            let known = replaced.is_some_and(|(id, _)| self.same(id, attr.id));
            if placed.plain {
                if replaced.is_some() && !known {
                    return Err(ErrorKind::Stale.into());
                }
            } else if !known || (attr.kind != Kind::Dir && !self.matches(replaced.and_then(|r| r.1), &attr)) {
                return Err(Fail::Conflict(there));
            }
        }
        self.tree.rename(from, to)?;
        let dirs = vec![self.touch(placed, from.0)?, self.touch(placed, to.0)?];
        Ok(Done { attr: Some(self.tree.attr(moved.id.ino)?), dirs })
    }

    fn link(&mut self, placed: &Placed, object: &Loc, to: &Loc, name: &Name) -> Act<Done> {
        let (ino, dir) = (self.find(object)?, self.dir(to)?);
        if matches!(self.tree.node(ino)?.body, Body::Dir(_)) {
            return Err(ErrorKind::Perm.into());
        }
        match self.there(dir, name)? {
            None => self.tree.enter(dir, name, ino)?,
            Some(attr) if attr.id.ino == ino && (!placed.plain || placed.resent) => {}
            Some(_) if placed.plain => return Err(ErrorKind::Exists.into()),
            there => return Err(Fail::Conflict(there)),
        }
        Ok(Done { attr: Some(self.tree.attr(ino)?), dirs: vec![self.touch(placed, dir)?] })
    }
}
