//! The process that waits for a server's end. One thread, no runtime, nothing open but its standard streams.

use crate::mounts::Connection;
use crate::{dying, limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::ffi::OsString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Comes when the thread of the server has died that started this process.
pub const DEATH: Signal = Signal::USR1;

/// How often it is looked at after that.
const LOOKS: u32 = 100;

/// Longest line on standard input: a number.
const LINE: usize = 16;

/// The server that the arguments of a guard name.
pub fn wanted(args: &[OsString]) -> Option<i32> {
    match args {
        [_, command, pid] if command == super::COMMAND => pid.to_str()?.parse().ok(),
        _ => None,
    }
}

/// Waits until the server that started this process dies, and frees what hangs in its mounts then.
pub fn run(server: i32) -> ExitCode {
    // For people alone.
    let _ = rustix::thread::set_name(c"mount-guard");
    close_inherited();
    block_signals();
    let Ok(death) = deaths() else { return ExitCode::FAILURE };
    let mut input = Input::default();
    // The process is seen to die a moment after its thread.
    let mut looks = 0;
    while lives(server) {
        let patience = (looks > 0).then_some(limits::DYING_PAUSE);
        let Ok(woken) = wait(&death, !input.ended, patience) else { return ExitCode::FAILURE };
        if woken.line {
            input.read();
        }
        looks = if woken.death { LOOKS } else { looks.saturating_sub(1) };
    }
    while !input.ended && wait(&death, true, Some(Duration::ZERO)).is_ok_and(|woken| woken.line) {
        input.read();
    }
    outlive(server, &input.mounts);
    ExitCode::SUCCESS
}

/// What there is to do.
struct Woken {
    line: bool,
    death: bool,
}

/// Waits for a line, if `lines`, or a death, but not longer than `patience`.
fn wait(death: &OwnedFd, lines: bool, patience: Option<Duration>) -> rustix::io::Result<Woken> {
    let input = rustix::stdio::stdin();
    let mut fds = [PollFd::new(death, PollFlags::IN), PollFd::from_borrowed_fd(input, PollFlags::IN)];
    let wanted = if lines { 2 } else { 1 };
    let patience = patience.map(Timespec::try_from).transpose().map_err(|_| Errno::INVAL)?;
    poll(&mut fds[..wanted], patience.as_ref())?;
    let [died, line] = fds.map(|fd| !fd.revents().is_empty());
    if died {
        // That it came is all that it says.
        let _ = rustix::io::read(death, &mut [0; 128]);
    }
    Ok(Woken { line, death: died })
}

/// Whether the server is there, and is to stay.
fn lives(server: i32) -> bool {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    parent == Some(server) && !dying::is_dying(server)
}

/// Waits until nothing is left of a server that has died; what is left after a moment hangs in the kernel.
fn outlive(server: i32, mounts: &[Connection]) {
    let begun = Instant::now();
    let mut aborted = false;
    while dying::is_there(server) && begun.elapsed() < limits::DYING_FOR {
        if !aborted && begun.elapsed() > limits::GUARD_PATIENCE && dying::is_dying(server) {
            aborted = true;
            mounts.iter().for_each(Connection::abort);
        }
        std::thread::sleep(limits::DYING_PAUSE);
    }
}

/// Blocks all signals: whoever ends a terminal or a session does not mean this process.
pub fn block_signals() {
    // SAFETY: the set is on this stack; both calls are async-signal-safe and cannot fail with these arguments.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// A descriptor by which [`DEATH`], which is blocked, is heard.
fn deaths() -> std::io::Result<OwnedFd> {
    // SAFETY: the set is on this stack, and what signalfd answers, if no error, is a descriptor of nobody else.
    unsafe {
        let mut death = std::mem::zeroed();
        libc::sigemptyset(&raw mut death);
        libc::sigaddset(&raw mut death, DEATH.as_raw());
        match libc::signalfd(-1, &raw const death, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(std::io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Closes what whoever started the server had left open: nobody is to wait for the end of a pipe because of us.
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: this process has opened nothing yet but the directory that was read, which is closed already.
        unsafe { libc::close(fd) };
    }
}

/// What the server has said.
#[derive(Default)]
struct Input {
    ended: bool,
    line: Vec<u8>,
    mounts: Vec<Connection>,
}

impl Input {
    /// Takes what is there.
    fn read(&mut self) {
        let mut bytes = [0; 256];
        match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            Ok(0) | Err(_) => self.ended = true,
            Ok(count) => self.take(&bytes[..count]),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                _ if self.line.len() < LINE => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        let number = std::str::from_utf8(&self.line).ok().and_then(|l| l.parse().ok());
        self.line.clear();
        let Some(number) = number else { return };
        self.mounts.retain(|m| m.number() != number);
        self.mounts.push(Connection::now(number));
        let old = self.mounts.len().saturating_sub(limits::GUARDED);
        self.mounts.drain(..old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_told_in_lines_and_the_last_ones_kept() {
        let mut input = Input::default();
        input.take(b"4");
        assert!(input.mounts.is_empty());
        input.take(b"1\n42\nno number\n41\n123456789012345678901234567890\n43");
        let numbers: Vec<u32> = input.mounts.iter().map(Connection::number).collect();
        assert_eq!(numbers, [42, 41]);
        (0..2000).for_each(|n| input.take(format!("{n}\n").as_bytes()));
        assert_eq!(input.mounts.len(), limits::GUARDED);
    }

    #[test]
    fn a_guard_is_told_from_a_person() {
        let args = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(wanted(&args(&["mount-guard", "guard", "17"])), Some(17));
        for other in [&["trellis", "guard"][..], &["trellis", "guard", "x"], &["trellis", "ls", "17"]] {
            assert_eq!(wanted(&args(other)), None, "{other:?}");
        }
    }

    #[test]
    fn nobody_else_is_guarded() {
        let me = std::process::id().cast_signed();
        assert!(!lives(me), "not our parent");
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert!(lives(parent));
    }
}
