//! One file that is written, cut and extended at random, much faster than its home takes it.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::{Engine, World};
use home::testing::fault::Fault;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};
use vfs::{Mode, Oid, SetAttrs, Stability};

const LEN: usize = 256 << 10;
const OPS: usize = 10_000;

/// A writer and what its file holds by now.
struct Writer {
    rng: StdRng,
    content: Vec<u8>,
    written: u64,
}

impl Writer {
    fn new(seed: u64) -> Writer {
        Writer { rng: StdRng::seed_from_u64(seed), content: Vec::new(), written: 0 }
    }

    async fn step(&mut self, e: &Engine, file: Oid) {
        let at = self.rng.random_range(0..LEN);
        match self.rng.random_range(0..10) {
            0..2 => {
                self.content.resize(at, 0);
                let size = SetAttrs { size: Some(at as u64), ..SetAttrs::default() };
                e.vfs.setattr(e.ctx(), file, size, None).await.unwrap();
            }
            2..7 => {
                let bytes = vec![self.rng.random(); self.rng.random_range(1..16 << 10).min(LEN - at)];
                let end = at + bytes.len();
                self.content.resize(self.content.len().max(end), 0);
                self.content[at..end].copy_from_slice(&bytes);
                self.written += bytes.len() as u64;
                let bytes = Bytes::from(bytes);
                e.vfs.write(e.ctx(), file, at as u64, bytes, Stability::Unstable).await.unwrap();
            }
            _ => {
                let len = self.rng.random_range(1..16 << 10);
                let read = e.vfs.read(e.ctx(), file, at as u64, len as u32).await.unwrap();
                let from = at.min(self.content.len());
                assert!(read.data.concat() == self.content[from..self.content.len().min(at + len)]);
            }
        }
    }
}

#[tokio::test]
async fn what_was_undone_before_it_could_go_home_never_travels() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let file = e.create(e.lab().await, "f").await.unwrap();
    e.sync().await;
    let before = world.memory.counters();
    world.fault(Fault::HangChanges);
    let mut writer = Writer::new(1);
    for _ in 0..OPS {
        writer.step(&e, file).await;
    }
    let unsent = e.vfs.status().volumes[0].unsent_ops;
    assert!(unsent > OPS as u64 / 2, "{unsent} operations");
    world.fault(Fault::None);
    let began = Instant::now();
    e.sync().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let after = world.memory.counters();
    assert!(world.at_home("f").await.unwrap() == writer.content);
    let (ops, bytes) = (after.ops - before.ops, after.bytes_written - before.bytes_written);
    // A batch was on its way already, and one stands for so many records.
    assert!(ops <= 1 + unsent.div_ceil(4096), "{unsent} records went home as {ops} operations");
    assert!(bytes <= ops * LEN as u64, "{bytes} of {} bytes went home", writer.written);
    assert_eq!(after.read, 0);
}

#[tokio::test]
async fn what_we_wrote_is_not_read_from_the_home() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let file = e.create(e.lab().await, "f").await.unwrap();
    for seed in 0..4 {
        let mut writer = Writer::new(seed);
        let empty = SetAttrs { size: Some(0), ..SetAttrs::default() };
        e.vfs.setattr(e.ctx(), file, empty, None).await.unwrap();
        for i in 0..OPS / 10 {
            writer.step(&e, file).await;
            if i % 100 == 99 {
                e.sync().await;
            }
        }
        assert!(e.read(file).await.unwrap() == writer.content);
    }
    assert_eq!(world.memory.counters().read, 0);
}

#[tokio::test]
async fn a_long_queue_is_looked_for_at_few_places_after_a_restart() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let file = e.create(e.lab().await, "f").await.unwrap();
    e.sync().await;
    world.fault(Fault::Unreachable);
    let mut writer = Writer::new(1);
    for _ in 0..OPS {
        writer.step(&e, file).await;
    }
    e.vfs.commit(e.ctx(), file).await.unwrap();
    let unsent = e.vfs.status().volumes[0].unsent_ops;
    assert!(unsent > OPS as u64 / 2, "{unsent} operations");
    world.disk.kill();
    drop(e);
    world.fault(Fault::None);
    let before = world.memory.counters();
    let e = world.start().await;
    e.sync().await;
    let after = world.memory.counters();
    assert!(world.at_home("f").await.unwrap() == writer.content);
    assert!(after.stat - before.stat < 100, "{} questions", after.stat - before.stat);
    assert!(after.ops - before.ops <= unsent.div_ceil(4096), "{} operations", after.ops - before.ops);
}
