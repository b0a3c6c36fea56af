//! A home whose local state is damaged holds back nobody else.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{Engine, UID};
use home::memory::MemoryHome;
use home::{ErrorKind, Name};
use std::sync::Arc;
use std::time::Duration;
use vfs::env::testing::{SimDisk, env};
use vfs::store::MemStore;
use vfs::{Config, Cred, Mode, Mount, MountOptions, Namespace, Start, Vfs};

/// Hosts `a` and `b`.
struct TwoHomes([MemoryHome; 2]);

#[async_trait::async_trait]
impl Namespace for TwoHomes {
    fn configured(&self) -> Vec<Name> {
        Vec::new()
    }
    async fn resolve(&self, name: &Name) -> home::Result<Mount> {
        let home = match name.as_bytes() {
            b"a" => &self.0[0],
            b"b" => &self.0[1],
            _ => return Err(ErrorKind::NotFound.into()),
        };
        let options = MountOptions::default();
        let account = format!("ann@{name}:22");
        Ok(Mount { account, home: Arc::new(home.clone()), start: Start::Root, options })
    }
}

#[tokio::test]
async fn a_damaged_journal_keeps_no_other_home_from_being_served() {
    let (disk, store) = (SimDisk::new(), Arc::new(MemStore::new()));
    let homes = [MemoryHome::new(), MemoryHome::new()];
    let start = async |seed| {
        let config = Config {
            env: env(&disk, seed),
            store: store.clone(),
            namespace: Arc::new(TwoHomes(homes.clone())),
            server_uid: UID,
            server_gid: UID,
            mode: Mode::Wb,
            share: false,
            cache_bytes: 1 << 30,
            spool_from: None,
            staleness: Duration::ZERO,
        };
        let vfs = Vfs::open(config).await.unwrap();
        Engine { vfs, cred: Cred { uid: UID, gid: UID, groups: vec![] } }
    };
    let e = start(1).await;
    let (a, b) = (e.find("/a").await.unwrap(), e.find("/b").await.unwrap());
    for dir in [a, b] {
        for name in ["1", "2", "3"] {
            e.create(dir, name).await.unwrap();
            e.sync().await;
        }
    }
    disk.kill();
    drop(e);
    // A promised record: others vouch for it.
    disk.flip_bit(&format!("journal/{:08x}/0000000000000001.log", a.volume), 100);
    let e = start(2).await;
    assert_eq!(e.names(e.find("/b").await.unwrap()).await, ["1", "2", "3"]);
    let refused = e.find("/a").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Io);
    assert!(refused.detail.contains("damaged"), "{refused}");
    let unreached = e.vfs.status().unreached;
    assert!(unreached.iter().any(|(names, _)| names[0].as_bytes() == b"a"), "{unreached:?}");
}
