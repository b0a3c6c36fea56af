//! The root directory: which names there are, and which account each of them means.
//!
//! A name is configured (`/lab`) or dynamic (`/ann@lab`, `/scp:ann@lab:`). Whether two spellings are the same
//! account is decided by ssh's own configuration (`ssh -G`: user, host name, port, and the jump host or proxy
//! command on the way); all spellings of an account share one [`Home`] object, and so one volume, one cache and one
//! connection. Policies belong to the account too: the first configured home of an account sets them for all its
//! names, and further ones that name a folder set the mode of that folder. Nothing here connects.

use crate::config::{HomeEntry, Symlinks};
use crate::gate::{Door, Gate, HostLock};
use crate::limits;
use crate::options::ModeName;
use crate::pattern::HostPattern;
use crate::scl::{Account, RootName, Target};
use home::remote::Connector;
use home::ssh::VIA;
use home::{Error, ErrorKind, Home, HomePath, Link, Name, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Semaphore;
use vfs::{Mode, Mount, MountOptions, Namespace, Start};

/// Folders of an account's home directory that hold the keys to other places.
const PROTECTED: [&[u8]; 3] = [b".ssh", b".gnupg", b".cache/trellis"];

/// Which names that are not configured may be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dynamic {
    /// Every host: only this machine can ask.
    All,
    /// Hosts that fit a pattern; none where there is no pattern.
    Only(Vec<HostPattern>),
}

impl Dynamic {
    fn allows(&self, account: &Account) -> bool {
        match self {
            Dynamic::All => true,
            Dynamic::Only(patterns) => patterns.iter().any(|p| p.fits(account)),
        }
    }
}

/// How accounts are told apart and homes are made. The one of production runs ssh; tests make their own.
#[async_trait::async_trait]
pub trait Accounts: Send + Sync {
    /// The identity `user@hostname:port` of an account as spelled, with ` via WAY` where there is one.
    async fn identity(&self, account: &Account) -> Result<String>;
    /// What connects to the account.
    fn remote(&self, account: &Account) -> Result<Arc<dyn Connector>>;
    /// A directory of this machine as a home.
    fn local(&self, path: &HomePath) -> Result<Arc<dyn Home>>;
}

/// The root directory.
pub struct Root<A> {
    entries: Vec<HomeEntry>,
    dynamic: Dynamic,
    accounts: A,
    door: Arc<Door>,
    /// Places for processes that are asked which account a name means.
    asks: Semaphore,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Identities by spelling, and when ssh was asked.
    identities: HashMap<Account, (String, Instant)>,
    /// Homes by identity.
    homes: HashMap<String, Arc<dyn Home>>,
    /// By host name and port.
    hosts: HashMap<String, HostLock>,
}

impl<A: Accounts> Root<A> {
    /// The root with these configured homes.
    pub fn new(entries: Vec<HomeEntry>, dynamic: Dynamic, accounts: A, door: Arc<Door>) -> Root<A> {
        let asks = Semaphore::new(limits::SSH_ASKS);
        let root = Root { entries, dynamic, accounts, door, asks, known: Mutex::default() };
        for entry in root.entries.iter().filter(|e| e.symlinks == Symlinks::Rebase) {
            if root.root_name(std::slice::from_ref(&entry.name)).is_none() {
                tracing::warn!(
                    "home {}: symlinks = \"rebase\" has no effect, because no name stands for the root of its host: \
                     add a [[home]] with scl = \"scp:[user@]host:\", or --hosts",
                    entry.name
                );
            }
        }
        root
    }

    /// The account and place that a name means, as spelled; `None` for `local:` homes and what is no name.
    fn spelled(&self, name: &Name) -> Option<(Account, Start)> {
        match self.entries.iter().find(|e| e.name == *name).map(|e| &e.scl) {
            Some(Target::Remote(account, start)) => Some((account.clone(), start.clone())),
            Some(Target::Local(_)) => None,
            None => {
                let name = RootName::parse(name.as_bytes()).filter(|n| self.dynamic.allows(&n.account))?;
                Some((name.account, name.start))
            }
        }
    }

    async fn configured_mount(&self, entry: &HomeEntry) -> Result<Mount> {
        match &entry.scl {
            Target::Local(path) => self.local_mount(entry, path),
            Target::Remote(account, start) => self.remote_mount(account, start.clone()).await,
        }
    }

    fn local_mount(&self, entry: &HomeEntry, path: &HomePath) -> Result<Mount> {
        let account = format!("local:{path}");
        let home = match self.known().homes.get(&account) {
            Some(home) => Arc::clone(home),
            None => self.accounts.local(path)?,
        };
        self.known().homes.insert(account.clone(), Arc::clone(&home));
        let mut options = options_of(&[entry])?;
        if options.mode.replace(Mode::Strict) == Some(Mode::Ro) {
            options.modes = vec![(HomePath::root(), Mode::Ro)];
        }
        Ok(Mount { account, home, start: Start::Root, options })
    }

    async fn remote_mount(&self, account: &Account, start: Start) -> Result<Mount> {
        let identity = self.identity(account).await?;
        let options = options_of(&self.entries_of(&identity).await)?;
        let home = self.home(account, &identity)?;
        Ok(Mount { account: identity, home, start, options })
    }

    /// The configured homes of an account.
    async fn entries_of(&self, identity: &str) -> Vec<&HomeEntry> {
        let mut found = Vec::new();
        for entry in &self.entries {
            if let Target::Remote(account, _) = &entry.scl
                && self.identity(account).await.is_ok_and(|i| i == identity)
            {
                found.push(entry);
            }
        }
        found
    }

    async fn identity(&self, account: &Account) -> Result<String> {
        if let Some(identity) = self.known().identity(account) {
            return Ok(identity);
        }
        let identity = {
            let _place = self.asks.acquire().await;
            self.accounts.identity(account).await?
        };
        let mut known = self.known();
        known.make_room()?;
        known.identities.insert(account.clone(), (identity.clone(), Instant::now()));
        Ok(identity)
    }

    fn home(&self, account: &Account, identity: &str) -> Result<Arc<dyn Home>> {
        let mut known = self.known();
        if let Some(home) = known.homes.get(identity) {
            return Ok(Arc::clone(home));
        }
        let connector = self.accounts.remote(account)?;
        let place = identity.split_once(VIA).map_or(identity, |(place, _)| place);
        let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
        // Behind a gate `localhost` is another machine.
        let here = place == identity && crate::gate::is_this_machine(host);
        let host = identity[place.len() - host.len()..].to_owned();
        let host = Arc::clone(known.hosts.entry(host).or_default());
        let gate: Arc<dyn Home> = Arc::new(Gate::new(connector, Arc::clone(&self.door), host, here));
        known.homes.insert(identity.to_owned(), Arc::clone(&gate));
        Ok(gate)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// What ssh said of an account, if it can be believed: where nobody answers, a person may have mended what it says.
    fn identity(&self, account: &Account) -> Option<String> {
        let (identity, at) = self.identities.get(account)?;
        let is_away = self.homes.get(identity).is_some_and(|h| matches!(h.status().link, Link::Down(_)));
        let age = if is_away { limits::SSH_CONFIG_AGE_AWAY } else { limits::SSH_CONFIG_AGE };
        (at.elapsed() < age).then(|| identity.clone())
    }

    /// Forgets what nobody uses when too much is known. A home in use is held by its volume.
    fn make_room(&mut self) -> Result<()> {
        if self.identities.len() < limits::NAMES_KNOWN {
            return Ok(());
        }
        self.homes.retain(|_, home| Arc::strong_count(home) > 1);
        self.hosts.retain(|_, host| Arc::strong_count(host) > 1);
        let homes = &self.homes;
        self.identities.retain(|_, (identity, _)| homes.contains_key(identity));
        match self.identities.len() < limits::NAMES_KNOWN {
            true => Ok(()),
            false => {
                Err(Error::new(ErrorKind::Busy, "10000 hosts are in use; restart the server to forget some"))
            }
        }
    }
}

/// Policies of an account with these configured homes.
fn options_of(entries: &[&HomeEntry]) -> Result<MountOptions> {
    let usual = || PROTECTED.iter().filter_map(|p| HomePath::parse(p).ok()).collect();
    let (entry, others) =
        entries.split_first().map_or((None, entries), |(first, others)| (Some(*first), others));
    let modes = entry.map_or_else(|| Ok(Vec::new()), |entry| entry.modes_with(others));
    let conflicts = entry.map_or_else(|| Ok(Vec::new()), |entry| entry.policies_with(others));
    Ok(MountOptions {
        conflicts: conflicts.map_err(|why| Error::new(ErrorKind::Invalid, why))?,
        mode: entry.and_then(|e| e.mode).map(ModeName::into),
        modes: modes.map_err(|why| Error::new(ErrorKind::Invalid, why))?,
        share: entry.and_then(|e| e.share),
        rebase_symlinks: entry.is_some_and(|e| e.symlinks == Symlinks::Rebase),
        protect: entry.and_then(|e| e.protect.clone()).unwrap_or_else(usual),
    })
}

#[async_trait::async_trait]
impl<A: Accounts> Namespace for Root<A> {
    fn configured(&self) -> Vec<Name> {
        self.entries.iter().map(|e| e.name.clone()).collect()
    }

    fn permits(&self, name: &Name) -> bool {
        self.entries.iter().any(|e| e.name == *name) || self.spelled(name).is_some()
    }

    /// A configured name, else the account's own, which has no colon, else one that was used.
    fn root_name(&self, names: &[Name]) -> Option<Name> {
        let is_local =
            |name: &&Name| self.entries.iter().any(|e| e.name == **name && matches!(e.scl, Target::Local(_)));
        if let Some(local) = names.iter().find(is_local) {
            return Some(local.clone());
        }
        let accounts: Vec<Account> = names.iter().filter_map(|n| Some(self.spelled(n)?.0)).collect();
        let configured = self.entries.iter().find(|e| match &e.scl {
            Target::Remote(account, Start::Root) => accounts.contains(account),
            _ => false,
        });
        let used = || names.iter().find(|n| self.spelled(n).is_some_and(|(_, start)| start == Start::Root));
        let own = || {
            let account = accounts.iter().find(|a| self.dynamic.allows(a))?;
            Name::new(account.to_string().as_bytes()).ok()
        };
        configured.map(|e| e.name.clone()).or_else(own).or_else(|| used().cloned())
    }

    async fn resolve(&self, name: &Name) -> Result<Mount> {
        if let Some(entry) = self.entries.iter().find(|e| e.name == *name) {
            return self.configured_mount(entry).await;
        }
        let not_found = |why: &str| Err(Error::new(ErrorKind::NotFound, format!("{name}: {why}")));
        let Some(parsed) = RootName::parse(name.as_bytes()) else {
            return not_found("neither a configured name nor [user@]host or scp:[user@]host:");
        };
        match self.dynamic.allows(&parsed.account) {
            true => self.remote_mount(&parsed.account, parsed.start).await,
            false => not_found("not configured, and no --hosts pattern allows it"),
        }
    }
}

#[cfg(test)]
mod tests;
