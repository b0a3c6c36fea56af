//! The home as a gateway of a run sees it: agents that are asked at once, one after the other, and what goes on while they
//! are in the middle of something.

use super::How;
use super::script::{Script, Turn};
use crate::coroutine::{self, Coroutine};
use crate::machine::{Around, Call, Fate, Machine, Process, SimSys};
use crate::variant::Variant;
use bytes::Bytes;
use home::attr::StatFs;
use home::posix::Posix;
use home::{
    Changed, Chunk, Claimed, Class, Copied, Entered, ErrorKind, Hello, Home, HomePath, Link, Loc, Name, OpId,
    Outcome, Page, Placed, Result, Seen, Status, Term, Watched, XattrName, Xattrs,
};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vfs::{Mount, MountOptions, Namespace, Start};

struct Agent {
    posix: Posix<SimSys>,
    process: Arc<Process>,
    /// Volumes that were claimed over its connection.
    claims: Mutex<BTreeSet<(u64, u32)>>,
}

/// What is in the middle of something while a gateway's agent runs.
#[derive(Clone, Default)]
pub(super) struct Others {
    /// Agents that were left behind, and another gateway whose turn has come.
    going: Arc<Mutex<Vec<Coroutine<()>>>>,
    /// Another gateway, which waits for its turn.
    waiting: Arc<Mutex<Option<Coroutine<()>>>>,
}

impl Others {
    /// Another gateway waits for its turn.
    pub fn wait(&self, gateway: Coroutine<()>) {
        *self.waiting.lock() = Some(gateway);
    }

    /// All go on until they pause or end.
    fn go_on(&self, script: &Script) {
        let all = std::mem::take(&mut *self.going.lock());
        let going: Vec<_> =
            all.into_iter().filter_map(|mut run| run.resume().is_none().then_some(run)).collect();
        script.with(|state| state.turn = None);
        self.going.lock().extend(going);
    }

    /// All go on until they end.
    pub fn end(&self, script: &Script) {
        while !self.going.lock().is_empty() {
            self.go_on(script);
        }
    }
}

/// The home, by an agent that is asked at once; another one is started where it has died, or was left behind.
pub(super) struct Direct {
    machine: Arc<Machine>,
    script: Arc<Script>,
    how: How,
    agent: Mutex<Option<Arc<Agent>>>,
    claims: Mutex<BTreeSet<(u64, u32)>>,
    /// Whether it lets anything be changed; questions it answers in any case.
    permits: AtomicBool,
    /// Who takes turns with its agent.
    others: Option<Others>,
}

fn lost() -> home::Error {
    ErrorKind::Unreachable.into()
}

impl Direct {
    /// One that lets nothing be changed yet.
    pub fn new(
        machine: &Arc<Machine>,
        script: &Arc<Script>,
        how: How,
        others: Option<Others>,
    ) -> Arc<Direct> {
        Arc::new(Direct {
            machine: machine.clone(),
            script: script.clone(),
            how,
            agent: Mutex::default(),
            claims: Mutex::default(),
            permits: AtomicBool::new(false),
            others,
        })
    }

    /// From now on it lets things be changed.
    pub fn permit(&self) {
        self.permits.store(true, Ordering::SeqCst);
    }

    fn agent(&self) -> Result<Arc<Agent>> {
        let mut agent = self.agent.lock();
        if let Some(agent) = &*agent {
            return Ok(agent.clone());
        }
        let process = self.machine.process(self.script.clone());
        let sys = SimSys::new(self.machine.clone(), process.clone());
        let without = self.how.variant.map_or(&[][..], Variant::leaves_out);
        let posix = Posix::over(sys, b"/").map_err(|_| lost())?.without(without);
        Ok(agent.insert(Arc::new(Agent { posix, process, claims: Mutex::default() })).clone())
    }

    /// The same where something is to be changed.
    async fn worker(&self) -> Result<Arc<Agent>> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if self.permits.load(Ordering::SeqCst) { self.agent() } else { Err(lost()) }
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Posix<SimSys>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let agent = self.agent()?;
        let answer = self.call(&agent, question);
        self.survived(&agent)?;
        answer
    }

    /// The same for what changes the home.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Posix<SimSys>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let agent = self.worker().await?;
        let answer = self.call(&agent, work);
        self.survived(&agent)?;
        answer
    }

    /// Something that an agent does. Others go on when it is their turn, and while it waits for them.
    fn call<T: Send + 'static>(
        &self,
        agent: &Arc<Agent>,
        work: impl FnOnce(&Posix<SimSys>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let takes_turns = |others: &Others| !others.going.lock().is_empty() || self.script.has_turns();
        if !coroutine::inside() && !self.others.as_ref().is_some_and(takes_turns) {
            return work(&agent.posix);
        }
        let (inside, answer) = (agent.clone(), Arc::new(Mutex::new(None)));
        let tell = answer.clone();
        let mut run = Coroutine::new(move || *tell.lock() = Some(work(&inside.posix)));
        while run.resume().is_none() {
            let Some(others) = &self.others else {
                // The other gateway gives way as a whole.
                coroutine::pause();
                continue;
            };
            match self.script.with(|state| state.turn.take()) {
                Some(Turn::Agent) if others.going.lock().is_empty() => {
                    others.going.lock().push(run);
                    *self.agent.lock() = None;
                    return Err(lost());
                }
                Some(Turn::Gateway) => others.going.lock().extend(others.waiting.lock().take()),
                _ => {}
            }
            others.go_on(&self.script);
        }
        let told = answer.lock().take();
        told.unwrap_or_else(|| Err(lost()))
    }

    /// A dead process answers nothing, nor does one that was left behind.
    fn survived(&self, agent: &Arc<Agent>) -> Result<()> {
        if self.is_asked(agent) && self.machine.runs(&agent.process) {
            self.script.answered();
            return Ok(());
        }
        self.agent.lock().take_if(|current| Arc::ptr_eq(current, agent));
        Err(lost())
    }

    /// A volume was claimed over this connection.
    fn is_claimed(&self, volume: (u64, u32)) -> Result<()> {
        let agent = self.agent()?;
        agent.claims.lock().insert(volume);
        self.claims.lock().insert(volume);
        Ok(())
    }

    fn is_asked(&self, agent: &Arc<Agent>) -> bool {
        self.agent.lock().as_ref().is_some_and(|current| Arc::ptr_eq(current, agent))
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
        let at = at.clone();
        self.ask(move |posix| posix.stat(&at)).await
    }
    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        let (dir, after) = (dir.clone(), after.cloned());
        self.ask(move |posix| posix.list(&dir, after.as_ref(), max)).await
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
        let file = file.clone();
        self.ask(move |posix| posix.read(&file, at, len)).await
    }
    async fn readlink(&self, at: &Loc) -> Result<Bytes> {
        let at = at.clone();
        self.ask(move |posix| posix.readlink(&at)).await
    }
    async fn statfs(&self, at: &Loc) -> Result<StatFs> {
        let at = at.clone();
        self.ask(move |posix| posix.statfs(&at)).await
    }
    async fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        let (at, want) = (at.clone(), want.cloned());
        self.ask(move |posix| posix.xattrs(&at, want.as_ref())).await
    }
    async fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<()> {
        self.work(move |posix| posix.stage(op, at, data).map(drop)).await
    }
    async fn copy(&self, op: OpId, places: Vec<Loc>, parts: Vec<Copied>) -> Result<()> {
        self.work(move |posix| posix.copy(op, &places, &parts).map(drop)).await
    }
    async fn spool(&self, op: OpId) -> Result<u64> {
        self.work(move |posix| posix.spool(op)).await
    }
    async fn unspool(&self, op: OpId) -> Result<()> {
        self.work(move |posix| {
            posix.unspool(op);
            Ok(())
        })
        .await
    }
    fn spools(&self) -> bool {
        self.how.spools
    }
    async fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        let known = self.work(move |posix| posix.claim(gateway, volume, lost)).await?;
        self.is_claimed((gateway, volume))?;
        Ok(known)
    }
    async fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: Term) -> Result<Entered> {
        let entered = self.work(move |posix| posix.claim_in(gateway, volume, lost, &term)).await?;
        self.is_claimed((gateway, volume))?;
        Ok(entered)
    }
    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        let agent = self.worker().await?;
        let volume = ops.first().map(|placed| (placed.id.gateway, placed.id.volume));
        if volume.is_some_and(|v| self.claims.lock().contains(&v) && !agent.claims.lock().contains(&v)) {
            return Err(ErrorKind::NotClaimed.into());
        }
        let outcomes = self.call(&agent, move |posix| posix.apply(ops));
        if !self.is_asked(&agent) {
            return Err(lost());
        }
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
pub(super) struct Lab(pub Arc<Direct>);

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
