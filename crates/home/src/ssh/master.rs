//! Master connections: a login that was made once, on a person's terminal, and that later connections go through
//! (ssh_config(5) ControlMaster, ControlPath, ControlPersist).
//!
//! Where the user's configuration names a ControlPath for a host, that master is used. Else it is one of ours, in a
//! folder that only the user can enter, under a name that the account gives. Unattended connections use masters and
//! never leave one behind: ssh would hide what a jump host says (it closes the messages of a ProxyCommand where
//! ControlPersist is on), and a refused login would look like a lost connection. While such a connection lives,
//! further channels to the same account go over it without another login ([`Control::Leads`]).

use super::{Account, Control, FORCED, Facts, Persist, SshTarget, base_command, cannot_run, collect};
use crate::{Error, ErrorKind, Result};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of a socket's name below the folder: a slash, our name, and what ssh appends while it makes the socket.
pub const SOCKET_NAME_BYTES: usize = 1 + SOCKET_HASH + 17;

/// Bytes of our name.
const SOCKET_HASH: usize = 16;

/// Options of a master besides those of every connection. A site's short outage must not cost a login, so it waits
/// longer than the connections that go through it.
const PATIENT: &[&str] = &["ServerAliveInterval=20", "ServerAliveCountMax=6", "ConnectTimeout=30"];

/// How names of sockets of connections begin that lead others while they live. No hexadecimal digits, as of logins.
const LEADS: &str = "via-";

/// Such connections of this process so far.
static LED: AtomicU64 = AtomicU64::new(0);

/// Where the master of an account is, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Master {
    /// Its socket.
    pub socket: PathBuf,
    /// Whether the user's own configuration names the socket.
    pub own: bool,
}

impl Master {
    /// The master of an account. `None` where there is neither a ControlPath nor a folder for ours.
    pub fn of(facts: &Facts, folder: Option<&Path>) -> Option<Master> {
        match (&facts.control_path, folder) {
            (Some(path), _) => Some(Master { socket: path.clone(), own: true }),
            (None, Some(folder)) => {
                Some(Master { socket: folder.join(socket_name(&facts.account)), own: false })
            }
            (None, None) => None,
        }
    }

    /// Whether a process listens at the socket. It may still have lost its connection.
    pub fn is_alive(&self) -> bool {
        UnixStream::connect(&self.socket).is_ok()
    }
}

/// Removes sockets of connections that led others and that nobody listens at: ssh and its server were killed.
fn forget_dead(folder: &Path) {
    // Longer ones are being made.
    let led = |name: &[u8]| name.starts_with(LEADS.as_bytes()) && name.len() == SOCKET_HASH;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets = entries.filter(|e| led(e.file_name().as_encoded_bytes())).map(|entry| entry.path());
    for socket in sockets.filter(|socket| UnixStream::connect(socket).is_err()) {
        // Somebody else may have done so.
        let _ = std::fs::remove_file(socket);
    }
}

/// Whether ssh can make this socket, which it ends without: it makes one beside, and links it.
fn can_be_made(socket: &Path) -> bool {
    let beside = socket.with_extension("new");
    let _ = std::fs::remove_file(&beside);
    let made = UnixListener::bind(&beside).and_then(|_| std::fs::hard_link(&beside, socket));
    // Gone already where somebody else took them for dead ones.
    let _ = std::fs::remove_file(&beside);
    let _ = std::fs::remove_file(socket);
    made.is_ok()
}

/// The name of our socket for an account.
fn socket_name(account: &Account) -> String {
    short_hash(account.to_string().as_bytes())
}

/// 16 hexadecimal digits, for names of files.
pub fn short_hash(of: &[u8]) -> String {
    blake3::hash(of).to_hex()[..SOCKET_HASH].to_owned()
}

impl SshTarget {
    /// The target of one attempt: over the master if one lives. `avoid`: no master, because the last attempt through it
    /// failed. Answers whether a master is used as well.
    pub(crate) fn through(&self, facts: &Facts, avoid: bool) -> (SshTarget, bool) {
        let living = || Master::of(facts, self.masters.as_deref()).filter(Master::is_alive);
        let target = self.clone().with_ciphers(facts.ciphers);
        match (!avoid).then(living).flatten() {
            Some(master) => (target.with_control(Control::Over(master.socket)), true),
            None => (target.with_control(Control::Alone), false),
        }
    }

    /// The target of a connection that is made without a master, as one that further ones go over, and the target of
    /// those. `None` where there is no place for its socket.
    pub(crate) fn leading(&self, facts: &Facts) -> Option<(SshTarget, SshTarget)> {
        let folder = self.masters.as_ref()?;
        forget_dead(folder);
        let which =
            format!("{} {} {}", facts.account, std::process::id(), LED.fetch_add(1, Ordering::Relaxed));
        let socket = folder.join(format!("{LEADS}{}", &short_hash(which.as_bytes())[LEADS.len()..]));
        can_be_made(&socket).then(|| {
            let (leader, over) = (self.clone(), self.clone());
            (leader.with_control(Control::Leads(socket.clone())), over.with_control(Control::Over(socket)))
        })
    }

    /// The target over the master that lives now, if one does.
    pub async fn over_living_master(&self) -> Result<SshTarget> {
        Ok(self.through(&self.facts().await?, false).0)
    }

    /// Logs in with the user at the terminal, who is asked whatever there is to ask, and leaves a master behind. The
    /// answer is ssh's exit status: 0 once the master works.
    pub async fn login(&self, facts: &Facts, master: &Master, persist: Persist) -> Result<ExitStatus> {
        let mut command = tokio::process::Command::new(&self.program);
        if let Some(config) = &self.config {
            command.arg("-F").arg(config);
        }
        let quiet =
            |o: &&&str| !["BatchMode", "ServerAlive", "ConnectTimeout"].iter().any(|n| o.starts_with(n));
        for option in FORCED.iter().filter(quiet).chain(PATIENT) {
            command.args(["-o", option]);
        }
        if facts.careless {
            // A host key that has changed is nobody's to accept by accident.
            command.args(["-o", "StrictHostKeyChecking=ask"]);
        }
        let mut path = std::ffi::OsString::from("ControlPath=");
        path.push(&master.socket);
        command.arg("-o").arg(path).args(["-o", "ControlMaster=auto"]);
        let persist = match persist {
            Persist::No | Persist::Forever => "yes".to_owned(),
            Persist::For(time) => time.as_secs().max(1).to_string(),
        };
        command.arg("-o").arg(format!("ControlPersist={persist}"));
        command.args(["-f", "-N", "-T"]);
        self.clone().with_ciphers(facts.ciphers).add_ciphers(&mut command);
        self.add_login(&mut command);
        command.args(["--", &self.host]);
        // SAFETY: signal is async-signal-safe. The master leaves the terminal by itself, but the process that it runs for
        // a jump host does not, and would end with the terminal's session.
        unsafe {
            command.pre_exec(|| match libc::signal(libc::SIGHUP, libc::SIG_IGN) {
                libc::SIG_ERR => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        command.status().await.map_err(|e| cannot_run(self, &e))
    }

    /// Tells a master something: `check` or `exit` (ssh(1) -O). The answer is what ssh said.
    pub async fn tell_master(&self, master: &Master, verb: &str) -> Result<String> {
        let target = self.clone().with_control(Control::Over(master.socket.clone()));
        let mut command = base_command(&target);
        target.add_control(&mut command);
        command.args(["-O", verb]);
        target.add_login(&mut command);
        command.args(["--", &target.host]);
        let output = collect(command, Duration::from_secs(10)).await.map_err(|e| cannot_run(self, &e))?;
        match output.success {
            true => Ok(output.said),
            false => Err(Error::new(ErrorKind::NotFound, super::quote(&output.said))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(more: &str) -> Facts {
        Facts::parse(&format!("user ann\nhostname lab\nport 22\n{more}")).unwrap()
    }

    #[test]
    fn a_living_master_is_used_and_a_dead_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let target = SshTarget::new(Some("ann"), "lab").unwrap().with_masters(Some(dir.path().into()));
        let facts = facts("");
        let master = Master::of(&facts, Some(dir.path())).unwrap();
        assert!(!target.through(&facts, false).1, "nothing is there");
        let listener = UnixListener::bind(&master.socket).unwrap();
        let (over, used) = target.through(&facts, false);
        assert_eq!((over.control, used), (Control::Over(master.socket.clone()), true));
        let (alone, used) = target.through(&facts, true);
        assert_eq!((alone.control, used), (Control::Alone, false));
        drop(listener);
        assert!(master.socket.exists(), "its socket is left behind");
        assert_eq!(target.through(&facts, false).0.control, Control::Alone);
    }

    #[test]
    fn the_users_own_path_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        let facts = facts(&format!("controlpath {}\n", own.display()));
        let master = Master::of(&facts, Some(dir.path())).unwrap();
        assert_eq!((master.socket.as_path(), master.own), (own.as_path(), true));
        let _listener = UnixListener::bind(&own).unwrap();
        let target = SshTarget::new(None, "lab").unwrap().with_masters(Some(dir.path().into()));
        let (through, used) = target.through(&facts, false);
        assert_eq!((through.control, used), (Control::Over(own), true));
    }

    #[test]
    fn two_accounts_have_two_sockets_of_a_bounded_length() {
        let (one, two) = (facts(""), Facts::parse("user bob\nhostname lab\nport 22\n").unwrap());
        assert_ne!(socket_name(&one.account), socket_name(&two.account));
        assert_eq!(socket_name(&one.account).len(), 16);
    }
}
