//! Commands to the running server: `status`, `sync`, `stop`.

use super::output::stdout;
use super::{Done, Failure, StateArg};
use crate::attach::record::{self, Record};
use crate::control::client::{Client, unexpected};
use crate::control::proto::{Raw, Reply, Request};
use crate::control::report::{ExpiryReport, HomeReport, StatusReport};
use crate::login::record::span;
use crate::mounts::path_inside;
use crate::options::Seconds;
use crate::serve::unsent_line;
use crate::state::StateDir;
use crate::{advice, limits, show};
use clap::Args;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// Parked operations of a home that a person sees.
const PARKED_SHOWN: usize = 5;

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis status
  trellis status --json | jq '.homes[] | {names, state, unsent_ops}'")]
pub struct StatusArgs {
    #[command(flatten)]
    state: StateArg,

    /// Print JSON; docs/STATUS.md lists the fields
    #[arg(long)]
    json: bool,
}

/// Arguments of `sync`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis sync                        everything, at all homes
  trellis sync ann@lab/data           all that belongs to that home; any path as `trellis ls` takes it")]
pub struct SyncArgs {
    #[command(flatten)]
    state: StateArg,

    /// Only the home that this path belongs to
    path: Option<OsString>,

    /// Longest wait [default: 10m]
    #[arg(long, value_name = "S")]
    timeout: Option<Seconds>,
}

/// Arguments of `stop`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis stop
  trellis stop --drain 5m             what is unsent after that is kept for the next start")]
pub struct StopArgs {
    #[command(flatten)]
    state: StateArg,

    /// How long unsent changes may go home first [default: 10s]
    #[arg(long, value_name = "S")]
    drain: Option<Seconds>,
}

#[cfg(test)]
impl StopArgs {
    pub(super) fn state(&self) -> &StateArg {
        &self.state
    }
}

/// A connection to the server, which must run.
pub(super) async fn connect(state: &StateArg) -> Result<(Client, StateDir), Failure> {
    let none = "start one with `trellis mount` or `trellis serve`, or name another with --state DIR";
    match running(state).await? {
        Some(server) => Ok(server),
        None => Err(format!("{}: {none}", no_server(state)?).into()),
    }
}

/// A connection to the server, if one runs.
async fn running(state: &StateArg) -> Result<Option<(Client, StateDir)>, Failure> {
    let Some(dir) = state.existing()? else { return Ok(None) };
    let Some(mut client) = Client::reach(&dir).await? else { return Ok(None) };
    client.greet().await?;
    Ok(Some((client, dir)))
}

fn no_server(state: &StateArg) -> Result<String, Failure> {
    let dir = state.dir.clone().map_or_else(crate::state::usual_dir, Ok)?;
    Ok(format!("no server runs with state directory {}", show::text(dir.as_os_str().as_bytes())))
}

/// A running server: of this machine, or of another one whose server serves a mount here.
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) by: By,
}

/// How a server is reached.
pub(super) enum By {
    /// By its state directory.
    Here(StateDir),
    /// As the mount reaches it.
    Mount(Record),
}

impl By {
    /// Another connection to the same server, if it still runs.
    pub(super) async fn connect(&self) -> Option<Client> {
        match self {
            By::Here(state) => Client::connect(state).await.ok()?,
            By::Mount(record) => record.at().ok()?.control().await.ok(),
        }
    }
}

/// A connection to the server of this machine; where none runs and no state directory is named, to the one that serves a
/// mount here.
pub(super) async fn reach(state: &StateArg) -> Result<Server, Failure> {
    let none = match connect(state).await {
        Ok((client, dir)) => return Ok(Server { client, by: By::Here(dir) }),
        Err(none) => none,
    };
    let known = match (&state.dir, StateDir::existing(None)?) {
        (None, Some(dir)) => record::all(&dir),
        _ => Vec::new(),
    };
    let record = match &known[..] {
        [] => return Err(none),
        [one] => one.clone(),
        many => {
            let here = std::env::current_dir().unwrap_or_default();
            let within = |r: &&Record| path_inside(&here, &[r.mounted()]).is_some();
            let dirs: Vec<String> = many.iter().map(|r| show::text(&r.dir.0)).collect();
            let which = format!(
                "servers of several machines serve mounts here: go into the one that is meant: {}",
                dirs.join(", ")
            );
            many.iter().find(within).cloned().ok_or(Failure::from(which))?
        }
    };
    let mut client = record.at()?.control().await?;
    client.greet().await?;
    Ok(Server { client, by: By::Mount(record) })
}

pub(super) async fn status(args: StatusArgs) -> Done {
    let Server { mut client, by } = reach(&args.state).await?;
    let Reply::Status(report) = client.ask(Request::Status).await? else { return Err(unexpected().into()) };
    let at = match by {
        By::Mount(record) => {
            format!(
                "at       {}, for the mount {}\n",
                show::text(record.host.as_bytes()),
                show::text(&record.dir.0)
            )
        }
        By::Here(_) => String::new(),
    };
    let text = match args.json {
        true => serde_json::to_string(&report).map_err(|e| e.to_string())? + "\n",
        false => at + &advice::complete(&readable(&report)),
    };
    Ok(stdout().write_all(text.as_bytes())?)
}

pub(super) async fn sync(args: SyncArgs) -> Done {
    let mut server = reach(&args.state).await?;
    let path = match &args.path {
        Some(path) => Some(Raw(super::reach::tree_path(&mut server, path).await?)),
        None => None,
    };
    let timeout_s = args.timeout.map_or(limits::SYNC_TIMEOUT, |t| t.0).as_secs_f64();
    let of_path = |e: home::Error| match &args.path {
        Some(path) => format!("{}: {}", show::text(path.as_bytes()), show::message(&e.detail)).into(),
        None => Failure::from(e),
    };
    let Server { mut client, by } = server;
    match super::waiting::sync(&mut client, &by, path, timeout_s).await.map_err(of_path)? {
        Reply::Done => Ok(()),
        Reply::Unsent(unsent) => {
            unsent.iter().for_each(|home| super::complain(&unsent_line(home)));
            Err("not everything is at its home; `trellis status` shows why".to_owned().into())
        }
        _ => Err(unexpected().into()),
    }
}

pub(super) async fn stop(args: StopArgs) -> Done {
    match running(&args.state).await? {
        Some(server) => end(server, &args).await,
        None => {
            let none = no_server(&args.state)?;
            Err(format!("{none}, so there is nothing to stop; --state DIR names another").into())
        }
    }
}

/// The same for a service, which is stopped where nothing runs, as for systemctl(1).
pub(super) async fn stop_service(args: StopArgs) -> Done {
    match running(&args.state).await? {
        Some((mut client, dir)) => {
            let Reply::Status(report) = client.ask(Request::Status).await? else {
                return Err(unexpected().into());
            };
            end((client, dir), &args).await?;
            Ok(writeln!(stdout(), "stopped: process {}", report.pid)?)
        }
        None => {
            super::note(&format!("{}: it is stopped already", no_server(&args.state)?));
            Ok(())
        }
    }
}

async fn end((mut client, dir): (Client, StateDir), args: &StopArgs) -> Done {
    let drain_s = args.drain.map_or(limits::DRAIN_AT_SIGNAL, |t| t.0).as_secs_f64();
    let Reply::Unsent(left) = client.ask(Request::Stop { drain_s }).await? else {
        return Err(unexpected().into());
    };
    ended(&dir).await?;
    if left.is_empty() {
        return Ok(());
    }
    left.iter().for_each(|home| super::complain(&unsent_line(home)));
    Err("the server ended; these changes are kept and sent after the next start".to_owned().into())
}

/// Waits for the end of a server that was told to stop.
pub(super) async fn ended(state: &StateDir) -> Result<(), String> {
    let until = Instant::now() + limits::END_OF_PROCESS;
    while let Err(why) = state.lock_shared() {
        if Instant::now() > until {
            return Err(why);
        }
        tokio::time::sleep(limits::RETRY_PAUSE).await;
    }
    Ok(())
}

/// The report for a person.
fn readable(report: &StatusReport) -> String {
    let mut out = String::new();
    let nfs = match &report.nfs[..] {
        [] => "no NFS".into(),
        some => format!("NFS on {}", some.join(", ")),
    };
    let _ = writeln!(out, "server   process {}, {nfs}", report.pid);
    for mount in &report.mounts {
        let why = mount.problem.as_ref().map(|why| format!(": not mounted: {}", show::message(why)));
        let _ = writeln!(out, "mount    {}{}", show::text(mount.dir.as_bytes()), why.unwrap_or_default());
    }
    let cache = &report.cache;
    let waiting = match cache.waiting {
        0 => String::new(),
        some => format!(
            "; {} for room",
            if some == 1 { "1 writer waits".into() } else { format!("{some} writers wait") }
        ),
    };
    let _ = writeln!(
        out,
        "cache    {} of {} ({} unsent), {} objects, {} hits, {} misses; {} of {} requests waited for a home{waiting}\n",
        show::size(cache.bytes),
        show::size(cache.cap),
        show::size(cache.dirty_bytes),
        cache.inodes,
        cache.hits,
        cache.misses,
        cache.waited,
        cache.requests
    );
    if report.homes.is_empty() {
        out.push_str("no home was reached yet\n");
        unreached(&mut out, report);
        return out;
    }
    let head = [
        "HOME",
        "ACCOUNT",
        "STATE",
        "CLASS",
        "MODE",
        "STALE",
        "UNSENT",
        "OLDEST",
        "CONFLICTS",
        "PARKED",
        "TRIPS",
        "IN",
        "OUT",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(report.homes.iter().map(row));
    out.push_str(&show::table(&rows));
    for home in &report.homes {
        notes(&mut out, home);
    }
    unreached(&mut out, report);
    out
}

/// Homes that have never let us in have no line in the table.
fn unreached(out: &mut String, report: &StatusReport) {
    for name in &report.unreached {
        let (shown, why) = (show::text(name.name.as_bytes()), show::message(&name.reason));
        let _ = writeln!(out, "\n{shown}");
        if !name.also.is_empty() {
            let _ = writeln!(out, "  also named {}", show::text(name.also.join(", ").as_bytes()));
        }
        let _ = writeln!(out, "  {}: {}", name.state, why.replace('\n', "\n  "));
        let _ = name.login.iter().try_for_each(|command| writeln!(out, "  run: {}", show::message(command)));
    }
}

/// How old an answer may be; where changes are told, what is told of is as old as the way is long.
fn age(home: &HomeReport) -> String {
    let bound = home.staleness_s.map_or_else(|| "any".into(), |age| format!("≤ {}", show::span(age)));
    if home.freshness == "watched" { format!("watched, else {bound}") } else { bound }
}

fn row(home: &HomeReport) -> Vec<String> {
    let name = home.names.first().unwrap_or(&home.account);
    let unsent = match home.unsent_ops {
        0 => "-".to_owned(),
        ops => format!("{}, {}", show::count(ops, "op"), show::size(home.unsent_bytes)),
    };
    vec![
        show::text(name.as_bytes()),
        show::text(home.account.as_bytes()),
        home.state.clone(),
        home.class.clone().unwrap_or_else(|| "-".into()),
        home.mode.clone(),
        age(home),
        unsent,
        home.oldest_s.map_or_else(|| "-".into(), show::span),
        home.conflicts.to_string(),
        home.refused().to_string(),
        home.round_trips.to_string(),
        show::size(home.bytes_in),
        show::size(home.bytes_out),
    ]
}

fn notes(out: &mut String, home: &HomeReport) {
    let mut lines = Vec::new();
    if home.names.len() > 1 {
        lines.push(format!("also named {}", home.names[1..].join(", ")));
    }
    lines.extend(home.modes.iter().map(|below| format!("{} is {}", below.folder, below.mode)));
    let policies = home.conflict_policies.iter();
    lines.extend(policies.map(|p| format!("conflicts in {}: {}", p.folder, p.policy)));
    lines.extend(home.reason.iter().map(|why| format!("{}: {why}", home.state)));
    if home.kept {
        lines.push("shown as kept: it has not answered since the server started".into());
    }
    lines.extend(home.login.iter().map(|command| format!("run: {command}")));
    lines.extend(home.master.iter().map(|m| match m.ends_after_idle_s {
        Some(idle) => format!("login: a master connection, ends {} after its last use", span(idle)),
        None => "login: a master connection".into(),
    }));
    lines.extend(home.expires.iter().filter(|e| e.is_near()).map(ExpiryReport::sentence));
    lines.extend(home.journal.iter().map(|why| format!("accepts no changes: {why}")));
    lines.extend(home.alarm.iter().map(|what| format!("alarm: {what}")));
    lines.extend(home.weaker.iter().map(|what| format!("weaker: {what}")));
    let parked = home.parked.iter().take(PARKED_SHOWN);
    lines.extend(parked.map(|p| format!("parked {}: {}", p.seq, p.sentence())));
    if let Some(more) = home.parked.len().checked_sub(PARKED_SHOWN).filter(|n| *n > 0) {
        lines.push(format!("parked: {more} more; `trellis status --json` lists all"));
    }
    lines.extend(home.help().into_iter().map(str::to_owned));
    if home.conflict_copies > 0 {
        let copies = show::count(home.conflict_copies, "conflict");
        lines.push(format!("{copies} to be settled: `trellis conflicts` lists them"));
    }
    if !lines.is_empty() {
        let name = home.names.first().unwrap_or(&home.account);
        let _ = writeln!(out, "\n{}", show::text(name.as_bytes()));
    }
    for line in lines {
        let _ = writeln!(out, "  {}", show::message(&line).replace('\n', "\n  "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::report::{CacheReport, FolderPolicy, MountReport, ParkedReport, UnreachedReport};

    /// A home of which there is all to say.
    fn eventful() -> HomeReport {
        HomeReport {
            names: vec!["lab".into(), "scp:ann@lab:".into()],
            account: "ann@lab:22".into(),
            volume: 1,
            modes: vec![],
            conflict_policies: vec![FolderPolicy { folder: "/logs".into(), policy: "append-merge".into() }],
            mode: "wb".into(),
            class: Some("sftp".into()),
            state: "down".into(),
            reason: Some("refused\x1b[31m".into()),
            weaker: vec!["no hard links".into()],
            staleness_s: Some(5.0),
            freshness: "watched".into(),
            kept: true,
            unsent_ops: 3,
            unsent_bytes: 2048,
            oldest_s: Some(75.0),
            conflicts: 2,
            alarm: Some("somebody else".into()),
            conflict_copies: 1,
            parked: (9..16)
                .map(|seq| ParkedReport {
                    seq,
                    what: "write x".into(),
                    why: "permission denied".into(),
                    count: 1 + u64::from(seq == 9) * 95,
                    help: "give the permission".into(),
                    damaged: false,
                })
                .collect(),
            round_trips: 7,
            damaged: 0,
            bytes_in: 1,
            bytes_out: 2,
            journal: None,
            walks: Default::default(),
            login: Some("trellis login ann@lab".into()),
            master: None,
            clock_ahead_s: None,
            expires: vec![ExpiryReport { what: "the ticket".into(), in_s: 75.0, renew: "run kinit".into() }],
        }
    }

    #[test]
    fn a_person_sees_everything_and_no_escapes() {
        let (cap, requests, waited) = (1 << 30, 8, 7);
        let cache = CacheReport {
            bytes: 1,
            cap,
            dirty_bytes: 0,
            waiting: 0,
            inodes: 4,
            hits: 5,
            misses: 6,
            requests,
            waited,
        };
        let mounts = vec![MountReport { dir: "/home/me/trellis".into(), problem: Some("not empty".into()) }];
        let report = StatusReport {
            homes: vec![eventful()],
            cache,
            unreached: vec![UnreachedReport {
                name: "far".into(),
                also: vec!["scp:far:".into()],
                state: "login needed".into(),
                reason: "it asks".into(),
                login: Some("trellis login far".into()),
            }],
            nfs: vec!["127.0.0.1:7".into()],
            mounts,
            pid: 42,
            version: "1".into(),
        };
        let text = readable(&report);
        for part in [
            "127.0.0.1:7",
            "/home/me/trellis: not mounted: not empty",
            "42",
            "3 ops, 2.0 KiB",
            "1m15s",
            "watched, else ≤ 5.0s",
            "shown as kept",
            "also named scp:ann@lab:",
            "no hard links",
            "conflicts in /logs: append-merge",
            "  102  ",
            "parked 9: write x (96 changes): permission denied",
            "parked 10: write x: permission",
            "parked: 2 more",
            "give the permission",
            "1 conflict to be settled: `trellis conflicts`",
            "run: trellis login ann@lab",
            "the ticket ends in 1m15s; run kinit",
            "far\n  also named scp:far:\n  login needed: it asks\n  run: trellis login far",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert_eq!(text.matches("give the permission").count(), 1, "{text}");
        assert!(!text.contains('\x1b') && !text.contains("parked 14"), "{text}");
    }
}
