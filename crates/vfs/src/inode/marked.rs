//! What the store says of objects by a key for each.

use std::collections::HashSet;

/// The objects that the store has a key for.
#[derive(Debug, Default)]
pub struct Marked(HashSet<u64>);

impl Marked {
    /// The store has one, as an earlier process left it.
    pub fn restore(&mut self, id: u64) {
        self.0.insert(id);
    }

    /// Whether the store must have a key for an object from now on; `None` where nothing has to be said. That it must is said
    /// each time, because what was said before may not have reached the store. Where it need not any more and that does not
    /// arrive, the next process finds an object that has another name.
    pub fn news(&mut self, id: u64, is_one: bool) -> Option<bool> {
        match is_one {
            true => {
                self.0.insert(id);
                Some(true)
            }
            false => self.0.remove(&id).then_some(false),
        }
    }
}
