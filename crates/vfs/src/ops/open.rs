//! Open files. Permission is asked once, when a file is opened, and a file that loses its name while it is open can be
//! used until the last close.

use super::live;
use crate::Vfs;
use crate::inode::Tree;
use crate::perm::check_writable;
use crate::types::{CreateHow, Ctx, Made, Oid, SetAttrs};
use crate::volume::Volume;
use home::{Attr, ErrorKind, Kind, Result};
use std::sync::{Arc, Weak};

/// What an open file is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenMode {
    /// Reading.
    pub read: bool,
    /// Writing and cutting.
    pub write: bool,
    /// Reading in order to execute, for which the permission to execute is enough.
    pub exec: bool,
}

/// A file that somebody has open; [`Vfs::close_file`], or dropping it, closes it.
#[derive(Debug)]
pub struct OpenFile {
    oid: Oid,
    mode: OpenMode,
    /// Where it is counted; nowhere for what has no home.
    volume: Weak<Volume>,
}

impl OpenFile {
    /// The object.
    pub fn oid(&self) -> Oid {
        self.oid
    }

    /// What it was opened for.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(volume) = self.volume.upgrade() {
            volume.closed(self.oid.id, self.mode);
        }
    }
}

impl Ctx<'_> {
    /// Whether the call comes through an open file that is used so.
    pub(crate) fn opened(&self, oid: Oid, used: impl Fn(OpenMode) -> bool) -> bool {
        self.open.is_some_and(|open| open.oid == oid && used(open.mode))
    }
}

impl Vfs {
    /// Opens a file, or a directory for reading. Fails as open(2) does without permission; reads, writes and cuts with
    /// the result in [`Ctx::open`] are not asked for it again.
    pub async fn open_file(&self, ctx: Ctx<'_>, oid: Oid, mode: OpenMode) -> Result<OpenFile> {
        if oid.volume == Oid::ROOT_VOLUME {
            let what = if mode.write { Err(ErrorKind::ReadOnly.into()) } else { self.own_attr(oid) };
            return what.map(|_| OpenFile { oid, mode, volume: Weak::new() });
        }
        let volume = if mode.write { self.writable(oid)? } else { self.volume(oid)? };
        let need = volume.need_to_open(ctx, oid.id);
        volume.ensure_allowed(oid.id, need, |attr| volume.may_open(ctx, attr, mode)).await?;
        volume.open_checked(ctx, oid, mode)
    }

    /// Makes a regular file, or finds the existing one as `how` says, and opens it: a new one whatever its mode, as
    /// open(2) does with `O_CREAT`.
    pub async fn create_open(
        &self,
        ctx: Ctx<'_>,
        dir: Oid,
        name: &[u8],
        how: CreateHow,
        set: SetAttrs,
        mode: OpenMode,
    ) -> Result<(Made, OpenFile)> {
        let (made, new) = self.create_or_find(ctx, dir, name, how, (set, Some(mode))).await?;
        let open = match new {
            Some(open) => open,
            None => self.volume(made.oid)?.open_checked(ctx, made.oid, mode)?,
        };
        Ok((made, open))
    }

    /// Closes a file. If it has lost its name and nobody else has it open, it is gone.
    pub fn close_file(&self, file: OpenFile) {
        drop(file);
    }
}

impl Volume {
    fn open_checked(self: &Arc<Self>, ctx: Ctx<'_>, oid: Oid, mode: OpenMode) -> Result<OpenFile> {
        let mut tree = self.tree.lock();
        let attr = Volume::attr_of(&mut tree, oid.id)?;
        live(&mut tree, oid.id)?;
        if mode.write {
            self.guard.lock().clone().check_object(&mut tree, oid.id)?;
        }
        self.may_open(ctx, &attr, mode)?;
        Ok(self.count_open(&mut tree, oid, mode))
    }

    /// An object is open from now on, whatever becomes of its name.
    pub(super) fn count_open(self: &Arc<Self>, tree: &mut Tree, oid: Oid, mode: OpenMode) -> OpenFile {
        tree.nameless.open(oid.id);
        OpenFile { oid, mode, volume: Arc::downgrade(self) }
    }

    fn may_open(&self, ctx: Ctx<'_>, attr: &Attr, mode: OpenMode) -> Result<()> {
        match attr.kind {
            Kind::Dir if mode.write => return Err(ErrorKind::IsDir.into()),
            Kind::Symlink => return Err(ErrorKind::Loop.into()),
            _ => {}
        }
        if mode.write {
            check_writable(attr)?;
        }
        let access = self.access_of(ctx.cred, attr);
        let granted =
            (!mode.read || access.read) && (!mode.write || access.may_write()) && (!mode.exec || access.exec);
        if granted { Ok(()) } else { Err(ErrorKind::Access.into()) }
    }

    /// Fails without permission to read that somebody has, or had when he opened the file.
    pub fn may_read_as(&self, ctx: Ctx<'_>, id: u64, attr: &Attr) -> Result<()> {
        match ctx.opened(Oid { volume: self.id, id }, |mode| mode.read || mode.exec) {
            true => Ok(()),
            false => self.may_read(ctx.cred, attr),
        }
    }

    /// Fails without permission to write that somebody has, or had when he opened the file.
    pub fn may_write_as(&self, ctx: Ctx<'_>, id: u64, attr: &Attr) -> Result<()> {
        match ctx.opened(Oid { volume: self.id, id }, |mode| mode.write) {
            true => Ok(()),
            false => self.may_write(ctx.cred, attr),
        }
    }

    fn closed(&self, id: u64, mode: OpenMode) {
        let mut tree = self.tree.lock();
        if mode.write && self.shared.spool_from.is_some() {
            tree.queue.committed(id);
            self.wake.notify_one();
        }
        tree.nameless.close(id);
        if !tree.nameless.is_open(id) {
            self.remove_if_nameless(&mut tree, id);
        }
    }
}
