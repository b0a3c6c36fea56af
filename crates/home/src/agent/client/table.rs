//! The requests of one session: those that wait for the pipe, and those that wait for an answer.

use super::super::frame::{CLASSES, Class, Frame, Type};
use super::super::verbs::Request;
use super::wire::{UnderWay, Wire};
use super::{Answer, SeenAnswer};
use crate::limits::agent::{BODY_MAX, IN_FLIGHT_MAX, PART_MAX, PARTS_MAX, STATS_MAX};
use crate::{Error, ErrorKind, Loc, Result, Turn};
use bytes::{Bytes, BytesMut};
use oncrpc::xdr::{Writer, Xdr};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

/// Who gets an answer.
pub(super) enum Waiter {
    One(Answer),
    /// The callers of a frame of single STATs, in its order.
    Stats(Vec<SeenAnswer>),
    /// Who waits only until the pipe has taken the request. A failure is left in `unkept`.
    Sent {
        sent: Option<oneshot::Sender<()>>,
        unkept: Arc<Mutex<Option<Error>>>,
        _room: OwnedSemaphorePermit,
    },
}

impl Waiter {
    fn is_sent(&mut self) {
        if let Waiter::Sent { sent, .. } = self
            && let Some(sent) = sent.take()
        {
            // Who went away need not be told.
            let _ = sent.send(());
        }
    }
}

struct Sent {
    waiter: Waiter,
    /// The parts that arrived.
    parts: BytesMut,
    under_way: UnderWay,
}

struct Queued {
    frame: Frame,
    /// `None` for frames that nobody answers.
    waiter: Option<Waiter>,
    /// Those that somebody waits for go before it.
    ahead: bool,
    /// Bytes that it makes the pipe carry, if they are many.
    weight: usize,
}

/// All of it, behind one lock.
pub(super) struct Table {
    last_id: u64,
    queues: [VecDeque<Queued>; CLASSES],
    stats: VecDeque<(Loc, SeenAnswer)>,
    sent: HashMap<u64, Sent>,
    /// Bytes of answers that have arrived in part.
    parts: usize,
    wire: Arc<Wire>,
    end: Option<Error>,
}

impl Table {
    pub fn new(wire: Arc<Wire>) -> Table {
        Table {
            last_id: 0,
            queues: Default::default(),
            stats: VecDeque::new(),
            sent: HashMap::new(),
            parts: 0,
            wire,
            end: None,
        }
    }

    /// Puts a request into the line of its class.
    pub fn push(
        &mut self,
        (class, turn): (Class, Turn),
        body: Vec<Bytes>,
        weight: usize,
        waiter: Waiter,
    ) -> Result<u64> {
        self.check_open()?;
        self.last_id += 1;
        let frame = Frame::new(Type::Request, class, self.last_id, body);
        let (queue, ahead) = (&mut self.queues[class as usize], turn == Turn::Ahead);
        let before = if ahead { None } else { queue.iter().position(|q| q.ahead) };
        queue.insert(before.unwrap_or(queue.len()), Queued { frame, waiter: Some(waiter), ahead, weight });
        Ok(self.last_id)
    }

    pub fn push_stat(&mut self, at: Loc, answer: SeenAnswer) -> Result<()> {
        self.check_open()?;
        self.stats.push_back((at, answer));
        Ok(())
    }

    pub fn push_notice(&mut self, frame: Frame) {
        // One at a time is enough: a pipe that takes none needs no second.
        if self.queues[0].iter().all(|q| q.waiter.is_some()) {
            self.queues[0].push_back(Queued { frame, waiter: None, ahead: false, weight: 0 });
        }
    }

    fn check_open(&self) -> Result<()> {
        self.end.clone().map_or(Ok(()), Err)
    }

    /// The caller of `id` went away. Answers whether a cancel now waits for the pipe.
    pub fn abandon(&mut self, id: u64, cancel: bool) -> bool {
        for queue in &mut self.queues {
            if let Some(i) = queue.iter().position(|q| q.frame.header.id == id && q.waiter.is_some()) {
                queue.remove(i);
                return false;
            }
        }
        // A change stays in the table: it takes up a place at the server until it is answered.
        if !cancel {
            return false;
        }
        let Some(sent) = self.sent.remove(&id) else { return false };
        self.parts -= sent.parts.len();
        self.wire.give_back(&sent.under_way);
        let frame = Frame::new(Type::Cancel, Class::Control, id, Vec::new());
        self.queues[0].push_back(Queued { frame, waiter: None, ahead: false, weight: 0 });
        true
    }

    /// Appends what goes next to `batch`, about one part at most. Answers [`Wire::fastest`], or `None` if nothing may go.
    pub fn take_batch(&mut self, batch: &mut Vec<Frame>) -> Option<Duration> {
        let mut bytes = 0;
        while bytes < PART_MAX {
            let Some(queued) = self.next() else { break };
            bytes += queued.frame.len();
            let header = queued.frame.header;
            batch.push(queued.frame);
            if let Some(mut waiter) = queued.waiter {
                waiter.is_sent();
                let under_way = self.wire.take(header.class, queued.weight);
                self.sent.insert(header.id, Sent { waiter, parts: BytesMut::new(), under_way });
            }
        }
        (!batch.is_empty()).then(|| self.wire.fastest())
    }

    fn next(&mut self) -> Option<Queued> {
        let window = self.sent.len() < IN_FLIGHT_MAX;
        for class in 0..CLASSES {
            if class == Class::Metadata as usize
                && window
                && let Some(queued) = self.next_stats()
            {
                return Some(queued);
            }
            // The first heavy request that must wait holds up the heavy ones behind it, which keeps their order.
            let admits = |weight| self.wire.admits(class, weight);
            let stuck = self.queues[class].iter().find(|q| !admits(q.weight)).map(|q| q.frame.header.id);
            let mut held_up = false;
            let may_go = |q: &Queued| {
                held_up |= Some(q.frame.header.id) == stuck;
                q.waiter.is_none() || window && (q.weight == 0 || !held_up)
            };
            if let Some(i) = self.queues[class].iter().position(may_go) {
                return self.queues[class].remove(i);
            }
        }
        None
    }

    /// All single STATs that wait, as one frame.
    fn next_stats(&mut self) -> Option<Queued> {
        let (mut locs, mut answers) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        while locs.len() < STATS_MAX && bytes < BODY_MAX / 4 {
            let Some((at, answer)) = self.stats.pop_front() else { break };
            if !answer.is_closed() {
                bytes += at.path.as_bytes().len();
                locs.push(at);
                answers.push(answer);
            }
        }
        if locs.is_empty() {
            return None;
        }
        let mut w = Writer::new();
        Request::Stat(locs).encode(&mut w);
        self.last_id += 1;
        let frame = Frame::new(Type::Request, Class::Metadata, self.last_id, w.into_segments());
        Some(Queued { frame, waiter: Some(Waiter::Stats(answers)), ahead: false, weight: 0 })
    }

    /// A part of an answer arrived. With the last one, the waiter and the whole body are given out.
    pub fn arrived(&mut self, id: u64, body: Bytes, last: bool) -> Result<Option<(Waiter, Bytes)>> {
        let Some(sent) = self.sent.get_mut(&id) else { return Ok(None) };
        if sent.parts.len() + body.len() > BODY_MAX || self.parts + body.len() > PARTS_MAX {
            return Err(Error::new(ErrorKind::Unreachable, "the agent's answers are longer than allowed"));
        }
        if !last {
            self.parts += body.len();
            if sent.parts.is_empty() {
                // What it weighs is what it was told to carry at most; a little more goes round it.
                sent.parts.reserve((sent.under_way.weight + PART_MAX / 8).min(BODY_MAX));
            }
            sent.parts.extend_from_slice(&body);
            return Ok(None);
        }
        let Some(mut sent) = self.sent.remove(&id) else { return Ok(None) };
        self.parts -= sent.parts.len();
        self.wire.answered(&sent.under_way, Instant::now());
        let body = if sent.parts.is_empty() {
            body
        } else {
            sent.parts.extend_from_slice(&body);
            sent.parts.freeze()
        };
        Ok(Some((sent.waiter, body)))
    }

    pub fn wire(&self) -> Arc<Wire> {
        self.wire.clone()
    }

    /// Takes the windows of another pipe to the same place. Nothing that has a weight was sent before.
    pub fn share(&mut self, wire: Arc<Wire>) {
        self.wire = wire;
    }

    /// Nothing more is taken or sent. Gives out all who wait.
    pub fn close(&mut self, why: &Error) -> Vec<Waiter> {
        self.end.get_or_insert_with(|| why.clone());
        let queued = self.queues.iter_mut().flat_map(std::mem::take).filter_map(|q| q.waiter);
        let mut waiters: Vec<Waiter> = queued.collect();
        for (_, sent) in self.sent.drain() {
            self.wire.give_back(&sent.under_way);
            waiters.push(sent.waiter);
        }
        waiters.push(Waiter::Stats(self.stats.drain(..).map(|(_, s)| s).collect()));
        waiters
    }
}
