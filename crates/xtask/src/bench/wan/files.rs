//! The files that there are before anything is measured.

use super::Options;
use crate::e2e::{GATEWAY, make_program, noise_file};
use crate::run;
use anyhow::Result;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Directories in each directory of the large tree, and files in each of these.
const DIRS: usize = 110;
const FILES: usize = 49;
/// Files of the folder that is read as a whole, and bytes of each.
const MANY: u64 = 1000;
const MANY_LEN: u64 = 64 << 10;
pub const MANY_BYTES: u64 = MANY * MANY_LEN;
/// C files of the program that is built.
const UNITS: usize = 150;

/// The most names that are asked for.
pub const ASKED: usize = 100;
/// Files of the folder that they are in. With their names it is too large to be listed for one of them.
const AMONG: usize = 6 * ASKED;

/// A name that is asked for.
pub fn asked_name(number: usize) -> String {
    format!("{number:03}-{}", "x".repeat(240))
}

/// What the account makes of them, as [`super::rows`] has scripts. No commit begins a gc of its own beside ours.
pub const SCRIPT: &str = "\
cp $H/big $L/edited
dd if=$L/patch of=$L/edited bs=1M seek=40 conv=notrunc status=none
part() { dd if=$1 bs=1M skip=$2 count=$3 status=none; }
{ for i in $(seq 0 19); do part $L/edited $i 1; printf x; done
part $L/edited 20 10; head -c 1M /dev/urandom; part $L/edited 30 1000000; } >$L/inserted
cp $L/edited $L/edited2
dd if=$L/patch of=$L/edited2 bs=1M seek=10 conv=notrunc status=none
tar cf $L/small.tar -C $L small
cd $H/repo
git init -q
git config gc.auto 0
git add .
git -c user.name=a -c user.email=a@b commit -qm one
git gc -q
git status -s
cp .git/index $L
git clone -q --bare --no-hardlinks . $L/origin";

/// Makes those at the home and those here, and answers how many entries the large tree has.
pub fn make(home: &Path, local: &Path, options: &Options) -> Result<usize> {
    let bytes = options.mib << 20;
    noise_file(&home.join("big"), 1, bytes)?;
    noise_file(&local.join("source"), 2, bytes)?;
    noise_file(&local.join("patch"), 3, 1 << 20)?;
    let many = home.join("many");
    fs::create_dir(&many)?;
    for i in 0..MANY {
        noise_file(&many.join(format!("file{i:04}")), i + 1, MANY_LEN)?;
    }
    let tops = (options.entries * 1000).div_ceil(1 + DIRS * (1 + FILES)).max(1);
    for dir in (0..tops * DIRS).map(|i| format!("tree/t{}/d{:03}", i / DIRS, i % DIRS)) {
        fill(&home.join(dir), FILES)?;
    }
    for dir in 0..40 {
        fill(&local.join(format!("small/d{dir}")), 50)?;
    }
    for dir in 0..100 {
        fill(&home.join(format!("repo/d{dir}")), 50)?;
    }
    fs::create_dir(home.join("ask"))?;
    for name in (0..AMONG).map(asked_name) {
        fs::write(home.join("ask").join(name), "content")?;
    }
    make_program(&local.join("program"), UNITS)?;
    run::output(Command::new("chown").args(["-R", &format!("{0}:{0}", GATEWAY.uid)]).args([home, local]))?;
    Ok(1 + tops * (1 + DIRS * (1 + FILES)))
}

fn fill(dir: &Path, files: usize) -> Result<()> {
    fs::create_dir_all(dir)?;
    for i in 0..files {
        // Contents differ, so that git has as many objects as files.
        fs::write(
            dir.join(format!("file{i:03}.c")),
            format!("int f{i}(void) {{ return {i}; }} // {}\n", dir.display()),
        )?;
    }
    Ok(())
}
