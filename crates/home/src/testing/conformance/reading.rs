//! Looking at a tree.

use super::{Bench, lasting};
use crate::attr::{HomeId, Kind};
use crate::{ErrorKind, Loc, Name};

pub(super) async fn stat_tells_what_is_there(b: Bench) {
    b.write_outside("f", b"hello");
    b.subject.outside.mkdir(&b.path("d"));
    b.subject.outside.symlink(&b.path("s"), b"f");
    let (f, d, s) = (b.attr("f").await, b.attr("d").await, b.attr("s").await);
    assert_eq!((f.kind, d.kind, s.kind), (Kind::File, Kind::Dir, Kind::Symlink));
    assert_eq!((f.size, f.nlink), (5, 1));
    assert!(f.access.read && f.access.may_write() && d.access.exec);
    if b.posix() {
        assert!(f.id != d.id && f.id.fs == d.id.fs && f.id.ino != 0);
        assert_eq!(lasting(f), b.lasting("f").await, "looking does not change anything");
    }
    let root = b.subject.home.stat(&Loc { path: Default::default(), id: None }).await.unwrap();
    assert_eq!(root.attr.kind, Kind::Dir);
}

pub(super) async fn absence_is_not_found(b: Bench) {
    for name in ["no", "no/deeper"] {
        let error = b.subject.home.stat(&b.at(name)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound, "{name}");
    }
    assert_eq!(b.subject.home.list(&b.at("no"), None, 9).await.unwrap_err().kind, ErrorKind::NotFound);
}

pub(super) async fn listing_comes_in_pages_and_in_order(b: Bench) {
    let mut want: Vec<String> = (0..25).map(|n| format!("{n:x}-{}", "n".repeat(n))).collect();
    for name in &want {
        b.write_outside(name, name.as_bytes());
    }
    want.sort();
    let mut have = Vec::new();
    let mut after: Option<Name> = None;
    loop {
        let page = b.subject.home.list(&b.at(""), after.as_ref(), 10).await.unwrap();
        assert!(page.entries.len() <= 10);
        for entry in &page.entries {
            assert_eq!(entry.attr.unwrap().size, entry.name.as_bytes().len() as u64);
            assert_eq!(entry.target, None);
            have.push(entry.name.to_string());
        }
        after = page.entries.last().map(|e| e.name.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(have, want);
}

pub(super) async fn listing_tells_link_targets(b: Bench) {
    b.subject.outside.symlink(&b.path("s"), b"../some\xffwhere");
    let page = b.subject.home.list(&b.at(""), None, 10).await.unwrap();
    assert_eq!(page.entries[0].target.as_deref(), Some(&b"../some\xffwhere"[..]));
    assert_eq!(b.subject.home.readlink(&b.at("s")).await.unwrap(), &b"../some\xffwhere"[..]);
    if b.posix() {
        assert_eq!(lasting(page.entries[0].attr.unwrap()), b.lasting("s").await);
        assert_eq!(page.dir.id, b.attr("").await.id);
    }
}

pub(super) async fn listing_a_file_is_refused(b: Bench) {
    b.write_outside("f", b"");
    assert_eq!(b.subject.home.list(&b.at("f"), None, 9).await.unwrap_err().kind, ErrorKind::NotDir);
}

pub(super) async fn reading_ends_at_the_end(b: Bench) {
    let data: Vec<u8> = (0..250_000u32).flat_map(u32::to_le_bytes).collect();
    b.write_outside("f", &data);
    let read = |at, len| {
        let (home, at_f) = (b.subject.home.clone(), b.at("f"));
        async move { home.read(&at_f, at, len).await.unwrap() }
    };
    assert_eq!(read(0, 5).await.data, &data[..5]);
    let all = read(0, 2_000_000).await;
    assert!(all.data == data && all.attr.size == data.len() as u64);
    assert_eq!(read(999_990, 100).await.data, &data[999_990..]);
    assert_eq!(read(1_000_000, 100).await.data.len(), 0);
    assert_eq!(read(u64::from(u32::MAX) * 16, 1).await.data.len(), 0);
}

pub(super) async fn reading_what_is_no_file_is_refused(b: Bench) {
    b.write_outside("f", b"");
    assert_eq!(b.subject.home.read(&b.at(""), 0, 1).await.unwrap_err().kind, ErrorKind::IsDir);
    assert_eq!(b.subject.home.readlink(&b.at("f")).await.unwrap_err().kind, ErrorKind::Invalid);
}

pub(super) async fn the_account_is_told(b: Bench) {
    let (first, second) = (b.subject.home.attach().await.unwrap(), b.subject.home.attach().await.unwrap());
    assert_eq!(first.class, b.subject.class);
    assert_eq!((first.uid, first.gid), (second.uid, second.gid));
    assert_eq!(first.token, second.token);
    assert!(!second.token_is_new);
    assert!(b.posix() <= first.stages);
}

pub(super) async fn space_is_told(b: Bench) {
    let space = b.subject.home.statfs(&b.at("")).await.unwrap();
    assert!(space.total >= space.free && space.free >= space.available && space.total > 0);
}

pub(super) async fn another_object_is_stale(b: Bench) {
    if !b.posix() {
        return;
    }
    b.write_outside("f", b"one");
    let old = b.here("f").await;
    b.write_outside("g", b"two");
    b.subject.outside.rename(&b.path("g"), &b.path("f"));
    let wrong = Loc {
        id: Some(HomeId { generation: old.id.unwrap().generation ^ 1, ..old.id.unwrap() }),
        ..b.at("f")
    };
    for loc in [old, wrong] {
        assert_eq!(b.subject.home.stat(&loc).await.unwrap_err().kind, ErrorKind::Stale);
        assert_eq!(b.subject.home.read(&loc, 0, 1).await.unwrap_err().kind, ErrorKind::Stale);
    }
}

pub(super) async fn links_are_not_followed_on_the_way(b: Bench) {
    b.subject.outside.mkdir(&b.path("d"));
    b.write_outside("d/f", b"");
    b.subject.outside.symlink(&b.path("s"), b"d");
    assert_eq!(b.attr("d/f").await.kind, Kind::File);
    assert_eq!(b.attr("s").await.kind, Kind::Symlink);
    if b.posix() {
        assert_eq!(b.subject.home.stat(&b.at("s/f")).await.unwrap_err().kind, ErrorKind::NotDir);
    }
}
