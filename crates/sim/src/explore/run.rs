//! One run: the engine accepts a batch while nothing of it can be sent, and sends it when that is over.

use super::How;
use super::direct::{Direct, Lab, Others};
use super::gateway::{Gateway, first};
use super::script::{At, End, Event, Report, Script, State, Wanted, plant};
use super::tree::{Change, MODE, Sort, TARGET, Tree, XATTR, parent, stamp, token};
use crate::clock::Clock;
use crate::coroutine::{self, Coroutine};
use crate::machine::Machine;
use bytes::Bytes;
use home::{ErrorKind, Home, Result, XattrHow};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use vfs::env::Env;
use vfs::env::testing::{OneThread, SeededRng, SimDisk};
use vfs::store::MemStore;
use vfs::{Config, CreateHow, Cred, Ctx, Mode, Oid, RenameHow, SetAttrs, SetTime, Stability, Vfs, VfsStatus};

/// Number of the gateway that sends the batch.
const NUMBER: u64 = 1;
/// Number of another one.
const OTHER: u64 = 2;
const SERVER: u32 = 4000;
/// Bytes of a segment of a gateway's journal: batches are small.
const SEGMENT: u64 = 16 << 10;
/// Within this virtual time all is sent.
const SENT_WITHIN: Duration = Duration::from_secs(600);

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

    /// One that has looked at the whole tree and accepted a batch, of which nothing was sent yet.
    async fn begin(home: &Arc<Direct>, batch: &[Change], number: u64, clock: &Clock) -> Result<Client> {
        let config = Config {
            env: Env {
                disk: Arc::new(SimDisk::new()),
                clock: Arc::new(clock.clone()),
                rng: Arc::new(SeededRng::new(number)),
                work: Arc::new(OneThread),
            },
            store: Arc::new(MemStore::new()),
            namespace: Arc::new(Lab(home.clone())),
            server_uid: SERVER,
            server_gid: SERVER,
            mode: Mode::Wb,
            share: false,
            cache_bytes: 64 << 20,
            spool_from: home.spools().then_some(1),
            batch_bytes: vfs::BATCH_BYTES,
            staleness: Duration::from_secs(5),
        };
        let vfs = Vfs::open_small(config, SEGMENT)
            .await
            .map_err(|e| home::Error::new(ErrorKind::Io, e.to_string()))?;
        let client = Client { vfs, cred: Cred { uid: SERVER, gid: SERVER, groups: Vec::new() } };
        client.look(&Tree::begin()).await?;
        for (n, change) in batch.iter().enumerate() {
            client.change(*change, first(number) + n).await?;
        }
        Ok(client)
    }

    /// Sends all that it has accepted.
    async fn send(&self, home: &Direct) -> Sent {
        home.permit();
        let synced = self.vfs.sync(None, SENT_WITHIN).await.is_ok();
        (synced, self.vfs.status())
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
            Change::Xattr(p) => {
                v.setxattr(self.ctx(), self.find(p).await?, XATTR.as_bytes(), first.into(), XattrHow::Any)
                    .await
            }
        }
    }

    async fn write(&self, path: &str, at: u64, text: String) -> Result<()> {
        let oid = self.find(path).await?;
        self.vfs.write(self.ctx(), oid, at, Bytes::from(text), Stability::Stable).await.map(drop)
    }
}

/// What all gateways of a run have in common.
#[derive(Clone)]
struct World {
    machine: Arc<Machine>,
    script: Arc<Script>,
    how: How,
}

/// What became of a gateway's batch: whether it was sent in time, and what people are told.
type Sent = (bool, VfsStatus);

/// Lives through a batch.
pub fn run(batch: &[Change], schedule: &[At], how: How, wanted: &Wanted) -> Report {
    let lived = paused(async {
        let clock = Clock::new(1_000_000, 1_000_000);
        let machine = Machine::new(1, clock.clone());
        let script = Script::new(&machine, batch, schedule, wanted);
        let world = World { machine, script, how };
        let end = match plant(&world.machine) {
            Ok(()) => world.live(batch, schedule, &clock).await,
            Err(e) => End::Broken(format!("no tree: {e}")),
        };
        world.script.report(end)
    });
    lived.unwrap_or_else(|e| Report { steps: Vec::new(), end: End::Broken(format!("no runtime: {e}")) })
}

/// Runs something in virtual time.
fn paused<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    Ok(runtime.enable_time().start_paused(true).build()?.block_on(work))
}

impl World {
    async fn live(&self, batch: &[Change], schedule: &[At], clock: &Clock) -> End {
        let takes_turns = schedule.iter().any(|at| matches!(at.event, Event::Switch | Event::Other(_)));
        let others = takes_turns.then(Others::default);
        let home = Direct::new(&self.machine, &self.script, self.how, others.clone());
        let client = match Client::begin(&home, batch, NUMBER, clock).await {
            Ok(client) => client,
            Err(e) => return End::Broken(format!("it does not begin: {e}")),
        };
        let mut other = Vec::new();
        if let (Some(others), Some(change)) = (&others, schedule.iter().find_map(At::other)) {
            other.push((change, self.begin_other(others, change)));
        }
        self.script.with(|state| state.active = true);
        let mut sent = vec![(NUMBER, batch.to_vec(), client.send(&home).await)];
        others.iter().for_each(|others| others.end(&self.script));
        for (change, word) in other {
            match word.lock().take() {
                Some(word) => sent.push((OTHER, vec![change], word)),
                None => return End::Broken("the other gateway does not begin".into()),
            }
        }
        let end = self.script.with(|state| self.judge(state, &sent, clock));
        drop(client);
        end
    }

    /// Another gateway, which has accepted a change, and waits for its turn. Answers where it will tell what became of that.
    fn begin_other(&self, others: &Others, change: Change) -> Arc<Mutex<Option<Sent>>> {
        let (world, word) = (self.clone(), Arc::new(Mutex::new(None)));
        let tell = word.clone();
        let live = async move {
            let clock = Clock::new(1_000_000, 1_000_000);
            let home = Direct::new(&world.machine, &world.script, world.how, None);
            let client = Client::begin(&home, &[change], OTHER, &clock).await.ok()?;
            coroutine::pause();
            Some(client.send(&home).await)
        };
        let mut gateway = Coroutine::new(move || *tell.lock() = paused(live).ok().flatten());
        if gateway.resume().is_none() {
            others.wait(gateway);
        }
        word
    }

    /// What the home refused, because another program has taken away what it is about, waits for a person; then what the batch
    /// wrote is not looked for at the home.
    fn judge(&self, state: &mut State, all: &[(u64, Vec<Change>, Sent)], clock: &Clock) -> End {
        let alone = state.outside.acts.is_empty() && all.len() == 1;
        let mut gateways = Vec::new();
        for (number, batch, (synced, status)) in all {
            let refused = status.volumes.iter().any(|v| !v.parked.is_empty());
            for v in &status.volumes {
                if (v.conflicts > 0 || refused) && alone || v.suspended.is_some() || v.journal.is_some() {
                    return End::Broken(format!("I7: {v:?}"));
                }
            }
            if !synced && !refused {
                return End::Broken(format!("L1: it does not end: {:?}", status.volumes));
            }
            gateways.push(Gateway::new(*number, batch, refused));
        }
        state.judge(&self.machine, &gateways, clock)
    }
}
