//! An agent dies at any call of its machine, or goes on after another one has taken over: each operation of what was sent
//! is done once, and nothing of ours is left.

use super::meddler::{Event, Meddler};
use super::*;
use crate::Claimed;
use crate::op::SetAttr;
use rustix::io::Errno;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

pub(super) const GATEWAY: u64 = 7;
pub(super) const VOLUME: u32 = 1;

/// The tree that every run begins with.
pub(super) fn begin() -> Place {
    let place = Place::new();
    place.write("w/f", b"base content");
    place.write("w/over", b"to be replaced");
    place.write("w/moves", b"moves");
    place.write("w/gone", b"to be removed");
    place.write("w/linked", b"has two names");
    std::fs::hard_link(place.path("w/linked"), place.path("w/second")).unwrap();
    place.write("w/log", b"grows");
    place.write("w/sparse", b"gets a hole");
    std::fs::create_dir_all(place.path(".cache/trellis")).unwrap();
    place
}

pub(super) fn object(home: &Posix, path: &str) -> Loc {
    Loc { id: Some(home.stat(&at(path)).unwrap().attr.id), ..at(path) }
}

/// A move over a file that has another name, too.
fn over_second(home: &Posix) -> Op<Loc, Payload> {
    Op::Rename {
        from: at("w"),
        name: name("moves"),
        object: object(home, "w/moves"),
        to: at("w"),
        new_name: name("second"),
        replaced: Some((object(home, "w/second"), None)),
    }
}

/// One operation of each kind, on the tree as it was read.
pub(super) fn batch(home: &Posix) -> Vec<Placed> {
    let version = |path| Some(version(home, path));
    let object = |path| object(home, path);
    let replaced = Some((object("w/over"), version("w/over")));
    let rename = Op::Rename {
        from: at("w"),
        name: name("moves"),
        object: object("w/moves"),
        to: at("w"),
        new_name: name("over"),
        replaced,
    };
    let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
    let mut rewrite = write("w/f", version("w/f"), 0, b"ours");
    if let Op::Write { file, pieces, .. } = &mut rewrite {
        *file = object("w/f");
        pieces.insert(0, Piece::Truncate(2));
    }
    let gone = match remove("w", "gone", version("w/gone")) {
        Op::Remove { dir, name, is_dir, base, .. } => {
            Op::Remove { dir, name, object: object("w/gone"), is_dir, base }
        }
        other => other,
    };
    let mut linked = write("w/linked", version("w/linked"), 4, b"HERE");
    if let Op::Write { pieces, .. } = &mut linked {
        // The length that it has.
        pieces.insert(0, Piece::Truncate(13));
    }
    let mut sparse = write("w/sparse", version("w/sparse"), 30, b"and more");
    if let Op::Write { pieces, .. } = &mut sparse {
        pieces.insert(0, Piece::Truncate(40));
    }
    let ops = [
        Op::Create { dir: at("w"), name: name("d"), new: New::Dir, mode: 0o755 },
        create("w/d", "new", 0o644),
        write("w/d/new", None, 0, b"content of the new one"),
        rewrite,
        Op::SetAttr { object: object("w/f"), base: None, set },
        linked,
        sparse,
        write("w/log", version("w/log"), 5, b", and grows"),
        rename,
        gone,
        Op::Link { object: object("w/f"), dir: at("w/d"), name: name("link") },
    ];
    ops.into_iter().map(placed).collect()
}

/// The numbers of operations.
pub(super) fn numbers(ops: &[Placed]) -> Vec<u64> {
    ops.iter().map(|op| op.id.seq).collect()
}

/// What is sent again when the home has told what was begun.
pub(super) fn again(ops: &[Placed], begun: &[u64]) -> Vec<Placed> {
    ops.iter().map(|op| Placed { resent: begun.contains(&op.id.seq), ..op.clone() }).collect()
}

/// What an agent that takes over does not exclude to have been executed.
fn may_be_done<S: Sys>(home: &Posix<S>, ops: &[Placed]) -> Vec<u64> {
    let known = home.claim(GATEWAY, VOLUME, numbers(ops)).unwrap().unwrap();
    known.begun.into_iter().chain(known.unknown).collect()
}

/// Everything of the tree that a user sees.
fn state(place: &Place) -> Vec<String> {
    let mut all = Vec::new();
    for dir in ["w", "w/d"] {
        for name in place.names(dir) {
            let path = place.path(&format!("{dir}/{name}"));
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            let (mode, time) = (meta.permissions().mode(), (meta.mtime(), meta.mtime_nsec()));
            let content = content.escape_ascii();
            all.push(format!("{dir}/{name} {mode:o} {} {time:?} {content}", meta.nlink()));
        }
    }
    all
}

/// Files that nobody touches keep their own times.
fn without_old_times(state: Vec<String>) -> Vec<String> {
    let ours = format!("({}, {})", THEN.sec, THEN.nsec);
    state.into_iter().filter(|line| line.contains(&ours)).collect()
}

fn nothing_is_left(place: &Place, when: &str) {
    assert_eq!(place.names(".cache/trellis"), ["volumes"], "{when}");
    let all = place.names("w").into_iter().chain(place.names("w/d"));
    let left: Vec<_> = all.filter(|name| name.contains("trellis")).collect();
    assert_eq!(left, Vec::<String>::new(), "{when}");
}

pub(super) fn all_done(outcomes: &[Outcome], ops: &[Placed], when: &str) {
    assert_eq!(outcomes.len(), ops.len(), "{when}: {outcomes:?}");
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Done(_))), "{when}: {outcomes:?}");
}

#[test]
fn whatever_call_it_dies_at_each_operation_is_done_once() {
    for lacks in [Lacks::default(), Lacks { openat2: false, rename_flags: true }] {
        let expected = {
            let place = begin();
            let home = place.open(Linux::without(lacks));
            home.claim(GATEWAY, VOLUME, vec![]).unwrap();
            let ops = batch(&home);
            all_done(&home.apply(ops.clone()).unwrap(), &ops, "undisturbed");
            nothing_is_left(&place, "undisturbed");
            state(&place)
        };
        for calls in 0.. {
            let place = begin();
            let ops = batch(&place.open(Linux::without(lacks)));
            let dying = place.open(Meddler::new(lacks));
            dying.claim(GATEWAY, VOLUME, vec![]).unwrap().unwrap();
            dying.sys.after(calls, Event::Death);
            let _ = dying.apply(ops.clone());
            let died = dying.sys.happened();
            drop(dying);
            let when = format!("{lacks:?}, death at call {calls}");
            let next = place.open(Linux::without(lacks));
            let ops = again(&ops, &may_be_done(&next, &ops));
            all_done(&next.apply(ops.clone()).unwrap(), &ops, &when);
            assert_eq!(without_old_times(state(&place)), without_old_times(expected.clone()), "{when}");
            nothing_is_left(&place, &when);
            if !died {
                assert!(calls > 200, "{calls} calls");
                break;
            }
        }
    }
}

#[test]
fn it_may_die_again_while_it_is_mended() {
    let undisturbed = {
        let place = begin();
        let home = place.open(Linux::default());
        let ops = batch(&home);
        all_done(&home.apply(ops.clone()).unwrap(), &ops, "undisturbed");
        without_old_times(state(&place))
    };
    // The first deaths are spread over the batch, the second ones over the claim and what is sent again.
    for (first, second) in (0..60).map(|n| (n * 37 % 231, n * 53 % 97)) {
        let when = format!("deaths at calls {first} and {second}");
        let place = begin();
        let ops = batch(&place.open(Linux::default()));
        let dying = place.open(Meddler::new(Lacks::default()));
        dying.claim(GATEWAY, VOLUME, vec![]).unwrap();
        dying.sys.after(first, Event::Death);
        let _ = dying.apply(ops.clone());
        drop(dying);
        let dying = place.open(Meddler::new(Lacks::default()));
        dying.sys.after(second, Event::Death);
        if let Ok(Some(known)) = dying.claim(GATEWAY, VOLUME, numbers(&ops)) {
            let _ = dying.apply(again(&ops, &known.begun));
        }
        drop(dying);
        let next = place.open(Linux::default());
        let ops = again(&ops, &may_be_done(&next, &ops));
        all_done(&next.apply(ops.clone()).unwrap(), &ops, &when);
        assert_eq!(without_old_times(state(&place)), undisturbed, "{when}");
        nothing_is_left(&place, &when);
    }
}

#[test]
fn who_was_taken_over_does_nothing_more() {
    let place = begin();
    let (old, new) = (place.open(Linux::default()), place.open(Linux::default()));
    let ops = batch(&old);
    old.claim(GATEWAY, VOLUME, vec![]).unwrap();
    all_done(&old.apply(ops[..1].to_vec()).unwrap(), &ops[..1], "not taken over");
    assert_eq!(new.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap().begun, [ops[0].id.seq]);
    let before = state(&place);
    assert_eq!(old.apply(ops[1..].to_vec()).unwrap_err().kind, ErrorKind::NotClaimed);
    assert_eq!(state(&place), before);
    all_done(&new.apply(ops[1..].to_vec()).unwrap(), &ops[1..], "the new one");
    let begun = numbers(&ops);
    assert_eq!(
        old.claim(GATEWAY, VOLUME, begun[4..].to_vec()).unwrap().unwrap().begun,
        begun[4..],
        "and back"
    );
    assert_eq!(new.apply(ops).unwrap_err().kind, ErrorKind::NotClaimed);
}

#[test]
fn a_claim_waits_for_the_operation_that_runs_and_stops_the_next() {
    for calls in (5..230).step_by(9) {
        let place = begin();
        let ops = batch(&place.open(Linux::default()));
        let old = place.open(Meddler::new(Lacks::default()));
        old.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let (new, then) = std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let (root, asked) = (place.root.clone(), numbers(&ops));
            // In the middle of an operation another agent comes; this one goes on when that one has begun to claim.
            let event = move || {
                let other = Posix::over(Linux::default(), bytes(&root)).unwrap().with_home_dir(bytes(&root));
                let claiming = std::thread::spawn(move || {
                    let begun = other.claim(GATEWAY, VOLUME, asked).unwrap().unwrap().begun;
                    (other, begun)
                });
                sender.send(claiming).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            };
            old.sys.after(calls, Event::Outside(Box::new(event)));
            let batch = ops.clone();
            let old = &old;
            let running = scope.spawn(move || old.apply(batch).map(|outcomes| outcomes.len()));
            let (new, begun) = receiver.recv().unwrap().join().unwrap();
            let after_claim = state_of_w(&place);
            let done = running.join().unwrap().unwrap_or(0);
            assert_eq!(begun.len(), done, "call {calls}: what was begun is done");
            assert_eq!(state_of_w(&place), after_claim, "call {calls}: something was done after the claim");
            (new, begun)
        });
        let ops = again(&ops, &then);
        all_done(&new.apply(ops.clone()).unwrap(), &ops, &format!("call {calls}"));
        nothing_is_left(&place, &format!("call {calls}"));
    }
}

/// The names of `w` with their contents; `w/d` may not be there yet.
fn state_of_w(place: &Place) -> Vec<(String, Option<Vec<u8>>)> {
    let names = place.names("w").into_iter();
    names.map(|name| (name.clone(), std::fs::read(place.path(&format!("w/{name}"))).ok())).collect()
}

#[test]
fn where_nothing_can_be_kept_nothing_is_known_and_the_work_goes_on() {
    let place = begin();
    std::fs::remove_dir_all(place.path(".cache")).unwrap();
    let home = place.open(Meddler::new(Lacks::default()));
    let ops = batch(&place.open(Linux::default()));
    home.sys.after(0, Event::Failure(Errno::ROFS));
    assert_eq!(home.claim(GATEWAY, VOLUME, vec![]).unwrap(), None);
    all_done(&home.apply(ops.clone()).unwrap(), &ops, "without a log");
    // A log that lacks a record tells nothing.
    let (mut unknown, mut refused_and_begun) = (0, 0);
    for calls in 0..40 {
        let place = begin();
        let home = place.open(Meddler::new(Lacks::default()));
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        home.sys.after(calls, Event::Failure(Errno::NOSPC));
        let create = placed(create("w", "one more", 0o644));
        let Ok(outcomes) = home.apply(vec![create.clone()]) else { continue };
        let done = matches!(outcomes[..], [Outcome::Done(_)]);
        drop(home);
        match place.open(Linux::default()).claim(GATEWAY, VOLUME, vec![create.id.seq]).unwrap() {
            None => panic!("at call {calls}"),
            Some(known) if !known.unknown.is_empty() => unknown += 1,
            Some(known) if done => assert_eq!(known.begun, [create.id.seq], "at call {calls}"),
            Some(known) => refused_and_begun += usize::from(!known.begun.is_empty()),
        }
    }
    // What could not be synced was refused, and is there.
    assert!(refused_and_begun >= 2, "{refused_and_begun} of the calls sync");
    assert!((2..12).contains(&unknown), "{unknown} of the calls begin the log or add to it");
}

/// An agent that could not take over notes nothing: what it did is not in the log of the agent before it, nor counted there.
#[test]
fn what_was_done_without_a_claim_is_not_denied_by_an_older_one() {
    let mut without = 0;
    for calls in 0..30 {
        let place = begin();
        let first = place.open(Linux::default());
        let ops = batch(&first);
        first.claim(GATEWAY, VOLUME, vec![]).unwrap();
        all_done(&first.apply(ops[..1].to_vec()).unwrap(), &ops[..1], "with a log");
        drop(first);
        let lost = numbers(&ops[1..2]);
        let second = place.open(Meddler::new(Lacks::default()));
        second.sys.after(calls, Event::Failure(Errno::NOSPC));
        if second.claim(GATEWAY, VOLUME, lost.clone()) != Ok(None) {
            continue;
        }
        without += 1;
        all_done(&second.apply(ops[1..2].to_vec()).unwrap(), &ops[1..2], "without");
        drop(second);
        let known = place.open(Linux::default()).claim(GATEWAY, VOLUME, lost.clone()).unwrap().unwrap();
        assert_eq!((known.begun, known.unknown, known.ran), (vec![], lost, 0), "failure at call {calls}");
    }
    assert!(without > 3, "{without} of the calls");
}

#[test]
fn a_batch_settles_no_other_one() {
    let mut met = 0;
    for calls in 0..60 {
        let place = begin();
        let first = place.open(Meddler::new(Lacks::default()));
        first.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let ops = ["one", "two"].map(|new| placed(create("w", new, 0o644)));
        first.apply(ops[..1].to_vec()).unwrap();
        first.sys.after(calls, Event::Death);
        first.apply(ops[1..].to_vec()).ok();
        drop(first);

        let next = place.open(Linux::default());
        let begun = next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap().begun;
        let unsettled = || lock(&next.claims)[&(GATEWAY, VOLUME)].is_unsettled(ops[1].id.seq);
        if !unsettled() {
            continue;
        }
        met += 1;
        next.apply(again(&ops[..1], &begun)).unwrap();
        assert!(unsettled(), "call {calls}: what was repeated says nothing of what came after it");
        next.apply(again(&ops[1..], &begun)).unwrap();
        assert!(!unsettled(), "call {calls}");
    }
    assert!(met > 1, "it never died between an operation and its sync");
}

#[test]
fn what_is_repeated_before_a_half_done_rename_meets_its_own_file() {
    let exchange = |place: &Place| {
        let [over, moves] = ["w/over", "w/moves"].map(|name| place.path(name));
        let dir = rustix::fs::CWD;
        rustix::fs::renameat_with(dir, &over, dir, &moves, rustix::fs::RenameFlags::EXCHANGE).unwrap();
    };
    for written in ["w/moves", "w/over"] {
        let place = begin();
        let home = place.open(Linux::default());
        let rename = batch(&home).into_iter().find(|p| matches!(p.op, Op::Rename { .. })).unwrap();
        let base = version(&home, written);
        let mut content = write(written, Some(base), 0, b"OURS");
        if let Op::Write { file, .. } = &mut content {
            file.id = Some(base.id);
        }
        let mut ops = vec![placed(content), rename];
        ops.iter_mut().for_each(|op| op.resent = true);
        // The power failed after the exchange; of the content nothing had become durable.
        exchange(&place);
        let outcomes = home.apply(ops.clone()).unwrap();
        match written {
            "w/moves" => {
                all_done(&outcomes, &ops, written);
                assert_eq!(place.read("w/over"), b"OURSs");
            }
            // The rename names the version before the write.
            _ => assert!(matches!(outcomes[..], [Outcome::Done(_), _]), "{outcomes:?}"),
        }
        // A name that an earlier operation changes says nothing of an exchange.
        let place = begin();
        let home = place.open(Linux::default());
        let mut ops = batch(&home);
        ops.retain(|p| matches!(p.op, Op::Rename { .. }));
        ops.insert(0, placed(remove("w", "over", None)));
        ops.iter_mut().for_each(|op| op.resent = true);
        exchange(&place);
        home.apply(ops).unwrap();
        assert_eq!(place.read("w/moves"), b"to be replaced");
    }
}

/// Nobody else has it open for writing.
#[test]
fn a_half_done_rename_is_finished_where_the_replaced_file_is_written_by_its_other_name() {
    let place = begin();
    let home = place.open(Linux::default());
    let rename = over_second(&home);
    let content = write("w/linked", Some(version(&home, "w/linked")), 0, b"HAS");
    let mut ops: Vec<Placed> = [content, rename].into_iter().map(placed).collect();
    ops.iter_mut().for_each(|op| op.resent = true);
    let (moves, second) = (place.path("w/moves"), place.path("w/second"));
    let dir = rustix::fs::CWD;
    rustix::fs::renameat_with(dir, &moves, dir, &second, rustix::fs::RenameFlags::EXCHANGE).unwrap();
    all_done(&home.apply(ops.clone()).unwrap(), &ops, "again");
    assert_eq!(place.read("w/second"), b"moves");
    assert_eq!(place.read("w/linked"), b"HAS two names");
    assert!(!moves.exists());
}

/// The rename was refused for a while; what does not wait for it went on, and its answer was lost.
#[test]
fn a_half_done_rename_is_finished_where_the_replaced_file_was_written_since_by_its_other_name() {
    for theirs in [false, true] {
        let place = begin();
        let home = place.open(Linux::default());
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let base = version(&home, "w/second");
        let mut rename = over_second(&home);
        if let Op::Rename { replaced: Some((_, seen)), .. } = &mut rename {
            *seen = Some(base);
        }
        let ops = [rename, write("w/linked", Some(base), 0, b"HAS")].map(placed);
        let (moves, second) = (place.path("w/moves"), place.path("w/second"));
        let dir = rustix::fs::CWD;
        rustix::fs::renameat_with(dir, &moves, dir, &second, rustix::fs::RenameFlags::EXCHANGE).unwrap();
        let outcome = quiet::looked_at(&home, ops[1].clone());
        assert!(matches!(outcome, Outcome::Done(_)), "first: {outcome:?}");
        drop(home);
        if theirs {
            std::fs::write(place.path("w/linked"), b"others wrote this").unwrap();
        }
        let next = place.open(Linux::default());
        next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap();
        let resent = ops.iter().map(|op| Placed { resent: true, ..op.clone() });
        all_done(&next.apply(resent.collect()).unwrap(), &ops, "again");
        assert_eq!(place.read("w/second"), b"moves");
        assert_eq!(moves.exists(), theirs, "what others wrote keeps both names");
        let wanted: &[u8] = if theirs { b"others wrote this" } else { b"HAS two names" };
        assert_eq!(place.read("w/linked"), wanted);
    }
}

#[test]
fn a_rename_that_has_its_outcome_is_not_taken_back_whatever_its_names_stand_for_by_now() {
    let place = begin();
    let home = place.open(Linux::default());
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let rename = over_second(&home);
    let content = write("w/second", Some(version(&home, "w/second")), 0, b"HAS");
    // The file that was replaced gets the name that the other one had, by its own other name.
    let link = Op::Link { object: object(&home, "w/linked"), dir: at("w"), name: name("moves") };
    let ops: Vec<Placed> = [content, rename, link].into_iter().map(placed).collect();
    all_done(&home.apply(ops.clone()).unwrap(), &ops, "first");
    let next = place.open(Linux::default());
    let begun = may_be_done(&next, &ops);
    all_done(&next.apply(again(&ops, &begun)).unwrap(), &ops, "again");
    assert_eq!(place.read("w/second"), b"moves");
    assert_eq!(place.read("w/moves"), b"HAS two names");
}

/// Its own part of a write is no conflict to whoever comes after an agent that had no room for the rest.
#[test]
fn what_a_refused_write_left_is_known_to_the_next_agent() {
    let mut found = 0;
    for calls in 0.. {
        let place = begin();
        let home = place.open(Meddler::new(Lacks::default()));
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let base = version(&home, "w/linked");
        let mut op = write("w/linked", Some(base), 100, b"far");
        if let Op::Write { pieces, .. } = &mut op {
            pieces.insert(0, Piece::Data(0, Payload::Inline(Bytes::from_static(b"HAD"))));
        }
        home.sys.after(calls, Event::Failure(Errno::NOSPC));
        let outcomes = home.apply(vec![placed(op)]);
        if !home.sys.happened() {
            break;
        }
        if place.read("w/second") != b"HAD two names" {
            continue;
        }
        found += 1;
        let refused = matches!(outcomes.as_deref(), Ok([Outcome::Refused(ErrorKind::NoSpace)]));
        assert!(refused, "{outcomes:?}");
        drop(home);
        let next = place.open(Linux::default());
        next.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let gone = one(&next, placed(remove("w", "linked", Some(base))));
        assert!(matches!(gone, Outcome::Done(_)), "after {calls} calls: {gone:?}");
    }
    assert!(found > 0);
}

/// What the home refuses to the next agent is still known as begun to the one after that.
#[test]
fn what_was_begun_and_then_refused_is_its_own_when_it_is_done_at_last() {
    let mut refused = 0;
    for calls in 0.. {
        let place = begin();
        let ops = [placed(Op::Create { dir: at("w"), name: name("new"), new: New::Fifo, mode: 0o640 })];
        let dying = place.open(Meddler::new(Lacks::default()));
        dying.claim(GATEWAY, VOLUME, vec![]).unwrap();
        dying.sys.after(calls, Event::Death);
        let _ = dying.apply(ops.to_vec());
        if !dying.sys.happened() {
            break;
        }
        drop(dying);
        if !place.path("w/new").exists() {
            continue;
        }
        let forbidden = place.open(Meddler::new(Lacks::default()));
        let begun = may_be_done(&forbidden, &ops);
        forbidden.sys.forbid();
        let outcomes = forbidden.apply(again(&ops, &begun)).unwrap();
        refused += usize::from(matches!(outcomes[..], [Outcome::Refused(ErrorKind::Perm)]));
        drop(forbidden);
        let next = place.open(Linux::default());
        let begun = may_be_done(&next, &ops);
        all_done(&next.apply(again(&ops, &begun)).unwrap(), &ops, &format!("death at call {calls}"));
    }
    assert!(refused > 2, "only {refused} times");
}

#[test]
fn a_long_log_is_written_anew_with_what_is_still_wanted() {
    let place = begin();
    let home = place.open(Linux::default());
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let mut last = Vec::new();
    let log = place.path(&format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/log"));
    let (mut longest, mut shrank) = (0, false);
    for n in 0..60 {
        let ops: Vec<_> = (0..500)
            .map(|i| placed(Op::SetAttr { object: at("w/f"), base: None, set: mode(0o600 + (n + i) % 64) }))
            .collect();
        home.apply(ops.clone()).unwrap();
        last = ops;
        let length = std::fs::metadata(&log).unwrap().len();
        shrank |= length < longest;
        longest = longest.max(length);
    }
    assert!(shrank && longest < 2 * crate::limits::LOG_BYTES, "{longest} bytes");
    let next = place.open(Linux::default());
    let begun = next.claim(GATEWAY, VOLUME, numbers(&last)).unwrap().unwrap().begun;
    assert_eq!(begun, numbers(&last));
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

#[test]
fn who_waits_for_the_fence_when_it_is_taken_over_ends_nobody() {
    let place = begin();
    let old = place.open(Linux::default());
    let ops = batch(&old);
    old.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let path = place.path(&format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/fence"));
    // Another process has it locked, which any of the same account may end.
    let mut holder = std::process::Command::new("flock").arg(&path).args(["sleep", "60"]).spawn().unwrap();
    let fence = std::fs::File::options().write(true).open(&path).unwrap();
    while rustix::fs::flock(&fence, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok() {
        rustix::fs::flock(&fence, rustix::fs::FlockOperation::Unlock).unwrap();
        std::thread::sleep(limits::FENCE_PAUSE);
    }
    let begun = std::time::Instant::now();
    let refused = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| old.apply(ops).unwrap_err());
        std::thread::sleep(5 * limits::FENCE_PAUSE);
        std::os::unix::fs::FileExt::write_all_at(&fence, &[1; 16], 0).unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(refused.kind, ErrorKind::NotClaimed);
    let patience = limits::FENCE_PAUSE * limits::FENCE_PATIENCE;
    assert!(begun.elapsed() < patience, "{:?}", begun.elapsed());
    assert!(holder.try_wait().unwrap().is_none(), "it was ended");
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn what_a_home_cannot_do_is_no_reason_not_to_write_to_it() {
    let mut without = 0;
    for (calls, errno) in (0..60).flat_map(|n| [(n, Errno::NOLCK), (n, Errno::INVAL)]) {
        let place = begin();
        let home = place.open(Meddler::new(Lacks::default()));
        let ops = batch(&place.open(Linux::default()));
        home.sys.after(calls, Event::Failure(errno));
        without += usize::from(home.claim(GATEWAY, VOLUME, vec![]).is_ok() && home.sys.happened());
        home.sys.after(1 << 20, Event::Death);
        all_done(&home.apply(ops.clone()).unwrap(), &ops, &format!("{errno} at call {calls}"));
    }
    assert!(without > 20, "{without}");
}

#[test]
fn what_was_not_known_once_is_not_denied_later() {
    let place = begin();
    let home = place.open(Linux::default());
    let ops = batch(&home);
    all_done(&home.apply(ops[..2].to_vec()).unwrap(), &ops[..2], "of a time without a log");
    let lost = numbers(&ops[..4]);
    let nothing = Claimed { unknown: lost.clone(), restarted: true, ..Claimed::default() };
    for _ in 0..2 {
        let home = place.open(Linux::default());
        let known = home.claim(GATEWAY, VOLUME, lost.clone()).unwrap();
        assert_eq!(known.as_ref(), Some(&nothing), "nobody may have heard it");
    }
    let home = place.open(Linux::default());
    home.claim(GATEWAY, VOLUME, lost.clone()).unwrap();
    all_done(&home.apply(again(&ops[..1], &lost)).unwrap(), &ops[..1], "the first one again");
    let next = place.open(Linux::default());
    let known = next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
    assert_eq!(
        (&known.begun[..], &known.unknown[..]),
        (&lost[..1], &lost[1..]),
        "none after these was begun"
    );
    let ops = again(&ops, &lost);
    all_done(&next.apply(ops.clone()).unwrap(), &ops, "all");
    let known = next.claim(GATEWAY, VOLUME, lost.clone()).unwrap().unwrap();
    assert_eq!((known.begun, known.unknown), (numbers(&ops), vec![]));
    nothing_is_left(&place, "at the end");
}

/// There is nothing in its answer that could be lost with it.
#[test]
fn who_claims_and_lost_nothing_has_a_log_from_then_on() {
    let place = begin();
    place.open(Linux::default()).claim(GATEWAY, VOLUME, vec![]).unwrap();
    let ops = batch(&place.open(Linux::default()));
    let known = place.open(Linux::default()).claim(GATEWAY, VOLUME, numbers(&ops)).unwrap();
    assert_eq!(known, Some(Claimed::default()), "none was begun");
}

#[test]
fn an_operation_whose_directory_was_replaced_since_does_not_hang_when_it_is_made_durable() {
    for calls in 0.. {
        let place = begin();
        let dir = Loc { id: Some(place.open(Linux::default()).stat(&at("w")).unwrap().attr.id), ..at("w") };
        let ops = vec![placed(Op::Create { dir, name: name("new"), new: New::File, mode: 0o644 })];
        let dying = place.open(Meddler::new(Lacks::default()));
        dying.claim(GATEWAY, VOLUME, vec![]).unwrap().unwrap();
        dying.sys.after(calls, Event::Death);
        let _ = dying.apply(ops.clone());
        let died = dying.sys.happened();
        drop(dying);
        std::fs::rename(place.path("w"), place.path("aside")).unwrap();
        std::fs::create_dir(place.path("w")).unwrap();
        let next = place.open(Linux::default());
        let ops = again(&ops, &may_be_done(&next, &ops));
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(next.apply(ops)));
        end.recv_timeout(std::time::Duration::from_secs(20)).expect("it hangs").unwrap();
        if !died {
            assert!(calls > 10, "{calls} calls");
            break;
        }
    }
}

/// Only bytes show that a write to a file itself was begun, not a length that it had before.
#[test]
fn what_was_written_over_a_file_after_a_death_survives_where_its_length_is_the_same() {
    let theirs = b"13 of theirs.";
    for calls in 0.. {
        let place = begin();
        let dying = place.open(Meddler::new(Lacks::default()));
        let ours = Payload::Inline(Bytes::from_static(b"ours"));
        let (file, pieces) = (at("w/linked"), vec![Piece::Truncate(13), Piece::Data(0, ours)]);
        let base = Some(version(&dying, "w/linked"));
        let ops = vec![placed(Op::Write { file, base, pieces })];
        dying.claim(GATEWAY, VOLUME, vec![]).unwrap().unwrap();
        dying.sys.after(calls, Event::Death);
        let _ = dying.apply(ops.clone());
        let died = dying.sys.happened();
        drop(dying);
        if !died {
            assert!(calls > 20, "{calls} calls");
            break;
        }
        std::fs::write(place.path("w/linked"), theirs).unwrap();
        let next = place.open(Linux::default());
        let begun = may_be_done(&next, &ops);
        let outcomes = next.apply(again(&ops, &begun)).unwrap();
        assert_eq!(place.read("w/linked"), theirs, "{outcomes:?} after {calls} calls");
    }
}

/// The exchange of a file that somebody has open for writing is taken back. Until then our copy has its name, for longer
/// where the agent is killed, and again where the next one is.
#[test]
fn who_writes_to_our_copy_while_it_has_the_name_keeps_those_bytes() {
    let theirs = b"written to the copy";
    let die_at = |calls| {
        let place = begin();
        let dying = place.open(Meddler::new(Lacks::default()));
        dying.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let op = placed(write("w/f", Some(version(&dying, "w/f")), 0, b"OURS"));
        let writer = std::fs::File::options().write(true).open(place.path("w/f")).unwrap();
        dying.sys.after(calls, Event::Death);
        let _ = dying.apply(vec![op.clone()]);
        let in_place = place.read("w/f") == b"OURS content";
        if in_place {
            std::fs::write(place.path("w/f"), theirs).unwrap();
        }
        (place, op, writer, in_place, dying.sys.happened())
    };
    let mut met = 0;
    for first in 0.. {
        let (.., in_place, died) = die_at(first);
        if !died {
            break;
        }
        for second in (0..).take_while(|_| in_place) {
            let (place, op, _writer, ..) = die_at(first);
            let dying = place.open(Meddler::new(Lacks::default()));
            dying.sys.after(second, Event::Death);
            let _ = dying.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&op)));
            let died = dying.sys.happened();
            drop(dying);
            let when = format!("deaths at calls {first} and {second}");
            let next = place.open(Linux::default());
            let begun = may_be_done(&next, std::slice::from_ref(&op));
            let outcomes = next.apply(again(&[op], &begun)).unwrap();
            assert!(matches!(outcomes[..], [Outcome::Conflict(Some(_))]), "{when}: {outcomes:?}");
            assert_eq!(place.read("w/f"), b"base content", "{when}");
            let kept = |name: &String| place.read(&format!("w/{name}")) == theirs;
            assert_eq!(place.names("w").iter().filter(|name| kept(name)).count(), 1, "{when}");
            met += 1;
            if !died {
                break;
            }
        }
    }
    assert!(met > 20, "{met} times");
}
