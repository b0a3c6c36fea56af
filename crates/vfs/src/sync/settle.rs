//! Takes outcomes in: confirms identities and attributes, retires records, parks what the home refused; and gives an
//! operation another form in its place.

use super::decide::describe;
use super::place::Ready;
use super::prefer::moved_by;
use super::queue::demand::{Demand, payload};
use super::queue::{self, Group, Pending, Queue};
use crate::conflict::Theirs;
use crate::fetch::Way;
use crate::inode::{Inode, ROOT_ID, Settled, Tree, is_hidden, local};
use crate::journal::{Amend, Body, Change, Fate, Retire, Stored};
use crate::limits;
use crate::meta;
use crate::overlay::overlay;
use crate::volume::Volume;
use home::{Attr, Done, Error, ErrorKind, Loc, New, Op, Piece, Result, Time};
use std::sync::Arc;
use std::time::Duration;

impl Volume {
    /// The home has it.
    pub fn done(&self, tree: &mut Tree, group: &Group, done: &Done) -> Result<()> {
        tree.tick += 1;
        let ops = self.take_out(tree, group);
        let Some(last) = ops.last().map(|(_, p)| p.change.clone()) else { return Ok(()) };
        // What nobody had seen before is noted already, with the session that waits for it.
        let seen = ops.iter().all(|(_, op)| op.overlaid).then(|| tree.peek(last.object).and_then(meta::seen));
        if let Op::SetXattr { object, name, value, .. } = &last.op {
            tree.confirm_xattr(*object, name, value.as_ref());
        }
        let other = self.confirm(tree, &last, done);
        if let (Some(object), Some(seq)) = (queue::destroyed(&last), group.seqs.last()) {
            self.drop_destroyed(tree, object, *seq)?;
            let place = queue::names(&last).last();
            let copied = place.map_or(Ok(()), |place| self.copy_left_over(tree, object, place));
            // What has no copy stays refused, and is shown; this one is done nevertheless.
            copied.unwrap_or_else(
                |e| tracing::error!(account = %self.account, "no copy of what was written: {e}"),
            );
        }
        if seen.is_some_and(|seen| seen != tree.peek(last.object).and_then(meta::seen)) {
            tree.notes.attributes(last.object, 0);
        }
        // With the first record: a crash in between must not leave the old version under a part of the changes.
        let mut bindings = bindings_after(tree, &last, other);
        bindings.iter().for_each(|b| tree.unsaved(b.object));
        for (seq, op) in ops {
            let bindings = std::mem::take(&mut bindings);
            self.retire(seq, &op.change, Fate::Done(bindings))?;
            // Who waits for it waits until that is durable.
            op.waiter.map(|w| w.send(Ok(())));
        }
        if last.plain && matches!(last.op, Op::Write { .. }) {
            // Others may have written between our look and our write: what is cached may be of neither version.
            self.relay(tree, last.object);
        }
        if let (Op::Write { .. }, Some(attr)) = (&last.op, done.attr) {
            self.alike.touch(last.object, attr.size);
        }
        if tree.peek(last.object).is_some_and(|inode| inode.pending == 0) {
            self.data.forget_before(last.object);
        }
        tree.drop_gone(last.object);
        Ok(())
    }

    /// The home has done what took the last name of an object, or that can be done no more: what was to be done to its content
    /// before that has no place any more, and what was never seen there need not be made. First: a restart after that would not
    /// know who took the name.
    fn drop_destroyed(&self, tree: &mut Tree, object: u64, seq: u64) -> Result<()> {
        let is_left = |n: &Inode| n.pending > 0 && n.gone && n.link.is_none() && n.binding.is_none();
        if !tree.peek(object).is_some_and(is_left) {
            return Ok(());
        }
        let earlier = || tree.queue.iter().take_while(|(s, _)| *s < seq);
        let is_own = |change: &Change| own_change(change) == Some(object);
        let makes = |change: &Change| matches!(change.op, Op::Create { .. }) && change.object == object;
        let is_elsewhere = |change: &Change| queue::objects(change).all(|id| id != object);
        let is_unseen = |id| tree.peek(id).is_some_and(|n| n.home_id.ino == 0);
        // A home without identities shows none of anything.
        let is_moot = is_unseen(object)
            && !is_unseen(ROOT_ID)
            && earlier().all(|(_, p)| is_own(&p.change) || makes(&p.change) || is_elsewhere(&p.change));
        // Of mode `strict` somebody may wait, who is told when it is sent.
        let is_its = |p: &Pending| !p.change.plain && (is_own(&p.change) || is_moot && makes(&p.change));
        let seqs = earlier().filter(|(_, p)| is_its(p)).map(|(seq, _)| seq).collect();
        self.drop_unnamed(tree, &Group::of(seqs))
    }

    /// Nobody can name the object any more: its content has no place to go.
    pub(super) fn drop_unnamed(&self, tree: &mut Tree, group: &Group) -> Result<()> {
        tree.tick += 1;
        for (seq, op) in self.take_out(tree, group) {
            self.retire(seq, &op.change, Fate::Dropped)?;
        }
        tree.queue.decide(self.lane.last());
        Ok(())
    }

    /// Takes the records of a group out of the queue and out of the counts of what they touch.
    pub fn take_out(&self, tree: &mut Tree, group: &Group) -> Vec<(u64, Pending)> {
        let mut ops = Vec::with_capacity(group.seqs.len());
        for seq in &group.seqs {
            let Some(op) = tree.queue.remove(*seq) else { continue };
            if !op.overlaid {
                self.overlay_done(tree, *seq, &op.change);
                tree.notes.change(&op.change, op.origin);
            }
            self.release(tree, *seq, &op);
            ops.push((*seq, op));
        }
        ops
    }

    /// Lays a change over the caches that nobody has seen before the home had it: times are the home's.
    fn overlay_done(&self, tree: &mut Tree, seq: u64, change: &Change) {
        let shown: Vec<_> =
            queue::objects(change).map(|id| (id, tree.get(id).ok().and_then(|n| n.shown))).collect();
        overlay(tree, seq, change);
        for (id, shown) in shown {
            if let Ok(inode) = tree.get(id) {
                inode.shown = shown;
            }
        }
    }

    /// Takes an operation out of the counts of what it touches.
    pub fn release(&self, tree: &mut Tree, seq: u64, op: &Pending) {
        let change = &op.change;
        let settled = Settled { tick: tree.tick, seq };
        let now = self.env.clock.instant();
        for id in queue::objects(change) {
            let Ok(inode) = tree.get(id) else { continue };
            inode.pending = inode.pending.saturating_sub(u32::from(op.overlaid));
            inode.settled = settled;
            inode.cuts.remove(&seq);
            if inode.pending == 0 {
                tree.unsaved(id);
            }
        }
        for (dir, name) in queue::names(change) {
            let Ok(node) = tree.names_mut(dir) else { continue };
            let slot = node.slot_mut(&name);
            slot.pending = slot.pending.saturating_sub(1);
            slot.settled = settled;
            slot.at = now;
        }
    }

    /// Records an outcome. Only then may the bytes of the change be evicted: a record that comes back after a
    /// power cut must find its extents.
    /// Where that is impossible nothing more is accepted: a restart would replay the change over later ones.
    pub fn retire(&self, seq: u64, change: &Change, how: Fate) -> Result<()> {
        let is_done = matches!(how, Fate::Done(_));
        if let Err(e) = self.lane.append(Body::Retire(Retire { seq, how })) {
            self.lane.give_up(&format!("an outcome could not be recorded: {e}"));
            return Err(local(e));
        }
        let Op::Write { pieces, .. } = &change.op else { return Ok(()) };
        for piece in pieces {
            match piece {
                Piece::Truncate(size) if is_done => self.data.cut_before(change.object, *size),
                Piece::Data(_, Stored::Extent(extent)) if is_done => self.data.unpin(extent),
                Piece::Data(_, Stored::Extent(extent)) => self.data.give_up(extent, true),
                _ => {}
            }
        }
        Ok(())
    }

    /// The home does not do it.
    pub async fn refused(self: &Arc<Self>, one: &Ready, kind: ErrorKind) -> Result<()> {
        let is_missing = matches!(kind, ErrorKind::NotFound | ErrorKind::Stale | ErrorKind::NotDir);
        let way = if is_missing && !one.plain { self.way_of(one).await? } else { Way::There };
        if way == Way::Found {
            return Ok(());
        }
        let kind = if way == Way::Lost { ErrorKind::NotFound } else { kind };
        if one.resent
            && let Some(done) = self.was_done(one, kind).await?
        {
            return self.done(&mut self.tree.lock(), &one.group, &done);
        }
        let mut tree = self.tree.lock();
        if one.plain {
            return self.fail(&mut tree, &one.group, kind);
        }
        if matches!(&one.op, Op::Link { name, .. } if is_hidden(self.shared.gateway, name)) {
            let object = self.object(&tree, one)?;
            // There are no hard links: the open file loses its content when its name is taken.
            self.drop_group(&mut tree, &one.group)?;
            let inode = tree.get(object)?;
            inode.gone = inode.link.is_none();
            return Ok(());
        }
        let removes =
            matches!(one.op, Op::Remove { .. }) && (way == Way::Lost || kind == ErrorKind::NotFound);
        // What is in a directory that is gone has gone with it.
        if let Some(state) = met(&one.op, kind).or(removes.then_some(Theirs::Gone)) {
            drop(tree);
            return self.decided(one, state, None).await;
        }
        self.park(&mut tree, &one.group, kind);
        Ok(())
    }

    /// Nothing can be sent for an operation: in mode `strict` it fails, else it is parked.
    pub fn give_up(&self, tree: &mut Tree, group: &Group, kind: ErrorKind) {
        let plain = group.seqs.first().and_then(|s| tree.queue.get(*s)).is_some_and(|p| p.change.plain);
        match plain {
            true => {
                // The lane has ended if that fails, and says so.
                let _ = self.fail(tree, group, kind);
            }
            false if kind == ErrorKind::Stale && self.is_lost(tree, group) => {
                // An open file whose name was taken at a home without hard links.
                if let Err(e) = self.drop_unnamed(tree, group) {
                    tracing::error!(account = %self.account, "{e}");
                }
            }
            false if kind == ErrorKind::NotFound => {
                let saved = self.saves_nameless(tree, group);
                let dropped =
                    saved.and_then(|saved| if saved { Ok(()) } else { self.drop_group(tree, group) });
                if let Err(e) = dropped {
                    tracing::error!(account = %self.account, "{e}");
                }
            }
            false => self.park(tree, group, kind),
        }
    }

    /// Whether a group changes an object of which somebody here has taken the last name, and which has none at the home where the
    /// group would run. What others have taken the last name from is not lost: its content is only here.
    fn is_lost(&self, tree: &mut Tree, group: &Group) -> bool {
        let change = group.seqs.first().and_then(|s| tree.queue.get(*s)).map(|p| &p.change);
        if let Some(Change { op: Op::Remove { dir, name, object, .. }, .. }) = change {
            // The home never had that name for it. What is not known at all was given up before, and a crash has left this.
            return tree.peek(*object).is_none_or(|inode| {
                let mut places = inode.binding.iter().chain(&inode.more_bindings);
                !places.any(|(d, n)| (d, n) == (dir, name))
            });
        }
        let own = change.and_then(own_change).and_then(|id| tree.peek(id));
        own.is_some_and(|inode| inode.link.is_none() && inode.gone)
    }

    /// Keeps an operation until somebody decides; what depends on it waits.
    pub fn park(&self, tree: &mut Tree, group: &Group, kind: ErrorKind) {
        let mut refused = Vec::new();
        for seq in &group.seqs {
            let Some(op) = tree.queue.get_mut(*seq) else { continue };
            if op.parked.replace(kind).is_none() {
                refused.push(op.change.clone());
            }
            op.again = Some(self.env.clock.instant() + pause(kind, op.refusals));
            op.refusals += 1;
            if !std::mem::replace(&mut op.late, true) {
                self.record_late(&mut tree.queue, *seq);
            }
        }
        let mut said = None;
        for change in refused {
            let what = Some(describe(tree, &change));
            if let Some(what) = what.as_ref().filter(|_| said != what) {
                let by = crate::Parked::by(kind == ErrorKind::Damaged);
                tracing::warn!(account = %self.account, "{by}: {what}: {kind}");
            }
            said = what;
            if let (Op::Write { .. }, Ok(inode)) = (&change.op, tree.get(change.object)) {
                inode.refused = Some(kind);
            }
        }
        self.outcomes.send_modify(|n| *n += 1);
    }

    /// Records that what came after an operation may be executed before it. Nothing of that is sent until this is durable.
    pub fn record_late(&self, queue: &mut Queue, seq: u64) {
        match self.lane.append(Body::Late(seq)) {
            Ok(record) => queue.decide(record),
            Err(e) => self.lane.give_up(&format!("it could not be recorded that a change waits: {e}")),
        }
    }

    /// Mode `strict`: the caller gets the error; an acknowledged unstable write is undone, and the verifier says so.
    fn fail(&self, tree: &mut Tree, group: &Group, kind: ErrorKind) -> Result<()> {
        tree.tick += 1;
        for seq in &group.seqs {
            let Some(op) = tree.queue.remove(*seq) else { continue };
            self.release(tree, *seq, &op);
            if let Some(key) = &op.change.retry {
                self.shared.replies.lock().remove(key);
            }
            if op.overlaid {
                self.undo(tree, &op.change);
                self.relay(tree, op.change.object);
            }
            if op.overlaid && op.waiter.is_none() {
                tree.get(op.change.object)?.refused = Some(kind);
                *self.losses.lock() += 1;
            }
            self.retire(*seq, &op.change, Fate::Refused(kind))?;
            let error = Error::new(kind, format!("{}: {kind}", describe(tree, &op.change)));
            op.waiter.map(|w| w.send(Err(error)));
        }
        Ok(())
    }

    /// Mode `strict`: nobody waits any more for an operation that has no outcome. Whether the home has done it is not
    /// known, and whoever called is told so; it is not sent again.
    pub fn abandon(&self, seq: u64) {
        let group = Group::one(seq);
        // The lane has ended if that fails, and says so.
        let _ = self.fail(&mut self.tree.lock(), &group, ErrorKind::Io);
        self.outcomes.send_modify(|n| *n += 1);
    }

    /// Mode `strict`: the home stays out of reach. What nobody has seen and nobody waits for any more is not done when
    /// it comes back.
    pub fn abandon_unawaited(&self) {
        let left = |p: &Pending| !p.overlaid && p.waiter.is_some() && !p.is_awaited();
        let left: Vec<u64> =
            self.tree.lock().queue.plain().filter(|(_, p)| left(p)).map(|(seq, _)| seq).collect();
        left.into_iter().for_each(|seq| self.abandon(seq));
    }

    /// Forgets what a change was believed to have done, so that the home is asked again.
    pub fn undo(&self, tree: &mut Tree, change: &Change) {
        for (dir, name) in queue::names(change) {
            // What is still unsent for the name shadows what the home says.
            let waits = tree.names(dir).is_ok_and(|node| node.slot(&name).is_some_and(|s| s.pending > 0));
            let left = waits.then(|| {
                let laid = tree.queue.iter().rev().filter(|(_, p)| p.overlaid);
                laid.filter_map(|(_, p)| queue::child_after(&p.change, dir, &name)).next()
            });
            if let Ok(node) = tree.names_mut(dir) {
                match left.flatten() {
                    // Nothing came of it that an older answer would not tell.
                    Some(child) => {
                        let slot = node.slot_mut(&name);
                        (slot.child, slot.settled) = (child, Settled::default());
                    }
                    None => node.forget(&name),
                }
            }
            tree.unlist(dir);
            tree.notes.entry(dir, &name, 0);
        }
        if let Op::Rename { to: dir, new_name: name, .. } | Op::Link { dir, name, .. } = &change.op
            && let Ok(inode) = tree.get(change.object)
        {
            inode.drop_link(&(*dir, name.clone()));
        }
        for id in queue::objects(change) {
            let bound = tree.get(id).ok().and_then(|inode| inode.binding.clone());
            let taken = bound.is_some_and(|(dir, name)| {
                let node = tree.names(dir).ok();
                let slot = node.and_then(|node| node.slot(&name)).unwrap_or_default();
                slot.child.is_some_and(|child| child != id)
            });
            // What a later change takes the last name from stays without one.
            let later = tree.queue.iter().any(|(_, p)| p.overlaid && queue::destroyed(&p.change) == Some(id));
            let Ok(inode) = tree.get(id) else { continue };
            inode.gone &= later;
            if inode.link.is_none() && !taken && !inode.gone {
                inode.link = inode.binding.clone();
            }
            if inode.pending == 0 {
                inode.attr = None;
                // Whatever the home shows now comes after what clients saw.
                inode.shown = inode.shown.map(|(_, time)| (None, time));
                self.data.drop_object(id);
            }
            let kind = inode.kind;
            enter_unsent(tree, id);
            tree.note(id);
            tree.notes.object(id, kind, 0);
        }
    }

    /// A refusal of an operation that was sent before may only mean that it was done then.
    async fn was_done(&self, one: &Ready, kind: ErrorKind) -> Result<Option<Done>> {
        let path = match (&one.op, kind) {
            (Op::Rename { to, new_name, .. }, ErrorKind::NotFound | ErrorKind::Stale) => {
                to.path.join(new_name)
            }
            (Op::Create { dir, name, .. } | Op::Link { dir, name, .. }, ErrorKind::Exists) => {
                dir.path.join(name)
            }
            (Op::Remove { .. }, ErrorKind::NotFound) => return Ok(Some(Done { attr: None, dirs: vec![] })),
            _ => return Ok(None),
        };
        let kind = self.object_kind(one);
        let Ok(is_its) = self.is_of_object(one) else { return Ok(None) };
        let is_it = |attr: &Attr| match &one.op {
            Op::Rename { .. } | Op::Link { .. } if !one.plain => is_its(attr),
            _ if !one.plain => true,
            Op::Create { .. } => attr.atime == one.time,
            Op::Rename { object, .. } | Op::Link { object, .. } => object.id.is_some_and(|id| id == attr.id),
            _ => false,
        };
        match self.home.stat(&Loc { path, id: None }).await {
            Ok(seen) if Some(seen.attr.kind) == kind && is_it(&seen.attr) => {
                Ok(Some(Done { attr: Some(seen.attr), dirs: vec![] }))
            }
            Err(e) if crate::fetch::is_out_of_reach(&e) => Err(e),
            _ => Ok(None),
        }
    }

    fn object_kind(&self, one: &Ready) -> Option<home::Kind> {
        let mut tree = self.tree.lock();
        let object = tree.queue.get(*one.group.seqs.first()?)?.change.object;
        tree.get(object).ok().map(|n| n.kind).or(match &one.op {
            Op::Create { new: New::File, .. } => Some(home::Kind::File),
            Op::Create { new: New::Dir, .. } => Some(home::Kind::Dir),
            _ => None,
        })
    }

    /// Whether what is somewhere is the object of an operation: by its identity, or, of a file, by the time of an unsent change, which
    /// may have given it another one. Of a directory whose identity is not known, anything may be it; a file would be changed
    /// and removed as ours.
    fn is_of_object(&self, one: &Ready) -> Result<impl Fn(&Attr) -> bool + use<>> {
        let mut tree = self.tree.lock();
        let id = self.object(&tree, one)?;
        let known = tree.get(id).map(|n| n.home_id).unwrap_or_default();
        let own = tree.queue.iter().filter(|(_, p)| p.change.object == id);
        let own: Vec<Time> = own.filter_map(|(_, p)| p.change.after.map(|after| after.mtime)).collect();
        Ok(move |attr: &Attr| {
            let is_file = attr.kind == home::Kind::File;
            let is_unknown = attr.id.ino == 0 || known.ino == 0 && !is_file;
            is_unknown || attr.id == known || is_file && own.contains(&attr.mtime)
        })
    }

    /// The object that an operation changes.
    pub(super) fn object(&self, tree: &Tree, one: &Ready) -> Result<u64> {
        let first = one.group.seqs.first().and_then(|s| tree.queue.get(*s));
        first.map(|p| p.change.object).ok_or_else(|| ErrorKind::Stale.into())
    }

    /// Ours would have destroyed what we have not seen: theirs stays, ours is forgotten.
    pub(super) fn drop_ours(&self, one: &Ready) -> Result<()> {
        self.drop_group(&mut self.tree.lock(), &one.group)
    }

    pub(super) fn drop_group(&self, tree: &mut Tree, group: &Group) -> Result<()> {
        tree.tick += 1;
        for (seq, op) in self.take_out(tree, group) {
            self.undo(tree, &op.change);
            self.retire(seq, &op.change, Fate::Conflict)?;
            op.waiter.map(|w| w.send(Err(ErrorKind::Stale.into())));
        }
        tree.queue.decide(self.lane.last());
        Ok(())
    }

    /// Gives an operation in the queue another form, also in the journal.
    pub fn amend(&self, tree: &mut Tree, seq: u64, op: Op<u64, Stored>) -> Result<()> {
        let record = self.lane.append(Body::Amend(Amend { seq, op: op.clone() })).map_err(local)?;
        tree.queue.decide(record);
        let Some(old) = tree.queue.remove(seq) else { return Ok(()) };
        self.release(tree, seq, &old);
        let moved = moved_by(&old.change.op, &op);
        let mut change = Change { op, ..old.change };
        if let Some(after) = &mut change.after {
            after.size += moved;
        }
        let (bytes, demand) = (payload(&change), Demand::of(&change));
        let op = Pending { change: change.clone(), resent: false, late: true, bytes, demand, ..old };
        tree.queue.push(seq, if op.stopped.is_some() { op.resumed() } else { op });
        for id in queue::objects(&change) {
            if let Ok(inode) = tree.get(id) {
                inode.pending += 1;
            }
        }
        for (dir, name) in queue::names(&change) {
            if let Ok(node) = tree.names_mut(dir) {
                node.slot_mut(&name).pending += 1;
            }
        }
        Ok(())
    }
}

/// An object of which anything is unsent keeps its name, whatever the home has there by now, until that has an outcome: where
/// the name counted as free, another object could be given it, and what is unsent would have no place.
fn enter_unsent(tree: &mut Tree, id: u64) {
    let unsent = tree.peek(id).filter(|inode| inode.pending > 0);
    let Some((dir, name)) = unsent.and_then(|inode| inode.link.clone()) else { return };
    if let Ok(node) = tree.names_mut(dir) {
        let slot = node.slot_mut(&name);
        if slot.pending == 0 {
            slot.child.get_or_insert(id);
        }
    }
}

/// The object of which a change touches nothing but the content and attributes.
fn own_change(change: &Change) -> Option<u64> {
    matches!(change.op, Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. }).then_some(change.object)
}

/// What a refusal says of what the home has in the place of our base, if it does.
fn met<R, D>(op: &Op<R, D>, kind: ErrorKind) -> Option<Theirs> {
    use ErrorKind as E;
    match (op, kind) {
        // What it works on was taken away at the home, or something else is there.
        (
            Op::Rename { .. } | Op::Link { .. } | Op::SetAttr { .. } | Op::SetXattr { .. },
            E::NotFound | E::Stale,
        ) => Some(Theirs::Gone),
        (Op::Remove { is_dir: true, .. }, E::NotEmpty) => Some(Theirs::Modified),
        (Op::Remove { is_dir: true, .. }, E::NotDir) => Some(Theirs::Other),
        (Op::Remove { is_dir: false, .. }, E::IsDir) => Some(Theirs::Dir),
        _ => None,
    }
}

/// How long an operation waits that was refused `before` times already. What the home refuses for this reason it may do
/// soon, when somebody has freed space, mounted the file system for writing again, or changed permissions. Any other
/// reason may pass as well (a limit is raised there), but is asked about less and less often.
fn pause(kind: ErrorKind, before: u32) -> Duration {
    use ErrorKind as E;
    match kind {
        E::NoSpace | E::Quota | E::ReadOnly | E::TextBusy | E::Busy | E::Access | E::Perm | E::Io => {
            limits::REFUSED_PAUSE
        }
        _ => limits::REFUSED_PAUSE.saturating_mul(1 << before.min(16)).min(limits::REFUSED_PAUSE_MAX),
    }
}

/// Identities that an outcome changed: that of the object, and of the one whose name it took. A restart must not find
/// the latter under that name again. First that of the one which has lost its identity to the object. In mode `strict` also the
/// directories: the ctimes that come with the outcome are shown, and nothing else tells them after a restart.
fn bindings_after(tree: &mut Tree, change: &Change, other: Option<u64>) -> Vec<crate::journal::Binding> {
    let replaced = match &change.op {
        Op::Rename { replaced, .. } => replaced.as_ref().map(|(old, _)| *old),
        _ => None,
    };
    let dirs = queue::names(change).map(|(dir, _)| dir).filter(|_| change.plain);
    let ids = [other, Some(change.object), replaced].into_iter().flatten().chain(dirs);
    ids.filter_map(|id| tree.binding(id)).collect()
}
