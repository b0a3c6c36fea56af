//! Time that runs faster than the real one, for the engine's clock and for its timers alike.

use home::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vfs::env::Clock;

/// Real time between two ticks, and what a tick is worth.
const REAL: Duration = Duration::from_micros(200);
const TICK: Duration = Duration::from_millis(10);

/// Goes on with each tick, and by a nanosecond with each look.
#[derive(Clone)]
pub struct FastClock {
    base: i64,
    nanos: Arc<AtomicU64>,
}

impl FastClock {
    /// Begins at a number of seconds.
    pub fn new(base: i64) -> FastClock {
        FastClock { base, nanos: Arc::default() }
    }

    fn read(&self) -> u64 {
        self.nanos.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets time run until the runtime ends. The runtime must have been started with its time paused.
    pub async fn run(self) {
        loop {
            // While blocking work is under way the runtime does not move its time itself.
            let _ = tokio::task::spawn_blocking(|| std::thread::sleep(REAL)).await;
            self.nanos.fetch_add(TICK.as_nanos() as u64, Ordering::Relaxed);
            tokio::time::advance(TICK).await;
        }
    }
}

impl Clock for FastClock {
    fn now(&self) -> Time {
        let nanos = self.read();
        Time { sec: self.base + (nanos / 1_000_000_000) as i64, nsec: (nanos % 1_000_000_000) as u32 }
    }
    fn instant(&self) -> Duration {
        Duration::from_nanos(self.read())
    }
}
