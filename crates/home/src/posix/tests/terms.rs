//! A gateway whose state directory was put back, or is used twice, changes nothing.

use super::claims::{GATEWAY, VOLUME, all_done, batch, begin, numbers};
use super::meddler::{Event, Meddler};
use super::*;
use crate::op::{Entered, Term};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;

/// Claims by words that are told by a number each, with `next` as the next operation.
fn claim<S: Sys>(home: &Posix<S>, known: &[u8], new: u8, next: u64, lost: &[u64]) -> Result<Vec<u64>> {
    let word = |n: u8| [n; 16];
    let term = Term { known: known.iter().copied().map(word).collect(), new: word(new), next };
    let entered = home.claim_in(GATEWAY, VOLUME, lost.to_vec(), &term)?;
    assert!(entered.kept);
    Ok(entered.known.map(|known| [known.begun, known.unknown].concat()).unwrap_or_default())
}

/// Fails, and everything is as it was, but for the first word of the fence.
fn is_superseded<S: Sys>(place: &Place, home: &Posix<S>, known: &[u8], new: u8, next: u64) {
    let all = || ["log", "ran"].map(|name| std::fs::read(kept(place, name)).unwrap());
    let tree = || place.names("w").iter().map(|name| (name.clone(), read(place, name))).collect::<Vec<_>>();
    let fence = || std::fs::read(kept(place, "fence")).unwrap()[32..].to_vec();
    let before = (all(), tree(), fence());
    assert_eq!(claim(home, known, new, next, &[]).unwrap_err().kind, ErrorKind::Superseded);
    assert!((all(), tree(), fence()) == before);
}

fn read(place: &Place, name: &str) -> Option<Vec<u8>> {
    std::fs::read(place.path(&format!("w/{name}"))).ok()
}

fn kept(place: &Place, name: &str) -> PathBuf {
    place.path(&format!(".cache/trellis/volumes/{GATEWAY:016x}-{VOLUME:08x}/{name}"))
}

/// The operations of the first claim, the first two of them done; answers the next number, too.
fn used(place: &Place) -> (Vec<Placed>, u64) {
    let home = place.open(Linux::default());
    let ops = batch(&home);
    claim(&home, &[], 1, ops[0].id.seq, &[]).unwrap();
    all_done(&home.apply(ops[..2].to_vec()).unwrap(), &ops[..2], "in the first term");
    let next = ops[2].id.seq;
    (ops, next)
}

#[test]
fn who_does_not_know_the_last_term_changes_nothing() {
    let place = begin();
    let (ops, next) = used(&place);
    let open = || place.open(Linux::default());
    claim(&open(), &[1], 2, next, &[]).unwrap();
    // Put back to before the second claim, or to before the first one, or with nothing left.
    is_superseded(&place, &open(), &[1], 9, next);
    is_superseded(&place, &open(), &[], 9, 1);
    // The newest one goes on, and what was done is known to it.
    let home = open();
    assert_eq!(claim(&home, &[1, 2], 3, next, &numbers(&ops)).unwrap(), numbers(&ops[..2]));
    all_done(&home.apply(ops[2..].to_vec()).unwrap(), &ops[2..], "in the third term");
    // Of two that were the same the one goes on that came first.
    claim(&open(), &[1, 2, 3], 4, u64::MAX, &[]).unwrap();
    is_superseded(&place, &open(), &[1, 2, 3], 5, u64::MAX);
}

/// The copy was made, or what is put back was saved, after the last claim.
#[test]
fn who_does_not_know_an_operation_of_the_last_term_changes_nothing() {
    let place = begin();
    let (ops, next) = used(&place);
    for earlier in [ops[0].id.seq, ops[1].id.seq] {
        is_superseded(&place, &place.open(Linux::default()), &[1], 9, earlier);
        // Also where the log tells nothing: how far the operations came is known.
        is_superseded(&place, &place.open(Meddler::restarted(Lacks::default())), &[1], 9, earlier);
    }
    assert_eq!(
        claim(&place.open(Linux::default()), &[1], 2, next, &numbers(&ops)).unwrap(),
        numbers(&ops[..2])
    );
}

/// An agent that was left behind comes late with a word of before, and what was sent as the last one may never have arrived.
#[test]
fn any_word_of_its_own_is_as_good_as_the_last() {
    let place = begin();
    let (_, next) = used(&place);
    let open = || place.open(Linux::default());
    claim(&open(), &[1, 2, 3], 4, next, &[]).unwrap();
    claim(&open(), &[1], 2, next, &[]).unwrap_err();
    claim(&open(), &[1, 2, 3, 4, 5], 6, next, &[]).unwrap();
    // A claim that comes twice.
    claim(&open(), &[1, 2, 3, 4, 5], 6, next, &[]).unwrap();
    // A gateway that knows of no terms, or that does again.
    open().claim(GATEWAY, VOLUME, vec![]).unwrap();
    is_superseded(&place, &open(), &[5], 9, next);
    claim(&open(), &[6], 7, next, &[]).unwrap();
}

/// It is told before anything that was found is mended, and what the fence tells of rest stays true.
#[test]
fn who_is_refused_leaves_the_rest_that_the_fence_tells_of() {
    let place = begin();
    let boot = |n: u8| place.open(Meddler::booted_as(Lacks::default(), &[n]));
    let home = boot(1);
    let ops = batch(&place.open(Linux::default()));
    claim(&home, &[], 1, ops[0].id.seq, &[]).unwrap();
    all_done(&home.apply(ops[..2].to_vec()).unwrap(), &ops[..2], "before it");
    let (lost, next) = (numbers(&ops), ops[2].id.seq);
    claim(&boot(1), &[1], 2, next, &lost).unwrap();
    is_superseded(&place, &boot(2), &[1], 9, next);
    let known = boot(3).claim(GATEWAY, VOLUME, lost.clone()).unwrap().unwrap();
    assert_eq!((known.begun, known.unknown, known.restarted), (lost[..2].to_vec(), vec![], false));
}

#[test]
fn a_term_is_durable_before_its_claim_is_answered() {
    let place = begin();
    let (_, next) = used(&place);
    let home = place.open(Meddler::new(Lacks::default()));
    claim(&home, &[1], 2, next, &[]).unwrap();
    let ino = std::fs::metadata(kept(&place, "fence")).unwrap().ino();
    assert_eq!(home.sys.synced(ino).unwrap()[32..], [2; 16]);
}

/// At whatever call an agent dies that claims, the gateway can claim again.
#[test]
fn an_agent_that_dies_in_a_claim_supersedes_nobody() {
    for calls in 0.. {
        let place = begin();
        let (_, next) = used(&place);
        let home = place.open(Meddler::new(Lacks::default()));
        home.sys.after(calls, Event::Death);
        let _ = claim(&home, &[1], 2, next, &[]);
        if !home.sys.happened() {
            assert!(calls > 10, "{calls}");
            break;
        }
        drop(home);
        claim(&place.open(Linux::default()), &[1, 2], 3, next, &[]).unwrap();
    }
}

/// A fence of an earlier version has room for the first two words alone.
#[test]
fn a_fence_without_room_for_a_term_is_one_all_the_same() {
    for calls in 0.. {
        let place = begin();
        let (ops, next) = used(&place);
        let fence = std::fs::File::options().write(true).open(kept(&place, "fence")).unwrap();
        fence.set_len(32).unwrap();
        let home = place.open(Meddler::new(Lacks::default()));
        home.sys.after(calls, Event::Failure(Errno::NOSPC));
        let known =
            home.claim_in(GATEWAY, VOLUME, numbers(&ops), &Term { known: vec![], new: [2; 16], next });
        if !home.sys.happened() {
            assert_eq!(std::fs::read(kept(&place, "fence")).unwrap()[32..], [2; 16]);
            break;
        }
        drop(home);
        let Ok(Entered { kept: has_word, known: Some(known) }) = known else { continue };
        let word = std::fs::read(kept(&place, "fence")).unwrap();
        assert!(!has_word || word[32..] == [2; 16], "call {calls}");
        assert_eq!(known.begun, numbers(&ops[..2]), "call {calls}");
        claim(&place.open(Linux::default()), &[2], 3, next, &[]).unwrap();
    }
}
