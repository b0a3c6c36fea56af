//! Requests that list directories.

use super::call::{Answer, patient};
use super::{Call, Tree};
use super::{convert, nodes};
use crate::limits;
use fuser::{Errno, FileType, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use vfs::{AccessMask, DirEntry, FileAttr, Kind, Oid};

/// A reply that takes entries until it is full.
pub trait Listing {
    /// Adds an entry, with its attributes where they are known; answers whether it was full already.
    fn add(&mut self, tree: &Tree, entry: &DirEntry, attr: Option<&FileAttr>) -> bool;
}

impl Listing for ReplyDirectory {
    fn add(&mut self, tree: &Tree, entry: &DirEntry, attr: Option<&FileAttr>) -> bool {
        let kind = attr.map_or(FileType::Directory, |a| convert::file_type(a.kind));
        let number = match attr {
            Some(attr) => tree.nodes.number(entry.oid, attr),
            None => unreached(entry),
        };
        ReplyDirectory::add(self, INodeNo(number), entry.cookie, kind, OsStr::from_bytes(&entry.name))
    }
}

impl Listing for ReplyDirectoryPlus {
    fn add(&mut self, tree: &Tree, entry: &DirEntry, attr: Option<&FileAttr>) -> bool {
        let name = OsStr::from_bytes(&entry.name);
        // The kernel does not count these two as looked up.
        let counted = attr.is_some() && !is_dot(entry);
        let (attr, ttl) = match attr {
            Some(attr) if counted => {
                (tree.shown(tree.nodes.remember(entry.oid, attr), attr), tree.ttl(entry.oid))
            }
            Some(attr) => (tree.shown(tree.nodes.number(entry.oid, attr), attr), Duration::ZERO),
            None => (convert::attr(unreached(entry), &placeholder(entry)), Duration::ZERO),
        };
        let generation = nodes::generation(entry.oid);
        let full = ReplyDirectoryPlus::add(self, attr.ino, entry.cookie, name, &ttl, &attr, generation);
        if full && counted {
            tree.nodes.forget(attr.ino.0, 1);
        }
        full
    }
}

fn is_dot(entry: &DirEntry) -> bool {
    matches!(&entry.name[..], b"." | b"..")
}

/// The number of a home that was not reached yet: no node id, so that the kernel has to look it up first.
fn unreached(entry: &DirEntry) -> u64 {
    entry.fileid.max(2)
}

/// What is shown of such a home: the kernel does not keep it, and asks when somebody wants to know.
fn placeholder(entry: &DirEntry) -> FileAttr {
    let never = vfs::Time::default();
    FileAttr {
        kind: Kind::Dir,
        mode: 0o700,
        nlink: 2,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        fsid: 0,
        fileid: entry.fileid,
        atime: never,
        mtime: never,
        ctime: never,
    }
}

impl Call {
    /// FUSE_OPENDIR.
    pub async fn opendir(&self, node: INodeNo) -> Answer<()> {
        let oid = self.oid(node)?;
        self.allowed(oid, AccessMask { read: true, ..AccessMask::default() }).await.map(drop)
    }

    /// FUSE_READDIR and FUSE_READDIRPLUS: what follows the cookie, as much as the reply takes.
    pub async fn list<L: Listing>(&self, node: INodeNo, after: u64, mut reply: L) -> Result<L, (L, Errno)> {
        let mut after = after;
        let dir = match self.oid(node) {
            Ok(dir) => dir,
            Err(e) => return Err((reply, e)),
        };
        loop {
            let page = match patient(|| self.vfs.readdir(self.ctx(), dir, after, limits::FUSE_ENTRIES)).await
            {
                Ok(page) => page,
                Err(e) => return Err((reply, e)),
            };
            for entry in &page.entries {
                let attr = match self.attr_of(dir, entry).await {
                    Ok(attr) => attr,
                    // It has gone since the listing was made.
                    Err(Errno::ENOENT | Errno::ESTALE) => continue,
                    Err(e) => return Err((reply, e)),
                };
                if reply.add(self, entry, attr.as_ref()) {
                    return Ok(reply);
                }
            }
            match page.entries.last() {
                Some(last) if !page.eof => after = last.cookie,
                _ => return Ok(reply),
            }
        }
    }

    /// The attributes of an entry; `None` for a home that would have to be connected to tell them.
    async fn attr_of(&self, dir: Oid, entry: &DirEntry) -> Answer<Option<FileAttr>> {
        match entry.attr {
            Some(attr) => Ok(Some(attr)),
            None if dir == Oid::ROOT && is_dot(entry) => Ok(self.vfs.peek(Oid::ROOT)),
            None if dir == Oid::ROOT && entry.oid == Oid::ROOT => Ok(None),
            None if dir == Oid::ROOT => Ok(self.vfs.peek(entry.oid)),
            None => patient(|| self.vfs.getattr(self.ctx(), entry.oid)).await.map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_that_was_not_reached_is_a_folder_that_the_kernel_asks_for() {
        let name = bytes::Bytes::from_static(b"ann@lab");
        for (fileid, number) in [(0, 2), (1, 2), (77, 77)] {
            let entry = DirEntry { name: name.clone(), cookie: 3, oid: Oid::ROOT, fileid, attr: None };
            assert_eq!(unreached(&entry), number, "never the root's");
            let shown = convert::attr(unreached(&entry), &placeholder(&entry));
            assert_eq!((shown.kind, shown.ino.0, shown.perm), (FileType::Directory, number, 0o700));
        }
    }
}
