//! The gateway: the real engine over a disk that loses power, in one process after the other.

use crate::clock::Clock;
use crate::coverage::{STARTING, Step};
use crate::network::{Line, Net};
use bytes::Bytes;
use home::{Home, HomePath, Name};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use vfs::env::testing::{OneThread, SeededRng, SimDisk};
use vfs::env::{Env, Result};
use vfs::store::{MemStore, MetaStore, Write};
use vfs::{Config, Cred, Ctx, Mode, Mount, MountOptions, Namespace, Oid, Start, Vfs};

/// The home in which everything happens.
pub const LAB: &str = "lab";
/// The other home.
pub const DEN: &str = "den";
/// The local user of the gateway.
pub const SERVER: u32 = 4000;

/// What a gateway is given.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Bytes of a journal segment.
    pub segment: u64,
    /// Cap of the data cache.
    pub cache: u64,
    /// How old an answer from the cache may be.
    pub staleness: Duration,
    /// Bytes from which on a file that is written anew is staged on the home's disk.
    pub spool_from: Option<u64>,
    /// Bytes in one batch that goes home.
    pub batch_bytes: u64,
    /// What its answers promise.
    pub mode: Mode,
}

/// The gateway's machine.
pub struct Gateway {
    disk: SimDisk,
    store: Arc<MemStore>,
    clock: Clock,
    net: Arc<Net>,
    /// The way to the other home, if there is one.
    den: Option<Arc<Net>>,
    size: Size,
    rng: Mutex<StdRng>,
    /// The machine's power fails with the process.
    power: AtomicBool,
    session: Arc<Sessions>,
}

/// A process of the gateway, as clients see it.
#[derive(Clone)]
pub struct Session {
    /// The engine.
    pub vfs: Arc<Vfs>,
    /// One clone for each process, which is not cloned again: that would be another process's.
    disk: Arc<SimDisk>,
    /// How many were there before it.
    pub number: u64,
}

impl Session {
    /// Whether what it answers was really answered.
    pub fn is_alive(&self) -> bool {
        self.disk.is_alive()
    }
}

/// The process that runs, and news of it. (A `watch` of tokio would wake clients in a random order.)
#[derive(Default)]
pub struct Sessions {
    now: Mutex<Option<Session>>,
    news: Notify,
}

impl Sessions {
    /// The last process, dead or alive.
    pub fn last(&self) -> Option<Session> {
        self.now.lock().clone()
    }

    /// Waits for one that is alive.
    pub async fn living(&self) -> Session {
        loop {
            let news = self.news.notified();
            if let Some(session) = self.last().filter(Session::is_alive) {
                return session;
            }
            news.await;
        }
    }

    /// Waits until a process is known to be dead.
    pub async fn dead(&self, session: &Session) {
        loop {
            let news = self.news.notified();
            if !session.is_alive() {
                return;
            }
            news.await;
        }
    }
}

/// A store whose process may die.
struct LifeStore {
    store: Arc<MemStore>,
    disk: Arc<SimDisk>,
}

impl LifeStore {
    fn step(&self, what: &'static str) -> Result<()> {
        self.disk.step(what, "store").map_err(|e| vfs::env::Error::io(what, &e))
    }
}

impl MetaStore for LifeStore {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.store.get(key)
    }
    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>> {
        self.store.scan(prefix)
    }
    fn commit(&self, batch: Vec<Write>) -> Result<()> {
        self.step("write").and_then(|()| self.store.commit(batch))
    }
    fn persist(&self) -> Result<()> {
        self.step("sync").and_then(|()| self.store.persist())
    }
}

/// The homes by their names: `lab`, and perhaps [`DEN`].
struct Homes {
    lab: Arc<dyn Home>,
    den: Option<Arc<dyn Home>>,
}

impl Homes {
    fn get(&self, name: &Name) -> Option<&Arc<dyn Home>> {
        match name.as_bytes() {
            name if name == LAB.as_bytes() => Some(&self.lab),
            name if name == DEN.as_bytes() => self.den.as_ref(),
            _ => None,
        }
    }
}

#[async_trait::async_trait]
impl Namespace for Homes {
    fn configured(&self) -> Vec<Name> {
        Vec::new()
    }
    fn permits(&self, name: &Name) -> bool {
        self.get(name).is_some()
    }
    async fn resolve(&self, name: &Name) -> home::Result<Mount> {
        let home = self.get(name).ok_or(home::ErrorKind::NotFound)?.clone();
        let protect = [&b".ssh"[..], b".cache/trellis"];
        let protect = protect.iter().filter_map(|p| HomePath::parse(p).ok());
        Ok(Mount {
            account: format!("ann@{name}:22"),
            home,
            start: Start::HomeDir,
            options: MountOptions { protect: protect.collect(), ..MountOptions::default() },
        })
    }
}

/// The one user.
pub fn cred() -> Cred {
    Cred { uid: SERVER, gid: SERVER, groups: Vec::new() }
}

/// The account's home directory, through the engine.
pub async fn home_dir(vfs: &Vfs, cred: &Cred, home: &str) -> home::Result<Oid> {
    Ok(vfs.lookup(Ctx::of(cred), Oid::ROOT, home.as_bytes()).await?.oid)
}

impl Gateway {
    /// A machine with an empty disk; no process runs.
    pub fn new(net: Arc<Net>, den: Option<Arc<Net>>, clock: Clock, size: Size, seed: u64) -> Arc<Gateway> {
        Arc::new(Gateway {
            disk: SimDisk::new(),
            store: Arc::new(MemStore::new()),
            clock,
            net,
            den,
            size,
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            power: AtomicBool::new(false),
            session: Arc::default(),
        })
    }

    /// The sessions, one after the other; none while no process runs.
    pub fn sessions(&self) -> Arc<Sessions> {
        self.session.clone()
    }

    /// The disk, for its statistics.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Starts a process.
    pub async fn start(&self) -> std::result::Result<(), String> {
        let disk = Arc::new(self.disk.clone());
        let seed = self.rng.lock().random();
        let line = |net: &Arc<Net>| Arc::new(Line::new(net.clone(), disk.clone())) as Arc<dyn Home>;
        let homes = Homes { lab: line(&self.net), den: self.den.as_ref().map(line) };
        let config = Config {
            env: Env {
                disk: disk.clone(),
                clock: Arc::new(self.clock.clone()),
                rng: Arc::new(SeededRng::new(seed)),
                work: Arc::new(OneThread),
            },
            store: Arc::new(LifeStore { store: self.store.clone(), disk: disk.clone() }),
            namespace: Arc::new(homes),
            server_uid: SERVER,
            server_gid: SERVER,
            mode: self.size.mode,
            share: false,
            cache_bytes: self.size.cache,
            spool_from: self.size.spool_from,
            batch_bytes: self.size.batch_bytes,
            staleness: self.size.staleness,
        };
        let died = async {
            while disk.is_alive() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        self.disk.enter(STARTING);
        // A process that died waits for nothing any more.
        let vfs = tokio::select! {
            biased;
            vfs = Vfs::open_small(config, self.size.segment) => vfs,
            () = died => return Ok(()),
        };
        self.disk.enter("");
        if !disk.is_alive() {
            return Ok(());
        }
        let vfs = vfs.map_err(|e| format!("the gateway does not start: {e}"))?;
        let number = self.session.last().map_or(0, |s| s.number + 1);
        *self.session.now.lock() = Some(Session { vfs, disk, number });
        self.session.news.notify_waiters();
        Ok(())
    }

    /// Whether a process runs.
    pub fn runs(&self) -> bool {
        self.session.last().is_some_and(|s| s.is_alive())
    }

    /// Ends the process, if it runs, with or without the machine's power, now or at one of its next changes of the
    /// disk.
    pub fn end(&self, power: bool, after: Option<u64>) {
        let seed = self.rng.lock().random();
        self.power.store(power, Ordering::SeqCst);
        match (power, after) {
            (true, Some(after)) => self.disk.crash_after(after, seed),
            (false, Some(after)) => self.disk.kill_after(after),
            (true, None) => self.disk.crash(seed),
            (false, None) => self.disk.kill(),
        }
    }

    /// The same at its next change of one of these kinds.
    pub fn end_at(&self, power: bool, steps: &'static [Step]) {
        let seed = self.rng.lock().random();
        self.power.store(power, Ordering::SeqCst);
        self.disk.end_at(steps, power.then_some(seed));
    }

    /// Whether an end that was ordered is still to come.
    pub fn end_is_due(&self) -> bool {
        self.disk.crash_is_due()
    }

    /// Closes the connection of a dead process, and loses what the machine loses with its power.
    pub fn bury(&self) {
        self.net.hangup();
        self.den.iter().for_each(|den| den.hangup());
        if self.power.swap(false, Ordering::SeqCst) {
            let keep = self.rng.lock().random_range(0..=self.store.unpersisted());
            self.store.crash(keep);
        }
        // Who waits for its answers hears of it.
        self.session.news.notify_waiters();
    }
}
