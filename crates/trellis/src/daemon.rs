//! A server in the background: a session of its own, no terminal, its words in a file of the state directory.
//!
//! It outlives the shell that started it. Whether it outlives the logout is the system's decision; see
//! [`crate::service`].

use crate::control::client::Client;
use crate::state::StateDir;
use crate::{limits, log, show};
use home::io_text;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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
    let mut words = vec!["serve".into(), "--state".into(), state.path().into()];
    words.extend(args.iter().cloned());
    let path = log_path(state);
    let log = open_log(&path)?;
    let said = log.metadata().map_or(0, |m| m.len());
    let out = log.try_clone().map_err(|e| format!("log: {}", io_text(&e)))?;
    let child = spawn(&words, out.into(), log)?;
    answering(state, child, said).await
}

/// A program of ours that goes on in the background once it has said that it is ready.
pub struct Background {
    /// What follows the name of the program.
    pub args: Vec<OsString>,
    /// Where it writes.
    pub log: PathBuf,
}

/// The line by which it says so on its standard output.
const READY: &str = "ready";

/// Starts it and waits for its word; if it ends without, its last words are the error.
pub async fn until_ready(work: Background) -> Result<(), String> {
    let log = open_log(&work.log)?;
    let said = log.metadata().map_or(0, |m| m.len());
    let mut child = spawn(&work.args, Stdio::piped(), log)?;
    let word = child.stdout.take().map(std::io::BufReader::new);
    let waiting = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        let read = word.map(|mut w| w.read_line(&mut line));
        (matches!(read, Some(Ok(_))) && line.trim_end() == READY, child)
    });
    let (ready, mut child) = waiting.await.map_err(|e| e.to_string())?;
    if ready {
        return Ok(());
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    let words = last_words(&work.log, said);
    Err(if words.is_empty() { format!("it ended at once ({status})") } else { words })
}

/// Tells whoever waits in [`until_ready`].
pub fn say_ready() -> Result<(), String> {
    let fail = |e: std::io::Error| format!("standard output: {}", io_text(&e));
    let mut out = std::io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush()).map_err(fail)?;
    // Whoever started us may wait for the end of the pipe.
    let null = File::options().write(true).open("/dev/null").map_err(fail)?;
    rustix::stdio::dup2_stdout(null).map_err(|e| fail(e.into()))
}

/// The log, ready to be appended to. One that has grown large is put aside first, in place of an older one.
pub fn open_log(path: &Path) -> Result<File, String> {
    let fail = |e: std::io::Error| {
        format!("log {}: {e}", show::text(path.as_os_str().as_encoded_bytes()), e = io_text(&e))
    };
    if path.metadata().is_ok_and(|m| m.len() > limits::LOG_BYTES) {
        std::fs::rename(path, path.with_extension("log.old")).map_err(fail)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(fail)
}

fn spawn(args: &[OsString], out: Stdio, log: File) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|e| format!("this program's own file: {}", io_text(&e)))?;
    let mut command = Command::new(&program);
    command.args(args).stdin(Stdio::null()).stdout(out).stderr(log);
    // SAFETY: setsid is async-signal-safe and touches no memory. Without it the end of the terminal is ours too.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into)) };
    command.spawn().map_err(|e| {
        format!("cannot run {}: {e}", show::text(program.as_os_str().as_encoded_bytes()), e = io_text(&e))
    })
}

/// Waits until the server answers; if it ends instead, its last words since `said` are the error. Of servers that are
/// started at the same time all but one end; then it is that one that answers.
async fn answering(state: &StateDir, mut child: Child, said: u64) -> Result<Started, String> {
    let until = Instant::now() + limits::START_WAIT;
    loop {
        // In this order: whoever else serves has the lock before ours ends, and answers before the lock is free again.
        let ended = child.try_wait().ok().flatten();
        let taken = ended.is_some() && state.lock_shared().is_err();
        if Client::connect(state).await.is_ok_and(|c| c.is_some()) {
            return Ok(if ended.is_some() { Started::Before } else { Started::Now });
        }
        let log = log_path(state);
        let shown = show::text(log.as_os_str().as_encoded_bytes());
        if let Some(status) = ended.filter(|_| !taken) {
            let mut words = last_words(&log, said);
            if words.is_empty() && crate::state::disk_is_full(state.path()) {
                words = "the disk of its state directory is full, and so nothing is in its log: make room there, or choose \
                         another with --state DIR"
                    .into();
            }
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

fn last_words(log: &Path, since: u64) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let new = String::from_utf8_lossy(text.get(since as usize..).unwrap_or(&text)).into_owned();
    // Whoever passes them on gives its own name.
    let lines = new.lines().map(log::unstamped);
    let lines: Vec<&str> = lines.map(|l| l.strip_prefix("trellis: ").unwrap_or(l)).collect();
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
        let log = open_log(&log_path(&state)).unwrap();
        assert_eq!(log.metadata().unwrap().len(), 0);
        assert_eq!(log.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let aside = log_path(&state).with_extension("log.old");
        assert_eq!(aside.metadata().unwrap().len(), limits::LOG_BYTES + 1);
        drop(open_log(&log_path(&state)).unwrap());
        assert!(aside.exists(), "a small log stays where it is");
    }

    #[test]
    fn the_last_words_are_those_of_the_last_start() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::create(Some(&temp.path().join("s")), true).unwrap();
        std::fs::write(log_path(&state), "old\n2026-11-22T15:41:01.5Z [7] trellis: new \x1b[31m\n").unwrap();
        let words = last_words(&log_path(&state), 4);
        assert!(words.starts_with("new") && !words.contains("old") && !words.contains('\x1b'), "{words}");
    }
}
