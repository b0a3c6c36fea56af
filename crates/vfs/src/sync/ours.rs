//! Whether what the home has in the place of our base was left there by ourselves: then there is no conflict.

use super::place::Ready;
use crate::conflict::{self, Theirs};
use crate::data::Part;
use crate::journal::Stored;
use crate::limits;
use crate::volume::Volume;
use bytes::Bytes;
use home::{Attr, Class, HomePath, Kind, Loc, New, Op, Piece, Result};

impl Volume {
    /// What the home has in the place of our base, which is not that.
    pub async fn state_of(&self, one: &Ready, theirs: Option<&Attr>) -> Result<Theirs> {
        let takes_name = matches!(one.op, Op::Create { .. } | Op::Link { .. } | Op::Rename { .. });
        let Some(attr) = theirs else {
            // What has the name is not shown, or has lost it since.
            return Ok(if takes_name { Theirs::Other } else { Theirs::Gone });
        };
        if self.is_our_own(one, attr) || self.is_begun(one, attr).await? {
            return Ok(Theirs::Own);
        }
        // What has not changed is open for writing there: what it comes to is not known.
        let in_use = one.base() == Some(&attr.version()) && !matches!(one.op, Op::Write { .. });
        if !in_use && self.is_equal(one, attr).await? {
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
    /// in steps, and after a power cut, nothing else tells. It holds nothing that is not in ours, or was and is written over
    /// here since, so nothing is lost when ours goes over it.
    async fn is_begun(&self, one: &Ready, theirs: &Attr) -> Result<bool> {
        let in_steps = self.is_sftp() || {
            let queue = &self.tree.lock().queue;
            one.group.seqs.iter().any(|seq| queue.may_be_half(*seq))
        };
        if !one.resent || one.plain || !in_steps || theirs.kind != Kind::File {
            return Ok(false);
        }
        let path = match &one.op {
            Op::Create { dir, name, new: New::File, .. } => dir.path.join(name),
            Op::Write { file, .. } => file.path.clone(),
            _ => return Ok(false),
        };
        let (object, size) = self.object_and_size(one)?;
        let (sent, longest) = self.sent_bytes(one);
        let was_sent = |at: u64, byte: u8| {
            let mut there =
                sent.iter().filter_map(|(from, bytes)| bytes.get(at.checked_sub(*from)? as usize));
            there.any(|sent| *sent == byte)
        };
        let ours_or_zero = |at: u64, part: Part, theirs: &[u8]| {
            (at..).zip(theirs).enumerate().all(|(n, (at, theirs))| {
                let is_ours = match &part {
                    Part::Have(ours) => ours[n] == *theirs,
                    // What we have not seen we do not write either.
                    Part::Gap { .. } => at < size,
                    Part::Lost { .. } => return false,
                };
                is_ours || *theirs == 0 || was_sent(at, *theirs)
            })
        };
        Ok(theirs.size <= size.max(longest) && self.compare(object, path, theirs.size, ours_or_zero).await?)
    }

    /// The bytes of writes that may have been executed, as long as they are few, with their places; and the longest that
    /// they made the file.
    fn sent_bytes(&self, one: &Ready) -> (Vec<(u64, Bytes)>, u64) {
        let tree = self.tree.lock();
        let sent = one.group.seqs.iter().filter_map(|seq| tree.queue.get(*seq)).filter(|p| p.resent);
        let (mut bytes, mut longest, mut left) = (Vec::new(), 0, limits::COMPARED_MAX);
        for write in sent {
            longest = longest.max(write.change.after.map_or(0, |after| after.size));
            let Op::Write { pieces, .. } = &write.change.op else { continue };
            left = left.saturating_sub(write.bytes);
            for piece in pieces.iter().filter(|_| left > 0) {
                let Piece::Data(at, stored) = piece else { continue };
                let read = match stored {
                    Stored::Inline(bytes) => Ok(bytes.clone()),
                    Stored::Extent(extent) => self.data.read_extent(extent),
                };
                bytes.extend(read.ok().map(|read| (*at, read)));
            }
        }
        (bytes, longest)
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
        let same = |_, part: Part, theirs: &[u8]| matches!(part, Part::Have(ours) if ours == theirs);
        self.compare(object, path, theirs.size, same).await
    }

    pub(super) fn object_and_size(&self, one: &Ready) -> Result<(u64, u64)> {
        let mut tree = self.tree.lock();
        let object = self.object(&tree, one)?;
        Ok((object, tree.get(object)?.attr.map_or(0, |a| a.size)))
    }

    /// Whether `holds` for each part of our content with its place, and what the home has there at `path`, up to `size`.
    async fn compare(
        &self,
        object: u64,
        path: HomePath,
        size: u64,
        holds: impl Fn(u64, Part, &[u8]) -> bool,
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
            for part in self.data.get(object, at, theirs.len() as u32) {
                let len = match &part {
                    Part::Have(ours) => ours.len(),
                    Part::Gap { len, .. } | Part::Lost { len, .. } => *len as usize,
                };
                let len = len.min(theirs.len());
                if !holds(at, part, &theirs.split_to(len)) {
                    return Ok(false);
                }
                at += len as u64;
            }
        }
        Ok(true)
    }
}
