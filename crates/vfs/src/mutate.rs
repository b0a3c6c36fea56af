//! The one door for changes: journal record, overlay on the caches, place in the queue home.

use crate::data::{DataLog, Room};
use crate::inode::{Inode, Tree, local};
use crate::journal::{Body, Change, Extent, Stored};
use crate::limits;
use crate::overlay::{lay_bytes, overlay};
use crate::sync::queue::demand::{Demand, held, payload};
use crate::sync::queue::{Pending, destroyed, names, objects};
use crate::types::Oid;
use crate::volume::Volume;
use bytes::Bytes;
use home::{Error, ErrorKind, Kind, Op, Piece, Result};
use tokio::sync::oneshot;

/// A change that was accepted: what to wait for before its answer is true.
pub struct Ticket {
    /// The number of its record.
    pub seq: u64,
    /// In mode `strict`: its outcome at the home.
    pub outcome: Option<oneshot::Receiver<Result<()>>>,
    /// Whether it changes names: then handles depend on its outcome.
    pub names: bool,
}

impl Volume {
    /// Accepts a change of session `origin` under the lock of the tree: journal, overlay, queue. The caller releases
    /// the lock and then waits with [`Volume::settled`].
    pub fn submit(&self, tree: &mut Tree, origin: u64, change: Change) -> Result<Ticket> {
        objects(&change).for_each(|id| keep_only_base(tree, &self.data, id));
        let (record, laid) = (change.clone(), !change.plain);
        self.accept(tree, (origin, change), record, laid)
    }

    /// Like [`Volume::submit`], for a write whose bytes are in the data log already, laid after a [`keep_only_base`]. A
    /// small payload is in the record as well, so that only the record has to be synced.
    pub fn submit_write(
        &self,
        tree: &mut Tree,
        (origin, change): (u64, Change),
        inline: Option<Bytes>,
    ) -> Result<Ticket> {
        let (file, extents) = (change.object, change.extents().copied().collect::<Vec<Extent>>());
        let mut record = change.clone();
        if let (Some(bytes), Op::Write { pieces, .. }) = (inline, &mut record.op) {
            for piece in pieces {
                if let Piece::Data(_, stored) = piece {
                    *stored = Stored::Inline(bytes.clone());
                }
            }
        }
        let ticket = self.accept(tree, (origin, change), record, true);
        if ticket.is_err() {
            extents.iter().for_each(|e| self.data.unpin(e));
            self.relay(tree, file);
        }
        ticket
    }

    /// Mode `strict`: a write that its caller waits for. Its bytes are in the change alone. The record does not have
    /// them: it is never sent again after a restart, because its caller has no answer and comes again.
    pub fn submit_through(&self, tree: &mut Tree, (origin, change): (u64, Change)) -> Result<Ticket> {
        let mut record = change.clone();
        if let Op::Write { pieces, .. } = &mut record.op {
            pieces.clear();
        }
        self.accept(tree, (origin, change), record, false)
    }

    /// Appends the record of a change and queues the change. If it is not laid over the caches now, the ticket waits
    /// for its outcome.
    fn accept(
        &self,
        tree: &mut Tree,
        (origin, mut change): (u64, Change),
        mut record: Change,
        laid: bool,
    ) -> Result<Ticket> {
        let held = held(&change);
        if tree.queue.len() >= limits::QUEUE_OPS
            || (held > 0 && tree.queue.held() + held > limits::XATTR_UNSENT)
        {
            return Err(ErrorKind::Full.into());
        }
        note_ctimes(tree, &change);
        [&mut change, &mut record].into_iter().for_each(|change| move_on(tree, change));
        // After a restart it has to be known which content the first unsent change of a file was made to.
        let is_first = |n: &Inode| n.pending == 0 && n.kind == Kind::File && n.base.is_some();
        let first: Vec<u64> = objects(&change).filter(|id| tree.peek(*id).is_some_and(is_first)).collect();
        first.into_iter().for_each(|id| tree.unlogged(id));
        self.log_bindings(tree)?;
        let seq = self.lane.append(Body::Change(record)).map_err(come_again)?;
        tree.ctimes.recorded(seq, &change, self.lane.durable());
        let (sender, outcome) = if !laid { Some(oneshot::channel()).unzip() } else { (None, None) };
        if let Some(key) = change.retry {
            self.shared.replies.lock().insert(key, Oid { volume: self.id, id: change.object });
        }
        // The bytes of a file go when it is committed; until then they may become fewer.
        let names = crate::sync::queue::names(&change).next().is_some();
        let at_once = !laid
            || !matches!(change.op, Op::Write { .. })
                && objects(&change)
                    .any(|id| tree.get(id).is_ok() && self.mode_in(tree, id).commits_at_home());
        let shown: Vec<u64> = objects(&change).filter(|_| laid && !self.plain()).collect();
        enqueue(tree, seq, change, origin, self.env.clock.instant(), laid, sender);
        tree.is_recorded(seq, &shown);
        if at_once {
            tree.queue.hurry(seq);
        }
        self.wake.notify_one();
        Ok(Ticket { seq, outcome, names })
    }

    /// Gives the bindings that reads handed out a record of their own. Not synced: a power cut may make only
    /// handles stale that no change has named. [`ErrorKind::Full`] while the local disk is full.
    pub fn log_bindings(&self, tree: &mut Tree) -> Result<()> {
        if !self.lane.has_room(0) && self.lane.poisoned().is_none() {
            return Err(Error::new(ErrorKind::Full, "the journal has no room"));
        }
        let bindings = tree.take_unlogged();
        let mut parts = bindings.chunks(limits::BINDINGS_PER_RECORD);
        while let Some(part) = parts.next() {
            if let Err(e) = self.lane.append(Body::Bind(part.to_vec())) {
                part.iter().chain(parts.flatten()).for_each(|b| tree.note(b.object));
                return Err(come_again(e));
            }
        }
        Ok(())
    }

    /// Fails where a new object with attributes of its own, which takes several changes, would not be accepted as a
    /// whole.
    pub fn check_room(&self, tree: &mut Tree) -> Result<()> {
        self.log_bindings(tree)?;
        let queued = tree.queue.len() + limits::CHANGES_OF_NEW <= limits::QUEUE_OPS;
        if !queued || !self.lane.has_room(limits::BYTES_OF_NEW) && self.lane.poisoned().is_none() {
            return Err(Error::new(ErrorKind::Full, "the journal has no room for a new object"));
        }
        Ok(())
    }

    /// Like [`Volume::log_bindings`], for what was only looked at: a full disk keeps nobody from reading. What has no
    /// record yet gets it with the first change that finds room.
    pub fn log_bindings_if_room(&self, tree: &mut Tree) -> Result<()> {
        if std::mem::take(&mut tree.found) {
            self.retry_astray(tree);
        }
        match self.log_bindings(tree) {
            Err(e) if e.kind == ErrorKind::Full => Ok(()),
            logged => logged,
        }
    }

    /// Waits until an accepted change keeps its promise: synced here, and in mode `strict` durable at the home.
    pub async fn settled(&self, ticket: Ticket) -> Result<()> {
        self.journalled(ticket.seq).await?;
        let _awaits = ticket.outcome.is_some().then(|| self.awaits());
        match ticket.outcome {
            None => Ok(()),
            Some(mut outcome) => loop {
                if let Ok(told) = tokio::time::timeout(limits::OUTCOME_PATIENCE, &mut outcome).await {
                    told.unwrap_or_else(|_| {
                        Err(Error::new(
                            ErrorKind::Io,
                            "the server is stopping; whether it was done is not known",
                        ))
                    })?;
                    // Who has an answer has a handle that a restart keeps: nobody looks for what was done then.
                    return if ticket.names { self.journalled(self.lane.last()).await } else { Ok(()) };
                }
                // Without a journal nothing more goes home, nor does what waits for something that was refused.
                let held = self.lane.poisoned().is_some()
                    || self.is_superseded()
                    || self.tree.lock().queue.is_stuck(ticket.seq);
                if held || self.is_given_up() {
                    self.abandon(ticket.seq);
                }
            },
        }
    }
}

impl Volume {
    /// Waits until a record is durable here, and what it changes found by its path. While the local disk is full an accepted change is held: it has taken
    /// effect, so that no error would be true.
    pub async fn journalled(&self, seq: u64) -> Result<()> {
        loop {
            match self.lane.synced(seq).await {
                Err(e @ crate::env::Error::Full(_)) => {
                    tracing::warn!(account = %self.account, "an accepted change waits: {e}");
                    tokio::time::sleep(limits::FULL_PAUSE).await;
                }
                synced => {
                    synced.map_err(local)?;
                    self.is_found(seq).await;
                    return Ok(());
                }
            }
        }
    }

    /// Waits until a change has left the queue.
    pub async fn outcome_of(&self, seq: u64) {
        let mut outcomes = self.outcomes.subscribe();
        loop {
            outcomes.borrow_and_update();
            if self.tree.lock().queue.get(seq).is_none() || outcomes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Lays unsent bytes over the cache for which there was no room at the restart. Until that is done, or the home has
    /// them, the file's content is nowhere as a whole: [`ErrorKind::Busy`].
    pub fn lay_late(&self, tree: &mut Tree, file: u64, room: Room) -> Result<()> {
        if !tree.unlaid.contains(&file) {
            return Ok(());
        }
        let laid = tree.queue.iter().filter(|(_, p)| p.overlaid && p.change.object == file);
        let unsent = laid.map(|(seq, _)| seq);
        for seq in unsent.collect::<Vec<u64>>() {
            let Some(op) = tree.queue.get_mut(seq) else { continue };
            lay_bytes(&self.data, &mut op.change, room).map_err(|e| match e.kind {
                ErrorKind::NoSpace => Error::new(ErrorKind::Busy, e.detail),
                _ => e,
            })?;
        }
        self.relay(tree, file);
        tree.unlaid.remove(&file);
        Ok(())
    }

    /// Indexes of a file's bytes only what unsent writes put there; the rest is fetched again. For bytes that were
    /// laid over the cache and then refused.
    pub fn relay(&self, tree: &Tree, file: u64) {
        self.data.drop_object(file);
        self.lay_unsent(tree, file);
    }

    /// Indexes what unsent writes put there, over all else.
    pub fn lay_unsent(&self, tree: &Tree, file: u64) {
        let laid = tree.queue.iter().filter(|(_, p)| p.overlaid).map(|(_, p)| &p.change);
        let unsent = laid.filter(|c| c.object == file);
        for change in unsent {
            let Op::Write { pieces, .. } = &change.op else { continue };
            for piece in pieces {
                match piece {
                    Piece::Truncate(size) => self.data.truncate(file, *size),
                    Piece::Data(at, Stored::Extent(extent)) => self.data.insert(file, *at, *extent),
                    Piece::Data(_, Stored::Inline(_)) => {}
                }
            }
        }
    }
}

/// Drops cached bytes of an object without unsent operations that are not of the version which the next one builds on:
/// its outcome would vouch for them. After a power cut the data log may be behind the journal.
pub fn keep_only_base(tree: &mut Tree, data: &DataLog, id: u64) {
    if let Ok(inode) = tree.get(id)
        && inode.kind == Kind::File
        && inode.pending == 0
        && data.version(id) != inode.base
    {
        data.drop_object(id);
    }
}

/// A change found no room: nothing has happened, and there will be room again, because the way home makes it.
pub(crate) fn come_again(e: crate::env::Error) -> Error {
    match e {
        crate::env::Error::Full(why) => Error::new(ErrorKind::Full, why),
        e => local(e),
    }
}

/// Puts a change into the queue and, if it is to be seen at once, over the caches.
pub fn enqueue(
    tree: &mut Tree,
    seq: u64,
    change: Change,
    origin: u64,
    since: std::time::Duration,
    overlaid: bool,
    waiter: Option<oneshot::Sender<Result<()>>>,
) {
    if overlaid {
        overlay(tree, seq, &change);
        tree.notes.change(&change, origin);
    }
    for id in objects(&change) {
        if let Ok(inode) = tree.get(id) {
            inode.pending += u32::from(overlaid);
            inode.last_seq = seq;
            tree.unsaved(id);
        }
    }
    for (dir, name) in crate::sync::queue::names(&change) {
        if let Ok(node) = tree.names_mut(dir) {
            node.slot_mut(&name).pending += 1;
        }
    }
    let bytes = payload(&change);
    let demand = Demand::of(&change);
    let fs = tree.peek(change.object).map_or(0, |inode| inode.home_id.fs);
    let frozen = tree.is_frozen(seq, &change);
    let op = Pending {
        change,
        origin,
        bytes,
        demand,
        fs,
        since,
        resent: false,
        parked: None,
        again: None,
        rebuilt: false,
        looked_at: 0,
        recovered: false,
        refusals: 0,
        late: false,
        stopped: None,
        frozen,
        said: None,
        overlaid,
        waiter,
    };
    tree.queue.push(seq, op);
}

/// A ctime of the home that is ahead of our clock is recorded before a change counts on from it that does not tell the
/// outcome: recovery must count from the same.
fn note_ctimes(tree: &mut Tree, change: &Change) {
    let floor = tree.ctimes.floor(change.time);
    let counted = names(change).map(|(dir, _)| dir).chain(destroyed(change));
    for id in counted.filter(|_| !change.plain) {
        let Ok(inode) = tree.get(id) else { continue };
        let Some(attr) = inode.attr else { continue };
        let ctime = crate::meta::shown_ctime(inode, &attr);
        let from_home = !matches!(inode.shown, Some((None, _)));
        if from_home && ctime >= change.time {
            inode.shown = Some((Some(attr.version()), ctime));
            tree.unlogged(id);
        } else if ctime < floor && attr.kind != Kind::Dir {
            inode.shown = Some((inode.shown.map_or(Some(attr.version()), |(version, _)| version), floor));
            tree.unlogged(id);
        }
    }
}

/// The ctime of what was there before is later than what an earlier process may have shown.
fn move_on(tree: &Tree, change: &mut Change) {
    let floor = tree.ctimes.floor(change.time).next();
    if let (false, Some(after)) = (matches!(change.op, Op::Create { .. }), &mut change.after) {
        after.ctime = after.ctime.max(floor);
    }
}
