//! The way to a home is cut, stalled, half open, or leads elsewhere, while programs work on a FUSE mount: each byte is right,
//! each answer true, each change made once, and nobody notices but by time. `reconnect.py` works and looks.

use crate::e2e::accounts::ANN;
use crate::e2e::fuse;
use crate::e2e::kills::{self, Chance};
use crate::e2e::proc::{self, Daemon, wait_for};
use crate::e2e::server::{Gateway, Server};
use crate::e2e::sshd::Sshd;
use crate::e2e::world::World;
use crate::run;
use crate::wan_link::link::{Link, Options, Way};
use crate::wan_link::relay::Relay;
use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Pid, Signal};
use std::fs::{self, File};
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const WORKER: &str = "reconnect.py";
/// One way.
const DELAY: Duration = Duration::from_millis(10);
/// Bytes per second: slow enough that cuts meet long transfers.
const RATE: u64 = 12 << 20;
/// The same where connections are brief, how long each lives after its login, which is too short for the 16 MiB of a batch, and the
/// bytes of what goes home over them.
const BRIEF: (u64, Duration, u64) = (2 << 20, Duration::from_secs(4), 24 << 20);
/// More bytes than a login takes.
const LOGIN: u64 = 64 << 10;
/// Bytes that may be under way over them when they end, and are lost.
const LOST_MAX: u64 = 2 << 20;
/// Long files at each home, and the bytes of each.
const BULK: (u64, u64) = (12, 4 << 20);
/// How soon after its return a home's edits are seen, and who waits goes on: attempts to connect are a second apart, and a
/// login takes some.
const SOON: Duration = Duration::from_secs(6);
/// How soon a connection that went dead is given up, and another one made: ssh asks three times, 5 s apart.
const NOTICED: Duration = Duration::from_secs(30);
/// How long nothing is heard of a home that is there.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a program may take for what is left of its work.
const PATIENCE: Duration = Duration::from_secs(150);

/// How much is done.
struct Size {
    /// Cuts under each kind of home.
    cuts: usize,
    /// Seconds for which the gateway sleeps, each time.
    sleeps: &'static [u64],
    /// Rounds of what takes long.
    rounds: usize,
}

/// The compact version.
pub fn run(world: &World) -> Result<()> {
    cut_off(world, &Size { cuts: 5, sleeps: &[12], rounds: 1 })
}

/// More of everything.
pub fn run_long(world: &World) -> Result<()> {
    cut_off(world, &Size { cuts: 60, sleeps: &[40, 3, 75], rounds: 4 })
}

/// The cuts of a home without an agent, as many as in the long one.
pub fn run_sftp(world: &World) -> Result<()> {
    cuts(world, &KINDS[2..], 60)
}

/// Name, mode, lines for sshd, and when an answer is true of the home.
const KINDS: [(&str, &str, &str, &str); 3] = [
    ("cto", "cto", "", "sync"),
    ("strict", "strict", "", "call"),
    ("sftp", "wb", "ForceCommand internal-sftp", "end"),
];

fn cuts(world: &World, kinds: &[(&'static str, &str, &str, &str)], cuts: usize) -> Result<()> {
    let seed = kills::seed()?;
    println!("TRELLIS_SEED={seed}");
    fuse::allow()?;
    fs::write(world.dir.join(WORKER), include_str!("reconnect.py"))?;
    for (name, mode, lines, when) in kinds {
        let far = Far::new(world, name, mode, lines, RATE)?;
        far.cuts(when, cuts, &mut Chance::new(seed)).with_context(|| format!("cuts, {name}"))?;
        far.end()?;
    }
    Ok(())
}

fn cut_off(world: &World, size: &Size) -> Result<()> {
    cuts(world, &KINDS, size.cuts)?;
    let slow = [
        Far::new(world, "silent", "cto", "", RATE)?,
        Far::new(world, "open", "cto", "", RATE)?,
        Far::new(world, "asleep", "cto", "", RATE)?,
        Far::moving(world, "moved", "cto")?,
        Far::new(world, "brief", "wb", "", BRIEF.0)?,
    ];
    let works: [fn(&Far<'_>, &Size) -> Result<()>; 5] = [
        |far, size| far.silence(size),
        |far, size| far.half_open(size),
        |far, size| far.sleep(size),
        |far, size| far.moves(size),
        |far, size| far.lives_are_brief(size),
    ];
    std::thread::scope(|scope| {
        let runs: Vec<_> =
            slow.iter().zip(works).map(|(far, work)| scope.spawn(move || work(far, size))).collect();
        let ends = runs.into_iter().zip(&slow).map(|(run, far)| match run.join() {
            Ok(done) => done.with_context(|| far.name.to_owned()),
            Err(_) => anyhow::bail!("{} panicked", far.name),
        });
        ends.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
    })?;
    slow.iter().try_for_each(Far::end)
}

/// A home behind a wire, with a server and a mount of its own.
struct Far<'a> {
    world: &'a World,
    name: &'static str,
    _sshd: Sshd,
    /// The second one is at another address of the same name.
    relays: Vec<Relay>,
    server: Server,
    tree: PathBuf,
    /// The folder at the home, and on the mount.
    work: PathBuf,
    here: PathBuf,
}

fn options(rate: u64) -> Options {
    Options { delay: DELAY, rate: [rate; 2], ..Options::default() }
}

impl<'a> Far<'a> {
    fn new(world: &'a World, name: &'static str, mode: &str, lines: &str, rate: u64) -> Result<Far<'a>> {
        let sshd = Sshd::start(&world.dir, name, lines)?;
        let relay = Relay::start(SocketAddr::from(([127, 0, 0, 1], 0)), sshd.addr, options(rate))?;
        world.trust(&sshd)?;
        world.route(name, relay.addr())?;
        Far::behind(world, name, mode, sshd, vec![relay])
    }

    /// One whose name means the first of two addresses.
    fn moving(world: &'a World, name: &'static str, mode: &str) -> Result<Far<'a>> {
        let sshd = Sshd::start(&world.dir, name, "")?;
        let first = Relay::start(SocketAddr::from(([127, 0, 0, 1], 0)), sshd.addr, options(RATE))?;
        let port = first.addr().port();
        let second = Relay::start(SocketAddr::from(([127, 0, 0, 2], port)), sshd.addr, options(RATE))?;
        world.trust(&sshd)?;
        world.configure(&format!("Host {name}\n  HostName {name}.example\n"))?;
        world.route(name, first.addr())?;
        means(name, "127.0.0.1")?;
        Far::behind(world, name, mode, sshd, vec![first, second])
    }

    fn behind(
        world: &'a World,
        name: &'static str,
        mode: &str,
        _sshd: Sshd,
        relays: Vec<Relay>,
    ) -> Result<Far<'a>> {
        let work = world.home_dir(ANN, name)?;
        for folder in ["read", "write", "names"] {
            world.home_dir(ANN, &format!("{name}/{folder}"))?;
        }
        for n in 0..BULK.0 {
            let file = work.join(format!("read/bulk{n:02}"));
            noise(&file, BULK.1)?;
            ANN.own(&file)?;
        }
        world.write_home(ANN, &work.join("edited"), b"before\n")?;
        let server = world.serve_as(name, &["--mode", mode])?;
        let tree = fuse::mount(world, &server, &format!("{name}-tree"))?;
        let here = tree.join(format!("ann@{name}{}", work.display()));
        Ok(Far { world, name, _sshd, relays, server, tree, work, here })
    }

    fn link(&self) -> &Link {
        self.relays[0].link()
    }

    fn shell(&self, script: &str) -> Result<String> {
        let script = format!("cd {} && {script}", self.here.display());
        run::output(&mut Gateway::named(self.world, self.name).shell(&script))
    }

    fn stop_file(&self) -> PathBuf {
        self.world.dir.join(format!("{}-stop", self.name))
    }

    /// A program that works on a folder of the mount until it is told to stop.
    fn worker(&self, what: &str, when: Option<&str>) -> Result<Worker> {
        let words = [&self.here, &self.work].map(|at| at.join(what).display().to_string());
        let stop = self.stop_file().display().to_string();
        let script = self.world.dir.join(WORKER);
        let line = format!(
            "exec /usr/bin/python3 {} {what} {} {} {stop} {}",
            script.display(),
            words[0],
            words[1],
            when.unwrap_or_default()
        );
        let log = self.world.dir.join(format!("{}-{what}.log", self.name));
        let mut command = Gateway::named(self.world, self.name).shell(&line);
        Ok(Worker { name: what.into(), daemon: Daemon::start(what, &mut command, &log)? })
    }

    fn workers(&self, when: &str) -> Result<Vec<Worker>> {
        let _ = fs::remove_file(self.stop_file());
        let _ = fs::remove_file(self.stopped_file());
        let kinds = [("read", None), ("write", Some(when)), ("names", Some(when))];
        kinds.iter().map(|(what, when)| self.worker(what, *when)).collect()
    }

    /// Tells the programs that all is at the home.
    fn stopped_file(&self) -> PathBuf {
        self.world.dir.join(format!("{}-stopped", self.name))
    }

    /// Ends the work of all, and looks whether it was right.
    fn stop(&self, mut workers: Vec<Worker>) -> Result<()> {
        fs::write(self.stop_file(), "")?;
        let end = self.here.join("names/end");
        let ended = |worker: &mut Worker| worker.daemon.ended().ok().flatten();
        let asked = || {
            run::output(
                &mut Gateway::named(self.world, self.name).shell(&format!("test -e {}", end.display())),
            )
        };
        wait_for("the last name", PATIENCE, || {
            let dead = workers.iter_mut().any(|w| ended(w).is_some_and(|status| !status.success()));
            (dead || asked().is_ok()).then_some(())
        })?;
        self.server.sync()?;
        fs::write(self.stopped_file(), "")?;
        for worker in &mut workers {
            let status = worker.daemon.wait(PATIENCE)?;
            let said = worker.daemon.tail();
            ensure!(status.success(), "{} noticed: {said}", worker.name);
            println!("{}, {}: {said}", self.name, worker.name);
        }
        Ok(())
    }

    /// Programs read, write and make names while connections are reset and refused.
    fn cuts(&self, when: &str, cuts: usize, chance: &mut Chance) -> Result<()> {
        // A host that was never reached is not waited for.
        self.shell("cat edited; ls -la . names")?;
        let mut workers = self.workers(when)?;
        for cut in 0..cuts {
            wait_for("a connection", PATIENCE, || (self.link().connections().1 > 0).then_some(()))?;
            std::thread::sleep(Duration::from_millis(200 + chance.below(1300)));
            if cut % 2 == 1 {
                self.link().refuse(Some(Duration::from_millis(chance.below(2500))));
            }
            self.link().cut();
            for worker in &mut workers {
                let failed = worker.daemon.ended()?.is_some_and(|status| !status.success());
                ensure!(!failed, "{} noticed cut {cut}: {}", worker.name, worker.daemon.tail());
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        let (accepted, _) = self.link().connections();
        println!("{}: {cuts} cuts, {accepted} connections", self.name);
        self.stop(workers)
    }

    /// Nothing passes for half a minute, and no connection ends.
    fn silence(&self, size: &Size) -> Result<()> {
        for _ in 0..size.rounds {
            let before = self.begin("sync")?;
            self.link().stall(None);
            std::thread::sleep(SILENCE);
            self.edit("while it was silent")?;
            self.link().go();
            self.goes_on("30 s of silence", &before, SOON)?;
            self.sees("an edit made in the silence", "while it was silent", SOON)?;
            self.stop(before)?;
            self.again()?;
        }
        Ok(())
    }

    /// Connections die and nobody is told: both ways, and once more so that requests arrive and answers do not.
    fn half_open(&self, size: &Size) -> Result<()> {
        for round in 0..2 * size.rounds {
            let before = self.begin("sync")?;
            self.link().mute(Way::Down);
            if round % 2 == 0 {
                self.link().mute(Way::Up);
            }
            let text = format!("half open {round}");
            self.edit(&text)?;
            self.goes_on("a half-open connection", &before, NOTICED)?;
            self.sees("an edit made meanwhile", &text, SOON)?;
            self.stop(before)?;
            self.again()?;
        }
        Ok(())
    }

    /// The gateway's machine sleeps.
    fn sleep(&self, size: &Size) -> Result<()> {
        for (round, seconds) in size.sleeps.iter().enumerate() {
            let before = self.begin("sync")?;
            let pid = Pid::from_raw(self.server.pid()).context("the server's number")?;
            let family = proc::family(pid);
            proc::signal_all(&family, Signal::STOP);
            std::thread::sleep(Duration::from_secs(*seconds));
            let text = format!("asleep {round}");
            self.edit(&text)?;
            proc::signal_all(&family, Signal::CONT);
            self.goes_on("sleep", &before, SOON)?;
            self.sees("an edit made while we slept", &text, SOON)?;
            self.stop(before)?;
            self.again()?;
        }
        Ok(())
    }

    /// The name of the home leads to another address, and the old one is dead.
    fn moves(&self, size: &Size) -> Result<()> {
        for round in 0..2 * size.rounds {
            let before = self.begin("sync")?;
            let (old, new) = (&self.relays[round % 2], &self.relays[(round + 1) % 2]);
            means(self.name, &new.addr().ip().to_string())?;
            for way in [Way::Up, Way::Down] {
                old.link().mute(way);
            }
            old.link().refuse(None);
            new.link().go();
            let text = format!("moved {round}");
            self.edit(&text)?;
            self.goes_on("another address", &before, NOTICED)?;
            self.sees("an edit made meanwhile", &text, SOON)?;
            self.stop(before)?;
            self.again()?;
        }
        Ok(())
    }

    /// No connection lives long enough for a batch: a long file goes home part by part.
    fn lives_are_brief(&self, size: &Size) -> Result<()> {
        for _ in 0..size.rounds {
            // The home has none of it, of which it would make it by itself.
            let source = self.world.dir.join("brief-long");
            noise(&source, BRIEF.2)?;
            let whole = fs::read(&source)?;
            self.shell(&format!("cat edited; cat {} >write/long", source.display()))?;
            let (begun, mut lives) = (Instant::now(), 0);
            while !fs::read(self.work.join("write/long")).is_ok_and(|there| there == whole) {
                ensure!(begun.elapsed() < PATIENCE, "{} is not at the home after {lives} lives", whole.len());
                let there = || fs::metadata(self.work.join("write/long")).map_or(0, |there| there.len());
                self.one_life(Way::Up, || there() == whole.len() as u64);
                lives += 1;
            }
            println!(
                "{}: {} bytes went home in {lives} lives, {:?}",
                self.name,
                whole.len(),
                begun.elapsed()
            );
            self.shell("rm write/long")?;
            self.reads_go_on(&source, whole.len() as u64)?;
        }
        Ok(())
    }

    /// Ends a connection when it has lived after its login, whose end is told by what goes this way; or if all is over before.
    fn one_life(&self, way: Way, is_over: impl Fn() -> bool) {
        let went = || self.link().count(way).bytes.load(Relaxed);
        let (before, begun) = (went(), Instant::now());
        while went() < before + LOGIN && !is_over() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(BRIEF.1);
        self.link().cut();
    }

    /// The same of a file that is read: of what came before a cut nothing is asked for again.
    fn reads_go_on(&self, source: &Path, bytes: u64) -> Result<()> {
        fs::copy(source, self.work.join("read/long"))?;
        wait_for("the file", PATIENCE, || self.shell("ls read/long").is_ok().then_some(()))?;
        let came = || self.link().count(Way::Down).bytes.load(Relaxed);
        let (before, ended) = (came(), AtomicBool::new(false));
        let (read, cuts) = std::thread::scope(|scope| {
            let cutting = scope.spawn(|| {
                let mut cuts = 0;
                while !ended.load(Relaxed) {
                    self.one_life(Way::Down, || ended.load(Relaxed));
                    cuts += 1;
                }
                cuts
            });
            let read = self.shell(&format!("cmp read/long {}", source.display()));
            ended.store(true, Relaxed);
            (read, cutting.join())
        });
        read?;
        let cuts: u64 = cuts.map_err(|_| anyhow!("cutting panicked"))?;
        let came = came() - before;
        println!("{}: {bytes} bytes were read over {cuts} cuts, {came} came", self.name);
        ensure!(cuts > 2, "{cuts} cuts: too few to tell");
        ensure!(came < bytes + cuts * LOST_MAX, "{came} bytes came, of {bytes} and over {cuts} cuts");
        self.shell("rm read/long").map(drop)
    }

    /// Programs at work, and a file that is known here.
    fn begin(&self, when: &str) -> Result<Vec<Worker>> {
        self.shell("cat edited; ls -la . names")?;
        let workers = self.workers(when)?;
        std::thread::sleep(Duration::from_millis(1500));
        Ok(workers)
    }

    /// What was made is taken away, so that it can be made again, and long files are cold.
    fn again(&self) -> Result<()> {
        self.shell("rm -rf names/* write/*")?;
        self.server.sync()?;
        for n in 0..BULK.0 {
            noise(&self.work.join(format!("read/bulk{n:02}")), BULK.1)?;
        }
        Ok(())
    }

    fn edit(&self, text: &str) -> Result<()> {
        self.world.write_home(ANN, &self.work.join("edited"), format!("{text}\n").as_bytes())
    }

    /// Something that has to be asked and something that has to be done are both answered.
    fn goes_on(&self, after: &str, workers: &[Worker], limit: Duration) -> Result<()> {
        let begun = Instant::now();
        self.shell("date >asked && sync asked && cat asked")
            .with_context(|| format!("a write after {after}"))?;
        println!(
            "{}: after {after} ({} at work) it went on in {:?}",
            self.name,
            workers.len(),
            begun.elapsed()
        );
        ensure!(begun.elapsed() < limit, "after {after} it took {:?}", begun.elapsed());
        Ok(())
    }

    fn sees(&self, what: &str, text: &str, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        wait_for(&format!("{what}: {text:?}"), limit, || {
            (self.shell("cat edited").ok()? == format!("{text}\n")).then_some(())
        })?;
        println!("{}: {what} was seen in {:?}", self.name, begun.elapsed());
        Ok(())
    }

    /// Nothing is left over, and nothing was a conflict.
    fn end(&self) -> Result<()> {
        self.server.sync()?;
        let status = self.server.home_status(&format!("ann@{}", self.name))?;
        ensure!(status["conflicts"] == 0 && status["parked"] == serde_json::json!([]), "{status}");
        let strange = run::output(Command::new("find").arg(&self.work).args(["-name", "*.trellis-*"]))?;
        ensure!(strange.is_empty(), "left over at the home: {strange}");
        self.server.run(&["umount", &self.tree.to_string_lossy()])?;
        self.server.run(&["stop"]).map(drop)
    }
}

struct Worker {
    name: String,
    daemon: Daemon,
}

/// A long file of bytes that nothing foretells.
fn noise(path: &Path, len: u64) -> Result<()> {
    let mut from = File::open("/dev/urandom")?.take(len);
    std::io::copy(&mut from, &mut File::create(path)?)?;
    Ok(())
}

/// Lets `NAME.example` mean this address.
fn means(name: &str, address: &str) -> Result<()> {
    let path = Path::new("/etc/hosts");
    let text = fs::read_to_string(path)?;
    let ours = format!(" {name}.example");
    let others: String = text.lines().filter(|l| !l.ends_with(&ours)).map(|l| format!("{l}\n")).collect();
    Ok(fs::write(path, format!("{others}{address}{ours}\n"))?)
}
