//! A scenario runs in network, mount and process namespaces of its own, as process 1 of the last: when
//! it ends, however it ends, nothing that it started lives on, and no account, mount or address remains.

use crate::run;
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts this program again in new namespaces, with `args`. What it says goes to `log`, or, where that
/// is `None`, to our own output. Killing the child ends everything inside.
pub fn start(args: &[&str], log: Option<&Path>) -> Result<Child> {
    let mut cmd = Command::new("unshare");
    cmd.args(["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]);
    cmd.args(["--propagation", "private", "--"]).arg(std::env::current_exe()?).args(args);
    cmd.stdin(Stdio::null());
    if let Some(path) = log {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        cmd.stdout(file.try_clone()?).stderr(file);
    }
    // SAFETY: prctl is async-signal-safe; it makes the kernel end the child if we die.
    unsafe {
        cmd.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    cmd.spawn().with_context(|| format!("cannot run {}", run::show(&cmd)))
}

/// Inside: a loopback network with the address that guests know, an empty `/run`, and an `/etc` that only this mount
/// namespace has. All of it: a file that is mounted over another is gone once somebody outside replaces that.
pub fn furnish(etc: &Path) -> Result<()> {
    let sh = |line: &str| run::output(Command::new("sh").args(["-euc", line]));
    sh("ip link set lo up; ip addr add 10.199.0.1/32 dev lo")?;
    sh("mount -t tmpfs -o mode=755 tmpfs /run; mkdir -p /run/sshd /run/lock")?;
    run::output(Command::new("mount").arg("--bind").arg(etc).arg("/etc"))?;
    Ok(())
}
