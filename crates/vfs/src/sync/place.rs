//! Turns what the journal says of objects into places at the home, as they will be when the operation runs there:
//! earlier operations of the batch included.

use super::content::{Content, Slice};
use super::queue::Group;
use crate::inode::{ROOT_ID, Tree};
use crate::journal::Change;
use hashbrown::{HashMap, HashSet};
use home::{ErrorKind, HomeId, HomePath, Kind, Loc, Name, Op, OpId, Result, Time};

/// A group that knows its places.
pub struct Ready {
    /// The records that it stands for.
    pub group: Group,
    /// Its name.
    pub id: OpId,
    /// When its last record was accepted.
    pub time: Time,
    /// Mode `strict`.
    pub plain: bool,
    /// A part of it may have been executed.
    pub resent: bool,
    /// What to do.
    pub op: Op<Loc, Slice>,
}

impl Ready {
    /// The version that it was sent for, of what it would destroy.
    pub fn base(&self) -> Option<&home::Version> {
        match &self.op {
            Op::Write { base, .. } | Op::Remove { base, .. } => base.as_ref(),
            Op::Rename { replaced: Some((_, base)), .. } => base.as_ref(),
            _ => None,
        }
    }
}

/// Places a batch. An operation that has no place (what it depends on was refused) answers its error instead;
/// [`ErrorKind::NotFound`]: the home does not have the name that it moves.
pub fn place(tree: &mut Tree, gateway: u64, volume: u32, batch: Vec<Group>) -> Vec<(Group, Result<Ready>)> {
    let mut placer = Placer::new(tree);
    batch.into_iter().map(|group| (group.clone(), placer.group(gateway, volume, group))).collect()
}

/// Where the home has objects after changes that were made there and are not taken in yet.
pub fn place_after<'a>(
    tree: &mut Tree,
    changes: impl Iterator<Item = &'a Change>,
    objects: impl IntoIterator<Item = u64>,
) -> Vec<(u64, HomePath)> {
    let mut placer = Placer::new(tree);
    changes.for_each(|c| placer.run(&c.op, c.object));
    objects.into_iter().filter_map(|id| Some((id, placer.loc(id).ok()?.path))).collect()
}

/// The names that an object has at the home after these changes, as far as that is known.
pub fn names_after<'a>(
    tree: &mut Tree,
    object: u64,
    changes: impl Iterator<Item = &'a Change>,
) -> Vec<(u64, Name)> {
    let mut placer = Placer::new(tree);
    changes.for_each(|c| placer.run(&c.op, c.object));
    placer.names_of(object).clone()
}

/// Whether an object that the home has by this one name has any there after these changes. What renames it from another
/// name is not done: the home may have that for somebody else.
pub fn has_name_after<'a>(
    tree: &mut Tree,
    object: u64,
    place: &(u64, Name),
    changes: impl Iterator<Item = &'a Change>,
) -> bool {
    let mut placer = Placer::new(tree);
    placer.names.insert(object, vec![place.clone()]);
    for change in changes {
        let from = match &change.op {
            Op::Rename { from, name, .. } if change.object == object => Some((*from, name.clone())),
            _ => None,
        };
        if from.is_none_or(|from| placer.names_of(object).contains(&from)) {
            placer.run(&change.op, change.object);
        }
    }
    !placer.names_of(object).is_empty()
}

struct Placer<'a> {
    tree: &'a mut Tree,
    /// The names at the home of the objects whose names the batch changes, at the point that was reached.
    names: HashMap<u64, Vec<(u64, Name)>>,
    /// Objects that the batch makes: who they are is not known yet.
    made: HashSet<u64>,
    /// Objects whose content the batch changes. The home knows who they are then, if it gives them another inode.
    written: HashSet<u64>,
}

impl<'a> Placer<'a> {
    fn new(tree: &'a mut Tree) -> Self {
        Placer { tree, names: HashMap::new(), made: HashSet::new(), written: HashSet::new() }
    }

    fn group(&mut self, gateway: u64, volume: u32, group: Group) -> Result<Ready> {
        let mut content = Content::default();
        let mut last = None;
        let mut resent = false;
        for seq in &group.seqs {
            let Some(pending) = self.tree.queue.get(*seq) else { continue };
            resent |= pending.resent;
            content.lay(&pending.change);
            last = Some((*seq, &pending.change));
        }
        let (seq, change) = last.ok_or_else(|| home::Error::from(ErrorKind::Stale))?;
        let change = change.clone();
        let base_of = |placer: &mut Self, id: u64, seen: Option<home::Version>| {
            let newborn = group.newborn && id == change.object;
            let changed = placer.made.contains(&id) || placer.written.contains(&id);
            let known = !change.plain && !changed && !newborn;
            let inode = placer.tree.get(id).ok().filter(|n| known && n.kind == Kind::File);
            inode.and_then(|n| n.base.or(seen))
        };
        let op = match self.redirected(change.op)? {
            Op::Write { file, .. } => {
                let base = base_of(self, file, None);
                Op::Write { file, base, pieces: content.into_pieces() }
            }
            Op::Remove { dir, name, object, is_dir, base } => {
                let base = base_of(self, object, base);
                Op::Remove { dir, name, object, is_dir, base }
            }
            Op::Rename { from, name, object, to, new_name, replaced } => {
                let replaced = replaced.map(|(r, base)| (r, base_of(self, r, base)));
                Op::Rename { from, name, object, to, new_name, replaced }
            }
            Op::SetAttr { object, base: _, set } => {
                let base = base_of(self, object, None).filter(|_| set.mtime.is_some());
                Op::SetAttr { object, base, set }
            }
            other => other.try_map(Ok::<_, home::Error>, |stored| Ok(Slice::whole(&stored)))?,
        };
        if matches!(op, Op::Create { .. }) {
            self.made.insert(change.object);
        }
        let located = self.locate(op.clone())?;
        self.run(&op, change.object);
        let op = located;
        if matches!(op, Op::Write { .. }) {
            self.written.insert(change.object);
        }
        let id = OpId { gateway, volume, seq };
        Ok(Ready { group, id, time: change.time, plain: change.plain, resent, op })
    }

    /// An object that is to be removed by a name which the home does not have for it, because the move to there was given
    /// up, is removed where it is, unless it has got another name here since. That name is another's.
    fn redirected<D>(&mut self, mut op: Op<u64, D>) -> Result<Op<u64, D>> {
        if let Op::Remove { dir, name, object, .. } = &mut op {
            let place = (*dir, name.clone());
            let names = self.names_of(*object);
            let elsewhere = names.first().filter(|_| !names.contains(&place)).cloned();
            if let Some(elsewhere) = elsewhere.filter(|_| self.identity(*object).is_none()) {
                if !self.tree.get(*object)?.gone {
                    return Err(ErrorKind::NotFound.into());
                }
                (*dir, *name) = elsewhere;
            }
        }
        Ok(op)
    }

    /// What an operation does to the names of its objects.
    fn run<D>(&mut self, op: &Op<u64, D>, id: u64) {
        match op {
            Op::Create { dir, name, .. } => *self.names_of(id) = vec![(*dir, name.clone())],
            Op::Link { dir, name, .. } => self.names_of(id).push((*dir, name.clone())),
            Op::Remove { dir, name, .. } => self.names_of(id).retain(|p| *p != (*dir, name.clone())),
            Op::Rename { from, name, to, new_name, replaced, .. } => {
                let place = (*to, new_name.clone());
                if let Some((old, _)) = replaced {
                    self.names_of(*old).retain(|p| *p != place);
                }
                let names = self.names_of(id);
                names.retain(|p| *p != (*from, name.clone()));
                names.push(place);
            }
            Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. } => {}
        }
    }

    fn names_of(&mut self, id: u64) -> &mut Vec<(u64, Name)> {
        let tree = &mut *self.tree;
        self.names.entry(id).or_insert_with(|| {
            let known = tree.get(id).map(|n| n.binding.iter().chain(&n.more_bindings).cloned().collect());
            known.unwrap_or_default()
        })
    }

    fn place_of(&mut self, id: u64) -> Option<(u64, Name)> {
        match self.names.get(&id) {
            Some(names) => names.first().cloned(),
            None => self.tree.get(id).ok()?.binding.clone(),
        }
    }

    /// Objects that an operation reaches by a name are where that name is, whatever other names they have.
    fn locate(&mut self, op: Op<u64, Slice>) -> Result<Op<Loc, Slice>> {
        match op {
            Op::Remove { dir, name, object, is_dir, base } => {
                let dir = self.loc(dir)?;
                let object = self.at(&dir, &name, object)?;
                Ok(Op::Remove { dir, name, object, is_dir, base })
            }
            Op::Rename { from, name, object, to: to_id, new_name, replaced } => {
                // What has that name at the home is somebody else's: the object became a copy with another one.
                if !self.is_known_at(object, from, &name) {
                    return Err(ErrorKind::NotFound.into());
                }
                let (from, to) = (self.loc(from)?, self.loc(to_id)?);
                let object = self.at(&from, &name, object)?;
                let replaced = match replaced {
                    // What the home was never seen to have under that name cannot be told from theirs.
                    Some((old, _)) if self.is_unseen(old) => None,
                    // What our own earlier operations did not leave there, neither.
                    Some((old, _)) if !self.is_known_at(old, to_id, &new_name) => None,
                    Some((old, base)) => Some((self.at(&to, &new_name, old)?, base)),
                    None => None,
                };
                Ok(Op::Rename { from, name, object, to, new_name, replaced })
            }
            op => op.try_map(|id| self.loc(id), Ok),
        }
    }

    /// Whether the home has identities, but not for this object.
    fn is_unseen(&mut self, id: u64) -> bool {
        let mut ino = |id| self.tree.get(id).map_or(0, |n| n.home_id.ino);
        ino(ROOT_ID) != 0 && ino(id) == 0 && !self.made.contains(&id)
    }

    /// Whether an object can be told from another one under a name, or has it for all that we know.
    fn is_known_at(&mut self, id: u64, dir: u64, name: &Name) -> bool {
        self.identity(id).is_some() || self.names_of(id).contains(&(dir, name.clone()))
    }

    fn at(&mut self, dir: &Loc, name: &Name, id: u64) -> Result<Loc> {
        self.tree.get(id)?;
        Ok(Loc { path: dir.path.join(name), id: self.identity(id) })
    }

    /// What the home knows an object by when the operation runs, if that is known.
    fn identity(&mut self, id: u64) -> Option<HomeId> {
        let home_id = self.tree.get(id).ok()?.home_id;
        (home_id.ino != 0 && !self.made.contains(&id)).then_some(home_id)
    }

    fn loc(&mut self, id: u64) -> Result<Loc> {
        let (mut names, mut at, mut len) = (Vec::new(), id, 0);
        while at != ROOT_ID {
            let (parent, name) = self.place_of(at).ok_or_else(|| home::Error::from(ErrorKind::Stale))?;
            len += name.as_bytes().len() + 1;
            if len > home::name::PATH_MAX {
                return Err(ErrorKind::NameTooLong.into());
            }
            names.push(name);
            at = parent;
        }
        let mut path = HomePath::root();
        names.iter().rev().for_each(|n| path.push(n));
        Ok(Loc { path, id: self.identity(id) })
    }
}
