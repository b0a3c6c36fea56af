//! Requests about an open file: opening, reading, writing, making durable, closing.
//!
//! A write is answered once the engine has taken it; closing the file waits until it is as durable as the home's mode
//! says, and reports what went wrong since. So a program that checks close(2) knows what one that calls fsync(2) does.

use super::Call;
use super::call::{Answer, patient};
use super::convert;
use super::files::Open;
use bytes::Bytes;
use fuser::{FileHandle, FopenFlags, INodeNo, LockOwner, OpenAccMode, OpenFlags};
use vfs::{Ctx, Oid, Stability};

/// What FUSE_WRITE asks.
pub struct Write {
    /// Where the kernel would put it.
    pub at: u64,
    /// The bytes.
    pub data: Bytes,
    /// To the end of the file instead, wherever it is.
    pub append: bool,
    /// Answered when it is as durable as the mode says (O_SYNC, O_DSYNC).
    pub stable: bool,
}

impl Call {
    /// FUSE_OPEN. The kernel keeps its page cache where the content is still the one that it holds.
    pub async fn open(&self, node: INodeNo, flags: OpenFlags) -> Answer<(FileHandle, FopenFlags)> {
        let oid = self.oid(node)?;
        let file = patient(|| self.vfs.open_file(self.ctx(), oid, convert::open_mode(flags))).await?;
        let attr = patient(|| self.vfs.getattr(self.ctx(), oid)).await?;
        let mut how = self.direct(flags);
        if self.nodes.still_cached(node.0, &attr) {
            how |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        Ok((self.files.open(file), how))
    }

    /// A file that is opened to append passes the kernel's page cache by, because the kernel does not know where its
    /// end is; unless that would forbid to map it, which only one who may read it can.
    pub fn direct(&self, flags: OpenFlags) -> FopenFlags {
        let append = flags.0 & libc::O_APPEND != 0;
        let cannot_map = flags.acc_mode() == OpenAccMode::O_WRONLY;
        match append && (cannot_map || self.mapped_direct.get() == Some(&true)) {
            true => FopenFlags::FOPEN_DIRECT_IO,
            false => FopenFlags::empty(),
        }
    }

    /// FUSE_READ.
    pub async fn read(&self, node: INodeNo, handle: FileHandle, at: u64, len: u32) -> Answer<Vec<Bytes>> {
        let oid = self.oid(node)?;
        let open = self.files.get(handle);
        let ctx = self.ctx_of(open.as_deref());
        Ok(patient(|| self.vfs.read(ctx, oid, at, len)).await?.data)
    }

    /// FUSE_WRITE; answers how many bytes were taken.
    pub async fn write(&self, node: INodeNo, handle: FileHandle, write: Write) -> Answer<u32> {
        let oid = self.oid(node)?;
        let open = self.files.get(handle);
        if let Some(open) = &open {
            open.wrote();
        }
        let ctx = self.ctx_of(open.as_deref());
        let Write { at, data, append, stable } = write;
        let want = if stable { Stability::Stable } else { Stability::Unstable };
        if append {
            return self.append(node, (ctx, oid), at, &data, want).await;
        }
        let done = patient(|| self.vfs.write(ctx, oid, at, data.clone(), want)).await?;
        self.nodes.changed_here(node.0, &done.wcc);
        Ok(done.count)
    }

    /// The kernel thinks that the file ends at `at`. If it does not, the kernel has put the bytes into the wrong
    /// place of its page cache, where it has one.
    async fn append(
        &self,
        node: INodeNo,
        (ctx, oid): (Ctx<'_>, Oid),
        at: u64,
        data: &Bytes,
        want: Stability,
    ) -> Answer<u32> {
        let done = patient(|| self.vfs.append(ctx, oid, data.clone(), want)).await?;
        if done.at != at && self.stale.try_send(node.0).is_err() {
            tracing::debug!("an append elsewhere than the kernel thought is told late");
        }
        self.nodes.changed_here(node.0, &done.written.wcc);
        Ok(done.written.count)
    }

    /// FUSE_FLUSH: close(2). The process gives up its locks on the file with every close (fcntl(2)).
    pub async fn flush(&self, handle: FileHandle, owner: LockOwner) -> Answer<()> {
        let Some(open) = self.files.get(handle) else { return Ok(()) };
        open.unlocks(owner.0);
        self.vfs.release_owner(open.oid(), self.locker(owner));
        self.commit_written(&open).await
    }

    async fn commit_written(&self, open: &Open) -> Answer<()> {
        if !open.take_written() {
            return Ok(());
        }
        let done = self.commit(open.oid()).await;
        if done.is_err() {
            open.wrote();
        }
        done
    }

    /// FUSE_FSYNC.
    pub async fn fsync(&self, node: INodeNo, handle: FileHandle) -> Answer<()> {
        let oid = self.oid(node)?;
        if let Some(open) = self.files.get(handle) {
            open.take_written();
        }
        self.commit(oid).await
    }

    /// FUSE_FSYNCDIR.
    pub async fn fsync_dir(&self, node: INodeNo) -> Answer<()> {
        let oid = self.oid(node)?;
        patient(|| self.vfs.commit_dir(self.ctx(), oid)).await
    }

    async fn commit(&self, oid: Oid) -> Answer<()> {
        patient(|| self.vfs.commit(self.ctx(), oid)).await.map(drop)
    }

    /// FUSE_RELEASE: nobody has the file open or mapped any more. What was written through a mapping after the last
    /// close is committed; nobody is left to hear how that went. Locks of the open file itself (flock(2), and fcntl(2)'s
    /// open file description locks) end here.
    pub async fn release(&self, handle: FileHandle) {
        let Some(open) = self.files.close(handle) else { return };
        for owner in open.lockers() {
            self.vfs.release_owner(open.oid(), self.locker(LockOwner(owner)));
        }
        if let Err(e) = self.commit_written(&open).await {
            let e = std::io::Error::from_raw_os_error(e.code());
            tracing::warn!(
                "what was written to a file, or through a mapping of it, is not committed after its last close: {e}"
            );
        }
    }
}
