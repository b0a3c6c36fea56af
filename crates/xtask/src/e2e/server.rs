//! The server under test, and its commands.

use super::accounts::GATEWAY;
use super::proc::{Daemon, wait_for};
use super::world::World;
use crate::run;
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// `trellis serve`, run by [`GATEWAY`].
pub struct Server {
    args: Vec<String>,
    program: Gateway,
    daemon: Daemon,
    /// Where it serves NFS and MOUNT.
    pub addr: SocketAddr,
}

/// How the account [`GATEWAY`] calls the program: as a user would, with nothing of our environment.
#[derive(Clone)]
pub struct Gateway {
    binary: PathBuf,
    world: PathBuf,
    name: String,
}

impl Gateway {
    /// The program in this world.
    pub fn new(world: &World) -> Self {
        Self::named(world, "server")
    }

    /// The same, with a state directory of its own.
    pub fn named(world: &World, name: &str) -> Self {
        Self { binary: world.trellis.clone(), world: world.dir.clone(), name: name.into() }
    }

    /// `trellis ARGS`.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut cmd = Command::new(&self.binary);
        cmd.args(args).uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir(GATEWAY.home(&self.world));
        cmd.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", GATEWAY.home(&self.world));
        if let Some(filter) = std::env::var_os("TRELLIS_LOG") {
            cmd.env("TRELLIS_LOG", filter);
        }
        cmd
    }

    /// A script of the same account, with the program's usual state directory.
    pub fn shell(&self, script: &str) -> Command {
        let mut cmd = Command::new("bash");
        cmd.args(["-c", script]).uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir(GATEWAY.home(&self.world));
        cmd.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", GATEWAY.home(&self.world));
        cmd
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        GATEWAY.home(&self.world).join(format!("{}-state", self.name))
    }

    fn ready_file(&self) -> PathBuf {
        GATEWAY.home(&self.world).join(format!("{}-ready.json", self.name))
    }

    fn serve(&self, args: &[String]) -> Result<(Daemon, SocketAddr)> {
        let ready = self.ready_file();
        let _ = fs::remove_file(&ready);
        let mut cmd = self.command(&["serve"]);
        cmd.arg("--state").arg(self.state()).arg("--ready").arg(&ready).args(args);
        let mut daemon =
            Daemon::start("trellis serve", &mut cmd, &self.world.join(format!("{}.log", self.name)))?;
        let addr = wait_for("the server", Duration::from_secs(60), || match daemon.ended() {
            Ok(Some(status)) => Some(Err(format!("trellis serve ended ({status}):\n{}", daemon.tail()))),
            _ => fs::read(&ready).ok().and_then(|text| parse_ready(&text)).map(Ok),
        })?;
        Ok((daemon, addr.map_err(anyhow::Error::msg)?))
    }
}

/// The first address of `{"nfs": ["ADDR:PORT", …]}`.
fn parse_ready(text: &[u8]) -> Option<SocketAddr> {
    let ready: Value = serde_json::from_slice(text).ok()?;
    ready["nfs"][0].as_str()?.parse().ok()
}

impl Server {
    /// Starts it with these arguments besides state and ready file.
    pub fn start(program: Gateway, args: Vec<String>) -> Result<Self> {
        let (daemon, addr) = program.serve(&args)?;
        Ok(Self { args, program, daemon, addr })
    }

    /// kill -9, and everything that it started with it, as when a machine loses power over its processes.
    pub fn kill(&mut self) -> Result<()> {
        let family = super::proc::family(self.daemon.pid());
        self.daemon.kill()?;
        super::proc::signal_all(&family, Signal::KILL);
        Ok(())
    }

    /// kill -9 of its process and no other; [`Server::wait`] tells when it has ended.
    pub fn kill_alone(&self) -> Result<()> {
        Ok(rustix::process::kill_process(self.daemon.pid(), Signal::KILL)?)
    }

    /// Starts again after [`Server::kill`]; it must come back at the same address.
    pub fn restart(&mut self) -> Result<()> {
        let (daemon, addr) = self.program.serve(&self.args)?;
        self.daemon = daemon;
        if addr != self.addr {
            bail!("the server moved from {} to {addr}; clients that mounted it are lost", self.addr);
        }
        Ok(())
    }

    /// The name of its state directory.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Its state directory.
    pub fn state(&self) -> PathBuf {
        self.program.state()
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.daemon.pid().as_raw_nonzero().get()
    }

    /// An error if it has ended.
    pub fn must_run(&mut self) -> Result<()> {
        match self.daemon.ended()? {
            None => Ok(()),
            Some(status) => bail!("the server ended ({status}):\n{}", self.daemon.tail()),
        }
    }

    /// Waits for its end after `stop` or a signal; answers whether it ended well.
    pub fn wait(&mut self, limit: Duration) -> Result<bool> {
        Ok(self.daemon.wait(limit)?.success())
    }

    /// `trellis COMMAND ARGS --state DIR`.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut cmd = self.program.command(args);
        cmd.arg("--state").arg(self.program.state());
        cmd
    }

    /// The output of a command that must succeed.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        run::output(&mut self.command(args))
    }

    /// `trellis sync`, which must succeed.
    pub fn sync(&self) -> Result<()> {
        self.run(&["sync", "--timeout", "300"]).map(drop).context("trellis sync")
    }

    /// `trellis status --json`.
    pub fn status(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.run(&["status", "--json"])?)?)
    }

    /// The part of the status about the home with this name.
    pub fn home_status(&self, name: &str) -> Result<Value> {
        let status = self.status()?;
        let named = |h: &&Value| h["names"].as_array().is_some_and(|names| names.iter().any(|n| n == name));
        let home = status["homes"].as_array().and_then(|homes| homes.iter().find(named)).cloned();
        home.with_context(|| format!("status does not show {name}: {status}"))
    }

    /// What the server has counted of this home so far.
    pub fn counts(&self, name: &str) -> Result<Counts> {
        let (home, status) = (self.home_status(name)?, self.status()?);
        let of =
            |value: &Value, key: &str| value[key].as_u64().with_context(|| format!("status shows no {key}"));
        let cache = &status["cache"];
        Ok(Counts {
            trips: of(&home, "round_trips")?,
            bytes: [of(&home, "bytes_out")?, of(&home, "bytes_in")?],
            hits: of(cache, "hits")?,
            misses: of(cache, "misses")?,
            requests: of(cache, "requests")?,
            waited: of(cache, "waited")?,
        })
    }

    /// Sequential waits for this home so far.
    pub fn round_trips(&self, name: &str) -> Result<u64> {
        self.home_status(name)?["round_trips"].as_u64().context("status shows no round trips")
    }
}

/// What a server counts of its work, since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sequential waits for the home.
    pub trips: u64,
    /// Bytes sent to the home and received, without what ssh adds.
    pub bytes: [u64; 2],
    /// Calls of the engine that needed no home.
    pub hits: u64,
    /// Calls that had to ask.
    pub misses: u64,
    /// Requests of kernels.
    pub requests: u64,
    /// How many of them had waited for the home.
    pub waited: u64,
}

impl Counts {
    /// What came since then.
    pub fn since(self, then: Counts) -> Counts {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        Counts {
            trips: less(self.trips, then.trips),
            bytes: [0, 1].map(|way| less(self.bytes[way], then.bytes[way])),
            hits: less(self.hits, then.hits),
            misses: less(self.misses, then.misses),
            requests: less(self.requests, then.requests),
            waited: less(self.waited, then.waited),
        }
    }
}
