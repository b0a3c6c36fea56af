//! Copies that conflicts leave: they are known as long as they are there, over restarts, and are settled by one change
//! of names.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{Engine, World};
use home::testing::fault::Fault;
use home::{ErrorKind, Name};
use std::time::Duration;
use vfs::{ConflictCopy, Keep, Mode, Oid, RenameHow};

/// A conflict over a file of this name in the root of the home.
async fn conflict(world: &World, e: &Engine, name: &str) {
    let f = e.find(&format!("/lab/{name}")).await.unwrap();
    e.read(f).await.unwrap();
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"ours").await.unwrap();
    world.write(name, b"theirs!");
    world.fault(Fault::None);
    e.sync().await;
}

async fn start_with(name: &str) -> (World, Engine) {
    let world = World::new(Mode::Wb);
    world.write(name, b"base");
    let e = world.start().await;
    conflict(&world, &e, name).await;
    (world, e)
}

async fn copies(e: &Engine) -> Vec<ConflictCopy> {
    let found = e.vfs.conflict_copies(e.ctx(), None).await.unwrap();
    assert_eq!(e.vfs.status().volumes.iter().map(|v| v.copies).sum::<u64>(), found.len() as u64);
    found.into_iter().map(|(_, copy)| copy).collect()
}

async fn settle(e: &Engine, keep: Keep) -> home::Result<Option<Name>> {
    let all = copies(e).await;
    assert_eq!(all.len(), 1);
    e.vfs.settle_conflict(e.ctx(), all[0].dir, &all[0].name, keep).await
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_conflict_tells_both_sides() {
    let (world, e) = start_with("f").await;
    let all = copies(&e).await;
    let [copy] = &all[..] else { panic!("{all:?}") };
    assert_eq!((copy.of.original.clone(), copy.path.to_string()), (Some(name("f")), "/".into()));
    assert_eq!(copy.ours.unwrap().size, 4);
    assert_eq!(copy.theirs.unwrap().unwrap().size, 7);
    assert_eq!(copies(&e).await.len(), 1);
    world.remove("f");
    tokio::time::sleep(world.staleness).await;
    assert!(matches!(copies(&e).await[0].theirs, Some(None)), "the home has removed its side");
}

#[tokio::test]
async fn a_restart_knows_the_copies_that_are_not_settled() {
    for orderly in [false, true] {
        let (mut world, e) = start_with("f").await;
        world.write("g", b"base");
        conflict(&world, &e, "g").await;
        match orderly {
            true => drop(e.vfs.close(None).await),
            false => world.disk.kill(),
        }
        drop(e);
        world.reconnect();
        let e = world.start().await;
        e.lab().await;
        let found: Vec<_> = copies(&e).await.into_iter().map(|c| c.of.original.unwrap()).collect();
        assert_eq!(found, [name("f"), name("g")]);
        // One settled by any other change of names is not a conflict any more, here and after the next start.
        let copy = copies(&e).await.remove(0);
        let lab = e.lab().await;
        let how = RenameHow::Replace;
        e.vfs.rename(e.ctx(), lab, copy.name.as_bytes(), lab, b"other", how).await.unwrap();
        assert_eq!(copies(&e).await.len(), 1);
        e.sync().await;
        drop(e.vfs.close(None).await);
        drop(e);
        world.reconnect();
        let e = world.start().await;
        e.lab().await;
        assert_eq!(copies(&e).await.len(), 1);
    }
}

#[tokio::test]
async fn an_unsent_copy_is_known_after_a_restart() {
    let world = World::new(Mode::Wb);
    world.write("f", b"base");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    e.read(f).await.unwrap();
    world.fault(Fault::Unreachable);
    e.write(f, 0, b"ours").await.unwrap();
    world.write("f", b"theirs!");
    world.fault(Fault::None);
    e.vfs.sync(None, Duration::from_secs(10)).await.unwrap();
    let copy = copies(&e).await.remove(0);
    world.fault(Fault::Unreachable);
    let (dir, how) = (copy.dir, RenameHow::Replace);
    // Away from its name and back: the name that it has is in the journal alone.
    for (from, to) in [(copy.name.as_bytes(), &b"away"[..]), (b"away", copy.name.as_bytes())] {
        e.vfs.rename(e.ctx(), dir, from, dir, to, how).await.unwrap();
    }
    world.disk.kill();
    drop(e);
    let e = world.start().await;
    assert_eq!(e.vfs.status().volumes[0].copies, 1);
}

#[tokio::test]
async fn mine_takes_its_name_back() {
    let (world, e) = start_with("f").await;
    assert_eq!(settle(&e, Keep::Mine).await.unwrap(), Some(name("f")));
    assert!(copies(&e).await.is_empty());
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["f"]);
    assert_eq!(world.at_home("f").await.unwrap(), b"ours");
    assert_eq!(e.vfs.status().volumes[0].conflicts, 1, "settling it is none");
}

#[tokio::test]
async fn mine_does_not_destroy_what_was_not_seen() {
    let (world, e) = start_with("f").await;
    copies(&e).await;
    world.fault(Fault::Unreachable);
    settle(&e, Keep::Mine).await.unwrap();
    world.write("f", b"newer than what was seen");
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"newer than what was seen");
    let all = copies(&e).await;
    assert_eq!(all.len(), 1);
    assert_eq!(world.at_home(&all[0].name.to_string()).await.unwrap(), b"ours");
}

#[tokio::test]
async fn theirs_keeps_the_name_and_ours_goes() {
    let (world, e) = start_with("f").await;
    assert_eq!(settle(&e, Keep::Theirs).await.unwrap(), None);
    e.sync().await;
    assert!(copies(&e).await.is_empty());
    assert_eq!(world.names_at_home("").await, ["f"]);
    assert_eq!(world.at_home("f").await.unwrap(), b"theirs!");
}

#[tokio::test]
async fn theirs_is_not_kept_where_there_is_none() {
    let (world, e) = start_with("f").await;
    e.vfs.remove(e.ctx(), e.lab().await, b"f").await.unwrap();
    assert_eq!(settle(&e, Keep::Theirs).await.unwrap_err().kind, ErrorKind::Invalid);
    e.sync().await;
    assert_eq!(world.names_at_home("").await.len(), 1, "the only version is still there");
    assert_eq!(settle(&e, Keep::Mine).await.unwrap(), Some(name("f")));
}

#[tokio::test]
async fn both_are_kept_under_ordinary_names() {
    let (world, e) = start_with("f").await;
    let lab = e.lab().await;
    e.create(lab, "f.mine").await.unwrap();
    let taken = settle(&e, Keep::Both(Some(name("f")))).await.unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Exists);
    assert_eq!(settle(&e, Keep::Both(None)).await.unwrap(), Some(name("f.mine2")));
    e.sync().await;
    assert!(copies(&e).await.is_empty());
    assert_eq!(world.names_at_home("").await, ["f", "f.mine", "f.mine2"]);
    assert_eq!(world.at_home("f.mine2").await.unwrap(), b"ours");
    let ordinary = e.vfs.settle_conflict(e.ctx(), lab, &name("f.mine2"), Keep::Mine).await.unwrap_err();
    assert_eq!(ordinary.kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn a_copy_that_is_removed_at_the_home_is_none() {
    let (world, e) = start_with("f").await;
    let copy = copies(&e).await.remove(0);
    world.remove(&copy.name.to_string());
    tokio::time::sleep(world.staleness).await;
    let found = e.vfs.conflict_copies(e.ctx(), Some(copy.dir.volume)).await.unwrap();
    assert!(found.is_empty(), "{found:?}");
    let none = Oid { volume: 77, id: 1 };
    assert!(e.vfs.conflict_copies(e.ctx(), Some(none.volume)).await.is_err());
}

#[tokio::test]
async fn a_removal_of_one_name_does_not_take_the_copy_away_that_another_needs() {
    for gone in [false, true] {
        let world = World::new(Mode::Wb);
        world.write("f", b"base");
        let e = world.start().await;
        let (lab, f) = (e.lab().await, e.find("/lab/f").await.unwrap());
        e.read(f).await.unwrap();
        e.vfs.link(e.ctx(), f, lab, b"g").await.unwrap();
        e.sync().await;
        world.fault(Fault::Unreachable);
        e.write(f, 0, b"ours").await.unwrap();
        e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
        match gone {
            true => ["f", "g"].into_iter().for_each(|name| world.remove(name)),
            false => world.write("f", b"theirs!"),
        }
        world.fault(Fault::None);
        e.sync().await;
        let unsent = e.vfs.status().volumes.remove(0).parked;
        assert!(unsent.is_empty(), "{unsent:?}");
        assert_eq!(e.read(f).await.unwrap(), b"ours");
        let names = world.names_at_home("").await;
        let mut ours = Vec::new();
        for name in &names {
            if world.at_home(name).await.unwrap() == b"ours" {
                ours.push(name.clone());
            }
        }
        match gone {
            true => assert_eq!(names, ["g"]),
            false => assert_eq!(world.at_home("f").await.unwrap(), b"theirs!"),
        }
        assert!(matches!(&ours[..], [name] if name.starts_with('g')), "{names:?}");
    }
}

/// A file that is made under a name of its own, linked to the name that it is for, and removed under the first, as
/// mailboxes and object stores do it, while another program takes the second name.
#[tokio::test]
async fn a_link_to_a_name_that_is_taken_keeps_the_file() {
    for (made_before, removed_before) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new(Mode::Wb);
        let e = world.start().await;
        let lab = e.lab().await;
        e.names(lab).await;
        if !made_before {
            world.fault(Fault::Unreachable);
        }
        let f = e.create(lab, "new").await.unwrap();
        e.write(f, 0, b"ours").await.unwrap();
        if made_before {
            e.sync().await;
            world.fault(Fault::Unreachable);
        }
        e.vfs.link(e.ctx(), f, lab, b"g").await.unwrap();
        if removed_before {
            e.vfs.remove(e.ctx(), lab, b"new").await.unwrap();
        }
        world.write("g", b"theirs!");
        world.fault(Fault::None);
        e.sync().await;
        if !removed_before {
            e.vfs.remove(e.ctx(), lab, b"new").await.unwrap();
            e.sync().await;
        }
        assert!(e.vfs.status().volumes.remove(0).parked.is_empty());
        assert_eq!(e.read(f).await.unwrap(), b"ours");
        assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().nlink, 1);
        let all = copies(&e).await;
        let [copy] = &all[..] else { panic!("{all:?}") };
        assert_eq!(copy.of.original, Some(name("g")));
        let copy = copy.name.to_string();
        assert_eq!(world.names_at_home("").await, ["g".to_owned(), copy.clone()]);
        assert_eq!(world.at_home("g").await.unwrap(), b"theirs!");
        assert_eq!(world.at_home(&copy).await.unwrap(), b"ours");
    }
}

/// What is done while the home is out of reach, on both sides; then everything goes home.
async fn apart<F: Future<Output = ()>>(world: &World, e: &Engine, ours: F, theirs: impl FnOnce(&World)) {
    world.fault(Fault::Unreachable);
    ours.await;
    theirs(world);
    world.fault(Fault::None);
    e.sync().await;
    let status = e.vfs.status().volumes.remove(0);
    assert!(status.parked.is_empty(), "{:?}", status.parked);
}

fn conflicts(e: &Engine) -> u64 {
    e.vfs.status().volumes[0].conflicts
}

#[tokio::test]
async fn a_file_that_both_made_alike_is_no_conflict() {
    for content in [&b"the same"[..], b""] {
        let world = World::new(Mode::Wb);
        let e = world.start().await;
        let lab = e.lab().await;
        e.names(lab).await;
        let ours = async {
            let f = e.create(lab, "f").await.unwrap();
            let mode = vfs::SetAttrs { mode: Some(0o644), ..Default::default() };
            e.vfs.setattr(e.ctx(), f, mode, None).await.unwrap();
            if !content.is_empty() {
                e.write(f, 0, content).await.unwrap();
            }
        };
        apart(&world, &e, ours, |world| world.write("f", content)).await;
        assert_eq!((conflicts(&e), world.names_at_home("").await), (0, vec!["f".to_owned()]));
        assert_eq!(world.at_home("f").await.unwrap(), content);
        let f = e.find("/lab/f").await.unwrap();
        e.write(f, 0, b"goes on here").await.unwrap();
        e.sync().await;
        assert_eq!((conflicts(&e), world.at_home("f").await.unwrap()), (0, b"goes on here".to_vec()));
    }
}

#[tokio::test]
async fn a_file_that_both_made_with_another_mode_is_a_conflict() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    let ours = async {
        let f = e.create(lab, "f").await.unwrap();
        let mode = vfs::SetAttrs { mode: Some(0o600), ..Default::default() };
        e.vfs.setattr(e.ctx(), f, mode, None).await.unwrap();
        e.write(f, 0, b"the same").await.unwrap();
    };
    apart(&world, &e, ours, |world| world.write("f", b"the same")).await;
    assert_eq!((conflicts(&e), copies(&e).await.len()), (1, 1));
}

#[tokio::test]
async fn a_save_by_rename_over_what_is_equal_by_now_is_no_conflict() {
    for removed in [false, true] {
        let world = World::new(Mode::Wb);
        world.write("f", b"base");
        let e = world.start().await;
        let lab = e.lab().await;
        let f = e.find("/lab/f").await.unwrap();
        e.read(f).await.unwrap();
        let ours = async {
            let new = e.create(lab, "f.new").await.unwrap();
            e.write(new, 0, b"the same").await.unwrap();
            e.vfs.rename(e.ctx(), lab, b"f.new", lab, b"f", RenameHow::Replace).await.unwrap();
        };
        let theirs = |world: &World| {
            if removed {
                world.remove("f");
            }
            world.write("f", b"the same");
        };
        apart(&world, &e, ours, theirs).await;
        assert_eq!((conflicts(&e), world.names_at_home("").await), (0, vec!["f".to_owned()]));
        assert_eq!(world.at_home("f").await.unwrap(), b"the same");
        let f = e.find("/lab/f").await.unwrap();
        assert_eq!(e.read(f).await.unwrap(), b"the same");
    }
}

#[tokio::test]
async fn a_removal_of_what_was_written_anew_and_is_the_same_goes_through() {
    for content in [&b"base"[..], b"newer than what was seen"] {
        let world = World::new(Mode::Wb);
        world.write("f", b"base");
        let e = world.start().await;
        let lab = e.lab().await;
        let f = e.find("/lab/f").await.unwrap();
        e.read(f).await.unwrap();
        let ours = async {
            e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
        };
        apart(&world, &e, ours, |world| world.write("f", content)).await;
        let seen = content == b"base";
        assert_eq!(conflicts(&e), u64::from(!seen));
        assert_eq!(world.at_home("f").await, (!seen).then(|| content.to_vec()));
        assert_eq!(e.names(lab).await.len(), usize::from(!seen));
    }
}

#[tokio::test]
async fn a_directory_with_names_that_were_not_seen_stays() {
    let world = World::new(Mode::Wb);
    world.mkdir("d");
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    e.names(e.find("/lab/d").await.unwrap()).await;
    let ours = async {
        e.vfs.rmdir(e.ctx(), lab, b"d").await.unwrap();
    };
    apart(&world, &e, ours, |world| world.write("d/new", b"theirs")).await;
    assert_eq!(conflicts(&e), 1);
    assert_eq!(world.at_home("d/new").await.unwrap(), b"theirs");
    let new = e.find("/lab/d/new").await.unwrap();
    assert_eq!(e.read(new).await.unwrap(), b"theirs");
}

/// What of theirs belongs into the copy is still on its way when somebody asks for everything to be at the home.
#[tokio::test]
async fn a_copy_that_is_not_made_yet_is_waited_for() {
    const SHORT: Duration = Duration::from_millis(300);
    let world = World::new(Mode::Wb);
    world.memory.set_keeps_log(true);
    world.write("f", &[b'.'; 3000]);
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    // Whether the home has them is not known: the second one goes by itself, before what the copy is made of.
    world.fault(Fault::HangChanges);
    e.write(f, 3000, b"ours").await.unwrap();
    e.write(f, 3004, b"too").await.unwrap();
    for fault in [Fault::HangChanges, Fault::Unreachable] {
        world.fault(fault);
        e.vfs.sync(None, SHORT).await.unwrap_err();
    }
    world.memory.cut_power();
    world.write("f", &[b'!'; 3000]);
    world.fault.set_after_conflict(Fault::LateBytes);
    world.fault(Fault::None);
    common::until("in conflict", || e.vfs.status().volumes[0].conflicts == 1).await;
    let arrive = async {
        tokio::time::sleep(SHORT).await;
        world.fault(Fault::SlowChanges(SHORT));
    };
    tokio::join!(e.sync(), arrive);
    assert_eq!(e.vfs.status().volumes[0].unsent_ops, 0);
    let copy = copies(&e).await.remove(0);
    let at_home = world.at_home(&copy.name.to_string()).await.unwrap();
    assert_eq!(at_home, [&[b'!'; 3000][..], b"ourstoo"].concat());
}
