//! What the store keeps of attributes and names, so that after a restart a home that is out of reach is shown as it was.
//! All of it is as old as can be: it is asked for again before it counts as fresh.
//!
//! A directory has no list of its names in the store, but a key for each object that has one there; the name is in what
//! the store has of the object. So both cannot differ, and a name costs the same in a directory of any size.

use super::{DirNode, Inode, ROOT_ID, Tree, local};
use crate::journal::Binding;
use crate::store::Write;
use bytes::Bytes;
use home::{Attr, ErrorKind, Kind, Name, Result};
use oncrpc::xdr::Xdr;

oncrpc::xdr! {
    /// What the store keeps of an object beside its identity.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Kept {
        /// As clients were last shown them, home-native: with what is unsent laid over.
        pub attr: Attr,
        /// Where a symbolic link points, if that is known.
        pub target: Option<Bytes>,
        /// Every name of the directory has a key.
        pub listed: bool,
    }
}

/// Which of the checkpoints are durable, and who waits for that.
#[derive(Debug, Default)]
pub struct Keeping {
    /// How many were begun.
    pub(super) begun: u64,
    /// The number of the last one that is durable; all before it are.
    durable: u64,
    /// The last one did not get into the store.
    fails: bool,
    /// The first and the last record of changes whose objects no path leads to after a restart, because what is known of a
    /// directory above them is in memory alone.
    hidden: Option<(u64, u64)>,
}

impl Tree {
    /// A change of these objects was laid over the tree. With its record are their bindings and the attributes of what it
    /// changes, but none of the directories on the way there.
    pub fn is_recorded(&mut self, seq: u64, objects: &[u64]) {
        if objects.iter().any(|id| !self.is_found(*id)) {
            let first = self.keeping.hidden.map_or(seq, |(first, _)| first);
            self.keeping.hidden = Some((first, seq));
        }
    }

    /// Whether a path leads to all changes up to a record after a restart. So it counts where the store has no room: then nobody
    /// can wait for it.
    pub fn are_found(&self, seq: u64) -> bool {
        self.keeping.fails || self.keeping.hidden.is_none_or(|(first, _)| first > seq)
    }

    /// Whether all that is known of the directories on the way to an object is durable.
    fn is_found(&mut self, id: u64) -> bool {
        let mut at = id;
        for _ in 0..home::name::PATH_MAX / 2 {
            let durable = self.keeping.durable;
            let Ok(inode) = self.get(at) else { return true };
            let is_kept = inode.kept.is_some_and(|number| number <= durable);
            if inode.kind == Kind::Dir && inode.attr.is_some() && !is_kept {
                return false;
            }
            match &inode.link {
                Some((parent, _)) if at != ROOT_ID => at = *parent,
                _ => return true,
            }
        }
        true
    }

    /// The number of the checkpoint that was begun last.
    pub fn last_checkpoint(&self) -> u64 {
        self.keeping.begun
    }

    /// That checkpoint, which contains the journal up to record `last`, came to this.
    pub fn is_checkpointed(&mut self, (number, last): (u64, u64), is_durable: bool, fails: bool) {
        self.keeping.fails = fails;
        if is_durable && !fails {
            self.keeping.durable = number;
            let hidden = self.keeping.hidden.filter(|(_, newest)| *newest > last);
            self.keeping.hidden = hidden.map(|(first, newest)| (first.max(last + 1), newest));
        }
    }

    /// A checkpoint may not have got into the store: the next one has this object again.
    pub fn not_kept(&mut self, id: u64) {
        self.unsaved(id);
        if let Some(inode) = self.inodes.get_mut(&id) {
            inode.kept = None;
        }
    }

    /// What is known of the names in a directory.
    pub fn names(&mut self, dir: u64) -> Result<&DirNode> {
        self.names_mut(dir).map(|node| &*node)
    }

    /// The same, to be changed.
    pub fn names_mut(&mut self, dir: u64) -> Result<&mut DirNode> {
        self.read_names(dir)?;
        self.get(dir)?.dir.as_deref_mut().ok_or_else(|| ErrorKind::NotDir.into())
    }

    /// Gets the names of a directory from the store, if that was not done yet. What is in memory is newer.
    fn read_names(&mut self, dir: u64) -> Result<()> {
        if !self.get(dir)?.dir.as_deref().is_some_and(|node| node.unread) {
            return Ok(());
        }
        let children = self.listed_in(dir)?;
        let mut found: Vec<(Name, u64)> = Vec::new();
        for child in children {
            let names = self.get(child).map(|inode| names_in(inode, dir)).unwrap_or_default();
            if names.is_empty() {
                self.strays.push(self.entry_key(dir, child));
            }
            found.extend(names.into_iter().map(|name| (name, child)));
        }
        let listed = self.kept(dir).is_some_and(|kept| kept.listed);
        let Some(node) = self.get(dir)?.dir.as_deref_mut() else { return Ok(()) };
        node.unread = false;
        node.complete |= listed;
        // Where two claim a name, the younger one has it.
        for (name, child) in found.into_iter().rev() {
            let slot = node.slot_mut(&name);
            if slot.pending == 0 {
                slot.child.get_or_insert(child);
            }
        }
        Ok(())
    }

    /// Objects that have, or had, a name in a directory, by age.
    fn listed_in(&self, dir: u64) -> Result<Vec<u64>> {
        let prefix = self.key(b'e', &dir.to_be_bytes());
        let keys = self.store.scan(&prefix).map_err(local)?;
        let id = |key: &Bytes| key.get(prefix.len()..)?.try_into().ok().map(u64::from_be_bytes);
        Ok(keys.iter().filter_map(|(key, _)| id(key)).collect())
    }

    /// Recovery: enters objects into their directories whose places the journal told, and the store may not know.
    pub fn enter_restored(&mut self, ids: Vec<u64>) {
        for id in ids {
            let Ok(inode) = self.get(id) else { continue };
            let places: Vec<(u64, Name)> = inode.link.iter().chain(&inode.more_links).cloned().collect();
            for (dir, name) in places {
                if let Ok(node) = self.names_mut(dir) {
                    node.slot_mut(&name).child = Some(id);
                }
            }
        }
    }

    /// An object was read from the store: its attributes, too.
    pub(super) fn recall(&mut self, id: u64) {
        let (kept, number) = (self.kept(id), self.keeping.begun);
        let Some(inode) = self.inodes.get_mut(&id) else { return };
        if let Some(node) = inode.dir.as_deref_mut() {
            node.unread = true;
        }
        let Some(kept) = kept else { return };
        (inode.attr, inode.target, inode.recalled) = (Some(kept.attr), kept.target, true);
        inode.kept = Some(number);
    }

    /// Adds to a checkpoint what is kept of an object beside its binding.
    pub(super) fn keep(&mut self, b: &Binding, batch: &mut Vec<Write>) {
        let key = self.key(b'a', &b.object.to_be_bytes());
        let parents = b.name.iter().map(|_| b.parent).chain(b.more.iter().map(|place| place.parent));
        batch.extend(parents.map(|dir| (self.entry_key(dir, b.object), Some(Vec::new()))));
        self.note_untold(b);
        let Some(inode) = self.inodes.get_mut(&b.object) else { return };
        let attr = inode.attr.filter(|_| inode.link.is_some() || b.name.is_some() || b.object == ROOT_ID);
        inode.kept = attr.map(|_| inode.kept.unwrap_or(self.keeping.begun));
        let Some(attr) = attr else { return batch.push((key, None)) };
        let Some(inode) = self.inodes.get(&b.object) else { return };
        let listed = match inode.dir.as_deref() {
            // Nobody has looked at its names since they were kept.
            Some(node) if node.unread => self.kept(b.object).is_some_and(|kept| kept.listed),
            node => node.is_some_and(|node| node.complete && !node.untold),
        };
        let kept = Kept { attr, target: inode.target.clone(), listed };
        batch.push((key, Some(kept.to_bytes().to_vec())));
    }

    /// Directories with names of an object that its binding does not tell are not kept as listed.
    fn note_untold(&mut self, b: &Binding) {
        let Some(inode) = self.inodes.get(&b.object).filter(|n| n.more_bindings.len() > b.more.len()) else {
            return;
        };
        let dirs: Vec<u64> = inode.more_bindings.iter().map(|(dir, _)| *dir).collect();
        for dir in dirs {
            if let Ok(node) = self.names_mut(dir)
                && !std::mem::replace(&mut node.untold, true)
            {
                self.unsaved(dir);
            }
        }
    }

    fn kept(&self, id: u64) -> Option<Kept> {
        Kept::from_bytes(self.store.get(&self.key(b'a', &id.to_be_bytes())).ok()??).ok()
    }

    fn entry_key(&self, dir: u64, id: u64) -> Vec<u8> {
        self.key(b'e', &[dir.to_be_bytes(), id.to_be_bytes()].concat())
    }
}

impl Inode {
    /// What is unsent of it goes over whatever the home has, so also over this, which was seen there.
    pub fn stands_on(&mut self, attr: &Attr) {
        self.base = Some(attr.version());
        self.base_len = self.cuts.values().copied().fold(attr.size, u64::min);
    }

    /// Recovery: an outcome told a later version than that of the attributes.
    pub fn keep_to_base(&mut self) {
        if self.kind == Kind::Dir {
            return;
        }
        let base = self.base;
        self.attr = self.attr.zip(base).map(|(attr, base)| Attr {
            id: base.id,
            size: base.size,
            mtime: base.mtime,
            ctime: base.ctime,
            ..attr
        });
    }
}

/// The names of an object in a directory.
fn names_in(inode: &Inode, dir: u64) -> Vec<Name> {
    let places = inode.link.iter().chain(&inode.more_links);
    places.filter(|(parent, _)| *parent == dir).map(|(_, name)| name.clone()).collect()
}
