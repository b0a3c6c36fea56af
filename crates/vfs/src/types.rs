//! What a front-end says to the engine and hears from it. No protocol's words are used here.

pub use home::{Error, ErrorKind, HomePath, Kind, Name, Result, SetTime, Time, XattrHow, XattrName};

pub use crate::ops::open::{OpenFile, OpenMode};

use bytes::Bytes;
use std::time::Duration;

/// An object of a volume; never used again for another object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Oid {
    /// Random number of the volume; [`Oid::ROOT_VOLUME`] for the root directory.
    pub volume: u32,
    /// Number of the object in the volume; 1 is the volume's root.
    pub id: u64,
}

impl Oid {
    /// The pseudo-volume that holds nothing but the root directory.
    pub const ROOT_VOLUME: u32 = 0;
    /// The root directory, in which the homes appear.
    pub const ROOT: Oid = Oid { volume: Self::ROOT_VOLUME, id: 1 };
}

/// Who asks, after squashing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cred {
    /// User id on the client.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Names a call for ever, so that a repeated one gets its first answer: a hash over client, transaction and arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RetryKey(pub [u8; 16]);

/// The circumstances of a call.
#[derive(Debug, Clone, Copy)]
pub struct Ctx<'a> {
    /// Who asks.
    pub cred: &'a Cred,
    /// Set where the call may come again and must not be executed twice.
    pub retry: Option<RetryKey>,
    /// Which front-end session asks, so that it can leave out of the stream of changes what it caused itself;
    /// 0: nobody in particular.
    pub origin: u64,
    /// The open file that the call comes through: permission was asked when it was opened.
    pub open: Option<&'a OpenFile>,
    /// The protocol does not tell of opens: whoever looks at a file may be about to open it.
    pub looks_open: bool,
    /// When the program's call began that this is a part of, by [`Vfs::instant`](crate::Vfs::instant), where the
    /// front-end knows it: what the home was asked for since then answers this call. `None`: now.
    pub since: Option<Duration>,
}

impl<'a> Ctx<'a> {
    /// A call of `cred`, of no session and through no open file, that never comes again.
    pub fn of(cred: &'a Cred) -> Ctx<'a> {
        Ctx { cred, retry: None, origin: 0, open: None, looks_open: false, since: None }
    }
}

/// Attributes as a client sees them: owner and group are local numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileAttr {
    /// Type.
    pub kind: Kind,
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
    /// Identifies the home file system.
    pub fsid: u64,
    /// Unique in the fsid, never 0, fixed for the object's life.
    pub fileid: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes; increases with each change made here.
    pub ctime: Time,
}

/// What weak cache consistency compares (RFC 1813 §2.6 `wcc_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// Length in bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
}

/// Attributes around a change, both taken inside its critical section; what is not known is left out, never invented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wcc {
    /// Immediately before.
    pub before: Option<Before>,
    /// Immediately after.
    pub after: Option<FileAttr>,
}

/// A name that was found.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The object.
    pub oid: Oid,
    /// Its attributes.
    pub attr: FileAttr,
    /// The directory's attributes, where known.
    pub dir: Option<FileAttr>,
}

/// A new object, or an existing one that a create call found.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// The object.
    pub oid: Oid,
    /// Its attributes; `None` in the repeated answer of an earlier call whose object has gone since.
    pub attr: Option<FileAttr>,
    /// The directory.
    pub dir: Wcc,
}

/// How a create call treats a name that is taken (RFC 1813 §3.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateHow {
    /// The existing file is used; of the attributes only a size is applied to it.
    Unchecked,
    /// Taken is an error.
    Guarded,
    /// Taken is an error unless it was made with the same verifier.
    Exclusive([u8; 8]),
}

/// How a rename treats a new name that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameHow {
    /// What it stands for is replaced, if the kinds of both objects allow that.
    #[default]
    Replace,
    /// Taken is an error.
    NoReplace,
}

/// Attributes to set. Owner and group are local numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttrs {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

/// What an access check asks about, or grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessMask {
    /// Read a file or list a directory.
    pub read: bool,
    /// Look a name up in a directory.
    pub lookup: bool,
    /// Change existing content or entries.
    pub modify: bool,
    /// Add content or entries.
    pub extend: bool,
    /// Remove an entry of a directory.
    pub delete: bool,
    /// Execute a file.
    pub execute: bool,
}

/// Bytes of a file.
#[derive(Debug, Clone)]
pub struct ReadOk {
    /// The bytes, in order; together short only at the end of the file.
    pub data: Vec<Bytes>,
    /// Whether the end of the file was reached.
    pub eof: bool,
    /// Attributes.
    pub attr: FileAttr,
}

/// When a write may be answered (RFC 1813 §3.3.7 `stable_how`, one step for each promise).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// Appended; a later commit makes it stable.
    Unstable,
    /// Stable.
    Stable,
}

/// Changes exactly when acknowledged unstable writes may have been lost.
pub type Verifier = [u8; 8];

/// A write that was taken.
#[derive(Debug, Clone, Copy)]
pub struct WriteOk {
    /// Bytes taken.
    pub count: u32,
    /// At least what was asked for.
    pub stability: Stability,
    /// To be compared with the one of a commit.
    pub verifier: Verifier,
    /// The file.
    pub wcc: Wcc,
}

/// An append that was taken.
#[derive(Debug, Clone, Copy)]
pub struct AppendOk {
    /// Offset of the first byte: the length of the file when the bytes were taken.
    pub at: u64,
    /// As for a write.
    pub written: WriteOk,
}

/// A commit that was done.
#[derive(Debug, Clone, Copy)]
pub struct CommitOk {
    /// To be compared with those of the writes.
    pub verifier: Verifier,
    /// The file.
    pub wcc: Wcc,
}

/// Both directories of a rename.
#[derive(Debug, Clone, Copy)]
pub struct RenameOk {
    /// Where the name was.
    pub from: Wcc,
    /// Where the name is.
    pub to: Wcc,
}

/// A further name for an object.
#[derive(Debug, Clone, Copy)]
pub struct LinkOk {
    /// The object.
    pub attr: Option<FileAttr>,
    /// The directory.
    pub dir: Wcc,
}

/// One entry of a directory; `.` and `..` are among them.
#[derive(Debug, Clone)]
pub struct DirEntry {
    /// The name; `.` and `..` included.
    pub name: Bytes,
    /// Where a listing goes on after this entry: stable over changes, eviction and restart; below 2^63.
    pub cookie: u64,
    /// The object.
    pub oid: Oid,
    /// Its fileid.
    pub fileid: u64,
    /// Its attributes, where they are known without asking.
    pub attr: Option<FileAttr>,
}

/// A part of a directory.
#[derive(Debug, Clone)]
pub struct DirPage {
    /// Entries in the order of their cookies.
    pub entries: Vec<DirEntry>,
    /// Whether the directory ends here.
    pub eof: bool,
    /// The directory.
    pub dir: FileAttr,
}

/// Space of the file system of an object; bytes and numbers of inodes.
pub type StatFs = home::StatFs;

/// The first answer of a call that comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstReply {
    /// The object that the call acted on or made.
    pub oid: Oid,
}
