//! Long files at a home that is written in steps, where a connection ends in the middle of a write: what is there then is our
//! own, or it is a conflict.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::steps::{PACKET, StepsHome};
use common::{Engine, World, noise};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use vfs::{Mode, Oid, SetAttrs};

const MIB: usize = 1 << 20;

struct Bench {
    home: Arc<StepsHome>,
    e: Engine,
    file: Oid,
    _world: World,
}

impl Bench {
    /// A file of so many bytes, which the home has.
    async fn new(len: usize) -> Bench {
        let home = Arc::new(StepsHome::default());
        let world = World { way: Some(home.clone()), ..World::new(Mode::Wb) };
        let e = world.start().await;
        let file = e.create(e.lab().await, "f").await.unwrap();
        let b = Bench { home, e, file, _world: world };
        b.write(0, &noise(len, 1)).await;
        b.e.sync().await;
        assert!(b.home.bytes("f") == noise(len, 1));
        b
    }

    async fn write(&self, at: usize, bytes: &[u8]) {
        for (i, part) in bytes.chunks(MIB).enumerate() {
            self.e.write(self.file, (at + i * MIB) as u64, part).await.unwrap();
        }
    }

    async fn cut_off(&self, size: usize) {
        let size = SetAttrs { size: Some(size as u64), ..SetAttrs::default() };
        self.e.vfs.setattr(self.e.ctx(), self.file, size, None).await.unwrap();
    }

    /// Waits until the connection has ended.
    async fn ended(&self) {
        while !self.home.is_away() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn all_arrives(&self) {
        self.home.come_back();
        self.e.sync().await;
    }

    fn conflicts(&self) -> u64 {
        self.e.vfs.status().volumes[0].conflicts
    }
}

#[tokio::test]
async fn half_of_what_was_added_is_ours_where_the_file_was_begun_again_meanwhile() {
    let b = Bench::new(3 * MIB).await;
    b.home.cut_after(7);
    b.write(3 * MIB, &noise(MIB, 2)).await;
    b.ended().await;
    assert!((3 * MIB + 1..4 * MIB).contains(&b.home.bytes("f").len()), "half of it");
    b.cut_off(0).await;
    b.write(0, &noise(2 * MIB, 3)).await;
    b.all_arrives().await;
    assert_eq!((b.conflicts(), b.home.names()), (0, vec!["f".to_owned()]));
    assert!(b.home.bytes("f") == noise(2 * MIB, 3));
}

#[tokio::test]
async fn half_of_what_was_written_over_is_ours() {
    // In the same second it has the size and the time of what is whole.
    for (again, prompt) in [(false, false), (true, false), (false, true), (true, true)] {
        let b = Bench::new(3 * MIB).await;
        if prompt {
            b.home.be_prompt();
        }
        b.home.cut_after(7);
        b.write(MIB / 2, &noise(MIB, 2)).await;
        b.ended().await;
        if again {
            b.write(0, &noise(2 * MIB, 3)).await;
        }
        b.all_arrives().await;
        assert_eq!((b.conflicts(), b.home.names()), (0, vec!["f".to_owned()]));
        let mut wanted = noise(3 * MIB, 1);
        wanted[MIB / 2..3 * MIB / 2].copy_from_slice(&noise(MIB, 2));
        if again {
            wanted[..2 * MIB].copy_from_slice(&noise(2 * MIB, 3));
        }
        assert!(b.home.bytes("f") == wanted);
    }
}

#[tokio::test]
async fn a_byte_of_another_program_in_half_of_ours_is_a_conflict() {
    // Before, within and behind what was written; begun again, shorter or with a hole.
    let places = [1, 3 * MIB + 5, 3 * MIB + 8 * PACKET];
    for (at, again) in places.into_iter().flat_map(|at| [(at, 0), (at, 5 * MIB)]) {
        let b = Bench::new(3 * MIB).await;
        b.home.cut_after(7);
        b.write(3 * MIB, &noise(MIB, 2)).await;
        b.ended().await;
        let mut theirs = b.home.bytes("f");
        theirs.resize(theirs.len().max(at + 1), 0);
        theirs[at] ^= 1;
        b.home.write("f", theirs.clone(), 1_000_000_000);
        b.cut_off(0).await;
        b.write(again, &noise(2 * MIB, 3)).await;
        b.all_arrives().await;
        let names = b.home.names();
        assert_eq!((b.conflicts(), names.len()), (1, 2), "{at}, {again}: {names:?}");
        assert!(b.home.bytes("f") == theirs, "{at}, {again}");
        let ours = [vec![0; again], noise(2 * MIB, 3)].concat();
        assert!(b.home.bytes(&names[1]) == ours, "{at}, {again}");
    }
}

/// What was never seen here cannot be told from what another program has written.
#[tokio::test]
async fn half_of_what_was_written_over_unseen_bytes_is_a_conflict() {
    let home = Arc::new(StepsHome::default());
    home.write("f", noise(3 * MIB, 1), 1_000_000_000);
    home.be_prompt();
    let world = World { way: Some(home.clone()), ..World::new(Mode::Wb) };
    let e = world.start().await;
    e.names(e.lab().await).await;
    let file = e.find("/lab/f").await.unwrap();
    let b = Bench { home, e, file, _world: world };
    b.home.cut_after(7);
    b.write(MIB / 2, &noise(MIB, 2)).await;
    b.ended().await;
    let half = b.home.bytes("f");
    b.all_arrives().await;
    let names = b.home.names();
    assert_eq!((b.conflicts(), names.len()), (1, 2), "{names:?}");
    assert!(b.home.bytes("f") == half);
    let mut wanted = noise(3 * MIB, 1);
    wanted[MIB / 2..3 * MIB / 2].copy_from_slice(&noise(MIB, 2));
    assert!(b.home.bytes(&names[1]) == wanted, "ours is whole");
}

#[tokio::test]
async fn however_often_connections_end_a_long_file_arrives_without_a_conflict() {
    for seed in 0..3 {
        let mut rng = StdRng::seed_from_u64(seed);
        let b = Bench::new(rng.random_range(MIB..3 * MIB)).await;
        let mut wanted = b.home.bytes("f");
        for step in 0..8 {
            if rng.random_bool(0.5) {
                b.home.cut_after(rng.random_range(0..60));
            }
            if rng.random_bool(0.25) {
                let size = [0, rng.random_range(0..3 * MIB)][rng.random_range(0..2)];
                wanted.resize(size, 0);
                b.cut_off(size).await;
            }
            let at = [wanted.len(), 0, rng.random_range(0..=wanted.len())][rng.random_range(0..3)];
            let bytes = noise(rng.random_range(1..2 * MIB), 1000 * seed + step);
            wanted.resize(wanted.len().max(at + bytes.len()), 0);
            wanted[at..at + bytes.len()].copy_from_slice(&bytes);
            b.write(at, &bytes).await;
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..150))).await;
            if rng.random_bool(0.8) {
                b.home.come_back();
            }
        }
        while !b.home.is_away() && b.e.vfs.status().volumes[0].unsent_ops > 0 || b.home.is_away() {
            b.home.come_back();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((b.conflicts(), b.home.names()), (0, vec!["f".to_owned()]), "seed {seed}");
        assert!(b.home.bytes("f") == wanted, "seed {seed}");
    }
}
