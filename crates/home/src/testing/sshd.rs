//! A real SSH server on loopback with its own keys, and an agent built for this machine.
//!
//! The server runs as the user of the test, on a free port of 127.0.0.1, with everything it needs in one
//! directory that goes when the [`Sshd`] is dropped. `~/.cache` of the account is not touched: the session gets
//! an `XDG_CACHE_HOME` in that directory. As root, any account can be used, see [`account`].

use crate::ssh::SshTarget;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Where Debian and most others put the server.
const SSHD: &str = "/usr/sbin/sshd";
/// The name that ssh's configuration gives the server.
pub const HOST: &str = "lab";

/// What differs from a plain server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The account; `None`: the one that runs the test.
    pub user: Option<String>,
    /// Lines for sshd_config, as `ForceCommand internal-sftp`.
    pub server: Vec<String>,
    /// Lines for ssh_config, below its `Host *`.
    pub client: Vec<String>,
    /// No public key is accepted.
    pub refuse_key: bool,
    /// The server's key is not in known_hosts.
    pub unknown_key: bool,
}

/// The directory of sockets.
const MASTERS: &str = "masters";

/// A running server.
#[derive(Debug)]
pub struct Sshd {
    dir: PathBuf,
    port: u16,
    process: Option<Child>,
}

/// Whether a server can be started here; the text says what is missing.
pub fn available() -> Result<(), String> {
    match Path::new(SSHD).exists() {
        true => Ok(()),
        false => Err(format!("{SSHD} is missing: install openssh-server")),
    }
}

impl Sshd {
    /// Starts a server and waits until it accepts.
    pub fn start(options: &Options) -> io::Result<Sshd> {
        available().map_err(io::Error::other)?;
        let dir = new_directory()?;
        fs::create_dir(dir.join(MASTERS))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut sshd = Sshd { dir, port, process: None };
        sshd.write_keys(options)?;
        sshd.write_configs(options)?;
        sshd.restart()?;
        Ok(sshd)
    }

    /// The directory with keys, configuration, log and cache; readable to the account.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where sessions keep their cache.
    pub fn cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file for `ssh -F` in which [`HOST`] is this server.
    pub fn ssh_config(&self) -> PathBuf {
        self.dir.join("ssh_config")
    }

    /// The known_hosts that this configuration names.
    pub fn known_hosts(&self) -> PathBuf {
        self.dir.join("known_hosts")
    }

    /// Where connections to it have their sockets.
    pub fn masters(&self) -> PathBuf {
        self.dir.join(MASTERS)
    }

    /// This server as a target.
    pub fn target(&self) -> SshTarget {
        match SshTarget::new(None, HOST) {
            Ok(target) => target.with_config(Some(self.ssh_config())).with_masters(Some(self.masters())),
            Err(e) => unreachable!("{HOST} is a host name: {e}"),
        }
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Makes a new host key; clients that know the old one must refuse. Call [`Sshd::restart`] afterwards.
    pub fn change_host_key(&self) -> io::Result<()> {
        make_key(&self.dir.join("host_key"))
    }

    /// Starts the server again after [`Sshd::stop`], on the same port.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        let log = File::options().create(true).append(true).open(self.dir.join("log"))?;
        let mut command = Command::new(SSHD);
        command.args(["-D", "-e", "-f"]).arg(self.dir.join("sshd_config"));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        self.process = Some(process);
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.process.as_mut().is_some_and(|p| p.try_wait().is_ok_and(|s| s.is_some()));
            if ended || Instant::now() > deadline {
                return Err(io::Error::other(format!("sshd does not start: {}", self.log())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends the server with all its sessions, as a machine that dies.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        for pid in family(process.id()) {
            signal(pid, libc::SIGKILL);
        }
        // The exit is only collected.
        let _ = process.wait();
    }

    /// Stops the server and all its sessions where they are, as a machine that hangs.
    pub fn freeze(&self) {
        self.signal_all(libc::SIGSTOP);
    }

    /// Lets them go on.
    pub fn thaw(&self) {
        self.signal_all(libc::SIGCONT);
    }

    /// The processes of sessions whose command line contains `text`.
    pub fn sessions(&self, text: &str) -> Vec<u32> {
        let Some(process) = &self.process else { return Vec::new() };
        let runs = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(text)
        };
        family(process.id()).into_iter().filter(|pid| *pid != process.id()).filter(runs).collect()
    }

    fn signal_all(&self, number: i32) {
        if let Some(process) = &self.process {
            family(process.id()).into_iter().for_each(|pid| signal(pid, number));
        }
    }

    fn write_keys(&self, options: &Options) -> io::Result<()> {
        let dir = &self.dir;
        fs::create_dir(dir.join("cache"))?;
        fs::set_permissions(dir.join("cache"), Permissions::from_mode(0o777))?;
        make_key(&dir.join("host_key"))?;
        make_key(&dir.join("user_key"))?;
        let known = fs::read_to_string(dir.join("host_key.pub"))?;
        let known = match options.unknown_key {
            true => String::new(),
            false => format!("[127.0.0.1]:{} {known}", self.port),
        };
        fs::write(self.known_hosts(), known)?;
        let keys = match options.refuse_key {
            true => String::new(),
            false => fs::read_to_string(dir.join("user_key.pub"))?,
        };
        fs::write(dir.join("authorized_keys"), keys)
    }

    fn write_configs(&self, options: &Options) -> io::Result<()> {
        let dir = self.dir.display();
        let mut server = File::create(self.dir.join("sshd_config"))?;
        writeln!(server, "Port {}\nListenAddress 127.0.0.1\nHostKey {dir}/host_key", self.port)?;
        writeln!(server, "PidFile none\nAuthorizedKeysFile {dir}/authorized_keys\nStrictModes no")?;
        writeln!(server, "PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no")?;
        writeln!(server, "PermitRootLogin prohibit-password\nPrintMotd no\nMaxStartups 100\nUseDNS no")?;
        writeln!(server, "SetEnv XDG_CACHE_HOME={dir}/cache")?;
        if !options.server.iter().any(|l| l.starts_with("Subsystem")) {
            writeln!(server, "Subsystem sftp internal-sftp")?;
        }
        options.server.iter().try_for_each(|line| writeln!(server, "{line}"))?;
        let mut client = File::create(self.ssh_config())?;
        writeln!(client, "Host *\nHostName 127.0.0.1\nPort {}\nIdentityFile {dir}/user_key", self.port)?;
        writeln!(client, "IdentitiesOnly yes\nIdentityAgent none\nUserKnownHostsFile {dir}/known_hosts")?;
        writeln!(client, "GlobalKnownHostsFile /dev/null\nCheckHostIP no\nUpdateHostKeys no")?;
        if let Some(user) = &options.user {
            writeln!(client, "User {user}")?;
        }
        options.client.iter().try_for_each(|line| writeln!(client, "{line}"))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.stop();
        // What cannot be removed stays in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn new_directory() -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("trellis-sshd-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let dir = std::env::temp_dir().join(name);
    fs::create_dir(&dir)?;
    fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
    // Where the server's unprivileged child locks itself in; it does not make the directory.
    if rustix::process::geteuid().is_root() {
        fs::create_dir_all("/run/sshd")?;
    }
    Ok(dir)
}

fn make_key(path: &Path) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut command = Command::new("ssh-keygen");
    let done = command.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(path).status()?;
    match done.success() {
        true => Ok(()),
        false => Err(io::Error::other("ssh-keygen failed")),
    }
}

/// A process and all that descend from it.
fn family(root: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut all = vec![root];
    let mut next = 0;
    while next < all.len() {
        let one = all[next];
        all.extend(parents.iter().filter(|(_, parent)| *parent == one).map(|(pid, _)| *pid));
        next += 1;
    }
    all
}

/// Sends a signal; a process that is gone already is no error.
pub fn signal(pid: u32, number: i32) {
    // SAFETY: kill(2) takes two integers.
    unsafe { libc::kill(pid as i32, number) };
}

/// Makes the account `name` with a home directory and a login shell, if it is missing. Needs root.
pub fn account(name: &str, shell: &str) -> io::Result<()> {
    if Command::new("id").arg("-u").arg(name).stdout(Stdio::null()).stderr(Stdio::null()).status()?.success()
    {
        return Command::new("usermod").args(["-s", shell, name]).status().map(drop);
    }
    // A password that nothing matches: sshd takes a locked account for a closed one.
    let made = Command::new("useradd").args(["-m", "-p", "*", "-s", shell, name]).status()?;
    match made.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("useradd {name} failed; it needs root"))),
    }
}

/// The agent's program for this machine, built once for all tests.
pub fn agent_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => workspace.join("target"),
        };
        // A directory of its own: the outer cargo may hold the lock of the common one.
        let target = target.join("test-agent");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "-p", "agent", "--target-dir"]).arg(&target).current_dir(&workspace);
        let built = cargo.status();
        assert!(built.as_ref().is_ok_and(|s| s.success()), "cannot build the agent: {built:?}");
        target.join("debug/trellis-agent")
    })
}

/// That program as what a gateway carries.
pub fn agents() -> crate::AgentBinaries {
    static BYTES: OnceLock<bytes::Bytes> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| match fs::read(agent_program()) {
        Ok(bytes) => bytes.into(),
        Err(e) => panic!("cannot read {}: {e}", agent_program().display()),
    });
    crate::AgentBinaries::none().with_linux(std::env::consts::ARCH, bytes.clone())
}
