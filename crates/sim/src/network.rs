//! The way from the gateway to the agent, and the agent's processes: connections that are slow, stall, lose questions
//! or answers and end; agents that die at a system call; and agents that are left behind by a lost connection in the
//! middle of an operation and go on later.
//!
//! The agent's code is called directly, not through its frames: its server reads from threads, whose order nobody
//! could fix.

use crate::client::Trace;
use crate::coroutine::{self, Coroutine};
use crate::coverage::{self, CLAIMING, Coverage, SELDOM, SELDOM_CLAIM, SELDOM_GREETING, Seldom, Step};
use crate::machine::fs::Fs;
use crate::machine::{Around, Call, Fate, Machine, Process, SimSys};
use crate::refusals::Refusals;
use crate::variant::Variant;
use bytes::Bytes;
use home::attr::StatFs;
use home::posix::Posix;
use home::{
    Changed, Chunk, Claimed, Class, Copied, Entered, Error, ErrorKind, Hello, Home, HomePath, Link, Loc,
    Name, Op, OpId, Outcome, Page, Payload, Piece, Placed, Result, Seen, Status, Term, Watched, XattrName,
    Xattrs,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::sleep;
use vfs::env::testing::SimDisk;

/// How much goes wrong. Chances are out of 1000.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// A question is lost with its connection.
    pub question_lost: u32,
    /// An answer is lost with its connection.
    pub answer_lost: u32,
    /// A call takes seconds.
    pub stall: u32,
    /// The agent is killed while it executes a batch.
    pub kill: u32,
    /// The power of the home fails while it executes a batch.
    pub cut: u32,
    /// The connection ends while the agent executes a batch.
    pub hangup: u32,
    /// A batch is executed slowly, with other calls meanwhile.
    pub slow: u32,
    /// It is killed at a step that is seldom taken, if the batch comes to it.
    pub seldom_kill: u32,
    /// The power of the home fails at such a step.
    pub seldom_cut: u32,
    /// An agent whose connection has ended goes on for a while; else it ends with it.
    pub goes_on: bool,
}

/// Another program at the home, which acts between two system calls of the agent.
pub trait Meddler: Send + Sync {
    /// Does something, or nothing.
    fn meddle(&self);
    /// The power failed; the tree was this before, and so much of it was durable.
    fn power_failed(&self, before: &Fs, durable: &Fs);
    /// The gateway was told what there is at a path.
    fn told(&self, path: &HomePath);
    /// The gateway was told these bytes of a file.
    fn read(&self, _bytes: &[u8]) {}
    /// The agent begins, or has ended, to remove something in a directory.
    fn removes(&self, dir: &HomePath, begins: bool);
    /// The agent begins, or has ended, to do what may have been done before, or was accepted by an earlier process of the gateway:
    /// a change that neither length nor time tells of is not seen by it then.
    fn doubts(&self, _begins: bool) {}
}

/// The network and what is behind it.
pub struct Net {
    /// What the home is called in the trace.
    name: &'static str,
    machine: Arc<Machine>,
    state: Mutex<State>,
    coverage: Arc<Mutex<Coverage>>,
    trace: Trace,
    meddler: Mutex<Option<Arc<dyn Meddler>>>,
    /// Whether that one acts.
    meddles: AtomicBool,
    /// What the agents leave out.
    variant: Option<Variant>,
    /// What the home refused.
    pub refusals: Refusals,
    claims: AtomicU64,
}

struct State {
    rng: StdRng,
    faults: Faults,
    agent: Option<Arc<Agent>>,
    /// Agents that were left behind and may still do something.
    old: Vec<Arc<Agent>>,
    up: bool,
    /// Pieces of work that are being done.
    at_work: usize,
    /// The last operation that was lost at a claim, and whether the last batch began before it.
    lost: (u64, bool),
}

struct Agent {
    posix: Posix<SimSys>,
    process: Arc<Process>,
    control: Arc<Control>,
    connected: AtomicBool,
    /// Volumes that were claimed over its connection.
    claims: Mutex<BTreeSet<(u64, u32)>>,
}

/// What happens to an agent, step by step.
struct Control {
    net: std::sync::Weak<Net>,
    plan: Mutex<Plan>,
    coverage: Arc<Mutex<Coverage>>,
}

/// What is to happen at which of the next steps that change something.
#[derive(Debug, Default)]
struct Plan {
    step: u64,
    at: Option<u64>,
    /// It is to happen at the next step of one of these kinds instead, if there are any.
    seldom: &'static [Step],
    what: Option<What>,
    /// What the agent is doing, for the statistics.
    phase: &'static str,
    /// Chance of a pause at each further step, of 1000.
    slow: u32,
    rng: Option<StdRng>,
}

impl Plan {
    /// Perhaps something ends at a step that is seldom taken.
    fn end_seldom(&mut self, state: &mut State, seldom: &'static Seldom) {
        self.seldom = &[];
        let Faults { seldom_kill: kill, seldom_cut: cut, .. } = state.faults;
        if kill + cut == 0 {
            return;
        }
        let (roll, after) = (state.rng.random_range(0..1000), state.rng.random_bool(0.5));
        let steps = coverage::one_of(seldom, &mut state.rng);
        if roll < kill + cut {
            self.seldom = steps;
            self.what = Some(if roll < kill { What::Kill { after } } else { What::Cut });
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Kill { after: bool },
    Cut,
    Hangup,
}

impl Around for Control {
    fn before(&self, call: Call) -> Fate {
        let Some(net) = self.net.upgrade() else { return Fate::Goes };
        if coroutine::inside() && net.meddles.load(Ordering::SeqCst) {
            let meddler = net.meddler.lock().clone();
            meddler.iter().for_each(|m| m.meddle());
        }
        if !call.changes {
            return Fate::Goes;
        }
        let (what, pauses, phase) = {
            let mut plan = self.plan.lock();
            plan.step += 1;
            let is_due = match plan.seldom {
                [] => plan.at == Some(plan.step),
                steps => steps.contains(&(call.name, call.place, plan.phase)),
            };
            let what = plan.what.filter(|_| is_due);
            let slow = plan.slow;
            let pauses = slow > 0 && plan.rng.as_mut().is_some_and(|r| r.random_ratio(slow, 1000));
            (what, pauses, plan.phase)
        };
        {
            let mut coverage = self.coverage.lock();
            let hits = coverage.at(&format!("agent: {} in {}{phase}", call.name, call.place));
            hits.taken += 1;
            hits.ended += u64::from(matches!(what, Some(What::Kill { .. } | What::Cut)));
            hits.paused += u64::from(what == Some(What::Hangup));
        }
        if let Some(what) = what {
            net.say(format!("{what:?} at {} in {}", call.name, call.place));
        }
        match what {
            Some(What::Kill { after: false }) => return Fate::DiesBefore,
            Some(What::Kill { after: true }) => return Fate::DiesAfter,
            Some(What::Cut) => net.cut(),
            Some(What::Hangup) => {
                net.hangup();
                coroutine::pause();
            }
            None if pauses => coroutine::pause(),
            None => {}
        }
        Fate::Goes
    }
}

fn lost(why: &str) -> Error {
    Error::new(ErrorKind::Unreachable, why.to_owned())
}

impl Net {
    /// A network to a machine.
    pub fn new(
        name: &'static str,
        machine: Arc<Machine>,
        seed: u64,
        trace: Trace,
        coverage: Arc<Mutex<Coverage>>,
        variant: Option<Variant>,
    ) -> Arc<Net> {
        let rng = StdRng::seed_from_u64(seed);
        let state = State {
            rng,
            faults: Faults::default(),
            agent: None,
            old: Vec::new(),
            up: true,
            at_work: 0,
            lost: (0, false),
        };
        let (meddler, meddles) = (Mutex::new(None), AtomicBool::new(false));
        let (state, refusals) = (Mutex::new(state), Refusals::default());
        let claims = AtomicU64::new(0);
        Arc::new(Net { name, machine, state, coverage, trace, meddler, meddles, variant, refusals, claims })
    }

    /// How often an agent has taken over.
    pub fn claims(&self) -> u64 {
        self.claims.load(Ordering::Relaxed)
    }

    /// There is another program.
    pub fn meddle_with(&self, meddler: Arc<dyn Meddler>) {
        *self.meddler.lock() = Some(meddler);
    }

    /// It acts between the steps of the agent from now on, or rests.
    pub fn let_meddle(&self, meddles: bool) {
        self.meddles.store(meddles, Ordering::SeqCst);
    }

    /// From now on so much goes wrong.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Whether connections can be made.
    pub fn set_up(&self, up: bool) {
        self.state.lock().up = up;
        if !up {
            self.hangup();
        }
    }

    /// Whether an agent is left behind that may still do something.
    pub fn has_old_agents(&self) -> bool {
        let mut state = self.state.lock();
        // One that does nothing is known here alone.
        state.old.retain(|a| Arc::strong_count(a) > 1);
        !state.old.is_empty()
    }

    /// Whether an agent is in the middle of something.
    pub fn is_at_work(&self) -> bool {
        self.state.lock().at_work > 0
    }

    fn told(&self, path: &HomePath) {
        let meddler = self.meddler.lock().clone();
        meddler.iter().for_each(|m| m.told(path));
    }

    fn read(&self, bytes: &[u8]) {
        let meddler = self.meddler.lock().clone();
        meddler.iter().for_each(|m| m.read(bytes));
    }

    /// Whether a batch has anything that may have been done, or was accepted by an earlier process; a write may have travelled
    /// with one of those, so that the batch behind them counts, too.
    fn is_doubtful(&self, ops: &[Placed]) -> bool {
        let (last, before) = &mut self.state.lock().lost;
        let is_early = |placed: &Placed| placed.resent || placed.id.seq <= *last;
        let now = ops.iter().any(is_early);
        std::mem::replace(before, now) || now
    }

    fn say(&self, what: String) {
        self.trace.lock().push(format!("{}: {what}", self.name));
    }

    /// The connection ends. What the agent does about it is its own affair.
    pub fn hangup(&self) {
        let mut state = self.state.lock();
        let Some(agent) = state.agent.take() else { return };
        agent.connected.store(false, Ordering::SeqCst);
        if state.faults.goes_on {
            // It is told sooner or later; then it begins nothing more.
            if state.rng.random_bool(0.5) {
                agent.posix.leave();
            }
        } else {
            agent.process.kill();
        }
        state.old.push(agent);
    }

    /// The home's power fails.
    pub fn cut(&self) {
        let agents = {
            let mut state = self.state.lock();
            let agent = state.agent.take();
            agent.into_iter().chain(state.old.drain(..)).collect::<Vec<_>>()
        };
        for agent in agents {
            agent.connected.store(false, Ordering::SeqCst);
            agent.process.kill();
        }
        self.say("the power is cut".to_owned());
        let (before, durable) = (self.machine.image(), self.machine.durable());
        self.machine.cut();
        let meddler = self.meddler.lock().clone();
        meddler.iter().for_each(|m| m.power_failed(&before, &durable));
    }

    /// The answer of a dead agent is none.
    fn survived(&self, agent: &Agent) -> Result<()> {
        if agent.process.is_alive() {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.agent.take_if(|a| !a.process.is_alive());
        agent.connected.store(false, Ordering::SeqCst);
        Err(lost("the agent died"))
    }

    fn roll(&self, chance: impl Fn(&Faults) -> u32) -> bool {
        let mut state = self.state.lock();
        let chance = chance(&state.faults);
        chance > 0 && state.rng.random_ratio(chance, 1000)
    }

    async fn delay(&self) {
        let time = self.state.lock().rng.random_range(1..30);
        sleep(Duration::from_millis(time)).await;
    }

    /// The agent that is connected; another one is started if there is none.
    async fn agent(self: &Arc<Net>) -> Result<Arc<Agent>> {
        if let Some(agent) = self.state.lock().agent.clone() {
            return Ok(agent);
        }
        self.delay().await;
        let mut state = self.state.lock();
        if !state.up {
            return Err(lost("no route to host"));
        }
        if let Some(agent) = &state.agent {
            return Ok(agent.clone());
        }
        let plan = Plan { rng: Some(StdRng::seed_from_u64(state.rng.random())), ..Plan::default() };
        let control = Arc::new(Control {
            net: Arc::downgrade(self),
            plan: Mutex::new(plan),
            coverage: self.coverage.clone(),
        });
        let process = self.machine.process(control.clone());
        let sys = SimSys::new(self.machine.clone(), process.clone());
        let posix = Posix::over(sys, b"/")?.without(self.variant.map_or(&[], Variant::leaves_out));
        let agent = Arc::new(Agent {
            posix,
            process,
            control,
            connected: AtomicBool::new(true),
            claims: Mutex::default(),
        });
        agent.control.plan.lock().end_seldom(&mut state, SELDOM_GREETING);
        state.agent = Some(agent.clone());
        Ok(agent)
    }

    /// Decides what becomes of the next batch.
    fn arm(&self, agent: &Agent, ops: usize, seldom: &'static Seldom) {
        let mut state = self.state.lock();
        let f = state.faults;
        let mut plan = agent.control.plan.lock();
        plan.slow = if f.slow > 0 && state.rng.random_ratio(f.slow, 1000) { 200 } else { 0 };
        let roll = state.rng.random_range(0..1000);
        let after = state.rng.random_bool(0.5);
        let what = [(f.kill, What::Kill { after }), (f.cut, What::Cut), (f.hangup, What::Hangup)];
        let mut sum = 0;
        plan.what = what.into_iter().find_map(|(chance, what)| {
            sum += chance;
            (roll < sum).then_some(what)
        });
        // A batch of n operations is a handful of steps for each and one for each sync.
        let within = if state.rng.random_bool(0.5) { 12 } else { 8 * ops as u64 + 8 };
        plan.at = plan.what.map(|_| plan.step + state.rng.random_range(1..=within));
        plan.end_seldom(&mut state, seldom);
    }

    /// Does a piece of work that takes its time, whoever waits for it.
    async fn drive<T: Send + 'static>(
        self: Arc<Net>,
        agent: Arc<Agent>,
        work: impl FnOnce(&Posix<SimSys>) -> Result<T> + Send + 'static,
        tell: oneshot::Sender<Result<T>>,
    ) {
        self.state.lock().at_work += 1;
        let inside = agent.clone();
        let mut run = Coroutine::new(move || work(&inside.posix));
        let mut tell = Some(tell);
        let answer = loop {
            match run.resume() {
                Some(answer) => break answer,
                None => {
                    let connected = agent.connected.load(Ordering::SeqCst);
                    if !connected {
                        tell.take();
                    }
                    let most = if connected { 50 } else { 3000 };
                    let time = self.state.lock().rng.random_range(1..most);
                    sleep(Duration::from_millis(time)).await;
                    if !agent.connected.load(Ordering::SeqCst) {
                        // A few steps at a time, between those of its successor.
                        agent.control.plan.lock().slow = 300;
                        if self.state.lock().rng.random_bool(0.3) {
                            agent.posix.leave();
                        }
                    }
                }
            }
        };
        self.state.lock().at_work -= 1;
        if let Some(tell) = tell {
            let _ = tell.send(answer);
        }
    }
}

/// The directory in which an operation removes something.
fn removes_in<D>(op: &Op<Loc, D>) -> Option<&HomePath> {
    match op {
        Op::Remove { dir, .. } => Some(&dir.path),
        Op::Rename { to, replaced: Some(_), .. } => Some(&to.path),
        _ => None,
    }
}

/// An operation in a line.
fn shown(op: &Op<Loc, Payload>, resent: bool) -> String {
    let again = if resent { " again" } else { "" };
    let text = match op {
        Op::Write { file, base, pieces } => {
            let piece = |p: &Piece<Payload>| match p {
                Piece::Truncate(size) => format!("cut to {size}"),
                Piece::Data(at, Payload::Inline(d)) => format!("{} at {at}", d.len()),
                Piece::Data(at, Payload::Staged(s)) => format!("{} staged at {at}", s.len),
                Piece::Data(at, Payload::Spooled(s)) => format!("{} spooled at {at}", s.range.len),
            };
            let pieces: Vec<String> = pieces.iter().map(piece).collect();
            format!("Write {} [{}] base {base:?}", file.path, pieces.join(", "))
        }
        op => format!("{op:?}"),
    };
    format!("{text}{again}")
}

/// The home as one process of the gateway sees it.
pub struct Line {
    net: Arc<Net>,
    /// Tells whether that process is alive.
    disk: Arc<SimDisk>,
    /// Volumes that it has claimed.
    claims: Mutex<BTreeSet<(u64, u32)>>,
}

impl Line {
    /// For the process that a clone of the disk belongs to.
    pub fn new(net: Arc<Net>, disk: Arc<SimDisk>) -> Line {
        Line { net, disk, claims: Mutex::default() }
    }

    /// What a dead process does must not be seen by anybody.
    async fn living(&self) -> Result<()> {
        if self.disk.is_alive() {
            return Ok(());
        }
        sleep(Duration::from_secs(1)).await;
        Err(lost("the gateway is dead"))
    }

    /// A question: to the agent, and its answer back.
    async fn ask<T>(&self, question: impl FnOnce(&Posix<SimSys>) -> Result<T>) -> Result<T> {
        self.living().await?;
        let agent = self.net.agent().await?;
        self.there(&agent).await?;
        let answer = question(&agent.posix);
        self.net.survived(&agent)?;
        self.back(&agent).await?;
        answer
    }

    /// What is to be staged: over one of several pipes, so that it arrives at any time, also where nobody waits for it any
    /// more.
    async fn hand_over(
        &self,
        stage: impl FnOnce(&Posix<SimSys>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let line = Line::new(self.net.clone(), self.disk.clone());
        let handed = tokio::spawn(async move { line.ask(stage).await });
        handed.await.unwrap_or_else(|e| Err(lost(&e.to_string())))
    }

    /// Work that changes the home: to the agent, and its answer back.
    async fn work<T: Send + 'static>(
        &self,
        agent: &Arc<Agent>,
        (ops, seldom): (usize, &'static Seldom),
        work: impl FnOnce(&Posix<SimSys>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.living().await?;
        self.there(agent).await?;
        self.net.arm(agent, ops, seldom);
        let (tell, told) = oneshot::channel();
        tokio::spawn(self.net.clone().drive(agent.clone(), work, tell));
        let answer = told.await.map_err(|_| lost("the connection is lost"))?;
        self.net.survived(agent)?;
        self.back(agent).await?;
        answer
    }

    /// Claims a volume, in a term or without one.
    async fn claim_by(
        &self,
        volume: (u64, u32),
        lost: &[u64],
        claim: impl FnOnce(&Posix<SimSys>) -> Result<Entered> + Send + 'static,
    ) -> Result<Entered> {
        let agent = self.net.agent().await?;
        let control = agent.control.clone();
        let claim = move |posix: &Posix<SimSys>| {
            control.plan.lock().phase = CLAIMING;
            let claimed = claim(posix);
            control.plan.lock().phase = "";
            claimed
        };
        let entered = self.work(&agent, (4, SELDOM_CLAIM), claim).await?;
        {
            let known = &mut self.net.state.lock().lost.0;
            *known = lost.iter().copied().fold(*known, u64::max);
        }
        self.net.claims.fetch_add(1, Ordering::Relaxed);
        self.net.say(format!("claimed; lost {lost:?}; begun {:?}", entered.known));
        agent.claims.lock().insert(volume);
        self.claims.lock().insert(volume);
        Ok(entered)
    }

    async fn there(&self, agent: &Agent) -> Result<()> {
        self.net.delay().await;
        self.living().await?;
        if self.net.roll(|f| f.question_lost) {
            self.net.hangup();
        }
        if agent.connected.load(Ordering::SeqCst) { Ok(()) } else { Err(lost("the connection is lost")) }
    }

    async fn back(&self, agent: &Agent) -> Result<()> {
        self.net.delay().await;
        if self.net.roll(|f| f.stall) {
            let time = self.net.state.lock().rng.random_range(1..20);
            sleep(Duration::from_secs(time)).await;
        }
        if self.net.roll(|f| f.answer_lost) {
            self.net.hangup();
        }
        self.living().await?;
        if agent.connected.load(Ordering::SeqCst) { Ok(()) } else { Err(lost("the connection is lost")) }
    }
}

#[async_trait::async_trait]
impl Home for Line {
    fn status(&self) -> Status {
        Status::new(Link::Up, Some(Class::Posix))
    }

    async fn attach(&self) -> Result<Hello> {
        self.ask(|posix| posix.hello()).await
    }

    async fn stat(&self, at: &Loc) -> Result<Seen> {
        let seen = |posix: &Posix<SimSys>| posix.stat(at).inspect(|_| self.net.told(&at.path));
        self.ask(seen).await
    }

    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        let page = |posix: &Posix<SimSys>| posix.list(dir, after, max).inspect(|_| self.net.told(&dir.path));
        self.ask(page).await
    }

    async fn watch(&self, dir: &Loc, max: u32, _: u64) -> Result<Watched> {
        Ok(Watched::not(self.list(dir, None, max).await?))
    }

    /// By many questions, each with its own troubles, so that what a walk brings is of many moments.
    fn walks(&self) -> bool {
        true
    }

    async fn changes(&self) -> Vec<Changed> {
        std::future::pending().await
    }

    fn epoch(&self) -> Option<u64> {
        None
    }

    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let chunk = |posix: &Posix<SimSys>| posix.read(file, at, len).inspect(|_| self.net.told(&file.path));
        self.ask(chunk).await.inspect(|chunk| self.net.read(&chunk.data))
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
        self.hand_over(move |posix| posix.stage(op, at, data).map(drop)).await
    }

    async fn copy(&self, op: OpId, places: Vec<Loc>, parts: Vec<Copied>) -> Result<()> {
        self.hand_over(move |posix| posix.copy(op, &places, &parts).map(drop)).await
    }

    async fn spool(&self, op: OpId) -> Result<u64> {
        self.ask(move |posix| posix.spool(op)).await
    }

    async fn unspool(&self, op: OpId) -> Result<()> {
        self.ask(move |posix| {
            posix.unspool(op);
            Ok(())
        })
        .await
    }

    fn spools(&self) -> bool {
        true
    }

    /// Always, so that it is seen what comes of it.
    fn copies(&self) -> bool {
        true
    }

    async fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        let (ask, at) = (lost.clone(), (gateway, volume));
        let claim = move |posix: &Posix<SimSys>| {
            let known = posix.claim(gateway, volume, ask)?;
            Ok(Entered { kept: false, known })
        };
        Ok(self.claim_by(at, &lost, claim).await?.known)
    }

    async fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: Term) -> Result<Entered> {
        let (ask, at) = (lost.clone(), (gateway, volume));
        let claim = move |posix: &Posix<SimSys>| posix.claim_in(gateway, volume, ask, &term);
        self.claim_by(at, &lost, claim).await
    }

    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        let agent = self.net.agent().await?;
        let count = ops.len();
        let volume = ops.first().map(|placed| (placed.id.gateway, placed.id.volume));
        if volume.is_some_and(|v| self.claims.lock().contains(&v) && !agent.claims.lock().contains(&v)) {
            return Err(ErrorKind::NotClaimed.into());
        }
        let (net, process) = (self.net.clone(), agent.process.clone());
        let apply = move |posix: &Posix<SimSys>| {
            for placed in &ops {
                net.say(format!("do {} {}", placed.id.seq, shown(&placed.op, placed.resent)));
            }
            let seqs: Vec<u64> = ops.iter().map(|p| p.id.seq).collect();
            let meddler = net.meddler.lock().clone();
            let told = |begins| {
                let dirs = || ops.iter().filter_map(|placed| removes_in(&placed.op));
                meddler.iter().for_each(|m| dirs().for_each(|dir| m.removes(dir, begins)));
            };
            let doubtful = net.is_doubtful(&ops);
            let doubts = |begins| meddler.iter().filter(|_| doubtful).for_each(|m| m.doubts(begins));
            doubts(true);
            told(true);
            let answer = posix.apply(ops.clone());
            told(false);
            doubts(false);
            if process.is_alive() {
                net.refusals.note(&ops, answer.as_deref().unwrap_or_default());
            }
            for (seq, outcome) in seqs.iter().zip(answer.iter().flatten()) {
                match outcome {
                    Outcome::Done(_) => net.say(format!("{seq} is done")),
                    other => net.say(format!("{seq} is {other:?}")),
                }
            }
            answer
        };
        self.work(&agent, (count, SELDOM), apply).await
    }
}
