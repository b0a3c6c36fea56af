//! A file system as one image: objects and names. Changes of names and attributes are values, so that a power cut
//! can keep a prefix of them.

use home::Time;
use home::posix::sys::{FileType, Rename};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Inode number.
pub type Ino = u64;
/// The root directory.
pub const ROOT: Ino = 2;
/// How the names of staging directories begin.
pub(super) const STAGING: &[u8] = b".trellis-stage-";

/// An object.
#[derive(Clone)]
pub struct Inode {
    /// Type.
    pub kind: FileType,
    /// Tells two objects of one number apart.
    pub generation: u64,
    /// Permission bits.
    pub mode: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; of a directory, those that lead to it.
    pub nlink: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
    /// Content of a file, target of a symbolic link.
    pub data: Arc<Vec<u8>>,
    /// Names of a directory.
    pub names: BTreeMap<Vec<u8>, Ino>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What part of the tree it is in, by the name that it got last.
    pub place: &'static str,
}

/// A change of names or attributes, each in one transaction of the file system's journal.
#[derive(Clone)]
#[allow(missing_docs, reason = "the fields are those of the system calls")]
pub enum Change {
    /// A new object.
    Make { dir: Ino, name: Vec<u8>, ino: Ino, node: Box<Inode>, at: Time },
    /// A further name.
    Link { dir: Ino, name: Vec<u8>, ino: Ino, at: Time },
    /// A name less.
    Unlink { dir: Ino, name: Vec<u8>, at: Time },
    /// A name elsewhere.
    Rename { from: Ino, name: Vec<u8>, to: Ino, new: Vec<u8>, how: Rename, at: Time },
    /// Other permission bits.
    Mode { ino: Ino, mode: u32, at: Time },
    /// Another group.
    Group { ino: Ino, gid: u32, at: Time },
    /// Other times.
    Times { ino: Ino, atime: Option<Time>, mtime: Option<Time>, at: Time },
    /// An extended attribute.
    Xattr { ino: Ino, name: Vec<u8>, value: Option<Vec<u8>>, at: Time },
    /// The times that a change of content leaves; the content itself is written when it pleases. What was cut off behind
    /// `end` does not come back.
    Wrote { ino: Ino, end: usize, at: Time },
}

/// The image.
#[derive(Clone, Default)]
pub struct Fs {
    /// All objects that have a name or are open.
    pub nodes: BTreeMap<Ino, Inode>,
}

impl Fs {
    /// An object.
    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        self.nodes.get(&ino)
    }

    /// What a name stands for.
    pub fn child(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.nodes.get(&dir)?.names.get(name).copied()
    }

    /// The number of links as stat(2) tells it.
    pub fn links(&self, ino: Ino) -> u32 {
        let Some(node) = self.nodes.get(&ino) else { return 0 };
        if node.kind != FileType::Dir {
            return node.nlink;
        }
        let is_dir = |i: &&Ino| self.nodes.get(i).is_some_and(|n| n.kind == FileType::Dir);
        if node.nlink == 0 { 0 } else { 2 + node.names.values().filter(is_dir).count() as u32 }
    }

    /// Whether a directory lies in another one, or is it.
    pub fn contains(&self, top: Ino, ino: Ino) -> bool {
        top == ino
            || self.nodes.get(&top).is_some_and(|n| n.names.values().any(|child| self.contains(*child, ino)))
    }

    /// Makes a change that is known to be possible. What it is about may be gone from the image, if it was open only.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Make { dir, name, ino, node, at } => {
                self.nodes.insert(*ino, (**node).clone());
                self.enter(*dir, name, *ino, *at);
            }
            Change::Link { dir, name, ino, at } => {
                self.changed(*ino, |n| (n.nlink, n.ctime) = (n.nlink + 1, *at));
                self.enter(*dir, name, *ino, *at);
            }
            Change::Unlink { dir, name, at } => {
                if let Some(ino) = self.leave(*dir, name, *at) {
                    self.drop_link(ino, *at);
                }
            }
            Change::Rename { from, name, to, new, how, at } => {
                self.rename((*from, name), (*to, new), *how, *at)
            }
            Change::Mode { ino, mode, at } => self.changed(*ino, |n| (n.mode, n.ctime) = (*mode, *at)),
            Change::Group { ino, gid, at } => self.changed(*ino, |n| (n.gid, n.ctime) = (*gid, *at)),
            Change::Times { ino, atime, mtime, at } => self.changed(*ino, |n| {
                n.atime = atime.unwrap_or(n.atime);
                n.mtime = mtime.unwrap_or(n.mtime);
                n.ctime = *at;
            }),
            Change::Xattr { ino, name, value, at } => self.changed(*ino, |n| {
                n.ctime = *at;
                match value {
                    Some(value) => n.xattrs.insert(name.clone(), value.clone()),
                    None => n.xattrs.remove(name),
                };
            }),
            Change::Wrote { ino, end, at } => self.changed(*ino, |n| {
                (n.mtime, n.ctime) = (*at, *at);
                if n.data.len() > *end {
                    Arc::make_mut(&mut n.data).truncate(*end);
                }
            }),
        }
    }

    fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), how: Rename, at: Time) {
        let Some(ino) = self.leave(from.0, from.1, at) else { return };
        let old = self.leave(to.0, to.1, at);
        self.changed(ino, |n| n.ctime = at);
        self.enter(to.0, to.1, ino, at);
        match (old, how) {
            (Some(old), Rename::Exchange) => {
                self.changed(old, |n| n.ctime = at);
                self.enter(from.0, from.1, old, at);
            }
            (Some(old), _) => self.drop_link(old, at),
            (None, _) => {}
        }
    }

    fn changed(&mut self, ino: Ino, how: impl FnOnce(&mut Inode)) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            how(node);
        }
    }

    /// What part of the tree a name of a directory is in.
    pub fn place_in(&self, dir: Ino, name: &[u8]) -> &'static str {
        match (name, self.get(dir).map_or("tree", |d| d.place)) {
            (name, _) if name.starts_with(STAGING) => "staging",
            (b".cache", "tree") => "cache",
            (_, place) => place,
        }
    }

    fn enter(&mut self, dir: Ino, name: &[u8], ino: Ino, at: Time) {
        let place = self.place_in(dir, name);
        self.changed(ino, |n| n.place = place);
        self.changed(dir, |d| {
            d.names.insert(name.to_vec(), ino);
            (d.mtime, d.ctime) = (at, at);
        });
    }

    fn leave(&mut self, dir: Ino, name: &[u8], at: Time) -> Option<Ino> {
        let dir = self.nodes.get_mut(&dir)?;
        let ino = dir.names.remove(name)?;
        (dir.mtime, dir.ctime) = (at, at);
        Some(ino)
    }

    /// An object without a name stays until somebody sweeps.
    fn drop_link(&mut self, ino: Ino, at: Time) {
        self.changed(ino, |n| {
            n.nlink = n.nlink.saturating_sub(1);
            n.ctime = at;
        });
    }

    /// Forgets objects without a name, but for those of `open`; answers the forgotten ones.
    pub fn sweep(&mut self, open: impl Fn(Ino) -> bool) -> Vec<Ino> {
        let gone: Vec<Ino> =
            self.nodes.iter().filter(|(ino, n)| n.nlink == 0 && !open(**ino)).map(|(ino, _)| *ino).collect();
        gone.iter().for_each(|ino| drop(self.nodes.remove(ino)));
        gone
    }

    /// Every path below a directory with its object, in order.
    pub fn walk(&self, top: Ino) -> Vec<(String, Ino)> {
        let mut found = Vec::new();
        self.walk_into(top, "", &mut found);
        found
    }

    fn walk_into(&self, dir: Ino, at: &str, found: &mut Vec<(String, Ino)>) {
        for (name, ino) in self.nodes.get(&dir).iter().flat_map(|d| &d.names) {
            let path = format!("{at}/{}", String::from_utf8_lossy(name));
            found.push((path.clone(), *ino));
            self.walk_into(*ino, &path, found);
        }
    }
}
