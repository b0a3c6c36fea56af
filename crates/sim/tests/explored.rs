//! What can be explored quickly.

#![allow(clippy::unwrap_used)]

use sim::explore::tree::Change::{self, *};
use sim::explore::tree::{alphabet, batches};
use sim::explore::{Bounds, Counts, How, explore, explore_these};
use sim::variant::Variant;

const BOUNDS: Bounds = Bounds {
    depth: 1,
    narrow: false,
    outsider: 1,
    crashes: 1,
    kills_only: false,
    switches: 0,
    gateways: false,
    events: 1,
    how: How { variant: None, spools: false },
    keep_going: false,
    jobs: 2,
};

fn holds(counts: &Counts) {
    let broken: Vec<String> = counts.broken.iter().map(|b| format!("{}: {}", b.why, b.path())).collect();
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn single_operations_keep_every_promise() {
    let counts = explore(&BOUNDS);
    holds(&counts);
    assert!(counts.batches >= 30 && counts.runs > 6_000 && counts.trees > 200, "{counts:?}");
}

#[test]
fn pairs_keep_every_promise_when_agents_are_killed_or_others_act() {
    // The command explores all of them.
    let some: Vec<_> = batches(2, &alphabet(false)).into_iter().step_by(4).collect();
    let counts = explore_these(&Bounds { kills_only: true, ..BOUNDS }, &some);
    holds(&counts);
    assert!(counts.batches >= 19 && counts.runs > 6_000, "{counts:?}");
}

/// Files that are made, written anew and put in the place of others, staged on the home's disk.
#[test]
fn files_that_go_home_whole_keep_every_promise() {
    let how = How { spools: true, ..BOUNDS.how };
    let all: [&[Change]; 2] = [&[Save("f")], &[Create("n"), Write("n"), Rename("n", "f")]];
    let counts = explore_these(&Bounds { how, ..BOUNDS }, &all.map(<[Change]>::to_vec));
    holds(&counts);
    assert!(counts.runs > 1_000, "{counts:?}");
    let left = Bounds { how, outsider: 0, crashes: 0, switches: 1, ..BOUNDS };
    let counts = explore_these(&left, &[vec![Save("f")]]);
    holds(&counts);
    assert!(counts.runs > 100, "{counts:?}");
}

#[test]
fn agents_that_are_left_behind_do_no_harm() {
    let bounds = Bounds { outsider: 0, crashes: 0, switches: 2, events: 2, ..BOUNDS };
    let counts = explore_these(&bounds, &[vec![Create("n")], vec![Append("f")]]);
    holds(&counts);
    assert!(counts.runs > 1_000, "{counts:?}");
}

#[test]
fn two_gateways_lose_nothing_of_each_other() {
    let bounds = Bounds { outsider: 0, crashes: 0, gateways: true, narrow: true, ..BOUNDS };
    let counts = explore(&bounds);
    holds(&counts);
    assert!(counts.runs > 500, "{counts:?}");
}

/// Batches that once broke a promise.
#[test]
fn what_was_mended_stays_mended() {
    let kills = Bounds { kills_only: true, ..BOUNDS };
    let both = Bounds { events: 2, ..kills };
    let twice = Bounds { outsider: 2, crashes: 0, events: 2, ..BOUNDS };
    let cuts = Bounds { outsider: 0, ..BOUNDS };
    let all: [(Bounds, &[Change]); 17] = [
        // Who appends before a killed agent's successor comes; a folder that is moved meanwhile.
        (both, &[Append("f")]),
        (both, &[Remove("d/l")]),
        // A new file that is replaced, and what was there before it.
        (kills, &[Create("d/n"), Rename("f", "d/n")]),
        (kills, &[Symlink("y"), Rename("s", "y")]),
        // What was read before its mode was set.
        (kills, &[Chmod("f"), Write("f")]),
        // Who opens a file with two names for writing, and then writes; a file in the place of a link that is removed.
        (twice, &[Write("h")]),
        (twice, &[Remove("s")]),
        // What a power cut left of a new file, or under the name of what was to replace one; what is written once more after
        // its file was moved.
        (cuts, &[Create("n"), Write("n")]),
        (cuts, &[Create("n"), Rename("f", "n")]),
        (cuts, &[Append("f"), Rename("f", "g")]),
        (cuts, &[Append("f"), Rename("f", "n")]),
        // What another program wrote before a name was made; a file that it removes together with the batch.
        (kills, &[Link("f", "n"), Remove("f"), Write("n")]),
        (kills, &[Link("f", "n"), Write("f"), Remove("f")]),
        // One that it takes the other name of, before that is moved.
        (kills, &[Append("f"), Link("f", "n"), Remove("f"), Rename("n", "f")]),
        // What is moved over a file that was written a moment before, of whose new identity a power cut left no word.
        (cuts, &[Write("f"), Rename("h", "f")]),
        (cuts, &[Create("n"), Write("f"), Rename("n", "f")]),
        // The same where it is moved away and back.
        (cuts, &[Write("f"), Rename("f", "n"), Rename("n", "f")]),
    ];
    for (bounds, batch) in all {
        holds(&explore_these(&bounds, &[batch.to_vec()]));
    }
}

/// What has to be caught is.
#[test]
fn every_step_that_is_left_out_is_missed() {
    let outside = Bounds { crashes: 0, ..BOUNDS };
    let crash = Bounds { outsider: 0, ..BOUNDS };
    let left = Bounds { crashes: 0, outsider: 0, switches: 2, events: 2, ..BOUNDS };
    let all = [
        (Variant::BlindRename, outside),
        (Variant::CheckThenRename, outside),
        (Variant::NoWriterTest, outside),
        (Variant::DoneBeforeDurable, crash),
        (Variant::NoMarker, crash),
        (Variant::NoFence, left),
        (Variant::PreparedBeforeStaged, crash),
    ];
    for (variant, bounds) in all {
        let found = explore(&Bounds { how: How { variant: Some(variant), ..bounds.how }, ..bounds });
        assert!(!found.broken.is_empty(), "{variant:?} is not noticed in {found:?}");
    }
}
