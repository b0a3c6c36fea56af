//! What depends on who we are. Root's part of such a test is to start it again as somebody else.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;

const USER: u32 = 12_345;

/// Whether the body of `test` runs here: as an ordinary user. Root starts itself again as one, with a
/// copy of the test binary that the user can reach.
fn as_user(test: &str) -> bool {
    if rustix::process::geteuid().as_raw() != 0 {
        return true;
    }
    let dir = tempfile::tempdir().unwrap();
    let exe = dir.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    for path in [dir.path(), &exe] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let full = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let output = std::process::Command::new(&exe)
        .args(["--exact", &full, "--nocapture"])
        .env_clear()
        .current_dir("/")
        .uid(USER)
        .gid(USER)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "as an ordinary user: {said}");
    false
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
    assert!(attr.access.read && !attr.access.write);
    let new = done(&home, write("w/f", Some(attr.version()), 0, b"ours")).attr.unwrap();
    assert_eq!((new.mode, &place.read("w/f")[..]), (0o444, &b"ours content"[..]));
    let outcome = one(&home, plainly(write("w/f", None, 12, b", plainly")));
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    assert_eq!(place.read("w/f"), b"ours content, plainly");
    set_mode(&place, "w/f", 0o000);
    assert_eq!(home.read(&at("w/f"), 0, 1).unwrap_err().kind, ErrorKind::Access);
    assert_eq!(place.names("w"), ["f"]);
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
