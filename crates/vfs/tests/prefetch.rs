//! What was brought into the cache is there when the home is not, and nothing that is used goes out for it.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World};
use home::ErrorKind;
use home::testing::fault::Fault;
use std::time::Duration;
use vfs::{Mode, PrefetchProgress};

const DIRS: u64 = 5;
const FILES: u64 = 40;

/// Directories in directories, with small files and one of more than a part.
fn world() -> World {
    let world = World::new(Mode::Wb);
    for d in 0..DIRS {
        world.mkdir(&format!("d{d}"));
        world.mkdir(&format!("d{d}/e"));
        (0..FILES).for_each(|f| world.write(&format!("d{d}/e/f{f}"), content(d, f).as_bytes()));
    }
    world.write("d0/big", &big());
    world.write("d0/none", b"");
    world
}

fn content(d: u64, f: u64) -> String {
    format!("content {f} of {d}")
}

fn big() -> Vec<u8> {
    (0..3_500_000u32).map(|i| (i >> 3) as u8).collect()
}

async fn prefetch(e: &Engine, names_only: bool, paths: &[&str]) -> PrefetchProgress {
    let prefetch = e.vfs.prefetch(e.cred.clone(), names_only);
    prefetch.add(paths.iter().map(|path| path.as_bytes().to_vec().into()));
    let progress = prefetch.progress(Duration::from_secs(20)).await;
    assert!(progress.over, "{progress:?}");
    progress
}

fn failed(progress: &PrefetchProgress) -> Vec<(String, ErrorKind)> {
    progress.failed.iter().map(|(path, e)| (path.escape_ascii().to_string(), e.kind)).collect()
}

async fn read_all(e: &Engine) {
    for d in 0..DIRS {
        let names = e.names(e.find(&format!("/lab/d{d}/e")).await.unwrap()).await;
        assert_eq!(names.len() as u64, FILES);
        for f in 0..FILES {
            let file = e.find(&format!("/lab/d{d}/e/f{f}")).await.unwrap();
            assert_eq!(e.read(file).await.unwrap(), content(d, f).as_bytes());
        }
    }
    assert_eq!(e.read(e.find("/lab/d0/big").await.unwrap()).await.unwrap(), big());
    assert_eq!(e.read(e.find("/lab/d0/none").await.unwrap()).await.unwrap(), b"");
}

#[tokio::test]
async fn a_subtree_is_whole_when_its_home_is_gone() {
    let world = world();
    let e = world.start().await;
    let progress = prefetch(&e, false, &["lab/"]).await;
    assert!(progress.failed.is_empty() && progress.full.is_none(), "{progress:?}");
    assert_eq!(progress.files, (DIRS * FILES + 2, DIRS * FILES + 2));
    assert_eq!((progress.dirs, progress.names), (2 * DIRS + 1, DIRS * (2 + FILES) + 2));
    assert_eq!((progress.bytes.0, progress.bytes.0), (progress.bytes.1, progress.fetched));
    let parts = big().len().div_ceil(1 << 20) as u64;
    assert_eq!(world.memory.counters().read, DIRS * FILES + parts, "each part once");
    let again = prefetch(&e, false, &["/lab/d0", "lab/d1/e/f3"]).await;
    assert_eq!((again.fetched, again.files), (0, (FILES + 3, FILES + 3)), "all of it was there");
    assert_eq!(again.bytes.0, again.bytes.1);
    world.fault(Fault::Unreachable);
    read_all(&e).await;
}

#[tokio::test]
async fn names_alone_cost_no_content() {
    let world = world();
    let e = world.start().await;
    let progress = prefetch(&e, true, &["lab"]).await;
    assert_eq!((progress.files.0, progress.fetched), (DIRS * FILES + 2, 0));
    assert_eq!(world.memory.counters().read, 0);
    world.fault(Fault::Unreachable);
    // Whoever walks through it asks for that, too.
    assert_ne!(e.vfs.statfs(e.ctx(), e.find("/lab").await.unwrap()).await.unwrap().total, 0);
    for d in 0..DIRS {
        assert_eq!(e.names(e.find(&format!("/lab/d{d}/e")).await.unwrap()).await.len() as u64, FILES);
    }
}

#[tokio::test]
async fn what_cannot_be_had_is_named_and_the_rest_is_there() {
    let world = world();
    let e = world.start().await;
    let progress =
        prefetch(&e, false, &["lab/d0", "lab/missing", "/", "lab/d1/e/f0/x", "lab/d2/e/../e/f7"]).await;
    let mut names = failed(&progress);
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("/", ErrorKind::Invalid),
        ("lab/d1/e/f0/x", ErrorKind::NotDir),
        ("lab/missing", ErrorKind::NotFound),
    ];
    assert_eq!(names, expected.map(|(path, kind)| (path.to_string(), kind)));
    assert_eq!(progress.files, (FILES + 3, FILES + 3));
    world.fault(Fault::Unreachable);
    assert_eq!(e.read(e.find("/lab/d2/e/f7").await.unwrap()).await.unwrap(), content(2, 7).as_bytes());
}

#[tokio::test]
async fn it_ends_where_something_used_would_have_to_go() {
    let mut world = World::new(Mode::Wb);
    world.cache = 24 << 20;
    let part = |n: u8| vec![n; 1 << 20];
    world.write("used", &part(77));
    world.mkdir("much");
    (0..40).for_each(|n| world.write(&format!("much/{n}"), &part(n)));
    let e = world.start().await;
    let used = e.find("/lab/used").await.unwrap();
    assert_eq!(e.read(used).await.unwrap(), part(77));
    let progress = prefetch(&e, false, &["lab/much"]).await;
    let why = progress.full.unwrap();
    assert!(why.detail.contains("no room for lab/much/"), "{why}");
    let there = progress.files.1;
    assert!((15..24).contains(&there), "{there} of 40 files in a cache for 24");
    world.fault(Fault::Unreachable);
    assert_eq!(e.read(used).await.unwrap(), part(77));
}

#[tokio::test]
async fn it_ends_with_whoever_wanted_it() {
    let world = world();
    let e = world.start().await;
    e.lab().await;
    world.fault(Fault::Hang);
    let prefetch = e.vfs.prefetch(e.cred.clone(), false);
    prefetch.add([b"lab/d0".to_vec().into()]);
    assert!(!prefetch.progress(Duration::from_millis(50)).await.over);
    drop(prefetch);
    world.fault(Fault::None);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.memory.counters().read, 0);
}

#[tokio::test]
async fn a_short_outage_costs_time_alone() {
    let world = world();
    let e = world.start().await;
    e.lab().await;
    world.fault(Fault::Unreachable);
    let prefetch = e.vfs.prefetch(e.cred.clone(), false);
    prefetch.add([b"lab".to_vec().into()]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.fault(Fault::None);
    let progress = prefetch.progress(Duration::from_secs(20)).await;
    assert!(progress.over && progress.failed.is_empty(), "{progress:?}");
    world.fault(Fault::Unreachable);
    read_all(&e).await;
}
