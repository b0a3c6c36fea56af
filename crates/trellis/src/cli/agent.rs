//! `trellis agent`: what we keep at the homes.

use super::output::stdout;
use super::{Done, Failure, StateArg};
use crate::accounts::Ssh;
use crate::config;
use crate::control::client::Client;
use crate::control::proto::{Reply, Request};
use crate::login::{Logins, Way};
use crate::root::Accounts;
use crate::{show, unsent};
use clap::{Args, Subcommand};
use home::agent::clean::{Extent, clean};
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `agent`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis agent clean ann@lab")]
pub struct AgentArgs {
    #[command(subcommand)]
    command: AgentCommand,
}

#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// Remove our programs from an account; they are installed again when it is used again
    Clean(CleanArgs),
}

/// Arguments of `agent clean`.
#[derive(Debug, Args)]
struct CleanArgs {
    #[command(flatten)]
    state: StateArg,

    /// Configuration [default: $XDG_CONFIG_HOME/trellis/config.toml or ~/.config/trellis/config.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Configuration for ssh (ssh -F)
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,

    /// Remove all that is ours, also the token by which the account is known again
    #[arg(long)]
    all: bool,

    /// The account: [user@]host, or the name of a configured home
    host: String,
}

pub(super) async fn agent(args: AgentArgs) -> Done {
    match args.command {
        AgentCommand::Clean(args) => clean_account(args).await,
    }
}

async fn clean_account(args: CleanArgs) -> Done {
    let file = config::load(args.config.as_deref())?;
    let state = args.state.existing()?;
    let way = Way::new(args.ssh_config.or(file.ssh_config), state.as_ref());
    let account = Logins { homes: file.home, way: way.clone() }.account(&args.host).map_err(usage)?;
    let ssh = Ssh::new(way);
    if args.all {
        nothing_unsent(&args.state, &ssh.identity(&account).await?).await?;
    }
    let extent = if args.all { Extent::Everything } else { Extent::Agents };
    let gone = clean(&ssh.target(&account)?.over_living_master().await?, extent).await?;
    let mut out = String::new();
    for path in &gone {
        out += &format!("removed {path}\n");
    }
    if gone.is_empty() {
        out += &format!("nothing of ours is at {}\n", show::text(args.host.as_bytes()));
    }
    Ok(stdout().write_all(out.as_bytes())?)
}

/// Without the token a home with unsent changes would be suspended.
async fn nothing_unsent(state: &StateArg, identity: &str) -> Done {
    let state = state.existing()?;
    let running = match &state {
        Some(state) => Client::reach(state).await?,
        None => None,
    };
    let Some(mut client) = running else {
        return unsent::check(state.as_ref())(identity).map_err(Failure::from);
    };
    let Reply::Status(status) = client.ask(Request::Status).await? else {
        return Err(crate::control::client::unexpected().into());
    };
    match status.homes.iter().any(|h| h.account == identity && h.unsent_ops > 0) {
        true => Err(format!(
            "{} lacks changes that are kept here: run `trellis sync` first, or leave out --all",
            show::text(identity.as_bytes())
        )
        .into()),
        false => Ok(()),
    }
}

fn usage(e: home::Error) -> Failure {
    Failure::Usage(show::message(&e.detail))
}
