//! Random calls on an engine, compared with a model of POSIX, while the home, the way to it, the process and the
//! power fail.
//!
//! A failing run prints its seed: `TRELLIS_SEED=n` runs that one again, `TRELLIS_SEEDS=n` runs n others,
//! `TRELLIS_STEPS=n` makes runs shorter or longer.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../common/mod.rs"]
mod common;
mod outside;
mod posix;
mod run;

use run::{Plan, Run};
use std::future::Future;
use vfs::Mode;

/// Seeds of a run without wishes.
const SEEDS: u64 = 12;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

fn seeds() -> Vec<u64> {
    match (number("TRELLIS_SEED"), number("TRELLIS_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => {
            let first = u64::from(rand::random::<u32>());
            (first..first + count).collect()
        }
        (None, None) => (1..=SEEDS).collect(),
    }
}

fn in_fast_time<T>(work: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let answer = runtime.block_on(work);
    runtime.shutdown_background();
    answer
}

fn check(plan: Plan) {
    let steps = number("TRELLIS_STEPS").map_or(plan.steps, |n| n as u32);
    let plan = Plan { steps, ..plan };
    for seed in seeds() {
        in_fast_time(async {
            let mut run = Run::new(seed, plan).await;
            if let Err(why) = run.go().await {
                let tail = run.trace.len().saturating_sub(400);
                for line in &run.trace[tail..] {
                    eprintln!("{line}");
                }
                eprintln!("{:#?}", run.e.vfs.status());
                panic!("TRELLIS_SEED={seed} {plan:?}: {why}");
            }
        });
    }
}

const PLAN: Plan = Plan { mode: Mode::Wb, steps: 100, big: false, restarts: false, faults: false };

#[test]
fn calm() {
    check(PLAN);
}

#[test]
fn large_files_in_a_small_cache() {
    check(Plan { big: true, ..PLAN });
}

#[test]
fn a_home_that_comes_and_goes() {
    check(Plan { faults: true, ..PLAN });
}

#[test]
fn strict() {
    check(Plan { mode: Mode::Strict, ..PLAN });
}

#[test]
fn strict_with_a_home_that_comes_and_goes() {
    check(Plan { mode: Mode::Strict, faults: true, ..PLAN });
}

#[test]
fn two_who_write() {
    let steps = number("TRELLIS_STEPS").map_or(60, |n| n as u32);
    for seed in seeds() {
        in_fast_time(async {
            let mut two = outside::Two::new(seed).await;
            if let Err(why) = two.go(steps).await {
                two.trace.iter().for_each(|line| eprintln!("{line}"));
                panic!("TRELLIS_SEED={seed}: {why}");
            }
        });
    }
}

#[test]
fn a_process_that_dies() {
    check(Plan { restarts: true, ..PLAN });
}

#[test]
fn everything_at_once() {
    check(Plan { restarts: true, faults: true, big: true, ..PLAN });
}
