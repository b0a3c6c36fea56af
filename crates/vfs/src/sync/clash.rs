//! Resolves conflicts as the table says, by amending the operation in its place, so that the resolution survives a crash
//! like any other change.

use super::decide::describe;
use super::ours::is_in_use;
use super::place::{self, Ready, has_name_after};
use super::prefer::Lost;
use super::queue::{self, Group, Pending};
use crate::conflict::{self, Ours, Policy, Resolution, Theirs};
use crate::data::{Part, Pin, Room};
use crate::inode::{Tree, is_hidden, local};
use crate::journal::{Change, Extent, Stored};
use crate::limits;
use crate::meta;
use crate::volume::Volume;
use home::{
    Attr, Done, Error, ErrorKind, HomeId, HomePath, Kind, Loc, Name, New, Op, Piece, Result, XattrHow,
};
use std::sync::Arc;

impl Volume {
    /// The home has something else than the base.
    pub async fn conflicted(self: &Arc<Self>, one: &Ready, theirs: Option<Attr>) -> Result<()> {
        if self.is_sent_again(one, theirs.as_ref()).await? {
            return Ok(());
        }
        {
            // What is resolved is the whole content.
            let mut tree = self.tree.lock();
            let object = self.object(&tree, one)?;
            self.lay_late(&mut tree, object, Room::Beyond)?;
        }
        let state = self.state_of(one, theirs.as_ref()).await?;
        let is_ours = matches!(state, Theirs::Own | Theirs::Equal);
        if !is_ours && (self.is_elsewhere(one, theirs)? || self.is_astray(one, theirs.as_ref()).await?) {
            return Ok(());
        }
        self.decided(one, state, theirs).await
    }

    /// Does what the table says of an operation that met `state`; `theirs` is what the home has there.
    pub(super) async fn decided(
        self: &Arc<Self>,
        one: &Ready,
        state: Theirs,
        theirs: Option<Attr>,
    ) -> Result<()> {
        let (object, ours, (policy, folder)) = {
            let mut tree = self.tree.lock();
            let object = self.object(&tree, one)?;
            let base = tree.get(object).ok().and_then(|inode| inode.base);
            let ours = Ours::of(&one.op, base.map_or(0, |base| base.size));
            (object, ours, self.policy_for(&mut tree, one, theirs.as_ref()))
        };
        let mut resolution = conflict::resolve(ours, state, policy);
        let said = match resolution {
            Resolution::Stop => Vec::new(),
            _ => self.tree.lock().queue.resume(&one.group.seqs),
        };
        if resolution.is_conflict() {
            let mut tree = self.tree.lock();
            self.count_conflict(&mut tree, object);
            let first = one.group.seqs.first().and_then(|seq| tree.queue.get(*seq));
            let what = first.map(|p| p.change.clone()).map(|change| describe(&mut tree, &change));
            let what = what.unwrap_or_default();
            tracing::warn!(account = %self.account, ?resolution, ?state, %what, "conflict at the home");
        }
        if let (Resolution::Append, Some(theirs)) = (resolution, &theirs) {
            if self.append(one, theirs).await? {
                return Ok(());
            }
            resolution = Resolution::KeepBoth;
        }
        self.carry_out(one, object, resolution, (theirs, folder)).await?;
        said.into_iter().for_each(|said| said.tell(resolution));
        Ok(())
    }

    /// Does what was decided of a conflict; `folder`: the one that has the policy.
    async fn carry_out(
        self: &Arc<Self>,
        one: &Ready,
        object: u64,
        resolution: Resolution,
        (theirs, folder): (Option<Attr>, HomePath),
    ) -> Result<()> {
        match resolution {
            Resolution::Overwrite if matches!(one.op, Op::Rename { .. } | Op::Remove { .. }) => {
                self.build_on(&mut self.tree.lock(), one, object, theirs)
            }
            Resolution::Apply => self.build_on(&mut self.tree.lock(), one, object, theirs),
            Resolution::Merge => {
                self.done(&mut self.tree.lock(), &one.group, &Done { attr: theirs, dirs: vec![] })
            }
            Resolution::Drop if self.saves_nameless(&mut self.tree.lock(), &one.group)? => Ok(()),
            Resolution::Drop => {
                self.drop_ours(one)?;
                self.reveal(one, object)
            }
            Resolution::Wait => {
                self.park(&mut self.tree.lock(), &one.group, ErrorKind::NotFound);
                Ok(())
            }
            Resolution::Stop => {
                self.freeze(&mut self.tree.lock(), &one.group, folder, theirs.as_ref());
                Ok(())
            }
            how => match (&one.op, &theirs) {
                (Op::Write { file, .. }, Some(attr))
                    if how == Resolution::Overwrite
                        && attr.kind == Kind::File
                        // What is unsent of that would be gone over unseen.
                        && !self.is_anothers(one, attr)? =>
                {
                    self.write_over(one, file, attr).await
                }
                (Op::Write { file, .. }, _) => self.copy_beside(one, file, how, theirs).await,
                _ => self.take_another_name(one, how, theirs),
            },
        }
    }

    /// What a person has said of this conflict, or wants of those in its folder. Where theirs is the base, somebody has it
    /// open for writing: no policy can know what comes of it.
    fn policy_for(&self, tree: &mut Tree, one: &Ready, theirs: Option<&Attr>) -> (Policy, HomePath) {
        let first = one.group.seqs.first().and_then(|seq| tree.queue.get(*seq));
        let said = first.and_then(|p| p.said.as_ref()).map(|said| said.policy);
        let Some((change, seen)) = first.map(|p| (p.change.clone(), p.stopped.clone())) else {
            return (Policy::default(), HomePath::root());
        };
        let (policy, folder) = self.policy_of(tree, &change);
        // A person has decided on what the home had then.
        let is_seen = seen.is_some_and(|seen| seen.theirs == theirs.map(Attr::version));
        let policy = said.filter(|said| is_seen || *said == Policy::KeepBoth).unwrap_or(policy);
        let in_use = theirs.is_some_and(|theirs| is_in_use(tree, one, theirs));
        (if in_use && policy != Policy::Stop { Policy::KeepBoth } else { policy }, folder)
    }

    /// What the home has is the base of an operation from now on: it is sent again, and meets that or something new.
    fn build_on(&self, tree: &mut Tree, one: &Ready, object: u64, theirs: Option<Attr>) -> Result<()> {
        let Some(attr) = theirs else { return Ok(()) };
        let Some(seq) = one.group.seqs.first().copied() else { return Ok(()) };
        let Some(change) = tree.queue.get(seq).map(|p| p.change.clone()) else { return Ok(()) };
        if let Op::Rename { from, name, object, to, new_name, replaced } = change.op {
            let Some(theirs) = self.known_as(tree, (to, &new_name), &attr)? else {
                self.park(tree, &one.group, ErrorKind::Exists);
                return Ok(());
            };
            if let Some((old, _)) = replaced.filter(|(old, _)| *old != theirs) {
                self.lose_binding(tree, old, (to, new_name.clone()));
            }
            let replaced = Some((theirs, Some(attr.version())));
            self.amend(tree, seq, Op::Rename { from, name, object, to, new_name, replaced })?;
            tree.queue.get_mut(seq).into_iter().for_each(|op| op.rebuilt = true);
            return Ok(());
        }
        let bound = tree.get(object)?.binding.clone();
        let (place, is_elsewhere) = match &change.op {
            // It stays where it met that: what is the same at two names would send it to and fro between them.
            Op::Remove { dir, name, .. } => {
                let own = (*dir, name.clone());
                let elsewhere = bound.filter(|bound| *bound != own && was_sent_to(tree, one, bound));
                let is_elsewhere = elsewhere.is_some();
                (Some(elsewhere.unwrap_or(own)), is_elsewhere)
            }
            _ => (bound, false),
        };
        let removes = matches!(change.op, Op::Remove { .. });
        let is_known = tree.find_home(&attr.id).is_some_and(|other| other != object);
        if removes && is_known || is_elsewhere {
            // A removal needs no identity: the version tells what is meant.
            let fs = attr.id.fs;
            tree.rebind(object, HomeId { fs, ..HomeId::default() }, place);
            tree.get(object)?.base = Some(attr.version());
        } else {
            // A copy of it may have its place: then it has another identity, too.
            self.take_identity(tree, object, &attr, place)?;
        }
        tree.queue.get_mut(seq).into_iter().for_each(|op| op.rebuilt = true);
        // After a restart no answer tells any more that this is our own: it would look like somebody else's.
        self.log_base(tree, object)
    }

    /// What is unsent of an object builds on what the home has there, whatever that was known as so far.
    pub(super) fn take_identity(
        &self,
        tree: &mut Tree,
        object: u64,
        theirs: &Attr,
        binding: Option<(u64, Name)>,
    ) -> Result<()> {
        let other = self.part_from_another(tree, object, theirs);
        tree.rebind(object, theirs.id, binding);
        tree.get(object)?.base = Some(theirs.version());
        self.join(tree, (object, other), theirs);
        Ok(())
    }

    /// The object that stands for what the home has under a name which another one has here; `None` where it has unsent
    /// changes of its own, which were made to what it was.
    pub(super) fn known_as(
        &self,
        tree: &mut Tree,
        (dir, name): (u64, &Name),
        attr: &Attr,
    ) -> Result<Option<u64>> {
        let known = tree.find_home(&attr.id);
        if known.is_some_and(|id| tree.get(id).is_ok_and(|inode| inode.pending > 0 && !inode.gone)) {
            return Ok(None);
        }
        let id = tree.bind(dir, name, attr, None)?;
        let heard = tree.heard(self.env.clock.now());
        let inode = tree.get(id)?;
        if known.is_none() {
            meta::adopt(inode, attr, self.env.clock.instant(), heard);
        }
        inode.base = Some(attr.version());
        inode.drop_link(&(dir, name.clone()));
        inode.gone = inode.link.is_none();
        tree.unlogged(id);
        self.log_bindings(tree)?;
        Ok(Some(id))
    }

    /// Whether the home was seen to have the file by another name, too: then it goes there.
    fn is_elsewhere(&self, one: &Ready, theirs: Option<Attr>) -> Result<bool> {
        let Op::Write { file, .. } = &one.op else { return Ok(false) };
        let mut tree = self.tree.lock();
        let object = self.object(&tree, one)?;
        let sent_there = tree.home_path(object).is_ok_and(|path| path == file.path);
        let inode = tree.get(object)?;
        let lost = theirs.is_none_or(|theirs| theirs.id != inode.home_id);
        Ok(sent_there && lost && meta::look_elsewhere(&mut tree, object)?)
    }

    /// A file without a name has content at the home that nobody here has seen: it gets a name again.
    fn reveal(&self, one: &Ready, id: u64) -> Result<()> {
        let gateway = self.shared.gateway;
        let mut tree = self.tree.lock();
        let place = tree.get(id)?.hidden_link(gateway).filter(|_| matches!(one.op, Op::Remove { .. }));
        let Some((dir, name)) = place.cloned() else { return Ok(()) };
        let copy = conflict::copy_name(&name, self.shared.gateway, one.time, one.id.seq);
        let op = Op::Rename { from: dir, name, object: id, to: dir, new_name: copy, replaced: None };
        let time = self.env.clock.now();
        let change =
            Change { time, object: id, after: None, op, retry: None, verifier: None, plain: one.plain };
        self.submit_behind(&mut tree, change)
    }

    /// The name is taken at the home: the object keeps its identity under the name of a copy.
    fn take_another_name(&self, one: &Ready, how: Resolution, theirs: Option<Attr>) -> Result<()> {
        let mut tree = self.tree.lock();
        let Some(seq) = one.group.seqs.first().copied() else { return Ok(()) };
        let Some(change) = tree.queue.get(seq).map(|p| p.change.clone()) else { return Ok(()) };
        let rename = |name: &Name| conflict::copy_name(name, self.shared.gateway, change.time, seq);
        let (dir, taken, op) = match change.op.clone() {
            Op::Create { dir, name, new, mode } => {
                let copy = rename(&name);
                (dir, name, Op::Create { dir, name: copy, new, mode })
            }
            Op::Rename { from, name, object, to, new_name, .. } => {
                let copy = rename(&new_name);
                (to, new_name, Op::Rename { from, name, object, to, new_name: copy, replaced: None })
            }
            Op::Link { object, dir, name } => {
                let copy = rename(&name);
                (dir, name, Op::Link { object, dir, name: copy })
            }
            _ => {
                self.park(&mut tree, &one.group, ErrorKind::Exists);
                return Ok(());
            }
        };
        self.amend(&mut tree, seq, op)?;
        let (object, copy) = (change.object, rename(&taken));
        self.follow(&mut tree, seq, object, (dir, taken.clone()), copy.clone())?;
        match how {
            Resolution::TakeName | Resolution::Overwrite => {
                let lost = Lost { object, place: (dir, taken), copy, made: (change.time, seq) };
                self.take_lost_name(&mut tree, lost, theirs, how)
            }
            _ => Ok(()),
        }
    }

    /// An object gets the name of a copy instead of `place`: what is queued behind `seq` for it under its old name is
    /// for the copy, and so is what clients see, unless it has another name here by now.
    fn follow(&self, tree: &mut Tree, seq: u64, object: u64, place: (u64, Name), copy: Name) -> Result<()> {
        let later = tree.queue.iter().filter(|(s, _)| *s > seq);
        let found =
            later.filter_map(|(s, p)| Some((s, renamed(&p.change.op, object, &place, &copy)?))).next();
        if let Some((seq, op)) = found {
            self.amend(tree, seq, op)?;
        }
        let inode = tree.get(object)?;
        let lost = inode.link.is_none() && !inode.gone;
        let here = lost || inode.link.as_ref() == Some(&place) || inode.more_links.contains(&place);
        if here {
            inode.drop_link(&place);
            inode.add_link((place.0, copy.clone()));
            tree.copies.note(self.shared.gateway, object, &copy);
        }
        let node = tree.names_mut(place.0)?;
        if here {
            node.slot_mut(&copy).child = Some(object);
            let slot = node.slot_mut(&place.1);
            slot.child = slot.child.filter(|child| *child != object);
        }
        if node.slot(&place.1).is_some_and(|s| s.pending == 0 && s.child.is_none()) {
            node.forget(&place.1);
        }
        tree.unlist(place.0);
        tree.notes.entry(place.0, &place.1, 0);
        tree.notes.entry(place.0, &copy, 0);
        tree.notes.attributes(object, 0);
        Ok(())
    }

    /// A file whose base is gone: all of our content goes to a new file, under the name of a copy or, where theirs
    /// was removed, under its own, if it has that here and nothing else gets it. The object, and every open handle on
    /// it, follows.
    async fn copy_beside(
        self: &Arc<Self>,
        one: &Ready,
        file: &Loc,
        how: Resolution,
        theirs: Option<Attr>,
    ) -> Result<()> {
        let object = self.object(&self.tree.lock(), one)?;
        let size = {
            let mut tree = self.tree.lock();
            let inode = tree.get(object)?;
            inode.attr.map_or(0, |a| a.size).min(limits::FILE_MAX)
        };
        let filled = match how {
            Resolution::Recreate => 0,
            _ => self.fill_from_theirs(object, file, size).await?,
        };
        let mut tree = self.tree.lock();
        let Some(seq) = one.group.seqs.first().copied() else { return Ok(()) };
        let Some(change) = tree.queue.get(seq).map(|p| p.change.clone()) else { return Ok(()) };
        let inode = tree.get(object)?;
        let (gone, bound) = (inode.gone, inode.binding.clone());
        let Some(bound) = bound.filter(|_| !gone) else {
            // Its content is only here where nobody here has taken its name.
            if gone {
                return self.drop_unnamed(&mut tree, &one.group);
            }
            self.park(&mut tree, &one.group, ErrorKind::Stale);
            return Ok(());
        };
        let kept = self.keep_from_removal(&mut tree, seq, object, &bound)?;
        let (nameless, is_bound) = (kept == Kept::Nameless, kept == Kept::Bound);
        let (dir, name) = if let Kept::By(link) = kept { link } else { bound };
        let holds = tree.names(dir)?.slot(&name).and_then(|slot| slot.child);
        let taken = holds.is_some_and(|holder| holder != object)
            || tree.queue.is_taken_after(seq, dir, &name, object);
        let how = if nameless || taken { Resolution::KeepBoth } else { how };
        let takes_name = is_bound && matches!(how, Resolution::TakeName | Resolution::Overwrite);
        let attr = tree.get(object)?.attr.or(change.after).ok_or_else(|| Error::from(ErrorKind::Stale))?;
        let copy = match how {
            Resolution::Recreate => name.clone(),
            _ => conflict::copy_name(&name, self.shared.gateway, change.time, seq),
        };
        self.make_anew(&mut tree, (seq, object), (&attr, filled), (dir, &name), &copy)?;
        if takes_name {
            let lost = Lost { object, place: (dir, name), copy, made: (change.time, seq) };
            self.take_lost_name(&mut tree, lost, theirs, how)?;
        }
        change.extents().for_each(|e| self.data.give_up(e, false));
        tree.notes.content(object, 0);
        Ok(())
    }

    /// The operation `seq` makes a new file of all that an object has here, with the name `copy` instead of `name`.
    fn make_anew(
        &self,
        tree: &mut Tree,
        (seq, object): (u64, u64),
        (attr, filled): (&Attr, u64),
        (dir, name): (u64, &Name),
        copy: &Name,
    ) -> Result<()> {
        self.leave_names(tree, object, &(dir, name.clone()))?;
        // It has the names that are left to it here, and no others.
        let inode = tree.get(object)?;
        let links = inode.link.iter().chain(&inode.more_links).count().max(1);
        let attr = &Attr { nlink: links as u32, ..*attr };
        inode.attr = Some(*attr);
        self.write_all_again(tree, object, attr, (attr.size, filled))?;
        self.data.begins_anew(object);
        for (name, value) in tree.take_xattrs(object)? {
            let op = Op::SetXattr { object, name, value: Some(value), how: XattrHow::Any };
            self.submit_again(tree, object, attr, op)?;
        }
        let create = Op::Create { dir, name: copy.clone(), new: New::File, mode: attr.mode };
        tree.detach(object);
        self.amend(tree, seq, create)?;
        if copy != name {
            self.follow(tree, seq, object, (dir, name.clone()), copy.clone())?;
        }
        Ok(())
    }

    /// What the home has is another file from now on, and so the other names that it has there are not those of ours.
    fn leave_names(&self, tree: &mut Tree, object: u64, kept: &(u64, Name)) -> Result<()> {
        let gateway = self.shared.gateway;
        let inode = tree.get(object)?;
        let names = inode.binding.iter().chain(&inode.more_bindings);
        let others: Vec<(u64, Name)> =
            names.filter(|place| *place != kept && !is_hidden(gateway, &place.1)).cloned().collect();
        for place in others {
            let node = tree.names_mut(place.0)?;
            let slot = node.slot(&place.1).unwrap_or_default();
            // What is unsent for a name finds out itself whose it is.
            if slot.pending > 0 {
                continue;
            }
            if slot.child == Some(object) {
                node.forget(&place.1);
                tree.unlist(place.0);
            }
            tree.get(object)?.drop_link(&place);
            tree.notes.entry(place.0, &place.1, 0);
        }
        Ok(())
    }

    /// A file that the home has no name for and gets none before, and so no place for what is unsent of its content, was to get a
    /// name: it is made anew beside that one. Answers whether it was so.
    pub(super) fn saves_nameless(&self, tree: &mut Tree, group: &Group) -> Result<bool> {
        let Some(seq) = group.seqs.first().copied() else { return Ok(false) };
        let Some(change) = tree.queue.get(seq).map(|p| p.change.clone()) else { return Ok(false) };
        let Op::Rename { from, name, object, to, new_name, .. } = &change.op else { return Ok(false) };
        let object = *object;
        let inode = tree.get(object)?;
        let Some(attr) = inode.attr.filter(|attr| attr.kind == Kind::File && !inode.gone) else {
            return Ok(false);
        };
        let nameless = inode.binding.is_none();
        let own = || tree.queue.iter().filter(|(_, p)| p.change.object == object);
        let is_made = own().any(|(s, p)| s < seq && matches!(p.change.op, Op::Create { .. }));
        let is_written = own().any(|(s, p)| s > seq && matches!(p.change.op, Op::Write { .. }));
        if !nameless || is_made || !is_written {
            return Ok(false);
        }
        let copy = conflict::copy_name(new_name, self.shared.gateway, change.time, seq);
        self.make_anew(tree, (seq, object), (&attr, 0), (*to, new_name), &copy)?;
        let node = tree.names_mut(*from)?;
        // Another file may have it by now.
        if node.slot(name).is_some_and(|slot| slot.pending == 0 && slot.child.is_none()) {
            node.forget(name);
        }
        tree.unlist(*from);
        tree.notes.entry(*from, name, 0);
        tree.notes.content(object, 0);
        Ok(true)
    }

    /// The home did what took the last name `place` that it had for an object of which another one is known here, or was when
    /// its content was written, or which has one that nobody has looked at. What is still to be written to it has no place: it
    /// becomes a new file.
    pub(super) fn copy_left_over(&self, tree: &mut Tree, object: u64, place: (u64, Name)) -> Result<()> {
        let left = tree.peek(object).filter(|n| n.pending > 0 && !n.gone && n.binding.is_none());
        let Some(attr) = left.and_then(|n| n.attr).filter(|attr| attr.kind == Kind::File) else {
            return Ok(());
        };
        let own = tree.queue.iter().filter(|(_, p)| p.change.object == object && !p.change.plain);
        let own: Vec<(u64, Change)> = own.map(|(s, p)| (s, p.change.clone())).collect();
        let is_written = own.iter().any(|(_, change)| matches!(change.op, Op::Write { .. }));
        if !is_written || own.iter().any(|(_, change)| queue::names(change).next().is_some()) {
            return Ok(());
        }
        // The first of them, whatever it is: what comes before the new file would wait for a place.
        let Some((first, change)) = own.into_iter().next() else { return Ok(()) };
        let (dir, name) = tree.get(object)?.link.clone().unwrap_or(place);
        let copy = conflict::copy_name(&name, self.shared.gateway, change.time, first);
        self.make_anew(tree, (first, object), (&attr, 0), (dir, &name), &copy)?;
        self.count_conflict(tree, object);
        change.extents().for_each(|e| self.data.give_up(e, false));
        tree.notes.content(object, 0);
        Ok(())
    }

    /// Whether an object that has a name here would be left without any at the home, because what is queued behind `seq`
    /// takes away the one that it has there, `bound`. Those changes were of what the home has: they are given up.
    fn keep_from_removal(&self, tree: &mut Tree, seq: u64, object: u64, bound: &(u64, Name)) -> Result<Kept> {
        let concerned = |p: &Pending| queue::objects(&p.change).any(|id| id == object);
        let later = tree.queue.iter().filter(|(s, p)| *s > seq && concerned(p));
        let later: Vec<(u64, Change)> = later.map(|(s, p)| (s, p.change.clone())).collect();
        if has_name_after(tree, object, bound, later.iter().map(|(_, change)| change)) {
            return Ok(Kept::Bound);
        }
        let link = tree.get(object)?.link.clone();
        for (seq, change) in later {
            match change.op {
                Op::Rename { from, name, object: other, to, new_name, .. } if other != object => {
                    self.amend(
                        tree,
                        seq,
                        Op::Rename { from, name, object: other, to, new_name, replaced: None },
                    )?;
                }
                Op::Remove { .. } | Op::Rename { .. } | Op::Link { .. } => {
                    self.drop_group(tree, &Group::one(seq))?;
                }
                _ => {}
            }
        }
        tree.queue.decide(self.lane.last());
        Ok(link.map_or(Kept::Nameless, Kept::By))
    }

    /// A file may be worked on by a name that the home gave to another one, after the only name that it has there was taken
    /// away here: the removal was of what the home had, and would take what is done since. Answers whether any in this batch
    /// was given up for that.
    pub(super) fn keep_what_is_written(&self, tree: &mut Tree, batch: &[Group]) -> Result<bool> {
        for seq in batch.iter().flat_map(|group| &group.seqs) {
            let pending = tree.queue.get(*seq).filter(|p| !p.resent && !p.change.plain);
            let Some(object) = pending.and_then(|p| queue::destroyed(&p.change)) else { continue };
            // Of what the home never had nobody else has taken a name; to look through the queue for each would be long.
            let inode = tree.peek(object).filter(|n| !n.gone && n.pending > 1 && n.binding.is_some());
            if inode.is_none_or(|n| n.kind != Kind::File) {
                continue;
            }
            let own = tree.queue.iter().filter(|(_, p)| queue::objects(&p.change).any(|id| id == object));
            let (later, earlier): (Vec<_>, Vec<_>) = own.partition(|(s, _)| s > seq);
            let needs_it =
                |change: &Change| change.object == object && queue::destroyed(change) != Some(object);
            if !later.iter().any(|(_, p)| needs_it(&p.change)) {
                continue;
            }
            let earlier: Vec<Change> = earlier.into_iter().map(|(_, p)| p.change.clone()).collect();
            let names = |tree: &mut Tree, n| place::names_after(tree, object, earlier[..n].iter());
            let (before, after) = (names(tree, earlier.len() - 1), names(tree, earlier.len()));
            let Some(bound) = before.first().filter(|_| after.is_empty()).cloned() else { continue };
            if self.keep_from_removal(tree, seq - 1, object, &bound)? != Kept::Bound {
                self.count_conflict(tree, object);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where our base was only partly cached and is gone, the copy is theirs with our bytes over it. Answers up to where
    /// theirs was to be had: so much is here, until it is evicted. Where the base was cut off here, nothing of theirs shows.
    pub(super) async fn fill_from_theirs(&self, object: u64, file: &Loc, size: u64) -> Result<u64> {
        let size = size.min(self.tree.lock().get(object)?.base_len);
        let there = Loc { path: file.path.clone(), id: None };
        for (gap, len) in self.data.gaps(object, 0, size) {
            let mut at = gap;
            while at < gap + len {
                let want = (gap + len - at).min(limits::FETCH_CHUNK) as u32;
                let chunk = match self.home.read(&there, at, want).await {
                    Ok(chunk) => chunk,
                    Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                    Err(_) => return Ok(at),
                };
                if chunk.data.is_empty() {
                    return Ok(at);
                }
                let len = chunk.data.len() as u64;
                self.data.put_in(Room::Beyond, object, at, &[chunk.data], Pin::Clean).map_err(local)?;
                at += len;
            }
        }
        Ok(size)
    }

    /// Accepts a change that makes of an object once more what it is.
    fn submit_again(&self, tree: &mut Tree, object: u64, attr: &Attr, op: Op<u64, Stored>) -> Result<()> {
        let (time, after) = (attr.mtime, Some(*attr));
        let change = Change { time, object, after, op, retry: None, verifier: None, plain: false };
        self.submit_behind(tree, change)
    }

    /// Accepts a change by which a part of what was accepted before goes home, behind everything that is in the queue.
    pub(super) fn submit_behind(&self, tree: &mut Tree, change: Change) -> Result<()> {
        let ticket = self.submit(tree, 0, change)?;
        tree.queue.goes_behind(ticket.seq);
        Ok(())
    }

    /// Journals the whole content of a file once more, behind everything that is in the queue. `cut`: how much of what it
    /// holds there may show through. Up to `filled` all of it must be here; [`ErrorKind::Busy`] where it was evicted since, to
    /// be filled and written once more.
    pub(super) fn write_all_again(
        &self,
        tree: &mut Tree,
        object: u64,
        attr: &Attr,
        (cut, filled): (u64, u64),
    ) -> Result<()> {
        let mut put = Vec::new();
        let written = self.write_again(tree, object, attr, (cut, filled), &mut put);
        if written.is_err() {
            // What is queued already shows again before what no record names goes.
            self.lay_unsent(tree, object);
            put.iter().for_each(|extent| self.data.give_up(extent, false));
        }
        written
    }

    /// The same; `put`: what no record names when it fails.
    fn write_again(
        &self,
        tree: &mut Tree,
        object: u64,
        attr: &Attr,
        (cut, filled): (u64, u64),
        put: &mut Vec<Extent>,
    ) -> Result<()> {
        let evicted = || Error::new(ErrorKind::Busy, "the cache is too full to settle a conflict");
        if !self.data.gaps(object, 0, filled).is_empty() {
            return Err(evicted());
        }
        let mut at = 0;
        let mut pieces = vec![Piece::Truncate(cut.min(attr.size)), Piece::Truncate(attr.size)];
        pieces.dedup();
        let mut holes = self.data.holes(object, 0, attr.size).into_iter().peekable();
        loop {
            // A file may be nearly all hole, of any size.
            while let Some((hole, len)) = holes.next_if(|(hole, _)| *hole <= at) {
                at = at.max(hole + len);
            }
            let len = (attr.size - at).min(u64::from(limits::IO_MAX)) as u32;
            let mut from = at;
            for part in self.data.get(object, at, len) {
                match part {
                    Part::Have(bytes) => {
                        let len = bytes.len() as u64;
                        let extent = self
                            .data
                            .put_in(Room::Beyond, object, from, &[bytes], Pin::Dirty)
                            .map_err(local)?;
                        put.push(extent);
                        pieces.push(Piece::Data(from, Stored::Extent(extent)));
                        from += len;
                    }
                    Part::Gap { .. } if from < filled => return Err(evicted()),
                    Part::Gap { len, .. } => from += len,
                    Part::Lost { at, .. } => {
                        return Err(Error::new(
                            ErrorKind::Io,
                            format!("unsent bytes at {at} are damaged here"),
                        ));
                    }
                }
            }
            let op = Op::Write { file: object, base: None, pieces: std::mem::take(&mut pieces) };
            self.submit_again(tree, object, attr, op)?;
            put.clear();
            at += u64::from(len);
            if at >= attr.size {
                return Ok(());
            }
        }
    }
}

/// By which name an object that gets a copy is known here when everything queued is done.
#[derive(PartialEq, Eq)]
enum Kept {
    /// That of the copy, or what it is renamed to.
    Bound,
    /// Another one, which the home is not known to have.
    By((u64, Name)),
    /// None, though nobody took the last one away from it here.
    Nameless,
}

/// Whether a removal was sent to this name, which may be another one than it names.
fn was_sent_to(tree: &mut Tree, one: &Ready, (dir, name): &(u64, Name)) -> bool {
    let Op::Remove { object, .. } = &one.op else { return false };
    tree.home_path(*dir).is_ok_and(|dir| dir.join(name) == object.path)
}

/// The form of an operation on `object` under the name `place` after that name was changed to `copy`.
fn renamed(op: &Op<u64, Stored>, object: u64, place: &(u64, Name), copy: &Name) -> Option<Op<u64, Stored>> {
    let mut op = op.clone();
    match &mut op {
        Op::Remove { dir, name, object: o, .. } if *o == object && (*dir, &*name) == (place.0, &place.1) => {
            *name = copy.clone();
        }
        Op::Rename { from, name, object: o, .. }
            if *o == object && (*from, &*name) == (place.0, &place.1) =>
        {
            *name = copy.clone();
        }
        Op::Rename { to, new_name, replaced, .. }
            if replaced.as_ref().is_some_and(|(r, _)| *r == object)
                && (*to, &*new_name) == (place.0, &place.1) =>
        {
            // The name leads to theirs now, which nobody meant to replace.
            *replaced = None;
        }
        _ => return None,
    }
    Some(op)
}
