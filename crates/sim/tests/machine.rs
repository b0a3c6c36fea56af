//! What the simulated machine must do as a real one does.

#![allow(missing_docs, clippy::unwrap_used)]

use home::posix::sys::{Make, Mode, Rename, Sys};
use rustix::io::Errno;
use sim::clock::Clock;
use sim::machine::{Around, Call, Cut, Fate, Luck, Machine, SimSys};
use std::sync::Arc;

struct Calm {
    impatient: bool,
}

impl Around for Calm {
    fn before(&self, _: Call) -> Fate {
        Fate::Goes
    }
    fn is_impatient(&self) -> bool {
        self.impatient
    }
}

#[test]
fn who_has_died_gives_no_lease_of_another_back() {
    let machine = Machine::new(1, Clock::new(0, 1_000_000));
    let process = |impatient| SimSys::new(machine.clone(), machine.process(Arc::new(Calm { impatient })));
    let first = process(false);
    let dir = first.open_root(b"/home/ann").unwrap();
    let file = first.create(&dir, b"f", 0o644).unwrap();
    first.sync(&file).unwrap();
    first.sync(&dir).unwrap();
    first.lease(&file).unwrap();
    machine.cut();
    let open = |by: &SimSys| {
        let dir = by.open_root(b"/home/ann")?;
        by.reopen(&by.open_name(&dir, b"f")?, Mode::ReadWrite)
    };
    let (second, other) = (process(false), process(true));
    let held = open(&second).unwrap();
    second.lease(&held).unwrap();
    first.unlease(&file);
    assert_eq!(open(&other).err(), Some(Errno::AGAIN));
    second.unlease(&held);
    assert!(open(&other).is_ok());
}

/// What was staged below `~/.cache` and became a file of the tree is lost as that is.
#[test]
fn what_was_moved_out_of_the_cache_has_the_luck_of_the_tree() {
    for moved in [false, true] {
        let machine = Machine::new(1, Clock::new(0, 1_000_000));
        let sys = SimSys::new(machine.clone(), machine.process(Arc::new(Calm { impatient: false })));
        let dir = sys.open_root(b"/home/ann").unwrap();
        sys.make(&dir, b".cache", Make::Dir(0o700)).unwrap();
        let cache = sys.open_name(&dir, b".cache").unwrap();
        let file = sys.create(&cache, b"f", 0o644).unwrap();
        sys.sync(&file).unwrap();
        sys.write(&file, 0, b"unsynced").unwrap();
        let (at, path) = if moved { (&dir, "/home/ann/f") } else { (&cache, "/home/ann/.cache/f") };
        sys.rename(&cache, b"f", at, b"f", Rename::Replace).unwrap();
        machine.cut_to(Cut { keep: usize::MAX, tree: Luck::Old, cache: Luck::New }, 4096);
        assert_eq!(machine.file(path).unwrap().1.is_empty(), moved);
    }
}
