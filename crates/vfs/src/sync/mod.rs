//! OUT: the one way home. [`queue`] keeps the order, [`content`] tells what a run of writes comes to, [`place`] finds
//! where things are at the home, [`vanish`] gives up what later changes undo, [`push`] sends, [`ahead`] stages what comes
//! next meanwhile, [`delta`] without what the home has, [`spool`] on its disk what makes up a whole file,
//! [`settle`] takes the outcomes in, [`confirm`] what they say of objects,
//! [`clash`] does what the table of conflicts says, [`prefer`] and [`frozen`] what other policies than the usual one want,
//! [`ours`] tells whether it was ourselves who left what is no base of ours, [`begun`] whether it is half of a write;
//! [`resume`] finds out what a lost answer would have said, [`doubt`] does so in mode `strict`. Of what the home refused,
//! [`moot`] gives up what is not wanted any more, and [`decide`] does what a person says.

pub mod ahead;
pub mod astray;
pub mod begun;
pub mod clash;
pub mod confirm;
pub mod content;
pub mod course;
pub mod decide;
pub mod delta;
pub mod doubt;
pub mod frozen;
pub mod marks;
pub mod moot;
pub mod ours;
pub mod place;
pub mod prefer;
pub mod push;
pub mod queue;
pub mod resume;
pub mod settle;
pub mod spool;
mod unsure;
pub mod vanish;

use crate::config::Unsent;
use crate::inode::Tree;
use crate::limits;
use crate::volume::Volume;
use home::{Error, ErrorKind};
use std::time::Duration;

/// What was accepted before some moment, on its way home.
struct Barrier {
    /// The last operation of it, as far as is known: a conflict that is met later sends what it keeps behind everything else.
    target: u64,
}

impl Volume {
    /// Waits until everything that was accepted before is durable at the home; not for a person, without whom that
    /// will not be.
    pub async fn drained(&self, timeout: Duration) -> Result<(), Unsent> {
        let _awaits = self.awaits();
        let mut barrier = self.barrier();
        let wait = async {
            loop {
                match tokio::time::timeout(limits::OUTCOME_PATIENCE, self.pass(&mut barrier)).await {
                    Ok(passed) => return passed,
                    Err(_) if self.home.status().needs_person => return false,
                    Err(_) => {}
                }
            }
        };
        match tokio::time::timeout(timeout, wait).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.unsent(barrier.target, false)),
            Err(_) => Err(self.unsent(barrier.target, true)),
        }
    }

    /// The same for a caller who was promised it (mode `cto`): waits as long as the home may still come back, and fails
    /// with its reason where it refused any of it. Whatever is told here, nothing of it is given up.
    pub async fn committed_at_home(&self) -> home::Result<()> {
        let _awaits = self.awaits();
        let mut barrier = self.barrier();
        loop {
            match tokio::time::timeout(limits::OUTCOME_PATIENCE, self.pass(&mut barrier)).await {
                Ok(true) => return Ok(()),
                Err(_) if self.lane.poisoned().is_none() && !self.is_given_up() => {}
                _ => return Err(self.refusal(barrier.target)),
            }
        }
    }

    /// Waits until all that was accepted before is at the home, or was refused there, as long as it `answers`.
    pub async fn flushed(&self, answers: impl Fn() -> bool) {
        let mut barrier = self.barrier();
        while answers()
            && tokio::time::timeout(limits::OUTCOME_PATIENCE, self.pass(&mut barrier)).await.is_err()
        {
        }
    }

    fn barrier(&self) -> Barrier {
        let mut tree = self.tree.lock();
        let target = tree.queue.iter().next_back().map_or(0, |(seq, _)| seq);
        self.hurry_to(&mut tree, target);
        Barrier { target }
    }

    /// Waits until all of it is at the home, and answers true, or until waiting is of no use. Whoever gives up may come
    /// back with the same barrier.
    async fn pass(&self, barrier: &mut Barrier) -> bool {
        let mut outcomes = self.outcomes.subscribe();
        loop {
            outcomes.borrow_and_update();
            let stuck = {
                let mut tree = self.tree.lock();
                tree.thaw();
                let behind = tree.queue.behind();
                if behind > barrier.target {
                    barrier.target = behind;
                    self.hurry_to(&mut tree, behind);
                }
                if tree.queue.first().is_none_or(|seq| seq > barrier.target) {
                    return true;
                }
                let stuck = tree.queue.select(self.env.clock.instant(), barrier.target).is_empty();
                if stuck && self.drop_moot(&mut tree).is_ok_and(|any| any) {
                    continue;
                }
                stuck
            };
            // Everything that is left waits for a decision on what the home refused.
            let of_no_use = stuck || !self.connects() || self.suspension().is_some();
            if of_no_use || outcomes.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Asks for everything up to a number to go without delay.
    fn hurry_to(&self, tree: &mut Tree, last: u64) {
        tree.queue.promise(last);
        self.wake.notify_one();
    }

    /// Why what was accepted up to `target` is not at the home: the reason of the first operation that it refused.
    fn refusal(&self, target: u64) -> Error {
        let unsent = self.unsent(target, false);
        let tree = self.tree.lock();
        let refused = tree.queue.iter().take_while(|(seq, _)| *seq <= target).find_map(|(_, p)| p.parked);
        // It has taken effect here: nobody is to come again as if it had not.
        let refused = refused.filter(|kind| *kind != ErrorKind::Busy);
        Error::new(refused.unwrap_or(ErrorKind::Io), format!("{}: {}", unsent.account, unsent.why))
    }

    fn unsent(&self, target: u64, may_pass: bool) -> Unsent {
        let status = self.status();
        let tree = self.tree.lock();
        let open = tree.queue.iter().filter(|(seq, _)| *seq <= target);
        let (ops, bytes) = open.fold((0, 0), |(n, b), (_, p)| (n + 1, b + p.bytes));
        let why = match (&status.suspended, status.parked.first(), &status.home.link) {
            _ if !self.connects() => "its mode is offline".to_owned(),
            (Some(why), _, _) => why.clone(),
            (_, _, home::Link::Down(why)) if status.home.needs_person => login_needed(why, &status.home),
            (_, Some(parked), _) if parked.stopped.is_some() => {
                format!("stopped at a conflict: {}: `trellis conflicts` shows it", parked.what)
            }
            (_, Some(parked), _) => {
                format!("{}: {} ({})", crate::Parked::by(parked.is_damaged()), parked.what, parked.kind)
            }
            (_, _, home::Link::Down(why)) => why.clone(),
            _ => "not all could be sent in time".to_owned(),
        };
        Unsent { volume: self.id, account: self.account.clone(), ops, bytes, why, may_pass }
    }
}

/// Why a home needs a person, and what to do about it.
fn login_needed(why: &str, home: &home::Status) -> String {
    match &home.login {
        Some(command) if !why.contains(command.as_str()) => format!("login needed: {why}; run `{command}`"),
        Some(_) => format!("login needed: {why}"),
        None => why.to_owned(),
    }
}
