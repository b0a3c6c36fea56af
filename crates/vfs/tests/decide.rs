//! What becomes of operations that a home refuses: they are told, tried again, or given up.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{Engine, World};
use home::testing::fault::Fault;
use home::{ErrorKind, Kind};
use std::time::Duration;
use vfs::{Ctx, Mode, Oid, Parked, RenameHow, RetryKey, SetAttrs};

/// An engine whose home refuses for this reason all that the test does from now on.
async fn refusing(world: &World, kind: ErrorKind) -> (Engine, Oid) {
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    e.sync().await;
    world.fault(Fault::Refuse(kind));
    (e, lab)
}

/// Waits until the home has refused something and nothing more can go; answers what was refused.
async fn refused(e: &Engine) -> Vec<Parked> {
    e.vfs.sync(None, Duration::from_secs(20)).await.unwrap_err();
    let parked = e.vfs.status().volumes.remove(0).parked;
    assert!(!parked.is_empty());
    parked
}

fn volume(e: &Engine) -> u32 {
    e.vfs.status().volumes[0].volume
}

async fn discard(e: &Engine, wanted: Option<&[u64]>) -> Vec<String> {
    e.vfs.discard(volume(e), wanted).await.unwrap().into_iter().map(|p| p.what).collect()
}

#[tokio::test]
async fn a_refused_write_is_told_once_and_goes_home_when_it_is_tried_again() {
    let world = World::new(Mode::Wb);
    world.write("f", b"old");
    let (e, _) = refusing(&world, ErrorKind::NoSpace).await;
    let f = e.find("/lab/f").await.unwrap();
    e.write(f, 0, b"new").await.unwrap();
    let parked = refused(&e).await;
    assert_eq!(parked[0].what, "write to /f");
    assert_eq!(e.vfs.commit(e.ctx(), f).await.unwrap_err().kind, ErrorKind::NoSpace);
    e.vfs.commit(e.ctx(), f).await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"new", "what was taken is kept");
    world.fault(Fault::None);
    assert_eq!(e.vfs.retry_refused(None), 1);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"new");
}

/// A large file is many writes; a person sees one change, which he can give up by its number.
#[tokio::test]
async fn refused_writes_to_one_file_are_told_as_one() {
    let world = World::new(Mode::Wb);
    ["f", "g"].iter().for_each(|name| world.write(name, b"old"));
    let (e, _) = refusing(&world, ErrorKind::NoSpace).await;
    let (f, g) = (e.find("/lab/f").await.unwrap(), e.find("/lab/g").await.unwrap());
    world.fault(Fault::Unreachable);
    for at in 0..5 {
        e.write(f, at * 10, b"new").await.unwrap();
        e.write(g, at * 10, b"new").await.unwrap();
    }
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    let parked = refused(&e).await;
    let told: Vec<(&str, usize)> = parked.iter().map(|p| (&*p.what, p.all.len())).collect();
    assert_eq!(told, [("write to /f", 5), ("write to /g", 5)]);
    assert_eq!(discard(&e, Some(&[parked[0].seq])).await.len(), 5);
    assert_eq!(e.vfs.status().volumes[0].parked.len(), 1);
    world.fault(Fault::None);
    e.vfs.retry_refused(None);
    e.sync().await;
    assert_eq!(
        (world.at_home("f").await.unwrap(), e.read(f).await.unwrap()),
        (b"old".to_vec(), b"old".to_vec())
    );
    assert_eq!(world.at_home("g").await.unwrap().len(), 43);
}

#[tokio::test]
async fn a_refused_write_is_told_to_the_next_writer() {
    let world = World::new(Mode::Wb);
    world.write("f", b"old");
    let (e, _) = refusing(&world, ErrorKind::Quota).await;
    let f = e.find("/lab/f").await.unwrap();
    e.write(f, 0, b"new").await.unwrap();
    refused(&e).await;
    assert_eq!(e.write(f, 3, b"er").await.unwrap_err().kind, ErrorKind::Quota);
    e.write(f, 3, b"er").await.unwrap();
    world.fault(Fault::None);
    e.vfs.retry_refused(Some(volume(&e)));
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"newer");
}

#[tokio::test]
async fn a_write_that_is_given_up_shows_what_the_home_has() {
    let world = World::new(Mode::Wb);
    world.write("f", b"as it was");
    let (e, _) = refusing(&world, ErrorKind::Access).await;
    let f = e.find("/lab/f").await.unwrap();
    e.write(f, 0, b"AS").await.unwrap();
    refused(&e).await;
    // Behind the refused one; it means nothing without it.
    let _ = e.write(f, 0, b"xx").await;
    e.write(f, 3, b"IT").await.unwrap();
    assert_eq!(discard(&e, None).await, ["write to /f", "write to /f"]);
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(e.read(f).await.unwrap(), b"as it was");
    assert_eq!(world.at_home("f").await.unwrap(), b"as it was");
    assert!(e.vfs.status().volumes[0].parked.is_empty());
}

#[tokio::test]
async fn a_directory_that_is_given_up_takes_along_what_was_done_in_it() {
    let mut world = World::new(Mode::Wb);
    world.write("kept", b"theirs");
    let (e, lab) = refusing(&world, ErrorKind::Access).await;
    let dir = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    let f = e.create(dir, "f").await.unwrap();
    e.write(f, 0, b"ours").await.unwrap();
    e.vfs.rename(e.ctx(), dir, b"f", lab, b"kept", RenameHow::Replace).await.unwrap();
    let parked = refused(&e).await;
    assert_eq!(parked.iter().map(|p| &p.what[..]).collect::<Vec<_>>(), ["create directory /d"]);
    let (held, next) = e.vfs.held(volume(&e), 0).unwrap();
    let held: Vec<String> = held.iter().map(|h| h.path.to_string()).collect();
    assert_eq!((held, next), (vec!["/d".to_owned(), "/kept".to_owned()], None));

    let given_up = discard(&e, Some(&[parked[0].seq])).await;
    assert_eq!(given_up.len(), 4, "{given_up:?}");
    assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap_err().kind, ErrorKind::Stale);
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(e.names(lab).await, ["kept"]);
    assert_eq!(e.read(e.find("/lab/kept").await.unwrap()).await.unwrap(), b"theirs");

    // It is given up for good.
    world.disk.kill();
    drop(e);
    world.reconnect();
    let e = world.start().await;
    assert_eq!(e.vfs.status().volumes[0].unsent_ops, 0);
    assert_eq!(e.names(e.lab().await).await, ["kept"]);
    assert_eq!(world.names_at_home("").await, ["kept"]);
}

#[tokio::test]
async fn what_replaced_a_file_that_is_given_up_stays() {
    let world = World::new(Mode::Wb);
    world.write("a", b"theirs");
    let (e, lab) = refusing(&world, ErrorKind::Access).await;
    e.create(lab, "b").await.unwrap();
    let parked = refused(&e).await;
    e.vfs.rename(e.ctx(), lab, b"a", lab, b"b", RenameHow::Replace).await.unwrap();
    assert_eq!(discard(&e, Some(&[parked[0].seq])).await, ["create file /b"]);
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["b"]);
    assert_eq!(world.at_home("b").await.unwrap(), b"theirs");
    assert_eq!(e.names(lab).await, ["b"]);
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
}

/// Also where the home has it no more: else another file could be given it unseen, and what is unsent would have no place.
#[tokio::test]
async fn what_is_unsent_has_its_name_back_with_a_rename_that_is_given_up() {
    let world = World::new(Mode::Wb);
    world.write("f", b"theirs");
    let (e, lab) = refusing(&world, ErrorKind::Access).await;
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"theirs");
    e.vfs.rename(e.ctx(), lab, b"f", lab, b"g", RenameHow::Replace).await.unwrap();
    assert_eq!(refused(&e).await[0].what, "rename /f to /g");
    world.fault(Fault::HangChanges);
    e.write(f, 0, b"ours").await.unwrap();
    world.remove("f");
    assert_eq!(discard(&e, None).await, ["rename /f to /g"]);
    assert_eq!(e.find("/lab/f").await.unwrap(), f);
    assert_eq!(e.names(lab).await, ["f"]);
    assert_eq!(e.create(lab, "f").await.unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(e.read(f).await.unwrap(), b"oursrs");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["f"]);
    assert_eq!(world.at_home("f").await.unwrap(), b"oursrs");
}

#[tokio::test]
async fn only_what_was_refused_can_be_given_up() {
    let world = World::new(Mode::Wb);
    let (e, lab) = refusing(&world, ErrorKind::Access).await;
    e.create(lab, "a").await.unwrap();
    let parked = refused(&e).await;
    let wrong = e.vfs.discard(volume(&e), Some(&[parked[0].seq, 999])).await.unwrap_err();
    assert_eq!(wrong.kind, ErrorKind::NotFound);
    assert_eq!(e.vfs.status().volumes[0].parked.len(), 1, "nothing was given up");
}

#[tokio::test]
async fn nothing_goes_home_before_what_was_given_up_is_durable() {
    let world = World::new(Mode::Wb);
    let (e, lab) = refusing(&world, ErrorKind::Access).await;
    e.create(lab, "a").await.unwrap();
    refused(&e).await;
    // Durable, and not sent before its time.
    e.create(lab, "later").await.unwrap();
    world.disk.slow_syncs(Duration::from_secs(2));
    world.fault(Fault::None);
    let volume = volume(&e);
    let arrived = async {
        while !world.names_at_home("").await.contains(&"later".to_owned()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let given_up = e.vfs.discard(volume, None);
    tokio::pin!(arrived, given_up);
    let first = tokio::select! {
        biased;
        done = &mut given_up => done.map(|all| all.len()),
        () = &mut arrived => Ok(0),
    };
    assert_eq!(first.unwrap(), 1, "it went home first");
    world.disk.slow_syncs(Duration::ZERO);
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["later"]);
}

#[tokio::test]
async fn a_refused_rename_is_told_by_paths_also_where_its_folders_are_gone() {
    let world = World::new(Mode::Wb);
    ["a", "b", "c", "a/deep", "a/deep/ro"].iter().for_each(|dir| world.mkdir(dir));
    let e = world.start().await;
    let mut dirs = Vec::new();
    for dir in ["/lab", "/lab/a", "/lab/b", "/lab/c", "/lab/a/deep"] {
        dirs.push(e.find(dir).await.unwrap());
        e.names(dirs[dirs.len() - 1]).await;
    }
    let [lab, a, b, c, deep] = dirs[..] else { unreachable!() };
    e.find("/lab/a/deep/ro").await.unwrap();
    world.fault(Fault::Refuse(ErrorKind::Access));
    let moved =
        async |from, to| e.vfs.rename(e.ctx(), from, b"ro", to, b"ro", RenameHow::Replace).await.unwrap();
    moved(deep, b).await;
    let told = async || refused(&e).await[0].what.clone();
    assert_eq!(told().await, "rename /a/deep/ro to /b/ro");
    moved(b, c).await;
    e.vfs.rmdir(e.ctx(), a, b"deep").await.unwrap();
    for dir in ["a", "b"] {
        e.vfs.rmdir(e.ctx(), lab, dir.as_bytes()).await.unwrap();
    }
    assert_eq!(told().await, "rename /a/deep/ro to /b/ro");
}

#[tokio::test]
async fn what_was_never_made_and_is_gone_here_waits_for_nobody() {
    let mut world = World::new(Mode::Wb);
    let (e, lab) = refusing(&world, ErrorKind::Unsupported).await;
    e.vfs.mknod(e.ctx(), lab, b"p", Kind::Fifo, SetAttrs::default()).await.unwrap();
    let mut chain = vec![lab];
    for _ in 0..3 {
        let made = e.vfs.mkdir(e.ctx(), chain[chain.len() - 1], b"d", SetAttrs::default()).await.unwrap();
        chain.push(made.oid);
    }
    let f = e.create(chain[3], "f").await.unwrap();
    e.write(f, 0, b"ours").await.unwrap();
    e.vfs.link(e.ctx(), f, chain[2], b"g").await.unwrap();
    e.vfs.rename(e.ctx(), chain[3], b"f", chain[1], b"g", RenameHow::Replace).await.unwrap();
    let parked = refused(&e).await;
    assert_eq!(
        parked.iter().map(|p| &p.what[..]).collect::<Vec<_>>(),
        ["create named pipe /p", "create directory /d"]
    );
    for (dir, name) in [(chain[1], "g"), (chain[2], "g"), (lab, "p")] {
        e.vfs.remove(e.ctx(), dir, name.as_bytes()).await.unwrap();
    }
    for dir in chain[..3].iter().rev() {
        e.vfs.rmdir(e.ctx(), *dir, b"d").await.unwrap();
    }
    e.sync().await;
    let status = e.vfs.status().volumes.remove(0);
    assert_eq!((status.parked.len(), status.unsent_ops), (0, 0));
    assert_eq!(e.names(lab).await, Vec::<String>::new());

    world.fault(Fault::None);
    world.disk.kill();
    drop(e);
    world.reconnect();
    let e = world.start().await;
    e.sync().await;
    assert_eq!(world.names_at_home("").await, Vec::<String>::new());
    e.create(e.lab().await, "d").await.unwrap();
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["d"]);
}

/// A directory that was never made, and is gone here, is needed by what went through it.
#[tokio::test]
async fn the_removal_of_what_was_never_made_keeps_its_first_answer_over_a_restart() {
    let world = World::new(Mode::Wb);
    let (e, lab) = refusing(&world, ErrorKind::Access).await;
    e.create(lab, "f").await.unwrap();
    refused(&e).await;
    let key = RetryKey([7; 16]);
    e.vfs.remove(Ctx { retry: Some(key), ..e.ctx() }, lab, b"f").await.unwrap();
    e.vfs.sync(None, Duration::from_secs(20)).await.unwrap();
    // What became of it is durable with the next change.
    e.create(lab, "g").await.unwrap();
    world.disk.kill();
    drop(e);
    let e = world.start().await;
    assert!(e.vfs.first_reply(key).await.is_some(), "a repeated call would fail: there is no such file");
}

#[tokio::test]
async fn what_something_else_needs_is_not_given_up() {
    let world = World::new(Mode::Wb);
    world.write("kept", b"theirs");
    world.write("gone", b"theirs");
    let (e, lab) = refusing(&world, ErrorKind::Access).await;
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    for name in [&b"kept"[..], b"gone"] {
        e.vfs.rename(e.ctx(), lab, name, d, name, RenameHow::Replace).await.unwrap();
    }
    e.create(d, "new").await.unwrap();
    refused(&e).await;
    e.vfs.rename(e.ctx(), d, b"kept", lab, b"back", RenameHow::Replace).await.unwrap();
    e.vfs.rename(e.ctx(), d, b"new", lab, b"new", RenameHow::Replace).await.unwrap();
    e.vfs.remove(e.ctx(), d, b"gone").await.unwrap();
    e.vfs.rmdir(e.ctx(), lab, b"d").await.unwrap();
    assert_eq!(refused(&e).await.len(), 1, "nothing was given up");
    world.fault(Fault::None);
    e.vfs.retry_refused(None);
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["back", "new"]);
    assert_eq!(world.at_home("back").await.unwrap(), b"theirs");
}

#[tokio::test]
async fn what_sftp_cannot_make_is_refused_at_once() {
    let world = World::new(Mode::Wb);
    world.fault(Fault::Sftp);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    for kind in [Kind::Fifo, Kind::Socket] {
        let made = e.vfs.mknod(e.ctx(), lab, b"p", kind, SetAttrs::default()).await;
        assert_eq!(made.unwrap_err().kind, ErrorKind::Perm);
    }
    assert_eq!(e.names(lab).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_long_path_lacks_its_middle_where_a_person_reads_of_it() {
    let world = World::new(Mode::Wb);
    let names: Vec<String> = ('b'..'f').map(|c| c.to_string().repeat(250)).collect();
    (1..=names.len()).for_each(|n| world.mkdir(&names[..n].join("/")));
    let (e, lab) = refusing(&world, ErrorKind::NameTooLong).await;
    let dir = e.find(&format!("/lab/{}", names.join("/"))).await.unwrap();
    e.names(dir).await;
    let whole = "a".repeat(199);
    e.create(lab, &whole).await.unwrap();
    e.create(dir, "end").await.unwrap();
    let what: Vec<String> = refused(&e).await.into_iter().map(|p| p.what).collect();
    let short = format!("create file /{}…{}/end", "b".repeat(99), "e".repeat(95));
    assert_eq!(what, [format!("create file /{whole}"), short]);
}

#[tokio::test]
async fn a_name_stays_that_of_what_is_unsent_when_an_earlier_change_of_it_is_given_up() {
    let world = World::new(Mode::Wb);
    world.write("f", b"theirs");
    let (e, lab) = refusing(&world, ErrorKind::Access).await;
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    let parked = refused(&e).await;
    let ours = e.create(lab, "f").await.unwrap();
    e.write(ours, 0, b"ours").await.unwrap();
    assert_eq!(discard(&e, Some(&[parked[0].seq])).await, ["remove /f"]);
    assert_eq!(e.find("/lab/f").await.unwrap(), ours);
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    assert_eq!(e.find("/lab/f").await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn an_object_tells_whether_the_home_has_all_of_it() {
    let world = World::new(Mode::Wb);
    world.write("f", b"old");
    world.write("other", b"x");
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    e.sync().await;
    let (f, other) = (e.find("/lab/f").await.unwrap(), e.find("/lab/other").await.unwrap());
    let state = async |e: &Engine, oid| {
        let told = e.vfs.getxattr(e.ctx(), oid, b"user.trellis.state").await.unwrap();
        String::from_utf8(told.to_vec()).unwrap()
    };
    assert_eq!(state(&e, f).await, "clean");
    world.fault(Fault::HangChanges);
    e.write(f, 0, b"new").await.unwrap();
    let new = e.create(lab, "new").await.unwrap();
    for (oid, wanted) in [(f, "unsent"), (new, "unsent"), (lab, "unsent"), (other, "clean")] {
        assert_eq!(state(&e, oid).await, wanted);
    }
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    refused(&e).await;
    assert_eq!(state(&e, f).await, "refused: no space left");
    assert_eq!(state(&e, other).await, "clean");
    world.disk.kill();
    drop(e);
    let e = world.start().await;
    refused(&e).await;
    assert_eq!(state(&e, f).await, "refused: no space left", "also after a restart");
    assert!(e.vfs.listxattr(e.ctx(), f).await.unwrap().is_empty(), "copies would want to set it");
    let set = e.vfs.setxattr(e.ctx(), f, b"user.trellis.state", "clean".into(), home::XattrHow::Any).await;
    assert_eq!(set.unwrap_err().kind, ErrorKind::Perm);
    world.fault(Fault::None);
    e.vfs.retry_refused(None);
    e.sync().await;
    for oid in [f, new, lab, other] {
        assert_eq!(state(&e, oid).await, "clean");
    }
}
