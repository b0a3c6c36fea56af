//! What the pipes to one machine share, which is the way there: bytes under way over one of them delay what goes over
//! the others, so that their windows are common to all, and who waits for answers over several of them waits once.

use super::super::frame::{CLASSES, Class};
use super::window::Window;
use crate::limits::agent::{CHANNEL_FAR, CHANNEL_FULL, CHANNEL_LIKELY};
use crate::remote::{Meter, Rounds};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The windows of all pipes to one machine.
pub(super) struct Wire {
    state: Mutex<State>,
    /// The writers of the pipes, who look again when an answer makes room.
    writers: Mutex<Vec<Weak<Notify>>>,
    /// Of the first pipe.
    meter: Arc<Meter>,
}

/// A request that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnderWay {
    pub class: Class,
    /// Bytes that it makes the pipe carry, if they are many.
    pub weight: usize,
    since: Instant,
    round: u64,
}

struct State {
    windows: [Window; CLASSES],
    /// The shortest time that an answer has taken.
    fastest: Duration,
    rounds: Rounds,
}

impl Wire {
    pub fn new(meter: Arc<Meter>) -> Wire {
        let windows = std::array::from_fn(|_| Window::new());
        let state = State { windows, fastest: Duration::MAX, rounds: Rounds::default() };
        Wire { state: Mutex::new(state), writers: Mutex::default(), meter }
    }

    /// Where waits and damages of all pipes are counted.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// One more pipe, whose writer waits for `work`.
    pub fn add(&self, work: &Arc<Notify>) {
        let mut writers = self.writers.lock();
        writers.retain(|writer| writer.strong_count() > 0);
        writers.push(Arc::downgrade(work));
    }

    /// There may be room for what any of the writers has.
    pub fn wake(&self) {
        self.writers.lock().iter().filter_map(Weak::upgrade).for_each(|work| work.notify_one());
    }

    /// Whether so many bytes more of this class may go ([`Window::admits`]).
    pub fn admits(&self, class: usize, weight: usize) -> bool {
        self.state.lock().windows[class].admits(weight)
    }

    /// A request is sent now.
    pub fn take(&self, class: Class, weight: usize) -> UnderWay {
        let mut state = self.state.lock();
        state.windows[class as usize].take(weight);
        let round = state.rounds.sent(&self.meter);
        UnderWay { class, weight, since: Instant::now(), round }
    }

    /// There will be no answer, or nobody waits for it.
    pub fn give_back(&self, sent: &UnderWay) {
        self.state.lock().windows[sent.class as usize].give_back(sent.weight);
    }

    /// An answer came now.
    pub fn answered(&self, sent: &UnderWay, now: Instant) {
        let mut state = self.state.lock();
        state.rounds.answered(sent.round);
        state.fastest = state.fastest.min(now - sent.since);
        let fastest = state.fastest;
        state.windows[sent.class as usize].answered(sent.weight, sent.since, now, fastest);
    }

    /// The shortest time that an answer has taken.
    pub fn fastest(&self) -> Duration {
        self.state.lock().fastest
    }

    /// The largest of the windows that the way there has told.
    pub fn window(&self) -> Option<u64> {
        self.state.lock().windows.iter().filter_map(Window::told).max()
    }

    /// Whether it carries more than one channel does, or may with so many bytes under way.
    pub fn is_wide(&self, under_way: u64) -> bool {
        let state = self.state.lock();
        let is_far = (CHANNEL_FAR..Duration::MAX).contains(&state.fastest);
        match state.windows.iter().all(|window| window.told().is_none()) {
            true => is_far && under_way >= CHANNEL_LIKELY,
            false => state.windows.iter().any(|window| window.carries(CHANNEL_FULL, state.fastest)),
        }
    }
}

#[cfg(test)]
impl Wire {
    /// Whether nothing is under way.
    pub fn is_unused(&self) -> bool {
        self.state.lock().windows.iter().all(Window::is_unused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::agent::WINDOW_FIRST;

    #[tokio::test]
    async fn what_one_pipe_has_under_way_takes_the_room_of_another_one() {
        let (wire, works) = (Wire::new(Arc::default()), [(); 2].map(|()| Arc::new(Notify::new())));
        works.iter().for_each(|work| wire.add(work));
        let sent = wire.take(Class::Bulk, WINDOW_FIRST);
        assert!(!wire.admits(Class::Bulk as usize, 1) && wire.admits(Class::Data as usize, 1));
        wire.give_back(&sent);
        wire.wake();
        assert!(wire.admits(Class::Bulk as usize, 1));
        let woken = futures_util::future::join_all(works.iter().map(|work| work.notified()));
        tokio::time::timeout(Duration::from_secs(5), woken).await.unwrap();
    }

    /// Whether a wire of `rate` bytes a second, `round_trip` away, shows to be wide.
    fn shows_wide(rate: f64, round_trip: Duration) -> bool {
        let (wire, part, mut now) = (Wire::new(Arc::default()), 128 << 10, Instant::now());
        let (mut free_at, mut on_its_way) = (now, std::collections::VecDeque::new());
        // As the greeting tells.
        let sent = |class, weight, since| UnderWay { class, weight, since, round: 0 };
        wire.answered(&sent(Class::Control, 0, now), now + round_trip);
        (0..2000).any(|_| {
            while wire.admits(Class::Bulk as usize, part) {
                wire.take(Class::Bulk, part);
                free_at = free_at.max(now) + Duration::from_secs_f64(part as f64 / rate);
                on_its_way.push_back((now, free_at + round_trip));
            }
            let (since, back) = on_its_way.pop_front().unwrap();
            now = back;
            wire.answered(&sent(Class::Bulk, part, since), now);
            wire.is_wide(0)
        })
    }

    #[test]
    fn further_pipes_are_for_wires_that_are_far_and_fast() {
        let (far, near) = (Duration::from_millis(60), Duration::from_millis(1));
        for (rate, round_trip, wanted) in [(125e6, far, true), (2e6, far, false), (125e6, near, false)] {
            assert_eq!(shows_wide(rate, round_trip), wanted, "{rate} {round_trip:?}");
        }
    }

    #[test]
    fn a_far_wire_may_be_wide_until_it_shows_that_it_is_not() {
        let now = Instant::now();
        let greeted = |round_trip| {
            let wire = Wire::new(Arc::default());
            assert!(!wire.is_wide(u64::MAX), "nothing is known of it");
            wire.answered(
                &UnderWay { class: Class::Control, weight: 0, since: now, round: 0 },
                now + round_trip,
            );
            wire
        };
        let far = greeted(Duration::from_millis(60));
        assert!(far.is_wide(CHANNEL_LIKELY) && !far.is_wide(CHANNEL_LIKELY - 1));
        assert!(!greeted(Duration::from_millis(1)).is_wide(u64::MAX));
        // What the window admits takes ten round trips.
        let sent = far.take(Class::Bulk, WINDOW_FIRST);
        assert!(!far.admits(Class::Bulk as usize, 1));
        far.answered(&sent, Instant::now() + Duration::from_millis(600));
        assert!(!far.is_wide(u64::MAX));
    }
}
