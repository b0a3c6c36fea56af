//! FUSE mounts by an account without privileges.

use super::accounts::GATEWAY;
use super::server::Server;
use super::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The words by which the guard of a process's mounts is known.
pub const GUARD: &str = "mount-guard guard";

/// Where the kernel lets users abort their connections.
pub const FUSECTL: &str = "/sys/fs/fuse/connections";

/// Lets every account of this scenario use FUSE, as nearly every machine does: a device node of our own in the
/// scenario's mount namespace, so that the machine's stays as it is.
pub fn allow() -> Result<()> {
    let line = "mknod -m 666 /run/fuse c 10 229; mount --bind /run/fuse /dev/fuse";
    run::output(Command::new("sh").args(["-euc", line])).map(drop).context("/dev/fuse")
}

/// Mounts fusectl, as systemd does.
pub fn allow_abort() -> Result<()> {
    run::output(Command::new("mount").args(["-t", "fusectl", "fusectl", FUSECTL]))
        .map(drop)
        .context("fusectl")
}

/// `trellis mount` on a new directory of this name in the home directory of [`GATEWAY`].
pub fn mount(world: &World, server: &Server, name: &str) -> Result<PathBuf> {
    let dir = world.home(GATEWAY).join(name);
    fs::create_dir(&dir)?;
    GATEWAY.own(&dir)?;
    let said = server.run(&["mount", &dir.to_string_lossy()]).context("trellis mount")?;
    ensure!(said.contains("is mounted; try"), "trellis mount says: {said}");
    Ok(dir)
}

/// The directories of all FUSE mounts of ours on this machine.
pub fn mounted() -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mounts")?;
    let ours = table.lines().filter(|l| l.split(' ').nth(2) == Some("fuse.trellis"));
    Ok(ours.filter_map(|l| l.split(' ').nth(1)).map(PathBuf::from).collect())
}
