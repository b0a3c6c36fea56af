//! Requests that wait for a thread: a line for reads by urgency, and in their order one for what is staged and one for
//! changes.
//!
//! Of the [`WORKERS`] threads for reads, [`WORKERS_SPARED`] are left to control and metadata: a question that is answered in a
//! moment shall not wait until one of those that take long has an end. And a thread that is [`STUCK`], as at a dead mount, which
//! never answers, is replaced while something waits.

use super::super::frame::{CLASSES, Class};
use super::super::verbs::Request;
use crate::limits::agent::{IN_FLIGHT_MAX, REQUESTS_MAX, STUCK, WORKERS, WORKERS_MORE, WORKERS_SPARED};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

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

/// A read that a thread executes.
struct Taken {
    id: u64,
    class: Class,
    since: Instant,
    /// Somebody waits for it.
    wanted: bool,
    /// Another thread was started in place of its own.
    replaced: bool,
}

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
    /// Threads for reads.
    threads: usize,
    /// Those that execute or answer one of the less urgent classes and are not replaced.
    long: usize,
    taken: Vec<Taken>,
    /// Threads that wait, by [`For`]. Each is woken only for what it can use, because to wake
    /// all of them for each job would cost more than a short job takes.
    waiting: [usize; 5],
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
        let since = Instant::now();
        self.taken.push(Taken { id: job.id, class: job.class, since, wanted: true, replaced: false });
        Some(job)
    }

    /// Reads that no thread has taken.
    fn queued(&self) -> usize {
        self.reads.iter().map(VecDeque::len).sum()
    }

    /// A thread has executed a read.
    fn executed(&mut self, class: Class, id: u64) {
        let Some(at) = self.taken.iter().position(|taken| (taken.id, taken.class) == (id, class)) else {
            return;
        };
        if self.taken.swap_remove(at).replaced {
            self.long += usize::from(is_long(class));
        }
    }

    /// Whether a thread that finds nothing to do is one too many. One that comes back after it was replaced may answer
    /// what takes long, beside which as many are left to the other classes as always.
    fn is_surplus(&self) -> bool {
        let replaced = self.taken.iter().filter(|taken| taken.replaced).count();
        self.threads - replaced > WORKERS.max(self.long + WORKERS_SPARED)
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
    /// A read that no thread takes at once.
    Queue,
}

/// All lines.
pub(super) struct Jobs {
    state: Mutex<State>,
    news: [Condvar; 5],
    /// Threads of all that share it beyond [`WORKERS`] of each.
    more: &'static AtomicUsize,
}

impl Jobs {
    /// For [`WORKERS`] threads that come for reads.
    pub fn new(more: &'static AtomicUsize) -> Jobs {
        let state = State { threads: WORKERS, ..State::default() };
        Jobs { state: Mutex::new(state), news: Default::default(), more }
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
            For::Read | For::Room | For::Queue => state.reads[job.class as usize].push_back(job),
        }
        if usable {
            self.tell(&state, line);
        }
        if matches!(line, For::Read) && (!usable || state.waiting[line as usize] == 0) {
            self.tell(&state, For::Queue);
        }
        true
    }

    /// Waits for a job of one line, for which [`Jobs::done`] must follow; `None` if the thread shall leave. `had`: the class
    /// of the one before, whose answer has left the thread.
    pub fn next(&self, line: For, had: Option<Class>) -> Option<Job> {
        let mut state = self.lock();
        if matches!(line, For::Read) && had.is_some_and(is_long) {
            state.long -= 1;
        }
        loop {
            if state.closed {
                break;
            }
            let job = match line {
                // Behind what was staged before it, which it may be about.
                For::Change => {
                    let out = state.staged_out;
                    state.changes.pop_front_if(|Change(_, before)| *before <= out).map(|Change(job, _)| job)
                }
                For::Staged => state.staged.pop_front(),
                For::Read | For::Room | For::Queue => state.take_read(),
            };
            if job.is_some() {
                // A thread that was woken for one of these may have got this one instead.
                if matches!(line, For::Read) && state.queued() > 0 {
                    self.tell(&state, For::Queue);
                }
                return job;
            }
            if matches!(line, For::Read) && state.is_surplus() {
                break;
            }
            state = self.wait(state, line);
        }
        if matches!(line, For::Read) {
            state.threads -= 1;
            if state.threads >= WORKERS {
                self.more.fetch_sub(1, Ordering::Relaxed);
            }
        }
        None
    }

    /// Replaces threads that are stuck while reads wait, until closed. `start` starts one, and says whether it could.
    pub fn keep_going(&self, mut start: impl FnMut() -> bool) {
        let mut state = self.lock();
        while !state.closed {
            if state.queued() == 0 {
                state = self.wait(state, For::Queue);
                continue;
            }
            self.replace(&mut state, Instant::now(), &mut start);
            // Nobody ends this wait, so that a busy line does not cost a thread that is woken for each job.
            let news = &self.news[For::Queue as usize];
            (state, _) = news.wait_timeout(state, STUCK / 4).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// At most as many as there are reads that wait.
    fn replace(&self, state: &mut State, now: Instant, mut start: impl FnMut() -> bool) {
        let queued = state.queued();
        let State { threads, long, taken, .. } = state;
        let stuck =
            |taken: &&mut Taken| !taken.replaced && now.saturating_duration_since(taken.since) >= STUCK;
        for taken in taken.iter_mut().filter(stuck).take(queued) {
            let more = |n| (n < WORKERS_MORE).then_some(n + 1);
            if self.more.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
                return;
            }
            if !start() {
                self.more.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            *threads += 1;
            *long -= usize::from(is_long(taken.class));
            taken.replaced = true;
        }
    }

    /// Whether somebody waits for a read that a thread executes.
    pub fn is_wanted(&self, id: u64) -> bool {
        let state = self.lock();
        !state.closed && state.taken.iter().any(|taken| taken.id == id && taken.wanted)
    }

    /// A job of this line, class, number and size was executed.
    pub fn done(&self, line: For, class: Class, id: u64, size: usize) {
        let mut state = self.lock();
        match line {
            For::Read => state.executed(class, id),
            For::Staged => {
                state.staged_out += 1;
                self.tell(&state, For::Change);
            }
            For::Change | For::Room | For::Queue => {}
        }
        self.forget(&mut state, size);
    }

    /// There is room again for a job of this size.
    fn forget(&self, state: &mut State, size: usize) {
        state.count -= 1;
        state.bytes -= size;
        self.tell(state, For::Room);
    }

    /// Nobody waits for a read any more: one that no thread has taken is forgotten. Changes are not forgotten: later ones
    /// may build on them.
    pub fn cancel(&self, id: u64) {
        let mut state = self.lock();
        state.taken.iter_mut().filter(|taken| taken.id == id).for_each(|taken| taken.wanted = false);
        let lines = state.reads.iter_mut();
        let found = lines.filter_map(|l| l.iter().position(|j| j.id == id).and_then(|i| l.remove(i))).next();
        if let Some(job) = found {
            self.forget(&mut state, job.size);
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

    static MORE: AtomicUsize = AtomicUsize::new(0);

    fn read(id: u64, class: Class) -> Job {
        Job { id, class, pack: false, request: Request::Apply(vec![]), size: 1 }
    }

    #[test]
    fn a_change_follows_what_was_staged_before_it() {
        let jobs = Arc::new(Jobs::new(&MORE));
        let lines = [For::Staged, For::Change, For::Staged, For::Change];
        assert!((1..).zip(lines).all(|(id, line)| jobs.push(read(id, Class::Bulk), line)));
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
            jobs.done(For::Staged, Class::Bulk, staged, 1);
            assert_eq!(changes.recv_timeout(Duration::from_secs(20)), Ok(change));
        }
    }

    #[test]
    fn reads_that_can_wait_leave_threads_for_metadata() {
        let jobs = Arc::new(Jobs::new(&MORE));
        for id in 1..=10 {
            assert!(jobs.push(read(id, if id < 6 { Class::Data } else { Class::Bulk }), For::Read));
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
        assert!(jobs.push(read(11, Class::Metadata), For::Read));
        assert_eq!(come(), 11);
        jobs.done(For::Read, Class::Data, 1, 1);
        came.recv_timeout(Duration::from_millis(100)).unwrap_err();
        let job = jobs.next(For::Read, Some(Class::Data));
        assert_eq!(job.map(|job| job.id), Some(7), "its answer has gone");
    }

    /// Has so many jobs taken as there are threads, some of which take long, and others wait.
    fn all_busy(more: &'static AtomicUsize) -> Jobs {
        let jobs = Jobs::new(more);
        for id in 0..8 {
            assert!(jobs.push(read(id, if id < 6 { Class::Data } else { Class::Metadata }), For::Read));
        }
        let mut taken: Vec<u64> = (0..8).map(|_| jobs.next(For::Read, None).unwrap().id).collect();
        taken.sort_unstable();
        assert_eq!(taken, Vec::from_iter(0..8));
        assert!((8..11).all(|id| jobs.push(read(id, Class::Metadata), For::Read)));
        jobs
    }

    fn replaced(jobs: &Jobs, after: Duration) -> usize {
        let mut started = 0;
        jobs.replace(&mut jobs.lock(), Instant::now() + after, || {
            started += 1;
            true
        });
        started
    }

    #[test]
    fn a_thread_that_is_stuck_is_replaced_while_something_waits_and_leaves_when_it_comes_back() {
        static MORE: AtomicUsize = AtomicUsize::new(0);
        let jobs = all_busy(&MORE);
        let more = || MORE.load(Ordering::Relaxed);
        assert_eq!(replaced(&jobs, STUCK / 2), 0);
        assert_eq!((replaced(&jobs, STUCK), more()), (3, 3), "as many as wait");
        let next = |had| jobs.next(For::Read, had).map(|job| job.id);
        assert_eq!([next(None), next(None), next(None)], [Some(8), Some(9), Some(10)]);
        assert_eq!(replaced(&jobs, STUCK), 0, "nothing waits");

        // One that comes back takes what waits, and another one leaves.
        jobs.done(For::Read, Class::Metadata, 7, 1);
        jobs.done(For::Read, Class::Metadata, 8, 1);
        assert!(jobs.push(read(11, Class::Data), For::Read) && jobs.push(read(12, Class::Data), For::Read));
        assert_eq!(next(Some(Class::Metadata)), Some(11));
        assert_eq!((next(Some(Class::Metadata)), more()), (None, 2));

        // As long as it answers what is long, others are left to metadata.
        jobs.done(For::Read, Class::Data, 0, 1);
        assert!(!jobs.lock().is_surplus());
        assert_eq!((next(Some(Class::Data)), more()), (None, 1));
        jobs.done(For::Read, Class::Metadata, 6, 1);
        assert_eq!((next(Some(Class::Metadata)), more()), (None, 0));
        let state = jobs.lock();
        assert_eq!((state.threads, state.long), (WORKERS, WORKERS - WORKERS_SPARED));
    }

    #[test]
    fn more_threads_have_their_bound_and_are_counted_until_they_end() {
        static MORE: AtomicUsize = AtomicUsize::new(WORKERS_MORE - 2);
        let jobs = all_busy(&MORE);
        jobs.replace(&mut jobs.lock(), Instant::now() + STUCK, || false);
        assert_eq!(MORE.load(Ordering::Relaxed), WORKERS_MORE - 2, "none could be started");
        assert_eq!(replaced(&jobs, STUCK), 2);
        assert_eq!(replaced(&jobs, STUCK), 0);
        jobs.close();
        for (left, more) in [(9, 1), (8, 0), (7, 0)] {
            assert!(jobs.next(For::Read, None).is_none());
            assert_eq!(jobs.lock().threads, left);
            assert_eq!(MORE.load(Ordering::Relaxed), WORKERS_MORE - 2 + more);
        }
    }
}
