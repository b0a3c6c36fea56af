//! Extended attributes (xattr(7)): those of the namespace `user.`, where the home has them.

use super::{is_small_listing, live};
use crate::Vfs;
use crate::fetch::{Extent, Want};
use crate::inode::{Lookup, Tree};
use crate::journal::Change;
use crate::limits;
use crate::meta;
use crate::mutate::Ticket;
use crate::overlay::changed;
use crate::perm::check_writable;
use crate::sync::queue::objects;
use crate::types::{Ctx, Oid};
use crate::volume::Volume;
use bytes::Bytes;
use home::xattr::may_have;
use home::{Attr, Error, ErrorKind, Kind, Op, Result, XattrHow, XattrName};
use std::sync::Arc;

/// Tells the mode that is in force for an object. No home keeps it, and no list has it, so that nothing copies it.
const MODE: &[u8] = b"user.trellis.mode";
/// Tells whether the home has all that was done to an object here: `clean`, `unsent` or `refused: REASON`. Otherwise as
/// the mode.
const STATE: &[u8] = b"user.trellis.state";

impl Vfs {
    /// The value of an attribute; [`ErrorKind::NoAttribute`] where there is none, [`ErrorKind::Unsupported`] for another
    /// namespace than `user.` and where the home keeps none.
    pub async fn getxattr(&self, ctx: Ctx<'_>, oid: Oid, name: &[u8]) -> Result<Bytes> {
        let name = XattrName::new(name)?;
        if oid.volume == Oid::ROOT_VOLUME {
            return self.own_attr(oid).and(Err(ErrorKind::NoAttribute.into()));
        }
        let volume = self.volume(oid)?;
        if name.as_bytes() == MODE {
            return Ok(Bytes::from_static(volume.mode_of(oid.id).name().as_bytes()));
        }
        if name.as_bytes() == STATE {
            return state(&mut volume.tree.lock(), oid.id).map(Bytes::from);
        }
        let look = |tree: &mut Tree, attr: &Attr, asked: bool| {
            if !may_have(attr.kind) {
                return Err(ErrorKind::NoAttribute.into());
            }
            if !volume.access_of(ctx.cred, attr).read {
                return Err(ErrorKind::Access.into());
            }
            match tree.xattr(oid.id, &name)? {
                Lookup::Value(value) => Ok(Some(value)),
                Lookup::Absent => Err(ErrorKind::NoAttribute.into()),
                // The home was asked for the value, and may not read it.
                Lookup::There if asked => Err(ErrorKind::Access.into()),
                Lookup::There | Lookup::Unknown => Ok(None),
            }
        };
        volume.with_xattrs(oid.id, Some(&name), look).await
    }

    /// The names of all attributes of an object, in the order of their bytes.
    pub async fn listxattr(&self, _ctx: Ctx<'_>, oid: Oid) -> Result<Vec<XattrName>> {
        if oid.volume == Oid::ROOT_VOLUME {
            return self.own_attr(oid).map(|_| Vec::new());
        }
        let volume = self.volume(oid)?;
        let look = |tree: &mut Tree, attr: &Attr, _| match may_have(attr.kind) {
            true => Ok(tree.xattr_names(oid.id)?.map(|names| names.into_iter().collect())),
            false => Ok(Some(Vec::new())),
        };
        volume.with_xattrs(oid.id, None, look).await
    }

    /// Sets an attribute. [`ErrorKind::Exists`] and [`ErrorKind::NoAttribute`] where `how` expects something else.
    pub async fn setxattr(
        &self,
        ctx: Ctx<'_>,
        oid: Oid,
        name: &[u8],
        value: Bytes,
        how: XattrHow,
    ) -> Result<()> {
        if value.len() > home::limits::XATTR_VALUE_MAX {
            return Err(Error::new(ErrorKind::TooBig, "the value of an attribute is longer than 64 KiB"));
        }
        self.change_xattr(ctx, oid, name, Some(value), how).await
    }

    /// Removes an attribute, which must be there.
    pub async fn removexattr(&self, ctx: Ctx<'_>, oid: Oid, name: &[u8]) -> Result<()> {
        self.change_xattr(ctx, oid, name, None, XattrHow::Replace).await
    }

    async fn change_xattr(
        &self,
        ctx: Ctx<'_>,
        oid: Oid,
        name: &[u8],
        value: Option<Bytes>,
        how: XattrHow,
    ) -> Result<()> {
        let name = XattrName::new(name)?;
        let volume = self.writable(oid)?;
        if name.as_bytes() == MODE {
            return Err(Error::new(ErrorKind::Perm, "a mode is changed in the configuration"));
        }
        if name.as_bytes() == STATE {
            return Err(Error::new(ErrorKind::Perm, "what the home has is told, not set"));
        }
        let look = |tree: &mut Tree, attr: &Attr, _| {
            volume.may_change_xattrs(ctx, tree, oid.id, attr)?;
            if !volume.plain() && !volume.is_expected(tree, oid.id, &name, how)? {
                return Ok(None);
            }
            let through = volume.plain() || volume.may_not_fit(tree, oid.id, value.as_ref())?;
            if through && !volume.connects() {
                return Err(volume.offline());
            }
            let value = value.clone();
            let op = Op::SetXattr { object: oid.id, name: name.clone(), value, how };
            volume.submit_xattr(tree, ctx, oid.id, op, through).map(Some)
        };
        let ticket = volume.with_xattrs(oid.id, Some(&name), look).await?;
        volume.settled(ticket).await
    }
}

/// What [`STATE`] tells of an object: of a folder also what becomes of the names in it. Of several changes that the home
/// refused the oldest one's reason.
fn state(tree: &mut Tree, id: u64) -> Result<String> {
    if tree.get(id)?.pending == 0 {
        return Ok("clean".into());
    }
    let mut refused = tree.queue.iter().filter_map(|(_, op)| Some((op.parked?, &op.change)));
    let of_it = refused.find(|(_, change)| objects(change).any(|o| o == id));
    Ok(of_it.map_or_else(|| "unsent".into(), |(why, _)| format!("refused: {why}")))
}

impl Volume {
    /// Looks at what is known of an object's attributes, and asks the home until that is enough: until `look` finds an
    /// answer. It is told whether the home was asked for the attributes of this very object.
    async fn with_xattrs<T>(
        self: &Arc<Self>,
        id: u64,
        name: Option<&XattrName>,
        mut look: impl FnMut(&mut Tree, &Attr, bool) -> Result<Option<T>>,
    ) -> Result<T> {
        let need = self.need(id);
        let mut asked = false;
        for round in 0..limits::QUESTIONS {
            self.ensure_attr(id, need).await?;
            let want = {
                let mut tree = self.tree.lock();
                let attr = Volume::attr_of(&mut tree, id)?;
                if let Some(found) = look(&mut tree, &attr, asked)? {
                    return Ok(found);
                }
                if tree.keeps_xattrs(id, self.env.clock.instant())? == Some(false) {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        "the home keeps no extended attributes there",
                    ));
                }
                self.xattr_question(&mut tree, id, name, round)?
            };
            asked = matches!(&want, Want::Xattrs(at, _) if *at == id);
            self.ask(want, false).await?;
        }
        Err(Error::new(ErrorKind::Busy, "the object keeps changing"))
    }

    /// What to ask for. A listing tells of all objects of a small directory which have no attributes; what the home does
    /// not have yet will be in the file system of the nearest directory that it has.
    fn xattr_question(
        &self,
        tree: &mut Tree,
        id: u64,
        name: Option<&XattrName>,
        round: usize,
    ) -> Result<Want> {
        let inode = live(tree, id)?;
        // Where it is at the home: its directory here may not be there yet.
        let listed = inode.binding.as_ref().map(|(dir, _)| *dir);
        let listed = listed.filter(|_| round == 0 && inode.xattrs_unknown() && !self.plain());
        if let Some(dir) = listed.filter(|dir| is_small_listing(tree, *dir)) {
            return Ok(Want::List(dir, Extent::Whole));
        }
        let places: Vec<u64> = std::iter::once(id).chain(tree.ancestors(id)).collect();
        let at = places.into_iter().find(|at| Volume::loc(tree, *at).is_ok());
        let at = at.ok_or_else(|| Error::from(ErrorKind::Stale))?;
        Ok(Want::Xattrs(at, name.filter(|_| at == id).cloned()))
    }

    /// Permission as a local file system asks for it (xattr(7)): that to write the object, whatever it was opened for.
    fn may_change_xattrs(&self, ctx: Ctx<'_>, tree: &mut Tree, id: u64, attr: &Attr) -> Result<()> {
        let sticky = attr.kind == Kind::Dir && attr.mode & 0o1000 != 0;
        if !may_have(attr.kind) || (sticky && !self.owns(ctx.cred, attr)) {
            return Err(ErrorKind::Perm.into());
        }
        check_writable(attr)?;
        if !self.access_of(ctx.cred, attr).may_write() {
            return Err(ErrorKind::Access.into());
        }
        self.guard.lock().clone().check_object(tree, id)
    }

    /// Whether an attribute may be changed like that; false where the home has to be asked first.
    fn is_expected(&self, tree: &mut Tree, id: u64, name: &XattrName, how: XattrHow) -> Result<bool> {
        if tree.keeps_xattrs(id, self.env.clock.instant())? != Some(true) {
            return Ok(false);
        }
        if how == XattrHow::Any {
            return Ok(true);
        }
        match (tree.xattr(id, name)?, how) {
            (Lookup::Unknown, _) => Ok(false),
            (Lookup::Absent, XattrHow::Replace) => Err(ErrorKind::NoAttribute.into()),
            (Lookup::Value(_) | Lookup::There, XattrHow::Create) => Err(ErrorKind::Exists.into()),
            _ => Ok(true),
        }
    }

    /// Whether a home may have no room for a value, so that its caller has to wait for it in any mode: it is better
    /// refused than kept here for ever. Where something is parked nobody waits for what may have to wait with it.
    fn may_not_fit(&self, tree: &mut Tree, id: u64, value: Option<&Bytes>) -> Result<bool> {
        let Some(value) = value else { return Ok(false) };
        let small =
            value.len() <= limits::XATTR_SMALL && tree.xattr_bytes(id)? + value.len() <= limits::XATTR_ROOM;
        Ok(!small && !tree.queue.has_parked())
    }

    /// Accepts a change of an attribute: besides it only ctime moves. One that goes `through` is
    /// seen by nobody before the home has it, which then tells the object's ctime; its caller waits.
    fn submit_xattr(
        &self,
        tree: &mut Tree,
        ctx: Ctx<'_>,
        id: u64,
        op: Op<u64, crate::journal::Stored>,
        through: bool,
    ) -> Result<Ticket> {
        let time = self.env.clock.now();
        let inode = live(tree, id)?;
        let attr = inode.attr.ok_or_else(|| Error::from(ErrorKind::Stale))?;
        let after = (!through).then(|| changed(&attr, meta::shown_ctime(inode, &attr), time));
        let change = self.change(ctx, time, id, after, op);
        self.submit(tree, ctx.origin, Change { plain: through, ..change })
    }
}
