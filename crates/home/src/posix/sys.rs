//! Everything the posix home asks of its machine: one trait, so that the same code runs over Linux and
//! over a simulation.
//!
//! Objects are named by descriptors. Those from [`Sys::open_path`] and [`Sys::open_name`] are `O_PATH`
//! ones: opening them has no side effect on devices, pipes and automounts, and what is asked through
//! them is asked of one and the same object. [`Sys::reopen`] makes them readable or writable.
//! Errors are errno(3) numbers.

use crate::attr::{StatFs, Time};
use crate::xattr::XattrHow;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::time::Duration;

/// The result of a system call.
pub type Sysult<T> = std::result::Result<T, Errno>;

/// What a descriptor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Read a file or a directory.
    Read,
    /// Read and write a file.
    ReadWrite,
    /// Write a file.
    Write,
}

/// What an object is, with the types that are hidden from clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Local socket.
    Socket,
    /// A device or anything else.
    Other,
}

/// What statx(2) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Device number; not stable over reboots.
    pub dev: u64,
    /// The mount it was reached through; 0 where the kernel does not tell.
    pub mount: u64,
    /// Whether it is the root of a mount; `None` where the kernel does not tell.
    pub mount_root: Option<bool>,
    /// Inode number.
    pub ino: u64,
    /// Type.
    pub kind: FileType,
    /// Permission bits, 0o7777 at most.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Allocated bytes.
    pub used: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
    /// Birth, where the file system keeps it.
    pub btime: Option<Time>,
}

/// What statfs(2) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fs {
    /// The magic number of the file system's type.
    pub magic: u64,
    /// The file system's own identity; 0 where it has none.
    pub fsid: u64,
    /// Space.
    pub space: StatFs,
}

/// What the quotas of a file system leave; the largest numbers where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub files: u64,
}

impl Left {
    /// No quota.
    pub const ALL: Left = Left { bytes: u64::MAX, files: u64::MAX };
}

/// One line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Device number, comparable with [`Stat::dev`].
    pub dev: u64,
    /// Type, such as `ext4`.
    pub fstype: Vec<u8>,
    /// Source, such as `server:/export`.
    pub source: Vec<u8>,
    /// Where it is mounted.
    pub point: Vec<u8>,
    /// Nothing can be changed there: this mount, or the whole file system, is read-only.
    pub read_only: bool,
}

/// The account that we run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Effective uid.
    pub uid: u32,
    /// Effective gid.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Home directory, an absolute path.
    pub home_dir: Vec<u8>,
}

/// What to make.
#[derive(Debug, Clone, Copy)]
pub enum Make<'a> {
    /// A directory with these permission bits.
    Dir(u32),
    /// A symbolic link to this.
    Symlink(&'a [u8]),
    /// A named pipe with these permission bits.
    Fifo(u32),
    /// A local socket with these permission bits.
    Socket(u32),
}

/// How a rename treats an existing destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// Replace it.
    Replace,
    /// Fail with `EEXIST`.
    NoReplace,
    /// Swap both.
    Exchange,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// Leave it.
    Keep,
    /// The machine's clock.
    Now,
    /// This.
    At(Time),
}

/// What happened in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// Events were lost.
    Overflow,
    /// The watch is over, because the directory or its file system went away or was moved.
    Ended,
    /// Its own attributes changed.
    Itself,
    /// Something about a name.
    Name {
        /// The name.
        name: Vec<u8>,
        /// Whether it stands, or stood, for a directory.
        dir: bool,
        /// Whether it came, went or was moved; else only content or attributes of what it stands for changed.
        entry: bool,
    },
}

/// One machine.
pub trait Sys: Send + Sync + 'static {
    /// An open object; closed when dropped.
    type Fd: Send + Sync;

    /// The clock.
    fn now(&self) -> Time;
    /// Monotonic time since an arbitrary start.
    fn instant(&self) -> Duration;
    /// Fills `buf` with unpredictable bytes.
    fn random(&self, buf: &mut [u8]) -> Sysult<()>;
    /// The account that we run as.
    fn account(&self) -> Account;
    /// Bytes that differ from boot to boot and from machine to machine.
    fn boot_id(&self) -> Vec<u8>;
    /// When the machine was started, as its clock goes now.
    fn booted(&self) -> Time;
    /// Bytes that differ from each start of a machine or container to the next, on one boot; `None` where they are not told.
    fn first_process(&self) -> Option<Vec<u8>> {
        None
    }
    /// The mount table.
    fn mounts(&self) -> Sysult<Vec<Mount>>;

    /// The directory at an absolute path, as `O_PATH`.
    fn open_root(&self, path: &[u8]) -> Sysult<Self::Fd>;
    /// The object at a relative path of at most 4095 bytes, as `O_PATH`. No component may be a symbolic
    /// link but the last, which is not followed. `ENOSYS` on kernels before 5.6.
    fn open_path(&self, dir: &Self::Fd, path: &[u8]) -> Sysult<Self::Fd>;
    /// The object under one name, as `O_PATH`, not following a symbolic link.
    fn open_name(&self, dir: &Self::Fd, name: &[u8]) -> Sysult<Self::Fd>;
    /// Opens the same object again for reading or writing.
    fn reopen(&self, fd: &Self::Fd, mode: Mode) -> Sysult<Self::Fd>;
    /// Makes a regular file under a free name and opens it for reading and writing.
    fn create(&self, dir: &Self::Fd, name: &[u8], mode: u32) -> Sysult<Self::Fd>;
    /// Makes another kind of object under a free name.
    fn make(&self, dir: &Self::Fd, name: &[u8], what: Make<'_>) -> Sysult<()>;
    /// Gives the object at `from`/`name`, not followed, a further name.
    fn link(&self, from: &Self::Fd, name: &[u8], to: &Self::Fd, new: &[u8]) -> Sysult<()>;
    /// Moves a name.
    fn rename(&self, from: &Self::Fd, name: &[u8], to: &Self::Fd, new: &[u8], how: Rename) -> Sysult<()>;
    /// Removes a name; `dir` is whether it is a directory.
    fn unlink(&self, at: &Self::Fd, name: &[u8], dir: bool) -> Sysult<()>;

    /// Attributes.
    fn stat(&self, fd: &Self::Fd) -> Sysult<Stat>;
    /// The kernel's file handle; `EOPNOTSUPP` where there is none.
    fn handle(&self, fd: &Self::Fd) -> Sysult<Vec<u8>>;
    /// Fails where the effective account may not do all of the bits (4 read, 2 write, 1 execute).
    fn access(&self, fd: &Self::Fd, bits: u32) -> Sysult<()>;
    /// The file system that holds the object.
    fn statfs(&self, fd: &Self::Fd) -> Sysult<Fs>;
    /// What the quotas of that file system leave a user and a group, as far as we may know that.
    fn quota(&self, fd: &Self::Fd, uid: u32, gid: u32) -> Left;
    /// Where a symbolic link points.
    fn readlink(&self, fd: &Self::Fd) -> Sysult<Vec<u8>>;
    /// The names in a directory opened for reading, without `.` and `..`, at most `max`.
    fn names(&self, fd: &Self::Fd, max: usize) -> Sysult<Vec<Vec<u8>>>;
    /// Sets permission bits; not on symbolic links.
    fn chmod(&self, fd: &Self::Fd, mode: u32) -> Sysult<()>;
    /// Sets the group.
    fn chgrp(&self, fd: &Self::Fd, gid: u32) -> Sysult<()>;
    /// Sets the times.
    fn set_times(&self, fd: &Self::Fd, atime: Stamp, mtime: Stamp) -> Sysult<()>;
    /// All extended attributes that can be read, ACLs included.
    fn xattrs(&self, fd: &Self::Fd) -> Sysult<Vec<(Vec<u8>, Vec<u8>)>>;
    /// Sets one extended attribute.
    fn set_xattr(&self, fd: &Self::Fd, name: &[u8], value: &[u8]) -> Sysult<()>;
    /// Names of extended attributes, each ended by a NUL.
    fn xattr_names(&self, fd: &Self::Fd) -> Sysult<Vec<u8>>;
    /// The value of one extended attribute.
    fn xattr(&self, fd: &Self::Fd, name: &[u8]) -> Sysult<Vec<u8>>;
    /// Sets one extended attribute, or removes it where there is no value.
    fn change_xattr(&self, fd: &Self::Fd, name: &[u8], value: Option<&[u8]>, how: XattrHow) -> Sysult<()>;
    /// Whether a directory has a default ACL, which then rules the modes of what is made in it.
    fn default_acl(&self, fd: &Self::Fd) -> bool;

    /// Reads at an offset; 0 at the end.
    fn read(&self, fd: &Self::Fd, at: u64, buf: &mut [u8]) -> Sysult<usize>;
    /// Writes at an offset; how many bytes went.
    fn write(&self, fd: &Self::Fd, at: u64, data: &[u8]) -> Sysult<usize>;
    /// Sets the length.
    fn truncate(&self, fd: &Self::Fd, size: u64) -> Sysult<()>;
    /// The next range of data at or after `at`, as start and end; `None` where only a hole follows.
    fn data_range(&self, fd: &Self::Fd, at: u64, size: u64) -> Sysult<Option<(u64, u64)>>;
    /// Makes `to` share the blocks of `from`.
    fn clone_file(&self, from: &Self::Fd, to: &Self::Fd) -> Sysult<()>;
    /// Copies a range inside the kernel; how many bytes went.
    fn copy(&self, from: &Self::Fd, to: &Self::Fd, at: u64, len: u64) -> Sysult<u64>;
    /// Starts to write dirty pages back, and waits for them if told so. Promises nothing.
    fn write_back(&self, fd: &Self::Fd, wait: bool);
    /// Makes content and attributes durable.
    fn sync(&self, fd: &Self::Fd) -> Sysult<()>;
    /// Makes everything on the file system of a directory durable.
    fn sync_file_system(&self, fd: &Self::Fd) -> Sysult<()>;
    /// Locks a file for whoever has this descriptor; `EAGAIN` while somebody else has it locked.
    fn try_lock(&self, fd: &Self::Fd) -> Sysult<()>;
    /// Gives the lock back.
    fn unlock(&self, fd: &Self::Fd) -> Sysult<()>;
    /// Ends the other processes of this machine that have the file locked, where the account may.
    fn end_holders(&self, fd: &Self::Fd) -> Sysult<()>;
    /// Waits for [`limits::FENCE_PAUSE`](crate::limits::FENCE_PAUSE).
    fn pause(&self);
    /// Asks for a read lease on a file opened for reading and gives it back at once: `EAGAIN` means that
    /// some process has the file open for writing.
    fn probe_writers(&self, fd: &Self::Fd) -> Sysult<()>;
    /// Takes a write lease on a file that is open for writing here: until [`Sys::unlease`] whoever else opens or truncates
    /// it waits. `EAGAIN` means that somebody else has it open; any other error that this cannot be known.
    fn lease(&self, fd: &Self::Fd) -> Sysult<()>;
    /// Takes a read lease on a file that is open for reading here: until [`Sys::unlease`] whoever opens it for writing waits.
    /// `EAGAIN` means that somebody has it open for writing; any other error that this cannot be known.
    fn hold(&self, fd: &Self::Fd) -> Sysult<()>;
    /// Whether a lease of [`Sys::hold`] is there still, and nobody waits for it.
    fn is_leased(&self, fd: &Self::Fd) -> bool;
    /// Gives the lease back.
    fn unlease(&self, fd: &Self::Fd);
    /// Writes at the end that the file has at that moment, in one step; how many bytes went. `EOPNOTSUPP` where the kernel
    /// cannot.
    fn append(&self, fd: &Self::Fd, data: &[u8]) -> Sysult<usize>;

    /// What directories can be watched with: `ENOSYS` on machines that cannot, such as simulated ones.
    fn watches(&self) -> Sysult<Self::Fd> {
        Err(Errno::NOSYS)
    }
    /// How many directories all programs of the account may watch.
    fn watches_max(&self) -> usize {
        0
    }
    /// Watches a directory from now on; the same number each time for the same directory.
    fn watch(&self, watches: &Self::Fd, dir: &Self::Fd) -> Sysult<i32> {
        let _ = (watches, dir);
        Err(Errno::NOSYS)
    }
    /// Ends a watch.
    fn unwatch(&self, watches: &Self::Fd, watch: i32) {
        let _ = (watches, watch);
    }
    /// Waits until something has happened in watched directories, at most `wait`. Whether something was mounted or unmounted
    /// somewhere since it was asked last.
    fn stirs(&self, watches: &Self::Fd, wait: Option<std::time::Duration>) -> Sysult<bool> {
        let _ = (watches, wait);
        Err(Errno::NOSYS)
    }
    /// What has happened in watched directories, in its order.
    fn happened(&self, watches: &Self::Fd) -> Sysult<Vec<(i32, Happened)>> {
        let _ = watches;
        Err(Errno::NOSYS)
    }
    /// The watches, for another process.
    fn lend(&self, watches: &Self::Fd) -> Sysult<OwnedFd> {
        let _ = watches;
        Err(Errno::NOSYS)
    }
    /// Watches that come from another process. What is mounted from now on is told.
    fn adopt(&self, watches: OwnedFd) -> Sysult<Self::Fd> {
        let _ = watches;
        Err(Errno::NOSYS)
    }
}
