//! Where things were interrupted: how often each kind of step was taken, and how often something ended there.

use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::fmt;
pub use vfs::env::testing::Step;

/// The phase in which an agent finds out what the one before it had begun.
pub const CLAIMING: &str = ", claiming";
/// The phase in which a process of the gateway finds again what the one before it knew.
pub const STARTING: &str = ", starting";

/// Steps that are seldom taken, and how often something is to end at the first of them that comes.
pub type Seldom = [(&'static [Step], u32)];

/// Those of the agent.
pub const SELDOM: &Seldom = &[
    (&[("chmod", "staging", "")], 1),
    (&[("create", "staging", "")], 1),
    (&[("fsync", "staging", "")], 8),
    (&[("link", "tree", "")], 1),
    (&[("rename", "cache", "")], 2),
    (&[("rename", "staging", "")], 1),
    (&[("rename", "tree", "")], 8),
    (&[("rename-exchange", "tree", "")], 1),
    (&[("rename-noreplace", "tree", "")], 1),
    (&[("rmdir", "cache", "")], 1),
    (&[("rmdir", "tree", "")], 3),
    (&[("syncfs", "tree", "")], 2),
    (&[("truncate", "staging", "")], 8),
    (&[("truncate", "tree", "")], 1),
    (&[("utimens", "staging", "")], 8),
    (&[("unlink", "cache", "")], 4),
    (&[("unlink", "staging", "")], 1),
    (&[("write", "staging", "")], 12),
];

/// Those of an agent that greets.
pub const SELDOM_GREETING: &Seldom =
    &[(&[("create", "cache", "")], 1), (&[("link", "cache", "")], 1), (&[("make", "cache", "")], 1)];

/// Those of one that finds out what the one before it had begun.
pub const SELDOM_CLAIM: &Seldom = &[
    (&[("rename", "cache", CLAIMING), ("truncate", "cache", CLAIMING)], 1),
    (&[("rmdir", "cache", CLAIMING)], 2),
    (&[("unlink", "staging", CLAIMING)], 1),
    (&[("syncfs", "tree", CLAIMING)], 1),
    (&[("unlink", "cache", CLAIMING)], 1),
    (&[("utimens", "cache", CLAIMING)], 1),
    (
        &[
            ("link", "tree", CLAIMING),
            ("rename", "tree", CLAIMING),
            ("rename-exchange", "tree", CLAIMING),
            ("rename-noreplace", "tree", CLAIMING),
            ("rmdir", "tree", CLAIMING),
            ("unlink", "tree", CLAIMING),
        ],
        8,
    ),
];

/// Those of the gateway.
pub const SELDOM_GATEWAY: &Seldom = &[
    (&[("allocate", "journal", "")], 1),
    (&[("create", "journal", "")], 1),
    (&[("remove", "journal", "")], 2),
    (&[("sync names", "journal", "")], 1),
    (&[("create", "data", "")], 1),
    (&[("remove", "data", "")], 1),
    (&[("sync", "data", "")], 1),
    (&[("sync names", "data", "")], 1),
    (&[("sync", "store", "")], 1),
];

/// Those of one that starts.
pub const SELDOM_START: &Seldom = &[
    (&[("allocate", "journal", STARTING)], 4),
    (&[("create", "journal", STARTING)], 8),
    (&[("remove", "journal", STARTING)], 8),
    (&[("sync", "journal", STARTING)], 1),
    (&[("sync names", "journal", STARTING)], 1),
    (&[("write", "journal", STARTING)], 1),
    (&[("create", "data", STARTING)], 1),
    (&[("remove", "data", STARTING)], 4),
    (&[("sync", "data", STARTING)], 4),
    (&[("sync names", "data", STARTING)], 4),
    (&[("write", "data", STARTING)], 1),
    (&[("sync", "store", STARTING)], 1),
    (&[("write", "store", STARTING)], 1),
];

/// Those at the first of which something is to end, chosen by their weights.
pub fn one_of(seldom: &'static Seldom, rng: &mut StdRng) -> &'static [Step] {
    let mut chosen = rng.random_range(0..seldom.iter().map(|(_, weight)| weight).sum::<u32>());
    let is_it = |weight: u32| {
        let is_it = chosen < weight;
        chosen = chosen.saturating_sub(weight);
        is_it
    };
    seldom.iter().map(|(_, weight)| *weight).position(is_it).map_or(&[], |at| seldom[at].0)
}

/// Counters of one kind of step.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hits {
    /// How often it was taken.
    pub taken: u64,
    /// How often a process or a machine ended there.
    pub ended: u64,
    /// How often a process was left behind there, and went on later.
    pub paused: u64,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub struct Coverage(pub BTreeMap<String, Hits>);

impl Coverage {
    /// The counters of a kind of step.
    pub fn at(&mut self, step: &str) -> &mut Hits {
        self.0.entry(step.to_owned()).or_default()
    }

    /// Adds the counters of another world.
    pub fn add(&mut self, other: &Coverage) {
        for (step, hits) in &other.0 {
            let sum = self.at(step);
            sum.taken += hits.taken;
            sum.ended += hits.ended;
            sum.paused += hits.paused;
        }
    }

    /// Steps that were taken and at which nothing ended so many times, each with how often something did.
    pub fn missed(&self, wanted: u64) -> Vec<(&str, u64)> {
        self.0.iter().filter(|(_, h)| h.ended < wanted).map(|(step, h)| (&step[..], h.ended)).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:44} {:>12} {:>8} {:>8}", "step", "taken", "ended", "paused")?;
        for (step, h) in &self.0 {
            writeln!(f, "{step:44} {:>12} {:>8} {:>8}", h.taken, h.ended, h.paused)?;
        }
        Ok(())
    }
}
