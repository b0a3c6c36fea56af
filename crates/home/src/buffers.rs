//! Memory for long reads, used again and again: fresh memory has to be mapped and zeroed by the kernel, which
//! costs more than the copying from the page cache.

use crate::limits::{BUFFER_MIN, BUFFERS_KEPT};
use bytes::Bytes;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The buffers of this process that nobody uses.
static FREE: Mutex<Free> = Mutex::new(Free { buffers: Vec::new(), bytes: 0 });

/// Each change of it is one step, so that a panic in another thread left it sound.
fn free() -> MutexGuard<'static, Free> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last one that came back goes out first: it may still be in the processor's cache.
struct Free {
    buffers: Vec<Box<[u8]>>,
    bytes: usize,
}

/// A buffer in use; comes back when the last reference to its bytes is dropped.
struct Lent {
    buffer: Box<[u8]>,
    len: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut free = free();
        if free.bytes + buffer.len() <= BUFFERS_KEPT {
            free.bytes += buffer.len();
            free.buffers.push(buffer);
        }
    }
}

impl Free {
    fn take(&mut self, size: usize) -> Option<Box<[u8]>> {
        let at = self.buffers.iter().rposition(|b| b.len() == size)?;
        self.bytes -= size;
        Some(self.buffers.remove(at))
    }
}

/// `len` bytes that `fill` has written; what it leaves alone is arbitrary.
pub fn filled<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
    if len < BUFFER_MIN {
        let mut buffer = vec![0; len];
        return fill(&mut buffer).map(|()| buffer.into());
    }
    // Few sizes, so that one fits soon; pages that are never touched take no memory.
    let size = len.next_power_of_two();
    let buffer = free().take(size).unwrap_or_else(|| vec![0; size].into());
    let mut lent = Lent { buffer, len };
    fill(&mut lent.buffer[..len]).map(|()| Bytes::from_owner(lent))
}

/// At most `room` bytes that `read` gives: it is told how many there are, fills a part of what follows, and answers how
/// many these are; 0 at the end.
pub fn filled_from<E>(
    room: usize,
    mut read: impl FnMut(&mut [u8], usize) -> Result<usize, E>,
) -> Result<Bytes, E> {
    let mut have = 0;
    let bytes = filled(room, |buf| {
        while have < buf.len() {
            match read(&mut buf[have..], have)? {
                0 => break,
                n => have += n,
            }
        }
        Ok(())
    })?;
    Ok(bytes.slice(..have))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: usize, byte: u8) -> Bytes {
        let fill = |b: &mut [u8]| {
            b.fill(byte);
            Ok::<_, ()>(())
        };
        filled(len, fill).unwrap()
    }

    #[test]
    fn bytes_in_use_are_nobody_elses() {
        let all: Vec<Bytes> = (0..40).map(|i| of(BUFFER_MIN + usize::from(i), i)).collect();
        let part = all[7].slice(5..9);
        drop(all);
        let more: Vec<Bytes> = (50..90).map(|i| of(BUFFER_MIN, i)).collect();
        assert_eq!(part, [7; 4][..]);
        assert!(more.iter().zip(50..).all(|(b, i)| b.len() == BUFFER_MIN && b.iter().all(|x| *x == i)));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let all: Vec<Bytes> = (0..4 + BUFFERS_KEPT / (1 << 20)).map(|_| of(1 << 20, 1)).collect();
        drop(all);
        let free = free();
        assert!(free.bytes <= BUFFERS_KEPT);
        assert_eq!(free.bytes, free.buffers.iter().map(|b| b.len()).sum::<usize>());
    }

    #[test]
    fn reads_go_on_to_the_end_or_until_there_is_no_room() {
        let source: Vec<u8> = (0..BUFFER_MIN + 9).map(|i| i as u8).collect();
        let read = |buf: &mut [u8], have: usize| {
            let n = buf.len().min(1000).min(source.len() - have);
            buf[..n].copy_from_slice(&source[have..have + n]);
            Ok::<_, ()>(n)
        };
        for room in [1, 1000, BUFFER_MIN, source.len(), source.len() + 1] {
            assert_eq!(filled_from(room, read).unwrap(), source[..room.min(source.len())]);
        }
    }

    #[test]
    fn a_failed_read_gives_nothing() {
        assert_eq!(filled(BUFFER_MIN, |_| Err("broken")), Err("broken"));
        assert_eq!(filled(3, |_| Err("broken")), Err("broken"));
        assert_eq!(of(3, 4), [4; 3][..]);
    }
}
