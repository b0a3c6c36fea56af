//! NFS version 3 on the wire (RFC 1813): constants, arguments and results of all 22 procedures.
//!
//! Types keep the RFC's names in Rust's spelling (`fattr3` is [`Fattr3`], `GETATTR3args` is
//! [`GetattrArgs`], `GETATTR3resok` is [`GetattrOk`]). A result is a [`Res`]: the status with what
//! the procedure returns for success or for failure.
//!
//! File names are any bytes of any length here, because a server answers NFS3ERR_NAMETOOLONG and not
//! GARBAGE_ARGS. They are slices of the receive buffer: whoever keeps one for long copies it.
//!
//! # Layout
//! - [`types`]: status, handle, attributes, wcc data; the hot encoders.
//! - [`name`]: procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.
//! - [`io`]: procedures on objects: GETATTR, SETATTR, ACCESS, READLINK, READ, WRITE, COMMIT and the FS* calls.
//! - [`dir`]: READDIR and READDIRPLUS, with an encoder that stops at the byte budget.

pub mod dir;
pub mod io;
pub mod name;
pub mod types;

pub use dir::*;
pub use io::*;
pub use name::*;
pub use types::*;

/// The program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// This version.
pub const VERSION: u32 = 3;
/// The longest file handle in bytes.
pub const FHSIZE: usize = 64;
/// Bytes of a cookie verifier.
pub const COOKIEVERFSIZE: usize = 8;
/// Bytes of the verifier of an exclusive CREATE.
pub const CREATEVERFSIZE: usize = 8;
/// Bytes of a write verifier.
pub const WRITEVERFSIZE: usize = 8;

/// The verifier of a READDIR cookie.
pub type CookieVerf3 = [u8; COOKIEVERFSIZE];
/// The verifier of an exclusive CREATE.
pub type CreateVerf3 = [u8; CREATEVERFSIZE];
/// Changes when acknowledged UNSTABLE data may have been lost.
pub type WriteVerf3 = [u8; WRITEVERFSIZE];

/// Procedure numbers (RFC 1813 section 3).
pub mod procs {
    /// Do nothing.
    pub const NULL: u32 = 0;
    /// Get file attributes.
    pub const GETATTR: u32 = 1;
    /// Set file attributes.
    pub const SETATTR: u32 = 2;
    /// Look up a file name.
    pub const LOOKUP: u32 = 3;
    /// Check access permission.
    pub const ACCESS: u32 = 4;
    /// Read from a symbolic link.
    pub const READLINK: u32 = 5;
    /// Read from a file.
    pub const READ: u32 = 6;
    /// Write to a file.
    pub const WRITE: u32 = 7;
    /// Create a file.
    pub const CREATE: u32 = 8;
    /// Create a directory.
    pub const MKDIR: u32 = 9;
    /// Create a symbolic link.
    pub const SYMLINK: u32 = 10;
    /// Create a special device.
    pub const MKNOD: u32 = 11;
    /// Remove a file.
    pub const REMOVE: u32 = 12;
    /// Remove a directory.
    pub const RMDIR: u32 = 13;
    /// Rename a file or directory.
    pub const RENAME: u32 = 14;
    /// Create a link to an object.
    pub const LINK: u32 = 15;
    /// Read from a directory.
    pub const READDIR: u32 = 16;
    /// Extended read from a directory.
    pub const READDIRPLUS: u32 = 17;
    /// Get dynamic file system information.
    pub const FSSTAT: u32 = 18;
    /// Get static file system information.
    pub const FSINFO: u32 = 19;
    /// Retrieve POSIX information.
    pub const PATHCONF: u32 = 20;
    /// Commit cached data to stable storage.
    pub const COMMIT: u32 = 21;

    /// How many procedures there are.
    pub const COUNT: u32 = 22;

    /// Names by number, for logs and figures.
    pub const NAMES: [&str; COUNT as usize] = [
        "NULL",
        "GETATTR",
        "SETATTR",
        "LOOKUP",
        "ACCESS",
        "READLINK",
        "READ",
        "WRITE",
        "CREATE",
        "MKDIR",
        "SYMLINK",
        "MKNOD",
        "REMOVE",
        "RMDIR",
        "RENAME",
        "LINK",
        "READDIR",
        "READDIRPLUS",
        "FSSTAT",
        "FSINFO",
        "PATHCONF",
        "COMMIT",
    ];
}

#[cfg(test)]
mod tests;
