//! The table of requests: each is decoded by `fuser`, becomes a future, and its outcome a reply.

use super::call::{Answer, GivesUp, answer};
use super::convert;
use super::io::Write;
use super::locks::Asked;
use super::names::Looked;
use super::objects::Shown;
use super::xattrs::fitting;
use super::{Call, Tree};
use crate::limits;
use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use vfs::SetAttrs;

/// Size of the blocks in which space is told.
const STATFS_BLOCK: u32 = 4096;

/// What the kernel shall do if it can. Locks and more stay with it unless they are named here.
const WANTED: [InitFlags; 11] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_POSIX_LOCKS,
    InitFlags::FUSE_FLOCK_LOCKS,
    InitFlags::FUSE_CACHE_SYMLINKS,
    // The engine takes set-id bits away with every write, so that the kernel need not ask before each.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
];

/// A session's requests.
pub struct Requests {
    tree: Arc<Tree>,
    runtime: Handle,
}

impl Requests {
    /// The process that waits for the answer; 0 where it is none of this machine's.
    fn asker(&self, req: &Request) -> u32 {
        if self.tree.here { req.pid() } else { 0 }
    }

    /// Requests that work on a tree.
    pub fn new(tree: Arc<Tree>, runtime: Handle) -> Requests {
        Requests { tree, runtime }
    }

    /// The tree as a request sees it that is about `names` names, one or two.
    fn call(&self, req: &Request, names: usize) -> Call {
        let since = self.tree.programs.goes_on(req.pid(), names, self.tree.vfs.instant());
        Call { tree: Arc::clone(&self.tree), since }
    }

    /// Answers a request about one name, or none.
    fn answer<T, F>(
        &self,
        req: &Request,
        work: impl FnOnce(Call) -> F,
        reply: impl FnOnce(Answer<T>) + Send + 'static,
    ) where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        self.answer_with(req, work(self.call(req, 1)), reply);
    }

    fn answer_with<T, F>(&self, req: &Request, work: F, reply: impl FnOnce(Answer<T>) + Send + 'static)
    where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let vfs = Arc::clone(&self.tree.vfs);
        let work = async move { vfs.request(None, work).await };
        answer(&self.runtime, (self.asker(req), GivesUp::WhenKilled), work, reply);
    }

    /// The tree as a request sees it that lists what follows a cookie: the listing goes on with what it began with.
    fn listing(&self, req: &Request, after: u64) -> Call {
        let call = self.call(req, 1);
        if after == 0 { call } else { Call { since: Duration::ZERO, ..call } }
    }
}

fn entry(reply: ReplyEntry) -> impl FnOnce(Answer<Shown>) + Send {
    |done| match done {
        Ok(Shown { attr, generation, ttl }) => reply.entry(&ttl, &attr, generation),
        Err(e) => reply.error(e),
    }
}

fn empty(reply: ReplyEmpty) -> impl FnOnce(Answer<()>) + Send {
    |done| match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

fn attributes(reply: ReplyAttr) -> impl FnOnce(Answer<Shown>) + Send {
    |done| match done {
        Ok(Shown { attr, ttl, .. }) => reply.attr(&ttl, &attr),
        Err(e) => reply.error(e),
    }
}

fn data(reply: ReplyData) -> impl FnOnce(Answer<Vec<Bytes>>) + Send {
    |done| match done {
        Ok(parts) => match &parts[..] {
            [one] => reply.data(one),
            many => reply.data(&many.concat()),
        },
        Err(e) => reply.error(e),
    }
}

/// An attribute or a list of them, or only its length where the kernel has no buffer.
fn xattr(size: u32, reply: ReplyXattr) -> impl FnOnce(Answer<Bytes>) + Send {
    move |done| match done.and_then(|bytes| fitting(bytes, size)) {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) => reply.data(&bytes),
        Err(e) => reply.error(e),
    }
}

/// An entry without object: the kernel remembers that the name does not exist.
fn absent() -> fuser::FileAttr {
    let kind = fuser::FileType::RegularFile;
    let never = SystemTime::UNIX_EPOCH;
    fuser::FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
        crtime: never,
        kind,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

impl Filesystem for Requests {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for flag in WANTED {
            // What an older kernel does not know it does its own way.
            let _ = config.add_capabilities(flag);
        }
        let mapped_direct = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        // The handshake comes once.
        let _ = self.tree.mapped_direct.set(mapped_direct);
        for set in [
            config.set_max_write(self.tree.block),
            // As much as the kernel offers; the engine reads further ahead by itself.
            config
                .set_max_readahead(self.tree.block.min(limits::FUSE_BLOCK))
                .or_else(|most| config.set_max_readahead(most)),
        ] {
            set.map_err(|nearest| {
                std::io::Error::other(format!("the kernel offers no more than {nearest}"))
            })?;
        }
        let background = config.set_max_background(limits::FUSE_BACKGROUND);
        background.map(drop).map_err(|_| std::io::Error::other("a kernel without background requests"))
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        let (tree, thread) = (Arc::clone(&self.tree), req.pid());
        let since = tree.programs.looks(thread, parent.0, tree.vfs.instant());
        let call = Call { since, tree: Arc::clone(&tree) };
        let reply = move |done| {
            let node = if let Ok(Looked::Found(shown)) = &done { Some(shown.attr.ino.0) } else { None };
            tree.programs.found(thread, node, tree.vfs.instant());
            match done {
                Ok(Looked::Found(Shown { attr, generation, ttl })) => reply.entry(&ttl, &attr, generation),
                Ok(Looked::Absent(ttl)) => {
                    reply.entry_with_ttls(&Duration::ZERO, &ttl, &absent(), Generation(0));
                }
                Err(e) => reply.error(e),
            }
        };
        self.answer_with(req, async move { call.lookup(parent, &name).await }, reply);
    }

    fn forget(&self, _req: &Request, node: INodeNo, lookups: u64) {
        self.tree.nodes.forget(node.0, lookups);
    }

    fn getattr(&self, req: &Request, node: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let question = self.tree.unanswered.ask(node.0);
        let call = |call: Call| async move { call.getattr(node).await };
        self.answer(req, call, move |done| {
            attributes(reply)(done);
            drop(question);
        });
    }

    fn setattr(
        &self,
        req: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (convert::set_time(atime), convert::set_time(mtime));
        let set = SetAttrs { mode: mode.map(|m| m & 0o7777), uid, gid, size, atime, mtime };
        self.answer(req, |call| async move { call.setattr(node, set, handle).await }, attributes(reply));
    }

    fn readlink(&self, req: &Request, node: INodeNo, reply: ReplyData) {
        let call = |call: Call| async move { call.readlink(node).await.map(|target| vec![target]) };
        self.answer(req, call, data(reply));
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes().to_vec();
        self.answer(req, |call| async move { call.mknod(parent, &name, mode).await }, entry(reply));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        self.answer(req, |call| async move { call.mkdir(parent, &name, mode).await }, entry(reply));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.answer(req, |call| async move { call.unlink(parent, &name).await }, empty(reply));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.answer(req, |call| async move { call.rmdir(parent, &name).await }, empty(reply));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        let target = Bytes::copy_from_slice(target.as_os_str().as_bytes());
        self.answer(req, |call| async move { call.symlink(parent, &name, target).await }, entry(reply));
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (name.as_bytes().to_vec(), new_name.as_bytes().to_vec());
        let call = self.call(req, 2);
        let work = async move { call.rename((parent, &from), (new_parent, &to), flags).await };
        self.answer_with(req, work, empty(reply));
    }

    fn link(&self, req: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        let call = self.call(req, 2);
        self.answer_with(req, async move { call.link(node, parent, &name).await }, entry(reply));
    }

    fn open(&self, req: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.answer(
            req,
            |call| async move { call.open(node, flags).await },
            |done| match done {
                Ok((handle, how)) => reply.opened(handle, how),
                Err(e) => reply.error(e),
            },
        );
    }

    fn read(
        &self,
        req: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.answer(req, |call| async move { call.read(node, handle, offset, size).await }, data(reply));
    }

    fn write(
        &self,
        req: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = Bytes::copy_from_slice(bytes);
        // What comes from a mapping has its place, however the file was opened.
        let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let has = |flag: i32| flags.0 & flag == flag;
        let write = Write {
            at: offset,
            data,
            append: !mapped && has(libc::O_APPEND),
            stable: has(libc::O_SYNC) || has(libc::O_DSYNC),
        };
        self.answer(
            req,
            |call| async move { call.write(node, handle, write).await },
            |done| match done {
                Ok(count) => reply.written(count),
                Err(e) => reply.error(e),
            },
        );
    }

    fn flush(&self, req: &Request, _node: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        self.answer(req, |call| async move { call.flush(handle, owner).await }, empty(reply));
    }

    fn release(
        &self,
        req: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let call = |call: Call| async move {
            call.release(handle).await;
            Ok(())
        };
        self.answer(req, call, empty(reply));
    }

    fn fsync(&self, req: &Request, node: INodeNo, handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.answer(req, |call| async move { call.fsync(node, handle).await }, empty(reply));
    }

    fn opendir(&self, req: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.answer(
            req,
            |call| async move { call.opendir(node).await },
            |done| match done {
                Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
                Err(e) => reply.error(e),
            },
        );
    }

    fn readdir(&self, req: &Request, node: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        let call = self.listing(req, offset);
        self.answer_with(req, async move { Ok(call.list(node, offset, reply).await) }, |done: Answer<_>| {
            match done {
                Ok(Ok(reply)) => reply.ok(),
                Ok(Err((reply, e))) => reply.error(e),
                // The asker is being killed, and the reply went with the call.
                Err(_) => {}
            }
        });
    }

    fn readdirplus(
        &self,
        req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let call = self.listing(req, offset);
        self.answer_with(req, async move { Ok(call.list(node, offset, reply).await) }, |done: Answer<_>| {
            match done {
                Ok(Ok(reply)) => reply.ok(),
                Ok(Err((reply, e))) => reply.error(e),
                Err(_) => {}
            }
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        _node: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(&self, req: &Request, node: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.answer(req, |call| async move { call.fsync_dir(node).await }, empty(reply));
    }

    fn statfs(&self, req: &Request, node: INodeNo, reply: ReplyStatfs) {
        self.answer(
            req,
            |call| async move { call.statfs(node).await },
            |done| match done {
                Ok(s) => {
                    let blocks = |bytes: u64| bytes / u64::from(STATFS_BLOCK);
                    let (total, free, available) = (blocks(s.total), blocks(s.free), blocks(s.available));
                    let (files, block) = ((s.files, s.files_free), STATFS_BLOCK);
                    reply.statfs(total, free, available, files.0, files.1, block, limits::NAME_MAX, block);
                }
                Err(e) => reply.error(e),
            },
        );
    }

    fn setxattr(
        &self,
        req: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (name.as_bytes().to_vec(), Bytes::copy_from_slice(value));
        self.answer(req, |call| async move { call.setxattr(node, &name, value, flags).await }, empty(reply));
    }

    fn getxattr(&self, req: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.as_bytes().to_vec();
        self.answer(req, |call| async move { call.getxattr(node, &name).await }, xattr(size, reply));
    }

    fn listxattr(&self, req: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        self.answer(req, |call| async move { call.listxattr(node).await }, xattr(size, reply));
    }

    fn removexattr(&self, req: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.answer(req, |call| async move { call.removexattr(node, &name).await }, empty(reply));
    }

    fn access(&self, req: &Request, node: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        self.answer(req, |call| async move { call.access(node, mask).await }, empty(reply));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = name.as_bytes().to_vec();
        self.answer(
            req,
            |call| async move { call.create(parent, &name, mode, OpenFlags(flags)).await },
            |done| match done {
                Ok(new) => {
                    let Shown { attr, generation, ttl } = &new.shown;
                    reply.created(ttl, attr, *generation, new.handle, new.flags);
                }
                Err(e) => reply.error(e),
            },
        );
    }

    fn getlk(
        &self,
        req: &Request,
        node: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let asked = Asked { handle, owner, range: (start, end), kind, pid };
        self.answer(
            req,
            |call| async move { call.getlk(node, asked).await },
            |done| match done {
                Ok((start, end, kind, pid)) => reply.locked(start, end, kind, pid),
                Err(e) => reply.error(e),
            },
        );
    }

    fn setlk(
        &self,
        req: &Request,
        node: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        wait: bool,
        reply: ReplyEmpty,
    ) {
        let asked = Asked { handle, owner, range: (start, end), kind, pid };
        let call = self.call(req, 1);
        let work = async move { call.setlk(node, asked, wait).await };
        answer(&self.runtime, (self.asker(req), GivesUp::AtSignal), work, empty(reply));
    }
}
