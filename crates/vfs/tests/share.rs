//! A home that is out of reach takes no more of the cache than its share, and nobody of another home stands behind its
//! writers.

mod common;

use common::{Engine, OneHome, UID, World, noise};
use home::testing::Fault;
use home::testing::fault::FaultHome;
use home::{ErrorKind, Name};
use std::sync::Arc;
use std::time::Duration;
use vfs::env::testing::SeededRng;
use vfs::env::{Env, Threads};
use vfs::{Config, Cred, Mode, Mount, Namespace, Oid, Vfs};

const MIB: usize = 1 << 20;
const SOON: Duration = Duration::from_secs(5);

/// `lab`, `den` and `hut`, each a home of its own.
struct Homes(Vec<(&'static str, Arc<FaultHome>)>);

#[async_trait::async_trait]
impl Namespace for Homes {
    fn configured(&self) -> Vec<Name> {
        Vec::new()
    }
    fn permits(&self, name: &Name) -> bool {
        self.0.iter().any(|(known, _)| known.as_bytes() == name.as_bytes())
    }
    async fn resolve(&self, name: &Name) -> home::Result<Mount> {
        let found = self.0.iter().find(|(known, _)| known.as_bytes() == name.as_bytes());
        let (known, home) = found.ok_or(ErrorKind::NotFound)?;
        let one = OneHome { home: home.clone(), protect: vec![], modes: vec![], conflicts: vec![] };
        let mount = one.resolve(&Name::new(b"lab").unwrap()).await?;
        Ok(Mount { account: format!("ann@{known}:22"), ..mount })
    }
}

/// An engine with a cache of 64 MiB for three homes, with their tops.
async fn three_homes() -> (Vec<World>, Arc<Engine>, Vec<Oid>) {
    let names = ["lab", "den", "hut"];
    let worlds: Vec<World> = names.iter().map(|_| World::new(Mode::Wb)).collect();
    let world = &worlds[0];
    let env = Env {
        disk: Arc::new(world.disk.clone()),
        clock: world.clock.clone(),
        rng: Arc::new(SeededRng::new(7)),
        work: Arc::new(Threads),
    };
    let homes = names.into_iter().zip(&worlds).map(|(name, world)| (name, world.fault.clone()));
    let vfs = Vfs::open(Config {
        env,
        store: world.store.clone(),
        namespace: Arc::new(Homes(homes.collect())),
        server_uid: UID,
        server_gid: UID,
        mode: Mode::Wb,
        share: false,
        cache_bytes: 64 << 20,
        spool_from: None,
        batch_bytes: vfs::BATCH_BYTES,
        staleness: world.staleness,
    });
    let engine = Engine { vfs: vfs.await.unwrap(), cred: Cred { uid: UID, gid: UID, groups: vec![] } };
    let mut tops = Vec::new();
    for (name, world) in names.into_iter().zip(&worlds) {
        world.memory.set_space(1 << 40);
        let top = engine.find(&format!("/{name}")).await.unwrap();
        engine.vfs.space(engine.ctx(), top).await.unwrap();
        tops.push(top);
    }
    (worlds, Arc::new(engine), tops)
}

/// So many empty files.
async fn files(engine: &Engine, top: Oid, count: u64) -> Vec<Oid> {
    let mut files = Vec::new();
    for n in 0..count {
        files.push(engine.create(top, &format!("f{n}")).await.unwrap());
    }
    files
}

/// A writer of a MiB for each file, who comes again until it is taken.
fn crowd(engine: &Arc<Engine>, files: Vec<Oid>) -> Vec<tokio::task::JoinHandle<()>> {
    let each = files.into_iter().zip(0..).map(|(file, n)| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let data = noise(MIB, n);
            while let Err(e) = engine.write(file, 0, &data).await {
                assert_eq!(e.kind, ErrorKind::Full);
            }
        })
    });
    each.collect()
}

/// Waits until somebody of the crowd waits and nobody else is taken.
async fn until_full(engine: &Engine) -> u64 {
    let mut before = (0, 0);
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let status = engine.vfs.status();
        let now = (status.dirty_bytes, status.waiting);
        if now == before && now.1 > 0 {
            return status.dirty_bytes / MIB as u64;
        }
        before = now;
    }
}

/// Writes and sends so many MiB, a few at a time: each write is taken soon.
async fn flows(engine: &Engine, file: Oid, from: usize, count: usize, at_once: usize) {
    for n in from..from + count {
        let data = noise(MIB, n as u64);
        let write = engine.write(file, (n * MIB) as u64, &data);
        tokio::time::timeout(SOON, write).await.expect("it does not wait").expect("it is taken");
        if (n + 1) % at_once == 0 {
            let sent = engine.vfs.sync(Some(file.volume), SOON).await;
            assert_eq!(sent.map_err(|unsent| unsent.len()), Ok(()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_home_leaves_room_for_another_ones_writers_and_readers() {
    let (worlds, engine, tops) = three_homes().await;
    let (lab, den, hut) = (tops[0], tops[1], tops[2]);
    let there: Vec<u8> = noise(8 * MIB, 99);
    worlds[1].write("there", &there);
    let (in_lab, in_den) = (files(&engine, lab, 70).await, files(&engine, den, 20).await);
    let first = engine.create(den, "first").await.unwrap();
    let second = engine.create(hut, "second").await.unwrap();

    worlds[0].fault(Fault::Unreachable);
    let lab_writers = crowd(&engine, in_lab);
    let held = until_full(&engine).await;
    assert!(held >= 48, "{held} MiB are unsent");
    flows(&engine, first, 0, 24, 4).await;
    let read = engine.read(engine.find("/den/there").await.unwrap());
    assert!(tokio::time::timeout(2 * SOON, read).await.unwrap().unwrap() == there);
    assert!(engine.vfs.status().waiting > 0, "the dead home's writers still wait");

    worlds[1].fault(Fault::Unreachable);
    let den_writers = crowd(&engine, in_den);
    assert!(until_full(&engine).await > held);
    flows(&engine, second, 0, 8, 1).await;

    // Whoever waits goes on with the homes.
    worlds[..2].iter().for_each(|world| world.fault(Fault::None));
    for writer in lab_writers.into_iter().chain(den_writers) {
        tokio::time::timeout(12 * SOON, writer).await.expect("it goes on").unwrap();
    }
    engine.vfs.sync(None, 4 * SOON).await.unwrap();
    assert_eq!(engine.vfs.status().waiting, 0);
    let expected: Vec<u8> = (0..24).flat_map(|n| noise(MIB, n)).collect();
    assert!(worlds[1].at_home("first").await.unwrap() == expected);
    assert!(worlds[0].at_home("f69").await.unwrap() == noise(MIB, 69));
}
