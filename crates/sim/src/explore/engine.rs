//! The same runs with the real engine in the place of [`gateway`](super::gateway): it has looked at the whole tree, accepts
//! the batch while the home is out of reach, and sends it when that is over.

use super::gateway::Gateway;
use super::run::{At, End, Report, Script, State, Wanted, plant};
use super::tree::{Change, MODE, Sort, TARGET, Tree, parent, stamp, token};
use crate::clock::Clock;
use crate::machine::{Around, Call, Fate, Machine, Process, SimSys};
use crate::variant::Variant;
use bytes::Bytes;
use home::attr::StatFs;
use home::posix::Posix;
use home::{
    Changed, Chunk, Claimed, Class, Copied, ErrorKind, Hello, Home, HomePath, Link, Loc, Name, OpId, Outcome,
    Page, Placed, Result, Seen, Status, Watched, XattrName, Xattrs,
};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vfs::env::Env;
use vfs::env::testing::{OneThread, SeededRng, SimDisk};
use vfs::store::MemStore;
use vfs::{
    Config, CreateHow, Cred, Ctx, Mode, Mount, MountOptions, Namespace, Oid, RenameHow, SetAttrs, SetTime,
    Stability, Start, Vfs,
};

/// Number of the gateway whose tokens the batch writes.
const NUMBER: u64 = 1;
const SERVER: u32 = 4000;
/// Bytes of a segment of its journal: batches are small.
const SEGMENT: u64 = 16 << 10;

struct Agent {
    posix: Posix<SimSys>,
    process: Arc<Process>,
    /// Volumes that were claimed over its connection.
    claims: Mutex<BTreeSet<(u64, u32)>>,
}

/// The home, by an agent that is asked at once; another one is started where it has died.
struct Direct {
    machine: Arc<Machine>,
    script: Arc<Script>,
    variant: Option<Variant>,
    agent: Mutex<Option<Arc<Agent>>>,
    claims: Mutex<BTreeSet<(u64, u32)>>,
    up: AtomicBool,
}

fn lost() -> home::Error {
    ErrorKind::Unreachable.into()
}

impl Direct {
    fn agent(&self) -> Result<Arc<Agent>> {
        if !self.up.load(Ordering::SeqCst) {
            return Err(lost());
        }
        let mut agent = self.agent.lock();
        if let Some(agent) = &*agent {
            return Ok(agent.clone());
        }
        let process = self.machine.process(self.script.clone());
        let sys = SimSys::new(self.machine.clone(), process.clone());
        let without = self.variant.map_or(&[][..], Variant::leaves_out);
        let posix = Posix::over(sys, b"/").map_err(|_| lost())?.without(without);
        Ok(agent.insert(Arc::new(Agent { posix, process, claims: Mutex::default() })).clone())
    }

    async fn ask<T>(&self, question: impl FnOnce(&Posix<SimSys>) -> Result<T>) -> Result<T> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let agent = self.agent()?;
        let answer = question(&agent.posix);
        self.survived(&agent)?;
        answer
    }

    /// A dead process answers nothing.
    fn survived(&self, agent: &Agent) -> Result<()> {
        if self.machine.runs(&agent.process) {
            self.script.answered();
            return Ok(());
        }
        *self.agent.lock() = None;
        Err(lost())
    }
}

#[async_trait::async_trait]
impl Home for Direct {
    fn status(&self) -> Status {
        Status::new(Link::Up, Some(Class::Posix))
    }
    async fn attach(&self) -> Result<Hello> {
        self.ask(Posix::hello).await
    }
    async fn stat(&self, at: &Loc) -> Result<Seen> {
        self.ask(|posix| posix.stat(at)).await
    }
    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        self.ask(|posix| posix.list(dir, after, max)).await
    }
    async fn watch(&self, dir: &Loc, max: u32, _: u64) -> Result<Watched> {
        Ok(Watched::not(self.list(dir, None, max).await?))
    }
    async fn changes(&self) -> Vec<Changed> {
        std::future::pending().await
    }
    fn epoch(&self) -> Option<u64> {
        None
    }
    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        self.ask(|posix| posix.read(file, at, len)).await
    }
    async fn readlink(&self, at: &Loc) -> Result<Bytes> {
        self.ask(|posix| posix.readlink(at)).await
    }
    async fn statfs(&self, at: &Loc) -> Result<StatFs> {
        self.ask(|posix| posix.statfs(at)).await
    }
    async fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        self.ask(|posix| posix.xattrs(at, want)).await
    }
    async fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<()> {
        self.ask(|posix| posix.stage(op, at, data).map(drop)).await
    }
    async fn copy(&self, op: OpId, places: Vec<Loc>, parts: Vec<Copied>) -> Result<()> {
        self.ask(|posix| posix.copy(op, &places, &parts).map(drop)).await
    }
    async fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        let known = self.ask(|posix| posix.claim(gateway, volume, lost)).await?;
        let agent = self.agent()?;
        agent.claims.lock().insert((gateway, volume));
        self.claims.lock().insert((gateway, volume));
        Ok(known)
    }
    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let agent = self.agent()?;
        let volume = ops.first().map(|placed| (placed.id.gateway, placed.id.volume));
        if volume.is_some_and(|v| self.claims.lock().contains(&v) && !agent.claims.lock().contains(&v)) {
            return Err(ErrorKind::NotClaimed.into());
        }
        let outcomes = agent.posix.apply(ops);
        let answer = Call { name: "answer", place: "network", changes: true };
        let is_lost = self.script.before(answer) != Fate::Goes;
        self.survived(&agent)?;
        if is_lost {
            *self.agent.lock() = None;
            return Err(lost());
        }
        outcomes
    }
}

/// The one home.
struct Lab(Arc<Direct>);

#[async_trait::async_trait]
impl Namespace for Lab {
    fn configured(&self) -> Vec<Name> {
        Vec::new()
    }
    fn permits(&self, _: &Name) -> bool {
        true
    }
    async fn resolve(&self, _: &Name) -> Result<Mount> {
        let protect = HomePath::parse(b".cache/trellis").into_iter().collect();
        Ok(Mount {
            account: "ann@lab:22".into(),
            home: self.0.clone(),
            start: Start::HomeDir,
            options: MountOptions { protect, ..MountOptions::default() },
        })
    }
}

/// A client of the engine.
struct Client {
    vfs: Arc<Vfs>,
    cred: Cred,
}

impl Client {
    fn ctx(&self) -> Ctx<'_> {
        Ctx::of(&self.cred)
    }

    async fn find(&self, path: &str) -> Result<Oid> {
        let mut at = Oid::ROOT;
        for name in ["lab", "t"].into_iter().chain(path.split('/').filter(|name| !name.is_empty())) {
            at = self.vfs.lookup(self.ctx(), at, name.as_bytes()).await?.oid;
        }
        Ok(at)
    }

    /// Knows all that there is.
    async fn look(&self, tree: &Tree) -> Result<()> {
        for (path, obj) in &tree.names {
            let oid = self.find(path).await?;
            match tree.nodes[*obj].sort {
                Sort::File => drop(self.vfs.read(self.ctx(), oid, 0, 100).await?),
                Sort::Dir => drop(self.vfs.readdir(self.ctx(), oid, 0, 100).await?),
                Sort::Symlink => drop(self.vfs.readlink(self.ctx(), oid).await?),
            }
        }
        Ok(())
    }

    async fn change(&self, change: Change, n: usize) -> Result<()> {
        let v = &self.vfs;
        let end = |path: &'static str| path.rsplit('/').next().unwrap_or_default().as_bytes();
        let none = SetAttrs::default();
        let (first, second) = (token(n, 0), token(n, 1));
        match change {
            Change::Create(p) => {
                let set = SetAttrs { mode: Some(0o644), ..none };
                v.create(self.ctx(), self.find(parent(p)).await?, end(p), CreateHow::Guarded, set)
                    .await
                    .map(drop)
            }
            Change::Mkdir(p) => {
                let set = SetAttrs { mode: Some(0o755), ..none };
                v.mkdir(self.ctx(), self.find(parent(p)).await?, end(p), set).await.map(drop)
            }
            Change::Symlink(p) => {
                let target = Bytes::from_static(TARGET.as_bytes());
                v.symlink(self.ctx(), self.find(parent(p)).await?, end(p), target, none).await.map(drop)
            }
            Change::Write(p) => self.write(p, 0, first + &second).await,
            Change::Save(p) => {
                let set = SetAttrs { size: Some(0), ..none };
                v.setattr(self.ctx(), self.find(p).await?, set, None).await?;
                self.write(p, 0, first).await
            }
            Change::Append(p) => {
                let size = v.getattr(self.ctx(), self.find(p).await?).await?.size;
                self.write(p, size, first).await
            }
            Change::Rename(p, q) => {
                let (from, to) = (self.find(parent(p)).await?, self.find(parent(q)).await?);
                v.rename(self.ctx(), from, end(p), to, end(q), RenameHow::Replace).await.map(drop)
            }
            Change::Link(p, q) => {
                v.link(self.ctx(), self.find(p).await?, self.find(parent(q)).await?, end(q)).await.map(drop)
            }
            Change::Remove(p) => v.remove(self.ctx(), self.find(parent(p)).await?, end(p)).await.map(drop),
            Change::Rmdir(p) => v.rmdir(self.ctx(), self.find(parent(p)).await?, end(p)).await.map(drop),
            Change::Chmod(p) => {
                let set = SetAttrs { mode: Some(MODE), ..none };
                v.setattr(self.ctx(), self.find(p).await?, set, None).await.map(drop)
            }
            Change::Utimes(p) => {
                let set = SetAttrs { mtime: Some(SetTime::At(stamp(n))), ..none };
                v.setattr(self.ctx(), self.find(p).await?, set, None).await.map(drop)
            }
            Change::Xattr(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    async fn write(&self, path: &str, at: u64, text: String) -> Result<()> {
        let oid = self.find(path).await?;
        self.vfs.write(self.ctx(), oid, at, Bytes::from(text), Stability::Stable).await.map(drop)
    }
}

/// Lives through a batch.
pub fn run(batch: &[Change], schedule: &[At], variant: Option<Variant>, wanted: &Wanted) -> Report {
    if batch.iter().any(|change| matches!(change, Change::Xattr(_))) {
        // To accept it the home is asked.
        return Report { steps: Vec::new(), end: End::Impossible };
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let Ok(runtime) = runtime else {
        return Report { steps: Vec::new(), end: End::Broken("no runtime".into()) };
    };
    runtime.block_on(async {
        let clock = Clock::new(1_000_000, 1_000_000);
        let machine = Machine::new(1, clock.clone());
        let script = Script::new(&machine, batch, schedule, wanted);
        let end = match plant(&machine) {
            Ok(()) => live(&machine, &script, (batch, variant), &clock).await,
            Err(e) => End::Broken(format!("no tree: {e}")),
        };
        script.report(end)
    })
}

async fn live(
    machine: &Arc<Machine>,
    script: &Arc<Script>,
    (batch, variant): (&[Change], Option<Variant>),
    clock: &Clock,
) -> End {
    let home = Arc::new(Direct {
        machine: machine.clone(),
        script: script.clone(),
        variant,
        agent: Mutex::default(),
        claims: Mutex::default(),
        up: AtomicBool::new(true),
    });
    let client = match begin(&home, batch, clock).await {
        Ok(client) => client,
        Err(e) => return End::Broken(format!("it does not begin: {e}")),
    };
    script.with(|state| state.active = true);
    home.up.store(true, Ordering::SeqCst);
    let synced = client.vfs.sync(None, Duration::from_secs(600)).await.is_ok();
    let end = script.with(|state| judge(machine, state, (batch, synced), clock, &client.vfs.status()));
    drop(client);
    end
}

/// An engine that has accepted the batch; the home is out of reach.
async fn begin(home: &Arc<Direct>, batch: &[Change], clock: &Clock) -> Result<Client> {
    let config = Config {
        env: Env {
            disk: Arc::new(SimDisk::new()),
            clock: Arc::new(clock.clone()),
            rng: Arc::new(SeededRng::new(1)),
            work: Arc::new(OneThread),
        },
        store: Arc::new(MemStore::new()),
        namespace: Arc::new(Lab(home.clone())),
        server_uid: SERVER,
        server_gid: SERVER,
        mode: Mode::Wb,
        share: false,
        cache_bytes: 64 << 20,
        staleness: Duration::from_secs(5),
    };
    let vfs =
        Vfs::open_small(config, SEGMENT).await.map_err(|e| home::Error::new(ErrorKind::Io, e.to_string()))?;
    let client = Client { vfs, cred: Cred { uid: SERVER, gid: SERVER, groups: Vec::new() } };
    client.look(&Tree::begin()).await?;
    home.up.store(false, Ordering::SeqCst);
    for (n, change) in batch.iter().enumerate() {
        client.change(*change, 10 * NUMBER as usize + n).await?;
    }
    Ok(client)
}

/// What the home refused, because another program has taken away what it is about, waits for a person; then what the batch
/// wrote is not looked for at the home.
fn judge(
    machine: &Arc<Machine>,
    state: &mut State,
    (batch, synced): (&[Change], bool),
    clock: &Clock,
    status: &vfs::VfsStatus,
) -> End {
    let alone = state.outside.acts.is_empty();
    let refused = status.volumes.iter().any(|v| !v.parked.is_empty());
    for v in &status.volumes {
        if (v.conflicts > 0 || refused) && alone || v.suspended.is_some() || v.journal.is_some() {
            return End::Broken(format!("I7: {v:?}"));
        }
    }
    if !synced && !refused {
        return End::Broken(format!("L1: it does not end: {:?}", status.volumes));
    }
    state.judge(machine, (&Gateway::of_engine(NUMBER, batch, refused), None), clock)
}
