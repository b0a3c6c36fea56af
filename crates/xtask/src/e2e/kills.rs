//! Sudden ends: what is killed, and when.

use super::accounts::{Account, GATEWAY};
use super::proc::{self, of_user};
use super::server::Server;
use super::trees::Noise;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How soon a killed server must have ended.
const ENDED: Duration = Duration::from_secs(60);
/// How long an agent without a connection stands still: longer than it takes to log in again.
const LATE: Duration = Duration::from_millis(400);
/// The longest pause before somebody is killed once more, in milliseconds.
const AGAIN: u64 = 400;

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kill {
    /// The server, and no other process: what it has sent goes on arriving.
    Server,
    /// The server with all that it started.
    ServerWithAll,
    /// The server, and the next one while it finds out what arrived.
    ServerTwice,
    /// The same with all that they started.
    ServerWithAllTwice,
    /// Every ssh of the server.
    Ssh,
    /// The same, and what runs at the home goes on only when another connection may be at work.
    SshOfLateAgent,
    /// Whatever runs at the home but sshd and the scenario's own programs, in Python.
    Agent,
}

impl Kill {
    /// Kills it with SIGKILL; a server is started again. Answers how many were killed: servers, or processes.
    pub fn strike(self, server: &mut Server, home: Account, chance: &mut Chance) -> Result<usize> {
        let killed = match self {
            Kill::Server => alone(server)?,
            Kill::ServerWithAll => with_all(server)?,
            Kill::ServerTwice => {
                alone(server)?;
                chance.pause(AGAIN);
                1 + alone(server)?
            }
            Kill::ServerWithAllTwice => {
                with_all(server)?;
                chance.pause(AGAIN);
                1 + with_all(server)?
            }
            Kill::Ssh => kill_all(&of_user(GATEWAY.uid, |name| name == "ssh")),
            Kill::SshOfLateAgent => {
                let old = at_home(home);
                proc::signal_all(&old, Signal::STOP);
                let killed = kill_all(&of_user(GATEWAY.uid, |name| name == "ssh"));
                std::thread::sleep(LATE);
                proc::signal_all(&old, Signal::CONT);
                killed
            }
            Kill::Agent => kill_all(&at_home(home)),
        };
        server.must_run()?;
        Ok(killed)
    }
}

fn alone(server: &mut Server) -> Result<usize> {
    server.kill_alone()?;
    server.wait(ENDED).context("the killed server")?;
    server.restart()?;
    Ok(1)
}

/// Kills the server with all that it started, and starts it again.
pub fn with_all(server: &mut Server) -> Result<usize> {
    server.kill()?;
    server.restart().with_context(|| format!("state in {}", server.state().display()))?;
    Ok(1)
}

fn at_home(home: Account) -> Vec<Pid> {
    of_user(home.uid, |name| !name.starts_with("sshd") && !name.starts_with("python"))
}

fn kill_all(pids: &[Pid]) -> usize {
    proc::signal_all(pids, Signal::KILL);
    pids.len()
}

/// What a seed decides.
pub struct Chance(Noise);

impl Chance {
    /// The same for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(Noise::new(seed))
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        let bytes = self.0.bytes(8);
        bytes.iter().fold(0u64, |n, b| n << 8 | u64::from(*b)) % limit
    }

    /// Sleeps for less than so long.
    pub fn pause(&mut self, longest_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.below(longest_ms)));
    }
}

/// `TRELLIS_SEED`, or another each time.
pub fn seed() -> Result<u64> {
    match std::env::var("TRELLIS_SEED") {
        Ok(seed) => seed.parse().context("TRELLIS_SEED"),
        Err(_) => Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64 % 1_000_000),
    }
}
