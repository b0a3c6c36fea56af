//! Inodes in memory with POSIX rules, under a clock that only counts.

use crate::attr::{Access, Attr, HomeId, Kind, Time};
use crate::error::{ErrorKind, Result};
use crate::{HomePath, Name, XattrName};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};

/// The owner of everything.
pub(super) const UID: u32 = 1000;
/// The group of everything at first.
pub(super) const GID: u32 = 1000;
/// The root's inode number.
pub(super) const ROOT: u64 = 2;

/// What an inode holds.
#[derive(Debug, Clone)]
pub(super) enum Body {
    File(Vec<u8>),
    Dir(BTreeMap<Name, u64>),
    Symlink(Vec<u8>),
    Fifo,
    Socket,
}

/// An inode.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub body: Body,
    pub mode: u32,
    pub gid: u32,
    pub nlink: u32,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub xattrs: BTreeMap<XattrName, Bytes>,
}

/// A file system.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: HashMap<u64, Node>,
    next: u64,
    ticks: u64,
    /// Bytes that files may hold together.
    pub space: u64,
    /// What it says that this is.
    pub told: u64,
    /// Whether it keeps extended attributes.
    pub has_xattrs: bool,
}

impl Body {
    pub fn kind(&self) -> Kind {
        match self {
            Body::File(_) => Kind::File,
            Body::Dir(_) => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
            Body::Fifo => Kind::Fifo,
            Body::Socket => Kind::Socket,
        }
    }

    /// Whether it can have extended attributes (xattr(7)).
    pub fn may_have_xattrs(&self) -> bool {
        matches!(self, Body::File(_) | Body::Dir(_))
    }

    fn len(&self) -> u64 {
        match self {
            Body::File(data) => data.len() as u64,
            Body::Symlink(target) => target.len() as u64,
            Body::Dir(_) => 4096,
            Body::Fifo | Body::Socket => 0,
        }
    }
}

impl Tree {
    pub fn new() -> Tree {
        let mut tree = Tree {
            nodes: HashMap::new(),
            next: ROOT,
            ticks: 0,
            space: 1 << 40,
            told: 1 << 40,
            has_xattrs: true,
        };
        let root = tree.add(Body::Dir(BTreeMap::new()), 0o755);
        tree.nodes.entry(root).and_modify(|n| n.nlink = 2);
        tree
    }

    /// The time: each question is a microsecond later, so that every change shows.
    pub fn now(&mut self) -> Time {
        self.ticks += 1;
        Time {
            sec: 1_700_000_000 + (self.ticks / 1_000_000) as i64,
            nsec: (self.ticks % 1_000_000) as u32 * 1000,
        }
    }

    /// A new inode without a name.
    pub fn add(&mut self, body: Body, mode: u32) -> u64 {
        let (ino, now) = (self.next, self.now());
        self.next += 1;
        let xattrs = BTreeMap::new();
        let node = Node { body, mode, gid: GID, nlink: 0, atime: now, mtime: now, ctime: now, xattrs };
        self.nodes.insert(ino, node);
        ino
    }

    pub fn node(&self, ino: u64) -> Result<&Node> {
        self.nodes.get(&ino).ok_or_else(|| ErrorKind::Stale.into())
    }

    pub fn node_mut(&mut self, ino: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or_else(|| ErrorKind::Stale.into())
    }

    /// The names in a directory.
    pub fn dir(&self, ino: u64) -> Result<&BTreeMap<Name, u64>> {
        match &self.node(ino)?.body {
            Body::Dir(names) => Ok(names),
            _ => Err(ErrorKind::NotDir.into()),
        }
    }

    /// The names in a directory that is being changed.
    pub fn dir_mut(&mut self, ino: u64) -> Result<&mut BTreeMap<Name, u64>> {
        let now = self.now();
        let node = self.node_mut(ino)?;
        let Body::Dir(names) = &mut node.body else { return Err(ErrorKind::NotDir.into()) };
        (node.mtime, node.ctime) = (now, now);
        Ok(names)
    }

    /// The inode at a path.
    pub fn find(&self, path: &HomePath) -> Result<u64> {
        let mut at = ROOT;
        for name in path.names() {
            at = *self.dir(at)?.get(&name).ok_or(ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    /// Gives an inode a name, which must be free.
    pub fn enter(&mut self, dir: u64, name: &Name, ino: u64) -> Result<()> {
        self.dir_mut(dir)?.insert(name.clone(), ino);
        let is_dir = matches!(self.node(ino)?.body, Body::Dir(_));
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.nlink += if is_dir { 2 } else { 1 };
        node.ctime = now;
        if is_dir {
            self.node_mut(dir)?.nlink += 1;
        }
        Ok(())
    }

    /// Takes a name away; the inode goes with its last one.
    pub fn leave(&mut self, dir: u64, name: &Name) -> Result<()> {
        let ino = self.dir_mut(dir)?.remove(name).ok_or(ErrorKind::NotFound)?;
        let is_dir = matches!(self.node(ino)?.body, Body::Dir(_));
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.nlink -= if is_dir { 2 } else { 1 };
        node.ctime = now;
        if is_dir {
            self.node_mut(dir)?.nlink -= 1;
        }
        Ok(())
    }

    /// Drops an inode that nothing refers to any more.
    pub fn reap(&mut self, ino: u64) {
        if self.nodes.get(&ino).is_some_and(|n| n.nlink == 0) {
            self.nodes.remove(&ino);
        }
    }

    /// Moves a name over another one, like rename(2).
    pub fn rename(&mut self, from: (u64, &Name), to: (u64, &Name)) -> Result<()> {
        let ino = *self.dir(from.0)?.get(from.1).ok_or(ErrorKind::NotFound)?;
        let is_dir = self.node(ino)?.body.kind() == Kind::Dir;
        let there = self.dir(to.0)?.get(to.1).copied();
        if is_dir && self.is_below(to.0, ino) {
            return Err(ErrorKind::Invalid.into());
        }
        if let Some(there) = there {
            match &self.node(there)?.body {
                _ if there == ino => return Ok(()),
                Body::Dir(_) if !is_dir => return Err(ErrorKind::IsDir.into()),
                Body::Dir(names) if !names.is_empty() => return Err(ErrorKind::NotEmpty.into()),
                Body::Dir(_) => {}
                _ if is_dir => return Err(ErrorKind::NotDir.into()),
                _ => {}
            }
            self.leave(to.0, to.1)?;
            self.reap(there);
        }
        self.leave(from.0, from.1)?;
        self.enter(to.0, to.1, ino)
    }

    /// Whether a directory is `top` or lies below it.
    fn is_below(&self, dir: u64, top: u64) -> bool {
        let children = |ino: u64| match self.nodes.get(&ino).map(|n| &n.body) {
            Some(Body::Dir(names)) => names.values().copied().collect(),
            _ => Vec::new(),
        };
        let mut todo = vec![top];
        while let Some(ino) = todo.pop() {
            if ino == dir {
                return true;
            }
            todo.extend(children(ino));
        }
        false
    }

    /// Bytes in all files.
    pub fn used(&self) -> u64 {
        self.nodes.values().map(|n| if let Body::File(d) = &n.body { d.len() as u64 } else { 0 }).sum()
    }

    pub fn attr(&self, ino: u64) -> Result<Attr> {
        let node = self.node(ino)?;
        let may = |bit: u32| node.mode & bit != 0 || matches!(node.body, Body::Symlink(_));
        Ok(Attr {
            id: HomeId { fs: 1, ino, generation: 1 },
            kind: node.body.kind(),
            mode: node.mode,
            nlink: node.nlink,
            uid: UID,
            gid: node.gid,
            size: node.body.len(),
            used: node.body.len().next_multiple_of(4096),
            atime: node.atime,
            mtime: node.mtime,
            ctime: node.ctime,
            access: Access { read: may(0o400), write: may(0o200).into(), exec: may(0o100) },
        })
    }
}
