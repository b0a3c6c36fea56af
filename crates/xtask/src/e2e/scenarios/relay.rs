//! A compute node without a server: `trellis mount --at` uses the server of a login node, over ssh and nothing else.

use crate::e2e::accounts::{ANN, Account, BOB, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::proc::{self, wait_for, with_command};
use crate::e2e::server::Gateway;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What a program does with extended attributes in the folder where it is.
const ATTRIBUTES: &str = r#"import os
os.setxattr("big", "user.a", bytes(1000)); os.removexattr("big", "user.a")
os.setxattr("copy", "user.b", b"1"); print(os.listxattr("big"), os.getxattr("copy", "user.b"))"#;
/// Whoever would start a server again has done so.
const SETTLED: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(60);

/// The scenario. The compute node's user is the gateway's, the login node's is Ann, who keeps files at Bob's.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    let (_login, _lab) = (world.host("login1", "", None)?, world.host("lab", "", None)?);
    let work = world.home_dir(BOB, "work")?;
    give_ann_a_key(world)?;
    let node = Node { world, dir: mount_point(world)? };
    node.refusals()?;
    let program = node.another_program()?;
    let config = node.config();
    let said =
        node.trellis(&["mount", "--at", "login1", "--program", &program, "--ssh-config", &config], true)?;
    ensure!(said.contains("is mounted; try"), "{said}");
    ensure!(with_command(fuse::GUARD).len() == 1, "nobody guards the mount");
    let tree = node.dir.join(format!("bob@lab{}", work.display()));
    node.real_work(&tree).context("work")?;
    node.commands(&tree).context("commands")?;
    node.cut_while_appending(&tree).context("cut connections")?;
    node.kill_the_server(&tree).context("a killed server")?;
    node.at_login1("trellis sync --timeout 240")?;
    compare(&work)?;
    let said = node.trellis(&["umount"], true)?;
    ensure!(said.contains("is unmounted") && fuse::mounted()?.is_empty(), "{said}");
    let guards = || with_command(fuse::GUARD);
    wait_for("the relay and its guard to leave", SOON, || {
        (relays().is_empty() && guards().is_empty()).then_some(())
    })?;
    node.stop_the_server()
}

/// The compute node.
struct Node<'a> {
    world: &'a World,
    dir: PathBuf,
}

fn mount_point(world: &World) -> Result<PathBuf> {
    let dir = world.home(GATEWAY).join("tree");
    fs::create_dir(&dir)?;
    GATEWAY.own(&dir)?;
    Ok(dir)
}

/// Ann's own ssh reaches Bob's account at the lab.
fn give_ann_a_key(world: &World) -> Result<()> {
    let dir = world.home(ANN).join(".ssh");
    fs::create_dir_all(&dir)?;
    for (from, to) in [(world.home(GATEWAY).join("key"), "id"), (world.known_hosts(), "known")] {
        fs::copy(&from, dir.join(to))?;
    }
    let (key, known) = (dir.join("id").display().to_string(), dir.join("known").display().to_string());
    let config = fs::read_to_string(world.ssh_config())?
        .replace(&world.home(GATEWAY).join("key").display().to_string(), &key)
        .replace(&world.known_hosts().display().to_string(), &known);
    fs::write(dir.join("config"), config)?;
    for name in ["", "id", "known", "config"] {
        let path = dir.join(name);
        ANN.own(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(if name.is_empty() { 0o700 } else { 0o600 }))?;
    }
    Ok(())
}

fn shell(world: &World, who: Account, script: &str) -> Command {
    let mut cmd = Command::new("bash");
    cmd.args(["-euc", script]).uid(who.uid).gid(who.uid).current_dir("/").env_clear();
    let bin = world.trellis.parent().unwrap_or(Path::new("/")).display().to_string();
    cmd.env("PATH", format!("{bin}:/usr/bin:/bin")).env("HOME", who.home(&world.dir));
    cmd
}

/// The processes that carry a mount of the compute node.
fn relays() -> Vec<Pid> {
    with_command(" relay --at")
}

impl Node<'_> {
    fn config(&self) -> String {
        self.world.ssh_config().display().to_string()
    }

    /// A command of the compute node's user.
    fn trellis(&self, args: &[&str], on_dir: bool) -> Result<String> {
        let mut cmd = Gateway::new(self.world).command(args);
        run::output(if on_dir { cmd.arg(&self.dir) } else { &mut cmd })
    }

    fn here(&self, script: &str) -> Result<String> {
        run::output(&mut shell(self.world, GATEWAY, script))
    }

    fn at_login1(&self, script: &str) -> Result<String> {
        run::output(&mut shell(self.world, ANN, script))
    }

    /// Each says what is wrong, and leaves nothing mounted.
    fn refusals(&self) -> Result<()> {
        let (config, dir) = (self.config(), self.dir.display().to_string());
        let cases: [(&[&str], &str); 5] = [
            (&["--at", "login1", "--program", "/nope"], "--program /nope: no such program there"),
            (&["--at", "no-such-host.invalid"], "no-such-host.invalid"),
            (&["--at=-oProxyCommand=x"], "as for ssh"),
            (&["--at", "login1", "--program", "/a'b"], "cannot be passed"),
            (&["--at", "login1", "--state", "/proc/none"], "/proc/none"),
        ];
        // Refused here, before anything begins there.
        let taken = self.world.home(GATEWAY).display().to_string();
        let cases = cases.into_iter().map(|(args, word)| (args, word, &dir));
        for (args, word, dir) in cases.chain([(&["--at", "login1"][..], "not empty", &taken)]) {
            let mut cmd = Gateway::new(self.world).command(&["mount"]);
            let out = cmd.args(args).args(["--ssh-config", &config, dir]).output()?;
            let said = String::from_utf8_lossy(&out.stderr);
            ensure!(!out.status.success() && said.contains(word), "{args:?}: {} {said}", out.status);
        }
        ensure!(fuse::mounted()?.is_empty(), "a refusal left a mount");
        let servers = || with_command(" serve --state").len();
        ensure!(servers() == 0, "{} servers were started for nothing", servers());
        Ok(())
    }

    /// A name for the program at the login node that only `--program` tells.
    fn another_program(&self) -> Result<String> {
        let path = self.world.home(ANN).join("a tool");
        std::os::unix::fs::symlink(&self.world.trellis, &path)?;
        Ok(path.display().to_string())
    }

    /// Commands on the compute node reach the server as the mount does, and take its paths.
    fn commands(&self, tree: &Path) -> Result<()> {
        let run = |args: &[&str]| self.trellis(args, false);
        let said = run(&["status"])?;
        ensure!(said.contains("at       login1, for the mount") && said.contains("bob@lab"), "{said}");
        ensure!(run(&["status", "--json"])?.contains("\"unsent_ops\""));
        let size = self.here(&format!("df --output=size '{}' | tail -1", self.dir.display()))?;
        ensure!(size.trim().parse::<u64>().is_ok_and(|n| n > 0), "df: {size}");
        let at = |name: &str| tree.join(name).display().to_string();
        run(&["mkdir", "-p", &at("by/command")])?;
        let local = self.world.home(GATEWAY).join("local");
        fs::write(&local, "some text\n")?;
        GATEWAY.own(&local)?;
        run(&["mv", &local.display().to_string(), &at("by/command/text")])?;
        ensure!(!local.exists());
        let at_home = self.world.home(BOB).join("work/by/command/text");
        ensure!(fs::read_to_string(&at_home)? == "some text\n", "mv returned before the home had it");
        ensure!(run(&["cat", &at("by/command/text")])? == "some text\n");
        run(&["cp", &at("by/command/text"), &at("by/copy")])?;
        run(&["sync", &at("by")])?;
        ensure!(fs::read_to_string(self.world.home(BOB).join("work/by/copy"))? == "some text\n");
        ensure!(run(&["ls", &at("by")])? == "command\ncopy\n");
        ensure!(run(&["find", &at("by"), "-type", "f"])?.lines().count() == 2);
        for refused in [&["rm", "-rf", &self.dir.display().to_string()][..], &["rm", "-r", &at("../../..")]] {
            let out = Gateway::new(self.world).command(refused).output()?;
            ensure!(out.status.code() == Some(1), "{refused:?}: {}", out.status);
        }
        run(&["rm", "-r", &at("by")])?;
        let out = Gateway::new(self.world).command(&["stop"]).output()?;
        ensure!(out.status.code() == Some(1), "stop reached the other node: {}", out.status);
        Ok(())
    }

    fn real_work(&self, tree: &Path) -> Result<()> {
        let script = format!(
            "cd '{}'\nmkdir project; cd project; git init -q .; git config user.email a@b; git config user.name a\n\
             for i in $(seq 60); do printf 'int f%d(void) {{ return %d; }}\\n' $i $i > f$i.c; done\n\
             printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n' > Makefile\n\
             make -s -j4; git add .; git commit -qm one; test -z \"$(git status --porcelain)\"\n\
             head -c 5000000 /dev/urandom > big; cp big copy; cmp big copy; test \"$(stat -c %u:%g copy)\" = \"$(id -u):$(id -g)\"; ln -s big link; test \"$(readlink link)\" = big\n\
             df . | grep -q trellis@login1\n\
             /usr/bin/python3 -c '{ATTRIBUTES}'\n",
            tree.display()
        );
        let said = self.here(&script)?;
        ensure!(said.trim_end().ends_with("[] b'1'"), "extended attributes: {said}");
        Ok(())
    }

    /// The connection is cut again and again while a file grows by one line after the other: each line is there, once.
    fn cut_while_appending(&self, tree: &Path) -> Result<()> {
        let (file, progress) = (tree.join("lines"), self.world.home(GATEWAY).join("progress"));
        let script = format!(
            "for i in $(seq 400); do echo $i >> '{}'; echo $i > '{}'; done",
            file.display(),
            progress.display()
        );
        let mut writer = shell(self.world, GATEWAY, &script).spawn()?;
        let written = || -> Option<u32> { fs::read_to_string(&progress).ok()?.trim().parse().ok() };
        let mut cuts = 0;
        while cuts < 6 {
            let wanted = cuts * 50 + 20;
            wait_for("the writer to go on", SOON, || written().filter(|n| *n >= wanted))?;
            let carriers: Vec<Pid> =
                relays().into_iter().flat_map(|r| proc::family(r).into_iter().skip(1)).collect();
            ensure!(!carriers.is_empty(), "no ssh carries the mount");
            proc::signal_all(&carriers, Signal::KILL);
            cuts += 1;
        }
        ensure!(writer.wait()?.success(), "a program noticed that the connection was cut");
        let text = self.here(&format!("cat '{}'", file.display()))?;
        let wanted: String = (1..=400).map(|i| format!("{i}\n")).collect();
        ensure!(text == wanted, "after {cuts} cuts the file has {} lines", text.lines().count());
        Ok(())
    }

    /// The server is killed while files are made: whatever a program was told is there afterwards, and the mount works.
    fn kill_the_server(&self, tree: &Path) -> Result<()> {
        let done = self.world.home(GATEWAY).join("done");
        // close(2) tells whether everything was taken; a shell does not listen.
        let script = format!(
            "exec python3 -c '\nimport os\nfor i in range(500):\n  try:\n    \
             f = os.open(\"{0}/k%d\" % i, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)\n    \
             os.write(f, b\"%d\" % i)\n    os.close(f)\n    \
             print(i, file=open(\"{1}\", \"a\"))\n  except OSError: pass\n'",
            tree.display(),
            done.display()
        );
        let mut writer = shell(self.world, GATEWAY, &script).spawn()?;
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(700));
            // Several may be on their way to the lock.
            let server = wait_for("one server at the login node", SOON, || {
                with_command(" serve --state").try_into().ok().map(|[server]: [_; 1]| server)
            })?;
            kill_process(server, Signal::KILL)?;
            wait_for("another server", SOON, || (with_command(" serve --state").len() == 1).then_some(()))?;
        }
        ensure!(writer.wait()?.success());
        let told = fs::read_to_string(&done)?;
        ensure!(told.lines().count() > 100, "only {} files were made", told.lines().count());
        for i in told.lines() {
            let text =
                self.here(&format!("cat '{}/k{i}'", tree.display())).with_context(|| format!("k{i}"))?;
            ensure!(text.trim_end() == i, "k{i} holds {text:?}");
        }
        Ok(())
    }
}

impl Node<'_> {
    /// A server that somebody stops takes its mounts along, and they do not start it again.
    fn stop_the_server(&self) -> Result<()> {
        self.trellis(&["mount", "--at", "login1", "--ssh-config", &self.config()], true)?;
        self.at_login1("trellis stop")?;
        let guards = || with_command(fuse::GUARD);
        wait_for("the relay and its guard to leave", SOON, || {
            (relays().is_empty() && guards().is_empty()).then_some(())
        })?;
        ensure!(fuse::mounted()?.is_empty(), "the mount of a stopped server is still there");
        // It lets go of its state a moment before it ends.
        let servers = || with_command(" serve --state");
        wait_for("the server's end", SOON, || servers().is_empty().then_some(()))?;
        std::thread::sleep(SETTLED);
        ensure!(servers().is_empty(), "a stopped server was started again");
        Ok(())
    }
}

/// What the home holds in the end.
fn compare(work: &Path) -> Result<()> {
    let lines = fs::read_to_string(work.join("lines"))?;
    ensure!(lines.lines().count() == 400);
    ensure!(fs::read(work.join("project/big"))? == fs::read(work.join("project/copy"))?);
    ensure!(fs::read_link(work.join("project/link"))? == Path::new("big"));
    Ok(())
}
