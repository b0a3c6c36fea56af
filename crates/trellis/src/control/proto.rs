//! The messages of the control protocol.
//!
//! Objects are named by the numbers that the engine gave them, so that a file that is renamed while it is
//! copied stays the same file.

use super::prefetch::PrefetchReport;
use super::report::{ConflictReport, HomeReport, ParkedReport, StatusReport, UnsentReport};
use crate::limits;
use home::ErrorKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;
use std::time::Duration;

/// Both ends are one binary; a server of another version is told apart by this number.
pub const PROTOCOL: u32 = 2;

/// What stands around each message: one line of JSON, then `payload` raw bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// [`PROTOCOL`] of the sender.
    pub protocol: u32,
    /// Number of raw bytes that follow the line.
    pub payload: usize,
    /// The message.
    pub body: T,
}

/// What a command asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// How the server and its homes are: [`Reply::Status`].
    Status,
    /// Waits until what was acknowledged before is durable at its home: [`Reply::Done`] or [`Reply::Unsent`].
    Sync {
        /// Only the home that this path belongs to.
        path: Option<Raw>,
        /// Longest wait in seconds.
        timeout_s: f64,
    },
    /// Sends what homes refused once more, now: [`Reply::Count`].
    Retry(
        /// Only the home that this path belongs to.
        Option<Raw>,
    ),
    /// Gives up changes that a home refused, and what means nothing without them: [`Reply::Refused`] with all of it.
    Discard {
        /// The home, or a path of it.
        path: Raw,
        /// The changes; all if absent.
        numbers: Option<Vec<u64>>,
    },
    /// Objects whose changes wait because their home refused one: [`Reply::Held`].
    Held {
        /// The home, or a path of it.
        path: Raw,
        /// Where to go on; 0 to begin.
        after: u64,
    },
    /// Conflicts that nobody has settled: [`Reply::Conflicts`].
    Conflicts(
        /// Only the home that this path belongs to.
        Option<Raw>,
    ),
    /// Settles a conflict: [`Reply::Settled`].
    Settle {
        /// The copy, or what it is a copy of where there is one copy.
        path: Raw,
        /// Which side is kept.
        keep: Keep,
    },
    /// Gives a home as a whole another mode until the server ends: [`Reply::Done`].
    Mode {
        /// The home, or a path of it.
        path: Raw,
        /// Its name.
        mode: String,
    },
    /// Begins to bring what these paths lead to into the cache, or adds it to what this connection has begun: [`Reply::Done`].
    /// It ends with the connection.
    Prefetch {
        /// The paths.
        paths: Vec<Raw>,
        /// Names and attributes, no content.
        names_only: bool,
    },
    /// How far that is, soon, or when it is over: [`Reply::Prefetched`].
    Prefetched,
    /// Ends the server; answered when nothing is accepted any more: [`Reply::Unsent`].
    Stop {
        /// How long unsent changes may go home before that, in seconds.
        drain_s: f64,
    },
    /// Carries the FUSE messages of a mount on another machine: [`Reply::Attached`], after which the connection speaks
    /// frames ([`crate::attach::line`]) and no messages of this protocol.
    Attach {
        /// The session: 32 hexadecimal digits.
        session: String,
        /// How many messages of it the other machine has had.
        received: u64,
        /// User and group there of whoever mounted.
        owner: (u32, u32),
    },
    /// Mounts the tree by FUSE: [`Reply::Mounted`].
    Mount {
        /// The directory, an absolute path.
        dir: Raw,
        /// Whether it is made if it does not exist.
        make: bool,
    },
    /// Takes a FUSE mount away: [`Reply::Unmounted`].
    Umount {
        /// The directory; the only mount if absent.
        dir: Option<Raw>,
        /// At once, even if somebody uses it.
        lazy: bool,
    },
    /// Names of the root directory that are always there: [`Reply::Names`].
    Names,
    /// How the server reaches the account that a name stands for: [`Reply::Way`].
    Way(String),
    /// Somebody has logged in to the account that a name stands for: connects at once, whatever was refused before:
    /// [`Reply::Done`], or why not.
    LoggedIn(String),
    /// Who answers at a suspended home: [`Reply::Stranger`]. With the token of that answer it is the account that it was from
    /// now on: [`Reply::Done`].
    SameAccount {
        /// A name of the home.
        home: String,
        /// That the account with this token is meant.
        token: Option<[u8; 16]>,
    },
    /// The object at a path from the root; symbolic links are not followed: [`Reply::Object`].
    Resolve(Raw),
    /// The object of that name in a directory: [`Reply::Object`].
    Lookup(Entry),
    /// A part of a directory: [`Reply::Page`].
    List {
        /// The directory.
        dir: Id,
        /// The cookie of the last entry seen; 0 to begin.
        after: u64,
    },
    /// Where a symbolic link points: [`Reply::Target`].
    Readlink(Id),
    /// Bytes of a file: [`Reply::Data`], which carries them as payload.
    Read {
        /// The file.
        file: Id,
        /// Offset.
        at: u64,
        /// Most bytes.
        len: u32,
    },
    /// Makes a file, or empties the one that is there: [`Reply::Object`].
    Create {
        /// Where.
        entry: Entry,
        /// Permission bits of a new file.
        mode: u32,
        /// A name that is taken is an error.
        new: bool,
    },
    /// Makes a directory: [`Reply::Object`].
    Mkdir {
        /// Where.
        entry: Entry,
        /// Permission bits.
        mode: u32,
    },
    /// Makes a symbolic link: [`Reply::Object`].
    Symlink {
        /// Where.
        entry: Entry,
        /// Where it points.
        target: Raw,
    },
    /// Writes the payload: [`Reply::Done`].
    Write {
        /// The file.
        file: Id,
        /// Offset.
        at: u64,
    },
    /// Sets attributes: [`Reply::Done`].
    Set {
        /// The object.
        object: Id,
        /// What to set.
        set: Set,
    },
    /// Removes a name: [`Reply::Done`].
    Remove {
        /// The name.
        entry: Entry,
        /// Whether it is a directory, which must be empty.
        is_dir: bool,
    },
    /// Moves a name, replacing what the new name stands for: [`Reply::Done`].
    Rename {
        /// The old name.
        from: Entry,
        /// The new name.
        to: Entry,
    },
    /// Gives an object a further name: [`Reply::Done`].
    Link {
        /// The object.
        object: Id,
        /// The name, which must be free.
        entry: Entry,
    },
    /// Space of the file system of an object: [`Reply::Space`].
    StatFs(Id),
    /// Waits until everything acknowledged before is durable at the home of an object: [`Reply::Done`] or
    /// [`Reply::Unsent`].
    SyncHome {
        /// The object.
        object: Id,
        /// Longest wait in seconds.
        timeout_s: f64,
    },
}

impl Request {
    /// Longest wait for the answer; `None` where it may wait for a home.
    pub fn patience(&self) -> Option<Duration> {
        match self {
            Request::Names => Some(limits::CONTROL_ANSWER),
            Request::Status | Request::Umount { .. } => Some(limits::CONTROL_WORK),
            _ => None,
        }
    }
}

/// Attributes to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Set {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: Option<When>,
    /// Time of the last change of content.
    pub mtime: Option<When>,
    /// Makes what was written stable, after that.
    pub commit: bool,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// The clock of whoever sets it.
    Now,
    /// Seconds and nanoseconds since 1970.
    At(i64, u32),
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Done.
    Done,
    /// The server and its homes.
    Status(Box<StatusReport>),
    /// What is not at its home yet.
    Unsent(Vec<UnsentReport>),
    /// How many.
    Count(u64),
    /// Changes that a home refused.
    Refused(Vec<ParkedReport>),
    /// How far a prefetch is.
    Prefetched(Box<PrefetchReport>),
    /// Conflicts that nobody has settled.
    Conflicts(Vec<ConflictReport>),
    /// A conflict is settled.
    Settled(Settled),
    /// Objects with changes that wait for a decision.
    Held {
        /// Their paths from the root of the home. One may be told twice.
        objects: Vec<(Raw, Object)>,
        /// Where to go on; `None` at the end.
        next: Option<u64>,
    },
    /// The tree is mounted.
    Mounted {
        /// Where, without symbolic links.
        dir: Raw,
        /// It was mounted before.
        before: bool,
        /// A dead mount was taken away first.
        recovered: bool,
    },
    /// A mount was taken away.
    Unmounted(Raw),
    /// Names of the root directory.
    Names(Vec<Raw>),
    /// How an account is reached.
    Way(LoginWay),
    /// Nobody knows whether it is the account that it was.
    Stranger {
        /// Its token.
        token: [u8; 16],
        /// The home.
        home: Box<HomeReport>,
        /// What is the same and what differs, a line each.
        compared: Vec<String>,
    },
    /// An object.
    Object(Object),
    /// The connection carries a session from now on.
    Attached {
        /// How many messages the server has had in it.
        received: u64,
        /// The session began now.
        fresh: bool,
    },
    /// A part of a directory, without `.` and `..`.
    Page(Page),
    /// Where a symbolic link points.
    Target(Raw),
    /// The payload holds bytes of the file.
    Data {
        /// Whether the file ends with them.
        eof: bool,
    },
    /// Space of a file system.
    Space(Space),
    /// It did not happen.
    Failed {
        /// The reason.
        #[serde(with = "kind")]
        kind: ErrorKind,
        /// What and why, for a person; chosen in part by other machines.
        detail: String,
    },
}

/// Which side of a conflict is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// What was changed here gets its name again.
    Mine,
    /// What the home has.
    Theirs,
    /// Both; the copy gets this name, or a free one.
    Both(Option<Raw>),
}

/// What became of a conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// What was changed here is at this path.
    Mine(Raw),
    /// Only one side is left, under its name.
    One,
    /// What was stopped is given up; what the home has stays.
    Theirs,
    /// What was stopped is a removal, and goes home.
    Removed,
    /// What was stopped has this path, beside what the home has.
    Both(Raw),
}

/// How the server reaches an account by ssh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginWay {
    /// The user, if the name or the configuration gives one.
    pub user: Option<String>,
    /// The host or alias.
    pub host: String,
    /// Configuration for `ssh -F`, if not the user's own.
    pub ssh_config: Option<PathBuf>,
    /// Where the sockets of our masters are.
    pub masters: Option<PathBuf>,
}

/// An object by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Id {
    /// The volume.
    pub volume: u32,
    /// Its number there.
    pub id: u64,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The directory.
    pub dir: Id,
    /// The name.
    pub name: Raw,
}

/// An object with its attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its number.
    pub id: Id,
    /// Its attributes.
    pub attr: Attr,
}

/// Attributes for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attr {
    /// First letter of a line of `ls -l`: `-`, `d`, `l`, `p`, `s`.
    pub kind: char,
    /// Permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Allocated bytes.
    pub used: u64,
    /// Number of the object in its file system.
    pub fileid: u64,
    /// Last access.
    pub atime: (i64, u32),
    /// Last change of content.
    pub mtime: (i64, u32),
    /// Last change of content or attributes.
    pub ctime: (i64, u32),
}

/// Space of a file system; bytes and numbers of inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Size in bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes for the account.
    pub available: u64,
    /// Number of inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
}

/// A part of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Names, with attributes where they could be had.
    pub entries: Vec<(Raw, Option<Object>)>,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

/// Bytes that are usually text: a string where they are UTF-8, else a list of numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Raw(pub Vec<u8>);

impl From<&[u8]> for Raw {
    fn from(bytes: &[u8]) -> Raw {
        Raw(bytes.to_vec())
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => to.collect_seq(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Raw, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Bytes(Vec<u8>),
        }
        Ok(Raw(match Form::deserialize(from)? {
            Form::Text(text) => text.into_bytes(),
            Form::Bytes(bytes) => bytes,
        }))
    }
}

impl Attr {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == 'd'
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == 'l'
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == '-'
    }
}

impl From<home::StatFs> for Space {
    fn from(s: home::StatFs) -> Space {
        let home::StatFs { total, free, available, files, files_free } = s;
        Space { total, free, available, files, files_free }
    }
}

/// The letter that ls(1) shows for a type.
pub fn letter(kind: home::Kind) -> char {
    match kind {
        home::Kind::File => '-',
        home::Kind::Dir => 'd',
        home::Kind::Symlink => 'l',
        home::Kind::Fifo => 'p',
        home::Kind::Socket => 's',
    }
}

/// Reasons travel by their XDR number.
mod kind {
    use home::ErrorKind;
    use oncrpc::xdr::Xdr;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(kind: &ErrorKind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i32(*kind as i32)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ErrorKind, D::Error> {
        let number = i32::deserialize(from)?;
        let bytes = bytes::Bytes::copy_from_slice(&number.to_be_bytes());
        ErrorKind::from_bytes(bytes).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_json() {
        for bytes in [&b"plain"[..], b"\xff\x00\n", "ä\"\\".as_bytes(), b""] {
            let text = serde_json::to_string(&Raw(bytes.to_vec())).unwrap();
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(serde_json::from_str::<Raw>(&text).unwrap(), Raw(bytes.to_vec()));
        }
    }

    #[test]
    fn reasons_keep_their_kind() {
        let reply = Reply::Failed { kind: ErrorKind::NotEmpty, detail: "x".into() };
        let text = serde_json::to_string(&reply).unwrap();
        assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), reply);
        assert!(serde_json::from_str::<Reply>(r#"{"failed":{"kind":999,"detail":""}}"#).is_err());
    }
}
