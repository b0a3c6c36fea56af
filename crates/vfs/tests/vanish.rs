//! What later changes undo before it could go home stays here, and nothing across a promise.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, Skipping, World, all_gone, until};
use home::testing::fault::Fault;
use home::{Home, HomePath, Loc, Time};
use std::time::Duration;
use vfs::{Mode, Oid, SetAttrs};

async fn mtime_at_home(world: &World, path: &str) -> Time {
    let at = Loc { path: HomePath::parse(path.as_bytes()).unwrap(), id: None };
    world.memory.stat(&at).await.unwrap().attr.mtime
}

async fn mtime_here(e: &Engine, oid: Oid) -> Time {
    e.vfs.getattr(e.ctx(), oid).await.unwrap().mtime
}

async fn chmod(e: &Engine, oid: Oid, mode: u32) {
    let set = SetAttrs { mode: Some(mode), ..SetAttrs::default() };
    e.vfs.setattr(e.ctx(), oid, set, None).await.unwrap();
}

/// An engine that has looked at all names, and has changed something.
async fn looked(world: &World) -> (Engine, Oid) {
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    e.create(lab, "first").await.unwrap();
    e.sync().await;
    (e, lab)
}

#[tokio::test]
async fn what_is_made_and_removed_again_never_travels() {
    let world = World::new(Mode::Wb);
    let (e, lab) = looked(&world).await;
    let before = world.memory.counters();
    let f = e.create(lab, "f").await.unwrap();
    e.write(f, 0, &vec![7; 300 << 10]).await.unwrap();
    chmod(&e, f, 0o600).await;
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    e.create(d, "in it").await.unwrap();
    e.vfs.rename(e.ctx(), d, b"in it", d, b"moved", vfs::RenameHow::Replace).await.unwrap();
    e.vfs.remove(e.ctx(), d, b"moved").await.unwrap();
    e.vfs.rmdir(e.ctx(), lab, b"d").await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    // Without a change that stays nothing would give the folder its time.
    e.create(lab, "stays").await.unwrap();
    let shown = mtime_here(&e, lab).await;
    all_gone(&e).await;
    let after = world.memory.counters();
    assert_eq!((after.stage - before.stage, after.bytes_written - before.bytes_written), (0, 0));
    assert_eq!(after.ops - before.ops, 1, "the one that stays");
    assert_eq!(mtime_at_home(&world, "").await, shown, "the time that clients saw");
    assert_eq!(world.names_at_home("").await, ["first", "stays"]);
    assert_eq!(e.names(lab).await, ["first", "stays"]);
    let f = e.create(lab, "last").await.unwrap();
    e.write(f, 0, b"seen by nobody").await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"last").await.unwrap();
    let shown = mtime_here(&e, lab).await;
    all_gone(&e).await;
    assert_eq!(mtime_at_home(&world, "").await, shown);
    assert_eq!(world.names_at_home("").await, ["first", "stays"]);
}

#[tokio::test]
async fn what_somebody_was_promised_arrives_even_if_it_is_removed_meanwhile() {
    let world = World::new(Mode::Wb);
    let (e, lab) = looked(&world).await;
    world.fault(Fault::HangChanges);
    // Something else is on its way and hangs, so that nothing of what follows is.
    e.create(lab, "second").await.unwrap();
    let calls = world.fault.calls();
    until("asked", || world.fault.calls() > calls || e.vfs.status().volumes[0].unsent_ops == 1).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let ops = world.memory.counters().ops;
    e.create(lab, "promised").await.unwrap();
    let barrier = e.vfs.sync(None, Duration::from_secs(20));
    let work = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        e.vfs.remove(e.ctx(), lab, b"promised").await.unwrap();
        e.create(lab, "not promised").await.unwrap();
        e.vfs.remove(e.ctx(), lab, b"not promised").await.unwrap();
        e.create(lab, "third").await.unwrap();
        world.fault(Fault::None);
    };
    let (synced, ()) = tokio::join!(barrier, work);
    synced.unwrap();
    all_gone(&e).await;
    // `second`, `promised` made and removed, and `third`.
    assert_eq!(world.memory.counters().ops - ops, 4);
    assert_eq!(world.names_at_home("").await, ["first", "second", "third"]);
}

#[tokio::test]
async fn what_is_still_there_by_another_name_or_in_another_file_stays() {
    let world = World::new(Mode::Wb);
    world.write("old", b"old");
    let (e, lab) = looked(&world).await;
    let f = e.create(lab, "f").await.unwrap();
    e.write(f, 0, b"kept").await.unwrap();
    e.vfs.link(e.ctx(), f, lab, b"other").await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    // It takes the place of what the home has, and goes: so has that to.
    let g = e.create(lab, "g").await.unwrap();
    e.write(g, 0, b"new").await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"g", lab, b"old", vfs::RenameHow::Replace).await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"old").await.unwrap();
    all_gone(&e).await;
    assert_eq!(world.at_home("other").await.unwrap(), b"kept");
    assert_eq!(world.names_at_home("").await, ["first", "other"]);
    assert_eq!(e.names(lab).await, ["first", "other"]);
}

#[tokio::test]
async fn attributes_that_are_set_again_travel_once() {
    let world = World::new(Mode::Wb);
    let (e, lab) = looked(&world).await;
    let first = e.find("/lab/first").await.unwrap();
    let ops = world.memory.counters().ops;
    for mode in [0o600, 0o700, 0o640] {
        chmod(&e, first, mode).await;
    }
    all_gone(&e).await;
    assert_eq!(world.memory.counters().ops - ops, 1);
    let at = Loc { path: HomePath::parse(b"first").unwrap(), id: None };
    assert_eq!(world.memory.stat(&at).await.unwrap().attr.mode & 0o777, 0o640);
    // Between two modes something else depends on the first one.
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    let ops = world.memory.counters().ops;
    chmod(&e, d, 0o700).await;
    e.create(d, "x").await.unwrap();
    chmod(&e, d, 0o500).await;
    all_gone(&e).await;
    assert_eq!(world.memory.counters().ops - ops, 4, "the directory, its modes, the file");
    assert_eq!(world.names_at_home("d").await, ["x"]);
}

#[tokio::test]
async fn a_server_that_dies_while_something_vanishes_brings_nothing_back() {
    let mut world = World::new(Mode::Wb);
    let (e, lab) = looked(&world).await;
    drop(e);
    let _ = lab;
    for round in 0..20u64 {
        world.disk.kill();
        world.reconnect();
        let e = world.start().await;
        let lab = e.lab().await;
        e.names(lab).await;
        let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
        let f = e.create(d, "f").await.unwrap();
        e.write(f, 0, &vec![1; 100 << 10]).await.unwrap();
        e.vfs.remove(e.ctx(), d, b"f").await.unwrap();
        e.vfs.rmdir(e.ctx(), lab, b"d").await.unwrap();
        chmod(&e, e.create(lab, &format!("stays {round:02}")).await.unwrap(), 0o600).await;
        tokio::time::sleep(Duration::from_millis(480 + round * 2)).await;
    }
    world.disk.kill();
    world.reconnect();
    let e = world.start().await;
    e.sync().await;
    let there = world.names_at_home("").await;
    assert!(
        there.len() == 21 && there.iter().all(|name| name == "first" || name.starts_with("stays")),
        "{there:?}"
    );
    let lab = e.lab().await;
    assert_eq!(e.names(lab).await, there);
    assert_eq!(mtime_at_home(&world, "").await, mtime_here(&e, lab).await);
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
}

/// What vanishes takes nothing away of what is known of its name: an answer that was read before an earlier change of that
/// name was done does not bring it back.
#[tokio::test]
async fn what_vanishes_leaves_what_came_of_earlier_changes_of_its_name() {
    let mut world = World::new(Mode::Wb);
    let clock = Skipping::of(&mut world);
    world.write("e", b"theirs");
    world.write("x", b"theirs");
    let (e, lab) = looked(&world).await;
    world.fault(Fault::HangChanges);
    e.vfs.rename(e.ctx(), lab, b"e", lab, b"d", vfs::RenameHow::Replace).await.unwrap();
    // It is on its way.
    tokio::time::sleep(Duration::from_millis(700)).await;
    e.create(lab, "e").await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"e").await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"x").await.unwrap();

    world.fault(Fault::LateNames { changes: true });
    clock.skip(3600);
    let calls = world.fault.calls();
    let listed = e.names(lab);
    let work = async {
        until("asked", || world.fault.calls() > calls).await;
        world.fault(Fault::LateNames { changes: false });
        all_gone(&e).await;
        world.fault(Fault::None);
    };
    let (names, ()) = tokio::join!(listed, work);
    assert_eq!(world.names_at_home("").await, ["d", "first"]);
    assert_eq!(names, ["d", "first"]);
    assert_eq!(e.names(lab).await, ["d", "first"]);
    assert_eq!(e.vfs.lookup(e.ctx(), lab, b"e").await.unwrap_err().kind, home::ErrorKind::NotFound);
}
