//! Two objects that turn out to be one file: another program gave it a further name before it was known to be ours.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World};
use home::testing::conformance::Outside;
use home::testing::fault::Fault;
use home::{ErrorKind, HomePath};
use std::time::Duration;
use vfs::{Mode, Oid, Policy, SetAttrs};

fn path(text: &str) -> HomePath {
    HomePath::parse(text.as_bytes()).unwrap()
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

async fn looked(world: &World) -> (Engine, Oid) {
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    (e, lab)
}

/// The object that has a path, as soon as the home is asked for it.
async fn found(e: &Engine, path: &str) -> Oid {
    for _ in 0..1_000 {
        if let Ok(found) = e.find(path).await {
            return found;
        }
        pause(10).await;
    }
    panic!("{path} is not found");
}

async fn append(e: &Engine, file: Oid, text: &[u8]) {
    let end = e.read(file).await.unwrap().len() as u64;
    e.write(file, end, text).await.unwrap();
}

fn conflicts(e: &Engine) -> u64 {
    e.vfs.status().volumes[0].conflicts
}

/// A new file was renamed there before its answer came, and looked at by that name.
#[tokio::test]
async fn what_is_written_by_the_old_name_is_seen_by_the_new_one() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_millis(100);
    world.memory.set_keeps_log(true);
    let (e, lab) = looked(&world).await;
    world.fault(Fault::ChangesUnanswered);
    let f = e.create(lab, "f").await.unwrap();
    while world.at_home("f").await.is_none() {
        pause(10).await;
    }
    world.fault(Fault::Unreachable);
    Outside::rename(&world.memory, &path("f"), &path("g"));
    world.fault(Fault::HangChanges);
    let g = found(&e, "/lab/g").await;
    assert_ne!(f, g, "nobody knows yet that it is ours");
    e.write(f, 0, b"by f").await.unwrap();
    world.fault(Fault::None);
    e.sync().await;
    let g = e.find("/lab/g").await.unwrap();
    assert_eq!(e.read(g).await.unwrap(), b"by f");
    append(&e, g, b" by g").await;
    e.sync().await;
    assert_eq!(world.at_home("g").await.unwrap(), b"by f by g");
    assert_eq!(conflicts(&e), 0);
}

/// A refused write was executed after all, by an exchange, its answer lost, and then nobody knew.
#[tokio::test]
async fn what_a_write_builds_on_is_no_other_file_any_more() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_secs(100);
    world.write("f", b"base");
    // One name is asked for where there are so many.
    (0..2_000).for_each(|n| world.write(&format!("x{n}"), b""));
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    e.read(f).await.unwrap();
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    e.write(f, 0, b"OURS").await.unwrap();
    while e.vfs.status().volumes[0].parked.is_empty() {
        pause(10).await;
    }
    e.vfs.commit(e.ctx(), f).await.unwrap_err();
    world.fault(Fault::ChangesUnanswered);
    e.vfs.retry_refused(None);
    while world.at_home("f").await.unwrap() != b"OURS" {
        pause(10).await;
    }
    world.fault(Fault::Unreachable);
    world.memory.link_outside(&path("f"), &path("g"));
    world.memory.restart();
    world.fault(Fault::HangChanges);
    e.find("/lab/g").await.unwrap();
    let before = world.memory.counters().apply;
    world.fault.set_after_conflict(Fault::HangChanges);
    world.fault(Fault::None);
    while world.memory.counters().apply == before {
        pause(10).await;
    }
    pause(100).await;
    append(&e, f, b" by f").await;
    let g = e.find("/lab/g").await.unwrap();
    append(&e, g, b" by g").await;
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"OURS by f by g");
    assert_eq!(world.at_home("g").await.unwrap(), b"OURS by f by g");
}

/// The last writer wins over what others wrote; what was acknowledged here by another name is not theirs.
#[tokio::test]
async fn what_is_unsent_by_another_name_is_not_gone_over() {
    let mut world = World::new(Mode::Wb);
    world.conflicts = vec![(path("d"), Policy::LastWriter)];
    world.mkdir("d");
    world.write("d/f", b"base f");
    world.write("d/g", b"base g");
    let e = world.start().await;
    let (f, g) = (e.find("/lab/d/f").await.unwrap(), e.find("/lab/d/g").await.unwrap());
    e.read(f).await.unwrap();
    e.read(g).await.unwrap();
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"OURS F").await.unwrap();
    e.write(g, 6, b" by g").await.unwrap();
    world.remove("d/f");
    world.memory.link_outside(&path("d/g"), &path("d/f"));
    world.fault(Fault::None);
    e.sync().await;
    let mut all = Vec::new();
    for name in world.names_at_home("d").await {
        all.push(world.at_home(&format!("d/{name}")).await.unwrap());
    }
    for ours in [&b"OURS F"[..], b"base g by g"] {
        assert!(all.iter().any(|data| data == ours), "{ours:?} in {all:?}");
    }
}

/// What dedup tools do: a name that is to be removed became a link to another file of the same content.
#[tokio::test]
async fn a_removal_takes_no_other_files_identity() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::ZERO;
    world.write("f", b"same");
    world.write("g", b"same");
    let (e, lab) = looked(&world).await;
    let (f, g) = (e.find("/lab/f").await.unwrap(), e.find("/lab/g").await.unwrap());
    e.read(f).await.unwrap();
    e.read(g).await.unwrap();
    world.fault(Fault::Unreachable);
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    world.remove("f");
    world.memory.link_outside(&path("g"), &path("f"));
    world.fault(Fault::None);
    e.sync().await;
    // Until it is in the index.
    pause(1_500).await;
    assert_eq!(world.names_at_home("").await, ["g"]);
    world.fault(Fault::HangChanges);
    e.write(g, 4, b" one").await.unwrap();
    e.names(lab).await;
    assert_eq!(e.find("/lab/g").await.unwrap(), g);
    assert!(e.read(f).await.is_err(), "it was removed");
    append(&e, g, b" two").await;
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("g").await.unwrap(), b"same one two");
    assert_eq!(conflicts(&e), 0);
}

/// A write gave the file another inode, which a link was made to, and a listing shows the link first.
#[tokio::test]
async fn a_client_reads_its_own_write_whatever_links_others_make() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::ZERO;
    world.memory.set_keeps_log(true);
    world.write("f", b"base");
    let (e, lab) = looked(&world).await;
    let f = e.find("/lab/f").await.unwrap();
    e.read(f).await.unwrap();
    world.fault(Fault::ChangesUnanswered);
    e.write(f, 0, b"OURS").await.unwrap();
    while world.at_home("f").await.unwrap() != b"OURS" {
        pause(10).await;
    }
    world.fault(Fault::Unreachable);
    world.memory.link_outside(&path("f"), &path("a"));
    world.fault(Fault::HangChanges);
    e.write(f, 4, b" and more").await.unwrap();
    e.names(lab).await;
    assert_eq!(e.find("/lab/f").await.unwrap(), f);
    assert_eq!(e.read(f).await.unwrap(), b"OURS and more");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(conflicts(&e), 0);
    e.names(lab).await;
    assert_eq!(e.find("/lab/a").await.unwrap(), f);
    assert_eq!(world.at_home("a").await.unwrap(), b"OURS and more");
}

/// After a restart, another file has a name by which the home had the object of an unsent removal.
#[tokio::test]
async fn after_a_restart_what_is_unsent_is_not_of_what_took_a_name() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_millis(100);
    world.write("a", b"base");
    world.memory.link_outside(&path("a"), &path("b"));
    let (e, lab) = looked(&world).await;
    let o = e.find("/lab/a").await.unwrap();
    e.read(o).await.unwrap();
    pause(1_500).await;
    world.fault(Fault::Unreachable);
    e.vfs.remove(e.ctx(), lab, b"a").await.unwrap();
    world.disk.kill();
    drop(e);
    world.reconnect();
    world.fault(Fault::HangChanges);
    world.write("temporary", b"theirs");
    Outside::rename(&world.memory, &path("temporary"), &path("b"));
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["b"]);
    assert_eq!(conflicts(&e), 0);
    e.names(lab).await;
    let b = e.find("/lab/b").await.unwrap();
    assert_ne!(b, o);
    assert_eq!(e.read(b).await.unwrap(), b"theirs");
}

/// What was found there was looked at after another program had written to it: that is not forgotten.
#[tokio::test]
async fn what_was_seen_by_the_new_name_is_not_hidden_by_an_older_answer() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_secs(1);
    world.memory.set_keeps_log(true);
    let (e, lab) = looked(&world).await;
    world.fault(Fault::ChangesUnanswered);
    e.create(lab, "f").await.unwrap();
    while world.at_home("f").await.is_none() {
        pause(10).await;
    }
    world.fault(Fault::Unreachable);
    Outside::rename(&world.memory, &path("f"), &path("g"));
    world.write("g", b"theirs");
    world.fault(Fault::HangChanges);
    let g = found(&e, "/lab/g").await;
    assert_eq!(e.read(g).await.unwrap(), b"theirs");
    world.fault(Fault::None);
    e.sync().await;
    let g = e.find("/lab/g").await.unwrap();
    assert_eq!(e.read(g).await.unwrap(), b"theirs");
    let set = SetAttrs { mode: Some(0o640), ..SetAttrs::default() };
    e.vfs.setattr(e.ctx(), g, set, None).await.unwrap();
    append(&e, g, b" and ours").await;
    e.sync().await;
    assert_eq!(world.at_home("g").await.unwrap(), b"theirs and ours");
    assert_eq!(conflicts(&e), 0);
}

/// A name that is to be removed stands for a copy of the same content by then, which nobody here has seen.
#[tokio::test]
async fn a_removal_of_one_of_several_names_leaves_the_object_what_it_is() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::ZERO;
    world.write("a", b"same");
    world.memory.link_outside(&path("a"), &path("b"));
    let (e, lab) = looked(&world).await;
    let o = e.find("/lab/a").await.unwrap();
    assert_eq!(e.read(o).await.unwrap(), b"same");
    world.fault(Fault::Unreachable);
    e.vfs.remove(e.ctx(), lab, b"b").await.unwrap();
    world.write("temporary", b"same");
    Outside::rename(&world.memory, &path("temporary"), &path("b"));
    world.fault(Fault::None);
    e.sync().await;
    e.names(lab).await;
    assert_eq!(e.find("/lab/a").await.unwrap(), o);
    append(&e, o, b" and more").await;
    e.sync().await;
    assert_eq!(world.at_home("a").await.unwrap(), b"same and more");
    assert_eq!(world.at_home("b").await.unwrap(), b"same");
}
