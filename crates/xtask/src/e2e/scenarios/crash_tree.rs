//! Whole trees are changed at random on a FUSE mount, at a home with an agent and at one without. The server is killed
//! between two calls, so that every call was acknowledged, and its ssh at any time. What the mount shows at once, and what the
//! home has in the end, is what a local disk has after the same calls. Nobody else changes anything, so nothing is a conflict
//! or refused.
//!
//! A failing home goes on with a fresh tree, so that the end tells in how many rounds each failed. `TRELLIS_SEED` repeats
//! calls and kills.

use crate::e2e::accounts::{ANN, Account, BOB, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::kills::{self, Chance, Kill};
use crate::e2e::server::Server;
use crate::e2e::world::World;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Every so many rounds the homes are looked at, too; meanwhile what is unsent outlives several kills.
const SETTLE_EVERY: usize = 4;
/// Calls of a round: few meet the last of them on their way, many meet a long queue.
const CALLS: [u64; 4] = [12, 60, 200, 500];
/// So many differences are printed of one look.
const SHOWN: usize = 20;

/// The compact version.
pub fn run(world: &World) -> Result<()> {
    rounds(world, |round, began| round < 40 && began.elapsed() < Duration::from_secs(40))
}

/// Long enough to meet rare moments.
pub fn run_long(world: &World) -> Result<()> {
    rounds(world, |round, _| round < 400)
}

const KILLS: [Kill; 5] =
    [Kill::Server, Kill::ServerWithAll, Kill::ServerTwice, Kill::Ssh, Kill::ServerWithAllTwice];

fn rounds(world: &World, more: fn(usize, Instant) -> bool) -> Result<()> {
    let seed = kills::seed()?;
    println!("TRELLIS_SEED={seed}");
    fuse::allow()?;
    let _lab = world.host("lab", "", None)?;
    let _box = world.host("box", "ForceCommand internal-sftp", None)?;
    std::fs::write(world.dir.join("tree.py"), include_str!("tree.py"))?;
    let mut server = world.serve(&[])?;
    let mount = fuse::mount(world, &server, "tree")?;
    let mut homes =
        [Home::new(world, &mount, ANN, "lab", seed)?, Home::new(world, &mount, BOB, "box", seed)?];
    let mut chance = Chance::new(seed);
    let (mut round, began) = (0, Instant::now());
    let mut goes_on = true;
    while goes_on {
        let kill = KILLS[round % KILLS.len()];
        let calls = CALLS[chance.below(CALLS.len() as u64) as usize];
        println!("{:.1?} round {round}: {calls} calls, {kill:?}", began.elapsed());
        one(&mut server, &mut homes, &mut chance, (kill, calls)).with_context(|| format!("round {round}"))?;
        round += 1;
        goes_on = more(round, began);
        let settle = round % SETTLE_EVERY == 0 || !goes_on;
        for home in &mut homes {
            home.look(&server, settle)?;
            if std::mem::take(&mut home.wrong) {
                println!("FAILED at {} in round {}, {kill:?}, TRELLIS_SEED={seed}", home.name, round - 1);
                home.failed.push(round - 1);
                home.start_afresh(world, &mut server)?;
            }
        }
    }
    let told = |h: &Home| format!("{} failed in {} of {round} rounds {:?}", h.name, h.failed.len(), h.failed);
    let told = homes.each_ref().map(told).join("; ");
    println!("{told}; {:.0?}", began.elapsed());
    ensure!(homes.iter().all(|h| h.failed.is_empty()), "TRELLIS_SEED={seed}: {told}");
    Ok(())
}

/// Calls at each home, and a kill.
fn one(
    server: &mut Server,
    homes: &mut [Home],
    chance: &mut Chance,
    (kill, calls): (Kill, u64),
) -> Result<()> {
    for home in &mut *homes {
        home.player.tell(&format!("go {calls}"))?;
    }
    let meanwhile = matches!(kill, Kill::Ssh);
    if meanwhile {
        chance.pause(calls);
        kill.strike(server, ANN, chance)?;
    }
    for home in &mut *homes {
        let answer = home.player.answer()?;
        home.note("a call", &answer);
    }
    if !meanwhile {
        // What was acknowledged last is on its way, or not yet.
        chance.pause(30);
        kill.strike(server, ANN, chance)?;
    }
    Ok(())
}

/// A home, and who changes a tree there.
struct Home {
    name: String,
    /// The account's home directory, there.
    dir: PathBuf,
    /// The same on the mount.
    here: PathBuf,
    seed: u64,
    /// How many trees there were.
    trees: usize,
    player: Script,
    /// Reads what only root may at the home.
    looker: Script,
    /// Copies of conflicts that are known.
    copies: u64,
    /// Whether something failed in this round.
    wrong: bool,
    /// The last calls.
    last: Vec<String>,
    /// What differed last.
    told: Vec<String>,
    /// The rounds that failed.
    failed: Vec<usize>,
}

impl Home {
    fn new(world: &World, mount: &Path, account: Account, host: &str, seed: u64) -> Result<Self> {
        let (name, dir) = (format!("{}@{host}", account.name), world.home(account));
        let here = mount.join(format!("{name}{}", dir.display()));
        let (player, looker) = Script::pair(world, &here, &name, 0, seed)?;
        let (last, told, failed) = (Vec::new(), Vec::new(), Vec::new());
        let (trees, copies, wrong) = (0, 0, false);
        Ok(Self { name, dir, here, seed, trees, player, looker, copies, wrong, last, told, failed })
    }

    /// Compares what the mount shows; where the homes must have everything, also what this one has.
    fn look(&mut self, server: &Server, settle: bool) -> Result<()> {
        let tree = tree_name(self.trees);
        let seen = self.player.ask(&format!("compare {}", self.here.join(&tree).display()))?;
        self.note("on the mount at once", &seen);
        if !(settle || self.wrong) {
            return Ok(());
        }
        if let Err(e) = server.run(&["sync", "--timeout", "120", &self.here.to_string_lossy()]) {
            println!("{}: sync: {e:#}", self.name);
            self.wrong = true;
        }
        let seen = self.player.ask(&format!("compare {}", self.here.join(&tree).display()))?;
        self.note("on the mount after a sync", &seen);
        let there = self.looker.ask(&format!("compare {}", self.dir.join(&tree).display()))?;
        self.note("at the home", &there);
        let status = server.home_status(&self.name)?;
        // Conflicts are counted from the start of the server on; of those before it the copies tell.
        let none = status["conflicts"] == 0 && status["conflict_copies"] == self.copies;
        let calm = none && status["parked"].as_array().is_some_and(Vec::is_empty);
        if !calm {
            println!("{}: nobody else changed anything, and yet: {status}", self.name);
            self.wrong = true;
        }
        Ok(())
    }

    /// Prints what differs, after the last calls.
    fn note(&mut self, at: &str, answer: &Value) {
        let lines = |what: &str| -> Vec<String> {
            let all = answer[what].as_array().into_iter().flatten();
            all.filter_map(|line| line.as_str().map(str::to_owned)).collect()
        };
        // Who only looks has called nothing.
        let last = Some(lines("last")).filter(|last| !last.is_empty());
        self.last = last.unwrap_or_else(|| std::mem::take(&mut self.last));
        let differs = lines("differs");
        if differs.is_empty() {
            return;
        }
        if self.told.is_empty() {
            println!("{}: the last calls: {}", self.name, self.last.join("; "));
        }
        let what = match differs == self.told {
            true => "the same differs".to_owned(),
            false => {
                format!("{} differ:\n  {}", differs.len(), differs[..differs.len().min(SHOWN)].join("\n  "))
            }
        };
        println!("{}: {at}, {what}", self.name);
        (self.wrong, self.told) = (true, differs);
    }

    /// Leaves the tree as it is, gives up what the home refuses of it, and starts a server that has met no conflict.
    fn start_afresh(&mut self, world: &World, server: &mut Server) -> Result<()> {
        let path = self.here.to_string_lossy().into_owned();
        let settled = (0..20).any(|_| {
            // What was refused may be settled meanwhile, and then nothing is left to give up.
            let _ = server.run(&["discard", &path, "--all"]);
            server.run(&["sync", "--timeout", "60", &path]).is_ok()
        });
        ensure!(settled, "{}: what was refused does not come to an end", self.name);
        kills::with_all(server)?;
        server.run(&["sync", "--timeout", "60", &path])?;
        let copies = &server.home_status(&self.name)?["conflict_copies"];
        self.copies = copies.as_u64().context("status shows no copies of conflicts")?;
        self.trees += 1;
        self.told.clear();
        (self.player, self.looker) = Script::pair(world, &self.here, &self.name, self.trees, self.seed)?;
        Ok(())
    }
}

fn tree_name(number: usize) -> String {
    format!("tree-{number}")
}

/// `tree.py`, which answers each command by a line.
struct Script {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Script {
    /// One that works on the mount below `here`, and one that may read everything at the home.
    fn pair(world: &World, here: &Path, home: &str, number: usize, seed: u64) -> Result<(Self, Self)> {
        let shadow = world.home(GATEWAY).join(format!("{home}-{number}"));
        let command = || {
            let mut cmd = Command::new("/usr/bin/python3");
            cmd.arg(world.dir.join("tree.py")).arg(here.join(tree_name(number))).arg(&shadow);
            cmd.arg(seed.wrapping_add(number as u64).to_string()).current_dir("/");
            cmd
        };
        let player = Self::start(command().uid(GATEWAY.uid).gid(GATEWAY.uid))?;
        Ok((player, Self::start(&mut command())?))
    }

    fn start(cmd: &mut Command) -> Result<Self> {
        let mut child = cmd.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("tree.py")?;
        let commands = child.stdin.take().context("its input")?;
        let answers = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, commands, answers })
    }

    fn tell(&mut self, command: &str) -> Result<()> {
        Ok(writeln!(self.commands, "{command}")?)
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("tree.py says {line:?}"))
    }

    fn ask(&mut self, command: &str) -> Result<Value> {
        self.tell(command)?;
        self.answer()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
