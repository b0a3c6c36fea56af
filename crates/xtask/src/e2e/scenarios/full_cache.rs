//! A cache that is full of what the home does not have yet: writers wait for room in turn, and none fails; also where a
//! change that the home refuses stays in the cache all the time.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::proc::wait_for;
use crate::e2e::server::{Gateway, Server};
use crate::e2e::sshd::Sshd;
use crate::e2e::trees::Noise;
use crate::e2e::world::World;
use crate::nfs::status_of;
use crate::run;
use crate::wan_link::link::{Options, Way};
use crate::wan_link::relay::Relay;
use anyhow::{Context, Result, anyhow, ensure};
use oncrpc::nfs3::{NfsStat3, StableHow};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the cache holds.
const CACHE: &str = "64MiB";
/// Files that are written at the same time, and the MiB of each.
const FILES: usize = 4;
const FILE_MIB: u64 = 160;
/// Bytes per second that the way home takes.
const RATE: u64 = 32 << 20;
/// MiB that are acknowledged when the server is killed.
const KILL_AT: u64 = 256;
/// Files that many write at the same time, and the MiB of each, when the way home takes [`SLOW_RATE`].
const MANY: usize = 16;
const MANY_MIB: u64 = 8;
const SLOW_RATE: u64 = 8 << 20;
/// What one call may take at most, and the time between two files of the small writer.
const LONGEST: f64 = 20.0;
/// Bytes that are written by NFS, and when a kernel comes again (NFS_JUKEBOX_RETRY_TIME).
const NFS: usize = 4 << 20;
const JUKEBOX: Duration = Duration::from_secs(5);
/// Bytes that the home refuses.
const REFUSED: usize = 3 << 20;
const SOON: Duration = Duration::from_secs(20);
/// When writers hang that have not ended.
const HUNG: Duration = Duration::from_secs(150);

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    fs::write(world.dir.join("full_cache.py"), include_str!("full_cache.py"))?;
    let work = world.home_dir(ANN, "work")?;
    let mut sshd = Sshd::start(&world.dir, "lab", "")?;
    let relay =
        Relay::start("127.0.0.1:0".parse()?, sshd.addr, Options { rate: [RATE, 0], ..Options::default() })?;
    world.trust(&sshd)?;
    world.route("lab", relay.addr())?;
    let mut server = world.serve(&["--cache", CACHE])?;
    let tree = fuse::mount(world, &server, "tree")?;
    let there = |dir: &Path| tree.join(format!("ann@lab{}", dir.display()));
    let top = there(&work);
    let refused = refuse(world, &server, &mut sshd, there)?;

    let began = Instant::now();
    let writers = Writers::start(world, &top, "big", FILES, FILE_MIB)?;
    writers.until(KILL_AT)?;
    shows_unsent(&server)?;
    server.kill()?;
    server.restart()?;
    let told = writers.finish()?;
    println!("{} MiB were taken in {:?}", FILES as u64 * FILE_MIB, began.elapsed());
    wait_for("the rest at the home", HUNG, || all_but_refused(&server))?;
    println!("and are at home after {:?}", began.elapsed());
    check(world, &work, &told)?;

    relay.link().set_rate(Way::Up, SLOW_RATE);
    let began = Instant::now();
    let nfs = std::thread::scope(|scope| {
        let nfs = scope.spawn(|| by_nfs(world, &server, &work));
        let writers = Writers::start(world, &top, "many", MANY, MANY_MIB)?;
        let told = writers.finish()?;
        println!("{} MiB of {MANY} writers were taken in {:?}", MANY as u64 * MANY_MIB, began.elapsed());
        relay.link().set_rate(Way::Up, RATE);
        Ok::<_, anyhow::Error>((told, nfs.join()))
    });
    let (told, nfs) = nfs?;
    nfs.map_err(|_| anyhow!("the NFS client panicked"))??;
    wait_for("the rest at the home", HUNG, || all_but_refused(&server))?;
    check(world, &work, &told)?;
    ensure!(fs::read(work.join("by-nfs"))? == Noise::new(2).bytes(NFS), "by NFS other bytes arrived");

    take(&server, &refused)?;
    let status = server.home_status("ann@lab")?;
    ensure!(status["conflicts"] == 0 && status["parked"] == serde_json::json!([]), "{status}");
    server.run(&["umount", &tree.to_string_lossy()]).map(drop)
}

/// Whether everything is at the home that it takes.
fn all_but_refused(server: &Server) -> Option<()> {
    let home = server.home_status("ann@lab").ok()?;
    (home["unsent_bytes"].as_u64()? <= REFUSED as u64).then_some(())
}

/// A client that comes again when it is told to, as a kernel does.
fn by_nfs(world: &World, server: &Server, work: &Path) -> Result<()> {
    let (client, root) = world.client(server)?;
    let dir = client.walk(&root, &format!("ann@lab{}", work.display()))?;
    let file = client.create(&dir, "by-nfs")?;
    let mut longest = Duration::ZERO;
    for (n, part) in Noise::new(2).bytes(NFS).chunks(256 << 10).enumerate() {
        let began = Instant::now();
        loop {
            let wrote = client.write(&file, n as u64 * (256 << 10), part, StableHow::Unstable);
            match status_of(&wrote) {
                Some(NfsStat3::Jukebox) => std::thread::sleep(JUKEBOX),
                _ => break wrote.map(drop)?,
            }
        }
        longest = longest.max(began.elapsed());
    }
    println!("by NFS: {longest:?} for one call");
    ensure!(longest < Duration::from_secs_f64(LONGEST), "a write by NFS took {longest:?}");
    Ok(())
}

/// Bytes that the home has no room for: the oldest in the cache. While it is away it cannot say so.
fn refuse(
    world: &World,
    server: &Server,
    sshd: &mut Sshd,
    there: impl Fn(&Path) -> PathBuf,
) -> Result<PathBuf> {
    let small = world.home_dir(ANN, "small")?;
    run::mount_tmpfs(&small, &format!("size=1m,mode=700,uid={uid},gid={uid}", uid = ANN.uid))?;
    let source = world.home(GATEWAY).join("refused");
    fs::write(&source, Noise::new(1).bytes(REFUSED))?;
    run::output(&mut Gateway::new(world).shell(&format!("ls '{}'", there(&small).display())))?;
    sshd.kill()?;
    let line = format!("cat '{}' >'{}/refused'", source.display(), there(&small).display());
    run::output(&mut Gateway::new(world).shell(&line))?;
    sshd.restart()?;
    wait_for("a refused change", SOON, || {
        let home = server.home_status("ann@lab").ok()?;
        home["parked"].to_string().contains("space").then_some(())
    })?;
    Ok(small)
}

/// There is room at the home for what it refused, and it arrives.
fn take(server: &Server, small: &Path) -> Result<()> {
    run::mount_tmpfs(small, "remount,size=16m")?;
    server.run(&["retry", "ann@lab"])?;
    server.sync()?;
    ensure!(fs::read(small.join("refused"))? == Noise::new(1).bytes(REFUSED), "other bytes arrived");
    Ok(())
}

/// The kill comes when the cache is full.
fn shows_unsent(server: &Server) -> Result<()> {
    let cache = server.status()?["cache"].clone();
    println!("{cache}");
    let unsent = cache["dirty_bytes"].as_u64().context("no unsent bytes")?;
    ensure!(unsent > 32 << 20, "the cache is not full of what is unsent: {cache}");
    Ok(())
}

/// How writers of small files are called.
const SMALL: &str = "small";

/// Programs that write, by name.
struct Writers<'a> {
    world: &'a World,
    running: Vec<(String, Child)>,
}

impl<'a> Writers<'a> {
    /// Starts some with a large file each, and one with small ones.
    fn start(world: &'a World, top: &Path, kind: &str, files: usize, mib: u64) -> Result<Self> {
        let small = (format!("{SMALL}-{kind}"), "small");
        let names = (0..files).map(|n| (format!("{kind}{n}"), "big")).chain([small]);
        let stop = stop(world);
        // There is one where others have ended.
        let _ = fs::remove_file(&stop);
        let start = |(name, what): (String, &str)| {
            let mut writer = program(world);
            writer.args([
                what.as_ref(),
                top.as_os_str(),
                name.as_ref(),
                notes(world, &name).as_ref(),
                stop.as_ref(),
            ]);
            writer.arg(mib.to_string()).uid(GATEWAY.uid).gid(GATEWAY.uid).stdout(Stdio::piped());
            Ok((name, writer.spawn()?))
        };
        Ok(Writers { world, running: names.map(start).collect::<Result<_>>()? })
    }

    /// Waits until so many MiB are acknowledged.
    fn until(&self, mib: u64) -> Result<()> {
        let durable = |name: &String| last(&notes(self.world, name)).unwrap_or(0);
        let big = || self.running.iter().map(|(name, _)| name).filter(|name| !name.starts_with(SMALL));
        wait_for("acknowledged bytes", HUNG, || (big().map(durable).sum::<u64>() >= mib).then_some(()))
    }

    /// Waits for their ends; what each told.
    fn finish(mut self) -> Result<Vec<(String, Value)>> {
        let hung = Instant::now() + HUNG;
        let mut told = Vec::new();
        for (name, mut child) in self.running.drain(..) {
            if name.starts_with(SMALL) {
                fs::write(stop(self.world), "")?;
            }
            let left = hung.saturating_duration_since(Instant::now());
            let ended = wait_for(&format!("the end of {name}"), left, || child.try_wait().transpose());
            if ended.is_err() {
                child.kill()?;
            }
            let out = child.wait_with_output()?;
            ensure!(ended??.success(), "{name} failed");
            told.push((name, serde_json::from_slice(&out.stdout)?));
        }
        Ok(told)
    }
}

impl Drop for Writers<'_> {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Nobody waited too long, and whatever was acknowledged is at the home.
fn check(world: &World, work: &Path, told: &[(String, Value)]) -> Result<()> {
    for (name, told) in told {
        println!("{name}: {told}");
        let within = |what: &str| told[what].as_f64().is_some_and(|s| s < LONGEST);
        let small = name.starts_with(SMALL);
        ensure!(within("longest") && (!small || within("idle")), "{name} waited too long: {told}");
    }
    told.iter().try_for_each(|(name, _)| {
        let mut look = program(world);
        look.args(["check".as_ref(), work.as_os_str(), name.as_ref(), notes(world, name).as_ref()]);
        run::output(&mut look).map(drop)
    })
}

fn program(world: &World) -> Command {
    let mut program = Command::new("/usr/bin/python3");
    program.arg(world.dir.join("full_cache.py")).current_dir("/").stdin(Stdio::null());
    program
}

fn notes(world: &World, name: &str) -> PathBuf {
    world.home(GATEWAY).join(format!("notes-{name}"))
}

fn stop(world: &World) -> PathBuf {
    world.home(GATEWAY).join("stop")
}

/// The last number in a file of notes.
fn last(notes: &Path) -> Option<u64> {
    fs::read_to_string(notes).ok()?.lines().next_back()?.parse().ok()
}
