//! Memory for long reads, used again and again: fresh memory has to be mapped and zeroed by the kernel, which
//! costs more than the copying from the page cache.

use crate::limits::{BUFFER_MIN, BUFFERS_KEPT};
use bytes::Bytes;
use parking_lot::Mutex;

/// The buffers of this process that nobody uses.
static FREE: Mutex<Free> = Mutex::new(Free { buffers: Vec::new(), bytes: 0 });

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
        let mut free = FREE.lock();
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
    let buffer = FREE.lock().take(size).unwrap_or_else(|| vec![0; size].into());
    let mut lent = Lent { buffer, len };
    fill(&mut lent.buffer[..len]).map(|()| Bytes::from_owner(lent))
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
        let free = FREE.lock();
        assert!(free.bytes <= BUFFERS_KEPT);
        assert_eq!(free.bytes, free.buffers.iter().map(|b| b.len()).sum::<usize>());
    }

    #[test]
    fn a_failed_read_gives_nothing() {
        assert_eq!(filled(BUFFER_MIN, |_| Err("broken")), Err("broken"));
        assert_eq!(filled(3, |_| Err("broken")), Err("broken"));
        assert_eq!(of(3, 4), [4; 3][..]);
    }
}
