//! What an answer promises: nothing is acknowledged before it is true, and what was acknowledged is not given up.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::{Engine, World};
use home::ErrorKind;
use home::testing::fault::Fault;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use vfs::env::{Clock, RealClock};
use vfs::{Ctx, Mode, Oid, RenameHow, RetryKey, SetAttrs, Stability, Time};

/// The real clock, and what was skipped.
struct Skipping(RealClock, AtomicU64);

impl Clock for Skipping {
    fn now(&self) -> Time {
        let now = self.0.now();
        Time { sec: now.sec + self.1.load(Relaxed) as i64, ..now }
    }
    fn instant(&self) -> Duration {
        self.0.instant() + Duration::from_secs(self.1.load(Relaxed))
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in 5 seconds: {what}");
}

fn parked(e: &Engine) -> usize {
    e.vfs.status().volumes[0].parked.len()
}

async fn unstable(e: &Engine, file: Oid, at: u64, data: &'static [u8]) -> vfs::Result<vfs::WriteOk> {
    e.vfs.write(e.ctx(), file, at, Bytes::from_static(data), Stability::Unstable).await
}

#[tokio::test]
async fn what_the_home_refuses_for_a_time_is_done_later() {
    let mut world = World::new(Mode::Wb);
    let clock = Arc::new(Skipping(RealClock::new(), AtomicU64::new(0)));
    world.clock = clock.clone();
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    e.sync().await;
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    e.write(f, 0, b"kept").await.unwrap();
    until("parked", || parked(&e) == 1).await;
    e.vfs.rename(e.ctx(), lab, b"f", lab, b"g", RenameHow::Replace).await.unwrap();
    let began = std::time::Instant::now();
    let unsent = e.vfs.sync(None, Duration::from_secs(20)).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5), "sync waits for what nobody will send");
    assert!(unsent[0].why.contains("write"), "{}", unsent[0].why);
    world.fault(Fault::None);
    // What waits says nothing about the way to the home: others are still answered with what is there.
    world.write("theirs", b"1");
    clock.1.fetch_add(6, Relaxed);
    assert_eq!(e.names(lab).await, ["g", "theirs"]);
    assert_eq!(parked(&e), 1, "refused only a moment ago");
    clock.1.fetch_add(30, Relaxed);
    until("sent again", || e.vfs.status().volumes[0].unsent_ops == 0).await;
    assert_eq!(world.at_home("g").await.unwrap(), b"kept");
    assert_eq!(parked(&e), 0);
}

#[tokio::test]
async fn a_directory_goes_after_what_is_in_it_even_where_that_waits() {
    for replaced in [false, true] {
        let mut world = World::new(Mode::Wb);
        let clock = Arc::new(Skipping(RealClock::new(), AtomicU64::new(0)));
        world.clock = clock.clone();
        let e = world.start().await;
        let lab = e.lab().await;
        let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
        e.create(d, "f").await.unwrap();
        e.sync().await;
        world.fault(Fault::Refuse(ErrorKind::NoSpace));
        e.vfs.rename(e.ctx(), d, b"f", lab, b"moved", RenameHow::Replace).await.unwrap();
        until("parked", || parked(&e) == 1).await;
        world.fault(Fault::None);
        match replaced {
            true => {
                e.vfs.mkdir(e.ctx(), lab, b"new", SetAttrs::default()).await.unwrap();
                e.vfs.rename(e.ctx(), lab, b"new", lab, b"d", RenameHow::Replace).await.unwrap();
            }
            false => drop(e.vfs.rmdir(e.ctx(), lab, b"d").await.unwrap()),
        }
        e.vfs.sync(None, Duration::from_secs(20)).await.unwrap_err();
        assert_eq!(parked(&e), 1, "sent before what it waits for");
        clock.1.fetch_add(40, Relaxed);
        until("sent", || e.vfs.status().volumes[0].unsent_ops == 0).await;
        let names: &[&str] = if replaced { &["d", "moved"] } else { &["moved"] };
        assert_eq!(world.names_at_home("").await, names);
    }
}

#[tokio::test]
async fn what_passed_a_refused_change_does_not_prove_it() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.create(lab, "old").await.unwrap();
    e.sync().await;
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    until("parked", || parked(&e) == 1).await;
    let inside = e.create(d, "inside").await.unwrap();
    e.write(inside, 0, b"deep").await.unwrap();
    world.fault(Fault::AnswersLost);
    e.vfs.rename(e.ctx(), lab, b"old", lab, b"new", RenameHow::Replace).await.unwrap();
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(world.names_at_home("").await, ["new"]);
    world.disk.kill();
    drop(e);
    world.memory.restart();
    world.fault(Fault::None);
    let e = world.start().await;
    e.sync().await;
    assert_eq!(world.at_home("d/inside").await.unwrap(), b"deep");
    assert_eq!(world.names_at_home("").await, ["d", "new"]);
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
}

#[tokio::test]
async fn what_was_so_before_proves_nothing() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    let mtime = Time { sec: 1_000_000_000, nsec: 5 };
    let set = SetAttrs { mtime: Some(vfs::SetTime::At(mtime)), ..SetAttrs::default() };
    e.vfs.setattr(e.ctx(), f, set, None).await.unwrap();
    e.sync().await;
    world.fault(Fault::Unreachable);
    e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap();
    e.vfs.setattr(e.ctx(), f, set, None).await.unwrap();
    world.disk.kill();
    drop(e);
    world.fault(Fault::None);
    let e = world.start().await;
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["d", "f"], "a directory was never made");
}

#[tokio::test]
async fn strict_says_at_the_commit_what_became_of_unstable_writes() {
    let world = World::new(Mode::Strict);
    let e = world.start().await;
    let lab = e.lab().await;
    let (f, g) = (e.create(lab, "f").await.unwrap(), e.create(lab, "g").await.unwrap());
    e.write(f, 0, b"before").await.unwrap();
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    let wrote = unstable(&e, f, 0, b"refused, and longer").await.unwrap();
    until("refused", || e.vfs.status().volumes[0].unsent_ops == 0).await;
    assert_eq!(e.vfs.commit(e.ctx(), f).await.unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(e.read(f).await.unwrap(), b"before");
    // Another file of the volume is not concerned, but whoever wrote before has to look again.
    assert_ne!(e.vfs.commit(e.ctx(), g).await.unwrap().verifier, wrote.verifier);
    assert_eq!(e.write(f, 0, b"x").await.unwrap_err().kind, ErrorKind::NoSpace);
    world.fault(Fault::None);
    e.vfs.commit(e.ctx(), f).await.unwrap();
    e.write(f, 0, b"BEF").await.unwrap();
    assert_eq!(world.at_home("f").await.unwrap(), b"BEFore");
}

#[tokio::test]
async fn a_repeated_call_waits_until_its_first_answer_is_true() {
    let mut world = World::new(Mode::Strict);
    let e = world.start().await;
    let lab = e.lab().await;
    let key = RetryKey([9; 16]);
    e.create(lab, "f").await.unwrap();
    // Journalled, and on its way when the process is killed.
    world.fault(Fault::HangChanges);
    let again = {
        let ctx = Ctx { retry: Some(key), ..e.ctx() };
        let never = e.vfs.remove(ctx, lab, b"f");
        tokio::time::timeout(Duration::from_millis(300), never).await
    };
    assert!(again.is_err(), "strict answers before the home has it");
    world.disk.kill();
    drop(e);
    world.reconnect();
    world.fault(Fault::Hang);
    let e = world.start().await;
    let early = tokio::time::timeout(Duration::from_millis(500), e.vfs.first_reply(key)).await;
    assert!(early.is_err(), "a call sent again was answered before it was known whether it is done");
    world.fault(Fault::None);
    let undone = tokio::time::timeout(Duration::from_secs(5), e.vfs.first_reply(key)).await;
    assert_eq!(undone.unwrap(), None, "a call that was not done has no first answer");
    assert_eq!(world.names_at_home("").await, ["f"]);
}

#[tokio::test]
async fn a_full_disk_keeps_promises_and_takes_nothing_new() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    e.write(f, 0, b"before").await.unwrap();
    e.sync().await;
    world.fault(Fault::Unreachable);
    world.disk.set_capacity(Some(0));
    let mut taken = 0u64;
    let refused = loop {
        let data = vec![taken as u8; 60_000];
        match e.vfs.write(e.ctx(), f, 6 + taken * 60_000, data.into(), Stability::Stable).await {
            Ok(_) => taken += 1,
            Err(e) => break e.kind,
        }
        assert!(taken < 2000, "the disk is never full");
    };
    assert!(matches!(refused, ErrorKind::NoSpace | ErrorKind::Full), "{refused:?}");
    let size = e.vfs.getattr(e.ctx(), f).await.unwrap().size;
    assert_eq!(size, 6 + taken * 60_000, "what was refused is not seen");
    // The way home makes room.
    world.fault(Fault::None);
    let seen = e.read(f).await.unwrap();
    e.sync().await;
    world.disk.set_capacity(None);
    assert_eq!(world.at_home("f").await.unwrap(), seen);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    e.write(f, 0, b"BEFORE").await.unwrap();
    e.sync().await;
    assert_eq!(&world.at_home("f").await.unwrap()[..6], b"BEFORE");
}

#[tokio::test]
async fn bytes_in_the_journal_go_home_from_there_when_a_restart_finds_the_disk_full() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    e.write(f, 0, &[1; 100_000]).await.unwrap();
    e.sync().await;
    e.read(f).await.unwrap();
    world.fault(Fault::Unreachable);
    e.write(f, 10, &[2; 1000]).await.unwrap();
    let last = e.vfs.write(e.ctx(), f, 500, vec![3; 60_000].into(), Stability::Stable).await;
    last.unwrap();
    let mut expected = vec![1; 100_000];
    expected[10..500].fill(2);
    expected[500..60_500].fill(3);
    // The home can be read from now on, but has no space either.
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    for _ in 0..3 {
        world.disk.kill();
        world.disk.fill_up(true);
        let e = world.start().await;
        let read = e.read(f).await;
        assert!(read.as_ref().map_or_else(|e| e.kind == ErrorKind::Busy, |r| *r == expected), "{read:?}");
    }
    world.disk.kill();
    world.fault(Fault::None);
    let e = world.start().await;
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), expected);
    world.disk.set_capacity(None);
    assert_eq!(e.read(f).await.unwrap(), expected);
}

#[tokio::test]
async fn the_bytes_of_many_files_go_home_together() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let (files, trip) = (60, Duration::from_millis(300));
    world.fault(Fault::HangChanges);
    // Too long to travel in their operations.
    let content = vec![7; 100 << 10];
    for i in 0..files {
        let f = e.create(lab, &format!("f{i}")).await.unwrap();
        e.write(f, 0, &content).await.unwrap();
    }
    world.fault(Fault::Delay(trip));
    let began = std::time::Instant::now();
    e.sync().await;
    assert!(world.memory.counters().stage >= files);
    // One after the other they would take a round trip each.
    assert!(began.elapsed() < trip * 11, "{:?}", began.elapsed());
    assert_eq!(world.at_home("f59").await.unwrap(), content);
}

#[tokio::test]
async fn the_first_bytes_go_home_while_it_is_claimed() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    // It is claimed ahead, and that is over: what is written meanwhile would wait for it.
    world.claimed().await;
    let trip = Duration::from_secs(2);
    world.fault(Fault::Delay(trip));
    let content = vec![7; 1 << 20];
    let f = e.create(lab, "f").await.unwrap();
    e.write(f, 0, &content).await.unwrap();
    let began = std::time::Instant::now();
    e.sync().await;
    // The bytes, beside a claim if one is still to be made, and then the operation.
    assert!(began.elapsed() < trip * 5 / 2, "{:?}", began.elapsed());
    assert_eq!(world.at_home("f").await.unwrap(), content);
    assert_eq!(world.memory.counters().stage, 1, "staged once");
}

#[tokio::test]
async fn the_next_batches_are_staged_while_the_home_is_busy() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    e.sync().await;
    world.fault(Fault::HangChanges);
    let part = |i: u64| vec![i as u8 + 1; 1 << 20];
    for i in 0..50 {
        e.vfs.write(e.ctx(), f, i << 20, part(i).into(), Stability::Unstable).await.unwrap();
    }
    // The first batch of 16 MiB gets no answer; two more wait for theirs.
    until("staged", || world.memory.counters().stage == 48).await;
    // What was staged last is never sent as it was.
    e.vfs.write(e.ctx(), f, 20 << 20, part(99).into(), Stability::Unstable).await.unwrap();
    e.vfs.write(e.ctx(), f, 49 << 20, part(100).into(), Stability::Unstable).await.unwrap();
    world.fault(Fault::None);
    e.sync().await;
    let there = world.at_home("f").await.unwrap();
    let expected = |i| {
        if i == 20 {
            100
        } else if i == 49 {
            101
        } else {
            i as u8 + 1
        }
    };
    assert_eq!(there.len(), 50 << 20);
    assert!(there.iter().enumerate().all(|(at, byte)| *byte == expected(at >> 20)));
    assert_eq!(world.memory.counters().stage, 51, "some of it was staged twice, or travelled in vain");
}

#[tokio::test]
async fn what_is_staged_in_place_of_something_else_has_a_name_of_its_own() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    e.sync().await;
    let write = async |i: u64| {
        let data = Bytes::from(vec![i as u8; 1 << 20]);
        e.vfs.write(e.ctx(), f, i << 20, data, Stability::Unstable).await.unwrap();
    };
    // Batches become short while none gets through.
    world.fault(Fault::ChangesUnanswered);
    for _ in 0..4 {
        let before = world.memory.counters().apply;
        write(0).await;
        until("sent in vain", || world.memory.counters().apply > before).await;
    }
    world.fault(Fault::HangChanges);
    for i in 1..30 {
        write(i).await;
    }
    // What is staged is for batches that become longer, as they do when this one gets through, which it does not.
    let before = world.memory.counters().stage;
    let fails = async {
        until("staged ahead", || world.memory.counters().stage == before + 1 + 2 + 4).await;
        let before = world.memory.counters().apply;
        world.fault(Fault::ChangesUnanswered);
        until("sent in vain", || world.memory.counters().apply > before).await;
        world.fault(Fault::SlowChanges(Duration::from_millis(20)));
    };
    tokio::join!(e.sync(), fails);
    let there = world.at_home("f").await.unwrap();
    assert!(there.len() == 30 << 20 && there.iter().enumerate().all(|(at, byte)| *byte == (at >> 20) as u8));
    let counters = world.memory.counters();
    assert_eq!(counters.stage - before, 29 + 2 + 4, "{counters:?}: only what was lost goes once more");
    assert_eq!(counters.mixed, 0, "{counters:?}");
}

#[tokio::test]
async fn what_is_staged_ahead_is_what_goes_home_whatever_happens_meanwhile() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    let mut rng = StdRng::seed_from_u64(5);
    let mut expected = vec![0; 30 << 20];
    e.write(f, 0, &expected[..1]).await.unwrap();
    let faults =
        [Fault::HangChanges, Fault::AnswersLost, Fault::NothingStaged, Fault::Unreachable, Fault::None];
    for round in 0..20 {
        world.fault(faults[round % faults.len()]);
        for _ in 0..12 {
            let len = rng.random_range(1..1 << 20);
            let at = rng.random_range(0..expected.len() - len);
            expected[at..at + len].fill(rng.random());
            let data = Bytes::copy_from_slice(&expected[at..at + len]);
            e.vfs.write(e.ctx(), f, at as u64, data, Stability::Unstable).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    e.write(f, expected.len() as u64 - 1, &[7]).await.unwrap();
    *expected.last_mut().unwrap() = 7;
    world.fault(Fault::None);
    e.vfs.sync(None, Duration::from_secs(60)).await.unwrap();
    assert!(world.at_home("f").await.unwrap() == expected);
    assert_eq!(world.names_at_home("").await, ["f"]);
    assert_eq!(world.memory.counters().mixed, 0);
}

/// UNSTABLE writes as a client keeps them (RFC 1813, 3.3.7 and 3.3.21): until a COMMIT succeeds under the verifier under
/// which they were answered. Where it does not, they are written again.
#[derive(Default)]
struct Kept(Vec<(u64, &'static [u8], Option<vfs::Verifier>)>);

impl Kept {
    fn add(&mut self, at: u64, data: &'static [u8]) {
        self.0.push((at, data, None));
    }

    /// Writes what has no answer, and commits; `false` where some of it has to be written again.
    async fn flush(&mut self, e: &Engine, file: Oid) -> vfs::Result<bool> {
        for (at, data, answered) in &mut self.0 {
            if answered.is_none() {
                *answered = Some(unstable(e, file, *at, data).await?.verifier);
            }
        }
        let commit = e.vfs.commit(e.ctx(), file).await;
        let verifier = commit.as_ref().ok().map(|c| c.verifier);
        self.0.retain_mut(|(_, _, answered)| {
            let gone = *answered == verifier;
            if !gone {
                *answered = None;
            }
            !gone
        });
        commit.map(|_| self.0.is_empty())
    }
}

#[tokio::test]
async fn a_sync_that_failed_ends_the_acknowledging_and_changes_the_verifier() {
    for mode in [Mode::Wb, Mode::Cto, Mode::Strict] {
        let mut world = World::new(mode);
        let e = world.start().await;
        let lab = e.lab().await;
        let (f, other) = (e.create(lab, "f").await.unwrap(), e.create(lab, "other").await.unwrap());
        let mut client = Kept::default();
        let before = unstable(&e, other, 0, b"kept").await.unwrap().verifier;
        assert_eq!(e.vfs.commit(e.ctx(), other).await.unwrap().verifier, before);
        client.add(0, b"acknowledged, ");
        client.add(14, b"and lost");
        for (at, data, answered) in &mut client.0 {
            *answered = Some(unstable(&e, f, *at, data).await.unwrap().verifier);
        }
        world.disk.fail_syncs(1);
        assert_eq!(client.flush(&e, f).await.unwrap_err().kind, ErrorKind::Io, "{mode:?}");
        for stability in [Stability::Unstable, Stability::Stable] {
            let more = e.vfs.write(e.ctx(), f, 0, Bytes::from_static(b"x"), stability).await;
            assert_eq!(more.unwrap_err().kind, ErrorKind::Io, "{mode:?}: {stability:?} after a failed sync");
        }
        let made = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await;
        assert_eq!(made.unwrap_err().kind, ErrorKind::Io);
        let again = e.vfs.commit(e.ctx(), other).await;
        assert!(again.is_err() || again.is_ok_and(|c| c.verifier != before), "{mode:?}: the same verifier");
        let said = e.vfs.status().volumes[0].journal.clone();
        assert!(said.is_some_and(|why| why.contains("simulated sync error")), "{mode:?}: nobody is told");
        // Started again, on what the disk has, it takes from the client what it still keeps.
        drop(e);
        world.disk.crash(0);
        world.reconnect();
        let e = world.start().await;
        assert!(client.flush(&e, f).await.unwrap(), "{mode:?}");
        e.sync().await;
        assert_eq!(world.at_home("f").await.unwrap(), b"acknowledged, and lost", "{mode:?}");
        assert_eq!(world.at_home("other").await.unwrap(), b"kept");
    }
}

/// A wall clock that somebody sets; the other one goes on.
struct Stepped(RealClock, std::sync::atomic::AtomicI64);

impl Clock for Stepped {
    fn now(&self) -> Time {
        let now = self.0.now();
        Time { sec: now.sec + self.1.load(Relaxed), ..now }
    }
    fn instant(&self) -> Duration {
        self.0.instant()
    }
}

#[tokio::test]
async fn a_clock_that_is_set_delays_and_loses_nothing_and_no_ctime_goes_back() {
    const DAY: i64 = 86_400;
    for step in [-400 * DAY, 4000 * DAY] {
        let mut world = World::new(Mode::Wb);
        world.staleness = Duration::from_millis(300);
        let clock = Arc::new(Stepped(RealClock::new(), 0.into()));
        world.clock = clock.clone();
        let e = world.start().await;
        let lab = e.lab().await;
        let f = e.create(lab, "f").await.unwrap();
        let mut shown = e.vfs.getattr(e.ctx(), f).await.unwrap().ctime;
        for (n, to) in [step, 0, -step, step].into_iter().enumerate() {
            // One change waits for company when the clock is set, another one comes after it.
            let old = format!("{n} before");
            e.write(f, 0, old.as_bytes()).await.unwrap();
            clock.1.store(to, Relaxed);
            e.write(f, 2, b"behind").await.unwrap();
            let ctime = e.vfs.getattr(e.ctx(), f).await.unwrap().ctime;
            assert!(ctime > shown, "set by {step}, {n}: ctime {ctime:?} after {shown:?}");
            shown = ctime;
            until("sent", || e.vfs.status().volumes[0].unsent_ops == 0).await;
            assert_eq!(world.at_home("f").await.unwrap(), format!("{n} behind").as_bytes());
            let ctime = e.vfs.getattr(e.ctx(), f).await.unwrap().ctime;
            assert!(ctime >= shown, "set by {step}, {n}: ctime {ctime:?} after {shown:?}, when it was sent");
            // The bound of staleness is kept: no answer counts as new for a year, or as old at once.
            let theirs = format!("theirs-{n}");
            world.write(&theirs, b"1");
            tokio::time::sleep(Duration::from_millis(400)).await;
            assert!(e.names(lab).await.contains(&theirs), "set by {step}, {n}");
        }
        world.fault(Fault::Unreachable);
        e.write(f, 2, b"beyond").await.unwrap();
        drop(e);
        clock.1.store(-step, Relaxed);
        world.reconnect();
        let e = world.start().await;
        e.sync().await;
        assert_eq!(world.at_home("f").await.unwrap(), b"3 beyond");
        assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
    }
}

/// An unstable write is seen before its record is durable.
#[tokio::test]
async fn no_ctime_goes_back_where_a_write_was_lost_and_the_clock_set_back() {
    for (ahead, unlinked) in [(0, false), (0, true), (3600, false)] {
        let mut world = World::new(Mode::Wb);
        let clock = Arc::new(Stepped(RealClock::new(), 0.into()));
        world.clock = clock.clone();
        let e = world.start().await;
        let lab = e.lab().await;
        let f = e.create(lab, "f").await.unwrap();
        e.vfs.link(e.ctx(), f, lab, b"g").await.unwrap();
        e.sync().await;
        let mut shown = Time::default();
        for life in 0..3 {
            let e = if life == 0 { &e } else { &world.start().await };
            e.lab().await;
            if life > 0 {
                clock.1.store(-3600, Relaxed);
                match unlinked {
                    true if life == 1 => drop(e.vfs.remove(e.ctx(), lab, b"g").await.unwrap()),
                    _ => e.write(f, 0, b"kept").await.unwrap(),
                }
                let ctime = e.vfs.getattr(e.ctx(), f).await.unwrap().ctime;
                assert!(ctime > shown, "{life}: ctime {ctime:?} after {shown:?}");
            }
            // As if nothing had been done for so long.
            clock.1.fetch_add(ahead, Relaxed);
            unstable(e, f, 0, b"kept").await.unwrap();
            unstable(e, f, 0, b"lost").await.unwrap();
            shown = e.vfs.getattr(e.ctx(), f).await.unwrap().ctime;
            world.disk.kill();
            world.reconnect();
        }
    }
}

/// A home that loses its power in the middle of a write may keep any part of it, and not its time.
#[tokio::test]
async fn what_a_power_cut_left_of_a_write_is_no_conflict_also_where_it_was_written_over_since() {
    for (left, conflicts) in [
        (&b"first\0\0\0\0\0longer"[..], 0),
        (b"first", 0),
        (b"first or longer!", 1),
        (b"otherxand longer", 1),
    ] {
        let world = World::new(Mode::Wb);
        world.memory.set_keeps_log(false);
        let e = world.start().await;
        let lab = e.lab().await;
        let f = e.create(lab, "f").await.unwrap();
        e.sync().await;
        world.fault(Fault::HangChanges);
        e.write(f, 0, b"first and longer").await.unwrap();
        // It is on its way.
        e.vfs.sync(None, Duration::from_millis(300)).await.unwrap_err();
        world.fault(Fault::Unreachable);
        e.vfs.sync(None, Duration::from_millis(100)).await.unwrap_err();
        world.write("f", left);
        e.write(f, 0, b"other").await.unwrap();
        world.fault(Fault::None);
        e.sync().await;
        assert_eq!(e.vfs.status().volumes[0].conflicts, conflicts, "{}", left.escape_ascii());
        assert_eq!(e.read(f).await.unwrap(), b"other and longer");
    }
}
