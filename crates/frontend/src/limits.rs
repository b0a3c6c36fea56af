//! Every queue, cache and frame of this crate has its bound here.

use std::time::Duration;

/// Most bytes of one READ or WRITE (`rtmax`, `wtmax`): the Linux client's own maximum.
pub const IO_MAX: u32 = 1 << 20;
/// Multiple that READ and WRITE sizes should have.
pub const IO_MULTIPLE: u32 = 4096;
/// Most bytes of a READDIR or READDIRPLUS reply, whatever the client asks for: the first answer of `ls` should
/// come soon.
pub const DIR_REPLY_MAX: u32 = 64 << 10;
/// Largest offset that a file may reach.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// What PATHCONF says of hard links.
pub const LINK_MAX: u32 = 65_000;
/// What PATHCONF says of names.
pub const NAME_MAX: u32 = 255;

/// Connections at a time; further ones are closed at once.
pub const CONNECTIONS: usize = 1024;

/// Clients (addresses) with a table of repeated calls.
pub const RETRY_CLIENTS: usize = 256;
/// Replies that each client's table keeps even when they are old.
pub const RETRY_ENTRIES: usize = 1024;
/// Replies younger than this are kept beyond [`RETRY_ENTRIES`].
pub const RETRY_AGE: Duration = Duration::from_secs(120);
/// Bytes of one client's table; a reply takes some 400, so this is ten times [`RETRY_ENTRIES`].
pub const RETRY_BYTES: usize = 4 << 20;
/// How many bytes of the arguments tell two calls with one xid apart.
pub const RETRY_ARGS: usize = 256;

/// Mounts that DUMP lists; the oldest are forgotten.
pub const MOUNTS: usize = 1024;

/// Event loops of a FUSE session at most, and at least; the number of processors decides between.
pub const FUSE_THREADS: (usize, usize) = (2, 8);
/// Requests that the kernel may leave unanswered in the background (readahead, asynchronous direct I/O).
pub const FUSE_BACKGROUND: u16 = 64;
/// How long the kernel believes names and attributes without asking, where an answer may be old at all.
pub const FUSE_TTL: Duration = Duration::from_secs(1);
/// How long a call is repeated that the engine is not ready for, before it fails.
pub const FUSE_PATIENCE: Duration = Duration::from_secs(60);
/// Pause between repetitions.
pub const FUSE_PAUSE: Duration = Duration::from_millis(100);
/// How often we look whether the process that waits for an answer is being killed.
pub const FUSE_SIGNALS: Duration = Duration::from_millis(200);
/// How soon after the answer to a look-up the same thread's next request is the rest of the same system call: as soon as
/// it runs again.
pub const FUSE_SAME_CALL: Duration = Duration::from_millis(5);
/// Threads whose last look-up is remembered.
pub const FUSE_CALLERS: usize = 256;
/// Entries of a directory that are taken from the engine at a time.
pub const FUSE_ENTRIES: usize = 256;
/// What `st_blksize` says: what the kernel reads ahead, and what stdio takes as the size of its buffers.
pub const FUSE_BLOCK: u32 = 128 << 10;
/// Most bytes of a list of extended attributes: XATTR_LIST_MAX of Linux.
pub const FUSE_XATTR_LIST: usize = 64 << 10;
/// How long after an answer the kernel may not have taken it in: whoever asked does so when it runs again.
pub const FUSE_TAKEN_IN: Duration = Duration::from_millis(100);
/// How long the kernel is not told of a change of a node whose attributes it asks for, at most: as long as it believes
/// attributes anyhow.
pub const FUSE_LATER: Duration = FUSE_TTL;
/// Nodes of which is known that the kernel asks for them, before it is looked which are over.
pub const FUSE_ASKED: usize = 1024;
/// Changes that wait for that at most; more are told at once.
pub const FUSE_LATER_MAX: usize = 256;
/// Nodes that wait for the kernel to be told that their pages are out of date.
pub const FUSE_STALE: usize = 1024;
