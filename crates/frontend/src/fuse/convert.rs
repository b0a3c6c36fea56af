//! The engine's words and the kernel's, both ways.

use crate::limits;
use fuser::{AccessFlags, Errno, FileType, INodeNo, OpenAccMode, OpenFlags, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vfs::{AccessMask, ErrorKind, FileAttr, Kind, OpenMode, SetTime, Time};

/// The object is gone, or the node id is of an earlier session.
pub const ESTALE: Errno = Errno::ESTALE;
/// Set by the kernel in the flags of an open that is for execution (`__FMODE_EXEC`, include/linux/fs.h).
const FMODE_EXEC: i32 = 0x20;

/// The one place that says which number an error has (errno(3)). There is none for a host that does not let us in, so
/// that it denies permission, nor for one that is not known, which is a name that does not exist.
pub fn errno(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NotFound | ErrorKind::UnknownHost | ErrorKind::NameServer => Errno::ENOENT,
        ErrorKind::Exists => Errno::EEXIST,
        ErrorKind::NotDir => Errno::ENOTDIR,
        ErrorKind::IsDir => Errno::EISDIR,
        ErrorKind::NotEmpty => Errno::ENOTEMPTY,
        ErrorKind::Access | ErrorKind::Login | ErrorKind::Setup => Errno::EACCES,
        ErrorKind::Perm => Errno::EPERM,
        ErrorKind::Stale => ESTALE,
        ErrorKind::NameTooLong => Errno::ENAMETOOLONG,
        ErrorKind::Invalid => Errno::EINVAL,
        ErrorKind::NoSpace | ErrorKind::Full => Errno::ENOSPC,
        ErrorKind::Quota => Errno::EDQUOT,
        ErrorKind::ReadOnly => Errno::EROFS,
        ErrorKind::TooBig => Errno::EFBIG,
        ErrorKind::Loop => Errno::ELOOP,
        ErrorKind::CrossDevice => Errno::EXDEV,
        ErrorKind::TooManyLinks => Errno::EMLINK,
        ErrorKind::Unsupported => Errno::EOPNOTSUPP,
        ErrorKind::Io | ErrorKind::Unreachable | ErrorKind::Damaged | ErrorKind::Superseded => Errno::EIO,
        ErrorKind::NotStaged | ErrorKind::NotClaimed => Errno::EIO,
        ErrorKind::Busy => Errno::ETIMEDOUT,
        ErrorKind::NotSync | ErrorKind::Locked => Errno::EAGAIN,
        ErrorKind::Deadlock => Errno::EDEADLK,
        ErrorKind::NoLocks => Errno::ENOLCK,
        ErrorKind::NoAttribute => Errno::NO_XATTR,
        ErrorKind::TextBusy => Errno::ETXTBSY,
    }
}

/// Attributes for the kernel, under the number that the kernel knows the object by: a mount has one device number for
/// all homes, whose own inode numbers may be the same.
pub fn attr(node: u64, a: &FileAttr) -> fuser::FileAttr {
    fuser::FileAttr {
        ino: INodeNo(node),
        size: a.size,
        blocks: a.used.div_ceil(512),
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(a.kind),
        perm: (a.mode & 0o7777) as u16,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: 0,
        blksize: limits::FUSE_BLOCK,
        flags: 0,
    }
}

/// A type for the kernel.
pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

/// A time for the kernel; what no clock can show becomes 1970.
fn time(t: Time) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(t.nsec));
    let whole = Duration::from_secs(t.sec.unsigned_abs());
    let second = if t.sec < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    second.and_then(|s| s.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// A time from the kernel. Of a time before 1970 `fuser` makes `1970 - (|sec| + nsec)`, which is not what it means and
/// is undone here.
pub fn time_from(t: SystemTime) -> Time {
    match t.duration_since(UNIX_EPOCH) {
        Ok(after) => Time { sec: after.as_secs() as i64, nsec: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Time { sec: (before.as_secs() as i64).wrapping_neg(), nsec: before.subsec_nanos() }
        }
    }
}

/// A time to set.
pub fn set_time(t: Option<TimeOrNow>) -> Option<SetTime> {
    t.map(|t| match t {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(t) => SetTime::At(time_from(t)),
    })
}

/// What access(2) asks about an object of this type.
pub fn access_mask(mask: AccessFlags, kind: Kind) -> AccessMask {
    let (dir, execute) = (kind == Kind::Dir, mask.contains(AccessFlags::X_OK));
    let write = mask.contains(AccessFlags::W_OK);
    AccessMask {
        read: mask.contains(AccessFlags::R_OK),
        lookup: dir && execute,
        modify: write,
        extend: write,
        delete: dir && write,
        execute: !dir && execute,
    }
}

/// What an open is for.
pub fn open_mode(flags: OpenFlags) -> OpenMode {
    let exec = flags.0 & FMODE_EXEC != 0;
    let mode = flags.acc_mode();
    OpenMode { read: !exec && mode != OpenAccMode::O_WRONLY, write: mode != OpenAccMode::O_RDONLY, exec }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_sign_and_fraction() {
        let shown = |sec, nsec| time(Time { sec, nsec });
        assert_eq!(shown(1, 5), UNIX_EPOCH + Duration::new(1, 5));
        assert_eq!(shown(-1, 500_000_000), UNIX_EPOCH - Duration::from_millis(500));
        assert_eq!(
            shown(i64::MIN, 0),
            UNIX_EPOCH.checked_sub(Duration::from_secs(1 << 63)).unwrap_or(UNIX_EPOCH)
        );
        assert_eq!(time_from(UNIX_EPOCH + Duration::new(7, 8)), Time { sec: 7, nsec: 8 });
        // What fuser makes of the kernel's pair (-1, 500_000_000).
        assert_eq!(
            time_from(UNIX_EPOCH - Duration::new(1, 500_000_000)),
            Time { sec: -1, nsec: 500_000_000 }
        );
    }

    #[test]
    fn opens_ask_for_what_they_will_do() {
        let mode = |flags| open_mode(OpenFlags(flags));
        let read = OpenMode { read: true, ..OpenMode::default() };
        assert_eq!(mode(libc::O_RDONLY), read);
        assert_eq!(mode(libc::O_RDWR | libc::O_APPEND), OpenMode { write: true, ..read });
        assert_eq!(mode(libc::O_WRONLY), OpenMode { write: true, ..OpenMode::default() });
        assert_eq!(mode(FMODE_EXEC), OpenMode { exec: true, ..OpenMode::default() });
    }

    #[test]
    fn execute_means_search_for_directories() {
        let ask = AccessFlags::X_OK | AccessFlags::W_OK;
        let dir = access_mask(ask, Kind::Dir);
        assert!(dir.lookup && dir.delete && dir.modify && !dir.execute && !dir.read);
        let file = access_mask(ask, Kind::File);
        assert!(file.execute && file.modify && !file.lookup && !file.delete);
        assert_eq!(access_mask(AccessFlags::F_OK, Kind::File), AccessMask::default());
    }

    #[test]
    fn errors_that_programs_look_for() {
        for (kind, number) in [
            (ErrorKind::NotFound, libc::ENOENT),
            (ErrorKind::NotEmpty, libc::ENOTEMPTY),
            (ErrorKind::Stale, libc::ESTALE),
            (ErrorKind::CrossDevice, libc::EXDEV),
            (ErrorKind::Quota, libc::EDQUOT),
            (ErrorKind::TextBusy, libc::ETXTBSY),
            (ErrorKind::Unsupported, libc::EOPNOTSUPP),
            (ErrorKind::Unreachable, libc::EIO),
        ] {
            assert_eq!(errno(kind).code(), number, "{kind:?}");
        }
    }
}
