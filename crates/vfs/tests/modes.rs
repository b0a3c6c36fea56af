//! What each mode promises, apart from `wb` and `strict`.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use bytes::Bytes;
use common::{Engine, Skipping, World};
use home::testing::fault::Fault;
use home::{ErrorKind, HomePath, Kind};
use std::time::Duration;
use vfs::{
    AccessMask, CreateHow, Ctx, Lock, LockFamily, LockKind, LockOwner, LockRange, Mode, Oid, OpenMode,
    RenameHow, SetAttrs, Stability, XattrHow,
};

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(8), work).await.expect("no answer in time")
}

fn below(modes: &[(&str, Mode)]) -> Vec<(HomePath, Mode)> {
    modes.iter().map(|(path, mode)| (HomePath::parse(path.as_bytes()).unwrap(), *mode)).collect()
}

fn set(set: impl FnOnce(&mut SetAttrs)) -> SetAttrs {
    let mut attrs = SetAttrs::default();
    set(&mut attrs);
    attrs
}

/// Every kind of change of a file `f` and a folder `d` in `dir`, and what is said to it.
async fn changes(e: &Engine, dir: Oid, f: Oid) -> Vec<Option<ErrorKind>> {
    let (ctx, none) = (e.ctx(), SetAttrs::default());
    let kind = |failed: Option<vfs::Error>| failed.map(|e| e.kind);
    let write = OpenMode { write: true, ..OpenMode::default() };
    let both = OpenMode { read: true, ..write };
    let bytes = Bytes::from_static(b"x");
    let new = CreateHow::Unchecked;
    let empty = set(|s| s.size = Some(0));
    vec![
        kind(e.vfs.create(ctx, dir, b"new", new, none).await.err()),
        kind(e.vfs.create(ctx, dir, b"f", new, empty).await.err()),
        kind(e.vfs.create_open(ctx, dir, b"f", new, none, both).await.err()),
        kind(e.vfs.mkdir(ctx, dir, b"new", none).await.err()),
        kind(e.vfs.symlink(ctx, dir, b"new", Bytes::from_static(b"to"), none).await.err()),
        kind(e.vfs.mknod(ctx, dir, b"new", Kind::Fifo, none).await.err()),
        kind(e.vfs.remove(ctx, dir, b"f").await.err()),
        kind(e.vfs.rmdir(ctx, dir, b"d").await.err()),
        kind(e.vfs.rename(ctx, dir, b"f", dir, b"g", RenameHow::Replace).await.err()),
        kind(e.vfs.link(ctx, f, dir, b"g").await.err()),
        kind(e.vfs.open_file(ctx, f, write).await.err()),
        kind(e.vfs.setattr(ctx, f, empty, None).await.err()),
        kind(e.vfs.setattr(ctx, f, set(|s| s.mode = Some(0o600)), None).await.err()),
        kind(e.vfs.write(ctx, f, 0, bytes.clone(), Stability::Unstable).await.err()),
        kind(e.vfs.append(ctx, f, bytes.clone(), Stability::Stable).await.err()),
        kind(e.vfs.setxattr(ctx, f, b"user.x", bytes, XattrHow::Any).await.err()),
        kind(e.vfs.removexattr(ctx, f, b"user.x").await.err()),
    ]
}

#[tokio::test]
async fn ro_refuses_every_change_at_once_and_reads_like_wb() {
    let mut world = World::new(Mode::Ro);
    world.staleness = Duration::from_millis(300);
    world.write("f", b"there");
    world.mkdir("d");
    world.write("d/in", b"it is not empty");
    let e = world.start().await;
    let (lab, f) = (e.lab().await, e.find("/lab/f").await.unwrap());
    assert_eq!(e.read(f).await.unwrap(), b"there");
    let calls = world.fault.calls();
    world.fault(Fault::Unreachable);
    let answers = soon(changes(&e, lab, f)).await;
    assert_eq!(answers, vec![Some(ErrorKind::ReadOnly); answers.len()]);
    assert_eq!(world.fault.calls(), calls, "the home was asked");
    world.fault(Fault::None);
    let all =
        AccessMask { read: true, lookup: true, modify: true, extend: true, delete: true, execute: true };
    let (granted, _) = e.vfs.access(e.ctx(), lab, all).await.unwrap();
    assert!(granted.read && granted.lookup && !granted.modify && !granted.extend && !granted.delete);
    let lock = Lock {
        family: LockFamily::Posix,
        kind: LockKind::Exclusive,
        range: LockRange::ALL,
        who: LockOwner { holder: 1, owner: 1 },
        pid: 1,
    };
    e.vfs.lock(f, lock).unwrap();
    e.vfs.commit(e.ctx(), f).await.unwrap();
    world.write("f", b"new there");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(e.read(f).await.unwrap(), b"new there");
    assert_eq!(e.vfs.status().volumes[0].unsent_ops, 0);
}

#[tokio::test]
async fn a_folder_that_is_ro_stays_as_it_is_and_where_it_is() {
    let mut world = World::new(Mode::Wb);
    world.modes = below(&[("a/ref", Mode::Ro), ("a/ref/in", Mode::Wb), ("a/none", Mode::Ro)]);
    world.mkdir("a");
    world.mkdir("a/ref");
    world.mkdir("a/ref/d");
    world.mkdir("a/ref/in");
    world.write("a/ref/f", b"there");
    world.write("g", b"mine");
    let e = world.start().await;
    let (lab, a) = (e.lab().await, e.find("/lab/a").await.unwrap());
    let (dir, f) = (e.find("/lab/a/ref").await.unwrap(), e.find("/lab/a/ref/f").await.unwrap());
    let answers = soon(changes(&e, dir, f)).await;
    assert_eq!(answers, vec![Some(ErrorKind::ReadOnly); answers.len()]);
    let moved = async |from: Oid, name: &[u8], to: Oid, new: &[u8]| {
        let moved = e.vfs.rename(e.ctx(), from, name, to, new, RenameHow::Replace).await;
        moved.map(drop).map_err(|e| e.kind)
    };
    let no = Err(ErrorKind::ReadOnly);
    assert_eq!(moved(lab, b"a", lab, b"b").await, no, "the way to it");
    assert_eq!(moved(a, b"ref", a, b"b").await, no);
    let kept =
        async |dir: Oid, name: &[u8]| e.vfs.rmdir(e.ctx(), dir, name).await.map(drop).map_err(|e| e.kind);
    assert_eq!((kept(a, b"ref").await, kept(lab, b"a").await), (no, no), "not because they are not empty");
    e.vfs.mkdir(e.ctx(), lab, b"empty", SetAttrs::default()).await.unwrap();
    assert_eq!(moved(lab, b"empty", a, b"ref").await, no);
    assert_eq!(moved(dir, b"f", lab, b"f").await, no, "out of it");
    assert_eq!(moved(lab, b"g", dir, b"g").await, no, "into it");
    assert_eq!(e.vfs.link(e.ctx(), f, lab, b"f").await.unwrap_err().kind, ErrorKind::ReadOnly);
    let made = e.vfs.mkdir(e.ctx(), a, b"none", SetAttrs::default()).await;
    assert_eq!(made.unwrap_err().kind, ErrorKind::ReadOnly, "nothing is made that must not change");
    let inside = e.find("/lab/a/ref/in").await.unwrap();
    assert_eq!(moved(lab, b"g", inside, b"g").await, Ok(()), "a folder in it may be changed again");
    e.create(a, "beside").await.unwrap();
    e.sync().await;
    assert_eq!(world.at_home("a/ref/in/g").await.unwrap(), b"mine");
    assert_eq!(world.names_at_home("a/ref").await, ["d", "f", "in"]);
}

#[tokio::test]
async fn a_hard_link_in_a_folder_that_is_ro_protects_the_file() {
    let mut world = World::new(Mode::Wb);
    world.mkdir("ref");
    world.write("f", b"there");
    let e = world.start().await;
    let (lab, dir, f) = (e.lab().await, e.find("/lab/ref").await.unwrap(), e.find("/lab/f").await.unwrap());
    e.vfs.link(e.ctx(), f, dir, b"g").await.unwrap();
    e.write(f, 0, b"T").await.unwrap();
    e.sync().await;
    drop(e);
    world.modes = below(&[("ref", Mode::Ro)]);
    let e = world.start().await;
    assert_eq!((e.vfs.mode_of(lab), e.vfs.mode_of(f)), (Mode::Wb, Mode::Ro));
    assert_eq!(e.find("/lab/f").await.unwrap(), f);
    assert_eq!(e.write(f, 0, b"x").await.unwrap_err().kind, ErrorKind::ReadOnly);
}

/// A call that has no answer yet: it is given up after a while.
async fn unanswered<T>(call: impl Future<Output = T>) {
    let answer = tokio::time::timeout(Duration::from_millis(300), call).await;
    assert!(answer.is_err(), "answered before the home had it");
}

async fn unstable(e: &Engine, f: Oid, data: &'static [u8]) {
    e.vfs.write(e.ctx(), f, 0, Bytes::from_static(data), Stability::Unstable).await.unwrap();
}

#[tokio::test]
async fn in_cto_a_commit_waits_until_all_before_it_is_at_home() {
    let world = World::new(Mode::Cto);
    let e = world.start().await;
    let lab = e.lab().await;
    let (f, g) = (e.create(lab, "f").await.unwrap(), e.create(lab, "g").await.unwrap());
    world.fault(Fault::HangChanges);
    soon(unstable(&e, f, b"earlier, of another file")).await;
    soon(unstable(&e, g, b"committed")).await;
    soon(e.vfs.mkdir(e.ctx(), lab, b"d", SetAttrs::default())).await.unwrap();
    unanswered(e.vfs.commit(e.ctx(), g)).await;
    unanswered(e.vfs.commit_dir(e.ctx(), lab)).await;
    unanswered(e.write(g, 9, b" at once")).await;
    world.fault(Fault::None);
    soon(e.vfs.commit(e.ctx(), g)).await.unwrap();
    assert_eq!(world.at_home("f").await.unwrap(), b"earlier, of another file");
    assert_eq!(world.at_home("g").await.unwrap(), b"committed at once");
    assert_eq!(world.names_at_home("").await, ["d", "f", "g"]);
    soon(e.write(f, 0, b"E")).await.unwrap();
    assert_eq!(world.at_home("f").await.unwrap(), b"Earlier, of another file", "a stable write is a commit");
}

#[tokio::test]
async fn in_cto_changes_of_names_do_not_wait_for_the_home_but_go_at_once() {
    let mut world = World::new(Mode::Cto);
    world.modes = below(&[("slow", Mode::Wb)]);
    world.mkdir("slow");
    let e = world.start().await;
    let (lab, slow) = (e.lab().await, e.find("/lab/slow").await.unwrap());
    e.names(lab).await;
    e.names(slow).await;
    let begun = std::time::Instant::now();
    e.create(slow, "later").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(world.at_home("slow/later").await.is_none(), "mode wb waits for company");
    e.create(lab, "now").await.unwrap();
    while world.at_home("now").await.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(begun.elapsed() < Duration::from_millis(450), "as late as in mode wb");
    }
    assert!(world.at_home("slow/later").await.is_some(), "in the order of the volume");
    world.fault(Fault::Unreachable);
    soon(e.create(lab, "unsent")).await.unwrap();
}

#[tokio::test]
async fn in_cto_a_commit_tells_why_the_home_refuses_until_that_is_settled() {
    let world = World::new(Mode::Cto);
    let e = world.start().await;
    let lab = e.lab().await;
    let (f, g) = (e.create(lab, "f").await.unwrap(), e.create(lab, "g").await.unwrap());
    soon(e.sync()).await;
    world.fault(Fault::Refuse(ErrorKind::NoSpace));
    unstable(&e, f, b"kept").await;
    let refused = async |file| soon(e.vfs.commit(e.ctx(), file)).await.map(drop).map_err(|e| e.kind);
    assert_eq!(refused(f).await, Err(ErrorKind::NoSpace));
    world.fault(Fault::None);
    assert_eq!(refused(g).await, Err(ErrorKind::NoSpace), "what was accepted before it is not at home");
    assert_eq!(e.read(f).await.unwrap(), b"kept");
    assert_eq!(e.vfs.retry_refused(None), 1);
    assert_eq!(refused(g).await, Ok(()));
    assert_eq!(world.at_home("f").await.unwrap(), b"kept");
}

#[tokio::test]
async fn in_cto_a_commit_fails_when_the_home_stays_away_and_keeps_what_it_has() {
    let mut world = World::new(Mode::Cto);
    let clock = Skipping::of(&mut world);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "f").await.unwrap();
    soon(e.sync()).await;
    world.fault(Fault::Unreachable);
    unstable(&e, f, b"late").await;
    unanswered(e.vfs.commit(e.ctx(), f)).await;
    clock.skip(100);
    assert_eq!(soon(e.vfs.commit(e.ctx(), f)).await.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(e.vfs.status().volumes[0].parked.len(), 0);
    world.fault(Fault::None);
    e.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"late");
}

#[tokio::test]
async fn in_cto_who_opens_a_file_sees_what_the_home_has() {
    let mut world = World::new(Mode::Cto);
    let clock = Skipping::of(&mut world);
    world.staleness = Duration::from_secs(3600);
    world.write("f", b"one");
    let e = world.start().await;
    let (lab, f) = (e.lab().await, e.find("/lab/f").await.unwrap());
    assert_eq!(e.read(f).await.unwrap(), b"one");
    let read = OpenMode { read: true, ..OpenMode::default() };
    world.write("f", b"two!");
    assert_eq!(e.read(f).await.unwrap(), b"one", "who has it open already");
    let open = e.vfs.open_file(e.ctx(), f, read).await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"two!");
    e.vfs.close_file(open);

    // NFS version 3: whoever looks may be about to open.
    let looks = Ctx { looks_open: true, ..e.ctx() };
    world.write("f", b"three");
    assert_eq!(e.vfs.getattr(e.ctx(), f).await.unwrap().size, 4);
    assert_eq!(e.vfs.getattr(looks, f).await.unwrap().size, 5);
    world.write("f", b"fourth");
    assert_eq!(e.vfs.lookup(looks, lab, b"f").await.unwrap().attr.size, 6);
    world.remove("f");
    world.write("f", b"another");
    assert_eq!(e.vfs.lookup(e.ctx(), lab, b"f").await.unwrap().oid, f);
    assert_ne!(e.vfs.lookup(looks, lab, b"f").await.unwrap().oid, f);
    assert_eq!(e.vfs.open_file(e.ctx(), f, read).await.unwrap_err().kind, ErrorKind::Stale);
    world.write("g", b"new");
    assert!(e.vfs.lookup(looks, lab, b"g").await.is_ok(), "a name that was free is asked for, too");
    world.claimed().await;
    let calls = world.fault.calls();
    for _ in 0..9 {
        e.vfs.getattr(looks, lab).await.unwrap();
    }
    assert_eq!(world.fault.calls(), calls, "folders are not opened");

    let g = e.find("/lab/g").await.unwrap();
    world.fault(Fault::Unreachable);
    unanswered(e.vfs.getattr(looks, g)).await;
    clock.skip(100);
    assert_eq!(soon(e.vfs.open_file(e.ctx(), g, read)).await.unwrap_err().kind, ErrorKind::Io);
    assert!(e.vfs.getattr(e.ctx(), g).await.is_ok());
}

#[tokio::test]
async fn owned_asks_for_nothing_twice_and_keeps_both_when_that_was_wrong() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::ZERO;
    world.modes = below(&[("mine", Mode::Owned)]);
    world.mkdir("mine");
    world.write("mine/f", b"one");
    world.write("g", b"one");
    let e = world.start().await;
    let (lab, mine) = (e.lab().await, e.find("/lab/mine").await.unwrap());
    let (f, g) = (e.find("/lab/mine/f").await.unwrap(), e.find("/lab/g").await.unwrap());
    assert_eq!((e.read(f).await.unwrap(), e.names(mine).await.len()), (b"one".to_vec(), 1));
    world.write("mine/f", b"theirs");
    world.write("mine/new", b"theirs");
    world.write("g", b"theirs");
    world.claimed().await;
    let calls = world.fault.calls();
    assert_eq!(e.read(f).await.unwrap(), b"one");
    assert_eq!(e.names(mine).await, ["f"]);
    let absent = e.vfs.lookup(e.ctx(), mine, b"new").await;
    assert!(absent.is_err_and(|e| e.kind == ErrorKind::NotFound));
    assert_eq!(world.fault.calls(), calls, "the home was asked again");
    assert_eq!(e.read(g).await.unwrap(), b"theirs", "which is mode wb");
    assert_eq!(e.vfs.status().volumes[0].alarm, None);

    e.write(g, 0, b"ours").await.unwrap();
    world.write("g", b"again");
    e.sync().await;
    assert!(e.vfs.status().volumes[0].conflicts > 0);
    assert_eq!(e.vfs.status().volumes[0].alarm, None, "a conflict is none in mode wb");
    e.write(f, 0, b"ours").await.unwrap();
    e.sync().await;
    let names = world.names_at_home("mine").await;
    let copy = names.iter().find(|name| name.starts_with("f.trellis-conflict-")).unwrap();
    assert_eq!(world.at_home("mine/f").await.unwrap(), b"theirs");
    assert_eq!(world.at_home(&format!("mine/{copy}")).await.unwrap(), b"ours");
    let alarm = e.vfs.status().volumes[0].alarm.clone().unwrap();
    assert!(alarm.contains("once") && alarm.contains("/mine/f"), "{alarm}");
    assert!(e.create(lab, "beside").await.is_ok());
}

#[tokio::test]
async fn a_restart_ends_what_owned_believes() {
    let world = World::new(Mode::Owned);
    world.write("f", b"one");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"one");
    world.write("f", b"theirs");
    assert_eq!(e.read(f).await.unwrap(), b"one");
    e.vfs.close(None).await;
    drop(e);
    assert_eq!(world.start().await.read(f).await.unwrap(), b"theirs");
}

#[tokio::test]
async fn offline_serves_what_is_known_and_keeps_what_is_changed() {
    let mut world = World::new(Mode::Wb);
    world.staleness = Duration::ZERO;
    world.write("f", b"known");
    // Too large to come with another one.
    world.write("unread", &[7; 100_000]);
    world.mkdir("unlisted");
    let e = world.start().await;
    let lab = e.lab().await;
    let volume = lab.volume;
    assert_eq!(e.names(lab).await, ["f", "unlisted", "unread"]);
    let f = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(f).await.unwrap(), b"known");

    world.claimed().await;
    e.vfs.set_mode(volume, Mode::Offline).unwrap();
    let calls = world.fault.calls();
    let failed = async |work: vfs::Result<Vec<u8>>| work.unwrap_err().kind;
    let unread = e.find("/lab/unread").await.unwrap();
    assert_eq!(failed(soon(e.read(unread)).await).await, ErrorKind::Io);
    let unlisted = e.find("/lab/unlisted").await.unwrap();
    assert_eq!(soon(e.vfs.readdir(e.ctx(), unlisted, 0, 9)).await.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(soon(e.create(unlisted, "x")).await.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(soon(e.vfs.statfs(e.ctx(), f)).await.unwrap_err().kind, ErrorKind::Io);
    assert_eq!(e.read(f).await.unwrap(), b"known");
    soon(e.write(f, 0, b"K")).await.unwrap();
    let new = soon(e.create(lab, "new")).await.unwrap();
    soon(e.write(new, 0, b"made offline")).await.unwrap();
    soon(e.vfs.commit(e.ctx(), new)).await.unwrap();
    let unsent = soon(e.vfs.sync(None, Duration::from_secs(7))).await.unwrap_err();
    assert!(unsent[0].ops >= 3 && unsent[0].why.contains("offline"), "{unsent:?}");
    let barrier = e.find("/.trellis/sync/offline").await.unwrap();
    assert_eq!(failed(soon(e.read(barrier)).await).await, ErrorKind::Io);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(world.fault.calls(), calls, "the home was called");
    assert_eq!(e.read(new).await.unwrap(), b"made offline");

    e.vfs.set_mode(volume, Mode::Wb).unwrap();
    e.sync().await;
    assert_eq!(world.at_home("new").await.unwrap(), b"made offline");
    assert_eq!(world.at_home("f").await.unwrap(), b"Known");
    assert_eq!(e.read(unread).await.unwrap(), [7; 100_000]);
}

#[tokio::test]
async fn what_offline_keeps_outlives_the_server() {
    let mut world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    e.names(lab).await;
    e.vfs.set_mode(lab.volume, Mode::Offline).unwrap();
    let new = e.create(lab, "new").await.unwrap();
    e.write(new, 0, b"made offline").await.unwrap();
    // Longer than between two checkpoints.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    world.disk.kill();
    drop(e);
    world.reconnect();
    world.mode = Mode::Offline;
    let calls = world.fault.calls();
    let e = world.start().await;
    assert_eq!(e.read(new).await.unwrap(), b"made offline");
    assert_eq!(e.find("/lab/new").await.unwrap(), new);
    assert_eq!(e.names(lab).await, ["new"]);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(world.fault.calls(), calls, "the home was called");
    drop(e);
    world.mode = Mode::Wb;
    let e = world.start().await;
    e.sync().await;
    assert_eq!(world.at_home("new").await.unwrap(), b"made offline");
}

#[tokio::test]
async fn strict_is_not_entered_or_left_by_the_way() {
    for (now, then) in [(Mode::Strict, Mode::Wb), (Mode::Wb, Mode::Strict)] {
        let world = World::new(now);
        let e = world.start().await;
        let volume = e.lab().await.volume;
        assert_eq!(e.vfs.set_mode(volume, then).unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(e.vfs.set_mode(volume, now), Ok(()));
        assert_eq!(e.vfs.status().volumes[0].modes.whole(), now);
    }
}

#[tokio::test]
async fn a_client_can_ask_which_mode_is_in_force() {
    let mut world = World::new(Mode::Wb);
    world.modes = below(&[("a/ref", Mode::Ro), ("scratch", Mode::Owned)]);
    world.mkdir("a");
    world.mkdir("a/ref");
    world.write("a/ref/f", b"");
    let e = world.start().await;
    let lab = e.lab().await;
    let file = e.find("/.trellis/modes").await.unwrap();
    assert_eq!(e.read(file).await.unwrap(), b"wb /lab\nro /lab/a/ref\nowned /lab/scratch\n");
    let attr = e.vfs.getattr(e.ctx(), file).await.unwrap();
    assert_eq!((attr.size, attr.mode), (41, 0o400));
    let trellis = e.find("/.trellis").await.unwrap();
    assert_eq!(e.names(trellis).await, ["conflicts", "modes", "sync"]);
    e.vfs.set_mode(lab.volume, Mode::Offline).unwrap();
    assert_eq!(e.read(file).await.unwrap(), b"offline /lab\nro /lab/a/ref\noffline /lab/scratch\n");
    e.vfs.set_mode(lab.volume, Mode::Wb).unwrap();

    let mode = async |oid| e.vfs.getxattr(e.ctx(), oid, b"user.trellis.mode").await.unwrap();
    let (dir, f) = (e.find("/lab/a/ref").await.unwrap(), e.find("/lab/a/ref/f").await.unwrap());
    assert_eq!(
        (&mode(lab).await[..], &mode(dir).await[..], &mode(f).await[..]),
        (&b"wb"[..], &b"ro"[..], &b"ro"[..])
    );
    assert!(e.vfs.listxattr(e.ctx(), f).await.unwrap().is_empty(), "copies would want to set it");
    let set =
        e.vfs.setxattr(e.ctx(), lab, b"user.trellis.mode", Bytes::from_static(b"ro"), XattrHow::Any).await;
    assert_eq!(set.unwrap_err().kind, ErrorKind::Perm);
}
