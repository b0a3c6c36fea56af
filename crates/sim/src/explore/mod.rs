//! Every interleaving, within bounds: `cargo xtask model`.
//!
//! What runs is the engine, `vfs`, and the code of the agent, `home::posix`, over [`machine`](crate::machine), as in the simulation; but what else
//! happens, and before which of its system calls, is not chosen by a seed: all choices are made in turn. A run is
//! determined by its batch and its [`Schedule`]. It is begun from the start each time, because the real code cannot be
//! put back into an earlier state: stateless model checking, by depth-first search over schedules.
//!
//! # Bounds
//! - The tree has two directories, two files, a file with two names and a symbolic link: [`tree::Tree::begin`].
//! - Batches have at most [`Bounds::depth`] operations, all that are possible of [`tree::alphabet`].
//! - Another program does at most [`Bounds::outsider`] things, of [`outside::Act`], to the names that occur in the batch.
//! - The agent is killed, or its answer lost, or the power of the machine fails, [`Bounds::crashes`] times in all: also
//!   while it is being mended.
//! - A power cut keeps any prefix of the changes of metadata that were not synced. Of content that was not, all, nothing or
//!   every other part of eight bytes is kept in all files of the tree alike, and all or nothing in those of the log.
//! - Another gateway makes one change, of [`tree::others`], at once, but for where it waits for the first one's agent.
//!
//! # What is left out because it is the same
//! - A process is killed, and the power fails, only before calls that change something: a look leaves no trace.
//! - Another program acts only before calls that it can have an influence on: not those on the agent's own log; and only
//!   what names and open files let it do.
//! - From what power cuts leave in a run one further run is enough, if what gateways know and others may still do is the same.
//!
//! That runs with the same beginning have the same steps up to there is checked in each.
//!
//! # Layout
//! [`tree`]: what was wanted. [`gateway`]: what a gateway is held to. [`outside`]: another program. [`script`]: what happens at
//! which step. [`direct`]: agents, and who takes turns with them. [`run`]: one run, with the real engine. [`check`]: what has to
//! hold in the end.

pub mod check;
mod direct;
pub mod gateway;
pub mod outside;
pub mod run;
pub mod script;
pub mod tree;

use crate::variant::Variant;
use outside::Act;
use parking_lot::Mutex;
use script::{At, End, Event, Schedule, Step, Wanted};
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tree::{Change, Path};

/// How gateways and agents work.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// What the agent leaves out.
    pub variant: Option<Variant>,
    /// Whether files that are written anew are staged on the home's disk, however short.
    pub spools: bool,
}

/// How far to go.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Operations in a batch, at most.
    pub depth: usize,
    /// Only the shorter list of operations.
    pub narrow: bool,
    /// Acts of another program.
    pub outsider: usize,
    /// Kills and power cuts.
    pub crashes: usize,
    /// Kills alone.
    pub kills_only: bool,
    /// Times that agents are left behind, and go on.
    pub switches: usize,
    /// Whether another gateway makes a change.
    pub gateways: bool,
    /// Events in all.
    pub events: usize,
    /// How gateways and agents work.
    pub how: How,
    /// Goes on after a violation.
    pub keep_going: bool,
    /// Runs at a time.
    pub jobs: usize,
}

/// What was explored.
#[derive(Debug, Default)]
pub struct Counts {
    /// Batches.
    pub batches: u64,
    /// Runs, those that were not possible included.
    pub runs: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Different trees in the end.
    pub trees: u64,
    /// What was broken, with the shortest schedule of each batch.
    pub broken: Vec<Broken>,
}

/// A broken promise.
#[derive(Debug, Clone)]
pub struct Broken {
    /// The batch.
    pub batch: Vec<Change>,
    /// What happened.
    pub schedule: Schedule,
    /// What it broke.
    pub why: String,
}

impl Broken {
    /// The same as one line that [`parse`] reads.
    pub fn path(&self) -> String {
        let batch: Vec<String> = self.batch.iter().map(Change::to_string).collect();
        let events: Vec<String> = self.schedule.iter().map(At::to_string).collect();
        format!("{} | {}", batch.join("; "), events.join("; "))
    }
}

/// A batch and a schedule from one line.
pub fn parse(path: &str) -> Option<(Vec<Change>, Schedule)> {
    let (batch, events) = path.split_once('|')?;
    let parts = |text: &str| -> Vec<String> {
        text.split(';').map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect()
    };
    let batch = parts(batch).iter().map(|p| Change::parse(p)).collect::<Option<_>>()?;
    let events = parts(events).iter().map(|p| At::parse(p)).collect::<Option<_>>()?;
    Some((batch, events))
}

/// What is known of one batch while it is explored.
struct Explorer<'a> {
    bounds: &'a Bounds,
    batch: &'a [Change],
    acts: Vec<Act>,
    trees: HashSet<u64>,
    counts: Counts,
    stop: &'a AtomicBool,
}

/// Explores everything within bounds.
pub fn explore(bounds: &Bounds) -> Counts {
    let alphabet = tree::alphabet(!bounds.narrow);
    let all: Vec<Vec<Change>> = (1..=bounds.depth).flat_map(|n| tree::batches(n, &alphabet)).collect();
    explore_these(bounds, &all)
}

/// Explores everything that can become of some batches.
pub fn explore_these(bounds: &Bounds, all: &[Vec<Change>]) -> Counts {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let sum = Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        for _ in 0..bounds.jobs.max(1) {
            scope.spawn(|| {
                while let Some(batch) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let found = one(bounds, batch, &stop);
                    let mut sum = sum.lock();
                    sum.batches += 1;
                    sum.runs += found.runs;
                    sum.steps += found.steps;
                    sum.trees += found.trees;
                    sum.broken.extend(found.broken);
                    if !sum.broken.is_empty() && !bounds.keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    sum.into_inner()
}

/// Explores one batch: first what one event can do, then two, so that what is found first is the shortest.
fn one(bounds: &Bounds, batch: &[Change], stop: &AtomicBool) -> Counts {
    let mut names: BTreeSet<Path> = batch.iter().flat_map(|c| c.parts().1).collect();
    let dirs: Vec<Path> = names.iter().filter_map(|p| tree::known(tree::parent(p))).collect();
    names.extend(dirs.into_iter().filter(|d| !d.is_empty()));
    let mut explorer = Explorer {
        bounds,
        batch,
        acts: Act::all(names),
        trees: HashSet::new(),
        counts: Counts::default(),
        stop,
    };
    let most = {
        let others = bounds.switches + usize::from(bounds.gateways);
        bounds.events.min(bounds.outsider + bounds.crashes + others)
    };
    let mut level = vec![Begun::default()];
    for events in 0..=most {
        let mut longer = Vec::new();
        for begun in level {
            if explorer.stop.load(Ordering::Relaxed) || !explorer.counts.broken.is_empty() {
                break;
            }
            let children = explorer.run(begun, events < most);
            longer.extend(children);
        }
        level = longer;
    }
    explorer.counts.trees = explorer.trees.len() as u64;
    explorer.counts
}

/// How a run begins: its schedule, and the digest of its steps up to the last event, as of the run that it goes off from.
#[derive(Default)]
struct Begun {
    schedule: Schedule,
    steps: u64,
}

/// The digest of the steps of a run up to each of them, that one included.
fn digests(steps: &[Step]) -> Vec<u64> {
    let mut hasher = DefaultHasher::new();
    let up_to = |step: &Step| {
        (step.call.name, step.call.place, step.unsynced).hash(&mut hasher);
        hasher.finish()
    };
    steps.iter().map(up_to).collect()
}

impl Explorer<'_> {
    /// One run; answers those with one event more.
    fn run(&mut self, Begun { schedule, steps }: Begun, further: bool) -> Vec<Begun> {
        let used = Used::of(&schedule);
        let bounds = self.bounds;
        let wanted = Wanted {
            acts: if further && used.acts < bounds.outsider { self.acts.clone() } else { Vec::new() },
            cuts: further && !bounds.kills_only && used.crashes < bounds.crashes,
        };
        let report = run::run(self.batch, &schedule, bounds.how, &wanted);
        self.counts.runs += 1;
        self.counts.steps += report.steps.len() as u64;
        let digests = digests(&report.steps);
        let last = schedule.last().map_or(0, |at| at.step);
        let is_other = !schedule.is_empty() && digests.get(last) != Some(&steps);
        let end = match report.end {
            End::Impossible => End::Impossible,
            _ if is_other => End::Broken("not the same steps as the run that it goes off from".into()),
            end => end,
        };
        match end {
            End::Holds(digest) => drop(self.trees.insert(digest)),
            End::Broken(why) => {
                self.counts.broken.push(Broken { batch: self.batch.to_vec(), schedule, why });
                return Vec::new();
            }
            End::Impossible => return Vec::new(),
        }
        if !further {
            return Vec::new();
        }
        let mut children = Vec::new();
        for (step, taken) in report.steps.iter().enumerate().skip(last) {
            for event in self.events(taken, &used, &schedule, step) {
                let schedule = [&schedule[..], &[At { step, event }]].concat();
                children.push(Begun { schedule, steps: digests[step] });
            }
        }
        children
    }

    /// What may happen before a step.
    fn events(&self, step: &Step, used: &Used, before: &[At], at: usize) -> Vec<Event> {
        let mut all = Vec::new();
        // Of what happens at one step only the acts can be more than one, and they come first.
        let is_over = before.last().is_some_and(|b| b.step == at && !matches!(b.event, Event::Outside(_)));
        if is_over {
            return all;
        }
        let bounds = self.bounds;
        if used.acts < bounds.outsider {
            all.extend(step.acts.iter().map(|act| Event::Outside(*act)));
        }
        if used.crashes < bounds.crashes && step.call.changes {
            all.push(Event::Kill);
            all.extend(step.cuts.iter().map(|cut| Event::Cut(*cut)));
        }
        if used.switches < bounds.switches {
            all.push(Event::Switch);
        }
        if bounds.gateways && !used.gateways && used.switches == 0 && step.call.place != "cache" {
            all.extend(tree::others().into_iter().map(Event::Other));
        }
        all
    }
}

/// How much of the bounds a schedule has used.
#[derive(Default)]
struct Used {
    acts: usize,
    crashes: usize,
    switches: usize,
    gateways: bool,
}

impl Used {
    fn of(schedule: &[At]) -> Used {
        let mut used = Used::default();
        for at in schedule {
            match at.event {
                Event::Outside(_) => used.acts += 1,
                Event::Kill | Event::Cut(_) => used.crashes += 1,
                Event::Switch => used.switches += 1,
                Event::Other(_) => used.gateways = true,
            }
        }
        used
    }
}
