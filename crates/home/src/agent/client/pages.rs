//! Listings: one page, one that is watched from then on, or those that a walk comes to.

use super::super::verbs::{ListArgs, Reply, Request, WalkArgs, WatchArgs};
use super::super::verbs::{WATCHES, WalkedPage, WalkedPages, WatchedPage};
use super::{Class, Session, unexpected};
use crate::{ErrorKind, Home, Loc, Name, Page, Result, Walked, Watched};

impl Session {
    pub(super) async fn list_as(
        &self,
        class: Class,
        dir: &Loc,
        after: Option<&Name>,
        max: u32,
    ) -> Result<Page> {
        let args = ListArgs { dir: dir.clone(), after: after.cloned(), max };
        let request = if self.has_xattrs() { Request::Listx(args) } else { Request::List(args) };
        let most = max.max(1) as usize;
        match self.call(class, request).await? {
            Reply::List(page) if page.entries.len() <= most && !self.has_xattrs() => Ok(page),
            Reply::Listx(page) if page.page.entries.len() <= most && self.has_xattrs() => Ok(page.joined()),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn watch_as(&self, class: Class, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        if self.accept.features & WATCHES == 0 || !self.has_xattrs() {
            return Ok(Watched::not(self.list_as(class, dir, None, max).await?));
        }
        let epoch = self.epoch();
        let args = WatchArgs { dir: dir.clone(), max, mark };
        match self.call(class, Request::Watch(args)).await? {
            Reply::Watch(answer) if answer.page.page.entries.len() <= max.max(1) as usize => {
                // Anything may have gone untold since the question if the span is another one now.
                let epoch = epoch.filter(|epoch| answer.watched && self.epoch() == Some(*epoch));
                Ok(Watched { page: answer.page.joined(), epoch })
            }
            other => Err(unexpected(&other)),
        }
    }

    pub(super) async fn walk_as(&self, class: Class, from: Vec<Loc>, bytes: u32) -> Result<Walked> {
        if !self.walks() {
            return Err(ErrorKind::Unsupported.into());
        }
        let before = self.epoch();
        let WalkedPages { came, pages } =
            match self.call(class, Request::Walk(WalkArgs { from, bytes })).await? {
                Reply::Walk(walked) => walked,
                other => return Err(unexpected(&other)),
            };
        // As for WATCH: anything may have gone untold since the question.
        let epoch = |watched| before.filter(|epoch| watched && self.epoch() == Some(*epoch));
        let dir = |WalkedPage { path, page: WatchedPage { page, watched } }| {
            (path, Watched { page: page.joined(), epoch: epoch(watched) })
        };
        Ok(Walked { came, dirs: pages.into_iter().map(dir).collect() })
    }
}
