//! A posix home on another machine: a small program there, and our end of the pipe to it.
//!
//! # Layout
//! - [`frame`]: how messages are laid out on the pipe; [`codec`]: which of them are packed; [`verbs`]: what they say;
//!   [`crate::limits::agent`]: how big they get.
//! - [`server`]: the far end, synchronous and without a runtime, because it runs on someone else's machine.
//! - [`join`]: further pipes into it; [`keep`]: what it watches outlives a lost connection.
//! - [`client`]: our end: many callers, one pipe.
//! - [`deploy`]: gets the program there and starts it, in one `ssh` execution; [`clean`] takes it away again.
//!
//! The protocol is described in `docs/PROTOCOL.agent.md`.

pub mod codec;
pub mod frame;
#[cfg(test)]
mod golden;
pub mod join;
pub mod keep;
pub mod server;
pub mod verbs;

#[cfg(feature = "client")]
pub mod clean;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod deploy;
