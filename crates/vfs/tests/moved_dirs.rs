//! Directories that another program moves at the home while something is unsent in them: it goes on where they are found
//! again, and waits where they are not.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World, until};
use home::HomePath;
use home::testing::conformance::Outside;
use home::testing::fault::Fault;
use std::time::Duration;
use vfs::{Mode, RenameHow, SetAttrs};

/// What somebody does in the directory `dd` while the home is out of reach, or has moved it already.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ours {
    Write,
    Append,
    Create,
    CreateAndWrite,
    Mkdir,
    Remove,
    Chmod,
    Rename,
    MoveIn,
    Nested,
    NestedCreate,
}

const ALL: [Ours; 11] = [
    Ours::Write,
    Ours::Append,
    Ours::Create,
    Ours::CreateAndWrite,
    Ours::Mkdir,
    Ours::Remove,
    Ours::Chmod,
    Ours::Rename,
    Ours::MoveIn,
    Ours::Nested,
    Ours::NestedCreate,
];

/// A home with directories whose files were read, and whose names are known.
async fn start() -> (World, Engine) {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_millis(40);
    for dir in ["dd", "dd/sub", "ee", "other"] {
        world.mkdir(dir);
    }
    for file in ["dd/f", "dd/keep", "dd/gone", "dd/sub/g", "ee/f", "out"] {
        world.write(file, file.as_bytes());
    }
    let e = world.start().await;
    look(&e).await;
    (world, e)
}

async fn look(e: &Engine) {
    for dir in ["/lab", "/lab/dd", "/lab/dd/sub", "/lab/ee", "/lab/other"] {
        e.names(e.find(dir).await.unwrap()).await;
    }
    for file in ["dd/f", "dd/keep", "dd/gone", "dd/sub/g", "ee/f", "out"] {
        e.read(e.find(&format!("/lab/{file}")).await.unwrap()).await.unwrap();
    }
}

fn mv(world: &World, from: &str, to: &str) {
    let path = |p: &str| HomePath::parse(p.as_bytes()).unwrap();
    Outside::rename(&world.memory, &path(from), &path(to));
}

async fn work(e: &Engine, ours: Ours) {
    let find = |path: &str| {
        let path = format!("/lab/{path}");
        async move { e.find(&path).await.unwrap() }
    };
    let dd = find("dd").await;
    match ours {
        Ours::Write => {
            let f = find("dd/f").await;
            let empty = SetAttrs { size: Some(0), ..SetAttrs::default() };
            e.vfs.setattr(e.ctx(), f, empty, None).await.unwrap();
            e.write(f, 0, b"mine").await.unwrap();
        }
        Ours::Append => e.write(find("dd/f").await, 4, b"mine").await.unwrap(),
        Ours::Create => drop(e.create(dd, "new").await.unwrap()),
        Ours::CreateAndWrite => {
            let new = e.create(dd, "new").await.unwrap();
            e.write(new, 0, b"mine").await.unwrap();
        }
        Ours::Mkdir => {
            let new = e.vfs.mkdir(e.ctx(), dd, b"new", SetAttrs::default()).await.unwrap().oid;
            e.create(new, "in").await.unwrap();
        }
        Ours::Remove => drop(e.vfs.remove(e.ctx(), dd, b"gone").await.unwrap()),
        Ours::Chmod => {
            let mode = SetAttrs { mode: Some(0o600), ..SetAttrs::default() };
            e.vfs.setattr(e.ctx(), find("dd/f").await, mode, None).await.unwrap();
        }
        Ours::Rename => {
            let lab = e.lab().await;
            e.vfs.rename(e.ctx(), dd, b"gone", lab, b"came", RenameHow::Replace).await.unwrap();
        }
        Ours::MoveIn => {
            let lab = e.lab().await;
            e.vfs.rename(e.ctx(), lab, b"out", dd, b"in", RenameHow::Replace).await.unwrap();
        }
        Ours::Nested => e.write(find("dd/sub/g").await, 0, b"MINE").await.unwrap(),
        Ours::NestedCreate => drop(e.create(find("dd/sub").await, "new").await.unwrap()),
    }
}

/// What the home has below `at` when `ours` has arrived there.
async fn arrived(world: &World, ours: Ours, at: &str) {
    let mut names = vec!["f", "gone", "keep", "sub"];
    let mut sub = vec!["g"];
    let at_home = |name: &str| {
        let path = format!("{at}/{name}");
        async move { world.at_home(&path).await }
    };
    match ours {
        Ours::Write => assert_eq!(at_home("f").await.unwrap(), b"mine"),
        Ours::Append => assert_eq!(at_home("f").await.unwrap(), b"dd/fmine"),
        Ours::Create | Ours::Mkdir => names.push("new"),
        Ours::CreateAndWrite => {
            names.push("new");
            assert_eq!(at_home("new").await.unwrap(), b"mine");
        }
        Ours::Remove => names.retain(|n| *n != "gone"),
        Ours::Rename => {
            names.retain(|n| *n != "gone");
            assert_eq!(world.at_home("came").await.unwrap(), b"dd/gone");
        }
        Ours::Chmod => {
            let path = HomePath::parse(format!("{at}/f").as_bytes()).unwrap();
            let attr = home::Home::stat(&world.memory, &home::Loc { path, id: None }).await.unwrap().attr;
            assert_eq!(attr.mode & 0o777, 0o600, "{ours:?}");
        }
        Ours::MoveIn => {
            names.push("in");
            assert_eq!(at_home("in").await.unwrap(), b"out");
        }
        Ours::Nested => assert_eq!(at_home("sub/g").await.unwrap(), b"MINEub/g"),
        Ours::NestedCreate => sub.push("new"),
    }
    names.sort_unstable();
    assert_eq!(world.names_at_home(at).await, names, "{ours:?} in {at}");
    assert_eq!(world.names_at_home(&format!("{at}/sub")).await, sub, "{ours:?} in {at}/sub");
    if !matches!(ours, Ours::Write | Ours::Append) {
        assert_eq!(at_home("f").await.unwrap(), b"dd/f", "{ours:?}");
    }
}

fn is_settled(e: &Engine) {
    let status = e.vfs.status().volumes.remove(0);
    assert!(status.parked.is_empty(), "{:?}", status.parked);
    assert_eq!((status.unsent_ops, status.conflicts), (0, 0));
}

/// Everything that the home has is shown, and nothing else.
async fn shown_as_at_home(world: &World, e: &Engine) {
    tokio::time::sleep(world.staleness * 2).await;
    let mut dirs = vec![String::new()];
    let mut seen = std::collections::HashSet::new();
    while let Some(dir) = dirs.pop() {
        let oid = e.find(&format!("/lab{dir}")).await.unwrap();
        assert!(seen.insert(oid), "{dir} has two names");
        let names = world.names_at_home(dir.trim_start_matches('/')).await;
        assert_eq!(e.names(oid).await, names, "in {dir}");
        for name in names {
            let path = format!("{dir}/{name}");
            let oid = e.find(&format!("/lab{path}")).await.unwrap();
            match e.vfs.getattr(e.ctx(), oid).await.unwrap().kind {
                vfs::Kind::Dir => dirs.push(path),
                _ => assert_eq!(
                    Some(e.read(oid).await.unwrap()),
                    world.at_home(path.trim_start_matches('/')).await,
                    "{path}"
                ),
            }
        }
    }
}

/// `theirs` while the home is out of reach; `restart`: the gateway is killed before it is back.
async fn meanwhile(ours: Ours, theirs: impl Fn(&World), to: &str, restart: bool) {
    let (mut world, mut e) = start().await;
    world.fault(Fault::Unreachable);
    work(&e, ours).await;
    theirs(&world);
    if restart {
        world.disk.kill();
        drop(e);
        world.reconnect();
        world.fault(Fault::None);
        e = world.start().await;
        e.lab().await;
    } else {
        world.fault(Fault::None);
    }
    e.sync().await;
    is_settled(&e);
    arrived(&world, ours, to).await;
    shown_as_at_home(&world, &e).await;
}

#[tokio::test]
async fn what_is_unsent_in_a_directory_goes_where_the_home_has_moved_it() {
    for (ours, restart) in ALL.into_iter().flat_map(|ours| [(ours, false), (ours, true)]) {
        let theirs = |world: &World| {
            mv(world, "dd", "dd2");
        };
        meanwhile(ours, theirs, "dd2", restart).await;
    }
}

#[tokio::test]
async fn what_is_unsent_in_a_directory_goes_with_it_where_another_one_has_its_name_by_then() {
    for (ours, restart) in ALL.into_iter().flat_map(|ours| [(ours, false), (ours, true)]) {
        let theirs = |world: &World| {
            mv(world, "dd", "dd2");
            world.mkdir("dd");
            world.write("dd/f", b"theirs!");
        };
        meanwhile(ours, theirs, "dd2", restart).await;
        let theirs = |world: &World| {
            mv(world, "dd", "x");
            mv(world, "ee", "dd");
            mv(world, "x", "ee");
        };
        meanwhile(ours, theirs, "ee", restart).await;
    }
}

#[tokio::test]
async fn what_is_unsent_in_two_directories_goes_with_them_where_they_were_exchanged() {
    let (world, e) = start().await;
    world.fault(Fault::Unreachable);
    for dir in ["dd", "ee"] {
        e.write(e.find(&format!("/lab/{dir}/f")).await.unwrap(), 4, b" and ours").await.unwrap();
        e.create(e.find(&format!("/lab/{dir}")).await.unwrap(), &format!("in-{dir}")).await.unwrap();
    }
    mv(&world, "dd", "x");
    mv(&world, "ee", "dd");
    mv(&world, "x", "ee");
    world.fault(Fault::None);
    e.sync().await;
    is_settled(&e);
    assert_eq!(world.at_home("ee/f").await.unwrap(), b"dd/f and ours");
    assert_eq!(world.at_home("dd/f").await.unwrap(), b"ee/f and ours");
    assert_eq!(world.at_home("ee/in-dd").await.unwrap(), b"");
    assert_eq!(world.at_home("dd/in-ee").await.unwrap(), b"");
    shown_as_at_home(&world, &e).await;
}

/// Without any outage: what is sent finds the directory under another name.
#[tokio::test]
async fn a_directory_that_is_moved_while_somebody_works_in_it_takes_his_work_along() {
    let (world, e) = start().await;
    for n in 0..10 {
        world.mkdir(&format!("r{n}"));
    }
    tokio::time::sleep(world.staleness * 2).await;
    let lab = e.lab().await;
    e.names(lab).await;
    for n in 0..10 {
        let dir = e.find(&format!("/lab/r{n}")).await.unwrap();
        e.names(dir).await;
        let f = e.create(dir, "f").await.unwrap();
        mv(&world, &format!("r{n}"), &format!("q{n}"));
        e.write(f, 0, b"mine").await.unwrap();
        e.create(dir, "g").await.unwrap();
    }
    e.sync().await;
    is_settled(&e);
    for n in 0..10 {
        assert_eq!(world.names_at_home(&format!("q{n}")).await, ["f", "g"]);
        assert_eq!(world.at_home(&format!("q{n}/f")).await.unwrap(), b"mine");
    }
    shown_as_at_home(&world, &e).await;
}

fn parked(e: &Engine) -> Vec<home::ErrorKind> {
    e.vfs.status().volumes.remove(0).parked.into_iter().map(|op| op.kind).collect()
}

/// What has arrived, in a directory that nobody had looked at under its new name.
#[tokio::test]
async fn what_is_unsent_in_a_directory_waits_until_that_is_seen_in_another_one() {
    for (ours, restart) in ALL.into_iter().flat_map(|ours| [(ours, false), (ours, true)]) {
        // What is attributes alone, or takes a name away, is not waited for where its object is gone.
        if matches!(ours, Ours::Remove | Ours::Chmod | Ours::Rename | Ours::MoveIn) {
            continue;
        }
        if restart && !matches!(ours, Ours::Write | Ours::CreateAndWrite | Ours::Nested) {
            continue;
        }
        let (mut world, mut e) = start().await;
        world.fault(Fault::Unreachable);
        work(&e, ours).await;
        let dd = e.find("/lab/dd").await.unwrap();
        let known = e.names(dd).await;
        mv(&world, "dd", "other/dd2");
        world.fault(Fault::None);
        e.vfs.sync(None, Duration::from_secs(10)).await.unwrap_err();
        assert_eq!(parked(&e)[0], home::ErrorKind::NotFound, "{ours:?}");
        if restart {
            // Attributes are kept a second later.
            tokio::time::sleep(Duration::from_millis(1500)).await;
            world.disk.kill();
            drop(e);
            world.reconnect();
            e = world.start().await;
            e.lab().await;
            until("tried again", || !parked(&e).is_empty()).await;
        }
        tokio::time::sleep(world.staleness * 2).await;
        assert_eq!(e.find("/lab/dd").await.unwrap(), dd, "{ours:?}");
        assert_eq!(e.names(dd).await, known, "{ours:?}: what is known is shown");
        for name in &known {
            e.find(&format!("/lab/dd/{name}")).await.unwrap();
        }
        match ours {
            Ours::Write => assert_eq!(e.read(e.find("/lab/dd/f").await.unwrap()).await.unwrap(), b"mine"),
            Ours::CreateAndWrite => {
                assert_eq!(e.read(e.find("/lab/dd/new").await.unwrap()).await.unwrap(), b"mine");
            }
            _ => {}
        }
        let names = e.names(e.find("/lab/other").await.unwrap()).await;
        assert_eq!(names, ["dd2"]);
        e.sync().await;
        is_settled(&e);
        arrived(&world, ours, "other/dd2").await;
        shown_as_at_home(&world, &e).await;
        assert_eq!(e.find("/lab/other/dd2").await.unwrap(), dd);
    }
}

/// It is moved back, and nothing of it has changed meanwhile.
#[tokio::test]
async fn what_waited_for_a_directory_goes_there_when_it_is_back() {
    for ours in [Ours::Write, Ours::Append, Ours::CreateAndWrite, Ours::Nested, Ours::NestedCreate] {
        let (world, e) = start().await;
        world.fault(Fault::Unreachable);
        work(&e, ours).await;
        mv(&world, "dd", "other/dd");
        world.fault(Fault::None);
        e.vfs.sync(None, Duration::from_secs(10)).await.unwrap_err();
        mv(&world, "other/dd", "dd");
        e.vfs.retry_refused(None);
        e.sync().await;
        is_settled(&e);
        arrived(&world, ours, "dd").await;
        shown_as_at_home(&world, &e).await;
    }
}

/// Nobody knows where it is, whether it is anywhere, and what is done in it has no other place.
#[tokio::test]
async fn a_directory_that_is_gone_shows_what_is_unsent_in_it_until_a_person_decides() {
    for made_anew in [false, true] {
        let (world, e) = start().await;
        let dd = e.find("/lab/dd").await.unwrap();
        world.fault(Fault::Unreachable);
        for ours in [Ours::Write, Ours::CreateAndWrite, Ours::Remove] {
            work(&e, ours).await;
        }
        for name in ["dd/f", "dd/keep", "dd/gone", "dd/sub/g", "dd/sub", "dd"] {
            world.remove(name);
        }
        if made_anew {
            world.mkdir("dd");
            world.write("dd/theirs", b"theirs");
        }
        world.fault(Fault::None);
        e.vfs.sync(None, Duration::from_secs(10)).await.unwrap_err();
        tokio::time::sleep(world.staleness * 2).await;
        assert_eq!(e.find("/lab/dd").await.unwrap(), dd);
        assert_eq!(e.names(dd).await, ["f", "keep", "new", "sub"]);
        for name in ["f", "new"] {
            assert_eq!(e.read(e.find(&format!("/lab/dd/{name}")).await.unwrap()).await.unwrap(), b"mine");
        }
        let waits = parked(&e);
        assert!(
            !waits.is_empty() && waits.iter().all(|kind| *kind == home::ErrorKind::NotFound),
            "{waits:?}"
        );
        e.vfs.discard(dd.volume, None).await.unwrap();
        tokio::time::sleep(world.staleness * 2).await;
        match made_anew {
            true => assert_eq!(e.names(e.find("/lab/dd").await.unwrap()).await, ["theirs"]),
            false => assert_eq!(e.find("/lab/dd").await.unwrap_err().kind, home::ErrorKind::NotFound),
        }
        e.sync().await;
        shown_as_at_home(&world, &e).await;
    }
}

/// What is told of a directory that is watched brings what was moved there.
#[tokio::test]
async fn a_home_that_tells_of_changes_brings_what_waits_to_where_its_directory_is() {
    let mut world = World::new(Mode::Wb);
    world.memory.set_watches();
    for dir in ["dd", "other"] {
        world.mkdir(dir);
    }
    world.write("dd/f", b"base");
    world.staleness = Duration::from_secs(3600);
    let e = world.start().await;
    for dir in ["/lab", "/lab/dd", "/lab/other"] {
        e.names(e.find(dir).await.unwrap()).await;
    }
    let f = e.find("/lab/dd/f").await.unwrap();
    e.read(f).await.unwrap();
    mv(&world, "dd", "other/dd2");
    e.write(f, 0, b"mine").await.unwrap();
    e.create(e.find("/lab/dd").await.unwrap(), "new").await.unwrap();
    e.vfs.sync(None, Duration::from_secs(10)).await.unwrap_err();
    world.memory.tell(&HomePath::parse(b"other").unwrap(), &["dd2"]);
    until("sent", || e.vfs.status().volumes[0].unsent_ops == 0).await;
    is_settled(&e);
    assert_eq!(world.at_home("other/dd2/f").await.unwrap(), b"mine");
    assert_eq!(world.names_at_home("other/dd2").await, ["f", "new"]);
}

/// The home knows after a power cut that it has done what was not answered, and another directory has the name of that where
/// it did so.
#[tokio::test]
async fn what_was_done_in_a_directory_that_has_moved_since_is_not_what_has_its_name_there_now() {
    for elsewhere in ["ee", "other/dd2"] {
        let (world, e) = start().await;
        world.memory.set_keeps_log(true);
        let dd = e.find("/lab/dd").await.unwrap();
        e.create(dd, "first").await.unwrap();
        e.sync().await;
        world.fault(Fault::ChangesUnanswered);
        let new = e.create(dd, "new").await.unwrap();
        while world.at_home("dd/new").await.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.fault(Fault::Unreachable);
        world.write("ee/new", b"");
        mv(&world, "dd", "x");
        mv(&world, "ee", "dd");
        mv(&world, "x", elsewhere);
        world.memory.cut_power_when_durable();
        world.fault(Fault::None);
        if elsewhere != "ee" {
            e.vfs.sync(None, Duration::from_secs(10)).await.unwrap_err();
            tokio::time::sleep(world.staleness * 2).await;
            e.names(e.find("/lab/other").await.unwrap()).await;
        }
        e.sync().await;
        e.write(new, 0, b"mine").await.unwrap();
        e.sync().await;
        is_settled(&e);
        assert_eq!(world.at_home("dd/new").await.unwrap(), b"");
        assert_eq!(world.at_home(&format!("{elsewhere}/new")).await.unwrap(), b"mine");
        shown_as_at_home(&world, &e).await;
    }
}
