//! How many bytes of one class may be under way.
//!
//! Bytes that wait in the pipe delay the short messages behind them, and nobody can take them back. So the window is such
//! that answers come [`QUEUE`] later than the fastest has come: once in a round trip it is made greater or smaller in
//! proportion (as in FAST TCP: Wei, Jin, Low and Hegde, IEEE/ACM Transactions on Networking 14(6), 2006).

use crate::limits::agent::{QUEUE, WINDOW_FIRST, WINDOW_MAX, WINDOW_MIN};
use std::time::Duration;
use tokio::time::Instant;

/// The window of one class.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    used: usize,
    /// Something had to wait since the window was changed last.
    full: bool,
    /// When that was.
    changed: Option<Instant>,
    /// It was changed by what the pipe did, at some time.
    told: bool,
    /// The shortest time of an answer since then: a late one alone says nothing of the pipe.
    shortest: Duration,
}

impl Window {
    pub fn new() -> Window {
        Window {
            size: WINDOW_FIRST,
            used: 0,
            full: false,
            changed: None,
            told: false,
            shortest: Duration::MAX,
        }
    }

    /// Whether so many bytes more may go. One message always may, if no other is under way.
    pub fn admits(&mut self, weight: usize) -> bool {
        let admits = weight == 0 || self.used == 0 || self.used + weight <= self.size;
        self.full |= !admits;
        admits
    }

    pub fn take(&mut self, weight: usize) {
        self.used += weight;
    }

    /// Without an answer: its caller went away.
    pub fn give_back(&mut self, weight: usize) {
        self.used -= weight;
    }

    /// An answer came now to what was sent at some time. `fastest`: as fast as one ever came over this pipe.
    pub fn answered(&mut self, weight: usize, sent: Instant, now: Instant, fastest: Duration) {
        self.used -= weight;
        if weight == 0 {
            return;
        }
        self.shortest = self.shortest.min(now - sent);
        if self.changed.is_some_and(|changed| sent < changed) {
            return;
        }
        let ratio = (fastest + QUEUE).as_secs_f64() / self.shortest.as_secs_f64().max(1e-9);
        // A window that is not used up says nothing of a greater one.
        let most = if self.full { 2.0 } else { 1.0 };
        self.told |= self.full || ratio < 1.0;
        let size = self.size as f64 * ratio.clamp(0.5, most);
        self.size = (size as usize).clamp(WINDOW_MIN, WINDOW_MAX);
        (self.full, self.changed, self.shortest) = (false, Some(now), Duration::MAX);
    }

    /// Bytes that may be under way; `None` before the pipe has told of more or of less than the first guess.
    pub fn told(&self) -> Option<u64> {
        self.told.then_some(self.size as u64)
    }

    /// Whether so many bytes are carried in a round trip, those that queue apart. What has not grown does not tell.
    pub fn carries(&self, bytes: usize, fastest: Duration) -> bool {
        let most = || self.size as f64 * fastest.as_secs_f64() / (fastest + QUEUE).as_secs_f64();
        self.size > WINDOW_FIRST && most() >= bytes as f64
    }
}

#[cfg(test)]
impl Window {
    pub fn is_unused(&self) -> bool {
        self.used == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: f64 = 0.06;

    /// Sends for a while over a pipe of `rate` bytes a second. Answers how long the last answers took and how much of the
    /// time of the last ones the pipe was idle.
    fn after_a_while(rate: f64, part: usize) -> (f64, f64) {
        let start = Instant::now();
        let time = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let (mut window, mut queue, mut delay) = (Window::new(), std::collections::VecDeque::new(), 0.0_f64);
        let (mut now, mut free_at, mut idle) = (0.0_f64, 0.0_f64, 0.0);
        let mut counted_from = 0.0;
        for round in 0..4000 {
            if round == 2000 {
                (delay, idle, counted_from) = (0.0, 0.0, now);
            }
            while window.admits(part) {
                window.take(part);
                idle += (now - free_at).max(0.0);
                free_at = free_at.max(now) + part as f64 / rate;
                queue.push_back((now, free_at + ROUND_TRIP));
            }
            let (sent, back) = queue.pop_front().unwrap();
            now = back;
            delay = delay.max(back - sent);
            window.answered(part, time(sent), time(now), Duration::from_secs_f64(ROUND_TRIP));
        }
        (delay, idle / (now - counted_from))
    }

    #[test]
    fn a_pipe_is_never_idle_and_nobody_waits_long_behind_it() {
        for rate in [12.5e6, 40e6, 100e6] {
            let (delay, idle) = after_a_while(rate, 128 << 10);
            assert!(delay < 2.5 * ROUND_TRIP && idle < 0.01, "{rate} B/s: {delay} s, {idle} idle");
        }
        // 4 Mbit/s: a part alone takes a quarter of a second.
        let (delay, idle) = after_a_while(500e3, 128 << 10);
        assert!(delay < 0.7 && idle < 0.2, "{delay} s, {idle} idle");
    }

    #[test]
    fn a_window_that_is_not_used_up_stays() {
        let (mut window, now) = (Window::new(), Instant::now());
        for i in 1..100 {
            let sent = now + Duration::from_secs(i);
            window.take(1000);
            window.answered(1000, sent, sent + Duration::from_millis(60), Duration::from_millis(60));
        }
        assert_eq!((window.size, window.told()), (WINDOW_FIRST, None));
    }

    #[test]
    fn what_a_pipe_carries_is_told_once_it_was_filled() {
        let (mut window, now) = (Window::new(), Instant::now());
        window.take(WINDOW_FIRST);
        assert!(!window.admits(1));
        let trip = Duration::from_millis(60);
        window.answered(WINDOW_FIRST, now, now + trip, trip);
        assert_eq!(window.told(), Some(window.size as u64));
        assert!(window.size > WINDOW_FIRST);
    }

    #[test]
    fn one_message_always_goes() {
        let mut window = Window::new();
        assert!(window.admits(WINDOW_MAX * 2));
        window.take(WINDOW_MAX * 2);
        assert!(!window.admits(1) && window.admits(0));
        window.give_back(WINDOW_MAX * 2);
        assert!(window.admits(1));
    }
}
