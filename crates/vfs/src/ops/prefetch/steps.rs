//! The steps of a prefetch.

use super::{Place, place};
use crate::fetch::{Extent, Want};
use crate::freshness;
use crate::inode::is_hidden;
use crate::types::{Cred, Ctx, Oid};
use crate::volume::Volume;
use crate::{Vfs, limits};
use bytes::Bytes;
use home::limits::agent::WALK_BYTES;
use home::{Error, ErrorKind, Kind, Name, Result};
use std::collections::VecDeque;

/// Of a directory.
pub struct Child {
    pub name: Name,
    pub id: u64,
    /// Type and length; `None` where it may not be read.
    pub attr: Option<(Kind, u64)>,
}

/// What a path from the root directory leads to, over all symbolic links, with its type and length.
pub async fn find(vfs: &Vfs, cred: &Cred, path: &Bytes) -> Result<(Place, Kind, u64)> {
    let ctx = Ctx::of(cred);
    let names = |path: &[u8]| -> Vec<Bytes> {
        let names = path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".");
        names.map(Bytes::copy_from_slice).collect()
    };
    let mut todo: VecDeque<Bytes> = names(path).into();
    let mut above = vec![Oid::ROOT];
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        let dir = above.last().copied().unwrap_or(Oid::ROOT);
        if &name[..] == b".." {
            above.truncate((above.len() - 1).max(1));
            continue;
        }
        let found = vfs.lookup(ctx, dir, &name).await?;
        if found.attr.kind != Kind::Symlink {
            above.push(found.oid);
            continue;
        }
        links += 1;
        let (target, _) = vfs.readlink(ctx, found.oid).await?;
        if links > limits::PREFETCH_LINKS {
            return Err(ErrorKind::Loop.into());
        }
        if target.starts_with(b"/") {
            let text = format!("{} is a link to {}", name.escape_ascii(), target.escape_ascii());
            let advice =
                "which is absolute and so means another place on each machine: name that place instead";
            return Err(Error::new(ErrorKind::NotFound, format!("{text}, {advice}")));
        }
        names(&target).into_iter().rev().for_each(|name| todo.push_front(name));
    }
    let oid = above.last().copied().unwrap_or(Oid::ROOT);
    if oid.volume == Oid::ROOT_VOLUME {
        return Err(Error::new(ErrorKind::Invalid, "is not of a home: name one, as `trellis status` does"));
    }
    let place = place(vfs, oid, path)?;
    let attr = vfs.getattr(ctx, oid).await?;
    if attr.kind == Kind::File && !readable(&place.volume, cred, oid.id)? {
        return Err(ErrorKind::Access.into());
    }
    // `find` and `git` ask for it before anything else.
    if place.volume.space_shown(oid.id)?.is_none() {
        place.volume.ask_for_space(oid.id);
    }
    Ok((place, attr.kind, attr.size))
}

fn readable(volume: &Volume, cred: &Cred, id: u64) -> Result<bool> {
    let attr = Volume::attr_of(&mut volume.tree.lock(), id)?;
    Ok(volume.access_of(cred, &attr).read)
}

/// Brings directories of a home of which nothing is known, and what is below them, where the home walks by itself. What does
/// not come is listed.
pub async fn walk(dirs: &[Place]) {
    let Some(volume) = dirs.first().map(|dir| &dir.volume).filter(|volume| volume.home.walks()) else {
        return;
    };
    let is_unknown = |dir: &Place| {
        let mut tree = volume.tree.lock();
        let has_size = tree.get(dir.id).is_ok_and(|inode| inode.attr.is_some_and(|attr| attr.size > 0));
        has_size && tree.names(dir.id).is_ok_and(|node| !node.complete && !node.big)
    };
    let unknown: Vec<u64> = dirs.iter().filter(|dir| is_unknown(dir)).map(|dir| dir.id).collect();
    if let Err(e) = volume.walk(&unknown, WALK_BYTES as u32, true).await {
        tracing::debug!(why = %e, "a walk came to nothing");
    }
}

/// The names in a directory, with what is in them.
pub async fn list(dir: &Place, cred: &Cred) -> Result<Vec<Child>> {
    let volume = &dir.volume;
    {
        let mut tree = volume.tree.lock();
        let attr = Volume::attr_of(&mut tree, dir.id)?;
        volume.may_list(cred, &attr)?;
        volume.may_search(cred, &attr)?;
    }
    let need = volume.need(dir.id);
    let listed = freshness::is_listed(volume.tree.lock().names(dir.id)?, &need);
    if !listed {
        volume.ask_later(Want::List(dir.id, Extent::Whole)).await?;
    }
    let gateway = volume.shared.gateway;
    let (mut children, mut after) = (Vec::new(), 0);
    loop {
        let mut tree = volume.tree.lock();
        let page: Vec<(u64, Name, Option<u64>)> = {
            let node = tree.names(dir.id)?.after(after);
            node.take(limits::AHEAD_SCAN)
                .map(|(cookie, name, slot)| (cookie, name.clone(), slot.child))
                .collect()
        };
        let Some((last, ..)) = page.last() else { return Ok(children) };
        after = *last;
        for (_, name, child) in page {
            let Some(id) = child.filter(|_| !is_hidden(gateway, &name)) else { continue };
            let attr = tree.get(id).ok().and_then(|inode| inode.attr);
            let may = |a: &home::Attr| !matches!(a.kind, Kind::File) || volume.access_of(cred, a).read;
            let attr = attr.filter(may).map(|a| (a.kind, a.size));
            children.push(Child { name, id, attr });
        }
    }
}

/// How many bytes of the part of a file that begins at `at` are not in the cache.
pub fn missing(file: &Place, at: u64) -> u64 {
    let len = file.volume.tree.lock().get(file.id).map_or(0, |inode| inode.base_len);
    let len = len.saturating_sub(at).min(limits::FETCH_CHUNK);
    file.volume.data.gaps(file.id, at, len).into_iter().map(|(_, len)| len).sum()
}

/// Brings the part of a file that begins at `at` into the cache; answers how many bytes came.
pub async fn bring(file: &Place, at: u64) -> Result<u64> {
    let mut came = 0;
    for _ in 0..limits::QUESTIONS {
        let missing = missing(file, at);
        if missing == 0 {
            return Ok(came);
        }
        let budget = &file.volume.shared.budget;
        if came > 0 && budget.used() + missing > budget.cap() {
            return Err(ErrorKind::Full.into());
        }
        file.volume.ask_later(Want::Data(file.id, at)).await?;
        came += missing;
    }
    Err(Error::new(ErrorKind::Busy, "it changes all the time"))
}
