//! What the home tells of changes makes answers good for longer than the bound of staleness, and for no longer than they
//! are true.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, Skipping, World};
use home::HomePath;
use home::testing::fault::Fault;
use std::sync::Arc;
use std::time::Duration;
use vfs::{Event, Mode};

struct Place {
    world: World,
    clock: Arc<Skipping>,
    e: Engine,
}

/// A home that tells of changes, with a folder `d` that has the file `a`, the folder `sub` and the file `sub/b`.
async fn place(mode: Mode) -> Place {
    let mut world = World::new(mode);
    let clock = Skipping::of(&mut world);
    world.memory.set_watches();
    world.mkdir("d");
    world.mkdir("d/sub");
    world.write("d/a", b"one");
    world.write("d/sub/b", b"two");
    let e = world.start().await;
    let place = Place { world, clock, e };
    place.walk().await;
    place
}

impl Place {
    fn later(&self, seconds: u64) {
        self.clock.skip(seconds);
    }

    fn calls(&self) -> u64 {
        self.world.memory.counters().calls()
    }

    /// Another program writes, and the home tells of it.
    async fn edit(&self, path: &str, data: &[u8]) {
        self.world.write(path, data);
        self.tell(path).await;
    }

    async fn tell(&self, path: &str) {
        let (dir, name) = HomePath::parse(path.as_bytes()).unwrap().split().unwrap();
        self.world.memory.tell(&dir, &[&name.to_string()]);
        self.heard().await;
    }

    /// What was told has been taken in.
    async fn heard(&self) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    /// What `find -ls` and a reader of each file ask for, and a look at a name that is not there.
    async fn walk(&self) {
        for dir in ["/lab", "/lab/d", "/lab/d/sub"] {
            let oid = self.e.find(dir).await.unwrap();
            for entry in self.e.vfs.readdir(self.e.ctx(), oid, 0, 100).await.unwrap().entries {
                self.e.vfs.getattr(self.e.ctx(), entry.oid).await.unwrap();
            }
            assert!(self.e.vfs.lookup(self.e.ctx(), oid, b"missing").await.is_err());
        }
        self.content("d/a").await;
        self.content("d/sub/b").await;
    }

    async fn content(&self, path: &str) -> Vec<u8> {
        let oid = self.e.find(&format!("/lab/{path}")).await.unwrap();
        self.e.read(oid).await.unwrap()
    }

    /// How often the home is asked for a walk.
    async fn cost(&self) -> u64 {
        let before = self.calls();
        self.walk().await;
        self.calls() - before
    }
}

#[tokio::test]
async fn what_is_told_of_is_not_asked_for_again() {
    let place = place(Mode::Wb).await;
    place.later(60);
    assert_eq!(place.cost().await, 0);
    place.later(500);
    assert_eq!(place.cost().await, 0);
    place.later(60);
    assert!(place.cost().await > 0, "the home's kernel does not tell everything");
    place.later(60);
    assert_eq!(place.cost().await, 0);
}

#[tokio::test]
async fn a_told_change_is_seen_at_once_and_costs_one_question() {
    let place = place(Mode::Wb).await;
    place.edit("d/a", b"other").await;
    assert_eq!(place.content("d/a").await, b"other");
    place.walk().await;
    place.later(60);
    let other = place.e.find("/lab/d/sub/b").await.unwrap();
    place.edit("d/a", b"a third").await;
    let before = place.calls();
    assert_eq!(place.e.read(other).await.unwrap(), b"two");
    assert_eq!(place.calls(), before, "another directory");
    assert_eq!(place.content("d/a").await, b"a third");
    // The listing, and the bytes.
    assert_eq!(place.calls(), before + 2);
    place.later(60);
    assert_eq!(place.cost().await, 0);

    place.world.write("d/new", b"new");
    place.tell("d/new").await;
    assert_eq!(place.content("d/new").await, b"new");
    place.world.remove("d/new");
    place.tell("d/new").await;
    assert!(place.e.find("/lab/d/new").await.is_err());
}

#[tokio::test]
async fn of_many_names_the_told_one_alone_is_asked_for() {
    let place = place(Mode::Wb).await;
    for i in 0..200 {
        place.world.write(&format!("d/sub/f{i}"), b"old");
    }
    place.world.memory.tell(&HomePath::parse(b"d/sub").unwrap(), &[]);
    place.heard().await;
    place.walk().await;
    let file = place.e.find("/lab/d/sub/f7").await.unwrap();
    place.e.read(file).await.unwrap();
    place.later(60);
    let before = place.world.memory.counters();
    place.edit("d/sub/f7", b"edited").await;
    assert_eq!(place.e.read(file).await.unwrap(), b"edited");
    let after = place.world.memory.counters();
    assert_eq!((after.stat - before.stat, after.list - before.list), (1, 0));
    place.later(60);
    place.world.write("d/sub/f7", b"untold, because it was told once");
    assert_eq!(place.e.read(file).await.unwrap(), b"untold, because it was told once");
}

#[tokio::test]
async fn who_hears_of_a_change_while_he_asks_asks_again() {
    let place = place(Mode::Wb).await;
    let oid = place.e.find("/lab/d").await.unwrap();
    place.later(60);
    place.tell("d/a").await;
    place.world.fault(Fault::Hang);
    let listing = place.e.vfs.readdir(place.e.ctx(), oid, 0, 100);
    let told = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        // The mark is that of the walk: the question under way has not come to the home.
        place.tell("d/a").await;
        place.world.fault(Fault::None);
    };
    tokio::join!(listing, told).0.unwrap();
    let before = place.calls();
    assert_eq!(place.content("d/a").await, b"one");
    assert_eq!(place.calls(), before + 1, "the answer may be older than what was told");
}

#[tokio::test]
async fn what_went_untold_makes_everything_as_old_as_it_is() {
    let place = place(Mode::Wb).await;
    place.later(60);
    place.world.memory.lose();
    place.world.write("d/a", b"untold");
    assert_eq!(place.content("d/a").await, b"untold");
    place.walk().await;
    place.later(60);
    assert_eq!(place.cost().await, 0);
}

#[tokio::test]
async fn a_lost_connection_ends_what_is_told() {
    let place = place(Mode::Wb).await;
    place.later(60);
    place.world.fault(Fault::Unreachable);
    assert_eq!(place.content("d/a").await, b"one", "what is known is served");
    place.world.write("d/a", b"meanwhile");
    place.world.memory.restart();
    place.world.fault(Fault::None);
    place.later(1);
    let seen = async {
        while place.content("d/a").await != b"meanwhile" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(4), seen).await.unwrap();
}

#[tokio::test]
async fn of_a_file_with_two_names_nothing_is_believed() {
    let place = place(Mode::Wb).await;
    let path = |text: &str| HomePath::parse(text.as_bytes()).unwrap();
    place.world.memory.link_outside(&path("d/a"), &path("d/sub/linked"));
    place.tell("d/a").await;
    place.walk().await;
    place.later(60);
    place.world.write("d/sub/linked", b"by the other name");
    assert_eq!(place.content("d/a").await, b"by the other name");
}

/// The kernel at the home tells of the new name alone.
#[tokio::test]
async fn a_name_that_is_added_to_a_known_file_is_looked_at_at_once() {
    let place = place(Mode::Wb).await;
    let path = |text: &str| HomePath::parse(text.as_bytes()).unwrap();
    place.walk().await;
    place.world.memory.link_outside(&path("d/a"), &path("d/sub/linked"));
    place.tell("d/sub/linked").await;
    place.later(60);
    place.world.write("d/sub/linked", b"by the other name");
    assert_eq!(place.content("d/a").await, b"by the other name");
}

#[tokio::test]
async fn our_own_changes_leave_what_is_told_in_force() {
    let place = place(Mode::Wb).await;
    let dir = place.e.find("/lab/d").await.unwrap();
    let file = place.e.create(dir, "mine").await.unwrap();
    place.e.write(file, 0, b"mine").await.unwrap();
    place.e.sync().await;
    place.later(60);
    let before = place.calls();
    assert_eq!(place.content("d/mine").await, b"mine");
    assert_eq!(place.calls(), before);
    assert_eq!(place.cost().await, 0);
}

#[tokio::test]
async fn what_a_listing_finds_under_unsent_changes_is_not_believed_for_longer() {
    let place = place(Mode::Wb).await;
    place.world.fault(Fault::HangChanges);
    let file = place.e.find("/lab/d/a").await.unwrap();
    place.e.write(file, 0, b"ours").await.unwrap();
    place.later(700);
    place.walk().await;
    place.world.fault(Fault::None);
    place.e.sync().await;
    place.later(60);
    place.world.write("d/a", b"untold");
    assert_eq!(place.content("d/a").await, b"untold");
}

#[tokio::test]
async fn strict_and_opens_in_cto_ask_all_the_same() {
    let strict = place(Mode::Strict).await;
    strict.world.write("d/a", b"untold");
    assert_eq!(strict.content("d/a").await, b"untold");
    let cto = place(Mode::Cto).await;
    cto.world.write("d/a", b"untold");
    let oid = cto.e.find("/lab/d/a").await.unwrap();
    let mode = vfs::OpenMode { read: true, ..Default::default() };
    let open = cto.e.vfs.open_file(cto.e.ctx(), oid, mode).await.unwrap();
    assert_eq!(cto.content("d/a").await, b"untold");
    drop(open);
    cto.walk().await;
    cto.later(60);
    assert_eq!(cto.cost().await, 0, "what is no open is as in wb");
}

#[tokio::test]
async fn front_ends_hear_what_the_home_tells() {
    let place = place(Mode::Wb).await;
    let mut watch = place.e.vfs.watch();
    let (dir, file) = (place.e.find("/lab/d").await.unwrap(), place.e.find("/lab/d/a").await.unwrap());
    place.edit("d/a", b"other").await;
    let events: Vec<Event> = std::iter::from_fn(|| watch.try_next()).collect();
    let name = vfs::Name::new(b"a").unwrap();
    assert!(events.contains(&Event::Entry { dir, name, origin: 0 }), "{events:?}");
    assert!(events.contains(&Event::Content { oid: file, origin: 0 }), "{events:?}");
}

/// An NFS client that was given the directory's new times believes what it is told of names then, until they change again.
#[tokio::test]
async fn who_sees_that_a_directory_changed_sees_its_new_names() {
    let place = place(Mode::Wb).await;
    let d = place.e.find("/lab/d").await.unwrap();
    // The folder above is listed anew, and tells the folder's times.
    let mtime = async |text: &str| {
        place.edit("other", text.as_bytes()).await;
        place.content("other").await;
        place.e.vfs.getattr(place.e.ctx(), d).await.unwrap().mtime
    };
    let before = mtime("one").await;
    place.world.write("d/untold", b"new");
    let then = mtime("two").await;
    assert_ne!(then, before);
    assert_eq!(place.content("d/untold").await, b"new");
    place.world.remove("d/untold");
    assert_ne!(mtime("three").await, then);
    place.e.find("/lab/d/untold").await.unwrap_err();
    // What was told by then is good for as long as ever.
    place.walk().await;
    place.later(60);
    assert_eq!(place.cost().await, 0);
}

/// Its times as our own operation left them are no news.
#[tokio::test]
async fn who_sees_a_directory_as_we_left_it_asks_for_no_names() {
    let place = place(Mode::Wb).await;
    let dir = place.e.find("/lab/d").await.unwrap();
    let before = place.e.vfs.getattr(place.e.ctx(), dir).await.unwrap().mtime;
    place.e.create(dir, "mine").await.unwrap();
    place.e.sync().await;
    place.edit("other", b"theirs").await;
    place.content("other").await;
    assert_ne!(place.e.vfs.getattr(place.e.ctx(), dir).await.unwrap().mtime, before);
    let calls = place.calls();
    assert_eq!(place.content("d/a").await, b"one");
    place.e.find("/lab/d/missing").await.unwrap_err();
    assert_eq!(place.calls(), calls);
}

/// Where nothing is told, names are as new as the times all the same.
#[tokio::test]
async fn the_times_of_a_directory_are_never_younger_than_its_names() {
    let mut world = World::new(Mode::Wb);
    let clock = Skipping::of(&mut world);
    world.staleness = Duration::from_secs(5);
    world.mkdir("d");
    let e = world.start().await;
    let lab = e.lab().await;
    let list = async || e.vfs.readdir(e.ctx(), lab, 0, 100).await.unwrap();
    list().await;
    let seen = e.find("/lab/d").await.unwrap();
    let mtime = async || e.vfs.getattr(e.ctx(), seen).await.unwrap().mtime;
    clock.skip(3);
    e.vfs.lookup(e.ctx(), seen, b"new").await.unwrap_err();
    let before = mtime().await;
    world.write("d/new", b"new");
    clock.skip(3);
    list().await;
    assert_ne!(mtime().await, before, "the listing of the folder above tells its times");
    e.vfs.lookup(e.ctx(), seen, b"new").await.unwrap();
}
