//! The program's log, on standard error, which an error that comes again and again does not fill.
//!
//! The same text is written once; when it comes again a minute later, or when something else is said then, the log tells
//! how often it had come meanwhile. So an error that is met every second costs two lines a minute, and its end is seen.
//! Servers that follow each other write to one file, so that each line has its time and its process.

use crate::{limits, show};
use std::collections::HashMap;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// What is written, if not warnings and errors, and then all of it (see [`EnvFilter`]).
const WANTED: &str = "TRELLIS_LOG";

/// Begins to log.
pub fn begin() {
    let wanted = EnvFilter::try_from_env(WANTED);
    let all = wanted.is_ok();
    let said = Arc::new(Mutex::new(Said::default()));
    tracing_subscriber::fmt()
        .with_env_filter(wanted.unwrap_or_else(|_| EnvFilter::new("warn")))
        .with_timer(Stamp)
        .with_writer(move || Lines(if all { None } else { Some(Arc::clone(&said)) }))
        // It tells of what it could not write by a panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// Says what is no event of the program's parts: as it is to a person at a terminal, else as a line of the log.
pub fn say(text: &str) {
    let stamp = if std::io::stderr().is_terminal() { String::new() } else { stamped() };
    // Nobody may be listening any more, or the disk of the log may be full.
    let _ = writeln!(std::io::stderr(), "{stamp}{text}");
}

/// A line of the log without its time and process.
pub fn unstamped(line: &str) -> &str {
    let said = || {
        let (time, rest) = line.split_once(" [")?;
        let (pid, said) = rest.split_once("] ")?;
        let is_time = time.ends_with('Z') && time.starts_with(|c: char| c.is_ascii_digit());
        (is_time && pid.parse::<u32>().is_ok()).then_some(said)
    };
    said().unwrap_or(line)
}

/// What begins each line: the time, in UTC, and the process.
struct Stamp;

impl FormatTime for Stamp {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        SystemTime.format_time(w)?;
        write!(w, " [{}]", std::process::id())
    }
}

/// The beginning of a line that is said now.
fn stamped() -> String {
    let mut text = String::new();
    // Nothing but the memory could fail here.
    let _ = Stamp.format_time(&mut Writer::new(&mut text));
    text + " "
}

/// Writes events, each of which comes in one piece.
struct Lines(Option<Arc<Mutex<Said>>>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        match &self.0 {
            None => std::io::stderr().write_all(line)?,
            Some(said) => {
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                std::io::stderr().write_all(&said.take(line, Instant::now()))?;
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What was said lately, without its time: when first, and how often since.
#[derive(Default)]
struct Said(HashMap<Vec<u8>, (Instant, u64)>);

impl Said {
    /// What to write where `line` is to be said: it, unless it was said lately, behind what has to be told of others.
    fn take(&mut self, line: &[u8], now: Instant) -> Vec<u8> {
        // The time ends at the first space.
        let text = line.iter().position(|b| *b == b' ').map_or(line, |at| &line[at..]);
        let time = &line[..line.len() - text.len()];
        let mut out = self.over(time, now);
        match self.0.get_mut(text) {
            Some((_, more)) => *more += 1,
            None => {
                self.0.insert(text.to_vec(), (now, 0));
                out.extend_from_slice(line);
            }
        }
        out
    }

    /// Forgets what was said long ago, and the oldest where there is too much; tells how often it had come again.
    fn over(&mut self, time: &[u8], now: Instant) -> Vec<u8> {
        let mut by_age: Vec<_> = self.0.iter().map(|(text, (at, _))| (*at, text.clone())).collect();
        by_age.sort();
        let too_many = by_age.len().saturating_sub(limits::LOG_TEXTS - 1);
        let old = |at: Instant| now.saturating_duration_since(at) >= limits::LOG_AGAIN;
        let mut out = Vec::new();
        for (n, (at, text)) in by_age.into_iter().enumerate() {
            if n < too_many || old(at) {
                let (_, more) = self.0.remove(&text).unwrap_or((at, 0));
                if more > 0 {
                    let span = show::span(now.saturating_duration_since(at).as_secs_f64());
                    out.extend_from_slice(time);
                    out.extend_from_slice(format!(" {more} times more in {span}:").as_bytes());
                    out.extend_from_slice(&text);
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_comes_again_is_counted() {
        let (mut said, start) = (Said::default(), Instant::now());
        let mut take = |line: &str, after: f64| {
            let out = said.take(line.as_bytes(), start + Duration::from_secs_f64(after));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(take("t0 disk full\n", 0.0), "t0 disk full\n");
        assert_eq!(take("t1 disk full\n", 1.0) + &take("t2 disk full\n", 2.0), "");
        assert_eq!(take("t3 other\n", 3.0), "t3 other\n", "something else is said at once");
        assert_eq!(
            take("t60 disk full\n", 60.0),
            "t60 2 times more in 1m00s: disk full\nt60 disk full\n",
            "after a while it is said again"
        );
        assert_eq!(take("t61 disk full\n", 61.0), "");
        assert_eq!(
            take("t200 well again\n", 200.0),
            "t200 1 times more in 2m20s: disk full\nt200 well again\n"
        );
    }

    #[test]
    fn a_line_has_time_and_process_which_can_be_taken_away() {
        let line = stamped() + "[1] said";
        assert!(line.contains(&format!("Z [{}] ", std::process::id())), "{line}");
        assert_eq!(unstamped(&line), "[1] said");
        for plain in ["", "serving [1] Z", "Z [x] y", "a Z [1] y"] {
            assert_eq!(unstamped(plain), plain);
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let (mut said, now) = (Said::default(), Instant::now());
        for n in 0..10 * limits::LOG_TEXTS {
            assert!(!said.take(format!("t text {n}\n").as_bytes(), now).is_empty());
        }
        assert!(said.0.len() <= limits::LOG_TEXTS);
    }
}
