//! What lets us in and ends some day, told before it does: certificates, Kerberos tickets, masters.
//!
//! A round a minute asks ssh's helpers for each home that is in use. `status` shows what was found; the log has a line
//! once when an end comes near ([`limits::EXPIRY_AHEAD`]), and once when a master has ended.

use super::{Logins, record};
use crate::control::report::{ExpiryReport, HomeReport, MasterReport};
use crate::limits;
use crate::scl::Account;
use crate::state::StateDir;
use home::ssh::Master;
use home::ssh::credentials::{Credential, credentials};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use vfs::{Vfs, VolumeStatus};

/// What is known of all homes' logins.
pub struct Watch {
    logins: Arc<Logins>,
    state: StateDir,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By account, as `user@hostname:port`.
    homes: HashMap<String, Seen>,
    /// What the log has told of.
    told: HashSet<(String, i64)>,
}

/// What was found out about the login of one home.
#[derive(Clone)]
struct Seen {
    master: Option<Master>,
    credentials: Vec<Credential>,
    /// When the home was last seen connected.
    used: i64,
    /// Whether the master lived in the last round.
    alive: bool,
}

impl Watch {
    /// Knows nothing yet.
    pub fn new(logins: Arc<Logins>, state: StateDir) -> Watch {
        Watch { logins, state, known: Mutex::default() }
    }

    /// Looks again and again, as long as the engine is there.
    pub async fn run(self: Arc<Self>, vfs: Arc<Vfs>) {
        loop {
            for volume in vfs.status().volumes.iter().take(limits::LOGINS) {
                self.look(volume).await;
            }
            tokio::time::sleep(limits::EXPIRY_CHECK).await;
        }
    }

    /// Looks at homes that were never looked at, a bounded number of them.
    pub async fn look_at_new(&self, volumes: &[VolumeStatus]) {
        let new = |v: &&VolumeStatus| !self.known().homes.contains_key(&v.account);
        for volume in volumes.iter().filter(new).take(limits::LOOKS_AT_ONCE) {
            self.look(volume).await;
        }
    }

    /// Finds out what the login of one home lives on.
    async fn look(&self, volume: &VolumeStatus) {
        let names = volume.names.iter().filter_map(|n| std::str::from_utf8(n.as_bytes()).ok());
        let Some(account) = names.filter_map(|n| self.logins.account(n).ok()).next() else { return };
        let Some((master, credentials)) = self.ask(&account).await else { return };
        let now = now();
        let alive = master.as_ref().is_some_and(Master::is_alive);
        let up = volume.home.link == home::Link::Up;
        let mut known = self.known();
        let before = known.homes.get(&volume.account).cloned();
        let used = if up { now } else { before.as_ref().map_or(now, |b| b.used) };
        if before.is_some_and(|b| b.alive) && !alive {
            let command = self.logins.way.command(&account.to_string());
            tracing::warn!("the login to {account} has ended; `{command}` makes a new one");
        }
        let seen = Seen { master, credentials, used, alive };
        for end in self.ends(&volume.account, &seen, now, up) {
            let key = (format!("{}: {}", volume.account, end.what), now + end.in_s as i64);
            let near = end.in_s <= limits::EXPIRY_AHEAD.as_secs_f64();
            if known.told.len() >= limits::LOGINS {
                known.told.clear();
            }
            if near && known.told.insert(key) {
                tracing::warn!("{account}: {}", end.sentence());
            }
        }
        known.homes.insert(volume.account.clone(), seen);
    }

    async fn ask(&self, account: &Account) -> Option<(Option<Master>, Vec<Credential>)> {
        let target = self.logins.way.target(account).ok()?;
        let facts = target.facts().await.ok()?;
        let master = Master::of(&facts, self.logins.way.masters.as_deref());
        Some((master, credentials(&facts).await))
    }

    /// Adds what is known to the report of a home. A master is asked now whether it lives.
    pub fn annotate(&self, home: &mut HomeReport) {
        let Some(seen) = self.known().homes.get(&home.account).cloned() else { return };
        let up = home.state == "up";
        let record = record::of(&self.state, &home.account);
        home.master = seen.master.as_ref().filter(|m| m.is_alive()).map(|m| MasterReport {
            socket: m.socket.to_string_lossy().into_owned(),
            ends_after_idle_s: record.filter(|r| r.socket == m.socket).and_then(|r| r.idle_s),
            in_use: up,
        });
        home.expires = self.ends(&home.account, &seen, now(), up);
    }

    /// Everything with an end, the nearest first. A master in use has none.
    fn ends(&self, account: &str, seen: &Seen, now: i64, up: bool) -> Vec<ExpiryReport> {
        let mut ends: Vec<ExpiryReport> = seen
            .credentials
            .iter()
            .map(|c| ExpiryReport {
                what: c.what.clone(),
                in_s: (c.until - now) as f64,
                renew: c.renew.into(),
            })
            .collect();
        let record = record::of(&self.state, account).filter(|_| seen.alive && !up);
        if let Some(record) = record
            && let Some(end) = record.ends(seen.used)
        {
            let renew =
                format!("it stays while it is used; else `{}`", self.logins.way.command(&record.host));
            ends.push(ExpiryReport { what: "the unused login".into(), in_s: (end - now) as f64, renew });
        }
        ends.sort_by(|a, b| a.in_s.total_cmp(&b.in_s));
        ends
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds since 1970.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}
