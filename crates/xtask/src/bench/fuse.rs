//! Jobs of ordinary programs on FUSE mounts of one loopback home: Trellis beside sshfs and rclone.
//!
//! Each job runs on every mount in turn, `runs` times, on files of its own, so that "first" means that this mount has
//! not seen them, and "again" that it has, with the kernel's own caches dropped.

use super::report;
use crate::e2e::{ANN, Daemon, GATEWAY, Server, World, fuse, noise_file, processor_time, wait_for};
use crate::run;
use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
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

/// Something that a user does. `$M` is the mounted folder, `$R` the number of the run.
struct Job {
    name: &'static str,
    /// The kernel's caches are dropped before.
    cold_kernel: bool,
    script: &'static str,
}

const JOBS: &[Job] = &[
    Job { name: "read 128 MiB, first", cold_kernel: true, script: "cat $M/big$R >/dev/null" },
    Job { name: "read 128 MiB, again", cold_kernel: true, script: "cat $M/big$R >/dev/null" },
    Job {
        name: "write 128 MiB and fsync",
        cold_kernel: false,
        script: "dd if=$HOME/source of=$M/out-$WHO-$R bs=1M conv=fsync status=none",
    },
    Job {
        name: "make 500 files of 4 KiB",
        cold_kernel: false,
        script: "mkdir $M/small-$WHO-$R; exec python3 -c 'import os,sys\nfor i in range(500):\n  with \
                 open(sys.argv[1] + \"/%d\" % i, \"wb\") as f: f.write(b\"x\" * 4096)' $M/small-$WHO-$R",
    },
    Job {
        name: "find 2,000 files, first",
        cold_kernel: true,
        script: "test $(find $M/tree$R -name '*.c' | wc -l) = 2000",
    },
    Job {
        name: "find 2,000 files, again",
        cold_kernel: true,
        script: "test $(find $M/tree$R -name '*.c' | wc -l) = 2000",
    },
    Job { name: "git status, first", cold_kernel: true, script: "git -C $M/tree$R status --porcelain" },
    Job { name: "git status, again", cold_kernel: true, script: "git -C $M/tree$R status --porcelain" },
];

/// A mount under test.
struct Mounted {
    name: &'static str,
    /// The folder with the files.
    dir: PathBuf,
    pid: Pid,
    _keep: Option<Daemon>,
}

/// Seconds of the clock and of the mount's own processes.
type Times = (f64, f64);

/// Measures and answers the table.
pub fn measure(world: &World, runs: usize) -> Result<String> {
    fuse::allow()?;
    let lab = world.host("lab", "", None)?;
    let files = prepare(world, runs)?;
    let server = world.serve(&[])?;
    let mounts = [
        trellis(world, &server, &files)?,
        sshfs(world, "sshfs", &files, "reconnect")?,
        sshfs(
            world,
            "sshfs, tuned",
            &files,
            "reconnect,kernel_cache,auto_cache,dcache_timeout=60,max_conns=4,compression=no",
        )?,
        rclone(world, lab.addr.port(), &files)?,
    ];
    let mut figures: BTreeMap<(&str, &str), Vec<Times>> = BTreeMap::new();
    for run in 0..runs {
        for job in JOBS {
            for mount in &mounts {
                let times = once(world, job, mount, run)?;
                eprintln!("{} {}: {:.2} s @ {:.2} s", job.name, mount.name, times.0, times.1);
                figures.entry((job.name, mount.name)).or_default().push(times);
            }
            // What the job left to be sent must not be in the next one's way.
            server.sync()?;
        }
    }
    table(&figures, &mounts, runs)
}

fn prepare(world: &World, runs: usize) -> Result<PathBuf> {
    let dir = world.home_dir(ANN, "bench")?;
    for run in 0..runs {
        noise_file(&dir.join(format!("big{run}")), run as u64 + 1, FILE)?;
        let tree = dir.join(format!("tree{run}"));
        for d in 0..TREE.0 {
            let sub = tree.join(format!("d{d}"));
            fs::create_dir_all(&sub)?;
            for f in 0..TREE.1 {
                fs::write(sub.join(format!("f{f}.c")), format!("int f{d}_{f}(void) {{ return {run}; }}\n"))?;
            }
        }
        let git = "git init -q .; git add .; git -c user.name=a -c user.email=a@b commit -qm one";
        run::output(Command::new("bash").args(["-euc", git]).current_dir(&tree).env("HOME", &dir))?;
    }
    run::output(Command::new("chown").args(["-R", &format!("{0}:{0}", ANN.uid)]).arg(&dir))?;
    let source = world.home(GATEWAY).join("source");
    noise_file(&source, 99, FILE)?;
    GATEWAY.own(&source)?;
    fs::write(world.home(GATEWAY).join(".gitconfig"), "[safe]\n  directory = *\n")?;
    Ok(dir)
}

fn trellis(world: &World, server: &Server, files: &Path) -> Result<Mounted> {
    let dir = fuse::mount(world, server, "with-trellis")?;
    let dir = dir.join(format!("ann@lab{}", files.display()));
    let pid = Pid::from_raw(server.pid()).context("the server has no process")?;
    Ok(Mounted { name: "Trellis", dir, pid, _keep: None })
}

fn empty(world: &World, name: &str) -> Result<PathBuf> {
    let dir = world.home(GATEWAY).join(name.replace([',', ' '], "-"));
    fs::create_dir(&dir)?;
    GATEWAY.own(&dir)?;
    Ok(dir)
}

fn peer(world: &World, name: &'static str, dir: PathBuf, mut cmd: Command) -> Result<Mounted> {
    cmd.uid(GATEWAY.uid)
        .gid(GATEWAY.uid)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", world.home(GATEWAY));
    let daemon = Daemon::start(name, &mut cmd, &world.dir.join(format!("{name}.log")))?;
    let mounted = || {
        let table = fs::read_to_string("/proc/self/mounts").ok()?;
        table.contains(&format!(" {} fuse.", dir.display())).then_some(())
    };
    wait_for(name, Duration::from_secs(30), mounted).with_context(|| daemon.tail())?;
    Ok(Mounted { name, dir, pid: daemon.pid(), _keep: Some(daemon) })
}

fn sshfs(world: &World, name: &'static str, files: &Path, options: &str) -> Result<Mounted> {
    let dir = empty(world, name)?;
    let mut cmd = Command::new("sshfs");
    cmd.arg("-f").arg("-F").arg(world.ssh_config()).args(["-o", options]);
    cmd.arg(format!("ann@lab:{}", files.display())).arg(&dir);
    peer(world, name, dir, cmd)
}

fn rclone(world: &World, port: u16, files: &Path) -> Result<Mounted> {
    let dir = empty(world, "rclone")?;
    let key = world.home(GATEWAY).join("key");
    let remote = format!(
        ":sftp,host=127.0.0.1,port={port},user={},key_file=\"{}\":{}",
        ANN.name,
        key.display(),
        files.display()
    );
    let mut cmd = Command::new("rclone");
    cmd.args(["mount", "--vfs-cache-mode", "full", "--config", "/dev/null"]).arg(remote).arg(&dir);
    peer(world, "rclone", dir, cmd)
}

/// Runs a job once and measures it.
fn once(world: &World, job: &Job, mount: &Mounted, run: usize) -> Result<Times> {
    if job.cold_kernel {
        fs::write("/proc/sys/vm/drop_caches", "3")?;
    }
    let mut cmd = Command::new("bash");
    cmd.args(["-euc", job.script]).uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir("/").env_clear();
    cmd.env("PATH", "/usr/bin:/bin").env("HOME", world.home(GATEWAY)).env("M", &mount.dir);
    cmd.env("R", run.to_string()).env("WHO", mount.name.replace([',', ' '], "-"));
    let (cpu, began) = (processor_time(mount.pid)?, Instant::now());
    let output = cmd.output()?;
    let took = began.elapsed();
    let spent = processor_time(mount.pid)?.saturating_sub(cpu);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} on {}: {} {said}", job.name, mount.name, output.status);
    Ok((took.as_secs_f64(), spent.as_secs_f64()))
}

fn table(figures: &BTreeMap<(&str, &str), Vec<Times>>, mounts: &[Mounted], runs: usize) -> Result<String> {
    let version = |program: &str, flag: &str| -> Result<String> {
        let said = run::output(Command::new(program).arg(flag))?;
        // sshfs names its helper first.
        let named = said.lines().find(|l| l.to_lowercase().starts_with(program));
        Ok(named.unwrap_or(program).trim().to_owned())
    };
    let mut out = format!(
        "Made by `cargo xtask bench fuse --runs {runs}` on {}, {}, {}.\nMedians of {runs} interleaved runs: seconds, and \
         CPU seconds of the mount's process and what it started.\n\n",
        report::machine()?,
        version("sshfs", "--version")?,
        version("rclone", "version")?,
    );
    let names: Vec<_> = mounts.iter().map(|m| m.name).collect();
    out += &format!(
        "| job | {} | Trellis ÷ best other |\n|---|{}---|\n",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for job in JOBS {
        let median = |name: &&str| -> Times {
            let all = &figures[&(job.name, *name)];
            let (mut took, mut spent): (Vec<_>, Vec<_>) = all.iter().copied().unzip();
            took.sort_by(f64::total_cmp);
            spent.sort_by(f64::total_cmp);
            (took[took.len() / 2], spent[spent.len() / 2])
        };
        let cells: Vec<Times> = names.iter().map(median).collect();
        let best = cells[1..].iter().map(|c| c.0).fold(f64::INFINITY, f64::min);
        let shown: Vec<_> = cells.iter().map(|(took, spent)| format!("{took:.2} @ {spent:.2}")).collect();
        out += &format!("| {} | {} | {:.2} |\n", job.name, shown.join(" | "), cells[0].0 / best);
    }
    Ok(out)
}
