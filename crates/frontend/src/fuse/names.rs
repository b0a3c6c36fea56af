//! Requests about names: looking up, making, removing, moving, linking.

use super::Call;
use super::call::{Answer, patient};
use super::objects::Shown;
use super::{convert, nodes};
use bytes::Bytes;
use fuser::{Errno, FileHandle, FopenFlags, INodeNo, OpenFlags, RenameFlags};
use std::time::Duration;
use vfs::{CreateHow, Ctx, FileAttr, Kind, Made, Oid, RenameHow, SetAttrs};

/// What a lookup found.
pub enum Looked {
    /// An object; the kernel has been counted as knowing it.
    Found(Shown),
    /// Surely nothing; the kernel may believe so for as long.
    Absent(Duration),
}

/// A file that was made and opened.
pub struct Created {
    /// The file itself.
    pub shown: Shown,
    /// Its number.
    pub handle: FileHandle,
    /// How the kernel may treat it.
    pub flags: FopenFlags,
}

impl Call {
    /// An object that the kernel is told of.
    fn entry(&self, oid: Oid, attr: &FileAttr) -> Shown {
        let attr = self.shown(self.nodes.remember(oid, attr), attr);
        Shown { attr, generation: nodes::generation(oid), ttl: self.ttl(oid) }
    }

    /// FUSE_LOOKUP.
    pub async fn lookup(&self, parent: INodeNo, name: &[u8]) -> Answer<Looked> {
        let dir = self.oid(parent)?;
        match patient(|| self.vfs.lookup(self.ctx(), dir, name)).await {
            Ok(found) => Ok(Looked::Found(self.entry(found.oid, &found.attr))),
            // A host that is not known now may be known at any time.
            Err(Errno::ENOENT) if dir.volume != Oid::ROOT_VOLUME => Ok(Looked::Absent(self.ttl(dir))),
            Err(e) => Err(e),
        }
    }

    async fn made(&self, made: Made) -> Answer<Shown> {
        let attr = match made.attr {
            Some(attr) => attr,
            None => patient(|| self.vfs.getattr(self.ctx_now(), made.oid)).await?,
        };
        Ok(self.entry(made.oid, &attr))
    }

    /// FUSE_CREATE: makes a file, or uses the one that is there, and opens it.
    pub async fn create(&self, parent: INodeNo, name: &[u8], mode: u32, flags: OpenFlags) -> Answer<Created> {
        let dir = self.oid(parent)?;
        let set = SetAttrs { mode: Some(mode & 0o7777), ..SetAttrs::default() };
        let (how, mode) = (CreateHow::Guarded, convert::open_mode(flags));
        let made = patient(|| self.vfs.create_open(self.ctx(), dir, name, how, set, mode)).await;
        let (made, file) = match made {
            Err(Errno::EEXIST) if flags.0 & libc::O_EXCL == 0 => {
                return self.open_existing(dir, name, flags).await;
            }
            made => made?,
        };
        let shown = self.made(made).await?;
        // Its name is as durable as names are, and it has no content yet: closing it commits nothing.
        Ok(Created { shown, handle: self.files.open(file), flags: self.direct(flags) })
    }

    /// Somebody else was quicker to make the file that the kernel thought did not exist.
    async fn open_existing(&self, dir: Oid, name: &[u8], flags: OpenFlags) -> Answer<Created> {
        let found = patient(|| self.vfs.lookup(self.ctx_now(), dir, name)).await?;
        match found.attr.kind {
            Kind::File => {}
            Kind::Dir => return Err(Errno::EISDIR),
            // The kernel finds out what it is and goes on from there.
            _ => return Err(convert::ESTALE),
        }
        let mode = convert::open_mode(flags);
        let file = patient(|| self.vfs.open_file(self.ctx(), found.oid, mode)).await?;
        let mut attr = found.attr;
        if flags.0 & libc::O_TRUNC != 0 {
            let empty = SetAttrs { size: Some(0), ..SetAttrs::default() };
            let ctx = Ctx { open: Some(&file), ..self.ctx_now() };
            patient(|| self.vfs.setattr(ctx, found.oid, empty, None)).await?;
            attr = patient(|| self.vfs.getattr(ctx, found.oid)).await?;
        }
        let shown = self.entry(found.oid, &attr);
        Ok(Created { shown, handle: self.files.open_changed(file), flags: self.direct(flags) })
    }

    /// FUSE_MKNOD. Devices mean another machine's hardware and are refused.
    pub async fn mknod(&self, parent: INodeNo, name: &[u8], mode: u32) -> Answer<Shown> {
        let dir = self.oid(parent)?;
        let set = SetAttrs { mode: Some(mode & 0o7777), ..SetAttrs::default() };
        let kind = match mode & libc::S_IFMT {
            libc::S_IFREG | 0 => Kind::File,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            _ => return Err(Errno::EPERM),
        };
        let made = match kind {
            Kind::File => patient(|| self.vfs.create(self.ctx(), dir, name, CreateHow::Guarded, set)).await,
            kind => patient(|| self.vfs.mknod(self.ctx(), dir, name, kind, set)).await,
        };
        self.made(made?).await
    }

    /// FUSE_MKDIR.
    pub async fn mkdir(&self, parent: INodeNo, name: &[u8], mode: u32) -> Answer<Shown> {
        let dir = self.oid(parent)?;
        let set = SetAttrs { mode: Some(mode & 0o7777), ..SetAttrs::default() };
        let made = patient(|| self.vfs.mkdir(self.ctx(), dir, name, set)).await?;
        self.made(made).await
    }

    /// FUSE_SYMLINK.
    pub async fn symlink(&self, parent: INodeNo, name: &[u8], target: Bytes) -> Answer<Shown> {
        let dir = self.oid(parent)?;
        let set = SetAttrs::default();
        let made = patient(|| self.vfs.symlink(self.ctx(), dir, name, target.clone(), set)).await?;
        self.made(made).await
    }

    /// FUSE_LINK.
    pub async fn link(&self, node: INodeNo, parent: INodeNo, name: &[u8]) -> Answer<Shown> {
        let (oid, dir) = (self.oid(node)?, self.oid(parent)?);
        let linked = patient(|| self.vfs.link(self.ctx(), oid, dir, name)).await?;
        let attr = match linked.attr {
            Some(attr) => attr,
            None => patient(|| self.vfs.getattr(self.ctx_now(), oid)).await?,
        };
        Ok(self.entry(oid, &attr))
    }

    /// FUSE_UNLINK.
    pub async fn unlink(&self, parent: INodeNo, name: &[u8]) -> Answer<()> {
        let dir = self.oid(parent)?;
        patient(|| self.vfs.remove(self.ctx(), dir, name)).await.map(drop)
    }

    /// FUSE_RMDIR.
    pub async fn rmdir(&self, parent: INodeNo, name: &[u8]) -> Answer<()> {
        let dir = self.oid(parent)?;
        patient(|| self.vfs.rmdir(self.ctx(), dir, name)).await.map(drop)
    }

    /// FUSE_RENAME and FUSE_RENAME2. Exchanging two names is no single change at a home, so that it is refused
    /// as rename(2) says for a file system that cannot do it.
    pub async fn rename(
        &self,
        from: (INodeNo, &[u8]),
        to: (INodeNo, &[u8]),
        flags: RenameFlags,
    ) -> Answer<()> {
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return Err(Errno::EINVAL);
        }
        let (from_dir, to_dir) = (self.oid(from.0)?, self.oid(to.0)?);
        let how = match flags.contains(RenameFlags::RENAME_NOREPLACE) {
            true => RenameHow::NoReplace,
            false => RenameHow::Replace,
        };
        let rename = || self.vfs.rename(self.ctx(), from_dir, from.1, to_dir, to.1, how);
        patient(rename).await.map(drop)
    }
}
