//! The surroundings themselves: if this fails, look here and not at the product.

use crate::e2e::accounts::{ANN, BOB, GATEWAY};
use crate::e2e::sshd::Sshd;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Result, ensure};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Every account logs in where it should, nobody logs in elsewhere, and no account exists outside.
pub fn run(world: &World) -> Result<()> {
    let mut lab = world.host("lab", "", None)?;
    let _box = world.host("box", "ForceCommand internal-sftp", None)?;
    let unknown = Sshd::start(&world.dir, "unknown", "")?;
    world.route("unknown", unknown.addr)?;
    for who in [ANN, BOB] {
        let said = run::output(&mut ssh(world, &format!("{}@lab", who.name), "id -u; pwd"))?;
        ensure!(said == format!("{}\n{}\n", who.uid, world.home(who).display()), "{said}");
    }
    for (host, why) in [("unknown", "Host key verification failed"), ("box", "sftp connections only")] {
        let out = ssh(world, host, "id").output()?;
        let said = [out.stdout, out.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(!out.status.success() && said.contains(why), "{host}: {said}");
    }
    lab.change_host_key()?;
    ensure!(!ssh(world, "lab", "id").status()?.success(), "a changed host key was accepted");
    Ok(())
}

fn ssh(world: &World, host: &str, command: &str) -> Command {
    let mut cmd = Command::new("ssh");
    cmd.arg("-F").arg(world.ssh_config()).args(["-o", "BatchMode=yes", host, command]);
    cmd.uid(GATEWAY.uid).gid(GATEWAY.uid).env("HOME", world.home(GATEWAY));
    cmd
}
