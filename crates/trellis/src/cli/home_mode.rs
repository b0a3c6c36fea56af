//! `trellis mode`: another promise for a home, while the server runs.

use super::control::reach;
use super::reach::tree_path;
use super::{Done, StateArg, named};
use crate::control::client::unexpected;
use crate::control::proto::{Raw, Reply, Request};
use crate::options::ModeName;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Arguments of `mode`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis mode ann@lab offline        serve what is known, keep what is changed, leave the home alone
  trellis mode ann@lab wb             go on, and send it

It lasts until the server ends; the configuration says what holds after that, and what holds in single folders.
`trellis status` shows the modes. strict is for the configuration alone.")]
pub struct ModeArgs {
    #[command(flatten)]
    state: StateArg,

    /// The home, or any path of it
    path: OsString,

    /// Its mode as a whole
    mode: ModeName,
}

pub(super) async fn mode(args: ModeArgs) -> Done {
    let mut server = reach(&args.state).await?;
    let path = Raw(tree_path(&mut server, &args.path).await?);
    let mode = vfs::Mode::from(args.mode).to_string();
    match server.client.ask(Request::Mode { path, mode }).await {
        Ok(Reply::Done) => Ok(()),
        Ok(_) => Err(unexpected().into()),
        Err(e) => Err(named(args.path.as_bytes(), &e)),
    }
}
