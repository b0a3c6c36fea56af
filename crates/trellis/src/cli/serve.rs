//! `trellis serve`.

use super::{Done, Failure, StateArg, complaint};
use crate::options::Options;
use crate::{config, log, serve};
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
    let served = async {
        let options = args.options.over(config::load(args.config.as_deref())?);
        serve::run(serve::Serve { state: args.state.dir, ready: args.ready, options }).await
    };
    served.await.map_err(|why| {
        log::say(&complaint(&why));
        Failure::Failed(None)
    })
}
