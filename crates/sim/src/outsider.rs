//! Another program of the account, which changes files in a folder that clients work in too, at any moment: also between
//! two system calls of the agent.

use crate::client::Trace;
use crate::ledger::{Ledger, Tokens, tokens, tokens_in};
use crate::machine::fs::{Fs, Ino, Inode};
use crate::machine::{Around, Call, Fate, Machine, SimFd, SimSys};
use crate::network::Meddler;
use home::HomePath;
use home::posix::sys::{FileType, Make, Mode, Rename, Stamp, Sys, Sysult};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;

/// The folder, below the account's home directory.
pub const FOLDER: &str = "shared";
/// The names that folders have which are moved: the first one is its own.
pub const FOLDERS: [&str; 3] = [FOLDER, "moved", "again"];
/// Where they are.
const TOP: &str = "/home/ann";
/// The names in it that both change.
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The program.
pub struct Outsider {
    machine: Arc<Machine>,
    ledger: Arc<Ledger>,
    trace: Trace,
    state: Mutex<State>,
}

struct State {
    rng: StdRng,
    sys: SimSys,
    /// A file that it has open for writing, and the removals there were when it was opened.
    open: Option<(SimFd, u64)>,
    /// The last such file.
    opened: Option<Ino>,
    temp: u32,
    /// What it wrote under the length and time that the file had.
    quiet: Tokens,
    /// Nothing tells such a change just now.
    untold: bool,
    /// What the gateway has read.
    read: Tokens,
    /// What was in a file whose ctime has moved since: a gateway that looks at it keeps nothing of it in its cache.
    moved: Tokens,
    /// What was written up to this token may have been evicted there.
    evicted: Option<u32>,
    /// It makes hard links, too.
    links: bool,
    /// It moves folders, too.
    moves: bool,
    /// The tokens in each file, as of the content that it had when they were looked for.
    known: HashMap<Ino, (Arc<Vec<u8>>, Tokens)>,
}

struct Undisturbed;

impl Around for Undisturbed {
    fn before(&self, _: Call) -> Fate {
        Fate::Goes
    }

    fn is_impatient(&self) -> bool {
        true
    }
}

fn process(machine: &Arc<Machine>) -> SimSys {
    SimSys::new(machine.clone(), machine.process(Arc::new(Undisturbed)))
}

impl Outsider {
    /// Makes the folder. `links`: it makes hard links, too; `moves`: it moves folders.
    pub fn new(
        machine: Arc<Machine>,
        ledger: Arc<Ledger>,
        trace: Trace,
        seed: u64,
        (links, moves): (bool, bool),
    ) -> Arc<Outsider> {
        let sys = process(&machine);
        let made =
            sys.open_root(b"/home/ann").and_then(|top| sys.make(&top, FOLDER.as_bytes(), Make::Dir(0o755)));
        let synced = sys.open_root(b"/home/ann").and_then(|top| sys.sync(&sys.reopen(&top, Mode::Read)?));
        debug_assert!(made.is_ok() && synced.is_ok());
        let state = State {
            rng: StdRng::seed_from_u64(seed),
            sys,
            open: None,
            opened: None,
            temp: 0,
            quiet: Tokens::new(),
            untold: false,
            read: Tokens::new(),
            moved: Tokens::new(),
            evicted: Some(0),
            links,
            moves,
            known: HashMap::new(),
        };
        Arc::new(Outsider { machine, ledger, trace, state: Mutex::new(state) })
    }

    /// Does one thing. What that destroys is its own affair.
    pub fn act(&self) {
        let state = &mut *self.state.lock();
        if state.moves && state.rng.random_ratio(1, 4) {
            let moved = self.move_folder(state);
            moved.into_iter().for_each(|text| self.trace.lock().push(format!("outside: {text}")));
            return;
        }
        let before = self.in_names(|name| NAMES.contains(&name));
        let name = NAMES[state.rng.random_range(0..NAMES.len())];
        let done = self.one_act(state, name);
        let gone = self.gone(state, before);
        // A full disk may take what is there, and not what was to be written over it.
        if done.is_err() && gone.is_empty() {
            return;
        }
        let text = done.unwrap_or_else(|e| format!("cuts {name} off, and then {e}"));
        self.trace.lock().push(format!("outside: {text}; gone: {gone:?}"));
        self.ledger.excuse(gone);
    }

    /// The gateway's disk is full, so that its cache keeps nothing, or has room again.
    pub fn fills(&self, full: bool) {
        let state = &mut *self.state.lock();
        if full {
            (state.read, state.evicted) = (Tokens::new(), None);
        } else if state.evicted.is_none() {
            state.evicted = Some(self.ledger.last());
        }
    }

    /// Removes what conflicts have left in the folders, after a look at it.
    pub fn tidy(&self) {
        let state = &mut *self.state.lock();
        let is_copy = |name: &str| !NAMES.contains(&name);
        let before = self.in_names(is_copy);
        for folder in self.folders() {
            let Ok(dir) = state.sys.open_root(folder.as_bytes()) else { continue };
            for name in self.machine.names(&folder).into_iter().filter(|name| is_copy(name)) {
                state.sys.unlink(&dir, name.as_bytes(), false).ok();
            }
        }
        let gone = self.gone(state, before);
        self.ledger.excuse(gone);
    }

    /// The folders that there are.
    fn folders(&self) -> Vec<String> {
        let all = FOLDERS.iter().map(|folder| format!("{TOP}/{folder}"));
        all.filter(|path| self.machine.kind(path) == Some(FileType::Dir)).collect()
    }

    fn in_names(&self, is_meant: impl Fn(&str) -> bool) -> Tokens {
        let names = |folder: &String| self.machine.names(folder).into_iter().filter(|name| is_meant(name));
        let paths = self
            .folders()
            .into_iter()
            .flat_map(|folder| names(&folder).map(|name| format!("{folder}/{name}")).collect::<Vec<_>>());
        let contents: Vec<_> = paths.filter_map(|path| self.machine.file(&path)).collect();
        contents.iter().flat_map(|(_, content)| tokens(content)).collect()
    }

    /// Gives a folder another name, or two of them each other's; perhaps makes a new one under the name that is free then.
    fn move_folder(&self, s: &mut State) -> Sysult<String> {
        let sys = s.sys.clone();
        let top = sys.open_root(TOP.as_bytes())?;
        let (from, to) = (s.rng.random_range(0..FOLDERS.len()), s.rng.random_range(1..FOLDERS.len()));
        let (from, to) = (FOLDERS[from], FOLDERS[(from + to) % FOLDERS.len()]);
        let anew = s.rng.random_bool(0.3);
        let there = |name: &str| self.machine.kind(&format!("{TOP}/{name}")).is_some();
        let both = there(from) && there(to);
        let how = if both { Rename::Exchange } else { Rename::Replace };
        sys.rename(&top, from.as_bytes(), &top, to.as_bytes(), how)?;
        if anew && !both {
            sys.make(&top, from.as_bytes(), Make::Dir(0o755))?;
            // A power cut takes no folder away in which clients work.
            sys.sync(&sys.reopen(&top, Mode::Read)?)?;
        }
        Ok(format!("moves {from} to {to}, exchanging: {both}, anew: {anew}"))
    }

    /// The folder in which something is done.
    fn folder(&self, s: &mut State) -> String {
        if !s.moves {
            return format!("{TOP}/{FOLDER}");
        }
        let folders = self.folders();
        let n = s.rng.random_range(0..folders.len().max(1));
        folders.get(n).cloned().unwrap_or_else(|| format!("{TOP}/{FOLDER}"))
    }

    /// Those that no file has any more.
    fn gone(&self, state: &mut State, before: Tokens) -> Tokens {
        let files = self.machine.files();
        let mut known = std::mem::take(&mut state.known);
        for (ino, content) in files {
            let book = match known.remove(&ino) {
                Some((seen, book)) if Arc::ptr_eq(&seen, &content) => book,
                _ => tokens(&content),
            };
            state.known.insert(ino, (content, book));
        }
        let is_left = |t: &String| state.known.values().any(|(_, book)| book.contains(t));
        before.into_iter().filter(|t| !is_left(t)).collect()
    }

    fn one_act(&self, s: &mut State, name: &str) -> Sysult<String> {
        let folder = self.folder(s);
        let dir = s.sys.open_root(folder.as_bytes())?;
        let kind = s.rng.random_range(0..if s.links { 16 } else { 13 });
        let file = s.sys.open_name(&dir, name.as_bytes()).map(|fd| fd.ino());
        let done = self.act_on(s, kind, &dir, name);
        if matches!(kind, 2 | 3 | 7 | 12..) {
            file.iter().for_each(|ino| self.moves_ctime(s, *ino));
        }
        done
    }

    /// One of the things that it can do.
    fn act_on(&self, s: &mut State, kind: u32, dir: &SimFd, name: &str) -> Sysult<String> {
        let sys = s.sys.clone();
        let token = self.ledger.token('X');
        match kind {
            12 => self.write_quietly(s, dir, name, &token),
            13.. => {
                let other = NAMES[s.rng.random_range(0..NAMES.len())];
                let replaces = s.rng.random_bool(0.5);
                if replaces && other != name {
                    // As `ln -f` does.
                    s.temp += 1;
                    let temp = format!(".x{}", s.temp);
                    sys.link(dir, name.as_bytes(), dir, temp.as_bytes())?;
                    sys.rename(dir, temp.as_bytes(), dir, other.as_bytes(), Rename::Replace)?;
                    // Where both were one file already, both names stay.
                    sys.unlink(dir, temp.as_bytes(), false).ok();
                    self.ledger.removal();
                } else {
                    sys.link(dir, name.as_bytes(), dir, other.as_bytes())?;
                }
                Ok(format!("links {name} to {other}, replacing: {replaces}"))
            }
            0 | 1 => {
                let file = sys.create(dir, name.as_bytes(), 0o644)?;
                sys.write(&file, 0, token.as_bytes())?;
                self.ledger.require(&token);
                Ok(format!("creates {name} with {token}"))
            }
            2 | 3 => {
                let file = sys.reopen(&sys.open_name(dir, name.as_bytes())?, Mode::Write)?;
                self.append(&sys, &file, &token)?;
                self.ledger.require(&token);
                Ok(format!("appends {token} to {name}"))
            }
            4 => {
                let file = sys.reopen(&sys.open_name(dir, name.as_bytes())?, Mode::Write)?;
                sys.truncate(&file, 0)?;
                sys.write(&file, 0, token.as_bytes())?;
                self.ledger.require(&token);
                Ok(format!("writes {token} over {name}"))
            }
            5 => {
                s.temp += 1;
                let temp = format!(".x{}", s.temp);
                let file = sys.create(dir, temp.as_bytes(), 0o644)?;
                sys.write(&file, 0, token.as_bytes())?;
                sys.rename(dir, temp.as_bytes(), dir, name.as_bytes(), Rename::Replace)?;
                self.ledger.removal();
                self.ledger.require(&token);
                Ok(format!("replaces {name} by {token}"))
            }
            6 => {
                sys.unlink(dir, name.as_bytes(), false)?;
                self.ledger.removal();
                Ok(format!("removes {name}"))
            }
            7 => {
                let other = NAMES[s.rng.random_range(0..NAMES.len())];
                sys.rename(dir, name.as_bytes(), dir, other.as_bytes(), Rename::Replace)?;
                self.ledger.removal();
                Ok(format!("renames {name} to {other}"))
            }
            _ => self.with_open_file(s, dir, name, &token),
        }
    }

    /// Opens a file for writing, and writes to it and closes it at some later time.
    fn with_open_file(&self, s: &mut State, dir: &SimFd, name: &str, token: &str) -> Sysult<String> {
        let Some((file, removals)) = s.open.take() else {
            let file = s.sys.reopen(&s.sys.open_name(dir, name.as_bytes())?, Mode::Write)?;
            (s.opened, s.open) = (Some(file.ino()), Some((file, self.ledger.removals())));
            return Ok(format!("opens {name}"));
        };
        if s.rng.random_bool(0.3) {
            return Ok("closes its file".into());
        }
        self.append(&s.sys, &file, token)?;
        self.moves_ctime(s, file.ino());
        // What the agent has taken out of the folder to remove it has none that a person would see.
        let named = self.folders().iter().any(|folder| self.machine.has(folder, file.ino()));
        // A file that nobody has meant to remove is still there.
        if named || (removals == self.ledger.removals() && !self.ledger.is_removing()) {
            self.ledger.require(token);
        }
        s.open = Some((file, removals));
        Ok(format!("appends {token} to its open file, which has a name: {named}"))
    }

    /// Writes over what a file has, and gives it the time that it had, as `rsync --inplace -t` does.
    fn write_quietly(&self, s: &mut State, dir: &SimFd, name: &str, token: &str) -> Sysult<String> {
        let sys = &s.sys;
        let file = sys.reopen(&sys.open_name(dir, name.as_bytes())?, Mode::Write)?;
        let before = sys.stat(&file)?;
        let last = before.size.checked_sub(token.len() as u64).ok_or(Errno::INVAL)?;
        let content = self.machine.files().into_iter().find(|(ino, _)| *ino == file.ino());
        let lost = content.map(|(_, content)| tokens(content.get(last as usize..).unwrap_or_default()));
        sys.write(&file, last, token.as_bytes())?;
        sys.set_times(&file, Stamp::Keep, Stamp::At(before.mtime))?;
        // Whoever never saw what was there, or has forgotten it, does not see that it is something else.
        let is_kept = |t: &str| s.evicted.is_some_and(|last| t[1..7].parse().is_ok_and(|n: u32| n > last));
        let is_seen =
            |t: &String| s.read.contains(t) || t.starts_with('O') && is_kept(t) && !s.moved.contains(t);
        let is_seen = lost.is_some_and(|lost| lost.iter().any(is_seen));
        // Nobody is kept from a file that somebody had open for writing when our operation began.
        if is_seen && s.opened != Some(file.ino()) && !s.untold {
            s.quiet.insert(token.to_owned());
            self.ledger.require(token);
        }
        Ok(format!("writes {token} at {last} of {name}, and leaves its time"))
    }

    /// Something happens to a file.
    fn moves_ctime(&self, s: &mut State, file: Ino) {
        let content = self.machine.files().into_iter().find(|(ino, _)| *ino == file);
        for token in content.iter().flat_map(|(_, content)| tokens(content)) {
            s.read.remove(&token);
            s.moved.insert(token);
        }
    }

    fn append(&self, sys: &SimSys, file: &SimFd, token: &str) -> Sysult<()> {
        let size = sys.stat(file)?.size;
        sys.write(file, size, token.as_bytes()).map(drop)
    }
}

/// What a power cut has left in files that show nothing of it: their length and all their times are those of what was durable.
fn untold(durable: &Fs, left: &Fs) -> Tokens {
    let shown = |n: &Inode| (n.generation, n.kind, n.data.len(), n.mtime, n.ctime);
    let alike = left.nodes.iter().filter_map(|(ino, n)| Some((durable.get(*ino)?, n)));
    let changed = alike.filter(|(old, new)| shown(old) == shown(new) && old.data != new.data);
    changed.flat_map(|(old, new)| &tokens(&new.data) - &tokens(&old.data)).collect()
}

impl Meddler for Outsider {
    fn meddle(&self) {
        let acts = self.state.lock().rng.random_ratio(1, 60);
        if acts {
            self.act();
        }
    }

    fn told(&self, path: &HomePath) {
        let path = path.to_string();
        let mut below = FOLDERS.iter().filter_map(|folder| path.strip_prefix(&format!("{TOP}/{folder}")));
        let Some(below) = below.find(|p| p.is_empty() || p.starts_with('/')) else {
            return;
        };
        let folder = path.strip_suffix(below).unwrap_or(&path);
        let names = match below.strip_prefix('/') {
            Some(name) => vec![name.to_owned()],
            None => self.machine.names(&path),
        };
        for name in names {
            if let Some((file, content)) = self.machine.file(&format!("{folder}/{name}")) {
                self.ledger.told(&name, file, tokens(&content));
            }
        }
    }

    fn removes(&self, dir: &HomePath, begins: bool) {
        if FOLDERS.iter().any(|folder| dir.to_string() == format!("{TOP}/{folder}")) {
            self.ledger.removal();
            self.ledger.removing(begins);
        }
    }

    fn read(&self, bytes: &[u8]) {
        let state = &mut *self.state.lock();
        if state.evicted.is_some() {
            state.read.extend(tokens(bytes));
            state.moved.retain(|t| !state.read.contains(t));
        }
    }

    fn doubts(&self, begins: bool) {
        let state = &mut *self.state.lock();
        state.untold = begins;
        self.ledger.excuse(std::mem::take(&mut state.quiet));
    }

    fn power_failed(&self, before: &Fs, durable: &Fs) {
        let left = self.machine.image();
        let gone: Tokens = tokens_in(before, false).difference(&tokens_in(&left, false)).cloned().collect();
        // What it had not synced is its own to lose; also where it was left without the time at which it was written.
        let lost = gone.into_iter().chain(untold(durable, &left));
        self.ledger.excuse(lost.filter(|t| t.starts_with('X')));
        let state = &mut *self.state.lock();
        (state.sys, state.open) = (process(&self.machine), None);
    }
}
