//! Files straight at their home, without server, cache and journal.

use super::{After, At, Node, Page, Set, Space, Taken, Tree, When, foreign};
use crate::control::proto::{self, Attr};
use crate::limits;
use bytes::Bytes;
use home::op::Staged;
use home::{
    Error, ErrorKind, Home, HomePath, Loc, Name, New, Op, OpId, Outcome, Payload, Piece, Placed, Result,
    SetAttr, SetTime, Time,
};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use vfs::{Mount, Namespace};

/// Tells whether the journal holds changes of an account that the home does not have yet.
pub type Unsent = Box<dyn Fn(&str) -> Result<()> + Send + Sync>;

/// A home that was reached by a name.
pub struct Reached {
    /// The home.
    pub home: Arc<dyn Home>,
    /// Where the name starts there.
    base: HomePath,
    /// Whether data can be staged there.
    stages: bool,
}

/// The homes themselves.
pub struct Direct {
    common: Arc<Common>,
    /// Names the operations of this object: nobody else draws the same number.
    gateway: u64,
    seq: u64,
}

/// What all ways to the homes share.
struct Common {
    namespace: Arc<dyn Namespace>,
    unsent: Unsent,
    /// Names that were used.
    reached: Mutex<HashMap<Vec<u8>, Arc<Reached>>>,
}

impl Direct {
    /// Over the names of a root directory. `unsent` refuses accounts whose newest state is only here.
    pub fn new(namespace: Arc<dyn Namespace>, unsent: Unsent) -> Direct {
        Direct::over(Arc::new(Common { namespace, unsent, reached: Mutex::default() }))
    }

    fn over(common: Arc<Common>) -> Direct {
        let gateway = RandomState::new().hash_one(std::process::id());
        Direct { common, gateway, seq: 0 }
    }

    async fn open(&mut self, name: &[u8]) -> Result<Arc<Reached>> {
        let known = || self.common.reached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reached) = known().get(name) {
            return Ok(Arc::clone(reached));
        }
        let Mount { account, home, start, .. } = self.common.namespace.resolve(&Name::new(name)?).await?;
        (self.common.unsent)(&account)?;
        let hello = home.attach().await?;
        let base = start.path(hello.home_dir);
        let reached = Arc::new(Reached { home, base, stages: hello.stages });
        known().insert(name.to_vec(), Arc::clone(&reached));
        Ok(reached)
    }

    fn next_id(&mut self) -> OpId {
        self.seq += 1;
        OpId { gateway: self.gateway, volume: 0, seq: self.seq }
    }

    async fn apply(&mut self, at: &Reached, op: Op<Loc, Payload>) -> Result<Option<home::Attr>> {
        let id = self.next_id();
        let placed = Placed { id, time: now(), plain: true, resent: false, op };
        match at.home.apply(vec![placed]).await?.into_iter().next() {
            Some(Outcome::Done(done)) => Ok(done.attr),
            Some(Outcome::Refused(kind)) => Err(kind.into()),
            Some(Outcome::Conflict(_)) => {
                Err(Error::new(ErrorKind::Stale, "it was changed at the home meanwhile; try again"))
            }
            None => Err(Error::new(ErrorKind::Io, "the home answered nothing")),
        }
    }

    async fn make(&mut self, dir: &Node, name: &[u8], new: New, mode: u32) -> Result<Node> {
        let (at, dir) = place(dir)?;
        let name = Name::new(name)?;
        let path = dir.path.join(&name);
        let attr = self.apply(&at, Op::Create { dir, name, new, mode }).await?;
        let attr =
            attr.ok_or_else(|| Error::new(ErrorKind::Io, "the home tells nothing of the new object"))?;
        Ok(node(&at, path, &attr))
    }
}

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

fn place(node: &Node) -> Result<(Arc<Reached>, Loc)> {
    match &node.at {
        At::Direct(at, loc) => Ok((Arc::clone(at), loc.clone())),
        At::Root => Err(Error::new(ErrorKind::ReadOnly, "the root directory holds names of hosts only")),
        _ => Err(foreign()),
    }
}

fn node(at: &Arc<Reached>, path: HomePath, a: &home::Attr) -> Node {
    let pair = |t: Time| (t.sec, t.nsec);
    let attr = Attr {
        kind: proto::letter(a.kind),
        mode: a.mode,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        size: a.size,
        used: a.used,
        fileid: a.id.ino,
        atime: pair(a.atime),
        mtime: pair(a.mtime),
        ctime: pair(a.ctime),
    };
    let id = Some(a.id).filter(|id| *id != home::HomeId::default());
    Node { at: At::Direct(Arc::clone(at), Loc { path, id }), attr }
}

fn root() -> Node {
    let attr = Attr {
        kind: 'd',
        mode: 0o555,
        nlink: 2,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        size: 0,
        used: 0,
        fileid: 1,
        atime: (0, 0),
        mtime: (0, 0),
        ctime: (0, 0),
    };
    Node { at: At::Root, attr }
}

async fn stat(at: &Arc<Reached>, path: HomePath) -> Result<Node> {
    let seen = at.home.stat(&Loc { path: path.clone(), id: None }).await?;
    Ok(node(at, path, &seen.attr))
}

fn time(when: When) -> SetTime {
    match when {
        When::Now => SetTime::Now,
        When::At(sec, nsec) => SetTime::At(Time { sec, nsec }),
    }
}

#[async_trait::async_trait]
impl Tree for Direct {
    async fn resolve(&mut self, path: &[u8]) -> Result<Node> {
        let mut parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".");
        let Some(name) = parts.next() else { return Ok(root()) };
        let at = self.open(name).await?;
        let mut path = at.base.clone();
        for part in parts {
            path.push(&Name::new(part)?);
        }
        stat(&at, path).await
    }

    async fn lookup(&mut self, dir: &Node, name: &[u8]) -> Result<Node> {
        if let At::Root = dir.at {
            return self.resolve(name).await;
        }
        let (at, dir) = place(dir)?;
        stat(&at, dir.path.join(&Name::new(name)?)).await
    }

    async fn list(&mut self, dir: &Node, after: Option<After>) -> Result<Page> {
        if let At::Root = dir.at {
            let names = self.common.namespace.configured().into_iter();
            let entries = names.map(|n| (n.as_bytes().to_vec(), None)).collect();
            return Ok(Page { entries, next: None });
        }
        let (at, dir) = place(dir)?;
        let after = match after {
            None => None,
            Some(After::Name(name)) => Some(Name::new(&name)?),
            Some(After::Cookie(_)) => return Err(foreign()),
        };
        let page = at.home.list(&dir, after.as_ref(), limits::CONTROL_ENTRIES as u32).await?;
        let last = page.entries.last().map(|e| e.name.as_bytes().to_vec());
        let next = last.filter(|_| page.more).map(After::Name);
        let entries = page.entries.into_iter().map(|e| {
            let node = e.attr.map(|a| node(&at, dir.path.join(&e.name), &a));
            (e.name.as_bytes().to_vec(), node)
        });
        Ok(Page { entries: entries.collect(), next })
    }

    async fn readlink(&mut self, link: &Node) -> Result<Vec<u8>> {
        let (at, link) = place(link)?;
        Ok(at.home.readlink(&link).await?.to_vec())
    }

    async fn read(&mut self, file: &Node, offset: u64) -> Result<(Bytes, bool)> {
        let (at, file) = place(file)?;
        let chunk = at.home.read(&file, offset, limits::CONTROL_CHUNK as u32).await?;
        let end = offset + chunk.data.len() as u64;
        let eof = chunk.data.is_empty() || end >= chunk.attr.size;
        Ok((chunk.data, eof))
    }

    async fn create(&mut self, dir: &Node, name: &[u8], mode: u32, taken: Taken) -> Result<Node> {
        match self.make(dir, name, New::File, mode).await {
            Err(e) if e.kind == ErrorKind::Exists && taken == Taken::Empties => {}
            made => return made,
        }
        let found = self.lookup(dir, name).await?;
        if !found.attr.is_file() {
            let kind = if found.attr.is_dir() { ErrorKind::IsDir } else { ErrorKind::Exists };
            return Err(kind.into());
        }
        self.set(&found, Set { size: Some(0), ..Set::default() }).await?;
        self.lookup(dir, name).await
    }

    async fn mkdir(&mut self, dir: &Node, name: &[u8], mode: u32) -> Result<Node> {
        self.make(dir, name, New::Dir, mode).await
    }

    async fn symlink(&mut self, dir: &Node, name: &[u8], target: &[u8]) -> Result<()> {
        self.make(dir, name, New::Symlink(Bytes::copy_from_slice(target)), 0o777).await.map(drop)
    }

    async fn write(&mut self, file: &Node, offset: u64, data: Bytes) -> Result<()> {
        let (at, file) = place(file)?;
        let payload = match at.stages {
            false => Payload::Inline(data),
            true => {
                let (op, len) = (self.next_id(), data.len() as u64);
                at.home.stage(op, 0, data).await?;
                Payload::Staged(Staged { op, at: 0, len })
            }
        };
        let pieces = vec![Piece::Data(offset, payload)];
        self.apply(&at, Op::Write { file, base: None, pieces }).await.map(drop)
    }

    async fn set(&mut self, object: &Node, set: Set) -> Result<()> {
        let (at, object) = place(object)?;
        if let Some(size) = set.size {
            let (file, pieces) = (object.clone(), vec![Piece::Truncate(size)]);
            self.apply(&at, Op::Write { file, base: None, pieces }).await?;
        }
        let set = SetAttr {
            mode: set.mode,
            atime: set.atime.map(time),
            mtime: set.mtime.map(time),
            ..SetAttr::default()
        };
        match set == SetAttr::default() {
            true => Ok(()),
            false => self.apply(&at, Op::SetAttr { object, base: None, set }).await.map(drop),
        }
    }

    async fn remove(&mut self, dir: &Node, name: &[u8], is_dir: bool) -> Result<()> {
        let found = self.lookup(dir, name).await?;
        match (is_dir, found.attr.is_dir()) {
            (true, false) => return Err(ErrorKind::NotDir.into()),
            (false, true) => return Err(ErrorKind::IsDir.into()),
            _ => {}
        }
        let ((at, dir), (_, object)) = (place(dir)?, place(&found)?);
        let op = Op::Remove { dir, name: Name::new(name)?, object, is_dir, base: None };
        self.apply(&at, op).await.map(drop)
    }

    async fn rename(&mut self, from: &Node, name: &[u8], to: &Node, new_name: &[u8]) -> Result<()> {
        let ((at, from_dir), (there, to_dir)) = (place(from)?, place(to)?);
        if !Arc::ptr_eq(&at.home, &there.home) {
            return Err(ErrorKind::CrossDevice.into());
        }
        let moving = self.lookup(from, name).await?;
        let replaced = match self.lookup(to, new_name).await {
            Ok(old) => Some((place(&old)?.1, None)),
            Err(e) if e.kind == ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let op = Op::Rename {
            from: from_dir,
            name: Name::new(name)?,
            object: place(&moving)?.1,
            to: to_dir,
            new_name: Name::new(new_name)?,
            replaced,
        };
        self.apply(&at, op).await.map(drop)
    }

    async fn link(&mut self, object: &Node, dir: &Node, name: &[u8]) -> Result<()> {
        let ((at, object), (there, dir)) = (place(object)?, place(dir)?);
        match Arc::ptr_eq(&at.home, &there.home) {
            true => self.apply(&at, Op::Link { object, dir, name: Name::new(name)? }).await.map(drop),
            false => Err(ErrorKind::CrossDevice.into()),
        }
    }

    async fn space(&mut self, object: &Node) -> Result<Space> {
        let (at, object) = place(object)?;
        Ok(at.home.statfs(&object).await?.into())
    }

    /// Nothing to do: a home makes each operation durable before it answers.
    async fn sync(&mut self, _object: &Node) -> Result<()> {
        Ok(())
    }

    async fn another(&mut self) -> Result<Box<dyn Tree>> {
        Ok(Box::new(Direct::over(Arc::clone(&self.common))))
    }
}
