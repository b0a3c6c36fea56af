//! `trellis login`: the one place where questions are asked.

use super::output::stdout;
use super::{Done, Failure, StateArg};
use crate::control::client::{Client, unexpected};
use crate::control::proto::{Reply, Request};
use crate::login::record::{self, Record};
use crate::login::{Logins, Way, folder, watch};
use crate::options::Seconds;
use crate::state::StateDir;
use crate::{advice, config, show};
use clap::Args;
use home::io_text;
use home::ssh::{Facts, Master, SshTarget};
use serde::Serialize;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const HOSTS: &str = "\
HOST is named as in the tree: [user@]host, an alias of ssh, [user@][IPv6], scp:[user@]host:, or a configured home.

Your own ssh asks whatever there is to ask: passwords, codes, a new host key. Then it stays as a master connection in
the background, which the server's connections go through. A host key that has changed is never accepted here.

Examples:
  trellis login ann@lab
  trellis login --for 8h lab
  trellis login --list
  trellis login --end ann@lab
  trellis login --same-account ann@lab  says that a suspended home's account is the one that it was";

/// Arguments of `login`.
#[derive(Debug, Args)]
#[command(after_help = HOSTS)]
pub struct LoginArgs {
    #[command(flatten)]
    state: StateArg,

    /// Where to log in
    #[arg(required_unless_present = "list")]
    host: Option<String>,

    /// How long the login stays without use, such as 8h [default: 12h, or what your ControlPersist says]
    #[arg(long = "for", value_name = "TIME", value_parser = stays, conflicts_with_all = ["end", "list"])]
    stays: Option<Seconds>,

    /// End the login
    #[arg(long, conflicts_with = "list")]
    end: bool,

    /// Say that the account of a suspended home is the one that it was: shows what differs and what is unsent, and asks
    #[arg(long, conflicts_with_all = ["end", "list", "stays"])]
    same_account: bool,

    /// Do not ask (with --same-account)
    #[arg(long, requires = "same_account")]
    yes: bool,

    /// Show the logins and how long they stay
    #[arg(long, conflicts_with = "host")]
    list: bool,

    /// Print JSON (with --list)
    #[arg(long, requires = "list")]
    json: bool,

    /// Configuration, where no server runs
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Configuration for ssh (ssh -F), where no server runs
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
}

/// How long a login stays. ssh counts in seconds, and takes 0 for ever (ssh_config(5) ControlPersist).
fn stays(text: &str) -> Result<Seconds, String> {
    let time: Seconds = text.parse()?;
    match time.0 < std::time::Duration::from_secs(1) {
        true => Err("a login stays for a second or longer; `trellis login --end HOST` ends one".into()),
        false => Ok(time),
    }
}

/// Everything about one HOST.
struct Login {
    name: String,
    state: StateDir,
    server: Option<Client>,
    target: SshTarget,
    facts: Facts,
    master: Master,
}

pub(super) async fn login(args: LoginArgs) -> Done {
    if let (Some(host), true) = (&args.host, args.same_account) {
        return super::same_account::confirm(&args.state, host.trim_matches('/'), args.yes).await;
    }
    // Our master is for this machine, wherever the directory lies.
    let state = StateDir::create(args.state.dir.as_deref(), true)?;
    match (&args.host, args.list) {
        (Some(host), false) => {
            let login = prepare(host.trim_matches('/').to_owned(), state, &args).await?;
            if args.end { end(login).await } else { begin(login, args.stays).await }
        }
        _ => list(&state, args.json).await,
    }
}

/// Asks the server, or else the configuration, what HOST means and how ssh reaches it.
async fn prepare(name: String, state: StateDir, args: &LoginArgs) -> Result<Login, Failure> {
    let wrong = |e: home::Error| match e.kind {
        home::ErrorKind::Invalid => Failure::Usage(show::message(&e.detail)),
        _ => e.into(),
    };
    let mut server = Client::reach(&state).await?;
    let target = match &mut server {
        Some(client) => of_server(client, &name, args).await?,
        None => {
            let file = config::load(args.config.as_deref())?;
            let ssh_config = args.ssh_config.clone().or(file.ssh_config);
            crate::serve::check_ssh_config(ssh_config.as_deref())?;
            let logins = Logins { homes: file.home, way: Way::new(ssh_config, Some(&state)) };
            logins.way.target(&logins.account(&name).map_err(wrong)?).map_err(wrong)?
        }
    };
    let facts = target.facts().await?;
    // Says why there is no place for a socket; the way above only leaves it out.
    let folder = folder::of(&state)?;
    let master = Master::of(&facts, Some(&folder)).ok_or_else(|| "no place for a socket".to_owned())?;
    Ok(Login { name, state, server, target, facts, master })
}

async fn of_server(client: &mut Client, name: &str, args: &LoginArgs) -> Result<SshTarget, Failure> {
    let way = match client.ask(Request::Way(name.to_owned())).await {
        Ok(Reply::Way(way)) => way,
        Ok(_) => return Err(unexpected().into()),
        Err(e) if e.kind == home::ErrorKind::Invalid => return Err(Failure::Usage(show::message(&e.detail))),
        Err(e) => return Err(e.into()),
    };
    let wished = args.ssh_config.as_ref().map(std::path::absolute).transpose();
    let wished = wished.map_err(|e| format!("--ssh-config: {}", io_text(&e)))?;
    if wished.is_some() && wished != way.ssh_config {
        let why = match &way.ssh_config {
            Some(file) => format!("the running server uses {}", file.display()),
            None => "the running server uses your own configuration".into(),
        };
        return Err(Failure::Usage(format!(
            "--ssh-config: {why}, and so does its login; leave the option out"
        )));
    }
    let target = SshTarget::new(way.user.as_deref(), &way.host)?;
    Ok(target.with_config(way.ssh_config).with_masters(way.masters))
}

async fn begin(mut login: Login, stays: Option<Seconds>) -> Done {
    let before = login.target.tell_master(&login.master, "check").await.ok();
    let mut made = None;
    if before.is_none() {
        let configured = login.facts.control_persist;
        let persist = record::persist(stays.map(|s| s.0), login.master.own, configured);
        let known = known_hosts(&login.facts);
        let status = login.target.login(&login.facts, &login.master, persist).await?;
        if !status.success() {
            return Err(refused(&login, known != known_hosts(&login.facts)).into());
        }
        login.target.tell_master(&login.master, "check").await.map_err(|e| {
            format!(
                "{}: ssh let you in, but left no master connection ({}); {}",
                show::text(login.name.as_bytes()),
                show::message(&e.detail),
                without_master(&login.master.socket)
            )
        })?;
        let record = Record {
            host: login.name.clone(),
            account: login.facts.account.to_string(),
            socket: login.master.socket.clone(),
            own: login.master.own,
            idle_s: record::idle_seconds(persist),
            since: watch::now(),
        };
        if let Err(why) = record::keep(&login.state, &record) {
            // It is for people to see; the login is what was wanted.
            super::complain(&format!(
                "you are logged in, but that cannot be noted: {why}: make room there; until you log in again after \
                 `trellis login --end`, `trellis login --list` does not show it"
            ));
        }
        made = Some(record);
    }
    let account = login.facts.account.to_string();
    let noted = || record::of(&login.state, &account).filter(|r| r.socket == login.master.socket);
    let lifetime = match made.or_else(noted) {
        Some(record) => record.lifetime(),
        None if login.master.own => "lives as your ssh configuration says".into(),
        None => "stays as long as it was made for, which could not be noted then".into(),
    };
    let word = if before.is_some() { "already logged in" } else { "logged in" };
    let shown = show::text(login.name.as_bytes());
    writeln!(stdout(), "{word} to {shown} ({}); the login {lifetime}", show::text(account.as_bytes()))?;
    match &mut login.server {
        Some(server) => tell_server(server, &login.name, before.is_some()).await,
        None => Ok(()),
    }
}

/// What may be the reason that there is no master, and what to do.
fn without_master(socket: &Path) -> String {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    match crate::state::disk_is_full(folder) {
        true => {
            let folder = show::text(folder.as_os_str().as_encoded_bytes());
            format!("the disk of {folder}, where its socket would be, is full: make room there and try again")
        }
        false => "does its configuration forbid ControlMaster?".into(),
    }
}

/// Tells one state of the files that ssh notes the keys of hosts in from another.
fn known_hosts(facts: &Facts) -> Vec<Option<(u64, u64, i64, i64)>> {
    let state = |file: &PathBuf| {
        file.metadata().ok().map(|meta| (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
    };
    facts.known_hosts.iter().map(state).collect()
}

/// Why nobody could answer ssh's questions, if nobody could: it asks at the terminal, or by a program of the user's.
fn nobody_to_ask() -> &'static str {
    let asks = std::fs::File::open("/dev/tty").is_ok() || std::env::var_os("SSH_ASKPASS").is_some();
    if asks { "" } else { "; a login that asks questions needs a terminal, and there is none: run it at one" }
}

/// ssh has said the rest, except what hosts on the way said to it. `noted`: it has noted the key of a host.
fn refused(login: &Login, noted: bool) -> String {
    let way = login.facts.jump.as_ref().map(|jump| {
        format!(
            " (where ssh gives no other reason, {} on the way refused the answer)",
            show::text(jump.as_bytes())
        )
    });
    let strict = match login.facts.strict {
        true => {
            "; a host that is not known yet is refused by StrictHostKeyChecking in your ssh configuration: add its key to \
             known_hosts yourself"
        }
        false => "",
    };
    let changed = match (noted, login.facts.account.via.is_some()) {
        (true, _) => "; a host's key was added to known_hosts, and nothing else has changed",
        // Hosts on the way may have files of their own.
        (false, true) => "",
        (false, false) => "; nothing has changed",
    };
    format!(
        "{}: not logged in{}{changed}{strict}{}",
        show::text(login.name.as_bytes()),
        way.unwrap_or_default(),
        nobody_to_ask()
    )
}

/// The server tries at once, and says what came of it.
async fn tell_server(server: &mut Client, name: &str, before: bool) -> Done {
    let shown = show::text(name.as_bytes());
    match server.ask(Request::LoggedIn(name.to_owned())).await {
        Ok(_) => Ok(writeln!(stdout(), "the server is connected to {shown}")?),
        Err(e) => {
            let again = if before {
                "; `trellis login --end` ends this login, and you can make a new one"
            } else {
                ""
            };
            let what =
                if e.kind == home::ErrorKind::Setup { "is let in, but cannot use" } else { "does not reach" };
            Err(format!("the server {what} {shown}: {}{again}", show::message(&e.detail)).into())
        }
    }
}

async fn end(login: Login) -> Done {
    let shown = show::text(login.name.as_bytes());
    let account = login.facts.account.to_string();
    let ended = login.target.tell_master(&login.master, "exit").await;
    record::forget(&login.state, &account);
    match ended {
        Ok(_) => Ok(writeln!(stdout(), "ended the login to {shown}")?),
        Err(_) => {
            if !login.master.own && !login.master.is_alive() {
                // A dead one of ours; the user's own is ssh's to remove.
                let _ = std::fs::remove_file(&login.master.socket);
            }
            Err(format!("{shown}: there is no login to end").into())
        }
    }
}

/// A line of the list.
#[derive(Debug, Serialize)]
struct Listed {
    host: String,
    account: String,
    socket: PathBuf,
    /// False where it has ended.
    alive: bool,
    /// Whether the server is connected to the home; null where no server runs.
    in_use: Option<bool>,
    /// Seconds after the last use at which it ends; null where it stays.
    ends_after_idle_s: Option<u64>,
    /// Seconds until then at least; null where it is in use or stays.
    left_s: Option<i64>,
}

async fn list(state: &StateDir, json: bool) -> Done {
    let up = match Client::connect(state).await? {
        Some(mut client) => match client.ask(Request::Status).await? {
            Reply::Status(report) => Some(report.homes),
            _ => return Err(unexpected().into()),
        },
        None => None,
    };
    let in_use =
        |account: &str| up.as_ref().map(|h| h.iter().any(|h| h.account == account && h.state == "up"));
    let now = watch::now();
    let listed: Vec<Listed> = record::all(state)
        .into_iter()
        .map(|r| {
            let (alive, in_use) = (r.master().is_alive(), in_use(&r.account));
            let left_s =
                r.ends(r.since).filter(|_| alive && in_use != Some(true)).map(|end| (end - now).max(0));
            let ends_after_idle_s = r.idle_s;
            Listed {
                host: r.host,
                account: r.account,
                socket: r.socket,
                alive,
                in_use,
                ends_after_idle_s,
                left_s,
            }
        })
        .collect();
    let text = match json {
        true => serde_json::to_string(&listed).map_err(|e| e.to_string())? + "\n",
        false => readable(&listed),
    };
    Ok(stdout().write_all(text.as_bytes())?)
}

fn readable(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return advice::complete("no logins; `trellis login HOST` makes one\n");
    }
    let mut rows = vec![["HOST", "ACCOUNT", "STATE", "STAYS"].map(str::to_owned).to_vec()];
    rows.extend(listed.iter().map(|l| {
        let state = match (l.alive, l.in_use) {
            (false, _) => "ended",
            (true, Some(true)) => "in use",
            (true, _) => "unused",
        };
        let stays = match (l.alive, l.ends_after_idle_s, l.left_s) {
            (false, ..) => "-".into(),
            (_, None, _) => "until it is ended".into(),
            (_, Some(idle), None) => format!("{} after its last use", record::span(idle)),
            (_, Some(idle), Some(0)) => format!("{} after its last use", record::span(idle)),
            (_, Some(idle), Some(left)) => {
                format!("{} after its last use, {} at least", record::span(idle), show::span(left as f64))
            }
        };
        vec![show::text(l.host.as_bytes()), show::text(l.account.as_bytes()), state.into(), stays]
    }));
    show::table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_tells_what_is_left() {
        let line = |alive, in_use, left_s| Listed {
            host: "lab".into(),
            account: "ann@lab:22".into(),
            socket: "/s".into(),
            alive,
            in_use,
            ends_after_idle_s: Some(43_200),
            left_s,
        };
        let text =
            readable(&[line(true, Some(true), None), line(true, None, Some(7200)), line(false, None, None)]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with("in use  12h after its last use"), "{text}");
        assert!(lines[2].ends_with("12h after its last use, 2h00m at least"), "{text}");
        assert!(lines[3].ends_with("ended   -"), "{text}");
        assert!(readable(&[]).contains("trellis login HOST"));
    }
}
