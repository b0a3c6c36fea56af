//! A change as a value. The same value is journalled, laid over the caches and applied at the home.
//!
//! An [`Op`] is generic over how it refers to objects (`R`: object ids in the journal, [`Loc`] on the
//! way home) and to bytes (`D`: stored extents in the journal, [`Payload`] on the way home).

use crate::attr::{Attr, Kind, Time, Version};
use crate::limits::XATTR_VALUE_MAX;
use crate::name::Name;
use crate::xattr::{XattrHow, XattrName};
use crate::{ErrorKind, HomePath, Loc};
use bytes::Bytes;
use oncrpc::xdr::{Reader, Writer, Xdr, XdrError};

oncrpc::xdr! {
    /// Names one operation for ever.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct OpId {
        /// The state directory that the operation was journalled in: random.
        pub gateway: u64,
        /// The volume in it.
        pub volume: u32,
        /// Its place in the volume's journal; increases.
        pub seq: u64,
    }

    /// What a new object is.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub union New {
        /// An empty regular file.
        File = 1,
        /// A directory.
        Dir = 2,
        /// A symbolic link and where it points.
        Symlink(Bytes) = 3,
        /// A named pipe.
        Fifo = 4,
        /// A local socket.
        Socket = 5,
    }

    /// A time to set.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub union SetTime {
        /// The clock of whoever executes the operation.
        Now = 0,
        /// Exactly this.
        At(Time) = 1,
    }

    /// Attributes to set; the size is changed by [`Piece::Truncate`]. Owner and group are home-native.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SetAttr {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Access time.
        pub atime: Option<SetTime>,
        /// Modification time.
        pub mtime: Option<SetTime>,
    }

    /// Bytes on their way home.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub union Payload {
        /// In the message itself.
        Inline(Bytes) = 0,
        /// Handed over before by `stage`.
        Staged(Staged) = 1,
        /// The same, and held on disk: see [`crate::Home::spool`].
        Spooled(Spooled) = 2,
    }

    /// A range of staged data.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Staged {
        /// The id that `stage` was called with.
        pub op: OpId,
        /// Offset in the staged data.
        pub at: u64,
        /// Length in bytes.
        pub len: u64,
    }

    /// A range of staged data that is used only where it is what was sent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Spooled {
        /// The range.
        pub range: Staged,
        /// BLAKE3 of its bytes.
        pub hash: [u8; 32],
    }

    /// What became of an operation.
    #[derive(Debug, Clone, PartialEq)]
    pub union Outcome {
        /// It is done, or was already, and durable.
        Done(Done) = 0,
        /// The base version is not what the home has. Nothing was changed; this is what is there, if anything.
        Conflict(Option<Attr>) = 1,
        /// The home does not do it. Nothing was changed.
        Refused(ErrorKind) = 2,
    }

    /// What an operation left behind.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Done {
        /// The object; `None` when its last name is gone.
        pub attr: Option<Attr>,
        /// The directories that were changed, in the order in which the operation names them. Where an agent left the content of
        /// a file as it was, then that file as [`Done::since`] says.
        pub dirs: Vec<Attr>,
    }
}

impl Done {
    /// The ctime of its file since when nobody but operations of ours has moved that; `None` where the home does not say so, or
    /// the content was written.
    pub fn since(&self) -> Option<Time> {
        let attr = self.attr.filter(|attr| attr.kind == Kind::File)?;
        self.dirs.last().filter(|last| last.id == attr.id).map(|last| last.ctime)
    }
}

/// A change to a tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Op<R, D> {
    /// Makes a new object under a name that must be free.
    Create {
        /// Directory.
        dir: R,
        /// Free name.
        name: Name,
        /// What to make.
        new: New,
        /// Permission bits, not subject to a umask.
        mode: u32,
    },
    /// Changes the content of a file.
    Write {
        /// The file.
        file: R,
        /// The content that the change was made to; `None`: what an earlier operation of ours left, or whatever is there.
        base: Option<Version>,
        /// Applied in order.
        pieces: Vec<Piece<D>>,
    },
    /// Changes attributes.
    SetAttr {
        /// The object.
        object: R,
        /// The content that it was seen to have; `None`: what an earlier operation of ours left, or whatever is there.
        /// Another content keeps its own modification time, by which others tell that it is another one.
        base: Option<Version>,
        /// What to set.
        set: SetAttr,
    },
    /// Removes a name.
    Remove {
        /// Directory.
        dir: R,
        /// The name.
        name: Name,
        /// What the name stands for.
        object: R,
        /// Whether it is a directory, which must be empty.
        is_dir: bool,
        /// The content that may be removed; `None`: what an earlier operation of ours left, or whatever is there.
        base: Option<Version>,
    },
    /// Moves a name, replacing what the new name stands for.
    Rename {
        /// Old directory.
        from: R,
        /// Old name.
        name: Name,
        /// What moves.
        object: R,
        /// New directory.
        to: R,
        /// New name.
        new_name: Name,
        /// What the new name stands for, and its content that may be lost; `None`: the name must be free.
        replaced: Option<(R, Option<Version>)>,
    },
    /// Gives an object a further name, which must be free.
    Link {
        /// The object.
        object: R,
        /// Directory.
        dir: R,
        /// Free name.
        name: Name,
    },
    /// Sets or removes one extended attribute of a file or directory.
    SetXattr {
        /// The object.
        object: R,
        /// The attribute.
        name: XattrName,
        /// Its new value; `None`: it is removed.
        value: Option<Bytes>,
        /// What must be there before; counts for a plain operation alone, others make what is wanted of whatever is
        /// there.
        how: XattrHow,
    },
}

/// A part of a change of content.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece<D> {
    /// Cuts or extends to this size.
    Truncate(u64),
    /// Writes these bytes at this offset.
    Data(u64, D),
}

/// An operation that knows where its objects are at the home.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Its name.
    pub id: OpId,
    /// When it was accepted. If not `plain`, objects and directories get this as modification time.
    pub time: Time,
    /// Do what a local program would (mode `strict`): write in place, the home's own clock, no base versions. Only the
    /// access time of a new object is `time`, which tells it from another one of that name.
    /// Otherwise never overwrite what was not read: exchange, verify, keep both, exact times.
    pub plain: bool,
    /// It may have been executed before, and the answer lost: the wanted state counts as done.
    pub resent: bool,
    /// The change.
    pub op: Op<Loc, Payload>,
}

impl Payload {
    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        match self {
            Payload::Inline(bytes) => bytes.len() as u64,
            Payload::Staged(range) | Payload::Spooled(Spooled { range, .. }) => range.len,
        }
    }
}

impl New {
    /// The type of the object.
    pub fn kind(&self) -> Kind {
        match self {
            New::File => Kind::File,
            New::Dir => Kind::Dir,
            New::Symlink(_) => Kind::Symlink,
            New::Fifo => Kind::Fifo,
            New::Socket => Kind::Socket,
        }
    }
}

impl<R, D> Op<R, D> {
    /// The state in which the operation leaves the content of a file, if it makes or writes one; `attr` is what the
    /// operation answers. Others leave a file's content to whoever wrote it last.
    pub fn leaves(&self, attr: Option<Attr>) -> Option<Attr> {
        let writes = matches!(self, Op::Create { .. } | Op::Write { .. });
        attr.filter(|attr| writes && attr.kind == Kind::File)
    }

    /// The directories that the operation names.
    pub fn dirs(&self) -> impl Iterator<Item = &R> {
        let dirs = match self {
            Op::Create { dir, .. } | Op::Remove { dir, .. } | Op::Link { dir, .. } => [Some(dir), None],
            Op::Rename { from, to, .. } => [Some(from), Some(to)],
            Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. } => [None, None],
        };
        dirs.into_iter().flatten()
    }

    /// What the operation works on, or the first directory that it names.
    pub fn place(&self) -> &R {
        match self {
            Op::Create { dir, .. } | Op::Remove { dir, .. } | Op::Link { dir, .. } => dir,
            Op::Rename { from, .. } => from,
            Op::Write { file: object, .. } | Op::SetAttr { object, .. } | Op::SetXattr { object, .. } => {
                object
            }
        }
    }

    /// The same change with other references.
    pub fn try_map<S, C, E>(
        self,
        mut object: impl FnMut(R) -> Result<S, E>,
        mut data: impl FnMut(D) -> Result<C, E>,
    ) -> Result<Op<S, C>, E> {
        Ok(match self {
            Op::Create { dir, name, new, mode } => Op::Create { dir: object(dir)?, name, new, mode },
            Op::Write { file, base, pieces } => Op::Write {
                file: object(file)?,
                base,
                pieces: pieces
                    .into_iter()
                    .map(|p| match p {
                        Piece::Truncate(size) => Ok(Piece::Truncate(size)),
                        Piece::Data(at, d) => data(d).map(|d| Piece::Data(at, d)),
                    })
                    .collect::<Result<_, E>>()?,
            },
            Op::SetAttr { object: o, base, set } => Op::SetAttr { object: object(o)?, base, set },
            Op::Remove { dir, name, object: o, is_dir, base } => {
                Op::Remove { dir: object(dir)?, name, object: object(o)?, is_dir, base }
            }
            Op::Rename { from, name, object: o, to, new_name, replaced } => Op::Rename {
                from: object(from)?,
                name,
                object: object(o)?,
                to: object(to)?,
                new_name,
                replaced: replaced.map(|(r, v)| object(r).map(|r| (r, v))).transpose()?,
            },
            Op::Link { object: o, dir, name } => Op::Link { object: object(o)?, dir: object(dir)?, name },
            Op::SetXattr { object: o, name, value, how } => {
                Op::SetXattr { object: object(o)?, name, value, how }
            }
        })
    }
}

oncrpc::xdr! {
    /// What a gateway brings to a claim, so that its home tells it from an earlier state of its directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Term {
        /// Words that it has brought before, at most [`TERMS_MAX`](crate::limits::TERMS_MAX): all of the latest, and the last
        /// one of which it knows that the home had it.
        pub known: Vec<[u8; 16]>,
        /// The word of this claim; kept by the gateway before it is sent.
        pub new: [u8; 16],
        /// The first number under which nothing was sent yet.
        pub next: u64,
    }
}

oncrpc::xdr! {
    /// The answer to a claim in a term.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Entered {
        /// Whether the home has the word of the term from now on.
        pub kept: bool,
        /// As of a claim without one.
        pub known: Option<Claimed>,
    }
}

impl Term {
    /// Whether the gateway has brought this word.
    pub fn knows(&self, word: &[u8; 16]) -> bool {
        *word == self.new || self.known.contains(word)
    }
}

/// What the home of a volume knows of the operations of a gateway from the first on whose outcome was lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Those that may have been executed, ascending; what is sent again of them has its first outcome.
    pub begun: Vec<u64>,
    /// Those of which it once had to say that it knows nothing, and that had no outcome but a refusal since, ascending. All
    /// others were not executed.
    pub unknown: Vec<u64>,
    /// Those of the unknown ones that were about to overwrite a file in place, ascending: after a power cut it may
    /// have any part of what it should have, whatever its attributes say.
    pub torn: Vec<u64>,
    /// The last of them that left its names and attributes, with all before it; not that contents are durable. 0 where
    /// that is not known, or, where `ran_on` is, none has.
    pub ran: u64,
    /// The file system on which it is told of all that was done; of what was done on others meanwhile nothing is. `None` where the
    /// home does not say so.
    pub ran_on: Option<u64>,
    /// The machine was restarted since something was begun, or the home has just begun to keep a log: those that were begun are
    /// durable, in the order of their numbers with all before them, and what the others left is to be looked for.
    pub restarted: bool,
    /// When the machine was started again, by its clock, where nobody of this volume has changed anything without a log: what
    /// has a later modification time, not later than its ctime, was written since, and not by what is unknown.
    pub booted: Option<Time>,
}

/// On the wire, that the machine was restarted, and that a number follows: [`crate::agent::verbs::PROGRESS`].
const RESTARTED_AFTER: u32 = 2;
/// That a number follows, the bit, and the time of the machine's start: [`crate::agent::verbs::BOOTS`].
const BOOTED: u32 = 3;
/// That all this follows, and the file system of the number: [`crate::agent::verbs::PLACES`].
const PLACED: u32 = 4;

impl Xdr for Claimed {
    fn encode(&self, w: &mut Writer) {
        self.begun.encode(w);
        self.unknown.encode(w);
        self.torn.encode(w);
        match (self.booted, self.ran_on) {
            (booted, Some(fs)) => {
                w.u32(PLACED);
                self.ran.encode(w);
                self.restarted.encode(w);
                booted.encode(w);
                fs.encode(w);
            }
            (Some(booted), None) => {
                w.u32(BOOTED);
                self.ran.encode(w);
                self.restarted.encode(w);
                booted.encode(w);
            }
            (None, None) if self.restarted && self.ran > 0 => {
                w.u32(RESTARTED_AFTER);
                self.ran.encode(w);
            }
            (None, None) => self.restarted.encode(w),
        }
    }

    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        let (begun, unknown, torn) = (Vec::decode(r)?, Vec::decode(r)?, Vec::decode(r)?);
        let mut claimed = Claimed { begun, unknown, torn, ..Claimed::default() };
        match r.u32()? {
            0 => {}
            1 => claimed.restarted = true,
            RESTARTED_AFTER => (claimed.restarted, claimed.ran) = (true, u64::decode(r)?),
            BOOTED => {
                (claimed.ran, claimed.restarted) = (u64::decode(r)?, bool::decode(r)?);
                claimed.booted = Some(Time::decode(r)?);
            }
            PLACED => {
                (claimed.ran, claimed.restarted) = (u64::decode(r)?, bool::decode(r)?);
                claimed.booted = Option::decode(r)?;
                claimed.ran_on = Some(u64::decode(r)?);
            }
            _ => return Err(XdrError::OutOfRange),
        }
        Ok(claimed)
    }
}

/// On the wire, the kind of [`Op::SetAttr`] with a base: [`crate::agent::verbs::BASES`].
const SET_ATTR_OF: u32 = 8;

impl<D> Op<Loc, D> {
    /// Where the operation leaves its object; of a removal, where that was.
    pub fn leaves_at(&self) -> HomePath {
        match self {
            Op::Create { dir, name, .. } | Op::Link { dir, name, .. } | Op::Remove { dir, name, .. } => {
                dir.path.join(name)
            }
            Op::Rename { to, new_name, .. } => to.path.join(new_name),
            Op::Write { file: at, .. } | Op::SetAttr { object: at, .. } | Op::SetXattr { object: at, .. } => {
                at.path.clone()
            }
        }
    }
}

impl<R: Xdr, D: Xdr> Xdr for Op<R, D> {
    fn encode(&self, w: &mut Writer) {
        match self {
            Op::Create { dir, name, new, mode } => {
                w.u32(1);
                dir.encode(w);
                name.encode(w);
                new.encode(w);
                w.u32(*mode);
            }
            Op::Write { file, base, pieces } => {
                w.u32(2);
                file.encode(w);
                base.encode(w);
                pieces.encode(w);
            }
            Op::SetAttr { object, base, set } => {
                w.u32(if base.is_some() { SET_ATTR_OF } else { 3 });
                object.encode(w);
                base.iter().for_each(|base| base.encode(w));
                set.encode(w);
            }
            Op::Remove { dir, name, object, is_dir, base } => {
                w.u32(4);
                dir.encode(w);
                name.encode(w);
                object.encode(w);
                is_dir.encode(w);
                base.encode(w);
            }
            Op::Rename { from, name, object, to, new_name, replaced } => {
                w.u32(5);
                from.encode(w);
                name.encode(w);
                object.encode(w);
                to.encode(w);
                new_name.encode(w);
                replaced.is_some().encode(w);
                if let Some((r, v)) = replaced {
                    r.encode(w);
                    v.encode(w);
                }
            }
            Op::Link { object, dir, name } => {
                w.u32(6);
                object.encode(w);
                dir.encode(w);
                name.encode(w);
            }
            Op::SetXattr { object, name, value, how } => {
                w.u32(7);
                object.encode(w);
                name.encode(w);
                value.encode(w);
                how.encode(w);
            }
        }
    }

    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        Ok(match r.u32()? {
            1 => Op::Create {
                dir: R::decode(r)?,
                name: Name::decode(r)?,
                new: New::decode(r)?,
                mode: r.u32()?,
            },
            2 => Op::Write { file: R::decode(r)?, base: Option::decode(r)?, pieces: Vec::decode(r)? },
            3 => Op::SetAttr { object: R::decode(r)?, base: None, set: SetAttr::decode(r)? },
            SET_ATTR_OF => Op::SetAttr {
                object: R::decode(r)?,
                base: Some(Version::decode(r)?),
                set: SetAttr::decode(r)?,
            },
            4 => Op::Remove {
                dir: R::decode(r)?,
                name: Name::decode(r)?,
                object: R::decode(r)?,
                is_dir: bool::decode(r)?,
                base: Option::decode(r)?,
            },
            5 => Op::Rename {
                from: R::decode(r)?,
                name: Name::decode(r)?,
                object: R::decode(r)?,
                to: R::decode(r)?,
                new_name: Name::decode(r)?,
                replaced: match bool::decode(r)? {
                    true => Some((R::decode(r)?, Option::decode(r)?)),
                    false => None,
                },
            },
            6 => Op::Link { object: R::decode(r)?, dir: R::decode(r)?, name: Name::decode(r)? },
            7 => Op::SetXattr {
                object: R::decode(r)?,
                name: XattrName::decode(r)?,
                value: match bool::decode(r)? {
                    true => Some(r.opaque(XATTR_VALUE_MAX)?),
                    false => None,
                },
                how: XattrHow::decode(r)?,
            },
            _ => return Err(XdrError::OutOfRange),
        })
    }
}

impl<D: Xdr> Xdr for Piece<D> {
    fn encode(&self, w: &mut Writer) {
        match self {
            Piece::Truncate(size) => {
                w.u32(0);
                w.u64(*size);
            }
            Piece::Data(at, data) => {
                w.u32(1);
                w.u64(*at);
                data.encode(w);
            }
        }
    }
    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        match r.u32()? {
            0 => Ok(Piece::Truncate(r.u64()?)),
            1 => Ok(Piece::Data(r.u64()?, D::decode(r)?)),
            _ => Err(XdrError::OutOfRange),
        }
    }
}

impl Xdr for Placed {
    fn encode(&self, w: &mut Writer) {
        self.id.encode(w);
        self.time.encode(w);
        self.plain.encode(w);
        self.resent.encode(w);
        self.op.encode(w);
    }
    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        Ok(Placed {
            id: OpId::decode(r)?,
            time: Time::decode(r)?,
            plain: bool::decode(r)?,
            resent: bool::decode(r)?,
            op: Op::decode(r)?,
        })
    }
}
