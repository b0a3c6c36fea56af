//! Changes that meet another program's. Nothing that was not read is lost.

use super::{Bench, lasting};
use crate::attr::{Kind, Time};
use crate::op::{New, SetAttr, SetTime};
use crate::{HomePath, Loc};
use bytes::Bytes;

/// Changes a file behind our back so that its version shows it under any clock.
fn change_outside(b: &Bench, name: &str) {
    b.write_outside(name, b"theirs, and longer");
}

pub(super) async fn a_taken_name_is_a_conflict(b: Bench) {
    b.write_outside("f", b"theirs");
    b.subject.outside.mkdir(&b.path("d"));
    b.subject.outside.symlink(&b.path("s"), b"x");
    for (name, new) in [
        ("f", New::File),
        ("f", New::Dir),
        ("d", New::File),
        ("s", New::File),
        ("s", New::Symlink(Bytes::from_static(b"y"))),
    ] {
        let there = b.conflict(b.create(name, new.clone(), 0o644)).await.unwrap();
        assert_eq!(there.kind, b.attr(name).await.kind, "{name} {new:?}");
    }
    assert_eq!(b.read_outside("f").unwrap(), b"theirs");
}

pub(super) async fn a_wanted_state_is_done(b: Bench) {
    b.subject.outside.mkdir(&b.path("d"));
    b.subject.outside.symlink(&b.path("s"), b"x");
    assert_eq!(b.done(b.create("d", New::Dir, 0o700)).await.attr.unwrap().kind, Kind::Dir);
    b.done(b.create("s", New::Symlink(Bytes::from_static(b"x")), 0o777)).await;
    assert_eq!(b.done(b.remove("never", None)).await.attr, None);
    if b.posix() {
        b.write_outside("f", b"x");
        b.done(b.link("f", "g")).await;
        b.done(b.link("f", "g")).await;
    }
}

pub(super) async fn a_changed_file_is_not_overwritten(b: Bench) {
    b.write_outside("f", b"base");
    let base = Some(b.version("f").await);
    change_outside(&b, "f");
    for at in [0, 4] {
        let there = b.conflict(b.write("f", base, at, b"ours")).await.unwrap();
        assert_eq!(lasting(there), b.lasting("f").await);
    }
    assert_eq!(b.read_outside("f").unwrap(), b"theirs, and longer");
    assert_eq!(b.names(), ["f"]);
}

pub(super) async fn a_changed_file_is_not_removed(b: Bench) {
    b.write_outside("f", b"base");
    let base = Some(b.version("f").await);
    change_outside(&b, "f");
    assert_eq!(b.conflict(b.remove("f", base)).await.unwrap().size, 18);
    assert_eq!(b.read_outside("f").unwrap(), b"theirs, and longer");
    b.done(b.remove("f", None)).await;
    assert!(b.names().is_empty());
}

pub(super) async fn a_changed_file_is_not_replaced(b: Bench) {
    b.write_outside("a", b"ours");
    b.write_outside("f", b"base");
    let base = Some(b.version("f").await);
    change_outside(&b, "f");
    let op = b.rename("a", "f", Some((b.at("f"), base))).await;
    assert_eq!(b.conflict(op).await.unwrap().size, 18);
    assert_eq!(b.read_outside("f").unwrap(), b"theirs, and longer");
    assert_eq!(b.read_outside("a").unwrap(), b"ours");
}

pub(super) async fn a_removed_file_is_a_conflict(b: Bench) {
    b.write_outside("f", b"base");
    let base = Some(b.version("f").await);
    b.subject.outside.remove(&b.path("f"));
    assert_eq!(b.conflict(b.write("f", base, 0, b"ours")).await, None);
    assert!(b.names().is_empty());
}

pub(super) async fn a_replaced_file_is_a_conflict(b: Bench) {
    if !b.posix() {
        return;
    }
    b.write_outside("f", b"base");
    let (old, base) = (b.here("f").await, Some(b.version("f").await));
    b.write_outside("g", b"same");
    b.subject.outside.rename(&b.path("g"), &b.path("f"));
    let mut op = b.write("f", base, 0, b"ours");
    if let crate::Op::Write { file, .. } = &mut op {
        *file = old;
    }
    assert_eq!(b.conflict(op).await.map(lasting), Some(b.lasting("f").await));
    assert_eq!(b.read_outside("f").unwrap(), b"same");
}

pub(super) async fn a_taken_destination_is_a_conflict(b: Bench) {
    b.write_outside("a", b"ours");
    b.write_outside("f", b"theirs");
    let op = b.rename("a", "f", None).await;
    assert_eq!(b.conflict(op).await.unwrap().size, 6);
    b.subject.outside.mkdir(&b.path("d"));
    b.subject.outside.mkdir(&b.path("e"));
    let op = b.rename("d", "e", None).await;
    assert_eq!(b.conflict(op).await.unwrap().kind, Kind::Dir);
    assert_eq!(b.names(), ["a", "d", "e", "f"]);
}

pub(super) async fn a_link_to_a_taken_name_is_a_conflict(b: Bench) {
    if !b.posix() {
        return;
    }
    b.write_outside("a", b"ours");
    b.write_outside("f", b"theirs");
    assert_eq!(b.conflict(b.link("a", "f")).await.unwrap().size, 6);
    assert_eq!(b.attr("a").await.nlink, 1);
}

/// Operations follow each other without waiting: all but the first name a base, and an identity, that
/// the one before has made obsolete.
pub(super) async fn our_own_changes_are_no_conflict(b: Bench) {
    b.write_outside("f", b"0123456789");
    let base = b.version("f").await;
    let mut at = b.at("f");
    if b.posix() {
        at.id = Some(base.id);
    }
    let write = |offset, data: &[u8]| crate::Op::Write {
        file: at.clone(),
        base: Some(base),
        pieces: vec![super::data_piece(offset, data)],
    };
    b.done(write(0, b"A")).await;
    let ops = vec![b.placed(write(1, b"B")), b.placed(write(2, b"C")), b.placed(write(10, b"D"))];
    let outcomes = b.subject.home.apply(ops).await.unwrap();
    assert!(outcomes.iter().all(|o| matches!(o, crate::Outcome::Done(_))), "{outcomes:?}");
    assert_eq!(b.read_outside("f").unwrap(), b"ABC3456789D");
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    b.done(crate::Op::SetAttr { object: at.clone(), base: None, set: mode }).await;
    assert_eq!(b.subject.home.read(&at, 0, 3).await.unwrap().data, &b"ABC"[..]);
    let (path, name) = HomePath::split(&at.path).unwrap();
    let dir = Loc { path, id: None };
    b.done(crate::Op::Remove { dir, name, object: at.clone(), is_dir: false, base: Some(base) }).await;
    assert!(b.names().is_empty());
}

/// By its modification time others see that a file has another content, and so do we.
pub(super) async fn a_time_is_not_set_on_a_content_that_was_not_seen(b: Bench) {
    b.write_outside("f", b"seen");
    let base = b.version("f").await;
    let wanted = Time { sec: 86_400, nsec: 0 };
    let op = || crate::Op::SetAttr {
        object: b.at("f"),
        base: Some(base),
        set: SetAttr { mode: Some(0o600), mtime: Some(SetTime::At(wanted)), ..SetAttr::default() },
    };
    b.done(op()).await;
    assert_eq!(b.attr("f").await.mtime, wanted);
    // What was there, and what we have made of it, is the same content.
    let write =
        crate::Op::Write { file: b.at("f"), base: Some(base), pieces: vec![super::data_piece(0, b"S")] };
    b.done(write).await;
    assert_eq!(b.read_outside("f").unwrap(), b"Seen");

    b.write_outside("f", b"theirs");
    let theirs = b.version("f").await;
    b.done(op()).await;
    let left = b.attr("f").await;
    assert_eq!((left.mtime, left.size, left.mode), (theirs.mtime, 6, 0o600));

    // It does not become ours by that.
    assert!(b.conflict(b.write("f", Some(base), 0, b"OURS")).await.is_some());
    assert_eq!(b.read_outside("f").unwrap(), b"theirs");
}
