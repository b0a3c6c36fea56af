//! Space admission: a change that its home has no room for is refused when it is made, not when it goes home.
//!
//! Where the home has told much more space than everything unsent may need, nobody waits. Else the home is asked; where what
//! is on its way may need all that there is, that goes first, and the home is asked again: only its own answer refuses a
//! change. A home that cannot be asked refuses nothing; what it has no room for later stays here, as everything that it
//! refuses.

use crate::limits;
use crate::sync::queue::demand::Demand;
use crate::volume::Volume;
use crate::volume::space::{has_ample_room, has_room};
use home::{Error, ErrorKind, Link, Result, StatFs};
use std::sync::Arc;

/// Room for a change that there is just room for, until it is accepted or given up.
pub(super) struct Reserved<'a> {
    volume: &'a Volume,
    fs: u64,
    needs: Demand,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.volume.space.lock().release(self.fs, self.needs);
    }
}

impl Volume {
    /// Waits until the file system of an object is known to have room for a change that needs so much more there. What is
    /// answered is kept until the change is accepted. [`ErrorKind::NoSpace`] where there is none, [`ErrorKind::Full`] where
    /// it takes too long to know.
    pub(super) async fn admit(self: &Arc<Self>, id: u64, needs: Demand) -> Result<Option<Reserved<'_>>> {
        if self.plain() || needs == Demand::default() {
            return Ok(None);
        }
        let fs = self.tree.lock().get(id)?.home_id.fs;
        if self.has_ample_space(id, fs, needs) {
            return Ok(None);
        }
        let found = tokio::time::timeout(limits::HOLD, async {
            let _alone = self.scarce.lock().await;
            self.find_room(id, fs, needs).await
        });
        found.await.unwrap_or_else(|_| {
            let why = "the home has hardly room for what is on its way there";
            Err(Error::new(ErrorKind::Full, why))
        })
    }

    /// Whether nobody need wait. What is known is made newer meanwhile.
    fn has_ample_space(self: &Arc<Self>, id: u64, fs: u64, needs: Demand) -> bool {
        let now = self.env.clock.instant();
        let (is_old, is_ample) = {
            let tree = self.tree.lock();
            let (sums, space) = (tree.queue.demands().of(fs), self.space.lock());
            let told = space.of(fs);
            let unsent = sums.taken.since(told.map_or(sums.settled, |told| told.settled));
            let needs = needs.beside(unsent).beside(space.reserved(fs));
            match told {
                Some(told) => {
                    (now.saturating_sub(told.at) > limits::SPACE_FRESH, has_ample_room(&told.space, needs))
                }
                None => (true, needs.bytes <= limits::SPACE_UNTOLD),
            }
        };
        if is_old {
            self.ask_for_space(id);
        }
        is_ample || !self.is_answering()
    }

    /// Has the home tell its space, which nobody waits for.
    pub(super) fn ask_for_space(self: &Arc<Self>, id: u64) {
        if self.is_answering() && self.space.lock().is_to_be_asked() {
            let volume = self.clone();
            tokio::spawn(async move {
                volume.space_told_now(id).await;
                volume.space.lock().was_asked();
            });
        }
    }

    /// Whether a question to the home is likely to be answered.
    fn is_answering(&self) -> bool {
        self.connects() && !self.is_silent() && self.home.status().link == Link::Up
    }

    /// Asks the home, and lets go there first what may need the same room.
    async fn find_room(self: &Arc<Self>, id: u64, fs: u64, needs: Demand) -> Result<Option<Reserved<'_>>> {
        let _awaits = self.awaits();
        let mut is_flushed = false;
        while self.is_answering() {
            let (open, before) = {
                let queue = &self.tree.lock().queue;
                (Demand::of_open(queue, fs, self.env.clock.instant()), queue.demands().of(fs).taken)
            };
            let Some(told) = self.space_told_now(id).await else { break };
            {
                let meanwhile = self.tree.lock().queue.demands().of(fs).taken.since(before);
                let mut space = self.space.lock();
                let others = open.and(meanwhile).and(space.reserved(fs));
                if has_room(&told, needs.beside(others)) {
                    space.reserve(fs, needs);
                    return Ok(Some(Reserved { volume: self, fs, needs }));
                }
            }
            if is_flushed && !has_room(&told, needs) {
                return Err(Error::new(ErrorKind::NoSpace, "the home has no room for it"));
            }
            self.flushed(|| self.is_answering()).await;
            is_flushed = true;
        }
        Ok(None)
    }

    /// What the home says of its space, if it does.
    async fn space_told_now(self: &Arc<Self>, id: u64) -> Option<StatFs> {
        tokio::time::timeout(limits::REVALIDATE_WAIT, self.fetch_statfs(id)).await.ok()?.ok()
    }
}
