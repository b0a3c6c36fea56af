//! Virtual time: the runtime's paused clock, which jumps to the next timer when nothing else can be done, and goes on
//! by a nanosecond with each look.

use home::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// The clocks of a world.
#[derive(Clone)]
pub struct Clock {
    start: tokio::time::Instant,
    nanos: Arc<AtomicU64>,
    gateway: Wall,
    home: Wall,
}

/// A wall clock, which somebody may set: seconds since 1970 at the start.
#[derive(Clone)]
struct Wall(Arc<AtomicI64>);

impl Wall {
    fn new(base: i64) -> Wall {
        Wall(Arc::new(AtomicI64::new(base)))
    }

    fn at(&self, nanos: u64) -> Time {
        let sec = self.0.load(Ordering::Relaxed) + (nanos / 1_000_000_000) as i64;
        Time { sec, nsec: (nanos % 1_000_000_000) as u32 }
    }

    fn step(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock {
    /// Begins with the wall clocks of gateway and home. Must be made in the runtime.
    pub fn new(gateway: i64, home: i64) -> Clock {
        Clock {
            start: tokio::time::Instant::now(),
            nanos: Arc::default(),
            gateway: Wall::new(gateway),
            home: Wall::new(home),
        }
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
        self.home.at(self.nanos())
    }

    /// The gateway's wall clock is set: so many seconds later, or earlier.
    pub fn step_gateway(&self, seconds: i64) {
        self.gateway.step(seconds);
    }

    /// The same for the home's.
    pub fn step_home(&self, seconds: i64) {
        self.home.step(seconds);
    }
}

impl vfs::env::Clock for Clock {
    fn now(&self) -> Time {
        self.gateway.at(self.nanos())
    }
    fn instant(&self) -> Duration {
        Duration::from_nanos(self.nanos())
    }
}
