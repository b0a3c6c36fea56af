//! One part after the other is killed, again and again, while a client writes and another program changes the same
//! folder at the home. In the end every byte that was acknowledged as stable, and every byte of the other program,
//! is at the home, under its name or in the copy of a conflict. Where nobody else changes anything there is no conflict,
//! with an agent at the home and without.

use crate::e2e::accounts::{ANN, Account, BOB, GATEWAY};
use crate::e2e::kills::{Chance, Kill};
use crate::e2e::server::Server;
use crate::e2e::trees::Noise;
use crate::e2e::world::World;
use crate::nfs::{Client, at, mode};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use oncrpc::nfs3::*;
use oncrpc::xdr::Xdr;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A call that no server has answered for so long is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pauses between two kills, in milliseconds: short ones hit logins, long ones hit work.
const PAUSES: [u64; 5] = [1700, 600, 1100, 250, 2300];

/// So many files are saved again and again.
const SAVED: u32 = 40;

/// What is killed in turn.
const KILLS: [Kill; 4] = [Kill::ServerWithAll, Kill::Ssh, Kill::SshOfLateAgent, Kill::Agent];

/// The compact version.
pub fn run(world: &World) -> Result<()> {
    crash(world, 5)
}

/// Long enough to meet rare moments: 510 kills, some 20 minutes.
pub fn run_long(world: &World) -> Result<()> {
    crash(world, 170)
}

/// The compact version at a home that has no agent.
pub fn run_sftp(world: &World) -> Result<()> {
    crash_sftp(world, 4)
}

/// The same for long.
pub fn run_sftp_long(world: &World) -> Result<()> {
    crash_sftp(world, 30)
}

/// `kills` in each phase.
fn crash_sftp(world: &World, kills: usize) -> Result<()> {
    let _box = world.host("box", "ForceCommand internal-sftp", None)?;
    // Before anybody looks: a home without an agent tells nobody of a new one.
    let (own, saved) = (world.home_dir(BOB, "own")?, world.home_dir(BOB, "saved")?);
    let one = world.home_dir(BOB, "one")?;
    let mut server = world.serve(&[])?;
    let bob = |dir| Place { account: BOB, host: "box", dir };
    alone(&mut server, kills, &bob(own), Worker::own_step)?;
    alone(&mut server, kills, &bob(saved), Worker::save)?;
    one_name(&mut server, kills, &bob(one))
}

/// A file is saved again and again, always as long, many times within a second: the times of the home do not tell what
/// arrived. Only the server is killed, so that what it had sent goes on arriving.
fn one_name(server: &mut Server, kills: usize, at: &Place) -> Result<()> {
    let path = format!("/{}@{}{}", at.account.name, at.host, at.dir.display());
    for n in 0..kills {
        let worker = Worker::new(server.addr, &path)?;
        let stop = Arc::new(AtomicBool::new(false));
        let work = saving(worker, stop.clone(), n as u32);
        std::thread::sleep(Duration::from_millis(700));
        server.kill_alone()?;
        server.wait(PATIENCE)?;
        server.restart()?;
        stop.store(true, Relaxed);
        let (mut worker, last) = work.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
        let seen = worker.content("one")?;
        ensure!(seen == last, "kill {n}: {:?} is seen instead of {:?}", text(&seen), text(&last));
        server.sync()?;
        let there = fs::read(at.dir.join("one"))?;
        ensure!(there == last, "kill {n}: the home has {:?} instead of {:?}", text(&there), text(&last));
    }
    compare(&BTreeMap::from([("one".to_owned(), fs::read(at.dir.join("one"))?)]), &at.dir)
}

/// Saves until it is stopped. Answers the client, and what was saved last.
fn saving(
    mut worker: Worker,
    stop: Arc<AtomicBool>,
    n: u32,
) -> std::thread::JoinHandle<Result<(Worker, Vec<u8>)>> {
    std::thread::spawn(move || {
        let mut last = Vec::new();
        for i in 0u32.. {
            if stop.load(Relaxed) {
                break;
            }
            last = format!("{n:06}.{i:06}").into_bytes();
            let file = worker.make(".new")?;
            // Not synced, so that most are saved in a second.
            let before = worker.write_unstable(file, &last)?;
            worker.put(".new", "one")?;
            // As clients do after a restart of the server (RFC 1813, section 3.3.7).
            if stop.load(Relaxed) && worker.write_unstable(file, &[])? != before {
                worker.write_unstable(file, &last)?;
            }
        }
        Ok((worker, last))
    })
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// `kills` in each phase.
fn crash(world: &World, kills: usize) -> Result<()> {
    let ann = |dir| Place { account: ANN, host: "lab", dir };
    let _lab = world.host("lab", "", None)?;
    let mut server = world.serve(&[])?;
    alone(&mut server, kills, &ann(world.home_dir(ANN, "own")?), Worker::own_step)?;
    alone(&mut server, kills, &ann(world.home_dir(ANN, "saved")?), Worker::save)?;
    let volumes = world.dir.join("home/ann/.cache/trellis/volumes");
    let claimed = fs::read_dir(&volumes).with_context(|| format!("{}", volumes.display()))?.count();
    ensure!(claimed == 1, "{claimed} volumes were claimed at the home");

    let shared = ann(world.home_dir(ANN, "shared")?);
    let other = Meddler { dir: shared.dir.clone(), step: Arc::default() };
    let both = phase(&mut server, kills, &shared, Worker::shared_step, Some(other))?;
    let there = contents(&shared.dir)?;
    for (whose, tokens) in [("ours", &both.tokens), ("theirs", &both.theirs)] {
        let is_there = |token: &&String| !there.values().any(|text| contains(text, token.as_bytes()));
        let lost: Vec<_> = tokens.iter().filter(is_there).collect();
        println!("{} of {whose}, {} lost", tokens.len(), lost.len());
        ensure!(lost.is_empty(), "lost of {whose}: {lost:?}\nthere is: {:?}", there.keys());
    }
    ensure!(both.tokens.len() > 5 && both.theirs.len() > 5, "too little was done to mean anything");
    Ok(())
}

/// What has to be at the home.
#[derive(Default)]
struct Promised {
    /// Name and whole content; where nobody else changes anything.
    files: BTreeMap<String, Vec<u8>>,
    /// Written and acknowledged as stable.
    tokens: Vec<String>,
    /// Written by the other program.
    theirs: Vec<String>,
}

/// Where the work is done.
struct Place {
    account: Account,
    host: &'static str,
    dir: PathBuf,
}

/// What the client does in the step with this number.
type Act = fn(&mut Worker, u32) -> Result<()>;

/// Work that nobody else disturbs but who kills: all of it arrives, and nothing is a conflict.
fn alone(server: &mut Server, kills: usize, at: &Place, act: Act) -> Result<()> {
    let promised = phase(server, kills, at, act, None)?;
    compare(&promised.files, &at.dir)?;
    let status = server.home_status(&format!("{}@{}", at.account.name, at.host))?;
    let calm = status["conflicts"] == 0 && status["parked"].as_array().is_some_and(Vec::is_empty);
    ensure!(calm, "nobody else changed anything, and yet: {status}");
    Ok(())
}

/// Work under kills, and its arrival at the home.
fn phase(
    server: &mut Server,
    kills: usize,
    place: &Place,
    act: Act,
    other: Option<Meddler>,
) -> Result<Promised> {
    let stop = Arc::new(AtomicBool::new(false));
    let path = format!("/{}@{}{}", place.account.name, place.host, place.dir.display());
    let mut worker = Worker::new(server.addr, &path)?;
    let step = other.as_ref().map(|o| o.step.clone()).unwrap_or_default();
    let worker_stop = stop.clone();
    let work = std::thread::spawn(move || {
        while !worker_stop.load(Relaxed) {
            act(&mut worker, step.fetch_add(1, Relaxed))?;
        }
        anyhow::Ok((step.load(Relaxed), worker.promised))
    });
    let other_stop = stop.clone();
    let meddling = other.map(|o| std::thread::spawn(move || o.run(&other_stop)));
    let mut chance = Chance::new(0);
    for n in 0..kills {
        std::thread::sleep(Duration::from_millis(PAUSES[n % PAUSES.len()]));
        let kill = KILLS[n % KILLS.len()];
        kill.strike(server, place.account, &mut chance).with_context(|| format!("kill {n}: {kill:?}"))?;
        if work.is_finished() {
            break;
        }
    }
    stop.store(true, Relaxed);
    let (steps, mut promised) = work.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
    if let Some(meddling) = meddling {
        promised.theirs = meddling.join().map_err(|_| anyhow::anyhow!("the other program panicked"))??;
    }
    server.sync()?;
    println!("{steps} steps under {kills} kills");
    Ok(promised)
}

/// A client that sends a call, with the same xid, until there is an answer.
struct Worker {
    server: SocketAddr,
    client: Option<Client>,
    xid: u32,
    dir: NfsFh3,
    promised: Promised,
}

impl Worker {
    fn new(server: SocketAddr, path: &str) -> Result<Self> {
        let client = Client::connect(server, GATEWAY.uid)?;
        let dir = client.walk(&client.mount("/")?, path)?;
        let xid = std::process::id().wrapping_mul(7919) ^ u32::from(client.local.port()) << 20;
        Ok(Self { server, client: Some(client), xid, dir, promised: Promised::default() })
    }

    fn call<A: Xdr, T: Xdr, E: Xdr>(&mut self, proc: u32, args: &A) -> Result<Result<T, NfsStat3>> {
        let began = Instant::now();
        self.xid = self.xid.wrapping_add(1);
        loop {
            if began.elapsed() > PATIENCE {
                bail!("procedure {proc} has no answer");
            }
            let connected = match self.client.take() {
                Some(client) => Ok(client),
                None => Client::connect(self.server, GATEWAY.uid),
            };
            let answer = connected.and_then(|client| {
                let answer = client.raw(self.xid, proc, args)?;
                self.client = Some(client);
                Ok(answer)
            });
            let Ok(answer) = answer else {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            match Res::<T, E>::from_bytes(answer)? {
                Res::Fail(NfsStat3::Jukebox, _) => {
                    self.xid = self.xid.wrapping_add(1);
                    std::thread::sleep(Duration::from_millis(100));
                }
                Res::Fail(status, _) => return Ok(Err(status)),
                Res::Ok(ok) => return Ok(Ok(ok)),
            }
        }
    }

    fn create(&mut self, name: &str) -> Result<Result<NfsFh3, NfsStat3>> {
        let args = CreateArgs { at: at(&self.dir, name), how: CreateHow3::Guarded(mode(0o644)) };
        let made = self.call::<_, CreateOk, WccData>(procs::CREATE, &args)?;
        made.map(|ok| ok.obj.context("CREATE gives no handle")).map_or_else(|e| Ok(Err(e)), |fh| fh.map(Ok))
    }

    fn write(
        &mut self,
        file: NfsFh3,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Result<Result<WriteOk, NfsStat3>> {
        let data = Bytes::copy_from_slice(data);
        let args = WriteArgs { file, offset, count: data.len() as u32, stable, data };
        self.call::<_, _, WccData>(procs::WRITE, &args)
    }

    /// Writes the beginning of a file, and answers the write verifier.
    fn write_unstable(&mut self, file: NfsFh3, data: &[u8]) -> Result<WriteVerf3> {
        let wrote = self.write(file, 0, data, StableHow::Unstable)?;
        Ok(wrote.map_err(|e| anyhow::anyhow!("WRITE answers {e:?}"))?.verf)
    }

    /// Unstable writes and a commit, once more where the verifier says that some may have been lost.
    fn write_all(&mut self, file: NfsFh3, data: &[u8]) -> Result<()> {
        for _ in 0..10 {
            let mut verifiers = BTreeSet::new();
            for (n, part) in data.chunks(40_000).enumerate() {
                let wrote = self.write(file, n as u64 * 40_000, part, StableHow::Unstable)?;
                let wrote = wrote.map_err(|e| anyhow::anyhow!("WRITE answers {e:?}"))?;
                ensure!(wrote.count as usize == part.len(), "a short WRITE");
                verifiers.insert(wrote.verf);
            }
            let args = CommitArgs { file, offset: 0, count: 0 };
            let done = self.call::<_, CommitOk, WccData>(procs::COMMIT, &args)?;
            verifiers.insert(done.map_err(|e| anyhow::anyhow!("COMMIT answers {e:?}"))?.verf);
            if verifiers.len() == 1 {
                return Ok(());
            }
        }
        bail!("the write verifier never stays")
    }

    /// Work in a folder that nobody else changes: every call must have the answer of a call that comes once.
    fn own_step(&mut self, n: u32) -> Result<()> {
        let good = |what: &str, n: u32, status: NfsStat3| anyhow::anyhow!("{what} of step {n}: {status:?}");
        let name = format!("p{n}");
        let file = self.create(&name)?.map_err(|e| good("CREATE", n, e))?;
        let data = Noise::new(u64::from(n)).bytes([90, 5_000, 130_000][n as usize % 3]);
        self.write_all(file, &data)?;
        self.promised.files.insert(name.clone(), data);
        if n % 3 == 1 {
            let new = format!("q{n}");
            let args = RenameArgs { from: at(&self.dir, &name), to: at(&self.dir, &new) };
            self.call::<_, RenameWcc, RenameWcc>(procs::RENAME, &args)?.map_err(|e| good("RENAME", n, e))?;
            let data = self.promised.files.remove(&name).unwrap_or_default();
            self.promised.files.insert(new, data);
        }
        if n % 5 == 4 {
            let doomed = self.promised.files.keys().next().cloned().unwrap_or_default();
            let args = at(&self.dir, &doomed);
            self.call::<_, WccData, WccData>(procs::REMOVE, &args)?.map_err(|e| good("REMOVE", n, e))?;
            self.promised.files.remove(&doomed);
        }
        if n % 4 == 2 {
            let more = Noise::new(u64::from(n) << 32).bytes(3_000);
            let whole =
                self.promised.files.entry(if n % 3 == 1 { format!("q{n}") } else { name }).or_default();
            let end = whole.len() as u64;
            whole.extend(&more);
            self.write(file, end, &more, StableHow::FileSync)?.map_err(|e| good("WRITE", n, e))?;
        }
        Ok(())
    }

    /// Saves one of a few files as editors do: a new one gets the name of the old.
    fn save(&mut self, n: u32) -> Result<()> {
        let name = format!("s{}", n % SAVED);
        let data = Noise::new(u64::from(n)).bytes(200 + n as usize % 700);
        let file = self.make(&format!(".new{n}"))?;
        self.write_all(file, &data)?;
        self.put(&format!(".new{n}"), &name)?;
        self.promised.files.insert(name, data);
        Ok(())
    }

    fn make(&mut self, name: &str) -> Result<NfsFh3> {
        self.create(name)?.map_err(|e| anyhow::anyhow!("CREATE of {name}: {e:?}"))
    }

    /// Gives a file a name that another may have.
    fn put(&mut self, new: &str, name: &str) -> Result<()> {
        let args = RenameArgs { from: at(&self.dir, new), to: at(&self.dir, name) };
        let renamed = self.call::<_, RenameWcc, RenameWcc>(procs::RENAME, &args)?;
        renamed.map_err(|e| anyhow::anyhow!("RENAME of {new}: {e:?}"))?;
        Ok(())
    }

    /// What a name of a short file stands for.
    fn content(&mut self, name: &str) -> Result<Vec<u8>> {
        let found = self.call::<_, LookupOk, PostOpAttr>(procs::LOOKUP, &at(&self.dir, name))?;
        let file = found.map_err(|e| anyhow::anyhow!("LOOKUP of {name}: {e:?}"))?.object;
        let args = ReadArgs { file, offset: 0, count: 4096 };
        let read = self.call::<_, ReadOk, PostOpAttr>(procs::READ, &args)?;
        Ok(read.map_err(|e| anyhow::anyhow!("READ of {name}: {e:?}"))?.data.concat())
    }

    /// Work in a folder that another program changes too: what fails was not promised.
    fn shared_step(&mut self, n: u32) -> Result<()> {
        let (name, log) = (format!("c{n}"), format!("log{}", n % 3));
        if let Ok(file) = self.create(&name)? {
            self.token(file, 0, format!("ours {n} new\n"))?;
        }
        let found = self.call::<_, LookupOk, PostOpAttr>(procs::LOOKUP, &at(&self.dir, &log))?;
        if let Ok(found) = found {
            let args = GetattrArgs { object: found.object };
            if let Ok(ok) = self.call::<_, GetattrOk, ()>(procs::GETATTR, &args)? {
                self.token(found.object, ok.obj_attributes.size, format!("ours {n} log\n"))?;
            }
        }
        std::thread::sleep(Duration::from_millis(15));
        Ok(())
    }

    fn token(&mut self, file: NfsFh3, offset: u64, token: String) -> Result<()> {
        if self.write(file, offset, token.as_bytes(), StableHow::FileSync)?.is_ok() {
            self.promised.tokens.push(token);
        }
        Ok(())
    }
}

/// Another program at the home. It never destroys anything itself: it makes new files, and appends.
struct Meddler {
    dir: PathBuf,
    /// The step that the client is at.
    step: Arc<AtomicU32>,
}

impl Meddler {
    fn run(&self, stop: &AtomicBool) -> Result<Vec<String>> {
        let mut tokens = Vec::new();
        for n in 0u32.. {
            if stop.load(Relaxed) {
                break;
            }
            // A name that the client is about to use, or has just used.
            let soon = self.step.load(Relaxed) + n % 3;
            let name = if n % 2 == 0 { format!("c{soon}") } else { format!("log{}", n % 3) };
            let path = self.dir.join(name);
            let fresh = !path.exists();
            let token = format!("theirs {n}\n");
            let mut file = fs::File::options().append(true).create(true).open(&path)?;
            if fresh {
                ANN.own(&path)?;
            }
            file.write_all(token.as_bytes())?;
            tokens.push(token);
            std::thread::sleep(Duration::from_millis(40));
        }
        Ok(tokens)
    }
}

/// Every file of a folder.
fn contents(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        all.insert(entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?);
    }
    Ok(all)
}

fn compare(promised: &BTreeMap<String, Vec<u8>>, dir: &Path) -> Result<()> {
    let there = contents(dir)?;
    let missing: Vec<_> = promised.keys().filter(|name| !there.contains_key(*name)).collect();
    let strange: Vec<_> = there.keys().filter(|name| !promised.contains_key(*name)).collect();
    let other: Vec<_> =
        promised.iter().filter(|(name, data)| there.get(*name).is_some_and(|t| t != *data)).collect();
    let other: Vec<_> = other.into_iter().map(|(name, _)| name).collect();
    ensure!(
        missing.is_empty() && strange.is_empty() && other.is_empty(),
        "missing at the home: {missing:?}; there, and not promised: {strange:?}; with another content: {other:?}"
    );
    Ok(())
}

fn contains(text: &[u8], token: &[u8]) -> bool {
    text.windows(token.len()).any(|w| w == token)
}
