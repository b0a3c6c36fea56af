//! A home 60 ms away.

use crate::e2e::accounts::ANN;
use crate::e2e::proc::{self, wait_for};
use crate::e2e::server::Server;
use crate::e2e::sshd::Sshd;
use crate::e2e::trees::noise_file;
use crate::e2e::world::World;
use crate::nfs::Client;
use crate::wan_link::{self, link::Link};
use anyhow::{Context, Result, ensure};
use oncrpc::nfs3::{ACCESS3_READ, NfsFh3, StableHow};
use rustix::process::{Pid, Signal};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const RTT: Duration = Duration::from_millis(60);
const ENTRIES: usize = 1000;
/// Bytes of a long write.
const WIDE: u64 = 192 << 20;
/// For processes to be scheduled on a busy machine; the promise itself has no such term.
const SLACK: Duration = Duration::from_millis(500);

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let work = world.home_dir(ANN, "work")?;
    let many = world.home_dir(ANN, "work/many")?;
    for i in 0..ENTRIES {
        world.write_home(ANN, &many.join(format!("file{i:04}")), format!("content {i}").as_bytes())?;
    }
    let sshd = Sshd::start(&world.dir, "far", "")?;
    let relay = wan_link::with_rtt(sshd.addr, RTT)?;
    fs::write(world.known_hosts(), sshd.known_hosts()?)?;
    world.route("far", relay.addr())?;
    let server = world.serve(&[])?;
    let (client, root) = world.client(&server)?;
    let dir = client.walk(&root, &format!("ann@far{}", work.display()))?;
    let many_handle = client.lookup(&dir, "many")?;

    let far = Far { server: &server, client: &client };
    cold_listing(&far, &many_handle)?;
    warm(&far, &many_handle)?;
    changes_at_home(&far, world, &many, &many_handle)?;
    wide_write(&far, world, &dir, &work, relay.link())
}

struct Far<'a> {
    server: &'a Server,
    client: &'a Client,
}

impl Far<'_> {
    /// What `work` cost: round trips as the server counts them, and time.
    fn cost<T>(&self, what: &str, work: impl FnOnce() -> Result<T>) -> Result<(u64, Duration, T)> {
        let before = self.server.round_trips("ann@far")?;
        let began = Instant::now();
        let done = work().with_context(|| what.to_string())?;
        let took = began.elapsed();
        let trips = self.server.round_trips("ann@far")? - before;
        println!("{what}: {trips} round trips, {took:?}");
        Ok((trips, took, done))
    }
}

/// `ls -l` of a directory of which only the path is known.
fn cold_listing(far: &Far<'_>, dir: &NfsFh3) -> Result<()> {
    let (trips, took, entries) = far.cost("cold ls -l of 1,000 entries", || far.client.list(dir))?;
    let files = entries.iter().filter(|e| e.name.starts_with(b"file"));
    ensure!(
        files.filter(|e| e.name_attributes.is_some()).count() == ENTRIES,
        "entries or attributes are missing"
    );
    ensure!(trips <= 2, "{trips} round trips");
    // The clock says the same as the counter.
    ensure!(took < RTT * 2 + SLACK, "it took {took:?}");
    Ok(())
}

/// What was seen a moment ago is answered here.
fn warm(far: &Far<'_>, dir: &NfsFh3) -> Result<()> {
    let names: Vec<_> = (0..50).map(|i| format!("file{:04}", i * 7)).collect();
    let use_all = || {
        for name in &names {
            let file = far.client.lookup(dir, name)?;
            far.client.getattr(&file)?;
            far.client.access(&file, ACCESS3_READ)?;
            let content = far.client.read_all(&file)?;
            ensure!(content.starts_with(b"content "), "{name} holds {content:?}");
        }
        far.client.list(dir)
    };
    far.cost("first use of 50 files", use_all)?;
    // Attributes that the first use left fresh; the listing renews what was about to expire.
    far.cost("again", || {
        far.client.list(dir)?;
        use_all()
    })?;
    let (trips, took, _) = far.cost("warm stat, open, read and ls -l", use_all)?;
    ensure!(trips == 0, "{trips} round trips for what is warm");
    ensure!(took < RTT * 10, "201 warm calls took {took:?}");
    Ok(())
}

/// A change made at the home is seen within the bound that `status` shows, and a round trip.
fn changes_at_home(far: &Far<'_>, world: &World, there: &Path, dir: &NfsFh3) -> Result<()> {
    let bound =
        far.server.home_status("ann@far")?["staleness_s"].as_f64().context("status shows no bound")?;
    ensure!(bound <= 5.0, "the bound is {bound} s by default");
    let limit = Duration::from_secs_f64(bound) + RTT + SLACK;
    let seen = |what: &str, look: &dyn Fn() -> Option<()>| {
        let began = Instant::now();
        wait_for(what, limit, look)?;
        println!("{what} was seen after {:?}", began.elapsed());
        anyhow::Ok(())
    };
    let content = |name: &str| far.client.lookup(dir, name).and_then(|f| far.client.read_all(&f)).ok();
    let exists = |name: &str| far.client.lookup(dir, name).is_ok();
    let listed = |name: &str| far.client.list(dir).is_ok_and(|l| l.iter().any(|e| e.name == name.as_bytes()));

    ensure!(!exists("created") && exists("file0001") && exists("file0002"));
    world.write_home(ANN, &there.join("file0001"), b"edited there")?;
    seen("an edit", &|| (content("file0001")? == b"edited there").then_some(()))?;
    world.write_home(ANN, &there.join("created"), b"new")?;
    seen("a new file", &|| (exists("created") && listed("created")).then_some(()))?;
    fs::rename(there.join("file0002"), there.join("renamed"))?;
    seen("a rename", &|| (!exists("file0002") && exists("renamed")).then_some(()))?;
    fs::remove_file(there.join("file0003"))?;
    seen("a removal", &|| (!exists("file0003") && !listed("file0003")).then_some(()))
}

/// A long write goes over further channels into the one agent, and arrives whole though one of them ends, or all do.
fn wide_write(far: &Far<'_>, world: &World, dir: &NfsFh3, there: &Path, link: &Link) -> Result<()> {
    let agents = || proc::of_user(ANN.uid, |name| name.starts_with("agent-1-"));
    // What was read before may have made some.
    let first = agents().into_iter().min_by_key(|pid| pid.as_raw_nonzero()).context("no agent runs")?;
    let file = far.client.create(dir, "wide")?;
    let further = || agents().into_iter().filter(|pid| *pid != first).collect::<Vec<_>>();
    let written = |seed: u64, harm: &dyn Fn(&[Pid])| {
        let source = world.dir.join(format!("wide{seed}"));
        noise_file(&source, seed, WIDE)?;
        let data = fs::read(&source)?;
        for (i, part) in data.chunks(1 << 20).enumerate() {
            far.client.write(&file, (i << 20) as u64, part, StableHow::Unstable)?;
        }
        far.client.commit(&file)?;
        let pids = wait_for("further channels", Duration::from_secs(10), || {
            Some(further()).filter(|pids| pids.len() >= 2)
        })?;
        harm(&pids);
        far.server.sync()?;
        ensure!(fs::read(there.join("wide"))? == data, "other bytes have arrived");
        anyhow::Ok(())
    };
    written(3, &|pids| proc::signal_all(&pids[..1], Signal::KILL))?;
    ensure!(agents().contains(&first), "the agent was replaced");
    written(5, &|_| link.cut())
}
