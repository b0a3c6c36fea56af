//! Which object is it, and what are its attributes.
//!
//! An object is known by its file system, its inode number and its generation. The file system is known
//! by its own f_fsid or by what is mounted, never by st_dev, which other boots give to other disks. The
//! generation tells a reused inode number; it is a hash of the kernel's file handle or the birth time.

use super::sys::{FileType, Fs, Mount, Stat, Sys};
use super::{Posix, lock};
use crate::attr::{Access, Attr, HomeId, Kind, Time, Writable};
use crate::limits;
use rustix::io::Errno;
use std::collections::HashMap;

/// Why an object has no attributes.
pub(super) enum Hidden {
    /// The system says so.
    Errno(Errno),
    /// A device, or inside a file system that appears empty.
    NotShown,
}

impl From<Errno> for Hidden {
    fn from(e: Errno) -> Hidden {
        Hidden::Errno(e)
    }
}

/// What is remembered of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileSystem {
    /// Stable identity.
    pub id: u64,
    /// Whether it shows the kernel's state rather than files, and appears empty.
    pub hidden: bool,
    /// Whether this machine's kernel hears of every change: it is no other machine's.
    pub local: bool,
    learned: Time,
}

/// File systems by device and mount number, for a while: both numbers are reused.
#[derive(Debug, Default)]
pub(super) struct FileSystems(HashMap<(u64, u64), FileSystem>);

/// Types that show the kernel's state: their objects change without trace and have no size.
const HIDDEN_TYPES: [&[u8]; 18] = [
    b"proc",
    b"sysfs",
    b"cgroup",
    b"cgroup2",
    b"devtmpfs",
    b"devpts",
    b"debugfs",
    b"tracefs",
    b"securityfs",
    b"pstore",
    b"bpf",
    b"configfs",
    b"efivarfs",
    b"fusectl",
    b"selinuxfs",
    b"binfmt_misc",
    b"mqueue",
    b"rpc_pipefs",
];

/// The same by the magic numbers of linux/magic.h, for mounts that the mount table does not show.
const HIDDEN_MAGICS: [u64; 7] =
    [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270, 0x1cd1, 0x6462_6720, 0x7472_6163];

/// File systems that only this machine's kernel changes, by their magic numbers: ext, xfs, btrfs, tmpfs, ramfs, overlay,
/// f2fs, zfs, bcachefs, jfs, reiserfs, vfat, exfat, iso9660, squashfs, erofs. All others may be a network's.
const LOCAL_MAGICS: [u64; 16] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x3153_464a,
    0x5265_4973,
    0x4d44,
    0x2011_bab0,
    0x9660,
    0x7371_7368,
    0xe0f5_e1e2,
];

/// The first eight bytes of the BLAKE3 hash of some parts, each with its length.
pub(super) fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut out = [0; 8];
    out.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(out)
}

/// Identity of a file system from what it says and how it is mounted.
fn file_system(fs: &Fs, mount: Option<&Mount>, now: Time) -> FileSystem {
    let hidden = HIDDEN_MAGICS.contains(&fs.magic)
        || mount.is_some_and(|m| HIDDEN_TYPES.contains(&m.fstype.as_slice()));
    let id = match mount {
        _ if fs.fsid != 0 => hash(&[b"fsid", &fs.magic.to_le_bytes(), &fs.fsid.to_le_bytes()]),
        // Sources such as `tmpfs` are no names: the place of the first mount tells them apart.
        Some(m) if m.source.contains(&b'/') || m.source.contains(&b':') => {
            hash(&[b"source", &m.fstype, &m.source])
        }
        Some(m) => hash(&[b"point", &m.fstype, &m.source, &m.point]),
        None => hash(&[b"magic", &fs.magic.to_le_bytes()]),
    };
    FileSystem { id, hidden, local: LOCAL_MAGICS.contains(&fs.magic), learned: now }
}

fn kind_of(kind: FileType) -> Option<Kind> {
    Some(match kind {
        FileType::File => Kind::File,
        FileType::Dir => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Other => return None,
    })
}

impl<S: Sys> Posix<S> {
    /// Attributes of an open object.
    pub(super) fn identify(&self, fd: &S::Fd) -> Result<Attr, Hidden> {
        let stat = self.sys.stat(fd)?;
        let kind = kind_of(stat.kind).ok_or(Hidden::NotShown)?;
        let fs = self.file_system_of(fd, &stat)?;
        if fs.hidden && (kind != Kind::Dir || stat.mount_root == Some(false)) {
            return Err(Hidden::NotShown);
        }
        Ok(Attr {
            id: HomeId { fs: fs.id, ino: stat.ino, generation: self.generation(fd, &stat) },
            kind,
            mode: stat.mode,
            nlink: stat.nlink,
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            used: stat.used,
            atime: stat.atime,
            mtime: stat.mtime,
            ctime: stat.ctime,
            access: self.access_of(fd, kind),
        })
    }

    /// What the account may do, by few questions where the answer is the usual one.
    fn access_of(&self, fd: &S::Fd, kind: Kind) -> Access {
        let may = |bits| self.sys.access(fd, bits).is_ok();
        let write = || match self.sys.access(fd, 2) {
            Ok(()) => Writable::Yes,
            Err(Errno::ROFS) => Writable::ReadOnly,
            Err(_) => Writable::No,
        };
        match kind {
            Kind::Symlink => Access::ALL,
            Kind::Dir if may(7) => Access::ALL,
            Kind::Dir => Access { read: may(4), write: write(), exec: may(1) },
            _ if may(6) => Access { read: true, write: Writable::Yes, exec: may(1) },
            _ => Access { read: may(4), write: write(), exec: may(1) },
        }
    }

    fn generation(&self, fd: &S::Fd, stat: &Stat) -> u64 {
        match (self.sys.handle(fd), stat.btime) {
            (Ok(handle), _) => hash(&[&handle]),
            (Err(_), Some(t)) => hash(&[b"birth", &t.sec.to_le_bytes(), &t.nsec.to_le_bytes()]),
            (Err(_), None) => 0,
        }
    }

    /// The file system of an open object.
    pub(super) fn file_system_of(&self, fd: &S::Fd, stat: &Stat) -> Result<FileSystem, Errno> {
        let key = (stat.dev, stat.mount);
        let now = self.sys.now();
        if let Some(known) = lock(&self.file_systems).0.get(&key)
            && (known.learned.sec..known.learned.sec + limits::FILE_SYSTEM_SECONDS).contains(&now.sec)
        {
            return Ok(*known);
        }
        let mounts = self.sys.mounts().unwrap_or_default();
        let mount = mounts.iter().find(|m| m.dev == stat.dev);
        let learned = file_system(&self.sys.statfs(fd)?, mount, now);
        let mut all = lock(&self.file_systems);
        if all.0.len() >= limits::FILE_SYSTEMS {
            all.0.clear();
        }
        all.0.insert(key, learned);
        Ok(learned)
    }
}
