//! What the kernel must forget, because somebody else has changed it: another session, NFS, or the home.
//!
//! A thread of its own tells the kernel, and holds no lock while it does: the kernel may wait for a page or a
//! directory that is locked by a request which only our event loops can answer. Where that takes long, or the stream
//! of changes was cut, the kernel's own bound ([`limits::FUSE_TTL`]) still holds for names and attributes, and with the
//! attributes for content.

use super::Tree;
use crate::limits;
use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use vfs::{Event, Watch};

/// Nodes whose pages are out of date though we changed them ourselves, and where to tell of them.
pub type Stale = mpsc::Sender<u64>;

/// The channel for [`Stale`] nodes. What does not fit is lost, and seen when the attributes are asked for again.
pub fn channel() -> (Stale, mpsc::Receiver<u64>) {
    mpsc::channel(limits::FUSE_STALE)
}

/// Where changes come from.
pub struct Sources {
    /// The engine.
    pub watch: Watch,
    /// Ourselves.
    pub stale: mpsc::Receiver<u64>,
    /// Tells when the session has ended.
    pub ended: watch::Receiver<bool>,
}

/// What happened.
enum News {
    Event(Event),
    Stale(u64),
    Ended,
}

/// Tells the kernel until the session ends.
pub fn run(runtime: &Handle, tree: &Arc<Tree>, mut sources: Sources, kernel: &Notifier) {
    loop {
        let told = match runtime.block_on(sources.next()) {
            News::Event(event) if event.origin() == tree.origin => Ok(()),
            News::Event(event) => tell(tree, kernel, &event),
            News::Stale(node) => kernel.inval_inode(INodeNo(node), 0, 0),
            News::Ended => return,
        };
        if let Err(e) = told {
            tracing::debug!("invalidation: {e}");
        }
    }
}

impl Sources {
    async fn next(&mut self) -> News {
        tokio::select! {
            _ = self.ended.wait_for(|ended| *ended) => News::Ended,
            event = self.watch.next() => News::Event(event),
            Some(node) = self.stale.recv() => News::Stale(node),
        }
    }
}

fn tell(tree: &Tree, kernel: &Notifier, event: &Event) -> std::io::Result<()> {
    match event {
        // A negative offset stands for the attributes alone (fs/fuse/inode.c `fuse_reverse_inval_inode`).
        Event::Attributes { oid, .. } => match tree.nodes.known(*oid) {
            Some(node) => kernel.inval_inode(INodeNo(node), -1, 0),
            None => Ok(()),
        },
        Event::Content { oid, .. } => match tree.nodes.known(*oid) {
            Some(node) => kernel.inval_inode(INodeNo(node), 0, 0),
            None => Ok(()),
        },
        Event::Entry { dir, name, .. } => match tree.nodes.known(*dir) {
            Some(node) => kernel.inval_entry(INodeNo(node), OsStr::from_bytes(name.as_bytes())),
            None => Ok(()),
        },
        Event::Lost => tree.nodes.all().into_iter().try_for_each(|n| kernel.inval_inode(INodeNo(n), 0, 0)),
    }
}
