//! Bringing into the cache what somebody is going to want: subtrees and files, whole, before the first call for them.
//!
//! Directories are listed and files read many at a time, and whatever a call waits for goes first. What cannot be had is told, and
//! the rest goes on. Nothing goes out of the cache for it that was used a while ago: it ends where there is no more room.
//!
//! # Layout
//! - [`steps`]: what is done with a path, a directory, a part of a file.

mod steps;

use crate::types::{Cred, Oid};
use crate::volume::Volume;
use crate::{Vfs, limits};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use home::limits::agent::WALK_FROM;
use home::{Error, ErrorKind, Kind, Result, Time};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use steps::Child;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How far a prefetch is.
#[derive(Debug, Clone, Default)]
pub struct PrefetchProgress {
    /// Paths that were not looked at yet.
    pub waiting: usize,
    /// Names that were found in directories.
    pub names: u64,
    /// Directories that were listed.
    pub dirs: u64,
    /// Files found, and whole in the cache.
    pub files: (u64, u64),
    /// Their bytes.
    pub bytes: (u64, u64),
    /// Bytes that came from the homes.
    pub fetched: u64,
    /// The path that was worked on last.
    pub last: Bytes,
    /// What could not be had, and why: paths from the root directory, since this was last asked for.
    pub failed: Vec<(Bytes, Error)>,
    /// Failures more than are told.
    pub more_failed: u64,
    /// Why it went no further: there is no room in the cache.
    pub full: Option<Error>,
    /// There is nothing left to do.
    pub over: bool,
}

/// A prefetch under way. It ends where this is dropped.
pub struct Prefetch {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There are more paths.
    more: Notify,
    /// It is over.
    ended: Notify,
}

#[derive(Default)]
struct State {
    paths: VecDeque<Bytes>,
    progress: PrefetchProgress,
}

impl Vfs {
    /// Begins to bring names and attributes into the cache and, unless `names_only`, the content of files, for whoever
    /// has these credentials.
    pub fn prefetch(&self, cred: Cred, names_only: bool) -> Prefetch {
        let shared = Arc::<Shared>::default();
        let now = self.shared.env.clock.now();
        let since = Time { sec: now.sec.saturating_sub(limits::PREFETCH_SPARES.as_secs() as i64), ..now };
        let job = Job {
            vfs: self.this.clone(),
            cred: Arc::new(cred),
            names_only,
            since,
            shared: shared.clone(),
            dirs: Vec::new(),
            files: HashMap::new(),
            turn: VecDeque::new(),
            last_file: 0,
            steps: FuturesUnordered::new(),
            under_way: UnderWay::default(),
            stopped: false,
        };
        Prefetch { shared, task: tokio::spawn(job.run()) }
    }
}

impl Prefetch {
    /// Adds paths from the root directory.
    pub fn add(&self, paths: impl IntoIterator<Item = Bytes>) {
        let mut state = self.shared.state.lock();
        state.paths.extend(paths);
        state.progress.over = false;
        drop(state);
        self.shared.more.notify_one();
    }

    /// How far it is: at once where it is over, else after `wait`.
    pub async fn progress(&self, wait: Duration) -> PrefetchProgress {
        let ended = self.shared.ended.notified();
        if !self.shared.state.lock().progress.over {
            // Either end is good: what counts is read below.
            let _ = tokio::time::timeout(wait, ended).await;
        }
        let mut state = self.shared.state.lock();
        let failed = std::mem::take(&mut state.progress.failed);
        let waiting = state.paths.len();
        PrefetchProgress { waiting, failed, ..state.progress.clone() }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An object, and the path that it was found by.
#[derive(Clone)]
struct Place {
    volume: Arc<Volume>,
    id: u64,
    path: Bytes,
}

/// A file of which something is wanted.
struct File {
    place: Place,
    /// Its bytes when it was found.
    size: u64,
    /// Where to go on.
    next: u64,
    /// Parts under way.
    parts: usize,
    failed: bool,
}

impl File {
    fn len_of_part(&self, at: u64) -> u64 {
        limits::FETCH_CHUNK.min(self.size - at)
    }
}

/// What was done.
enum Step {
    Path(Bytes, Result<(Place, Kind, u64)>),
    Lists(Vec<(Place, Result<Vec<Child>>)>),
    Part(Part, Result<u64>),
}

/// A part of a file that is asked for.
#[derive(Clone, Copy)]
struct Part {
    /// The number of the file.
    file: u64,
    /// Where it begins.
    at: u64,
    /// How many of its bytes are not in the cache.
    missing: u64,
}

#[derive(Default)]
struct UnderWay {
    paths: usize,
    /// Each of one directory, or of a few.
    lists: usize,
    parts: usize,
    /// Of those parts.
    bytes: u64,
}

struct Job {
    vfs: std::sync::Weak<Vfs>,
    cred: Arc<Cred>,
    names_only: bool,
    /// What was used since then stays in the cache.
    since: Time,
    shared: Arc<Shared>,
    /// To be listed, the last one first.
    dirs: Vec<Place>,
    /// By number.
    files: HashMap<u64, File>,
    /// Files of which parts are not asked for yet.
    turn: VecDeque<u64>,
    last_file: u64,
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    under_way: UnderWay,
    /// There is no room for more.
    stopped: bool,
}

impl Job {
    async fn run(mut self) {
        loop {
            self.begin();
            if self.steps.is_empty() {
                self.end();
                self.shared.more.notified().await;
                continue;
            }
            tokio::select! {
                Some(step) = self.steps.next() => self.take(step),
                () = self.shared.more.notified() => {}
            }
        }
    }

    fn end(&self) {
        let mut state = self.shared.state.lock();
        if self.stopped {
            state.paths.clear();
        }
        if state.paths.is_empty() {
            state.progress.over = true;
            self.shared.ended.notify_waiters();
        }
    }

    /// Begins as many steps as may be under way.
    fn begin(&mut self) {
        while self.under_way.paths < limits::PREFETCH_PATHS
            && self.has_time()
            && let Some(path) = self.next_path()
            && let Some(vfs) = self.vfs.upgrade()
        {
            self.under_way.paths += 1;
            let cred = self.cred.clone();
            let step = async move { Step::Path(path.clone(), steps::find(&vfs, &cred, &path).await) };
            self.steps.push(step.boxed());
        }
        while self.has_time()
            && let Some(dirs) = self.next_dirs()
        {
            self.under_way.lists += 1;
            let cred = self.cred.clone();
            let step = async move {
                steps::walk(&dirs).await;
                let list = |dir: Place| async {
                    let children = steps::list(&dir, &cred).await;
                    (dir, children)
                };
                Step::Lists(join_all(dirs.into_iter().map(list)).await)
            };
            self.steps.push(step.boxed());
        }
        while self.under_way.parts < limits::PREFETCH_PARTS
            && self.under_way.bytes < limits::PREFETCH_BYTES
            && let Some((place, part)) = self.next_part()
        {
            self.under_way.parts += 1;
            self.under_way.bytes += part.missing;
            let step = async move { Step::Part(part, steps::bring(&place, part.at).await) };
            self.steps.push(step.boxed());
        }
    }

    /// Whether more may be looked for.
    fn has_time(&self) -> bool {
        !self.stopped && self.turn.len() < limits::PREFETCH_FILES
    }

    /// What is to be listed next, if it may be now: one directory, or a few where a home walks by itself.
    fn next_dirs(&mut self) -> Option<Vec<Place>> {
        let volume = self.dirs.last()?.volume.clone();
        let (at_once, each) = match volume.home.walks() {
            true => (limits::PREFETCH_WALKS, WALK_FROM),
            false => (limits::PREFETCH_LISTS, 1),
        };
        if self.under_way.lists >= at_once {
            return None;
        }
        let same =
            self.dirs.iter().rev().take_while(|dir| Arc::ptr_eq(&dir.volume, &volume)).take(each).count();
        Some(self.dirs.split_off(self.dirs.len() - same))
    }

    fn next_path(&self) -> Option<Bytes> {
        self.shared.state.lock().paths.pop_front()
    }

    /// The next part of a file that is not in the cache.
    fn next_part(&mut self) -> Option<(Place, Part)> {
        while let Some(number) = self.turn.front().copied() {
            let Some(file) = self.files.get_mut(&number) else {
                self.turn.pop_front();
                continue;
            };
            while file.next < file.size && !file.failed {
                let at = file.next;
                let missing = steps::missing(&file.place, at);
                let wanted = self.under_way.bytes + missing;
                if missing > 0 && !file.place.volume.shared.budget.has_room_for(wanted, self.since) {
                    let why = full(&file.place);
                    self.stop(why);
                    return None;
                }
                file.next += limits::FETCH_CHUNK;
                if missing > 0 {
                    file.parts += 1;
                    return Some((file.place.clone(), Part { file: number, at, missing }));
                }
                self.shared.state.lock().progress.bytes.1 += file.len_of_part(at);
            }
            self.turn.pop_front();
            self.close_if_done(number);
        }
        None
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Path(path, found) => {
                self.under_way.paths -= 1;
                match found {
                    Ok((place, Kind::Dir, _)) => self.dirs.push(place),
                    Ok((place, kind, size)) => self.found(place, kind, size),
                    Err(e) => self.failed(path, e),
                }
            }
            Step::Lists(dirs) => {
                self.under_way.lists -= 1;
                for (dir, children) in dirs {
                    match children {
                        Ok(children) => self.listed(&dir, children),
                        Err(e) => self.lost(&dir, e),
                    }
                }
            }
            Step::Part(part, came) => {
                self.under_way.parts -= 1;
                self.under_way.bytes -= part.missing;
                self.came(part, came);
            }
        }
    }

    fn listed(&mut self, dir: &Place, children: Vec<Child>) {
        {
            let progress = &mut self.shared.state.lock().progress;
            progress.dirs += 1;
            progress.names += children.len() as u64;
            progress.last = dir.path.clone();
        }
        for child in children {
            let path = [&dir.path[..], b"/", child.name.as_bytes()].concat().into();
            let place = Place { volume: dir.volume.clone(), id: child.id, path };
            match child.attr {
                None => self.failed(place.path, ErrorKind::Access.into()),
                Some((Kind::Dir, _)) => self.dirs.push(place),
                Some((kind, size)) => self.found(place, kind, size),
            }
        }
    }

    fn found(&mut self, place: Place, kind: Kind, size: u64) {
        if kind != Kind::File {
            return;
        }
        {
            let progress = &mut self.shared.state.lock().progress;
            progress.files.0 += 1;
            progress.bytes.0 += size;
        }
        if self.names_only || self.stopped {
            return;
        }
        self.last_file += 1;
        self.files.insert(self.last_file, File { place, size, next: 0, parts: 0, failed: false });
        self.turn.push_back(self.last_file);
    }

    fn came(&mut self, part: Part, came: Result<u64>) {
        let Some(file) = self.files.get_mut(&part.file) else { return };
        file.parts -= 1;
        let place = file.place.clone();
        match came {
            Ok(fetched) => {
                let progress = &mut self.shared.state.lock().progress;
                progress.bytes.1 += file.len_of_part(part.at);
                progress.fetched += fetched;
                progress.last = place.path;
            }
            Err(e) if e.kind == ErrorKind::Full => self.stop(full(&place)),
            Err(e) => {
                if !std::mem::replace(&mut file.failed, true) {
                    self.lost(&place, e);
                }
            }
        }
        self.close_if_done(part.file);
    }

    fn close_if_done(&mut self, number: u64) {
        let done = |file: &File| file.parts == 0 && (file.failed || file.next >= file.size);
        if self.files.get(&number).is_some_and(done)
            && let Some(file) = self.files.remove(&number)
            && !file.failed
        {
            self.shared.state.lock().progress.files.1 += 1;
        }
    }

    /// Something could not be had. Of a home that is given up nothing more is asked for.
    fn lost(&mut self, place: &Place, why: Error) {
        self.failed(place.path.clone(), why);
        if place.volume.is_given_up() || !place.volume.connects() {
            let gone = |other: &Place| Arc::ptr_eq(&other.volume, &place.volume);
            self.dirs.retain(|dir| !gone(dir));
            self.files.retain(|_, file| file.parts > 0 || !gone(&file.place));
        }
    }

    fn failed(&self, path: Bytes, why: Error) {
        let progress = &mut self.shared.state.lock().progress;
        match progress.failed.len() < limits::PREFETCH_FAILURES {
            true => progress.failed.push((path, why)),
            false => progress.more_failed += 1,
        }
    }

    /// Nothing more is asked for: there is no room.
    fn stop(&mut self, why: Error) {
        self.dirs.clear();
        self.turn.clear();
        self.files.retain(|_, file| file.parts > 0);
        self.stopped = true;
        self.shared.state.lock().progress.full.get_or_insert(why);
    }
}

fn full(place: &Place) -> Error {
    let budget = &place.volume.shared.budget;
    let text = format!(
        "no room for {}: {} of {} bytes of the cache are in use, and what is unsent or was used in the last hour stays",
        place.path.escape_ascii(),
        budget.used(),
        budget.cap()
    );
    Error::new(ErrorKind::Full, text)
}

/// The object that a path from the root directory leads to.
fn place(vfs: &Vfs, oid: Oid, path: &Bytes) -> Result<Place> {
    let path = path.strip_suffix(b"/").map_or_else(|| path.clone(), |bare| path.slice_ref(bare));
    Ok(Place { volume: vfs.volume(oid)?, id: oid.id, path })
}
