//! Conflicts that nobody has settled, in the server: what is told of them, and how one is settled.

use super::proto::{Keep, Raw, Reply, Settled, letter};
use super::report::{ConflictReport, Side};
use super::server::Control;
use crate::limits;
use crate::tree::split;
use home::{Error, ErrorKind, HomePath, Name, Result};
use vfs::{ConflictCopy, FileAttr, Oid, VolumeStatus};

impl Control {
    /// Those of the home that a path belongs to, or all.
    pub(super) async fn conflicts(&self, path: Option<Raw>) -> Result<Reply> {
        let first = path.as_ref().and_then(|p| p.0.split(|b| *b == b'/').find(|p| !p.is_empty()));
        let typed = first.and_then(|name| Name::new(name).ok());
        let wanted = self.volume_of(path).await?;
        let found = self.vfs.conflict_copies(self.ctx(), wanted).await?;
        let volumes = self.vfs.status().volumes;
        let mut reports = Vec::new();
        for volume in volumes {
            let stopped = stopped(&volume, wanted);
            if found.iter().any(|(id, _)| *id == volume.volume) || !stopped.is_empty() {
                let ways = self.ways(&volume, typed.as_ref()).await;
                let copies = found.iter().filter(|(id, _)| *id == volume.volume);
                reports.extend(copies.map(|(_, copy)| report(&volume, &ways, copy)));
                for at in stopped {
                    reports.push(self.report_stopped(&volume, &ways, &at).await);
                }
            }
        }
        Ok(Reply::Conflicts(reports))
    }

    /// What is told of a change that is stopped at a conflict.
    async fn report_stopped(
        &self,
        volume: &VolumeStatus,
        ways: &[(Name, HomePath)],
        at: &HomePath,
    ) -> ConflictReport {
        let path = place(volume, ways, at);
        let ours = self.vfs.resolve_path(self.ctx(), &path.0).await.ok();
        let written = ours.as_ref().map_or(0, |(_, attr)| attr.mtime.sec);
        ConflictReport {
            account: volume.account.clone(),
            copy: path.clone(),
            original: Some(path),
            written,
            mine: ours.as_ref().map(|(_, attr)| side(attr)),
            theirs: None,
            gone: false,
            theirs_is_copy: false,
            stopped: true,
        }
    }

    /// The names that lead to a home, the one that was typed first, and the directory that each leads to.
    async fn ways(&self, volume: &VolumeStatus, typed: Option<&Name>) -> Vec<(Name, HomePath)> {
        let mut names = volume.names.clone();
        names.sort_by_key(|name| Some(name) != typed);
        let mut ways = Vec::new();
        for name in names {
            let path = [b"/", name.as_bytes()].concat();
            let found = self.vfs.resolve_path(self.ctx(), &path);
            let Ok(Ok((oid, _))) = tokio::time::timeout(limits::NAME_PATIENCE, found).await else { continue };
            if oid.volume == volume.volume
                && let Ok(dir) = self.vfs.path_of(oid)
            {
                ways.push((name, dir));
            }
        }
        ways
    }

    /// Settles one; the path is that of the copy, or of what it is a copy of.
    pub(super) async fn settle(&self, path: Raw, keep: Keep) -> Result<Reply> {
        let (above, name) = split(&path.0);
        let (dir, _) = self.vfs.resolve_path(self.ctx(), &above).await?;
        let keep = match keep {
            Keep::Mine => vfs::Keep::Mine,
            Keep::Theirs => vfs::Keep::Theirs,
            Keep::Both(name) => vfs::Keep::Both(name.map(|n| Name::new(&n.0)).transpose()?),
        };
        if dir.volume != Oid::ROOT_VOLUME {
            let at = self.vfs.path_of(dir)?.join(&Name::new(&name)?);
            let volumes = self.vfs.status().volumes;
            if volumes.iter().any(|v| stopped(v, Some(dir.volume)).contains(&at)) {
                return Ok(Reply::Settled(match self.vfs.settle_stopped(dir.volume, &at, &keep).await? {
                    vfs::Settled::Mine => Settled::Mine(path),
                    vfs::Settled::Removed => Settled::Removed,
                    vfs::Settled::Theirs => Settled::Theirs,
                    vfs::Settled::Both(copy) => Settled::Both(beside(&above, &copy)),
                }));
            }
        }
        let copy = match Name::new(&name)? {
            name if vfs::copy_of(&name).is_some() => name,
            name => self.only_copy(dir, &name).await?,
        };
        let kept = self.vfs.settle_conflict(self.ctx(), dir, &copy, keep).await?;
        Ok(Reply::Settled(kept.map_or(Settled::One, |name| Settled::Mine(beside(&above, &name)))))
    }

    /// The copy of what has this name.
    async fn only_copy(&self, dir: Oid, name: &Name) -> Result<Name> {
        let all = match dir.volume {
            Oid::ROOT_VOLUME => Vec::new(),
            volume => self.vfs.conflict_copies(self.ctx(), Some(volume)).await?,
        };
        let of_it = |(_, c): &(u32, ConflictCopy)| {
            (c.dir == dir && c.of.original.as_ref() == Some(name)).then(|| c.name.clone())
        };
        match &all.iter().filter_map(of_it).collect::<Vec<_>>()[..] {
            [one] => Ok(one.clone()),
            [] => Err(Error::new(
                ErrorKind::NotFound,
                "no conflict is known here: `trellis conflicts` lists them",
            )),
            many => {
                let text = format!("has {} copies: say which, as `trellis conflicts` lists them", many.len());
                Err(Error::new(ErrorKind::Invalid, text))
            }
        }
    }
}

/// The path of a name in a directory.
fn beside(above: &[u8], name: &Name) -> Raw {
    let gap: &[u8] = if above.ends_with(b"/") { b"" } else { b"/" };
    Raw([above, gap, name.as_bytes()].concat())
}

/// Where changes are stopped at conflicts, if the volume is the one that is wanted.
fn stopped(volume: &VolumeStatus, wanted: Option<u32>) -> Vec<HomePath> {
    let is_it = wanted.is_none_or(|id| id == volume.volume);
    let parked = volume.parked.iter().filter(|p| is_it && p.stopped.is_some());
    let mut places: Vec<HomePath> = parked.filter_map(|p| p.at.clone()).collect();
    places.dedup();
    places
}

fn report(volume: &VolumeStatus, ways: &[(Name, HomePath)], copy: &ConflictCopy) -> ConflictReport {
    let at = |name: &Name| place(volume, ways, &copy.path.join(name));
    let (of_copy, of_name) = (copy.ours.as_ref().map(side), copy.theirs.flatten().as_ref().map(side));
    let theirs_is_copy = copy.of.is_theirs;
    let (mine, theirs) = if theirs_is_copy { (of_name, of_copy) } else { (of_copy, of_name) };
    ConflictReport {
        account: volume.account.clone(),
        copy: at(&copy.name),
        original: copy.of.original.as_ref().map(at),
        written: copy.of.written,
        mine,
        theirs,
        gone: copy.theirs.is_some_and(|there| there.is_none()),
        theirs_is_copy,
        stopped: false,
    }
}

/// A path as commands take it; where no name leads to it, behind the account.
fn place(volume: &VolumeStatus, ways: &[(Name, HomePath)], path: &HomePath) -> Raw {
    let names: Vec<Name> = path.names().collect();
    let below =
        ways.iter().find_map(|(name, dir)| {
            let dir: Vec<Name> = dir.names().collect();
            let rest = names.strip_prefix(&dir[..])?;
            Some(rest.iter().fold([b"/", name.as_bytes()].concat(), |at, part| {
                [&at, &b"/"[..], part.as_bytes()].concat()
            }))
        });
    Raw(below.unwrap_or_else(|| [volume.account.as_bytes(), b":", path.to_string().as_bytes()].concat()))
}

fn side(a: &FileAttr) -> Side {
    Side { kind: letter(a.kind), size: a.size, uid: a.uid, mode: a.mode, mtime: (a.mtime.sec, a.mtime.nsec) }
}
