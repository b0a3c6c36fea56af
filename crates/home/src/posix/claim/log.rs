//! The file `log` of a volume: its records are [`super::record`]'s.

use super::super::sys::{Sys, Sysult};
use crate::limits;
use rustix::io::Errno;

/// The open log. Behind its end are zeros: on a full disk it still has room for what is refused.
pub(super) struct Log<S: Sys> {
    pub fd: S::Fd,
    pub end: u64,
    pub size: u64,
}

impl<S: Sys> Log<S> {
    /// Whether there is room behind so many more bytes for what is refused; made if need be, as long as the disk has any.
    pub fn has_room(&mut self, sys: &S, bytes: usize) -> bool {
        let wanted = self.end + bytes as u64 + limits::LOG_RESERVE / 2;
        let more = bytes as u64 + limits::LOG_RESERVE;
        if wanted > self.size && zero(sys, &self.fd, self.size, more).is_ok() {
            self.size += more;
        }
        wanted <= self.size
    }

    pub fn append(&mut self, sys: &S, bytes: &[u8]) -> Sysult<()> {
        let end = self.end + bytes.len() as u64;
        self.has_room(sys, bytes.len());
        write_all(sys, &self.fd, self.end, bytes)?;
        (self.end, self.size) = (end, self.size.max(end));
        Ok(())
    }

    /// Removes what is behind the last whole record, and keeps the room that is in reserve.
    pub fn clear_rest(&mut self, sys: &S) -> Sysult<()> {
        let reserve = (self.size - self.end).min(2 * limits::LOG_RESERVE);
        if self.size > self.end + reserve {
            self.size = self.end + reserve;
            sys.truncate(&self.fd, self.size)?;
        }
        zero(sys, &self.fd, self.end, reserve)
    }
}

pub(super) fn zero<S: Sys>(sys: &S, fd: &S::Fd, at: u64, len: u64) -> Sysult<()> {
    write_all(sys, fd, at, &vec![0; len as usize])
}

fn write_all<S: Sys>(sys: &S, fd: &S::Fd, mut at: u64, mut bytes: &[u8]) -> Sysult<()> {
    while !bytes.is_empty() {
        match sys.write(fd, at, bytes)? {
            0 => return Err(Errno::NOSPC),
            n => {
                at += n as u64;
                bytes = &bytes[n..];
            }
        }
    }
    Ok(())
}
