//! Files that are changed here and at their home at the same time: told, over a restart, and settled by a person.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::server::Server;
use crate::e2e::world::World;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const OURS: &str = "changed here\n";
const THEIRS: &str = "changed at the home, too\n";

/// The files, by what becomes of them.
const NAMES: [&str; 4] = ["mine", "theirs", "both", "name it"];

/// Puts the files there, before anything is known of their folder.
pub fn prepare(world: &World) -> Result<()> {
    let dir = world.home_dir(ANN, "both")?;
    NAMES.iter().try_for_each(|name| world.write_home(ANN, &dir.join(name), b"base\n"))?;
    POLICIES.iter().try_for_each(|policy| {
        let folder = world.home_dir(ANN, &format!("both/{policy}"))?;
        world.write_home(ANN, &folder.join("f"), b"base\n")
    })
}

/// Makes conflicts, restarts the server, and settles each in another way. Answers the new server.
pub fn run(world: &World, mut server: Server) -> Result<Server> {
    let dir = world.home_dir(ANN, "both")?;
    let local = world.home(GATEWAY).join("changed");
    fs::write(&local, OURS)?;
    GATEWAY.own(&local)?;
    for name in NAMES {
        ensure!(server.run(&["cat", &place(&dir, name)])? == "base\n");
    }
    // A home that is watched tells of a change at once: whoever writes after that has seen it.
    server.run(&["mode", "/ann@lab", "offline"])?;
    for name in NAMES {
        world.write_home(ANN, &dir.join(name), THEIRS.as_bytes())?;
        server.run(&["cp", &local.to_string_lossy(), &place(&dir, name)])?;
    }
    server.run(&["mode", "/ann@lab", "wb"])?;
    server.sync()?;
    let before = list(&server, NAMES.len())?;
    ensure!(server.run(&["stop", "--drain", "30"]).is_ok());
    ensure!(server.wait(Duration::from_secs(60))?, "the server ended badly after stop");
    let server = world.serve(&[])?;
    let after = list(&server, NAMES.len())?;
    ensure!(before == after, "a restart changed the list:\n{before:?}\n{after:?}");
    settle(&server, &dir, &after)?;
    list(&server, 0)?;
    let server = restarted(world, server, &["--config", &config(world)?.display().to_string()])?;
    policies(world, &server).context("policies")?;
    restarted(world, server, &[])
}

fn restarted(world: &World, mut server: Server, args: &[&str]) -> Result<Server> {
    ensure!(server.run(&["stop", "--drain", "30"]).is_ok());
    ensure!(server.wait(Duration::from_secs(60))?, "the server ended badly after stop");
    world.serve(args)
}

/// Folders, each with the policy of its name.
const POLICIES: [&str; 4] = ["prefer-local", "stop", "strict-last-writer", "append-merge"];

fn config(world: &World) -> Result<PathBuf> {
    let dir = world.home_dir(ANN, "both")?;
    let folders = POLICIES.map(|policy| format!("{:?} = {policy:?}", dir.join(policy)));
    let text = format!(
        "[[home]]\nname = \"root\"\nscl = \"scp:ann@lab:/\"\nconflicts = {{ {} }}\n",
        folders.join(", ")
    );
    let file = world.home(GATEWAY).join("policies.toml");
    fs::write(&file, text)?;
    GATEWAY.own(&file)?;
    Ok(file)
}

/// Both sides add to a file in each folder.
fn policies(world: &World, server: &Server) -> Result<()> {
    let dir = world.home_dir(ANN, "both")?;
    let file = |policy: &str| dir.join(policy).join("f");
    let at_home = |policy: &str| fs::read_to_string(file(policy)).context(policy.to_owned());
    let local = world.home(GATEWAY).join("changed");
    let there = |policy: &str| place(&dir.join(policy), "f");
    for policy in POLICIES {
        ensure!(server.run(&["cat", &there(policy)])? == "base\n");
    }
    server.run(&["mode", "/ann@lab", "offline"])?;
    for policy in POLICIES {
        world.write_home(ANN, &file(policy), b"base\ntheirs\n")?;
        fs::write(&local, "base\nours\n")?;
        server.run(&["cp", &local.to_string_lossy(), &there(policy)])?;
    }
    server.run(&["mode", "/ann@lab", "wb"])?;
    let sync = server.command(&["sync", "/ann@lab"]).output()?;
    let said = String::from_utf8_lossy(&sync.stderr).into_owned();
    ensure!(!sync.status.success() && said.contains("stopped at a conflict"), "{said}");
    ensure!(at_home("prefer-local")? == "base\nours\n" && at_home("strict-last-writer")? == "base\nours\n");
    ensure!(at_home("stop")? == "base\ntheirs\n");
    // A copy of the whole is no addition: what only adds is tested in the engine.
    ensure!(at_home("append-merge")? == "base\ntheirs\n");
    let status = server.run(&["status"])?;
    for policy in POLICIES {
        let line = format!("conflicts in {}: {policy}", dir.join(policy).display());
        ensure!(status.contains(&line), "{line} is missing in\n{status}");
    }
    let stopped = server.run(&["conflicts", "show", &there("stop")])?;
    ensure!(stopped.contains("stopped  with all later work in its folder"), "{stopped}");
    server.run(&["conflicts", "resolve", "--keep", "mine", &there("stop")])?;
    server.sync()?;
    ensure!(at_home("stop")? == "base\nours\n");
    let copy = fs::read_dir(dir.join("prefer-local"))?.filter_map(|entry| Some(entry.ok()?.path()));
    let copy =
        copy.into_iter().find(|path| path.to_string_lossy().ends_with("-theirs")).context("no copy")?;
    ensure!(fs::read_to_string(copy)? == "base\ntheirs\n");
    for policy in ["prefer-local", "append-merge"] {
        server.run(&["conflicts", "resolve", "--keep", "mine", &there(policy)])?;
    }
    server.sync()?;
    for policy in POLICIES {
        ensure!(at_home(policy)? == "base\nours\n", "{policy}");
        ensure!(fs::read_dir(dir.join(policy))?.count() == 1, "{policy}");
    }
    Ok(())
}

fn place(dir: &Path, name: &str) -> String {
    format!("/ann@lab{}", dir.join(name).display())
}

/// The conflicts, of which there must be so many; also as `status` counts them.
fn list(server: &Server, count: usize) -> Result<Vec<Value>> {
    let found: Vec<Value> = serde_json::from_str(&server.run(&["conflicts", "--json", "/ann@lab"])?)?;
    ensure!(found.len() == count, "{count} conflicts, and listed are {found:#?}");
    let home = server.home_status("ann@lab")?;
    ensure!(home["conflict_copies"] == count, "{home}");
    let shown = server.run(&["conflicts"])?;
    ensure!(shown.lines().count() == if count == 0 { 1 } else { count + 2 }, "{shown}");
    Ok(found)
}

fn settle(server: &Server, dir: &Path, found: &[Value]) -> Result<()> {
    let at_home = |name: &str| fs::read_to_string(dir.join(name)).with_context(|| name.to_owned());
    for conflict in found {
        let copy = conflict["copy"].as_str().context("copy")?;
        let original = PathBuf::from(conflict["original"].as_str().context("original")?);
        let name = original.file_name().context("name")?.to_string_lossy().into_owned();
        ensure!(original.to_string_lossy() == place(dir, &name), "{conflict}");
        ensure!(server.run(&["cat", copy])? == OURS && at_home(&name)? == THEIRS);
        let sizes = (conflict["mine"]["size"].as_u64(), conflict["theirs"]["size"].as_u64());
        ensure!(sizes == (Some(OURS.len() as u64), Some(THEIRS.len() as u64)), "{conflict}");
        let shown = server.run(&["conflicts", "show", &place(dir, &name)])?;
        ensure!(shown.contains("compare  diff <(trellis cat ") && shown.contains(copy), "{shown}");
        let resolve = |args: &[&str]| server.run(&[&["conflicts", "resolve", "--keep"], args].concat());
        match name.as_str() {
            "name it" => resolve(&["both", "--as", "named", copy])?,
            side => resolve(&[side, &place(dir, &name)])?,
        };
    }
    server.sync()?;
    let mut left: Vec<String> = Vec::new();
    for entry in fs::read_dir(dir)? {
        left.push(entry?.file_name().to_string_lossy().into_owned());
    }
    left.retain(|name| !POLICIES.contains(&name.as_str()));
    left.sort();
    ensure!(left == ["both", "both.mine", "mine", "name it", "named", "theirs"], "{left:?}");
    for (name, text) in [
        ("mine", OURS),
        ("theirs", THEIRS),
        ("both", THEIRS),
        ("both.mine", OURS),
        ("name it", THEIRS),
        ("named", OURS),
    ] {
        ensure!(at_home(name)? == text, "{name} holds {:?}", at_home(name)?);
    }
    for wrong in [&["show", &place(dir, "mine")][..], &["resolve", "--keep", "mine", &place(dir, "mine")]] {
        let out = server.command(&[&["conflicts"], wrong].concat()).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.code() == Some(1) && said.contains("no conflict is known"), "{wrong:?}: {said}");
    }
    Ok(())
}
