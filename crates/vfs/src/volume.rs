//! A volume: one account on one host. Its trouble holds back nobody else.

mod account;
mod claim;
mod modes;
mod sent;
pub mod space;

pub use account::Stranger;
use claim::Claims;
pub use modes::{Alarm, offline};

use crate::alike::Alike;
use crate::config::{MountOptions, VolumeStatus};
use crate::conflict::Policies;
use crate::data::{Budget, DataLog, Room};
use crate::earlier::Chunks;
use crate::env::Env;
use crate::fetch::{Flights, Walks};
use crate::guard::Guard;
use crate::inode::{Ctimes, Tree, TreeLock, local};
use crate::journal::{Binding, Body, Change, Fate, Journal, Lane, Stored};
use crate::mode::Modes;
use crate::mutate::{enqueue, keep_only_base};
use crate::overlay::{Recovery, lay_bytes};
use crate::replies::Replies;
use crate::store::MetaStore;
use crate::sync::prefer::moved_by;
use crate::sync::queue::demand::Demand;
use crate::sync::queue::objects;
use crate::types::Oid;
use crate::watch::{Notes, Watchers};
use crate::{limits, news, stats::Stats};
use home::{Attr, Error, ErrorKind, Hello, Home, Name, Op, Result, Time};
use oncrpc::xdr::Xdr;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::task::JoinHandle;

oncrpc::xdr! {
    /// What the store keeps of a volume.
    #[derive(Debug, Clone, PartialEq)]
    pub struct VolumeRecord {
        /// Identity of the account.
        pub account: bytes::Bytes,
        /// Names in the root directory that worked once.
        pub names: Vec<Name>,
        /// The token found in the account's home directory.
        pub token: Option<[u8; 16]>,
    }
}

/// What all volumes share.
#[derive(Clone)]
pub struct Shared {
    /// Local disk, clock and randomness.
    pub env: Env,
    /// Identities.
    pub store: Arc<dyn MetaStore>,
    /// Group commit.
    pub journal: Arc<Journal>,
    /// Cap of the data caches.
    pub budget: Arc<Budget>,
    /// Counters.
    pub stats: Arc<Stats>,
    /// First answers of calls that may come again.
    pub replies: Arc<Mutex<Replies>>,
    /// Who hears of changes.
    pub watchers: Arc<Watchers>,
    /// Random number of this state directory.
    pub gateway: u64,
    /// Counts what is staged, from a random number on: see `Volume::next_staging`.
    pub stagings: Arc<AtomicU64>,
    /// The local user that the account is mapped to.
    pub server_uid: u32,
    /// The local group that the account's primary group is mapped to.
    pub server_gid: u32,
    /// How old an answer from the cache may be.
    pub staleness: Duration,
    /// See [`crate::Config::spool_from`].
    pub spool_from: Option<u64>,
    /// See [`crate::Config::batch_bytes`].
    pub batch_bytes: u64,
}

/// Policies of a volume.
#[derive(Debug)]
pub struct Policy {
    /// What an acknowledgement promises. Read for a moment: nobody waits for another lock meanwhile, but under the tree's.
    pub modes: RwLock<Modes>,
    /// What becomes of conflicts.
    pub conflicts: Policies,
    /// Whether other users have what the mode gives to others.
    pub share: bool,
    /// Everything else.
    pub options: MountOptions,
}

/// Whether the home answers.
#[derive(Debug)]
pub struct Health {
    /// It did not answer when it was last asked.
    pub silent: AtomicBool,
    /// Since when; monotonic.
    pub since: Mutex<Option<Duration>>,
    /// It was not greeted by this process, or asked who we are: it must be greeted again, and may be another account now.
    pub estranged: AtomicBool,
    /// It has not answered this process yet, or it is not certain yet what it executed of what an earlier process sent.
    /// What was kept from then is worth less than an answer that takes longer.
    pub beginning: AtomicBool,
    /// When it answered last; monotonic.
    answered: Mutex<Duration>,
    /// Calls that wait for it now.
    awaited: AtomicUsize,
    /// Somebody has begun to wait for it, or it answers again.
    news: Notify,
}

impl Default for Health {
    /// Of a home that was not asked yet.
    fn default() -> Health {
        Health {
            silent: AtomicBool::new(false),
            since: Mutex::new(None),
            estranged: AtomicBool::new(true),
            beginning: AtomicBool::new(true),
            answered: Mutex::new(Duration::ZERO),
            awaited: AtomicUsize::new(0),
            news: Notify::new(),
        }
    }
}

/// Somebody waits for the home as long as this lives.
pub struct Awaited<'a>(&'a Health);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One account on one host.
pub struct Volume {
    /// Its number.
    pub id: u32,
    /// Identity of the account.
    pub account: String,
    /// The authoritative copy. Named only by `fetch` (reads) and `sync` (changes).
    pub home: Arc<dyn Home>,
    /// Policies.
    pub policy: Policy,
    /// What all volumes share.
    pub shared: Shared,
    /// Local disk, clock and randomness.
    pub env: Env,
    /// The journal.
    pub lane: Arc<Lane>,
    /// Cached bytes.
    pub data: Arc<DataLog>,
    /// What files had before they were found changed.
    pub chunks: Chunks,
    /// What is known of bytes that are alike.
    pub alike: Alike,
    /// Objects and what of them is unsent. Held for microseconds, never across a wait.
    pub tree: TreeLock,
    /// Questions under way.
    pub flights: Flights,
    /// Walks under way.
    pub walks: Walks,
    /// Whether the home answers.
    pub health: Health,
    /// What the home said of itself when it was last greeted.
    pub hello: Mutex<Option<Hello>>,
    /// What the store keeps. Held while the store is written, so never taken under the tree's lock.
    pub record: Mutex<VolumeRecord>,
    /// Why nothing is sent to the home while another account may answer.
    suspended: Mutex<Option<String>>,
    /// Who answers there then.
    stranger: Mutex<Option<Hello>>,
    /// Folders in which nothing may be changed.
    pub guard: Mutex<Arc<Guard>>,
    /// What the home said of its space.
    pub space: Mutex<space::Space>,
    /// Held by who finds out whether the home has just room for a change: so no two count on the same.
    pub scarce: tokio::sync::Mutex<()>,
    /// The home lets only us change it for this volume, as far as we know.
    pub claimed: AtomicBool,
    /// When the home's machine was started again, as it told when the volume was claimed: see [`home::Claimed`].
    pub booted: Mutex<Option<Time>>,
    /// See [`claim`].
    claims: Claims,
    /// See [`sent`].
    was_sent: AtomicBool,
    /// It was claimed before: the account may be another one by now.
    pub claims_again: AtomicBool,
    /// Wakes the sender.
    pub wake: Notify,
    /// Counts outcomes, for those who wait for the queue to shrink.
    pub outcomes: news::Sender<u64>,
    /// Conflicts since the start.
    pub conflicts: AtomicU64,
    /// Those of them that could not be, as the mode has it.
    pub alarm: Mutex<Alarm>,
    /// Part of the write verifier; moves when acknowledged unsynced writes were lost.
    pub losses: Mutex<u64>,
    /// One checkpoint at a time.
    pub saving: Arc<tokio::sync::Mutex<()>>,
    /// Background work; ends with the volume.
    pub tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Volume {
    /// Opens the local state of a volume and lays what is unsent over it.
    pub fn open(
        shared: &Shared,
        id: u32,
        account: String,
        home: Arc<dyn Home>,
        policy: Policy,
    ) -> Result<Arc<Volume>> {
        let record = load_record(shared, id, &account)?;
        if record.token.is_some() {
            // Only an agent has a token.
            home.expect(home::Class::Posix);
        }
        let data = DataLog::open(&shared.env, id, shared.budget.clone()).map_err(local)?;
        let claims = Claims::open(&shared.env, id)?;
        let (lane, records) = shared.journal.open_lane(id, data.clone()).map_err(local)?;
        claims.sends_up_to(lane.last());
        let mut tree = Tree::open(id, shared.store.clone())?;
        tree.nameless.gateway = shared.gateway;
        tree.queue.set_up(shared.batch_bytes, shared.spool_from.is_some());
        recover(shared, id, &mut tree, &data, records)?;
        let was_sent = sent::was_sent(&*shared.store, id)?;
        if was_sent {
            tree.queue.begin_again();
        }
        tree.notes = Notes::new(id, shared.gateway, shared.watchers.clone());
        let guard = Guard::kept(&*shared.store, id, &policy.options.protect)?;
        let hello = account::kept_hello(&*shared.store, id)?;
        let volume = Arc::new(Volume {
            id,
            account,
            home,
            policy,
            shared: shared.clone(),
            env: shared.env.clone(),
            lane,
            data,
            chunks: Chunks::default(),
            alike: Alike::default(),
            tree: TreeLock::new(tree),
            flights: Flights::default(),
            walks: Walks::default(),
            health: Health::default(),
            hello: Mutex::new(hello),
            record: Mutex::new(record),
            suspended: Mutex::new(None),
            stranger: Mutex::new(None),
            guard: Mutex::new(Arc::new(guard)),
            space: Mutex::new(space::Space::open(kept(&*shared.store, &space_key(id))?)),
            scarce: tokio::sync::Mutex::default(),
            claimed: AtomicBool::new(false),
            booted: Mutex::default(),
            claims,
            was_sent: AtomicBool::new(was_sent),
            claims_again: AtomicBool::new(false),
            wake: Notify::new(),
            outcomes: news::Sender::new(0),
            conflicts: AtomicU64::new(0),
            alarm: Mutex::default(),
            losses: Mutex::new(0),
            saving: Arc::default(),
            tasks: Mutex::new(Vec::new()),
        });
        let sender = tokio::spawn(crate::sync::push::run(Arc::downgrade(&volume)));
        let keeper = tokio::spawn(checkpoints(Arc::downgrade(&volume)));
        let listener = tokio::spawn(crate::fetch::listen(Arc::downgrade(&volume), volume.home.clone()));
        volume.tasks.lock().extend([sender, keeper, listener]);
        Ok(volume)
    }

    /// Remembers that a name of the root directory leads here.
    pub fn remember_name(&self, name: &Name) -> Result<()> {
        let mut record = self.record.lock();
        if !record.names.contains(name) {
            record.names.push(name.clone());
            save_record(&self.shared, self.id, &record)?;
        }
        Ok(())
    }

    /// A name of the root directory leads elsewhere now.
    pub fn forget_name(&self, name: &Name) -> Result<()> {
        let mut record = self.record.lock();
        record.names.retain(|n| n != name);
        save_record(&self.shared, self.id, &record)
    }

    /// For whoever waited for the home long enough: why it was last asked in vain, else what its status says.
    pub fn out_of_reach(&self, why: Option<String>) -> Error {
        let why = why.unwrap_or_else(|| match self.home.status().link {
            home::Link::Down(why) => why,
            _ => ErrorKind::Unreachable.to_string(),
        });
        Error::new(ErrorKind::Io, format!("{}: {why}", self.account))
    }

    /// The home said this of itself.
    pub fn is_greeted(&self, hello: &Hello) {
        keep(&*self.shared.store, hello_key(self.id), hello);
        *self.hello.lock() = Some(hello.clone());
        self.health.estranged.store(false, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// The home said that a file system of it has this space; answers the same.
    /// `settled`: see [`space::Told`].
    pub fn has_space(&self, fs: u64, space: home::StatFs, settled: Demand) -> home::StatFs {
        let at = self.shared.env.clock.instant();
        if self.space.lock().told(fs, space::Told { space, at, settled }) {
            keep(&*self.shared.store, space_key(self.id), &space);
        }
        space
    }

    /// The home answered.
    pub fn heard(&self) {
        if self.health.silent.swap(false, Ordering::Relaxed) {
            self.health.news.notify_one();
        }
        *self.health.since.lock() = None;
        *self.health.answered.lock() = self.env.clock.instant();
    }

    /// The home did not answer.
    pub fn unheard(&self) {
        self.health.silent.store(true, Ordering::Relaxed);
        let now = self.env.clock.instant();
        self.health.since.lock().get_or_insert(now);
    }

    /// Whether the home did not answer when it was last asked.
    pub fn is_silent(&self) -> bool {
        self.health.silent.load(Ordering::Relaxed)
    }

    /// Whether the home gives nothing to those who wait since `began`.
    pub fn gives_nothing(&self, began: Duration) -> bool {
        let last = began.max(*self.health.answered.lock());
        self.is_silent() || self.env.clock.instant() > last + limits::CROWD_PATIENCE
    }

    /// Lets attempts to reach the home be made soon, as long as the answer lives.
    pub fn awaits(&self) -> Awaited<'_> {
        crate::stats::waits();
        self.health.awaited.fetch_add(1, Ordering::Relaxed);
        self.health.news.notify_one();
        Awaited(&self.health)
    }

    /// The pause before changes are sent again: `longest`, unless somebody waits for the home, or it answers another call.
    pub async fn rest(&self, longest: Duration) {
        let was_silent = self.is_silent();
        let mut pause = std::pin::pin!(tokio::time::sleep(longest));
        loop {
            if self.health.awaited.load(Ordering::Relaxed) > 0
                && let Some(left) = self.home.wanted()
            {
                let soon = tokio::time::sleep(left).deadline();
                if soon < pause.deadline() {
                    pause.as_mut().reset(soon);
                }
            }
            tokio::select! {
                biased;
                () = &mut pause => return,
                () = self.health.news.notified() => {}
            }
            if was_silent && !self.is_silent() {
                return;
            }
        }
    }

    /// The volume as `trellis status` shows it.
    pub fn status(&self) -> VolumeStatus {
        let now = self.env.clock.instant();
        let names = self.record.lock().names.clone();
        let copies = self.count_copies();
        let modes = self.policy.modes.read().clone();
        let staleness = match modes.whole() {
            plain if plain.is_plain() => Some(Duration::ZERO),
            mode => mode.expires().then_some(self.shared.staleness),
        };
        let mut tree = self.tree.lock();
        let parked = crate::sync::push::parked(&mut tree);
        let queue = &tree.queue;
        VolumeStatus {
            volume: self.id,
            account: self.account.clone(),
            names,
            modes,
            conflict_policies: self.policy.conflicts.clone(),
            home: self.home.status(),
            staleness,
            kept: self.health.beginning.load(Ordering::Relaxed),
            silent: self.is_silent(),
            unsent_ops: queue.len() as u64,
            unsent_bytes: queue.bytes(),
            oldest: queue.iter().next().map(|(_, p)| now.saturating_sub(p.since)),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            alarm: self.alarm(),
            copies,
            parked,
            suspended: self.suspension(),
            journal: self.lane.poisoned(),
            walks: self.walks.status(),
        }
    }

    /// Writes identities to the store, and lets the journal forget what is durable elsewhere. The store is never ahead
    /// of the journal: after a restart the version that an operation left would count as the one before it.
    pub async fn checkpoint(&self, durable: bool) -> Result<()> {
        let turn = self.saving.clone().lock_owned().await;
        self.checkpoint_in(turn, durable).await
    }

    /// Waits until a path leads to all that was accepted up to a record, also after a restart: an answer that says
    /// that it is stable says that it is found again. Usually it is there already.
    pub async fn is_found(&self, seq: u64) {
        if self.tree.lock().are_found(seq) {
            return;
        }
        let turn = self.saving.clone().lock_owned().await;
        // Who had the turn before may have done it for all.
        if !self.tree.lock().are_found(seq)
            && let Err(e) = self.checkpoint_in(turn, true).await
        {
            tracing::debug!(account = %self.account, "what was accepted may not be found before the home is there: {e}");
        }
    }

    async fn checkpoint_in(&self, turn: OwnedMutexGuard<()>, durable: bool) -> Result<()> {
        let (mut unsaved, batch, last, forget, number) = {
            let mut tree = self.tree.lock();
            self.log_bindings_if_room(&mut tree)?;
            tree.shrink(limits::INODES_MAX);
            let last = self.lane.last();
            let (ids, batch) = tree.checkpoint(last);
            let forget = tree.queue.first().unwrap_or(last + 1);
            (Unsaved { volume: self, ids }, batch, last, forget, tree.last_checkpoint())
        };
        if let Err(e) = self.lane.synced(last).await {
            tracing::debug!(account = %self.account, "the checkpoint waits for the journal: {e}");
            return Ok(());
        }
        let saved = self.save(turn, batch, durable).await;
        self.tree.lock().is_checkpointed((number, last), durable, saved.is_err());
        match saved {
            Ok(()) => {
                unsaved.ids.clear();
                if durable {
                    self.lane.forget_below(forget);
                }
                Ok(())
            }
            Err(e) => {
                if e.kind == ErrorKind::NoSpace {
                    self.data.make_room();
                }
                Err(e)
            }
        }
    }

    /// Writes a batch. Whoever waits for it may give up; its turn ends with the writing, so that no older batch comes
    /// after a newer one.
    async fn save(
        &self,
        turn: OwnedMutexGuard<()>,
        batch: Vec<crate::store::Write>,
        durable: bool,
    ) -> Result<()> {
        let store = self.shared.store.clone();
        let work = self.env.lend(move || {
            let _turn = turn;
            if !batch.is_empty() {
                store.commit(batch)?;
            }
            if durable { store.persist() } else { Ok(()) }
        });
        work.await.map_err(|e| Error::new(ErrorKind::Io, e.to_string()))?.map_err(local)
    }
}

/// Objects of a batch on its way to the store: the next one has them again, unless this one arrives.
struct Unsaved<'a> {
    volume: &'a Volume,
    ids: Vec<u64>,
}

impl Drop for Unsaved<'_> {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            let mut tree = self.volume.tree.lock();
            self.ids.iter().for_each(|id| tree.not_kept(*id));
        }
    }
}

/// An error that comes again and again: there is something to say of it when it begins, when it is another, and when it
/// is over.
#[derive(Default)]
struct Trouble {
    why: Option<Error>,
    times: u64,
}

impl Trouble {
    fn news(&mut self, checkpoint: Result<()>) -> Option<String> {
        let Err(e) = checkpoint else {
            let times = std::mem::take(&mut self.times);
            return self.why.take().map(|_| format!("checkpoints are written again; {times} had failed"));
        };
        self.times += 1;
        // How little room is left is another number each time.
        let same = |before: &Error| {
            before.kind == e.kind && (e.kind == ErrorKind::NoSpace || before.detail == e.detail)
        };
        let news = (!self.why.as_ref().is_some_and(same))
            .then(|| format!("checkpoint failed, the journal keeps everything: {e}"));
        self.why = Some(e);
        news
    }
}

/// Writes checkpoints until the volume is gone.
async fn checkpoints(volume: std::sync::Weak<Volume>) {
    let mut trouble = Trouble::default();
    for round in 1u64.. {
        tokio::time::sleep(limits::CHECKPOINT).await;
        let Some(volume) = volume.upgrade() else { return };
        volume.remove_nameless();
        if let Some(news) = trouble.news(volume.checkpoint(round % 5 == 0).await) {
            tracing::warn!(account = %volume.account, "{news}");
        }
    }
}

/// Lays the records of a journal over a tree: identities first, then every change without an outcome, in order.
fn recover(
    shared: &Shared,
    volume: u32,
    tree: &mut Tree,
    data: &DataLog,
    records: Vec<(u64, Body)>,
) -> Result<()> {
    let saved = tree.saved_up_to()?;
    let changes = records.iter().filter_map(|(_, body)| match body {
        Body::Change(change) => Some(change),
        _ => None,
    });
    tree.ctimes = Ctimes::found(changes, tree.noted_floor()?, shared.env.clock.now());
    let (open, recovery) = unretired(&mut shared.replies.lock(), volume, tree, records, saved);
    let now = shared.env.clock.instant();
    for (seq, (mut change, late)) in open {
        objects(&change).for_each(|id| keep_only_base(tree, data, id));
        let laid = change.is_laid();
        match if laid { lay_bytes(data, &mut change, Room::Within) } else { Ok(()) } {
            // The journal has them; they go home from there.
            Err(e) if e.kind == ErrorKind::NoSpace => drop(tree.unlaid.insert(change.object)),
            done => done?,
        }
        let again = change.clone();
        if laid && matches!(change.op, Op::Write { .. }) {
            // It had a name when this was taken. After a removal of all that are known now it was one that no record tells: the
            // home had given it, and has given it to another one since.
            tree.get(change.object).into_iter().for_each(|inode| inode.gone = false);
        }
        let lay = |tree: &mut Tree| enqueue(tree, seq, change, 0, now, laid, None);
        recovery.lay_again(tree, (seq, &again), seq <= saved, lay);
        if let Some(op) = tree.queue.get_mut(seq) {
            (op.late, op.recovered) = (late, true);
        }
    }
    tree.enter_unsent();
    doubt_plain(tree);
    Ok(())
}

/// Mode `strict`: what is unsent of a file does not tell what the file is, because operations before and after it may have been
/// executed of which no record has all, and others may have changed it since.
fn doubt_plain(tree: &mut Tree) {
    let laid = tree.queue.plain().filter(|(_, p)| p.overlaid).map(|(_, p)| p.change.object);
    for id in laid.collect::<Vec<u64>>() {
        tree.get(id).into_iter().for_each(|inode| inode.recalled = inode.attr.is_some());
    }
}

/// Restores first answers, and identities from the records after `saved`, the last one that the store contains. Finds the
/// changes without an outcome, each with whether it was refused or given another form.
fn unretired(
    replies: &mut Replies,
    volume: u32,
    tree: &mut Tree,
    records: Vec<(u64, Body)>,
    saved: u64,
) -> (BTreeMap<u64, (Change, bool)>, Recovery) {
    let mut open: BTreeMap<u64, (Change, bool)> = BTreeMap::new();
    let mut recovery = Recovery::default();
    let mut restored = Vec::new();
    let mut restore = |tree: &mut Tree, seq: u64, bindings: Vec<Binding>| {
        for b in bindings.iter().filter(|_| seq > saved) {
            tree.restore(b);
            restored.push(b.object);
        }
    };
    for (seq, body) in records {
        match body {
            Body::Bind(bindings) => restore(tree, seq, bindings),
            Body::Change(change) => {
                if let Some(key) = change.retry {
                    replies.insert(key, Oid { volume, id: change.object });
                }
                if seq > saved {
                    recovery.count(tree, &change);
                }
                open.insert(seq, (change, false));
            }
            Body::Amend(amend) => {
                if let Some((change, late)) = open.get_mut(&amend.seq) {
                    take_form(tree, change, amend.op, seq > saved);
                    *late = true;
                }
            }
            Body::Late(seq) => open.get_mut(&seq).into_iter().for_each(|(_, late)| *late = true),
            Body::Vanish(seqs) => {
                for seq_of in seqs {
                    if let Some((change, _)) = open.remove(&seq_of) {
                        recovery.settle(tree, seq_of, &change, seq_of > saved);
                    }
                }
            }
            Body::Retire(retire) => {
                let change = open.remove(&retire.seq);
                match retire.how {
                    Fate::Done(bindings) => {
                        restore(tree, seq, bindings);
                        if let Some((change, _)) = change {
                            recovery.settle(tree, retire.seq, &change, retire.seq > saved);
                        }
                    }
                    _ => {
                        if let Some((change, _)) = change.as_ref().filter(|_| seq > saved) {
                            forget_attributes(tree, change);
                        }
                        // In other modes it was executed here, whatever became of it at the home.
                        if let Some(key) = change.filter(|(c, _)| c.plain).and_then(|(c, _)| c.retry) {
                            replies.remove(&key);
                        }
                    }
                }
            }
        }
    }
    tree.enter_restored(restored);
    (open, recovery)
}

/// Recovery: gives a change another form. `anew`: what was kept is of before that.
fn take_form(tree: &mut Tree, change: &mut Change, op: Op<u64, Stored>, anew: bool) {
    let is_new = matches!((&change.op, &op), (Op::Write { .. }, Op::Create { .. }));
    if is_new && anew {
        tree.detach(change.object);
        // Its name is that of the outcome, or of the new form.
        if let Ok(inode) = tree.get(change.object) {
            (inode.link, inode.more_links) = (None, Vec::new());
        }
    }
    if let (Some(after), by @ 1..) = (&mut change.after, moved_by(&change.op, &op)) {
        after.size += by;
        if let (true, Ok(inode)) = (anew, tree.get(change.object)) {
            inode.attr = inode.attr.map(|a| Attr { size: a.size.max(after.size), ..a });
        }
    }
    change.op = op;
}

/// What was kept of the objects of a change contains it, and it came to nothing: the home has to be asked.
fn forget_attributes(tree: &mut Tree, change: &Change) {
    for id in objects(change) {
        if let Ok(inode) = tree.get(id) {
            inode.attr = None;
            tree.unsaved(id);
        }
    }
}

fn record_key(id: u32) -> Vec<u8> {
    [&b"v"[..], &id.to_be_bytes()].concat()
}

fn load_record(shared: &Shared, id: u32, account: &str) -> Result<VolumeRecord> {
    if let Some(bytes) = shared.store.get(&record_key(id)).map_err(local)? {
        return VolumeRecord::from_bytes(bytes)
            .map_err(|_| Error::new(ErrorKind::Io, "the local store is damaged: volume record"));
    }
    let record = VolumeRecord { account: account.to_owned().into(), names: Vec::new(), token: None };
    let writes = vec![(record_key(id), Some(record.to_bytes().to_vec())), sent::nothing_sent(id)];
    shared.store.commit(writes).and_then(|()| shared.store.persist()).map_err(local)?;
    Ok(record)
}

fn save_record(shared: &Shared, id: u32, record: &VolumeRecord) -> Result<()> {
    let write = (record_key(id), Some(record.to_bytes().to_vec()));
    shared.store.commit(vec![write]).and_then(|()| shared.store.persist()).map_err(local)
}

/// Forgets a volume that never had anything in it.
pub fn remove_record(shared: &Shared, id: u32) -> Result<()> {
    Guard::forget(&*shared.store, id)?;
    let keys = [record_key(id), hello_key(id), space_key(id), sent::key(id)];
    shared.store.commit(keys.into_iter().map(|key| (key, None)).collect()).map_err(local)
}

fn hello_key(id: u32) -> Vec<u8> {
    [&b"i"[..], &id.to_be_bytes()].concat()
}

fn space_key(id: u32) -> Vec<u8> {
    [&b"s"[..], &id.to_be_bytes()].concat()
}

/// What an earlier process kept of a home as a whole.
fn kept<T: Xdr>(store: &dyn MetaStore, key: &[u8]) -> Result<Option<T>> {
    Ok(store.get(key).map_err(local)?.and_then(|bytes| T::from_bytes(bytes).ok()))
}

/// Keeps something of a home as a whole, so that the home can be shown while it is out of reach.
fn keep<T: Xdr>(store: &dyn MetaStore, key: Vec<u8>, what: &T) {
    // Where that fails, it is missed after a restart alone.
    if let Err(e) = store.commit(vec![(key, Some(what.to_bytes().to_vec()))]) {
        tracing::debug!("not kept: {e}");
    }
}

/// Every volume that the store knows.
pub fn known_volumes(store: &dyn MetaStore) -> Result<Vec<(u32, VolumeRecord)>> {
    let mut found = Vec::new();
    for (key, value) in store.scan(b"v").map_err(local)? {
        let id = key.get(1..5).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
        if let (Some(id), Ok(record)) = (id, VolumeRecord::from_bytes(value)) {
            found.push((id, record));
        }
    }
    Ok(found)
}

#[cfg(test)]
#[path = "volume/tests.rs"]
mod tests;
