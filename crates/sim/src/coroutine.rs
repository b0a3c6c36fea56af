//! Code that blocks, run until it pauses and resumed later, so that two processes of a machine can be in the middle of
//! an operation at the same time. Each has a thread, but only one thread of the world runs at any moment.

use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::sync::Arc;
use std::thread::JoinHandle;

#[derive(PartialEq)]
enum Turn {
    Inside,
    Outside,
    Over,
}

struct Baton {
    turn: Mutex<Turn>,
    passed: Condvar,
}

impl Baton {
    /// Gives the turn away and waits until it is no longer `theirs`.
    fn pass(&self, theirs: Turn, ours: Turn) {
        let mut turn = self.turn.lock();
        *turn = theirs;
        self.passed.notify_all();
        while *turn != ours && *turn != Turn::Over {
            self.passed.wait(&mut turn);
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Baton>>> = const { RefCell::new(None) };
}

/// Lets the world go on without the coroutine that calls this; returns when it is resumed. Does nothing outside one.
pub fn pause() {
    let baton = CURRENT.with(|c| c.borrow().clone());
    if let Some(baton) = baton {
        baton.pass(Turn::Outside, Turn::Inside);
    }
}

/// Whether the caller is in a coroutine.
pub fn inside() -> bool {
    CURRENT.with(|c| c.borrow().is_some())
}

/// A piece of blocking work.
pub struct Coroutine<T> {
    baton: Arc<Baton>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Coroutine<T> {
    /// Work that begins when it is first resumed.
    pub fn new(work: impl FnOnce() -> T + Send + 'static) -> Coroutine<T> {
        let baton = Arc::new(Baton { turn: Mutex::new(Turn::Outside), passed: Condvar::new() });
        let inside = baton.clone();
        let thread = std::thread::spawn(move || {
            {
                let mut turn = inside.turn.lock();
                while *turn != Turn::Inside {
                    inside.passed.wait(&mut turn);
                }
            }
            CURRENT.with(|c| *c.borrow_mut() = Some(inside.clone()));
            // Whoever waits for the turn has it back even if the work panics.
            let _over = Over(inside);
            work()
        });
        Coroutine { baton, thread: Some(thread) }
    }

    /// Runs it until it pauses or ends; its result if it has ended.
    ///
    /// # Panics
    /// If the work did.
    pub fn resume(&mut self) -> Option<T> {
        self.baton.pass(Turn::Inside, Turn::Outside);
        if *self.baton.turn.lock() != Turn::Over {
            return None;
        }
        match self.thread.take()?.join() {
            Ok(result) => Some(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

struct Over(Arc<Baton>);

impl Drop for Over {
    fn drop(&mut self) {
        *self.0.turn.lock() = Turn::Over;
        self.0.passed.notify_all();
    }
}

impl<T> Drop for Coroutine<T> {
    /// Runs it to its end; whoever made it has seen to it that it ends.
    fn drop(&mut self) {
        while let Some(thread) = self.thread.take() {
            self.baton.pass(Turn::Inside, Turn::Outside);
            if *self.baton.turn.lock() == Turn::Over {
                let _ = thread.join();
            } else {
                self.thread = Some(thread);
            }
        }
    }
}
