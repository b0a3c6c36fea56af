//! What is known from before is asked for by digests: what is still true does not come again, and what is not is seen.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World, in_fast_time};
use home::HomePath;
use home::testing::conformance::Outside;
use home::testing::fault::Fault;
use std::time::Duration;
use vfs::Mode;

const DIRS: u64 = 100;
const FILES: u64 = 3;

fn furnish(world: &World) {
    world.memory.set_watches();
    world.memory.set_confirms();
    for d in 0..DIRS {
        world.mkdir(&format!("d{d}"));
        (0..FILES).for_each(|f| world.write(&format!("d{d}/f{f}"), format!("{d} {f}").as_bytes()));
    }
    Outside::symlink(&world.memory, &HomePath::parse(b"d0/link").unwrap(), b"f0");
}

/// A start when the times that the home shows are over: one that is yet to come would be shown otherwise until it has come.
async fn furnished(world: &World) -> Engine {
    furnish(world);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.start().await
}

async fn restart(world: &World, e: Engine) -> Engine {
    // Longer than between two checkpoints.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    world.disk.kill();
    drop(e);
    world.memory.restart();
    world.start().await
}

/// As `find -ls`: all names with lengths and times.
async fn walk(e: &Engine) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![("/lab".to_string(), e.lab().await)];
    while let Some((path, dir)) = todo.pop() {
        for entry in e.vfs.readdir(e.ctx(), dir, 0, 1000).await.unwrap().entries.split_off(2) {
            let attr = e.vfs.getattr(e.ctx(), entry.oid).await.unwrap();
            let path = format!("{path}/{}", entry.name.escape_ascii());
            lines.push(format!("{path} {:?} {} {:?} {:?}", attr.kind, attr.size, attr.mtime, attr.ctime));
            if attr.kind == home::Kind::Dir {
                todo.push((path, entry.oid));
            }
        }
    }
    lines.sort();
    lines
}

/// The same of a home that is far: what is asked for at first is asked for before anything is answered.
async fn walk_far(world: &World, e: &Engine) -> Vec<String> {
    let lab = e.lab().await;
    world.fault(Fault::Hang);
    let first = async { e.vfs.readdir(e.ctx(), lab, 0, 10).await.unwrap() };
    let answered = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.fault(Fault::None);
    };
    tokio::join!(first, answered);
    walk(e).await
}

/// Listings and questions by digests of some work.
async fn cost<T>(world: &World, work: impl Future<Output = T>) -> (T, u64, u64) {
    let before = world.memory.counters();
    let done = work.await;
    let after = world.memory.counters();
    assert_eq!(after.stat - before.stat, 0, "objects that were asked for one by one");
    (done, after.list - before.list, after.confirm - before.confirm)
}

#[test]
fn a_tree_that_has_not_changed_costs_a_few_questions_after_a_restart() {
    in_fast_time(Mode::Wb, |world| async move {
        let e = furnished(&world).await;
        let before = walk(&e).await;
        assert_eq!(before.len() as u64, DIRS * (1 + FILES) + 1);
        let file = e.find("/lab/d7/f1").await.unwrap();
        assert_eq!(e.read(file).await.unwrap(), b"7 1");
        let e = restart(&world, e).await;
        let lab = e.lab().await;
        let reads = world.memory.counters().read;
        let (after, listed, asked) = cost(&world, walk_far(&world, &e)).await;
        assert_eq!(after, before);
        assert_eq!((lab, listed), (e.lab().await, 0));
        assert!(asked <= 1 + DIRS.div_ceil(64), "{asked} questions");
        assert_eq!(e.read(e.find("/lab/d7/f1").await.unwrap()).await.unwrap(), b"7 1");
        assert_eq!(world.memory.counters().read, reads, "its bytes were here");
        // It is told of again.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(cost(&world, walk(&e)).await, (before, 0, 0));
    });
}

#[test]
fn what_has_changed_meanwhile_is_seen() {
    in_fast_time(Mode::Wb, |world| async move {
        let e = furnished(&world).await;
        let before = walk(&e).await;
        for f in 0..FILES {
            e.read(e.find(&format!("/lab/d9/f{f}")).await.unwrap()).await.unwrap();
        }
        let e = restart(&world, e).await;
        world.write("d9/f0", b"edited");
        world.write("d3/new", b"new");
        world.remove("d4/f2");
        (0..FILES).for_each(|f| world.remove(&format!("d5/f{f}")));
        world.remove("d5");
        world.mkdir("made");
        world.write("made/f", b"made");
        e.lab().await;
        let (after, listed, asked) = cost(&world, walk_far(&world, &e)).await;
        let has = |path: &str| after.iter().any(|line| line.starts_with(&format!("/lab/{path} ")));
        assert!(has("d3/new") && has("made/f") && !has("d4/f2") && !has("d5"));
        assert!(after.iter().filter(|line| before.contains(line)).count() as u64 > (DIRS - 5) * FILES);
        assert_eq!(listed, 1, "what was never seen is listed, what has changed comes with the answer");
        assert!(asked <= 2 + DIRS.div_ceil(64), "{asked} questions");
        assert_eq!(e.read(e.find("/lab/d9/f0").await.unwrap()).await.unwrap(), b"edited");
        assert_eq!(e.read(e.find("/lab/d9/f1").await.unwrap()).await.unwrap(), b"9 1");
    });
}

#[test]
fn after_changes_went_untold_it_is_the_same() {
    in_fast_time(Mode::Wb, |world| async move {
        let e = furnished(&world).await;
        let before = walk(&e).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(cost(&world, walk(&e)).await, (before.clone(), 0, 0));
        world.memory.lose();
        world.write("d1/f1", b"untold");
        tokio::time::sleep(Duration::from_secs(20)).await;
        let (after, listed, asked) = cost(&world, walk_far(&world, &e)).await;
        assert_ne!(after, before);
        assert!(listed == 0 && asked <= 1 + DIRS.div_ceil(64), "{listed} listings, {asked} questions");
        assert_eq!(e.read(e.find("/lab/d1/f1").await.unwrap()).await.unwrap(), b"untold");
    });
}

#[test]
fn what_is_unsent_stays_as_it_was_made() {
    in_fast_time(Mode::Wb, |world| async move {
        let e = furnished(&world).await;
        walk(&e).await;
        world.fault(Fault::Unreachable);
        let d2 = e.find("/lab/d2").await.unwrap();
        let made = e.create(d2, "made").await.unwrap();
        e.write(made, 0, b"unsent").await.unwrap();
        e.vfs.remove(e.ctx(), d2, b"f0").await.unwrap();
        e.write(e.find("/lab/d6/f0").await.unwrap(), 0, b"FF").await.unwrap();
        let e = restart(&world, e).await;
        world.write("d6/f1", b"edited");
        world.fault(Fault::None);
        let after = walk(&e).await;
        let has = |path: &str| after.iter().any(|line| line.starts_with(&format!("/lab/{path} ")));
        assert!(has("d2/made") && !has("d2/f0") && has("d2/f1"));
        assert_eq!(e.read(e.find("/lab/d2/made").await.unwrap()).await.unwrap(), b"unsent");
        assert_eq!(e.read(e.find("/lab/d6/f0").await.unwrap()).await.unwrap(), b"FF0");
        assert_eq!(e.read(e.find("/lab/d6/f1").await.unwrap()).await.unwrap(), b"edited");
        e.sync().await;
        assert_eq!(world.at_home("d2/made").await.unwrap(), b"unsent");
    });
}
