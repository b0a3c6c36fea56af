//! From what `ssh` prints to what a person should do.

use super::{Farewell, SshTarget};
use crate::limits::remote::QUOTE_BYTES;
use crate::{Error, ErrorKind};

/// A rule: if one of the needles stands in what ssh said, it was that.
struct Rule {
    needles: &'static [&'static str],
    kind: ErrorKind,
    advice: fn(&SshTarget) -> String,
}

/// How ssh says that no way to log in was left.
const REFUSED: &[&str] = &["Permission denied (", "No more authentication methods", "Authentication failed"];

/// Whether a failed login was refused for want of a key, ticket or answer, rather than for the host's sake.
pub(crate) fn is_refusal(why: &Error) -> bool {
    why.kind == ErrorKind::Login && REFUSED.iter().any(|n| why.detail.contains(n))
}

/// The first match counts: a changed key also says "Host key verification failed".
const RULES: &[Rule] = &[
    Rule {
        needles: &["REMOTE HOST IDENTIFICATION HAS CHANGED", "has changed and you have requested"],
        kind: ErrorKind::Login,
        advice: |t| {
            format!(
                "the host key of {} has changed: it is another host, or somebody poses as it. If you know why, remove \
                 the old key with `ssh-keygen -R` as ssh says; no login does that for you. Then run `{}`",
                t.host(),
                t.login_command()
            )
        },
    },
    Rule {
        needles: &["Host key verification failed", "host key is known for"],
        kind: ErrorKind::Login,
        advice: |t| {
            format!(
                "the host key of {}, or of a host on the way, is not known yet. Run `{}` and accept it",
                t.host(),
                t.login_command()
            )
        },
    },
    Rule {
        needles: &["Too many authentication failures"],
        kind: ErrorKind::Login,
        advice: |t| {
            format!(
                "{} refused after too many keys. Set IdentityFile and IdentitiesOnly=yes for it in ~/.ssh/config, \
                 then run `{}`",
                t.host(),
                t.login_command()
            )
        },
    },
    Rule {
        needles: REFUSED,
        kind: ErrorKind::Login,
        advice: |t| {
            format!(
                "{t} does not let us in unasked. Answer its questions with `{}`, or make \
                 `ssh -o BatchMode=yes{} true` work, with a key in ssh-agent or `ssh-copy-id`",
                t.login_command(),
                t.command_line().trim_start_matches("ssh")
            )
        },
    },
    Rule {
        needles: &["Temporary failure in name resolution"],
        kind: ErrorKind::NameServer,
        advice: |t| {
            format!(
                "no name server answers, so that it is not known whether there is a host {}; it is tried again",
                t.host()
            )
        },
    },
    Rule {
        needles: &["Could not resolve hostname", "Name or service not known", "nodename nor servname"],
        kind: ErrorKind::UnknownHost,
        advice: |t| format!("no host {} is known. Check the name with `{}`", t.host(), t.command_line()),
    },
    Rule {
        needles: &[
            "Bad configuration option",
            "Bad owner or permissions",
            "terminating, ",
            "Can't open user config",
        ],
        kind: ErrorKind::Setup,
        advice: |t| {
            format!("ssh does not accept its configuration. Correct it until `{}` works", t.command_line())
        },
    },
    Rule {
        needles: &["no matching", "Unable to negotiate", "Bad packet length", "incompatible"],
        kind: ErrorKind::Setup,
        advice: |t| {
            format!("ssh and {} have no algorithm in common. Make `{}` work", t.host(), t.command_line())
        },
    },
    Rule {
        needles: &[
            "Connection refused",
            "timed out",
            "Timeout, server",
            "No route to host",
            "Network is unreachable",
            "Connection reset",
            "Connection closed",
            "Broken pipe",
            "kex_exchange_identification",
            "Host is down",
            "Connection to",
            "Shared connection to",
            "mux_client",
        ],
        kind: ErrorKind::Unreachable,
        advice: |t| format!("{} cannot be reached; it is tried again", t.host()),
    },
];

/// What the end of an `ssh` means. `None` if it says nothing about the connection: then the far side's command
/// ended, and ssh itself was content.
pub fn classify(target: &SshTarget, farewell: &Farewell) -> Option<Error> {
    // Only ssh's own failures have this code; a shell may print anything.
    if farewell.status.is_some_and(|s| s.code() != Some(255)) {
        return None;
    }
    let rule = RULES.iter().find(|r| r.needles.iter().any(|n| farewell.said.contains(n)))?;
    Some(Error::new(rule.kind, format!("{} (ssh: {})", (rule.advice)(target), quote(&farewell.said))))
}

/// The last lines of what was said, on one line, without the name that ssh gives itself. A line is cut only where it
/// is too long by itself.
pub fn quote(said: &str) -> String {
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with("@@@"))
        .map(|l| l.strip_prefix("ssh: ").unwrap_or(l))
        .collect();
    let joined = lines.join("; ");
    let start = joined.len().saturating_sub(QUOTE_BYTES);
    let start = (start..=joined.len()).find(|i| joined.is_char_boundary(*i)).unwrap_or(0);
    let tail = &joined[start..];
    match tail.split_once("; ") {
        Some((_, whole)) if start > 0 => whole.to_owned(),
        _ => tail.to_owned(),
    }
}
