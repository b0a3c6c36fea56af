//! Names and paths as bytes, checked once where they enter.

use crate::error::{Error, ErrorKind, Result};
use oncrpc::xdr::{Reader, Writer, Xdr, XdrError};
use std::fmt;
use std::sync::Arc;

/// Longest name in bytes.
pub const NAME_MAX: usize = 255;
/// Longest path in bytes that a home is asked for.
pub const PATH_MAX: usize = 1 << 20;

/// One component of a path: 1 to 255 bytes without `/` and NUL, neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Checks and keeps the bytes.
    pub fn new(bytes: &[u8]) -> Result<Name> {
        if bytes.len() > NAME_MAX {
            return Err(Error::new(ErrorKind::NameTooLong, "name is longer than 255 bytes"));
        }
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|b| matches!(b, b'/' | 0))
        {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("not a name: {:?}", bytes.escape_ascii().to_string()),
            ));
        }
        Ok(Name(bytes.into()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    /// With everything that is not printable ASCII escaped, because a home chooses its names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Xdr for Name {
    fn encode(&self, w: &mut Writer) {
        w.opaque(&self.0);
    }
    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        Name::new(&r.opaque(NAME_MAX)?).map_err(|_| XdrError::OutOfRange)
    }
}

/// A path below the root of a home: names joined by `/`, without a leading one; empty for the root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HomePath(Vec<u8>);

impl HomePath {
    /// The root of the home.
    pub fn root() -> HomePath {
        HomePath(Vec::new())
    }

    /// From bytes that may have leading, trailing or doubled slashes.
    pub fn parse(bytes: &[u8]) -> Result<HomePath> {
        let mut path = HomePath::root();
        for part in bytes.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".") {
            path.push(&Name::new(part)?);
        }
        Ok(path)
    }

    /// Goes down to `name`.
    pub fn push(&mut self, name: &Name) {
        if !self.0.is_empty() {
            self.0.push(b'/');
        }
        self.0.extend_from_slice(name.as_bytes());
    }

    /// The path of `name` in this directory.
    pub fn join(&self, name: &Name) -> HomePath {
        let mut path = self.clone();
        path.push(name);
        path
    }

    /// The directory and the name in it; `None` for the root.
    pub fn split(&self) -> Option<(HomePath, Name)> {
        if self.0.is_empty() {
            return None;
        }
        let (dir, name) = match self.0.iter().rposition(|b| *b == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&self.0[..0], &self.0[..]),
        };
        Some((HomePath(dir.to_vec()), Name(name.into())))
    }

    /// The names from the root down.
    pub fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.0.split(|b| *b == b'/').filter(|p| !p.is_empty()).map(|p| Name(p.into()))
    }

    /// Whether a path is this one or leads through it.
    pub fn contains(&self, path: &HomePath) -> bool {
        let rest = path.0.strip_prefix(&self.0[..]);
        rest.is_some_and(|rest| self.is_root() || rest.is_empty() || rest[0] == b'/')
    }

    /// The bytes without a leading slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for HomePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for HomePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Xdr for HomePath {
    fn encode(&self, w: &mut Writer) {
        w.opaque(&self.0);
    }
    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        let bytes = r.opaque(PATH_MAX)?;
        let path = HomePath::parse(&bytes).map_err(|_| XdrError::OutOfRange)?;
        if path.0 == bytes { Ok(path) } else { Err(XdrError::OutOfRange) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
        assert!(Name::new(&[0xff; 255]).is_ok());
    }

    #[test]
    fn a_path_on_the_wire_has_one_spelling() {
        let path = HomePath::parse(b"/a//b/").unwrap();
        assert_eq!(path.as_bytes(), b"a/b");
        assert_eq!(HomePath::from_bytes(path.to_bytes()).unwrap(), path);
        assert!(HomePath::parse(b"a/../b").is_err());
        let mut w = Writer::new();
        w.opaque(b"a//b");
        assert!(HomePath::from_bytes(w.into_bytes()).is_err());
    }

    #[test]
    fn split_is_the_reverse_of_join() {
        let dir = HomePath::parse(b"a/b").unwrap();
        let name = Name::new(b"c").unwrap();
        assert_eq!(dir.join(&name).split(), Some((dir, name.clone())));
        assert_eq!(HomePath::root().join(&name).split(), Some((HomePath::root(), name)));
        assert_eq!(HomePath::root().split(), None);
    }
}
