//! Changes over SFTP: look whether the base is still there, then act.
//!
//! Between the two another program may act, too; that is the weakness of this class, and [`super`] says so. An
//! operation that was executed is remembered with its outcome, and so is the state that it left a file in: later
//! operations may have been built on what was there before ours.

use super::flight::is_staged_by;
use super::link::Pending;
use super::look::{about, known_here, settled};
use super::wire::{self, Ask, Attrs};
use super::{Session, absolute, now};
use crate::limits::{LEFT_KEPT, OUTCOMES_KEPT};
use crate::op::{Done, New, Op, OpId, Outcome, Placed, SetAttr, SetTime};
use crate::recent::Recent;
use crate::{Attr, Error, ErrorKind, HomePath, Kind, Loc, Name, Result, Time, Version};
use bytes::Bytes;
use oncrpc::xdr::Writer;
use parking_lot::Mutex;
use std::sync::Arc;

/// Set-user-id and set-group-id bits, which never reach a file.
pub(super) const SET_ID: u32 = 0o6000;

/// What is remembered of executed operations while the connection lasts.
pub(super) struct Memo {
    pub outcomes: Recent<OpId, Outcome>,
    /// Contents that we have left under a path.
    pub left: Arc<Mutex<Recent<HomePath, Version>>>,
}

impl Default for Memo {
    fn default() -> Self {
        let left = Mutex::new(Recent::new(LEFT_KEPT));
        Memo { outcomes: Recent::new(OUTCOMES_KEPT), left: Arc::new(left) }
    }
}

impl Memo {
    /// Whether `attr` shows the content that `base` names, or what we have made of it since.
    pub fn matches(&self, path: &HomePath, base: &Version, attr: &Attr) -> bool {
        shows(attr, base) || self.is_left(path, attr)
    }

    /// Whether `attr` shows the content that we have left there.
    fn is_left(&self, path: &HomePath, attr: &Attr) -> bool {
        self.left.lock().get(path).is_some_and(|left| shows(attr, left))
    }

    /// Whether a file has another content than the one that a change of its times was made to. One that has the wanted
    /// time got it by an earlier execution.
    fn is_foreign(&self, path: &HomePath, base: &Version, attr: &Attr, wanted: Option<SetTime>) -> bool {
        let was_set = |time| matches!(time, SetTime::At(t) if t.sec == attr.mtime.sec);
        let was_set = wanted.is_some_and(was_set) && attr.size == base.size;
        !was_set && !self.matches(path, base, attr)
    }

    pub fn leave(&mut self, path: &HomePath, attr: &Attr) {
        self.left.lock().put(path.clone(), attr.version());
    }

    /// The outcome of a change that left what it says under `path`.
    pub fn left_by(&mut self, path: Option<&HomePath>, mut done: Done) -> Outcome {
        if let (Some(path), Some(attr)) = (path, &mut done.attr) {
            *attr = settled(*attr);
            self.leave(path, attr);
        }
        Outcome::Done(done)
    }

    fn forget(&mut self, path: &HomePath) {
        self.left.lock().forget(path);
    }
}

/// Whether `attr` is that of a content, as far as whole seconds tell.
pub(super) fn shows(attr: &Attr, content: &Version) -> bool {
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

pub(super) fn refused(kind: ErrorKind) -> Result<Outcome> {
    Ok(Outcome::Refused(kind))
}

impl Session {
    /// Executes one operation, or gives its first outcome again. An error means that nobody knows.
    pub(super) async fn execute(&self, memo: &mut Memo, placed: &Placed) -> Result<Outcome> {
        if let Some(outcome) = memo.outcomes.get(&placed.id) {
            return Ok(outcome.clone());
        }
        let outcome = match self.change(memo, placed).await {
            Ok(outcome) => outcome,
            Err(e) if matches!(e.kind, ErrorKind::Unreachable | ErrorKind::NotStaged) => return Err(e),
            Err(e) => Outcome::Refused(e.kind),
        };
        if matches!(outcome, Outcome::Done(_)) {
            memo.outcomes.put(placed.id, outcome.clone());
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
                [dir, object].into_iter().try_for_each(known_here)?;
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

    /// The outcome of a change that left `object` under `path`, in the directories `dirs`.
    pub(super) async fn done(
        &self,
        memo: &mut Memo,
        path: Option<&HomePath>,
        dirs: &[&HomePath],
    ) -> Result<Outcome> {
        let _room = self.link.room(1 + dirs.len(), 0).await?;
        let after = self.ask_after(path, dirs)?;
        self.done_after(memo, after).await
    }

    /// Asks what there is behind a change that was sent just now.
    pub(super) fn ask_after<'a>(
        &self,
        path: Option<&'a HomePath>,
        dirs: &[&'a HomePath],
    ) -> Result<After<'a>> {
        let look = |path: &'a HomePath| Ok((path, self.link.send_about(Ask::Lstat, &absolute(path))?));
        Ok(After {
            object: path.map(look).transpose()?,
            dirs: dirs.iter().map(|dir| look(dir)).collect::<Result<_>>()?,
        })
    }

    /// The outcome of a change that was done, and left what there is.
    pub(super) async fn done_after(&self, memo: &mut Memo, after: After<'_>) -> Result<Outcome> {
        let path = after.object.as_ref().map(|(path, _)| *path);
        let done = self.outcome(after).await?;
        Ok(memo.left_by(path, done))
    }

    pub(super) async fn outcome(&self, after: After<'_>) -> Result<Done> {
        let attr = match after.object {
            Some((path, asked)) => self.found(path, asked).await?,
            None => None,
        };
        let mut dirs = Vec::new();
        for (dir, asked) in after.dirs {
            self.listings.lock().forget(dir);
            dirs.extend(self.found(dir, asked).await?);
        }
        Ok(Done { attr, dirs })
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
        known_here(dir)?;
        let path = dir.path.join(name);
        let dirs = [&dir.path];
        let made = match new {
            New::File => self.create_file(memo, placed, &path, mode & !SET_ID, &dirs).await,
            New::Dir => self.create_dir(memo, &path, mode, &dirs).await,
            New::Symlink(target) => self.create_symlink(memo, &path, target, &dirs).await,
            New::Fifo | New::Socket => return refused(ErrorKind::Unsupported),
        };
        match made {
            // Servers have one code for everything: there may be something.
            Err(e) if e.kind != ErrorKind::Unreachable => match self.find(&path).await? {
                None => Err(e),
                Some(there) if self.is_wanted(placed, &path, new, &there).await? => {
                    self.done(memo, Some(&path), &dirs).await
                }
                Some(_) if placed.plain => refused(ErrorKind::Exists),
                Some(there) => Ok(Outcome::Conflict(Some(there))),
            },
            made => made,
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

    async fn create_file(
        &self,
        memo: &mut Memo,
        placed: &Placed,
        path: &HomePath,
        mode: u32,
        dirs: &[&HomePath],
    ) -> Result<Outcome> {
        if placed.resent {
            self.forget_staged(placed.id, path)?;
        }
        let attrs = Attrs { mode: Some(mode), ..Attrs::default() };
        let handle = self.open(path, wire::WRITE | wire::CREAT | wire::EXCL, &attrs).await?;
        let _room = self.link.room(3 + dirs.len(), 0).await?;
        // The mode again, because the server's umask took from it.
        let set = Attrs { times: times_of(placed), ..attrs };
        let finish = self.send_finish(&handle.bytes, &set)?;
        let after = self.ask_after(Some(path), dirs)?;
        all_done(finish).await?;
        self.done_after(memo, after).await
    }

    /// Sets attributes through a handle, and makes the file durable where the server can.
    pub(super) fn send_finish(&self, handle: &Bytes, set: &Attrs) -> Result<Vec<Pending>> {
        let mut sent = Vec::new();
        if *set != Attrs::default() {
            sent.push(self.link.send(Ask::Fsetstat, |w| put_attrs(w, handle, set))?);
        }
        if self.link.can.fsync {
            sent.push(self.link.send_extended("fsync@openssh.com", |w| wire::put_string(w, handle))?);
        }
        Ok(sent)
    }

    async fn create_dir(
        &self,
        memo: &mut Memo,
        path: &HomePath,
        mode: u32,
        dirs: &[&HomePath],
    ) -> Result<Outcome> {
        let attrs = Attrs { mode: Some(mode), ..Attrs::default() };
        self.ask_path(Ask::Mkdir, path, &attrs).await?;
        let _room = self.link.room(2 + dirs.len(), 0).await?;
        let set = self.link.send(Ask::Setstat, |w| put_attrs(w, &absolute(path), &attrs))?;
        let after = self.ask_after(Some(path), dirs)?;
        set.done().await.map_err(|e| about(path, e))?;
        self.done_after(memo, after).await
    }

    async fn create_symlink(
        &self,
        memo: &mut Memo,
        path: &HomePath,
        target: &Bytes,
        dirs: &[&HomePath],
    ) -> Result<Outcome> {
        let _room = self.link.room(2 + dirs.len(), 0).await?;
        // OpenSSH has the two arguments in this order, against the draft, and others have followed it.
        let made = self.link.send(Ask::Symlink, |w| put_two(w, target, &absolute(path)))?;
        let after = self.ask_after(Some(path), dirs)?;
        made.done().await?;
        self.done_after(memo, after).await
    }

    pub(super) async fn ask_path(&self, ask: Ask, path: &HomePath, attrs: &Attrs) -> Result<()> {
        let body = |w: &mut Writer| put_attrs(w, &absolute(path), attrs);
        self.link.ask(ask, body).await.map(drop).map_err(|e| about(path, e))
    }

    async fn set(
        &self,
        memo: &mut Memo,
        object: &Loc,
        base: Option<&Version>,
        set: &SetAttr,
    ) -> Result<Outcome> {
        let there = self.attr(object).await?;
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
        let _room = self.link.room(2, 0).await?;
        let asked = match there.kind {
            // SETSTAT would follow the link.
            Kind::Symlink if self.link.can.lsetstat => {
                let attrs = Attrs { mode: None, ..attrs };
                self.link.send_extended("lsetstat@openssh.com", |w| put_attrs(w, &absolute(path), &attrs))?
            }
            Kind::Symlink => return refused(ErrorKind::Unsupported),
            _ => self.link.send(Ask::Setstat, |w| put_attrs(w, &absolute(path), &attrs))?,
        };
        let after = self.ask_after(Some(path), &[])?;
        asked.done().await.map_err(|e| as_owner(about(path, e)))?;
        match ours {
            true => self.done_after(memo, after).await,
            // What a later write may go over is only what we know.
            false => Ok(Outcome::Done(self.outcome(after).await?)),
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
        let _room = self.link.room(2, 0).await?;
        let removed = self.link.send_about(ask, &absolute(path))?;
        let after = self.ask_after(None, &[&dir])?;
        if let Err(e) = removed.done().await {
            return match is_dir && e.kind == ErrorKind::Io {
                true => self.remove_full(memo, placed.id, path, e).await,
                false => Err(about(path, e)),
            };
        }
        memo.forget(path);
        self.files.lock().forget(path);
        self.done_after(memo, after).await
    }

    /// A directory that cannot be removed: it may have something in it, or what was staged there and given up.
    async fn remove_full(&self, memo: &mut Memo, op: OpId, path: &HomePath, why: Error) -> Result<Outcome> {
        let names = self.names(path).await?;
        if names.is_empty() {
            return Err(about(path, why));
        }
        if !names.keys().all(|name| is_staged_by(op.gateway, name)) {
            return refused(ErrorKind::NotEmpty);
        }
        for name in names.keys() {
            self.link.ask(Ask::Remove, |w| wire::put_string(w, &absolute(&path.join(name)))).await?;
        }
        self.link
            .ask(Ask::Rmdir, |w| wire::put_string(w, &absolute(path)))
            .await
            .map_err(|e| about(path, e))?;
        memo.forget(path);
        let dir = path.split().map(|(dir, _)| dir).unwrap_or_default();
        self.done(memo, None, &[&dir]).await
    }

    async fn rename(&self, memo: &mut Memo, placed: &Placed, m: Move<'_>) -> Result<Outcome> {
        [m.from, m.object, m.to].into_iter().try_for_each(known_here)?;
        let (old, new) = (m.from.path.join(m.name), m.to.path.join(m.new_name));
        let dirs = [&m.from.path, &m.to.path];
        let (moving, there) = self.find_two(&old, &new).await?;
        let Some(moving) = moving else {
            return match placed.resent && there.is_some() {
                true => self.done(memo, Some(&new), &dirs).await,
                false => refused(ErrorKind::NotFound),
            };
        };
        let hindered = |there: &Attr| may_replace(memo, placed, &new, &moving, there, m.replaced);
        if let Some(outcome) = there.as_ref().and_then(hindered) {
            return Ok(outcome);
        }
        let full = there.is_some_and(|t| t.kind == Kind::Dir) && !self.names(&new).await?.is_empty();
        if full {
            return refused(ErrorKind::NotEmpty);
        }
        let after = match there {
            Some(there) if !self.link.can.posix_rename => {
                self.rename_aside(placed.id, &old, &new, &there).await?;
                None
            }
            there => {
                let _room = self.link.room(4, 0).await?;
                let body = |w: &mut Writer| put_two(w, &absolute(&old), &absolute(&new));
                let moved = match there {
                    // The server refuses where the new name is taken.
                    None => self.link.send(Ask::Rename, body)?,
                    Some(_) => self.link.send_extended("posix-rename@openssh.com", body)?,
                };
                let after = self.ask_after(Some(&new), &dirs)?;
                moved.done().await.map_err(|e| about(&old, e))?;
                Some(after)
            }
        };
        let left = memo.left.lock().get(&old).copied();
        memo.forget(&old);
        memo.forget(&new);
        self.files.lock().forget(&old);
        if let Some(left) = left {
            memo.left.lock().put(new.clone(), left);
        }
        match after {
            Some(after) => self.done_after(memo, after).await,
            None => self.done(memo, Some(&new), &dirs).await,
        }
    }

    /// What there is under two paths.
    async fn find_two(&self, one: &HomePath, other: &HomePath) -> Result<(Option<Attr>, Option<Attr>)> {
        let _room = self.link.room(2, 0).await?;
        let look = |path| self.link.send_about(Ask::Lstat, &absolute(path));
        let (first, second) = (look(one)?, look(other)?);
        Ok((self.found(one, first).await?, self.found(other, second).await?))
    }

    /// The server refuses where the new name is taken.
    async fn rename_free(&self, old: &HomePath, new: &HomePath) -> Result<()> {
        let body = |w: &mut Writer| put_two(w, &absolute(old), &absolute(new));
        self.link.ask(Ask::Rename, body).await.map(drop).map_err(|e| about(old, e))
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
        known_here(object)?;
        let (object_there, there) = self.find_two(&object.path, path).await?;
        if object_there.is_none() {
            return refused(ErrorKind::NotFound);
        }
        if let Some(there) = there {
            return Ok(Outcome::Conflict(Some(there)));
        }
        if !self.link.can.hardlink {
            return refused(ErrorKind::Unsupported);
        }
        let dir = path.split().map(|(dir, _)| dir).unwrap_or_default();
        let _room = self.link.room(3, 0).await?;
        let body = |w: &mut Writer| put_two(w, &absolute(&object.path), &absolute(path));
        let linked = self.link.send_extended("hardlink@openssh.com", body)?;
        let after = self.ask_after(Some(path), &[&dir])?;
        linked.done().await.map_err(|e| about(path, e))?;
        self.done_after(memo, after).await
    }
}

/// What was asked for behind a change.
pub(super) struct After<'a> {
    object: Option<(&'a HomePath, Pending)>,
    dirs: Vec<(&'a HomePath, Pending)>,
}

/// Waits for all answers; the first error counts.
pub(super) async fn all_done(sent: Vec<Pending>) -> Result<()> {
    for pending in sent {
        pending.done().await?;
    }
    Ok(())
}

pub(super) fn put_attrs(w: &mut Writer, what: &[u8], attrs: &Attrs) {
    wire::put_string(w, what);
    attrs.encode(w);
}

pub(super) fn put_two(w: &mut Writer, one: &[u8], other: &[u8]) {
    wire::put_string(w, one);
    wire::put_string(w, other);
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

/// The modification time that an operation gives; a plain one leaves it to the home's clock.
pub(super) fn times_of(placed: &Placed) -> Option<(u32, u32)> {
    (!placed.plain).then(|| (seconds(placed.time), seconds(placed.time)))
}

/// What SFTP can say of a time: whole seconds from 1970 to 2106.
pub(super) fn seconds(time: Time) -> u32 {
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
    fn times_are_clamped_to_what_sftp_can_say() {
        let at = |sec| seconds(Time { sec, nsec: 999_999_999 });
        assert_eq!((at(-5), at(7), at(1 << 40)), (0, 7, u32::MAX));
    }
}
