//! A mount on one machine, served by the server on another: the kernel's FUSE messages travel over the user's ssh.
//!
//! ```text
//!  compute node                                        login node
//!  kernel ◄─ /dev/fuse ─► relay ◄═ ssh ═► `trellis attach` ◄─ control socket ─► server ◄─ socket ─► FUSE front-end
//! ```
//! So there is one engine, one cache and one queue of changes, and nothing on the compute node but a relay. A call is
//! acknowledged to the program when the server has answered, so that neither end can lose what was acknowledged.
//!
//! - [`line`]: messages that survive the connection: numbered, kept until the other side has them, sent again after a
//!   cut, never twice.
//! - [`relay`]: carries messages between a descriptor ([`packets`]) and one connection; both ends are the same.
//! - [`server`]: sessions of other machines in the server. [`client`]: the compute node's end. [`requests`]: what the
//!   kernel there still waits for.
//! - [`record`]: which servers serve mounts of this machine, and how commands reach them.

pub mod client;
pub mod line;
mod packets;
pub mod record;
pub mod relay;
mod requests;
pub mod server;

use serde::{Deserialize, Serialize};

/// What `trellis attach` prints before its first frame; whatever came before is noise of start-up files.
pub const MARKER: &str = "trellis-attached ";

/// The line behind [`MARKER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// How many messages the server has had in this session.
    pub received: u64,
    /// The session began now: whatever was before is unknown here.
    pub fresh: bool,
}
