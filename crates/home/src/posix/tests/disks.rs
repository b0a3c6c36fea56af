//! Disks that fail, of which the kernel says so once, and then that all is well; and disks that are full.

use super::claims::{GATEWAY, VOLUME, numbers};
use super::meddler::{Event, Meddler};
use super::power::taken_out;
use super::*;
use crate::posix::sys_real::Lacks;
use std::os::unix::fs::MetadataExt;

/// A home in whose file `w/f` an append, and in whose directory `w` a new name, was not made durable.
fn home_that_failed(place: &Place) -> (Posix<Meddler>, Vec<Placed>) {
    for calls in 0.. {
        let home = place.open(Meddler::new(Lacks::default()));
        place.write("w/f", b"base");
        let ops = vec![
            placed(write("w/f", Some(version(&home, "w/f")), 4, b" and ours")),
            placed(create("w", &format!("new-{calls}"), 0o644)),
        ];
        home.sys.after(calls, Event::Failure(Errno::IO));
        let outcomes = home.apply(ops.clone()).unwrap();
        if home.sys.failed_syncs() > 0 {
            assert!(matches!(outcomes[..], [Outcome::Refused(ErrorKind::Io)]), "{outcomes:?}");
            assert_eq!(place.read("w/f"), b"base and ours", "the kernel shows it all the same");
            return (home, ops.into_iter().map(|op| Placed { resent: true, ..op }).collect());
        }
    }
    unreachable!("some call is a sync");
}

#[test]
fn what_a_sync_failed_to_write_is_written_again() {
    let place = Place::new();
    let (home, ops) = home_that_failed(&place);
    let before = home.sys.written();
    let outcomes = home.apply(ops.clone()).unwrap();
    assert!(matches!(outcomes[..], [Outcome::Done(_), Outcome::Done(_)]), "{outcomes:?}");
    assert_eq!(home.sys.written() - before, b" and ours".len() as i64);
    assert_eq!(place.read("w/f"), b"base and ours");
    // An agent that has seen no sync fail believes what it finds.
    let next = place.open(Meddler::new(Lacks::default()));
    assert!(matches!(one(&next, ops[0].clone()), Outcome::Done(_)));
    assert_eq!(next.sys.written(), 0);
}

/// ext4 syncs a directory with success after its journal has ended, but takes no new name.
#[test]
fn a_name_is_not_durable_where_none_can_be_made() {
    for (why, is_done) in [(Errno::ROFS, false), (Errno::IO, false), (Errno::NOSPC, true)] {
        let place = Place::new();
        let (home, mut ops) = home_that_failed(&place);
        home.sys.refuse(why);
        let outcome = one(&home, ops.remove(1));
        assert_eq!(matches!(outcome, Outcome::Done(_)), is_done, "{why:?}: {outcome:?}");
        assert_eq!(matches!(outcome, Outcome::Refused(_)), !is_done, "{why:?}: {outcome:?}");
        let left: Vec<String> = place.names("w").into_iter().filter(|n| n.starts_with(".trellis")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// It may be what the operation comes to: then the gateway drops its own bytes.
#[test]
fn what_a_conflict_tells_of_is_durable() {
    let mut failed = 0;
    for calls in 0.. {
        let place = Place::new();
        let home = place.open(Meddler::new(Lacks::default()));
        place.write("w/f", b"somebody's");
        let op = placed(create("w", "f", 0o644));
        home.sys.after(calls, Event::Failure(Errno::IO));
        let outcome = one(&home, op.clone());
        if !home.sys.happened() {
            assert!(matches!(outcome, Outcome::Conflict(Some(_))), "{outcome:?}");
            assert_eq!(home.sys.syncs(), 2, "the file and its directory");
            break;
        }
        if home.sys.failed_syncs() > 0 {
            failed += 1;
            assert!(matches!(outcome, Outcome::Refused(ErrorKind::Io)), "{outcome:?} after {calls} calls");
            // What is found there may be gone with the machine's memory.
            let again = one(&home, Placed { resent: true, ..op });
            assert!(matches!(again, Outcome::Refused(ErrorKind::Io)), "{again:?} after {calls} calls");
        }
    }
    assert_eq!(failed, 2);
}

/// A home where an agent died at the sync of what it had done, and its operation.
fn left_unsynced() -> (Place, Placed) {
    let mut left = None;
    for calls in 0.. {
        let place = Place::new();
        std::fs::create_dir_all(place.path(".cache/trellis")).unwrap();
        place.write("w/f", b"base");
        let dying = place.open(Meddler::new(Lacks::default()));
        let op = placed(write("w/f", Some(version(&dying, "w/f")), 4, b" and ours"));
        dying.claim(GATEWAY, VOLUME, vec![]).unwrap();
        dying.sys.after(calls, Event::Death);
        match dying.apply(vec![op.clone()]).as_deref() {
            // The last call before that is the sync.
            Ok([Outcome::Done(_)]) => break,
            _ => left = Some((place, Placed { resent: true, ..op })),
        }
    }
    let (place, op) = left.unwrap();
    assert_eq!(place.read("w/f"), b"base and ours");
    (place, op)
}

/// Who claims takes what is found of an operation for durable, and the kernel calls the next sync a success.
#[test]
fn a_claim_does_not_believe_what_no_sync_made_durable() {
    let (place, op) = left_unsynced();
    let home = place.open(Meddler::new(Lacks::default()));
    home.sys.fail_file_system(Errno::IO);
    for attempt in 1..=2 {
        let claimed = home.claim(GATEWAY, VOLUME, vec![op.id.seq]);
        assert_eq!(claimed.map_err(|e| e.kind), Err(ErrorKind::Io), "attempt {attempt}");
    }
    assert_eq!(home.sys.failed_syncs(), 1);
    // An agent that has seen no sync fail believes what it finds: what waits goes on with the next connection.
    let next = place.open(Meddler::new(Lacks::default()));
    assert_eq!(next.claim(GATEWAY, VOLUME, vec![op.id.seq]).unwrap().unwrap().begun, [op.id.seq]);
    let home = place.open(Meddler::new(Lacks::default()));
    home.sys.fail_file_system(Errno::IO);
    assert!(home.claim(GATEWAY, VOLUME, vec![op.id.seq]).is_err());
    // Of what nobody asks about nothing is believed.
    assert!(home.claim(GATEWAY, VOLUME, vec![]).unwrap().is_some());
    // There may be room for it by now.
    let full = place.open(Meddler::new(Lacks::default()));
    full.sys.fail_file_system(Errno::NOSPC);
    assert_eq!(full.claim(GATEWAY, VOLUME, vec![op.id.seq]).unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(full.claim(GATEWAY, VOLUME, vec![op.id.seq]).unwrap().unwrap().begun, [op.id.seq]);
}

/// What an earlier agent had done is not durable by being asked for twice.
#[test]
fn what_is_repeated_is_written_again_where_its_sync_failed() {
    let (place, op) = left_unsynced();
    let home = place.open(Meddler::new(Lacks::default()));
    home.claim(GATEWAY, VOLUME, vec![op.id.seq]).unwrap();
    home.sys.fail_file_system(Errno::IO);
    let outcome = one(&home, op.clone());
    assert!(matches!(outcome, Outcome::Refused(ErrorKind::Io)), "{outcome:?}");
    assert_eq!(home.sys.failed_syncs(), 1);
    // The kernel drops its pages, and what the disk has is seen.
    let there = std::fs::metadata(place.path("w/f")).unwrap();
    place.write("w/f", b"base\0\0\0\0\0\0\0\0\0");
    place.set_mtime("w/f", Time { sec: there.mtime(), nsec: there.mtime_nsec() as u32 });
    let outcome = one(&home, op);
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    assert_eq!(place.read("w/f"), b"base and ours");
}

/// The time that a full disk's kernel gives to a file of which it writes nothing may be all that a power cut keeps.
#[test]
fn what_is_taken_back_on_a_full_disk_is_durable() {
    let place = Place::new();
    let home = place.open(Meddler::new(Lacks::default()));
    place.write("w/f", b"base");
    let before = version(&home, "w/f");
    home.sys.fill_after(0, || {});
    let outcome = one(&home, placed(write("w/f", Some(before), 4, b" and ours")));
    assert!(matches!(outcome, Outcome::Refused(ErrorKind::NoSpace)), "{outcome:?}");
    assert!(version(&home, "w/f").same_content(&before));
    assert_eq!(home.sys.synced(before.id.ino).as_deref(), Some(&b"base"[..]));
}

/// A home that can neither exchange names nor move one only where the new one is free has to give a file back by another way
/// than a further name, for which there is no room.
#[test]
fn what_was_taken_out_of_its_place_does_not_stay_away_where_the_disk_is_full() {
    let lacks = || Lacks { rename_flags: true, ..Lacks::default() };
    let overwrite = |place: &Place| {
        place.write("w/f", b"base");
        let home = place.open(Meddler::new(lacks()));
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let op = placed(write("w/f", Some(version(&home, "w/f")), 0, b"ours"));
        (home, op)
    };
    for calls in 0.. {
        let place = Place::new();
        let (home, op) = overwrite(&place);
        home.sys.fill_after(calls, || {});
        let is_done = home.apply(vec![op]).is_ok_and(|all| matches!(all[..], [Outcome::Done(_)]));
        if !home.sys.happened() {
            break;
        }
        let wanted = if is_done { b"ours" } else { b"base" };
        assert_eq!(std::fs::read(place.path("w/f")).ok(), Some(wanted.to_vec()), "full at call {calls}");
    }
    let mut away = 0;
    for calls in 0.. {
        let place = Place::new();
        let (home, op) = overwrite(&place);
        home.sys.after(calls, Event::Death);
        let _ = home.apply(vec![op.clone()]);
        if !home.sys.happened() {
            break;
        }
        drop(home);
        away += usize::from(!place.path("w/f").exists());
        let next = place.open(Meddler::new(lacks()));
        next.sys.refuse(Errno::NOSPC);
        next.claim(GATEWAY, VOLUME, numbers(&[op])).unwrap().unwrap();
        let there = std::fs::read(place.path("w/f"));
        assert!(there.is_ok_and(|f| f == b"base" || f == b"ours"), "death at call {calls}");
    }
    assert!(away > 1, "only {away} times");
}

/// Where nothing could be kept when it came, an agent has no claim, and the next one may have.
#[test]
fn what_an_agent_without_a_claim_took_out_is_found_by_one_with_a_claim() {
    let mut aside = 0;
    for calls in 0.. {
        let place = Place::new();
        place.write("w/gone", b"to be removed");
        let home = place.open(Meddler::new(Lacks::default()));
        let op = placed(remove("w", "gone", Some(version(&home, "w/gone"))));
        home.sys.after(0, Event::Failure(Errno::ROFS));
        assert_eq!(home.claim(GATEWAY, VOLUME, vec![]).unwrap(), None);
        home.sys.after(calls, Event::Death);
        let _ = home.apply(vec![op.clone()]);
        if !home.sys.happened() {
            break;
        }
        drop(home);
        let left = taken_out(&place).is_some();
        aside += usize::from(left);
        place.open(Meddler::new(Lacks::default())).claim(GATEWAY, VOLUME, numbers(&[op])).unwrap().unwrap();
        assert_eq!(taken_out(&place), None, "death at call {calls}");
        assert!(!left || place.read("w/gone") == b"to be removed", "death at call {calls}");
    }
    assert!(aside > 1, "only {aside} times");
}
