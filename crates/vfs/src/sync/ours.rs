//! Whether what the home has in the place of our base was left there by ourselves: then there is no conflict.

use super::begun::{self, States, Was, gone_over};
use super::content::Slice;
use super::place::Ready;
use super::queue::{Pending, Queue};
use crate::conflict::{self, Theirs};
use crate::data::Part;
use crate::inode::Tree;
use crate::journal::Stored;
use crate::limits;
use crate::volume::Volume;
use home::{Attr, Class, HomePath, Kind, New, Op, Piece, Result, Version};
use std::ops::Range;

impl Volume {
    /// What the home has in the place of our base, which is not that.
    pub async fn state_of(&self, one: &Ready, theirs: Option<&Attr>) -> Result<Theirs> {
        let takes_name = matches!(one.op, Op::Create { .. } | Op::Link { .. } | Op::Rename { .. });
        let Some(attr) = theirs else {
            // What has the name is not shown, or has lost it since.
            return Ok(if takes_name { Theirs::Other } else { Theirs::Gone });
        };
        // Another program gave it that name, by a link: it has it. rename(2) would leave both, too.
        if matches!(one.op, Op::Rename { .. }) && self.is_itself(one, attr)? {
            return Ok(Theirs::Own);
        }
        if self.was_given_away(one, attr) {
            return Ok(Theirs::Own);
        }
        let anothers = self.is_anothers(one, attr)?;
        let in_use = is_in_use(&self.tree.lock(), one, attr);
        if !anothers && !in_use && (self.is_our_own(one, attr) || self.is_begun(one, attr).await?) {
            return Ok(Theirs::Own);
        }
        // What it comes to is not known.
        let destroys = in_use && !matches!(one.op, Op::Write { .. });
        if !destroys && !anothers && (self.was_written_later(one, attr) || self.is_equal(one, attr).await?) {
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

    /// Whether what has the name is the object that is to get it.
    fn is_itself(&self, one: &Ready, theirs: &Attr) -> Result<bool> {
        let mut tree = self.tree.lock();
        let object = self.object(&tree, one)?;
        Ok(theirs.id.ino != 0 && tree.get(object)?.home_id == theirs.id)
    }

    /// Whether a removal met what may have its name by a later change of ours. That waited for the removal: where it was
    /// executed, so was this, and where it was not, it meets the same, which is not removed.
    fn was_given_away(&self, one: &Ready, theirs: &Attr) -> bool {
        let tree = self.tree.lock();
        let removal = one.group.seqs.last().and_then(|seq| Some((*seq, tree.queue.get(*seq)?)));
        let Some((seq, removal)) = removal.filter(|(_, p)| p.resent) else { return false };
        let Op::Remove { dir, name, object, .. } = &removal.change.op else { return false };
        let may_be_it = |id: u64| {
            let is_like_it = |kind, id: home::HomeId| kind == theirs.kind && (id.ino == 0 || id == theirs.id);
            id != *object && tree.peek(id).is_some_and(|inode| is_like_it(inode.kind, inode.home_id))
        };
        tree.queue.may_have_got(seq, *dir, name).any(may_be_it)
    }

    /// Whether what an operation met is another file of ours. A write: one with unsent changes too, each of which would go over
    /// the other's. A removal: where its object has a further name here, and so must keep its identity.
    pub(super) fn is_anothers(&self, one: &Ready, theirs: &Attr) -> Result<bool> {
        let mut tree = self.tree.lock();
        let object = self.object(&tree, one)?;
        let known = tree.find_home(&theirs.id).filter(|id| *id != object);
        let (own, known) = (tree.peek(object), known.and_then(|id| tree.peek(id)));
        Ok(match one.op {
            Op::Write { .. } => known.is_some_and(|inode| inode.pending > 0),
            Op::Remove { .. } => own.is_some_and(|inode| {
                !inode.gone && inode.home_id.ino != 0 && theirs.id.ino != 0 && inode.home_id != theirs.id
            }),
            _ => false,
        })
    }

    /// Whether what the home has was left there by one of our own sends whose answer was lost.
    fn is_our_own(&self, one: &Ready, theirs: &Attr) -> bool {
        let tree = self.tree.lock();
        let sent = one.group.seqs.iter().filter_map(|seq| Some((*seq, tree.queue.get(*seq)?)));
        self.was_left_by(&tree.queue, theirs, sent)
    }

    /// Whether a removal met what a later write of ours to the same file left: of both a power cut kept that alone.
    fn was_written_later(&self, one: &Ready, theirs: &Attr) -> bool {
        let is_write = |op: &Op<u64, Stored>| matches!(op, Op::Write { .. });
        let object = self.object(&self.tree.lock(), one);
        matches!(one.op, Op::Remove { .. })
            && object.is_ok_and(|object| self.was_left_by_any(object, theirs, is_write))
    }

    /// Whether any such change of an object left what the home has.
    fn was_left_by_any(
        &self,
        object: u64,
        theirs: &Attr,
        is_such: impl Fn(&Op<u64, Stored>) -> bool,
    ) -> bool {
        let tree = self.tree.lock();
        let such = tree.queue.iter().filter(|(_, p)| p.change.object == object && is_such(&p.change.op));
        self.was_left_by(&tree.queue, theirs, such)
    }

    /// Whether one of these that may have been executed left what the home has, or a power cut a part of that.
    fn was_left_by<'a>(
        &self,
        queue: &Queue,
        theirs: &Attr,
        sent: impl Iterator<Item = (u64, &'a Pending)>,
    ) -> bool {
        let exact = !self.is_sftp();
        let sent = sent.filter(|(_, p)| p.resent).filter_map(|(seq, p)| {
            let after = p.change.after?;
            let half = exact && after.mtime == p.change.time && queue.may_be_half(seq);
            Some((after, half))
        });
        conflict::is_ours(theirs, sent)
    }

    /// Whether the home is known to be reached by SFTP.
    pub fn is_sftp(&self) -> bool {
        self.hello.lock().as_ref().is_some_and(|hello| hello.class == Class::Sftp)
    }

    /// Whether a send whose answer was lost may have ended in the middle of making this file: at a home that is written
    /// in steps, and after a power cut, nothing else tells; but not of what was written after that, unless the home had begun it
    /// again. It holds nothing that is not in ours, or in what ours was between two of the writes, so nothing is lost when ours
    /// goes over it.
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
        let object = self.object(&self.tree.lock(), one)?;
        let path = match &one.op {
            Op::Create { dir, name, new: New::File, .. } => dir.path.join(name),
            // Where objects have identities, another one than it was written to took its name whole, with the time of the write.
            Op::Write { base: Some(base), .. }
                if !self.is_sftp() && base.id != theirs.id && !self.was_given_time(object, theirs) =>
            {
                return Ok(false);
            }
            Op::Write { file, .. } => file.path.clone(),
            _ => return Ok(false),
        };
        self.is_left_by_ours(object, one.base(), &path, theirs).await
    }

    /// Whether a change of ours that may have been executed gave the file this time, to the nanosecond, with this length.
    fn was_given_time(&self, object: u64, theirs: &Attr) -> bool {
        let sets_time = |op: &Op<u64, Stored>| matches!(op, Op::SetAttr { set, .. } if set.mtime.is_some());
        !self.is_sftp() && self.was_left_by_any(object, theirs, sets_time)
    }

    /// Whether what a path has is a part of what ours is, or was at some point since the first write to it that may have been
    /// executed. `base`: what the home had before.
    pub(super) async fn is_left_by_ours(
        &self,
        object: u64,
        base: Option<&Version>,
        path: &HomePath,
        there: &Attr,
    ) -> Result<bool> {
        let writes = self.writes_to(object).0;
        // What is not here any more speaks against nothing where the time is ours.
        let forgotten = if self.was_given_time(object, there) { Was::Unseen } else { Was::Gone };
        let mut states = States::new(writes, forgotten);
        if states.work(there.size, limits::COMPARED_PART as u64) > limits::COMPARED_WORK {
            return Ok(false);
        }
        // An agent knows what a short file had before it added to it: what it does not take for ours is not where nothing of
        // ours is seen.
        let is_known_there = !self.is_sftp() && there.size <= home::limits::IMAGE_MAX;
        let shows_none = is_known_there && base.is_some_and(|base| there.size <= base.size);
        let mut at = 0;
        while at < there.size {
            let next = at..there.size.min(at + limits::FETCH_CHUNK);
            if !self.is_known(object, &states, &next, unseen(base, there)) {
                if shows_none {
                    return Ok(false);
                }
                at = next.end;
                continue;
            }
            let theirs = match self.read_at(path, next).await? {
                Ok(theirs) if !theirs.is_empty() => theirs,
                // What cannot be read is not known to be ours.
                _ => return Ok(false),
            };
            for theirs in theirs.chunks(limits::COMPARED_PART) {
                let part = self.part_of_ours(object, at, theirs, unseen(base, there))?;
                if !states.compare(part, |slice| self.bytes_of(slice).ok()) {
                    return Ok(false);
                }
                at += theirs.len() as u64;
            }
        }
        let size = self.tree.lock().get(object)?.attr.map_or(0, |a| a.size);
        Ok(there.size <= size && states.is_now() || states.is_begun())
    }

    /// Whether anything is known of what the home may have in a part of a file.
    fn is_known(&self, object: u64, states: &States, range: &Range<u64>, unseen: u64) -> bool {
        let len = range.end - range.start;
        range.end > unseen
            || states.touch(range)
            || self.data.gaps(object, range.start, len) != [(range.start, len)]
            || self.writes_to(object).1.iter().any(|later| begun::overlap(later, range))
    }

    /// A part of a file beside what the home has there. Others may write to it here meanwhile: what their bytes hide is in the
    /// queue once they are seen, and then among what was there before.
    fn part_of_ours<'a>(
        &self,
        object: u64,
        at: u64,
        theirs: &'a [u8],
        unseen: u64,
    ) -> Result<begun::Part<'a>> {
        let parts = self.data.get(object, at, theirs.len() as u32).into_iter();
        let later = self.writes_to(object).1;
        // What was cut off here is not in ours any more, whatever its length is now.
        let unseen = unseen.min(self.tree.lock().get(object)?.base_len);
        let was = parts.flat_map(|part| match part {
            Part::Have(bytes) => bytes.iter().map(|byte| Was::Byte(*byte)).collect(),
            Part::Gap { at, len } => {
                (at..at + len).map(|at| if at < unseen { Was::Unseen } else { Was::Byte(0) }).collect()
            }
            Part::Lost { len, .. } => vec![Was::Gone; len as usize],
        });
        let now = was.collect();
        let before = self.data.before(object, at, theirs.len() as u64);
        Ok(begun::Part { at, now, later, before, theirs })
    }

    /// The unsent writes to a file that may have been executed, in order; and what the later ones go over.
    fn writes_to(&self, object: u64) -> (Vec<Vec<Piece<Slice>>>, Vec<Range<u64>>) {
        let tree = self.tree.lock();
        let own = tree.queue.iter().filter(|(_, p)| p.change.object == object);
        let mut writes: Vec<_> = own
            .filter_map(|(_, p)| match &p.change.op {
                Op::Write { pieces, .. } => Some((p.resent, pieces.iter().map(whole).collect())),
                _ => None,
            })
            .collect();
        let sent = writes.iter().rposition(|(resent, _)| *resent).map_or(0, |last| last + 1);
        let later: Vec<(bool, Vec<Piece<Slice>>)> = writes.split_off(sent);
        let later = later.iter().flat_map(|(_, pieces)| pieces).map(gone_over).collect();
        (writes.into_iter().map(|(_, pieces)| pieces).collect(), later)
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
        let mut at = 0;
        while at < theirs.size {
            let next = at..theirs.size.min(at + limits::FETCH_CHUNK);
            let there = match self.read_at(&path, next).await? {
                Ok(there) if !there.is_empty() => there,
                // What cannot be read is not known to be the same.
                _ => return Ok(false),
            };
            let ours = self.data.get(object, at, there.len() as u32);
            at += there.len() as u64;
            let mut rest = there;
            let same = |part: Part| match part {
                Part::Have(ours) => ours == rest.split_to(ours.len().min(rest.len())),
                Part::Gap { .. } | Part::Lost { .. } => false,
            };
            if !ours.into_iter().all(same) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn object_and_size(&self, one: &Ready) -> Result<(u64, u64)> {
        let mut tree = self.tree.lock();
        let object = self.object(&tree, one)?;
        Ok((object, tree.get(object)?.attr.map_or(0, |a| a.size)))
    }
}

/// Whether what an operation met is what it was made to: then somebody has it open for writing there. Where it was sent again
/// for that, its ctime tells nothing: an attempt to replace a file that is taken back moves it.
pub(super) fn is_in_use(tree: &Tree, one: &Ready, theirs: &Attr) -> bool {
    let first = one.group.seqs.first().and_then(|seq| tree.queue.get(*seq));
    let tried = first.is_some_and(|op| op.rebuilt || op.looked_at >= limits::LOOKED_AT_MAX);
    one.base().is_some_and(|base| {
        let ctime = if tried { base.ctime } else { theirs.ctime };
        *base == Version { ctime, ..theirs.version() }
    })
}

fn whole(piece: &Piece<Stored>) -> Piece<Slice> {
    match piece {
        Piece::Truncate(size) => Piece::Truncate(*size),
        Piece::Data(at, stored) => Piece::Data(*at, Slice::whole(stored)),
    }
}

/// Up to where a file may have bytes that are not here and are its own all the same: those that the write was made to, as long
/// as nobody has cut them away.
fn unseen(base: Option<&Version>, theirs: &Attr) -> u64 {
    base.map_or(0, |base| base.size).min(theirs.size)
}
