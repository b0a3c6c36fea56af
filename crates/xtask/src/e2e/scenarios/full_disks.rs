//! No space: at the home, on the disk of the state directory; and a home that was mounted read-only.

pub mod with_log;

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::proc::wait_for;
use crate::e2e::server::{Gateway, Server};
use crate::e2e::sshd::Sshd;
use crate::e2e::trees::Noise;
use crate::e2e::world::World;
use crate::nfs::{Client, status_of};
use crate::run;
use anyhow::{Result, ensure};
use oncrpc::nfs3::*;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the disk of the state directory holds.
const STATE: &str = "160m";

/// Folders that are made while the disk is full.
const NAMES: u64 = 300;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let (small, locked) = (world.home_dir(ANN, "small")?, world.home_dir(ANN, "locked")?);
    let (work, killed) = (world.home_dir(ANN, "work")?, world.home_dir(ANN, "killed")?);
    let state = world.home_dir(GATEWAY, "server-state")?;
    for (dir, size, who) in [(&small, "2m", ANN), (&locked, "2m", ANN), (&state, STATE, GATEWAY)] {
        run::mount_tmpfs(dir, &format!("size={size},mode=700,uid={uid},gid={uid}", uid = who.uid))?;
    }
    let mut lab = world.host("lab", "", None)?;
    let mut server = world.serve(&["--cache", "1GiB"])?;
    new_home_when_full(world, &server)?;
    let (client, root) = world.client(&server)?;
    let into = |client: &Client, dir: &Path| client.walk(&root, &format!("ann@lab{}", dir.display()));

    let (there, shut) = (into(&client, &small)?, into(&client, &locked)?);
    refused_at_once(&server, (&client, &there), &small)?;
    // A home that has no space when it is back, and one that cannot be written, keep nobody from working.
    lab.kill()?;
    let big = Noise::new(1).bytes(3 << 20);
    let file = client.create(&there, "big")?;
    for (n, part) in big.chunks(512 << 10).enumerate() {
        client.write(&file, n as u64 * (512 << 10), part, StableHow::FileSync)?;
    }
    lab.restart()?;
    client.put(&shut, "early", b"x")?;
    wait_for("the first file", Duration::from_secs(20), || locked.join("early").exists().then_some(()))?;
    // What is known to be read-only is refused at once; this is taken while nobody can be asked.
    lab.kill()?;
    run::mount_tmpfs(&locked, "remount,ro")?;
    client.put(&shut, "late", b"kept")?;
    lab.restart()?;
    let parked = || Ok::<_, anyhow::Error>(server.home_status("ann@lab")?["parked"].to_string());
    wait_for("parked operations", Duration::from_secs(20), || {
        parked().ok().filter(|p| p.contains("space") && p.contains("read-only"))
    })?;
    println!("parked: {}", parked()?);
    ensure!(!server.command(&["sync", "--timeout", "60"]).status()?.success(), "sync says that all is there");
    ensure!(client.read_all(&file)? == big, "what waits here cannot be read");
    run::mount_tmpfs(&small, "remount,size=16m")?;
    run::mount_tmpfs(&locked, "remount,rw")?;
    wait_for("what was refused", Duration::from_secs(75), || {
        server.home_status("ann@lab").ok().filter(|s| s["unsent_ops"] == 0)
    })?;
    ensure!(fs::read(small.join("big"))? == big && fs::read(locked.join("late"))? == b"kept");
    let status = server.home_status("ann@lab")?;
    ensure!(status["conflicts"] == 0, "a full disk is no conflict: {status}");

    decided(&server, &mut lab, &world.home(GATEWAY), (&client, &shut), &locked)?;

    // The disk of the state directory: what is taken is kept, and the way home makes room.
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
    killed_when_full(world, &mut server, &mut lab, &killed)
}

/// While a home can be asked, what it has no room for is not taken, and all that is taken goes there.
fn refused_at_once(server: &Server, (client, dir): (&Client, &NfsFh3), at_home: &Path) -> Result<()> {
    const PART: u64 = 100_000;
    let bytes = Noise::new(2).bytes(3 << 20);
    let file = client.create(dir, "taken")?;
    let mut taken = 0;
    loop {
        let part = &bytes[taken as usize..(taken + PART) as usize];
        let wrote = client.write(&file, taken, part, StableHow::FileSync);
        match status_of(&wrote) {
            Some(NfsStat3::Ok) => taken += PART,
            Some(NfsStat3::NoSpc) => break,
            _ => return wrote.map(drop),
        }
    }
    println!("{taken} bytes were taken for a home of 2 MiB");
    server.sync()?;
    ensure!((1_800_000..2 << 20).contains(&taken), "what fits is taken, and no more");
    ensure!(fs::read(at_home.join("taken"))? == bytes[..taken as usize]);
    let status = server.home_status("ann@lab")?;
    ensure!(status["parked"] == serde_json::json!([]), "what was taken was refused: {status}");
    // What makes room goes first.
    client.remove(dir, "taken")?;
    client.put(dir, "after", &bytes[..1 << 20])?;
    client.remove(dir, "after")?;
    server.sync()
}

/// A home that was never seen has no place on a full disk: that is said at once, and it works when there is room.
fn new_home_when_full(world: &World, server: &Server) -> Result<()> {
    let file = Gateway::new(world).state().join("everything-else");
    fill_up(&file)?;
    let began = Instant::now();
    let out = server.command(&["ls", "bob@lab"]).output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(!out.status.success() && said.contains("no space for local state"), "{}: {said}", out.status);
    ensure!(began.elapsed() < Duration::from_secs(10), "that took {:?}", began.elapsed());
    let status = server.run(&["status"])?;
    ensure!(status.contains("bob@lab") && status.contains("no space for local state"), "{status}");
    let doctor = server.command(&["doctor"]).output()?;
    let found = String::from_utf8_lossy(&doctor.stdout);
    ensure!(found.contains("what is new of a home has no place there"), "{found}");
    fs::remove_file(&file)?;
    wait_for("the new home", Duration::from_secs(20), || server.run(&["ls", "bob@lab"]).ok()).map(drop)
}

/// What a person does about refused changes.
fn decided(
    server: &Server,
    lab: &mut Sshd,
    home: &Path,
    (client, dir): (&Client, &NfsFh3),
    locked: &Path,
) -> Result<()> {
    let fails = |args: &[&str], why: &str| {
        let out = server.command(args).output()?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(out.status.code() == Some(1) && said.contains(why), "{args:?}: {}: {said}", out.status);
        Ok(())
    };
    let mut refuse = |name: &str| {
        let before = format!("before-{name}");
        wait_for("a folder that can be written", Duration::from_secs(20), || {
            client.put(dir, &before, b"x").ok()
        })?;
        server.sync()?;
        lab.kill()?;
        run::mount_tmpfs(locked, "remount,ro")?;
        client.put(dir, name, b"refused")?;
        lab.restart()?;
        wait_for("a refusal", Duration::from_secs(20), || {
            let home = server.home_status("ann@lab").ok()?;
            home["parked"]
                .to_string()
                .contains(&format!("create file {}/{name}", locked.display()))
                .then_some(())
        })
    };
    fails(&["export", "none", "ann@lab"], "has refused nothing")?;
    fails(&["export", "none"], "no home has refused anything")?;
    refuse("wanted")?;
    fails(&["retry", "ann@lab", "--timeout", "20"], "not everything is at its home")?;
    server.run(&["export", "saved"])?;
    let saved = home.join("saved").join(locked.strip_prefix("/")?);
    ensure!(fs::read(saved.join("wanted"))? == b"refused" && fs::read_dir(&saved)?.count() == 1);
    fails(&["export", "saved", "ann@lab"], "new or empty directory")?;
    run::mount_tmpfs(locked, "remount,rw")?;
    server.run(&["retry", "ann@lab"])?;
    ensure!(fs::read(locked.join("wanted"))? == b"refused");

    refuse("unwanted")?;
    fails(&["discard", "ann@lab", "1"], "1 is not the number of a refused change")?;
    let given_up = server.run(&["discard", "ann@lab", "--all", "--json"])?;
    ensure!(given_up.contains("create file") && given_up.contains("write to"), "{given_up}");
    run::mount_tmpfs(locked, "remount,rw")?;
    server.sync()?;
    ensure!(!locked.join("unwanted").exists() && client.lookup(dir, "unwanted").is_err());
    let status = server.home_status("ann@lab")?;
    ensure!(status["parked"] == serde_json::json!([]) && status["unsent_ops"] == 0, "{status}");
    Ok(())
}

/// kill -9 when nobody finds a free byte: with nobody making space, what was acknowledged
/// goes home, and then there is room for more.
fn killed_when_full(world: &World, server: &mut Server, lab: &mut Sshd, work: &Path) -> Result<()> {
    let (client, root) = world.client(server)?;
    let dir = client.walk(&root, &format!("ann@lab{}", work.display()))?;
    ensure!(client.list(&dir)?.iter().all(|e| e.name.starts_with(b".")), "the folder should be empty");
    lab.kill()?;
    let state = Gateway::new(world).state();
    // Bytes until there is no room for more of them; others take the rest; names still find the space that is held.
    let taken = fill(&client, &dir)?;
    fill_up(&state.join("somebody-elses"))?;
    for n in 0..NAMES {
        client.mkdir(&dir, format!("d{n}"))?;
    }
    println!("{taken} files of 1 MiB and {NAMES} folders were taken");
    ensure!(taken > 20, "the disk was not full of what is unsent");
    for round in 0..3 {
        server.kill()?;
        fill_up(&state.join(format!("killed-{round}")))?;
        server.restart()?;
    }
    lab.restart()?;
    let began = Instant::now();
    server.sync()?;
    println!("at home {:?} after the home came back", began.elapsed());
    for n in 0..taken {
        ensure!(fs::read(work.join(format!("f{n}")))? == content(n), "f{n} has other bytes at the home");
    }
    ensure!((0..NAMES).all(|n| work.join(format!("d{n}")).is_dir()), "acknowledged folders are missing");
    let (client, root) = world.client(server)?;
    let dir = client.walk(&root, &format!("ann@lab{}", work.display()))?;
    wait_for("room for more", Duration::from_secs(60), || client.put(&dir, "after", b"on it goes").ok())?;
    server.sync()?;
    ensure!(fs::read(work.join("after"))? == b"on it goes");
    let status = server.home_status("ann@lab")?;
    ensure!(status["conflicts"] == 0 && status["parked"] == serde_json::json!([]), "{status}");
    Ok(())
}

/// Somebody else takes every byte that is free.
fn fill_up(file: &Path) -> Result<()> {
    let mut file = fs::File::create(file)?;
    for size in [1 << 20, 4096, 1] {
        let bytes = vec![1; size];
        while file.write_all(&bytes).is_ok() {}
    }
    Ok(())
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
