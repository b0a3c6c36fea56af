//! Whoever goes through a tree of a home that walks by itself asks it a few questions, and what a walk brings is never
//! believed where something younger is known.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, Skipping, World};
use home::HomePath;
use home::testing::fault::Fault;
use std::sync::Arc;
use std::time::Duration;
use vfs::{Mode, Oid, Prefetch, RenameHow};

const OUTER: u64 = 12;
const INNER: u64 = 20;
/// Directories of the tree.
const DIRS: u64 = 1 + OUTER * (1 + INNER);
/// With the root.
const ALL_DIRS: u64 = 1 + DIRS;

/// A home with directories in directories below `tree`, each with a file; and one that tells of changes.
fn world() -> (World, Arc<Skipping>) {
    let mut world = World::new(Mode::Wb);
    let clock = Skipping::of(&mut world);
    world.memory.set_watches();
    world.memory.set_walks();
    world.mkdir("tree");
    for outer in 0..OUTER {
        world.mkdir(&format!("tree/o{outer}"));
        for inner in 0..INNER {
            world.mkdir(&format!("tree/o{outer}/i{inner}"));
            world.write(&format!("tree/o{outer}/i{inner}/f"), b"content");
        }
    }
    (world, clock)
}

/// Files and directories below one, as `find -ls` tells them. What it comes to first is listed before what is in it.
async fn find(e: &Engine, dir: Oid) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![(String::new(), dir)];
    while let Some((path, dir)) = todo.pop() {
        let entries = e.vfs.readdir(e.ctx(), dir, 0, 1000).await.unwrap().entries.split_off(2);
        let mut below = Vec::new();
        for entry in entries {
            let attr = e.vfs.getattr(e.ctx(), entry.oid).await.unwrap();
            let path = format!("{path}/{}", entry.name.escape_ascii());
            lines.push(format!("{path} {}", if attr.kind == home::Kind::Dir { 0 } else { attr.size }));
            if attr.kind == home::Kind::Dir {
                below.push((path, entry.oid));
            }
        }
        todo.extend(below.into_iter().rev());
    }
    lines.sort();
    lines
}

/// All of the tree, which is not known yet, for a few questions.
async fn crawl(world: &World, e: &Engine, tree: Oid) -> Vec<String> {
    let before = world.memory.counters();
    let found = find(e, tree).await;
    assert_eq!(found.len() as u64, OUTER * (1 + 2 * INNER));
    let after = world.memory.counters();
    let asked = (after.list - before.list, after.walk - before.walk, after.stat - before.stat);
    assert!(asked.0 <= 4 && asked.1 <= 12 && asked.2 == 0, "{asked:?} listings, walks, stats");
    found
}

fn path(text: &str) -> HomePath {
    HomePath::parse(text.as_bytes()).unwrap()
}

/// Begins a walk through the whole tree whose answer is on its way until [`arrives`].
async fn late_walk(world: &World, e: &Engine) -> Prefetch {
    world.fault(Fault::LateWalks(true));
    let prefetch = e.vfs.prefetch(e.cred.clone(), true);
    prefetch.add([b"lab/tree".to_vec().into()]);
    while world.memory.counters().walked < DIRS {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    prefetch
}

/// The answer arrives, and is taken in.
async fn arrives(world: &World, walk: Prefetch) {
    world.fault(Fault::None);
    assert!(walk.progress(Duration::from_secs(20)).await.over);
}

#[tokio::test]
async fn a_crawl_costs_a_few_questions_and_is_told_of() {
    let (world, clock) = world();
    let e = world.start().await;
    let tree = e.find("/lab/tree").await.unwrap();
    let found = crawl(&world, &e, tree).await;
    let after = world.memory.counters();
    assert!(after.walked <= ALL_DIRS, "{} directories", after.walked);
    let walks = e.vfs.status().volumes[0].walks;
    assert_eq!((walks.crawls, walks.asked, walks.directories), (1, after.walk, after.walked));
    // All that came was used, and each directory that it came in has some names, or a file.
    assert_eq!(walks.used, walks.directories, "{walks:?}");
    assert!((walks.directories..=1 + found.len() as u64).contains(&walks.names), "{walks:?}");
    // All of it is told of: nothing is asked for again, but what has changed is.
    clock.skip(60);
    let calls = world.memory.counters().calls();
    assert_eq!(find(&e, tree).await, found);
    assert_eq!(world.memory.counters().calls(), calls);
    for dir in ["tree/o3", "tree/o7/i5"] {
        world.write(&format!("{dir}/new"), b"new");
        world.memory.tell(&path(dir), &["new"]);
    }
    world.write("tree/o2/i2/f", b"longer content");
    world.memory.tell(&path("tree/o2/i2"), &["f"]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let now = find(&e, tree).await;
    assert_eq!(e.vfs.status().volumes[0].walks, walks, "nothing unknown was wanted");
    let has = |line: &str| now.iter().any(|l| l == line);
    assert!(has("/o3/new 3") && has("/o7/i5/new 3") && has("/o2/i2/f 14") && now.len() == found.len() + 2);
}

/// As one who looks into one directory here and one there.
#[tokio::test]
async fn who_lists_directories_at_random_gets_few_others_with_them() {
    const DIRS: u64 = 600;
    let world = World::new(Mode::Wb);
    world.memory.set_walks();
    for i in 0..DIRS {
        world.mkdir(&format!("d{i:03}"));
        (0..20).for_each(|f| world.write(&format!("d{i:03}/f{f}"), b"content"));
    }
    let e = world.start().await;
    let lab = e.lab().await;
    assert_eq!(e.names(lab).await.len() as u64, DIRS);
    // What is below a new directory comes with it.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = world.memory.counters();
    for n in 0..100 {
        let dir = e.find(&format!("/lab/d{:03}", n * 7919 % DIRS)).await.unwrap();
        e.names(dir).await;
    }
    let counters = world.memory.counters();
    let listed = counters.list + counters.walked - before.list - before.walked;
    assert!((100..200).contains(&listed), "{listed} for 100: {before:?} {counters:?}");
    // Who begins to walk is seen all the same.
    assert_eq!(find(&e, lab).await.len() as u64, DIRS * 21);
    let after = world.memory.counters();
    assert!(after.list - counters.list < 40, "{counters:?} {after:?}");
}

/// What is known there is good without anybody's telling, and so is what a walk brings.
#[tokio::test]
async fn a_home_that_is_owned_is_walked_and_asked_for_nothing_twice() {
    let (mut world, clock) = world();
    world.mode = Mode::Owned;
    let e = world.start().await;
    let tree = e.find("/lab/tree").await.unwrap();
    let found = crawl(&world, &e, tree).await;
    clock.skip(1000);
    let calls = world.memory.counters().calls();
    assert_eq!(find(&e, tree).await, found);
    assert_eq!(world.memory.counters().calls(), calls);
}

/// A home with a long path in it.
fn deep() -> World {
    let (world, _) = world();
    for dir in ["a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e"] {
        world.mkdir(dir);
    }
    world.write("a/b/c/d/e/f", b"content");
    world
}

#[tokio::test]
async fn who_comes_down_a_path_finds_what_is_below_it() {
    let world = deep();
    let e = world.start().await;
    e.find("/lab/a/b/c/d/e/f").await.unwrap();
    let asked = world.memory.counters();
    assert_eq!(
        (asked.list, asked.walk),
        (2, 2),
        "the root and what is below it, the first directory, and all others at once"
    );
}

/// As the shell and its programs do which begin there.
#[tokio::test]
async fn who_goes_to_the_home_directory_finds_the_way_listed() {
    let world = deep();
    world.memory.set_home_dir(path("a/b/c"));
    let e = world.start().await;
    e.find("/lab/a/b/c/d/e/f").await.unwrap();
    let asked = world.memory.counters();
    assert_eq!((asked.list, asked.walk), (0, 1));
    // It is as good as what was asked for by itself: the home tells what changes there.
    world.write("a/b/new", b"");
    world.memory.tell(&path("a/b"), &["new"]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    e.find("/lab/a/b/new").await.unwrap();
    assert_eq!(world.memory.counters().walk, 1);
}

#[tokio::test]
async fn a_way_that_leads_nowhere_is_nobodys_error() {
    let world = deep();
    world.memory.set_home_dir(path("a/nowhere/b"));
    let e = world.start().await;
    assert_eq!(e.names(e.find("/lab/a").await.unwrap()).await, ["b"]);
}

/// A home directory may be behind a server that is down.
#[tokio::test]
async fn nobody_waits_long_for_the_way() {
    let world = deep();
    world.memory.set_home_dir(path("a/b/c"));
    world.fault(Fault::LateWalks(false));
    let e = world.start().await;
    tokio::time::timeout(Duration::from_secs(2), e.find("/lab/a")).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_look_into_a_new_directory_brings_what_is_below_it_and_is_no_crawl() {
    let world = World::new(Mode::Wb);
    world.memory.set_watches();
    world.memory.set_walks();
    ["p", "p/q", "p/q/r"].into_iter().for_each(|dir| world.mkdir(dir));
    let e = world.start().await;
    assert_eq!(e.names(e.find("/lab/p").await.unwrap()).await, ["q"]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let asked = world.memory.counters();
    assert_eq!((asked.walk, e.vfs.status().volumes[0].walks.crawls), (1, 0));
    assert!(e.names(e.find("/lab/p/q/r").await.unwrap()).await.is_empty());
    assert_eq!(world.memory.counters().calls(), asked.calls(), "it had come");
}

/// What is below it may be on a server that is down.
#[tokio::test]
async fn nobody_waits_for_what_is_below_a_new_directory() {
    let world = deep();
    world.fault(Fault::LateWalks(true));
    let e = world.start().await;
    let names = async { e.names(e.find("/lab/a").await.unwrap()).await };
    assert_eq!(tokio::time::timeout(Duration::from_secs(1), names).await.unwrap(), ["b"]);
    // It is looked at again, too.
    world.write("a/new", b"");
    world.memory.tell(&path("a"), &["new"]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(e.names(e.find("/lab/a").await.unwrap()).await, ["b", "new"]);
}

#[tokio::test]
async fn what_is_told_while_a_walk_is_on_its_way_is_not_overridden() {
    let (world, clock) = world();
    let e = world.start().await;
    let walk = late_walk(&world, &e).await;
    let mut dirs = Vec::new();
    for (outer, inner) in (0..OUTER).flat_map(|o| (0..INNER).map(move |i| (o, i))) {
        // Known by its name, or not known at all.
        let dir = format!("tree/o{outer}/i{inner}");
        if outer % 2 == 0 && inner < 5 {
            e.find(&format!("/lab/{dir}")).await.unwrap();
        }
        world.write(&format!("{dir}/f"), b"edited");
        world.memory.tell(&path(&dir), &["f"]);
        dirs.push(dir);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    arrives(&world, walk).await;
    let tree = e.find("/lab/tree").await.unwrap();
    let lines = find(&e, tree).await;
    let files = lines.iter().filter(|line| line.contains("/f ")).collect::<Vec<_>>();
    assert!(files.len() == dirs.len() && files.iter().all(|line| line.ends_with(" 6")), "{files:?}");
    clock.skip(60);
    assert_eq!(find(&e, tree).await, lines);
}

#[tokio::test]
async fn what_we_have_done_meanwhile_stays() {
    let (world, _) = world();
    let e = world.start().await;
    let walk = late_walk(&world, &e).await;
    let tree = e.find("/lab/tree").await.unwrap();
    let mut expected = Vec::new();
    for outer in 0..OUTER {
        let dir = e.find(&format!("/lab/tree/o{outer}/i0")).await.unwrap();
        e.create(dir, "made").await.unwrap();
        e.vfs.remove(e.ctx(), dir, b"f").await.unwrap();
        let (from, to) = (e.find(&format!("/lab/tree/o{outer}")).await.unwrap(), tree);
        e.vfs
            .rename(e.ctx(), from, b"i1", to, format!("moved{outer}").as_bytes(), RenameHow::Replace)
            .await
            .unwrap();
        expected.push(format!("/moved{outer}/f 7"));
        if outer % 2 == 0 {
            e.sync().await;
        }
    }
    arrives(&world, walk).await;
    let lines = find(&e, tree).await;
    assert_eq!(lines.iter().filter(|line| line.ends_with("/i0/made 0")).count() as u64, OUTER, "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("/i0/f ") && !line.contains("/i1 ")), "{lines:?}");
    assert!(expected.iter().all(|line| lines.contains(line)), "{lines:?}");
    e.sync().await;
    assert_eq!(find(&e, tree).await, lines);
}

#[tokio::test]
async fn a_younger_listing_stays() {
    let (world, _) = world();
    let e = world.start().await;
    let walk = late_walk(&world, &e).await;
    for outer in 0..OUTER {
        world.write(&format!("tree/o{outer}/i0/new"), b"new");
        world.remove(&format!("tree/o{outer}/i0/f"));
    }
    let list = async || {
        for outer in 0..OUTER {
            let dir = e.find(&format!("/lab/tree/o{outer}/i0")).await.unwrap();
            assert_eq!(e.names(dir).await, ["new"]);
        }
    };
    list().await;
    arrives(&world, walk).await;
    let asked = world.memory.counters().calls();
    list().await;
    assert_eq!(world.memory.counters().calls(), asked, "what is known is not asked for again");
}

#[tokio::test]
async fn a_prefetch_of_names_walks() {
    let (world, _) = world();
    let e = world.start().await;
    let prefetch = e.vfs.prefetch(e.cred.clone(), true);
    prefetch.add([b"lab/tree".to_vec().into()]);
    let progress = prefetch.progress(Duration::from_secs(20)).await;
    assert!(progress.over && progress.failed.is_empty(), "{progress:?}");
    assert_eq!((progress.dirs, progress.files.0), (DIRS, OUTER * INNER));
    let asked = world.memory.counters();
    assert!(asked.walk <= 6 && asked.list <= 2 && asked.walked <= ALL_DIRS, "{asked:?}");
    let walks = || e.vfs.status().volumes[0].walks;
    assert_eq!(
        (walks().crawls, walks().asked, walks().used),
        (0, asked.walk, 1),
        "nobody has looked, but at the root"
    );
    let first = e.find("/lab/tree/o1/i1/f").await.unwrap();
    assert_eq!(
        (e.vfs.getattr(e.ctx(), first).await.unwrap().size, walks().used),
        (7, 4),
        "tree, o1 and i1, too"
    );
    world.fault(Fault::Unreachable);
    assert_eq!(find(&e, e.find("/lab/tree").await.unwrap()).await.len() as u64, OUTER * (1 + 2 * INNER));
}

/// Directories of which a walk comes to a few: each is as long as what it may bring for several.
async fn walk_that_ends_early() -> (World, Engine, Vec<String>) {
    let mut world = World::new(Mode::Wb);
    world.memory.set_walks();
    world.mkdir("tree");
    let dirs: Vec<String> = (0..10).map(|n| format!("tree/d{n}")).collect();
    for dir in &dirs {
        world.mkdir(dir);
        (0..500).for_each(|file| world.write(&format!("{dir}/{file}"), b""));
    }
    world.staleness = Duration::from_secs(60);
    let e = world.start().await;
    let tree = e.find("/lab/tree").await.unwrap();
    let first = e.names(tree).await.remove(0);
    world.fault(Fault::LateWalks(false));
    e.names(e.find(&format!("/lab/tree/{first}")).await.unwrap()).await;
    while world.memory.counters().walk == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(world.memory.counters().walked < dirs.len() as u64 / 2);
    (world, e, dirs)
}

#[tokio::test]
async fn a_directory_that_a_walk_did_not_come_to_is_not_taken_for_an_empty_one() {
    let (world, e, dirs) = walk_that_ends_early().await;
    let tree = e.find("/lab/tree").await.unwrap();
    let removals = dirs.iter().map(|dir| e.vfs.rmdir(e.ctx(), tree, &dir.as_bytes()[5..]));
    let removals = futures_util::future::join_all(removals);
    let (removed, ()) = tokio::join!(removals, async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.fault(Fault::None);
    });
    for (dir, removed) in dirs.iter().zip(removed) {
        assert_eq!(removed.unwrap_err().kind, home::ErrorKind::NotEmpty, "{dir}");
    }
}
