//! Space admission: a change that its home has no room for is refused when it is made, not when it goes home.
//!
//! Where the home has told much more space than everything unsent may need, nobody waits. Else what was accepted before
//! goes home first, and then the home is asked: only its own answer refuses a change. A home that cannot be asked refuses
//! nothing; what it has no room for later stays here, as everything that it refuses.

use crate::limits;
use crate::sync::queue::demand::Demand;
use crate::volume::Volume;
use crate::volume::space::{has_ample_room, has_room};
use home::{Error, ErrorKind, Link, Result, StatFs};
use std::sync::Arc;
use tokio::sync::MutexGuard;

/// To be kept until the change is accepted.
pub(super) type Admitted<'a> = Option<MutexGuard<'a, ()>>;

impl Volume {
    /// Waits until the file system of an object is known to have room for a change that needs so much more there.
    /// [`ErrorKind::NoSpace`] where it has none, [`ErrorKind::Full`] where that takes too long.
    pub(super) async fn admit(self: &Arc<Self>, id: u64, needs: Demand) -> Result<Admitted<'_>> {
        if self.plain() || needs == Demand::default() || self.has_ample_space(id, needs)? {
            return Ok(None);
        }
        let asked = tokio::time::timeout(limits::HOLD, async {
            let scarce = self.scarce.lock().await;
            self.ask_for_room(id, needs).await.map(|()| Some(scarce))
        });
        asked.await.unwrap_or_else(|_| {
            let why = "the home has hardly room for what is on its way there";
            Err(Error::new(ErrorKind::Full, why))
        })
    }

    /// Whether nobody need wait. What is known is made newer meanwhile.
    fn has_ample_space(self: &Arc<Self>, id: u64, needs: Demand) -> Result<bool> {
        let now = self.env.clock.instant();
        let (is_old, is_ample) = {
            let mut tree = self.tree.lock();
            let told = self.space.lock().of(tree.get(id)?.home_id.fs);
            let demands = tree.queue.demands();
            let settled = told.map_or(demands.settled, |told| told.settled);
            let needs = demands.taken.since(settled).and(needs);
            match told {
                Some(told) => {
                    (now.saturating_sub(told.at) > limits::SPACE_COUNTED, has_ample_room(&told.space, needs))
                }
                None => (true, needs.bytes <= limits::SPACE_UNTOLD),
            }
        };
        if is_old && self.is_answering() && self.space.lock().is_to_be_asked() {
            let volume = self.clone();
            tokio::spawn(async move {
                volume.space_told_now(id).await;
                volume.space.lock().was_asked();
            });
        }
        Ok(is_ample || !self.is_answering())
    }

    /// Whether a question to the home is likely to be answered.
    fn is_answering(&self) -> bool {
        self.connects() && !self.is_silent() && self.home.status().link == Link::Up
    }

    /// Asks, and where that does not settle it lets everything go home that was accepted before, and asks again.
    async fn ask_for_room(self: &Arc<Self>, id: u64, needs: Demand) -> Result<()> {
        let _awaits = self.awaits();
        if self.space_told_now(id).await.is_none() || self.has_ample_space(id, needs)? {
            return Ok(());
        }
        while self.is_answering() {
            self.goes_home_first().await;
            let (soon, before) = {
                let queue = &self.tree.lock().queue;
                (Demand::of_open(queue, self.env.clock.instant()), queue.demands().taken)
            };
            let Some(space) = self.space_told_now(id).await else { return Ok(()) };
            if !has_room(&space, needs) {
                return Err(Error::new(ErrorKind::NoSpace, "the home has no room for it"));
            }
            // What was accepted meanwhile comes first.
            let meanwhile = self.tree.lock().queue.demands().taken.since(before);
            if has_room(&space, needs.and(soon).and(meanwhile)) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What the home says of its space, if it does.
    async fn space_told_now(self: &Arc<Self>, id: u64) -> Option<StatFs> {
        tokio::time::timeout(limits::REVALIDATE_WAIT, self.fetch_statfs(id)).await.ok()?.ok()
    }

    /// Waits until all that was accepted before is at the home or was refused there, or nobody answers any more.
    async fn goes_home_first(&self) {
        let last = self.lane.last();
        let mut outcomes = self.outcomes.subscribe();
        self.tree.lock().queue.hurry(last);
        self.wake.notify_one();
        let is_open = || {
            let (now, tree) = (self.env.clock.instant(), self.tree.lock());
            tree.queue.iter().take_while(|(seq, _)| *seq <= last).any(|(_, p)| !p.is_held(now))
        };
        while self.is_answering() && is_open() {
            // The time is for a home that does not answer at all.
            let _ = tokio::time::timeout(limits::OUTCOME_PATIENCE, outcomes.changed()).await;
        }
    }
}
