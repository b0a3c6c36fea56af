//! For tests of this crate and of its users.
//!
//! - [`conformance`]: what every home must do.
//! - [`fault`]: a home that dies, hangs and comes back on demand.
//! - [`sshd`]: a real SSH server on loopback, and a built agent.
//! - [`user`]: tests that must not run as root.

pub mod conformance;
pub mod fault;
pub mod sshd;
pub mod user;

pub use conformance::{DirOutside, Outside, Subject, conformance};
pub use fault::{Fault, FaultHome};
