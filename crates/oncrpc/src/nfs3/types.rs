//! Types that many procedures share (RFC 1813 sections 2.5 and 2.6).

use super::FHSIZE;
use crate::xdr::{Reader, Result, Writer, Xdr, XdrError};
use bytes::Bytes;

crate::xdr! {
    /// The status of a procedure (`nfsstat3`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum NfsStat3 {
        /// Success.
        Ok = 0,
        /// Not owner.
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        /// A hard error of input or output.
        Io = 5,
        /// No such device.
        Nxio = 6,
        /// Permission denied.
        Acces = 13,
        /// The name exists.
        Exist = 17,
        /// A hard link across file systems.
        Xdev = 18,
        /// No such device.
        NoDev = 19,
        /// Not a directory.
        NotDir = 20,
        /// Is a directory.
        IsDir = 21,
        /// An argument makes no sense.
        Inval = 22,
        /// The file would become too large.
        Fbig = 27,
        /// No space.
        NoSpc = 28,
        /// Read-only file system.
        Rofs = 30,
        /// Too many hard links.
        Mlink = 31,
        /// A name is too long.
        NameTooLong = 63,
        /// The directory is not empty.
        NotEmpty = 66,
        /// Quota exceeded.
        Dquot = 69,
        /// The object of this handle is gone.
        Stale = 70,
        /// Too many levels of remote in path.
        Remote = 71,
        /// Not one of our handles.
        BadHandle = 10001,
        /// The guard of a SETATTR did not match.
        NotSync = 10002,
        /// The cookie of a READDIR is stale.
        BadCookie = 10003,
        /// Not supported.
        NotSupp = 10004,
        /// The buffer is too small for one entry.
        TooSmall = 10005,
        /// Something else went wrong.
        ServerFault = 10006,
        /// An object of this type cannot be made.
        BadType = 10007,
        /// Not yet; try again with a new xid.
        Jukebox = 10008,
    }

    /// The type of an object (`ftype3`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Ftype3 {
        /// Regular file.
        Reg = 1,
        /// Directory.
        Dir = 2,
        /// Block device.
        Blk = 3,
        /// Character device.
        Chr = 4,
        /// Symbolic link.
        Lnk = 5,
        /// Local socket.
        Sock = 6,
        /// Named pipe.
        Fifo = 7,
    }

    /// Major and minor number of a device (`specdata3`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Specdata3 {
        /// Major number.
        pub specdata1: u32,
        /// Minor number.
        pub specdata2: u32,
    }

    /// Seconds and nanoseconds since 1970 (`nfstime3`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub struct NfsTime3 {
        /// Whole seconds.
        pub seconds: u32,
        /// 0..1_000_000_000 from an honest peer.
        pub nseconds: u32,
    }

    /// The attributes that tell whether somebody else changed an object (`wcc_attr`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct WccAttr {
        /// Length in bytes.
        pub size: u64,
        /// Last change of the content.
        pub mtime: NfsTime3,
        /// Last change of content or attributes.
        pub ctime: NfsTime3,
    }

    /// Attributes before and after a change (`wcc_data`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct WccData {
        /// Before, from inside the operation.
        pub before: Option<WccAttr>,
        /// After.
        pub after: PostOpAttr,
    }

    /// How to set a time (`set_atime`, `set_mtime`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub union SetTime3 {
        /// Leave it.
        #[default]
        DontChange = 0,
        /// The server's clock.
        SetToServerTime = 1,
        /// This time.
        SetToClientTime(NfsTime3) = 2,
    }

    /// Attributes to set (`sattr3`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Sattr3 {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Length in bytes.
        pub size: Option<u64>,
        /// Last access.
        pub atime: SetTime3,
        /// Last change of the content.
        pub mtime: SetTime3,
    }

    /// A name in a directory (`diropargs3`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DirOpArgs3 {
        /// The directory.
        pub dir: NfsFh3,
        /// The name: any bytes of any length, unchecked.
        pub name: Bytes,
    }
}

/// Attributes that a reply carries if they are at hand (`post_op_attr`).
pub type PostOpAttr = Option<Fattr3>;

/// The outcome of a procedure: what it returns for success, or a status other than
/// [`NfsStat3::Ok`] with what it returns for failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Res<T, E> {
    /// Success.
    Ok(T),
    /// Failure. Never holds [`NfsStat3::Ok`].
    Fail(NfsStat3, E),
}

impl<T, E> Res<T, E> {
    /// As a `Result`, for `?` in clients.
    pub fn into_result(self) -> std::result::Result<T, (NfsStat3, E)> {
        match self {
            Res::Ok(ok) => Ok(ok),
            Res::Fail(status, fail) => Err((status, fail)),
        }
    }

    /// The status alone.
    pub fn status(&self) -> NfsStat3 {
        match self {
            Res::Ok(_) => NfsStat3::Ok,
            Res::Fail(status, _) => *status,
        }
    }
}

impl<T: Xdr, E: Xdr> Xdr for Res<T, E> {
    fn encode(&self, w: &mut Writer) {
        match self {
            Res::Ok(ok) => {
                NfsStat3::Ok.encode(w);
                ok.encode(w);
            }
            Res::Fail(status, fail) => {
                debug_assert_ne!(*status, NfsStat3::Ok, "a failure needs a reason");
                status.encode(w);
                fail.encode(w);
            }
        }
    }

    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(match NfsStat3::decode(r)? {
            NfsStat3::Ok => Res::Ok(T::decode(r)?),
            status => Res::Fail(status, E::decode(r)?),
        })
    }
}

/// A file handle (`nfs_fh3`): at most 64 bytes that only the server understands. Held by value, so that
/// keeping one keeps no receive buffer alive.
#[derive(Clone, Copy)]
pub struct NfsFh3 {
    len: u8,
    data: [u8; FHSIZE],
}

impl NfsFh3 {
    /// A handle of these bytes; `None` if they are more than 64.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut data = [0; FHSIZE];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { len: bytes.len() as u8, data })
    }

    /// Bytes on the wire, with the length word and padding.
    pub fn wire_len(&self) -> usize {
        4 + usize::from(self.len).next_multiple_of(4)
    }
}

impl std::ops::Deref for NfsFh3 {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data[..usize::from(self.len)]
    }
}

impl PartialEq for NfsFh3 {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for NfsFh3 {}

impl std::hash::Hash for NfsFh3 {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl std::fmt::Debug for NfsFh3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Xdr for NfsFh3 {
    fn encode(&self, w: &mut Writer) {
        w.opaque(self);
    }
    fn decode(r: &mut Reader) -> Result<Self> {
        NfsFh3::new(&r.opaque(FHSIZE)?).ok_or(XdrError::OutOfRange)
    }
}

/// Attributes of an object (`fattr3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fattr3 {
    /// Type.
    pub ftype: Ftype3,
    /// Permission bits with set-id and sticky bits.
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
    /// Numbers of a device node.
    pub rdev: Specdata3,
    /// The file system.
    pub fsid: u64,
    /// The object in its file system.
    pub fileid: u64,
    /// Last access.
    pub atime: NfsTime3,
    /// Last change of the content.
    pub mtime: NfsTime3,
    /// Last change of content or attributes.
    pub ctime: NfsTime3,
}

impl Fattr3 {
    /// Bytes on the wire.
    pub const WIRE_LEN: usize = 84;

    /// The part that wcc data compare.
    pub fn wcc(&self) -> WccAttr {
        WccAttr { size: self.size, mtime: self.mtime, ctime: self.ctime }
    }

    fn words(&self) -> [u32; 21] {
        let (high, low) = (|v: u64| (v >> 32) as u32, |v: u64| v as u32);
        [
            self.ftype as u32,
            self.mode,
            self.nlink,
            self.uid,
            self.gid,
            high(self.size),
            low(self.size),
            high(self.used),
            low(self.used),
            self.rdev.specdata1,
            self.rdev.specdata2,
            high(self.fsid),
            low(self.fsid),
            high(self.fileid),
            low(self.fileid),
            self.atime.seconds,
            self.atime.nseconds,
            self.mtime.seconds,
            self.mtime.nseconds,
            self.ctime.seconds,
            self.ctime.nseconds,
        ]
    }
}

/// One append of 84 bytes: this is the most frequent item on the wire.
impl Xdr for Fattr3 {
    fn encode(&self, w: &mut Writer) {
        let mut out = [0; Self::WIRE_LEN];
        for (slot, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(self.words()) {
            *slot = word.to_be_bytes();
        }
        w.raw(&out);
    }

    fn decode(r: &mut Reader) -> Result<Self> {
        let r = &mut Reader::new(r.take(Self::WIRE_LEN)?);
        Ok(Self {
            ftype: Ftype3::decode(r)?,
            mode: r.u32()?,
            nlink: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            size: r.u64()?,
            used: r.u64()?,
            rdev: Specdata3::decode(r)?,
            fsid: r.u64()?,
            fileid: r.u64()?,
            atime: NfsTime3::decode(r)?,
            mtime: NfsTime3::decode(r)?,
            ctime: NfsTime3::decode(r)?,
        })
    }
}

/// Bytes on the wire of attributes that may be absent.
pub fn post_op_attr_len(attr: &PostOpAttr) -> usize {
    if attr.is_some() { 4 + Fattr3::WIRE_LEN } else { 4 }
}
