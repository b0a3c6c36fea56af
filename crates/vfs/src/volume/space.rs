//! What a home said of its space, of each of its file systems.

use crate::limits;
use home::StatFs;
use std::collections::HashMap;
use std::time::Duration;

/// Times are of the monotonic clock.
#[derive(Debug, Default)]
pub struct Space {
    /// As of the last question, of this process or an earlier one.
    last: Option<StatFs>,
    /// By file system ([`home::HomeId`]), with the time of the answer.
    told: HashMap<u64, (StatFs, Duration)>,
    /// When `last` was last noted in the store.
    noted: Option<Duration>,
}

impl Space {
    /// With what the store has kept.
    pub fn open(last: Option<StatFs>) -> Space {
        Space { last, ..Space::default() }
    }

    /// The home said this now. Answers whether the store should be told: free space changes with each write, and whoever
    /// asks after a restart is served well by an older answer.
    pub fn told(&mut self, fs: u64, space: StatFs, now: Duration) -> bool {
        self.told.retain(|_, (_, at)| now.saturating_sub(*at) < limits::SPACE_FRESH);
        self.told.insert(fs, (space, now));
        let is_new = self.last.replace(space) != Some(space);
        let notes = is_new && self.noted.is_none_or(|noted| now.saturating_sub(noted) >= limits::SPACE_KEPT);
        if notes {
            self.noted = Some(now);
        }
        notes
    }

    /// What was said of a file system since then.
    pub fn fresh(&self, fs: u64, since: Duration) -> Option<StatFs> {
        self.told.get(&fs).filter(|(_, at)| *at >= since).map(|(space, _)| *space)
    }

    /// What was said last, of whichever.
    pub fn before(&self) -> Option<StatFs> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_free(free: u64) -> StatFs {
        StatFs { total: 1000, free, available: free, files: 10, files_free: 5 }
    }

    #[test]
    fn each_file_system_has_its_own_and_the_last_of_all_stays() {
        let at = |seconds| Duration::from_secs(seconds);
        let mut space = Space::open(Some(with_free(1)));
        assert_eq!((space.fresh(7, at(0)), space.before()), (None, Some(with_free(1))));
        assert!(space.told(7, with_free(2), at(100)), "the first that this process hears is noted");
        assert!(!space.told(8, with_free(3), at(100)));
        assert_eq!(
            (space.fresh(7, at(100)), space.fresh(8, at(100))),
            (Some(with_free(2)), Some(with_free(3)))
        );
        assert_eq!((space.fresh(7, at(101)), space.before()), (None, Some(with_free(3))));
        assert!(!space.told(8, with_free(3), at(300)), "nothing new");
        assert!(space.told(8, with_free(4), at(300)));
        assert_eq!(space.told.len(), 1, "what is too old is forgotten");
    }
}
