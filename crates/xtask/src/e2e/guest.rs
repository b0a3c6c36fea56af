//! A client: a machine of its own, whose kernel has mounted the export at `/trellis`, or this machine with a FUSE
//! mount.

use super::accounts::Account;
use super::proc::Daemon;
use super::world::World;
use crate::kernel_client;
use anyhow::{Context, Result, bail};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Mount options besides those that `serve` prints: none, so that tests mount as users do.
const MOUNT: &str = "vers=3,tcp,nolock,nosuid,nodev";

/// What stands before each script: an error ends it and is told.
const PRELUDE: &str = "set -euo pipefail\nstep() { echo \"[$(cut -d. -f1 /proc/uptime)s] $*\"; }\n\
     fail() { echo \"FAILED: $*\"; exit 1; }\n\
     trap 'echo \"FAILED at line $LINENO: $BASH_COMMAND\"' ERR\ncd /\n";

/// A script to run on a client machine.
pub struct Guest {
    cmd: Command,
    log: PathBuf,
    limit: Duration,
}

impl Guest {
    /// `script` is bash, run by `who` with `set -euo pipefail`; `$W` is the scenario's folder, `$ROOT` the mount,
    /// `$TMP` a folder of the client's own; what the script writes anywhere but on the mount does not reach the host.
    pub fn new(
        world: &World,
        server: SocketAddr,
        who: Account,
        script: &str,
        limit: Duration,
    ) -> Result<Self> {
        Self::mounted(world, server, who, script, limit, "")
    }

    /// The same, with mount options behind the usual ones, each after a comma.
    pub fn mounted(
        world: &World,
        server: SocketAddr,
        who: Account,
        script: &str,
        limit: Duration,
        options: &str,
    ) -> Result<Self> {
        let number = fs::read_dir(&world.dir)?.count();
        let file = world.dir.join(format!("script-{number}"));
        fs::write(&file, format!("{PRELUDE}{script}"))?;
        let mut cmd = Command::new(kernel_client::script());
        let port = server.port();
        cmd.args(["run", "--timeout", &limit.as_secs().to_string(), "--mem", "2G"]);
        cmd.args(["--mount", &format!("{port}:/:/trellis:{MOUNT}{options}")]);
        cmd.args(["--env", &format!("W={}", world.dir.display()), "--"]);
        let uid = who.uid;
        cmd.args(["setpriv", &format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"]);
        cmd.args(["env", "HOME=/tmp", "GIT_CONFIG_NOSYSTEM=1", "ROOT=/trellis", "TMP=/tmp", "bash"])
            .arg(file);
        cmd.current_dir("/").env("TMPDIR", &world.dir);
        Ok(Self { cmd, log: world.dir.join(format!("guest-{number}.log")), limit })
    }

    /// The same on this very machine, where the tree is mounted at `root`; `$TMP` is a folder of the account.
    pub fn here(world: &World, root: &Path, who: Account, script: &str, limit: Duration) -> Result<Self> {
        let number = fs::read_dir(&world.dir)?.count();
        let file = world.dir.join(format!("script-{number}"));
        fs::write(&file, format!("{PRELUDE}{script}"))?;
        let own = who.home(&world.dir).join(format!("tmp-{number}"));
        fs::create_dir(&own)?;
        who.own(&own)?;
        let mut cmd = Command::new("bash");
        cmd.arg(file).uid(who.uid).gid(who.uid).env_clear().current_dir("/");
        cmd.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("HOME", who.home(&world.dir));
        cmd.env("GIT_CONFIG_NOSYSTEM", "1").env("W", &world.dir).env("ROOT", root).env("TMP", own);
        Ok(Self { cmd, log: world.dir.join(format!("client-{number}.log")), limit })
    }

    /// Runs to the end, which must be good.
    pub fn run(self) -> Result<String> {
        self.start()?.finish()
    }

    /// Begins; the scenario goes on beside it.
    pub fn start(mut self) -> Result<Running> {
        let daemon = Daemon::start("the client", &mut self.cmd, &self.log)?;
        Ok(Running { daemon, log: self.log, limit: self.limit })
    }
}

/// A client machine at work.
pub struct Running {
    daemon: Daemon,
    log: PathBuf,
    limit: Duration,
}

impl Running {
    /// Whether it still works.
    pub fn works(&mut self) -> Result<bool> {
        Ok(self.daemon.ended()?.is_none())
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        fs::read(&self.log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    /// Waits for its end, which must be good; answers what it said.
    pub fn finish(mut self) -> Result<String> {
        let status = self.daemon.wait(self.limit + Duration::from_secs(60)).context("the client")?;
        let said = self.said();
        print!("{said}");
        if !status.success() {
            bail!("the script on the client failed ({status}); its output is above");
        }
        Ok(said)
    }
}
