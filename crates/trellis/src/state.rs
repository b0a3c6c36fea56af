//! The state directory: journal, identities, caches, the control socket, and the lock that keeps a second
//! server out.
//!
//! It belongs to one user alone (mode 0700), because whoever can write it can write to every home. Locks are
//! not to be trusted on network file systems, which login nodes of one cluster share; there the directory is
//! refused unless the user insists, and the lock file says which host and which boot it was taken by.

use crate::{dying, limits, show};
use home::io_text;
use home::ssh::short_hash;
use rustix::fs::{FlockOperation, Mode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Longest path of a unix socket in bytes (unix(7) `sun_path`, with its NUL).
pub const SOCKET_PATH_MAX: usize = 107;

/// A checked state directory.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

/// Held while a server, or a command without one, uses the directory.
#[derive(Debug)]
pub struct Lock {
    file: File,
    exclusive: bool,
}

/// Who holds the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id on that host.
    pub pid: u32,
    /// Name of the host.
    pub host: String,
    /// Tells that host's boots apart.
    pub boot_id: String,
}

/// `$VARIABLE`, if absolute, or `~/below`.
pub fn xdg(variable: &str, below: &str) -> Option<PathBuf> {
    let set = std::env::var_os(variable).map(PathBuf::from).filter(|p| p.is_absolute());
    set.or_else(|| std::env::home_dir().filter(|h| h.is_absolute()).map(|home| home.join(below)))
}

/// `$XDG_STATE_HOME/trellis`, or the same below `~/.local/state`.
pub fn usual_dir() -> Result<PathBuf, String> {
    xdg("XDG_STATE_HOME", ".local/state")
        .map(|dir| dir.join("trellis"))
        .ok_or_else(|| "no home directory is known: name a state directory with --state DIR".into())
}

impl StateDir {
    /// Makes the directory if need be and checks it. A network file system is refused unless `network`.
    pub fn create(given: Option<&Path>, network: bool) -> Result<StateDir, String> {
        let path = given.map_or_else(usual_dir, |p| Ok(p.to_owned()))?;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|e| {
            format!("state directory {}: {e}: choose another with --state DIR", shown(&path), e = io_text(&e))
        })?;
        let dir = StateDir::check(&path)?;
        match dir.network_type() {
            Some(kind) if !network => Err(format!(
                "state directory {} is on a network file system ({kind}), where another machine could use it at the \
                 same time: choose a local one with --state DIR, or insist with --allow-network-state",
                shown(&dir.path)
            )),
            _ => Ok(dir),
        }
    }

    /// The directory if it exists; `None` where no server ever ran.
    pub fn existing(given: Option<&Path>) -> Result<Option<StateDir>, String> {
        let path = given.map_or_else(usual_dir, |p| Ok(p.to_owned()))?;
        match path.try_exists() {
            Ok(false) => Ok(None),
            _ => StateDir::check(&path).map(Some),
        }
    }

    fn check(path: &Path) -> Result<StateDir, String> {
        let path = path
            .canonicalize()
            .map_err(|e| format!("state directory {}: {e}", shown(path), e = io_text(&e)))?;
        let meta =
            path.metadata().map_err(|e| format!("state directory {}: {e}", shown(&path), e = io_text(&e)))?;
        let me = rustix::process::geteuid().as_raw();
        if !meta.is_dir() {
            return Err(format!("{} is not a directory: choose another with --state DIR", shown(&path)));
        }
        if meta.uid() != me {
            return Err(format!(
                "state directory {} belongs to user {}, not to {me}: choose another with --state DIR",
                shown(&path),
                meta.uid()
            ));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(format!(
                "state directory {} is open to other users (mode {:o}): run `chmod 700 {}` if nobody has tampered with it",
                shown(&path),
                meta.mode() & 0o777,
                show::path_word(&path)
            ));
        }
        Ok(StateDir { path })
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is the one that is used if none is named.
    pub fn is_usual(&self) -> bool {
        usual_dir().ok().and_then(|d| d.canonicalize().ok()).is_some_and(|d| d == self.path)
    }

    /// What the table of mounts calls the tree of its server.
    pub fn source(&self) -> String {
        match self.is_usual() {
            true => "trellis".into(),
            false => format!("trellis:{}", &short_hash(self.path.as_os_str().as_bytes())[..8]),
        }
    }

    /// Whether other machines may share it.
    pub fn is_on_network(&self) -> bool {
        self.network_type().is_some()
    }

    fn network_type(&self) -> Option<&'static str> {
        let magic = rustix::fs::statfs(&self.path).ok()?.f_type as u64 & 0xffff_ffff;
        NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
    }

    /// Takes the lock for a server, or tells who has it.
    pub fn lock_server(&self) -> Result<Lock, String> {
        let lock = self.lock(true)?;
        let holder = Holder::me();
        if let Some(other) = lock.holder().filter(|o| o.host != holder.host && self.network_type().is_some())
        {
            return Err(format!(
                "{} was left by a server on host {} (process {}): if it is gone, remove {}",
                shown(&self.path),
                crate::show::text(other.host.as_bytes()),
                other.pid,
                shown(&self.lock_path())
            ));
        }
        let text = serde_json::to_vec(&holder).map_err(|e| e.to_string())?;
        let len = text.len() as u64;
        // Not emptied first: on a full disk the block would not come back. Who holds it is only told to people.
        match lock.file.write_all_at(&text, 0).and_then(|()| lock.file.set_len(len)) {
            Err(e) if e.kind() == std::io::ErrorKind::StorageFull => {
                tracing::warn!("lock file: {}", io_text(&e))
            }
            written => written.map_err(|e| self.lock_error(&e))?,
        }
        Ok(lock)
    }

    /// Waits until a server that was killed has ended, and with it what its mounts held up.
    pub async fn wait_for_end(&self, pid: i32) -> Result<(), String> {
        let source = self.source();
        let waiting = tokio::task::spawn_blocking(move || dying::wait_for_end(pid, &source));
        waiting.await.map_err(|e| e.to_string())?
    }

    /// Keeps servers out while a command works without one; several such commands may.
    pub fn lock_shared(&self) -> Result<Lock, String> {
        self.lock(false)
    }

    /// Whether a process of this machine keeps commands out: a server, which may not answer yet.
    pub fn is_locked_here(&self) -> bool {
        let Ok(file) = File::open(self.lock_path()) else { return false };
        let lock = Lock { file, exclusive: false };
        let taken = rustix::fs::flock(&lock.file, FlockOperation::NonBlockingLockShared);
        taken.is_err() && lock.holder().is_none_or(|holder| holder.host == Holder::me().host)
    }

    fn lock(&self, exclusive: bool) -> Result<Lock, String> {
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = open.open(self.lock_path()).map_err(|e| self.lock_error(&e))?;
        let how = match exclusive {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        let mut lock = Lock { file, exclusive: false };
        let mut taken = rustix::fs::flock(&lock.file, how);
        if taken == Err(rustix::io::Errno::WOULDBLOCK)
            && let Some(pid) =
                lock.holder().and_then(|holder| holder.pid_here()).filter(|p| dying::is_over(*p))
        {
            dying::wait_for_end(pid, &self.source())?;
            // A process that it was starting has the lock until it becomes another program.
            let until = Instant::now() + limits::LOCK_LEFT;
            taken = rustix::fs::flock(&lock.file, how);
            while taken == Err(rustix::io::Errno::WOULDBLOCK) && Instant::now() < until {
                std::thread::sleep(limits::DYING_PAUSE);
                taken = rustix::fs::flock(&lock.file, how);
            }
        }
        match taken {
            Ok(()) => {
                lock.exclusive = exclusive;
                Ok(lock)
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(self.taken(lock.holder())),
            Err(e) => Err(self.lock_error(&e.into())),
        }
    }

    fn taken(&self, holder: Option<Holder>) -> String {
        let dir = shown(&self.path);
        match holder {
            Some(holder) => format!(
                "a server already uses {dir} (process {} on {}): stop it with `trellis stop --state {}`, or choose \
                 another directory with --state DIR",
                holder.pid,
                show::text(holder.host.as_bytes()),
                show::path_word(&self.path)
            ),
            None => format!("another trellis command uses {dir} just now: try again when it has ended"),
        }
    }

    fn lock_path(&self) -> PathBuf {
        self.path.join("lock")
    }

    fn lock_error(&self, e: &std::io::Error) -> String {
        format!("lock {}: {e}", shown(&self.lock_path()), e = io_text(e))
    }

    /// A path of the control socket that fits a socket address, and what must stay open as long as it is used.
    pub fn socket_path(&self) -> Result<(PathBuf, Option<OwnedFd>), String> {
        let path = self.path.join("control");
        if path.as_os_str().len() <= SOCKET_PATH_MAX {
            return Ok((path, None));
        }
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let dir = rustix::fs::open(&self.path, flags, Mode::empty())
            .map_err(|e| format!("state directory {}: {e}", shown(&self.path), e = io_text(&e.into())))?;
        Ok((PathBuf::from(format!("/proc/self/fd/{}/control", dir.as_raw_fd())), Some(dir)))
    }

    /// Ports that were chosen before, by address.
    fn ports(&self) -> BTreeMap<IpAddr, u16> {
        let text = std::fs::read(self.path.join("ports.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Where a server of this directory listens whose port it chose itself.
    pub fn chosen(&self) -> Vec<SocketAddr> {
        self.ports().into_iter().map(|(ip, port)| SocketAddr::new(ip, port)).collect()
    }

    /// The address with the port that was chosen for it before, if its port is open.
    pub fn fixed_port(&self, listen: SocketAddr) -> SocketAddr {
        match listen.port() {
            0 => SocketAddr::new(listen.ip(), self.ports().get(&listen.ip()).copied().unwrap_or(0)),
            _ => listen,
        }
    }

    /// Keeps a port that was chosen: clients that have mounted it expect it after a restart.
    pub fn keep_port(&self, bound: SocketAddr) -> Result<(), String> {
        let mut ports = self.ports();
        if ports.insert(bound.ip(), bound.port()) == Some(bound.port()) {
            return Ok(());
        }
        let text = serde_json::to_vec(&ports).map_err(|e| e.to_string())?;
        write_atomically(&self.path.join("ports.json"), &text)
    }
}

impl Lock {
    fn holder(&self) -> Option<Holder> {
        let mut text = [0; 4096];
        let len = self.file.read_at(&mut text, 0).ok()?;
        serde_json::from_slice(&text[..len]).ok()
    }
}

impl Drop for Lock {
    /// An empty file means that the last server ended in order.
    fn drop(&mut self) {
        if self.exclusive
            && let Err(e) = self.file.set_len(0)
        {
            tracing::warn!("lock file: {}", io_text(&e));
        }
    }
}

impl Holder {
    fn me() -> Holder {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Holder { pid: std::process::id(), host, boot_id: boot_id() }
    }

    /// Its process id, if it runs on this machine.
    fn pid_here(&self) -> Option<i32> {
        let me = Holder::me();
        (self.host == me.host && self.boot_id == me.boot_id).then(|| self.pid.try_into().ok())?
    }
}

/// The id of this boot of this machine; empty where there is none.
pub fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// Replaces a file so that whoever reads it sees all of the old text or all of the new.
pub fn write_atomically(path: &Path, text: &[u8]) -> Result<(), String> {
    // A full disk has no room for a second one of what it has already.
    if std::fs::read(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().map_err(|e| {
        let _ = std::fs::remove_file(&beside);
        format!("{}: {e}", shown(path), e = io_text(&e))
    })
}

/// Whether there is no room for a new file where this path is.
pub fn disk_is_full(path: &Path) -> bool {
    let space = rustix::fs::statvfs(path);
    space.is_ok_and(|fs| fs.f_bavail == 0 || fs.f_files > 0 && fs.f_favail == 0)
}

/// Makes a file private that was made by somebody else's code.
pub fn make_private(path: &Path) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

fn shown(path: &Path) -> String {
    show::text(path.as_os_str().as_encoded_bytes())
}

/// Types of file systems that several machines may share (statfs(2) `f_type`).
const NETWORK: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x5346_414f, "AFS"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x786f_4256, "VirtualBox"),
    (0xaad7_aaea, "PanFS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> (tempfile::TempDir, StateDir) {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::create(Some(&temp.path().join("s")), true).unwrap();
        (temp, state)
    }

    /// A lock that was given back lives on in a child that another test forks at that moment, until it executes.
    fn free_soon(state: &StateDir) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while let Err(why) = state.lock_server() {
            assert!(std::time::Instant::now() < until, "{why}");
        }
    }

    #[test]
    fn a_second_server_is_refused_and_told_who_is_there() {
        let (_temp, state) = dir();
        let first = state.lock_server().unwrap();
        let error = state.lock_server().unwrap_err();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.contains("trellis stop"), "{error}");
        assert!(state.lock_shared().unwrap_err().contains("already uses"));
        drop(first);
        free_soon(&state);
    }

    #[test]
    fn a_lock_that_a_killed_server_leaves_is_waited_for() {
        let (_temp, state) = dir();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let mut left = state.lock_server().unwrap();
        // As it is when a server was killed: its file is not emptied.
        left.exclusive = false;
        let holder = Holder { pid: ended.id(), ..Holder::me() };
        std::fs::write(state.lock_path(), serde_json::to_vec(&holder).unwrap()).unwrap();
        let frees = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            drop(left);
        });
        drop(state.lock_server().unwrap());
        frees.join().unwrap();
    }

    #[test]
    fn commands_without_a_server_keep_servers_out() {
        let (_temp, state) = dir();
        let one = state.lock_shared().unwrap();
        let two = state.lock_shared().unwrap();
        assert!(state.lock_server().unwrap_err().contains("another trellis command"));
        drop((one, two));
        free_soon(&state);
    }

    #[test]
    fn directories_of_others_are_refused() {
        let (_temp, state) = dir();
        std::fs::set_permissions(state.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = StateDir::create(Some(state.path()), true).unwrap_err();
        assert!(error.contains("chmod 700"), "{error}");
        let file = state.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(StateDir::existing(Some(&file)).unwrap_err().contains("not a directory"));
        assert!(StateDir::existing(Some(&state.path().join("none"))).unwrap().is_none());
    }

    #[test]
    fn a_chosen_port_is_kept() {
        let (_temp, state) = dir();
        let open: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert_eq!(state.fixed_port(open), open);
        state.keep_port("127.0.0.1:4711".parse().unwrap()).unwrap();
        assert_eq!(state.fixed_port(open).port(), 4711);
        assert_eq!(state.fixed_port("[::1]:0".parse().unwrap()).port(), 0);
        assert_eq!(state.fixed_port("127.0.0.1:9".parse().unwrap()).port(), 9);
    }

    #[test]
    fn a_long_path_still_has_a_socket() {
        let temp = tempfile::tempdir().unwrap();
        let long = temp.path().join("x".repeat(120));
        let state = StateDir::create(Some(&long), true).unwrap();
        let (path, _open) = state.socket_path().unwrap();
        std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(long.join("control").exists());
    }
}
