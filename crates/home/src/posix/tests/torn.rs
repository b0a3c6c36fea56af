//! What an agent makes of a long file that a power cut left half written.

use super::claims::{GATEWAY, VOLUME, all_done, begin};
use super::meddler::{Event, Meddler};
use super::*;

/// More than is kept in a log of what a file had in it.
fn long() -> Vec<u8> {
    vec![b'l'; 2 * limits::IMAGE_MAX as usize]
}

/// A new file and two writes to it, of which the second is too long to be kept in a log, by an agent that dies before its call
/// number `calls`. `None` if not all was in the file before.
fn long_and_torn(place: &Place, calls: usize) -> Option<[Placed; 3]> {
    let home = place.open(Meddler::new(Lacks::default()));
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let write = |at: usize, bytes: &[u8]| placed(write("w/made", None, at as u64, bytes));
    let ops = [placed(create("w", "made", 0o644)), write(0, &long()[..5]), write(5, &long()[5..])];
    home.sys.after(calls, Event::Death);
    let _ = home.apply(ops.to_vec());
    (std::fs::read(place.path("w/made")).is_ok_and(|content| content == long())).then_some(ops)
}

/// An agent that puts right what a power cut left of a long file is killed at each of its calls: the next one knows all the same that
/// nobody else has written there.
#[test]
fn what_a_killed_agent_put_right_of_a_long_torn_file_is_put_right() {
    let written = (0..).find(|calls| long_and_torn(&begin(), *calls).is_some()).unwrap();
    let mut kills = 0;
    for calls in 0.. {
        let place = begin();
        let [made, first, second] = long_and_torn(&place, written).unwrap();
        let lost = [made.id.seq, first.id.seq, second.id.seq];
        let now = || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            place.write("w/clock", b"");
            version(&place.open(Linux::default()), "w/clock").mtime
        };
        let booted = now();
        now();
        let again = |earlier: &Placed, base, at: usize, bytes: &[u8]| {
            let op = write("w/made", Some(base), at as u64, bytes);
            Placed { resent: true, op, ..earlier.clone() }
        };
        let agent = place.open(Meddler::restarted_at(Lacks::default(), booted));
        assert_eq!(agent.claim(GATEWAY, VOLUME, lost.to_vec()).unwrap().unwrap().torn, lost[1..]);
        let empty = Version { size: 0, mtime: made.time, ..version(&agent, "w/made") };
        let first = again(&first, empty, 0, &long()[..5]);
        agent.sys.after(calls, Event::Death);
        let _ = agent.apply(vec![first.clone()]);
        if !agent.sys.happened() {
            break;
        }
        kills += 1;
        drop(agent);
        let when = format!("after {calls} calls");
        let next = place.open(Meddler::restarted_at(Lacks::default(), booted));
        next.claim(GATEWAY, VOLUME, lost[1..].to_vec()).unwrap();
        all_done(&next.apply(vec![first.clone()]).unwrap(), &[first], &when);
        let second = again(&second, version(&next, "w/made"), 5, &long()[5..]);
        all_done(&next.apply(vec![second.clone()]).unwrap(), &[second], &when);
        assert_eq!(place.read("w/made"), long(), "{when}");
    }
    assert!(kills > 5, "only {kills}");
}
