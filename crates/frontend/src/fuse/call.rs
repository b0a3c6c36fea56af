//! How a request waits.
//!
//! What the engine is not ready for ([`vfs::ErrorKind::may_pass`]) is repeated, because nothing happened. A process that waits
//! in the kernel for our answer cannot be killed, and `fuser` does not pass on that a signal has come
//! (FUSE_INTERRUPT); so whoever waits long is looked at in `/proc`, and let go when it is being killed.

use super::convert;
use crate::limits;
use fuser::Errno;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The signal SIGKILL as a bit of a mask in `/proc/PID/status`. A signal whose default action ends the process sets it
/// for each thread (kernel/signal.c `complete_signal`).
const KILLED: u64 = 1 << (9 - 1);

/// What a request comes to.
pub type Answer<T> = Result<T, Errno>;

/// When the process that waits for an answer gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivesUp {
    /// When it is being killed; programs do not expect that a file system lets itself be interrupted.
    WhenKilled,
    /// When it gets any signal, as whoever waits for a lock does (fcntl(2) EINTR).
    AtSignal,
}

/// Answers a request: at once where nothing has to wait, else from a task of its own. `asker` is the process that
/// waits, 0 where it is none or not ours.
pub fn answer<T, F>(
    runtime: &Handle,
    asker: (u32, GivesUp),
    call: F,
    reply: impl FnOnce(Answer<T>) + Send + 'static,
) where
    T: Send + 'static,
    F: Future<Output = Answer<T>> + Send + 'static,
{
    let mut call: Pin<Box<F>> = Box::pin(call);
    let _in_runtime = runtime.enter();
    // A task polls again at once, so that nobody needs to be woken for this poll.
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => reply(done),
        Poll::Pending => drop(runtime.spawn(async move {
            tokio::select! {
                done = call => reply(done),
                () = given_up(asker) => reply(Err(Errno::EINTR)),
            }
        })),
    }
}

/// Waits until the process gives up; for ever where there is none to look at.
async fn given_up((pid, when): (u32, GivesUp)) {
    loop {
        tokio::time::sleep(limits::FUSE_SIGNALS).await;
        let status = match pid {
            0 => String::new(),
            pid => std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(),
        };
        if gives_up(&status, when) {
            return;
        }
    }
}

/// Whether the signals that wait for a thread (proc(5) `status`) make it give up. A signal to a process of several
/// threads may be taken by any of them.
fn gives_up(status: &str, when: GivesUp) -> bool {
    let own = field(status, "SigPnd:");
    let shared = if field(status, "Threads:") == 1 { field(status, "ShdPnd:") } else { 0 };
    let wakes = (own | shared) & !field(status, "SigBlk:");
    own & KILLED != 0 || when == GivesUp::AtSignal && wakes != 0
}

fn field(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|l| l.strip_prefix(name));
    value.and_then(|v| u64::from_str_radix(v.trim(), 16).ok()).unwrap_or(0)
}

/// Calls the engine, again and again while it is not ready.
pub async fn patient<T, F>(mut call: impl FnMut() -> F) -> Answer<T>
where
    F: Future<Output = vfs::Result<T>>,
{
    let mut until = None;
    loop {
        match call().await {
            Err(e) if e.kind.may_pass() => {
                let until = *until.get_or_insert_with(|| Instant::now() + limits::FUSE_PATIENCE);
                if Instant::now() > until {
                    return Err(failed(&e));
                }
                tokio::time::sleep(limits::FUSE_PAUSE).await;
            }
            done => return done.map_err(|e| failed(&e)),
        }
    }
}

/// The number for an error. Its sentence reaches nobody through the kernel, so that it goes to the log.
fn failed(e: &vfs::Error) -> Errno {
    tracing::debug!("{e}");
    convert::errno(e.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::ErrorKind;

    #[test]
    fn a_signal_ends_a_wait_for_a_lock_and_a_fatal_one_every_wait() {
        let status = |threads, own: u64, shared: u64, blocked: u64| {
            format!(
                "Name:\tcat\nThreads:\t{threads}\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
            )
        };
        let alarm = 1 << 13;
        let both = |status: &str| [GivesUp::WhenKilled, GivesUp::AtSignal].map(|when| gives_up(status, when));
        assert_eq!(both(&status(1, 0, 0, 0)), [false, false]);
        assert_eq!(both(&status(1, 0, alarm, 0)), [false, true]);
        assert_eq!(both(&status(1, 0, alarm, alarm)), [false, false], "blocked");
        assert_eq!(both(&status(2, 0, alarm, 0)), [false, false], "another thread may take it");
        assert_eq!(both(&status(2, KILLED, 0, 0)), [true, true]);
        assert_eq!(both(""), [false, false], "no such process");
    }

    #[tokio::test]
    async fn what_is_ready_is_answered_in_place() {
        let (send, receive) = std::sync::mpsc::channel();
        answer(&Handle::current(), (0, GivesUp::WhenKilled), async { Ok(7) }, move |done| {
            send.send(done).unwrap()
        });
        assert_eq!(receive.try_recv().unwrap(), Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_waits_for_it_and_hears_of_it() {
        for (kind, told) in [(ErrorKind::Full, Errno::ENOSPC), (ErrorKind::Busy, Errno::ETIMEDOUT)] {
            let begun = Instant::now();
            assert_eq!(patient(|| async move { Err::<(), _>(kind.into()) }).await, Err(told));
            assert!(begun.elapsed() >= limits::FUSE_PATIENCE);
        }
    }

    #[tokio::test]
    async fn what_is_not_ready_is_asked_again_and_then_fails() {
        let mut calls = 0;
        let busy = || {
            calls += 1;
            let ready = calls == 3;
            async move { if ready { Ok(calls) } else { Err(ErrorKind::Busy.into()) } }
        };
        assert_eq!(patient(busy).await, Ok(3));
        let never = patient(|| async { Err::<(), _>(ErrorKind::NotFound.into()) });
        assert_eq!(never.await, Err(Errno::ENOENT));
    }
}
