//! Changes of extended attributes.

use super::super::sys::Sys;
use super::{Act, Batch};
use crate::Loc;
use crate::error::ErrorKind;
use crate::op::{Done, Placed};
use crate::posix::resolve::Found;
use crate::xattr::{XattrHow, XattrName, may_have};
use bytes::Bytes;
use rustix::io::Errno;

impl<S: Sys> Batch<'_, S> {
    /// Sets or removes one extended attribute of the object itself, whatever becomes of its path meanwhile.
    pub(super) fn set_xattr(
        &mut self,
        placed: &Placed,
        at: &Loc,
        name: &XattrName,
        value: Option<&Bytes>,
        how: XattrHow,
    ) -> Act<Done> {
        let found = self.home.find(at)?;
        if !may_have(found.attr.kind) {
            return Err(ErrorKind::Perm.into());
        }
        self.finds(&found.attr);
        let how = if placed.plain { how } else { XattrHow::Any };
        let attr = self.moving(placed, &found, |batch| {
            match batch.sys().change_xattr(&found.fd, name.as_bytes(), value.map(|v| &v[..]), how) {
                Ok(()) => {}
                Err(Errno::NODATA) if value.is_none() && (!placed.plain || placed.resent) => {}
                Err(Errno::EXIST) if placed.resent && batch.has(&found.fd, name, value) => {}
                Err(e) => return Err(e.into()),
            }
            Ok(batch.home.attr_of(&found.fd)?)
        })?;
        self.sync_attrs(placed, at, Found { attr, ..found })?;
        Ok(Done { attr: Some(attr), dirs: Vec::new() })
    }

    fn has(&self, fd: &S::Fd, name: &XattrName, value: Option<&Bytes>) -> bool {
        self.sys().xattr(fd, name.as_bytes()).ok().as_deref() == value.map(|v| &v[..])
    }
}
