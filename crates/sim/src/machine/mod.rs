//! A machine in memory: one file system like ext4's (metadata survives a power cut as a prefix of what was done,
//! content only where it was synced), processes that may die at any system call, and a clock.
//!
//! [`SimSys`] is the machine as one process sees it, and implements what the agent's code asks of Linux.

pub mod fs;
mod sys;

pub use sys::{SimFd, SimSys};

use crate::clock::Clock;
use fs::{Change, Fs, Ino, Inode, ROOT, STAGING};
use home::Time;
use home::posix::sys::FileType;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// The account that everything runs as.
pub const UID: u32 = 1000;
/// Blocks of content are written whole or not at all.
const BLOCK: usize = 4096;

/// A system call on its way.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// What it does.
    pub name: &'static str,
    /// In which part of the tree.
    pub place: &'static str,
    /// Whether it changes anything.
    pub changes: bool,
}

/// What becomes of a call and its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It happens.
    Goes,
    /// The process dies before it.
    DiesBefore,
    /// The process dies after it.
    DiesAfter,
}

/// Whoever decides what happens around the system calls of a process.
pub trait Around: Send + Sync {
    /// Called before each, without any lock of the machine.
    fn before(&self, call: Call) -> Fate;

    /// Whether it gives up a call that would have to wait for a lease, because it may come again.
    fn is_impatient(&self) -> bool {
        false
    }
}

/// A process.
pub struct Process {
    alive: AtomicBool,
    boot: u64,
    around: Arc<dyn Around>,
}

impl Process {
    /// Ends it: none of its calls does anything from now on.
    pub fn kill(&self) {
        self.alive.store(false, Ordering::SeqCst);
    }

    /// Whether it was not killed.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }
}

/// The machine.
pub struct Machine {
    state: Mutex<State>,
    clock: Clock,
}

struct State {
    /// Whatever takes room fails.
    full: bool,
    /// A policy of the machine lets nobody change this object.
    refuses: Option<Ino>,
    /// Its file system can exchange names, and move a name to one that is free and nowhere else.
    exchanges: bool,
    now: Fs,
    durable: Fs,
    /// Changes of metadata since the last sync, oldest first.
    log: Vec<Change>,
    rng: StdRng,
    boot: u64,
    booted: Time,
    generations: u64,
    opens: BTreeMap<Ino, Opens>,
    /// Files that a process has locked.
    locks: BTreeMap<Ino, Arc<Process>>,
    /// Files on which a process has a lease.
    leases: BTreeMap<Ino, Lease>,
}

/// A lease on a file.
struct Lease {
    holder: Arc<Process>,
    /// Whoever reads it waits, too.
    from_readers: bool,
}

/// What becomes of content that was not synced when the power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Luck {
    /// It is as it was synced last.
    Old,
    /// It was written in time.
    New,
    /// Every other part of it was written in time.
    Torn,
}

/// What a power cut leaves of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cut {
    /// So many changes of metadata.
    pub keep: usize,
    /// Content of files of the tree.
    pub tree: Luck,
    /// Content of files below `~/.cache`.
    pub cache: Luck,
}

/// Who has an object open.
#[derive(Clone, Default)]
struct Opens {
    any: Arc<()>,
    /// Open for reading or writing, each with its process: the dead have nothing open.
    users: Vec<User>,
}

#[derive(Clone)]
struct User {
    open: Weak<()>,
    writes: bool,
    process: Arc<Process>,
}

impl User {
    fn lives(&self) -> bool {
        self.open.strong_count() > 0 && self.process.is_alive()
    }
}

impl Machine {
    /// With an empty root directory and the account's home directory, `/home/ann`.
    pub fn new(seed: u64, clock: Clock) -> Arc<Machine> {
        let state = State {
            full: false,
            refuses: None,
            exchanges: true,
            now: Fs::default(),
            durable: Fs::default(),
            log: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
            boot: 1,
            booted: clock.home_time(),
            generations: 0,
            opens: BTreeMap::new(),
            locks: BTreeMap::new(),
            leases: BTreeMap::new(),
        };
        let machine = Arc::new(Machine { state: Mutex::new(state), clock });
        {
            let mut state = machine.state.lock();
            let at = machine.clock.home_time();
            let root = state.new_node(FileType::Dir, 0o755, at);
            state.now.nodes.insert(ROOT, root);
            for (dir, name) in [(ROOT, "home"), (ROOT + 1, "ann")] {
                let node = Box::new(state.new_node(FileType::Dir, 0o755, at));
                let ino = dir + 1;
                state.change(Change::Make { dir, name: name.into(), ino, node, at });
            }
            state.log.clear();
            state.durable = state.now.clone();
        }
        machine
    }

    /// A new process.
    pub fn process(&self, around: Arc<dyn Around>) -> Arc<Process> {
        let boot = self.state.lock().boot;
        Arc::new(Process { alive: AtomicBool::new(true), boot, around })
    }

    /// Whether a process was neither killed nor ended by a power cut.
    pub fn runs(&self, process: &Process) -> bool {
        process.is_alive() && process.boot == self.state.lock().boot
    }

    /// The tree as it is.
    pub fn image(&self) -> Fs {
        self.state.lock().now.clone()
    }

    /// What of the tree is durable.
    pub fn durable(&self) -> Fs {
        self.state.lock().durable.clone()
    }

    /// A file and its content.
    pub fn file(&self, path: &str) -> Option<(Ino, Arc<Vec<u8>>)> {
        let state = self.state.lock();
        let ino = state.at(path)?;
        state.now.get(ino).filter(|n| n.kind == FileType::File).map(|n| (ino, n.data.clone()))
    }

    /// The contents of all files that have a name which a person would see: not in a staging directory, nor in what we keep there.
    pub fn files(&self) -> Vec<(Ino, Arc<Vec<u8>>)> {
        let state = self.state.lock();
        let (mut files, mut dirs) = (BTreeMap::new(), vec![ROOT]);
        while let Some(node) = dirs.pop().and_then(|dir| state.now.get(dir)) {
            let is_shown = |name: &[u8]| name != b".cache" && !name.starts_with(STAGING);
            for (_, child) in node.names.iter().filter(|(name, _)| is_shown(name)) {
                match state.now.get(*child) {
                    Some(n) if n.kind == FileType::Dir => dirs.push(*child),
                    Some(n) if n.kind == FileType::File => drop(files.insert(*child, n.data.clone())),
                    _ => {}
                }
            }
        }
        files.into_iter().collect()
    }

    /// Whether a directory has a name for an object.
    pub fn has(&self, path: &str, ino: Ino) -> bool {
        let state = self.state.lock();
        let dir = state.at(path).and_then(|dir| state.now.get(dir));
        dir.is_some_and(|n| n.names.values().any(|child| *child == ino))
    }

    /// The names in a directory.
    pub fn names(&self, path: &str) -> Vec<String> {
        let state = self.state.lock();
        let names =
            state.at(path).and_then(|ino| state.now.get(ino)).into_iter().flat_map(|n| n.names.keys());
        names.map(|n| String::from_utf8_lossy(n).into_owned()).collect()
    }

    /// The tree as it would be if the power failed now; one choice of many.
    pub fn image_after_cut(&self) -> Fs {
        let state = &mut *self.state.lock();
        let mut rng = StdRng::seed_from_u64(state.rng.random());
        survivors(&state.now, &state.durable, &state.log, &mut rng)
    }

    /// From now on others have taken all room, or have given some back.
    pub fn set_full(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// From now on nobody may change this object: neither the names in a directory, nor a file's content, attributes and names.
    /// No permission bit tells so, as with a server of NFS that has its own opinion.
    pub fn refuse(&self, object: Option<Ino>) {
        self.state.lock().refuses = object;
    }

    /// From now on its file system can neither exchange names, nor move one only where the new one is free, as NFS.
    pub fn lose_exchange(&self) {
        self.state.lock().exchanges = false;
    }

    /// Cuts the power: every process is dead.
    pub fn cut(&self) {
        let state = &mut *self.state.lock();
        let mut rng = StdRng::seed_from_u64(state.rng.random());
        let left = survivors(&state.now, &state.durable, &state.log, &mut rng);
        state.begin_anew(left, self.clock.home_time());
    }

    /// What has a path: its type.
    pub fn kind(&self, path: &str) -> Option<FileType> {
        let state = self.state.lock();
        state.at(path).and_then(|ino| state.now.get(ino)).map(|node| node.kind)
    }

    /// How many changes of metadata are not durable, and whether there is content that is not.
    pub fn unsynced(&self) -> (usize, bool) {
        let state = self.state.lock();
        (state.log.len(), state.log.iter().any(|change| matches!(change, Change::Wrote { .. })))
    }

    /// The tree as this cut would leave it. What is written is written in parts of `block` bytes.
    pub fn image_after(&self, cut: Cut, block: usize) -> Fs {
        let state = self.state.lock();
        survivors_of(&state.now, &state.durable, &state.log, cut, block)
    }

    /// Cuts the power with this outcome: every process is dead.
    pub fn cut_to(&self, cut: Cut, block: usize) {
        let state = &mut *self.state.lock();
        let left = survivors_of(&state.now, &state.durable, &state.log, cut, block);
        state.begin_anew(left, self.clock.home_time());
    }

    /// Makes everything durable.
    pub fn settle(&self) {
        let state = &mut *self.state.lock();
        state.log.clear();
        state.durable = state.now.clone();
    }
}

impl State {
    /// The machine is started again with what is left.
    fn begin_anew(&mut self, left: Fs, at: Time) {
        let state = self;
        state.refuses = None;
        (state.boot, state.booted) = (state.boot + 1, at);
        state.now = left;
        state.durable = state.now.clone();
        state.log.clear();
        state.opens.clear();
        state.locks.clear();
        state.leases.clear();
    }
}

/// What a power cut leaves: of metadata a prefix, of content what was synced and any part of the rest. A length is in the
/// same inode as the time of the write that made it, and is no newer.
fn survivors(now: &Fs, durable: &Fs, log: &[Change], rng: &mut StdRng) -> Fs {
    let keep = [0, log.len(), rng.random_range(0..=log.len())][rng.random_range(0..3)];
    let luck = [0.0, 1.0, 0.5][rng.random_range(0..3)];
    left_of(now, durable, log, keep, |node, new, longest| torn(&node.data, new, longest, luck, rng))
}

/// The same with what is left of the content told by `mix`: from the old inode, the newest content and its longest length.
fn left_of(
    now: &Fs,
    durable: &Fs,
    log: &[Change],
    keep: usize,
    mut mix: impl FnMut(&Inode, &[u8], usize) -> Vec<u8>,
) -> Fs {
    let mut left = durable.clone();
    log[..keep].iter().for_each(|change| left.apply(change));
    left.sweep(|_| false);
    let lost = log[keep..]
        .iter()
        .filter_map(|change| if let Change::Wrote { ino, .. } = change { Some(*ino) } else { None });
    let lost: BTreeSet<Ino> = lost.collect();
    for (ino, node) in &mut left.nodes {
        let newest = now.get(*ino).filter(|n| n.generation == node.generation && n.kind == FileType::File);
        if let Some(newest) = newest.filter(|n| n.data != node.data) {
            let longest = if lost.contains(ino) { node.data.len() } else { newest.data.len() };
            node.data = Arc::new(mix(node, &newest.data, longest));
        }
    }
    left
}

/// The same for one chosen outcome.
fn survivors_of(now: &Fs, durable: &Fs, log: &[Change], cut: Cut, block: usize) -> Fs {
    left_of(now, durable, log, cut.keep.min(log.len()), |node, new, longest| {
        let old = &node.data;
        let luck = if node.place == "cache" { cut.cache } else { cut.tree };
        match luck {
            Luck::Old => old.to_vec(),
            Luck::New => new[..longest.min(new.len())].to_vec(),
            Luck::Torn => {
                let byte = |n: usize| {
                    let from = if n >= old.len() || n / block % 2 == 1 { new } else { old };
                    from.get(n).copied().unwrap_or_default()
                };
                (0..longest).map(byte).collect()
            }
        }
    })
}

/// A mixture of two contents, by blocks, with the length of the old one or this one. A file is longer only when what it
/// is longer by has been written, as on ext4 and XFS.
fn torn(old: &[u8], new: &[u8], len: usize, luck: f64, rng: &mut StdRng) -> Vec<u8> {
    let len = if rng.random_bool(luck) { len } else { old.len() };
    let mut mixed = old.to_vec();
    mixed.resize(len, 0);
    for (block, bytes) in mixed.chunks_mut(BLOCK).enumerate() {
        let from = block * BLOCK;
        if rng.random_bool(luck) && from < new.len() {
            let to = new.len().min(from + bytes.len());
            bytes[..to - from].copy_from_slice(&new[from..to]);
        }
    }
    if old.len() < len {
        mixed[old.len()..].copy_from_slice(&new[old.len()..len]);
    }
    mixed
}

impl State {
    fn at(&self, path: &str) -> Option<Ino> {
        let mut names = path.split('/').filter(|n| !n.is_empty());
        names.try_fold(ROOT, |at, n| self.now.child(at, n.as_bytes()))
    }

    fn new_node(&mut self, kind: FileType, mode: u32, at: Time) -> Inode {
        self.generations += 1;
        Inode {
            kind,
            generation: self.generations,
            mode,
            gid: UID,
            nlink: 1,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
            data: Arc::default(),
            names: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            place: "tree",
        }
    }

    /// Makes a change and notes it.
    fn change(&mut self, change: Change) {
        self.now.apply(&change);
        self.log.push(change);
    }

    /// The lowest number that nobody uses: like ext4, which gives them out again at once.
    fn free_ino(&mut self) -> Ino {
        let opens = &self.opens;
        let is_open = |ino| opens.get(&ino).is_some_and(|o: &Opens| Arc::strong_count(&o.any) > 1);
        for gone in self.now.sweep(is_open) {
            self.opens.remove(&gone);
        }
        let mut free = ROOT;
        for ino in self.now.nodes.keys() {
            if *ino > free {
                break;
            }
            free = *ino + 1;
        }
        free
    }

    /// Makes all metadata durable, and the content of one object.
    fn sync(&mut self, ino: Ino) {
        let log = std::mem::take(&mut self.log);
        log.iter().for_each(|change| self.durable.apply(change));
        self.durable.sweep(|_| false);
        let (now, durable) = (self.now.nodes.get(&ino), self.durable.nodes.get_mut(&ino));
        if let (Some(now), Some(durable)) = (now, durable) {
            durable.data = now.data.clone();
        }
    }
}
