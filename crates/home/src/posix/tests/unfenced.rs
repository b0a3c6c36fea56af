//! Homes that were full when they were claimed, so that there is no room for a fence.

use super::claims::{GATEWAY, VOLUME, all_done, numbers};
use super::meddler::{Event, Meddler};
use super::*;
use crate::posix::sys_real::Lacks;

/// A full home, claimed without a fence, and two operations that need no room.
fn full(place: &Place) -> (Posix<Meddler>, Vec<Placed>) {
    place.write("w/f", b"first");
    place.write("w/g", b"second");
    let home = place.open(Meddler::new(Lacks::default()));
    home.sys.refuse(Errno::NOSPC);
    assert_eq!(home.claim(GATEWAY, VOLUME, vec![]).unwrap(), None);
    let append = |path, at| placed(write(path, Some(version(&home, path)), at, b", ours"));
    let ops = vec![append("w/f", 5), append("w/g", 6)];
    (home, ops)
}

/// The gateway claims anew as soon as that is of use, and loses nothing by having begun without.
#[test]
fn where_there_is_room_for_a_fence_at_last_there_is_one() {
    let place = Place::new();
    let (home, ops) = full(&place);
    all_done(&home.apply(ops[..1].to_vec()).unwrap(), &ops[..1], "without a fence");
    home.sys.refuse_nothing();
    let refused = home.apply(ops[1..].to_vec()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotClaimed);
    let claimed = home.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap().unwrap();
    assert_eq!((claimed.begun, claimed.unknown), (vec![], numbers(&ops)), "no log tells of either");
    all_done(&home.apply(ops[1..].to_vec()).unwrap(), &ops[1..], "with a fence");
    let next = place.open(Meddler::new(Lacks::default()));
    assert!(next.claim(GATEWAY, VOLUME, vec![]).unwrap().is_some());
    assert_eq!(home.apply(vec![placed(create("w", "late", 0o644))]).unwrap_err().kind, ErrorKind::NotClaimed);
}

/// The gateway is asked to claim anew once, and not before each batch.
#[test]
fn where_a_fence_has_room_and_the_log_has_none_the_work_goes_on() {
    let place = Place::new();
    let (home, ops) = full(&place);
    home.sys.refuse_nothing();
    assert_eq!(home.apply(ops.clone()).unwrap_err().kind, ErrorKind::NotClaimed);
    std::fs::remove_file(super::power::kept(&place, "log")).unwrap();
    home.sys.refuse(Errno::NOSPC);
    assert_eq!(home.claim(GATEWAY, VOLUME, numbers(&ops)).unwrap(), None);
    all_done(&home.apply(ops.clone()).unwrap(), &ops, "without a log");
}

/// An agent without a fence that was left behind by its connection cannot be told to end: it sees that another one has come.
#[test]
fn who_has_no_fence_begins_nothing_more_where_another_one_has() {
    let mut ended = [0; 3];
    for calls in 0.. {
        let place = Place::new();
        let (home, ops) = full(&place);
        let root = place.root.clone();
        let takes_over = move || {
            let next = Posix::open(bytes(&root)).unwrap().with_home_dir(bytes(&root));
            assert!(next.claim(GATEWAY, VOLUME, vec![]).unwrap().is_some());
        };
        home.sys.after(calls, Event::Outside(Box::new(takes_over)));
        let applied = home.apply(ops.clone());
        if !home.sys.happened() {
            break;
        }
        let done = applied.as_deref().map_or(0, <[_]>::len);
        ended[done] += 1;
        assert_eq!(place.read("w/g") == b"second", done < 2, "{applied:?} at call {calls}");
    }
    assert!(ended.into_iter().all(|times| times > 1), "{ended:?}");
}
