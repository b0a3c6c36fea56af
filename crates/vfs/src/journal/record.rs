//! What a journal record says. The forms are XDR; `docs/JOURNAL.md` has them in bytes.

use bytes::Bytes;
use home::{Attr, ErrorKind, HomeId, Kind, Name, Op, Time, Version};
use std::collections::{HashMap, HashSet};

oncrpc::xdr! {
    /// The content of a record.
    #[derive(Debug, Clone, PartialEq)]
    pub union Body {
        /// A change that the home does not know yet.
        Change(Change) = 1,
        /// What object ids stand for.
        Bind(Vec<Binding>) = 2,
        /// What became of an earlier change.
        Retire(Retire) = 3,
        /// Another form of an earlier change that has no outcome yet: how a conflict is resolved in its place.
        Amend(Amend) = 4,
        /// The number of a change that the home refused once, or that waited for such a one: what came after it may have been
        /// executed before it.
        Late(u64) = 5,
        /// The numbers of changes of which nothing is left when the last of them is done, ascending: none of them was ever
        /// sent, and each counts as done.
        Vanish(Vec<u64>) = 6,
    }

    /// Another form of a change, in its old place.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Amend {
        /// The number of the change's record.
        pub seq: u64,
        /// What it does from now on.
        pub op: Op<u64, Stored>,
    }

    /// A change that was accepted here.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Change {
        /// When it was accepted.
        pub time: Time,
        /// The id of the object acted on or created.
        pub object: u64,
        /// Its attributes after the change, home-native.
        pub after: Option<Attr>,
        /// The change; objects by id, bytes by where they are stored.
        pub op: Op<u64, Stored>,
        /// Names the call, so that a repeated call gets its first answer even after a restart.
        pub retry: Option<[u8; 16]>,
        /// The verifier of an exclusive create (RFC 1813 3.3.8).
        pub verifier: Option<[u8; 8]>,
        /// Made in mode `strict`, or too large to be accepted before the home has it: laid over the caches only when the home has it, but for UNSTABLE writes. Only the
        /// records of those have bytes.
        pub plain: bool,
    }

    /// Where the bytes of a change are.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub union Stored {
        /// In the record; at most [`super::INLINE_MAX`] bytes.
        Inline(Bytes) = 0,
        /// In the data log of the volume.
        Extent(Extent) = 1,
    }

    /// A range of bytes in a data log.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Extent {
        /// Number of the segment.
        pub segment: u64,
        /// Offset of the first byte in the segment.
        pub pos: u64,
        /// Length in bytes.
        pub len: u32,
        /// CRC-32C of the bytes.
        pub crc: u32,
    }

    /// A name in a directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Place {
        /// The id of the directory.
        pub parent: u64,
        /// The name in it.
        pub name: Name,
    }

    /// What an object id stands for.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Binding {
        /// The object id.
        pub object: u64,
        /// The id of a directory that holds it; 0 for none.
        pub parent: u64,
        /// Its name there, at the home.
        pub name: Option<Name>,
        /// What the home knows it by; all zero where it is not known yet or never.
        pub id: HomeId,
        /// Its type.
        pub kind: Kind,
        /// The home's version as of our own last change or look, on which further changes build.
        pub version: Option<Version>,
        /// The fileid that clients see.
        pub fileid: u64,
        /// The last ctime that a client was shown, where it may be ahead of the home's.
        pub ctime_shown: Option<Time>,
        /// The verifier of the exclusive create that made it.
        pub verifier: Option<[u8; 8]>,
        /// Its other names at the home, the newest of those that are known.
        pub more: Vec<Place>,
    }

    /// What became of a change.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Retire {
        /// The number of the change's record.
        pub seq: u64,
        /// What became of it.
        pub how: Fate,
    }

    /// What became of a change.
    #[derive(Debug, Clone, PartialEq)]
    pub union Fate {
        /// The home has it; ids that are known by now.
        Done(Vec<Binding>) = 0,
        /// The home refused it.
        Refused(ErrorKind) = 1,
        /// It was resolved as a conflict; the resolution has its own records.
        Conflict = 2,
        /// A later change made it pointless, or a person discarded it.
        Dropped = 3,
    }
}

impl Body {
    /// The extents in the data log that the record needs until its change retires.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        let op = match self {
            Body::Change(change) => Some(&change.op),
            Body::Amend(amend) => Some(&amend.op),
            Body::Bind(_) | Body::Retire(_) | Body::Late(_) | Body::Vanish(_) => None,
        };
        op.into_iter().flat_map(extents)
    }

    /// The number of the change that the record is or amends; `seq` is its own.
    pub fn change(&self, seq: u64) -> Option<u64> {
        match self {
            Body::Change(_) => Some(seq),
            Body::Amend(amend) => Some(amend.seq),
            Body::Bind(_) | Body::Retire(_) | Body::Late(_) | Body::Vanish(_) => None,
        }
    }
}

impl Change {
    /// Of a record: whether the change was seen before its outcome.
    pub fn is_laid(&self) -> bool {
        let unstable = |p: &home::Piece<Stored>| matches!(p, home::Piece::Data(..));
        !self.plain || matches!(&self.op, Op::Write { pieces, .. } if pieces.iter().any(unstable))
    }

    /// The extents in the data log that the change needs.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        extents(&self.op)
    }
}

fn extents(op: &Op<u64, Stored>) -> impl Iterator<Item = &Extent> {
    let pieces = match op {
        Op::Write { pieces, .. } => &pieces[..],
        _ => &[],
    };
    pieces.iter().filter_map(|p| match p {
        home::Piece::Data(_, Stored::Extent(e)) => Some(e),
        _ => None,
    })
}

/// The numbers of the changes that some record retires.
pub(super) fn retired<'a>(bodies: impl Iterator<Item = &'a Body>) -> HashSet<u64> {
    let of = |body: &'a Body| match body {
        Body::Retire(r) => std::slice::from_ref(&r.seq),
        Body::Vanish(seqs) => seqs,
        _ => &[],
    };
    bodies.flat_map(of).copied().collect()
}

/// The changes that no record retires, each with the record of the form that it has now: its place among the records.
pub(super) fn open_forms(records: &[(u64, Body)]) -> HashMap<u64, usize> {
    let retired = retired(records.iter().map(|(_, body)| body));
    let forms = records.iter().enumerate().filter_map(|(at, (seq, body))| Some((body.change(*seq)?, at)));
    forms.filter(|(change, _)| !retired.contains(change)).collect()
}
