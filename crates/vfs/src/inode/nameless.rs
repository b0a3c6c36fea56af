//! Files that lost their last name while somebody has them open.
//!
//! Such a file keeps a name of ours, here and at the home, in the directory where it was: nobody finds it by that name,
//! no listing has it, no directory counts as full because of it, and it is not a link that clients see. So it stays an
//! object like any other, whose unsent changes and uncached bytes need no rule of their own. The last close removes it;
//! what a crash leaves behind is removed after the next start.

use super::marked::Marked;
use hashbrown::HashMap;
use home::Name;
use std::collections::BTreeMap;
use std::time::Duration;

const PREFIX: &[u8] = b".trellis-open-";

/// The name of a nameless object of a gateway.
pub fn hidden_name(gateway: u64, id: u64) -> Name {
    let text = format!(".trellis-open-{gateway:016x}-{id:x}");
    Name::new(text.as_bytes()).unwrap_or_else(|_| unreachable!("letters, digits, points and dashes"))
}

/// Whether a name is one that this gateway gave to a nameless object. Those of others are ordinary names, so that
/// somebody can clean up after a gateway that is no more.
pub fn is_hidden(gateway: u64, name: &Name) -> bool {
    let Some(rest) = name.as_bytes().strip_prefix(PREFIX) else { return false };
    let mut parts = rest.split(|b| *b == b'-');
    let hex = |part: Option<&[u8]>| {
        let part = part.filter(|p| !p.is_empty() && p.iter().all(|b| b"0123456789abcdef".contains(b)))?;
        u64::from_str_radix(std::str::from_utf8(part).ok()?, 16).ok()
    };
    hex(parts.next()) == Some(gateway) && hex(parts.next()).is_some() && parts.next().is_none()
}

/// Which objects of a volume are open, and which of them have no name.
#[derive(Debug, Default)]
pub struct Nameless {
    /// Random number of the state directory, a part of the names.
    pub gateway: u64,
    opens: HashMap<u64, u32>,
    /// Objects with a hidden name, and before which time their removal is not tried again; monotonic.
    hidden: BTreeMap<u64, Duration>,
    /// Objects of which the store says that they have a hidden name at the home.
    saved: Marked,
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

    /// Whether anybody has an object open.
    pub fn is_open(&self, id: u64) -> bool {
        self.opens.contains_key(&id)
    }

    /// Takes notice of a name that an object has got.
    pub fn note(&mut self, id: u64, name: &Name) {
        if is_hidden(self.gateway, name) {
            self.hidden.entry(id).or_default();
        }
    }

    /// The object has a hidden name, as an earlier process left it.
    pub fn restore(&mut self, id: u64) {
        self.hidden.entry(id).or_default();
        self.saved.restore(id);
    }

    /// Whether the store must say from now on that an object of these names is hidden; `None` where it says the right
    /// thing already.
    pub fn news_of<'a>(&mut self, id: u64, names: impl IntoIterator<Item = &'a Name>) -> Option<bool> {
        self.saved.news(id, names.into_iter().any(|name| is_hidden(self.gateway, name)))
    }

    /// Objects that nobody has open any more, and whose removal may be tried.
    pub fn removable(&self, now: Duration) -> Vec<u64> {
        let due = self.hidden.iter().filter(|(id, at)| **at <= now && !self.opens.contains_key(*id));
        due.map(|(id, _)| *id).collect()
    }

    /// The removal of an object is under way; it is tried again at a time, unless it is [`Nameless::forget`]ten.
    pub fn tried(&mut self, id: u64, again: Duration) {
        self.hidden.insert(id, again);
    }

    /// The object is not hidden any more.
    pub fn forget(&mut self, id: u64) {
        self.hidden.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_gateway_are_hidden() {
        let name = |s: &str| Name::new(s.as_bytes()).unwrap();
        assert!(is_hidden(7, &hidden_name(7, u64::MAX)));
        assert!(is_hidden(u64::MAX, &hidden_name(u64::MAX, 0)));
        assert!(!is_hidden(8, &hidden_name(7, 1)));
        let copy = format!("{}.trellis-conflict-1", hidden_name(7, 1));
        for other in ["f", ".trellis-open-", ".trellis-open-0000000000000007-", ".trellis-open-7-x", &copy] {
            assert!(!is_hidden(7, &name(other)), "{other}");
        }
    }

    #[test]
    fn what_is_open_is_not_removed() {
        let mut files = Nameless { gateway: 7, ..Nameless::default() };
        files.open(1);
        files.open(1);
        files.note(1, &hidden_name(7, 1));
        files.note(2, &Name::new(b"visible").unwrap());
        files.close(1);
        assert!(files.is_open(1) && files.removable(Duration::MAX).is_empty());
        files.close(1);
        files.close(1);
        assert_eq!(files.removable(Duration::ZERO), [1]);
        files.tried(1, Duration::from_secs(9));
        assert!(files.removable(Duration::from_secs(8)).is_empty());
        files.forget(1);
        assert!(files.removable(Duration::MAX).is_empty());
    }
}
