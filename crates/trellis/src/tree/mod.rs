//! Files as the commands see them, wherever they are.
//!
//! - [`served`]: through the running server.
//! - [`direct`]: straight at a home, uncached, when no server runs.
//! - [`local`]: this machine, the other end of `cp` and `mv`.
//! - [`copy`]: from one tree to another.

pub mod copy;
pub mod direct;
pub mod local;
pub mod served;

pub use crate::control::proto::{Attr, Set, Space, When};

use crate::control::proto::Id;
use crate::limits;
use bytes::Bytes;
use home::{Error, ErrorKind, Loc, Result};
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// An object and what is known of it.
#[derive(Clone)]
pub struct Node {
    /// Where it is.
    pub at: At,
    /// Its attributes.
    pub attr: Attr,
}

/// Where an object is; only the tree that made it can use it.
#[derive(Clone)]
pub enum At {
    /// The root of a tree without a server.
    Root,
    /// By the engine's number.
    Served(Id),
    /// At a home.
    Direct(Arc<direct::Reached>, Loc),
    /// On this machine.
    Local(PathBuf),
}

/// A part of a directory.
pub struct Page {
    /// Names without `.` and `..`, with their objects where these are known.
    pub entries: Vec<(Vec<u8>, Option<Node>)>,
    /// Where to go on; `None` at the end.
    pub next: Option<After>,
}

/// Where a listing goes on.
#[derive(Debug, Clone)]
pub enum After {
    /// After the entry with this cookie.
    Cookie(u64),
    /// After this name.
    Name(Vec<u8>),
}

/// What becomes of a file that has the name of a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is emptied.
    Empties,
    /// It is an error.
    Fails,
}

/// A tree of files.
#[async_trait::async_trait]
pub trait Tree: Send {
    /// The object at a path; symbolic links are not followed.
    async fn resolve(&mut self, path: &[u8]) -> Result<Node>;
    /// The object of that name in a directory.
    async fn lookup(&mut self, dir: &Node, name: &[u8]) -> Result<Node>;
    /// A part of a directory.
    async fn list(&mut self, dir: &Node, after: Option<After>) -> Result<Page>;
    /// Where a symbolic link points.
    async fn readlink(&mut self, link: &Node) -> Result<Vec<u8>>;
    /// Bytes of a file, and whether it ends with them.
    async fn read(&mut self, file: &Node, at: u64) -> Result<(Bytes, bool)>;
    /// Makes a file; mode bits are exact on homes, and subject to the umask on this machine.
    async fn create(&mut self, dir: &Node, name: &[u8], mode: u32, taken: Taken) -> Result<Node>;
    /// Makes a directory.
    async fn mkdir(&mut self, dir: &Node, name: &[u8], mode: u32) -> Result<Node>;
    /// Makes a symbolic link; the name must be free.
    async fn symlink(&mut self, dir: &Node, name: &[u8], target: &[u8]) -> Result<()>;
    /// Writes bytes of a file; at most [`limits::CONTROL_CHUNK`].
    async fn write(&mut self, file: &Node, at: u64, data: Bytes) -> Result<()>;
    /// Sets attributes. The size is set before the times.
    async fn set(&mut self, object: &Node, set: Set) -> Result<()>;
    /// Removes a name; a directory must be empty.
    async fn remove(&mut self, dir: &Node, name: &[u8], is_dir: bool) -> Result<()>;
    /// Moves a name, replacing what the new name stands for. [`ErrorKind::CrossDevice`] where it cannot.
    async fn rename(&mut self, from: &Node, name: &[u8], to: &Node, new_name: &[u8]) -> Result<()>;
    /// Gives an object a further name, which must be free.
    async fn link(&mut self, object: &Node, dir: &Node, name: &[u8]) -> Result<()>;
    /// Space of the file system that holds an object.
    async fn space(&mut self, object: &Node) -> Result<Space>;
    /// Returns when all that was done before is durable where the object is.
    async fn sync(&mut self, object: &Node) -> Result<()>;
    /// A second way to the same objects, to be used at the same time.
    async fn another(&mut self) -> Result<Box<dyn Tree>>;
}

/// All names of a directory, in the order of their bytes.
pub async fn list_all(tree: &mut dyn Tree, dir: &Node) -> Result<Vec<(Vec<u8>, Option<Node>)>> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = tree.list(dir, after).await?;
        all.extend(page.entries);
        after = page.next;
        if after.is_none() {
            all.sort_by(|a, b| a.0.cmp(&b.0));
            return Ok(all);
        }
    }
}

/// The object at a path; links on the way are followed, but not the object itself, unless a slash at its end asks for the
/// directory that it leads to.
pub async fn look(tree: &mut dyn Tree, path: &[u8]) -> Result<Node> {
    if wants_directory(path) {
        return follow(tree, path).await;
    }
    check_path(path)?;
    match tree.resolve(path).await {
        Err(e) if matches!(e.kind, ErrorKind::NotDir | ErrorKind::Loop) || goes_up(path) => {
            match split(path) {
                (_, name) if matches!(&name[..], b"" | b"." | b"..") => walk(tree, path).await,
                (dir, name) => {
                    let dir = walk(tree, &dir).await?;
                    tree.lookup(&dir, &name).await
                }
            }
        }
        found => found,
    }
}

/// An empty path leads nowhere (POSIX.1-2024 XBD 4.16).
pub fn check_path(path: &[u8]) -> Result<()> {
    if path.is_empty() { Err(ErrorKind::NotFound.into()) } else { Ok(()) }
}

fn goes_up(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|p| p == b"..")
}

/// Whether a path means a directory and nothing else: it ends with a slash, or with `/.` (POSIX.1-2024 XBD 4.16).
pub fn wants_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}

/// The path without what asks for a directory at its end; a root stays one.
pub fn bare(path: &[u8]) -> &[u8] {
    let mut bare = path;
    while bare.len() > 1 && wants_directory(bare) {
        bare = &bare[..bare.len() - 1];
    }
    bare
}

/// The object at a path, with symbolic links followed where they stay in the tree.
pub async fn follow(tree: &mut dyn Tree, path: &[u8]) -> Result<Node> {
    let found = follow_bare(tree, bare(path)).await?;
    match wants_directory(path) && !found.attr.is_dir() {
        true => Err(ErrorKind::NotDir.into()),
        false => Ok(found),
    }
}

async fn follow_bare(tree: &mut dyn Tree, path: &[u8]) -> Result<Node> {
    check_path(path)?;
    match tree.resolve(path).await {
        Ok(node) if !node.attr.is_symlink() => Ok(node),
        Ok(Node { at: At::Local(path), .. }) => local::follow(&path),
        Ok(_) => walk(tree, path).await,
        Err(e) if matches!(e.kind, ErrorKind::NotDir | ErrorKind::Loop) || goes_up(path) => {
            walk(tree, path).await
        }
        Err(e) => Err(e),
    }
}

async fn walk(tree: &mut dyn Tree, path: &[u8]) -> Result<Node> {
    Ok(trace(tree, path).await?.2)
}

/// Directory and name of the object that a path leads to over all links, and the object; of a root, itself and no name.
pub async fn trace(tree: &mut dyn Tree, path: &[u8]) -> Result<(Node, Vec<u8>, Node)> {
    let path = bare(path);
    if let Ok(Node { at: At::Local(path), .. }) = tree.resolve(path).await {
        let node = local::follow(&path)?;
        let At::Local(path) = &node.at else { return Err(foreign()) };
        let (dir, name) = split(path.as_os_str().as_bytes());
        return Ok((tree.resolve(&dir).await?, name, node));
    }
    let (dir, name, node) = goal(tree, path).await?;
    Ok((dir, name, node.ok_or(ErrorKind::NotFound)?))
}

/// Where a path leads over all links of the tree: directory, name, and what has the name, unless it is free.
pub async fn goal(tree: &mut dyn Tree, path: &[u8]) -> Result<(Node, Vec<u8>, Option<Node>)> {
    let split = |path: &[u8]| -> Vec<Vec<u8>> {
        let parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".");
        parts.map(<[u8]>::to_vec).collect()
    };
    let mut todo = VecDeque::from(split(path));
    let mut above = vec![(Vec::new(), tree.resolve(b"/").await?)];
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        if name == b".." {
            if above.last().is_some_and(|(_, node)| !node.attr.is_dir()) {
                return Err(ErrorKind::NotDir.into());
            }
            above.truncate(above.len().saturating_sub(1).max(1));
            continue;
        }
        let dir = above.last().map(|(_, dir)| dir.clone()).ok_or(ErrorKind::NotFound)?;
        let node = match tree.lookup(&dir, &name).await {
            Err(e) if e.kind == ErrorKind::NotFound && todo.is_empty() => return Ok((dir, name, None)),
            found => found?,
        };
        if !node.attr.is_symlink() {
            above.push((name, node));
            continue;
        }
        links += 1;
        let target = tree.readlink(&node).await?;
        check_link(&name, &target, links)?;
        for part in split(&target).into_iter().rev() {
            todo.push_front(part);
        }
    }
    let (name, node) = above.pop().ok_or(ErrorKind::NotFound)?;
    let dir = above.pop().map_or_else(|| node.clone(), |(_, dir)| dir);
    Ok((dir, name, Some(node)))
}

fn check_link(name: &[u8], target: &[u8], links: usize) -> Result<()> {
    if links > limits::SYMLINKS {
        return Err(ErrorKind::Loop.into());
    }
    match target.starts_with(b"/") {
        true => Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "{} is a link to {}, which is absolute and so means another place on each machine: name that place instead",
                crate::show::text(name),
                crate::show::text(target)
            ),
        )),
        false => Ok(()),
    }
}

/// Whether both are one object, as far as one tree can tell; objects of two trees never are.
pub fn same(one: &Node, other: &Node) -> bool {
    match (&one.at, &other.at) {
        (At::Served(a), At::Served(b)) => a == b,
        (At::Direct(a, x), At::Direct(b, y)) => {
            Arc::ptr_eq(&a.home, &b.home) && if x.id.is_some() { x.id == y.id } else { x.path == y.path }
        }
        (At::Local(a), At::Local(b)) => local::same(a, b),
        (At::Root, At::Root) => true,
        _ => false,
    }
}

/// Directory and last name of a path; the name of a root is empty.
pub fn split(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    match path[..end].iter().rposition(|b| *b == b'/') {
        Some(0) => (b"/".to_vec(), path[1..end].to_vec()),
        Some(at) => (path[..at].to_vec(), path[at + 1..end].to_vec()),
        None if path.starts_with(b"/") => (b"/".to_vec(), Vec::new()),
        None => (b".".to_vec(), path[..end].to_vec()),
    }
}

/// The error for an object that belongs to another tree: a fault of ours.
fn foreign() -> Error {
    Error::new(ErrorKind::Invalid, "an object of another tree")
}

#[cfg(test)]
mod tests {
    use super::{bare, split, wants_directory};

    #[test]
    fn a_slash_at_the_end_asks_for_a_directory() {
        for (path, without, asks) in [
            ("/a", "/a", false),
            ("/a/", "/a", true),
            ("/a//", "/a", true),
            ("/a/.", "/a", true),
            ("/a/./", "/a", true),
            ("/a.", "/a.", false),
            ("/a/..", "/a/..", false),
            ("/", "/", true),
            ("", "", false),
        ] {
            assert_eq!((bare(path.as_bytes()), wants_directory(path.as_bytes())), (without.as_bytes(), asks));
        }
    }

    #[test]
    fn paths_have_a_directory_and_a_name() {
        for (path, dir, name) in
            [("a", ".", "a"), ("a/b", "a", "b"), ("/a", "/", "a"), ("/a/b/", "/a", "b"), ("/", "/", "")]
        {
            assert_eq!(split(path.as_bytes()), (dir.as_bytes().to_vec(), name.as_bytes().to_vec()), "{path}");
        }
    }
}
