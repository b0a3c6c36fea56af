//! Procedures on objects and file systems: GETATTR, SETATTR, ACCESS, READLINK, READ, WRITE, COMMIT,
//! FSSTAT, FSINFO, PATHCONF (RFC 1813 sections 3.3.1, 3.3.2, 3.3.4 to 3.3.7, 3.3.18 to 3.3.21).

use super::{Fattr3, NfsFh3, NfsTime3, PostOpAttr, Res, Sattr3, WccData, WriteVerf3};
use crate::xdr::{Reader, Result, Writer, Xdr};
use bytes::Bytes;

/// ACCESS: read data from a file, read a directory.
pub const ACCESS3_READ: u32 = 0x01;
/// ACCESS: look up a name in a directory.
pub const ACCESS3_LOOKUP: u32 = 0x02;
/// ACCESS: rewrite existing data or existing directory entries.
pub const ACCESS3_MODIFY: u32 = 0x04;
/// ACCESS: write new data or add directory entries.
pub const ACCESS3_EXTEND: u32 = 0x08;
/// ACCESS: delete an existing directory entry.
pub const ACCESS3_DELETE: u32 = 0x10;
/// ACCESS: execute a file.
pub const ACCESS3_EXECUTE: u32 = 0x20;

/// FSINFO: hard links are supported.
pub const FSF3_LINK: u32 = 0x01;
/// FSINFO: symbolic links are supported.
pub const FSF3_SYMLINK: u32 = 0x02;
/// FSINFO: PATHCONF answers the same for every object.
pub const FSF3_HOMOGENEOUS: u32 = 0x08;
/// FSINFO: SETATTR can set times.
pub const FSF3_CANSETTIME: u32 = 0x10;

/// `GETATTR3res`.
pub type GetattrRes = Res<GetattrOk, ()>;
/// `SETATTR3res`: wcc data either way.
pub type SetattrRes = Res<WccData, WccData>;
/// `ACCESS3res`.
pub type AccessRes = Res<AccessOk, PostOpAttr>;
/// `READLINK3res`.
pub type ReadlinkRes = Res<ReadlinkOk, PostOpAttr>;
/// `READ3res`.
pub type ReadRes = Res<ReadOk, PostOpAttr>;
/// `WRITE3res`.
pub type WriteRes = Res<WriteOk, WccData>;
/// `COMMIT3res`.
pub type CommitRes = Res<CommitOk, WccData>;
/// `FSSTAT3res`.
pub type FsstatRes = Res<FsstatOk, PostOpAttr>;
/// `FSINFO3res`.
pub type FsinfoRes = Res<FsinfoOk, PostOpAttr>;
/// `PATHCONF3res`.
pub type PathconfRes = Res<PathconfOk, PostOpAttr>;
/// `FSSTAT3args`.
pub type FsstatArgs = GetattrArgs;
/// `FSINFO3args`.
pub type FsinfoArgs = GetattrArgs;
/// `PATHCONF3args`.
pub type PathconfArgs = GetattrArgs;
/// `READLINK3args`.
pub type ReadlinkArgs = GetattrArgs;

crate::xdr! {
    /// `GETATTR3args`, also the shape of READLINK, FSSTAT, FSINFO and PATHCONF.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GetattrArgs {
        /// The object.
        pub object: NfsFh3,
    }

    /// `GETATTR3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GetattrOk {
        /// Its attributes.
        pub obj_attributes: Fattr3,
    }

    /// `SETATTR3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SetattrArgs {
        /// The object.
        pub object: NfsFh3,
        /// What to set.
        pub new_attributes: Sattr3,
        /// Nothing is set unless this is the object's ctime (`sattrguard3`).
        pub guard: Option<NfsTime3>,
    }

    /// `ACCESS3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AccessArgs {
        /// The object.
        pub object: NfsFh3,
        /// `ACCESS3_` bits that are asked for.
        pub access: u32,
    }

    /// `ACCESS3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AccessOk {
        /// Attributes of the object.
        pub obj_attributes: PostOpAttr,
        /// `ACCESS3_` bits that are granted; a part of those asked for.
        pub access: u32,
    }

    /// `READLINK3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReadlinkOk {
        /// Attributes of the link.
        pub symlink_attributes: PostOpAttr,
        /// Where it points; any bytes.
        pub data: Bytes,
    }

    /// `READ3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReadArgs {
        /// The file.
        pub file: NfsFh3,
        /// Where to begin, in bytes.
        pub offset: u64,
        /// How many bytes at most.
        pub count: u32,
    }

    /// How stable written data is, or has to be (`stable_how`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum StableHow {
        /// May be lost until a COMMIT.
        Unstable = 0,
        /// Data, and what is needed to find them, are stable.
        DataSync = 1,
        /// Data and all attributes are stable.
        FileSync = 2,
    }

    /// `WRITE3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WriteArgs {
        /// The file.
        pub file: NfsFh3,
        /// Where to begin, in bytes.
        pub offset: u64,
        /// How many bytes; a client may claim another number than it sends in `data`.
        pub count: u32,
        /// How stable it has to be before the reply.
        pub stable: StableHow,
        /// A slice of the receive buffer.
        pub data: Bytes,
    }

    /// `WRITE3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WriteOk {
        /// The file.
        pub file_wcc: WccData,
        /// How many bytes were taken.
        pub count: u32,
        /// How stable they are.
        pub committed: StableHow,
        /// The write verifier.
        pub verf: WriteVerf3,
    }

    /// `COMMIT3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CommitArgs {
        /// The file.
        pub file: NfsFh3,
        /// Where to begin, in bytes.
        pub offset: u64,
        /// How many bytes; 0 is to the end.
        pub count: u32,
    }

    /// `COMMIT3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CommitOk {
        /// The file.
        pub file_wcc: WccData,
        /// The write verifier.
        pub verf: WriteVerf3,
    }

    /// `FSSTAT3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FsstatOk {
        /// Attributes of the object asked for.
        pub obj_attributes: PostOpAttr,
        /// Size in bytes.
        pub tbytes: u64,
        /// Free bytes.
        pub fbytes: u64,
        /// Free bytes for the caller.
        pub abytes: u64,
        /// Number of inodes.
        pub tfiles: u64,
        /// Free inodes.
        pub ffiles: u64,
        /// Free inodes for the caller.
        pub afiles: u64,
        /// Seconds for which this is not expected to change.
        pub invarsec: u32,
    }

    /// `FSINFO3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FsinfoOk {
        /// Attributes of the object asked for.
        pub obj_attributes: PostOpAttr,
        /// The largest READ in bytes.
        pub rtmax: u32,
        /// The preferred READ in bytes.
        pub rtpref: u32,
        /// READ sizes should be multiples of this.
        pub rtmult: u32,
        /// The largest WRITE in bytes.
        pub wtmax: u32,
        /// The preferred WRITE in bytes.
        pub wtpref: u32,
        /// WRITE sizes should be multiples of this.
        pub wtmult: u32,
        /// The preferred READDIR in bytes.
        pub dtpref: u32,
        /// The largest file in bytes.
        pub maxfilesize: u64,
        /// The granularity of times.
        pub time_delta: NfsTime3,
        /// `FSF3_` bits.
        pub properties: u32,
    }

    /// `PATHCONF3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PathconfOk {
        /// Attributes of the object asked for.
        pub obj_attributes: PostOpAttr,
        /// The most hard links to an object.
        pub linkmax: u32,
        /// The longest name in bytes.
        pub name_max: u32,
        /// Whether longer names are refused instead of cut.
        pub no_trunc: bool,
        /// Whether only privileged users may change an owner.
        pub chown_restricted: bool,
        /// Whether names differ by more than case.
        pub case_insensitive: bool,
        /// Whether the case of names is kept.
        pub case_preserving: bool,
    }
}

/// `READ3resok`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOk {
    /// Attributes of the file.
    pub file_attributes: PostOpAttr,
    /// Whether the last byte of the file is among the data, or the offset lies behind it.
    pub eof: bool,
    /// The bytes, in parts that go to the socket without being copied. Their sum is the `count` of the wire.
    pub data: Vec<Bytes>,
}

impl ReadOk {
    /// How many bytes were read.
    pub fn count(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }
}

impl Xdr for ReadOk {
    fn encode(&self, w: &mut Writer) {
        self.file_attributes.encode(w);
        w.u32(self.count() as u32);
        self.eof.encode(w);
        w.payloads(&self.data);
    }

    fn decode(r: &mut Reader) -> Result<Self> {
        let file_attributes = PostOpAttr::decode(r)?;
        let count = r.u32()? as usize;
        let eof = bool::decode(r)?;
        let data = Bytes::decode(r)?;
        if data.len() != count {
            return Err(crate::xdr::XdrError::OutOfRange);
        }
        Ok(Self { file_attributes, eof, data: vec![data] })
    }
}
