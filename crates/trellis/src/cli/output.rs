//! Standard output and input as they were when the program started: one that was closed takes and gives nothing, which is
//! an error.
//!
//! The runtime of Rust puts `/dev/null` in the place of a closed descriptor before `main`, so that what is written there
//! seems to arrive, and what is read seems to be at its end. Whether it was closed is therefore looked at before that. It
//! ignores SIGPIPE, too, of which the Unix twins of the commands die where nobody reads on.

use rustix::io::Errno;
use std::io::{Result, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);
static INPUT_CLOSED: AtomicBool = AtomicBool::new(false);
/// Whether SIGPIPE ended this process if the runtime left it as it was.
static PIPES_END: AtomicBool = AtomicBool::new(false);

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
    // SAFETY: the action is on this stack, and only asked for.
    let usual = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_DFL
    };
    PIPES_END.store(usual, Ordering::Relaxed);
}

/// Whether whoever started this process wants it to end without a word where nobody reads what it says.
pub(super) fn dies_of_closed_pipes() -> bool {
    PIPES_END.load(Ordering::Relaxed)
}

/// Ends this process as SIGPIPE does by itself. Answers the exit code where the signal is blocked.
pub(super) fn die_of_closed_pipe() -> u8 {
    // SAFETY: nothing relies on the signal's being ignored any more: this process says nothing after this.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
    1
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
