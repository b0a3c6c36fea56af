//! Extended attributes: kept where file systems and protocols have them, and refused truthfully elsewhere.

use super::{Bench, data_piece, xattr_name};
use crate::error::Result;
use crate::op::{New, Outcome};
use crate::{ErrorKind, Xattrs};
use bytes::Bytes;

use crate::XattrHow::{Any, Create, Replace};

/// A file `f`, if attributes can be set on it. Where they cannot, the home must say so.
async fn file(b: &Bench) -> bool {
    b.write_outside("f", b"content");
    let can = b.subject.outside.set_xattr(&b.path("f"), "user.note", Some(b"a note")) && b.posix();
    if !can {
        assert_eq!(read(b, "f", None).await.unwrap_err().kind, ErrorKind::Unsupported);
        assert_eq!(b.refused(b.xattr("f", "user.a", Some(b"1"), Any)).await, ErrorKind::Unsupported);
    }
    can
}

async fn read(b: &Bench, name: &str, want: Option<&str>) -> Result<Xattrs> {
    let want = want.map(xattr_name);
    b.subject.home.xattrs(&b.at(name), want.as_ref()).await
}

/// Names and lengths of values.
async fn lengths(b: &Bench, name: &str, want: Option<&str>) -> Vec<(String, Option<usize>)> {
    let list = read(b, name, want).await.unwrap().list;
    list.into_iter().map(|x| (x.name.to_string(), x.value.map(|v| v.len()))).collect()
}

pub(super) async fn attributes_are_listed_with_their_values(b: Bench) {
    if !file(&b).await {
        return;
    }
    b.subject.outside.set_xattr(&b.path("f"), "user.a", Some(b""));
    let there = read(&b, "f", None).await.unwrap();
    let list: Vec<_> = there.list.into_iter().map(|x| (x.name, x.value.unwrap())).collect();
    let want = [("user.a", &b""[..]), ("user.note", b"a note")];
    assert_eq!(list, want.map(|(n, v)| (xattr_name(n), Bytes::from(v))));
    assert_eq!(there.attr.ctime, b.attr("f").await.ctime);
    assert!(read(&b, "", None).await.unwrap().list.is_empty(), "a directory without");
    assert_eq!(read(&b, "no", None).await.unwrap_err().kind, ErrorKind::NotFound);
}

pub(super) async fn attributes_are_set_and_removed(b: Bench) {
    if !file(&b).await {
        return;
    }
    b.subject.outside.mkdir(&b.path("d"));
    for name in ["f", "d"] {
        let before = b.attr(name).await;
        let done = b.done(b.xattr(name, "user.a", Some(b"1\0\xff"), Any)).await.attr.unwrap();
        assert!(done.ctime >= before.ctime && done.mtime == before.mtime && done.size == before.size);
        assert_eq!(b.subject.outside.xattr(&b.path(name), "user.a").unwrap(), b"1\0\xff");
        b.done(b.xattr(name, "user.a", Some(b"2"), Any)).await;
        assert_eq!(b.subject.outside.xattr(&b.path(name), "user.a").unwrap(), b"2");
        b.done(b.xattr(name, "user.a", None, Any)).await;
        assert_eq!(b.subject.outside.xattr(&b.path(name), "user.a"), None);
        b.done(b.xattr(name, "user.a", None, Any)).await;
        // What was expected here may be so no more: the wanted state counts.
        b.done(b.xattr(name, "user.a", Some(b"3"), Replace)).await;
        b.done(b.xattr(name, "user.a", Some(b"4"), Create)).await;
        assert_eq!(b.subject.outside.xattr(&b.path(name), "user.a").unwrap(), b"4");
    }
    assert_eq!(b.refused(b.xattr("no", "user.a", Some(b"1"), Any)).await, ErrorKind::NotFound);
}

pub(super) async fn long_values_are_asked_for_alone(b: Bench) {
    if !file(&b).await {
        return;
    }
    // Few file systems take so much.
    let long = vec![7; 40_000];
    let names = ["user.x", "user.y"];
    for name in names {
        match b.run(b.xattr("f", name, Some(&long), Any)).await {
            Outcome::Done(_) => {}
            Outcome::Refused(ErrorKind::NoSpace | ErrorKind::TooBig) => return,
            other => panic!("{other:?}"),
        }
    }
    let all = lengths(&b, "f", None).await;
    assert!(all[1].1 == Some(40_000) && all[2] == ("user.y".into(), None), "{all:?}");
    assert_eq!(lengths(&b, "f", Some("user.y")).await[2].1, Some(40_000));
}

pub(super) async fn attributes_stay_with_a_changed_file(b: Bench) {
    if !file(&b).await {
        return;
    }
    let base = b.version("f").await;
    // Overwriting what somebody may have read exchanges the file for a copy.
    b.done(b.pieces("f", Some(base), vec![data_piece(0, b"CON")])).await;
    assert_eq!(b.read_outside("f").unwrap(), b"CONtent");
    assert_eq!(b.subject.outside.xattr(&b.path("f"), "user.note").unwrap(), b"a note");
    let op = b.rename("f", "g", None).await;
    b.done(op).await;
    assert_eq!(lengths(&b, "g", None).await, [("user.note".to_string(), Some(6))]);
}

pub(super) async fn only_files_and_directories_have_attributes(b: Bench) {
    if !file(&b).await {
        return;
    }
    b.subject.outside.symlink(&b.path("s"), b"f");
    b.done(b.create("p", New::Fifo, 0o600)).await;
    for name in ["s", "p"] {
        assert!(read(&b, name, None).await.unwrap().list.is_empty(), "{name} is not followed");
        assert_eq!(b.refused(b.xattr(name, "user.a", Some(b"1"), Any)).await, ErrorKind::Perm);
    }
    assert_eq!(lengths(&b, "f", None).await.len(), 1);
}

pub(super) async fn plain_attributes_work_like_a_program(mut b: Bench) {
    b.plain = true;
    if !file(&b).await {
        return;
    }
    let (note, value) = ("user.note", Some(&b"new"[..]));
    assert_eq!(b.refused(b.xattr("f", note, value, Create)).await, ErrorKind::Exists);
    b.done(b.xattr("f", note, value, Replace)).await;
    assert_eq!(b.refused(b.xattr("f", "user.a", value, Replace)).await, ErrorKind::NoAttribute);
    b.done(b.xattr("f", note, None, Any)).await;
    assert_eq!(b.refused(b.xattr("f", note, None, Any)).await, ErrorKind::NoAttribute);
    b.done(b.xattr("f", note, value, Create)).await;
    // Its answer was lost: what it made is there.
    for (value, done) in [(value, true), (Some(&b"other"[..]), false)] {
        let again = b.placed(b.xattr("f", note, value, Create));
        let outcome = b.apply(crate::Placed { resent: true, ..again }).await;
        assert_eq!(matches!(outcome, Outcome::Done(_)), done, "{outcome:?}");
    }
    assert_eq!(b.subject.outside.xattr(&b.path("f"), note).unwrap(), b"new");
}

pub(super) async fn a_listing_tells_what_has_no_attributes(b: Bench) {
    let can = file(&b).await;
    b.write_outside("bare", b"");
    let page = b.subject.home.list(&b.at(""), None, 10).await.unwrap();
    let bare: Vec<_> = page.entries.iter().map(|e| (e.name.to_string(), e.bare)).collect();
    if can {
        assert_eq!(bare, [("bare".to_string(), true), ("f".to_string(), false)]);
    }
    // Nothing is claimed of what the home does not know.
    assert!(b.posix() || bare.iter().all(|(_, bare)| !bare));
}
