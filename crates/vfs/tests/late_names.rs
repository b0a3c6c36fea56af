//! Listings that were read at the home before changes of ours were done there, and come in after names that those changed
//! were forgotten here.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, Skipping, World, all_gone, until};
use home::ErrorKind;
use home::testing::fault::Fault;
use std::sync::Arc;
use std::time::Duration;
use vfs::{Mode, Oid, RenameHow};

/// An engine that has looked at all names, of which `e` is being renamed to `d`, which hangs.
async fn renaming(world: &mut World) -> (Engine, Oid, Arc<Skipping>) {
    let clock = Skipping::of(world);
    world.write("e", b"moved");
    world.write("x", b"theirs");
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    e.create(lab, "first").await.unwrap();
    e.sync().await;
    world.fault(Fault::HangChanges);
    e.vfs.rename(e.ctx(), lab, b"e", lab, b"d", RenameHow::Replace).await.unwrap();
    // It is on its way.
    tokio::time::sleep(Duration::from_millis(700)).await;
    (e, lab, clock)
}

/// Lists the directory; the home reads it before any change is done, and it comes in when `work` is over.
async fn listed_late(
    world: &World,
    (e, lab): (&Engine, Oid),
    clock: &Skipping,
    work: impl Future<Output = ()>,
) -> Vec<String> {
    world.fault(Fault::LateNames { changes: true });
    clock.skip(3600);
    let calls = world.fault.calls();
    let work = async {
        until("asked", || world.fault.calls() > calls).await;
        world.fault(Fault::LateNames { changes: false });
        all_gone(e).await;
        work.await;
        world.fault(Fault::None);
    };
    tokio::join!(e.names(lab), work).0
}

#[tokio::test]
async fn what_is_given_up_leaves_what_came_of_earlier_changes_of_its_name() {
    let mut world = World::new(Mode::Wb);
    let (e, lab, clock) = renaming(&mut world).await;
    world.remove("x");
    e.vfs.rename(e.ctx(), lab, b"x", lab, b"e", RenameHow::Replace).await.unwrap();
    let names = listed_late(&world, (&e, lab), &clock, async {}).await;
    assert_eq!(e.vfs.status().volumes[0].conflicts, 1, "what was to be renamed is gone");
    assert_eq!(world.names_at_home("").await, ["d", "first"]);
    assert_eq!(names, ["d", "first"]);
    assert_eq!(e.names(lab).await, ["d", "first"]);
    assert_eq!(e.vfs.lookup(e.ctx(), lab, b"e").await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn what_becomes_a_copy_leaves_what_came_of_earlier_changes_of_its_name() {
    let mut world = World::new(Mode::Wb);
    let (e, lab, clock) = renaming(&mut world).await;
    let meets_theirs = async {
        world.fault(Fault::LateNames { changes: true });
        e.create(lab, "e").await.unwrap();
        world.write("e", b"of another program");
        world.fault(Fault::LateNames { changes: false });
        all_gone(&e).await;
    };
    listed_late(&world, (&e, lab), &clock, meets_theirs).await;
    let there = world.names_at_home("").await;
    assert_eq!(there.len(), 5, "with a copy: {there:?}");
    assert_eq!(e.names(lab).await, there);
    assert_eq!(e.read(e.find("/lab/e").await.unwrap()).await.unwrap(), b"of another program");
    assert_eq!(e.read(e.find("/lab/d").await.unwrap()).await.unwrap(), b"moved");
}
