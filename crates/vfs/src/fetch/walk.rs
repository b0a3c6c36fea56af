//! Listing whole parts of a tree in one question, for somebody who walks through it.
//!
//! A walk begins with directories that are known by name alone, and goes on at the home into those below them. What it
//! brings is taken in directory by directory, as if each had been asked for when the walk was. The home tells of changes in
//! them by their identities, because it does not know our numbers for them.

use super::{Want, are_names_alone, has_moved, is_out_of_reach};
use crate::config::WalkStatus;
use crate::inode::{Inode, ROOT_ID, Slot, Tree};
use crate::limits;
use crate::meta::Asked;
use crate::volume::Volume;
use hashbrown::{HashMap, HashSet};
use home::limits::agent::WALK_FROM;
use home::{Attr, HomeId, HomePath, Kind, Loc, Mark, Name, Page, Result, Time, Walked, Watched};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Walks under way.
#[derive(Default)]
pub struct Walks(Mutex<UnderWay>);

#[derive(Default)]
struct UnderWay {
    count: usize,
    /// One of them is below a new directory.
    below: bool,
    /// Directories of which something was told meanwhile and nothing was known: a walk may have listed them before that.
    told: HashSet<HomeId>,
    /// When somebody last went through a tree.
    crawled: Option<Duration>,
    /// When somebody last began to read a small file.
    read: Option<Duration>,
    guesses: Guesses,
    status: WalkStatus,
}

/// How much of what is asked for ahead of somebody who goes through a tree is of use.
#[derive(Default)]
struct Guesses {
    /// When he last came to a directory.
    at: Option<Duration>,
    /// Directories that were asked for since this was last judged, and those of them that he has come to.
    asked: usize,
    used: usize,
    /// How often in a row hardly any was of use, and to how many others he is to come before it is tried again.
    failures: u32,
    pause: u32,
}

impl Guesses {
    fn is_of_use(&self) -> bool {
        self.used * limits::GUESSES_USED >= self.asked
    }

    /// He comes to a directory that nobody asked for.
    fn judge(&mut self) {
        match self.is_of_use() {
            true => self.pause = self.pause.saturating_sub(1),
            false => {
                self.failures = (self.failures + 1).min(limits::GUESS_FAILURES);
                self.pause = (1 << self.failures) - 1;
            }
        }
        (self.asked, self.used) = (0, 0);
    }
}

/// What was known of a directory when somebody came to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// It was asked for ahead of him.
    Foreseen,
    /// Its listing was there.
    Known,
    /// The home has to be asked now.
    Unforeseen,
}

/// A walk is under way as long as this lives.
struct Walking<'a>(&'a Walks);

impl Walks {
    fn begin(&self) -> Walking<'_> {
        self.0.lock().count += 1;
        Walking(self)
    }

    /// Whether nothing is walked through and nobody goes through a tree. Then a walk below a new directory is under way until
    /// [`Walks::ends_below`].
    fn begins_below(&self, now: Duration) -> bool {
        let mut walks = self.0.lock();
        let crawls = walks.crawled.is_some_and(|at| now < at + limits::CRAWL_OVER);
        let begins = walks.count == 0 && !crawls;
        begins && !std::mem::replace(&mut walks.below, true)
    }

    fn ends_below(&self) {
        self.0.lock().below = false;
    }

    /// How many are under way.
    pub fn count(&self) -> usize {
        self.0.lock().count
    }

    /// What has come of them.
    pub fn status(&self) -> WalkStatus {
        self.0.lock().status
    }

    fn note(&self, what: impl FnOnce(&mut WalkStatus)) {
        what(&mut self.0.lock().status);
    }

    /// Somebody goes through a tree.
    fn crawls(&self, now: Duration) {
        let mut walks = self.0.lock();
        let goes_on = walks.crawled.replace(now).is_some_and(|at| now < at + limits::CRAWL_OVER);
        walks.status.crawls += u64::from(!goes_on);
    }

    /// Somebody begins to read a small file; whether nobody had for a while.
    pub fn reads(&self, now: Duration) -> bool {
        let before = self.0.lock().read.replace(now);
        before.is_none_or(|at| now >= at + limits::CRAWL_OVER)
    }

    /// Somebody comes to a directory; answers how often in a row hardly any was of use that was asked for ahead of him, or `None`
    /// where none is to be asked for now.
    pub fn comes_to(&self, met: Met, now: Duration) -> Option<u32> {
        let walks = &mut *self.0.lock();
        // Several may go through the tree at once: what is on its way none of them can have used.
        let is_quiet = walks.count == 0;
        let guesses = &mut walks.guesses;
        if guesses.at.replace(now).is_none_or(|at| now >= at + limits::CRAWL_OVER) {
            *guesses = Guesses { at: Some(now), ..Guesses::default() };
        }
        match met {
            Met::Foreseen => {
                guesses.used += 1;
                if guesses.asked > 0 && guesses.is_of_use() {
                    (guesses.failures, guesses.pause) = (0, 0);
                }
            }
            Met::Unforeseen if is_quiet => guesses.judge(),
            Met::Known | Met::Unforeseen => {}
        }
        (guesses.pause == 0).then_some(guesses.failures)
    }

    /// These were asked for ahead of somebody.
    pub fn guesses(&self, tree: &mut Tree, dirs: &[u64]) {
        for dir in dirs {
            tree.names_mut(*dir).into_iter().for_each(|node| node.ahead = true);
        }
        self.0.lock().guesses.asked += dirs.len();
    }

    /// Somebody looks at the names of a directory.
    pub fn uses(&self, tree: &mut Tree, dir: u64) {
        let node = tree.get(dir).ok().and_then(|inode| inode.dir.as_deref_mut());
        if node.is_some_and(|node| std::mem::take(&mut node.unused)) {
            self.note(|status| status.used += 1);
        }
    }

    /// Something is told of a directory that is not known.
    fn hear(&self, dir: HomeId) {
        let mut walks = self.0.lock();
        if walks.count > 0 && walks.told.len() <= limits::WALKS_TOLD {
            walks.told.insert(dir);
        }
    }

    /// Whether what a walk says of a directory may be older than what was told of it.
    fn has_told(&self, dir: &HomeId) -> bool {
        let walks = self.0.lock();
        walks.told.len() > limits::WALKS_TOLD || walks.told.contains(dir)
    }
}

impl Drop for Walking<'_> {
    fn drop(&mut self) {
        let mut walks = self.0.0.lock();
        walks.count -= 1;
        if walks.count == 0 {
            walks.told.clear();
        }
    }
}

impl Volume {
    /// Whether the home can be asked for much of a tree in one question, and what it answers is of use.
    pub fn may_walk(&self) -> bool {
        !self.plain() && !self.is_silent() && self.home.walks() && self.connects()
    }

    /// Lists directories that nobody waits for yet, and what is below them; whoever wants one of them waits for the same answer.
    /// Answers which of them are asked for now.
    pub fn walk_ahead(self: &Arc<Self>, mut dirs: Vec<u64>) -> Vec<u64> {
        let window = dirs.len();
        if window > 0 {
            self.walks.crawls(self.env.clock.instant());
        }
        {
            let flights = self.flights.0.lock();
            dirs.retain(|dir| !flights.contains_key(&Want::List(*dir, super::Extent::Small)));
        }
        // Many in one question, not one for each step of the walker.
        if self.walks.count() > 0 && dirs.len() * 4 < window {
            return Vec::new();
        }
        let free = limits::WALKS_AT_ONCE.saturating_sub(self.walks.count());
        dirs.truncate(free * WALK_FROM);
        for some in dirs.chunks(WALK_FROM) {
            self.walk_together(some.to_vec(), (some.len() * limits::WALK_BYTES_EACH) as u32);
        }
        dirs
    }

    /// The same for a directory to which somebody has come down a path: he may go on.
    pub fn walk_down(self: &Arc<Self>, dir: u64) {
        if self.walks.count() < limits::WALKS_AT_ONCE {
            self.walk_together(vec![dir], limits::DOWN_BYTES);
        }
    }

    /// Lists what is below a directory whose own listing somebody waits for, behind all that anybody waits for. Something below
    /// may be on a server that is down, so nobody waits for this answer, and there is one such question at a time.
    pub fn walk_below(self: &Arc<Self>, dir: u64) {
        if !self.walks.begins_below(self.env.clock.instant()) {
            return;
        }
        let (volume, from) = (self.clone(), [dir]);
        tokio::spawn(async move {
            let walk = volume.walk(&from, limits::DOWN_BYTES, true);
            // Who looks there asks for himself.
            let _ = tokio::time::timeout(limits::REVALIDATE_WAIT, walk).await;
            volume.walks.ends_below();
        });
    }

    fn walk_together(self: &Arc<Self>, dirs: Vec<u64>, bytes: u32) {
        self.together(dirs, move |volume, dirs| async move {
            match volume.walk(&dirs, bytes, false).await {
                Err(e) if is_out_of_reach(&e) => Err(e),
                // Who waits asks for himself.
                _ => Ok(()),
            }
        });
    }

    /// Lists the directories on a path from the root in one question, for somebody who is going to follow it where nothing is
    /// known yet: one after the other each of them would wait for the answer to the one before.
    pub async fn walk_along(self: Arc<Self>, path: HomePath) -> Result<()> {
        let is_known = self.tree.lock().names(ROOT_ID)?.complete;
        if is_known || path.is_root() || !self.may_walk() {
            return Ok(());
        }
        let mut way = vec![HomePath::root()];
        for name in path.names().take(WALK_FROM - 1) {
            way.extend(way.last().map(|above| above.join(&name)));
        }
        // What is below its end is of more use than what is beside it.
        let from = way.into_iter().rev().map(|path| Loc { path, id: None }).collect();
        let _walking = self.walks.begin();
        let asked = self.asked(&self.tree.lock());
        let mut walked = self.ask_walk(from, limits::DOWN_BYTES, false).await?;
        // The root is known by itself, each of the others by what is above it.
        self.ensure_attr(ROOT_ID, self.need(ROOT_ID)).await?;
        walked.dirs.sort_by_key(|(path, _)| path.names().count());
        walked.dirs.into_iter().try_for_each(|(path, watched)| self.take_walked(&path, watched, asked))
    }

    /// Lists these directories, at most [`WALK_FROM`], and what is below them, as far as about so many bytes go.
    pub async fn walk(self: &Arc<Self>, dirs: &[u64], bytes: u32, later: bool) -> Result<()> {
        if !self.connects() {
            return Err(self.offline());
        }
        self.greeted().await?;
        let _walking = self.walks.begin();
        let (asked, from) = {
            let mut tree = self.tree.lock();
            (self.asked(&tree), self.beginnings(&mut tree, dirs))
        };
        if from.is_empty() {
            return Ok(());
        }
        let at = from.iter().map(|(_, at)| at.clone()).collect();
        let Walked { came, dirs } = self.ask_walk(at, bytes, later).await?;
        let came = from.iter().take(came as usize);
        let left_out = came.filter(|(_, at)| dirs.iter().all(|(path, _)| *path != at.path));
        let left_out: Vec<u64> = left_out.map(|(dir, _)| *dir).collect();
        for (path, watched) in dirs {
            self.take_walked(&path, watched, asked)?;
        }
        let mut tree = self.tree.lock();
        for dir in left_out {
            // It is not asked for ahead again before somebody has listed it.
            if let Ok(node) = tree.names_mut(dir) {
                node.big |= !node.complete;
            }
        }
        Ok(())
    }

    async fn ask_walk(&self, from: Vec<Loc>, bytes: u32, later: bool) -> Result<Walked> {
        self.walks.note(|status| status.asked += 1);
        let begins = from.len();
        let walked = self.home.walk(from, bytes, later).await?;
        self.walks.note(|status| {
            let names = walked.dirs.iter().map(|(_, watched)| watched.page.entries.len() as u64);
            (status.directories, status.names) =
                (status.directories + walked.dirs.len() as u64, status.names + names.sum::<u64>());
        });
        tracing::debug!(from = begins, came = walked.came, listed = walked.dirs.len(), "a walk");
        self.heard();
        Ok(walked)
    }

    /// Where a walk through these directories begins. Where each answer is asked for anew, what comes before it is of no use.
    fn beginnings(&self, tree: &mut Tree, dirs: &[u64]) -> Vec<(u64, Loc)> {
        let dirs = dirs.iter().filter(|_| !self.plain());
        dirs.filter_map(|dir| Some((*dir, Self::loc(tree, *dir).ok()?))).collect()
    }

    /// Takes in the listing of a directory that the home had at `path`, if it is known by now to be there.
    fn take_walked(&self, path: &HomePath, mut watched: Watched, asked: Asked) -> Result<()> {
        let id = watched.page.dir.id;
        let mut tree = self.tree.lock();
        let Some(dir) = tree.find_home(&id) else { return Ok(()) };
        let is_of_use = tree.get(dir)?.kind == Kind::Dir && !are_names_alone(&watched.page);
        if !is_of_use || self.walks.has_told(&id) || has_moved(&mut tree, dir, path) {
            return Ok(());
        }
        let node = tree.names(dir)?;
        if node.complete && node.listed_at > asked.at {
            return Ok(());
        }
        if !self.wants_told(&mut tree, dir) || has_younger(&tree, dir, asked.at, &watched.page) {
            watched.epoch = None;
        }
        self.lay_listing(&mut tree, dir, watched, asked)?;
        tree.names_mut(dir)?.unused = true;
        Ok(())
    }

    /// Which directory the home tells of, if it is known.
    pub(super) fn told_of(&self, tree: &mut Tree, mark: Mark) -> Option<u64> {
        let found = match mark {
            Mark::Given(id) => Some(id),
            Mark::Walked(home_id) => tree.find_home(&home_id),
        };
        let found = found.filter(|id| tree.peek(*id).is_some());
        if let (None, Mark::Walked(home_id)) = (found, mark) {
            self.walks.hear(home_id);
        }
        found
    }
}

/// Whether anything of a directory is known from after a question at `at`, and not as the answer has it. The home may have come
/// to it, and begun to tell of it, long after that, so that what changed in between is not told; what is the same has not
/// changed.
fn has_younger(tree: &Tree, dir: u64, at: Duration, page: &Page) -> bool {
    let but_atime = |attr: Attr| Attr { atime: Time::default(), ..attr };
    let is_other = |inode: &Inode, theirs: Option<Attr>| {
        inode.at > at && (inode.pending > 0 || inode.attr.map(but_atime) != theirs.map(but_atime))
    };
    let Some(inode) = tree.peek(dir) else { return false };
    let younger = inode.dir.iter().flat_map(|node| node.after(0)).filter_map(|(_, name, slot)| {
        let child = slot.child.and_then(|id| tree.peek(id));
        (slot.at > at || child.is_some_and(|child| child.at > at)).then_some((name, slot, child))
    });
    let mut younger = younger.peekable();
    let is_another = is_other(inode, Some(page.dir));
    if is_another || younger.peek().is_none() {
        return is_another;
    }
    let entries: HashMap<&Name, Option<Attr>> = page.entries.iter().map(|e| (&e.name, e.attr)).collect();
    let is_other_name = |(name, slot, child): (&Name, &Slot, Option<&Inode>)| {
        let theirs = entries.get(name).copied().flatten();
        let is_moved = slot.at > at && child.map(|child| child.home_id) != theirs.map(|attr| attr.id);
        is_moved || child.is_some_and(|child| is_other(child, theirs))
    };
    younger.any(is_other_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::tests::attr;
    use crate::meta::{merge_name, observe};
    use crate::store::MemStore;
    use home::Entry;

    /// Else an edit between the younger look and the moment in which the home began to watch would go unseen.
    #[test]
    fn what_is_known_from_after_a_walk_began_is_younger_than_it_unless_it_is_the_same() {
        let mut tree = Tree::open(1, Arc::new(MemStore::new())).unwrap();
        let at = Duration::from_secs;
        let asked = |seconds| Asked { at: at(seconds), tick: 1, applied: 0, heard: home::Time::default() };
        let name = Name::new(b"f").unwrap();
        let (root, file) = (attr(Kind::Dir, 2), attr(Kind::File, 3));
        let page = |dir: Attr, file: Option<Attr>| {
            let entry = |attr| Entry { name: name.clone(), attr: Some(attr), target: None, bare: false };
            Page { applied: 0, dir, entries: file.into_iter().map(entry).collect(), more: false }
        };
        let same = page(root, Some(file));
        observe(&mut tree, ROOT_ID, &root, asked(1)).unwrap();
        let (id, _) = merge_name(&mut tree, ROOT_ID, &name, Some(&file), asked(1)).unwrap().unwrap();
        let later = Time { sec: file.ctime.sec + 1, ..file.ctime };
        let (changed, gone) = (page(root, Some(Attr { ctime: later, ..file })), page(root, None));
        let another = page(root, Some(attr(Kind::File, 4)));
        for other in [&changed, &gone, &another] {
            assert!(has_younger(&tree, ROOT_ID, at(0), other) && !has_younger(&tree, ROOT_ID, at(1), other));
            assert!(!has_younger(&tree, ROOT_ID, at(0), &same));
        }
        tree.get(id).unwrap().at = at(5);
        assert!(has_younger(&tree, ROOT_ID, at(4), &changed), "a file that was looked at by its handle");
        assert!(!has_younger(&tree, ROOT_ID, at(4), &same));
        tree.get(id).unwrap().pending = 1;
        assert!(has_younger(&tree, ROOT_ID, at(4), &same), "what is unsent");
        (tree.get(id).unwrap().at, tree.get(id).unwrap().pending) = (at(1), 0);
        tree.get(ROOT_ID).unwrap().at = at(5);
        let touched = page(Attr { mtime: later, ..root }, Some(file));
        assert!(has_younger(&tree, ROOT_ID, at(4), &touched), "the directory itself");
        assert!(!has_younger(&tree, ROOT_ID, at(4), &same));
    }
}
