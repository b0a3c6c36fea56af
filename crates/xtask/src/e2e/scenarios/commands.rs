//! The commands of the program.

mod conflicts;
mod twins;

use crate::e2e::accounts::{ANN, BOB, GATEWAY};
use crate::e2e::server::{Gateway, Server};
use crate::e2e::trees::Noise;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The default bound of staleness, and a little more.
const STALENESS: Duration = Duration::from_secs(6);

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let work = world.home_dir(ANN, "work")?;
    let noise = Noise::new(3).bytes(300_000);
    world.write_home(ANN, &work.join("noise"), &noise)?;
    world.write_home(ANN, &work.join("text"), b"some text\n")?;
    // What is made at the home later would be seen with a delay.
    for (who, name) in [(ANN, "twin"), (ANN, "moving"), (BOB, "moved")] {
        world.home_dir(who, name)?;
    }
    conflicts::prepare(world)?;
    let _lab = world.host("lab", "", None)?;
    let server = world.serve(&[])?;
    let there = format!("/ann@lab{}", work.display());

    look_and_copy(world, &server, &there, &noise)?;
    in_the_home_directory(world, &server).context("the home directory")?;
    ensure!(fs::read(work.join("noise2"))? == noise, "what cp sent is not at the home after sync");
    status(&server)?;
    bad_input(&server, &there)?;
    twins::run(world, &server)?;
    from_home_to_home(world, &server)?;
    let mut server = conflicts::run(world, server).context("conflicts")?;

    ensure!(server.run(&["stop", "--drain", "60"]).is_ok());
    ensure!(server.wait(Duration::from_secs(60))?, "the server ended badly after stop");
    without_server(world, &there, &noise)
}

fn look_and_copy(world: &World, server: &Server, there: &str, noise: &[u8]) -> Result<()> {
    let listed = server.run(&["ls", there])?;
    ensure!(listed.contains("noise") && listed.contains("text"), "ls: {listed}");
    let stat = server.run(&["stat", &format!("{there}/noise")])?;
    ensure!(stat.contains("300000"), "stat: {stat}");
    ensure!(server.run(&["cat", &format!("{there}/text")])? == "some text\n");

    let (out, back) = (world.home(GATEWAY).join("out"), format!("{there}/noise2"));
    server.run(&["cp", &format!("{there}/noise"), &out.to_string_lossy()])?;
    ensure!(fs::read(&out)? == noise, "cp brought other bytes");
    server.run(&["cp", &out.to_string_lossy(), &back])?;
    // The home's file system cannot keep this time: what it makes of it is no other program's change.
    server.run(&["touch", "-d", "@99999999999999", &back])?;
    server.sync()?;
    server.run(&["cp", &out.to_string_lossy(), &back])?;
    let through_mount = server.command(&["cat", &back]).output()?.stdout;
    ensure!(through_mount == noise, "cat shows other bytes");
    server.sync()
}

/// A host with nothing behind its colon is the account's home directory, as for scp(1); with a slash it is the root.
fn in_the_home_directory(world: &World, server: &Server) -> Result<()> {
    let home = world.home(ANN);
    server.run(&["mkdir", "ann@lab:small"])?;
    server.run(&["cp", "/etc/hostname", "ann@lab:small"])?;
    server.run(&["cp", "/etc/hostname", "ann@lab:"])?;
    server.sync()?;
    let name = fs::read("/etc/hostname")?;
    ensure!(fs::read(home.join("hostname"))? == name && fs::read(home.join("small/hostname"))? == name);
    ensure!(server.run(&["ls", "ann@lab:"])?.contains("small\n"), "ls ann@lab: is not the home directory");
    ensure!(server.run(&["ls", "ann@lab:/"])?.contains("etc\n"), "ls ann@lab:/ is not the root");
    let mounted = server.run(&["ls", "/scp:ann@lab:"])?;
    ensure!(mounted.contains("etc\n"), "what the tree has as scp:ann@lab: is the root: {mounted}");
    for from in ["ann@lab:small", "ann@lab:small/."] {
        let to = world.home(GATEWAY).join(format!("from-{}", from.len()));
        server.run(&["cp", "-r", from, &to.to_string_lossy()])?;
        ensure!(fs::read(to.join("hostname"))? == name, "cp -r {from}");
    }
    server.run(&["rm", "-r", "ann@lab:small", "ann@lab:hostname"])?;
    server.sync()
}

fn status(server: &Server) -> Result<()> {
    let home = server.home_status("ann@lab")?;
    ensure!(home["state"] == "up" && home["class"] == "posix" && home["mode"] == "wb", "{home}");
    ensure!(home["unsent_ops"] == 0 && home["unsent_bytes"] == 0 && home["conflicts"] == 0, "{home}");
    ensure!(home["round_trips"].as_u64().is_some_and(|n| n > 0), "{home}");
    let status = server.status()?;
    ensure!(status["pid"] == server.pid() && status["nfs"][0] == server.addr.to_string(), "{status}");
    let shown = server.run(&["status"])?;
    ensure!(shown.contains("ann@lab"), "status for people: {shown}");
    Ok(())
}

/// Each fails with the status of its twin and says what to do on stderr.
fn bad_input(server: &Server, there: &str) -> Result<()> {
    let missing = format!("{there}/missing");
    let nobody = "/ann@no-such-host.invalid/x";
    let cases: [(i32, &[&str]); 18] = [
        (2, &["ls", &missing]),
        (1, &["stat", &missing]),
        (1, &["cat", &missing]),
        (1, &["cat", there]),
        (1, &["cp", &missing, "/tmp/x"]),
        (1, &["cp", there, "/tmp/x"]),
        (2, &["ls", nobody]),
        (1, &["mkdir", nobody]),
        (1, &["rm", nobody]),
        (1, &["mv", nobody, there]),
        (1, &["rm", "-r", "/ann@lab"]),
        (1, &["rm", "-rf", "scp:lab:."]),
        (1, &["rm", "-rf", "lab:"]),
        (1, &["mv", "lab:", "/tmp/x"]),
        (2, &["ls", "/-oProxyCommand=x/"]),
        (1, &["cp", "scp:-oProxyCommand=x:/y", "/tmp/x"]),
        (1, &["find", there, "-exec", "ls"]),
        (2, &["sync", "--timeout", "soon"]),
    ];
    for (code, args) in cases {
        let out = server.command(args).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.code() == Some(code), "{args:?}: {} instead of {code}: {said}", out.status);
        ensure!(!said.trim().is_empty() && !said.contains("panicked"), "{args:?}: {said}");
    }
    Ok(())
}

/// A tree moves from one account to another, through this machine: whole there before it goes here.
fn from_home_to_home(world: &World, server: &Server) -> Result<()> {
    let (from, to) = (world.home_dir(ANN, "moving")?, world.home_dir(BOB, "moved")?);
    let mut noise = Noise::new(5);
    for n in 0..200 {
        world.write_home(ANN, &from.join(format!("f{n}")), &noise.bytes(n * 50))?;
    }
    // The folder's names may be cached, asked for ahead with its neighbours': none, until the answer is too old.
    std::thread::sleep(STALENESS);
    let before = twins::tree(&from)?;
    let place = |who: &str, path: &Path| format!("/{who}@lab{}", path.display());
    server.run(&["mv", &place("ann", &from), &place("bob", &to)])?;
    ensure!(twins::tree(&to.join("moving"))? == before, "the tree arrived changed");
    server.sync()?;
    ensure!(!from.exists(), "the source is still there after sync");
    Ok(())
}

/// Where no server runs, the same commands go to the home directly.
fn without_server(world: &World, there: &str, noise: &[u8]) -> Result<()> {
    let gateway = Gateway::new(world);
    let (state, config) = (gateway.state().display().to_string(), world.ssh_config().display().to_string());
    let direct =
        |verb: &str, path: &str| gateway.command(&[verb, path, "--state", &state, "--ssh-config", &config]);
    let listed = run::output(&mut direct("ls", there)).context("ls without a server")?;
    ensure!(listed.contains("noise2"), "ls without a server: {listed}");
    let out = direct("cat", &format!("{there}/noise")).output()?;
    ensure!(out.stdout == noise, "cat without a server shows other bytes");
    let status = gateway.command(&["status", "--state", &state]).output()?;
    ensure!(!status.status.success(), "status without a server must fail");
    Ok(())
}
