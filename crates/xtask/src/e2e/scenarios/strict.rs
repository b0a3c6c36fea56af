//! Mode `strict`: a call returns when the home has what it did, and sees what others did there.
//!
//! What is at the home is looked up in its own file system, not through the product.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::guest::{Guest, Running};
use crate::e2e::proc::wait_for;
use crate::e2e::server::Server;
use crate::e2e::sshd::Sshd;
use crate::e2e::trees::{self, Noise};
use crate::e2e::world::World;
use crate::nfs::{Client, at, status_of};
use crate::run;
use crate::wan_link;
use anyhow::{Context, Result, bail, ensure};
use oncrpc::nfs3::*;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between server and home while the server is killed: an answer takes half of it, a kill far less.
const RTT: Duration = Duration::from_millis(80);

/// Runs on the client. `look` says that a call has returned, and waits until the host has looked; that the host is
/// done is itself a change made at the home.
const SCRIPT: &str = r#"
n=0
look() { n=$((n + 1)); echo "returned $n"; until [[ -e "$AT/go$n" ]]; do sleep 0.01; done; }
expect() {
  local want=$1 out
  shift
  if out=$("$@" 2>&1); then fail "$* succeeded"; fi
  [[ $out == *"$want"* ]] || fail "$*: $out, not: $want"
}
AT="/trellis/ann@lab$WORK"
cd "$AT"
step "what is done here is there"
echo -n made >f; look
dd if=/dev/zero of=synced bs=1000 count=3 conv=fsync status=none; look
echo -n "and more" >>f; look
mv f g; look
mkdir d; look
ln -s g s; look
ln g h; look
chmod 600 g; look
truncate -s 2 g; look
mv g d/g; look
rm h; look
rm d/g; look
rmdir d; look
step "what is done there is seen here"
look # edits, and makes "theirs"
[[ $(cat theirs) == first ]] || fail "a new file is not seen"
look # edits it
[[ $(cat theirs) == "second, longer" ]] || fail "an edit is not seen: $(cat theirs)"
look # renames it
[[ ! -e theirs && $(cat renamed) == "second, longer" ]] || fail "a rename is not seen"
[[ $(ls | grep -c renamed) == 1 ]] || fail "a rename is not listed"
look # removes it
[[ ! -e renamed ]] || fail "a removal is not seen"
! ls | grep -q renamed || fail "a removal is not listed"
step "errors are the home's"
look # makes "taken" and closes "shut"
expect "File exists" mkdir taken
expect "cannot overwrite existing file" bash -c 'set -C; echo x >taken'
[[ $(cat taken) == theirs ]] || fail "O_EXCL went over a file"
expect "Permission denied" touch shut/x
expect "Permission denied" rm shut/inside
expect "Read-only file system" mkdir locked/x
expect "No space left on device" dd if=/dev/zero of=small/synced bs=1M count=4 conv=fsync status=none
expect "No space left on device" cp "$W/big" small/closed
rm -f small/synced small/closed
echo -n fits >small/fits; look
step "the server dies between the home's answer and its own"
cd "/trellis/ann@far$WORK/far"
(set -C; : >excl) || fail "O_EXCL: the repeated call has another answer"; look
mkdir dir; look
ln -s soft soft; look
ln old hard; look
mv moving moved; look
rm doomed; look
rmdir empty; look
dd if=/dev/zero of=old bs=5000 count=1 conv=fsync status=none; look
step "done"
"#;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let work = world.home_dir(ANN, "work")?;
    furnish(world, &work)?;
    let _lab = world.host("lab", "", None)?;
    let far_host = Sshd::start(&world.dir, "far", "")?;
    let wire = wan_link::with_rtt(far_host.addr, RTT)?;
    let known = fs::read_to_string(world.known_hosts())? + &far_host.known_hosts()?;
    fs::write(world.known_hosts(), known)?;
    world.route("far", wire.addr())?;
    let dead = dead_home(world)?;
    let mut server = world.serve(&["--mode", "strict"])?;

    let script = format!("WORK={}\n{SCRIPT}", work.display());
    let options = ",actimeo=0,lookupcache=none";
    let guest = Guest::mounted(world, server.addr, GATEWAY, &script, Duration::from_secs(100), options)?;
    let mut pair = Pair { guest: guest.start()?, world, at: work.clone(), n: 0 };
    done_here(&mut pair)?;
    done_there(&mut pair)?;
    errors(&mut pair)?;
    killed(&mut pair, &mut server, &work.join("far"))?;
    pair.guest.finish()?;
    one_winner(world, &server, &work)?;
    by_fuse(world, &server)?;
    server.sync()?;
    let status = server.home_status("ann@lab")?;
    ensure!(status["mode"] == "strict" && status["unsent_ops"] == 0 && status["conflicts"] == 0, "{status}");
    dead.join().unwrap_or_else(|_| bail!("the calls to a dead home panicked"))
}

/// Calls to a home that dies, through a server of its own: they wait, then fail. It goes on beside the rest, because
/// that takes a minute.
fn dead_home(world: &World) -> Result<JoinHandle<Result<()>>> {
    let dir = world.home_dir(ANN, "work/dead")?;
    let mut host = world.host("dead", "", None)?;
    let mut server = world.serve_as("dead", &["--mode", "strict"])?;
    let begin = move || {
        let client = Client::connect(server.addr, GATEWAY.uid)?;
        let there = client.walk(&client.mount("/")?, &format!("ann@dead{}", dir.display()))?;
        let file = client.put(&there, "before", b"kept")?;
        host.kill()?;
        let began = Instant::now();
        let failed = |call: &dyn Fn() -> Result<()>| loop {
            match status_of(&call()) {
                Some(NfsStat3::Io) => return Ok(()),
                Some(NfsStat3::Jukebox) if began.elapsed() < Duration::from_secs(120) => {}
                other => bail!("a call to a dead home answers {other:?} after {:?}", began.elapsed()),
            }
        };
        failed(&|| client.create(&there, "new").map(drop))?;
        println!("a dead home: EIO after {:?}", began.elapsed());
        ensure!(began.elapsed() > Duration::from_secs(30), "nobody waited for the home");
        failed(&|| client.write(&file, 0, b"lost", StableHow::FileSync).map(drop))?;
        failed(&|| client.getattr(&file).map(drop))?;
        server.must_run()?;
        host.restart()?;
        wait_for("the home", Duration::from_secs(60), || client.getattr(&file).is_ok().then_some(()))?;
        ensure!(client.read_all(&file)? == b"kept" && trees::names(&dir)?.len() == 1, "what failed was done");
        host.kill()
    };
    Ok(std::thread::spawn(begin))
}

/// Folders at the home: one without space, one mounted read-only, one to be closed, and one that is far.
fn furnish(world: &World, work: &Path) -> Result<()> {
    for (name, options) in [("small", "size=2m"), ("locked", "size=2m,ro")] {
        let dir = world.home_dir(ANN, &format!("work/{name}"))?;
        let options = format!("{options},mode=700,uid={uid},gid={uid}", uid = ANN.uid);
        run::mount_tmpfs(&dir, &options)?;
    }
    world.home_dir(ANN, "work/shut")?;
    world.write_home(ANN, &work.join("shut/inside"), b"stays")?;
    world.home_dir(ANN, "work/far")?;
    world.home_dir(ANN, "work/far/empty")?;
    for name in ["old", "moving", "doomed"] {
        world.write_home(ANN, &work.join("far").join(name), name.as_bytes())?;
    }
    fs::write(world.dir.join("big"), Noise::new(3).bytes(4 << 20))?;
    GATEWAY.own(&world.dir.join("big"))
}

/// The client's script and this side, in turn.
struct Pair<'a> {
    guest: Running,
    world: &'a World,
    at: PathBuf,
    n: u32,
}

impl Pair<'_> {
    /// Waits until a call has returned, looks, and lets the script go on.
    fn look(&mut self, what: &str, look: impl FnOnce(&Path) -> Result<bool>) -> Result<()> {
        self.n += 1;
        let said = format!("returned {}\n", self.n);
        wait_for(what, Duration::from_secs(60), || {
            let heard = self.guest.said().replace('\r', "").contains(&said);
            (heard || !matches!(self.guest.works(), Ok(true))).then_some(())
        })?;
        ensure!(self.guest.works()?, "the client ended:\n{}", self.guest.said());
        ensure!(look(&self.at).context(what.to_owned())?, "not at the home: {what}");
        self.world.write_home(ANN, &self.at.join(format!("go{}", self.n)), b"")
    }
}

fn there(path: PathBuf) -> bool {
    path.symlink_metadata().is_ok()
}

/// Every call is at the home when it has returned.
fn done_here(pair: &mut Pair<'_>) -> Result<()> {
    pair.look("a new file", |d| Ok(fs::read(d.join("f"))? == b"made"))?;
    pair.look("fsync", |d| Ok(fs::read(d.join("synced"))? == [0; 3000]))?;
    pair.look("an append", |d| Ok(fs::read(d.join("f"))? == b"madeand more"))?;
    pair.look("a rename", |d| Ok(!there(d.join("f")) && fs::read(d.join("g"))? == b"madeand more"))?;
    pair.look("a directory", |d| Ok(d.join("d").is_dir()))?;
    pair.look("a symbolic link", |d| Ok(fs::read_link(d.join("s"))?.as_os_str() == "g"))?;
    pair.look("a link", |d| Ok(d.join("h").metadata()?.ino() == d.join("g").metadata()?.ino()))?;
    pair.look("a mode", |d| Ok(d.join("g").metadata()?.mode() & 0o7777 == 0o600))?;
    pair.look("a shorter file", |d| Ok(fs::read(d.join("g"))? == b"ma"))?;
    pair.look("a move", |d| Ok(!there(d.join("g")) && fs::read(d.join("d/g"))? == b"ma"))?;
    pair.look("a removed name", |d| Ok(!there(d.join("h")) && d.join("d/g").metadata()?.nlink() == 1))?;
    pair.look("a removal", |d| Ok(!there(d.join("d/g"))))?;
    pair.look("a removed directory", |d| Ok(!there(d.join("d"))))
}

/// The next call sees what was done at the home.
fn done_there(pair: &mut Pair<'_>) -> Result<()> {
    let world = pair.world;
    pair.look("make", |d| world.write_home(ANN, &d.join("theirs"), b"first").map(|()| true))?;
    pair.look("edit", |d| world.write_home(ANN, &d.join("theirs"), b"second, longer").map(|()| true))?;
    pair.look("rename", |d| Ok(fs::rename(d.join("theirs"), d.join("renamed")).map(|()| true)?))?;
    pair.look("remove", |d| Ok(fs::remove_file(d.join("renamed")).map(|()| true)?))
}

/// What the home refuses, the call refuses, for the same reason.
fn errors(pair: &mut Pair<'_>) -> Result<()> {
    let world = pair.world;
    pair.look("make what is in the way", |d| {
        fs::set_permissions(d.join("shut"), fs::Permissions::from_mode(0o555))?;
        world.write_home(ANN, &d.join("taken"), b"theirs").map(|()| true)
    })?;
    pair.look("space", |d| Ok(fs::read(d.join("small/fits"))? == b"fits" && there(d.join("shut/inside"))))
}

/// kill -9 of the server as soon as the home has done something, whose answer is still on its way.
fn killed(pair: &mut Pair<'_>, server: &mut Server, far: &Path) -> Result<()> {
    type Effect = fn(&Path) -> bool;
    let effects: [(&str, Effect); 8] = [
        ("O_EXCL", |d| there(d.join("excl"))),
        ("mkdir", |d| there(d.join("dir"))),
        ("symlink", |d| there(d.join("soft"))),
        ("link", |d| there(d.join("hard"))),
        ("rename", |d| there(d.join("moved"))),
        ("remove", |d| !there(d.join("doomed"))),
        ("rmdir", |d| !there(d.join("empty"))),
        ("write", |d| d.join("old").metadata().is_ok_and(|m| m.len() == 5000)),
    ];
    for (what, effect) in effects {
        let began = Instant::now();
        while !effect(far) {
            ensure!(began.elapsed() < Duration::from_secs(60), "the home never had it: {what}");
            ensure!(pair.guest.works()?, "the client ended:\n{}", pair.guest.said());
            std::thread::sleep(Duration::from_millis(1));
        }
        let early = !pair.guest.said().contains(&format!("returned {}\n", pair.n + 1));
        server.kill()?;
        ensure!(early, "{what} returned before the home could have answered");
        server.restart()?;
        let restarted = Instant::now();
        pair.look(what, |_| Ok(effect(far)))?;
        println!("{what}: answered {:?} after the restart", restarted.elapsed());
    }
    let names = trees::names(far)?;
    ensure!(names.len() == 6, "something was done twice: {names:?}");
    Ok(())
}

/// What was done at the home is seen by the next look on a FUSE mount, however soon it comes.
fn by_fuse(world: &World, server: &Server) -> Result<()> {
    fuse::allow()?;
    let there = world.home_dir(ANN, "work/looked-at")?;
    let tree = fuse::mount(world, server, "tree")?;
    let mut shell = Command::new("bash");
    // One process, so that nothing is slow enough for what a kernel keeps to become old.
    shell.args(["-c", "while read -r line; do eval \"$line\"; done"]).uid(GATEWAY.uid).gid(GATEWAY.uid);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut ask = shell.stdin.take().context("the shell's input")?;
    let mut told = BufReader::new(shell.stdout.take().context("the shell's output")?).lines();
    let mut look = |line: &str, want: &str| -> Result<()> {
        writeln!(ask, "{line}")?;
        let told = told.next().context("the shell has ended")??;
        ensure!(told == want, "{line} on the mount: {told}, not {want}");
        Ok(())
    };
    look(&format!("cd {}/ann@lab{}; echo $?", tree.display(), there.display()), "0")?;
    for n in 1..=20 {
        let (file, text) = (there.join("theirs"), "x".repeat(n));
        world.write_home(ANN, &file, text.as_bytes())?;
        look("stat -c %s theirs", &n.to_string())?;
        look("cat theirs; echo", &text)?;
        look("echo *", "theirs")?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640))?;
        look("stat -c %a theirs", "640")?;
        fs::rename(&file, there.join("moved"))?;
        look("[[ -e theirs || ! -e moved ]]; echo $?", "1")?;
        fs::remove_file(there.join("moved"))?;
        look("[[ -e theirs || -e moved ]]; echo $?", "1")?;
    }
    let deep = world.home_dir(ANN, "work/looked-at/a/b/c/d/e/f")?.join("theirs");
    let path = format!("{}/ann@far{}", tree.display(), deep.display());
    let looks = (1..=5).map(|n| {
        world.write_home(ANN, &deep, "x".repeat(n).as_bytes())?;
        let began = Instant::now();
        look(&format!("stat -c %s {path}"), &n.to_string())?;
        Ok(began.elapsed())
    });
    let looks = looks.collect::<Result<Vec<_>>>()?;
    println!("a path of {} names, look after look: {looks:?}", deep.iter().count());
    // The names of a path that was walked before are asked for at once.
    ensure!(looks[1..].iter().any(|took| *took < RTT * 3), "a known path costs a round trip for each name");
    // Its end is the end of its input.
    drop(ask);
    shell.wait()?;
    server.run(&["umount", &tree.to_string_lossy()]).map(drop)
}

/// Of two who make a name, each with O_EXCL, one here and one at the home, one succeeds.
fn one_winner(world: &World, server: &Server, work: &Path) -> Result<()> {
    let (client, root) = world.client(server)?;
    let race = world.home_dir(ANN, "work/race")?;
    let dir = client.walk(&root, &format!("ann@lab{}", work.join("race").display()))?;
    let mut won = [0; 2];
    for n in 0..60 {
        let path = race.join(format!("lock{n}"));
        let pause = Duration::from_micros(n % 20 * 300);
        let theirs = std::thread::spawn(move || {
            std::thread::sleep(pause);
            fs::File::create_new(path).is_ok()
        });
        let ours = exclusive(&client, &dir, n)?;
        let theirs = theirs.join().unwrap_or(false);
        ensure!(ours != theirs, "lock{n}: here {ours}, there {theirs}");
        won[usize::from(theirs)] += 1;
    }
    println!("O_EXCL: won here {}, there {}", won[0], won[1]);
    Ok(())
}

fn exclusive(client: &Client, dir: &NfsFh3, n: u64) -> Result<bool> {
    let how = CreateHow3::Exclusive((n + 1).to_be_bytes());
    let args = CreateArgs { at: at(dir, format!("lock{n}")), how };
    let made = client.call::<_, CreateOk, WccData>(procs::CREATE, &args);
    match status_of(&made) {
        Some(NfsStat3::Ok) => Ok(true),
        Some(NfsStat3::Exist) => Ok(false),
        _ => made.map(|_| true),
    }
}
