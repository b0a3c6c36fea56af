//! What a front-end may ask, by family. Each call makes sure that what it needs is in the cache and fresh enough,
//! takes the lock of the volume once, and answers with everything a reply needs.

mod admit;
mod ahead;
pub mod copies;
pub mod dir;
pub mod io;
pub mod lock;
pub mod nameless;
pub mod names;
pub mod object;
pub mod open;
mod path;
pub mod prefetch;
pub mod xattr;

use crate::fetch::{Answer, Extent, Want};
use crate::freshness::{self, Need};
use crate::inode::{Inode, Tree};
use crate::limits;
use crate::types::{Before, FileAttr, Wcc};
use crate::volume::Volume;
use home::{Attr, Error, ErrorKind, Name, Result};
use std::sync::Arc;

impl Volume {
    /// Makes the attributes of an object fresh enough. Where its directory is small and was listed, the whole
    /// listing is asked for, so that its neighbours are fresh too.
    pub async fn ensure_attr(self: &Arc<Self>, id: u64, need: Need) -> Result<()> {
        if self.plain() {
            self.object_settled(id).await?;
        }
        for round in 0..3 {
            let (want, have) = {
                let mut tree = self.tree.lock();
                let inode = tree.get(id)?;
                if inode.gone {
                    return Err(ErrorKind::Stale.into());
                }
                let have = inode.attr.is_some();
                let whose = match inode.is_told() {
                    true => Some(id),
                    false => inode.link.as_ref().map(|(parent, _)| *parent),
                };
                if freshness::has_good_attributes(&tree, id, &need) {
                    if round == 0 && !need.insist {
                        self.shared.stats.hit();
                    }
                    return Ok(());
                }
                let listing = whose.filter(|_| round == 0 && have && !need.insist && !is_lone(&tree, id));
                match listing.filter(|dir| is_small_listing(&mut tree, *dir)) {
                    Some(dir) => (Want::List(dir, Extent::Whole), have),
                    None => (Want::Attr(id), have),
                }
            };
            if self.ask(want, have && !need.insist).await? == Answer::Silent {
                break;
            }
        }
        let mut tree = self.tree.lock();
        if tree.get(id)?.attr.is_none() { Err(ErrorKind::Stale.into()) } else { Ok(()) }
    }

    /// The same for a call that needs permission. Where what is known denies it, the home is asked again, unless that was
    /// a moment ago. `check` fails where permission is lacking.
    pub async fn ensure_allowed(
        self: &Arc<Self>,
        id: u64,
        need: Need,
        check: impl Fn(&Attr) -> Result<()>,
    ) -> Result<()> {
        self.ensure_attr(id, need).await?;
        let denied = {
            let mut tree = self.tree.lock();
            let attr = Volume::attr_of(&mut tree, id)?;
            check(&attr).is_err() && self.mode_in(&mut tree, id).expires()
        };
        match denied {
            true => self.ensure_attr(id, need.no_older_than(limits::DENIED)).await,
            false => Ok(()),
        }
    }

    /// What a call needs of a directory and a name in it, before it asks whether both are good enough: where each call asks
    /// the home, it asks for both at once.
    pub async fn look_at_home(self: &Arc<Self>, dir: u64, name: &Name, need: Need) -> Result<()> {
        if !self.plain() {
            return Ok(());
        }
        self.name_settled(dir, name).await?;
        let is_good = {
            let tree = &mut self.tree.lock();
            live(tree, dir)?;
            freshness::has_good_attributes(tree, dir, &need)
        };
        let look = Want::Look(dir, name.clone());
        if !is_good || self.is_asked(&look) {
            self.ask(look, false).await?;
        }
        Ok(())
    }

    /// Makes known what a name stands for, with fresh attributes.
    pub async fn ensure_name(self: &Arc<Self>, dir: u64, name: &Name, need: Need) -> Result<Option<u64>> {
        if self.plain() {
            self.name_settled(dir, name).await?;
        }
        for round in 0..4 {
            let (want, have) = {
                let mut tree = self.tree.lock();
                match known(&mut tree, dir, name, &need)? {
                    Known::Fresh(child) => {
                        if round == 0 && !need.insist {
                            self.shared.stats.hit();
                        }
                        self.walks.uses(&mut tree, dir);
                        return Ok(child);
                    }
                    Known::Child(told) if round == 0 && !need.insist && is_small_listing(&mut tree, told) => {
                        (Want::List(told, Extent::Whole), true)
                    }
                    Known::Stale | Known::Child(_) => {
                        (self.want_name(&mut tree, dir, name, round == 0 && !need.insist)?, true)
                    }
                    Known::Unknown => {
                        (self.want_name(&mut tree, dir, name, round == 0 && !need.insist)?, false)
                    }
                }
            };
            if let Want::List(listed, Extent::Small) = want {
                self.look_ahead(listed, &need);
            }
            if self.ask(want, have && !need.insist).await? == Answer::Silent
                || self.tree.lock().is_astray(dir)
            {
                break;
            }
        }
        let mut tree = self.tree.lock();
        let node = tree.names(dir)?;
        match node.slot(name) {
            Some(slot) => Ok(slot.child),
            None if node.complete => Ok(None),
            None if node.astray => Err(ErrorKind::Stale.into()),
            None => Err(Error::new(ErrorKind::Busy, "the directory keeps changing")),
        }
    }

    /// Mode `strict`: waits until no operation on a name is on its way: what it makes of the name is not known before.
    async fn name_settled(&self, dir: u64, name: &Name) -> Result<()> {
        let is_open = |tree: &mut Tree| Ok(tree.names(dir)?.slot(name).is_some_and(|s| s.pending > 0));
        self.settles(is_open, "an operation on the name has no answer yet").await
    }

    /// Mode `strict`: waits until it was looked for what a process before this one sent of an object. No record has the bytes of a
    /// write that its caller waited for, so that neither length nor content is known before.
    async fn object_settled(&self, id: u64) -> Result<()> {
        let is_open = |tree: &mut Tree| Ok(tree.get(id)?.recalled && tree.queue.is_doubtful(id));
        self.settles(is_open, "it is not known yet what was done to it before the start").await
    }

    /// Waits until something has its outcome.
    async fn settles(&self, is_open: impl Fn(&mut Tree) -> Result<bool>, why: &str) -> Result<()> {
        let mut outcomes = self.outcomes.subscribe();
        let wait = async {
            loop {
                outcomes.borrow_and_update();
                if !is_open(&mut self.tree.lock())? || outcomes.changed().await.is_err() {
                    return Ok(());
                }
            }
        };
        tokio::time::timeout(limits::HOLD, wait).await.unwrap_or_else(|_| {
            let is_over = self.is_given_up() || self.is_superseded();
            Err(Error::new(if is_over { ErrorKind::Io } else { ErrorKind::Busy }, why))
        })
    }

    /// The name alone, or with `more` the whole listing where the directory is small: the next name is then known as well.
    fn want_name(&self, tree: &mut Tree, dir: u64, name: &Name, more: bool) -> Result<Want> {
        let small = tree.get(dir)?.attr.is_some_and(|a| a.size <= limits::SMALL_DIR_BYTES);
        let node = tree.names(dir)?;
        let at = node.slot(name).map_or(node.listed_at, |slot| slot.at);
        let lone = node.len() > limits::TOLD_LISTED && node.told.is_outdated(name, at);
        let list = more && small && !lone && !node.big && node.len() <= limits::SMALL_DIR_ENTRIES as usize;
        Ok(if list { Want::List(dir, Extent::Small) } else { Want::Name(dir, name.clone()) })
    }

    /// Makes the listing of a directory complete and fresh enough.
    pub async fn ensure_listing(self: &Arc<Self>, dir: u64, need: Need) -> Result<()> {
        for round in 0..3 {
            let have = {
                let mut tree = self.tree.lock();
                let node = tree.names(dir)?;
                if freshness::is_listed(node, &need) {
                    if round == 0 {
                        self.shared.stats.hit();
                    }
                    return Ok(());
                }
                node.complete
            };
            let small = Want::List(dir, Extent::Small);
            let want = if self.is_asked(&small) { small } else { Want::List(dir, Extent::Whole) };
            if self.ask(want, have && !need.insist).await? == Answer::Silent {
                break;
            }
            if self.tree.lock().is_astray(dir) {
                return Ok(());
            }
        }
        let mut tree = self.tree.lock();
        if tree.names(dir)?.complete { Ok(()) } else { Err(ErrorKind::Busy.into()) }
    }

    /// Attributes as a client sees them, from memory.
    pub fn shown(&self, tree: &mut Tree, id: u64) -> Result<FileAttr> {
        let inode = tree.get(id)?;
        let attr = inode.attr.ok_or_else(|| Error::from(ErrorKind::Stale))?;
        Ok(self.show(inode, &attr))
    }

    /// Attributes as a client sees them, where they are in memory.
    pub fn shown_if_known(&self, tree: &Tree, id: u64) -> Option<FileAttr> {
        let inode = tree.peek(id)?;
        Some(self.show(inode, inode.attr.as_ref()?))
    }

    /// What weak cache consistency compares, now.
    pub fn before(&self, tree: &Tree, id: u64) -> Option<Before> {
        self.shown_if_known(tree, id).map(|a| Before { size: a.size, mtime: a.mtime, ctime: a.ctime })
    }

    /// The second half of weak cache consistency, now.
    pub fn wcc(&self, tree: &Tree, id: u64, before: Option<Before>) -> Wcc {
        Wcc { before, after: self.shown_if_known(tree, id) }
    }

    /// The home-native attributes of an object that [`Volume::ensure_attr`] was called for.
    pub fn attr_of(tree: &mut Tree, id: u64) -> Result<Attr> {
        live(tree, id)?.attr.ok_or_else(|| ErrorKind::Stale.into())
    }
}

/// What is known of a name.
enum Known {
    /// Fresh enough.
    Fresh(Option<u64>),
    /// Known once.
    Stale,
    /// Fresh enough, but the attributes of this directory, of which changes are told, are not.
    Child(u64),
    /// Not known.
    Unknown,
}

fn known(tree: &mut Tree, dir: u64, name: &Name, need: &Need) -> Result<Known> {
    let node = tree.names(dir)?;
    let listed = node.complete && node.told.is_name_good(name, node.listed_at, need);
    let Some(slot) = node.slot(name) else {
        return Ok(match (listed, node.complete) {
            (true, _) => Known::Fresh(None),
            (false, true) => Known::Stale,
            (false, false) => Known::Unknown,
        });
    };
    let current = slot.pending > 0 || listed || node.told.is_name_good(name, slot.at, need);
    let Some(child) = slot.child else {
        return Ok(if current { Known::Fresh(None) } else { Known::Stale });
    };
    let Ok(inode) = tree.get(child) else { return Ok(Known::Unknown) };
    let (attr, told) = (inode.attr, inode.is_told());
    Ok(match (attr, current && freshness::has_good_attributes(tree, child, need)) {
        (_, true) => Known::Fresh(Some(child)),
        (Some(_), false) if current && told => Known::Child(child),
        (Some(_), false) => Known::Stale,
        // After a restart the name may be known without the object's attributes, without which nothing can be done.
        (None, false) => Known::Unknown,
    })
}

/// Whether a file is the one of many in its directory that was told to have changed.
fn is_lone(tree: &Tree, id: u64) -> bool {
    let Some(inode) = tree.peek(id) else { return false };
    let Some((dir, name)) = &inode.link else { return false };
    let node = tree.peek(*dir).and_then(|n| n.dir.as_deref());
    node.is_some_and(|node| node.len() > limits::TOLD_LISTED && node.told.is_outdated(name, inode.at))
}

fn is_small_listing(tree: &mut Tree, dir: u64) -> bool {
    let node = tree.names(dir);
    node.is_ok_and(|d| d.complete && d.len() <= limits::SMALL_DIR_ENTRIES as usize)
}

/// An object that still has a name.
pub fn live(tree: &mut Tree, id: u64) -> Result<&mut Inode> {
    let inode = tree.get(id)?;
    if inode.gone { Err(ErrorKind::Stale.into()) } else { Ok(inode) }
}
