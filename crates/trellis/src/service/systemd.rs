//! The server as a unit of the user's systemd manager (systemd.service(5), systemd.exec(5)).

use crate::daemon;
use crate::state::{StateDir, write_atomically, xdg};
use crate::{limits, show};
use home::io_text;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// What a server needs of the session that it is started from, to use the same keys and programs.
const INHERITED: [&str; 3] = ["SSH_AUTH_SOCK", "KRB5CCNAME", "PATH"];

/// The unit of one state directory.
pub struct Unit {
    name: String,
    file: PathBuf,
}

/// Whether a systemd manager of this user runs.
pub fn runs() -> bool {
    let socket = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("systemd/private"));
    socket.is_some_and(|s| s.exists())
}

/// Keeps what the server needs of this session where the unit looks for it.
pub fn keep_environment(state: &StateDir) -> Result<(), String> {
    let mut text = String::new();
    for name in INHERITED {
        let value = std::env::var(name).ok().filter(|v| !v.chars().any(char::is_control));
        if let Some(value) = value {
            let _ = writeln!(text, "{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
        }
    }
    write_atomically(&environment(state), text.as_bytes())
}

fn environment(state: &StateDir) -> PathBuf {
    state.path().join("environment")
}

impl Unit {
    /// The unit of this state directory, installed or not.
    pub fn of(state: &StateDir) -> Result<Unit, String> {
        let name = match state.is_usual() {
            true => "trellis.service".to_owned(),
            false => format!("trellis-{}.service", escaped_path(state.path())),
        };
        let dir = xdg("XDG_CONFIG_HOME", ".config").ok_or("no home directory is known: set HOME")?;
        Ok(Unit { file: dir.join("systemd/user").join(&name), name })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its file is there.
    pub fn is_installed(&self) -> bool {
        self.file.exists()
    }

    /// Writes the file and lets the manager start it from now on.
    pub async fn install(&self, state: &StateDir, args: &[OsString]) -> Result<(), String> {
        let program =
            std::env::current_exe().map_err(|e| format!("this program's own file: {}", io_text(&e)))?;
        let text = unit_text(&program, state, args)?;
        let dir = self.file.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display(), e = io_text(&e)))?;
        keep_environment(state)?;
        write_atomically(&self.file, text.as_bytes())?;
        systemctl(&["daemon-reload"]).await?;
        systemctl(&["enable", "--quiet", &self.name]).await.map(drop)
    }

    /// Removes the file; a running server goes on.
    pub async fn remove(&self) -> Result<(), String> {
        if !self.is_installed() {
            return Ok(());
        }
        if runs() {
            systemctl(&["disable", "--quiet", &self.name]).await?;
        }
        std::fs::remove_file(&self.file)
            .map_err(|e| format!("{}: {e}", self.file.display(), e = io_text(&e)))?;
        if runs() { systemctl(&["daemon-reload"]).await.map(drop) } else { Ok(()) }
    }

    /// Starts it and waits until the server has said that it is ready.
    pub async fn start(&self) -> Result<(), String> {
        // A unit that failed too often before is refused until that is forgotten; it may not have failed at all.
        let _ = systemctl(&["reset-failed", &self.name]).await;
        systemctl(&["start", &self.name]).await.map(drop)
    }

    /// Whether it starts with the manager.
    pub async fn is_enabled(&self) -> bool {
        systemctl(&["is-enabled", &self.name]).await.is_ok_and(|said| said == "enabled")
    }

    /// What the manager says of it: `active`, `failed`…
    pub async fn activity(&self) -> String {
        let property = systemctl(&["show", "--property=ActiveState", "--value", &self.name]).await;
        property.unwrap_or_else(|_| "unknown".into())
    }
}

async fn systemctl(args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("systemctl");
    command.arg("--user").args(args);
    run(command).await
}

/// The output of a short program of the system, or what it complained of.
pub async fn run(mut command: Command) -> Result<String, String> {
    let name = show::text(command.as_std().get_program().as_bytes());
    command.stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(limits::SYSTEM_PROGRAM, command.output());
    let output = output.await.map_err(|_| format!("{name} does not answer"))?;
    let output = output.map_err(|e| format!("cannot run {name}: {}", io_text(&e)))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{name} failed: {}", show::message(said.trim())))
        }
    }
}

fn unit_text(program: &Path, state: &StateDir, args: &[OsString]) -> Result<String, String> {
    let mut command = vec![quoted(program.as_os_str())?, "serve".into(), "--state".into()];
    command.push(quoted(state.path().as_os_str())?);
    for arg in args {
        command.push(quoted(arg)?);
    }
    let (command, log) = (command.join(" "), plain(daemon::log_path(state).as_os_str())?);
    let environment = plain(environment(state).as_os_str())?;
    Ok(format!(
        "[Unit]\n\
         Description=Trellis: one file tree over every machine reachable by SSH\n\
         \n\
         [Service]\n\
         Type=notify\n\
         ExecStart={command}\n\
         EnvironmentFile=-{environment}\n\
         StandardOutput=append:{log}\n\
         StandardError=append:{log}\n\
         Restart=on-failure\n\
         RestartSec=2\n\
         TimeoutStopSec=60\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    ))
}

/// A path in a setting that takes the rest of the line; `%` begins a specifier.
fn plain(value: &OsStr) -> Result<String, String> {
    let text = value.to_str().filter(|t| !t.chars().any(char::is_control));
    let text =
        text.ok_or_else(|| format!("{}: a unit cannot name this path", show::text(value.as_bytes())))?;
    Ok(text.replace('%', "%%"))
}

/// A word of a command line (systemd.service(5), "Command lines").
fn quoted(value: &OsStr) -> Result<String, String> {
    let text = plain(value)?.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "$$");
    Ok(format!("\"{text}\""))
}

/// A path as part of a unit's name, as systemd-escape(1) writes it.
fn escaped_path(path: &Path) -> String {
    let mut out = String::new();
    for byte in path.as_os_str().as_bytes().strip_prefix(b"/").unwrap_or(b"").iter() {
        match byte {
            b'/' => out.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b':' => out.push(char::from(*byte)),
            b'.' if !out.is_empty() => out.push('.'),
            other => {
                let _ = write!(out, "\\x{other:02x}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_as_systemd_does() {
        assert_eq!(escaped_path(Path::new("/home/ann/my-state.d")), "home-ann-my\\x2dstate.d");
        assert_eq!(escaped_path(Path::new("/.x y")), "\\x2ex\\x20y");
    }

    #[test]
    fn words_of_a_command_line_are_taken_literally() {
        assert_eq!(quoted(OsStr::new("/a b/100%$x\"\\")).unwrap(), "\"/a b/100%%$$x\\\"\\\\\"");
        assert!(quoted(OsStr::new("a\nb")).is_err());
        assert!(quoted(OsStr::from_bytes(b"\xff")).is_err());
    }

    #[test]
    fn the_unit_runs_this_state_directory() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::create(Some(&temp.path().join("my state")), true).unwrap();
        let text = unit_text(Path::new("/bin/trellis"), &state, &["--config".into(), "/c".into()]).unwrap();
        let dir = state.path().display();
        assert!(
            text.contains(&format!(
                "ExecStart=\"/bin/trellis\" serve --state \"{dir}\" \"--config\" \"/c\"\n"
            )),
            "{text}"
        );
        assert!(text.contains(&format!("StandardError=append:{dir}/server.log\n")), "{text}");
    }
}
