//! The whole product against real programs: OpenSSH servers, the Linux kernel's NFS client, and a client in
//! user space where no kernel would do what is asked.
//!
//! # Layout
//! - [`scenarios`]: what is shown, a function each.
//! - [`isolate`]: namespaces, so that nothing stays behind.
//! - [`world`], [`accounts`], [`sshd`], [`server`], [`guest`], [`terminal`], [`proc`]: what a scenario is made of.
//! - [`fuse`]: mounts without root.
//! - [`kills`]: what is killed, and when.
//! - [`evil_sftp`]: a home that lies.
//! - [`log_writes`]: what a disk holds that lost its power.
//! - [`trees`]: source trees, and comparing what arrived with what was sent.

mod accounts;
pub mod evil_sftp;
pub mod fuse;
mod guest;
mod isolate;
mod kills;
mod log_writes;
mod proc;
mod scenarios;
mod server;
mod sshd;
mod terminal;
mod trees;
mod world;

pub use accounts::{ANN, Account, GATEWAY};
pub use isolate::start as start_isolated;
pub use proc::{Daemon, family, of_user, processor_time, wait_for, with_variable};
pub use server::{Counts, Server};
pub use sshd::Sshd;
pub use trees::{make_program, noise_file};
pub use world::{SERVER_IP, World};

use crate::{packages, run};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;
use scenarios::{ALL, Scenario};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments of `cargo xtask e2e`.
#[derive(clap::Args)]
pub struct Args {
    /// Only scenarios of these names, or, where none has such a name, whose name contains it
    filter: Vec<String>,
    /// Print the scenarios and what they show
    #[arg(long)]
    list: bool,
    /// The long ones as well
    #[arg(long)]
    all: bool,
    /// Keep the scenarios' folders, and print their output as it comes
    #[arg(long)]
    verbose: bool,
    /// Test this program instead of building it
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Arguments of the process inside the namespaces.
#[derive(clap::Args)]
pub struct InsideArgs {
    name: String,
    dir: PathBuf,
    binary: PathBuf,
}

/// The names of all scenarios.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|s| s.name)
}

/// Runs the chosen scenarios.
pub fn command(args: Args) -> Result<()> {
    let chosen = |s: &&Scenario| {
        let exact = |f: &&String| ALL.iter().any(|s| s.name == **f);
        let named = args.filter.iter().any(|f| s.name == *f || !exact(&f) && s.name.contains(f.as_str()));
        named || args.filter.is_empty() && (s.ci || args.all)
    };
    let scenarios: Vec<_> = ALL.iter().filter(chosen).collect();
    if args.list {
        for s in scenarios {
            println!("{:<14} {}{}", s.name, s.shows, if s.ci { "" } else { " (long: not in CI)" });
        }
        return Ok(());
    }
    ensure!(!scenarios.is_empty(), "no scenario has such a name; see --list");
    run_all(&scenarios, args.binary, args.verbose)
}

/// Runs what CI runs.
pub fn ci_part() -> Result<()> {
    let scenarios: Vec<_> = ALL.iter().filter(|s| s.ci).collect();
    run_all(&scenarios, None, false)
}

/// One by one, and then those that wait, all at once.
fn run_all(scenarios: &[&Scenario], binary: Option<PathBuf>, verbose: bool) -> Result<()> {
    if let Err(why) = able() {
        eprintln!("no end-to-end scenario can run here: {why:#}");
        let failed = if run::in_ci() { scenarios.len() } else { 0 };
        println!("e2e: 0 passed, {failed} failed");
        ensure!(failed == 0, "with CI=true what cannot run has failed");
        return Ok(());
    }
    let binary = match binary {
        Some(binary) => fs::canonicalize(binary)?,
        None => build()?,
    };
    let (waiting, busy): (Vec<&Scenario>, Vec<&Scenario>) = scenarios.iter().partition(|s| s.waits());
    let judge = |scenario: &&Scenario| is_passed(scenario, &binary, verbose);
    let passed_busy: Vec<bool> = busy.iter().map(judge).collect();
    let passed_waiting: Vec<bool> = std::thread::scope(|scope| {
        let runs: Vec<_> = waiting.iter().map(|scenario| scope.spawn(move || judge(scenario))).collect();
        runs.into_iter().map(|run| run.join().unwrap_or(false)).collect()
    });
    let all = busy.iter().zip(passed_busy).chain(waiting.iter().zip(passed_waiting));
    let failed: Vec<&str> = all.filter(|(_, passed)| !passed).map(|(scenario, _)| scenario.name).collect();
    println!("e2e: {} passed, {} failed", scenarios.len() - failed.len(), failed.len());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Runs one scenario and tells how it went.
fn is_passed(scenario: &Scenario, binary: &Path, verbose: bool) -> bool {
    let began = Instant::now();
    let done = run_one(scenario, binary, verbose);
    let took = began.elapsed().as_secs();
    match &done {
        Ok(()) => eprintln!("ok      {} ({took} s)", scenario.name),
        Err(e) => eprintln!("FAILED  {} ({took} s): {e:#}", scenario.name),
    }
    done.is_ok()
}

/// Whether this machine can run scenarios; if not, exactly why.
fn able() -> Result<()> {
    ensure!(run::is_root(), "they need root, for network and mount namespaces and the kernel client's guest");
    ensure!(Path::new("/dev/net/tun").exists(), "/dev/net/tun is missing (modprobe tun)");
    packages::ensure(packages::E2E)
}

/// Builds the program as users do.
pub fn build() -> Result<PathBuf> {
    run::run(&mut run::cargo(&["build", "--release", "--quiet", "--package", "trellis"]))?;
    Ok(run::target_dir()?.join("release/trellis"))
}

/// Runs one scenario in namespaces of its own, for at most its time.
fn run_one(scenario: &Scenario, binary: &Path, verbose: bool) -> Result<()> {
    let dir = tempfile::Builder::new().prefix(&format!("trellis-e2e-{}.", scenario.name)).tempdir()?;
    let path = dir.path().to_string_lossy().into_owned();
    let log = dir.path().join("log");
    let args = ["e2e-inside", scenario.name, &path, &binary.to_string_lossy()];
    let mut child = isolate::start(&args, (!verbose).then_some(&log))?;
    let limit = Duration::from_secs(scenario.minutes * 60);
    let ended = proc::wait_for("the scenario", limit, || child.try_wait().transpose());
    let mut doings = String::new();
    if ended.is_err() {
        doings =
            Pid::from_raw(child.id() as i32).map_or_else(String::new, |pid| proc::doings(&proc::family(pid)));
        // Ends process 1 of its namespace, and so everything in it.
        child.kill()?;
        child.wait()?;
    }
    if verbose {
        eprintln!("kept: {}", dir.keep().display());
    }
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(_) => bail!("see its output:\n{}", proc::tail(&log, 250)),
        Err(_) => bail!(
            "not done after {} minutes; its processes:\n{doings}--- its output:\n{}\n--- server.log\n{}",
            scenario.minutes,
            proc::tail(&log, 250),
            proc::tail(&log.with_file_name("server.log"), 60)
        ),
    }
}

/// The process inside the namespaces.
pub fn inside(args: InsideArgs) -> Result<()> {
    let scenario = ALL.iter().find(|s| s.name == args.name).context("no such scenario")?;
    let world = World::new(&args.dir, &args.binary)?;
    let done = (scenario.run)(&world);
    if done.is_err() {
        println!("{}", world.logs());
    }
    done
}
