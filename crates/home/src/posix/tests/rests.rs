//! What the fence of a volume tells after a power cut of what was begun since it was claimed.

use super::claims::{GATEWAY, VOLUME, all_done, batch, begin, numbers};
use super::meddler::Event;
use super::power::{booted, kept};
use super::*;
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;

/// However often the machine is started: what no batch followed tells of everything.
#[test]
fn what_never_entered_was_not_begun_though_the_power_failed() {
    let place = begin();
    let home = place.open(booted(0));
    home.claim(GATEWAY, VOLUME, vec![]).unwrap();
    let ops = batch(&place.open(Linux::default()));
    all_done(&home.apply(ops[..2].to_vec()).unwrap(), &ops[..2], "before it");
    drop(home);
    let lost = numbers(&ops[1..]);
    place.open(booted(0)).claim(GATEWAY, VOLUME, lost.clone()).unwrap();
    for boot in 1..4 {
        let next = place.open(booted(boot));
        let known = next.claim(GATEWAY, VOLUME, lost.clone()).unwrap().unwrap();
        assert_eq!(
            (known.begun, known.unknown, known.restarted),
            (lost[..1].to_vec(), vec![], false),
            "{boot}"
        );
        let fence = std::fs::read(kept(&place, "fence")).unwrap();
        let ino = std::fs::metadata(kept(&place, "fence")).unwrap().ino();
        assert_eq!((fence.len(), next.sys.synced(ino)), (48, Some(fence)), "it is told durably");
    }
    let next = place.open(booted(4));
    next.claim(GATEWAY, VOLUME, lost.clone()).unwrap();
    all_done(&next.apply(ops[2..3].to_vec()).unwrap(), &ops[2..3], "the first batch");
    drop(next);
    let known = place.open(booted(5)).claim(GATEWAY, VOLUME, lost.clone()).unwrap().unwrap();
    assert_eq!((known.begun, known.restarted), (lost[..2].to_vec(), true));
    assert_eq!(known.unknown, lost[2..]);
}

/// At whatever call the first batch ends: nothing of it is denied.
#[test]
fn what_may_have_been_begun_is_not_denied_after_a_power_cut() {
    let (mut begun, mut rested) = (0, 0);
    for calls in 0.. {
        let place = begin();
        let home = place.open(booted(0));
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let op = placed(create("w", "made", 0o644));
        home.sys.after(calls, Event::Death);
        let _ = home.apply(vec![op.clone()]);
        if !home.sys.happened() {
            break;
        }
        // Of the fence there is what was synced.
        let ino = std::fs::metadata(kept(&place, "fence")).unwrap().ino();
        std::fs::write(kept(&place, "fence"), home.sys.synced(ino).unwrap()).unwrap();
        drop(home);
        let is_there = place.path("w/made").exists();
        let known = place.open(booted(1)).claim(GATEWAY, VOLUME, vec![op.id.seq]).unwrap().unwrap();
        let told = [known.begun, known.unknown].concat();
        assert!(!is_there || told == [op.id.seq], "death at call {calls}: {told:?}");
        (begun, rested) = (begun + usize::from(is_there), rested + usize::from(told.is_empty()));
    }
    assert!(begun > 0 && rested > 0, "{begun} {rested}");
}

/// A fence that cannot be synced before the first batch may tell of rest after a power cut.
#[test]
fn nothing_is_begun_before_the_fence_says_so_durably() {
    let mut refused = 0;
    for calls in 0.. {
        let place = begin();
        let home = place.open(booted(0));
        home.claim(GATEWAY, VOLUME, vec![]).unwrap();
        let op = placed(create("w", "made", 0o644));
        home.sys.after(calls, Event::Failure(Errno::IO));
        let outcome = home.apply(vec![op.clone()]);
        if !home.sys.happened() || refused > 0 && outcome.is_ok() {
            break;
        }
        if !matches!(&outcome, Err(e) if e.kind == ErrorKind::NotClaimed) {
            continue;
        }
        refused += 1;
        assert!(!place.path("w/made").exists(), "failure at call {calls}");
        // Nor is it forgotten by the next claim that it may.
        let next = place.open(booted(0));
        next.claim(GATEWAY, VOLUME, vec![op.id.seq]).unwrap();
        all_done(&next.apply(vec![op.clone()]).unwrap(), std::slice::from_ref(&op), "claimed anew");
        drop(next);
        let known = place.open(booted(1)).claim(GATEWAY, VOLUME, vec![op.id.seq]).unwrap().unwrap();
        assert!(known.restarted && known.begun == [op.id.seq], "failure at call {calls}: {known:?}");
    }
    assert!(refused > 1, "only {refused} times");
}
