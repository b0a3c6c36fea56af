//! Objects of ours that lost their name to another program's in a conflict, and have the name of a copy now
//! ([`crate::conflict::copy_name`]). The name says everything, so that nothing has to be recorded: this is an index of
//! who bears one, so that nobody has to walk through a home for it. An object leaves it by another name, or by its
//! removal.

use super::marked::Marked;
use crate::conflict::copy_of;
use home::Name;
use std::collections::BTreeSet;

/// The objects of a volume that may bear the name of a copy.
#[derive(Debug, Default)]
pub struct Copies {
    known: BTreeSet<u64>,
    /// Those of which the store says so.
    saved: Marked,
}

/// Whether a name is one that this gateway gave to a copy.
pub fn is_copy(gateway: u64, name: &Name) -> bool {
    copy_of(name).is_some_and(|copy| copy.gateway == gateway as u32)
}

impl Copies {
    /// Takes notice of a name that an object has got.
    pub fn note(&mut self, gateway: u64, id: u64, name: &Name) {
        if is_copy(gateway, name) {
            self.known.insert(id);
        }
    }

    /// The object is one, as an earlier process left it.
    pub fn restore(&mut self, id: u64) {
        self.known.insert(id);
        self.saved.restore(id);
    }

    /// Whether the store must say from now on that an object of these names is one; `None` where it says the right thing
    /// already ([`Marked::news`]).
    pub fn news_of<'a>(
        &mut self,
        gateway: u64,
        id: u64,
        names: impl IntoIterator<Item = &'a Name>,
    ) -> Option<bool> {
        self.saved.news(id, names.into_iter().any(|name| is_copy(gateway, name)))
    }

    /// All of them, in the order in which they came to be.
    pub fn ids(&self) -> Vec<u64> {
        self.known.iter().copied().collect()
    }

    /// The object is none any more.
    pub fn forget(&mut self, id: u64) {
        self.known.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conflict::copy_name;

    #[test]
    fn the_store_is_told_who_is_one_and_who_is_none_any_more() {
        let name = |s: &[u8]| Name::new(s).unwrap();
        let ours = copy_name(&name(b"f"), 7, home::Time { sec: 5, nsec: 0 }, 9);
        let theirs = copy_name(&name(b"f"), 8, home::Time { sec: 5, nsec: 0 }, 9);
        let mut copies = Copies::default();
        for (id, n) in [(1, &ours), (2, &theirs), (3, &name(b"f"))] {
            copies.note(7, id, n);
        }
        assert_eq!(copies.ids(), [1]);
        assert_eq!(copies.news_of(7, 1, [&ours]), Some(true));
        assert_eq!(copies.news_of(7, 1, [&ours]), Some(true));
        assert_eq!(copies.news_of(7, 2, [&theirs]), None);
        assert_eq!(copies.news_of(7, 1, [&theirs]), Some(false));
        assert_eq!(copies.news_of(7, 1, [&theirs]), None);
        copies.forget(1);
        assert!(copies.ids().is_empty());
    }
}
