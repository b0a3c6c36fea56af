//! What is cached of a file that has changed at the home does not come again.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World, noise};
use home::HomePath;
use std::time::Duration;
use vfs::Mode;

const MIB: usize = 1 << 20;

/// A home that is far, and what a file has there that was read here.
async fn read_before(content: &[u8]) -> (World, Engine) {
    let world = World { staleness: Duration::ZERO, ..World::new(Mode::Wb) };
    world.memory.set_copies();
    world.write("f", content);
    let e = world.start().await;
    assert!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap() == content);
    (world, e)
}

/// Bytes that come when the file is read again, which has this content now.
async fn read_again(world: &World, e: &Engine, content: &[u8]) -> usize {
    let before = world.memory.counters().bytes_read;
    assert!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap() == content);
    (world.memory.counters().bytes_read - before) as usize
}

#[tokio::test]
async fn only_what_has_changed_at_the_home_comes() {
    let old = noise(4 * MIB, 1);
    let new = noise(MIB, 2);
    let appended = [&old[..], &new[..5000]].concat();
    let inserted = [&old[..MIB + 7], &new, &old[MIB + 7..]].concat();
    let removed = [&old[..MIB], &old[2 * MIB + 99..]].concat();
    let changed = [&old[..2 * MIB], &new, &old[3 * MIB..]].concat();
    for (content, most) in [
        (&old, 0),
        (&appended, 5000 + (64 << 10)),
        (&inserted, MIB + (192 << 10)),
        (&removed, 128 << 10),
        (&changed, MIB + (192 << 10)),
        (&noise(4 * MIB, 3), 4 * MIB),
    ] {
        let (world, e) = read_before(&old).await;
        world.write("f", content);
        let came = read_again(&world, &e, content).await;
        assert!(came <= most, "{came} bytes came, of {most}");
        // Nothing is asked for that is known.
        assert_eq!(read_again(&world, &e, content).await, 0);
    }
}

#[tokio::test]
async fn a_file_of_which_only_the_times_are_others_costs_no_bytes_however_often() {
    let old = noise(2 * MIB, 4);
    let (world, e) = read_before(&old).await;
    for mode in [0o600, 0o640, 0o644] {
        world.memory.chmod_outside(&HomePath::parse(b"f").unwrap(), mode);
        assert_eq!(read_again(&world, &e, &old).await, 0);
    }
}

#[tokio::test]
async fn a_log_that_grows_comes_line_by_line() {
    let mut log = noise(MIB, 5);
    let (world, e) = read_before(&log).await;
    for i in 0..8 {
        log.extend(noise(300, 100 + i));
        world.write("f", &log);
        let came = read_again(&world, &e, &log).await;
        assert!(came < 64 << 10, "{came} bytes came");
    }
}
