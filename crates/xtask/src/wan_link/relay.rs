//! Connections over the wire. Each direction has a thread that reads and books, and one that writes when
//! a chunk is due; a bounded queue of timed chunks lies between them.

use super::link::{Link, Options, Way, lock};
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Ten segments of Ethernet size: the first window of a new TCP connection (RFC 6928).
const FIRST_WINDOW: usize = 14_480;

/// A listening end of the wire. It relays until the process ends.
pub struct Relay {
    link: Arc<Link>,
    addr: SocketAddr,
}

impl Relay {
    /// Listens at `listen` (port 0: any free one) and relays every connection to `to`.
    pub fn start(listen: SocketAddr, to: SocketAddr, options: Options) -> Result<Self> {
        let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen at {listen}"))?;
        set_receive_buffer(&listener, options.rcvbuf)?;
        let addr = listener.local_addr()?;
        let link = Arc::new(Link::new(options));
        let shared = link.clone();
        thread::spawn(move || accept(&listener, &shared, to));
        Ok(Self { link, addr })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The wire, to turn its knobs.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

fn accept(listener: &TcpListener, link: &Arc<Link>, to: SocketAddr) {
    for client in listener.incoming().flatten() {
        if link.refuses() {
            reset(&client);
            continue;
        }
        let link = link.clone();
        thread::spawn(move || {
            // A connection that cannot be made or kept ends for the client too, which is all it can know.
            let _ = connection(&link, &client, to);
        });
    }
}

/// Relays one connection to its end.
fn connection(link: &Link, client: &TcpStream, to: SocketAddr) -> std::io::Result<()> {
    // The handshake costs one round trip; the server's own accept comes half of one later.
    let start = Instant::now() + 2 * link.delay();
    sleep_until(start + link.delay());
    link.wait_stall();
    let server = match TcpStream::connect(to) {
        Ok(server) => server,
        Err(e) => {
            reset(client);
            return Err(e);
        }
    };
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let id = link.opened(client, &server)?;
    let (up, down) = (Lane::new(link, id, Way::Up, start), Lane::new(link, id, Way::Down, start));
    thread::scope(|s| {
        s.spawn(|| up.pull(client));
        s.spawn(|| up.push(client, &server));
        s.spawn(|| down.pull(&server));
        s.spawn(|| down.push(&server, client));
    });
    link.closed(id);
    Ok(())
}

/// One direction of one connection.
struct Lane<'a> {
    link: &'a Link,
    /// Of the connection.
    id: usize,
    way: Way,
    start: Instant,
    queue: Mutex<Queue>,
    filled: Condvar,
    drained: Condvar,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// When the end of the stream is due.
    end: Option<Instant>,
    /// One side failed: nothing more is worth carrying.
    dead: bool,
}

/// Bytes in flight of one connection, where a window limits them.
struct Window {
    acks: VecDeque<(Instant, usize)>,
    flight: usize,
    congestion: usize,
    fixed: usize,
}

impl<'a> Lane<'a> {
    fn new(link: &'a Link, id: usize, way: Way, start: Instant) -> Self {
        Self {
            link,
            id,
            way,
            start,
            queue: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
        }
    }

    /// Reads, books on the bottleneck and queues, until the stream ends.
    fn pull(&self, mut from: &TcpStream) {
        let mut window = Window::new(&self.link.options);
        sleep_until(self.start);
        let born = Instant::now();
        let mut buf = Vec::new();
        loop {
            self.link.wait_stall();
            self.link.wait_queue(self.way);
            let want = self.link.chunk(self.way).min(window.wait_room());
            if !self.wait_room() {
                return;
            }
            buf.resize(want, 0);
            match from.read(&mut buf) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Ok(len) if len > 0 => {
                    // What the client sent right after its handshake has crossed by now.
                    let crossed =
                        self.way == Way::Up && self.start < born && born.elapsed() < Duration::from_millis(1);
                    let lag = if crossed { Duration::ZERO } else { self.link.delay() };
                    let due = self.link.book(self.way, len) + lag;
                    window.sent(len, due + self.link.delay());
                    self.enqueue(due, buf[..len].to_vec());
                }
                end => return self.end(end.is_err()),
            }
        }
    }

    /// Writes each chunk when it is due, until the end of the stream or an error.
    fn push(&self, from: &TcpStream, mut to: &TcpStream) {
        loop {
            let (due, chunk, dead) = self.next();
            sleep_until(due);
            let lost = || self.link.is_mute(self.id, self.way);
            let Some(chunk) = chunk else {
                if lost() {
                    return;
                }
                let _ = to.shutdown(if dead { Shutdown::Both } else { Shutdown::Write });
                return;
            };
            self.link.wait_stall();
            let written = lost() || to.write_all(&chunk).is_ok();
            self.dequeued(chunk.len(), written);
            if !written {
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    /// Waits until the queue may grow; false if the other side failed.
    fn wait_room(&self) -> bool {
        let mut q = lock(&self.queue);
        while q.bytes >= self.link.cap(self.way) && !q.dead {
            // The cap may change with a command, which wakes nobody.
            let waited = self.drained.wait_timeout(q, Duration::from_millis(50));
            q = waited.unwrap_or_else(|e| e.into_inner()).0;
        }
        !q.dead
    }

    fn enqueue(&self, due: Instant, chunk: Vec<u8>) {
        self.link.count(self.way).enter(chunk.len());
        let mut q = lock(&self.queue);
        q.bytes += chunk.len();
        q.chunks.push_back((due, chunk));
        self.filled.notify_one();
    }

    fn end(&self, failed: bool) {
        let mut q = lock(&self.queue);
        q.end = Some(Instant::now() + self.link.delay());
        q.dead |= failed;
        self.filled.notify_one();
    }

    /// The next chunk and when it is due; no chunk is the end, with whether it is a failure.
    fn next(&self) -> (Instant, Option<Vec<u8>>, bool) {
        let mut q = lock(&self.queue);
        loop {
            if let Some((due, chunk)) = q.chunks.pop_front() {
                return (due, Some(chunk), false);
            }
            if let Some(end) = q.end {
                return (end, None, q.dead);
            }
            q = self.filled.wait(q).unwrap_or_else(|e| e.into_inner());
        }
    }

    fn dequeued(&self, len: usize, written: bool) {
        let count = self.link.count(self.way);
        count.leave(len);
        let mut q = lock(&self.queue);
        q.bytes -= len;
        if !written {
            q.dead = true;
            q.chunks.drain(..).for_each(|(_, chunk)| count.leave(chunk.len()));
        }
        self.drained.notify_one();
    }
}

impl Window {
    fn new(options: &Options) -> Self {
        let fixed = if options.window > 0 { options.window } else { usize::MAX };
        let congestion = if options.slow_start { FIRST_WINDOW } else { usize::MAX };
        Self { acks: VecDeque::new(), flight: 0, congestion, fixed }
    }

    /// Waits until at least a byte may be sent; answers how many.
    fn wait_room(&mut self) -> usize {
        loop {
            let now = Instant::now();
            while let Some((_, len)) = self.acks.pop_front_if(|(at, _)| *at <= now) {
                self.flight -= len;
                self.congestion = self.congestion.saturating_add(len);
            }
            let limit = self.fixed.min(self.congestion);
            match self.acks.front() {
                Some((at, _)) if self.flight >= limit => sleep_until(*at),
                _ => return limit - self.flight,
            }
        }
    }

    /// `len` bytes are in flight until `acked`.
    fn sent(&mut self, len: usize, acked: Instant) {
        if self.fixed < usize::MAX || self.congestion < usize::MAX {
            self.flight += len;
            self.acks.push_back((acked, len));
        }
    }
}

fn sleep_until(t: Instant) {
    thread::sleep(t.saturating_duration_since(Instant::now()));
}

/// Ends a connection with an RST, as a cut wire or a crashed machine looks from afar.
pub fn reset(stream: &TcpStream) {
    // SAFETY: the descriptor is open as long as `stream` lives; connecting it to AF_UNSPEC (all zero) is
    // how Linux disconnects it, with an RST.
    unsafe {
        let unspec: libc::sockaddr = std::mem::zeroed();
        libc::connect(stream.as_raw_fd(), &unspec, size_of::<libc::sockaddr>() as libc::socklen_t);
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn set_receive_buffer(listener: &TcpListener, bytes: usize) -> Result<()> {
    rustix::net::sockopt::set_socket_recv_buffer_size(listener, bytes).context("receive buffer of the relay")
}
