//! A home in trouble, and the others beside it.
//!
//! One connection carries the calls to both homes, as a kernel's mount does. Latencies are compared with
//! the same calls of the same run, when nothing was wrong.

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
/// Files at the healthy home.
const FILES: usize = 100;
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
    let _lab = world.host("lab", "", None)?;
    let mut cave = world.host("cave", "", None)?;
    let server = world.serve(&[])?;
    let mut test = Test::new(world, &server, &ann, &bob)?;

    let before = test.phase("before", &[])?;
    let mut troubled = Vec::new();
    for trouble in [Trouble::Hang, Trouble::Die, Trouble::Refuse] {
        trouble.begin(world, &mut cave)?;
        let load = test.load();
        troubled.push((format!("{trouble:?}"), test.phase(&format!("{trouble:?}"), &load)?));
        test.cave_goes_on(&format!("{trouble:?}"))?;
        trouble.end(world, &mut cave)?;
        server.sync().with_context(|| format!("after {trouble:?}"))?;
        let arrived = fs::read(bob.join(format!("during {trouble:?}")))?;
        ensure!(arrived == b"queued", "{trouble:?}: what was written during it did not arrive");
    }
    let after = test.phase("after", &[])?;
    let calm = before.slower_of(after);
    for (name, phase) in troubled {
        phase.judge(&name, &calm)?;
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

/// The client's side.
struct Test {
    client: Client,
    lab: NfsFh3,
    cave: NfsFh3,
    cached: NfsFh3,
    files: Vec<NfsFh3>,
    probe_file: PathBuf,
    created: usize,
}

impl Test {
    fn new(world: &World, server: &Server, ann: &Path, bob: &Path) -> Result<Self> {
        let (client, root) = world.client(server)?;
        let lab = client.walk(&root, &format!("ann@lab{}", ann.display()))?;
        let cave = client.walk(&root, &format!("bob@cave{}", bob.display()))?;
        let cached = client.lookup(&cave, "cached")?;
        client.read(&cached, 0, 4096)?;
        let files: Vec<_> =
            (0..FILES).map(|i| client.lookup(&lab, format!("file{i}"))).collect::<Result<_>>()?;
        for file in &files {
            client.read(file, 0, 4096)?;
        }
        Ok(Self { client, lab, cave, cached, files, probe_file: world.dir.join("probe"), created: 0 })
    }

    /// Calls that need the troubled home, to be in flight meanwhile.
    fn load(&self) -> Vec<DirOpArgs3> {
        (0..32).map(|i| at(&self.cave, format!("unknown{i}"))).collect()
    }

    /// One call of each kind after another, and how long each took, with the disk probed beside it.
    fn phase(&mut self, name: &str, load: &[DirOpArgs3]) -> Result<Phase> {
        load.iter().for_each(|args| self.client.fire(procs::LOOKUP, args));
        let probe = Probe::start(&self.probe_file)?;
        let mut took: [Vec<Duration>; 4] = Default::default();
        for i in 0..CALLS {
            let file = &self.files[i % FILES];
            let wanted = Noise::new((i % FILES) as u64).bytes(4096);
            took[0].push(timed(|| self.client.getattr(file).map(drop))?);
            took[1].push(timed(|| self.client.lookup(&self.lab, format!("file{}", i % FILES)).map(drop))?);
            let mut read = Default::default();
            took[2].push(timed(|| {
                read = self.client.read(file, 0, 4096)?.0;
                Ok(())
            })?);
            ensure!(read == wanted, "{name}: READ gives other bytes");
            self.created += 1;
            let new = format!("new{}", self.created);
            took[3].push(timed(|| self.create(&new))?);
        }
        let phase = Phase { took, probe: probe.stop()? };
        println!("{name}: {}", phase.show());
        Ok(phase)
    }

    fn create(&self, name: &str) -> Result<()> {
        let file = self.client.create(&self.lab, name)?;
        let written = self.client.write(&file, 0, b"some text", StableHow::Unstable)?;
        let stable = self.client.commit(&file)?;
        ensure!(written.verf == stable.verf, "the write verifier changed without a restart");
        Ok(())
    }

    /// The troubled home answers from its cache, and takes changes.
    fn cave_goes_on(&self, trouble: &str) -> Result<()> {
        let began = Instant::now();
        let (data, _) = self.client.read(&self.cached, 0, 100).context("cached read of a home in trouble")?;
        ensure!(&data[..] == b"what bob wrote");
        let name = format!("during {trouble}");
        self.client.put(&self.cave, &name, b"queued").context("write to a home in trouble")?;
        ensure!(self.client.read_all(&self.client.lookup(&self.cave, &name)?)? == b"queued");
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

/// The latencies of a phase, by kind, and of the disk meanwhile.
struct Phase {
    took: [Vec<Duration>; 4],
    probe: Vec<Duration>,
}

impl Phase {
    /// By kind, the larger p99; of the disk, the smaller, because only a disk that was slow in both
    /// excuses nothing.
    fn slower_of(self, other: Phase) -> Calm {
        let p99 = |k: usize| p99(&self.took[k]).max(p99(&other.took[k]));
        Calm {
            p99: [p99(0), p99(1), p99(2), p99(3)],
            probe: self::p99(&self.probe).min(self::p99(&other.probe)),
        }
    }

    /// An error where a kind of call was slower than the calm phases and the disk allow.
    fn judge(&self, name: &str, calm: &Calm) -> Result<()> {
        let disk = (p99(&self.probe).as_secs_f64() / calm.probe.as_secs_f64()).max(1.0);
        let disk_stalled = self.probe.iter().max().is_some_and(|t| *t > SLOW);
        for (k, kind) in KINDS.iter().enumerate() {
            let now = p99(&self.took[k]);
            // Only the last kind waits for the disk, so only that one is excused by it.
            let allowed = calm.p99[k].mul_f64(RATIO_MAX * if k == 3 { disk } else { 1.0 });
            if now > allowed {
                bail!("{name}: p99 of {kind} is {now:?}, allowed {allowed:?} (calm: {:?})", calm.p99[k]);
            }
            let slowest = self.took[k].iter().max().copied().unwrap_or_default();
            ensure!(
                slowest <= SLOW || disk_stalled,
                "{name}: a {kind} took {slowest:?}, and the disk did not"
            );
        }
        Ok(())
    }

    fn show(&self) -> String {
        let kinds = KINDS.iter().zip(&self.took).map(|(kind, t)| format!("{kind} p99 {:?}", p99(t)));
        let max = self.probe.iter().max().copied().unwrap_or_default();
        let probe = format!("fdatasync p99 {:?} max {max:?}", p99(&self.probe));
        kinds.chain([probe]).collect::<Vec<_>>().join(", ")
    }
}

/// What is usual when nothing is wrong.
struct Calm {
    p99: [Duration; 4],
    probe: Duration,
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
