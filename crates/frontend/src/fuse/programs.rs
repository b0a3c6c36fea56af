//! Which requests are one call of a program?
//!
//! For unlink(2) the kernel sends FUSE_LOOKUP and then FUSE_UNLINK, for lstat(2) FUSE_LOOKUP and FUSE_GETATTR, for
//! rename(2) two look-ups and FUSE_RENAME. Where each call asks the home, what the look-ups have asked for a moment ago
//! answers the whole call. No request says which call it belongs to; but the thread that asks waits in the kernel for
//! each answer, and goes on at once ([`limits::FUSE_SAME_CALL`]).

use crate::limits;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// The last look-ups of threads, by thread id; times by the engine's clock.
#[derive(Default)]
pub struct Programs(Mutex<HashMap<u32, Looked>>);

#[derive(Clone, Copy)]
struct Looked {
    /// When the last two in a row came, the older one first.
    came: [Duration; 2],
    /// When the last one was answered.
    answered: Option<Duration>,
}

impl Looked {
    fn goes_on_at(&self, now: Duration) -> bool {
        self.answered.is_some_and(|at| at + limits::FUSE_SAME_CALL > now)
    }
}

impl Programs {
    /// A thread looks a name up. Nothing that was asked for before answers that.
    pub fn looks(&self, thread: u32, now: Duration) {
        if thread == 0 {
            // Somebody whose number is not known here, and another one each time.
            return;
        }
        let mut threads = self.0.lock();
        if threads.len() >= limits::FUSE_CALLERS {
            threads.retain(|_, looked| looked.goes_on_at(now));
        }
        let last = threads.get(&thread).filter(|looked| looked.goes_on_at(now)).map(|looked| looked.came[1]);
        if last.is_some() || threads.len() < limits::FUSE_CALLERS {
            threads.insert(thread, Looked { came: [last.unwrap_or(now), now], answered: None });
        }
    }

    /// It is about to have its answer.
    pub fn found(&self, thread: u32, now: Duration) {
        if let Some(looked) = self.0.lock().get_mut(&thread) {
            looked.answered = Some(now);
        }
    }

    /// A thread asks for something else, about `names` names, one or two: answers since when what the home was asked
    /// for is an answer to that.
    pub fn goes_on(&self, thread: u32, names: usize, now: Duration) -> Duration {
        let looked = self.0.lock().remove(&thread).filter(|looked| looked.goes_on_at(now));
        looked.map_or(now, |looked| looked.came[2 - names])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_call_begins_with_its_look_ups_and_ends_with_its_change() {
        let programs = Programs::default();
        let look = |thread, at| {
            programs.looks(thread, at * MS);
            programs.found(thread, (at + 60) * MS);
        };
        look(7, 100);
        assert_eq!(programs.goes_on(8, 1, 160 * MS), 160 * MS, "another thread");
        assert_eq!(programs.goes_on(7, 1, 161 * MS), 100 * MS);
        assert_eq!(programs.goes_on(7, 1, 161 * MS), 161 * MS, "the next call");
        look(7, 200);
        look(7, 260);
        look(7, 320);
        assert_eq!(programs.goes_on(7, 2, 380 * MS), 260 * MS);
        look(7, 400);
        look(7, 460);
        assert_eq!(programs.goes_on(7, 1, 520 * MS), 460 * MS, "a path of two names");
    }

    #[test]
    fn who_does_something_else_meanwhile_makes_another_call() {
        let programs = Programs::default();
        programs.looks(7, 100 * MS);
        assert_eq!(programs.goes_on(7, 1, 101 * MS), 101 * MS, "it had no answer");
        programs.looks(7, 200 * MS);
        programs.found(7, 260 * MS);
        let late = 260 * MS + limits::FUSE_SAME_CALL;
        assert_eq!(programs.goes_on(7, 1, late), late);
        programs.looks(0, 300 * MS);
        programs.found(0, 300 * MS);
        assert_eq!(programs.goes_on(0, 1, 301 * MS), 301 * MS, "anybody");
    }

    #[test]
    fn threads_that_are_gone_are_forgotten() {
        let programs = Programs::default();
        for thread in 1..=2 * limits::FUSE_CALLERS as u32 {
            programs.looks(thread, thread * MS);
            programs.found(thread, thread * MS);
        }
        assert!(programs.0.lock().len() <= limits::FUSE_CALLERS);
        let last = 2 * limits::FUSE_CALLERS as u32;
        assert_eq!(programs.goes_on(last, 1, last * MS), last * MS);
    }
}
