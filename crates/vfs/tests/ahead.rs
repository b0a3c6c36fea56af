//! Whoever walks through a tree waits for the home a few times, not once for each directory and small file.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::World;
use home::memory::Counters;
use home::testing::fault::Fault;
use std::time::Duration;
use vfs::Mode;

const CHILDREN: u64 = 12;

fn world(mode: Mode) -> World {
    let world = World::new(mode);
    for i in 0..CHILDREN {
        world.mkdir(&format!("d{i}"));
        world.write(&format!("d{i}/f"), b"content");
    }
    world
}

/// Waits until the home was asked so often, and a while longer, and answers how often it was.
async fn asked(world: &World, of: impl Fn(Counters) -> u64, times: u64) -> u64 {
    for _ in 0..500 {
        if of(world.memory.counters()) >= times {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    of(world.memory.counters())
}

#[tokio::test]
async fn a_walk_finds_listings_that_nobody_waited_for() {
    let world = world(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    assert_eq!(e.names(lab).await.len() as u64, CHILDREN);
    let dirs: Vec<_> = e.vfs.readdir(e.ctx(), lab, 0, 100).await.unwrap().entries.split_off(2);
    e.names(dirs[0].oid).await;
    assert_eq!(asked(&world, |c| c.list, 2).await, 2, "one directory is no walk");
    for dir in &dirs[1..4] {
        e.names(dir.oid).await;
    }
    assert_eq!(asked(&world, |c| c.list, 1 + CHILDREN).await, 1 + CHILDREN, "each directory is listed once");
    world.fault(Fault::Unreachable);
    for dir in &dirs {
        assert_eq!(e.names(dir.oid).await, ["f"]);
    }
}

/// As git does with what it knows of, who lists nothing by himself.
#[tokio::test]
async fn who_looks_for_names_in_one_directory_after_another_finds_the_next_ones_listed() {
    let world = world(Mode::Wb);
    let e = world.start().await;
    let look = async |i| e.find(&format!("/lab/d{i}/f")).await.unwrap();
    look(0).await;
    assert_eq!(asked(&world, |c| c.list, 2).await, 2, "one directory is no walk");
    for i in 1..4 {
        look(i).await;
    }
    assert_eq!(asked(&world, |c| c.list, 1 + CHILDREN).await, 1 + CHILDREN, "each directory is listed once");
    world.fault(Fault::Unreachable);
    for i in 0..CHILDREN {
        look(i).await;
    }
}

/// Whoever walks through directories of directories, as `find` does, does not stop at the end of each.
#[tokio::test]
async fn a_walk_goes_on_into_the_next_directory() {
    let world = World::new(Mode::Wb);
    for outer in ["a", "b", "c"] {
        world.mkdir(outer);
        (0..CHILDREN).for_each(|i| world.mkdir(&format!("{outer}/d{i}")));
    }
    let e = world.start().await;
    let walk = async |dir| {
        for entry in e.vfs.readdir(e.ctx(), dir, 0, 100).await.unwrap().entries.split_off(2) {
            e.names(entry.oid).await;
        }
    };
    let outer = e.vfs.readdir(e.ctx(), e.lab().await, 0, 100).await.unwrap().entries.split_off(2);
    for entry in &outer[..2] {
        walk(entry.oid).await;
    }
    assert_eq!(asked(&world, |c| c.list, 4 + 3 * CHILDREN).await, 4 + 3 * CHILDREN, "each is listed once");
    world.fault(Fault::Unreachable);
    walk(outer[2].oid).await;
}

/// So many bytes that two more come with the first one that is read.
fn content(i: u64) -> Vec<u8> {
    vec![i as u8; 50 << 10]
}

#[tokio::test]
async fn small_files_come_before_they_are_read() {
    let world = World::new(Mode::Wb);
    for i in 0..CHILDREN {
        world.write(&format!("f{i}"), &content(i));
    }
    world.write("big", &vec![7; 300_000]);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    let read = |i: u64| {
        let e = &e;
        async move { e.read(e.find(&format!("/lab/f{i}")).await.unwrap()).await.unwrap() }
    };
    assert_eq!(read(0).await, content(0));
    assert_eq!(asked(&world, |c| c.read, 3).await, 3, "those beside it, as far as there is room");
    for i in 1..CHILDREN {
        assert_eq!(read(i).await, content(i));
    }
    assert_eq!(asked(&world, |c| c.read, CHILDREN).await, CHILDREN, "each file is read once, and no big one");
}

/// As one who looks for a file in each of many directories.
#[tokio::test]
async fn who_reads_one_file_here_and_one_there_gets_no_others_with_them() {
    let world = World::new(Mode::Wb);
    for dir in ["a", "b", "c"] {
        world.mkdir(dir);
        (0..CHILDREN).for_each(|i| world.write(&format!("{dir}/f{i}"), &content(i)));
    }
    let e = world.start().await;
    for (dir, with) in [("a", 3), ("b", 4), ("c", 5)] {
        assert_eq!(e.read(e.find(&format!("/lab/{dir}/f4")).await.unwrap()).await.unwrap(), content(4));
        assert_eq!(asked(&world, |c| c.read, with).await, with, "{dir}");
    }
}

#[tokio::test]
async fn who_reads_small_files_at_random_gets_few_others_with_them() {
    const FILES: u64 = 600;
    let world = World::new(Mode::Wb);
    (0..FILES).for_each(|i| world.write(&format!("f{i:03}"), &content(i)));
    let e = world.start().await;
    e.names(e.lab().await).await;
    for n in 0..100 {
        let i = n * 7919 % FILES;
        assert_eq!(e.read(e.find(&format!("/lab/f{i:03}")).await.unwrap()).await.unwrap(), content(i));
    }
    let reads = asked(&world, |c| c.read, 0).await;
    assert!(reads < 130, "{reads} for 100");
}

#[tokio::test]
async fn who_reads_a_file_in_order_waits_for_a_few_parts_of_it() {
    const MIB: u64 = 48;
    let world = World::new(Mode::Wb);
    world.write("big", &vec![7; (MIB << 20) as usize]);
    let e = world.start().await;
    assert_eq!(e.read(e.find("/lab/big").await.unwrap()).await.unwrap().len() as u64, MIB << 20);
    let counters = world.memory.counters();
    assert_eq!(counters.read, MIB, "no part twice");
    assert!(counters.read - counters.read_ahead < 4, "{counters:?}");
}

#[tokio::test]
async fn who_reads_the_beginning_of_a_file_brings_a_few_times_as_much() {
    let world = World::new(Mode::Wb);
    world.write("big", &vec![7; 48 << 20]);
    let e = world.start().await;
    let big = e.find("/lab/big").await.unwrap();
    e.vfs.read(e.ctx(), big, 0, 1 << 20).await.unwrap();
    assert_eq!(asked(&world, |c| c.read, 5).await, 5);
}

#[tokio::test]
async fn no_more_is_read_ahead_than_the_way_to_the_home_carries() {
    let world = World::new(Mode::Wb);
    world.write("big", &vec![7; 48 << 20]);
    world.memory.set_window(3 << 19);
    let e = world.start().await;
    let big = e.find("/lab/big").await.unwrap();
    for mib in 0..16 {
        e.vfs.read(e.ctx(), big, mib << 20, 1 << 20).await.unwrap();
    }
    assert_eq!(asked(&world, |c| c.read, 20).await, 20, "1.5 MiB are under way in two parts, and two wait");
}

/// Twice what is under way, so that it need not stop.
#[tokio::test]
async fn no_more_small_files_are_asked_for_ahead_than_the_way_to_the_home_carries() {
    for (window, reads) in [(None, 100..=188), (Some(256 << 10), 60..=70)] {
        let world = World::new(Mode::Wb);
        let names: Vec<String> = (0..300).map(|i| format!("f{i:03}")).collect();
        names.iter().for_each(|name| world.write(name, &[7; 64 << 10]));
        window.into_iter().for_each(|window| world.memory.set_window(window));
        let e = world.start().await;
        for name in e.names(e.lab().await).await.into_iter().take(60) {
            e.read(e.find(&format!("/lab/{name}")).await.unwrap()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let asked = world.memory.counters().read;
        assert!(reads.contains(&asked), "{window:?}: {asked} for 60");
    }
}

/// Files come in the order in which they are read: by name or by fileid, both of which differ from that of the listing.
#[tokio::test]
async fn who_reads_in_another_order_finds_what_comes_next_in_it() {
    let (files, read) = (60, 6);
    let made: Vec<String> = (0..files).map(|i| format!("f{:02}", i * 7 % files)).collect();
    let mut named = made.clone();
    named.sort();
    for order in [&made, &named] {
        let world = World::new(Mode::Wb);
        let content = |name: &String| name.as_bytes().repeat(10_000);
        made.iter().for_each(|name| world.write(name, &content(name)));
        let e = world.start().await;
        let lab = e.lab().await;
        assert_eq!(e.names(lab).await.len(), files);
        let check = async |name: &String| {
            let file = e.find(&format!("/lab/{name}")).await.unwrap();
            assert_eq!(e.read(file).await.unwrap(), content(name));
        };
        for name in &order[..read] {
            check(name).await;
        }
        let few = asked(&world, |c| c.read, read as u64 + 4).await;
        assert!(few < files as u64, "all were asked for");
        world.fault(Fault::Unreachable);
        for name in &order[read..read + 4] {
            check(name).await;
        }
    }
}

/// Directories with a few small files each, all of them listed.
async fn crawled(order: impl Fn(&mut Vec<String>)) {
    let (dirs, files) = (6, 5);
    let world = World::new(Mode::Wb);
    for (d, f) in (0..dirs).flat_map(|d| (0..files).map(move |f| (d, f))) {
        if f == 0 {
            world.mkdir(&format!("d{d}"));
        }
        world.write(&format!("d{d}/f{f}"), format!("content {d} {f}").as_bytes());
    }
    let e = world.start().await;
    let lab = e.lab().await;
    let listed = e.vfs.readdir(e.ctx(), lab, 0, 100).await.unwrap().entries.split_off(2);
    let mut names: Vec<_> = listed.iter().map(|e| e.name.escape_ascii().to_string()).collect();
    order(&mut names);
    for name in &names {
        e.names(e.find(&format!("/lab/{name}")).await.unwrap()).await;
    }
    let read = |dir: String, f: u64| {
        let e = &e;
        async move { e.read(e.find(&format!("/lab/{dir}/f{f}")).await.unwrap()).await.unwrap() }
    };
    for f in 0..files {
        read(names[0].clone(), f).await;
    }
    assert_eq!(asked(&world, |c| c.read, files).await, files, "nothing of a directory where nobody was");
    for (dir, f) in (1..3).flat_map(|dir| (0..files).map(move |f| (dir, f))) {
        read(names[dir].clone(), f).await;
    }
    assert_eq!(asked(&world, |c| c.read, dirs * files).await, dirs * files, "all that comes next, once");
    world.fault(Fault::Unreachable);
    for (name, f) in names.iter().flat_map(|name| (0..files).map(move |f| (name, f))) {
        assert_eq!(read(name.clone(), f).await, format!("content {} {f}", &name[1..]).as_bytes());
    }
}

#[tokio::test]
async fn who_reads_one_directory_after_another_finds_the_next_ones() {
    crawled(|_| ()).await;
    crawled(|names| names.sort()).await;
}

#[tokio::test]
async fn strict_asks_for_nothing_that_it_could_not_use() {
    let world = world(Mode::Strict);
    let e = world.start().await;
    let lab = e.lab().await;
    let dirs: Vec<_> = e.vfs.readdir(e.ctx(), lab, 0, 100).await.unwrap().entries.split_off(2);
    for dir in &dirs[..4] {
        e.names(dir.oid).await;
    }
    let listed = asked(&world, |c| c.list, 5).await;
    assert_eq!(listed, 5, "the listings that somebody waited for");
}
