//! What the pipes to one machine share, which is the way there: bytes under way over one of them delay what goes over
//! the others, so that their windows are common to all.

use super::super::frame::{CLASSES, Class};
use super::window::Window;
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
}

struct State {
    windows: [Window; CLASSES],
    /// The shortest time that an answer has taken.
    fastest: Duration,
}

impl Wire {
    pub fn new() -> Wire {
        let windows = std::array::from_fn(|_| Window::new());
        Wire { state: Mutex::new(State { windows, fastest: Duration::MAX }), writers: Mutex::default() }
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

    pub fn take(&self, class: Class, weight: usize) {
        self.state.lock().windows[class as usize].take(weight);
    }

    /// Without an answer.
    pub fn give_back(&self, class: Class, weight: usize) {
        self.state.lock().windows[class as usize].give_back(weight);
    }

    /// An answer came now to what was sent at some time.
    pub fn answered(&self, class: Class, weight: usize, sent: Instant, now: Instant) {
        let mut state = self.state.lock();
        state.fastest = state.fastest.min(now - sent);
        let fastest = state.fastest;
        state.windows[class as usize].answered(weight, sent, now, fastest);
    }

    /// The shortest time that an answer has taken.
    pub fn fastest(&self) -> Duration {
        self.state.lock().fastest
    }

    /// The largest of the windows that the way there has told.
    pub fn window(&self) -> Option<u64> {
        self.state.lock().windows.iter().filter_map(Window::told).max()
    }

    /// Whether so many bytes of one class are carried in a round trip.
    pub fn carries(&self, bytes: usize) -> bool {
        let state = self.state.lock();
        state.windows.iter().any(|window| window.carries(bytes, state.fastest))
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
    use crate::limits::agent::{CHANNEL_FULL, WINDOW_FIRST};

    #[tokio::test]
    async fn what_one_pipe_has_under_way_takes_the_room_of_another_one() {
        let (wire, works) = (Wire::new(), [(); 2].map(|()| Arc::new(Notify::new())));
        works.iter().for_each(|work| wire.add(work));
        wire.take(Class::Bulk, WINDOW_FIRST);
        assert!(!wire.admits(Class::Bulk as usize, 1) && wire.admits(Class::Data as usize, 1));
        wire.give_back(Class::Bulk, WINDOW_FIRST);
        wire.wake();
        assert!(wire.admits(Class::Bulk as usize, 1));
        let woken = futures_util::future::join_all(works.iter().map(|work| work.notified()));
        tokio::time::timeout(Duration::from_secs(5), woken).await.unwrap();
    }

    /// Whether a wire of `rate` bytes a second, `round_trip` away, comes to carry so many bytes in a round trip.
    fn carries(bytes: usize, rate: f64, round_trip: Duration) -> bool {
        let (wire, part, mut now) = (Wire::new(), 128 << 10, Instant::now());
        let (mut free_at, mut on_its_way) = (now, std::collections::VecDeque::new());
        // As the greeting tells.
        wire.answered(Class::Control, 0, now, now + round_trip);
        (0..2000).any(|_| {
            while wire.admits(Class::Bulk as usize, part) {
                wire.take(Class::Bulk, part);
                free_at = free_at.max(now) + Duration::from_secs_f64(part as f64 / rate);
                on_its_way.push_back((now, free_at + round_trip));
            }
            let (sent, back) = on_its_way.pop_front().unwrap();
            now = back;
            wire.answered(Class::Bulk, part, sent, now);
            wire.carries(bytes)
        })
    }

    #[test]
    fn further_pipes_are_for_wires_that_are_far_and_fast() {
        let (far, near) = (Duration::from_millis(60), Duration::from_millis(1));
        for (rate, round_trip, wanted) in [(125e6, far, true), (2e6, far, false), (125e6, near, false)] {
            assert_eq!(carries(CHANNEL_FULL, rate, round_trip), wanted, "{rate} {round_trip:?}");
        }
        // Nothing was carried.
        assert!(!Wire::new().carries(1));
    }
}
