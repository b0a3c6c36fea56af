//! Deterministic simulation: the real engine and the real agent's code in a world that is made of one seed.
//!
//! # Layout
//! - [`machine`]: the home's machine: a file system that loses power, processes that die at a system call.
//! - [`network`]: connections and the agent's processes. [`coroutine`]: code that is left in the middle.
//! - [`gateway`]: the engine's processes over a disk that loses power.
//! - [`client`]: who calls the engine; [`model`]: what its tree has to be; [`compare`]: what the home has of it.
//! - [`chain`]: a client whose work shows in which order it comes to the home.
//! - [`outsider`]: another program at the home; [`sharer`]: a client in the same folder; [`ledger`]: whose bytes may go.
//! - [`refusals`]: what the home refused. [`neighbour`]: a client of another home.
//! - [`world`]: all together, what goes wrong, and what has to hold in the end.
//! - [`variant`]: agents that leave out what they must not.
//! - [`explore`]: every interleaving of small batches, within bounds.
//! - [`clock`]: virtual time. [`coverage`]: where things were interrupted.

pub mod chain;
pub mod client;
pub mod clock;
pub mod compare;
pub mod coroutine;
pub mod coverage;
pub mod explore;
pub mod gateway;
pub mod ledger;
pub mod machine;
pub mod model;
pub mod neighbour;
pub mod network;
pub mod outsider;
pub mod refusals;
pub mod sharer;
pub mod variant;
pub mod world;
