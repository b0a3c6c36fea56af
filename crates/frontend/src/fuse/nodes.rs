//! Which object a node id of the kernel means.
//!
//! A node id is also the inode number that programs see. Its lower half is that of the object's fileid, which is the
//! home's own inode number where that is free: git's index keeps no more of it, so that one which was made at the home
//! is good here, and programs which read files in the order of their numbers, as cp does, read them in the home's order.
//! Its upper half is of a keyed hash of the rest of the fileid and of the file system. Thus a number is the same in every
//! session of a state directory, for programs which remember numbers, and unique over all homes, which share the mount's
//! one device number. An id is only good from the lookup that gave it to the kernel until the kernel forgets it, so that
//! one of an earlier session is stale; it may come to mean another object when the home has given the number of a
//! removed one again, and the generation tells the two apart.

use fuser::Generation;
use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hasher;
use vfs::{FileAttr, Oid, Time, Wcc};

/// The node id of the root of the mount (`FUSE_ROOT_ID`).
pub const ROOT: u64 = 1;

/// The table of one session.
pub struct Nodes {
    key: [u8; 16],
    root: Oid,
    table: Mutex<Table>,
}

/// What the kernel knows, by node id and by object.
#[derive(Default)]
struct Table {
    nodes: HashMap<u64, Node>,
    ids: HashMap<Oid, u64>,
}

struct Node {
    oid: Oid,
    /// How often the kernel was told of it; forgets are counted against this.
    lookups: u64,
    /// The content that the kernel's page cache may hold.
    cached: Option<Content>,
}

/// What tells one content of a file from another.
type Content = (Time, u64);

impl Nodes {
    /// A table in which the root is known.
    pub fn new(key: [u8; 16], root: Oid) -> Nodes {
        Nodes { key, root, table: Mutex::default() }
    }

    /// The object of a node id that the kernel has.
    pub fn get(&self, node: u64) -> Option<Oid> {
        match node {
            ROOT => Some(self.root),
            node => self.table.lock().nodes.get(&node).map(|n| n.oid),
        }
    }

    /// The node id of an object that the kernel is told of once more.
    pub fn remember(&self, oid: Oid, attr: &FileAttr) -> u64 {
        if oid == self.root {
            return ROOT;
        }
        let mut table = self.table.lock();
        if let Some(&node) = table.ids.get(&oid) {
            if let Some(known) = table.nodes.get_mut(&node) {
                known.lookups += 1;
            }
            return node;
        }
        let free = (0..).map(|salt| self.hash(attr, salt)).find(|node| !table.nodes.contains_key(node));
        let node = free.unwrap_or(ROOT);
        table.nodes.insert(node, Node { oid, lookups: 1, cached: None });
        table.ids.insert(oid, node);
        node
    }

    /// The number that an object has, or would have, for programs; the kernel is told nothing.
    pub fn number(&self, oid: Oid, attr: &FileAttr) -> u64 {
        self.known(oid).unwrap_or_else(|| self.hash(attr, 0))
    }

    /// The node id of an object, if the kernel knows it.
    pub fn known(&self, oid: Oid) -> Option<u64> {
        if oid == self.root { Some(ROOT) } else { self.table.lock().ids.get(&oid).copied() }
    }

    /// All node ids that the kernel knows.
    pub fn all(&self) -> Vec<u64> {
        std::iter::once(ROOT).chain(self.table.lock().nodes.keys().copied()).collect()
    }

    /// The kernel has forgotten that many lookups.
    pub fn forget(&self, node: u64, lookups: u64) {
        let mut table = self.table.lock();
        if let Entry::Occupied(mut known) = table.nodes.entry(node) {
            let left = known.get().lookups.saturating_sub(lookups);
            known.get_mut().lookups = left;
            if left == 0 {
                let Node { oid, .. } = known.remove();
                table.ids.remove(&oid);
            }
        }
    }

    /// Whether the kernel's page cache still holds this content; from now on it will.
    pub fn still_cached(&self, node: u64, attr: &FileAttr) -> bool {
        let now = Some((attr.mtime, attr.size));
        let mut table = self.table.lock();
        let Some(node) = table.nodes.get_mut(&node) else { return false };
        std::mem::replace(&mut node.cached, now) == now
    }

    /// The kernel itself has changed content, and its page cache with it. Where somebody else changed it before, the
    /// cache stays out of date.
    pub fn changed_here(&self, node: u64, wcc: &Wcc) {
        let (Some(before), Some(after)) = (&wcc.before, &wcc.after) else { return };
        if let Some(node) = self.table.lock().nodes.get_mut(&node)
            && node.cached == Some((before.mtime, before.size))
        {
            node.cached = Some((after.mtime, after.size));
        }
    }

    fn hash(&self, attr: &FileAttr, salt: u32) -> u64 {
        let lower = attr.fileid & u64::from(u32::MAX);
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write_u64(attr.fsid);
        hasher.write_u64(attr.fileid - lower);
        hasher.write_u32(salt);
        // Positive as a signed number, because some programs keep it as one; never 0 or the root.
        ((hasher.finish() >> 33 << 32) | lower).max(ROOT + 1)
    }
}

/// Tells an object from another one that had its node id before.
pub fn generation(oid: Oid) -> Generation {
    Generation(oid.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(id: u64) -> Oid {
        Oid { volume: 7, id }
    }

    fn attr(fsid: u64, fileid: u64) -> FileAttr {
        FileAttr {
            kind: vfs::Kind::File,
            mode: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            fsid,
            fileid,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        }
    }

    #[test]
    fn an_id_is_good_from_lookup_to_forget() {
        let nodes = Nodes::new([1; 16], Oid::ROOT);
        let at = attr(7, 5);
        let node = nodes.remember(oid(5), &at);
        assert_eq!((nodes.remember(oid(5), &at), nodes.number(oid(5), &at)), (node, node));
        assert_eq!((nodes.known(oid(5)), nodes.known(oid(6))), (Some(node), None));
        assert_eq!(nodes.all(), [ROOT, node]);
        nodes.forget(node, 1);
        assert_eq!(nodes.get(node), Some(oid(5)));
        nodes.forget(node, 1);
        assert_eq!(nodes.get(node), None);
        nodes.forget(node, 1);
    }

    #[test]
    fn two_objects_that_the_kernel_knows_never_share_an_id() {
        let nodes = Nodes::new([1; 16], Oid::ROOT);
        let at = attr(7, 5);
        let removed = nodes.remember(oid(5), &at);
        let new = nodes.remember(oid(6), &at);
        assert_ne!(removed, new);
        nodes.forget(new, 1);
        nodes.forget(removed, 1);
        assert_eq!(nodes.remember(oid(6), &at), removed, "the number that it will have in other sessions");
        assert_ne!(generation(oid(5)), generation(oid(6)));
    }

    #[test]
    fn the_root_is_always_known() {
        let nodes = Nodes::new([1; 16], oid(9));
        assert_eq!((nodes.remember(oid(9), &attr(7, 5)), nodes.get(ROOT)), (ROOT, Some(oid(9))));
        nodes.forget(ROOT, 1);
        assert_eq!(nodes.get(ROOT), Some(oid(9)));
    }

    #[test]
    fn numbers_stay_over_sessions_and_differ_between_file_systems() {
        let (one, two) = (Nodes::new([1; 16], Oid::ROOT), Nodes::new([1; 16], Oid::ROOT));
        assert_eq!(one.number(oid(5), &attr(7, 5)), two.remember(oid(5), &attr(7, 5)));
        assert_eq!(one.get(two.number(oid(5), &attr(7, 5))), None, "a node id of another session");
        assert_ne!(one.number(oid(5), &attr(7, 5)), one.number(oid(6), &attr(8, 5)));
    }

    #[test]
    fn numbers_have_the_order_and_the_lower_half_of_the_homes() {
        let nodes = Nodes::new([1; 16], Oid::ROOT);
        let inode = 0xab_1234_5678;
        let (one, next) =
            (nodes.remember(oid(5), &attr(7, inode)), nodes.number(oid(6), &attr(7, inode + 1)));
        assert_eq!((one as u32, next), (0x1234_5678, one + 1));
        assert!(i64::try_from(one).is_ok() && one > ROOT);
        let above = nodes.number(oid(8), &attr(7, inode + (1 << 32)));
        assert_eq!(above as u32, 0x1234_5678);
        assert_ne!(above, one);
    }

    #[test]
    fn the_page_cache_is_kept_over_our_own_changes_alone() {
        let nodes = Nodes::new([1; 16], Oid::ROOT);
        let node = nodes.remember(oid(5), &attr(1, 5));
        let attr = |sec, size| FileAttr { size, mtime: Time { sec, nsec: 0 }, ..attr(1, 5) };
        let change = |from: FileAttr, to: FileAttr| Wcc {
            before: Some(vfs::Before { size: from.size, mtime: from.mtime, ctime: from.ctime }),
            after: Some(to),
        };
        assert!(!nodes.still_cached(node, &attr(1, 1)), "never opened before");
        assert!(nodes.still_cached(node, &attr(1, 1)));
        nodes.changed_here(node, &change(attr(1, 1), attr(2, 2)));
        assert!(nodes.still_cached(node, &attr(2, 2)), "our own write");
        nodes.changed_here(node, &change(attr(3, 2), attr(4, 2)));
        assert!(!nodes.still_cached(node, &attr(4, 2)), "a write over somebody else's");
    }
}
