//! Somebody who uses one child of a directory after another.

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
    /// Whether he goes through the directories here by their names, not in the order of listings; `None` where he was
    /// seen in one of them only.
    by_name: Option<bool>,
    /// In which order he uses files.
    order: Order,
}

impl Walk {
    /// He uses the child with this cookie; answers how many more to ask for, at most `max`. One who used none since
    /// `need` has not begun to walk. Of those who find what was asked for ahead, only he is to be asked for who has used
    /// half of it; `missed`: it was not there.
    pub fn step(&mut self, cookie: u64, missed: bool, max: usize, now: Duration, need: Duration) -> usize {
        let (walks, moves) = (self.is_on(need), self.cookie != cookie);
        (self.at, self.cookie) = (Some(now), cookie);
        if !walks {
            (self.window, self.asked) = (0, 0);
        }
        self.used += usize::from(moves);
        if !missed && (self.asked == 0 || self.used * 2 < self.asked) {
            return 0;
        }
        if walks && moves {
            self.window = (self.window * 2).max(self.asked).clamp(2, max);
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

    /// Sets the order.
    pub fn goes_by(&mut self, order: Order) {
        self.order = order;
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
