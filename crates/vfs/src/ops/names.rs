//! Making, removing, moving and linking names.

use super::live;
use super::open::{OpenFile, OpenMode};
use crate::fetch::{Extent, Want};
use crate::freshness::is_listed;
use crate::guard;
use crate::inode::{Tree, is_hidden};
use crate::journal::Stored;
use crate::limits;
use crate::mutate::Ticket;
use crate::overlay::changed;
use crate::sync::queue::demand::Demand;
use crate::types::{CreateHow, Ctx, LinkOk, Made, Oid, RenameHow, RenameOk, SetAttrs, Wcc};
use crate::volume::Volume;
use crate::{Vfs, meta};
use bytes::Bytes;
use home::{Access, Attr, Error, ErrorKind, HomeId, Kind, Name, New, Op, Result, Time, Version};
use std::sync::Arc;

/// The new object of a create call.
struct Wanted {
    new: New,
    mode: u32,
    set: SetAttrs,
    verifier: Option<[u8; 8]>,
    /// What it is opened for.
    open: Option<OpenMode>,
}

impl Vfs {
    /// Makes a regular file, or finds the existing one as `how` says.
    pub async fn create(
        &self,
        ctx: Ctx<'_>,
        dir: Oid,
        name: &[u8],
        how: CreateHow,
        set: SetAttrs,
    ) -> Result<Made> {
        Ok(self.create_or_find(ctx, dir, name, how, (set, None)).await?.0)
    }

    /// The same, with a new file opened for `open`, so that nobody can take it away before; one that is found is not.
    pub(super) async fn create_or_find(
        &self,
        ctx: Ctx<'_>,
        dir: Oid,
        name: &[u8],
        how: CreateHow,
        (set, open): (SetAttrs, Option<OpenMode>),
    ) -> Result<(Made, Option<OpenFile>)> {
        let volume = self.writable(dir)?;
        let name = Name::new(name)?;
        let child = volume.prepare(ctx, dir.id, &name).await?;
        if let Some(id) = child {
            return Ok((self.create_existing(&volume, ctx, dir, id, how, set).await?, None));
        }
        let verifier = if let CreateHow::Exclusive(v) = how { Some(v) } else { None };
        let mode = set.mode.unwrap_or(if verifier.is_some() { 0o600 } else { 0o644 });
        let wanted = Wanted { new: New::File, mode, set, verifier, open };
        match volume.make(ctx, dir, &name, wanted).await {
            // Another call was quicker: the same rules again.
            Err(e) if e.kind == ErrorKind::Exists => {
                let ctx = Ctx { since: None, ..ctx };
                let child = volume.prepare(ctx, dir.id, &name).await?;
                let id = child.ok_or(e)?;
                Ok((self.create_existing(&volume, ctx, dir, id, how, set).await?, None))
            }
            made => made,
        }
    }

    async fn create_existing(
        &self,
        volume: &Arc<Volume>,
        ctx: Ctx<'_>,
        dir: Oid,
        id: u64,
        how: CreateHow,
        set: SetAttrs,
    ) -> Result<Made> {
        let (kind, verifier) = {
            let mut tree = volume.tree.lock();
            let inode = live(&mut tree, id)?;
            (inode.kind, inode.verifier)
        };
        let same = match how {
            CreateHow::Unchecked => kind == Kind::File,
            CreateHow::Guarded => false,
            CreateHow::Exclusive(v) => verifier == Some(v),
        };
        if !same {
            return Err(ErrorKind::Exists.into());
        }
        let oid = Oid { id, ..dir };
        if how == CreateHow::Unchecked && set.size.is_some() {
            let only_size = SetAttrs { size: set.size, ..SetAttrs::default() };
            self.setattr(ctx, oid, only_size, None).await?;
        }
        volume.ensure_attr(id, volume.need_to_open(ctx, id)).await?;
        // It may be there only since another call that has not been answered yet.
        let last = volume.tree.lock().get(id)?.last_seq;
        if !volume.lane.is_synced(last) {
            volume.journalled(last).await?;
        }
        let tree = volume.tree.lock();
        let dir_wcc = volume.wcc(&tree, dir.id, volume.before(&tree, dir.id));
        Ok(Made { oid, attr: volume.shown_if_known(&tree, id), dir: dir_wcc })
    }

    /// Makes a directory.
    pub async fn mkdir(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8], set: SetAttrs) -> Result<Made> {
        self.make_new(ctx, dir, name, New::Dir, 0o755, set).await
    }

    /// Makes a symbolic link.
    pub async fn symlink(
        &self,
        ctx: Ctx<'_>,
        dir: Oid,
        name: &[u8],
        target: Bytes,
        set: SetAttrs,
    ) -> Result<Made> {
        if target.len() > limits::TARGET_MAX {
            return Err(ErrorKind::NameTooLong.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(ErrorKind::Invalid.into());
        }
        let set = SetAttrs { mode: None, ..set };
        self.make_new(ctx, dir, name, New::Symlink(target), 0o777, set).await
    }

    /// Makes a named pipe or a socket; [`ErrorKind::Perm`] where the home is known to have no way to make one.
    pub async fn mknod(
        &self,
        ctx: Ctx<'_>,
        dir: Oid,
        name: &[u8],
        kind: Kind,
        set: SetAttrs,
    ) -> Result<Made> {
        let new = match kind {
            Kind::Fifo => New::Fifo,
            Kind::Socket => New::Socket,
            _ => return Err(ErrorKind::Invalid.into()),
        };
        if self.writable(dir)?.is_sftp() {
            return Err(Error::new(ErrorKind::Perm, "SFTP makes no named pipes and no sockets"));
        }
        self.make_new(ctx, dir, name, new, 0o644, set).await
    }

    async fn make_new(
        &self,
        ctx: Ctx<'_>,
        dir: Oid,
        name: &[u8],
        new: New,
        mode: u32,
        set: SetAttrs,
    ) -> Result<Made> {
        let volume = self.writable(dir)?;
        let name = Name::new(name)?;
        if volume.prepare(ctx, dir.id, &name).await?.is_some() {
            return Err(ErrorKind::Exists.into());
        }
        let mode = set.mode.unwrap_or(mode);
        let wanted = Wanted { new, mode, set, verifier: None, open: None };
        Ok(volume.make(ctx, dir, &name, wanted).await?.0)
    }

    /// Removes a name that is not a directory.
    pub async fn remove(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8]) -> Result<Wcc> {
        self.remove_name(ctx, dir, name, false).await
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8]) -> Result<Wcc> {
        self.remove_name(ctx, dir, name, true).await
    }

    async fn remove_name(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8], is_dir: bool) -> Result<Wcc> {
        let volume = self.writable(dir)?;
        let name = Name::new(name)?;
        let child = volume.prepare(ctx, dir.id, &name).await?;
        let id = child.ok_or_else(|| Error::from(ErrorKind::NotFound))?;
        if is_dir {
            // What may not go need not be known to be empty.
            volume.check_names(&mut volume.tree.lock(), ctx, dir.id, &name, guard::Change::Other)?;
            volume.ensure_empty(id).await?;
            volume.check_removal(&mut volume.tree.lock(), ctx, dir.id, &name, id, is_dir)?;
            volume.lift_nameless(ctx, id, dir.id).await?;
        }
        let (before, ticket) = {
            let mut tree = volume.tree.lock();
            let before = volume.before(&tree, dir.id);
            volume.check_removal(&mut tree, ctx, dir.id, &name, id, is_dir)?;
            let place = (dir.id, name);
            if volume.must_stay(&mut tree, id, &place) {
                (before, volume.hide(&mut tree, ctx, id, place)?)
            } else {
                let base = volume.base_of(&mut tree, id);
                let time = volume.env.clock.now();
                let op = Op::Remove { dir: place.0, name: place.1, object: id, is_dir, base };
                (before, volume.submit(&mut tree, ctx.origin, volume.change(ctx, time, id, None, op))?)
            }
        };
        let dirs = volume.finish(&[(dir.id, before)], ticket).await?;
        Ok(dirs[0])
    }

    /// Moves a name. What the new name stands for is replaced, or an error, as `how` says.
    pub async fn rename(
        &self,
        ctx: Ctx<'_>,
        from: Oid,
        name: &[u8],
        to: Oid,
        new_name: &[u8],
        how: RenameHow,
    ) -> Result<RenameOk> {
        let volume = self.writable(from)?;
        self.writable(to)?;
        if from.volume != to.volume {
            return Err(ErrorKind::CrossDevice.into());
        }
        let (name, new_name) = (Name::new(name)?, Name::new(new_name)?);
        let child = volume.prepare(ctx, from.id, &name);
        let (child, target) = volume.both(child, volume.prepare(ctx, to.id, &new_name)).await?;
        let id = child.ok_or_else(|| Error::from(ErrorKind::NotFound))?;
        if target.is_some() && how == RenameHow::NoReplace {
            return Err(ErrorKind::Exists.into());
        }
        let target_is_dir = match target {
            Some(target) if target != id => volume.tree.lock().get(target)?.kind == Kind::Dir,
            _ => false,
        };
        if let (Some(target), true) = (target, target_is_dir) {
            let names = ((from.id, &name), (to.id, &new_name));
            for (dir, name) in [names.0, names.1] {
                volume.check_names(&mut volume.tree.lock(), ctx, dir, name, guard::Change::Other)?;
            }
            volume.ensure_empty(target).await?;
            volume.check_rename(&mut volume.tree.lock(), ctx, names.0, names.1, id, Some(target))?;
            volume.lift_nameless(ctx, target, to.id).await?;
        }
        let submitted = {
            let mut tree = volume.tree.lock();
            let before = [(from.id, volume.before(&tree, from.id)), (to.id, volume.before(&tree, to.id))];
            if target == Some(id) {
                let wcc = before.map(|(dir, b)| volume.wcc(&tree, dir, b));
                return Ok(RenameOk { from: wcc[0], to: wcc[1] });
            }
            volume.check_rename(&mut tree, ctx, (from.id, &name), (to.id, &new_name), id, target)?;
            let stays = target.filter(|t| volume.must_stay(&mut tree, *t, &(to.id, new_name.clone())));
            let kept = stays.map(|t| volume.keep_beside(&mut tree, ctx, t, to.id)).transpose()?;
            let replaced = target.map(|t| (t, volume.base_of(&mut tree, t)));
            let time = volume.env.clock.now();
            let attr = Volume::attr_of(&mut tree, id)?;
            let after = changed(&attr, meta::shown_ctime(tree.get(id)?, &attr), time);
            let op = Op::Rename { from: from.id, name, object: id, to: to.id, new_name, replaced };
            let change = volume.change(ctx, time, id, Some(after), op);
            (before, kept, volume.submit(&mut tree, ctx.origin, change)?)
        };
        let (before, _kept, ticket) = submitted;
        let dirs = volume.finish(&before, ticket).await?;
        Ok(RenameOk { from: dirs[0], to: dirs[1] })
    }

    /// Gives an object a further name.
    pub async fn link(&self, ctx: Ctx<'_>, object: Oid, dir: Oid, name: &[u8]) -> Result<LinkOk> {
        let volume = self.writable(dir)?;
        if object.volume != dir.volume {
            return Err(ErrorKind::CrossDevice.into());
        }
        let name = Name::new(name)?;
        self.writable(object)?;
        let known = volume.ensure_attr(object.id, volume.need_of_call(ctx, object.id));
        let (_, taken) = volume.both(known, volume.prepare(ctx, dir.id, &name)).await?;
        if taken.is_some() {
            return Err(ErrorKind::Exists.into());
        }
        let (before, ticket) = {
            let mut tree = volume.tree.lock();
            let before = volume.before(&tree, dir.id);
            let attr = Volume::attr_of(&mut tree, object.id)?;
            if attr.kind == Kind::Dir {
                return Err(ErrorKind::Perm.into());
            }
            if volume.shown(&mut tree, object.id)?.nlink == 0 {
                return Err(ErrorKind::NotFound.into());
            }
            if attr.nlink >= limits::LINK_MAX {
                return Err(ErrorKind::TooManyLinks.into());
            }
            volume.check_names(&mut tree, ctx, dir.id, &name, guard::Change::Other)?;
            volume.guard.lock().clone().check_object(&mut tree, object.id)?;
            same_fs(&mut tree, object.id, dir.id)?;
            let time = volume.env.clock.now();
            let last = meta::shown_ctime(tree.get(object.id)?, &attr);
            let after = Attr { nlink: attr.nlink + 1, ..changed(&attr, last, time) };
            let op = Op::Link { object: object.id, dir: dir.id, name };
            (
                before,
                volume.submit(&mut tree, ctx.origin, volume.change(ctx, time, object.id, Some(after), op))?,
            )
        };
        let dirs = volume.finish(&[(dir.id, before)], ticket).await?;
        let attr = volume.shown_if_known(&volume.tree.lock(), object.id);
        Ok(LinkOk { attr, dir: dirs[0] })
    }
}

impl Volume {
    /// Two things that a call needs: one after the other, or where each call asks the home, at once. The error is the
    /// first one's, if there are two.
    pub(super) async fn both<A, B>(
        &self,
        first: impl Future<Output = Result<A>>,
        second: impl Future<Output = Result<B>>,
    ) -> Result<(A, B)> {
        if !self.plain() {
            return Ok((first.await?, second.await?));
        }
        let (first, second) = futures_util::future::join(first, second).await;
        Ok((first?, second?))
    }

    /// Makes known what a change of a name needs: the directory and what the name stands for now.
    async fn prepare(self: &Arc<Self>, ctx: Ctx<'_>, dir: u64, name: &Name) -> Result<Option<u64>> {
        if is_hidden(self.shared.gateway, name) {
            return Err(Error::new(
                ErrorKind::Access,
                "names of this kind are kept for open files without a name",
            ));
        }
        let need = self.need_of_call(ctx, dir);
        self.look_at_home(dir, name, need).await?;
        let check = |attr: &Attr| {
            self.may_search(ctx.cred, attr).and_then(|()| self.may_change_names(ctx.cred, attr))
        };
        self.ensure_allowed(dir, need, check).await?;
        {
            let mut tree = self.tree.lock();
            let attr = Volume::attr_of(&mut tree, dir)?;
            live(&mut tree, dir)?.names()?;
            self.may_search(ctx.cred, &attr)?;
        }
        self.ensure_name(dir, name, need).await
    }

    /// Checks what every change of a name must pass, under the lock that the change is made under.
    fn check_names(
        &self,
        tree: &mut Tree,
        ctx: Ctx<'_>,
        dir: u64,
        name: &Name,
        change: guard::Change,
    ) -> Result<Option<u64>> {
        let attr = Volume::attr_of(tree, dir)?;
        self.may_change_names(ctx.cred, &attr)?;
        self.check_fixed(tree, dir, name)?;
        self.guard.lock().clone().check_name(tree, dir, name, change)?;
        Ok(tree.names(dir)?.slot(name).and_then(|s| s.child))
    }

    fn check_removal(
        &self,
        tree: &mut Tree,
        ctx: Ctx<'_>,
        dir: u64,
        name: &Name,
        id: u64,
        is_dir: bool,
    ) -> Result<()> {
        if self.check_names(tree, ctx, dir, name, guard::Change::Other)? != Some(id) {
            return Err(ErrorKind::NotFound.into());
        }
        let (dir_attr, attr) = (Volume::attr_of(tree, dir)?, Volume::attr_of(tree, id)?);
        self.may_remove_from(ctx.cred, &dir_attr, &attr)?;
        match (is_dir, attr.kind) {
            (true, Kind::Dir) => not_empty(tree, id),
            (true, _) => Err(ErrorKind::NotDir.into()),
            (false, Kind::Dir) => Err(ErrorKind::IsDir.into()),
            (false, _) => Ok(()),
        }
    }

    fn check_rename(
        &self,
        tree: &mut Tree,
        ctx: Ctx<'_>,
        from: (u64, &Name),
        to: (u64, &Name),
        id: u64,
        target: Option<u64>,
    ) -> Result<()> {
        let moving = self.check_names(tree, ctx, from.0, from.1, guard::Change::Other)?;
        let there = self.check_names(tree, ctx, to.0, to.1, guard::Change::Other)?;
        if moving != Some(id) || there != target {
            return Err(Error::new(ErrorKind::NotFound, "the names changed meanwhile"));
        }
        same_fs(tree, id, to.0)?;
        let attr = Volume::attr_of(tree, id)?;
        let (from_dir, to_dir) = (Volume::attr_of(tree, from.0)?, Volume::attr_of(tree, to.0)?);
        self.may_remove_from(ctx.cred, &from_dir, &attr)?;
        if attr.kind == Kind::Dir && (to.0 == id || tree.ancestors(to.0).contains(&id)) {
            return Err(ErrorKind::Invalid.into());
        }
        if attr.kind == Kind::Dir && from.0 != to.0 {
            self.may_change_parent(ctx.cred, &attr)?;
        }
        let Some(target) = target else { return Ok(()) };
        let old = Volume::attr_of(tree, target)?;
        self.may_remove_from(ctx.cred, &to_dir, &old)?;
        match (attr.kind == Kind::Dir, old.kind == Kind::Dir) {
            (true, false) => Err(ErrorKind::NotDir.into()),
            (false, true) => Err(ErrorKind::IsDir.into()),
            (true, true) => not_empty(tree, target),
            (false, false) => Ok(()),
        }
    }

    /// Makes known whether a directory has names, and fails if it has.
    async fn ensure_empty(self: &Arc<Self>, id: u64) -> Result<()> {
        let need = self.need(id);
        let have = {
            let mut tree = self.tree.lock();
            let gateway = tree.nameless.gateway;
            let Ok(node) = tree.names(id) else { return Ok(()) };
            // What is hidden in it is ours, so that it is known here; whether others have put something there the home knows.
            let was_empty = self.plain() && node.complete && !node.has_children(gateway);
            if was_empty || is_listed(node, &need) {
                return not_empty(&mut tree, id);
            }
            node.complete
        };
        match self.ask(Want::List(id, Extent::Small), have && !need.insist).await {
            // Who may not list a directory may remove it; the home knows whether it is empty.
            Err(e) if e.kind == ErrorKind::Access && self.plain() => Ok(()),
            Err(e) => Err(e),
            Ok(_) => not_empty(&mut self.tree.lock(), id),
        }
    }

    /// The content that may be lost when a name is removed: what was seen last.
    pub(super) fn base_of(&self, tree: &mut Tree, id: u64) -> Option<Version> {
        let inode = tree.get(id).ok()?;
        if self.plain() || inode.kind != Kind::File { None } else { inode.base }
    }

    /// Makes a new object under a name that was found to be free.
    async fn make(
        self: &Arc<Self>,
        ctx: Ctx<'_>,
        dir: Oid,
        name: &Name,
        wanted: Wanted,
    ) -> Result<(Made, Option<OpenFile>)> {
        let admitted = self.admit(dir.id, Demand::INODE).await?;
        let (before, id, tickets, open) = {
            let mut tree = self.tree.lock();
            let before = self.before(&tree, dir.id);
            let change = if wanted.new == New::Dir { guard::Change::NewDir } else { guard::Change::Other };
            if self.check_names(&mut tree, ctx, dir.id, name, change)?.is_some() {
                return Err(ErrorKind::Exists.into());
            }
            let (id, tickets) = self.submit_new(&mut tree, ctx, dir.id, name, &wanted)?;
            let open = wanted.open.map(|mode| self.count_open(&mut tree, Oid { id, ..dir }, mode));
            (before, id, tickets, open)
        };
        drop(admitted);
        let first_wcc = self.wcc(&self.tree.lock(), dir.id, before);
        let attr = self.shown_if_known(&self.tree.lock(), id);
        for ticket in tickets {
            self.settled(ticket).await?;
        }
        let oid = Oid { id, ..dir };
        if !self.plain() {
            return Ok((Made { oid, attr, dir: first_wcc }, open));
        }
        let later = SetAttrs { mode: None, ..wanted.set };
        let none = later == SetAttrs::default();
        let extra = if none { vec![] } else { self.set(&mut self.tree.lock(), ctx, id, &later)? };
        for ticket in extra {
            self.settled(ticket).await?;
        }
        let tree = self.tree.lock();
        let made = Made { oid, attr: self.shown_if_known(&tree, id), dir: self.wcc(&tree, dir.id, before) };
        Ok((made, open))
    }

    fn submit_new(
        self: &Arc<Self>,
        tree: &mut Tree,
        ctx: Ctx<'_>,
        dir: u64,
        name: &Name,
        wanted: &Wanted,
    ) -> Result<(u64, Vec<Ticket>)> {
        // Refused before anything is journalled: owner and group have a counterpart at the home.
        wanted.set.uid.map(|uid| self.home_uid(uid)).transpose()?;
        wanted.set.gid.map(|gid| self.home_gid(gid)).transpose()?;
        let later = SetAttrs { mode: None, size: wanted.set.size.filter(|s| *s > 0), ..wanted.set };
        let more = !self.plain() && later != SetAttrs::default();
        if more {
            self.check_room(tree)?;
        }
        let time = self.env.clock.now();
        let id = tree.new_id()?;
        let parent = Volume::attr_of(tree, dir)?;
        let attr = self.new_attr(&parent, wanted, time);
        let op: Op<u64, Stored> =
            Op::Create { dir, name: name.clone(), new: wanted.new.clone(), mode: attr.mode };
        let mut change = self.change(ctx, time, id, Some(attr), op);
        change.verifier = wanted.verifier;
        let mut tickets = vec![self.submit(tree, ctx.origin, change)?];
        if more {
            let again = Ctx { retry: None, ..ctx };
            tickets.extend(self.set(tree, again, id, &later)?);
        }
        Ok((id, tickets))
    }

    fn new_attr(&self, parent: &Attr, wanted: &Wanted, time: Time) -> Attr {
        let kind = match &wanted.new {
            New::File => Kind::File,
            New::Dir => Kind::Dir,
            New::Symlink(_) => Kind::Symlink,
            New::Fifo => Kind::Fifo,
            New::Socket => Kind::Socket,
        };
        let account = self.hello.lock().as_ref().map_or((parent.uid, parent.gid), |h| (h.uid, h.gid));
        let set_gid = parent.mode & 0o2000 != 0;
        let inherited = if set_gid && kind == Kind::Dir { 0o2000 } else { 0 };
        let allowed = if kind == Kind::Dir { 0o7777 } else { 0o1777 };
        let mode = wanted.mode & allowed | inherited;
        let size = match &wanted.new {
            New::Symlink(target) => target.len() as u64,
            New::Dir => limits::NEW_DIR_SIZE,
            New::File | New::Fifo | New::Socket => 0,
        };
        let access = match kind {
            Kind::Symlink => Access::ALL,
            _ => self.access_by_mode(mode, kind),
        };
        Attr {
            id: HomeId { fs: parent.id.fs, ..HomeId::default() },
            kind,
            mode,
            nlink: if kind == Kind::Dir { 2 } else { 1 },
            uid: account.0,
            gid: if set_gid { parent.gid } else { account.1 },
            size,
            used: 0,
            atime: time,
            mtime: time,
            ctime: time,
            access,
        }
    }

    /// Waits for a change to keep its promise; the directories' attributes are those from inside its critical
    /// section, in mode `strict` those that the home answered.
    async fn finish(&self, dirs: &[(u64, Option<crate::Before>)], ticket: Ticket) -> Result<Vec<Wcc>> {
        let wcc = |v: &Volume| {
            let tree = v.tree.lock();
            dirs.iter().map(|(dir, before)| v.wcc(&tree, *dir, *before)).collect()
        };
        let first = wcc(self);
        self.settled(ticket).await?;
        Ok(if self.plain() { wcc(self) } else { first })
    }
}

/// Fails where a directory is known to have names.
fn not_empty(tree: &mut Tree, id: u64) -> Result<()> {
    let gateway = tree.nameless.gateway;
    if tree.names(id)?.has_children(gateway) { Err(ErrorKind::NotEmpty.into()) } else { Ok(()) }
}

/// Fails where two objects are on different file systems of the home.
fn same_fs(tree: &mut Tree, a: u64, b: u64) -> Result<()> {
    let (a, b) = (tree.get(a)?.home_id.fs, tree.get(b)?.home_id.fs);
    if a == b { Ok(()) } else { Err(ErrorKind::CrossDevice.into()) }
}
