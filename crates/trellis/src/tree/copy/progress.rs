//! How far a copy is, for whoever looks on.

use crate::{limits, show};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Characters of a name that are shown.
const NAME_SHOWN: usize = 40;
/// How often a line is written where lines cannot be overwritten.
const LINES_EVERY: Duration = Duration::from_secs(1);

/// Counts what is done, and shows it on standard error: as one line that is written over on a terminal, as lines
/// where it is wanted elsewhere, else not at all.
pub struct Progress {
    shown: bool,
    terminal: bool,
    last: Option<Instant>,
    start: Instant,
    /// Files found, and copied or found to be there.
    files: (u64, u64),
    /// Their bytes.
    bytes: (u64, u64),
    /// Bytes that travelled in this run.
    travelled: u64,
    name: String,
}

impl Progress {
    /// Shown where standard error is a terminal, or where it is `forced`.
    pub fn new(forced: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress {
            shown: forced || terminal,
            terminal,
            last: None,
            start: Instant::now(),
            files: (0, 0),
            bytes: (0, 0),
            travelled: 0,
            name: String::new(),
        }
    }

    /// A file of so many bytes will be copied.
    pub fn found(&mut self, bytes: u64) {
        self.files.0 += 1;
        self.bytes.0 += bytes;
        self.draw(false);
    }

    /// Bytes of a file that need not travel, because they are there.
    pub fn there(&mut self, bytes: u64) {
        self.bytes.1 += bytes;
    }

    /// Bytes of a file travelled.
    pub fn bytes(&mut self, name: &[u8], bytes: u64) {
        self.bytes.1 += bytes;
        self.travelled += bytes;
        if self.shown {
            self.named(name);
            self.draw(false);
        }
    }

    /// A file is whole.
    pub fn done(&mut self) {
        self.files.1 += 1;
        self.draw(false);
    }

    /// All of it: files and bytes, found and done, bytes that travelled, and what was worked on last.
    pub fn now(&mut self, files: (u64, u64), bytes: (u64, u64), travelled: u64, name: &[u8]) {
        (self.files, self.bytes, self.travelled) = (files, bytes, travelled);
        self.named(name);
        self.draw(false);
    }

    /// How far something is that has no files.
    pub fn line(&mut self, text: &str, name: &[u8]) {
        self.named(name);
        self.draw_text(text, false);
    }

    fn named(&mut self, name: &[u8]) {
        if self.shown {
            self.name = show::text(name).chars().take(NAME_SHOWN).collect();
        }
    }

    /// How much is done: files and bytes.
    pub fn sum(&self) -> String {
        format!(
            "{} of {}, {} of {}",
            self.files.1,
            show::count(self.files.0, "file"),
            show::size(self.bytes.1),
            show::size(self.bytes.0)
        )
    }

    fn draw(&mut self, last: bool) {
        let rate = (self.travelled as f64 / self.start.elapsed().as_secs_f64().max(0.001)) as u64;
        let text = format!("{}, {}/s", self.sum(), show::size(rate));
        self.draw_text(&text, last);
    }

    fn draw_text(&mut self, text: &str, last: bool) {
        let every = if self.terminal { limits::PROGRESS_EVERY } else { LINES_EVERY };
        if !self.shown || !last && self.last.is_some_and(|at| at.elapsed() < every) {
            return;
        }
        self.last = Some(Instant::now());
        let text = format!("{text}  {}", self.name);
        let text = if self.terminal { format!("\r\x1b[K{text}") } else { format!("{}\n", text.trim_end()) };
        // A terminal that takes no more text loses only the progress.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    /// Makes room for another text on the terminal.
    pub fn clear(&mut self) {
        if self.terminal && self.last.take().is_some() {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }

    /// The last word, where lines were wanted.
    pub fn end(&mut self) {
        self.clear();
        if !self.terminal {
            self.name.clear();
            self.draw(true);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
