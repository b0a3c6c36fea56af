//! Asking for the rest of a path. Where each call asks the home (mode `strict`), a front-end looks the names of a path up
//! one after the other, and each would cost a round trip. Most paths lead on as the last one through the same directory
//! did: with a name the home is asked, at the same time, for those that followed it then.
//!
//! What is brought so answers only calls that began before it was asked for ([`Ctx::since`]).

use crate::fetch::Want;
use crate::inode::Tree;
use crate::limits;
use crate::types::Ctx;
use crate::volume::Volume;
use home::Name;
use std::sync::Arc;

impl Volume {
    /// A call looks a name up: asks for what the path led to from there the last time, unless an earlier look-up of the
    /// same call did.
    pub(super) fn path_ahead(self: &Arc<Self>, ctx: Ctx<'_>, dir: u64, name: &Name) {
        let Some(since) = ctx.since.filter(|_| self.plain()) else { return };
        let is_asked = self.is_asked(&Want::Look(dir, name.clone()));
        let wanted = {
            let mut tree = self.tree.lock();
            leads_on(&mut tree, dir, name);
            let slot = tree.peek(dir).and_then(|inode| inode.names().ok()?.slot(name));
            match slot {
                Some(slot) if !is_asked && slot.at < since => rest(&tree, slot.child),
                _ => Vec::new(),
            }
        };
        wanted.into_iter().for_each(|(dir, name)| self.ask_ahead(Want::Look(dir, name)));
    }

    /// The same for a call that comes to a directory from without the home.
    pub fn path_below(self: &Arc<Self>, ctx: Ctx<'_>, dir: u64) {
        if ctx.since.is_some() && self.plain() {
            let wanted = rest(&self.tree.lock(), Some(dir));
            wanted.into_iter().for_each(|(dir, name)| self.ask_ahead(Want::Look(dir, name)));
        }
    }
}

/// Notes that a path went from a directory to this name.
fn leads_on(tree: &mut Tree, dir: u64, name: &Name) {
    if let Some(node) = tree.get(dir).ok().and_then(|inode| inode.dir.as_deref_mut()) {
        node.last_looked = Some(node.cookie(name));
    }
}

/// The directories of a path, and the name that the last one went to in each.
fn rest(tree: &Tree, mut at: Option<u64>) -> Vec<(u64, Name)> {
    let mut found = Vec::new();
    while let Some(dir) = at.filter(|_| found.len() < limits::PATH_AHEAD) {
        let node = tree.peek(dir).and_then(|inode| inode.names().ok());
        let Some((name, slot)) = node.and_then(|node| node.named(node.last_looked?)) else { break };
        at = slot.child;
        found.push((dir, name.clone()));
    }
    found
}
