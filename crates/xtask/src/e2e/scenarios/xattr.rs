//! Extended attributes on a FUSE mount, and the same at the home.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::guest::Guest;
use crate::e2e::proc::wait_for;
use crate::e2e::server::Server;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const ENTRIES: usize = 1000;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    let work = world.home_dir(ANN, "work")?;
    keep_attributes(world, &work)?;
    world.write_home(ANN, &work.join("there"), b"from the home\n")?;
    set(&work.join("there"), "user.from-home", "0062696e617279ff")?;
    let many = world.home_dir(ANN, "work/many")?;
    for i in 0..ENTRIES {
        world.write_home(ANN, &many.join(format!("file{i:04}")), b"")?;
    }
    let _lab = world.host("lab", "", None)?;
    let _box = world.host("box", "ForceCommand internal-sftp", None)?;
    let mut server = world.serve(&[])?;
    let tree = fuse::mount(world, &server, "tree")?;
    let here = tree.join(format!("ann@lab{}", work.display()));

    fs::write(world.dir.join("on_mount.py"), include_str!("xattr/on_mount.py"))?;
    let script = format!("/usr/bin/python3 \"$W/on_mount.py\" '{}'\n", here.display());
    Guest::here(world, &tree, GATEWAY, &script, Duration::from_secs(200))?.run()?;
    server.must_run()?;
    server.sync()?;
    for (name, attributes) in [
        ("there", "user.a=74776f"),
        ("new", "user.a=74776f user.fd=62792064657363726970746f72"),
        ("dir", "user.a=74776f"),
        ("by-cp/3", "user.number=33"),
        ("by-rsync/19", "user.number=3139"),
    ] {
        let found = at(&work.join(name))?;
        ensure!(found == attributes, "{name} has {found:?} at the home, not {attributes:?}");
    }
    few_questions(world, &server, &tree, &work).context("what a listing costs")?;
    edits_at_home(world, &tree, &work, &here)?;
    killed(world, &mut server, &tree, (&work, &here)).context("a killed server")?;
    by_sftp(world, &server, &tree, &work).context("an SFTP home")
}

/// Where the machine's temporary files can have no attributes, the home gets a file system of its own.
fn keep_attributes(world: &World, work: &Path) -> Result<()> {
    if set(work, "user.probe", "31").is_ok() {
        return drop_attribute(work, "user.probe");
    }
    let image = world.dir.join("image").display().to_string();
    let line =
        format!("truncate -s 64M {image}; mkfs.ext4 -q {image}; mount -o loop {image} {}", work.display());
    run::output(Command::new("sh").args(["-euc", &line])).context("a file system with attributes")?;
    ANN.own(work)
}

fn python(line: &str, path: &Path) -> Result<String> {
    let program = format!("import os, sys\np = sys.argv[1]\n{line}");
    let said = run::output(Command::new("/usr/bin/python3").args(["-c", &program]).arg(path))?;
    Ok(said.trim().to_owned())
}

/// Another program sets an attribute; the value is in hexadecimal digits.
fn set(path: &Path, name: &str, value: &str) -> Result<()> {
    python(&format!("os.setxattr(p, '{name}', bytes.fromhex('{value}'))"), path).map(drop)
}

fn drop_attribute(path: &Path, name: &str) -> Result<()> {
    python(&format!("os.removexattr(p, '{name}')"), path).map(drop)
}

/// All attributes of `user.`, past the mount.
fn at(path: &Path) -> Result<String> {
    let all = "names = sorted(n for n in os.listxattr(p) if n.startswith('user.'))\n\
               print(*(f'{n}={os.getxattr(p, n).hex()}' for n in names))";
    python(all, path)
}

/// What the account's program sees through the mount.
fn seen(world: &World, tree: &Path, line: &str) -> Result<String> {
    let script = format!("/usr/bin/python3 -c \"import os, sys; {line}\"\n");
    Guest::here(world, tree, GATEWAY, &script, Duration::from_secs(60))?.run()
}

/// `ls -l`, and attributes of a thousand files that have none: as many questions as for a listing alone.
fn few_questions(world: &World, server: &Server, tree: &Path, work: &Path) -> Result<()> {
    let dir = tree.join(format!("ann@lab{}/many", work.display()));
    let before = server.round_trips("ann@lab")?;
    let script = format!(
        "cd '{}'\nls -l | tail -n 1\n\
         /usr/bin/python3 -c 'import os; print(sum(len(os.listxattr(n)) for n in os.listdir(\".\")))'\n",
        dir.display()
    );
    Guest::here(world, tree, GATEWAY, &script, Duration::from_secs(60))?.run()?;
    let cost = server.round_trips("ann@lab")? - before;
    println!("ls -l of {ENTRIES} entries and a look at the attributes of each: {cost} round trips");
    // The way there, the listing, and once more where the machine is so slow that it is out of date meanwhile.
    ensure!(cost <= 4, "{cost} round trips");
    Ok(())
}

/// Another program's change is seen, also of what was cached.
fn edits_at_home(world: &World, tree: &Path, work: &Path, here: &Path) -> Result<()> {
    set(&work.join("there"), "user.a", "6e6577")?;
    set(&work.join("there"), "user.more", "31")?;
    let line = format!(
        "p = '{}/there'; sys.exit(os.getxattr(p, 'user.a') != b'new' or len(os.listxattr(p)) != 2)",
        here.display()
    );
    wait_for("an edit at the home", Duration::from_secs(15), || seen(world, tree, &line).ok()).map(drop)
}

/// kill -9 as soon as the attribute is acknowledged, which is before it is sent.
fn killed(world: &World, server: &mut Server, tree: &Path, (work, here): (&Path, &Path)) -> Result<()> {
    for round in 0..3 {
        let set = format!("os.setxattr('{}/new', 'user.round', b'{round}')", here.display());
        seen(world, tree, &set)?;
        server.kill()?;
        server.restart()?;
        let get = format!("sys.exit(os.getxattr('{}/new', 'user.round') != b'{round}')", here.display());
        wait_for("the mount", Duration::from_secs(20), || seen(world, tree, &get).ok())?;
        server.sync()?;
        let found = at(&work.join("new"))?;
        ensure!(found.ends_with(&format!("user.round=3{round}")), "round {round}: {found}");
    }
    Ok(())
}

/// SFTP has no attributes, and the mount says so.
fn by_sftp(world: &World, server: &Server, tree: &Path, work: &Path) -> Result<()> {
    let script = format!(
        "cd \"$ROOT/ann@box{}\"\n/usr/bin/python3 - <<'EOF'\nimport errno, os\n\
         for call in [lambda: os.setxattr('new', 'user.b', b'1'), lambda: os.getxattr('new', 'user.a'),\n\
         \x20            lambda: os.listxattr('new'), lambda: os.removexattr('new', 'user.a')]:\n\
         \x20   try:\n        call()\n    except OSError as e:\n        assert e.errno == errno.EOPNOTSUPP, e\n\
         \x20   else:\n        raise AssertionError\nEOF\ncp -a new copy && cat copy\n",
        work.display()
    );
    Guest::here(world, tree, GATEWAY, &script, Duration::from_secs(60))?.run()?;
    server.sync()?;
    ensure!(at(&work.join("copy"))?.is_empty() && at(&work.join("new"))?.contains("user.a="));
    let weaker = server.home_status("ann@box")?["weaker"].to_string();
    ensure!(weaker.contains("extended attributes"), "status does not say it: {weaker}");
    Ok(())
}
