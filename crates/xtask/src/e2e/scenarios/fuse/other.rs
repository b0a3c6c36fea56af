//! Two servers of one user: commands for one reach what is in the other's mount, and the doctor of one sees that the other
//! has gone.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::proc::wait_for;
use crate::e2e::server::Server;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// `server` is that of the mounts which are there.
pub fn run(world: &World, server: &Server) -> Result<()> {
    let work = world.home_dir(ANN, "of-both")?;
    world.write_home(ANN, &work.join("text"), b"some text\n")?;
    let before = fuse::mounted()?;
    let mut second = world.serve_as("second", &[])?;
    let mount = fuse::mount(world, &second, "second")?;
    let there = mount.join(format!("ann@lab{}", work.display()));
    through_the_mount(world, server, &there, &work)?;
    starts_of_walks(server, &second, &there)?;
    left_behind(server, &mut second, &mount)?;
    ensure!(fuse::mounted()? == before, "a mount is left");
    Ok(())
}

fn output(command: &mut Command, code: i32) -> Result<(String, String)> {
    let out = command.output()?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(out.status.code() == Some(code), "{command:?}: {} instead of {code}: {said}", out.status);
    Ok((String::from_utf8_lossy(&out.stdout).into_owned(), said))
}

/// Paths in the second server's mount are no hosts to commands for the first.
fn through_the_mount(world: &World, server: &Server, there: &Path, work: &Path) -> Result<()> {
    let at = |name: &str| there.join(name).display().to_string();
    ensure!(server.run(&["cat", &at("text")])? == "some text\n");
    ensure!(server.run(&["ls", &at("")])? == "text\n");
    server.run(&["cp", &at("text"), &at("copy")])?;
    let local = world.home(GATEWAY).join("moved");
    fs::write(&local, "moved\n")?;
    GATEWAY.own(&local)?;
    server.run(&["mv", &local.to_string_lossy(), &at("moved")])?;
    // Its source is removed when it is at the home.
    ensure!(!local.exists() && fs::read_to_string(work.join("moved"))? == "moved\n");
    // With one name, a link is made in the current directory.
    output(server.command(&["ln", "-s", "elsewhere/linked"]).current_dir(there), 0)?;
    let linked = server.run(&["stat", "--json", &at("linked")])?;
    ensure!(linked.contains("\"target\":\"elsewhere/linked\""), "ln -s with one name: {linked}");
    let (_, said) = output(&mut server.command(&["ln", "-s", "elsewhere/linked"]), 1)?;
    ensure!(said.contains("the current directory is not in a mount"), "ln -s without a place: {said}");
    server.run(&["rm", &at("copy"), &at("moved"), &at("linked")])?;
    let (_, said) = output(&mut server.command(&["sync", &at("text")]), 2)?;
    ensure!(said.contains("another server serves") && said.contains("--state"), "sync elsewhere: {said}");
    Ok(())
}

/// In a mount, walks without a path begin at `.`, whichever server is asked.
fn starts_of_walks(server: &Server, second: &Server, there: &Path) -> Result<()> {
    for asked in [server, second] {
        let run = |args: &[&str]| output(asked.command(args).current_dir(there), 0).map(|(out, _)| out);
        ensure!(run(&["find"])? == ".\n./text\n", "find: {}", run(&["find"])?);
        ensure!(run(&["find", "-name", "."])? == ".\n");
        ensure!(run(&["du"])?.ends_with("\t.\n") && run(&["du", "-a"])?.contains("\t./text\n"));
        ensure!(run(&["ls", "-R"])? == ".:\ntext\n");
    }
    Ok(())
}

/// What a killed server and a stopped one leave, and what is said of it.
fn left_behind(server: &Server, second: &mut Server, mount: &Path) -> Result<()> {
    let dir = mount.display().to_string();
    second.kill()?;
    wait_for("a dead mount", Duration::from_secs(10), || fs::read_dir(mount).is_err().then_some(()))?;
    let (found, _) = output(&mut server.command(&["doctor"]), 1)?;
    ensure!(found.contains(&format!("{dir}: its server has gone")), "doctor: {found}");
    ensure!(found.contains(&format!("`trellis umount {dir} --state ")), "doctor: {found}");
    let (_, said) = output(&mut server.command(&["ls", &dir]), 2)?;
    ensure!(said.contains("has gone: `trellis doctor --state "), "ls of a dead mount: {said}");
    // What cannot be taken away is not forgotten either.
    let sh = |line: &str| run::output(Command::new("sh").args(["-euc", line]));
    sh("mount --bind /dev/null /usr/bin/fusermount3")?;
    let (_, said) = output(&mut second.command(&["umount"]), 1)?;
    ensure!(!said.contains("not mounted"), "umount without its helper: {said}");
    sh("umount /usr/bin/fusermount3")?;
    second.restart()?;
    let (found, _) = output(&mut server.command(&["doctor"]), 0).context("the mount is served again")?;
    ensure!(!found.contains("has gone"), "doctor: {found}");

    second.run(&["stop"])?;
    ensure!(second.wait(Duration::from_secs(60))?, "the second server ended badly");
    let (said, _) = output(&mut second.command(&["umount"]), 0)?;
    ensure!(said.contains("was not mounted any more") && !said.contains("is unmounted"), "umount: {said}");
    let (_, said) = output(&mut second.command(&["umount"]), 1)?;
    ensure!(said.contains("nothing is mounted"), "umount: {said}");
    Ok(())
}
