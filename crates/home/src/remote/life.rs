//! What all connections have in common: signs of life, the end and its reason, and the counts.

use super::{Meter, Rounds};
use crate::io_text;
use crate::limits::agent::{DEAD_AFTER, KEEPALIVE, SILENT_AFTER};
use crate::ssh;
use crate::{Error, ErrorKind, Link};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// Milliseconds that the machine may seem to have slept because its clocks are not read at one moment.
const NAP: u64 = 500;

/// The life of one connection.
pub(crate) struct Life {
    pub meter: Arc<Meter>,
    /// Messages that arrived; the keep-alive compares.
    arrived: AtomicU64,
    silent: AtomicBool,
    /// How often it has become silent, or this machine has slept.
    silences: AtomicU64,
    /// How long this machine has slept since it was started, and in milliseconds how much of that is counted.
    slept: fn() -> Duration,
    counted: AtomicU64,
    end: watch::Sender<Option<Error>>,
    /// The process that carries the connection; gone with its end.
    child: Mutex<Option<ssh::Child>>,
}

impl Life {
    pub fn new(meter: Arc<Meter>, child: Option<ssh::Child>) -> Life {
        Life::sleeping(meter, child, slept)
    }

    fn sleeping(meter: Arc<Meter>, child: Option<ssh::Child>, slept: fn() -> Duration) -> Life {
        Life {
            meter,
            arrived: AtomicU64::new(0),
            silent: AtomicBool::new(false),
            silences: AtomicU64::new(0),
            slept,
            counted: AtomicU64::new(slept().as_millis() as u64),
            end: watch::Sender::new(None),
            child: Mutex::new(child),
        }
    }

    pub fn count_in(&self, bytes: usize) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        self.silent.store(false, Ordering::Relaxed);
        self.meter.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn count_out(&self, bytes: usize) {
        self.meter.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The reason for the end, once there is one.
    pub fn over(&self) -> Option<Error> {
        self.end.borrow().clone()
    }

    pub async fn ended(&self) -> Error {
        let mut end = self.end.subscribe();
        match end.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_else(closed),
            Err(_) => closed(),
        }
    }

    pub fn link(&self) -> Link {
        match self.over() {
            Some(why) => Link::Down(why.detail),
            None if self.silent.load(Ordering::Relaxed) => Link::Down(ErrorKind::Unreachable.to_string()),
            None => Link::Up,
        }
    }

    /// How often it has become silent, or this machine has slept: what was told meanwhile may be lost, which its timers take
    /// long to see. `None` while it is silent, or is over.
    pub fn silences(&self) -> Option<u64> {
        let slept = (self.slept)().as_millis() as u64;
        if slept > self.counted.load(Ordering::Relaxed) + NAP {
            self.counted.store(slept, Ordering::Relaxed);
            self.silences.fetch_add(1, Ordering::Relaxed);
        }
        let heard = !self.silent.load(Ordering::Relaxed) && self.end.borrow().is_none();
        heard.then(|| self.silences.load(Ordering::Relaxed))
    }

    /// The far side has greeted us: what it said before, as in scripts of the login, is no reason of a later end.
    pub fn greeted(&self) {
        if let Some(child) = &*self.child.lock() {
            child.forget_said();
        }
    }

    /// A better reason than that the pipe broke, if ssh has said one.
    pub async fn explain(&self, why: Error) -> Error {
        let child = self.child.lock().take();
        match child {
            Some(child) if why.kind == ErrorKind::Unreachable => child.explain(why).await,
            _ => why,
        }
    }

    /// Notes the end; the first reason stays.
    pub fn finish(&self, why: &Error) {
        self.end.send_if_modified(|end| {
            let first = end.is_none();
            if first {
                *end = Some(why.clone());
            }
            first
        });
        drop(self.child.lock().take());
    }

    /// Asks for a sign of life, by `ping`, when nothing arrives; ends when none comes. Counts its own ticks, so
    /// that a gateway that was stopped for a while does not take its own absence for the home's.
    pub async fn keep_alive(&self, ping: impl Fn()) -> Error {
        let mut ticks = interval(KEEPALIVE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let (mut last, mut quiet) = (0, 0);
        loop {
            ticks.tick().await;
            let arrived = self.arrived.load(Ordering::Relaxed);
            quiet = if arrived == last { quiet + 1 } else { 0 };
            last = arrived;
            if quiet == 0 {
                continue;
            }
            // The first quiet tick only asks; silence begins there.
            let silence = KEEPALIVE * (quiet - 1);
            if silence < SILENT_AFTER {
                self.silent.store(false, Ordering::Relaxed);
            } else if !self.silent.swap(true, Ordering::Relaxed) {
                self.silences.fetch_add(1, Ordering::Relaxed);
            }
            if silence >= DEAD_AFTER {
                let text = format!("the home said nothing for {} seconds", silence.as_secs());
                return Error::new(ErrorKind::Unreachable, text);
            }
            ping();
        }
    }
}

impl Rounds {
    /// A request is sent now. Answers the round to give to [`Rounds::answered`].
    pub fn sent(&mut self, meter: &Meter) -> u64 {
        if self.counted <= self.current {
            self.counted = self.current + 1;
            meter.round_trips.fetch_add(1, Ordering::Relaxed);
        }
        self.current
    }

    /// Whatever is sent from now on may build on this answer: it is a further sequential wait.
    pub fn answered(&mut self, round: u64) {
        self.current = self.current.max(round + 1);
    }
}

/// How long this machine has slept since it was started: one clock stands still meanwhile (clock_gettime(2)).
fn slept() -> Duration {
    let now = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let awake = now(ClockId::Monotonic);
    now(ClockId::Boottime).saturating_sub(awake)
}

/// The connection is closed on our side.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Unreachable, "the connection was closed")
}

/// The pipe broke.
pub(crate) fn lost(e: std::io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("the connection was lost: {}", io_text(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_before_this_machine_slept_is_of_another_span() {
        static SLEPT: AtomicU64 = AtomicU64::new(7000);
        let life =
            Life::sleeping(Arc::default(), None, || Duration::from_millis(SLEPT.load(Ordering::Relaxed)));
        SLEPT.fetch_add(NAP, Ordering::Relaxed);
        assert_eq!(life.silences(), Some(0), "two clocks read one after the other");
        SLEPT.fetch_add(3_600_000, Ordering::Relaxed);
        assert_eq!([life.silences(), life.silences()], [Some(1); 2], "once for each sleep");
        assert_eq!(life.link(), Link::Up, "the home may be there all the same");
    }
}
