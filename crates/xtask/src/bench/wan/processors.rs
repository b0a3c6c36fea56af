//! How busy the processors of the machine are.

use anyhow::{Context, Result};
use std::fs;

/// Time that all processors together have had since the machine started, in ticks of the kernel.
pub struct Processors {
    all: u64,
    idle: u64,
}

impl Processors {
    /// Up to now, as proc_stat(5) tells.
    pub fn now() -> Result<Self> {
        Self::read(&fs::read_to_string("/proc/stat")?)
            .context("/proc/stat does not begin with the processors")
    }

    fn read(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        // User, nice, system, idle, waiting for a disk, interrupts, soft ones, taken by other machines. What follows is
        // counted as user's already.
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self { all: ticks.iter().sum(), idle })
    }

    /// Which part of their time they were busy since then.
    pub fn busy(&self) -> Result<f64> {
        Ok(self.until(&Self::now()?))
    }

    fn until(&self, later: &Self) -> f64 {
        // Of less than a tick nothing is known.
        let all = later.all.saturating_sub(self.all).max(1) as f64;
        1.0 - (later.idle.saturating_sub(self.idle) as f64 / all).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_waits_for_a_disk_is_busy() {
        let at = |stat| Processors::read(stat).unwrap();
        let before = at("cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2 3 4 5\n");
        let after = at("cpu  150 5 70 810 60 3 2 0 9 0\ncpu0 1 2 3 4 5\n");
        assert_eq!(before.until(&after), 0.8);
        assert!(Processors::read("intr 1 2 3 4 5 6").is_none());
        assert!(Processors::now().is_ok());
    }
}
