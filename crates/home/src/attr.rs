//! What a home knows of an object, in the home's own terms.

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

    /// What the account may do with an object according to the home itself (modes, groups, ACLs, read-only mounts).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access {
        /// Read a file, list a directory.
        pub read: bool,
        /// Write a file, change a directory.
        pub write: bool,
        /// Execute a file, look names up in a directory.
        pub exec: bool,
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
