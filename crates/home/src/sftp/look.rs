//! Looking at a tree over SFTP: attributes, listings, bytes.

use super::link::nonsense;
use super::wire::{self, Answer, Ask, Attrs};
use super::{Account, Session, absolute};
use crate::limits::agent::{LIST_BYTES_MAX, LIST_ENTRIES_MAX};
use crate::limits::remote::{SFTP_LISTINGS, SFTP_PARTS, SFTP_READDIRS};
use crate::limits::{NAMES_MAX, READ_MAX, SYMLINK_MAX};
use crate::{Access, Attr, Chunk, Entry, Error, ErrorKind, HomeId, HomePath, Kind, Loc, Name, Page, Result};
use crate::{StatFs, Time};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use oncrpc::xdr::{Reader, Writer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

type Names = Arc<BTreeMap<Name, Attrs>>;

/// Directories that were read to the end, while their pages are given out.
#[derive(Default)]
pub(super) struct Listings(VecDeque<(HomePath, Names)>);

impl Listings {
    fn get(&self, path: &HomePath) -> Option<Names> {
        self.0.iter().find(|(p, _)| p == path).map(|(_, names)| names.clone())
    }

    fn keep(&mut self, path: &HomePath, names: Names) {
        self.forget(path);
        self.0.push_back((path.clone(), names));
        if self.0.len() > SFTP_LISTINGS {
            self.0.pop_front();
        }
    }

    pub fn forget(&mut self, path: &HomePath) {
        self.0.retain(|(p, _)| p != path);
    }
}

impl Account {
    /// What mode bits give to the account; everything that they give to anybody where the account is not known.
    fn access(&self, attrs: &Attrs) -> Access {
        let mode = attrs.mode.unwrap_or(0o777);
        let bits = match (self.ids, attrs.ids) {
            (Some((0, _)), _) => 0o6 | (mode | mode >> 3 | mode >> 6) & 1 | u32::from(is_dir(mode)),
            (Some((uid, _)), Some((owner, _))) if uid == owner => mode >> 6,
            (Some((_, gid)), Some((_, group))) if gid == group => mode >> 3,
            // Other groups of the account are not known: the server decides.
            _ => mode | mode >> 3,
        };
        Access { read: bits & 4 != 0, write: (bits & 2 != 0).into(), exec: bits & 1 != 0 }
    }

    /// Attributes in our terms. Device nodes are hidden.
    pub fn attr(&self, attrs: &Attrs) -> Result<Attr> {
        let mode =
            attrs.mode.ok_or_else(|| Error::new(ErrorKind::Io, "the SFTP server tells no file types"))?;
        let kind = kind(mode).ok_or_else(|| Error::new(ErrorKind::NotFound, "a device is not shown"))?;
        let size = attrs.size.unwrap_or(0);
        if size > i64::MAX as u64 {
            return Err(Error::new(ErrorKind::TooBig, "the SFTP server tells an impossible size"));
        }
        let (uid, gid) = attrs.ids.or(self.ids).unwrap_or((super::NOBODY, super::NOBODY));
        let (atime, mtime) = attrs.times.unwrap_or_default();
        let second = |sec: u32| Time { sec: sec.into(), nsec: 0 };
        Ok(Attr {
            id: HomeId::default(),
            kind,
            mode: mode & 0o7777,
            nlink: 1,
            uid,
            gid,
            size,
            used: size.next_multiple_of(512),
            atime: second(atime),
            mtime: second(mtime),
            ctime: Time::default(),
            access: self.access(attrs),
        })
    }
}

fn is_dir(mode: u32) -> bool {
    kind(mode) == Some(Kind::Dir)
}

fn kind(mode: u32) -> Option<Kind> {
    Some(match mode & 0o170000 {
        0o100000 => Kind::File,
        0o040000 => Kind::Dir,
        0o120000 => Kind::Symlink,
        0o010000 => Kind::Fifo,
        0o140000 => Kind::Socket,
        _ => return None,
    })
}

impl Session {
    /// Attributes of what is at the path. An identity, which SFTP has not given, is not there.
    pub(super) async fn look(&self, at: &Loc) -> Result<Attr> {
        if at.id.is_some_and(|id| id != HomeId::default()) {
            return Err(Error::new(
                ErrorKind::Stale,
                format!("{} was seen by other means than SFTP", at.path),
            ));
        }
        let attrs = self.link.attrs(Ask::Lstat, &absolute(&at.path)).await;
        self.account.attr(&attrs.map_err(|e| about(&at.path, e))?)
    }

    /// The same, with absence as a value.
    pub(super) async fn find(&self, path: &HomePath) -> Result<Option<Attr>> {
        match self.look(&Loc { path: path.clone(), id: None }).await {
            Ok(attr) => Ok(Some(attr)),
            Err(e) if e.kind == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(super) async fn target(&self, at: &Loc) -> Result<Bytes> {
        if self.look(at).await?.kind != Kind::Symlink {
            return Err(ErrorKind::Invalid.into());
        }
        self.raw_target(&at.path).await
    }

    pub(super) async fn raw_target(&self, path: &HomePath) -> Result<Bytes> {
        let target = self.link.name(Ask::Readlink, &absolute(path)).await.map_err(|e| about(path, e))?;
        match target.len() {
            1..=SYMLINK_MAX => Ok(target),
            _ => Err(Error::new(ErrorKind::Io, format!("{path}: the link's target is empty or too long"))),
        }
    }

    pub(super) async fn page(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        let attr = self.look(dir).await?;
        if attr.kind != Kind::Dir {
            return Err(ErrorKind::NotDir.into());
        }
        let kept = after.and_then(|_| self.listings.lock().get(&dir.path));
        let names = match kept {
            Some(names) => names,
            None => Arc::new(self.names(&dir.path).await?),
        };
        let mut page = Page { applied: 0, dir: attr, entries: Vec::new(), more: false };
        let mut bytes = 0;
        for (name, attrs) in names.iter().filter(|(name, _)| after.is_none_or(|after| *name > after)) {
            bytes += name.as_bytes().len() + 128;
            if page.entries.len() >= max.clamp(1, LIST_ENTRIES_MAX) as usize || bytes > LIST_BYTES_MAX {
                page.more = true;
                break;
            }
            // Without a type it is shown as a name alone, a device not at all.
            let attr = match self.account.attr(attrs) {
                Err(e) if e.kind == ErrorKind::NotFound => continue,
                attr => attr.ok(),
            };
            page.entries.push(Entry { name: name.clone(), attr, target: None, bare: false });
        }
        match page.more {
            true => self.listings.lock().keep(&dir.path, names),
            false => self.listings.lock().forget(&dir.path),
        }
        self.add_targets(&dir.path, &mut page.entries).await;
        Ok(page)
    }

    /// Where the symbolic links of a page point; one that cannot be read has no target.
    async fn add_targets(&self, dir: &HomePath, entries: &mut [Entry]) {
        let is_link = |e: &Entry| e.attr.is_some_and(|a| a.kind == Kind::Symlink);
        let links = (0..entries.len()).filter(|i| is_link(&entries[*i]));
        let links: Vec<(usize, HomePath)> = links.map(|i| (i, dir.join(&entries[i].name))).collect();
        let reads = links.into_iter().map(|(i, path)| async move { (i, self.raw_target(&path).await.ok()) });
        let mut targets = stream::iter(reads).buffer_unordered(SFTP_PARTS);
        while let Some((i, target)) = targets.next().await {
            entries[i].target = target;
        }
    }

    /// All names of a directory. Names that no directory can have are dropped; so are doubled ones.
    pub(super) async fn names(&self, dir: &HomePath) -> Result<BTreeMap<Name, Attrs>> {
        let path = absolute(dir);
        let handle = self.link.handle(Ask::Opendir, |w| wire::put_string(w, &path)).await;
        let handle = handle.map_err(|e| about(dir, e))?;
        let names = self.all_names(&handle).await.map_err(|e| about(dir, e));
        self.link.close_later(handle);
        names
    }

    /// Asks several times at once: the server says only with its last answer that there is no more.
    async fn all_names(&self, handle: &Bytes) -> Result<BTreeMap<Name, Attrs>> {
        let mut names = BTreeMap::new();
        // Most directories end with the second answer.
        let mut ahead = 2;
        loop {
            let asked = (0..ahead).map(|_| self.link.ask_raw(Ask::Readdir, |w| wire::put_string(w, handle)));
            for answer in futures_util::future::try_join_all(asked).await? {
                match answer {
                    Answer::Names(more) if !more.is_empty() && names.len() < NAMES_MAX => {
                        let valid = more
                            .into_iter()
                            .filter_map(|(name, attrs)| Some((Name::new(&name).ok()?, attrs)));
                        names.extend(valid);
                    }
                    Answer::Names(_) | Answer::Status { code: wire::EOF, .. } => return Ok(names),
                    Answer::Status { .. } => {
                        return Err(Error::new(ErrorKind::Io, "the server stopped listing"));
                    }
                    _ => return Err(nonsense()),
                }
            }
            ahead = SFTP_READDIRS;
        }
    }

    /// Looks before it opens, because an open pipe would stop the server.
    pub(super) async fn bytes(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        match self.look(file).await?.kind {
            Kind::File => {}
            Kind::Dir => return Err(ErrorKind::IsDir.into()),
            _ => return Err(ErrorKind::Invalid.into()),
        }
        let handle =
            self.open(&file.path, wire::READ, &Attrs::default()).await.map_err(|e| about(&file.path, e))?;
        let read = self.read_handle(&handle, at, len.min(READ_MAX)).await;
        self.link.close_later(handle);
        read.map_err(|e| about(&file.path, e))
    }

    pub(super) async fn open(&self, path: &HomePath, flags: u32, attrs: &Attrs) -> Result<Bytes> {
        let body = |w: &mut Writer| {
            wire::put_string(w, &absolute(path));
            w.u32(flags);
            attrs.encode(w);
        };
        self.link.handle(Ask::Open, body).await
    }

    async fn read_handle(&self, handle: &Bytes, at: u64, len: u32) -> Result<Chunk> {
        let attrs = self.link.attrs(Ask::Fstat, handle);
        // The server answers in order: asked behind the last read, the attributes are those after it.
        let (data, attrs) = match len.div_ceil(self.link.can.read_max) as usize <= SFTP_PARTS {
            true => futures_util::future::try_join(self.read_parts(handle, at, len), attrs).await?,
            false => (self.read_parts(handle, at, len).await?, attrs.await?),
        };
        Ok(Chunk { attr: self.account.attr(&attrs)?, data })
    }

    pub(super) async fn read_parts(&self, handle: &Bytes, at: u64, len: u32) -> Result<Bytes> {
        let step = self.link.can.read_max;
        let parts = (0..len).step_by(step as usize).map(|i| (at.saturating_add(i.into()), step.min(len - i)));
        let mut parts =
            stream::iter(parts).map(|(at, len)| self.read_part(handle, at, len)).buffered(SFTP_PARTS);
        let mut data = BytesMut::new();
        while let Some((part, whole)) = parts.try_next().await? {
            data.extend_from_slice(&part);
            if !whole {
                break;
            }
        }
        Ok(data.freeze())
    }

    /// One part, and whether it is whole. A server may give less than asked for without being at the end.
    async fn read_part(&self, handle: &Bytes, at: u64, len: u32) -> Result<(Bytes, bool)> {
        let mut have = BytesMut::new();
        while have.len() < len as usize {
            let rest = len - have.len() as u32;
            let body = |w: &mut Writer| {
                wire::put_string(w, handle);
                w.u64(at + have.len() as u64);
                w.u32(rest);
            };
            match self.link.ask_raw(Ask::Read, body).await? {
                Answer::Data(data) if !data.is_empty() && data.len() <= rest as usize => {
                    // Nearly always the first answer is everything.
                    if data.len() == len as usize {
                        return Ok((data, true));
                    }
                    have.extend_from_slice(&data);
                }
                Answer::Status { code: wire::EOF, .. } => return Ok((have.freeze(), false)),
                // Beyond what the server's numbers can count.
                Answer::Status { .. } if at > i64::MAX as u64 => return Ok((have.freeze(), false)),
                Answer::Status { .. } => {
                    return Err(Error::new(ErrorKind::Io, "the SFTP server cannot read"));
                }
                _ => return Err(nonsense()),
            }
        }
        Ok((have.freeze(), true))
    }

    pub(super) async fn space(&self, at: &Loc) -> Result<StatFs> {
        if !self.link.can.statvfs {
            return Err(Error::new(ErrorKind::Unsupported, "the SFTP server does not tell free space"));
        }
        let path = absolute(&at.path);
        let answer = self.link.extended("statvfs@openssh.com", |w| wire::put_string(w, &path)).await;
        let Answer::Extended(body) = answer.map_err(|e| about(&at.path, e))? else { return Err(nonsense()) };
        parse_statvfs(body).ok_or_else(nonsense)
    }
}

/// f_bsize, f_frsize, f_blocks, f_bfree, f_bavail, f_files, f_ffree and more (OpenSSH's PROTOCOL, section 4.4).
fn parse_statvfs(body: Bytes) -> Option<StatFs> {
    let mut r = Reader::new(body);
    let mut next = || r.u64().ok();
    let (_, unit, blocks, free, available) = (next()?, next()?, next()?, next()?, next()?);
    let (files, files_free) = (next()?, next()?);
    let bytes = |n: u64| n.saturating_mul(unit);
    Some(StatFs { total: bytes(blocks), free: bytes(free), available: bytes(available), files, files_free })
}

/// The error with the path that it is about.
pub(super) fn about(path: &HomePath, e: Error) -> Error {
    Error::new(e.kind, format!("{path}: {}", e.detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(ids: Option<(u32, u32)>) -> Account {
        Account { ids, home_dir: HomePath::root() }
    }

    fn attrs(mode: u32) -> Attrs {
        Attrs { size: Some(5), ids: Some((10, 20)), mode: Some(mode), times: Some((1, 2)) }
    }

    fn rwx(access: Access) -> (bool, bool, bool) {
        (access.read, access.may_write(), access.exec)
    }

    #[test]
    fn access_follows_owner_group_and_root() {
        let file = attrs(0o100640);
        assert_eq!(rwx(account(Some((10, 1))).access(&file)), (true, true, false));
        assert_eq!(rwx(account(Some((1, 20))).access(&file)), (true, false, false));
        assert_eq!(rwx(account(Some((0, 0))).access(&file)), (true, true, false));
        assert_eq!(rwx(account(Some((0, 0))).access(&attrs(0o040000))), (true, true, true));
        // A further group of the account may give what nobody else has.
        assert_eq!(rwx(account(Some((1, 1))).access(&file)), (true, false, false));
    }

    #[test]
    fn devices_and_impossible_sizes_are_refused() {
        let of = |a: Attrs| account(None).attr(&a);
        assert_eq!(of(attrs(0o020600)).unwrap_err().kind, ErrorKind::NotFound);
        let huge = Attrs { size: Some(1 << 63), ..attrs(0o100600) };
        assert_eq!(of(huge).unwrap_err().kind, ErrorKind::TooBig);
        assert_eq!(of(attrs(0o120777)).unwrap().kind, Kind::Symlink);
    }

    #[test]
    fn the_oldest_listing_is_forgotten() {
        let mut listings = Listings::default();
        let path = |i: usize| HomePath::parse(i.to_string().as_bytes()).unwrap();
        (0..SFTP_LISTINGS + 1).for_each(|i| listings.keep(&path(i), Names::default()));
        assert!(listings.get(&path(0)).is_none() && listings.get(&path(1)).is_some());
        listings.forget(&path(1));
        assert!(listings.get(&path(1)).is_none());
    }
}
