//! Which objects of a volume somebody has open.

use hashbrown::HashMap;

/// Open objects.
#[derive(Debug, Default)]
pub struct Nameless {
    opens: HashMap<u64, u32>,
}

impl Nameless {
    /// One more has an object open.
    pub fn open(&mut self, id: u64) {
        *self.opens.entry(id).or_default() += 1;
    }

    /// One less.
    pub fn close(&mut self, id: u64) {
        if let Some(count) = self.opens.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.opens.remove(&id);
            }
        }
    }
}
