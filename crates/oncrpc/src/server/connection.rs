//! The state machine of one connection: read, run, collect, write.

use super::requests::{Requests, Ticket};
use super::{Call, Peer, Reply};
use crate::limits::{Limits, WRITE_SOON};
use crate::msg::{BadCall, CallHeader, REPLY_HEADER_LEN, encode_refusal, encode_success};
use crate::outbox::Outbox;
use crate::record::Records;
use crate::xdr::Writer;
use bytes::Bytes;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

/// One connection. `H` tells the size of a reply, `S` makes the future `F` of a call.
pub(super) struct Connection<'l, IO, H, S, F> {
    /// `None` once the stream is of no further use.
    stream: Option<IO>,
    peer: Peer,
    limits: &'l Limits,
    quick_ack: fn(&IO),
    hint: H,
    start: S,
    records: Records,
    requests: Requests<F>,
    /// Whether half of the bounds is reached.
    crowd: watch::Sender<bool>,
    out: Outbox,
    /// More calls may come.
    reading: bool,
    /// Whole records may be waiting in `records`, because a bound was reached.
    backlog: bool,
    /// Something was read and nothing written since.
    unacknowledged: bool,
    /// Runs while the peer takes no replies.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Why the stream was given up.
    failure: Option<io::Error>,
}

impl<'l, IO, H, S, F> Connection<'l, IO, H, S, F>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    H: Fn(&Call) -> usize,
    S: Fn(Call) -> F,
    F: Future<Output = Reply>,
{
    pub(super) fn new(
        stream: IO,
        peer: Peer,
        limits: &'l Limits,
        quick_ack: fn(&IO),
        hint: H,
        start: S,
    ) -> Self {
        Self {
            stream: Some(stream),
            peer,
            limits,
            quick_ack,
            hint,
            start,
            records: Records::new(limits.record_max),
            requests: Requests::new(),
            crowd: watch::Sender::new(false),
            out: Outbox::default(),
            reading: true,
            backlog: false,
            unacknowledged: false,
            stalled: None,
            failure: None,
        }
    }

    /// Takes no more calls than those that have arrived.
    pub(super) fn stop_reading(&mut self) {
        self.reading = false;
    }

    /// Goes on as far as possible; ready when the connection is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.run_records();
            self.collect(cx);
            self.tell_crowd();
            self.write(cx);
            if self.backlog && self.has_room() {
                continue;
            }
            if self.reading && !self.backlog {
                if self.poll_read(cx).is_ready() {
                    continue;
                }
            } else if self.is_idle() {
                return self.poll_close(cx);
            }
            self.acknowledge();
            return Poll::Pending;
        }
    }

    /// Runs whole records that have arrived, as long as the bounds allow and the replies are short.
    fn run_records(&mut self) {
        self.backlog = self.stream.is_some();
        let waiting = self.out.len();
        while self.backlog && self.has_room() && self.out.len() < waiting + WRITE_SOON {
            match self.records.next_record() {
                Ok(Some(record)) => self.run(record),
                Ok(None) => self.backlog = false,
                Err(error) => self.fail(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
    }

    fn has_room(&self) -> bool {
        let running = self.requests.len();
        let room =
            running < self.limits.in_flight_max && self.requests.bytes() < self.limits.in_flight_bytes_max;
        self.out.len() < self.limits.reply_bytes_max && (room || running == 0)
    }

    /// Tells those that run whether they should make room.
    fn tell_crowd(&self) {
        let (running, bytes) = (self.requests.len(), self.requests.bytes());
        let is_dense = running > self.limits.in_flight_max / 2 || bytes > self.limits.in_flight_bytes_max / 2;
        self.crowd.send_if_modified(|told| std::mem::replace(told, is_dense) != is_dense);
    }

    fn run(&mut self, record: Bytes) {
        let bytes = record.len();
        match CallHeader::decode(record) {
            Ok((CallHeader { xid, prog, vers, proc, cred }, args)) => {
                let raw = args.clone().into_rest();
                let crowd = self.crowd.subscribe();
                let call = Call { xid, prog, vers, proc, cred, args, raw, peer: self.peer, crowd };
                let ticket = Ticket { xid, bytes: bytes.saturating_add((self.hint)(&call)) };
                if let Some(reply) = self.requests.start(ticket, (self.start)(call)) {
                    self.answer(xid, reply);
                }
            }
            Err(BadCall::Refused { xid, refusal }) => self.answer(xid, Err(refusal)),
            Err(BadCall::Garbage) => {
                self.fail(io::Error::new(io::ErrorKind::InvalidData, "a record is not an RPC call"));
            }
        }
    }

    fn answer(&mut self, xid: u32, reply: Reply) {
        if self.stream.is_none() {
            return;
        }
        match reply {
            Ok(results) => self.out.push(REPLY_HEADER_LEN + results.len(), |w| {
                encode_success(xid, w);
                w.append(results);
            }),
            Err(refusal) => {
                let mut whole = Writer::new();
                encode_refusal(xid, &refusal, &mut whole);
                self.out.push(whole.len(), |w| w.append(whole));
            }
        }
    }

    /// Takes the replies of requests that had to wait. They are polled even while the peer takes no
    /// replies: others may wait for something that they hold.
    fn collect(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some((ticket, reply))) = self.requests.poll_next(cx) {
            self.answer(ticket.xid, reply);
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) {
        while let Some(stream) = self.stream.as_mut().filter(|_| !self.out.is_empty()) {
            match self.out.poll_write(cx, stream) {
                Poll::Ready(Ok(_)) => {
                    self.unacknowledged = false;
                    self.stalled = None;
                }
                Poll::Ready(Err(error)) => self.fail(error),
                Poll::Pending => return self.stall(cx),
            }
        }
    }

    fn stall(&mut self, cx: &mut Context<'_>) {
        let limit = self.limits.write_stall_max;
        let timer =
            self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        if timer.as_mut().poll(cx).is_ready() {
            self.fail(io::Error::new(io::ErrorKind::TimedOut, "the peer takes no replies"));
        }
    }

    /// Ready when something has changed: bytes came, the peer has closed, or the stream is broken.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &mut self.stream else { return Poll::Pending };
        match ready!(pin!(stream.read_buf(self.records.buffer())).poll(cx)) {
            Ok(0) => self.reading = false,
            Ok(_) => self.unacknowledged = true,
            Err(error) => self.fail(error),
        }
        Poll::Ready(())
    }

    fn acknowledge(&mut self) {
        if let Some(stream) = self.stream.as_ref().filter(|_| self.unacknowledged) {
            (self.quick_ack)(stream);
            self.unacknowledged = false;
        }
    }

    fn is_idle(&self) -> bool {
        !self.backlog && self.requests.len() == 0 && self.out.is_empty()
    }

    /// Gives the stream up; running requests go on and are not answered.
    fn fail(&mut self, error: io::Error) {
        self.failure.get_or_insert(error);
        self.stream = None;
        self.reading = false;
        self.backlog = false;
        self.stalled = None;
        self.out.clear();
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(stream) = &mut self.stream {
            ready!(Pin::new(stream).poll_shutdown(cx))?;
        }
        Poll::Ready(self.failure.take().map_or(Ok(()), Err))
    }
}
