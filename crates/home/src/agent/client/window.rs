//! How many bytes of one class may be under way.
//!
//! Bytes that wait in the pipe delay the short messages behind them, and nobody can take them back. The window
//! grows while answers come about as fast as the fastest did, and shrinks when they come much later: then the
//! pipe holds more than it needs to stay full (as in TCP Vegas and LEDBAT, RFC 6817).

use crate::limits::agent::{WINDOW_FIRST, WINDOW_MAX, WINDOW_MIN};
use std::time::Duration;

/// Noise of schedulers and disks that says nothing of the pipe.
const NOISE: Duration = Duration::from_millis(100);

/// The window of one class.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    used: usize,
    /// The shortest time that an answer has taken.
    fastest: Duration,
}

impl Window {
    pub fn new() -> Window {
        Window { size: WINDOW_FIRST, used: 0, fastest: Duration::MAX }
    }

    /// Whether so many bytes more may go. One message always may, if no other is under way.
    pub fn admits(&self, weight: usize) -> bool {
        weight == 0 || self.used == 0 || self.used + weight <= self.size
    }

    pub fn take(&mut self, weight: usize) {
        self.used += weight;
    }

    /// Without an answer: its caller went away.
    pub fn give_back(&mut self, weight: usize) {
        self.used -= weight;
    }

    /// An answer came after `elapsed`.
    pub fn answered(&mut self, weight: usize, elapsed: Duration) {
        self.used -= weight;
        if weight == 0 {
            return;
        }
        self.fastest = self.fastest.min(elapsed);
        if elapsed <= 2 * self.fastest + NOISE {
            self.size = (self.size + weight).min(WINDOW_MAX);
        } else if elapsed > 3 * self.fastest + 2 * NOISE {
            self.size = (self.size - self.size / 8).max(WINDOW_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends for a while over a pipe of `rate` bytes a second, and answers how long the last answer took.
    fn delay_after_a_while(rate: f64, round_trip: f64) -> (f64, usize) {
        let (mut window, mut queue, mut delay) = (Window::new(), std::collections::VecDeque::new(), 0.0);
        let (mut now, mut free_at) = (0.0_f64, 0.0_f64);
        let part = 128 << 10;
        for _ in 0..2000 {
            while window.admits(part) {
                window.take(part);
                free_at = free_at.max(now) + part as f64 / rate;
                queue.push_back((now, free_at + round_trip));
            }
            let (sent, back) = queue.pop_front().unwrap();
            now = back;
            delay = back - sent;
            window.answered(part, Duration::from_secs_f64(delay));
        }
        (delay, window.size)
    }

    #[test]
    fn a_slow_pipe_is_not_filled_and_a_fast_one_is() {
        // 4 Mbit/s: a part alone takes a quarter of a second.
        let (delay, _) = delay_after_a_while(500e3, 0.06);
        assert!(delay < 1.5, "{delay} s");
        let (_, size) = delay_after_a_while(100e6, 0.06);
        assert!(size as f64 >= 100e6 * 0.06, "{size} bytes keep it idle");
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
