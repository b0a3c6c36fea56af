//! What a login leaves behind for people to see: a file for each account in the state directory.
//!
//! The socket alone tells that a master lives; the file tells who it is for, since when, and how long it stays unused.

use crate::limits;
use crate::state::{StateDir, write_atomically};
use home::io_text;
use home::ssh::{Master, Persist, short_hash};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The name that was given to `trellis login`.
    pub host: String,
    /// As [`home::ssh::Account`] writes it.
    pub account: String,
    /// The master's socket.
    pub socket: PathBuf,
    /// Whether the user's own configuration names the socket.
    pub own: bool,
    /// Seconds that the master lives without use; null: until it is told to end.
    pub idle_s: Option<u64>,
    /// When it was made, in seconds since 1970.
    pub since: i64,
}

impl Record {
    /// The master that it tells of.
    pub fn master(&self) -> Master {
        Master { socket: self.socket.clone(), own: self.own }
    }

    /// When the master ends at the earliest if it was last used at `used`; `None` where it does not.
    pub fn ends(&self, used: i64) -> Option<i64> {
        self.idle_s.map(|idle| used.max(self.since).saturating_add_unsigned(idle))
    }

    /// How long the master stays, for a person.
    pub fn lifetime(&self) -> String {
        match self.idle_s {
            Some(idle) => format!("ends {} after its last use", span(idle)),
            None => "stays until it is ended".into(),
        }
    }
}

/// Seconds in as few units as are exact.
pub fn span(seconds: u64) -> String {
    match seconds {
        s if s % 3600 == 0 && s > 0 => format!("{}h", s / 3600),
        s if s % 60 == 0 && s > 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}

/// Seconds of a master's life without use; `None`: it stays.
pub fn idle_seconds(persist: Persist) -> Option<u64> {
    match persist {
        Persist::No | Persist::Forever => None,
        Persist::For(time) => Some(time.as_secs()),
    }
}

/// How long a master stays: as wished, else as the user's configuration says, else as we think.
pub fn persist(wished: Option<Duration>, own: bool, configured: Persist) -> Persist {
    match (wished, configured) {
        (Some(time), _) => Persist::For(time),
        (None, Persist::For(_) | Persist::Forever) if own => configured,
        _ => Persist::For(limits::LOGIN_STAYS),
    }
}

fn folder(state: &StateDir) -> PathBuf {
    state.path().join("logins")
}

fn file(state: &StateDir, account: &str) -> PathBuf {
    folder(state).join(format!("{}.json", short_hash(account.as_bytes())))
}

/// Keeps a record.
pub fn keep(state: &StateDir, record: &Record) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder(state));
    made.map_err(|e| format!("{}: {e}", folder(state).display(), e = io_text(&e)))?;
    let text = serde_json::to_vec(record).map_err(|e| e.to_string())?;
    write_atomically(&file(state, &record.account), &text)
}

/// Forgets the record of an account, if there is one.
pub fn forget(state: &StateDir, account: &str) {
    // A record without a master is not shown as a login.
    let _ = std::fs::remove_file(file(state, account));
}

/// The record of an account.
pub fn of(state: &StateDir, account: &str) -> Option<Record> {
    read(&file(state, account))
}

/// All records, oldest first. What cannot be read is left out.
pub fn all(state: &StateDir) -> Vec<Record> {
    let entries = std::fs::read_dir(folder(state)).into_iter().flatten().flatten();
    let files = entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "json"));
    let mut all: Vec<Record> = files.take(limits::LOGINS).filter_map(|p| read(&p)).collect();
    all.sort_by(|a, b| (a.since, &a.account).cmp(&(b.since, &b.account)));
    all
}

fn read(path: &Path) -> Option<Record> {
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(limits::LOGIN_RECORD).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_kept_by_account() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::create(Some(&temp.path().join("s")), true).unwrap();
        let record = |account: &str, since| Record {
            host: "lab".into(),
            account: account.into(),
            socket: "/s".into(),
            own: false,
            idle_s: Some(43_200),
            since,
        };
        assert!(all(&state).is_empty());
        for r in [record("bob@lab:22", 5), record("ann@lab:22", 4), record("ann@lab:22", 6)] {
            keep(&state, &r).unwrap();
        }
        assert_eq!(all(&state), [record("bob@lab:22", 5), record("ann@lab:22", 6)]);
        assert_eq!(of(&state, "ann@lab:22").unwrap().ends(7), Some(43_207));
        forget(&state, "ann@lab:22");
        assert_eq!((all(&state).len(), of(&state, "ann@lab:22")), (1, None));
        std::fs::write(file(&state, "bob@lab:22"), "{").unwrap();
        assert!(all(&state).is_empty());
    }

    #[test]
    fn how_long_a_login_stays() {
        let hour = Duration::from_secs(3600);
        assert_eq!(persist(Some(hour), true, Persist::Forever), Persist::For(hour));
        assert_eq!(persist(None, true, Persist::Forever), Persist::Forever);
        assert_eq!(persist(None, true, Persist::For(hour)), Persist::For(hour));
        assert_eq!(persist(None, true, Persist::No), Persist::For(limits::LOGIN_STAYS));
        assert_eq!(persist(None, false, Persist::For(hour)), Persist::For(limits::LOGIN_STAYS));
        assert_eq!((span(43_200), span(90), span(61)), ("12h".into(), "90s".into(), "61s".into()));
        assert_eq!(span(600), "10m");
    }
}
