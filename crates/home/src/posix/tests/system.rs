//! What the system shows, and what it must not see of us.

use super::*;
use crate::attr::Kind;
use crate::op::SetAttr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn devices_and_kernel_file_systems_are_hidden() {
    let place = Place::new();
    let home = Posix::open(b"/").unwrap().with_home_dir(bytes(&place.root));
    let proc = home.stat(&at("proc")).unwrap().attr;
    assert_eq!(proc.kind, Kind::Dir);
    assert!(home.list(&at("proc"), None, 10).unwrap().entries.is_empty());
    for hidden in ["proc/self", "proc/version", "dev/null"] {
        assert_eq!(home.stat(&at(hidden)).unwrap_err().kind, ErrorKind::NotFound, "{hidden}");
    }
    let root = home.list(&at(""), None, 1000).unwrap();
    assert!(root.entries.iter().any(|e| e.name == name("proc")));
}

#[test]
fn a_bad_root_is_an_error() {
    assert_eq!(Posix::open(b"/no/such/dir").map(|_| ()).unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn the_token_is_made_once_and_private() {
    let place = Place::new();
    let home = place.open(Linux::default());
    let (first, second) = (home.hello().unwrap(), place.open(Linux::default()).hello().unwrap());
    assert!(first.token_is_new && !second.token_is_new && first.token.is_some());
    assert_eq!(first.token, second.token);
    let mode = |path: &str| std::fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(".cache/trellis"), mode(".cache/trellis/token")), (0o700, 0o600));
    assert_eq!(place.names(".cache/trellis"), ["token"]);
    place.write(".cache/trellis/token", b"short");
    assert_eq!(home.hello().unwrap().token, None);
    let other = tempfile::tempdir().unwrap();
    assert_ne!(home.with_home_dir(bytes(other.path())).hello().unwrap().token, first.token);
}

#[test]
fn a_token_that_is_told_is_durable_whoever_made_it() {
    let place = Place::new();
    let made = place.open(Linux::default()).hello().unwrap();
    let home = place.open(meddler::Meddler::new(Lacks::default()));
    assert_eq!(home.hello().unwrap().token, made.token);
    assert_eq!(home.sys.syncs(), 1, "its maker may have been killed before it synced the name");
}

#[test]
fn a_token_is_told_where_directories_cannot_be_synced() {
    let place = Place::new();
    let made = place.open(Linux::default()).hello().unwrap();
    let is_told = (0..100).any(|calls| {
        let home = place.open(meddler::Meddler::new(Lacks::default()));
        home.sys.after(calls, meddler::Event::Failure(rustix::io::Errno::INVAL));
        let told = home.hello().unwrap().token;
        home.sys.failed_syncs() == 1 && told == made.token
    });
    assert!(is_told);
}

/// Somebody empties `~/.cache` while the agent runs: the account stays the one that it was.
#[test]
fn a_token_that_was_removed_is_put_back() {
    let place = Place::new();
    let home = place.open(Linux::default());
    let first = home.hello().unwrap();
    std::fs::remove_dir_all(place.path(".cache")).unwrap();
    home.claim(7, 1, vec![]).unwrap().unwrap();
    let next = place.open(Linux::default()).hello().unwrap();
    assert!(next.token == first.token && !next.token_is_new);
    std::fs::remove_dir_all(place.path(".cache")).unwrap();
    let again = home.hello().unwrap();
    assert!(again.token == first.token && !again.token_is_new);
}

/// Nobody was there to put the token back: it is the same account all the same. Another home directory is another place,
/// also where it has taken the name and the number of the first one, and so is the machine after its next boot.
#[test]
fn an_account_without_its_token_is_in_the_same_place() {
    let place = Place::new();
    let hello = || place.open(Linux::default()).hello().unwrap();
    let first = hello();
    assert!(first.place.is_some(), "/proc tells, and the file system keeps births");
    std::fs::remove_dir_all(place.path(".cache")).unwrap();
    let second = hello();
    assert!(second.token != first.token && second.is_in_the_same_place(&first));
    let other = Hello { uid: first.uid + 1, ..first.clone() };
    assert!(!second.is_in_the_same_place(&other));
    let unknown = Hello { place: None, ..first.clone() };
    assert!(!unknown.is_in_the_same_place(&unknown));
    let restarted = place.open(meddler::Meddler::restarted(Default::default())).hello().unwrap();
    assert!(restarted.place.is_some() && !restarted.is_in_the_same_place(&first));
    let dir = place.path("");
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::create_dir(&dir).unwrap();
    assert!(!hello().is_in_the_same_place(&first));
}

#[test]
fn large_directories_are_read_once() {
    let place = Place::new();
    for n in 0..3000 {
        place.write(&format!("w/{n}"), b"");
    }
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let home = place.open(Linux::default());
    let mut after = None;
    let mut count = 0;
    loop {
        let page = home.list(&at("w"), after.as_ref(), 100).unwrap();
        count += page.entries.len();
        let Some(last) = page.entries.last() else { break };
        after = Some(last.name.clone());
    }
    assert_eq!(count, 3000);
    assert_eq!(lock(&home.listings).len(), 1);
    place.write("w/new", b"");
    let page = home.list(&at("w"), Some(&name("9999")), 10).unwrap();
    assert_eq!(page.entries[0].name, name("new"), "a change is seen at once");
}

#[test]
fn paths_may_be_longer_than_the_kernel_takes() {
    for openat2 in [false, true] {
        let place = Place::new();
        let home = place.open(Linux::without(Lacks { openat2, rename_flags: false }));
        let long = "d".repeat(250);
        let mut path = HomePath::parse(b"w").unwrap();
        for _ in 0..25 {
            let dir = Loc { path: path.clone(), id: None };
            done(&home, Op::Create { dir, name: name(&long), new: New::Dir, mode: 0o755 });
            path.push(&name(&long));
        }
        let dir = Loc { path: path.clone(), id: None };
        done(&home, Op::Create { dir: dir.clone(), name: name("f"), new: New::File, mode: 0o644 });
        let file = Loc { path: path.join(&name("f")), id: None };
        done(
            &home,
            Op::Write {
                file: file.clone(),
                base: None,
                pieces: vec![Piece::Data(0, Payload::Inline(Bytes::from_static(b"deep")))],
            },
        );
        assert_eq!(home.read(&file, 0, 9).unwrap().data, &b"deep"[..]);
        assert_eq!(home.list(&dir, None, 9).unwrap().entries.len(), 1);
    }
}

#[test]
fn a_rewrite_leaves_directories_and_attributes_alone() {
    let place = Place::new();
    let home = place.open(Linux::default());
    place.write("w/f", b"base content");
    let file = std::fs::File::open(place.path("w/f")).unwrap();
    file.set_permissions(PermissionsExt::from_mode(0o6640)).unwrap();
    rustix::fs::fsetxattr(&file, "user.note", b"kept", rustix::fs::XattrFlags::empty()).unwrap();
    drop(file);
    let before = std::fs::metadata(place.path("w")).unwrap();
    let top = std::fs::metadata(&place.root).unwrap();
    let old = home.stat(&at("w/f")).unwrap().attr;
    let done = done(&home, write("w/f", Some(old.version()), 0, b"ours"));
    let new = done.attr.unwrap();
    assert_eq!((new.mode, new.mtime, new.size), (0o640, THEN, 12));
    assert_ne!(new.id, old.id, "by exchange");
    let mut note = [0; 9];
    let len = rustix::fs::getxattr(place.path("w/f"), "user.note", &mut note[..]).unwrap();
    assert_eq!(&note[..len], b"kept");
    let after = std::fs::metadata(place.path("w")).unwrap();
    assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()));
    assert_eq!(place.names("w"), ["f"]);
    assert!(top.mtime() <= std::fs::metadata(&place.root).unwrap().mtime());
    assert_eq!(home.stat(&Loc { id: Some(old.id), ..at("w/f") }).unwrap().attr.id, new.id);
}

#[test]
fn staging_elsewhere_leaves_no_trace_either() {
    let place = Place::new();
    let nowhere = place.path("none");
    let home = Posix::over(Linux::default(), bytes(&place.root)).unwrap().with_home_dir(bytes(&nowhere));
    place.write("w/f", b"base content");
    let times = |path: &str| {
        let m = std::fs::metadata(place.path(path)).unwrap();
        (m.mtime(), m.mtime_nsec())
    };
    let before = (times(""), times("w"));
    let old = version(&home, "w/f");
    assert_ne!(done(&home, write("w/f", Some(old), 0, b"ours")).attr.unwrap().id, old.id);
    assert_eq!((times(""), times("w")), before);
    assert_eq!(place.names(""), ["w"]);
    assert_eq!(place.read("w/f"), b"ours content");
}

#[test]
fn a_staging_directory_is_not_listed_and_a_lookalike_is() {
    let place = Place::new();
    let home = place.open(Linux::default());
    // One that is being made or removed has no marker.
    let bare = "w/.trellis-stage-0123456789abcdef-0123456789abcdef-01234567";
    let with_more = "w/.trellis-stage-1123456789abcdef-0123456789abcdef-01234567";
    for dir in ["w/.trellis-stage-1", "w/.trellis-stage-2", bare, with_more] {
        std::fs::create_dir(place.path(dir)).unwrap();
        std::fs::set_permissions(place.path(dir), PermissionsExt::from_mode(0o700)).unwrap();
    }
    place.write("w/.trellis-stage-1/.trellis-staging", b"");
    place.write(&format!("{with_more}/somebody's"), b"");
    let page = home.list(&at("w"), None, 10).unwrap();
    let names: Vec<_> = page.entries.iter().map(|e| e.name.to_string()).collect();
    assert_eq!(names, [&with_more[2..], ".trellis-stage-2"]);
}

#[test]
fn holes_stay_holes() {
    let place = Place::new();
    let home = place.open(Linux::default());
    let file = std::fs::File::create(place.path("w/f")).unwrap();
    file.set_len(32 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", (32 << 20) - 3).unwrap();
    drop(file);
    let old = version(&home, "w/f");
    let new = done(&home, write("w/f", Some(old), 100, b"ours")).attr.unwrap();
    assert!(new.id != old.id && new.size == 32 << 20);
    assert!(new.used < 1 << 20, "{} bytes allocated", new.used);
    let data = place.read("w/f");
    assert_eq!((&data[100..104], &data[data.len() - 3..]), (&b"ours"[..], &b"end"[..]));
}

#[test]
fn a_batch_sets_directory_times_last() {
    let place = Place::new();
    let home = place.open(Linux::default());
    let second = Time { sec: THEN.sec + 5, nsec: 5 };
    let set = SetAttr { mtime: Some(crate::SetTime::At(second)), ..SetAttr::default() };
    let mkdir = Op::Create { dir: at("w"), name: name("d"), new: New::Dir, mode: 0o755 };
    let ops = vec![
        placed(mkdir),
        placed(create("w/d", "f", 0o444)),
        placed(write("w/d/f", None, 0, b"read only, and yet written")),
        placed(Op::SetAttr { object: at("w/d"), base: None, set }),
    ];
    let outcomes = home.apply(ops).unwrap();
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Done(_))), "{outcomes:?}");
    assert_eq!(version(&home, "w/d").mtime, second);
    assert_eq!(version(&home, "w").mtime, THEN);
    let Outcome::Done(first) = &outcomes[0] else { panic!() };
    assert_eq!(first.attr.unwrap().mtime, second, "outcomes show the state after the batch");
}

#[test]
fn a_linked_file_is_written_in_place() {
    let place = Place::new();
    let home = place.open(Linux::default());
    place.write("w/a", b"base content");
    std::fs::hard_link(place.path("w/a"), place.path("w/b")).unwrap();
    let old = version(&home, "w/a");
    let new = done(&home, write("w/a", Some(old), 0, b"ours")).attr.unwrap();
    assert_eq!((new.id, new.nlink, new.mtime), (old.id, 2, THEN));
    assert_eq!(place.read("w/b"), b"ours content");
}

#[test]
fn a_batch_of_many_files_is_synced_together() {
    let place = Place::new();
    let home = place.open(meddler::Meddler::new(Lacks::default()));
    let mut ops = Vec::new();
    for n in 0..500 {
        ops.push(placed(create("w", &format!("f{n}"), 0o644)));
        ops.push(placed(write(&format!("w/f{n}"), None, 0, format!("content {n}").as_bytes())));
    }
    let outcomes = home.apply(ops).unwrap();
    assert!(outcomes.len() == 1000 && outcomes.iter().all(|o| matches!(o, Outcome::Done(_))));
    assert_eq!(place.read("w/f499"), b"content 499");
    let syncs = home.sys.syncs();
    assert!((500..520).contains(&syncs), "{syncs} syncs: each file once, the directory once for many");
}

#[test]
fn leftovers_are_shown_after_a_day_and_swept_in_the_cache() {
    let place = Place::new();
    let home = place.open(Linux::default());
    home.hello().unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 86_400);
    for dir in ["w/.trellis-stage-1", ".cache/trellis/.trellis-stage-1", ".cache/trellis/.trellis-stage-2"] {
        std::fs::create_dir(place.path(dir)).unwrap();
        std::fs::set_permissions(place.path(dir), PermissionsExt::from_mode(0o700)).unwrap();
        place.write(&format!("{dir}/.trellis-staging"), b"");
        place.write(&format!("{dir}/old-1"), b"left");
        if dir.ends_with('1') {
            std::fs::File::open(place.path(dir)).unwrap().set_modified(old).unwrap();
        }
    }
    home.hello().unwrap();
    assert_eq!(place.names(".cache/trellis"), [".trellis-stage-2", "token"]);
    assert_eq!(home.list(&at("w"), None, 10).unwrap().entries.len(), 1);
    assert!(home.list(&at(".cache/trellis"), None, 10).unwrap().entries.len() == 1, "one is in use");
}

#[test]
fn who_leaves_begins_nothing_more() {
    let place = Place::new();
    let home = place.open(Linux::default());
    home.leave();
    let ops = ["a", "b"].map(|new| placed(create("", new, 0o644)));
    assert_eq!(home.apply(ops.into()).unwrap(), []);
    assert!(place.names("").iter().all(|name| name != "a" && name != "b"));
}
