//! Extended attributes: kept like any change, read without questions where the answer is known, refused where the
//! home has none.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::{Engine, World};
use home::memory::Counters;
use home::testing::conformance::Outside;
use home::testing::fault::Fault;
use home::{ErrorKind, HomePath};
use std::time::Duration;
use vfs::{Mode, Oid, RenameHow, SetAttrs, XattrHow};

use vfs::XattrHow::{Any, Create, Replace};

/// What the tests do on an object.
struct On<'a>(&'a Engine, Oid);

impl On<'_> {
    async fn set(&self, name: &str, value: &[u8], how: XattrHow) -> vfs::Result<()> {
        let On(e, oid) = self;
        e.vfs.setxattr(e.ctx(), *oid, name.as_bytes(), Bytes::copy_from_slice(value), how).await
    }
    async fn get(&self, name: &str) -> Result<Vec<u8>, ErrorKind> {
        let value = self.0.vfs.getxattr(self.0.ctx(), self.1, name.as_bytes()).await;
        value.map(|v| v.to_vec()).map_err(|e| e.kind)
    }
    async fn remove(&self, name: &str) -> Result<(), ErrorKind> {
        self.0.vfs.removexattr(self.0.ctx(), self.1, name.as_bytes()).await.map_err(|e| e.kind)
    }
    async fn list(&self) -> Result<Vec<String>, ErrorKind> {
        let names = self.0.vfs.listxattr(self.0.ctx(), self.1).await.map_err(|e| e.kind)?;
        Ok(names.iter().map(ToString::to_string).collect())
    }
    async fn fails(&self, name: &str, how: XattrHow) -> ErrorKind {
        self.set(name, b"x", how).await.unwrap_err().kind
    }
}

fn path(name: &str) -> HomePath {
    HomePath::parse(name.as_bytes()).unwrap()
}

fn at_home(world: &World, file: &str, name: &str) -> Option<Vec<u8>> {
    Outside::xattr(&world.memory, &path(file), name)
}

fn edit(world: &World, file: &str, name: &str, value: Option<&[u8]>) {
    assert!(Outside::set_xattr(&world.memory, &path(file), name, value));
}

fn calls(world: &World) -> Counters {
    world.memory.counters()
}

#[tokio::test]
async fn what_is_set_is_seen_at_once_and_goes_home() {
    let world = World::new(Mode::Wb);
    world.write("old", b"text");
    edit(&world, "old", "user.theirs", Some(b"1"));
    let e = world.start().await;
    let old = On(&e, e.find("/lab/old").await.unwrap());
    let new = On(&e, e.create(e.lab().await, "new").await.unwrap());
    world.fault(Fault::HangChanges);
    for on in [&old, &new] {
        let before = e.vfs.getattr(e.ctx(), on.1).await.unwrap();
        on.set("user.a", b"one", Create).await.unwrap();
        let after = e.vfs.getattr(e.ctx(), on.1).await.unwrap();
        assert!(after.ctime > before.ctime && after.mtime == before.mtime);
        on.set("user.a", b"two", Replace).await.unwrap();
        on.set("user.gone", b"", Any).await.unwrap();
        on.remove("user.gone").await.unwrap();
        assert_eq!(on.get("user.a").await.unwrap(), b"two");
        assert_eq!(on.fails("user.a", Create).await, ErrorKind::Exists);
        assert_eq!(on.fails("user.gone", Replace).await, ErrorKind::NoAttribute);
        assert_eq!(on.remove("user.gone").await, Err(ErrorKind::NoAttribute));
        assert_eq!(on.get("user.gone").await, Err(ErrorKind::NoAttribute));
    }
    assert_eq!(old.list().await.unwrap(), ["user.a", "user.theirs"]);
    assert_eq!(new.list().await.unwrap(), ["user.a"]);
    assert_eq!(at_home(&world, "old", "user.a"), None, "it was acknowledged before the home had it");
    world.fault(Fault::None);
    e.sync().await;
    for file in ["old", "new"] {
        assert_eq!(at_home(&world, file, "user.a").unwrap(), b"two");
        assert_eq!(at_home(&world, file, "user.gone"), None);
    }
    assert_eq!(old.get("user.theirs").await.unwrap(), b"1");
}

#[tokio::test]
async fn a_killed_process_loses_no_attribute() {
    let mut world = World::new(Mode::Wb);
    world.write("f", b"text");
    edit(&world, "f", "user.b", Some(b"theirs"));
    let e = world.start().await;
    let file = e.find("/lab/f").await.unwrap();
    let long = vec![7; 1024];
    world.fault(Fault::HangChanges);
    On(&e, file).set("user.a", &long, Any).await.unwrap();
    On(&e, file).remove("user.b").await.unwrap();
    world.disk.kill();
    world.reconnect();
    let e = world.start().await;
    world.fault(Fault::HangChanges);
    let on = On(&e, file);
    assert_eq!(on.list().await.unwrap(), ["user.a"]);
    assert!(on.get("user.a").await.unwrap() == long);
    world.fault(Fault::None);
    e.sync().await;
    assert!(at_home(&world, "f", "user.a").unwrap() == long && at_home(&world, "f", "user.b").is_none());
}

#[tokio::test]
async fn what_is_known_costs_no_question_and_an_edit_at_home_is_seen() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_millis(300);
    for i in 0..50 {
        world.write(&format!("f{i}"), b"");
    }
    edit(&world, "f7", "user.a", Some(b"1"));
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    let listed = calls(&world).calls();
    for i in (0..50).filter(|i| *i != 7) {
        let on = On(&e, e.find(&format!("/lab/f{i}")).await.unwrap());
        assert_eq!(on.list().await.unwrap(), [""; 0]);
        assert_eq!(on.get("user.a").await, Err(ErrorKind::NoAttribute));
        // What programs ask of every file.
        for other in ["security.capability", "system.posix_acl_access", "trusted.x"] {
            assert_eq!(on.get(other).await, Err(ErrorKind::Unsupported));
            assert_eq!(on.fails(other, Any).await, ErrorKind::Unsupported);
        }
    }
    assert_eq!(calls(&world).calls(), listed, "the listing told that they have none");
    let on = On(&e, e.find("/lab/f7").await.unwrap());
    assert_eq!(on.get("user.a").await.unwrap(), b"1");
    let once = calls(&world).calls();
    assert_eq!(
        (on.list().await.unwrap(), on.get("user.b").await),
        (vec!["user.a".into()], Err(ErrorKind::NoAttribute))
    );
    assert_eq!(calls(&world).calls(), once);

    edit(&world, "f7", "user.a", Some(b"2"));
    edit(&world, "f8", "user.new", Some(b"3"));
    let other = On(&e, e.find("/lab/f8").await.unwrap());
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(on.get("user.a").await.unwrap(), b"2");
    assert_eq!(other.list().await.unwrap(), ["user.new"]);
}

#[tokio::test]
async fn many_objects_of_unknown_attributes_are_asked_for_together() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let mut made = Vec::new();
    for i in 0..100 {
        made.push(e.create(lab, &format!("f{i}")).await.unwrap());
        On(&e, made[i]).set("user.a", b"1", Any).await.unwrap();
        On(&e, made[i]).remove("user.a").await.unwrap();
    }
    e.sync().await;
    let before = calls(&world).calls();
    for oid in made {
        assert_eq!(On(&e, oid).list().await.unwrap(), [""; 0]);
    }
    assert!(calls(&world).calls() <= before + 2, "{:?}", calls(&world));
}

#[tokio::test]
async fn a_home_without_attributes_says_so_before_anything_is_accepted() {
    let world = World::new(Mode::Wb);
    world.memory.set_has_xattrs(false);
    world.write("f", b"");
    let e = world.start().await;
    let new = e.create(e.lab().await, "new").await.unwrap();
    for oid in [e.find("/lab/f").await.unwrap(), new] {
        assert_eq!(On(&e, oid).fails("user.a", Any).await, ErrorKind::Unsupported);
        assert_eq!(On(&e, oid).remove("user.a").await, Err(ErrorKind::Unsupported));
    }
    let asked = calls(&world).xattrs;
    assert_eq!(On(&e, new).fails("user.b", Any).await, ErrorKind::Unsupported);
    assert_eq!(calls(&world).xattrs, asked, "it is known for a while");
    e.sync().await;
    assert!(e.vfs.status().volumes[0].parked.is_empty());
}

#[tokio::test]
async fn permission_is_that_of_a_local_file_system() {
    let world = World::new(Mode::Wb);
    for name in ["ro", "none"] {
        world.write(name, b"");
        edit(&world, name, "user.a", Some(b"1"));
    }
    world.memory.chmod_outside(&path("ro"), 0o444);
    world.memory.chmod_outside(&path("none"), 0o200);
    Outside::symlink(&world.memory, &path("link"), b"ro");
    let e = world.start().await;
    let ro = On(&e, e.find("/lab/ro").await.unwrap());
    assert_eq!(ro.fails("user.a", Any).await, ErrorKind::Access);
    assert_eq!(ro.remove("user.a").await, Err(ErrorKind::Access));
    assert_eq!(ro.get("user.a").await.unwrap(), b"1");
    let none = On(&e, e.find("/lab/none").await.unwrap());
    assert_eq!(none.get("user.a").await, Err(ErrorKind::Access));
    assert_eq!(none.list().await.unwrap(), ["user.a"], "names need no permission");
    none.set("user.b", b"2", Any).await.unwrap();
    let link = On(&e, e.vfs.lookup(e.ctx(), e.lab().await, b"link").await.unwrap().oid);
    assert_eq!(link.fails("user.a", Any).await, ErrorKind::Perm);
    assert_eq!((link.get("user.a").await, link.list().await), (Err(ErrorKind::NoAttribute), Ok(vec![])));
    let root = On(&e, Oid::ROOT);
    assert_eq!(root.fails("user.a", Any).await, ErrorKind::ReadOnly);
    assert_eq!(root.get("user.a").await, Err(ErrorKind::NoAttribute));
    let long = [b'x'; 65_537];
    assert_eq!(none.set("user.a", &long, Any).await.unwrap_err().kind, ErrorKind::TooBig);
    assert_eq!(none.fails(&format!("user.{}", "n".repeat(251)), Any).await, ErrorKind::NameTooLong);
}

#[tokio::test]
async fn a_refused_attribute_is_kept_also_over_a_restart() {
    let mut world = World::new(Mode::Wb);
    world.write("f", b"text");
    let e = world.start().await;
    let file = e.find("/lab/f").await.unwrap();
    On(&e, file).set("user.before", b"1", Any).await.unwrap();
    e.sync().await;
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    On(&e, file).set("user.a", b"2", Any).await.unwrap();
    assert!(e.vfs.sync(None, Duration::from_secs(5)).await.is_err());
    let parked = e.vfs.status().volumes[0].parked.clone();
    assert!(parked.len() == 1 && parked[0].what.contains("set attribute user.a"), "{parked:?}");
    assert_eq!(On(&e, file).get("user.a").await.unwrap(), b"2");
    world.disk.kill();
    world.reconnect();
    let e = world.start().await;
    let on = On(&e, file);
    assert_eq!(on.list().await.unwrap(), ["user.a", "user.before"]);
    e.sync().await;
    assert_eq!(at_home(&world, "f", "user.a").unwrap(), b"2");
}

#[tokio::test]
async fn the_copy_of_a_conflict_keeps_our_attributes() {
    let world = World::new(Mode::Wb);
    world.write("f", b"base");
    edit(&world, "f", "user.old", Some(b"1"));
    let e = world.start().await;
    let file = e.find("/lab/f").await.unwrap();
    let on = On(&e, file);
    assert_eq!(on.get("user.old").await.unwrap(), b"1");
    world.fault(Fault::HangChanges);
    e.write(file, 0, b"ours").await.unwrap();
    on.set("user.new", b"2", Any).await.unwrap();
    world.write("f", b"theirs is longer");
    world.fault(Fault::None);
    e.sync().await;
    let names = world.names_at_home("").await;
    let copy = names.iter().find(|n| n.starts_with("f.trellis-conflict-")).unwrap();
    assert_eq!(world.at_home(copy).await.unwrap(), b"ours");
    assert_eq!(at_home(&world, copy, "user.old").unwrap(), b"1");
    assert_eq!(at_home(&world, copy, "user.new").unwrap(), b"2");
    assert_eq!(
        (at_home(&world, "f", "user.old").unwrap(), at_home(&world, "f", "user.new")),
        (b"1".into(), None)
    );
    assert_eq!(on.list().await.unwrap(), ["user.new", "user.old"]);
}

#[tokio::test]
async fn what_may_not_fit_waits_for_the_home() {
    let world = World::new(Mode::Wb);
    world.write("f", b"text");
    let e = world.start().await;
    let on = On(&e, e.find("/lab/f").await.unwrap());
    let long = vec![7; 65_536];
    on.set("user.long", &long, Create).await.unwrap();
    assert!(at_home(&world, "f", "user.long").unwrap() == long, "it is there when the call returns");
    assert!(on.get("user.long").await.unwrap() == long);
    on.remove("user.long").await.unwrap();
    e.sync().await;
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    let before = e.vfs.getattr(e.ctx(), on.1).await.unwrap();
    assert_eq!(on.set("user.long", &long, Any).await.unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(e.vfs.getattr(e.ctx(), on.1).await.unwrap(), before);
    assert_eq!(on.get("user.long").await, Err(ErrorKind::NoAttribute));
    assert!(e.vfs.status().volumes[0].parked.is_empty());
    // Many small ones are a large one.
    world.fault(Fault::HangChanges);
    for i in 0..3 {
        on.set(&format!("user.{i}"), &[7; 1000], Any).await.unwrap();
    }
    let fourth = on.set("user.fourth", &[7; 1000], Any);
    assert!(tokio::time::timeout(Duration::from_millis(500), fourth).await.is_err(), "it waits");
    // What waits behind a refused one is told so, and nobody waits for ever.
    world.fault(Fault::Refuse(ErrorKind::Perm));
    let stuck = tokio::time::timeout(Duration::from_secs(10), on.set("user.long", &long, Any)).await;
    assert_eq!(stuck.unwrap().unwrap_err().kind, ErrorKind::Io);
}

#[tokio::test]
async fn a_lost_answer_is_no_lost_attribute() {
    for fault in [Fault::AnswersLost, Fault::ChangesUnanswered] {
        let world = World::new(Mode::Wb);
        world.write("f", b"text");
        let e = world.start().await;
        let on = On(&e, e.find("/lab/f").await.unwrap());
        on.set("user.keeps", b"0", Any).await.unwrap();
        e.sync().await;
        assert_eq!(on.list().await.unwrap(), ["user.keeps"]);
        world.fault(fault);
        on.set("user.a", b"1", Any).await.unwrap();
        on.set("user.a", b"2", Any).await.unwrap();
        on.remove("user.keeps").await.unwrap();
        let _ = e.vfs.sync(None, Duration::from_millis(300)).await;
        world.memory.restart();
        world.fault(Fault::None);
        e.sync().await;
        assert_eq!((on.get("user.a").await.unwrap(), on.list().await.unwrap().len()), (b"2".to_vec(), 1));
        assert_eq!(at_home(&world, "f", "user.a").unwrap(), b"2");
    }
}

#[tokio::test]
async fn strict_waits_for_the_home_and_has_its_errors() {
    let world = World::new(Mode::Strict);
    world.write("f", b"text");
    let e = world.start().await;
    let on = On(&e, e.find("/lab/f").await.unwrap());
    on.set("user.a", b"1", Create).await.unwrap();
    assert_eq!(at_home(&world, "f", "user.a").unwrap(), b"1");
    assert_eq!(on.fails("user.a", Create).await, ErrorKind::Exists);
    edit(&world, "f", "user.a", Some(b"2"));
    assert_eq!(on.get("user.a").await.unwrap(), b"2", "seen at once");
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    assert_eq!(on.fails("user.b", Any).await, ErrorKind::NoSpace);
    world.fault(Fault::None);
    assert_eq!(on.list().await.unwrap(), ["user.a"]);
    on.remove("user.a").await.unwrap();
    assert_eq!(on.remove("user.a").await, Err(ErrorKind::NoAttribute));
    world.memory.set_has_xattrs(false);
    assert_eq!(on.fails("user.a", Any).await, ErrorKind::Unsupported);
}

#[tokio::test]
async fn the_journal_keeps_attributes_in_order_with_the_rest() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    world.fault(Fault::HangChanges);
    let file = e.create(lab, "f").await.unwrap();
    let on = On(&e, file);
    e.write(file, 0, b"one").await.unwrap();
    on.set("user.a", b"1", Any).await.unwrap();
    e.write(file, 3, b" two").await.unwrap();
    // Nothing could be set after this.
    let set = SetAttrs { mode: Some(0o400), ..SetAttrs::default() };
    e.vfs.setattr(e.ctx(), file, set, None).await.unwrap();
    e.vfs.rename(e.ctx(), lab, b"f", lab, b"g", vfs::RenameHow::Replace).await.unwrap();
    assert_eq!(on.fails("user.b", Any).await, ErrorKind::Access);
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(at_home(&world, "g", "user.a").unwrap(), b"1");
    assert_eq!(world.at_home("g").await.unwrap(), b"one two");
    assert_eq!(on.list().await.unwrap(), ["user.a"]);
}

#[tokio::test]
async fn what_moves_into_a_directory_that_the_home_has_not_yet_is_asked_for_where_it_is() {
    let world = World::new(Mode::Wb);
    world.write("a", b"x");
    let e = world.start().await;
    let lab = e.lab().await;
    let a = e.find("/lab/a").await.unwrap();
    e.vfs.setxattr(e.ctx(), a, b"user.k", Bytes::from_static(b"v"), Any).await.unwrap();
    e.sync().await;
    world.fault(Fault::HangChanges);
    let d = e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default()).await.unwrap().oid;
    e.vfs.rename(e.ctx(), lab, b"a", d, b"a", RenameHow::Replace).await.unwrap();
    assert_eq!(e.vfs.listxattr(e.ctx(), a).await.unwrap().len(), 1);
    world.fault(Fault::None);
    e.sync().await;
}
