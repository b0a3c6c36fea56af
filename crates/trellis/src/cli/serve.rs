//! `trellis serve`.

use super::{Done, StateArg};
use crate::options::Options;
use crate::{config, serve};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis serve                                        for this machine; prints the mount line
  trellis serve --listen 10.0.0.1:2050 --allow 10.0.0.0/24 --hosts '*.example.org'")]
pub struct ServeArgs {
    #[command(flatten)]
    state: StateArg,

    /// Configuration [default: $XDG_CONFIG_HOME/trellis/config.toml or ~/.config/trellis/config.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Write {"nfs": ["ADDR:PORT", ...]} to this file once requests are accepted
    #[arg(long, value_name = "FILE")]
    ready: Option<PathBuf>,

    #[command(flatten)]
    pub(super) options: Options,
}

pub(super) async fn serve(args: ServeArgs) -> Done {
    let file = config::load(args.config.as_deref())?;
    let options = args.options.over(file);
    Ok(serve::run(serve::Serve { state: args.state.dir, ready: args.ready, options }).await?)
}
