//! No space: at the home, on the disk of the state directory; and a home that was mounted read-only.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::proc::wait_for;
use crate::e2e::trees::Noise;
use crate::e2e::world::World;
use crate::nfs::{Client, status_of};
use crate::run;
use anyhow::{Result, ensure};
use oncrpc::nfs3::*;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What the disk of the state directory holds.
const STATE: &str = "160m";

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let (small, locked) = (world.home_dir(ANN, "small")?, world.home_dir(ANN, "locked")?);
    let state = world.home_dir(GATEWAY, "server-state")?;
    for (dir, size, who) in [(&small, "2m", ANN), (&locked, "2m", ANN), (&state, STATE, GATEWAY)] {
        mount(dir, &format!("size={size},mode=700,uid={uid},gid={uid}", uid = who.uid))?;
    }
    let mut lab = world.host("lab", "", None)?;
    let server = world.serve(&["--cache", "1GiB"])?;
    let (client, root) = world.client(&server)?;
    let into = |client: &Client, dir: &Path| client.walk(&root, &format!("ann@lab{}", dir.display()));

    // A home without space, and one that cannot be written, keep nobody from working.
    let (there, shut) = (into(&client, &small)?, into(&client, &locked)?);
    let big = Noise::new(1).bytes(3 << 20);
    let file = client.create(&there, "big")?;
    for (n, part) in big.chunks(512 << 10).enumerate() {
        client.write(&file, n as u64 * (512 << 10), part, StableHow::FileSync)?;
    }
    client.put(&shut, "early", b"x")?;
    wait_for("the first file", Duration::from_secs(20), || locked.join("early").exists().then_some(()))?;
    mount(&locked, "remount,ro")?;
    client.put(&shut, "late", b"kept")?;
    let parked = || Ok::<_, anyhow::Error>(server.home_status("ann@lab")?["parked"].to_string());
    wait_for("parked operations", Duration::from_secs(20), || {
        parked().ok().filter(|p| p.contains("space") && p.contains("read-only"))
    })?;
    println!("parked: {}", parked()?);
    ensure!(!server.command(&["sync", "--timeout", "60"]).status()?.success(), "sync says that all is there");
    ensure!(client.read_all(&file)? == big, "what waits here cannot be read");
    mount(&small, "remount,size=16m")?;
    mount(&locked, "remount,rw")?;
    wait_for("what was refused", Duration::from_secs(75), || {
        server.home_status("ann@lab").ok().filter(|s| s["unsent_ops"] == 0)
    })?;
    ensure!(fs::read(small.join("big"))? == big && fs::read(locked.join("late"))? == b"kept");
    let status = server.home_status("ann@lab")?;
    ensure!(status["conflicts"] == 0, "a full disk is no conflict: {status}");

    // The disk of the state directory: what is taken is kept, and the way home makes room.
    let work = world.home_dir(ANN, "work")?;
    let dir = into(&client, &work)?;
    ensure!(client.list(&dir)?.iter().all(|e| e.name.starts_with(b".")), "the folder should be empty");
    lab.kill()?;
    let taken = fill(&client, &dir)?;
    println!("{taken} files of 1 MiB were taken");
    ensure!((20..160).contains(&taken), "the state directory holds {STATE}");
    lab.restart()?;
    server.sync()?;
    for n in 0..taken {
        ensure!(fs::read(work.join(format!("f{n}")))? == content(n), "f{n} has other bytes at the home");
    }
    // JUKEBOX until the bytes that are only a cache now have made room.
    let began = Instant::now();
    client.put(&dir, "after", b"there is room again")?;
    println!("taken again after {:?}", began.elapsed());
    server.sync()?;
    ensure!(fs::read(work.join("after"))? == b"there is room again");
    Ok(())
}

fn mount(dir: &Path, options: &str) -> Result<()> {
    run::output(Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir)).map(drop)
}

fn content(n: u64) -> Vec<u8> {
    Noise::new(n).bytes(1 << 20)
}

/// Writes files until one is not taken; answers how many were.
fn fill(client: &Client, dir: &NfsFh3) -> Result<u64> {
    for n in 0u64.. {
        let wrote = client.put(dir, format!("f{n}"), &content(n));
        match status_of(&wrote) {
            Some(NfsStat3::Ok) => {}
            Some(NfsStat3::Jukebox | NfsStat3::NoSpc) => return Ok(n),
            _ => return wrote.map(|_| n),
        }
    }
    Ok(0)
}
