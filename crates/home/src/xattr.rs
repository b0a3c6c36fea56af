//! Extended attributes (xattr(7)): the vocabulary of homes and of the layers above.
//!
//! Only the namespace `user.` exists here, and [`XattrName`] is the one place that says so. The others mean another
//! machine's kernel: `security.` and `trusted.` would give power there, and an ACL in `system.` names users of that
//! machine. A name of theirs cannot be expressed, so that none is ever sent, journalled or set.

use crate::attr::{Attr, Kind};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{XATTR_NAME_MAX, XATTR_VALUE_MAX};
use bytes::Bytes;
use oncrpc::xdr::{Reader, Writer, Xdr, XdrError};
use std::fmt;
use std::sync::Arc;

/// What every name begins with.
const NAMESPACE: &[u8] = b"user.";

/// The name of an extended attribute with its namespace: `user.`, then 1 byte or more, together at most
/// [`XATTR_NAME_MAX`], without NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XattrName(Arc<[u8]>);

impl XattrName {
    /// Checks and keeps the bytes. [`ErrorKind::Unsupported`] for another namespace, as from a file system without it.
    pub fn new(bytes: &[u8]) -> Result<XattrName> {
        let shown = || bytes.escape_ascii();
        if bytes.len() > XATTR_NAME_MAX {
            return Err(Error::new(
                ErrorKind::NameTooLong,
                "the name of an attribute is longer than 255 bytes",
            ));
        }
        let Some(rest) = bytes.strip_prefix(NAMESPACE) else {
            let text = format!("{}: only attributes of the namespace `user.` are passed on", shown());
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        if rest.is_empty() || rest.contains(&0) {
            return Err(Error::new(ErrorKind::Invalid, format!("{}: no name of an attribute", shown())));
        }
        Ok(XattrName(bytes.into()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether bytes are a name of ours.
    pub fn is_ours(bytes: &[u8]) -> bool {
        XattrName::new(bytes).is_ok()
    }
}

impl fmt::Display for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Xdr for XattrName {
    fn encode(&self, w: &mut Writer) {
        w.opaque(&self.0);
    }
    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        XattrName::new(&r.opaque(XATTR_NAME_MAX)?).map_err(|_| XdrError::OutOfRange)
    }
}

/// Whether an object can have attributes of `user.` at all (xattr(7)).
pub fn may_have(kind: Kind) -> bool {
    matches!(kind, Kind::File | Kind::Dir)
}

oncrpc::xdr! {
    /// What setting an attribute expects (setxattr(2)).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum XattrHow {
        /// It may be there or not.
        #[default]
        Any = 0,
        /// It must not be there: `XATTR_CREATE`.
        Create = 1,
        /// It must be there: `XATTR_REPLACE`.
        Replace = 2,
    }

    /// One attribute of an object.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Xattr {
        /// Its name.
        pub name: XattrName,
        /// Its value; `None` where it was left out because of its length, or cannot be read.
        pub value: Option<Bytes>,
    }

    /// The attributes of an object.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Xattrs {
        /// The number of the last operation of the volume that was executed before the answer was taken.
        pub applied: u64,
        /// Attributes of the object, taken before the list: a change meanwhile shows as another ctime.
        pub attr: Attr,
        /// All of them, in the order of their names' bytes.
        pub list: Vec<Xattr>,
    }
}

impl Xattrs {
    /// Whether a list is one that a home may answer: names ascend, and no value is longer than allowed.
    pub fn is_sound(&self) -> bool {
        let long = |x: &Xattr| x.value.as_ref().is_some_and(|v| v.len() > XATTR_VALUE_MAX);
        self.list.windows(2).all(|w| w[0].name < w[1].name) && !self.list.iter().any(long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_namespace_can_be_expressed() {
        for name in ["security.capability", "trusted.x", "system.posix_acl_access", "user", "users.x", ""] {
            assert_eq!(XattrName::new(name.as_bytes()).unwrap_err().kind, ErrorKind::Unsupported, "{name}");
        }
        for name in [&b"user."[..], b"user.a\0b"] {
            assert_eq!(XattrName::new(name).unwrap_err().kind, ErrorKind::Invalid);
        }
        let long = [NAMESPACE, &[b'x'; 251]].concat();
        assert_eq!(XattrName::new(&long).unwrap_err().kind, ErrorKind::NameTooLong);
        assert!(XattrName::is_ours(&long[..255]));
        let mut w = Writer::new();
        w.opaque(b"trusted.overlay.opaque");
        assert!(XattrName::from_bytes(w.into_bytes()).is_err(), "nor by a peer");
    }
}
