//! Another program at the home, act by act, and the book of what it wrote.

use super::tree::{Path, known, parent};
use crate::ledger::{Tokens, tokens_in};
use crate::machine::fs::Fs;
use crate::machine::{Around, Call, Fate, Machine, SimFd, SimSys};
use home::posix::sys::{FileType, Mode, Rename, Sys, Sysult};
use rustix::io::Errno;
use std::fmt;
use std::sync::Arc;

/// The folder of the model as a path of the machine.
pub const AT: &str = "/home/ann/t";

/// What it may do in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// Writes a token over the first one; the length stays.
    Write(Path),
    /// Adds a token.
    Append(Path),
    /// Puts a new file in the place of one.
    Replace(Path),
    /// Removes a name.
    Remove(Path),
    /// Makes a file with a token.
    Create(Path),
    /// Gives what has the name the name `z`.
    Away(Path),
    /// Opens a file for writing. At the end, at the latest, it adds a token.
    Hold(Path),
    /// Adds a token to the file that it holds.
    Use,
}

impl Act {
    /// Its verb and its path.
    pub fn parts(self) -> (&'static str, Path) {
        match self {
            Act::Write(p) => ("write", p),
            Act::Append(p) => ("append", p),
            Act::Replace(p) => ("replace", p),
            Act::Remove(p) => ("remove", p),
            Act::Create(p) => ("create", p),
            Act::Away(p) => ("away", p),
            Act::Hold(p) => ("hold", p),
            Act::Use => ("use", ""),
        }
    }

    /// The same from words.
    pub fn parse(verb: &str, path: Option<&str>) -> Option<Act> {
        let path = || path.and_then(known);
        Some(match verb {
            "write" => Act::Write(path()?),
            "append" => Act::Append(path()?),
            "replace" => Act::Replace(path()?),
            "remove" => Act::Remove(path()?),
            "create" => Act::Create(path()?),
            "away" => Act::Away(path()?),
            "hold" => Act::Hold(path()?),
            "use" => Act::Use,
            _ => return None,
        })
    }

    /// Whether it takes this name away from what has it.
    pub fn takes(self, path: &str) -> bool {
        matches!(self, Act::Replace(p) | Act::Remove(p) if p == path)
    }

    /// All that it may do to names.
    pub fn all(names: impl IntoIterator<Item = Path>) -> Vec<Act> {
        let file = [Act::Write, Act::Append, Act::Replace, Act::Remove, Act::Create, Act::Away, Act::Hold];
        let mut all = vec![Act::Use];
        for name in names {
            match name {
                "d" | "e" | "m" => all.push(Act::Away(name)),
                name => all.extend(file.map(|act| act(name))),
            }
        }
        all
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, path) = self.parts();
        write!(f, "outside {verb} {path}")
    }
}

/// Nothing happens around its calls.
pub struct Undisturbed;

impl Around for Undisturbed {
    fn before(&self, _: Call) -> Fate {
        Fate::Goes
    }

    fn is_impatient(&self) -> bool {
        true
    }
}

/// A process that nobody disturbs.
pub fn process(machine: &Arc<Machine>) -> SimSys {
    SimSys::new(machine.clone(), machine.process(Arc::new(Undisturbed)))
}

/// The program.
#[derive(Default)]
pub struct Outside {
    held: Option<(SimSys, SimFd)>,
    next: u32,
    removed: bool,
    /// What it did.
    pub acts: Vec<Act>,
    /// What it wrote, and must be there.
    pub required: Tokens,
    /// What it destroyed, or lost to a power cut before it was synced.
    pub excused: Tokens,
}

impl Outside {
    /// Whether it could do this now, as far as names and open files say.
    pub fn may(&self, machine: &Machine, act: Act) -> bool {
        let kind = |path: &str| machine.kind(&format!("{AT}/{path}"));
        let (_, path) = act.parts();
        match act {
            Act::Use => self.held.is_some(),
            Act::Create(_) => kind(path).is_none() && kind(parent(path)) == Some(FileType::Dir),
            Act::Away(_) => kind(path).is_some() && kind("z").is_none(),
            Act::Remove(_) => kind(path).is_some_and(|kind| kind != FileType::Dir),
            Act::Hold(_) if self.held.is_some() => false,
            Act::Write(_) | Act::Append(_) | Act::Replace(_) | Act::Hold(_) => {
                kind(path) == Some(FileType::File)
            }
        }
    }

    /// Does something. `removes`: the gateway removes what others may have open.
    pub fn act(&mut self, machine: &Arc<Machine>, act: Act, removes: bool) -> Sysult<()> {
        let before = tokens_in(&machine.image(), true);
        self.next += 1;
        let token = format!("X{:06};", self.next);
        let wrote = self.try_act(machine, act, &token)?;
        let after = tokens_in(&machine.image(), true);
        self.excused.extend(before.difference(&after).cloned());
        if wrote && (after.contains(&token) || !(removes || self.removed)) {
            self.required.insert(token);
        }
        self.acts.push(act);
        Ok(())
    }

    fn try_act(&mut self, machine: &Arc<Machine>, act: Act, token: &str) -> Sysult<bool> {
        let sys = process(machine);
        let (_, path) = act.parts();
        let dir = sys.open_root(format!("{AT}/{}", parent(path)).as_bytes())?;
        let name = path.rsplit('/').next().unwrap_or_default().as_bytes();
        let open = || {
            let found = sys.open_name(&dir, name)?;
            if sys.stat(&found)?.kind != FileType::File {
                return Err(Errno::INVAL);
            }
            sys.reopen(&found, Mode::Write)
        };
        match act {
            Act::Write(_) => sys.write(&open()?, 0, token.as_bytes())?,
            Act::Append(_) => sys.append(&open()?, token.as_bytes())?,
            Act::Create(_) => sys.write(&sys.create(&dir, name, 0o644)?, 0, token.as_bytes())?,
            Act::Replace(_) => {
                open()?;
                let file = sys.create(&dir, b".x", 0o644)?;
                sys.write(&file, 0, token.as_bytes())?;
                sys.rename(&dir, b".x", &dir, name, Rename::Replace)?;
                self.removed = true;
                0
            }
            Act::Remove(_) => {
                sys.unlink(&dir, name, false)?;
                self.removed = true;
                return Ok(false);
            }
            Act::Away(_) => {
                let top = sys.open_root(AT.as_bytes())?;
                sys.rename(&dir, name, &top, b"z", Rename::NoReplace)?;
                return Ok(false);
            }
            Act::Hold(_) => {
                let file = open()?;
                if self.held.is_some() {
                    return Err(Errno::BUSY);
                }
                self.held = Some((sys, file));
                return Ok(false);
            }
            Act::Use => {
                let (sys, file) = self.held.as_ref().ok_or(Errno::BADF)?;
                sys.append(file, token.as_bytes())?
            }
        };
        Ok(true)
    }

    /// Uses the file that it holds, if it has not, and closes it.
    pub fn finish(&mut self, machine: &Arc<Machine>, removes: bool) {
        if self.held.is_some() && !self.acts.contains(&Act::Use) {
            // What is in no directory any more cannot be written to after a restart.
            self.act(machine, Act::Use, removes).ok();
        }
        self.held = None;
    }

    /// The power failed. What it had not synced is its own to lose, also where it is still there: the time of that
    /// change may be lost.
    pub fn power_failed(&mut self, durable: &Fs) {
        self.held = None;
        let synced = tokens_in(durable, false);
        self.excused.extend(self.required.difference(&synced).cloned());
    }
}
