//! How many bytes of one class may be under way.
//!
//! Bytes that wait in the pipe delay the short messages behind them, and nobody can take them back. So the window is such
//! that answers come [`QUEUE`] later than the fastest has come: once in a round trip it is made greater or smaller in
//! proportion (as in FAST TCP: Wei, Jin, Low and Hegde, IEEE/ACM Transactions on Networking 14(6), 2006).
//!
//! That alone is slow on a fast wire, and comes too late to the end of a narrow one: the queue that a step makes is seen a
//! round trip after the next step. How close upon each other the answers to a window come tells how much the wire carries
//! (as trains of packets do: Dovrolis, Ramanathan and Moore, IEEE/ACM Transactions on Networking 12(6), 2004). A window is
//! made half as great as what that comes to at once, and hardly greater than it.

use crate::limits::agent::{QUEUE, TRAIN, WINDOW_FIRST, WINDOW_LEAP, WINDOW_MAX, WINDOW_MIN, WINDOW_OVER};
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
    /// The answers since then to what was sent before.
    train: Train,
    /// They have made it greater already.
    leapt: bool,
}

/// Answers that came one after the other.
#[derive(Debug, Default)]
struct Train {
    /// When the first and the last one came.
    span: Option<(Instant, Instant)>,
    /// Bytes of all but the first.
    bytes: usize,
}

impl Train {
    fn comes(&mut self, weight: usize, now: Instant) {
        match &mut self.span {
            None => self.span = Some((now, now)),
            Some((_, last)) => {
                *last = now;
                self.bytes += weight;
            }
        }
    }

    /// Bytes that would come in this time; `None` where they are too few to tell.
    fn in_time(&self, time: Duration) -> Option<f64> {
        let (first, last) = self.span.filter(|_| self.bytes >= TRAIN)?;
        Some(self.bytes as f64 * time.as_secs_f64() / (last - first).as_secs_f64().max(1e-6))
    }
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
            train: Train::default(),
            leapt: false,
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
            return self.comes(weight, now, fastest);
        }
        // A window that is not used up says nothing of a greater one, and what comes late then was late at the home.
        if self.full {
            let ratio = (fastest + QUEUE).as_secs_f64() / self.shortest.as_secs_f64().max(1e-9);
            let shown = self.train.in_time(fastest + QUEUE).unwrap_or(f64::INFINITY) * WINDOW_OVER;
            let before = self.size as f64;
            self.resize((before * ratio.clamp(0.5, 2.0)).min(shown.max(before)));
        }
        (self.full, self.changed, self.shortest) = (false, Some(now), Duration::MAX);
        (self.train, self.leapt) = (Train::default(), false);
    }

    /// One more answer to what was sent before the last change.
    fn comes(&mut self, weight: usize, now: Instant, fastest: Duration) {
        self.train.comes(weight, now);
        // What waited somewhere comes closer together than it was carried: half of it is believed at once.
        let shown = self.train.in_time(fastest + QUEUE).unwrap_or_default() / 2.0;
        let before = self.size as f64;
        if self.full && !self.leapt && shown > before {
            self.resize(shown.min(before * WINDOW_LEAP));
            self.leapt = true;
        }
    }

    fn resize(&mut self, size: f64) {
        self.size = (size as usize).clamp(WINDOW_MIN, WINDOW_MAX);
        self.told = true;
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

    /// A pipe of `rate` bytes a second that is given all that its window admits, in parts. Times are seconds.
    struct Pipe {
        rate: f64,
        part: usize,
        window: Window,
        began: Instant,
        /// When a part was sent and when its answer comes.
        under_way: std::collections::VecDeque<(f64, f64)>,
        now: f64,
        free_at: f64,
        idle: f64,
    }

    impl Pipe {
        fn new(rate: f64, part: usize) -> Pipe {
            let (window, began, under_way) = (Window::new(), Instant::now(), Default::default());
            Pipe { rate, part, window, began, under_way, now: 0.0, free_at: 0.0, idle: 0.0 }
        }

        /// Fills it and takes one answer. Tells how long that took.
        fn step(&mut self) -> f64 {
            while self.window.admits(self.part) {
                self.window.take(self.part);
                self.idle += (self.now - self.free_at).max(0.0);
                self.free_at = self.free_at.max(self.now) + self.part as f64 / self.rate;
                self.under_way.push_back((self.now, self.free_at + ROUND_TRIP));
            }
            let (sent, back) = self.under_way.pop_front().unwrap();
            self.now = back;
            let [sent_at, now] = [sent, back].map(|time| self.began + Duration::from_secs_f64(time));
            self.window.answered(self.part, sent_at, now, Duration::from_secs_f64(ROUND_TRIP));
            back - sent
        }

        /// The longest time of so many answers.
        fn longest(&mut self, answers: usize) -> f64 {
            (0..answers).map(|_| self.step()).fold(0.0, f64::max)
        }
    }

    /// Sends for a while. Answers how long the last answers took and how much of the time of the last ones the pipe was idle.
    fn after_a_while(rate: f64, part: usize) -> (f64, f64) {
        let mut pipe = Pipe::new(rate, part);
        pipe.longest(2000);
        let from = pipe.now;
        pipe.idle = 0.0;
        let delay = pipe.longest(2000);
        (delay, pipe.idle / (pipe.now - from))
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
    fn what_a_wire_carries_is_known_soon_and_hardly_overshot() {
        for (rate, most) in [(12.5e6, 1.0), (25e6, 3.0), (50e6, 5.0), (125e6, 4.0)] {
            let wanted = rate * (ROUND_TRIP + QUEUE.as_secs_f64());
            let mut pipe = Pipe::new(rate, 128 << 10);
            while (pipe.window.size as f64) < wanted * 0.8 {
                assert!(
                    pipe.now < most * ROUND_TRIP,
                    "{rate} B/s: {} after {} s",
                    pipe.window.size,
                    pipe.now
                );
                pipe.step();
            }
            let longest = Pipe::new(rate, 128 << 10).longest(2000);
            assert!(longest < ROUND_TRIP + 2.2 * QUEUE.as_secs_f64(), "{rate} B/s: {longest} s");
        }
    }

    #[test]
    fn answers_that_come_at_once_do_not_make_it_many_times_as_great() {
        let (mut window, start) = (Window::new(), Instant::now());
        let (part, trip) = (128 << 10, Duration::from_millis(60));
        let fill = |window: &mut Window| {
            while window.admits(part) {
                window.take(part);
            }
        };
        fill(&mut window);
        for round in 0..2 {
            let (before, sent) = (window.size, start + round * trip);
            for _ in 0..window.used / part {
                window.answered(part, sent, sent + trip, trip);
                fill(&mut window);
            }
            assert!(window.size as f64 <= before as f64 * 2.0 * WINDOW_LEAP, "{before} to {}", window.size);
        }
        assert!(window.size > 3 * WINDOW_FIRST);
    }

    #[test]
    fn what_is_late_at_the_home_does_not_make_it_smaller() {
        let (mut window, start, trip) = (Window::new(), Instant::now(), Duration::from_millis(60));
        window.take(4096);
        window.answered(4096, start, start + 10 * trip, trip);
        assert_eq!((window.size, window.told()), (WINDOW_FIRST, None));
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
