//! Source trees for scenarios, and comparing what arrived with what was sent.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A fixed sequence of bytes without pattern, so that misplaced blocks show.
pub struct Noise(u64);

impl Noise {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn word(&mut self) -> u64 {
        // xorshift64 (Marsaglia 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.word().to_le_bytes());
        words.take(len).collect()
    }
}

/// Writes `len` bytes of noise to a new file.
pub fn noise_file(path: &Path, seed: u64, len: u64) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut noise = Noise::new(seed);
    let mut left = len;
    while left > 0 {
        let part = left.min(1 << 20);
        out.write_all(&noise.bytes(part as usize))?;
        left -= part;
    }
    Ok(out.flush()?)
}

/// A tree of `files` files in folders of 50: sizes from 0 to some 40 KiB, several modes, symbolic links,
/// and times with nanoseconds.
pub fn make_source(root: &Path, files: usize) -> Result<()> {
    let mut noise = Noise::new(files as u64);
    for i in 0..files {
        let dir = root.join(format!("d{:02}/e{}", i / 250, i / 50));
        fs::create_dir_all(&dir)?;
        let file = dir.join(format!("file {i}.dat"));
        let len = if i % 10 == 0 { i * 20 } else { i % 700 };
        fs::write(&file, noise.bytes(len))?;
        fs::set_permissions(&file, fs::Permissions::from_mode([0o644, 0o755, 0o600, 0o444][i % 4]))?;
        if i % 40 == 0 {
            symlink(format!("../missing/{i}"), dir.join(format!("link {i}")))?;
        }
    }
    Ok(())
}

/// A C program in `units` files with a Makefile and a CMakeLists.txt; it prints the sum of what its units
/// return, which is `units * (units - 1) / 2`.
pub fn make_program(root: &Path, units: usize) -> Result<()> {
    fs::create_dir_all(root.join("include"))?;
    let names: Vec<_> = (0..units).map(|i| format!("unit{i}")).collect();
    let declared: String = names.iter().map(|n| format!("int {n}(void);\n")).collect();
    fs::write(root.join("include/units.h"), format!("#pragma once\n{declared}"))?;
    for (i, name) in names.iter().enumerate() {
        let text =
            format!("#include \"units.h\"\n#include <stdlib.h>\nint {name}(void) {{ return abs(-{i}); }}\n");
        fs::write(root.join(format!("{name}.c")), text)?;
    }
    let calls: Vec<_> = names.iter().map(|n| format!("{n}()")).collect();
    let main = format!(
        "#include \"units.h\"\n#include <stdio.h>\nint main(void) {{ printf(\"%d\\n\", {}); return 0; }}\n",
        calls.join(" + ")
    );
    fs::write(root.join("main.c"), main)?;
    // Absolute target names, because they are what breaks below a name with a colon.
    let makefile = "TOP := $(CURDIR)\nOBJS := $(patsubst %.c,$(TOP)/%.o,$(wildcard *.c))\n\
         $(TOP)/prog: $(OBJS)\n\t$(CC) -o $@ $^\n$(TOP)/%.o: $(TOP)/%.c include/units.h\n\t$(CC) -Iinclude -c -o $@ $<\n";
    fs::write(root.join("Makefile"), makefile)?;
    let cmake = "cmake_minimum_required(VERSION 3.10)\nproject(prog C)\nfile(GLOB S *.c)\nadd_executable(prog ${S})\n\
         target_include_directories(prog PRIVATE include)\n";
    fs::write(root.join("CMakeLists.txt"), cmake)?;
    Ok(())
}

/// How exactly times must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// To the nanosecond.
    Exact,
    /// To the second, as SFTP has them.
    Seconds,
}

/// What is compared of an object.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    kind: &'static str,
    mode: u32,
    size: u64,
    links: u64,
    time: (i64, i64),
    target: Option<PathBuf>,
}

/// An error that names the first differences, unless both trees hold the same names, kinds, bytes, modes,
/// link counts of files, link targets, and times of files.
pub fn compare(sent: &Path, arrived: &Path, times: Times) -> Result<()> {
    let (a, b) = (facts(sent, times)?, facts(arrived, times)?);
    let mut wrong = Vec::new();
    for (name, fact) in &a {
        match b.get(name) {
            None => wrong.push(format!("{}: did not arrive", name.display())),
            Some(other) if other != fact => {
                wrong.push(format!("{}: sent {fact:?}, arrived {other:?}", name.display()));
            }
            Some(_) if fact.kind == "file" && !same_bytes(&sent.join(name), &arrived.join(name))? => {
                wrong.push(format!("{}: other bytes", name.display()));
            }
            Some(_) => {}
        }
    }
    wrong.extend(b.keys().filter(|n| !a.contains_key(*n)).map(|n| format!("{}: was not sent", n.display())));
    if !wrong.is_empty() {
        let first = wrong[..wrong.len().min(10)].join("\n  ");
        bail!("{} differs from {} in {} names:\n  {first}", arrived.display(), sent.display(), wrong.len());
    }
    Ok(())
}

fn facts(root: &Path, times: Times) -> Result<BTreeMap<PathBuf, Facts>> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            let meta = fs::symlink_metadata(&path)?;
            let kind = meta.file_type();
            if kind.is_dir() {
                dirs.push(path.clone());
            }
            let file = kind.is_file();
            let facts = Facts {
                kind: if kind.is_dir() { "dir" } else { if file { "file" } else { "other" } },
                mode: if kind.is_symlink() { 0 } else { meta.mode() & 0o7777 },
                size: if kind.is_dir() { 0 } else { meta.len() },
                links: if file { meta.nlink() } else { 1 },
                time: match times {
                    _ if !file => (0, 0),
                    Times::Exact => (meta.mtime(), meta.mtime_nsec()),
                    Times::Seconds => (meta.mtime(), 0),
                },
                target: kind.is_symlink().then(|| fs::read_link(&path)).transpose()?,
            };
            all.insert(path.strip_prefix(root)?.to_path_buf(), facts);
        }
    }
    Ok(all)
}

/// Whether two files hold the same bytes.
pub fn same_bytes(a: &Path, b: &Path) -> Result<bool> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let (n, m) = (fill(&mut a, &mut left)?, fill(&mut b, &mut right)?);
        if left[..n] != right[..m] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

fn fill(file: &mut File, buf: &mut [u8]) -> Result<usize> {
    let mut at = 0;
    while at < buf.len() {
        match file.read(&mut buf[at..])? {
            0 => break,
            n => at += n,
        }
    }
    Ok(at)
}

/// The names in a folder, as bytes, sorted.
pub fn names(dir: &Path) -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        all.push(entry?.file_name().as_bytes().to_vec());
    }
    all.sort();
    Ok(all)
}
