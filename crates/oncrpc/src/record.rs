//! Record marking on a byte stream (RFC 5531 section 11).
//!
//! A record is one or more fragments; each has a 4-byte mark: the top bit says "last", the other 31 are
//! the length. A record of one fragment is handed out as a slice of the receive buffer. Records in
//! several fragments are real (pynfs cuts at 2048 bytes) and are gathered by copying.
//!
//! The length that a mark announces costs nothing before it was checked against the bound, and what
//! is reserved for it is memory that is not touched before bytes arrive.

use crate::limits::{READ_BUFFER, READ_ROOM_MIN, SPARE_BUFFERS_MAX};
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;

/// The bit of a mark that says "last fragment of this record".
pub const LAST_FRAGMENT: u32 = 1 << 31;

/// The peer announced more than the bound; the stream is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record of more than {max} bytes was announced")]
pub struct RecordTooLong {
    /// The bound in bytes.
    pub max: usize,
}

/// Cuts a stream into records.
///
/// Fill [`Records::buffer`] from the stream, then call [`Records::next_record`] until it answers `None`.
#[derive(Debug)]
pub struct Records {
    buf: BytesMut,
    gathered: BytesMut,
    /// Buffers that records may still refer to. Fresh memory has to be mapped and zeroed by the kernel,
    /// which costs more than all the rest of receiving a large record.
    spare: VecDeque<BytesMut>,
    max: usize,
}

impl Records {
    /// For records of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { buf: BytesMut::new(), gathered: BytesMut::new(), spare: VecDeque::new(), max }
    }

    /// Where bytes of the stream are to be appended. There is room for the rest of the current
    /// fragment, or for many short ones.
    pub fn buffer(&mut self) -> &mut BytesMut {
        let missing = match self.mark() {
            Some((_, len)) if len <= self.max => (4 + len).saturating_sub(self.buf.len()),
            _ => 0,
        };
        let room = self.buf.capacity() - self.buf.len();
        if missing > room || (missing == 0 && room < READ_ROOM_MIN) {
            self.make_room(missing.max(READ_BUFFER));
        }
        &mut self.buf
    }

    /// Makes room for `more` bytes: in the same buffer if no record refers to it any more, else in an
    /// earlier one of which that is true, else in a new one.
    fn make_room(&mut self, more: usize) {
        if self.buf.try_reclaim(more) {
            return;
        }
        let need = self.buf.len() + more;
        let free = self.spare.iter_mut().position(|spare| spare.try_reclaim(need));
        let mut fresh = free.and_then(|at| self.spare.remove(at)).unwrap_or_default();
        fresh.reserve(need);
        fresh.extend_from_slice(&self.buf);
        let mut old = std::mem::replace(&mut self.buf, fresh);
        old.clear();
        if self.spare.len() == SPARE_BUFFERS_MAX {
            self.spare.pop_front();
        }
        self.spare.push_back(old);
    }

    /// The next whole record, if it has arrived.
    pub fn next_record(&mut self) -> Result<Option<Bytes>, RecordTooLong> {
        while let Some((last, len)) = self.mark() {
            if len > self.max - self.gathered.len() {
                return Err(RecordTooLong { max: self.max });
            }
            if self.buf.len() < 4 + len {
                return Ok(None);
            }
            self.buf.advance(4);
            let fragment = self.buf.split_to(len);
            if last && self.gathered.is_empty() {
                return Ok(Some(fragment.freeze()));
            }
            self.gathered.extend_from_slice(&fragment);
            if last {
                return Ok(Some(std::mem::take(&mut self.gathered).freeze()));
            }
        }
        Ok(None)
    }

    /// Whether a record has begun and not ended.
    pub fn is_partial(&self) -> bool {
        !self.buf.is_empty() || !self.gathered.is_empty()
    }

    fn mark(&self) -> Option<(bool, usize)> {
        let mark = u32::from_be_bytes(*self.buf.first_chunk()?);
        Some((mark & LAST_FRAGMENT != 0, (mark & !LAST_FRAGMENT) as usize))
    }
}

#[cfg(test)]
mod tests;
