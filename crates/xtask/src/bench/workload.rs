//! Which calls are measured, and the files that they need.

use super::generator::{CALLS_MAX, Call, DIGITS, Generator, NUMBER, Shape};
use super::report::Figure;
use super::servers::Target;
use crate::nfs::{at, mode};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use oncrpc::msg::Credential;
use oncrpc::nfs3::*;
use std::time::Duration;

/// Files in the directory that is looked at.
pub const FILES: usize = 1000;
/// Directories of the tree.
pub const TREE_DIRS: usize = 2220;
/// Files in each of them.
pub const TREE_FILES: usize = 50;
/// Bytes of the file that is read, and of the one that is written.
pub const HOT_BYTES: u64 = 32 << 20;
const IO_BYTES: u32 = 1 << 20;
const SMALL_BYTES: u32 = 4 << 10;
/// Every bit that ACCESS can be asked for.
const ALL_ACCESS: u32 = 0x3f;

/// Makes the calls of a workload.
type Make = fn(&Target, &Credential) -> Result<Vec<Call>>;

/// Something that is measured.
pub struct Workload {
    /// As it stands in the table.
    pub name: &'static str,
    /// What one unit of the rate is.
    pub unit: &'static str,
    /// Connections and calls in flight.
    pub shape: Shape,
    /// Whether it changes something, so that it depends on when the server syncs.
    changes: bool,
    make: Make,
}

const fn shape(connections: usize, depth: usize) -> Shape {
    Shape { connections, depth }
}

const fn looks(name: &'static str, unit: &'static str, shape: Shape, make: Make) -> Workload {
    Workload { name, unit, shape, changes: false, make }
}

const fn changes(name: &'static str, unit: &'static str, shape: Shape, make: Make) -> Workload {
    Workload { name, unit, shape, changes: true, make }
}

/// All workloads, in the order of the table.
pub const ALL: &[Workload] = &[
    looks("GETATTR", "calls", shape(8, 8), getattr),
    looks("GETATTR, one at a time", "calls", shape(1, 1), getattr),
    looks("LOOKUP", "calls", shape(8, 8), lookup),
    looks("ACCESS", "calls", shape(8, 8), access),
    looks("READDIRPLUS, one directory", "entries", shape(1, 16), readdirplus),
    looks("READDIRPLUS, whole tree", "entries", shape(1, 16), walk),
    looks("READ 1 MiB, hot", "MiB", shape(1, 8), read),
    looks("READ 4 KiB, hot", "calls", shape(8, 8), read_small),
    changes("WRITE 1 MiB, unstable", "MiB", shape(1, 8), write),
    changes("CREATE", "calls", shape(4, 8), create),
    changes("CREATE, one at a time", "calls", shape(1, 1), create),
];

/// Calls that are ready to be sent to one server.
pub struct Ready {
    calls: Vec<Call>,
    generator: std::cell::RefCell<Generator>,
}

impl Workload {
    /// Makes its calls for a server, and the connections.
    pub fn prepare(&self, target: &Target) -> Result<Ready> {
        let cred = Credential::sys(target.uid, target.uid, &[]);
        let calls =
            (self.make)(target, &cred).with_context(|| format!("{} for {}", self.name, target.name))?;
        ensure!(!calls.is_empty() && calls.len() <= CALLS_MAX);
        let mut port = target.next_port.borrow_mut();
        let generator = Generator::connect(target.addr, self.shape.connections, &mut port)?.into();
        Ok(Ready { calls, generator })
    }

    /// Whether a server is not asked: one that differs from another only in when it syncs.
    pub fn skips(&self, target: &Target) -> bool {
        target.for_changes_only && !self.changes
    }

    /// One run.
    pub fn measure(&self, target: &Target, ready: &Ready, run: usize, time: Duration) -> Result<Figure> {
        let mut generator = ready.generator.borrow_mut();
        if run == 0 {
            // Warms both sides; its figures do not count.
            generator.run(&ready.calls, self.shape.depth, 1, time / 4)?;
        }
        let cpu = target.cpu()?;
        let count = generator.run(&ready.calls, self.shape.depth, run as u64 + 1, time)?;
        Ok(Figure {
            rate: count.units as f64 / count.time.as_secs_f64(),
            cpu: (target.cpu()? - cpu).div_f64(count.units.max(1) as f64),
        })
    }
}

/// Lists the whole tree; answers how many entries it has.
pub fn walk_once(target: &Target) -> Result<u64> {
    let dirs = target.client.list(&target.tree)?;
    let mut entries = dirs.len();
    for dir in dirs.iter().filter_map(|e| e.name_handle) {
        entries += target.client.list(&dir)?.len();
    }
    Ok(entries as u64)
}

/// Files of the whole tree, so that none is found in a small table.
fn files(target: &Target) -> Result<Vec<NfsFh3>> {
    let dirs = target.client.list(&target.tree)?;
    let dirs: Vec<_> = dirs.iter().filter_map(|e| e.name_handle).collect();
    let mut files = Vec::new();
    for dir in dirs.iter().step_by(TREE_DIRS * TREE_FILES / CALLS_MAX) {
        files.extend(target.client.list(dir)?.iter().filter_map(|e| e.name_handle));
    }
    files.truncate(CALLS_MAX);
    Ok(files)
}

fn getattr(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    let call = |object| Call::new(procs::GETATTR, &GetattrArgs { object }, cred, 1);
    Ok(files(target)?.into_iter().map(call).collect())
}

fn access(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    let call = |object| Call::new(procs::ACCESS, &AccessArgs { object, access: ALL_ACCESS }, cred, 1);
    Ok(files(target)?.into_iter().map(call).collect())
}

fn lookup(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    let names = (0..FILES).map(|i| at(&target.many, file_name(i)));
    Ok(names.map(|args| Call::new(procs::LOOKUP, &args, cred, 1)).collect())
}

fn readdirplus(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    pages(target, cred, target.many)
}

fn walk(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    let dirs = target.client.list(&target.tree)?;
    let dirs = dirs.iter().filter_map(|e| e.name_handle);
    Ok(dirs.map(|dir| pages(target, cred, dir)).collect::<Result<Vec<_>>>()?.concat())
}

/// READDIRPLUS from every place at which a client would go on.
fn pages(target: &Target, cred: &Credential, dir: NfsFh3) -> Result<Vec<Call>> {
    let (mut calls, mut cookie, mut cookieverf) = (Vec::new(), 0, [0; COOKIEVERFSIZE]);
    loop {
        let args = ReaddirplusArgs { dir, cookie, cookieverf, dircount: 16 << 10, maxcount: 64 << 10 };
        let ok: ReaddirplusOk = target.client.call::<_, _, PostOpAttr>(procs::READDIRPLUS, &args)?;
        calls.push(Call::new(procs::READDIRPLUS, &args, cred, ok.entries.0.len() as u64));
        if ok.eof {
            return Ok(calls);
        }
        cookie = ok.entries.0.last().context("neither entries nor the end")?.cookie;
        cookieverf = ok.cookieverf;
    }
}

fn read(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    reads(target, cred, IO_BYTES)
}

fn read_small(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    let mut calls = reads(target, cred, SMALL_BYTES)?;
    // 2531 has no factor in common with the number of calls: neighbours in time are none in the file.
    calls = (0..calls.len()).map(|i| calls[i * 2531 % calls.len()].clone()).collect();
    calls.truncate(CALLS_MAX);
    Ok(calls)
}

fn reads(target: &Target, cred: &Credential, count: u32) -> Result<Vec<Call>> {
    let file = target.client.lookup(&target.dir, "hot")?;
    for offset in (0..HOT_BYTES).step_by(IO_BYTES as usize) {
        let (data, _) = target.client.read(&file, offset, IO_BYTES)?;
        ensure!(data.len() == IO_BYTES as usize, "READ gives {} bytes at once", data.len());
    }
    let args = (0..HOT_BYTES).step_by(count as usize).map(|offset| ReadArgs { file, offset, count });
    Ok(args.map(|args| Call::new(procs::READ, &args, cred, 1)).collect())
}

/// Overwrites a file and commits it each time when its end is reached.
fn write(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    let file = target.client.create(&target.dir, "written")?;
    let data = Bytes::from(vec![7; IO_BYTES as usize]);
    let args = (0..HOT_BYTES).step_by(IO_BYTES as usize).map(|offset| WriteArgs {
        file,
        offset,
        count: IO_BYTES,
        stable: StableHow::Unstable,
        data: data.clone(),
    });
    let mut calls: Vec<_> = args.map(|args| Call::new(procs::WRITE, &args, cred, 1)).collect();
    calls.push(Call::new(procs::COMMIT, &CommitArgs { file, offset: 0, count: 0 }, cred, 0));
    Ok(calls)
}

fn create(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    assert_eq!(NUMBER.len(), DIGITS);
    let dir = target.client.mkdir(&target.dir, format!("created{}", target.next_port.borrow()))?;
    let args = CreateArgs { at: at(&dir, format!("new{NUMBER}")), how: CreateHow3::Guarded(mode(0o644)) };
    Ok(vec![Call::new(procs::CREATE, &args, cred, 1)])
}

/// The name of a file in the directory that is looked at.
pub fn file_name(i: usize) -> String {
    format!("file{i:05}")
}
