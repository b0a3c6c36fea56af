//! Requests about extended attributes.
//!
//! The kernel and `ls -l` ask for capabilities and ACLs of every file. Names of those namespaces mean nothing to the
//! engine, so that they are answered without looking at the object, as by a file system that does not have them.

use super::Call;
use super::call::{Answer, patient};
use bytes::Bytes;
use fuser::{Errno, INodeNo};
use vfs::XattrHow;

/// What setxattr(2) expects to be there, by its flags.
fn expected(flags: i32) -> Result<XattrHow, Errno> {
    match flags {
        0 => Ok(XattrHow::Any),
        libc::XATTR_CREATE => Ok(XattrHow::Create),
        libc::XATTR_REPLACE => Ok(XattrHow::Replace),
        _ => Err(Errno::EINVAL),
    }
}

/// Bytes for a buffer of `size` bytes; without a buffer the length is asked for.
pub fn fitting(bytes: Bytes, size: u32) -> Answer<Bytes> {
    match bytes.len() <= size as usize || size == 0 {
        true => Ok(bytes),
        false => Err(Errno::ERANGE),
    }
}

impl Call {
    /// FUSE_GETXATTR.
    pub async fn getxattr(&self, node: INodeNo, name: &[u8]) -> Answer<Bytes> {
        let oid = self.oid(node)?;
        patient(|| self.vfs.getxattr(self.ctx(), oid, name)).await
    }

    /// FUSE_LISTXATTR: the names, each ended by a NUL. More than the kernel takes is E2BIG (listxattr(2)).
    pub async fn listxattr(&self, node: INodeNo) -> Answer<Bytes> {
        let oid = self.oid(node)?;
        let names = patient(|| self.vfs.listxattr(self.ctx(), oid)).await?;
        let mut list = Vec::new();
        for name in &names {
            list.extend_from_slice(name.as_bytes());
            list.push(0);
        }
        if list.len() > crate::limits::FUSE_XATTR_LIST { Err(Errno::E2BIG) } else { Ok(list.into()) }
    }

    /// FUSE_SETXATTR.
    pub async fn setxattr(&self, node: INodeNo, name: &[u8], value: Bytes, flags: i32) -> Answer<()> {
        let (oid, how) = (self.oid(node)?, expected(flags)?);
        patient(|| self.vfs.setxattr(self.ctx(), oid, name, value.clone(), how)).await.map_err(|e| {
            // Of an attribute, not of a file.
            if e == Errno::EFBIG { Errno::E2BIG } else { e }
        })
    }

    /// FUSE_REMOVEXATTR.
    pub async fn removexattr(&self, node: INodeNo, name: &[u8]) -> Answer<()> {
        let oid = self.oid(node)?;
        patient(|| self.vfs.removexattr(self.ctx(), oid, name)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_and_flags_are_those_of_the_system_calls() {
        let value = Bytes::from_static(b"1234");
        assert_eq!(fitting(value.clone(), 0), Ok(value.clone()));
        assert_eq!(fitting(value.clone(), 4), Ok(value.clone()));
        assert_eq!(fitting(value, 3), Err(Errno::ERANGE));
        assert_eq!(expected(libc::XATTR_CREATE), Ok(XattrHow::Create));
        assert_eq!(expected(3), Err(Errno::EINVAL));
    }
}
