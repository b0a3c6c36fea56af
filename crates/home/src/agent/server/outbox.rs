//! Answers that wait for the pipe, the most urgent class first. Each waits for room behind those that would go before it, and
//! behind no others.

use super::super::frame::{CLASSES, Class, Frame};
use crate::limits::agent::{ANSWERS_MAX, PART_MAX, SLICES_MAX};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    /// Goes before every frame: the preamble.
    raw: VecDeque<Bytes>,
    frames: [VecDeque<Frame>; CLASSES],
    /// Of each class.
    bytes: [usize; CLASSES],
    closed: bool,
    /// The writer waits.
    idle: bool,
    /// Threads that wait for room.
    held: usize,
}

impl State {
    /// Bytes that go before a new answer of this class.
    fn bytes_before(&self, class: Class) -> usize {
        self.bytes[..=class as usize].iter().sum()
    }
}

/// The line of answers.
pub(super) struct Outbox {
    state: Mutex<State>,
    /// For the writer.
    work: Condvar,
    /// For everybody else.
    room: Condvar,
}

impl Outbox {
    pub fn new() -> Outbox {
        Outbox { state: Mutex::default(), work: Condvar::new(), room: Condvar::new() }
    }

    /// Bytes that are no frame.
    pub fn push_raw(&self, bytes: Bytes) {
        let mut state = self.lock();
        state.raw.push_back(bytes);
        self.wake_writer(&state);
    }

    /// Frames of one answer, which are of one class and stay in this order. Waits for room, except for signs of life.
    pub fn push(&self, frames: Vec<Frame>) {
        let Some(class) = frames.first().map(|frame| frame.header.class) else { return };
        let mut state = self.lock();
        while !state.closed && class != Class::Control && state.bytes_before(class) >= ANSWERS_MAX {
            state.held += 1;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.held -= 1;
        }
        if state.closed {
            return;
        }
        state.bytes[class as usize] += frames.iter().map(Frame::len).sum::<usize>();
        state.frames[class as usize].extend(frames);
        self.wake_writer(&state);
    }

    /// Nobody is woken who cannot use it: that would cost more than a short answer takes.
    fn wake_writer(&self, state: &State) {
        if state.idle {
            self.work.notify_one();
        }
    }

    /// Writes until closed and empty, or until the pipe breaks; then nothing more is kept.
    pub fn write_to(&self, mut output: impl Write) {
        let mut batch = Vec::new();
        while self.take(&mut batch) {
            if write_all(&mut output, &batch).and_then(|()| output.flush()).is_err() {
                break;
            }
        }
        let mut state = self.lock();
        *state = State { closed: true, held: state.held, ..State::default() };
        self.room.notify_all();
    }

    /// Fills `batch` with what goes first, up to about one part; waits for the first frame.
    fn take(&self, batch: &mut Vec<Bytes>) -> bool {
        batch.clear();
        let mut state = self.lock();
        while !state.closed && state.raw.is_empty() && state.frames.iter().all(VecDeque::is_empty) {
            state.idle = true;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle = false;
        }
        batch.extend(state.raw.drain(..));
        let mut bytes = 0;
        while bytes < PART_MAX {
            let Some(frame) = state.frames.iter_mut().find_map(VecDeque::pop_front) else { break };
            state.bytes[frame.header.class as usize] -= frame.len();
            bytes += frame.len();
            batch.push(Bytes::copy_from_slice(&frame.header.encode()));
            batch.extend(frame.body);
        }
        if state.held > 0 {
            self.room.notify_all();
        }
        !batch.is_empty()
    }

    /// The writer leaves when it has written what is there.
    pub fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the bytes without copying them together first.
fn write_all(output: &mut impl Write, batch: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<_> = batch.iter().filter(|b| !b.is_empty()).map(|b| IoSlice::new(b)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match output.write_vectored(&rest[..rest.len().min(SLICES_MAX)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut rest, n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::frame::Type;
    use super::*;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    /// Takes a few bytes at a time, and is interrupted every other time.
    #[derive(Default)]
    struct Slow(Vec<u8>, bool);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let n = bytes.len().min(3);
            self.0.extend_from_slice(&bytes[..n]);
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_byte_is_written_once_in_its_order() {
        let batch: Vec<Bytes> = (0..SLICES_MAX + 7).map(|i| vec![i as u8; i % 9].into()).collect();
        let mut out = Slow::default();
        write_all(&mut out, &batch).unwrap();
        assert_eq!(out.0, batch.concat());
    }

    #[test]
    fn an_answer_waits_for_no_room_behind_less_urgent_ones() {
        let outbox = Arc::new(Outbox::new());
        let frames = |class, len| vec![Frame::new(Type::Reply, class, 2, vec![vec![0; len].into()])];
        let (pushed, was) = mpsc::channel();
        let push = |class, len| {
            let (outbox, pushed, frames) = (outbox.clone(), pushed.clone(), frames(class, len));
            std::thread::spawn(move || {
                outbox.push(frames);
                pushed.send(class).unwrap();
            });
        };
        let soon = || was.recv_timeout(Duration::from_secs(20)).unwrap();
        let not_yet = || was.recv_timeout(Duration::from_millis(100)).is_err();
        push(Class::Bulk, ANSWERS_MAX);
        assert_eq!(soon(), Class::Bulk);
        push(Class::Bulk, 1);
        assert!(not_yet());
        push(Class::Metadata, ANSWERS_MAX);
        assert_eq!(soon(), Class::Metadata);
        for held in [Class::Metadata, Class::Data] {
            push(held, 1);
            assert!(not_yet());
        }
        push(Class::Control, 1);
        assert_eq!(soon(), Class::Control);

        let mut batch = Vec::new();
        // The one of Control and the long one of Metadata.
        assert!(outbox.take(&mut batch));
        let mut came = [soon(), soon()];
        came.sort();
        assert_eq!(came, [Class::Metadata, Class::Data]);
        assert!(not_yet());
        outbox.close();
        assert_eq!(soon(), Class::Bulk);
    }
}
