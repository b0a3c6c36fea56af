//! System calls on names and attributes, one after the other, as a program of their own: the basic work that Connectathon's
//! tests do, with as many calls of each kind, and how long single look-ups take.
//!
//! Each answer is compared with what it must be, and the replay leaves files behind whose names, modes, links and targets
//! another replay elsewhere leaves, too.

use super::files::asked_name;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is called.
#[derive(clap::Args)]
pub struct CallsArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Basic work in a folder that is empty; says how long each kind took.
    Replay {
        dir: PathBuf,
        /// A small part of it
        #[arg(long)]
        few: bool,
        /// Where to write how many calls there were that look up, tell or change something
        report: PathBuf,
    },
    /// stat(2) of names in a large folder, of which nothing is known.
    Stat {
        dir: PathBuf,
        names: usize,
        /// Reads each of them, too
        #[arg(long)]
        read: bool,
        /// Where to write the 95th percentile, in seconds
        report: PathBuf,
    },
}

/// How often each kind is called.
struct Size {
    /// Of a tree with two directories and five files in each directory.
    levels: usize,
    lookups: usize,
    attributes: usize,
    listed: usize,
    links: usize,
    statfs: usize,
    /// On which attributes, links and symbolic links are changed.
    files: usize,
}

const FULL: Size =
    Size { levels: 5, lookups: 250, attributes: 50, listed: 200, links: 20, statfs: 1500, files: 10 };
const FEW: Size = Size { levels: 1, lookups: 5, attributes: 1, listed: 5, links: 1, statfs: 10, files: 4 };

/// The inside of a measurement.
pub fn command(args: CallsArgs) -> Result<()> {
    match args.what {
        What::Replay { dir, few, report } => {
            let report = std::path::absolute(report)?;
            std::env::set_current_dir(&dir).with_context(|| dir.display().to_string())?;
            let calls = replay(if few { &FEW } else { &FULL })?;
            Ok(fs::write(report, calls.to_string())?)
        }
        What::Stat { dir, names, read, report } => {
            let p95 = stat(&dir, names, read)?;
            Ok(fs::write(report, p95.as_secs_f64().to_string())?)
        }
    }
}

/// The work, and the calls of it so far.
#[derive(Default)]
struct Calls(usize);

impl Calls {
    /// A call that must succeed.
    fn made<T>(&mut self, done: std::io::Result<T>, what: &str, name: &str) -> Result<T> {
        self.0 += 1;
        done.with_context(|| format!("{what} {name}"))
    }

    fn make(&mut self, name: &str) -> Result<()> {
        self.made(File::create_new(name).map(drop), "creat", name)
    }

    fn enter(&mut self, name: &str) -> Result<()> {
        self.made(std::env::set_current_dir(name), "chdir", name)
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        self.made(fs::remove_file(name), "unlink", name)
    }

    fn stat(&mut self, name: &str) -> Result<fs::Metadata> {
        self.made(fs::symlink_metadata(name), "lstat", name)
    }

    /// What a listing must be.
    fn list(&mut self, expected: &BTreeSet<String>) -> Result<()> {
        let found: std::io::Result<BTreeSet<_>> =
            fs::read_dir(".").and_then(|all| all.map(|e| e.map(|e| e.file_name())).collect());
        let found = self.made(found, "readdir", ".")?;
        ensure!(
            found.iter().map(|name| name.to_str()).eq(expected.iter().map(|name| Some(name.as_str()))),
            "listed {found:?} instead of {expected:?}"
        );
        Ok(())
    }
}

/// Each kind in a directory of its own, in the directory that we are in; answers how many calls counted.
fn replay(size: &Size) -> Result<usize> {
    type Kind = fn(&mut Calls, &Size) -> Result<()>;
    let kinds: [(&str, Kind); 8] = [
        ("create", create),
        ("remove", remove),
        ("look-ups", look_ups),
        ("attributes", attributes),
        ("readdir", readdir),
        ("link and rename", link_and_rename),
        ("symlink", symlinks),
        ("statfs", statfs),
    ];
    let mut sum = 0;
    for (name, kind) in kinds {
        let mut calls = Calls::default();
        let began = Instant::now();
        kind(&mut calls, size).context(name)?;
        println!("{name}: {} calls in {:.3} s", calls.0, began.elapsed().as_secs_f64());
        sum += calls.0;
    }
    Ok(sum)
}

fn create(calls: &mut Calls, size: &Size) -> Result<()> {
    calls.made(fs::create_dir("tree"), "mkdir", "tree")?;
    in_tree(
        calls,
        size.levels,
        "tree",
        &mut |calls, file| calls.make(file),
        &mut |calls, dir| calls.made(fs::create_dir(dir), "mkdir", dir),
        &mut |_, _| Ok(()),
    )
}

fn remove(calls: &mut Calls, size: &Size) -> Result<()> {
    in_tree(
        calls,
        size.levels,
        "tree",
        &mut |calls, file| calls.remove(file),
        &mut |_, _| Ok(()),
        &mut |calls, dir| calls.made(fs::remove_dir(dir), "rmdir", dir),
    )?;
    calls.made(fs::remove_dir("tree"), "rmdir", "tree")
}

type Visit<'a> = &'a mut dyn FnMut(&mut Calls, &str) -> Result<()>;

/// Visits the files of a directory, and each directory before and after what is in it.
fn in_tree(
    calls: &mut Calls,
    levels: usize,
    dir: &str,
    file: Visit<'_>,
    before: Visit<'_>,
    after: Visit<'_>,
) -> Result<()> {
    calls.enter(dir)?;
    for i in 0..5 {
        file(calls, &format!("file{i}"))?;
    }
    for i in 0..if levels > 1 { 2 } else { 0 } {
        let below = format!("dir{i}");
        before(calls, &below)?;
        in_tree(calls, levels - 1, &below, file, before, after)?;
        after(calls, &below)?;
    }
    leave()
}

fn look_ups(calls: &mut Calls, size: &Size) -> Result<()> {
    for _ in 0..size.lookups {
        let here = std::env::current_dir()?;
        let told = calls.stat(&here.to_string_lossy())?;
        ensure!(told.is_dir(), "{} is no directory", here.display());
    }
    Ok(())
}

/// The kernel knows where it leads, so that it is no call that asks.
fn leave() -> Result<()> {
    std::env::set_current_dir("..").context("chdir ..")
}

/// Files in a new directory, in which we are then.
fn files(calls: &mut Calls, dir: &str, count: usize) -> Result<BTreeSet<String>> {
    calls.made(fs::create_dir(dir), "mkdir", dir)?;
    calls.enter(dir)?;
    let names: BTreeSet<_> = (0..count).map(|i| format!("file{i}")).collect();
    names.iter().try_for_each(|name| calls.make(name))?;
    Ok(names)
}

fn attributes(calls: &mut Calls, size: &Size) -> Result<()> {
    let names = files(calls, "attributes", size.files)?;
    for _ in 0..size.attributes {
        for (name, mode) in names.iter().flat_map(|name| [(name, 0), (name, 0o640)]) {
            calls.made(fs::set_permissions(name, Permissions::from_mode(mode)), "chmod", name)?;
            let told = calls.stat(name)?.mode();
            ensure!(told & 0o7777 == mode, "{name} has mode {told:o} instead of {mode:o}");
        }
    }
    leave()
}

fn readdir(calls: &mut Calls, size: &Size) -> Result<()> {
    let mut names = files(calls, "readdir", size.listed)?;
    calls.list(&names)?;
    while names.len() > 1 {
        let name = names.pop_first().unwrap_or_default();
        calls.remove(&name)?;
        calls.list(&names)?;
    }
    leave()
}

fn link_and_rename(calls: &mut Calls, size: &Size) -> Result<()> {
    let names = files(calls, "links", size.files)?;
    let links = |calls: &mut Calls, name: &str, expected: u64| {
        let told = calls.stat(name)?.nlink();
        ensure!(told == expected, "{name} has {told} links instead of {expected}");
        Ok(())
    };
    for pass in 0..size.links {
        for name in &names {
            let other = format!("other-{name}");
            calls.made(fs::rename(name, &other), "rename", name)?;
            ensure!(calls.stat(name).is_err(), "{name} is there after it was renamed");
            links(calls, &other, 1)?;
            calls.made(fs::hard_link(&other, name), "link", name)?;
            links(calls, name, 2)?;
            if pass + 1 < size.links {
                calls.remove(&other)?;
                links(calls, name, 1)?;
            }
        }
    }
    leave()
}

fn symlinks(calls: &mut Calls, size: &Size) -> Result<()> {
    files(calls, "symlinks", 0)?;
    for (pass, i) in (0..2 * size.links).flat_map(|pass| (0..size.files).map(move |i| (pass, i))) {
        let (name, target) = (format!("link{i}"), format!("../links/this is the target of {i}"));
        calls.made(symlink(&target, &name), "symlink", &name)?;
        let told = calls.made(fs::read_link(&name), "readlink", &name)?;
        ensure!(told == Path::new(&target), "{name} leads to {}", told.display());
        if pass + 1 < 2 * size.links {
            calls.remove(&name)?;
        }
    }
    leave()
}

fn statfs(calls: &mut Calls, size: &Size) -> Result<()> {
    for _ in 0..size.statfs {
        let told = calls.made(rustix::fs::statvfs(".").map_err(Into::into), "statfs", ".")?;
        ensure!(told.f_bsize > 0, "statfs knows no blocks");
    }
    Ok(())
}

/// Asks for so many names of a folder, not in their order, or reads what is there; answers the 95th percentile of the times.
fn stat(dir: &Path, names: usize, read: bool) -> Result<Duration> {
    let mut times = Vec::new();
    for i in 0..names {
        let name = dir.join(asked_name(i * 37 % names));
        let began = Instant::now();
        let len = if read {
            fs::read(&name).map(|all| all.len() as u64)
        } else {
            name.symlink_metadata().map(|m| m.len())
        };
        ensure!(len.with_context(|| name.display().to_string())? > 0, "it is empty");
        times.push(began.elapsed());
    }
    println!("the first {:.3} s, the last {:.3} s", times[0].as_secs_f64(), times[names - 1].as_secs_f64());
    times.sort();
    let part = |hundredth: usize| times[(times.len() * hundredth).div_ceil(100).max(1) - 1];
    println!(
        "{names} names: {}",
        [0, 50, 95, 100].map(|p| format!("p{p} {:.3} s", part(p).as_secs_f64())).join(", ")
    );
    Ok(part(95))
}
