//! ONC RPC version 2 (RFC 5531) and XDR (RFC 4506), with the NFS and MOUNT wire types.
//!
//! # Layout
//! - [`xdr`]: encode and decode; payloads are slices of the buffer they arrived in.

pub mod xdr;
