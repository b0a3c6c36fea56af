//! What changes in directories that were listed, so that nobody has to look again.
//!
//! A directory is watched from before it is read. What changes in it is told once for each name, until it is listed
//! again; with too many names the whole directory is told, and its watch is over. Thus what is told is bounded by what was
//! asked, however busy a directory is.
//!
//! Our own operations are no news to whoever sent them: an outcome says what is under a name afterwards, and as long as
//! just that is there, nothing is told of the name. While a batch runs, its names wait.
//!
//! Only file systems that this machine's kernel alone changes are watched. The kernel does not tell of what is done to a
//! file by a name in another directory, nor of stores through a shared mapping before the file is closed.

mod kept;

pub use kept::Kept;
use kept::Mounted;
pub(super) use kept::{give, take};

use super::apply::staging;
use super::resolve::Found;
use super::sys::{Happened, Mount, Sys};
use super::{Posix, listing, lock};
use crate::attr::{Access, Attr, HomeId, Kind};
use crate::error::{ErrorKind, Result};
use crate::limits::agent::{OWN_KEPT, WATCH_KEPT, WATCH_NAMES, WATCH_PAUSE, WATCHES_MAX, WATCHES_SHARE};
use crate::op::{Op, Outcome, Payload, Placed};
use crate::recent::Recent;
use crate::{Changed, HomePath, Loc, Mark, Name, Page};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, OnceLock};

/// What is told: changes, or `None` where some were missed, after which nothing is watched any more.
pub type News = Option<Vec<Changed>>;

/// The watched directories of a home.
pub(super) struct Watches<S: Sys> {
    /// Where the kernel tells what happens; nowhere where it cannot.
    kernel: OnceLock<Option<S::Fd>>,
    /// Held from when the kernel has told something until it is told on.
    telling: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    dirs: HashMap<i32, Dir>,
    /// Marks of directories whose watches went to others.
    dropped: Vec<Mark>,
    /// No directory gives its watch away before this second.
    full_until: i64,
    /// The kernel tells nothing any more.
    over: bool,
    /// Where what is mounted, as of the last look.
    mounts: HashSet<Mounted>,
    /// What happened to names of the batch that runs, and to directories meanwhile.
    waiting: BTreeMap<i32, Touched>,
    /// Names of the batch that runs.
    running: HashSet<HomePath>,
    /// What our own operations left under a name: an object, or nothing.
    left: Recent<HomePath, Option<Attr>>,
    /// What our own operations left directories as.
    stamped: Recent<HomeId, Attr>,
    told: kept::Told,
}

/// A watched directory.
#[derive(Clone)]
struct Dir {
    mark: Mark,
    path: HomePath,
    /// As it was when it was listed first, or after the last change of its attributes that was told.
    attr: Attr,
    /// The second in which it was listed.
    listed: i64,
    /// What was told since.
    told: Touched,
}

/// What of a directory has changed.
#[derive(Debug, Clone, Default)]
struct Touched {
    ended: bool,
    itself: bool,
    /// Each with whether the name itself came or went.
    names: BTreeMap<Name, bool>,
}

impl Touched {
    fn touch(&mut self, name: Name, entry: bool) {
        *self.names.entry(name).or_default() |= entry;
    }

    fn is_empty(&self) -> bool {
        !self.ended && !self.itself && self.names.is_empty()
    }
}

impl<S: Sys> Watches<S> {
    pub fn new() -> Watches<S> {
        let state = State {
            dirs: HashMap::new(),
            dropped: Vec::new(),
            full_until: i64::MIN,
            over: false,
            mounts: HashSet::new(),
            waiting: BTreeMap::new(),
            running: HashSet::new(),
            left: Recent::new(OWN_KEPT),
            stamped: Recent::new(OWN_KEPT),
            told: kept::Told::default(),
        };
        Watches { kernel: OnceLock::new(), telling: Mutex::default(), state: Mutex::new(state) }
    }

    /// Where the kernel tells what happens, if anything was ever watched.
    fn kernel(&self) -> Option<&S::Fd> {
        self.kernel.get().and_then(Option::as_ref)
    }

    /// Whether nothing goes untold, as far as is known here.
    pub fn tells(&self) -> bool {
        !lock(&self.state).over
    }

    /// A batch begins: what happens to its names is looked at when it has ended.
    pub fn begin(&self, ops: &[Placed]) {
        if self.kernel().is_some() {
            lock(&self.state).running = ops.iter().flat_map(|placed| names(&placed.op)).collect();
        }
    }

    /// It has ended with these outcomes.
    pub fn end(&self, ops: &[Placed], outcomes: &[Outcome]) {
        if self.kernel().is_none() {
            return;
        }
        let mut state = lock(&self.state);
        for (placed, outcome) in ops.iter().zip(outcomes) {
            let Outcome::Done(done) = outcome else { continue };
            let gone = match &placed.op {
                Op::Remove { .. } | Op::Rename { .. } => 1,
                _ => 0,
            };
            for (i, name) in names(&placed.op).enumerate() {
                state.left.put(name, done.attr.filter(|_| i >= gone));
            }
        }
        state.running.clear();
    }

    /// Our own operations left directories with these attributes.
    pub fn stamped<'a>(&self, dirs: impl IntoIterator<Item = &'a Attr>) {
        if self.kernel().is_some() {
            let mut state = lock(&self.state);
            let dirs = dirs.into_iter().filter(|a| a.kind == Kind::Dir);
            dirs.for_each(|a| state.stamped.put(a.id, *a));
        }
    }
}

/// The names that an operation changes something under; the first one of those that take a name away is that.
fn names(op: &Op<Loc, Payload>) -> impl Iterator<Item = HomePath> {
    let (first, second) = match op {
        Op::Create { dir, name, .. } | Op::Link { dir, name, .. } | Op::Remove { dir, name, .. } => {
            (dir.path.join(name), None)
        }
        Op::Write { file: at, .. } | Op::SetAttr { object: at, .. } | Op::SetXattr { object: at, .. } => {
            (at.path.clone(), None)
        }
        Op::Rename { from, name, to, new_name, .. } => (from.path.join(name), Some(to.path.join(new_name))),
    };
    std::iter::once(first).chain(second)
}

/// The first page of a directory, and whether it is watched since before the page was taken.
pub(super) fn list<S: Sys>(home: &Posix<S>, at: &Loc, max: u32, mark: Option<u64>) -> Result<(Page, bool)> {
    let applied = home.applied();
    let mut dir = home.find_dir(at)?;
    let watched = is_local(home, &dir) && arm(home, &dir, &at.path, mark);
    if watched {
        dir.attr = home.attr_of(&dir.fd)?;
    }
    Ok((listing::page(home, at, &dir, applied, None, max)?, watched))
}

fn is_local<S: Sys>(home: &Posix<S>, dir: &Found<S>) -> bool {
    let fs = home.sys.stat(&dir.fd).and_then(|stat| home.file_system_of(&dir.fd, &stat));
    fs.is_ok_and(|fs| fs.local && !fs.hidden)
}

/// From now on everything is told of a directory once. Answers false where it cannot be watched.
fn arm<S: Sys>(home: &Posix<S>, dir: &Found<S>, path: &HomePath, mark: Option<u64>) -> bool {
    let kernel = home.watches.kernel.get_or_init(|| {
        let kernel = home.sys.watches().ok();
        lock(&home.watches.state).mounts = mounts(home);
        kernel
    });
    let Some(kernel) = kernel else { return false };
    let now = home.sys.now().sec;
    // Held over the system call: an event may come before it returns.
    let mut state = lock(&home.watches.state);
    if state.over {
        return false;
    }
    let Ok(watch) = home.sys.watch(kernel, &dir.fd) else { return false };
    let max = WATCHES_MAX.min(home.sys.watches_max() / WATCHES_SHARE);
    if !state.dirs.contains_key(&watch)
        && state.dirs.len() >= max
        && !make_room(home, kernel, &mut state, now)
    {
        home.sys.unwatch(kernel, watch);
        return false;
    }
    let path = path.clone();
    let mark = mark.map_or(Mark::Walked(dir.attr.id), Mark::Given);
    // What changed before this look may be untold, and whoever asked for it may have known the directory already.
    let untold = state.dirs.get(&watch).filter(|known| !known.told.itself);
    let attr = untold.map_or(dir.attr, |known| known.attr);
    state.dirs.insert(watch, Dir { mark, path, attr, listed: now, told: Touched::default() });
    true
}

/// Ends the watches of some directories that were not listed for the longest time; whether there were any.
fn make_room<S: Sys>(home: &Posix<S>, kernel: &S::Fd, state: &mut State, now: i64) -> bool {
    if now < state.full_until {
        return false;
    }
    let mut old: Vec<(i64, i32)> = state.dirs.iter().map(|(watch, dir)| (dir.listed, *watch)).collect();
    old.sort_unstable();
    old.truncate(old.len().div_ceil(16));
    old.retain(|(listed, _)| *listed < now - WATCH_KEPT);
    for (_, watch) in &old {
        // The kernel tells of the end of a watch, which wakes whoever tells of it.
        home.sys.unwatch(kernel, *watch);
        state.dropped.extend(state.dirs.remove(watch).map(|dir| dir.mark));
    }
    if old.is_empty() {
        state.full_until = now + 1;
    }
    !old.is_empty()
}

/// Waits for changes in watched directories; for one thread. Fails where the kernel tells nothing any more.
pub(super) fn changes<S: Sys>(home: &Posix<S>) -> Result<News> {
    let watches = &home.watches;
    let kernel = watches.kernel().ok_or(ErrorKind::Unsupported)?;
    loop {
        let wait = (!lock(&watches.state).waiting.is_empty()).then_some(WATCH_PAUSE);
        let mounted = home.sys.stirs(kernel, wait);
        let _telling = lock(&watches.telling);
        if lock(&watches.state).over {
            return Err(ErrorKind::Io.into());
        }
        let (Ok(mounted), Ok(events)) = (mounted, home.sys.happened(kernel)) else {
            lose(home, kernel, true);
            return Err(ErrorKind::Io.into());
        };
        if events.iter().any(|(_, what)| *what == Happened::Overflow) {
            lose(home, kernel, false);
            return Ok(None);
        }
        if mounted {
            look_at_mounts(home);
        }
        let changed = tell(home, kernel, examine(home, sort(&watches.state, events)));
        if !changed.is_empty() {
            return Ok(Some(changed));
        }
    }
}

/// Changes were missed: nothing is watched any more.
fn lose<S: Sys>(home: &Posix<S>, kernel: &S::Fd, over: bool) {
    let mut state = lock(&home.watches.state);
    state.over |= over;
    state.told.lose();
    state.dropped.clear();
    state.waiting.clear();
    let dirs = std::mem::take(&mut state.dirs);
    dirs.keys().for_each(|watch| home.sys.unwatch(kernel, *watch));
}

/// Ends the watches of directories in which something was mounted, unmounted, or made read-only or writable, and of those
/// below it: other ones are there now, or are again, or may be changed by others than before.
fn look_at_mounts<S: Sys>(home: &Posix<S>) {
    let now = mounts(home);
    let mut state = lock(&home.watches.state);
    let changed: Vec<_> = now.symmetric_difference(&state.mounts).map(|m| m.point.clone()).collect();
    state.mounts = now;
    let is_below = |path: &[u8], point: &[u8]| {
        path.strip_prefix(point)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || point.ends_with(b"/"))
    };
    let holds = |path: &[u8], point: &[u8]| {
        let parent = point.iter().rposition(|b| *b == b'/').map_or(&[][..], |at| &point[..at.max(1)]);
        path == parent
    };
    let root = home.root_path.strip_suffix(b"/").unwrap_or(&home.root_path);
    let State { dirs, waiting, .. } = &mut *state;
    for (watch, dir) in dirs.iter() {
        let path = match dir.path.is_root() {
            true if root.is_empty() => b"/".to_vec(),
            true => root.to_vec(),
            false => [root, b"/", dir.path.as_bytes()].concat(),
        };
        if changed.iter().any(|point| is_below(&path, point) || holds(&path, point)) {
            waiting.entry(*watch).or_default().ended = true;
        }
    }
}

/// Also whether they are read-only: of a directory of which nobody tells that, changes would be taken.
fn mounts<S: Sys>(home: &Posix<S>) -> HashSet<Mounted> {
    let mounted = |m: Mount| Mounted { dev: m.dev, point: m.point.into(), read_only: m.read_only };
    home.sys.mounts().unwrap_or_default().into_iter().map(mounted).collect()
}

/// Events by directory, with what waited, and without what was told.
fn sort(state: &Mutex<State>, events: Vec<(i32, Happened)>) -> Vec<(i32, Dir, Touched)> {
    let mut state = lock(state);
    let mut all = std::mem::take(&mut state.waiting);
    for (watch, what) in events {
        let touched = all.entry(watch).or_default();
        match what {
            Happened::Overflow => {}
            Happened::Ended => touched.ended = true,
            Happened::Itself => touched.itself = true,
            // Attributes of a directory are told where it is watched itself.
            Happened::Name { dir: true, entry: false, .. } => {}
            Happened::Name { dir: true, name, .. } if name.starts_with(staging::PREFIX) => {}
            Happened::Name { name, entry, .. } => {
                Name::new(&name).into_iter().for_each(|name| touched.touch(name, entry));
            }
        }
    }
    let news = all.into_iter().filter_map(|(watch, mut touched)| {
        let dir = state.dirs.get(&watch)?;
        touched.itself &= !dir.told.itself;
        touched.names.retain(|name, entry| dir.told.names.get(name).is_none_or(|told| *entry && !told));
        Some((watch, dir.clone(), touched))
    });
    news.filter(|(.., touched)| !touched.is_empty()).collect()
}

/// What is not our own doing. What may become that waits.
fn examine<S: Sys>(home: &Posix<S>, all: Vec<(i32, Dir, Touched)>) -> Vec<(i32, Touched)> {
    let mut foreign = Vec::new();
    for (watch, dir, touched) in all {
        let mut told = Touched { ended: touched.ended, ..Touched::default() };
        let mut waiting = Touched::default();
        if touched.itself {
            match whose_attributes(home, &dir) {
                Whose::Ours => {}
                Whose::Unknown => waiting.itself = true,
                Whose::Foreign => told.itself = true,
            }
        }
        for (name, entry) in touched.names {
            match whose_name(home, &dir, &name) {
                Whose::Ours => {}
                Whose::Unknown => waiting.touch(name, entry),
                Whose::Foreign => told.touch(name, entry),
            }
        }
        if !waiting.is_empty() {
            lock(&home.watches.state).waiting.insert(watch, waiting);
        }
        foreign.push((watch, told));
    }
    foreign
}

/// Whose doing something is.
enum Whose {
    Ours,
    Foreign,
    /// Our batch is not at its end.
    Unknown,
}

/// Whose doing it is that the attributes of a directory are what they are.
fn whose_attributes<S: Sys>(home: &Posix<S>, dir: &Dir) -> Whose {
    let at = Loc { path: dir.path.clone(), id: Some(dir.attr.id) };
    let Ok(Found { attr: now, .. }) = home.find_dir(&at) else { return Whose::Foreign };
    if rights(&now) != rights(&dir.attr) {
        return Whose::Foreign;
    }
    let state = lock(&home.watches.state);
    match state.stamped.get(&now.id).is_some_and(|left| is_as_left(left, &now)) {
        true => Whose::Ours,
        false if !state.running.is_empty() => Whose::Unknown,
        false => Whose::Foreign,
    }
}

/// Whether an object is as it was left. The time of the last change alone does not tell: several changes fall into one tick of
/// the clock.
fn is_as_left(left: &Attr, now: &Attr) -> bool {
    let is_same = (left.id, left.mtime, left.ctime) == (now.id, now.mtime, now.ctime);
    // The size of a directory is that of its names.
    is_same && (left.size == now.size || now.kind == Kind::Dir) && rights(left) == rights(now)
}

fn rights(attr: &Attr) -> (u32, u32, u32, Access) {
    (attr.mode, attr.uid, attr.gid, attr.access)
}

/// Whose doing it is that a name stands for what it does.
fn whose_name<S: Sys>(home: &Posix<S>, dir: &Dir, name: &Name) -> Whose {
    let path = dir.path.join(name);
    let left = {
        let state = lock(&home.watches.state);
        if state.running.contains(&path) {
            return Whose::Unknown;
        }
        let Some(left) = state.left.get(&path) else { return Whose::Foreign };
        *left
    };
    let at = Loc { path: dir.path.clone(), id: Some(dir.attr.id) };
    let now = home.find_dir(&at).and_then(|dir| home.find_in(&dir.fd, name));
    let ours = match (left, now) {
        (None, Ok(None)) => true,
        (Some(left), Ok(Some(Found { attr: now, .. }))) => {
            is_as_left(&left, &now) || now.kind == Kind::Dir && left.id == now.id
        }
        _ => false,
    };
    if ours {
        return Whose::Ours;
    }
    let state = lock(&home.watches.state);
    let is_newer = state.running.contains(&path) || state.left.get(&path) != Some(&left);
    if is_newer { Whose::Unknown } else { Whose::Foreign }
}

/// Notes what is told, and puts it into words.
fn tell<S: Sys>(home: &Posix<S>, kernel: &S::Fd, news: Vec<(i32, Touched)>) -> Vec<Changed> {
    let mut state = lock(&home.watches.state);
    let dropped = std::mem::take(&mut state.dropped);
    let whole = |mark| Changed { mark, all: true, ..Changed::default() };
    let mut changed: Vec<Changed> = dropped.into_iter().map(whole).collect();
    for (watch, touched) in news {
        let Some(dir) = state.dirs.get_mut(&watch) else { continue };
        let mark = dir.mark;
        // Who makes or removes a name changes the directory, too.
        let itself = touched.itself || touched.names.values().any(|entry| *entry);
        dir.told.itself |= itself;
        touched.names.iter().for_each(|(name, entry)| dir.told.touch(name.clone(), *entry));
        if touched.ended || dir.told.names.len() > WATCH_NAMES {
            home.sys.unwatch(kernel, watch);
            state.dirs.remove(&watch);
            changed.push(whole(mark));
        } else if !touched.is_empty() {
            changed.push(Changed { mark, all: false, itself, names: touched.names.into_keys().collect() });
        }
    }
    state.told.note(&changed);
    changed
}
