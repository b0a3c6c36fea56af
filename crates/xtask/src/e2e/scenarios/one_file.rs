//! One file that is written, cut, mapped and read at random, on a FUSE mount and on an NFS mount at one time: it reads as
//! it was written, the home keeps up, and nothing of it is read back from the home.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::guest::Guest;
use crate::e2e::proc::wait_for;
use crate::e2e::server::Server;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How soon after the writers the home has everything, at a usual disk.
const DRAINED: Duration = Duration::from_secs(10);

/// A sample for CI.
pub fn run(world: &World) -> Result<()> {
    for_seconds(world, 10)
}

/// What counts.
pub fn run_long(world: &World) -> Result<()> {
    for_seconds(world, 1800)
}

fn for_seconds(world: &World, seconds: u64) -> Result<()> {
    fuse::allow()?;
    let work = world.home_dir(ANN, "work")?;
    fs::write(world.dir.join("one_file.py"), include_str!("one_file.py"))?;
    let _lab = world.host("lab", "", None)?;
    let mut server = world.serve(&[])?;
    let tree = fuse::mount(world, &server, "tree")?;
    let script = |name: &str, seed: u64| {
        let dir = work.display();
        format!("cd \"$ROOT/ann@lab{dir}\"\npython3 \"$W/one_file.py\" {name} {seed} {seconds}\n")
    };
    let limit = Duration::from_secs(seconds + 120);
    let here = Guest::here(world, &tree, GATEWAY, &script("by-fuse", 1), limit)?;
    let there = Guest::new(world, server.addr, GATEWAY, &script("by-nfs", 2), limit)?;
    let (here, there) = (here.start()?, there.start()?);
    let said = [("by-fuse", here.finish()?), ("by-nfs", there.finish()?)];
    drained(&server)?;
    for (name, said) in said {
        let sum = said.split_whitespace().last().with_context(|| format!("{name} said nothing"))?;
        ensure!(sum == sha256(&work.join(name))?, "{name} has other bytes at the home");
    }
    thrifty(&server)?;
    server.must_run()
}

/// Without anybody asking for it, the home has everything soon.
fn drained(server: &Server) -> Result<()> {
    let began = Instant::now();
    wait_for("an empty queue", DRAINED, || {
        let home = server.home_status("ann@lab").ok()?;
        (home["unsent_ops"] == 0).then_some(())
    })?;
    println!("all is at the home after {:?}", began.elapsed());
    Ok(())
}

/// What came from the home are answers to changes, and no content.
fn thrifty(server: &Server) -> Result<()> {
    let home = server.home_status("ann@lab")?;
    let number = |what: &str| home[what].as_u64().with_context(|| format!("status shows no {what}"));
    let (bytes, trips) = (number("bytes_in")?, number("round_trips")?);
    println!("{bytes} bytes came in {trips} answers, {} went out", number("bytes_out")?);
    ensure!(bytes < (128 << 10) + 512 * trips, "{bytes} bytes came from the home in {trips} answers");
    ensure!(home["conflicts"] == 0 && home["parked"] == serde_json::json!([]), "{home}");
    Ok(())
}

fn sha256(file: &Path) -> Result<String> {
    let said = run::output(Command::new("sha256sum").arg(file))?;
    Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
}
