//! Files through the running server.

use super::{After, At, Node, Page, Set, Space, Taken, Tree, foreign};
use crate::control::client::{Client, unexpected};
use crate::control::proto::{Entry, Id, Object, Raw, Reply, Request};
use crate::limits;
use crate::state::StateDir;
use bytes::Bytes;
use home::{Error, ErrorKind, Result};

/// The server's tree.
pub struct Served {
    client: Client,
    state: StateDir,
}

impl Served {
    /// Over a connection to the server of a state directory.
    pub fn new(client: Client, state: StateDir) -> Served {
        Served { client, state }
    }

    async fn object(&mut self, request: Request) -> Result<Node> {
        match self.client.ask(request).await? {
            Reply::Object(object) => Ok(node(object)),
            _ => Err(unexpected()),
        }
    }

    async fn done(&mut self, request: Request, payload: &[u8]) -> Result<()> {
        match self.client.call(request, payload).await? {
            (Reply::Done, _) => Ok(()),
            _ => Err(unexpected()),
        }
    }
}

/// What the server told of an object.
pub fn node(object: Object) -> Node {
    Node { at: At::Served(object.id), attr: object.attr }
}

/// What the answer to a wish to have everything at its home means.
pub fn synced(reply: Reply) -> Result<()> {
    match reply {
        Reply::Done => Ok(()),
        Reply::Unsent(unsent) => {
            let why: Vec<String> = unsent.iter().map(crate::serve::unsent_line).collect();
            Err(Error::new(ErrorKind::Busy, format!("not everything is at its home: {}", why.join("; "))))
        }
        _ => Err(unexpected()),
    }
}

fn id(node: &Node) -> Result<Id> {
    match node.at {
        At::Served(id) => Ok(id),
        _ => Err(foreign()),
    }
}

fn entry(dir: &Node, name: &[u8]) -> Result<Entry> {
    Ok(Entry { dir: id(dir)?, name: name.into() })
}

#[async_trait::async_trait]
impl Tree for Served {
    async fn resolve(&mut self, path: &[u8]) -> Result<Node> {
        self.object(Request::Resolve(path.into())).await
    }

    async fn lookup(&mut self, dir: &Node, name: &[u8]) -> Result<Node> {
        self.object(Request::Lookup(entry(dir, name)?)).await
    }

    async fn list(&mut self, dir: &Node, after: Option<After>) -> Result<Page> {
        let after = match after {
            Some(After::Cookie(cookie)) => cookie,
            Some(After::Name(_)) => return Err(foreign()),
            None => 0,
        };
        match self.client.ask(Request::List { dir: id(dir)?, after }).await? {
            Reply::Page(page) => Ok(Page {
                entries: page
                    .entries
                    .into_iter()
                    .map(|(Raw(name), object)| (name, object.map(node)))
                    .collect(),
                next: page.next.map(After::Cookie),
            }),
            _ => Err(unexpected()),
        }
    }

    async fn readlink(&mut self, link: &Node) -> Result<Vec<u8>> {
        match self.client.ask(Request::Readlink(id(link)?)).await? {
            Reply::Target(Raw(target)) => Ok(target),
            _ => Err(unexpected()),
        }
    }

    async fn read(&mut self, file: &Node, at: u64) -> Result<(Bytes, bool)> {
        let request = Request::Read { file: id(file)?, at, len: limits::CONTROL_CHUNK as u32 };
        match self.client.call(request, b"").await? {
            (Reply::Data { eof }, bytes) => Ok((bytes, eof)),
            _ => Err(unexpected()),
        }
    }

    async fn create(&mut self, dir: &Node, name: &[u8], mode: u32, taken: Taken) -> Result<Node> {
        let new = taken == Taken::Fails;
        self.object(Request::Create { entry: entry(dir, name)?, mode, new }).await
    }

    async fn mkdir(&mut self, dir: &Node, name: &[u8], mode: u32) -> Result<Node> {
        self.object(Request::Mkdir { entry: entry(dir, name)?, mode }).await
    }

    async fn symlink(&mut self, dir: &Node, name: &[u8], target: &[u8]) -> Result<()> {
        let request = Request::Symlink { entry: entry(dir, name)?, target: target.into() };
        self.object(request).await.map(drop)
    }

    async fn write(&mut self, file: &Node, at: u64, data: Bytes) -> Result<()> {
        self.done(Request::Write { file: id(file)?, at }, &data).await
    }

    async fn set(&mut self, object: &Node, set: Set) -> Result<()> {
        self.done(Request::Set { object: id(object)?, set }, b"").await
    }

    async fn remove(&mut self, dir: &Node, name: &[u8], is_dir: bool) -> Result<()> {
        self.done(Request::Remove { entry: entry(dir, name)?, is_dir }, b"").await
    }

    async fn rename(&mut self, from: &Node, name: &[u8], to: &Node, new_name: &[u8]) -> Result<()> {
        let request = Request::Rename { from: entry(from, name)?, to: entry(to, new_name)? };
        self.done(request, b"").await
    }

    async fn link(&mut self, object: &Node, dir: &Node, name: &[u8]) -> Result<()> {
        self.done(Request::Link { object: id(object)?, entry: entry(dir, name)? }, b"").await
    }

    async fn space(&mut self, object: &Node) -> Result<Space> {
        match self.client.ask(Request::StatFs(id(object)?)).await? {
            Reply::Space(space) => Ok(space),
            _ => Err(unexpected()),
        }
    }

    async fn sync(&mut self, object: &Node) -> Result<()> {
        let timeout_s = limits::SYNC_TIMEOUT.as_secs_f64();
        synced(self.client.ask(Request::SyncHome { object: id(object)?, timeout_s }).await?)
    }

    async fn another(&mut self) -> Result<Box<dyn Tree>> {
        let client = Client::connect(&self.state).await.map_err(|e| Error::new(ErrorKind::Io, e))?;
        let gone = || {
            Error::new(
                ErrorKind::Io,
                "the server has ended: start it again with `trellis mount` or `trellis serve`",
            )
        };
        Ok(Box::new(Served::new(client.ok_or_else(gone)?, self.state.clone())))
    }
}
