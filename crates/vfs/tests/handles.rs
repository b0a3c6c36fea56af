//! What a front-end with open files needs of the engine: appends, opens, locks, the stream of changes.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World};
use home::ErrorKind;
use home::testing::fault::Fault;
use std::collections::BTreeMap;
use std::time::Duration;
use vfs::{
    CreateHow, Cred, Ctx, Event, Mode, Oid, OpenFile, OpenMode, RenameHow, SetAttrs, Stability, Watch,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_appends_never_overlap() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "log").await.unwrap();
    e.write(f, 0, b"head\n").await.unwrap();
    let writers = (0..8u8).map(|w| {
        let (vfs, cred) = (e.vfs.clone(), e.cred.clone());
        tokio::spawn(async move {
            let mut places = Vec::new();
            for i in 0..40usize {
                let line = vec![b'a' + w; 1 + (i * 7 + usize::from(w)) % 50];
                let ctx = vfs::Ctx::of(&cred);
                let len = line.len();
                let done = vfs.append(ctx, f, line.into(), Stability::Unstable).await.unwrap();
                assert_eq!(done.written.count as usize, len);
                assert!(done.written.wcc.after.unwrap().size >= done.at + len as u64);
                places.push((done.at, (b'a' + w, len)));
            }
            places
        })
    });
    let mut taken = BTreeMap::new();
    for writer in writers.collect::<Vec<_>>() {
        taken.extend(writer.await.unwrap());
    }
    assert_eq!(taken.len(), 320, "no two began at the same place");
    let bytes = e.read(f).await.unwrap();
    let mut at = 5;
    for (place, (letter, len)) in taken {
        assert_eq!(place, at as u64);
        assert_eq!(bytes[at..at + len], vec![letter; len]);
        at += len;
    }
    assert_eq!(bytes.len(), at);
    e.sync().await;
    assert_eq!(world.at_home("log").await.unwrap(), bytes);
}

#[tokio::test]
async fn an_append_of_nothing_says_where_the_end_is() {
    let world = World::new(Mode::Strict);
    world.write("f", b"12345");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    let none = e.vfs.append(e.ctx(), f, bytes::Bytes::new(), Stability::Stable).await.unwrap();
    assert_eq!((none.at, none.written.count), (5, 0));
    let some = e.vfs.append(e.ctx(), f, "67".into(), Stability::Stable).await.unwrap();
    assert_eq!(some.at, 5);
    assert_eq!(world.at_home("f").await.unwrap(), b"1234567");
    let dir = e.lab().await;
    let refused = e.vfs.append(e.ctx(), dir, "x".into(), Stability::Stable).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::IsDir);
}

#[tokio::test]
async fn a_rename_that_must_not_replace() {
    for mode in [Mode::Wb, Mode::Strict] {
        let world = World::new(mode);
        world.write("b", b"theirs");
        let e = world.start().await;
        let lab = e.lab().await;
        let a = e.create(lab, "a").await.unwrap();
        let taken = e.vfs.rename(e.ctx(), lab, b"a", lab, b"b", RenameHow::NoReplace).await;
        assert_eq!(taken.unwrap_err().kind, ErrorKind::Exists);
        let itself = e.vfs.rename(e.ctx(), lab, b"a", lab, b"a", RenameHow::NoReplace).await;
        assert_eq!(itself.unwrap_err().kind, ErrorKind::Exists);
        e.vfs.rename(e.ctx(), lab, b"a", lab, b"c", RenameHow::NoReplace).await.unwrap();
        assert_eq!(e.find("/lab/c").await.unwrap(), a);
        e.sync().await;
        assert_eq!(world.names_at_home("").await, ["b", "c"]);
        assert_eq!(world.at_home("b").await.unwrap(), b"theirs");
    }
}

/// Everything that a watcher has heard, in words.
fn heard(watch: &mut Watch, names: &[(&str, Oid)]) -> Vec<String> {
    let of = |oid: Oid| names.iter().find(|(_, o)| *o == oid).map_or("other", |(n, _)| *n).to_owned();
    let events = std::iter::from_fn(|| watch.try_next());
    events
        .map(|event| match event {
            Event::Attributes { oid, origin } => format!("attributes {} by {origin}", of(oid)),
            Event::Content { oid, origin } => format!("content {} by {origin}", of(oid)),
            Event::Entry { dir, name, origin } => format!("entry {} {name} by {origin}", of(dir)),
            Event::Lost => "lost".to_owned(),
        })
        .collect()
}

#[tokio::test]
async fn watchers_hear_of_changes_made_here_and_of_nothing_else() {
    for mode in [Mode::Wb, Mode::Strict] {
        let world = World::new(mode);
        let e = world.start().await;
        let lab = e.lab().await;
        let (ours, others) = (e.vfs.new_session(), e.vfs.new_session());
        assert_ne!(ours, others);
        let mut watch = e.vfs.watch();
        let ctx = Ctx { origin: others, ..e.ctx() };
        let made = e.vfs.create(ctx, lab, b"f", CreateHow::Guarded, SetAttrs::default()).await.unwrap();
        let names = [("lab", lab), ("f", made.oid)];
        assert_eq!(heard(&mut watch, &names), [format!("entry lab f by {others}")]);
        let ctx = Ctx { origin: ours, ..e.ctx() };
        e.vfs.write(ctx, made.oid, 0, "12".into(), Stability::Stable).await.unwrap();
        assert_eq!(heard(&mut watch, &names)[..1], [format!("content f by {ours}")]);
        let set = SetAttrs { mode: Some(0o600), ..SetAttrs::default() };
        e.vfs.setattr(ctx, made.oid, set, None).await.unwrap();
        assert_eq!(heard(&mut watch, &names), [format!("attributes f by {ours}")]);
        e.vfs.rename(ctx, lab, b"f", lab, b"g", RenameHow::Replace).await.unwrap();
        let moved = ["entry lab f", "entry lab g", "attributes f"].map(|w| format!("{w} by {ours}"));
        assert_eq!(heard(&mut watch, &names), moved);
        e.vfs.remove(ctx, lab, b"g").await.unwrap();
        let removed = ["entry lab g", "attributes f"].map(|w| format!("{w} by {ours}"));
        assert_eq!(heard(&mut watch, &names), removed);
        e.sync().await;
        e.names(lab).await;
        assert_eq!(heard(&mut watch, &names), [""; 0], "writing home changes nothing that anybody sees");
    }
}

#[tokio::test]
async fn watchers_hear_of_what_is_found_changed_at_the_home() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::from_millis(50);
    world.write("f", b"one");
    world.write("gone", b"");
    world.write("same", b"");
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    let names =
        [("lab", lab), ("f", e.find("/lab/f").await.unwrap()), ("gone", e.find("/lab/gone").await.unwrap())];
    assert_eq!(e.find("/lab/new").await.unwrap_err().kind, ErrorKind::NotFound);
    let mut watch = e.vfs.watch();
    tokio::time::sleep(Duration::from_millis(60)).await;
    e.names(lab).await;
    assert_eq!(heard(&mut watch, &names), [""; 0], "nothing changed");
    world.write("f", b"two!");
    world.write("new", b"");
    world.remove("gone");
    tokio::time::sleep(Duration::from_millis(60)).await;
    e.names(lab).await;
    let mut all = heard(&mut watch, &names);
    all.sort();
    let expected = [
        "attributes gone by 0",
        "attributes lab by 0",
        "content f by 0",
        "entry lab gone by 0",
        "entry lab new by 0",
    ];
    assert_eq!(all, expected);
}

#[tokio::test]
async fn watchers_hear_of_a_change_that_was_refused() {
    let world = World::new(Mode::Strict);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    world.memory.set_space(1);
    let mut watch = e.vfs.watch();
    let ctx = Ctx { origin: e.vfs.new_session(), ..e.ctx() };
    e.vfs.write(ctx, f, 0, "too long".into(), Stability::Unstable).await.unwrap();
    assert_eq!(heard(&mut watch, &[("f", f)]), ["content f by 1"]);
    assert_eq!(e.vfs.commit(ctx, f).await.unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(heard(&mut watch, &[("f", f)]), ["content f by 0"]);
}

const READ: OpenMode = OpenMode { read: true, write: false, exec: false };
const BOTH: OpenMode = OpenMode { read: true, write: true, exec: false };

#[tokio::test]
async fn a_new_file_is_open_before_anybody_can_take_it_away() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    e.sync().await;
    world.disk.slow_syncs(Duration::from_secs(1));
    let (vfs, cred) = (e.vfs.clone(), e.cred.clone());
    let making = tokio::spawn(async move {
        let set = SetAttrs::default();
        vfs.create_open(Ctx::of(&cred), lab, b"f", CreateHow::Guarded, set, BOTH).await
    });
    // The name is there; that it is durable, the maker waits for.
    while e.names(lab).await != ["f"] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!making.is_finished());
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    let (made, open) = making.await.unwrap().unwrap();
    let with = Ctx { open: Some(&open), ..e.ctx() };
    e.vfs.write(with, made.oid, 0, "1234".into(), Stability::Unstable).await.unwrap();
    assert_eq!(e.vfs.read(with, made.oid, 0, 9).await.unwrap().data.concat(), b"1234");
}

#[tokio::test]
async fn permission_is_asked_at_the_open() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let set = SetAttrs { mode: Some(0o444), ..SetAttrs::default() };
    let made = e.vfs.create_open(e.ctx(), lab, b"f", CreateHow::Guarded, set, BOTH).await;
    let (made, open) = made.unwrap();
    assert_eq!(open.oid(), made.oid);
    assert_eq!(e.vfs.open_file(e.ctx(), made.oid, BOTH).await.unwrap_err().kind, ErrorKind::Access);
    let again = e.vfs.create_open(e.ctx(), lab, b"f", CreateHow::Unchecked, SetAttrs::default(), BOTH).await;
    assert_eq!(again.unwrap_err().kind, ErrorKind::Access);
    let reader = e.vfs.open_file(e.ctx(), made.oid, READ).await.unwrap();
    let exec = OpenMode { exec: true, ..OpenMode::default() };
    assert_eq!(e.vfs.open_file(e.ctx(), made.oid, exec).await.unwrap_err().kind, ErrorKind::Access);
    assert_eq!(e.vfs.open_file(e.ctx(), lab, BOTH).await.unwrap_err().kind, ErrorKind::IsDir);

    // A stranger has what an open that is handed to him has, and nothing without it.
    let stranger = Cred { uid: 1, gid: 1, groups: vec![] };
    let with = |open| Ctx { open, ..Ctx::of(&stranger) };
    let write = |open| e.vfs.write(with(open), made.oid, 0, "1234".into(), Stability::Stable);
    assert_eq!(write(None).await.unwrap_err().kind, ErrorKind::Access);
    assert_eq!(write(Some(&reader)).await.unwrap_err().kind, ErrorKind::Access);
    write(Some(&open)).await.unwrap();
    let cut = SetAttrs { size: Some(2), ..SetAttrs::default() };
    e.vfs.setattr(with(Some(&open)), made.oid, cut, None).await.unwrap();
    assert_eq!(e.vfs.read(with(None), made.oid, 0, 9).await.unwrap_err().kind, ErrorKind::Access);
    assert_eq!(e.vfs.read(with(Some(&reader)), made.oid, 0, 9).await.unwrap().data.concat(), b"12");
    let other = e.create(lab, "other").await.unwrap();
    assert_eq!(e.vfs.read(with(Some(&open)), other, 0, 9).await.unwrap_err().kind, ErrorKind::Access);
    let chmod = SetAttrs { mode: Some(0o777), ..SetAttrs::default() };
    let refused = e.vfs.setattr(with(Some(&open)), made.oid, chmod, None).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Perm);
}

/// The one hidden name that a folder of the home has.
async fn hidden_name(world: &World, dir: &str) -> String {
    let names = world.names_at_home(dir).await;
    let mut hidden = names.iter().filter(|n| n.starts_with(".trellis-open-"));
    let name = hidden.next().expect("a hidden name").clone();
    assert_eq!(hidden.next(), None);
    name
}

/// Waits until a folder of the home has these names.
async fn home_has(e: &Engine, world: &World, dir: &str, names: &[&str]) {
    let started = std::time::Instant::now();
    loop {
        e.sync().await;
        let found = world.names_at_home(dir).await;
        if found == names {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{dir}: {found:?} for {names:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_removed_file_that_is_open_goes_on_until_the_last_close() {
    for mode in [Mode::Wb, Mode::Strict] {
        let world = World::new(mode);
        let big: Vec<u8> = (0..3 << 20).map(|i| (i / 1000) as u8).collect();
        world.write("f", &big);
        let e = world.start().await;
        let lab = e.lab().await;
        let f = e.find("/lab/f").await.unwrap();
        let first = e.vfs.open_file(e.ctx(), f, BOTH).await.unwrap();
        let second = e.vfs.open_file(e.ctx(), f, READ).await.unwrap();
        let mut watch = e.vfs.watch();
        e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
        assert_eq!(heard(&mut watch, &[("lab", lab), ("f", f)]), ["entry lab f by 0", "attributes f by 0"]);
        assert_eq!(e.names(lab).await, [""; 0]);
        assert_eq!(e.find("/lab/f").await.unwrap_err().kind, ErrorKind::NotFound);
        assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().nlink, 0);
        e.sync().await;
        let hidden = hidden_name(&world, "").await;
        assert_eq!(
            e.vfs.lookup(e.ctx(), lab, hidden.as_bytes()).await.unwrap_err().kind,
            ErrorKind::NotFound
        );
        assert_eq!(e.create(lab, &hidden).await.unwrap_err().kind, ErrorKind::Access);
        assert_eq!(e.vfs.link(e.ctx(), f, lab, b"back").await.unwrap_err().kind, ErrorKind::NotFound);
        assert_eq!(e.read(f).await.unwrap(), big, "what was not cached is still at the home");
        e.write(f, 0, b"new").await.unwrap();
        let cut = SetAttrs { size: Some(5), ..SetAttrs::default() };
        e.vfs.setattr(e.ctx(), f, cut, None).await.unwrap();
        let again = e.create(lab, "f").await.unwrap();
        assert_ne!(again, f);
        e.vfs.close_file(first);
        assert_eq!(e.read(f).await.unwrap(), [b"new", &big[3..5]].concat());
        assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().nlink, 0);
        e.vfs.close_file(second);
        home_has(&e, &world, "", &["f"]).await;
        assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap_err().kind, ErrorKind::Stale);
        assert_eq!(e.names(lab).await, ["f"]);
        assert!(e.vfs.status().volumes[0].parked.is_empty());
    }
}

#[tokio::test]
async fn a_replaced_file_that_is_open_goes_on_until_the_last_close() {
    for mode in [Mode::Wb, Mode::Strict] {
        let world = World::new(mode);
        world.write("f", b"old content");
        let e = world.start().await;
        let lab = e.lab().await;
        let old = e.find("/lab/f").await.unwrap();
        let open = e.vfs.open_file(e.ctx(), old, READ).await.unwrap();
        let new = e.create(lab, "f.new").await.unwrap();
        e.write(new, 0, b"new").await.unwrap();
        e.vfs.rename(e.ctx(), lab, b"f.new", lab, b"f", RenameHow::Replace).await.unwrap();
        assert_eq!(e.find("/lab/f").await.unwrap(), new);
        assert_eq!(e.read(old).await.unwrap(), b"old content");
        assert_eq!(e.vfs.getattr(e.ctx(), old).await.unwrap().nlink, 0);
        assert_eq!(e.vfs.getattr(e.ctx(), new).await.unwrap().nlink, 1);
        e.sync().await;
        assert_eq!(world.at_home("f").await.unwrap(), b"new");
        let hidden = hidden_name(&world, "").await;
        assert_eq!(world.at_home(&hidden).await.unwrap(), b"old content");
        drop(open);
        home_has(&e, &world, "", &["f"]).await;
        assert_eq!(e.vfs.status().volumes[0].conflicts, 0);
    }
}

#[tokio::test]
async fn an_object_with_another_name_needs_no_hidden_one() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "a").await.unwrap();
    e.vfs.link(e.ctx(), f, lab, b"b").await.unwrap();
    let open = e.vfs.open_file(e.ctx(), f, READ).await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"a").await.unwrap();
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["b"]);
    assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().nlink, 1);
    e.vfs.remove(e.ctx(), lab, b"b").await.unwrap();
    assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().nlink, 0);
    drop(open);
    home_has(&e, &world, "", &[]).await;
}

#[tokio::test]
async fn a_folder_goes_although_removed_files_in_it_are_open() {
    for mode in [Mode::Wb, Mode::Strict] {
        let world = World::new(mode);
        for dir in ["top", "top/a", "top/a/b", "target"] {
            world.mkdir(dir);
        }
        world.write("top/a/b/f", b"content");
        world.write("target/g", b"");
        let e = world.start().await;
        let lab = e.lab().await;
        let top = e.find("/lab/top").await.unwrap();
        let a = e.find("/lab/top/a").await.unwrap();
        let b = e.find("/lab/top/a/b").await.unwrap();
        let f = e.find("/lab/top/a/b/f").await.unwrap();
        let target = e.find("/lab/target").await.unwrap();
        let g = e.find("/lab/target/g").await.unwrap();
        let opens = (e.vfs.open_file(e.ctx(), f, READ).await, e.vfs.open_file(e.ctx(), g, READ).await);
        e.vfs.remove(e.ctx(), b, b"f").await.unwrap();
        e.vfs.rmdir(e.ctx(), a, b"b").await.unwrap();
        e.vfs.rmdir(e.ctx(), top, b"a").await.unwrap();
        e.vfs.remove(e.ctx(), target, b"g").await.unwrap();
        e.vfs.rename(e.ctx(), lab, b"top", lab, b"target", RenameHow::Replace).await.unwrap();
        e.sync().await;
        assert_eq!(e.read(f).await.unwrap(), b"content");
        assert_eq!(e.names(lab).await, ["target"]);
        drop(opens);
        home_has(&e, &world, "", &["target"]).await;
        home_has(&e, &world, "target", &[]).await;
        assert!(e.vfs.status().volumes[0].parked.is_empty());
    }
}

#[tokio::test]
async fn a_folder_that_may_not_go_keeps_what_is_hidden_in_it() {
    let world = World::new(Mode::Wb);
    for dir in ["p", "p/d", "new"] {
        world.mkdir(dir);
    }
    world.write("p/d/f", b"content");
    let e = world.start().await;
    let lab = e.lab().await;
    let (p, d) = (e.find("/lab/p").await.unwrap(), e.find("/lab/p/d").await.unwrap());
    let f = e.find("/lab/p/d/f").await.unwrap();
    let open = e.vfs.open_file(e.ctx(), f, READ).await.unwrap();
    e.vfs.remove(e.ctx(), d, b"f").await.unwrap();
    let closed = SetAttrs { mode: Some(0o500), ..SetAttrs::default() };
    e.vfs.setattr(e.ctx(), p, closed, None).await.unwrap();
    e.sync().await;
    let refused = e.vfs.rmdir(e.ctx(), p, b"d").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Access);
    let refused = e.vfs.rename(e.ctx(), lab, b"new", p, b"d", RenameHow::Replace).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Access);
    e.sync().await;
    hidden_name(&world, "p/d").await;
    drop(open);
    home_has(&e, &world, "p/d", &[]).await;
}

#[tokio::test]
async fn a_directory_that_may_not_be_written_to_keeps_its_parent() {
    let world = World::new(Mode::Wb);
    ["p", "q"].into_iter().for_each(|dir| world.mkdir(dir));
    let e = world.start().await;
    let lab = e.lab().await;
    let (p, q) = (e.find("/lab/p").await.unwrap(), e.find("/lab/q").await.unwrap());
    let closed = SetAttrs { mode: Some(0o555), ..SetAttrs::default() };
    e.vfs.setattr(e.ctx(), p, closed, None).await.unwrap();
    let refused = e.vfs.rename(e.ctx(), lab, b"p", q, b"p", RenameHow::Replace).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Access);
    e.vfs.rename(e.ctx(), lab, b"p", lab, b"other", RenameHow::Replace).await.unwrap();
    e.sync().await;
    assert_eq!(world.names_at_home("").await, ["other", "q"]);
}

#[tokio::test]
async fn what_a_crash_leaves_behind_of_open_files_is_removed_after_the_next_start() {
    for sent in [true, false] {
        let world = World::new(Mode::Wb);
        world.write("f", b"1");
        world.write("g", b"2");
        let e = world.start().await;
        let lab = e.lab().await;
        let f = e.find("/lab/f").await.unwrap();
        let g = e.find("/lab/g").await.unwrap();
        let opens = (e.vfs.open_file(e.ctx(), f, BOTH).await, e.vfs.open_file(e.ctx(), g, READ).await);
        if !sent {
            world.fault(Fault::Unreachable);
        }
        e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
        e.create(lab, "g.new").await.unwrap();
        e.vfs.rename(e.ctx(), lab, b"g.new", lab, b"g", RenameHow::Replace).await.unwrap();
        e.write(f, 0, b"unsent").await.unwrap();
        if sent {
            e.sync().await;
            // Long enough that the store has it and the journal has not.
            tokio::time::sleep(Duration::from_secs(6)).await;
        }
        world.disk.kill();
        drop((opens, e));
        world.fault(Fault::None);
        let e = world.start().await;
        let lab = e.lab().await;
        assert_eq!(e.names(lab).await, ["g"]);
        home_has(&e, &world, "", &["g"]).await;
        assert_eq!(world.at_home("g").await.unwrap(), b"");
        assert!(e.vfs.status().volumes[0].parked.is_empty());
    }
}

#[tokio::test]
async fn content_that_nobody_saw_comes_back_when_an_open_file_is_removed() {
    let world = World::new(Mode::Wb);
    world.write("f", b"seen");
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.find("/lab/f").await.unwrap();
    let open = e.vfs.open_file(e.ctx(), f, READ).await.unwrap();
    e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
    e.sync().await;
    let hidden = hidden_name(&world, "").await;
    world.fault(Fault::Unreachable);
    world.write(&hidden, b"not seen");
    drop(open);
    world.fault(Fault::None);
    let started = std::time::Instant::now();
    while e.names(lab).await.is_empty() {
        assert!(started.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    e.sync().await;
    let names = world.names_at_home("").await;
    assert_eq!(names, e.names(lab).await);
    assert_eq!(world.at_home(&names[0]).await.unwrap(), b"not seen");
}

#[tokio::test]
async fn without_hard_links_a_replaced_open_file_is_stale_and_nothing_is_stuck() {
    for mode in [Mode::Wb, Mode::Strict] {
        let world = World::new(mode);
        world.write("f", b"old content");
        let e = world.start().await;
        let lab = e.lab().await;
        let old = e.find("/lab/f").await.unwrap();
        let open = e.vfs.open_file(e.ctx(), old, BOTH).await.unwrap();
        let new = e.create(lab, "f.new").await.unwrap();
        e.write(new, 0, b"new").await.unwrap();
        world.fault(Fault::NoLinks);
        e.vfs.rename(e.ctx(), lab, b"f.new", lab, b"f", RenameHow::Replace).await.unwrap();
        if mode == Mode::Wb {
            // Taken while it was not known yet that the content cannot be kept.
            e.write(old, 0, b"dropped").await.unwrap();
        }
        home_has(&e, &world, "", &["f"]).await;
        assert_eq!(world.at_home("f").await.unwrap(), b"new");
        assert_eq!(e.read(e.find("/lab/f").await.unwrap()).await.unwrap(), b"new");
        assert_eq!(e.read(old).await.unwrap_err().kind, ErrorKind::Stale);
        drop(open);
        // A removed one is moved, which needs no link.
        let open = e.vfs.open_file(e.ctx(), new, BOTH).await.unwrap();
        e.vfs.remove(e.ctx(), lab, b"f").await.unwrap();
        e.sync().await;
        assert_eq!(e.read(new).await.unwrap(), b"new");
        drop(open);
        home_has(&e, &world, "", &[]).await;
        assert!(e.vfs.status().volumes[0].parked.is_empty());
    }
}

#[tokio::test]
async fn open_files_that_the_home_has_never_seen_lose_their_names() {
    for mode in [Mode::Wb, Mode::Strict] {
        let world = World::new(mode);
        let e = world.start().await;
        let lab = e.lab().await;
        let mut opens = Vec::new();
        for name in ["removed", "replaced", "other"] {
            let how = CreateHow::Guarded;
            let made = e.vfs.create_open(e.ctx(), lab, name.as_bytes(), how, SetAttrs::default(), BOTH).await;
            let (made, open) = made.unwrap();
            e.write(made.oid, 0, name.as_bytes()).await.unwrap();
            opens.push((made.oid, open));
        }
        e.vfs.remove(e.ctx(), lab, b"removed").await.unwrap();
        e.vfs.rename(e.ctx(), lab, b"other", lab, b"replaced", RenameHow::Replace).await.unwrap();
        for (round, (oid, _)) in opens.iter().enumerate() {
            let end = [&b"removed"[..], b"replaced", b"other"][round].len() as u64;
            e.write(*oid, end, b"+more").await.unwrap();
        }
        assert_eq!(e.names(lab).await, ["replaced"]);
        e.sync().await;
        assert_eq!(world.names_at_home("").await.len(), 3);
        let nlinks = [0, 0, 1];
        for ((oid, _), (content, nlink)) in
            opens.iter().zip(["removed+more", "replaced+more", "other+more"].into_iter().zip(nlinks))
        {
            assert_eq!(e.read(*oid).await.unwrap(), content.as_bytes());
            assert_eq!(e.vfs.getattr(e.ctx(), *oid).await.unwrap().nlink, nlink);
        }
        drop(opens);
        home_has(&e, &world, "", &["replaced"]).await;
        assert_eq!(world.at_home("replaced").await.unwrap(), b"other+more");
        let status = &e.vfs.status().volumes[0];
        assert!(status.parked.is_empty() && status.conflicts == 0);
    }
}

/// What the random walk below believes of one object.
struct Object {
    oid: Oid,
    content: Vec<u8>,
    names: usize,
    opens: Vec<OpenFile>,
}

/// Random changes of names by which open files lose theirs, in two folders.
struct Walk {
    e: Engine,
    dirs: [Oid; 2],
    objects: Vec<Object>,
    names: BTreeMap<(usize, String), usize>,
}

impl Walk {
    fn unname(&mut self, at: &(usize, String)) {
        if let Some(old) = self.names.remove(at) {
            self.objects[old].names -= 1;
        }
    }

    async fn step(&mut self, rng: &mut impl rand::Rng) {
        let (vfs, ctx) = (self.e.vfs.clone(), Ctx::of(&self.e.cred));
        let place =
            |rng: &mut dyn rand::RngCore| ((rng.next_u32() % 2) as usize, format!("f{}", rng.next_u32() % 4));
        let (at, to) = (place(rng), place(rng));
        let (dir, name) = (self.dirs[at.0], at.1.as_bytes());
        let known = self.names.get(&at).copied();
        match rng.random_range(0..12) {
            0..3 => {
                let how = CreateHow::Unchecked;
                let made = vfs.create_open(ctx, dir, name, how, SetAttrs::default(), BOTH).await;
                let (made, open) = made.unwrap();
                let id = known.unwrap_or(self.objects.len());
                if known.is_none() {
                    self.objects.push(Object { oid: made.oid, content: vec![], names: 1, opens: vec![] });
                    self.names.insert(at, id);
                }
                assert_eq!(self.objects[id].oid, made.oid);
                self.objects[id].opens.push(open);
            }
            3..5 if known.is_some() => {
                vfs.remove(ctx, dir, name).await.unwrap();
                self.unname(&at);
            }
            5..7 if known.is_some() && at != to => {
                let (to_dir, to_name) = (self.dirs[to.0], to.1.as_bytes());
                let same = self.names.get(&to) == known.as_ref();
                vfs.rename(ctx, dir, name, to_dir, to_name, RenameHow::Replace).await.unwrap();
                if !same {
                    self.unname(&to);
                    let id = self.names.remove(&at).unwrap();
                    self.names.insert(to, id);
                }
            }
            7 if known.is_some() && !self.names.contains_key(&to) => {
                let id = known.unwrap();
                vfs.link(ctx, self.objects[id].oid, self.dirs[to.0], to.1.as_bytes()).await.unwrap();
                self.objects[id].names += 1;
                self.names.insert(to, id);
            }
            _ => {
                let used: Vec<usize> =
                    (0..self.objects.len()).filter(|i| !self.objects[*i].opens.is_empty()).collect();
                let Some(id) = used.get(rng.random_range(0..used.len().max(1))).copied() else { return };
                let object = &mut self.objects[id];
                if rng.random_bool(0.4) {
                    object.opens.pop();
                    return;
                }
                let ctx = Ctx { open: object.opens.last(), ..ctx };
                let added = format!("<{}>", rng.random_range(0..1000));
                let done =
                    vfs.append(ctx, object.oid, added.clone().into(), Stability::Stable).await.unwrap();
                assert_eq!(done.at as usize, object.content.len());
                object.content.extend_from_slice(added.as_bytes());
            }
        }
    }

    async fn check(&self) {
        for dir in 0..2 {
            let expected: Vec<&String> = self.names.keys().filter(|k| k.0 == dir).map(|k| &k.1).collect();
            assert_eq!(self.e.names(self.dirs[dir]).await.iter().collect::<Vec<_>>(), expected);
        }
        for object in self.objects.iter().filter(|o| o.names > 0 || !o.opens.is_empty()) {
            assert_eq!(self.e.read(object.oid).await.unwrap(), object.content);
            let attr = self.e.vfs.getattr(self.e.ctx(), object.oid).await.unwrap();
            assert_eq!(attr.nlink as usize, object.names, "{:?}", object.oid);
        }
    }
}

#[tokio::test]
async fn open_files_keep_their_content_whatever_becomes_of_their_names() {
    use rand::{Rng, SeedableRng};
    for seed in 0..12u64 {
        let mode = if seed % 3 == 2 { Mode::Strict } else { Mode::Wb };
        let world = World::new(mode);
        world.mkdir("one");
        world.mkdir("two");
        let e = world.start().await;
        let dirs = [e.find("/lab/one").await.unwrap(), e.find("/lab/two").await.unwrap()];
        let mut walk = Walk { e, dirs, objects: vec![], names: BTreeMap::new() };
        let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
        for round in 0..60 {
            walk.step(&mut rng).await;
            if round % 10 == 9 {
                if rng.random_bool(0.5) {
                    walk.e.sync().await;
                }
                walk.check().await;
            }
            if round == 34 && seed % 3 == 1 {
                // A killed process has nothing open any more.
                let Walk { e, dirs, mut objects, names } = walk;
                world.disk.kill();
                drop(e);
                objects.iter_mut().for_each(|o| o.opens.clear());
                walk = Walk { e: world.start().await, dirs, objects, names };
            }
        }
        walk.objects.iter_mut().for_each(|o| o.opens.clear());
        for (dir, folder) in ["one", "two"].into_iter().enumerate() {
            let names: Vec<&str> = walk.names.keys().filter(|k| k.0 == dir).map(|k| &k.1[..]).collect();
            home_has(&walk.e, &world, folder, &names).await;
        }
        for ((dir, name), id) in &walk.names {
            let path = format!("{}/{name}", ["one", "two"][*dir]);
            assert_eq!(world.at_home(&path).await.unwrap(), walk.objects[*id].content, "seed {seed}: {path}");
        }
        let status = &walk.e.vfs.status().volumes[0];
        assert!(status.parked.is_empty() && status.conflicts == 0, "seed {seed}: {status:?}");
    }
}

/// Programs that take turns by a name are told whether it is there, never that it is stale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_comes_and_goes_is_there_or_not() {
    let world = World::new(Mode::Wb);
    let e = std::sync::Arc::new(world.start().await);
    let lab = e.lab().await;
    let taker = tokio::spawn({
        let e = e.clone();
        async move {
            for _ in 0..3000 {
                e.vfs.mkdir(e.ctx(), lab, b"lock", vfs::SetAttrs::default()).await.unwrap();
                e.vfs.rmdir(e.ctx(), lab, b"lock").await.unwrap();
            }
        }
    });
    let (mut there, mut not) = (0, 0);
    while !taker.is_finished() {
        match e.vfs.lookup(e.ctx(), lab, b"lock").await {
            Ok(_) => there += 1,
            Err(e) if e.kind == ErrorKind::NotFound => not += 1,
            Err(e) => panic!("{e}"),
        }
    }
    taker.await.unwrap();
    assert!(there > 100 && not > 100, "{there} times there, {not} times not");
}
