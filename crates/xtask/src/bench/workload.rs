//! Which calls are measured, and the files that they need.

use super::generator::{CALLS_MAX, Call, DIGITS, Generator, NUMBER, Shape};
use super::report::Figure;
use super::servers::Target;
use crate::nfs::{at, mode};
use anyhow::{Context, Result, ensure};
use oncrpc::msg::Credential;
use oncrpc::nfs3::*;
use std::time::Duration;

/// Files in the directory that is looked at.
pub const FILES: usize = 1000;
/// Bytes of the file that is read.
pub const HOT_BYTES: u64 = 32 << 20;
const READ_BYTES: u32 = 1 << 20;

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

/// All workloads, in the order of the table.
pub const ALL: &[Workload] = &[
    Workload { name: "GETATTR", unit: "calls", shape: shape(8, 8), changes: false, make: getattr },
    Workload {
        name: "GETATTR, one at a time",
        unit: "calls",
        shape: shape(1, 1),
        changes: false,
        make: getattr,
    },
    Workload { name: "LOOKUP", unit: "calls", shape: shape(8, 8), changes: false, make: lookup },
    Workload { name: "READDIRPLUS", unit: "entries", shape: shape(1, 16), changes: false, make: readdirplus },
    Workload { name: "READ 1 MiB, hot", unit: "MiB", shape: shape(1, 8), changes: false, make: read },
    Workload { name: "CREATE", unit: "calls", shape: shape(4, 8), changes: true, make: create },
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

fn getattr(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    let files = target.client.list(&target.many)?;
    let handles = files.iter().filter_map(|e| e.name_handle);
    Ok(handles.map(|object| Call::new(procs::GETATTR, &GetattrArgs { object }, cred, 1)).collect())
}

fn lookup(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    let names = (0..FILES).map(|i| at(&target.many, file_name(i)));
    Ok(names.map(|args| Call::new(procs::LOOKUP, &args, cred, 1)).collect())
}

/// READDIRPLUS from every place at which a client would go on.
fn readdirplus(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    let (mut calls, mut cookie, mut cookieverf) = (Vec::new(), 0, [0; COOKIEVERFSIZE]);
    loop {
        let args =
            ReaddirplusArgs { dir: target.many, cookie, cookieverf, dircount: 16 << 10, maxcount: 64 << 10 };
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
    let file = target.client.lookup(&target.dir, "hot")?;
    let offsets = (0..HOT_BYTES).step_by(READ_BYTES as usize);
    for offset in offsets.clone() {
        let (data, _) = target.client.read(&file, offset, READ_BYTES)?;
        ensure!(data.len() == READ_BYTES as usize, "READ gives {} bytes at once", data.len());
    }
    let args = offsets.map(|offset| ReadArgs { file, offset, count: READ_BYTES });
    Ok(args.map(|args| Call::new(procs::READ, &args, cred, 1)).collect())
}

fn create(target: &Target, cred: &Credential) -> Result<Vec<Call>> {
    assert_eq!(NUMBER.len(), DIGITS);
    let dir = target.client.mkdir(&target.dir, "created")?;
    let args = CreateArgs { at: at(&dir, format!("new{NUMBER}")), how: CreateHow3::Guarded(mode(0o644)) };
    Ok(vec![Call::new(procs::CREATE, &args, cred, 1)])
}

/// The name of a file in the directory that is looked at.
pub fn file_name(i: usize) -> String {
    format!("file{i:05}")
}
