//! What depends on who we are. Root's part of such a test is to start it again as somebody else.

use super::*;
use crate::testing::user::USER;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

/// Whether the body of `test` of this module runs here: not for root.
fn as_user(test: &str) -> bool {
    crate::testing::user::as_user(&format!("posix::tests::users::{test}"))
}

fn set_mode(place: &Place, path: &str, mode: u32) {
    std::fs::set_permissions(place.path(path), PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn the_owner_writes_what_the_mode_forbids() {
    if !as_user("the_owner_writes_what_the_mode_forbids") {
        return;
    }
    let place = Place::new();
    let home = place.open(Linux::default());
    place.write("w/f", b"base content");
    set_mode(&place, "w/f", 0o444);
    let attr = home.stat(&at("w/f")).unwrap().attr;
    assert!(attr.access.read && !attr.access.may_write());
    let new = done(&home, write("w/f", Some(attr.version()), 0, b"ours")).attr.unwrap();
    assert_eq!((new.mode, &place.read("w/f")[..]), (0o444, &b"ours content"[..]));
    let outcome = one(&home, plainly(write("w/f", None, 12, b", plainly")));
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    assert_eq!(place.read("w/f"), b"ours content, plainly");
    assert_eq!(place.names("w"), ["f"]);
}

/// Whoever opened it before reads it, which the gateway sees to; its mode stays, and its times move once.
#[test]
fn the_owner_reads_what_the_mode_forbids() {
    if !as_user("the_owner_reads_what_the_mode_forbids") {
        return;
    }
    let place = Place::new();
    let home = place.open(Linux::default());
    place.write("w/f", b"content");
    set_mode(&place, "w/f", 0o200);
    let first = home.read(&at("w/f"), 0, 3).unwrap();
    assert_eq!((&first.data[..], first.attr.mode, first.attr.access.read), (&b"con"[..], 0o200, false));
    let second = home.read(&at("w/f"), 3, 100).unwrap();
    assert_eq!((&second.data[..], second.attr.version()), (&b"tent"[..], first.attr.version()));
    let open = || lock(&home.lent).len();
    assert_eq!(open(), 1);
    done(&home, remove("w", "f", Some(first.attr.version())));
    assert_eq!(open(), 0, "it keeps no space");
}

/// That it is open for writing is asked by opening it.
#[test]
fn what_somebody_writes_that_the_mode_forbids_to_read_is_not_replaced() {
    if !as_user("what_somebody_writes_that_the_mode_forbids_to_read_is_not_replaced") {
        return;
    }
    let place = Place::new();
    let home = place.open(Linux::default());
    place.write("w/f", b"ours");
    place.write("w/log", b"not yet written to");
    set_mode(&place, "w/log", 0o200);
    let seen = home.stat(&at("w/log")).unwrap().attr;
    let _writer = std::fs::File::options().append(true).open(place.path("w/log")).unwrap();
    let replaced = Some((at("w/log"), Some(seen.version())));
    let (from, to, new_name) = (at("w"), at("w"), name("log"));
    let op = Op::Rename { from, name: name("f"), object: at("w/f"), to, new_name, replaced };
    let outcome = one(&home, placed(op));
    assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?}");
    let there = home.stat(&at("w/log")).unwrap().attr;
    assert_eq!((there.id, there.mode), (seen.id, 0o200));
    assert_eq!(place.names("w"), ["f", "log"]);
}

/// Such a file cannot be copied: it is written in place, at its end and elsewhere.
#[test]
fn the_owner_writes_what_nobody_may_read() {
    if !as_user("the_owner_writes_what_nobody_may_read") {
        return;
    }
    for (at_offset, expected) in [(12, &b"base contentours"[..]), (0, b"ours content")] {
        let place = Place::new();
        let home = place.open(Linux::default());
        place.write("w/f", b"base content");
        set_mode(&place, "w/f", 0o000);
        let attr = home.stat(&at("w/f")).unwrap().attr;
        let new = done(&home, write("w/f", Some(attr.version()), at_offset, b"ours")).attr.unwrap();
        assert_eq!((new.id, new.mode), (attr.id, 0o000));
        set_mode(&place, "w/f", 0o600);
        assert_eq!(place.read("w/f"), expected);
        assert_eq!(place.names("w"), ["f"]);
    }
}

#[test]
fn the_owner_writes_a_file_of_several_names_that_the_mode_forbids() {
    if !as_user("the_owner_writes_a_file_of_several_names_that_the_mode_forbids") {
        return;
    }
    for mode in [0o444, 0o000] {
        let place = Place::new();
        let home = place.open(Linux::default());
        place.write("w/f", b"base content");
        std::fs::hard_link(place.path("w/f"), place.path("w/g")).unwrap();
        set_mode(&place, "w/f", mode);
        let attr = home.stat(&at("w/f")).unwrap().attr;
        let new = done(&home, write("w/f", Some(attr.version()), 0, b"ours")).attr.unwrap();
        assert_eq!((new.id, new.mode, new.nlink), (attr.id, mode, 2));
        let outcome = one(&home, plainly(write("w/g", None, 12, b", plainly")));
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        let there = std::fs::metadata(place.path("w/g")).unwrap();
        assert_eq!((there.ino(), there.mode() & 0o777), (attr.id.ino, mode));
        set_mode(&place, "w/f", 0o644);
        assert_eq!(place.read("w/g"), b"ours content, plainly");
        assert_eq!(place.names("w"), ["f", "g"]);
    }
}

#[test]
fn what_is_made_read_only_can_be_filled() {
    if !as_user("what_is_made_read_only_can_be_filled") {
        return;
    }
    for plain in [false, true] {
        let place = Place::new();
        let home = place.open(Linux::default());
        let both = |op| Placed { plain, ..placed(op) };
        let ops = vec![both(create("w", "f", 0o444)), both(write("w/f", None, 0, b"git object"))];
        let outcomes = home.apply(ops).unwrap();
        assert!(outcomes.iter().all(|o| matches!(o, Outcome::Done(_))), "{outcomes:?}");
        let outcome = one(&home, both(write("w/f", None, 10, b", later")));
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        assert_eq!(place.read("w/f"), b"git object, later");
        assert_eq!(std::fs::metadata(place.path("w/f")).unwrap().mode() & 0o777, 0o444);
    }
}

#[test]
fn a_directory_can_be_made_that_its_owner_cannot_enter() {
    if !as_user("a_directory_can_be_made_that_its_owner_cannot_enter") {
        return;
    }
    for plain in [false, true] {
        let place = Place::new();
        let home = place.open(Linux::default());
        let op = Op::Create { dir: at("w"), name: name("d"), new: New::Dir, mode: 0o244 };
        let outcome = one(&home, Placed { plain, ..placed(op) });
        let Outcome::Done(done) = outcome else { panic!("{outcome:?}") };
        let attr = done.attr.unwrap();
        assert_eq!((attr.kind, attr.mode & 0o777, attr.access.exec), (Kind::Dir, 0o244, false));
        assert_eq!(place.names("w"), ["d"]);
    }
}

#[test]
fn what_is_forbidden_is_refused() {
    if !as_user("what_is_forbidden_is_refused") {
        return;
    }
    let place = Place::new();
    let home = place.open(Linux::default());
    place.write("w/f", b"base content");
    let base = version(&home, "w/f");
    set_mode(&place, "w", 0o555);
    assert_eq!(one(&home, placed(create("w", "g", 0o644))), Outcome::Refused(ErrorKind::Access));
    assert_eq!(one(&home, placed(remove("w", "f", Some(base)))), Outcome::Refused(ErrorKind::Access));
    // No copy can take its place there, so that it is written in place.
    let new = done(&home, write("w/f", Some(base), 0, b"ours")).attr.unwrap();
    assert_eq!((new.id, new.mtime), (base.id, THEN));
    set_mode(&place, "w", 0o300);
    assert_eq!(home.list(&at("w"), None, 9).unwrap_err().kind, ErrorKind::Access);
    done(&home, create("w", "g", 0o644));
    set_mode(&place, "w", 0o400);
    let page = home.list(&at("w"), None, 9).unwrap();
    assert!(page.entries.len() == 2 && page.entries.iter().all(|e| e.attr.is_none()));
    set_mode(&place, "w", 0o700);
}

/// A file of another user in a directory of ours: root prepares it.
#[test]
fn anothers_file_keeps_its_owner() {
    if rustix::process::geteuid().as_raw() != 0 {
        // Only root can give files away; as an ordinary user there is nothing to prepare.
        return;
    }
    let place = Place::new();
    let home = place.open(Linux::default());
    place.write("w/f", b"base content");
    chown(place.path("w/f"), Some(USER), Some(USER)).unwrap();
    let old = home.stat(&at("w/f")).unwrap().attr;
    let new = done(&home, write("w/f", Some(old.version()), 0, b"ours")).attr.unwrap();
    assert_eq!((new.uid, new.gid, new.id), (USER, USER, old.id));
    std::fs::set_permissions(place.path("w"), PermissionsExt::from_mode(0o1777)).unwrap();
    chown(place.path("w"), Some(USER), Some(USER)).unwrap();
    place.write("w/g", b"base content");
    let old = version(&home, "w/g");
    let new = done(&home, write("w/g", Some(old), 0, b"ours")).attr.unwrap();
    assert_eq!(new.id, old.id, "in a sticky directory of another");
}

/// struct posix_acl_xattr of Linux: version, then tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&bits.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

#[test]
fn access_control_lists_are_kept_and_inherited() {
    if !as_user("access_control_lists_are_kept_and_inherited") {
        return;
    }
    let place = Place::new();
    let home = place.open(Linux::default());
    let none = u32::MAX;
    let list = acl(&[(1, 6, none), (2, 6, 999), (4, 4, none), (0x10, 6, none), (0x20, 0, none)]);
    let flags = rustix::fs::XattrFlags::empty();
    let set = |path: &str, name: &str| rustix::fs::setxattr(place.path(path), name, &list, flags).unwrap();
    let get = |path: &str| {
        let mut value = [0; 200];
        let name = "system.posix_acl_access";
        rustix::fs::getxattr(place.path(path), name, &mut value[..]).map(|n| value[..n].to_vec())
    };
    place.write("w/f", b"base content");
    set("w/f", "system.posix_acl_access");
    let old = version(&home, "w/f");
    assert_ne!(done(&home, write("w/f", Some(old), 0, b"ours")).attr.unwrap().id, old.id);
    assert_eq!(get("w/f").unwrap(), list);
    set("w", "system.posix_acl_default");
    let made = done(&home, create("w", "new", 0o666)).attr.unwrap();
    assert_eq!(made.mode, 0o660, "the directory's list rules");
    assert_eq!(get("w/new").unwrap(), list);
}

#[test]
fn a_directory_hands_its_group_down() {
    let place = Place::new();
    let home = place.open(Linux::default());
    set_mode(&place, "w", 0o2755);
    let mkdir = Op::Create { dir: at("w"), name: name("d"), new: New::Dir, mode: 0o700 };
    assert_eq!(done(&home, mkdir).attr.unwrap().mode, 0o2700);
    assert_eq!(done(&home, create("w", "f", 0o2755)).attr.unwrap().mode, 0o755);
}
