//! Folders of the account's home directory in which no client changes anything (`.ssh`, `.gnupg`, `.cache/trellis`):
//! whoever writes there owns the account, or us.
//!
//! They are found by identity, not by spelling. [`Guard::learn`] follows the symbolic links that lead to a folder and
//! remembers which object each step of its path is; [`Guard::check`] then knows the folder, and the way to it, by
//! whatever path an object was reached (a bind mount, another name of a hard link). A folder that does not exist
//! yet is known by its name in the directory where it would be. Upper and lower case are the same here,
//! because they are for some homes.
//!
//! Until the home was asked, nothing may be changed: a guard that is not known guards nothing. What was learnt is
//! kept in the store, because after a restart clients go on to write to what is in the journal, also
//! while the home is out of reach.

use crate::inode::{Tree, local};
use crate::store::MetaStore;
use crate::volume::Volume;
use home::{Error, ErrorKind, Hello, HomeId, HomePath, Kind, Loc, Name, Result};
use oncrpc::xdr::Xdr;
use std::sync::Arc;

/// Symbolic links that are followed on the way to one folder, as path_resolution(7) has it.
const LINKS_MAX: usize = 40;

/// What may not be changed.
#[derive(Debug, Default, Clone)]
pub struct Guard {
    places: Vec<Place>,
    unknown: bool,
}

oncrpc::xdr! {
    /// What the store keeps of a guard.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Kept {
        /// For which folders, as they are configured.
        pub protect: Vec<HomePath>,
        /// Where they were.
        pub places: Vec<KeptPlace>,
    }

    /// What the store keeps of a way to a folder.
    #[derive(Debug, Clone, PartialEq)]
    pub struct KeptPlace {
        /// As a person knows it.
        pub shown: HomePath,
        /// Without symbolic links.
        pub path: HomePath,
        /// What stands at each step.
        pub ids: Vec<Option<HomeId>>,
    }
}

fn key(volume: u32) -> Vec<u8> {
    [&b"g"[..], &volume.to_be_bytes()].concat()
}

/// What a change does to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A directory is made where nothing was. It may lie on the way to a folder that does not exist yet.
    NewDir,
    /// Anything else.
    Other,
}

/// One way to a folder.
#[derive(Debug, Clone)]
struct Place {
    /// As a person knows it.
    shown: HomePath,
    names: Vec<Name>,
    /// What stands at the end of the first names: none, one, two, and so on. `None` where that is not known.
    ids: Vec<Option<HomeId>>,
}

impl Guard {
    /// What the store has of it, before the home is asked.
    pub fn kept(store: &dyn MetaStore, volume: u32, protect: &[HomePath]) -> Result<Guard> {
        let bytes = store.get(&key(volume)).map_err(local)?;
        let kept = bytes.and_then(|b| Kept::from_bytes(b).ok()).filter(|k| k.protect == protect);
        let unknown = kept.is_none() && !protect.is_empty();
        let places = kept.into_iter().flat_map(|k| k.places).map(|p| Place {
            shown: p.shown,
            names: p.path.names().collect(),
            ids: p.ids,
        });
        // A step without an identity is none; identities without a step would be out of bounds.
        let places = places.filter(|p| p.ids.len() == p.names.len() + 1).collect();
        Ok(Guard { places, unknown })
    }

    /// Writes it to the store.
    pub fn keep(&self, store: &dyn MetaStore, volume: u32, protect: &[HomePath]) -> Result<()> {
        let places = self.places.iter().map(|p| {
            let mut path = HomePath::root();
            p.names.iter().for_each(|n| path.push(n));
            KeptPlace { shown: p.shown.clone(), path, ids: p.ids.clone() }
        });
        let kept = Kept { protect: protect.to_vec(), places: places.collect() };
        let bytes = kept.to_bytes();
        // A full disk keeps nobody from greeting a home that is as it was.
        if store.get(&key(volume)).map_err(local)?.is_some_and(|known| known == bytes) {
            return Ok(());
        }
        store.commit(vec![(key(volume), Some(bytes.to_vec()))]).map_err(local)
    }

    /// Removes it from the store.
    pub fn forget(store: &dyn MetaStore, volume: u32) -> Result<()> {
        store.commit(vec![(key(volume), None)]).map_err(local)
    }

    /// Asks the home where the folders are. Fails where it does not answer.
    pub async fn learn(volume: &Arc<Volume>, hello: &Hello) -> Result<Guard> {
        let folders = volume.policy.options.protect.iter().map(|below| {
            let mut path = hello.home_dir.clone();
            below.names().for_each(|n| path.push(&n));
            learn_folder(volume, path)
        });
        let places = futures_util::future::try_join_all(folders).await?;
        Ok(Guard { places: places.into_iter().flatten().collect(), unknown: false })
    }

    /// Fails where a change of `name` in `dir` reaches into a protected folder, or takes away or makes up what leads
    /// there.
    pub fn check_name(&self, tree: &mut Tree, dir: u64, name: &Name, change: Change) -> Result<()> {
        self.check_known()?;
        if self.places.is_empty() {
            return Ok(());
        }
        let child = tree.names(dir)?.slot(name).and_then(|s| s.child);
        let moves = child.is_some() || change != Change::NewDir;
        let mut way = Way::to(tree, dir);
        way.step(tree, name, child);
        way.check(&self.places, moves)
    }

    /// Fails where a change of an object itself is one in a protected folder, by any of its names.
    pub fn check_object(&self, tree: &mut Tree, id: u64) -> Result<()> {
        self.check_known()?;
        if self.places.is_empty() {
            return Ok(());
        }
        let inode = tree.get(id)?;
        let links: Vec<(u64, Name)> = inode.link.iter().chain(&inode.more_links).cloned().collect();
        if links.is_empty() {
            return Way::to(tree, id).check(&self.places, false);
        }
        for (dir, name) in links {
            let mut way = Way::to(tree, dir);
            way.step(tree, &name, Some(id));
            way.check(&self.places, false)?;
        }
        Ok(())
    }

    fn check_known(&self) -> Result<()> {
        match self.unknown {
            true => {
                Err(Error::new(ErrorKind::Busy, "the home has not yet said where its protected folders are"))
            }
            false => Ok(()),
        }
    }
}

/// The way from the root of the home to an object, as far as it is known.
struct Way {
    ids: Vec<HomeId>,
    names: Vec<Name>,
}

impl Way {
    fn to(tree: &mut Tree, id: u64) -> Way {
        let mut objects = tree.ancestors(id);
        objects.reverse();
        objects.push(id);
        // Without a path there are only identities; empty names are none of any folder's.
        let path = tree.local_path(id).ok();
        let names = path.map(|p| p.names().collect()).unwrap_or_default();
        Way { ids: objects.into_iter().map(|id| home_id(tree, Some(id))).collect(), names }
    }

    fn step(&mut self, tree: &mut Tree, name: &Name, child: Option<u64>) {
        self.names.push(name.clone());
        self.ids.push(home_id(tree, child));
    }

    fn check(&self, places: &[Place], moves: bool) -> Result<()> {
        match places.iter().find(|place| self.meets(place, moves)) {
            None => Ok(()),
            Some(Place { shown, .. }) => {
                let text =
                    format!("{shown} is protected; set protect = [] for this home to allow changes there");
                Err(Error::new(ErrorKind::Access, text))
            }
        }
    }

    /// Whether the way leads into a folder, or with `moves` is a part of the way to it. Wherever an object of this
    /// way is an object of the folder's, both are compared from there on; the roots are the same.
    fn meets(&self, place: &Place, moves: bool) -> bool {
        let same = |(i, id): (usize, &HomeId)| {
            let at = place.ids.iter().position(|p| id.ino != 0 && *p == Some(*id))?;
            Some((i, at))
        };
        let starts = self.ids.iter().enumerate().filter_map(same).chain([(0, 0)]);
        starts.into_iter().any(|(here, there)| {
            let (mine, folder) = (self.names.get(here..).unwrap_or(&[]), &place.names[there..]);
            let common = mine.iter().zip(folder).take_while(|(a, b)| is_same(a, b)).count();
            common == folder.len() || moves && common == mine.len()
        })
    }
}

fn is_same(a: &Name, b: &Name) -> bool {
    a.as_bytes().eq_ignore_ascii_case(b.as_bytes())
}

fn home_id(tree: &mut Tree, id: Option<u64>) -> HomeId {
    id.and_then(|id| tree.get(id).ok()).map(|n| n.home_id).unwrap_or_default()
}

/// A folder, and wherever symbolic links lead on the way to it: neither the links nor their ends may be changed.
async fn learn_folder(volume: &Arc<Volume>, shown: HomePath) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    let mut path = shown.clone();
    for _ in 0..LINKS_MAX {
        let (place, link) = learn_place(volume, &shown, &path).await?;
        places.push(place);
        let Some((at, target)) = link else { break };
        let names: Vec<Name> = path.names().collect();
        path = follow(&names[..at], &target, &names[at + 1..]);
    }
    Ok(places)
}

/// What stands at each step of a path, and the first symbolic link: at which name, and its target.
async fn learn_place(
    volume: &Arc<Volume>,
    shown: &HomePath,
    path: &HomePath,
) -> Result<(Place, Option<(usize, bytes::Bytes)>)> {
    let mut prefixes = vec![HomePath::root()];
    let names: Vec<Name> = path.names().collect();
    for name in &names {
        let next = prefixes.last().map_or_else(HomePath::root, |p| p.join(name));
        prefixes.push(next);
    }
    let asks = prefixes.iter().map(|p| look(volume, p));
    let seen = futures_util::future::try_join_all(asks).await?;
    let link = seen.iter().position(|a| a.is_some_and(|a| a.kind == Kind::Symlink)).filter(|at| *at > 0);
    let target = match link {
        None => None,
        Some(at) => {
            let loc = Loc { path: prefixes[at].clone(), id: None };
            answered(volume.home.readlink(&loc).await)?.map(|target| (at - 1, target))
        }
    };
    // What lies behind a link was not looked at through this path.
    let ids = seen.iter().map(|a| a.map(|a| a.id).filter(|id| id.ino != 0)).collect();
    Ok((Place { shown: shown.clone(), names, ids }, target))
}

async fn look(volume: &Arc<Volume>, path: &HomePath) -> Result<Option<home::Attr>> {
    answered(volume.probe(path.clone()).await)
}

/// What the home says; a refusal is `None`, silence an error.
fn answered<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(said) => Ok(Some(said)),
        Err(e) if crate::fetch::is_out_of_reach(&e) => Err(e),
        Err(_) => Ok(None),
    }
}

/// The path that a symbolic link in `dir` leads to, with what follows it. `..` is taken as it is spelled: the folder
/// is then found by what is there.
fn follow(dir: &[Name], target: &[u8], rest: &[Name]) -> HomePath {
    let mut names = if target.starts_with(b"/") { Vec::new() } else { dir.to_vec() };
    for part in target.split(|b| *b == b'/') {
        match (part, Name::new(part)) {
            (b"..", _) => drop(names.pop()),
            (_, Ok(name)) => names.push(name),
            _ => {}
        }
    }
    let mut path = HomePath::root();
    names.iter().chain(rest).for_each(|n| path.push(n));
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<Name> {
        HomePath::parse(path.as_bytes()).unwrap().names().collect()
    }

    fn ids(numbers: &[u64]) -> Vec<HomeId> {
        numbers.iter().map(|n| HomeId { fs: 1, ino: *n, generation: 0 }).collect()
    }

    /// `/home/ann/.ssh` is object 4; nothing is at the end of `/home/ann/.gnupg`.
    fn places() -> Vec<Place> {
        let place = |path: &str, known: &[u64]| {
            let names = names(path);
            let mut ids: Vec<_> = ids(known).into_iter().map(Some).collect();
            ids.resize(names.len() + 1, None);
            Place { shown: HomePath::root(), names, ids }
        };
        vec![place("home/ann/.ssh", &[1, 2, 3, 4]), place("home/ann/.gnupg", &[1, 2, 3])]
    }

    fn refused(path: &str, numbers: &[u64], moves: bool) -> bool {
        Way { ids: ids(numbers), names: names(path) }.check(&places(), moves).is_err()
    }

    #[test]
    fn folders_are_known_by_any_path() {
        assert!(refused("home/ann/.ssh/rc", &[1, 2, 3, 4, 0], false));
        assert!(refused("srv/alias/rc", &[1, 7, 4, 0], false), "the folder itself by another path");
        assert!(refused("srv/ann/.gnupg/x", &[1, 7, 3, 0, 0], false), "made later, by another path");
        assert!(
            refused("home/ann/.GnuPG", &[1, 2, 3, 0], false),
            "a home may not tell upper from lower case"
        );
        assert!(!refused("home/ann/.sshx/rc", &[1, 2, 3, 9, 0], false));
        assert!(!refused("home/ann/work", &[1, 2, 3, 9], true));
        assert!(!refused("", &[1], false));
    }

    #[test]
    fn what_leads_to_a_folder_stays() {
        for (path, numbers) in [("home", &[1, 2][..]), ("home/ann", &[1, 2, 3]), ("srv/h/ann", &[1, 7, 2, 3])]
        {
            assert!(refused(path, numbers, true), "{path}");
            assert!(!refused(path, numbers, false), "attributes of {path} may change");
        }
    }

    #[test]
    fn until_the_home_was_asked_nothing_may_be_changed() {
        let store = crate::store::MemStore::new();
        let protect = [HomePath::parse(b".ssh").unwrap()];
        let kept = |protect: &[HomePath]| Guard::kept(&store, 7, protect).unwrap();
        assert_eq!(kept(&protect).check_known().unwrap_err().kind, ErrorKind::Busy);
        Guard { places: places(), unknown: false }.keep(&store, 7, &protect).unwrap();
        assert!(kept(&protect).check_known().is_ok() && kept(&protect).places.len() == 2);
        assert!(kept(&[]).check_known().is_ok() && kept(&[]).places.is_empty());
        let more = [protect[0].clone(), HomePath::parse(b".gnupg").unwrap()];
        assert!(kept(&more).check_known().is_err(), "it was learnt for other folders");
    }

    #[test]
    fn links_are_followed() {
        let to = |target: &[u8]| follow(&names("home/ann"), target, &names("x")).to_string();
        assert_eq!(to(b"/etc/ssh"), "/etc/ssh/x");
        assert_eq!(to(b"dot/./ssh"), "/home/ann/dot/ssh/x");
        assert_eq!(to(b"../../../dot"), "/dot/x");
    }
}
