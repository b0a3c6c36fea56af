//! What a tree should be: POSIX, in memory, without time or faults.

use crate::common::UID;
use home::{ErrorKind, Kind, Time, XattrHow};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vfs::{CreateHow, Oid};

pub const ROOT: usize = 0;
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "long name"];
const DEPTH: usize = 3;
/// Files stay below this length.
const LEN: u64 = 1_400_000;

/// An object. Its number is never used again.
#[derive(Clone, Debug)]
pub struct Obj {
    pub kind: Kind,
    pub data: Arc<Vec<u8>>,
    pub mode: u32,
    pub nlink: u32,
    /// `None`: not known; the next look tells.
    pub mtime: Option<Time>,
    pub names: BTreeMap<String, usize>,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    pub oid: Option<Oid>,
    pub fileid: u64,
    pub verifier: Option<[u8; 8]>,
    /// A change named it, so that its handle outlives everything.
    pub anchored: bool,
}

/// A call.
#[derive(Clone, Debug)]
pub enum Act {
    Create { dir: usize, name: String, how: CreateHow, mode: Option<u32>, size: Option<u64> },
    Mkdir { dir: usize, name: String, mode: u32 },
    Symlink { dir: usize, name: String, target: String },
    Mknod { dir: usize, name: String, kind: Kind },
    Write { file: usize, at: u64, data: Vec<u8>, stable: bool },
    Truncate { file: usize, size: u64 },
    SetAttr { object: usize, mode: Option<u32>, mtime: Option<Time> },
    Link { object: usize, dir: usize, name: String },
    Rename { from: usize, name: String, to: usize, new_name: String },
    Remove { dir: usize, name: String },
    Rmdir { dir: usize, name: String },
    Read { file: usize, at: u64, len: u32 },
    Commit { file: usize },
    List { dir: usize },
    Lookup { dir: usize, name: String },
    SetXattr { object: usize, name: String, value: Vec<u8>, how: XattrHow },
    RemoveXattr { object: usize, name: String },
    GetXattr { object: usize, name: String },
    ListXattr { object: usize },
}

/// What a call did to the model.
#[derive(Default, Debug)]
pub struct Effect {
    /// Objects with another mtime than before.
    pub touched: Vec<usize>,
    /// The object that was made.
    pub made: Option<usize>,
}

pub type Expect = Result<Effect, Vec<ErrorKind>>;

#[derive(Clone, Debug)]
pub struct Model {
    pub objs: Vec<Obj>,
}

impl Model {
    pub fn new() -> Model {
        let mut model = Model { objs: Vec::new() };
        model.add(Kind::Dir, 0o755);
        model
    }

    pub fn add(&mut self, kind: Kind, mode: u32) -> usize {
        let nlink = if kind == Kind::Dir { 2 } else { 1 };
        self.objs.push(Obj {
            kind,
            data: Arc::default(),
            mode,
            nlink,
            mtime: None,
            names: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            oid: None,
            fileid: 0,
            verifier: None,
            anchored: false,
        });
        self.objs.len() - 1
    }

    pub fn enter(&mut self, dir: usize, name: &str, id: usize) {
        self.objs[dir].names.insert(name.into(), id);
        if self.objs[id].kind == Kind::Dir {
            self.objs[dir].nlink += 1;
        }
    }

    fn leave(&mut self, dir: usize, name: &str) -> usize {
        let id = self.objs[dir].names.remove(name).unwrap();
        if self.objs[id].kind == Kind::Dir {
            self.objs[dir].nlink -= 1;
        }
        id
    }

    pub fn child(&self, dir: usize, name: &str) -> Option<usize> {
        self.objs[dir].names.get(name).copied()
    }

    /// Live directories with their depth and path.
    pub fn dirs(&self) -> Vec<(usize, usize, String)> {
        let mut found = vec![(ROOT, 0, String::new())];
        let mut at = 0;
        while at < found.len() {
            let (dir, depth, path) = found[at].clone();
            for (name, id) in &self.objs[dir].names {
                if self.objs[*id].kind == Kind::Dir {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    found.push((*id, depth + 1, path));
                }
            }
            at += 1;
        }
        found
    }

    fn contains(&self, top: usize, id: usize) -> bool {
        top == id || self.objs[top].names.values().any(|c| self.contains(*c, id))
    }

    fn is_gone(&self, id: usize) -> bool {
        self.objs[id].nlink == 0
    }

    fn live_dir(&self, dir: usize) -> Result<(), Vec<ErrorKind>> {
        if self.is_gone(dir) { Err(vec![ErrorKind::Stale]) } else { Ok(()) }
    }

    fn free(&self, dir: usize, name: &str) -> Result<(), Vec<ErrorKind>> {
        self.live_dir(dir)?;
        if self.child(dir, name).is_some() { Err(vec![ErrorKind::Exists]) } else { Ok(()) }
    }

    fn make(&mut self, dir: usize, name: &str, kind: Kind, mode: u32) -> Expect {
        self.free(dir, name)?;
        let id = self.add(kind, mode);
        self.enter(dir, name, id);
        Ok(Effect { touched: vec![dir, id], made: Some(id) })
    }

    fn resize(&mut self, file: usize, size: u64) {
        Arc::make_mut(&mut self.objs[file].data).resize(size as usize, 0);
    }

    /// Does a call, or says which errors it may answer.
    pub fn apply(&mut self, act: &Act) -> Expect {
        match act {
            Act::Create { dir, name, how, mode, size } => self.create(*dir, name, *how, *mode, *size),
            Act::Mkdir { dir, name, mode } => self.make(*dir, name, Kind::Dir, *mode),
            Act::Symlink { dir, name, target } => {
                let effect = self.make(*dir, name, Kind::Symlink, 0o777)?;
                self.objs[effect.made.unwrap()].data = Arc::new(target.clone().into_bytes());
                Ok(effect)
            }
            Act::Mknod { dir, name, kind } => self.make(*dir, name, *kind, 0o644),
            Act::Write { file, at, data, .. } => {
                self.live_dir(*file)?;
                if data.is_empty() {
                    return Ok(Effect::default());
                }
                let end = (*at as usize) + data.len();
                let len = self.objs[*file].data.len().max(end);
                self.resize(*file, len as u64);
                Arc::make_mut(&mut self.objs[*file].data)[*at as usize..end].copy_from_slice(data);
                Ok(Effect { touched: vec![*file], made: None })
            }
            Act::Truncate { file, size } => {
                self.live_dir(*file)?;
                self.resize(*file, *size);
                Ok(Effect { touched: vec![*file], made: None })
            }
            Act::SetAttr { object, mode, mtime } => {
                self.live_dir(*object)?;
                let o = &mut self.objs[*object];
                o.mode = mode.unwrap_or(o.mode);
                o.mtime = mtime.or(o.mtime);
                Ok(Effect::default())
            }
            Act::SetXattr { object, name, value, how } => self.set_xattr(*object, name, Some(value), *how),
            Act::RemoveXattr { object, name } => self.set_xattr(*object, name, None, XattrHow::Replace),
            Act::GetXattr { object, name } => {
                self.live_dir(*object)?;
                let there = self.objs[*object].xattrs.contains_key(name);
                if there { Ok(Effect::default()) } else { Err(vec![ErrorKind::NoAttribute]) }
            }
            Act::Link { object, dir, name } => {
                self.live_dir(*object)?;
                if self.objs[*object].kind == Kind::Dir {
                    return Err(vec![ErrorKind::Perm, ErrorKind::Exists, ErrorKind::Stale]);
                }
                self.free(*dir, name)?;
                self.enter(*dir, name, *object);
                self.objs[*object].nlink += 1;
                Ok(Effect { touched: vec![*dir], made: None })
            }
            Act::Rename { from, name, to, new_name } => self.rename((*from, name), (*to, new_name)),
            Act::Remove { dir, name } => self.remove(*dir, name, false),
            Act::Rmdir { dir, name } => self.remove(*dir, name, true),
            Act::Read { file, .. } | Act::Commit { file } => {
                self.live_dir(*file)?;
                Ok(Effect::default())
            }
            Act::List { dir: object } | Act::ListXattr { object } => {
                self.live_dir(*object)?;
                Ok(Effect::default())
            }
            Act::Lookup { dir, name } => {
                self.live_dir(*dir)?;
                self.child(*dir, name).map(|_| Effect::default()).ok_or(vec![ErrorKind::NotFound])
            }
        }
    }

    fn set_xattr(&mut self, id: usize, name: &str, value: Option<&Vec<u8>>, how: XattrHow) -> Expect {
        self.live_dir(id)?;
        let o = &mut self.objs[id];
        if !matches!(o.kind, Kind::File | Kind::Dir) {
            return Err(vec![ErrorKind::Perm]);
        }
        match (how, o.xattrs.contains_key(name)) {
            (XattrHow::Create, true) => return Err(vec![ErrorKind::Exists]),
            (XattrHow::Replace, false) => return Err(vec![ErrorKind::NoAttribute]),
            _ => {}
        }
        match value {
            Some(value) => drop(o.xattrs.insert(name.into(), value.clone())),
            None => drop(o.xattrs.remove(name)),
        }
        Ok(Effect::default())
    }

    fn create(
        &mut self,
        dir: usize,
        name: &str,
        how: CreateHow,
        mode: Option<u32>,
        size: Option<u64>,
    ) -> Expect {
        self.live_dir(dir)?;
        if let Some(id) = self.child(dir, name) {
            let o = &self.objs[id];
            let same = match how {
                CreateHow::Unchecked => o.kind == Kind::File,
                CreateHow::Guarded => false,
                CreateHow::Exclusive(v) => o.verifier == Some(v),
            };
            if !same {
                return Err(vec![ErrorKind::Exists]);
            }
            let mut touched = vec![];
            if let (CreateHow::Unchecked, Some(size)) = (how, size) {
                self.resize(id, size);
                touched.push(id);
            }
            return Ok(Effect { touched, made: Some(id) });
        }
        let exclusive = matches!(how, CreateHow::Exclusive(_));
        let effect =
            self.make(dir, name, Kind::File, mode.unwrap_or(if exclusive { 0o600 } else { 0o644 }))?;
        let id = effect.made.unwrap();
        if let CreateHow::Exclusive(v) = how {
            self.objs[id].verifier = Some(v);
        }
        self.resize(id, size.unwrap_or(0));
        Ok(effect)
    }

    fn remove(&mut self, dir: usize, name: &str, is_dir: bool) -> Expect {
        self.live_dir(dir)?;
        let id = self.child(dir, name).ok_or(vec![ErrorKind::NotFound])?;
        match (is_dir, self.objs[id].kind == Kind::Dir) {
            (true, false) => return Err(vec![ErrorKind::NotDir]),
            (false, true) => return Err(vec![ErrorKind::IsDir]),
            (true, true) if !self.objs[id].names.is_empty() => return Err(vec![ErrorKind::NotEmpty]),
            _ => {}
        }
        self.leave(dir, name);
        self.drop_link(id);
        Ok(Effect { touched: vec![dir], made: None })
    }

    fn drop_link(&mut self, id: usize) {
        let o = &mut self.objs[id];
        o.nlink = if o.kind == Kind::Dir { 0 } else { o.nlink - 1 };
    }

    fn rename(&mut self, from: (usize, &str), to: (usize, &str)) -> Expect {
        self.live_dir(from.0)?;
        self.live_dir(to.0)?;
        let id = self.child(from.0, from.1).ok_or(vec![ErrorKind::NotFound])?;
        let there = self.child(to.0, to.1);
        if there == Some(id) {
            return Ok(Effect::default());
        }
        let is_dir = self.objs[id].kind == Kind::Dir;
        let mut errors = Vec::new();
        if is_dir && self.contains(id, to.0) {
            errors.push(ErrorKind::Invalid);
        }
        if let Some(old) = there {
            let old_is_dir = self.objs[old].kind == Kind::Dir;
            match (is_dir, old_is_dir) {
                (true, false) => errors.push(ErrorKind::NotDir),
                (false, true) => errors.push(ErrorKind::IsDir),
                _ => {}
            }
            if !self.objs[old].names.is_empty() {
                errors.push(ErrorKind::NotEmpty);
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        if let Some(old) = there {
            self.leave(to.0, to.1);
            self.drop_link(old);
        }
        self.leave(from.0, from.1);
        self.enter(to.0, to.1, id);
        Ok(Effect { touched: vec![from.0, to.0], made: None })
    }

    /// A random call.
    pub fn choose(&self, rng: &mut StdRng, big: bool) -> Act {
        // tidy: long because it is one table, a line or two for each kind of call.
        let dirs = self.dirs();
        let any_dir = |rng: &mut StdRng| dirs[rng.random_range(0..dirs.len())].0;
        let shallow: Vec<usize> = dirs.iter().filter(|d| d.1 < DEPTH).map(|d| d.0).collect();
        let live: BTreeSet<usize> =
            dirs.iter().flat_map(|d| self.objs[d.0].names.values().copied()).collect();
        let files: Vec<usize> = live.iter().copied().filter(|i| self.objs[*i].kind == Kind::File).collect();
        let (dir, name) = (any_dir(rng), any_name(rng));
        let taken: Vec<(usize, String)> =
            dirs.iter().flat_map(|d| self.objs[d.0].names.keys().map(|n| (d.0, n.clone()))).collect();
        // Half of all calls name something that is there.
        let (at_dir, at_name) = match taken.len() {
            n if n > 0 && rng.random_bool(0.7) => taken[rng.random_range(0..n)].clone(),
            _ => (dir, name.clone()),
        };
        let file = files.get(rng.random_range(0..files.len().max(1))).copied();
        let mode = 0o600 | rng.random_range(0..0o1000);
        match (rng.random_range(0..100), file) {
            (0..12, _) => {
                let how = match rng.random_range(0..3) {
                    0 => CreateHow::Unchecked,
                    1 => CreateHow::Guarded,
                    _ => CreateHow::Exclusive([rng.random_range(0..4); 8]),
                };
                let plain = !matches!(how, CreateHow::Exclusive(_));
                let size = (plain && rng.random_bool(0.3)).then(|| rng.random_range(0..300));
                Act::Create { dir, name, how, mode: plain.then_some(mode), size }
            }
            (12..18, _) => {
                Act::Mkdir { dir: shallow[rng.random_range(0..shallow.len())], name, mode: mode | 0o700 }
            }
            (18..20, _) => Act::Symlink { dir, name, target: format!("t{}", rng.random_range(0..100)) },
            (20..22, _) => {
                let kind = if rng.random_bool(0.5) { Kind::Fifo } else { Kind::Socket };
                Act::Mknod { dir, name, kind }
            }
            (22..40, Some(file)) => self.a_write(rng, file, big),
            (40..45, Some(file)) => {
                let len = self.objs[file].data.len() as u64;
                let size = match rng.random_range(0..4) {
                    0 => 0,
                    1 => rng.random_range(0..=len),
                    2 => rng.random_range(0..400),
                    _ => (len + rng.random_range(0..5000)).min(LEN),
                };
                Act::Truncate { file, size }
            }
            (45..50, _) if !live.is_empty() => {
                let object = *live.iter().nth(rng.random_range(0..live.len())).unwrap();
                let link = self.objs[object].kind == Kind::Symlink;
                let mode = if self.objs[object].kind == Kind::Dir { mode | 0o700 } else { mode };
                let sec = rng.random_range(1_000_000..2_000_000);
                let mtime =
                    rng.random_bool(0.5).then(|| Time { sec, nsec: rng.random_range(0..1_000_000_000) });
                Act::SetAttr { object, mode: (!link && rng.random_bool(0.6)).then_some(mode), mtime }
            }
            (50..57, _) if !live.is_empty() => {
                let object = *live.iter().nth(rng.random_range(0..live.len())).unwrap();
                Act::Link { object, dir, name }
            }
            (57..72, _) => Act::Rename { from: at_dir, name: at_name, to: dir, new_name: name },
            (72..82, _) => match self.child(at_dir, &at_name) {
                Some(id) if self.objs[id].kind == Kind::Dir && rng.random_bool(0.9) => {
                    Act::Rmdir { dir: at_dir, name: at_name }
                }
                _ => Act::Remove { dir: at_dir, name: at_name },
            },
            (82..84, _) => Act::Rmdir { dir: at_dir, name: at_name },
            (84..90, Some(file)) => {
                let at = rng.random_range(0..self.objs[file].data.len() as u64 + 10);
                Act::Read { file, at, len: rng.random_range(1..100_000) }
            }
            (90..92, Some(file)) => Act::Commit { file },
            (92..94, _) => Act::List { dir },
            (94..96, _) => Act::Lookup { dir: at_dir, name: at_name },
            _ if live.is_empty() => Act::ListXattr { object: dir },
            _ => {
                let object = *live.iter().nth(rng.random_range(0..live.len())).unwrap();
                let object = if rng.random_bool(0.8) { object } else { dir };
                self.an_xattr(rng, object)
            }
        }
    }

    fn an_xattr(&self, rng: &mut StdRng, object: usize) -> Act {
        let name = ["user.a", "user.b", "user.c"][rng.random_range(0..3)].to_string();
        match rng.random_range(0..10) {
            0..5 => {
                let len = if rng.random_bool(0.1) { 50_000 } else { rng.random_range(0..30) };
                let value = (0..len).map(|_| rng.random_range(0..=255)).collect();
                let hows = [XattrHow::Any, XattrHow::Any, XattrHow::Create, XattrHow::Replace];
                Act::SetXattr { object, name, value, how: hows[rng.random_range(0..4)] }
            }
            5..7 => Act::RemoveXattr { object, name },
            7..9 => Act::GetXattr { object, name },
            _ => Act::ListXattr { object },
        }
    }

    fn a_write(&self, rng: &mut StdRng, file: usize, big: bool) -> Act {
        let len = self.objs[file].data.len() as u64;
        let at = match rng.random_range(0..5) {
            0 | 1 => len,
            2 => rng.random_range(0..=len),
            3 => rng.random_range(0..500),
            _ => len + rng.random_range(0..if big { 300_000 } else { 3000 }),
        };
        let count = match rng.random_range(0..8) {
            0 if big => rng.random_range(60_000..400_000),
            1 if big => rng.random_range(1..5000) * 16,
            0..4 => rng.random_range(1..20),
            _ => rng.random_range(1..3000),
        };
        let at = if at + count > LEN { 0 } else { at };
        let data = (0..count).map(|_| rng.random_range(1..=255)).collect();
        // Above all programs write and never ask for more.
        Act::Write { file, at, data, stable: rng.random_bool(0.3) }
    }
}

fn any_name(rng: &mut StdRng) -> String {
    NAMES[rng.random_range(0..NAMES.len())].into()
}

/// The owner that clients see.
pub const OWNER: u32 = UID;
