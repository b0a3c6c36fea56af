//! Time that runs faster than the real one, for the engine's clock and for its timers alike.

use home::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;
use vfs::env::Clock;

/// How long other threads have, in real time, before time may go on, and by how much it then goes on at most.
const REAL: Duration = Duration::from_micros(200);
const TICK: Duration = Duration::from_millis(10);

/// The time of a runtime that was started with its time paused. Such a runtime moves its time when it has nothing to do
/// and no blocking work is under way, so that time does not run away from the work on a busy machine.
#[derive(Clone)]
pub struct FastClock {
    base: i64,
    runtime: Handle,
    begun: Instant,
    nanos: Arc<AtomicU64>,
}

impl FastClock {
    /// Begins now, at a number of seconds. To be called in the runtime.
    pub fn new(base: i64) -> FastClock {
        FastClock { base, runtime: Handle::current(), begun: Instant::now(), nanos: Arc::default() }
    }

    /// Goes on by a nanosecond with each look.
    fn read(&self) -> u64 {
        let _runtime = self.runtime.enter();
        self.nanos.fetch_max(self.begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.nanos.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets time run until the runtime ends, no faster than threads that the runtime does not know of can follow.
    pub async fn run(self) {
        loop {
            let _ = tokio::task::spawn_blocking(|| std::thread::sleep(REAL)).await;
            tokio::time::sleep(TICK).await;
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
