//! The posix home as a [`Home`]: each call on a thread where it may block.

use super::sys::Sys;
use super::{Linux, Posix};
use crate::attr::StatFs;
use crate::error::{Error, ErrorKind, Result};
use crate::{Changed, Copied, Watched, XattrName, Xattrs};
use crate::{
    Chunk, Claimed, Class, Entered, Hello, Home, Link, Loc, Name, OpId, Outcome, Page, Placed, Seen, Status,
    Term,
};
use bytes::Bytes;
use std::sync::Arc;

/// A tree of this machine.
pub struct PosixHome<S: Sys = Linux> {
    posix: Arc<Posix<S>>,
}

impl<S: Sys> Clone for PosixHome<S> {
    fn clone(&self) -> Self {
        PosixHome { posix: self.posix.clone() }
    }
}

impl<S: Sys> PosixHome<S> {
    /// Serves a tree.
    pub fn new(posix: Posix<S>) -> PosixHome<S> {
        PosixHome { posix: Arc::new(posix) }
    }

    async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Posix<S>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let posix = self.posix.clone();
        tokio::task::spawn_blocking(move || call(&posix))
            .await
            .map_err(|e| Error::new(ErrorKind::Io, format!("a call of the local home died: {e}")))?
    }
}

#[async_trait::async_trait]
impl<S: Sys> Home for PosixHome<S> {
    fn status(&self) -> Status {
        Status::new(Link::Up, Some(Class::Posix))
    }

    async fn attach(&self) -> Result<Hello> {
        self.run(|posix| posix.hello()).await
    }

    async fn stat(&self, at: &Loc) -> Result<Seen> {
        let at = at.clone();
        self.run(move |posix| posix.stat(&at)).await
    }

    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        let (dir, after) = (dir.clone(), after.cloned());
        self.run(move |posix| posix.list(&dir, after.as_ref(), max)).await
    }

    async fn watch(&self, dir: &Loc, max: u32, _: u64) -> Result<Watched> {
        Ok(Watched::not(self.list(dir, None, max).await?))
    }

    async fn changes(&self) -> Vec<Changed> {
        std::future::pending().await
    }

    fn epoch(&self) -> Option<u64> {
        None
    }

    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let file = file.clone();
        self.run(move |posix| posix.read(&file, at, len)).await
    }

    async fn readlink(&self, at: &Loc) -> Result<Bytes> {
        let at = at.clone();
        self.run(move |posix| posix.readlink(&at)).await
    }

    async fn statfs(&self, at: &Loc) -> Result<StatFs> {
        let at = at.clone();
        self.run(move |posix| posix.statfs(&at)).await
    }

    async fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        let (at, want) = (at.clone(), want.cloned());
        self.run(move |posix| posix.xattrs(&at, want.as_ref())).await
    }

    async fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<()> {
        self.run(move |posix| posix.stage(op, at, data).map(drop)).await
    }

    async fn copy(&self, op: OpId, places: Vec<Loc>, parts: Vec<Copied>) -> Result<()> {
        self.run(move |posix| posix.copy(op, &places, &parts).map(drop)).await
    }

    async fn spool(&self, op: OpId) -> Result<u64> {
        self.run(move |posix| posix.spool(op)).await
    }

    async fn unspool(&self, op: OpId) -> Result<()> {
        self.run(move |posix| {
            posix.unspool(op);
            Ok(())
        })
        .await
    }

    fn spools(&self) -> bool {
        true
    }

    async fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        self.run(move |posix| posix.claim(gateway, volume, lost)).await
    }

    async fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: Term) -> Result<Entered> {
        self.run(move |posix| posix.claim_in(gateway, volume, lost, &term)).await
    }

    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        self.run(move |posix| posix.apply(ops)).await
    }
}
