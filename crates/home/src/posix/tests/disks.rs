//! Disks that fail: the kernel says so once, and then that all is well.

use super::meddler::{Event, Meddler};
use super::*;
use crate::posix::sys_real::Lacks;

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
