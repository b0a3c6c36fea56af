//! Further pipes for reads and for what is staged. ssh lets 2 MiB of one channel be under way, and over a far and
//! fast wire that is what bounds a transfer. The pipes lead into the same agent; where it cannot be joined, each leads to
//! an agent of its own, which is asked for bytes of files and nothing else, because changes have one agent. What one of
//! them cannot do the first one is asked again.

use super::super::verbs::{JOINS, StageArgs};
use super::{Session, Wire};
use crate::limits::agent::{CHANNEL_GIVEN, CHANNEL_IDLE, CHANNELS_MORE, CHANNELS_PAUSE};
use crate::{Chunk, Loc, Result, Turn};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A connection that is being made.
pub type Opening = BoxFuture<'static, Result<Session>>;

/// Makes one more connection to the same account.
#[derive(Clone)]
pub struct Opener {
    /// Into the agent that runs there as this process, or to another one.
    pub open: Arc<dyn Fn(Option<u32>) -> Opening + Send + Sync>,
    /// Whether that takes a login, which may be refused.
    pub logs_in: bool,
}

pub(super) struct Wide {
    opener: Opener,
    /// What is on its way over the first pipe.
    first: Arc<Load>,
    more: Arc<Mutex<More>>,
    /// Some pipe has room for something of this kind.
    room: Arc<[Notify; KINDS]>,
}

/// What a pipe is given. One kind does not wait for room that another one takes.
#[derive(Clone, Copy)]
enum Kind {
    Read(Turn),
    Staged,
}

const KINDS: usize = 4;

impl Kind {
    fn index(self) -> usize {
        match self {
            Kind::Read(turn) => turn as usize,
            Kind::Staged => KINDS - 1,
        }
    }
}

/// Bytes that a pipe was given and that are under way, by kind.
#[derive(Default)]
struct Load([AtomicU64; KINDS]);

impl Load {
    fn all(&self) -> u64 {
        self.0.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    fn has_room(&self, kind: Kind) -> bool {
        self.0[kind.index()].load(Ordering::Relaxed) < CHANNEL_GIVEN
    }
}

#[derive(Default)]
struct More {
    pipes: Vec<Pipe>,
    /// When something was carried last.
    used: Option<Instant>,
    /// Makes further pipes, and closes them when they are not used any more.
    keeper: Option<AbortHandle>,
}

#[derive(Clone)]
struct Pipe {
    session: Arc<Session>,
    load: Arc<Load>,
    /// Whether it leads into the same agent.
    joined: bool,
}

/// Bytes that are under way.
struct Given {
    load: Arc<Load>,
    kind: Kind,
    len: u64,
    room: Arc<[Notify; KINDS]>,
}

impl Drop for Given {
    fn drop(&mut self) {
        self.load.0[self.kind.index()].fetch_sub(self.len, Ordering::Relaxed);
        self.room[self.kind.index()].notify_one();
    }
}

impl Wide {
    pub fn new(opener: Opener) -> Wide {
        Wide { opener, first: Arc::default(), more: Arc::default(), room: Arc::default() }
    }

    /// Reads over the pipe that has least to do. `first`: the one that has always been there.
    pub async fn read(&self, first: &Session, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let kind = Kind::Read(turn);
        let (other, given) = self.turn(kind, len.into()).await;
        self.uses(first);
        if let Some(pipe) = other {
            if let Ok(chunk) = pipe.session.read_once(turn, file, at, len).await {
                let meter = &first.shared.life.meter;
                meter.bytes_in.fetch_add(chunk.data.len() as u64, Ordering::Relaxed);
                return Ok(chunk);
            }
            drop(given);
            let _given = self.give(&self.first, kind, len.into());
            return first.read_once(turn, file, at, len).await;
        }
        first.read_once(turn, file, at, len).await
    }

    /// Stages over the joined pipe that has least to do. `first`: the one that has always been there.
    pub async fn stage(&self, first: &Session, args: StageArgs) -> Result<()> {
        let len = args.data.len() as u64;
        let (other, given) = self.turn(Kind::Staged, len).await;
        self.uses(first);
        if let Some(pipe) = other {
            if pipe.session.stage_and_hear(args.clone()).await.is_ok() {
                first.shared.life.meter.bytes_out.fetch_add(len, Ordering::Relaxed);
                return Ok(());
            }
            drop(given);
            let _given = self.give(&self.first, Kind::Staged, len);
            return first.stage_and_hear(args).await;
        }
        // Among several pipes each has as much under way as it has answered.
        let several = self.more.lock().pipes.iter().any(|pipe| pipe.joined);
        match several {
            true => first.stage_and_hear(args).await,
            false => first.stage_on_its_way(args).await,
        }
    }

    /// Something is carried. Where the wire carries more than one channel does, there are to be further pipes.
    fn uses(&self, first: &Session) {
        self.more.lock().used = Some(Instant::now());
        if first.wire().is_wide(self.first.all()) {
            self.widen(first);
        }
    }

    fn give(&self, load: &Arc<Load>, kind: Kind, len: u64) -> Given {
        load.0[kind.index()].fetch_add(len, Ordering::Relaxed);
        Given { load: load.clone(), kind, len, room: self.room.clone() }
    }

    /// The pipe that `len` bytes go over, `None` for the first. No pipe is given more than it carries soon, so that what
    /// waits finds pipes that are made meanwhile.
    async fn turn(&self, kind: Kind, len: u64) -> (Option<Pipe>, Given) {
        loop {
            let room = self.room[kind.index()].notified();
            if let Some(turn) = self.least(kind, len) {
                return turn;
            }
            room.await;
        }
    }

    /// Of the first pipe and the further ones that do, the one with the fewest bytes under way, if it has room.
    fn least(&self, kind: Kind, len: u64) -> Option<(Option<Pipe>, Given)> {
        let mut more = self.more.lock();
        more.pipes.retain(|pipe| pipe.session.shared.life.over().is_none());
        let does = |pipe: &&Pipe| pipe.joined || !matches!(kind, Kind::Staged);
        let pipes = more.pipes.iter().filter(does).filter(|pipe| pipe.load.has_room(kind));
        let least = pipes.min_by_key(|pipe| pipe.load.all()).cloned();
        let least = least.filter(|p| !self.first.has_room(kind) || p.load.all() < self.first.all());
        match &least {
            Some(pipe) => Some((least.clone(), self.give(&pipe.load, kind, len))),
            None if self.first.has_room(kind) => Some((None, self.give(&self.first, kind, len))),
            None => None,
        }
    }

    /// Makes further pipes, to the same machine only: another one behind the same name may have other files. After some
    /// time without use, or without success, it may be tried again.
    pub fn widen(&self, first: &Session) {
        let (boot_id, pid) = (first.accept.home.boot_id.clone(), first.accept.pid);
        let wire = first.wire();
        let join = (first.accept.features & JOINS != 0).then_some(pid);
        let (opener, more, room) = (self.opener.clone(), self.more.clone(), self.room.clone());
        let mut state = self.more.lock();
        if state.keeper.is_some() {
            return;
        }
        let task = tokio::spawn(async move {
            // One alone tells whether there can be any: refused logins lock accounts.
            let first = if opener.logs_in { 1 } else { CHANNELS_MORE };
            for join in [join, None] {
                for count in [first, CHANNELS_MORE - first] {
                    let opened =
                        futures_util::future::join_all((0..count).map(|_| (opener.open)(join))).await;
                    let usable = opened.into_iter().filter_map(|opened| usable(opened, &boot_id, pid, &wire));
                    more.lock().pipes.extend(usable);
                    room.iter().for_each(Notify::notify_waiters);
                    if more.lock().pipes.is_empty() {
                        break;
                    }
                }
                if join.is_none() || !more.lock().pipes.is_empty() {
                    break;
                }
            }
            if more.lock().pipes.is_empty() {
                tokio::time::sleep(CHANNELS_PAUSE).await;
            }
            more.lock().used = Some(Instant::now());
            while more.lock().is_used() {
                tokio::time::sleep(CHANNEL_IDLE).await;
            }
            let mut more = more.lock();
            more.pipes.clear();
            more.keeper = None;
        });
        state.keeper = Some(task.abort_handle());
    }
}

/// A session with the same machine, over the same wire.
fn usable(opened: Result<Session>, boot_id: &Bytes, pid: u32, wire: &Arc<Wire>) -> Option<Pipe> {
    match opened {
        Ok(session) if session.accept.home.boot_id == *boot_id => {
            session.share(wire);
            let joined = session.accept.features & JOINS != 0 && session.accept.pid == pid;
            Some(Pipe { session: Arc::new(session), load: Arc::default(), joined })
        }
        Ok(_) => {
            tracing::debug!("a further connection leads to another machine");
            None
        }
        Err(e) => {
            tracing::debug!("no further connection: {e}");
            None
        }
    }
}

#[cfg(test)]
impl Wide {
    /// How many there are besides the first.
    pub fn count(&self) -> usize {
        self.more.lock().pipes.len()
    }

    /// Bytes that are under way, by pipe.
    pub fn given(&self) -> Vec<u64> {
        let more = self.more.lock();
        more.pipes.iter().map(|p| &p.load).chain([&self.first]).map(|load| load.all()).collect()
    }

    /// Room for a read, until it is dropped, if any pipe has some.
    pub fn hold_read(&self, len: u32) -> Option<impl Sized> {
        self.least(Kind::Read(Turn::Now), len.into()).map(|(_, given)| given)
    }

    /// Bytes that came over those besides the first.
    pub fn read_over(&self) -> Vec<u64> {
        let more = self.more.lock();
        let meters = more.pipes.iter().map(|p| &p.session.shared.life.meter);
        meters.map(|meter| meter.bytes_in.load(Ordering::Relaxed)).collect()
    }

    /// Bytes that went over those besides the first.
    pub fn sent_over(&self) -> Vec<u64> {
        let more = self.more.lock();
        let meters = more.pipes.iter().map(|p| &p.session.shared.life.meter);
        meters.map(|meter| meter.bytes_out.load(Ordering::Relaxed)).collect()
    }

    /// Whether all are bound by the windows of the first.
    pub fn share(&self, wire: &Arc<Wire>) -> bool {
        self.more.lock().pipes.iter().all(|p| Arc::ptr_eq(&p.session.wire(), wire))
    }

    /// All but the first end.
    pub fn cut(&self) {
        self.more.lock().pipes.iter().for_each(|p| p.session.shared.finish(&super::closed()));
    }
}

impl Drop for Wide {
    fn drop(&mut self) {
        let mut more = self.more.lock();
        more.keeper.iter().for_each(AbortHandle::abort);
        more.pipes.clear();
    }
}

impl More {
    fn is_used(&self) -> bool {
        !self.pipes.is_empty() && self.used.is_some_and(|used| used.elapsed() < CHANNEL_IDLE)
    }
}
