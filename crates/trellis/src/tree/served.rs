//! Files through the running server.

use super::{After, At, Finish, Node, Page, Tree, foreign};
use crate::control::client::{Client, unexpected};
use crate::control::proto::{Entry, Id, Object, Raw, Reply, Request};
use crate::limits;
use bytes::Bytes;
use home::Result;

/// The server's tree.
pub struct Served {
    client: Client,
}

impl Served {
    /// Over a connection to the server.
    pub fn new(client: Client) -> Served {
        Served { client }
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

fn node(object: Object) -> Node {
    Node { at: At::Served(object.id), attr: object.attr }
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

    async fn create(&mut self, dir: &Node, name: &[u8], mode: u32) -> Result<Node> {
        self.object(Request::Create { entry: entry(dir, name)?, mode }).await
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

    async fn finish(&mut self, object: &Node, what: Finish) -> Result<()> {
        let Finish { mode, mtime, commit } = what;
        self.done(Request::Finish { object: id(object)?, mode, mtime, commit }, b"").await
    }
}
