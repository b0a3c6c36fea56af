//! Jobs of ordinary programs on FUSE mounts of one loopback home: Trellis beside sshfs and rclone.
//!
//! Each job runs on every mount in turn, `runs` times. Each mount has files of its own, new ones in each run, so that
//! "first" means that this mount has not seen them, and "again" that it has, with the kernel's own caches dropped. In
//! particular no two mounts share a git index: it holds the inode numbers of the mount that wrote it last.
//!
//! The home is on this machine, whose kernel forgets the home's files as well. A home is another machine in life, and
//! keeps what it has in memory; so it reads its files again before the clock runs.

use super::mounts::{self, Mounted, RCLONE, Remote, SSHFS, SSHFS_TUNED};
use super::report::{self, median};
use crate::e2e::{ANN, GATEWAY, World, fuse, noise_file, of_user, processor_time};
use crate::run;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes of the file that is read, and of the one that is written.
const FILE: u64 = 128 << 20;
/// Directories of the tree that is searched, and files in each.
const TREE: (usize, usize) = (40, 50);

/// Something that a user does. `$M` is the mounted folder, `$W` what is this mount's own in this run.
struct Job {
    name: &'static str,
    /// The kernel's caches are dropped before.
    cold_kernel: bool,
    /// What was written is durable somewhere when the job ends.
    fsync: bool,
    /// What the jobs before it left in the caches of the mounts is old by then.
    rest: Duration,
    script: &'static str,
}

/// Longer than Trellis believes what it knows of a home without asking.
const OLD: Duration = Duration::from_secs(6);

const JOBS: &[Job] = &[
    Job {
        name: "read 128 MiB, first",
        cold_kernel: true,
        fsync: false,
        rest: Duration::ZERO,
        script: "cat $M/big-$W >/dev/null",
    },
    Job {
        name: "read 128 MiB, again",
        cold_kernel: true,
        fsync: false,
        rest: OLD,
        script: "cat $M/big-$W >/dev/null",
    },
    Job {
        name: "write 128 MiB and fsync",
        cold_kernel: false,
        fsync: true,
        rest: Duration::ZERO,
        script: "dd if=$HOME/source of=$M/out-$W bs=1M conv=fsync status=none",
    },
    Job {
        name: "make 500 files of 4 KiB",
        cold_kernel: false,
        fsync: false,
        rest: Duration::ZERO,
        script: "mkdir $M/small-$W; exec python3 -c 'import os,sys\nfor i in range(500):\n  with \
                 open(sys.argv[1] + \"/%d\" % i, \"wb\") as f: f.write(b\"x\" * 4096)' $M/small-$W",
    },
    Job {
        name: "make 500 files, fsync each",
        cold_kernel: false,
        fsync: true,
        rest: Duration::ZERO,
        script: "mkdir $M/synced-$W; exec python3 -c 'import os,sys\nfor i in range(500):\n  with \
                 open(sys.argv[1] + \"/%d\" % i, \"wb\") as f: f.write(b\"x\" * 4096); f.flush(); os.fsync(f)' \
                 $M/synced-$W",
    },
    Job {
        name: "find 2,000 files, first",
        cold_kernel: true,
        fsync: false,
        rest: Duration::ZERO,
        script: "test $(find $M/tree-$W -name '*.c' | wc -l) = 2000",
    },
    Job {
        name: "find 2,000 files, again",
        cold_kernel: true,
        fsync: false,
        rest: OLD,
        script: "test $(find $M/tree-$W -name '*.c' | wc -l) = 2000",
    },
    Job {
        name: "git status, first",
        cold_kernel: true,
        fsync: false,
        rest: Duration::ZERO,
        script: "git -C $M/tree-$W status --porcelain",
    },
    Job {
        name: "git status, again",
        cold_kernel: true,
        fsync: false,
        rest: OLD,
        script: "git -C $M/tree-$W status --porcelain",
    },
];

const TRELLIS: &str = "Trellis";
/// As late to see what changes at the home as a tuned sshfs.
const TRELLIS_TUNED: &str = "Trellis, 60 s";

/// Seconds of the clock, of the mount's own processes, and of the account's at the home.
type Times = [f64; 3];

/// Measures and answers the table.
pub fn measure(world: &World, runs: usize, only: &str) -> Result<String> {
    fuse::allow()?;
    let lab = world.host("lab", "", None)?;
    let files = prepare(world, runs)?;
    let remote = Remote { account: ANN, port: lab.addr.port(), dir: &files };
    let server = world.serve(&[])?;
    let patient = world.serve_as("patient", &["--staleness", "60s"])?;
    let jobs: Vec<_> = JOBS.iter().filter(|job| job.name.contains(only)).collect();
    let mounts = [
        mounts::trellis(world, TRELLIS, &server, &remote)?,
        mounts::trellis(world, TRELLIS_TUNED, &patient, &remote)?,
        mounts::sshfs(world, SSHFS, &remote)?,
        mounts::sshfs(world, SSHFS_TUNED, &remote)?,
        mounts::rclone(world, &remote)?,
    ];
    let mut figures: BTreeMap<(&str, &str), Vec<Times>> = BTreeMap::new();
    for run in 0..runs {
        for job in &jobs {
            std::thread::sleep(job.rest);
            let before = server.round_trips("ann@lab").unwrap_or(0);
            // Nobody is always the first.
            for mount in mounts.iter().cycle().skip(run).take(mounts.len()) {
                let times = once(world, job, mount, run)?;
                let [took, here, there] = times;
                eprintln!("{} {}: {took:.2} s @ {here:.2} + {there:.2} s", job.name, mount.name);
                figures.entry((job.name, mount.name)).or_default().push(times);
            }
            // What the job left to be sent must not be in the next one's way.
            server.sync()?;
            patient.sync()?;
            eprintln!("{} took Trellis {} round trips", job.name, server.round_trips("ann@lab")? - before);
        }
    }
    table(&figures, &jobs, &mounts, runs)
}

fn prepare(world: &World, runs: usize) -> Result<PathBuf> {
    let dir = world.home_dir(ANN, "bench")?;
    for run in 0..runs {
        for mount in [TRELLIS, TRELLIS_TUNED, SSHFS, SSHFS_TUNED, RCLONE] {
            let own = own(mount, run);
            noise_file(&dir.join(format!("big-{own}")), run as u64 + 1, FILE)?;
            make_tree(&dir.join(format!("tree-{own}")), run)?;
        }
    }
    run::output(Command::new("chown").args(["-R", &format!("{0}:{0}", ANN.uid)]).arg(&dir))?;
    let source = world.home(GATEWAY).join("source");
    noise_file(&source, 99, FILE)?;
    GATEWAY.own(&source)?;
    fs::write(world.home(GATEWAY).join(".gitconfig"), "[safe]\n  directory = *\n")?;
    Ok(dir)
}

/// A work tree of git.
fn make_tree(tree: &Path, run: usize) -> Result<()> {
    for d in 0..TREE.0 {
        let sub = tree.join(format!("d{d}"));
        fs::create_dir_all(&sub)?;
        for f in 0..TREE.1 {
            fs::write(sub.join(format!("f{f}.c")), format!("int f{d}_{f}(void) {{ return {run}; }}\n"))?;
        }
    }
    let git = "git init -q .; git add .; git -c user.name=a -c user.email=a@b commit -qm one";
    run::output(Command::new("bash").args(["-euc", git]).current_dir(tree).env("HOME", tree)).map(drop)
}

/// What names the files of a mount in a run.
fn own(mount: &str, run: usize) -> String {
    format!("{}-{run}", mount.replace([',', ' '], "-"))
}

/// Runs a job once and measures it.
fn once(world: &World, job: &Job, mount: &Mounted, run: usize) -> Result<Times> {
    if job.cold_kernel {
        fs::write("/proc/sys/vm/drop_caches", "3")?;
        let own = own(mount.name, run);
        let files = ["big", "tree"].map(|kind| format!("{kind}-{own}"));
        let read = "find \"$@\" -type f -exec cat {} + >/dev/null";
        let mut cmd = Command::new("sh");
        run::output(cmd.args(["-euc", read, "-"]).args(files).current_dir(world.home_dir(ANN, "bench")?))?;
    }
    let mut cmd = Command::new("bash");
    cmd.args(["-euc", job.script]).uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir("/").env_clear();
    cmd.env("PATH", "/usr/bin:/bin").env("HOME", world.home(GATEWAY)).env("M", &mount.dir);
    cmd.env("W", own(mount.name, run));
    let (here, there) = (mount.processes(), of_user(ANN.uid, |_| true));
    let both = || Ok::<_, anyhow::Error>([processor_time(&here)?, processor_time(&there)?]);
    let (before, began) = (both()?, Instant::now());
    let output = cmd.output()?;
    let took = began.elapsed();
    let after = both()?;
    let spent = |at: usize| after[at].saturating_sub(before[at]).as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} on {}: {} {said}", job.name, mount.name, output.status);
    Ok([took.as_secs_f64(), spent(0), spent(1)])
}

fn table(
    figures: &BTreeMap<(&str, &str), Vec<Times>>,
    jobs: &[&Job],
    mounts: &[Mounted],
    runs: usize,
) -> Result<String> {
    let mut out = format!(
        "Made by `cargo xtask bench fuse --runs {runs}` on {}, {}, {}.\nMedians of {runs} interleaved runs: seconds \
         @ CPU seconds of the mount's process and what it started + of the account's processes at the home.\nRatios \
         are of the seconds in the same run to those of the other with the least median: median (least–greatest).\n\n",
        report::machine()?,
        mounts::version("sshfs", "--version")?,
        mounts::version("rclone", "version")?,
    );
    let names: Vec<_> = mounts.iter().map(|m| m.name).collect();
    out += &format!(
        "| job | {} | {TRELLIS} ÷ best other | {TRELLIS_TUNED} ÷ best other |\n|---|{}---|---|\n",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for job in jobs {
        out += &line(figures, job, mounts);
    }
    out += "\n† Does not count as other: rclone answers fsync(2) at once, and syncs nothing.\n";
    Ok(out)
}

/// The row of a job.
fn line(figures: &BTreeMap<(&str, &str), Vec<Times>>, job: &Job, mounts: &[Mounted]) -> String {
    let all = |mount: &Mounted| &figures[&(job.name, mount.name)];
    let part = |mount: &Mounted, at: usize| all(mount).iter().map(|t| t[at]).collect::<Vec<_>>();
    let took = |mount: &Mounted| part(mount, 0);
    let promises = |mount: &Mounted| !job.fsync || mount.name != RCLONE;
    let others = mounts.iter().filter(|m| !m.name.starts_with(TRELLIS) && promises(m));
    let best = others.min_by(|a, b| median(took(a)).total_cmp(&median(took(b))));
    let cells = mounts.iter().map(|mount| {
        let less = if promises(mount) { "" } else { "†" };
        let [took, here, there] = [0, 1, 2].map(|at| median(part(mount, at)));
        format!("{took:.2}{less} @ {here:.2} + {there:.2}")
    });
    // Run by run, so that the load of the machine meets both sides.
    let ratio = |ours: &Mounted| {
        let mut ratios: Vec<f64> = match best {
            Some(best) => took(ours).iter().zip(took(best)).map(|(ours, other)| ours / other).collect(),
            None => return "–".to_owned(),
        };
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        format!("{:.2} ({least:.2}–{most:.2})", median(ratios))
    };
    let ours = mounts.iter().filter(|m| m.name.starts_with(TRELLIS));
    let cells: Vec<_> = cells.chain(ours.map(ratio)).collect();
    format!("| {} | {} |\n", job.name, cells.join(" | "))
}
