//! Looking names up and listing them.

use super::live;
use crate::Vfs;
use crate::freshness::{Need, has_good_attributes};
use crate::inode::{ROOT_ID, is_hidden};
use crate::limits;
use crate::types::{Ctx, DirEntry, DirPage, Found, Oid};
use crate::volume::Volume;
use bytes::Bytes;
use home::{ErrorKind, Name, Result};
use std::sync::Arc;
use std::time::Duration;

impl Vfs {
    /// What a name stands for. `.` and `..` are names too; `..` of a volume's root is the root directory.
    pub async fn lookup(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8]) -> Result<Found> {
        if dir.volume == Oid::ROOT_VOLUME {
            return match self.lookup_own(ctx, dir, name)? {
                Some(found) => Ok(found),
                None => self.lookup_root(ctx, name).await,
            };
        }
        let volume = self.volume(dir)?;
        let need = volume.need_of_call(ctx, dir.id);
        // `.` and `..` are none.
        if let Ok(name) = Name::new(name) {
            volume.path_ahead(ctx, dir.id, &name);
            volume.look_at_home(dir.id, &name, need).await?;
        }
        volume.ensure_allowed(dir.id, need, |attr| volume.may_search(ctx.cred, attr)).await?;
        {
            let mut tree = volume.tree.lock();
            let attr = Volume::attr_of(&mut tree, dir.id)?;
            live(&mut tree, dir.id)?.names()?;
            volume.may_search(ctx.cred, &attr)?;
        }
        let id = match name {
            b"." => dir.id,
            b".." => match self.parent(&volume, dir.id)? {
                Some(parent) => parent,
                None => return Ok(self.found_root()),
            },
            name => return self.child(&volume, ctx, dir.id, Name::new(name)?, need).await,
        };
        volume.ensure_attr(id, volume.need_of_call(ctx, id)).await?;
        found(&volume, dir.id, id)
    }

    /// What an entry of a directory stands for, for a call that needs this of the directory.
    async fn child(
        &self,
        volume: &Arc<Volume>,
        ctx: Ctx<'_>,
        dir: u64,
        name: Name,
        need: Need,
    ) -> Result<Found> {
        if is_hidden(self.shared.gateway, &name) {
            return Err(ErrorKind::NotFound.into());
        }
        let mut need = if need.insist { need } else { volume.need_of_name(ctx, dir, &name) };
        for _ in 0..limits::LOOKUP_TRIES {
            let child = volume.ensure_name(dir, &name, need).await?;
            let id = child.ok_or_else(|| home::Error::from(ErrorKind::NotFound))?;
            // An answer that was insisted on is not asked for again.
            let need_of_child = if need.insist { need } else { volume.need_of_call(ctx, id) };
            match volume.ensure_attr(id, need_of_child).await.and_then(|()| found(volume, dir, id)) {
                // It was taken away or replaced in between: the name may stand for something else, or nothing.
                Err(e) if e.kind == ErrorKind::Stale => {
                    need = volume.need_of_name(ctx, dir, &name).no_older_than(Duration::ZERO)
                }
                other => return other,
            }
        }
        Err(ErrorKind::Stale.into())
    }

    fn parent(&self, volume: &Volume, dir: u64) -> Result<Option<u64>> {
        if dir == ROOT_ID {
            return Ok(None);
        }
        let mut tree = volume.tree.lock();
        let link = live(&mut tree, dir)?.link.clone();
        link.map(|(parent, _)| Some(parent)).ok_or_else(|| ErrorKind::Stale.into())
    }

    /// At most `max` entries behind a cookie (0: the start). `.` has cookie 1, `..` has 2.
    pub async fn readdir(&self, ctx: Ctx<'_>, dir: Oid, after: u64, max: usize) -> Result<DirPage> {
        if dir.volume == Oid::ROOT_VOLUME {
            return match dir {
                Oid::ROOT => Ok(self.list_root(after, max)),
                ours => self.list_own(ours, after, max),
            };
        }
        let volume = self.volume(dir)?;
        let need = volume.need_of_call(ctx, dir.id);
        let begins = (after == 0).then(|| volume.meets(dir.id, &need));
        if begins.is_some() {
            volume.follow_down(dir.id);
        }
        // A listing that was begun goes on with what it began with.
        let begun = after > 0 && live(&mut volume.tree.lock(), dir.id)?.names()?.complete;
        let allowed = async {
            volume.ensure_allowed(dir.id, need, |attr| volume.may_list(ctx.cred, attr)).await?;
            let mut tree = volume.tree.lock();
            let attr = Volume::attr_of(&mut tree, dir.id)?;
            live(&mut tree, dir.id)?.names()?;
            volume.may_list(ctx.cred, &attr)
        };
        let listed = async { if begun { Ok(()) } else { volume.ensure_listing(dir.id, need).await } };
        volume.both(allowed, listed).await?;
        if let Some(met) = begins {
            volume.list_ahead(dir.id, met, &need);
        }
        self.page(&volume, dir, after, max, &need)
    }

    fn page(&self, volume: &Arc<Volume>, dir: Oid, after: u64, max: usize, need: &Need) -> Result<DirPage> {
        let mut tree = volume.tree.lock();
        volume.walks.uses(&mut tree, dir.id);
        let attr = volume.shown(&mut tree, dir.id)?;
        let mut entries = Vec::new();
        if after < 1 {
            entries.push(dot(b".", 1, dir, attr.fileid));
        }
        if after < 2 {
            let parent = live(&mut tree, dir.id)?.link.as_ref().map_or(ROOT_ID, |(p, _)| *p);
            let parent_fileid = tree.peek(parent).map_or(attr.fileid, |n| n.fileid);
            entries.push(dot(b"..", 2, Oid { id: parent, ..dir }, parent_fileid));
        }
        let gateway = self.shared.gateway;
        let node = tree.names(dir.id)?;
        let mut found: Vec<(u64, Name, u64)> = Vec::new();
        let room = max.saturating_sub(entries.len());
        let mut more = false;
        for (cookie, name, slot) in node.after(after) {
            let Some(child) = slot.child.filter(|_| !is_hidden(gateway, name)) else { continue };
            if found.len() == room {
                more = true;
                break;
            }
            found.push((cookie, name.clone(), child));
        }
        for (cookie, name, id) in found {
            let Some(inode) = tree.peek(id) else {
                // Dropped from memory: its identity is in the store, its attributes are not needed.
                let fileid = tree.get(id)?.fileid;
                entries.push(entry(&name, cookie, Oid { id, ..dir }, fileid, None));
                continue;
            };
            let fresh = inode.attr.filter(|_| has_good_attributes(&tree, id, need));
            let shown = fresh.map(|a| volume.show(inode, &a));
            entries.push(entry(&name, cookie, Oid { id, ..dir }, inode.fileid, shown));
        }
        Ok(DirPage { entries, eof: !more, dir: attr })
    }

    /// What a path from the root directory leads to; symbolic links are not followed.
    pub async fn resolve_path(&self, ctx: Ctx<'_>, path: &[u8]) -> Result<(Oid, crate::FileAttr)> {
        let mut at = Oid::ROOT;
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            at = self.lookup(ctx, at, name).await?.oid;
        }
        Ok((at, self.getattr(ctx, at).await?))
    }
}

/// An object as a look-up in a directory answers with it.
fn found(volume: &Volume, dir: u64, id: u64) -> Result<Found> {
    let mut tree = volume.tree.lock();
    let attr = volume.shown(&mut tree, id)?;
    let dir = volume.shown_if_known(&tree, dir);
    Ok(Found { oid: Oid { volume: volume.id, id }, attr, dir })
}

fn dot(name: &'static [u8], cookie: u64, oid: Oid, fileid: u64) -> DirEntry {
    DirEntry { name: Bytes::from_static(name), cookie, oid, fileid, attr: None }
}

fn entry(name: &Name, cookie: u64, oid: Oid, fileid: u64, attr: Option<crate::FileAttr>) -> DirEntry {
    DirEntry { name: Bytes::copy_from_slice(name.as_bytes()), cookie, oid, fileid, attr }
}
