//! What `trellis prefetch` brought is read whole while the home is not there: by mode, and because its host is gone.

use crate::e2e::accounts::ANN;
use crate::e2e::fuse;
use crate::e2e::proc::wait_for;
use crate::e2e::server::{Gateway, Server};
use crate::e2e::trees;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const FILES: usize = 1200;
/// The bound of staleness, and time for a busy machine.
const SEEN_WITHIN: Duration = Duration::from_secs(8);

/// All that a program sees of a tree but the times of directories: names, kinds, modes, sizes, times, targets, contents.
const SEEN: &str = r#"
find . ! -type d -printf '%p %y %m %n %s %T@ %l\n' -o -printf '%p %y %m %n\n' | LC_ALL=C sort
find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
"#;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    let work = world.home_dir(ANN, "work")?;
    let (tree, listed) = (work.join("tree"), work.join("listed"));
    trees::make_source(&tree, FILES)?;
    trees::noise_file(&tree.join("long"), 5, 5_000_000)?;
    trees::make_source(&listed, 100)?;
    run::run(Command::new("chown").arg("-R").arg(ANN.uid.to_string()).arg(&work))?;
    let mut lab = world.host("lab", "", None)?;
    let server = world.serve(&[])?;
    let mount = fuse::mount(world, &server, "tree")?;
    let top = format!("ann@lab{}", work.display());

    whole_tree(&server, &top)?;
    by_list(world, &server, &top)?;
    refusals(&server, &top, &listed)?;

    server.run(&["mode", "ann@lab", "offline"])?;
    let trips = server.round_trips("ann@lab")?;
    seen_here(world, &mount.join(&top), &work).context("offline, by FUSE")?;
    by_nfs(world, &server, &top, &tree).context("offline, by NFS")?;
    ensure!(server.round_trips("ann@lab")? == trips, "the home was asked");

    server.run(&["mode", "ann@lab", "wb"])?;
    lab.kill()?;
    seen_here(world, &mount.join(&top), &work).context("without the host, by FUSE")?;
    by_nfs(world, &server, &top, &tree).context("without the host, by NFS")?;
    server.run(&["umount", &mount.to_string_lossy()])?;
    server.run(&["stop"]).map(drop)
}

fn whole_tree(server: &Server, top: &str) -> Result<()> {
    let tree = format!("{top}/tree");
    let names = report(&server.command(&["prefetch", "--json", "--metadata", &tree]).output()?)?;
    ensure!(names["fetched"] == 0 && names["names"].as_u64() > Some(FILES as u64), "{names}");
    let all = report(&server.command(&["prefetch", "--json", "--progress", &tree]).output()?)?;
    ensure!(all["failed"].as_array().is_some_and(Vec::is_empty) && all["full"].is_null(), "{all}");
    ensure!(all["files"] == FILES as u64 + 1 && all["files"] == all["files_found"], "{all}");
    ensure!(all["bytes"] == all["fetched"] && all["bytes"].as_u64() > Some(5_000_000), "{all}");
    let again = report(&server.command(&["prefetch", "--json", &tree]).output()?)?;
    ensure!(again["fetched"] == 0 && again["bytes"] == all["bytes"], "{again}");
    Ok(())
}

/// Paths in a file; one of them leads nowhere.
fn by_list(world: &World, server: &Server, top: &str) -> Result<()> {
    let list = world.dir.join("list");
    fs::write(&list, format!("{top}/listed/d00\n{top}/missing\n\n{top}/listed/../listed/\n"))?;
    let output = server.command(&["prefetch", "--json", "--list", &list.to_string_lossy()]).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1) && said.contains(&format!("{top}/missing: ")), "it said: {said}");
    let done: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(done["failed"][0]["path"] == format!("/{top}/missing"), "{done}");
    ensure!(done["files"] == done["files_found"] && done["files"].as_u64() >= Some(100), "{done}");
    Ok(())
}

/// What the account may not read is named.
fn refusals(server: &Server, top: &str, listed: &Path) -> Result<()> {
    let closed = listed.join("closed");
    fs::write(&closed, "root's")?;
    run::run(Command::new("chmod").arg("600").arg(&closed))?;
    // What is done at the home is seen soon, not at once.
    let refused = || {
        let output = server.command(&["prefetch", &format!("{top}/listed/closed")]).output().ok()?;
        let said = String::from_utf8_lossy(&output.stderr);
        (output.status.code() == Some(1) && said.contains("permission")).then_some(())
    };
    wait_for("a file that may not be read to be named", SEEN_WITHIN, refused)?;
    fs::remove_file(&closed)?;
    let whole = || server.run(&["prefetch", &format!("{top}/listed")]).ok();
    wait_for("what was removed to be seen", SEEN_WITHIN, whole).map(drop)
}

fn report(output: &Output) -> Result<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "prefetch ended with {}: {said}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn seen_here(world: &World, mounted: &Path, work: &Path) -> Result<()> {
    let here = run::output(&mut Gateway::new(world).shell(&format!("cd {} && {SEEN}", mounted.display())))?;
    let there = run::output(Command::new("bash").args(["-c", SEEN]).current_dir(work))?;
    let differs = here.lines().zip(there.lines()).find(|(a, b)| a != b);
    ensure!(here == there, "it is another tree: {differs:?}");
    Ok(())
}

fn by_nfs(world: &World, server: &Server, top: &str, tree: &Path) -> Result<()> {
    let (client, root) = world.client(server)?;
    let dir = client.walk(&root, &format!("{top}/tree"))?;
    let long = client.lookup(&dir, "long")?;
    ensure!(client.read_all(&long)? == fs::read(tree.join("long"))?, "other bytes");
    for name in ["d00", "d02", "d04"] {
        let there = fs::read_dir(tree.join(name))?.count();
        let listed = client.list(&client.lookup(&dir, name)?)?;
        let names = listed.iter().filter(|e| !matches!(&e.name[..], b"." | b"..")).count();
        ensure!(names == there, "{names} names in {name} instead of {there}");
    }
    Ok(())
}
