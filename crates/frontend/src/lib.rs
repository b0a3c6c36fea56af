//! Protocol front-ends over the [`vfs`]: each translates one protocol's calls to engine calls and the
//! results back. Nothing is cached or decided here that another protocol would decide again.
//!
//! # Layout
//! - [`fuse`]: FUSE, over any file descriptor that speaks it; mounting is done elsewhere.
//! - [`nfs`]: NFS version 3 and MOUNT version 3 on one TCP port.
//! - `limits`: every bound of this crate.

pub mod fuse;
mod limits;
pub mod nfs;
