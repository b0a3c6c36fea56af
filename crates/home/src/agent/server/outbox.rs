//! Answers that wait for the pipe, the most urgent class first.

use super::super::frame::{CLASSES, Frame};
use crate::limits::agent::{ANSWERS_MAX, PART_MAX};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    /// Goes before every frame: the preamble.
    raw: VecDeque<Bytes>,
    frames: [VecDeque<Frame>; CLASSES],
    bytes: usize,
    closed: bool,
}

/// The line of answers.
pub(super) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

impl Outbox {
    pub fn new() -> Outbox {
        Outbox { state: Mutex::default(), changed: Condvar::new() }
    }

    /// Bytes that are no frame.
    pub fn push_raw(&self, bytes: Bytes) {
        self.lock().raw.push_back(bytes);
        self.changed.notify_all();
    }

    /// Frames of one answer, which stay in this order. Waits for room, except for signs of life.
    pub fn push(&self, frames: Vec<Frame>) {
        let control = frames.iter().all(|f| f.header.class as usize == 0);
        let full = |s: &mut State| !s.closed && !control && s.bytes >= ANSWERS_MAX;
        let mut state = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return;
        }
        for frame in frames {
            state.bytes += frame.len();
            state.frames[frame.header.class as usize].push_back(frame);
        }
        self.changed.notify_all();
    }

    /// Writes until closed and empty, or until the pipe breaks; then nothing more is kept.
    pub fn write_to(&self, mut output: impl Write) {
        let mut batch = Vec::with_capacity(2 * PART_MAX);
        while self.take(&mut batch) {
            if output.write_all(&batch).and_then(|()| output.flush()).is_err() {
                break;
            }
        }
        let mut state = self.lock();
        *state = State { closed: true, ..State::default() };
        self.changed.notify_all();
    }

    /// Fills `batch` with what goes first, up to about one part; waits for the first frame.
    fn take(&self, batch: &mut Vec<u8>) -> bool {
        batch.clear();
        let empty = |s: &mut State| !s.closed && s.raw.is_empty() && s.frames.iter().all(VecDeque::is_empty);
        let mut state = self.changed.wait_while(self.lock(), empty).unwrap_or_else(PoisonError::into_inner);
        while let Some(raw) = state.raw.pop_front() {
            batch.extend_from_slice(&raw);
        }
        while batch.len() < PART_MAX {
            let Some(frame) = state.frames.iter_mut().find_map(VecDeque::pop_front) else { break };
            state.bytes -= frame.len();
            batch.extend_from_slice(&frame.header.encode());
            frame.body.iter().for_each(|s| batch.extend_from_slice(s));
        }
        self.changed.notify_all();
        !batch.is_empty()
    }

    /// The writer leaves when it has written what is there.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
