//! What is left of an append, and what it costs to know that.

use super::claims::{GATEWAY, VOLUME, again, all_done, begin, numbers};
use super::meddler::{Event, Meddler};
use super::power::{appended, noted};
use super::*;

/// A part of what was added may be on the disk and an earlier one not: there are zeros then, and nobody else's bytes.
#[test]
fn what_a_power_cut_left_out_of_an_append_is_done_again() {
    for (left, is_ours) in [
        (&b"grows\0\0and grows"[..], true),
        (b"grows, and\0\0\0\0", true),
        (b"grows\0\0and theirs", false),
        (b"grows\0\0and grows\0\0", false),
        (b"their\0\0and grows", false),
    ] {
        let place = begin();
        let append = appended(&place, noted()).unwrap();
        place.write("w/log", left);
        let next = place.open(Meddler::restarted(Lacks::default()));
        next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&append))).unwrap().unwrap();
        let outcome = next.apply(vec![append]).unwrap().remove(0);
        assert_eq!(matches!(outcome, Outcome::Done(_)), is_ours, "{outcome:?}");
        assert_eq!(place.read("w/log"), if is_ours { b"grows, and grows" } else { left });
    }
}

/// A process that was killed wrote the start of what it added, and nothing behind that.
#[test]
fn zeros_in_what_was_added_are_another_programs_where_no_power_failed() {
    let place = begin();
    let append = appended(&place, noted()).unwrap();
    place.write("w/log", b"grows\0\0and grows");
    let next = place.open(Meddler::new(Lacks::default()));
    next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&append))).unwrap().unwrap();
    let outcome = next.apply(vec![append]).unwrap().remove(0);
    assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?}");
}

/// What a burst of small files costs: the first write to a new file needs no sync of the log.
#[test]
fn new_files_are_made_with_one_sync_of_the_log_for_all_of_them() {
    let place = begin();
    let home = place.open(Meddler::new(Lacks::default()));
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let new = |n: usize| [create("w", &format!("n{n}"), 0o644), write(&format!("w/n{n}"), None, 0, b"first")];
    let ops: Vec<Placed> = (0..40).flat_map(new).map(placed).collect();
    home.apply(vec![placed(create("w", "first", 0o644))]).unwrap();
    let before = home.sys.syncs();
    all_done(&home.apply(ops.clone()).unwrap(), &ops, "new");
    assert_eq!(home.sys.syncs() - before, 40 + 2, "each file, their directory and the log");
    let grown = [5, 10].map(|at| placed(write("w/n0", None, at, b"later")));
    let before = home.sys.syncs();
    all_done(&home.apply(grown.to_vec()).unwrap(), &grown, "grown");
    assert_eq!(home.sys.syncs() - before, 2 + 2, "before each, and at the end the file and the log");
}

/// Whatever call it dies at.
#[test]
fn an_append_that_a_killed_agent_was_taking_back_is_done_again() {
    let mut renewed = 0;
    for calls in 0.. {
        let place = begin();
        let home = place.open(Meddler::new(Lacks::default()));
        let base = version(&home, "w/log");
        let append = placed(write("w/log", Some(base), 5, b", and grows"));
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        home.sys.refuse_appends();
        home.sys.after(calls, Event::Death);
        let _ = home.apply(vec![append.clone()]);
        if !home.sys.happened() {
            break;
        }
        drop(home);
        let next = place.open(Meddler::new(Lacks::default()));
        renewed += usize::from(!version(&next, "w/log").same_content(&base));
        let known = next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&append))).unwrap().unwrap();
        let outcome = quiet::looked_at(&next, again(&[append], &known.begun).remove(0));
        assert!(matches!(outcome, Outcome::Done(_)), "death at call {calls}: {outcome:?}");
        assert_eq!(place.read("w/log"), b"grows, and grows");
    }
    assert!(renewed > 0, "no death left a new time");
}

/// What has another content, or is too long to be remembered, may be theirs.
#[test]
fn a_new_time_may_be_all_that_a_killed_agent_left_of_an_append() {
    let long = "grows".repeat(limits::IMAGE_MAX as usize / 4);
    for (before, left, is_ours) in
        [("grows", "grows", true), ("grows", "their", false), (&long, &long, false)]
    {
        let place = begin();
        place.write("w/log", before.as_bytes());
        let append = appended(&place, noted()).unwrap();
        place.write("w/log", left.as_bytes());
        let next = place.open(Meddler::new(Lacks::default()));
        next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&append))).unwrap().unwrap();
        let outcome = next.apply(vec![append]).unwrap().remove(0);
        assert_eq!(matches!(outcome, Outcome::Done(_)), is_ours, "{outcome:?}");
        let wanted = if is_ours { format!("{left}, and grows") } else { left.to_owned() };
        assert!(place.read("w/log") == wanted.as_bytes(), "{outcome:?}");
    }
}

/// Two writes to a new file, by an agent that dies before its call number `calls`.
fn two_writes(calls: usize) -> (Place, Vec<Placed>) {
    let place = begin();
    let made = placed(create("w", "made", 0o644));
    let writes = [&b"FIRST"[..], b"AGAIN, and more"].map(|bytes| placed(write("w/made", None, 0, bytes)));
    let ops = [vec![made], writes.to_vec()].concat();
    let home = place.open(Meddler::new(Lacks::default()));
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    home.sys.after(calls, Event::Death);
    let _ = home.apply(ops.clone());
    assert!(home.sys.happened(), "all is done");
    drop(home);
    (place, ops)
}

/// The first of two writes to a new file is done again over what a power cut left of both, by an agent that dies, too. What
/// another program wrote to it then is not taken for a part of that.
#[test]
fn what_is_done_again_over_a_later_write_may_be_interrupted_once_more() {
    let has = |place: &Place, bytes: &[u8]| std::fs::read(place.path("w/made")).is_ok_and(|had| had == bytes);
    let cut = (0..).find(|calls| has(&two_writes(*calls).0, b"AGAIN, and more")).unwrap();
    let mut written = 0;
    for (calls, theirs) in (0..).flat_map(|calls| [(calls, false), (calls, true)]) {
        let (place, ops) = two_writes(cut);
        let next = place.open(Meddler::restarted(Lacks::default()));
        let empty = Version { size: 0, mtime: ops[0].time, ..version(&next, "w/made") };
        let first = write("w/made", Some(empty), 0, b"FIRST");
        let first = Placed { resent: true, op: first, ..ops[1].clone() };
        let known = next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
        assert_eq!(known.torn, numbers(&ops[1..]));
        next.sys.after(calls, Event::Death);
        let _ = next.apply(vec![first.clone()]);
        if !next.sys.happened() {
            break;
        }
        drop(next);
        let time = version(&place.open(Meddler::new(Lacks::default())), "w/made").mtime;
        if !has(&place, b"FIRST, and more") || time == first.time {
            continue;
        }
        written += 1;
        if theirs {
            place.write("w/made", b"FIRST, and MORE");
        }
        let last = place.open(Meddler::restarted_before(Lacks::default()));
        last.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
        let outcome = last.apply(vec![first]).unwrap().remove(0);
        assert_eq!(matches!(outcome, Outcome::Done(_)), !theirs, "death at call {calls}: {outcome:?}");
        assert!(has(&place, if theirs { b"FIRST, and MORE" } else { b"FIRST, and more" }));
    }
    assert!(written > 1, "only {written} times");
}
