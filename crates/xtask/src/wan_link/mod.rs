//! A TCP relay that behaves like a long wire: delay, a shared rate per direction, a window per
//! connection, stalls and cuts. For machines whose kernel has no `netem`, and for tests that turn these
//! knobs while they run.
//!
//! # Model
//! - A chunk read from one side is booked on the bottleneck that all connections share, waits its turn
//!   there, and is written to the other side one delay later. Chunks overlap, so delay alone does not
//!   limit throughput.
//! - A new connection costs one round trip before its first byte, as a TCP handshake does.
//! - End of stream passes after the delay; an error on one side closes the other. Neither passes on a connection that is
//!   muted: it stays half open.
//! - Memory per connection and direction is at most rate × (delay + queue) and a few chunks; 256 MiB
//!   without a rate.
//! - TCP ends at the relay on both sides, so there is no loss and no remote window: without `--window`
//!   and `--slow-start` results are an upper bound for protocols that open many connections.
//!
//! # Layout
//! - [`link`]: the state of the wire, which all connections share.
//! - [`relay`]: connections, two threads for each direction.
//! - [`control`]: one-line commands while it runs.

pub mod control;
pub mod link;
pub mod relay;

use anyhow::Result;
use link::Options;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Arguments of `cargo xtask wan-link`.
#[derive(clap::Args)]
pub struct Args {
    /// Where clients connect
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// The server behind the wire
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,
    /// Accept one-line commands here: delay MS, rate MBIT, rate-up MBIT, rate-down MBIT, stall [S],
    /// cut [S], refuse [S], mute, go, stats
    #[arg(long, value_name = "ADDR:PORT")]
    control: Option<SocketAddr>,
    /// One-way delay; the round trip is twice this
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    delay: f64,
    /// Limit of both directions, shared by all connections; 0 is none
    #[arg(long, value_name = "MBIT", default_value_t = 0.0)]
    rate: f64,
    /// Limit from the client to the server
    #[arg(long, value_name = "MBIT")]
    rate_up: Option<f64>,
    /// Limit from the server to the client
    #[arg(long, value_name = "MBIT")]
    rate_down: Option<f64>,
    /// Depth of the queue before the bottleneck
    #[arg(long, value_name = "MS", default_value_t = 10.0)]
    queue: f64,
    /// Bytes that one connection may have in flight; 0 is no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    window: usize,
    /// Each connection starts with ten segments in flight and doubles per round trip
    #[arg(long)]
    slow_start: bool,
    /// Receive buffer of the relay's sockets
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 10)]
    rcvbuf: usize,
}

/// Relays until the process is ended.
pub fn command(args: Args) -> Result<()> {
    let mbit = |m: f64| (m * 125e3) as u64;
    let ms = |m: f64| Duration::from_secs_f64(m.max(0.0) / 1e3);
    let options = Options {
        delay: ms(args.delay),
        queue: ms(args.queue),
        rate: [mbit(args.rate_up.unwrap_or(args.rate)), mbit(args.rate_down.unwrap_or(args.rate))],
        window: args.window,
        slow_start: args.slow_start,
        rcvbuf: args.rcvbuf,
    };
    let relay = relay::Relay::start(args.listen, args.to, options)?;
    eprintln!("{} -> {}", relay.addr(), args.to);
    match args.control {
        Some(addr) => control::serve(&TcpListener::bind(addr)?, relay.link()),
        None => loop {
            std::thread::park();
        },
    }
}

/// A wire for a test in this process: 127.0.0.1 at a free port, `rtt` to `to` and back.
pub fn with_rtt(to: SocketAddr, rtt: Duration) -> Result<relay::Relay> {
    let options = Options { delay: rtt / 2, ..Options::default() };
    relay::Relay::start(SocketAddr::from(([127, 0, 0, 1], 0)), to, options)
}

#[cfg(test)]
mod tests;
