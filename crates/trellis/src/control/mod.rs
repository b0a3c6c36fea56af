//! The control socket: how the commands speak to the running server.
//!
//! A unix socket `control` (mode 0600) in the private state directory; on top of that the server asks the
//! kernel who is at the other end and serves only its own user and root. The client asks one question at a
//! time. A message is one line of JSON, which may announce raw bytes that follow it.
//!
//! - [`proto`]: the messages, shared by both ends.
//! - [`wire`]: lines and bytes on a stream.
//! - [`client`], [`server`]: the two ends; [`conflicts`]: what the latter says of conflicts;
//!   [`prefetch`]: what it fetches ahead for a connection.

pub mod client;
mod conflicts;
pub mod prefetch;
pub mod proto;
pub mod report;
pub mod server;
#[cfg(test)]
mod tests;
pub mod wire;
