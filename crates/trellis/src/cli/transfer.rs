//! What `cp` and `mv` share: where things go, the note that makes them go on, and the end by a signal.

use super::reach::{End, Reach, below};
use super::{Done, Failure, complain, named};
use crate::tree::copy::note::Note;
use crate::tree::copy::progress::Progress;
use crate::tree::copy::{Copy, Goal, Manner, Shared, Trouble};
use crate::tree::{Node, Tree, bare, follow, look, split, trace, wants_directory};
use home::{Error, ErrorKind};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// What is copied or moved, and where to.
pub(super) struct Plan {
    /// The sources as they were typed, and what they mean.
    pub(super) sources: Vec<(Vec<u8>, End)>,
    to: End,
    /// The target as it was typed.
    typed: Vec<u8>,
    /// The directory that things go into.
    pub(super) dir: Node,
    /// The new name there; `None`: each source keeps its own.
    name: Option<Vec<u8>>,
    /// Whether something has the new name.
    taken: bool,
    /// What becomes of a link that has the new name.
    links: Links,
    /// Names given in this run: a second source would overwrite the first.
    given: HashSet<Vec<u8>>,
}

/// What becomes of a link at the target that leads to no directory to go into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// What it leads to is replaced (cp(1)).
    Followed,
    /// The link itself is (mv(1)).
    Replaced,
}

impl Plan {
    /// Finds out what the arguments mean. `exact`: a directory at the target is not gone into.
    pub(super) async fn new(
        reach: &mut Reach,
        paths: &[OsString],
        exact: bool,
        links: Links,
    ) -> Result<Plan, Failure> {
        let mut ends = Vec::new();
        for path in paths {
            ends.push((path.as_bytes().to_vec(), reach.end(path).await?));
        }
        let Some((typed, to)) = ends.pop() else { return Err(Failure::Usage("say where to".into())) };
        if exact && ends.len() > 1 {
            return Err(Failure::Usage("with -T there is one source".into()));
        }
        let mut tree = reach.open(&to).await?;
        let found = destination(&mut *tree, to.path(), ends.len(), exact, links).await;
        let (dir, name, taken) = match found {
            Ok(found) => found,
            Err(e) => {
                let Failure::Failed(Some(text)) = named(&typed, &e) else { return Err(e.into()) };
                let hint = reach.taken_for_local(&to).await.map(|hint| format!("{text}\n{hint}"));
                return Err(hint.unwrap_or(text).into());
            }
        };
        Ok(Plan { sources: ends, to, typed, dir, name, taken, links, given: HashSet::new() })
    }

    /// How the command has ended; where it failed, it is also said which arguments may mean something else.
    pub(super) async fn doubt(&self, reach: &mut Reach, done: Done) -> Done {
        if matches!(done, Err(Failure::Failed(_))) {
            for (_, end) in &self.sources {
                reach.taken_for_local(end).await.iter().for_each(|hint| complain(hint));
            }
        }
        done
    }

    /// The note of this command. Where an earlier run of one that makes directories had made the target, it is the target
    /// again, and not a directory to go into.
    pub(super) async fn note(
        &mut self,
        verb: &str,
        directories: bool,
        reach: &mut Reach,
    ) -> Result<Note, Failure> {
        let absolute = |end: &End| match end {
            End::Local(path) => {
                let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
                std::path::absolute(path).map(|p| p.into_os_string().as_bytes().to_vec()).unwrap_or_default()
            }
            End::Tree(path) => [b"tree:", &path[..]].concat(),
        };
        let ends = self.sources.iter().map(|(_, end)| end).chain([&self.to]);
        let words: Vec<Vec<u8>> = std::iter::once(verb.into()).chain(ends.map(absolute)).collect();
        let note = Note::open(&words, directories && self.name.is_some() && !self.taken);
        if note.new_target() && self.name.is_none() && self.sources.len() == 1 {
            let mut tree = reach.open(&self.to).await?;
            let again = destination(&mut *tree, self.to.path(), 1, true, self.links).await;
            (self.dir, self.name, self.taken) = again.map_err(|e| named(&self.typed, &e))?;
        }
        Ok(note)
    }

    /// A copy from the trees of the sources to that of the target; answers which tree each source is in.
    pub(super) async fn copy(
        &self,
        reach: &mut Reach,
        shared: &Arc<Shared>,
    ) -> Result<(Copy, Vec<usize>), Failure> {
        let mut trees: Vec<Box<dyn Tree>> = Vec::new();
        let mut kinds = Vec::new();
        let mut which = Vec::new();
        for (_, end) in &self.sources {
            let at = match kinds.iter().position(|k| *k == end.is_local()) {
                Some(at) => at,
                None => {
                    kinds.push(end.is_local());
                    trees.push(reach.open(end).await?);
                    trees.len() - 1
                }
            };
            which.push(at);
        }
        let to = reach.open(&self.to).await?;
        Ok((Copy::new(trees, to, Arc::clone(shared)), which))
    }

    /// Whether source and target are ends of one tree.
    pub(super) fn is_within(&self, source: usize) -> bool {
        self.sources[source].1.is_local() == self.to.is_local()
    }

    /// Where a source goes.
    pub(super) async fn goal(
        &mut self,
        target: &mut dyn Tree,
        source: usize,
        node: &Node,
    ) -> Result<Place, Trouble> {
        let (typed, end) = &self.sources[source];
        if self.typed.ends_with(b"/") && self.name.is_some() && !node.attr.is_dir() {
            let text =
                "there is no such directory: make it first, or leave out the slash for a file of that name";
            return Err(Trouble::at(&self.typed, Error::new(ErrorKind::NotDir, text)));
        }
        let last = typed.rsplit(|b| *b == b'/').find(|p| !p.is_empty()).unwrap_or_default();
        let own = match last {
            // What is in the directory goes into the target; so it is with `host:` and `host:.` in scp(1).
            b"." => Vec::new(),
            _ if !end.is_local() && bare(end.path()).ends_with(b":.") => Vec::new(),
            b".." => {
                let text = "has no name of its own: say the new name with -T";
                return Err(Error::new(ErrorKind::Invalid, text).into());
            }
            _ => split(end.path()).1,
        };
        let (dir, name, path) = match &self.name {
            Some(name) => (self.dir.clone(), name.clone(), self.typed.clone()),
            None if own.is_empty() => {
                let found = trace(target, self.to.path()).await;
                let (dir, name, _) = found.map_err(|e| Trouble::at(&self.typed, e))?;
                (dir, name, self.typed.clone())
            }
            None => (self.dir.clone(), own.clone(), below(&self.typed, &own)),
        };
        if self.name.is_none() && !self.given.insert(name.clone()) && !node.attr.is_dir() {
            let text = "an object of that name was put there just now: it is not overwritten";
            return Err(Error::new(ErrorKind::Exists, text).into());
        }
        Ok(Place { dir, name, path, there: None })
    }

    /// Where a file goes whose name is that of a link: to what the link leads to, which must exist (cp(1)).
    pub(super) async fn over_links(&self, target: &mut dyn Tree, place: Place) -> Result<Place, Trouble> {
        match target.lookup(&place.dir, &place.name).await {
            Ok(there) if there.attr.is_symlink() => {}
            _ => return Ok(place),
        }
        let path = match self.name {
            Some(_) => self.to.path().to_vec(),
            None => below(self.to.path(), &place.name),
        };
        match trace(target, &path).await {
            Ok((dir, name, node)) => {
                let there = Some(node).filter(|node| !node.attr.is_file() && !node.attr.is_dir());
                Ok(Place { dir, name, there, ..place })
            }
            Err(e) if e.kind == ErrorKind::NotFound => {
                let text = "is a link that leads nowhere: remove it first";
                Err(Trouble::at(&place.path, Error::new(ErrorKind::Exists, text)))
            }
            Err(e) => Err(Trouble::at(&place.path, e)),
        }
    }
}

/// Where a source goes.
pub(super) struct Place {
    /// The directory.
    pub(super) dir: Node,
    /// The name there.
    pub(super) name: Vec<u8>,
    /// Its path for a person.
    pub(super) path: Vec<u8>,
    /// What a link of that name leads to and is written to as it is: a pipe or a terminal.
    there: Option<Node>,
}

impl Place {
    pub(super) fn goal(&self) -> Goal<'_> {
        Goal { dir: &self.dir, name: &self.name, path: &self.path, there: self.there.as_ref() }
    }
}

/// The directory that things go into, the new name there (`None`: each source keeps its own), and whether something has
/// that name.
async fn destination(
    tree: &mut dyn Tree,
    path: &[u8],
    sources: usize,
    exact: bool,
    links: Links,
) -> home::Result<(Node, Option<Vec<u8>>, bool)> {
    let taken = match follow(tree, path).await {
        Ok(node) if node.attr.is_dir() && !exact => return Ok((node, None, true)),
        Ok(_) if sources > 1 => return Err(ErrorKind::NotDir.into()),
        Ok(_) => {
            let by_itself = links == Links::Replaced && !wants_directory(path);
            if !by_itself || !look(tree, path).await?.attr.is_symlink() {
                let (dir, name, _) = trace(tree, path).await?;
                return Ok((dir, Some(name), true));
            }
            true
        }
        Err(e) if e.kind == ErrorKind::NotFound && sources == 1 => false,
        Err(e) => return Err(e),
    };
    let (dir, name) = split(path);
    if name.is_empty() {
        return Err(ErrorKind::NotFound.into());
    }
    let dir = follow(tree, &dir).await?;
    match dir.attr.is_dir() {
        true => Ok((dir, Some(name), taken)),
        false => Err(ErrorKind::NotDir.into()),
    }
}

/// What the tasks of a copy share.
pub(super) fn shared(manner: Manner, note: Option<Note>, progress: bool) -> Arc<Shared> {
    Shared::new(manner, note, Progress::new(progress))
}

/// Runs to the end, or to an interrupt from the keyboard, which leaves what can be gone on with.
pub(super) async fn interruptible(work: impl Future<Output = Done>, shared: &Shared) -> Done {
    tokio::select! {
        done = work => done,
        _ = tokio::signal::ctrl_c() => {
            shared.progress().clear();
            let sum = shared.progress().sum();
            Err(Failure::Interrupted(format!("interrupted; {sum} are there: run the same command again to go on")))
        }
    }
}
