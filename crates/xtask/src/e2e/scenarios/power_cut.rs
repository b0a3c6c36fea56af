//! The power of the disk that holds the gateway's state and a home is cut, anywhere in what was written to it while
//! programs worked through a kernel's NFS client: all that was acknowledged before arrives at the home, nothing else does,
//! and nothing is a conflict.

use crate::e2e::log_writes::Log;
use crate::e2e::world::World;
use crate::kernel_client;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Bytes of the disk, of which few are ever written.
const DISK: u64 = 512 << 20;
/// Bytes of the log's disk.
const LOGGED: u64 = 4 << 30;
/// Disks that one guest looks at.
const TOGETHER: usize = 8;

/// What ends the look at a disk that does not hold what was promised.
const BROKEN: i32 = 3;

/// A sample.
pub fn run(world: &World) -> Result<()> {
    let broken = cut_power(world, 30, Some(8), "barrier=1")?;
    ensure!(!broken, "a promise is broken");
    Ok(())
}

/// Many.
pub fn run_long(world: &World) -> Result<()> {
    let broken = cut_power(world, 300, Some(400), "barrier=1")?;
    ensure!(!broken, "a promise is broken");
    Ok(())
}

/// Behind each single write of less work.
pub fn run_every(world: &World) -> Result<()> {
    let broken = cut_power(world, 9, None, "barrier=1")?;
    ensure!(!broken, "a promise is broken");
    Ok(())
}

/// The same look finds what is lost where the file system of the state does not flush.
pub fn run_unflushed(world: &World) -> Result<()> {
    ensure!(cut_power(world, 30, Some(16), "barrier=0")?, "what was never flushed is not missed");
    Ok(())
}

/// So many steps of each worker, and so many cuts or one behind each write; the state is mounted with `options`. Answers
/// whether a promise is broken.
fn cut_power(world: &World, steps: usize, cuts: Option<usize>, options: &str) -> Result<bool> {
    fs::write(world.dir.join("machine.py"), include_str!("machine.py"))?;
    fs::write(world.dir.join("power_cut.py"), include_str!("power_cut.py"))?;
    // It runs in the guest.
    drop(world.host("lab", "", None)?);
    let (disk, log) = (world.dir.join("disk"), world.dir.join("log-of-writes"));
    File::create(&disk)?.set_len(DISK)?;
    File::create(&log)?.set_len(LOGGED)?;
    let recorded = guest(world, &[&disk, &log], &["record", &steps.to_string(), options])?;
    ensure!(recorded.success(), "the work failed ({recorded})");
    let log = Log::open(&log)?;
    let first = log.marks(log.len()).find(|(_, m)| *m == "ready").context("the work did not begin")?.0;
    let last = log.marks(log.len()).rfind(|(_, m)| *m == "end").context("the work did not end")?.0;
    println!("{} writes were logged, {} of them during the work", log.len(), last - first);
    let cuts = cuts.unwrap_or(last - first);
    ensure!((1..=last - first).contains(&cuts), "too few writes");
    let at: Vec<usize> =
        (0..cuts).map(|n| first + ((last - first) * (2 * n + 1)).div_ceil(2 * cuts)).collect();
    let path = world.dir.join("image");
    let image = File::create(&path)?;
    image.set_len(DISK)?;
    let mut done = 0;
    for (n, cuts) in at.chunks(TOGETHER).enumerate() {
        let mut disks = Vec::new();
        for at in cuts {
            log.replay(&image, done..*at)?;
            done = *at;
            disks.push(copy(&path, world.dir.join(format!("disk-{at}")))?);
        }
        if !hold(world, &disks, cuts.iter().map(|at| acknowledged(&log, *at)))? {
            println!("cuts behind so many writes: {cuts:?}");
            return Ok(true);
        }
        disks.iter().try_for_each(fs::remove_file)?;
        println!("{} of {} cuts held", n * TOGETHER + cuts.len(), at.len());
    }
    Ok(false)
}

/// Whether each disk holds what was acknowledged.
fn hold(world: &World, disks: &[PathBuf], acknowledged: impl Iterator<Item = String>) -> Result<bool> {
    let disks: Vec<&Path> = disks.iter().map(PathBuf::as_path).collect();
    let args: Vec<String> = ["check".to_owned()].into_iter().chain(acknowledged).collect();
    let looked = guest(world, &disks, &args.iter().map(String::as_str).collect::<Vec<_>>())?;
    ensure!(looked.success() || looked.code() == Some(BROKEN), "the look failed ({looked})");
    Ok(looked.success())
}

/// By worker, how many of its steps were acknowledged before this entry.
fn acknowledged(log: &Log, at: usize) -> String {
    let last: BTreeMap<&str, &str> = log.marks(at).filter_map(|(_, mark)| mark.split_once('.')).collect();
    last.iter().map(|(worker, steps)| format!("{worker}.{steps}")).collect::<Vec<_>>().join(",")
}

fn copy(from: &Path, to: PathBuf) -> Result<PathBuf> {
    run::output(Command::new("cp").arg("--sparse=always").arg(from).arg(&to))?;
    Ok(to)
}

/// Runs the work, or the look, on a machine with these disks.
fn guest(world: &World, disks: &[&Path], args: &[&str]) -> Result<ExitStatus> {
    let logs = world.dir.join("logs");
    fs::create_dir_all(&logs)?;
    let mut cmd = Command::new(kernel_client::script());
    cmd.args(["run", "--timeout", "900", "--mem", "2G"])
        .args(disks.iter().flat_map(|d| [Path::new("--disk"), d]));
    cmd.arg("--dir-rw").arg(format!("{}:/logs", logs.display()));
    cmd.args(["--", "python3"]).arg(world.dir.join("power_cut.py")).arg(args[0]).arg(&world.dir);
    cmd.args(&args[1..]).current_dir("/").env("TMPDIR", &world.dir);
    Ok(cmd.status()?)
}
