//! Changes that nobody disturbs.

use super::{Bench, THEN, data_piece, lasting};
use crate::attr::{Attr, Kind, Time};
use crate::op::{New, Op, Outcome, Piece, SetAttr, SetTime};
use crate::{ErrorKind, Name};
use bytes::Bytes;

pub(super) async fn create_every_kind(b: Bench) {
    let mut kinds = vec![
        ("f", New::File, Kind::File),
        ("d", New::Dir, Kind::Dir),
        ("s", New::Symlink(Bytes::from_static(b"to/where")), Kind::Symlink),
    ];
    if b.posix() {
        kinds.extend([("p", New::Fifo, Kind::Fifo), ("o", New::Socket, Kind::Socket)]);
    }
    for (name, new, kind) in kinds {
        let done = b.done(b.create(name, new, 0o700)).await;
        let attr = done.attr.unwrap();
        assert_eq!(attr.kind, kind);
        assert_eq!(lasting(attr), b.lasting(name).await);
        if b.posix() {
            assert_eq!(lasting(done.dirs[0]), b.lasting("").await);
        }
    }
    assert_eq!(b.subject.home.readlink(&b.at("s")).await.unwrap(), &b"to/where"[..]);
}

pub(super) async fn create_takes_the_mode_as_given(b: Bench) {
    for (name, mode) in [("a", 0o666), ("b", 0o777), ("c", 0o600), ("e", 0o640)] {
        assert_eq!(b.done(b.create(name, New::File, mode)).await.attr.unwrap().mode, mode);
        let dir = format!("d{name}");
        assert_eq!(b.done(b.create(&dir, New::Dir, mode | 0o100)).await.attr.unwrap().mode, mode | 0o100);
    }
}

pub(super) async fn pieces_apply_in_order(b: Bench) {
    b.write_outside("f", b"0123456789");
    let base = b.version("f").await;
    let pieces = vec![
        data_piece(2, b"ab"),
        Piece::Truncate(6),
        data_piece(5, b"xyz"),
        data_piece(3, b"B"),
        Piece::Truncate(9),
    ];
    let done = b.done(b.pieces("f", Some(base), pieces)).await;
    assert_eq!(b.read_outside("f").unwrap(), b"01aB4xyz\0");
    assert_eq!(lasting(done.attr.unwrap()), b.lasting("f").await);
    b.done(b.pieces("f", None, vec![Piece::Truncate(0), data_piece(0, b"new")])).await;
    assert_eq!(b.read_outside("f").unwrap(), b"new");
}

pub(super) async fn holes_read_as_zeros(b: Bench) {
    b.done(b.create("f", New::File, 0o644)).await;
    b.done(b.write("f", None, 1 << 20, b"end")).await;
    let data = b.read_outside("f").unwrap();
    assert!(data[..1 << 20].iter().all(|x| *x == 0) && &data[1 << 20..] == b"end");
    let base = b.version("f").await;
    b.done(b.write("f", Some(base), 5, b"mid")).await;
    let data = b.read_outside("f").unwrap();
    assert_eq!((&data[4..9], data.len()), (&b"\0mid\0"[..], (1 << 20) + 3));
}

pub(super) async fn attributes_are_set(b: Bench) {
    b.write_outside("f", b"x");
    let at = Time { sec: 1_234_567_890, nsec: 987_654_321 };
    let times = SetAttr { atime: Some(SetTime::At(at)), mtime: Some(SetTime::At(at)), ..SetAttr::default() };
    b.done(b.set("f", SetAttr { mode: Some(0o640), ..times })).await;
    let attr = b.attr("f").await;
    assert_eq!((attr.mode, attr.mtime, attr.atime), (0o640, b.kept(at), b.kept(at)));
    b.subject.outside.mkdir(&b.path("d"));
    let done = b.done(b.set("d", SetAttr { mode: Some(0o711), ..times })).await.attr.unwrap();
    assert_eq!((done.mode, done.mtime), (0o711, b.kept(at)));
    if b.posix() {
        b.subject.outside.symlink(&b.path("s"), b"f");
        assert_eq!(b.done(b.set("s", times)).await.attr.unwrap().mtime, at);
        let uid = attr.uid.wrapping_add(1);
        let chown = SetAttr { uid: Some(uid), ..SetAttr::default() };
        assert_eq!(b.refused(b.set("f", chown)).await, ErrorKind::Perm);
    }
    assert_eq!(b.refused(b.set("no", times)).await, ErrorKind::NotFound);
}

pub(super) async fn remove_and_rmdir(b: Bench) {
    b.write_outside("f", b"x");
    b.subject.outside.mkdir(&b.path("d"));
    let base = b.version("f").await;
    assert_eq!(b.refused(b.remove("d", None)).await, ErrorKind::IsDir);
    assert_eq!(b.refused(b.remove_kind("f", true, None)).await, ErrorKind::NotDir);
    assert_eq!(b.done(b.remove("f", Some(base))).await.attr, None);
    assert_eq!(b.done(b.remove_kind("d", true, None)).await.attr, None);
    assert!(b.names().is_empty());
    assert_eq!(b.done(b.remove("f", Some(base))).await.attr, None, "gone already");
}

pub(super) async fn a_full_directory_stays(b: Bench) {
    b.subject.outside.mkdir(&b.path("d"));
    b.write_outside("d/f", b"x");
    assert_eq!(b.refused(b.remove_kind("d", true, None)).await, ErrorKind::NotEmpty);
    assert_eq!(b.read_outside("d/f").unwrap(), b"x");
}

pub(super) async fn rename_moves_and_replaces(b: Bench) {
    b.write_outside("a", b"one");
    b.write_outside("b", b"two");
    b.subject.outside.mkdir(&b.path("d"));
    let replaced = Some((b.at("b"), Some(b.version("b").await)));
    let op = b.rename("a", "b", replaced).await;
    b.done(op).await;
    assert_eq!(b.names(), ["b", "d"]);
    assert_eq!(b.read_outside("b").unwrap(), b"one");
    let op = b.rename("b", "d/c", None).await;
    let done = b.done(op).await;
    assert_eq!((b.names(), b.read_outside("d/c").unwrap()), (vec!["d".to_string()], b"one".to_vec()));
    if b.posix() {
        // Behind the directories there is nothing but the file itself, where the home tells since when nobody else moved its ctime.
        let since = done.since().zip(done.attr).map(|(ctime, attr)| lasting(Attr { ctime, ..attr }));
        let told: Vec<_> = done.dirs.into_iter().map(lasting).collect();
        let dirs = [b.lasting("").await, b.lasting("d").await];
        assert_eq!(told, dirs.into_iter().chain(since).collect::<Vec<_>>());
    }
}

pub(super) async fn rename_of_directories(b: Bench) {
    for name in ["a", "b", "full"] {
        b.subject.outside.mkdir(&b.path(name));
    }
    b.write_outside("a/f", b"x");
    b.write_outside("full/f", b"y");
    let op = b.rename("a", "full", Some((b.at("full"), None))).await;
    assert_eq!(b.refused(op).await, ErrorKind::NotEmpty);
    let op = b.rename("a", "b", Some((b.at("b"), None))).await;
    b.done(op).await;
    assert_eq!((b.names(), b.read_outside("b/f").unwrap()), (vec!["b".into(), "full".into()], b"x".to_vec()));
    b.write_outside("g", b"");
    let op = b.rename("b", "g", Some((b.at("g"), None))).await;
    assert_eq!(b.refused(op).await, ErrorKind::NotDir);
    let op = b.rename("g", "b", Some((b.at("b"), None))).await;
    assert_eq!(b.refused(op).await, ErrorKind::IsDir);
}

pub(super) async fn link_and_its_count(b: Bench) {
    if !b.posix() {
        return;
    }
    b.write_outside("a", b"x");
    let done = b.done(b.link("a", "b")).await.attr.unwrap();
    assert_eq!((done.nlink, done.id), (2, b.attr("a").await.id));
    let base = Some(done.version());
    b.done(b.write("b", base, 0, b"y")).await;
    assert_eq!(b.read_outside("a").unwrap(), b"y", "a write keeps the names together");
    let left = b.done(b.remove("a", Some(b.version("a").await))).await.attr.unwrap();
    assert_eq!((left.nlink, left.id), (1, done.id));
}

pub(super) async fn times_are_exact(b: Bench) {
    let made = b.done(b.create("f", New::File, 0o644)).await.attr.unwrap();
    assert_eq!(made.mtime, b.kept(THEN));
    let written = b.done(b.write("f", Some(made.version()), 0, b"abc")).await.attr.unwrap();
    assert_eq!(written.mtime, b.kept(THEN));
    let again = b.done(b.write("f", Some(written.version()), 0, b"x")).await.attr.unwrap();
    assert_eq!((again.mtime, again.size), (b.kept(THEN), 3));
    if b.posix() {
        assert_eq!(b.attr("").await.mtime, THEN, "the directory's time is that of the operation");
    }
}

pub(super) async fn plain_works_like_a_program(mut b: Bench) {
    b.plain = true;
    b.done(b.create("f", New::File, 0o600)).await;
    assert_eq!(b.refused(b.create("f", New::File, 0o600)).await, ErrorKind::Exists);
    b.done(b.create("d", New::Dir, 0o700)).await;
    assert_eq!(b.refused(b.create("d", New::Dir, 0o700)).await, ErrorKind::Exists);
    b.done(b.write("f", None, 2, b"abc")).await;
    assert_eq!(b.read_outside("f").unwrap(), b"\0\0abc");
    assert_ne!(b.attr("f").await.mtime, b.kept(THEN), "the home's own clock");
    let op = b.rename("f", "d/f", None).await;
    b.done(op).await;
    assert_eq!(b.refused(b.remove_kind("d", true, None)).await, ErrorKind::NotEmpty);
    b.done(b.remove("d/f", None)).await;
    assert_eq!(b.refused(b.remove("d/f", None)).await, ErrorKind::NotFound);
    b.done(b.remove_kind("d", true, None)).await;
    assert!(b.names().is_empty());
}

pub(super) async fn plain_keeps_the_inode(mut b: Bench) {
    if !b.posix() {
        return;
    }
    b.plain = true;
    b.write_outside("f", b"0123");
    let old = b.attr("f").await;
    b.write_outside("f", b"abcd");
    let new = b.done(b.write("f", Some(old.version()), 0, b"X")).await.attr.unwrap();
    assert_eq!(new.id, old.id);
    assert_eq!(b.read_outside("f").unwrap(), b"Xbcd", "base versions do not count");
    let stale = Op::Write { file: b.here("f").await, base: None, pieces: vec![data_piece(0, b"!")] };
    b.write_outside("g", b"");
    b.subject.outside.rename(&b.path("g"), &b.path("f"));
    assert_eq!(b.refused(stale).await, ErrorKind::Stale);
}

pub(super) async fn set_id_bits_do_not_reach_files(b: Bench) {
    let made = b.done(b.create("f", New::File, 0o6755)).await.attr.unwrap();
    assert_eq!(made.mode, 0o755);
    let set = SetAttr { mode: Some(0o4711), ..SetAttr::default() };
    assert_eq!(b.done(b.set("f", set)).await.attr.unwrap().mode, 0o711);
    if b.posix() {
        let dir = Op::Create { dir: b.at(""), name: Name::new(b"d").unwrap(), new: New::Dir, mode: 0o2755 };
        assert!(matches!(b.run(dir).await, Outcome::Done(d) if d.attr.unwrap().mode == 0o2755));
    }
}
