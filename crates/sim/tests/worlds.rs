//! Worlds that are quick to live through.

#![allow(clippy::unwrap_used)]

use clap::ValueEnum;
use sim::world::{Plan, Trouble, run};

fn plan(ops: u64, troubles: &[Trouble]) -> Plan {
    Plan { ops, troubles: troubles.to_vec(), directories: troubles.is_empty() }
}

#[test]
fn one_seed_is_one_world() {
    let plan = plan(60, Trouble::value_variants());
    for seed in 1..=20 {
        let (first, second) = (run(seed, plan.clone()), run(seed, plan.clone()));
        assert!(!first.trace.is_empty());
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.result, second.result, "seed {seed}");
    }
}

#[test]
fn where_nothing_goes_wrong_everything_is_right() {
    for seed in 1..=100 {
        let report = run(seed, plan(60, &[]));
        assert_eq!(report.result, Ok(()), "seed {seed}");
        assert_eq!(report.starts, 1);
    }
}
