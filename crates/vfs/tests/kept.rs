//! What is known of a home outlives the process: one that is out of reach after a restart is shown as it was.

mod common;

use bytes::Bytes;
use common::{Engine, World, in_fast_time};
use home::testing::conformance::Outside;
use home::testing::fault::Fault;
use home::{ErrorKind, HomePath};
use std::time::Duration;
use vfs::{FileAttr, Mode, Oid, RenameHow, SetAttrs, Stability};

fn path(text: &str) -> HomePath {
    HomePath::parse(text.as_bytes()).unwrap()
}

/// The next process. Longer than between two checkpoints goes by before.
async fn restart(world: &World, e: Engine) -> Engine {
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    world.disk.kill();
    drop(e);
    world.start().await
}

async fn attr(e: &Engine, path: &str) -> FileAttr {
    e.vfs.resolve_path(e.ctx(), path.as_bytes()).await.unwrap().1
}

async fn rename(e: &Engine, dir: Oid, from: &str, to: &str) {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    e.vfs.rename(e.ctx(), dir, from, dir, to, RenameHow::Replace).await.unwrap();
}

#[test]
fn a_home_out_of_reach_is_shown_as_it_was() {
    for fault in [Fault::Unreachable, Fault::Shut, Fault::Hang] {
        in_fast_time(Mode::Wb, |world| async move {
            world.mkdir("d");
            ["d/a", "d/b", "d/e", "f"].iter().for_each(|name| world.write(name, name.as_bytes()));
            Outside::symlink(&world.memory, &path("link"), b"d/a");
            let e = world.start().await;
            let (lab, d) = (e.lab().await, e.find("/lab/d").await.unwrap());
            assert_eq!((e.names(lab).await.len(), e.names(d).await.len()), (3, 3));
            assert_eq!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap(), b"f");
            e.vfs.statfs(e.ctx(), d).await.unwrap();
            // Half of it has no outcome when the process ends.
            rename(&e, d, "a", "sent").await;
            e.vfs.mkdir(e.ctx(), d, b"made", SetAttrs::default()).await.unwrap();
            e.sync().await;
            world.fault(fault);
            rename(&e, d, "sent", "moved").await;
            e.vfs.mkdir(e.ctx(), d, b"unsent", SetAttrs::default()).await.unwrap();
            e.vfs.remove(e.ctx(), d, b"b").await.unwrap();
            e.write(e.find("/lab/f").await.unwrap(), 0, b"F").await.unwrap();
            let before = (attr(&e, "/lab/d").await, attr(&e, "/lab/d/moved").await, attr(&e, "/lab/f").await);

            let space = e.vfs.statfs(e.ctx(), d).await.unwrap();
            assert!(space.total > 0);

            let e = restart(&world, e).await;
            assert_eq!(e.vfs.statfs(e.ctx(), d).await, Ok(space));
            let after = (attr(&e, "/lab/d").await, attr(&e, "/lab/d/moved").await, attr(&e, "/lab/f").await);
            // The ctime of a directory may have moved on.
            assert!(after.0.ctime >= before.0.ctime);
            assert_eq!((FileAttr { ctime: before.0.ctime, ..after.0 }, after.1, after.2), before);
            let (lab, d) = (e.lab().await, e.find("/lab/d").await.unwrap());
            assert_eq!(e.names(lab).await, ["d", "f", "link"]);
            assert_eq!(e.names(d).await, ["e", "made", "moved", "unsent"]);
            assert_eq!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap(), b"F");
            let link = e.find("/lab/link").await.unwrap();
            assert_eq!(&e.vfs.readlink(e.ctx(), link).await.unwrap().0[..], b"d/a");
            assert_eq!(e.find("/lab/d/b").await.unwrap_err().kind, ErrorKind::NotFound);

            // Nothing of that counts as fresh once the home answers.
            world.fault(Fault::None);
            e.sync().await;
            world.write("d/new", b"theirs");
            world.remove("d/e");
            tokio::time::sleep(Duration::from_secs(1)).await;
            let e = restart(&world, e).await;
            let d = e.find("/lab/d").await.unwrap();
            assert_eq!(e.names(d).await, ["made", "moved", "new", "unsent"]);
            assert_eq!(world.names_at_home("d").await, ["made", "moved", "new", "unsent"]);
        });
    }
}

/// Not even half a second after the home was seen for the first time, and not after a power cut.
#[test]
fn an_acknowledged_change_is_found_by_its_path_from_the_first_moment_on() {
    for (power, fault) in [(false, Fault::Unreachable), (true, Fault::Unreachable), (false, Fault::Hang)] {
        in_fast_time(Mode::Wb, move |world| async move {
            world.mkdir("d");
            world.mkdir("d/e");
            ["d/f5", "d/e/f"].iter().for_each(|name| world.write(name, name.as_bytes()));
            let e = world.start().await;
            let d = e.find("/lab/d").await.unwrap();
            let (f5, f) = (e.find("/lab/d/f5").await.unwrap(), e.find("/lab/d/e/f").await.unwrap());
            assert_eq!(e.names(d).await, ["e", "f5"]);
            world.fault(fault);
            e.create(d, "f3").await.unwrap();
            let new = Bytes::from_static(b"new");
            e.vfs.write(e.ctx(), f5, 0, new.clone(), Stability::Unstable).await.unwrap();
            e.vfs.commit(e.ctx(), f5).await.unwrap();
            e.write(f, 0, &new).await.unwrap();
            match power {
                true => {
                    world.disk.crash(7);
                    world.store.crash(0);
                }
                false => world.disk.kill(),
            }
            drop(e);

            let e = world.start().await;
            assert_eq!(
                e.names(e.find("/lab/d").await.unwrap()).await,
                ["e", "f3", "f5"],
                "{power}, {fault:?}"
            );
            for (name, size) in [("/lab/d/f3", 0), ("/lab/d/f5", 4), ("/lab/d/e/f", 5)] {
                assert_eq!(attr(&e, name).await.size, size, "{name}");
            }
            world.fault(Fault::None);
            e.sync().await;
            assert_eq!(world.at_home("d/e/f").await.unwrap(), b"new/f");
        });
    }
}

/// A folder that a home was seen to have a moment ago costs its first change a sync more, and no further one.
#[test]
fn what_a_path_needs_is_kept_once() {
    in_fast_time(Mode::Wb, |world| async move {
        ["d", "d/e", "d/e/g", "new", "new/d"].iter().for_each(|name| world.mkdir(name));
        world.write("d/e/g/f", b"");
        let e = world.start().await;
        let cost = async |dir, name: &str| {
            let before = (world.disk.syncs(), world.store.persists());
            let made = e.create(dir, name).await.unwrap();
            e.write(made, 0, b"1").await.unwrap();
            (world.disk.syncs() - before.0, world.store.persists() - before.1)
        };
        cost(e.lab().await, "before").await;
        e.sync().await;
        let d = e.find("/lab/d/e").await.unwrap();
        let f = e.find("/lab/d/e/g/f").await.unwrap();
        world.fault(Fault::Unreachable);
        assert_eq!(cost(d, "first").await.1, 1);
        let made = e.vfs.mkdir(e.ctx(), d, b"made", SetAttrs::default()).await.unwrap().oid;
        for n in 0..20 {
            assert_eq!(cost(d, &format!("n{n}")).await, (2, 0));
            assert_eq!(cost(made, &format!("n{n}")).await, (2, 0));
        }
        let before = world.store.persists();
        e.write(f, 0, b"2").await.unwrap();
        assert_eq!(world.store.persists(), before, "it was kept with the rest");
        world.fault(Fault::None);
        e.sync().await;
        let new = e.find("/lab/new/d").await.unwrap();
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(cost(new, "late").await.1, 0);
    });
}

/// Free space changes all the time; a note of it is not made each time.
#[test]
fn free_space_is_kept_once_in_a_while() {
    in_fast_time(Mode::Wb, |world| async move {
        let e = world.start().await;
        let lab = e.lab().await;
        let mut seen = Vec::new();
        for (space, seconds) in [(1 << 30, 0), (1 << 29, 6), (1 << 28, 90), (1 << 27, 6)] {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            world.memory.set_space(space);
            seen.push(e.vfs.space(e.ctx(), lab).await.unwrap());
        }
        assert!(seen.windows(2).all(|two| two[0] != two[1]), "{seen:?}");
        world.fault(Fault::Unreachable);
        assert_eq!(e.vfs.statfs(e.ctx(), lab).await.as_ref(), Ok(&seen[3]));
        let e = restart(&world, e).await;
        assert_eq!(e.vfs.statfs(e.ctx(), e.lab().await).await, Ok(seen[2]));
    });
}

/// A program that asks by the way is answered at once, but not in `strict`; after five seconds the next one hears the new one.
#[test]
fn free_space_is_good_for_five_seconds_and_shown_for_a_minute() {
    for mode in [Mode::Strict, Mode::Cto, Mode::Wb] {
        in_fast_time(mode, move |world| async move {
            let e = world.start().await;
            let lab = e.lab().await;
            let mut seen = Vec::new();
            for (space, seconds) in [(1 << 30, 0), (1 << 29, 4), (1 << 28, 2), (1 << 28, 1), (1 << 27, 61)] {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                world.memory.set_space(space);
                seen.push(e.vfs.statfs(e.ctx(), lab).await.unwrap().free);
            }
            let is_old = mode != Mode::Strict;
            let same = [seen[0] == seen[1], seen[1] == seen[2], seen[2] == seen[3], seen[3] == seen[4]];
            assert_eq!(same, [is_old, is_old, !is_old, false], "{mode:?}: {seen:?}");
            // Whoever wants to know just that waits.
            tokio::time::sleep(Duration::from_secs(6)).await;
            world.memory.set_space(1 << 26);
            assert!(e.vfs.space(e.ctx(), lab).await.unwrap().free < seen[4], "{mode:?}");
        });
    }
}

/// A program that asks by the way is told of no blocks; whoever wants to know just that is told why nobody knows.
#[test]
fn space_that_was_never_seen_is_not_made_up() {
    for fault in [Fault::Unreachable, Fault::Shut, Fault::Hang] {
        in_fast_time(Mode::Wb, |world| async move {
            let e = world.start().await;
            let lab = e.lab().await;
            world.fault(fault);
            let why = e.vfs.space(e.ctx(), lab).await.unwrap_err();
            assert!(why.kind == ErrorKind::Io && !why.detail.is_empty(), "{fault:?}: {why:?}");
            assert_eq!(e.vfs.statfs(e.ctx(), lab).await.unwrap().total, 0);
            world.fault(Fault::None);
            let seen = loop {
                match e.vfs.space(e.ctx(), lab).await {
                    Ok(seen) => break seen,
                    Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                }
            };
            assert!(seen.total > 0);
            world.fault(fault);
            assert_eq!(e.vfs.space(e.ctx(), lab).await, Ok(seen));
        });
    }
}

#[test]
fn what_was_seen_to_go_does_not_come_back() {
    in_fast_time(Mode::Wb, |mut world| async move {
        world.staleness = Duration::ZERO;
        ["gone", "replaced", "stays"].iter().for_each(|name| world.write(name, b"one"));
        let e = world.start().await;
        let lab = e.lab().await;
        assert_eq!(e.names(lab).await, ["gone", "replaced", "stays"]);
        world.remove("gone");
        world.remove("replaced");
        world.mkdir("replaced");
        assert_eq!(e.names(lab).await, ["replaced", "stays"]);
        let before = attr(&e, "/lab/replaced").await;
        // The journal still has the record by which the first ones were known.
        let e = restart(&world, e).await;
        world.fault(Fault::Unreachable);
        assert_eq!(e.names(e.lab().await).await, ["replaced", "stays"]);
        assert_eq!(attr(&e, "/lab/replaced").await.fileid, before.fileid);
        assert_eq!(e.find("/lab/gone").await.unwrap_err().kind, ErrorKind::NotFound);
    });
}

#[test]
fn what_was_not_seen_is_not_said_to_be_missing() {
    in_fast_time(Mode::Wb, |world| async move {
        world.mkdir("d");
        world.write("d/known", b"1");
        (0..2_000).for_each(|n| world.write(&format!("d/n{n}"), b""));
        let e = world.start().await;
        e.find("/lab/d/known").await.unwrap();
        world.fault(Fault::Unreachable);
        let e = restart(&world, e).await;
        e.find("/lab/d/known").await.unwrap();
        assert_ne!(e.find("/lab/d/unknown").await.unwrap_err().kind, ErrorKind::NotFound);
    });
}

/// A record has only so many names of an object, and a directory with another one is not known as a whole.
#[test]
fn a_directory_whose_names_are_not_all_kept_is_not_said_to_lack_one() {
    in_fast_time(Mode::Wb, |world| async move {
        let e = world.start().await;
        let lab = e.lab().await;
        let f = e.create(lab, "f").await.unwrap();
        for n in 0..40 {
            e.vfs.link(e.ctx(), f, lab, format!("l{n}").as_bytes()).await.unwrap();
        }
        e.sync().await;
        assert_eq!(e.names(lab).await.len(), 41);
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        world.fault(Fault::Unreachable);
        let e = restart(&world, e).await;
        assert_eq!(e.find("/lab/l39").await.unwrap(), f);
        for n in 0..40 {
            let found = e.find(&format!("/lab/l{n}")).await;
            assert!(
                found.as_ref().is_ok_and(|id| *id == f) || found.unwrap_err().kind != ErrorKind::NotFound
            );
        }
    });
}

/// Each process counts from the same records, whatever came to nothing meanwhile. The clock of the home is hours ahead.
#[test]
fn a_directory_shows_the_ctime_that_it_had_after_any_number_of_restarts() {
    in_fast_time(Mode::Wb, |world| async move {
        world.mkdir("old");
        let e = world.start().await;
        let (lab, old) = (e.lab().await, e.find("/lab/old").await.unwrap());
        assert!(e.names(old).await.is_empty());
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        world.fault(Fault::Unreachable);
        e.vfs.mkdir(e.ctx(), lab, b"new", SetAttrs::default()).await.unwrap();
        let mut shown = Vec::new();
        for dir in ["/lab/new", "/lab/old"] {
            let d = e.find(dir).await.unwrap();
            for name in ["a", "b", "c"] {
                e.vfs.mkdir(e.ctx(), d, name.as_bytes(), SetAttrs::default()).await.unwrap();
            }
            let mode = SetAttrs { mode: Some(0o700), ..SetAttrs::default() };
            e.vfs.setattr(e.ctx(), d, mode, None).await.unwrap();
            e.vfs.rmdir(e.ctx(), d, b"b").await.unwrap();
            shown.push((dir, attr(&e, dir).await.ctime));
        }
        let mut e = e;
        for _ in 0..3 {
            world.disk.kill();
            drop(e);
            e = world.start().await;
            for (dir, ctime) in &shown {
                assert_eq!(attr(&e, dir).await.ctime, *ctime, "{dir}");
            }
        }
        world.fault(Fault::None);
        e.sync().await;
        let e = restart(&world, e).await;
        for (dir, ctime) in &shown {
            assert!(attr(&e, dir).await.ctime >= *ctime, "{dir}");
        }
    });
}
