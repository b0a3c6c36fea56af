//! A server that outlives the shell, and where the system allows it the logout.
//!
//! Where the user has a systemd manager the server is one of its units ([`systemd`]), started again when it dies.
//! Elsewhere it is a plain background process ([`crate::daemon`]). Its options come from the configuration file
//! either way, and its words go to the same log.

mod outlive;
mod systemd;

pub use outlive::{AgentSocket, Logout, agent_socket, logout};

use crate::control::client::Client;
use crate::control::proto::{Reply, Request};
use crate::daemon::{self, Started};
use crate::state::{StateDir, write_atomically};
use home::io_text;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use systemd::Unit;

/// What `install` was told, kept in the state directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Installed {
    /// The configuration file, if not the usual one.
    config: Option<PathBuf>,
}

/// Who starts the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Manager {
    /// The user's systemd manager.
    Systemd {
        /// Name of the unit.
        unit: String,
        /// Whether it starts with the manager.
        enabled: bool,
        /// `active`, `inactive`, `failed`…
        active: String,
    },
    /// Nobody but the commands.
    Plain {
        /// Whether a systemd manager runs that the server could be a unit of.
        systemd: bool,
    },
}

/// What `service status` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceReport {
    /// Who starts it.
    pub manager: Manager,
    /// Process id of the running server.
    pub pid: Option<u32>,
    /// Where it writes.
    pub log: PathBuf,
    /// What happens at the logout.
    pub logout: Logout,
    /// The ssh-agent that the running server was started with.
    pub agent: Option<AgentSocket>,
}

/// Makes the server start by itself: as a systemd unit where there is a manager. Answers what was done.
pub async fn install(state: &StateDir, config: Option<&Path>) -> Result<Manager, String> {
    let config =
        config.map(|c| std::path::absolute(c).map_err(|e| format!("{}: {e}", c.display(), e = io_text(&e))));
    let config = config.transpose()?;
    crate::config::load(config.as_deref())?;
    let installed = Installed { config };
    let text = serde_json::to_vec(&installed).map_err(|e| e.to_string())?;
    write_atomically(&record(state), &text)?;
    if systemd::runs() {
        Unit::of(state)?.install(state, &arguments(&installed)).await?;
    }
    manager(state).await
}

/// Takes back what [`install`] did; a running server goes on.
pub async fn uninstall(state: &StateDir) -> Result<(), String> {
    Unit::of(state)?.remove().await?;
    match std::fs::remove_file(record(state)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {e}", record(state).display(), e = io_text(&e)))
        }
        _ => Ok(()),
    }
}

/// Makes sure that a server runs: by its unit if it is installed as one, else in the background.
pub async fn start(state: &StateDir) -> Result<Started, String> {
    let unit = Unit::of(state)?;
    if !unit.is_installed() || !systemd::runs() {
        return daemon::ensure(state, &arguments(&installed(state)?)).await;
    }
    if Client::connect(state).await?.is_some() {
        return Ok(Started::Before);
    }
    drop(daemon::open_log(&daemon::log_path(state))?);
    if let Err(why) = systemd::keep_environment(state) {
        // The server may be what makes room on a full disk.
        tracing::warn!("the server starts with the environment of an earlier session: {why}");
    }
    unit.start().await.map_err(|why| format!("{why}\n{}", advice(state)))?;
    Ok(Started::Now)
}

fn advice(state: &StateDir) -> String {
    format!("`trellis service logs --state {}` shows why", crate::show::path_word(state.path()))
}

/// How the server is kept, and whether it lives.
pub async fn report(state: &StateDir) -> Result<ServiceReport, String> {
    let pid = match Client::connect(state).await? {
        Some(mut client) => {
            let asked = async {
                client.greet().await?;
                client.ask(Request::Status).await
            };
            match asked.await {
                Ok(Reply::Status(status)) => Some(status.pid),
                Ok(_) => None,
                Err(e) => return Err(crate::show::message(&e.detail)),
            }
        }
        None => None,
    };
    let manager = manager(state).await?;
    let logout = logout(matches!(manager, Manager::Systemd { .. })).await;
    Ok(ServiceReport {
        manager,
        pid,
        log: daemon::log_path(state),
        logout,
        agent: pid.and_then(agent_socket),
    })
}

async fn manager(state: &StateDir) -> Result<Manager, String> {
    let unit = Unit::of(state)?;
    let systemd = systemd::runs();
    if !unit.is_installed() || !systemd {
        return Ok(Manager::Plain { systemd });
    }
    let (enabled, active) = (unit.is_enabled().await, unit.activity().await);
    Ok(Manager::Systemd { unit: unit.name().into(), enabled, active })
}

fn record(state: &StateDir) -> PathBuf {
    state.path().join("service.json")
}

fn installed(state: &StateDir) -> Result<Installed, String> {
    match std::fs::read(record(state)) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|e| format!("{}: {e}: run `trellis service install` again", record(state).display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Installed::default()),
        Err(e) => Err(format!("{}: {e}", record(state).display(), e = io_text(&e))),
    }
}

/// What follows `serve --state DIR`.
fn arguments(installed: &Installed) -> Vec<OsString> {
    match &installed.config {
        Some(config) => vec!["--config".into(), config.clone().into()],
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_installed_is_found_again() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::create(Some(&temp.path().join("s")), true).unwrap();
        assert_eq!(arguments(&installed(&state).unwrap()), Vec::<OsString>::new());
        let one = Installed { config: Some("/c/x.toml".into()) };
        write_atomically(&record(&state), &serde_json::to_vec(&one).unwrap()).unwrap();
        assert_eq!(installed(&state).unwrap(), one);
        assert_eq!(arguments(&one), ["--config", "/c/x.toml"]);
        std::fs::write(record(&state), "{").unwrap();
        assert!(installed(&state).unwrap_err().contains("install` again"));
    }
}
