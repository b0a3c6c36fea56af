//! Files straight at their home, without server, cache and journal.

use super::{After, At, Finish, Node, Page, Tree, foreign};
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
use std::sync::Arc;
use vfs::{Mount, Namespace, Start};

/// Tells whether the journal holds changes of an account that the home does not have yet.
pub type Unsent = Box<dyn Fn(&str) -> Result<()> + Send + Sync>;

/// The homes themselves.
pub struct Direct {
    namespace: Arc<dyn Namespace>,
    unsent: Unsent,
    /// Names that were used: the home, where they start, and whether data can be staged there.
    opened: HashMap<Vec<u8>, (Arc<dyn Home>, HomePath)>,
    stages: bool,
    /// Names the operations of this process: nobody else draws the same number.
    gateway: u64,
    seq: u64,
}

impl Direct {
    /// Over the names of a root directory. `unsent` refuses accounts whose newest state is only here.
    pub fn new(namespace: Arc<dyn Namespace>, unsent: Unsent) -> Direct {
        let gateway = RandomState::new().hash_one(std::process::id());
        Direct { namespace, unsent, opened: HashMap::new(), stages: false, gateway, seq: 0 }
    }

    async fn open(&mut self, name: &[u8]) -> Result<(Arc<dyn Home>, HomePath)> {
        if let Some(opened) = self.opened.get(name) {
            return Ok(opened.clone());
        }
        let Mount { account, home, start, .. } = self.namespace.resolve(&Name::new(name)?).await?;
        (self.unsent)(&account)?;
        let hello = home.attach().await?;
        let base = match start {
            Start::Root => HomePath::root(),
            Start::HomeDir => hello.home_dir,
            Start::Path(path) => path,
        };
        self.stages = hello.stages;
        self.opened.insert(name.to_vec(), (Arc::clone(&home), base.clone()));
        Ok((home, base))
    }

    fn next_id(&mut self) -> OpId {
        self.seq += 1;
        OpId { gateway: self.gateway, volume: 0, seq: self.seq }
    }

    async fn apply(&mut self, home: &Arc<dyn Home>, op: Op<Loc, Payload>) -> Result<Option<home::Attr>> {
        let id = self.next_id();
        let placed = Placed { id, time: now(), plain: true, resent: false, op };
        match home.apply(vec![placed]).await?.into_iter().next() {
            Some(Outcome::Done(done)) => Ok(done.attr),
            Some(Outcome::Refused(kind)) => Err(kind.into()),
            Some(Outcome::Conflict(_)) => {
                Err(Error::new(ErrorKind::Stale, "it was changed at the home meanwhile; try again"))
            }
            None => Err(Error::new(ErrorKind::Io, "the home answered nothing")),
        }
    }

    async fn make(&mut self, dir: &Node, name: &[u8], new: New, mode: u32) -> Result<Node> {
        let (home, dir) = place(dir)?;
        let name = Name::new(name)?;
        let path = dir.path.join(&name);
        let attr = self.apply(&home, Op::Create { dir, name, new, mode }).await?;
        let attr =
            attr.ok_or_else(|| Error::new(ErrorKind::Io, "the home tells nothing of the new object"))?;
        Ok(node(&home, path, &attr))
    }
}

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

fn place(node: &Node) -> Result<(Arc<dyn Home>, Loc)> {
    match &node.at {
        At::Direct(home, loc) => Ok((Arc::clone(home), loc.clone())),
        At::Root => Err(Error::new(ErrorKind::ReadOnly, "the root directory holds names of hosts only")),
        _ => Err(foreign()),
    }
}

fn node(home: &Arc<dyn Home>, path: HomePath, a: &home::Attr) -> Node {
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
    Node { at: At::Direct(Arc::clone(home), Loc { path, id }), attr }
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

#[async_trait::async_trait]
impl Tree for Direct {
    async fn resolve(&mut self, path: &[u8]) -> Result<Node> {
        let mut parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".");
        let Some(name) = parts.next() else { return Ok(root()) };
        let (home, mut path) = self.open(name).await?;
        for part in parts {
            path.push(&Name::new(part)?);
        }
        let seen = home.stat(&Loc { path: path.clone(), id: None }).await?;
        Ok(node(&home, path, &seen.attr))
    }

    async fn lookup(&mut self, dir: &Node, name: &[u8]) -> Result<Node> {
        if let At::Root = dir.at {
            return self.resolve(name).await;
        }
        let (home, dir) = place(dir)?;
        let path = dir.path.join(&Name::new(name)?);
        let seen = home.stat(&Loc { path: path.clone(), id: None }).await?;
        Ok(node(&home, path, &seen.attr))
    }

    async fn list(&mut self, dir: &Node, after: Option<After>) -> Result<Page> {
        if let At::Root = dir.at {
            let names = self.namespace.configured().into_iter();
            let entries = names.map(|n| (n.as_bytes().to_vec(), None)).collect();
            return Ok(Page { entries, next: None });
        }
        let (home, dir) = place(dir)?;
        let after = match after {
            None => None,
            Some(After::Name(name)) => Some(Name::new(&name)?),
            Some(After::Cookie(_)) => return Err(foreign()),
        };
        let page = home.list(&dir, after.as_ref(), limits::CONTROL_ENTRIES as u32).await?;
        let last = page.entries.last().map(|e| e.name.as_bytes().to_vec());
        let next = last.filter(|_| page.more).map(After::Name);
        let entries = page.entries.into_iter().map(|e| {
            let node = e.attr.map(|a| node(&home, dir.path.join(&e.name), &a));
            (e.name.as_bytes().to_vec(), node)
        });
        Ok(Page { entries: entries.collect(), next })
    }

    async fn readlink(&mut self, link: &Node) -> Result<Vec<u8>> {
        let (home, link) = place(link)?;
        Ok(home.readlink(&link).await?.to_vec())
    }

    async fn read(&mut self, file: &Node, at: u64) -> Result<(Bytes, bool)> {
        let (home, file) = place(file)?;
        let chunk = home.read(&file, at, limits::CONTROL_CHUNK as u32).await?;
        let end = at + chunk.data.len() as u64;
        let eof = chunk.data.is_empty() || end >= chunk.attr.size;
        Ok((chunk.data, eof))
    }

    async fn create(&mut self, dir: &Node, name: &[u8], mode: u32) -> Result<Node> {
        match self.make(dir, name, New::File, mode).await {
            Err(e) if e.kind == ErrorKind::Exists => {}
            made => return made,
        }
        let found = self.lookup(dir, name).await?;
        if !found.attr.is_file() {
            let kind = if found.attr.is_dir() { ErrorKind::IsDir } else { ErrorKind::Exists };
            return Err(kind.into());
        }
        let (home, file) = place(&found)?;
        self.apply(&home, Op::Write { file, base: None, pieces: vec![Piece::Truncate(0)] }).await?;
        self.lookup(dir, name).await
    }

    async fn mkdir(&mut self, dir: &Node, name: &[u8], mode: u32) -> Result<Node> {
        self.make(dir, name, New::Dir, mode).await
    }

    async fn symlink(&mut self, dir: &Node, name: &[u8], target: &[u8]) -> Result<()> {
        self.make(dir, name, New::Symlink(Bytes::copy_from_slice(target)), 0o777).await.map(drop)
    }

    async fn write(&mut self, file: &Node, at: u64, data: Bytes) -> Result<()> {
        let (home, file) = place(file)?;
        let payload = match self.stages {
            false => Payload::Inline(data),
            true => {
                let (op, len) = (self.next_id(), data.len() as u64);
                let held = home.stage(op, 0, data).await?;
                if held < len {
                    return Err(Error::new(ErrorKind::Io, "the home did not take the bytes; try again"));
                }
                Payload::Staged(Staged { op, at: 0, len })
            }
        };
        let pieces = vec![Piece::Data(at, payload)];
        self.apply(&home, Op::Write { file, base: None, pieces }).await.map(drop)
    }

    async fn finish(&mut self, object: &Node, what: Finish) -> Result<()> {
        if what.mode.is_none() && what.mtime.is_none() {
            return Ok(());
        }
        let (home, object) = place(object)?;
        let mtime = what.mtime.map(|(sec, nsec)| SetTime::At(Time { sec, nsec }));
        let set = SetAttr { mode: what.mode, mtime, ..SetAttr::default() };
        self.apply(&home, Op::SetAttr { object, set }).await.map(drop)
    }
}
