//! What the tree of a client should be, if every call that was answered happened once, and no other.

use home::{Kind, Time};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, VecDeque};
use vfs::Oid;

/// The client's own directory.
pub const TOP: usize = 0;
/// Length of a token.
pub const TOKEN: usize = 8;
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Names that only whole files ever stand under.
const WHOLE: [&str; 3] = ["r0", "r1", "r2"];
const DEPTH: usize = 2;
const LEN_MAX: usize = 200_000;

/// An object. Its number is never used again.
#[derive(Debug, Clone)]
pub struct Obj {
    /// File or directory.
    pub kind: Kind,
    /// Content of a file.
    pub data: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Number of links of a file.
    pub nlink: u32,
    /// Last change of content, once known.
    pub mtime: Option<Time>,
    /// Last change, as it was last seen.
    pub ctime: Option<Time>,
    /// The number of the process that showed it.
    pub process: u64,
    /// The number that users see.
    pub fileid: Option<u64>,
    /// The engine's handle.
    pub oid: Option<Oid>,
    /// Names of a directory.
    pub names: BTreeMap<String, usize>,
    /// Ranges that were written and not committed.
    pub dirty: Vec<(usize, usize)>,
    /// The verifier of those writes; another one means that they may be lost.
    pub verifier: Option<[u8; 8]>,
}

/// A call.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "objects by number, names, and what calls are made of")]
pub enum Act {
    /// Makes a file.
    Create { dir: usize, name: String, exclusive: bool },
    /// Makes a directory.
    Mkdir { dir: usize, name: String },
    /// Writes.
    Write { file: usize, at: usize, data: Vec<u8>, stable: bool },
    /// Makes writes stable.
    Commit { file: usize },
    /// Sets the length.
    Truncate { file: usize, size: usize },
    /// Sets mode or time.
    SetAttr { object: usize, mode: Option<u32>, mtime: Option<Time> },
    /// Gives a file a further name.
    Link { object: usize, dir: usize, name: String },
    /// Moves a name, over another file perhaps.
    Rename { from: usize, name: String, to: usize, new: String },
    /// Removes a file's name.
    Remove { dir: usize, name: String },
    /// Removes an empty directory.
    Rmdir { dir: usize, name: String },
    /// Compares an object.
    Look { object: usize },
}

/// The tree.
#[derive(Debug, Clone)]
pub struct Model {
    /// All objects that ever were.
    pub objs: Vec<Obj>,
    /// Calls that belong together.
    next: VecDeque<Act>,
    tokens: u32,
}

impl Default for Model {
    fn default() -> Model {
        let mut model = Model { objs: Vec::new(), next: VecDeque::new(), tokens: 0 };
        model.add(Kind::Dir, 0o755);
        model
    }
}

/// The content of a whole file of a number.
pub fn whole(number: u32) -> Vec<u8> {
    format!("W{number:06};").into_bytes().repeat(1 + (number as usize * 37) % 1200)
}

/// Whether some bytes are one whole file.
pub fn is_whole(data: &[u8]) -> bool {
    let number = data.get(1..7).and_then(|n| std::str::from_utf8(n).ok()).and_then(|n| n.parse().ok());
    number.is_some_and(|n| whole(n) == data)
}

impl Model {
    fn add(&mut self, kind: Kind, mode: u32) -> usize {
        self.objs.push(Obj {
            kind,
            data: Vec::new(),
            mode,
            nlink: 1,
            mtime: None,
            ctime: None,
            process: 0,
            fileid: None,
            oid: None,
            names: BTreeMap::new(),
            dirty: Vec::new(),
            verifier: None,
        });
        self.objs.len() - 1
    }

    /// Live directories with their depth and path.
    pub fn dirs(&self) -> Vec<(usize, usize, String)> {
        let mut found = vec![(TOP, 0, String::new())];
        let mut at = 0;
        while at < found.len() {
            let (dir, depth, path) = found[at].clone();
            for (name, id) in &self.objs[dir].names {
                if self.objs[*id].kind == Kind::Dir {
                    found.push((*id, depth + 1, format!("{path}/{name}")));
                }
            }
            at += 1;
        }
        found
    }

    /// All paths with their objects, in order.
    pub fn paths(&self) -> BTreeMap<String, usize> {
        let dirs = self.dirs();
        let each = |(dir, _, path): &(usize, usize, String)| {
            self.objs[*dir].names.iter().map(|(n, id)| (format!("{path}/{n}"), *id)).collect::<Vec<_>>()
        };
        dirs.iter().flat_map(each).collect()
    }

    /// Whether an object has no name any more.
    pub fn is_gone(&self, id: usize) -> bool {
        self.objs[id].nlink == 0
    }

    /// The number of links as stat(2) tells it.
    pub fn links(&self, id: usize) -> u32 {
        let o = &self.objs[id];
        let dirs = o.names.values().filter(|c| self.objs[**c].kind == Kind::Dir).count() as u32;
        if o.kind == Kind::Dir { 2 + dirs } else { o.nlink }
    }

    fn contains(&self, top: usize, id: usize) -> bool {
        top == id || self.objs[top].names.values().any(|c| self.contains(*c, id))
    }

    fn child(&self, dir: usize, name: &str) -> Option<usize> {
        self.objs[dir].names.get(name).copied()
    }

    fn make(&mut self, dir: usize, name: &str, kind: Kind, mode: u32) -> Vec<usize> {
        let id = self.add(kind, mode);
        self.objs[dir].names.insert(name.to_owned(), id);
        vec![dir, id]
    }

    fn leave(&mut self, dir: usize, name: &str) {
        if let Some(id) = self.objs[dir].names.remove(name) {
            self.objs[id].nlink -= 1;
        }
    }

    /// Makes a change that was answered; answers the objects whose times it moved.
    pub fn apply(&mut self, act: &Act) -> Vec<usize> {
        match act {
            Act::Create { dir, name, .. } => self.make(*dir, name, Kind::File, 0o600),
            Act::Mkdir { dir, name } => self.make(*dir, name, Kind::Dir, 0o755),
            Act::Write { file, at, data, stable } => {
                let o = &mut self.objs[*file];
                let end = at + data.len();
                o.data.resize(o.data.len().max(end), 0);
                o.data[*at..end].copy_from_slice(data);
                if !stable {
                    o.dirty.push((*at, end));
                }
                vec![*file]
            }
            Act::Commit { file } => {
                self.objs[*file].dirty.clear();
                self.objs[*file].verifier = None;
                vec![]
            }
            Act::Truncate { file, size } => {
                self.objs[*file].data.resize(*size, 0);
                vec![*file]
            }
            Act::SetAttr { object, mode, mtime } => {
                let o = &mut self.objs[*object];
                o.mode = mode.unwrap_or(o.mode);
                o.mtime = mtime.or(o.mtime);
                vec![]
            }
            Act::Link { object, dir, name } => {
                self.objs[*dir].names.insert(name.clone(), *object);
                self.objs[*object].nlink += 1;
                vec![*dir]
            }
            Act::Rename { from, name, to, new } => {
                let (id, there) = (self.child(*from, name), self.child(*to, new));
                if id == there {
                    return vec![];
                }
                self.leave(*to, new);
                if let Some(id) = self.objs[*from].names.remove(name) {
                    self.objs[*to].names.insert(new.clone(), id);
                }
                if from == to { vec![*from] } else { vec![*from, *to] }
            }
            Act::Remove { dir, name } | Act::Rmdir { dir, name } => {
                self.leave(*dir, name);
                vec![*dir]
            }
            Act::Look { .. } => vec![],
        }
    }

    /// Which object's writes have to be committed before a call: a client has to know that they are safe before it
    /// makes a change that would hide their loss.
    pub fn flushed_by(&self, act: &Act) -> Option<usize> {
        let file = match act {
            Act::Truncate { file, .. } => Some(*file),
            Act::Remove { dir, name } => self.child(*dir, name),
            Act::Rename { to, new, .. } => self.child(*to, new),
            _ => None,
        };
        file.filter(|f| !self.objs[*f].dirty.is_empty())
    }

    /// A token that is never written again.
    pub fn token(&mut self) -> Vec<u8> {
        self.tokens += 1;
        format!("T{:06};", self.tokens).into_bytes()
    }

    /// A random call that must succeed.
    pub fn choose(&mut self, rng: &mut StdRng) -> Act {
        // tidy: long because it is one table, a few lines for each kind of call.
        if let Some(act) = self.next.pop_front() {
            return act;
        }
        let dirs = self.dirs();
        let dir = dirs[rng.random_range(0..dirs.len())].0;
        let taken: Vec<(usize, String, usize)> = dirs
            .iter()
            .flat_map(|d| self.objs[d.0].names.iter().map(|(n, id)| (d.0, n.clone(), *id)))
            .filter(|(_, n, _)| !n.starts_with('r'))
            .collect();
        let pick = |rng: &mut StdRng, want: Kind| {
            let of_kind: Vec<_> = taken.iter().filter(|t| self.objs[t.2].kind == want).collect();
            (!of_kind.is_empty()).then(|| of_kind[rng.random_range(0..of_kind.len())].clone())
        };
        let file = pick(rng, Kind::File);
        let name = NAMES[rng.random_range(0..NAMES.len())].to_owned();
        let free = self.child(dir, &name).is_none();
        match (rng.random_range(0..100), file) {
            (0..10, _) if free => Act::Create { dir, name, exclusive: rng.random_bool(0.5) },
            (10..14, _) if free && dirs.iter().any(|d| d.0 == dir && d.1 < DEPTH) => Act::Mkdir { dir, name },
            (14..46, Some((_, _, file))) => self.a_write(rng, file),
            (46..52, Some((_, _, file))) => Act::Commit { file },
            (52..56, Some((_, _, file))) => {
                let len = self.objs[file].data.len();
                Act::Truncate { file, size: [0, len / 2, (len + 300).min(LEN_MAX)][rng.random_range(0..3)] }
            }
            (56..60, Some((_, _, object))) => {
                let mode = rng.random_bool(0.6).then(|| 0o600 | rng.random_range(0..0o200));
                let time = Time {
                    sec: rng.random_range(1_000_000..2_000_000),
                    nsec: rng.random_range(0..999_999_999),
                };
                let mtime = (mode.is_none() || rng.random_bool(0.3)).then_some(time);
                Act::SetAttr { object, mode, mtime }
            }
            (60..64, Some((_, _, object))) if free => Act::Link { object, dir, name },
            (64..74, Some((from, old, id))) => {
                let over_dir = self.child(dir, &name).is_some_and(|c| self.objs[c].kind == Kind::Dir);
                if over_dir || self.child(dir, &name) == Some(id) {
                    return Act::Look { object: id };
                }
                Act::Rename { from, name: old, to: dir, new: name }
            }
            (74..76, _) => match pick(rng, Kind::Dir) {
                Some((from, old, id)) if free && !self.contains(id, dir) && self.shallow(id, dir, &dirs) => {
                    Act::Rename { from, name: old, to: dir, new: name }
                }
                _ => Act::Look { object: dir },
            },
            (76..84, Some((dir, name, _))) => Act::Remove { dir, name },
            (84..87, _) => match pick(rng, Kind::Dir) {
                Some((dir, name, id)) if self.objs[id].names.is_empty() => Act::Rmdir { dir, name },
                _ => Act::Look { object: dir },
            },
            (87..93, _) => self.a_replacement(rng),
            (_, Some((_, _, object))) => Act::Look { object },
            _ => Act::Look { object: dir },
        }
    }

    /// Whether a directory may move below another one without the tree becoming too deep.
    fn shallow(&self, id: usize, to: usize, dirs: &[(usize, usize, String)]) -> bool {
        let leaf = self.objs[id].names.values().all(|c| self.objs[*c].kind != Kind::Dir);
        leaf && dirs.iter().any(|d| d.0 == to && d.1 < DEPTH)
    }

    fn a_write(&mut self, rng: &mut StdRng, file: usize) -> Act {
        let len = self.objs[file].data.len();
        let count = match rng.random_range(0..12) {
            0 => rng.random_range(100..2000),
            1 => rng.random_range(8000..12_000),
            _ => rng.random_range(1..4),
        };
        let at = match rng.random_range(0..4) {
            0 | 1 => len,
            2 => len / TOKEN / 2 * TOKEN,
            _ => 0,
        };
        let at = if at + count * TOKEN > LEN_MAX { 0 } else { at };
        let data = self.token().repeat(count);
        Act::Write { file, at, data, stable: rng.random_bool(0.5) }
    }

    /// What careful programs do: a new file takes the place of an old one when it is whole and safe.
    fn a_replacement(&mut self, rng: &mut StdRng) -> Act {
        self.tokens += 1;
        let data = whole(self.tokens);
        let (file, temp) = (self.objs.len(), format!("t{}", self.tokens));
        let cut = rng.random_range(0..data.len());
        let part = |at: usize, data: &[u8]| Act::Write { file, at, data: data.to_vec(), stable: false };
        self.next.extend([
            part(0, &data[..cut]),
            part(cut, &data[cut..]),
            Act::Commit { file },
            Act::Rename {
                from: TOP,
                name: temp.clone(),
                to: TOP,
                new: WHOLE[rng.random_range(0..3)].to_owned(),
            },
        ]);
        if cut == 0 {
            self.next.pop_front();
        }
        Act::Create { dir: TOP, name: temp, exclusive: false }
    }
}
