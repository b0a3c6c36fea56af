//! A home whose local state is damaged holds back nobody else.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{Engine, UID};
use home::memory::MemoryHome;
use home::testing::{Fault, FaultHome};
use home::{ErrorKind, Home, HomePath, Loc, Name};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use vfs::env::Disk;
use vfs::env::testing::{SimDisk, env};
use vfs::store::MemStore;
use vfs::{Config, Cred, Mode, Mount, MountOptions, Namespace, Start, Unsent, Vfs};

/// Hosts `a` and `b`; `a` may be gone from ssh's configuration.
#[derive(Clone)]
struct TwoHomes {
    ways: [Arc<FaultHome>; 2],
    knows_a: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl Namespace for TwoHomes {
    fn configured(&self) -> Vec<Name> {
        Vec::new()
    }
    async fn resolve(&self, name: &Name) -> home::Result<Mount> {
        let home = match name.as_bytes() {
            b"a" if self.knows_a.load(SeqCst) => &self.ways[0],
            b"b" => &self.ways[1],
            _ => return Err(ErrorKind::NotFound.into()),
        };
        let options = MountOptions::default();
        let account = format!("ann@{name}:22");
        Ok(Mount { account, home: home.clone(), start: Start::Root, options })
    }
}

/// A state directory, and the two homes.
struct Lab {
    disk: SimDisk,
    store: Arc<MemStore>,
    homes: [MemoryHome; 2],
    hosts: TwoHomes,
}

fn ways(homes: &[MemoryHome; 2]) -> [Arc<FaultHome>; 2] {
    homes.each_ref().map(|home| Arc::new(FaultHome::new(Arc::new(home.clone()))))
}

impl Lab {
    fn new() -> Lab {
        let homes = [MemoryHome::new(), MemoryHome::new()];
        let hosts = TwoHomes { ways: ways(&homes), knows_a: Arc::new(AtomicBool::new(true)) };
        Lab { disk: SimDisk::new(), store: Arc::new(MemStore::new()), homes, hosts }
    }

    async fn start(&mut self, seed: u64) -> Engine {
        self.hosts.ways = ways(&self.homes);
        let config = Config {
            env: env(&self.disk, seed),
            store: self.store.clone(),
            namespace: Arc::new(self.hosts.clone()),
            server_uid: UID,
            server_gid: UID,
            mode: Mode::Wb,
            share: false,
            cache_bytes: 1 << 30,
            spool_from: None,
            batch_bytes: vfs::BATCH_BYTES,
            staleness: Duration::ZERO,
        };
        let vfs = Vfs::open(config).await.unwrap();
        Engine { vfs, cred: Cred { uid: UID, gid: UID, groups: vec![] } }
    }
}

/// What is told of changes that cannot be sent, because their volume could not be opened; nobody says that all is at home.
async fn kept_back(e: &Engine, says: &str) -> Unsent {
    let unsent = e.vfs.sync(None, Duration::from_secs(5)).await.unwrap_err();
    assert_eq!((unsent.len(), unsent[0].account.as_str(), unsent[0].may_pass), (1, "ann@a:22", false));
    assert!(unsent[0].why.contains(says), "{unsent:?}");
    let barrier = e.read(e.find("/.trellis/sync/1").await.unwrap()).await.unwrap_err();
    assert!(barrier.kind == ErrorKind::Io && barrier.detail.contains(says), "{barrier}");
    let unreached = e.vfs.status().unreached;
    assert!(unreached.iter().any(|(names, why)| names[0].as_bytes() == b"a" && why.detail.contains(says)));
    unsent.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_damaged_journal_keeps_no_other_home_from_being_served() {
    let mut lab = Lab::new();
    let e = lab.start(1).await;
    let (a, b) = (e.find("/a").await.unwrap(), e.find("/b").await.unwrap());
    for dir in [a, b] {
        for name in ["1", "2", "3"] {
            e.create(dir, name).await.unwrap();
            e.sync().await;
        }
    }
    lab.disk.kill();
    drop(e);
    // A promised record: others vouch for it.
    lab.disk.flip_bit(&format!("journal/{:08x}/0000000000000001.log", a.volume), 100);
    let e = lab.start(2).await;
    assert_eq!(e.names(e.find("/b").await.unwrap()).await, ["1", "2", "3"]);
    let refused = e.find("/a").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Io);
    assert!(refused.detail.contains("damaged"), "{refused}");
    kept_back(&e, "damaged").await;
}

/// Bytes in the cache that the home does not have yet: what cannot be read keeps nothing else, and is no refusal of the home.
#[tokio::test]
async fn unsent_bytes_that_are_damaged_are_told_as_damage_here() {
    let mut lab = Lab::new();
    let e = lab.start(1).await;
    let a = e.find("/a").await.unwrap();
    e.names(a).await;
    lab.hosts.ways[0].set(Fault::Unreachable);
    let long = e.create(a, "long").await.unwrap();
    e.write(long, 0, &vec![7; 1 << 20]).await.unwrap();
    let short = e.create(a, "short").await.unwrap();
    e.write(short, 0, b"whole").await.unwrap();
    let data = format!("data/{:08x}", a.volume);
    for segment in lab.disk.list(&data).unwrap() {
        lab.disk.flip_bit(&format!("{data}/{segment}"), 1 << 19);
    }
    lab.hosts.ways[0].set(Fault::None);
    let unsent = e.vfs.sync(None, Duration::from_secs(5)).await.unwrap_err();
    assert_eq!((unsent.len(), unsent[0].account.as_str()), (1, "ann@a:22"));
    assert_eq!(unsent[0].why, "damage here keeps back: write to /long (bytes are damaged)");
    let parked = e.vfs.status().volumes.into_iter().find(|v| v.volume == a.volume).unwrap().parked;
    assert!(parked.len() == 1 && parked[0].is_damaged(), "{parked:?}");
    let at = Loc { path: HomePath::parse(b"short").unwrap(), id: None };
    assert_eq!(Home::read(&lab.homes[0], &at, 0, 9).await.unwrap().data, "whole");
}

#[tokio::test]
async fn what_is_unsent_for_a_name_that_leads_nowhere_is_not_called_sent() {
    let mut lab = Lab::new();
    let e = lab.start(1).await;
    let (a, b) = (e.find("/a").await.unwrap(), e.find("/b").await.unwrap());
    e.create(b, "sent").await.unwrap();
    e.sync().await;
    assert_eq!(e.names(a).await, Vec::<String>::new());
    lab.hosts.ways[0].set(Fault::Unreachable);
    e.create(a, "late").await.unwrap();
    lab.disk.kill();
    drop(e);
    lab.hosts.knows_a.store(false, SeqCst);
    let e = lab.start(2).await;
    assert_eq!(kept_back(&e, "no name leads to ann@a:22 any more").await.ops, 1);
    // Who asks again after it was mended is not told to wait.
    lab.hosts.knows_a.store(true, SeqCst);
    e.sync().await;
    assert_eq!(e.names(e.find("/a").await.unwrap()).await, ["late"]);
    assert_eq!(e.vfs.status().unreached.len(), 0);
    // What has nothing unsent holds nobody back.
    e.vfs.close(None).await;
    drop(e);
    lab.hosts.knows_a.store(false, SeqCst);
    lab.start(3).await.sync().await;
}
