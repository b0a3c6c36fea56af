//! `cargo xtask model`: explores every interleaving within bounds.

use clap::Parser;
use sim::explore::run::run;
use sim::explore::script::{End, Wanted};
use sim::explore::{Bounds, How, explore, explore_these, parse};
use sim::variant::Variant;
use std::process::ExitCode;

/// Explores what can become of small batches at a home; fails with a schedule that broke a promise.
#[derive(Parser)]
struct Args {
    /// Operations in a batch, at most
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Only the shorter list of operations, for longer batches
    #[arg(long)]
    narrow: bool,
    /// Things that another program does
    #[arg(long, default_value_t = 1)]
    outsider: usize,
    /// Kills of the agent, lost answers and power cuts
    #[arg(long, default_value_t = 1)]
    crashes: usize,
    /// Times that the connection ends and the agent is left behind, and that it goes on
    #[arg(long, default_value_t = 0)]
    switches: usize,
    /// Another gateway makes a change meanwhile
    #[arg(long)]
    gateways: bool,
    /// No power cuts
    #[arg(long)]
    kills_only: bool,
    /// All of these together, at most
    #[arg(long, default_value_t = 2)]
    events: usize,
    /// Explores agents that leave out what they must not
    #[arg(long)]
    variant: Option<Variant>,
    /// Files that are written anew are staged on the home's disk, however short
    #[arg(long)]
    spools: bool,
    /// Goes on after a violation, and lists one of each batch
    #[arg(long)]
    keep_going: bool,
    /// Explores one batch, written as in a schedule, instead of all of a depth
    #[arg(long, conflicts_with = "depth")]
    batch: Option<String>,
    /// Runs one schedule, as a violation is printed, and lists its steps
    #[arg(long, value_name = "PATH")]
    replay: Option<String>,
    /// Batches at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let how = How { variant: args.variant, spools: args.spools };
    if let Some(path) = &args.replay {
        return replay(path, how);
    }
    let bounds = Bounds {
        depth: args.depth,
        narrow: args.narrow,
        outsider: args.outsider,
        crashes: args.crashes,
        kills_only: args.kills_only,
        switches: args.switches,
        gateways: args.gateways,
        events: args.events,
        how,
        keep_going: args.keep_going,
        jobs: args.jobs,
    };
    let begun = std::time::Instant::now();
    let counts = match &args.batch {
        Some(batch) => match parse(&format!("{batch} |")) {
            Some((batch, _)) => explore_these(&bounds, &[batch]),
            None => {
                println!("this is no batch: {batch}");
                return ExitCode::FAILURE;
            }
        },
        None => explore(&bounds),
    };
    for broken in &counts.broken {
        println!("{}\n    {}", broken.why, broken.path());
    }
    println!(
        "{}{}, {} acts of another program, {} kills{}; at most {} of these together",
        args.batch.unwrap_or_else(|| format!("batches of at most {} operations", args.depth)),
        if args.narrow { " of the shorter list" } else { "" },
        args.outsider,
        args.crashes,
        if args.kills_only { "" } else { " or power cuts" },
        args.events
    );
    println!(
        "{} batches, {} runs, {} steps, {} different trees at their ends, {} broken, in {:.1?}",
        counts.batches,
        counts.runs,
        counts.steps,
        counts.trees,
        counts.broken.len(),
        begun.elapsed()
    );
    if counts.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(path: &str, how: How) -> ExitCode {
    let Some((batch, schedule)) = parse(path) else {
        println!("this is no schedule: {path}");
        return ExitCode::FAILURE;
    };
    let report = run(&batch, &schedule, how, &Wanted::default());
    for (n, step) in report.steps.iter().enumerate() {
        for at in schedule.iter().filter(|at| at.step == n) {
            println!("      >>> {at}");
        }
        println!("{n:5} {} in {}, {} not durable", step.call.name, step.call.place, step.unsynced);
    }
    match report.end {
        End::Holds(_) => {
            println!("everything holds");
            ExitCode::SUCCESS
        }
        End::Broken(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
        other => {
            println!("{other:?}");
            ExitCode::FAILURE
        }
    }
}
