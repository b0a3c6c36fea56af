//! The server is killed again and again under a mount that is being used.

use super::left;
use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::proc::wait_for;
use crate::e2e::server::Server;
use crate::e2e::world::World;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How soon whoever uses a mount must hear that its server has gone.
const HEARD: Duration = Duration::from_secs(10);

/// A sample for CI.
pub fn run(world: &World) -> Result<()> {
    times(world, 8)
}

/// What counts.
pub fn run_long(world: &World) -> Result<()> {
    times(world, 200)
}

fn times(world: &World, times: usize) -> Result<()> {
    fuse::allow()?;
    let _lab = world.host("lab", "", None)?;
    cycles(world, times)?;
    left::alone(world, times.max(10))
}

fn cycles(world: &World, cycles: usize) -> Result<()> {
    let work = world.home_dir(ANN, "work")?;
    fs::write(world.dir.join("load.py"), include_str!("load.py"))?;
    let mut server = world.serve(&[])?;
    let tree = fuse::mount(world, &server, "tree")?;
    let notes = world.home(GATEWAY).join("notes");
    for cycle in 0..cycles {
        let top = format!("{}/ann@lab{}/{cycle}", tree.display(), work.display());
        one(world, &mut server, (cycle, &top), &notes).with_context(|| format!("cycle {cycle}"))?;
        ensure!(fuse::mounted()? == [tree.clone()], "cycle {cycle}: mounts {:?}", fuse::mounted()?);
    }
    server.sync()?;
    check(&work, &notes)?;
    server.run(&["umount", &tree.to_string_lossy()])?;
    ensure!(fuse::mounted()?.is_empty(), "a mount is left");
    Ok(())
}

/// Load, a kill in the midst of it, and a server that comes back; every other one is told to mount, the rest do so by
/// themselves.
fn one(world: &World, server: &mut Server, (cycle, top): (usize, &str), notes: &Path) -> Result<()> {
    let before = lines(notes);
    let mut load = Command::new("/usr/bin/python3");
    load.arg(world.dir.join("load.py")).arg(top).arg(notes);
    load.uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir("/").stdin(Stdio::null()).stderr(Stdio::null());
    let mut load = load.spawn()?;
    let loaded = wait_for("acknowledged files", Duration::from_secs(60), || {
        let ended = load.try_wait().ok().flatten().is_some();
        (ended || lines(notes) > before + 3).then_some(!ended)
    })?;
    ensure!(loaded, "the load ended before the kill");
    // Another moment of the work in each cycle.
    std::thread::sleep(Duration::from_millis(7 * (cycle as u64 % 30)));
    server.kill()?;
    ends(&mut load)?;
    if cycle % 2 == 1 {
        let tree = Path::new(top).ancestors().find(|p| p.ends_with("tree")).context("the mount")?;
        detached_by_hand(server, tree)?;
    }
    server.restart()?;
    if cycle % 2 == 1 {
        let tree = Path::new(top).ancestors().find(|p| p.ends_with("tree")).context("the mount")?;
        server.run(&["mount", &tree.to_string_lossy()])?;
    }
    Ok(())
}

/// Without a server `umount` takes a dead mount away, and the next server does not mount there by itself.
fn detached_by_hand(server: &Server, tree: &Path) -> Result<()> {
    server.run(&["umount", &tree.to_string_lossy()])?;
    ensure!(fuse::mounted()?.is_empty(), "a dead mount was not taken away");
    Ok(())
}

fn ends(load: &mut Child) -> Result<()> {
    let ended = wait_for("the end of the load", HEARD, || load.try_wait().transpose());
    if ended.is_err() {
        load.kill()?;
    }
    let status = ended.context("a process hangs in a dead mount")??;
    ensure!(!status.success(), "the load did not hear of the server's end");
    Ok(())
}

fn lines(notes: &Path) -> usize {
    fs::read(notes).unwrap_or_default().iter().filter(|b| **b == b'\n').count()
}

/// Whatever was closed without an error is at the home, whole.
fn check(work: &Path, notes: &Path) -> Result<()> {
    let notes = fs::read_to_string(notes)?;
    for name in notes.lines() {
        let number = name.rsplit('/').next().unwrap_or_default();
        let text = fs::read_to_string(work.join(name)).with_context(|| format!("{name} was acknowledged"))?;
        ensure!(text == format!("{number}\n").repeat(500), "{name} holds {} other bytes", text.len());
    }
    println!("{} acknowledged files are at the home", notes.lines().count());
    Ok(())
}
