//! What the simulated machine must do as a real one does.

#![allow(missing_docs, clippy::unwrap_used)]

use home::posix::sys::{Mode, Sys};
use rustix::io::Errno;
use sim::clock::Clock;
use sim::machine::{Around, Call, Fate, Machine, SimSys};
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
