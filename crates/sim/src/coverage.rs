//! Where things were interrupted: how often each kind of step was taken, and how often something ended there.

use std::collections::BTreeMap;
use std::fmt;

/// Steps of the agent that are seldom taken, each with the part of the tree, and how often one is chosen to end something.
pub const SELDOM: [(&str, &str, u32); 15] = [
    ("chmod", "staging", 1),
    ("fsync", "staging", 8),
    ("link", "cache", 4),
    ("link", "tree", 1),
    ("rename", "cache", 1),
    ("rename", "staging", 1),
    ("rename-exchange", "tree", 1),
    ("rmdir", "cache", 1),
    ("rmdir", "tree", 3),
    ("syncfs", "tree", 1),
    ("truncate", "staging", 8),
    ("truncate", "tree", 1),
    ("utimens", "staging", 8),
    ("unlink", "cache", 1),
    ("write", "staging", 12),
];

/// Those of the gateway, each with the folder.
pub const SELDOM_GATEWAY: [(&str, &str); 8] = [
    ("allocate", "journal"),
    ("create", "journal"),
    ("remove", "journal"),
    ("sync names", "journal"),
    ("create", "data"),
    ("remove", "data"),
    ("sync names", "data"),
    ("sync", "store"),
];

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
