//! A value whose readers hear of its changes, in the order in which they began to wait.
//!
//! tokio's `watch` wakes its readers in a random order, but what the engine does has to follow from what happens to it.

use parking_lot::{Mutex, MutexGuard};
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::Notify;

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

/// What is locked.
pub struct State<T> {
    value: T,
    version: u64,
    closed: bool,
}

/// Changes the value.
pub struct Sender<T>(Arc<Shared<T>>);

/// Hears of changes since it last looked, or since it was made.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The value, locked.
pub struct Look<'a, T>(MutexGuard<'a, State<T>>);

impl<T> Deref for Look<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.value
    }
}

/// Nobody can change the value any more.
#[derive(Debug)]
pub struct Closed;

impl<T> Sender<T> {
    /// With a first value.
    pub fn new(value: T) -> Sender<T> {
        let state = Mutex::new(State { value, version: 0, closed: false });
        Sender(Arc::new(Shared { state, changed: Notify::new() }))
    }

    /// Changes the value and tells everybody who waits.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        {
            let mut state = self.0.state.lock();
            change(&mut state.value);
            state.version += 1;
        }
        self.0.changed.notify_waiters();
    }

    /// The value, which stays locked meanwhile.
    pub fn borrow(&self) -> Look<'_, T> {
        Look(self.0.state.lock())
    }

    /// A reader, who hears of what comes after this.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.state.lock().version;
        Receiver { shared: self.0.clone(), seen }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_waiters();
    }
}

impl<T> Receiver<T> {
    /// The value, which stays locked meanwhile.
    pub fn borrow(&self) -> Look<'_, T> {
        Look(self.shared.state.lock())
    }

    /// The value, as one that was seen; it stays locked meanwhile.
    pub fn borrow_and_update(&mut self) -> Look<'_, T> {
        let state = self.shared.state.lock();
        self.seen = state.version;
        Look(state)
    }

    /// Waits for a change that was not seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            let mut notified = std::pin::pin!(self.shared.changed.notified());
            // From here on no change is missed.
            notified.as_mut().enable();
            {
                let state = self.shared.state.lock();
                if state.version != self.seen {
                    self.seen = state.version;
                    return Ok(());
                }
                if state.closed {
                    return Err(Closed);
                }
            }
            notified.await;
        }
    }
}
