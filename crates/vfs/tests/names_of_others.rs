//! Another program gives names at the home to other files while changes that were made to what had them are unsent.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World};
use home::HomePath;
use home::testing::conformance::Outside;
use home::testing::fault::Fault;
use std::time::Duration;
use vfs::{Mode, Oid, RenameHow, SetAttrs};

fn path(text: &str) -> HomePath {
    HomePath::parse(text.as_bytes()).unwrap()
}

/// Another program gives a name to another file, with this content.
fn replace(world: &World, name: &str, data: &[u8]) {
    world.write("temporary", data);
    Outside::rename(&world.memory, &path("temporary"), &path(name));
}

/// What is at the home by all names, in their order.
async fn all_at_home(world: &World) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for name in world.names_at_home("").await {
        all.push(world.at_home(&name).await.unwrap());
    }
    all
}

/// An engine that has looked at all names.
async fn looked(world: &World) -> (Engine, Oid) {
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    (e, lab)
}

/// The same, and has read a file that has the names `a` and `b`.
async fn of_two_names(world: &World) -> (Engine, Oid, Oid) {
    world.write("a", b"base");
    world.memory.link_outside(&path("a"), &path("b"));
    let (e, lab) = looked(world).await;
    let f = e.find("/lab/a").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"base");
    (e, lab, f)
}

/// The server is killed, and the power fails at the home, to which nothing of what is unsent came.
fn cut(world: &mut World, e: Engine) {
    world.disk.kill();
    drop(e);
    world.reconnect();
    world.memory.cut_power();
}

#[tokio::test]
async fn what_takes_the_name_of_a_file_that_was_never_made_is_not_removed_for_it() {
    let mut world = World::new(Mode::Wb);
    world.memory.set_keeps_log(true);
    let (e, lab) = looked(&world).await;
    // Of the first thing that is sent it would be known that it never was.
    e.create(lab, "g").await.unwrap();
    e.sync().await;
    world.fault(Fault::HangChanges);
    e.create(lab, "f").await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    cut(&mut world, e);
    world.fault(Fault::HangChanges);
    let e = world.start().await;
    e.lab().await;
    // Until it has looked for the file.
    while e.vfs.status().volumes[0].unsent_ops == 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.write("f", b"theirs");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"theirs");
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
}

/// It is found by the answer to a rename that was sent again and has nothing to rename any more.
#[tokio::test]
async fn a_file_that_another_program_put_at_the_new_name_is_not_what_was_moved_there() {
    for is_moved in [false, true] {
        let mut world = World::new(Mode::Wb);
        world.memory.set_keeps_log(true);
        world.write("b", b"ours");
        let (e, lab) = looked(&world).await;
        let f = e.find("/lab/b").await.unwrap();
        world.fault(Fault::HangChanges);
        e.create(lab, "first").await.unwrap();
        tokio::time::sleep(Duration::from_millis(800)).await;
        e.vfs.rename(e.ctx(), lab, b"b", lab, b"a", RenameHow::Replace).await.unwrap();
        let to = if is_moved { "a" } else { "c" };
        Outside::rename(&world.memory, &path("b"), &path(to));
        if !is_moved {
            world.write("a", b"theirs");
        }
        cut(&mut world, e);
        world.fault(Fault::None);
        let e = world.start().await;
        e.sync().await;
        let lab = e.lab().await;
        e.names(lab).await;
        assert_eq!(e.find("/lab/a").await.unwrap() == f, is_moved);
        assert_eq!(world.at_home("a").await.unwrap(), if is_moved { &b"ours"[..] } else { b"theirs" });
        assert_eq!(e.vfs.status().volumes[0].conflicts == 0, is_moved);
    }
}

/// Something was moved over it that was gone at the home, so that nobody knows whether it was moved there.
#[tokio::test]
async fn what_was_never_made_does_not_come_back_when_what_took_its_name_is_gone() {
    for is_moved in [false, true] {
        let mut world = World::new(Mode::Wb);
        world.memory.set_keeps_log(true);
        world.write("d", b"base");
        let (e, lab) = looked(&world).await;
        let rename = async |e: &Engine, lab, from: &[u8], to: &[u8]| {
            e.vfs.rename(e.ctx(), lab, from, lab, to, RenameHow::Replace).await.unwrap();
        };
        world.fault(Fault::HangChanges);
        e.create(lab, "first").await.unwrap();
        tokio::time::sleep(Duration::from_millis(800)).await;
        e.create(lab, if is_moved { "t" } else { "c" }).await.unwrap();
        if is_moved {
            rename(&e, lab, b"t", b"c").await;
        }
        rename(&e, lab, b"d", b"c").await;
        e.vfs.remove(e.ctx(), lab, b"c").await.unwrap();
        let unsent = e.vfs.status().volumes[0].unsent_ops;
        world.remove("d");
        cut(&mut world, e);
        world.fault(Fault::HangChanges);
        let e = world.start().await;
        e.lab().await;
        while e.vfs.status().volumes[0].unsent_ops == unsent {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Until that is durable.
        tokio::time::sleep(Duration::from_millis(800)).await;
        world.disk.kill();
        drop(e);
        world.reconnect();
        let e = world.start().await;
        let lab = e.lab().await;
        if is_moved {
            // What was done to its name is still to be done; it is no file of another file system.
            rename(&e, lab, b"c", b"e").await;
        } else {
            assert!(e.find("/lab/c").await.is_err());
        }
        world.fault(Fault::None);
        e.sync().await;
        let left = if is_moved { &["e", "first"][..] } else { &["first"] };
        assert_eq!(world.names_at_home("").await, left);
    }
}

#[tokio::test]
async fn what_is_written_after_the_last_name_at_the_home_was_taken_keeps_it() {
    let world = World::new(Mode::Wb);
    world.write("a", b"base");
    world.memory.link_outside(&path("a"), &path("b"));
    let (e, lab) = looked(&world).await;
    let f = e.find("/lab/a").await.unwrap();
    assert_eq!(e.find("/lab/b").await.unwrap(), f);
    replace(&world, "a", b"theirs");
    world.fault(Fault::HangChanges);
    e.write(f, 4, b" and").await.unwrap();
    // It is on its way.
    tokio::time::sleep(Duration::from_millis(800)).await;
    // By the name that leads to theirs, of which nothing is known here yet.
    e.vfs.remove(e.ctx(), lab, b"b").await.unwrap();
    e.write(f, 8, b" ours").await.unwrap();
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(all_at_home(&world).await, [&b"theirs"[..], b"base and ours"]);
    assert_eq!(e.read(f).await.unwrap(), b"base and ours");
    assert_eq!(e.vfs.status().volumes[0].conflicts, 1);
}

#[tokio::test]
async fn a_rename_of_a_name_that_was_taken_from_what_became_a_copy_moves_nothing() {
    let world = World::new(Mode::Wb);
    let (e, lab, f) = of_two_names(&world).await;
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"ours").await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"b", lab, b"c", RenameHow::Replace).await.unwrap();
    world.write("a", b"theirs");
    replace(&world, "b", b"and theirs");
    world.fault(Fault::None);
    e.sync().await;
    // Between theirs is the copy.
    assert_eq!(all_at_home(&world).await, [&b"theirs"[..], b"ours", b"and theirs"]);
    assert_eq!(world.at_home("b").await.unwrap(), b"and theirs");
    assert_eq!(e.read(f).await.unwrap(), b"ours");
    assert!(e.vfs.status().volumes[0].parked.is_empty());
}

#[tokio::test]
async fn a_file_of_ours_that_was_moved_over_another_one_does_not_become_one_with_it() {
    let mut world = World::new(Mode::Wb);
    world.memory.set_keeps_log(true);
    world.write("f", b"base");
    let (e, lab) = looked(&world).await;
    let f = e.find("/lab/f").await.unwrap();
    e.read(f).await.unwrap();
    let g = e.create(lab, "g").await.unwrap();
    e.sync().await;
    world.fault(Fault::HangChanges);
    e.write(f, 4, b" and ours").await.unwrap();
    e.write(g, 0, b"of g").await.unwrap();
    cut(&mut world, e);
    Outside::rename(&world.memory, &path("g"), &path("f"));
    let e = world.start().await;
    e.lab().await;
    e.sync().await;
    // What is `f` there now, the copy, and `g`, which is made anew.
    assert_eq!(all_at_home(&world).await, [&b""[..], b"base and ours", b"of g"]);
    assert_eq!(e.read(f).await.unwrap(), b"base and ours");
    assert_eq!(e.read(g).await.unwrap(), b"of g");
}

#[tokio::test]
async fn what_is_written_to_a_file_whose_copy_would_be_removed_has_a_copy() {
    let world = World::new(Mode::Wb);
    let (e, lab, f) = of_two_names(&world).await;
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"ours").await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"a").await.unwrap();
    e.write(f, 4, b" too").await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"b", lab, b"c", RenameHow::Replace).await.unwrap();
    world.write("a", b"theirs");
    replace(&world, "b", b"and theirs");
    world.fault(Fault::None);
    e.sync().await;
    let mut all = all_at_home(&world).await;
    all.sort();
    assert_eq!(all, [&b"and theirs"[..], b"ours too", b"theirs"]);
    assert_eq!(e.read(f).await.unwrap(), b"ours too");
    assert!(e.vfs.status().volumes[0].parked.is_empty());
}

#[tokio::test]
async fn who_does_the_same_before_anything_was_sent_proves_nothing() {
    let mut world = World::new(Mode::Wb);
    world.memory.set_keeps_log(true);
    world.write("a", b"base");
    let (e, lab) = looked(&world).await;
    // Nothing is sent, however long it takes.
    e.vfs.set_mode(lab.volume, Mode::Offline).unwrap();
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    e.vfs.rename(e.ctx(), lab, b"a", lab, b"b", RenameHow::Replace).await.unwrap();
    e.create(d, "f").await.unwrap();
    cut(&mut world, e);
    Outside::rename(&world.memory, &path("a"), &path("b"));
    let e = world.start().await;
    e.lab().await;
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["b", "d"]);
    assert_eq!(world.names_at_home("d").await, ["f"]);
}

#[tokio::test]
async fn what_another_program_wrote_to_a_file_that_was_just_made_is_no_base_of_ours() {
    let mut world = World::new(Mode::Wb);
    world.memory.set_keeps_log(true);
    let (e, lab) = looked(&world).await;
    e.create(lab, "g").await.unwrap();
    e.sync().await;
    world.fault(Fault::ChangesUnanswered);
    let f = e.create(lab, "f").await.unwrap();
    // Which proves that the first one was made.
    e.create(lab, "h").await.unwrap();
    while world.at_home("h").await.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"ours").await.unwrap();
    world.write("f", b"their");
    cut(&mut world, e);
    let e = world.start().await;
    e.lab().await;
    e.sync().await;
    assert_eq!(all_at_home(&world).await, [&b"their"[..], b"ours", b"", b""]);
    assert_eq!(e.vfs.status().volumes[0].conflicts, 1);
}

/// A rename was given up, because the home had removed its file, and what was made under the old name is another one.
#[tokio::test]
async fn what_is_made_anew_does_not_take_the_name_that_another_file_has_by_now() {
    let world = World::new(Mode::Wb);
    world.write("a", b"base");
    let (e, lab) = looked(&world).await;
    let f = e.find("/lab/a").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"base");
    world.fault(Fault::Unreachable);
    e.vfs.rename(e.ctx(), lab, b"a", lab, b"b", RenameHow::Replace).await.unwrap();
    let g = e.create(lab, "a").await.unwrap();
    e.write(g, 0, b"of g").await.unwrap();
    e.write(f, 0, b"ours").await.unwrap();
    world.remove("a");
    // What has the name is of the same length, so that it would be compared.
    world.fault.set_after_conflict(Fault::Unreachable);
    world.fault(Fault::None);
    while world.at_home("a").await.as_deref() != Some(b"of g") || e.vfs.status().volumes[0].unsent_ops > 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(800)).await;
    e.write(g, 4, b", too").await.unwrap();
    world.remove("a");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(all_at_home(&world).await, [&b"of g, too"[..], b"ours"]);
    assert_eq!(world.at_home("a").await.unwrap(), b"of g, too");
    assert_eq!((e.find("/lab/a").await.unwrap(), e.read(f).await.unwrap()), (g, b"ours".to_vec()));
}

/// The home knows after a power cut that it wrote ours; another program wrote the file since.
#[tokio::test]
async fn what_another_program_wrote_to_what_we_had_written_is_not_removed_for_that() {
    let mut world = World::new(Mode::Wb);
    world.memory.set_keeps_log(true);
    let (e, lab) = looked(&world).await;
    let f = e.create(lab, "f").await.unwrap();
    e.sync().await;
    world.fault(Fault::ChangesUnanswered);
    e.write(f, 0, b"ours").await.unwrap();
    while world.at_home("f").await.unwrap() != b"ours" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.fault(Fault::Unreachable);
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    world.write("f", b"their");
    world.disk.kill();
    drop(e);
    world.reconnect();
    world.memory.cut_power_when_durable();
    let e = world.start().await;
    e.lab().await;
    e.sync().await;
    assert_eq!(all_at_home(&world).await, [b"their"]);
    assert_eq!(e.vfs.status().volumes[0].conflicts, 1);
}

/// A file `f` with this content, where changes were executed before and hang from now on.
async fn before_changes_hang(world: &World, content: &[u8]) -> (Engine, Oid) {
    world.memory.set_keeps_log(true);
    world.write("f", content);
    let (e, lab) = looked(world).await;
    let f = e.find("/lab/f").await.unwrap();
    e.create(lab, "g").await.unwrap();
    e.sync().await;
    world.fault(Fault::HangChanges);
    (e, f)
}

/// An append that is sent again after a power cut meets what another program has written since, to the same length.
#[tokio::test]
async fn what_another_program_wrote_after_a_power_cut_is_no_half_of_ours() {
    let mut world = World::new(Mode::Wb);
    let (e, f) = before_changes_hang(&world, b"base").await;
    e.write(f, 4, b" and ours").await.unwrap();
    cut(&mut world, e);
    world.write("f", b"them");
    world.fault(Fault::None);
    let e = world.start().await;
    e.lab().await;
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"them");
    assert_eq!(e.vfs.status().volumes[0].conflicts, 1);
}

/// A power cut left an append with another time and without its bytes; while the gateway looks at what there is, somebody writes
/// over that here.
#[tokio::test]
async fn what_is_written_here_while_a_file_is_looked_at_is_not_what_another_program_wrote_there() {
    let world = World::new(Mode::Wb);
    let (e, f) = before_changes_hang(&world, b"base").await;
    e.read(f).await.unwrap();
    e.write(f, 4, b" and ours").await.unwrap();
    for fault in [Fault::HangChanges, Fault::Unreachable] {
        world.fault(fault);
        e.vfs.sync(None, Duration::from_millis(300)).await.unwrap_err();
    }
    world.memory.cut_power();
    world.memory.set_mtime_outside(&path("f"), vfs::Time { sec: 1_600_000_000, nsec: 0 });
    world.fault(Fault::LateBytes);
    let more = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        e.write(f, 0, b"BASE").await.unwrap();
        world.fault(Fault::None);
    };
    let _ = tokio::join!(e.vfs.sync(None, Duration::from_secs(5)), more);
    e.sync().await;
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
    assert_eq!(world.at_home("f").await.unwrap(), b"BASE and ours");
}

/// A write may give its file another identity at the home, and a time that is set after that takes its mark away.
#[tokio::test]
async fn what_was_written_and_given_a_time_before_the_power_failed_is_ours() {
    let world = World::new(Mode::Wb);
    let (e, f) = before_changes_hang(&world, b"base").await;
    e.read(f).await.unwrap();
    e.write(f, 0, b"ours, and more of it").await.unwrap();
    let old = vfs::Time { sec: 1_600_000_000, nsec: 5 };
    let set = vfs::SetAttrs { mtime: Some(vfs::SetTime::At(old)), ..vfs::SetAttrs::default() };
    e.vfs.setattr(e.ctx(), f, set, None).await.unwrap();
    world.fault(Fault::ChangesUnanswered);
    let loc = home::Loc { path: path("f"), id: None };
    while home::Home::stat(&world.memory, &loc).await.unwrap().attr.mtime != old {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.fault(Fault::Unreachable);
    e.vfs.sync(None, Duration::from_millis(300)).await.unwrap_err();
    world.memory.cut_power();
    e.write(f, 0, b"OURS").await.unwrap();
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
    assert_eq!(world.at_home("f").await.unwrap(), b"OURS, and more of it");
}

/// What the file had where more was written to it since is not here any more after a restart.
#[tokio::test]
async fn what_was_written_and_given_a_time_is_ours_also_where_later_writes_hide_what_the_file_had() {
    let mut world = World::new(Mode::Wb);
    let (e, f) = before_changes_hang(&world, b"0123456789abcdef").await;
    e.write(f, 0, b"ours").await.unwrap();
    let old = vfs::Time { sec: 1_600_000_000, nsec: 5 };
    let set = vfs::SetAttrs { mtime: Some(vfs::SetTime::At(old)), ..vfs::SetAttrs::default() };
    e.vfs.setattr(e.ctx(), f, set, None).await.unwrap();
    world.fault(Fault::ChangesUnanswered);
    while stat(&world, "f").await.mtime != old {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.fault(Fault::HangChanges);
    e.write(f, 8, b"OVER AND BEHIND").await.unwrap();
    // Until that, too, may have been executed.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    cut(&mut world, e);
    world.fault(Fault::None);
    let e = world.start().await;
    e.lab().await;
    e.sync().await;
    assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
    assert_eq!(world.at_home("f").await.unwrap(), b"ours4567OVER AND BEHIND");
}

async fn stat(world: &World, name: &str) -> home::Attr {
    let loc = home::Loc { path: path(name), id: None };
    home::Home::stat(&world.memory, &loc).await.unwrap().attr
}

/// Before a power cut another program moved a file of ours, which a write had given an identity that nobody here knows, over one
/// that was just made. That this was made tells nothing of what has its name by now.
#[tokio::test]
async fn a_file_of_ours_that_others_moved_over_one_that_was_just_made_is_not_that() {
    for is_known in [false, true] {
        let mut world = World::new(Mode::Wb);
        world.memory.set_keeps_log(true);
        world.write("f", b"base");
        let (e, lab) = looked(&world).await;
        let f = e.find("/lab/f").await.unwrap();
        e.create(lab, "g").await.unwrap();
        if is_known {
            e.write(f, 0, b"ours, by f").await.unwrap();
        }
        e.sync().await;
        world.fault(Fault::HangChanges);
        let made = e.create(lab, "n").await.unwrap();
        if !is_known {
            e.write(f, 0, b"ours, by f").await.unwrap();
        }
        world.fault(Fault::ChangesUnanswered);
        while world.at_home("n").await.is_none() || world.at_home("f").await.unwrap() != b"ours, by f" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.fault(Fault::Unreachable);
        e.write(made, 0, b"OURS, BY N").await.unwrap();
        Outside::rename(&world.memory, &path("f"), &path("n"));
        world.disk.kill();
        drop(e);
        world.reconnect();
        world.memory.cut_power_when_durable();
        world.fault(Fault::None);
        let e = world.start().await;
        e.lab().await;
        e.sync().await;
        let all = all_at_home(&world).await;
        for ours in [b"ours, by f", b"OURS, BY N"] {
            assert!(all.contains(&ours.to_vec()), "{is_known} {:?}", String::from_utf8_lossy(ours));
        }
    }
}

/// What was made, and has gone before its identity was known, is not what another program makes by its name.
#[tokio::test]
async fn what_takes_the_name_of_a_file_that_has_gone_is_not_written_for_it() {
    let mut world = World::new(Mode::Wb);
    world.memory.set_keeps_log(true);
    let (e, lab) = looked(&world).await;
    e.create(lab, "g").await.unwrap();
    e.sync().await;
    world.fault(Fault::ChangesUnanswered);
    let f = e.create(lab, "f").await.unwrap();
    while world.at_home("f").await.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"ours").await.unwrap();
    world.remove("f");
    world.disk.kill();
    drop(e);
    world.reconnect();
    world.memory.cut_power_when_durable();
    world.fault(Fault::HangChanges);
    let e = world.start().await;
    e.lab().await;
    // Until it has looked for the file.
    while e.vfs.status().volumes[0].unsent_ops == 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.write("f", b"theirs");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"theirs");
    assert!(all_at_home(&world).await.contains(&b"ours".to_vec()));
}

/// What becomes a new file at the home has none of the names that another program gave to the one before.
#[tokio::test]
async fn what_is_made_anew_has_no_names_but_those_of_here() {
    let world = World::new(Mode::Wb);
    world.write("a", b"base");
    world.memory.link_outside(&path("a"), &path("b"));
    let e = world.start().await;
    e.lab().await;
    let f = e.find("/lab/a").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"base");
    let nlink = async || e.vfs.getattr(e.ctx(), f).await.unwrap().nlink;
    assert_eq!(nlink().await, 2);
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"ours").await.unwrap();
    world.remove("a");
    world.remove("b");
    // It is seen when it is decided that it is made anew, and no more than that is done.
    world.fault(Fault::SlowChanges(Duration::from_secs(1)));
    let made_anew = async {
        while e.vfs.status().volumes[0].unsent_ops != 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), made_anew).await.unwrap();
    assert_eq!(nlink().await, 1);
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!((all_at_home(&world).await, nlink().await), (vec![b"ours".to_vec()], 1));
}

/// A file `c`, which another program has linked to where nobody here has looked, has unsent bytes.
async fn written(world: &World, links: bool) -> (Engine, Oid) {
    world.memory.set_keeps_log(true);
    world.write("c", b"base");
    world.write("t", b"other");
    world.mkdir("aside");
    if links {
        world.memory.link_outside(&path("c"), &path("aside/z"));
    }
    let (e, lab) = looked(world).await;
    let c = e.find("/lab/c").await.unwrap();
    assert_eq!(e.read(c).await.unwrap(), b"base");
    e.create(lab, "first").await.unwrap();
    e.sync().await;
    world.fault(Fault::HangChanges);
    e.write(c, 4, b" and ours").await.unwrap();
    (e, lab)
}

/// What was moved there has gone, and so has all that was done to it since: what it was to replace is still there, and with
/// it what was written to that.
#[tokio::test]
async fn what_a_move_of_nothing_was_to_replace_stays_as_it_was_written() {
    for links in [false, true] {
        let mut world = World::new(Mode::Wb);
        let (e, lab) = written(&world, links).await;
        e.vfs.rename(e.ctx(), lab, b"t", lab, b"c", RenameHow::Replace).await.unwrap();
        e.vfs.rename(e.ctx(), lab, b"c", lab, b"n", RenameHow::Replace).await.unwrap();
        e.vfs.remove(e.ctx(), lab, b"n").await.unwrap();
        world.remove("t");
        cut(&mut world, e);
        let e = world.start().await;
        let lab = e.lab().await;
        e.sync().await;
        assert_eq!(world.names_at_home("").await, ["aside", "c", "first"]);
        assert_eq!(e.names(lab).await, ["aside", "c", "first"]);
        assert_eq!(world.at_home("c").await.unwrap(), b"base and ours");
        assert_eq!(e.read(e.find("/lab/c").await.unwrap()).await.unwrap(), b"base and ours");
        let status = e.vfs.status().volumes[0].clone();
        assert_eq!((status.conflicts, status.parked.len()), (2, 0), "both moves are given up");
    }
}

/// A power cut took what was written to a file of which nobody here knows the name that is left, not what took its other one.
#[tokio::test]
async fn what_was_written_to_a_file_whose_only_known_name_was_taken_has_a_copy() {
    for is_removed in [false, true] {
        let mut world = World::new(Mode::Wb);
        let (e, lab) = written(&world, true).await;
        let taken = if is_removed { "c" } else { "t" };
        match is_removed {
            true => drop(e.vfs.remove(e.ctx(), lab, b"c").await.unwrap()),
            false => drop(e.vfs.rename(e.ctx(), lab, b"t", lab, b"c", RenameHow::Replace).await.unwrap()),
        }
        world.fault(Fault::ChangesUnanswered);
        let is_done = async {
            while world.at_home(taken).await.is_some() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), is_done).await.unwrap();
        cut(&mut world, e);
        world.write("aside/z", b"base");
        let e = world.start().await;
        let lab = e.lab().await;
        e.sync().await;
        let names = world.names_at_home("").await;
        let copy = names.iter().find(|name| name.starts_with("c.trellis-conflict-")).expect("a copy");
        assert_eq!(world.at_home(copy).await.unwrap(), b"base and ours");
        assert_eq!(e.names(lab).await, names);
        assert!(e.vfs.status().volumes[0].parked.is_empty());
    }
}

/// What was renamed over a file and removed then has another name at the home, and neither name leads to it there any more.
#[tokio::test]
async fn a_removal_that_meets_equal_files_by_two_names_takes_the_one_that_it_names() {
    let world = World::new(Mode::Wb);
    ["b", "d"].iter().for_each(|name| world.write(name, b"same"));
    let (e, lab) = looked(&world).await;
    assert_eq!(e.read(e.find("/lab/d").await.unwrap()).await.unwrap(), b"same");
    world.fault(Fault::Unreachable);
    e.vfs.rename(e.ctx(), lab, b"d", lab, b"b", RenameHow::Replace).await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"b").await.unwrap();
    replace(&world, "d", b"same");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["d"]);
    assert_eq!(e.names(lab).await, ["d"]);
    assert_eq!(e.read(e.find("/lab/d").await.unwrap()).await.unwrap(), b"same");
}
