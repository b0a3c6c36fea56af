//! A job of a batch system: the scripts of docs/JOBS.md as they stand there, on a node with the program and on nodes
//! without it, by FUSE and by NFS, in a home whose folders have the modes that it recommends.
//!
//! What is at the home is looked up in its own file system, not through the product.

use super::tour::blocks;
use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::guest::Guest;
use crate::e2e::proc::wait_for;
use crate::e2e::server::{Gateway, Server};
use crate::e2e::world::World;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

const JOBS: &str = include_str!("../../../../../docs/JOBS.md");

/// The folders of the home and their modes, as docs/JOBS.md has them.
const MODES: &str = r#"modes = { inputs = "ro", scratch = "owned", results = "cto" }"#;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    let data = furnish(world)?;
    let mut lab = world.host("lab", "", None)?;
    let server = world.serve(&["--config", &config(world, &data)?.display().to_string()])?;
    let tree = world.home(GATEWAY).join("tree");
    fs::create_dir(&tree)?;
    GATEWAY.own(&tree)?;
    let node = Node {
        world,
        tree: &tree,
        with: scripts(world, &server, true)?,
        without: scripts(world, &server, false)?,
    };

    node.good("the prolog mounts", &node.with, "export TRELLIS_INPUTS=$HOME/inputs; prolog")?;
    ensure!(fuse::mounted()? == [tree.clone()], "the prolog has not mounted the tree");
    node.good("a second prolog", &node.without, "prolog")?;
    modes(&node, &server, &data)?;
    for (bin, name) in [(&node.with, "trellis"), (&node.without, "barrier")] {
        let job = format!(
            "prolog; cd tree/lab; for i in 1 2 3; do echo {name} $i >{name}-$i; done; cd; exec epilog"
        );
        node.good(name, bin, &job)?;
        for i in 1..=3 {
            let there = fs::read_to_string(data.join(format!("{name}-{i}")))?;
            ensure!(there == format!("{name} {i}\n"), "after the epilog: {there:?}");
        }
    }
    by_nfs(world, &server, &data)?;
    failures(&node, &server, &mut lab, &data)?;
    server.run(&["umount", &tree.to_string_lossy()]).map(drop)
}

/// Folders at the home, and what jobs read.
fn furnish(world: &World) -> Result<PathBuf> {
    let data = world.home_dir(ANN, "data")?;
    for name in ["inputs", "scratch", "results"] {
        world.home_dir(ANN, &format!("data/{name}"))?;
    }
    world.write_home(ANN, &data.join("inputs/table"), b"read ahead\n")?;
    let list = world.home(GATEWAY).join("inputs");
    fs::write(&list, "lab/inputs/table\n")?;
    GATEWAY.own(&list)?;
    Ok(data)
}

fn config(world: &World, data: &Path) -> Result<PathBuf> {
    ensure!(JOBS.contains(MODES), "docs/JOBS.md recommends other modes");
    let file = world.home(GATEWAY).join("trellis.toml");
    fs::write(&file, format!("[[home]]\nname = \"lab\"\nscl = \"scp:lab:{}\"\n{MODES}\n", data.display()))?;
    GATEWAY.own(&file)?;
    Ok(file)
}

/// A folder with the scripts of the documentation as programs, and beside them ours if the node has it.
fn scripts(world: &World, server: &Server, ours: bool) -> Result<PathBuf> {
    let bin = world.home(GATEWAY).join(if ours { "bin" } else { "bin-without" });
    fs::create_dir(&bin)?;
    let mut programs = vec![("prolog", block("prolog")?), ("epilog", block("epilog")?)];
    if ours {
        // The program is told which server is meant.
        let (program, state) = (world.trellis.display(), Gateway::new(world).state());
        let wrapper =
            format!("#!/bin/sh\nc=$1; shift\nexec {program} \"$c\" --state {} \"$@\"\n", state.display());
        programs.push(("trellis", wrapper));
    }
    server.status()?;
    for (name, text) in programs {
        fs::write(bin.join(name), text)?;
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755))?;
    }
    Ok(bin)
}

fn block(name: &str) -> Result<String> {
    let found = blocks(JOBS, &format!("sh {name}"));
    ensure!(found.starts_with("#!/bin/sh\n"), "docs/JOBS.md has lost its {name}");
    Ok(found)
}

struct Node<'a> {
    world: &'a World,
    tree: &'a Path,
    with: PathBuf,
    without: PathBuf,
}

impl Node<'_> {
    /// A job script of the account, by sh.
    fn job(&self, bin: &Path, script: &str) -> Result<Output> {
        let mut shell = Gateway::new(self.world).shell("exec sh -euc \"$JOB\"");
        shell.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        shell.env("JOB", script).env("TRELLIS_TREE", self.tree).env("SLURM_JOB_ID", "17");
        Ok(shell.output()?)
    }

    fn good(&self, what: &str, bin: &Path, script: &str) -> Result<()> {
        let out = self.job(bin, script)?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success(), "{what}: {} {said}", out.status);
        ensure!(out.stdout.is_empty(), "{what} prints: {}", String::from_utf8_lossy(&out.stdout));
        Ok(())
    }

    /// A job that fails; answers why.
    fn bad(&self, what: &str, bin: &Path, script: &str) -> Result<String> {
        let out = self.job(bin, script)?;
        ensure!(!out.status.success(), "{what} succeeded");
        Ok(String::from_utf8_lossy(&out.stderr).into_owned())
    }
}

/// What the folders promise, on a real mount.
fn modes(node: &Node<'_>, server: &Server, data: &Path) -> Result<()> {
    let show = "cat tree/.trellis/modes; python3 -c \"import os; print(os.getxattr('tree/lab/results', 'user.trellis.mode'))\"";
    let said = String::from_utf8_lossy(&node.job(&node.with, show)?.stdout).into_owned();
    for line in ["wb /lab\n", "ro /lab/inputs\n", "owned /lab/scratch\n", "cto /lab/results\n", "b'cto'"] {
        ensure!(said.contains(line), "{line:?} is not said:\n{said}");
    }
    let status = server.home_status("lab")?;
    ensure!(status["mode"] == "wb" && status["modes"].as_array().is_some_and(|m| m.len() == 3), "{status}");
    ensure!(status["modes"][0]["mode"].is_string() && status["alarm"] == json!(null), "{status}");
    for change in [
        "echo x >f",
        "echo x >>table",
        ": >table",
        "rm table",
        "mkdir d",
        "mv table t",
        "chmod 600 table",
        "truncate -s 0 table",
    ] {
        let why = node.bad(change, &node.with, &format!("cd tree/lab/inputs; {change}"))?;
        ensure!(why.contains("Read-only file system"), "{change}: {why}");
    }
    // A script's end is a moment after the last close, and what goes home by itself goes half a second later.
    for i in 0..5 {
        node.good("a result", &node.with, &format!("echo result {i} >tree/lab/results/r{i}"))?;
        let there = fs::read_to_string(data.join(format!("results/r{i}")));
        ensure!(
            there.is_ok_and(|t| t == format!("result {i}\n")),
            "result {i} was closed and is not at the home"
        );
        node.good("a new name", &node.with, &format!("touch tree/lab/results/t{i}"))?;
        // A name goes at once, but nobody waits for it: nothing was written to the file.
        let name = data.join(format!("results/t{i}"));
        wait_for("the new name at the home", Duration::from_secs(5), || name.exists().then_some(()))?;
    }
    Ok(())
}

/// The same by the kernel's NFS client, on a machine without the program.
fn by_nfs(world: &World, server: &Server, data: &Path) -> Result<()> {
    let script = format!(
        "cat >\"$TMP/epilog\" <<'TEXT'\n{}\nTEXT\nexport TRELLIS_TREE=$ROOT\nls \"$ROOT/lab\" >/dev/null\n\
         grep -qx 'cto /lab/results' \"$ROOT/.trellis/modes\"\n\
         if echo x >\"$ROOT/lab/inputs/new\"; then exit 1; fi\n\
         echo nfs >\"$ROOT/lab/by-nfs\"\nsh \"$TMP/epilog\"\necho result >\"$ROOT/lab/results/by-nfs\"\nsleep 100 &\n",
        block("epilog")?
    );
    Guest::new(world, server.addr, GATEWAY, &script, Duration::from_secs(100))?.run()?;
    for (name, text) in [("by-nfs", "nfs\n"), ("results/by-nfs", "result\n")] {
        let there = fs::read_to_string(data.join(name)).with_context(|| format!("{name} at the home"))?;
        ensure!(there == text, "{name}: {there:?}");
    }
    Ok(())
}

/// A home that goes away, and one that refuses: the epilog says so, in time, and what was written is kept.
fn failures(node: &Node<'_>, server: &Server, lab: &mut crate::e2e::sshd::Sshd, data: &Path) -> Result<()> {
    lab.kill()?;
    let job = "export TRELLIS_DEADLINE=4; echo late >tree/lab/late; exec epilog";
    for bin in [&node.with, &node.without] {
        let begun = Instant::now();
        let why = node.bad("an epilog without the home", bin, job)?;
        let took = begun.elapsed();
        ensure!(took > Duration::from_secs(2) && took < Duration::from_secs(40), "after {took:?}: {why}");
        println!("without the home the epilog fails after {:.1} s: {}", took.as_secs_f64(), why.trim_end());
    }
    ensure!(!data.join("late").exists());
    lab.restart()?;
    node.good("the home is back", &node.without, "export TRELLIS_DEADLINE=60; exec epilog")?;
    ensure!(fs::read_to_string(data.join("late"))? == "late\n", "what the epilog complained of is lost");
    node.good("what is owned is known", &node.with, "touch tree/lab/scratch/first; exec epilog")?;
    fs::set_permissions(data.join("scratch"), fs::Permissions::from_mode(0o500))?;
    let refused = "echo x >tree/lab/scratch/refused; exec epilog";
    let why = node.bad("a refused change", &node.without, refused)?;
    ensure!(why.contains("Input/output error"), "{why}");
    fs::set_permissions(data.join("scratch"), fs::Permissions::from_mode(0o700))?;
    server.run(&["retry"])?;
    node.good("the last epilog", &node.without, "exec epilog")
}
