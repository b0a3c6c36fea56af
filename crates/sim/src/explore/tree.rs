//! What a tree has to become: the operations of a batch as a person means them, and their effect on a small tree.

use home::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A path below the folder of the model; the folder itself is "".
pub type Path = &'static str;

/// Every path that occurs.
pub const PATHS: [Path; 14] = ["", "d", "d/l", "d/n", "e", "f", "g", "h", "m", "m/l", "n", "s", "y", "z"];

/// A change that a client made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// Makes an empty file.
    Create(Path),
    /// Writes two tokens over the first two.
    Write(Path),
    /// Empties a file and writes one token.
    Save(Path),
    /// Adds a token.
    Append(Path),
    /// Moves a name, over a file or an empty directory that has the new one.
    Rename(Path, Path),
    /// Makes a further name.
    Link(Path, Path),
    /// Removes a name of a file or symbolic link.
    Remove(Path),
    /// Makes a directory.
    Mkdir(Path),
    /// Removes an empty directory.
    Rmdir(Path),
    /// Sets permission bits.
    Chmod(Path),
    /// Sets the time.
    Utimes(Path),
    /// Makes a symbolic link.
    Symlink(Path),
    /// Sets an extended attribute.
    Xattr(Path),
}

use Change::*;

impl Change {
    /// Its verb and its paths.
    pub fn parts(self) -> (&'static str, Vec<Path>) {
        match self {
            Create(p) => ("create", vec![p]),
            Write(p) => ("write", vec![p]),
            Save(p) => ("save", vec![p]),
            Append(p) => ("append", vec![p]),
            Rename(p, q) => ("rename", vec![p, q]),
            Link(p, q) => ("link", vec![p, q]),
            Remove(p) => ("remove", vec![p]),
            Mkdir(p) => ("mkdir", vec![p]),
            Rmdir(p) => ("rmdir", vec![p]),
            Chmod(p) => ("chmod", vec![p]),
            Utimes(p) => ("utimes", vec![p]),
            Symlink(p) => ("symlink", vec![p]),
            Xattr(p) => ("xattr", vec![p]),
        }
    }

    /// The same from words.
    pub fn parse(text: &str) -> Option<Change> {
        let mut words = text.split_whitespace();
        let verb = words.next()?;
        let mut path = || words.next().and_then(known);
        let p = path()?;
        Some(match verb {
            "create" => Create(p),
            "write" => Write(p),
            "save" => Save(p),
            "append" => Append(p),
            "rename" => Rename(p, path()?),
            "link" => Link(p, path()?),
            "remove" => Remove(p),
            "mkdir" => Mkdir(p),
            "rmdir" => Rmdir(p),
            "chmod" => Chmod(p),
            "utimes" => Utimes(p),
            "symlink" => Symlink(p),
            "xattr" => Xattr(p),
            _ => return None,
        })
    }
}

/// One of the paths that occur.
pub fn known(path: &str) -> Option<Path> {
    PATHS.iter().copied().find(|p| *p == path)
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, paths) = self.parts();
        write!(f, "{verb} {}", paths.join(" "))
    }
}

/// Which object.
pub type Obj = usize;

/// Types that occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
}

/// An object.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Type.
    pub sort: Sort,
    /// Content, or where a symbolic link points.
    pub data: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// The time that it must have; `None`: whatever the home's clock said.
    pub mtime: Option<Time>,
    /// Value of the extended attribute.
    pub xattr: Option<Vec<u8>>,
    /// It was made by the batch.
    pub newborn: bool,
}

/// A tree.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// All objects there ever were.
    pub nodes: Vec<Node>,
    /// What has a name.
    pub names: BTreeMap<String, Obj>,
}

/// The name of the extended attribute.
pub const XATTR: &str = "user.model";
/// Where new symbolic links point.
pub const TARGET: &str = "elsewhere";
/// Permission bits that are set.
pub const MODE: u32 = 0o640;

/// The token that operation `n` writes, from 1 on `part` for the second.
pub fn token(n: usize, part: usize) -> String {
    format!("O{:06};", 1000 + n * 10 + part)
}

/// The time that operation `n` sets.
pub fn stamp(n: usize) -> Time {
    Time { sec: 400_000 + n as i64, nsec: 3 }
}

/// The directory of a path.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl Tree {
    /// The tree that each batch finds.
    pub fn begin() -> Tree {
        let mut tree = Tree::default();
        let text = |a: u32| format!("O{a:06};O{:06};", a + 1).into_bytes();
        tree.add("", Sort::Dir, Vec::new(), 0o755);
        tree.add("d", Sort::Dir, Vec::new(), 0o755);
        tree.add("e", Sort::Dir, Vec::new(), 0o755);
        tree.add("f", Sort::File, text(1), 0o644);
        tree.add("g", Sort::File, text(3), 0o644);
        let h = tree.add("h", Sort::File, text(5), 0o644);
        tree.names.insert("d/l".into(), h);
        tree.add("s", Sort::Symlink, TARGET.into(), 0o777);
        tree
    }

    fn add(&mut self, path: &str, sort: Sort, data: Vec<u8>, mode: u32) -> Obj {
        self.nodes.push(Node { sort, data, mode, mtime: None, xattr: None, newborn: false });
        self.names.insert(path.into(), self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// What has a name.
    pub fn at(&self, path: &str) -> Option<Obj> {
        self.names.get(path).copied()
    }

    /// Names of an object.
    pub fn links(&self, obj: Obj) -> usize {
        self.names.values().filter(|o| **o == obj).count()
    }

    fn file(&self, path: &str) -> Option<Obj> {
        self.at(path).filter(|o| self.nodes[*o].sort == Sort::File)
    }

    fn dir(&self, path: &str) -> Option<Obj> {
        self.at(path).filter(|o| self.nodes[*o].sort == Sort::Dir)
    }

    fn is_free(&self, path: &str) -> bool {
        self.at(path).is_none() && self.dir(parent(path)).is_some()
    }

    fn is_empty(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        !self.names.keys().any(|p| p.starts_with(&inside))
    }

    /// The object that a change is about; for a new one the number that it will have.
    pub fn object(&self, change: Change) -> Option<Obj> {
        match change {
            Create(_) | Mkdir(_) | Symlink(_) => Some(self.nodes.len()),
            Write(p)
            | Save(p)
            | Append(p)
            | Rename(p, _)
            | Link(p, _)
            | Remove(p)
            | Rmdir(p)
            | Chmod(p)
            | Utimes(p)
            | Xattr(p) => self.at(p),
        }
    }

    /// Whether a change overwrites the content of the file itself.
    pub fn is_in_place(&self, change: Change) -> bool {
        match change {
            Append(_) => true,
            Write(p) | Save(p) => self.file(p).is_some_and(|o| self.nodes[o].newborn || self.links(o) > 1),
            _ => false,
        }
    }

    /// Whether a change takes away an object that somebody may have written to.
    pub fn destroys(&self, change: Change) -> bool {
        match change {
            Remove(_) | Rmdir(_) => true,
            Rename(_, q) => self.at(q).is_some(),
            _ => false,
        }
    }

    /// Makes the change number `n` of a batch; `None` where that is impossible.
    pub fn apply(&mut self, change: Change, n: usize) -> Option<()> {
        match change {
            Create(p) if self.is_free(p) => self.born(p, Sort::File, Vec::new(), 0o644),
            Mkdir(p) if self.is_free(p) => self.born(p, Sort::Dir, Vec::new(), 0o755),
            Symlink(p) if self.is_free(p) => self.born(p, Sort::Symlink, TARGET.into(), 0o777),
            Write(p) => {
                let node = self.file(p)?;
                let both = token(n, 0) + &token(n, 1);
                let data = &mut self.nodes[node].data;
                data.resize(data.len().max(both.len()), 0);
                data[..both.len()].copy_from_slice(both.as_bytes());
                self.nodes[node].mtime = None;
            }
            Save(p) => {
                let node = self.file(p)?;
                self.nodes[node].data = token(n, 0).into_bytes();
                self.nodes[node].mtime = None;
            }
            Append(p) => {
                let node = self.file(p)?;
                self.nodes[node].data.extend_from_slice(token(n, 0).as_bytes());
                self.nodes[node].mtime = None;
            }
            Rename(p, q) => self.rename(p, q)?,
            Link(p, q) if self.is_free(q) => {
                let file = self.file(p)?;
                self.names.insert(q.into(), file);
            }
            Remove(p) => {
                self.at(p).filter(|o| self.nodes[*o].sort != Sort::Dir)?;
                self.names.remove(p);
            }
            Rmdir(p) => {
                self.dir(p).filter(|_| self.is_empty(p))?;
                self.names.remove(p);
            }
            Chmod(p) => {
                let node = self.at(p).filter(|o| self.nodes[*o].sort != Sort::Symlink)?;
                self.nodes[node].mode = MODE;
            }
            Utimes(p) => {
                let node = self.file(p)?;
                self.nodes[node].mtime = Some(stamp(n));
            }
            Xattr(p) => {
                let node = self.file(p)?;
                self.nodes[node].xattr = Some(token(n, 0).into_bytes());
            }
            _ => return None,
        }
        Some(())
    }

    fn born(&mut self, path: Path, sort: Sort, data: Vec<u8>, mode: u32) {
        let obj = self.add(path, sort, data, mode);
        self.nodes[obj].newborn = true;
    }

    /// What rename(2) does.
    pub fn rename(&mut self, from: &str, to: &str) -> Option<()> {
        let moved = self.at(from)?;
        self.dir(parent(to))?;
        let inside = format!("{from}/");
        if from == to || to.starts_with(&inside) {
            return None;
        }
        if let Some(old) = self.at(to) {
            let both = (self.nodes[moved].sort == Sort::Dir, self.nodes[old].sort == Sort::Dir);
            if both.0 != both.1 || !self.is_empty(to) || old == moved {
                return None;
            }
        }
        let moving: Vec<String> =
            self.names.keys().filter(|p| *p == from || p.starts_with(&inside)).cloned().collect();
        for old in moving {
            if let Some(obj) = self.names.remove(&old) {
                self.names.insert(format!("{to}{}", &old[from.len()..]), obj);
            }
        }
        Some(())
    }

    /// The tokens in its files.
    pub fn tokens(&self) -> BTreeSet<String> {
        self.names.values().flat_map(|o| crate::ledger::tokens(&self.nodes[*o].data)).collect()
    }
}

/// What may be in a batch; `wide`: everything that occurs, else what is needed for the longer ones.
pub fn alphabet(wide: bool) -> Vec<Change> {
    let narrow = [
        Create("n"),
        Write("n"),
        Write("f"),
        Append("f"),
        Write("h"),
        Rename("n", "f"),
        Rename("f", "g"),
        Rename("f", "n"),
        Link("f", "n"),
        Remove("f"),
        Mkdir("m"),
        Rename("d", "m"),
    ];
    let more = [
        Save("f"),
        Save("n"),
        Append("n"),
        Append("h"),
        Create("d/n"),
        Create("f"),
        Write("d/n"),
        Write("g"),
        Write("m/l"),
        Rename("f", "d/n"),
        Rename("d/n", "f"),
        Rename("n", "g"),
        Rename("d", "e"),
        Rename("s", "y"),
        Rename("h", "f"),
        Link("h", "n"),
        Link("n", "d/n"),
        Remove("n"),
        Remove("h"),
        Remove("d/l"),
        Remove("g"),
        Remove("s"),
        Rmdir("e"),
        Rmdir("m"),
        Chmod("f"),
        Chmod("d"),
        Chmod("n"),
        Utimes("f"),
        Utimes("n"),
        Utimes("h"),
        Symlink("y"),
        Xattr("f"),
        Xattr("n"),
    ];
    narrow.into_iter().chain(more.into_iter().filter(|_| wide)).collect()
}

/// What another gateway does.
pub fn others() -> Vec<Change> {
    let all =
        [Create("n"), Write("f"), Append("f"), Write("h"), Rename("f", "n"), Rename("g", "f"), Remove("f")];
    all.to_vec()
}

/// All batches of exactly `length` changes, each possible when its turn comes. No write follows a write to the same file:
/// the engine sends both as one.
pub fn batches(length: usize, alphabet: &[Change]) -> Vec<Vec<Change>> {
    let mut found = vec![(Vec::new(), Tree::begin())];
    for n in 0..length {
        let mut longer = Vec::new();
        for (batch, tree) in &found {
            for change in alphabet {
                let written =
                    |c: &Change| tree.object(*c).filter(|_| matches!(c, Write(_) | Save(_) | Append(_)));
                if written(change).is_some() && batch.last().and_then(written) == written(change) {
                    continue;
                }
                let mut tree = tree.clone();
                if tree.apply(*change, n).is_some() {
                    longer.push(([&batch[..], &[*change]].concat(), tree));
                }
            }
        }
        found = longer;
    }
    found.into_iter().map(|(batch, _)| batch).collect()
}
