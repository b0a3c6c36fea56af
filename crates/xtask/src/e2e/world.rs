//! What a scenario works in: a folder, accounts, hosts, and the server's ssh configuration.

use super::accounts::{self, ANN, Account, BOB, GATEWAY};
use super::isolate;
use super::proc;
use super::server::{Gateway, Server};
use super::sshd::{self, Sshd};
use crate::nfs::Client;
use crate::run;
use anyhow::{Context, Result};
use oncrpc::nfs3::NfsFh3;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the server listens: an address that guests reach.
pub const SERVER_IP: &str = "10.199.0.1";

/// A scenario's surroundings.
pub struct World {
    /// Everything is below this folder.
    pub dir: PathBuf,
    /// A copy of the program, alone, as a user would carry it to another machine.
    pub trellis: PathBuf,
}

impl World {
    /// Furnishes the namespaces that we are in. `binary` is the program under test.
    pub fn new(dir: &Path, binary: &Path) -> Result<Self> {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
        let etc = dir.join("etc");
        run::output(Command::new("cp").args(["-a", "/etc"]).arg(&etc))?;
        accounts::create(dir, &etc)?;
        isolate::furnish(&etc)?;
        let trellis = dir.join("trellis");
        fs::copy(binary, &trellis).with_context(|| binary.display().to_string())?;
        let world = Self { dir: dir.into(), trellis };
        world.make_client_key()?;
        fs::write(world.known_hosts(), "")?;
        Ok(world)
    }

    /// Where an account's files are, at its home and below the root of its volume alike.
    pub fn home(&self, who: Account) -> PathBuf {
        who.home(&self.dir)
    }

    /// A folder below an account's home directory, made there and owned by the account.
    pub fn home_dir(&self, who: Account, name: &str) -> Result<PathBuf> {
        let dir = self.home(who).join(name);
        fs::create_dir_all(&dir)?;
        who.own(&dir)?;
        Ok(dir)
    }

    /// Writes a file at a home, as the account's own programs would.
    pub fn write_home(&self, who: Account, path: &Path, text: &[u8]) -> Result<()> {
        fs::write(path, text).with_context(|| path.display().to_string())?;
        who.own(path)
    }

    /// A trusted host, reached by its alias; `via` is where clients find it, if not at its own address.
    pub fn host(&self, alias: &str, lines: &str, via: Option<SocketAddr>) -> Result<Sshd> {
        let sshd = Sshd::start(&self.dir, alias, lines)?;
        self.trust(&sshd)?;
        self.route(alias, via.unwrap_or(sshd.addr))?;
        Ok(sshd)
    }

    /// Makes a host one that is trusted.
    pub fn trust(&self, sshd: &Sshd) -> Result<()> {
        self.append(&self.known_hosts(), &sshd.known_hosts()?)
    }

    /// Adds lines to the ssh configuration. Of each keyword the first line that fits a host counts.
    pub fn configure(&self, lines: &str) -> Result<()> {
        self.append(&self.ssh_config(), lines)
    }

    /// Lets the ssh configuration lead an alias to an address. The first entry of an alias counts.
    pub fn route(&self, alias: &str, addr: SocketAddr) -> Result<()> {
        let (ip, port) = (addr.ip(), addr.port());
        let key = self.home(GATEWAY).join("key");
        self.append(
            &self.ssh_config(),
            &format!(
                "Host {alias}\n  HostName {ip}\n  Port {port}\n  HostKeyAlias {alias}\n  User {ann}\n  \
                 IdentityFile {key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n  \
                 GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n",
                ann = ANN.name,
                key = key.display(),
                known = self.known_hosts().display(),
            ),
        )
    }

    /// The server, reachable by guests, for the given hosts; `args` follow the usual ones.
    pub fn serve(&self, args: &[&str]) -> Result<Server> {
        self.serve_as("server", args)
    }

    /// A server with a state directory of its own, named after it.
    pub fn serve_as(&self, name: &str, args: &[&str]) -> Result<Server> {
        let listen = format!("{SERVER_IP}:0");
        let config = self.ssh_config().display().to_string();
        let usual =
            ["--listen", &listen, "--allow", "10.199.0.0/24", "--hosts", "*", "--ssh-config", &config];
        Server::start(Gateway::named(self, name), usual.iter().chain(args).map(ToString::to_string).collect())
    }

    /// A client in user space that is the server's user, at the root of the export.
    pub fn client(&self, server: &Server) -> Result<(Client, NfsFh3)> {
        let client = Client::connect(server.addr, GATEWAY.uid)?;
        let root = client.mount("/")?;
        Ok((client, root))
    }

    /// Trust in hosts, by alias.
    pub fn known_hosts(&self) -> PathBuf {
        self.home(GATEWAY).join("known_hosts")
    }

    /// What `--ssh-config` names.
    pub fn ssh_config(&self) -> PathBuf {
        self.home(GATEWAY).join("ssh_config")
    }

    /// The keys that open an account, one per line.
    pub fn authorized_keys(&self, who: Account) -> PathBuf {
        self.dir.join("keys").join(who.name)
    }

    /// The ends of all logs, for a person who looks for the reason of a failure.
    pub fn logs(&self) -> String {
        let mut files = vec![self.dir.join("server.log")];
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            files.push(entry.path().join("sshd.log"));
        }
        let parts = files.iter().filter(|f| f.exists());
        parts.map(|f| format!("--- {}\n{}\n", f.display(), proc::tail(f, 60))).collect()
    }

    fn make_client_key(&self) -> Result<()> {
        let key = self.home(GATEWAY).join("key");
        sshd::make_key(&key)?;
        GATEWAY.own(&key)?;
        let public = fs::read(key.with_extension("pub"))?;
        fs::create_dir(self.dir.join("keys"))?;
        for who in [ANN, BOB] {
            fs::write(self.authorized_keys(who), &public)?;
            who.own(&self.authorized_keys(who))?;
        }
        Ok(())
    }

    fn append(&self, file: &Path, text: &str) -> Result<()> {
        let before = fs::read_to_string(file).unwrap_or_default();
        fs::write(file, before + text)?;
        GATEWAY.own(file)
    }
}
