//! A server in the background: a session of its own, no terminal, its words in a file of the state directory.
//!
//! It outlives the shell that started it. Whether it outlives the logout is the system's decision; see
//! [`crate::service`].

use crate::control::client::Client;
use crate::state::StateDir;
use crate::{limits, show};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// What a start found or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// A server that was there already.
    Before,
    /// One that was started now.
    Now,
}

/// Where the server of a state directory writes when it has no terminal.
pub fn log_path(state: &StateDir) -> PathBuf {
    state.path().join("server.log")
}

/// Makes sure that a server runs and answers. `args` follow `serve --state DIR`.
pub async fn ensure(state: &StateDir, args: &[OsString]) -> Result<Started, String> {
    if Client::connect(state).await?.is_some() {
        return Ok(Started::Before);
    }
    let log = open_log(state)?;
    let said = log.metadata().map_or(0, |m| m.len());
    let child = spawn(state, args, log)?;
    answering(state, child, said).await.map(|()| Started::Now)
}

/// The log, ready to be appended to. One that has grown large is put aside first, in place of an older one.
pub fn open_log(state: &StateDir) -> Result<File, String> {
    let path = log_path(state);
    let fail = |e: std::io::Error| format!("log {}: {e}", show::text(path.as_os_str().as_encoded_bytes()));
    if path.metadata().is_ok_and(|m| m.len() > limits::LOG_BYTES) {
        std::fs::rename(&path, path.with_extension("log.old")).map_err(fail)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(fail)
}

fn spawn(state: &StateDir, args: &[OsString], log: File) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|e| format!("this program's own file: {e}"))?;
    let err = log.try_clone().map_err(|e| format!("log: {e}"))?;
    let mut command = Command::new(&program);
    command.arg("serve").arg("--state").arg(state.path()).args(args);
    command.stdin(Stdio::null()).stdout(log).stderr(err);
    // SAFETY: setsid is async-signal-safe and touches no memory. Without it the end of the terminal is ours too.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into)) };
    command
        .spawn()
        .map_err(|e| format!("cannot run {}: {e}", show::text(program.as_os_str().as_encoded_bytes())))
}

/// Waits until the server answers; if it ends instead, its last words since `said` are the error.
async fn answering(state: &StateDir, mut child: Child, said: u64) -> Result<(), String> {
    let until = Instant::now() + limits::START_WAIT;
    loop {
        if Client::connect(state).await.is_ok_and(|c| c.is_some()) {
            return Ok(());
        }
        let log = log_path(state);
        let shown = show::text(log.as_os_str().as_encoded_bytes());
        if let Ok(Some(status)) = child.try_wait() {
            let words = last_words(state, said);
            return Err(format!("the server ended at once ({status}): {words}\nmore may be in {shown}"));
        }
        if Instant::now() > until {
            let waited = show::span(limits::START_WAIT.as_secs_f64());
            return Err(format!(
                "the server (process {}) was started but does not answer after {waited}; see {shown}",
                child.id()
            ));
        }
        tokio::time::sleep(limits::START_POLL).await;
    }
}

fn last_words(state: &StateDir, since: u64) -> String {
    let text = std::fs::read(log_path(state)).unwrap_or_default();
    let new = String::from_utf8_lossy(text.get(since as usize..).unwrap_or(&text)).into_owned();
    let lines: Vec<&str> = new.lines().collect();
    let last = &lines[lines.len().saturating_sub(limits::LAST_WORDS)..];
    show::message(&last.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_large_log_is_put_aside_and_the_new_one_is_private() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::create(Some(&temp.path().join("s")), true).unwrap();
        let large = File::create(log_path(&state)).unwrap();
        large.set_len(limits::LOG_BYTES + 1).unwrap();
        let log = open_log(&state).unwrap();
        assert_eq!(log.metadata().unwrap().len(), 0);
        assert_eq!(log.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let aside = log_path(&state).with_extension("log.old");
        assert_eq!(aside.metadata().unwrap().len(), limits::LOG_BYTES + 1);
        drop(open_log(&state).unwrap());
        assert!(aside.exists(), "a small log stays where it is");
    }

    #[test]
    fn the_last_words_are_those_of_the_last_start() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::create(Some(&temp.path().join("s")), true).unwrap();
        std::fs::write(log_path(&state), "old\nnew \x1b[31m\n").unwrap();
        let words = last_words(&state, 4);
        assert!(words.contains("new") && !words.contains("old") && !words.contains('\x1b'), "{words}");
    }
}
