//! Server, ssh and agent are killed in turn, at moments that a seed decides, while programs work on a FUSE mount and on a
//! kernel's NFS mount of one home, and another program changes the same folders there. Each write tells who made it, and
//! whether all of it is there.
//!
//! In the end what was acknowledged as stable is at the home, under its name or, where others write too, in the copy of a
//! conflict; no file that was saved by a change of names is mixed; the other program's bytes are there; where nobody else
//! changes anything nothing is a conflict; nothing of ours is left; and no program has hung. `kill_clients.py` works and looks.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::guest::{Guest, Running};
use crate::e2e::kills::{self, Chance, Kill};
use crate::e2e::proc;
use crate::e2e::server::{Gateway, Server};
use crate::e2e::world::{SERVER_IP, World};
use crate::run;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::getpid;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What is killed in turn: the server more often, because it is what both clients talk to.
const TURN: [Kill; 8] = [
    Kill::ServerWithAll,
    Kill::Ssh,
    Kill::Agent,
    Kill::Server,
    Kill::SshOfLateAgent,
    Kill::Agent,
    Kill::ServerTwice,
    Kill::Ssh,
];
/// Longest pauses between two kills, in milliseconds: short ones hit logins, long ones hit work.
const PAUSES: [u64; 4] = [300, 1000, 2000, 5000];
/// After so many kills all must have arrived that was acknowledged before.
const SETTLE_EVERY: usize = 50;
/// After the last kill, until the look from a mount: the bound of staleness, and more.
const FRESH: Duration = Duration::from_secs(7);

/// The compact version.
pub fn run(world: &World) -> Result<()> {
    under_kills(world, 10, Duration::from_secs(240))
}

/// Long enough to meet rare moments.
pub fn run_long(world: &World) -> Result<()> {
    under_kills(world, 510, Duration::from_secs(80 * 60))
}

fn under_kills(world: &World, kills: usize, limit: Duration) -> Result<()> {
    let seed = kills::seed()?;
    println!("TRELLIS_SEED={seed}");
    fuse::allow()?;
    fuse::allow_abort()?;
    fs::write(world.dir.join("kill_clients.py"), include_str!("kill_clients.py"))?;
    let work = world.home_dir(ANN, "work")?;
    for folder in ["own-fuse", "own-nfs", "own-outside", "both", "shared"] {
        world.home_dir(ANN, &format!("work/{folder}"))?;
    }
    let _lab = world.host("lab", "", None)?;
    let mut server = world.serve(&[])?;
    let tree = fuse::mount(world, &server, "tree")?;
    let mut workers = Workers::start(world, &server, (&tree, &work), seed, limit)?;
    let done = kill_in_turn(&mut server, &mut workers, kills, &mut Chance::new(seed));
    if done.is_err() {
        println!("its processes:\n{}", proc::doings(&proc::family(getpid())));
    }
    done?;
    let promises = workers.finish(world)?;
    server.sync()?;
    let home = server.home_status("ann@lab")?;
    ensure!(home["parked"] == serde_json::json!([]), "something was refused: {home}");
    let python = |args: [&Path; 3]| {
        let mut cmd = Command::new("/usr/bin/python3");
        cmd.arg(world.dir.join("kill_clients.py")).arg("check").args(args);
        cmd
    };
    look(&mut python([&work, &world.home(ANN), &promises])).context("at the home")?;
    std::thread::sleep(FRESH);
    let seen = tree.join(format!("ann@lab{}", work.display()));
    let line = run::show(&python([&seen, Path::new("-"), &promises]));
    look(&mut Gateway::new(world).shell(&line)).context("on the mount")?;
    server.must_run()
}

/// What `kill_clients.py` finds wrong is an error.
fn look(cmd: &mut Command) -> Result<()> {
    let out = cmd.output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    print!("{said}");
    ensure!(out.status.success(), "a promise is broken, see above {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

/// So many kills that hit something.
fn kill_in_turn(server: &mut Server, workers: &mut Workers, kills: usize, chance: &mut Chance) -> Result<()> {
    let began = Instant::now();
    let mut hits: BTreeMap<Kill, usize> = BTreeMap::new();
    let (mut done, mut settled) = (0, 0);
    for n in 0.. {
        if done >= kills {
            break;
        }
        let longest = PAUSES[chance.below(PAUSES.len() as u64) as usize];
        chance.pause(longest);
        let kill = TURN[n % TURN.len()];
        let killed = kill.strike(server, ANN, chance).with_context(|| format!("kill {done}: {kill:?}"))?;
        // Several processes of one kind that die together are one kill; a server that is killed twice is two.
        let hit = if matches!(kill, Kill::ServerTwice) { killed } else { killed.min(1) };
        *hits.entry(kill).or_default() += hit;
        done += hit;
        workers.must_work().with_context(|| format!("after kill {done}, {kill:?}"))?;
        ensure!(n < 4 * kills, "most kills find nobody: {hits:?}");
        if done / SETTLE_EVERY > settled {
            settled = done / SETTLE_EVERY;
            server.sync().with_context(|| format!("after kill {done}"))?;
            println!("{:.0?}: {done} kills, all has arrived\n{}", began.elapsed(), workers.last_words());
        }
    }
    println!("{:.0?}: {done} kills: {hits:?}", began.elapsed());
    Ok(())
}

/// The clients and the other program.
struct Workers(Vec<Worker>);

struct Worker {
    name: &'static str,
    running: Running,
    /// Its end is told here, and answered by what the worker promises.
    line: TcpStream,
}

impl Workers {
    fn start(
        world: &World,
        server: &Server,
        (tree, work): (&Path, &Path),
        seed: u64,
        limit: Duration,
    ) -> Result<Self> {
        let place = TcpListener::bind((SERVER_IP, 0))?;
        let to = place.local_addr()?;
        let script = |kind: &str, name: &str, dir: &str| {
            format!("exec python3 \"$W/kill_clients.py\" {kind} {name} \"$ROOT{dir}\" {to} {seed}\n")
        };
        let on_mount = format!("/ann@lab{}", work.display());
        let outside = Guest::here(world, work, ANN, &script("outside", "outside", ""), limit)?;
        let by_fuse = Guest::here(world, tree, GATEWAY, &script("client", "fuse", &on_mount), limit)?;
        let by_nfs = Guest::new(world, server.addr, GATEWAY, &script("client", "nfs", &on_mount), limit)?;
        let mut all = Vec::new();
        for (name, guest) in [("outside", outside), ("fuse", by_fuse), ("nfs", by_nfs)] {
            let running = guest.start()?;
            place.set_nonblocking(true)?;
            let soon = Duration::from_secs(60);
            let (line, _) = proc::wait_for(name, soon, || place.accept().ok())
                .with_context(|| format!("{name} does not begin: {}", running.said()))?;
            line.set_nonblocking(false)?;
            all.push(Worker { name, running, line });
        }
        Ok(Self(all))
    }

    /// An error once one has found a fault, or hangs.
    fn must_work(&mut self) -> Result<()> {
        for Worker { name, running, .. } in &mut self.0 {
            let said = running.said();
            ensure!(!said.contains("FAULT") && running.works()?, "{name} works no more:\n{said}");
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let last = |w: &Worker| w.running.said().lines().last().map(|line| format!("  {line}\n"));
        self.0.iter().filter_map(last).collect()
    }

    /// Ends all of them; answers the folder with what they promise.
    fn finish(self, world: &World) -> Result<PathBuf> {
        let promises = world.dir.join("promises");
        fs::create_dir(&promises)?;
        for Worker { name, running, mut line } in self.0 {
            line.shutdown(Shutdown::Write)?;
            line.set_read_timeout(Some(Duration::from_secs(320)))?;
            let mut text = Vec::new();
            let read = line.read_to_end(&mut text);
            if read.is_err() || text.is_empty() {
                bail!("{name} does not tell its promises ({read:?}):\n{}", running.said());
            }
            running.finish().context(name)?;
            fs::write(promises.join(name), text)?;
        }
        Ok(promises)
    }
}
