//! Messages that survive a cut connection, without input and output.
//!
//! Each side numbers what it sends from 1, implicitly by order, and keeps it until the other says that it has it. After
//! a cut each says how many it has had; the rest is sent again in order. A message is therefore received once.
//!
//! A frame is a length (4 bytes), the number of messages received so far (8 bytes), both big-endian, and the message.
//! A frame without a message is a sign of life; the length [`BYE`] says that the session is over.

use crate::limits;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;

/// Bytes before a message.
pub const HEADER: usize = 12;
/// The length that ends a session.
const BYE: u32 = u32::MAX;

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// A message of this many bytes follows; 0: none.
    Message(usize),
    /// The session is over.
    Bye,
}

/// One end of a session.
#[derive(Debug, Default)]
pub struct Line {
    /// Messages that the other side may not have, oldest first.
    kept: VecDeque<Bytes>,
    kept_bytes: usize,
    /// How many of `kept` were written to the present connection.
    written: usize,
    /// How many of `kept` were ever written to a connection; the others are surely unknown to the other side.
    exposed: usize,
    /// How many messages the other side has said to have.
    acknowledged: u64,
    received: u64,
}

impl Line {
    /// Adds a message to be sent.
    pub fn push(&mut self, message: Bytes) {
        self.kept_bytes += message.len();
        self.kept.push_back(message);
    }

    /// Whether no more should be added until the other side has had some.
    pub fn is_full(&self) -> bool {
        self.kept_bytes >= limits::ATTACH_KEPT
    }

    /// How many messages were received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// A message was received and passed on.
    pub fn count_received(&mut self) {
        self.received += 1;
    }

    /// The next message for the present connection.
    pub fn next(&mut self) -> Option<Bytes> {
        let message = self.kept.get(self.written)?.clone();
        self.written += 1;
        self.exposed = self.exposed.max(self.written);
        Some(message)
    }

    /// Whether there is more for the present connection.
    pub fn has_next(&self) -> bool {
        self.written < self.kept.len()
    }

    /// A new connection, over which the other side has said to have had `received` messages.
    pub fn resume(&mut self, received: u64) -> io::Result<()> {
        self.written = self.exposed;
        self.acknowledge(received)?;
        self.written = 0;
        Ok(())
    }

    /// The other side has had so many messages.
    pub fn acknowledge(&mut self, received: u64) -> io::Result<()> {
        let more = received.checked_sub(self.acknowledged).filter(|n| *n <= self.written as u64);
        let more = more.ok_or_else(|| bad("the other side says that it has what was never sent"))?;
        for message in self.kept.drain(..more as usize) {
            self.kept_bytes -= message.len();
        }
        self.written -= more as usize;
        self.exposed -= more as usize;
        self.acknowledged = received;
        Ok(())
    }

    /// Takes back what no connection has carried and `wanted` rejects.
    pub fn retain_unsent(&mut self, mut wanted: impl FnMut(&Bytes) -> bool) {
        let unsent = self.kept.split_off(self.exposed);
        self.kept.extend(unsent.into_iter().filter(|m| wanted(m)));
        self.kept_bytes = self.kept.iter().map(Bytes::len).sum();
    }
}

/// The bytes before a message of `length` bytes.
pub fn header(length: usize, received: u64, to: &mut BytesMut) {
    to.put_u32(length as u32);
    to.put_u64(received);
}

/// The frame that ends a session.
pub fn bye(received: u64) -> BytesMut {
    let mut frame = BytesMut::with_capacity(HEADER);
    frame.put_u32(BYE);
    frame.put_u64(received);
    frame
}

/// Reads a header: what follows, and how many messages the other side has had.
pub fn parse(mut header: &[u8]) -> io::Result<(Head, u64)> {
    if header.len() != HEADER {
        return Err(bad("a frame's header was cut"));
    }
    let (length, received) = (header.get_u32(), header.get_u64());
    match length {
        BYE => Ok((Head::Bye, received)),
        length if length as usize <= limits::ATTACH_MESSAGE => Ok((Head::Message(length as usize), received)),
        length => Err(bad(&format!("a message of {length} bytes"))),
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the relay's other end is not to be trusted: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(line: &mut Line) -> Vec<Bytes> {
        std::iter::from_fn(|| line.next()).collect()
    }

    /// Two ends over a connection that is cut at every possible place: each message arrives once, in order.
    #[test]
    fn what_is_cut_arrives_once() {
        for (delivered, acknowledged) in (0..=5).flat_map(|d| (0..=d).map(move |a| (d, a))) {
            let (mut one, mut other) = (Line::default(), Line::default());
            (0..5u8).for_each(|i| one.push(Bytes::from(vec![i])));
            let mut arrived: Vec<Bytes> = drain(&mut one).into_iter().take(delivered).collect();
            (0..delivered).for_each(|_| other.count_received());
            one.acknowledge(acknowledged as u64).unwrap();
            one.push(Bytes::from_static(&[5]));
            one.resume(other.received()).unwrap();
            arrived.extend(drain(&mut one));
            let want: Vec<Bytes> = (0..6u8).map(|i| Bytes::from(vec![i])).collect();
            assert_eq!(arrived, want, "delivered {delivered}, acknowledged {acknowledged}");
        }
    }

    #[test]
    fn lies_about_what_arrived_are_refused() {
        let mut line = Line::default();
        line.push(Bytes::from_static(b"x"));
        assert!(line.acknowledge(1).is_err(), "it was not sent");
        assert_eq!(line.next().unwrap(), "x");
        line.acknowledge(1).unwrap();
        assert!(line.acknowledge(0).is_err(), "it takes back what it said");
        assert!(line.resume(2).is_err());
    }

    #[test]
    fn only_what_nobody_can_have_seen_is_taken_back() {
        let mut line = Line::default();
        line.push(Bytes::from_static(b"seen"));
        line.next().unwrap();
        line.push(Bytes::from_static(b"unseen"));
        line.retain_unsent(|_| false);
        line.resume(0).unwrap();
        assert_eq!(drain(&mut line), ["seen"]);
        assert_eq!(line.kept_bytes, 4);
    }

    #[test]
    fn frames_are_bounded() {
        let mut frame = BytesMut::new();
        header(7, 9, &mut frame);
        assert_eq!(parse(&frame).unwrap(), (Head::Message(7), 9));
        assert_eq!(parse(&bye(3)).unwrap(), (Head::Bye, 3));
        let mut large = BytesMut::new();
        header(limits::ATTACH_MESSAGE + 1, 0, &mut large);
        assert!(parse(&large).is_err() && parse(&frame[1..]).is_err());
    }
}
