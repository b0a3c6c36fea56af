//! Mode `strict`: what is seen before an outcome, and what a lost answer leads to.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::{Engine, Skipping, World};
use home::testing::conformance::Outside;
use home::testing::fault::Fault;
use home::{ErrorKind, HomePath};
use std::time::Duration;
use vfs::{CreateHow, Ctx, Mode, Oid, RenameHow, RetryKey, SetAttrs, Stability};

const KEY: RetryKey = RetryKey([5; 16]);

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(8), work).await.expect("no answer in time")
}

/// A call that has no answer: it is given up after a while.
async fn unanswered<T>(call: impl Future<Output = T>) {
    let answer = tokio::time::timeout(Duration::from_millis(300), call).await;
    assert!(answer.is_err(), "strict answers before the home has");
}

async fn restart(world: &mut World, e: Engine) -> Engine {
    world.disk.kill();
    drop(e);
    world.reconnect();
    let e = world.start().await;
    soon(e.vfs.sync(None, Duration::from_secs(8))).await.unwrap();
    e
}

async fn unstable(e: &Engine, file: Oid, at: u64, data: &'static [u8]) {
    let data = Bytes::from_static(data);
    soon(e.vfs.write(e.ctx(), file, at, data, Stability::Unstable)).await.unwrap();
}

fn keyed(e: &Engine) -> Ctx<'_> {
    Ctx { retry: Some(KEY), ..e.ctx() }
}

async fn exclusive(e: &Engine, dir: Oid) -> vfs::Result<Oid> {
    let how = CreateHow::Exclusive([3; 8]);
    e.vfs.create(keyed(e), dir, b"lock", how, SetAttrs::default()).await.map(|made| made.oid)
}

fn size(size: u64) -> SetAttrs {
    SetAttrs { size: Some(size), ..SetAttrs::default() }
}

#[tokio::test]
async fn a_directory_that_cannot_be_listed_is_removed_if_the_home_finds_it_empty() {
    let world = World::new(Mode::Strict);
    let e = world.start().await;
    let lab = e.lab().await;
    let closed = SetAttrs { mode: Some(0o311), ..SetAttrs::default() };
    for name in ["empty", "full", "old"] {
        world.mkdir(name);
        let dir = e.find(&format!("/lab/{name}")).await.unwrap();
        e.vfs.setattr(e.ctx(), dir, closed, None).await.unwrap();
    }
    world.write("full/x", b"");
    world.mkdir("new");
    let rmdir = async |name: &[u8]| e.vfs.rmdir(e.ctx(), lab, name).await.map(drop).map_err(|e| e.kind);
    assert_eq!(rmdir(b"empty").await, Ok(()));
    assert_eq!(rmdir(b"full").await, Err(ErrorKind::NotEmpty));
    let over = async |name: &[u8]| e.vfs.rename(e.ctx(), lab, b"new", lab, name, RenameHow::Replace).await;
    assert_eq!(over(b"full").await.map(drop).map_err(|e| e.kind), Err(ErrorKind::NotEmpty));
    over(b"old").await.unwrap();
    assert_eq!(world.names_at_home("").await, ["full", "old"]);
}

#[tokio::test]
async fn only_unstable_writes_are_seen_before_the_home_has_them() {
    let world = World::new(Mode::Strict);
    world.write("f", b"before");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"before");
    world.fault(Fault::HangChanges);
    let stable = async { e.write(f, 0, b"stable, and longer").await };
    let cut = async { e.vfs.setattr(e.ctx(), f, size(2), None).await.map(drop) };
    let look = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(e.read(f).await.unwrap(), b"before");
        assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().size, 6);
        let data = Bytes::from_static(b"BE");
        e.vfs.write(e.ctx(), f, 0, data, Stability::Unstable).await.unwrap();
        assert_eq!(e.read(f).await.unwrap(), b"BEfore");
        world.fault(Fault::None);
    };
    let (stable, cut, ()) = soon(async { tokio::join!(stable, cut, look) }).await;
    stable.and(cut).unwrap();
    soon(e.vfs.commit(e.ctx(), f)).await.unwrap();
    let there = world.at_home("f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), there);
    assert!(there == b"BE" || there == b"BEable, and longer", "in either order");
}

#[tokio::test]
async fn what_another_wrote_meanwhile_is_read_after_our_write() {
    let world = World::new(Mode::Strict);
    world.write("f", b"aaaaaaaa");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"aaaaaaaa");
    world.fault(Fault::HangChanges);
    let theirs = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.write("f", b"aaaabbbb");
        world.fault(Fault::None);
    };
    let (wrote, ()) = soon(async { tokio::join!(e.write(f, 0, b"cc"), theirs) }).await;
    wrote.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"ccaabbbb");
}

#[tokio::test]
async fn a_restart_repeats_nothing() {
    let mut world = World::new(Mode::Strict);
    world.write("f", b"before");
    world.write("gone", b"");
    let e = world.start().await;
    let (lab, f) = (e.lab().await, e.find("/lab/f").await.unwrap());
    e.read(f).await.unwrap();
    e.find("/lab/gone").await.unwrap();
    world.fault(Fault::ChangesUnanswered);
    let mkdir = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default());
    unanswered(async { tokio::join!(e.write(f, 0, b"ours!!"), mkdir).0.unwrap() }).await;
    // The home did it. Others go on with what they see there.
    world.fault(Fault::Unreachable);
    world.write("f", b"theirs");
    world.remove("d");
    let e = restart(&mut world, e).await;
    assert_eq!(world.at_home("f").await.unwrap(), b"theirs");
    assert_eq!(world.names_at_home("").await, ["f", "gone"], "a directory was made twice");
    // What has not arrived is not sent by itself: nobody waits for it.
    world.fault(Fault::HangChanges);
    unanswered(async { e.vfs.remove(keyed(&e), e.lab().await, b"gone").await.unwrap() }).await;
    let e = restart(&mut world, e).await;
    assert_eq!(world.names_at_home("").await, ["f", "gone"]);
    assert_eq!(soon(e.vfs.first_reply(KEY)).await, None);
}

#[tokio::test]
async fn a_lock_file_has_one_owner_whatever_is_lost() {
    for (arrives, other, restarts) in
        [(true, false, true), (false, true, true), (true, false, false), (false, true, false)]
    {
        let mut world = World::new(Mode::Strict);
        let e = world.start().await;
        let lab = e.lab().await;
        world.fault(if arrives { Fault::ChangesUnanswered } else { Fault::HangChanges });
        let meanwhile = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            world.fault(Fault::Unreachable);
            if other {
                world.write("lock", b"");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            world.memory.restart();
        };
        let ours = if restarts {
            tokio::time::timeout(Duration::from_millis(800), async {
                tokio::join!(exclusive(&e, lab), meanwhile)
            })
            .await
            .expect_err("answered without the home");
            let e = restart(&mut world, e).await;
            match soon(e.vfs.first_reply(KEY)).await {
                Some(first) => Ok(first.oid),
                None => soon(exclusive(&e, e.lab().await)).await,
            }
        } else {
            let back = async {
                meanwhile.await;
                world.fault(Fault::None);
            };
            soon(async { tokio::join!(exclusive(&e, lab), back).0 }).await
        };
        let what = format!("arrives {arrives}, restarts {restarts}: {ours:?}");
        assert_eq!(ours.is_ok(), arrives, "{what}");
        assert!(arrives || ours.unwrap_err().kind == ErrorKind::Exists, "{what}");
        assert_eq!(world.names_at_home("").await, ["lock"]);
    }
}

#[tokio::test]
async fn unstable_writes_in_doubt_never_go_over_what_another_wrote() {
    for theirs in [None, Some(&b"theirs"[..])] {
        let mut world = World::new(Mode::Strict);
        world.write("f", b"before");
        let e = world.start().await;
        let f = e.find("/lab/f").await.unwrap();
        e.read(f).await.unwrap();
        world.fault(Fault::HangChanges);
        let wrote =
            e.vfs.write(e.ctx(), f, 0, Bytes::from_static(b"ours"), Stability::Unstable).await.unwrap();
        tokio::time::sleep(Duration::from_millis(700)).await;
        if let Some(theirs) = theirs {
            world.write("f", theirs);
        }
        let e = restart(&mut world, e).await;
        assert_eq!(world.at_home("f").await.unwrap(), theirs.unwrap_or(b"oursre"));
        let commit = soon(e.vfs.commit(e.ctx(), f)).await.unwrap();
        assert_ne!(commit.verifier, wrote.verifier, "the client must know that it has to look again");
    }
}

/// The process ends before it is written down here that the stable write was done, of which no record has the bytes.
#[tokio::test]
async fn what_was_stable_before_a_kill_is_no_hole_for_a_write_behind_it() {
    for looks in [false, true] {
        let mut world = World::new(Mode::Strict);
        world.write("f", b"0123456789");
        let e = world.start().await;
        let f = e.find("/lab/f").await.unwrap();
        e.read(f).await.unwrap();
        unstable(&e, f, 0, b"ab").await;
        e.write(f, 6, b"stable stable").await.unwrap();
        world.disk.kill();
        drop(e);
        world.reconnect();
        let e = world.start().await;
        let f = if looks { e.find("/lab/f").await.unwrap() } else { f };
        unstable(&e, f, 0, b"abc").await;
        unstable(&e, f, 24, b"end").await;
        let want = b"abc345stable stable\0\0\0\0\0end";
        assert_eq!(e.read(f).await.unwrap(), want);
        soon(e.vfs.commit(e.ctx(), f)).await.unwrap();
        assert_eq!(e.read(f).await.unwrap(), want);
        assert_eq!(world.at_home("f").await.unwrap(), want);
    }
}

#[tokio::test]
async fn what_others_added_is_no_hole_for_a_write_behind_it() {
    let world = World::new(Mode::Strict);
    world.write("f", b"0123456789");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    e.read(f).await.unwrap();
    world.fault(Fault::HangChanges);
    unstable(&e, f, 0, b"ab").await;
    world.write("f", b"0123456789theirs");
    unstable(&e, f, 20, b"end").await;
    let want = b"ab23456789theirs\0\0\0\0end";
    assert_eq!(e.read(f).await.unwrap(), want);
    world.fault(Fault::None);
    soon(e.vfs.commit(e.ctx(), f)).await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), want);
    assert_eq!(world.at_home("f").await.unwrap(), want);
}

/// In other modes the version that it was made to decides, and both are kept.
#[tokio::test]
async fn what_others_added_is_not_written_over_by_a_write_behind_an_end_that_was_known() {
    for (mode, restarts) in [(Mode::Wb, false), (Mode::Wb, true), (Mode::Cto, false), (Mode::Cto, true)] {
        let mut world = World::new(mode);
        world.write("f", b"0123456789");
        let mut e = world.start().await;
        let f = e.find("/lab/f").await.unwrap();
        e.read(f).await.unwrap();
        world.fault(Fault::HangChanges);
        unstable(&e, f, 0, b"ab").await;
        world.write("f", b"0123456789 and theirs");
        if restarts {
            world.disk.kill();
            drop(e);
            world.reconnect();
            e = world.start().await;
        }
        unstable(&e, f, 30, b"end").await;
        world.fault(Fault::None);
        soon(e.vfs.sync(None, Duration::from_secs(8))).await.unwrap();
        assert_eq!(world.at_home("f").await.unwrap(), b"0123456789 and theirs", "{mode:?} {restarts}");
        let names = world.names_at_home("").await;
        let copy = names.iter().find(|name| name.starts_with("f.trellis-conflict")).unwrap();
        let ours = world.at_home(copy).await.unwrap();
        assert!(ours.ends_with(b"end"), "{mode:?} {restarts}: {}", ours.escape_ascii());
    }
}

/// What others wrote before it is what is seen then, and has an earlier time at the home.
#[tokio::test]
async fn no_ctime_goes_back_where_an_unstable_write_is_undone() {
    let mut world = World::new(Mode::Strict);
    world.write("f", b"before");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    e.read(f).await.unwrap();
    world.fault(Fault::HangChanges);
    unstable(&e, f, 0, b"ours").await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    world.write("f", b"theirs");
    tokio::time::sleep(Duration::from_millis(50)).await;
    unstable(&e, f, 0, b"more").await;
    let ours = e.vfs.getattr(e.ctx(), f).await.unwrap().ctime;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let e = restart(&mut world, e).await;
    assert_eq!(e.read(f).await.unwrap(), b"theirs");
    let theirs = e.vfs.getattr(e.ctx(), f).await.unwrap().ctime;
    assert!(theirs > ours, "{theirs:?} after {ours:?}");
    let e = restart(&mut world, e).await;
    assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().ctime, theirs);
}

#[tokio::test]
async fn who_waits_for_the_home_hears_that_the_journal_has_ended() {
    let world = World::new(Mode::Strict);
    world.write("f", b"before");
    let e = world.start().await;
    let (lab, f) = (e.lab().await, e.find("/lab/f").await.unwrap());
    e.read(f).await.unwrap();
    world.fault(Fault::HangChanges);
    let ends = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.disk.fail_syncs(1);
        let refused = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Io);
        world.fault(Fault::Unreachable);
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.fault(Fault::None);
    };
    let (write, ()) = soon(async { tokio::join!(e.write(f, 0, b"stable"), ends) }).await;
    assert_eq!(write.unwrap_err().kind, ErrorKind::Io);
}

#[tokio::test]
async fn what_nobody_waits_for_is_not_done_when_a_home_comes_back_after_long() {
    let mut world = World::new(Mode::Strict);
    let clock = Skipping::of(&mut world);
    world.write("begun", b"");
    world.write("queued", b"");
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.fault(Fault::HangChanges);
    unanswered(async { e.vfs.remove(e.ctx(), lab, b"begun").await.unwrap() }).await;
    unanswered(async { e.vfs.remove(e.ctx(), lab, b"queued").await.unwrap() }).await;
    world.fault(Fault::Unreachable);
    tokio::time::sleep(Duration::from_millis(300)).await;
    clock.skip(100);
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.fault(Fault::None);
    soon(e.vfs.sync(None, Duration::from_secs(8))).await.unwrap();
    assert_eq!(world.names_at_home("").await, ["begun", "queued"]);
}

/// The real clock, and what was skipped.
#[tokio::test]
async fn a_home_that_stays_away_fails_what_waits_for_it() {
    let mut world = World::new(Mode::Strict);
    let clock = Skipping::of(&mut world);
    world.write("f", b"before");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    e.read(f).await.unwrap();
    world.fault(Fault::HangChanges);
    e.vfs.write(e.ctx(), f, 0, Bytes::from_static(b"unstable"), Stability::Unstable).await.unwrap();
    let dies = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.fault(Fault::Unreachable);
        tokio::time::sleep(Duration::from_millis(500)).await;
        clock.skip(100);
    };
    let calls = async { tokio::join!(e.write(f, 0, b"stable"), e.vfs.commit(e.ctx(), f), dies) };
    let (write, commit, ()) = soon(calls).await;
    assert_eq!(write.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(commit.unwrap_err().kind, ErrorKind::Io);
    world.fault(Fault::None);
    soon(e.vfs.sync(None, Duration::from_secs(8))).await.unwrap();
    assert_eq!(world.at_home("f").await.unwrap(), b"unstable", "what was given up is not done later");
}

/// How many round trips a call takes, on a way where each takes a second. Everything that goes out at the same time is one.
async fn trips<T>(world: &World, call: impl Future<Output = vfs::Result<T>>) -> u64 {
    let trip = Duration::from_secs(1);
    world.fault(Fault::Delay(trip));
    let began = tokio::time::Instant::now();
    call.await.unwrap_or_else(|e| panic!("{e:?}"));
    world.fault(Fault::None);
    began.elapsed().as_secs()
}

#[test]
fn what_a_call_needs_of_the_home_is_asked_at_once() {
    common::in_fast_time(Mode::Strict, |world| async move {
        world.write("f", b"theirs");
        world.mkdir("d");
        let e = world.start().await;
        let lab = e.lab().await;
        let (f, d) = (e.find("/lab/f").await.unwrap(), e.find("/lab/d").await.unwrap());
        let (vfs, ctx) = (&e.vfs, e.ctx());
        assert_eq!(trips(&world, vfs.lookup(ctx, lab, b"f")).await, 1);
        assert_eq!(trips(&world, vfs.getattr(ctx, f)).await, 1);
        world.fault(Fault::Delay(Duration::from_secs(1)));
        let began = tokio::time::Instant::now();
        let missing = vfs.lookup(ctx, lab, b"none").await.map(drop).map_err(|e| e.kind);
        assert_eq!((missing, began.elapsed().as_secs()), (Err(ErrorKind::NotFound), 1));
        // The first change of a connection claims the home. Each asks before, and is then made.
        e.create(lab, "first").await.unwrap();
        let how = CreateHow::Guarded;
        assert_eq!(trips(&world, vfs.create(ctx, lab, b"new", how, SetAttrs::default())).await, 2);
        assert_eq!(trips(&world, vfs.mkdir(ctx, lab, b"e", SetAttrs::default())).await, 2);
        assert_eq!(
            trips(&world, vfs.symlink(ctx, lab, b"s", Bytes::from_static(b"f"), SetAttrs::default())).await,
            2
        );
        assert_eq!(trips(&world, vfs.link(ctx, f, d, b"f2")).await, 2);
        assert_eq!(trips(&world, vfs.rename(ctx, lab, b"new", d, b"f2", RenameHow::Replace)).await, 2);
        assert_eq!(trips(&world, vfs.remove(ctx, d, b"f2")).await, 2);
        assert_eq!(world.names_at_home("d").await, Vec::<String>::new());
    });
}

#[test]
fn what_was_asked_since_a_call_began_is_not_asked_again() {
    common::in_fast_time(Mode::Strict, |world| async move {
        world.write("f", b"theirs");
        world.mkdir("d");
        let e = world.start().await;
        let lab = e.lab().await;
        e.create(lab, "first").await.unwrap();
        let vfs = &e.vfs;
        // As by FUSE: the kernel looks the name up, and then sends what the program wanted of it.
        let begins = || Ctx { since: Some(vfs.instant()), ..e.ctx() };
        let looked = async |name: &[u8]| {
            let call = begins();
            assert_eq!(trips(&world, async { Ok(vfs.lookup(call, lab, name).await.ok()) }).await, 1);
            call
        };
        let f = e.find("/lab/f").await.unwrap();
        assert_eq!(trips(&world, vfs.getattr(looked(b"f").await, f)).await, 0);
        assert_eq!(trips(&world, vfs.getattr(begins(), f)).await, 1, "the next call");
        let set = SetAttrs { mode: Some(0o600), ..SetAttrs::default() };
        assert_eq!(trips(&world, vfs.setattr(looked(b"f").await, f, set, None)).await, 1);
        let (how, none) = (CreateHow::Guarded, SetAttrs::default());
        assert_eq!(trips(&world, vfs.create(looked(b"new").await, lab, b"new", how, none)).await, 1);
        assert_eq!(trips(&world, vfs.mkdir(looked(b"e").await, lab, b"e", none)).await, 1);
        assert_eq!(trips(&world, vfs.remove(looked(b"new").await, lab, b"new")).await, 1);
        assert_eq!(trips(&world, vfs.rmdir(looked(b"e").await, lab, b"e")).await, 1);
        let list = async |after| trips(&world, vfs.readdir(begins(), lab, after, 10)).await;
        assert_eq!(list(0).await, 1);
        // What others do after the look-up is found by the change itself.
        let call = looked(b"taken").await;
        world.write("taken", b"by another");
        let made = vfs.create(call, lab, b"taken", how, none).await;
        assert_eq!(made.map(drop).map_err(|e| e.kind), Err(ErrorKind::Exists));
        assert_eq!(world.at_home("taken").await.unwrap(), b"by another");
        let call = looked(b"open").await;
        world.write("open", b"by another");
        assert!(vfs.create(call, lab, b"open", CreateHow::Unchecked, none).await.is_ok(), "it is found");
        let d = e.find("/lab/d").await.unwrap();
        vfs.readdir(begins(), d, 0, 10).await.unwrap();
        let call = looked(b"d").await;
        world.write("d/theirs", b"");
        assert_eq!(vfs.rmdir(call, lab, b"d").await.map(drop).map_err(|e| e.kind), Err(ErrorKind::NotEmpty));
        assert_eq!(world.names_at_home("d").await, ["theirs"]);
    });
}

#[test]
fn a_path_is_asked_for_at_once_where_the_last_one_led() {
    common::in_fast_time(Mode::Strict, |world| async move {
        for dir in ["a", "a/b", "a/b/c", "a/b/other"] {
            world.mkdir(dir);
        }
        world.write("a/b/c/f", b"theirs");
        let e = world.start().await;
        let lab = e.lab().await;
        let vfs = &e.vfs;
        let walks = async |call: Ctx<'_>, path: &'static str| {
            let mut at = lab;
            for name in path.split('/') {
                at = vfs.lookup(call, at, name.as_bytes()).await?.oid;
            }
            Ok(at)
        };
        let begins = || Ctx { since: Some(vfs.instant()), ..e.ctx() };
        assert_eq!(trips(&world, walks(begins(), "a/b/c/f")).await, 4, "nothing is known of it");
        assert_eq!(trips(&world, walks(begins(), "a/b/c/f")).await, 1);
        assert_eq!(trips(&world, walks(begins(), "a/b/other")).await, 2, "it leads elsewhere");
        assert_eq!(trips(&world, walks(begins(), "a/b/other")).await, 1);
        assert_eq!(trips(&world, walks(e.ctx(), "a/b/other")).await, 3, "each look-up is a call");
        let from_the_root = async |call: Ctx<'_>| {
            vfs.lookup(call, Oid::ROOT, b"lab").await?;
            walks(call, "a/b/other").await
        };
        assert_eq!(trips(&world, from_the_root(begins())).await, 1);
        // What others did before the call began is seen.
        world.write("a/b/c/f", b"theirs, longer");
        let f = walks(begins(), "a/b/c/f").await.unwrap();
        assert_eq!(vfs.getattr(begins(), f).await.unwrap().size, 14);
        world.remove("a/b/c/f");
        let gone = walks(begins(), "a/b/c/f").await.map_err(|e| e.kind);
        assert_eq!(gone, Err(ErrorKind::NotFound));
        let [from, to] = ["a/b/c", "a/b/d"].map(|path| HomePath::parse(path.as_bytes()).unwrap());
        Outside::rename(&world.memory, &from, &to);
        world.mkdir("a/b/c");
        world.write("a/b/c/f", b"another");
        let f = walks(begins(), "a/b/c/f").await.unwrap();
        assert_eq!(vfs.getattr(begins(), f).await.unwrap().size, 7);
    });
}

#[tokio::test]
async fn requests_that_wait_for_the_home_are_counted() {
    for (mode, warm, made) in [(Mode::Strict, 1, 1), (Mode::Wb, 0, 0)] {
        let world = World::new(mode);
        world.write("f", b"content");
        let e = world.start().await;
        let lab = e.lab().await;
        e.names(lab).await;
        let f = e.find("/lab/f").await.unwrap();
        e.read(f).await.unwrap();
        let counted = || (e.vfs.status().requests, e.vfs.status().waited);
        assert_eq!(counted(), (0, 0), "nothing of this was a request");
        // A request may ask several times.
        let twice = async {
            e.vfs.getattr(e.ctx(), f).await.unwrap();
            e.vfs.getattr(e.ctx(), f).await.unwrap();
        };
        e.vfs.request(None, twice).await;
        assert_eq!(counted(), (1, warm), "{mode:?}");
        e.vfs.request(None, e.vfs.statfs(e.ctx(), f)).await.unwrap();
        assert_eq!(counted(), (2, warm + 1), "{mode:?}: the space was not known");
        e.vfs.request(None, e.create(lab, "new")).await.unwrap();
        assert_eq!(counted(), (3, warm + 1 + made), "{mode:?}");
    }
}
