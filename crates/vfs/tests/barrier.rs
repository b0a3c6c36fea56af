//! The barrier as a file: `/.trellis/sync/NAME`.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::World;
use home::ErrorKind;
use home::testing::fault::Fault;
use std::time::Duration;
use vfs::{Cred, Ctx, Mode, Oid};

#[tokio::test]
async fn who_reads_it_finds_everything_at_home() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let file = e.create(lab, "f").await.unwrap();
    e.write(file, 0, b"before").await.unwrap();
    let barrier = e.find("/.trellis/sync/one").await.unwrap();
    assert_eq!(e.read(barrier).await.unwrap(), b"everything is at its home\n");
    assert_eq!(world.at_home("f").await.unwrap(), b"before");
    assert_ne!(barrier, e.find("/.trellis/sync/two").await.unwrap());
    let attr = e.vfs.getattr(e.ctx(), barrier).await.unwrap();
    assert_eq!((attr.size, attr.mode, attr.fileid >> 63), (26, 0o400, 0));
}

#[tokio::test]
async fn it_waits_for_a_home_that_is_away_and_fails_where_waiting_is_of_no_use() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let file = e.create(lab, "f").await.unwrap();
    e.sync().await;
    world.fault(Fault::Hang);
    e.write(file, 0, b"late").await.unwrap();
    let barrier = e.find("/.trellis/sync/x").await.unwrap();
    let early = tokio::time::timeout(Duration::from_secs(1), e.read(barrier)).await;
    assert!(early.is_err(), "answered before the home had it");
    world.fault(Fault::None);
    e.read(barrier).await.unwrap();
    assert_eq!(world.at_home("f").await.unwrap(), b"late");

    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    e.write(file, 0, b"never").await.unwrap();
    assert_eq!(e.read(barrier).await.unwrap_err().kind, ErrorKind::Io);
}

#[tokio::test]
async fn it_is_hidden_read_only_and_for_the_servers_user() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    assert!(!e.names(Oid::ROOT).await.contains(&".trellis".to_owned()));
    let (ours, sync) = (e.find("/.trellis").await.unwrap(), e.find("/.trellis/sync").await.unwrap());
    assert_eq!(e.names(ours).await, ["conflicts", "modes", "sync"]);
    assert!(e.names(sync).await.is_empty());
    assert_eq!(e.vfs.lookup(e.ctx(), sync, b"..").await.unwrap().oid, ours);
    assert_eq!(e.vfs.lookup(e.ctx(), ours, b"..").await.unwrap().oid, Oid::ROOT);
    assert_eq!(e.find("/.trellis/other").await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(e.create(sync, "x").await.unwrap_err().kind, ErrorKind::ReadOnly);
    assert_eq!(e.read(sync).await.unwrap_err().kind, ErrorKind::IsDir);
    let barrier = e.find("/.trellis/sync/x").await.unwrap();
    let stranger = Cred { uid: 1, gid: 1, groups: vec![] };
    let ctx = Ctx::of(&stranger);
    assert_eq!(e.vfs.lookup(ctx, sync, b"x").await.unwrap_err().kind, ErrorKind::Access);
    assert_eq!(e.vfs.read(ctx, barrier, 0, 100).await.unwrap_err().kind, ErrorKind::Access);
    assert_eq!(e.vfs.lookup(e.ctx(), barrier, b"x").await.unwrap_err().kind, ErrorKind::NotDir);
    assert_eq!(e.vfs.readlink(e.ctx(), barrier).await.unwrap_err().kind, ErrorKind::Invalid);
}

/// Whoever waits for the homes and whoever asks how they are hold each other up for a moment at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn sync_and_status_at_the_same_moment() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    e.lab().await;
    let asked = e.vfs.clone();
    let asking = tokio::spawn(async move {
        for _ in 0..20_000 {
            asked.status();
            tokio::task::yield_now().await;
        }
    });
    let waited = e.vfs.clone();
    let waiting = tokio::spawn(async move {
        for _ in 0..20_000 {
            waited.sync(None, Duration::from_secs(10)).await.unwrap();
        }
    });
    let both = async { (asking.await.unwrap(), waiting.await.unwrap()) };
    tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
}
