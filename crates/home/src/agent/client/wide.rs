//! Further pipes for long reads and for what is staged. ssh lets 2 MiB of one channel be under way, and over a far and
//! fast wire that is what bounds a transfer. The pipes lead into the same agent; where it cannot be joined, each leads to
//! an agent of its own, which is asked for bytes of files and nothing else, because changes have one agent. What one of
//! them cannot do the first one is asked again.

use super::super::frame::Class;
use super::super::verbs::{Accept, JOINS, StageArgs};
use super::Session;
use crate::limits::agent::{CHANNEL_FULL, CHANNEL_IDLE, CHANNEL_PACE, CHANNELS_MORE, CHANNELS_PAUSE};
use crate::{Chunk, Loc, Result};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Makes one more connection to the same account: into the agent that runs there as this process, or to another one.
pub type Opener = Arc<dyn Fn(Option<u32>) -> BoxFuture<'static, Result<Session>> + Send + Sync>;

pub(super) struct Wide {
    opener: Opener,
    /// Bytes that are on their way over the first pipe.
    first: Arc<AtomicU64>,
    more: Arc<Mutex<More>>,
}

#[derive(Default)]
struct More {
    pipes: Vec<Pipe>,
    reads: Option<Pace>,
    stages: Option<Pace>,
    /// When something long was carried last.
    used: Option<Instant>,
    /// Makes further pipes, and closes them when they are not used any more.
    keeper: Option<AbortHandle>,
}

#[derive(Clone)]
struct Pipe {
    session: Arc<Session>,
    asked: Arc<AtomicU64>,
    /// Whether it leads into the same agent.
    joined: bool,
}

/// What was carried since some time.
struct Pace {
    since: Instant,
    bytes: u64,
}

/// Bytes that are under way.
struct Asked(Arc<AtomicU64>, u64);

impl Asked {
    fn new(sum: Arc<AtomicU64>, len: u64) -> Asked {
        sum.fetch_add(len, Ordering::Relaxed);
        Asked(sum, len)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Wide {
    pub fn new(opener: Opener) -> Wide {
        Wide { opener, first: Arc::default(), more: Arc::default() }
    }

    /// Reads over the pipe that has least to do. `first`: the one that has always been there.
    pub async fn read(&self, first: &Session, class: Class, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let chunk = self.read_once(first, class, file, at, len).await?;
        let full = self.more.lock().reads_fill(chunk.data.len() as u64, first.round_trip());
        if full {
            self.widen(&first.accept);
        }
        Ok(chunk)
    }

    async fn read_once(&self, first: &Session, class: Class, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let (other, asked) = self.least(len.into(), |_| true);
        if let Some(pipe) = other {
            if let Ok(chunk) = pipe.session.read_once(class, file, at, len).await {
                let meter = &first.shared.life.meter;
                meter.bytes_in.fetch_add(chunk.data.len() as u64, Ordering::Relaxed);
                return Ok(chunk);
            }
            drop(asked);
            let _asked = Asked::new(self.first.clone(), len.into());
            return first.read_once(class, file, at, len).await;
        }
        first.read_once(class, file, at, len).await
    }

    /// Stages over the joined pipe that has least to do. `first`: the one that has always been there.
    pub async fn stage(&self, first: &Session, args: StageArgs) -> Result<()> {
        let len = args.data.len() as u64;
        self.stage_once(first, args).await?;
        let full = self.more.lock().stages_fill(len, first.round_trip());
        if full {
            self.widen(&first.accept);
        }
        Ok(())
    }

    async fn stage_once(&self, first: &Session, args: StageArgs) -> Result<()> {
        let len = args.data.len() as u64;
        let (other, asked) = self.least(len, |pipe| pipe.joined);
        if let Some(pipe) = other {
            if pipe.session.stage_and_hear(args.clone()).await.is_ok() {
                first.shared.life.meter.bytes_out.fetch_add(len, Ordering::Relaxed);
                return Ok(());
            }
            drop(asked);
            let _asked = Asked::new(self.first.clone(), len);
            return first.stage_and_hear(args).await;
        }
        // Among several pipes each has as much under way as it has answered.
        let several = self.more.lock().pipes.iter().any(|pipe| pipe.joined);
        match several {
            true => first.stage_and_hear(args).await,
            false => first.stage_on_its_way(args).await,
        }
    }

    /// Of the first pipe and the further ones that do, the one with the fewest bytes under way, `None` for the first; `len`
    /// more are on their way over it.
    fn least(&self, len: u64, does: impl Fn(&Pipe) -> bool) -> (Option<Pipe>, Asked) {
        let mut more = self.more.lock();
        more.pipes.retain(|pipe| pipe.session.shared.life.over().is_none());
        let pipes = more.pipes.iter().filter(|pipe| does(pipe));
        let least = pipes.min_by_key(|pipe| pipe.asked.load(Ordering::Relaxed)).cloned();
        let least = least.filter(|p| p.asked.load(Ordering::Relaxed) < self.first.load(Ordering::Relaxed));
        let sum = least.as_ref().map_or(&self.first, |pipe| &pipe.asked).clone();
        (least, Asked::new(sum, len))
    }

    /// Makes further pipes, to the same machine only: another one behind the same name may have other files. After some
    /// time without use, or without success, it may be tried again.
    pub fn widen(&self, first: &Accept) {
        let (boot_id, pid) = (first.home.boot_id.clone(), first.pid);
        let join = (first.features & JOINS != 0).then_some(pid);
        let (opener, more) = (self.opener.clone(), self.more.clone());
        let mut state = self.more.lock();
        if state.keeper.is_some() {
            return;
        }
        let task = tokio::spawn(async move {
            // One alone tells whether there can be any: refused logins lock accounts.
            for join in [join, None] {
                for count in [1, CHANNELS_MORE - 1] {
                    let opened = futures_util::future::join_all((0..count).map(|_| opener(join))).await;
                    let usable = opened.into_iter().filter_map(|opened| usable(opened, &boot_id, pid));
                    more.lock().pipes.extend(usable);
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

/// A session with the same machine.
fn usable(opened: Result<Session>, boot_id: &Bytes, pid: u32) -> Option<Pipe> {
    match opened {
        Ok(session) if session.accept.home.boot_id == *boot_id => {
            let joined = session.accept.features & JOINS != 0 && session.accept.pid == pid;
            Some(Pipe { session: Arc::new(session), asked: Arc::default(), joined })
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

    /// Bytes that were asked for, by pipe.
    pub fn asked(&self) -> Vec<u64> {
        let more = self.more.lock();
        let sums = more.pipes.iter().map(|p| &p.asked).chain([&self.first]);
        sums.map(|sum| sum.load(Ordering::Relaxed)).collect()
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

    /// All but the first end.
    pub fn cut(&self) {
        self.more.lock().pipes.iter().for_each(|p| p.session.shared.finish(&super::closed()));
    }

    /// So many bytes were read and as many staged; whether either fills a channel.
    pub fn is_full(&self, bytes: u64, round_trip: Duration) -> bool {
        let mut more = self.more.lock();
        more.reads_fill(bytes, round_trip) | more.stages_fill(bytes, round_trip)
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

    /// So many bytes were read; whether as many come in each round trip as one channel of ssh hardly carries.
    fn reads_fill(&mut self, bytes: u64, round_trip: Duration) -> bool {
        self.used = Some(Instant::now());
        Pace::fills(&mut self.reads, bytes, round_trip)
    }

    /// The same of bytes that were staged: a channel carries each way as much.
    fn stages_fill(&mut self, bytes: u64, round_trip: Duration) -> bool {
        self.used = Some(Instant::now());
        Pace::fills(&mut self.stages, bytes, round_trip)
    }
}

impl Pace {
    fn fills(pace: &mut Option<Pace>, bytes: u64, round_trip: Duration) -> bool {
        let now = pace.get_or_insert_with(|| Pace { since: Instant::now(), bytes: 0 });
        now.bytes += bytes;
        let elapsed = now.since.elapsed();
        if elapsed < CHANNEL_PACE {
            return false;
        }
        let flow = now.bytes as f64 * round_trip.as_secs_f64() / elapsed.as_secs_f64();
        *pace = None;
        flow >= CHANNEL_FULL as f64
    }
}
