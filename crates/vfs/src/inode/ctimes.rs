//! Which ctimes clients may have seen of changes whose records were lost with an earlier process.
//!
//! An unstable write is seen, and answered, before its record is durable. If the record is lost and the clock is behind
//! afterwards, the next change of the file has to show a later ctime all the same. So nothing is answered that bears a
//! time long after that of the last durable record, and after a restart ctimes count on from there. So may those of the process
//! after that, until its clock is later than what was counted on to.
//!
//! A ctime of a home whose clock is ahead is shown as of when it was heard, which no record tells before the next
//! checkpoint or change. So after a restart it may be as late as it may have been before. Where our clock is behind, that is
//! the floor, which the store knows before anybody is shown it: the clock of the process after that may be later than all
//! records, and not than that.

use super::{Tree, damaged, local};
use crate::journal::Change;
use crate::limits;
use home::{Result, Time};
use oncrpc::xdr::Xdr;
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
    /// The latest floor that the store knows.
    noted: Option<Time>,
}

impl Ctimes {
    /// After a restart, at the time `now`: these changes were found, and this note of a floor.
    pub fn found<'a>(changes: impl Iterator<Item = &'a Change>, noted: Option<Time>, now: Time) -> Ctimes {
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
        found.noted = noted.filter(|floor| *floor <= credible);
        found.until = found.until.max(found.noted);
        found.floor = found.floor.max(shown.unwrap_or_default()).max(found.noted.unwrap_or_default());
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
    fn heard(&self, time: Time) -> Time {
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

impl Tree {
    /// The latest ctime that is shown of what is heard from a home at this time.
    pub fn heard(&mut self, time: Time) -> Time {
        let heard = self.ctimes.heard(time);
        if heard > time && self.ctimes.noted < Some(heard) {
            let note = (self.key(b't', &[]), Some(heard.to_bytes().to_vec()));
            match self.store.commit(vec![note]).and_then(|()| self.store.persist()) {
                Ok(()) => self.ctimes.noted = Some(heard),
                Err(e) => tracing::warn!("a later start may show earlier ctimes than this one: {e}"),
            }
        }
        heard
    }

    /// The floor that an earlier process noted.
    pub fn noted_floor(&self) -> Result<Option<Time>> {
        let bytes = self.store.get(&self.key(b't', &[])).map_err(local)?;
        bytes.map(|b| Time::from_bytes(b).map_err(|_| damaged("ctimes"))).transpose()
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
    use crate::store::{MemStore, MetaStore};
    use home::op::SetAttr;
    use home::{Attr, Op};
    use std::sync::Arc;

    fn change(time: Time, ctime: Time) -> Change {
        let attr = crate::inode::tests::attr(home::Kind::File, 2);
        let op = Op::SetAttr { object: 2, base: None, set: SetAttr::default() };
        let after = Some(Attr { ctime, ..attr });
        Change { time, object: 2, after, op, retry: None, verifier: None, plain: false }
    }

    fn floor(changes: &[Change], now: Time) -> Option<Time> {
        let floor = Ctimes::found(changes.iter(), None, now).floor(now);
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

    /// No record tells it.
    #[test]
    fn what_was_shown_of_a_home_while_the_clock_was_behind_is_known_to_the_next_process() {
        let store: Arc<dyn MetaStore> = Arc::new(MemStore::new());
        let at = |sec| Time { sec, nsec: 0 };
        let before = [change(at(100), at(100))];
        let start = |now| {
            let mut tree = Tree::open(1, store.clone()).unwrap();
            tree.ctimes = Ctimes::found(before.iter(), tree.noted_floor().unwrap(), now);
            tree
        };
        assert_eq!(start(at(101)).heard(at(101)), at(101));
        assert_eq!(start(at(101)).heard(at(101)), at(101), "it was not behind");
        let shown = start(at(50)).heard(at(50));
        assert!(shown > at(101));
        assert_eq!(start(at(101)).heard(at(101)), shown);
        assert_eq!(start(shown.next()).heard(shown.next()), shown.next(), "the clock is later than that");
    }
}
