//! The names of a path, in one question: each alone would wait for the answer to the one before it.

use crate::inode::{ROOT_ID, Tree};
use crate::limits;
use crate::meta;
use crate::volume::Volume;
use futures_util::future::join_all;
use home::{HomePath, Kind, Loc, Name, Result};
use std::sync::Arc;

impl Volume {
    /// Somebody is going to follow a path from the root. Nobody waits for the answer, or learns where it does not lead.
    pub fn way_ahead(self: &Arc<Self>, path: HomePath) {
        if self.plain() || !self.connects() {
            return;
        }
        let volume = self.clone();
        tokio::spawn(async move {
            if let Err(e) = volume.look_along(&path).await {
                tracing::debug!(%path, "where it leads is not known: {e}");
            }
        });
    }

    async fn look_along(self: &Arc<Self>, path: &HomePath) -> Result<()> {
        self.greeted().await?;
        let asked = self.asked(&self.tree.lock());
        let (mut above, mut steps) = (HomePath::root(), Vec::new());
        for name in path.names().take(limits::WAY) {
            let at = Loc { path: above.join(&name), id: None };
            steps.push((std::mem::replace(&mut above, at.path.clone()), name, at));
        }
        let looks = join_all(steps.iter().map(|(.., at)| self.home.stat(at))).await;
        let mut tree = self.tree.lock();
        let mut dir = ROOT_ID;
        for ((above, name, _), seen) in steps.iter().zip(looks) {
            let answer = (asked, above);
            meta::with_names(&mut tree, dir, |tree| self.take_name(tree, (dir, name), seen, answer))?;
            match directory(&mut tree, dir, name) {
                Some(below) => dir = below,
                None => break,
            }
        }
        self.log_bindings_if_room(&mut tree)
    }
}

/// The directory by a name in another one, if it is known.
fn directory(tree: &mut Tree, dir: u64, name: &Name) -> Option<u64> {
    let id = tree.names(dir).ok()?.slot(name)?.child?;
    tree.get(id).ok().filter(|inode| inode.kind == Kind::Dir).map(|_| id)
}
