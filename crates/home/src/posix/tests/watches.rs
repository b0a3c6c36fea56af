//! Watched directories, on the kernel's real inotify.

use super::meddler::Meddler;
use super::*;
use crate::op::SetAttr;
use crate::{Changed, Mark};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

const MARK: Mark = Mark::Given(77);

/// A home whose directory `w` is watched, and has a file `last`.
fn watched(place: &Place) -> Arc<Posix> {
    watched_on(Linux::default(), place)
}

fn watched_on<S: Sys>(sys: S, place: &Place) -> Arc<Posix<S>> {
    place.write("w/last", b"");
    let home = Arc::new(place.open(sys));
    list(&home);
    home
}

fn list<S: Sys>(home: &Posix<S>) -> Page {
    let (page, watched) = home.watch(&at("w"), 100, Some(77)).unwrap();
    assert!(watched);
    page
}

/// The next change, or a panic instead of waiting for ever.
fn next<S: Sys>(home: &Arc<Posix<S>>) -> Changed {
    let (sender, receiver) = std::sync::mpsc::channel();
    let home = home.clone();
    std::thread::spawn(move || sender.send(home.changes().unwrap()));
    let mut news = receiver.recv_timeout(Duration::from_secs(10)).expect("nothing is told").unwrap();
    assert_eq!((news.len(), news[0].mark), (1, MARK));
    news.remove(0)
}

/// All names that are told until that of the file `last`, which is changed now; `.` for the directory itself.
fn told<S: Sys>(home: &Arc<Posix<S>>, place: &Place) -> BTreeSet<String> {
    place.write("w/last", b"x");
    let mut all = BTreeSet::new();
    loop {
        let changed = next(home);
        assert!(!changed.all, "{changed:?}");
        if changed.itself {
            all.insert(".".into());
        }
        all.extend(changed.names.iter().map(ToString::to_string));
        if all.remove("last") {
            return all;
        }
    }
}

#[test]
fn what_another_program_does_is_told_by_name() {
    type Act = fn(&Place);
    let acts: [(&[&str], Act); 10] = [
        (&["a"], |p| p.write("w/a", b"other")),
        (&["a"], |p| std::fs::File::options().append(true).open(p.path("w/a")).unwrap().set_len(9).unwrap()),
        (&["a"], |p| std::fs::set_permissions(p.path("w/a"), PermissionsExt::from_mode(0o600)).unwrap()),
        (&["a"], |p| p.utimes("w/a")),
        (&[".", "new"], |p| p.write("w/new", b"")),
        (&[".", "dir"], |p| std::fs::create_dir(p.path("w/dir")).unwrap()),
        (&[".", "a"], |p| std::fs::remove_file(p.path("w/a")).unwrap()),
        (&[".", "b"], |p| std::fs::rename(p.path("w/b"), p.path("b")).unwrap()),
        (&[".", "a", "b"], |p| std::fs::rename(p.path("w/a"), p.path("w/b")).unwrap()),
        (&["."], |p| p.chmod("w")),
    ];
    for (i, (names, act)) in acts.into_iter().enumerate() {
        let place = Place::new();
        place.write("w/a", b"one");
        place.write("w/b", b"two");
        let home = watched(&place);
        act(&place);
        assert_eq!(told(&home, &place), names.iter().map(ToString::to_string).collect(), "act {i}");
    }
}

/// The kernel tells of no name then, but of the mount table.
#[test]
fn what_is_mounted_anew_for_reading_alone_is_told() {
    let place = Place::new();
    let home = watched_on(Meddler::new(Lacks::default()), &place);
    for read_only in [true, false] {
        home.sys.remount(read_only);
        assert!(next(&home).all, "{read_only}");
        list(&home);
    }
}

/// The gateway need not believe the second listing, which may be the answer to an older question than the first one's.
#[test]
fn what_another_program_did_before_a_listing_is_told_after_it() {
    let acts: [fn(&Place); 3] = [
        |p| p.chmod("w"),
        |p| p.utimes("w"),
        |p| {
            let note = rustix::fs::setxattr(p.path("w"), "user.note", b"x", rustix::fs::XattrFlags::empty());
            note.unwrap();
        },
    ];
    for (i, act) in acts.into_iter().enumerate() {
        let place = Place::new();
        let home = watched(&place);
        act(&place);
        list(&home);
        assert_eq!(told(&home, &place), BTreeSet::from([".".into()]), "act {i}");
        // And what our own operation then leaves is what it says.
        done(&home, create("w", "new", 0o640));
        list(&home);
        assert_eq!(told(&home, &place), BTreeSet::new(), "act {i}");
    }
}

/// Of a mode that was changed before, an operation of ours that changes the directory says nothing.
#[test]
fn an_operation_of_ours_does_not_hide_what_another_program_did_before_a_listing() {
    let place = Place::new();
    let home = watched(&place);
    place.chmod("w");
    list(&home);
    done(&home, create("w", "new", 0o640));
    assert_eq!(told(&home, &place), BTreeSet::from([".".into()]));
}

#[test]
fn what_another_program_does_in_the_tick_of_our_own_operation_is_told() {
    type Act = fn(&Place);
    let acts: [(&[&str], Act); 5] = [
        (&[], |_| {}),
        (&["."], |p| p.utimes("w")),
        (&["."], |p| p.chmod("w")),
        // Which of the two the name came by is not told apart.
        (&[".", "new"], |p| p.chmod("w/new")),
        (&[".", "new"], |p| p.utimes("w/new")),
    ];
    for (i, (names, act)) in acts.into_iter().enumerate() {
        let place = Place::new();
        let sys = meddler::Meddler::new(Lacks::default());
        sys.stop_the_clock();
        let home = watched_on(sys, &place);
        done(&home, create("w", "new", 0o640));
        act(&place);
        assert_eq!(told(&home, &place), names.iter().map(ToString::to_string).collect(), "act {i}");
    }
}

#[test]
fn a_name_is_told_once_until_the_directory_is_listed_again() {
    let place = Place::new();
    place.write("w/log", b"");
    let home = watched(&place);
    let grow = || place.write("w/log", b"more");
    grow();
    assert_eq!(told(&home, &place), BTreeSet::from(["log".into()]));
    // That it went is more than that it was changed.
    std::fs::remove_file(place.path("w/log")).unwrap();
    assert_eq!(next(&home), Changed { mark: MARK, all: false, itself: true, names: vec![name("log")] });
    grow();
    std::thread::sleep(Duration::from_millis(50));
    place.write("w/other", b"");
    assert_eq!(next(&home).names, [name("other")]);
    list(&home);
    grow();
    assert_eq!(next(&home).names, [name("log")]);
}

#[test]
fn too_many_names_are_the_whole_directory_and_end_its_watch() {
    let place = Place::new();
    let home = watched(&place);
    for i in 0..=crate::limits::agent::WATCH_NAMES {
        place.write(&format!("w/{i}"), b"");
    }
    while !next(&home).all {}
    place.write("w/unheard", b"");
    list(&home);
    place.write("w/heard", b"");
    let mut names = next(&home).names;
    // An event may have been under way when the watch ended.
    names.retain(|n| n != &name("unheard"));
    assert_eq!(names, [name("heard")]);
}

#[test]
fn a_directory_that_goes_away_or_elsewhere_is_told_as_a_whole() {
    let acts: [fn(&Place); 2] = [
        |p| std::fs::remove_dir_all(p.path("w")).unwrap(),
        |p| std::fs::rename(p.path("w"), p.path("v")).unwrap(),
    ];
    for act in acts {
        let place = Place::new();
        let home = watched(&place);
        act(&place);
        let whole = Changed { mark: MARK, all: true, ..Changed::default() };
        // Its file may be told to have gone before.
        assert!(next(&home) == whole || next(&home) == whole);
    }
}

#[test]
fn our_own_operations_are_no_news() {
    let place = Place::new();
    place.write("w/old", b"one");
    place.write("w/gone", b"two");
    place.write("w/from", b"three");
    let home = watched(&place);
    let (sender, news) = std::sync::mpsc::channel();
    let listener = home.clone();
    std::thread::spawn(move || while sender.send(listener.changes().unwrap().unwrap()).is_ok() {});
    done(&home, create("w", "new", 0o640));
    done(&home, write("w/new", Some(version(&home, "w/new")), 0, b"content"));
    done(&home, write("w/old", Some(version(&home, "w/old")), 0, b"another"));
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    done(&home, Op::SetAttr { object: at("w/old"), base: None, set });
    done(&home, remove("w", "gone", Some(version(&home, "w/gone"))));
    let (from, to) = (at("w"), at("w"));
    let rename = Op::Rename {
        from,
        name: name("from"),
        object: at("w/from"),
        to,
        new_name: name("to"),
        replaced: None,
    };
    done(&home, rename);
    done(&home, Op::Create { dir: at("w"), name: name("dir"), new: New::Dir, mode: 0o755 });
    done(&home, create("w/dir", "inside", 0o640));
    assert_eq!(news.recv_timeout(Duration::from_millis(300)).ok(), None);
    // What another program makes of it is.
    let mode = std::fs::metadata(place.path("w")).unwrap().permissions();
    std::fs::set_permissions(place.path("w"), mode).unwrap();
    let itself = Changed { mark: MARK, all: false, itself: true, names: vec![] };
    assert_eq!(news.recv_timeout(Duration::from_secs(10)).unwrap(), [itself]);
    place.write("w/new", b"theirs!");
    place.write("w/gone", b"back");
    let mut heard = BTreeSet::new();
    while heard.len() < 2 {
        let changed = news.recv_timeout(Duration::from_secs(10)).unwrap();
        heard.extend(changed.into_iter().flat_map(|c| c.names));
    }
    assert_eq!(heard, BTreeSet::from([name("gone"), name("new")]));
}

#[test]
fn another_process_goes_on_with_the_watches() {
    let place = Place::new();
    place.write("w/unread", b"");
    place.write("w/read", b"");
    let first = watched(&place);
    place.write("w/read", b"x");
    assert_eq!(next(&first).names, [name("read")]);
    place.write("w/unread", b"x");
    let given = || place.open(Linux::default()).give_watches();
    assert!(given().is_none(), "it has none");

    let (watches, kept) = first.give_watches().unwrap();
    assert!(first.give_watches().is_none() && first.changes().is_err() && !first.tells());
    assert!(!first.watch(&at("w"), 100, Some(77)).unwrap().1);
    let copy = || (watches.try_clone().unwrap(), kept.clone());
    let taken = |home: &Posix, heard| home.take_watches(copy().0, copy().1, heard);

    let second = Arc::new(place.open(Linux::default()));
    assert_eq!(taken(&second, 2), None, "so much was not told");
    let missed = taken(&second, 0).unwrap();
    assert_eq!(missed.iter().flat_map(|c| &c.names).collect::<Vec<_>>(), [&name("read")]);
    assert_eq!(taken(&second, 0), None, "it has some by now");
    assert!(second.tells());
    place.write("w/read", b"is told once");
    place.write("w/new", b"");
    assert_eq!(told(&second, &place), BTreeSet::from([".".into(), "new".into(), "unread".into()]));
    list(&second);
    place.write("w/read", b"told after it was listed");
    assert_eq!(told(&second, &place), BTreeSet::from(["read".into()]));

    assert_eq!(taken(&place.open(Linux::default()), 1), Some(vec![]), "all was heard");
    let other = Posix::open(bytes(&place.path("w"))).unwrap().with_home_dir(bytes(&place.root));
    assert_eq!(taken(&other, 0), None, "the watches are of another tree");
}

#[test]
fn what_one_process_did_not_hear_no_other_goes_on_with() {
    let place = Place::new();
    place.write("w/a", b"");
    place.write("w/b", b"");
    let first = watched(&place);
    place.write("w/b", b"x");
    next(&first);
    overflow(&first, &place);
    let (watches, kept) = first.give_watches().unwrap();
    let second = place.open(Linux::default());
    let all = kept.told;
    assert_eq!(second.take_watches(watches.try_clone().unwrap(), kept.clone(), all - 1), None);
    assert_eq!(second.take_watches(watches, kept, all), Some(vec![]), "the client has heard of it");
}

/// More happens than the kernel remembers.
fn overflow(home: &Arc<Posix>, place: &Place) {
    let queue = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    for i in 0..queue.trim().parse::<u32>().unwrap() {
        for name in ["w/a", "w/b"] {
            std::fs::set_permissions(place.path(name), PermissionsExt::from_mode(0o600 | i & 0o77)).unwrap();
        }
    }
    while home.changes().unwrap().is_some() {}
}

#[test]
fn a_kernel_that_lost_events_says_so_and_watches_nothing_any_more() {
    let place = Place::new();
    place.write("w/a", b"");
    place.write("w/b", b"");
    let home = watched(&place);
    overflow(&home, &place);
    place.write("w/unheard", b"");
    list(&home);
    place.write("w/heard", b"");
    assert_eq!(told(&home, &place), BTreeSet::from([".".into(), "heard".into()]));
}

#[test]
fn the_kernels_own_files_are_not_watched() {
    let place = Place::new();
    let home = Posix::open(b"/").unwrap().with_home_dir(bytes(&place.root));
    assert!(!home.watch(&at("proc"), 10, Some(77)).unwrap().1);
}

#[test]
fn nothing_falls_between_the_listing_and_the_watch() {
    let place = Arc::new(Place::new());
    let maker = {
        let place = place.clone();
        std::thread::spawn(move || (0..2000).for_each(|i| place.write(&format!("w/{}", i % 20), &[b'x'; 3])))
    };
    let home = Arc::new(place.open(Linux::default()));
    let mut known = BTreeSet::new();
    while known.len() < 20 {
        let page = list(&home);
        known.extend(page.entries.iter().map(|e| e.name.to_string()));
        // What is not there yet is told.
        if known.len() < 20 {
            let changed = next(&home);
            known.extend(changed.names.iter().map(ToString::to_string));
        }
    }
    maker.join().unwrap();
}
