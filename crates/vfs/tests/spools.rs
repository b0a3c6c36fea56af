//! Files that are written anew: the home shows the earlier content or the whole new one, and what it was given of it before a
//! connection was lost does not travel again.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::{Engine, Skipping, World, until};
use home::testing::fault::Fault;
use std::time::Duration;
use vfs::{Mode, Oid, OpenFile, OpenMode, SetAttrs, Stability};

const OLD: &[u8] = b"what was there before";
const PART: usize = 600 << 10;
const WRITES: OpenMode = OpenMode { read: false, write: true, exec: false };

fn part(n: usize) -> Bytes {
    Bytes::from_iter((0..PART).map(|at| (at * 7 + n * 13 + at / 251) as u8))
}

async fn write(e: &Engine, file: Oid, n: usize) {
    let at = (n * PART) as u64;
    e.vfs.write(e.ctx(), file, at, part(n), Stability::Unstable).await.unwrap();
}

async fn cut(e: &Engine, file: Oid) {
    let empty = SetAttrs { size: Some(0), ..SetAttrs::default() };
    e.vfs.setattr(e.ctx(), file, empty, None).await.unwrap();
}

/// Begins to write the file anew.
async fn begin(e: &Engine) -> (Oid, OpenFile) {
    let file = e.find("/lab/f").await.unwrap();
    let open = e.vfs.open_file(e.ctx(), file, WRITES).await.unwrap();
    cut(e, file).await;
    (file, open)
}

fn world() -> World {
    let world = World { spool_from: Some(vfs::SPOOL_FROM), ..World::new(Mode::Wb) };
    world.memory.set_spools();
    world.write("f", OLD);
    world
}

/// What the home has in the end.
fn whole(parts: usize) -> Vec<u8> {
    (0..parts).map(part).collect::<Vec<_>>().concat()
}

async fn is_at_home(world: &World, parts: usize) {
    let wanted = whole(parts);
    let goes = async {
        loop {
            let there = world.at_home("f").await.unwrap_or_default();
            if there == wanted {
                return;
            }
            assert!(there == OLD || there.is_empty(), "{} bytes", there.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(common::END, goes).await.unwrap();
}

#[tokio::test]
async fn the_earlier_content_stays_until_the_writer_has_come_to_an_end() {
    let world = world();
    let e = world.start().await;
    let (file, open) = begin(&e).await;
    let before = world.memory.counters();
    for n in 0..12 {
        write(&e, file, n).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(world.at_home("f").await.unwrap(), OLD);
    }
    // The wire had something to do meanwhile.
    let meanwhile = world.memory.counters();
    assert!(meanwhile.bytes_staged - before.bytes_staged > 4 << 20, "{meanwhile:?}");
    e.vfs.close_file(open);
    is_at_home(&world, 12).await;
    let after = world.memory.counters();
    assert_eq!((after.ops - before.ops, after.mixed), (1, 0));
    assert_eq!(after.bytes_staged - before.bytes_staged, whole(12).len() as u64);
}

/// A kernel that mounts by NFS version 3 tells of no close.
#[tokio::test]
async fn a_new_file_is_seen_with_its_content_once_that_was_made_stable() {
    let world = world();
    let e = world.start().await;
    world.remove("f");
    let lab = e.lab().await;
    let file = e.create(lab, "g").await.unwrap();
    for n in 0..3 {
        write(&e, file, n).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(world.at_home("g").await, None);
    }
    e.vfs.commit(e.ctx(), file).await.unwrap();
    // It has more to write.
    write(&e, file, 3).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(world.at_home("g").await, None);
    e.vfs.commit(e.ctx(), file).await.unwrap();
    until("seen", || world.memory.counters().ops >= 2).await;
    assert!(world.at_home("g").await.unwrap() == whole(4));
}

#[tokio::test]
async fn who_goes_on_writing_is_seen_after_a_while() {
    let mut world = world();
    let clock = Skipping::of(&mut world);
    let e = world.start().await;
    let file = e.find("/lab/f").await.unwrap();
    cut(&e, file).await;
    let mut seen = 0;
    for n in 0..100 {
        write(&e, file, n % 10).await;
        // Less than what would be taken for its end.
        tokio::time::sleep(Duration::from_millis(10)).await;
        clock.skip(if n == 50 { 40 } else { 0 });
        let is_old = world.at_home("f").await.unwrap() == OLD;
        assert!(n > 50 || is_old, "at {n}");
        seen += usize::from(!is_old);
    }
    assert!(seen > 0);
}

#[tokio::test]
async fn whoever_waits_for_the_home_does_not_wait_for_the_writer() {
    let world = world();
    let e = world.start().await;
    let (file, _open) = begin(&e).await;
    write(&e, file, 0).await;
    tokio::time::timeout(Duration::from_millis(900), e.sync()).await.unwrap();
    assert!(world.at_home("f").await.unwrap() == whole(1));
}

/// It would lie on the home's disk besides until somebody claims again: who has a quota there may have no room left for the file.
#[tokio::test]
async fn what_is_added_to_a_file_that_went_home_is_not_held_there_twice() {
    let world = world();
    let e = world.start().await;
    let (file, open) = begin(&e).await;
    let before = world.memory.counters();
    for n in 0..8 {
        write(&e, file, n).await;
    }
    e.sync().await;
    assert!(world.at_home("f").await.unwrap() == whole(8));
    for n in 8..12 {
        write(&e, file, n).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    e.vfs.close_file(open);
    e.sync().await;
    is_at_home(&world, 12).await;
    let staged = world.memory.counters().bytes_staged - before.bytes_staged;
    assert_eq!(staged, whole(12).len() as u64);
}

#[tokio::test]
async fn a_file_that_is_removed_before_it_went_home_keeps_no_room_there() {
    let world = world();
    let e = world.start().await;
    let lab = e.lab().await;
    let file = e.create(lab, "g").await.unwrap();
    for n in 0..12 {
        write(&e, file, n).await;
    }
    until("staged", || world.memory.counters().bytes_staged > 4 << 20).await;
    e.vfs.remove(e.ctx(), lab, b"g").await.unwrap();
    // The last change of a directory goes home.
    e.create(lab, "h").await.unwrap();
    until("given up", || world.memory.counters().unspool == 1).await;
    e.sync().await;
    assert_eq!(world.at_home("g").await, None);
}

#[tokio::test]
async fn what_was_staged_before_a_connection_was_lost_does_not_travel_again() {
    let world = world();
    let e = world.start().await;
    let (file, open) = begin(&e).await;
    let before = world.memory.counters();
    let staged = || world.memory.counters().bytes_staged - before.bytes_staged;
    for n in 0..30 {
        write(&e, file, n).await;
    }
    until("staged", || staged() > 8 << 20).await;
    world.fault(Fault::Unreachable);
    for n in 30..40 {
        write(&e, file, n).await;
    }
    e.vfs.close_file(open);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.at_home("f").await.unwrap(), OLD);
    world.memory.restart();
    world.fault(Fault::None);
    is_at_home(&world, 40).await;
    let after = world.memory.counters();
    // What had been asked for when it was lost may have arrived.
    let most = whole(40).len() as u64 + (8 << 20);
    assert!(staged() < most, "{} of {} bytes", staged(), whole(40).len());
    assert!(after.spool >= 2 && after.mixed == 0, "{after:?}");
}

/// The writer is told of nothing: in parts, the earlier content goes first.
#[tokio::test]
async fn what_has_no_room_as_a_whole_goes_in_parts() {
    let world = world();
    world.memory.set_crowded();
    let e = world.start().await;
    let (file, open) = begin(&e).await;
    for n in 0..40 {
        write(&e, file, n).await;
    }
    e.vfs.close_file(open);
    tokio::time::timeout(common::END, e.sync()).await.unwrap();
    assert!(world.at_home("f").await.unwrap() == whole(40));
    assert!(world.memory.counters().bytes_staged > whole(40).len() as u64, "it was tried whole");
    assert!(e.vfs.status().volumes.remove(0).parked.is_empty());
    write(&e, file, 40).await;
    e.vfs.commit(e.ctx(), file).await.unwrap();
}
