//! The `trellis` program: one file tree over every machine that you can reach by SSH.
//!
//! # Layout
//! - [`cli`]: the commands, one file for each family.
//! - [`options`], [`config`], [`allow`], [`pattern`], [`scl`]: what a user may say, and what it means.
//! - [`serve`]: the server, put together; [`state`]: its directory on disk; [`daemon`], [`service`]: who keeps it
//!   running.
//! - [`root`]: which names there are and which account each means; [`accounts`], [`agents`]: the homes behind them;
//!   [`gate`], [`rate`], [`mounts`]: how often, and where not, we go.
//! - [`login`]: hosts that ask questions, and what is left of the answers.
//! - [`doctor`]: what Trellis needs, checked one by one.
//! - [`control`]: how commands speak to the running server; [`tree`]: files as commands see them; [`unsent`]: when they
//!   must not go around the journal.
//! - [`attach`]: mounts on machines that have no server of their own.
//! - [`crash`]: what a panic means; [`log`]: what is said without being asked. [`show`]: text for a person, [`advice`]:
//!   commands in it; [`limits`]: every bound.

// They panic where the text cannot be written: the disk of a log is full, the reader has gone.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod accounts;
mod advice;
mod agents;
mod allow;
mod attach;
mod cli;
mod config;
mod control;
mod crash;
mod daemon;
mod doctor;
mod dying;
mod gate;
mod limits;
mod log;
mod login;
mod mount;
mod mounts;
mod options;
mod pattern;
mod rate;
mod root;
mod scl;
mod serve;
mod service;
mod show;
mod state;
mod tree;
mod unsent;

fn main() -> std::process::ExitCode {
    cli::main()
}
