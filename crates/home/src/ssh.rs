//! The user's own OpenSSH client, run as a child process: one per connection.
//!
//! Whatever `~/.ssh/config` says stays in force: aliases, jump hosts, certificates, connection sharing. Options
//! on the command line only take away what an unattended connection must not have. Nothing passes through a
//! local shell, and what ssh or the far side print is bounded and escaped before a person sees it.

mod classify;
pub mod credentials;
mod facts;
mod master;
mod target;
#[cfg(test)]
mod tests;
mod word;

pub(crate) use classify::is_refusal;
pub use classify::{classify, quote};
pub use facts::{Facts, Persist};
pub use master::{Master, SOCKET_NAME_BYTES, short_hash};
pub use target::{Account, Control, SshTarget, VIA};
pub use word::shell_word;

use crate::agent::verbs::printable;
use crate::io_text;
use crate::limits::remote::{FAREWELL, OUTPUT_BYTES, PIPE_BYTES, STDERR_BYTES};
use crate::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::os::fd::AsRawFd;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// What an unattended connection must have, whatever the user's configuration says.
const FORCED: &[&str] = &[
    "BatchMode=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "Tunnel=no",
    "EscapeChar=none",
    "RequestTTY=no",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ConnectTimeout=10",
];

/// A running `ssh`, killed with its whole process group (jump hosts, proxy commands) when dropped.
#[derive(Debug)]
pub struct Child {
    process: tokio::process::Child,
    stderr: Arc<Mutex<Vec<u8>>>,
    target: SshTarget,
}

/// A child with its pipe.
#[derive(Debug)]
pub struct Channel {
    /// The process.
    pub child: Child,
    /// To the far side.
    pub stdin: ChildStdin,
    /// From the far side.
    pub stdout: ChildStdout,
}

/// What to start at the far side.
#[derive(Debug, Clone, Copy)]
pub enum Far<'a> {
    /// A command for the account's login shell.
    Command(&'a str),
    /// A subsystem of the server.
    Subsystem(&'a str),
}

impl Channel {
    /// Starts `ssh`. Login happens afterwards; its failure is the end of the pipe and [`Child::explain`].
    pub fn open(target: &SshTarget, far: Far) -> Result<Channel> {
        let mut command = base_command(target);
        for option in FORCED {
            command.args(["-o", option]);
        }
        command.arg("-T");
        target.add_control(&mut command);
        target.add_ciphers(&mut command);
        target.add_login(&mut command);
        match far {
            Far::Command(text) => command.args(["--", &target.host, text]),
            Far::Subsystem(name) => command.args(["-s", "--", &target.host, name]),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(|e| cannot_run(target, &e))?;
        let broken = || Error::new(ErrorKind::Io, "ssh was started without pipes");
        let stdin = process.stdin.take().ok_or_else(broken)?;
        let stdout = process.stdout.take().ok_or_else(broken)?;
        let messages = process.stderr.take().ok_or_else(broken)?;
        widen(&stdin);
        widen(&stdout);
        let stderr = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(keep_last(messages, stderr.clone()));
        Ok(Channel { child: Child { process, stderr, target: target.clone() }, stdin, stdout })
    }
}

fn base_command(target: &SshTarget) -> Command {
    let mut command = Command::new(&target.program);
    if let Some(config) = &target.config {
        command.arg("-F").arg(config);
    }
    command.env("SSH_ASKPASS_REQUIRE", "never").kill_on_drop(true);
    // SAFETY: setsid is async-signal-safe and touches no memory. A session of its own is a group of its own, and has no
    // terminal: the ssh that ssh runs for a jump host is not in batch mode, and would stop there with a question.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into)) };
    command
}

/// Lets a pipe hold what several packets of ssh carry: with the usual 64 KiB each side wakes the other for every packet
/// or two of a long transfer.
fn widen(pipe: &impl AsRawFd) {
    // SAFETY: this fcntl touches no memory of ours. Refused where the user has many large pipes; then it stays small.
    let _ = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
}

fn cannot_run(target: &SshTarget, e: &std::io::Error) -> Error {
    let text =
        format!("cannot run {}: {e}; install an OpenSSH client", target.program.display(), e = io_text(e));
    Error::new(ErrorKind::Unreachable, text)
}

async fn keep_last(mut from: impl AsyncRead + Unpin, to: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let mut kept = to.lock();
        kept.extend_from_slice(&buffer[..n]);
        let surplus = kept.len().saturating_sub(STDERR_BYTES);
        kept.drain(..surplus);
    }
}

/// What was printed, escaped line by line: ssh ends its lines as a terminal has them.
fn printable_lines(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    said.lines().map(|line| printable(line.trim_end().as_bytes())).collect::<Vec<_>>().join("\n")
}

/// How a child ended.
#[derive(Debug, Clone)]
pub struct Farewell {
    /// `None` if it still runs.
    pub status: Option<ExitStatus>,
    /// The last lines that ssh or the far side printed, escaped.
    pub said: String,
}

impl Farewell {
    /// Whether the far side ended as one does that does not run what was asked for: by itself, and in good health. What
    /// was killed, here or there, says nothing about what can run there.
    pub fn is_refusal(&self) -> bool {
        match self.status.and_then(|s| s.code()) {
            Some(255) => self.said.contains("request failed on channel"),
            Some(code) => code < 128,
            None => false,
        }
    }
}

impl Child {
    /// Where it connects to.
    pub fn target(&self) -> &SshTarget {
        &self.target
    }

    /// Forgets what ssh and the far side have printed.
    pub fn forget_said(&self) {
        self.stderr.lock().clear();
    }

    /// Waits a moment for the exit, then ends the child by force.
    pub async fn farewell(mut self) -> Farewell {
        let status = timeout(FAREWELL, self.process.wait()).await.ok().and_then(|r| r.ok());
        // A shared connection's master may hold stderr open for hours, so its end is not waited for.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let said = printable_lines(&self.stderr.lock());
        Farewell { status, said }
    }

    /// Why the connection ended, in a sentence that says what to do. `fallback` is for when ssh said nothing.
    pub async fn explain(self, fallback: Error) -> Error {
        let target = self.target.clone();
        let farewell = self.farewell().await;
        classify(&target, &farewell).unwrap_or(fallback)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The id is gone once the exit was collected; before that nobody else can have it.
        let pid = self.process.id().and_then(|id| rustix::process::Pid::from_raw(id as i32));
        if let Some(group) = pid {
            // Fails if the group has ended meanwhile, which is what is wanted.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        if let Control::Leads(socket) = &self.target.control {
            // Gone where ssh ended by itself.
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// What a program for a short answer said.
pub(crate) struct Output {
    /// Whether its status was 0.
    pub success: bool,
    /// Its standard output.
    pub text: String,
    /// Its standard error, escaped, in lines.
    pub said: String,
}

/// Runs a program for a short answer: bounded in bytes and time.
pub(crate) async fn collect(mut command: Command, patience: Duration) -> std::io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn()?;
    let (mut text, mut said) = (Vec::new(), Vec::new());
    let (out, err) = (process.stdout.take(), process.stderr.take());
    let read = async {
        if let (Some(out), Some(err)) = (out, err) {
            let (mut out, mut err) = (out.take(OUTPUT_BYTES), err.take(STDERR_BYTES as u64));
            let _ = tokio::join!(out.read_to_end(&mut text), err.read_to_end(&mut said));
        }
        process.wait().await
    };
    let status = timeout(patience, read).await.map_err(|_| std::io::ErrorKind::TimedOut)??;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(Output { success: status.success(), text, said: printable_lines(&said) })
}

/// Runs `ssh` for an answer that needs no connection, such as `-G`.
async fn ask_locally(target: &SshTarget, option: &str) -> Result<String> {
    let mut command = base_command(target);
    command.arg(option);
    target.add_login(&mut command);
    command.args(["--", &target.host]);
    let output = match collect(command, Duration::from_secs(30)).await {
        Err(e) if e.kind() != std::io::ErrorKind::TimedOut => return Err(cannot_run(target, &e)),
        output => output,
    };
    match output {
        Ok(output) if output.success => Ok(output.text),
        Ok(output) if !output.said.is_empty() => {
            let text = format!("ssh {option} {}: {}", target.host, quote(&output.said));
            let farewell = Farewell { status: None, said: output.said };
            Err(classify(target, &farewell).unwrap_or(Error::new(ErrorKind::Setup, text)))
        }
        // Killed, or out of time: nothing that a person has to change first.
        _ => Err(Error::new(ErrorKind::Unreachable, format!("ssh {option} {} was interrupted", target.host))),
    }
}
