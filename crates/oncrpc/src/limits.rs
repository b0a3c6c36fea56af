//! Every bound of the RPC layer in one place.
//!
//! A connection that reaches a bound is not read until it falls below it again; TCP then slows the
//! peer down. Only a record that is too long, or a peer that takes no replies for too long, ends it.

use std::time::Duration;

/// Default for the longest record: the largest payload (1 MiB) and 64 KiB for everything around it.
pub const RECORD_MAX: usize = (1 << 20) + (64 << 10);

/// How much room a connection's receive buffer has when no longer record is under way, in bytes.
pub const READ_BUFFER: usize = 64 << 10;

/// A receive buffer with less room than this gets a fresh [`READ_BUFFER`] before the next read, in bytes.
pub const READ_ROOM_MIN: usize = 4 << 10;

/// Receive buffers that a connection keeps for reuse; each holds one long record or many short ones.
pub const SPARE_BUFFERS_MAX: usize = 4;

/// Parts of one vectored write; Linux takes 1024 (`IOV_MAX`) at most.
pub const IO_SLICES_MAX: usize = 256;

/// Replies of so many bytes are sent before further requests run: what was just read from a cache is then still in
/// the processor's, and its memory is free for the next one.
pub const WRITE_SOON: usize = 512 << 10;

/// The longest body of a credential or verifier in bytes (RFC 5531 section 8.2).
pub const AUTH_BODY_MAX: usize = 400;

/// The longest machine name of AUTH_SYS in bytes (RFC 5531 appendix A).
pub const MACHINE_NAME_MAX: usize = 255;

/// The most supplementary groups of AUTH_SYS (RFC 5531 appendix A).
pub const GIDS_MAX: usize = 16;

/// Requests a client holds back before `call` waits for the connection to take them.
pub const CLIENT_QUEUE: usize = 1024;

/// Bounds of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The longest record in bytes, over all its fragments.
    pub record_max: usize,
    /// Requests of one connection that may run at the same time.
    pub in_flight_max: usize,
    /// Bytes of requests that run at the same time on one connection, with the replies they announce
    /// (`Service::reply_hint`).
    pub in_flight_bytes_max: usize,
    /// Bytes of finished replies that a connection may hold for a peer that reads slowly. One batch may
    /// pass it by its last reply.
    pub reply_bytes_max: usize,
    /// Connections of one listener; further ones are closed at once.
    pub connections_max: usize,
    /// Connections of one listener beyond which addresses that the service does not welcome get none.
    pub strangers_max: usize,
    /// A connection that takes no byte of waiting replies for this long is closed.
    pub write_stall_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            record_max: RECORD_MAX,
            in_flight_max: 256,
            in_flight_bytes_max: 32 << 20,
            reply_bytes_max: 8 << 20,
            connections_max: 1024,
            strangers_max: 64,
            write_stall_max: Duration::from_secs(120),
        }
    }
}

impl Limits {
    /// How many connections a listener may have before the next one is closed at once.
    #[cfg(feature = "net")]
    pub(crate) fn connections_for(&self, welcome: bool) -> usize {
        if welcome { self.connections_max } else { self.connections_max.min(self.strangers_max) }
    }
}
