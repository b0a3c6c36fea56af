//! Virtual time: the runtime's paused clock, which jumps to the next timer when nothing else can be done, and goes on
//! by a nanosecond with each look.

use home::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The clocks of a world.
#[derive(Clone)]
pub struct Clock {
    start: tokio::time::Instant,
    nanos: Arc<AtomicU64>,
    /// Seconds since 1970 at the start, at the gateway and at the home.
    gateway: i64,
    home: i64,
}

impl Clock {
    /// Begins with the wall clocks of gateway and home. Must be made in the runtime.
    pub fn new(gateway: i64, home: i64) -> Clock {
        Clock { start: tokio::time::Instant::now(), nanos: Arc::default(), gateway, home }
    }

    /// Nanoseconds since the start; never the same twice.
    fn nanos(&self) -> u64 {
        // A thread that runs for the world, but outside its runtime, sees the time at which it was resumed.
        if tokio::runtime::Handle::try_current().is_ok() {
            let passed = self.start.elapsed().as_nanos() as u64;
            self.nanos.fetch_max(passed, Ordering::Relaxed);
        }
        self.nanos.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Some time passes.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The home's wall clock.
    pub fn home_time(&self) -> Time {
        wall(self.home, self.nanos())
    }
}

fn wall(base: i64, nanos: u64) -> Time {
    Time { sec: base + (nanos / 1_000_000_000) as i64, nsec: (nanos % 1_000_000_000) as u32 }
}

impl vfs::env::Clock for Clock {
    fn now(&self) -> Time {
        wall(self.gateway, self.nanos())
    }
    fn instant(&self) -> Duration {
        Duration::from_nanos(self.nanos())
    }
}
