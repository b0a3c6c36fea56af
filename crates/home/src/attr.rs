//! What a home knows of an object, in the home's own terms.

use oncrpc::xdr::{Reader, Writer, Xdr, XdrError};

/// What the account may do with an object according to the home itself (modes, groups, ACLs, read-only mounts).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Read a file, list a directory.
    pub read: bool,
    /// Writable a file, change a directory.
    pub write: Writable,
    /// Execute a file, look names up in a directory.
    pub exec: bool,
}

/// Whether the account may change an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writable {
    /// It lacks permission.
    No,
    /// It may.
    Yes,
    /// Nobody may: the file system is mounted read-only, as far as the home tells that.
    ReadOnly,
}

impl From<bool> for Writable {
    fn from(may: bool) -> Writable {
        if may { Writable::Yes } else { Writable::No }
    }
}

impl Access {
    /// Everything.
    pub const ALL: Access = Access { read: true, write: Writable::Yes, exec: true };

    /// Whether it may be written.
    pub fn may_write(self) -> bool {
        self.write == Writable::Yes
    }
}

impl Xdr for Access {
    fn encode(&self, w: &mut Writer) {
        self.read.encode(w);
        let write: u32 = match self.write {
            Writable::No => 0,
            Writable::Yes => 1,
            Writable::ReadOnly => 2,
        };
        write.encode(w);
        self.exec.encode(w);
    }

    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        let read = bool::decode(r)?;
        let write = match u32::decode(r)? {
            0 => Writable::No,
            1 => Writable::Yes,
            2 => Writable::ReadOnly,
            _ => return Err(XdrError::OutOfRange),
        };
        Ok(Access { read, write, exec: bool::decode(r)? })
    }
}

oncrpc::xdr! {
    /// Seconds and nanoseconds since 1970.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Time {
        /// Whole seconds; negative before 1970.
        pub sec: i64,
        /// 0..1_000_000_000.
        pub nsec: u32,
    }

    /// The type of an object. Device nodes are hidden and therefore have none.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Kind {
        /// A regular file.
        File = 1,
        /// A directory.
        Dir = 2,
        /// A symbolic link.
        Symlink = 3,
        /// A named pipe.
        Fifo = 4,
        /// A local socket.
        Socket = 5,
    }

    /// Tells objects of a home apart. All zero where the home cannot (SFTP).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct HomeId {
        /// The file system: a hash of its f_fsid or mount source, never of st_dev.
        pub fs: u64,
        /// The inode number.
        pub ino: u64,
        /// The generation: a hash of the kernel's file handle, else the birth time, else 0.
        pub generation: u64,
    }

    /// Changes whenever the content of an object does.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Version {
        /// Which object.
        pub id: HomeId,
        /// Length in bytes.
        pub size: u64,
        /// Last change of the content.
        pub mtime: Time,
        /// Last change of content or attributes; zero where the home has none.
        pub ctime: Time,
    }

    /// Attributes of an object. Owner and group are the home's own numbers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Attr {
        /// Identity.
        pub id: HomeId,
        /// Type.
        pub kind: Kind,
        /// Permission bits with set-id and sticky bits: 0o7777 at most.
        pub mode: u32,
        /// Number of hard links; 1 where the home does not tell.
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
        /// What the account may do.
        pub access: Access,
    }

    /// Space of a file system; bytes and numbers of inodes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct StatFs {
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
}

impl Attr {
    /// The version that these attributes show.
    pub fn version(&self) -> Version {
        Version { id: self.id, size: self.size, mtime: self.mtime, ctime: self.ctime }
    }
}

impl Version {
    /// Whether both are the same content, when only ctime may have moved (exchange and link move it).
    pub fn same_content(&self, other: &Version) -> bool {
        self.id == other.id && self.size == other.size && self.mtime == other.mtime
    }
}

impl Time {
    /// The time as nanoseconds since 1970.
    pub fn as_nanos(&self) -> i128 {
        i128::from(self.sec) * 1_000_000_000 + i128::from(self.nsec)
    }

    /// One nanosecond later; the last time there is has none.
    pub fn next(self) -> Time {
        match self.nsec {
            999_999_999.. => Time { sec: self.sec.saturating_add(1), nsec: 0 },
            n => Time { sec: self.sec, nsec: n + 1 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// Two of the three are what a boolean was.
    #[test]
    fn why_nothing_can_be_written_travels() {
        for (write, number) in [(Writable::No, 0), (Writable::Yes, 1), (Writable::ReadOnly, 2)] {
            let access = Access { read: true, write, exec: false };
            let bytes = access.to_bytes();
            assert_eq!(&bytes[..], [0, 0, 0, 1, 0, 0, 0, number, 0, 0, 0, 0]);
            assert_eq!(Access::from_bytes(bytes), Ok(access));
        }
        let none = Bytes::from_static(&[0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0]);
        assert_eq!(Access::from_bytes(none), Err(XdrError::OutOfRange));
    }
}
