//! What a copy has done so far, so that the same command goes on where an interrupted one stopped.
//!
//! A file of JSON lines below `$XDG_CACHE_HOME/trellis/copies`, named after the command. The first line says whether
//! the target was new, because a directory that is there now would be copied *into* otherwise; each further one names
//! a file that is whole, with what was known of it and of its copy, or, before it gets its name, what nobody will be
//! allowed to write to then: a command that was killed in between finds there what is its own, and not somebody's
//! protected file. Nothing depends on it but work: what it has
//! forgotten is copied again, and what has changed since is not believed. It is taken away when the command has done
//! everything.

use crate::control::proto::{Attr, Raw};
use crate::{limits, state};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Seconds and nanoseconds since 1970.
type Moment = (i64, u32);

/// A file that is whole: size, time and number of the source, size and time of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Whole {
    from: (u64, Moment, u64),
    to: (u64, Moment),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// Whether the target was a new name.
    New(bool),
    /// A path below the sources.
    Whole(Raw, Whole),
    /// The same, of what is about to get its name.
    Coming(Raw, Whole),
}

/// The note of one command.
pub struct Note {
    path: Option<PathBuf>,
    new: bool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    whole: HashMap<Vec<u8>, Whole>,
    coming: HashMap<Vec<u8>, Whole>,
    file: Option<File>,
}

/// Whether two times are the same, one of them perhaps kept in whole seconds.
pub fn same_time(one: Moment, other: Moment) -> bool {
    one == other || one.0 == other.0 && (one.1 == 0 || other.1 == 0)
}

/// What tells one version of a source from another.
fn seen(from: &Attr) -> (u64, Moment, u64) {
    (from.size, from.mtime, from.fileid)
}

/// Takes away what is too old to be believed, of all commands.
fn prune(folder: &Path) {
    let is_old = |path: &Path| {
        let modified = path.metadata().ok()?.modified().ok()?;
        Some(SystemTime::now().duration_since(modified).unwrap_or_default() >= limits::COPY_NOTE_AGE)
    };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_old(&entry.path()) == Some(true) {
            // One that stays is tried again by the next command.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Note {
    /// The note of the command with these words, which a run before may have begun. `new`: the target is a new name.
    pub fn open(words: &[Vec<u8>], new: bool) -> Note {
        let folder = state::xdg("XDG_CACHE_HOME", ".cache").map(|dir| dir.join("trellis/copies"));
        Note::open_in(folder, words, new)
    }

    fn open_in(folder: Option<PathBuf>, words: &[Vec<u8>], new: bool) -> Note {
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        let path = folder.map(|dir| dir.join(format!("{:016x}", hasher.finish())));
        let mut note = Note { path, new, inner: Mutex::default() };
        note.load();
        note
    }

    /// Whether the target was a new name when the command was begun.
    pub fn new_target(&self) -> bool {
        self.new
    }

    fn load(&mut self) {
        let Some(path) = &self.path else { return };
        path.parent().into_iter().for_each(prune);
        let Ok(file) = File::open(path) else { return };
        let mut inner = Inner::default();
        // The last line may be cut off.
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        for line in lines.filter_map(|l| serde_json::from_str(&l).ok()).take(2 * limits::COPY_NOTES) {
            match line {
                Line::New(new) => self.new = new,
                Line::Whole(Raw(path), whole) => drop(inner.whole.insert(path, whole)),
                Line::Coming(Raw(path), coming) => drop(inner.coming.insert(path, coming)),
            }
        }
        self.inner = Mutex::new(inner);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this path was copied from a source that looks like this one.
    pub fn has(&self, path: &[u8], from: &Attr) -> bool {
        self.lock().whole.get(path).is_some_and(|w| w.from == seen(from))
    }

    /// Whether it was, to a target that looks like this one.
    pub fn holds(&self, path: &[u8], from: &Attr, to: &Attr) -> bool {
        let same = |w: &Whole| w.to.0 == to.size && same_time(w.to.1, to.mtime);
        self.has(path, from) && self.lock().whole.get(path).is_some_and(same)
    }

    /// Whether an earlier run was about to make, from a source that looks like this one, what is at the target.
    pub fn made(&self, path: &[u8], from: &Attr, to: &Attr) -> bool {
        let same = |w: &Whole| w.from == seen(from) && w.to.0 == to.size && same_time(w.to.1, to.mtime);
        self.lock().coming.get(path).is_some_and(same)
    }

    /// The same of a directory, whose size and time change with what is in it.
    pub fn made_directory(&self, path: &[u8], from: &Attr) -> bool {
        self.lock().coming.get(path).is_some_and(|w| w.from.2 == from.fileid)
    }

    /// Notes that a path is whole; `to` is the size and time that the copy was given.
    pub fn add(&self, path: &[u8], from: &Attr, to: (u64, Moment)) {
        let whole = Whole { from: seen(from), to };
        let mut inner = self.lock();
        if inner.whole.len() < limits::COPY_NOTES {
            inner.whole.insert(path.to_vec(), whole);
            self.write(&mut inner, &Line::Whole(path.into(), whole));
        }
    }

    /// Notes that the target of a path is about to get its name, with this size and time.
    pub fn announce(&self, path: &[u8], from: &Attr, to: (u64, Moment)) {
        let coming = Whole { from: seen(from), to };
        let mut inner = self.lock();
        if inner.coming.len() < limits::COPY_NOTES {
            inner.coming.insert(path.to_vec(), coming);
            self.write(&mut inner, &Line::Coming(path.into(), coming));
        }
    }

    fn write(&self, inner: &mut Inner, line: &Line) {
        if inner.file.is_none() {
            inner.file = self.begin();
        }
        if let (Some(file), Ok(mut text)) = (&mut inner.file, serde_json::to_vec(line)) {
            text.push(b'\n');
            // What cannot be noted is copied again.
            let _ = file.write_all(&text);
        }
    }

    fn begin(&self) -> Option<File> {
        let path = self.path.as_ref()?;
        let is_there = path.exists();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent()?).ok()?;
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path).ok()?;
        if !is_there {
            let mut text = serde_json::to_vec(&Line::New(self.new)).ok()?;
            text.push(b'\n');
            file.write_all(&text).ok()?;
        }
        Some(file)
    }

    /// Everything was done: nothing is left to go on with.
    pub fn forget(&self) {
        self.lock().file = None;
        if let Some(path) = &self.path {
            // One that stays is believed only for what has not changed.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(size: u64, mtime: Moment, fileid: u64) -> Attr {
        let times = Attr { atime: mtime, mtime, ctime: mtime, ..Attr::default() };
        Attr { kind: '-', size, fileid, ..times }
    }

    #[test]
    fn a_second_run_knows_what_the_first_one_did() {
        let dir = tempfile::tempdir().unwrap();
        let words = [b"a".to_vec(), b"b".to_vec()];
        let open = |new| Note::open_in(Some(dir.path().join("copies")), &words, new);
        let (from, to) = (attr(5, (1, 2), 7), attr(5, (9, 9), 8));
        let note = open(true);
        note.add(b"/x\xff", &from, (5, (9, 9)));
        drop(note);
        let note = open(false);
        assert!(note.new_target(), "what was new at first counts");
        assert!(note.holds(b"/x\xff", &from, &to) && note.has(b"/x\xff", &from));
        assert!(!note.holds(b"/x\xff", &from, &attr(5, (9, 8), 8)), "the copy was changed");
        assert!(!note.has(b"/x\xff", &attr(5, (1, 2), 6)), "another file has its name");
        assert!(!note.has(b"/y", &from));
        note.announce(b"/y", &from, (5, (9, 9)));
        let note = open(false);
        assert!(
            note.made(b"/y", &from, &to) && !note.has(b"/y", &from),
            "what is announced is not whole yet"
        );
        assert!(!note.made(b"/y", &from, &attr(6, (9, 9), 8)) && !note.made(b"/x\xff", &from, &to));
        note.forget();
        assert!(!open(false).new_target() && !open(false).has(b"/x\xff", &from));
        let other = Note::open_in(Some(dir.path().join("copies")), &words[..1], false);
        assert!(!other.has(b"/x\xff", &from));
    }

    #[test]
    fn a_cut_line_costs_that_line() {
        let dir = tempfile::tempdir().unwrap();
        let note = Note::open_in(Some(dir.path().to_owned()), &[], false);
        note.add(b"one", &attr(1, (1, 1), 1), (1, (1, 1)));
        note.add(b"two", &attr(2, (2, 2), 2), (2, (2, 2)));
        let path = note.path.clone().unwrap();
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let note = Note::open_in(Some(dir.path().to_owned()), &[], false);
        assert!(note.has(b"one", &attr(1, (1, 1), 1)) && !note.has(b"two", &attr(2, (2, 2), 2)));
    }

    #[test]
    fn old_notes_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let open = |new| Note::open_in(Some(dir.path().to_owned()), &[], new);
        let note = open(true);
        note.add(b"one", &attr(1, (1, 1), 1), (1, (1, 1)));
        let old = SystemTime::now() - limits::COPY_NOTE_AGE;
        File::options().append(true).open(note.path.clone().unwrap()).unwrap().set_modified(old).unwrap();
        assert!(!open(false).new_target() && std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }

    #[test]
    fn times_in_whole_seconds() {
        assert!(same_time((1, 5), (1, 5)) && same_time((1, 5), (1, 0)) && same_time((1, 0), (1, 7)));
        assert!(!same_time((1, 5), (1, 6)) && !same_time((1, 0), (2, 0)));
    }
}
