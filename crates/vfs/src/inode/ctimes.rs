//! Which ctimes clients may have seen of changes whose records were lost with an earlier process.
//!
//! An unstable write is seen, and answered, before its record is durable. If the record is lost and the clock is behind
//! afterwards, the next change of the file has to show a later ctime all the same. So nothing is answered that bears a
//! time long after that of the last durable record, and after a restart ctimes count on from there. So may those of the process
//! after that, until its clock is later than what was counted on to.
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
    /// A clock that is not later is behind an earlier process: behind the newest time of its changes, or, where that one was
    /// behind another one, what it has counted on to.
    until: Option<Time>,
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
        let (mut found, mut newest) = (Ctimes::default(), None);
        for change in changes {
            let shown = change.after.map(|after| after.ctime).filter(|ctime| *ctime <= credible);
            // Several lost ones may have counted on from it.
            let counted = shown.map(|ctime| later(ctime, limits::CTIMES_COUNTED));
            found.floor = found.floor.max(counted.unwrap_or_default());
            if found.has_counted(change.time, shown) {
                found.until = found.until.max(counted);
            }
            if change.time <= credible {
                newest = newest.max(Some(change.time));
                found.until = found.until.max(newest);
            }
            found.durable = Some(change.time);
        }
        let shown = newest.map(|time| later(time, limits::CTIME_AHEAD));
        found.floor = found.floor.max(shown.unwrap_or_default());
        found
    }

    /// Whether a change was made by a process whose clock was behind, and that may have counted on from its floor. What is later
    /// than that is the file's own ctime, which says nothing of others.
    fn has_counted(&self, time: Time, shown: Option<Time>) -> bool {
        let most = limits::CTIME_AHEAD + limits::CTIMES_COUNTED;
        self.until.is_some_and(|until| time < until && shown <= Some(later(until, most)))
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
        Some(time) <= self.until
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

#[cfg(test)]
mod tests {
    use super::*;
    use home::op::SetAttr;
    use home::{Attr, Op};

    fn change(time: Time, ctime: Time) -> Change {
        let attr = crate::inode::tests::attr(home::Kind::File, 2);
        let op = Op::SetAttr { object: 2, base: None, set: SetAttr::default() };
        let after = Some(Attr { ctime, ..attr });
        Change { time, object: 2, after, op, retry: None, verifier: None, plain: false }
    }

    fn floor(changes: &[Change], now: Time) -> Option<Time> {
        let floor = Ctimes::found(changes.iter(), now).floor(now);
        (floor.sec > i64::MIN).then_some(floor)
    }

    /// What it has shown besides may be lost.
    #[test]
    fn what_a_process_whose_clock_was_behind_has_counted_on_to_is_not_shown_again() {
        let at = |sec| Time { sec, nsec: 0 };
        let before = [change(at(100), at(100))];
        assert_eq!(floor(&before, at(101)), None);
        let counted = floor(&before, at(98)).unwrap().next();
        assert!(counted > at(103));
        // The clock was set back after the process had begun.
        let behind = [&before[..], &[change(at(101), at(101)), change(at(98), counted)]].concat();
        assert!(floor(&behind, at(103)) > Some(counted.next()));
        assert_eq!(floor(&behind, at(200)), None, "the clock is later than that");
        let twice = [&behind[..], &[change(at(103), floor(&behind, at(103)).unwrap().next())]].concat();
        assert!(floor(&twice, counted.next()) > twice.last().unwrap().after.map(|after| after.ctime));
        let own = [&before[..], &[change(at(98), at(1000)), change(at(98), at(1000).next())]].concat();
        assert_eq!(floor(&own, at(103)), None, "another file's");
    }
}
