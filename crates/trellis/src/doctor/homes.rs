//! The running server, and each home as it sees it.

use super::Finding;
use crate::control::report::{ExpiryReport, HomeReport, StatusReport, UnreachedReport};
use crate::{limits, show};

/// Whether the server is one of this program.
pub fn server(report: &StatusReport) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    let found = format!("process {}, version {}", report.pid, show::text(report.version.as_bytes()));
    match report.version == ours {
        true => Finding::ok("server", found),
        false => Finding::warn(
            "server",
            format!("{found}; this program is {ours}"),
            "`trellis stop`, then start it with this program",
        ),
    }
}

/// What the server says of a home; `tried`: why it could not be reached just now.
pub fn home(home: &HomeReport, tried: Option<&str>) -> Vec<Finding> {
    let name = show::text(home.names.first().unwrap_or(&home.account).as_bytes());
    let mut found = vec![link(home, &name, tried)];
    if !home.parked.is_empty() {
        let advice = "`trellis status` lists them, and says what helps";
        let number = home.refused();
        let kept = if number == 1 { "which is kept here" } else { "which are kept here" };
        let parked = format!("{name} refused {}, {kept}", show::count(number, "change"));
        found.push(Finding::warn("home", parked, advice));
    }
    if let Some(why) = &home.journal {
        let advice = "look whether the disk of the state directory fails or is full, then start the server again; what is \
                      durable there goes home then";
        found.push(Finding::fail(
            "home",
            format!("{name} accepts no changes: {}", show::message(why)),
            advice,
        ));
    }
    let near = home.expires.iter().filter(|e| e.is_near());
    found.extend(near.map(|e| Finding::warn("home", format!("{name}: {}", ends(e)), e.renew.clone())));
    found.extend(home.clock_ahead_s.map(|ahead| clock(&name, ahead)));
    found
}

fn link(home: &HomeReport, name: &str, tried: Option<&str>) -> Finding {
    let reason = || show::message(home.reason.as_deref().or(tried).unwrap_or("no reason is known"));
    match (home.state.as_str(), &home.login) {
        ("up", _) => Finding::ok("home", format!("{name} is connected, {}", served(home))),
        ("login needed", Some(command)) => Finding::fail(
            "home",
            format!("{name}: {}", reason()),
            format!("run `{}`", show::message(command)),
        ),
        ("idle" | "connecting", _) if tried.is_none() => {
            Finding::ok("home", format!("{name} is not connected, and nobody needs it"))
        }
        ("suspended", _) => Finding::fail(
            "home",
            format!("{name}: {}", reason()),
            "nothing is sent there until that is decided",
        ),
        _ => Finding::fail(
            "home",
            format!("{name}: {}", reason()),
            advice(
                &reason(),
                "it is tried again by itself; `ssh` to it shows more, and what is unsent waits",
            ),
        ),
    }
}

/// By whom files are served there.
fn served(home: &HomeReport) -> &'static str {
    match home.class.as_deref() {
        Some("posix") => "the agent serves it",
        Some("sftp") => "by SFTP, which promises less (`trellis status` says what)",
        _ => "of a kind that is not known yet",
    }
}

fn ends(expiry: &ExpiryReport) -> String {
    match expiry.in_s > 0.0 {
        true => format!("{} ends in {}", expiry.what, show::span(expiry.in_s)),
        false => format!("{} has ended", expiry.what),
    }
}

fn clock(name: &str, ahead: f64) -> Finding {
    let way = if ahead < 0.0 { "behind" } else { "ahead of" };
    let found = format!("the clock of {name} is {} {way} ours", show::span(ahead.abs()));
    match ahead.abs() > limits::CLOCK_SKEW_S {
        false => Finding::ok("clock", format!("the clock of {name} agrees with ours")),
        true => {
            Finding::warn("clock", found, "set the clocks (chrony, ntpd): `make` compares times of files")
        }
    }
}

/// A home that was never reached.
pub fn unreached(home: &UnreachedReport) -> Finding {
    let found = format!("{}: {}", show::text(home.name.as_bytes()), show::message(&home.reason));
    match &home.login {
        Some(command) => Finding::warn("home", found, format!("run `{}`", show::message(command))),
        None => {
            let usual = "`ssh` to it shows more; check its name, and ssh's configuration";
            Finding::warn("home", found, advice(&home.reason, usual))
        }
    }
}

/// What to do about a home that is away for this reason, if it is not the `usual` one of its host or the way there.
fn advice<'a>(reason: &str, usual: &'a str) -> &'a str {
    let of_our_disk = vfs::env::Error::Full(String::new()).to_string();
    match reason.contains(&of_our_disk) {
        true => "make room on the disk of the state directory: what is new of a home has no place there",
        false => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn report(state: &str) -> HomeReport {
        let json = serde_json::json!({
            "names": ["ann@lab"], "account": "ann@lab:22", "volume": 1, "mode": "wb", "class": "posix",
            "state": state, "reason": "the reason", "weaker": [], "staleness_s": 5.0, "unsent_ops": 0,
            "unsent_bytes": 0, "oldest_s": null, "conflicts": 0, "parked": [], "round_trips": 0, "bytes_in": 0,
            "bytes_out": 0, "journal": null,
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn each_state_has_its_level_and_says_what_to_do() {
        for (state, level) in
            [("up", Level::Ok), ("idle", Level::Ok), ("down", Level::Fail), ("suspended", Level::Fail)]
        {
            let found = &home(&report(state), None)[0];
            assert_eq!(found.level, level, "{found:?}");
            assert_eq!(found.advice.is_some(), level == Level::Fail);
        }
        assert_eq!(home(&report("idle"), Some("no route"))[0].level, Level::Fail);
        let asks = HomeReport { login: Some("trellis login ann@lab".into()), ..report("login needed") };
        let found = &home(&asks, None)[0];
        assert!(found.level == Level::Fail && found.advice.as_deref() == Some("run `trellis login ann@lab`"));
    }

    #[test]
    fn a_full_disk_here_is_no_matter_of_the_way_there() {
        let full = vfs::env::Error::Full("1 byte is free".into());
        let never = |reason: String| UnreachedReport {
            name: "far".into(),
            also: Vec::new(),
            state: "down".into(),
            reason,
            login: None,
        };
        let advice = |finding: Finding| finding.advice.unwrap();
        assert!(advice(unreached(&never(full.to_string()))).contains("make room"));
        assert!(advice(unreached(&never("no route".into()))).contains("ssh"));
        let down = HomeReport { reason: Some(full.to_string()), ..report("down") };
        assert!(advice(home(&down, None).remove(0)).contains("make room"));
    }

    #[test]
    fn clocks_and_ends_are_findings_of_their_own() {
        let end = ExpiryReport { what: "the ticket".into(), in_s: 75.0, renew: "run kinit".into() };
        let late = HomeReport { clock_ahead_s: Some(-90.0), expires: vec![end], ..report("up") };
        let found = home(&late, None);
        assert!(
            found.iter().any(|f| f.level == Level::Warn && f.found.contains("1m30s behind ours")),
            "{found:?}"
        );
        assert!(found.iter().any(|f| f.found.contains("the ticket ends in 1m15s")), "{found:?}");
        assert_eq!(clock("lab", 0.4).level, Level::Ok);
    }
}
