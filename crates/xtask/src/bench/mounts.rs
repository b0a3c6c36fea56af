//! The mounts of one folder at a home that are compared: Trellis, sshfs and rclone.

use crate::e2e::{Account, Daemon, GATEWAY, Server, World, family, fuse, wait_for, with_variable};
use crate::run;
use anyhow::{Context, Result};
use rustix::process::Pid;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const SSHFS: &str = "sshfs";
pub const SSHFS_TUNED: &str = "sshfs, tuned";
pub const RCLONE: &str = "rclone";

/// The quickest one of ssh where the processor helps with AES, which Trellis takes there. It is not the default.
pub const CIPHER: &str = "aes128-gcm@openssh.com";

/// The environment variable that names the mount to which a process belongs.
const TAG: &str = "TRELLIS_BENCH_MOUNT";

/// A folder at a home, as clients reach it. The host's alias is `lab`.
pub struct Remote<'a> {
    /// Whose it is.
    pub account: Account,
    /// Where the host listens on 127.0.0.1, for what reads no configuration of ssh.
    pub port: u16,
    /// The folder.
    pub dir: &'a Path,
}

impl Remote<'_> {
    /// `user@host`.
    pub fn host(&self) -> String {
        format!("{}@lab", self.account.name)
    }
}

/// A mount under test. It ends when this is dropped, unless it is Trellis's, whose server has it.
pub struct Mounted {
    /// As it stands in the table.
    pub name: &'static str,
    /// The folder with the files.
    pub dir: PathBuf,
    pid: Pid,
    keep: Option<Daemon>,
}

impl Mounted {
    /// Its own process and all that it started: sshfs leaves its ssh to init, where only [`TAG`] tells whose it is.
    pub fn processes(&self) -> Vec<Pid> {
        let mut all = family(self.pid);
        all.extend(with_variable(&format!("{TAG}={}", self.name)));
        all.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        all.dedup();
        all
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.keep.take().is_some() {
            // What cannot be undone ends with the namespace.
            let _ = Command::new("umount").arg("--lazy").arg(&self.dir).status();
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// The folder on a new mount of a running server.
pub fn trellis(world: &World, name: &'static str, server: &Server, remote: &Remote<'_>) -> Result<Mounted> {
    let dir = fuse::mount(world, server, &server.name().replace([',', ' '], "-"))?;
    let dir = dir.join(format!("{}{}", remote.host(), remote.dir.display()));
    // The others have logged in when they are mounted.
    run::output(Command::new("ls").arg("-d").arg(&dir).uid(GATEWAY.uid).gid(GATEWAY.uid))?;
    let pid = Pid::from_raw(server.pid()).context("the server has no process")?;
    Ok(Mounted { name, dir, pid, keep: None })
}

/// [`SSHFS`] with its defaults, or [`SSHFS_TUNED`].
pub fn sshfs(world: &World, name: &'static str, remote: &Remote<'_>) -> Result<Mounted> {
    let options = match name {
        SSHFS_TUNED => {
            let options = "reconnect,kernel_cache,auto_cache,dcache_timeout=60,max_conns=4,compression=no";
            format!("{options},Ciphers={CIPHER}")
        }
        _ => "reconnect".to_owned(),
    };
    let dir = empty(world, name)?;
    let mut cmd = Command::new("sshfs");
    cmd.arg("-f").arg("-F").arg(world.ssh_config()).args(["-o", &options]);
    cmd.arg(format!("{}:{}", remote.host(), remote.dir.display())).arg(&dir);
    peer(world, name, dir, cmd)
}

/// rclone, which has an SFTP client of its own.
pub fn rclone(world: &World, remote: &Remote<'_>) -> Result<Mounted> {
    let dir = empty(world, RCLONE)?;
    // Each mount begins with nothing.
    let cache = tempfile::Builder::new().prefix("rclone.").tempdir_in(&world.dir)?.keep();
    GATEWAY.own(&cache)?;
    let key = world.home(GATEWAY).join("key");
    let from = format!(
        ":sftp,host=127.0.0.1,port={},user={},chunk_size=255Ki,key_file=\"{}\":{}",
        remote.port,
        remote.account.name,
        key.display(),
        remote.dir.display()
    );
    let mut cmd = Command::new("rclone");
    cmd.args(["mount", "--vfs-cache-mode", "full", "--config", "/dev/null", "--cache-dir"]).arg(cache);
    peer(world, RCLONE, dir.clone(), {
        cmd.arg(from).arg(dir);
        cmd
    })
}

fn empty(world: &World, name: &str) -> Result<PathBuf> {
    let dir = world.home(GATEWAY).join(name.replace([',', ' '], "-"));
    fs::create_dir(&dir)?;
    GATEWAY.own(&dir)?;
    Ok(dir)
}

fn peer(world: &World, name: &'static str, dir: PathBuf, mut cmd: Command) -> Result<Mounted> {
    cmd.uid(GATEWAY.uid)
        .gid(GATEWAY.uid)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", world.home(GATEWAY))
        .env(TAG, name);
    let daemon = Daemon::start(name, &mut cmd, &world.dir.join(format!("{name}.log")))?;
    let mounted = || {
        let table = fs::read_to_string("/proc/self/mounts").ok()?;
        table.contains(&format!(" {} fuse.", dir.display())).then_some(())
    };
    wait_for(name, Duration::from_secs(30), mounted).with_context(|| daemon.tail())?;
    Ok(Mounted { name, dir, pid: daemon.pid(), keep: Some(daemon) })
}

/// The first line in which a program names itself.
pub fn version(program: &str, flag: &str) -> Result<String> {
    let said = run::output(Command::new(program).arg(flag))?;
    // sshfs names its helper first.
    let named = said.lines().find(|l| l.to_lowercase().starts_with(program));
    Ok(named.unwrap_or(program).trim().to_owned())
}
