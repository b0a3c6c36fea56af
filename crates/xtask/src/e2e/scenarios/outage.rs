//! A host that is down for some seconds, again and again, while somebody waits for it.
//!
//! Whoever waits is to go on soon after the host is back, however often it was down before. A host that stays down hears
//! from us about once a second, and never twice at a time. It is known again where `~/.cache` was emptied meanwhile.

use crate::e2e::accounts::ANN;
use crate::e2e::fuse;
use crate::e2e::proc::wait_for;
use crate::e2e::server::{Gateway, Server};
use crate::e2e::sshd::Sshd;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the host is down.
const DOWN: Duration = Duration::from_secs(4);
/// How soon after its return whoever waits goes on.
const SOON: Duration = Duration::from_secs(3);
/// How long nobody is there but somebody who counts.
const COUNTED: Duration = Duration::from_secs(12);

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    let work = world.home_dir(ANN, "work")?;
    for name in ["first", "second", "third", "forbidden"] {
        world.write_home(ANN, &work.join(name), b"what ann wrote\n")?;
    }
    let mut lab = world.host("lab", "", None)?;
    let server = world.serve(&["--mode", "cto"])?;
    let tree = fuse::mount(world, &server, "tree")?;
    let top = tree.join(format!("ann@lab{}", work.display()));
    let waits = Waits { gateway: Gateway::new(world), server: &server, work, top };
    waits.shell("ls -la .")?;

    // More often than any back-off would forget in between.
    for round in 0..3 {
        waits.outage(&mut lab, "fsync", &format!("echo {round} >made-{round} && sync made-{round}"))?;
        waits.outage(&mut lab, "a first look", &format!("cat {}", ["first", "second", "third"][round]))?;
        waits.sync(&mut lab, round)?;
    }
    waits.forbidden(&mut lab)?;
    waits.counted(&mut lab)?;
    waits.emptied(&mut lab, &world.home(ANN))?;
    server.run(&["sync", "--timeout", "60"])?;
    server.run(&["umount", &tree.to_string_lossy()]).map(drop)
}

/// Who waits for the host.
struct Waits<'a> {
    gateway: Gateway,
    server: &'a Server,
    /// At the home.
    work: PathBuf,
    /// The same in the mount.
    top: PathBuf,
}

impl Waits<'_> {
    fn shell(&self, script: &str) -> Result<String> {
        run::output(&mut self.gateway.shell(&self.there(script)))
    }

    fn there(&self, script: &str) -> String {
        format!("cd {} && {script}", self.top.display())
    }

    /// A program that begins to wait while the host is down, and has to succeed.
    fn outage(&self, lab: &mut Sshd, what: &str, script: &str) -> Result<()> {
        let mut waiting = down(lab, || {
            let mut command = self.gateway.shell(&self.there(script));
            Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?)
        })?;
        returned(what, &mut waiting)?;
        ensure!(waiting.wait()?.success(), "{what} failed");
        Ok(())
    }

    /// `trellis sync` of what was done while the host was down. Names do not wait for it, nor does who closes a file to
    /// which nothing was written.
    fn sync(&self, lab: &mut Sshd, round: usize) -> Result<()> {
        let mut waiting = down(lab, || {
            self.shell(&format!("timeout 5 sh -c 'mkdir dir-{round} && >dir-{round}/empty'"))?;
            Ok(self.server.command(&["sync"]).stdin(Stdio::null()).stderr(Stdio::null()).spawn()?)
        })?;
        returned("trellis sync", &mut waiting)?;
        ensure!(waiting.wait()?.success(), "trellis sync failed");
        ensure!(self.work.join(format!("dir-{round}/empty")).is_file(), "it did not arrive");
        Ok(())
    }

    /// What was forbidden meanwhile is known soon.
    fn forbidden(&self, lab: &mut Sshd) -> Result<()> {
        let mut waiting = down(lab, || {
            fs::set_permissions(self.work.join("forbidden"), fs::Permissions::from_mode(0o0))?;
            let mut command = self.gateway.shell(&self.there("cat forbidden"));
            Ok(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?)
        })?;
        returned("EACCES", &mut waiting)?;
        let out = waiting.wait_with_output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(said.contains("Permission denied"), "{}: {said}", out.status);
        Ok(())
    }

    /// Somebody empties `~/.cache` while something is unsent and no agent runs. The account is known by the place of its home
    /// directory; where that is not certain, nothing is sent until somebody says that it is the same.
    fn emptied(&self, lab: &mut Sshd, home: &Path) -> Result<()> {
        for (name, certain) in [("emptied", true), ("moved", false)] {
            lab.kill()?;
            self.shell(&format!("echo {name} >{name}"))?;
            fs::remove_dir_all(home.join(".cache"))?;
            if !certain {
                run::run(Command::new("mount").arg("--bind").args([home, home]))?;
            }
            lab.restart()?;
            if !certain {
                self.confirmed()?;
            }
            self.server.run(&["sync", "--timeout", "30"])?;
            ensure!(
                fs::read_to_string(self.work.join(name))? == format!("{name}\n"),
                "{name} did not arrive"
            );
            let status = self.server.home_status("ann@lab")?;
            ensure!(status["state"] == "up" && status["conflicts"] == 0, "{status}");
        }
        run::run(Command::new("umount").arg("--lazy").arg(home))
    }

    fn confirmed(&self) -> Result<()> {
        wait_for("the doubt", Duration::from_secs(60), || {
            let status = self.server.home_status("ann@lab").ok()?;
            (status["state"] == "suspended").then_some(())
        })?;
        let asked =
            self.server.command(&["login", "--same-account", "ann@lab"]).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&asked.stdout).into_owned();
        ensure!(asked.status.code() == Some(2), "{asked:?}");
        for part in ["made just now", "as before", "unsent: 2 changes"] {
            ensure!(said.contains(part), "it does not say {part:?}: {said}");
        }
        ensure!(!self.work.join("moved").exists(), "it was sent to nobody knows whom");
        let login = self.server.command(&["login", "ann@lab"]).stdin(Stdio::null()).output()?;
        let why = String::from_utf8_lossy(&login.stderr);
        ensure!(!login.status.success() && why.contains("--same-account"), "{login:?}");
        self.server.run(&["login", "--same-account", "--yes", "ann@lab"]).map(drop)
    }

    /// While a command waits, a host that lets nobody in hears about once a second from us.
    fn counted(&self, lab: &mut Sshd) -> Result<()> {
        lab.kill()?;
        self.shell("mkdir while-nobody-is-there")?;
        let mut waiting =
            self.server.command(&["sync"]).stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let counted = count(lab.addr, COUNTED)?;
        lab.restart()?;
        returned("trellis sync after more", &mut waiting)?;
        println!("{} attempts in {COUNTED:?}, {} at a time", counted.attempts, counted.most);
        let most = COUNTED.as_secs() as usize * 3 / 2;
        ensure!((4..=most).contains(&counted.attempts), "{} attempts", counted.attempts);
        ensure!(counted.most == 1, "{} attempts at a time", counted.most);
        Ok(())
    }
}

/// The host dies, somebody begins to wait, and it comes back.
fn down(lab: &mut Sshd, begin: impl FnOnce() -> Result<Child>) -> Result<Child> {
    lab.kill()?;
    let mut waiting = begin()?;
    std::thread::sleep(DOWN);
    ensure!(waiting.try_wait()?.is_none(), "nobody waits for a host that is down");
    lab.restart()?;
    Ok(waiting)
}

fn returned(what: &str, waiting: &mut Child) -> Result<()> {
    let back = Instant::now();
    let done = wait_for(what, Duration::from_secs(90), || waiting.try_wait().transpose());
    done.with_context(|| format!("{what} after an outage"))??;
    println!("{what}: {:?} after the host was back", back.elapsed());
    ensure!(back.elapsed() < SOON, "{what} returned {:?} after the host was back", back.elapsed());
    Ok(())
}

struct Counted {
    attempts: usize,
    most: usize,
}

/// Takes a host's place, and hangs up on whoever comes.
fn count(addr: SocketAddr, span: Duration) -> Result<Counted> {
    let listener = wait_for("the address", SOON, || TcpListener::bind(addr).ok())?;
    listener.set_nonblocking(true)?;
    let (begun, mut counted) = (Instant::now(), Counted { attempts: 0, most: 0 });
    let mut guests = Vec::new();
    while begun.elapsed() < span {
        if let Ok((guest, _)) = listener.accept() {
            counted.attempts += 1;
            guests.push((Instant::now(), guest));
        }
        counted.most = counted.most.max(guests.len());
        guests.retain(|(came, _)| came.elapsed() < Duration::from_millis(200));
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(counted)
}
