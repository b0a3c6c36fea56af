//! What the home has already does not travel.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World, noise};
use home::memory::Counters;
use home::testing::fault::Fault;
use vfs::{Mode, Oid, RenameHow, SetAttrs};

const MIB: usize = 1 << 20;

/// A home that is far and has a file, which was read here.
async fn read_before(content: &[u8]) -> (World, Engine) {
    let world = World::new(Mode::Wb);
    world.memory.set_copies();
    world.write("f", content);
    let e = world.start().await;
    assert!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap() == content);
    (world, e)
}

async fn write_all(e: &Engine, file: Oid, content: &[u8], step: usize) {
    for (i, part) in content.chunks(step).enumerate() {
        e.write(file, (i * step) as u64, part).await.unwrap();
    }
}

/// As many editors do it. Nothing goes home before all is written, however long that takes.
async fn save(world: &World, e: &Engine, content: &[u8], step: usize) {
    let lab = e.lab().await;
    let file = e.create(lab, "f.tmp").await.unwrap();
    world.fault(Fault::Unreachable);
    write_all(e, file, content, step).await;
    e.vfs.rename(e.ctx(), lab, b"f.tmp", lab, b"f", RenameHow::Replace).await.unwrap();
    world.fault(Fault::None);
    e.sync().await;
}

async fn is_at_home(world: &World, path: &str, content: &[u8]) {
    assert!(world.at_home(path).await.unwrap() == content);
}

fn since(world: &World, before: Counters) -> (u64, u64) {
    let now = world.memory.counters();
    (now.bytes_staged - before.bytes_staged, now.bytes_copied - before.bytes_copied)
}

#[tokio::test]
async fn a_file_that_is_saved_beside_and_renamed_sends_what_has_changed() {
    let old = noise(6 * MIB, 1);
    let new = noise(MIB, 2);
    let changed = [&old[..2 * MIB], &new, &old[3 * MIB..]].concat();
    let inserted = [&old[..2 * MIB + 77], &new, &old[2 * MIB + 77..]].concat();
    let removed = [&old[..MIB + 5], &old[3 * MIB..]].concat();
    for (content, step, most) in
        [(&changed, MIB, MIB), (&removed, MIB, 0), (&inserted, 128 << 10, MIB), (&inserted, 5000, MIB)]
    {
        let (world, e) = read_before(&old).await;
        let before = world.memory.counters();
        save(&world, &e, content, step).await;
        is_at_home(&world, "f", content).await;
        let (staged, copied) = since(&world, before);
        assert!(staged as usize <= most + (most + 3 * MIB) / 40, "{staged} bytes staged for {step}");
        // Some of it may have travelled in its operation.
        assert!((content.len() - MIB..=content.len()).contains(&((staged + copied) as usize)));
        // What was saved is what the next one is like.
        let before = world.memory.counters();
        save(&world, &e, &old, step).await;
        is_at_home(&world, "f", &old).await;
        assert!(since(&world, before).0 as usize <= 2 * MIB + MIB / 4);
    }
}

#[tokio::test]
async fn single_bytes_in_many_places_cost_little() {
    let old = noise(5 * MIB, 3);
    let (world, e) = read_before(&old).await;
    let mut new = old.clone();
    (1..=20).for_each(|i| new.insert(i * 250_001, b'!'));
    let before = world.memory.counters();
    save(&world, &e, &new, MIB).await;
    is_at_home(&world, "f", &new).await;
    let (staged, _) = since(&world, before);
    assert!(staged < 64 << 10, "{staged} bytes staged");
}

#[tokio::test]
async fn a_copy_within_the_mount_does_not_travel() {
    let old = noise(3 * MIB, 4);
    let (world, e) = read_before(&old).await;
    let before = world.memory.counters();
    let copy = e.create(e.lab().await, "copy").await.unwrap();
    write_all(&e, copy, &old, MIB).await;
    e.sync().await;
    is_at_home(&world, "copy", &old).await;
    assert!(since(&world, before).0 < 64 << 10);
}

#[tokio::test]
async fn a_file_that_is_cut_and_written_anew_sends_what_has_changed() {
    let mut content = noise(3 * MIB, 5);
    let (world, e) = read_before(&content).await;
    for i in 0..3 {
        content[MIB + i..MIB + 1000].fill(b'x');
        let before = world.memory.counters();
        let file = e.find("/lab/f").await.unwrap();
        let size = SetAttrs { size: Some(0), ..SetAttrs::default() };
        e.vfs.setattr(e.ctx(), file, size, None).await.unwrap();
        write_all(&e, file, &content, MIB).await;
        e.sync().await;
        is_at_home(&world, "f", &content).await;
        let (staged, _) = since(&world, before);
        assert!(staged < 128 << 10, "{staged} bytes staged");
    }
}

#[tokio::test]
async fn what_was_changed_at_the_home_meanwhile_is_not_believed() {
    let old = noise(6 * MIB, 6);
    let (world, e) = read_before(&old).await;
    let lab = e.lab().await;
    let copy = e.create(lab, "copy").await.unwrap();
    let mut theirs = old.clone();
    theirs[3 * MIB + 5] ^= 1;
    world.write("f", &theirs);
    write_all(&e, copy, &old, MIB).await;
    e.sync().await;
    is_at_home(&world, "copy", &old).await;
    is_at_home(&world, "f", &theirs).await;
    // Nor one that is gone.
    assert!(e.read(copy).await.unwrap() == old);
    world.remove("copy");
    let again = e.create(lab, "again").await.unwrap();
    write_all(&e, again, &old, MIB).await;
    e.sync().await;
    is_at_home(&world, "again", &old).await;
}

#[tokio::test]
async fn lost_answers_and_what_the_home_forgets_change_nothing() {
    let old = noise(9 * MIB, 7);
    let (world, e) = read_before(&old).await;
    let new = [&old[..4 * MIB], b"something", &old[4 * MIB..]].concat();
    let lab = e.lab().await;
    let file = e.create(lab, "f.tmp").await.unwrap();
    for (i, part) in new.chunks(MIB).enumerate() {
        e.write(file, (i * MIB) as u64, part).await.unwrap();
        match i {
            2 => world.fault(Fault::AnswersLost),
            4 => world.memory.restart(),
            5 => world.fault(Fault::None),
            _ => tokio::time::sleep(std::time::Duration::from_millis(30)).await,
        }
    }
    e.vfs.rename(e.ctx(), lab, b"f.tmp", lab, b"f", RenameHow::Replace).await.unwrap();
    e.sync().await;
    is_at_home(&world, "f", &new).await;
    assert_eq!(world.names_at_home("").await, ["f"]);
}

#[tokio::test]
async fn what_the_home_does_not_have_travels_as_it_is() {
    let (world, e) = read_before(&noise(4 * MIB, 8)).await;
    let before = world.memory.counters();
    let other = noise(6 * MIB, 9);
    let file = e.create(e.lab().await, "other").await.unwrap();
    write_all(&e, file, &other, MIB).await;
    e.sync().await;
    is_at_home(&world, "other", &other).await;
    assert_eq!(since(&world, before), (other.len() as u64, 0));
    assert_eq!(world.memory.counters().copy, before.copy);
}
