//! What keeps a file usable that loses its last name while it is open, and what removes it afterwards; see
//! [`crate::inode::Nameless`]. All of it is made of ordinary changes, so that order, write-back, mode `strict`
//! and recovery hold for it as for any other.

use super::live;
use crate::inode::{Tree, hidden_name};
use crate::limits;
use crate::meta;
use crate::mutate::Ticket;
use crate::overlay::changed;
use crate::types::{Cred, Ctx};
use crate::volume::Volume;
use home::{Attr, Kind, Name, Op, Result};
use std::sync::Arc;

impl Volume {
    /// Whether an object must stay when it loses the name `place`: it is open, and no other name of it is known.
    pub(super) fn must_stay(&self, tree: &mut Tree, id: u64, place: &(u64, Name)) -> bool {
        tree.nameless.is_open(id)
            && live(tree, id).is_ok_and(|inode| {
                let mut names = inode.link.iter().chain(&inode.more_links);
                inode.kind == Kind::File && names.all(|name| name == place)
            })
    }

    /// Takes the name `place` from an object by giving it a hidden one.
    pub(super) fn hide(&self, tree: &mut Tree, ctx: Ctx<'_>, id: u64, place: (u64, Name)) -> Result<Ticket> {
        let hidden = hidden_name(self.shared.gateway, id);
        self.move_to(tree, ctx, id, place.clone(), (place.0, hidden))
    }

    /// Gives an object that is about to be replaced a hidden name beside its own: so there is no moment, and no crash,
    /// in which the name that is taken stands for nothing. The ticket is kept until the object is replaced, as a sign
    /// that somebody waits for that.
    pub(super) fn keep_beside(&self, tree: &mut Tree, ctx: Ctx<'_>, id: u64, dir: u64) -> Result<Ticket> {
        let time = self.env.clock.now();
        let inode = live(tree, id)?;
        let last = inode.attr.map(|attr| (attr, meta::shown_ctime(inode, &attr)));
        let after = last.map(|(attr, shown)| Attr { nlink: attr.nlink + 1, ..changed(&attr, shown, time) });
        let op = Op::Link { object: id, dir, name: hidden_name(self.shared.gateway, id) };
        let again = Ctx { retry: None, ..ctx };
        self.submit(tree, ctx.origin, self.change(again, time, id, after, op))
    }

    /// Moves what is hidden in a directory that is about to go into the one above. The caller has checked that it may
    /// go: whoever may remove the directory may change that one as well.
    pub(super) async fn lift_nameless(self: &Arc<Self>, ctx: Ctx<'_>, dir: u64, up: u64) -> Result<()> {
        let tickets = {
            let mut tree = self.tree.lock();
            let hidden = tree.names(dir)?.hidden(self.shared.gateway);
            let hidden: Vec<(Name, u64)> = hidden.map(|(name, id)| (name.clone(), id)).collect();
            let again = Ctx { retry: None, ..ctx };
            let moved = hidden
                .into_iter()
                .map(|(name, id)| self.move_to(&mut tree, again, id, (dir, name.clone()), (up, name)));
            moved.collect::<Result<Vec<Ticket>>>()?
        };
        for ticket in tickets.into_iter().filter(|_| self.plain()) {
            self.settled(ticket).await?;
        }
        Ok(())
    }

    fn move_to(
        &self,
        tree: &mut Tree,
        ctx: Ctx<'_>,
        id: u64,
        from: (u64, Name),
        to: (u64, Name),
    ) -> Result<Ticket> {
        let time = self.env.clock.now();
        let inode = live(tree, id)?;
        let after = inode.attr.map(|attr| changed(&attr, meta::shown_ctime(inode, &attr), time));
        let op =
            Op::Rename { from: from.0, name: from.1, object: id, to: to.0, new_name: to.1, replaced: None };
        self.submit(tree, ctx.origin, self.change(ctx, time, id, after, op))
    }

    /// Removes every object without a name that nobody has open any more: those whose removal could not be accepted or
    /// was refused, and those that an earlier process left behind.
    pub fn remove_nameless(&self) {
        let mut tree = self.tree.lock();
        for id in tree.nameless.removable(self.env.clock.instant()) {
            self.remove_if_nameless(&mut tree, id);
        }
    }

    /// Removes an object that nobody has open, if it has a hidden name.
    pub(super) fn remove_if_nameless(&self, tree: &mut Tree, id: u64) {
        let gateway = self.shared.gateway;
        let found = tree.get(id).ok().map(|inode| (inode.pending, inode.hidden_link(gateway).cloned()));
        let Some((pending, place)) = found else { return tree.nameless.forget(id) };
        let Some((dir, name)) = place else {
            // In mode `strict` a name is hidden only when the home has answered.
            return if pending == 0 || !self.plain() {
                tree.nameless.forget(id)
            };
        };
        let base = self.base_of(tree, id);
        let op = Op::Remove { dir, name, object: id, is_dir: false, base };
        let nobody = Cred { uid: self.shared.server_uid, gid: self.shared.server_gid, groups: Vec::new() };
        let change = self.change(Ctx::of(&nobody), self.env.clock.now(), id, None, op);
        tree.nameless.tried(id, self.env.clock.instant() + limits::REFUSED_PAUSE);
        if let Err(e) = self.submit(tree, 0, change) {
            tracing::debug!(account = %self.account, id, "a file without a name is removed later: {e}");
        }
    }
}
