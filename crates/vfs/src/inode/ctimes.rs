//! Which ctimes clients may have seen of changes whose records were lost with an earlier process.
//!
//! An unstable write is seen, and answered, before its record is durable. If the record is lost and the clock is behind
//! afterwards, the next change of the file has to show a later ctime all the same. So nothing is answered that bears a
//! time long after that of the last durable record, and after a restart ctimes count on from there.
//!
//! A ctime of a home whose clock is ahead is shown as of when it was heard, which no record tells before the next
//! checkpoint or change. So after a restart it may be as late as it may have been before.

use crate::journal::Change;
use crate::limits;
use home::Time;
use std::time::Duration;

/// What a volume knows of the ctimes that it has shown.
#[derive(Debug, Default)]
pub struct Ctimes {
    /// The newest time of a change that an earlier process made.
    before: Option<Time>,
    /// Nothing later was shown by an earlier process, unless its clock was wrong by more than
    /// [`limits::CLOCK_BEHIND`].
    floor: Time,
    /// The time of a durable record.
    durable: Option<Time>,
    /// A later record and its time.
    next: Option<(u64, Time)>,
    /// The first record of this process that shows a ctime after the floor.
    own: Option<u64>,
}

impl Ctimes {
    /// After a restart, at the time `now`: these changes were found.
    pub fn found<'a>(changes: impl Iterator<Item = &'a Change>, now: Time) -> Ctimes {
        let credible = later(now, limits::CLOCK_BEHIND);
        let mut found = Ctimes::default();
        for change in changes {
            if change.time <= credible {
                found.before = found.before.max(Some(change.time));
            }
            let shown = change.after.map(|after| after.ctime).filter(|ctime| *ctime <= credible);
            // Several lost ones may have counted on from it.
            found.floor =
                found.floor.max(shown.map_or(Time::default(), |t| later(t, limits::CTIMES_COUNTED)));
            found.durable = Some(change.time);
        }
        let shown = found.before.map(|time| later(time, limits::CTIME_AHEAD));
        found.floor = found.floor.max(shown.unwrap_or_default());
        found
    }

    /// A change at this time shows a ctime later than the answer.
    pub fn floor(&self, time: Time) -> Time {
        if self.is_behind(time) { self.floor } else { Time { sec: i64::MIN, nsec: 0 } }
    }

    /// An answer of a home that is heard at this time shows no ctime later than the answer: what is yet to come is none that
    /// an earlier process may have shown.
    pub fn heard(&self, time: Time) -> Time {
        time.max(self.floor(time))
    }

    fn is_behind(&self, time: Time) -> bool {
        self.before.is_some_and(|before| time <= before)
    }

    /// A change has the record `seq`; `durable` is the last one that is durable.
    pub fn recorded(&mut self, seq: u64, change: &Change, durable: u64) {
        self.look(durable);
        self.next.get_or_insert((seq, change.time));
        if change.after.is_some_and(|after| after.ctime > self.floor) {
            self.own.get_or_insert(seq);
        }
    }

    /// Whether an answer may tell of a change of this time before its record is durable.
    pub fn covers(&mut self, time: Time, durable: u64) -> bool {
        self.look(durable);
        // The next process has to find that this one has counted on from the floor.
        let known = !self.is_behind(time) || self.own.is_some_and(|seq| seq <= durable);
        known && self.durable.is_some_and(|durable| time <= later(durable, limits::CTIME_AHEAD))
    }

    fn look(&mut self, durable: u64) {
        if let Some((_, time)) = self.next.take_if(|(seq, _)| *seq <= durable) {
            self.durable = Some(time);
        }
    }
}

fn later(time: Time, by: Duration) -> Time {
    let nsec = time.nsec + by.subsec_nanos();
    let sec = time.sec.saturating_add(by.as_secs() as i64).saturating_add(i64::from(nsec / 1_000_000_000));
    Time { sec, nsec: nsec % 1_000_000_000 }
}
