//! A disk that loses power, a clock that stands still, randomness from a seed, and work without threads.

use super::{Clock, Disk, Ended, Env, File, Job, Rng, Work};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The unit that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// A disk in memory. What was not synced may be lost in any combination of sectors when the power is cut.
///
/// A clone belongs to the process that runs when it is made: it and its files fail after a [`SimDisk::crash`], so
/// that threads of a dead process cannot write into the next one's disk. Make another clone for the next process.
#[derive(Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    life: u64,
}

impl Clone for SimDisk {
    fn clone(&self) -> Self {
        SimDisk { life: self.state.lock().life, state: self.state.clone() }
    }
}

#[derive(Default)]
struct State {
    files: BTreeMap<u64, Inode>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Changes of names since the last sync of their directory, oldest first.
    pending_names: Vec<NameOp>,
    dirs: BTreeSet<String>,
    next: u64,
    /// Increases with every crash.
    life: u64,
    capacity: Option<u64>,
    greedy: bool,
    failing_syncs: u32,
    failing_writes: u32,
    syncs: u64,
    sync_time: Duration,
    /// After so many further changes the power is cut, with this seed; without one, the process is killed.
    fuse: Option<(u64, Option<u64>)>,
    /// Only such changes count for that.
    fuse_of: Option<&'static [Step]>,
    /// What the process is doing, for the statistics.
    phase: &'static str,
    /// Kinds of changes, and how often each was made, and was the last one of a process.
    points: Points,
}

/// A kind of change: what is done, in which folder or part of a tree, and in which phase.
pub type Step = (&'static str, &'static str, &'static str);

/// What was done in which folder in which phase, with how often it was done and how often a process ended there.
pub type Points = BTreeMap<(&'static str, String, &'static str), (u64, u64)>;

#[derive(Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

enum Pending {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

enum NameOp {
    Set(String, u64),
    Remove(String),
}

impl NameOp {
    fn path(&self) -> &str {
        match self {
            NameOp::Set(p, _) | NameOp::Remove(p) => p,
        }
    }

    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameOp::Set(p, ino) => names.insert(p, ino),
            NameOp::Remove(p) => names.remove(&p),
        };
    }
}

impl SimDisk {
    /// An empty disk without a limit.
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// Cuts the power. Of what was not synced, a choice made by the seed survives: of names a prefix of the
    /// changes, of each file any set of sectors.
    pub fn crash(&self, seed: u64) {
        self.state.lock().crash(seed);
    }

    /// Cuts the power, as [`SimDisk::crash`] does, in place of the change (write, sync, or change of names) that
    /// comes after `changes` further ones.
    pub fn crash_after(&self, changes: u64, seed: u64) {
        self.state.lock().set_fuse((changes, Some(seed)), None);
    }

    /// Kills the process, as [`SimDisk::kill`] does, in place of the change that comes after `changes` further ones.
    pub fn kill_after(&self, changes: u64) {
        self.state.lock().set_fuse((changes, None), None);
    }

    /// Cuts the power, with this seed, or without one kills the process, in place of the next change of one of
    /// these kinds.
    pub fn end_at(&self, steps: &'static [Step], seed: Option<u64>) {
        self.state.lock().set_fuse((0, seed), Some(steps));
    }

    /// Whether a crash ordered by [`SimDisk::crash_after`] is still to come.
    pub fn crash_is_due(&self) -> bool {
        self.state.lock().fuse.is_some()
    }

    /// Stops all handles without losing a byte: the process was killed, the machine lives on.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        (state.life, state.fuse) = (state.life + 1, None);
    }

    /// From now on the disk holds at most this many bytes.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        let mut state = self.state.lock();
        (state.capacity, state.greedy) = (bytes, false);
    }

    /// Others take what is free, and if they are greedy, all that becomes free from now on.
    pub fn fill_up(&self, greedy: bool) {
        let mut state = self.state.lock();
        (state.capacity, state.greedy) = (Some(state.used()), greedy);
    }

    /// The next `n` syncs fail, and what they should have written is lost for later ones too.
    pub fn fail_syncs(&self, n: u32) {
        self.state.lock().failing_syncs = n;
    }

    /// The next `n` writes fail after their first half.
    pub fn fail_writes(&self, n: u32) {
        self.state.lock().failing_writes = n;
    }

    /// From now on every sync takes this long.
    pub fn slow_syncs(&self, time: Duration) {
        self.state.lock().sync_time = time;
    }

    /// How often a file was synced.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Flips one bit of a file, on the disk itself.
    pub fn flip_bit(&self, path: &str, at: u64) {
        let mut state = self.state.lock();
        let Some(ino) = state.names.get(path).copied() else { return };
        if let Some(file) = state.files.get_mut(&ino) {
            for copy in [&mut file.now, &mut file.durable] {
                if let Some(b) = copy.get_mut(at as usize) {
                    *b ^= 1;
                }
            }
        }
    }

    /// Whether the process that this clone belongs to is alive.
    pub fn is_alive(&self) -> bool {
        self.state.lock().life == self.life
    }

    /// From now on steps are counted as those of this phase.
    pub fn enter(&self, phase: &'static str) {
        self.state.lock().phase = phase;
    }

    /// Where processes were, and where they ended.
    pub fn points(&self) -> Points {
        self.state.lock().points.clone()
    }

    /// A change outside the disk's own files, at which the process may end as at any other.
    pub fn step(&self, what: &'static str, place: &str) -> io::Result<()> {
        self.change(what, place, |_| Ok(()))
    }

    /// The content of a file as a running process sees it.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.files.get(state.names.get(path)?).map(|f| f.now.clone())
    }

    fn handle(&self, ino: u64, path: &str) -> Arc<dyn File> {
        let disk = SimDisk { state: self.state.clone(), life: self.life };
        Arc::new(SimFile { disk, ino, place: path.split('/').next().unwrap_or(path).to_owned() })
    }

    /// Runs `f` on the disk; fails if the process of this handle is dead.
    fn with<T>(&self, f: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        if state.life == self.life { f(&mut state) } else { Err(dead()) }
    }

    /// The same for a change.
    fn change<T>(
        &self,
        what: &'static str,
        path: &str,
        f: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        self.with(|state| {
            let place = path.split('/').next().unwrap_or(path);
            let counts = state.fuse_of.is_none_or(|steps| steps.contains(&(what, place, state.phase)));
            let ends = counts && matches!(state.fuse, Some((0, _)));
            let point = state.points.entry((what, place.to_owned(), state.phase)).or_default();
            *point = (point.0 + 1, point.1 + u64::from(ends));
            match &mut state.fuse {
                _ if !counts => {}
                Some((0, Some(seed))) => {
                    let seed = *seed;
                    state.crash(seed);
                    return Err(dead());
                }
                Some((0, None)) => {
                    (state.life, state.fuse) = (state.life + 1, None);
                    return Err(dead());
                }
                Some((left, _)) => *left -= 1,
                None => {}
            }
            let done = f(state);
            if state.greedy {
                state.capacity = state.capacity.min(Some(state.used()));
            }
            done
        })
    }
}

fn dead() -> io::Error {
    io::Error::other("the simulated process is dead")
}

/// Lays a surviving part of an unsynced change over the durable bytes.
fn tear(durable: &mut Vec<u8>, op: Pending, chance: f64, rng: &mut StdRng) {
    match op {
        Pending::SetLen(len) => {
            if rng.random_bool(chance) {
                durable.resize(len as usize, 0);
            }
        }
        Pending::Write(at, data) => {
            let mut from = at as usize;
            let end = from + data.len();
            while from < end {
                let to = end.min((from / SECTOR + 1) * SECTOR);
                if rng.random_bool(chance) {
                    if durable.len() < to {
                        durable.resize(to, 0);
                    }
                    durable[from..to].copy_from_slice(&data[from - at as usize..to - at as usize]);
                }
                from = to;
            }
        }
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl State {
    fn set_fuse(&mut self, fuse: (u64, Option<u64>), of: Option<&'static [Step]>) {
        (self.fuse, self.fuse_of) = (Some(fuse), of);
    }

    fn crash(&mut self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        self.life += 1;
        self.fuse = None;
        self.failing_syncs = 0;
        self.failing_writes = 0;
        let keep = rng.random_range(0..=self.pending_names.len());
        for op in self.pending_names.drain(..).take(keep) {
            op.apply(&mut self.durable_names);
        }
        self.names = self.durable_names.clone();
        // Per crash: nothing unsynced survives, all does, or any part.
        let chance = [0.0, 1.0, 0.5, 0.9][rng.random_range(0..4)];
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        self.files.retain(|ino, _| named.contains(ino));
        for file in self.files.values_mut() {
            for op in std::mem::take(&mut file.pending) {
                tear(&mut file.durable, op, chance, &mut rng);
            }
            file.now = file.durable.clone();
        }
    }

    fn record(&mut self, op: NameOp) {
        let again = match &op {
            NameOp::Set(p, ino) => NameOp::Set(p.clone(), *ino),
            NameOp::Remove(p) => NameOp::Remove(p.clone()),
        };
        op.apply(&mut self.names);
        self.pending_names.push(again);
    }

    /// Bytes of files with a name. One without is open at most, and its space soon free.
    fn used(&self) -> u64 {
        self.names.values().filter_map(|ino| self.files.get(ino)).map(|f| f.now.len() as u64).sum()
    }

    /// Forgets the bytes of files that have no name and can get none back; open handles keep reading them.
    fn free_nameless(&mut self) {
        let pending = self.pending_names.iter().filter_map(|op| match op {
            NameOp::Set(_, ino) => Some(ino),
            NameOp::Remove(_) => None,
        });
        let named: BTreeSet<u64> =
            self.names.values().chain(self.durable_names.values()).chain(pending).copied().collect();
        for (ino, file) in &mut self.files {
            if !named.contains(ino) {
                file.durable = Vec::new();
                file.pending = Vec::new();
            }
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let ino = self.with(|state| state.names.get(path).copied().ok_or_else(not_found))?;
        Ok(self.handle(ino, path))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let ino = self.change("create", path, |state| {
            if !state.dirs.contains(parent(path)) {
                return Err(not_found());
            }
            if state.names.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.next += 1;
            let ino = state.next;
            state.files.insert(ino, Inode::default());
            state.record(NameOp::Set(path.to_owned(), ino));
            Ok(ino)
        })?;
        Ok(self.handle(ino, path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.with(|state| {
            if !state.dirs.contains(dir) {
                return Err(not_found());
            }
            let all =
                state.names.keys().chain(state.dirs.iter()).filter(|p| !p.is_empty() && parent(p) == dir);
            let mut names: Vec<String> =
                all.map(|p| p.rsplit_once('/').map_or(&p[..], |(_, n)| n).to_owned()).collect();
            names.sort();
            Ok(names)
        })
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.change("remove", path, |state| {
            if !state.names.contains_key(path) {
                return Err(not_found());
            }
            state.record(NameOp::Remove(path.to_owned()));
            state.free_nameless();
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change("rename", from, |state| {
            let ino = *state.names.get(from).ok_or_else(not_found)?;
            state.record(NameOp::Set(to.to_owned(), ino));
            state.record(NameOp::Remove(from.to_owned()));
            Ok(())
        })
    }

    fn create_dir_all(&self, dir: &str) -> io::Result<()> {
        self.with(|state| {
            state.dirs.insert(String::new());
            for (at, _) in dir.match_indices('/') {
                state.dirs.insert(dir[..at].to_owned());
            }
            state.dirs.insert(dir.to_owned());
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.change("sync names", dir, |state| {
            let (done, rest): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.pending_names).into_iter().partition(|op| parent(op.path()) == dir);
            state.pending_names = rest;
            done.into_iter().for_each(|op| op.apply(&mut state.durable_names));
            state.free_nameless();
            Ok(())
        })
    }

    fn free_space(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.capacity.map_or(u64::MAX, |c| c.saturating_sub(state.used()))))
    }
}

struct SimFile {
    disk: SimDisk,
    ino: u64,
    place: String,
}

impl Inode {
    fn change(&mut self, op: Pending) {
        op.apply(&mut self.now);
        self.pending.push(op);
    }
}

impl Pending {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Pending::SetLen(len) => bytes.resize(*len as usize, 0),
            Pending::Write(at, data) => {
                let end = *at as usize + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at as usize..end].copy_from_slice(data);
            }
        }
    }
}

impl State {
    fn file(&mut self, ino: u64) -> io::Result<&mut Inode> {
        self.files.get_mut(&ino).ok_or_else(not_found)
    }

    /// Fails if growing the file to `len` would overfill the disk.
    fn room(&mut self, ino: u64, len: u64) -> io::Result<()> {
        let more = len.saturating_sub(self.file(ino)?.now.len() as u64);
        match self.capacity {
            Some(c) if more > 0 && self.used() + more > c => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

impl File for SimFile {
    fn pread(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let ino = self.ino;
        self.disk.with(|state| {
            let now = &state.file(ino)?.now;
            let from = (at as usize).min(now.len());
            let n = buf.len().min(now.len() - from);
            buf[..n].copy_from_slice(&now[from..from + n]);
            Ok(n)
        })
    }

    fn pwrite_all(&self, parts: &[&[u8]], at: u64) -> io::Result<()> {
        let ino = self.ino;
        self.disk.change("write", &self.place, |state| {
            let mut data = parts.concat();
            state.room(ino, at + data.len() as u64)?;
            let fails = state.failing_writes > 0;
            if fails {
                state.failing_writes -= 1;
                data.truncate(data.len() / 2);
            }
            state.file(ino)?.change(Pending::Write(at, data));
            if fails { Err(io::Error::other("simulated write error")) } else { Ok(()) }
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        let ino = self.ino;
        let pause = self.disk.state.lock().sync_time;
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        self.disk.change("sync", &self.place, |state| {
            state.syncs += 1;
            let fails = state.failing_syncs > 0;
            state.failing_syncs -= u32::from(fails);
            let file = state.file(ino)?;
            let pending = std::mem::take(&mut file.pending);
            if fails {
                return Err(io::Error::other("simulated sync error"));
            }
            pending.iter().for_each(|op| op.apply(&mut file.durable));
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let ino = self.ino;
        self.disk.change("set length", &self.place, |state| {
            state.room(ino, len)?;
            state.file(ino)?.change(Pending::SetLen(len));
            Ok(())
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let ino = self.ino;
        self.disk.change("allocate", &self.place, |state| {
            state.room(ino, len)?;
            let now = state.file(ino)?.now.len() as u64;
            if now < len {
                state.file(ino)?.change(Pending::SetLen(len));
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.with(|state| Ok(state.file(self.ino)?.now.len() as u64))
    }
}

/// A clock that moves only when told.
pub struct ManualClock {
    now: Mutex<(home::Time, Duration)>,
}

impl ManualClock {
    /// Stands at `now`.
    pub fn new(now: home::Time) -> ManualClock {
        ManualClock { now: Mutex::new((now, Duration::ZERO)) }
    }

    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock();
        let nsec = now.0.nsec + by.subsec_nanos();
        now.0.sec += by.as_secs() as i64 + i64::from(nsec / 1_000_000_000);
        now.0.nsec = nsec % 1_000_000_000;
        now.1 += by;
    }

    /// Sets the wall clock alone, as an administrator might.
    pub fn set_wall(&self, to: home::Time) {
        self.now.lock().0 = to;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> home::Time {
        self.now.lock().0
    }
    fn instant(&self) -> Duration {
        self.now.lock().1
    }
}

/// The same bytes for the same seed.
pub struct SeededRng {
    rng: Mutex<StdRng>,
}

impl SeededRng {
    /// From a seed.
    pub fn new(seed: u64) -> SeededRng {
        SeededRng { rng: Mutex::new(StdRng::seed_from_u64(seed)) }
    }
}

impl Rng for SeededRng {
    fn fill(&self, buf: &mut [u8]) {
        self.rng.lock().fill_bytes(buf);
    }
}

/// An environment on `disk`, with a clock that stands at an arbitrary time and randomness from `seed`.
pub fn env(disk: &SimDisk, seed: u64) -> Env {
    Env {
        disk: Arc::new(disk.clone()),
        clock: Arc::new(ManualClock::new(home::Time { sec: 1_700_000_000, nsec: 0 })),
        rng: Arc::new(SeededRng::new(seed)),
        work: Arc::new(super::Threads),
    }
}

/// Does all work in the thread of one runtime: what is short at once, the rest as tasks.
pub struct OneThread;

impl Work for OneThread {
    fn run(&self, _name: &str, job: Job) -> io::Result<Ended> {
        job();
        Ok(Ended(None))
    }

    fn keep(&self, _name: &str, work: BoxFuture<'static, ()>) -> io::Result<Ended> {
        tokio::spawn(work);
        Ok(Ended(None))
    }

    fn lend(&self, job: Job) {
        job();
    }
}
