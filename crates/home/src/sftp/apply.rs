//! Changes over SFTP: look whether the base is still there, then act.
//!
//! Between the two another program may act, too; that is the weakness of this class, and [`super`] says so. An
//! operation that was executed is remembered with its outcome, and so is the state that it left a file in: later
//! operations may have been built on what was there before ours.

use super::link::nonsense;
use super::look::about;
use super::wire::{self, Answer, Ask, Attrs};
use super::{Session, absolute, now};
use crate::limits::remote::SFTP_PARTS;
use crate::limits::{LEFT_KEPT, OUTCOMES_KEPT};
use crate::op::{Done, New, Op, OpId, Outcome, Payload, Piece, Placed, SetAttr, SetTime};
use crate::{Attr, Error, ErrorKind, HomePath, Kind, Loc, Name, Result, Time, Version};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use oncrpc::xdr::Writer;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Set-user-id and set-group-id bits, which never reach a file.
const SET_ID: u32 = 0o6000;

/// What is remembered of executed operations while the connection lasts.
#[derive(Default)]
pub(super) struct Memo {
    outcomes: Recent<OpId, Outcome>,
    left: Recent<HomePath, Version>,
}

/// A map that forgets its oldest entries.
struct Recent<K, V> {
    map: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Recent { map: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    fn put(&mut self, key: K, value: V, max: usize) {
        if self.map.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
        while self.map.len() > max {
            let Some(oldest) = self.order.pop_front() else { break };
            self.map.remove(&oldest);
        }
    }
}

impl Memo {
    /// Whether `attr` shows the content that `base` names, or what we have made of it since.
    fn matches(&self, path: &HomePath, base: &Version, attr: &Attr) -> bool {
        shows(attr, base) || self.is_left(path, attr)
    }

    /// Whether `attr` shows the content that we have left there.
    fn is_left(&self, path: &HomePath, attr: &Attr) -> bool {
        self.left.map.get(path).is_some_and(|left| shows(attr, left))
    }

    /// Whether a file has another content than the one that a change of its times was made to. One that has the wanted
    /// time got it by an earlier execution.
    fn is_foreign(&self, path: &HomePath, base: &Version, attr: &Attr, wanted: Option<SetTime>) -> bool {
        let was_set = |time| matches!(time, SetTime::At(t) if t.sec == attr.mtime.sec);
        let was_set = wanted.is_some_and(was_set) && attr.size == base.size;
        !was_set && !self.matches(path, base, attr)
    }

    fn leave(&mut self, path: &HomePath, attr: &Attr) {
        self.left.put(path.clone(), attr.version(), LEFT_KEPT);
    }

    fn forget(&mut self, path: &HomePath) {
        if self.left.map.remove(path).is_some() {
            self.left.order.retain(|p| p != path);
        }
    }
}

/// Whether `attr` is that of a content, as far as whole seconds tell.
fn shows(attr: &Attr, content: &Version) -> bool {
    attr.size == content.size && attr.mtime.sec == content.mtime.sec
}

/// The parts of [`Op::Rename`].
struct Move<'a> {
    from: &'a Loc,
    name: &'a Name,
    object: &'a Loc,
    to: &'a Loc,
    new_name: &'a Name,
    replaced: Option<&'a (Loc, Option<Version>)>,
}

fn refused(kind: ErrorKind) -> Result<Outcome> {
    Ok(Outcome::Refused(kind))
}

impl Session {
    /// Executes one operation, or gives its first outcome again. An error means that nobody knows.
    pub(super) async fn execute(&self, memo: &mut Memo, placed: Placed) -> Result<Outcome> {
        if let Some(outcome) = memo.outcomes.map.get(&placed.id) {
            return Ok(outcome.clone());
        }
        let outcome = match self.change(memo, &placed).await {
            Ok(outcome) => outcome,
            Err(e) if matches!(e.kind, ErrorKind::Unreachable | ErrorKind::NotStaged) => return Err(e),
            Err(e) => Outcome::Refused(e.kind),
        };
        if matches!(outcome, Outcome::Done(_)) {
            memo.outcomes.put(placed.id, outcome.clone(), OUTCOMES_KEPT);
        }
        Ok(outcome)
    }

    async fn change(&self, memo: &mut Memo, placed: &Placed) -> Result<Outcome> {
        match &placed.op {
            Op::Create { dir, name, new, mode } => self.create(memo, placed, dir, name, new, *mode).await,
            Op::Write { file, base, pieces } => self.write(memo, placed, file, base.as_ref(), pieces).await,
            Op::SetAttr { object, base, set } => self.set(memo, object, base.as_ref(), set).await,
            Op::Remove { dir, name, object, is_dir, base } => {
                let path = dir.path.join(name);
                self.look_at_ids(&[dir, object])?;
                self.remove(memo, placed, &path, *is_dir, base.as_ref()).await
            }
            Op::Rename { from, name, object, to, new_name, replaced } => {
                let replaced = replaced.as_ref();
                self.rename(memo, placed, Move { from, name, object, to, new_name, replaced }).await
            }
            Op::Link { object, dir, name } => self.link_name(memo, object, &dir.path.join(name)).await,
            // No version of the protocol that servers speak has them.
            Op::SetXattr { .. } => refused(ErrorKind::Unsupported),
        }
    }

    /// Identities that SFTP has not given are not there.
    fn look_at_ids(&self, locs: &[&Loc]) -> Result<()> {
        match locs.iter().any(|l| l.id.is_some_and(|id| id != Default::default())) {
            true => Err(ErrorKind::Stale.into()),
            false => Ok(()),
        }
    }

    /// The outcome of a change that left `object` under `path`, in the directories `dirs`.
    async fn done(&self, memo: &mut Memo, path: Option<&HomePath>, dirs: &[&HomePath]) -> Result<Outcome> {
        let attr = match path {
            Some(path) => self.find(path).await?,
            None => None,
        };
        if let (Some(path), Some(attr)) = (path, &attr) {
            memo.leave(path, attr);
        }
        self.outcome(attr, dirs).await
    }

    /// The outcome of a change after which `attr` is seen, in the directories `dirs`.
    async fn outcome(&self, attr: Option<Attr>, dirs: &[&HomePath]) -> Result<Outcome> {
        let mut after = Vec::new();
        for dir in dirs {
            self.listings.lock().forget(dir);
            after.extend(self.find(dir).await?);
        }
        Ok(Outcome::Done(Done { attr, dirs: after }))
    }

    async fn create(
        &self,
        memo: &mut Memo,
        placed: &Placed,
        dir: &Loc,
        name: &Name,
        new: &New,
        mode: u32,
    ) -> Result<Outcome> {
        self.look_at_ids(&[dir])?;
        let path = dir.path.join(name);
        if let Some(there) = self.find(&path).await? {
            return match self.is_wanted(placed, &path, new, &there).await? {
                true => self.done(memo, Some(&path), &[&dir.path]).await,
                false if placed.plain => refused(ErrorKind::Exists),
                false => Ok(Outcome::Conflict(Some(there))),
            };
        }
        let made = match new {
            New::File => self.create_file(placed, &path, mode & !SET_ID).await,
            New::Dir => self.create_dir(&path, mode).await,
            New::Symlink(target) => self.create_symlink(&path, target).await,
            New::Fifo | New::Socket => return refused(ErrorKind::Unsupported),
        };
        match made {
            Ok(()) => self.done(memo, Some(&path), &[&dir.path]).await,
            // Servers have one code for everything: somebody may have been faster.
            Err(e) if e.kind != ErrorKind::Unreachable => match self.find(&path).await? {
                Some(there) if !placed.plain => Ok(Outcome::Conflict(Some(there))),
                Some(_) => refused(ErrorKind::Exists),
                None => Err(e),
            },
            Err(e) => Err(e),
        }
    }

    /// Whether what is there is what the operation wants, so that it counts as done.
    async fn is_wanted(&self, placed: &Placed, path: &HomePath, new: &New, there: &Attr) -> Result<bool> {
        if placed.plain && !placed.resent {
            return Ok(false);
        }
        Ok(match (new, there.kind) {
            (New::Dir, Kind::Dir) => true,
            (New::File, Kind::File) => placed.resent && there.size == 0,
            (New::Symlink(target), Kind::Symlink) => self.raw_target(path).await? == *target,
            _ => false,
        })
    }

    async fn create_file(&self, placed: &Placed, path: &HomePath, mode: u32) -> Result<()> {
        let attrs = Attrs { mode: Some(mode), ..Attrs::default() };
        let handle = self.open(path, wire::WRITE | wire::CREAT | wire::EXCL, &attrs).await?;
        // The mode again, because the server's umask took from it.
        let set = Attrs { times: times_of(placed), ..attrs };
        let finish = self.finish(&handle, &set).await;
        self.link.close_later(handle);
        finish
    }

    /// Sets attributes through a handle, and makes the file durable where the server can.
    async fn finish(&self, handle: &Bytes, set: &Attrs) -> Result<()> {
        if *set != Attrs::default() {
            let body = |w: &mut Writer| {
                wire::put_string(w, handle);
                set.encode(w);
            };
            self.link.ask(Ask::Fsetstat, body).await?;
        }
        if self.link.can.fsync {
            self.link.extended("fsync@openssh.com", |w| wire::put_string(w, handle)).await?;
        }
        Ok(())
    }

    async fn create_dir(&self, path: &HomePath, mode: u32) -> Result<()> {
        let attrs = Attrs { mode: Some(mode), ..Attrs::default() };
        self.ask_path(Ask::Mkdir, path, &attrs).await?;
        self.ask_path(Ask::Setstat, path, &attrs).await
    }

    async fn create_symlink(&self, path: &HomePath, target: &Bytes) -> Result<()> {
        // OpenSSH has the two arguments in this order, against the draft, and others have followed it.
        let body = |w: &mut Writer| {
            wire::put_string(w, target);
            wire::put_string(w, &absolute(path));
        };
        self.link.ask(Ask::Symlink, body).await.map(drop)
    }

    async fn ask_path(&self, ask: Ask, path: &HomePath, attrs: &Attrs) -> Result<()> {
        let body = |w: &mut Writer| {
            wire::put_string(w, &absolute(path));
            attrs.encode(w);
        };
        self.link.ask(ask, body).await.map(drop).map_err(|e| about(path, e))
    }

    async fn write(
        &self,
        memo: &mut Memo,
        placed: &Placed,
        file: &Loc,
        base: Option<&Version>,
        pieces: &[Piece<Payload>],
    ) -> Result<Outcome> {
        self.look_at_ids(&[file])?;
        let path = &file.path;
        let base = base.filter(|_| !placed.plain);
        let pieces = inline(pieces)?;
        let Some(there) = self.find(path).await? else {
            return match base {
                Some(_) => Ok(Outcome::Conflict(None)),
                None => refused(ErrorKind::NotFound),
            };
        };
        match there.kind {
            Kind::File => {}
            _ if base.is_some() => return Ok(Outcome::Conflict(Some(there))),
            Kind::Dir => return refused(ErrorKind::IsDir),
            _ => return refused(ErrorKind::Invalid),
        }
        if base.is_some_and(|base| !memo.matches(path, base, &there)) {
            return match placed.resent && self.is_written(path, &there, &pieces).await? {
                true => self.done(memo, Some(path), &[]).await,
                false => Ok(Outcome::Conflict(Some(there))),
            };
        }
        self.write_pieces(placed, &there, path, &pieces).await?;
        self.done(memo, Some(path), &[]).await
    }

    async fn write_pieces(
        &self,
        placed: &Placed,
        there: &Attr,
        path: &HomePath,
        pieces: &[Flat],
    ) -> Result<()> {
        let opened = self.open(path, wire::WRITE, &Attrs::default()).await;
        let handle = match opened {
            // The owner may write what is read-only to him, as programs that made it so expect.
            Err(e)
                if e.kind == ErrorKind::Access
                    && self.account.ids.is_some_and(|(uid, _)| uid == there.uid) =>
            {
                let mode = |mode| Attrs { mode: Some(mode), ..Attrs::default() };
                self.ask_path(Ask::Setstat, path, &mode(there.mode | 0o200)).await?;
                let handle = self.open(path, wire::WRITE, &Attrs::default()).await;
                self.ask_path(Ask::Setstat, path, &mode(there.mode)).await?;
                handle?
            }
            opened => opened?,
        };
        let wrote = async {
            for piece in pieces {
                match piece {
                    Flat::Truncate(size) => self.truncate(&handle, *size).await?,
                    Flat::Data(at, data) => self.write_at(&handle, *at, data).await?,
                }
            }
            self.finish(&handle, &Attrs { times: times_of(placed), ..Attrs::default() }).await
        };
        let wrote = wrote.await;
        self.link.close_later(handle);
        wrote.map_err(|e| about(path, e))
    }

    async fn truncate(&self, handle: &Bytes, size: u64) -> Result<()> {
        let body = |w: &mut Writer| {
            wire::put_string(w, handle);
            Attrs { size: Some(size), ..Attrs::default() }.encode(w);
        };
        self.link.ask(Ask::Fsetstat, body).await.map(drop)
    }

    async fn write_at(&self, handle: &Bytes, at: u64, data: &Bytes) -> Result<()> {
        let step = self.link.can.write_max as usize;
        let writes = (0..data.len()).step_by(step).map(|i| async move {
            let part = data.slice(i..data.len().min(i + step));
            let body = |w: &mut Writer| {
                wire::put_string(w, handle);
                w.u64(at + i as u64);
                wire::put_string(w, &part);
            };
            self.link.ask(Ask::Write, body).await.map(drop)
        });
        stream::iter(writes).buffered(SFTP_PARTS).try_collect().await
    }

    /// Whether the file already has what the pieces would write.
    async fn is_written(&self, path: &HomePath, there: &Attr, pieces: &[Flat]) -> Result<bool> {
        let Some(wanted) = visible(pieces) else { return Ok(false) };
        let long_enough = wanted.iter().all(|(at, data)| at + data.len() as u64 <= there.size);
        let size = pieces.iter().rev().find_map(|p| match p {
            Flat::Truncate(size) => Some(*size),
            Flat::Data(..) => None,
        });
        if !long_enough || size.is_some_and(|size| size > there.size) {
            return Ok(false);
        }
        let handle = self.open(path, wire::READ, &Attrs::default()).await?;
        let same = async {
            for (at, data) in wanted {
                if self.read_parts(&handle, at, data.len() as u32).await? != data {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let same = same.await;
        self.link.close_later(handle);
        same
    }

    async fn set(
        &self,
        memo: &mut Memo,
        object: &Loc,
        base: Option<&Version>,
        set: &SetAttr,
    ) -> Result<Outcome> {
        let there = self.look(object).await?;
        // Another content keeps its time, so that it is seen to be another one.
        let foreign = base.is_some_and(|base| memo.is_foreign(&object.path, base, &there, set.mtime));
        let ours = if base.is_some() { !foreign } else { memo.is_left(&object.path, &there) };
        let set = SetAttr { mtime: set.mtime.filter(|_| !foreign), ..*set };
        let at = |time: Option<SetTime>, old: Time| match time {
            None => seconds(old),
            Some(SetTime::Now) => seconds(now()),
            Some(SetTime::At(time)) => seconds(time),
        };
        let some_time = set.atime.is_some() || set.mtime.is_some();
        let some_id = set.uid.is_some() || set.gid.is_some();
        let stripped = if there.kind == Kind::File { SET_ID } else { 0 };
        let attrs = Attrs {
            size: None,
            ids: some_id.then(|| (set.uid.unwrap_or(there.uid), set.gid.unwrap_or(there.gid))),
            mode: set.mode.map(|mode| mode & 0o7777 & !stripped),
            times: some_time.then(|| (at(set.atime, there.atime), at(set.mtime, there.mtime))),
        };
        let path = &object.path;
        match there.kind {
            // SETSTAT would follow the link.
            Kind::Symlink if self.link.can.lsetstat => {
                let body = |w: &mut Writer| {
                    wire::put_string(w, &absolute(path));
                    Attrs { mode: None, ..attrs }.encode(w);
                };
                self.link.extended("lsetstat@openssh.com", body).await?;
            }
            Kind::Symlink => return refused(ErrorKind::Unsupported),
            _ => self.ask_path(Ask::Setstat, path, &attrs).await.map_err(as_owner)?,
        }
        match ours {
            true => self.done(memo, Some(path), &[]).await,
            // What a later write may go over is only what we know.
            false => self.outcome(self.find(path).await?, &[]).await,
        }
    }

    async fn remove(
        &self,
        memo: &mut Memo,
        placed: &Placed,
        path: &HomePath,
        is_dir: bool,
        base: Option<&Version>,
    ) -> Result<Outcome> {
        let dir = path.split().map(|(dir, _)| dir).unwrap_or_default();
        let Some(there) = self.find(path).await? else {
            return match placed.plain && !placed.resent {
                true => refused(ErrorKind::NotFound),
                false => self.done(memo, None, &[&dir]).await,
            };
        };
        match (is_dir, there.kind == Kind::Dir) {
            (true, false) => return refused(ErrorKind::NotDir),
            (false, true) => return refused(ErrorKind::IsDir),
            _ => {}
        }
        if base.is_some_and(|base| !placed.plain && !is_dir && !memo.matches(path, base, &there)) {
            return Ok(Outcome::Conflict(Some(there)));
        }
        let ask = if is_dir { Ask::Rmdir } else { Ask::Remove };
        let removed = self.link.ask(ask, |w| wire::put_string(w, &absolute(path))).await;
        if let Err(e) = removed {
            let full = is_dir && e.kind == ErrorKind::Io && !self.names(path).await?.is_empty();
            return if full { refused(ErrorKind::NotEmpty) } else { Err(about(path, e)) };
        }
        memo.forget(path);
        self.done(memo, None, &[&dir]).await
    }

    async fn rename(&self, memo: &mut Memo, placed: &Placed, m: Move<'_>) -> Result<Outcome> {
        self.look_at_ids(&[m.from, m.object, m.to])?;
        let (old, new) = (m.from.path.join(m.name), m.to.path.join(m.new_name));
        let dirs = [&m.from.path, &m.to.path];
        let Some(moving) = self.find(&old).await? else {
            return match placed.resent && self.find(&new).await?.is_some() {
                true => self.done(memo, Some(&new), &dirs).await,
                false => refused(ErrorKind::NotFound),
            };
        };
        let there = self.find(&new).await?;
        let hindered = |there: &Attr| may_replace(memo, placed, &new, &moving, there, m.replaced);
        if let Some(outcome) = there.as_ref().and_then(hindered) {
            return Ok(outcome);
        }
        let full = there.is_some_and(|t| t.kind == Kind::Dir) && !self.names(&new).await?.is_empty();
        if full {
            return refused(ErrorKind::NotEmpty);
        }
        match there {
            None => self.rename_free(&old, &new).await?,
            Some(_) if self.link.can.posix_rename => self.rename_over(&old, &new).await?,
            Some(there) => self.rename_aside(placed.id, &old, &new, &there).await?,
        }
        let left = memo.left.map.get(&old).copied();
        memo.forget(&old);
        memo.forget(&new);
        if let Some(left) = left {
            memo.left.put(new.clone(), left, LEFT_KEPT);
        }
        self.done(memo, Some(&new), &dirs).await
    }

    /// The server refuses where the new name is taken.
    async fn rename_free(&self, old: &HomePath, new: &HomePath) -> Result<()> {
        let body = |w: &mut Writer| {
            wire::put_string(w, &absolute(old));
            wire::put_string(w, &absolute(new));
        };
        self.link.ask(Ask::Rename, body).await.map(drop).map_err(|e| about(old, e))
    }

    async fn rename_over(&self, old: &HomePath, new: &HomePath) -> Result<()> {
        let body = |w: &mut Writer| {
            wire::put_string(w, &absolute(old));
            wire::put_string(w, &absolute(new));
        };
        self.link.extended("posix-rename@openssh.com", body).await.map(drop).map_err(|e| about(old, e))
    }

    /// Without an atomic replacement: what is in the way goes aside, and comes back if the rename fails.
    async fn rename_aside(&self, op: OpId, old: &HomePath, new: &HomePath, there: &Attr) -> Result<()> {
        let (dir, _) = new.split().ok_or(ErrorKind::Invalid)?;
        let aside = dir.join(&Name::new(format!(".trellis-aside-{:x}-{:x}", op.gateway, op.seq).as_bytes())?);
        self.rename_free(new, &aside).await?;
        if let Err(e) = self.rename_free(old, new).await {
            self.rename_free(&aside, new).await?;
            return Err(e);
        }
        let ask = if there.kind == Kind::Dir { Ask::Rmdir } else { Ask::Remove };
        self.link.ask(ask, |w| wire::put_string(w, &absolute(&aside))).await.map(drop)
    }

    async fn link_name(&self, memo: &mut Memo, object: &Loc, path: &HomePath) -> Result<Outcome> {
        self.look(object).await?;
        if let Some(there) = self.find(path).await? {
            return Ok(Outcome::Conflict(Some(there)));
        }
        if !self.link.can.hardlink {
            return refused(ErrorKind::Unsupported);
        }
        let body = |w: &mut Writer| {
            wire::put_string(w, &absolute(&object.path));
            wire::put_string(w, &absolute(path));
        };
        match self.link.extended("hardlink@openssh.com", body).await {
            Ok(Answer::Status { .. }) => {}
            Ok(_) => return Err(nonsense()),
            Err(e) => return Err(about(path, e)),
        }
        let dir = path.split().map(|(dir, _)| dir).unwrap_or_default();
        self.done(memo, Some(path), &[&dir]).await
    }
}

/// Why the rename may not replace what is there; `None` if it may.
fn may_replace(
    memo: &Memo,
    placed: &Placed,
    path: &HomePath,
    moving: &Attr,
    there: &Attr,
    replaced: Option<&(Loc, Option<Version>)>,
) -> Option<Outcome> {
    let Some((_, base)) = replaced else {
        return Some(match placed.plain {
            true => Outcome::Refused(ErrorKind::Exists),
            false => Outcome::Conflict(Some(*there)),
        });
    };
    match (moving.kind == Kind::Dir, there.kind == Kind::Dir) {
        (true, false) => return Some(Outcome::Refused(ErrorKind::NotDir)),
        (false, true) => return Some(Outcome::Refused(ErrorKind::IsDir)),
        _ => {}
    }
    let changed =
        |base: &Version| !placed.plain && there.kind == Kind::File && !memo.matches(path, base, there);
    base.as_ref().is_some_and(changed).then_some(Outcome::Conflict(Some(*there)))
}

/// A piece with its bytes.
enum Flat {
    Truncate(u64),
    Data(u64, Bytes),
}

fn inline(pieces: &[Piece<Payload>]) -> Result<Vec<Flat>> {
    let flat = |piece: &Piece<Payload>| match piece {
        Piece::Truncate(size) => Ok(Flat::Truncate(*size)),
        Piece::Data(at, Payload::Inline(data)) if at.checked_add(data.len() as u64).is_some() => {
            Ok(Flat::Data(*at, data.clone()))
        }
        Piece::Data(_, Payload::Inline(_)) => Err(ErrorKind::TooBig.into()),
        Piece::Data(_, Payload::Staged(_)) => {
            Err(Error::new(ErrorKind::NotStaged, "an SFTP home holds no staged data"))
        }
    };
    pieces.iter().map(flat).collect()
}

/// The data that is left when all pieces are applied. `None` where they overlap, or cut each other.
fn visible(pieces: &[Flat]) -> Option<Vec<(u64, Bytes)>> {
    let mut data: Vec<(u64, Bytes)> = Vec::new();
    for piece in pieces {
        match piece {
            Flat::Truncate(size) if data.iter().any(|(at, d)| at + d.len() as u64 > *size) => return None,
            Flat::Truncate(_) => {}
            Flat::Data(at, bytes) => data.push((*at, bytes.clone())),
        }
    }
    data.sort_by_key(|(at, _)| *at);
    let apart = data.windows(2).all(|w| w[0].0 + w[0].1.len() as u64 <= w[1].0);
    apart.then_some(data)
}

/// The modification time that an operation gives; a plain one leaves it to the home's clock.
fn times_of(placed: &Placed) -> Option<(u32, u32)> {
    (!placed.plain).then(|| (seconds(placed.time), seconds(placed.time)))
}

/// What SFTP can say of a time: whole seconds from 1970 to 2106.
fn seconds(time: Time) -> u32 {
    time.sec.clamp(0, u32::MAX.into()) as u32
}

/// A refused change of attributes is not a matter of mode bits.
fn as_owner(e: Error) -> Error {
    match e.kind {
        ErrorKind::Access => Error::new(ErrorKind::Perm, e.detail),
        _ => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_data_is_what_no_other_piece_touches() {
        let data = |at, text: &'static [u8]| Flat::Data(at, Bytes::from_static(text));
        let apart = visible(&[data(4, b"ef"), data(0, b"ab"), Flat::Truncate(10)]).unwrap();
        assert_eq!(apart.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 4]);
        assert!(visible(&[data(0, b"abc"), data(2, b"x")]).is_none());
        assert!(visible(&[data(0, b"abc"), Flat::Truncate(2)]).is_none());
    }

    #[test]
    fn times_are_clamped_to_what_sftp_can_say() {
        let at = |sec| seconds(Time { sec, nsec: 999_999_999 });
        assert_eq!((at(-5), at(7), at(1 << 40)), (0, 7, u32::MAX));
    }

    #[test]
    fn the_oldest_memory_goes_first() {
        let mut recent = Recent::default();
        (0..5).for_each(|i| recent.put(i, i, 3));
        recent.put(4, 40, 3);
        assert_eq!((recent.map.len(), recent.map.get(&1), recent.map.get(&4)), (3, None, Some(&40)));
    }
}
