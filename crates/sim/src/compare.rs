//! What is at the home, beside what a client did.

use crate::client::{Check, Client, same_bytes};
use crate::machine::fs::{Fs, Ino, ROOT};
use home::Kind;
use home::posix::sys::FileType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The account's home directory.
pub fn home_of(image: &Fs) -> Option<Ino> {
    image.child(image.child(ROOT, b"home")?, b"ann")
}

/// Files below the account's home directory.
pub fn files(image: &Fs) -> BTreeMap<String, Arc<Vec<u8>>> {
    let Some(top) = home_of(image) else { return BTreeMap::new() };
    let all = image.walk(top).into_iter();
    let file = |ino| image.get(ino).filter(|n| n.kind == FileType::File).map(|n| n.data.clone());
    all.filter_map(|(path, ino)| Some((path, file(ino)?))).collect()
}

/// Compares what is at the home with what a client did.
pub fn compare(client: &Client, image: &Fs) -> Check {
    let who = client.name();
    let top = home_of(image).and_then(|home| image.child(home, who.as_bytes()));
    let top = top.ok_or_else(|| format!("{who} is not at the home"))?;
    let (have, want) = (image.walk(top), client.model.paths());
    let (names, wanted): (Vec<_>, Vec<_>) = (have.iter().map(|(p, _)| p).collect(), want.keys().collect());
    let (mut names, mut wanted) = (names, wanted);
    names.sort();
    wanted.sort();
    if names != wanted {
        return Err(format!("{who} has {names:?} at the home, and should have {wanted:?}"));
    }
    have.into_iter().try_for_each(|(path, ino)| {
        want.get(&path).map_or(Ok(()), |id| compare_one(client, image, (ino, *id), &path))
    })
}

/// Compares what there is at a path at the home with an object of a client.
pub fn compare_one(client: &Client, image: &Fs, (ino, id): (Ino, usize), path: &str) -> Check {
    let (who, o) = (client.name(), &client.model.objs[id]);
    let Some(node) = image.get(ino) else { return Ok(()) };
    let kind = if node.kind == FileType::Dir { Kind::Dir } else { Kind::File };
    let strict = o.kind != Kind::Dir || client.directories;
    let mtime = o.mtime.filter(|_| strict).unwrap_or(node.mtime);
    let (have, want) =
        ((kind, node.mode, image.links(ino), node.mtime), (o.kind, o.mode, client.model.links(id), mtime));
    if have != want {
        return Err(format!("{who}{path} (object {id}) is {have:?} at the home, and should be {want:?}"));
    }
    if o.kind == Kind::File {
        same_bytes(&node.data, o).map_err(|e| format!("{who}{path} (object {id}) at the home: {e}"))?;
    }
    Ok(())
}
