//! `cargo xtask kernel-client`: hands over to the script that runs a guest (`kernel-client/README.md`).

use crate::run;
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Arguments of the script.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// `run [OPTION]… -- COMMAND`, `check`, `info`, `cleanup` or `help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Where the script is.
pub fn script() -> PathBuf {
    run::tree().join("crates/xtask/kernel-client/kernel-client")
}

/// Becomes the script.
pub fn command(args: Args) -> Result<()> {
    let error = Command::new(script()).args(args.args).exec();
    Err(error).with_context(|| format!("cannot run {}", script().display()))
}
