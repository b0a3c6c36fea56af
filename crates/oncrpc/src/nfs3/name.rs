//! Procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK
//! (RFC 1813 sections 3.3.3, 3.3.8 to 3.3.15).

use super::{CreateVerf3, DirOpArgs3, NfsFh3, PostOpAttr, Res, Sattr3, Specdata3, WccData};
use bytes::Bytes;

/// `LOOKUP3args`.
pub type LookupArgs = DirOpArgs3;
/// `LOOKUP3res`; the directory's attributes on failure.
pub type LookupRes = Res<LookupOk, PostOpAttr>;
/// `CREATE3res`; the directory's wcc data on failure.
pub type CreateRes = Res<CreateOk, WccData>;
/// `MKDIR3res`, in the same shape as CREATE.
pub type MkdirRes = CreateRes;
/// `SYMLINK3res`, in the same shape as CREATE.
pub type SymlinkRes = CreateRes;
/// `MKNOD3res`, in the same shape as CREATE.
pub type MknodRes = CreateRes;
/// `REMOVE3args`.
pub type RemoveArgs = DirOpArgs3;
/// `REMOVE3res`: the directory's wcc data either way.
pub type RemoveRes = Res<WccData, WccData>;
/// `RMDIR3args`.
pub type RmdirArgs = DirOpArgs3;
/// `RMDIR3res`: the directory's wcc data either way.
pub type RmdirRes = Res<WccData, WccData>;
/// `RENAME3res`: the same content either way.
pub type RenameRes = Res<RenameWcc, RenameWcc>;
/// `LINK3res`: the same content either way.
pub type LinkRes = Res<LinkWcc, LinkWcc>;

crate::xdr! {
    /// `LOOKUP3resok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LookupOk {
        /// The object found.
        pub object: NfsFh3,
        /// Its attributes.
        pub obj_attributes: PostOpAttr,
        /// Attributes of the directory.
        pub dir_attributes: PostOpAttr,
    }

    /// How to create a file (`createhow3`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub union CreateHow3 {
        /// Open it if it exists.
        Unchecked(Sattr3) = 0,
        /// Fail if it exists.
        Guarded(Sattr3) = 1,
        /// Fail if it exists, unless the same verifier created it.
        Exclusive(CreateVerf3) = 2,
    }

    /// `CREATE3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CreateArgs {
        /// Where.
        pub at: DirOpArgs3,
        /// How.
        pub how: CreateHow3,
    }

    /// What CREATE, MKDIR, SYMLINK and MKNOD answer (`CREATE3resok`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CreateOk {
        /// The new object.
        pub obj: Option<NfsFh3>,
        /// Its attributes.
        pub obj_attributes: PostOpAttr,
        /// The directory.
        pub dir_wcc: WccData,
    }

    /// `MKDIR3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MkdirArgs {
        /// Where.
        pub at: DirOpArgs3,
        /// Attributes of the new directory.
        pub attributes: Sattr3,
    }

    /// `SYMLINK3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SymlinkArgs {
        /// Where.
        pub at: DirOpArgs3,
        /// Attributes of the new link.
        pub symlink_attributes: Sattr3,
        /// Where the link points; any bytes, unchecked.
        pub symlink_data: Bytes,
    }

    /// A device node (`devicedata3`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DeviceData3 {
        /// Attributes of the new node.
        pub dev_attributes: Sattr3,
        /// Its numbers.
        pub spec: Specdata3,
    }

    /// What MKNOD makes (`mknoddata3`). Types that it cannot make decode, to be answered BADTYPE.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub union MknodData3 {
        /// Cannot be made.
        Reg = 1,
        /// Cannot be made.
        Dir = 2,
        /// Block device.
        Blk(DeviceData3) = 3,
        /// Character device.
        Chr(DeviceData3) = 4,
        /// Cannot be made.
        Lnk = 5,
        /// Local socket.
        Sock(Sattr3) = 6,
        /// Named pipe.
        Fifo(Sattr3) = 7,
    }

    /// `MKNOD3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MknodArgs {
        /// Where.
        pub at: DirOpArgs3,
        /// What.
        pub what: MknodData3,
    }

    /// `RENAME3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RenameArgs {
        /// The old name.
        pub from: DirOpArgs3,
        /// The new name.
        pub to: DirOpArgs3,
    }

    /// `RENAME3resok` and `RENAME3resfail`.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct RenameWcc {
        /// The directory of the old name.
        pub fromdir_wcc: WccData,
        /// The directory of the new name.
        pub todir_wcc: WccData,
    }

    /// `LINK3args`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LinkArgs {
        /// The object.
        pub file: NfsFh3,
        /// Its further name.
        pub link: DirOpArgs3,
    }

    /// `LINK3resok` and `LINK3resfail`.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct LinkWcc {
        /// Attributes of the object.
        pub file_attributes: PostOpAttr,
        /// The directory of the further name.
        pub linkdir_wcc: WccData,
    }
}
