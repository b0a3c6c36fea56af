//! Whether a server survives the logout, and whether the keys that it uses do.

use super::systemd;
use serde::Serialize;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use tokio::process::Command;

/// What the system does to the server at the logout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Logout {
    /// It goes on.
    Survives,
    /// It ends with the user's last session.
    Ends,
    /// Nobody could be asked.
    Unknown,
}

/// The ssh-agent that a process was started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentSocket {
    /// `SSH_AUTH_SOCK`.
    pub path: PathBuf,
    /// Whether somebody answers there.
    pub alive: bool,
}

/// What logind says. A unit of the user's manager needs lingering; a plain process needs it only where logind ends
/// what a session leaves behind (`KillUserProcesses`, logind.conf(5)).
pub async fn logout(unit: bool) -> Logout {
    let uid = rustix::process::geteuid().as_raw().to_string();
    match (loginctl(&["show-user", &uid, "--property=Linger", "--value"]).await.as_deref(), unit) {
        (Ok("yes"), _) => Logout::Survives,
        (Ok("no"), true) => Logout::Ends,
        (_, true) => Logout::Unknown,
        (_, false) => {
            match loginctl(&["show-user", "--property=KillUserProcesses", "--value"]).await.as_deref() {
                Ok("yes") => Logout::Ends,
                Ok("no") => Logout::Survives,
                _ => Logout::Unknown,
            }
        }
    }
}

async fn loginctl(args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("loginctl");
    command.args(args);
    systemd::run(command).await
}

/// The agent's socket in the environment of one of our own processes.
pub fn agent_socket(pid: u32) -> Option<AgentSocket> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let set = environment.split(|b| *b == 0).find_map(|v| v.strip_prefix(b"SSH_AUTH_SOCK="))?;
    let path = PathBuf::from(std::str::from_utf8(set).ok().filter(|p| !p.is_empty())?);
    let alive = UnixStream::connect(&path).is_ok();
    Some(AgentSocket { path, alive })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::process::Stdio;

    #[test]
    fn a_dead_agent_is_recognised() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        let mut command = std::process::Command::new("sleep");
        command.arg("60").env("SSH_AUTH_SOCK", &path).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        // The child's environment is not there at once, and another test's child may hold a copy of the listener until
        // it has its own program.
        let becomes = |alive| {
            let wanted = Some(AgentSocket { path: path.clone(), alive });
            let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while agent_socket(child.id()) != wanted {
                assert!(std::time::Instant::now() < until, "{:?}", agent_socket(child.id()));
            }
        };
        becomes(true);
        drop(listener);
        becomes(false);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(agent_socket(child.id()), None);
    }
}
