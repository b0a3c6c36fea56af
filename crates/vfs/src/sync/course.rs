//! How far a home came that keeps no log: what it would show after each record, compared with what it shows.
//!
//! Its operations run in order, so what it has done is some of the first records, and perhaps a part of the next one. The
//! first number of records is taken after which everything is as it is seen: where later ones lead to the same again, to
//! do them again does so too. What nobody here knows fits everything, and what somebody else changed fits nothing, however
//! far the home came.

use super::marks::Mark;
use hashbrown::{HashMap, HashSet};
use home::{Attr, HomePath, Kind, Loc, Op};

/// A record that may have been executed, where its place in the order says.
pub struct Step<D> {
    /// Its number.
    pub seq: u64,
    /// The object that it acts on or makes.
    pub object: u64,
    /// The object whose name a move gives to it.
    pub replaced: Option<u64>,
    /// The attributes of the object after it.
    pub after: Option<Attr>,
    /// The last write of the run that it may have travelled with; else its own number.
    pub end: u64,
    /// It may have been passed by later ones: what it changes tells nothing.
    pub late: bool,
    /// What it does.
    pub op: Op<Loc, D>,
}

/// What is known of an object at some point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// The record that left it so, 0: it was so before.
    pub seq: u64,
    /// Its type.
    pub kind: Kind,
    /// Of a file, its size and the second of its time.
    pub content: Option<(u64, i64)>,
    /// Its permission bits without set-id and sticky bits.
    pub mode: Option<u32>,
}

impl State {
    fn shows(&self, attr: &Attr) -> bool {
        let content = self.content.filter(|_| self.kind == Kind::File);
        let mode = self.mode.filter(|_| self.kind != Kind::Symlink);
        self.kind == attr.kind
            && content.is_none_or(|content| content == (attr.size, attr.mtime.sec))
            && mode.is_none_or(|mode| mode == attr.mode & 0o777)
    }
}

/// What a place has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Nothing,
    Object(u64),
    Unknown,
}

/// What the home shows at a place; absent where it cannot be looked at.
pub type Found = HashMap<HomePath, Option<Attr>>;

/// The tree after some of the records, as far as they concern it.
#[derive(Default, Clone)]
struct Tree {
    places: HashMap<HomePath, Place>,
    /// Where an object is, by the places.
    at: HashMap<u64, Vec<HomePath>>,
    /// What an object may be: the last is certain unless a write travelled later.
    states: HashMap<u64, Vec<State>>,
    /// Directories that have nothing but what is known: they were made by a record, or are empty once one removes them.
    listed: HashSet<u64>,
}

/// The course of a home through some records.
pub struct Course<D> {
    steps: Vec<Step<D>>,
    before: Tree,
    /// All places that tell something, by their bytes.
    places: Vec<HomePath>,
}

impl<D> Course<D> {
    /// `known`: objects as they are before all of the steps, which are in order.
    pub fn new(steps: Vec<Step<D>>, known: &HashMap<u64, State>) -> Self {
        let (mut before, mut now, mut moves) = (Tree::default(), Tree::default(), Vec::new());
        let mut places = HashSet::new();
        for step in &steps {
            for (path, place) in step.presumes() {
                if now.place(&path).is_some() {
                    continue;
                }
                let place = if step.late { Place::Unknown } else { place };
                now.put(&path, place);
                if let Some(origin) = origin(&path, &moves) {
                    before.put(&origin, place);
                    places.insert(origin);
                }
                if let Place::Object(id) = place
                    && let Some(state) = known.get(&id)
                {
                    before.states.entry(id).or_insert_with(|| vec![*state]);
                    now.states.entry(id).or_insert_with(|| vec![*state]);
                }
                places.insert(path);
            }
            before.listed.extend(step.destroyed());
            let moved = step.moves(&now);
            places.extend(now.run(step));
            if let Some((_, to)) = &moved {
                places.extend(now.below(to));
            }
            moves.extend(moved);
        }
        let mut places: Vec<HomePath> = places.into_iter().collect();
        places.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        Course { steps, before, places }
    }

    /// All places that tell something.
    pub fn places(&self) -> impl Iterator<Item = HomePath> + '_ {
        self.places.iter().cloned()
    }

    /// Executes a step; answers the places that have something else then, perhaps.
    fn run(&self, tree: &mut Tree, step: &Step<D>) -> Vec<HomePath> {
        let mut changed = tree.run(step);
        if !matches!(step.op, Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. }) {
            let below: Vec<_> = changed.iter().flat_map(|dir| self.below(dir)).cloned().collect();
            changed.extend(below);
        }
        changed
    }

    fn below(&self, dir: &HomePath) -> &[HomePath] {
        let prefix = [dir.as_bytes(), b"/"].concat();
        let from = self.places.partition_point(|path| path.as_bytes() < &prefix[..]);
        let len = self.places[from..].partition_point(|path| path.as_bytes().starts_with(&prefix));
        &self.places[from..from + len]
    }

    /// What is found and may have been left there by a record, by its attributes alone.
    pub fn marks(&self, found: &Found) -> Vec<Mark> {
        let mut tree = self.before.clone();
        let mut marks: HashMap<(HomePath, u64), Mark> = HashMap::new();
        for step in &self.steps {
            for place in self.run(&mut tree, step) {
                let (Some(Some(there)), Some(Place::Object(object))) =
                    (found.get(&place), tree.place(&place))
                else {
                    continue;
                };
                let states = tree.states.get(&object).into_iter().flatten();
                for state in states.filter(|s| s.seq > 0 && s.shows(there)) {
                    let mark = Mark { seq: state.seq, object, place: place.clone(), there: *there };
                    marks.insert((place.clone(), state.seq), mark);
                }
            }
        }
        marks.into_values().collect()
    }

    /// The last record that was executed, 0 if none was. `belied`: places that have other bytes than a record left there.
    pub fn came_to(&self, found: &Found, belied: &HashSet<(HomePath, u64)>) -> u64 {
        let mut tree = self.before.clone();
        let mut wrong: HashSet<HomePath> =
            self.places().filter(|path| !tree.fits(path, found, belied)).collect();
        let score = |wrong: &HashSet<HomePath>, next: Option<&Step<D>>, tree: &Tree| {
            let half = next.map_or(0, |next| {
                let left = next.touches(tree).into_iter().filter(|path| next.may_be_half(found.get(path)));
                left.filter(|path| wrong.contains(path)).count()
            });
            (wrong.len() - half, half)
        };
        let mut best = (score(&wrong, self.steps.first(), &tree), 0);
        for (n, step) in self.steps.iter().enumerate() {
            for path in self.run(&mut tree, step) {
                match tree.fits(&path, found, belied) {
                    true => wrong.remove(&path),
                    false => wrong.insert(path),
                };
            }
            let score = score(&wrong, self.steps.get(n + 1), &tree);
            if score < best.0 {
                best = (score, step.seq);
            }
        }
        best.1
    }
}

impl<D> Step<D> {
    /// What must be where, so that it can be executed.
    fn presumes(&self) -> Vec<(HomePath, Place)> {
        let object = Place::Object(self.object);
        match &self.op {
            Op::Create { dir, name, .. } => vec![(dir.path.join(name), Place::Nothing)],
            Op::Write { file: at, .. } | Op::SetAttr { object: at, .. } | Op::SetXattr { object: at, .. } => {
                vec![(at.path.clone(), object)]
            }
            Op::Remove { dir, name, .. } => vec![(dir.path.join(name), object)],
            Op::Rename { from, name, to, new_name, .. } => {
                let target = self.replaced.map_or(Place::Nothing, Place::Object);
                vec![(from.path.join(name), object), (to.path.join(new_name), target)]
            }
            Op::Link { object: at, dir, name } => {
                vec![(at.path.clone(), object), (dir.path.join(name), Place::Nothing)]
            }
        }
    }

    /// The object that it may take the last name from.
    fn destroyed(&self) -> Option<u64> {
        if let Op::Remove { .. } = self.op { Some(self.object) } else { self.replaced }
    }

    /// The places that it changes.
    fn touches(&self, tree: &Tree) -> HashSet<HomePath> {
        let is_content = matches!(self.op, Op::Write { .. } | Op::SetAttr { .. } | Op::SetXattr { .. });
        let all = tree.at.get(&self.object).into_iter().flatten().filter(|_| is_content);
        self.presumes().into_iter().map(|(path, _)| path).chain(all.cloned()).collect()
    }

    /// Whether a part of it may have left what is found: it is not done in one step.
    fn may_be_half(&self, found: Option<&Option<Attr>>) -> bool {
        let is_new = |there: &Attr| there.kind == Kind::Dir || there.kind == Kind::File && there.size == 0;
        match self.op {
            Op::Write { .. } => true,
            Op::Create { .. } => found.and_then(Option::as_ref).is_some_and(is_new),
            _ => false,
        }
    }

    /// Where it takes a directory from, and to.
    fn moves(&self, tree: &Tree) -> Option<(HomePath, HomePath)> {
        let is_dir = tree.states.get(&self.object).is_some_and(|s| s.iter().any(|s| s.kind == Kind::Dir));
        match &self.op {
            Op::Rename { from, name, to, new_name, .. } if is_dir && !self.late => {
                Some((from.path.join(name), to.path.join(new_name)))
            }
            _ => None,
        }
    }
}

impl Tree {
    /// What a place has, if that is known.
    fn place(&self, path: &HomePath) -> Option<Place> {
        if let Some(place) = self.places.get(path) {
            return Some(*place);
        }
        let mut at = path.clone();
        while let Some((dir, _)) = at.split() {
            match self.places.get(&dir) {
                Some(Place::Nothing) => return Some(Place::Nothing),
                Some(Place::Object(id)) => return self.listed.contains(id).then_some(Place::Nothing),
                Some(Place::Unknown) => return None,
                None => at = dir,
            }
        }
        None
    }

    fn put(&mut self, path: &HomePath, place: Place) {
        self.take(path);
        self.places.insert(path.clone(), place);
        if let Place::Object(id) = place {
            self.at.entry(id).or_default().push(path.clone());
        }
    }

    /// Executes a step; answers the places that it changed.
    fn run<D>(&mut self, step: &Step<D>) -> Vec<HomePath> {
        if step.late {
            let touched: Vec<HomePath> = step.touches(self).into_iter().collect();
            touched.iter().for_each(|path| self.put(path, Place::Unknown));
            return touched;
        }
        match &step.op {
            Op::Create { dir, name, .. } => {
                self.alter(step);
                self.listed.insert(step.object);
                let path = dir.path.join(name);
                self.put(&path, Place::Object(step.object));
                vec![path]
            }
            Op::Link { dir, name, .. } => {
                let path = dir.path.join(name);
                self.put(&path, Place::Object(step.object));
                vec![path]
            }
            Op::Remove { dir, name, .. } => {
                let path = dir.path.join(name);
                self.put(&path, Place::Nothing);
                vec![path]
            }
            Op::Rename { from, name, to, new_name, .. } => {
                let (from, to) = (from.path.join(name), to.path.join(new_name));
                self.put(&from, Place::Nothing);
                self.put(&to, Place::Object(step.object));
                if let Some((from, to)) = step.moves(self) {
                    self.carry(&from, &to);
                }
                vec![from, to]
            }
            Op::Write { .. } | Op::SetAttr { .. } => {
                self.alter(step);
                self.at.get(&step.object).cloned().unwrap_or_default()
            }
            Op::SetXattr { .. } => vec![],
        }
    }

    /// Takes everything below a directory along.
    fn carry(&mut self, from: &HomePath, to: &HomePath) {
        // An empty directory may have been there; what nobody here knows of may come along.
        for path in self.below(to) {
            self.take(&path);
        }
        for old in self.below(from) {
            if let (Some(place), Some(new)) = (self.take(&old), moved(&old, from, to)) {
                self.put(&new, place);
            }
        }
    }

    fn below(&self, dir: &HomePath) -> Vec<HomePath> {
        self.places.keys().filter(|path| moved(path, dir, dir).is_some()).cloned().collect()
    }

    fn take(&mut self, path: &HomePath) -> Option<Place> {
        let place = self.places.remove(path);
        if let Some(Place::Object(id)) = place
            && let Some(at) = self.at.get_mut(&id)
        {
            at.retain(|at| at != path);
        }
        place
    }

    fn alter<D>(&mut self, step: &Step<D>) {
        let states = self.states.entry(step.object).or_default();
        let Some(after) = &step.after else {
            // Nobody knows what it left.
            states.clear();
            return;
        };
        let sets_mode = match &step.op {
            Op::Create { .. } => true,
            Op::SetAttr { set, .. } => set.mode.is_some(),
            _ => false,
        };
        let mode = match sets_mode {
            true => Some(after.mode & 0o777),
            false => states.last().and_then(|s| s.mode),
        };
        let content = Some((after.size, after.mtime.sec));
        if step.seq >= step.end {
            states.clear();
        }
        states.push(State { seq: step.seq, kind: after.kind, content, mode });
    }

    /// Whether a place is found as it must be.
    fn fits(&self, path: &HomePath, found: &Found, belied: &HashSet<(HomePath, u64)>) -> bool {
        let Some(there) = found.get(path) else { return true };
        match (self.place(path), there) {
            (None | Some(Place::Unknown), _) | (Some(Place::Nothing), None) => true,
            (Some(Place::Nothing), Some(_)) | (Some(Place::Object(_)), None) => false,
            (Some(Place::Object(id)), Some(there)) => {
                let states = self.states.get(&id).filter(|states| !states.is_empty());
                let shows = |s: &State| s.shows(there) && !belied.contains(&(path.clone(), s.seq));
                states.is_none_or(|states| states.iter().any(shows))
            }
        }
    }
}

/// Where a path leads that was below a directory before that was moved.
fn moved(path: &HomePath, from: &HomePath, to: &HomePath) -> Option<HomePath> {
    let below = path.as_bytes().strip_prefix(from.as_bytes())?.strip_prefix(b"/")?;
    HomePath::parse(&[to.as_bytes(), b"/", below].concat()).ok()
}

/// Where what has a place was before these moves of directories; `None` where its directory was made since.
fn origin(path: &HomePath, moves: &[(HomePath, HomePath)]) -> Option<HomePath> {
    moves.iter().rev().try_fold(path.clone(), |path, (from, to)| match moved(&path, to, from) {
        Some(before) => Some(before),
        None => moved(&path, from, from).is_none().then_some(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::tests::attr;
    use home::{Name, New, SetAttr};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    /// What a home has under a path.
    #[derive(Clone, Debug, PartialEq)]
    struct Node {
        object: u64,
        kind: Kind,
        mode: u32,
        sec: i64,
        bytes: Vec<u8>,
    }

    type Home = BTreeMap<Vec<u8>, Node>;

    fn path(bytes: &[u8]) -> HomePath {
        HomePath::parse(bytes).unwrap()
    }

    fn loc(path: HomePath) -> Loc {
        Loc { path, id: None }
    }

    fn after(node: &Node) -> Attr {
        let mut attr = attr(node.kind, node.object);
        (attr.mode, attr.size, attr.mtime.sec) = (node.mode, node.bytes.len() as u64, node.sec);
        attr
    }

    /// A name of a random directory.
    fn random_place(rng: &mut StdRng, dirs: &[Vec<u8>]) -> (HomePath, Name) {
        let dir = match rng.random_range(0..=dirs.len()) {
            0 => &[][..],
            n => &dirs[n - 1],
        };
        (path(dir), Name::new([b"a", b"b", b"c"][rng.random_range(0..3)]).unwrap())
    }

    /// Moves what a name leads to, to another one; answers the object that it replaces.
    fn random_move(
        rng: &mut StdRng,
        home: &mut Home,
        dirs: &[Vec<u8>],
        (dir, name): (HomePath, Name),
    ) -> Option<(Op<Loc, ()>, Option<u64>)> {
        let place = dir.join(&name);
        let (to, new_name) = random_place(rng, dirs);
        let target = to.join(&new_name);
        let (node, old) = (home.get(place.as_bytes())?.clone(), home.get(target.as_bytes()).cloned());
        let inside = target == place || moved(&target, &place, &place).is_some();
        if inside || old.as_ref().is_some_and(|old| old.kind == Kind::Dir || node.kind == Kind::Dir) {
            return None;
        }
        let below: Vec<Vec<u8>> =
            home.keys().filter(|k| moved(&path(k), &place, &place).is_some()).cloned().collect();
        for k in below {
            let node = home.remove(&k)?;
            home.insert(moved(&path(&k), &place, &target)?.as_bytes().to_vec(), node);
        }
        home.remove(place.as_bytes());
        home.insert(target.as_bytes().to_vec(), node);
        let (from, object, to) = (loc(dir), loc(place), loc(to));
        Some((Op::Rename { from, name, object, to, new_name, replaced: None }, old.map(|old| old.object)))
    }

    /// A random step that the home can execute, which it does. Few names, sizes, seconds and modes: little tells states apart.
    fn random(rng: &mut StdRng, home: &mut Home, seq: u64) -> Option<Step<()>> {
        let dirs: Vec<Vec<u8>> =
            home.iter().filter(|(_, n)| n.kind == Kind::Dir).map(|(p, _)| p.clone()).collect();
        let (dir, name) = random_place(rng, &dirs);
        let place = dir.join(&name);
        let (sec, mode) = (rng.random_range(0..2), [0o700, 0o755][rng.random_range(0..2)]);
        let at = || loc(place.clone());
        let key = place.as_bytes().to_vec();
        let bytes = vec![rng.random_range(b'x'..=b'z'); rng.random_range(0..3)];
        let (op, object, replaced) = match (home.get(&key).cloned(), rng.random_range(0..5)) {
            (None, _) => {
                let kind = [Kind::File, Kind::File, Kind::Dir][rng.random_range(0..3)];
                let new = if kind == Kind::Dir { New::Dir } else { New::File };
                home.insert(key, Node { object: seq, kind, mode, sec, bytes: vec![] });
                (Op::Create { dir: loc(dir), name, new, mode }, seq, None)
            }
            (Some(node), 0)
                if node.kind == Kind::Dir
                    && home.keys().any(|k| moved(&path(k), &place, &place).is_some()) =>
            {
                return None;
            }
            (Some(node), 0) => {
                home.remove(&key);
                let is_dir = node.kind == Kind::Dir;
                (Op::Remove { dir: loc(dir), name, object: at(), is_dir, base: None }, node.object, None)
            }
            (Some(node), 1) => {
                home.get_mut(&key)?.mode = mode;
                let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                (Op::SetAttr { object: at(), base: None, set }, node.object, None)
            }
            (Some(node), 2 | 3) if node.kind == Kind::File => {
                let there = home.get_mut(&key)?;
                (there.bytes, there.sec) = (bytes, sec);
                (Op::Write { file: at(), base: None, pieces: vec![] }, node.object, None)
            }
            (Some(node), _) => {
                let (op, replaced) = random_move(rng, home, &dirs, (dir, name))?;
                (op, node.object, replaced)
            }
        };
        let node = home.values().find(|n| n.object == object);
        Some(Step { seq, object, replaced, after: node.map(after), end: seq, late: false, op })
    }

    /// The bytes that each record left, and what the home is after it.
    fn run(seed: u64, before: Home) -> (Vec<Step<()>>, Vec<Home>) {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut steps, mut homes) = (Vec::new(), vec![before]);
        for n in 0..rng.random_range(1..25) {
            let mut home = homes[homes.len() - 1].clone();
            if let Some(step) = random(&mut rng, &mut home, 100 + n) {
                steps.push(step);
                homes.push(home);
            }
        }
        (steps, homes)
    }

    fn found(course: &Course<()>, home: &Home) -> Found {
        course.places().map(|p| (p.clone(), home.get(p.as_bytes()).map(after))).collect()
    }

    /// What the bytes tell, as the journal knows them.
    fn belied(
        course: &Course<()>,
        found: &Found,
        steps: &[Step<()>],
        homes: &[Home],
        now: &Home,
    ) -> HashSet<(HomePath, u64)> {
        let other = |m: &Mark| {
            let n = steps.iter().position(|s| s.seq == m.seq).unwrap();
            let left = homes[n + 1].values().find(|node| node.object == m.object);
            left.is_some_and(|left| left.bytes != now[m.place.as_bytes()].bytes)
        };
        course.marks(found).iter().filter(|m| other(m)).map(|m| (m.place.clone(), m.seq)).collect()
    }

    /// Whether two homes are alike, as far as can be told: not whose they are, nor a mode that nobody here has set.
    fn alike(a: &Home, b: &Home) -> bool {
        let mode = |a: &Node, b: &Node| a.mode == b.mode || a.object < 100 || b.object < 100;
        let sec = |a: &Node, b: &Node| a.sec == b.sec || a.kind == Kind::Dir;
        let nodes = |a: &Node, b: &Node| a.kind == b.kind && a.bytes == b.bytes && mode(a, b) && sec(a, b);
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && nodes(a.1, b.1))
    }

    /// How many steps the course says that a home has done.
    fn told(course: &Course<()>, steps: &[Step<()>], homes: &[Home], now: &Home) -> usize {
        let found = found(course, now);
        let last = course.came_to(&found, &belied(course, &found, steps, homes, now));
        steps.iter().position(|s| s.seq == last).map_or(0, |n| n + 1)
    }

    #[test]
    fn what_is_there_is_what_the_records_up_to_there_leave() {
        for seed in 0..400 {
            let node = |object, kind, bytes: &[u8]| Node {
                object,
                kind,
                mode: 0o700,
                // The bytes of what was there before are not in the journal: another second tells them.
                sec: 7,
                bytes: bytes.to_vec(),
            };
            let mut before = Home::new();
            if seed % 2 == 0 {
                before.insert(b"a".to_vec(), node(1, Kind::Dir, b""));
                before.insert(b"a/b".to_vec(), node(2, Kind::File, b"xy"));
                before.insert(b"c".to_vec(), node(3, Kind::File, b"x"));
            }
            let state = |n: &Node| State {
                seq: 0,
                kind: n.kind,
                content: Some((n.bytes.len() as u64, n.sec)),
                mode: None,
            };
            let known = before.values().map(|n| (n.object, state(n))).collect();
            let (steps, homes) = run(seed, before);
            let (again, _) = run(seed, homes[0].clone());
            let course = Course::new(again, &known);
            for (done, home) in homes.iter().enumerate() {
                let told = told(&course, &steps, &homes, home);
                assert!(told <= done, "seed {seed}: {told} of {done}");
                assert!(alike(&homes[told], home), "seed {seed}: {told} is not {done}: {home:?}");
                // The next write is half done.
                let Some(Op::Write { file, .. }) = steps.get(done).map(|s| &s.op) else { continue };
                let mut half = home.clone();
                half.get_mut(file.path.as_bytes()).unwrap().sec = 9;
                let told = super::tests::told(&course, &steps, &homes, &half);
                let others = |home: &Home| -> Home {
                    let others = home.iter().filter(|(p, _)| p[..] != *file.path.as_bytes());
                    others.map(|(p, n)| (p.clone(), n.clone())).collect()
                };
                let elsewhere = alike(&others(&homes[told]), &others(home));
                assert!(told <= done && elsewhere, "seed {seed}: {told} is not a part of {done}: {half:?}");
            }
        }
    }
}
