//! What an agent makes of what is there after the power has failed at the home.

use super::claims::{GATEWAY, VOLUME, again, all_done, batch, begin, numbers, object};
use super::meddler::{Event, Meddler};
use super::*;
use crate::op::SetAttr;
use std::os::unix::fs::MetadataExt;

/// A write by an agent that dies before its call number `calls`, to be sent again. `None` if it was done before.
fn interrupted(place: &Place, calls: usize, path: &str, at: u64, data: &'static [u8]) -> Option<Placed> {
    let home = place.open(Meddler::new(Lacks::default()));
    let op = placed(write(path, Some(version(&home, path)), at, data));
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    home.sys.after(calls, Event::Death);
    let _ = home.apply(vec![op.clone()]);
    home.sys.happened().then_some(Placed { resent: true, ..op })
}

/// The same of what is added to a file.
pub(super) fn appended(place: &Place, calls: usize) -> Option<Placed> {
    interrupted(place, calls, "w/log", place.read("w/log").len() as u64, b", and grows")
}

/// Before which call an agent dies that has noted what it is about to append to, and has not begun.
pub(super) fn noted() -> usize {
    let is_noted = |calls: &usize| {
        let place = begin();
        let append = appended(&place, *calls).unwrap();
        let next = place.open(Meddler::restarted(Lacks::default()));
        !next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&append))).unwrap().unwrap().torn.is_empty()
    };
    (0..).find(is_noted).unwrap()
}

/// What has the length of before is what was there with another time, or theirs: that can be told of a short file.
#[test]
fn a_new_time_may_be_all_that_a_power_cut_leaves_of_an_append() {
    let noted = noted();
    let table = [
        (Some("grows"), 1),
        (Some("grows"), 2),
        (Some("their"), 1),
        (Some("their"), 2),
        (None, 1),
        (None, 2),
    ];
    for (left, agents) in table {
        let place = begin();
        let long = "grows".repeat(limits::IMAGE_MAX as usize / 4);
        if left.is_none() {
            place.write("w/log", long.as_bytes());
        }
        let append = appended(&place, noted).unwrap();
        let left = left.unwrap_or(&long);
        place.write("w/log", left.as_bytes());
        for agent in 1..=agents {
            let next = place.open(Meddler::restarted(Lacks::default()));
            let known = next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&append))).unwrap().unwrap();
            assert_eq!(known.unknown, numbers(std::slice::from_ref(&append)));
            if agent < agents {
                // With its first batch it begins a log of its own.
                let first = placed(create("w", "g", 0o600));
                all_done(&next.apply(vec![first.clone()]).unwrap(), &[first], "another");
                continue;
            }
            let outcome = next.apply(vec![append.clone()]).unwrap().remove(0);
            let wanted = if left == "their" { left.into() } else { format!("{left}, and grows") };
            assert_eq!(matches!(outcome, Outcome::Done(_)), left != "their", "{outcome:?}");
            assert!(place.read("w/log") == wanted.as_bytes(), "{outcome:?}");
        }
    }
}

/// What was not begun left no time: somebody else did.
#[test]
fn a_new_time_on_what_was_not_begun_is_another_programs() {
    for cut in [false, true] {
        let place = begin();
        let append = appended(&place, 0).unwrap();
        place.write("w/log", b"grows");
        let sys = if cut { Meddler::restarted(Lacks::default()) } else { Meddler::new(Lacks::default()) };
        let next = place.open(sys);
        next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&append))).unwrap().unwrap();
        let outcome = next.apply(vec![append]).unwrap().remove(0);
        assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?}, cut: {cut}");
        assert_eq!(place.read("w/log"), b"grows");
    }
}

/// Another program writes into what is being overwritten in place: what its agent, or the power, leaves of both is nobody's.
#[test]
fn what_another_program_wrote_into_a_torn_file_stays() {
    let theirs = [&b"has HERE nameX"[..], b"Xas HEREnames", b"has HXREnames", b"has two nameX", b"has HERE"];
    for (theirs, cut) in theirs.into_iter().flat_map(|t| [(t, false), (t, true)]) {
        let mut torn = 0;
        for calls in 0.. {
            let place = begin();
            let Some(linked) = interrupted(&place, calls, "w/linked", 4, b"HERE") else { break };
            place.write("w/linked", theirs);
            let sys = if cut { Meddler::restarted(Lacks::default()) } else { Meddler::new(Lacks::default()) };
            let next = place.open(sys);
            next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&linked))).unwrap().unwrap();
            let outcome = next.apply(vec![linked]).unwrap().remove(0);
            // It may have been done before they came.
            torn += usize::from(matches!(outcome, Outcome::Conflict(Some(_))));
            assert_eq!(place.read("w/linked"), theirs, "{outcome:?} after {calls} calls, cut: {cut}");
        }
        assert!(torn > 2, "only {torn} times");
    }
}

/// The disk is full when what the power cut left of a file is to be put right: who does it later knows of it, too.
#[test]
fn what_a_power_cut_left_is_still_known_when_its_operation_was_refused() {
    let (mut refused, noted) = (0, noted());
    for calls in 0.. {
        let place = begin();
        let append = appended(&place, noted).unwrap();
        let lost = numbers(std::slice::from_ref(&append));
        place.write("w/log", b"grows");
        let full = place.open(Meddler::restarted(Lacks::default()));
        full.claim(GATEWAY, VOLUME, lost.clone()).unwrap();
        full.sys.after(calls, Event::Failure(rustix::io::Errno::NOSPC));
        let outcomes = full.apply(vec![append.clone()]);
        if !full.sys.happened() {
            break;
        }
        drop(full);
        if !matches!(outcomes.as_deref(), Ok([Outcome::Refused(ErrorKind::NoSpace)])) {
            continue;
        }
        refused += 1;
        let when = format!("failure at call {calls}");
        let next = place.open(Meddler::restarted(Lacks::default()));
        let known = next.claim(GATEWAY, VOLUME, lost.clone()).unwrap().unwrap();
        assert_eq!([known.begun, known.unknown].concat(), lost, "{when}");
        all_done(&next.apply(vec![append.clone()]).unwrap(), &[append], &when);
        assert_eq!(place.read("w/log"), b"grows, and grows", "{when}");
    }
    assert!(refused > 0);
}

/// An agent dies when it has added to a file, and the power fails before the next one has: the file may be as it was at first.
#[test]
fn what_is_begun_twice_may_be_left_as_it_was_before_either_time() {
    let mut twice = 0;
    for first in noted().. {
        let place = begin();
        if appended(&place, first).is_none() {
            break;
        }
        if place.read("w/log") == b"grows" {
            continue;
        }
        for calls in 0.. {
            let place = begin();
            let append = appended(&place, first).unwrap();
            let second = place.open(Meddler::new(Lacks::default()));
            second.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&append))).unwrap();
            second.sys.after(calls, Event::Death);
            let _ = second.apply(vec![append.clone()]);
            if !second.sys.happened() {
                break;
            }
            drop(second);
            place.write("w/log", b"grows");
            let next = place.open(Meddler::restarted(Lacks::default()));
            let known = next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&append))).unwrap().unwrap();
            if known.begun.is_empty() {
                twice += 1;
                let when = format!("deaths at calls {first} and {calls}");
                all_done(&next.apply(vec![append.clone()]).unwrap(), std::slice::from_ref(&append), &when);
                assert_eq!(place.read("w/log"), b"grows, and grows", "{when}");
            }
        }
    }
    assert!(twice > 2, "only {twice} times");
}

/// What a full disk lets happen of an operation of before the power cut was written after it, and by nobody else; and so was
/// what an agent did that was killed.
#[test]
fn a_part_that_was_done_after_a_power_cut_is_no_other_programs() {
    for dies in [false, true] {
        let mut parts = 0;
        for calls in 0.. {
            let place = begin();
            let op = rewritten_whole(&place);
            let agent = place.open(Meddler::restarted_before(Lacks::default()));
            agent.claim(GATEWAY, VOLUME, vec![op.id.seq]).unwrap();
            agent
                .sys
                .after(calls, if dies { Event::Death } else { Event::Failure(rustix::io::Errno::NOSPC) });
            let outcomes = agent.apply(vec![op.clone()]);
            if !agent.sys.happened() {
                break;
            }
            let refused = matches!(outcomes.as_deref(), Ok([Outcome::Refused(ErrorKind::NoSpace)]));
            if !(dies || refused) || !place.read("w/second").is_empty() {
                continue;
            }
            parts += 1;
            let when = format!("dies: {dies}, at call {calls}");
            let next = match dies {
                true => {
                    drop(agent);
                    let next = place.open(Meddler::restarted_before(Lacks::default()));
                    let known = next.claim(GATEWAY, VOLUME, vec![op.id.seq]).unwrap().unwrap();
                    assert!(!known.restarted, "{when}");
                    next
                }
                false => agent,
            };
            all_done(&next.apply(vec![op.clone()]).unwrap(), &[op], &when);
            assert_eq!(place.read("w/second"), b"all of it", "{when}");
        }
        assert!(parts > 0, "dies: {dies}");
    }
}

/// A write of a file with two names that begins with a cut to nothing, sent before the power failed.
fn rewritten_whole(place: &Place) -> Placed {
    let old = |file: std::fs::File| file.set_modified(std::time::UNIX_EPOCH);
    std::fs::File::open(place.path("w/linked")).and_then(old).unwrap();
    let home = place.open(Linux::default());
    let mut op = write("w/linked", Some(version(&home, "w/linked")), 0, b"all of it");
    if let Op::Write { pieces, .. } = &mut op {
        pieces.insert(0, Piece::Truncate(0));
    }
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    Placed { resent: true, ..placed(op) }
}

/// A write in place was about to begin when its agent died, and another program added its own before the power failed.
#[test]
fn what_another_program_added_to_a_torn_file_stays() {
    let mut torn = 0;
    for calls in 0.. {
        let place = begin();
        let Some(linked) = interrupted(&place, calls, "w/linked", 4, b"HERE") else { break };
        place.write("w/linked", b"has two names, and theirs");
        let next = place.open(Meddler::restarted(Lacks::default()));
        let known = next.claim(GATEWAY, VOLUME, vec![linked.id.seq]).unwrap().unwrap();
        if known.torn.is_empty() {
            continue;
        }
        torn += 1;
        let outcome = next.apply(vec![linked]).unwrap().remove(0);
        assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?} after {calls} calls");
        assert_eq!(place.read("w/linked"), b"has two names, and theirs");
    }
    assert!(torn > 2, "only {torn} times");
}

#[test]
fn after_a_power_cut_the_durable_is_known_and_the_torn_is_done_again() {
    let (mut torn, mut early) = (0, 0);
    for calls in 0..60 {
        let place = begin();
        let home = place.open(Meddler::new(Lacks::default()));
        let ops = batch(&place.open(Linux::default()));
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        all_done(&home.apply(ops[..3].to_vec()).unwrap(), &ops[..3], "durable");
        // A file with two names is overwritten in place.
        home.sys.after(calls, Event::Death);
        let _ = home.apply(ops[5..6].to_vec());
        let died = home.sys.happened();
        drop(home);
        let next = place.open(Meddler::restarted(Lacks::default()));
        let known = next.claim(GATEWAY, VOLUME, numbers(&ops[..6])).unwrap().unwrap();
        let when = format!("death at call {calls}");
        assert!(known.restarted && known.booted.is_some(), "{when}");
        // It is not said to be durable before it is, which is in its last call or the last but one.
        let durable = known.begun.len() > 3;
        assert_eq!(known.begun[..3], numbers(&ops[..3]), "{when}");
        assert_eq!(known.unknown, numbers(&ops[3..6 - usize::from(durable)]), "{when}");
        early += usize::from(durable && died);
        if !known.torn.is_empty() {
            torn += 1;
            assert_eq!(known.torn, numbers(&ops[5..6]), "{when}");
            // What the power cut left of it, with a time that nobody gave it.
            place.write("w/linked", b"has Hwo names");
            // Where the gateway knows it to be another program's, it is not what should be there.
            let mut parted = Placed { resent: true, ..ops[5].clone() };
            parted.id.seq += 100;
            if let Op::Write { base: Some(base), .. } = &mut parted.op {
                base.id = crate::HomeId::default();
            }
            let outcome = next.apply(vec![parted]).unwrap().remove(0);
            assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{when}: {outcome:?}");
        }
        let again = again(&ops, &numbers(&ops));
        all_done(&next.apply(again[5..6].to_vec()).unwrap(), &ops[5..6], &when);
        assert_eq!(std::fs::read(place.path("w/second")).unwrap(), b"has HEREnames", "{when}");
    }
    assert!(torn > 2 && early <= 2, "{torn} {early}");
}

/// Neither what was being overwritten when the power failed, nor what has the name of what was made then.
/// A new file is written, and then overwritten, in one batch: its content, of which nothing is durable, comes again.
#[test]
fn what_came_before_a_torn_write_is_done_again_with_it() {
    let mut torn = 0;
    for calls in 0.. {
        let place = begin();
        let home = place.open(Meddler::new(Lacks::default()));
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let made = placed(create("w", "made", 0o644));
        let writes = [b"FIRST", b"AGAIN"].map(|bytes| placed(write("w/made", None, 0, bytes)));
        let ops = [vec![made], writes.to_vec()].concat();
        home.sys.after(calls, Event::Death);
        let _ = home.apply(ops.clone());
        if !home.sys.happened() {
            break;
        }
        drop(home);
        let next = place.open(Meddler::restarted(Lacks::default()));
        let known = next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
        if known.torn.is_empty() {
            continue;
        }
        torn += 1;
        let when = format!("after {calls} calls");
        let Ok(seen) = next.stat(&at("w/made")) else { panic!("it is torn {when}") };
        let empty = Version { size: 0, mtime: ops[0].time, ..seen.attr.version() };
        for (bytes, op) in [b"FIRST", b"AGAIN"].into_iter().zip(&ops[1..]) {
            let base = if bytes == b"FIRST" { empty } else { version(&next, "w/made") };
            let op = Placed { resent: true, op: write("w/made", Some(base), 0, bytes), ..op.clone() };
            all_done(&next.apply(vec![op.clone()]).unwrap(), &[op], &when);
        }
        assert_eq!(place.read("w/made"), b"AGAIN", "{when}");
    }
    assert!(torn > 1, "only {torn} times");
}

#[test]
fn what_was_written_after_the_power_was_back_is_theirs() {
    let mut torn = 0;
    for calls in 0.. {
        let place = begin();
        let Some(linked) = interrupted(&place, calls, "w/linked", 4, b"HERE") else { break };
        place.write("w/linked", b"their content");
        place.write("w/new", b"theirs");
        let next = place.open(Meddler::restarted_before(Lacks::default()));
        let (found, moved) = (Some(version(&next, "w/new")), Some(version(&next, "w/moves")));
        let rename = Op::Rename {
            from: at("w"),
            name: name("moves"),
            object: object(&place.open(Linux::default()), "w/moves"),
            to: at("w"),
            new_name: name("new"),
            replaced: Some((at("w/new"), found)),
        };
        let over_theirs = Op::Rename {
            from: at("w"),
            name: name("made"),
            object: at("w/made"),
            to: at("w"),
            new_name: name("new"),
            replaced: Some((at("w/new"), found)),
        };
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let set = Op::SetAttr { object: at("w/new"), base: None, set };
        let later = [write("w/new", found, 0, b"ours"), remove("w", "new", found), rename, over_theirs, set];
        let ops = [vec![linked], later.map(placed).to_vec()].concat();
        let known = next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
        if !known.begun.is_empty() || known.unknown.is_empty() {
            continue;
        }
        torn += usize::from(!known.torn.is_empty());
        let (made, mode) = (placed(create("w", "made", 0o644)), next.stat(&at("w/new")).unwrap().attr.mode);
        all_done(&next.apply(vec![made.clone()]).unwrap(), &[made], "what is made now is ours");
        for op in again(&ops, &known.unknown) {
            let outcomes = next.apply(vec![op]).unwrap();
            let not_done = matches!(outcomes[0], Outcome::Conflict(Some(_)) | Outcome::Refused(_));
            assert!(not_done, "{outcomes:?} after {calls} calls");
        }
        assert_eq!(
            (place.read("w/linked"), place.read("w/new")),
            (b"their content".to_vec(), b"theirs".to_vec())
        );
        assert_eq!(moved, Some(version(&next, "w/moves")));
        assert_eq!(next.stat(&at("w/new")).unwrap().attr.mode, mode);
    }
    assert!(torn > 2, "only {torn} times");
}

/// As after a power cut that left all names and attributes, but not what was to be synced.
#[test]
fn without_a_log_it_is_known_which_operations_left_their_names() {
    let place = begin();
    let home = place.open(Linux::default());
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let ops = batch(&home);
    let fs = home.stat(&at(".cache/trellis")).unwrap().attr.id.fs;
    let ran = |lost: &[Placed]| {
        std::fs::remove_file(kept(&place, "log")).unwrap();
        let known = place.open(Linux::default()).claim(GATEWAY, VOLUME, numbers(lost)).unwrap().unwrap();
        assert!(known.restarted && known.begun.is_empty());
        (known.ran, known.ran_on)
    };
    assert_eq!(ran(&ops), (0, Some(fs)), "none of them");
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    all_done(&home.apply(ops[..4].to_vec()).unwrap(), &ops[..4], "the first four");
    assert_eq!(ran(&ops), (ops[3].id.seq, Some(fs)));
    assert_eq!(ran(&ops[..2]), (0, None), "more than was lost is no answer");
    let status = std::process::Command::new("touch").arg(kept(&place, "ran")).status().unwrap();
    assert!(status.success());
    assert_eq!(ran(&ops), (0, None), "the time of somebody else");
}

/// An agent that died before it could note how far it was: with the next operation two would have begun that are not told.
#[test]
fn what_an_agent_has_done_is_told_by_the_next_one() {
    for calls in 0.. {
        let place = begin();
        let home = place.open(Meddler::new(Lacks::default()));
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let first = placed(create("w", "first", 0o600));
        home.sys.after(calls, Event::Death);
        let _ = home.apply(vec![first.clone()]);
        if !home.sys.happened() {
            break;
        }
        drop(home);
        let (lost, next) = (vec![first.id.seq], place.open(Linux::default()));
        next.claim(GATEWAY, VOLUME, lost.clone()).unwrap();
        let again = Placed { resent: true, ..first };
        all_done(&next.apply(vec![again.clone()]).unwrap(), &[again], "again");
        let log = format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/log");
        std::fs::remove_file(place.path(&log)).unwrap();
        let known = place.open(Linux::default()).claim(GATEWAY, VOLUME, lost.clone()).unwrap().unwrap();
        assert_eq!(known.ran, lost[0], "death at call {calls}");
    }
}

/// A link that was taken out of the tree counts as one of the file as long as it is there.
#[test]
fn without_a_log_links_that_were_taken_out_are_removed_and_the_rest_goes_back() {
    let place = begin();
    let home = place.open(Linux::default());
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let stage = |number: u32| {
        let mark = format!("{GATEWAY:016x}-{number:08x}");
        place.path(&format!(".cache/trellis/.trellis-stage-0123456789abcdef-{mark}"))
    };
    for dir in [stage(VOLUME), stage(VOLUME + 1)] {
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join(".trellis-staging"), b"").unwrap();
        std::fs::hard_link(place.path("w/linked"), dir.join("old-1")).unwrap();
        std::fs::write(dir.join("old-2-w%sback"), b"nowhere else").unwrap();
        std::fs::create_dir(dir.join("other")).unwrap();
    }
    std::fs::remove_file(place.path(&format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/log")))
        .unwrap();
    place.open(Linux::default()).claim(GATEWAY, VOLUME, vec![1]).unwrap();
    assert_eq!(std::fs::metadata(place.path("w/linked")).unwrap().nlink(), 3, "one is another volume's");
    assert!(!stage(VOLUME).join("old-1").exists() && stage(VOLUME + 1).join("old-1").exists());
    assert_eq!(place.read("w/back"), b"nowhere else");
    assert!(stage(VOLUME).join("other").exists() && stage(VOLUME + 1).join("old-2-w%sback").exists());
}

/// What cannot be put back stays where it is, and the rest does not stay with it.
#[test]
fn one_that_cannot_be_put_back_keeps_no_other_from_its_place() {
    let mut alone = [0; 2];
    for calls in 0.. {
        let place = begin();
        place.open(booted(0)).claim(GATEWAY, VOLUME, vec![]).unwrap();
        std::fs::remove_file(kept(&place, "log")).unwrap();
        let mark = format!("{GATEWAY:016x}-{VOLUME:08x}");
        let stage = place.path(&format!(".cache/trellis/.trellis-stage-0123456789abcdef-{mark}"));
        std::fs::create_dir(&stage).unwrap();
        std::fs::write(stage.join(".trellis-staging"), b"").unwrap();
        let all = ["one", "two"];
        all.iter().zip(1..).for_each(|(name, n)| {
            std::fs::write(stage.join(format!("old-{n:016x}-w%s{name}")), b"theirs").unwrap();
        });
        let next = place.open(booted(1));
        next.sys.after(calls, Event::Failure(Errno::ACCESS));
        let _ = next.claim(GATEWAY, VOLUME, vec![1]);
        if !next.sys.happened() {
            break;
        }
        let is_back = all.map(|name| place.path(&format!("w/{name}")).exists());
        // Or beside its name, or near.
        let near = place.names("w").into_iter().chain(place.names(""));
        let saved = near.filter(|name| name.contains(".trellis-saved-")).count();
        let kept = std::fs::read_dir(&stage).map_or(0, |all| {
            let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.starts_with("old-")).count()
        });
        let back = is_back.into_iter().filter(|is_back| *is_back).count();
        assert_eq!(back + saved + kept, 2, "failure at call {calls}");
        (0..2).for_each(|n| alone[n] += usize::from(is_back[n] && kept == 1));
    }
    assert!(alone.iter().all(|times| *times > 0), "{alone:?}");
}

/// The log's word of it is lost with the power, and somebody has written to it by then.
#[test]
fn what_was_taken_out_of_its_place_comes_back_after_a_power_cut() {
    let mut aside = 0;
    for (calls, long) in (0..60).flat_map(|calls| [(calls, false), (calls, true)]) {
        let place = begin();
        let dir = if long { &format!("w/{}", "a%s-b".repeat(30))[..] } else { "w" };
        let path = format!("{dir}/gone%");
        std::fs::create_dir_all(place.path(dir)).unwrap();
        place.write(&path, b"to be removed");
        let home = place.open(Meddler::new(Lacks::default()));
        let seen = place.open(Linux::default());
        let (object, base) = (object(&seen, &path), Some(version(&seen, &path)));
        let remove = Op::Remove { dir: at(dir), name: name("gone%"), object, is_dir: false, base };
        let remove = placed(remove);
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        home.sys.after(calls, Event::Death);
        let _ = home.apply(vec![remove.clone()]);
        drop(home);
        let Some(left) = taken_out(&place) else { continue };
        aside += 1;
        std::fs::write(left, b"theirs").unwrap();
        let log = format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/log");
        std::fs::remove_file(place.path(&log)).unwrap();
        let next = place.open(Meddler::restarted(Lacks::default()));
        next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&remove))).unwrap();
        assert_eq!(taken_out(&place), None, "after {calls} calls");
        if long {
            let all = std::fs::read_dir(place.path("")).unwrap();
            let saved =
                all.map(|e| e.unwrap().path()).find(|p| p.to_string_lossy().contains(".trellis-saved-"));
            assert_eq!(std::fs::read(saved.unwrap()).unwrap(), b"theirs");
            continue;
        }
        assert_eq!(place.read(&path), b"theirs", "after {calls} calls");
        let outcome = next.apply(vec![Placed { resent: true, ..remove }]).unwrap().remove(0);
        assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?}");
    }
    assert!(aside > 4, "only {aside} times");
}

/// A copy has changed places with the file, and the log's word of it is lost with the power. What the copy took the name from goes
/// only if it is what was to be replaced.
#[test]
fn what_a_copy_took_the_name_from_comes_back_after_a_power_cut_unless_it_is_the_base() {
    for (theirs, deep) in [(false, false), (true, false), (true, true)] {
        let (mut unused, mut exchanged) = (0, 0);
        for calls in 0..80 {
            let place = begin();
            let dir = if deep { &format!("w/{}", "a%s-b".repeat(30))[..] } else { "w" };
            let path = format!("{dir}/rewritten");
            std::fs::create_dir_all(place.path(dir)).unwrap();
            place.write(&path, b"base content");
            let home = place.open(Meddler::new(Lacks::default()));
            let base = version(&place.open(Linux::default()), &path);
            let rewrite = placed(write(&path, Some(base), 0, b"ours"));
            home.claim(GATEWAY, VOLUME, vec![]).unwrap();
            home.sys.after(calls, Event::Death);
            let _ = home.apply(vec![rewrite.clone()]);
            drop(home);
            let ready = || inside(&place, ".cache/trellis", "swap-");
            let Some(left) = ready() else { continue };
            let is_base = std::fs::read(&left).unwrap() == b"base content";
            (unused, exchanged) = (unused + usize::from(!is_base), exchanged + usize::from(is_base));
            if is_base && theirs {
                std::fs::write(left, b"theirs").unwrap();
            }
            let log = format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/log");
            std::fs::remove_file(place.path(&log)).unwrap();
            let next = place.open(Meddler::restarted(Lacks::default()));
            next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&rewrite))).unwrap();
            let when = format!("theirs: {theirs}, deep: {deep}, after {calls} calls");
            assert_eq!(ready(), None, "{when}");
            let wanted: &[u8] = match (is_base, theirs) {
                (false, _) => b"base content",
                (true, true) if !deep => b"theirs",
                (true, _) => b"ours content",
            };
            assert_eq!(place.read(&path), wanted, "{when}");
            if is_base && deep {
                let all = std::fs::read_dir(place.path("")).unwrap().map(|e| e.unwrap().path());
                let saved = all.filter(|p| p.to_string_lossy().contains(".trellis-saved-"));
                assert_eq!(
                    saved.map(|p| std::fs::read(p).unwrap()).collect::<Vec<_>>(),
                    [b"theirs"],
                    "{when}"
                );
            }
        }
        assert!(unused > 2 && exchanged > 2, "theirs: {theirs}, deep: {deep}: {unused} {exchanged}");
    }
}

/// Where nothing can be made in the cache directory, as on another file system: of the log there is what was synced.
#[test]
fn what_was_taken_out_elsewhere_comes_back_after_a_power_cut() {
    let (mut staged, mut aside) = (0, 0);
    for calls in 0..60 {
        let place = begin();
        let home = place.open(Meddler::new(Lacks::default()));
        let seen = place.open(Linux::default());
        let (object, base) = (object(&seen, "w/gone"), Some(version(&seen, "w/gone")));
        let remove = Op::Remove { dir: at("w"), name: name("gone"), object, is_dir: false, base };
        let remove = placed(remove);
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let cache = std::fs::metadata(place.path(".cache/trellis")).unwrap().ino();
        home.sys.refuse_in(cache, Errno::NOSPC);
        home.sys.after(calls, Event::Death);
        let _ = home.apply(vec![remove.clone()]);
        let log = place.path(&format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/log"));
        let durable = home.sys.synced(std::fs::metadata(&log).unwrap().ino()).unwrap();
        drop(home);
        let is_staged = || place.names("").iter().any(|name| name.starts_with(".trellis-stage-"));
        if !is_staged() {
            continue;
        }
        staged += 1;
        let left = inside(&place, "", "old-");
        aside += usize::from(left.is_some());
        left.iter().for_each(|left| std::fs::write(left, b"theirs").unwrap());
        std::fs::write(&log, durable).unwrap();
        let next = place.open(Meddler::restarted(Lacks::default()));
        next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&remove))).unwrap();
        assert!(!is_staged(), "after {calls} calls");
        if left.is_some() {
            assert_eq!(place.read("w/gone"), b"theirs", "after {calls} calls");
        }
    }
    assert!(staged > aside && aside > 2, "only {staged} and {aside} times");
}

/// A power cut may keep the exchange of both files and not that it was taken back, and who was refused sends it as if nothing had
/// been done.
#[test]
fn a_move_over_a_file_that_is_refused_is_taken_back_durably() {
    let place = begin();
    let home = place.open(Meddler::new(Lacks::default()));
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let ops = batch(&place.open(Linux::default()));
    let first = chmod(0o600);
    all_done(&home.apply(vec![first.clone()]).unwrap(), &[first], "before it");
    home.sys.refuse(Errno::NOSPC);
    let syncs = |is_it: fn(&Op<Loc, Payload>) -> bool| {
        let (before, op) = (home.sys.syncs(), ops.iter().find(|placed| is_it(&placed.op)).unwrap());
        let outcome = home.apply(vec![op.clone()]).unwrap().remove(0);
        assert_eq!(outcome, Outcome::Refused(ErrorKind::NoSpace), "{op:?}");
        home.sys.syncs() - before
    };
    let removal = syncs(|op| matches!(op, Op::Remove { is_dir: false, .. }));
    assert_eq!(syncs(|op| matches!(op, Op::Rename { .. })), removal + 1, "nothing is done of a removal");
    assert_eq!(
        (&place.read("w/moves")[..], &place.read("w/over")[..]),
        (&b"moves"[..], &b"to be replaced"[..])
    );
}

/// What lies in a staging directory.
pub(super) fn taken_out(place: &Place) -> Option<std::path::PathBuf> {
    inside(place, ".cache/trellis", "old-")
}

/// What lies in a staging directory that lies in another one, under such a name.
fn inside(place: &Place, dir: &str, prefix: &str) -> Option<std::path::PathBuf> {
    let all = std::fs::read_dir(place.path(dir)).unwrap().map(|entry| entry.unwrap().path());
    let mut stages = all.filter(|path| path.to_string_lossy().contains(".trellis-stage-"));
    let mut inside = std::fs::read_dir(stages.next()?).unwrap().map(|entry| entry.unwrap().path());
    inside.find(|path| path.file_name().unwrap().to_string_lossy().starts_with(prefix))
}

/// A change that needs no room.
fn chmod(bits: u32) -> Placed {
    let set = SetAttr { mode: Some(bits), ..SetAttr::default() };
    placed(Op::SetAttr { object: at("w/f"), base: None, set })
}

#[test]
fn a_home_that_is_full_has_room_for_its_log_where_the_one_of_before_a_power_cut_is() {
    let place = begin();
    let home = place.open(Linux::default());
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let ops = batch(&home);
    all_done(&home.apply(ops[..2].to_vec()).unwrap(), &ops[..2], "before it");
    drop(home);
    let ops = [ops[..2].to_vec(), vec![chmod(0o600), chmod(0o640)]].concat();
    let full = place.open(Meddler::restarted(Lacks::default()));
    full.sys.refuse(Errno::NOSPC);
    let known = full.claim(GATEWAY, VOLUME, numbers(&ops[..2])).unwrap().unwrap();
    assert!(known.restarted && known.unknown.is_empty(), "{known:?}");
    all_done(&full.apply(ops[2..3].to_vec()).unwrap(), &ops[2..3], "on a full disk");
    drop(full);
    let next = place.open(Meddler::restarted(Lacks::default()));
    let known = next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
    assert_eq!((known.begun, known.restarted), (numbers(&ops[..3]), false), "the last one was not begun");
    // There is none of what came before it.
    next.claim(GATEWAY, VOLUME, numbers(&ops[3..])).unwrap();
    all_done(&next.apply(ops[3..].to_vec()).unwrap(), &ops[3..], "where there is room again");
    let known = place.open(Linux::default()).claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
    assert!(known.restarted, "that is another start of the machine");
}

/// A file that was never synced is empty after a power cut, and there would be no room for what is to be written there.
#[test]
fn a_home_that_is_full_has_room_for_its_fence_after_a_power_cut() {
    let place = begin();
    let home = place.open(Meddler::new(Lacks::default()));
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let fence = place.path(&format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/fence"));
    let ino = std::fs::metadata(&fence).unwrap().ino();
    assert_eq!(home.sys.synced(ino), Some(std::fs::read(&fence).unwrap()));
    let next = place.open(Meddler::new(Lacks::default()));
    next.claim(GATEWAY, VOLUME, vec![]).unwrap();
    assert_eq!(
        next.sys.synced(ino),
        Some(std::fs::read(&fence).unwrap()),
        "who made it may not have synced it"
    );
}

#[test]
fn a_log_that_found_no_room_begins_anew_with_the_next_batch() {
    let mut given_up = 0;
    for calls in 0.. {
        let place = begin();
        let home = place.open(Meddler::new(Lacks::default()));
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let ops = [chmod(0o600), chmod(0o640), chmod(0o644)];
        home.sys.refuse(Errno::NOSPC);
        home.sys.after(calls, Event::Failure(Errno::NOSPC));
        let _ = home.apply(ops[..1].to_vec());
        if !home.sys.happened() {
            break;
        }
        let log = place.path(&format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/log"));
        given_up += usize::from(std::fs::read(log).unwrap().starts_with(&[0; 8]));
        all_done(&home.apply(ops[1..2].to_vec()).unwrap(), &ops[1..2], &format!("call {calls}"));
        let next = place.open(Linux::default());
        let known = next.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
        assert!(known.begun.contains(&ops[1].id.seq) && !known.restarted, "call {calls}: {known:?}");
        assert!(!known.begun.contains(&ops[2].id.seq), "call {calls}: {known:?}");
    }
    assert!((2..12).contains(&given_up), "{given_up} of the calls add to the log");
}

/// A machine that was started for the nth time.
pub(super) fn booted(boot: u8) -> Meddler {
    Meddler::booted_as(Lacks::default(), &[b"boot", &[boot][..]].concat())
}

/// What a volume keeps at the home.
pub(super) fn kept(place: &Place, name: &str) -> std::path::PathBuf {
    place.path(&format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/{name}"))
}

/// The part of a write that an agent died in is recognised where the write is refused, and then the write is given up because the
/// file is removed: nothing else tells that the part is ours.
#[test]
fn what_is_half_of_a_refused_write_may_be_removed() {
    for (cut, theirs) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut found = 0;
        for calls in 0.. {
            let place = begin();
            let seen = place.open(Linux::default());
            let base = version(&seen, "w/linked");
            let Some(linked) = interrupted(&place, calls, "w/linked", 4, b"HERE") else { break };
            let open = || place.open(if cut { booted(1) } else { Meddler::new(Lacks::default()) });
            let next = open();
            next.claim(GATEWAY, VOLUME, numbers(std::slice::from_ref(&linked))).unwrap();
            let half = place.read("w/linked");
            next.sys.refuse_writing(Errno::ROFS);
            let outcome = next.apply(vec![linked.clone()]).unwrap().remove(0);
            drop(next);
            if half == b"has two names" || !matches!(outcome, Outcome::Refused(_)) {
                continue;
            }
            found += 1;
            if theirs {
                place.write("w/linked", b"their content");
            }
            let last = open();
            last.claim(GATEWAY, VOLUME, vec![]).unwrap();
            let removal = placed(remove("w", "linked", Some(base)));
            let outcome = last.apply(vec![removal]).unwrap().remove(0);
            let when = format!("{outcome:?} after {calls} calls, cut: {cut}, theirs: {theirs}");
            assert_eq!(matches!(outcome, Outcome::Done(_)), !theirs, "{when}");
            assert_eq!(matches!(outcome, Outcome::Conflict(Some(_))), theirs, "{when}");
        }
        assert!(found > 0, "cut: {cut}");
    }
}
