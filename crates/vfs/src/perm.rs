//! Who may do what. For the server's own user the home's access bits decide, because mapped mode bits would be
//! wrong under ACLs and groups. Everybody else has nothing, or with `share` what the mode gives to others.

use crate::inode::Inode;
use crate::types::{AccessMask, Cred, FileAttr};
use crate::volume::Volume;
use home::{Access, Attr, Error, ErrorKind, Kind, Result, Writable};

/// User and group that stand for everybody who is not mapped.
pub const NOBODY: u32 = 65_534;

impl Volume {
    /// What somebody may do with an object.
    pub fn access_of(&self, cred: &Cred, attr: &Attr) -> Access {
        if cred.uid == self.shared.server_uid {
            return attr.access;
        }
        let bits = if self.policy.share { attr.mode & 7 } else { 0 };
        Access { read: bits & 4 != 0, write: (bits & 2 != 0).into(), exec: bits & 1 != 0 }
    }

    /// Whether somebody owns an object: only the server's user can.
    pub fn owns(&self, cred: &Cred, attr: &Attr) -> bool {
        let account = self.hello.lock().as_ref().map(|h| (h.uid, h.uid == 0));
        cred.uid == self.shared.server_uid && account.is_none_or(|(uid, root)| root || uid == attr.uid)
    }

    /// Fails without read permission. An owner may read whatever the mode, because he opened the file earlier
    /// (RFC 1813 §4.4); who may execute may read.
    pub fn may_read(&self, cred: &Cred, attr: &Attr) -> Result<()> {
        let access = self.access_of(cred, attr);
        allow(access.read || access.exec || self.owns(cred, attr))
    }

    /// Fails without write permission to the content. An owner may write whatever the mode (RFC 1813 §4.4).
    pub fn may_write(&self, cred: &Cred, attr: &Attr) -> Result<()> {
        check_writable(attr)?;
        allow(self.access_of(cred, attr).may_write() || self.owns(cred, attr))
    }

    /// Fails without permission to look names up.
    pub fn may_search(&self, cred: &Cred, attr: &Attr) -> Result<()> {
        allow(self.access_of(cred, attr).exec)
    }

    /// Fails without permission to list.
    pub fn may_list(&self, cred: &Cred, attr: &Attr) -> Result<()> {
        allow(self.access_of(cred, attr).read)
    }

    /// Fails without permission to add and remove names.
    pub fn may_change_names(&self, cred: &Cred, attr: &Attr) -> Result<()> {
        if self.home_decides(cred) {
            return Ok(());
        }
        check_writable(attr)?;
        let access = self.access_of(cred, attr);
        allow(access.may_write() && access.exec)
    }

    /// Fails without permission to give a directory another parent, which is written in it as `..`
    /// (rename(2), EACCES).
    pub fn may_change_parent(&self, cred: &Cred, attr: &Attr) -> Result<()> {
        if self.home_decides(cred) {
            return Ok(());
        }
        check_writable(attr)?;
        allow(self.access_of(cred, attr).may_write())
    }

    /// Whether the home is asked before a change is acknowledged: it decides then, and knows the reason.
    fn home_decides(&self, cred: &Cred) -> bool {
        self.plain() && cred.uid == self.shared.server_uid
    }

    /// Fails where a sticky directory keeps somebody from removing a name.
    pub fn may_remove_from(&self, cred: &Cred, dir: &Attr, child: &Attr) -> Result<()> {
        let sticky = dir.mode & 0o1000 != 0;
        if sticky && !self.owns(cred, dir) && !self.owns(cred, child) {
            return Err(ErrorKind::Perm.into());
        }
        Ok(())
    }

    /// What of `want` is granted.
    pub fn grant(&self, cred: &Cred, attr: &Attr, want: AccessMask) -> AccessMask {
        let a = self.access_of(cred, attr);
        let dir = attr.kind == Kind::Dir;
        let write = a.may_write() && check_writable(attr).is_ok();
        AccessMask {
            read: want.read && a.read,
            lookup: want.lookup && dir && a.exec,
            modify: want.modify && write,
            extend: want.extend && write,
            delete: want.delete && dir && write,
            execute: want.execute && !dir && a.exec,
        }
    }

    /// Attributes as clients see them: the account is the server's user, its primary group the server's group.
    pub fn show(&self, inode: &Inode, attr: &Attr) -> FileAttr {
        let account = self.hello.lock().as_ref().map(|h| (h.uid, h.gid));
        let (uid, gid) = self.shown_ids(account, attr);
        let hidden = u32::from(inode.hidden_link(self.shared.gateway).is_some());
        let set_ids = if attr.kind == Kind::Dir { 0o7777 } else { 0o1777 };
        FileAttr {
            kind: attr.kind,
            mode: attr.mode & set_ids,
            nlink: attr.nlink.saturating_sub(hidden),
            uid,
            gid,
            size: attr.size,
            used: attr.used,
            fsid: self.fsid(inode.home_id.fs),
            fileid: inode.fileid,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: crate::meta::shown_ctime(inode, attr),
        }
    }

    fn shown_ids(&self, account: Option<(u32, u32)>, attr: &Attr) -> (u32, u32) {
        // Before the first greeting after a restart only what was made here can be shown.
        let (uid, gid) = account.unwrap_or((attr.uid, attr.gid));
        (
            if attr.uid == uid { self.shared.server_uid } else { NOBODY },
            if attr.gid == gid { self.shared.server_gid } else { NOBODY },
        )
    }

    /// The home-native owner for a local one.
    pub fn home_uid(&self, uid: u32) -> Result<u32> {
        match self.hello.lock().as_ref() {
            Some(hello) if uid == self.shared.server_uid => Ok(hello.uid),
            _ => Err(Error::new(ErrorKind::Perm, "only the account itself can own files at the home")),
        }
    }

    /// The home-native group for a local one.
    pub fn home_gid(&self, gid: u32) -> Result<u32> {
        match self.hello.lock().as_ref() {
            Some(hello) if gid == self.shared.server_gid => Ok(hello.gid),
            _ => Err(Error::new(ErrorKind::Perm, "the group has no counterpart at the home")),
        }
    }

    /// The fsid of a home file system: the same after a restart.
    pub fn fsid(&self, fs: u64) -> u64 {
        use std::hash::Hasher;
        let mut hasher = siphasher::sip::SipHasher13::new_with_keys(self.shared.gateway, u64::from(self.id));
        hasher.write_u64(fs);
        hasher.finish().max(2)
    }
}

/// Fails where the home's file system is mounted read-only: nobody can change anything there, and a change that was
/// accepted would stay here for ever.
pub fn check_writable(attr: &Attr) -> Result<()> {
    if attr.access.write == Writable::ReadOnly { Err(ErrorKind::ReadOnly.into()) } else { Ok(()) }
}

fn allow(granted: bool) -> Result<()> {
    if granted { Ok(()) } else { Err(ErrorKind::Access.into()) }
}
