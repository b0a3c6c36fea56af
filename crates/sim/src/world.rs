//! One world: a home, a network, a gateway, clients, and all that goes wrong, from one seed.

use crate::chain::{self, Chain};
use crate::client::{Check, Client, Promised, Trace};
use crate::clock::Clock;
use crate::compare::{compare, files, home_of};
use crate::coverage::{self, Coverage, SELDOM_GATEWAY, SELDOM_START, Seldom};
use crate::gateway::{Gateway, Size};
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::model::is_whole;
use crate::neighbour::Neighbour;
use crate::network::{Faults, Net};
use crate::outsider::{FOLDERS, Outsider};
use crate::sharer::Sharer;
use crate::variant::Variant;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use vfs::Mode;

mod refused;

/// What a world is made of, beside its seed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Calls of all clients together.
    pub ops: u64,
    /// What may go wrong.
    pub troubles: Vec<Trouble>,
    /// Times and link counts of directories are compared, too.
    pub directories: bool,
    /// The agents leave something out.
    pub variant: Option<Variant>,
    /// What answers promise; one that is looked at after each.
    pub mode: Mode,
}

/// What may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Trouble {
    /// The gateway's process is killed.
    GatewayKill,
    /// The gateway's power fails.
    GatewayCut,
    /// Questions and answers are lost with their connections.
    Lost,
    /// The connection ends while the agent executes a batch.
    Hangup,
    /// Answers take long, batches are executed slowly, the network fails for a while.
    Slow,
    /// The agent is killed.
    AgentKill,
    /// The home's power fails.
    HomeCut,
    /// Agents whose connection is lost go on for a while.
    OldAgents,
    /// Something ends at a step that is seldom taken.
    Seldom,
    /// The cache is so small that clients fill it.
    SmallCache,
    /// Another program changes files at the home.
    Outsider,
    /// The clock of the gateway or of the home is set to an earlier or later time.
    ClockSteps,
    /// The disk of the gateway or of the home is full for a while; where there is another home, only this one's.
    FullDisks,
    /// The home refuses every change of some file or directory for a while.
    Refusals,
    /// Another home is well, and its client must not feel what becomes of the first one.
    Neighbour,
    /// The home's file system can neither exchange names, nor move one only where the new one is free.
    NoExchange,
    /// The other program makes hard links, too.
    Links,
    /// The other program moves folders in which a client works, too.
    Moves,
    /// Clients wait at barriers, behind which the home's power may fail.
    Barriers,
    /// Another client makes one thing after the other, and the home never shows one without all before it.
    Chain,
    /// Files that are written anew are staged on the home's disk, and wait for their writers.
    Spools,
    /// Batches are so short that most files are longer.
    ShortBatches,
}

impl Trouble {
    /// Whether it is among what goes wrong if nothing is said.
    pub fn is_usual(self) -> bool {
        use Trouble as T;
        let usual = !matches!(self, T::Outsider | T::ClockSteps | T::FullDisks | T::Seldom | T::SmallCache);
        let others = matches!(self, T::Refusals | T::Neighbour | T::NoExchange | T::Barriers | T::Chain);
        usual && !others && !matches!(self, T::Links | T::Moves | T::Spools | T::ShortBatches)
    }
}

impl Plan {
    fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }
}

/// What became of a world.
pub struct Report {
    /// Why it failed, if so.
    pub result: Check,
    /// What happened, line by line.
    pub trace: Vec<String>,
    /// Where things were interrupted.
    pub coverage: Coverage,
    /// How often a process of the gateway was started.
    pub starts: u64,
}

impl Report {
    /// A number that is another one for another history (FNV-1a).
    pub fn digest(&self) -> u64 {
        let bytes = self.trace.iter().flat_map(|line| line.bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    }

    /// The first line that is another one than there.
    pub fn differs(&self, other: &Report) -> Option<String> {
        let n = self.trace.iter().zip(&other.trace).take_while(|(a, b)| a == b).count();
        let line = |r: &Report| r.trace.get(n).cloned();
        let (a, b) = (line(self), line(other));
        (a != b || self.result != other.result).then(|| format!("line {n}: {a:?} and {b:?}"))
    }
}

struct World {
    machine: Arc<Machine>,
    net: Arc<Net>,
    gateway: Arc<Gateway>,
    clock: Clock,
    rng: StdRng,
    trace: Trace,
    starts: u64,
    faults: Faults,
    shared: Option<(Arc<Outsider>, Arc<Ledger>)>,
    chain: Option<Arc<chain::Links>>,
    plan: Plan,
}

/// Lives through a world.
pub fn run(seed: u64, plan: Plan) -> Report {
    let trace = Trace::default();
    let coverage = Arc::new(Mutex::new(Coverage::default()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Err(e) => Report {
            result: Err(format!("no runtime: {e}")),
            trace: Vec::new(),
            coverage: Coverage::default(),
            starts: 0,
        },
        Ok(runtime) => tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut world = World::new(seed, plan, trace.clone(), coverage.clone());
            let result = world.live().await;
            for ((what, place, phase), (taken, ended)) in world.gateway.disk().points() {
                let mut coverage = coverage.lock();
                let hits = coverage.at(&format!("gateway: {what} in {place}{phase}"));
                (hits.taken, hits.ended) = (hits.taken + taken, hits.ended + ended);
            }
            // What is still under way is taken down in any order, and is no part of the world's history.
            let trace = std::mem::take(&mut *trace.lock());
            let coverage = coverage.lock().clone();
            world.gateway.end(false, None);
            Report { result, trace, coverage, starts: world.starts }
        }),
    }
}

impl World {
    fn new(seed: u64, plan: Plan, trace: Trace, coverage: Arc<Mutex<Coverage>>) -> World {
        let mut rng = StdRng::seed_from_u64(seed);
        let behind = rng.random_bool(0.5);
        let clock = Clock::new(1_700_000_000, if behind { 1_699_990_000 } else { 1_700_010_000 });
        let machine = Machine::new(rng.random(), clock.clone());
        if plan.has(Trouble::NoExchange) {
            machine.lose_exchange();
        }
        let faults = faults(&mut rng, &plan);
        let net = Net::new("home", machine.clone(), rng.random(), trace.clone(), coverage, plan.variant);
        let den = plan.has(Trouble::Neighbour).then(|| {
            let machine = Machine::new(!seed, clock.clone());
            Net::new("den", machine, !seed, trace.clone(), Arc::default(), None)
        });
        let caches = if plan.has(Trouble::SmallCache) { [1 << 20, 8 << 20] } else { [8 << 20, 64 << 20] };
        let size = Size {
            // Turned over more often, so that more of that falls into the start of a process.
            segment: if plan.has(Trouble::Seldom) { 160 << 10 } else { 256 << 10 },
            cache: caches[rng.random_range(0..2)],
            staleness: Duration::from_millis([0, 300, 5000, 100_000][rng.random_range(0..4)]),
            spool_from: Some(spool_from(seed, &plan)),
            batch_bytes: batch_bytes(seed, &plan),
            mode: plan.mode,
        };
        let gateway = Gateway::new(net.clone(), den, clock.clone(), size, rng.random());
        trace.lock().push(format!("{faults:?} {size:?}"));
        let shared = plan.has(Trouble::Outsider).then(|| {
            let ledger = Arc::new(Ledger::default());
            let also = (plan.has(Trouble::Links), plan.has(Trouble::Moves));
            let outsider = Outsider::new(machine.clone(), ledger.clone(), trace.clone(), rng.random(), also);
            (outsider, ledger)
        });
        let links = || chain::Links::new(plan.has(Trouble::HomeCut), plan.has(Trouble::NoExchange));
        let chain = plan.has(Trouble::Chain).then(|| Arc::new(links()));
        World { shared, chain, machine, net, gateway, clock, rng, trace, starts: 0, faults, plan }
    }

    fn say(&self, what: impl Into<String>) {
        self.trace.lock().push(what.into());
    }

    /// Clients work while things go wrong; then nothing goes wrong any more, and everything has to be right.
    async fn live(&mut self) -> Check {
        let count = self.rng.random_range(1..=3);
        let mut clients = Vec::new();
        for n in 0..count {
            let seed = self.rng.random();
            clients.push(Client::new(&format!("c{n}"), &self.gateway, seed, self.trace.clone()));
        }
        // Before anything can fail: a power cut takes what it has not synced, and ends its process.
        self.shared.iter().for_each(|(outsider, _)| self.net.meddle_with(outsider.clone()));
        self.start_in_trouble().await?;
        clients.iter_mut().for_each(|client| self.instruct(client));
        if self.plan.has(Trouble::Seldom) {
            let Faults { seldom_kill, seldom_cut, .. } = self.faults;
            self.net.set_faults(Faults { seldom_kill, seldom_cut, ..Faults::default() });
            let begin = clients.into_iter().map(|c| spawned(c, async |c: &mut Client| c.begin().await));
            clients = self.watch_over(begin.collect(), &|| true).await?;
        } else {
            for client in &mut clients {
                client.begin().await?;
            }
        }
        let rounds = 1 + self.plan.ops / 300;
        let mut sharer = self.shared.as_ref().map(|(_, ledger)| {
            let (seed, full) = (self.rng.random(), self.plan.has(Trouble::FullDisks));
            let also = (full, self.plan.has(Trouble::Moves));
            Sharer::new(&self.gateway, ledger.clone(), seed, self.trace.clone(), also)
        });
        let mut neighbour = self.plan.has(Trouble::Neighbour).then(|| {
            let seed = self.rng.random();
            Neighbour::new(&self.gateway, seed, self.trace.clone())
        });
        let mut chain = self.chain.clone().map(|links| {
            let seed = self.rng.random();
            Chain::new(&self.gateway, links, seed, self.trace.clone())
        });
        for _ in 0..rounds {
            self.net.set_faults(self.faults);
            self.net.let_meddle(true);
            let shares = self.plan.ops / rounds / 2;
            let sharing = sharer.take().map(|s| spawned(s, async move |s: &mut Sharer| s.work(shares).await));
            let beside =
                neighbour.take().map(|n| spawned(n, async move |n: &mut Neighbour| n.work(shares).await));
            let linking = chain.take().map(|c| spawned(c, async move |c: &mut Chain| c.work(shares).await));
            let calls = self.plan.ops / rounds / count;
            let work =
                clients.into_iter().map(|c| spawned(c, async move |c: &mut Client| c.work(calls).await));
            let others_are_done = || {
                sharing.as_ref().is_none_or(|s| s.is_finished())
                    && beside.as_ref().is_none_or(|b| b.is_finished())
                    && linking.as_ref().is_none_or(|l| l.is_finished())
            };
            clients = self.watch_over(work.collect(), &others_are_done).await?;
            sharer = finished(sharing).await?;
            neighbour = finished(beside).await?;
            chain = finished(linking).await?;
            self.net.let_meddle(false);
            self.net.set_faults(Faults { goes_on: self.faults.goes_on, ..Faults::default() });
            if self.plan.has(Trouble::Refusals) {
                self.stays_honest(&mut clients).await?;
            }
            self.settle(&mut clients).await?;
            self.shared.iter().for_each(|(outsider, _)| outsider.tidy());
        }
        Ok(())
    }

    /// What a client has to look at.
    fn instruct(&self, client: &mut Client) {
        client.directories = self.plan.directories;
        client.may_be_refused = self.plan.has(Trouble::Refusals);
        client.promised = Some(Promised {
            home: self.machine.clone(),
            net: self.net.clone(),
            mode: self.plan.mode,
            barriers: self.plan.has(Trouble::Barriers),
        });
    }

    async fn start(&mut self) -> Check {
        while !self.gateway.runs() {
            self.start_once().await?;
        }
        Ok(())
    }

    /// The same, where perhaps the process ends while it starts, or at some time after that.
    async fn start_in_trouble(&mut self) -> Check {
        while !self.gateway.runs() {
            self.end_seldom(SELDOM_START);
            self.start_once().await?;
        }
        self.end_seldom(SELDOM_GATEWAY);
        Ok(())
    }

    async fn start_once(&mut self) -> Check {
        self.starts += 1;
        self.say(format!("start {}", self.starts));
        self.gateway.start().await?;
        if !self.gateway.runs() {
            self.gateway.bury();
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Perhaps the gateway ends at a step that is seldom taken.
    fn end_seldom(&mut self, seldom: &'static Seldom) {
        let (kill, cut) = (self.plan.has(Trouble::GatewayKill), self.plan.has(Trouble::GatewayCut));
        if !self.plan.has(Trouble::Seldom) || !(kill || cut) || self.rng.random_bool(0.5) {
            return;
        }
        let power = cut && (!kill || self.rng.random_bool(0.5));
        let steps = coverage::one_of(seldom, &mut self.rng);
        self.say(format!("the gateway will end at one of {steps:?}, power: {power}"));
        self.gateway.end_at(power, steps);
    }

    /// Lets clients work, ends processes meanwhile and starts them again.
    async fn watch_over(
        &mut self,
        mut work: Vec<Work<Client>>,
        others_are_done: &dyn Fn() -> bool,
    ) -> Result<Vec<Client>, String> {
        let mut clients = Vec::new();
        while !work.is_empty() || !others_are_done() {
            if !self.gateway.runs() {
                self.say("the gateway is dead");
                self.gateway.bury();
                let time = self.rng.random_range(1..2000);
                sleep(Duration::from_millis(time)).await;
                self.trouble();
                self.start_in_trouble().await?;
            }
            self.trouble();
            if let Some((outsider, _)) = self.shared.as_ref().filter(|_| self.rng.random_ratio(1, 60)) {
                outsider.act();
            }
            self.check_whole()?;
            self.check_chain()?;
            sleep(Duration::from_millis(5)).await;
            let mut running = Vec::new();
            for task in work {
                if task.is_finished() {
                    let (client, done) = task.await.map_err(|e| format!("a client panicked: {e}"))?;
                    done.map_err(|why| format!("{}: {why}", client.name()))?;
                    clients.push(client);
                } else {
                    running.push(task);
                }
            }
            work = running;
        }
        clients.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(clients)
    }

    /// Now and then something ends.
    fn trouble(&mut self) {
        let (mut power, after) = (self.rng.random_bool(0.5), self.rng.random_range(0..40));
        power &= self.plan.has(Trouble::GatewayCut);
        let ends = power || self.plan.has(Trouble::GatewayKill);
        // Where another home's client must not feel that a small cache is full, this one is away until it is.
        let fills = self.plan.has(Trouble::Neighbour) && self.plan.has(Trouble::SmallCache);
        let back = !fills || self.rng.random_ratio(1, 40);
        match self.rng.random_range(0..4000) {
            0..12 if ends && !self.gateway.end_is_due() => {
                self.say(format!("the gateway will end after {after} changes, power: {power}"));
                self.gateway.end(power, Some(after));
            }
            12..16 if ends => {
                self.say(format!("the gateway ends, power: {power}"));
                self.gateway.end(power, None);
            }
            16..22 if self.plan.has(Trouble::Lost) => {
                self.say("the connection ends");
                self.net.hangup();
            }
            22..24 if self.plan.has(Trouble::HomeCut) => {
                self.say("the home's power fails");
                self.net.cut();
            }
            24..28 if self.plan.has(Trouble::Slow) => {
                self.say("the network fails");
                self.net.set_up(false);
            }
            28..34 if self.plan.has(Trouble::ClockSteps) => self.step_a_clock(),
            34..40 if self.plan.has(Trouble::FullDisks) => self.fill_a_disk(),
            40..80 if self.plan.has(Trouble::FullDisks) => self.make_room(),
            28..100 if back => self.net.set_up(true),
            100..112 if self.plan.has(Trouble::Refusals) => self.refuse_something(),
            112..120 if self.plan.has(Trouble::Refusals) => self.refuse_nothing(),
            _ => {}
        }
    }

    fn fill_a_disk(&mut self) {
        let home = self.rng.random_bool(0.5) || self.plan.has(Trouble::Neighbour);
        self.say(format!("the disk of the {} is full", if home { "home" } else { "gateway" }));
        if home {
            return self.machine.set_full(true);
        }
        self.gateway.disk().fill_up(false);
        self.shared.iter().for_each(|(outsider, _)| outsider.fills(true));
    }

    fn make_room(&mut self) {
        self.say("there is room");
        self.machine.set_full(false);
        self.gateway.disk().set_capacity(None);
        self.shared.iter().for_each(|(outsider, _)| outsider.fills(false));
        self.net.set_up(true);
    }

    fn step_a_clock(&mut self) {
        let most = [2, 3600, 100_000][self.rng.random_range(0..3)];
        let seconds = self.rng.random_range(-most..=most);
        let home = self.rng.random_bool(0.5);
        self.say(format!("the clock of the {} goes by {seconds} s", if home { "home" } else { "gateway" }));
        if home { self.clock.step_home(seconds) } else { self.clock.step_gateway(seconds) }
    }

    /// A name that only ever stood for whole files stands for one, whatever fails next.
    fn check_whole(&mut self) -> Check {
        if !self.rng.random_ratio(1, 50) {
            return Ok(());
        }
        for (path, node) in files(&self.machine.image_after_cut()) {
            let name = path.rsplit('/').next().unwrap_or_default();
            if path.starts_with("/c") && matches!(name, "r0" | "r1" | "r2") && !is_whole(&node) {
                let part = node[..node.len().min(24)].escape_ascii();
                return Err(format!("I3: {path} is not whole at the home: {} bytes, {part}", node.len()));
            }
        }
        Ok(())
    }

    /// Each thing of the chain comes behind all before it.
    fn check_chain(&mut self) -> Check {
        match self.chain.as_ref().filter(|_| self.rng.random_ratio(1, 8)) {
            Some(links) => links.check(&self.machine.image()),
            None => Ok(()),
        }
    }

    /// Nothing goes wrong any more, but for what the home refuses; whatever the clients did is on its way.
    async fn calm_down(&mut self, clients: &mut [Client]) -> Check {
        self.net.set_up(true);
        if self.plan.has(Trouble::FullDisks) {
            self.make_room();
        }
        while self.net.has_old_agents() {
            sleep(Duration::from_millis(100)).await;
        }
        if self.gateway.end_is_due() {
            self.gateway.end(false, None);
        }
        if !self.gateway.runs() {
            self.gateway.bury();
        }
        self.start().await?;
        for client in clients.iter_mut() {
            client.flush().await.map_err(|why| format!("{}: {why}", client.name()))?;
        }
        Ok(())
    }

    /// Everything has to be right.
    async fn settle(&mut self, clients: &mut [Client]) -> Check {
        self.refuse_nothing();
        self.calm_down(clients).await?;
        {
            let session = self.gateway.sessions().last().ok_or("no gateway")?;
            let mut synced = session.vfs.sync(None, Duration::from_secs(600)).await;
            if synced.is_err() && (self.plan.has(Trouble::FullDisks) || self.plan.has(Trouble::Refusals)) {
                // What the home refused its user asks for again.
                session.vfs.retry_refused(None);
                synced = session.vfs.sync(None, Duration::from_secs(600)).await;
            }
            let status = session.vfs.status();
            if let Err(unsent) = synced {
                return Err(format!("L1: not everything went home: {unsent:?} {:?}", status.volumes));
            }
            for v in &status.volumes {
                if v.conflicts > 0 && self.shared.is_none()
                    || !v.parked.is_empty()
                    || v.suspended.is_some()
                    || v.journal.is_some()
                {
                    return Err(format!("I7: {v:?}"));
                }
            }
            if status.dirty_bytes > 0 {
                return Err(format!("I9: {} bytes are pinned, but nothing is unsent", status.dirty_bytes));
            }
            self.say("settled");
        }
        if let Some(links) = &self.chain {
            links.check_all(&self.machine.image_after_cut())?;
        }
        for client in clients.iter_mut() {
            compare(client, &self.machine.image_after_cut())
                .map_err(|e| format!("I13, after a power cut: {e}"))?;
            compare(client, &self.machine.image())?;
            client.look_at_all().await.map_err(|why| format!("{}: {why}", client.name()))?;
            client.moved.clear();
        }
        self.no_leftovers(clients)
    }

    /// Nothing of ours is left at the home.
    fn no_leftovers(&self, clients: &[Client]) -> Check {
        let image = self.machine.image();
        if let Some((_, ledger)) = &self.shared {
            let missing = ledger.missing(&image);
            if !missing.is_empty() {
                return Err(format!("I4, I5: {missing:?} are lost"));
            }
        }
        let top = home_of(&image).ok_or("the account's home directory is gone")?;
        let known: Vec<String> = clients.iter().map(|c| c.name().to_owned()).collect();
        for name in image.get(top).iter().flat_map(|d| d.names.keys()) {
            let name = String::from_utf8_lossy(name).into_owned();
            let is_shared = FOLDERS.contains(&&name[..]);
            let is_known =
                [".cache", chain::FOLDER].contains(&&name[..]) || is_shared || known.contains(&name);
            if !is_known {
                return Err(format!("I6: {name} is left in the home directory"));
            }
        }
        Ok(())
    }
}

/// A client at work.
type Work<T> = tokio::task::JoinHandle<(T, Check)>;

/// Lets a client work.
fn spawned<T: 'static>(mut client: T, work: impl AsyncFnOnce(&mut T) -> Check + 'static) -> Work<T> {
    tokio::task::spawn_local(async move {
        let done = work(&mut client).await;
        (client, done)
    })
}

/// Waits for a client that works beside the others.
async fn finished<T>(work: Option<Work<T>>) -> Result<Option<T>, String> {
    let Some(work) = work else { return Ok(None) };
    let (client, done) = work.await.map_err(|e| format!("a client panicked: {e}"))?;
    done.map(|()| Some(client))
}

/// From which length on files that are written anew are staged on the home's disk, in bytes: any, all but the shortest, or,
/// unless that is to happen, one that no client here writes.
fn spool_from(seed: u64, plan: &Plan) -> u64 {
    const FROM: [u64; 4] = [1, 40, vfs::SPOOL_FROM, vfs::SPOOL_FROM];
    let kinds = if plan.has(Trouble::Spools) { 2 } else { FROM.len() };
    FROM[(seed % kinds as u64) as usize]
}

/// Bytes in a batch: as in any other gateway, or no more than one write of a client has, a few, or many.
fn batch_bytes(seed: u64, plan: &Plan) -> u64 {
    const SHORT: [u64; 3] = [1, 24, 300];
    if plan.has(Trouble::ShortBatches) { SHORT[(seed / 4 % 3) as usize] } else { vfs::BATCH_BYTES }
}

/// How much goes wrong in a world.
fn faults(rng: &mut StdRng, plan: &Plan) -> Faults {
    let mut often = |most: u32, trouble| {
        let chance = if rng.random_bool(0.5) { rng.random_range(0..=most) } else { 0 };
        if plan.has(trouble) { chance } else { 0 }
    };
    let mut faults = Faults {
        question_lost: often(20, Trouble::Lost),
        answer_lost: often(20, Trouble::Lost),
        stall: often(if plan.has(Trouble::Neighbour) { 60 } else { 10 }, Trouble::Slow),
        kill: often(150, Trouble::AgentKill),
        cut: often(60, Trouble::HomeCut),
        hangup: often(150, Trouble::Hangup),
        slow: often(300, Trouble::Slow),
        goes_on: plan.has(Trouble::OldAgents),
        ..Faults::default()
    };
    if plan.has(Trouble::Seldom) && rng.random_bool(0.5) {
        faults.seldom_kill = if plan.has(Trouble::AgentKill) { 400 } else { 0 };
        faults.seldom_cut = if plan.has(Trouble::HomeCut) { 400 } else { 0 };
    }
    faults
}
