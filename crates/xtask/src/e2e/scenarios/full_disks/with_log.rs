//! A server as a person has it who runs `trellis mount`: its log is in the state directory, on a small disk that is full.
//! The key is revoked in mid-flight, the server is killed, and mounted again; then the key comes back.

use super::fill_up;
use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::proc::{family, signal_all, wait_for};
use crate::e2e::server::Gateway;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the disk of state and log holds.
const DISK: &str = "64m";
/// Bytes of a file.
const FILE: usize = 300_000;
/// Folders that are made when there is no room for bytes.
const FOLDERS: usize = 300;
const SOON: Duration = Duration::from_secs(20);

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    let work = world.home_dir(ANN, "work")?;
    let state = world.home_dir(GATEWAY, "server-state")?;
    run::mount_tmpfs(&state, &format!("size={DISK},mode=700,uid={uid},gid={uid}", uid = GATEWAY.uid))?;
    let config = world.home_dir(GATEWAY, ".config/trellis")?.join("config.toml");
    fs::write(config, format!("ssh-config = {:?}\n", world.ssh_config()))?;
    let mut lab = world.host("lab", "", None)?;
    let tree = world.home_dir(GATEWAY, "tree")?;
    let person = Person { gateway: Gateway::new(world), tree };

    person.run(&["mount", &person.tree.to_string_lossy()])?;
    let log = state.join("server.log");
    ensure!(log.exists(), "the log is not on the disk of the state");
    // Whoever has not seen the names of a folder cannot know that one is free.
    let top = person.tree.join(format!("ann@lab{}", work.display()));
    let made = format!("mkdir {0}/first && ls -la {0}/first", top.display());
    run::output(&mut person.gateway.shell(&made))?;
    person.run(&["sync"])?;

    let top = top.join("first");
    let load = Load { world, top: &top, notes: world.home(GATEWAY).join("notes") };
    let mut files = load.start(10_000, FILE)?;
    wait_for("some files", SOON, || (load.acknowledged().len() > 5).then_some(()))?;
    let (keys, taken) = (world.authorized_keys(ANN), world.dir.join("taken"));
    fs::rename(&keys, &taken)?;
    lab.kill()?;
    lab.restart()?;
    load.until_full()?;
    // Names still find the space that is held.
    let folders = load.start(FOLDERS, 0)?.wait()?;
    let all = load.acknowledged();
    println!("{} objects were acknowledged", all.len());
    ensure!(folders.success() && all.len() > 100 + FOLDERS, "{} are too few", all.len());
    fill_up(&state.join("somebody-elses"))?;
    waits_for_the_login(&person)?;
    ensure!(files.try_wait()?.is_none(), "the writer should wait for room");

    for round in 0..2 {
        // What the kernel knows of a mount must not hide that its server has gone.
        run::output(&mut person.gateway.shell(&format!("ls -d {}", person.tree.display())))?;
        person.kill()?;
        wait_for("the writer to hear of it", SOON, || files.try_wait().transpose())??;
        fill_up(&state.join(format!("killed-{round}")))?;
        person.run(&["mount", &person.tree.to_string_lossy()]).with_context(|| person.told())?;
        // What only the home knows is not known now, but nobody waits for it.
        let began = Instant::now();
        person.gateway.shell(&format!("ls {}", top.display())).output()?;
        ensure!(began.elapsed() < SOON, "a look at the mount took {:?}", began.elapsed());
    }
    waits_for_the_login(&person)?;

    fs::rename(&taken, &keys)?;
    let began = Instant::now();
    logs_in(&person)?;
    person.run(&["sync", "--timeout", "90"]).with_context(|| person.told())?;
    println!("at home {:?} after the key came back", began.elapsed());
    check(&work.join("first"), &all)?;
    person.run(&["login", "--end", "ann@lab"])?;
    let status = person.run(&["status"])?;
    ensure!(!status.contains("parked") && !status.contains("accepts no changes"), "{status}");
    goes_on(&person, &top, &work.join("first"))?;
    let said = fs::read_to_string(&log)?;
    ensure!(!said.contains("panicked"), "{said}");
    person.run(&["stop"]).map(drop)
}

/// `trellis sync` says who has to log in, and does not wait for it.
fn waits_for_the_login(person: &Person) -> Result<()> {
    let began = Instant::now();
    let out = person.command(&["sync"]).output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.code() == Some(1), "{}: {said}", out.status);
    let told = ["login needed", "`trellis login ", " ann@lab`"];
    ensure!(told.iter().all(|words| said.contains(words)), "{said}");
    ensure!(began.elapsed() < SOON, "trellis sync took {:?}", began.elapsed());
    let barrier = person.tree.join(format!(".trellis/sync/{:?}", began));
    let out = person.gateway.shell(&format!("cat '{}'", barrier.display())).output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(!out.status.success() && said.contains("Input/output error"), "{}: {said}", out.status);
    Ok(())
}

/// Without it the server would try by itself within a minute. The login works, though nothing can be noted of it.
fn logs_in(person: &Person) -> Result<()> {
    for (word, note) in [("logged in to ann@lab", "cannot be noted"), ("already logged in", "")] {
        let out = person.command(&["login", "ann@lab"]).output()?;
        let [said, told] = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        ensure!(out.status.success() && said.starts_with(word), "{}: {said}{told}", out.status);
        ensure!(told.contains(note) && !said.contains("your ssh configuration"), "{said}{told}");
    }
    Ok(())
}

/// There is room again where the bytes were that are a cache now.
fn goes_on(person: &Person, top: &Path, there: &Path) -> Result<()> {
    let line = format!("echo on it goes >{}/after", top.display());
    wait_for("room for more", Duration::from_secs(60), || {
        run::output(&mut person.gateway.shell(&line)).ok()
    })?;
    person.run(&["sync", "--timeout", "60"])?;
    ensure!(fs::read(there.join("after"))? == b"on it goes\n");
    Ok(())
}

struct Person {
    gateway: Gateway,
    tree: PathBuf,
}

impl Person {
    fn command(&self, args: &[&str]) -> Command {
        let mut cmd = self.gateway.command(args);
        cmd.arg("--state").arg(self.gateway.state());
        cmd
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        run::output(&mut self.command(args))
    }

    fn told(&self) -> String {
        let log = fs::read_to_string(self.gateway.state().join("server.log")).unwrap_or_default();
        format!("{}\n{log}", self.run(&["status"]).unwrap_or_default())
    }

    /// kill -9 of the server and all that it started.
    fn kill(&self) -> Result<()> {
        let status: Value = serde_json::from_str(&self.run(&["status", "--json"])?)?;
        let pid = status["pid"].as_i64().and_then(|p| Pid::from_raw(p as i32)).context("no process")?;
        signal_all(&family(pid), Signal::KILL);
        wait_for("the end of the server", Duration::from_secs(10), || {
            (!Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("exe").exists()).then_some(())
        })
    }
}

/// A program that makes files or folders.
struct Load<'a> {
    world: &'a World,
    top: &'a Path,
    notes: PathBuf,
}

impl Load<'_> {
    fn start(&self, most: usize, size: usize) -> Result<Child> {
        let program = self.world.dir.join("fill.py");
        fs::write(&program, include_str!("fill.py"))?;
        let mut load = Command::new("/usr/bin/python3");
        load.arg(program).arg(self.top).arg(&self.notes).args([most.to_string(), size.to_string()]);
        load.uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir("/").stdin(Stdio::null()).stderr(Stdio::null());
        Ok(load.spawn()?)
    }

    fn acknowledged(&self) -> Vec<String> {
        fs::read_to_string(&self.notes).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Waits until nothing more is taken.
    fn until_full(&self) -> Result<()> {
        let (mut last, mut since) = (0, Instant::now());
        wait_for("a disk that takes no more", Duration::from_secs(60), || {
            let now = self.acknowledged().len();
            if now > last {
                (last, since) = (now, Instant::now());
            }
            (since.elapsed() > Duration::from_secs(3)).then_some(())
        })
    }
}

/// Whatever was acknowledged is at the home, whole.
fn check(there: &Path, names: &[String]) -> Result<()> {
    for name in names {
        let path = there.join(name);
        if let Some(number) = name.strip_prefix('f') {
            let text = fs::read(&path).with_context(|| format!("{name} was acknowledged"))?;
            let want = format!("{number}\n").repeat(FILE);
            ensure!(text == want.as_bytes()[..FILE], "{name} has {} other bytes at the home", text.len());
        } else {
            ensure!(path.is_dir(), "{name} was acknowledged");
        }
    }
    Ok(())
}
