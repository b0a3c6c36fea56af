//! What becomes of operations of which nothing is known after a power cut at the home.

use super::claims::{GATEWAY, VOLUME, begin, numbers};
use super::meddler::{Event, Meddler};
use super::power::{booted, kept};
use super::*;
use std::io::Write;

/// It misses what it moved itself: the answer may be lost, and then nobody would look.
#[test]
fn what_was_moved_before_a_power_cut_is_not_denied_because_its_old_name_is_gone() {
    let place = begin();
    let home = place.open(booted(0));
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let mkdir = Op::Create { dir: at("w"), name: name("c"), new: New::Dir, mode: 0o755 };
    let rename = Op::Rename {
        from: at("w"),
        name: name("c"),
        object: at("w/c"),
        to: at("w"),
        new_name: name("d"),
        replaced: None,
    };
    let other = write("w/f", Some(version(&home, "w/f")), 0, b"BASE");
    let ops = [mkdir, rename, other].map(placed);
    home.apply(ops[..2].to_vec()).unwrap();
    drop(home);
    std::fs::remove_file(kept(&place, "log")).unwrap();
    let next = place.open(booted(1));
    let known = next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
    assert_eq!((known.unknown, known.restarted), (numbers(&ops), true));
    let resent: Vec<Placed> = ops.iter().map(|op| Placed { resent: true, ..op.clone() }).collect();
    assert!(matches!(one(&next, resent[1].clone()), Outcome::Refused(ErrorKind::NotFound)));
    assert!(matches!(one(&next, resent[2].clone()), Outcome::Done(_)));
    drop(next);
    for _ in 0..2 {
        let after = place.open(booted(1));
        let known = after.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
        assert_eq!((known.unknown, known.restarted), (numbers(&ops[..2]), false));
    }
}

/// It meets what it put there itself, and knows it by its time and its bytes: also when the answer is lost.
#[test]
fn what_was_put_there_before_a_power_cut_is_not_denied_because_it_is_met() {
    let place = begin();
    let home = place.open(booted(0));
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let old = version(&home, "w/f");
    let mut op = write("w/f", Some(old), 0, b"BASE");
    if let Op::Write { file, .. } = &mut op {
        file.id = Some(old.id);
    }
    let ops = [placed(op)];
    home.apply(ops.to_vec()).unwrap();
    assert_ne!(version(&home, "w/f").id, old.id, "a copy has its place");
    drop(home);
    std::fs::remove_file(kept(&place, "log")).unwrap();
    let next = place.open(booted(1));
    next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap();
    let again = Placed { resent: true, ..ops[0].clone() };
    let left = version(&next, "w/f");
    let outcome = one(&next, again.clone());
    assert!(
        matches!(&outcome, Outcome::Done(done) if done.attr.is_some_and(|a| a.id == left.id)),
        "{outcome:?}"
    );
    drop(next);
    for _ in 0..2 {
        let after = place.open(booted(1));
        let known = after.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
        assert_eq!((known.begun, known.unknown), (numbers(&ops), vec![]));
        assert!(matches!(one(&after, again.clone()), Outcome::Done(_)));
        assert_eq!(place.read("w/f"), b"BASE content");
    }
}

/// A file that a write was to follow may have a part of that, as long as nobody else has written to it since.
#[test]
fn what_another_program_adds_to_a_new_file_after_a_power_cut_is_not_ours() {
    let mut met = 0;
    for (calls, theirs) in (0..100).flat_map(|calls| [(calls, false), (calls, true)]) {
        let place = begin();
        let dying = place.open(Meddler::new(Lacks::default()));
        let ops = [placed(create("w", "new", 0o644)), placed(write("w/new", None, 0, b"ours"))];
        dying.claim(GATEWAY, VOLUME, vec![]).unwrap();
        dying.sys.after(calls, Event::Death);
        let _ = dying.apply(ops.to_vec());
        drop(dying);
        let is_torn = std::fs::read(place.path("w/new")).is_ok_and(|content| !content.is_empty());
        if !is_torn {
            continue;
        }
        place.set_mtime("w/new", THEN);
        let next = place.open(Meddler::restarted_before(Lacks::default()));
        let known = next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
        if !known.torn.contains(&ops[1].id.seq) {
            continue;
        }
        met += 1;
        if theirs {
            let mut file = std::fs::File::options().append(true).open(place.path("w/new")).unwrap();
            file.write_all(b"theirs").unwrap();
        }
        let again = Placed { resent: true, ..ops[0].clone() };
        let outcome = one(&next, again);
        let when = format!("{outcome:?} after {calls} calls, theirs: {theirs}");
        assert_eq!(matches!(outcome, Outcome::Conflict(Some(_))), theirs, "{when}");
        assert_eq!(matches!(outcome, Outcome::Done(_)), !theirs, "{when}");
    }
    assert!(met > 2, "{met} times");
}
