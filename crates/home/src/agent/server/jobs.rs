//! Requests that wait for a thread: a line for reads by urgency, and in their order one for what is staged and one for
//! changes.
//!
//! Of the [`WORKERS`] threads for reads, [`WORKERS_SPARED`] are left to control and metadata: a question that is answered in a
//! moment shall not wait until one of those that take long has an end.

use super::super::frame::{CLASSES, Class};
use super::super::verbs::Request;
use crate::limits::agent::{IN_FLIGHT_MAX, REQUESTS_MAX, WORKERS, WORKERS_SPARED};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A decoded request.
#[derive(Debug)]
pub(super) struct Job {
    pub id: u64,
    pub class: Class,
    /// Its answer may be packed.
    pub pack: bool,
    pub request: Request,
    /// Bytes of its body, which count against the bound until it is executed.
    pub size: usize,
}

/// A change, and how many requests of the line of what is staged came before it.
struct Change(Job, u64);

#[derive(Default)]
struct State {
    reads: [VecDeque<Job>; CLASSES],
    staged: VecDeque<Job>,
    changes: VecDeque<Change>,
    /// Requests to stage that came, and those that were executed.
    staged_in: u64,
    staged_out: u64,
    count: usize,
    bytes: usize,
    closed: bool,
    /// Threads that execute or answer reads of the less urgent classes.
    long: usize,
    /// Reads that threads execute and somebody waits for.
    wanted: Vec<u64>,
    /// Threads that wait, by [`For`]. Each is woken only for what it can use, because to wake
    /// all of them for each job would cost more than a short job takes.
    waiting: [usize; 4],
}

/// Whether a read of this class may keep its thread for long.
fn is_long(class: Class) -> bool {
    class >= Class::Data
}

impl State {
    /// Whether a thread that comes for a read may take one of this class.
    fn is_free_for(&self, class: usize) -> bool {
        class < Class::Data as usize || self.long < WORKERS - WORKERS_SPARED
    }

    /// The most urgent read that a thread may take.
    fn take_read(&mut self) -> Option<Job> {
        let class = (0..CLASSES).find(|class| !self.reads[*class].is_empty() && self.is_free_for(*class))?;
        let job = self.reads[class].pop_front()?;
        self.long += usize::from(is_long(job.class));
        self.wanted.push(job.id);
        Some(job)
    }
}

/// What a thread waits for: a job of one line, or room for a job.
#[derive(Clone, Copy)]
pub(super) enum For {
    Read,
    /// Not behind changes, which wait for disks.
    Staged,
    Change,
    Room,
}

/// All lines.
pub(super) struct Jobs {
    state: Mutex<State>,
    news: [Condvar; 4],
}

impl Jobs {
    pub fn new() -> Jobs {
        Jobs { state: Mutex::default(), news: Default::default() }
    }

    /// Waits for room. Answers false once closed.
    pub fn push(&self, job: Job, line: For) -> bool {
        let mut state = self.lock();
        while !state.closed && (state.count >= IN_FLIGHT_MAX || state.bytes >= 2 * REQUESTS_MAX) {
            state = self.wait(state, For::Room);
        }
        if state.closed {
            return false;
        }
        state.count += 1;
        state.bytes += job.size;
        let usable = !matches!(line, For::Read) || state.is_free_for(job.class as usize);
        match line {
            For::Change => {
                let before = state.staged_in;
                state.changes.push_back(Change(job, before));
            }
            For::Staged => {
                state.staged_in += 1;
                state.staged.push_back(job);
            }
            For::Read | For::Room => state.reads[job.class as usize].push_back(job),
        }
        if usable {
            self.tell(&state, line);
        }
        true
    }

    /// Waits for a job of one line; `None` once closed. [`Jobs::done`] must follow. `had`: the class of the one before, whose
    /// answer has left the thread.
    pub fn next(&self, line: For, had: Option<Class>) -> Option<Job> {
        let mut state = self.lock();
        if matches!(line, For::Read) && had.is_some_and(is_long) {
            state.long -= 1;
        }
        loop {
            if state.closed {
                return None;
            }
            let job = match line {
                // Behind what was staged before it, which it may be about.
                For::Change => {
                    let out = state.staged_out;
                    state.changes.pop_front_if(|Change(_, before)| *before <= out).map(|Change(job, _)| job)
                }
                For::Staged => state.staged.pop_front(),
                For::Read | For::Room => state.take_read(),
            };
            if job.is_some() {
                return job;
            }
            state = self.wait(state, line);
        }
    }

    /// Whether somebody waits for a read that a thread executes.
    pub fn is_wanted(&self, id: u64) -> bool {
        let state = self.lock();
        !state.closed && state.wanted.contains(&id)
    }

    /// A job of this line, number and size was executed.
    pub fn done(&self, line: For, id: u64, size: usize) {
        let mut state = self.lock();
        state.count -= 1;
        state.bytes -= size;
        state.wanted.retain(|wanted| *wanted != id);
        if matches!(line, For::Staged) {
            state.staged_out += 1;
            self.tell(&state, For::Change);
        }
        self.tell(&state, For::Room);
    }

    /// Nobody waits for a read any more: one that no thread has taken is forgotten. Changes are not forgotten: later ones
    /// may build on them.
    pub fn cancel(&self, id: u64) {
        let mut state = self.lock();
        state.wanted.retain(|wanted| *wanted != id);
        let lines = state.reads.iter_mut();
        let found = lines.filter_map(|l| l.iter().position(|j| j.id == id).and_then(|i| l.remove(i))).next();
        drop(state);
        if let Some(job) = found {
            self.done(For::Read, id, job.size);
        }
    }

    /// Forgets everything; threads leave when they come for more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.news.iter().for_each(Condvar::notify_all);
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>, what: For) -> MutexGuard<'a, State> {
        state.waiting[what as usize] += 1;
        let mut state = self.news[what as usize].wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting[what as usize] -= 1;
        state
    }

    /// There is something for one thread. One that is awake already looks before it waits.
    fn tell(&self, state: &State, what: For) {
        if state.waiting[what as usize] > 0 {
            self.news[what as usize].notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    #[test]
    fn a_change_follows_what_was_staged_before_it() {
        let jobs = Arc::new(Jobs::new());
        let job = |id| Job { id, class: Class::Bulk, pack: false, request: Request::Apply(vec![]), size: 1 };
        let lines = [For::Staged, For::Change, For::Staged, For::Change];
        assert!((1..).zip(lines).all(|(id, line)| jobs.push(job(id), line)));
        let (taken, changes) = mpsc::channel();
        let line = jobs.clone();
        std::thread::spawn(move || {
            for _ in 0..2 {
                taken.send(line.next(For::Change, None).unwrap().id).unwrap();
            }
        });
        for [staged, change] in [[1, 2], [3, 4]] {
            assert_eq!(jobs.next(For::Staged, None).unwrap().id, staged);
            changes.recv_timeout(Duration::from_millis(100)).unwrap_err();
            jobs.done(For::Staged, staged, 1);
            assert_eq!(changes.recv_timeout(Duration::from_secs(20)), Ok(change));
        }
    }

    #[test]
    fn reads_that_can_wait_leave_threads_for_metadata() {
        let jobs = Arc::new(Jobs::new());
        let job = |id, class| Job { id, class, pack: false, request: Request::Apply(vec![]), size: 1 };
        for id in 1..=10 {
            assert!(jobs.push(job(id, if id < 6 { Class::Data } else { Class::Bulk }), For::Read));
        }
        let (taken, came) = mpsc::channel();
        for _ in 0..8 {
            let (jobs, taken) = (jobs.clone(), taken.clone());
            std::thread::spawn(move || taken.send(jobs.next(For::Read, None).unwrap().id).unwrap());
        }
        let come = || came.recv_timeout(Duration::from_secs(20)).unwrap();
        let mut first: Vec<u64> = (0..6).map(|_| come()).collect();
        first.sort_unstable();
        assert_eq!(first, [1, 2, 3, 4, 5, 6]);
        came.recv_timeout(Duration::from_millis(100)).unwrap_err();
        assert!(jobs.push(job(11, Class::Metadata), For::Read));
        assert_eq!(come(), 11);
        jobs.done(For::Read, 1, 1);
        came.recv_timeout(Duration::from_millis(100)).unwrap_err();
        let job = jobs.next(For::Read, Some(Class::Data));
        assert_eq!(job.map(|job| job.id), Some(7), "its answer has gone");
    }
}
