//! Attributes, access, links' targets, space.

use super::live;
use crate::fetch::Want;
use crate::inode::ROOT_ID;
use crate::journal::{Change, Stored};
use crate::mutate::Ticket;
use crate::overlay::changed;
use crate::perm::check_writable;
use crate::types::{AccessMask, Ctx, FileAttr, Oid, SetAttrs, StatFs, Wcc};
use crate::volume::Volume;
use crate::{Vfs, limits, meta};
use bytes::Bytes;
use home::{Attr, Error, ErrorKind, Kind, Op, Piece, Result, SetAttr, SetTime, Time};
use std::sync::Arc;
use std::time::Duration;

/// Of a home that was never asked.
const UNKNOWN_SPACE: StatFs = StatFs { total: 0, free: 0, available: 0, files: 0, files_free: 0 };

impl Vfs {
    /// Attributes from memory, whatever their age: post-op attributes of calls that failed.
    pub fn peek(&self, oid: Oid) -> Option<FileAttr> {
        if oid.volume == Oid::ROOT_VOLUME {
            return self.own_attr(oid).ok();
        }
        let volume = self.volume(oid).ok()?;
        let tree = volume.tree.lock();
        volume.shown_if_known(&tree, oid.id)
    }

    /// Attributes.
    pub async fn getattr(&self, ctx: Ctx<'_>, oid: Oid) -> Result<FileAttr> {
        if oid.volume == Oid::ROOT_VOLUME {
            return self.own_attr(oid);
        }
        let volume = self.volume(oid)?;
        volume.ensure_attr(oid.id, volume.need_of_look(ctx, oid.id)).await?;
        volume.shown(&mut volume.tree.lock(), oid.id)
    }

    /// Sets attributes, all or none. `guard` is the ctime that the caller believes in; another one is
    /// [`ErrorKind::NotSync`].
    pub async fn setattr(&self, ctx: Ctx<'_>, oid: Oid, set: SetAttrs, guard: Option<Time>) -> Result<Wcc> {
        let volume = self.writable(oid)?;
        volume.ensure_attr(oid.id, volume.need_of_call(ctx, oid.id)).await?;
        let (before, tickets) = {
            let mut tree = volume.tree.lock();
            let before = volume.before(&tree, oid.id);
            if guard.is_some() && guard != before.map(|b| b.ctime) {
                return Err(ErrorKind::NotSync.into());
            }
            let attr = Volume::attr_of(&mut tree, oid.id)?;
            volume.may_set(ctx, oid.id, &attr, &set)?;
            volume.guard.lock().clone().check_object(&mut tree, oid.id)?;
            (before, volume.set(&mut tree, ctx, oid.id, &set)?)
        };
        let after = volume.shown_if_known(&volume.tree.lock(), oid.id);
        for ticket in tickets {
            volume.settled(ticket).await?;
        }
        let after = if volume.plain() { volume.shown_if_known(&volume.tree.lock(), oid.id) } else { after };
        Ok(Wcc { before, after })
    }

    /// What of `want` is granted; from memory where the attributes are fresh.
    pub async fn access(&self, ctx: Ctx<'_>, oid: Oid, want: AccessMask) -> Result<(AccessMask, FileAttr)> {
        if oid.volume == Oid::ROOT_VOLUME {
            let granted = AccessMask { read: want.read, lookup: want.lookup, ..AccessMask::default() };
            return Ok((granted, self.own_attr(oid)?));
        }
        let volume = self.volume(oid)?;
        let check = |attr: &Attr| volume.grants_much(ctx, attr, want);
        volume.ensure_allowed(oid.id, volume.need_of_call(ctx, oid.id), check).await?;
        let mut tree = volume.tree.lock();
        let attr = Volume::attr_of(&mut tree, oid.id)?;
        let want = match volume.mode_in(&mut tree, oid.id).is_read_only() {
            true => AccessMask { modify: false, extend: false, delete: false, ..want },
            false => want,
        };
        Ok((volume.grant(ctx.cred, &attr, want), volume.shown(&mut tree, oid.id)?))
    }

    /// Where a symbolic link points.
    pub async fn readlink(&self, ctx: Ctx<'_>, oid: Oid) -> Result<(Bytes, FileAttr)> {
        let volume = self.volume(oid)?;
        volume.ensure_attr(oid.id, volume.need_of_call(ctx, oid.id)).await?;
        for round in 0..2 {
            let (target, shown) = {
                let mut tree = volume.tree.lock();
                let inode = live(&mut tree, oid.id)?;
                if inode.kind != Kind::Symlink {
                    return Err(ErrorKind::Invalid.into());
                }
                let attr = inode.attr.ok_or_else(|| Error::from(ErrorKind::Stale))?;
                (inode.target.clone(), volume.show(inode, &attr))
            };
            if let Some(target) = target {
                if ctx.cred.uid != volume.shared.server_uid && !volume.policy.share {
                    return Err(ErrorKind::Access.into());
                }
                return Ok((self.rebase(&volume, target), shown));
            }
            if round == 0 {
                volume.ask(Want::Target(oid.id), false).await?;
            }
        }
        Err(ErrorKind::Stale.into())
    }

    /// Space of the file system of an object.
    pub async fn statfs(&self, _ctx: Ctx<'_>, oid: Oid) -> Result<StatFs> {
        if oid.volume == Oid::ROOT_VOLUME {
            return Ok(self.space_of_all().await);
        }
        let volume = self.volume(oid)?;
        if let Some(shown) = volume.space_shown(oid.id)? {
            return Ok(shown);
        }
        let space = volume.space_now_or_before(oid.id, limits::REVALIDATE_WAIT).await?;
        // Programs ask for it by the way: one that is told of no blocks goes on.
        Ok(space.unwrap_or(UNKNOWN_SPACE))
    }

    /// The same for somebody who wants to know just that: why it is not known is an error.
    pub async fn space(&self, ctx: Ctx<'_>, oid: Oid) -> Result<StatFs> {
        if oid.volume == Oid::ROOT_VOLUME {
            return self.statfs(ctx, oid).await;
        }
        let volume = self.volume(oid)?;
        let is_known = volume.space.lock().before().is_some();
        let patience = if is_known { limits::REVALIDATE_WAIT } else { limits::HOLD };
        volume.space_now_or_before(oid.id, patience).await?.ok_or_else(|| volume.out_of_reach(None))
    }

    /// The sum over all homes: those that are connected are asked, of others what was seen last counts. None is
    /// connected for it.
    async fn space_of_all(&self) -> StatFs {
        let spaces = self.all_volumes().into_iter().map(|volume| async move {
            let up = volume.home.status().link == home::Link::Up;
            let asked = match up {
                true => tokio::time::timeout(limits::REVALIDATE_WAIT, volume.fetch_statfs(ROOT_ID)).await,
                false => return volume.space.lock().before(),
            };
            match asked {
                Ok(Ok(space)) => Some(space),
                _ => volume.space.lock().before(),
            }
        });
        let spaces = futures_util::future::join_all(spaces).await;
        spaces.into_iter().flatten().fold(UNKNOWN_SPACE, |a, b| StatFs {
            total: a.total.saturating_add(b.total),
            free: a.free.saturating_add(b.free),
            available: a.available.saturating_add(b.available),
            files: a.files.saturating_add(b.files),
            files_free: a.files_free.saturating_add(b.files_free),
        })
    }

    /// Absolute targets lead to the same place at the home, where the user wishes that. The place is a path of the
    /// client, because an object does not know by which of its paths, of what depth, it was reached.
    fn rebase(&self, volume: &Volume, target: Bytes) -> Bytes {
        if !volume.policy.options.rebase_symlinks || target.first() != Some(&b'/') {
            return target;
        }
        match self.namespace.root_name(&volume.record.lock().names) {
            Some(name) => [&b"/trellis/"[..], name.as_bytes(), &target].concat().into(),
            None => target,
        }
    }
}

impl Volume {
    /// Space as the home said it a moment ago or says it within that time, else as it was seen last, if ever.
    async fn space_now_or_before(self: &Arc<Self>, id: u64, patience: Duration) -> Result<Option<StatFs>> {
        live(&mut self.tree.lock(), id)?;
        if let Some(fresh) = self.fresh_space(id) {
            return Ok(Some(fresh));
        }
        let patience = if self.is_silent() { Duration::ZERO } else { patience };
        match tokio::time::timeout(patience, self.fetch_statfs(id)).await {
            Ok(Ok(space)) => Ok(Some(space)),
            Ok(Err(e)) if !crate::fetch::is_out_of_reach(&e) && e.kind != ErrorKind::Stale => Err(e),
            _ => Ok(self.space.lock().before()),
        }
    }

    /// What the home said of the object's file system a moment ago, unless the mode asks each time.
    fn fresh_space(&self, id: u64) -> Option<StatFs> {
        let need = self.need(id);
        if need.insist {
            return None;
        }
        let fs = self.tree.lock().get(id).ok()?.home_id.fs;
        self.space.lock().fresh(fs, need.since.max(need.now.saturating_sub(limits::SPACE_FRESH)))
    }

    /// What it said not long ago, unless the mode asks each time. Where that is not fresh, it is asked.
    pub(super) fn space_shown(self: &Arc<Self>, id: u64) -> Result<Option<StatFs>> {
        let fs = live(&mut self.tree.lock(), id)?.home_id.fs;
        let need = self.need(id);
        let told = self.space.lock().fresh(fs, need.now.saturating_sub(limits::SPACE_SHOWN));
        let shown = told.filter(|_| !need.insist);
        if shown.is_some() && self.fresh_space(id).is_none() {
            self.ask_for_space(id);
        }
        Ok(shown)
    }

    /// Fails where somebody who asks what he may do gets so little that it is worth another question: not to read or to
    /// search, or nothing at all. Clients ask for everything at once, and few files can be written and executed.
    fn grants_much(&self, ctx: Ctx<'_>, attr: &Attr, want: AccessMask) -> Result<()> {
        let granted = self.grant(ctx.cred, attr, want);
        let reads = granted.read == want.read && (granted.lookup == want.lookup || attr.kind != Kind::Dir);
        match reads && (granted != AccessMask::default() || want == AccessMask::default()) {
            true => Ok(()),
            false => Err(ErrorKind::Access.into()),
        }
    }

    fn may_set(&self, ctx: Ctx<'_>, id: u64, attr: &Attr, set: &SetAttrs) -> Result<()> {
        let explicit = |t: Option<SetTime>| matches!(t, Some(SetTime::At(_)));
        let owner_only = set.mode.is_some()
            || set.uid.is_some()
            || set.gid.is_some()
            || explicit(set.atime)
            || explicit(set.mtime);
        check_writable(attr)?;
        if owner_only && !self.owns(ctx.cred, attr) {
            return Err(ErrorKind::Perm.into());
        }
        if set.atime.is_some() || set.mtime.is_some() || set.size.is_some() {
            self.may_write_as(ctx, id, attr)?;
        }
        match (set.size, attr.kind) {
            (Some(_), Kind::Dir) => Err(ErrorKind::IsDir.into()),
            (Some(size), Kind::File) if size > limits::FILE_MAX => Err(ErrorKind::TooBig.into()),
            (Some(_), Kind::File) | (None, _) => Ok(()),
            _ => Err(ErrorKind::Invalid.into()),
        }
    }

    /// Submits what sets attributes: a change of content for the size, a change of attributes for the rest.
    pub fn set(
        self: &Arc<Self>,
        tree: &mut crate::inode::Tree,
        ctx: Ctx<'_>,
        id: u64,
        set: &SetAttrs,
    ) -> Result<Vec<Ticket>> {
        let mut wanted = SetAttr {
            mode: set.mode.map(|m| m & 0o7777),
            uid: set.uid.map(|uid| self.home_uid(uid)).transpose()?,
            gid: set.gid.map(|gid| self.home_gid(gid)).transpose()?,
            atime: set.atime,
            mtime: set.mtime,
        };
        let mut tickets = Vec::new();
        let attr = Volume::attr_of(tree, id)?;
        if let Some(size) = set.size
            && (size != attr.size || wanted == SetAttr::default())
        {
            // A change of the size leaves that time by itself: kernels ask for both in one call.
            wanted.mtime = wanted.mtime.filter(|time| *time != SetTime::Now);
            // The last change alone says that the call was executed: a power cut may leave the first without it.
            let is_last = wanted == SetAttr::default();
            let ctx = Ctx { retry: ctx.retry.filter(|_| is_last), ..ctx };
            tickets.push(self.truncate(tree, ctx, id, size)?);
        }
        if wanted != SetAttr::default() {
            tickets.push(self.set_attr(tree, ctx, id, wanted)?);
        }
        Ok(tickets)
    }

    fn truncate(&self, tree: &mut crate::inode::Tree, ctx: Ctx<'_>, id: u64, size: u64) -> Result<Ticket> {
        let time = self.env.clock.now();
        let inode = live(tree, id)?;
        let attr = inode.attr.ok_or_else(|| Error::from(ErrorKind::Stale))?;
        let last = meta::shown_ctime(inode, &attr);
        let after = Attr { size, used: attr.used.min(size), mtime: time, ..changed(&attr, last, time) };
        let after = Attr { mode: strip_set_ids(&after), ..after };
        let op: Op<u64, Stored> =
            Op::Write { file: id, base: inode.base, pieces: vec![Piece::Truncate(size)] };
        let ticket = self.submit(tree, ctx.origin, self.change(ctx, time, id, Some(after), op))?;
        if !self.plain() {
            self.data.truncate(id, size);
        }
        Ok(ticket)
    }

    fn set_attr(&self, tree: &mut crate::inode::Tree, ctx: Ctx<'_>, id: u64, set: SetAttr) -> Result<Ticket> {
        let time = self.env.clock.now();
        let at = |t: SetTime| match t {
            SetTime::Now if !self.plain() => SetTime::At(time),
            t => t,
        };
        let set = SetAttr { atime: set.atime.map(at), mtime: set.mtime.map(at), ..set };
        let value = |t: Option<SetTime>, old: Time| match t {
            Some(SetTime::At(t)) => t,
            Some(SetTime::Now) => time,
            None => old,
        };
        let inode = live(tree, id)?;
        let attr = inode.attr.ok_or_else(|| Error::from(ErrorKind::Stale))?;
        let last = meta::shown_ctime(inode, &attr);
        let mode = set.mode.unwrap_or(attr.mode);
        let after = Attr {
            mode,
            uid: set.uid.unwrap_or(attr.uid),
            gid: set.gid.unwrap_or(attr.gid),
            atime: value(set.atime, attr.atime),
            mtime: value(set.mtime, attr.mtime),
            access: if set.mode.is_some() { self.access_by_mode(mode, attr.kind) } else { attr.access },
            ..changed(&attr, last, time)
        };
        self.submit(
            tree,
            ctx.origin,
            self.change(ctx, time, id, Some(after), Op::SetAttr { object: id, base: None, set }),
        )
    }

    /// A change record for this volume.
    pub fn change(
        &self,
        ctx: Ctx<'_>,
        time: Time,
        object: u64,
        after: Option<Attr>,
        op: Op<u64, Stored>,
    ) -> Change {
        let retry = ctx.retry.map(|k| k.0);
        Change { time, object, after, op, retry, verifier: None, plain: self.plain() }
    }

    /// What the account, as owner, may do with an object of this mode.
    pub fn access_by_mode(&self, mode: u32, kind: Kind) -> home::Access {
        let root = self.hello.lock().as_ref().is_some_and(|h| h.uid == 0);
        let exec = if root { kind == Kind::Dir || mode & 0o111 != 0 } else { mode & 0o100 != 0 };
        home::Access { read: root || mode & 0o400 != 0, write: (root || mode & 0o200 != 0).into(), exec }
    }
}

/// The mode of a file whose content changed: without set-id bits.
pub fn strip_set_ids(attr: &Attr) -> u32 {
    if attr.kind == Kind::File { attr.mode & 0o1777 } else { attr.mode }
}
