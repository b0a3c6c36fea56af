//! The tree mounted by FUSE, by a user without any privilege, on this machine.

pub mod both;
pub mod kill;
mod left;
mod other;

use super::basic_tree;
use crate::e2e::accounts::{ANN, BOB, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::guest::Guest;
use crate::e2e::proc::{wait_for, with_command};
use crate::e2e::server::{Gateway, Server};
use crate::e2e::sshd::Sshd;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal};
use std::fs;
use std::io::ErrorKind;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    basic_tree::prepare(world)?;
    let work = world.home_dir(ANN, "work")?;
    let locked = locked(world)?;
    let mut lab = world.host("lab", "", None)?;
    let mut server = world.serve(&[])?;
    let tree = fuse::mount(world, &server, "tree")?;
    first_steps(world, &server, &tree)?;
    refused_login(world, &server, &mut lab, &tree)?;
    read_only(world, &server, &tree, &locked)?;
    refusals(world, &server, &tree)?;
    without_server(world)?;
    silent(world)?;
    other::run(world, &server).context("two servers")?;
    basic_tree::work_on(&work, |script| {
        Guest::here(world, &tree, GATEWAY, script, Duration::from_secs(400))
    })?;
    server.must_run()?;
    server.sync()?;
    basic_tree::check_home(world, &work)?;
    lifecycle(world, &mut server, &tree)
}

/// What only a mount on the same machine can do, and two mounts of one server together.
pub fn programs(world: &World) -> Result<()> {
    fuse::allow()?;
    let work = world.home_dir(ANN, "work")?;
    let _lab = world.host("lab", "", None)?;
    let mut server = world.serve(&[])?;
    let (tree, other) = (fuse::mount(world, &server, "tree")?, fuse::mount(world, &server, "other")?);
    let script =
        format!("WORK={} OTHER={}\n{}", work.display(), other.display(), include_str!("fuse/programs.sh"));
    Guest::here(world, &tree, GATEWAY, &script, Duration::from_secs(300))?.run()?;
    follow(world, &tree, &work)?;
    server.must_run()?;
    server.sync()?;
    let there = work.join("programs");
    ensure!(fs::read_to_string(there.join("log"))?.lines().count() == 600, "appends at the home");
    ensure!(fs::read_to_string(there.join("edited"))? == "new\n" && !there.join("nameless").exists());
    let mut fsck = Command::new("git");
    fsck.args(["-c", "safe.directory=*", "-C"]).arg(there.join("objects")).args(["fsck", "--full"]);
    run::output(&mut fsck).context("the repository at the home").map(drop)
}

/// `tail -f` of a file that grows at the home.
fn follow(world: &World, tree: &Path, work: &Path) -> Result<()> {
    let log = work.join("followed");
    world.write_home(ANN, &log, b"line 0\n")?;
    // A listing may be as old as the bound of staleness.
    let script = format!(
        "log=\"$ROOT/ann@lab{}\"\nuntil [[ -e $log ]]; do sleep 0.2; done\n\
         grep -m 1 -q 'line 20' < <(timeout 60 tail -n +1 -f \"$log\")\n",
        log.display()
    );
    let mut client = Guest::here(world, tree, GATEWAY, &script, Duration::from_secs(70))?.start()?;
    let mut file = fs::File::options().append(true).open(&log)?;
    for i in 1..=20 {
        writeln!(file, "line {i}")?;
        std::thread::sleep(Duration::from_millis(100));
    }
    // tail hears of its pipe's end when it writes again.
    while client.works()? {
        writeln!(file, "more")?;
        std::thread::sleep(Duration::from_millis(500));
    }
    client.finish().context("tail -f").map(drop)
}

/// Looking, reading and writing.
fn first_steps(world: &World, server: &Server, tree: &Path) -> Result<()> {
    let first = world.home_dir(ANN, "first")?;
    world.write_home(ANN, &first.join("there"), b"from the home\n")?;
    let script = format!(
        "cd \"$ROOT/ann@lab{}\"\n[[ $(cat there) == 'from the home' ]]\necho 'from the mount' >here\n\
         [[ $(ls) == $'here\\nthere' ]]\nmv here moved\nrm there\nls \"$ROOT\" | grep -q ann@lab\n",
        first.display()
    );
    Guest::here(world, tree, GATEWAY, &script, Duration::from_secs(60))?.run()?;
    server.sync()?;
    ensure!(fs::read(first.join("moved"))? == b"from the mount\n" && !first.join("there").exists());
    Ok(())
}

/// Where it is certain that nobody gets in, nobody waits for it: at a first look, and after the key was taken away.
fn refused_login(world: &World, server: &Server, lab: &mut Sshd, tree: &Path) -> Result<()> {
    let look = |name: &str, path: &str, why: &str| -> Result<()> {
        let began = Instant::now();
        let line = format!("LC_ALL=C ls {}/{name}{path}", tree.display());
        let out = Gateway::new(world).shell(&line).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        let took = began.elapsed();
        println!("ls {name}{path}: {took:?}: {}", said.trim());
        ensure!(!out.status.success() && said.contains(why), "ls {name}{path}: {said}");
        ensure!(took < Duration::from_secs(8), "ls {name}{path} took {took:?}: {said}");
        Ok(())
    };
    let (keys, taken) = (world.authorized_keys(BOB), world.dir.join("taken"));
    // Of another file system, which nobody walks into who looks for what may be wanted next.
    let unseen = world.home_dir(BOB, "unseen")?;
    let options = format!("size=1m,mode=700,uid={uid},gid={uid}", uid = BOB.uid);
    run::mount_tmpfs(&unseen, &options)?;
    let unseen = unseen.display().to_string();
    fs::rename(&keys, &taken)?;
    for _ in 0..2 {
        look("bob@lab", "/", "Permission denied")?;
        look("bob@no-such-host.invalid", "/", "No such file")?;
    }
    fs::rename(&taken, &keys)?;
    // Nobody tries again in the same second, lest an account gets locked.
    let soon = Duration::from_secs(10);
    wait_for("the key that is back", soon, || server.run(&["ls", "bob@lab"]).ok())?;
    fs::rename(&keys, &taken)?;
    lab.kill()?;
    lab.restart()?;
    for _ in 0..2 {
        look("bob@lab", &unseen, "Permission denied")?;
    }
    fs::rename(&taken, &keys)?;
    let path = format!("bob@lab{unseen}");
    wait_for("the key that is back", soon, || server.run(&["ls", &path]).ok()).map(drop)
}

/// A file system that is mounted read-only at the home, with a file.
fn locked(world: &World) -> Result<PathBuf> {
    let locked = world.home_dir(ANN, "locked")?;
    let options = format!("size=1m,mode=700,uid={uid},gid={uid}", uid = ANN.uid);
    run::mount_tmpfs(&locked, &options)?;
    world.write_home(ANN, &locked.join("kept"), b"kept")?;
    run::output(Command::new("mount").args(["-o", "remount,ro"]).arg(&locked))?;
    Ok(locked)
}

/// Nothing is accepted that could never go there.
fn read_only(world: &World, server: &Server, tree: &Path, locked: &Path) -> Result<()> {
    let script = format!(
        "cd \"$ROOT/ann@lab{}\"\n[[ $(cat kept) == kept ]]\n\
         for change in 'echo x >new' 'mkdir d' 'echo x >>kept' ': >kept' 'rm kept' 'mv kept k' 'ln kept k' \
         'ln -s kept k' 'chmod 600 kept' 'touch kept'; do\n\
         if said=$(LC_ALL=C bash -c \"$change\" 2>&1); then fail \"$change succeeded\"; fi\n\
         [[ $said == *'Read-only file system'* ]] || fail \"$change: $said\"\ndone\n\
         [[ $(cat kept) == kept ]]\n",
        locked.display()
    );
    Guest::here(world, tree, GATEWAY, &script, Duration::from_secs(60))?.run()?;
    let status = server.home_status("ann@lab")?;
    ensure!(status["parked"] == serde_json::json!([]) && status["unsent_ops"] == 0, "{status}");
    Ok(())
}

/// Where and when nothing is mounted, and that the message says what to do.
fn refusals(world: &World, server: &Server, tree: &Path) -> Result<()> {
    let own = world.home(GATEWAY);
    let refused = |dir: &Path, why: &str| -> Result<()> {
        let out = server.command(&["mount", &dir.to_string_lossy()]).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(
            out.status.code() == Some(1) && said.contains(why),
            "{}: {} {said}",
            dir.display(),
            out.status
        );
        Ok(())
    };
    refused(&own, "choose an empty directory")?;
    refused(&world.dir, "choose a directory of your own")?;
    refused(&own.join("none"), "make it with `mkdir")?;
    refused(&own.join("key"), "not a directory")?;
    refused(&tree.join("ann@lab/inner"), "choose a directory outside of it")?;
    let empty = own.join("empty");
    fs::create_dir(&empty)?;
    GATEWAY.own(&empty)?;
    let sh = |line: &str| run::output(Command::new("sh").args(["-euc", line]));
    sh("chmod 600 /dev/fuse")?;
    refused(&empty, "chmod 666 /dev/fuse")?;
    sh("chmod 666 /dev/fuse; mount --bind /dev/null /usr/bin/fusermount3")?;
    refused(&empty, "install the package fuse3")?;
    sh("umount /usr/bin/fusermount3")?;
    let again = server.run(&["mount", &tree.to_string_lossy()])?;
    ensure!(again.contains("is mounted already"), "mounting twice: {again}");
    let none = server.command(&["umount", &empty.to_string_lossy()]).output()?;
    ensure!(none.status.code() == Some(1), "umount of what is not mounted");
    ensure!(fuse::mounted()? == [tree], "refused, and mounted all the same: {:?}", fuse::mounted()?);
    Ok(())
}

/// Where no server runs, one is started; without a directory it is `~/trellis`, which is made.
fn without_server(world: &World) -> Result<()> {
    let gateway = Gateway::named(world, "background");
    let (state, usual) = (gateway.state().display().to_string(), world.home(GATEWAY).join("trellis"));
    let before = fuse::mounted()?;
    refused_without_server(&gateway, &state, &world.home(GATEWAY).join("key"))?;
    let mut mount = gateway.command(&["mount", "--state", &state]);
    let out = mount.output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success() && said.contains("started a server in the background"), "mount: {said}");
    ensure!(fuse::mounted()?.contains(&usual), "not mounted on ~/trellis");
    run::output(&mut gateway.command(&["stop", "--state", &state]))?;
    ensure!(fuse::mounted()? == before && usual.is_dir(), "the stopped server's mount is left");
    let written = gateway.shell("echo lost >trellis/file").output()?;
    ensure!(!written.status.success(), "a directory that waits for its mount can be written");
    // Nor does one stay that cannot mount any more what an earlier one had mounted.
    fs::remove_dir(&usual)?;
    fs::write(&usual, "")?;
    refused_without_server(&gateway, &state, &world.home(GATEWAY).join("key"))?;
    fs::remove_file(&usual)?;

    // Two that start a server at the same time use the one that comes up.
    let mut both = [(); 2].map(|()| gateway.command(&["mount", "--state", &state]));
    let both = both.each_mut().map(|mount| mount.stdout(Stdio::null()).stderr(Stdio::piped()).spawn());
    for mount in both {
        let out = mount?.wait_with_output()?;
        ensure!(out.status.success(), "mounting twice at once: {}", String::from_utf8_lossy(&out.stderr));
    }
    run::output(&mut gateway.command(&["stop", "--state", &state]))?;
    hangup(world, &gateway, &state, &before)
}

/// A server that was started for a mount which is refused does not stay.
fn refused_without_server(gateway: &Gateway, state: &str, file: &Path) -> Result<()> {
    let refused = gateway.command(&["mount", "--state", state, &file.to_string_lossy()]).output()?;
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(1) && said.contains("not a directory"), "a file: {said}");
    ensure!(said.contains("has ended again"), "its server: {said}");
    ensure!(said.matches("started a server").count() == 1, "started more than once: {said}");
    let status = gateway.command(&["status", "--state", state]).output()?;
    let said = String::from_utf8_lossy(&status.stderr);
    ensure!(!status.status.success() && said.contains("no server runs"), "a server is left: {said}");
    Ok(())
}

/// A server that takes connections and never answers holds up no command.
fn silent(world: &World) -> Result<()> {
    let gateway = Gateway::named(world, "silent");
    let dir = gateway.state();
    fs::DirBuilder::new().mode(0o700).create(&dir)?;
    GATEWAY.own(&dir)?;
    let socket = dir.join("control");
    let _silent = UnixListener::bind(&socket)?;
    GATEWAY.own(&socket)?;
    let state = dir.display().to_string();
    let usual = world.home(GATEWAY).join("trellis").display().to_string();
    let asks =
        [&["status"][..], &["doctor"], &["sync"], &["stop"], &["umount"], &["mount", &usual], &["retry"]];
    let mut waiting = Vec::new();
    for ask in asks {
        let mut command = gateway.command(ask);
        command.args(["--state", &state]).stdout(Stdio::piped()).stderr(Stdio::piped());
        waiting.push((ask, command.spawn()?));
    }
    for (ask, mut command) in waiting {
        let ended = wait_for("a command", Duration::from_secs(25), || command.try_wait().transpose());
        let hangs = ended.is_err();
        if hangs {
            command.kill()?;
        }
        let out = command.wait_with_output()?;
        // The doctor has it among its findings, on standard output.
        let said = String::from_utf8_lossy(if ask == ["doctor"] { &out.stdout } else { &out.stderr });
        let told =
            said.contains("does not answer") && said.contains(&format!("kill -9 {}", std::process::id()));
        ensure!(!hangs && !out.status.success() && told, "{ask:?} of a silent server: {} {said}", out.status);
    }
    Ok(())
}

/// A server in a terminal that closes ends in order, and one without NFS serves mounts.
fn hangup(world: &World, gateway: &Gateway, state: &str, before: &[PathBuf]) -> Result<()> {
    // Whoever runs the tests may be deaf to hangups (nohup), and the server would inherit that.
    let mut serve = gateway.shell(&format!(
        "exec env --default-signal=HUP {} serve --no-nfs --state {state} --ssh-config {}",
        world.trellis.display(),
        world.ssh_config().display()
    ));
    let mut serving = serve.stdout(Stdio::null()).spawn()?;
    wait_for("the remembered mount", Duration::from_secs(30), || {
        fuse::mounted().is_ok_and(|now| now.len() == before.len() + 1).then_some(())
    })?;
    run::output(&mut gateway.shell("ls trellis/ann@lab/ >/dev/null"))?;
    let doctor = run::output(&mut gateway.command(&["doctor", "--state", state]))?;
    ensure!(doctor.contains("serves no NFS"), "doctor: {doctor}");
    rustix::process::kill_process(Pid::from_child(&serving), Signal::HUP)?;
    let ended = wait_for("the end", Duration::from_secs(30), || serving.try_wait().transpose())??;
    ensure!(ended.success() && fuse::mounted()? == before, "a hangup leaves a mount");
    Ok(())
}

/// Busy mounts, unmounting, and the end of the server.
fn lifecycle(world: &World, server: &mut Server, tree: &Path) -> Result<()> {
    let dir = tree.to_string_lossy();
    let pid = Pid::from_raw(server.pid()).context("the server's process")?;
    rustix::process::kill_process(pid, Signal::STOP)?;
    wait_for("a stopped server", Duration::from_secs(10), || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.starts_with('T').then_some(())
    })?;
    for args in [&["status"][..], &["umount", &dir]] {
        let out = server.command(args).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(!out.status.success() && said.contains("kill -CONT"), "a stopped server: {args:?}: {said}");
    }
    let doctor = server.command(&["doctor"]).output()?;
    let found = String::from_utf8_lossy(&doctor.stdout);
    ensure!(found.contains("its server does not answer") && found.contains("kill -CONT"), "doctor: {found}");
    let other = Gateway::named(world, "other").command(&["umount", &dir]).output()?;
    let said = String::from_utf8_lossy(&other.stderr);
    ensure!(!other.status.success() && said.contains("its server hangs"), "umount by another: {said}");
    wait_for("the end of those who asked", Duration::from_secs(10), || {
        with_command("mount-probe").is_empty().then_some(())
    })?;
    rustix::process::kill_process(pid, Signal::CONT)?;
    let status = server.status()?;
    ensure!(status["mounts"][0]["dir"] == *dir && status["mounts"][0]["problem"].is_null(), "{status}");
    let refused = fs::read_dir(tree).map(drop).map_err(|e| e.kind());
    ensure!(refused == Err(ErrorKind::PermissionDenied), "root lists somebody else's mount: {refused:?}");
    let table = fs::read_to_string("/proc/self/mounts")?;
    let ours = table.lines().filter(|l| l.split(' ').nth(1) == Some(&dir));
    let options = ours.filter_map(|l| l.split(' ').nth(3)).next_back().unwrap_or("");
    let has = |wanted| options.split(',').any(|option| option == wanted);
    ensure!(has("nosuid") && has("nodev") && !has("default_permissions"), "mounted with {options}");
    // The directory is entered as the account: nobody else, not even root, may.
    let enter = format!("cd '{dir}' && exec sleep 600");
    let mut inside = Command::new("bash").args(["-c", &enter]).uid(GATEWAY.uid).gid(GATEWAY.uid).spawn()?;
    wait_for("a process inside", Duration::from_secs(10), || {
        fs::read_link(format!("/proc/{}/cwd", inside.id())).is_ok_and(|cwd| cwd == tree).then_some(())
    })?;
    let refused = server.command(&["umount", &dir]).output()?;
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        !refused.status.success() && said.contains("fuser -vm") && said.contains("--lazy"),
        "busy: {said}"
    );
    inside.kill()?;
    inside.wait()?;
    server.run(&["umount", &dir])?;
    ensure!(fuse::mounted()?.is_empty() && fs::read_dir(tree)?.next().is_none(), "still mounted");

    server.run(&["mount", &dir])?;
    server.run(&["stop", "--drain", "60"])?;
    ensure!(server.wait(Duration::from_secs(60))?, "the server ended badly after stop");
    ensure!(fuse::mounted()?.is_empty(), "a stopped server leaves a mount");
    let said = server.run(&["umount", &dir])?;
    ensure!(said.contains("was not mounted any more"), "umount: {said}");
    server.restart()?;
    ensure!(fuse::mounted()?.is_empty(), "it is mounted again");
    server.run(&["mount", &dir])?;
    server.kill()?;
    server.restart()?;
    ensure!(fuse::mounted()? == [tree], "a server that comes back does not mount again");
    Ok(())
}
