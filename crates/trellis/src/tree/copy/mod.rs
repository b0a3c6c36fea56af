//! `cp`: files, links and directories from trees to a tree, several files at the same time.
//!
//! One task walks the sources, makes directories and links, and hands files to workers ([`file`]), each with ways of
//! its own to the trees. A file has a temporary name until it is whole. Directories get their modes and times when
//! everything in them is done. [`note`] makes an interrupted copy go on; [`progress`] shows how far it is.

pub mod file;
pub mod note;
pub mod progress;

use super::{Node, Set, Tree, When, list_all, same};
use crate::control::proto::Attr;
use crate::{advice, limits, show};
use file::{Job, PART, PART_TEXT, Worker, part_name, parts_of};
use home::{Error, ErrorKind};
use note::Note;
use progress::Progress;
use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What `cp` was told.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// Directories with all that is in them.
    pub recursive: bool,
    /// Modification times and exact permission bits too.
    pub preserve: bool,
    /// What has a name already stays.
    pub keep: bool,
    /// What nobody may write to is replaced, too.
    pub force: bool,
    /// Sources are removed afterwards.
    pub moves: bool,
    /// A pipe or a terminal is read, instead of refused.
    pub streams: bool,
    /// Permission bits that new objects do not get, where modes are not kept.
    pub umask: u32,
}

/// What the tasks of a copy share.
pub struct Shared {
    manner: Manner,
    note: Option<Note>,
    progress: Mutex<Progress>,
    failed: AtomicBool,
}

impl Shared {
    /// A copy that has not begun.
    pub fn new(manner: Manner, note: Option<Note>, progress: Progress) -> Arc<Shared> {
        Arc::new(Shared { manner, note, progress: Mutex::new(progress), failed: AtomicBool::new(false) })
    }

    /// How far it is.
    pub fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something failed.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The note of what is done, where there is one.
    pub fn notes(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// Tells of a failure; the copy goes on.
    pub fn complain(&self, path: &[u8], e: &Error) {
        self.failed.store(true, Ordering::Relaxed);
        self.progress().clear();
        let text = advice::complete(&naming(path, &show::message(&e.detail)));
        // Where standard error is closed there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "trellis: {text}");
    }

    /// The same, of the source at `path` or of its target.
    pub fn not_copied(&self, path: &[u8], trouble: &Trouble) {
        self.complain(trouble.target.as_deref().unwrap_or(path), &trouble.why);
    }

    /// What a pipe has brought cannot be told from what it brings the next time.
    fn note_of(&self, from: &Attr) -> Option<&Note> {
        self.note.as_ref().filter(|_| matches!(from.kind, '-' | 'd' | 'l'))
    }

    fn note(&self, path: &[u8], from: &Attr, to: (u64, (i64, u32))) {
        if let Some(note) = self.note_of(from) {
            note.add(path, from, to);
        }
    }

    fn announce(&self, path: &[u8], from: &Attr, to: (u64, (i64, u32))) {
        if let Some(note) = self.note_of(from) {
            note.announce(path, from, to);
        }
    }
}

/// An error with its path, unless it names it already.
pub fn naming(path: &[u8], error: &str) -> String {
    let path = if path.is_empty() { "''".to_owned() } else { show::text(path) };
    match error.strip_prefix(&path).is_some_and(|rest| rest.starts_with(':')) {
        true => error.to_owned(),
        false => format!("{path}: {error}"),
    }
}

/// Where an object goes.
pub struct Goal<'a> {
    /// The directory.
    pub dir: &'a Node,
    /// The name there.
    pub name: &'a [u8],
    /// Its path for a person.
    pub path: &'a [u8],
    /// What the name leads to where that is not to be looked up.
    pub there: Option<&'a Node>,
}

impl Goal<'_> {
    /// What failed there.
    fn failed(&self, why: Error) -> Trouble {
        Trouble::at(self.path, why)
    }
}

/// Why something was not copied: an error of the source, unless the target is named.
#[derive(Debug)]
pub struct Trouble {
    target: Option<Vec<u8>>,
    why: Error,
}

impl From<Error> for Trouble {
    fn from(why: Error) -> Trouble {
        Trouble { target: None, why }
    }
}

impl Trouble {
    /// What failed at the target; `path` is its path for a person, who does not know the temporary name.
    pub fn at(path: &[u8], mut why: Error) -> Trouble {
        let behind = why.detail.find(PART_TEXT).and_then(|part| why.detail[part..].split_once(": "));
        if let Some((_, reason)) = behind {
            why.detail = reason.to_owned();
        }
        Trouble { target: Some(path.to_vec()), why }
    }
}

/// A copy in progress.
pub struct Copy {
    from: Vec<Box<dyn Tree>>,
    to: Box<dyn Tree>,
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    queue: Arc<tokio::sync::Mutex<mpsc::Receiver<Job>>>,
    workers: JoinSet<()>,
    /// Directories that were made or filled, the outermost first.
    dirs: Vec<(Node, Set, Vec<u8>)>,
    /// The topmost directory that this copy fills.
    top: Option<Node>,
}

impl Copy {
    /// From these trees to that one.
    pub fn new(from: Vec<Box<dyn Tree>>, to: Box<dyn Tree>, shared: Arc<Shared>) -> Copy {
        let (jobs, queue) = mpsc::channel(limits::COPY_QUEUE);
        let queue = Arc::new(tokio::sync::Mutex::new(queue));
        Copy { from, to, shared, jobs, queue, workers: JoinSet::new(), dirs: Vec::new(), top: None }
    }

    /// A source tree.
    pub fn source(&mut self, at: usize) -> &mut dyn Tree {
        &mut *self.from[at]
    }

    /// The target tree.
    pub fn target(&mut self) -> &mut dyn Tree {
        &mut *self.to
    }

    /// Copies an object of a source tree to a name of a directory; `path` is its name for a person. Failures below a
    /// directory are complaints.
    pub async fn object(
        &mut self,
        source: usize,
        from: &Node,
        goal: Goal<'_>,
        path: &[u8],
    ) -> Result<(), Trouble> {
        let there = match goal.there {
            Some(there) => Some(there.clone()),
            None => self.find(&goal, goal.name).await?,
        };
        let part = match from.attr.is_file() && from.attr.size >= limits::COPY_RESUMES {
            true => self.find(&goal, &part_name(goal.name, &from.attr)).await?,
            false => None,
        };
        self.top = None;
        let mut path = path.to_vec();
        self.any(source, from, goal, (there, part), &mut path, 0).await
    }

    /// Gives a directory of the target the mode and the time of another one when all is copied. To be called for the
    /// outermost first.
    pub fn finish_like(&mut self, dir: Node, from: &Attr, path: &[u8]) {
        let (mode, mtime) = (Some(from.mode & 0o1777), Some(modified(from)));
        self.dirs.push((dir, Set { mode, mtime, ..Set::default() }, path.to_vec()));
    }

    /// Waits until all is copied, and finishes the directories.
    pub async fn finish(mut self) -> (Vec<Box<dyn Tree>>, Box<dyn Tree>) {
        drop(self.jobs);
        while let Some(ended) = self.workers.join_next().await {
            if let Err(e) = ended {
                let e = Error::new(ErrorKind::Io, format!("a task that copies ended: {e}"));
                self.shared.complain(b"cp", &e);
            }
        }
        for (dir, set, path) in self.dirs.iter().rev() {
            if let Err(e) = self.to.set(dir, *set).await {
                self.shared.complain(path, &e);
            }
        }
        self.shared.progress().end();
        (self.from, self.to)
    }

    async fn find(&mut self, goal: &Goal<'_>, name: &[u8]) -> Result<Option<Node>, Trouble> {
        match self.to.lookup(goal.dir, name).await {
            Ok(node) => Ok(Some(node)),
            Err(e) if e.kind == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(goal.failed(e)),
        }
    }

    async fn any(
        &mut self,
        source: usize,
        from: &Node,
        goal: Goal<'_>,
        (there, part): (Option<Node>, Option<Node>),
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Trouble> {
        match from.attr.kind {
            '-' | 'l' if self.shared.manner.keep && there.is_some() => Ok(()),
            'p' | 'c' if self.shared.manner.keep && there.is_some() => Ok(()),
            kind if kind == '-' || matches!(kind, 'p' | 'c') && self.shared.manner.streams => {
                self.shared.progress().found(from.attr.size);
                let (from, dir, name, to) =
                    (from.clone(), goal.dir.clone(), goal.name.to_vec(), goal.path.to_vec());
                Ok(self
                    .hand_out(Job { source, from, dir, name, path: path.clone(), to, there, part })
                    .await?)
            }
            'l' => self.link(source, from, goal, there, path).await,
            'd' if !self.shared.manner.recursive => {
                Err(Error::new(ErrorKind::IsDir, "is a directory: copy it with -r").into())
            }
            'd' if depth >= limits::DEPTH => {
                Err(Error::new(ErrorKind::Loop, "directories are nested too deeply").into())
            }
            'd' => Box::pin(self.directory(source, from, goal, there, path, depth)).await,
            _ => {
                Err(Error::new(ErrorKind::Unsupported, "neither file, directory nor link: not copied").into())
            }
        }
    }

    /// Gives a file to the workers, of which there are as many as there was work for.
    async fn hand_out(&mut self, job: Job) -> home::Result<()> {
        if self.workers.len() < limits::COPY_WORKERS {
            let mut from = Vec::new();
            for tree in &mut self.from {
                from.push(tree.another().await?);
            }
            let to = self.to.another().await?;
            let worker = Worker { from, to, shared: Arc::clone(&self.shared) };
            self.workers.spawn(work(worker, Arc::clone(&self.queue)));
        }
        let gone = |_| Error::new(ErrorKind::Io, "nobody copies any more");
        self.jobs.send(job).await.map_err(gone)
    }

    async fn link(
        &mut self,
        source: usize,
        from: &Node,
        goal: Goal<'_>,
        there: Option<Node>,
        path: &[u8],
    ) -> Result<(), Trouble> {
        let target = self.from[source].readlink(from).await?;
        let made = match there {
            None => self.to.symlink(goal.dir, goal.name, &target).await,
            Some(old) if old.attr.is_dir() => Err(in_the_way()),
            Some(old) if same(from, &old) => {
                return Err(Error::new(ErrorKind::Invalid, "source and target are the same link").into());
            }
            Some(old) if old.attr.is_symlink() && self.to.readlink(&old).await.is_ok_and(|t| t == target) => {
                Ok(())
            }
            Some(_) => self.replace(&goal, &part_name(goal.name, &from.attr), &target).await,
        };
        made.map_err(|e| goal.failed(e))?;
        self.shared.note(path, &from.attr, (from.attr.size, from.attr.mtime));
        Ok(())
    }

    async fn replace(&mut self, goal: &Goal<'_>, part: &[u8], target: &[u8]) -> home::Result<()> {
        match self.to.symlink(goal.dir, part, target).await {
            Err(e) if e.kind == ErrorKind::Exists => {
                self.to.remove(goal.dir, part, false).await?;
                self.to.symlink(goal.dir, part, target).await?;
            }
            made => made?,
        }
        self.to.rename(goal.dir, part, goal.dir, goal.name).await
    }

    async fn directory(
        &mut self,
        source: usize,
        from: &Node,
        goal: Goal<'_>,
        there: Option<Node>,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Trouble> {
        if self.top.as_ref().is_some_and(|top| same(top, from)) {
            let text = "is the target itself: a directory is not copied into itself";
            return Err(Error::new(ErrorKind::Invalid, text).into());
        }
        let manner = self.shared.manner;
        let mode = from.attr.mode & if manner.preserve { 0o1777 } else { 0o1777 & !manner.umask };
        let is_new = there.is_none();
        let (made, ours) = self.room(from, &goal, there, path, mode).await?;
        self.top.get_or_insert_with(|| made.clone());
        let mut old = match is_new {
            true => Old::default(),
            false => Old::new(list_all(&mut *self.to, &made).await.map_err(|e| goal.failed(e))?),
        };
        let set = Set {
            mode: Some(mode).filter(|_| manner.preserve || ours && mode & 0o700 != 0o700),
            mtime: Some(modified(&from.attr)).filter(|_| manner.preserve),
            ..Set::default()
        };
        if set != Set::default() {
            self.dirs.push((made.clone(), set, goal.path.to_vec()));
        }
        for (name, node) in list_all(&mut *self.from[source], from).await? {
            let len = path.len();
            path.push(b'/');
            path.extend_from_slice(&name);
            let below = [goal.path, b"/", &name].concat();
            let goal = Goal { dir: &made, name: &name, path: &below, there: None };
            if let Err(e) = self.entry(source, (from, node), goal, &mut old, path, depth).await {
                self.shared.not_copied(path, &e);
            }
            path.truncate(len);
        }
        Ok(())
    }

    /// The directory at the target, writable while it is filled, and whether this command has made it.
    async fn room(
        &mut self,
        from: &Node,
        goal: &Goal<'_>,
        there: Option<Node>,
        path: &[u8],
        mode: u32,
    ) -> Result<(Node, bool), Trouble> {
        // Whatever it will be at the end.
        let open = mode | 0o700;
        let Some(there) = there else {
            let made = self.to.mkdir(goal.dir, goal.name, open).await.map_err(|e| goal.failed(e))?;
            if mode != open {
                self.shared.announce(path, &from.attr, (0, from.attr.mtime));
            }
            return Ok((made, true));
        };
        if !there.attr.is_dir() {
            return Err(goal.failed(not_replaced(path)));
        }
        let ours = mode != open && self.shared.notes().is_some_and(|n| n.made_directory(path, &from.attr));
        if ours && there.attr.mode & 0o700 != 0o700 {
            // An earlier run has given it its mode in the end, and had not copied everything.
            let set = Set { mode: Some(open), ..Set::default() };
            self.to.set(&there, set).await.map_err(|e| goal.failed(e))?;
        }
        Ok((there, ours))
    }

    /// One name of a directory; `old` holds what was in the target before.
    async fn entry(
        &mut self,
        source: usize,
        (from, node): (&Node, Option<Node>),
        goal: Goal<'_>,
        old: &mut Old,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Trouble> {
        let name = goal.name;
        let node = match node {
            Some(node) => node,
            None => self.from[source].lookup(from, name).await?,
        };
        let there = match old.names.remove(name) {
            None => None,
            Some(None) => self.find(&goal, name).await?,
            found => found.flatten(),
        };
        let (own, all) = (part_name(name, &node.attr), parts_of(name));
        let mut part = None;
        for (name, node) in old.parts.extract_if(.., |(name, _)| name.starts_with(&all)) {
            match name == own {
                true => part = node,
                false => self.to.remove(goal.dir, &name, false).await.map_err(|e| goal.failed(e))?,
            }
        }
        self.any(source, &node, goal, (there, part), path, depth + 1).await
    }
}

fn modified(attr: &Attr) -> When {
    When::At(attr.mtime.0, attr.mtime.1)
}

/// Why a directory, of which `path` is the path for a person, does not get a name that something else has.
pub fn not_replaced(path: &[u8]) -> Error {
    let text = format!("is no directory, and the directory {} does not replace it", show::text(path));
    Error::new(ErrorKind::NotDir, text)
}

/// Why nothing else gets the name of a directory.
pub fn in_the_way() -> Error {
    Error::new(ErrorKind::IsDir, "a directory is in the way: move it aside")
}

/// What was in a target directory before.
#[derive(Default)]
struct Old {
    names: HashMap<Vec<u8>, Option<Node>>,
    /// What interrupted copies left.
    parts: Vec<(Vec<u8>, Option<Node>)>,
}

impl Old {
    fn new(entries: Vec<(Vec<u8>, Option<Node>)>) -> Old {
        let (parts, names): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|(name, _)| name.starts_with(PART));
        Old { names: names.into_iter().collect(), parts }
    }
}

/// Takes files from the queue until there are no more.
async fn work(mut worker: Worker, queue: Arc<tokio::sync::Mutex<mpsc::Receiver<Job>>>) {
    loop {
        let job = queue.lock().await.recv().await;
        let Some(job) = job else { return };
        if let Err(e) = worker.copy(&job).await {
            worker.shared.not_copied(&job.path, &e);
        }
    }
}
