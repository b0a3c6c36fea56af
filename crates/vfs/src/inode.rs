//! Identity: object ids, fileids, names, and where each object is at the home. Survives restart.
//!
//! An object has two places. Its *link* is where it is here; its *home binding* is where the home has it.
//! They differ while a rename is unsent. A binding changes only by an outcome or a listing.

mod bindings;
mod copies;
mod ctimes;
mod front;
mod kept;
mod lock;
mod marked;
mod moves;
mod nameless;
mod walk;
mod xattrs;

pub use copies::{Copies, is_copy};
pub use ctimes::Ctimes;
pub use front::Front;
pub use kept::Keeping;
pub use lock::TreeLock;
pub use nameless::{Nameless, hidden_name, is_hidden};
pub use walk::{Order, Walk};
pub use xattrs::{AllXattrs, Lookup, Xattrs};

use crate::freshness::Told;
use crate::journal::Binding;
use crate::limits;
use crate::store::{MetaStore, Write};
use crate::sync::queue::Queue;
use crate::watch::Notes;
use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use home::{Attr, Error, ErrorKind, HomeId, HomePath, Kind, Name, Result, Time, Version};
use oncrpc::xdr::Xdr;
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

/// The root of a volume.
pub const ROOT_ID: u64 = 1;
/// Fileids from here up are ours; below are the home's inode numbers.
const OWN_FILEIDS: u64 = 1 << 62;
/// Fileids of the roots of volumes, by their numbers: no two homes in the root directory share one.
const ROOT_FILEIDS: u64 = OWN_FILEIDS + (1 << 61);
/// Cookies 1 and 2 stand for `.` and `..`.
pub const FIRST_COOKIE: u64 = 3;

/// The place in our own history at which something was last confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// Value of [`Tree::tick`] when the outcome arrived.
    pub tick: u64,
    /// Number of the operation.
    pub seq: u64,
}

impl Settled {
    /// Whether an answer that was asked for at `tick` and contains operations up to `applied` is not older.
    pub fn is_known_to(&self, tick: u64, applied: u64) -> bool {
        tick >= self.tick || applied >= self.seq
    }
}

/// An object.
#[derive(Debug)]
pub struct Inode {
    /// Type; never changes.
    pub kind: Kind,
    /// Shown to clients; never changes.
    pub fileid: u64,
    /// What the home knows it by; inode 0 where it has not been seen there.
    pub home_id: HomeId,
    /// Where the home has it; `None` before its creation was sent, and after its removal.
    pub binding: Option<(u64, Name)>,
    /// Its other names at the home, as far as they are known.
    pub more_bindings: Vec<(u64, Name)>,
    /// Where it is here: one of its names.
    pub link: Option<(u64, Name)>,
    /// Its other names here, as far as they are known.
    pub more_links: Vec<(u64, Name)>,
    /// Attributes, home-native, with all our changes laid over.
    pub attr: Option<Attr>,
    /// When the home was asked for them.
    pub at: Duration,
    /// They were kept from an earlier time, or stand on what was, and do for want of an answer alone: the home may have shown
    /// others since.
    pub recalled: bool,
    /// The number of a checkpoint that had them; 0 where an earlier process, or the journal, has them.
    pub kept: Option<u64>,
    /// The home's version that our changes are made to.
    pub base: Option<Version>,
    /// Length up to which the base's bytes show through where we wrote nothing.
    pub base_len: u64,
    /// Unsent truncations: number of the operation and size.
    pub cuts: BTreeMap<u64, u64>,
    /// The ctime that clients were shown, and the version for which it stands.
    pub shown: Option<(Option<Version>, Time)>,
    /// Unsent operations that touch it and are laid over it.
    pub pending: u32,
    /// The last operation that touches it.
    pub last_seq: u64,
    /// The last outcome that concerned it.
    pub settled: Settled,
    /// The verifier of the exclusive create that made it.
    pub verifier: Option<[u8; 8]>,
    /// Where a symbolic link points.
    pub target: Option<Bytes>,
    /// What the home has of extended attributes.
    pub xattrs: Xattrs,
    /// Names, if it is a directory.
    pub dir: Option<Box<DirNode>>,
    /// It has no name any more.
    pub gone: bool,
    /// Why the home refused a write that had been taken, until a caller has heard of it.
    pub refused: Option<ErrorKind>,
    /// How far it is being read in order.
    pub front: Front,
}

/// The names of a directory.
#[derive(Debug, Default)]
pub struct DirNode {
    /// By cookie, which is a hash of the name.
    names: BTreeMap<u64, (Name, Slot)>,
    /// Every name that the home has is here.
    pub complete: bool,
    /// When the home was asked for the whole listing.
    pub listed_at: Duration,
    /// [`Tree::tick`] when names were forgotten last of which an earlier answer may not know what came of our operations on them.
    pub forgot: u64,
    /// The names that the store has of it have not been read.
    unread: bool,
    /// A name in it belongs to an object that has too many for all of them to be kept.
    untold: bool,
    /// It did not fit a small listing when it was last tried.
    pub big: bool,
    /// It was asked in vain whether the listing is true.
    pub doubted: bool,
    /// The home had it nowhere when it was last asked for, and something in it is unsent.
    pub astray: bool,
    /// Others changed a name in it, as the answer says that is being laid over it.
    pub others: bool,
    /// What the home has told of it.
    pub told: Told,
    /// A walk brought it, and nobody has looked at it since.
    pub unused: bool,
    /// It was asked for ahead of somebody, and nobody has come to it since.
    pub ahead: bool,
    /// Who lists the directories in it.
    pub lists: Walk,
    /// Who looks for names in them.
    pub looks: Walk,
    /// Who reads the files in it.
    pub reads: Walk,
    /// Cookie of the name that a call looked up last, where each call asks the home.
    pub last_looked: Option<u64>,
}

/// What is known of one name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slot {
    /// The object; `None`: the name is free.
    pub child: Option<u64>,
    /// Unsent operations on the name. While there are any, the name shadows what the home says.
    pub pending: u32,
    /// When the home was asked.
    pub at: Duration,
    /// The last outcome that concerned it.
    pub settled: Settled,
}

impl DirNode {
    /// What is known of a name.
    pub fn slot(&self, name: &Name) -> Option<Slot> {
        self.names.get(&self.cookie(name)).map(|(_, s)| *s)
    }

    /// What is known of the name with this cookie.
    pub fn named(&self, cookie: u64) -> Option<(&Name, &Slot)> {
        self.names.get(&cookie).map(|(name, slot)| (name, slot))
    }

    /// The place of a name, made if it is not there.
    pub fn slot_mut(&mut self, name: &Name) -> &mut Slot {
        let cookie = self.cookie(name);
        &mut self.names.entry(cookie).or_insert_with(|| (name.clone(), Slot::default())).1
    }

    /// Forgets what is known of a name.
    pub fn forget(&mut self, name: &Name) {
        let cookie = self.cookie(name);
        self.names.remove(&cookie);
    }

    /// Cookie, name and slot of all names behind a cookie.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Name, &Slot)> {
        self.names.range(cookie.saturating_add(1)..).map(|(c, (n, s))| (*c, n, s))
    }

    /// How many names are known, taken and free ones.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether a younger question than one of this time has told of every name.
    pub fn is_listed_after(&self, at: Duration) -> bool {
        // What was never asked for is from no question.
        self.complete && self.listed_at > at && self.listed_at < Duration::MAX
    }

    /// Whether a name is taken, those of nameless objects aside.
    pub fn has_children(&self, gateway: u64) -> bool {
        self.names.values().any(|(name, s)| s.child.is_some() && !is_hidden(gateway, name))
    }

    /// Nameless objects that are kept here.
    pub fn hidden(&self, gateway: u64) -> impl Iterator<Item = (&Name, u64)> {
        let taken = self.names.values().filter_map(|(name, s)| Some((name, s.child?)));
        taken.filter(move |(name, _)| is_hidden(gateway, name))
    }

    /// A hash of the name: stable over eviction and restart without any state. Ties go to the next free number.
    pub fn cookie(&self, name: &Name) -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(name.as_bytes());
        let mut cookie = (hasher.finish() >> 2).max(FIRST_COOKIE);
        while self.names.get(&cookie).is_some_and(|(n, _)| n != name) {
            cookie += 1;
        }
        cookie
    }
}

impl Inode {
    /// The place of its hidden name here, if it has one.
    pub fn hidden_link(&self, gateway: u64) -> Option<&(u64, Name)> {
        self.link.iter().chain(&self.more_links).find(|(_, name)| is_hidden(gateway, name))
    }

    fn new(kind: Kind, fileid: u64, home_id: HomeId) -> Inode {
        Inode {
            kind,
            fileid,
            home_id,
            binding: None,
            more_bindings: Vec::new(),
            link: None,
            more_links: Vec::new(),
            attr: None,
            at: Duration::ZERO,
            recalled: false,
            kept: None,
            base: None,
            base_len: 0,
            cuts: BTreeMap::new(),
            shown: None,
            pending: 0,
            last_seq: 0,
            settled: Settled::default(),
            verifier: None,
            target: None,
            xattrs: Xattrs::default(),
            dir: (kind == Kind::Dir).then(Box::default),
            gone: false,
            refused: None,
            front: Front::default(),
        }
    }

    /// Whether it is a directory of which changes are told: they are told anew when it is listed itself.
    pub fn is_told(&self) -> bool {
        self.dir.as_ref().is_some_and(|node| node.told.was_told())
    }

    /// Those of the directory's names that are in memory, or [`ErrorKind::NotDir`].
    pub fn names(&self) -> Result<&DirNode> {
        self.dir.as_deref().ok_or_else(|| ErrorKind::NotDir.into())
    }

    /// It has this name. A directory has only one.
    pub fn add_link(&mut self, place: (u64, Name)) {
        if self.link.is_none() || self.kind == Kind::Dir {
            self.link = Some(place);
        } else if self.link.as_ref() != Some(&place) && !self.more_links.contains(&place) {
            self.more_links.push(place);
        }
    }

    /// It has this name no more.
    pub fn drop_link(&mut self, place: &(u64, Name)) {
        self.more_links.retain(|l| l != place);
        if self.link.as_ref() == Some(place) {
            self.link = self.more_links.pop();
        }
    }

    /// The home has it by this name. A directory has only one.
    pub fn add_binding(&mut self, place: (u64, Name)) {
        if self.binding.is_none() || self.kind == Kind::Dir {
            self.binding = Some(place);
        } else if self.binding.as_ref() != Some(&place) && !self.more_bindings.contains(&place) {
            self.more_bindings.push(place);
        }
    }

    /// The home has it by this name no more.
    pub fn drop_binding(&mut self, place: &(u64, Name)) {
        self.more_bindings.retain(|b| b != place);
        if self.binding.as_ref() == Some(place) {
            self.binding = self.more_bindings.pop();
        }
    }
}

/// All objects of a volume, and what of them is unsent. One lock guards it.
pub struct Tree {
    volume: u32,
    store: Arc<dyn MetaStore>,
    inodes: HashMap<u64, Inode>,
    by_home: HashMap<HomeId, u64>,
    by_fileid: HashMap<(u64, u64), u64>,
    next_id: u64,
    reserved: u64,
    /// Counts outcomes; tells whether an answer was asked for before or after one.
    pub tick: u64,
    /// What it was when objects were dropped from memory last, and with them what outcomes concerned them.
    dropped: u64,
    /// What the home does not know yet.
    pub queue: Queue,
    /// Changes that watchers hear of when the lock is released.
    pub notes: Notes,
    /// What is open, and what of it has no name.
    pub nameless: Nameless,
    /// Who has the name of a conflict's copy.
    pub copies: Copies,
    /// Files with unsent bytes that are in the queue alone: after a restart the disk had no room to lay them over the
    /// cache.
    pub unlaid: HashSet<u64>,
    /// The ctimes that were shown.
    pub ctimes: Ctimes,
    /// Extended attributes.
    xattrs: AllXattrs,
    /// Bound since the last record of bindings.
    unlogged: Vec<u64>,
    /// Changed since the last checkpoint.
    unsaved: BTreeSet<u64>,
    /// Keys of the store that stand for nothing any more.
    strays: Vec<Vec<u8>>,
    /// The home has shown a directory elsewhere than before: what had no place in it may have one.
    pub found: bool,
    /// Of what there is something unsent, if that was looked for since the lock was taken.
    unsent: Option<HashSet<u64>>,
    /// What of the attributes is durable.
    keeping: Keeping,
}

impl Tree {
    /// A tree with nothing but its root; everything else comes from the store when it is asked for.
    pub fn open(volume: u32, store: Arc<dyn MetaStore>) -> Result<Tree> {
        let mut tree = Tree {
            volume,
            store,
            inodes: HashMap::new(),
            by_home: HashMap::new(),
            by_fileid: HashMap::new(),
            next_id: ROOT_ID + 1,
            reserved: 0,
            tick: 1,
            dropped: 0,
            queue: Queue::default(),
            notes: Notes::default(),
            nameless: Nameless::default(),
            copies: Copies::default(),
            unlaid: HashSet::new(),
            ctimes: Ctimes::default(),
            xattrs: AllXattrs::default(),
            unlogged: Vec::new(),
            unsaved: BTreeSet::new(),
            strays: Vec::new(),
            found: false,
            unsent: None,
            keeping: Keeping::default(),
        };
        if let Some(bytes) = tree.store.get(&tree.key(b'n', &[])).map_err(local)? {
            tree.next_id = u64::from_bytes(bytes).map_err(|_| damaged("id counter"))?;
        }
        if tree.load(ROOT_ID).is_none() {
            let fileid = ROOT_FILEIDS + u64::from(volume);
            let mut root = Inode::new(Kind::Dir, fileid, HomeId::default());
            // Names in it may have been kept though nobody has looked at it itself.
            root.dir.iter_mut().for_each(|node| node.unread = true);
            tree.insert(ROOT_ID, root);
        }
        match tree.reserve() {
            // On a full disk there are no new objects, but those that are known.
            Err(e) if e.kind == ErrorKind::Full => {}
            reserved => reserved?,
        }
        tree.listed(b'o')?.into_iter().for_each(|id| tree.nameless.restore(id));
        tree.listed(b'c')?.into_iter().for_each(|id| tree.copies.restore(id));
        Ok(tree)
    }

    /// Objects that the store has a key for in this space.
    fn listed(&self, space: u8) -> Result<Vec<u64>> {
        let prefix = self.key(space, &[]);
        let keys = self.store.scan(&prefix).map_err(local)?;
        let id = |key: &Bytes| key.get(prefix.len()..)?.try_into().ok().map(u64::from_be_bytes);
        Ok(keys.iter().filter_map(|(key, _)| id(key)).collect())
    }

    /// An object, from memory or from the store.
    pub fn get(&mut self, id: u64) -> Result<&mut Inode> {
        if !self.inodes.contains_key(&id) && self.load(id).is_none() {
            return Err(ErrorKind::Stale.into());
        }
        self.inodes.get_mut(&id).ok_or_else(|| ErrorKind::Stale.into())
    }

    /// An object that is in memory.
    pub fn peek(&self, id: u64) -> Option<&Inode> {
        self.inodes.get(&id)
    }

    /// How many objects are in memory.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// An id that was never used, for an object that is created here.
    pub fn new_id(&mut self) -> Result<u64> {
        if self.next_id >= self.reserved {
            self.reserve()?;
        }
        self.next_id += 1;
        Ok(self.next_id - 1)
    }

    /// An object that exists here and not at the home yet.
    pub fn insert_new(&mut self, id: u64, attr: Attr) {
        let mut inode = Inode::new(attr.kind, OWN_FILEIDS + id, attr.id);
        (inode.attr, inode.kept) = (Some(attr), Some(0));
        if let Some(dir) = inode.dir.as_deref_mut() {
            dir.complete = true;
            dir.listed_at = Duration::MAX;
        }
        self.next_id = self.next_id.max(id + 1);
        self.insert(id, inode);
        self.unsaved.insert(id);
    }

    /// The object that the home shows under a name, made if it was not known. `known` is what the name stood for
    /// before: a home without identities keeps it as long as the type is the same.
    pub fn bind(&mut self, dir: u64, name: &Name, attr: &Attr, known: Option<u64>) -> Result<u64> {
        let known = known.filter(|id| self.get(*id).is_ok_and(|n| n.kind == attr.kind));
        let place = (dir, name.clone());
        let found = if attr.id.ino == 0 {
            // What is not sent yet is another one, unless the home has it there: then only changes of it wait.
            let is_there = |n: &Inode| n.binding.as_ref() == Some(&place) || n.more_bindings.contains(&place);
            known.filter(|id| self.get(*id).is_ok_and(|n| n.pending == 0 || is_there(n)))
        } else {
            let same = self.find_home(&attr.id).filter(|id| self.get(*id).is_ok_and(|n| n.kind == attr.kind));
            // An unsent write may have arrived already and have given the name that it goes by another inode, which somebody may
            // have made a link to.
            let unsent = known.filter(|id| self.get(*id).is_ok_and(|n| n.pending > 0));
            let sent_by = unsent.filter(|id| self.get(*id).is_ok_and(|n| n.binding.as_ref() == Some(&place)));
            // What takes that name away may travel with the write, which goes by the next one then.
            let by_next = unsent.filter(|id| {
                self.get(*id).is_ok_and(|n| n.more_bindings.contains(&place)) && self.queue.is_moving(*id)
            });
            let written = sent_by.or(by_next);
            let written = written.filter(|id| same != Some(*id) && self.queue.is_writing(*id));
            written.or(same).or(sent_by)
        };
        let id = match found {
            Some(id) => id,
            None => {
                let id = self.new_id()?;
                let above = self.get(dir)?;
                let above = above.attr.map_or(above.home_id, |a| a.id);
                let fileid = self.fileid_for(id, &above, &attr.id);
                self.insert(id, Inode::new(attr.kind, fileid, attr.id));
                id
            }
        };
        self.copies.note(self.nameless.gateway, id, name);
        let inode = self.get(id)?;
        inode.gone = false;
        inode.add_link(place.clone());
        let news = inode.binding.as_ref() != Some(&place) && !inode.more_bindings.contains(&place);
        if found.is_none() || (news && (inode.pending == 0 || inode.kind != Kind::Dir)) {
            inode.add_binding(place);
            self.note(id);
        }
        Ok(id)
    }

    /// Remembers what the home knows an object by, as told by an outcome.
    pub fn rebind(&mut self, id: u64, home_id: HomeId, binding: Option<(u64, Name)>) {
        binding.iter().for_each(|(_, name)| self.copies.note(self.nameless.gateway, id, name));
        let Ok(inode) = self.get(id) else { return };
        let old = std::mem::replace(&mut inode.home_id, home_id);
        if binding.is_none() {
            inode.more_bindings.clear();
        }
        inode.binding = binding;
        if old != home_id && self.by_home.get(&old) == Some(&id) {
            self.by_home.remove(&old);
        }
        if home_id.ino != 0 {
            self.by_home.insert(home_id, id);
        }
        self.unsaved.insert(id);
    }

    /// The object will be made anew at the home: what the home has under its name is another one.
    pub fn detach(&mut self, id: u64) {
        let Ok(inode) = self.get(id) else { return };
        (inode.base, inode.base_len) = (None, 0);
        let fs = inode.home_id.fs;
        self.rebind(id, HomeId { fs, ..HomeId::default() }, None);
    }

    /// The object that the home knows by this identity.
    pub fn find_home(&mut self, home_id: &HomeId) -> Option<u64> {
        if home_id.ino == 0 {
            return None;
        }
        if let Some(id) = self.by_home.get(home_id) {
            return Some(*id);
        }
        let bytes = self.store.get(&self.key(b'h', &home_id.to_bytes())).ok()??;
        let id = u64::from_bytes(bytes).ok()?;
        // The store may be behind: the object may be known by another identity since.
        (self.get(id).ok()?.home_id == *home_id).then_some(id)
    }

    /// Where the home has an object.
    pub fn home_path(&mut self, id: u64) -> Result<HomePath> {
        self.path_by(id, |n| n.binding.clone())
    }

    /// Where an object is here.
    pub fn local_path(&mut self, id: u64) -> Result<HomePath> {
        self.path_by(id, |n| n.link.clone())
    }

    /// The ids from an object's directory up to the root, along the links here.
    pub fn ancestors(&mut self, id: u64) -> Vec<u64> {
        let mut chain = Vec::new();
        let mut at = id;
        while at != ROOT_ID && chain.len() < home::name::PATH_MAX / 2 {
            let Some((parent, _)) = self.get(at).ok().and_then(|n| n.link.clone()) else { break };
            chain.push(parent);
            at = parent;
        }
        chain
    }

    /// Whether the home may have an object elsewhere by now, because it or a directory above it is being moved there.
    pub fn is_moving(&mut self, id: u64) -> bool {
        let mut at = id;
        for _ in 0..home::name::PATH_MAX / 2 {
            if self.queue.is_moving(at) {
                return true;
            }
            let Some((parent, _)) = self.get(at).ok().and_then(|n| n.binding.clone()) else { return false };
            at = parent;
        }
        false
    }

    fn path_by(&mut self, id: u64, place: impl Fn(&Inode) -> Option<(u64, Name)>) -> Result<HomePath> {
        let (mut names, mut at, mut len) = (Vec::new(), id, 0);
        while at != ROOT_ID {
            let (parent, name) = place(self.get(at)?).ok_or_else(|| Error::from(ErrorKind::Stale))?;
            len += name.as_bytes().len() + 1;
            if len > home::name::PATH_MAX {
                return Err(ErrorKind::NameTooLong.into());
            }
            names.push(name);
            at = parent;
        }
        let mut path = HomePath::root();
        names.iter().rev().for_each(|n| path.push(n));
        Ok(path)
    }

    /// Takes a name away from an object; without any name left at the home it is gone.
    pub fn unlink(&mut self, dir: u64, name: &Name, id: u64) {
        let Ok(inode) = self.get(id) else { return };
        let place = (dir, name.clone());
        inode.drop_link(&place);
        // What is unsent for an object without a name finds out that it is gone.
        if inode.pending == 0 || !inode.more_bindings.is_empty() {
            inode.drop_binding(&place);
            inode.gone |= inode.link.is_none() && inode.pending == 0;
            self.unsaved.insert(id);
        }
    }

    /// Marks an object for the next record of bindings and the next checkpoint.
    pub fn note(&mut self, id: u64) {
        self.unlogged.push(id);
        self.unsaved.insert(id);
    }

    /// Recovery: enters objects with unsent operations into their directories: the home may know them by another identity.
    pub fn enter_unsent(&mut self) {
        let unsent = self.inodes.iter().filter(|(_, n)| n.pending > 0 && !n.gone);
        let mut places: Vec<(u64, (u64, Name))> =
            unsent.flat_map(|(id, n)| n.link.iter().chain(&n.more_links).map(|l| (*id, l.clone()))).collect();
        places.sort_by_key(|(id, _)| *id);
        // Where two claim a name, the younger one has it.
        for (id, (dir, name)) in places.into_iter().rev() {
            self.copies.note(self.nameless.gateway, id, &name);
            if let Ok(node) = self.names_mut(dir) {
                node.slot_mut(&name).child.get_or_insert(id);
            }
        }
    }

    /// Names of a directory were forgotten: not all are known any more, nor what came of operations on those, and no answer that
    /// was asked for before now tells that.
    pub fn unlist(&mut self, dir: u64) {
        self.tick += 1;
        let forgot = self.tick;
        if let Some(node) = self.get(dir).ok().and_then(|inode| inode.dir.as_deref_mut()) {
            (node.complete, node.forgot) = (false, forgot);
        }
        self.unsaved(dir);
    }

    /// Marks an object for the next checkpoint.
    pub fn unsaved(&mut self, id: u64) {
        self.unsaved.insert(id);
    }

    /// Writes all that changed since the last call into one batch, which then contains what the journal says up to its
    /// record `last`. Answers the objects too, which must be marked again where the batch does not get into the store.
    pub fn checkpoint(&mut self, last: u64) -> (Vec<u64>, Vec<Write>) {
        self.keeping.begun += 1;
        let ids: Vec<u64> = std::mem::take(&mut self.unsaved).into_iter().collect();
        let mut batch: Vec<Write> = self.strays.drain(..).map(|key| (key, None)).collect();
        batch.reserve(ids.len() * 4);
        for id in ids.iter().copied() {
            let Some(b) = self.binding(id) else { continue };
            batch.push((self.key(b'b', &id.to_be_bytes()), Some(b.to_bytes().to_vec())));
            let names = || b.name.iter().chain(b.more.iter().map(|place| &place.name));
            if let Some(hidden) = self.nameless.news_of(id, names()) {
                batch.push((self.key(b'o', &id.to_be_bytes()), hidden.then(Vec::new)));
            }
            if let Some(copy) = self.copies.news_of(self.nameless.gateway, id, names()) {
                batch.push((self.key(b'c', &id.to_be_bytes()), copy.then(Vec::new)));
            }
            self.keep(&b, &mut batch);
            // Of two that the home knows by one identity, the store tells the one that is known by it here.
            if b.id.ino != 0 && self.by_home.get(&b.id).is_none_or(|known| *known == id) {
                batch.push((self.key(b'h', &b.id.to_bytes()), Some(id.to_bytes().to_vec())));
            }
            if b.fileid < OWN_FILEIDS && b.fileid != b.id.ino {
                // The home may give the number to another file, which must then get one of ours.
                let kept = [b.id.fs.to_be_bytes(), b.fileid.to_be_bytes()].concat();
                batch.push((self.key(b'f', &kept), Some(id.to_bytes().to_vec())));
            }
        }
        if !batch.is_empty() {
            batch.push((self.key(b'j', &[]), Some(last.to_bytes().to_vec())));
        }
        (ids, batch)
    }

    /// The last record of the journal whose changes and outcomes the store contains.
    pub fn saved_up_to(&self) -> Result<u64> {
        let bytes = self.store.get(&self.key(b'j', &[])).map_err(local)?;
        bytes.map_or(Ok(0), |b| u64::from_bytes(b).map_err(|_| damaged("last record")))
    }

    /// Drops every object that the store has and nothing unsent depends on, if there are more than `max`. To be called
    /// when the batch of the last checkpoint is in the store.
    pub fn shrink(&mut self, max: usize) {
        if self.inodes.len() <= max {
            return;
        }
        // What is not known any more is not seen to change.
        self.notes.lost();
        let mut keep: HashSet<u64> = self.unsaved.iter().copied().collect();
        keep.insert(ROOT_ID);
        let busy: Vec<u64> = self.inodes.iter().filter(|(_, n)| n.pending > 0).map(|(id, _)| *id).collect();
        for id in busy {
            keep.insert(id);
            keep.extend(self.ancestors(id));
        }
        self.inodes.retain(|id, _| keep.contains(id));
        self.by_home.retain(|_, id| keep.contains(id));
        self.by_fileid.retain(|_, id| keep.contains(id));
        self.dropped = self.tick;
        let inodes = &self.inodes;
        let alive: HashSet<u64> = inodes.keys().copied().collect();
        for dir in self.inodes.values_mut().filter_map(|n| n.dir.as_deref_mut()) {
            (dir.complete, dir.unread, dir.forgot) = (false, true, self.tick);
            dir.names.retain(|_, (_, s)| s.pending > 0 || s.child.is_some_and(|c| alive.contains(&c)));
        }
    }

    /// Forgets an object that has no name and nothing unsent.
    pub fn drop_gone(&mut self, id: u64) {
        if let Some(inode) = self.inodes.get(&id)
            && inode.gone
            && inode.pending == 0
        {
            let home_id = inode.home_id;
            if self.by_home.get(&home_id) == Some(&id) {
                self.by_home.remove(&home_id);
            }
        }
    }

    fn load(&mut self, id: u64) -> Option<()> {
        let bytes = self.store.get(&self.key(b'b', &id.to_be_bytes())).ok()??;
        let b = Binding::from_bytes(bytes).ok()?;
        // What has been found out since it was kept is newer.
        let known = self.by_home.get(&b.id).copied();
        let mut inode = Inode::new(b.kind, b.fileid, b.id);
        inode.settled = Settled { tick: self.dropped, seq: u64::MAX };
        inode.dir.iter_mut().for_each(|node| node.forgot = self.dropped);
        self.insert(id, inode);
        known.and_then(|known| self.by_home.insert(b.id, known));
        self.apply_binding(&b);
        self.recall(id);
        Some(())
    }

    fn insert(&mut self, id: u64, inode: Inode) {
        if inode.home_id.ino != 0 {
            self.by_home.insert(inode.home_id, id);
        }
        self.by_fileid.insert((inode.home_id.fs, inode.fileid), id);
        self.inodes.insert(id, inode);
    }

    /// The home's inode number where it is free, else a number of ours: two live files never share one. The root of
    /// a file system has one of ours too: a client shows it with the device of the folder above until it has mounted it,
    /// and most file systems have the same number for their roots, so that `find` would see a loop.
    fn fileid_for(&mut self, id: u64, above: &HomeId, home_id: &HomeId) -> u64 {
        let ino = home_id.ino;
        if above.ino != 0 && above.fs != home_id.fs {
            return OWN_FILEIDS + id;
        }
        let kept = self.key(b'f', &[home_id.fs.to_be_bytes(), ino.to_be_bytes()].concat());
        let taken = self.by_fileid.contains_key(&(home_id.fs, ino))
            || self.store.get(&kept).is_ok_and(|owner| owner.is_some());
        if ino == 0 || ino >= OWN_FILEIDS || taken { OWN_FILEIDS + id } else { ino }
    }

    fn reserve(&mut self) -> Result<()> {
        let reserved = self.next_id + limits::IDS_RESERVED;
        let write = (self.key(b'n', &[]), Some(reserved.to_bytes().to_vec()));
        self.store.commit(vec![write]).and_then(|()| self.store.persist()).map_err(|e| match e {
            crate::env::Error::Full(why) => Error::new(ErrorKind::Full, why),
            e => local(e),
        })?;
        self.reserved = reserved;
        Ok(())
    }

    fn key(&self, space: u8, rest: &[u8]) -> Vec<u8> {
        [&[space][..], &self.volume.to_be_bytes(), rest].concat()
    }
}

/// A failure of local state as callers see it.
pub fn local(e: crate::env::Error) -> Error {
    use crate::env::Error as E;
    let kind = if matches!(e, E::Full(_)) { ErrorKind::NoSpace } else { ErrorKind::Io };
    Error::new(kind, e.to_string())
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("the local store is damaged: {what}"))
}

#[cfg(test)]
#[path = "inode/tests.rs"]
pub mod tests;
