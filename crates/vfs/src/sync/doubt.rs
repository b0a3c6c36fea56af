//! Mode `strict`: what became of an operation that was sent, whose answer is lost and for which nobody waits here.
//!
//! It is found out by looking at the home, and never by doing it again: somebody else may have changed the same since.
//! What the home has counts as done, so that a call that comes again gets its first answer. What it does not have is
//! forgotten: the caller had no answer, comes again and is a new call. A new object bears the time of its record as
//! access time; a moved or removed one is known by its identity.
//!
//! An acknowledged UNSTABLE write is sent again only where the file is as it was before it, or ends before it. Else the
//! verifier changes, so that the client, which still has the bytes, decides (RFC 1813 §3.3.7).

use super::queue::Group;
use crate::journal::{Change, Fate, Stored};
use crate::volume::Volume;
use bytes::{Bytes, BytesMut};
use home::{Attr, Done, ErrorKind, Loc, Name, Op, Piece, Result, SetAttr, SetTime};

/// What the home shows of an operation.
enum Verdict {
    /// It was done; attributes of its object, if it is still there.
    Done(Option<Attr>),
    /// It was certainly not done, and may be sent.
    Open,
    /// It was not done, or cannot be told from what somebody else did.
    Unknown,
}

impl Volume {
    /// Decides on every operation in doubt, in order.
    pub async fn clear_doubt(&self) -> Result<()> {
        loop {
            let next = {
                let tree = self.tree.lock();
                tree.queue.in_doubt().next().map(|(seq, p)| (seq, p.change.clone()))
            };
            let Some((seq, change)) = next else { return Ok(()) };
            let verdict = match self.verdict(&change).await {
                Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                // Where it should be looked for is nothing, or nothing that we may see.
                verdict => verdict.unwrap_or(Verdict::Unknown),
            };
            match verdict {
                Verdict::Done(attr) => {
                    let dirs = self.dirs_after(&change).await?;
                    self.done(&mut self.tree.lock(), &Group::one(seq), &Done { attr, dirs })?;
                }
                Verdict::Open => {
                    if let Some(op) = self.tree.lock().queue.get_mut(seq) {
                        op.resent = false;
                    }
                }
                Verdict::Unknown => self.forget(seq)?,
            }
            self.outcomes.send_modify(|n| *n += 1);
        }
    }

    /// What an outcome would have told of the directories of a change: whoever comes again sees that it moved their ctimes.
    async fn dirs_after(&self, change: &Change) -> Result<Vec<Attr>> {
        let mut dirs = Vec::new();
        for (dir, _) in super::queue::names(change) {
            match self.at_object(dir).await {
                Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                // It has gone since.
                Err(_) => {}
                Ok(attr) => dirs.push(attr),
            }
        }
        Ok(dirs)
    }

    /// An operation is not sent again.
    fn forget(&self, seq: u64) -> Result<()> {
        let mut tree = self.tree.lock();
        tree.tick += 1;
        let Some(op) = tree.queue.remove(seq) else { return Ok(()) };
        self.release(&mut tree, seq, &op);
        if let Some(key) = &op.change.retry {
            self.shared.replies.lock().remove(key);
        }
        if op.overlaid {
            self.undo(&mut tree, &op.change);
            self.relay(&tree, op.change.object);
            *self.losses.lock() += 1;
            self.log_bindings_if_room(&mut tree)?;
        }
        self.retire(seq, &op.change, Fate::Dropped)
    }

    async fn verdict(&self, change: &Change) -> Result<Verdict> {
        let known = self.tree.lock().get(change.object).map(|n| n.home_id).unwrap_or_default();
        let is_it = |attr: &Attr| known.ino != 0 && attr.id == known;
        Ok(match &change.op {
            Op::Create { dir, name, new, .. } => match self.at_name(*dir, name).await? {
                Some(attr) if attr.kind == new.kind() && attr.atime == change.time => {
                    Verdict::Done(Some(attr))
                }
                _ => Verdict::Unknown,
            },
            Op::Link { dir, name, .. } => match self.at_name(*dir, name).await? {
                Some(attr) if is_it(&attr) => Verdict::Done(Some(attr)),
                _ => Verdict::Unknown,
            },
            Op::Rename { from, name, to, new_name, .. } => {
                let old = self.at_name(*from, name).await?;
                match self.at_name(*to, new_name).await? {
                    Some(attr) if is_it(&attr) && !old.is_some_and(|old| is_it(&old)) => {
                        Verdict::Done(Some(attr))
                    }
                    _ => Verdict::Unknown,
                }
            }
            Op::Remove { dir, name, .. } => match self.at_name(*dir, name).await? {
                Some(attr) if known.ino == 0 || is_it(&attr) => Verdict::Unknown,
                _ => Verdict::Done(None),
            },
            Op::SetAttr { set, .. } => match self.at_object(change.object).await? {
                attr if has(&attr, set) => Verdict::Done(Some(attr)),
                _ => Verdict::Unknown,
            },
            Op::SetXattr { name, value, .. } => {
                let at = Self::loc(&mut self.tree.lock(), change.object)?;
                let there = self.home.xattrs(&at, Some(name)).await?;
                let found = there.list.into_iter().find(|x| x.name == *name);
                match found.map(|x| x.value) == value.clone().map(Some) {
                    true => Verdict::Done(Some(there.attr)),
                    false => Verdict::Unknown,
                }
            }
            Op::Write { base, pieces, .. } => {
                let attr = self.at_object(change.object).await?;
                self.verdict_on_write(change.object, attr, *base, pieces).await?
            }
        })
    }

    /// An object that the home has under a name; `None` where the name is free.
    async fn at_name(&self, dir: u64, name: &Name) -> Result<Option<Attr>> {
        let path = self.tree.lock().home_path(dir)?.join(name);
        match self.home.stat(&Loc { path, id: None }).await {
            Ok(seen) => Ok(Some(seen.attr)),
            Err(e) if matches!(e.kind, ErrorKind::NotFound | ErrorKind::NotDir) => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn at_object(&self, id: u64) -> Result<Attr> {
        let at = Self::loc(&mut self.tree.lock(), id)?;
        Ok(self.home.stat(&at).await?.attr)
    }

    async fn verdict_on_write(
        &self,
        id: u64,
        attr: Attr,
        base: Option<home::Version>,
        pieces: &[Piece<Stored>],
    ) -> Result<Verdict> {
        let (mut there, mut missing) = (!pieces.is_empty(), false);
        for piece in pieces {
            match piece {
                Piece::Truncate(size) => there &= attr.size == *size,
                Piece::Data(_, Stored::Inline(_)) => there = false,
                Piece::Data(at, Stored::Extent(extent)) => {
                    let ours = self.data.read_extent(extent).map_err(crate::inode::local)?;
                    let theirs = self.bytes_at(id, *at, ours.len()).await?;
                    there &= theirs == ours;
                    missing |= theirs.len() < ours.len() && ours.starts_with(&theirs);
                    missing |= base.is_some_and(|base| base.same_content(&attr.version()));
                }
            }
        }
        Ok(match (there, missing) {
            (true, _) => Verdict::Done(Some(attr)),
            (false, true) => Verdict::Open,
            (false, false) => Verdict::Unknown,
        })
    }

    /// What the home has of a range; shorter only at the end of the file.
    async fn bytes_at(&self, id: u64, at: u64, len: usize) -> Result<Bytes> {
        let loc = Self::loc(&mut self.tree.lock(), id)?;
        let mut bytes = BytesMut::new();
        while bytes.len() < len {
            let from = at + bytes.len() as u64;
            let chunk = self.home.read(&loc, from, (len - bytes.len()) as u32).await?;
            if chunk.data.is_empty() {
                break;
            }
            bytes.extend_from_slice(&chunk.data);
        }
        bytes.truncate(len);
        Ok(bytes.freeze())
    }
}

/// Whether an object has the attributes that were to be set, as far as they say which.
fn has(attr: &Attr, set: &SetAttr) -> bool {
    let time = |wanted: Option<SetTime>, now| match wanted {
        None => true,
        Some(SetTime::At(time)) => time == now,
        Some(SetTime::Now) => false,
    };
    set.mode.is_none_or(|mode| mode == attr.mode)
        && set.uid.is_none_or(|uid| uid == attr.uid)
        && set.gid.is_none_or(|gid| gid == attr.gid)
        && time(set.atime, attr.atime)
        && time(set.mtime, attr.mtime)
}
