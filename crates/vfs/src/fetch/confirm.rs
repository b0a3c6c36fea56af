//! Asking whether what is known of directories is still true, by digests, instead of listing them again.
//!
//! Each directory that is asked for anew is asked for so. Where everything that is known is from before, because the server was
//! started again or changes went untold for a while, whoever asks for one directory has those below it asked for as well:
//! in a tree that has not changed that is few round trips, and a few bytes for each directory.

use super::{Want, are_names_alone, has_moved};
use crate::freshness;
use crate::inode::Tree;
use crate::limits;
use crate::meta::{self, Asked, Content};
use crate::volume::Volume;
use futures_util::future::FutureExt;
use home::limits::agent::{CONFIRM_MAX, LIST_ENTRIES_MAX};
use home::{Belief, Believed, Entry, Error, ErrorKind, HomePath, Kind, Page, Result, Turn, Watched};
use std::collections::VecDeque;
use std::sync::Arc;

/// What is believed of a directory.
struct Known {
    dir: u64,
    believed: Believed,
    page: Page,
}

impl Volume {
    /// Makes the listing of a directory fresh without listing it; answers whether that could be done.
    pub(super) async fn confirm_listing(self: &Arc<Self>, dir: u64, later: bool) -> Result<bool> {
        if !self.home.confirms() {
            return Ok(false);
        }
        let from_before = {
            let mut tree = self.tree.lock();
            let node = tree.names(dir)?;
            node.complete && freshness::is_from_before(node, self.home.epoch())
        };
        if from_before {
            tokio::spawn(self.clone().confirm_below(dir));
        }
        Ok(self.confirm_known(vec![dir], later).await?.is_empty())
    }

    /// Asks for the directories below one that are known from before, those next to it first.
    async fn confirm_below(self: Arc<Self>, dir: u64) {
        let mut todo = VecDeque::from([dir]);
        let (mut some, mut left) = (Vec::new(), limits::CONFIRM_NAMES);
        while let Some(at) = todo.pop_front() {
            for (id, names) in self.known_below(at) {
                if names > left {
                    todo.clear();
                    break;
                }
                left -= names;
                todo.push_back(id);
                some.push(id);
                if some.len() == CONFIRM_MAX {
                    self.confirm_ahead(std::mem::take(&mut some));
                }
            }
            // Reading the store takes a while.
            tokio::task::yield_now().await;
        }
        self.confirm_ahead(some);
    }

    /// Directories in a directory that are known from before, and what each of them and its names count.
    fn known_below(&self, dir: u64) -> Vec<(u64, usize)> {
        let epoch = self.home.epoch();
        let mut tree = self.tree.lock();
        let Ok(node) = tree.names(dir) else { return Vec::new() };
        let children: Vec<u64> = node.after(0).filter_map(|(_, _, slot)| slot.child).collect();
        let mut below = Vec::new();
        for id in children {
            if tree.get(id).is_ok_and(|inode| inode.kind == Kind::Dir)
                && let Ok(node) = tree.names(id)
                && node.complete
                && freshness::is_from_before(node, epoch)
            {
                below.push((id, 1 + node.len()));
            }
        }
        below
    }

    /// Asks for directories that nobody waits for yet; whoever wants one of them waits for the same answer.
    fn confirm_ahead(self: &Arc<Self>, dirs: Vec<u64>) {
        self.together(dirs, |volume, dirs| async move { volume.confirm_known(dirs, true).await.map(drop) });
    }

    /// Asks in one question for listings of directories that are not asked for yet. Whoever wants one of them waits for the
    /// same answer, and where that has no listing of it, for an answer of its own.
    pub(super) fn together<F>(
        self: &Arc<Self>,
        mut dirs: Vec<u64>,
        ask: impl FnOnce(Arc<Volume>, Vec<u64>) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<()>> + Send,
    {
        use super::Extent::{Small, Whole};
        let wants = |dir| [Want::List(dir, Small), Want::List(dir, Whole)];
        let mut flights = self.flights.0.lock();
        dirs.retain(|dir| wants(*dir).iter().all(|want| !flights.contains_key(want)));
        if dirs.is_empty() {
            return;
        }
        let (volume, asked) = (self.clone(), dirs.clone());
        let task = tokio::spawn(async move {
            let answer = ask(volume.clone(), asked.clone()).await;
            let mut flights = volume.flights.0.lock();
            asked.into_iter().flat_map(wants).for_each(|want| drop(flights.remove(&want)));
            answer
        });
        let given_up = |_| Err(Error::new(ErrorKind::Io, "a question to the home was given up"));
        let all = task.map(move |r| r.unwrap_or_else(given_up)).boxed().shared();
        let flight = |want: &Want| {
            let (volume, all, want) = (self.clone(), all.clone(), want.clone());
            let one = async move {
                all.await?;
                let listed = volume.tree.lock().names(want.about()).is_ok_and(|node| node.complete);
                if listed { Ok(()) } else { volume.fetch(&want, Turn::Now).await }
            };
            one.boxed().shared()
        };
        flights.extend(dirs.into_iter().flat_map(wants).map(|want| (want.clone(), flight(&want))));
    }

    /// Asks whether what is known of directories is true, and takes in the answers. Answers those of which it gave nothing.
    async fn confirm_known(&self, dirs: Vec<u64>, later: bool) -> Result<Vec<u64>> {
        let (mut known, mut rest) = (Vec::new(), Vec::new());
        let mut asked = None;
        for dir in dirs {
            let mut tree = self.tree.lock();
            // The first question counts: what is known may be as old.
            asked.get_or_insert_with(|| self.asked(&tree));
            let wants_told = self.wants_told(&mut tree, dir);
            match believed(&mut tree, dir).filter(|_| wants_told) {
                Some(one) => known.push(one),
                None => rest.push(dir),
            }
        }
        let Some(asked) = asked.filter(|_| !known.is_empty()) else { return Ok(rest) };
        let beliefs = known.iter().map(|one| one.believed.clone()).collect();
        let answers = match self.home.confirm(beliefs, later).await {
            Err(e) if e.kind == ErrorKind::Unsupported => Vec::new(),
            answers => answers?,
        };
        let same = answers.iter().filter(|answer| matches!(answer, Ok(Belief::True { .. }))).count();
        tracing::debug!(asked = known.len(), same, "whether directories are as they were known");
        let mut answers = answers.into_iter();
        for Known { dir, believed, mut page } in known {
            let watched = match answers.next() {
                Some(Ok(Belief::True { applied, bare, epoch })) => {
                    page.applied = applied;
                    page.set_bare(&bare);
                    Some(Watched { page, epoch })
                }
                Some(Ok(Belief::Other(watched))) => Some(watched),
                Some(Ok(Belief::Unlike) | Err(_)) | None => None,
            };
            let taken = match watched {
                Some(watched) => self.take_listing(dir, &believed.dir.path, watched, asked)?,
                None => false,
            };
            if !taken {
                self.doubt(dir);
                rest.push(dir);
            }
        }
        Ok(rest)
    }

    /// Lays a whole listing over a directory, unless that was moved meanwhile, or may not be searched.
    fn take_listing(&self, dir: u64, place: &HomePath, watched: Watched, asked: Asked) -> Result<bool> {
        let mut tree = self.tree.lock();
        if has_moved(&mut tree, dir, place) || are_names_alone(&watched.page) {
            return Ok(false);
        }
        self.lay_listing(&mut tree, dir, watched, asked)?;
        Ok(true)
    }

    /// Lays a whole listing over a directory.
    pub(super) fn lay_listing(
        &self,
        tree: &mut Tree,
        dir: u64,
        watched: Watched,
        asked: Asked,
    ) -> Result<()> {
        if let Some(epoch) = watched.epoch {
            tree.names_mut(dir)?.told.begins(epoch, asked.at);
        }
        let asked = self.answered(asked, watched.page.applied);
        let changed = meta::with_names(tree, dir, |tree| {
            let changed = meta::merge_page(tree, dir, watched.page, asked)?;
            meta::finish_listing(tree, dir, asked)?;
            Ok(changed)
        })?;
        changed.into_iter().for_each(|id| self.content(tree, id, Content::Changed));
        self.log_bindings_if_room(tree)
    }

    fn doubt(&self, dir: u64) {
        if let Ok(node) = self.tree.lock().names_mut(dir) {
            node.doubted = true;
        }
    }
}

/// What the page of a directory is if nothing has changed; `None` where that is not known.
fn believed(tree: &mut Tree, dir: u64) -> Option<Known> {
    let at = Volume::loc(tree, dir).ok()?;
    let node = tree.names(dir).ok()?;
    if !node.complete || node.doubted || node.big || node.len() > LIST_ENTRIES_MAX as usize {
        return None;
    }
    let slots: Vec<_> = node.after(0).map(|(_, name, slot)| (name.clone(), *slot)).collect();
    if slots.iter().any(|(_, slot)| slot.pending > 0) {
        return None;
    }
    let mut entries = Vec::with_capacity(slots.len());
    for (name, slot) in slots {
        let Some(child) = slot.child else { continue };
        let inode = tree.get(child).ok().filter(|inode| inode.pending == 0)?;
        let target = inode.target.clone().filter(|_| inode.kind == Kind::Symlink);
        entries.push(Entry { name, attr: Some(inode.attr?), target, bare: false });
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let attr = tree.get(dir).ok().filter(|inode| inode.pending == 0)?.attr?;
    let page = Page { applied: 0, dir: attr, entries, more: false };
    let believed = Believed { dir: at, mark: dir, digest: page.digest()? };
    Some(Known { dir, believed, page })
}
