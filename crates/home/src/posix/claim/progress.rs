//! How far the operations of a volume had come when the power failed.
//!
//! After each operation its number becomes the modification time of the file `ran`, which is not synced for that. A file system
//! keeps changes of names and attributes in their order: what shows this time after a power cut has kept all of them that
//! were made before, though perhaps not the content. That holds for objects of the same file system. Where the file's
//! times are coarse they show an earlier number.

use super::super::Posix;
use super::super::sys::{Stamp, Sys, Sysult};
use super::file;
use crate::attr::Time;
use crate::op::Done;

/// Access time of the file whose modification time is a number, and the zero of that: it is in the range of any file system.
const BEGIN: Time = Time { sec: 1_000_000_000, nsec: 0 };
const NANOS: u64 = 1_000_000_000;
/// Modification time where nothing has run yet: no number is shown as that where the file's times are coarse, nor that itself.
const NONE: Time = Time { sec: BEGIN.sec - 1, nsec: 999_999_999 };

/// The file that tells it.
pub(super) struct Progress<S: Sys> {
    fd: S::Fd,
    /// The file system of which it tells.
    fs: u64,
    /// The last operation of which it tells, 0 where none has run; `None` where it tells nothing.
    last: Option<u64>,
    /// Something was changed on another file system that may not be durable.
    astray: bool,
}

impl<S: Sys> Progress<S> {
    pub fn open(home: &Posix<S>, dir: &S::Fd) -> Sysult<Progress<S>> {
        let (fd, _) = file(home, dir, b"ran")?;
        let stat = home.sys.stat(&fd)?;
        let fs = home.file_system_of(&fd, &stat)?.id;
        let last = if stat.atime == BEGIN { number(stat.mtime) } else { None };
        Ok(Progress { fd, fs, last, astray: false })
    }

    /// The last operation of which it is certain that it and all before it left their names and attributes; 0 where none has.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Nothing has run that is not durable: from now on it tells, also after a power cut.
    pub fn begins(&mut self, sys: &S) {
        let stamp = || sys.set_times(&self.fd, Stamp::At(BEGIN), Stamp::At(NONE));
        if self.last.is_none() && stamp().and_then(|()| sys.sync(&self.fd)).is_ok() {
            self.last = Some(0);
        }
    }

    /// The file system of which it tells.
    pub fn file_system(&self) -> u64 {
        self.fs
    }

    /// An operation was done, by this agent or by an earlier one that may have died before it could tell.
    pub fn ran(&mut self, sys: &S, seq: u64, done: &Done) {
        self.astray |= self.is_astray(done);
        let is_new = Some(seq) > self.last && !self.astray;
        if is_new && sys.set_times(&self.fd, Stamp::At(BEGIN), time(seq)).is_ok() {
            self.last = Some(seq);
        }
    }

    fn is_astray(&self, done: &Done) -> bool {
        let mut changed = done.attr.iter().chain(&done.dirs).peekable();
        changed.peek().is_none() || changed.any(|attr| attr.id.fs != self.fs)
    }

    /// All that was done is durable.
    pub fn settled(&mut self) {
        self.astray = false;
    }
}

fn time(seq: u64) -> Stamp {
    let sec = BEGIN.sec.saturating_add_unsigned(seq / NANOS);
    Stamp::At(Time { sec, nsec: (seq % NANOS) as u32 })
}

fn number(time: Time) -> Option<u64> {
    if time == NONE {
        return Some(0);
    }
    let sec = u64::try_from(time.sec - BEGIN.sec).ok()?;
    Some(sec.saturating_mul(NANOS) + u64::from(time.nsec)).filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::server::tests::attr;
    use crate::posix::Linux;

    /// What an earlier agent changed on another file system may not be durable.
    #[test]
    fn nothing_is_told_while_another_file_system_may_lack_something() {
        let (sys, dir) = (Linux::default(), tempfile::tempdir().unwrap());
        let fd = sys.open_root(dir.path().as_os_str().as_encoded_bytes()).unwrap();
        let here = attr(1);
        let mut there = here;
        there.id.fs += 1;
        let done = |attr| Done { attr: Some(attr), dirs: vec![] };
        let mut progress = Progress { fd, fs: here.id.fs, last: None, astray: false };
        progress.ran(&sys, 5, &done(here));
        assert_eq!(progress.last(), Some(5));
        progress.ran(&sys, 6, &done(there));
        progress.ran(&sys, 7, &done(here));
        assert_eq!(progress.last(), Some(5));
        progress.settled();
        progress.ran(&sys, 8, &done(here));
        assert_eq!(progress.last(), Some(8));
    }

    #[test]
    fn coarse_times_do_not_tell_that_nothing_has_run() {
        assert_eq!(number(NONE), Some(0));
        assert_eq!(number(Time { nsec: 7, ..BEGIN }), Some(7));
        for unit in [100, 1000, NANOS as u32] {
            let cut = |time: Time| Time { nsec: time.nsec - time.nsec % unit, ..time };
            assert_eq!(number(cut(NONE)), None, "{unit} ns");
            assert_eq!(number(cut(Time { nsec: 7, ..BEGIN })), None, "{unit} ns");
        }
    }
}
