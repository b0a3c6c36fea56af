//! Requests about an object: attributes, access, links' targets, space.

use super::call::{Answer, patient};
use super::{Call, Tree};
use super::{convert, nodes};
use crate::limits;
use bytes::Bytes;
use fuser::{AccessFlags, Errno, FileHandle, Generation, INodeNo};
use std::time::Duration;
use vfs::{AccessMask, Oid, SetAttrs, StatFs};

/// What the kernel is told of an object.
pub struct Shown {
    /// Its attributes.
    pub attr: fuser::FileAttr,
    /// Tells it from another one that had its node id before.
    pub generation: Generation,
    /// How long the kernel may believe them, and the name by which it found the object.
    pub ttl: Duration,
}

impl Tree {
    /// How long the kernel may believe what it hears of an object.
    pub fn ttl(&self, oid: Oid) -> Duration {
        if self.vfs.asks_each_time(oid) { Duration::ZERO } else { limits::FUSE_TTL }
    }

    /// Attributes for this session's kernel, to which the server's own user may have another number.
    pub fn shown(&self, node: u64, attr: &vfs::FileAttr) -> fuser::FileAttr {
        let (uid, gid) = (self.owner.0.swap(attr.uid), self.owner.1.swap(attr.gid));
        convert::attr(node, &vfs::FileAttr { uid, gid, ..*attr })
    }
}

impl Call {
    /// The same as an answer.
    fn answer(&self, node: INodeNo, oid: Oid, attr: &vfs::FileAttr) -> Shown {
        let attr = self.shown(node.0, attr);
        Shown { attr, generation: nodes::generation(oid), ttl: self.ttl(oid) }
    }

    /// FUSE_GETATTR.
    pub async fn getattr(&self, node: INodeNo) -> Answer<Shown> {
        let oid = self.oid(node)?;
        let attr = patient(|| self.vfs.getattr(self.ctx(), oid)).await?;
        Ok(self.answer(node, oid, &attr))
    }

    /// FUSE_SETATTR. A size needs permission to write, unless the file was opened with it (ftruncate(2)).
    pub async fn setattr(&self, node: INodeNo, set: SetAttrs, handle: Option<FileHandle>) -> Answer<Shown> {
        let oid = self.oid(node)?;
        let (uid, gid) = (set.uid.map(|u| self.owner.0.swap(u)), set.gid.map(|g| self.owner.1.swap(g)));
        let set = SetAttrs { uid, gid, ..set };
        let open = handle.and_then(|h| self.files.get(h));
        if set.size.is_some() && open.is_none() {
            self.allowed(oid, AccessMask { modify: true, ..AccessMask::default() }).await?;
        }
        let ctx = self.ctx_of(open.as_deref());
        if let Some(open) = &open {
            open.wrote();
        }
        let wcc = patient(|| self.vfs.setattr(ctx, oid, set, None)).await?;
        self.nodes.changed_here(node.0, &wcc);
        let attr = match wcc.after {
            Some(attr) => attr,
            None => patient(|| self.vfs.getattr(self.ctx_now(), oid)).await?,
        };
        Ok(self.answer(node, oid, &attr))
    }

    /// FUSE_ACCESS: access(2) and chdir(2).
    pub async fn access(&self, node: INodeNo, mask: AccessFlags) -> Answer<()> {
        let oid = self.oid(node)?;
        let attr = patient(|| self.vfs.getattr(self.ctx(), oid)).await?;
        self.allowed(oid, convert::access_mask(mask, attr.kind)).await.map(drop)
    }

    /// The attributes, if all of this is allowed.
    pub async fn allowed(&self, oid: Oid, want: AccessMask) -> Answer<vfs::FileAttr> {
        let (granted, attr) = patient(|| self.vfs.access(self.ctx(), oid, want)).await?;
        match granted == want {
            true => Ok(attr),
            false if (want.modify || want.extend) && self.vfs.is_read_only(oid) => Err(Errno::EROFS),
            false => Err(Errno::EACCES),
        }
    }

    /// FUSE_READLINK.
    pub async fn readlink(&self, node: INodeNo) -> Answer<Bytes> {
        let oid = self.oid(node)?;
        Ok(patient(|| self.vfs.readlink(self.ctx(), oid)).await?.0)
    }

    /// FUSE_STATFS.
    pub async fn statfs(&self, node: INodeNo) -> Answer<StatFs> {
        let oid = self.oid(node)?;
        patient(|| self.vfs.statfs(self.ctx(), oid)).await
    }
}
