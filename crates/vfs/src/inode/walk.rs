//! Somebody who uses one child of a directory after another.

use crate::limits;
use std::time::Duration;

/// In which order somebody uses the files of a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// As they are listed: tar, find.
    #[default]
    Listed,
    /// By their names: a shell's `*`, git, rsync.
    Name,
    /// By their fileids: cp over NFS.
    Fileid,
}

/// How he walks in one directory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Walk {
    /// When he used the last one, if ever.
    at: Option<Duration>,
    /// Its cookie.
    cookie: u64,
    /// How many further ones he is believed to want.
    window: usize,
    /// How many were on their way when the home was last asked ahead.
    asked: usize,
    /// How many he has used since.
    used: usize,
    /// How often in a row what was asked for was of no use, and how many further ones he is to use before it is tried again.
    failures: u32,
    pause: u32,
    /// Whether he goes through the directories here by their names, not in the order of listings; `None` where he was
    /// seen in one of them only.
    by_name: Option<bool>,
    /// In which order he uses files.
    order: Order,
}

impl Walk {
    /// He uses the child with this cookie; answers how many more to ask for, at most `max`. One who used none since
    /// `need` has not begun to walk. Of those who find what was asked for ahead, only he is to be asked for who has used
    /// half of it. For one who wants something else instead less is asked, and at last only now and then. `foreseen`: this one
    /// was asked for, and is there or on its way.
    pub fn step(&mut self, cookie: u64, foreseen: bool, max: usize, now: Duration, need: Duration) -> usize {
        let (walks, moves) = (self.is_on(need), self.cookie != cookie);
        (self.at, self.cookie) = (Some(now), cookie);
        if !walks {
            (self.window, self.asked, self.failures, self.pause) = (0, 0, 0, 0);
        }
        self.used += usize::from(moves && foreseen);
        let has_used_half = self.used * 2 >= self.asked;
        match foreseen {
            false if self.asked > 0 && !has_used_half => return self.fails(),
            false if self.pause > 0 => {
                self.pause -= 1;
                return 0;
            }
            false => {}
            true if self.asked == 0 || !has_used_half => return 0,
            true => self.failures = 0,
        }
        if walks && moves {
            self.window = (self.window.max(self.asked) * limits::WALK_GROWTH).clamp(2, max);
        }
        self.window
    }

    /// What was asked for ahead is not what he wants; answers how many to ask for from where he is now.
    fn fails(&mut self) -> usize {
        (self.window, self.asked, self.used) = (self.window / limits::WALK_GROWTH, 0, 0);
        if self.window == 0 {
            self.failures = (self.failures + 1).min(limits::WALK_FAILURES);
            self.pause = 1 << self.failures;
        }
        self.window
    }

    /// He goes straight down: at least so many are worth asking for.
    pub fn goes_down(&mut self, least: usize) -> usize {
        self.window = self.window.max(least);
        self.window
    }

    /// So many are on their way.
    pub fn asks(&mut self, count: usize) {
        (self.asked, self.used) = (count, 0);
    }

    /// Whether he has used anything since `need`.
    pub fn is_on(&self, need: Duration) -> bool {
        self.at.is_some_and(|at| at >= need)
    }

    /// Whether more than one child was used in a row.
    pub fn is_under_way(&self) -> bool {
        self.window > 0
    }

    /// He has come here from a directory in which he walked like this.
    pub fn follow(&mut self, elsewhere: Walk) {
        *self = Walk { cookie: 0, by_name: None, ..elsewhere };
    }

    /// He walks like this in the child with this cookie; answers where he was before, if that was another one.
    pub fn pass(&mut self, cookie: u64, below: Walk, need: Duration) -> Option<u64> {
        let before = (self.is_on(need) && self.cookie != cookie).then_some(self.cookie);
        *self = Walk { cookie, by_name: self.by_name, ..below };
        before
    }

    /// The cookie of the last one that he used, if he has used any since `need`.
    pub fn last(&self, need: Duration) -> Option<u64> {
        self.is_on(need).then_some(self.cookie)
    }

    /// In which order he uses files.
    pub fn order(&self) -> Order {
        self.order
    }

    /// He walks, though not where something was asked for ahead: in another directory, or in this order, as far as it is seen.
    pub fn begins_anew(&mut self, order: Option<Order>) {
        self.order = order.unwrap_or(self.order);
        (self.asked, self.used, self.failures, self.pause) = (0, 0, 0, 0);
    }

    /// How he goes from one directory to the next.
    pub fn by_name(&self) -> Option<bool> {
        self.by_name
    }

    /// Sets how.
    pub fn goes_by_name(&mut self, by_name: bool) {
        self.by_name = Some(by_name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// How many were asked for each time that any were, which are those with the next cookies.
    fn asked(walk: &mut Walk, came: &mut HashSet<u64>, cookies: impl Iterator<Item = u64>) -> Vec<usize> {
        let step = |cookie| {
            let count = walk.step(cookie, came.contains(&cookie), 512, Duration::ZERO, Duration::ZERO);
            came.extend(cookie..=cookie + count as u64);
            (count > 0).then(|| walk.asks(count)).map(|()| count)
        };
        cookies.filter_map(step).collect()
    }

    #[test]
    fn who_uses_what_was_asked_for_is_asked_for_more_and_more() {
        let (mut walk, mut came) = (Walk::default(), HashSet::new());
        assert_eq!(asked(&mut walk, &mut came, 1..200), [2, 8, 32, 128, 512]);
        assert_eq!(asked(&mut walk, &mut came, [5000, 6000].into_iter()), [128, 32], "elsewhere");
    }

    #[test]
    fn who_wants_other_things_than_were_asked_for_is_asked_for_little() {
        let (mut walk, mut came) = (Walk::default(), HashSet::new());
        let at_random = (1..1000).map(|n| n * 7919 % 99_991);
        let all: usize = asked(&mut walk, &mut came, at_random).iter().sum();
        assert!((2..60).contains(&all), "{all} for 1,000");
        let begins = asked(&mut walk, &mut came, 200_000..200_200);
        assert_eq!(begins, [2, 8, 32, 128, 512], "who begins to walk is seen");
    }
}
