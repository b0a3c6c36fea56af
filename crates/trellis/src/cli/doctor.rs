//! `trellis doctor`: checks what Trellis needs, and says what to do.

use super::output::stdout;
use super::{Done, Failure, StateArg};
use crate::control::client::{Client, unexpected};
use crate::control::proto::{Reply, Request};
use crate::control::report::{HomeReport, StatusReport};
use crate::doctor::{Finding, Level, here, homes};
use crate::login::{Logins, Way};
use crate::scl::Target;
use crate::{agents, config, limits, show};
use clap::Args;
use home::Home;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status 0 means that nothing has failed; what is only worth a look does not count.

Examples:
  trellis doctor
  trellis doctor --json | jq '.[] | select(.level != \"ok\")'")]
pub struct DoctorArgs {
    #[command(flatten)]
    state: StateArg,

    /// Print JSON: a list of findings with level, about, found, advice
    #[arg(long)]
    json: bool,

    /// Configuration, where no server runs
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Configuration for ssh (ssh -F), where no server runs
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
}

pub(super) async fn doctor(args: DoctorArgs) -> Done {
    let state = crate::state::StateDir::existing(args.state.dir.as_deref());
    let dir = state.as_ref().ok().and_then(Option::as_ref);
    let mut client = match dir {
        Some(dir) => Client::connect(dir).await?,
        None => None,
    };
    let report = match &mut client {
        Some(client) => {
            client.greet().await?;
            Some(status(client).await?)
        }
        None => None,
    };
    let cache = report.as_ref().map(|r| (r.cache.cap, r.cache.bytes));
    let mut found = vec![here::fuse()];
    if found[0].level == Level::Ok {
        found.push(here::fusectl());
    }
    found.extend(here::ssh(dir).await);
    found.extend(here::ports(dir, report.as_ref().map(|r| &r.nfs[..])));
    let wanted = args.state.dir.clone().map_or_else(crate::state::usual_dir, Ok)?;
    found.push(here::disk(state.as_ref().map(Option::as_ref).map_err(String::as_str), &wanted, cache));
    found.push(here::limits());
    match (&mut client, report) {
        (Some(client), Some(report)) => through_server(client, report, &mut found).await?,
        _ => directly(&args, dir, &mut found).await?,
    }
    let text = match args.json {
        true => serde_json::to_string(&found).map_err(|e| e.to_string())? + "\n",
        false => readable(&found),
    };
    stdout().write_all(text.as_bytes())?;
    match found.iter().any(|f| f.level == Level::Fail) {
        true => Err(Failure::Failed(None)),
        false => Ok(()),
    }
}

async fn status(client: &mut Client) -> Result<StatusReport, Failure> {
    match client.ask(Request::Status).await? {
        Reply::Status(report) => Ok(*report),
        _ => Err(unexpected().into()),
    }
}

/// Asks the server to try what nobody uses just now; what was refused lately is left to its pause.
async fn through_server(client: &mut Client, before: StatusReport, found: &mut Vec<Finding>) -> Done {
    found.push(homes::server(&before));
    let mut failed = Vec::new();
    for home in before.homes.iter().filter(|h| h.state == "idle") {
        let Some(name) = home.names.first() else { continue };
        let tried = within(limits::DOCTOR_PATIENCE, client.ask(Request::LoggedIn(name.clone()))).await?;
        failed.extend(tried.err().map(|e| (home.account.clone(), e.detail)));
    }
    let report = status(client).await?;
    for home in report.homes.iter().filter(|h: &&HomeReport| !h.account.starts_with("local:")) {
        let tried = failed.iter().find(|(account, _)| *account == home.account).map(|(_, why)| why.as_str());
        found.extend(homes::home(home, tried));
    }
    found.extend(report.unreached.iter().map(homes::unreached));
    Ok(())
}

async fn within<T>(patience: Duration, ask: impl Future<Output = T>) -> Result<T, Failure> {
    let late = || Failure::from("the server does not answer in time; try again".to_owned());
    tokio::time::timeout(patience, ask).await.map_err(|_| late())
}

/// Where no server runs, the configured homes are tried one by one.
async fn directly(
    args: &DoctorArgs,
    state: Option<&crate::state::StateDir>,
    found: &mut Vec<Finding>,
) -> Done {
    found.push(Finding::ok("server", "none runs; `trellis mount`, `service start` or `serve` start one"));
    let file = config::load(args.config.as_deref())?;
    let way = Way::new(args.ssh_config.clone().or(file.ssh_config), state);
    let logins = Logins { homes: file.home, way };
    for entry in &logins.homes {
        let Target::Remote(account, _) = &entry.scl else { continue };
        let name = show::text(entry.name.as_bytes());
        let target = logins.way.target(account)?;
        let home = home::connect(target, agents::binaries());
        found.push(match tokio::time::timeout(limits::DOCTOR_PATIENCE, home.attach()).await {
            Ok(Ok(hello)) => {
                let how = if hello.class == home::Class::Posix { "the agent" } else { "SFTP" };
                Finding::ok("home", format!("{name} lets us in and is served by {how}"))
            }
            Ok(Err(e)) => {
                let advice = match home.status().login {
                    Some(command) => format!("run `{command}`"),
                    None => format!("make `ssh {account}` work"),
                };
                Finding::fail("home", format!("{name}: {}", show::message(&e.detail)), advice)
            }
            Err(_) => Finding::fail("home", format!("{name} does not answer in time"), "try `ssh` to it"),
        });
        home.close();
    }
    Ok(())
}

fn readable(found: &[Finding]) -> String {
    let mut out = String::new();
    for finding in found {
        let level = match finding.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        out += &format!("{level}  {:<7} {}\n", finding.about, finding.found.replace('\n', " "));
        if let Some(advice) = &finding.advice {
            out += &format!("              {}\n", advice.replace('\n', " "));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_says_how_bad_it_is_and_what_to_do() {
        let found = [Finding::ok("ssh", "OpenSSH"), Finding::fail("disk", "full", "make room")];
        assert_eq!(readable(&found), "ok    ssh     OpenSSH\nFAIL  disk    full\n              make room\n");
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json[1]["level"], "fail");
        assert_eq!(json[0]["advice"], serde_json::Value::Null);
    }
}
