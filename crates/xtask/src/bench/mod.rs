//! Rates and server CPU per call, beside another server, from one run.
//!
//! `cargo xtask bench nfs` runs Trellis, on a home behind a loopback sshd, and Debian's nfs-ganesha in one
//! network namespace, lets the same generator ask both in turn, and writes medians into docs/BENCHMARKS.md.
//!
//! `cargo xtask bench cost` compares what is durable with what the disk does alone.
//!
//! `cargo xtask bench fuse` does the same with jobs of ordinary programs on FUSE mounts, beside sshfs and rclone, and
//! `cargo xtask bench wan` over a long wire, beside tools that keep no mount as well. That one judges each
//! figure that has a target.
//!
//! # Layout
//! - [`generator`]: keeps a number of calls in flight on some connections and counts answers.
//! - [`workload`]: which calls, and the files that they need.
//! - [`servers`]: the servers and their CPU time.
//! - [`report`]: medians and the table.
//! - [`cost`]: what durability costs.
//! - [`mounts`]: mounts of Trellis and others. [`fuse`]: jobs on them. [`wan`]: work over a long wire.

mod cost;
mod fuse;
mod generator;
mod mounts;
mod report;
mod servers;
mod wan;
mod workload;

use crate::e2e::{self, World};
use crate::{packages, run};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
pub use wan::calls::{CallsArgs, command as calls};
use workload::Workload;

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Args {
    /// What to measure
    #[arg(value_enum, default_value = "nfs")]
    what: What,
    /// Runs of each figure, of which the median counts [default: 5, of `wan` 1]
    #[arg(long)]
    runs: Option<usize>,
    /// Seconds of each run
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Measure only calls or jobs whose line in the table contains this, and print the table only
    #[arg(long, default_value = "")]
    only: String,
    /// Print the table only
    #[arg(long)]
    dry: bool,
    /// Measure this program instead of building it
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    #[command(flatten)]
    wan: wan::Options,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum What {
    /// NFS calls, beside nfs-ganesha.
    Nfs,
    /// Durable small files and a large one, beside nfs-ganesha and the disk alone.
    Cost,
    /// Jobs on FUSE mounts, beside sshfs and rclone.
    Fuse,
    /// Work at a home far away, beside sshfs, rclone and tools that keep no mount.
    Wan,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Nfs => "nfs",
            What::Cost => "cost",
            What::Fuse => "fuse",
            What::Wan => "wan",
        }
    }
}

/// Arguments of the process inside the namespaces.
#[derive(clap::Args)]
pub struct InsideArgs {
    what: What,
    dir: PathBuf,
    binary: PathBuf,
    runs: usize,
    seconds: u64,
    only: String,
    #[command(flatten)]
    wan: wan::Options,
}

/// Builds, measures in namespaces, and writes the table.
pub fn command(args: Args) -> Result<()> {
    ensure!(run::is_root(), "needs root, for namespaces and for nfs-ganesha");
    packages::ensure(packages::E2E)?;
    packages::ensure(match args.what {
        What::Nfs | What::Cost => packages::BENCH,
        What::Fuse | What::Wan => packages::BENCH_FUSE,
    })?;
    if cfg!(debug_assertions) && !matches!(args.what, What::Wan) {
        // The generator must not be the slower side; a wire is slower than any.
        let mut again = run::cargo(&["run", "--release", "--quiet", "--package", "xtask", "--"]);
        return run::run(again.args(std::env::args_os().skip(1)));
    }
    let docs = run::tree().join("docs");
    let (document, kept) = (docs.join("BENCHMARKS.md"), !args.dry && args.only.is_empty());
    let section = match args.what {
        What::Wan => args.wan.section(),
        what => what.name().to_owned(),
    };
    if kept {
        report::place(&fs::read_to_string(&document)?, &section)?;
    }
    let binary = match args.binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => e2e::build()?,
    };
    let dir = tempfile::Builder::new().prefix("trellis-bench.").tempdir()?;
    let (path, binary) = (dir.path().to_string_lossy(), binary.to_string_lossy());
    let runs = args.runs.unwrap_or(if let What::Wan = args.what { 1 } else { 5 });
    let judge = args.wan.judge;
    let (runs, seconds, wan) = (runs.to_string(), args.seconds.to_string(), args.wan.arguments());
    let mut words = vec!["bench-inside", args.what.name(), &path, &binary, &runs, &seconds, &args.only];
    words.extend(wan.iter().map(String::as_str));
    let mut child = e2e::start_isolated(&words, None)?;
    if !child.wait()?.success() {
        bail!("the measurement failed; see above");
    }
    let table = fs::read_to_string(dir.path().join("table.md"))?;
    println!("{table}");
    if kept {
        report::splice(&document, &section, &table)?;
    }
    if let What::Wan = args.what {
        if kept {
            fs::copy(dir.path().join(wan::PLOT), docs.join(format!("{section}.svg")))?;
        }
        let well = wan::tell(dir.path())?;
        ensure!(well || !judge, "targets were missed, or others quicker: see above");
    }
    Ok(())
}

/// The process inside the namespaces.
pub fn inside(args: InsideArgs) -> Result<()> {
    let world = World::new(&args.dir, &args.binary)?;
    let table = match args.what {
        What::Nfs => {
            let workloads: Vec<_> = workload::ALL.iter().filter(|w| w.name.contains(&args.only)).collect();
            measure(&world, &workloads, args.runs, Duration::from_secs(args.seconds))
        }
        What::Cost => cost::measure(&world, args.runs, Duration::from_secs(args.seconds), &args.only),
        What::Fuse => fuse::measure(&world, args.runs, &args.only),
        What::Wan => wan::measure(&world, args.runs, &args.only, &args.wan),
    };
    let table = table.inspect_err(|_| println!("{}", world.logs()))?;
    fs::write(args.dir.join("table.md"), table).context("table.md")
}

/// Every server in turn, `runs` times, so that a change of the machine's load meets all of them.
fn measure(world: &World, workloads: &[&Workload], runs: usize, time: Duration) -> Result<String> {
    let servers = servers::start_all(world)?;
    let mut report = report::Report::default();
    for server in servers.iter().filter(|s| !s.for_changes_only) {
        let before = server.memory()?;
        let entries = workload::walk_once(server)?;
        let per_entry = server.memory()?.saturating_sub(before) / entries;
        eprintln!("memory {}: {per_entry} bytes for each of {entries} entries", server.name);
        report.memory.push((server.name, per_entry));
    }
    for workload in workloads {
        let ready: Vec<_> =
            servers.iter().map(|s| workload.prepare(s).map(|calls| (s, calls))).collect::<Result<_>>()?;
        for run in 0..runs {
            for (server, calls) in &ready {
                if workload.skips(server) {
                    continue;
                }
                let figure = workload.measure(server, calls, run, time)?;
                eprintln!("{} {}: {figure}", workload.name, server.name);
                report.add(workload.name, server.name, figure);
            }
        }
    }
    report.table(workloads, &servers, runs, time)
}
