//! FUSE: the engine served to one kernel over a file descriptor.
//!
//! The crate `fuser` reads and writes the kernel's messages; what is here turns each into calls of the engine. A
//! request's answer is a future that is polled once, on the thread that read the request: what the caches know is
//! answered at once, without another thread. Only what has to wait moves to the runtime, so that an event loop never
//! waits for a home.
//!
//! Nothing is mounted here: [`serve`] works over any descriptor that carries FUSE messages, `/dev/fuse` or a
//! `SOCK_SEQPACKET` socket whose other end somebody relays.
//!
//! The kernel asks us about permissions (`default_permissions` is off), because the home decides them. Only the
//! server's own user can reach a mount (`allow_other` is off), so every request speaks for that user.
//!
//! # Layout
//! - [`nodes`]: which object does a node id mean, and for how long? [`files`]: what is open?
//! - [`call`]: how does a request wait, and for how long? [`programs`]: which call of a program is it a part of?
//! - [`filesystem`]: the table of requests. [`names`], [`dirs`], [`objects`], [`io`], [`locks`], [`xattrs`]: what
//!   each does.
//! - [`invalidate`]: what must the kernel forget?
//! - [`convert`]: errors, attributes and times.

mod call;
mod convert;
mod dirs;
mod files;
mod filesystem;
mod invalidate;
mod io;
mod locks;
mod names;
mod nodes;
mod objects;
mod programs;
mod xattrs;

use crate::limits;
use files::{Files, Open};
use filesystem::Requests;
use fuser::{Config, Errno, INodeNo, Session, SessionACL};
use invalidate::{Sources, Stale, Unanswered};
use nodes::Nodes;
use programs::Programs;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use vfs::{Cred, Ctx, Oid, Vfs};

/// Most bytes of one read or write where nothing else bounds it.
pub const BLOCK: u32 = limits::IO_MAX;

/// How a session is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory that the kernel sees as the root of the mount.
    pub root: Oid,
    /// In whose name every request acts.
    pub cred: Cred,
    /// Whether the descriptor is `/dev/fuse` itself, of which each event loop can have a queue of its own, and whose
    /// requests come from processes of this machine.
    pub device: bool,
    /// Most bytes of one read or write; at least 4096.
    pub block: u32,
    /// The user and the group by which the kernel knows whoever mounted; `cred` says what they are here.
    pub owner: (u32, u32),
}

/// Two numbers of which each stands for the other, so that no third one becomes either.
#[derive(Debug, Clone, Copy)]
struct Pair(u32, u32);

impl Pair {
    fn swap(self, id: u32) -> u32 {
        match id {
            id if id == self.0 => self.1,
            id if id == self.1 => self.0,
            id => id,
        }
    }
}

/// A session that is being served. Dropping this does not end it: only the kernel does, when nothing uses the mount
/// any more, or the end of the process.
#[derive(Debug, Clone)]
pub struct Running {
    ended: watch::Receiver<bool>,
}

impl Running {
    /// Waits for the end of the session: the file system was unmounted and nobody uses it any more.
    pub async fn ended(&mut self) {
        // A sender that is gone has ended too.
        let _ = self.ended.wait_for(|ended| *ended).await;
    }

    /// Whether the session has ended.
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow() || self.ended.has_changed().is_err()
    }
}

/// Serves a kernel over `fd` from threads of its own, until it ends the session. Blocks until the kernel's first
/// message (FUSE_INIT) has come and was answered; must be called inside a tokio runtime.
pub fn serve(vfs: Arc<Vfs>, fd: OwnedFd, options: Options) -> std::io::Result<Running> {
    let runtime = tokio::runtime::Handle::current();
    let (stale, appended) = invalidate::channel();
    let tree = Arc::new(Tree {
        stale,
        unanswered: Arc::default(),
        mapped_direct: OnceLock::new(),
        nodes: Nodes::new(vfs.handle_key(), options.root),
        files: Files::new(),
        programs: Programs::default(),
        owner: (Pair(options.cred.uid, options.owner.0), Pair(options.cred.gid, options.owner.1)),
        cred: options.cred,
        origin: vfs.new_session(),
        here: options.device,
        block: options.block.min(BLOCK),
        vfs: Arc::clone(&vfs),
    });
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut config = Config::default();
    config.n_threads = Some(processors.clamp(limits::FUSE_THREADS.0, limits::FUSE_THREADS.1));
    config.clone_fd = options.device;
    // The kernel lets nobody but the mount's owner in; on a relayed session his uid may be another one than ours.
    // Nothing that changes after this is missed.
    let watch = vfs.watch();
    let requests = Requests::new(Arc::clone(&tree), runtime.clone());
    let session = Session::from_fd(requests, fd, SessionACL::All, config)?;
    let (end, ended) = watch::channel(false);
    let origin = tree.origin;
    let kernel = session.notifier();
    let sources = Sources { watch, stale: appended, ended: ended.clone() };
    let invalidate = move || invalidate::run(&runtime, &tree, sources, &kernel);
    std::thread::Builder::new().name("fuse-forget".into()).spawn(invalidate)?;
    let run = move || {
        if let Err(e) = session.run() {
            tracing::warn!("FUSE session: {e}");
        }
        vfs.release_holder(origin);
        // Nobody may be waiting.
        let _ = end.send(true);
    };
    std::thread::Builder::new().name("fuse".into()).spawn(run)?;
    Ok(Running { ended })
}

/// What all requests of a session work on.
struct Tree {
    vfs: Arc<Vfs>,
    cred: Cred,
    /// User and group here and at the kernel.
    owner: (Pair, Pair),
    /// Names this session in the engine's stream of changes.
    origin: u64,
    nodes: Nodes,
    files: Files,
    programs: Programs,
    /// Takes nodes whose pages in the kernel are out of date by our own doing.
    stale: Stale,
    /// Questions that the kernel is to have the answers to before it hears of what they have found.
    unanswered: Arc<Unanswered>,
    /// The requests come from processes of this machine.
    here: bool,
    /// Most bytes of one read or write.
    block: u32,
    /// Whether the kernel can map files whose reads and writes pass its page cache by.
    mapped_direct: OnceLock<bool>,
}

/// The tree as one request sees it.
struct Call {
    tree: Arc<Tree>,
    /// When the program's call began that the request is a part of.
    since: Duration,
}

impl Deref for Call {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}

impl Call {
    fn ctx(&self) -> Ctx<'_> {
        Ctx { since: Some(self.since), ..self.ctx_now() }
    }

    /// The circumstances of what must know nothing older than itself.
    fn ctx_now(&self) -> Ctx<'_> {
        Ctx { origin: self.origin, ..Ctx::of(&self.cred) }
    }

    /// The circumstances of a call that comes through an open file.
    fn ctx_of<'a>(&'a self, open: Option<&'a Open>) -> Ctx<'a> {
        Ctx { open: open.map(|o| &o.file), ..self.ctx() }
    }
}

impl Tree {
    /// The object that a node id of the kernel means.
    fn oid(&self, node: INodeNo) -> Result<Oid, Errno> {
        self.nodes.get(node.0).ok_or(convert::ESTALE)
    }
}
