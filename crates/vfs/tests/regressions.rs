//! What the random tests found once, as small as it can be.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::World;
use home::HomePath;
use home::testing::fault::Fault;
use std::time::Duration;
use vfs::store::MetaStore;
use vfs::{Mode, RenameHow, SetAttrs};

#[tokio::test]
async fn removing_our_copy_leaves_theirs_alone() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_millis(50);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.fault(Fault::Unreachable);
    let f = e.create(lab, "f").await.unwrap();
    e.write(f, 0, b"ours").await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    world.write("f", b"theirs");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"theirs");
    // Ours never went there, so that theirs is seen as any change at the home is.
    tokio::time::sleep(world.staleness).await;
    assert_eq!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap(), b"theirs");
}

/// What another program wrote was seen, and a change made to that, before a server is killed that has saved neither.
#[tokio::test]
async fn a_content_that_was_seen_is_no_conflict_after_a_restart() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::ZERO;
    world.write("f", b"before");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"before");
    e.sync().await;
    world.write("f", b"what is theirs");
    e.vfs.getattr(e.ctx(), f).await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"what is theirs");
    world.fault(Fault::HangChanges);
    e.write(f, 8, b"ours").await.unwrap();
    world.disk.kill();
    drop(e);
    world.reconnect();
    let e = world.start().await;
    e.sync().await;
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
    assert_eq!(world.at_home("f").await.unwrap(), b"what is oursrs");
}

/// The home reads, another program writes, a younger look sees that, and only then the bytes arrive.
#[tokio::test]
async fn bytes_that_arrive_late_are_not_taken_for_a_younger_version() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::ZERO;
    world.write("f", b"before");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    e.vfs.getattr(e.ctx(), f).await.unwrap();
    world.fault(Fault::LateBytes);
    let calls = world.fault.calls();
    let (ctx, vfs) = (e.ctx(), &e.vfs);
    let late = async {
        let read = vfs.read(ctx, f, 0, 100).await.unwrap();
        read.data.concat()
    };
    let meanwhile = async {
        while world.fault.calls() < calls + 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.write("f", b"behind");
        vfs.getattr(ctx, f).await.unwrap();
        world.fault(Fault::None);
    };
    let (read, ()) = tokio::join!(late, meanwhile);
    assert_eq!((&read[..], &e.read(f).await.unwrap()[..]), (&b"behind"[..], &b"behind"[..]));
}

#[tokio::test]
async fn renaming_our_copy_leaves_theirs_alone() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.fault(Fault::Unreachable);
    let f = e.create(lab, "f").await.unwrap();
    e.write(f, 0, b"ours").await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"f", lab, b"g", RenameHow::Replace).await.unwrap();
    world.write("f", b"theirs");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"theirs");
    assert_eq!(world.at_home("g").await.unwrap(), b"ours");
    assert!(e.vfs.status().volumes[0].parked.is_empty());
}

#[tokio::test]
async fn a_file_is_reached_by_the_name_that_it_has_at_that_point() {
    let world = World::new(Mode::Wb);
    world.write("a", b"1");
    world.mkdir("d");
    let e = world.start().await;
    let (lab, d) = (e.lab().await, e.find("/lab/d").await.unwrap());
    let f = e.find("/lab/a").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"1");
    e.names(lab).await;
    e.names(d).await;
    world.fault(Fault::Unreachable);
    e.vfs.link(e.ctx(), f, lab, b"b").await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"a").await.unwrap();
    e.write(f, 1, b"2").await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"b", d, b"c", RenameHow::Replace).await.unwrap();
    e.write(f, 2, b"3").await.unwrap();
    e.vfs.link(e.ctx(), f, lab, b"a").await.unwrap();
    e.vfs.remove(e.ctx(), d, b"c").await.unwrap();
    e.write(f, 3, b"4").await.unwrap();
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("a").await.unwrap(), b"1234");
    assert_eq!(world.names_at_home("d").await, [""; 0]);
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
}

#[tokio::test]
async fn unsent_bytes_survive_that_their_file_is_removed_and_listed() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::ZERO;
    world.write("f", b"base");
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"base");
    e.write(f, 0, b"ours").await.unwrap();
    world.remove("f");
    assert_eq!(e.names(lab).await, ["f"]);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"ours");
}

#[tokio::test]
async fn what_others_put_into_our_directory_is_seen() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_millis(50);
    let e = world.start().await;
    let lab = e.lab().await;
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    e.sync().await;
    world.write("d/theirs", b"x");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(e.names(d).await, ["theirs"]);
}

#[tokio::test]
async fn unsent_names_and_links_count_after_a_restart() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.fault(Fault::Unreachable);
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    let before = e.vfs.getattr(e.ctx(), lab).await.unwrap();
    world.disk.kill();
    drop(e);
    let e = world.start().await;
    assert_eq!(e.names(d).await, [""; 0]);
    world.fault(Fault::None);
    let after = e.vfs.getattr(e.ctx(), lab).await.unwrap();
    assert_eq!((after.nlink, after.mtime), (before.nlink, before.mtime));
    assert!(after.ctime >= before.ctime);
}

#[tokio::test]
async fn a_new_file_renamed_over_a_name_does_not_destroy_what_was_not_seen() {
    let world = World::new(Mode::Wb);
    world.write("f", b"seen");
    let e = world.start().await;
    let lab = e.lab().await;
    assert_eq!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap(), b"seen");
    e.names(lab).await;
    world.fault(Fault::Unreachable);
    let new = e.create(lab, "f.new").await.unwrap();
    e.write(new, 0, b"ours").await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"f.new", lab, b"f", RenameHow::Replace).await.unwrap();
    world.write("f", b"not seen");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"not seen");
    let names = world.names_at_home("").await;
    let copy = names.iter().find(|n| n.starts_with("f.trellis-conflict-")).unwrap();
    assert_eq!(world.at_home(copy).await.unwrap(), b"ours");
    assert_eq!(e.vfs.status().volumes[0].conflicts, 1);
}

#[tokio::test]
async fn an_object_whose_outcome_was_proven_by_a_later_one_keeps_its_id_when_the_process_dies() {
    let world = World::new(Mode::Wb);
    world.mkdir("p");
    let e = world.start().await;
    let (lab, p) = (e.lab().await, e.find("/lab/p").await.unwrap());
    e.names(lab).await;
    e.names(p).await;
    e.vfs.setattr(e.ctx(), p, SetAttrs { mode: Some(0o700), ..SetAttrs::default() }, None).await.unwrap();
    e.sync().await;
    world.fault(Fault::Unreachable);
    let d = e.vfs.mkdir(e.ctx(), p, b"d", SetAttrs::default()).await.unwrap().oid;
    e.vfs.rename(e.ctx(), lab, b"p", lab, b"q", RenameHow::Replace).await.unwrap();
    world.fault(Fault::AnswersLost);
    while world.names_at_home("").await != ["q"] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // It dies after the outcomes were taken in and while the home is slow to say more.
    world.fault(Fault::Delay(Duration::from_secs(1)));
    while e.vfs.status().volumes[0].unsent_ops > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    world.disk.kill();
    drop(e);
    world.fault(Fault::None);
    let e = world.start().await;
    assert_eq!(e.find("/lab/q/d").await.unwrap(), d);
    assert_eq!(e.names(d).await, [""; 0]);
}

#[tokio::test]
async fn the_ctime_of_a_directory_does_not_go_back_when_the_process_dies_after_a_rename() {
    let world = World::new(Mode::Wb);
    world.write("f", b"x");
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    e.vfs.rename(e.ctx(), lab, b"f", lab, b"g", RenameHow::Replace).await.unwrap();
    let before = e.vfs.getattr(e.ctx(), lab).await.unwrap().ctime;
    e.sync().await;
    world.disk.kill();
    drop(e);
    let e = world.start().await;
    let after = e.vfs.getattr(e.ctx(), lab).await.unwrap().ctime;
    assert!(after >= before, "{before:?} {after:?}");
}

#[tokio::test]
async fn cached_bytes_that_a_power_cut_brings_back_do_not_become_the_content_again() {
    // What survives of unsynced bytes differs by seed; a few cover nothing, all and some.
    for seed in 0..6 {
        let world = World::new(Mode::Wb);
        world.write("f", b"old content");
        let e = world.start().await;
        let (lab, f) = (e.lab().await, e.find("/lab/f").await.unwrap());
        assert_eq!(e.read(f).await.unwrap(), b"old content");
        // Too long for the journal, so that the cache becomes durable as it is now.
        let g = e.create(lab, "g").await.unwrap();
        e.write(g, 0, &[b'g'; 100_000]).await.unwrap();
        let empty = SetAttrs { size: Some(0), ..SetAttrs::default() };
        e.vfs.setattr(e.ctx(), f, empty, None).await.unwrap();
        e.sync().await;
        e.create(lab, "h").await.unwrap();
        world.disk.crash(seed);
        drop(e);
        let e = world.start().await;
        e.write(f, 20, b"new").await.unwrap();
        let want = [&[0; 20][..], b"new"].concat();
        assert_eq!(e.read(f).await.unwrap(), want);
        e.sync().await;
        assert_eq!(e.read(f).await.unwrap(), want);
        assert_eq!(world.at_home("f").await.unwrap(), want);
    }
}

#[tokio::test]
async fn a_question_that_our_own_rename_overtakes_is_asked_again() {
    let world = World::new(Mode::Wb);
    world.mkdir("a");
    world.write("a/f", b"content");
    let e = world.start().await;
    let (lab, f) = (e.lab().await, e.find("/lab/a/f").await.unwrap());
    e.names(lab).await;
    world.fault(Fault::Delay(Duration::from_millis(400)));
    e.vfs.rename(e.ctx(), lab, b"a", lab, b"b", RenameHow::Replace).await.unwrap();
    // By now the rename is on its way, which the question about the old place follows.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(e.read(f).await.unwrap(), b"content");
}

#[tokio::test]
async fn a_directory_that_was_moved_and_back_does_not_prove_what_was_never_sent() {
    let world = World::new(Mode::Wb);
    world.mkdir("a");
    world.write("f", b"old");
    let e = world.start().await;
    let (lab, f) = (e.lab().await, e.find("/lab/f").await.unwrap());
    let a = e.find("/lab/a").await.unwrap();
    e.create(a, "x").await.unwrap();
    e.names(lab).await;
    e.sync().await;
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"new").await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"a", lab, b"b", RenameHow::Replace).await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"b", lab, b"a", RenameHow::Replace).await.unwrap();
    world.disk.kill();
    drop(e);
    world.fault(Fault::None);
    let e = world.start().await;
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"new");
    assert_eq!(e.read(f).await.unwrap(), b"new");
}

#[tokio::test]
async fn the_ctime_of_a_directory_does_not_go_back_over_two_restarts() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    e.sync().await;
    world.fault(Fault::HangChanges);
    e.create(d, "x").await.unwrap();
    world.disk.kill();
    drop(e);
    let e = world.start().await;
    e.lab().await;
    let before = e.vfs.getattr(e.ctx(), d).await.unwrap().ctime;
    // It is in the store by now.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    world.disk.kill();
    drop(e);
    world.fault(Fault::None);
    let e = world.start().await;
    e.sync().await;
    let after = e.vfs.getattr(e.ctx(), d).await.unwrap().ctime;
    assert!(after >= before, "{before:?} {after:?}");
}

#[tokio::test]
async fn a_removal_that_the_home_shows_already_takes_no_second_name_away() {
    let world = World::new(Mode::Wb);
    world.write("a", b"x");
    let e = world.start().await;
    let (lab, f) = (e.lab().await, e.find("/lab/a").await.unwrap());
    e.names(lab).await;
    e.vfs.link(e.ctx(), f, lab, b"b").await.unwrap();
    e.sync().await;
    world.fault(Fault::AnswersLost);
    e.vfs.remove(e.ctx(), lab, b"b").await.unwrap();
    while world.names_at_home("").await != ["a"] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.disk.kill();
    drop(e);
    // The agent there has forgotten what it executed.
    world.memory.restart();
    world.fault(Fault::HangChanges);
    let e = world.start().await;
    e.lab().await;
    assert_eq!(e.find("/lab/a").await.unwrap(), f);
    assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().nlink, 1);
}

#[tokio::test]
async fn the_store_is_not_ahead_of_the_journal() {
    let world = World::new(Mode::Wb);
    world.write("a", b"x");
    let e = world.start().await;
    e.lab().await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    world.disk.slow_syncs(Duration::from_millis(2500));
    let saved = world.store.scan(b"b").unwrap();
    e.find("/lab/a").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1800)).await;
    assert_eq!(world.store.scan(b"b").unwrap(), saved);
    world.disk.slow_syncs(Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert_ne!(world.store.scan(b"b").unwrap(), saved);
}

#[tokio::test]
async fn a_directory_that_the_home_shows_already_is_counted_once() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    e.sync().await;
    world.fault(Fault::AnswersLost);
    e.vfs.mkdir(e.ctx(), d, b"x", SetAttrs::default()).await.unwrap();
    e.vfs.mkdir(e.ctx(), d, b"y", SetAttrs::default()).await.unwrap();
    while world.names_at_home("d").await != ["x", "y"] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.disk.kill();
    drop(e);
    // The agent there has forgotten what it executed.
    world.memory.restart();
    world.fault(Fault::HangChanges);
    let e = world.start().await;
    e.lab().await;
    assert_eq!(e.find("/lab/d").await.unwrap(), d);
    assert_eq!(e.vfs.getattr(e.ctx(), d).await.unwrap().nlink, 4);
}

/// A clock that is behind that of the home.
struct Behind(vfs::env::RealClock);

impl vfs::env::Clock for Behind {
    fn now(&self) -> home::Time {
        let now = self.0.now();
        home::Time { sec: now.sec - 1_000_000_000, ..now }
    }
    fn instant(&self) -> Duration {
        self.0.instant()
    }
}

fn world_ahead() -> World {
    let clock = std::sync::Arc::new(Behind(vfs::env::RealClock::new()));
    World { clock, staleness: Duration::ZERO, ..World::new(Mode::Wb) }
}

#[tokio::test]
async fn a_ctime_that_counts_on_from_a_clock_ahead_of_ours_is_found_again() {
    let world = world_ahead();
    world.mkdir("d");
    let e = world.start().await;
    e.lab().await;
    let d = e.find("/lab/d").await.unwrap();
    world.fault(Fault::HangChanges);
    e.create(d, "x").await.unwrap();
    e.create(d, "y").await.unwrap();
    let before = e.vfs.getattr(e.ctx(), d).await.unwrap().ctime;
    world.disk.kill();
    drop(e);
    let e = world.start().await;
    e.lab().await;
    assert_eq!(e.find("/lab/d").await.unwrap(), d);
    let after = e.vfs.getattr(e.ctx(), d).await.unwrap().ctime;
    assert!(after >= before, "{before:?} {after:?}");
}

#[tokio::test]
async fn a_ctime_that_counts_on_from_an_answer_under_unsent_changes_is_found_again() {
    let world = world_ahead();
    world.mkdir("d");
    let e = world.start().await;
    e.lab().await;
    let d = e.find("/lab/d").await.unwrap();
    world.fault(Fault::HangChanges);
    e.create(d, "x").await.unwrap();
    world.disk.kill();
    drop(e);
    world.write("d/theirs", b"x");
    let e = world.start().await;
    e.lab().await;
    e.vfs.getattr(e.ctx(), d).await.unwrap();
    e.create(d, "y").await.unwrap();
    let before = e.vfs.getattr(e.ctx(), d).await.unwrap().ctime;
    world.disk.kill();
    drop(e);
    let e = world.start().await;
    e.lab().await;
    let after = e.vfs.getattr(e.ctx(), d).await.unwrap().ctime;
    assert!(after >= before, "{before:?} {after:?}");
}

#[tokio::test]
async fn writing_a_directory_home_does_not_change_the_ctime_that_clients_see() {
    let world = world_ahead();
    let e = world.start().await;
    let lab = e.lab().await;
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    e.create(d, "x").await.unwrap();
    let before = e.vfs.getattr(e.ctx(), d).await.unwrap().ctime;
    e.sync().await;
    e.names(d).await;
    assert_eq!(e.vfs.getattr(e.ctx(), d).await.unwrap().ctime, before);
    // What others do there does.
    world.write("d/theirs", b"x");
    e.names(d).await;
    assert!(e.vfs.getattr(e.ctx(), d).await.unwrap().ctime > before);
}

#[tokio::test]
async fn many_short_writes_of_one_file_go_home_however_much_they_are_together() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    world.fault(Fault::Unreachable);
    let wanted: Vec<u8> = (0..5_000_000u32).map(|i| (i / 8192 + i % 251) as u8).collect();
    for (i, part) in wanted.chunks(8192).enumerate() {
        e.write(f, i as u64 * 8192, part).await.unwrap();
    }
    world.fault(Fault::None);
    e.sync().await;
    assert!(world.at_home("f").await.unwrap() == wanted);
}

#[tokio::test]
async fn the_bytes_of_a_conflict_that_was_resolved_before_a_restart_are_let_go() {
    let world = World::new(Mode::Wb);
    world.write("f", b"base");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"base");
    world.fault(Fault::Unreachable);
    e.write(f, 0, &[7; 100_000]).await.unwrap();
    world.write("f", b"theirs");
    world.disk.slow_syncs(Duration::from_millis(300));
    world.fault(Fault::None);
    while e.vfs.status().volumes[0].unsent_ops < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.fault(Fault::Unreachable);
    world.disk.slow_syncs(Duration::ZERO);
    e.vfs.commit(e.ctx(), f).await.unwrap();
    world.disk.kill();
    drop(e);
    world.fault(Fault::None);
    let e = world.start().await;
    e.sync().await;
    let status = e.vfs.status();
    assert_eq!(world.names_at_home("").await.len(), 2);
    assert_eq!((status.dirty_bytes, status.volumes[0].unsent_ops), (0, 0));
}

#[tokio::test]
async fn what_the_home_refused_just_before_a_power_cut_is_not_taken_for_done() {
    for seed in 0..5 {
        let world = World::new(Mode::Wb);
        let e = world.start().await;
        let lab = e.lab().await;
        e.names(lab).await;
        let f = e.create(lab, "refused").await.unwrap();
        e.sync().await;
        world.fault(Fault::HangChanges);
        e.write(f, 0, &[7; 5000]).await.unwrap();
        e.create(lab, "done").await.unwrap();
        world.memory.set_quota(100);
        world.fault(Fault::None);
        while world.at_home("done").await.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(e.vfs.status().volumes[0].parked.len(), 1);
        world.disk.crash(seed);
        drop(e);
        world.memory.set_quota(1 << 20);
        let e = world.start().await;
        e.sync().await;
        assert!(world.at_home("refused").await.unwrap() == [7; 5000], "an acknowledged write is lost");
    }
}

#[tokio::test]
async fn a_create_that_is_told_to_come_again_has_made_nothing() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.fault(Fault::Unreachable);
    // One segment is all that the journal gets; most of it is taken.
    world.disk.fill_up(true);
    let long = bytes::Bytes::from(vec![b'x'; 4095]);
    let mut links = 0;
    loop {
        let name = format!("link{links}");
        let made = e.vfs.symlink(e.ctx(), lab, name.as_bytes(), long.clone(), SetAttrs::default()).await;
        match made {
            Ok(_) => links += 1,
            Err(e) if e.kind == home::ErrorKind::Full => break,
            Err(e) => panic!("{e}"),
        }
    }
    let time = vfs::SetTime::At(vfs::Time { sec: 1, nsec: 2 });
    let set = SetAttrs { mtime: Some(time), size: Some(7), ..SetAttrs::default() };
    for length in (8..250).step_by(9) {
        let mut refused = None;
        for n in 0..100 {
            let name = format!("{n:0length$}");
            let made = e.vfs.create(e.ctx(), lab, name.as_bytes(), vfs::CreateHow::Guarded, set).await;
            if let Err(why) = made {
                assert_eq!(why.kind, home::ErrorKind::Full);
                refused = Some(name);
                break;
            }
        }
        let refused = refused.expect("a journal without room");
        let there = e.find(&format!("/lab/{refused}")).await;
        assert_eq!(there.map_err(|e| e.kind), Err(home::ErrorKind::NotFound), "length {length}");
    }
}

#[tokio::test]
async fn a_home_that_misses_what_was_staged_is_not_flooded() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    world.fault(Fault::NothingStaged);
    let f = e.create(lab, "f").await.unwrap();
    e.write(f, 0, &[7; 200_000]).await.unwrap();
    let before = world.fault.calls();
    let unsent = e.vfs.sync(None, Duration::from_secs(2)).await;
    assert!(unsent.is_err());
    let calls = world.fault.calls() - before;
    assert!(calls < 30, "{calls} calls in two seconds");
    world.fault(Fault::None);
    e.sync().await;
    assert!(world.at_home("f").await.unwrap() == [7; 200_000]);
}

#[tokio::test]
async fn a_rename_does_not_vouch_for_what_another_program_wrote() {
    let world = World::new(Mode::Wb);
    world.write("f", b"seen");
    let e = world.start().await;
    let lab = e.lab().await;
    assert_eq!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap(), b"seen");
    e.names(lab).await;
    world.fault(Fault::Unreachable);
    e.vfs.rename(e.ctx(), lab, b"f", lab, b"g", RenameHow::Replace).await.unwrap();
    let new = e.create(lab, "new").await.unwrap();
    e.write(new, 0, b"ours").await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"new", lab, b"g", RenameHow::Replace).await.unwrap();
    world.write("f", b"not seen");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("g").await.unwrap(), b"not seen");
    assert_eq!(e.vfs.status().volumes[0].conflicts, 1);
    assert_eq!(world.names_at_home("").await.len(), 2);
}

#[tokio::test]
async fn attributes_do_not_vouch_for_what_another_program_wrote() {
    let mut world = World::new(Mode::Wb);
    world.write("f", b"seen");
    world.write("g", b"seen");
    world.staleness = Duration::from_secs(100);
    let e = world.start().await;
    let (f, g) = (e.find("/lab/f").await.unwrap(), e.find("/lab/g").await.unwrap());
    assert_eq!((e.read(f).await.unwrap(), e.read(g).await.unwrap()), (b"seen".to_vec(), b"seen".to_vec()));
    world.write("f", b"not seen");
    world.write("g", b"not seen");
    let ctime = e.vfs.getattr(e.ctx(), f).await.unwrap().ctime;
    for file in [f, g] {
        let mode = SetAttrs { mode: Some(0o600), ..SetAttrs::default() };
        e.vfs.setattr(e.ctx(), file, mode, None).await.unwrap();
    }
    world.fault(Fault::HangChanges);
    e.write(g, 0, b"ours").await.unwrap();
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(e.read(f).await.unwrap(), b"not seen");
    assert!(e.vfs.getattr(e.ctx(), f).await.unwrap().ctime > ctime);
    assert_eq!(world.at_home("g").await.unwrap(), b"not seen");
    assert_eq!(e.vfs.status().volumes[0].conflicts, 1);
}

/// A clock that can be put forward.
struct Jumping(vfs::env::RealClock, std::sync::atomic::AtomicU64);

impl vfs::env::Clock for Jumping {
    fn now(&self) -> home::Time {
        self.0.now()
    }
    fn instant(&self) -> Duration {
        self.0.instant() + Duration::from_secs(self.1.load(std::sync::atomic::Ordering::Relaxed))
    }
}

#[tokio::test]
async fn whatever_the_home_refuses_is_tried_again_less_and_less_often() {
    let clock = std::sync::Arc::new(Jumping(vfs::env::RealClock::new(), 0.into()));
    let world = World { clock: clock.clone(), ..World::new(Mode::Wb) };
    world.mkdir("d");
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    e.names(e.find("/lab/d").await.unwrap()).await;
    world.fault(Fault::Refuse(home::ErrorKind::TooManyLinks));
    e.vfs.rmdir(e.ctx(), lab, b"d").await.unwrap();
    assert!(e.vfs.sync(None, Duration::from_secs(10)).await.is_err());
    for (wait, tried) in [(20, false), (11, true), (31, false), (30, true)] {
        let before = world.fault.refused();
        clock.1.fetch_add(wait, std::sync::atomic::Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(world.fault.refused() > before, tried, "after {wait} s");
    }
    world.fault(Fault::None);
    clock.1.fetch_add(900, std::sync::atomic::Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    e.sync().await;
    assert_eq!(world.names_at_home("").await, [""; 0]);
}

#[tokio::test]
async fn a_restart_looks_for_one_batch_once() {
    let mut world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    e.sync().await;
    world.fault(Fault::Unreachable);
    for n in 0..1000 {
        let f = e.create(lab, &format!("f{n}")).await.unwrap();
        e.write(f, 0, b"ours").await.unwrap();
    }
    world.disk.kill();
    drop(e);
    world.reconnect();
    let e = world.start().await;
    let before = world.fault.calls();
    e.sync().await;
    assert_eq!(world.names_at_home("").await.len(), 1000);
    assert_eq!(world.at_home("f999").await.unwrap(), b"ours");
    // A batch may have been on its way, of 512 operations; then come four of them.
    let calls = world.fault.calls() - before;
    assert!(calls < 600, "{calls} calls");
}

/// Another program keeps a file under a further name and makes another one under the first, as editors do. Whoever looks at the
/// further name first reads the file, though what the home has by the first is not known yet.
#[tokio::test]
async fn a_file_that_was_moved_at_the_home_is_read_by_its_new_name() {
    for changed in [false, true] {
        let mut world = World::new(Mode::Wb);
        world.staleness = Duration::from_secs(100);
        world.write("f", b"old");
        // Too many for a listing at a look at one name.
        (0..2_000).for_each(|n| world.write(&format!("x{n}"), b""));
        let e = world.start().await;
        let f = e.find("/lab/f").await.unwrap();
        let at = |name: &str| HomePath::parse(name.as_bytes()).unwrap();
        world.memory.link_outside(&at("f"), &at("backup"));
        world.remove("f");
        world.write("f", b"new");
        if changed {
            world.write("backup", b"older");
        }
        let backup = e.find("/lab/backup").await.unwrap();
        assert_eq!(backup, f, "it is the same file");
        let content: &[u8] = if changed { b"older" } else { b"old" };
        assert_eq!(e.read(backup).await.unwrap(), content);
        let new = e.find("/lab/f").await.unwrap();
        assert_ne!(new, f);
        assert_eq!(e.read(new).await.unwrap(), b"new");
    }
}
