//! Running requests of one connection.
//!
//! A future must not move once it was polled. Each request is therefore put into a pinned slot on the heap
//! before its first poll; the slot of a request that was ready at once serves the next one, so
//! that only waiting costs memory.

use crate::server::Reply;
use futures_util::stream::{FuturesUnordered, Stream};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Slot<F> = Pin<Box<Option<F>>>;

/// What is known of a request while its future runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    /// The number for the reply.
    pub(super) xid: u32,
    /// Bytes that count against the bound while it runs.
    pub(super) bytes: usize,
}

/// Requests that were polled once and were not ready.
pub(super) struct Requests<F> {
    running: FuturesUnordered<Running<F>>,
    free: Vec<Slot<F>>,
    bytes: usize,
}

struct Running<F> {
    slot: Option<Slot<F>>,
    ticket: Ticket,
}

/// Slots that are kept for further requests.
const FREE_MAX: usize = 16;

impl<F: Future<Output = Reply>> Requests<F> {
    pub(super) fn new() -> Self {
        Self { running: FuturesUnordered::new(), free: Vec::new(), bytes: 0 }
    }

    /// How many requests run.
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Bytes that running requests count for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Polls a new request once; answers its reply if it is ready, else the request runs on.
    pub(super) fn start(&mut self, ticket: Ticket, future: F) -> Option<Reply> {
        let mut slot = self.free.pop().unwrap_or_else(|| Box::pin(None));
        slot.set(Some(future));
        // Nobody needs to be woken: a request that is not ready is polled again by the set.
        match poll_slot(&mut slot, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => {
                self.recycle(slot);
                Some(reply)
            }
            Poll::Pending => {
                self.bytes += ticket.bytes;
                self.running.push(Running { slot: Some(slot), ticket });
                None
            }
        }
    }

    /// The next reply of a request that had to wait; `None` if none runs.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Ticket, Reply)>> {
        Pin::new(&mut self.running).poll_next(cx).map(|next| {
            let (ticket, slot, reply) = next?;
            self.bytes -= ticket.bytes;
            self.recycle(slot);
            Some((ticket, reply))
        })
    }

    fn recycle(&mut self, slot: Slot<F>) {
        if self.free.len() < FREE_MAX {
            self.free.push(slot);
        }
    }
}

/// Polls the future in a slot and empties the slot when the future is ready.
fn poll_slot<F: Future<Output = Reply>>(slot: &mut Slot<F>, cx: &mut Context<'_>) -> Poll<Reply> {
    let Some(future) = slot.as_mut().as_pin_mut() else { return Poll::Pending };
    let polled = future.poll(cx);
    if polled.is_ready() {
        slot.set(None);
    }
    polled
}

impl<F: Future<Output = Reply>> Future for Running<F> {
    type Output = (Ticket, Slot<F>, Reply);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut slot) = self.slot.take() else { return Poll::Pending };
        match poll_slot(&mut slot, cx) {
            Poll::Ready(reply) => Poll::Ready((self.ticket, slot, reply)),
            Poll::Pending => {
                self.slot = Some(slot);
                Poll::Pending
            }
        }
    }
}
