//! What a command waits for, told on standard error while it waits: a person sees why nothing happens, and what to do.

use super::control::By;
use super::note;
use crate::control::client::Client;
use crate::control::proto::{Raw, Reply, Request};
use crate::control::report::{HomeReport, StatusReport};
use crate::{limits, show};
use home::Result;
use std::collections::HashMap;
use std::time::Instant;
use vfs::Oid;

/// Waits until the homes have everything, or one (`path`); tells after [`limits::SAY_AFTER`] what for.
pub(super) async fn sync(
    client: &mut Client,
    server: &By,
    path: Option<Raw>,
    timeout_s: f64,
) -> Result<Reply> {
    let asked = path.clone();
    tokio::select! {
        reply = client.ask(Request::Sync { path, timeout_s }) => reply,
        never = tell(server, asked) => match never {},
    }
}

/// Tells of homes that are waited for until nobody listens any more.
async fn tell(server: &By, path: Option<Raw>) -> std::convert::Infallible {
    let mut told = Told::default();
    tokio::time::sleep(limits::SAY_AFTER).await;
    // Once: a path that is asked for is worth an attempt to log in.
    let Some(volume) = meant(server, path).await else { return std::future::pending().await };
    loop {
        // Whoever waits hears of a server that has gone.
        if let Some(report) = look(server).await {
            told.lines(&report, volume, Instant::now()).iter().for_each(|line| note(line));
        }
        tokio::time::sleep(limits::SAY_EVERY).await;
    }
}

/// The volume of a path; none is all of them. `None` where that cannot be found out.
async fn meant(server: &By, path: Option<Raw>) -> Option<Option<u32>> {
    let Some(path) = path else { return Some(None) };
    match server.connect().await?.ask(Request::Resolve(path)).await {
        Ok(Reply::Object(object)) => Some(Some(object.id.volume).filter(|v| *v != Oid::ROOT_VOLUME)),
        _ => None,
    }
}

/// The state of all homes.
async fn look(server: &By) -> Option<StatusReport> {
    match server.connect().await?.ask(Request::Status).await {
        Ok(Reply::Status(report)) => Some(*report),
        _ => None,
    }
}

/// What was last said of each volume: why it is waited for, what was left, and when.
#[derive(Default)]
struct Told(HashMap<u32, (String, (u64, u64), Instant)>);

impl Told {
    /// What there is to say now: of each home first, then when the reason is another one, and now and then how much is
    /// left where that has changed.
    fn lines(&mut self, report: &StatusReport, volume: Option<u32>, now: Instant) -> Vec<String> {
        let wanted = |h: &&HomeReport| h.unsent_ops > 0 && volume.is_none_or(|v| v == h.volume);
        let mut lines = Vec::new();
        for home in report.homes.iter().filter(wanted) {
            let (why, left) = (reason(home), (home.unsent_ops, home.unsent_bytes));
            let known = self.0.get(&home.volume).is_some_and(|(before, then, at)| {
                *before == why && (*then == left || now.duration_since(*at) < limits::SAY_AGAIN)
            });
            if !known {
                let name = home.names.first().unwrap_or(&home.account);
                let (name, bytes) = (show::text(name.as_bytes()), show::size(left.1));
                let why_shown = show::message(&why).replace('\n', "\n  ");
                let operations = show::count(left.0, "operation");
                lines.push(format!("waiting for {name}: {operations}, {bytes} left: {why_shown}"));
                self.0.insert(home.volume, (why, left, now));
            }
        }
        lines
    }
}

/// Why a home does not have everything yet, and what to do.
fn reason(home: &HomeReport) -> String {
    if let Some(why) = &home.journal {
        return format!("what is not sent waits for a restart of the server: {why}");
    }
    let why = home.reason.as_deref().unwrap_or("no reason is known");
    match (home.state.as_str(), home.parked.first()) {
        ("login needed", _) => match &home.login {
            Some(command) if !why.contains(command.as_str()) => {
                format!("login needed: {why}\nrun: {command}")
            }
            _ => format!("login needed: {why}"),
        },
        ("down", _) => format!("not reachable: {why}"),
        ("suspended", _) => why.to_owned(),
        (_, Some(parked)) => format!("{}; it is tried again", parked.refusal()),
        ("connecting", _) => "connecting".into(),
        _ => "being sent".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::report::{ParkedReport, StatusReport};
    use std::time::Duration;

    fn report(change: impl Fn(&mut HomeReport)) -> StatusReport {
        let home = serde_json::json!({
            "names": ["lab"], "account": "ann@lab:22", "volume": 7, "mode": "wb", "class": null, "state": "down",
            "reason": "no route", "weaker": [], "staleness_s": 1.0, "unsent_ops": 3, "unsent_bytes": 2048,
            "oldest_s": 1.0, "conflicts": 0, "parked": [], "round_trips": 0, "bytes_in": 0, "bytes_out": 0,
            "journal": null,
        });
        let mut home: HomeReport = serde_json::from_value(home).unwrap();
        change(&mut home);
        let cache = crate::control::report::CacheReport {
            bytes: 0,
            cap: 0,
            dirty_bytes: 0,
            waiting: 0,
            inodes: 0,
            hits: 0,
            misses: 0,
            requests: 0,
            waited: 0,
        };
        let (unreached, nfs, mounts) = (Vec::new(), Vec::new(), Vec::new());
        StatusReport { homes: vec![home], cache, unreached, nfs, mounts, pid: 1, version: "1".into() }
    }

    #[test]
    fn it_is_said_once_and_when_it_changes() {
        let (mut told, now) = (Told::default(), Instant::now());
        let down = report(|_| {});
        let first = told.lines(&down, None, now);
        assert_eq!(first, ["waiting for lab: 3 operations, 2.0 KiB left: not reachable: no route"]);
        assert!(told.lines(&down, None, now + limits::SAY_AGAIN * 9).is_empty(), "nothing has changed");
        assert!(told.lines(&down, Some(8), now).is_empty());
        let asks = report(|h| {
            (h.state, h.login) = ("login needed".into(), Some("trellis login lab".into()));
        });
        let second = told.lines(&asks, Some(7), now);
        assert_eq!(second.len(), 1);
        assert!(second[0].contains("login needed: no route\n  run: trellis login lab"), "{second:?}");
        let sent = |ops| {
            report(move |h| {
                (h.state, h.reason, h.unsent_ops) = ("up".into(), None, ops);
            })
        };
        assert!(told.lines(&sent(3), None, now)[0].ends_with("being sent"));
        assert!(told.lines(&sent(2), None, now + Duration::from_secs(1)).is_empty(), "it goes on");
        assert!(told.lines(&sent(2), None, now + limits::SAY_AGAIN)[0].contains(" 2 operations"));
        assert!(told.lines(&sent(0), None, now + limits::SAY_AGAIN * 2).is_empty());
    }

    #[test]
    fn a_full_home_is_told() {
        let full = report(|h| {
            h.state = "up".into();
            let (what, why, help) = ("write x".into(), "no space".into(), String::new());
            h.parked.push(ParkedReport { seq: 1, what, why, count: 1, help, damaged: false });
        });
        let said = Told::default().lines(&full, None, Instant::now());
        assert!(said[0].contains("the home refused: write x (no space)"), "{said:?}");
    }
}
