//! Scenarios.

use anyhow::{Result, bail};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {}

/// Runs.
pub fn command(_args: Args) -> Result<()> {
    bail!("no")
}
/// Runs.
pub fn ci_part() -> Result<()> {
    bail!("no")
}
