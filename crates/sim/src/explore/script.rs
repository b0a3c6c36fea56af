//! What happens at which step of a run, and what is looked for there.

use super::check;
use super::gateway::Gateway;
use super::outside::{AT, Act, Outside, process};
use super::tree::{Change, Sort, Tree};
use crate::clock::Clock;
use crate::coroutine;
use crate::ledger::tokens_in;
use crate::machine::fs::Fs;
use crate::machine::{Around, Call, Cut, Fate, Luck, Machine};
use home::posix::sys::{Make, Sys, Sysult};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

/// Content is written in parts of so many bytes: one token.
pub const BLOCK: usize = 8;
/// A run has fewer steps.
const STEPS_MAX: usize = 4000;

/// Something that happens before a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Another program does something.
    Outside(Act),
    /// The agent is killed, or its answer is lost.
    Kill,
    /// The power fails.
    Cut(Cut),
    /// The connection ends, and the agent is left behind at this step: another one takes over, and the first goes on when
    /// the other one waits for it, at the next switch, or when all is done. Where there is one that was left behind, the
    /// agent that runs lets it go on.
    Switch,
    /// Another gateway, which has looked at the tree before, makes this change meanwhile.
    Other(Change),
}

/// When what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct At {
    /// Before this step, counted from the batch on.
    pub step: usize,
    /// What.
    pub event: Event,
}

/// All that happens in a run, in order.
pub type Schedule = Vec<At>;

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event {
            Event::Outside(act) => write!(f, "{} {act}", self.step),
            Event::Kill => write!(f, "{} kill", self.step),
            Event::Switch => write!(f, "{} switch", self.step),
            Event::Other(change) => write!(f, "{} other {change}", self.step),
            Event::Cut(cut) => {
                let luck = |l| match l {
                    Luck::Old => "old",
                    Luck::New => "new",
                    Luck::Torn => "torn",
                };
                write!(f, "{} cut {} {} {}", self.step, cut.keep, luck(cut.tree), luck(cut.cache))
            }
        }
    }
}

impl At {
    /// What another gateway does then.
    pub fn other(&self) -> Option<Change> {
        match self.event {
            Event::Other(change) => Some(change),
            _ => None,
        }
    }

    /// The same from words.
    pub fn parse(text: &str) -> Option<At> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let luck = |n: usize| match *words.get(n)? {
            "old" => Some(Luck::Old),
            "new" => Some(Luck::New),
            "torn" => Some(Luck::Torn),
            _ => None,
        };
        let event = match *words.get(1)? {
            "outside" => Event::Outside(Act::parse(words.get(2)?, words.get(3).copied())?),
            "kill" => Event::Kill,
            "switch" => Event::Switch,
            "other" => Event::Other(Change::parse(&words[2..].join(" "))?),
            "cut" => Event::Cut(Cut { keep: words.get(2)?.parse().ok()?, tree: luck(3)?, cache: luck(4)? }),
            _ => return None,
        };
        Some(At { step: words.first()?.parse().ok()?, event })
    }
}

/// A step of a run.
#[derive(Debug, Clone)]
pub struct Step {
    /// The system call.
    pub call: Call,
    /// Changes of metadata that were not durable before it.
    pub unsynced: usize,
    /// Of what is looked for, what another program could do before it.
    pub acts: Vec<Act>,
    /// What a power cut before it could leave, each state that no earlier one of this run could leave.
    pub cuts: Vec<Cut>,
}

/// What is looked for at the steps of a run, because further runs are made of it.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// What another program might do.
    pub acts: Vec<Act>,
    /// Whether the power might fail.
    pub cuts: bool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Everything holds; the digest of the tree.
    Holds(u64),
    /// A promise was broken.
    Broken(String),
    /// Something in the schedule cannot happen.
    Impossible,
}

/// What is known of a run.
pub struct Report {
    /// Its steps.
    pub steps: Vec<Step>,
    /// How it ended.
    pub end: End,
}

/// What is to happen around the steps of agents.
pub(super) struct Script {
    machine: Weak<Machine>,
    state: Mutex<State>,
}

/// How far it came.
#[derive(Default)]
pub(super) struct State {
    /// Whether steps count.
    pub active: bool,
    steps: Vec<Step>,
    schedule: Schedule,
    next: usize,
    /// The other program.
    pub outside: Outside,
    removes: bool,
    impossible: bool,
    /// What power cuts left before anybody else did something.
    images: Vec<Fs>,
    cuts: usize,
    /// Why an agent paused, if not because it waits.
    pub turn: Option<Turn>,
    wanted: Wanted,
    /// Answers that a gateway had: what it knows depends on nothing else.
    answers: u64,
    /// What power cuts could have left so far, each with what gateways knew then.
    left: HashSet<u64>,
}

/// Who goes on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn {
    /// The next agent, or the one that was left behind.
    Agent,
    /// Another gateway.
    Gateway,
}

impl Around for Script {
    fn before(&self, call: Call) -> Fate {
        let Some(machine) = self.machine.upgrade() else { return Fate::Goes };
        let (fate, pauses) = self.state.lock().step(&machine, call);
        if pauses {
            coroutine::pause();
        }
        fate
    }
}

impl Script {
    /// For the agents of a machine.
    pub fn new(machine: &Arc<Machine>, batch: &[Change], schedule: &[At], wanted: &Wanted) -> Arc<Script> {
        let mut tree = Tree::begin();
        let mut removes = false;
        for (n, change) in batch.iter().enumerate() {
            removes |= tree.destroys(*change);
            let _ = tree.apply(*change, n);
        }
        let wanted = wanted.clone();
        let state = State { schedule: schedule.to_vec(), removes, wanted, ..State::default() };
        Arc::new(Script { machine: Arc::downgrade(machine), state: Mutex::new(state) })
    }

    /// Looks at how far it came.
    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    /// Whether others go on while an agent is in the middle of something, now or at a later step.
    pub fn has_turns(&self) -> bool {
        let state = self.state.lock();
        let mut left = state.schedule.iter().skip(state.next);
        state.active && left.any(|at| matches!(at.event, Event::Switch | Event::Other(_)))
    }

    /// A gateway has an answer.
    pub fn answered(&self) {
        self.state.lock().answers += 1;
    }

    /// What is known of the run when it ended so.
    pub fn report(&self, end: End) -> Report {
        let mut state = self.state.lock();
        let end = if state.impossible || state.next < state.schedule.len() {
            match end {
                End::Broken(why) if !state.impossible => End::Broken(why),
                _ => End::Impossible,
            }
        } else {
            end
        };
        state.outside = Outside::default();
        Report { steps: std::mem::take(&mut state.steps), end }
    }
}

impl State {
    /// Everything is sent: whether all holds.
    pub fn judge(&mut self, machine: &Arc<Machine>, gateways: &[Gateway], clock: &Clock) -> End {
        self.active = false;
        if self.steps.len() >= STEPS_MAX {
            return End::Broken("L1: it does not end".into());
        }
        self.outside.finish(machine, self.removes);
        clock.advance(std::time::Duration::from_secs(2 * home::limits::STAGING_SECONDS as u64));
        let facts = check::Facts {
            machine,
            gateways,
            outside: &self.outside,
            images: &self.images,
            crashed: self.cuts > 0,
        };
        match check::all(&facts) {
            Ok(digest) => End::Holds(digest),
            Err(why) => End::Broken(why),
        }
    }

    /// Counts a step, and lets happen what is to happen before it; whether another process goes on first.
    fn step(&mut self, machine: &Arc<Machine>, call: Call) -> (Fate, bool) {
        if !self.active || self.steps.len() >= STEPS_MAX {
            return (Fate::Goes, false);
        }
        let step = self.steps.len();
        let (unsynced, dirty) = machine.unsynced();
        self.steps.push(Step { call, unsynced, acts: Vec::new(), cuts: Vec::new() });
        let mut fate = Fate::Goes;
        while let Some(at) = self.schedule.get(self.next).filter(|at| at.step == step).copied() {
            self.next += 1;
            match at.event {
                Event::Outside(act) => {
                    self.impossible |= self.outside.act(machine, act, self.removes).is_err();
                }
                Event::Kill => fate = Fate::DiesBefore,
                Event::Cut(cut) => self.cut(machine, cut),
                Event::Switch => self.turn = Some(Turn::Agent),
                Event::Other(_) => self.turn = Some(Turn::Gateway),
            }
        }
        if self.next == self.schedule.len() {
            let acts = if call.place == "cache" { Vec::new() } else { self.acts(machine) };
            let cuts = if call.changes { self.cuts_before(machine, unsynced, dirty) } else { Vec::new() };
            (self.steps[step].acts, self.steps[step].cuts) = (acts, cuts);
        }
        // What is not in a coroutine has nobody to give way to.
        self.impossible |= self.turn.is_some() && !coroutine::inside();
        (fate, self.turn.is_some())
    }

    fn acts(&self, machine: &Machine) -> Vec<Act> {
        self.wanted.acts.iter().copied().filter(|act| self.outside.may(machine, *act)).collect()
    }

    /// After a cut no process goes on, so that what comes of it depends on what it left, what gateways knew, and what is
    /// in the book of the other program.
    fn cuts_before(&mut self, machine: &Machine, unsynced: usize, dirty: bool) -> Vec<Cut> {
        if !self.wanted.cuts {
            return Vec::new();
        }
        let mut book = DefaultHasher::new();
        (self.answers, &self.outside.acts, &self.outside.required, &self.outside.excused).hash(&mut book);
        if !self.outside.required.is_empty() {
            tokens_in(&machine.durable(), false).hash(&mut book);
        }
        let is_new = |cut: &Cut| {
            let mut hasher = book.clone();
            check::digest(&machine.image_after(*cut, BLOCK), true, &mut hasher);
            self.left.insert(hasher.finish())
        };
        cuts(unsynced, dirty).into_iter().filter(is_new).collect()
    }

    fn cut(&mut self, machine: &Arc<Machine>, cut: Cut) {
        let none = Cut { keep: 0, tree: Luck::Old, cache: Luck::Old };
        self.outside.power_failed(&machine.image_after(none, BLOCK));
        machine.cut_to(cut, BLOCK);
        if self.outside.acts.is_empty() {
            self.images.push(machine.image());
        }
        self.cuts += 1;
    }
}

/// What a power cut can leave.
fn cuts(unsynced: usize, dirty: bool) -> Vec<Cut> {
    let all = [Luck::Old, Luck::New, Luck::Torn];
    let (tree, cache) = if dirty { (&all[..], &all[..2]) } else { (&all[..1], &all[..1]) };
    let mut cuts = Vec::new();
    for keep in 0..=unsynced {
        for tree in tree {
            cuts.extend(cache.iter().map(|cache| Cut { keep, tree: *tree, cache: *cache }));
        }
    }
    cuts
}

/// Makes the tree that each batch finds.
pub(super) fn plant(machine: &Arc<Machine>) -> Sysult<()> {
    let sys = process(machine);
    let tree = Tree::begin();
    let home = sys.open_root(b"/home/ann")?;
    sys.make(&home, b"t", Make::Dir(0o755))?;
    let top = sys.open_root(AT.as_bytes())?;
    let mut made = HashSet::new();
    let at = |path: &str| -> Sysult<(_, Vec<u8>)> {
        let dir = sys.open_root(format!("{AT}/{}", super::tree::parent(path)).as_bytes())?;
        Ok((dir, path.rsplit('/').next().unwrap_or_default().as_bytes().to_vec()))
    };
    for (path, obj) in tree.names.iter().filter(|(path, _)| !path.is_empty()) {
        let (node, (dir, name)) = (&tree.nodes[*obj], at(path)?);
        if !made.insert(*obj) {
            let (first, _) = tree.names.iter().find(|(_, o)| *o == obj).ok_or(rustix::io::Errno::NOENT)?;
            let (from, old) = at(first)?;
            sys.link(&from, &old, &dir, &name)?;
            continue;
        }
        match node.sort {
            Sort::File => drop(sys.write(&sys.create(&dir, &name, node.mode)?, 0, &node.data)?),
            Sort::Dir => sys.make(&dir, &name, Make::Dir(node.mode))?,
            Sort::Symlink => sys.make(&dir, &name, Make::Symlink(&node.data))?,
        }
    }
    drop(top);
    machine.settle();
    Ok(())
}
