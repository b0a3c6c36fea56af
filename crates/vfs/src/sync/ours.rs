//! Whether what the home has in the place of our base was left there by ourselves: then there is no conflict.

use super::content::{Slice, length};
use super::marks::{self, Was, covered};
use super::place::Ready;
use crate::conflict::{self, Theirs};
use crate::data::Part;
use crate::inode::Tree;
use crate::limits;
use crate::volume::Volume;
use bytes::Bytes;
use home::{Attr, Class, HomePath, Kind, Loc, New, Op, Piece, Result, Version};
use std::ops::Range;

impl Volume {
    /// What the home has in the place of our base, which is not that.
    pub async fn state_of(&self, one: &Ready, theirs: Option<&Attr>) -> Result<Theirs> {
        let takes_name = matches!(one.op, Op::Create { .. } | Op::Link { .. } | Op::Rename { .. });
        let Some(attr) = theirs else {
            // What has the name is not shown, or has lost it since.
            return Ok(if takes_name { Theirs::Other } else { Theirs::Gone });
        };
        let anothers = self.is_anothers(one, attr)?;
        let in_use = is_in_use(&self.tree.lock(), one, attr);
        if !anothers && !in_use && (self.is_our_own(one, attr) || self.is_begun(one, attr).await?) {
            return Ok(Theirs::Own);
        }
        // What it comes to is not known.
        let destroys = in_use && !matches!(one.op, Op::Write { .. });
        if !destroys && !anothers && self.is_equal(one, attr).await? {
            return Ok(Theirs::Equal);
        }
        let mut tree = self.tree.lock();
        let object = self.object(&tree, one)?;
        let known = tree.get(object).map(|inode| inode.home_id);
        Ok(match attr.kind {
            // A home without identities says that of every object.
            kind if !takes_name && known.is_ok_and(|id| id == attr.id) && kind == Kind::File => {
                Theirs::Modified
            }
            Kind::Dir => Theirs::Dir,
            _ => Theirs::Other,
        })
    }

    /// Whether what a write met is another file of ours, which has unsent changes too: each would go over the other's.
    fn is_anothers(&self, one: &Ready, theirs: &Attr) -> Result<bool> {
        let mut tree = self.tree.lock();
        let object = self.object(&tree, one)?;
        let known =
            tree.find_home(&theirs.id).filter(|id| *id != object && matches!(one.op, Op::Write { .. }));
        Ok(known.and_then(|id| tree.peek(id)).is_some_and(|inode| inode.pending > 0))
    }

    /// Whether what the home has was left there by one of our own sends whose answer was lost.
    fn is_our_own(&self, one: &Ready, theirs: &Attr) -> bool {
        let (tree, exact) = (self.tree.lock(), !self.is_sftp());
        let sent = one.group.seqs.iter().filter_map(|s| Some((*s, tree.queue.get(*s)?)));
        let sent = sent.filter(|(_, p)| p.resent).filter_map(|(seq, p)| {
            let after = p.change.after?;
            let half = exact && after.mtime == p.change.time && tree.queue.may_be_half(seq);
            Some((after, half))
        });
        conflict::is_ours(theirs, sent)
    }

    /// Whether the home is known to be reached by SFTP.
    pub fn is_sftp(&self) -> bool {
        self.hello.lock().as_ref().is_some_and(|hello| hello.class == Class::Sftp)
    }

    /// Whether a send whose answer was lost may have ended in the middle of making this file: at a home that is written
    /// in steps, and after a power cut, nothing else tells; but not of what was written after that, unless the home had begun it again. It holds nothing that is not in ours, or in what ours was
    /// between two of the writes, so nothing is lost when ours goes over it.
    async fn is_begun(&self, one: &Ready, theirs: &Attr) -> Result<bool> {
        let in_steps = self.is_sftp() || {
            let queue = &self.tree.lock().queue;
            one.group.seqs.iter().any(|seq| queue.may_be_half(*seq))
        };
        let newer = self.booted.lock().is_some_and(|at| at < theirs.mtime && theirs.mtime <= theirs.ctime);
        let is_later = newer && !self.tree.lock().queue.is_known(&one.group.seqs);
        if !one.resent || one.plain || !in_steps || is_later || theirs.kind != Kind::File {
            return Ok(false);
        }
        let path = match &one.op {
            Op::Create { dir, name, new: New::File, .. } => dir.path.join(name),
            // Where objects have identities, another one than it was written to took its name whole, with the time of the write.
            Op::Write { base: Some(base), .. } if !self.is_sftp() && base.id != theirs.id => {
                return Ok(false);
            }
            Op::Write { file, .. } => file.path.clone(),
            _ => return Ok(false),
        };
        let (object, size) = self.object_and_size(one)?;
        let unseen = unseen(one, theirs);
        let ours_or_zero = |part: Part, theirs: &[u8]| match part {
            Part::Have(ours) => ours.iter().zip(theirs).all(|(o, t)| o == t || *t == 0),
            Part::Gap { at, .. } => theirs.iter().zip(at..).all(|(t, at)| at < unseen || *t == 0),
            Part::Lost { .. } => false,
        };
        Ok(theirs.size <= size && self.compare(object, path.clone(), theirs.size, ours_or_zero).await?
            || self.was_begun(one, path, theirs).await?)
    }

    /// The same of what ours was before the last writes that may have been executed: they may have gone over the same bytes.
    async fn was_begun(&self, one: &Ready, path: HomePath, there: &Attr) -> Result<bool> {
        let (size, unseen) = (there.size, unseen(one, there));
        let (object, now) = self.object_and_size(one)?;
        let (writes, later) = self.writes_to(object);
        if writes.is_empty() || size > limits::COMPARED_MAX {
            return Ok(false);
        }
        let Some(theirs) = self.content_at(&path, size).await? else { return Ok(false) };
        let ours = self.data.get(object, 0, now.min(size) as u32).into_iter().flat_map(|part| match part {
            Part::Have(bytes) => bytes.iter().map(|byte| Was::Byte(*byte)).collect(),
            Part::Gap { at, len } => {
                (at..at + len).map(|at| if at < unseen { Was::Unseen } else { Was::Byte(0) }).collect()
            }
            Part::Lost { len, .. } => vec![Was::Gone; len as usize],
        });
        Ok(marks::was_begun(ours.collect(), &writes, &later, &theirs))
    }

    /// The unsent writes to a file that may have been executed, in order, with their bytes; and what the later ones go over.
    /// None where they are long.
    fn writes_to(&self, object: u64) -> (Vec<Vec<Piece<Bytes>>>, Vec<Range<u64>>) {
        let mut writes: Vec<_> = {
            let tree = self.tree.lock();
            let own = tree.queue.iter().filter(|(_, p)| p.change.object == object);
            let pieces = own.filter_map(|(_, p)| match &p.change.op {
                Op::Write { pieces, .. } => Some((p.resent, p.bytes, pieces.clone())),
                _ => None,
            });
            pieces.collect()
        };
        let sent = writes.iter().rposition(|(resent, ..)| *resent).map_or(0, |last| last + 1);
        let later = writes.split_off(sent);
        let later = later
            .iter()
            .flat_map(|(.., pieces)| pieces)
            .map(|piece| covered(piece, |stored| length(stored) as u64));
        if writes.iter().map(|(_, bytes, _)| bytes).sum::<u64>() > limits::COMPARED_MAX {
            return (Vec::new(), Vec::new());
        }
        let read = |piece| {
            Some(match piece {
                Piece::Truncate(size) => Piece::Truncate(size),
                Piece::Data(at, stored) => Piece::Data(at, self.bytes_of(&Slice::whole(&stored)).ok()?),
            })
        };
        let writes = writes.into_iter().map(|(.., pieces)| pieces.into_iter().map(read).collect());
        (writes.collect::<Option<_>>().unwrap_or_default(), later.collect())
    }

    /// Whether what the home has is what ours comes to: of a new file, with its permissions too.
    async fn is_equal(&self, one: &Ready, theirs: &Attr) -> Result<bool> {
        let path = match &one.op {
            Op::Write { file, .. } => file.path.clone(),
            Op::Create { dir, name, new: New::File, .. } => dir.path.join(name),
            Op::Rename { to, new_name, .. } => to.path.join(new_name),
            Op::Remove { dir, name, is_dir: false, .. } => dir.path.join(name),
            _ => return Ok(false),
        };
        let (object, ours) = {
            let mut tree = self.tree.lock();
            let object = self.object(&tree, one)?;
            (object, tree.get(object)?.attr.filter(|attr| attr.kind == Kind::File))
        };
        let alike = |ours: &Attr| match &one.op {
            Op::Create { .. } => ours.size == theirs.size && ours.mode == theirs.mode,
            _ => ours.size == theirs.size,
        };
        if theirs.kind != Kind::File || !ours.is_some_and(|ours| alike(&ours)) {
            return Ok(false);
        }
        let same = |part: Part, theirs: &[u8]| matches!(part, Part::Have(ours) if ours == theirs);
        self.compare(object, path, theirs.size, same).await
    }

    pub(super) fn object_and_size(&self, one: &Ready) -> Result<(u64, u64)> {
        let mut tree = self.tree.lock();
        let object = self.object(&tree, one)?;
        Ok((object, tree.get(object)?.attr.map_or(0, |a| a.size)))
    }

    /// Whether `holds` for each part of our content, and what the home has at `path` in its place, up to `size`.
    async fn compare(
        &self,
        object: u64,
        path: HomePath,
        size: u64,
        holds: impl Fn(Part, &[u8]) -> bool,
    ) -> Result<bool> {
        let there = Loc { path, id: None };
        let mut at = 0;
        while at < size {
            let len = (size - at).min(limits::FETCH_CHUNK) as u32;
            let mut theirs = match self.home.read(&there, at, len).await {
                Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                // What cannot be read is not known to be the same.
                Err(_) => return Ok(false),
                Ok(chunk) if chunk.data.is_empty() => return Ok(false),
                Ok(chunk) => chunk.data,
            };
            at += theirs.len() as u64;
            for part in self.data.get(object, at - theirs.len() as u64, theirs.len() as u32) {
                let len = match &part {
                    Part::Have(ours) => ours.len(),
                    Part::Gap { len, .. } | Part::Lost { len, .. } => *len as usize,
                };
                let len = len.min(theirs.len());
                if !holds(part, &theirs.split_to(len)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Whether what an operation met is what it was made to: then somebody has it open for writing there. Where it was sent again
/// for that, its ctime tells nothing: an attempt to replace a file that is taken back moves it.
pub(super) fn is_in_use(tree: &Tree, one: &Ready, theirs: &Attr) -> bool {
    let first = one.group.seqs.first().and_then(|seq| tree.queue.get(*seq));
    let tried = first.is_some_and(|op| op.rebuilt);
    one.base().is_some_and(|base| {
        let ctime = if tried { base.ctime } else { theirs.ctime };
        *base == Version { ctime, ..theirs.version() }
    })
}

/// Up to where a file may have bytes that are not here and are its own all the same: those that the write was made to, as long
/// as nobody has cut them away.
fn unseen(one: &Ready, theirs: &Attr) -> u64 {
    one.base().map_or(0, |base| base.size).min(theirs.size)
}
