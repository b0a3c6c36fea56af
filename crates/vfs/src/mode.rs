//! Modes: what an acknowledgement promises, and how old an answer may be. A mode is a value that is asked questions; no
//! other module tells modes apart by name.
//!
//! A home has a mode as a whole, and folders below it may have others. In force for an object is the mode of the nearest
//! folder on its path at the time of the call, so that a rename takes a file from one mode to another. What is one for
//! the whole home, its journal, the order of what goes home, and whether it is connected, folders cannot choose:
//! [`Modes::new`] refuses that.

use crate::folders::Folders;
use home::{Error, ErrorKind, HomePath, Result};
use std::fmt;

/// What an acknowledgement promises. In the order of caution: of an object with names under several modes the last one
/// is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// As `Wb`; the home is not asked and gets nothing.
    Offline,
    /// As `Wb`; nobody else changes anything at the home, so that answers do not age.
    Owned,
    /// Stable means journalled and synced here; written home later.
    Wb,
    /// As `Wb`; what commits waits for the home, and what opens asks it.
    Cto,
    /// Stable means durable at the home; every answer is validated there.
    Strict,
    /// Nothing is changed.
    Ro,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 6] = [Mode::Offline, Mode::Owned, Mode::Wb, Mode::Cto, Mode::Strict, Mode::Ro];

    /// Its name in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Offline => "offline",
            Mode::Owned => "owned",
            Mode::Wb => "wb",
            Mode::Cto => "cto",
            Mode::Strict => "strict",
            Mode::Ro => "ro",
        }
    }

    /// Whether every change is refused.
    pub fn is_read_only(self) -> bool {
        self == Mode::Ro
    }

    /// Whether changes are made like a local program at the home would, and each answer is validated there.
    pub fn is_plain(self) -> bool {
        self == Mode::Strict
    }

    /// Whether what commits waits until all that was accepted before is durable at the home, and changes of names and
    /// attributes are sent without delay.
    pub fn commits_at_home(self) -> bool {
        self == Mode::Cto
    }

    /// Whether a file is validated at the home when it is opened, even if what is known of it is young.
    pub fn validates_at_open(self) -> bool {
        self == Mode::Cto
    }

    /// Whether what is known has to be asked for again after a while.
    pub fn expires(self) -> bool {
        !matches!(self, Mode::Owned | Mode::Offline)
    }

    /// Whether a change of somebody else at the home is contrary to what was promised to us.
    pub fn is_alone(self) -> bool {
        self == Mode::Owned
    }

    /// Whether the home may be asked and written to.
    pub fn connects(self) -> bool {
        self != Mode::Offline
    }

    /// Whether only a home as a whole can have it.
    pub fn is_whole(self) -> bool {
        matches!(self, Mode::Strict | Mode::Offline)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The modes of a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modes {
    whole: Mode,
    /// Folders with a mode of their own.
    below: Folders<Mode>,
}

impl Modes {
    /// The mode of the home, and those of folders of it. [`ErrorKind::Invalid`] where they do not go together.
    pub fn new(whole: Mode, below: Vec<(HomePath, Mode)>) -> Result<Modes> {
        let no = |why: String| Err(Error::new(ErrorKind::Invalid, why));
        for (path, mode) in &below {
            if mode.is_whole() {
                return no(format!(
                    "{path} cannot be {mode}: only a home as a whole can, because it has one journal"
                ));
            }
            if whole.is_plain() && !mode.is_read_only() {
                return no(format!(
                    "{path} cannot be {mode}: in a home that is {whole} a folder can be ro at most"
                ));
            }
        }
        Ok(Modes { whole, below: Folders::new(below, "modes")? })
    }

    /// The mode of the home as a whole.
    pub fn whole(&self) -> Mode {
        self.whole
    }

    /// Folders with a mode of their own.
    pub fn below(&self) -> &[(HomePath, Mode)] {
        self.below.all()
    }

    /// The mode that all objects have, if they have one.
    pub fn only(&self) -> Option<Mode> {
        self.below.all().is_empty().then_some(self.whole)
    }

    /// The mode in force at a path. A home that is left alone is so in all its folders.
    pub fn at(&self, path: &HomePath) -> Mode {
        let nearest = self.below.nearest(path).map(|(_, mode)| *mode);
        nearest.filter(|mode| self.whole.connects() || mode.is_read_only()).unwrap_or(self.whole)
    }

    /// The folders below a path that have a mode of their own, from there, with what is in force in them.
    pub fn inside<'a>(&'a self, path: &'a HomePath) -> impl Iterator<Item = (HomePath, Mode)> + 'a {
        self.below.inside(path).map(|(rest, (folder, _))| (rest, self.at(folder)))
    }

    /// Whether what is at a path is a folder whose content must not change, or leads to one: it keeps its name.
    pub fn is_fixed(&self, path: &HomePath) -> bool {
        self.below.all().iter().any(|(folder, mode)| mode.is_read_only() && path.contains(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> HomePath {
        HomePath::parse(text.as_bytes()).unwrap()
    }

    fn modes(whole: Mode, below: &[(&str, Mode)]) -> Result<Modes> {
        Modes::new(whole, below.iter().map(|(p, m)| (path(p), *m)).collect())
    }

    #[test]
    fn the_nearest_folder_decides() {
        let modes = modes(Mode::Wb, &[("a", Mode::Ro), ("a/b/c", Mode::Owned), ("a/b", Mode::Cto)]).unwrap();
        let at = |text: &str| modes.at(&path(text));
        assert_eq!([at(""), at("ab"), at("a"), at("a/x")], [Mode::Wb, Mode::Wb, Mode::Ro, Mode::Ro]);
        assert_eq!([at("a/b"), at("a/b/x/y"), at("a/b/c/d")], [Mode::Cto, Mode::Cto, Mode::Owned]);
    }

    #[test]
    fn what_leads_to_a_folder_that_must_not_change_is_fixed() {
        let modes = modes(Mode::Wb, &[("a/b/c", Mode::Ro), ("x", Mode::Owned)]).unwrap();
        for (text, fixed) in [("", true), ("a", true), ("a/b/c", true), ("a/b/c/d", false), ("x", false)] {
            assert_eq!(modes.is_fixed(&path(text)), fixed, "{text}");
        }
    }

    #[test]
    fn what_is_one_for_the_home_is_not_for_folders() {
        let why = |whole, below: &[_]| modes(whole, below).unwrap_err().detail;
        for mode in [Mode::Strict, Mode::Offline] {
            assert!(why(Mode::Wb, &[("a", mode)]).starts_with(&format!("/a cannot be {mode}")));
            assert_eq!(modes(mode, &[("a", Mode::Ro)]).unwrap().at(&path("a/b")), Mode::Ro);
        }
        assert!(why(Mode::Strict, &[("a", Mode::Wb)]).contains("ro at most"));
        assert_eq!(modes(Mode::Offline, &[("a", Mode::Cto)]).unwrap().at(&path("a")), Mode::Offline);
        assert!(why(Mode::Wb, &[("a", Mode::Ro), ("a/", Mode::Cto)]).contains("two modes"));
        assert!(Mode::ALL.iter().is_sorted());
    }
}
