//! A server that nobody's shell holds: in the background, and as a unit of a real systemd user manager.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::proc::{Daemon, signal_all, wait_for};
use crate::e2e::server::Gateway;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let _lab = world.host("lab", "", None)?;
    let work = world.home_dir(ANN, "work")?;
    world.write_home(ANN, &work.join("text"), b"some text\n")?;
    let config = world.home(GATEWAY).join("config.toml");
    fs::write(&config, format!("ssh-config = {:?}\n", world.ssh_config()))?;
    let there = format!("ann@lab{}/text", work.display());
    let service = Service { gateway: Gateway::new(world), config, runtime: None };
    service.in_the_background(&there).context("in the background")?;
    let manager = Manager::start(world)?;
    let service = Service { runtime: Some(manager.runtime.clone()), ..service };
    service.as_unit(&there).context("as a systemd unit")
}

struct Service {
    gateway: Gateway,
    config: PathBuf,
    runtime: Option<PathBuf>,
}

impl Service {
    fn command(&self, args: &[&str]) -> Command {
        let mut cmd = self.gateway.command(args);
        cmd.arg("--state").arg(self.gateway.state());
        if let Some(dir) = &self.runtime {
            cmd.env("XDG_RUNTIME_DIR", dir);
        }
        cmd
    }

    fn said(&self, args: &[&str]) -> Result<String> {
        run::output(&mut self.command(args))
    }

    fn install(&self) -> Result<String> {
        run::output(self.command(&["service", "install"]).arg("--config").arg(&self.config))
    }

    fn status(&self) -> Result<(Option<i32>, Value)> {
        let out = self.command(&["service", "status", "--json"]).output()?;
        Ok((out.status.code(), serde_json::from_slice(&out.stdout).context("service status --json")?))
    }

    fn pid(&self) -> Result<Pid> {
        let (code, status) = self.status()?;
        let pid = status["pid"].as_i64().and_then(|p| Pid::from_raw(p as i32));
        ensure!(code == Some(0), "service status ends with {code:?}: {status}");
        pid.with_context(|| status.to_string())
    }

    /// Without a manager: install says so, start runs a process that outlives its shell and answers.
    fn in_the_background(&self, there: &str) -> Result<()> {
        ensure!(self.status()?.0 == Some(3), "nothing runs yet");
        let said = self.install()?;
        ensure!(said.contains("no systemd manager"), "{said}");
        ensure!(self.said(&["service", "start"])?.starts_with("started"));
        let pid = self.pid()?;
        ensure!(
            rustix::process::getsid(Some(pid))? == pid,
            "it is in the session of the shell that started it"
        );
        ensure!(self.said(&["cat", there])? == "some text\n");
        ensure!(self.said(&["service", "start"])?.starts_with("runs already"));
        ensure!(self.pid()? == pid, "a second start made a second server");
        ensure!(self.said(&["service", "logs"])?.contains("serving NFS"));
        self.clean_away(there)?;
        let stopped = self.said(&["service", "stop"])?;
        ensure!(stopped.starts_with("stopped: process "), "{stopped}");
        ensure!(self.status()?.0 == Some(3));
        self.a_bad_configuration()
    }

    /// Programs at the home go on request and come back when they are needed.
    fn clean_away(&self, there: &str) -> Result<()> {
        let clean = |extra: &[&str]| -> Result<String> {
            let args = [&["agent", "clean", "ann@lab"], extra].concat();
            run::output(self.command(&args).arg("--config").arg(&self.config))
        };
        let first = clean(&[])?;
        ensure!(first.contains("/agent-") && !first.contains("token"), "{first}");
        ensure!(clean(&[])?.starts_with("nothing of ours"));
        self.said(&["service", "stop"])?;
        self.said(&["service", "start"])?;
        ensure!(self.said(&["cat", there])? == "some text\n");
        let all = clean(&["--all"])?;
        ensure!(all.contains("/agent-") && all.contains("/token"), "{all}");
        Ok(())
    }

    /// The words of a server that cannot start reach whoever started it.
    fn a_bad_configuration(&self) -> Result<()> {
        let good = fs::read_to_string(&self.config)?;
        fs::write(&self.config, "no-such-option = 1\n")?;
        let out = self.command(&["service", "start"]).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.code() == Some(1) && said.contains("no-such-option"), "{said}");
        let out = self.command(&["service", "install", "--config", "/no/such/file"]).output()?;
        ensure!(out.status.code() == Some(1), "a configuration that is not there was installed");
        Ok(fs::write(&self.config, good)?)
    }

    /// With a manager: started as a unit, started again when it dies, ended in order.
    fn as_unit(&self, there: &str) -> Result<()> {
        let said = self.install()?;
        ensure!(said.contains("installed trellis-"), "{said}");
        self.said(&["service", "start"])?;
        let first = self.pid()?;
        let (_, status) = self.status()?;
        ensure!(status["manager"]["systemd"]["active"] == "active", "{status}");
        ensure!(status["manager"]["systemd"]["enabled"] == true, "{status}");
        ensure!(self.said(&["cat", there])? == "some text\n");
        kill_process(first, Signal::KILL)?;
        wait_for("the manager to start it again", SOON, || self.pid().ok().filter(|p| *p != first))?;
        ensure!(self.said(&["cat", there])? == "some text\n");
        self.said(&["service", "stop"])?;
        wait_for("the end of the unit", SOON, || {
            self.status().ok().filter(|(_, s)| s["manager"]["systemd"]["active"] == "inactive")
        })?;
        std::thread::sleep(Duration::from_secs(3));
        ensure!(self.status()?.0 == Some(3), "it was started again although it was stopped");
        self.said(&["service", "uninstall"])?;
        let (_, status) = self.status()?;
        ensure!(status["manager"]["plain"]["systemd"] == true, "{status}");
        Ok(())
    }
}

/// A systemd manager of the gateway's account, without a system manager above it.
struct Manager {
    runtime: PathBuf,
    groups: Vec<PathBuf>,
    daemon: Daemon,
}

impl Drop for Manager {
    /// Control groups are the machine's, not the namespace's.
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        for group in &self.groups {
            if let Err(e) = remove_group(group) {
                println!("{} stays: {e:#}", group.display());
            }
        }
    }
}

/// Ends what is in a control group and below it, and removes them.
fn remove_group(group: &Path) -> Result<()> {
    for entry in fs::read_dir(group)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_group(&path)?;
        }
    }
    wait_for("an empty control group", SOON, || {
        let inside = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let pids: Vec<Pid> = inside.lines().filter_map(|l| Pid::from_raw(l.parse().ok()?)).collect();
        signal_all(&pids, Signal::KILL);
        fs::remove_dir(group).ok()
    })
}

impl Manager {
    fn start(world: &World) -> Result<Self> {
        // sd_booted(3): user managers start only where systemd seems to have booted the machine.
        fs::create_dir_all("/run/systemd/system")?;
        let runtime = PathBuf::from("/run/user").join(GATEWAY.uid.to_string());
        fs::create_dir_all(&runtime)?;
        GATEWAY.own(&runtime)?;
        let groups = control_groups()?;
        let enter: String =
            groups.iter().map(|g| format!("echo $$ > {}/cgroup.procs; ", g.display())).collect();
        let mut cmd = Command::new("sh");
        let (id, home) = (GATEWAY.uid, world.home(GATEWAY));
        cmd.args([
            "-euc",
            &format!(
                "{enter}exec setpriv --reuid {id} --regid {id} --clear-groups /lib/systemd/systemd --user"
            ),
        ]);
        cmd.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home).env("XDG_RUNTIME_DIR", &runtime);
        let mut daemon = Daemon::start("systemd --user", &mut cmd, &world.dir.join("systemd.log"))?;
        let up = || {
            let mut ask = Command::new("systemctl");
            ask.args(["--user", "is-system-running"]).uid(id).gid(id).env("XDG_RUNTIME_DIR", &runtime);
            let said = ask.output().ok()?.stdout;
            matches!(said.trim_ascii(), b"running" | b"degraded").then_some(())
        };
        if let Err(e) = wait_for("the systemd user manager", SOON, up) {
            let _ = daemon.kill();
            return Err(e.context(daemon.tail()));
        }
        Ok(Self { runtime, groups, daemon })
    }
}

/// A control group of the account's own in each hierarchy that a manager uses.
fn control_groups() -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"] {
        if !Path::new(root).join("cgroup.procs").exists() {
            continue;
        }
        let dir = Path::new(root).join(format!("trellis-e2e-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"] {
            let path = dir.join(file);
            if path.exists() {
                GATEWAY.own(&path)?;
            }
        }
        made.push(dir);
    }
    Ok(made)
}
