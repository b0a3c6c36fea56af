//! NFS version 3 and MOUNT version 3 on one TCP port (RFC 1813).
//!
//! # Layout
//! - `server`: a call's way: route, admit, find repetitions, run. [`serve`] and [`NfsServer`].
//! - `export`: who may connect, and whom a call speaks for: [`ExportPolicy`].
//! - `retry`: a call that comes again gets its first answer.
//! - `handle`: file handles.
//! - `convert`: errors, attributes, times.
//! - `v3`: the procedures of NFS.
//! - `mount`: the procedures of MOUNT.

mod convert;
mod export;
mod handle;
mod mount;
mod retry;
mod server;
mod v3;

pub use export::{Access, Allow, ExportPolicy, NOBODY};
pub use server::{NfsServer, serve};
