//! Where the home has an object, as the journal and the store tell it to the next start.

use super::{Inode, Tree, is_hidden};
use crate::journal::{Binding, Place};
use crate::limits;
use crate::meta::shown_ctime;

impl Tree {
    /// Bindings that have no journal record yet.
    pub fn take_unlogged(&mut self) -> Vec<Binding> {
        let ids = std::mem::take(&mut self.unlogged);
        ids.into_iter().filter_map(|id| self.binding(id)).collect()
    }

    /// The next record of bindings has this object.
    pub fn unlogged(&mut self, id: u64) {
        self.unlogged.push(id);
    }

    /// What the store should know of an object.
    pub fn binding(&mut self, id: u64) -> Option<Binding> {
        let gateway = self.nameless.gateway;
        let inode = self.get(id).ok()?;
        let (parent, name) = inode.binding.clone().map_or((0, None), |(p, n)| (p, Some(n)));
        // The newest are told. Each outcome tells them all, and a hidden name must be found again.
        let (older, newest) =
            inode.more_bindings.split_at(inode.more_bindings.len().saturating_sub(limits::NAMES_TOLD));
        let more = older.iter().filter(|(_, name)| is_hidden(gateway, name)).chain(newest);
        Some(Binding {
            object: id,
            parent,
            name,
            id: inode.home_id,
            kind: inode.kind,
            version: inode.base,
            fileid: inode.fileid,
            ctime_shown: inode.shown.map(|(_, t)| inode.attr.map_or(t, |a| shown_ctime(inode, &a))),
            verifier: inode.verifier,
            more: more.map(|(parent, name)| Place { parent: *parent, name: name.clone() }).collect(),
        })
    }

    /// Lays a recorded binding over what is known.
    pub fn restore(&mut self, b: &Binding) {
        let known = self.get(b.object).is_ok();
        if !known {
            self.insert(b.object, Inode::new(b.kind, b.fileid, b.id));
        }
        self.next_id = self.next_id.max(b.object + 1);
        for name in b.name.iter().chain(b.more.iter().map(|place| &place.name)) {
            self.nameless.note(b.object, name);
            self.copies.note(self.nameless.gateway, b.object, name);
        }
        self.apply_binding(b);
        self.rebind(b.object, b.id, b.name.clone().map(|n| (b.parent, n)));
    }

    pub(super) fn apply_binding(&mut self, b: &Binding) {
        let Some(inode) = self.inodes.get_mut(&b.object) else { return };
        inode.base = b.version;
        inode.base_len = b.version.map_or(0, |v| v.size);
        // The store may know a later one than a record of the journal, which has not everything that raises it.
        if let Some(time) = b.ctime_shown
            && inode.shown.is_none_or(|(_, known)| known <= time)
        {
            inode.shown = Some((b.version, time));
        }
        inode.verifier = b.verifier;
        let place = b.name.clone().map(|n| (b.parent, n));
        if inode.link.is_none() || inode.link == inode.binding {
            inode.link = place.clone();
            // A removal came to the home before this: the name is one that it was found by since.
            inode.gone &= place.is_none();
            inode.more_links = b.more.iter().map(|p| (p.parent, p.name.clone())).collect();
        }
        inode.binding = place;
        inode.more_bindings = b.more.iter().map(|p| (p.parent, p.name.clone())).collect();
        inode.keep_to_base();
    }
}
