//! One GiB in and out through a kernel mount.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::guest::Guest;
use crate::e2e::trees;
use crate::e2e::world::World;
use anyhow::{Result, ensure};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

const SIZE: u64 = 1 << 30;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let source = world.dir.join("big");
    trees::noise_file(&source, 7, SIZE)?;
    GATEWAY.own(&source)?;
    let work = world.home_dir(ANN, "work")?;
    let _lab = world.host("lab", "", None)?;
    let server = world.serve(&[])?;

    let path = format!("/trellis/ann@lab{}", work.display());
    let script = format!(
        "cd '{path}'\nstep in\ncp \"$W/big\" big\n\
         touch -d '2001-02-03 04:05:06.123456789' big\nsync\nstep 'in is stable'\n\
         [[ $(stat -c %s big) == {SIZE} ]]\ncmp big \"$W/big\"\nstep 'read again'\n"
    );
    Guest::new(world, server.addr, GATEWAY, &script, Duration::from_secs(300))?.run()?;
    server.sync()?;
    ensure!(trees::same_bytes(&source, &work.join("big"))?, "other bytes arrived at the home");
    let arrived = work.join("big").metadata()?;
    ensure!(
        arrived.mtime_nsec() == 123_456_789,
        "the time arrived as {}.{}",
        arrived.mtime(),
        arrived.mtime_nsec()
    );

    // What only the home has: nothing of it is in any cache.
    let other = work.join("other");
    trees::noise_file(&other, 8, SIZE)?;
    ANN.own(&other)?;
    let script = format!(
        "step out\ncp '{path}/other' /tmp/out\nstep 'is out'\ncmp /tmp/out '{}'\n",
        other.display() // The same file, without the server in between.
    );
    Guest::new(world, server.addr, GATEWAY, &script, Duration::from_secs(300))?.run().map(drop)
}
