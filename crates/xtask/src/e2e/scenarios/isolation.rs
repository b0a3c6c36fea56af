//! A home in trouble, and the others beside it.
//!
//! One connection carries the calls to both homes, as a kernel's mount does. Latencies are compared with
//! the same calls when nothing was wrong. A second server, which knows no home in trouble, is asked the same
//! in turn: what slows both is the machine.

use crate::e2e::accounts::{ANN, BOB};
use crate::e2e::server::Server;
use crate::e2e::sshd::Sshd;
use crate::e2e::trees::Noise;
use crate::e2e::world::World;
use crate::nfs::{Client, at};
use anyhow::{Context, Result, bail, ensure};
use oncrpc::nfs3::*;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Calls of each kind in a phase.
const CALLS: usize = 2000;
/// Calls to a home in trouble that wait at once: more than a connection takes.
const CROWD: u64 = 1000;
/// Bytes from one of their places in a file to the next, so that each asks for itself.
const CROWD_STEP: u64 = 256 << 10;
/// After this time those are to have made room.
const MADE_ROOM: Duration = Duration::from_secs(2);
/// Files at the healthy home.
const FILES: usize = 100;
/// How often a phase is measured before its verdict holds.
const ATTEMPTS: usize = 3;
/// How much slower the slowest hundredth may be.
const RATIO_MAX: f64 = 1.5;
/// A call may take longer only where the disk did.
const SLOW: Duration = Duration::from_millis(100);
const KINDS: [&str; 4] = ["GETATTR", "LOOKUP", "READ", "CREATE+WRITE+COMMIT"];

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let (ann, bob) = (world.home_dir(ANN, "work")?, world.home_dir(BOB, "work")?);
    for i in 0..FILES {
        world.write_home(ANN, &ann.join(format!("file{i}")), &Noise::new(i as u64).bytes(4096))?;
    }
    world.write_home(BOB, &bob.join("cached"), b"what bob wrote")?;
    world.write_home(BOB, &bob.join("unread"), b"")?;
    File::options().write(true).open(bob.join("unread"))?.set_len(CROWD * CROWD_STEP * 3)?;
    let _lab = world.host("lab", "", None)?;
    let mut cave = world.host("cave", "", None)?;
    let server = world.serve(&[])?;
    let control = world.serve_as("control", &[])?;
    let mut test = Test::new(world, &server, &control, &ann, &bob)?;

    let calm = test.phase("before", &[])?;
    for (number, trouble) in [Trouble::Hang, Trouble::Die, Trouble::Refuse].into_iter().enumerate() {
        trouble.begin(world, &mut cave)?;
        test.others_are_as_fast(&format!("{trouble:?}"), &calm)?;
        test.a_crowd_makes_room(&format!("{trouble:?}"), number as u64 * CROWD)?;
        test.cave_goes_on(&format!("{trouble:?}"))?;
        trouble.end(world, &mut cave)?;
        server.sync().with_context(|| format!("after {trouble:?}"))?;
        let arrived = fs::read(bob.join(format!("during {trouble:?}")))?;
        ensure!(arrived == b"queued", "{trouble:?}: what was written during it did not arrive");
    }
    Ok(())
}

/// What happens to a host.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    /// Every process there stops: connections stay, nothing answers.
    Hang,
    /// All are killed, and connections refused.
    Die,
    /// It lives, but our key no longer opens it.
    Refuse,
}

impl Trouble {
    fn begin(self, world: &World, host: &mut Sshd) -> Result<()> {
        match self {
            Trouble::Hang => host.hang(),
            Trouble::Die => host.kill()?,
            Trouble::Refuse => {
                fs::rename(world.authorized_keys(BOB), world.dir.join("taken"))?;
                host.kill()?;
                host.restart()?;
            }
        }
        Ok(())
    }

    fn end(self, world: &World, host: &mut Sshd) -> Result<()> {
        match self {
            Trouble::Hang => host.resume(),
            Trouble::Die => host.restart()?,
            Trouble::Refuse => fs::rename(world.dir.join("taken"), world.authorized_keys(BOB))?,
        }
        Ok(())
    }
}

/// A client of one server, with what it asks of the healthy home.
struct Side {
    client: Client,
    lab: NfsFh3,
    files: Vec<NfsFh3>,
    prefix: &'static str,
}

impl Side {
    fn new(world: &World, server: &Server, ann: &Path, prefix: &'static str) -> Result<Self> {
        let (client, root) = world.client(server)?;
        let lab = client.walk(&root, &format!("ann@lab{}", ann.display()))?;
        let files: Vec<_> =
            (0..FILES).map(|i| client.lookup(&lab, format!("file{i}"))).collect::<Result<_>>()?;
        for file in &files {
            client.read(file, 0, 4096)?;
        }
        Ok(Self { client, lab, files, prefix })
    }

    /// One call of each kind, and how long each took.
    fn round(&self, i: usize, created: usize, took: &mut [Vec<Duration>; 4]) -> Result<()> {
        let file = &self.files[i % FILES];
        took[0].push(timed(|| self.client.getattr(file).map(drop))?);
        took[1].push(timed(|| self.client.lookup(&self.lab, format!("file{}", i % FILES)).map(drop))?);
        let mut read = Default::default();
        took[2].push(timed(|| {
            read = self.client.read(file, 0, 4096)?.0;
            Ok(())
        })?);
        ensure!(read == Noise::new((i % FILES) as u64).bytes(4096), "READ gives other bytes");
        took[3].push(timed(|| self.create(&format!("{}{created}", self.prefix)))?);
        Ok(())
    }

    fn create(&self, name: &str) -> Result<()> {
        let file = self.client.create(&self.lab, name)?;
        let written = self.client.write(&file, 0, b"some text", StableHow::Unstable)?;
        let stable = self.client.commit(&file)?;
        ensure!(written.verf == stable.verf, "the write verifier changed without a restart");
        Ok(())
    }
}

/// The clients of both servers, and the home that will be in trouble.
struct Test {
    side: Side,
    control: Side,
    cave: NfsFh3,
    cached: NfsFh3,
    unread: NfsFh3,
    probe_file: PathBuf,
    created: usize,
}

impl Test {
    fn new(world: &World, server: &Server, control: &Server, ann: &Path, bob: &Path) -> Result<Self> {
        let side = Side::new(world, server, ann, "new")?;
        let control = Side::new(world, control, ann, "control")?;
        let root = side.client.mount("/")?;
        let cave = side.client.walk(&root, &format!("bob@cave{}", bob.display()))?;
        let cached = side.client.lookup(&cave, "cached")?;
        side.client.read(&cached, 0, 4096)?;
        let unread = side.client.lookup(&cave, "unread")?;
        Ok(Self { side, control, cave, cached, unread, probe_file: world.dir.join("probe"), created: 0 })
    }

    /// Calls that need the troubled home, to be in flight meanwhile.
    fn load(&self) -> Vec<DirOpArgs3> {
        (0..32).map(|i| at(&self.cave, format!("unknown{i}"))).collect()
    }

    /// What the trouble causes, it causes each time; what happens once is the machine.
    fn others_are_as_fast(&mut self, name: &str, calm: &Phase) -> Result<()> {
        let mut verdict = Ok(());
        for _ in 0..ATTEMPTS {
            let load = self.load();
            verdict = self.phase(name, &load)?.judge(name, calm);
            if verdict.is_ok() {
                break;
            }
            println!("again, because {verdict:?}");
        }
        verdict
    }

    /// So many calls wait for the home in trouble that the connection is full of them.
    fn a_crowd_makes_room(&self, trouble: &str, from: u64) -> Result<()> {
        for i in from..from + CROWD {
            let args = ReadArgs { file: self.unread, offset: i * CROWD_STEP, count: 4096 };
            self.side.client.fire(procs::READ, &args);
        }
        std::thread::sleep(MADE_ROOM);
        let took = timed(|| self.side.client.getattr(&self.side.files[0]).map(drop))?;
        println!("{trouble}: GETATTR of the other home behind {CROWD} waiting calls took {took:?}");
        ensure!(took < MADE_ROOM, "{trouble}: a GETATTR of another home took {took:?}");
        Ok(())
    }

    /// The calls of both sides in turn, with the disk probed beside them.
    fn phase(&mut self, name: &str, load: &[DirOpArgs3]) -> Result<Phase> {
        load.iter().for_each(|args| self.side.client.fire(procs::LOOKUP, args));
        let probe = Probe::start(&self.probe_file)?;
        let (mut took, mut control) = Default::default();
        for i in 0..CALLS {
            self.created += 1;
            self.side.round(i, self.created, &mut took).with_context(|| name.to_string())?;
            self.control.round(i, self.created, &mut control).with_context(|| name.to_string())?;
        }
        let phase = Phase { took, control, probe: probe.stop()? };
        println!("{name}: {}", phase.show());
        Ok(phase)
    }

    /// The troubled home answers from its cache, and takes changes.
    fn cave_goes_on(&self, trouble: &str) -> Result<()> {
        let began = Instant::now();
        let (data, _) =
            self.side.client.read(&self.cached, 0, 100).context("cached read of a home in trouble")?;
        ensure!(&data[..] == b"what bob wrote");
        let name = format!("during {trouble}");
        self.side.client.put(&self.cave, &name, b"queued").context("write to a home in trouble")?;
        ensure!(self.side.client.read_all(&self.side.client.lookup(&self.cave, &name)?)? == b"queued");
        println!("{trouble}: cached read and queued write took {:?}", began.elapsed());
        ensure!(began.elapsed() < Duration::from_secs(15), "a home in trouble answers too slowly");
        Ok(())
    }
}

fn timed(call: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    call()?;
    Ok(began.elapsed())
}

/// The latencies of a phase, by kind: of the server, of the one beside it, and of the disk meanwhile.
struct Phase {
    took: [Vec<Duration>; 4],
    control: [Vec<Duration>; 4],
    probe: Vec<Duration>,
}

impl Phase {
    /// An error where a kind of call was slower than it is in calm, and than the server beside it was at the same
    /// time.
    fn judge(&self, name: &str, calm: &Phase) -> Result<()> {
        let slowest = |all: &[Duration]| all.iter().max().copied().unwrap_or_default();
        let machine_stalled = slowest(&self.probe).max(slowest(&self.control.concat())) > SLOW;
        for (k, kind) in KINDS.iter().enumerate() {
            let (now, beside) = (p99(&self.took[k]), p99(&self.control[k]));
            let calm = p99(&calm.took[k]);
            let allowed = calm.max(beside).mul_f64(RATIO_MAX);
            if now > allowed {
                bail!(
                    "{name}: p99 of {kind} is {now:?}, allowed {allowed:?} (calm {calm:?}, beside {beside:?})"
                );
            }
            let slowest = slowest(&self.took[k]);
            ensure!(
                slowest <= SLOW || machine_stalled,
                "{name}: a {kind} took {slowest:?}, and neither the disk nor the server beside it did"
            );
        }
        Ok(())
    }

    fn show(&self) -> String {
        let each = KINDS.iter().zip(self.took.iter().zip(&self.control));
        let kinds = each.map(|(kind, (t, c))| format!("{kind} p99 {:?} (beside {:?})", p99(t), p99(c)));
        let max = self.probe.iter().max().copied().unwrap_or_default();
        let probe = format!("fdatasync p99 {:?} max {max:?}", p99(&self.probe));
        kinds.chain([probe]).collect::<Vec<_>>().join(", ")
    }
}

fn p99(all: &[Duration]) -> Duration {
    let mut sorted = all.to_vec();
    sorted.sort();
    sorted.get(sorted.len().saturating_sub(1) * 99 / 100).copied().unwrap_or_default()
}

/// Writes and syncs a block on the same disk again and again, beside a phase.
struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<std::io::Result<Vec<Duration>>>,
}

impl Probe {
    fn start(path: &Path) -> Result<Self> {
        let (file, stop) = (File::create(path)?, Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut took = Vec::new();
            while !stopped.load(Relaxed) {
                let began = Instant::now();
                file.write_all_at(&[took.len() as u8; 4096], 0)?;
                file.sync_data()?;
                took.push(began.elapsed());
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(took)
        });
        Ok(Self { stop, thread })
    }

    fn stop(self) -> Result<Vec<Duration>> {
        self.stop.store(true, Relaxed);
        Ok(self.thread.join().map_err(|_| anyhow::anyhow!("the probe failed"))??)
    }
}
