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
    NAMES.iter().try_for_each(|name| world.write_home(ANN, &dir.join(name), b"base\n"))
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
    Ok(server)
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
