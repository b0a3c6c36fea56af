//! What becomes of a conflict where a folder has another policy than to keep both: also when the process dies between the
//! decision and what comes of it, and when an answer is lost.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{Engine, World};
use home::testing::fault::Fault;
use home::{ErrorKind, HomePath, Name};
use std::time::Duration;
use vfs::{ConflictCopy, Keep, Mode, Policy, RenameHow, SetAttrs, Settled};

const FOLDER: &str = "d";

fn path(text: &str) -> HomePath {
    HomePath::parse(text.as_bytes()).unwrap()
}

/// A home with a folder of this policy, in which is a file.
fn world(policy: Policy) -> World {
    let world = World { conflicts: vec![(path(FOLDER), policy)], ..World::new(Mode::Wb) };
    world.mkdir(FOLDER);
    world.write("d/f", b"base");
    world.write("other", b"base");
    world
}

async fn prepared(world: &World) -> Engine {
    let e = world.start().await;
    e.names(e.lab().await).await;
    e.names(e.find("/lab/d").await.unwrap()).await;
    for path in ["/lab/d/f", "/lab/other"] {
        e.read(e.find(path).await.unwrap()).await.unwrap();
    }
    e
}

/// What happens between the decision and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    None,
    /// The process dies before anything of the decision is sent.
    Restart,
    /// What the decision comes to is executed, and its answer is lost.
    Lost,
    /// The same, and the process dies, and the home has forgotten what it executed.
    LostAndRestart,
}

const TROUBLES: [Trouble; 4] = [Trouble::None, Trouble::Restart, Trouble::Lost, Trouble::LostAndRestart];

/// Lets both sides meet; answers the engine that is there in the end.
async fn meet(world: &mut World, e: Engine, trouble: Trouble) -> Engine {
    match trouble {
        Trouble::None => {}
        Trouble::Restart => world.fault.set_after_conflict(Fault::Unreachable),
        Trouble::Lost | Trouble::LostAndRestart => world.fault.set_after_conflict(Fault::ChangesUnanswered),
    }
    world.fault(Fault::None);
    if trouble == Trouble::None {
        e.sync().await;
        return e;
    }
    let short = e.vfs.sync(None, Duration::from_secs(2)).await;
    assert!(short.is_err() || trouble != Trouble::Restart, "the home did not go away");
    if trouble == Trouble::Lost {
        world.fault(Fault::None);
        e.sync().await;
        return e;
    }
    world.disk.kill();
    drop(e);
    world.reconnect();
    let e = world.start().await;
    e.lab().await;
    e.sync().await;
    e
}

async fn copies(e: &Engine) -> Vec<ConflictCopy> {
    let found = e.vfs.conflict_copies(e.ctx(), None).await.unwrap();
    found.into_iter().map(|(_, copy)| copy).collect()
}

fn conflicts(e: &Engine) -> u64 {
    e.vfs.status().volumes[0].conflicts
}

async fn at_home(world: &World, path: &str) -> String {
    String::from_utf8(world.at_home(path).await.unwrap_or_else(|| b"nothing".to_vec())).unwrap()
}

async fn read(e: &Engine, path: &str) -> String {
    String::from_utf8(e.read(e.find(path).await.unwrap()).await.unwrap()).unwrap()
}

/// How ours gets its content.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Write,
    Create,
    SaveByRename,
}

async fn change(e: &Engine, how: Change) -> &'static str {
    let d = e.find("/lab/d").await.unwrap();
    match how {
        Change::Write => {
            e.write(e.find("/lab/d/f").await.unwrap(), 0, b"ours!").await.unwrap();
            "d/f"
        }
        Change::Create => {
            e.write(e.create(d, "new").await.unwrap(), 0, b"ours!").await.unwrap();
            "d/new"
        }
        Change::SaveByRename => {
            e.write(e.create(d, "tmp").await.unwrap(), 0, b"ours!").await.unwrap();
            e.vfs.rename(e.ctx(), d, b"tmp", d, b"f", RenameHow::Replace).await.unwrap();
            "d/f"
        }
    }
}

/// How ours got its content, whether theirs is another file, and what goes wrong when they meet.
type Case = (Change, bool, Trouble);

fn cases() -> impl Iterator<Item = Case> {
    let hows = [Change::Write, Change::Create, Change::SaveByRename].into_iter();
    let with_theirs = hows.flat_map(|how| [false, true].map(|replaced| (how, replaced)));
    with_theirs.flat_map(|(how, replaced)| TROUBLES.map(|trouble| (how, replaced, trouble)))
}

/// Both sides change a file, and ours gets its name; answers that, and what the case is called.
async fn ours_wins(policy: Policy, (how, replaced, trouble): Case) -> (World, Engine, &'static str, String) {
    let what = format!("{how:?}, replaced {replaced}, {trouble:?}");
    let mut world = world(policy);
    let e = prepared(&world).await;
    world.fault(Fault::Unreachable);
    let name = change(&e, how).await;
    if replaced && name == "d/f" {
        world.remove(name);
    }
    world.write(name, b"theirs and longer");
    let e = meet(&mut world, e, trouble).await;
    assert_eq!(at_home(&world, name).await, "ours!", "{what}");
    assert_eq!(read(&e, &format!("/lab/{name}")).await, "ours!", "{what}");
    (world, e, name, what)
}

#[tokio::test]
async fn prefer_local_gives_ours_the_name_and_theirs_a_copy() {
    for case in cases() {
        let (world, e, name, what) = ours_wins(Policy::PreferLocal, case).await;
        let all = copies(&e).await;
        let [copy] = &all[..] else { panic!("{what}: {all:?}") };
        assert!(copy.of.is_theirs, "{what}: {copy:?}");
        let at = format!("d/{}", copy.name);
        assert_eq!(at_home(&world, &at).await, "theirs and longer", "{what}");
        // Ours has the name already: only the copy goes.
        e.vfs.settle_conflict(e.ctx(), copy.dir, &copy.name, Keep::Mine).await.unwrap();
        e.sync().await;
        assert_eq!(world.names_at_home("d").await.len(), 1 + usize::from(name == "d/new"), "{what}");
        assert_eq!(at_home(&world, name).await, "ours!", "{what}");
    }
}

#[tokio::test]
async fn strict_last_writer_writes_ours_over_theirs() {
    for case in cases() {
        let (world, e, name, what) = ours_wins(Policy::LastWriter, case).await;
        assert!(copies(&e).await.is_empty(), "{what}");
        assert_eq!(world.names_at_home("d").await.len(), 1 + usize::from(name == "d/new"), "{what}");
    }
}

#[tokio::test]
async fn strict_last_writer_removes_what_was_changed_and_spares_directories() {
    let mut world = world(Policy::LastWriter);
    let e = prepared(&world).await;
    let d = e.find("/lab/d").await.unwrap();
    world.fault(Fault::Unreachable);
    e.vfs.remove(e.ctx(), d, b"f").await.unwrap();
    e.write(e.create(d, "new").await.unwrap(), 0, b"ours!").await.unwrap();
    world.write("d/f", b"newer");
    world.mkdir("d/new");
    let e = meet(&mut world, e, Trouble::None).await;
    assert_eq!(conflicts(&e), 2);
    let names = world.names_at_home("d").await;
    assert!(
        matches!(&names[..], [dir, copy] if dir == "new" && copy.starts_with("new.trellis-")),
        "{names:?}"
    );
}

#[tokio::test]
async fn other_folders_keep_both() {
    for policy in [Policy::LastWriter, Policy::PreferLocal, Policy::AppendMerge, Policy::Stop] {
        let mut world = world(policy);
        let e = prepared(&world).await;
        world.fault(Fault::Unreachable);
        e.write(e.find("/lab/other").await.unwrap(), 4, b"ours!").await.unwrap();
        world.write("other", b"base and theirs");
        let e = meet(&mut world, e, Trouble::None).await;
        let all = copies(&e).await;
        let [copy] = &all[..] else { panic!("{policy}: {all:?}") };
        assert!(!copy.of.is_theirs);
        assert_eq!(at_home(&world, "other").await, "base and theirs");
        assert_eq!(at_home(&world, &copy.name.to_string()).await, "baseours!");
    }
}

#[tokio::test]
async fn append_merge_puts_ours_behind_theirs_once() {
    for trouble in TROUBLES {
        let mut world = world(Policy::AppendMerge);
        let e = prepared(&world).await;
        let f = e.find("/lab/d/f").await.unwrap();
        world.fault(Fault::Unreachable);
        e.write(f, 4, b"|one").await.unwrap();
        e.write(f, 8, b"|two").await.unwrap();
        world.write("d/f", b"base|theirs");
        let e = meet(&mut world, e, trouble).await;
        assert_eq!(at_home(&world, "d/f").await, "base|theirs|one|two", "{trouble:?}");
        assert_eq!(read(&e, "/lab/d/f").await, "base|theirs|one|two", "{trouble:?}");
        assert!(copies(&e).await.is_empty());
        // It goes on from there.
        let f = e.find("/lab/d/f").await.unwrap();
        let end = e.vfs.getattr(e.ctx(), f).await.unwrap().size;
        e.write(f, end, b"|more").await.unwrap();
        e.sync().await;
        assert_eq!(at_home(&world, "d/f").await, "base|theirs|one|two|more", "{trouble:?}");
        assert_eq!(world.names_at_home("d").await, ["f"]);
    }
}

/// The home appends behind what it has executed of ours, whose answer was lost; it has forgotten what it executed.
#[tokio::test]
async fn append_merge_does_not_append_twice_what_has_arrived() {
    for restart in [false, true] {
        let mut world = world(Policy::AppendMerge);
        let e = prepared(&world).await;
        let f = e.find("/lab/d/f").await.unwrap();
        e.write(e.find("/lab/other").await.unwrap(), 0, b"ours!").await.unwrap();
        e.sync().await;
        world.fault(Fault::AnswersLost);
        e.write(f, 4, b"|one").await.unwrap();
        assert!(e.vfs.sync(None, Duration::from_secs(2)).await.is_err());
        assert_eq!(at_home(&world, "d/f").await, "base|one");
        world.fault(Fault::Unreachable);
        e.write(f, 8, b"|two").await.unwrap();
        world.write("d/f", b"base|one|theirs");
        let e = match restart {
            true => {
                world.disk.kill();
                drop(e);
                world.reconnect();
                let e = world.start().await;
                e.lab().await;
                e
            }
            false => {
                world.memory.restart();
                world.fault(Fault::None);
                e
            }
        };
        e.sync().await;
        assert_eq!(at_home(&world, "d/f").await, "base|one|theirs|two", "restart {restart}");
        assert_eq!(read(&e, "/lab/d/f").await, "base|one|theirs|two", "restart {restart}");
        assert!(copies(&e).await.is_empty());
    }
}

#[tokio::test]
async fn append_merge_joins_logs_that_both_began() {
    for trouble in TROUBLES {
        let mut world = world(Policy::AppendMerge);
        let e = prepared(&world).await;
        let d = e.find("/lab/d").await.unwrap();
        world.fault(Fault::Unreachable);
        let new = e.create(d, "new").await.unwrap();
        e.write(new, 0, b"ours").await.unwrap();
        e.write(new, 4, b"|more").await.unwrap();
        world.write("d/new", b"theirs|");
        let e = meet(&mut world, e, trouble).await;
        assert_eq!(at_home(&world, "d/new").await, "theirs|ours|more", "{trouble:?}");
        assert_eq!(read(&e, "/lab/d/new").await, "theirs|ours|more", "{trouble:?}");
        assert_eq!(world.names_at_home("d").await, ["f", "new"]);
    }
}

#[tokio::test]
async fn append_merge_keeps_both_where_it_is_no_append() {
    for (at, theirs) in [(0, &b"base|theirs"[..]), (4, b"BASE|theirs"), (4, b"ba")] {
        let mut world = world(Policy::AppendMerge);
        let e = prepared(&world).await;
        world.fault(Fault::Unreachable);
        e.write(e.find("/lab/d/f").await.unwrap(), at, b"ours").await.unwrap();
        world.write("d/f", theirs);
        let e = meet(&mut world, e, Trouble::None).await;
        assert_eq!(world.at_home("d/f").await.unwrap(), theirs);
        assert_eq!(copies(&e).await.len(), 1);
    }
}

fn stopped(e: &Engine) -> Vec<String> {
    let parked = e.vfs.status().volumes.remove(0).parked;
    parked.iter().filter(|p| p.stopped.is_some()).map(|p| p.at.as_ref().unwrap().to_string()).collect()
}

/// A change that met another, one behind it in its folder, and one elsewhere.
async fn stop(world: &World) -> Engine {
    let e = prepared(world).await;
    let d = e.find("/lab/d").await.unwrap();
    world.fault(Fault::Unreachable);
    e.write(e.find("/lab/d/f").await.unwrap(), 0, b"ours!").await.unwrap();
    e.create(d, "later").await.unwrap();
    e.write(e.find("/lab/other").await.unwrap(), 0, b"ours!").await.unwrap();
    world.write("d/f", b"theirs and longer");
    world.fault(Fault::None);
    let unsent = e.vfs.sync(None, Duration::from_secs(10)).await.unwrap_err();
    assert!(unsent[0].why.contains("stopped at a conflict") && !unsent[0].may_pass, "{unsent:?}");
    e.create(d, "after").await.unwrap();
    e.vfs.sync(None, Duration::from_secs(10)).await.unwrap_err();
    nothing_went(world, &e).await;
    e
}

async fn nothing_went(world: &World, e: &Engine) {
    assert_eq!(stopped(e), ["/d/f"]);
    assert_eq!(world.names_at_home("d").await, ["f"]);
    assert_eq!(at_home(world, "d/f").await, "theirs and longer");
    assert_eq!(at_home(world, "other").await, "ours!");
    assert_eq!(read(e, "/lab/d/f").await, "ours!");
    assert!(copies(e).await.is_empty());
}

async fn settle(e: &Engine, keep: Keep) -> home::Result<Settled> {
    let volume = e.lab().await.volume;
    e.vfs.settle_stopped(volume, &path("d/f"), &keep).await
}

#[tokio::test]
async fn stop_holds_the_folder_back_until_a_person_decides() {
    for keep in [Keep::Mine, Keep::Theirs, Keep::Both(None)] {
        for restart in [false, true] {
            let mut world = world(Policy::Stop);
            let mut e = stop(&world).await;
            if restart {
                world.disk.kill();
                drop(e);
                world.reconnect();
                e = world.start().await;
                e.lab().await;
                e.vfs.sync(None, Duration::from_secs(10)).await.unwrap_err();
                nothing_went(&world, &e).await;
            }
            let settled = settle(&e, keep.clone()).await.unwrap();
            e.sync().await;
            assert!(stopped(&e).is_empty());
            let (here, all) = (read(&e, "/lab/d/f").await, copies(&e).await);
            let names = world.names_at_home("d").await;
            assert!(names.contains(&"later".to_owned()) && names.contains(&"after".to_owned()), "{names:?}");
            let want = if keep == Keep::Mine { "ours!" } else { "theirs and longer" };
            assert_eq!((at_home(&world, "d/f").await.as_str(), here.as_str()), (want, want), "{keep:?}");
            assert_eq!(all.len(), usize::from(keep == Keep::Both(None)), "{keep:?}");
            if let [copy] = &all[..] {
                assert_eq!(at_home(&world, &format!("d/{}", copy.name)).await, "ours!");
                assert_eq!(settled, Settled::Both(copy.name.clone()));
            } else {
                assert_eq!(settled, if keep == Keep::Mine { Settled::Mine } else { Settled::Theirs });
            }
        }
    }
}

/// What is said of what was done is what the home has then, also where that is not what a person wanted.
#[tokio::test]
async fn what_is_said_of_a_stopped_change_is_what_was_done_with_it() {
    for keep in [Keep::Mine, Keep::Both(None)] {
        let world = world(Policy::Stop);
        ["d/gone", "d/kept"].iter().for_each(|name| world.write(name, b"base"));
        world.mkdir("d/full");
        let e = prepared(&world).await;
        let d = e.find("/lab/d").await.unwrap();
        e.names(e.find("/lab/d/full").await.unwrap()).await;
        world.fault(Fault::Unreachable);
        e.vfs.mkdir(e.ctx(), d, b"nd", SetAttrs::default()).await.unwrap();
        e.vfs.remove(e.ctx(), d, b"gone").await.unwrap();
        e.vfs.rmdir(e.ctx(), d, b"full").await.unwrap();
        e.create(d, "new").await.unwrap();
        world.write("d/nd", b"theirs");
        world.write("d/gone", b"theirs");
        world.write("d/full/x", b"theirs");
        world.write("d/new", b"theirs");
        world.fault(Fault::None);

        let mut said = Vec::new();
        for name in ["nd", "gone", "full", "new"] {
            e.vfs.sync(None, Duration::from_secs(10)).await.unwrap_err();
            let at = path("d").join(&Name::new(name.as_bytes()).unwrap());
            assert_eq!(stopped(&e), [at.to_string()]);
            said.push(e.vfs.settle_stopped(d.volume, &at, &keep).await.unwrap());
        }
        e.sync().await;
        let there = world.names_at_home("d").await;
        let copy_of = |name: &str| {
            let found = there.iter().find(|at| at.starts_with(&format!("{name}.trellis-conflict-"))).unwrap();
            Settled::Both(Name::new(found.as_bytes()).unwrap())
        };
        assert_eq!(at_home(&world, "d/nd").await, "theirs");
        assert_eq!(at_home(&world, "d/full/x").await, "theirs");
        let (gone, new) = match keep {
            Keep::Mine => (Settled::Removed, Settled::Mine),
            _ => (Settled::Theirs, copy_of("new")),
        };
        assert_eq!(there.contains(&"gone".to_owned()), gone == Settled::Theirs);
        assert_eq!(at_home(&world, "d/new").await, if new == Settled::Mine { "" } else { "theirs" });
        assert_eq!(said, [copy_of("nd"), gone, Settled::Theirs, new], "{keep:?}");
    }
}

#[tokio::test]
async fn stop_does_not_destroy_what_was_not_seen_then() {
    let world = world(Policy::Stop);
    let e = stop(&world).await;
    world.write("d/f", b"newer than what was seen");
    assert_eq!(settle(&e, Keep::Mine).await.unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(at_home(&world, "d/f").await, "newer than what was seen");
    assert_eq!(stopped(&e), ["/d/f"]);
    settle(&e, Keep::Mine).await.unwrap();
    e.sync().await;
    assert_eq!(at_home(&world, "d/f").await, "ours!");
    assert_eq!(settle(&e, Keep::Mine).await.unwrap_err().kind, ErrorKind::NotFound);
    let named = Keep::Both(Some(Name::new(b"x").unwrap()));
    assert_eq!(settle(&e, named).await.unwrap_err().kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn stop_goes_on_by_retry_where_the_home_has_put_it_back_and_by_discard() {
    let world = world(Policy::Stop);
    let e = stop(&world).await;
    e.vfs.retry_refused(None);
    e.vfs.sync(None, Duration::from_secs(10)).await.unwrap_err();
    nothing_went(&world, &e).await;
    // By now both sides have the same.
    world.write("d/f", b"ours!");
    e.vfs.retry_refused(None);
    e.sync().await;
    assert_eq!(world.names_at_home("d").await, ["after", "f", "later"]);
    assert!(copies(&e).await.is_empty() && stopped(&e).is_empty());
}

#[tokio::test]
async fn what_is_in_force_is_in_a_file() {
    let world = world(Policy::AppendMerge);
    let e = prepared(&world).await;
    let file = e.find("/.trellis/conflicts").await.unwrap();
    let text = String::from_utf8(e.read(file).await.unwrap()).unwrap();
    assert_eq!(text, "keep-both /lab\nappend-merge /lab/d\n");
    let dir = e.find("/.trellis").await.unwrap();
    assert_eq!(e.names(dir).await, ["conflicts", "modes", "sync"]);
}
