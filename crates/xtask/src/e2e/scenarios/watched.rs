//! A home 60 ms away that tells what changes: what is warm costs no round trip however old it is, and what another program
//! does there is seen all the same, also in a folder that is another machine's.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::proc::{self, Daemon, wait_for};
use crate::e2e::server::Server;
use crate::e2e::sshd::Sshd;
use crate::e2e::world::World;
use crate::nfs::Client;
use crate::run;
use crate::wan_link::{self, link::Link};
use anyhow::{Context, Result, ensure};
use oncrpc::nfs3::NfsFh3;
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RTT: Duration = Duration::from_millis(60);
/// The attribute timeout of FUSE (1 s), the way, and time for processes to be scheduled on a busy machine.
const SEEN: Duration = Duration::from_secs(5);
const DIRS: usize = 40;
const FILES: usize = 10;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    let work = world.home_dir(ANN, "work")?;
    make_repository(world, &work)?;
    let sshd = Sshd::start(&world.dir, "far", "")?;
    let relay = wan_link::with_rtt(sshd.addr, RTT)?;
    fs::write(world.known_hosts(), sshd.known_hosts()?)?;
    world.route("far", relay.addr())?;
    warm_costs_nothing(world, &work)?;
    changes_are_seen(world, &work, relay.link())?;
    polled(world)
}

/// A repository of [`DIRS`] folders with [`FILES`] files each, made by the home's own git.
fn make_repository(world: &World, work: &Path) -> Result<()> {
    for dir in 0..DIRS {
        let dir = world.home_dir(ANN, &format!("work/dir{dir}"))?;
        for file in 0..FILES {
            world.write_home(ANN, &dir.join(format!("file{file}")), format!("content {file}").as_bytes())?;
        }
    }
    let line = "git init -q; git add .; git -c user.name=a -c user.email=a@example.org commit -qm all";
    let mut git = Command::new("bash");
    git.args(["-euc", line]).uid(ANN.uid).gid(ANN.uid).current_dir(work).env("HOME", world.home(ANN));
    run::output(&mut git).map(drop)
}

/// The home seen through a mount and by an NFS client.
struct Far<'a> {
    world: &'a World,
    server: Server,
    here: PathBuf,
    client: Client,
    dir: NfsFh3,
}

impl<'a> Far<'a> {
    /// A server with this bound of staleness.
    fn new(world: &'a World, work: &Path, name: &str, staleness: &str) -> Result<Far<'a>> {
        let server = world.serve_as(name, &["--staleness", staleness])?;
        let here = fuse::mount(world, &server, name)?.join(format!("ann@far{}", work.display()));
        let (client, root) = world.client(&server)?;
        let dir = client.walk(&root, &format!("ann@far{}", work.display()))?;
        Ok(Far { world, server, here, client, dir })
    }

    /// A shell of the mount's user in the work folder.
    fn bash(&self, line: &str) -> Command {
        let mut bash = Command::new("bash");
        bash.args(["-euc", &format!("cd '{}'; {line}", self.here.display())]);
        bash.env("GIT_OPTIONAL_LOCKS", "0").env("HOME", self.world.home(GATEWAY));
        bash.uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir("/");
        bash
    }

    fn shell(&self, line: &str) -> Result<String> {
        run::output(&mut self.bash(line))
    }

    /// Round trips of a command, and its time: without the way to its folder, which leads through folders of this machine
    /// in which others are at work.
    fn cost(&self, line: &str) -> Result<(u64, Duration)> {
        let mut bash = self.bash(&format!("echo; read; {line} >&2; echo; read"));
        let mut bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (mut go, mut said) = (bash.stdin.take().context("stdin")?, bash.stdout.take().context("stdout")?);
        said.read_exact(&mut [0])?;
        let before = self.server.round_trips("ann@far")?;
        let began = Instant::now();
        go.write_all(b"\n")?;
        said.read_exact(&mut [0]).with_context(|| line.to_string())?;
        let took = began.elapsed();
        let trips = self.server.round_trips("ann@far")? - before;
        go.write_all(b"\n")?;
        ensure!(bash.wait()?.success(), "{line}");
        println!("{line}: {trips} round trips, {took:?}");
        Ok((trips, took))
    }

    fn by_nfs(&self, path: &str) -> Option<Vec<u8>> {
        self.client.walk(&self.dir, path).and_then(|file| self.client.read_all(&file)).ok()
    }

    /// Waits until a file has this content, or is gone, for both.
    fn sees(&self, what: &str, path: &str, content: Option<&str>, limit: Duration) -> Result<()> {
        let began = Instant::now();
        wait_for(&format!("{what} by FUSE"), limit, || {
            let seen = self.shell(&format!("cat '{path}' 2>/dev/null || [[ ! -e '{path}' ]]")).ok()?;
            let there = self.shell(&format!("[[ -e '{path}' ]]")).is_ok();
            (there.then_some(seen.as_str()) == content).then_some(())
        })?;
        let by_fuse = began.elapsed();
        wait_for(&format!("{what} by NFS"), limit, || {
            (self.by_nfs(path).as_deref() == content.map(str::as_bytes)).then_some(())
        })?;
        println!(
            "{what} was seen by FUSE after {by_fuse:?}, then by NFS after {:?}",
            began.elapsed() - by_fuse
        );
        Ok(())
    }
}

/// `find -ls` and `git status` of what is known, long after the bound of staleness: also after changes of our own.
fn warm_costs_nothing(world: &World, work: &Path) -> Result<()> {
    let far = Far::new(world, work, "warm", "1s")?;
    let status = far.server.home_status("ann@far")?;
    ensure!(status["freshness"] == "watched", "{status}");
    ensure!(far.server.run(&["status"])?.contains("watched, else"));
    // find(1) asks for the space of each file system, which nobody keeps.
    let lines = [("find . -ls", 1), ("ls -lR", 0), ("git status --porcelain", 0)];
    for (line, _) in lines {
        far.cost(line)?;
    }
    let again = |when: &str| {
        std::thread::sleep(Duration::from_secs(3));
        for (line, most) in lines {
            let (trips, took) = far.cost(line)?;
            ensure!(trips <= most, "{line} costs {trips} round trips {when}");
            ensure!(took < RTT * DIRS as u32, "{line} took {took:?} {when}");
        }
        anyhow::Ok(())
    };
    again("when it is warm")?;
    far.shell(
        "echo changed >dir3/file3; mkdir made; echo new >made/new; mv dir4/file4 dir5/moved; rm dir6/file6",
    )?;
    far.server.sync()?;
    // What was made is listed once, when what the home said of it is too old.
    std::thread::sleep(Duration::from_secs(2));
    far.cost("find . -ls")?;
    again("after changes of our own")?;
    ensure!(far.shell("git status --porcelain")?.lines().count() == 5);
    untold(&far, world, work)
}

/// Events that were lost, and an agent that was: everything is as old as it is.
fn untold(far: &Far<'_>, world: &World, work: &Path) -> Result<()> {
    let agents = || proc::of_user(ANN.uid, |line| line.contains("agent-1-"));
    let agent = agents();
    ensure!(!agent.is_empty(), "no agent");
    let limit = Duration::from_secs(1) + SEEN;
    let queue: u32 = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")?.trim().parse()?;
    proc::signal_all(&agent, Signal::STOP);
    for i in 0..queue {
        for name in ["dir0/file0", "dir0/file1"] {
            fs::set_permissions(work.join(name), fs::Permissions::from_mode(0o600 | i & 0o77))?;
        }
    }
    world.write_home(ANN, &work.join("dir7/file7"), b"while events were lost")?;
    proc::signal_all(&agent, Signal::CONT);
    far.sees("an edit behind lost events", "dir7/file7", Some("while events were lost"), limit)?;
    proc::signal_all(&agents(), Signal::KILL);
    world.write_home(ANN, &work.join("dir8/file8"), b"while nobody was there")?;
    far.sees("an edit behind a lost agent", "dir8/file8", Some("while nobody was there"), limit + SEEN)?;
    far.cost("find . -ls")?;
    std::thread::sleep(Duration::from_secs(3));
    let (trips, _) = far.cost("ls -lR")?;
    ensure!(trips == 0, "{trips} round trips after a new connection");
    Ok(())
}

/// With a bound of staleness of an hour only what the home tells lets a change be seen.
fn changes_are_seen(world: &World, work: &Path, link: &Link) -> Result<()> {
    let far = Far::new(world, work, "told", "1h")?;
    far.shell("find . -ls; cat dir*/*")?;
    let there = |path: &str| work.join(path);
    let write = |path: &str, text: &str| world.write_home(ANN, &there(path), text.as_bytes());
    let sees = |what: &str, path: &str, content: Option<&str>| far.sees(what, path, content, SEEN);

    write("dir10/file0", "another, longer content")?;
    sees("an overwritten file", "dir10/file0", Some("another, longer content"))?;
    // Of the same length, and with the time that it had.
    let file = fs::File::options().write(true).open(there("dir10/file1"))?;
    let modified = file.metadata()?.modified()?;
    file.write_all_at(b"CONTENT 1", 0)?;
    file.set_modified(modified)?;
    sees("bytes changed in place", "dir10/file1", Some("CONTENT 1"))?;
    write("dir10/.swap", "saved by an editor")?;
    fs::rename(there("dir10/.swap"), there("dir10/file2"))?;
    sees("a replaced file", "dir10/file2", Some("saved by an editor"))?;
    write("dir10/file2", "and once more")?;
    sees("its replacement", "dir10/file2", Some("and once more"))?;
    fs::remove_file(there("dir10/file3"))?;
    sees("a removed file", "dir10/file3", None)?;
    write("dir10/file3", "back")?;
    sees("a name that was free", "dir10/file3", Some("back"))?;
    fs::rename(there("dir11"), there("elsewhere"))?;
    sees("a moved folder", "elsewhere/file1", Some("content 1"))?;
    sees("its old name", "dir11/file1", None)?;
    write("elsewhere/file1", "edited in its new place")?;
    sees("an edit in a moved folder", "elsewhere/file1", Some("edited in its new place"))?;
    fs::rename(there("dir12"), there("dir11"))?;
    write("dir11/file1", "another folder by the old name")?;
    sees("another folder by the old name", "dir11/file1", Some("another folder by the old name"))?;
    for i in 0..100 {
        write(&format!("dir13/more{i}"), "more")?;
    }
    sees("many names at a time", "dir13/more99", Some("more"))?;
    ensure!(far.shell("ls dir13")?.lines().count() == FILES + 100);
    fs::set_permissions(there("dir14/file0"), fs::Permissions::from_mode(0o600))?;
    wait_for("a mode", SEEN, || (far.shell("stat -c %a dir14/file0").ok()?.trim() == "600").then_some(()))?;
    let mut mount = Command::new("mount");
    run::output(mount.args(["-t", "tmpfs", "none"]).arg(there("dir16")))?;
    write("dir16/mounted", "on a folder")?;
    sees("a mounted file system", "dir16/mounted", Some("on a folder"))?;
    run::output(Command::new("umount").arg(there("dir16")))?;
    sees("what was below it", "dir16/file0", Some("content 0"))?;
    sees("that it is not mounted any more", "dir16/mounted", None)?;
    becomes_read_only(&far, &there("dir17"))?;
    growing(&far, &there("dir15/file0"))?;
    gone_for_a_while(&far, world, work, link)
}

/// A connection that was lost: what has changed meanwhile is told, and what changes later.
fn gone_for_a_while(far: &Far<'_>, world: &World, work: &Path, link: &Link) -> Result<()> {
    let holders = || proc::with_command(" --keep").len();
    // Of servers that have ended.
    let others = holders();
    link.refuse(Some(Duration::from_secs(2)));
    link.cut();
    wait_for("who holds the watches", SEEN, || (holders() > others).then_some(()))?;
    let write = |path: &str, text: &str| world.write_home(ANN, &work.join(path), text.as_bytes());
    write("dir9/file9", "while the way was cut")?;
    fs::rename(work.join("dir9/file8"), work.join("dir8/moved"))?;
    let limit = Duration::from_secs(3) + SEEN;
    far.sees("an edit during a cut", "dir9/file9", Some("while the way was cut"), limit)?;
    far.sees("a name that was moved away then", "dir9/file8", None, SEEN)?;
    far.sees("its new name", "dir8/moved", Some("content 8"), SEEN)?;
    ensure!(holders() == others, "watches are held that an agent goes on with");
    write("dir9/file7", "after the cut")?;
    far.sees("an edit after a cut", "dir9/file7", Some("after the cut"), SEEN)
}

/// A file system at the home is mounted anew for reading alone: no name is taken there that it would refuse.
fn becomes_read_only(far: &Far, dir: &Path) -> Result<()> {
    let mount = |args: &[&str]| run::output(Command::new("mount").args(args).arg(dir)).map(drop);
    mount(&["-t", "tmpfs", "-o", "mode=777", "none"])?;
    far.world.write_home(ANN, &dir.join("file"), b"there")?;
    far.sees("a file system for all", "dir17/file", Some("there"), SEEN)?;
    far.shell("ls dir17")?;
    mount(&["-o", "remount,ro"])?;
    // A look alone: of a folder in which a change waits nothing is asked.
    wait_for("a refusal", SEEN, || {
        far.shell("! { : >>dir17/file; } 2>&1").ok()?.contains("Read-only").then_some(())
    })?;
    for change in ["touch dir17/new", "mv dir17/file dir17/moved"] {
        let said = far.shell(&format!("! {change} 2>&1"))?;
        ensure!(said.contains("Read-only"), "{change}: {said}");
    }
    mount(&["-o", "remount,rw"])?;
    wait_for("that it may be changed again", SEEN, || far.shell("mv dir17/file dir17/moved").ok())?;
    run::output(Command::new("umount").arg("--lazy").arg(dir)).map(drop)
}

/// A folder at the home that is another machine's: its kernel hears of no change there, and it is asked for again once it is
/// older than the bound.
fn polled(world: &World) -> Result<()> {
    let (there, work) = (world.home_dir(ANN, "theirs")?, world.home_dir(ANN, "network")?);
    let write = |path: &str, text: &str| world.write_home(ANN, &there.join(path), text.as_bytes());
    write("file", "content")?;
    let _sshfs = network(world, &there, &work)?;
    let far = Far::new(world, &work, "polled", "1s")?;
    ensure!(far.shell("ls; cat file")? == "file\ncontent");
    let limit = Duration::from_secs(1) + SEEN;
    write("file", "another, longer content")?;
    far.sees("an edit at another machine", "file", Some("another, longer content"), limit)?;
    write("new", "of another machine")?;
    far.sees("a file of another machine", "new", Some("of another machine"), limit)?;
    fs::remove_file(there.join("new"))?;
    far.sees("what another machine removed", "new", None, limit)?;
    far.shell("ls")?;
    std::thread::sleep(Duration::from_secs(3));
    let (trips, _) = far.cost("ls")?;
    ensure!(trips > 0, "a folder that nobody watches was not asked for again");
    drop(far);
    run::output(Command::new("umount").arg("--lazy").arg(&work)).map(drop)
}

/// Mounts a file system of sshfs: what `there` has is shown at `at`, and nothing of it kept.
fn network(world: &World, there: &Path, at: &Path) -> Result<Daemon> {
    let server = world.dir.join("sftp-server");
    fs::write(&server, "#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n")?;
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755))?;
    let options = format!(
        "allow_other,dir_cache=no,attr_timeout=0,entry_timeout=0,ac_attr_timeout=0,ssh_command={}",
        server.display()
    );
    let mut sshfs = Command::new("sshfs");
    sshfs.args(["-f", "-o", &options]).arg(format!("another:{}", there.display())).arg(at);
    let daemon = Daemon::start("sshfs", &mut sshfs, &world.dir.join("sshfs.log"))?;
    let mounted = || fs::read_dir(at).ok()?.next().map(drop);
    wait_for("sshfs", Duration::from_secs(30), mounted).with_context(|| daemon.tail())?;
    Ok(daemon)
}

/// A program reads what another one appends at the home, with the file in the kernel's cache all the time.
fn growing(far: &Far<'_>, file: &Path) -> Result<()> {
    for round in 1..=3 {
        let text = format!("{}{round}", fs::read_to_string(file)?);
        fs::write(file, &text).context("the home's file")?;
        far.sees("what was appended", "dir15/file0", Some(&text), SEEN)?;
    }
    at_the_end(far, file)
}

/// A program that has read a file to its end finds what was appended at the home at its first look, once the kernel has to
/// ask again.
fn at_the_end(far: &Far<'_>, file: &Path) -> Result<()> {
    let script = "exec 5<dir15/file0; cat <&5 >/dev/null; echo ready; while read -r; do read -r line <&5; echo \"$line\"; done";
    let mut reader = far.bash(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (input, output) = (reader.stdin.take(), reader.stdout.take());
    let (mut input, mut lines) = (input.context("stdin")?, BufReader::new(output.context("stdout")?).lines());
    ensure!(lines.next().context("no reader")?? == "ready");
    for round in 0..5 {
        let mut home = fs::File::options().append(true).open(file)?;
        writeln!(home, "round {round}")?;
        std::thread::sleep(Duration::from_millis(1500));
        writeln!(input)?;
        let line = lines
            .next()
            .with_context(|| format!("at the end of the file nothing was found, round {round}"))??;
        ensure!(line == format!("round {round}"), "{line}");
    }
    drop(input);
    ensure!(reader.wait()?.success());
    Ok(())
}
