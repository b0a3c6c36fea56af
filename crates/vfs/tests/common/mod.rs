//! An engine on a home in memory, on a disk that can lose its unsynced writes.

#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use bytes::Bytes;
use home::memory::MemoryHome;
use home::testing::conformance::Outside;
use home::testing::fault::{Fault, FaultHome};
use home::{Home, HomePath, Name};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use vfs::env::testing::{SeededRng, SimDisk};
use vfs::env::{Clock, Env, RealClock};
use vfs::store::MemStore;
use vfs::{
    Config, CreateHow, Cred, Ctx, Mode, Mount, MountOptions, Namespace, Oid, Policy, SetAttrs, Stability,
    Start, Vfs,
};

pub mod clock;
pub mod steps;

pub const UID: u32 = 4000;

/// What has not happened by then never does, however busy the machine is.
pub const END: Duration = Duration::from_secs(60);

/// Bytes that nothing repeats.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    StdRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

/// Runs in time that goes fast.
pub fn in_fast_time<F: Future<Output = ()>>(mode: Mode, test: impl FnOnce(World) -> F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let clock = clock::FastClock::new(1_700_000_000);
        tokio::spawn(clock.clone().run());
        test(World { clock: Arc::new(clock), ..World::new(mode) }).await;
    });
}

pub struct OneHome {
    pub home: Arc<dyn Home>,
    pub protect: Vec<HomePath>,
    pub modes: Vec<(HomePath, Mode)>,
    pub conflicts: Vec<(HomePath, Policy)>,
}

#[async_trait::async_trait]
impl Namespace for OneHome {
    fn configured(&self) -> Vec<Name> {
        Vec::new()
    }
    fn permits(&self, name: &Name) -> bool {
        matches!(name.as_bytes(), b"lab" | b"scp:lab:")
    }
    async fn resolve(&self, name: &Name) -> home::Result<Mount> {
        if !self.permits(name) {
            return Err(home::ErrorKind::NotFound.into());
        }
        Ok(Mount {
            account: "ann@lab:22".into(),
            home: self.home.clone(),
            start: Start::Root,
            options: MountOptions {
                modes: self.modes.clone(),
                conflicts: self.conflicts.clone(),
                protect: self.protect.clone(),
                ..MountOptions::default()
            },
        })
    }
}

/// All that outlives a process.
pub struct World {
    pub memory: MemoryHome,
    pub fault: Arc<FaultHome>,
    /// Another way to the home.
    pub way: Option<Arc<dyn Home>>,
    pub disk: SimDisk,
    pub store: Arc<MemStore>,
    pub mode: Mode,
    /// Folders with a mode of their own.
    pub modes: Vec<(HomePath, Mode)>,
    /// Folders with a policy of conflicts of their own.
    pub conflicts: Vec<(HomePath, Policy)>,
    pub staleness: Duration,
    pub cache: u64,
    /// See [`Config::spool_from`].
    pub spool_from: Option<u64>,
    pub clock: Arc<dyn Clock>,
}

impl World {
    pub fn new(mode: Mode) -> World {
        let memory = MemoryHome::new();
        World {
            fault: Arc::new(FaultHome::new(Arc::new(memory.clone()))),
            memory,
            way: None,
            disk: SimDisk::new(),
            store: Arc::new(MemStore::new()),
            mode,
            modes: Vec::new(),
            conflicts: Vec::new(),
            staleness: Duration::from_secs(5),
            cache: 1 << 30,
            spool_from: None,
            clock: Arc::new(RealClock::new()),
        }
    }

    pub async fn start(&self) -> Engine {
        let env = Env {
            disk: Arc::new(self.disk.clone()),
            clock: self.clock.clone(),
            rng: Arc::new(SeededRng::new(rand::random())),
            work: Arc::new(vfs::env::Threads),
        };
        let protect = vec![HomePath::parse(b".ssh").unwrap(), HomePath::parse(b".cache/trellis").unwrap()];
        let home = self.way.clone().unwrap_or_else(|| self.fault.clone());
        let vfs = Vfs::open(Config {
            env,
            store: self.store.clone(),
            namespace: Arc::new(OneHome {
                home,
                protect,
                modes: self.modes.clone(),
                conflicts: self.conflicts.clone(),
            }),
            server_uid: UID,
            server_gid: UID,
            mode: self.mode,
            share: false,
            cache_bytes: self.cache,
            spool_from: self.spool_from,
            batch_bytes: vfs::BATCH_BYTES,
            staleness: self.staleness,
        })
        .await
        .unwrap();
        Engine { vfs, cred: Cred { uid: UID, gid: UID, groups: vec![] } }
    }

    /// A way to the home for the next process: what the last one still does must not reach it.
    pub fn reconnect(&mut self) {
        let old = std::mem::replace(&mut self.fault, Arc::new(FaultHome::new(Arc::new(self.memory.clone()))));
        old.set(Fault::Unreachable);
        self.memory.restart();
    }

    pub fn fault(&self, fault: Fault) {
        self.fault.set(fault);
    }

    /// Waits until the home was claimed, which happens ahead of the first change.
    pub async fn claimed(&self) {
        while self.fault.claims() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Another program writes a file at the home.
    pub fn write(&self, path: &str, data: &[u8]) {
        self.memory.write(&HomePath::parse(path.as_bytes()).unwrap(), data);
    }

    /// Another program removes a name at the home.
    pub fn remove(&self, path: &str) {
        Outside::remove(&self.memory, &HomePath::parse(path.as_bytes()).unwrap());
    }

    /// Another program makes a directory at the home.
    pub fn mkdir(&self, path: &str) {
        Outside::mkdir(&self.memory, &HomePath::parse(path.as_bytes()).unwrap());
    }

    /// Bytes of a file at the home.
    pub async fn at_home(&self, path: &str) -> Option<Vec<u8>> {
        let loc = home::Loc { path: HomePath::parse(path.as_bytes()).unwrap(), id: None };
        let size = self.memory.stat(&loc).await.ok()?.attr.size;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let chunk = Home::read(&self.memory, &loc, bytes.len() as u64, 1 << 20).await.ok()?;
            bytes.extend(chunk.data);
        }
        Some(bytes)
    }

    pub async fn names_at_home(&self, dir: &str) -> Vec<String> {
        let loc = home::Loc { path: HomePath::parse(dir.as_bytes()).unwrap(), id: None };
        let page = self.memory.list(&loc, None, 10_000).await.unwrap();
        page.entries.iter().map(|e| e.name.to_string()).collect()
    }
}

pub struct Engine {
    pub vfs: Arc<Vfs>,
    pub cred: Cred,
}

impl Engine {
    pub fn ctx(&self) -> Ctx<'_> {
        Ctx::of(&self.cred)
    }

    pub async fn lab(&self) -> Oid {
        self.find("/lab").await.unwrap()
    }

    pub async fn find(&self, path: &str) -> vfs::Result<Oid> {
        Ok(self.vfs.resolve_path(self.ctx(), path.as_bytes()).await?.0)
    }

    pub async fn create(&self, dir: Oid, name: &str) -> vfs::Result<Oid> {
        let made = self.vfs.create(self.ctx(), dir, name.as_bytes(), CreateHow::Guarded, SetAttrs::default());
        Ok(made.await?.oid)
    }

    pub async fn write(&self, file: Oid, at: u64, data: &[u8]) -> vfs::Result<()> {
        let data = Bytes::copy_from_slice(data);
        self.vfs.write(self.ctx(), file, at, data, Stability::Stable).await.map(drop)
    }

    pub async fn read(&self, file: Oid) -> vfs::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            let part = self.vfs.read(self.ctx(), file, bytes.len() as u64, 1 << 20).await?;
            part.data.iter().for_each(|d| bytes.extend_from_slice(d));
            if part.eof {
                return Ok(bytes);
            }
        }
    }

    pub async fn names(&self, dir: Oid) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.vfs.readdir(self.ctx(), dir, cookie, 7).await.unwrap();
            for e in &page.entries {
                cookie = e.cookie;
                names.push(e.name.escape_ascii().to_string());
            }
            if page.eof {
                names.retain(|n| n != "." && n != "..");
                names.sort();
                return names;
            }
        }
    }

    pub async fn sync(&self) {
        self.vfs.sync(None, END).await.unwrap();
    }
}

/// A clock that can be put forward by seconds.
pub struct Skipping(RealClock, AtomicU64);

impl Skipping {
    /// The clock of engines that are started from now on.
    pub fn of(world: &mut World) -> Arc<Skipping> {
        let clock = Arc::new(Skipping(RealClock::new(), AtomicU64::new(0)));
        world.clock = clock.clone();
        clock
    }

    pub fn skip(&self, seconds: u64) {
        self.1.fetch_add(seconds, Relaxed);
    }
}

impl Clock for Skipping {
    fn now(&self) -> vfs::Time {
        self.0.now()
    }
    fn instant(&self) -> Duration {
        self.0.instant() + Duration::from_secs(self.1.load(Relaxed))
    }
}

/// Waits until something is so.
pub async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let wait = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(END, wait).await.unwrap_or_else(|_| panic!("never {what}"));
}

/// Waits until nothing is unsent.
pub async fn all_gone(e: &Engine) {
    until("settled", || e.vfs.status().volumes[0].unsent_ops == 0).await;
}
