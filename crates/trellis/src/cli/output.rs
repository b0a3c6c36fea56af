//! Standard output and input as they were when the program started: one that was closed takes and gives nothing, which is
//! an error.
//!
//! The runtime of Rust puts `/dev/null` in the place of a closed descriptor before `main`, so that what is written there
//! seems to arrive, and what is read seems to be at its end. Whether it was closed is therefore looked at before that.

use rustix::io::Errno;
use std::io::{Result, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);
static INPUT_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds functions of this type, which the C library calls once, before `main` (System V ABI, gABI 5
// "Initialization and Termination Functions").
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for (number, closed) in [(0, &INPUT_CLOSED), (1, &CLOSED)] {
        // SAFETY: nothing else runs yet, and the descriptor is only asked for; that it may be closed is the question.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        closed.store(rustix::io::fcntl_getfd(descriptor) == Err(Errno::BADF), Ordering::Relaxed);
    }
}

/// Where the output of a command goes.
pub(super) struct Out;

/// Standard output.
pub(super) fn stdout() -> Out {
    Out
}

/// Fails where standard output was closed.
pub(super) fn check() -> Result<()> {
    open(&CLOSED)
}

/// Fails where standard input was closed.
pub(super) fn check_input() -> Result<()> {
    open(&INPUT_CLOSED)
}

fn open(closed: &AtomicBool) -> Result<()> {
    if closed.load(Ordering::Relaxed) { Err(Errno::BADF.into()) } else { Ok(()) }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        check()?;
        let written = std::io::stdout().write(bytes)?;
        // What does not end with a line would wait for one, and nobody would hear that it was not written.
        std::io::stdout().flush()?;
        Ok(written)
    }

    fn flush(&mut self) -> Result<()> {
        std::io::stdout().flush()
    }
}
