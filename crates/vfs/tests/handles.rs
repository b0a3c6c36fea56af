//! What a front-end with open files needs of the engine: appends, opens, locks, the stream of changes.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::World;
use home::ErrorKind;
use std::collections::BTreeMap;
use std::time::Duration;
use vfs::{CreateHow, Cred, Ctx, Event, Mode, Oid, OpenMode, RenameHow, SetAttrs, Stability, Watch};

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
