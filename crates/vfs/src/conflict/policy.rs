//! Policies of conflicts: what a person wants where both sides changed something, by folder. A policy is a value that the
//! table is asked with; no other module tells policies apart by name.

use crate::folders::Folders;
use home::{HomePath, Result};
use std::fmt;

/// What becomes of a conflict. In force for a name is the policy of the nearest folder on its path when the conflict is
/// found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// Theirs keeps the name, ours becomes a copy beside it.
    #[default]
    KeepBoth,
    /// Ours gets the name, theirs becomes a copy beside it.
    PreferLocal,
    /// The change, and all later ones in the folder, wait until a person decides.
    Stop,
    /// Ours is written over theirs, which is lost.
    LastWriter,
    /// What was added to the end of a file is added behind what the home has by now; else as `KeepBoth`.
    AppendMerge,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 5] =
        [Policy::KeepBoth, Policy::PreferLocal, Policy::Stop, Policy::LastWriter, Policy::AppendMerge];

    /// Its name in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            Policy::KeepBoth => "keep-both",
            Policy::PreferLocal => "prefer-local",
            Policy::Stop => "stop",
            Policy::LastWriter => "strict-last-writer",
            Policy::AppendMerge => "append-merge",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The policies of a home; where no folder has one it is [`Policy::KeepBoth`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policies(Folders<Policy>);

impl Policies {
    /// Those of these folders. [`home::ErrorKind::Invalid`] where a folder has two.
    pub fn new(folders: Vec<(HomePath, Policy)>) -> Result<Policies> {
        Folders::new(folders, "policies").map(Policies)
    }

    /// Folders with a policy, the deepest first.
    pub fn folders(&self) -> &[(HomePath, Policy)] {
        self.0.all()
    }

    /// The policy in force at a path, and the folder that has it.
    pub fn at(&self, path: &HomePath) -> (Policy, HomePath) {
        let nearest = self.0.nearest(path);
        nearest.map_or((Policy::default(), HomePath::root()), |(folder, policy)| (*policy, folder.clone()))
    }

    /// The folders below a path that have a policy of their own, from there.
    pub fn inside<'a>(&'a self, path: &'a HomePath) -> impl Iterator<Item = (HomePath, Policy)> + 'a {
        self.0.inside(path).map(|(rest, (_, policy))| (rest, *policy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> HomePath {
        HomePath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_nearest_folder_decides() {
        let folders = vec![(path("a"), Policy::Stop), (path("a/b"), Policy::AppendMerge)];
        let policies = Policies::new(folders.clone()).unwrap();
        let at = |text: &str| policies.at(&path(text));
        assert_eq!(at("ab/c"), (Policy::KeepBoth, HomePath::root()));
        assert_eq!((at("a"), at("a/c/d")), ((Policy::Stop, path("a")), (Policy::Stop, path("a"))));
        assert_eq!(at("a/b/c"), (Policy::AppendMerge, path("a/b")));
        let inside: Vec<_> = policies.inside(&path("a")).collect();
        assert_eq!(inside, [(path("b"), Policy::AppendMerge)]);
        let twice = [folders, vec![(path("a/"), Policy::KeepBoth)]].concat();
        assert!(Policies::new(twice).unwrap_err().detail.contains("/a has two policies"));
    }
}
