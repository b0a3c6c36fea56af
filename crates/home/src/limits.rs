//! Every bound of this crate in one place: here those of homes on this machine, in [`agent`] those of the link
//! to an agent, in [`remote`] those of connections.

pub mod agent;
#[cfg(feature = "client")]
pub mod remote;

/// Bytes of staged data that a home holds for operations to come; the oldest are forgotten first.
pub const STAGED_BYTES: usize = 64 << 20;
/// Spools that one process adds to at a time.
pub const SPOOLS: usize = 64;
/// Bytes of a spool after which it begins to be written to the disk.
pub const SPOOL_FLUSH: u64 = 8 << 20;
/// Outcomes of executed operations that are kept to answer a repeated one.
pub const OUTCOMES_KEPT: usize = 8192;
/// Operations that may have been executed, of which a home tells when a volume is claimed.
pub const BEGUN_MAX: usize = 2 * OUTCOMES_KEPT;
/// Words of earlier claims that a gateway keeps and brings to the next one. An agent that was left behind comes late with an
/// older one at most if so many others were connected meanwhile.
pub const TERMS_MAX: usize = 128;
/// Length from which the log of a volume at its home is written anew with the outcomes that are kept, in bytes.
pub const LOG_BYTES: u64 = 4 << 20;
/// Bytes that such a log has in reserve for when its disk is full.
pub const LOG_RESERVE: u64 = 64 << 10;
/// Bytes of a file, and of what is to be written to it, that such a log tells before the file is changed in place.
pub const IMAGE_MAX: u64 = 32 << 10;
/// Length of such a log beyond which it is not read any more, in bytes.
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// How often a fence that somebody else has locked is tried, with a pause of [`FENCE_PAUSE`] before each further attempt.
pub const FENCE_ATTEMPTS: u32 = 1000;
/// After so many attempts whoever has it locked is ended.
pub const FENCE_PATIENCE: u32 = 100;
/// The pause.
pub const FENCE_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// How often it is asked whether a file has a writer before that is taken to be one, with the same pause before each further time.
pub const WRITER_ATTEMPTS: u32 = 3;
/// How often a name is made that somebody takes away each time before it is seen.
pub const CREATE_ATTEMPTS: u32 = 8;
/// Files of which the state that we left them in is remembered.
pub const LEFT_KEPT: usize = 8192;
/// Files and directories held open until they are synced together.
pub const BATCH_OPEN: usize = 128;
/// Files that stay open because their mode forbids their owner to open them for reading.
pub const LENT_KEPT: usize = 16;
/// Sorted directories kept for the next page of a listing.
pub const LISTINGS_KEPT: usize = 8;
/// Only directories with at least this many names are kept.
pub const LISTING_KEPT_MIN: usize = 256;
/// Names of one directory that are listed; what is beyond is not shown.
pub const NAMES_MAX: usize = 4_000_000;
/// Entries of one page of a listing.
pub const PAGE_MAX: u32 = 16_384;
/// Most bytes of one read.
pub const READ_MAX: u32 = 1 << 20;
/// Reads of at least this many bytes use a buffer that is kept for the next one.
pub const BUFFER_MIN: usize = 64 << 10;
/// Bytes of such buffers that are kept while nobody uses them.
pub const BUFFERS_KEPT: usize = 16 << 20;
/// Bytes of a symbolic link.
pub const SYMLINK_MAX: usize = 4095;
/// File systems whose identity is remembered.
pub const FILE_SYSTEMS: usize = 256;
/// How long the identity of a file system is remembered, in seconds.
pub const FILE_SYSTEM_SECONDS: i64 = 60;
/// Bytes of one relative path that the kernel takes.
pub const KERNEL_PATH: usize = 4000;
/// Buffer for getdents(2).
pub const GETDENTS_BUFFER: usize = 64 << 10;
/// Buffer for the list, and for one value, of extended attributes: XATTR_LIST_MAX of Linux.
pub const XATTR_BYTES: usize = 64 << 10;
/// Bytes of the name of an extended attribute with its namespace: XATTR_NAME_MAX of Linux.
pub const XATTR_NAME_MAX: usize = 255;
/// Bytes of the value of an extended attribute: XATTR_SIZE_MAX of Linux.
pub const XATTR_VALUE_MAX: usize = 64 << 10;
/// Bytes of values that come with the names of an object's extended attributes; others are asked for one by one.
pub const XATTR_TOGETHER: usize = 64 << 10;
/// Bytes that a killed process has written or not, but no part of them.
pub const PAGE: u64 = 4096;
/// Buffer for copying where the kernel cannot copy by itself.
pub const COPY_BUFFER: usize = 1 << 20;
/// How long a staging directory may be in use, in seconds; an older one was left by a killed process.
pub const STAGING_SECONDS: i64 = 86_400;
/// A file of at least this size is changed in place when the change is less than 1/16 of it and the file
/// system cannot share blocks: copying it would cost more than it protects.
pub const COPY_WHOLE_MAX: u64 = 64 << 20;
