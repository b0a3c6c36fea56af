//! The barrier as a file: who reads `/.trellis/sync/NAME` waits until everything that was acknowledged before is
//! durable at the homes. It serves scripts on clients that have the mount and not the program. Each barrier is a new
//! NAME, because a client's kernel answers a second read of the same file from its memory.
//!
//! Beside it, `/.trellis/modes` says which mode is in force where, and `/.trellis/conflicts` what becomes of conflicts, for the
//! same scripts.
//!
//! These objects live in the volume of the root directory and are not listed there. Nothing is kept of them: the
//! handle of a barrier holds a hash of its name.

use crate::root::name_hash;
use crate::types::{Ctx, DirEntry, DirPage, FileAttr, Found, Oid, ReadOk};
use crate::{Vfs, limits};
use bytes::Bytes;
use home::{Error, ErrorKind, Kind, Name, Result};

/// `/.trellis`.
const OURS: Oid = Oid { volume: Oid::ROOT_VOLUME, id: 2 };
/// `/.trellis/sync`.
const SYNC: Oid = Oid { volume: Oid::ROOT_VOLUME, id: 3 };
/// `/.trellis/modes`.
const MODES: Oid = Oid { volume: Oid::ROOT_VOLUME, id: 4 };
/// `/.trellis/conflicts`.
const CONFLICTS: Oid = Oid { volume: Oid::ROOT_VOLUME, id: 5 };
/// Ids of barriers have this bit, fileids have not.
const BARRIER: u64 = 1 << 63;
/// What a barrier says when it has been passed.
const TEXT: &[u8] = b"everything is at its home\n";

impl Vfs {
    /// Attributes of an object that is not of a home.
    pub fn own_attr(&self, oid: Oid) -> Result<FileAttr> {
        let root = self.root_attr();
        match oid {
            Oid::ROOT => Ok(root),
            OURS => Ok(FileAttr { nlink: 3, fileid: oid.id, ..root }),
            SYNC => Ok(FileAttr { nlink: 2, fileid: oid.id, ..root }),
            MODES => Ok(self.own_file(oid, self.modes_text().len())),
            CONFLICTS => Ok(self.own_file(oid, self.policies_text().len())),
            _ if oid.id & BARRIER != 0 => Ok(self.own_file(oid, TEXT.len())),
            _ => Err(ErrorKind::Stale.into()),
        }
    }

    /// A file whose content a client must not keep.
    fn own_file(&self, oid: Oid, size: usize) -> FileAttr {
        let now = self.shared.env.clock.now();
        let (size, fileid) = (size as u64, oid.id & !BARRIER);
        let file = FileAttr { kind: Kind::File, mode: 0o400, nlink: 1, size, fileid, ..self.root_attr() };
        FileAttr { mtime: now, ctime: now, ..file }
    }

    /// What a name stands for here; `None` where it may be the name of a home.
    pub fn lookup_own(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8]) -> Result<Option<Found>> {
        let oid = match (dir, name) {
            (Oid::ROOT, b".trellis") => OURS,
            (Oid::ROOT, _) => return Ok(None),
            (OURS | SYNC, b".") => dir,
            (OURS, b"..") => Oid::ROOT,
            (OURS, b"sync") => SYNC,
            (OURS, b"modes") => MODES,
            (OURS, b"conflicts") => CONFLICTS,
            (SYNC, b"..") => OURS,
            (SYNC, name) => {
                self.check_server_user(ctx)?;
                Oid { volume: Oid::ROOT_VOLUME, id: name_hash(&Name::new(name)?) | BARRIER }
            }
            (OURS, _) => return Err(ErrorKind::NotFound.into()),
            _ => return Err(ErrorKind::NotDir.into()),
        };
        Ok(Some(Found { oid, attr: self.own_attr(oid)?, dir: Some(self.own_attr(dir)?) }))
    }

    /// Entries of our own directories.
    pub fn list_own(&self, dir: Oid, after: u64, max: usize) -> Result<DirPage> {
        let entry = |name: &'static [u8], cookie, oid: Oid| DirEntry {
            name: Bytes::from_static(name),
            cookie,
            oid,
            fileid: oid.id,
            attr: None,
        };
        let mut entries = match dir {
            OURS => vec![
                entry(b".", 1, OURS),
                entry(b"..", 2, Oid::ROOT),
                entry(b"sync", 3, SYNC),
                entry(b"modes", 4, MODES),
                entry(b"conflicts", 5, CONFLICTS),
            ],
            SYNC => vec![entry(b".", 1, SYNC), entry(b"..", 2, OURS)],
            _ => return Err(ErrorKind::NotDir.into()),
        };
        entries.retain(|e| e.cookie > after);
        let eof = entries.len() <= max;
        entries.truncate(max);
        Ok(DirPage { entries, eof, dir: self.own_attr(dir)? })
    }

    /// Reads a file of ours. Waits at a barrier: [`ErrorKind::Busy`] while the homes are still being written to, [`ErrorKind::Io`] where a
    /// home refuses or wants a login, or an account is suspended, so that waiting is of no use.
    pub async fn read_own(&self, ctx: Ctx<'_>, oid: Oid, at: u64, len: u32) -> Result<ReadOk> {
        if oid != MODES && oid != CONFLICTS && oid.id & BARRIER == 0 {
            return Err(ErrorKind::IsDir.into());
        }
        self.check_server_user(ctx)?;
        let text = match oid {
            MODES => Bytes::from(self.modes_text()),
            CONFLICTS => Bytes::from(self.policies_text()),
            _ => self.pass_barrier().await?,
        };
        let from = at.min(text.len() as u64) as usize;
        let end = text.len().min(from.saturating_add(len as usize));
        let data = if from == end { Vec::new() } else { vec![text.slice(from..end)] };
        Ok(ReadOk { data, eof: end == text.len(), attr: self.own_attr(oid)? })
    }

    async fn pass_barrier(&self) -> Result<Bytes> {
        let Err(unsent) = self.sync(None, limits::HOLD).await else { return Ok(Bytes::from_static(TEXT)) };
        let hopeless = unsent.iter().find(|u| !u.may_pass);
        let kind = if hopeless.is_some() { ErrorKind::Io } else { ErrorKind::Busy };
        let why = hopeless.or(unsent.first()).map(|u| format!("{}: {}", u.account, u.why));
        Err(Error::new(kind, why.unwrap_or_default()))
    }

    fn check_server_user(&self, ctx: Ctx<'_>) -> Result<()> {
        match ctx.cred.uid == self.shared.server_uid {
            true => Ok(()),
            false => Err(ErrorKind::Access.into()),
        }
    }
}
