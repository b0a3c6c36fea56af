//! Gets the agent to a host and starts it, in one `ssh` execution.
//!
//! The command is one line of plain `sh`, quoted so that bash, dash, csh and fish pass it on alike. It prints a
//! marker with a nonce (whatever came before is noise of start-up files), looks for the agent under the name
//! that its hash gives it, and runs it; or it asks for the program, checks it by running it, and keeps it.
//!
//! ```text
//! far side:  NONCE run DIR              then it is the agent
//!            NONCE put PLATFORM DIR     we send the program; then again `run` or `fail`
//!            NONCE none KERNEL CPU      no agent for this machine
//!            NONCE nodir                no directory where we may keep and run a program
//!            NONCE fail DIR             the program arrived, but could not be kept or run
//! ```
//! Directories: `${XDG_CACHE_HOME:-~/.cache}/trellis`, else one of our own in `/dev/shm` or `/var/tmp`; ours
//! alone (owner, mode 0700, no symbolic link). The last three programs per platform are kept.
//!
//! The first thing that we send is an SFTP greeting and a line end. The script swallows it as a line, an agent
//! that was started by a forced command skips it as noise, and an SFTP server that was forced instead of a shell
//! answers it, which is how we know without waiting.

#[cfg(test)]
mod tests;

use super::frame::{MAGIC, VERSION_MAX};
use super::verbs::printable;
use crate::limits::agent::NOISE_MAX;
use crate::limits::remote::{LOGIN, UPLOAD};
use crate::ssh::{self, Channel, Far, SshTarget};
use crate::{Error, ErrorKind, Result};
use bytes::{Bytes, BytesMut};
use std::hash::{BuildHasher, RandomState};
use std::io::Cursor;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Chain};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout_at};

/// SSH_FXP_INIT, version 3, and a line end.
const SFTP_GREETING: &[u8] = b"\0\0\0\x05\x01\0\0\0\x03\n";
/// SSH_FXP_VERSION, version 3, behind its length.
const SFTP_ANSWER: &[u8] = b"\x02\0\0\0\x03";

/// An agent for one kind of machine.
#[derive(Clone)]
struct AgentBinary {
    /// As `linux-x86_64`.
    platform: String,
    /// As `uname -s` and `uname -m` say.
    uname: String,
    bytes: Bytes,
    hash: blake3::Hash,
}

/// The agents that we carry, at most one for each kind of machine. Cheap to clone.
#[derive(Clone, Default)]
pub struct AgentBinaries(Arc<Vec<AgentBinary>>);

impl AgentBinaries {
    /// None: every home is reached by SFTP.
    pub fn none() -> AgentBinaries {
        AgentBinaries::default()
    }

    /// Adds the agent for Linux on a processor that Rust names `arch` (as `x86_64`, `aarch64`).
    pub fn with_linux(mut self, arch: &str, program: impl Into<Bytes>) -> AgentBinaries {
        let bytes = program.into();
        let hash = blake3::hash(&bytes);
        let (platform, uname) = (format!("linux-{arch}"), format!("Linux {arch}"));
        Arc::make_mut(&mut self.0).push(AgentBinary { platform, uname, bytes, hash });
        self
    }

    /// The platforms, as `linux-x86_64`.
    pub fn platforms(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|b| b.platform.as_str())
    }
}

impl AgentBinary {
    fn file_name(&self) -> String {
        format!("agent-{VERSION_MAX}-{}-{}", self.platform, &self.hash.to_hex()[..16])
    }
}

/// A pipe to a running agent.
pub struct Pipe {
    /// From the agent.
    pub reader: Chain<Cursor<Bytes>, ChildStdout>,
    /// To the agent.
    pub writer: ChildStdin,
    /// The process that carries the pipe.
    pub child: ssh::Child,
}

/// What came of it.
pub enum Deployed {
    /// The agent runs.
    Agent(Box<Pipe>),
    /// The host lets us in, but no agent can run there, and why.
    Impossible(String),
}

/// Where programs are kept; tried in this order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Cache,
    Fallback,
}

/// Starts an agent. Fails only where ssh itself failed.
pub async fn deploy(target: &SshTarget, agents: &AgentBinaries) -> Result<Deployed> {
    match attempt(target, agents, Place::Cache).await? {
        Attempt::Done(done) => Ok(done),
        // The program did not fit or did not run there.
        Attempt::Failed(_) => match attempt(target, agents, Place::Fallback).await? {
            Attempt::Done(done) => Ok(done),
            Attempt::Failed(dir) => {
                let text =
                    format!("the agent could neither be kept in the account's cache directory nor in {dir}");
                Ok(Deployed::Impossible(text))
            }
        },
    }
}

/// A further pipe into the agent that runs there as this process: if another one answers, it was started by other means
/// than ours. It can be written to at once; what the script says comes before the agent's greeting, and nothing else
/// where there is no agent.
pub async fn join(target: &SshTarget, agents: &AgentBinaries, pid: u32) -> Result<Pipe> {
    let command = command(&nonce(), agents, Place::Cache, Some(pid));
    let Channel { child, mut stdin, stdout } = Channel::open(target, Far::Command(&command))?;
    // Fails if the far side is gone already; reading tells why.
    let _ = stdin.write_all(SFTP_GREETING).await;
    Ok(Pipe { reader: Cursor::new(Bytes::new()).chain(stdout), writer: stdin, child })
}

fn nonce() -> String {
    format!("trellis-{:016x}{:016x}", random(), random())
}

enum Attempt {
    Done(Deployed),
    Failed(String),
}

async fn attempt(target: &SshTarget, agents: &AgentBinaries, place: Place) -> Result<Attempt> {
    let nonce = nonce();
    let channel = Channel::open(target, Far::Command(&command(&nonce, agents, place, None)))?;
    let mut talk = Talk { channel, seen: BytesMut::new(), nonce, noise: 0 };
    // Fails if the far side is gone already; reading tells why.
    let _ = talk.channel.stdin.write_all(SFTP_GREETING).await;
    let deadline = Instant::now() + LOGIN;
    let mut heard = match timeout_at(deadline, talk.hear()).await {
        Ok(heard) => heard,
        Err(_) => return Err(talk.too_slow("did not finish the login").await),
    };
    if let Heard::Word(word, rest) = &heard
        && word == "put"
    {
        let platform = rest.split(' ').next().unwrap_or_default();
        let program = agents.0.iter().find(|b| b.platform == platform);
        let Some(program) = program.map(|b| b.bytes.clone()) else {
            return Ok(impossible("it asked for nothing"));
        };
        let deadline = Instant::now() + UPLOAD;
        heard = match timeout_at(deadline, talk.send(&program)).await {
            Ok(heard) => heard,
            Err(_) => return Err(talk.too_slow("did not take the agent's program").await),
        };
    }
    talk.conclude(heard).await
}

fn impossible(why: impl Into<String>) -> Attempt {
    Attempt::Done(Deployed::Impossible(why.into()))
}

/// A number that nobody can foresee; it need not be fit for keys.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0u8)
}

/// What the far side said.
enum Heard {
    /// A word of the script, and the rest of its line.
    Word(String, String),
    /// An agent without our script: a forced command.
    Agent,
    /// An SFTP server without our script: a forced command.
    Sftp,
    /// Nothing more will come.
    End,
}

struct Talk {
    channel: Channel,
    seen: BytesMut,
    nonce: String,
    noise: usize,
}

impl Talk {
    /// Reads up to the next thing that we know.
    async fn hear(&mut self) -> Heard {
        loop {
            if let Some(heard) = self.recognise() {
                return heard;
            }
            let before = self.seen.len();
            match self.channel.stdout.read_buf(&mut self.seen).await {
                Ok(1..) if self.noise <= NOISE_MAX => self.noise += self.seen.len() - before,
                _ => return Heard::End,
            }
        }
    }

    fn recognise(&mut self) -> Option<Heard> {
        let find = |needle: &[u8]| self.seen.windows(needle.len()).position(|w| w == needle);
        if let Some(at) = find(self.nonce.as_bytes()) {
            let line = &self.seen[at + self.nonce.len()..];
            let end = line.iter().position(|b| *b == b'\n')?;
            let line = printable(&line[..end]);
            let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            let heard = Heard::Word(word.to_owned(), rest.to_owned());
            let skip = at + self.nonce.len() + end + 1;
            bytes::Buf::advance(&mut self.seen, skip);
            return Some(heard);
        }
        if find(&MAGIC).is_some() {
            return Some(Heard::Agent);
        }
        find(SFTP_ANSWER).is_some_and(|at| at >= 4).then_some(Heard::Sftp)
    }

    /// Sends the program, and hears what became of it: the far side may give up before it has read everything.
    async fn send(&mut self, program: &[u8]) -> Heard {
        let mut left = program;
        while !left.is_empty() {
            if let Some(heard) = self.recognise() {
                return heard;
            }
            tokio::select! {
                written = self.channel.stdin.write(left) => match written {
                    Ok(n @ 1..) => left = &left[n..],
                    _ => break,
                },
                read = self.channel.stdout.read_buf(&mut self.seen) => match read {
                    Ok(1..) => {}
                    _ => return Heard::End,
                },
            }
        }
        self.hear().await
    }

    async fn conclude(self, heard: Heard) -> Result<Attempt> {
        match heard {
            Heard::Agent => Ok(self.into_agent()),
            Heard::Sftp => Ok(impossible("the account is restricted to SFTP by its server")),
            Heard::End => self.ended().await,
            Heard::Word(word, rest) => match word.as_str() {
                "run" => Ok(self.into_agent()),
                "none" => Ok(impossible(format!("this Trellis carries no agent for {rest}"))),
                "nodir" => Ok(impossible("the account has no directory where a program can be kept and run")),
                "fail" => Ok(Attempt::Failed(rest)),
                _ => Ok(impossible("the start script was not understood there")),
            },
        }
    }

    fn into_agent(self) -> Attempt {
        let Channel { child, stdin, stdout } = self.channel;
        let reader = Cursor::new(self.seen.freeze()).chain(stdout);
        Attempt::Done(Deployed::Agent(Box::new(Pipe { reader, writer: stdin, child })))
    }

    /// The far side ended without a word of ours: ssh failed, or there is no shell.
    async fn ended(self) -> Result<Attempt> {
        let Channel { child, stdin, stdout } = self.channel;
        drop((stdin, stdout));
        let target = child.target().clone();
        let farewell = child.farewell().await;
        if let Some(error) = ssh::classify(&target, &farewell) {
            return Err(error);
        }
        if !farewell.is_refusal() {
            let text = format!("{target} ended before the agent was started: {}", ssh::quote(&farewell.said));
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        let said = ssh::quote(&farewell.said);
        let shown = printable(self.seen[..self.seen.len().min(200)].trim_ascii());
        Ok(impossible(format!(
            "the account has no shell that runs a command ({})",
            [said, shown].join(" ").trim()
        )))
    }

    async fn too_slow(self, what: &str) -> Error {
        let text = format!("{} {what} in time", self.channel.child.target());
        self.channel.child.explain(Error::new(ErrorKind::Unreachable, text)).await
    }
}

/// What the login shell is given. No quote, exclamation mark, backslash or line end may stand in the script.
fn command(nonce: &str, agents: &AgentBinaries, place: Place, join: Option<u32>) -> String {
    let cases: String = agents
        .0
        .iter()
        .map(|b| {
            let (uname, platform, file) = (&b.uname, &b.platform, b.file_name());
            format!("\"{uname}\") b={file}; l={platform}; s={}; h={};; ", b.bytes.len(), b.hash.to_hex())
        })
        .collect();
    let dirs = match place {
        Place::Cache => "\"$c\" \"$f\"",
        Place::Fallback => "\"$f\"",
    };
    let script = SCRIPT.replace("@CASES@", &cases).replace("@DIRS@", dirs);
    let script = script.replace("@ARGS@", &join.map(|pid| format!("--join {pid}")).unwrap_or_default());
    let script = script.replace("@NONCE@", nonce).replace("@VERSION@", &VERSION_MAX.to_string());
    format!("exec /bin/sh -c '{}'", script.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// `own DIR`: it is ours alone. `run DIR`: becomes the agent if it is there and whole. A program without a first
/// line for the kernel is run by the shell, which tells in advance whether the directory allows programs.
const SCRIPT: &str = r#"
read -r x;
m=@NONCE@; u="$(uname -s) $(uname -m)";
case "$u" in @CASES@ *) echo "$m none $u"; exit 0;; esac;
umask 077;
c="${XDG_CACHE_HOME:-$HOME/.cache}/trellis";
f=/var/tmp; if [ -d /dev/shm ] && [ -w /dev/shm ]; then f=/dev/shm; fi; f="$f/trellis-$(id -u)";
p="trellis-agent @VERSION@ $l $h";
own() {
    mkdir -p "$1" 2>/dev/null;
    if [ -L "$1" ]; then return 1; fi;
    [ -d "$1" ] && [ -O "$1" ] && chmod 700 "$1" 2>/dev/null;
};
whole() { [ -x "$1" ] && [ "$("$1" --probe 2>/dev/null </dev/null)" = "$p" ]; };
run() {
    whole "$1/$b" || return 1;
    touch "$1/$b" 2>/dev/null;
    ls -t "$1" 2>/dev/null | grep "^agent-.*-$l-" | tail -n +4 | while read -r o; do rm -f "$1/$o"; done;
    echo "$m run $1"; exec "$1/$b" @ARGS@;
};
for d in @DIRS@; do own "$d" && run "$d"; done;
[ -z "@ARGS@" ] || exit 1;
for d in @DIRS@; do
    own "$d" || continue;
    t="$d/.new-$$-$m";
    if echo "exit 0" 2>/dev/null >"$t" && chmod 700 "$t" && "$t" 2>/dev/null; then
        echo "$m put $l $d";
        head -c "$s" >"$t" && whole "$t" && mv -f "$t" "$d/$b" && run "$d";
        rm -f "$t"; echo "$m fail $d"; exit 0;
    fi;
    rm -f "$t";
done;
echo "$m nodir"
"#;
