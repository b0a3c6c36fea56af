//! The lock of a tree. Whoever releases it hands over the changes that were noted under it.

use super::Tree;
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};

/// A tree and its lock.
pub struct TreeLock(Mutex<Tree>);

impl TreeLock {
    /// Around a tree.
    pub fn new(tree: Tree) -> TreeLock {
        TreeLock(Mutex::new(tree))
    }

    /// Takes the lock. Held for microseconds, never across a wait.
    pub fn lock(&self) -> TreeGuard<'_> {
        TreeGuard(self.0.lock())
    }
}

/// The tree, as long as the lock is held.
pub struct TreeGuard<'a>(MutexGuard<'a, Tree>);

impl Deref for TreeGuard<'_> {
    type Target = Tree;
    fn deref(&self) -> &Tree {
        &self.0
    }
}

impl DerefMut for TreeGuard<'_> {
    fn deref_mut(&mut self) -> &mut Tree {
        &mut self.0
    }
}

impl Drop for TreeGuard<'_> {
    fn drop(&mut self) {
        self.0.unsent = None;
        self.0.notes.hand_over();
    }
}
