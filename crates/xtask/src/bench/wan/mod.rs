//! Work of ordinary programs at a home behind a long wire: on a FUSE mount of Trellis, on those of others, and by tools
//! that keep no mount.
//!
//! Each piece of work is done on a new mount of a program that knows nothing yet, while no other one is connected, so
//! that what passes the wire is its own. The home is this machine, and has its files in memory.
//!
//! # Layout
//! - [`rows`]: what is done. [`files`]: on which files. [`calls`]: a program that does some of it.
//! - [`raw`]: what one TCP stream moves. [`processors`]: how busy the machine is meanwhile.
//! - [`targets`]: what Trellis is to reach, and whether it does.
//! - [`found`]: figures. [`table`], [`plot`]: how they are shown.

pub mod calls;
mod files;
mod found;
mod plot;
mod processors;
mod raw;
mod rows;
mod table;
mod targets;

use super::mounts::{self, Mounted, RCLONE, Remote, SSHFS, SSHFS_TUNED};
use crate::e2e::{Counts, GATEWAY, Server, Sshd, World, fuse, wait_for};
use crate::run;
use crate::wan_link::link::{self, Way};
use crate::wan_link::relay::Relay;
use anyhow::{Context, Result, bail, ensure};
use found::{AT_HOME, Cost, Figure, Found, NEAR, RAW, TRELLIS};
use processors::Processors;
use rows::{Before, Step, Work};
use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What only `bench wan` is asked.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Of `bench wan`")]
pub struct Options {
    /// Round trip of the wire
    #[arg(long, value_name = "MS", default_value_t = 60.0)]
    rtt: f64,
    /// What it carries in each direction
    #[arg(long, value_name = "MBIT", default_value_t = 100.0)]
    mbit: f64,
    /// Length of the large file
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    mib: u64,
    /// Entries of the large tree, in thousands; 50 to a directory
    #[arg(long, value_name = "THOUSANDS", default_value_t = 11)]
    entries: usize,
    /// What takes longer is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    cap: u64,
    /// Trellis only, and what its targets are compared with
    #[arg(long)]
    alone: bool,
    /// At an account that allows nothing but SFTP; what makes sense there
    #[arg(long)]
    sftp: bool,
    /// Fail when all is told, if a target was missed, another mount was quicker, or a tool more than 1.5 times quicker
    #[arg(long)]
    pub judge: bool,
}

impl Options {
    /// What is measured, as arguments.
    pub fn arguments(&self) -> Vec<String> {
        let Self { rtt, mbit, mib, entries, cap, alone, sftp, judge: _ } = self;
        let numbers = format!("--rtt {rtt} --mbit {mbit} --mib {mib} --entries {entries} --cap {cap}");
        let words = numbers.split(' ').chain(alone.then_some("--alone")).chain(sftp.then_some("--sftp"));
        words.map(str::to_owned).collect()
    }

    /// The name of what is told of this wire: of the section of the document, and of the plot beside it.
    pub fn section(&self) -> String {
        format!("wan-{}{}", self.mbit, if self.sftp { "-sftp" } else { "" })
    }

    /// What the wire carries in each direction.
    fn bytes_per_second(&self) -> f64 {
        self.mbit * 125e3
    }

    /// How many names can be asked for, each within 3.5 round trips, until the large file has passed, but for its first
    /// second. Of fewer than 20 no 95th percentile can be told.
    fn asked(&self) -> usize {
        let bulk = (self.mib << 20) as f64 / self.bytes_per_second();
        (((bulk - 1.0) / (3.5 * self.rtt / 1e3)) as usize).clamp(20, files::ASKED)
    }

    /// Whether a tool finds at the home what it needs.
    pub fn allows(&self, tool: &str) -> bool {
        !self.sftp || matches!(tool, "scp" | "sftp")
    }

    fn wire(&self) -> link::Options {
        let rate = self.bytes_per_second() as u64;
        let delay = Duration::from_secs_f64(self.rtt / 2e3);
        link::Options { delay, rate: [rate, rate], ..link::Options::default() }
    }
}

/// What had passed before a step.
struct Passed {
    /// Bytes, by [`Way`].
    wire: [u64; 2],
    /// What a server has counted.
    counts: Option<Counts>,
}

struct Bench<'a> {
    world: &'a World,
    options: &'a Options,
    wire: Relay,
    _home: Sshd,
    /// Of ssh, for tools.
    config: PathBuf,
    /// At the home.
    files: PathBuf,
    /// Here: what is written, and what was read.
    local: PathBuf,
    out: PathBuf,
    /// What was made at the home before.
    aside: PathBuf,
    scratch: PathBuf,
    /// A copy of this program that the account can run.
    program: PathBuf,
    entries: usize,
}

/// The file of the plot in the world's folder.
pub const PLOT: &str = "plot.svg";
/// The same for lines about targets: those of [`targets::Judged`].
const OTHERS: &str = "others.txt";
const MISSED: &str = "missed.txt";

/// Prints what was judged in a world whose folder this is, and answers whether all is as it is to be.
pub fn tell(dir: &Path) -> Result<bool> {
    let [others, missed] = [OTHERS, MISSED].map(|name| fs::read_to_string(dir.join(name)));
    let (others, missed) = (others?, missed?);
    print!("{others}{missed}");
    Ok(missed.is_empty())
}

/// Measures, writes [`PLOT`] and what [`tell`] prints into the world's folder, and answers the table.
pub fn measure(world: &World, runs: usize, only: &str, options: &Options) -> Result<String> {
    fuse::allow()?;
    let bench = Bench::new(world, options)?;
    let mut found = Vec::new();
    for run in 0..runs {
        let asked = |w: &&Work| w.steps.iter().any(|s| s.name.contains(only));
        for work in rows::ALL.iter().filter(asked).filter(|w| w.by_sftp || !options.sftp) {
            // Nobody is always the first.
            let names = [TRELLIS, SSHFS, SSHFS_TUNED, RCLONE];
            let names = names.iter().cycle().skip(run).take(names.len());
            let alone = options.alone || work.steps.iter().all(|s| s.ours);
            for name in names.filter(|name| **name == TRELLIS || !alone) {
                if was_too_long(work, name, &found) {
                    continue;
                }
                // Right before it and after it, because machines are quicker in one minute than in another, and with
                // what they have done before.
                let near = work.near && *name == TRELLIS;
                if near {
                    bench.work_nearby(work, &mut found)?;
                }
                bench.work_on(work, name, &mut found)?;
                if near {
                    bench.work_nearby(work, &mut found)?;
                }
            }
            bench.pass_bytes_alone(work, &mut found)?;
            bench.work_at_home(work, &mut found)?;
            if !options.alone {
                bench.work_by_tools(work, &mut found)?;
            }
        }
    }
    fs::write(world.dir.join(PLOT), plot::svg(&found, options))?;
    let judged = targets::judge(&found, options);
    for (name, lines) in [(OTHERS, judged.others), (MISSED, judged.missed)] {
        fs::write(world.dir.join(name), lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    }
    table::table(&found, options, runs)
}

impl<'a> Bench<'a> {
    fn new(world: &'a World, options: &'a Options) -> Result<Self> {
        let files = world.home_dir(GATEWAY, "bench")?;
        let local = world.home_dir(GATEWAY, "local")?;
        let home =
            Sshd::start(&world.dir, "lab", if options.sftp { "ForceCommand internal-sftp" } else { "" })?;
        let wire = Relay::start("127.0.0.1:0".parse()?, home.addr, options.wire())?;
        fs::write(world.known_hosts(), home.known_hosts()?)?;
        world.route("lab", wire.addr())?;
        // The account at the home has the uid of the server's, as a person who has the same uid on all machines.
        let key = world.home(GATEWAY).join("key.pub");
        fs::copy(key, world.authorized_keys(GATEWAY))?;
        GATEWAY.own(&world.authorized_keys(GATEWAY))?;
        let config = world.home(GATEWAY).join("ssh_config.tools");
        let cipher = format!("Host *\n  Ciphers {}\n", mounts::CIPHER);
        fs::write(&config, fs::read_to_string(world.ssh_config())? + &cipher)?;
        let out = world.home_dir(GATEWAY, "out")?;
        let aside = world.home_dir(GATEWAY, "aside")?;
        // The disk to which something is copied is not what is measured.
        let owned = format!("mode=700,uid={0},gid={0}", GATEWAY.uid);
        run::mount_tmpfs(&out, &owned)?;
        let entries = files::make(&files, &local, options)?;
        let scratch = world.home_dir(GATEWAY, "tmp")?;
        let program = world.dir.join("calls");
        fs::copy(std::env::current_exe()?, &program)?;
        let bench = Self {
            world,
            options,
            wire,
            _home: home,
            config,
            files,
            local,
            out,
            aside,
            scratch,
            program,
            entries,
        };
        bench.succeed(files::SCRIPT)?;
        Ok(bench)
    }

    /// Every step of a piece of work on one mount.
    fn work_on(&self, work: &Work, name: &'static str, found: &mut Vec<Found>) -> Result<()> {
        self.prepare(work)?;
        let remote = Remote { account: GATEWAY, port: self.wire.addr().port(), dir: &self.files };
        let mut server = None;
        let mount = match name {
            TRELLIS | NEAR => {
                let started = self.world.serve_as(&format!("trellis{}", found.len()), work.options)?;
                let mount = mounts::trellis(self.world, name, &started, &remote)?;
                server = Some(started);
                mount
            }
            RCLONE => mounts::rclone(self.world, &remote)?,
            _ => mounts::sshfs(self.world, name, &remote)?,
        };
        for step in work.steps {
            let mut before = None;
            match (step.before, &mut server) {
                (_, None) if step.ours => continue,
                (Before::Nothing, _) => {}
                (Before::ColdKernel, _) => self.forget()?,
                (Before::Restart, None) => continue,
                (Before::Restart, Some(server)) => {
                    stop(server)?;
                    server.restart()?;
                    // What it asks as soon as it is logged in counts, too.
                    before = Some(Passed { wire: self.passed(), counts: Some(Counts::default()) });
                    self.remounted(&mount)?;
                }
            }
            let figure = match self.once(step, step.script, Some(&mount), server.as_ref(), before) {
                // What a mount of others cannot do is no reason to measure nothing more.
                Err(e) if server.is_none() => {
                    eprintln!("{name}: {e:#}");
                    Figure::Wrong
                }
                figure => figure?,
            };
            note(found, step, name, figure);
            if !matches!(figure, Figure::Took(_)) {
                break;
            }
        }
        drop(mount);
        server.as_mut().map_or(Ok(()), stop)
    }

    /// The same with the home next door.
    fn work_nearby(&self, work: &Work, found: &mut Vec<Found>) -> Result<()> {
        self.wire(&link::Options::default());
        let done = self.work_on(work, NEAR, found);
        self.wire(&self.options.wire());
        done
    }

    /// Lets the wire be as long and as narrow as this.
    fn wire(&self, options: &link::Options) {
        let link = self.wire.link();
        link.set_delay(options.delay);
        for way in [Way::Up, Way::Down] {
            link.set_rate(way, options.rate[way as usize]);
        }
    }

    /// What one stream needs for the bytes of a step, where they are the large file's.
    fn pass_bytes_alone(&self, work: &Work, found: &mut Vec<Found>) -> Result<()> {
        for (step, way) in work.steps.iter().filter_map(|step| Some((step, step.raw?))) {
            let processors = Processors::now()?;
            let (seconds, wire) = raw::seconds(&self.options.wire(), way, self.options.mib << 20)?;
            let busy = processors.busy()?;
            let took = Cost { seconds, returned: seconds, wire, counts: None, calls: None, busy };
            note(found, step, RAW, Figure::Took(took));
        }
        Ok(())
    }

    /// The same where the files are. The second time counts: then programs are loaded, and git's index is right for the
    /// account at the home, also where the work began with another one.
    fn work_at_home(&self, work: &Work, found: &mut Vec<Found>) -> Result<()> {
        for step in work.steps.iter().filter(|step| !step.at_home.is_empty()) {
            self.prepare(work)?;
            self.succeed(step.at_home)?;
            note(found, step, AT_HOME, self.once(step, step.at_home, None, None, None)?);
        }
        Ok(())
    }

    /// The same by tools.
    fn work_by_tools(&self, work: &Work, found: &mut Vec<Found>) -> Result<()> {
        for step in work.steps {
            for (tool, script) in step.tools.iter().filter(|(tool, _)| self.options.allows(tool)) {
                self.prepare(work)?;
                note(found, step, tool, self.once(step, script, None, None, None)?);
            }
        }
        Ok(())
    }

    /// A script on a mount, or of a tool, until what it did is at the home, and whether it did it right.
    fn once(
        &self,
        step: &Step,
        script: &str,
        mount: Option<&Mounted>,
        server: Option<&Server>,
        before: Option<Passed>,
    ) -> Result<Figure> {
        self.succeed("rm -rf $O/*")?;
        let dir = mount.map_or(Path::new("/nowhere"), |m| &m.dir);
        let counted = |server: Option<&Server>| server.map(|s| s.counts("gateway@lab")).transpose();
        let before = match before {
            Some(before) => before,
            None => Passed { wire: self.passed(), counts: counted(server)? },
        };
        let (began, processors) = (Instant::now(), Processors::now()?);
        let limit = Duration::from_secs(self.options.cap);
        let mut cmd = self.bash(script, Some(limit));
        let (program, state) = (&self.world.trellis, server.map(Server::state).unwrap_or_default());
        let done = cmd.env("M", dir).env("T", program).env("S", state).output()?;
        eprint!("{}", String::from_utf8_lossy(&done.stdout));
        // What timeout(1) says of a program that it ended, and of one that it had to kill.
        if matches!(done.status.code(), Some(124 | 137)) {
            return Ok(Figure::Over);
        }
        let returned = began.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{}: {script}: {} {said}", step.name, done.status);
        if !step.arrived.is_empty() {
            if let Some(server) = server {
                server.sync()?;
            }
            let arrived = || self.bash(step.arrived, None).status().is_ok_and(|s| s.success()).then_some(());
            let left = limit.saturating_sub(began.elapsed());
            if wait_for("the home", left, arrived).is_err() {
                return Ok(Figure::Over);
            }
        }
        let seconds = self.told("seconds")?.unwrap_or(began.elapsed().as_secs_f64());
        let (calls, busy) = (self.told("calls")?, processors.busy()?);
        let after = self.passed();
        let counts = counted(server)?.zip(before.counts).map(|(after, before)| after.since(before));
        self.succeed(step.check).with_context(|| format!("{}: {script} did it wrong", step.name))?;
        let wire = [0, 1].map(|way| after[way] - before.wire[way]);
        Ok(Figure::Took(Cost { seconds, returned, wire, counts, calls, busy }))
    }

    /// A number that a script has written to `$O`.
    fn told<T: FromStr<Err: Error + Send + Sync + 'static>>(&self, name: &str) -> Result<Option<T>> {
        match fs::read_to_string(self.out.join(name)) {
            Ok(text) => Ok(Some(text.trim().parse()?)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// What was made before is put aside, not removed: for each file that ext4 makes it passes over those that were removed
    /// within a minute, which would count.
    fn prepare(&self, work: &Work) -> Result<()> {
        let made = self.files.join("new");
        if made.exists() {
            fs::rename(made, tempfile::tempdir_in(&self.aside)?.keep())?;
        }
        self.succeed(work.prepare)
    }

    /// Bytes that passed the wire so far, by [`Way`].
    fn passed(&self) -> [u64; 2] {
        [Way::Up, Way::Down].map(|way| self.wire.link().count(way).bytes.load(Relaxed))
    }

    /// The kernel drops its caches, and the home reads its files again.
    fn forget(&self) -> Result<()> {
        fs::write("/proc/sys/vm/drop_caches", "3")?;
        self.succeed("find $H -type f -exec cat {} + >/dev/null")
    }

    /// Waits for a mount that its server makes again, and for the login.
    fn remounted(&self, mount: &Mounted) -> Result<()> {
        let there = || {
            self.bash("ls -d $M", None)
                .env("M", &mount.dir)
                .output()
                .is_ok_and(|o| o.status.success())
                .then_some(())
        };
        wait_for("the mount", Duration::from_secs(30), there)
    }

    /// A script that must succeed.
    fn succeed(&self, script: &str) -> Result<()> {
        run::output(&mut self.bash(script, None)).map(drop)
    }

    /// A script of the account, ended after `limit`.
    fn bash(&self, script: &str, limit: Option<Duration>) -> Command {
        let mut cmd = Command::new("timeout");
        cmd.arg("--kill-after=5").arg(limit.map_or(0, |l| l.as_secs()).to_string());
        cmd.args(["bash", "-euo", "pipefail", "-c", script]);
        cmd.uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir("/").env_clear();
        cmd.env("PATH", "/usr/bin:/bin").env("HOME", self.world.home(GATEWAY)).stdin(Stdio::null());
        // What a compiler makes for a moment must not change the home's /tmp, which is ours.
        cmd.env("TMPDIR", &self.scratch);
        cmd.env("P", &self.program).env("H", &self.files).env("L", &self.local).env("O", &self.out);
        cmd.env("R", "gateway@lab").env("C", &self.config).env("N", self.entries.to_string());
        cmd.env("K", self.options.asked().to_string());
        cmd
    }
}

/// Whether a mount of others did not end the first step in an earlier run: waiting for it again tells nothing new.
fn was_too_long(work: &Work, name: &str, found: &[Found]) -> bool {
    let is_it = |(row, who, figure): &Found| {
        *row == work.steps[0].name && *who == name && matches!(figure, Figure::Over)
    };
    name != TRELLIS && found.iter().any(is_it)
}

fn note(found: &mut Vec<Found>, step: &Step, name: &'static str, figure: Figure) {
    eprintln!("{}, {name}: {figure:?}", step.name);
    found.push((step.name, name, figure));
}

fn stop(server: &mut Server) -> Result<()> {
    server.run(&["stop"])?;
    match server.wait(Duration::from_secs(60))? {
        true => Ok(()),
        false => bail!("the server ended badly"),
    }
}
