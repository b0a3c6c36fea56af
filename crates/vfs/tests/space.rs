//! What a home has no room for is refused when it is written, as long as the home can be asked.

mod common;

use common::{Engine, World};
use home::ErrorKind;
use home::testing::Fault;
use std::time::Duration;
use vfs::{CreateHow, Mode, Oid, RenameHow, SetAttrs};

const MIB: u64 = 1 << 20;

/// A world whose home has told that so much is free, with an empty file.
async fn with_space(bytes: u64) -> (World, Engine, Oid, Oid) {
    let world = World::new(Mode::Wb);
    world.memory.set_space(bytes);
    let engine = world.start().await;
    let lab = engine.lab().await;
    let file = engine.create(lab, "file").await.unwrap();
    engine.vfs.space(engine.ctx(), lab).await.unwrap();
    (world, engine, lab, file)
}

fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8 + 1).collect()
}

/// Writes a file from `from` on in parts until one fails; answers its length then.
async fn fill(engine: &Engine, file: Oid, from: u64) -> (u64, ErrorKind) {
    let mut at = from;
    loop {
        match engine.write(file, at, &bytes(100_000)).await {
            Ok(()) => at += 100_000,
            Err(e) => return (at, e.kind),
        }
    }
}

#[tokio::test]
async fn a_full_home_refuses_a_write_at_once_and_takes_all_that_fits() {
    let (world, engine, _, file) = with_space(MIB).await;
    assert_eq!(fill(&engine, file, 0).await, (1_000_000, ErrorKind::NoSpace));
    engine.sync().await;
    let status = engine.vfs.status().volumes.remove(0);
    assert!(status.parked.is_empty() && status.unsent_ops == 0, "{status:?}");
    assert_eq!(world.at_home("file").await.unwrap().len(), 1_000_000);
    // Somebody makes room.
    world.memory.set_space(2 * MIB);
    engine.write(file, 1_000_000, &bytes(100_000)).await.unwrap();
}

#[tokio::test]
async fn what_takes_no_room_is_not_refused_and_what_makes_it_goes_first() {
    let (_world, engine, lab, file) = with_space(MIB).await;
    let (len, _) = fill(&engine, file, 0).await;
    engine.write(file, 0, &bytes(100_000)).await.unwrap();
    let other = engine.create(lab, "other").await.unwrap();
    let refused = engine.write(other, 0, &bytes(len)).await.map_err(|e| e.kind);
    assert_eq!(refused, Err(ErrorKind::NoSpace));
    engine.vfs.remove(engine.ctx(), lab, b"file").await.unwrap();
    engine.write(other, 0, &bytes(len)).await.unwrap();
    engine.sync().await;
}

#[tokio::test]
async fn many_writers_do_not_count_on_the_same_room() {
    let (_world, engine, lab, _) = with_space(MIB).await;
    let mut files = Vec::new();
    for n in 0..8 {
        files.push(engine.create(lab, &format!("f{n}")).await.unwrap());
    }
    let filled = files.iter().map(|file| fill(&engine, *file, 0));
    let filled = futures_util::future::join_all(filled).await;
    assert!(filled.iter().all(|(_, why)| *why == ErrorKind::NoSpace), "{filled:?}");
    assert_eq!(filled.iter().map(|(len, _)| len).sum::<u64>(), 1_000_000, "{filled:?}");
    engine.sync().await;
}

#[tokio::test]
async fn a_home_that_cannot_be_asked_refuses_nothing() {
    let (world, engine, _, file) = with_space(MIB).await;
    world.fault(Fault::Unreachable);
    engine.write(file, 0, &bytes(MIB)).await.unwrap();
    engine.write(file, MIB, &bytes(MIB)).await.unwrap();
    world.memory.set_space(4 * MIB);
    world.fault(Fault::None);
    engine.sync().await;
    assert_eq!(world.at_home("file").await.unwrap().len() as u64, 2 * MIB);
}

#[tokio::test]
async fn who_writes_where_there_is_ample_room_neither_waits_nor_asks() {
    let (world, engine, _, file) = with_space(1 << 40).await;
    let before = world.memory.counters().statfs;
    for n in 0..64 {
        engine.write(file, n * 1000, &bytes(1000)).await.unwrap();
    }
    assert_eq!(world.memory.counters().statfs, before);
}

#[tokio::test]
async fn what_is_written_before_the_home_has_told_its_space_is_bounded() {
    let world = World::new(Mode::Wb);
    let engine = world.start().await;
    let lab = engine.lab().await;
    world.memory.set_space(1);
    world.fault(Fault::Delay(Duration::from_millis(200)));
    let file = engine.create(lab, "file").await.unwrap();
    let mut taken = 0;
    while engine.write(file, taken * 100_000, &bytes(100_000)).await.is_ok() {
        taken += 1;
        assert!(taken <= 10);
    }
    let set = SetAttrs::default();
    let made = engine.vfs.create(engine.ctx(), lab, b"empty", CreateHow::Guarded, set).await;
    assert!(made.is_ok(), "an empty file needs an inode alone");
}

#[tokio::test]
async fn nobody_waits_for_what_is_on_its_way_where_the_home_has_just_told_enough() {
    let world = World::new(Mode::Wb);
    let engine = world.start().await;
    let file = engine.create(engine.lab().await, "file").await.unwrap();
    world.fault(Fault::HangChanges);
    for n in 0..8 {
        engine.write(file, n * MIB, &bytes(MIB)).await.unwrap();
    }
}

#[tokio::test]
async fn what_waits_for_a_refused_change_keeps_nobody_waiting() {
    let (world, engine, lab, file) = with_space(MIB).await;
    engine.sync().await;
    world.fault(Fault::Unreachable);
    engine.write(file, 0, &bytes(MIB)).await.unwrap();
    engine.write(file, MIB, &bytes(MIB)).await.unwrap();
    engine.vfs.rename(engine.ctx(), lab, b"file", lab, b"renamed", RenameHow::Replace).await.unwrap();
    world.fault(Fault::None);
    engine.vfs.sync(None, Duration::from_secs(20)).await.unwrap_err();
    assert!(!engine.vfs.status().volumes[0].parked.is_empty());
    let filled = async {
        let other = engine.create(lab, "other").await.unwrap();
        fill(&engine, other, 0).await
    };
    let filled = tokio::time::timeout(Duration::from_secs(8), filled).await;
    assert_eq!(filled, Ok((1_000_000, ErrorKind::NoSpace)));
}
