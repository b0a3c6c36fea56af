//! A host: an OpenSSH server on loopback, with keys and configuration of its own.

use super::proc::{self, Daemon, wait_for};
use crate::run;
use anyhow::{Result, bail};
use rustix::process::{Pid, Signal};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A running host.
pub struct Sshd {
    /// The alias by which the server's ssh configuration knows it.
    pub alias: String,
    /// Where it listens.
    pub addr: SocketAddr,
    program: PathBuf,
    dir: PathBuf,
    config: PathBuf,
    daemon: Daemon,
    /// Stopped processes, to be continued.
    stopped: Vec<Pid>,
}

impl Sshd {
    /// Starts a host; `lines` are appended to its configuration (sshd_config(5)).
    pub fn start(world: &Path, alias: &str, lines: &str) -> Result<Self> {
        Self::start_as(PathBuf::from("/usr/sbin/sshd"), world, alias, "", lines)
    }

    /// A host that lets in who answers a question right: keyboard-interactive through PAM, whose service is called like
    /// `program`, a link to sshd.
    pub fn start_asking(world: &Path, alias: &str, program: PathBuf) -> Result<Self> {
        let first = "UsePAM yes\nKbdInteractiveAuthentication yes\nPubkeyAuthentication no\n";
        Self::start_as(program, world, alias, first, "")
    }

    /// Of each keyword the first line counts.
    fn start_as(program: PathBuf, world: &Path, alias: &str, first: &str, lines: &str) -> Result<Self> {
        let dir = world.join(format!("sshd-{alias}"));
        fs::create_dir_all(&dir)?;
        new_host_key(&dir)?;
        // Another process could take the port in between; nobody else lives in this network.
        let addr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = dir.join("sshd_config");
        let text = format!(
            "{first}ListenAddress {addr}\nHostKey {dir}/host_key\nAuthorizedKeysFile {world}/keys/%u\n\
             PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nLogLevel VERBOSE\nMaxStartups 100\n\
             Subsystem sftp internal-sftp\n{lines}\n",
            dir = dir.display(),
            world = world.display(),
        );
        fs::write(&config, text)?;
        let daemon = launch(&program, alias, &dir, &config, addr)?;
        Ok(Self { alias: alias.into(), addr, program, dir, config, daemon, stopped: Vec::new() })
    }

    /// The line of `known_hosts` that trusts it.
    pub fn known_hosts(&self) -> Result<String> {
        let key = fs::read_to_string(self.dir.join("host_key.pub"))?;
        let words: Vec<_> = key.split_whitespace().take(2).collect();
        Ok(format!("{} {}\n", self.alias, words.join(" ")))
    }

    /// Becomes another host at the same address: a new host key.
    pub fn change_host_key(&mut self) -> Result<()> {
        self.kill()?;
        new_host_key(&self.dir)?;
        self.restart()
    }

    /// Stops every process of the host, sessions too: it accepts connections and answers nothing.
    pub fn hang(&mut self) {
        self.stopped = proc::family(self.daemon.pid());
        proc::signal_all(&self.stopped, Signal::STOP);
    }

    /// Ends a hang.
    pub fn resume(&mut self) {
        proc::signal_all(&self.stopped, Signal::CONT);
        self.stopped.clear();
    }

    /// Dies, with all its sessions: new connections are refused, and nothing of a session has a file open any more.
    pub fn kill(&mut self) -> Result<()> {
        let family = proc::family(self.daemon.pid());
        proc::signal_all(&family, Signal::KILL);
        self.stopped.clear();
        self.daemon.kill()?;
        wait_for("the end of the sessions", Duration::from_secs(10), || {
            family.iter().all(|pid| proc::ended(*pid)).then_some(())
        })
    }

    /// Comes back after its death.
    pub fn restart(&mut self) -> Result<()> {
        self.daemon = launch(&self.program, &self.alias, &self.dir, &self.config, self.addr)?;
        Ok(())
    }
}

fn new_host_key(dir: &Path) -> Result<()> {
    let key = dir.join("host_key");
    let _ = fs::remove_file(&key);
    make_key(&key)
}

/// A key pair without passphrase: `path` and `path.pub`.
pub fn make_key(path: &Path) -> Result<()> {
    run::output(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path))?;
    Ok(())
}

fn launch(program: &Path, alias: &str, dir: &Path, config: &Path, addr: SocketAddr) -> Result<Daemon> {
    // sshd re-executes itself, so it must be called by its whole path.
    let mut cmd = Command::new(program);
    cmd.args(["-D", "-e", "-f"]).arg(config);
    let mut daemon = Daemon::start(&format!("sshd {alias}"), &mut cmd, &dir.join("sshd.log"))?;
    wait_for(&format!("sshd {alias}"), Duration::from_secs(20), || {
        let ended = daemon.ended().ok().flatten();
        (ended.is_some() || TcpStream::connect(addr).is_ok()).then_some(())
    })?;
    if let Some(status) = daemon.ended()? {
        bail!("sshd {alias} ended ({status}):\n{}", daemon.tail());
    }
    Ok(daemon)
}
