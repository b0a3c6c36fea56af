//! MOUNT version 3 (RFC 1813 appendix I): the first file handle, and who mounted what.

use crate::nfs3::{Chain, NfsFh3};
use crate::xdr::{Reader, Result, Writer, Xdr};
use bytes::Bytes;

/// The program number of MOUNT.
pub const PROGRAM: u32 = 100_005;
/// This version.
pub const VERSION: u32 = 3;
/// The longest path in bytes. Longer ones decode, to be answered [`MountStat3::NameTooLong`].
pub const MNTPATHLEN: usize = 1024;
/// The longest name of a host or group in bytes.
pub const MNTNAMLEN: usize = 255;

/// Procedure numbers.
pub mod procs {
    /// Do nothing.
    pub const NULL: u32 = 0;
    /// Add a mount entry: path to handle.
    pub const MNT: u32 = 1;
    /// Return mount entries.
    pub const DUMP: u32 = 2;
    /// Remove a mount entry.
    pub const UMNT: u32 = 3;
    /// Remove all mount entries of the caller.
    pub const UMNTALL: u32 = 4;
    /// Return the export list.
    pub const EXPORT: u32 = 5;

    /// How many procedures there are.
    pub const COUNT: u32 = 6;
}

/// Arguments of MNT and UMNT: a path, any bytes of any length.
pub type DirPath = Bytes;
/// Results of DUMP.
pub type DumpRes = Chain<MountBody>;
/// Results of EXPORT.
pub type ExportRes = Chain<ExportNode>;

crate::xdr! {
    /// The status of MNT (`mountstat3`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum MountStat3 {
        /// Success.
        Ok = 0,
        /// Not owner.
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        /// Input or output failed.
        Io = 5,
        /// Permission denied.
        Acces = 13,
        /// Not a directory.
        NotDir = 20,
        /// Not a usable path.
        Inval = 22,
        /// The path is too long.
        NameTooLong = 63,
        /// Not supported.
        NotSupp = 10004,
        /// Something else went wrong.
        ServerFault = 10006,
    }

    /// `mountres3_ok`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MountOk {
        /// The handle of the path.
        pub fhandle: NfsFh3,
        /// Flavours that may be used with it, best first.
        pub auth_flavors: Vec<u32>,
    }

    /// One mount of one client (`mountbody`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MountBody {
        /// The client.
        pub hostname: Bytes,
        /// The path.
        pub directory: Bytes,
    }

    /// One export (`exportnode`).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ExportNode {
        /// The path.
        pub dir: Bytes,
        /// Who may mount it; none is everybody.
        pub groups: Chain<Bytes>,
    }
}

/// The results of MNT (`mountres3`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountRes {
    /// Success.
    Ok(MountOk),
    /// Failure. Never holds [`MountStat3::Ok`].
    Fail(MountStat3),
}

impl Xdr for MountRes {
    fn encode(&self, w: &mut Writer) {
        match self {
            MountRes::Ok(ok) => {
                MountStat3::Ok.encode(w);
                ok.encode(w);
            }
            MountRes::Fail(status) => {
                debug_assert_ne!(*status, MountStat3::Ok, "a failure needs a reason");
                status.encode(w);
            }
        }
    }

    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(match MountStat3::decode(r)? {
            MountStat3::Ok => MountRes::Ok(MountOk::decode(r)?),
            status => MountRes::Fail(status),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_round_trip_and_have_the_layout_of_the_rfc() {
        let ok = MountRes::Ok(MountOk { fhandle: NfsFh3::new(b"abc").unwrap(), auth_flavors: vec![1] });
        let bytes = ok.to_bytes();
        assert_eq!(&bytes[..], b"\0\0\0\0\0\0\0\x03abc\0\0\0\0\x01\0\0\0\x01");
        assert_eq!(MountRes::from_bytes(bytes).unwrap(), ok);
        let fail = MountRes::Fail(MountStat3::Acces);
        assert_eq!(&fail.to_bytes()[..], b"\0\0\0\x0d");
        assert_eq!(MountRes::from_bytes(fail.to_bytes()).unwrap(), fail);
    }

    #[test]
    fn lists_are_linked_by_booleans() {
        let groups = Chain(vec![Bytes::from_static(b"lab")]);
        let list: ExportRes = Chain(vec![ExportNode { dir: Bytes::from_static(b"/"), groups }]);
        let bytes = list.to_bytes();
        let wire = b"\0\0\0\x01\0\0\0\x01/\0\0\0\0\0\0\x01\0\0\0\x03lab\0\0\0\0\0\0\0\0\0";
        assert_eq!(&bytes[..], wire);
        assert_eq!(ExportRes::from_bytes(bytes).unwrap(), list);
        let body = MountBody { hostname: Bytes::from_static(b"h"), directory: Bytes::from_static(b"/d") };
        let dump: DumpRes = Chain(vec![body]);
        assert_eq!(DumpRes::from_bytes(dump.to_bytes()).unwrap(), dump);
    }
}
