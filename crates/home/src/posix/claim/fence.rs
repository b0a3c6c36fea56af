//! The file `fence` of a volume: whose word it has, and behind that whether anything was begun since. The third word is that of the
//! gateway's [term](super::term).
//!
//! The same word again behind the first one tells after a power cut that nothing was begun since the claim of that word, and
//! that all before it was durable and known. It is put there when a claim ends like that, and goes, durably, before the
//! first batch. An agent that knows nothing of it changes the first word alone, which ends it, too.

use super::super::Posix;
use super::super::step::Step;
use super::super::sys::{Sys, Sysult};
use super::file;
use crate::error::{Error, ErrorKind, Result};
use crate::limits;
use rustix::io::Errno;

/// Bytes that tell one agent, or one claim, from all others.
const WORD: usize = 16;
type Word = [u8; WORD];
/// The length of a fence in which a claim finds room.
const ROOM: u64 = 2 * WORD as u64;
/// The length of one that has room for all words. Earlier ones have none for the last.
const WHOLE: u64 = 3 * WORD as u64;

/// An open fence with the word of this process.
pub(super) struct Fence<S: Sys> {
    fd: S::Fd,
    word: Word,
    /// Whether it could be synced since its word is there.
    is_synced: bool,
    /// Whether there may be two words after a power cut that tell of rest.
    rests: bool,
}

impl<S: Sys> Fence<S> {
    /// Puts a word of its own there, waits until no agent is at work, and locks it. Answers, too, whether nothing was begun since
    /// the claim before.
    pub fn take(home: &Posix<S>, dir: &S::Fd) -> Sysult<(Fence<S>, bool)> {
        let sys = &home.sys;
        let (fd, size) = file(home, dir, b"fence")?;
        let [first, second] = words(sys, &fd);
        let mut word = [0; WORD];
        sys.random(&mut word)?;
        // On a disk that is full later it has room for all.
        make_room(sys, &fd, size).ok();
        if sys.write(&fd, 0, &word)? != WORD {
            return Err(Errno::NOSPC);
        }
        // Else it may be empty after a power cut, and a full disk would have no room for the next word.
        let is_synced = sys.sync(&fd).is_ok();
        acquire(home, &fd, |attempt| match attempt {
            limits::FENCE_PATIENCE => sys.end_holders(&fd),
            _ => Ok(()),
        })?;
        // Who was at work until now has taken the second one away.
        let rested = first == second && first != [0; WORD] && words(sys, &fd)[1] == first;
        let fence = Fence { fd, word, is_synced, rests: rested && !is_synced };
        // Nobody who has read the words of before finds the second one there later. What may be there after a power cut is there
        // for the next agent, too.
        fence.put(sys, if fence.rests { word } else { [0; WORD] })?;
        Ok((fence, rested))
    }

    /// Whether one is there in which a claim finds room.
    pub fn has_room(home: &Posix<S>, dir: &S::Fd) -> bool {
        let fence = home.sys.open_name(dir, b"fence").and_then(|fd| home.sys.stat(&fd));
        fence.is_ok_and(|stat| stat.size >= ROOM)
    }

    /// Makes one in which a claim finds room, without a word of ours.
    pub fn make(home: &Posix<S>, dir: &S::Fd) -> Sysult<()> {
        let (fd, size) = file(home, dir, b"fence")?;
        make_room(&home.sys, &fd, size)
    }

    /// Whether nobody has taken over, as far as can be seen. Certain while it is locked.
    pub fn holds(&self, home: &Posix<S>) -> bool {
        let linked = home.sys.stat(&self.fd).is_ok_and(|stat| stat.nlink > 0);
        linked && words(&home.sys, &self.fd)[0] == self.word || !home.takes(Step::Fence)
    }

    /// Locks it for a batch.
    pub fn enter(&mut self, home: &Posix<S>) -> Result<()> {
        let lost = || Error::new(ErrorKind::NotClaimed, "another agent has taken over");
        if !self.holds(home) {
            return Err(lost());
        }
        let still_ours = |_| if self.holds(home) { Ok(()) } else { Err(Errno::AGAIN) };
        acquire(home, &self.fd, still_ours).map_err(|_| lost())?;
        let entered = if self.holds(home) { self.wake(&home.sys) } else { Err(lost()) };
        entered.inspect_err(|_| self.leave(&home.sys))
    }

    /// Unlocks it.
    pub fn leave(&self, sys: &S) {
        sys.unlock(&self.fd).ok();
    }

    /// While it is locked: all that was begun is durable and known.
    pub fn rest(&mut self, sys: &S) {
        if self.is_synced && self.put(sys, self.word).is_ok() {
            self.rests = true;
            sys.sync(&self.fd).ok();
        }
    }

    /// From here on something may be begun.
    fn wake(&mut self, sys: &S) -> Result<()> {
        if self.rests {
            let woken = self.put(sys, [0; WORD]).and_then(|()| sys.sync(&self.fd));
            if woken.is_err() {
                self.put(sys, self.word).ok();
                return Err(Error::new(ErrorKind::NotClaimed, "its fence cannot be made durable"));
            }
            self.rests = false;
        }
        Ok(())
    }

    /// The word of the last term, where one is known.
    pub fn term(&self, sys: &S) -> Option<Word> {
        Some(word_at(sys, &self.fd, ROOM)).filter(|word| *word != [0; WORD])
    }

    /// Another term begins.
    pub fn set_term(&self, sys: &S, word: Word) -> Sysult<()> {
        match sys.write(&self.fd, ROOM, &word)? {
            WORD => sys.sync(&self.fd),
            _ => Err(Errno::NOSPC),
        }
    }

    fn put(&self, sys: &S, second: Word) -> Sysult<()> {
        match sys.write(&self.fd, WORD as u64, &second)? {
            WORD => Ok(()),
            _ => Err(Errno::NOSPC),
        }
    }
}

/// Puts zeros where a fence of this size has no room for words yet.
fn make_room<S: Sys>(sys: &S, fd: &S::Fd, size: u64) -> Sysult<()> {
    let from = match size {
        WHOLE.. => return Ok(()),
        ROOM.. => ROOM,
        _ => WORD as u64,
    };
    let zeros = [0; 2 * WORD];
    let zeros = &zeros[..(WHOLE - from) as usize];
    if sys.write(fd, from, zeros)? == zeros.len() { Ok(()) } else { Err(Errno::NOSPC) }
}

/// The first two words; zeros where there is none.
fn words<S: Sys>(sys: &S, fd: &S::Fd) -> [Word; 2] {
    [0, WORD as u64].map(|at| word_at(sys, fd, at))
}

fn word_at<S: Sys>(sys: &S, fd: &S::Fd, at: u64) -> Word {
    let mut word = [0; WORD];
    if sys.read(fd, at, &mut word) == Ok(WORD) { word } else { [0; WORD] }
}

/// Locks a fence. While somebody else holds it, who is asked to leave by the word in it, `meanwhile` gets the number of
/// each attempt, and ends them by its error.
fn acquire<S: Sys>(home: &Posix<S>, fence: &S::Fd, meanwhile: impl Fn(u32) -> Sysult<()>) -> Sysult<()> {
    let sys = &home.sys;
    if !home.takes(Step::Fence) {
        return Ok(());
    }
    for attempt in 0..limits::FENCE_ATTEMPTS {
        match sys.try_lock(fence) {
            Err(Errno::AGAIN) => {}
            done => return done,
        }
        meanwhile(attempt)?;
        sys.pause();
    }
    Err(Errno::AGAIN)
}
