//! Files as the commands see them, wherever they are.
//!
//! - [`served`]: through the running server.
//! - [`direct`]: straight at a home, uncached, when no server runs.
//! - [`local`]: this machine, the other end of `cp`.
//! - [`copy`]: from one tree to another.

pub mod copy;
pub mod direct;
pub mod local;
pub mod served;

use crate::control::proto::{Attr, Id};
use crate::limits;
use bytes::Bytes;
use home::{Error, ErrorKind, Home, Loc, Result};
use std::collections::VecDeque;
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
    Direct(Arc<dyn Home>, Loc),
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

/// What is set on a file at its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Finish {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Modification time: seconds and nanoseconds since 1970.
    pub mtime: Option<(i64, u32)>,
    /// Make what was written stable.
    pub commit: bool,
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
    /// Makes a file, or empties the one that is there.
    async fn create(&mut self, dir: &Node, name: &[u8], mode: u32) -> Result<Node>;
    /// Makes a directory.
    async fn mkdir(&mut self, dir: &Node, name: &[u8], mode: u32) -> Result<Node>;
    /// Makes a symbolic link.
    async fn symlink(&mut self, dir: &Node, name: &[u8], target: &[u8]) -> Result<()>;
    /// Writes bytes of a file; at most [`limits::CONTROL_CHUNK`].
    async fn write(&mut self, file: &Node, at: u64, data: Bytes) -> Result<()>;
    /// Ends the work on an object.
    async fn finish(&mut self, object: &Node, what: Finish) -> Result<()>;
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

/// The object at a path, with symbolic links followed where they stay in the tree.
pub async fn follow(tree: &mut dyn Tree, path: &[u8]) -> Result<Node> {
    match tree.resolve(path).await {
        Ok(node) if !node.attr.is_symlink() => Ok(node),
        Ok(Node { at: At::Local(path), .. }) => local::follow(path),
        Ok(_) => walk(tree, path).await,
        Err(e) if matches!(e.kind, ErrorKind::NotDir | ErrorKind::Loop) => walk(tree, path).await,
        Err(e) => Err(e),
    }
}

async fn walk(tree: &mut dyn Tree, path: &[u8]) -> Result<Node> {
    let split = |path: &[u8]| -> Vec<Vec<u8>> {
        let parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".");
        parts.map(<[u8]>::to_vec).collect()
    };
    let mut todo = VecDeque::from(split(path));
    let mut above = vec![tree.resolve(b"/").await?];
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        if name == b".." {
            above.truncate(above.len().saturating_sub(1).max(1));
            continue;
        }
        let node = match above.last() {
            Some(dir) => tree.lookup(dir, &name).await?,
            None => return Err(ErrorKind::NotFound.into()),
        };
        if !node.attr.is_symlink() {
            above.push(node);
            continue;
        }
        links += 1;
        let target = tree.readlink(&node).await?;
        check_link(&name, &target, links)?;
        for part in split(&target).into_iter().rev() {
            todo.push_front(part);
        }
    }
    above.pop().ok_or_else(|| ErrorKind::NotFound.into())
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

/// The error for an object that belongs to another tree: a fault of ours.
fn foreign() -> Error {
    Error::new(ErrorKind::Invalid, "an object of another tree")
}
