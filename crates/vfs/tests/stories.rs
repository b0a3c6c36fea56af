//! What other systems did wrong, one test for each story that no other test tells. docs/SEMANTICS.md has the whole list.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::{Engine, World, in_fast_time};
use home::testing::fault::Fault;
use home::{ErrorKind, Home, HomePath, Loc};
use std::time::{Duration, Instant};
use vfs::{Mode, Oid, RenameHow, Stability};

/// The process is killed and started again.
async fn killed(world: &mut World, e: Engine) -> Engine {
    world.disk.kill();
    drop(e);
    world.reconnect();
    world.start().await
}

async fn unstable(e: &Engine, file: Oid, at: u64, data: Vec<u8>) {
    e.vfs.write(e.ctx(), file, at, data.into(), Stability::Unstable).await.unwrap();
}

/// A file looked saved, its upload failed until retries ran out, and it was gone after a remount.
#[tokio::test]
async fn rclone_4293_a_saved_file_outlives_failures_and_restarts() {
    let mut world = World::new(Mode::Wb);
    let mut e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.fault(Fault::Unreachable);
    let f = e.create(lab, "f").await.unwrap();
    e.write(f, 0, b"saved").await.unwrap();
    for fault in [Fault::Unreachable, Fault::Refuse(ErrorKind::Io), Fault::Unreachable] {
        world.fault(fault);
        let _ = e.vfs.sync(None, Duration::from_millis(300)).await;
        e = killed(&mut world, e).await;
        world.fault(fault);
        assert_eq!(e.read(f).await.unwrap(), b"saved");
        assert!(e.vfs.status().volumes[0].unsent_ops > 0, "given up");
    }
    world.fault(Fault::None);
    e.vfs.retry_refused(None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"saved");
}

/// After a recovery a file that had just been uploaded read empty, and its removal succeeded without removing it.
#[tokio::test]
async fn rclone_9876_what_was_recovered_is_read_whole_and_is_removed() {
    let mut world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.fault(Fault::Unreachable);
    let content: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    let mut files = Vec::new();
    for i in 0..4 {
        files.push(e.create(lab, &format!("f{i}")).await.unwrap());
        e.write(files[i], 0, &content).await.unwrap();
    }
    let e = killed(&mut world, e).await;
    // Some are read while they are on their way, and some when they have arrived.
    assert_eq!(e.read(files[0]).await.unwrap(), content);
    e.sync().await;
    for (i, file) in files.iter().enumerate() {
        assert_eq!(e.read(*file).await.unwrap(), content, "file {i}");
        assert_eq!(e.vfs.getattr(e.ctx(), *file).await.unwrap().size, content.len() as u64);
        e.vfs.remove(e.ctx(), lab, format!("f{i}").as_bytes()).await.unwrap();
    }
    assert_eq!(e.names(lab).await, [""; 0]);
    e.sync().await;
    assert_eq!(world.names_at_home("").await, [""; 0]);
}

/// A remote that was out of reach counted as one without the file, which then read as empty.
#[tokio::test]
async fn rclone_9530_out_of_reach_is_neither_empty_nor_gone() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_millis(1);
    world.write("cached", b"content");
    // Too large to come with it.
    world.write("other", &[7; 100_000]);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    let (cached, other) = (e.find("/lab/cached").await.unwrap(), e.find("/lab/other").await.unwrap());
    assert_eq!(e.read(cached).await.unwrap(), b"content");
    world.fault(Fault::Unreachable);
    tokio::time::sleep(Duration::from_millis(50)).await;
    for _ in 0..3 {
        assert_eq!(e.read(cached).await.unwrap(), b"content");
        let looked = tokio::time::timeout(Duration::from_millis(300), e.read(other)).await;
        assert!(!matches!(&looked, Ok(Ok(_))), "read without its home: {looked:?}");
        assert_eq!(e.names(lab).await, ["cached", "other"]);
    }
    e.sync().await;
    world.fault(Fault::None);
    assert_eq!(world.names_at_home("").await, ["cached", "other"]);
}

/// A start with many unsent files blocked the mount for hours.
#[tokio::test]
async fn rclone_7024_a_start_with_100_000_unsent_changes_is_short() {
    const FILES: u64 = 1000;
    let mut world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.fault(Fault::HangChanges);
    let mut files = Vec::new();
    for i in 0..FILES {
        files.push(e.create(lab, &format!("f{i}")).await.unwrap());
    }
    for at in 0..99 {
        for file in &files {
            unstable(&e, *file, at, vec![at as u8]).await;
        }
    }
    e.vfs.commit(e.ctx(), *files.last().unwrap()).await.unwrap();
    let before = e.vfs.status().volumes[0].unsent_ops;
    assert!(before >= 99 * FILES, "{before}");
    world.disk.kill();
    drop(e);
    world.reconnect();
    world.fault(Fault::HangChanges);
    let began = Instant::now();
    let e = world.start().await;
    let wanted: Vec<u8> = (0..99).collect();
    assert_eq!(e.read(files[7]).await.unwrap(), wanted);
    assert_eq!(e.names(lab).await.len() as u64, FILES);
    e.write(files[7], 99, b"!").await.unwrap();
    let took = began.elapsed();
    assert_eq!(e.vfs.status().volumes[0].unsent_ops, before + 1);
    // An hour's wait was the complaint; an optimised build takes a second.
    assert!(took < Duration::from_secs(60), "{took:?} until the first answers");
}

/// A block that had been staged waited for hours, because others went first.
#[test]
fn juicefs_7558_a_change_is_home_soon_however_many_others_come() {
    in_fast_time(Mode::Wb, |world| async move {
        let e = world.start().await;
        let lab = e.lab().await;
        e.names(lab).await;
        let (one, busy) = (e.create(lab, "one").await.unwrap(), e.create(lab, "busy").await.unwrap());
        e.sync().await;
        world.fault(Fault::Delay(Duration::from_millis(30)));
        e.write(one, 0, b"early").await.unwrap();
        let began = tokio::time::Instant::now();
        let mut others = 0u64;
        while world.at_home("one").await.unwrap() != b"early" {
            // As fast as they are taken, over and over, to another file and to new ones.
            unstable(&e, busy, others % 50 * 4096, vec![others as u8; 4096]).await;
            e.create(lab, &format!("n{others}")).await.unwrap();
            others += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(began.elapsed() < Duration::from_secs(5), "not home after {others} others");
        }
        assert!(others > 10, "nothing else came: {others}");
    });
}

/// The same, for order: what was done first is there first, so that nobody at the home sees a result without its cause.
#[test]
fn juicefs_7558_changes_arrive_in_the_order_in_which_they_were_made() {
    in_fast_time(Mode::Wb, |world| async move {
        let e = world.start().await;
        let lab = e.lab().await;
        e.names(lab).await;
        world.fault(Fault::Delay(Duration::from_millis(20)));
        for i in 0..60 {
            let part = e.create(lab, "part").await.unwrap();
            e.write(part, 0, &vec![i; 70_000]).await.unwrap();
            e.vfs
                .rename(e.ctx(), lab, b"part", lab, format!("f{i:02}").as_bytes(), RenameHow::Replace)
                .await
                .unwrap();
            // Whoever looks at the home finds the first ones, each whole.
            let there = world.names_at_home("").await;
            let whole: Vec<&String> = there.iter().filter(|n| *n != "part").collect();
            for (n, name) in whole.iter().enumerate() {
                assert_eq!(**name, format!("f{n:02}"));
                assert_eq!(world.at_home(name).await.unwrap(), vec![n as u8; 70_000]);
            }
        }
        e.sync().await;
        assert_eq!(world.names_at_home("").await.len(), 60);
    });
}

/// Files that were removed before their upload were uploaded all the same, and stayed there.
#[tokio::test]
async fn juicefs_3143_what_was_removed_before_it_was_sent_is_not_there_in_the_end() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    let keep = e.create(lab, "keep").await.unwrap();
    e.sync().await;
    world.fault(Fault::Unreachable);
    for i in 0..5u8 {
        let name = format!("f{i}");
        let f = e.create(lab, &name).await.unwrap();
        e.write(f, 0, &vec![i; 1 << 20]).await.unwrap();
        e.vfs.remove(e.ctx(), lab, name.as_bytes()).await.unwrap();
    }
    e.write(keep, 0, b"kept").await.unwrap();
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(e.vfs.status().volumes[0].unsent_bytes, 0);
    assert_eq!(world.names_at_home("").await, ["keep"]);
    assert_eq!(world.at_home("keep").await.unwrap(), b"kept");
}

/// What was staged was miscounted, so that nobody could tell whether an upload was over.
#[tokio::test]
async fn juicefs_7418_what_is_unsent_is_counted_as_it_is() {
    let mut world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    let f = e.create(lab, "f").await.unwrap();
    e.sync().await;
    world.fault(Fault::Unreachable);
    let counts = |e: &Engine| {
        let v = e.vfs.status().volumes.remove(0);
        (v.unsent_ops, v.unsent_bytes)
    };
    assert_eq!(counts(&e), (0, 0));
    e.write(f, 0, &[1; 100_000]).await.unwrap();
    e.write(f, 50_000, &[2; 100_000]).await.unwrap();
    e.create(lab, "g").await.unwrap();
    assert_eq!(counts(&e), (3, 200_000));
    let e = killed(&mut world, e).await;
    world.fault(Fault::Unreachable);
    assert_eq!(e.read(f).await.unwrap().len(), 150_000);
    assert_eq!(counts(&e), (3, 200_000), "after a restart");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(counts(&e), (0, 0));
}

/// COMMIT answered that all was well although fsync had failed.
#[tokio::test]
async fn chimera_1047_a_commit_never_hides_that_the_disk_failed() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    let f = e.create(lab, "f").await.unwrap();
    let good = e.vfs.commit(e.ctx(), f).await.unwrap().verifier;
    unstable(&e, f, 0, b"unsynced".to_vec()).await;
    // Until the disk has failed nothing else asks for a sync.
    world.fault(Fault::Hang);
    world.disk.fail_syncs(1);
    assert_eq!(e.vfs.commit(e.ctx(), f).await.unwrap_err().kind, ErrorKind::Io);
    // The kernel counts the pages as clean by now, and the next fsync would say that all is well.
    for _ in 0..3 {
        assert_eq!(e.vfs.commit(e.ctx(), f).await.unwrap_err().kind, ErrorKind::Io, "for ever");
        let stable = e.vfs.write(e.ctx(), f, 0, Bytes::from_static(b"x"), Stability::Stable).await;
        assert_eq!(stable.unwrap_err().kind, ErrorKind::Io);
    }
    assert!(e.vfs.status().volumes[0].journal.is_some(), "status says so");
    world.disk.crash(3);
    drop(e);
    world.fault(Fault::None);
    let e = world.start().await;
    let again = e.vfs.commit(e.ctx(), f).await.unwrap().verifier;
    assert_ne!(again, good, "clients send again what was not committed");
}

/// The same where the home is what a commit waits for.
#[tokio::test]
async fn chimera_1047_in_cto_a_commit_has_the_errors_of_the_home() {
    for why in [ErrorKind::Io, ErrorKind::NoSpace, ErrorKind::Access] {
        let world = World::new(Mode::Cto);
        let e = world.start().await;
        let lab = e.lab().await;
        let f = e.create(lab, "f").await.unwrap();
        e.sync().await;
        world.fault(Fault::Refuse(why));
        unstable(&e, f, 0, b"lost there".to_vec()).await;
        assert_eq!(e.vfs.commit(e.ctx(), f).await.unwrap_err().kind, why);
    }
}

/// What had been acknowledged had the right size after a power cut, and nothing but zeros in it.
#[tokio::test]
async fn dittofs_1909_what_was_acknowledged_has_its_bytes_after_a_power_cut() {
    for seed in 0..20 {
        let mut world = World::new(Mode::Wb);
        let e = world.start().await;
        let lab = e.lab().await;
        e.names(lab).await;
        world.fault(Fault::Hang);
        let mut files = Vec::new();
        // In the record, and in an extent; at once stable, and committed.
        for (i, len) in [100, 60_000, 70_000, 1 << 20].into_iter().enumerate() {
            let f = e.create(lab, &format!("f{i}")).await.unwrap();
            let content: Vec<u8> = (0..len).map(|b| (b % 255) as u8 + 1).collect();
            if i % 2 == 0 {
                e.write(f, 0, &content).await.unwrap();
            } else {
                unstable(&e, f, 0, content.clone()).await;
                e.vfs.commit(e.ctx(), f).await.unwrap();
            }
            files.push((f, content));
        }
        world.disk.crash(seed);
        drop(e);
        world.reconnect();
        let e = world.start().await;
        for (f, content) in &files {
            assert!(e.read(*f).await.unwrap() == *content, "seed {seed}");
        }
        e.sync().await;
        for (i, (_, content)) in files.iter().enumerate() {
            assert!(world.at_home(&format!("f{i}")).await.unwrap() == *content, "seed {seed}");
        }
    }
}

/// Bytes that were not flushed were reported as holes, and copies that skip holes lost them. What `cp` goes by first
/// are the blocks of a file.
#[tokio::test]
async fn dittofs_1481_unsent_bytes_are_no_holes() {
    let world = World::new(Mode::Wb);
    world.write("there", b"old");
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    let there = e.find("/lab/there").await.unwrap();
    world.fault(Fault::Hang);
    let new = e.create(lab, "new").await.unwrap();
    for f in [there, new] {
        for at in 0..10 {
            unstable(&e, f, at << 16, vec![7; 1 << 16]).await;
        }
        let attr = e.vfs.getattr(e.ctx(), f).await.unwrap();
        assert_eq!(attr.size, 10 << 16);
        assert!(attr.used >= attr.size, "{} bytes in use of {}", attr.used, attr.size);
    }
}

/// Length and time were taken for the content: an edit of the same length whose time was set back was never seen. Homes that
/// tell of changes have `told.rs`; this one is asked.
#[tokio::test]
async fn rclone_6053_an_edit_of_the_same_length_and_time_is_seen_after_a_while() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_millis(20);
    // One that comes with its attributes, and one that is fetched in parts.
    for (name, len) in [("small", 100), ("large", 300_000)] {
        let path = HomePath::parse(name.as_bytes()).unwrap();
        world.write(name, &vec![b'1'; len]);
        let before = world.memory.stat(&Loc { path: path.clone(), id: None }).await.unwrap().attr;
        let e = world.start().await;
        let file = e.find(&format!("/lab/{name}")).await.unwrap();
        assert_eq!(e.read(file).await.unwrap(), vec![b'1'; len]);
        for byte in [b'2', b'3'] {
            world.write(name, &vec![byte; len]);
            world.memory.set_mtime_outside(&path, before.mtime);
            let after = world.memory.stat(&Loc { path: path.clone(), id: None }).await.unwrap().attr;
            assert_eq!((after.id, after.size, after.mtime), (before.id, before.size, before.mtime));
            tokio::time::sleep(Duration::from_millis(40)).await;
            assert_eq!(e.read(file).await.unwrap(), vec![byte; len], "{name}");
        }
    }
}
