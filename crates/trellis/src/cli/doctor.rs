//! `trellis doctor`: checks what Trellis needs, and says what to do.

use super::output::stdout;
use super::{Done, Failure, StateArg};
use crate::control::client::{Client, unexpected};
use crate::control::proto::{Raw, Reply, Request};
use crate::control::report::{HomeReport, StatusReport, UnreachedReport};
use crate::doctor::{Finding, Level, here, homes};
use crate::login::{Logins, Way};
use crate::options::Options;
use crate::scl::Target;
use crate::state::StateDir;
use crate::{advice, agents, config, limits, show};
use clap::Args;
use home::{Error, ErrorKind, Home};
use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use tokio::task::JoinSet;

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
    let state = StateDir::existing(args.state.dir.as_deref());
    let dir = state.as_ref().ok().and_then(Option::as_ref);
    // A server that does not answer is a finding like any other.
    let server = match dir {
        Some(dir) => ask(dir).await,
        None => Ok(None),
    };
    let report = server.as_ref().ok().and_then(|s| s.as_ref().map(|(_, _, report)| report));
    let mut found = here::fuse();
    found.extend(here::dead_mounts().await);
    found.extend(here::ssh(dir).await);
    found.extend(here::ports(dir, report.map(|r| &r.nfs[..])));
    let cache = report.map(|r| (r.cache.cap, r.cache.bytes));
    let wanted = args.state.dir.clone().map_or_else(crate::state::usual_dir, Ok);
    found.push(match (&state, &wanted) {
        (Ok(Some(state)), _) => here::disk(state, cache),
        (Ok(None), Ok(wanted)) => here::no_disk(wanted),
        (Err(why), _) | (_, Err(why)) => here::bad_disk(why),
    });
    found.push(here::limits());
    let file = config::load(args.config.as_deref());
    found.extend(file.as_ref().err().map(|why| bad_config(why)));
    match server {
        Ok(Some((state, client, report))) => through_server(state, client, report, &mut found).await,
        Ok(None) => directly(&args, file.unwrap_or_default(), dir, &mut found).await,
        Err(e) => found.push(Finding::fail(
            "server",
            show::message(&e.detail),
            "`trellis service logs` may show more",
        )),
    }
    for advice in found.iter_mut().filter_map(|f| f.advice.as_mut()) {
        *advice = advice::complete(advice);
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

/// The server of a state directory, if one runs, and what it reports.
async fn ask(state: &StateDir) -> home::Result<Option<(&StateDir, Client, StatusReport)>> {
    let connected = Client::connect(state).await.map_err(|e| Error::new(ErrorKind::Io, e))?;
    let Some(mut client) = connected else { return Ok(None) };
    client.greet().await?;
    let report = status(&mut client).await?;
    Ok(Some((state, client, report)))
}

/// A configuration that cannot be read: homes and options in it are not known.
fn bad_config(why: &str) -> Finding {
    let advice = "mend it: no server starts with it, and commands without a server need it, too";
    Finding::fail("config", show::message(why), advice)
}

async fn status(client: &mut Client) -> home::Result<StatusReport> {
    match client.ask(Request::Status).await? {
        Reply::Status(report) => Ok(*report),
        _ => Err(unexpected()),
    }
}

/// Asks the server to try every home that is not connected, also those that it would leave to a pause.
async fn through_server(
    state: &StateDir,
    mut client: Client,
    before: StatusReport,
    found: &mut Vec<Finding>,
) {
    found.push(homes::server(&before));
    let is_away = |h: &&HomeReport| !matches!(h.state.as_str(), "up" | "suspended");
    let away = before.homes.iter().filter(is_away).filter_map(|h| h.names.first());
    let names = away.chain(before.unreached.iter().map(|u| &u.name));
    let tried = try_all(state, names.take(limits::DOCTOR_TRIES)).await;
    let report = match status(&mut client).await {
        Ok(report) => report,
        Err(e) => return found.push(Finding::fail("server", show::message(&e.detail), "try again")),
    };
    let result = |name: Option<&String>| tried.get(name?);
    for home in report.homes.iter().filter(|h: &&HomeReport| !h.account.starts_with("local:")) {
        found.extend(homes::home(
            home,
            result(home.names.first()).and_then(|t| t.as_ref().err()).map(String::as_str),
        ));
    }
    for home in before.unreached {
        found.push(match result(Some(&home.name)) {
            Some(Ok(())) => Finding::ok("home", format!("{} lets us in", show::text(home.name.as_bytes()))),
            Some(Err(why)) => homes::unreached(&UnreachedReport { reason: why.clone(), ..home }),
            None => homes::unreached(&home),
        });
    }
}

/// Lets the server try homes at the same time; answers why those that do not let us in do not.
async fn try_all(
    state: &StateDir,
    names: impl Iterator<Item = &String>,
) -> HashMap<String, Result<(), String>> {
    let mut tries = JoinSet::new();
    for name in names.cloned() {
        let state = state.clone();
        tries.spawn(async move {
            let tried = tokio::time::timeout(limits::DOCTOR_PATIENCE, try_one(&state, name.clone()));
            (name, tried.await.unwrap_or_else(|_| Err("it does not answer in time".into())))
        });
    }
    tries.join_all().await.into_iter().collect()
}

async fn try_one(state: &StateDir, name: String) -> Result<(), String> {
    let client = Client::connect(state).await?;
    let mut client = client.ok_or("the server has ended")?;
    let path = format!("/{name}").into_bytes();
    let tried = match client.ask(Request::LoggedIn(name)).await {
        // Its local state may be damaged.
        Ok(_) => client.ask(Request::Resolve(Raw(path))).await,
        failed => failed,
    };
    tried.map(drop).map_err(|e| e.detail)
}

/// Where no server runs, the configured homes are tried one by one.
async fn directly(args: &DoctorArgs, file: Options, state: Option<&StateDir>, found: &mut Vec<Finding>) {
    let start = "none runs; `trellis mount`, `trellis service start` or `trellis serve` start one";
    found.push(Finding::ok("server", advice::complete(start)));
    let way = Way::new(args.ssh_config.clone().or(file.ssh_config), state);
    let logins = Logins { homes: file.home, way };
    for entry in &logins.homes {
        let Target::Remote(account, _) = &entry.scl else { continue };
        let name = show::text(entry.name.as_bytes());
        let target = match logins.way.target(account) {
            Ok(target) => target,
            Err(e) => {
                let why = format!("{name}: {}", show::message(&e.detail));
                found.push(Finding::fail("home", why, "mend it in the configuration"));
                continue;
            }
        };
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
}

fn readable(found: &[Finding]) -> String {
    let mut out = String::new();
    for finding in found {
        let level = match finding.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        let gap = format!("\n{:14}", "");
        out += &format!("{level}  {:<7} {}\n", finding.about, finding.found.trim_end().replace('\n', &gap));
        if let Some(advice) = &finding.advice {
            out += &format!("{:14}{}\n", "", advice.replace('\n', &gap));
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
        let long = [Finding::fail("config", "line 1\n  x = =\n", "mend it")];
        let gap = " ".repeat(14);
        assert_eq!(readable(&long), format!("FAIL  config  line 1\n{gap}  x = =\n{gap}mend it\n"));
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json[1]["level"], "fail");
        assert_eq!(json[0]["advice"], serde_json::Value::Null);
    }
}
