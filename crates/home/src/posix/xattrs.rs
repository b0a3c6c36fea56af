//! Reading extended attributes.

use super::sys::Sys;
use super::{Posix, failed};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::XATTR_TOGETHER;
use crate::xattr::may_have;
use crate::{Kind, Loc, Xattr, XattrName, Xattrs};
use bytes::Bytes;
use rustix::io::Errno;

/// Nobody has this attribute: asking for it tells whether a file system has any.
const PROBE: &[u8] = b"user.trellis.probe";

impl<S: Sys> Posix<S> {
    /// Extended attributes of an object; see [`crate::Home::xattrs`].
    pub fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        let applied = self.applied();
        let found = self.find(at)?;
        let mut list = Vec::new();
        if may_have(found.attr.kind) {
            let doing = |e| failed(e, format_args!("extended attributes of {}", at.path));
            let names = self.sys.xattr_names(&found.fd).map_err(doing)?;
            let mut names: Vec<XattrName> = ours(&names).filter_map(|n| XattrName::new(n).ok()).collect();
            names.sort();
            if names.is_empty() && self.sys.xattr(&found.fd, PROBE) == Err(Errno::OPNOTSUPP) {
                let text = format!("{}: its file system keeps no extended attributes", at.path);
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            let mut room = XATTR_TOGETHER;
            for name in names {
                let wanted = want == Some(&name);
                match self.value(&found.fd, &name, wanted || room > 0) {
                    // Removed meanwhile.
                    Err(Errno::NODATA) => {}
                    Ok(Some(value)) if !wanted && value.len() > room => {
                        list.push(Xattr { name, value: None })
                    }
                    Ok(value) => {
                        room = room.saturating_sub(value.as_ref().map_or(0, Bytes::len));
                        list.push(Xattr { name, value });
                    }
                    Err(e) => return Err(doing(e)),
                }
            }
        }
        Ok(Xattrs { applied, attr: found.attr, list })
    }

    fn value(&self, fd: &S::Fd, name: &XattrName, now: bool) -> std::result::Result<Option<Bytes>, Errno> {
        if !now {
            return Ok(None);
        }
        match self.sys.xattr(fd, name.as_bytes()) {
            Ok(value) => Ok(Some(Bytes::from(value))),
            // The names may be known, the values not.
            Err(Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether an object certainly has no extended attributes.
    pub(super) fn is_bare(&self, fd: &S::Fd, kind: Kind) -> bool {
        !may_have(kind) || self.sys.xattr_names(fd).is_ok_and(|names| ours(&names).next().is_none())
    }
}

/// The names of our namespace in what listxattr(2) tells.
fn ours(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    names.split(|b| *b == 0).filter(|name| XattrName::is_ours(name))
}
