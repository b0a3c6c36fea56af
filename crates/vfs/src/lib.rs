//! The engine: identity, caches, the journal and write-back. It knows no protocol, no socket and no ssh.
//!
//! A home holds the truth; the engine holds copies of it and a journal of what the home does not know yet.
//!
//! # Layout
//! - [`ops`]: what a front-end may ask, by family; [`perm`] decides who may, [`guard`] where nobody may.
//! - [`root`]: the root directory, in which the homes appear.
//! - [`fetch`]: IN, the only reader of a home. [`mutate`]: CHANGE, the only door for a change. [`sync`]: OUT, the
//!   only way home; [`conflict`] is its table of decisions.
//! - [`volume`]: one account on one host: recovery, checkpoints, health.
//! - [`inode`], [`meta`], [`overlay`], [`replies`]: identity, attributes and names, how a change looks in them, first
//!   answers; passive.
//! - [`data`], [`journal`], [`store`]: the data cache, the journal, the index of identities.
//! - [`alike`]: which bytes does the home have already that are to be sent? Passive.
//! - [`earlier`]: what had a file before it was found changed at the home? Passive.
//! - [`freshness`]: how long an answer is good. [`mode`]: what is promised where. [`locks`]: who has locked what. [`watch`]: the stream of changes that front-ends may subscribe to.
//! - [`news`]: a value whose readers hear of its changes.
//! - [`env`], [`limits`], [`stats`], [`config`], [`types`]: the injected world, bounds, counters, what goes in, what
//!   comes out.
//!
//! # Invariants
//! 1. Dirty means: in the journal without an outcome. Nothing else says so.
//! 2. No reply before `append`; no stable reply before `synced`; in mode `strict` none before the outcome.
//! 3. Only [`fetch`] reads a home; only [`sync::push`] changes one.
//! 4. The tree's lock is taken before the locks of journal and data log, and never held across a wait.
//! 5. A name or object with unsent operations is never overwritten by an answer of the home.

mod alike;
pub mod barrier;
mod config;
mod conflict;
mod data;
mod earlier;
pub mod env;
mod fetch;
mod folders;
mod freshness;
mod guard;
mod hold;
mod inode;
mod journal;
mod limits;
mod locks;
mod meta;
mod mode;
mod mutate;
mod news;
mod ops;
mod overlay;
mod perm;
mod replies;
mod root;
mod stats;
pub mod store;
mod sync;
pub mod types;
mod unopened;
mod volume;
mod watch;

pub use config::{
    Config, Held, Mount, MountOptions, Namespace, Parked, Start, Unsent, VfsStatus, VolumeStatus, WalkStatus,
};
pub use conflict::{CopyOf, Policies, Policy, Settled, copy_of};
pub use hold::Crowd;
pub use limits::{BATCH_BYTES, SPOOL_FROM};
pub use locks::{Lock, LockFamily, LockKind, LockOwner, LockRange};
pub use mode::{Mode, Modes};
pub use ops::copies::{ConflictCopy, Keep};
pub use ops::prefetch::{Prefetch, PrefetchProgress};
pub use types::*;
pub use volume::Stranger;
pub use watch::{Event, Watch};

use crate::inode::local;
use crate::root::RootDir;
use crate::stats::Stats;
use crate::volume::{Shared, Volume, known_volumes};
use oncrpc::xdr::Xdr;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

oncrpc::xdr! {
    /// What the store keeps of the state directory as a whole.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Gateway {
        /// Names this state directory in operation ids.
        pub id: u64,
        /// Key of the MAC in file handles.
        pub handle_key: [u8; 16],
    }
}

/// The engine.
pub struct Vfs {
    this: Weak<Vfs>,
    shared: Shared,
    namespace: Arc<dyn Namespace>,
    mode: Mode,
    share: bool,
    handle_key: [u8; 16],
    boot: u64,
    volumes: RwLock<BTreeMap<u32, Arc<Volume>>>,
    opening_volumes: tokio::sync::Mutex<()>,
    unopened: unopened::Unopened,
    root: Mutex<RootDir>,
    closed: AtomicBool,
    sessions: AtomicU64,
    locks: locks::Locks,
}

impl Vfs {
    /// Opens the state directory, recovers every volume in it, and goes on writing home what is unsent. A volume whose
    /// local state is damaged is not served, and nothing of it is changed, until a person has looked.
    pub async fn open(config: Config) -> Result<Arc<Vfs>> {
        let budget = data::Budget::new(config.cache_bytes);
        Vfs::open_with(config, journal::Limits::default(), budget).await
    }

    /// The same with journal segments of so many bytes and others of a quarter of a small cache, so that a simulation gets
    /// through many of them.
    #[cfg(feature = "testing")]
    pub async fn open_small(config: Config, segment: u64) -> Result<Arc<Vfs>> {
        let budget = data::Budget::small(config.cache_bytes);
        Vfs::open_with(config, journal::Limits::of_segments(segment), budget).await
    }

    async fn open_with(
        config: Config,
        limits: journal::Limits,
        budget: Arc<data::Budget>,
    ) -> Result<Arc<Vfs>> {
        let gateway = load_gateway(&config)?;
        let known = known_volumes(&*config.store)?;
        let names = known.iter().flat_map(|(_, r)| r.names.clone()).chain(config.namespace.configured());
        let root = RootDir::new(names, config.env.clock.now());
        let boot = config.env.rng.u64();
        let shared = Shared {
            journal: journal::Journal::start_with(&config.env, limits),
            budget,
            env: config.env,
            store: config.store,
            stats: Arc::new(Stats::default()),
            replies: Arc::default(),
            watchers: Arc::default(),
            gateway: gateway.id,
            stagings: Arc::new(AtomicU64::new(boot)),
            server_uid: config.server_uid,
            server_gid: config.server_gid,
            staleness: config.staleness,
            spool_from: config.spool_from,
            batch_bytes: config.batch_bytes,
        };
        let vfs = Arc::new_cyclic(|this| Vfs {
            this: this.clone(),
            shared,
            namespace: config.namespace,
            mode: config.mode,
            share: config.share,
            handle_key: gateway.handle_key,
            boot,
            volumes: RwLock::new(BTreeMap::new()),
            opening_volumes: tokio::sync::Mutex::new(()),
            unopened: unopened::Unopened::default(),
            root: Mutex::new(root),
            closed: AtomicBool::new(false),
            sessions: AtomicU64::new(0),
            locks: locks::Locks::default(),
        });
        vfs.reopen_known().await?;
        if !vfs.unopened.lock().is_empty() {
            vfs.go_on_opening();
        }
        Ok(vfs)
    }

    /// Stops taking calls, syncs the journals, and with `drain` waits that long for the homes. Answers what is still
    /// unsent; it will be sent by the next process.
    pub async fn close(&self, drain: Option<Duration>) -> Vec<VolumeStatus> {
        self.closed.store(true, Ordering::SeqCst);
        let volumes = self.all_volumes();
        if let Some(drain) = drain {
            let drains = volumes.iter().map(|v| v.drained(drain));
            futures_util::future::join_all(drains).await;
        }
        for volume in &volumes {
            let tasks: Vec<_> = volume.tasks.lock().drain(..).collect();
            tasks.iter().for_each(|t| t.abort());
            // What they had begun has to be undone before the last checkpoint.
            futures_util::future::join_all(tasks).await;
            if let Err(e) = volume.checkpoint(true).await {
                tracing::error!("checkpoint failed, the journal keeps everything: {e}");
            }
            if let Err(e) = volume.lane.synced(volume.lane.last()).await {
                tracing::error!("the journal could not be synced: {e}");
            }
        }
        self.shared.journal.stop();
        volumes.iter().map(|v| v.status()).filter(|s| s.unsent_ops > 0).collect()
    }

    /// The root directory.
    pub fn root(&self) -> Oid {
        Oid::ROOT
    }

    /// Key of the MAC in file handles; stays with the state directory.
    pub fn handle_key(&self) -> [u8; 16] {
        self.handle_key
    }

    /// The stream of changes from now on: made through the engine, or found at a home.
    pub fn watch(&self) -> Watch {
        self.shared.watchers.watch()
    }

    /// A number for a front-end session, never given twice by this process: the origin of its calls, and the holder of
    /// its locks.
    pub fn new_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The object of a call that was executed before. Waits until the first answer is true: the change durable here,
    /// in mode `strict` at the home.
    pub async fn first_reply(&self, key: RetryKey) -> Option<FirstReply> {
        let oid = self.shared.replies.lock().get(&key.0)?;
        let volume = self.volumes.read().get(&oid.volume).cloned()?;
        let open: Vec<u64> = {
            let tree = volume.tree.lock();
            let open = tree.queue.iter().filter(|(_, p)| p.change.retry == Some(key.0));
            open.map(|(seq, _)| seq).collect()
        };
        for seq in open {
            volume.journalled(seq).await.ok()?;
            if volume.plain() {
                volume.outcome_of(seq).await;
            }
        }
        if volume.plain() {
            // Else a restart would not know that it was done, and would show what was before it. Without a journal it is done all
            // the same.
            volume.journalled(volume.lane.last()).await.ok();
        }
        self.shared.replies.lock().get(&key.0).map(|oid| FirstReply { oid })
    }

    /// Answers a request of a client's kernel, and counts it: [`VfsStatus::requests`]. `crowd`: of the connection that it came by,
    /// if that takes only so many at a time.
    pub async fn request<T>(&self, crowd: Option<Crowd>, request: impl Future<Output = T>) -> T {
        self.shared.stats.request(crowd, request).await
    }

    /// The state of everything, without asking anybody.
    pub fn status(&self) -> VfsStatus {
        let volumes = self.all_volumes();
        let (cache_hits, cache_misses) = self.shared.stats.read();
        let (requests, waited) = self.shared.stats.requests();
        VfsStatus {
            cache_bytes: self.shared.budget.used(),
            cache_cap: self.shared.budget.cap(),
            dirty_bytes: volumes.iter().map(|v| v.data.usage().dirty_bytes).sum(),
            waiting: self.shared.budget.waiting() as u64,
            inodes: volumes.iter().map(|v| v.tree.lock().len() as u64).sum(),
            cache_hits,
            cache_misses,
            requests,
            waited,
            volumes: volumes.iter().map(|v| v.status()).collect(),
            unreached: self.unreached(),
        }
    }

    /// Waits until everything that was acknowledged before is durable at the home, or says what is not. A home that let
    /// nobody in is tried once more, as is a volume that could not be opened: the person who asks may have done something about
    /// the reason.
    pub async fn sync(&self, volume: Option<u32>, timeout: Duration) -> std::result::Result<(), Vec<Unsent>> {
        if !self.unopened.lock().is_empty()
            && let Err(e) = self.reopen_known().await
        {
            tracing::error!("volumes cannot be opened: {e}");
        }
        let volumes = self.all_volumes();
        let wanted = volumes.iter().filter(|v| volume.is_none_or(|id| v.id == id));
        let wanted = wanted.inspect(|v| v.home.asked());
        let answers = futures_util::future::join_all(wanted.map(|v| v.drained(timeout))).await;
        let mut unsent: Vec<Unsent> = answers.into_iter().filter_map(|a| a.err()).collect();
        unsent.extend(self.kept_back(volume));
        if unsent.is_empty() { Ok(()) } else { Err(unsent) }
    }

    /// Tries again, now, what homes have refused; answers how many operations these are.
    pub fn retry_refused(&self, volume: Option<u32>) -> usize {
        let volumes = self.all_volumes();
        volumes.iter().filter(|v| volume.is_none_or(|id| v.id == id)).map(|v| v.retry_refused()).sum()
    }

    /// Gives up operations of a volume that its home refused, all or those of these numbers, and what means nothing
    /// without them: later writes to the same file, and what was done in a directory that is not made now. Answers all of
    /// it, in order, when that is durable.
    pub async fn discard(&self, volume: u32, wanted: Option<&[u64]>) -> Result<Vec<Parked>> {
        self.volume(Oid { volume, id: Oid::ROOT.id })?.discard(wanted).await
    }

    /// Who answers at the home of a volume, while that is suspended.
    pub fn in_doubt(&self, volume: u32) -> Result<Option<Stranger>> {
        Ok(self.volume(Oid { volume, id: Oid::ROOT.id })?.stranger())
    }

    /// Somebody says that the account with this token is the one that a suspended volume is of.
    pub async fn same_account(&self, volume: u32, token: [u8; 16]) -> Result<()> {
        self.volume(Oid { volume, id: Oid::ROOT.id })?.same_account(token).await
    }

    /// Objects of a volume with changes that wait for a decision on what its home refused: a part of them, and the
    /// number to go on with, 0 at first; `None` at the end. One may be told twice.
    pub fn held(&self, volume: u32, after: u64) -> Result<(Vec<Held>, Option<u64>)> {
        Ok(self.volume(Oid { volume, id: Oid::ROOT.id })?.held(after))
    }

    /// The path of an object here, from the root of its home.
    pub fn path_of(&self, oid: Oid) -> Result<HomePath> {
        self.volume(oid)?.tree.lock().local_path(oid.id)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn all_volumes(&self) -> Vec<Arc<Volume>> {
        self.volumes.read().values().cloned().collect()
    }

    /// The volume of an object.
    fn volume(&self, oid: Oid) -> Result<Arc<Volume>> {
        if oid.volume == Oid::ROOT_VOLUME {
            return Err(Error::new(ErrorKind::Invalid, "nothing of ours is a link or has a home"));
        }
        self.volumes.read().get(&oid.volume).cloned().ok_or_else(|| ErrorKind::Stale.into())
    }

    /// The volume of an object that is to be changed. The root directory is read-only, and so are others by their mode:
    /// nobody is asked for that.
    fn writable(&self, oid: Oid) -> Result<Arc<Volume>> {
        if oid.volume == Oid::ROOT_VOLUME {
            return Err(ErrorKind::ReadOnly.into());
        }
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Busy, "the server is stopping"));
        }
        let volume = self.volume(oid)?;
        if volume.mode_of(oid.id).is_read_only() {
            return Err(Error::new(ErrorKind::ReadOnly, "its mode is ro"));
        }
        if let Some(why) = volume.superseded() {
            return Err(Error::new(ErrorKind::ReadOnly, why));
        }
        Ok(volume)
    }

    /// The mode that is in force for an object. Nothing of ours can be changed.
    pub fn mode_of(&self, oid: Oid) -> Mode {
        self.volume(oid).map_or(Mode::Ro, |volume| volume.mode_of(oid.id))
    }

    /// Whether nobody can change an object: by its mode, or because its file system is mounted read-only at the home.
    pub fn is_read_only(&self, oid: Oid) -> bool {
        let home_says = || {
            let volume = self.volume(oid)?;
            let attr = volume::Volume::attr_of(&mut volume.tree.lock(), oid.id)?;
            perm::check_writable(&attr)
        };
        let is_behind = || self.volume(oid).is_ok_and(|volume| volume.is_superseded());
        self.mode_of(oid).is_read_only()
            || is_behind()
            || home_says().is_err_and(|e| e.kind == ErrorKind::ReadOnly)
    }

    /// Now, by the engine's own clock, for [`Ctx::since`].
    pub fn instant(&self) -> Duration {
        self.shared.env.clock.instant()
    }

    /// Whether each answer about an object is asked for at its home, so that nobody may go on with an earlier one.
    pub fn asks_each_time(&self, oid: Oid) -> bool {
        self.volume(oid).is_ok_and(|volume| volume.plain())
    }

    /// Gives a home as a whole another mode, until the process ends. [`ErrorKind::Invalid`] from or to `strict`, and
    /// where folders have modes that do not go with it.
    pub fn set_mode(&self, volume: u32, mode: Mode) -> Result<()> {
        self.volume(Oid { volume, id: Oid::ROOT.id })?.switch(mode)
    }

    /// Random number of this process.
    fn boot_verifier(&self) -> u64 {
        self.boot
    }
}

fn load_gateway(config: &Config) -> Result<Gateway> {
    if let Some(bytes) = config.store.get(b"g").map_err(local)? {
        return Gateway::from_bytes(bytes)
            .map_err(|_| Error::new(ErrorKind::Io, "the local store is damaged: gateway record"));
    }
    let mut handle_key = [0; 16];
    config.env.rng.fill(&mut handle_key);
    let gateway = Gateway { id: config.env.rng.u64(), handle_key };
    let write = (b"g".to_vec(), Some(gateway.to_bytes().to_vec()));
    config.store.commit(vec![write]).and_then(|()| config.store.persist()).map_err(local)?;
    Ok(gateway)
}
