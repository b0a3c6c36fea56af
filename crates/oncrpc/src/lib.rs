//! ONC RPC version 2 (RFC 5531) and XDR (RFC 4506), with the NFS and MOUNT wire types.
//!
//! This crate knows bytes and streams. It knows no files: what a call means is the business of a
//! `server::Service`.
//!
//! # Layout
//! - [`mod@xdr`]: encode and decode; payloads are slices of the buffer they arrived in.
//! - [`msg`]: headers of calls and replies, credentials, and the reasons for refusing a call.
//! - [`record`]: cuts a byte stream into records.
//! - [`limits`]: every bound.
//! - [`nfs3`], [`mount`]: the wire types of NFS version 3 and MOUNT version 3.
//!
//! With the feature `net` (the agent does without):
//! - `server`: answers the calls of a connection, in batches, out of order where it must be.
//! - `client`: sends calls over one connection, pipelined.

#[cfg(feature = "net")]
pub mod client;
pub mod limits;
pub mod mount;
pub mod msg;
pub mod nfs3;
#[cfg(feature = "net")]
mod outbox;
pub mod record;
#[cfg(feature = "net")]
pub mod server;
pub mod xdr;
