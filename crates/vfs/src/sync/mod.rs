//! OUT: the one way home. [`queue`] keeps the order, [`content`] tells what a run of writes comes to, [`place`] finds
//! where things are at the home, [`push`] sends, [`settle`] takes the outcomes in, [`confirm`] what they say of objects;
//! [`resume`] finds out what a lost answer would have said, [`doubt`] does so in mode `strict`. Of what the home refused,
//! [`moot`] gives up what is not wanted any more, and [`decide`] does what a person says.

pub mod confirm;
pub mod content;
pub mod decide;
pub mod doubt;
pub mod moot;
pub mod place;
pub mod push;
pub mod queue;
pub mod resume;
pub mod settle;

use crate::config::Unsent;
use crate::volume::Volume;
use std::time::Duration;

impl Volume {
    /// Waits until everything that was accepted before is durable at the home.
    pub async fn drained(&self, timeout: Duration) -> Result<(), Unsent> {
        let mut conflicts = *self.conflicts.lock();
        let mut target = self.hurry_all();
        let mut outcomes = self.outcomes.subscribe();
        let wait = async {
            loop {
                outcomes.borrow_and_update();
                let (done, stuck) = {
                    let mut tree = self.tree.lock();
                    let done = tree.queue.first().is_none_or(|seq| seq > target);
                    let stuck = !done && tree.queue.select(self.env.clock.instant(), target).is_empty();
                    if stuck && self.drop_moot(&mut tree).is_ok_and(|any| any) {
                        continue;
                    }
                    (done, stuck)
                };
                if done && *self.conflicts.lock() == conflicts {
                    return true;
                }
                if done {
                    // The copy of a conflict travels behind everything else.
                    conflicts = *self.conflicts.lock();
                    target = self.hurry_all();
                    continue;
                }
                // Everything that is left waits for a decision on what the home refused.
                if stuck || self.suspended.lock().is_some() || outcomes.changed().await.is_err() {
                    return false;
                }
            }
        };
        match tokio::time::timeout(timeout, wait).await {
            Ok(true) => Ok(()),
            _ => Err(self.unsent(target)),
        }
    }

    /// Asks for everything in the queue to go without delay; answers the last number.
    fn hurry_all(&self) -> u64 {
        let mut tree = self.tree.lock();
        let last = tree.queue.iter().next_back().map_or(0, |(seq, _)| seq);
        tree.queue.hurry(last);
        self.wake.notify_one();
        last
    }

    fn unsent(&self, target: u64) -> Unsent {
        let status = self.status();
        let tree = self.tree.lock();
        let open = tree.queue.iter().filter(|(seq, _)| *seq <= target);
        let (ops, bytes) = open.fold((0, 0), |(n, b), (_, p)| (n + 1, b + p.bytes));
        let why = match (&status.suspended, status.parked.first(), &status.home.link) {
            (Some(why), _, _) => why.clone(),
            (_, Some(parked), _) => format!("the home refused: {} ({})", parked.what, parked.kind),
            (_, _, home::Link::Down(why)) => why.clone(),
            _ => "not all could be sent in time".to_owned(),
        };
        Unsent { volume: self.id, account: self.account.clone(), ops, bytes, why }
    }
}
