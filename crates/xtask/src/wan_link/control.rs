//! One-line commands to a wire in use, over TCP.

use super::link::{Link, Way};
use anyhow::Result;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Answers commands, one client after another, for ever.
pub fn serve(listener: &TcpListener, link: &Arc<Link>) -> Result<()> {
    for stream in listener.incoming().flatten() {
        let mut out = stream.try_clone()?;
        for line in BufReader::new(stream).lines().map_while(std::io::Result::ok) {
            if writeln!(out, "{}", execute(link, line.trim())).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// Executes one command; the answer is `ok`, figures, or `error: …`.
pub fn execute(link: &Link, line: &str) -> String {
    let mut words = line.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let number = words.next().and_then(|w| w.parse::<f64>().ok()).filter(|n| n.is_finite() && *n >= 0.0);
    let time = number.map(Duration::from_secs_f64);
    let bytes = |mbit: f64| (mbit * 125e3) as u64;
    match (verb, number) {
        ("delay", Some(ms)) => link.set_delay(Duration::from_secs_f64(ms / 1e3)),
        ("rate", Some(mbit)) => [Way::Up, Way::Down].iter().for_each(|w| link.set_rate(*w, bytes(mbit))),
        ("rate-up", Some(mbit)) => link.set_rate(Way::Up, bytes(mbit)),
        ("rate-down", Some(mbit)) => link.set_rate(Way::Down, bytes(mbit)),
        ("stall", _) => link.stall(time),
        ("refuse", _) => link.refuse(time),
        ("mute", _) => [Way::Up, Way::Down].iter().for_each(|way| link.mute(*way)),
        ("cut", _) => {
            if time.is_some() {
                link.refuse(time);
            }
            link.cut();
        }
        ("go", _) => link.go(),
        ("stats", _) => return stats(link),
        _ => return format!("error: unknown command {line:?}"),
    }
    "ok".into()
}

fn stats(link: &Link) -> String {
    let one = |way: Way, name: &str| {
        let c = link.count(way);
        let (bytes, queued, peak) = (c.bytes.load(Relaxed), c.queued.load(Relaxed), c.peak.load(Relaxed));
        format!("{name}_bytes={bytes} {name}_queued={queued} {name}_peak={peak}")
    };
    let (accepted, open) = link.connections();
    format!("{} {} accepted={accepted} open={open}", one(Way::Up, "up"), one(Way::Down, "down"))
}
