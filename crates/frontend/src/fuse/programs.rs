//! Which requests are one call of a program?
//!
//! For unlink(2) the kernel sends FUSE_LOOKUP and then FUSE_UNLINK, for lstat(2) FUSE_LOOKUP and FUSE_GETATTR, for
//! rename(2) two look-ups and FUSE_RENAME; before them, one for each directory of the path. Where each call asks the home,
//! what the look-ups have asked for a moment ago answers the whole call. No request says which call it belongs to; but the
//! thread that asks waits in the kernel for each answer, and goes on at once ([`limits::FUSE_SAME_CALL`]). A look-up in what
//! its last one found goes on with that one's path: a call that has found its object ends with another kind of request,
//! but for open(2) with O_PATH.

use crate::limits;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// The last look-ups of threads, by thread id; times by the engine's clock.
#[derive(Default)]
pub struct Programs(Mutex<HashMap<u32, Looked>>);

#[derive(Clone, Copy)]
struct Looked {
    /// When the paths began that the last two in a row belong to, of the older one first.
    began: [Duration; 2],
    /// When the last one was answered.
    answered: Option<Duration>,
    /// The node that it found.
    found: Option<u64>,
}

impl Looked {
    fn goes_on_at(&self, now: Duration) -> bool {
        self.answered.is_some_and(|at| at + limits::FUSE_SAME_CALL > now)
    }
}

impl Programs {
    /// A thread looks a name up in a node: answers since when what the home was asked for is an answer to that, which is
    /// when its path began.
    pub fn looks(&self, thread: u32, parent: u64, now: Duration) -> Duration {
        if thread == 0 {
            // Somebody whose number is not known here, and another one each time.
            return now;
        }
        let mut threads = self.0.lock();
        if threads.len() >= limits::FUSE_CALLERS {
            threads.retain(|_, looked| looked.goes_on_at(now));
        }
        let last = threads.get(&thread).copied().filter(|looked| looked.goes_on_at(now));
        let path = last.filter(|looked| looked.found == Some(parent)).map_or(now, |looked| looked.began[1]);
        if last.is_some() || threads.len() < limits::FUSE_CALLERS {
            let before = last.map_or(path, |looked| looked.began[1]);
            threads.insert(thread, Looked { began: [before, path], answered: None, found: None });
        }
        path
    }

    /// It is about to have its answer: this node, if there is one.
    pub fn found(&self, thread: u32, node: Option<u64>, now: Duration) {
        if let Some(looked) = self.0.lock().get_mut(&thread) {
            (looked.answered, looked.found) = (Some(now), node);
        }
    }

    /// A thread asks for something else, about `names` names, one or two: answers since when what the home was asked
    /// for is an answer to that.
    pub fn goes_on(&self, thread: u32, names: usize, now: Duration) -> Duration {
        let looked = self.0.lock().remove(&thread).filter(|looked| looked.goes_on_at(now));
        looked.map_or(now, |looked| looked.began[2 - names])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// Where a path begins, and what it leads to.
    const CWD: u64 = 1;

    /// A thread looks a name up in `parent` at a time, finds `node` 60 ms later, and hears since when an answer counts.
    fn look(programs: &Programs, thread: u32, (parent, node): (u64, Option<u64>), at: u32) -> Duration {
        let since = programs.looks(thread, parent, at * MS);
        programs.found(thread, node, (at + 60) * MS);
        since
    }

    #[test]
    fn a_call_begins_with_its_look_ups_and_ends_with_its_change() {
        let programs = Programs::default();
        look(&programs, 7, (CWD, Some(20)), 100);
        assert_eq!(programs.goes_on(8, 1, 160 * MS), 160 * MS, "another thread");
        assert_eq!(programs.goes_on(7, 1, 161 * MS), 100 * MS);
        assert_eq!(programs.goes_on(7, 1, 161 * MS), 161 * MS, "the next call");
        for (node, at) in [(20, 200), (21, 260), (22, 320)] {
            assert_eq!(look(&programs, 7, (CWD, Some(node)), at), at * MS, "another path");
        }
        assert_eq!(programs.goes_on(7, 2, 380 * MS), 260 * MS);
        look(&programs, 7, (CWD, Some(20)), 400);
        look(&programs, 7, (CWD, Some(21)), 460);
        assert_eq!(programs.goes_on(7, 1, 520 * MS), 460 * MS, "the second path of a call about one name");
    }

    #[test]
    fn a_path_goes_on_in_what_its_last_name_led_to() {
        let programs = Programs::default();
        look(&programs, 7, (CWD, Some(20)), 100);
        assert_eq!(look(&programs, 7, (20, Some(30)), 160), 100 * MS);
        assert_eq!(look(&programs, 7, (30, None), 220), 100 * MS);
        assert_eq!(programs.goes_on(7, 1, 280 * MS), 100 * MS);
        assert_eq!(look(&programs, 7, (30, Some(40)), 281), 281 * MS, "the call has ended");
        assert_eq!(look(&programs, 7, (CWD, Some(20)), 341), 341 * MS, "another path");
        assert_eq!(look(&programs, 8, (20, Some(30)), 402), 402 * MS, "another thread");
        let late = 401 + limits::FUSE_SAME_CALL.as_millis() as u32;
        assert_eq!(look(&programs, 7, (20, Some(30)), late), late * MS, "it did something else meanwhile");
        look(&programs, 9, (CWD, None), 600);
        assert_eq!(look(&programs, 9, (20, Some(30)), 660), 660 * MS, "nothing was found");
    }

    #[test]
    fn the_two_paths_of_a_rename_begin_apart() {
        let programs = Programs::default();
        look(&programs, 7, (CWD, Some(20)), 100);
        look(&programs, 7, (20, Some(30)), 160);
        look(&programs, 7, (CWD, Some(21)), 220);
        look(&programs, 7, (21, Some(31)), 280);
        // The kernel walks to both directories first.
        look(&programs, 7, (30, Some(40)), 340);
        look(&programs, 7, (31, None), 400);
        assert_eq!(programs.goes_on(7, 2, 460 * MS), 340 * MS);
    }

    #[test]
    fn who_does_something_else_meanwhile_makes_another_call() {
        let programs = Programs::default();
        programs.looks(7, CWD, 100 * MS);
        assert_eq!(programs.goes_on(7, 1, 101 * MS), 101 * MS, "it had no answer");
        programs.looks(7, CWD, 200 * MS);
        programs.found(7, Some(20), 260 * MS);
        let late = 260 * MS + limits::FUSE_SAME_CALL;
        assert_eq!(programs.goes_on(7, 1, late), late);
        programs.looks(0, CWD, 300 * MS);
        programs.found(0, Some(20), 300 * MS);
        assert_eq!(programs.goes_on(0, 1, 301 * MS), 301 * MS, "anybody");
    }

    #[test]
    fn threads_that_are_gone_are_forgotten() {
        let programs = Programs::default();
        for thread in 1..=2 * limits::FUSE_CALLERS as u32 {
            programs.looks(thread, CWD, thread * MS);
            programs.found(thread, Some(20), thread * MS);
        }
        assert!(programs.0.lock().len() <= limits::FUSE_CALLERS);
        let last = 2 * limits::FUSE_CALLERS as u32;
        assert_eq!(programs.goes_on(last, 1, last * MS), last * MS);
    }
}
