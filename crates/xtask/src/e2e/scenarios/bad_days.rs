//! An account out of quota, clocks that are set, a key that is withdrawn, a second server on one state directory, disks
//! that take no writes: in a guest of their own, whose file system keeps quotas and whose clock may be set.

use crate::e2e::world::World;
use crate::kernel_client;
use anyhow::{Result, ensure};
use std::fs::{self, File};
use std::process::Command;

/// Bytes of the disk, of which few are ever written.
const DISK: u64 = 512 << 20;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fs::write(world.dir.join("machine.py"), include_str!("machine.py"))?;
    fs::write(world.dir.join("bad_days.py"), include_str!("bad_days.py"))?;
    // It runs in the guest.
    drop(world.host("lab", "", None)?);
    let (disk, logs) = (world.dir.join("disk"), world.dir.join("logs"));
    File::create(&disk)?.set_len(DISK)?;
    fs::create_dir(&logs)?;
    let mut cmd = Command::new(kernel_client::script());
    cmd.args(["run", "--timeout", "400", "--mem", "2G", "--disk"]).arg(&disk);
    cmd.arg("--dir-rw").arg(format!("{}:/logs", logs.display()));
    cmd.args(["--", "python3"]).arg(world.dir.join("bad_days.py")).arg(&world.dir);
    let status = cmd.current_dir("/").env("TMPDIR", &world.dir).status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}
