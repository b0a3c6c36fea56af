//! What policies other than `keep-both` make of a conflict. Each begins or ends in a form that is safe by itself, so that
//! a crash in the middle leaves a conflict that is met again, or both versions.

use super::content::Slice;
use super::place::Ready;
use super::queue::Group;
use crate::conflict::{self, Policy, Resolution};
use crate::data::Part;
use crate::inode::{Tree, local};
use crate::journal::{Change, Stored};
use crate::limits;
use crate::meta;
use crate::overlay::length_after;
use crate::volume::Volume;
use bytes::Bytes;
use home::{Attr, Done, HomePath, Kind, Loc, Name, Op, Piece, Result, Time, Version};
use std::sync::Arc;

/// Ours that got the name of a copy, and what has the name that it lost.
pub(super) struct Lost {
    /// Our object.
    pub object: u64,
    /// The name.
    pub place: (u64, Name),
    /// The name of our copy, in the same directory.
    pub copy: Name,
    /// When our change was made, and its number.
    pub made: (Time, u64),
}

impl Volume {
    /// The policy in force for a change, and the folder that has it: by the place where it takes or gives up a name, else by
    /// that of its object.
    pub(super) fn policy_of(&self, tree: &mut Tree, change: &Change) -> (Policy, HomePath) {
        let policies = &self.policy.conflicts;
        if policies.folders().is_empty() {
            return (Policy::default(), HomePath::root());
        }
        tree.place_of(change).map_or((Policy::default(), HomePath::root()), |path| policies.at(&path))
    }

    /// Gives ours the name again that it lost to `theirs`: what has it becomes a copy, or is replaced, if it still is what
    /// was seen. Where ours does not have the name of its copy here, it wants the lost one no more.
    pub(super) fn take_lost_name(
        &self,
        tree: &mut Tree,
        lost: Lost,
        theirs: Option<Attr>,
        how: Resolution,
    ) -> Result<()> {
        let Lost { object, place: (dir, name), copy, made: (made, seq) } = lost;
        let Some(attr) = theirs else { return Ok(()) };
        let at_copy = (dir, copy.clone());
        let inode = tree.get(object)?;
        let has_copy = inode.link.as_ref() == Some(&at_copy) || inode.more_links.contains(&at_copy);
        let taken = tree.queue.is_taken_after(seq, dir, &name, object);
        if !has_copy || taken || tree.find_home(&attr.id) == Some(object) {
            return Ok(());
        }
        let Some(their_id) = self.known_as(tree, (dir, &name), &attr)? else { return Ok(()) };
        let replaced = match how {
            Resolution::Overwrite => Some((their_id, Some(attr.version()))),
            _ => {
                let new_name = conflict::their_copy_name(&name, self.shared.gateway, made, seq);
                tree.get(their_id)?.gone = false;
                self.rename_again(tree, their_id, dir, (&name, &new_name), None)?;
                tree.copies.note(self.shared.gateway, their_id, &new_name);
                None
            }
        };
        self.rename_again(tree, object, dir, (&copy, &name), replaced)?;
        tree.queue.decide(self.lane.last());
        tree.notes.entry(dir, &name, 0);
        Ok(())
    }

    fn rename_again(
        &self,
        tree: &mut Tree,
        object: u64,
        dir: u64,
        (name, new_name): (&Name, &Name),
        replaced: Option<(u64, Option<Version>)>,
    ) -> Result<()> {
        let (from, to, time) = (dir, dir, self.env.clock.now());
        let op = Op::Rename { from, name: name.clone(), object, to, new_name: new_name.clone(), replaced };
        let change = Change { time, object, after: None, op, retry: None, verifier: None, plain: false };
        self.submit_behind(tree, change)
    }

    /// All of our content goes over theirs, in the same file.
    pub(super) async fn write_over(self: &Arc<Self>, one: &Ready, file: &Loc, theirs: &Attr) -> Result<()> {
        let (object, size) = self.object_and_size(one)?;
        let filled = self.fill_from_theirs(object, file, size.min(limits::FILE_MAX)).await?;
        let mut tree = self.tree.lock();
        let Some(attr) = tree.get(object)?.attr else { return Ok(()) };
        let binding = tree.get(object)?.binding.clone();
        self.write_all_again(&mut tree, object, &attr, (0, filled))?;
        self.take_identity(&mut tree, object, theirs, binding)?;
        self.log_base(&mut tree, object)
    }

    /// What an object builds on is in the journal from now on.
    pub(super) fn log_base(&self, tree: &mut Tree, object: u64) -> Result<()> {
        tree.unlogged(object);
        self.log_bindings(tree)?;
        tree.queue.decide(self.lane.last());
        Ok(())
    }

    /// Our part of a file goes behind what the home has in it. Answers false where ours is more than a part at the end, or
    /// theirs is not what we had with something added.
    pub(super) async fn append(self: &Arc<Self>, one: &Ready, theirs: &Attr) -> Result<bool> {
        let path = match &one.op {
            Op::Write { file, .. } => file.path.clone(),
            Op::Create { dir, name, .. } => dir.path.join(name),
            _ => return Ok(false),
        };
        let base = {
            let mut tree = self.tree.lock();
            let object = self.object(&tree, one)?;
            let inode = tree.get(object)?;
            if inode.gone || inode.kind != Kind::File {
                return Ok(false);
            }
            inode.base.map_or(0, |base| base.size)
        };
        let is_file = theirs.kind == Kind::File;
        if !is_file || theirs.size < base || !self.ends_alike(one, &path, base).await? {
            return Ok(false);
        }
        let (arrived, end) = self.arrived(one, &path, base).await?;
        let mut tree = self.tree.lock();
        let object = self.object(&tree, one)?;
        if !self.shift(&mut tree, (object, &arrived), end, theirs)? {
            return Ok(false);
        }
        let group = match one.op {
            Op::Create { .. } => one.group.clone(),
            _ => Group::of(arrived),
        };
        if !group.seqs.is_empty() {
            self.done(&mut tree, &group, &Done { attr: Some(*theirs), dirs: vec![] })?;
        }
        Ok(true)
    }

    /// Whether the home has the last bytes of the base that we know where they were.
    async fn ends_alike(&self, one: &Ready, path: &HomePath, base: u64) -> Result<bool> {
        let from = base.saturating_sub(limits::TAIL);
        let len = (base - from) as u32;
        if len == 0 {
            return Ok(true);
        }
        let Some(theirs) = self.home_has(path, from, len).await? else { return Ok(false) };
        let object = self.object(&self.tree.lock(), one)?;
        let mut at = 0;
        Ok(self.data.get(object, from, len).into_iter().all(|part| {
            let (len, same) = match &part {
                Part::Have(ours) => (ours.len(), theirs.get(at..at + ours.len()) == Some(&ours[..])),
                Part::Gap { len, .. } | Part::Lost { len, .. } => (*len as usize, true),
            };
            at += len;
            same
        }))
    }

    /// The first records of a write whose answers were lost and whose bytes the home has where they should go, and where
    /// those end; at the least that is `base`.
    async fn arrived(&self, one: &Ready, path: &HomePath, base: u64) -> Result<(Vec<u64>, u64)> {
        let (mut arrived, mut end) = (Vec::new(), base);
        for seq in &one.group.seqs {
            let sent = self.tree.lock().queue.get(*seq).filter(|p| p.resent).map(|p| p.change.op.clone());
            let Some(Op::Write { pieces, .. }) = sent else { break };
            if !pieces.iter().any(|piece| matches!(piece, Piece::Data(..))) {
                break;
            }
            for piece in &pieces {
                let Piece::Data(at, stored) = piece else { continue };
                let ours = self.bytes_of(&Slice::whole(stored)).map_err(local)?;
                let len = ours.len() as u32;
                if self.home_has(path, *at, len).await? != Some(ours) {
                    return Ok((arrived, end));
                }
                end = end.max(*at + u64::from(len));
            }
            arrived.push(*seq);
        }
        Ok((arrived, end))
    }

    /// So many bytes of what the home has at a path; `None` where it has fewer, or does not give them.
    async fn home_has(&self, path: &HomePath, at: u64, len: u32) -> Result<Option<Bytes>> {
        let there = Loc { path: path.clone(), id: None };
        let mut all = Vec::new();
        while all.len() < len as usize {
            let (from, rest) = (at + all.len() as u64, len - all.len() as u32);
            match self.home.read(&there, from, rest.min(limits::FETCH_CHUNK as u32)).await {
                Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                Err(_) => return Ok(None),
                Ok(chunk) if chunk.data.is_empty() => return Ok(None),
                Ok(chunk) => all.extend_from_slice(&chunk.data),
            }
        }
        all.truncate(len as usize);
        Ok(Some(all.into()))
    }

    /// Moves what is unsent of a file's content, all but the records `done`, from behind `end`, where it was put, to behind
    /// the end of theirs. What has theirs as its base was moved before a crash, and is moved on from there. Answers false, and
    /// does nothing, where any of it is not behind `end`.
    fn shift(&self, tree: &mut Tree, (object, done): (u64, &[u64]), end: u64, theirs: &Attr) -> Result<bool> {
        let Some(forms) = shifted(tree, (object, done), end, theirs) else { return Ok(false) };
        for (seq, op) in forms {
            self.amend(tree, seq, op)?;
            tree.get(object)?.cuts.remove(&seq);
        }
        let writes = tree.queue.iter().filter(|(_, p)| {
            p.change.object == object && p.overlaid && matches!(p.change.op, Op::Write { .. })
        });
        let size = writes.fold(theirs.size, |size, (_, p)| length_after(size, &p.change));
        let inode = tree.get(object)?;
        let now = self.env.clock.now();
        if let Some(attr) = inode.attr {
            let ctime = now.max(meta::shown_ctime(inode, &attr).next());
            inode.attr = Some(Attr { size, ctime, ..attr });
            inode.shown = Some((Some(theirs.version()), ctime));
        }
        (inode.base, inode.base_len) = (Some(theirs.version()), theirs.size);
        let binding = inode.binding.clone();
        if binding.is_some() {
            self.take_identity(tree, object, theirs, binding)?;
        }
        self.relay(tree, object);
        tree.notes.content(object, 0);
        self.log_base(tree, object)?;
        Ok(true)
    }
}

/// The new forms of what is unsent of a file's content; see [`Volume::shift`].
fn shifted(
    tree: &mut Tree,
    (object, done): (u64, &[u64]),
    end: u64,
    theirs: &Attr,
) -> Option<Vec<(u64, Op<u64, Stored>)>> {
    let mut forms = Vec::new();
    for (seq, p) in tree.queue.iter().filter(|(seq, p)| p.change.object == object && !done.contains(seq)) {
        let Op::Write { file, base, pieces } = &p.change.op else { continue };
        let from = base.map_or(end, |base| base.size.max(end));
        let behind = theirs.size.checked_sub(from)?;
        let moved = |piece: &Piece<Stored>| match piece {
            Piece::Truncate(at) => (*at >= from).then(|| Piece::Truncate(at + behind)),
            Piece::Data(at, stored) => (*at >= from).then(|| Piece::Data(at + behind, stored.clone())),
        };
        let pieces = pieces.iter().map(moved).collect::<Option<Vec<_>>>()?;
        forms.push((seq, Op::Write { file: *file, base: Some(theirs.version()), pieces }));
    }
    Some(forms)
}

/// How far the form that a change of content was given is behind the one that it had.
pub fn moved_by(old: &Op<u64, Stored>, new: &Op<u64, Stored>) -> u64 {
    let first = |op: &Op<u64, Stored>| match op {
        Op::Write { pieces, .. } => pieces.first().map(|piece| match piece {
            Piece::Truncate(at) | Piece::Data(at, _) => *at,
        }),
        _ => None,
    };
    first(new).zip(first(old)).map_or(0, |(new, old)| new.saturating_sub(old))
}
