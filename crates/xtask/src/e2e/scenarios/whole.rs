//! Long files that are written anew over a slow way that is cut: whoever looks at the home sees the earlier content or the whole new
//! one, and what the home was given before a cut does not travel again.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::guest::Guest;
use crate::e2e::proc::wait_for;
use crate::e2e::sshd::Sshd;
use crate::e2e::trees;
use crate::e2e::world::World;
use crate::run;
use crate::wan_link::link::{Link, Options, Way};
use crate::wan_link::relay::Relay;
use anyhow::{Context, Result, anyhow, ensure};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// One way.
const DELAY: Duration = Duration::from_millis(15);
/// Bytes per second: some seconds for each file.
const RATE: u64 = 8 << 20;
const SIZE: u64 = 48 << 20;
/// Bytes that may be under way when a connection ends, and are lost.
const LOST_MAX: u64 = 6 << 20;
const CUTS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(120);

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    let work = world.home_dir(ANN, "work")?;
    let sshd = Sshd::start(&world.dir, "far", "")?;
    let options = Options { delay: DELAY, rate: [RATE; 2], ..Options::default() };
    let relay = Relay::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), sshd.addr, options)?;
    fs::write(world.known_hosts(), sshd.known_hosts()?)?;
    world.route("far", relay.addr())?;
    let server = world.serve(&[])?;
    let there = format!("ann@far{}", work.display());
    let here = fuse::mount(world, &server, "whole")?.join(&there);
    let files = Files::new(world, &work)?;

    let copy = |line: String| {
        let mut bash = Command::new("bash");
        bash.args(["-euc", &line]).uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir("/");
        run::output(&mut bash).map(drop)
    };
    let went = || relay.link().count(Way::Up).bytes.load(Relaxed);
    let before = went();
    files.stays_whole("by FUSE", relay.link(), CUTS, || {
        copy(format!("cp '{}' '{}/file'", files.source.display(), here.display()))
    })?;
    let went = went() - before;
    println!("{SIZE} bytes went home over {CUTS} cuts, {went} over the wire");
    ensure!(went < SIZE + CUTS * LOST_MAX + (SIZE / 10), "{went} bytes went for {SIZE}");

    files.renew(world)?;
    let script = format!("cp '{}' '/trellis/{there}/file'\n", files.source.display());
    files.stays_whole("by NFS", relay.link(), 0, || {
        Guest::new(world, server.addr, GATEWAY, &script, PATIENCE)?.run().map(drop)
    })?;
    server.sync()?;
    let left = spools(world);
    ensure!(left.is_empty(), "left at the home: {left:?}");
    Ok(())
}

/// A long file at the home, and what is to take its place.
struct Files {
    old: Vec<u8>,
    new: Vec<u8>,
    source: PathBuf,
    target: PathBuf,
}

impl Files {
    fn new(world: &World, work: &Path) -> Result<Files> {
        let (source, target) = (world.dir.join("new"), work.join("file"));
        trees::noise_file(&source, 3, SIZE)?;
        GATEWAY.own(&source)?;
        trees::noise_file(&target, 4, SIZE / 2)?;
        ANN.own(&target)?;
        Ok(Files { old: fs::read(&target)?, new: fs::read(&source)?, source, target })
    }

    fn renew(&self, world: &World) -> Result<()> {
        world.write_home(ANN, &self.target, &self.old)
    }

    /// Looks at the home again and again while something is written, and the way cut so often, until all of it is there.
    fn stays_whole(
        &self,
        how: &str,
        link: &Link,
        cuts: u64,
        write: impl FnOnce() -> Result<()> + Send,
    ) -> Result<()> {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| self.look(&ended));
            let cutting = scope.spawn(|| {
                for _ in 0..cuts {
                    std::thread::sleep(Duration::from_millis(2500));
                    link.cut();
                }
            });
            let written = write();
            let arrives = || wait_for("the new content", PATIENCE, || self.is_there().then_some(()));
            let arrived = written.and_then(|()| arrives());
            ended.store(true, Relaxed);
            cutting.join().map_err(|_| anyhow!("cutting panicked"))?;
            let looks = looking.join().map_err(|_| anyhow!("looking panicked"))?;
            arrived?;
            let looks = looks.context(how.to_owned())?;
            println!("{how}: whole at each of {looks} looks");
            ensure!(looks > 20, "{how}: {looks} looks are too few to tell");
            Ok(())
        })
    }

    fn is_there(&self) -> bool {
        self.target.metadata().is_ok_and(|meta| meta.len() == SIZE)
    }

    fn look(&self, ended: &AtomicBool) -> Result<usize> {
        let mut looks = 0;
        loop {
            let last = ended.load(Relaxed);
            let there = fs::read(&self.target)?;
            let is_whole = there == self.old || there == self.new;
            ensure!(is_whole, "a part of it is there: {} bytes", there.len());
            looks += 1;
            if last {
                ensure!(there == self.new, "the new content is not there");
                return Ok(looks);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What is staged at the home.
fn spools(world: &World) -> Vec<PathBuf> {
    let volumes =
        fs::read_dir(world.home(ANN).join(".cache/trellis/volumes")).into_iter().flatten().flatten();
    let files = volumes.flat_map(|volume| fs::read_dir(volume.path()).into_iter().flatten().flatten());
    let is_spool = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".trellis-spool-"))
    };
    files.map(|file| file.path()).filter(is_spool).collect()
}
