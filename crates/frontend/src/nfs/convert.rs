//! The engine's words and NFS version 3's, both ways.

use home::{SetTime, Time};
use oncrpc::nfs3::{
    ACCESS3_DELETE, ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ, Fattr3,
    Ftype3, NfsStat3, NfsTime3, Sattr3, SetTime3, Specdata3, StableHow, WccAttr, WccData,
};
use vfs::{AccessMask, Before, ErrorKind, FileAttr, Kind, SetAttrs, Stability, Wcc};

/// Permission bits with set-id and sticky bits.
const MODE_BITS: u32 = 0o7777;

/// The one place that says which status an error has (RFC 1813 §2.6). Version 3 has no words for some:
/// a host that does not answer is an I/O error, one that refuses us denies permission, and one that
/// does not exist is a name that does not.
pub fn status(kind: ErrorKind) -> NfsStat3 {
    match kind {
        ErrorKind::NotFound | ErrorKind::UnknownHost | ErrorKind::NameServer => NfsStat3::NoEnt,
        ErrorKind::Exists => NfsStat3::Exist,
        ErrorKind::NotDir => NfsStat3::NotDir,
        ErrorKind::IsDir => NfsStat3::IsDir,
        ErrorKind::NotEmpty => NfsStat3::NotEmpty,
        ErrorKind::Access | ErrorKind::Login | ErrorKind::Setup | ErrorKind::TextBusy => NfsStat3::Acces,
        ErrorKind::Perm => NfsStat3::Perm,
        ErrorKind::Stale => NfsStat3::Stale,
        ErrorKind::NameTooLong => NfsStat3::NameTooLong,
        ErrorKind::Invalid | ErrorKind::Loop => NfsStat3::Inval,
        ErrorKind::NoSpace => NfsStat3::NoSpc,
        ErrorKind::Quota => NfsStat3::Dquot,
        ErrorKind::ReadOnly => NfsStat3::Rofs,
        ErrorKind::TooBig => NfsStat3::Fbig,
        ErrorKind::CrossDevice => NfsStat3::Xdev,
        ErrorKind::TooManyLinks => NfsStat3::Mlink,
        ErrorKind::Unsupported => NfsStat3::NotSupp,
        ErrorKind::Io | ErrorKind::Unreachable | ErrorKind::Damaged | ErrorKind::Superseded => NfsStat3::Io,
        ErrorKind::Busy | ErrorKind::Full => NfsStat3::Jukebox,
        // Version 3 has neither locks nor extended attributes, so nothing in it leads to these.
        ErrorKind::NotStaged
        | ErrorKind::NotClaimed
        | ErrorKind::Locked
        | ErrorKind::Deadlock
        | ErrorKind::NoLocks
        | ErrorKind::NoAttribute => NfsStat3::ServerFault,
        ErrorKind::NotSync => NfsStat3::NotSync,
    }
}

/// A time on the wire: 32 bits of seconds from 1970 on. What lies outside becomes the nearest that fits.
pub fn time(t: Time) -> NfsTime3 {
    match u32::try_from(t.sec) {
        Ok(seconds) => NfsTime3 { seconds, nseconds: t.nsec },
        Err(_) if t.sec < 0 => NfsTime3 { seconds: 0, nseconds: 0 },
        Err(_) => NfsTime3 { seconds: u32::MAX, nseconds: 999_999_999 },
    }
}

/// A time from the wire; `Invalid` where the nanoseconds are a second or more.
pub fn time_from(t: NfsTime3) -> vfs::Result<Time> {
    if t.nseconds >= 1_000_000_000 {
        return Err(ErrorKind::Invalid.into());
    }
    Ok(Time { sec: i64::from(t.seconds), nsec: t.nseconds })
}

/// Attributes on the wire.
pub fn attr(a: &FileAttr) -> Fattr3 {
    debug_assert_ne!(a.fileid, 0, "a fileid of 0 makes clients fail");
    Fattr3 {
        ftype: match a.kind {
            Kind::File => Ftype3::Reg,
            Kind::Dir => Ftype3::Dir,
            Kind::Symlink => Ftype3::Lnk,
            Kind::Fifo => Ftype3::Fifo,
            Kind::Socket => Ftype3::Sock,
        },
        mode: a.mode & MODE_BITS,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        size: a.size,
        used: a.used,
        rdev: Specdata3::default(),
        fsid: a.fsid,
        fileid: a.fileid,
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
    }
}

/// Attributes around a change.
pub fn wcc(w: &Wcc) -> WccData {
    let before = |b: &Before| WccAttr { size: b.size, mtime: time(b.mtime), ctime: time(b.ctime) };
    WccData { before: w.before.as_ref().map(before), after: w.after.as_ref().map(attr) }
}

/// Attributes to set; `Invalid` where a time makes no sense.
pub fn set_attrs(s: &Sattr3) -> vfs::Result<SetAttrs> {
    Ok(SetAttrs {
        mode: s.mode.map(|m| m & MODE_BITS),
        uid: s.uid,
        gid: s.gid,
        size: s.size,
        atime: set_time(s.atime)?,
        mtime: set_time(s.mtime)?,
    })
}

fn set_time(t: SetTime3) -> vfs::Result<Option<SetTime>> {
    Ok(match t {
        SetTime3::DontChange => None,
        SetTime3::SetToServerTime => Some(SetTime::Now),
        SetTime3::SetToClientTime(t) => Some(SetTime::At(time_from(t)?)),
    })
}

/// The bits of ACCESS as a question; unknown ones are not asked and so never granted.
pub fn access_mask(bits: u32) -> AccessMask {
    let has = |bit| bits & bit != 0;
    AccessMask {
        read: has(ACCESS3_READ),
        lookup: has(ACCESS3_LOOKUP),
        modify: has(ACCESS3_MODIFY),
        extend: has(ACCESS3_EXTEND),
        delete: has(ACCESS3_DELETE),
        execute: has(ACCESS3_EXECUTE),
    }
}

/// An answer as the bits of ACCESS.
pub fn access_bits(mask: AccessMask) -> u32 {
    let bits = [
        (mask.read, ACCESS3_READ),
        (mask.lookup, ACCESS3_LOOKUP),
        (mask.modify, ACCESS3_MODIFY),
        (mask.extend, ACCESS3_EXTEND),
        (mask.delete, ACCESS3_DELETE),
        (mask.execute, ACCESS3_EXECUTE),
    ];
    bits.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum()
}

/// What a write asks for.
pub fn stability(how: StableHow) -> Stability {
    match how {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync | StableHow::FileSync => Stability::Stable,
    }
}

/// What a write got.
pub fn committed(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::Stable => StableHow::FileSync,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1813 §2.6 by number, so that a wrong name in the table above shows.
    const STATUSES: [(ErrorKind, u32); 36] = [
        (ErrorKind::NotFound, 2),
        (ErrorKind::Exists, 17),
        (ErrorKind::NotDir, 20),
        (ErrorKind::IsDir, 21),
        (ErrorKind::NotEmpty, 66),
        (ErrorKind::Access, 13),
        (ErrorKind::Perm, 1),
        (ErrorKind::Stale, 70),
        (ErrorKind::NameTooLong, 63),
        (ErrorKind::Invalid, 22),
        (ErrorKind::NoSpace, 28),
        (ErrorKind::Quota, 69),
        (ErrorKind::ReadOnly, 30),
        (ErrorKind::TooBig, 27),
        (ErrorKind::Loop, 22),
        (ErrorKind::CrossDevice, 18),
        (ErrorKind::TooManyLinks, 31),
        (ErrorKind::Unsupported, 10004),
        (ErrorKind::Io, 5),
        (ErrorKind::Busy, 10008),
        (ErrorKind::Unreachable, 5),
        (ErrorKind::Login, 13),
        (ErrorKind::UnknownHost, 2),
        (ErrorKind::NotStaged, 10006),
        (ErrorKind::NotSync, 10002),
        (ErrorKind::TextBusy, 13),
        (ErrorKind::Locked, 10006),
        (ErrorKind::Deadlock, 10006),
        (ErrorKind::NoLocks, 10006),
        (ErrorKind::NoAttribute, 10006),
        (ErrorKind::NotClaimed, 10006),
        (ErrorKind::Full, 10008),
        (ErrorKind::Setup, 13),
        (ErrorKind::NameServer, 2),
        (ErrorKind::Damaged, 5),
        (ErrorKind::Superseded, 5),
    ];

    #[test]
    fn every_error_has_its_status() {
        use oncrpc::xdr::Xdr;
        for (at, (kind, number)) in STATUSES.into_iter().enumerate() {
            assert_eq!(status(kind) as u32, number, "{kind:?}");
            // The table lists every kind: their numbers on the wire are 1 to 35 in this order.
            assert_eq!(u32::from_bytes(kind.to_bytes()).unwrap() as usize, at + 1);
        }
        let next = (STATUSES.len() as u32 + 1).to_bytes();
        assert!(ErrorKind::from_bytes(next).is_err(), "a kind is missing in the table");
    }

    #[test]
    fn times_outside_of_the_wire_are_clamped() {
        let at = |sec, nsec| time(Time { sec, nsec });
        assert_eq!(at(-1, 999_999_999), NfsTime3 { seconds: 0, nseconds: 0 });
        assert_eq!(at(0, 7), NfsTime3 { seconds: 0, nseconds: 7 });
        assert_eq!(at(4_294_967_295, 7), NfsTime3 { seconds: u32::MAX, nseconds: 7 });
        assert_eq!(at(4_294_967_296, 7), NfsTime3 { seconds: u32::MAX, nseconds: 999_999_999 });
        assert!(time_from(NfsTime3 { seconds: 1, nseconds: 1_000_000_000 }).is_err());
        assert_eq!(time_from(NfsTime3 { seconds: 1, nseconds: 2 }).unwrap(), Time { sec: 1, nsec: 2 });
    }

    #[test]
    fn access_bits_go_both_ways() {
        for bits in 0..64 {
            assert_eq!(access_bits(access_mask(bits)), bits);
        }
        assert_eq!(access_bits(access_mask(u32::MAX)), 0x3f);
    }

    #[test]
    fn attributes_keep_every_field_in_its_place() {
        let t = |sec| Time { sec, nsec: 1 };
        let a = FileAttr {
            kind: Kind::Fifo,
            mode: 0o170_4755,
            nlink: 2,
            uid: 3,
            gid: 4,
            size: 5,
            used: 6,
            fsid: 7,
            fileid: 8,
            atime: t(9),
            mtime: t(10),
            ctime: t(11),
        };
        let w = attr(&a);
        assert_eq!((w.ftype, w.mode, w.nlink, w.uid, w.gid), (Ftype3::Fifo, 0o4755, 2, 3, 4));
        assert_eq!((w.size, w.used, w.fsid, w.fileid), (5, 6, 7, 8));
        assert_eq!((w.atime, w.mtime, w.ctime), (time(t(9)), time(t(10)), time(t(11))));
        let before = Before { size: 1, mtime: t(2), ctime: t(3) };
        let both = wcc(&Wcc { before: Some(before), after: Some(a) });
        assert_eq!(both.after, Some(w));
        assert_eq!(both.before, Some(WccAttr { size: 1, mtime: time(t(2)), ctime: time(t(3)) }));
        assert_eq!(wcc(&Wcc::default()), WccData::default());
    }

    #[test]
    fn only_what_is_given_is_set() {
        assert_eq!(set_attrs(&Sattr3::default()).unwrap(), SetAttrs::default());
        let s = Sattr3 {
            mode: Some(0o10_0644),
            size: Some(1),
            atime: SetTime3::SetToServerTime,
            mtime: SetTime3::SetToClientTime(NfsTime3 { seconds: 5, nseconds: 6 }),
            ..Sattr3::default()
        };
        let set = set_attrs(&s).unwrap();
        assert_eq!((set.mode, set.uid, set.gid, set.size), (Some(0o644), None, None, Some(1)));
        assert_eq!(set.atime, Some(SetTime::Now));
        assert_eq!(set.mtime, Some(SetTime::At(Time { sec: 5, nsec: 6 })));
        let bad = SetTime3::SetToClientTime(NfsTime3 { seconds: 5, nseconds: u32::MAX });
        assert!(set_attrs(&Sattr3 { atime: bad, ..s }).is_err());
    }
}
