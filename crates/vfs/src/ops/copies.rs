//! Conflicts that nobody has settled: the copies that they left. Settling one is a change of names like any other.

use crate::Vfs;
use crate::conflict::{self, CopyOf, Policy, Settled};
use crate::inode::is_copy;
use crate::limits;
use crate::types::{Ctx, FileAttr, Oid, RenameHow};
use crate::volume::Volume;
use hashbrown::HashSet;
use home::{Error, ErrorKind, HomePath, Kind, Name, Result};

/// The copy that a conflict left: what was changed here, under a name beside the one that it lost.
#[derive(Debug, Clone)]
pub struct ConflictCopy {
    /// Its directory.
    pub dir: Oid,
    /// Its name there.
    pub name: Name,
    /// The path of the directory, from the root of the home.
    pub path: HomePath,
    /// What the name says.
    pub of: CopyOf,
    /// Attributes of the copy; `None` where they could not be had. It is theirs where its name says so.
    pub ours: Option<FileAttr>,
    /// What has the name that was lost; `None` where that is unknown, and [`FileAttr`] is `None` where nothing has it.
    pub theirs: Option<Option<FileAttr>>,
}

/// Which side of a conflict is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    /// Ours gets its name again; what has it now is replaced.
    Mine,
    /// The copy is removed.
    Theirs,
    /// The copy gets an ordinary name: this one, or one like `NAME.mine` that is free.
    Both(Option<Name>),
}

impl Vfs {
    /// The copies that conflicts left at a home, or at all, and that are still there; at most
    /// 1000 of each home.
    pub async fn conflict_copies(
        &self,
        ctx: Ctx<'_>,
        volume: Option<u32>,
    ) -> Result<Vec<(u32, ConflictCopy)>> {
        let volumes = match volume {
            Some(volume) => vec![self.volume(Oid { volume, id: Oid::ROOT.id })?],
            None => self.all_volumes(),
        };
        let mut found = Vec::new();
        for volume in volumes {
            for (dir, name, path) in volume.copies() {
                let dir = Oid { volume: volume.id, id: dir };
                let Some(of) = conflict::copy_of(&name) else { continue };
                let ours = match self.lookup(ctx, dir, name.as_bytes()).await {
                    // Removed at the home.
                    Err(e) if matches!(e.kind, ErrorKind::NotFound | ErrorKind::Stale) => continue,
                    ours => ours.ok().map(|found| found.attr),
                };
                let theirs = match &of.original {
                    Some(original) => self.there(ctx, dir, original).await.ok(),
                    None => None,
                };
                found.push((volume.id, ConflictCopy { dir, name, path, of, ours, theirs }));
            }
        }
        Ok(found)
    }

    async fn there(&self, ctx: Ctx<'_>, dir: Oid, name: &Name) -> Result<Option<FileAttr>> {
        match self.lookup(ctx, dir, name.as_bytes()).await {
            Ok(found) => Ok(Some(found.attr)),
            Err(e) if e.kind == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Settles a conflict by one change of names; answers the name under which ours is afterwards, if it is.
    /// [`ErrorKind::Invalid`] where that is not possible, with what is.
    pub async fn settle_conflict(
        &self,
        ctx: Ctx<'_>,
        dir: Oid,
        copy: &Name,
        keep: Keep,
    ) -> Result<Option<Name>> {
        let of = conflict::copy_of(copy)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "is not the name of a conflict's copy"))?;
        let ours = self.lookup(ctx, dir, copy.as_bytes()).await?.attr;
        if let Keep::Both(Some(name)) = keep {
            self.give_name(ctx, dir, copy, &name, RenameHow::NoReplace).await?;
            return Ok(Some(name));
        }
        let original = of.original.ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "its name was cut short, so that the other side's is not known: give it a name yourself",
            )
        })?;
        // Of a copy of theirs, ours has the name.
        let keep = match keep {
            Keep::Mine if of.is_theirs => Keep::Theirs,
            Keep::Theirs if of.is_theirs => Keep::Mine,
            keep => keep,
        };
        match keep {
            Keep::Mine => {
                self.give_name(ctx, dir, copy, &original, RenameHow::Replace).await?;
                Ok(Some(original))
            }
            Keep::Theirs => {
                if self.there(ctx, dir, &original).await?.is_none() {
                    let text = format!("{original} is not there any more: this copy is all that there is");
                    return Err(Error::new(ErrorKind::Invalid, text));
                }
                match ours.kind {
                    Kind::Dir => self.rmdir(ctx, dir, copy.as_bytes()).await?,
                    _ => self.remove(ctx, dir, copy.as_bytes()).await?,
                };
                Ok(None)
            }
            Keep::Both(_) => {
                for n in 1..=limits::COPY_NAMES {
                    let name = conflict::settled_name(&original, n);
                    match self.give_name(ctx, dir, copy, &name, RenameHow::NoReplace).await {
                        Err(e) if e.kind == ErrorKind::Exists => {}
                        done => return done.map(|()| Some(name)),
                    }
                }
                Err(Error::new(ErrorKind::Exists, "too many names are taken: say which it is to have"))
            }
        }
    }

    /// Settles a change that is stopped at a conflict, at a path from the root of its home, where the policy is `stop`. Answers
    /// what was done: what a policy spares stays, whatever is to be kept.
    /// [`ErrorKind::NotFound`] where none is there, [`ErrorKind::Busy`] where the home has changed it again since it stopped.
    pub async fn settle_stopped(&self, volume: u32, at: &HomePath, keep: &Keep) -> Result<Settled> {
        let said = match keep {
            Keep::Mine => Some(Policy::LastWriter),
            Keep::Theirs => None,
            Keep::Both(None) => Some(Policy::KeepBoth),
            Keep::Both(Some(_)) => {
                let text = "it is stopped, and has no copy yet that could get a name: settle it without one";
                return Err(Error::new(ErrorKind::Invalid, text));
            }
        };
        self.volume(Oid { volume, id: Oid::ROOT.id })?.settle_stopped(at, said).await
    }

    async fn give_name(&self, ctx: Ctx<'_>, dir: Oid, old: &Name, new: &Name, how: RenameHow) -> Result<()> {
        self.rename(ctx, dir, old.as_bytes(), dir, new.as_bytes(), how).await.map(drop)
    }
}

impl Volume {
    /// Directory, name and the directory's path of all copies of conflicts, as far as it is known here.
    fn copies(&self) -> Vec<(u64, Name, HomePath)> {
        let gateway = self.shared.gateway;
        let mut tree = self.tree.lock();
        let mut found = Vec::new();
        for id in tree.copies.ids() {
            let Ok(inode) = tree.get(id) else { continue };
            let places: Vec<_> = inode.link.iter().chain(&inode.more_links).cloned().collect();
            let places = if inode.gone { Vec::new() } else { places };
            let before = found.len();
            for (dir, name) in places.into_iter().filter(|(_, name)| is_copy(gateway, name)) {
                if let Ok(path) = tree.local_path(dir) {
                    found.push((dir, name, path));
                }
            }
            if found.len() == before {
                tree.copies.forget(id);
            }
            if found.len() >= limits::COPIES_SHOWN {
                break;
            }
        }
        // While a copy is being made two objects may stand for its name.
        let mut seen = HashSet::new();
        found.retain(|(dir, name, _)| seen.insert((*dir, name.clone())));
        found
    }

    /// How many copies of conflicts there are, as far as it is known here; at most 1000.
    pub fn count_copies(&self) -> u64 {
        self.copies().len() as u64
    }
}
