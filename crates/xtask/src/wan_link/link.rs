//! The state of the wire, which all connections share: how long, how fast, and whether it is cut.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Bytes that one connection and direction may hold where no rate bounds them.
const UNLIMITED_CAP: usize = 256 << 20;
const CHUNK_MAX: usize = 256 << 10;
const CHUNK_MIN: usize = 4 << 10;

/// A direction, as an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up = 0,
    /// From the server to the client.
    Down = 1,
}

/// How the wire begins.
#[derive(Debug, Clone)]
pub struct Options {
    /// One way.
    pub delay: Duration,
    /// How much may wait before the bottleneck, as time.
    pub queue: Duration,
    /// Bytes per second, by [`Way`]; 0 is no limit.
    pub rate: [u64; 2],
    /// Bytes in flight per connection; 0 is no limit.
    pub window: usize,
    /// Whether a connection begins with ten segments in flight and doubles per round trip.
    pub slow_start: bool,
    /// Receive buffer of the relay's sockets, in bytes.
    pub rcvbuf: usize,
}

impl Default for Options {
    fn default() -> Self {
        let queue = Duration::from_millis(10);
        Self { delay: Duration::ZERO, queue, rate: [0, 0], window: 0, slow_start: false, rcvbuf: 256 << 10 }
    }
}

/// What passed in one direction.
#[derive(Debug, Default)]
pub struct Count {
    /// Bytes read since the start.
    pub bytes: AtomicU64,
    /// Bytes held now.
    pub queued: AtomicU64,
    /// The most bytes ever held.
    pub peak: AtomicU64,
}

impl Count {
    /// `len` bytes came in.
    pub fn enter(&self, len: usize) {
        let len = len as u64;
        self.bytes.fetch_add(len, Relaxed);
        let held = self.queued.fetch_add(len, Relaxed) + len;
        self.peak.fetch_max(held, Relaxed);
    }

    /// `len` bytes went out, or were dropped.
    pub fn leave(&self, len: usize) {
        self.queued.fetch_sub(len as u64, Relaxed);
    }
}

/// A time until which something lasts, as microseconds since the wire began.
#[derive(Debug, Default)]
struct Until(AtomicU64);

/// The wire.
pub struct Link {
    epoch: Instant,
    delay_us: AtomicU64,
    queue_us: AtomicU64,
    rate: [AtomicU64; 2],
    /// When the bottleneck has sent all that is booked.
    free: [Mutex<Instant>; 2],
    stalled: Until,
    refusing: Until,
    /// Connections with a lower number have gone dead, by [`Way`].
    mute: [AtomicUsize; 2],
    /// Both ends of every open connection, to reset them.
    open: Mutex<HashMap<usize, (TcpStream, TcpStream)>>,
    accepted: AtomicUsize,
    count: [Count; 2],
    /// As the wire began; only what no command changes is read from here.
    pub options: Options,
}

impl Link {
    /// A wire with these properties.
    pub fn new(options: Options) -> Self {
        let now = Instant::now();
        Self {
            epoch: now,
            delay_us: AtomicU64::new(options.delay.as_micros() as u64),
            queue_us: AtomicU64::new(options.queue.as_micros() as u64),
            rate: options.rate.map(AtomicU64::new),
            free: [Mutex::new(now), Mutex::new(now)],
            stalled: Until::default(),
            refusing: Until::default(),
            mute: Default::default(),
            open: Mutex::default(),
            accepted: AtomicUsize::new(0),
            count: Default::default(),
            options,
        }
    }

    /// The delay of one way.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us.load(Relaxed))
    }

    /// Changes the delay of one way, for bytes that are read from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.delay_us.store(delay.as_micros() as u64, Relaxed);
    }

    /// Changes the rate, in bytes per second; 0 is no limit.
    pub fn set_rate(&self, way: Way, bytes_per_s: u64) {
        self.rate[way as usize].store(bytes_per_s, Relaxed);
    }

    /// Lets nothing pass for this long, or until [`Link::go`]; connections stay.
    pub fn stall(&self, time: Option<Duration>) {
        self.set_until(&self.stalled, time);
    }

    /// Refuses new connections for this long, or until [`Link::go`].
    pub fn refuse(&self, time: Option<Duration>) {
        self.set_until(&self.refusing, time);
    }

    /// Resets every connection.
    pub fn cut(&self) {
        for (client, server) in lock(&self.open).values() {
            super::relay::reset(client);
            super::relay::reset(server);
        }
    }

    /// What is under way in this direction of every connection is lost from now on, its end included, and neither side is
    /// told: they are half open. New connections work.
    pub fn mute(&self, way: Way) {
        self.mute[way as usize].store(self.accepted.load(Relaxed), Relaxed);
    }

    /// Whether what a connection carries in this direction is lost.
    pub fn is_mute(&self, id: usize, way: Way) -> bool {
        id < self.mute[way as usize].load(Relaxed)
    }

    /// Ends a stall and a refusal.
    pub fn go(&self) {
        self.stalled.0.store(0, Relaxed);
        self.refusing.0.store(0, Relaxed);
    }

    /// Whether new connections are refused now.
    pub fn refuses(&self) -> bool {
        self.now_us() < self.refusing.0.load(Relaxed)
    }

    /// What passed in one direction.
    pub fn count(&self, way: Way) -> &Count {
        &self.count[way as usize]
    }

    /// Connections since the start, and open now.
    pub fn connections(&self) -> (usize, usize) {
        (self.accepted.load(Relaxed), lock(&self.open).len())
    }

    /// How much is read at once: about a millisecond's worth, so that rates are smooth.
    pub fn chunk(&self, way: Way) -> usize {
        match self.rate[way as usize].load(Relaxed) {
            0 => CHUNK_MAX,
            rate => ((rate / 1000) as usize).clamp(CHUNK_MIN, CHUNK_MAX),
        }
    }

    /// How much one connection may hold.
    pub fn cap(&self, way: Way) -> usize {
        let rate = self.rate[way as usize].load(Relaxed);
        if rate == 0 {
            return UNLIMITED_CAP;
        }
        let us = self.delay_us.load(Relaxed) + self.queue_us.load(Relaxed) + 5000;
        (u128::from(rate) * u128::from(us) / 1_000_000) as usize + 4 * self.chunk(way)
    }

    /// Waits until nothing stalls the wire.
    pub fn wait_stall(&self) {
        loop {
            let (until, now) = (self.stalled.0.load(Relaxed), self.now_us());
            if now >= until {
                return;
            }
            // Short sleeps, because `go` may end it at any time.
            std::thread::sleep(Duration::from_micros((until - now).min(5000)));
        }
    }

    /// Waits for room in the queue before the bottleneck.
    pub fn wait_queue(&self, way: Way) {
        let depth = Duration::from_micros(self.queue_us.load(Relaxed));
        while self.rate[way as usize].load(Relaxed) > 0 {
            let free = *lock(&self.free[way as usize]);
            let now = Instant::now();
            if free <= now + depth {
                return;
            }
            std::thread::sleep(free - now - depth);
        }
    }

    /// Books `len` bytes on the bottleneck; answers when the last of them has left it.
    pub fn book(&self, way: Way, len: usize) -> Instant {
        let now = Instant::now();
        let rate = self.rate[way as usize].load(Relaxed);
        if rate == 0 {
            return now;
        }
        let mut free = lock(&self.free[way as usize]);
        *free = (*free).max(now) + Duration::from_nanos(len as u64 * 1_000_000_000 / rate);
        *free
    }

    /// Keeps both ends of a connection for [`Link::cut`]; answers its number for [`Link::closed`].
    pub fn opened(&self, client: &TcpStream, server: &TcpStream) -> std::io::Result<usize> {
        let id = self.accepted.fetch_add(1, Relaxed);
        lock(&self.open).insert(id, (client.try_clone()?, server.try_clone()?));
        Ok(id)
    }

    /// Forgets a connection.
    pub fn closed(&self, id: usize) {
        lock(&self.open).remove(&id);
    }

    fn now_us(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    fn set_until(&self, until: &Until, time: Option<Duration>) {
        let end = time.map_or(u64::MAX, |t| self.now_us() + t.as_micros() as u64);
        until.0.store(end, Relaxed);
    }
}

/// The lock, whatever happened to another thread that held it: all that we keep stays valid.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
