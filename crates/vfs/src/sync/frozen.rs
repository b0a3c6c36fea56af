//! Where the policy is `stop`: a change that met a conflict waits for a person, and so does everything that was done in that
//! folder after it. The journal holds all of it; after a restart the conflict is met again, before anything that waits.

use super::queue::{self, Group};
use crate::conflict::{Policy, Resolution, Settled};
use crate::inode::{Tree, is_copy};
use crate::journal::Change;
use crate::limits;
use crate::volume::Volume;
use home::{Attr, Error, ErrorKind, HomePath, Name, Op, Result, Version};
use tokio::sync::oneshot;

/// A change that met a conflict and waits for a person.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// The folder whose later changes wait too.
    pub folder: HomePath,
    /// What the home had then, if anything.
    pub theirs: Option<Version>,
}

/// What a person has said of the conflict that a change is stopped at.
#[derive(Debug)]
pub struct Said {
    /// It is to be met as this policy would have it.
    pub policy: Policy,
    /// Hears what was done.
    verdict: oneshot::Sender<Resolution>,
}

impl Said {
    /// It was met, and this was done.
    pub fn tell(self, done: Resolution) {
        let _ = self.verdict.send(done);
    }
}

impl Volume {
    /// Stops at a group that met a conflict.
    pub(super) fn freeze(&self, tree: &mut Tree, group: &Group, folder: HomePath, theirs: Option<&Attr>) {
        for seq in &group.seqs {
            let Some(op) = tree.queue.get_mut(*seq) else { continue };
            (op.parked, op.again, op.said) = (Some(ErrorKind::Stale), None, None);
            op.stopped = Some(Stopped { folder: folder.clone(), theirs: theirs.map(Attr::version) });
            if !std::mem::replace(&mut op.late, true) {
                self.record_late(&mut tree.queue, *seq);
            }
        }
        tree.mark_frozen();
        self.outcomes.send_modify(|n| *n += 1);
    }

    /// Settles what is stopped at a conflict at a path, from the root of the home: as this policy would have it, or, where that
    /// is `None`, by giving it up. Answers what was done, which may be less than that. [`ErrorKind::NotFound`] where nothing is
    /// stopped there, [`ErrorKind::Busy`] where the home has changed it again since, [`ErrorKind::Unreachable`] while it does not
    /// answer.
    pub async fn settle_stopped(&self, at: &HomePath, said: Option<Policy>) -> Result<Settled> {
        let seqs = self.stopped_at(at);
        let Some(first) = seqs.first().copied() else {
            let text = format!("{at}: no change is stopped at a conflict there");
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        let Some(policy) = said else {
            return self.discard(Some(&seqs)).await.map(|_| Settled::Theirs);
        };
        let change = self.tree.lock().queue.get(first).map(|op| op.change.clone());
        let verdicts = self.say(&seqs, policy);
        let decided = self.decided_on(&seqs, verdicts);
        let Ok(decided) = tokio::time::timeout(limits::SETTLE_PATIENCE, decided).await else {
            let text = format!("{at}: the home does not answer; it is settled so when it does");
            return Err(Error::new(ErrorKind::Unreachable, text));
        };
        if self.stopped_at(at).iter().any(|seq| seqs.contains(seq)) {
            let text = format!("{at}: the home has changed it again since: look at it once more");
            return Err(Error::new(ErrorKind::Busy, text));
        }
        self.lane.synced(self.lane.last()).await.map_err(crate::inode::local)?;
        match (decided, change) {
            (Some(Resolution::Wait), _) => {
                let text = format!("{at}: its folder is gone at the home: it waits like what a home refuses");
                Err(Error::new(ErrorKind::NotFound, text))
            }
            (Some(Resolution::Drop), _) => Ok(Settled::Theirs),
            (_, Some(change)) if matches!(change.op, Op::Remove { .. }) => Ok(Settled::Removed),
            (_, change) => {
                let copy = change.and_then(|change| self.copy_instead(change.object, at));
                Ok(copy.map_or(Settled::Mine, Settled::Both))
            }
        }
    }

    /// Lets stopped operations meet what the home has as this policy would have it; answers where each says what was done.
    fn say(&self, seqs: &[u64], policy: Policy) -> Vec<oneshot::Receiver<Resolution>> {
        let mut verdicts = Vec::new();
        let mut tree = self.tree.lock();
        let now = self.env.clock.instant();
        for seq in seqs {
            let Some(op) = tree.queue.get_mut(*seq) else { continue };
            let (verdict, decided) = oneshot::channel();
            (op.said, op.again) = (Some(Said { policy, verdict }), Some(now));
            verdicts.push(decided);
            tree.queue.hurry(*seq);
        }
        drop(tree);
        self.wake.notify_one();
        verdicts
    }

    /// Waits until stopped operations have met what the home has. `None` where that was no conflict any more, or stops them again.
    async fn decided_on(
        &self,
        seqs: &[u64],
        verdicts: Vec<oneshot::Receiver<Resolution>>,
    ) -> Option<Resolution> {
        let mut outcomes = self.outcomes.subscribe();
        let mut decided = None;
        for verdict in verdicts {
            decided = decided.or(verdict.await.ok());
        }
        loop {
            outcomes.borrow_and_update();
            // What was cut off in the middle is met again.
            let is_open = |seq: &u64| self.tree.lock().queue.get(*seq).is_some_and(|op| op.stopped.is_none());
            let waits = decided.is_none() && seqs.iter().any(is_open);
            if !waits || outcomes.changed().await.is_err() {
                return decided;
            }
        }
    }

    /// The name of a copy that an object has instead of that at a path.
    fn copy_instead(&self, object: u64, at: &HomePath) -> Option<Name> {
        let mut tree = self.tree.lock();
        let inode = tree.get(object).ok()?;
        let names: Vec<(u64, Name)> = inode.link.iter().chain(&inode.more_links).cloned().collect();
        let has_it = |(dir, name): &(u64, Name)| tree.local_path(*dir).is_ok_and(|dir| dir.join(name) == *at);
        if names.iter().any(has_it) {
            return None;
        }
        names.into_iter().map(|(_, name)| name).find(|name| is_copy(self.shared.gateway, name))
    }

    fn stopped_at(&self, at: &HomePath) -> Vec<u64> {
        let mut tree = self.tree.lock();
        let stopped = tree.queue.iter().filter(|(_, p)| p.stopped.is_some());
        let stopped: Vec<(u64, Change)> = stopped.map(|(seq, p)| (seq, p.change.clone())).collect();
        stopped
            .into_iter()
            .filter(|(_, c)| tree.place_of(c).as_ref() == Some(at))
            .map(|(seq, _)| seq)
            .collect()
    }
}

impl Tree {
    /// Where a change takes or gives up a name, else where its object is: from the root of the home.
    pub fn place_of(&mut self, change: &Change) -> Option<HomePath> {
        let place = queue::names(change).last();
        let named = place.and_then(|(dir, name)| Some(self.local_path(dir).ok()?.join(&name)));
        let path = named.or_else(|| self.local_path(change.object).ok());
        path.or_else(|| self.home_path(change.object).ok())
    }

    /// Finds out which changes wait because an earlier one in their folder is stopped.
    pub fn mark_frozen(&mut self) {
        self.queue.find_stops();
        let all: Vec<(u64, Change)> = self.queue.iter().map(|(seq, p)| (seq, p.change.clone())).collect();
        for (seq, change) in all {
            let frozen = self.is_frozen(seq, &change);
            if let Some(op) = self.queue.get_mut(seq) {
                op.frozen = frozen && op.stopped.is_none();
            }
        }
    }

    /// The same, where a stopped change has gone since.
    pub fn thaw(&mut self) {
        if self.queue.take_thaw() {
            self.mark_frozen();
        }
    }

    /// Whether a change is in the folder of an earlier one that is stopped; costs nothing where none is.
    pub fn is_frozen(&mut self, seq: u64, change: &Change) -> bool {
        let stops: Vec<HomePath> = self.queue.stops(seq).cloned().collect();
        if stops.is_empty() {
            return false;
        }
        let mut places: Vec<HomePath> = Vec::new();
        for (dir, name) in queue::names(change) {
            places.extend(self.local_path(dir).or_else(|_| self.home_path(dir)).ok().map(|p| p.join(&name)));
        }
        let object = change.object;
        places.extend(self.local_path(object).or_else(|_| self.home_path(object)));
        stops.iter().any(|folder| places.iter().any(|path| folder.contains(path)))
    }
}
