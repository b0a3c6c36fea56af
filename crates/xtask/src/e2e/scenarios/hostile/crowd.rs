//! More of everything than anybody needs: hosts, connections, records that do not end.

use super::wire;
use crate::e2e::accounts::GATEWAY;
use crate::e2e::proc;
use crate::e2e::server::Server;
use crate::nfs::Client;
use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Names of hosts that are looked up at once.
const HOSTS: usize = 28;
/// Processes that may run for them: those that ask ssh's configuration, and the burst of logins.
const PROCESSES: usize = 8 + 10 + 2;
/// Connections of users who are not root, and of a client that has gone mad.
const CONNECTIONS: usize = 150;
/// Memory that all of that may take, in KiB; the program itself takes some 30 MiB.
const MEMORY: u64 = 200 << 10;

/// Many unknown hosts at once: a bounded number of processes, and nobody else waits.
pub fn unknown_hosts(server: &Server) -> Result<()> {
    let (addr, done) = (server.addr, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let lookups: Vec<_> = (0..HOSTS).map(|i| scope.spawn(move || look_up(addr, i))).collect();
        let watch = scope.spawn(|| most_processes(server, &done));
        let client = Client::connect(addr, GATEWAY.uid)?;
        let root = client.mount("/")?;
        for _ in 0..100 {
            let began = Instant::now();
            client.list(&root)?;
            ensure!(began.elapsed() < Duration::from_secs(1), "READDIR of the root waits for unknown hosts");
        }
        let answers: Vec<_> = lookups.into_iter().map(|l| l.join()).collect();
        done.store(true, Relaxed);
        let most = watch.join().ok().context("the watch panicked")?;
        ensure!(
            answers.iter().all(|a| matches!(a, Ok(true))),
            "an unknown host was found, or a lookup failed"
        );
        ensure!(most <= PROCESSES, "{most} processes ran for {HOSTS} unknown hosts");
        Ok(())
    })
}

/// Whether the host was not found, or not reached in time.
fn look_up(server: SocketAddr, i: usize) -> bool {
    let answer = || {
        let client = Client::connect(server, GATEWAY.uid)?;
        client.lookup(&client.mount("/")?, format!("ann@none{i}.invalid"))
    };
    crate::nfs::status_of(&answer()).is_some_and(|s| s != oncrpc::nfs3::NfsStat3::Ok)
}

fn most_processes(server: &Server, done: &AtomicBool) -> usize {
    let Some(pid) = Pid::from_raw(server.pid()) else { return usize::MAX };
    let mut most = 0;
    while !done.load(Relaxed) {
        most = most.max(proc::family(pid).len() - 1);
        std::thread::sleep(Duration::from_millis(2));
    }
    most
}

/// Connections that begin a record and never end it, from ports of any user and from those of a kernel.
pub fn half_records(server: &Server) -> Result<()> {
    let begun = (0x8000_0000u32 | 1 << 20).to_be_bytes();
    let mut open: Vec<TcpStream> = Vec::new();
    for i in 0..CONNECTIONS {
        match i % 2 {
            0 => open.extend(TcpStream::connect(server.addr).map(|s| wire::begin(s, &begun))?),
            _ => open.push(wire::send(server.addr, &begun)?),
        }
    }
    let client = Client::connect(server.addr, GATEWAY.uid)?;
    client.list(&client.mount("/")?)?;
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let used: u64 = line.trim().trim_end_matches(" kB").parse()?;
    ensure!(used < MEMORY, "{used} KiB for {} connections", open.len());
    Ok(())
}
