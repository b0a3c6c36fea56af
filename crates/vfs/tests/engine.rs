//! The engine on a home in memory: caches, write-back, recovery, conflicts.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{UID, World, in_fast_time};
use home::testing::fault::Fault;
use home::{ErrorKind, HomePath};
use std::time::Duration;
use vfs::{AccessMask, Cred, Ctx, Mode, RenameHow, RetryKey, SetAttrs, SetTime, Time};

#[tokio::test]
async fn what_is_written_here_arrives_there() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let dir = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    let file = e.create(dir, "f").await.unwrap();
    e.write(file, 0, b"hello ").await.unwrap();
    e.write(file, 6, &vec![b'x'; 300_000]).await.unwrap();
    assert_eq!(e.read(file).await.unwrap().len(), 300_006);
    e.vfs.symlink(e.ctx(), lab, b"l", "d/f".into(), SetAttrs::default()).await.unwrap();
    e.vfs.link(e.ctx(), file, lab, b"hard").await.unwrap();
    let mtime = Time { sec: 1_000_000_000, nsec: 123_456_789 };
    let set = SetAttrs { mtime: Some(SetTime::At(mtime)), mode: Some(0o640), ..SetAttrs::default() };
    e.vfs.setattr(e.ctx(), file, set, None).await.unwrap();
    e.sync().await;
    let there = world.at_home("d/f").await.unwrap();
    assert_eq!(&there[..6], b"hello ");
    assert_eq!(there.len(), 300_006);
    assert_eq!(world.at_home("hard").await.unwrap(), there);
    let attr = e.vfs.getattr(e.ctx(), file).await.unwrap();
    assert_eq!((attr.mtime, attr.mode, attr.nlink, attr.uid), (mtime, 0o640, 2, UID));
    assert_eq!(world.names_at_home("").await, ["d", "hard", "l"]);
    assert!(e.vfs.status().volumes[0].parked.is_empty());
}

#[tokio::test]
async fn writing_home_changes_nothing_that_clients_see() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let file = e.create(lab, "f").await.unwrap();
    e.write(file, 0, b"abc").await.unwrap();
    let before = e.vfs.getattr(e.ctx(), file).await.unwrap();
    e.sync().await;
    let after = e.vfs.getattr(e.ctx(), file).await.unwrap();
    assert_eq!(
        (before.mtime, before.ctime, before.fileid, before.size),
        (after.mtime, after.ctime, after.fileid, after.size)
    );
}

#[tokio::test]
async fn rename_of_a_parent_before_anything_was_sent() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let a = e.vfs.mkdir(e.ctx(), lab, b"a", SetAttrs::default()).await.unwrap().oid;
    let f = e.create(a, "f").await.unwrap();
    e.write(f, 0, b"1").await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"a", lab, b"b", RenameHow::Replace).await.unwrap();
    e.write(f, 1, b"2").await.unwrap();
    e.create(a, "g").await.unwrap();
    e.sync().await;
    assert_eq!(world.at_home("b/f").await.unwrap(), b"12");
    assert_eq!(world.names_at_home("b").await, ["f", "g"]);
    e.vfs.rename(e.ctx(), lab, b"b", lab, b"c", RenameHow::Replace).await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"12");
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["c"]);
}

#[tokio::test]
async fn a_restart_keeps_handles_fileids_and_unsent_changes() {
    let world = World::new(Mode::Wb);
    world.write("old", b"old content");
    let e = world.start().await;
    let lab = e.lab().await;
    let old = e.find("/lab/old").await.unwrap();
    let old_attr = e.vfs.getattr(e.ctx(), old).await.unwrap();
    world.fault(Fault::Unreachable);
    let f = e.create(lab, "new").await.unwrap();
    e.write(f, 0, b"unsent").await.unwrap();
    e.write(old, 0, b"OLD").await.unwrap();
    let attr = e.vfs.getattr(e.ctx(), f).await.unwrap();
    world.disk.kill();
    drop(e);
    world.fault(Fault::None);
    let e = world.start().await;
    assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().fileid, attr.fileid);
    assert_eq!(e.read(f).await.unwrap(), b"unsent");
    assert_eq!(e.read(old).await.unwrap(), b"OLD content");
    assert_eq!(e.vfs.getattr(e.ctx(), old).await.unwrap().fileid, old_attr.fileid);
    e.sync().await;
    assert_eq!(world.at_home("new").await.unwrap(), b"unsent");
    assert_eq!(world.at_home("old").await.unwrap(), b"OLD content");
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
}

#[tokio::test]
async fn a_lost_answer_is_no_conflict() {
    for looks_fail in [false, true] {
        let world = World::new(Mode::Wb);
        let e = world.start().await;
        let lab = e.lab().await;
        let f = e.create(lab, "f").await.unwrap();
        e.write(f, 0, b"first").await.unwrap();
        let x = e.create(lab, "x").await.unwrap();
        e.write(x, 0, b"first").await.unwrap();
        e.sync().await;
        world.fault(Fault::AnswersLost);
        e.write(x, 0, b"longer than before").await.unwrap();
        e.vfs.remove(e.ctx(), lab, b"x").await.unwrap();
        e.write(f, 0, b"again").await.unwrap();
        let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
        e.vfs.rename(e.ctx(), lab, b"f", d, b"g", RenameHow::Replace).await.unwrap();
        let n = e.create(lab, "n").await.unwrap();
        e.write(n, 0, b"nn").await.unwrap();
        tokio::time::sleep(Duration::from_millis(900)).await;
        // The agent, too, forgets what it did.
        world.memory.restart();
        if looks_fail {
            // A look that fails is repeated, whatever was answered before it.
            world.fault(Fault::LooksUnanswered);
            tokio::time::sleep(Duration::from_millis(900)).await;
        }
        world.fault(Fault::None);
        e.sync().await;
        assert_eq!(world.at_home("d/g").await.unwrap(), b"again");
        assert_eq!(world.at_home("n").await.unwrap(), b"nn");
        assert_eq!(world.names_at_home("").await, ["d", "n"]);
        assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
    }
}

#[tokio::test]
async fn both_sides_of_a_conflict_survive() {
    let world = World::new(Mode::Wb);
    world.write("f", b"base");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"base");
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"ours").await.unwrap();
    world.write("f", b"theirs!");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"theirs!");
    let names = world.names_at_home("").await;
    let copy = names.iter().find(|n| n.starts_with("f.trellis-conflict-")).unwrap();
    assert_eq!(world.at_home(copy).await.unwrap(), b"ours");
    assert_eq!(e.vfs.status().volumes[0].conflicts, 1);
    assert_eq!(e.read(f).await.unwrap(), b"ours", "the open handle follows our side");
    let theirs = e.find("/lab/f").await.unwrap();
    assert_ne!(theirs, f);
    assert_eq!(e.read(theirs).await.unwrap(), b"theirs!");
}

#[tokio::test]
async fn equal_content_is_no_conflict() {
    let world = World::new(Mode::Wb);
    world.write("f", b"base");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    e.read(f).await.unwrap();
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"same").await.unwrap();
    world.write("f", b"same");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["f"]);
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
}

#[tokio::test]
async fn a_name_taken_at_the_home_keeps_both() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.fault(Fault::Unreachable);
    let f = e.create(lab, "f").await.unwrap();
    e.write(f, 0, b"ours").await.unwrap();
    world.write("f", b"theirs");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"theirs");
    let names = world.names_at_home("").await;
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(world.at_home(&names[1]).await.unwrap(), b"ours");
    assert_eq!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap(), b"theirs");
}

#[tokio::test]
async fn a_removal_never_destroys_what_was_not_seen() {
    let world = World::new(Mode::Wb);
    world.write("f", b"seen");
    let e = world.start().await;
    let lab = e.lab().await;
    e.find("/lab/f").await.unwrap();
    world.fault(Fault::Unreachable);
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    assert_eq!(e.find("/lab/f").await.unwrap_err().kind, ErrorKind::NotFound);
    world.write("f", b"not seen");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"not seen");
    assert_eq!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap(), b"not seen");
}

#[tokio::test]
async fn changes_at_the_home_are_seen_within_the_bound() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_millis(200);
    world.write("f", b"one");
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"one");
    world.write("f", b"two!");
    world.write("g", b"new");
    tokio::time::sleep(Duration::from_millis(250)).await;
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"two!");
    assert_eq!(e.names(lab).await, ["f", "g"]);
    world.remove("g");
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(e.find("/lab/g").await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(e.names(lab).await, ["f"]);
}

#[tokio::test]
async fn warm_answers_ask_nobody() {
    let world = World::new(Mode::Wb);
    for i in 0..50 {
        world.write(&format!("f{i}"), if i == 7 { b"x" } else { b"" });
    }
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    world.claimed().await;
    let calls = world.fault.calls();
    for i in 0..50 {
        e.find(&format!("/lab/f{i}")).await.unwrap();
    }
    assert_eq!(e.find("/lab/missing").await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(world.fault.calls(), calls);
    let f = e.find("/lab/f7").await.unwrap();
    e.read(f).await.unwrap();
    assert_eq!(world.fault.calls(), calls + 1);
    e.read(f).await.unwrap();
    assert_eq!(world.fault.calls(), calls + 1);
}

#[tokio::test]
async fn strict_is_at_the_home_when_it_returns() {
    let world = World::new(Mode::Strict);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    assert_eq!(world.names_at_home("").await, ["f"]);
    e.write(f, 0, b"now").await.unwrap();
    assert_eq!(world.at_home("f").await.unwrap(), b"now");
    world.write("f", b"theirs");
    assert_eq!(e.read(f).await.unwrap(), b"theirs");
    world.write("g", b"");
    assert_eq!(e.create(lab, "g").await.unwrap_err().kind, ErrorKind::Exists);
    e.vfs.rename(e.ctx(), lab, b"f", lab, b"h", RenameHow::Replace).await.unwrap();
    assert_eq!(world.names_at_home("").await, ["g", "h"]);
    e.vfs.remove(e.ctx(), lab, b"h").await.unwrap();
    assert_eq!(world.names_at_home("").await, ["g"]);
    assert_eq!(e.vfs.status().volumes[0].unsent_ops, 0);
}

#[tokio::test]
async fn a_dead_home_serves_what_is_cached_and_takes_changes() {
    let world = World::new(Mode::Wb);
    world.write("f", b"cached");
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.find("/lab/f").await.unwrap();
    e.read(f).await.unwrap();
    world.fault(Fault::Hang);
    tokio::time::sleep(Duration::from_millis(5100)).await;
    assert_eq!(e.read(f).await.unwrap(), b"cached");
    let started = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(e.read(f).await.unwrap(), b"cached");
    }
    e.create(lab, "later").await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(1), "a silent home is not waited for again");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["f", "later"]);
}

#[tokio::test]
async fn a_repeated_call_gets_its_first_answer_after_a_restart() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let key = RetryKey([7; 16]);
    let ctx = Ctx { retry: Some(key), ..e.ctx() };
    let made = e.vfs.mkdir(ctx, lab, b"d", SetAttrs::default()).await.unwrap();
    assert_eq!(e.vfs.first_reply(key).await.unwrap().oid, made.oid);
    world.disk.kill();
    drop(e);
    let e = world.start().await;
    assert_eq!(e.vfs.first_reply(key).await.unwrap().oid, made.oid);
    assert_eq!(e.vfs.first_reply(RetryKey([8; 16])).await, None);
}

#[tokio::test]
async fn strangers_and_protected_folders() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    world.mkdir("dir");
    let ssh = e.vfs.mkdir(e.ctx(), lab, b".ssh", SetAttrs::default()).await;
    assert_eq!(ssh.unwrap_err().kind, ErrorKind::Access);
    let other = Cred { uid: 1234, gid: 1234, groups: vec![] };
    let ctx = Ctx::of(&other);
    assert_eq!(e.vfs.lookup(ctx, lab, b"dir").await.unwrap_err().kind, ErrorKind::Access);
    assert_eq!(e.vfs.lookup(ctx, e.vfs.root(), b"scp:lab:").await.unwrap_err().kind, ErrorKind::Access);
    assert_eq!(e.vfs.lookup(ctx, e.vfs.root(), b"nohost").await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn two_spellings_are_one_volume() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    assert_eq!(e.find("/lab").await.unwrap(), e.find("/scp:lab:").await.unwrap());
}

#[tokio::test]
async fn the_first_of_two_names_goes_and_then_the_second() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    for pause in [false, true] {
        let f = e.create(lab, "tmp").await.unwrap();
        e.write(f, 0, b"object").await.unwrap();
        e.vfs.link(e.ctx(), f, lab, b"final").await.unwrap();
        e.vfs.remove(e.ctx(), lab, b"tmp").await.unwrap();
        if pause {
            e.sync().await;
        }
        assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().nlink, 1);
        e.write(f, 6, b"!").await.unwrap();
        e.sync().await;
        assert_eq!(world.at_home("final").await.unwrap(), b"object!");
        e.vfs.rename(e.ctx(), lab, b"final", lab, b"last", RenameHow::Replace).await.unwrap();
        e.vfs.remove(e.ctx(), lab, b"last").await.unwrap();
        e.sync().await;
        assert_eq!(world.names_at_home("").await, [""; 0]);
    }
}

#[tokio::test]
async fn a_refused_operation_is_parked_and_the_rest_goes_on() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.sync().await;
    world.memory.set_quota(10);
    let big = e.create(lab, "big").await.unwrap();
    e.write(big, 0, &[b'x'; 100]).await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"big", lab, b"bigger", RenameHow::Replace).await.unwrap();
    e.vfs.mkdir(e.ctx(), lab, b"other", SetAttrs::default()).await.unwrap();
    let started = std::time::Instant::now();
    let unsent = e.vfs.sync(None, Duration::from_secs(20)).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(10), "nothing more can go, so nobody waits");
    assert_eq!(unsent[0].ops, 2, "{unsent:?}");
    assert!(world.names_at_home("").await.contains(&"other".to_owned()));
    let status = e.vfs.status();
    assert_eq!(status.volumes[0].parked.len(), 1);
    assert_eq!(status.volumes[0].parked[0].kind, ErrorKind::NoSpace);
    assert_eq!(e.read(big).await.unwrap(), [b'x'; 100], "what is parked is kept");
}

#[tokio::test]
async fn what_did_not_fit_and_is_not_wanted_any_more_is_in_nobodys_way() {
    for made in [true, false] {
        let world = World::new(Mode::Wb);
        let e = world.start().await;
        let lab = e.lab().await;
        world.write("old", b"0123456789");
        e.sync().await;
        world.memory.set_quota(10);
        if !made {
            world.fault(Fault::Refuse(ErrorKind::NoSpace));
        }
        let big = e.create(lab, "big").await.unwrap();
        e.write(big, 0, &[b'x'; 100]).await.unwrap();
        let other = e.create(lab, "emptied").await.unwrap();
        e.write(other, 0, &[b'y'; 100]).await.unwrap();
        let kept = e.create(lab, "kept").await.unwrap();
        e.write(kept, 0, &[b'z'; 100]).await.unwrap();
        e.vfs.sync(None, Duration::from_secs(20)).await.unwrap_err();
        world.fault(Fault::None);
        e.vfs.remove(e.ctx(), lab, b"big").await.unwrap();
        let unsent = e.vfs.sync(None, Duration::from_secs(20)).await.unwrap_err();
        assert!(!world.names_at_home("").await.contains(&"big".to_owned()), "{unsent:?}");
        let empty = SetAttrs { size: Some(0), ..SetAttrs::default() };
        e.vfs.setattr(e.ctx(), other, empty, None).await.unwrap();
        e.vfs.sync(None, Duration::from_secs(20)).await.unwrap_err();
        if made {
            assert_eq!(world.at_home("emptied").await.unwrap(), b"");
            assert_eq!(e.vfs.status().volumes[0].parked.len(), 1, "what is wanted is kept");
        }
        assert_eq!(e.read(kept).await.unwrap(), [b'z'; 100]);
        world.disk.kill();
        drop(e);
        world.memory.restart();
        world.memory.set_quota(1 << 20);
        let e = world.start().await;
        e.sync().await;
        assert_eq!(world.names_at_home("").await, ["emptied", "kept", "old"]);
        assert_eq!(world.at_home("kept").await.unwrap(), [b'z'; 100]);
        assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
    }
}

/// What denies something is not believed for as long as other answers, because permission may have been given.
#[test]
fn permission_that_is_given_is_seen_within_a_second() {
    in_fast_time(Mode::Wb, |mut world| async move {
        let (second, path) =
            (Duration::from_millis(1001), |text: &str| HomePath::parse(text.as_bytes()).unwrap());
        world.staleness = Duration::from_secs(60);
        world.mkdir("d");
        world.write("d/f", b"x");
        let e = world.start().await;
        let (d, f) = (e.find("/lab/d").await.unwrap(), e.find("/lab/d/f").await.unwrap());
        let read = vfs::OpenMode { read: true, ..vfs::OpenMode::default() };
        let list = AccessMask { read: true, ..AccessMask::default() };
        for (at, denied, allowed) in
            [("d", 0, 0o700), ("d", 0o400, 0o700), ("d", 0o500, 0o700), ("d/f", 0, 0o600)]
        {
            let tries = async || {
                let made = e.create(d, "made").await;
                if made.is_ok() {
                    e.vfs.remove(e.ctx(), d, b"made").await.unwrap();
                }
                let listed = e.vfs.readdir(e.ctx(), d, 0, 10).await.map(drop);
                let found = e.vfs.lookup(e.ctx(), d, b"f").await.map(drop);
                let may = e.vfs.access(e.ctx(), d, list).await.map(|(granted, _)| granted == list);
                let opened = e.vfs.open_file(e.ctx(), f, read).await.map(drop);
                [made.is_ok(), listed.is_ok(), found.is_ok(), may == Ok(true), opened.is_ok()]
            };
            world.memory.chmod_outside(&path(at), denied);
            tokio::time::sleep(world.staleness + Duration::from_millis(1)).await;
            let want = match (at, denied) {
                ("d", 0) => [false; 5],
                ("d", 0o400) => [false, false, false, true, false],
                ("d", _) => [false, true, true, true, true],
                _ => [true, true, true, true, false],
            };
            assert_eq!(tries().await, want, "{at} {denied:o}");
            if !want[1] {
                let removed = e.vfs.rmdir(e.ctx(), e.lab().await, b"d").await;
                assert_eq!(removed.unwrap_err().kind, ErrorKind::Access, "{at} {denied:o}");
            }
            world.memory.chmod_outside(&path(at), allowed);
            tokio::time::sleep(second).await;
            assert_eq!(tries().await, [true; 5], "{at} {allowed:o}");
        }
    });
}
