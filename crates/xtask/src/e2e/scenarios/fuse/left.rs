//! The server alone is killed while many programs work in one directory through two of its mounts, and nobody runs
//! anything of ours afterwards. A thread of it tells the kernel of a name then, now and then, and waits for the directory
//! that a program has locked, which waits for an answer.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse::{self, FUSECTL, GUARD};
use crate::e2e::proc::{signal_all, wait_for, with_command};
use crate::e2e::server::Server;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How soon every program must hear that the server has gone.
const HEARD: Duration = Duration::from_secs(3);
/// How soon a killed guard must be replaced, on a busy machine, too.
const REPLACED: Duration = Duration::from_secs(15);
/// How soon `trellis mount` must come back after server and guard were killed.
const MOUNTED: Duration = Duration::from_secs(40);

/// Kills the server so often; an error tells how often programs hung.
pub fn alone(world: &World, rounds: usize) -> Result<()> {
    fuse::allow_abort()?;
    fs::write(world.dir.join("stir.py"), include_str!("stir.py"))?;
    let work = world.home_dir(ANN, "stirred")?;
    let mut server = world.serve_as("left", &[])?;
    let mounts = [fuse::mount(world, &server, "left")?, fuse::mount(world, &server, "right")?];
    let tops = mounts.each_ref().map(|m| PathBuf::from(format!("{}/ann@lab{}", m.display(), work.display())));
    guarded_again()?;
    let (mut hung, mut slowest) = (0, Duration::ZERO);
    for round in 0..rounds {
        let heard = one(world, &mut server, &tops, round).with_context(|| format!("round {round}"))?;
        slowest = slowest.max(heard.unwrap_or_default());
        if heard.is_none() {
            hung += 1;
        }
        server.restart()?;
    }
    with_its_guard(world, &mut server, &mounts[0], &tops, rounds)?;
    println!("killed alone {rounds} times: programs hung {hung} times, else heard of it within {slowest:?}");
    for mount in &mounts {
        server.run(&["umount", &mount.to_string_lossy()])?;
    }
    server.run(&["stop"])?;
    ensure!(hung == 0, "programs hung in {hung} of {rounds} rounds");
    Ok(())
}

/// How long it took until all programs had ended after the kill; `None` if they hang.
fn one(world: &World, server: &mut Server, tops: &[PathBuf; 2], round: usize) -> Result<Option<Duration>> {
    let mut load = stir(world, tops)?;
    // Another moment of the work in each round.
    std::thread::sleep(Duration::from_millis(300 + 13 * (round as u64 % 30)));
    ensure!(load.try_wait()?.is_none(), "the load ended before the kill");
    ensure!(with_command(GUARD).len() == 1, "two mounts of one server have one guard");
    server.kill_alone()?;
    let killed = Instant::now();
    let ended = wait_for("the end of the load", HEARD, || load.try_wait().transpose());
    let heard = killed.elapsed();
    match ended {
        Ok(status) => {
            let status = status?;
            ensure!(
                status.success(),
                "a program heard something else than that the server has gone: {status}"
            );
            server.wait(HEARD).context("the killed server")?;
            let guard = || with_command(GUARD).is_empty().then_some(());
            wait_for("the guard's end", HEARD, guard)?;
            Ok(Some(heard))
        }
        Err(_) => {
            abort()?;
            load.wait()?;
            server.wait(HEARD).context("the killed server")?;
            Ok(None)
        }
    }
}

/// Somebody kills the guard, again and again: nothing is left of it, and another one takes its place.
fn guarded_again() -> Result<()> {
    for _ in 0..3 {
        let old = wait_for("a guard", REPLACED, || the_guard().ok())?;
        rustix::process::kill_process(old, Signal::KILL)?;
        let killed = Instant::now();
        wait_for("the end of the killed guard", REPLACED, || {
            let left = Path::new("/proc").join(old.as_raw_nonzero().to_string());
            (!left.exists()).then_some(())
        })?;
        wait_for("another guard", REPLACED, || the_guard().ok().filter(|new| *new != old))?;
        println!("another guard after {:?}", killed.elapsed());
    }
    Ok(())
}

fn the_guard() -> Result<Pid> {
    match with_command(GUARD)[..] {
        [guard] => Ok(guard),
        ref guards => bail!("{} guards", guards.len()),
    }
}

/// Server and guard are killed together, and somebody mounts again while the load may hang; in every other round nobody
/// can abort connections. The command comes back in any case, and with it the mount where that is possible.
fn with_its_guard(
    world: &World,
    server: &mut Server,
    dir: &Path,
    tops: &[PathBuf; 2],
    rounds: usize,
) -> Result<()> {
    let (mut slowest, mut refused) = (Duration::ZERO, 0);
    for round in 0..rounds {
        let fusectl = round % 2 == 0;
        if !fusectl {
            run::output(Command::new("umount").arg(FUSECTL)).context("fusectl")?;
        }
        let mut load = stir(world, tops)?;
        std::thread::sleep(Duration::from_millis(300 + 17 * (round as u64 % 30)));
        signal_all(&[the_guard()?], Signal::KILL);
        server.kill_alone()?;
        let begun = Instant::now();
        let mut mount = server.command(&["mount", &dir.to_string_lossy()]);
        let mut mount = mount.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let done = wait_for("trellis mount", MOUNTED, || mount.try_wait().transpose());
        slowest = slowest.max(begun.elapsed());
        if !fusectl {
            fuse::allow_abort()?;
        }
        let mounted = done.with_context(|| format!("round {round}, fusectl {fusectl}"))??.success();
        let said = std::io::read_to_string(mount.stderr.take().context("its output")?)?;
        println!("round {round}, fusectl {fusectl}: {:?}, {}", begun.elapsed(), said.trim());
        ensure!(mounted || !fusectl && said.contains(FUSECTL), "round {round}: {said}");
        refused += usize::from(!mounted);
        if !mounted {
            abort()?;
        }
        wait_for("the end of the load", HEARD, || load.try_wait().transpose())??;
        server.wait(HEARD).context("the killed server")?;
        if mounted {
            // 1: it ended, and keeps what is unsent.
            let stopped = server.command(&["stop", "--drain", "0"]).output()?;
            ensure!(matches!(stopped.status.code(), Some(0 | 1)), "stop: {stopped:?}");
        }
        server.restart()?;
    }
    println!(
        "killed with its guard {rounds} times: mount came back within {slowest:?}, {refused} times without a mount"
    );
    Ok(())
}

/// The load, which has begun.
fn stir(world: &World, tops: &[PathBuf; 2]) -> Result<Child> {
    let mut load = Command::new("/usr/bin/python3");
    load.arg(world.dir.join("stir.py")).args(tops);
    load.uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut load = load.spawn()?;
    let mut line = String::new();
    BufReader::new(load.stdout.take().context("its output")?).read_line(&mut line)?;
    ensure!(line == "begun\n", "the load has not begun: {line}");
    Ok(load)
}

/// Frees what hangs in mounts of ours, so that no process stays behind.
fn abort() -> Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    for line in table.lines().filter(|l| l.contains(" - fuse.trellis ")) {
        let device = line.split(' ').nth(2).and_then(|d| d.split_once(':')).context("mountinfo")?;
        // One that has ended already is not there.
        let _ = fs::write(Path::new(FUSECTL).join(device.1).join("abort"), "1");
    }
    Ok(())
}
