//! What a login lives on and for how long: certificates, Kerberos tickets, the agent.
//!
//! Asked of the programs that own it (ssh-keygen, ssh-add, klist), because files alone do not tell what ssh would use.
//! What cannot be found out is left out: these are announcements, and refuse nobody anything.

use super::{Facts, collect};
use crate::limits::remote::{CREDENTIAL_PATIENCE, CREDENTIALS};
use std::os::unix::net::UnixStream;
use std::path::Path;
use tokio::process::Command;

/// Something that lets us in until some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// What it is, for a person.
    pub what: String,
    /// When it ends, in seconds since 1970.
    pub until: i64,
    /// What renews it.
    pub renew: &'static str,
}

/// Everything with an end that a login there may depend on.
pub async fn credentials(facts: &Facts) -> Vec<Credential> {
    let mut found = Vec::new();
    for file in facts.certificates.iter().filter(|f| f.exists()).take(CREDENTIALS) {
        let mut command = Command::new("ssh-keygen");
        command.args(["-L", "-f"]).arg(file);
        let what = format!("certificate {}", file.display());
        found.extend(certificates(command, |_| what.clone()).await);
    }
    if let Some(agent) = facts.agent.as_deref().filter(|a| agent_trouble(a).is_none()) {
        found.extend(certificates_of_agent(agent).await);
    }
    if facts.gssapi {
        found.extend(ticket().await);
    }
    found.truncate(CREDENTIALS);
    found
}

/// Why a login may have been refused, as `refusal` says, although nothing at the host has changed; `None` where nothing
/// is known.
pub async fn trouble(facts: &Facts, refusal: &str, now: i64) -> Option<String> {
    let agent = facts.agent.as_deref().and_then(agent_trouble);
    let ended = credentials(facts).await.into_iter().find(|c| c.until <= now);
    let ended = ended.map(|c| format!("{} has expired; {}", c.what, c.renew));
    // ssh lists what the host would have taken; most take no tickets.
    let ticket = match facts.gssapi && refusal.contains("gssapi") && ticket_is_missing().await {
        true => Some("there is no valid Kerberos ticket; run `kinit`".to_owned()),
        false => None,
    };
    let all: Vec<String> = agent.into_iter().chain(ended).chain(ticket).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Why the agent behind this socket cannot help; `None` if somebody answers there.
pub fn agent_trouble(socket: &Path) -> Option<String> {
    let why = match UnixStream::connect(socket) {
        Ok(_) => return None,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => "its socket is gone".to_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => "its socket is dead".to_owned(),
        Err(e) => e.to_string(),
    };
    Some(format!(
        "the ssh-agent at {} (SSH_AUTH_SOCK or IdentityAgent) is not there: {why}",
        socket.display()
    ))
}

/// The certificates that `ssh-keygen -L` shows, with a name made from the key ID.
async fn certificates(command: Command, what: impl Fn(&str) -> String) -> Vec<Credential> {
    let Ok(output) = ask(command).await else { return Vec::new() };
    let renew = "get a new one from your site";
    let mut found = Vec::new();
    let mut id = String::new();
    for line in output.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("Key ID:") {
            id = text.trim().trim_matches('"').to_owned();
        }
        let until =
            line.strip_prefix("Valid:").and_then(|v| v.rsplit_once(" to ")).and_then(|(_, to)| iso(to));
        found.extend(until.map(|until| Credential { what: what(&id), until, renew }));
    }
    found
}

async fn certificates_of_agent(agent: &Path) -> Vec<Credential> {
    let mut list = Command::new("ssh-add");
    list.arg("-L").env("SSH_AUTH_SOCK", agent);
    let Ok(keys) = ask(list).await else { return Vec::new() };
    let certs: Vec<&str> = keys.lines().filter(|l| l.contains("-cert-v01@")).take(CREDENTIALS).collect();
    if certs.is_empty() {
        return Vec::new();
    }
    // Public keys are no secret, and short enough for arguments.
    let mut show = Command::new("sh");
    show.args(["-c", "printf '%s\\n' \"$@\" | ssh-keygen -L -f -", "sh"]).args(certs);
    certificates(show, |id| format!("certificate {id:?} in the ssh-agent")).await
}

/// Whether klist is there and says that no ticket is valid (klist(1) -s).
async fn ticket_is_missing() -> bool {
    let mut command = Command::new("klist");
    command.arg("-s");
    matches!(collect(command, CREDENTIAL_PATIENCE).await, Ok(output) if !output.success)
}

/// The ticket that gets the other tickets.
async fn ticket() -> Option<Credential> {
    parse_klist(&ask(Command::new("klist")).await.ok()?)
}

fn parse_klist(text: &str) -> Option<Credential> {
    let line = text.lines().find(|l| l.contains("krbtgt/"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, _, day, time, _, ..] = words[..] else { return None };
    let until = month_first(day, time)?;
    Some(Credential { what: "the Kerberos ticket".into(), until, renew: "renew it with `kinit`" })
}

/// The output of a program that succeeds, with times in UTC and numbers as everywhere.
async fn ask(mut command: Command) -> std::io::Result<String> {
    command.env("TZ", "UTC0").env("LC_ALL", "C");
    let output = collect(command, CREDENTIAL_PATIENCE).await?;
    match output.success {
        true => Ok(output.text),
        false => Err(std::io::ErrorKind::Other.into()),
    }
}

/// `2026-11-21T12:50:19` as ssh-keygen prints it.
fn iso(text: &str) -> Option<i64> {
    let (date, time) = text.trim().split_once('T')?;
    let day: Vec<i64> = numbers(date, '-')?;
    let [year, month, day] = day[..] else { return None };
    seconds(year, month, day, time)
}

/// `11/21/26` or `11/21/2026`, and `12:50:19`, as MIT's klist prints them in the C locale.
fn month_first(day: &str, time: &str) -> Option<i64> {
    let parts = numbers(day, '/')?;
    let [month, day, year] = parts[..] else { return None };
    let year = if year < 100 { 2000 + year } else { year };
    seconds(year, month, day, time)
}

fn numbers(text: &str, by: char) -> Option<Vec<i64>> {
    text.split(by).map(|n| n.parse().ok()).collect()
}

/// Seconds since 1970 of a moment in UTC: Hinnant's `days_from_civil`.
fn seconds(year: i64, month: i64, day: i64, time: &str) -> Option<i64> {
    let clock = numbers(time, ':')?;
    let [hour, minute, second] = clock[..] else { return None };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command as Now;

    fn facts(more: &str) -> Facts {
        Facts::parse(&format!("user ann\nhostname lab\nport 22\nidentityagent none\n{more}")).unwrap()
    }

    #[test]
    fn times_of_both_programs() {
        assert_eq!(iso("2026-11-21T12:50:19"), Some(1_795_265_419));
        assert_eq!(month_first("11/21/26", "12:50:19"), Some(1_795_265_419));
        assert_eq!(month_first("11/21/2026", "12:50:19"), Some(1_795_265_419));
        assert_eq!(iso("2000-02-29T00:00:00"), Some(951_782_400));
        for bad in ["forever", "", "2026-13-01T00:00:00", "2026-11-21", "x-y-zTa:b:c"] {
            assert_eq!(iso(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_end_of_a_ticket() {
        let text = "Ticket cache: FILE:/tmp/krb5cc_0\nDefault principal: ann@LAB\n\n\
                    Valid starting     Expires            Service principal\n\
                    11/21/26 02:50:19  11/21/26 12:50:19  krbtgt/LAB@LAB\n\trenew until 11/22/26 02:50:19\n";
        assert_eq!(parse_klist(text).unwrap().until, 1_795_265_419);
        assert_eq!(parse_klist("klist: No credentials cache found\n"), None);
    }

    #[tokio::test]
    async fn an_expired_certificate_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let keygen = |args: &[&str]| {
            let done = Now::new("ssh-keygen").args(args).current_dir(&dir).env("TZ", "UTC0").status();
            assert!(done.unwrap().success(), "{args:?}");
        };
        keygen(&["-q", "-t", "ed25519", "-N", "", "-f", "ca"]);
        keygen(&["-q", "-t", "ed25519", "-N", "", "-f", "key"]);
        keygen(&["-q", "-s", "ca", "-I", "ann", "-V", "20200101000000:20200102000000", "key.pub"]);
        let facts = facts(&format!("identityfile {}\n", dir.path().join("key").display()));
        let found = credentials(&facts).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].until, 1_577_923_200);
        let why = trouble(&facts, "", 1_600_000_000).await.unwrap();
        assert!(why.contains("key-cert.pub has expired"), "{why}");
        assert_eq!(trouble(&facts, "", 1_500_000_000).await, None);
    }

    #[tokio::test]
    async fn a_dead_agent_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent");
        let facts = Facts { agent: Some(socket.clone()), ..facts("") };
        assert!(trouble(&facts, "", 0).await.unwrap().contains("socket is gone"));
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(trouble(&facts, "", 0).await.unwrap().contains("socket is dead"));
        std::fs::remove_file(&socket).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(agent_trouble(&socket), None);
    }
}
