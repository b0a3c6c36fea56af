//! Whether what the home has in the place of our base is that, where nothing tells but its ctime.
//!
//! Another program may have changed a file without changing its length, and have set its time again; its ctime moves then, as it
//! does with a change of the mode or of a name. The home does nothing where somebody else has moved it, and the bytes tell:
//! those that are cached of the base are compared with what the home has. Of what is not cached nothing was seen here: a write
//! leaves it as it is but where it goes over it, and a removal takes it as it would take what somebody wrote a moment before it
//! was looked at. After a restart it is not known which of the cached bytes the home ever had.

use super::confirm::is_told;
use super::place::Ready;
use crate::inode::Tree;
use crate::limits;
use crate::volume::Volume;
use home::{Attr, ErrorKind, HomePath, Kind, Op, Result, Version};

/// A file that may have changed.
struct Doubt {
    object: u64,
    path: HomePath,
    base: Version,
    theirs: Version,
    /// The bytes tell nothing.
    mixed: bool,
}

/// What became of it.
enum Found {
    Same,
    Other,
    /// It has changed while it was looked at.
    Moved,
}

impl Volume {
    /// Takes what an operation met for its base, if the bytes say so. Answers whether it is to be sent again.
    pub(super) async fn is_sent_again(&self, one: &Ready, theirs: Option<&Attr>) -> Result<bool> {
        let Some(doubt) = theirs.and_then(|theirs| doubt(&mut self.tree.lock(), one, theirs)) else {
            return Ok(false);
        };
        let found = self.look_at(&doubt).await?;
        let mut tree = self.tree.lock();
        match found {
            Found::Other if matches!(one.op, Op::SetAttr { .. }) => {
                // It keeps its time, and what is unsent of the content behind that meets a conflict.
                self.part_from_theirs(&mut tree, doubt.object);
                return Ok(true);
            }
            Found::Other => {
                if tree.get(doubt.object)?.gone {
                    // What takes its name behind this meets the same, and no bytes may be left here to tell.
                    self.part_from_theirs(&mut tree, doubt.object);
                    self.log_base(&mut tree, doubt.object)?;
                }
                return Ok(false);
            }
            Found::Same => self.is_base(&mut tree, &doubt)?,
            Found::Moved => {}
        }
        tree.queue.ended_early();
        let first = one.group.seqs.first().copied();
        first.and_then(|seq| tree.queue.get_mut(seq)).into_iter().for_each(|op| op.looked_at += 1);
        Ok(true)
    }

    /// What is unsent of a file is made to what the home has of it, and what is cached is of that.
    fn is_base(&self, tree: &mut Tree, doubt: &Doubt) -> Result<()> {
        let inode = tree.get(doubt.object)?;
        if inode.base != Some(doubt.base) {
            return Ok(());
        }
        inode.base = Some(doubt.theirs);
        if self.data.version(doubt.object) == Some(doubt.base) {
            self.data.set_version(doubt.object, doubt.theirs);
        }
        self.log_base(tree, doubt.object)
    }

    /// Compares what is cached of the base with what the home has.
    async fn look_at(&self, doubt: &Doubt) -> Result<Found> {
        let Doubt { object, path, base, theirs, mixed } = doubt;
        if base == theirs || *mixed {
            return Ok(Found::Same);
        }
        let mut at = 0;
        while at < base.size {
            let len = (base.size - at).min(limits::FETCH_CHUNK);
            let known = self.data.of_base(*object, at, len);
            let ends = known.iter().map(|(from, bytes)| from + bytes.len() as u64).max();
            if let (Some((from, _)), Some(end)) = (known.first(), ends) {
                let loc = home::Loc { path: path.clone(), id: None };
                let there = match self.home.read(&loc, *from, (end - from) as u32).await {
                    Ok(there) => there,
                    Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                    // Who may not read it goes by length and time.
                    Err(e) if e.kind == ErrorKind::Access => return Ok(Found::Same),
                    // Whoever is sent again finds out what has become of it.
                    Err(_) => return Ok(Found::Moved),
                };
                if there.attr.version() != *theirs {
                    return Ok(Found::Moved);
                }
                let is_same = |(at, bytes): &(u64, bytes::Bytes)| {
                    let start = (at - from) as usize;
                    there.data.get(start..start + bytes.len()) == Some(&bytes[..])
                };
                if !known.iter().all(is_same) {
                    return Ok(Found::Other);
                }
            }
            at += len;
        }
        Ok(Found::Same)
    }
}

/// What is in doubt where an operation met this.
fn doubt(tree: &mut Tree, one: &Ready, theirs: &Attr) -> Option<Doubt> {
    let first = one.group.seqs.first().and_then(|seq| tree.queue.get(*seq))?;
    let is_recovered = first.recovered;
    let is_tried = first.rebuilt || first.looked_at >= limits::LOOKED_AT_MAX;
    if one.plain || is_tried || theirs.kind != Kind::File {
        return None;
    }
    let (object, path) = match (&one.op, &first.change.op) {
        (Op::Write { file: at, .. } | Op::SetAttr { object: at, .. }, _) => {
            (first.change.object, at.path.clone())
        }
        (Op::Remove { dir, name, .. }, _) => (first.change.object, dir.path.join(name)),
        (Op::Rename { to, new_name, .. }, Op::Rename { replaced: Some((old, _)), .. }) => {
            (*old, to.path.join(new_name))
        }
        _ => return None,
    };
    let (base, theirs) = (tree.get(object).ok()?.base?, theirs.version());
    // An outcome may have told since then that the ctime was moved by ourselves.
    let is_moved = |base: &Version| is_told(base) && base.same_content(&theirs) && base.ctime != theirs.ctime;
    let sent = if let Op::SetAttr { base, .. } = &one.op { base.as_ref() } else { one.base() };
    let is_it = is_told(&theirs) && (is_moved(&base) || base == theirs && sent.is_some_and(is_moved));
    let mut own = tree.queue.iter().filter(|(_, p)| p.change.object == object);
    let mixed = own.any(|(_, p)| p.recovered) || is_recovered;
    is_it.then_some(Doubt { object, path, base, theirs, mixed })
}
