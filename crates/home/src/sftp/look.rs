//! Looking at a tree over SFTP: attributes, listings, bytes.

use super::apply::shows;
use super::flight::is_staged;
use super::link::{Link, Pending, nonsense};
use super::wide::{Handle, Lane, put_open};
use super::wire::{self, Answer, Ask, Attrs};
use super::{Account, Session, absolute, now};
use crate::limits::agent::{LIST_BYTES_MAX, LIST_ENTRIES_MAX};
use crate::limits::remote::{SFTP_LINKS, SFTP_LISTINGS, SFTP_READDIR, SFTP_READDIRS, SFTP_YOUNG};
use crate::limits::{NAMES_MAX, READ_MAX, SYMLINK_MAX};
use crate::{Access, Attr, Chunk, Entry, Error, ErrorKind, HomeId, HomePath, Kind, Loc, Name, Page, Result};
use crate::{StatFs, Time};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use oncrpc::xdr::Reader;
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
    /// Attributes of what is at the path.
    pub(super) async fn attr(&self, at: &Loc) -> Result<Attr> {
        known_here(at)?;
        let _room = self.link.room(1, 0).await?;
        let asked = self.link.send_about(Ask::Lstat, &absolute(&at.path))?;
        self.seen(&at.path, asked).await
    }

    /// What the answer to LSTAT of a path shows.
    pub(super) async fn seen(&self, path: &HomePath, asked: Pending) -> Result<Attr> {
        let attrs = asked.attrs().await.map_err(|e| about(path, e))?;
        let attr = self.attr_of(path, &attrs)?;
        self.note(path, &attr);
        Ok(attr)
    }

    /// Attributes of what is under a path. A content that may change once more within the second of its last change is
    /// another one in each second that it is looked at.
    fn attr_of(&self, path: &HomePath, attrs: &Attrs) -> Result<Attr> {
        let attr = self.account.attr(attrs)?;
        let ours = || self.left.lock().get(path).is_some_and(|left| shows(&attr, left));
        Ok(match attr.kind == Kind::File && is_young(attr.mtime, now()) && !ours() {
            true => Attr { ctime: Time { sec: now().sec, nsec: 0 }, ..attr },
            false => settled(attr),
        })
    }

    /// The same, with absence as a value.
    pub(super) async fn found(&self, path: &HomePath, asked: Pending) -> Result<Option<Attr>> {
        match self.seen(path, asked).await {
            Ok(attr) => Ok(Some(attr)),
            Err(e) if e.kind == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Remembers whether a path leads to a file.
    pub(super) fn note(&self, path: &HomePath, attr: &Attr) {
        match attr.kind {
            Kind::File => self.files.lock().put(path.clone(), ()),
            _ => self.files.lock().forget(path),
        }
    }

    /// Attributes of a directory and behind them those of a name in it, in one round trip.
    pub(super) async fn look_below(&self, dir: &Loc, name: &Name) -> Result<(Attr, Result<Attr>)> {
        known_here(dir)?;
        let path = dir.path.join(name);
        let _room = self.link.room(2, 0).await?;
        let above = self.link.send_about(Ask::Lstat, &absolute(&dir.path))?;
        let there = self.link.send_about(Ask::Lstat, &absolute(&path))?;
        let above = self.seen(&dir.path, above).await?;
        Ok((above, self.seen(&path, there).await))
    }

    /// Attributes of what is at the path, with absence as a value.
    pub(super) async fn find(&self, path: &HomePath) -> Result<Option<Attr>> {
        let _room = self.link.room(1, 0).await?;
        let asked = self.link.send_about(Ask::Lstat, &absolute(path))?;
        self.found(path, asked).await
    }

    pub(super) async fn target(&self, at: &Loc) -> Result<Bytes> {
        if self.attr(at).await?.kind != Kind::Symlink {
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
        known_here(dir)?;
        let kept = after.and_then(|_| self.listings.lock().get(&dir.path));
        let (attr, names) = match kept {
            Some(names) => (self.attr(dir).await?, names),
            None => {
                let (attr, names) = self.listed(&dir.path).await?;
                (attr, Arc::new(names))
            }
        };
        if attr.kind != Kind::Dir {
            return Err(ErrorKind::NotDir.into());
        }
        let mut page = Page { applied: 0, dir: attr, entries: Vec::new(), more: false };
        let mut bytes = 0;
        let shown = names.iter().filter(|(name, _)| !is_staged(name));
        for (name, attrs) in shown.filter(|(name, _)| after.is_none_or(|after| *name > after)) {
            bytes += name.as_bytes().len() + 128;
            if page.entries.len() >= max.clamp(1, LIST_ENTRIES_MAX) as usize || bytes > LIST_BYTES_MAX {
                page.more = true;
                break;
            }
            // Without a type it is shown as a name alone, a device not at all.
            let attr = match self.attr_of(&dir.path.join(name), attrs) {
                Err(e) if e.kind == ErrorKind::NotFound => continue,
                attr => attr.ok(),
            };
            if let Some(attr) = attr.filter(|attr| attr.kind == Kind::File) {
                self.note(&dir.path.join(name), &attr);
            }
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
        let mut targets = stream::iter(reads).buffer_unordered(SFTP_LINKS);
        while let Some((i, target)) = targets.next().await {
            entries[i].target = target;
        }
    }

    /// Attributes of a directory and then all names in it.
    async fn listed(&self, dir: &HomePath) -> Result<(Attr, BTreeMap<Name, Attrs>)> {
        let path = absolute(dir);
        let (attr, handle) = {
            let _room = self.link.room(2, 0).await?;
            let attr = self.link.send_about(Ask::Lstat, &path)?;
            let handle = self.link.send_about(Ask::Opendir, &path)?;
            (self.seen(dir, attr).await, handle.handle().await)
        };
        let handle = handle.map(|handle| Handle::new(&self.link, handle));
        let attr = attr?;
        if attr.kind != Kind::Dir {
            return Err(ErrorKind::NotDir.into());
        }
        let names = self.all_names(&handle.map_err(|e| about(dir, e))?.bytes).await;
        Ok((attr, names.map_err(|e| about(dir, e))?))
    }

    /// All names of a directory. Names that no directory can have are dropped; so are doubled ones.
    pub(super) async fn names(&self, dir: &HomePath) -> Result<BTreeMap<Name, Attrs>> {
        let path = absolute(dir);
        let handle = self.link.handle(Ask::Opendir, |w| wire::put_string(w, &path)).await;
        let handle = Handle::new(&self.link, handle.map_err(|e| about(dir, e))?);
        self.all_names(&handle.bytes).await.map_err(|e| about(dir, e))
    }

    /// Asks several times at once: the server says only with its last answer that there is no more.
    async fn all_names(&self, handle: &Bytes) -> Result<BTreeMap<Name, Attrs>> {
        let mut names = BTreeMap::new();
        // Most directories end with the second answer.
        let mut ahead = 2;
        loop {
            let ask = |_| self.link.ask_raw(Ask::Readdir, SFTP_READDIR, |w| wire::put_string(w, handle));
            let asked = (0..ahead).map(ask);
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

    /// Bytes of a file, over the channel with the fewest under way; what another one cannot do the first one is asked.
    pub(super) async fn bytes(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        known_here(file)?;
        let len = len.min(READ_MAX);
        let turn = self.wide.turn(len.into());
        let mut read = self.bytes_over(&turn.lane, &file.path, at, len).await;
        let first = self.wide.first();
        if !Arc::ptr_eq(&turn.lane, first) && matches!(&read, Err(e) if e.kind == ErrorKind::Unreachable) {
            read = self.bytes_over(first, &file.path, at, len).await;
        }
        let chunk = read.map_err(|e| about(&file.path, e))?;
        self.wide.carried(&turn.lane, chunk.data.len() as u64, false);
        Ok(chunk)
    }

    async fn bytes_over(&self, lane: &Lane, path: &HomePath, at: u64, len: u32) -> Result<Chunk> {
        if let Some(handle) = lane.opened(path) {
            match self.read_again(&lane.link, &handle, path, at, len).await {
                Ok(Some(chunk)) => return Ok(chunk),
                Err(e) if e.kind == ErrorKind::Unreachable => return Err(e),
                _ => lane.forget(path),
            }
        }
        let handle = Arc::new(self.open_file(&lane.link, path).await?);
        let (data, attrs, _) = self.read_handle(&lane.link, &handle, at, len, None).await?;
        let attr = self.attr_of(path, &attrs)?;
        if at + (data.len() as u64) < attr.size {
            lane.keep(path, handle);
        }
        Ok(Chunk { attr, data })
    }

    /// Reads from a file that is open, if its name leads to what it shows.
    async fn read_again(
        &self,
        link: &Arc<Link>,
        handle: &Handle,
        path: &HomePath,
        at: u64,
        len: u32,
    ) -> Result<Option<Chunk>> {
        let (data, attrs, named) = self.read_handle(link, handle, at, len, Some(path)).await?;
        let without_atime = |a: Attrs| Attrs { times: a.times.map(|(_, mtime)| (0, mtime)), ..a };
        if named.map(without_atime) != Some(without_atime(attrs)) {
            return Ok(None);
        }
        Ok(Some(Chunk { attr: self.attr_of(path, &attrs)?, data }))
    }

    /// Opens what is a file. It is looked at before, because a pipe that is opened would stop the server; what was a file
    /// when it was last seen is opened without waiting for that. Should it have become a pipe since, the channel ends for
    /// want of a sign of life.
    async fn open_file(&self, link: &Arc<Link>, path: &HomePath) -> Result<Handle> {
        let text = absolute(path);
        let open = || link.send(Ask::Open, |w| put_open(w, &text, wire::READ, &Attrs::default()));
        let _room = link.room(2, 0).await?;
        let look = link.send_about(Ask::Lstat, &text)?;
        let known = self.files.lock().get(path).is_some();
        let opened = if known { Some(open()?) } else { None };
        let seen = self.seen(path, look).await;
        let opened = match opened {
            Some(opened) => Some(opened.handle().await.map(|handle| Handle::new(link, handle))),
            None => None,
        };
        match seen?.kind {
            Kind::File => {}
            Kind::Dir => return Err(ErrorKind::IsDir.into()),
            _ => return Err(ErrorKind::Invalid.into()),
        }
        match opened {
            Some(opened) => opened,
            None => Ok(Handle::new(link, open()?.handle().await?)),
        }
    }

    pub(super) async fn open(&self, path: &HomePath, flags: u32, attrs: &Attrs) -> Result<Handle> {
        let handle = self.link.handle(Ask::Open, |w| put_open(w, &absolute(path), flags, attrs)).await?;
        Ok(Handle::new(&self.link, handle))
    }

    /// Bytes, and the attributes of the file after they were read; and what `name` leads to then. All is asked for
    /// together, because the server answers in order.
    async fn read_handle(
        &self,
        link: &Arc<Link>,
        handle: &Handle,
        at: u64,
        len: u32,
        name: Option<&HomePath>,
    ) -> Result<(Bytes, Attrs, Option<Attrs>)> {
        let step = link.can.read_max;
        let parts = (0..len).step_by(step as usize).map(|i| (at.saturating_add(i.into()), step.min(len - i)));
        let _room = link.room(len.div_ceil(step) as usize + 2, len as usize).await?;
        let read = |(at, len): (u64, u32)| Ok((send_read(link, &handle.bytes, at, len)?, at, len));
        let asked = parts.map(read).collect::<Result<Vec<_>>>()?;
        let attrs = link.send_about(Ask::Fstat, &handle.bytes)?;
        let named = name.map(|name| link.send_about(Ask::Lstat, &absolute(name))).transpose()?;
        let mut data = BytesMut::new();
        let mut whole = true;
        for (asked, at, len) in asked {
            // Behind the end there is nothing.
            let answer = asked.raw().await?;
            if whole {
                let (part, is_whole) = self.rest_of_part(link, &handle.bytes, at, len, answer).await?;
                whole = is_whole;
                data.extend_from_slice(&part);
            }
        }
        let named = match named {
            Some(named) => Some(named.attrs().await?),
            None => None,
        };
        Ok((data.freeze(), attrs.attrs().await?, named))
    }

    /// Bytes from an open file.
    pub(super) async fn read_parts(&self, handle: &Handle, at: u64, len: usize) -> Result<Bytes> {
        let mut data = BytesMut::new();
        while data.len() < len {
            let wanted = (len - data.len()).min(READ_MAX as usize);
            let (part, ..) =
                self.read_handle(&self.link, handle, at + data.len() as u64, wanted as u32, None).await?;
            data.extend_from_slice(&part);
            if part.len() < wanted {
                break;
            }
        }
        Ok(data.freeze())
    }

    /// One part, and whether it is whole. A server may give less than asked for without being at the end.
    async fn rest_of_part(
        &self,
        link: &Link,
        handle: &Bytes,
        at: u64,
        len: u32,
        mut answer: Answer,
    ) -> Result<(Bytes, bool)> {
        let mut have = BytesMut::new();
        loop {
            let rest = len - have.len() as u32;
            match answer {
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
            if have.len() == len as usize {
                return Ok((have.freeze(), true));
            }
            let rest = len - have.len() as u32;
            answer = send_read(link, handle, at + have.len() as u64, rest)?.raw().await?;
        }
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

/// Whether what was changed in this second may change again in it: it is not over for long, by our clock, which may not
/// quite be the home's.
fn is_young(mtime: Time, now: Time) -> bool {
    (mtime.sec - now.sec).abs() <= SFTP_YOUNG
}

/// Attributes of a content that will not change within the second of its last change. SFTP tells no ctime; here it is one
/// that is later than any that stood for the content while it was young, so that what clients see never goes back.
pub(super) fn settled(attr: Attr) -> Attr {
    match attr.kind {
        Kind::File => Attr { ctime: Time { sec: attr.mtime.sec + SFTP_YOUNG + 1, nsec: 0 }, ..attr },
        _ => attr,
    }
}

fn send_read(link: &Link, handle: &[u8], at: u64, len: u32) -> Result<Pending> {
    link.send(Ask::Read, |w| {
        wire::put_string(w, handle);
        w.u64(at);
        w.u32(len);
    })
}

/// An identity, which SFTP has not given, is not there.
pub(super) fn known_here(at: &Loc) -> Result<()> {
    match at.id.is_some_and(|id| id != HomeId::default()) {
        true => Err(Error::new(ErrorKind::Stale, format!("{} was seen by other means than SFTP", at.path))),
        false => Ok(()),
    }
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
    fn a_second_is_over_when_two_more_are() {
        let at = |sec| Time { sec, nsec: 0 };
        let young: Vec<i64> = (90..110).filter(|sec| is_young(at(100), at(*sec))).collect();
        assert_eq!(young, [98, 99, 100, 101, 102]);
        let file = account(None).attr(&Attrs { times: Some((1, 100)), ..attrs(0o100600) }).unwrap();
        assert_eq!(settled(file).ctime, at(103));
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
