//! What waits to be sent on a connection. All that gathered since the last write leaves in one vectored write.

use crate::limits::IO_SLICES_MAX;
use crate::record::LAST_FRAGMENT;
use crate::xdr::Writer;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Records on their way to a stream. Short pieces are gathered in one buffer, long ones stay apart.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    gathering: Writer,
    queue: VecDeque<Bytes>,
    queued: usize,
}

impl Outbox {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.queued + self.gathering.len()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds one record: `head`, then `body` if there is one. Each record is one fragment.
    pub(crate) fn push(&mut self, len: usize, write: impl FnOnce(&mut Writer)) {
        debug_assert!(len < LAST_FRAGMENT as usize, "a fragment has less than 2 GiB");
        self.gathering.u32(LAST_FRAGMENT | len as u32);
        let start = self.gathering.len();
        write(&mut self.gathering);
        debug_assert_eq!(self.gathering.len() - start, len, "the mark tells the length");
    }

    /// Throws everything away.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// One vectored write of as much as the stream takes; answers how many bytes left. Must not be called
    /// while nothing waits.
    pub(crate) fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut W,
    ) -> Poll<io::Result<usize>> {
        self.queued += self.gathering.len();
        self.queue.extend(self.gathering.take_segments());
        let mut slices = [IoSlice::new(&[]); IO_SLICES_MAX];
        let count = self.queue.len().min(IO_SLICES_MAX);
        for (slice, bytes) in slices.iter_mut().zip(&self.queue) {
            *slice = IoSlice::new(bytes);
        }
        let sent = ready!(Pin::new(stream).poll_write_vectored(cx, &slices[..count]))?;
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(sent);
        Poll::Ready(Ok(sent))
    }

    fn advance(&mut self, mut sent: usize) {
        self.queued -= sent;
        while let Some(front) = self.queue.front_mut() {
            if front.len() > sent {
                return front.advance(sent);
            }
            sent -= front.len();
            self.queue.pop_front();
        }
    }
}
