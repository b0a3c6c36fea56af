//! What a home said of its space, of each of its file systems.

use crate::limits;
use crate::sync::queue::demand::Demand;
use home::StatFs;
use std::collections::HashMap;
use std::time::Duration;

/// What a file system was said to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Its space.
    pub space: StatFs,
    /// When the home said so; monotonic.
    pub at: Duration,
    /// What had gone there before it was asked: [`crate::sync::queue::demand::Sums::settled`].
    pub settled: Demand,
}

/// Times are of the monotonic clock.
#[derive(Debug, Default)]
pub struct Space {
    /// As of the last question, of this process or an earlier one.
    last: Option<StatFs>,
    /// By file system ([`home::HomeId`]).
    told: HashMap<u64, Told>,
    /// It is being asked for so that writers know.
    asked: bool,
    /// By file system, what changes need for which there is just room and that are not accepted yet.
    reserved: HashMap<u64, Demand>,
    /// When `last` was last noted in the store.
    noted: Option<Duration>,
}

impl Space {
    /// With what the store has kept.
    pub fn open(last: Option<StatFs>) -> Space {
        Space { last, ..Space::default() }
    }

    /// The home said this. Answers whether the store should be told: free space changes with each write, and whoever
    /// asks after a restart is served well by an older answer.
    pub fn told(&mut self, fs: u64, told: Told) -> bool {
        let (space, now) = (told.space, told.at);
        if self.told.len() >= limits::FILE_SYSTEMS {
            self.told.retain(|_, told| now.saturating_sub(told.at) < limits::SPACE_FRESH);
        }
        self.told.insert(fs, told);
        let is_new = self.last.replace(space) != Some(space);
        let notes = is_new && self.noted.is_none_or(|noted| now.saturating_sub(noted) >= limits::SPACE_KEPT);
        if notes {
            self.noted = Some(now);
        }
        notes
    }

    /// What was said of a file system since then.
    pub fn fresh(&self, fs: u64, since: Duration) -> Option<StatFs> {
        self.told.get(&fs).filter(|told| told.at >= since).map(|told| told.space)
    }

    /// What was said last of a file system, however long ago.
    pub fn of(&self, fs: u64) -> Option<Told> {
        self.told.get(&fs).copied()
    }

    /// Whether it is to be asked for now: nobody does so already. Then [`Space::was_asked`] ends it.
    pub fn is_to_be_asked(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }

    /// What is reserved of a file system.
    pub fn reserved(&self, fs: u64) -> Demand {
        self.reserved.get(&fs).copied().unwrap_or_default()
    }

    /// A change that needs so much is about to be accepted, until [`Space::release`].
    pub fn reserve(&mut self, fs: u64, needs: Demand) {
        self.reserved.insert(fs, self.reserved(fs).and(needs));
    }

    /// It is accepted, or given up.
    pub fn release(&mut self, fs: u64, needs: Demand) {
        match self.reserved(fs).since(needs) {
            rest if rest == Demand::default() => drop(self.reserved.remove(&fs)),
            rest => drop(self.reserved.insert(fs, rest)),
        }
    }

    /// The question is answered, or given up.
    pub fn was_asked(&mut self) {
        self.asked = false;
    }

    /// What was said last, of whichever.
    pub fn before(&self) -> Option<StatFs> {
        self.last
    }
}

/// Whether a file system has room for what may be needed. One that tells no size, or no number of inodes, has any.
pub fn has_room(space: &StatFs, needs: Demand) -> bool {
    let bytes = space.total == 0 || needs.bytes <= space.available;
    bytes && (space.files == 0 || needs.files <= space.files_free)
}

/// Whether it has so much more that nobody need wait for what is on its way.
pub fn has_ample_room(space: &StatFs, needs: Demand) -> bool {
    let part = |free: u64| free - free / 10;
    let (available, files_free) = (part(space.available), part(space.files_free));
    has_room(&StatFs { available, files_free, ..*space }, needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_free(free: u64) -> StatFs {
        StatFs { total: 1000, free, available: free, files: 10, files_free: 5 }
    }

    fn told(free: u64, second: u64) -> Told {
        Told { space: with_free(free), at: Duration::from_secs(second), settled: Demand::default() }
    }

    #[test]
    fn each_file_system_has_its_own_and_the_last_of_all_stays() {
        let at = |seconds| Duration::from_secs(seconds);
        let mut space = Space::open(Some(with_free(1)));
        assert_eq!((space.fresh(7, at(0)), space.before()), (None, Some(with_free(1))));
        assert!(space.told(7, told(2, 100)), "the first that this process hears is noted");
        assert!(!space.told(8, told(3, 100)));
        assert_eq!(
            (space.fresh(7, at(100)), space.fresh(8, at(100))),
            (Some(with_free(2)), Some(with_free(3)))
        );
        assert_eq!((space.fresh(7, at(101)), space.before()), (None, Some(with_free(3))));
        assert_eq!(space.of(7), Some(told(2, 100)), "who writes there counts on from it");
        assert!(!space.told(8, told(3, 300)), "nothing new");
        assert!(space.told(8, told(4, 300)));
    }

    #[test]
    fn the_file_systems_of_a_home_do_not_grow_without_bound() {
        let mut space = Space::default();
        for fs in 0..limits::FILE_SYSTEMS as u64 + 1 {
            space.told(fs, told(1, fs));
        }
        assert!(space.told.len() <= limits::FILE_SYSTEMS && space.of(limits::FILE_SYSTEMS as u64).is_some());
    }

    #[test]
    fn room_is_for_bytes_and_inodes_and_ample_where_a_tenth_is_left() {
        let space = with_free(100);
        let needs = |bytes, files| Demand { bytes, files };
        for (needs, room, ample) in [
            (needs(90, 0), true, true),
            (needs(91, 0), true, false),
            (needs(100, 5), true, false),
            (needs(101, 0), false, false),
            (needs(0, 6), false, false),
        ] {
            assert_eq!((has_room(&space, needs), has_ample_room(&space, needs)), (room, ample), "{needs:?}");
        }
        let silent = StatFs { total: 0, free: 0, available: 0, files: 0, files_free: 0 };
        assert!(has_ample_room(&silent, needs(1 << 40, 1 << 40)));
    }
}
