//! Sends what is unsent, one batch after the other: the only caller of `Home::stage` and `Home::apply`.

use super::ahead::{Ahead, Inline, Staging, staged};
use super::content::Slice;
use super::place::{Ready, place};
use super::queue::Group;
use crate::config::Parked;
use crate::inode::{Tree, local};
use crate::journal::Stored;
use crate::limits;
use crate::volume::Volume;
use bytes::Bytes;
use hashbrown::HashMap;
use home::op::Staged;
use home::{Class, Error, ErrorKind, Home, Op, OpId, Outcome, Payload, Placed, Result};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Sends until the volume is gone. Back-off is here and nowhere else.
pub async fn run(volume: Weak<Volume>) {
    let mut backoff = Duration::ZERO;
    let mut ahead = Ahead::default();
    loop {
        let Some(volume) = volume.upgrade() else { return };
        let now = volume.env.clock.instant();
        let patience = {
            let mut tree = volume.tree.lock();
            tree.thaw();
            tree.queue.end_writing(now);
            tree.queue.patience(now)
        };
        volume.give_up_spools(&mut ahead.spooling);
        match patience.filter(|_| volume.connects() && !volume.is_superseded()) {
            None => {
                volume.claim_ahead().await;
                let _ = tokio::time::timeout(Duration::from_secs(1), volume.wake.notified()).await;
                continue;
            }
            Some(wait) if wait > Duration::ZERO => {
                volume.spool_written(&mut ahead.spooling);
                let _ = tokio::time::timeout(wait, volume.wake.notified()).await;
                continue;
            }
            Some(_) => {}
        }
        let pushed = volume.push(&mut ahead).await;
        // Whoever waits looks again, whatever became of it: a part may be done, or nothing more can be.
        volume.outcomes.send_modify(|n| *n += 1);
        match pushed {
            Ok(Sent::Some) => {
                backoff = Duration::ZERO;
                volume.heard();
            }
            Ok(Sent::Nothing) => {
                let _ = tokio::time::timeout(Duration::from_secs(1), volume.wake.notified()).await;
            }
            Err(e) => {
                ahead.clear();
                if crate::fetch::is_out_of_reach(&e) {
                    volume.unheard();
                    volume.suspect(&e);
                }
                if volume.is_given_up() {
                    volume.abandon_unawaited();
                }
                // A home that is out of reach says so in its state; anything else would be seen nowhere.
                let is_told = matches!(e.kind, ErrorKind::NotStaged | ErrorKind::Superseded);
                match crate::fetch::is_out_of_reach(&e) || is_told {
                    true => tracing::debug!(account = %volume.account, "changes wait: {e}"),
                    false => tracing::warn!(account = %volume.account, "changes wait: {e}"),
                }
                backoff = (backoff * 2).clamp(Duration::from_millis(100), limits::PUSH_BACKOFF);
                volume.rest(backoff).await;
            }
        }
    }
}

/// How the payloads of operations go ahead of them.
#[derive(Clone, Copy)]
struct Stages {
    /// Whether any do.
    any: bool,
    /// All of what does travels.
    whole: bool,
    /// See [`Home::copies`].
    copies: bool,
}

/// What became of an attempt to send.
enum Sent {
    /// A batch went, whatever its outcomes.
    Some,
    /// All that is left waits for a decision on what the home refused.
    Nothing,
}

/// Operations that the home refused, the oldest of them. Who gives up a write gives up all later ones to that file, so that
/// these are told with it.
pub fn parked(tree: &mut Tree) -> Vec<Parked> {
    let (mut told, mut writes) = (Vec::<Vec<u64>>::new(), HashMap::<_, usize>::new());
    for (seq, op) in tree.queue.iter() {
        let Some(kind) = op.parked else { continue };
        let write = (op.change.object, kind as u32, op.stopped.is_some());
        let is_write = matches!(op.change.op, Op::Write { .. });
        match writes.get(&write).filter(|_| is_write) {
            Some(at) => told[*at].push(seq),
            None if told.len() < limits::PARKED_SHOWN => {
                if is_write {
                    writes.insert(write, told.len());
                }
                told.push(vec![seq]);
            }
            None => {}
        }
    }
    let first = |all: Vec<u64>| {
        let one = tree.refused(*all.first()?)?;
        Some(Parked { all, ..one })
    };
    told.into_iter().filter_map(first).collect()
}

impl Volume {
    /// Claims the volume once the home was greeted, so that the first change need not wait for that. Where it fails, that is
    /// seen when something is sent.
    async fn claim_ahead(self: &Arc<Self>) {
        let known = self.hello.lock().as_ref().map(|hello| hello.class);
        let is_greeted = known == Some(Class::Posix) && !self.health.estranged.load(Ordering::Relaxed);
        let may_send = self.connects() && !self.policy.modes.read().whole().is_read_only();
        if !is_greeted || !may_send || self.tree.lock().queue.len() > 0 {
            return;
        }
        if !self.claims_again.swap(true, Ordering::Relaxed)
            && let Err(e) = self.resume(Class::Posix).await
        {
            tracing::debug!(account = %self.account, "not claimed ahead: {e}");
        }
    }

    /// Sends one batch and takes its outcomes in.
    async fn push(self: &Arc<Self>, ahead: &mut Ahead) -> Result<Sent> {
        let hello = self.greeted().await?;
        let spools = ahead.spooling.allowed(self);
        self.tree.lock().queue.set_spools(spools);
        let claimed_before = self.claimed.load(Ordering::Relaxed);
        // The first one follows the greeting.
        if !claimed_before && self.claims_again.swap(true, Ordering::Relaxed) {
            self.recognise_again().await?;
        }
        self.vanish(&mut self.tree.lock())?;
        let last = if hello.stages { self.stage_unclaimed(ahead) } else { u64::MAX };
        self.resume(hello.class).await?;
        self.sends().await?;
        self.clear_doubt().await?;
        let batch = self.next_batch(last).await?;
        self.tree.lock().queue.begin(batch.iter().flat_map(|g| g.seqs.clone()));
        if batch.is_empty() {
            return Ok(if self.drop_moot(&mut self.tree.lock())? { Sent::Some } else { Sent::Nothing });
        }
        if self.keep_what_is_written(&mut self.tree.lock(), &batch)? {
            return Ok(Sent::Some);
        }
        let ready = self.place_or_park(batch);
        if ready.is_empty() {
            return Ok(Sent::Some);
        }
        let loaded = self.load_all(ready, hello.stages, ahead).await;
        let (ready, placed, copied) = loaded.inspect_err(|e| self.got_through(Some(e)))?;
        if ready.is_empty() {
            return Ok(Sent::Some);
        }
        let numbers: BTreeSet<u64> = ready.iter().flat_map(|r| r.group.seqs.clone()).collect();
        self.record_outcomes(&numbers).await?;
        self.sends_up_to(numbers.last().copied().unwrap_or(0));
        self.tree.lock().queue.begin(numbers);
        if hello.stages {
            self.stage_ahead(&ready.iter().map(|r| &r.group).collect::<Vec<_>>(), ahead);
        }
        tracing::debug!(account = %self.account, changes = placed.len(), "changes go home");
        let answer = self.applied(placed, ahead).await;
        tracing::debug!(account = %self.account, ok = answer.is_ok(), "the home has answered them");
        self.got_through(answer.as_ref().err());
        let failure = answer.as_ref().err().map(|e| e.kind);
        let taken_over = failure == Some(ErrorKind::NotClaimed);
        if taken_over {
            self.claimed.store(false, Ordering::Relaxed);
            ahead.clear();
        }
        // For any other reason a part may have been executed.
        let lost = failure.is_some_and(|kind| kind != ErrorKind::NotStaged && !taken_over);
        let taken = match answer {
            // Claimed anew it goes; what was claimed just now is rather not asked for in a hurry.
            Err(_) if taken_over && claimed_before => Ok(Sent::Some),
            answer => self.take_answer(&ready, answer, copied, ahead).await,
        };
        {
            let queue = &mut self.tree.lock().queue;
            queue.end(lost);
            queue.outcomes_up_to(self.lane.last());
        }
        // What is at home makes room only once that is durable here.
        if !self.data.share().line().is_empty() {
            self.lane.hurry();
        }
        taken
    }

    /// Takes the answer to a batch in. Of files `copied` the home should have made what it did not have.
    async fn take_answer(
        self: &Arc<Self>,
        ready: &[Ready],
        answer: Result<Vec<Outcome>>,
        copied: Vec<u64>,
        ahead: &mut Ahead,
    ) -> Result<Sent> {
        let spooled =
            |ready: &[Ready]| ready.iter().filter_map(|one| self.spooled_by(one)).collect::<Vec<_>>();
        match answer {
            Ok(outcomes) => {
                ahead.whole = false;
                let answered = spooled(&ready[..outcomes.len().min(ready.len())]);
                answered.into_iter().for_each(|object| ahead.spooling.forget(object));
                self.take(ready, outcomes).await.map(|()| Sent::Some)
            }
            // A file there is not what it was believed to be.
            Err(e) if e.kind == ErrorKind::NotStaged && !copied.is_empty() => {
                ahead.clear();
                ahead.whole = true;
                for file in copied {
                    self.alike.forget(file).await;
                }
                Ok(Sent::Some)
            }
            Err(e) if e.kind == ErrorKind::NotStaged && ahead.spooling.is_to_be_sent(&spooled(ready)) => {
                Ok(Sent::Some)
            }
            Err(e) => Err(e),
        }
    }

    /// Has a batch executed; meanwhile what is written goes ahead.
    async fn applied(self: &Arc<Self>, placed: Vec<Placed>, ahead: &mut Ahead) -> Result<Vec<Outcome>> {
        let mut answer = self.home.apply(placed);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                () = self.wake.notified() => self.spool_written(&mut ahead.spooling),
            }
        }
    }

    /// The object of an operation whose bytes lie on the home's disk.
    fn spooled_by(&self, one: &Ready) -> Option<u64> {
        let Op::Write { pieces, .. } = &one.op else { return None };
        let lens =
            pieces.iter().map(|p| if let home::Piece::Data(_, slice) = p { slice.len as u64 } else { 0 });
        let is_long =
            one.group.spooled && self.shared.spool_from.is_some_and(|from| lens.sum::<u64>() >= from);
        is_long.then(|| self.object(&self.tree.lock(), one).ok()).flatten()
    }

    /// A batch got through, or its connection did not live long enough for it.
    fn got_through(&self, failure: Option<&Error>) {
        if failure.is_none_or(crate::fetch::is_out_of_reach) {
            self.tree.lock().queue.got_through(failure.is_none());
        }
    }

    /// Before these records are sent: a restart finds them among those that may have been, however many went before. What was
    /// decided on others since the batch was chosen is durable, too.
    async fn record_outcomes(&self, seqs: &BTreeSet<u64>) -> Result<()> {
        let (fits, decided, outcomes) = {
            let queue = &mut self.tree.lock().queue;
            if self.lane.is_synced(queue.outcomes()) {
                queue.recorded();
            }
            (queue.sends(seqs), queue.decided(), queue.outcomes())
        };
        match self.lane.synced(if fits { decided } else { outcomes.max(decided) }).await {
            Ok(()) if fits => {}
            Ok(()) => {
                let queue = &mut self.tree.lock().queue;
                queue.recorded();
                queue.sends(seqs);
            }
            // What goes makes room; what went stays counted.
            Err(crate::env::Error::Full(_)) if self.lane.is_synced(decided) => {}
            Err(e) => return Err(local(e)),
        }
        Ok(())
    }

    /// What goes next, up to record `last`. The home must never know more than the journal: what is not durable here because
    /// the local disk is full stays, and what is durable goes, which is what makes room.
    async fn next_batch(&self, last: u64) -> Result<Vec<Group>> {
        if !self.lane.keeps_up() {
            match self.lane.synced(self.lane.last()).await {
                // The space of the outcomes is held.
                Ok(()) | Err(crate::env::Error::Full(_)) => {}
                Err(e) => return Err(local(e)),
            }
        }
        let now = self.env.clock.instant();
        let (batch, decided) = {
            let queue = &mut self.tree.lock().queue;
            let batch = queue.select(now, last);
            queue.pass(now, &batch).into_iter().for_each(|seq| self.record_late(queue, seq));
            (batch, queue.decided())
        };
        let Some(last) = batch.iter().flat_map(|g| &g.seqs).max().copied() else { return Ok(batch) };
        match self.lane.synced(last.max(decided)).await {
            Ok(()) => Ok(batch),
            Err(e @ crate::env::Error::Full(_)) if self.lane.is_synced(decided) => {
                let durable = self.tree.lock().queue.select(now, last.min(self.lane.durable()));
                if durable.is_empty() { Err(local(e)) } else { Ok(durable) }
            }
            Err(e) => Err(local(e)),
        }
    }

    fn place_or_park(&self, batch: Vec<Group>) -> Vec<Ready> {
        let mut tree = self.tree.lock();
        let placed = place(&mut tree, self.shared.gateway, self.id, batch);
        let mut ready = Vec::with_capacity(placed.len());
        for (group, one) in placed {
            match one {
                Ok(one) => ready.push(one),
                Err(e) => {
                    self.give_up(&mut tree, &group, e.kind);
                    break;
                }
            }
        }
        ready
    }

    /// Loads a batch; what is staged for its operations is on its way together, and costs one round trip. It ends before
    /// an operation whose bytes the local disk does not give back. Answers besides of which files the home copies.
    async fn load_all(
        self: &Arc<Self>,
        mut ready: Vec<Ready>,
        stages: bool,
        ahead: &mut Ahead,
    ) -> Result<(Vec<Ready>, Vec<Placed>, Vec<u64>)> {
        let (mut placed, mut copied) = (Vec::with_capacity(ready.len()), Vec::new());
        let (mut spooled, mut writes) = (HashMap::new(), HashMap::new());
        for one in &ready {
            let Some(object) = self.spooled_by(one).filter(|_| self.home.spools()) else { continue };
            let nth = writes.entry(object).and_modify(|nth| *nth += 1).or_insert(0_usize);
            match self.load_spooled(one, (object, *nth), &mut ahead.spooling).await {
                Ok(loaded) => drop(spooled.insert(one.id.seq, loaded)),
                Err(e) => {
                    self.not_spooled(one, object, e, ahead).await?;
                    return Ok((Vec::new(), Vec::new(), Vec::new()));
                }
            }
        }
        let copies = self.home.copies();
        let loads = ready.iter().map(|one| {
            let spooled = spooled.remove(&one.id.seq);
            let staging = match &one.op {
                Op::Write { pieces, .. } if spooled.is_none() => {
                    ahead.take(one.id.seq, &staged(pieces, copies))
                }
                _ => None,
            };
            let load = self.load(one, Stages { any: stages, whole: ahead.whole, copies }, staging);
            async move {
                match spooled {
                    Some(loaded) => Ok((loaded, Vec::new())),
                    None => load.await,
                }
            }
        });
        let loads = futures_util::future::join_all(loads).await;
        for (one, loaded) in ready.iter().zip(loads) {
            match loaded {
                Ok((loaded, files)) => {
                    placed.push(loaded);
                    copied.extend(files);
                }
                Err(e) if e.kind == ErrorKind::Io && self.is_damaged(one) => {
                    tracing::error!(account = %self.account, "{e}");
                    self.give_up(&mut self.tree.lock(), &one.group, ErrorKind::Damaged);
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        ready.truncate(placed.len());
        Ok((ready, placed, copied))
    }

    /// What an operation writes could not be staged on the home's disk.
    async fn not_spooled(
        self: &Arc<Self>,
        one: &Ready,
        object: u64,
        e: Error,
        ahead: &mut Ahead,
    ) -> Result<()> {
        tracing::debug!(account = %self.account, "not staged on the home's disk: {e}");
        match e.kind {
            // The account's own directory may have less room than the file's place, and in parts the earlier content goes first.
            ErrorKind::NoSpace | ErrorKind::Quota | ErrorKind::Unsupported => ahead.spooling.pause(self),
            _ if crate::fetch::is_out_of_reach(&e) => return Err(e),
            ErrorKind::Io if self.is_damaged(one) => {
                tracing::error!(account = %self.account, "{e}");
                self.give_up(&mut self.tree.lock(), &one.group, ErrorKind::Damaged);
            }
            _ => {
                ahead.spooling.forget(object);
                return Err(e);
            }
        }
        Ok(())
    }

    fn is_damaged(&self, ready: &Ready) -> bool {
        let Op::Write { pieces, .. } = &ready.op else { return false };
        pieces.iter().any(|piece| match piece {
            home::Piece::Data(_, slice) => self.bytes_of(slice).is_err(),
            home::Piece::Truncate(_) => false,
        })
    }

    /// Fetches the bytes of an operation from the data log; long ones go ahead of it, or did so already.
    /// Answers besides of which files the home copies.
    async fn load(
        &self,
        ready: &Ready,
        stages: Stages,
        staging: Option<Staging>,
    ) -> Result<(Placed, Vec<u64>)> {
        let mut inline = match &ready.op {
            Op::Write { pieces, .. } => Inline::new(pieces, stages.copies),
            _ => Inline::new(&[], false),
        };
        let id = staging.as_ref().map_or_else(|| self.next_staging(), Staging::id);
        let mut staged = 0;
        let mut rest: Vec<Bytes> = Vec::new();
        let op = ready.op.clone().try_map(Ok::<_, Error>, |slice| {
            let len = slice.len as u64;
            if !stages.any || inline.takes(len) {
                return Ok(Payload::Inline(self.bytes_of(&slice).map_err(local)?));
            }
            if staging.is_none() {
                rest.push(self.bytes_of(&slice).map_err(local)?);
            }
            let at = staged;
            staged += len;
            Ok(Payload::Staged(Staged { op: id, at, len }))
        })?;
        let copied = match staging {
            Some(staging) => staging.held().await?,
            None if rest.is_empty() => Vec::new(),
            None if stages.whole => stage(&*self.home, (id, 0), rest).await.map(|()| Vec::new())?,
            None => {
                let object = self.object(&self.tree.lock(), ready)?;
                self.stage((id, 0), object, rest).await?
            }
        };
        let placed = Placed { id: ready.id, time: ready.time, plain: ready.plain, resent: ready.resent, op };
        Ok((placed, copied))
    }

    /// The bytes of a slice.
    pub(super) fn bytes_of(&self, slice: &Slice) -> crate::env::Result<Bytes> {
        let bytes = match &slice.stored {
            Stored::Inline(bytes) => bytes.clone(),
            Stored::Extent(extent) => self.data.read_extent(extent)?,
        };
        let part = bytes.slice(slice.skip..slice.skip + slice.len);
        // What is not wanted of a large buffer would stay in memory with it.
        Ok(if part.len() < bytes.len() / 2 { Bytes::copy_from_slice(&part) } else { part })
    }

    /// Takes outcomes in. They are a prefix of the batch; the rest stays in the queue.
    async fn take(self: &Arc<Self>, ready: &[Ready], outcomes: Vec<Outcome>) -> Result<()> {
        if outcomes.is_empty() || outcomes.len() > ready.len() {
            return Err(Error::new(ErrorKind::Io, "the home answered another batch than it was asked"));
        }
        for (one, outcome) in ready.iter().zip(outcomes) {
            match outcome {
                Outcome::Done(done) => self.done(&mut self.tree.lock(), &one.group, &done)?,
                Outcome::Conflict(theirs) => self.conflicted(one, theirs).await?,
                Outcome::Refused(kind) if self.goes_in_parts(one, kind) => return Ok(()),
                Outcome::Refused(kind) => self.refused(one, kind).await?,
            }
        }
        Ok(())
    }

    /// Whether what the home had no room for beside what it was to take the place of is sent again without that, at once.
    fn goes_in_parts(&self, one: &Ready, kind: ErrorKind) -> bool {
        let is_of_space = matches!(kind, ErrorKind::NoSpace | ErrorKind::Quota);
        let goes = is_of_space && self.spooled_by(one).is_some();
        let queue = &mut self.tree.lock().queue;
        for seq in one.group.seqs.iter().filter(|_| goes) {
            queue.get_mut(*seq).into_iter().for_each(|op| op.refusals += 1);
        }
        goes
    }
}

/// Sends what an operation refers to as `id`, one payload behind the other from position `from` on; short ones go together.
pub(super) async fn stage(home: &dyn Home, (id, from): (OpId, u64), payloads: Vec<Bytes>) -> Result<()> {
    let sends = joined(payloads).into_iter().map(|(at, bytes)| home.stage(id, from + at, bytes));
    futures_util::future::try_join_all(sends).await.map(drop)
}

/// Neighbours joined while they are short, with the position of each result.
fn joined(parts: Vec<Bytes>) -> Vec<(u64, Bytes)> {
    let mut sends: Vec<(u64, Vec<Bytes>, usize)> = Vec::new();
    let mut at = 0;
    for part in parts {
        let len = part.len();
        match sends.last_mut() {
            Some((_, together, sum)) if *sum + len <= limits::STAGE_BYTES => {
                together.push(part);
                *sum += len;
            }
            _ => sends.push((at, vec![part], len)),
        }
        at += len as u64;
    }
    let whole =
        |mut parts: Vec<Bytes>| if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() };
    sends.into_iter().map(|(at, parts, _)| (at, whole(parts))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_staged_goes_in_few_parts_and_whole() {
        let parts: Vec<Bytes> = (0..300).map(|i| Bytes::from(vec![i as u8; 1 + i * 37 % 9000])).collect();
        let large = Bytes::from(vec![7; limits::STAGE_BYTES + 5]);
        let all = [&parts[..], &[large], &parts[..]].concat();
        let sends = joined(all.clone());
        assert!(sends.len() < 12, "{} parts", sends.len());
        let mut next = 0;
        for (at, bytes) in &sends {
            assert_eq!(*at, next);
            next += bytes.len() as u64;
        }
        let sent: Vec<u8> = sends.iter().flat_map(|(_, b)| b.to_vec()).collect();
        assert!(sent == all.concat());
    }
}
