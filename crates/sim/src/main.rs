//! `cargo xtask sim`: many worlds, and for one that fails, its seed.

use clap::Parser;
use clap::ValueEnum;
use sim::coverage::Coverage;
use sim::variant::Variant;
use sim::world::{Plan, Trouble, run};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfs::Mode;

/// Lives through worlds made of seeds; fails with the seed of one that went wrong.
#[derive(Parser)]
struct Args {
    /// How many worlds; 100 if nothing is said
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed; without --seeds, that world only, with its trace
    #[arg(long)]
    seed: Option<u64>,
    /// Calls of clients in each
    #[arg(long, default_value_t = 100)]
    ops: u64,
    /// What may go wrong; if nothing is said, everything but outsider, clock-steps, full-disks, refusals, neighbour, seldom,
    /// small-cache, no-exchange, links, moves, barriers, chain, spools and short-batches
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<Trouble>>,
    /// Compares times and link counts of directories, too
    #[arg(long)]
    directories: bool,
    /// What answers promise: wb, owned, cto or strict
    #[arg(long, default_value = "wb", value_parser = mode)]
    mode: Mode,
    /// Goes on after a failure, and lists all
    #[arg(long)]
    keep_going: bool,
    /// Runs each world twice and compares
    #[arg(long)]
    twice: bool,
    /// Looks for the first world that catches agents of this kind, or of all, which leave out what they must not
    #[arg(long, value_delimiter = ',', value_parser = variants_of)]
    variant: Vec<Vec<Variant>>,
    /// Fails where nothing ended so many times at a kind of step
    #[arg(long)]
    covered: Option<u64>,
    /// Worlds at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

fn variants_of(name: &str) -> Result<Vec<Variant>, String> {
    match name {
        "all" => Ok(Variant::value_variants().to_vec()),
        name => Variant::from_str(name, false).map(|variant| vec![variant]),
    }
}

fn mode(name: &str) -> Result<Mode, String> {
    let writes = [Mode::Wb, Mode::Owned, Mode::Cto, Mode::Strict];
    writes
        .into_iter()
        .find(|mode| mode.name() == name)
        .ok_or_else(|| "one of wb, owned, cto, strict".to_owned())
}

/// How often something should have ended at each kind of step.
const COVERED: u64 = 20;

#[derive(Default)]
struct Sum {
    coverage: Coverage,
    worlds: u64,
    starts: u64,
    failed: Vec<(u64, String)>,
    digest: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let all = || Trouble::value_variants().iter().copied().filter(|t| t.is_usual()).collect();
    let plan = Plan {
        ops: args.ops,
        troubles: args.only.clone().unwrap_or_else(all),
        directories: args.directories,
        variant: None,
        mode: args.mode,
    };
    if !args.variant.is_empty() {
        return variants(&args);
    }
    match (args.seed, args.seeds) {
        (Some(seed), None) => one(seed, &plan, args.twice),
        (first, count) => many(first.unwrap_or(1), count.unwrap_or(100), &args, &plan),
    }
}

fn one(seed: u64, plan: &Plan, twice: bool) -> ExitCode {
    let report = run(seed, plan.clone());
    report.trace.iter().for_each(|line| println!("{line}"));
    if twice && let Some(line) = report.differs(&run(seed, plan.clone())) {
        println!("seed {seed}: the second run differs: {line}");
        return ExitCode::FAILURE;
    }
    match report.result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("seed {seed}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Fails where one is not caught.
fn variants(args: &Args) -> ExitCode {
    let mut all = true;
    for variant in args.variant.iter().flatten() {
        let name = variant.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
        let last = args.seeds.unwrap_or(1000);
        let troubles = args.only.clone().unwrap_or_else(|| variant.troubles());
        match variant.catch(args.ops, last, &troubles) {
            Some(caught) => {
                let tried = caught.seed;
                println!(
                    "{name}: caught after {tried} worlds of {} calls, by seed {tried}: {}",
                    args.ops, caught.why
                )
            }
            None => {
                all = false;
                println!("{name}: NOT caught in {last} worlds of {} calls", args.ops);
            }
        }
    }
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many(first: u64, count: u64, args: &Args, plan: &Plan) -> ExitCode {
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        break;
                    }
                    let report = run(seed, plan.clone());
                    let other = args.twice.then(|| report.differs(&run(seed, plan.clone()))).flatten();
                    let Ok(mut sum) = sum.lock() else { break };
                    sum.worlds += 1;
                    if count >= 100 && sum.worlds.is_multiple_of(count / 20) {
                        eprintln!("{} worlds, {} failed", sum.worlds, sum.failed.len());
                    }
                    sum.starts += report.starts;
                    sum.digest ^= report.digest();
                    sum.coverage.add(&report.coverage);
                    let why = other.map(|l| format!("not the same twice: {l}")).or(report.result.err());
                    if let Some(why) = why {
                        println!("seed {seed}: {why}");
                        sum.failed.push((seed, why));
                        stop.store(!args.keep_going, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    sum.into_inner().map_or(ExitCode::FAILURE, |sum| tell(&sum, args))
}

/// What became of all worlds.
fn tell(sum: &Sum, args: &Args) -> ExitCode {
    println!("{}", sum.coverage);
    println!(
        "{} worlds of {} calls, {} starts of a gateway; their histories' digest is {:016x}",
        sum.worlds, args.ops, sum.starts, sum.digest
    );
    let taken = |step: &str| sum.coverage.0.get(step).map_or(0, |hits| hits.taken);
    println!(
        "{} segments of the data cache were evicted, {} of the journal let go, and the home's log begun anew {} times",
        taken("gateway: remove in data"),
        taken("gateway: remove in journal"),
        taken("agent: rename in cache")
    );
    let wanted = args.covered.unwrap_or(COVERED);
    let missed = sum.coverage.missed(wanted);
    match missed.is_empty() {
        true => println!("something ended at least {wanted} times at each kind of step"),
        false => {
            let missed: Vec<_> = missed.iter().map(|(step, ended)| format!("{step} ({ended})")).collect();
            println!("something ended less than {wanted} times at: {}", missed.join(", "));
        }
    }
    let names = |t: &Vec<Trouble>| {
        let names: Vec<_> =
            t.iter().filter_map(Trouble::to_possible_value).map(|v| v.get_name().to_owned()).collect();
        format!(" --only {}", names.join(","))
    };
    let again = args.only.as_ref().map(names).unwrap_or_default();
    let mode = if args.mode == Mode::Wb { String::new() } else { format!(" --mode {}", args.mode) };
    for (seed, _) in &sum.failed {
        println!("failed: cargo xtask sim --seed {seed} --ops {}{again}{mode}", args.ops);
    }
    println!("{} worlds failed", sum.failed.len());
    let is_covered = args.covered.is_none() || missed.is_empty();
    if sum.failed.is_empty() && is_covered { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
